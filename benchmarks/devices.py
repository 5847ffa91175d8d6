"""Find an accelerator, wait for it, pin host memory. Touches no device at import, nor until `find` is called.

torch.cuda stands for CUDA and ROCm alike. Other accelerators (xpu, mps, a private-use backend) are used through the
module of their name under torch, and through torch.accelerator for what that has not: what neither can do is asked, not
assumed, and skips.
"""

import contextlib
import os
import re
import sys
import warnings
from functools import cached_property
from pathlib import Path

import torch

from . import nvml
from .sampling_log import first_line, is_out_of_memory

VARIABLE = "CONVERSION_DEVICE"  # names the device to use, such as cuda:1; default: the first that is found
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation, and hipErrorOutOfMemory
NONE_FOUND = f"needs an accelerator: torch finds no CUDA, ROCm, XPU or MPS device, and {VARIABLE} names no other"
# Set in the environment, these make every figure one of something else
REFUSED = {
    "CUDA_LAUNCH_BLOCKING": "every call waits for the device",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor asks the driver for its memory",
}
# These change figures, and people set them for good reasons: run records tell them
RECORDED = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))
QUEUED = 16 * 2**20  # bytes of each copy within the device that a synchronize has to wait for
COPIES = 8  # of them: a device that copies 5 TB a second takes 25 µs, and asking its stream takes less


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
            choose = self._call("set_device", "set_device_index")
            if choose is not None and self.device.index is not None:
                choose(self.device.index)  # which every backend takes
            if not self.works:
                torch.empty(1, device=self.device)
                self.synchronize()
        return self

    @cached_property
    def _accelerator(self):
        """torch.accelerator if it is about this device: there answer backends whose own module lacks a call."""
        module = getattr(torch, "accelerator", None)  # torch 2.6
        return module if _accelerator_kind() == self.device.type else None

    def _call(self, name, general):
        """A call of the backend's own module, or else of torch.accelerator, which names it ``general``; or None."""
        return getattr(self.module, name, None) or getattr(self._accelerator, general, None)

    def synchronize(self):
        """Wait until all work queued on the device is done; NotImplementedError where torch cannot."""
        wait = self._call("synchronize", "synchronize")
        if wait is None:  # then nobody knows when bytes have arrived, and no figure means anything
            raise NotImplementedError(f"torch {torch.__version__} has no call that waits for {self.device.type}")
        if self.device.index is None or self.device.type == "mps":  # torch.mps has one device, and takes no name of it
            wait()
        else:
            wait(self.device)

    def is_idle(self):
        """Whether all work queued on the current stream is done, without waiting; None where the device cannot say."""
        try:
            return self.current_stream().query()
        except (AttributeError, RuntimeError):
            return None

    def require_idle(self, what):
        """RuntimeError, which says ``what`` returned too early, where the current stream says that it is busy."""
        if self.is_idle() is False:
            raise RuntimeError(f"{what} returned before the work queued on {self} was done")

    def check_synchronize(self):
        """RuntimeError unless a synchronize waits for what is queued, as far as the device can say."""
        with out_of_memory_skips():
            here, there = (torch.empty(QUEUED, dtype=torch.uint8, device=self.device) for _ in range(2))
            for _ in range(COPIES):
                there.copy_(here, non_blocking=True)
        self.synchronize()
        self.require_idle("synchronize()")

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
    def driver(self):
        """The driver's version as the system tells it; "" where it does not."""
        for path in DRIVERS if self.is_cuda else ():
            with contextlib.suppress(OSError):
                found = re.search(r"\d+\.\d[\d.]*", path.read_text(encoding="utf-8"))
                if found:
                    return found.group()
        return ""

    @property
    def _own_streams(self):
        return all(hasattr(self.module, name) for name in ("Stream", "stream", "Event", "current_stream"))

    @property
    def has_streams(self):
        return self._own_streams or (self._accelerator is not None and hasattr(torch.Stream, "__enter__"))

    def require_streams(self):
        why = f"{self.device.type} has no streams in torch {torch.__version__}"
        if not self.has_streams:
            raise NotImplementedError(why)
        try:
            self.stream(), self.event()
        except RuntimeError as error:  # torch.Stream is there for every backend, whether it has streams or not
            raise NotImplementedError(f"{why}: {first_line(error)}") from None

    def stream(self):
        """A new stream of the device."""
        return self.module.Stream(device=self.device) if self._own_streams else torch.Stream(self.device)

    def on(self, stream):
        """A context in which that stream is the current one."""
        return self.module.stream(stream) if self._own_streams else stream

    def current_stream(self):
        return self._call("current_stream", "current_stream")()

    def event(self, enable_timing=False):
        kind = self.module.Event if self._own_streams else lambda **options: torch.Event(self.device, **options)
        return kind(enable_timing=enable_timing)

    def require_dtype(self, dtype):
        """Skip the cell where the device has no tensors of a dtype: MPS has none of float64."""
        try:
            torch.empty(1, dtype=getattr(torch, dtype), device=self.device)
        except TypeError as error:
            raise NotImplementedError(f"{self.device.type} has no {dtype}: {first_line(error)}") from None

    def pinned(self, tensor):
        """A copy of a host tensor, page-locked for this device; skips the cell where there is no such memory."""
        kind = self.device.type
        pins = _accelerator_kind()
        if pins != kind:  # torch pins for one kind in a process, and would do it for that
            raise NotImplementedError(f"{kind} has no pinned memory: this torch pins for {pins or 'none'}")
        try:
            copy = torch.empty_like(tensor, pin_memory=True)
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            if is_out_of_memory(error) or any(f"{maker} error" in str(error) for maker in ("CUDA", "HIP")):
                raise  # there is pinned memory; this much of it could not be had, or the device is broken
            raise NotImplementedError(f"{kind} has no pinned memory: {first_line(error)}") from None
        self.require_pinned(copy)
        return copy.copy_(tensor)

    def require_pinned(self, tensor):
        """Skip the cell where a host tensor that ought to be pinned is not: its figures would be those of pageable."""
        if not tensor.is_pinned():
            raise NotImplementedError(f"{self.device.type}: what torch was asked to pin is not pinned")

    def empty_pinned_cache(self):
        """Give back the pinned memory that torch keeps for reuse; NotImplementedError where torch has no such call.

        What is in use, by a tensor or a copy, stays.
        """
        empty = getattr(self._accelerator, "empty_host_cache", None) or getattr(torch._C, "_host_emptyCache", None)
        if empty is None:
            raise NotImplementedError(f"torch {torch.__version__} has no call that empties its cache of pinned memory")
        empty()

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
        start = self.event(enable_timing=True)
        start.record()

        def now():
            event = self.event(enable_timing=True)
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
    for variable, effect in REFUSED.items():
        if device.is_cuda and os.environ.get(variable, "0") != "0":
            raise NotImplementedError(
                f"{variable} is set: {effect}, so no figure would be that of a transfer; unset it"
            )
    return device


def _first():
    if torch.cuda.is_available():
        return Device("cuda:0")
    kinds = dict.fromkeys(["xpu", "mps", _accelerator_kind()])  # the last: a backend that is not torch's own
    return next((Device(kind) for kind in kinds if kind and Device(kind).is_there), None)


def _accelerator_kind():
    """The kind of accelerator that torch serves in this process, one at most; "" where none. Makes no context."""
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return "cuda"  # before torch 2.6 nothing else has pinned memory
    current = accelerator.current_accelerator()
    return current.type if current is not None else ""


def _named(name):
    try:
        device = Device(name)
    except RuntimeError:  # a kind that torch does not know
        return None
    return device if device.is_there else None


def answer():
    """What a run record says of the device.

    ``{"device": name, "device_name": model, "driver": version, "environment": what is set of RECORDED, "no_device": why
    there is none, "near_cores": those near it, as far as its driver tells}``. It is there if a context can be made and
    one element allocated on it. For a process of its own, which a driver may hang or kill: measuring/machine.py.
    """
    environment = {name: os.environ[name] for name in RECORDED if name in os.environ}
    try:
        device = find().use()
        found = {"device": str(device), "device_name": device.model, "no_device": "", "driver": device.driver}
        return {**found, "environment": environment, "near_cores": nvml.ask(device, nvml.near_cores) or []}
    except NotImplementedError as reason:
        why = first_line(reason)
    except Exception as error:  # whatever is wrong with it, the rest can be measured
        why = f"{type(error).__name__}: {first_line(error)}"
    return {"device": None, "device_name": None, "no_device": why}


def hold(word):
    """Make a context, print ``word``, and keep the context until standard input ends. For a process of its own."""
    held = torch.empty(1, device=find().use().device)
    print(word, flush=True)
    sys.stdin.read()
    del held


def _is_available(kind):
    """Whether torch finds a device of this kind. torch.mps of torch 2.0 and 2.1 cannot say, torch.backends.mps can."""
    places = [place for place in (getattr(torch, kind, None), getattr(torch.backends, kind, None)) if place is not None]
    asked = [place.is_available for place in places if hasattr(place, "is_available")]
    return asked[0]() if asked else bool(places)
