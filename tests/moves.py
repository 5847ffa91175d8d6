"""What tests of transfers on a real and on a pretended device share."""

import torch

from benchmarks import firsts, link, moving, overlap, routes, transfer

# A benchmark and a cell of it, of every way in which a setup comes to use the device
SETUPS = [
    (transfer.HostToDevice, ("t.to(device)", routes.PAGEABLE, "float32", 4)),
    (overlap.Hidden, (routes.HOST_TO_DEVICE, routes.PAGEABLE, "both", 4)),
    (overlap.TrainingStep, ("naive", 4096)),
    (overlap.DataLoader, (routes.PAGEABLE,)),
    (firsts.PinnedMemory, (2**20,)),
    (link.Limit, (link.BOTH, 4)),
    (link.Floor, ()),
]


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
