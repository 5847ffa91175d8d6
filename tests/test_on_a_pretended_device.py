"""The code that measures on an accelerator, run on a device that is the CPU in disguise.

Nothing here says what a transfer costs or that it is asynchronous: that takes a device (test_device.py). It shows that
every benchmark sets up, that its statement runs and that its bytes are right, so that the first person who has an
accelerator is not the first to run this code.
"""

import contextlib
import ctypes
import dataclasses
import gc
import json
import os
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from analysis import transfers
from analysis.results import _Places, _timed
from asv_runner.benchmarks.mark import SkipNotImplemented
from moves import SETUPS, renew

from benchmarks import (
    busy,
    devices,
    firsts,
    link,
    many,
    moving,
    overlap,
    routes,
    sampling_log,
    sources,
    staging,
    statement,
    timing,
    transfer,
)
from benchmarks import nvml as nvml_module


class Queue:
    """Non-blocking copies: each is made when an event recorded after it, or the device, is waited for."""

    def __init__(self):
        self.copies, self.done = [], 0

    def wait(self, place=None):
        while self.done < (len(self.copies) if place is None else place):
            self.done += 1
            self.copies[self.done - 1]()


class Pretended(devices.Device):
    """The CPU, with what a CUDA device has: an index, a queue, streams and events, pinned memory."""

    def __init__(self, index=0):
        super().__init__(f"cpu:{index}")
        self.current = False
        self.undone = 0
        self.queue = queue = Queue()

        class Stream:
            def __init__(self, device=None):
                pass

            def wait_stream(self, other):
                pass

            def query(self):
                return queue.done == len(queue.copies)

        class Event:
            def __init__(self, enable_timing=False):
                self.place = 0

            def record(self, stream=None):
                self.place, self.at = len(queue.copies), time.perf_counter()

            def synchronize(self):
                queue.wait(self.place)

            def elapsed_time(self, other):
                return (other.at - self.at) * 1e3

        self.module = SimpleNamespace(
            Stream=Stream,
            Event=Event,
            stream=lambda stream: contextlib.nullcontext(),
            current_stream=Stream,
            set_device=self.set_device,
            synchronize=lambda device=None: queue.wait(),
        )

    def set_device(self, index):
        assert type(index) is int, "an index is what every backend takes"
        self.current = True

    def pinned(self, tensor):
        assert self.current, "pinned memory is made for the current device"
        return tensor.clone()

    def registered(self, tensor):
        def undo():
            self.undone += 1

        return undo


class Second(Pretended):
    """The second of two: who asks for the first, or forgets to say which, gets that, on which nothing is queued."""

    def __init__(self):
        super().__init__(1)
        self.chosen, queue, stream = 0, self.queue, self.module.Stream

        class First(stream):
            def query(self):
                return True

        def made(device=None):
            return stream() if self.is_of(device) else First()

        self.module.Stream = made
        self.module.current_stream = lambda: made(self.chosen)
        self.module.synchronize = lambda device=None: queue.wait() if self.is_of(device) else None

    def is_of(self, device):
        if device is None:
            device = self.chosen
        return (device if isinstance(device, int) else torch.device(device).index) == 1

    def set_device(self, index):
        super().set_device(index)
        self.chosen = index


@pytest.fixture
def device(monkeypatch):
    return pretend(monkeypatch, Pretended())


@pytest.fixture
def given_back():
    """Many sizes after each other: malloc keeps what they freed, 5 GB in the end."""
    yield
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)(0)


@pytest.fixture
def second(monkeypatch):
    return pretend(monkeypatch, Second())


def pretend(monkeypatch, pretended):
    """Have torch move by the pretended device, and benchmarks find it."""
    copy, to = torch.Tensor.copy_, torch.Tensor.to

    def late_copy(target, source, non_blocking=False):
        if not non_blocking:
            return copy(target, source)
        pretended.queue.copies.append(lambda: copy(target, source))
        return target

    def late_to(source, *where, non_blocking=False, **options):
        if not non_blocking:
            return to(source, *where, **options)
        return late_copy(torch.zeros_like(to(source, *where, **options)), source, non_blocking=True)

    monkeypatch.setattr(devices, "find", lambda: pretended)
    monkeypatch.setattr(torch.Tensor, "copy_", late_copy)
    monkeypatch.setattr(torch.Tensor, "to", late_to)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    return pretended


def watch(device, monkeypatch, order):
    """Have every wait for the device be told."""
    monkeypatch.setattr(
        device.module, "synchronize", lambda device_=None: (order.append("waited"), device.queue.wait())
    )


def run(benchmark, method, cell):
    """Set up, run the timed statement once, tear down; the benchmark's names."""
    with contextlib.suppress(AttributeError):
        benchmark.setup(*cell)
    statement, namespace, *calls = getattr(benchmark, method)(*cell)
    exec(statement, dict(namespace))
    if hasattr(benchmark, "teardown"):
        benchmark.teardown(*cell)
    return calls


def cells(benchmark, small):
    """Every combination of a benchmark's parameters but its sizes, of which one small one."""
    found = [()]
    for name, values in zip(benchmark.param_names, getattr(benchmark, "params", ())):
        found = [(*cell, value) for cell in found for value in ([small] if name == "nbytes" else values)]
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("given_back")
@pytest.mark.parametrize("benchmark", [transfer.HostToDevice, transfer.DeviceToHost], ids=lambda b: b.__name__)
@pytest.mark.parametrize("method", ["timeit_completion", "timeit_enqueue", "timeit_sustained"])
def test_transfers(device, benchmark, method):
    ran = 0
    for cell in cells(benchmark(), 9 * 2**20):  # three chunks, the last one short
        if cell[2] != "float32":
            continue
        with contextlib.suppress(NotImplementedError):
            calls = run(benchmark(), method, cell)
            assert calls == ([transfer.in_flight(9 * 2**20)] if method == "timeit_sustained" else [])
            ran += 1
    assert ran >= (2 if benchmark is transfer.DeviceToHost else 4)
    if benchmark is transfer.HostToDevice:
        assert device.undone, "registered memory was not given up"


@pytest.mark.parametrize(
    "benchmark",
    [
        *(transfer.Casting, transfer.ToBfloat16, transfer.Transposed, transfer.Scalar),
        *(transfer.TreeToNumpy, transfer.TreeToDevice),
        *(staging.HostThreads, staging.PinnedToDevice, staging.PinnedToHost),
    ],
    ids=lambda b: b.__name__,
)
def test_the_other_transfers(device, benchmark):
    for cell in cells(benchmark(), 4096):
        with contextlib.suppress(NotImplementedError):
            run(benchmark(), "timeit_completion", cell)


@pytest.mark.parametrize(
    "benchmark, cell",
    SETUPS,
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_setups_make_the_device_current(device, monkeypatch, benchmark, cell):
    monkeypatch.setattr(overlap, "SIDES", [32])
    benchmark().setup(*cell)
    assert device.current


@pytest.mark.parametrize(
    "benchmark, cell, where, name",
    [
        (transfer.HostToDevice, ("t.to(device)", routes.PAGEABLE, "float32", 4), moving, "host_tensor"),
        (transfer.HostToDevice, ("t.to(device)", routes.PAGEABLE, "float32", 4), moving, "same"),
        (overlap.Hidden, (routes.HOST_TO_DEVICE, routes.PAGEABLE, 4), torch, "randn"),
        (overlap.TrainingStep, ("naive", 4096), overlap, "_Step"),
        (overlap.TrainingStep, ("naive", 4096), sources, "array"),
        (overlap.DataLoader, (0, routes.PAGEABLE), sources, "tensor"),
        (busy.HostToDevice, ("d.copy_(t)", routes.PAGEABLE, 4), busy, "_Work"),
        (many.ToDevice, ("[x.to(device) for x in tensors]", routes.PAGEABLE, 2), moving, "host_tensor"),
        (firsts.PinnedMemory, (2**20,), sources, "tensor"),
        (firsts.PinnedMemory, (2**20,), Pretended, "pinned"),
        (link.Limit, (link.BOTH, 4), moving.Move, "verify"),
    ],
    ids=lambda value: value.__name__.rpartition(".")[2] if hasattr(value, "__name__") else "",
)
@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory. Tried\nand advice"), MemoryError("Unable to")])
def test_out_of_memory_in_a_setup_skips_the_cell(device, monkeypatch, benchmark, cell, where, name, error):
    def none_left(*arguments, **options):
        raise error

    monkeypatch.setattr(overlap, "SIDES", [32])
    monkeypatch.setattr(where, name, none_left)
    with pytest.raises(NotImplementedError, match="^out of memory: (CUDA out of memory. Tried|Unable to)$"):
        benchmark().setup(*cell)


def test_another_failure_of_a_setup_stays_one(device, monkeypatch):
    monkeypatch.setattr(torch, "randn", lambda *arguments, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        overlap.Hidden().setup(routes.HOST_TO_DEVICE, routes.PAGEABLE, 4)


def test_registered_memory_is_given_up_when_nothing_moves_any_more(device, monkeypatch):
    order = []
    watch(device, monkeypatch, order)
    monkeypatch.setattr(Pretended, "registered", lambda device, tensor: lambda: order.append("unregistered"))
    route = routes.find("d.copy_(t, non_blocking=True)", routes.HOST_TO_DEVICE)
    moving.Move(route, routes.REGISTERED, "float32", 4096, device).close()
    assert order[-2:] == ["waited", "unregistered"]


@pytest.mark.parametrize(
    "benchmark, cell",
    [
        (transfer.HostToDevice, ("d.copy_(t, non_blocking=True)", routes.PINNED, "float32", 4096)),
        (transfer.Casting, ("t.to(device, torch.float32, non_blocking=True)", routes.PINNED, 2**20)),
        (transfer.Transposed, ("d.copy_(m, non_blocking=True)", routes.PINNED, 2**20)),
        (transfer.TreeToDevice, ("map_tree(lambda x: x.to(device, non_blocking=True), tree)", routes.PINNED, 2**20)),
    ],
)
def test_enqueue_finds_the_queue_empty_from_its_warm_up_on(device, monkeypatch, benchmark, cell):
    order = []
    watch(device, monkeypatch, order)
    made = benchmark()
    method = made.timeit_enqueue
    timed = statement.StatementBenchmark("transfer.timeit_enqueue", method, [method, made])
    timed._current_params = cell
    assert not timed.do_setup()
    made.move.names["called"] = lambda: order.append("called")
    run = made.move.run
    monkeypatch.setattr(made.move, "run", lambda: (order.append("called"), run()))
    monkeypatch.setattr(
        made, "timeit_enqueue", lambda *cell: (f"called(); {method(*cell)[0]}", method(*cell)[1]), raising=False
    )
    timed.func = made.timeit_enqueue
    assert len(timed.run(*cell)["samples"]) == transfer.ENQUEUED
    assert order.count("called") > transfer.ENQUEUED + transfer.ENQUEUE_WARMUP
    assert ("called", "called") not in list(zip(order, order[1:]))


@pytest.mark.parametrize("benchmark", [transfer.Casting, transfer.Transposed, transfer.TreeToDevice])
def test_non_blocking_routes_that_change_something_are_timed_until_they_return_too(device, benchmark):
    for cell in cells(benchmark(), 4096):
        early = routes.find(cell[0], routes.HOST_TO_DEVICE).non_blocking
        with contextlib.nullcontext() if early else pytest.raises(NotImplementedError, match="^blocking"):
            run(benchmark(), "timeit_enqueue", cell)


COMPLETIONS = [
    *(transfer.HostToDevice, transfer.DeviceToHost, transfer.Casting, transfer.Transposed, transfer.Scalar),
    *(transfer.TreeToNumpy, transfer.TreeToDevice, transfer.ToBfloat16, many.ToDevice),
    *(busy.HostToDevice, busy.DeviceToHost, busy.WorkBehind),
    *(overlap.Hidden, overlap.DataLoader, link.Limit, link.Floor),
    *(staging.HostThreads, staging.PinnedToDevice, staging.PinnedToHost),
]


def does_nothing(device=None):
    pass


@pytest.mark.parametrize("benchmark", COMPLETIONS, ids=lambda benchmark: benchmark.__name__)
def test_a_synchronize_that_does_not_wait_fails_everything_that_is_timed_until_it_is_complete(
    device, monkeypatch, benchmark
):
    monkeypatch.setattr(overlap, "SIDES", [32])
    monkeypatch.setattr(device.module, "synchronize", does_nothing)
    failed = set()
    for cell in cells(benchmark(), 4096):
        with pytest.raises(RuntimeError) as raised:
            benchmark().setup(*cell)
        if raised.type is not NotImplementedError:  # what this device cannot do
            failed.add(str(raised.value))
    assert failed == {"synchronize() returned before the work queued on cpu:0 was done"}


@pytest.mark.parametrize(
    "expression, direction, why",
    [
        ("h.copy_(t, non_blocking=True)", routes.DEVICE_TO_HOST, "not what was sent"),
        ("t.to('cpu', non_blocking=True)", routes.DEVICE_TO_HOST, "not what was sent"),
        ("d.copy_(t, non_blocking=True)", routes.HOST_TO_DEVICE, r"synchronize\(\) returned before"),
        ("t.to(device, non_blocking=True)", routes.HOST_TO_DEVICE, r"synchronize\(\) returned before"),
    ],
)
def test_verifying_a_route_waits_no_longer_than_what_is_timed(device, monkeypatch, expression, direction, why):
    """A result on the host is looked at as it lies there, of one on the device the stream is asked."""
    monkeypatch.setattr(devices.Device, "check_synchronize", does_nothing)
    if direction == routes.DEVICE_TO_HOST:  # nor does it take a stream that can be asked
        monkeypatch.delattr(device.module.Stream, "query")
    move = moving.Move(routes.find(expression, direction), routes.PINNED, "float32", 4096, device)
    move.verify()
    monkeypatch.setattr(device.module, "synchronize", does_nothing)
    with pytest.raises(RuntimeError, match=why):
        move.verify()


def test_a_blocking_copy_that_returns_early_is_seen(device, monkeypatch):
    """Its completion is timed without a synchronize."""
    move = moving.Move(routes.find("d.copy_(t)", routes.HOST_TO_DEVICE), routes.PAGEABLE, "float32", 4096, device)
    copy = torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda target, source, **_: copy(target, source, non_blocking=True))
    with pytest.raises(RuntimeError, match=r"d\.copy_\(t\) returned before"):
        move.verify()


@pytest.mark.parametrize("nbytes, seconds", [(2**20, timing.SAMPLE_SECONDS), (16 * 2**20, 0.01)])
def test_a_sample_of_a_large_transfer_is_no_single_call(device, nbytes, seconds):
    made, cell = transfer.HostToDevice(), ("t.to(device)", routes.PAGEABLE, "float32", nbytes)
    method = made.timeit_completion
    timed = statement.StatementBenchmark("transfer.HostToDevice.timeit_completion", method, [method, made])
    timed._current_params = cell
    assert not timed.do_setup()
    assert timed.sample_time == seconds


@pytest.mark.parametrize("expression, early", [("d.copy_(t)", False), ("d.copy_(t, non_blocking=True)", True)])
def test_completion_waits_for_what_may_return_early_alone(device, expression, early):
    benchmark, cell = transfer.HostToDevice(), (expression, routes.PINNED, "float32", 4096)
    benchmark.setup(*cell)
    assert benchmark.timeit_completion(*cell)[0] == expression + ("; synchronize()" if early else "")


@pytest.mark.parametrize("benchmark, cell", SETUPS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_device_that_torch_cannot_wait_for_is_skipped(device, monkeypatch, benchmark, cell):
    monkeypatch.delattr(device.module, "synchronize")
    with pytest.raises(NotImplementedError, match="has no call that waits for cpu"):
        benchmark().setup(*cell)


@pytest.mark.parametrize("expression", ["t.to('cpu', non_blocking=True)", "h.copy_(t, non_blocking=True)"])
def test_what_ought_to_be_pinned_and_is_not_is_skipped(device, monkeypatch, expression):
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: False)
    route = routes.find(expression, routes.DEVICE_TO_HOST)
    with pytest.raises(NotImplementedError, match="what torch was asked to pin is not pinned"):
        moving.Move(route, routes.PINNED, "float32", 4096, device).verify()


def test_a_dtype_that_the_device_has_not_is_skipped(device, monkeypatch):
    """As MPS says it: what is converted before it is there can be moved all the same."""
    empty = torch.empty

    def refuses(*size, **options):
        if options.get("dtype") is torch.float64 and "device" in options:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype\nand advice")
        return empty(*size, **options)

    monkeypatch.setattr(torch, "empty", refuses)
    for expression, skips in (("t.to(device)", True), ("t.to(device, torch.float32)", False)):
        route = routes.find(expression, routes.HOST_TO_DEVICE)
        with (
            pytest.raises(NotImplementedError, match="has no float64: .* dtype$") if skips else contextlib.nullcontext()
        ):
            moving.Move(route, routes.PAGEABLE, "float64", 4096, device)


@pytest.mark.parametrize("events_wait", [True, False])
def test_a_staging_buffer_refilled_too_early_is_seen(device, monkeypatch, events_wait):
    """By what test_device.py does before every look; the sources of benchmarks alone would not show it."""
    if not events_wait:
        monkeypatch.setattr(device.module.Event, "synchronize", lambda event: None)
    route = routes.find("copy_in_chunks(d, t, stages)", routes.HOST_TO_DEVICE)
    move = moving.Move(route, routes.PAGEABLE, "float32", 9 * 2**20, device)
    move.verify()  # chunks of a benchmark's source are all alike
    for number in range(3):
        renew(move, number)
        with contextlib.nullcontext() if events_wait else pytest.raises(RuntimeError, match="not what was sent"):
            move.verify()


def test_a_route_that_moves_nothing_the_second_time_is_seen(device, monkeypatch):
    route = routes.find("d.copy_(t)", routes.HOST_TO_DEVICE)
    move = moving.Move(route, routes.PAGEABLE, "float32", 4096, device)
    move.verify()
    renew(move, 1)
    move.route = routes.find("d.copy_(t, non_blocking=True)", routes.HOST_TO_DEVICE)
    move.verify()
    renew(move, 2)
    monkeypatch.setattr(torch.Tensor, "copy_", lambda target, source, non_blocking=False: target)
    with pytest.raises(RuntimeError, match="not what was sent"):
        move.verify()


SMALL_CELL = {firsts.PinnedMemory: (2**20,), overlap.DataLoader: (0, routes.PAGEABLE)}


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", [*COMPLETIONS, firsts.PinnedMemory], ids=lambda benchmark: benchmark.__name__)
def test_the_second_of_two_devices_is_measured_as_the_only_one_is(second, monkeypatch, benchmark):
    """Where a wait is for the first device, verifying sees that what it looks at has not arrived."""
    monkeypatch.setattr(overlap, "SIDES", [32])
    ran = 0
    for cell in [SMALL_CELL[benchmark]] if benchmark in SMALL_CELL else cells(benchmark(), 4096):
        with contextlib.suppress(NotImplementedError):
            benchmark().setup(*cell)
            ran += 1
    assert ran and second.chosen == 1
    assert second.queue.done == len(second.queue.copies)


def test_a_wait_for_the_first_of_two_devices_is_seen(second, monkeypatch):
    monkeypatch.setattr(devices.Device, "synchronize", lambda device: device.module.synchronize(0))
    move = moving.Move(routes.find("d.copy_(t)", routes.HOST_TO_DEVICE), routes.PAGEABLE, "float32", 4096, second)
    with pytest.raises(RuntimeError, match="returned before the work queued on cpu:1 was done"):
        move.verify()


def test_the_second_device_is_asked_for_by_its_index_in_nvml_and_in_the_first_use(monkeypatch):
    asked = []
    properties = SimpleNamespace(uuid="abc")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: asked.append(device) or properties)
    fake = SimpleNamespace(NVMLError=NVMLError, nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=str)
    assert nvml_module.handle_of(fake, devices.Device("cuda:1")) == "GPU-abc"
    monkeypatch.setattr(torch, "empty", lambda *size, device: asked.append(device))
    monkeypatch.setattr(torch.cuda, "synchronize", asked.append)
    assert firsts._first_use("cuda:1") > 0
    assert asked == [torch.device("cuda:1")] * 3


def test_chunks_arrive_in_order(device):
    device.use()
    count = 3 * moving.CHUNK // 4 + 5
    sent, arrived = torch.arange(count, dtype=torch.float32), torch.empty(count)
    assert moving.copy_in_chunks(arrived, sent, moving.Stages(device, torch.float32)) is arrived
    device.synchronize()
    assert torch.equal(arrived, sent)


@pytest.mark.parametrize("threads, count", [("one", 1), ("all", len(os.sched_getaffinity(0)))])
@pytest.mark.parametrize("route", staging.STAGED)
def test_the_hosts_part_is_done_by_one_thread_and_by_all(device, route, threads, count):
    made, before = staging.HostThreads(), torch.get_num_threads()
    try:
        made.setup(route, threads, 4096)
        assert torch.get_num_threads() == count
        assert made.move.names["t"].dtype == (torch.float64 if route == staging.CAST else torch.float32)
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", [staging.PinnedToDevice, staging.PinnedToHost], ids=lambda b: b.__name__)
@pytest.mark.parametrize("cache", ["hit", "miss"])
def test_a_miss_finds_the_pinned_cache_emptied_before_every_call(device, monkeypatch, benchmark, cache):
    order = []
    monkeypatch.setattr(Pretended, "empty_pinned_cache", lambda device: order.append("emptied"))
    watch(device, monkeypatch, order)
    made = benchmark()
    cell = (made.params[0][0], cache, 2**26)
    method = made.timeit_completion
    timed = statement.StatementBenchmark("staging.timeit_completion", method, [method, made])
    timed._current_params = cell
    assert not timed.do_setup()
    call = f"called(); {method(*cell)[0]}"
    made.move.names["called"] = lambda: order.append("called")
    monkeypatch.setattr(made, "timeit_completion", lambda *cell: (call, made.move.names), raising=False)
    timed.func = made.timeit_completion
    order.clear()
    timed.run(*cell)
    found = [what for what in order if what != "waited"]
    assert ("emptied" in found) == (cache == "miss")
    if cache == "miss":
        timed_ones = found[found.index("emptied") :]  # behind the warm-up
        assert timed_ones.count("called") >= timing.SAMPLES_LARGE
        assert ("called", "called") not in list(zip(timed_ones, timed_ones[1:]))
    places = [place for place, what in enumerate(order) if what == "emptied"]
    assert all(order[place - 1] == "waited" for place in places), "what is in use cannot be given back"


def test_a_torch_that_cannot_empty_its_pinned_cache_has_hits_alone(device, monkeypatch):
    monkeypatch.setattr(Pretended, "_accelerator", None)
    monkeypatch.delattr(torch._C, "_host_emptyCache", raising=False)
    staging.PinnedToDevice().setup(staging.STAGED[1], "hit", 4096)
    with pytest.raises(NotImplementedError, match="has no call that empties its cache of pinned memory"):
        staging.PinnedToDevice().setup(staging.STAGED[1], "miss", 4096)


@pytest.mark.parametrize("place", ["torch.accelerator", "torch._C"])
def test_the_pinned_cache_is_emptied_by_what_this_torch_has(monkeypatch, place):
    emptied = []
    module = SimpleNamespace(empty_host_cache=lambda: emptied.append(place)) if place == "torch.accelerator" else None
    monkeypatch.setattr(devices.Device, "_accelerator", module)
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: emptied.append(place), raising=False)
    devices.Device("cuda:0").empty_pinned_cache()
    assert emptied == [place]


def test_overlap(device, monkeypatch):
    monkeypatch.setattr(overlap, "SIDES", [32])
    for cell in cells(overlap.Hidden(), 4096):
        run(overlap.Hidden(), "timeit_completion", cell)


def test_the_products_were_made_once_before_they_are_timed(device, monkeypatch):
    """The first one makes the library's handles and workspace."""
    monkeypatch.setattr(overlap, "SIDES", [32])
    order, multiply = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda *matrices, out: (order.append("product"), multiply(*matrices, out=out)))
    watch(device, monkeypatch, order)
    overlap.Hidden().setup(routes.HOST_TO_DEVICE, routes.PINNED, 4096)
    assert order[-2:] == ["product", "waited"]


@pytest.mark.parametrize("transfer, side, count", [(1e-4, 512, 2), (1e-3, 512, 15), (1e-2, 1024, 19), (1.0, 8192, 4)])
def test_products_take_one_to_two_times_the_transfer_in_few_calls(device, monkeypatch, transfer, side, count):
    """On a device that multiplies matrices of 512 in 0.1 ms, and twice as large ones in eight times that."""
    calls = []

    class Timer:
        def __init__(self, statement, globals):
            calls.clear()
            exec(statement, globals)
            self.seconds = 1e-4 * (calls[0] / 512) ** 3

        def timeit(self, number):
            pass

        def repeat(self, repeat, number):
            return [self.seconds] * repeat

    monkeypatch.setattr(overlap._timeit, "Timer", Timer)
    monkeypatch.setattr(torch, "randn", lambda side, *other, device: torch.empty(side))
    monkeypatch.setattr(torch, "mm", lambda matrix, other, out: calls.append(len(matrix)))
    overlap._products(device, transfer)()
    took = sum(1e-4 * (made / 512) ** 3 for made in calls[1:])
    assert 1 <= took / transfer <= 2 and len(calls[1:]) == count and set(calls[1:]) == {side}


@pytest.mark.slow
def test_products_transfer_and_both_are_timed_in_turns_by_one_process(device, monkeypatch, tmp_path):
    monkeypatch.setattr(overlap, "SIDES", [32])
    monkeypatch.setenv(sampling_log.LOG_VARIABLE, str(tmp_path / "log"))
    made, cell = overlap.Hidden(), (routes.HOST_TO_DEVICE, routes.PINNED, 16 * 2**20)
    method = made.timeit_completion
    timed = statement.StatementBenchmark("overlap.Hidden.timeit_completion", method, [method, made])
    timed._current_params = cell
    assert not timed.do_setup()
    order = []
    for part, timer in made.timed_by.timers.items():
        monkeypatch.setattr(
            timer, "timeit", lambda number, part=part, own=timer.timeit: (order.append(part), own(number))[1]
        )
    samples = timed.run(*cell)["samples"]
    line = json.loads((tmp_path / "log").read_text())
    assert order == list(line["parts"]) * (len(order) // 3) and list(line["parts"]) == list(transfers.PARTS)
    assert [float(f"{each:.6g}") for each in line["parts"]["both"]] == samples == line["seconds"]
    assert {len(each) for each in line["parts"].values()} == {timing.SAMPLES}
    (process,) = _timed([{"run": "", "round": 0, **line}], _Places()).to_dict("records")
    assert process["beside"]["both"] == pytest.approx(process["seconds"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("form", overlap.TrainingStep.params[0])
def test_training_steps_see_every_batch_once_and_in_order(device, form):
    step, seen = overlap.TrainingStep(), []
    original = overlap._Step.__call__

    def watched(self, batch):
        device.queue.wait()  # what computes is queued behind the copies
        seen.append(batch[0, 0].item())
        return original(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap._Step, "__call__", watched)
        assert run(step, "timeit_step", (form, 2**16)) == [overlap.TrainingStep.batches]
    assert len(seen) == 2 * overlap.TrainingStep.batches  # once in setup, once timed
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert len(set(seen)) == overlap.TrainingStep.batches


@pytest.fixture
def loader(device, monkeypatch):
    """Two small batches."""
    monkeypatch.setattr(overlap.DataLoader, "count", 32)
    monkeypatch.setattr(overlap.DataLoader, "features", 1024)
    pinned = torch.Tensor.pin_memory
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *device: pinned(tensor))
    return overlap.DataLoader()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(loader, workers):
    assert run(loader, "timeit_batch", (workers, routes.PAGEABLE)) == [2]
    assert not loader.names, "the workers are still there"


def test_batches_that_were_to_be_pinned_and_are_not_are_skipped(loader, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: False)
    with pytest.raises(NotImplementedError, match="what torch was asked to pin is not pinned"):
        loader.setup(0, routes.PINNED)


def test_a_batch_that_does_not_arrive_is_seen(loader, monkeypatch):
    to = torch.Tensor.to

    def wrong(tensor, *where, **options):
        return to(tensor, *where, **options) * (2 if isinstance(where[0], torch.device) else 1)

    monkeypatch.setattr(torch.Tensor, "to", wrong)
    with pytest.raises(RuntimeError, match="what arrived is not what was sent"):
        loader.setup(0, routes.PAGEABLE)


# Buffers that persist, many small tensors, a busy device


def moved(expression, direction, memory, device, nbytes=4096):
    return moving.Move(routes.find(expression, direction), memory, "float32", nbytes, device)


def test_two_buffers_take_turns_and_are_read_by_their_own_events(device):
    names = moved("buffers.start(t); buffers.read()", routes.DEVICE_TO_HOST, routes.PINNED, device).names
    buffers, numbers = names["buffers"], [torch.full((1024,), float(number)) for number in range(3)]
    for tensor in numbers[:2]:
        buffers.start(tensor)
    first = buffers.read()
    assert (first == 0).all() and not device.is_idle(), "it waited for what was started after it"
    buffers.start(numbers[2])
    assert (buffers.read() == 1).all()
    assert (first == 0).all()
    assert (buffers.read() == 2).all()
    assert (first == 2).all(), "the hazard did not show"
    with pytest.raises(RuntimeError, match="no copy was started"):
        buffers.read()


def test_an_event_that_does_not_wait_is_seen(device, monkeypatch):
    monkeypatch.setattr(device.module.Event, "synchronize", does_nothing)
    move = moved("buffers.start(t); buffers.read()", routes.DEVICE_TO_HOST, routes.PINNED, device)
    with pytest.raises(RuntimeError, match="returned before the work queued"):
        move.verify()


def test_a_staging_tensor_that_is_not_refilled_is_seen(device):
    """It holds the source when it is made."""
    move = moved("s.numpy()[:] = a; d.copy_(s, non_blocking=True)", routes.HOST_TO_DEVICE, routes.PAGEABLE, device)
    move.verify()
    move.route = dataclasses.replace(move.route, expression="d.copy_(s, non_blocking=True)")
    with pytest.raises(RuntimeError, match="not what was sent"):
        move.verify()


@pytest.mark.parametrize("route", routes.select(routes.MANY), ids=lambda route: route.expression)
def test_every_one_of_many_small_tensors_arrives(device, route):
    move = moving.Move(route, routes.PINNED, "float32", 3 * moving.EACH, device)
    assert [leaf.nbytes for leaf in moving.leaves_of(move.source)] == 3 * [moving.EACH]
    for number in range(2):
        renew(move, number)
        move.verify()
    arrived = move.call()
    device.synchronize()
    assert len(moving.leaves_of(arrived)) == 3
    assert [leaf[0].item() for leaf in moving.leaves_of(arrived)] == [1, 2, 3]


def test_one_of_many_that_does_not_arrive_is_seen(device):
    move = moved("[x.to(device) for x in tensors]", routes.HOST_TO_DEVICE, routes.PAGEABLE, device, 3 * moving.EACH)
    move.route = dataclasses.replace(move.route, expression="[tensors[0].to(device) for x in tensors]")
    with pytest.raises(RuntimeError, match="not what was sent"):
        move.verify()


def test_cells_of_many_small_tensors_have_so_many(device):
    for route in many.ToDevice.params[0]:
        benchmark, cell = many.ToDevice(), (route, routes.PAGEABLE, 64)
        benchmark.setup(*cell)
        assert len(benchmark.move.names["tensors"]) == 64
        expression, names = benchmark.timeit_completion(*cell)
        exec(expression, names)
        assert device.is_idle()
        benchmark.teardown(*cell)


@pytest.fixture
def waits(device, monkeypatch):
    """Have blocking copies wait for what is queued before them, as those of a device do; small work."""
    monkeypatch.setattr(busy, "BLOCK", 1024)
    monkeypatch.setattr(busy, "WORK", 1e-6)
    monkeypatch.setattr(busy, "HOPELESS", float("inf"))  # of a microsecond of work: a neighbour takes as long
    late = torch.Tensor.copy_

    def copy(target, source, non_blocking=False):
        if not non_blocking:
            device.queue.wait()
        return late(target, source, non_blocking)

    monkeypatch.setattr(torch.Tensor, "copy_", copy)


@pytest.mark.parametrize(
    "benchmark, route, held",
    [
        (busy.HostToDevice, "d.copy_(t)", True),
        (busy.HostToDevice, "d.copy_(t, non_blocking=True)", False),
        (busy.DeviceToHost, "h.copy_(t)", True),
        (busy.DeviceToHost, "h.copy_(t, non_blocking=True)", False),
    ],
)
def test_a_call_is_timed_with_work_queued_before_it(device, waits, benchmark, route, held):
    made, cell = benchmark(), (route, routes.PINNED, 4096)
    timed = statement.StatementBenchmark("busy.timeit_call", made.timeit_call, [made.timeit_call, made])
    timed._current_params = cell
    assert not timed.do_setup()
    seen = []
    told = {"before": lambda: seen.append(device.is_idle()), "after": lambda: seen.append(device.is_idle())}
    made.names.update(told)
    timed.func = lambda *cell: (f"before(); {route}; after()", made.names)
    timed.samples_per_process = [5] * len(timed.samples_per_process)
    assert len(timed.run(*cell)["samples"]) == 5
    before, after = seen[2::2], seen[3::2]  # the first call is the warm-up's
    assert len(before) >= 5 and set(before) == {False} and set(after) == {held}, "more where the machine is busy"
    made.teardown(*cell)


@pytest.mark.parametrize("form, idle", list(zip(busy.WorkBehind.params[0], (False, True))))
def test_what_is_read_by_its_event_does_not_wait_for_the_work_behind(device, monkeypatch, waits, form, idle):
    made, seen = busy.WorkBehind(), []
    read = moving.Buffers.read

    def watched(buffers):
        assert buffers.started == buffers.finished + 1, "it reads another copy than the one started last"
        array = read(buffers)
        seen.append(device.is_idle())
        assert (array == made.move.names["t"].numpy()).all()
        return array

    timed = statement.StatementBenchmark("busy.WorkBehind.timeit_read", made.timeit_read, [made.timeit_read, made])
    timed._current_params = (form, busy.SIZES[0])
    assert not timed.do_setup()
    monkeypatch.setattr(moving.Buffers, "read", watched)
    assert len(timed.run(form, busy.SIZES[0])["samples"]) == made.samples_for(form, 0)
    assert len(seen) > made.samples_for(form, 0) and set(seen) == {idle}, "more where the machine is busy"


@pytest.mark.parametrize("wanted, each, most", [(0.01, 0.0011, 10), (0.0005, 0.0011, 1)])
def test_work_lasts_as_long_as_it_is_said_to_and_little_longer(device, monkeypatch, wanted, each, most):
    monkeypatch.setattr(busy, "WORK", wanted)
    monkeypatch.setattr(busy, "BLOCK", 1024)
    copy = torch.Tensor.copy_

    def slow(target, source, non_blocking=False):
        copy(target, source, non_blocking)
        device.queue.copies.append(lambda: time.sleep(each))

    monkeypatch.setattr(torch.Tensor, "copy_", slow)
    work = busy._Work(device.use())
    assert wanted <= work.left() and work.copies <= most


def test_a_device_that_queues_nothing_is_skipped(device, monkeypatch):
    """What it is given is done when the call returns: no work can stand before a transfer."""
    monkeypatch.setattr(busy, "BLOCK", 1024)
    monkeypatch.setattr(busy, "WORK", 0.0005)
    monkeypatch.setattr(torch.Tensor, "copy_", lambda target, source, non_blocking=False: target)
    with pytest.raises(NotImplementedError, match="^no work can be queued on cpu:0"):
        busy._Work(device.use())


def test_first_uses(device):
    run(firsts.Context(), "timeit_first_tensor", ())
    for method in ("timeit_register", "timeit_pin_copy"):  # timeit_allocate asks torch itself, which takes a device
        run(firsts.PinnedMemory(), method, (2**20,))
    assert device.undone == 2  # what was timed, and the trial before it


def test_memory_that_cannot_be_registered_skips_that_alone(device, monkeypatch):
    def refused(device, tensor):
        raise NotImplementedError("cudaHostRegister refused")

    monkeypatch.setattr(Pretended, "registered", refused)
    pinned = firsts.PinnedMemory()
    pinned.setup(2**20)
    with pytest.raises(NotImplementedError, match="refused"):
        pinned.timeit_register(2**20)
    assert pinned.timeit_allocate(2**20) and pinned.timeit_pin_copy(2**20)


def test_a_registration_refused_while_it_is_timed_skips(device, monkeypatch, capsys):
    """Small memory could be registered, and then this much could not."""
    registered = Pretended.registered

    def refused(device, tensor):
        if tensor.numel() > firsts.PROBE:
            raise NotImplementedError("cudaHostRegister refused 1048576 bytes")
        return registered(device, tensor)

    monkeypatch.setattr(Pretended, "registered", refused)
    made = firsts.PinnedMemory()
    method = made.timeit_register
    timed = statement.StatementBenchmark("firsts.PinnedMemory.timeit_register", method, [method, made])
    timed._current_params = (2**20,)
    assert not timed.do_setup()
    with pytest.raises(SkipNotImplemented):
        timed.run(2**20)
    assert "asv: skipped: cudaHostRegister refused 1048576 bytes" in capsys.readouterr().out


@pytest.mark.parametrize("nbytes, copies", [(4096, 64), (2**20, 8)])
def test_small_copies_are_in_flight_by_the_dozen(device, nbytes, copies):
    benchmark, cell = transfer.HostToDevice(), ("d.copy_(t, non_blocking=True)", routes.PINNED, "float32", nbytes)
    benchmark.setup(*cell)
    done = device.queue.done
    statement_, names, calls = benchmark.timeit_sustained(*cell)
    exec(statement_, dict(names))
    assert calls == device.queue.done - done == copies


@pytest.mark.parametrize("direction", link.Limit.params[0])
def test_link_limits_are_timed_by_the_devices_clock(device, direction):
    limit = link.Limit()
    limit.setup(direction, 2**20)
    before = limit.timer()
    statement, namespace = limit.timeit_copy(direction, 2**20)
    exec(statement, dict(namespace))
    assert 0 < limit.timer() - before < 60
    limit.teardown()
    run(link.Floor(), "timeit_synchronize", ())


def test_hardware_without_nvml_is_skipped(device, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotImplementedError, match="nvidia-ml-py"):
        asked("link width")


class NVMLError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch, device, tmp_path):
    """nvidia-ml-py on a machine with one device, of which torch tells the name."""
    fake = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_GRAPHICS=0,
        NVML_CLOCK_MEM=1,
        NVML_CLOCK_SM=2,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x01 | 0x04,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: f"by uuid {uuid}",
        nvmlDeviceGetHandleByIndex=lambda index: f"by index {index}",
        nvmlDeviceGetName=lambda handle: b"A Device",
        nvmlDeviceGetCurrPcieLinkGeneration=lambda handle: 5,
        nvmlDeviceGetCurrPcieLinkWidth=lambda handle: 16,
        nvmlDeviceGetClockInfo=lambda handle, which: 1000 + which,
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=b"00000000:1A:00.0"),
        nvmlDeviceGetCpuAffinity=lambda handle, words: [1] + [0] * (words - 1),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(Pretended, "is_cuda", True)
    properties = SimpleNamespace(uuid="abc", name="A Device")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(link, "LOAD_SECONDS", 0.01)
    monkeypatch.setattr(nvml_module, "PCI_DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fake.numa_node, fake.properties = tmp_path / "0000:1a:00.0" / "numa_node", properties
    fake.numa_node.parent.mkdir()
    fake.numa_node.write_text("1\n")
    return fake


def asked(quantity):
    hardware = link.Hardware()
    cache = hardware.setup_cache()
    hardware.setup(cache, quantity)
    return hardware.track_value(cache, quantity)


@pytest.mark.slow
@pytest.mark.usefixtures("given_back")
def test_hardware_is_read_under_load(nvml):
    values = link.Hardware().setup_cache()
    assert set(values) == set(link.Hardware.params[0]) and asked("link width") == 16
    assert values["link generation"] == 5 and values["link width"] == 16 and values["memory clock"] == 1001
    assert values["near cores"] in (0, 1) and values["NUMA node"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("text", ["-1\n", None])
def test_a_numa_node_that_the_system_does_not_say_is_skipped(nvml, text):
    nvml.numa_node.unlink() if text is None else nvml.numa_node.write_text(text)
    with pytest.raises(NotImplementedError, match="does not say"):
        asked("NUMA node")


@pytest.mark.parametrize(
    "uuid, handle",
    [
        *(("abc", "by uuid GPU-abc"), ("GPU-abc", "by uuid GPU-abc"), (None, "by index 0")),
        *(("1", "the device of by uuid MIG-1"), ("MIG-1", "the device of by uuid MIG-1")),
    ],
)
def test_the_device_is_found_by_its_name_or_where_it_has_none_by_its_place(nvml, monkeypatch, device, uuid, handle):
    def by_uuid(uuid):
        if uuid == "GPU-1":  # an instance of a device, which NVML knows by another name
            raise NVMLError("not found")
        return f"by uuid {uuid}"

    monkeypatch.setattr(nvml, "nvmlDeviceGetHandleByUUID", by_uuid)
    nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle = lambda instance: f"the device of {instance}"
    nvml.properties.uuid = uuid
    if uuid is None:
        del nvml.properties.uuid
    assert nvml_module.handle_of(nvml, device) == handle


def raising(error):
    def call(*arguments):
        raise error

    return call


@pytest.mark.parametrize(
    "change",
    [
        lambda nvml, patch: patch.setattr(nvml, "nvmlInit", raising(NVMLError("no library"))),
        lambda nvml, patch: patch.setattr(nvml, "nvmlInit", raising(OSError("no library"))),
        lambda nvml, patch: patch.setattr(nvml, "nvmlDeviceGetHandleByUUID", raising(NVMLError("not found"))),
        lambda nvml, patch: patch.delattr(nvml, "nvmlDeviceGetHandleByUUID"),
        lambda nvml, patch: (patch.delattr(nvml.properties, "uuid"), patch.setenv("CUDA_VISIBLE_DEVICES", "1")),
        lambda nvml, patch: (patch.delattr(nvml.properties, "uuid"), patch.setattr(nvml.properties, "name", "Other")),
    ],
)
def test_a_device_that_nvml_does_not_find_is_skipped_with_one_reason(nvml, monkeypatch, change):
    change(nvml, monkeypatch)
    with pytest.raises(NotImplementedError, match="^NVML does not find cpu:0: "):
        asked("link width")


def test_out_of_memory_under_load_skips_the_cell(nvml, monkeypatch):
    monkeypatch.setattr(moving.Move, "run", raising(RuntimeError("CUDA out of memory")))
    with pytest.raises(NotImplementedError, match="^out of memory"):
        asked("link width")


@pytest.mark.parametrize("context", [True, False])
def test_the_devices_state_stands_around_the_samples(nvml, monkeypatch, tmp_path, context):
    """Of a process that has a context: asking makes none, and wakes nothing that is timed waking."""
    monkeypatch.setenv(sampling_log.LOG_VARIABLE, str(tmp_path / "log"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: context)
    clocks = iter((1200, 1980))
    monkeypatch.setattr(nvml, "nvmlDeviceGetClockInfo", lambda handle, which: next(clocks))
    made = link.Floor()
    method = made.timeit_synchronize
    timed = statement.StatementBenchmark("link.Floor.timeit_synchronize", method, [method, made, link])
    timed._current_params = ()
    assert not timed.do_setup()
    timed.run()
    line = json.loads((tmp_path / "log").read_text())
    around = [{"link generation": 5, "clock": clock, "slowed by": ["power"]} for clock in (1200, 1980)]
    assert line.get("device") == (around if context else None)


def test_a_host_benchmark_asks_no_device(nvml, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_initialized", raising(AssertionError("asked")))
    timed = statement.StatementBenchmark("toy.timeit_nothing", lambda: ("pass", {}), [])
    assert timed._device_state() is None


def test_cores_near_the_device_are_told_where_the_driver_tells_them(nvml, monkeypatch, device):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    monkeypatch.setattr(nvml, "nvmlDeviceGetCpuAffinity", lambda handle, words: [0b1101] + [0] * (words - 1))
    assert devices.answer()["near_cores"] == [0, 2, 3]
    monkeypatch.delattr(nvml, "nvmlDeviceGetCpuAffinity")
    assert devices.answer()["near_cores"] == []
