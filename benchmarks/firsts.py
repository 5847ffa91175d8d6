"""What does the first use of a device or of pinned memory cost? Once in a process: each sample is a fresh one."""

import multiprocessing as _multiprocessing
import time as _time
from concurrent.futures import ProcessPoolExecutor as _ProcessPoolExecutor

import torch as _torch

from . import devices as _devices
from . import moving as _moving
from . import sources as _sources

needs_device = True

CONTEXTS = 5  # processes forked by one of asv's, a sample each
PROBE = 4096  # bytes registered to see whether that can be done


class Context:
    """Making the device's context: the first tensor on it, from before the driver is touched."""

    role = "context"
    number = 1
    asleep = True

    def samples_for(self):
        return CONTEXTS

    def setup(self):
        # in another process: whether there is a device is asked of its driver, which starts for it
        self.name = _apart(_found)
        self.timed_by = self

    def timeit_first_tensor(self):
        return "first_use()", {"first_use": lambda: self.timeit(1)}

    def timeit(self, number):
        """Seconds of so many first uses, each in a process of its own."""
        return sum(_apart(_first_use, self.name) for _ in range(number))


def _found():
    return str(_devices.find())


def _first_use(name):
    """Seconds until the first tensor is on the device; NotImplementedError, with the reason, where that fails."""
    device, start = _devices.Device(name), _time.perf_counter()
    with device.first_use():
        _torch.empty(1, device=device.device)
        device.synchronize()
    return _time.perf_counter() - start


def _apart(work, *given):
    """Call ``work`` in a process that is forked for it alone; return what it gives, or raise what it raises."""
    with _ProcessPoolExecutor(1, mp_context=_multiprocessing.get_context("fork")) as pool:
        return pool.submit(work, *given).result()


class PinnedMemory:
    """Pinned memory for the first time in a process, after the context exists."""

    role = "pinned memory"
    params = ([2**20, 64 * 2**20, 2**30],)
    once = True

    def setup(self, nbytes):
        self.device = device = _devices.find().use()
        _moving.require_memory(4 * nbytes)
        host = _sources.tensor("uint8", nbytes)
        self.release = []
        # nothing is pinned before: what makes the first block pays for torch's allocator, too
        self.names = {"torch": _torch, "nbytes": nbytes, "t": host, "pin": device.pin}
        self.names["register"] = lambda: self.release.append(device.registered(host))

    def teardown(self, nbytes):
        for release in getattr(self, "release", []):
            release()

    def timeit_allocate(self, nbytes):
        """torch's pinned allocator asks the driver for a block that it then keeps."""
        return "pin(lambda: torch.empty(nbytes, dtype=torch.uint8, pin_memory=True))", self.names

    def timeit_pin_copy(self, nbytes):
        """Pinning an existing tensor makes a pinned copy of it."""
        return "pin(t.pin_memory)", self.names

    def timeit_register(self, nbytes):
        """Pinning an existing tensor in place."""
        # Whether it can be done shows here, where that skips the cell; in the timed statement it would be a failure.
        # This warms the call itself, microseconds: the time goes into the large tensor's pages, none of which it locks.
        small = _torch.ones(PROBE, dtype=_torch.uint8)
        self.device.registered(small)()
        return "register()", self.names
