"""Does a transfer hold its caller while the device is busy? The time of a call when work is queued
before it.
"""

from . import routes, transfer
from .core import devices, moving, queued_work

needs_device = True
section = "Transfers: while the device is busy"
about = (
    "5 ms of copies within the device, or a little more, are queued on the same stream, and then "
    "the call is timed alone: a program's step that is still computing when it asks for a transfer."
)
place = 23
has_panels = False

WORK = 0.005  # least seconds of queued work

SIZES = [moving.EACH, 64 * 2**20]


class _Busy:
    """One call per sample, with work queued before it. No probes: the queue would empty while they
    run.
    """

    probed = False
    number = 1
    warmup_time = 0

    def preparation(self, first=lambda: None):
        """Return a function to call before a sample: drain the queue, call ``first``, queue the
        work.
        """
        work = queued_work.Work(self.move.device, WORK).require()

        def prepare():
            self.move.device.synchronize()
            first()
            work.queue()

        return prepare


class Call(_Busy, transfer._Float):
    """route × memory × nbytes of float32."""

    role = "busy"
    title = "behind queued work"
    params = (
        [f"{into}.copy_(t{suffix})" for into in "dh" for suffix in ("", ", non_blocking=True")],
        routes.HOSTS,
        SIZES,
    )
    timeit_completion = None

    def setup(self, route, memory, nbytes):
        super().setup(route, memory, nbytes)
        self.probed = _Busy.probed
        self.names = {**self.move.names, "prepare": self.preparation()}

    def timeit_call(self, route, memory, nbytes):
        return route, self.names


class WorkBehind(_Busy):
    """Read a host array whose copy was queued before the work: wait for the copy's event, or for
    all work.
    """

    role = "work behind"
    title = "an array whose copy was queued before the work"
    params = (["buffers.read()", "synchronize(); buffers.read()"], SIZES)
    teardown = transfer._Transfer.teardown

    def samples_for(self, form, nbytes):
        return transfer.ENQUEUED

    def setup(self, form, nbytes):
        route = transfer.find("buffers.start(t); buffers.read()")
        self.move = moving.Move(route, routes.PINNED, "float32", nbytes, devices.find())
        self.move.ready()
        names = self.move.names

        def start():
            buffers = names["buffers"]
            buffers.finished = buffers.started  # drop copies that no sample read
            buffers.start(names["t"])

        self.prepare = self.preparation(start)

    def timeit_read(self, form, nbytes):
        self.prepare()  # for the warm-up call, which is not preceded by a sample
        return form, {**self.move.names, "prepare": self.prepare}
