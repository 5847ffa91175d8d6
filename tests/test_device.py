"""Tests that need an accelerator: every transfer route, and each hazard happening. Skipped without one."""

import contextlib

import pytest
import torch
from autograd import RECORDED, grad_outcome
from conftest import possible

from benchmarks import link, overlap, routes, settings_pinned
from benchmarks.core import devices, environment, moving

pytestmark = pytest.mark.device
LARGE = 256 * 2**20  # bytes: 5 ms on the fastest link, so the host is certainly earlier


@pytest.fixture(scope="module", autouse=True)
def device():
    """Skip this module if there is no usable accelerator."""
    with possible():
        return devices.find().use()


def transfers():
    for route in routes.ROUTES:
        for memory in route.host_memory:
            yield pytest.param(route, memory, id=f"{route.direction} {memory} {route.expression}")


def made(device, expression, direction, memory, nbytes=LARGE):
    with possible():
        return moving.Move(routes.find(expression, direction), memory, "float32", nbytes, device)


@pytest.mark.parametrize("route, memory", list(transfers()))
@pytest.mark.parametrize("nbytes", [4, 4096, 9 * 2**20])  # 9 MiB: three chunks, the last one short
def test_the_bytes_arrive(device, route, memory, nbytes):
    """Sources change each time and targets hold garbage, so a route that moves nothing fails."""
    dtype = "float64" if routes.TRANSFER_CASTING in route.families else "float32"
    if "numbers" in route.expression and nbytes > 4096:
        pytest.skip("millions of tensors")
    with possible(), contextlib.closing(moving.Move(route, memory, dtype, nbytes, device)) as move:
        for number in range(3):  # staging buffers are refilled
            for place, leaf in enumerate(moving.leaves_of(move.source)):
                leaf.copy_((torch.arange(leaf.numel()) + number + place).view(leaf.shape))
            for buffer in move.written():
                buffer.fill_(-1)
            device.synchronize()
            move.verify()


@pytest.mark.parametrize("route", RECORDED, ids=lambda r: f"{r.expression} {r.direction}")
def test_what_requires_grad_crosses_as_promised(device, route):
    with contextlib.closing(made(device, route.expression, route.direction, route.host_memory[0], 4096)) as move:
        assert grad_outcome(route, move.names, move.run) == route.inputs["requires grad"]


def busy(device):
    """Queue work that occupies the current stream for a while."""
    matrix = torch.randn(4096, 4096, device=device.device)
    for _ in range(20):
        matrix = torch.mm(matrix, matrix).clamp(-1, 1)


def test_a_non_blocking_result_is_garbage_before_a_synchronize(device):
    move = made(device, "h.copy_(t, non_blocking=True)", routes.DEVICE_TO_HOST, routes.PINNED)
    names = move.names
    names["h"].fill_(-12345)
    expected = names["t"].to("cpu")
    device.synchronize()
    busy(device)
    names["h"].copy_(names["t"], non_blocking=True)
    assert not torch.equal(names["h"], expected), "the copy was not late: the hazard did not show"
    device.synchronize()
    assert torch.equal(names["h"], expected)


@pytest.mark.parametrize("memory", [routes.PINNED, routes.PAGEABLE])
def test_changing_a_source_changes_what_arrives_if_it_is_pinned(device, memory):
    """A pageable source has been read when the call returns; a pinned one may not."""
    names = made(device, "d.copy_(t, non_blocking=True)", routes.HOST_TO_DEVICE, memory).names
    sent = names["t"].clone()
    device.synchronize()
    if memory == routes.PINNED:
        busy(device)
    names["d"].copy_(names["t"], non_blocking=True)
    names["t"].fill_(-12345)
    device.synchronize()
    assert torch.equal(names["d"].to("cpu"), sent) == (memory == routes.PAGEABLE)


def test_the_double_buffer_waits_for_its_own_copy_and_is_overwritten_by_the_second_one_after_it(device):
    names = made(device, "buffers.start(t); buffers.read()", routes.DEVICE_TO_HOST, routes.PINNED, 4096).names
    names["buffers"].start(names["t"])
    busy(device)
    array = names["buffers"].read()
    assert device.is_idle() is not True
    assert torch.equal(torch.from_numpy(array), names["t"].to("cpu"))
    for number in range(1, 3):
        names["buffers"].start(torch.full_like(names["t"], number))
    device.synchronize()
    assert (array == 2).all()


@pytest.mark.parametrize("expression, waits", [("d.copy_(t)", True), ("d.copy_(t, non_blocking=True)", False)])
def test_a_blocking_copy_waits_for_what_is_queued_before_it(device, expression, waits):
    move = made(device, expression, routes.HOST_TO_DEVICE, routes.PINNED, 4096)
    device.synchronize()
    busy(device)
    move.call()
    assert device.is_idle() in (waits, None)


def test_numpy_of_a_device_tensor_raises(device):
    with pytest.raises(TypeError, match="memory|numpy"):
        torch.ones(3, device=device.device).numpy()


def test_mixing_devices_raises(device):
    with pytest.raises(RuntimeError, match="device"):
        torch.ones(3, device=device.device) + torch.ones(3)


@pytest.mark.parametrize("form", overlap.TrainingStep.params[0])
def test_every_form_of_a_training_step_learns_the_same(form):
    losses = []
    for name in ("naive", form):
        torch.manual_seed(0)
        step = overlap.TrainingStep()
        with possible():
            step.setup(name, 2**20)
        losses.append(step.names["epoch"]())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("direction", link.Limit.params[0])
def test_the_clock_of_the_link_agrees_with_the_host(direction):
    made = link.Limit()
    with possible():
        made.setup(direction, 64 * 2**20)
    try:
        taken = made.timed_by.timeit(1)
        assert made.timed_by.parts["host"][-1] == pytest.approx(taken, rel=0.05)
    finally:
        made.teardown()


ODD = settings_pinned.SIZES[2]
EXACT = "pinned_max_cached_size_mb:1"


@pytest.mark.parametrize("setting", environment.PINNING)
def test_an_option_of_the_pinned_allocator_is_in_force_and_decides_the_size_of_a_block(device, setting):
    """70.4 MiB take 128 MiB, but where an option stops the rounding. The cell fails if torch has another option."""
    family = settings_pinned.BlockSize()
    with possible():
        family.setup(settings_pinned.PIN, setting, ODD)
        block = family.track_block(settings_pinned.PIN, setting, ODD)
    family.teardown(settings_pinned.PIN, setting, ODD)
    assert block == (ODD if setting.endswith(EXACT) else 128 * 2**20)


def test_an_option_that_is_not_in_force_is_a_failure(device, monkeypatch):
    setting, family = environment.PINNING[1], settings_pinned.FirstBlock()
    with possible():
        environment.require(setting)
    started_with = environment.started_with
    monkeypatch.setattr(environment, "started_with", lambda text: started_with(environment.NONE))
    family.setup(settings_pinned.PIN, setting, 2**20)
    with pytest.raises(RuntimeError, match="torch's allocators have no options"):
        family.timed_by.timeit(1)
    family.teardown(settings_pinned.PIN, setting, 2**20)
