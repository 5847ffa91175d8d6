"""The statistics of comparisons and histories. The unit of evidence is a process, never a sample.

Everything comes from scipy, except the moderated t test. Arrays are over cells, or ``(cells,
processes)`` with NaN where a cell has fewer processes. Effects are differences of log seconds: 0.1
is 10.5 % slower. All variances are of log seconds, too.

Sources
    Smyth 2004, Linear models and empirical Bayes methods for assessing differential expression,
        SAGMB 3(1): the moderated t test; ``fit_prior`` and ``squeeze`` are his equations 3 to 7 and
        section 6.2
    McCarthy and Smyth 2009, Testing significance relative to a fold-change threshold is a TREAT,
        Bioinformatics 25(6)
    Schuirmann 1987, two one-sided tests for equivalence, J. Pharmacokinetics and Biopharmaceutics
        15(6)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Names = NDArray[np.str_]
ignore_nan = np.errstate(divide="ignore", invalid="ignore")  # figures that are not known

MIN_PROCESSES = 4  # per side: with fewer no verdict
# Cells: fewer cannot separate the effect of a round from that of a cell, nor fit a prior
MIN_FAMILY = 10
MAX_EQUIVALENCE_P = 0.05  # of pairs that differ by the margin, at most this share is equivalent
CONFIDENCE = 0.95  # of each bound of a rate, and of the range of a break
Z95 = 1.96  # standard deviations on either side of a 95 % interval
Z90_OVER_Z95 = 1.645 / Z95  # a 90 % interval in units of one of 95 %
# Of the effect, see ``session_variance``; two quiet runs of one toolchain half an hour apart: 0.015
MIN_SESSION_SD = 0.02
# Of baselines on one machine: six sessions in two hours were within 1.06
MAX_BASELINE_RANGE_LOG = math.log(1.25)
MIN_VARIANCE = 1e-10  # of log seconds: identical figures would otherwise have no error at all
MAD_TO_SD = 1.482602218505602  # of a normal distribution: 1 / scipy.special.ndtri(0.75)


def speed_correction_log(
    baselines: Floats, usual: Floats, plausible: float = MAX_BASELINE_RANGE_LOG
) -> Floats:
    """Return the log by which something ran slower than usual on the machine, from logs of
    baselines. 0 without a baseline. All are 0 if baselines differ by more than ``plausible``: then
    probes are other work."""
    usual = usual[np.isfinite(usual)]
    if not len(usual) or np.ptp(usual) > plausible:
        return np.zeros_like(baselines)
    return np.nan_to_num(baselines - np.median(usual))


# --- the moderated t test -------------------------------------------------------------------------


@dataclass(frozen=True)
class Prior:
    """Prior of a cell's variance, from its family: worth ``df`` degrees of freedom at ``variance``.

    df 0: no information. df inf: all cells of the family have this one variance.
    """

    df: float
    variance: float


NO_PRIOR = Prior(0.0, 0.0)


def trigamma_inverse(value: float) -> float:
    """Solve trigamma(x) = ``value`` > 0 for x > 0, by Newton's method on 1/trigamma (Smyth 2004,
    appendix)."""
    x = 0.5 + 1.0 / value
    for _ in range(50):
        trigamma = float(scipy.special.polygamma(1, x))
        step = trigamma * (1.0 - trigamma / value) / float(scipy.special.polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x


def fit_prior(variance: Floats, df: Floats) -> Prior:
    """Fit the scaled inverse chi-squared prior of ``variance`` (cells,) with ``df`` (cells,).

    Matches the mean and the variance of the logarithms (Smyth 2004, section 6.2). Variances of zero
    are raised to a hundred-thousandth of the median. Cells without degrees of freedom are left out.
    """
    usable = np.isfinite(variance) & (df > 0)
    s2, d = variance[usable], df[usable]
    if len(s2) < 3 or np.median(s2) <= 0:  # too few to estimate how variances vary
        return NO_PRIOR
    s2 = np.maximum(s2, 1e-5 * np.median(s2))
    e = np.log(s2) - scipy.special.digamma(d / 2) + np.log(d / 2)
    excess = float(np.var(e, ddof=1) - np.mean(scipy.special.polygamma(1, d / 2)))
    if excess <= 0:  # no more spread than chance gives equal variances
        return Prior(np.inf, float(np.sum(d * s2) / np.sum(d)))
    df0 = 2.0 * trigamma_inverse(excess)
    log_variance = np.mean(e) + scipy.special.digamma(df0 / 2) - np.log(df0 / 2)
    return Prior(df0, float(np.exp(log_variance)))


@ignore_nan
def squeeze(variance: Floats, df: Floats, prior: Prior) -> tuple[Floats, Floats]:
    """Return each cell's variance, moved towards the prior, and its resulting degrees of freedom:
    ((cells,), (cells,)).

    The degrees of freedom are at most the sum over all cells, as in limma.
    """
    sampled = np.where(df > 0, variance, 0.0)
    weight = 1.0 / (1.0 + df / prior.df)  # of the prior
    posterior = weight * prior.variance + (1.0 - weight) * sampled
    return posterior, np.minimum(prior.df + df, df.sum())


@dataclass(frozen=True)
class Estimate:
    """Effect (log ratio new / base), its standard error and degrees of freedom, and sd, each
    (cells,).

    sd is the SD of one process's contribution to the effect. Without the session's part, the
    standard error is sd / sqrt(processes) for paired processes and sd * sqrt(1/base + 1/new) for
    others.
    """

    effect: Floats
    error: Floats
    df: Floats
    sd: Floats


def estimate(
    base: Floats,
    new: Floats,
    families: Names,
    paired: Bools,
    session: Mapping[str, float] | None = None,
    controls: Bools | None = None,
) -> Estimate:
    """Estimate the effect of each cell from its processes' log seconds, with variances moderated
    within each family.

    base, new  (cells, processes), NaN where there is no process; process k is of round k. As wide
    if any are paired
    families   (cells,) names; each family has one prior for paired and one for unpaired cells
    paired     (cells,) process k of base and of new ran side by side: the effect is the mean of
               their differences
    session    not None: base and new were measured at different times, and unpaired cells get the
               variance of sessions, see ``session_variance``
    controls   (cells,) cells that no toolchain can change, see ``session_variance``

    Cells of one round share the machine's state (its clock, its neighbours): 2 % on a quiet virtual
    machine. So their variances are not independent. Moderating them directly would mistake three
    degrees of freedom for thousands, and whole families would be flagged together. The shared
    effect of a family in each round is therefore removed before variances are moderated, and added
    as a variance of its own with the degrees of freedom of the rounds (those of the sum by Welch
    and Satterthwaite).
    """
    figures = np.full((4, len(base)), np.nan)
    for family, is_paired in set(zip(families, paired)):
        members = (families == family) & (paired == is_paired)
        figures[:, members] = _estimate_family(base[members], new[members], is_paired)
    effect, squared, df, sd = figures
    if session is not None:
        between_sessions = session_variance(effect, squared, families, controls, session)
        squared = np.where(paired, squared, squared + between_sessions)
    squared, df = np.where((df > 0) & np.isfinite(effect + squared), (squared, df), np.nan)
    return Estimate(effect, np.sqrt(squared), df, sd)


@ignore_nan
def _estimate_family(
    base: Floats, new: Floats, is_paired: bool
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the effects of one family with their squared error and degrees of freedom, and the SD
    of a process."""
    if is_paired:
        parts = [_levels_of_family(new - base)]
        effect = parts[0].mean
        variance, df, weight = parts[0].variance, parts[0].df, 1.0 / parts[0].n
    else:
        parts = [_levels_of_family(base), _levels_of_family(new)]
        effect = parts[1].mean - parts[0].mean
        variance, df, weight = _pool(*parts)
    variance, df = np.maximum(variance, MIN_VARIANCE), np.maximum(df, 0.0)
    prior = fit_prior(variance, df) if np.sum(df > 0) >= MIN_FAMILY else NO_PRIOR
    posterior, df = squeeze(variance, df, prior)
    squared = posterior * weight
    uncertainty = squared**2 / df
    for part in parts:
        if part.shared_df.any():
            squared = squared + part.shared / part.n
            uncertainty = uncertainty + (part.shared / part.n) ** 2 / part.shared_df
    total_df = np.where((squared > 0) & (df > 0), squared**2 / uncertainty, 0.0)
    return effect, squared, total_df, np.sqrt(squared / weight)


def _pool(base: "Levels", new: "Levels") -> tuple[Floats, Floats, Floats]:
    """Return Welch's error of unpaired effects, written as a common variance, its degrees of
    freedom and its weight. With equal numbers of processes it is the pooled variance; with few
    against many, the few determine the error and the degrees of freedom."""
    base_variance = np.where(base.n > 1, base.variance, new.variance)
    new_variance = np.where(new.n > 1, new.variance, base.variance)
    weight = 1.0 / base.n + 1.0 / new.n
    variance = (base_variance / base.n + new_variance / new.n) / weight
    fewest = np.maximum(np.minimum(base.n, new.n), 1)
    df = np.where(base.n == new.n, base.n + new.n - 2, fewest - 1)
    return variance, df, weight


@dataclass(frozen=True)
class Levels:
    """Times of the cells of one run, in log seconds; the arrays are over cells, present is (cells,
    rounds).

    mean, number (n) and variance of the processes, with its degrees of freedom (df, 0 if not
    known), without the effect that a family's cells share in a round. shared is the variance of
    that effect, with shared_df degrees of freedom; both are 0 if the family is too small. present:
    the rounds that have a process.
    """

    mean: Floats
    n: Floats
    variance: Floats
    df: Floats
    shared: Floats
    shared_df: Floats
    present: Bools


def _levels_of_family(values: Floats) -> Levels:
    """Return the levels of the cells of one family, or of the differences of pairs; variances are
    not moderated."""
    n, mean, variance = _moments(values)
    shared, shared_df = np.zeros((2, len(n)))
    present = np.isfinite(values)
    is_enough = present.sum(axis=0) >= MIN_FAMILY  # (rounds,)
    if is_enough.sum() > 1:
        effect = np.zeros(len(is_enough))
        effect[is_enough] = np.nanmedian(values[:, is_enough] - mean[:, None], axis=0)
        effect[is_enough] -= effect[is_enough].mean()
        _, _, variance = _moments(values - effect)
        shared_df += is_enough.sum() - 1
        shared += np.sum(effect**2) / shared_df
    return Levels(mean, n, variance, np.maximum(n - 1, 0.0), shared, shared_df, present)


def levels(values: Floats, families: Names) -> Levels:
    """Return levels of cells from their processes' log seconds (cells, rounds), variances moderated
    by family."""
    n, mean, variance = _moments(values)
    df = np.maximum(n - 1, 0.0)
    variance = np.where(df > 0, variance, 0.0)
    shared, shared_df = np.zeros((2, len(n)))
    for family in np.unique(families):
        members = families == family
        if members.sum() >= MIN_FAMILY:
            part = _levels_of_family(values[members])
            shared[members], shared_df[members] = part.shared, part.shared_df
            prior = fit_prior(part.variance, part.df)
            variance[members], df[members] = squeeze(part.variance, part.df, prior)
    return Levels(mean, n, variance, df, shared, shared_df, np.isfinite(values))


@ignore_nan
def compare_levels(base: Levels, other: Levels, together: Bools, sessions: Floats) -> Estimate:
    """Estimate the effect ``other`` - ``base`` of cells, for arrays over cells of shapes that
    broadcast.

    together  both cells are of one family: its shared effect cancels in rounds in which both have a
              process
    sessions  variance of the effect from differences between their runs
    """
    sides = (base, other)
    # a round with weight 1/n in both means has weight 0 in their difference
    cancelled = np.where(together, (base.present & other.present).sum(axis=-1), 0)
    cancelled = cancelled / (base.n * other.n)
    terms = np.broadcast_arrays(
        *[side.variance / side.n for side in sides],
        *[side.shared * np.maximum(1 / side.n - cancelled, 0.0) for side in sides],
        sessions,
        *[side.df for side in sides],
        *[side.shared_df for side in sides],
        np.inf,
    )
    parts, dfs = np.split(np.array(terms, dtype=float), 2)
    sd = np.sqrt(parts.sum(axis=0))
    df = _df_of_sum(parts, dfs, [np.greater(side.df, side.n - 1) for side in sides])
    is_known = (base.df > 0) & (other.df > 0)
    error, df = np.where(is_known, (sd, df), np.nan)
    return Estimate(other.mean - base.mean, error, df, sd)


def _df_of_sum(parts: Floats, dfs: Floats, are_moderated: Sequence[Bools]) -> Floats:
    """Return the degrees of freedom of a sum of variances, (parts, cells). The first parts are of
    cells whose variance may be moderated.

    Welch and Satterthwaite's degrees of freedom reach the sum of all. These are too many for
    moderated variances, whose errors are not chi-squared: 1.2 % of pairs that differ by the margin
    were decided, not 0.5 %. So a value between both is used, weighted by their shares of the error.
    """
    total = parts.sum(axis=0)
    shares = parts.copy()
    for part, is_moderated in enumerate(are_moderated):
        shares[part] = np.where(is_moderated, total, parts[part])
    uncertainty = np.where(parts > 0, parts * shares / dfs, 0.0).sum(axis=0)
    return np.where(uncertainty > 0, total**2 / uncertainty, np.inf)


@ignore_nan
def _moments(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return count, mean and variance over processes, without NaN: (cells,) each."""
    n = np.isfinite(values).sum(axis=1, dtype=float)
    mean = np.nansum(values, axis=1) / n
    deviations = values - mean[:, None]
    return n, mean, np.nansum(deviations**2, axis=1) / (n - 1)


def means(values: Floats) -> Floats:
    """Return the mean over processes, without NaN: (cells,)."""
    return _moments(values)[1]


def session_variance(
    effect: Floats,
    squared_error: Floats,
    families: Names,
    controls: Bools | None = None,
    variances: Mapping[str, float] = MappingProxyType({}),
) -> Floats:
    """Return the variance of an effect between sessions, (cells,), which the processes of two
    sessions do not show: that of the family in ``variances``, from toolchains measured twice
    (``History.session_sd``), of other families the largest there. Estimate it if there are none.

    In each family it is the variance of the effects around their median beyond their errors, and at
    least MIN_SESSION_SD squared. It is robust: up to about a third of the cells may really have
    changed. The square of the median effect of the controls is added to it. These are cells such as
    memcpy that no toolchain can change: if they differ, the machine itself was faster or slower.
    """
    if variances:
        widest = max(variances.values())
        return np.array([variances.get(family, widest) for family in families])
    extra = np.full(len(effect), MIN_SESSION_SD**2)
    everything = _excess(effect, squared_error, 0.0)
    for family in np.unique(families):
        members = families == family
        excess = _excess(effect[members], squared_error[members], everything)
        extra[members] = max(MIN_SESSION_SD**2, excess)
    if controls is not None and np.isfinite(effect[controls]).any():
        extra += np.nanmedian(effect[controls]) ** 2
    return extra


def _excess(effect: Floats, squared_error: Floats, default: float) -> float:
    """Return the variance of effects beyond their errors; ``default`` if there are too few
    cells."""
    is_known = np.isfinite(effect) & np.isfinite(squared_error)
    if is_known.sum() < MIN_FAMILY:
        return default
    effect = effect[is_known]
    spread = MAD_TO_SD * np.median(np.abs(effect - np.median(effect)))
    return max(0.0, float(spread**2 - np.median(squared_error[is_known])))


# --- decisions ------------------------------------------------------------------------------------


@ignore_nan
def p_different(estimated: Estimate, margin: float) -> Floats:
    """Return the p value of "the effect is no larger than ``margin`` (log units), either way"
    (TREAT); two-sided t at margin 0."""
    size = np.abs(estimated.effect)
    above = scipy.special.stdtr(estimated.df, (margin - size) / estimated.error)
    below = scipy.special.stdtr(estimated.df, -(margin + size) / estimated.error)
    p: Floats = np.minimum(1.0, above + below)
    return p


@ignore_nan
def p_equivalent(estimated: Estimate, margin: float) -> Floats:
    """Return the p value of "the effect is at least ``margin`` (log units), either way": two
    one-sided tests."""
    size = np.abs(estimated.effect)
    p: Floats = scipy.special.stdtr(estimated.df, (size - margin) / estimated.error)
    return p


def interval(estimated: Estimate, confidence: float) -> tuple[Floats, Floats]:
    """Return the low and high end of the effect's confidence interval, in log units."""
    half = scipy.special.stdtrit(estimated.df, 0.5 + confidence / 2) * estimated.error
    return estimated.effect - half, estimated.effect + half


def prediction_half_width(level: Levels, confidence: float) -> Floats:
    """Return half the prediction interval of one more process around the mean of each of
    ``Levels``, in log units (Hahn 1970, Journal of the American Statistical Association 65)."""
    error = np.sqrt((level.variance + level.shared) * (1 + 1 / level.n))
    half: Floats = scipy.special.stdtrit(level.df, 0.5 + confidence / 2) * error
    return half


def q_values(p: Floats) -> Floats:
    """Return Benjamini and Hochberg's adjusted p values over the cells with a p value; NaN for
    others."""
    q: Floats = np.full(len(p), np.nan)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # NaN is last
    adjusted = p[order] * (len(order) / np.arange(1, len(order) + 1))
    q[order[::-1]] = np.minimum.accumulate(adjusted[::-1])  # at most the largest p: at most 1
    return q


def rate_bounds(flagged: int, cells: int) -> tuple[float, float]:
    """Return one-sided Clopper and Pearson bounds (lower, upper) of the rate ``flagged`` /
    ``cells``."""
    lower = (
        scipy.special.betaincinv(flagged, cells - flagged + 1, 1 - CONFIDENCE) if flagged else 0.0
    )
    upper = (
        scipy.special.betaincinv(flagged + 1, cells - flagged, CONFIDENCE)
        if flagged < cells
        else 1.0
    )
    return float(lower), float(upper)
