"""What scripts/check.py advice makes of figures: regret, predictions, and what noise may not be blamed for."""

import math
import random

import check
import numpy as np
import pandas as pd
import pytest
from analysis.choices import Case
from checking import advice

from benchmarks.contracts import ALL_THREADS, CONTIGUOUS, COPY, INTO, ONE_THREAD

CASE = Case("numpy", "torch", 3072, threads=ONE_THREAD)


@pytest.mark.parametrize(
    "seconds, regrets",
    [
        ([(1.2, 1.3, 1.4), (1, 1, 1), (2, 2, 2)], [0.2, 0.3, 0.4]),
        ([(1, 1), (2, 2)], [0, 0]),  # the advised one is the best
        ([(math.nan, math.nan), (1, 1)], []),  # what was never quiet is not judged
        # two routes that are as fast as each other: the best is not chosen by the process that it is judged by
        ([(1, 1, 1, 1), (0.9, 1.1, 0.9, 1.1)], [1 / 1.1 - 1, 1 / 1.1 - 1, 0, 0]),
    ],
)
def test_regret_is_what_the_best_takes_less(seconds, regrets):
    assert advice.regrets(np.log(seconds)) == pytest.approx(regrets)


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
    assert advice.code_of(10, pd.Series(regret), pd.Series(errors)) == code


def test_cases_are_drawn_of_all_that_somebody_may_have():
    """And none is of a size that a profile has."""
    rng = random.Random(0)
    cases = [advice.drawn(ALL_THREADS, rng) for _ in range(500)]
    assert {case.layout for case in cases} == set(advice.LAYOUTS) and {case.memory for case in cases} == {COPY, INTO}
    assert {case.dtype for case in cases} == set(advice.DTYPES) and len({case.source for case in cases}) == 2
    assert 50 < sum(bool(case.batch) for case in cases) < 150
    assert min(case.total for case in cases) < 6 * 2**10 and max(case.total for case in cases) > 2**27
    assert not any(case.total.bit_count() == 1 for case in cases)


def test_questions_are_the_same_for_a_seed_and_others_for_another(known):
    one, same, other = ([*advice.questions(known, ONE_THREAD, 5, seed)["case"].unique()] for seed in (0, 0, 1))
    assert one == same != other and len(one) == 5


def test_a_case_is_timed_by_the_benchmark_of_its_family():
    cases = {
        "conversion.NumpyToTorch": Case("numpy", "torch", 3072, threads=ONE_THREAD),
        "parallel.TorchToNumpy": Case("torch", "numpy", 3072, threads=ALL_THREADS),
        "layout.TorchToNumpy": Case("torch", "numpy", 3072, layout="strided", threads=ONE_THREAD),
        "parallel.LayoutToTorch": Case("numpy", "torch", 3072, layout="strided", threads=ALL_THREADS),
        "batches.TensorsToArray": Case("torch", "numpy", 3072, batch=64, threads=ONE_THREAD),
        "parallel.ArraysToTensor": Case("numpy", "torch", 3072, batch=64, threads=ALL_THREADS),
    }
    for name, case in cases.items():
        found, params = advice.benchmark_for(case)
        assert found == f"{name}.timeit_convert" and params[-1] == case.total
        assert (ALL_THREADS in params) == (case.threads == ALL_THREADS)
        assert ("float32" in params) == (case.layout == CONTIGUOUS and not case.batch)


def test_summary_names_the_worst(snapshot):
    asked = pd.DataFrame({"case": [CASE] * 2, "route": ["f(a)", "g(a)"], "predicted": [1e-6] * 2})
    cases, routes = advice.judged(asked, np.log([[1.5e-6] * 2, [1e-6] * 2]))
    assert list(advice.summary(2, 1, cases, routes)) == snapshot


def test_a_machine_without_results_is_one_line(called):
    code, _, complaint = called(check, "advice", "--machine", "x")
    assert code == 2 and "name one with results" in complaint and complaint.count("\n") == 1
