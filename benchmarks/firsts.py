"""What does the first use of a device or of pinned memory cost? Once in a process: each sample is a
fresh one.
"""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import torch

from .core import devices, moving, sources

needs_device = True

CONTEXTS = 5  # processes forked per process of asv, one sample each
PROBE = 4096  # bytes registered to see whether registering works


class Context:
    """Create the device's context: the first tensor on it, with the driver still unused."""

    role = "context"
    number = 1
    asleep = True

    def samples_for(self):
        return CONTEXTS

    def setup(self):
        # in another process: to find a device, torch starts its driver
        self.name = _in_fork(_find_device)
        self.timed_by = self

    def timeit_first_tensor(self):
        return "first_use()", {"first_use": lambda: self.timeit(1)}

    def timeit(self, number):
        """Return the seconds of ``number`` first uses, each in its own process."""
        return sum(_in_fork(_first_use, self.name) for _ in range(number))


def _find_device():
    return str(devices.find())


def _first_use(name):
    """Return the seconds until the first tensor is on the device; NotImplementedError, with the
    reason, if it fails.
    """
    device, start = devices.Device(name), time.perf_counter()
    with device.first_use():
        torch.empty(1, device=device.device)
        device.synchronize()
    return time.perf_counter() - start


def _in_fork(work, *arguments):
    """Call ``work`` in a newly forked process; return its result or raise its exception."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        return pool.submit(work, *arguments).result()


class PinnedMemory:
    """Pinned memory for the first time in a process, after the context exists."""

    role = "pinned memory"
    params = ([2**20, 64 * 2**20, 2**30],)
    once = True

    def setup(self, nbytes):
        self.device = device = devices.find().use()
        moving.require_memory(4 * nbytes)
        host = sources.tensor("uint8", nbytes)
        self.release = []
        # nothing is pinned before, so the first block includes the start of torch's allocator
        self.names = {"torch": torch, "nbytes": nbytes, "t": host, "pin": device.pin}
        self.names["register"] = lambda: self.release.append(device.registered(host))

    def teardown(self, nbytes):
        for release in getattr(self, "release", []):
            release()

    def timeit_allocate(self, nbytes):
        """Have torch's pinned allocator get a block from the driver, which it then keeps."""
        return "pin(lambda: torch.empty(nbytes, dtype=torch.uint8, pin_memory=True))", self.names

    def timeit_pin_copy(self, nbytes):
        """Pin an existing tensor by a pinned copy."""
        return "pin(t.pin_memory)", self.names

    def timeit_register(self, nbytes):
        """Pin an existing tensor in place."""
        # An error here skips the cell; in the timed statement it would be a failure. This warms up
        # only the call, which takes microseconds: it locks none of the large tensor's pages, which
        # take the time.
        small = torch.ones(PROBE, dtype=torch.uint8)
        self.device.registered(small)()
        return "register()", self.names
