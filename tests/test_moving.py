"""Every route that needs no pinned memory, moved for real on a device made of Python and NumPy.

The device is torch's private-use backend: `.to`, `copy_`, `.cpu` and the rest run torch's own dispatch, and its one
copy function sees the bytes, the direction and the non_blocking flag. It has no pinned memory and no streams.
"""

import contextlib
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils import backend_registration

from benchmarks import devices, moving, routes, sampling_log, statement, transfer

NAME = "mover"
COPIES = []  # (direction, non_blocking) of every copy the device made
MEMORY = {}  # address of the storage, which views such as detach() share -> the NumPy array behind it

register = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
pytestmark = pytest.mark.skipif(
    register is None, reason="this torch cannot make a device of Python (2.9 and newer can)"
)


@pytest.fixture(scope="module")
def device():
    try:
        register(NAME)
    except RuntimeError as reason:  # a process has one private-use backend, and this one loaded another by itself
        pytest.skip(str(reason))
    torch.mover.synchronize = lambda device=None: None  # true: a copy is done when its call returns
    library = torch.library.Library("aten", "IMPL", "PrivateUse1")

    def empty(size, dtype=None, **_):
        tensor = torch._C._acc.create_empty_tensor(tuple(size), dtype or torch.get_default_dtype())
        MEMORY[tensor.untyped_storage()._cdata] = torch.empty(tuple(size), dtype=tensor.dtype).numpy()
        return tensor

    def copy(source, target, non_blocking=False):
        if source.device.type == "cpu":
            direction, values = routes.HOST_TO_DEVICE, source.detach().numpy()
        else:
            direction, values = routes.DEVICE_TO_HOST, MEMORY[source.untyped_storage()._cdata]
        into = target.numpy() if target.device.type == "cpu" else MEMORY[target.untyped_storage()._cdata]
        np.copyto(into, values, casting="unsafe")
        COPIES.append((direction, non_blocking))
        return target

    def number(tensor):
        COPIES.append((routes.DEVICE_TO_HOST, False))
        return MEMORY[tensor.untyped_storage()._cdata].item()

    library.impl("empty.memory_format", lambda size, **options: empty(size, options.get("dtype")))
    library.impl("empty_strided", lambda size, stride, **options: empty(size, options.get("dtype")))
    library.impl("_copy_from", copy)
    library.impl("_local_scalar_dense", number)
    yield devices.Device(NAME)
    library._destroy()


def unpinned():
    """The routes, with each host memory, that a device without pinned memory and streams can carry."""
    for route in routes.ROUTES:
        if route.direction not in (routes.HOST_TO_DEVICE, routes.DEVICE_TO_HOST):
            continue
        needs_pinned = any(moving.uses(route, name) for name in ("s", "stages", "buffers", "pin_memory"))
        lacking = "cuda" in route.needs or route.casts_to == "bfloat16"  # which NumPy has not
        if routes.PAGEABLE in route.host_memory and not needs_pinned and not lacking:
            yield pytest.param(route, id=f"{route.direction} {route.expression}")


@pytest.mark.parametrize("route", list(unpinned()))
@pytest.mark.parametrize("dtype", moving.DTYPES)
def test_the_bytes_arrive(device, route, dtype):
    if routes.TRANSFER_CASTING in route.families:
        dtype = "float64"
    move = moving.Move(route, routes.PAGEABLE, dtype, 4096, device)
    COPIES.clear()
    move.run()
    crossed = [non_blocking for direction, non_blocking in COPIES if direction == route.direction]
    assert crossed, f"nothing moved {route.direction}"
    assert all(flag == route.non_blocking for flag in crossed), "the non_blocking flag did not reach the device"
    move.verify()
    move.close()


@pytest.mark.parametrize("route", list(unpinned()))
def test_the_result_lies_where_the_route_says(device, route):
    move = moving.Move(route, routes.PAGEABLE, "float64", 4096, device)
    for leaf in moving.leaves_of(move.run()):
        there = isinstance(leaf, torch.Tensor) and leaf.device.type == NAME
        assert there == (route.direction == routes.HOST_TO_DEVICE)
        if route.casts_to:
            assert str(leaf.dtype) == f"torch.{route.casts_to}"


def test_a_wrong_byte_is_seen(device):
    move = moving.Move(routes.find("d.copy_(t)", routes.HOST_TO_DEVICE), routes.PAGEABLE, "float32", 4096, device)
    move.verify()
    move.source = move.source.clone()
    move.source[-1] += 1
    with pytest.raises(RuntimeError, match="not what was sent"):
        move.verify()


@pytest.mark.parametrize("transposed", [False, True])
def test_large_transfers_are_checked_at_both_ends_and_in_the_middle_by_slices(monkeypatch, transposed):
    monkeypatch.setattr(moving, "VERIFY_ALL", 2**20)
    count = 2**22
    sent = torch.arange(count)
    sent = sent.view(-1, 512).t() if transposed else sent
    for place in ((0, 0), (len(sent) // 2 - 1, 0), (-1, -1)) if transposed else (0, count // 2, count - 1):
        arrived = sent.clone()
        arrived[place] += 1
        assert not moving.same(arrived, moving.Held(sent))
    assert moving.same(sent.clone(), moving.Held(sent))
    assert moving.same(sent.int(), moving.Held(sent))  # smaller than the source: a cast
    parts = moving.parts_of(sent)
    assert len(parts) == moving.SLICES and sum(sent[part].numel() for part in parts) < count / 20
    assert moving.parts_of(torch.arange(9)) == [...]


@pytest.mark.parametrize("expression", ["d.copy_(m)", "d.copy_(m, non_blocking=True)"])
def test_a_transpose_goes_into_a_row_major_destination(device, expression):
    """Only then do the bytes cross in another order than they lie in."""
    move = moving.Move(routes.find(expression, routes.HOST_TO_DEVICE), routes.PAGEABLE, "float32", 4096, device)
    assert move.names["d"].is_contiguous() and not move.names["m"].is_contiguous()
    assert "pageable temporary" in move.route.hazard
    assert "pageable temporary" not in routes.find("m.to(device, non_blocking=True)", routes.HOST_TO_DEVICE).hazard


def test_every_route_that_reads_a_pinned_source_late_says_so():
    # these read a copy of the source, or wait
    waits = ("pin_memory()", "s.copy_", "s.numpy()", "out=s", "copy_in_chunks", "d.copy_(m", "to(device).bfloat16()")
    for route in routes.ROUTES:
        if route.direction == routes.HOST_TO_DEVICE and route.non_blocking:
            late = not any(part in route.expression for part in waits)
            assert ("changing the source before a synchronize" in route.hazard) == late, route.expression


@pytest.mark.parametrize("expression", ["s.copy_(t); d.copy_(s, non_blocking=True)", "copy_in_chunks(d, t, stages)"])
def test_what_needs_pinned_memory_or_streams_is_skipped_with_the_reason(device, expression):
    route = routes.find(expression, routes.HOST_TO_DEVICE)
    with pytest.raises(NotImplementedError, match="pinned memory|streams"):
        moving.Move(route, routes.PAGEABLE, "float32", 4096, device)


@pytest.mark.parametrize("memory", [routes.PINNED, routes.REGISTERED])
def test_host_memory_that_the_device_has_not_is_skipped(device, memory):
    route = routes.find("t.to(device)", routes.HOST_TO_DEVICE)
    with pytest.raises(NotImplementedError, match="has no"):
        moving.Move(route, memory, "float32", 4096, device)


def test_cuda_alone_has_its_own_call(device):
    with pytest.raises(NotImplementedError, match="needs CUDA"):
        moving.Move(routes.find("t.cuda()", routes.HOST_TO_DEVICE), routes.PAGEABLE, "float32", 4096, device)


def test_out_of_memory_skips_the_cell_with_its_reason(device, monkeypatch):
    route = routes.find("t.to(device)", routes.HOST_TO_DEVICE)

    def none_left(*arguments, **options):
        raise RuntimeError("CUDA out of memory. Tried to allocate 1.00 GiB\nand pages of advice")

    move = moving.Move(route, routes.PAGEABLE, "float32", 4096, device)
    monkeypatch.setattr(moving.Move, "call", none_left)
    with pytest.raises(NotImplementedError, match=r"^out of memory: CUDA out of memory\. Tried to allocate 1\.00 GiB$"):
        move.verify()
    monkeypatch.undo()
    monkeypatch.setattr(moving, "same", none_left)  # on the way back, where it is compared
    with pytest.raises(NotImplementedError, match="^out of memory: CUDA"):
        move.verify()
    monkeypatch.setattr(moving, "host_tensor", none_left)
    with pytest.raises(NotImplementedError, match="out of memory"):
        moving.Move(route, routes.PAGEABLE, "float32", 4096, device)
    monkeypatch.setattr(moving, "host_tensor", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # any other failure is not swallowed
        moving.Move(route, routes.PAGEABLE, "float32", 4096, device)


def test_more_memory_than_the_host_has_is_skipped(device):
    route = routes.find("t.to(device)", routes.HOST_TO_DEVICE)
    with pytest.raises(NotImplementedError, match="GiB of free memory"):
        moving.Move(route, routes.PAGEABLE, "uint8", 2**50, device)


def test_benchmarks_measure_what_is_moved(device, monkeypatch):
    """The timed statements run on the device too: completion, enqueue, and sustained is for pinned memory alone."""
    monkeypatch.setattr(devices, "find", lambda: device)
    benchmark = transfer.HostToDevice()
    cell = ("d.copy_(t, non_blocking=True)", routes.PAGEABLE, "float32", 4096)
    benchmark.setup(*cell)
    for method in (benchmark.timeit_completion, benchmark.timeit_enqueue):
        statement, namespace = method(*cell)
        COPIES.clear()
        exec(statement, dict(namespace))
        assert COPIES == [(routes.HOST_TO_DEVICE, True)]
    with pytest.raises(NotImplementedError, match="not asynchronous"):
        benchmark.timeit_sustained(*cell)
    benchmark.teardown()
    with pytest.raises(NotImplementedError, match="blocking"):
        benchmark.setup("t.to(device)", *cell[1:])
        benchmark.timeit_enqueue("t.to(device)", *cell[1:])


@pytest.fixture
def none_found(monkeypatch):
    """A machine without an accelerator."""
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for kind in ("xpu", "mps"):
        module = getattr(torch, kind, None)
        if module is not None and hasattr(module, "is_available"):
            monkeypatch.setattr(module, "is_available", lambda: False)
    monkeypatch.setattr(devices, "_accelerator_kind", lambda: "")


def test_without_an_accelerator_every_cell_says_why(none_found):
    with pytest.raises(NotImplementedError, match="^needs an accelerator"):
        transfer.HostToDevice().setup("t.to(device)", routes.PAGEABLE, "float32", 4096)


def test_mps_is_found_by_a_torch_whose_module_cannot_say(none_found, monkeypatch):
    monkeypatch.setattr(torch, "mps", SimpleNamespace(), raising=False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert str(devices.find()) == "mps"


@pytest.mark.parametrize("name", ["cuda:1", "cuda", "cpu", "meta", "nosuch:0"])
def test_a_named_device_that_is_not_there_is_one_reason(none_found, monkeypatch, name):
    monkeypatch.setenv(devices.VARIABLE, name)
    with pytest.raises(NotImplementedError, match=f"^CONVERSION_DEVICE={name}: torch finds no such accelerator$"):
        devices.find()


def test_a_named_device_is_counted(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv(devices.VARIABLE, "cuda:1")
    assert str(devices.find()) == "cuda:1"
    monkeypatch.setenv(devices.VARIABLE, "cuda:2")
    with pytest.raises(NotImplementedError, match="no such accelerator"):
        devices.find()


@pytest.mark.parametrize("variable", ["CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING"])
def test_a_variable_that_makes_figures_meaningless_refuses(monkeypatch, variable):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    monkeypatch.setenv(variable, "0")
    assert str(devices.find()) == "cuda:0"
    monkeypatch.setenv(variable, "1")
    with pytest.raises(NotImplementedError, match=f"^{variable} is set: every .*; unset it$"):
        devices.find()


def test_what_changes_figures_is_recorded(monkeypatch, tmp_path):
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.05  Release Build\n")
    monkeypatch.setattr(devices, "DRIVERS", (tmp_path / "none", version))
    for name in devices.RECORDED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    device = devices.Device("cuda:0")
    monkeypatch.setattr(devices, "find", lambda: device)
    monkeypatch.setattr(devices.Device, "use", lambda device: device)
    monkeypatch.setattr(devices.Device, "model", "An Accelerator")
    assert devices.answer() == {
        "device": "cuda:0",
        "device_name": "An Accelerator",
        "driver": "560.35.05",
        "environment": {"CUDA_VISIBLE_DEVICES": "1"},
        "no_device": "",
        "near_cores": [],
    }


@pytest.fixture
def accelerator(monkeypatch):
    """torch.accelerator, about a backend whose own module has nothing; what was called of it."""
    called = []
    stream = SimpleNamespace(query=lambda: False)
    module = SimpleNamespace(
        current_accelerator=lambda: torch.device("mps"),
        set_device_index=lambda index: called.append(("set", index)),
        synchronize=lambda device=None: called.append("waited"),
        current_stream=lambda: stream,
    )
    monkeypatch.setattr(torch, "accelerator", module, raising=False)
    monkeypatch.setattr(torch, "mps", SimpleNamespace(is_available=lambda: True), raising=False)
    return called


def test_what_a_backends_own_module_lacks_is_asked_of_torch_accelerator(accelerator, allocated):
    device = devices.Device("mps:0").use()
    device.synchronize()
    assert accelerator == [("set", 0), "waited", "waited"]
    with pytest.raises(RuntimeError, match="^what returned before the work queued on mps:0 was done$"):
        device.require_idle("what")


def test_torch_accelerator_is_not_asked_about_another_device(accelerator):
    device = devices.Device("xpu")
    device.module = SimpleNamespace()
    with pytest.raises(NotImplementedError, match="has no call that waits for xpu"):
        device.synchronize()
    with pytest.raises(NotImplementedError, match="^xpu has no pinned memory: this torch pins for mps$"):
        device.pinned(torch.ones(1))


def test_memory_that_is_not_pinned_though_torch_was_asked_is_none(accelerator, monkeypatch):
    monkeypatch.setattr(torch, "empty_like", lambda tensor, **options: tensor.clone())
    with pytest.raises(NotImplementedError, match="^mps: what torch was asked to pin is not pinned$"):
        devices.Device("mps").pinned(torch.ones(1))
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    assert torch.equal(devices.Device("mps").pinned(torch.ones(1)), torch.ones(1))


def test_an_accelerator_that_torch_alone_knows_is_found(none_found, accelerator, monkeypatch):
    monkeypatch.setattr(devices, "_accelerator_kind", lambda: "mps")
    monkeypatch.setattr(torch.mps, "is_available", lambda: True)
    assert str(devices.find()) == "mps"


@pytest.mark.parametrize(
    "line, limit, used, cached",
    [
        ("0::/a/b", "memory.max", "memory.current", "inactive_file"),
        ("4:cpu,memory:/a/b", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_a_containers_limit_skips_before_it_kills(monkeypatch, tmp_path, line, limit, used, cached):
    own, root = tmp_path / "cgroup", tmp_path / "groups"
    own.write_text(f"3:cpuset:/\n{line}\n")
    monkeypatch.setattr(moving, "CONTAINERS", root)
    assert moving.room_in_container(own) is None
    top = root if line.startswith("0") else root / "memory"
    # the group itself is not to be seen: the one above it sets the limit
    (top / "a").mkdir(parents=True)
    for name, text in {limit: "max", used: "700", "memory.stat": f"{cached} 100\nanon 600"}.items():
        (top / "a" / name).write_text(text)
    assert moving.room_in_container(own) is None
    (top / "a" / limit).write_text("1000\n")
    assert moving.room_in_container(own) == 400
    monkeypatch.setattr(moving, "room_in_container", lambda: 400)
    moving.require_memory(400)
    with pytest.raises(NotImplementedError, match="GiB of free memory in this container$"):
        moving.require_memory(401)


@pytest.fixture
def allocated(monkeypatch):
    """The devices that something was allocated on."""
    found = []
    monkeypatch.setattr(torch, "empty", lambda *size, device: found.append(str(device)))
    return found


@pytest.mark.parametrize("name, chosen, waited", [("cuda:1", 1, 1), ("cuda:0", 0, 0), ("mps", None, None)])
def test_a_device_is_chosen_tried_and_waited_for_by_its_number(allocated, name, chosen, waited):
    called = []
    device = devices.Device(name)
    device.module = SimpleNamespace(
        set_device=lambda index: called.append(("set_device", index)),
        synchronize=lambda device=None: called.append(("synchronize", device and device.index)),
    )
    choice = [("set_device", chosen)] if chosen is not None else []
    assert device.use() is device
    assert allocated == [name]
    assert called == [*choice, ("synchronize", waited)]
    device.use().synchronize()  # it is tried once
    assert allocated == [name]
    assert called == 2 * [*choice, ("synchronize", waited)]


@pytest.mark.parametrize("name", ["mps", "mps:0"])
def test_a_backend_of_one_device_takes_no_name_of_it(allocated, name):
    device, called = devices.Device(name), []
    device.module = SimpleNamespace(synchronize=lambda: called.append("waited"))
    device.use().synchronize()
    assert called == ["waited", "waited"]  # for the first element on it, and when asked to


@pytest.mark.parametrize(
    "text, skips",
    [
        ("CUDA error: out of memory\nadvice", False),
        ("CUDA error: an illegal memory access was encountered", False),
        ("Cannot access accelerator device when none is available.", True),
    ],
)
def test_no_pinned_memory_is_not_to_be_confused_with_none_left(monkeypatch, text, skips):
    def raises(*arguments, **options):
        raise RuntimeError(text)

    monkeypatch.setattr(devices, "_accelerator_kind", lambda: "cuda")
    monkeypatch.setattr(torch, "empty_like", raises)
    with pytest.raises(RuntimeError) as raised:
        devices.Device("cuda:0").pinned(torch.ones(1))
    assert (raised.type is NotImplementedError) == skips


def test_registration_refused_for_want_of_memory_is_out_of_memory(monkeypatch):
    codes = iter([2, 1])
    monkeypatch.setattr(
        torch.cuda, "cudart", lambda: SimpleNamespace(cudaHostRegister=lambda *arguments: next(codes)), raising=False
    )
    for expected in (True, False):
        with pytest.raises(NotImplementedError, match="cudaHostRegister refused 4 bytes") as raised:
            devices.Device("cuda:0").registered(torch.ones(1))
        assert sampling_log.is_out_of_memory(raised.value) == expected


def timed(call, monkeypatch, tmp_path):
    """What the sampling log says of a benchmark whose setup is a call, and of one whose statement is."""
    from asv_runner.benchmarks.mark import SkipNotImplemented

    class Sets:
        def setup(self):
            call()

        def timeit_all(self):
            return "call()", {"call": call}

    class Runs:
        def timeit_all(self):
            return "call()", {"call": call}

    log = tmp_path / "log"
    monkeypatch.setenv(sampling_log.LOG_VARIABLE, str(log))
    for kind in (Sets, Runs):
        made = kind()
        benchmark = statement.StatementBenchmark("made.timeit_all", made.timeit_all, [made.timeit_all, made])
        benchmark._current_params = ()
        with contextlib.suppress(NotImplementedError, SkipNotImplemented):
            if not benchmark.do_setup():
                benchmark.run()
    return [sorted({"skipped", "failed"} & set(json.loads(line)))[0] for line in log.read_text().splitlines()]


def test_only_our_own_words_skip_and_torchs_fail(device, monkeypatch, tmp_path):
    def ours():
        raise NotImplementedError("cannot be done here")

    def torchs():
        torch.empty(2, device=NAME).sin_()  # which this backend lacks: pages of text

    assert timed(ours, monkeypatch, tmp_path) == ["skipped", "skipped"]
    (tmp_path / "log").unlink()
    assert timed(torchs, monkeypatch, tmp_path) == ["failed", "failed"]


def test_out_of_memory_while_timing_skips_the_cell(monkeypatch, tmp_path):
    from asv_runner.benchmarks.mark import SkipNotImplemented

    class Hungry:
        def timeit_all(self):
            return "take()", {"take": take}

    def take():
        raise RuntimeError("CUDA out of memory. Tried to allocate 80 GiB\nand advice")

    log = tmp_path / "log"
    monkeypatch.setenv(sampling_log.LOG_VARIABLE, str(log))
    hungry = Hungry()
    benchmark = statement.StatementBenchmark("hungry", hungry.timeit_all, [hungry.timeit_all, hungry])
    with pytest.raises(SkipNotImplemented):
        benchmark.run()
    assert "CUDA out of memory. Tried to allocate 80 GiB" in log.read_text(encoding="utf-8")
    assert "advice" not in log.read_text(encoding="utf-8")
