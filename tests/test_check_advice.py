"""What scripts/check.py advice makes of figures: regret, predictions, and what noise may not be blamed for."""

import math
import random
import sys

import check
import made_up
import pytest
from analysis.case import Case
from analysis.choices import every
from checking import advice
from checking.advice import Cell, Question
from conftest import ROOT, run

from benchmarks.contracts import ALL_THREADS, CONTIGUOUS, COPY, INTO, ONE_THREAD

CASE = Case("numpy", "torch", 3072, threads=ONE_THREAD)


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return every(made_up.results_in(tmp_path_factory.mktemp("known")))[0]


def question(*readings):
    """One that was answered by a route with the first readings, in seconds; the others are its rivals'."""
    cells = [Cell(CASE, f"route{n}(a)", 1e-6) for n in range(len(readings))]
    for cell, seconds in zip(cells, readings):
        cell.readings = [math.log(each) for each in seconds]
    return Question(tuple(cells))


def test_regret_is_what_the_best_takes_less():
    asked = question((1.2e-6, 1.3e-6, 1.4e-6), (1e-6, 1e-6, 1e-6), (2e-6, 2e-6, 2e-6))
    assert asked.best is asked.cells[1]
    assert asked.regrets == pytest.approx([0.2, 0.3, 0.4]) and asked.regret == pytest.approx(0.3)


def test_the_best_is_not_chosen_by_the_process_that_it_is_judged_by():
    """Two routes that are as fast as each other: each wins in one process, and there is no regret in that."""
    asked = question((1e-6, 1e-6, 1e-6, 1e-6), (0.9e-6, 1.1e-6, 0.9e-6, 1.1e-6))
    assert asked.regret <= 0.0


def test_a_faster_advice_than_the_rest_has_none():
    asked = question((1e-6, 1e-6), (2e-6, 2e-6))
    assert asked.regret == 0 and asked.regrets == [0, 0]


def test_what_was_never_quiet_is_not_judged():
    asked = question((math.nan, math.nan), (1e-6, 1e-6))
    assert asked.best is None and math.isnan(asked.regret)


@pytest.mark.parametrize(
    "regret, errors, code",
    [
        ([0.0] * 9 + [0.19], [0.1] * 10, 0),
        ([0.0] * 9 + [0.21], [0.1] * 10, 1),  # the largest
        ([0.04] * 10, [0.1] * 10, 1),  # in the mean
        ([0.0] * 10, [0.1] * 8 + [0.2] * 2, 1),  # predictions
        ([0.0] * 4, [0.1] * 10, 2),  # of ten asked
    ],
)
def test_verdict(regret, errors, code):
    pairs = [(value, None) for value in regret]
    assert advice.Verdict(10, pairs, [(value, None) for value in errors]).code == code


def test_cases_are_drawn_of_all_that_somebody_may_have():
    """And none is of a size that a profile has."""
    rng = random.Random(0)
    cases = [advice.drawn(ALL_THREADS, rng) for _ in range(500)]
    assert {case.layout for case in cases} == set(advice.LAYOUTS) and {case.memory for case in cases} == {COPY, INTO}
    assert {case.dtype for case in cases} == set(advice.DTYPES) and len({case.direction for case in cases}) == 2
    assert 50 < sum(bool(case.batch) for case in cases) < 150
    assert min(case.total for case in cases) < 6 * 2**10 and max(case.total for case in cases) > 2**27
    assert not any(case.total.bit_count() == 1 for case in cases)


def test_questions_are_the_same_for_a_seed_and_others_for_another(known):
    one, same, other = ([asked.case for asked in advice.questions(known, ONE_THREAD, 5, seed)] for seed in (0, 0, 1))
    assert one == same != other and len(one) == 5


def test_a_cell_is_timed_by_the_benchmark_of_its_family():
    cases = {
        "conversion.NumpyToTorch": Case("numpy", "torch", 3072, threads=ONE_THREAD),
        "parallel.TorchToNumpy": Case("torch", "numpy", 3072, threads=ALL_THREADS),
        "layout.TorchToNumpy": Case("torch", "numpy", 3072, layout="strided", threads=ONE_THREAD),
        "parallel.LayoutToTorch": Case("numpy", "torch", 3072, layout="strided", threads=ALL_THREADS),
        "batches.TensorsToArray": Case("torch", "numpy", 3072, batch=64, threads=ONE_THREAD),
        "parallel.ArraysToTensor": Case("numpy", "torch", 3072, batch=64, threads=ALL_THREADS),
    }
    for name, case in cases.items():
        found, params = Cell(case, "f(a)", 1e-6).benchmark()
        assert found == f"{name}.timeit_convert" and params[0] == "f(a)" and params[-1] == case.total
        assert (ALL_THREADS in params) == (case.threads == ALL_THREADS)
        assert ("float32" in params) == (case.layout == CONTIGUOUS and not case.batch)


def test_summary_names_the_worst():
    asked = question((1.5e-6, 1.5e-6), (1e-6, 1e-6))
    found = advice.Verdict(1, [(0.5, asked)], [(0.4, asked.cells[0])])
    lines = "\n".join(check.summary(2, found))
    assert lines.startswith("2 torch threads: 1 of 1 cases judged\n")
    assert "regret of the median process: mean 50.0 %, maximum 50.0 %" in lines
    assert "route0(a) took 1.50 µs, route1(a) 1.00 µs" in lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, says",
    [
        (("--cases", "0"), "whole numbers"),
        (("--processes", "0"), "whole numbers"),
        (("--machine", "nobody"), "whose results?"),
    ],
)
def test_mistakes_are_one_line(options, says, tmp_path):
    done = run(sys.executable, ROOT / "scripts" / "check.py", "advice", *options, home=tmp_path)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1
