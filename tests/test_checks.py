"""check.py: planted changes are exact, verdicts follow from the figures, errors are one line."""

import contextlib
import functools
import itertools
import json
import math
import os
import random
import shutil
import sys
import time
from pathlib import Path

import check
import cli
import numpy as np
import pandas as pd
import psutil
import pytest
import sides
from analysis.answers import answer
from analysis.cells import cells_of
from analysis.costs import last_run, machine_answers
from analysis.estimates import MEASURED
from analysis.needs import Case, choices
from analysis.ranking import GOOD
from analysis.results import load_files
from analysis.verdicts import FASTER, SLOWER
from checking import advice, history, peers, planted, power
from checking import question as questions
from conftest import ROOT, run
from made_histories import SERIES, counting, logs_of, write
from measuring.engine import copy_code
from measuring.profiles import PROFILES, select
from pages import comparison_words, show
from pages.case_answer import row_case
from resultfiles import SUITE

from benchmarks.contracts import ALIAS, ALL_THREADS, COPY, INTO, ONE_THREAD

LAB_NOTES = (ROOT / "docs" / "lab-notes.md").read_text(encoding="utf-8")

# Noise --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes cannot be pinned here")
def test_one_noisy_process_on_every_core_while_the_block_runs():
    with planted.disturb_cores() as pids:
        time.sleep(0.5)
        noisy = [psutil.Process(pid) for pid in pids]
        assert sorted(each.cpu_affinity() for each in noisy) == sorted([core] for core in os.sched_getaffinity(0))
        for each in noisy:
            each.cpu_percent()  # the next call says it since this one
        time.sleep(1.5)
        # 50 % of a free core, less if other processes use it
        assert all(2 < each.cpu_percent() < 80 for each in noisy)
    assert not any(map(psutil.pid_exists, pids))


def test_noise_that_stopped_is_no_noise_and_the_rest_of_it_ends():
    with pytest.raises(cli.UserError), planted.disturb_cores() as pids:
        psutil.Process(pids[0]).kill()
        os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOWAIT)
    assert not any(map(psutil.pid_exists, pids))


def test_a_program_of_a_copy_has_failed_unless_it_is_a_comparison_with_verdicts(tmp_path, capfd):
    (tmp_path / "exits.py").write_text("import sys; print(*sys.argv[2:]); sys.exit(int(sys.argv[1]))")
    assert planted.call(tmp_path, "exits.py", "1") == f"--machine {planted.MACHINE}\n"
    assert planted.call(tmp_path, "exits.py", "0", stdout=sys.stderr.fileno()) == "" != capfd.readouterr().err
    with pytest.raises(cli.UserError, match=f"^exits.py in {tmp_path.name} ended with exit status 3$"):
        planted.call(tmp_path, "exits.py", "3")
    with pytest.raises(SystemExit):  # it has said why, in one line
        planted.call(tmp_path, "exits.py", "2", stdout=sys.stderr.fileno())


# A slowdown by construction -------------------------------------------------------------------------------------------

LOOK = """
import json, sys
from asv_runner.discovery import get_benchmark_from_name
benchmark = get_benchmark_from_name(sys.argv[1], "conversion.NumpyToTorch.timeit_convert")
from benchmarks.core.statement import timeit  # of the copy, which discovery has imported
timer = timeit.Timer
for route in sys.argv[2:]:
    benchmark._current_params = cell = (route, "float32", 4096)
    assert not benchmark.do_setup()
    statement, names, *calls = benchmark.func(*cell)
    same = [benchmark.name, benchmark.version, *benchmark.param_names, *calls]
    made = []
    timeit.Timer = lambda *args, **names: made.append(timer(*args, **names)) or made[-1]
    seconds = min(benchmark.run(*cell)["samples"])
    repeats = len(names.get("repeats", [0]))
    found = {"timer": type(made[0]).__module__, "seconds": seconds, "repeats": repeats}
    print(json.dumps({"same": same, "statement": statement, **found}))
"""


def looked_at(directory, change, *routes):
    """Yield, of each route, facts about its benchmark on two sides; the second has the change that a check plants."""
    pytest.importorskip("torch")
    found = []
    for side in ("base", "new-fresh"):
        copy_code(ROOT, directory / side)
        planted.plant(directory / side, *change)
        place = directory / side / "benchmarks"
        done = run(sys.executable, "-c", LOOK, place, *routes, home=directory, CONVERSION_PATIENCE="0")
        assert not done.returncode, done.stderr
        found.append(map(json.loads, done.stdout.splitlines()))
    return zip(*found, strict=True)


COPIED = power.QUESTIONS["copy"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "code, slowed, other, calls",
    [
        (planted.SLOWDOWN, planted.ROUTE, "torch.as_tensor(a)", (10, 11)),
        (power.slowdown_code(COPIED, 0.03), COPIED.slowed, COPIED.unchanged, (33, 34)),
    ],
)
def test_one_side_makes_more_calls_as_one_measurement(tmp_path, code, slowed, other, calls):
    changed, unchanged = looked_at(tmp_path, ("conversion.py", code), slowed, other)
    for (base, new), statement, made, counted in (
        (changed, f"for _ in repeats: {slowed}", calls, [calls[0]]),
        (unchanged, other, (1, 1), []),
    ):
        assert [(side["statement"], side["repeats"]) for side in (base, new)] == [(statement, count) for count in made]
        assert base["same"] == new["same"] and base["same"][2:] == ["route", "dtype", "nbytes", *counted]


@pytest.mark.parametrize(
    "name, slowdown, slowed, unchanged, code",
    [
        ("call", "", [SLOWER] * 20, ["no change"] * 20, 0),
        ("call", "", [SLOWER] * 19 + [FASTER], ["no change"] * 20, 0),
        ("call", "", [SLOWER] * 18 + [FASTER] * 2, ["no change"] * 20, 1),
        ("large", "", [SLOWER] * 18 + ["no change"] * 2, ["no change"] * 20, 0),
        ("copy", "", [SLOWER] * 20, ["no change"] * 19 + [FASTER], 1),
        ("call", "2%", ["no change"] * 20, ["no change"] * 20, 0),  # nothing is promised of less than 3 %
    ],
)
def test_power_is_the_share_of_planted_slowdowns_that_are_found(
    monkeypatch, capsys, name, slowdown, slowed, unchanged, code
):
    question = power.QUESTIONS[name]
    reports = (
        {"cells": [{"route": r, "verdict": v, "ratio": 1.0} for r, v in zip(question[:2], verdicts)]}
        for verdicts in zip(slowed, unchanged)
    )
    monkeypatch.setattr(power, "compare_with_itself", lambda *_: next(reports))
    options = ["--slowdown", slowdown] if slowdown else []
    assert check.main(["power", "--of", name, *options]) == code
    line = (
        f"{question.slowed}, {show.size(question.nbytes)}, {slowdown[:1] or round(100 * question.slowdown)} % slower: "
    )
    assert f"{line}{slowed.count(SLOWER)} of 20 flagged, median ratio 1.000, 0.0 minutes" in capsys.readouterr().out


COMPARED = "Mean +- std dev: [base] 3.30 us +- 0.10 us -> [new] 3.40 us +- 0.10 us: "
TABLE = "| Change   | Before   | After   | Ratio | Benchmark      |\n|----------|----------|---------|-------|---|\n"


@pytest.mark.parametrize(
    "tool, printed, verdict",
    [
        ("pyperf", f"{COMPARED}1.03x slower\n", SLOWER),
        ("pyperf", f"{COMPARED}1.03x faster\n", FASTER),
        ("pyperf", "Benchmark hidden because not significant (1): call\n", "no change"),
        ("asv", f"{TABLE}| +        | 3.30±0μs | 3.40±0μs | 1.03 | call.Call.time_call |\n", SLOWER),
        ("asv", f"{TABLE}| -        | 3.40±0μs | 3.30±0μs | 0.97 | call.Call.time_call |\n", FASTER),
        ("asv", f"{TABLE}|          | 3.40±0μs | 3.40±0μs | 1.00 | call.Call.time_call |\n", "no change"),
    ],
)
def test_the_same_slowdown_is_put_to_other_tools(tool, printed, verdict, tmp_path, monkeypatch):
    """Both sides time the same statement; only the number of calls differs."""
    commands = []
    monkeypatch.setattr(peers, "find_spec", lambda _: True)
    monkeypatch.setattr(peers, "run", lambda place, *command: commands.append(command) or printed)
    assert power.PEERS[tool](tmp_path, power.sides_of(COPIED, 0.03)) == verdict
    said = " ".join(itertools.chain(*commands)) + "".join(path.read_text() for path in tmp_path.rglob("*.py"))
    assert COPIED.slowed in said and "range(34)" in said


# The command ----------------------------------------------------------------------------------------------------------


def test_what_noise_does(pair, tmp_path, monkeypatch, capsys, snapshot):
    """The noise check compares two runs, and must find a planted slowdown and nothing else.

    The two runs are equal, or 2 of 24 cells differ by a third (which is flagged), or all cells differ by a tenth. In
    the last case the slowdown was not measured, so it is not found.
    """
    base, new, again = *map(Path, pair), Path(shutil.copytree(pair[0], tmp_path / "again"))
    far = Path(sides.write(tmp_path / "far", sides.cells(0, dict.fromkeys(EVERY, 1.1))))
    monkeypatch.setattr(planted, "ROOT", tmp_path)
    codes = []
    for other, verdicts in ((again, (SLOWER, "no change")), (new, ("no change", SLOWER)), (far, ())):
        cells = [{"route": route, "verdict": verdict} for route, verdict in zip((planted.ROUTE, "other"), verdicts)]
        monkeypatch.setattr(planted, "compare_with_itself", lambda *_, cells=cells: {"cells": cells})
        monkeypatch.setattr(planted, "measure_twice", lambda *_, other=other: [base, other])
        codes.append(check.main(["noise", "--condition", "quiet"]))
    assert (codes, [said for said in capsys.readouterr().out.splitlines() if ".asv" not in said]) == snapshot


@pytest.mark.parametrize("words", ["timing --only", "noise --condition", "advice --cases", "history --before"])
def test_each_check_has_its_own_options(words, called):
    name, option = words.split()
    code, said, _ = called(check, name, "--help")
    assert code == 0 and option in said


@pytest.mark.parametrize(
    "command, says",
    [
        ("speed", "invalid choice: 'speed'"),
        ("advice --machine x", "name one with results"),
        ("history nobody", "holds no results of nobody"),
        pytest.param("history intel-emerald-rapids-2-core-vm", "no history of times", marks=pytest.mark.slow),
    ],
)
def test_mistakes_are_one_line_before_anything_is_measured(command, says, monkeypatch, refusal):
    monkeypatch.setattr(planted, "compare_with_itself", lambda *_: pytest.fail("it measured"))
    assert says in refusal(check, *command.split())


# Timing: one side is timed by torch's Timer, bias is called bias and noise noise ------------------------------------

MARGINS = {"min_effect": planted.MAX_DEVIATION, "equivalence": planted.MAX_DEVIATION + 0.001, "min_decided": 0}
EVERY = [*sides.cells(0)]
COPIES = [cell for cell in EVERY if cell[0] == sides.ROUTES[1]]
# Difference of the suite's side from torch's: factor by cell, standard deviation of processes, exit code
DIFFERENCES = {
    "honest": ({}, 0.005, 0),
    "too noisy": ({}, 0.2, 2),
    "a timer that reads a tenth too much": (dict.fromkeys(EVERY, 1.1), 0.005, 1),
    "three percent: no cell, but the median one": (dict.fromkeys(EVERY, 1.03), 0.005, 1),
    "the copies alone, as of a warm-up left out": (dict.fromkeys(COPIES, 3.0), 0.005, 1),
    "one cell": ({EVERY[5]: 1.15}, 0.005, 1),
    "in noise, cell by cell or in the median": (dict.fromkeys(EVERY, 1.3), 0.06, 1),
}


@pytest.mark.parametrize("change, sd, code", DIFFERENCES.values(), ids=DIFFERENCES)
def test_bias_and_noise(change, sd, code, tmp_path, monkeypatch, capsys, snapshot):
    """The output has a row per biased cell and a summary of all cells."""
    torch = sides.write(tmp_path / "base", sides.cells(0, sd=sd), record=sides.together("base"))
    suite = sides.write(tmp_path / "new", sides.cells(1, change, sd=sd), record=sides.together("new"))
    said = json.loads(comparison_words.as_json(sides.compared(torch, suite, **MARGINS), ""))
    monkeypatch.setattr(planted, "ROOT", tmp_path)
    monkeypatch.setattr(planted, "compare_with_itself", lambda *_: said)
    assert check.main(["timing"]) == code
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if not line.endswith(("no change", "inconclusive"))] == snapshot


def test_the_median_of_honest_cells_is_within_its_interval():
    """The median's interval misses 0 in about 1 % of unbiased runs; a shift of 2 % lies outside of it."""
    intervals = [planted.median_interval(np.random.default_rng(seed).normal(0, 0.03, 185)) for seed in range(100)]
    assert sum(not low <= 0 <= high for low, high in intervals) <= 4
    assert planted.median_interval(np.zeros(planted.MIN_CELLS - 1)) == (-math.inf, math.inf)


@pytest.mark.slow
def test_one_side_is_timed_by_torch_and_both_are_one_measurement(tmp_path):
    ((base, new),) = looked_at(tmp_path, ("core/statement.py", planted.TORCH), "torch.from_numpy(a).clone()")
    assert base["same"] == new["same"]
    assert (base["timer"], new["timer"]) == ("benchmarks.core.statement", "timeit")
    assert 1 / 3 < base["seconds"] / new["seconds"] < 3, "seconds a call, both"


def test_what_cannot_be_measured_says_so():
    with pytest.raises(cli.UserError, match="no cell was timed on both sides"):
        planted.judge_timing({"cells": [{"ratio": None, "route": "x"}]})


# Advice: regret, predictions, and what noise may not be blamed for --------------------------------------------------

CASE = Case("numpy", "torch", 3072, threads=ONE_THREAD)


def timed(predictions, logs):
    """Predictions with the log seconds of their processes, (routes, processes), all of them quiet."""
    return predictions.assign(logs=[*logs], quiet_logs=[*logs])


@pytest.mark.parametrize(
    "seconds, regrets",
    [
        ([(1.2, 1.3, 1.4), (1, 1, 1), (2, 2, 2)], [0.2, 0.3, 0.4]),
        ([(1, 1), (2, 2)], [0, 0]),  # the advised one is the best
        ([(math.nan, math.nan), (1, 1)], []),  # cells without quiet samples are not judged
        # two equally fast routes: the best is chosen by other processes than the one that judges it
        ([(1, 1, 1, 1), (0.9, 1.1, 0.9, 1.1)], [1 / 1.1 - 1, 1 / 1.1 - 1, 0, 0]),
    ],
)
def test_regret_is_what_the_best_takes_less(seconds, regrets):
    assert advice.regrets(np.log(seconds)) == pytest.approx(regrets)


@pytest.mark.parametrize("sd, share", [(0.02, 0), (0.05, 0.005), (0.08, 0.015)])
def test_chance_alone_breaks_no_promise_on_regret(sd, share):
    """Of five processes each, 4 % would be above for two equally fast routes whose processes differ by 8 %."""
    regrets = []
    for drawn in np.random.default_rng(1).normal(0, sd, (400, 2, questions.MAX_REFERENCE_ROUNDS)):
        logs = drawn - drawn.mean(axis=0)  # as measured.shared_level does
        parts = (logs[:, :count] for count in range(1, logs.shape[1] + 1))
        reference = next(filter(questions.is_precise, parts), logs)
        regrets.append(questions.regret_of("a", ["a", "b"], reference))
    assert np.mean(np.array(regrets) > questions.MAX_REGRET) <= share
    assert questions.is_precise(np.vstack([logs[:1], np.full_like(logs[:1], math.nan), logs[1:]])), "one route noisy"


@pytest.mark.parametrize(
    "regret, predicted, code",
    [
        ([0.0] * 9 + [0.19], [1.1] * 10, 0),
        ([0.0] * 9 + [0.21], [1.1] * 10, 1),  # the largest
        ([0.04] * 10, [1.1] * 10, 1),  # in the mean
        ([0.0] * 10, [1.1] * 8 + [1.2] * 2, 1),  # predicted times
        ([0.0] * 10, [(1.0, 1.5)] * 9 + [1.1, (1.2, 3.0)], 0),  # nine ranges in ten
        ([0.0] * 10, [(1.0, 1.5)] * 8 + [1.1, (1.2, 3.0)], 1),
        ([0.0] * 10, [(0.0, 9.0)] * 8 + [1.1, (0.0, 0.9)], 0),  # upper bounds
        ([0.0] * 10, [(0.0, 9.0)] * 8 + [1.1, (0.0, 0.8)], 1),
        ([0.0] * 4, [1.1] * 10, 2),  # of ten asked
    ],
)
def test_the_exit_status_follows_from_regrets_and_ranges(regret, predicted, code):
    """Exit code by regrets and predicted seconds, where all routes take 1 s."""
    ends = [each if isinstance(each, tuple) else (each, each) for each in predicted]
    routes = pd.DataFrame(ends, columns=["least", "most"]).assign(case=CASE, route="f(a)")
    judged = advice.judge(timed(routes, np.zeros((len(routes), 2))))[1]
    assert advice.exit_status(10, pd.Series(regret), judged) == code


def test_cases_are_drawn_of_all_that_somebody_may_have():
    """Drawn cases cover all layouts, memories, dtypes and sources; their sizes are in no profile."""
    rng = random.Random(0)
    cases = [advice.draw_case(ALL_THREADS, rng) for _ in range(500)]
    assert {case.layout for case in cases} == set(advice.LAYOUTS)
    assert {case.memory for case in cases} == {COPY, INTO, ""}
    assert {case.dtype for case in cases} >= set(advice.DTYPES) and len({case.source for case in cases}) == 2
    lists = [case.batch for case in cases if case.batch]
    assert 80 < len(lists) < 150 and min(lists) < 10 and max(lists) > 10_000
    assert {(case.dtype, case.goal) for case in cases if case.goal} == set(advice.CASTS)
    assert {len(case.shape) for case in cases} == {0, 3}
    assert min(case.total for case in cases) < 6 * 2**10 and max(case.total for case in cases) > 2**27
    assert not any(case.total.bit_count() == 1 for case in cases if not case.batch)


def test_questions_are_the_same_for_a_seed_and_others_for_another(known):
    one, same, other = ([*advice.draw_predictions(known, ONE_THREAD, 5, seed)["case"].unique()] for seed in (0, 0, 1))
    assert one == same != other and len(one) == 5


def test_a_case_that_is_drawn_twice_is_asked_once(known, monkeypatch):
    """Two rows of one route in a case could not be told apart."""
    monkeypatch.setattr(advice, "draw_case", lambda *_: Case("numpy", "torch", 2**20, memory=COPY, threads=ONE_THREAD))
    assert not advice.draw_predictions(known, ONE_THREAD, 5, 0)["route"].duplicated().any()


def test_a_prediction_is_judged_by_quiet_processes_alone():
    """Turns decide regret whatever the noise; but a time is only right or wrong where it was quiet."""
    asked = pd.DataFrame({"case": [CASE] * 2, "route": ["f(a)", "g(a)"], "least": [1.0, 1.0], "most": [1.0, 1.0]})
    logs = np.log([[3.0, 3.0], [2.0, 2.0]])
    quiet_logs = [np.log([1.1, math.nan]), np.full(2, math.nan)]
    cases, routes = advice.judge(asked.assign(logs=[*logs], quiet_logs=quiet_logs))
    assert [*cases["regret"]] == pytest.approx([0.5]) and [*routes["route"]] == ["f(a)"]
    assert [*routes["error"]] == pytest.approx([math.log(1.1)])


def test_summary_names_the_worst(snapshot):
    ends = {"least": [1e-6] * 3, "most": [1e-6, 1e-6, 1.2e-6]}
    asked = pd.DataFrame({"case": [CASE] * 3, "route": ["f(a)", "g(a)", "h(a)"], **ends})
    cases, routes = advice.judge(timed(asked, np.log([[1.5e-6] * 2, [1e-6] * 2, [1.1e-6] * 2])))
    assert list(advice.summary_lines(2, 1, cases, routes)) == snapshot


@pytest.mark.parametrize("machine, title", [("amd-epyc-turin", "Zen 5"), ("intel-emerald-rapids", "Emerald Rapids")])
def test_sizes_that_a_quick_run_lacks_are_predicted_from_its_own(committed, machine, title):
    """A quick profile predicts the other sizes of published standard profiles; docs/lab-notes.md has the shares."""
    machine, place = f"{machine}-2-core-vm", committed / "reports" / "results"
    results = load_files(place, last_run(place, machine)[1])
    cells = cells_of(results)
    taken = {cell for chosen in select(PROFILES["quick"], SUITE).values() for cell in chosen}
    every, known = (
        machine_answers(results, machine, own, choices(own)) for own in (cells, cells[cells["cell"].isin(taken)])
    )
    moved = every.rows[(every.rows["memory"] != ALIAS) & every.rows["kind"].isin(GOOD) & every.rows["quiet"]]
    asked, ranked = [], functools.cache(lambda case: answer(case, known).ranked)  # routes of a need share their case
    for row in moved[moved["nbytes"].between(2**12, 2**28)].itertuples():
        with contextlib.suppress(cli.UserError):  # the quick profile lacks this need
            found = [each for each in ranked(row_case(row)) if each.route == row.route]
            predicted = (each for each in found if each.how != MEASURED)
            asked += [(row_case(row), row.route, *advice.predicted_range(each), row.seconds) for each in predicted]
    asked = pd.DataFrame(asked, columns=["case", "route", "least", "most", "seconds"])
    _, routes = advice.judge(timed(asked, np.log(asked[["seconds", "seconds"]].to_numpy())))
    times, ranges, *bounds = advice.kept_promises(routes).values()
    shares = [f"{show.percent(each.mean())} of {len(each)}" for each in (times, ranges, *bounds)]
    assert f"| {title} | {' | '.join([*shares, 'none'][:3])} |" in LAB_NOTES
    assert len(times) + len(ranges) > 90
    assert all(len(each) >= 15 and each.mean() >= advice.MIN_RIGHT_SHARE for each in (times, ranges))


# History: agreement of two histories of the same toolchains, made up and committed ------------------------------------


def changed(seed, at=5, spread=0.005):
    """Log seconds of a history: release ``at`` slows ten calls by 10 %; sessions differ by ``spread`` (sd)."""
    logs = logs_of(seed) + np.random.default_rng(seed).normal(0, spread, (len(SERIES), 12, 1))
    logs[at:, :10] += math.log(1.1)
    return logs


@pytest.mark.slow
@pytest.mark.parametrize(
    "now, before, counts, code",
    [
        # the machine takes 2 % longer for all routes that day
        pytest.param(changed(60) + math.log(1.02), changed(61), 1.0, 0, id="repeats"),
        pytest.param(changed(62), changed(63, at=9), 1.02, 1, id="does not repeat"),
        pytest.param(changed(66), changed(65, spread=0.05), 1.0, 1, id="sessions differ by more than is said"),
    ],
)
def test_a_second_history_is_compared_with_the_first(
    now, before, counts, code, tmp_path, monkeypatch, capsys, snapshot
):
    """Compare a new history with that of a revision. counts: ratio of new to old instruction counts."""
    then = write(tmp_path / "then", before, extra=counting(lambda *_: 1.0))
    monkeypatch.setattr(history, "RESULTS", write(tmp_path / "now", now, extra=counting(lambda *_: counts)))
    monkeypatch.setattr(history, "load_histories_at", lambda machine, name: history.load_histories(machine, then))
    assert (check.main(["history", "box", "--before", "REV"]), capsys.readouterr().out) == (code, snapshot)


@pytest.mark.slow
def test_results_of_a_revision_are_read_from_git(committed, tracked, monkeypatch):
    def held(machine, place):
        every = [place / "benchmarks.json", *(place / machine).glob("*")]
        return {path.relative_to(place): path.read_bytes() for path in every}

    monkeypatch.setattr(history, "load_histories", held)
    assert history.load_histories_at(tracked, "HEAD") == held(tracked, committed / "reports" / "results")
    with pytest.raises(cli.UserError, match="no-such: no git revision"):
        history.load_histories_at(tracked, "no-such")
