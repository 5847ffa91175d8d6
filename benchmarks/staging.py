"""What does the host's part of a transfer cost, with more threads, and with pinned memory to reuse
or without?
"""

import os

import torch

from . import routes, transfer
from .core import devices, moving

needs_device = True
section = "Transfers: threads of the host, pinned memory anew"
about = (
    "Float64 is cast to float32, the others are float32; all threads are as many as the process "
    "may use cores. What gives pinned memory copies at every call. It page-locks memory on a miss "
    "of torch's pinned cache, emptied before that call; a hit takes the block of the call before, "
    "as loops do. torch may round the size of a block up."
)
place = 21
noise = "transfer"
has_panels = False

CAST, PINS = "t.float().to(device)", "t.pin_memory().to(device, non_blocking=True)"
STAGED = ["s.copy_(t); d.copy_(s, non_blocking=True)", "copy_in_chunks(d, t, stages)", PINS, CAST]
ALL, MISS = "all", "miss"


class HostThreads(transfer._Transfer):
    """From pageable memory, by routes that stage, pin or cast on the host: with one thread, and
    with all.
    """

    title = "staged, pinned or cast on the host"
    across = "threads"
    reference = {"threads": "one", "called": "one thread"}
    direction = routes.HOST_TO_DEVICE
    param_names = ("route", "threads", "nbytes")
    params = (STAGED, ["one", ALL], [64 * 2**20])

    def setup(self, route, threads, nbytes):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        torch.set_num_threads(cores if threads == ALL else 1)
        super().setup(route, routes.PAGEABLE, "float64" if route == CAST else "float32", nbytes)


class PinnedCache(transfer._Transfer):
    """A route that allocates pinned memory: from torch's cache (hit) or the driver (miss)."""

    title = "by way of pinned memory made by the call"
    across = "cache"
    reference = {"cache": "hit", "called": "a hit"}
    param_names = ("route", "cache", "nbytes")
    params = ([PINS, "t.to('cpu', non_blocking=True)"], ["hit", MISS], [64 * 2**20])
    number = 1  # every call finds the cache as prepared

    def setup(self, route, cache, nbytes):
        super().setup(route, transfer.find(route).host_memory[0], "float32", nbytes)
        device = self.move.device

        def prepare():
            device.synchronize()  # a block is in use until its copy is done
            if cache == MISS:
                device.empty_pinned_cache()

        prepare()  # skips where it cannot be done
        self.move.names["prepare"] = prepare


class PinnedBlock:
    """Memory of a pinned tensor of a power of two plus one byte: the largest tensor that fits into
    its block.
    """

    title = "pinned memory that a tensor of one byte more takes"
    multiple_of = "nbytes"
    params = ([2**20, 64 * 2**20],)

    def setup(self, nbytes):
        """Find the largest tensor that gets the same block. Done in setup, where an error is logged
        with its reason.
        """
        device = devices.find().use()
        moving.require_memory(4 * nbytes)

        def address(size):
            return device.pin(
                lambda: torch.empty(size, dtype=torch.uint8, pin_memory=True)
            ).data_ptr()

        size_wanted = nbytes + 1
        first = address(size_wanted)
        self.block = next(
            s
            for s in [*range(2 * nbytes, size_wanted, -nbytes // 8), size_wanted]
            if address(s) == first
        )

    def track_block(self, nbytes):
        """Bytes of the block that torch keeps."""
        return self.block

    track_block.unit = "bytes"
