"""check.py noise: its noise is what it says and ends with it, its slowdown is exact, its exit code follows."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import check
import cli
import psutil
import pytest
from analysis.verdicts import SLOWER
from checking import noise as checking
from conftest import ROOT, environment
from measuring.engine import copy_code

# Noise --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes cannot be pinned here")
def test_one_noisy_process_on_every_core_while_the_block_runs():
    with checking.noise() as pids:
        time.sleep(0.5)
        noisy = [psutil.Process(pid) for pid in pids]
        assert sorted(each.cpu_affinity() for each in noisy) == sorted([core] for core in os.sched_getaffinity(0))
        before, start = [each.cpu_times().user for each in noisy], time.monotonic()
        time.sleep(1.5)
        elapsed = time.monotonic() - start
        for each, used in zip(noisy, before):
            # half of the time where the core is free, less where others want it, too
            assert 0.02 < (each.cpu_times().user - used) / elapsed < 0.8
    assert not any(map(psutil.pid_exists, pids))


def test_noise_that_stopped_is_no_noise_and_the_rest_of_it_ends():
    with pytest.raises(cli.UserError), checking.noise() as pids:
        os.kill(pids[0], signal.SIGKILL)
        os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOWAIT)
    assert not any(map(psutil.pid_exists, pids))


# A slowdown by construction -------------------------------------------------------------------------------------------

LOOK = """
import json, sys
from asv_runner.discovery import get_benchmark_from_name
found = {}
for route in sys.argv[2:]:
    name = "conversion.NumpyToTorch.timeit_convert"
    benchmark = get_benchmark_from_name(sys.argv[1], name)
    benchmark._current_params = cell = (route, "float32", 8)
    assert not benchmark.do_setup()
    statement, names, *calls = benchmark.func(*cell)
    exec(statement, names)
    found[route] = [statement, *calls]
print(json.dumps({"name": benchmark.name, "version": benchmark.version, "found": found}))
"""


def looked_at(directory, change, look, *arguments):
    """What a program finds in the benchmarks of two sides, the second of which is changed as a check has it."""
    pytest.importorskip("torch")
    for side in ("base", "new-fresh"):
        copy_code(ROOT, directory / side)
        checking.plant(directory / side, *change)
        command = [sys.executable, "-c", look, directory / side / "benchmarks", *arguments]
        done = subprocess.run(command, env=environment(directory), capture_output=True, text=True)
        assert not done.returncode, done.stderr
        yield json.loads(done.stdout)


def test_one_side_makes_eleven_calls_for_ten_and_both_are_one_measurement(tmp_path):
    other = "torch.as_tensor(a)"
    found = list(looked_at(tmp_path, ("conversion.py", checking.SLOWDOWN), LOOK, checking.ROUTE, other))
    (base, *counted), (new, *same) = (side["found"][checking.ROUTE] for side in found)
    assert base.split("; ") == [checking.ROUTE] * 10 and new.split("; ") == [checking.ROUTE] * 11
    assert counted == same == [10]
    assert all(side["found"][other] == [other] for side in found)
    assert len({(side["name"], side["version"]) for side in found}) == 1


# The command ----------------------------------------------------------------------------------------------------------


def cell(route, verdict):
    return {"route": route, "verdict": verdict}


def test_a_slowdown_is_to_be_found_and_nothing_else():
    good = [cell(checking.ROUTE, SLOWER), cell("other", "no change")]
    assert [kept for _, kept in checking.found_in({"cells": good})] == [True, True]
    bad = [cell(checking.ROUTE, "no change"), cell("other", SLOWER)]
    lines, kept = zip(*checking.found_in({"cells": bad}))
    assert kept == (False, False) and lines[0] == "a slowdown of 10 % is found in 0 of 1 cells (promised: all)"
    assert [kept for _, kept in checking.found_in({"cells": []})] == [False, True], "what is not measured is not found"


def test_two_runs_are_held_against_each_other(pair, tmp_path, monkeypatch, capsys):
    """Two sides of which two cells of 24 differ by a third, which their comparison flags."""
    again = Path(shutil.copytree(pair[0], tmp_path / "again"))
    same = [(Path(pair[0]), again), (Path(pair[0]), Path(pair[1]))]
    found = [list(checking.apart_by(results)) for results in same]
    assert [kept for _, kept in found[0]] == [True, True, True]
    assert found[0][0][0] == "two runs differ by 0.0 % in the median cell of 24 (promised: 2 %)"
    assert found[1][2] == ("their comparison flags 2 cells (promised: 0)", False)
    monkeypatch.setattr(checking, "ROOT", tmp_path)
    monkeypatch.setattr(checking, "runs", lambda place, only: same[1])
    monkeypatch.setattr(checking, "in_turns", lambda *_: {"cells": []})
    assert check.main(["noise", "--condition", "quiet"]) == 1
    assert {f"quiet: {found[1][2][0]}: not kept"} <= set(capsys.readouterr().out.splitlines())


def test_each_check_has_its_own_options(called):
    assert called(check, "speed")[0] == 2
    for name, option in (
        ("timing", "--only"),
        ("noise", "--condition"),
        ("advice", "--cases"),
        ("history", "--before"),
    ):
        code, said, _ = called(check, name, "--help")
        assert code == 0 and option in said
