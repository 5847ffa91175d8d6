"""The statistics agree with second implementations, and keep their promised error rates on simulated data."""

import itertools
import math

import numpy as np
import pytest
from analysis import changes, judging, statistics
from analysis.verdicts import Settings
from hypothesis import given, settings
from hypothesis import strategies as st
from noise import processes
from scipy import integrate, optimize, special, stats

CELLS, MIN_EFFECT = 2000, math.log(1.01)


# --- the moderated t -------------------------------------------------------------------------------------------------


def variances(rng, df0, scale, df, cells):
    """Return sample variances. The true variances have the scaled inverse chi-squared prior (df0, scale)."""
    true = scale * df0 / rng.chisquare(df0, cells) if np.isfinite(df0) else np.full(cells, scale)
    return true * rng.chisquare(df, cells) / df


@pytest.mark.parametrize("value", [1e-8, 1e-3, 0.5, 1.0, 20.0, 1e9])
def test_trigamma_of_its_inverse_is_the_value(value):
    assert special.polygamma(1, statistics.trigamma_inverse(value)) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("df0", [2.0, 4.0, 10.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_prior_agrees_with_maximum_likelihood(df0, seed):
    """A second way to the prior: sample variances over its variance have an F distribution, which scipy fits."""
    s2 = variances(np.random.default_rng(seed), df0, 4e-4, 6, 4000)

    def unlikely(at):
        return -np.sum(stats.f.logpdf(s2 / np.exp(at[0]), 6, np.exp(at[1])) - at[0])

    best = optimize.minimize(unlikely, [np.log(np.median(s2)), np.log(5.0)], method="Nelder-Mead").x
    prior = statistics.fit_prior(s2, np.full(len(s2), 6.0))
    assert prior.variance == pytest.approx(np.exp(best[0]), rel=0.06)
    assert prior.df == pytest.approx(np.exp(best[1]), rel=0.25)
    assert prior.variance == pytest.approx(4e-4, rel=0.1)


def test_equal_variances_have_an_infinite_prior():
    s2 = variances(np.random.default_rng(3), np.inf, 4e-4, 6, 3000)
    prior = statistics.fit_prior(s2, np.full(3000, 6.0))
    assert prior.df > 200
    assert prior.variance == pytest.approx(4e-4, rel=0.05)


def test_squeezed_variance_is_the_posterior_mean():
    """A second way to the posterior: integrate prior times likelihood over the precision."""
    prior, s2, df = statistics.Prior(5.0, 4e-4), 9e-4, 3.0

    before = stats.gamma(prior.df / 2, scale=2 / (prior.df * prior.variance))

    def integral(power):
        """Integrate the density of the precision, times the precision to ``power``."""

        def density(x):
            return x**power * before.pdf(x) * stats.gamma.pdf(s2, df / 2, scale=2 / (df * x))

        return integrate.quad(density, 0, 40 / prior.variance, limit=200, points=[1 / prior.variance])[0]

    mean = integral(1) / integral(0)
    posterior, total = statistics.squeeze(np.array([s2, s2]), np.array([df, df]), prior)
    assert posterior[0] == pytest.approx(1 / mean, rel=1e-4)
    assert total[0] == min(8.0, 2 * df)


ONE = np.array(["x"])


def test_without_a_prior_it_is_students_and_welchs_t():
    rng = np.random.default_rng(0)
    base, new = rng.normal(0, 0.02, (3, 5)), rng.normal(0.1, 0.02, (3, 5))  # three cells: no family to learn from
    for paired, test in ((False, stats.ttest_ind), (True, stats.ttest_rel)):
        found = statistics.estimate(base, new, np.array(["x"] * 3), np.full(3, paired))
        assert statistics.p_different(found, 0.0) == pytest.approx(test(new, base, axis=1).pvalue)
        known = test(new, base, axis=1).confidence_interval(0.95)
        low, high = statistics.interval(found, 0.95)
        assert low == pytest.approx(known.low) and high == pytest.approx(known.high)
    margin = math.log(1.05)  # equivalence is two one-sided tests
    found = statistics.estimate(base[:1], new[:1] - 0.09, ONE, np.array([False]))
    above = stats.ttest_ind(new[0] - 0.09 + margin, base[0], alternative="greater").pvalue
    below = stats.ttest_ind(new[0] - 0.09 - margin, base[0], alternative="less").pvalue
    assert statistics.p_equivalent(found, margin)[0] == pytest.approx(max(above, below))
    few, many = np.full((1, 12), np.nan), rng.normal(0, 0.02, (1, 12))
    few[0, :4] = rng.normal(0, 0.06, 4)
    found = statistics.estimate(many, few, ONE, np.array([False]))
    welch = stats.ttest_ind(few[0, :4], many[0], equal_var=False)
    assert found.effect[0] / found.error[0] == pytest.approx(welch.statistic) and found.df[0] == 3 <= welch.df
    level = statistics.levels(np.vstack([base[0], new[0]]), np.full(2, "x"))  # of two cells of one run
    one, other = (statistics.Levels(*(values[[k]] for values in vars(level).values())) for k in (0, 1))
    found = statistics.compare_levels(one, other, np.array([True]), np.zeros(1))
    welch = stats.ttest_ind(new[0], base[0], equal_var=False)
    assert statistics.p_different(found, 0.0)[0] == pytest.approx(welch.pvalue, rel=1e-6)


@pytest.mark.parametrize(("flagged", "cells"), [(0, 100), (3, 100), (100, 100), (1, 4)])
def test_rate_bounds_are_clopper_and_pearsons(flagged, cells):
    low, high = statistics.rate_bounds(flagged, cells)
    known = stats.binomtest(flagged, cells).proportion_ci(0.90, method="exact")  # one-sided 95 % each
    assert (low, high) == (pytest.approx(known.low), pytest.approx(known.high))
    assert statistics.rate_bounds(0, 0) == (0.0, 1.0), "nothing is known of nothing"


@pytest.mark.parametrize("shared", [0.0, 0.03])
@pytest.mark.parametrize("seed", [0, 1])
def test_one_more_process_lies_within(shared, seed):
    """The cells differ in noise, with and without noise that all cells share in a round."""
    rng = np.random.default_rng(seed)
    noise = np.sqrt(variances(rng, 5.0, 4e-4, 6, CELLS))[:, None] * rng.standard_normal((CELLS, 5))
    values = noise + shared * np.repeat(rng.standard_normal((CELLS // 50, 5)), 50, axis=0)
    families = np.repeat([f"{family}" for family in range(CELLS // 50)], 50)
    level = statistics.levels(values[:, :4], families)
    held = np.abs(values[:, 4] - level.mean) <= statistics.prediction_half_width(level, 0.9)
    assert 0.88 <= held.mean() <= 0.94


@pytest.mark.parametrize("p", [[], [math.nan], [0.2, 0.01, math.nan, 0.01, 1.0], [1.0, 0.9], [0.0, 0.5, 0.04, 0.03]])
def test_q_values_are_those_of_scipy_where_there_is_a_p_value(p):
    p = np.array(p, dtype=float)
    q = statistics.q_values(p)
    assert np.isnan(q[np.isnan(p)]).all()
    assert [*q[~np.isnan(p)]] == [*stats.false_discovery_control(p[~np.isnan(p)], method="bh")]


# --- error rates, power and coverage, by simulation ------------------------------------------------------------------


def flags(base, new, paired, session=None):
    cells = len(base)
    found = statistics.estimate(base, new, np.full(cells, "copy"), np.full(cells, paired), session=session)
    p = statistics.p_different(found, MIN_EFFECT)
    return found, (statistics.q_values(p) <= 0.05) & (p <= 0.005)


PROMISES = [
    (paired, effect, power, changed, 0.0, 0.98)
    for paired in (True, False)
    for effect, power in ((0.2, 0.95), (0.1, 0.7))
    for changed in (0.1, 0.5)
]
# Two sessions, each with its own effect on every cell: intervals may be too wide
APART = False, 0.4, 0.9, 0.1, 0.04, 0.995


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("paired", "effect", "power", "changed", "session", "widest"), [*PROMISES, APART])
def test_promises_on_a_virtual_machine(seed, paired, effect, power, changed, session, widest):
    """At most 0.5 % of unchanged cells are flagged, the power is as the issue demands, and the intervals cover."""
    rng = np.random.default_rng(seed)
    true = np.where(np.arange(CELLS) < changed * CELLS, math.log1p(effect), 0.0)
    # drift of the machine per round: both sides of a pair share it
    drift = np.cumsum(rng.normal(0, 0.01, 4)) if paired else 0.0
    base = processes(rng, CELLS, drift=drift)
    new = processes(rng, CELLS, effect=true + (rng.normal(0, session, CELLS) if session else 0), drift=drift)
    found, flagged = flags(base, new, paired, {} if session else None)
    low, high = statistics.interval(found, 0.95)
    assert flagged[true == 0].mean() <= 0.005
    assert (flagged & (found.effect > 0))[true > 0].mean() >= power
    assert 0.93 <= ((low <= true) & (true <= high)).mean() <= widest
    _, nothing = flags(base, processes(rng, CELLS, drift=drift), paired, {} if session else None)
    assert nothing.mean() <= 0.001


@pytest.mark.parametrize("paired", [True, False])
def test_what_rounds_share_is_no_evidence(paired):
    """A round shifts all its cells together. Their agreement must not count as independent evidence."""
    alarmed, flagged = 0, []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        sides = [processes(rng, 400, 0.01, 0.02, drift=rng.normal(0, 0.02, 4)) for _ in range(2)]
        _, wrong = flags(*sides, paired)
        flagged.append(wrong.mean())
        alarmed += wrong.any()
    assert alarmed <= 12  # a plain moderated t: more than 50
    assert np.mean(flagged) <= 0.01


def test_controls_tell_that_the_machine_was_slower():
    names = np.array(["limits"] * 5 + ["copy"] * 20)
    effect = np.full(25, 0.15)
    controls = names == "limits"
    squared = np.full(25, 1e-5)
    without = statistics.session_variance(effect, squared, names)
    assert statistics.session_variance(effect, squared, names, controls) == pytest.approx(without + 0.15**2)


def test_processes_needed_would_decide():
    """With the number of processes that processes_needed returns, about four of five such cells are decided."""
    rng, cells = np.random.default_rng(0), 500

    def measured(processes):
        """Return the estimate of cells without a true change."""
        base, new = rng.normal(0, 0.03, (2, cells, processes))
        return statistics.estimate(base, new, np.full(cells, "x"), np.zeros(cells, bool))

    first, same = measured(4), math.log(1.05)
    needed = judging.processes_needed(first, np.zeros(cells, bool), Settings())
    n = int(np.median(needed[np.abs(first.effect) < 0.01]))
    again = measured(n)
    assert 6 <= n <= 20
    assert (statistics.p_equivalent(again, same) <= 0.05).mean() >= 0.75


@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_any_shape_gives_numbers_or_nan(cells, one, other, seed):
    rng = np.random.default_rng(seed)
    sides = [rng.normal(0, 0.02, (cells, n)) for n in (one, other)]
    for side in sides:
        side[rng.random(side.shape) < 0.2] = np.nan
        side[rng.random(len(side)) < 0.2] = 0.0  # no variance at all
    paired = rng.random(cells) < 0.5 if one == other else np.zeros(cells, bool)
    names = rng.choice(["alias", "copy"], cells)
    found = statistics.estimate(*sides, names, paired, session={})
    p = statistics.p_different(found, MIN_EFFECT)
    assert (np.isnan(p) | ((p >= 0) & (p <= 1))).all()
    assert not np.isinf(found.error).any()


# --- optimal partitioning --------------------------------------------------------------------------------------------


def by_brute_force(values, noise, penalty):
    """Return the lowest cost over all partitions of a short history."""
    inner = range(1, len(values))
    every = itertools.chain.from_iterable(itertools.combinations(inner, k) for k in range(len(values)))
    return min(changes.partition_cost(values, noise, [0, *breaks]) + penalty * len(breaks) for breaks in every)


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=9),
    st.lists(st.floats(0.1, 3), min_size=9, max_size=9),
    st.floats(0.1, 20),
)
@settings(max_examples=100, deadline=None)
def test_partition_is_the_best_there_is(values, noise, penalty):
    values, noise = np.array(values), np.array(noise[: len(values)])
    starts = changes.optimal_partition(values, noise, penalty)
    assert starts[0] == 0 and starts == sorted(set(starts)) and starts[-1] < len(values)
    cost = changes.partition_cost(values, noise, starts) + penalty * (len(starts) - 1)
    assert cost == pytest.approx(by_brute_force(values, noise, penalty), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("values", "noise"), [([1.0, np.nan], [0.1, 0.1]), ([1.0, 2.0], [0.1, 0.0])])
def test_no_partition_of_nonsense(values, noise):
    with pytest.raises(ValueError, match="finite values and noise above zero"):
        changes.optimal_partition(np.array(values), np.array(noise), 6.0)


@pytest.mark.slow
@pytest.mark.parametrize("effect", [1.5, 3.0, 6.0])
def test_the_range_of_a_break_holds_its_place(effect):
    """One step of 1.5 to 6 standard deviations in 17 releases. If it is found, over 95 % of ranges hold its place."""
    rng = np.random.default_rng(round(10 * effect))
    held, wide, noise = [], [], np.ones(17)
    for _ in range(1500):
        place = int(rng.integers(2, 16))
        values = rng.standard_normal(17) + effect * (np.arange(17) >= place)
        starts = changes.optimal_partition(values, noise, 4 * math.log(17))
        if len(starts) == 2:
            first, last = changes.break_range(values, noise, starts, 1)
            assert first <= starts[1] <= last
            held.append(first <= place <= last)
            wide.append(last - first + 1)
    assert len(held) > 200 and np.mean(held) > 0.95
    assert np.mean(wide) < {1.5: 9, 3.0: 3.5, 6.0: 1.4}[effect]
    assert changes.break_range(np.array([0.0, 0, 9, 9, 0, 0]), np.ones(6), [0, 2, 4], 2) == (4, 4)
