"""The statistics of comparisons and histories. The unit of evidence is a process, never a sample.

Everything comes from scipy, except the moderated t test. Arrays are
over cells, or ``(cells, processes)`` with NaN where a cell has fewer processes. Effects are differences of log seconds:
0.1 is 10.5 % slower. All variances are of log seconds, too.

Sources
    Smyth 2004, Linear models and empirical Bayes methods for assessing differential expression, SAGMB 3(1): the
        moderated t test; ``fit_prior`` and ``squeeze`` are his equations 3 to 7 and section 6.2
    McCarthy and Smyth 2009, Testing significance relative to a fold-change threshold is a TREAT, Bioinformatics 25(6)
    Schuirmann 1987, two one-sided tests for equivalence, J. Pharmacokinetics and Biopharmaceutics 15(6)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MIN_PROCESSES = 4  # per side: with fewer no verdict
MIN_FAMILY = (
    10  # cells: fewer cannot separate the effect of a round from that of a cell, nor fit a prior
)
POWER = 0.8  # chance of a decision that ``processes_needed`` promises
CONFIDENCE = 0.95  # of each bound of a rate, and of the range of a break
Z95 = 1.96  # standard deviations on either side of a 95 % interval
Z90_OVER_Z95 = 1.645 / Z95  # a 90 % interval in units of one of 95 %
MIN_SESSION_SD = 0.02  # of the effect, see ``session_variance``; two quiet runs of one toolchain half an hour apart: 0.015
MAX_BASELINE_RANGE_LOG = float(
    np.log(1.25)
)  # of baselines on one machine: six sessions in two hours were within 1.06
MIN_VARIANCE = 1e-10  # of log seconds: identical figures would otherwise have no error at all
MAD_TO_SD = 1.482602218505602  # of a normal distribution: 1 / scipy.special.ndtri(0.75)


def speed_correction_log(
    baselines: Floats, usual: Floats, plausible: float = MAX_BASELINE_RANGE_LOG
) -> Floats:
    """Return the log by which something ran slower than usual on the machine, from logs of baselines. 0 without a
    baseline. All are 0 if baselines differ by more than ``plausible``: then probes are other work."""
    known = usual[np.isfinite(usual)]
    if not len(known) or np.ptp(known) > plausible:
        return np.zeros_like(baselines)
    return np.nan_to_num(baselines - np.median(known))


# --- the moderated t test ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prior:
    """Prior of a cell's variance, from its family: worth ``df`` degrees of freedom at ``variance``.

    df 0: no information. df inf: all cells of the family have this one variance.
    """

    df: float
    variance: float


NO_PRIOR = Prior(0.0, 0.0)


def trigamma_inverse(value: float) -> float:
    """Solve trigamma(x) = ``value`` > 0 for x > 0, by Newton's method on 1/trigamma (Smyth 2004, appendix)."""
    x = 0.5 + 1.0 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        step = trigamma * (1.0 - trigamma / value) / float(special.polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x


def fit_prior(variance: Floats, df: Floats) -> Prior:
    """Fit the scaled inverse chi-squared prior of ``variance`` (cells,) with ``df`` (cells,).

    Matches the mean and the variance of the logarithms (Smyth 2004, section 6.2). Variances of zero are raised to a
    hundred-thousandth of the median. Cells without degrees of freedom are left out.
    """
    usable = np.isfinite(variance) & (df > 0)
    s2, d = variance[usable], df[usable]
    if len(s2) < 3 or np.median(s2) <= 0:  # too few to estimate how variances vary
        return NO_PRIOR
    s2 = np.maximum(s2, 1e-5 * np.median(s2))
    e = np.log(s2) - special.digamma(d / 2) + np.log(d / 2)
    excess = float(np.var(e, ddof=1) - np.mean(special.polygamma(1, d / 2)))
    if excess <= 0:  # no more spread than chance gives equal variances
        return Prior(np.inf, float(np.sum(d * s2) / np.sum(d)))
    df0 = 2.0 * trigamma_inverse(excess)
    return Prior(df0, float(np.exp(np.mean(e) + special.digamma(df0 / 2) - np.log(df0 / 2))))


def squeeze(variance: Floats, df: Floats, prior: Prior) -> tuple[Floats, Floats]:
    """Return each cell's variance, moved towards the prior, and its resulting degrees of freedom: ((cells,), (cells,)).

    The degrees of freedom are at most the sum over all cells, as in limma.
    """
    known = np.where(df > 0, variance, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = 1.0 / (1.0 + df / prior.df)  # of the prior
    return weight * prior.variance + (1.0 - weight) * known, np.minimum(prior.df + df, df.sum())


@dataclass(frozen=True)
class Estimate:
    """Effect (log ratio new / base), its standard error and degrees of freedom, and sd, each (cells,).

    sd is the SD of one process's contribution to the effect. Without the session's part, the standard error is sd /
    sqrt(processes) for paired processes and sd * sqrt(1/base + 1/new) for others.
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
    """Estimate the effect of each cell from its processes' log seconds, with variances moderated within each family.

    base, new  (cells, processes), NaN where there is no process; process k is of round k. As wide if any are paired
    families   (cells,) names; each family has one prior for paired and one for unpaired cells
    paired     (cells,) process k of base and of new ran side by side: the effect is the mean of their differences
    session    base and new were measured at different times: unpaired cells get the variance of sessions, that of their
               family if known from toolchains measured twice (``History.session_sd``)
    controls   (cells,) cells that no toolchain can change, see ``session_variance``

    Cells of one round share the machine's state (its clock, its neighbours): 2 % on a quiet virtual machine. So their
    variances are not independent. Moderating them directly would mistake three degrees of freedom for thousands, and
    whole families would be flagged together. The shared effect of a family in each round is therefore removed before
    variances are moderated, and added as a variance of its own with the degrees of freedom of the rounds (those of the
    sum by Welch and Satterthwaite).
    """
    effect, squared, df, sd = (np.full(len(base), np.nan) for _ in range(4))
    for family, pairs in set(zip(families, paired)):
        mask = (families == family) & (paired == pairs)
        parts = (
            [_of_family(new[mask] - base[mask])]
            if pairs
            else [_of_family(side[mask]) for side in (base, new)]
        )
        effect[mask] = parts[0].mean if pairs else parts[1].mean - parts[0].mean
        squared[mask], df[mask], sd[mask] = _moderated(parts)
    if session:
        if isinstance(session, Mapping):
            extra = np.array(
                [session.get(family, max(session.values())) for family in families], dtype=float
            )
        else:
            extra = session_variance(effect, squared, families, controls)
        squared = np.where(paired, squared, squared + extra)
    usable = (df > 0) & np.isfinite(effect) & np.isfinite(squared)
    error = np.where(usable, np.sqrt(np.where(usable, squared, 0.0)), np.nan)
    return Estimate(effect, error, np.where(usable, df, np.nan), sd)


@dataclass(frozen=True)
class Levels:
    """Times of the cells of one run, in log seconds; the arrays are over cells, present is (cells, rounds).

    mean, number (n) and variance of the processes, with its degrees of freedom (df, 0 if not known), without the effect
    that a family's cells share in a round. shared is the variance of that effect, with shared_df degrees of freedom;
    both are 0 if the family is too small. present: the rounds that have a process.
    """

    mean: Floats
    n: Floats
    variance: Floats
    df: Floats
    shared: Floats
    shared_df: Floats
    present: Bools


def _of_family(values: Floats) -> Levels:
    """Return the levels of the cells of one family, or of the differences of pairs; variances are not moderated."""
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
    """Return squared error and degrees of freedom of the effects of one family, and SD of a process."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if len(parts) == 1:
            variance, own_df, weight = parts[0].variance, parts[0].df, 1.0 / parts[0].n
        else:
            # Welch's error, written as a common variance: with equal numbers of processes it is the pooled variance;
            # with few against many, the few determine the error and the degrees of freedom
            (n0, v0), (n1, v1) = ((part.n, part.variance) for part in parts)
            weight = 1.0 / n0 + 1.0 / n1
            variance = (np.where(n0 > 1, v0, v1) / n0 + np.where(n1 > 1, v1, v0) / n1) / weight
            own_df = np.where(
                n0 == n1, n0 + n1 - 2, np.minimum(np.maximum(n0, 1), np.maximum(n1, 1)) - 1
            )
        variance, own_df = np.maximum(variance, MIN_VARIANCE), np.maximum(own_df, 0.0)
        prior = fit_prior(variance, own_df) if np.sum(own_df > 0) >= MIN_FAMILY else NO_PRIOR
        posterior, known = squeeze(variance, own_df, prior)
        terms = [(posterior * weight, known)]
        terms += [(part.shared / part.n, part.shared_df) for part in parts if part.shared_df.any()]
        squared = np.sum([term for term, _ in terms], axis=0)
        uncertainty = np.sum(
            [term**2 / term_df for term, term_df in terms if np.any(term_df)], axis=0
        )
        return (
            squared,
            np.where((squared > 0) & (known > 0), squared**2 / uncertainty, 0.0),
            np.sqrt(squared / weight),
        )


def levels(values: Floats, families: NDArray[np.str_]) -> Levels:
    """Return levels of cells from their processes' log seconds (cells, rounds), variances moderated by family."""
    n, mean, variance = _moments(values)
    df, shared, shared_df = np.maximum(n - 1, 0.0), np.zeros(len(n)), np.zeros(len(n))
    variance = np.where(df > 0, variance, 0.0)
    for family in np.unique(families):
        members = families == family
        if members.sum() < MIN_FAMILY:
            continue
        part = _of_family(values[members])
        shared[members], shared_df[members] = part.shared, part.shared_df
        variance[members], df[members] = squeeze(
            part.variance, part.df, fit_prior(part.variance, part.df)
        )
    return Levels(mean, n, variance, df, shared, shared_df, np.isfinite(values))


def compare_levels(base: Levels, other: Levels, together: Bools, sessions: Floats) -> Estimate:
    """Estimate the effect ``other`` - ``base`` of cells, for arrays over cells of shapes that broadcast.

    together  both cells are of one family: its shared effect cancels in rounds in which both have a process
    sessions  variance of the effect from differences between their runs
    """
    both = np.where(together, (base.present & other.present).sum(axis=-1), 0) / (base.n * other.n)
    terms = [(side.variance / side.n, side.df) for side in (base, other)]
    # a round with weight 1/n in both means has weight 0 in their difference
    terms += [
        (side.shared * np.maximum(1 / side.n - both, 0.0), side.shared_df) for side in (base, other)
    ]
    terms.append((sessions, np.array(np.inf)))
    squared = np.sum(np.broadcast_arrays(*(term for term, _ in terms)), axis=0)
    known = (base.df > 0) & (other.df > 0)
    # Welch and Satterthwaite's degrees of freedom reach the sum of both. These are too many for moderated variances,
    # whose errors are not chi-squared: 1.2 % of pairs that differ by the margin were decided, not 0.5 %. So a value
    # between both is used, weighted by their shares of the error
    moderated = [side.df > side.n - 1 for side in (base, other)] + [False] * 3
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = [np.where(each, squared, term) for (term, _), each in zip(terms, moderated)]
        parts = [
            np.where(term > 0, term * own / term_df, 0.0)
            for (term, term_df), own in zip(terms, shares)
        ]
        uncertainty = np.sum(np.broadcast_arrays(*parts), axis=0)
        df = np.where(uncertainty > 0, squared**2 / uncertainty, np.inf)
    error = np.where(known, np.sqrt(squared), np.nan)
    return Estimate(other.mean - base.mean, error, np.where(known, df, np.nan), np.sqrt(squared))


def _moments(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return count, mean and variance over processes, without NaN: (cells,) each."""
    there = np.isfinite(values)
    n = there.sum(axis=1).astype(float)
    filled = np.where(there, values, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = filled.sum(axis=1) / n
        deviations = np.where(there, values - mean[:, None], 0.0)
        return n, mean, (deviations**2).sum(axis=1) / (n - 1)


def means(values: Floats) -> Floats:
    """Return the mean over processes, without NaN: (cells,)."""
    return _moments(values)[1]


def session_variance(
    effect: Floats, squared_error: Floats, families: NDArray[np.str_], controls: Bools | None = None
) -> Floats:
    """Estimate the variance of an effect between sessions, (cells,), which the processes of two sessions do not show.

    In each family it is the variance of the effects around their median beyond their errors, and at least MIN_SESSION_SD
    squared. It is robust: up to about a third of the cells may really have changed. The square of the median effect of
    the controls is added to it. These are cells such as memcpy that no toolchain can change: if they differ, the
    machine itself was faster or slower.
    """
    extra = np.full(len(effect), MIN_SESSION_SD**2)
    everything = _excess(effect, squared_error, 0.0)
    for family in np.unique(families):
        mask = families == family
        extra[mask] = np.maximum(
            extra[mask], _excess(effect[mask], squared_error[mask], everything)
        )
    if controls is not None and np.isfinite(effect[controls]).any():
        extra += float(np.nanmedian(effect[controls])) ** 2
    return extra


def _excess(effect: Floats, squared_error: Floats, otherwise: float) -> float:
    """Return the variance of effects beyond their errors; ``otherwise`` if there are too few cells."""
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
        p: Floats = np.minimum(
            1.0, above + special.stdtr(estimated.df, -(margin + size) / estimated.error)
        )
        return p


def p_equivalent(estimated: Estimate, margin: float) -> Floats:
    """P value of "the effect is at least ``margin`` (log units), either way": two one-sided tests."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p: Floats = special.stdtr(
            estimated.df, (np.abs(estimated.effect) - margin) / estimated.error
        )
        return p


def interval(estimated: Estimate, confidence: float) -> tuple[Floats, Floats]:
    """Return the low and high end of the effect's confidence interval, in log units."""
    half = special.stdtrit(estimated.df, 0.5 + confidence / 2) * estimated.error
    return estimated.effect - half, estimated.effect + half


def prediction_half_width(level: Any, confidence: float) -> Floats:
    """Return half the prediction interval of one more process around the mean of each of ``Levels``, in log units (Hahn
    1970, Journal of the American Statistical Association 65)."""
    error = np.sqrt((level.variance + level.shared) * (1 + 1 / level.n))
    half: Floats = special.stdtrit(level.df, 0.5 + confidence / 2) * error
    return half


def q_values(p: Floats) -> Floats:
    """Return Benjamini and Hochberg's adjusted p values over the cells with a p value; NaN for others."""
    from scipy.stats import false_discovery_control  # scipy.stats takes half a second to import

    q, there = np.full(len(p), np.nan), np.isfinite(p)
    q[there] = false_discovery_control(p[there], method="bh")
    return q


def rate_bounds(flagged: int, cells: int) -> tuple[float, float]:
    """Return one-sided Clopper and Pearson bounds (lower, upper) of the rate ``flagged`` / ``cells``."""
    low = (
        float(special.betaincinv(flagged, cells - flagged + 1, 1 - CONFIDENCE)) if flagged else 0.0
    )
    high = (
        float(special.betaincinv(flagged + 1, cells - flagged, CONFIDENCE))
        if flagged < cells
        else 1.0
    )
    return low, high


def processes_needed(
    estimated: Estimate, paired: Bools, min_effect: float, equivalence: float, alpha: float
) -> Floats:
    """Return the processes per side, (cells,), that would decide a cell with probability POWER at the estimated effect.

    The smaller number of two decisions: a difference of more than ``min_effect`` at level ``alpha``, or of less than
    ``equivalence`` (both in log units). Processes are taken to run side by side, because more of them do not reduce the
    variance between sessions. NaN without a variance.
    """
    size = np.abs(estimated.effect)
    variance = np.where(paired, 1.0, 2.0) * estimated.sd**2
    needed = np.full(len(size), np.inf)
    # an effect near zero has two margins to stay clear of
    for gap, level, power in (
        (size - min_effect, 1 - alpha / 2, POWER),
        (equivalence - size, 0.95, (1 + POWER) / 2),
    ):
        with np.errstate(divide="ignore", invalid="ignore"):
            quantiles = special.stdtrit(estimated.df, level) + special.ndtri(power)
            n = np.where(gap > 0, variance * (quantiles / np.maximum(gap, 1e-9)) ** 2, np.inf)
        needed = np.fmin(needed, n)
    needed = np.maximum(np.ceil(needed), MIN_PROCESSES)
    return np.where(np.isfinite(estimated.error), needed, np.nan)
