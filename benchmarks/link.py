"""What does the link to the accelerator allow? Pinned copies into existing memory, by the device's
own clock.
"""

import time
from importlib.util import find_spec

from . import routes
from .core import devices, driver, moving, queued_work

needs_device = True

BOTH_WAYS = "both at once"
WAYS = {
    "d.copy_(t, non_blocking=True)": routes.HOST_TO_DEVICE,
    "h.copy_(t, non_blocking=True)": routes.DEVICE_TO_HOST,
}
COPIES = 16  # copies queued between two events, so that the events time the link alone
# seconds of work before the copies: launching 32 of them takes 0.2 ms, on a slow host 2 ms
QUEUED = 0.004
# seconds of copying before the link is read: an idle link sleeps at a low generation and width
LOAD_SECONDS = 0.3


class _Ways:
    """Prepared copies one way or both ways. Their time does not depend on the host."""

    probed = False
    number = 1
    timeout = 300

    def ready(self, direction, memory, dtype, nbytes):
        """Prepare ``moves``, to the device first; return the device."""
        device = devices.find().use()
        device.require_streams()
        timed_routes = [
            routes.find(route, way) for route, way in WAYS.items() if direction in (way, BOTH_WAYS)
        ]
        self.moves = [moving.Move(route, memory, dtype, nbytes, device) for route in timed_routes]
        for move in self.moves:
            move.ready()
        return device

    def teardown(self, *cell):
        for move in getattr(self, "moves", []):
            move.close()


class Limit(_Ways):
    """The best time of a copy of ``nbytes``, each way and both ways at once (then 2 x nbytes move).

    Timed as in nvbandwidth, by events around COPIES copies that are queued behind work: all are
    launched before the first begins. The host's clock is read, too, from one event to the other.
    """

    role = "link"
    params = ([*WAYS.values(), BOTH_WAYS], [16 * 2**20, 64 * 2**20, 256 * 2**20])

    def setup(self, direction, nbytes):
        self.device = device = self.ready(direction, routes.PINNED, "uint8", nbytes)
        self.streams = [
            device.current_stream(),
            *(device.stream() for _ in self.moves[1:]),
        ]  # one for each move
        self.work = queued_work.Work(device, QUEUED).require()
        self.timed_by, self.parts = self, {"host": [], "device": []}

    def timeit_copy(self, direction, nbytes):
        return "; ".join(move.route.expression for move in self.moves), {}, COPIES

    def timeit(self, number):
        """Return the seconds of COPIES copies of each move, by device events; ``parts`` also has
        the host's times.
        """
        return sum(self._once() for _ in range(number))

    def _once(self):
        start, end = (self.device.event(enable_timing=True) for _ in range(2))
        self.device.synchronize()
        self.work.queue()
        start.record()
        for stream, move in zip(self.streams, self.moves):
            with self.device.on(stream):
                stream.wait_event(start)
                for _ in range(COPIES):
                    move.call()
        for stream in self.streams[1:]:
            self.streams[0].wait_stream(stream)
        end.record()
        start.synchronize()
        began = time.perf_counter()
        end.synchronize()
        self.parts["host"].append(time.perf_counter() - began)
        self.parts["device"].append(start.elapsed_time(end) / 1e3)
        return self.parts["device"][-1]


class Floor:
    """Wait for an idle device: a part of every completion time that ends with a wait."""

    role = "synchronize"

    def setup(self):
        self.device = devices.find().use()
        queued_work.warm_up(self.device)
        queued_work.check_synchronize(self.device)

    def timeit_synchronize(self):
        return "synchronize()", {"synchronize": self.device.wait}


def link_state(pynvml, handle):
    """Return the current generation and width of the device's link."""
    state_of = {
        "generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration,
        "width": pynvml.nvmlDeviceGetCurrPcieLinkWidth,
    }
    return {f"link {name}": ask(handle) for name, ask in state_of.items()}


class Hardware(_Ways):
    """Generation and width of the link, read under load with nvidia-ml-py."""

    role = "hardware"
    params = (["link generation", "link width"],)

    def setup(self, quantity):
        device = self.ready(routes.HOST_TO_DEVICE, routes.PINNED, "uint8", 64 * 2**20)
        if find_spec("pynvml") is None:
            raise NotImplementedError("needs nvidia-ml-py")
        until = time.monotonic() + LOAD_SECONDS
        while time.monotonic() < until:
            self.moves[0].run()
        for _ in range(16):  # still copying while the link is read
            self.moves[0].call()
        readings = driver.ask_driver(device, link_state)
        device.synchronize()
        if readings is None:
            raise NotImplementedError("the driver does not say")
        self.value = readings[quantity]

    def track_value(self, quantity):
        return self.value

    track_value.unit = "as named"
