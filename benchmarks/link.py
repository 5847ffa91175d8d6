"""What does the link to the accelerator allow? Pinned copies into existing memory, by the device's own clock."""

import os as _os
import time as _time
from pathlib import Path as _Path

import torch as _torch

from . import devices as _devices
from . import moving as _moving
from . import routes as _routes
from . import timing as _timing

needs_device = True

BOTH = "both at once"
LOAD_SECONDS = 0.3  # of copying before the link is asked: an idle link sleeps at a low generation and width

PCI_DEVICES = _Path("/sys/bus/pci/devices")


class Limit:
    """The best a copy of ``nbytes`` can do, each way and both ways at once (then 2 x nbytes move)."""

    role = "link"
    param_names = ("direction", "nbytes")
    params = ([_routes.HOST_TO_DEVICE, _routes.DEVICE_TO_HOST, BOTH], [16 * 2**20, 64 * 2**20, 256 * 2**20])
    single_threaded = False
    pulsed = False
    timeout = 120

    def samples_for(self, direction, nbytes):
        return _timing.samples_per_process(nbytes)

    @_devices.out_of_memory_skips()
    def setup(self, direction, nbytes):
        self.device = device = _devices.find().use()
        device.require_streams()
        find = _routes.find
        there = find("d.copy_(t, non_blocking=True)", _routes.HOST_TO_DEVICE)
        back = find("h.copy_(t, non_blocking=True)", _routes.DEVICE_TO_HOST)
        self.moves = [_moving.Move(route, _routes.PINNED, "uint8", nbytes, device) for route in (there, back)]
        for move in self.moves:
            move.verify()
        side, current = device.stream(), device.current_stream()

        def both():
            with device.on(side):
                self.moves[1].names["h"].copy_(self.moves[1].names["t"], non_blocking=True)
            self.moves[0].names["d"].copy_(self.moves[0].names["t"], non_blocking=True)
            current.wait_stream(side)

        self.names = {"there": self.moves[0].names, "back": self.moves[1].names, "both": both}
        self.timer = device.clock()

    def teardown(self, *cell):
        for move in getattr(self, "moves", []):
            move.close()

    def timeit_copy(self, direction, nbytes):
        if direction == BOTH:
            return "both()", self.names
        names = self.moves[0 if direction == _routes.HOST_TO_DEVICE else 1].names
        route = self.moves[0 if direction == _routes.HOST_TO_DEVICE else 1].route
        return route.expression, names


class Floor:
    """Waiting for an idle device: what every completion time contains."""

    role = "synchronize"
    param_names = ()
    single_threaded = False

    def setup(self):
        self.device = _devices.find().use()
        self.device.check_synchronize()

    def timeit_synchronize(self):
        return "synchronize()", {"synchronize": self.device.synchronize}


class Hardware:
    """Link generation and width, clocks in MHz, NUMA node and cores near it, read under load with nvidia-ml-py."""

    role = "hardware"
    param_names = ("quantity",)
    params = (["link generation", "link width", "graphics clock", "memory clock", "NUMA node", "near cores"],)
    timeout = 120

    @_devices.out_of_memory_skips()
    def setup(self, quantity):
        device = _devices.find().use()
        try:
            import pynvml
        except ImportError:
            raise NotImplementedError("needs nvidia-ml-py") from None
        if not device.is_cuda or _torch.version.hip:
            raise NotImplementedError("nvidia-ml-py reads NVIDIA's devices alone")
        try:
            handle = handle_of(pynvml, device)
        except (pynvml.NVMLError, AttributeError, OSError) as error:
            raise NotImplementedError(f"NVML does not find {device}: {error}") from None
        ask = {
            "link generation": lambda: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
            "link width": lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
            "graphics clock": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_GRAPHICS),
            "memory clock": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "NUMA node": lambda: numa_node(pynvml, handle),
            "near cores": lambda: near_cores(pynvml, handle),
        }
        route = _routes.find("d.copy_(t, non_blocking=True)", _routes.HOST_TO_DEVICE)
        move = _moving.Move(route, _routes.PINNED, "uint8", 64 * 2**20, device)
        try:
            until = _time.monotonic() + LOAD_SECONDS
            while _time.monotonic() < until:
                move.run()
            for _ in range(16):  # still copying while the link is asked
                move.names["d"].copy_(move.names["t"], non_blocking=True)
            try:
                self.value = ask[quantity]()
            except (pynvml.NVMLError, AttributeError, OSError) as error:
                raise NotImplementedError(f"the driver does not say: {error}") from None
        finally:
            device.synchronize()
            move.close()

    def track_value(self, quantity):
        return self.value

    track_value.unit = "as named"


def handle_of(pynvml, device):
    """NVML's handle of a torch device: visible devices may be a part of the machine's, in another order.

    Of an instance (MIG) it is that of the whole device, which has the link and the clocks.
    """
    pynvml.nvmlInit()
    properties = _torch.cuda.get_device_properties(device.device)
    if hasattr(properties, "uuid"):
        uuid = str(properties.uuid)
        bare = uuid.removeprefix("GPU-").removeprefix("MIG-")  # torch writes neither, or what CUDA says
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
        except pynvml.NVMLError:
            instance = pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")
        return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)
    # before torch 2.5 a device has no name that NVML knows: its place among all, where none is hidden
    if "CUDA_VISIBLE_DEVICES" in _os.environ:
        raise OSError("this torch does not name its devices, and CUDA_VISIBLE_DEVICES changes their places")
    handle = pynvml.nvmlDeviceGetHandleByIndex(device.device.index or 0)
    name = text(pynvml.nvmlDeviceGetName(handle))
    if name != properties.name:  # CUDA counts the fastest first, NVML by the bus
        raise OSError(f"in its place is {name}")
    return handle


def text(value):
    """A string of NVML's: bytes in older releases of nvidia-ml-py."""
    return value.decode() if isinstance(value, bytes) else value


def numa_node(pynvml, handle):
    """The NUMA node that the device is attached to, by Linux: NVML knows only of devices that are a node themselves."""
    address = text(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower()[-12:]  # Linux writes fewer digits of the domain
    node = int((PCI_DEVICES / address / "numa_node").read_text())
    if node < 0:
        raise OSError("the system has no NUMA nodes, or does not say which")
    return node


def near_cores(pynvml, handle):
    """How many of the cores that this process may use the driver calls near the device."""
    words = pynvml.nvmlDeviceGetCpuAffinity(handle, (_os.cpu_count() + 63) // 64)
    near = {64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1}
    return len(near & _os.sched_getaffinity(0))
