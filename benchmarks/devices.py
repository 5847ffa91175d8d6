"""Find an accelerator, wait for it, pin host memory. Touches no device at import, nor until `find` is called.

torch.cuda stands for CUDA and ROCm alike. Other accelerators (xpu, mps, a private-use backend) are used through the
module of their name under torch, as far as that goes: what one cannot do is asked, not assumed.
"""

import contextlib
import os
import warnings

import torch

from .said import first_line, is_out_of_memory

VARIABLE = "CONVERSION_DEVICE"  # names the device to use, such as cuda:1; default: the first that is found
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation, and hipErrorOutOfMemory
NONE_FOUND = "needs an accelerator: torch finds no CUDA, ROCm, XPU or MPS device"


@contextlib.contextmanager
def out_of_memory_skips():
    """Skip the cell, with its reason, where host or device run out of memory inside; also decorates a ``setup``."""
    try:
        yield
    except NotImplementedError:
        raise  # says why already
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise NotImplementedError(f"out of memory: {first_line(error)}") from None


class Device:
    """An accelerator, by torch's name of it (cuda:0). Making one does not initialise it; using it does."""

    def __init__(self, name):
        self.device = torch.device(name)
        self.module = getattr(torch, self.device.type, None)
        self.works = False  # so far as is known: nothing was asked of it yet

    def __str__(self):
        return str(self.device)

    @property
    def model(self):
        """The maker's name of the device, as far as its driver tells; makes the device's context."""
        name = getattr(self.module, "get_device_name", None)
        return name(self.device) if name else self.device.type

    @contextlib.contextmanager
    def first_use(self):
        """Skip the cell, with the driver's reason, where what makes the device's context inside fails.

        A device that is counted may be one without a context: its driver too old for this torch, taken by another
        process, full, MIG without an instance. Once it has worked, what fails is a failure.
        """
        try:
            yield
        except (RuntimeError, AssertionError, torch.cuda.DeferredCudaCallError) as error:
            if self.works or "forked subprocess" in str(error):  # a context made before asv forked is our fault
                raise
            named = f"{VARIABLE}={self}" if os.environ.get(VARIABLE) else str(self)
            raise NotImplementedError(f"{named} cannot be used: {first_line(error)}") from None
        self.works = True

    def use(self):
        """Make the device the current one, which streams and events belong to and pinned memory is made for; itself.

        The first time it also allocates an element: NotImplementedError, with the driver's reason, where that fails.
        """
        with self.first_use():
            choose = getattr(self.module, "set_device", None)
            if choose is not None and self.device.index is not None:
                choose(self.device)
            if not self.works:
                torch.empty(1, device=self.device)
                self.synchronize()
        return self

    def synchronize(self):
        """Wait until all work queued on the device is done. A backend that has no such call does nothing late."""
        wait = getattr(self.module, "synchronize", None)
        if wait is None:
            return
        if self.device.index is None or self.device.type == "mps":  # torch.mps has one device, and takes no name of it
            wait()
        else:
            wait(self.device)

    @property
    def is_there(self):
        """Whether torch finds the device, as far as its kind can say. Makes no context."""
        if self.device.type in ("cpu", "meta") or not _is_available(self.device.type):
            return False
        count = getattr(self.module, "device_count", None)
        return count is None or (self.device.index or 0) < count()

    @property
    def is_cuda(self):
        return self.device.type == "cuda"

    @property
    def has_streams(self):
        return hasattr(self.module, "Stream") and hasattr(self.module, "stream") and hasattr(self.module, "Event")

    def require_streams(self):
        if not self.has_streams:
            raise NotImplementedError(f"{self.device.type} has no streams in torch {torch.__version__}")

    def pinned(self, tensor):
        """A page-locked copy of a host tensor; skips the cell where the device has no pinned memory."""
        try:
            copy = torch.empty_like(tensor, pin_memory=True)
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            if is_out_of_memory(error) or any(f"{kind} error" in str(error) for kind in ("CUDA", "HIP")):
                raise  # there is pinned memory; this much of it could not be had, or the device is broken
            raise NotImplementedError(f"{self.device.type} has no pinned memory: {first_line(error)}") from None
        return copy.copy_(tensor)

    def registered(self, tensor):
        """Page-lock the memory of a host tensor in place; returns a callable that undoes it. Skips where that fails."""
        if not self.is_cuda:
            raise NotImplementedError(f"{self.device.type} has no call that registers host memory")
        runtime = torch.cuda.cudart()
        address, nbytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        code = runtime.cudaHostRegister(address, nbytes, 0)
        if int(code):
            # refused under confidential computing, and where the limit of locked memory is low (ulimit -l)
            why = "out of memory" if int(code) == OUT_OF_MEMORY else code
            raise NotImplementedError(f"cudaHostRegister refused {nbytes} bytes: {why}")
        return lambda: runtime.cudaHostUnregister(address)

    def clock(self):
        """A clock of the device in seconds, for timeit: its readings are events in the device's own queue.

        What lies between two readings is the device's time alone, so it suits pure DMA: pinned, non-blocking copies.
        """
        self.require_streams()
        start = self.module.Event(enable_timing=True)
        start.record()

        def now():
            event = self.module.Event(enable_timing=True)
            event.record()
            event.synchronize()
            return start.elapsed_time(event) / 1e3

        return now


def find():
    """The accelerator to measure, which `use` tries; NotImplementedError where torch counts none. Makes no context."""
    # asks the driver without making a context, after which a process could not fork
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    name = os.environ.get(VARIABLE)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        device = _named(name) if name else _first()
    if device is None:
        none = f"{VARIABLE}={name}: torch finds no such accelerator" if name else NONE_FOUND
        # without NVML (torch 1.13 never asks it) CUDA counts, and torch warns of what kept it from that
        raise NotImplementedError(": ".join([none, *dict.fromkeys(first_line(warning.message) for warning in said)]))
    return device


def _first():
    if torch.cuda.is_available():
        return Device("cuda:0")
    return next((Device(kind) for kind in ("xpu", "mps") if _is_available(kind)), None)


def _named(name):
    try:
        device = Device(name)
    except RuntimeError:  # a kind that torch does not know
        return None
    return device if device.is_there else None


def answer():
    """What a run record says of the device: ``{"device": name, "device_name": model, "no_device": why there is none}``.

    It is there if a context can be made and one element allocated on it. For a process of its own, which a driver may
    hang or kill (scripts/measuring/rounds.py).
    """
    try:
        device = find().use()
        return {"device": str(device), "device_name": device.model, "no_device": ""}
    except NotImplementedError as reason:
        why = first_line(reason)
    except Exception as error:  # whatever is wrong with it, the rest can be measured
        why = f"{type(error).__name__}: {first_line(error)}"
    return {"device": None, "device_name": None, "no_device": why}


def _is_available(kind):
    """Whether torch finds a device of this kind. torch.mps of torch 2.0 and 2.1 cannot say, torch.backends.mps can."""
    places = [place for place in (getattr(torch, kind, None), getattr(torch.backends, kind, None)) if place is not None]
    asked = [place.is_available for place in places if hasattr(place, "is_available")]
    return asked[0]() if asked else bool(places)
