"""What does the first use of a device or of pinned memory cost? Once in a process: each sample is a fresh one."""

import contextlib as _contextlib

import torch as _torch
from asv_runner.benchmarks.mark import SkipNotImplemented as _SkipNotImplemented

from . import devices as _devices
from . import moving as _moving
from . import sources as _sources

needs_device = True

PROBE = 4096  # bytes registered to see whether that can be done


class Context:
    """Making the device's context: the first tensor on it."""

    role = "context"
    param_names = ()
    single_threaded = False
    once = True
    timeout = 120

    def setup(self):
        # not used here: choosing a device may make its context. What is timed names the device itself.
        self.device = _devices.find()

    @_contextlib.contextmanager
    def first_use(self):
        """What is timed is the first to learn whether the device works, too late for asv's usual skip by a setup."""
        try:
            with self.device.first_use():
                yield
        except NotImplementedError as reason:
            print(f"asv: skipped: {reason}")
            raise _SkipNotImplemented(str(reason)) from None

    def timeit_first_tensor(self):
        names = {"torch": _torch, "device": self.device.device, "synchronize": self.device.synchronize}
        names["first_use"] = self.first_use
        return "with first_use(): torch.empty(1, device=device); synchronize()", names


class PinnedMemory:
    """Pinned memory for the first time in a process, after the context exists."""

    role = "pinned memory"
    param_names = ("nbytes",)
    params = ([2**20, 64 * 2**20, 2**30],)
    single_threaded = False
    once = True
    timeout = 120

    @_devices.out_of_memory_skips()
    def setup(self, nbytes):
        self.device = device = _devices.find().use()
        _moving.require_memory(4 * nbytes)
        device.pinned(_torch.empty(1, dtype=_torch.uint8))  # skips where there is none
        host = _sources.tensor("uint8", nbytes)
        self.release = []
        self.names = {"torch": _torch, "nbytes": nbytes, "t": host}
        self.names["register"] = lambda: self.release.append(device.registered(host))

    def teardown(self, nbytes):
        for release in getattr(self, "release", []):
            release()

    def timeit_allocate(self, nbytes):
        """torch's pinned allocator asks the driver for a block that it then keeps."""
        return "torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)", self.names

    def timeit_pin_copy(self, nbytes):
        """Pinning an existing tensor makes a pinned copy of it."""
        return "t.pin_memory()", self.names

    def timeit_register(self, nbytes):
        """Pinning an existing tensor in place."""
        # Whether it can be done shows here, where that skips the cell; in the timed statement it would be a failure.
        # This warms the call itself, microseconds: the time goes into the large tensor's pages, none of which it locks.
        small = _torch.ones(PROBE, dtype=_torch.uint8)
        self.device.registered(small)()
        return "register()", self.names
