"""What tests of transfers on a real and on a pretended device share."""

import torch

from benchmarks import busy, firsts, link, many, moving, overlap, routes, transfer

# A benchmark and a cell of it, of every way in which a setup comes to use the device
SETUPS = [
    (transfer.HostToDevice, ("t.to(device)", routes.PAGEABLE, "float32", 4)),
    (overlap.Hidden, (routes.HOST_TO_DEVICE, routes.PAGEABLE, 4)),
    (overlap.TrainingStep, ("naive", 4096)),
    (overlap.DataLoader, (0, routes.PAGEABLE)),
    (busy.HostToDevice, ("d.copy_(t)", routes.PAGEABLE, 4)),
    (busy.WorkBehind, ("buffers.read()", 4)),
    (many.ToDevice, ("[x.to(device) for x in tensors]", routes.PAGEABLE, 2)),
    (firsts.PinnedMemory, (2**20,)),
    (link.Limit, (link.BOTH, 4)),
    (link.Floor, ()),
]

# Transfers between tensors whose contracts say what becomes of one that requires grad
RECORDED = [
    route for route in routes.ROUTES if route.host_memory and not route.array and "requires grad" in route.inputs
]


def renew(move, number):
    """Other numbers in the source, no two chunks of it alike, and rubbish wherever it may arrive.

    A route that moves nothing, or refills a staging buffer before its last chunk has left it, is seen by this alone:
    the sources of benchmarks repeat one tile.
    """
    for place, leaf in enumerate(moving.leaves_of(move.source)):
        leaf.copy_((torch.arange(leaf.numel()) + number + place).view(leaf.shape))
    for buffer in move.written():
        buffer.fill_(-1)
    move.device.synchronize()


def grad_outcome(route, names, run):
    """What becomes of a tensor that requires grad, in the catalogue's words. run: does it, and gives the result."""
    names["t"] = names["t"].detach().requires_grad_()
    first = run()
    assert first.requires_grad
    if route.memory != routes.INTO:
        return routes.FOLLOWS
    recorded = first.grad_fn
    before = [node for node, place in run().grad_fn.next_functions]
    return routes.ACCUMULATES if recorded in before else routes.FOLLOWS
