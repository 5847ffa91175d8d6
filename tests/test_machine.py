"""Conditions of a machine that affect a run: advice of --check, a device kept awake, cores near it, how it ran."""

import importlib.util
import itertools
import math
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from cli import UserError
from measuring import engine, machine, profiles
from measuring.machine import Awake
from measuring.processes import Done, session_members
from measuring.profiles import PROFILES, Cells, Profile, Rule
from measuring.session import complete_record, device_changes
from msgspec.structs import replace
from resultfiles import SUITE, process
from store.files import put
from store.schema import Conditions, RunRecord, Toolchain

HOLDS = f"import sys; print({machine.AWAKE!r}, flush=True); sys.stdin.read()"
MADE_NONE = "the process that was to hold a context made none"


@pytest.mark.parametrize(
    "code, second, why",
    [
        (HOLDS, "", ""),
        (HOLDS, "cuda:0 cannot be used: busy", "cuda:0 cannot be used: busy"),  # exclusive to one process
        ("raise SystemExit(1)", "", MADE_NONE),
        ("print('other')", "", MADE_NONE),
        pytest.param("import time; time.sleep(60)", "", MADE_NONE, marks=pytest.mark.slow),
    ],
)
def test_a_context_is_held_during_the_block_or_the_reason_is_returned(monkeypatch, code, second, why):
    """``code`` should hold the device. ``second`` is the reason why another process cannot use the device meanwhile."""
    monkeypatch.setattr(machine, "HOLD", code)
    monkeypatch.setattr(machine, "settings", lambda: SimpleNamespace(no_device=second))
    monkeypatch.setattr(machine, "DEVICE_SECONDS", 2 if "sleep" in code else 60)

    def holding():
        return [child.pid for child in psutil.Process().children() if code in child.cmdline()]

    with Awake() as device:
        assert device.hold() == why
        alone = [session_members(process) == [process] for process in holding()]
        assert alone == ([] if why else [True]), "a session of its own, which ends with us"
    assert not holding()


def test_benchmarks_of_waking_run_before_the_device_is_kept_awake(monkeypatch):
    """The device sleeps while its waking is timed and is kept awake otherwise. A run without a device wakes none."""
    order, first, other = [], "firsts.Context.timeit_first_tensor", "firsts.PinnedMemory.timeit_register(1)"

    def hold(device):
        order.append("awake")
        device.callback(order.append, "asleep")
        return ""

    monkeypatch.setattr(Awake, "hold", hold)
    begun, known = RunRecord(Toolchain(""), {}, cores=(0, 1)), Cells([], [], {}, on_device=True, waking=[first])
    runs = [(Cells([], [], {}), [other]), *((known, cells) for cells in ([other], [other], [other, first]))]
    with Awake() as device:
        records = [device.measure(begun, *run, lambda cells, cores: order.append((*cells, cores))) for run in runs]
    one = other, (0, 1)
    assert order == [one, "awake", one, one, "asleep", (first, (0, 1)), "awake", one, "asleep"]
    assert records == [begun, *[replace(begun, awake=True, not_awake="")] * 3]


def test_cells_know_whether_they_use_a_device_and_which_time_its_waking(monkeypatch):
    def chosen(*patterns, no_device=""):
        monkeypatch.setitem(PROFILES, "toy", Profile(1, 1.0, tuple(map(Rule, patterns))))
        found = profiles.select_cells("toy", SUITE, "", no_device)
        return found.on_device, list(found.waking)

    first = "firsts.Context.timeit_first_tensor"
    assert chosen(r"limits\..*", r"firsts\..*") == (True, [first])
    assert chosen(r"limits\..*", r"link\.Floor\..*") == (True, [])
    assert chosen(r"limits\..*") == chosen(r"limits\..*", r"firsts\..*", no_device="none") == (False, [])


@pytest.fixture
def apart(monkeypatch, tmp_path):
    """Replace programs in sessions of their own by failures. In ``tmp_path`` asv has measured nothing."""
    made = Mock(return_value=Done(2, "", ""))
    for module in (engine, machine):
        monkeypatch.setattr(module, "run_in_session", made)
    monkeypatch.setattr(engine, "run_in_sessions", lambda programs, **_: [made(*program) for program in programs])
    (tmp_path / engine.LOG).touch()
    return made


@pytest.mark.parametrize("cores, said", [((), []), ((0, 2, 3), ["--cpu-affinity", "0,2,3"])])
def test_processes_run_on_the_cores_near_the_device(apart, cores, said, tmp_path):
    engine.Suite().measure(["^a$"], "box", tmp_path, lambda: None, cores=cores)
    assert [word for word in apart.call_args.args[0] if re.match(r"--cpu-affinity|\d+,", word)] == said


@pytest.mark.parametrize("python, path", [(sys.executable, "x"), ("/another/python", None)])
def test_packages_of_this_python_are_not_those_of_another(python, path, monkeypatch, tmp_path, apart):
    """PYTHONPATH is not passed to another Python. Else both sides of compare.py --run would measure the same torch.
    All programs that import torch run in sessions of their own, which end with this process."""
    monkeypatch.setenv("PYTHONPATH", "x")
    suite = engine.Suite(tmp_path, Path(python))
    for ask in (suite.installed, lambda: suite.discover("box"), lambda: machine.settings(Path(python))):
        with pytest.raises(UserError):
            ask()
    suite.measure(["a"], "box", tmp_path, lambda: None)
    assert [environment.get("PYTHONPATH") for (_, _, environment, *_), _ in apart.call_args_list] == [path] * 4


def around(cell, *told):
    keys = ("link generation", "clock", "slowed by")
    return process(benchmark=cell, device=[dict(zip(keys, each)) for each in told])


def test_a_record_has_the_range_of_the_devices_readings_and_the_slower_cells():
    lines = [
        around("a", (5, 1980, []), (5, 1950, [])),
        around("b", (5, 1200, ["power"]), (5, 1980, [])),
        around("c", (1, 1980, []), (5, 1980, [])),
        process(benchmark="host"),
    ]
    record, changed = complete_record(RunRecord(Toolchain(""), {}), lines, {}), device_changes(lines)
    assert record.device_probe == {"link generation": (1, 5), "clock": (1200, 1980)}
    assert changed == {"slowed by power": ("b",), "link generation": ("c",), "clock": ("b",)}
    assert not complete_record(record, lines[-1:], {}).device_probe and not device_changes(lines[-1:])


# run.py --check gives advice on bad conditions only ------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="Linux alone forgets what it has read of a file")
def test_libraries_are_read_from_beginning_to_end(tmp_path, monkeypatch):
    libraries, others = ("numpy/core/c.so", "torch/cpu.so.2"), ("torch/lib/libtorch_cuda.so", "torch/notes.txt")
    for name in (*libraries, *others):
        put(tmp_path / name, b"x" * 5 * 2**20)
    forgotten = []
    monkeypatch.setattr(os, "posix_fadvise", lambda file, *which: forgotten.append((os.dup(file), which)))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=tmp_path / name / "init"))
    monkeypatch.setattr(machine, "run_in", lambda python, code: exec(code, {}))
    machine.read_libraries(Path(sys.executable))
    found = {os.readlink(f"/proc/self/fd/{file}"): (which, os.lseek(file, 0, os.SEEK_CUR)) for file, which in forgotten}
    whole = (0, 0, os.POSIX_FADV_DONTNEED), 5 * 2**20  # the whole file is dropped from the cache, then read
    assert found == {str(tmp_path / name): whole for name in libraries}


FINE = Conditions(cores=8, cores_allowed=8, governor="performance", load_average=0.2)


@pytest.mark.parametrize(
    "change, quiet, quota, says",
    [
        ({"governor": "", "load_average": None}, 0.99, math.inf, ""),  # no advice on unknown conditions
        ({"load_average": 5.0}, 0.99, 8, "load average 5.0: end what else runs.*"),
        ({"cores_allowed": 1}, 0.99, 8, "1 of 8 cores: .*allow two"),
        ({}, 0.99, 1.5, "a quota of 1.5: .*--cpus.*"),
        ({"governor": "powersave"}, 0.99, 8, "frequency governor powersave: .*cpupower frequency-set.*"),
        ({}, 0.5, 8, "quiet 50% of the time: .*twice as long.*"),
    ],
)
def test_findings_give_advice_on_bad_conditions_only(change, quiet, quota, says):
    found = machine.findings(replace(FINE, **change), quiet, quota)
    assert re.fullmatch(says, "\n".join(f"{what}: {advice}" for what, advice in found.items() if advice))


@pytest.mark.parametrize(
    "files, quota",
    [
        ({"cpu.max": "800000 100000", "a/b/cpu.max": "400000 100000", "a/cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000", "other/cpu.max": "50000 100000"}, math.inf),
        ({"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, math.inf),
        ({"cpu,cpuacct/c/cpu.cfs_quota_us": "50000", "cpu,cpuacct/c/cpu.cfs_period_us": "100000"}, 0.5),
    ],
)
def test_the_quota_is_the_smallest_of_a_processs_groups(tmp_path, monkeypatch, files, quota):
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "GROUPS_OF_PROCESS", tmp_path / "self")
    assert machine.quota() == math.inf
    for name, text in {"../self": "3:cpu,cpuacct:/c\n1:name=systemd:/\n0::/a/b\n", **files}.items():
        put(tmp_path / "cgroup" / name, text + "\n")
    assert machine.quota() == quota


def test_quiet_is_near_the_fastest_level_that_probes_hold(monkeypatch):
    probes = itertools.cycle([25, 25, 26, 40])
    monkeypatch.setattr(machine, "probe", lambda: next(probes))
    assert machine.quiet_now(0.05) == pytest.approx((0.75, 1.16), abs=0.05)


def test_check_runs_on_this_machine(checkout):
    done = checkout.run("scripts/run.py", "--check")
    assert done.returncode == any(said.startswith("! ") for said in done.stdout.splitlines()), done.stderr
    assert not checkout.results.exists()
