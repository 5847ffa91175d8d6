"""compare.py: a verdict for every cell, words, exit codes, bad inputs, and the collection of both sides in turns."""

import dataclasses
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace

import compare
import numpy as np
import pytest
import resultfiles
from analysis import comparison, statistics
from analysis.comparison import FAILED, FASTER, INCONCLUSIVE, NO_CHANGE, SLOWER, VERDICTS, Settings
from analysis.results import load
from cli import UserError
from conftest import ROOT, environment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measuring import interleave
from pages.comparison import figure as comparison_figure
from pages.comparison import words
from records import calm
from toolchains import ledger

SIZES = [2**k for k in range(12)]
ROUTES = ["torch.from_numpy(a)", "torch.tensor(a)"]
CONTRACTS = [resultfiles.contract(ROUTES[0], "alias"), resultfiles.contract(ROUTES[1], "copy")]
RESULT = "box/c0ffee00-toolchain-py3.11.json"
RECORD = "box/c0ffee00-toolchain-py3.11.jsonl"


def cells(seed, change=None, processes=4, sd=0.005):
    """(route, nbytes) -> seconds of each process; ``change`` multiplies those of some cells."""
    rng = np.random.default_rng(seed)
    every = [(route, nbytes) for route in ROUTES for nbytes in SIZES]
    times = {cell: list(1e-6 * np.exp(rng.normal(0, sd, processes))) for cell in every}
    for cell, factor in (change or {}).items():
        times[cell] = [second * factor for second in times[cell]]
    return times


def write(root, times, **how):
    """A results directory of one conversion benchmark; its path as text."""
    benches = [resultfiles.conversion(times, CONTRACTS)]
    changes = how.pop("record", {})
    if "records" not in how:
        how["records"] = [resultfiles.record(benches, machine=how.get("machine", "box"), **changes)]
    return str(resultfiles.write(Path(root), benches, **how))


@pytest.fixture
def pair(tmp_path):
    """BASE and NEW: one alias cell slower, one copy cell faster, the rest as it was."""
    change = {(ROUTES[0], 8): 1.3, (ROUTES[1], 4): 0.7}
    return write(tmp_path / "base", cells(0)), write(tmp_path / "new", cells(1, change))


def compared(base, new, **how):
    return comparison.compare(load(Path(base)), load(Path(new)), Settings(**how))


def verdicts(found):
    return {(row["route"], row["nbytes"]): row["verdict"] for row in found.cells.to_dict("records")}


def program(*arguments, home, stdin=None):
    """compare.py as its users run it: exit code, what it printed, what it complained about."""
    command = [sys.executable, str(ROOT / "scripts" / "compare.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(home), cwd=home, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_what_changed_is_found_and_nothing_else(pair):
    found = compared(*pair)
    named = verdicts(found)
    assert named.pop((ROUTES[0], 8)) == SLOWER
    assert named.pop((ROUTES[1], 4)) == FASTER
    assert set(named.values()) <= {NO_CHANGE, INCONCLUSIVE}
    assert found.exit_code == 1
    assert sum(found.counts.values()) == len(found.cells) == len(ROUTES) * len(SIZES)


def test_the_other_way_round(pair):
    found = compared(*pair[::-1])
    assert verdicts(found)[ROUTES[0], 8] == FASTER and verdicts(found)[ROUTES[1], 4] == SLOWER


def test_nothing_slower_is_exit_code_0(tmp_path):
    found = compared(write(tmp_path / "a", cells(0)), write(tmp_path / "b", cells(1, {(ROUTES[0], 8): 0.7})))
    assert (found.counts[FASTER], found.counts[SLOWER], found.exit_code) == (1, 0, 0)


def beside(root, times, slow):
    """Results whose samples stand between pulses; ``slow``: (route, nbytes), round of processes at half the speed."""
    write(root, times)
    slow = {((route, "float32", nbytes), number) for (route, nbytes), number in slow}
    resultfiles.watched(Path(root), resultfiles.conversion(times, CONTRACTS), slow)
    return root


def test_nothing_is_decided_of_what_was_never_calm(tmp_path):
    """Twice the time, and the machine at half its speed: that is the machine's, not the release's."""
    cell = ROUTES[0], 8
    calm = beside(tmp_path / "calm", cells(0), ())
    busy = beside(tmp_path / "busy", cells(1, {cell: 2.0}), {(cell, number) for number in range(4)})
    for base, new, who in ((calm, busy, "new"), (busy, calm, "base")):
        found = compared(base, new)
        assert found.counts[SLOWER] == found.counts[FASTER] == 0
        row = next(row for row in found.cells.to_dict("records") if (row["route"], row["nbytes"]) == cell)
        assert (row["verdict"], row["reason"]) == (INCONCLUSIVE, f"the machine was never calm in {who}")
        assert not row["close"], "fresh processes are for what is close"
        assert f"the machine was never calm in {who}" in words.markdown(found, True, "command")
    # the same figures from a machine that was calm are a finding
    really = beside(tmp_path / "really", cells(1, {cell: 2.0}), ())
    assert verdicts(compared(calm, really))[cell] == SLOWER


def test_calm_processes_alone_decide(tmp_path):
    """One process of every cell at half the speed: three calm ones are too few for a verdict, and no outlier."""
    slow = {((route, nbytes), 2) for route in ROUTES for nbytes in SIZES[:4]}
    times = cells(1)
    for (route, nbytes), number in slow:
        times[route, nbytes][number] *= 2
    found = compared(beside(tmp_path / "base", cells(0), ()), beside(tmp_path / "new", times, slow))
    few = found.cells[found.cells["nbytes"].isin(SIZES[:4])]
    assert set(few["new_processes"]) == {3} and set(few["verdict"]) == {INCONCLUSIVE}
    assert few["ratio"].between(0.97, 1.03).all()


NOISE = 0.3  # sd of log time: a cell decides nothing


def test_too_little_decided_is_exit_code_2(tmp_path):
    """Nothing slower among cells of which nothing can be said is no pass; what is slower was found all the same."""
    base, new = (write(tmp_path / side, cells(seed, sd=NOISE)) for side, seed in (("a", 0), ("b", 1)))
    found = compared(base, new)
    assert (found.counts[INCONCLUSIVE], found.decided, found.comparable) == (24, 0, 24)
    assert found.possible and found.exit_code == 2
    assert compared(base, new, min_decided=0).exit_code == 0
    code, out, said = program(base, new, home=tmp_path)
    assert code == 2 and "0 of 24 cells decided" in out and "too little decided" in out
    assert said.startswith("compare.py: too little decided: 0 of 24 cells decided") and len(said.splitlines()) == 1
    for advice in ("asks for 50 %", "more processes", "quieter machine", "--min-decided"):
        assert advice in said
    assert program(base, new, "--min-decided", "0", home=tmp_path)[0] == 0
    slower = write(tmp_path / "c", cells(1, {(ROUTES[0], 8): 1e3}, sd=NOISE))
    found = compared(base, slower)
    assert (found.counts[SLOWER], found.decided, found.exit_code) == (1, 1, 1)


def test_the_share_of_decided_cells_is_of_those_that_could_be_compared(tmp_path):
    """New, gone and failed cells are no part of it, and a share that is just reached is enough."""
    one, other = cells(0), cells(1)
    del one[ROUTES[0], 1], other[ROUTES[0], 2]
    one[ROUTES[0], 4] = None
    for times, seed in ((one, 2), (other, 3)):
        noisy = cells(seed, sd=NOISE)
        times.update({cell: noisy[cell] for cell in noisy if cell[0] == ROUTES[1] and cell[1] >= 2**9})
    base, new = write(tmp_path / "a", one), write(tmp_path / "b", other)
    found = compared(base, new)
    assert (found.decided, found.comparable, len(found.cells)) == (18, 21, 24)
    assert found.share_decided == 18 / 21
    assert compared(base, new, min_decided=18 / 21).exit_code == 0
    assert compared(base, new, min_decided=0.86).exit_code == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"asv_runner": "0.4.0"}, "asv_runner differs: 0.3.2, 0.4.0"),
        ({"launch": "spawn"}, "launch differs: forkserver, spawn"),
        ({"conditions": {"cpu": "Another", "cores_allowed": 2}}, "machine (cpu) differs: A CPU, Another"),
    ],
)
def test_other_settings_are_not_comparable(tmp_path, changes, reason):
    found = compared(write(tmp_path / "a", cells(0)), write(tmp_path / "b", cells(1), record=changes))
    assert set(found.cells["reason"]) == {reason}
    assert found.counts[comparison.NOT_COMPARABLE] == len(found.cells)
    assert found.exit_code == 2


def test_another_machine_only_if_asked_for(tmp_path):
    base, new = write(tmp_path / "a", cells(0)), write(tmp_path / "b", cells(1), machine="other")
    assert compared(base, new).exit_code == 2
    found = compared(base, new, across_machines=True)
    assert found.exit_code == 0
    assert "machine differs: box, other; compared because you asked for it" in found.notes


def edit(directory, change):
    path = Path(directory) / RESULT
    file = json.loads(path.read_text())
    change(file["results"]["conversion.NumpyToTorch.timeit_convert"], Path(directory))
    path.write_text(json.dumps(file))


def test_another_version_or_regime_is_not_comparable(pair):
    def version(row, _):
        row[2] = "v2"

    def fewer_samples(row, directory):
        row[6] = [samples[:8] for samples in row[6]]  # four processes of two
        described = json.loads((directory / "benchmarks.json").read_text())
        described["conversion.NumpyToTorch.timeit_convert"]["samples_per_process"] = [2] * len(row[6])
        (directory / "benchmarks.json").write_text(json.dumps(described))

    edit(pair[1], fewer_samples)
    assert set(compared(*pair).cells["reason"]) == {"samples a process differ: 4, 2"}
    edit(pair[1], version)
    found = compared(*pair)
    assert set(found.cells["reason"]) == {"the benchmark itself changed: measure both sides with the same suite"}
    assert set(found.cells["verdict"]) == {comparison.NOT_COMPARABLE}


def test_too_few_processes_say_how_many(tmp_path):
    found = compared(write(tmp_path / "a", cells(0, processes=2)), write(tmp_path / "b", cells(1, processes=4)))
    assert set(found.cells["verdict"]) == {INCONCLUSIVE} and found.exit_code == 2
    assert (found.cells["more"] >= 2).all()
    assert "fewer than 4 processes a side; at least 2 more processes needed" in words.text(found, True)


def test_a_contradicted_promise_withholds_verdicts(tmp_path):
    """Processes that alternate between two states: neighbours differ, and the method takes it for a change."""
    times = {cell: [s * (1.3 if k % 2 else 1) for k, s in enumerate(own)] for cell, own in cells(0, sd=1e-4).items()}
    found = compared(write(tmp_path / "a", times), write(tmp_path / "b", cells(1, {(ROUTES[0], 8): 3})))
    assert found.check.lower > found.settings.promise
    assert found.exit_code == 2
    assert set(found.cells["verdict"]) == {INCONCLUSIVE}
    assert "verdicts withheld" in words.text(found, False)
    assert "withheld" in words.markdown(found, False, "")


def test_the_self_check_finds_nothing_in_honest_noise(pair):
    check = compared(*pair).check
    assert (check.splits, check.cells, check.flagged, check.lower) == (2, len(ROUTES) * len(SIZES), 0, 0)
    assert 0.05 < check.upper < 0.2


def test_splits_take_one_of_every_two_neighbours():
    assert comparison.splits(3) == []
    assert comparison.splits(4) == [([0, 2], [1, 3]), ([0, 3], [1, 2])]
    for processes in range(4, 30):
        found = comparison.splits(processes)
        assert 2 <= len(found) <= comparison.MOST_SPLITS
        for one, other in found:
            assert sorted(one + other) == list(range(processes // 2 * 2))
            assert all({a, b} == {2 * k, 2 * k + 1} for k, (a, b) in enumerate(zip(one, other)))


STATES = st.sampled_from(["measured", "failed", "skipped", "absent", "slow", "two processes"])


@given(st.lists(st.tuples(STATES, STATES), min_size=1, max_size=len(SIZES)), st.integers(0, 99))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_cell_has_exactly_one_verdict(tmp_path_factory, states, seed):
    """Whatever state each side's cells are in, counts add up to the union of what either side has."""
    root = tmp_path_factory.mktemp("any")
    rng = np.random.default_rng(seed)

    def side(which):
        times = {}
        for nbytes, state in zip(SIZES, (pair[which] for pair in states)):
            factor = 2.0 if state == "slow" else 1.0
            count = 2 if state == "two processes" else 4
            figures = list(1e-6 * factor * np.exp(rng.normal(0, 0.01, count)))
            kept = {"failed": None, "skipped": resultfiles.SKIPPED}
            if state != "absent":
                times[ROUTES[0], nbytes] = kept.get(state, figures)
        times.setdefault((ROUTES[1], SIZES[0]), [1e-6] * 4)  # no file is empty
        return times

    found = compared(write(root / "a", side(0)), write(root / "b", side(1)))
    nothing = [pair for pair in states if set(pair) <= {"skipped", "absent"}]
    assert len(found.cells) == len(states) - len(nothing) + 1
    assert sum(found.counts.values()) == len(found.cells) == found.cells["cell"].nunique()
    assert set(found.cells["verdict"]) <= set(VERDICTS)
    named = verdicts(found)
    for nbytes, (one, other) in zip(SIZES, states):
        verdict = named.get((ROUTES[0], nbytes))
        gone = {"skipped", "absent"}
        if "failed" in (one, other):
            assert verdict == comparison.FAILED
        elif one in gone and other in gone:
            assert verdict is None
        elif one in gone:
            assert verdict == comparison.NEW
        elif other in gone:
            assert verdict == comparison.GONE
        elif "two processes" in (one, other):
            assert verdict == INCONCLUSIVE
    words.text(found, True), words.markdown(found, True, ""), json.loads(words.as_json(found, ""))


# --- interleaved sides -----------------------------------------------------------------------------------------------


def together(side, stage=1, rounds=4):
    return {"rounds": rounds, "interleaved": {"id": "1", "stage": stage, "side": side}}


def test_sides_that_ran_in_turns_are_paired(tmp_path):
    """Drift that both sides of a pair share hides a change of 5 % only from who ignores the pairs."""
    drift = np.array([1.0, 1.2, 0.9, 1.1])
    base = {cell: list(np.array(own) * drift) for cell, own in cells(0).items()}
    new = {cell: list(np.array(own) * drift) for cell, own in cells(1, {(ROUTES[0], 8): 1.05}).items()}
    paired = compared(
        write(tmp_path / "a", base, record=together("base")), write(tmp_path / "b", new, record=together("new"))
    )
    assert paired.interleaved and paired.cells["paired"].all()
    assert verdicts(paired)[ROUTES[0], 8] == SLOWER and paired.counts[SLOWER] == 1
    apart = compared(write(tmp_path / "c", base), write(tmp_path / "d", new))
    assert not apart.interleaved and not apart.cells["paired"].any() and apart.counts[SLOWER] == 0


def test_a_cell_that_lost_a_process_is_not_paired(tmp_path):
    new = cells(1)
    new[ROUTES[0], 8] = new[ROUTES[0], 8][:3] + [float("nan")]
    new[ROUTES[0], 8] = new[ROUTES[0], 8][:3]
    found = compared(
        write(tmp_path / "a", cells(0), record=together("base")), write(tmp_path / "b", new, record=together("new"))
    )
    assert (~found.cells["paired"]).sum() == 1


def test_fresh_processes_decide_alone(tmp_path):
    """What looked slower in the first stage and is not in the second is not slower."""
    close = {(ROUTES[0], 8): 1.3, (ROUTES[1], 4): 1.3}
    base = write(tmp_path / "base" / "reports" / "results", cells(0), record=together("base"))
    new = write(tmp_path / "new" / "reports" / "results", cells(1, close), record=together("new"))
    for side, seed, change in (("base", 2, {}), ("new", 3, {(ROUTES[0], 8): 1.3})):
        again = {cell: own for cell, own in cells(seed, change, processes=8).items() if cell in close}
        root = tmp_path / f"{side}-fresh" / "reports" / "results"
        write(root, again, record=together(side, stage=2, rounds=8))
    found = compare.compare_files(base, new, None, Settings())
    named = verdicts(found)
    assert named[ROUTES[0], 8] == SLOWER and named[ROUTES[1], 4] != SLOWER
    fresh = found.cells[found.cells["fresh"]]
    assert set(fresh["base_processes"]) == {8} and found.cells["close"].sum() >= 2
    assert "8 fresh processes a side" in words.text(found, False)


def test_close_cells_bring_witnesses_of_their_familys_noise(pair):
    found = compared(*pair)
    again = comparison.to_measure_again(found)
    close = set(found.cells[found.cells["close"]]["cell"])
    assert close and close <= set(again) and len(again) == len(set(again))
    assert sum("from_numpy" in cell for cell in again) >= 10
    found.cells["close"] = False
    assert comparison.to_measure_again(found) == []


def test_witnesses_keep_their_first_verdict(tmp_path):
    """Only what was close is judged again, though everything was measured again."""
    base = write(tmp_path / "base" / "reports" / "results", cells(0), record=together("base"))
    new = write(tmp_path / "new" / "reports" / "results", cells(1), record=together("new"))
    first = compared(base, new)
    every = {(route, nbytes): 1.5 for route in ROUTES for nbytes in SIZES}
    for side, change in (("base", {}), ("new", every)):
        again = cells(7, change, processes=8)
        write(tmp_path / f"{side}-fresh" / "reports" / "results", again, record=together(side, 2, 8))
    found = compare.compare_files(base, new, None, Settings())
    assert set(found.cells[found.cells["verdict"] == SLOWER]["cell"]) == set(first.cells[first.cells["close"]]["cell"])


def test_sides_take_turns():
    assert [interleave.order(number) for number in range(3)] == [(0, 1), (1, 0), (0, 1)]


class Pretended:
    """A side whose processes are calm in the rounds that ``rounds`` gives for a cell."""

    def __init__(self, name, rounds):
        self.name, self.rounds, self.jobs = name, rounds, []

    def ask(self, **job):
        self.jobs.append((job["do"], job.get("number"), job.get("cells")))
        taken = [number for do, number, _ in self.jobs if do == "round"]
        if job["do"] == "calm":
            return {cell: [number for number in taken if number in calm] for cell, calm in self.rounds.items()}


def test_cells_that_lack_pairs_get_more_rounds_on_both_sides(monkeypatch):
    every = range(8)
    base = Pretended("base", {"a": every, "b": [1, 2, 3, 4, 5], "never": []})
    new = Pretended("new", {"a": every, "b": [0, 1, 2, 4, 5], "never": every})
    done = []
    monkeypatch.setattr(interleave, "time", SimpleNamespace(monotonic=lambda: 0.0))
    interleave.collect((base, new), ["a", "b", "never"], 4, {"machine": "box"}, done.append)
    wanted = [*[("round", number, 3) for number in range(4)], ("round", 4, 1), ("round", 5, 1)]
    for side in (base, new):
        assert [job for job in side.jobs if job[0] == "round"] == wanted, "b has four pairs then: 1, 2, 4 and 5"
        assert side.jobs[-1][0] == "finish"
    assert done == [3 * k for k in range(1, 9)]
    assert interleave.ENOUGH == statistics.MIN_PROCESSES


def test_more_rounds_end_in_time(monkeypatch):
    """What finds no pair takes half as long again as the rounds did, and a round at most."""
    clock = iter([0, 100, 110, 140, 160])  # begun, after the rounds, before each of the others
    monkeypatch.setattr(interleave, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    sides = Pretended("base", {"a": range(0, 20, 2)}), Pretended("new", {"a": range(1, 20, 2)})
    interleave.collect(sides, ["a"], 4, {"machine": "box"}, lambda done: None)
    assert sum(do == "round" for do, _, _ in sides[0].jobs) == 6


def test_patterns_name_exactly_the_cells():
    names = ["a.B.timeit_c('f(x)', 8)", "a.B.timeit_c('f(x)', 64)", "a.B.timeit_d"]
    found = interleave.exactly(names)
    others = ["a.B.timeit_c('f(x)', 80)", "a.B.timeit_dd", "xa.B.timeit_d"]
    assert len(found) == 2
    assert [cell for cell in names + others if any(re.search(pattern, cell) for pattern in found)] == names


# --- words -----------------------------------------------------------------------------------------------------------


def row(found, **changes):
    plain = found.cells.to_dict("records")[0]
    plain |= {"base_processes": 8, "new_processes": 8, "fresh": False, "reason": ""}
    return plain | changes


def test_the_wording(pair):
    found = dataclasses.replace(compared(*pair), interleaved=True)
    evidence = {"ratio": 1.08, "low95": 1.05, "high95": 1.11, "q": 0.003}
    slower = words.sentence(row(found, verdict=SLOWER, **evidence), found)
    assert slower == "1.08× slower (95 % CI 1.05–1.11; q = .003; 8 processes a side)"
    evidence = {"ratio": 1 / 1.08, "low95": 1 / 1.11, "high95": 1 / 1.05, "q": 0.0003}
    faster = words.sentence(row(found, verdict=FASTER, **evidence), found)
    assert faster == "1.08× faster (95 % CI 1.05–1.11; q < .001; 8 processes a side)"
    same = words.sentence(row(found, verdict=NO_CHANGE, low90=0.98, high90=1.03), found)
    assert same == "no change larger than 5 % (90 % CI .98–1.03)"
    open_ = words.sentence(row(found, verdict=INCONCLUSIVE, low95=0.93, high95=1.12, more=14.0), found)
    assert open_ == "inconclusive: .93–1.12; about 14 more processes would decide ±5 %"
    assert "significant" not in words.text(found, True)


def test_text_and_colour_say_the_same(pair):
    """The terminal gets a table with colours; a pipe gets plain text; the words are there in both."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    found = compared(*pair)
    plain, terminal = io.StringIO(), Terminal()
    words.terminal(found, False, plain)
    words.terminal(found, False, terminal)
    assert "\x1b" not in plain.getvalue()
    for said in ("slower (95 % CI", "faster (95 % CI", "torch.from_numpy(a)", "24 cells:", "of 24 cells decided"):
        assert said in plain.getvalue()
    assert plain.getvalue().index("slower (95 %") < plain.getvalue().index("24 cells:")
    flat = " ".join(terminal.getvalue().split())
    assert "slower" in flat and "24 cells:" in flat and "of 24 cells decided" in flat


def test_without_rich_it_is_plain_text(pair, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    found, stream = compared(*pair), Terminal()
    words.terminal(found, True, stream)
    assert stream.getvalue() == words.text(found, True)


def test_markdown_fits_a_comment(tmp_path, pair, monkeypatch):
    found = compared(*pair)
    text = words.markdown(found, True, "the command")
    assert text.startswith(words.MARKER) and "the command" in text and "| slower | 1 |" in text
    assert "24 of 24 cells decided" in text
    monkeypatch.setattr(words, "COMMENT_CHARACTERS", 2500)
    short = words.markdown(found, True, "the command")
    assert len(short) <= 2500 and "more: a comment has room for no more" in short


def test_json_has_everything(pair):
    found = json.loads(words.as_json(compared(*pair), "the command"))
    assert found["counts"][SLOWER] == 1 and found["exit_code"] == 1
    assert found["decided"]["sentence"].startswith("24 of 24 cells decided")
    assert (found["decided"]["cells"], found["decided"]["of"], found["settings"]["min_decided"]) == (24, 24, 0.5)
    assert len(found["cells"]) == sum(found["counts"].values())
    for name in ("ratio", "low95", "high90", "p", "q", "p_equivalence", "base_seconds", "verdict", "sentence"):
        assert name in found["cells"][0]


def test_the_figure_is_the_same_every_time(tmp_path, pair):
    import matplotlib

    found = compared(*pair)
    for name in ("one.svg", "other.svg"):
        assert comparison_figure.save(found, tmp_path / name)
        matplotlib.rcParams["lines.linewidth"] = 3  # whatever was drawn before
    one, other = ((tmp_path / name).read_bytes() for name in ("one.svg", "other.svg"))
    matplotlib.rcdefaults()
    assert one == other
    assert b'role="img"' in one and b"1.3" in one and b"torch.from_numpy(a)" in one


def test_the_section_of_a_page(pair):
    intro, figures, after = comparison_figure.section(compared(*pair))
    assert "1 slower and 1 faster of 24 cells" in intro[0]
    (figure, table) = figures[0]
    assert "<svg" in figure.inline and len(table.rows) == 24 and after


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "value"), [("1%", 0.01), ("0.01", 0.01), ("1 %", 0.01), (".5", 0.5)])
def test_shares(text, value):
    assert compare.share(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "x", "5", "-1%", "0", "nan", "200%"])
def test_what_is_no_share(text):
    with pytest.raises(UserError, match="share"):
        compare.share(text)


def test_a_share_may_be_all_or_nothing_where_that_says_something():
    assert [compare.share(text, ends=True) for text in ("0", "0%", "100%", "1")] == [0, 0, 1, 1]
    for text in ("-1%", "101%", "nan", "all"):
        with pytest.raises(UserError, match="share"):
            compare.share(text, ends=True)


def test_exit_codes_and_formats(pair, tmp_path):
    code, out, _ = program(*pair, "--figure", tmp_path / "f.svg", home=tmp_path)
    assert code == 1 and "1.3" in out and (tmp_path / "f.svg").is_file()
    code, out, _ = program(*pair, "--only", "tensor", "--format", "json", home=tmp_path)
    assert code == 0 and len(json.loads(out)["cells"]) == len(SIZES)
    code, out, _ = program(pair[0], f"{pair[1]}/{RESULT}", "--format", "markdown", home=tmp_path)
    assert code == 1 and out.startswith(words.MARKER)


def test_toolchains_by_tag_and_hash(pair, monkeypatch):
    base = Path(pair[0])
    monkeypatch.setattr(compare, "RESULTS", base)
    for spec in ("torch-2.0-numpy-1.26", "c0ffee00", "c0ff", "c0ffee00" * 5):
        assert compare.find(spec, None) == base / RESULT
    assert compare.find(str(base / "box"), None) == base / RESULT
    for spec in ("c0f", "torch-9", "c0ffee00c0ffee01"):
        with pytest.raises(UserError, match="there are results of torch-2.0-numpy-1.26"):
            compare.find(spec, None)


def test_several_result_files_must_be_told_apart(pair, tmp_path):
    write(pair[0], cells(5), machine="other")
    code, _, said = program(*pair, home=tmp_path)
    assert code == 2 and "has 2 result files (box/" in said and len(said.splitlines()) == 1
    assert program(*pair, "--machine", "box", home=tmp_path)[0] == 1


BAD = {
    "empty file": (RESULT, ""),
    "truncated file": (RESULT, '{"version": 2, "commit_h'),
    "foreign file": (RESULT, '{"benchmarks": []}'),
    "another version": (RESULT, '{"version": 1}'),
    "null": (RESULT, "null"),
    "a list": (RESULT, "[]"),
    "nothing in it": (
        RESULT,
        '{"version": 2, "commit_hash": "c0ffee", "params": {"machine": "box"}, "python": "3.11",'
        ' "result_columns": [], "results": {}}',
    ),
    "broken benchmarks": ("benchmarks.json", "{"),
    "benchmarks of another kind": ("benchmarks.json", "[]"),
    "no benchmarks known": ("benchmarks.json", "{}"),
    "broken record": (RECORD, "{"),
    "record of another kind": (RECORD, "[]\n"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("side", [0, 1])
def test_bad_input_is_one_line_and_exit_code_2(pair, capsys, case, side):
    name, text = BAD[case]
    (Path(pair[side]) / name).write_text(text)
    with pytest.raises(UserError) as caught:
        compare.main(list(pair))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("nowhere", "{new}"),
        ("{base}", "{base}"),
        ("{base}/benchmarks.json", "{new}"),
        ("{base}/..", "{new}"),
        ("{base}",),
        ("{base}", "{new}", "--only", "("),
        ("{base}", "{new}", "--only", "no such cell"),
        ("{base}", "{new}", "--machine", "unknown"),
        ("{base}", "{new}", "--machine", "/etc"),
        ("{base}", "{new}", "--machine", "*"),
        ("{base}", "{new}", "--machine", "history"),
        ("{base}", "{new}", "--figure", "{base}.png"),
        ("--run", "installed", "installed", "--figure", "{base}/no/such/directory.svg"),
        ("{base}", "{new}", "--equivalence", "1%"),
        ("{base}", "{new}", "--fdr", "2"),
        ("{base}", "{new}", "--min-decided", "2"),
        ("{base}", "{new}", "--figure", "{base}/no/such/directory.svg"),
        ("--run", "nowhere", "installed"),
        ("--run", "installed", "installed", "--profile", "nonesuch"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(pair, tmp_path, arguments):
    given_ = [argument.format(base=pair[0], new=pair[1]) for argument in arguments]
    code, _, said = program(*given_, home=tmp_path)
    assert code == 2 and said.startswith("compare.py: ") and len(said.splitlines()) == 1


def test_results_without_a_record_are_compared_with_a_note(tmp_path):
    found = compared(write(tmp_path / "a", cells(0), records=[]), write(tmp_path / "b", cells(1), records=[]))
    assert found.exit_code == 0 and "no run record" in found.notes[0]


def test_it_needs_neither_torch_nor_the_benchmarks(pair, tmp_path):
    code = (
        "import sys; sys.modules['torch'] = sys.modules['benchmarks'] = None; "
        f"sys.path.insert(0, {str(ROOT / 'scripts')!r}); import compare; sys.exit(compare.main({list(pair)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(tmp_path))
    assert done.returncode == 1, done.stderr


def test_the_workflow_gates_with_what_there_is():
    """Actions pinned to a version, no right to write where a pull request's code runs, options that exist."""
    text = (ROOT / ".github" / "workflows" / "compare.yml").read_text()
    assert set(re.findall(r"uses: \S+@(\S+)", text)) and all(
        re.fullmatch(r"v\d+\.\d+\.\d+", version) for version in re.findall(r"uses: \S+@(\S+)", text)
    )
    jobs = dict(re.findall(r"^  (\w+):\n((?:    .*\n|\n)+)", text[text.index("\njobs:") :], re.MULTILINE))
    assert set(jobs) == {"measure", "comment", "gate"}
    assert "write" not in jobs["measure"].replace("may write", "") and "checkout" not in jobs["comment"]
    assert f'MARKER: "{words.MARKER}"' in text
    (command,) = re.findall(r"compare\.py (--run.*?) >", text.replace("\\\n", " "))
    (decided,) = re.findall(r"^  MIN_DECIDED: (\S+)", text, re.MULTILINE)
    command = command.replace("$PROFILE", "quick").replace("$MIN_DECIDED", decided)
    chosen = compare.arguments(shlex.split(command))
    assert chosen.run and chosen.format == "markdown" and chosen.profile == "quick" and chosen.min_decided == 0.5


# --- the real thing --------------------------------------------------------------------------------------------------

PLANT = """
import importlib.util, sys, timeit

SHARE = 0.10  # of the route's own time, measured here

def plant(torch):
    import numpy
    original, a = torch.as_tensor, numpy.zeros(8)

    def slower(turns):
        extra = tuple(range(turns))
        def as_tensor(a):
            for _ in extra:
                pass
            return original(a)
        return as_tensor

    def seconds(function):
        names = {"function": function, "a": a}
        return min(timeit.repeat("function(a)", globals=names, number=20_000, repeat=7))

    goal, turns = (1 + SHARE) * seconds(original), 0
    while seconds(slower(turns)) < goal and turns < 1000:
        turns += 1
    torch.as_tensor = slower(turns)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            plant(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


def slower_python(directory):
    """A virtual environment with this one's packages, in which a wrapper makes torch.as_tensor 10 % slower."""
    venv.create(directory, with_pip=False, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site / "planted.pth").write_text("\n".join([*packages, "import planted"]) + "\n")
    (site / "planted.py").write_text(PLANT)
    return directory


def collected(directory, targets, only, rounds):
    """Both sides measured in turns, as --run does; the verdict."""
    sides = interleave.prepare(directory, [interleave.target(str(target)) for target in targets])
    found = interleave.cells_to_measure(sides[0], "tester", "standard", only)
    about = {"id": "1", "stage": 1, "machine": "tester", "profile": "standard", "only": only, "command": "test"}
    done = []
    interleave.collect(sides, found, rounds, about, done.append)
    assert done == [len(found) * k for k in range(1, 2 * rounds + 1)]
    return compare.compare_files(str(sides[0].root), str(sides[1].root), None, Settings())


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_both_sides_are_measured_in_turns(tmp_path, home):
    """No verdict from two processes, but the collection is whole: same cells, pairs, records that belong together."""
    result = collected(
        tmp_path, ["installed", sys.executable], r"conversion.NumpyToTorch.*'torch\.from_numpy\(a\)'.*, 8\)", 2
    )
    assert result.interleaved and len(result.cells) == 1
    for side in ("base", "new"):  # how many of them were calm is the machine's business
        (taken,) = (tmp_path / side).rglob(f"*{calm.SUFFIX}")
        assert {line["round"] for line in calm.read(taken)} >= {0, 1}
        assert set(result.cells[f"{side}_processes"]) <= {1, 2, 3, 4}  # rounds more of what was not calm, at most two
    assert result.base["toolchain"] == result.new["toolchain"]
    assert result.exit_code == 2 and set(result.cells["verdict"]) == {INCONCLUSIVE}


def test_a_side_that_cannot_measure_says_why(tmp_path, home):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    with pytest.raises(UserError, match="base: .*asv") as caught:
        collected(tmp_path / "run", [tmp_path / "bare", "installed"], "", 1)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.skipif("TIMED_TESTS" not in os.environ, reason="times for a minute on a quiet machine: set TIMED_TESTS=1")
def test_a_planted_slowdown_is_found_with_four_processes(tmp_path, home):
    """Three alias routes at four sizes, one of the routes 10 % slower by a wrapper: it is found, and nothing else."""
    only = r"NumpyToTorch.*'torch\.(from_numpy|as_tensor|asarray)\(a\)', 'float32', (8|4096|65536|1048576)\)"
    result = collected(tmp_path / "run", ["installed", slower_python(tmp_path / "slower")], only, compare.ROUNDS)
    assert result.interleaved and len(result.cells) == 12 and set(result.cells["base_processes"]) == {4}
    slower = result.cells[result.cells["verdict"] == SLOWER]
    told = words.text(result, True)
    print(told)
    assert set(slower["route"]) == {"torch.as_tensor(a)"}, told
    assert result.exit_code == 1


def test_every_cell_of_real_results_can_be_told_and_drawn(committed, tmp_path):
    """Of each committed machine its largest result file: every family and parameter that it has."""
    results = committed / "reports" / "results"
    shutil.copytree(results, tmp_path / "results")
    machines = [path.parent for path in results.glob("*/machine.json")]
    assert machines
    for machine in machines:
        file = max(machine.glob("*-toolchain-*.json"), key=lambda path: path.stat().st_size)
        copy = tmp_path / "results" / machine.name / file.name
        compared = compare.compare_files(str(file), str(copy), None, Settings())
        told = words.text(compared, True), words.markdown(compared, True, "compare"), words.as_json(compared, "compare")
        assert all(len(text) > 1000 for text in told), file
        assert told[0].count("torch.from_numpy(a)") > 10 and "all threads" in told[0], file
        assert comparison_figure.forest(compared).file.count("<svg") == 1, file


@pytest.fixture
def history(committed):
    """The result files of a committed history's machine."""
    (page,) = (committed / "reports" / "history").glob("*/")
    return committed / "reports" / "results" / page.name


def test_releases_of_a_real_history_can_be_compared(history):
    """A run each, hours apart: what changed a lot is found, and what failed in the older one is said to."""
    first, last = (ledger.series("torch")[place].commit[:8] for place in (0, -1))
    files = [next(history.glob(f"{commit}-*.json")) for commit in (first, last)]
    compared = compare.compare_files(str(files[0]), str(files[1]), None, Settings())
    found = compared.cells.set_index("cell")["verdict"]
    assert found["conversion.NumpyToTorch.timeit_convert('torch.tensor(a.tolist())', 'float32', 4096)"] == SLOWER
    assert compared.counts[FAILED] == 2 and compared.counts[FASTER] > 100 and not compared.withheld
    assert "learnt from toolchains that were measured twice here" in words.text(compared, False)


def test_a_release_is_no_slower_than_itself(history):
    """Where the histories cross, one toolchain was measured for each, an hour apart: a real A/A across sessions."""
    same = [one for one in ledger.history("torch") if one.version == "2.13.0"]
    same += [one for one in ledger.history("numpy") if one.version == same[0].numpy]
    files = [next(history.glob(f"{one.commit[:8]}-*.json")) for one in same]
    compared = compare.compare_files(str(files[0]), str(files[1]), None, Settings())
    assert len(compared.cells) > 300 and not compared.counts[SLOWER] + compared.counts[FASTER]


def test_a_broken_file_of_another_toolchain_is_no_obstacle(tmp_path):
    """What sessions differ by is learnt from other files; where those cannot be read, it is inferred as before."""
    root, releases = tmp_path / "results", ledger.history("torch")[:3]
    for toolchain in releases:
        made = {"tag": toolchain.tag, "torch": toolchain.torch, "numpy": toolchain.numpy}
        records = [resultfiles.record([], toolchain=made, rounds=4)]
        resultfiles.write(root, [resultfiles.memcpy({8: [1e-7] * 4})], commit=toolchain.commit, records=records)
    one, other, broken = (next((root / "box").glob(f"{toolchain.commit[:8]}-*.json")) for toolchain in releases)
    broken.with_suffix(".jsonl").write_text("{")
    compared = compare.compare_files(str(one), str(other), None, Settings())
    assert len(compared.cells) == 1 and not compared.sessions
