"""Does a transfer hold its caller while the device is busy? The time of a call when work is queued before it."""

import math as _math
import time as _time

import torch as _torch

from . import devices as _devices
from . import moving as _moving
from . import routes as _routes
from . import transfer as _transfer

needs_device = True
section = "Transfers: while the device is busy"
about = (
    "5 ms of copies within the device, or a little more, are queued on the same stream, and then the call is timed "
    "alone: a program's step that is still computing when it asks for a transfer."
)
place = 23
drawn = False

WORK = 0.005  # seconds of work that are queued, at least
BLOCK = 64 * 2**20  # bytes of each copy within the device: 60 µs on the fastest, 3 ms on a small one
TRIES = 5  # of which the shortest counts: clocks rise under load
HOPELESS = 20  # times WORK that queueing may take: a device on which it does works while the call lasts

SIZES = [_moving.EACH, 64 * 2**20]


class _Work:
    """Copies within the device, as many as take it WORK seconds from when they are queued."""

    def __init__(self, device):
        self.device, self.copies = device, 1
        self.here, self.there = (_torch.empty(BLOCK, dtype=_torch.uint8, device=device.device) for _ in range(2))
        while (left := min(self.left() for _ in range(TRIES))) < WORK:
            self.copies = _math.ceil(self.copies * min(10, max(1.1, WORK / max(left, 1e-9))))

    def queue(self):
        for _ in range(self.copies):
            self.there.copy_(self.here, non_blocking=True)

    def left(self):
        """Seconds that the device is still busy when queue() returns; NotImplementedError where it does not queue."""
        self.device.synchronize()
        start = _time.perf_counter()
        self.queue()
        queued = _time.perf_counter()
        self.device.synchronize()
        done = _time.perf_counter()
        if queued - start > HOPELESS * WORK:
            raise NotImplementedError(f"no work can be queued on {self.device}: it is done when the call returns")
        return done - queued


class _Busy:
    """One call a sample, work queued before each. No probes beside it: meanwhile the queue would empty."""

    single_threaded = False
    probed = False
    number = 1
    warmup_time = 0

    def work_behind(self, device, before=None):
        """What to call before a sample: drain the queue, queue ``before`` and then the work."""
        with _devices.out_of_memory_skips():
            work = _Work(device)

        def prepare():
            device.synchronize()
            if before is not None:
                before()
            work.queue()

        return prepare


class _Call(_Busy, _transfer._Moved):
    """route × memory × nbytes of float32."""

    role = "busy"
    param_names = ("route", "memory", "nbytes")

    def setup(self, route, memory, nbytes):
        super().setup(route, memory, "float32", nbytes)
        self.names = {**self.move.names, "prepare": self.work_behind(self.move.device)}

    def timeit_call(self, route, memory, nbytes):
        return route, self.names


class HostToDevice(_Call):
    direction = _routes.HOST_TO_DEVICE
    params = (["d.copy_(t)", "d.copy_(t, non_blocking=True)"], [_routes.PAGEABLE, _routes.PINNED], SIZES)


class DeviceToHost(_Call):
    direction = _routes.DEVICE_TO_HOST
    params = (["h.copy_(t)", "h.copy_(t, non_blocking=True)"], [_routes.PAGEABLE, _routes.PINNED], SIZES)


class WorkBehind(_Busy):
    """An array on the host whose copy was queued before the work: read by the copy's event, or by a wait for all."""

    role = "work behind"
    title = "an array whose copy was queued before the work"
    param_names = ("form", "nbytes")
    params = (["buffers.read()", "synchronize(); buffers.read()"], SIZES)
    timeout = 120

    def samples_for(self, form, nbytes):
        return _transfer.ENQUEUED

    def setup(self, form, nbytes):
        device = _devices.find()
        route = _routes.find("buffers.start(t); buffers.read()", _routes.DEVICE_TO_HOST)
        self.move = _moving.Move(route, _routes.PINNED, "float32", nbytes, device)
        self.move.verify()
        names = self.move.names

        def start():
            buffers = names["buffers"]
            buffers.finished = buffers.started  # what nobody read is no sample's
            buffers.start(names["t"])

        self.prepare = self.work_behind(device, start)

    def teardown(self, form, nbytes):
        if hasattr(self, "move"):
            self.move.close()

    def timeit_read(self, form, nbytes):
        self.prepare()  # for the warm-up's call, which has no sample before it
        return form, {**self.move.names, "prepare": self.prepare}
