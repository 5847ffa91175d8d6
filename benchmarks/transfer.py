"""What does it cost to move data between the host and an accelerator, from and to which memory,
waiting or not?

completion  until the bytes have arrived: the call, and a synchronize where the call may return
            before
enqueue     the call alone: how long the caller is held; the queue is drained before every sample
sustained   several non-blocking copies in flight and one synchronize, by the copy
"""

import timeit

from . import routes
from .core import devices, moving, timing

needs_device = True
section = "Transfers: casting, layout, containers, scalars"
place = 20
across = "memory"
noise = "transfer"  # noise of the device, independent of alias or copy

# samples of the enqueue time per process: each is one call, so that the queue is empty before it
ENQUEUED = 30
SMALL = 2**20  # bytes up to which a call and a wait are more than 1 % of a few copies
ENGINE = (
    2**20
)  # bytes from which the copy engine, not the call, takes most of the time of a pinned copy
# Shortest sample from timing.LARGE on, where a call takes a millisecond: occasional delays by the
# driver or by another user of the link are as long as one call
LARGE_SAMPLE_SECONDS = 0.01
READS = 50  # reads of a result without a wait
# Copies queued before the synchronize of `sustained`, to make its share small
IN_FLIGHT = 8
SMALL_IN_FLIGHT = 64


def find(expression):
    """Return the route to or from a device with this expression."""
    return next(
        route for route in routes.ROUTES if route.expression == expression and route.host_memory
    )


class _Transfer:
    """route × memory × dtype × nbytes; memory is that of the host side."""

    param_names = ("route", "memory", "dtype", "nbytes")

    def __init__(self):
        self.contracts = {route: find(route).contract() for route in self.params[0]}

    def setup(self, route, memory, dtype, nbytes):
        self.route = find(route)
        self.move = moving.Move(self.route, memory, dtype, nbytes, devices.find())
        self.move.ready()
        self.sample_time = LARGE_SAMPLE_SECONDS if nbytes >= timing.LARGE else timing.SAMPLE_SECONDS
        # the host's speed does not affect a copy engine: scripts/store/quiet.py judges by the
        # spread
        self.light = memory != routes.PAGEABLE and routes.TRANSFER in self.route.families
        self.probed = not self.light or nbytes < ENGINE

    def teardown(self, *cell):
        if hasattr(self, "move"):
            self.move.close()

    def timeit_completion(self, route, *cell):
        # a blocking route needs no second wait, a third of a small transfer; `verify` has checked
        # that it waits
        return f"{route}; synchronize()" if self.route.non_blocking else route, self.move.names


class _Asynchronous(_Transfer):
    def timeit_enqueue(self, route, *cell):
        if not self.route.non_blocking:
            raise NotImplementedError(
                "blocking: its completion time is how long it holds the caller"
            )
        # warm up here with a wait after every call: without it, hundreds of copies would be queued
        waited = timeit.Timer(f"{route}; synchronize()", globals=self.move.names)
        timing.Timing(waited, ENQUEUED, number=1).warm_up()
        return route, self.move.names

    timeit_enqueue.samples_for = lambda *cell: ENQUEUED
    timeit_enqueue.number = 1
    timeit_enqueue.warmup_time = 0
    timeit_enqueue.drained = True
    timeit_enqueue.probed = True


class _Every(_Asynchronous):
    """All plain routes of a direction."""

    role = "transfer"

    def timeit_sustained(self, route, memory, *cell):
        if routes.SUSTAINED not in self.route.families or memory == routes.PAGEABLE:
            raise NotImplementedError("not asynchronous: several cannot be in flight")
        copies = SMALL_IN_FLIGHT if cell[-1] <= SMALL else IN_FLIGHT
        return f"for _ in range({copies}): {route}\nsynchronize()", self.move.names, copies


class HostToDevice(_Every):
    direction = routes.HOST_TO_DEVICE
    params = (
        routes.expressions(routes.TRANSFER, direction),
        routes.ANY_HOST,
        moving.DTYPES,
        moving.SIZES,
    )


class DeviceToHost(_Every):
    direction = routes.DEVICE_TO_HOST
    params = (
        routes.expressions(routes.TRANSFER, direction),
        routes.HOSTS,
        moving.DTYPES,
        moving.SIZES,
    )


class _Float(_Transfer):
    """route × memory × nbytes of one dtype."""

    param_names = ("route", "memory", "nbytes")
    dtype = "float32"

    def setup(self, route, memory, nbytes):
        super().setup(route, memory, self.dtype, nbytes)


class _ToDevice(_Float, _Asynchronous):
    """To the device by blocking and non-blocking routes, from pageable and from pinned memory."""

    direction = routes.HOST_TO_DEVICE


def _to_device(family, sizes):
    return routes.expressions(family, routes.HOST_TO_DEVICE), routes.HOSTS, sizes


class Casting(_ToDevice):
    """float64 on the host, float32 on the device; nbytes is that of the source."""

    title = "float64 on the host to float32 on the device"
    dtype = "float64"
    params = _to_device(routes.TRANSFER_CASTING, moving.SIZES[4:7])


class ToBfloat16(_ToDevice):
    """float32 on the host, bfloat16 on the device; nbytes is that of the source."""

    role = "cast on the way"
    title = "float32 on the host to bfloat16 on the device"
    params = _to_device(routes.TRANSFER_BFLOAT16, moving.SIZES[2:7])


class FromUint8(_ToDevice):
    """uint8 on the host, float32 on the device, as of images; nbytes is that of the source."""

    role = "cast on the way"
    title = "uint8 on the host to float32 on the device"
    dtype = "uint8"
    params = _to_device(routes.TRANSFER_UINT8, moving.SIZES[4:7])


class Bfloat16ToNumpy(_Float):
    """bfloat16 on the device, a float32 array on the host; nbytes is that of the source."""

    role = "cast on the way"
    title = "bfloat16 on the device to a float32 array"
    direction = routes.DEVICE_TO_HOST
    dtype = "bfloat16"
    params = (
        routes.expressions(routes.TRANSFER_BFLOAT16, direction),
        [routes.PAGEABLE],
        moving.SIZES[2:7],
    )


class Transposed(_ToDevice):
    """A transposed host tensor."""

    title = "a transposed tensor"
    params = _to_device(routes.TRANSFER_LAYOUT, moving.SIZES[4:7])


class TreeToDevice(_ToDevice):
    """A nested container of four float32 host tensors, nbytes together."""

    title = "a nested container"
    params = _to_device(routes.DEVICE_TREES, moving.SIZES[1:7])


class TreeToNumpy(_Float):
    """A nested container of four float32 device tensors, nbytes together."""

    title = "a nested container to NumPy"
    direction = routes.DEVICE_TO_HOST
    params = (
        routes.expressions(routes.DEVICE_TREES, routes.DEVICE_TO_HOST),
        [routes.PAGEABLE],
        moving.SIZES[1:7],
    )


class Scalar(_Float):
    """One float32, such as a loss, to a Python or NumPy number."""

    role = "scalar"
    title = "a scalar"
    direction = routes.DEVICE_TO_HOST
    params = (routes.expressions(routes.SCALAR, routes.DEVICE_TO_HOST), [routes.PAGEABLE], [4])


class ReadTooEarly(_Float):
    """How often a result is garbage if it is read as soon as a non-blocking call returns."""

    role = "read too early"
    title = "garbage, where the result is read before a wait"
    direction = routes.DEVICE_TO_HOST
    params = (["h.copy_(t, non_blocking=True)"], routes.HOSTS, [moving.EACH, 64 * 2**20])

    def track_garbage(self, route, memory, nbytes):
        """% of READS results whose last number had not arrived."""
        names, wrong = self.move.names, 0
        sent = names["t"][-1].item()
        for _ in range(READS):
            names["h"][-1] = sent + 1
            self.move.call()
            wrong += names["h"][-1].item() != sent
            names["synchronize"]()
        return 100 * wrong / READS

    track_garbage.unit = "% garbage"
    timeit_completion = None
