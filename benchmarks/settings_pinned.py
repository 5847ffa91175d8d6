"""What do options of torch's allocator change about pinned memory: the time of a block, and its
size?
"""

import torch

from .core import devices, environment, moving
from .settings import ProcessFamily, Statement

needs_device = True
section = "Pinned memory: options of torch's allocator"
about = (
    "Every process has one option, pins blocks of one size, and may use all cores. 70.4 MiB are "
    "1.1 times a power of two. The bytes that a tensor takes come from torch's statistics, which "
    "leave out a reserved segment: torch pins that whole before the first block. The largest "
    "cached size stops the rounding of larger blocks, and torch pins each of them anew."
)
place = 21
noise = "transfer"
has_panels = False
down = "setting"
reference = {"setting": environment.NONE, "called": "without"}

PIN = "torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)"
PIN_AND_RELEASE = f"{PIN}; empty_cache()"
SIZES = [2**20, 64 * 2**20, int(1.1 * 64 * 2**20), 1000 * 2**20]


class _Block(Statement):
    """A pinned block, in the process that has the option. Nothing is pinned before."""

    def __init__(self, family, route, nbytes):
        device = devices.find().use()
        if not device.is_cuda:
            raise NotImplementedError(f"{device.device.type} has no options of pinned memory")
        moving.require_memory(4 * nbytes)
        names = {"torch": torch, "nbytes": nbytes, "empty_cache": device.empty_pinned_cache}
        super().__init__(route, names)

    def bytes_taken(self):
        """Return the bytes of torch's block of one tensor."""
        if not hasattr(torch.cuda, "host_memory_stats"):
            raise NotImplementedError(f"torch {torch.__version__} does not count pinned memory")
        block = eval(self.route, self.names)
        devices.find().require_pinned(block)
        return torch.cuda.host_memory_stats()["allocated_bytes.current"]


class FirstBlock(ProcessFamily):
    """The first block of a process, which torch asks the driver for. Once per process."""

    cell_type = _Block
    on_one_core = False
    once = True
    title = "the first block of a process"
    param_names = ("call", "setting", "nbytes")
    params = ([PIN], environment.PINNING, SIZES)

    def timeit_pin(self, call, setting, nbytes):
        return call, {}


class NextBlock(FirstBlock):
    """A block again, from torch's cache where the option leaves it there; or pinned and released,
    by emptying the cache.
    """

    timeit_pin = None  # not inherited: it is timed once
    once = False
    title = "a block after the first"
    params = ([PIN, PIN_AND_RELEASE], environment.PINNING, SIZES)

    def timeit_pin_again(self, call, setting, nbytes):
        return call, {}


class BlockSize(FirstBlock):
    """Memory that torch pins for a tensor, per byte of it."""

    timeit_pin = None  # not inherited: it is timed
    title = "memory pinned per byte of a tensor"
    multiple_of = "nbytes"

    def track_block(self, call, setting, nbytes):
        """Bytes of the block of one tensor."""
        return self.timed_by.ask("bytes_taken")

    track_block.unit = "bytes"
