"""What does the host's part of a transfer cost, with more threads, and with pinned memory to reuse or without?"""

import os as _os

import torch as _torch

from . import routes as _routes
from . import transfer as _transfer

needs_device = True
section = "Transfers: threads of the host, pinned memory anew"
about = (
    "Float64 is cast to float32, the others are float32; all threads are as many as the process may use cores. What "
    "gives pinned memory copies at every call. It page-locks memory on a miss of torch's pinned cache, emptied before "
    "that call; a hit takes the block of the call before, as loops do."
)
place = 21
noise = "transfer"
drawn = False

CAST, PINS = "t.float().to(device)", "t.pin_memory().to(device, non_blocking=True)"
STAGED = ["s.copy_(t); d.copy_(s, non_blocking=True)", "copy_in_chunks(d, t, stages)", PINS, CAST]
ALL, MISS = "all", "miss"


class HostThreads(_transfer._Transfer):
    """From pageable memory, by routes that stage, pin or cast on the host: by one thread, and by all."""

    title = "staged, pinned or cast on the host"
    across = "threads"
    beside = {"threads": "one", "called": "one thread"}
    direction = _routes.HOST_TO_DEVICE
    param_names = ("route", "threads", "nbytes")
    params = (STAGED, ["one", ALL], [64 * 2**20])

    def setup(self, route, threads, nbytes):
        cores = len(_os.sched_getaffinity(0)) if hasattr(_os, "sched_getaffinity") else _os.cpu_count()
        _torch.set_num_threads(cores if threads == ALL else 1)
        super().setup(route, _routes.PAGEABLE, "float64" if route == CAST else "float32", nbytes)


class _PinnedCache(_transfer._Transfer):
    """A route that makes pinned memory, which torch's cache has ("hit") or has not ("miss")."""

    title = "by way of pinned memory made by the call"
    across = "cache"
    beside = {"cache": "hit", "called": "a hit"}
    param_names = ("route", "cache", "nbytes")
    number = 1  # every call finds the cache as it is to be

    def setup(self, route, cache, nbytes):
        super().setup(route, self.memory, "float32", nbytes)
        device = self.move.device
        if cache == MISS:
            device.empty_pinned_cache()  # skips where it cannot be done

        def prepare():
            device.synchronize()  # a block whose copy is under way is not free
            if cache == MISS:
                device.empty_pinned_cache()

        self.move.names["prepare"] = prepare


class PinnedToDevice(_PinnedCache):
    direction, memory = _routes.HOST_TO_DEVICE, _routes.PAGEABLE
    params = ([PINS], ["hit", MISS], [64 * 2**20])


class PinnedToHost(_PinnedCache):
    direction, memory = _routes.DEVICE_TO_HOST, _routes.PINNED
    params = (["t.to('cpu', non_blocking=True)"], ["hit", MISS], [64 * 2**20])
