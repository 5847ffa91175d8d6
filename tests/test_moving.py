"""Every route that needs no pinned memory, moved for real on a device made of Python and NumPy.

The device is torch's private-use backend: `.to`, `copy_`, `.cpu` and the rest run torch's own dispatch, and its one
copy function sees the bytes, the direction and the non_blocking flag. It has no pinned memory and no streams.
"""

import numpy as np
import pytest
import torch
from torch.utils import backend_registration

from benchmarks import devices, moving, routes, transfer

NAME = "mover"
COPIES = []  # (direction, non_blocking) of every copy the device made
MEMORY = {}  # address of the storage, which views such as detach() share -> the NumPy array behind it

register = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
pytestmark = pytest.mark.skipif(
    register is None, reason="this torch cannot make a device of Python (2.9 and newer can)"
)


@pytest.fixture(scope="module")
def device():
    register(NAME)
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
        needs_pinned = moving.uses(route, "s") or moving.uses(route, "stages") or "pin_memory" in route.expression
        if routes.PAGEABLE in route.host_memory and not needs_pinned and "cuda" not in route.needs:
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


def test_large_transfers_are_checked_at_both_ends_and_between(monkeypatch):
    monkeypatch.setattr(moving, "VERIFY_ALL", 0)
    sent = torch.arange(20_000)
    for place in (0, 4096 * 2, 19_999):
        arrived = sent.clone()
        arrived[place] += 1
        assert not moving.same(arrived, sent)
    assert moving.same(sent.clone(), sent)


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
    monkeypatch.setattr(moving.Move, "run", none_left)
    with pytest.raises(NotImplementedError, match=r"^out of memory: CUDA out of memory\. Tried to allocate 1\.00 GiB$"):
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
        COPIES.clear()
        statement, namespace = method(*cell)
        exec(statement, dict(namespace))
        assert COPIES == [(routes.HOST_TO_DEVICE, True)]
    with pytest.raises(NotImplementedError, match="not asynchronous"):
        benchmark.timeit_sustained(*cell)
    benchmark.teardown()
    with pytest.raises(NotImplementedError, match="blocking"):
        benchmark.setup("t.to(device)", *cell[1:])
        benchmark.timeit_enqueue("t.to(device)", *cell[1:])


def test_without_an_accelerator_every_cell_says_why(monkeypatch):
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for kind in ("xpu", "mps"):
        module = getattr(torch, kind, None)
        if module is not None and hasattr(module, "is_available"):
            monkeypatch.setattr(module, "is_available", lambda: False)
    with pytest.raises(NotImplementedError, match="^needs an accelerator"):
        transfer.HostToDevice().setup("t.to(device)", routes.PAGEABLE, "float32", 4096)


def test_out_of_memory_while_timing_skips_the_cell(monkeypatch, tmp_path):
    from asv_runner.benchmarks.mark import SkipNotImplemented

    from benchmarks import statement

    class Hungry:
        def timeit_all(self):
            return "take()", {"take": take}

    def take():
        raise RuntimeError("CUDA out of memory. Tried to allocate 80 GiB\nand advice")

    log = tmp_path / "log"
    monkeypatch.setenv(statement.LOG_VARIABLE, str(log))
    hungry = Hungry()
    benchmark = statement.StatementBenchmark("hungry", hungry.timeit_all, [hungry.timeit_all, hungry])
    with pytest.raises(SkipNotImplemented):
        benchmark.run()
    assert "CUDA out of memory. Tried to allocate 80 GiB" in log.read_text(encoding="utf-8")
    assert "advice" not in log.read_text(encoding="utf-8")
