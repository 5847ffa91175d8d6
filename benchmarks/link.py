"""What does the link to the accelerator allow? Pinned copies into existing memory, by the device's own clock."""

import time as _time

import torch as _torch

from . import devices as _devices
from . import moving as _moving
from . import nvml as _nvml
from . import routes as _routes
from . import timing as _timing

needs_device = True

BOTH = "both at once"
LOAD_SECONDS = 0.3  # of copying before the link is asked: an idle link sleeps at a low generation and width


class Limit:
    """The best a copy of ``nbytes`` can do, each way and both ways at once (then 2 x nbytes move)."""

    role = "link"
    param_names = ("direction", "nbytes")
    params = ([_routes.HOST_TO_DEVICE, _routes.DEVICE_TO_HOST, BOTH], [16 * 2**20, 64 * 2**20, 256 * 2**20])
    single_threaded = False
    probed = False
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

    def setup_cache(self):
        """Quantity -> its value or why it has none, all asked by one process: each would make a context of its own."""
        try:
            return self._asked()
        except NotImplementedError as reason:
            return dict.fromkeys(self.params[0], str(reason))

    setup_cache.timeout = timeout

    @_devices.out_of_memory_skips()
    def _asked(self):
        device = _devices.find().use()
        try:
            import pynvml
        except ImportError:
            raise NotImplementedError("needs nvidia-ml-py") from None
        if not device.is_cuda or _torch.version.hip:
            raise NotImplementedError("nvidia-ml-py reads NVIDIA's devices alone")
        try:
            handle = _nvml.handle_of(pynvml, device)
        except (pynvml.NVMLError, AttributeError, OSError) as error:
            raise NotImplementedError(f"NVML does not find {device}: {error}") from None
        ask = {
            "link generation": lambda: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
            "link width": lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
            "graphics clock": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_GRAPHICS),
            "memory clock": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "NUMA node": lambda: _nvml.numa_node(pynvml, handle),
            "near cores": lambda: len(_nvml.near_cores(pynvml, handle)),
        }
        found = {}
        route = _routes.find("d.copy_(t, non_blocking=True)", _routes.HOST_TO_DEVICE)
        move = _moving.Move(route, _routes.PINNED, "uint8", 64 * 2**20, device)
        try:
            until = _time.monotonic() + LOAD_SECONDS
            while _time.monotonic() < until:
                move.run()
            for quantity, question in ask.items():
                for _ in range(16):  # still copying while the link is asked
                    move.names["d"].copy_(move.names["t"], non_blocking=True)
                try:
                    found[quantity] = question()
                except (pynvml.NVMLError, AttributeError, OSError) as error:
                    found[quantity] = f"the driver does not say: {error}"
                device.synchronize()
        finally:
            device.synchronize()
            move.close()
        return found

    def setup(self, cache, quantity):
        self.value = cache[quantity]
        if isinstance(self.value, str):
            raise NotImplementedError(self.value)

    def track_value(self, cache, quantity):
        return self.value

    track_value.unit = "as named"
