"""A device that is counted and does not work: the CPU half goes on, and what needs the device says why it does not run.

NVML counts a device whatever the driver can do with it, so a machine with a driver too old for the wheel, with an
exclusive or a full device, or with MIG and no instance of it looks like any other until a context is made.
"""

import json
import os
import re
import sys
import warnings
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from asv_runner.benchmarks.mark import SkipNotImplemented
from cli import UserError
from measuring import machine
from moves import SETUPS
from store.records import made_of

from benchmarks import devices, firsts, link, routes, statement, transfer

TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable"
FULL = "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 79.11 GiB"
NO_INSTANCE = "No CUDA GPUs are available"
BROKEN = {"driver too old": TOO_OLD, "exclusive": BUSY, "full": FULL, "MIG without instances": NO_INSTANCE}

FAULT = "CUDA error: an illegal memory access was encountered"
FORKED = "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use 'spawn'"

# torch as far as the question for a device asks it. NVML counts a device; whatever makes a context runs {context}.
TORCH = """
import os, time
from types import SimpleNamespace

__version__ = "2.13.0+cu130"
version = SimpleNamespace(cuda="13.0", hip=None, git_version="")


class OutOfMemoryError(RuntimeError):
    pass


class device:
    def __init__(self, name):
        self.type, _, index = name.partition(":")
        self.index = int(index) if index else None

    def __str__(self):
        return self.type if self.index is None else f"{{self.type}}:{{self.index}}"


def context(*arguments, **options):
    {context}
    return "An Accelerator"


def get_num_threads():
    return 1


empty = context
backends = SimpleNamespace()
cuda = SimpleNamespace(
    is_available=lambda: True,
    device_count=lambda: 2,
    get_device_name=context,
    set_device=context,
    synchronize=context,
    DeferredCudaCallError=type("DeferredCudaCallError", (Exception,), {{}}),
)
"""


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """The settings of a run record on a machine where ``context`` happens when a context is made."""

    def whole(kind, found):
        assert set(found) <= {each.name for each in fields(kind)}, "what Settings does not name is lost"
        return made_of(kind, found)

    def asked(context, **arguments):
        (tmp_path / "torch.py").write_text(TORCH.format(context=context), encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(machine, "made_of", whole)
        found = machine.settings(**arguments)
        # whatever becomes of the device, the toolchain is on record
        assert (found.torch, found.cuda, found.torch_threads) == ("2.13.0+cu130", "13.0", 1)
        return found.device, found.device_name, found.no_device

    monkeypatch.delenv(devices.VARIABLE, raising=False)
    return asked


# The run record -----------------------------------------------------------------------------------------------------


def test_a_device_that_works_is_found(settings):
    assert settings("pass") == ("cuda:0", "An Accelerator", "")


@pytest.mark.parametrize(
    "raised, words",
    [
        *(("RuntimeError", words) for words in BROKEN.values()),
        ("OutOfMemoryError", FULL),
        ("AssertionError", TOO_OLD),
        ("cuda.DeferredCudaCallError", TOO_OLD),
    ],
)
def test_a_device_without_a_context_is_none_for_the_drivers_reason(settings, raised, words):
    advice = "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
    device, model, why = settings(f"raise {raised}({words + chr(10) + advice!r})")
    assert (device, model, why) == ("", "", f"cuda:0 cannot be used: {words}")


def test_a_device_that_nothing_can_be_allocated_on_is_none(settings):
    """A context can be had where no memory can."""
    device, _, why = settings(f"if arguments == (1,): raise OutOfMemoryError({FULL!r})")
    assert (device, why) == ("", f"cuda:0 cannot be used: {FULL}")


def test_a_device_that_was_named_and_cannot_be_used_is_named(settings, monkeypatch):
    monkeypatch.setenv(devices.VARIABLE, "cuda:1")
    assert settings(f"raise RuntimeError({BUSY!r})")[2] == f"CONVERSION_DEVICE=cuda:1 cannot be used: {BUSY}"
    assert settings("os.abort()")[2].startswith("the process that tried CONVERSION_DEVICE=cuda:1: died with signal 6")
    monkeypatch.setenv(devices.VARIABLE, "cuda:7")
    assert settings("pass")[2] == "CONVERSION_DEVICE=cuda:7: torch finds no such accelerator"


@pytest.mark.parametrize(
    "context, says",
    [
        ("os.abort()", r"^the process that tried the device: died with signal 6\b"),
        ("os.kill(os.getpid(), 11)", r"died with signal 11\b"),
        ("os._exit(3)", "tried the device: ended with code 3$"),
        ("os._exit(0)", "tried the device: ended with code 0$"),
        ("raise SystemExit('no licence')", "tried the device: no licence$"),
        ("1 / 0", "^ZeroDivisionError: division by zero$"),
    ],
)
def test_whatever_a_driver_does_to_its_process_the_run_goes_on(settings, context, says):
    device, model, why = settings(context)
    assert (device, model) == ("", "")
    assert len(why.splitlines()) == 1
    assert re.search(says, why)


def test_a_driver_that_hangs_is_not_waited_for(settings):
    device, _, why = settings("time.sleep(600)", seconds=2)
    assert device == ""
    assert why == "the process that tried the device: did not answer in 2 s"


def test_a_torch_that_kills_its_process_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("import os; os.abort()", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UserError, match="torch cannot be imported: .*signal 6"):
        machine.settings()


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


MORE_SETUPS = [
    *SETUPS,
    (transfer.DeviceToHost, ("t.cpu()", routes.PAGEABLE, "float32", 4)),
    (transfer.Casting, ("t.to(device, torch.float32)", routes.PAGEABLE, 2**20)),
]


@pytest.mark.parametrize("benchmark, cell", MORE_SETUPS, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("words", BROKEN.values(), ids=BROKEN)
def test_a_setup_skips_with_the_drivers_reason(broken, monkeypatch, benchmark, cell, words):
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=OSError, nvmlInit=lambda: None))
    broken(words)
    with pytest.raises(NotImplementedError) as skipped:
        benchmark().setup(*cell)
    assert str(skipped.value) == f"cuda:0 cannot be used: {words}"


@pytest.mark.parametrize("words", BROKEN.values(), ids=BROKEN)
def test_what_is_asked_of_the_hardware_skips_with_the_drivers_reason(broken, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=OSError, nvmlInit=lambda: None))
    broken(words)
    made = link.Hardware()
    with pytest.raises(NotImplementedError) as skipped:
        made.setup(made.setup_cache(), "link width")
    assert str(skipped.value) == f"cuda:0 cannot be used: {words}"


def first_tensor():
    """Set up and take the samples, as asv does."""
    made = firsts.Context()
    timed = statement.StatementBenchmark(
        "firsts.Context.timeit_first_tensor", made.timeit_first_tensor, [made.timeit_first_tensor, made]
    )
    timed._current_params = ()
    return timed.run()["samples"] if not timed.do_setup() else None


@pytest.mark.parametrize("words", BROKEN.values(), ids=BROKEN)
def test_timing_the_first_tensor_skips_with_the_drivers_reason(broken, capsys, words):
    """Nothing may make the context before it is timed, so nothing can tell before."""
    broken(words)
    with pytest.raises(SkipNotImplemented):  # what asv takes for a skip at this point
        first_tensor()
    assert f"asv: skipped: cuda:0 cannot be used: {words}" in capsys.readouterr().out


@pytest.mark.slow
def test_the_first_tensor_is_made_by_five_processes_before_which_nobody_asks_the_driver(monkeypatch, tmp_path):
    """Every call that reaches the driver says in which process, and whether it was the first there."""
    told = tmp_path / "told"

    def driver(what):
        def call(*arguments, **options):
            with told.open("a") as file:
                print(os.getpid(), what, file=file)
            return True

        return call

    empty = torch.empty
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", driver("found"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "synchronize", driver("waited"))
    monkeypatch.setattr(
        torch, "empty", lambda *size, **options: (driver("first") if "device" in options else empty)(*size)
    )
    samples = first_tensor()
    calls = [line.split() for line in told.read_text().splitlines()]
    processes = {}
    for process, what in calls:
        processes.setdefault(process, []).append(what)
    assert len(samples) == firsts.CONTEXTS and str(os.getpid()) not in processes
    found, *timed = processes.values()
    assert set(found) == {"found"} and len(timed) > firsts.CONTEXTS, "and those of the warm-up"
    assert all(each == ["first", "waited"] for each in timed)


def test_a_driver_that_kills_the_process_of_the_first_tensor_fails_it_in_words(broken, monkeypatch):
    broken(TOO_OLD)
    monkeypatch.setattr(torch, "empty", lambda *size, **options: os._exit(3))
    with pytest.raises(RuntimeError, match="the process that uses the device first ended with 3"):
        first_tensor()


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
    monkeypatch.setattr(devices, "_accelerator_kind", lambda: "")  # a backend may have loaded itself
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


def test_a_run_says_so_in_one_line_and_measures_the_rest(counted):
    only = ("--profile", "transfers", "--only", r"limits\.Floor|link\.Floor", "--rounds", "1")
    done = counted.run("scripts/run.py", *only, "--no-report", "--machine", counted.machine, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("skipped: "))
    assert line == f"skipped: 1 benchmarks (link): {REASON}"
    assert all(value > 0 for value, _ in counted.cells("limits.Floor.timeit_floor").values())
    record = json.loads(counted.result_file().with_suffix(".jsonl").read_text(encoding="utf-8"))
    assert (record["settings"]["device"], record["settings"]["no_device"]) == ("", REASON)
    assert record["skipped"] == {REASON: ["link.Floor.timeit_synchronize"]}


def test_plain_asv_skips_what_needs_the_device(counted):
    cells = (r"firsts\.Context", r"link\.Floor", r"transfer\.Scalar", r"limits\.Floor")
    done = counted.bench(*cells, timeout=300)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert "failed" not in printed and "Traceback" not in printed
    for name in ("firsts.Context.timeit_first_tensor", "link.Floor.timeit_synchronize"):
        assert re.search(rf"{re.escape(name)} +n/a\n.*asv: skipped: {re.escape(REASON)}\n", printed), printed
    assert all(samples for _, samples in counted.cells("limits.Floor.timeit_floor").values())
