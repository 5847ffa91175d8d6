"""The code that measures on an accelerator, run on a device that is the CPU in disguise.

Nothing here says what a transfer costs or that it is asynchronous: that takes a device (test_device.py). It shows that
every benchmark sets up, that its statement runs and that its bytes are right, so that the first person who has an
accelerator is not the first to run this code.
"""

import contextlib
import time
from types import SimpleNamespace

import pytest
import torch

from benchmarks import devices, firsts, link, moving, overlap, routes, transfer


class Stream:
    def __init__(self, device=None):
        pass

    def wait_stream(self, other):
        pass


class Event:
    def __init__(self, enable_timing=False):
        pass

    def record(self, stream=None):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


class Pretended(devices.Device):
    """The CPU, with what a CUDA device has."""

    def __init__(self):
        super().__init__("cpu")
        self.undone = 0
        self.module = SimpleNamespace(
            Stream=Stream,
            Event=Event,
            stream=lambda stream: contextlib.nullcontext(),
            current_stream=Stream,
            synchronize=lambda: None,
        )

    def pinned(self, tensor):
        return tensor.clone()

    def registered(self, tensor):
        def undo():
            self.undone += 1

        return undo


@pytest.fixture
def device(monkeypatch):
    pretended = Pretended()
    monkeypatch.setattr(devices, "find", lambda: pretended)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())
    return pretended


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
    for name, values in zip(benchmark.param_names, benchmark.params):
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
            assert calls == ([transfer.IN_FLIGHT] if method == "timeit_sustained" else [])
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


def test_chunks_arrive_in_order(device):
    count = 3 * moving.CHUNK // 4 + 5
    sent, arrived = torch.arange(count, dtype=torch.float32), torch.empty(count)
    assert moving.copy_in_chunks(arrived, sent, moving.Stages(device, torch.float32)) is arrived
    assert torch.equal(arrived, sent)


def test_overlap(device, monkeypatch):
    monkeypatch.setattr(overlap, "MATRIX", 32)
    for cell in cells(overlap.Hidden(), 4096):
        run(overlap.Hidden(), "timeit_completion", cell)


@pytest.mark.parametrize("form", overlap.TrainingStep.params[0])
def test_training_steps_see_every_batch_once_and_in_order(device, form):
    step, seen = overlap.TrainingStep(), []
    original = overlap._Step.__call__

    def watched(self, batch):
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
    assert device.undone == 1


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
    import sys

    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotImplementedError, match="nvidia-ml-py"):
        link.Hardware().setup("link width")


def test_hardware_is_read_under_load(monkeypatch, device):
    import sys

    asked = []
    fake = SimpleNamespace(
        NVMLError=RuntimeError,
        NVML_CLOCK_GRAPHICS=0,
        NVML_CLOCK_MEM=1,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=asked.append,
        nvmlDeviceGetCurrPcieLinkGeneration=lambda handle: 5,
        nvmlDeviceGetCurrPcieLinkWidth=lambda handle: 16,
        nvmlDeviceGetClockInfo=lambda handle, which: 1000 + which,
        nvmlDeviceGetNumaNodeId=lambda handle: 0,
        nvmlDeviceGetCpuAffinity=lambda handle, words: [1] + [0] * (words - 1),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(Pretended, "is_cuda", True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))
    monkeypatch.setattr(link, "LOAD_SECONDS", 0.01)
    values = {}
    for quantity in link.Hardware.params[0]:
        hardware = link.Hardware()
        hardware.setup(quantity)
        values[quantity] = hardware.track_value(quantity)
    assert asked[0] == "GPU-abc"
    assert values["link generation"] == 5 and values["link width"] == 16 and values["memory clock"] == 1001
    assert values["near cores"] in (0, 1)
