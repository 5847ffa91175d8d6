"""A device that NVML counts but that does not work: CPU cells still run, and device cells are skipped with the reason.

NVML counts a device even if the driver cannot use it. The driver may be too old for the wheel, the device may be
exclusive or full, or MIG may have no instance. Such a machine looks like any other until a context is made.
"""

import re
from types import SimpleNamespace

import pytest
from measuring import machine
from measuring.session import complete_record
from resultfiles import decoded
from statements import benchmark
from store.schema import RunRecord, Toolchain, from_json

from benchmarks.core import devices, driver, timing

OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable"
FULL = "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 79.11 GiB"
FAULT = "CUDA error: an illegal memory access was encountered"

# The parts of torch that the search for a device uses. NVML counts a device; calls that make a context run {context}.
TORCH = """
import os, time
from types import SimpleNamespace

def context(*arguments, **options):
    {context}
    return "An Accelerator"

class device(str):
    type = property(lambda name: name.partition(":")[0])
    index = property(lambda name: int(name.partition(":")[2]))

class OutOfMemoryError(RuntimeError):
    pass

class cuda:
    DeferredCudaCallError = type("DeferredCudaCallError", (Exception,), {{}})
    is_available = lambda: True
    device_count = lambda: 2
    get_device_name = set_device = synchronize = context

__version__ = "2.13.0+cu130"
version = SimpleNamespace(cuda="13.0", hip=None, git_version="")
backends = None
empty = context
get_num_threads = lambda: 1
"""


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """A function that returns a run record's device, its model, and the reason if there is no device.

    context  code that runs when a context is made
    first    code that runs when torch is imported
    """

    def whole(kind, found):
        assert set(found) <= {*kind.__struct_fields__}, "what Settings does not name is lost"
        return from_json(kind, found)

    def asked(context, first=""):
        (tmp_path / "torch.py").write_text(first + TORCH.format(context=context), encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(machine, "from_json", whole)
        found = machine.settings()
        # the toolchain is on record, whether the device works or not
        assert (found.torch, found.cuda, found.torch_threads) == ("2.13.0+cu130", "13.0", 1)
        return found.device, found.device_name, found.no_device

    monkeypatch.delenv(devices.VARIABLE, raising=False)
    return asked


# The run record -----------------------------------------------------------------------------------------------------


def test_a_device_that_works_is_found_whatever_torch_prints_when_it_is_imported(settings):
    first = "import os\nprint('[backend] loaded')\nos.write(1, b'[backend] of C++\\n')\n"
    assert settings("pass", first) == ("cuda:0", "An Accelerator", "")
    with machine.Awake() as device:
        assert device.hold() == ""


ADVICE = "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
RAISED = {"OutOfMemoryError": FULL, "AssertionError": OLD, "cuda.DeferredCudaCallError": OLD, "RuntimeError": BUSY}


@pytest.mark.parametrize(
    "named, context, says",
    [
        *(
            ("", f"raise {error}({words!r} {chr(10) + ADVICE!r})", f"^cuda:0 cannot be used: {re.escape(words)}$")
            for error, words in RAISED.items()
        ),
        ("", "os.abort()", r"^the process that tried the device: died with signal 6\b"),
        ("", "os._exit(3)", "tried the device: ended with code 3$"),
        ("", "os._exit(0)", "tried the device: ended with code 0$"),
        ("", "raise SystemExit('no licence')", "tried the device: no licence$"),
        ("", "1 / 0", "^ZeroDivisionError: division by zero$"),
        ("", "time.sleep(600)", "^the process that tried the device: did not answer in 2 s$"),
        ("cuda:1", "raise RuntimeError('broken')", "^CONVERSION_DEVICE=cuda:1 cannot be used: broken$"),
        ("cuda:1", "os.abort()", "^the process that tried CONVERSION_DEVICE=cuda:1: died with signal 6"),
        ("cuda:7", "pass", "^CONVERSION_DEVICE=cuda:7: torch finds no such accelerator$"),
    ],
)
def test_whatever_a_driver_does_to_its_process_the_run_goes_on(settings, monkeypatch, named, context, says):
    monkeypatch.setenv(devices.VARIABLE, named)
    monkeypatch.setattr(machine, "DEVICE_SECONDS", 2 if "sleep" in context else 60)
    *device, why = settings(context)
    assert device == ["", ""] and len(why.splitlines()) == 1 and re.search(says, why)


# A benchmark's own process -------------------------------------------------------------------------------------------


def test_a_fault_of_a_device_that_worked_is_a_failure():
    device = devices.Device("cuda:0")
    with device.first_use():
        pass
    with pytest.raises(RuntimeError, match="illegal") as raised, device.first_use():
        raise RuntimeError(FAULT)
    assert raised.type is RuntimeError


def test_a_device_that_is_lost_is_tried_by_one_process_of_a_run(log):
    """When one process loses the device, the next ones skip without trying it, and the run record says why."""
    tried = []

    def setup(self):
        tried.append(self)
        with devices.Device("cuda:0").first_use():
            raise RuntimeError(f"{FAULT}\nand pages of advice")

    assert [benchmark(needs_device=True, setup=setup).do_setup() for _ in range(3)] == [True] * 3
    lines = log()
    why = f"{timing.GONE}cuda:0 cannot be used: {FAULT}"
    assert [line["skipped"] for line in lines] == [f"cuda:0 cannot be used: {FAULT}", why, why]
    assert complete_record(RunRecord(Toolchain(""), {}), decoded(lines), {}).device_lost == why
    assert len(tried) == 1


def test_memory_that_is_full_is_no_device_lost(log):
    with pytest.raises(NotImplementedError), devices.Device("cuda:0").first_use():
        raise RuntimeError(FULL)
    assert timing.lost() == ""


def test_a_long_error_is_cut_after_its_first_sentence():
    advice = "Of the allocated memory 78 GiB is allocated by PyTorch. See documentation for Memory Management"
    assert timing.first_sentence(RuntimeError(f"{FULL} of which 3 MiB is free. {advice}")) == "CUDA out of memory"
    assert timing.first_sentence(RuntimeError("Short. Whole.")) == "Short. Whole."


# Limits and places of memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, kind, reason",
    [
        ("CUDA error: out of memory", NotImplementedError, "out of memory to pin: .*ulimit -l: .* WSL2"),
        (FAULT, RuntimeError, "illegal memory access"),
        ("Cannot access accelerator device", NotImplementedError, "cuda has no pinned memory"),
    ],
)
def test_pinning_that_fails_says_why(monkeypatch, text, kind, reason):
    """Where memory runs out, the reason names the limits that lie below the machine's memory. A fault is a failure."""

    def fail():
        raise RuntimeError(text)

    monkeypatch.setattr(devices, "_accelerator_kind", lambda: "cuda")
    with pytest.raises(kind, match=reason):
        devices.Device("cuda:0").pin(fail)


@pytest.mark.parametrize("attribute, unified", [(None, False), (18, True), (100, True), (88, False)])
def test_unified_memory_is_seen_by_the_devices_properties(monkeypatch, attribute, unified):
    """Attribute 88 alone is not enough: a device behind a link may read pageable memory, too, by faults."""

    def ask(pointer, name, place):
        pointer._obj.value = name == attribute
        return 0

    monkeypatch.setattr(devices.torch.version, "hip", None)
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: SimpleNamespace(cuDeviceGetAttribute=ask))
    assert devices.Device("cuda:0").is_unified == unified
    assert devices.Device("mps").is_unified


@pytest.mark.parametrize("text, node", [("1\n", 1), ("-1\n", None)])
def test_nodes_of_device_and_memory_are_recorded(monkeypatch, tmp_path, text, node):
    bus = tmp_path / "0000:1a:00.0"
    bus.mkdir()
    (bus / "numa_node").write_text(text)
    monkeypatch.setattr(driver, "PCI_DEVICES", tmp_path)
    pci = SimpleNamespace(busId=b"00000000:1A:00.0")
    assert driver.node_of(SimpleNamespace(nvmlDeviceGetPciInfo=lambda handle: pci), None) == node
    monkeypatch.setattr(driver, "PROCESS_STATUS", tmp_path / "status")
    assert driver.memory_nodes() == ""
    (tmp_path / "status").write_text("Name:\tpython\nMems_allowed:\t3\nMems_allowed_list:\t0-1\n")
    assert driver.memory_nodes() == "0-1"
