"""The code that measures on an accelerator, run on a device that is the CPU in disguise.

Nothing here says what a transfer costs or that it is asynchronous: that takes a device (test_device.py). It shows that
every benchmark sets up, that its statement runs and that its bytes are right, so that the first person who has an
accelerator is not the first to run this code.
"""

import contextlib
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from asv_runner.benchmarks.mark import SkipNotImplemented
from moves import SETUPS, renew

from benchmarks import devices, firsts, link, moving, overlap, routes, sources, statement, transfer


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

    def __init__(self):
        super().__init__("cpu:0")
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


@pytest.fixture
def device(monkeypatch):
    pretended = Pretended()
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
    [transfer.Casting, transfer.Transposed, transfer.Scalar, transfer.TreeToNumpy, transfer.TreeToDevice],
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
    monkeypatch.setattr(overlap, "MATRIX", 32)
    benchmark().setup(*cell)
    assert device.current


@pytest.mark.parametrize(
    "benchmark, cell, where, name",
    [
        (transfer.HostToDevice, ("t.to(device)", routes.PAGEABLE, "float32", 4), moving, "host_tensor"),
        (transfer.HostToDevice, ("t.to(device)", routes.PAGEABLE, "float32", 4), moving, "same"),
        (overlap.Hidden, (routes.HOST_TO_DEVICE, routes.PAGEABLE, "both", 4), torch, "randn"),
        (overlap.TrainingStep, ("naive", 4096), overlap, "_Step"),
        (overlap.TrainingStep, ("naive", 4096), sources, "array"),
        (overlap.DataLoader, (routes.PAGEABLE,), sources, "tensor"),
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

    monkeypatch.setattr(overlap, "MATRIX", 32)
    monkeypatch.setattr(where, name, none_left)
    with pytest.raises(NotImplementedError, match="^out of memory: (CUDA out of memory. Tried|Unable to)$"):
        benchmark().setup(*cell)


def test_another_failure_of_a_setup_stays_one(device, monkeypatch):
    monkeypatch.setattr(torch, "randn", lambda *arguments, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        overlap.Hidden().setup(routes.HOST_TO_DEVICE, routes.PAGEABLE, "both", 4)


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
    *(transfer.TreeToNumpy, transfer.TreeToDevice, overlap.Hidden, overlap.DataLoader, link.Limit, link.Floor),
]


def does_nothing(device=None):
    pass


@pytest.mark.parametrize("benchmark", COMPLETIONS, ids=lambda benchmark: benchmark.__name__)
def test_a_synchronize_that_does_not_wait_fails_everything_that_is_timed_until_it_is_complete(
    device, monkeypatch, benchmark
):
    monkeypatch.setattr(overlap, "MATRIX", 32)
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


def test_chunks_arrive_in_order(device):
    device.use()
    count = 3 * moving.CHUNK // 4 + 5
    sent, arrived = torch.arange(count, dtype=torch.float32), torch.empty(count)
    assert moving.copy_in_chunks(arrived, sent, moving.Stages(device, torch.float32)) is arrived
    device.synchronize()
    assert torch.equal(arrived, sent)


def test_overlap(device, monkeypatch):
    monkeypatch.setattr(overlap, "MATRIX", 32)
    for cell in cells(overlap.Hidden(), 4096):
        run(overlap.Hidden(), "timeit_completion", cell)


def test_the_product_was_made_once_before_it_is_timed(device, monkeypatch):
    """The first one makes the library's handles and workspace."""
    monkeypatch.setattr(overlap, "MATRIX", 32)
    order, multiply = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda *matrices, out: (order.append("product"), multiply(*matrices, out=out)))
    watch(device, monkeypatch, order)
    overlap.Hidden().setup(routes.HOST_TO_DEVICE, routes.PINNED, "both", 4096)
    assert order[-2:] == ["product", "waited"]


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


def test_data_loader(device, monkeypatch):
    monkeypatch.setattr(overlap.DataLoader, "rows", 512)
    assert run(overlap.DataLoader(), "timeit_batch", (routes.PAGEABLE,)) == [2]


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
        link.Hardware().setup("link width")


class NVMLError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch, device, tmp_path):
    """nvidia-ml-py on a machine with one device, of which torch tells the name."""
    fake = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_GRAPHICS=0,
        NVML_CLOCK_MEM=1,
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
    monkeypatch.setattr(link, "PCI_DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fake.numa_node, fake.properties = tmp_path / "0000:1a:00.0" / "numa_node", properties
    fake.numa_node.parent.mkdir()
    fake.numa_node.write_text("1\n")
    return fake


def asked(quantity):
    hardware = link.Hardware()
    hardware.setup(quantity)
    return hardware.track_value(quantity)


def test_hardware_is_read_under_load(nvml):
    values = {quantity: asked(quantity) for quantity in link.Hardware.params[0]}
    assert values["link generation"] == 5 and values["link width"] == 16 and values["memory clock"] == 1001
    assert values["near cores"] in (0, 1) and values["NUMA node"] == 1


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
    assert link.handle_of(nvml, device) == handle


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
