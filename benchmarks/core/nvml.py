"""Query NVIDIA's driver about a device, through nvidia-ml-py where that is installed."""

import os

import torch

# Bits of NVML's reasons for a reduced clock, without idleness and user-set clocks
THROTTLED = {0x04: "power", 0x08: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}


def handle_of(pynvml, device):
    """Return NVML's handle of a torch device: torch may see only some devices, in another order.

    For a MIG instance this is the handle of the whole device, which has the link and the clocks.
    """
    pynvml.nvmlInit()
    properties = torch.cuda.get_device_properties(device.device)
    if hasattr(properties, "uuid"):
        uuid = str(properties.uuid)
        bare = uuid.removeprefix("GPU-").removeprefix("MIG-")  # torch gives no prefix, or CUDA's
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
        except pynvml.NVMLError:
            instance = pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")
        return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)
    # torch < 2.5 gives no uuid: use the device's index, if no device is hidden
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        raise OSError(
            "this torch does not name its devices, and CUDA_VISIBLE_DEVICES changes their places"
        )
    handle = pynvml.nvmlDeviceGetHandleByIndex(device.device.index or 0)
    name = pynvml.nvmlDeviceGetName(handle)
    name = (
        name.decode() if isinstance(name, bytes) else name
    )  # bytes in older releases of nvidia-ml-py
    if name != properties.name:  # CUDA orders devices by speed, NVML by bus
        raise OSError(f"in its place is {name}")
    return handle


def near_cores(pynvml, handle):
    """Return the cores near the device, according to the driver, that this process may use."""
    words = pynvml.nvmlDeviceGetCpuAffinity(handle, (os.cpu_count() + 63) // 64)
    neighbours = {
        64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1
    }
    return sorted(neighbours & os.sched_getaffinity(0))


def ask(device, question):
    """Return ``question(pynvml, handle)`` for a device; None where NVML cannot answer."""
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
    """Return the device's state: link generation, clock in MHz, and throttle reasons, as THROTTLED
    names them.
    """
    reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return {
        "link generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "clock": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "slowed by": [name for bit, name in THROTTLED.items() if reasons & bit],
    }


def link(pynvml, handle):
    """Return the current generation and width of the device's link."""
    state_of = {
        "generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration,
        "width": pynvml.nvmlDeviceGetCurrPcieLinkWidth,
    }
    return {f"link {name}": ask(handle) for name, ask in state_of.items()}
