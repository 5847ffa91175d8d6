"""check.py noise: its noise is what it says and ends with it, its slowdown is exact, its exit code follows."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import check
import cli
import pytest
from analysis.verdicts import SLOWER
from checking import noise as checking
from conftest import ROOT, environment
from measuring.engine import copy_code

SCRIPTS = f"{ROOT}/scripts:{ROOT}"


# Noise --------------------------------------------------------------------------------------------------------------


def test_bursts_are_as_long_and_as_many_as_promised():
    taken = list(itertools.islice(checking.bursts(random.Random(1)), 20_000))
    kinds, lengths, pauses = zip(*taken)
    for seconds in (lengths, pauses):
        assert 0.001 <= min(seconds) < 0.0011 and 0.0499 < max(seconds) <= 0.050
    assert sum(lengths) / (sum(lengths) + sum(pauses)) == pytest.approx(0.5, abs=0.01)
    assert kinds.count("burn") / len(kinds) == pytest.approx(0.5, abs=0.02)


def test_bursts_are_random_and_repeatable():
    first, again, other = (list(itertools.islice(checking.bursts(random.Random(n)), 50)) for n in ("a", "a", "b"))
    assert first == again != other
    assert len({length for _, length, _ in first}) == 50


def is_running(pid):
    """Whether a process is there and no zombie, which only waits to be read."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def wait_until(true, seconds=30):
    """Whether it came true in that time."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes cannot be pinned here")
def test_one_noisy_process_on_every_core_while_the_block_runs():
    cores = os.sched_getaffinity(0)
    with checking.noise("test") as processes:
        pids = [process.pid for process in processes]
        wanted = sorted([core] for core in cores)
        assert wait_until(lambda: sorted(sorted(os.sched_getaffinity(pid)) for pid in pids) == wanted)
        before, start = [cpu_seconds(pid) for pid in pids], time.monotonic()
        time.sleep(1)
        elapsed = time.monotonic() - start
        for pid, used in zip(pids, before):
            # half of the time where the core is free, less where others want it, too
            assert 0.02 < (cpu_seconds(pid) - used) / elapsed < 0.8
    assert not any(map(is_running, pids))
    assert os.sched_getaffinity(0) == cores


def test_noise_ends_when_the_block_fails():
    with pytest.raises(ZeroDivisionError), checking.noise("test") as processes:
        pids = [process.pid for process in processes]
        raise ZeroDivisionError
    assert not any(map(is_running, pids))


def test_noise_that_stopped_is_no_noise():
    with pytest.raises(cli.UserError, match="ended early"), checking.noise("test") as processes:
        processes[0].kill()
        processes[0].join()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_noise_ends_when_its_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"  # a file: what multiprocessing spawns imports it again
    script.write_text(
        "import time\n"
        "from checking.noise import noise\n"
        "if __name__ == '__main__':\n"
        "    with noise('test') as processes:\n"
        "        print(*(process.pid for process in processes), flush=True)\n"
        "        time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, script], env=environment(tmp_path, PYTHONPATH=SCRIPTS), stdout=subprocess.PIPE, text=True
    )
    try:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert pids and all(map(is_running, pids))
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert wait_until(lambda: not any(map(is_running, pids)))


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


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """Side -> how it times the slow route and another."""
    pytest.importorskip("torch")
    found = {}
    place = tmp_path_factory.mktemp("planted")
    for side in ("base", "new-fresh"):
        copy_code(ROOT, place / side)
        checking.plant(place / side)
        command = [sys.executable, "-c", LOOK, place / side / "benchmarks", checking.ROUTE, "torch.as_tensor(a)"]
        done = subprocess.run(command, env=environment(place), capture_output=True, text=True)
        assert not done.returncode, done.stderr
        found[side] = json.loads(done.stdout)
    return found


def test_one_side_makes_eleven_calls_for_ten(sides):
    (base, *counted), (new, *same) = (sides[side]["found"][checking.ROUTE] for side in ("base", "new-fresh"))
    assert base.split("; ") == [checking.ROUTE] * 10
    assert new.split("; ") == [checking.ROUTE] * 11
    assert counted == same == [10]


def test_other_routes_are_left_alone(sides):
    assert all(side["found"]["torch.as_tensor(a)"] == ["torch.as_tensor(a)"] for side in sides.values())


def test_both_sides_are_one_measurement(sides):
    one, other = sides.values()
    assert one["version"] == other["version"]
    assert one["name"] == other["name"] == "conversion.NumpyToTorch.timeit_convert"


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
    monkeypatch.setattr(checking, "planted", lambda place: {"cells": []})
    assert check.main(["noise", "--condition", "quiet"]) == 1
    assert "quiet: their comparison flags 2 cells (promised: 0): not kept" in capsys.readouterr().out


def test_each_check_has_its_own_options(called):
    code, _, complaint = called(check, "speed")
    assert code == 2 and "invalid choice: 'speed'" in complaint
    for name, option in (
        ("timing", "--sizes"),
        ("noise", "--condition"),
        ("advice", "--cases"),
        ("history", "--before"),
    ):
        code, said, _ = called(check, name, "--help")
        assert code == 0 and option in said
