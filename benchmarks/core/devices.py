"""Find an accelerator, wait for it, pin host memory. Touches no device until `find` is called.

torch.cuda stands for CUDA and ROCm alike. Other accelerators (xpu, mps, a private-use backend) are
used through their module under torch, and through torch.accelerator for calls that this module
lacks. If both lack a call, the cell is skipped; no capability is assumed.
"""

import contextlib
import ctypes
import os
import platform
import re
import sys
import warnings
from functools import cached_property
from pathlib import Path

import torch

from . import driver
from .timing import first_sentence, is_out_of_memory, lose

VARIABLE = "CONVERSION_DEVICE"  # the device to use, such as cuda:1; default: the first one found
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation, and hipErrorOutOfMemory
NO_STREAMS = (AttributeError, TypeError, RuntimeError)  # errors of a backend that has none
NONE_FOUND = (
    "needs an accelerator: torch finds no CUDA, ROCm, XPU or MPS device, "
    f"and {VARIABLE} names no other"
)
# Environment variables that invalidate every figure
REFUSED = {
    "CUDA_LAUNCH_BLOCKING": "every call waits for the device",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor asks the driver for its memory",
}
# Environment variables that change figures but have legitimate uses: run records contain them
RECORDED = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
# Attributes of cuDeviceGetAttribute that say that the device reads the host's memory as its own:
# integrated (Jetson), and page tables in common (GH200)
UNIFIED = (18, 100)
DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))


class Device:
    """An accelerator, by torch's name for it (cuda:0). ``use`` initialises the device, the
    constructor does not.
    """

    def __init__(self, name):
        self.device = torch.device(name)
        self.module = getattr(torch, self.device.type, None)
        self.works = False  # not used yet

    def __str__(self):
        return str(self.device)

    @property
    def model(self):
        """Product name of the device, as its driver reports it; creates the device's context."""
        name = getattr(self.module, "get_device_name", None)
        return name(self.device) if name else self.device.type

    @contextlib.contextmanager
    def first_use(self):
        """Skip the cell, with the driver's reason, if the body fails to create the device's
        context.

        torch may count a device that cannot have a context: its driver is too old for this torch,
        another process has it, its memory is full, or MIG has no instance. Errors after the first
        success are failures, not skips.
        """
        try:
            yield
        except (RuntimeError, AssertionError, torch.cuda.DeferredCudaCallError) as error:
            # a context created before asv forked is our bug
            if self.works or "forked subprocess" in str(error):
                raise
            label = f"{VARIABLE}={self}" if os.environ.get(VARIABLE) else str(self)
            reason = f"{label} cannot be used: {first_sentence(error)}"
            if not is_out_of_memory(error):
                lose(reason)
            raise NotImplementedError(reason) from None
        self.works = True

    def use(self):
        """Make the device the current one, for streams, events and pinned memory; return it.

        The first call also allocates an element. If that fails, NotImplementedError has the
        driver's reason.
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
        """torch.accelerator if it serves this device: it has calls that some backends' own modules
        lack.
        """
        module = getattr(torch, "accelerator", None)  # torch 2.6
        return module if _accelerator_kind() == self.device.type else None

    def _call(self, name, general):
        """Return ``name`` of the backend's module, else ``general`` of torch.accelerator, else
        None.
        """
        return getattr(self.module, name, None) or getattr(self._accelerator, general, None)

    def synchronize(self):
        """Wait until all work queued on the device is done; skip the cell where torch cannot."""
        wait = self._call("synchronize", "synchronize")
        # without a wait the arrival of bytes is unknown, and figures are meaningless
        if wait is None:
            raise NotImplementedError(
                f"torch {torch.__version__} has no call that waits for {self.device.type}"
            )
        # torch.mps has one device and takes no argument
        if self.device.index is None or self.device.type == "mps":
            wait()
        else:
            wait(self.device)

    def is_idle(self):
        """Whether all work queued on the current stream is done, without waiting; None where the
        device cannot say.
        """
        try:
            return self.current_stream().query()
        except NO_STREAMS:  # or streams without query()
            return None

    def require_idle(self, call):
        """Raise RuntimeError if the current stream is still busy: ``call`` returned too early."""
        if self.is_idle() is False:
            raise RuntimeError(f"{call} returned before the work queued on {self} was done")

    @property
    def wait(self):
        """Function that waits for the current stream, as a blocking copy does. With streams it is
        one call in C.

        The device's own synchronize goes through Python, and made blocking routes look 36 % faster
        at 4 KiB.
        """
        try:
            return self.current_stream().synchronize
        except NO_STREAMS:  # or streams without synchronize()
            return self.synchronize

    @property
    def is_there(self):
        """Whether torch finds the device, as far as its backend can say. Creates no context."""
        kind = self.device.type
        places = [self.module, getattr(torch.backends, kind, None)]
        # torch 2.0 and 2.1: torch.mps has no is_available, torch.backends.mps has
        answers = [place.is_available() for place in places if hasattr(place, "is_available")]
        if kind in ("cpu", "meta") or not any(places) or not all(answers):
            return False
        count = getattr(self.module, "device_count", None)
        return count is None or (self.device.index or 0) < count()

    @property
    def is_cuda(self):
        return self.device.type == "cuda"

    @property
    def driver(self):
        """The driver's version from DRIVERS; "" where unknown."""
        for path in DRIVERS if self.is_cuda else ():
            with contextlib.suppress(OSError):
                match = re.search(r"\d+\.\d[\d.]*", path.read_text(encoding="utf-8"))
                if match:
                    return match.group()
        return ""

    @property
    def is_unified(self):
        """Whether host and device share one memory, by the device's properties."""
        if not self.is_cuda or torch.version.hip:
            properties = getattr(self.module, "get_device_properties", None)
            is_integrated = properties and getattr(properties(self.device), "is_integrated", False)
            return self.device.type == "mps" or bool(is_integrated)
        try:
            ask = ctypes.CDLL("libcuda.so.1").cuDeviceGetAttribute
        except (AttributeError, OSError):
            return False
        value, place = ctypes.c_int(), self.device.index or 0
        return any(ask(ctypes.byref(value), name, place) == 0 and value.value for name in UNIFIED)

    @property
    def _own_streams(self):
        return all(
            hasattr(self.module, name) for name in ("Stream", "stream", "Event", "current_stream")
        )

    def require_streams(self):
        reason = f"{self.device.type} has no streams in torch {torch.__version__}"
        if not self._own_streams and (
            self._accelerator is None or not hasattr(torch.Stream, "__enter__")
        ):
            raise NotImplementedError(reason)
        try:
            self.stream(), self.event()
        except RuntimeError as error:  # torch.Stream exists even for backends without streams
            raise NotImplementedError(f"{reason}: {first_sentence(error)}") from None

    def stream(self):
        """Return a new stream of the device."""
        return (
            self.module.Stream(device=self.device)
            if self._own_streams
            else torch.Stream(self.device)
        )

    def on(self, stream):
        """Return a context manager that makes ``stream`` the current one."""
        return self.module.stream(stream) if self._own_streams else stream

    def current_stream(self):
        return self._call("current_stream", "current_stream")()

    def event(self, enable_timing=False):
        kind = (
            self.module.Event
            if self._own_streams
            else lambda **options: torch.Event(self.device, **options)
        )
        return kind(enable_timing=enable_timing)

    def require_dtype(self, dtype):
        """Skip the cell if the device does not support a dtype: MPS lacks float64."""
        try:
            torch.empty(1, dtype=getattr(torch, dtype), device=self.device)
        except TypeError as error:
            raise NotImplementedError(
                f"{self.device.type} has no {dtype}: {first_sentence(error)}"
            ) from None

    def pinned(self, tensor):
        """Return a copy of a host tensor, page-locked for this device; skip the cell without pinned
        memory.
        """
        return self.pin(lambda: torch.empty_like(tensor, pin_memory=True)).copy_(tensor)

    def pin(self, make):
        """Return the page-locked tensor that ``make`` creates; skip a cell without such memory."""
        kind = self.device.type
        pins = _accelerator_kind()
        if pins != kind:  # torch pins for one kind of device per process, here another one
            raise NotImplementedError(
                f"{kind} has no pinned memory: this torch pins for {pins or 'none'}"
            )
        try:
            tensor = make()
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            if is_out_of_memory(error):
                reason = f"out of memory to pin: {first_sentence(error)}"
                raise NotImplementedError(f"{reason}; {pinning_limits()}") from None
            if any(f"{maker} error" in str(error) for maker in ("CUDA", "HIP")):
                raise  # the device is broken
            raise NotImplementedError(
                f"{kind} has no pinned memory: {first_sentence(error)}"
            ) from None
        self.require_pinned(tensor)
        return tensor

    def require_pinned(self, tensor):
        """Skip the cell unless a host tensor is pinned: its figures would be those of pageable
        memory.
        """
        if not tensor.is_pinned():
            raise NotImplementedError(
                f"{self.device.type}: what torch was asked to pin is not pinned"
            )

    def empty_pinned_cache(self):
        """Release the pinned memory that torch keeps for reuse; NotImplementedError where torch has
        no such call.

        Memory in use by a tensor or a copy stays.
        """
        empty = getattr(self._accelerator, "empty_host_cache", None) or getattr(
            torch._C, "_host_emptyCache", None
        )
        if empty is None:
            raise NotImplementedError(
                f"torch {torch.__version__} has no call that empties its cache of pinned memory"
            )
        empty()

    def registered(self, tensor):
        """Page-lock the memory of a host tensor in place; return a function that undoes it. Skip if
        it fails.
        """
        if not self.is_cuda:
            raise NotImplementedError(f"{self.device.type} has no call that registers host memory")
        runtime = torch.cuda.cudart()
        address, nbytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        code = runtime.cudaHostRegister(address, nbytes, 0)
        if int(code):
            # fails under confidential computing, too
            is_limit = int(code) == OUT_OF_MEMORY
            reason = f"out of memory; {pinning_limits()}" if is_limit else code
            # CUDA keeps its last error: the next launch would report it
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device=self.device)
            raise NotImplementedError(f"cudaHostRegister refused {nbytes} bytes: {reason}")
        return lambda: runtime.cudaHostUnregister(address)


def pinning_limits():
    """Return what may limit pinned memory below the machine's memory, for a reason."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        locked = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit // 1024} KiB"
    except ImportError:  # Windows
        locked = "unknown"
    system = "this is" if "microsoft" in platform.release().lower() else "this is not"
    return f"locked memory has a limit (ulimit -l: {locked}), and so has WSL2 ({system})"


def find():
    """Return the accelerator to measure, untried (see `use`); NotImplementedError without one.
    Creates no context.
    """
    # count devices without a CUDA context: a process with a context could not fork
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    name = os.environ.get(VARIABLE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # the last name is for backends outside torch
        names = [name] if name else ["cuda:0", "xpu", "mps", _accelerator_kind()]
        device = next(filter(None, map(_find_named, names)), None)
    if device is None:
        none = f"{VARIABLE}={name}: torch finds no such accelerator" if name else NONE_FOUND
        # without NVML (torch 1.13 never uses it) CUDA counts the devices, and torch warns if that
        # fails
        raise NotImplementedError(
            ": ".join([none, *dict.fromkeys(first_sentence(warning.message) for warning in caught)])
        )
    for variable, effect in REFUSED.items():
        if device.is_cuda and os.environ.get(variable, "0") != "0":
            raise NotImplementedError(
                f"{variable} is set: {effect}, so no figure would be that of a transfer; unset it"
            )
    return device


def _find_named(name):
    """Return the device of that name; None if torch does not find it or does not know its kind."""
    try:
        device = Device(name)
    except RuntimeError:
        return None
    return device if device.is_there else None


def _accelerator_kind():
    """Return the one kind of accelerator that torch serves in this process, or "". Creates no
    context.
    """
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return "cuda"  # before torch 2.6 nothing else has pinned memory
    current = accelerator.current_accelerator()
    return current.type if current is not None else ""


def answer():
    """Return the device's part of a run record.

    ``{"device": name, "device_name": model, "driver": version, "environment": those of RECORDED
    that are set, "no_device": reason without a device, "near_cores": cores near it, as far as its
    driver tells}``. A device counts if a context and one element can be made on it. Call this in a
    separate process, since a driver may hang or kill it: measuring/machine.py.
    """
    environment = {name: os.environ[name] for name in RECORDED if name in os.environ}
    try:
        device = find().use()
        return {
            "device": str(device),
            "device_name": device.model,
            "no_device": "",
            "driver": device.driver,
            "environment": environment,
            "near_cores": driver.ask_driver(device, driver.near_cores) or [],
            "device_node": driver.ask_driver(device, driver.node_of),
            "memory_nodes": driver.memory_nodes(),
            "is_unified": device.is_unified,
        }
    except NotImplementedError as skip:
        no_device = first_sentence(skip)
    except Exception as error:  # any other fault of the device: the rest can still be measured
        no_device = f"{type(error).__name__}: {first_sentence(error)}"
    return {"device": None, "device_name": None, "no_device": no_device}


def hold(word):
    """Create a context, print ``word``, and keep the context until standard input ends. Call in a
    separate process.
    """
    held = torch.empty(1, device=find().use().device)
    print(word, flush=True)
    sys.stdin.read()
    del held
