"""A device that is counted and does not work: the CPU half goes on, and what needs the device says why it does not run.

NVML counts a device whatever the driver can do with it, so a machine with a driver too old for the wheel, with an
exclusive or a full device, or with MIG and no instance of it looks like any other until a context is made.
"""

import re
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from asv_runner.benchmarks.mark import SkipNotImplemented

from benchmarks import devices, firsts, link, overlap, routes, statement, transfer

TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable"
FULL = "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 79.11 GiB"
NO_INSTANCE = "No CUDA GPUs are available"
BROKEN = {"driver too old": TOO_OLD, "exclusive": BUSY, "full": FULL, "MIG without instances": NO_INSTANCE}

FAULT = "CUDA error: an illegal memory access was encountered"
FORKED = "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use 'spawn'"


# A benchmark's own process -------------------------------------------------------------------------------------------


def raises(error):
    def call(*arguments, **options):
        raise error

    return call


@pytest.fixture
def broken(monkeypatch):
    """Have torch count a device on which making a context and allocating fail with these words."""

    def break_it(words):
        fails = raises(RuntimeError(f"{words}\nand pages of advice"))
        monkeypatch.delenv(devices.VARIABLE, raising=False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        for name in ("set_device", "synchronize", "get_device_name", "get_device_properties", "current_stream"):
            monkeypatch.setattr(torch.cuda, name, fails)
        empty = torch.empty
        monkeypatch.setattr(torch, "empty", lambda *size, **options: (fails if "device" in options else empty)(*size))

    return break_it


SETUPS = [
    (transfer.HostToDevice, ("t.to(device)", routes.PAGEABLE, "float32", 4)),
    (transfer.DeviceToHost, ("t.cpu()", routes.PAGEABLE, "float32", 4)),
    (transfer.Casting, ("t.to(device, torch.float32)", routes.PAGEABLE, 2**20)),
    (overlap.Hidden, (routes.HOST_TO_DEVICE, routes.PAGEABLE, "both", 4)),
    (overlap.TrainingStep, ("naive", 4096)),
    (overlap.DataLoader, (routes.PAGEABLE,)),
    (firsts.PinnedMemory, (2**20,)),
    (link.Limit, (link.BOTH, 4)),
    (link.Floor, ()),
    (link.Hardware, ("link width",)),
]


@pytest.mark.parametrize("benchmark, cell", SETUPS, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("words", BROKEN.values(), ids=BROKEN)
def test_a_setup_skips_with_the_drivers_reason(broken, monkeypatch, benchmark, cell, words):
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=OSError, nvmlInit=lambda: None))
    broken(words)
    with pytest.raises(NotImplementedError) as skipped:
        benchmark().setup(*cell)
    assert str(skipped.value) == f"cuda:0 cannot be used: {words}"


@pytest.mark.parametrize("words", BROKEN.values(), ids=BROKEN)
def test_timing_the_first_tensor_skips_with_the_drivers_reason(broken, capsys, words):
    """Nothing may make the context before it is timed, so nothing can tell before."""
    broken(words)
    made = firsts.Context()
    timed = statement.StatementBenchmark(
        "firsts.Context.timeit_first_tensor", made.timeit_first_tensor, [made.timeit_first_tensor, made]
    )
    timed._current_params = ()
    assert not timed.do_setup()
    with pytest.raises(SkipNotImplemented):  # what asv takes for a skip at this point
        timed.run()
    assert f"asv: skipped: cuda:0 cannot be used: {words}" in capsys.readouterr().out


def test_finding_a_device_makes_no_context(broken):
    """asv's fork server may not have one: a fork after it cannot use the device."""
    broken(TOO_OLD)
    assert str(devices.find()) == "cuda:0"


def working(monkeypatch):
    device = devices.Device("cuda:0")
    device.module = SimpleNamespace(set_device=lambda device: None, synchronize=lambda device: None)
    monkeypatch.setattr(torch, "empty", lambda *size, **options: None)
    return device


def test_a_fault_of_a_device_that_worked_is_a_failure(monkeypatch):
    device = working(monkeypatch).use()
    device.module.set_device = raises(RuntimeError(FAULT))
    with pytest.raises(RuntimeError, match="illegal memory access") as raised:
        device.use()
    assert raised.type is RuntimeError


def test_a_context_in_the_process_that_forked_this_one_is_a_failure(monkeypatch):
    """It would be the suite's fault, and every cell of it would be skipped."""
    device = working(monkeypatch)
    device.module.set_device = raises(RuntimeError(FORKED))
    with pytest.raises(RuntimeError) as raised:
        device.use()
    assert raised.type is RuntimeError


def test_a_mistake_of_the_suite_is_a_failure(monkeypatch):
    device = working(monkeypatch)
    device.module.set_device = raises(TypeError("set_device() takes 0 positional arguments"))
    with pytest.raises(TypeError):
        device.use()


@pytest.mark.parametrize("name", [None, "cuda:0"])
def test_what_torch_warns_of_when_it_finds_none_is_told(monkeypatch, name):
    """Where NVML cannot count, or torch is older than its use of NVML, the driver's words are a warning."""

    def warns():
        warnings.warn(f"CUDA initialization: {TOO_OLD}\nand advice (Triggered internally)", UserWarning, stacklevel=1)
        return False

    for module in (torch.cuda, getattr(torch, "xpu", None), getattr(torch, "mps", None), torch.backends.mps):
        if hasattr(module, "is_available"):
            monkeypatch.setattr(module, "is_available", warns if module is torch.cuda else lambda: False)
    monkeypatch.setenv(devices.VARIABLE, name) if name else monkeypatch.delenv(devices.VARIABLE, raising=False)
    with pytest.raises(NotImplementedError) as skipped:
        devices.find()
    assert str(skipped.value).endswith(f": CUDA initialization: {TOO_OLD}")


# As users run it -----------------------------------------------------------------------------------------------------

COUNTED = f"""
import torch


def _fails(*arguments):
    raise RuntimeError("{TOO_OLD}\\nand advice")


torch.cuda.is_available, torch.cuda.device_count = (lambda: True), (lambda: 1)
torch.cuda.set_device = torch.cuda._lazy_init = _fails
"""
REASON = f"cuda:0 cannot be used: {TOO_OLD}"


@pytest.fixture
def counted(checkout):
    """A checkout on a machine where a device is counted and none can be used."""
    with (checkout.root / "benchmarks" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(COUNTED)
    return checkout


def test_plain_asv_skips_what_needs_the_device(counted):
    cells = (r"firsts\.Context", r"link\.Floor", r"transfer\.Scalar", r"limits\.Floor")
    done = counted.bench(*cells, timeout=300)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert "failed" not in printed and "Traceback" not in printed
    for name in ("firsts.Context.timeit_first_tensor", "link.Floor.timeit_synchronize"):
        assert re.search(rf"{re.escape(name)} +n/a\n.*asv: skipped: {re.escape(REASON)}\n", printed), printed
    assert all(samples for _, samples in counted.cells("limits.Floor.timeit_floor").values())
