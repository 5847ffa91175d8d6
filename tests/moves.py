"""What tests of transfers on a real and on a pretended device share."""

import torch

from benchmarks import moving


def renew(move, number):
    """Other numbers in the source, no two chunks of it alike, and rubbish wherever it may arrive.

    A route that moves nothing, or refills a staging buffer before its last chunk has left it, is seen by this alone:
    the sources of benchmarks repeat one tile.
    """
    for leaf in moving.leaves_of(move.source):
        leaf.copy_((torch.arange(leaf.numel()) + number).view(leaf.shape))
    for name in {"d", "h", "s"} & set(move.names):
        move.names[name].fill_(-1)
    move.device.synchronize()
