"""Ask NVIDIA's driver, through nvidia-ml-py where that is installed; find NUMA nodes."""

import contextlib
import os
from pathlib import Path

import torch

PCI_DEVICES = Path("/sys/bus/pci/devices")
PROCESS_STATUS = Path("/proc/self/status")
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
    if isinstance(name, bytes):  # in older releases of nvidia-ml-py
        name = name.decode()
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


def node_of(pynvml, handle):
    """Return the NUMA node of the device's bus; None where the system names none."""
    address = pynvml.nvmlDeviceGetPciInfo(handle).busId
    address = address.decode() if isinstance(address, bytes) else address
    node = int((PCI_DEVICES / address[-12:].lower() / "numa_node").read_text(encoding="ascii"))
    return None if node < 0 else node


def memory_nodes():
    """Return the NUMA nodes whose memory this process may use, as the system lists them; or ""."""
    with contextlib.suppress(OSError, StopIteration):
        lines = PROCESS_STATUS.read_text(encoding="utf-8").splitlines()
        return next(line.split()[1] for line in lines if line.startswith("Mems_allowed_list:"))
    return ""


def ask_driver(device, question):
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


def driver_state(pynvml, handle):
    """Return the device's state: link generation, clock in MHz, and throttle reasons, as THROTTLED
    names them.
    """
    reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return {
        "link generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "clock": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "slowed by": [name for bit, name in THROTTLED.items() if reasons & bit],
    }
