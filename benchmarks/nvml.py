"""What NVIDIA's driver says of a device, through nvidia-ml-py where that is installed."""

import os

import torch

# Bits of NVML's reasons for a clock below the highest. Not idleness, nor a clock that somebody chose.
THROTTLED = {0x04: "power", 0x08: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}


def handle_of(pynvml, device):
    """NVML's handle of a torch device: visible devices may be a part of the machine's, in another order.

    Of an instance (MIG) it is that of the whole device, which has the link and the clocks.
    """
    pynvml.nvmlInit()
    properties = torch.cuda.get_device_properties(device.device)
    if hasattr(properties, "uuid"):
        uuid = str(properties.uuid)
        bare = uuid.removeprefix("GPU-").removeprefix("MIG-")  # torch writes neither, or what CUDA says
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
        except pynvml.NVMLError:
            instance = pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")
        return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)
    # before torch 2.5 a device has no name that NVML knows: its place among all, where none is hidden
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        raise OSError("this torch does not name its devices, and CUDA_VISIBLE_DEVICES changes their places")
    handle = pynvml.nvmlDeviceGetHandleByIndex(device.device.index or 0)
    name = pynvml.nvmlDeviceGetName(handle)
    name = name.decode() if isinstance(name, bytes) else name  # as older releases of nvidia-ml-py have it
    if name != properties.name:  # CUDA counts the fastest first, NVML by the bus
        raise OSError(f"in its place is {name}")
    return handle


def near_cores(pynvml, handle):
    """The cores, of those that this process may use, that the driver calls near the device."""
    words = pynvml.nvmlDeviceGetCpuAffinity(handle, (os.cpu_count() + 63) // 64)
    near = {64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1}
    return sorted(near & os.sched_getaffinity(0))


def ask(device, question):
    """What ``question(pynvml, handle)`` gives of a device; None where nobody can say."""
    if not device.is_cuda or torch.version.hip:
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        return question(pynvml, handle_of(pynvml, device))
    except (pynvml.NVMLError, AttributeError, OSError):
        return None


def state(pynvml, handle):
    """How the device runs: generation of its link, clock in MHz, and what slows it down, as THROTTLED names it."""
    reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return {
        "link generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "clock": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "slowed by": [name for bit, name in THROTTLED.items() if reasons & bit],
    }


def link(pynvml, handle):
    """Generation and width of the device's link, as they are now."""
    asked = {"generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration, "width": pynvml.nvmlDeviceGetCurrPcieLinkWidth}
    return {f"link {name}": ask(handle) for name, ask in asked.items()}
