"""scripts/check_noise.py: its noise is what it says and ends with it, its slowdown is exact, its exit code follows the
promises."""

import itertools
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import check_noise
import cli
import pytest
from checking import noise as checking
from checking import promises
from checking.noise import BEFORE, CALM, NEW, NOISE, PAIRS, PLANTED, Step, Workplace
from checking.promises import ALL, NEVER_CALM, WERE_CALM
from conftest import ROOT, environment
from store import files

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
        checking.copy_code(ROOT, place / side)
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


def test_sides_have_the_names_that_the_interleaved_collection_gives_them():
    from measuring import interleave

    assert set(checking.MADE) == set(interleave.SIDES)
    assert {f"{side}{files.FRESH}".partition("-")[0] for side in interleave.SIDES} == set(checking.MADE)


def test_slowdown_is_looked_for_among_enough_aliases(suite):
    from analysis.statistics import MIN_FAMILY
    from measuring import profiles

    described = {
        name: {"name": name, "param_names": benchmark.param_names, "params": [list(map(repr, p)) for p in found]}
        | {"contracts": getattr(benchmark, "contracts", {})}
        for name, benchmark in suite.items()
        if (found := benchmark._params) is not None
    }
    quick = profiles.select(profiles.PROFILES[checking.PROFILE], described)
    cells = [
        cell
        for name, patterns in quick.items()
        for cell in profiles.names(described[name])
        if any(re.search(pattern, cell) for pattern in patterns) and re.search(checking.alias_cells(), cell)
    ]
    slow = [cell for cell in cells if checking.ROUTE in cell]
    assert len(slow) == len(checking.ALIAS_SIZES)
    assert len(cells) == len(checking.ALIASES) * len(checking.ALIAS_SIZES) >= MIN_FAMILY
    contracts = {**suite["conversion.NumpyToTorch.timeit_convert"].contracts}
    contracts |= suite["conversion.TorchToNumpy.timeit_convert"].contracts
    assert {contracts[route]["memory"] for route in checking.ALIASES} == {"alias"}


# What is measured -----------------------------------------------------------------------------------------------------


def test_both_codes_run_in_turns():
    found = [(step.what, step.number) for step in checking.steps([CALM], 5, True)]
    assert found[:5] == [(NEW, 1), (BEFORE, 1), (NEW, 2), (BEFORE, 2), (NEW, 3)]
    assert found[5:] == [(NEW, 4), (NEW, 5), (PLANTED, 0), (PAIRS, 0)]
    assert all(step.what != BEFORE for step in checking.steps([CALM, NOISE], 2, False))


def called(monkeypatch, capsys, *arguments):
    """Exit code and the lines on stderr of check_noise.py, in this process."""
    monkeypatch.setattr(sys, "argv", ["check_noise.py", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.run(check_noise.main)
    return ended.value.code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--before", "nosuchrevision"], "--before 'nosuchrevision' is no revision of this checkout"),
        (["--before=--all"], "--before '--all' is no revision of this checkout"),
        (["--before", "HEAD:README.md"], "is no revision of this checkout"),
        (["--runs", "1"], "--runs takes a whole number from 2"),
        (["--runs", "two"], "invalid int value: 'two'"),
        (["--only", "("], "--only '(' is not a regular expression"),
        (["--condition", "loud"], "invalid choice: 'loud'"),
        (["--resume", "nowhere", "--runs", "3"], "--resume goes on with what was chosen then"),
        (["--resume", "nowhere"], "there is nothing to go on with"),
    ],
    ids=" ".join,
)
def test_wrong_argument(arguments, says, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(check_noise, "SCRATCH", tmp_path)
    monkeypatch.setattr(Workplace, "do", lambda *arguments: pytest.fail("it began to measure"))
    code, lines = called(monkeypatch, capsys, *arguments)
    assert code == 2
    assert len(lines) == 1 and lines[0].startswith("check_noise.py: ") and says in lines[0], lines
    assert not list(tmp_path.iterdir())


def test_a_revision_is_exported_as_it_was(tmp_path):
    try:
        commit = checking.revision("HEAD")
    except cli.UserError:
        pytest.skip("this checkout has no git history")
    checking.export(commit, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(checking.CODE)
    kept = checking.git("show", f"{commit}:scripts/run.py").stdout
    assert (tmp_path / "scripts" / "run.py").read_bytes() == kept


# Made-up figures ------------------------------------------------------------------------------------------------------

RECORD = {
    "toolchain": {"tag": "torch-2.13.0"},
    "skipped": {},
    "started": "2026-01-02T03:04:05+00:00",
    "samples": 80,
    "quiet": 0.8,
    "conditions": {"cpu": "a processor", "cores": 2, "cores_allowed": 2, "system": "Linux 6"},
    "settings": {"torch": "2.13.0", "numpy": "2.4.0", "python": "3.11.7"},
}
NBYTES = {"a": 8, "b": 4096, "c": 2**20, "d": 16 * 2**20, "e": 64 * 2**20}


def ran(factors=1.0, seconds=100.0, cells="abcdef", calm="abcdef"):
    """What a run gave; cell f has no size."""
    factors = dict.fromkeys(cells, factors) if isinstance(factors, float) else factors
    figures = {cell: 1e-6 * factors.get(cell, 1.0) for cell in cells}
    sizes = {cell: n for cell, n in NBYTES.items() if cell in cells}
    return {"cells": figures, "nbytes": sizes, "quiet": list(calm), "record": RECORD, "seconds": seconds}


def said(verdicts, route="torch.as_tensor(a)", code=0, processes=4):
    cells = [
        {"cell": f"{route}{n}", "route": route, "nbytes": 8, "verdict": verdict, "base_processes": processes}
        | {"ratio": 1.1, "low95": 1.08, "high95": 1.12}
        for n, verdict in enumerate(verdicts)
    ]
    return {"exit_code": code, "withheld": "", "cells": cells}


def both(one, other):
    return {**one, "cells": one["cells"] + other["cells"]}


FOUND = both(said(["slower", "slower"], checking.ROUTE, 1), said(["no change"] * 4))


@pytest.fixture
def place(tmp_path):
    """A check in which every promise was kept, without the code that would measure again."""
    made = Workplace(tmp_path / "check")
    plan = {"before": "c0ffee00" * 5, "new": "f00d", "runs": 3, "only": "", "sizes": [8], "command": "the command"}
    made.directory.mkdir()
    made._write("plan", plan)
    for condition in (CALM, NOISE):
        (made.directory / condition).mkdir()
        for number, factor in ((1, 1.0), (2, 1.01), (3, 1.0)):
            made._write(Step(condition, NEW, number).name, ran(factor, 110.0))
        for number, factors in ((1, {}), (2, {"a": 1.2, "b": 1 / 1.2, "c": 1.2})):
            made._write(Step(condition, BEFORE, number).name, ran(factors, 100.0))
        made._write(Step(condition, PLANTED).name, {"first": FOUND, "fresh": FOUND})
        pair = said(["no change", "inconclusive", "new"])
        made._write(Step(condition, PAIRS).name, [pair] * 3)
    return made


def shown(place, capsys, *arguments):
    """Exit code of the finished check, and what it printed."""
    code = check_noise.main(["--resume", str(place.directory), *map(str, arguments)])
    return code, capsys.readouterr().out


def line_of(printed, beginning):
    """A line of the printed table, by cell."""
    (line,) = (line for line in printed.splitlines() if line.startswith(f"| {beginning}"))
    return [part.strip() for part in line.strip("|").split("|")]


def test_kept_promises(place, capsys, tmp_path):
    code, printed = shown(place, capsys, "--json", tmp_path / "figures.json")
    assert code == 0
    assert "**no**" not in printed
    assert printed.splitlines()[-1] == (
        "a processor, 2 of 2 cores, Linux 6; Python 3.11.7, torch 2.13.0, numpy 2.4.0; 2026-01-02; "
        "new is f00d, before c0ffee00; `the command`"
    )
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["figures"][CALM]["against"]["time"] == pytest.approx(1.1)
    assert written["about"]["cpu"] == "a processor"
    assert all(all(kept.values()) for kept in written["kept"].values()) and len(written["kept"]) == 7


def test_every_figure_stands_beside_its_promise(place, capsys):
    _, printed = shown(place, capsys)
    assert line_of(printed, " | promise") == ["", "promise", "calm", "calm, before", "noise", "noise, before", "kept"]
    median = line_of(printed, "A/A of two runs")
    assert median[1:] == ["at most 2 %", "1.0 %", "9.1 %", "1.0 %", "9.1 %", "yes"]
    assert line_of(printed, "nine cells in ten")[2:4] == ["1.0 %", "18.2 %"]
    assert line_of(printed, "cells beyond")[2:4] == ["0.0 %", "50.0 %"]
    assert line_of(printed, "≤ 4 KiB")[2:4] == ["2: 1.0 %, 1.0 %", "2: 18.2 %, 18.2 %"]
    assert line_of(printed, "≥ 16 MiB")[2:4] == ["2: 1.0 %, 1.0 %", "2: 0.0 %, 0.0 %"]
    assert line_of(printed, "cells in both runs")[2] == "6 of 6"
    assert line_of(printed, "samples that the run calls")[2] == "20.0 %"
    assert line_of(printed, "time, new")[1:3] == ["calm: at most 1.15", "1.10"]
    assert line_of(printed, "figures, new")[2] == "1.003"


@pytest.mark.parametrize(
    ("step", "result", "line"),
    [
        (Step(NOISE, NEW, 2), ran(1.03), "A/A of two runs"),
        (Step(NOISE, NEW, 2), ran({"a": 1.2}), "nine cells in ten"),
        (Step(CALM, NEW, 2), ran(1.01, seconds=150.0), "time, new"),
        (Step(CALM, PLANTED), {"first": said(["slower", "inconclusive"], checking.ROUTE), "fresh": FOUND}, "10 %"),
        (Step(NOISE, PLANTED), {"first": both(FOUND, said(["faster"])), "fresh": FOUND}, "unchanged cells"),
        (Step(CALM, PAIRS), [said(["no change"]), said(["slower"], code=1)], "A/A comparisons"),
    ],
    ids=lambda value: value.name if isinstance(value, Step) else None,
)
def test_broken_promise(step, result, line, place, capsys):
    place._write(step.name, result)
    code, printed = shown(place, capsys)
    assert code == 1
    broken = [text for text in printed.splitlines() if "**no**" in text]
    assert len(broken) == 1 and broken[0].startswith(f"| {line}"), broken
    assert f"**no**: {step.condition}" in broken[0]


def test_cells_that_a_run_lost_are_counted(place, capsys):
    place._write(Step(CALM, NEW, 2).name, ran(1.0, cells="abc"))
    _, printed = shown(place, capsys)
    assert line_of(printed, "cells in both runs")[2] == "3 of 6"


def test_cells_that_never_were_calm_stand_apart():
    """What both runs stand behind repeats; the rest is told beside it, and counts in what is promised all the same."""
    wild = dict.fromkeys("abcdef", 1.0) | {"e": 1.5, "f": 1.5}
    found = promises.spread(ran(1.0, calm="abcde"), ran(wild, calm="abcdf"))
    assert {name: own["cells"] for name, own in found.items() if name in (ALL, WERE_CALM, NEVER_CALM)} == {
        ALL: 6,
        WERE_CALM: 4,
        NEVER_CALM: 2,
    }
    assert found[WERE_CALM]["nine"] == 0 and found[NEVER_CALM]["median"] == pytest.approx(math.log(1.5))
    assert found[ALL]["beyond"] == pytest.approx(1 / 3)


def test_comparison_that_could_not_is_counted(place, capsys):
    place._write(Step(CALM, PAIRS).name, [said(["inconclusive"], code=2), said(["no change"])])
    _, printed = shown(place, capsys)
    assert line_of(printed, "comparisons that could not tell (exit code 2)")[2] == "1 of 2"
    assert line_of(printed, "cells they decide")[2] == "50.0 %"


def test_without_code_of_before_nothing_is_said_of_it(place, capsys):
    place._write("plan", {**place.plan(), "before": ""})
    code, printed = shown(place, capsys)
    assert code == 0 and "÷ before" not in printed and ", before" not in printed


# Going on -------------------------------------------------------------------------------------------------------------


def test_finished_steps_are_not_repeated(place, capsys, monkeypatch):
    missing = [Step(CALM, NEW, 3), Step(NOISE, BEFORE, 1)]
    kept = {step: place.result(step) for step in missing}
    for step in missing:
        (place.directory / f"{step.name}.json").unlink()
    done = []

    def do(self, step):
        done.append(step)
        self._write(step.name, kept[step])

    monkeypatch.setattr(Workplace, "do", do)
    assert shown(place, capsys)[0] == 0
    assert done == missing


def test_noise_is_made_in_noise_alone(place, monkeypatch):
    import contextlib

    made = []

    @contextlib.contextmanager
    def noise(seed):
        made.append(seed)
        yield []

    def call(self, root, *arguments, **more):
        return json.dumps({"cells": {}, "nbytes": {}, "quiet": [], "record": RECORD})

    monkeypatch.setattr(checking, "noise", noise)
    monkeypatch.setattr(Workplace, "call", call)
    checking.copy_code(ROOT, place.directory / "code" / NEW)
    for condition in (CALM, NOISE):
        place.do(Step(condition, NEW, 1))
    assert made == ["noise/new-1"]


def test_a_run_that_fails_is_one_line(place):
    with pytest.raises(cli.UserError, match="-c in check: ZeroDivisionError: division by zero"):
        place.call(place.directory, "-c", "1 / 0")


def test_spread_is_of_log_ratios():
    one, other = ran(1.0), ran({"a": 1.1, "b": 1 / 1.1})
    found = promises.spread(one, other)
    assert found["≤ 4 KiB"]["median"] == pytest.approx(0.0953, abs=1e-4)
    assert found["all"]["median"] == 0.0 and found["all"]["beyond"] == pytest.approx(2 / 6)
    assert found["all"]["nine"] == pytest.approx(0.0953, abs=1e-4)
