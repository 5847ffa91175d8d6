"""Run every route that needs no pinned memory on a simulated device made of Python and NumPy.

The device is torch's private-use backend: `.to`, `copy_`, `.cpu` and the rest run torch's own dispatch. The device's
only copy function sees the bytes, the direction and the non_blocking flag. It has no pinned memory and no streams.
"""

import time

import numpy as np
import pytest
import torch
from statements import benchmark
from torch.utils import backend_registration

from benchmarks import routes
from benchmarks.core import devices, moving, queued_work, timing

NAME = "mover"
COPIES = []  # (direction, non_blocking) of each copy that the device made
MEMORY = {}  # address of a storage -> its NumPy array; views such as detach() share the storage

register = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
pytestmark = pytest.mark.skipif(
    register is None, reason="this torch cannot make a device of Python (2.9 and newer can)"
)


@pytest.fixture(scope="module")
def device():
    try:
        register(NAME)
    except RuntimeError as reason:  # a process has only one private-use backend, and torch has loaded another
        pytest.skip(str(reason))
    torch.mover.synchronize = lambda device=None: None  # nothing to wait for: a copy is done when its call returns
    library = torch.library.Library("aten", "IMPL", "PrivateUse1")

    def array(tensor):
        """Return the numbers of a tensor on the host or on the device as a NumPy array."""
        on_host = tensor.device.type == "cpu"
        return tensor.detach().numpy() if on_host else MEMORY[tensor.untyped_storage()._cdata]

    def empty(size, dtype=None, **_):
        tensor = torch._C._acc.create_empty_tensor(tuple(size), dtype or torch.get_default_dtype())
        MEMORY[tensor.untyped_storage()._cdata] = torch.empty(tuple(size), dtype=tensor.dtype).numpy()
        return tensor

    def copy(source, target, non_blocking=False):
        np.copyto(array(target), array(source), casting="unsafe")
        direction = routes.HOST_TO_DEVICE if source.device.type == "cpu" else routes.DEVICE_TO_HOST
        COPIES.append((direction, non_blocking))
        return target

    def number(tensor):
        COPIES.append((routes.DEVICE_TO_HOST, False))
        return array(tensor).item()

    library.impl("empty.memory_format", empty)
    library.impl("empty_strided", lambda size, stride, **options: empty(size, **options))
    library.impl("_copy_from", copy)
    library.impl("_local_scalar_dense", number)
    yield devices.Device(NAME)
    library._destroy()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Queue few bytes before a checked copy. They show as well as 64 MiB that a device in Python queues nothing."""
    monkeypatch.setattr(queued_work, "BLOCK", 4096)
    monkeypatch.setattr(queued_work, "SEEN", 1e-4)
    monkeypatch.setattr(timing, "NOTES", {})


def unpinned():
    """Yield the routes that work without pinned memory and streams, each with all its dtypes."""
    for route in routes.ROUTES:
        needs_pinned = any(
            moving.uses(route, name) for name in ("s", "stages", "buffers", "pin_memory", "pool", "numbers")
        )
        # NumPy has no bfloat16; to(device).float() returns early because of its cast, but its copy is a blocking one
        lacking = "cuda" in route.needs or route.casts_to == "bfloat16" or "to(device).float()" in route.expression
        if routes.PAGEABLE in route.host_memory and not needs_pinned and not lacking:
            dtypes = ["float64"] if routes.TRANSFER_CASTING in route.families else moving.DTYPES
            for dtype in dtypes:
                yield pytest.param(route, dtype, id=f"{route.direction} {route.expression} {dtype}")


@pytest.mark.parametrize("route, dtype", list(unpinned()))
def test_the_bytes_arrive(device, route, dtype):
    MEMORY.clear()  # free the memory of the test before
    move = moving.Move(route, routes.PAGEABLE, dtype, 4096, device)
    COPIES.clear()
    move.run()
    crossed = [non_blocking for direction, non_blocking in COPIES if direction == route.direction]
    assert crossed, f"nothing moved {route.direction}"
    assert all(flag == route.non_blocking for flag in crossed), "the non_blocking flag did not reach the device"
    move.verify()
    move.close()


def test_a_wrong_byte_is_seen(device):
    move = moved(device, "d.copy_(t)")
    move.verify()
    move.source = move.source.clone()
    move.source[-1] += 1
    with pytest.raises(RuntimeError, match="not what was sent"):
        move.verify()


class Stream:
    """A queue of copies. They are made when ``synchronize`` is called."""

    def __init__(self):
        self.work = []

    def query(self):
        return not self.work

    def synchronize(self):
        while self.work:
            self.work.pop(0)()


@pytest.fixture
def queueing(device, monkeypatch):
    """Give the device a stream. Copies are queued there, and blocking ones wait for it."""
    stream, copy = Stream(), torch.Tensor.copy_

    def queued(target, source, non_blocking=False):
        if NAME not in (target.device.type, source.device.type):
            return copy(target, source)
        stream.work.append(lambda: copy(target, source))
        if not non_blocking:
            stream.synchronize()
        return target

    monkeypatch.setattr(torch.Tensor, "copy_", queued)
    monkeypatch.setattr(torch.mover, "synchronize", lambda device=None: stream.synchronize())
    monkeypatch.setattr(torch.mover, "current_stream", lambda device=None: stream, raising=False)
    return stream


def no_sine():
    torch.empty(2, device=NAME).sin_()


def moved(device, expression, nbytes=4096):
    return moving.Move(routes.find(expression, routes.HOST_TO_DEVICE), routes.PAGEABLE, "float32", nbytes, device)


@pytest.mark.parametrize("expression", ["d.copy_(t)", "d.copy_(t, non_blocking=True)"])
def test_what_waits_for_queued_work_is_verified(device, queueing, expression):
    moved(device, expression).verify()
    assert queueing.query() and timing.NOTES == {}


def test_a_wait_that_returns_too_early_is_seen(device, queueing, monkeypatch):
    move = moved(device, "d.copy_(t, non_blocking=True)")
    monkeypatch.setattr(Stream, "synchronize", lambda stream: None)
    with pytest.raises(RuntimeError, match="returned before the work queued"):
        move.verify()


def test_a_route_that_returns_before_its_bytes_and_is_called_blocking_is_seen(device, queueing):
    move = moved(device, "d.copy_(t)")
    move.call = lambda: move.names["d"].copy_(move.names["t"], non_blocking=True)
    with pytest.raises(RuntimeError, match=r"^d\.copy_\(t\) returned before the work queued"):
        move.verify()


@pytest.mark.parametrize("asked", [True, False])
def test_a_device_that_cannot_say_whether_it_is_busy_is_noted(device, asked, monkeypatch):
    """The note is made whether torch can ask an accelerator for its streams or, before torch 2.6, cannot."""
    monkeypatch.setattr(devices.Device, "_accelerator", torch.accelerator if asked else None)
    moved(device, "d.copy_(t)").verify()
    assert "was not seen to be busy" in timing.NOTES["unseen"]


def test_a_device_that_queues_and_is_never_seen_busy_has_no_figure(device, queueing, monkeypatch):
    monkeypatch.setattr(Stream, "query", lambda stream: True)
    with pytest.raises(NotImplementedError, match=r"^could not tell whether synchronize\(\) waits"):
        moved(device, "d.copy_(t)").verify()
    assert queueing.work and timing.NOTES == {}


@pytest.mark.parametrize("dtype", [*moving.DTYPES, "bfloat16"])
def test_no_two_pages_of_a_source_are_alike(device, dtype):
    """Sources repeat one tile. Pages must differ, or a chunk that arrives in place of another would not be noticed."""
    host = moving.host_tensor(device, dtype, 8 * 2**20, routes.PAGEABLE)
    pages = host.view(torch.uint8).view(-1, moving.PAGE)
    assert len(torch.unique(pages, dim=0)) == len(pages) and torch.isfinite(host.double()).all()


def test_the_last_leaf_is_compared_first(device, monkeypatch):
    """The last leaf of a tree is sent last. If it were compared last, it could arrive during the other comparisons."""
    order, same = [], moving.is_equal
    monkeypatch.setattr(moving, "is_equal", lambda got, held: order.append(float(held.values[0][0])) or same(got, held))
    move = moved(device, "map_tree(lambda x: x.to(device), tree)", 2**16)
    move.verify()
    assert order == [float(leaf[0]) for leaf in reversed(moving.leaves_of(move.source))] and len(set(order)) == 4


def test_a_device_is_warm_when_its_clock_no_longer_rises(device, monkeypatch):
    monkeypatch.setattr(queued_work, "WARM_STEP", 0.02)
    monkeypatch.setattr(queued_work, "WARM_WITHIN", 0.5)
    start = time.perf_counter()
    slow = 0.01  # seconds of a wait, at first
    waits = lambda device=None: time.sleep(slow if time.perf_counter() - start < 0.1 else slow / 10)  # noqa: E731
    monkeypatch.setattr(torch.mover, "synchronize", waits)
    queued_work.warm_up(device)
    found = timing.NOTES["warmed"]
    assert found["steady"] and found["seconds"] >= queued_work.WARM_SECONDS and found["last"] < found["first"] / 2
    monkeypatch.setattr(queued_work, "WARM_AT_MOST", 0.1)
    monkeypatch.setattr(queued_work, "WARM_WITHIN", 0.0)
    queued_work.warm_up(device)
    assert not timing.NOTES["warmed"]["steady"]


@pytest.mark.parametrize("transposed", [False, True])
def test_large_transfers_are_checked_at_both_ends_and_in_the_middle_by_slices(monkeypatch, transposed):
    monkeypatch.setattr(moving, "VERIFY_ALL", 2**20)
    count = 2**22
    sent = torch.arange(count)
    sent = sent.view(-1, 512).t() if transposed else sent
    for place in ((0, 0), (len(sent) // 2 - 1, 0), (-1, -1)) if transposed else (0, count // 2, count - 1):
        arrived = sent.clone()
        arrived[place] += 1
        assert not moving.is_equal(arrived, moving.Held(sent))
    assert moving.is_equal(sent.clone(), moving.Held(sent))
    assert moving.is_equal(sent.int(), moving.Held(sent))  # a cast makes the result smaller than the source
    parts = moving.parts_of(sent)
    assert len(parts) == moving.SLICES and sum(sent[part].numel() for part in parts) < count / 20
    assert moving.parts_of(torch.arange(9)) == [...]


@pytest.mark.parametrize("variable", ["CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING"])
def test_a_variable_that_makes_figures_meaningless_refuses(monkeypatch, variable):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    monkeypatch.setenv(variable, "0")
    assert str(devices.find()) == "cuda:0"
    monkeypatch.setenv(variable, "1")
    with pytest.raises(NotImplementedError, match=f"^{variable} is set: every .*; unset it$"):
        devices.find()


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
    # the process's own group is not visible; the group above it sets the limit
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


@pytest.mark.parametrize(
    "where",
    [{"setup": lambda self: no_sine()}, {"timeit_call": lambda self: ("no_sine()", {"no_sine": no_sine})}],
)
def test_what_the_device_lacks_is_torchs_failure_and_no_skip(device, where, log):
    """torch raises NotImplementedError for missing kernels, too, with pages of text. It is logged as a failure."""
    made = benchmark(**where)
    with pytest.raises(NotImplementedError):
        made.do_setup()
        made.run()
    assert log()[0]["failed"].startswith("NotImplementedError: ")
