"""What scripts/check_advice.py makes of figures: regret, predictions, and what noise may not be blamed for."""

import math
import sys

import check_advice
import made_up
import pytest
from analysis.case import INTO, Case, answer
from analysis.choices import every
from checking import advice
from checking.advice import Cell, Question
from conftest import ROOT, run


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return every(made_up.results_in(tmp_path_factory.mktemp("known")))[0]


def question(known, *readings):
    """One that was answered by a route with the first readings, in seconds; the others are its rivals'."""
    cells = [Cell(("numpy", "torch"), f"route{n}(a)", "float32", 3072, 1e-6) for n in range(len(readings))]
    for cell, seconds in zip(cells, readings):
        cell.readings = [math.log(each) for each in seconds]
    return Question(Case("numpy", "torch", 3072), answer(Case("numpy", "torch", 3072), known), tuple(cells))


def test_regret_is_what_the_best_takes_less(known):
    asked = question(known, (1.2e-6, 1.3e-6, 1.4e-6), (1e-6, 1e-6, 1e-6), (2e-6, 2e-6, 2e-6))
    assert asked.best is asked.cells[1]
    assert asked.regrets == pytest.approx([0.2, 0.3, 0.4]) and asked.regret == pytest.approx(0.3)


def test_the_best_is_not_chosen_by_the_process_that_it_is_judged_by(known):
    """Two routes that are as fast as each other: each wins in one process, and there is no regret in that."""
    asked = question(known, (1e-6, 1e-6, 1e-6, 1e-6), (0.9e-6, 1.1e-6, 0.9e-6, 1.1e-6))
    assert asked.regret <= 0.0


def test_a_faster_advice_than_the_rest_has_none(known):
    asked = question(known, (1e-6, 1e-6), (2e-6, 2e-6))
    assert asked.regret == 0 and asked.regrets == [0, 0]


def test_what_was_never_quiet_is_not_judged(known):
    asked = question(known, (math.nan, math.nan), (1e-6, 1e-6))
    assert asked.best is None and math.isnan(asked.regret)


@pytest.mark.parametrize(
    "regret, errors, code",
    [
        ([0.0] * 9 + [0.19], [0.1] * 10, 0),
        ([0.0] * 9 + [0.21], [0.1] * 10, 1),  # at worst
        ([0.04] * 10, [0.1] * 10, 1),  # in the mean
        ([0.0] * 10, [0.1] * 8 + [0.2] * 2, 1),  # predictions
        ([0.0] * 4, [0.1] * 10, 2),  # of ten asked
    ],
)
def test_verdict(regret, errors, code):
    pairs = [(value, None) for value in regret]
    assert advice.Verdict(10, pairs, [(value, None) for value in errors], 1.0).code == code


def test_questions_are_of_what_no_profile_has(known):
    from measuring.profiles import KIB, MIB

    usual = {8, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB}
    assert len(advice.SIZES) == 16 and not usual & set(advice.SIZES)
    assert min(advice.SIZES) == 3 * KIB and max(advice.SIZES) == 200_000_000 and len(advice.DTYPES) == 4
    found = advice.questions(known, [3072], ["float32", "float16"])
    assert {asked.case.memory for asked in found} >= {"", "alias", "copy", INTO}
    assert all(cell.predicted > 0 for asked in found for cell in asked.cells)
    shared = [cell for asked in found for cell in asked.cells]
    assert len({id(cell) for cell in shared}) < len(shared), "a route is measured once for all that ask for it"


def test_summary_names_the_worst(known):
    asked = question(known, (1.5e-6, 1.5e-6), (1e-6, 1e-6))
    found = advice.Verdict(1, [(0.5, asked)], [(0.4, asked.cells[0])], 0.9)
    lines = "\n".join(check_advice.summary(found))
    assert (
        "regret of the median process: mean 50.0 %, maximum 50.0 %" in lines
        and "route0(a) took 1.50 µs, route1(a) 1.00 µs" in lines
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, says",
    [
        (("--sizes", "x"), "takes bytes"),
        (("--processes", "0"), "whole numbers"),
        (("--machine", "nobody"), "whose results?"),
    ],
)
def test_mistakes_are_one_line(options, says, tmp_path):
    done = run(sys.executable, ROOT / "scripts" / "check_advice.py", *options, home=tmp_path)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1
