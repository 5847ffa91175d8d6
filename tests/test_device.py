"""What only an accelerator can show: every transfer route, and each hazard happening. Not run where there is none."""

import contextlib

import pytest
import torch
from conftest import possible
from moves import RECORDED, grad_outcome

from benchmarks import devices, link, moving, overlap, routes

try:
    DEVICE = devices.find()
except NotImplementedError as reason:
    DEVICE = None
    WHY = str(reason)
else:
    WHY = ""

pytestmark = [pytest.mark.device, pytest.mark.skipif(DEVICE is None, reason=WHY)]
LARGE = 256 * 2**20  # bytes: 5 ms on the fastest link there is, so that the host is sure to be earlier


def renew(move, number):
    """Other numbers in the source, and rubbish wherever it may arrive: a route that moves nothing is seen by this."""
    for place, leaf in enumerate(moving.leaves_of(move.source)):
        leaf.copy_((torch.arange(leaf.numel()) + number + place).view(leaf.shape))
    for buffer in move.written():
        buffer.fill_(-1)
    move.device.synchronize()


@pytest.fixture(scope="module", autouse=True)
def context():
    """None of this where one cannot be made."""
    with possible():
        DEVICE.use()


def transfers():
    for route in routes.ROUTES:
        for memory in route.host_memory:
            yield pytest.param(route, memory, id=f"{route.direction} {memory} {route.expression}")


def made(expression, direction, memory, nbytes=LARGE, dtype="float32"):
    with possible():
        return moving.Move(routes.find(expression, direction), memory, dtype, nbytes, DEVICE)


@pytest.mark.parametrize("route, memory", list(transfers()))
@pytest.mark.parametrize("nbytes", [4, 4096, 9 * 2**20])  # 9 MiB: three chunks, the last one short
def test_the_bytes_arrive(route, memory, nbytes):
    dtype = "float64" if routes.TRANSFER_CASTING in route.families else "float32"
    if "numbers" in route.expression and nbytes > 4096:
        pytest.skip("millions of tensors")
    with possible(), contextlib.closing(moving.Move(route, memory, dtype, nbytes, DEVICE)) as move:
        for number in range(3):  # staging buffers are refilled
            renew(move, number)
            move.verify()


@pytest.mark.parametrize("route", RECORDED, ids=lambda r: f"{r.expression} {r.direction}")
def test_what_requires_grad_crosses_as_promised(route):
    with contextlib.closing(made(route.expression, route.direction, route.host_memory[0], 4096)) as move:
        assert grad_outcome(route, move.names, move.run) == route.inputs["requires grad"]


def busy():
    """Work that holds the current stream for a while."""
    matrix = torch.randn(4096, 4096, device=DEVICE.device)
    for _ in range(20):
        matrix = torch.mm(matrix, matrix).clamp(-1, 1)


def test_a_non_blocking_result_is_garbage_before_a_synchronize():
    move = made("h.copy_(t, non_blocking=True)", routes.DEVICE_TO_HOST, routes.PINNED)
    names = move.names
    names["h"].fill_(-12345)
    expected = names["t"].to("cpu")
    DEVICE.synchronize()
    busy()
    names["h"].copy_(names["t"], non_blocking=True)
    assert not torch.equal(names["h"], expected), "the copy was not late: the hazard did not show"
    DEVICE.synchronize()
    assert torch.equal(names["h"], expected)


@pytest.mark.parametrize("memory", [routes.PINNED, routes.PAGEABLE])
def test_changing_a_source_changes_what_arrives_if_it_is_pinned(memory):
    """A pageable one has been read when the call returns."""
    names = made("d.copy_(t, non_blocking=True)", routes.HOST_TO_DEVICE, memory).names
    sent = names["t"].clone()
    DEVICE.synchronize()
    if memory == routes.PINNED:
        busy()
    names["d"].copy_(names["t"], non_blocking=True)
    names["t"].fill_(-12345)
    DEVICE.synchronize()
    assert torch.equal(names["d"].to("cpu"), sent) == (memory == routes.PAGEABLE)


def test_an_array_of_the_double_buffer_is_overwritten_by_the_second_copy_after_it():
    names = made("buffers.start(t); buffers.read()", routes.DEVICE_TO_HOST, routes.PINNED, 4096).names
    buffers = names["buffers"]
    for number in range(3):
        buffers.start(torch.full_like(names["t"], number))
        if not number:
            first = buffers.read()
            assert (first == 0).all()
    DEVICE.synchronize()
    assert (first == 2).all()


def test_the_double_buffer_does_not_wait_for_what_is_queued_behind_its_copy():
    names = made("buffers.start(t); buffers.read()", routes.DEVICE_TO_HOST, routes.PINNED, 4096).names
    names["buffers"].start(names["t"])
    busy()
    array = names["buffers"].read()
    assert DEVICE.is_idle() is not True
    assert torch.equal(torch.from_numpy(array), names["t"].to("cpu"))


@pytest.mark.parametrize("expression, waits", [("d.copy_(t)", True), ("d.copy_(t, non_blocking=True)", False)])
def test_a_blocking_copy_waits_for_what_is_queued_before_it(expression, waits):
    move = made(expression, routes.HOST_TO_DEVICE, routes.PINNED, 4096)
    DEVICE.synchronize()
    busy()
    move.call()
    assert DEVICE.is_idle() in (waits, None)


def test_numpy_of_a_device_tensor_raises():
    with pytest.raises(TypeError, match="memory|numpy"):
        torch.ones(3, device=DEVICE.device).numpy()


def test_mixing_devices_raises():
    with pytest.raises(RuntimeError, match="device"):
        torch.ones(3, device=DEVICE.device) + torch.ones(3)


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
