"""The statistics of comparisons and histories. The unit of evidence is a process, never a sample.

Everything comes from scipy but two things that it lacks: the moderated t test and optimal partitioning. Arrays are
over cells; where each cell has several processes they are ``(cells, processes)`` with NaN where a cell has fewer.
Effects are differences of log seconds: 0.1 is 10.5 % slower. All variances are of log seconds, too.

Sources
    Smyth 2004, Linear models and empirical Bayes methods for assessing differential expression, SAGMB 3(1): the
        moderated t test; ``fit_prior`` and ``squeeze`` are his equations 3 to 7 and section 6.2
    McCarthy and Smyth 2009, Testing significance relative to a fold-change threshold is a TREAT, Bioinformatics 25(6)
    Schuirmann 1987, two one-sided tests for equivalence, J. Pharmacokinetics and Biopharmaceutics 15(6)
    Jackson et al. 2005, An algorithm for optimal partitioning of data on an interval, IEEE SPL 12(2)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MIN_PROCESSES = 4  # a side: with fewer no verdict
MIN_FAMILY = 10  # cells: fewer do not tell what rounds share from what cells have of their own, nor fit a prior
POWER = 0.8  # chance of a decision that ``processes_needed`` promises
CONFIDENCE = 0.95  # of bounds of rates, each, and of the range of a break
HALF = 1.96  # standard deviations on either side of a 95 % interval
NARROWER = 1.645 / HALF  # a 90 % interval in units of one of 95 %
SESSION_SD = 0.02  # of the effect, see ``session_variance``; two quiet runs of one toolchain half an hour apart: 0.015
PLAUSIBLE = float(np.log(1.25))  # of baselines on one machine: six sessions in two hours were within 1.06
LEAST_VARIANCE = 1e-10  # of log seconds: of figures that are all the same nobody would know how well they are known
MAD_TO_SD = 1.482602218505602  # of a normal distribution: 1 / scipy.special.ndtri(0.75)


def correction(baselines: Floats, usual: Floats, plausible: float = PLAUSIBLE) -> Floats:
    """The log by which something ran slower than the machine usually does, from logs of baselines. 0 where it has none,
    and everywhere where baselines differ by more than is ``plausible``: then probes are other work."""
    known = usual[np.isfinite(usual)]
    if not len(known) or np.ptp(known) > plausible:
        return np.zeros_like(baselines)
    return np.nan_to_num(baselines - np.median(known))


# --- the moderated t test ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prior:
    """What a family of cells says of the variance of one of them: worth ``df`` degrees of freedom at ``variance``.

    df 0: it says nothing. df inf: all cells of the family have this one variance.
    """

    df: float
    variance: float


NO_PRIOR = Prior(0.0, 0.0)


def trigamma_inverse(value: float) -> float:
    """The x > 0 whose trigamma is ``value`` > 0, by Newton's method on 1/trigamma (Smyth 2004, appendix)."""
    x = 0.5 + 1.0 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        step = trigamma * (1.0 - trigamma / value) / float(special.polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x


def fit_prior(variance: Floats, df: Floats) -> Prior:
    """The scaled inverse chi-squared prior that ``variance`` (cells,) with ``df`` (cells,) come from.

    By matching the mean and the variance of the logarithms (Smyth 2004, section 6.2). Cells with a variance of zero, or
    without degrees of freedom, are lifted to a hundred-thousandth of the median, or left out.
    """
    usable = np.isfinite(variance) & (df > 0)
    s2, d = variance[usable], df[usable]
    if len(s2) < 3 or np.median(s2) <= 0:  # fewer variances tell nothing of how variances vary
        return NO_PRIOR
    s2 = np.maximum(s2, 1e-5 * np.median(s2))
    e = np.log(s2) - special.digamma(d / 2) + np.log(d / 2)
    excess = float(np.var(e, ddof=1) - np.mean(special.polygamma(1, d / 2)))
    if excess <= 0:  # no more spread than chance gives equal variances
        return Prior(np.inf, float(np.sum(d * s2) / np.sum(d)))
    df0 = 2.0 * trigamma_inverse(excess)
    return Prior(df0, float(np.exp(np.mean(e) + special.digamma(df0 / 2) - np.log(df0 / 2))))


def squeeze(variance: Floats, df: Floats, prior: Prior) -> tuple[Floats, Floats]:
    """Each cell's variance drawn towards the prior, and the degrees of freedom it then has: ((cells,), (cells,)).

    The degrees of freedom are never more than all cells have together, as in limma.
    """
    known = np.where(df > 0, variance, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = 1.0 / (1.0 + df / prior.df)  # of the prior
    return weight * prior.variance + (1.0 - weight) * known, np.minimum(prior.df + df, df.sum())


@dataclass(frozen=True)
class Estimate:
    """Effect (log ratio new / base), its standard error and degrees of freedom, and sd, each (cells,).

    sd is that of one process's contribution to the effect: the standard error is sd / sqrt(processes) where the
    processes come in pairs and sd * sqrt(1/base + 1/new) where they do not, without the session's part.
    """

    effect: Floats
    error: Floats
    df: Floats
    sd: Floats


def estimate(
    base: Floats,
    new: Floats,
    families: NDArray[np.str_],
    paired: Bools,
    session: bool | Mapping[str, float] = False,
    controls: Bools | None = None,
) -> Estimate:
    """Effect of each cell from its processes' log seconds, variances moderated within each family.

    base, new  (cells, processes), NaN where there is no process; process k is of round k. As wide where any are paired
    families   (cells,) names; families, and paired and unpaired cells, have a prior each
    paired     (cells,) process k of base and of new ran side by side: the effect is the mean of their differences
    session    base and new were measured at different times: unpaired cells get the variance of sessions, which is that
               of their family where toolchains that were measured twice have shown it (``History.session_sd``)
    controls   (cells,) cells that no toolchain can change, see ``session_variance``

    Cells of one round share what the machine did then (its clock, its neighbours): 2 % on a quiet virtual machine. So
    their variances are no independent witnesses, and shrinking them to each other alone would mistake three degrees of
    freedom for thousands: whole families would be flagged together. What a family shares in each round is therefore
    taken out before variances are moderated, and put back as a variance of its own with the degrees of freedom of the
    rounds (those of the sum by Welch and Satterthwaite).
    """
    effect, squared, df, sd = (np.full(len(base), np.nan) for _ in range(4))
    for family, pairs in set(zip(families, paired)):
        mask = (families == family) & (paired == pairs)
        parts = [_of_family(new[mask] - base[mask])] if pairs else [_of_family(side[mask]) for side in (base, new)]
        effect[mask] = parts[0].mean if pairs else parts[1].mean - parts[0].mean
        squared[mask], df[mask], sd[mask] = _moderated(parts)
    if session:
        if isinstance(session, Mapping):
            extra = np.array([session.get(family, max(session.values())) for family in families], dtype=float)
        else:
            extra = session_variance(effect, squared, families, controls)
        squared = np.where(paired, squared, squared + extra)
    usable = (df > 0) & np.isfinite(effect) & np.isfinite(squared)
    error = np.where(usable, np.sqrt(np.where(usable, squared, 0.0)), np.nan)
    return Estimate(effect, error, np.where(usable, df, np.nan), sd)


@dataclass(frozen=True)
class Levels:
    """What cells of one run take, in log seconds; the arrays are over cells, present is (cells, rounds).

    mean of the processes, how many there are (n), and the variance of one with its degrees of freedom (df, 0 where
    nothing is known), without what a family's cells share in a round. shared is the variance of that, with shared_df
    degrees of freedom, 0 and 0 where the family is too small to tell; present says of which rounds the processes are.
    """

    mean: Floats
    n: Floats
    variance: Floats
    df: Floats
    shared: Floats
    shared_df: Floats
    present: Bools


def _of_family(values: Floats) -> Levels:
    """Levels of the cells of one family, or of the differences of pairs, whose variances are not moderated."""
    n, mean, variance = _moments(values)
    shared, shared_df = np.zeros(len(n)), np.zeros(len(n))
    enough = np.isfinite(values).sum(axis=0) >= MIN_FAMILY  # (rounds,)
    if enough.sum() > 1:
        common = np.zeros(values.shape[1])
        common[enough] = np.nanmedian(values[:, enough] - mean[:, None], axis=0)
        common[enough] -= common[enough].mean()
        variance = _moments(values - common)[2]
        shared_df += enough.sum() - 1
        shared += np.sum(common**2) / shared_df
    return Levels(mean, n, variance, np.maximum(n - 1, 0.0), shared, shared_df, np.isfinite(values))


def _moderated(parts: Sequence[Levels]) -> tuple[Floats, Floats, Floats]:
    """Of one family's cells: the effect's squared error and degrees of freedom, and a process's contribution (sd)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if len(parts) == 1:
            variance, own_df, weight = parts[0].variance, parts[0].df, 1.0 / parts[0].n
        else:
            # Welch's error, written as a common variance: with as many processes on both sides it is the pooled one,
            # and with few against many the few count, in the degrees of freedom, too
            (n0, v0), (n1, v1) = ((part.n, part.variance) for part in parts)
            weight = 1.0 / n0 + 1.0 / n1
            variance = (np.where(n0 > 1, v0, v1) / n0 + np.where(n1 > 1, v1, v0) / n1) / weight
            own_df = np.where(n0 == n1, n0 + n1 - 2, np.minimum(np.maximum(n0, 1), np.maximum(n1, 1)) - 1)
        variance, own_df = np.maximum(variance, LEAST_VARIANCE), np.maximum(own_df, 0.0)
        prior = fit_prior(variance, own_df) if np.sum(own_df > 0) >= MIN_FAMILY else NO_PRIOR
        posterior, known = squeeze(variance, own_df, prior)
        terms = [(posterior * weight, known)]
        terms += [(part.shared / part.n, part.shared_df) for part in parts if part.shared_df.any()]
        squared = np.sum([term for term, _ in terms], axis=0)
        uncertainty = np.sum([term**2 / term_df for term, term_df in terms if np.any(term_df)], axis=0)
        return squared, np.where((squared > 0) & (known > 0), squared**2 / uncertainty, 0.0), np.sqrt(squared / weight)


def levels(values: Floats, families: NDArray[np.str_]) -> Levels:
    """Levels of cells from their processes' log seconds (cells, rounds), variances moderated within each family."""
    n, mean, variance = _moments(values)
    df, shared, shared_df = np.maximum(n - 1, 0.0), np.zeros(len(n)), np.zeros(len(n))
    variance = np.where(df > 0, variance, 0.0)
    for family in np.unique(families):
        members = families == family
        if members.sum() < MIN_FAMILY:
            continue
        part = _of_family(values[members])
        shared[members], shared_df[members] = part.shared, part.shared_df
        variance[members], df[members] = squeeze(part.variance, part.df, fit_prior(part.variance, part.df))
    return Levels(mean, n, variance, df, shared, shared_df, np.isfinite(values))


def between(base: Levels, other: Levels, together: Bools, sessions: Floats) -> Estimate:
    """The effect ``other`` - ``base`` of cells, for arrays over cells of shapes that broadcast.

    together  both cells are of one family: what it shares in a round cancels where both have a process of that round
    sessions  variance of the effect by what their runs differ by
    """
    both = np.where(together, (base.present & other.present).sum(axis=-1), 0) / (base.n * other.n)
    terms = [(side.variance / side.n, side.df) for side in (base, other)]
    # of a round that has weight 1/n in both means, what it shares with weight 0 is left
    terms += [(side.shared * np.maximum(1 / side.n - both, 0.0), side.shared_df) for side in (base, other)]
    terms.append((sessions, np.array(np.inf)))
    squared = np.sum(np.broadcast_arrays(*(term for term, _ in terms)), axis=0)
    known = (base.df > 0) & (other.df > 0)
    # Welch and Satterthwaite's degrees of freedom reach the sum of both. Of moderated variances, whose errors are not
    # those of a chi-squared variable, these are too many: of pairs that differ by the margin 1.2 % were decided, not
    # 0.5. So they are between those of both, by their shares of the error
    moderated = [side.df > side.n - 1 for side in (base, other)] + [False] * 3
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = [np.where(each, squared, term) for (term, _), each in zip(terms, moderated)]
        parts = [np.where(term > 0, term * own / term_df, 0.0) for (term, term_df), own in zip(terms, shares)]
        uncertainty = np.sum(np.broadcast_arrays(*parts), axis=0)
        df = np.where(uncertainty > 0, squared**2 / uncertainty, np.inf)
    error = np.where(known, np.sqrt(squared), np.nan)
    return Estimate(other.mean - base.mean, error, np.where(known, df, np.nan), np.sqrt(squared))


def _moments(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Count, mean and variance over processes, NaN left out: (cells,) each."""
    there = np.isfinite(values)
    n = there.sum(axis=1).astype(float)
    filled = np.where(there, values, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = filled.sum(axis=1) / n
        deviations = np.where(there, values - mean[:, None], 0.0)
        return n, mean, (deviations**2).sum(axis=1) / (n - 1)


def means(values: Floats) -> Floats:
    """Mean over processes, NaN left out: (cells,)."""
    return _moments(values)[1]


def session_variance(
    effect: Floats, squared_error: Floats, families: NDArray[np.str_], controls: Bools | None = None
) -> Floats:
    """Variance of an effect, (cells,), that no process of the two sessions shows: what differs between sessions.

    In each family it is what the effects spread around their median beyond what their errors explain, and at least
    SESSION_SD squared. It is robust: up to about a third of the cells may really have changed. The square of the median
    effect of the controls is added to it. These are cells such as memcpy that no toolchain can change: if they differ,
    the machine itself was faster or slower.
    """
    extra = np.full(len(effect), SESSION_SD**2)
    everything = _excess(effect, squared_error, 0.0)
    for family in np.unique(families):
        mask = families == family
        extra[mask] = np.maximum(extra[mask], _excess(effect[mask], squared_error[mask], everything))
    if controls is not None and np.isfinite(effect[controls]).any():
        extra += float(np.nanmedian(effect[controls])) ** 2
    return extra


def _excess(effect: Floats, squared_error: Floats, otherwise: float) -> float:
    """``otherwise`` where too few cells tell."""
    known = np.isfinite(effect) & np.isfinite(squared_error)
    if known.sum() < MIN_FAMILY:
        return otherwise
    spread = MAD_TO_SD * np.median(np.abs(effect[known] - np.median(effect[known])))
    return max(0.0, float(spread**2 - np.median(squared_error[known])))


# --- decisions -----------------------------------------------------------------------------------------------------


def p_different(estimated: Estimate, margin: float) -> Floats:
    """P value of "the effect is no larger than ``margin`` (log units), either way" (TREAT); two-sided t at margin 0."""
    size = np.abs(estimated.effect)
    with np.errstate(divide="ignore", invalid="ignore"):
        above = special.stdtr(estimated.df, (margin - size) / estimated.error)
        p: Floats = np.minimum(1.0, above + special.stdtr(estimated.df, -(margin + size) / estimated.error))
        return p


def p_equivalent(estimated: Estimate, margin: float) -> Floats:
    """P value of "the effect is ``margin`` (log units) or larger, one way or the other": two one-sided tests."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p: Floats = special.stdtr(estimated.df, (np.abs(estimated.effect) - margin) / estimated.error)
        return p


def interval(estimated: Estimate, confidence: float) -> tuple[Floats, Floats]:
    """Low and high end of the effect's confidence interval, in log units."""
    half = special.stdtrit(estimated.df, 0.5 + confidence / 2) * estimated.error
    return estimated.effect - half, estimated.effect + half


def within(level: Any, confidence: float) -> Floats:
    """Log units from the mean of each of ``Levels`` within which one more process lies: a prediction interval (Hahn
    1970, Journal of the American Statistical Association 65)."""
    error = np.sqrt((level.variance + level.shared) * (1 + 1 / level.n))
    half: Floats = special.stdtrit(level.df, 0.5 + confidence / 2) * error
    return half


def q_values(p: Floats) -> Floats:
    """Benjamini and Hochberg's adjusted p values over the cells that have one; NaN for the others."""
    from scipy.stats import false_discovery_control  # scipy.stats takes half a second to import

    q, there = np.full(len(p), np.nan), np.isfinite(p)
    q[there] = false_discovery_control(p[there], method="bh")
    return q


def rate_bounds(flagged: int, cells: int) -> tuple[float, float]:
    """One-sided Clopper and Pearson bounds, lower and upper, of a rate seen as ``flagged`` of ``cells``."""
    low = float(special.betaincinv(flagged, cells - flagged + 1, 1 - CONFIDENCE)) if flagged else 0.0
    high = float(special.betaincinv(flagged + 1, cells - flagged, CONFIDENCE)) if flagged < cells else 1.0
    return low, high


def processes_needed(estimated: Estimate, paired: Bools, min_effect: float, equivalence: float, alpha: float) -> Floats:
    """Processes a side, (cells,), that would decide a cell with a chance of POWER if its effect is as estimated.

    Either way counts, whichever takes fewer: found to differ by more than ``min_effect`` at level ``alpha``, or to
    differ by less than ``equivalence`` (both in log units). For processes that ran side by side, or as if they did:
    more processes tell nothing of what differs between two sessions. NaN without a variance.
    """
    size = np.abs(estimated.effect)
    variance = np.where(paired, 1.0, 2.0) * estimated.sd**2
    needed = np.full(len(size), np.inf)
    # an effect near zero has two margins to stay clear of
    for gap, level, power in ((size - min_effect, 1 - alpha / 2, POWER), (equivalence - size, 0.95, (1 + POWER) / 2)):
        with np.errstate(divide="ignore", invalid="ignore"):
            quantiles = special.stdtrit(estimated.df, level) + special.ndtri(power)
            n = np.where(gap > 0, variance * (quantiles / np.maximum(gap, 1e-9)) ** 2, np.inf)
        needed = np.fmin(needed, n)
    needed = np.maximum(np.ceil(needed), MIN_PROCESSES)
    return np.where(np.isfinite(estimated.error), needed, np.nan)


# --- histories -----------------------------------------------------------------------------------------------------


def partition_cost(values: Floats, noise: Floats, starts: Sequence[int]) -> float:
    """What ``optimal_partition`` minimises, but for the penalty per break: squared residuals in units of the noise."""
    edges, total = [*starts, len(values)], 0.0
    for first, last in zip(edges, edges[1:]):
        part, weight = values[first:last], noise[first:last] ** -2.0
        total += float(np.sum(weight * (part - np.sum(weight * part) / np.sum(weight)) ** 2))
    return total


def break_range(values: Floats, noise: Floats, starts: Sequence[int], number: int) -> tuple[int, int]:
    """The first and the last place where break ``number`` (1 is the first) may be, the other breaks where they are.

    Those that cost no more than the best place and 2 ln(2 / (1 - CONFIDENCE)). For levels that are known the log
    likelihood ratio of other places against the true one is a random walk whose exponential is a martingale: on either
    side it ever exceeds x with probability exp(-x) at most. So the range holds the true place as often as promised,
    however small the change; that the levels are estimated is neglected.
    """
    first, end = starts[number - 1], [*starts, len(values)][number + 1]
    own = values[first:end], noise[first:end]  # what lies beyond costs the same wherever this break is
    costs = {place: partition_cost(*own, [0, place - first]) for place in range(first + 1, end)}
    most = costs[starts[number]] + 2.0 * float(np.log(2.0 / (1.0 - CONFIDENCE)))
    held = [place for place, cost in costs.items() if cost <= most]
    return min(held), max(held)


def optimal_partition(values: Floats, noise: Floats, penalty: float) -> list[int]:
    """Where the segments of constant level in ``values`` begin, the first being 0: the exact optimum.

    Normal noise of known standard deviation ``noise`` (points,) > 0; each break costs ``penalty``; a
    segment may be a single point. Dynamic programming over the last break, O(points^2) (Jackson et al. 2005).
    Of equally good partitions the one whose last segments begin earliest.
    """
    if not (np.isfinite(values).all() and np.isfinite(noise).all() and (np.asarray(noise) > 0).all()):
        raise ValueError("optimal_partition takes finite values and noise above zero")
    weight = np.asarray(noise, dtype=float) ** -2.0
    centred = np.asarray(values, dtype=float) - np.average(values, weights=weight)  # against cancellation below
    sums = [np.concatenate([[0.0], np.cumsum(weight * centred**power)]) for power in (0, 1, 2)]
    best, came_from = np.zeros(len(values) + 1), np.zeros(len(values) + 1, dtype=int)
    best[0] = -penalty
    for end in range(1, len(best)):
        w, wx, wxx = (total[end] - total[:end] for total in sums)
        costs = best[:end] + (wxx - wx**2 / w) + penalty
        came_from[end] = int(np.argmin(costs))
        best[end] = costs[came_from[end]]
    starts, end = [], len(values)
    while end:
        end = int(came_from[end])
        starts.append(end)
    return starts[::-1]
