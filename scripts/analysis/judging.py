"""Verdicts of a comparison: of times by their processes, and of instruction counts by their layout.

A verdict rests on processes (see statistics.py). A cell is **faster** or **slower** where its false
discovery rate is at most ``Settings.fdr`` and its own p value at most ``Settings.promise``: the
first bounds the share of wrong flags among the flags of a large comparison, the second the chance
that an unchanged cell is flagged in one of any size.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from pandas import DataFrame, Index, MultiIndex, Series, concat

from benchmarks.contracts import Role

from . import statistics, verdicts
from .history import History
from .results import Results
from .series import series_of
from .statistics import MIN_PROCESSES, Z90_OVER_Z95, Z95, Bools, Estimate, Floats, Names
from .suite import Benchmarks
from .verdicts import (
    CALL,
    DECIDED,
    FASTER,
    INCONCLUSIVE,
    LAYOUT_GROUP,
    NO_CHANGE,
    SIDE_COUNT,
    SIDES,
    SLOWER,
    Reason,
    Settings,
)

CLOSE_P = 0.10  # p value below which fresh processes decide (two stages)
MAX_SWAPPED_PAIRS = 3  # pairs of the baseline's processes that change halves in the A/A: 8 splits
MANY_DF = 1e6  # degrees of freedom of a normal error
DETECTION = 0.95  # chance to find a change that is called detectable
MIN_TURNS = 5  # pairs of samples that a ratio of two processes needs
POWER = 0.8  # chance of a decision that ``processes_needed`` promises


class Times(NamedTuple):
    """Speed-corrected times of both sides.

    logs        log seconds, (sides, cells, processes), NaN without a process
    paired      (cells,): processes with the same number ran side by side
    in_turns    (cells,): these took their samples in turns, whose ratio no disturbance changes
    slowdown    log of how much slower the machine was for new
    """

    logs: Floats
    paired: Bools
    in_turns: Bools
    slowdown: float


@dataclass(frozen=True)
class SelfCheck:
    """A/A: the baseline's processes against each other, by the method of the comparison. Every flag
    is a false alarm.

    flagged and cells are averages per split over ``splits`` splits; lower and upper bound the rate
    (one-sided, 95 % each) as for a single split, because splits share their data.
    """

    splits: int
    cells: int
    flagged: float
    lower: float
    upper: float

    @property
    def rate(self) -> float:
        return self.flagged / self.cells if self.cells else math.nan


# --- times ----------------------------------------------------------------------------------------


def interleaved_collection(base: Results, new: Results) -> str:
    """Return the collection in which process k of both sides ran side by side, by the run records,
    or ""."""
    first, second = base.last.interleaved, new.last.interleaved
    is_common = all(first.get(name) == second.get(name) for name in ("id", "stage"))
    has_two_sides = first.get("side") != second.get("side")
    return str(first.get("id", "")) if is_common and has_two_sides else ""


def corrected_times(base: Results, new: Results, cells: Index, have_same_probes: bool) -> Times:
    """Return the times of both sides, corrected to one speed of the machine.

    A virtual machine keeps one baseline for a run, and may have another an hour later, depending on
    its host's load. Probes are the interpreter's own work, so nothing is corrected unless both
    sides have the same. Cells of an interleaved collection are paired if enough rounds, or all,
    gave both sides a process; other rounds are then left out.
    """
    logs = _logs(base, new, cells, "seconds")
    slowdown = 0.0
    if have_same_probes:
        corrections = _speed_corrections(logs, _logs(base, new, cells, "baseline"))
        slowdown = _slowdown(logs, corrections)
        logs = logs - corrections
    has_process = np.isfinite(logs)
    has_both = has_process.all(axis=0)
    paired = has_both.sum(axis=1) >= MIN_PROCESSES
    paired |= (has_process[0] == has_process[1]).all(axis=1)
    paired &= bool(interleaved_collection(base, new))
    logs = np.where(paired[:, None] & ~has_both, np.nan, logs)
    ratios = _log_ratios_in_turns(base, new, cells, logs.shape[2])
    in_turns = paired & (np.isfinite(ratios).sum(axis=1) >= MIN_PROCESSES)
    logs[:, in_turns] = _logs_with_ratios(logs[:, in_turns], ratios[in_turns])
    return Times(logs, paired, in_turns, slowdown)


def _log_ratios_in_turns(base: Results, new: Results, cells: Index, rounds: int) -> Floats:
    """Return the log of new over base of each pair of processes that took samples in turns, (cells,
    rounds): the median over MIN_TURNS or more pairs of samples without a disturbance. NaN for other
    processes."""
    ratios = np.full((len(cells), rounds), np.nan)
    turns = [side.processes.set_index(["cell", "process"])["turns"] for side in (base, new)]
    pairs = concat(turns, axis=1, join="inner", keys=SIDES)
    for (cell, number), first, second in pairs.itertuples(name=None):
        if cell in cells and len(first) == len(second):
            logs = np.log(second) - np.log(first)
            if np.isfinite(logs).sum() >= MIN_TURNS:
                ratios[cells.get_loc(cell), number] = np.nanmedian(logs)
    return ratios


def _logs_with_ratios(logs: Floats, ratios: Floats) -> Floats:
    """Return logs of the same mean for base, in which each pair differs by its ratio.

    Its deviation from their mean is split between both sides. So halves of the baseline's processes
    (``self_check``) differ by as much noise as the two sides.
    """
    ratios = _without_order(ratios)
    mean = np.nanmean(ratios, axis=1, keepdims=True)
    half = (ratios - mean) / 2
    base = np.nanmean(logs[0], axis=1, keepdims=True)
    return np.stack([base - half, base + mean + half])


@statistics.ignore_nan
def _without_order(ratios: Floats) -> Floats:
    """Return ratios, (cells, rounds), without what the order of the two sides adds.

    Base begins in even rounds, new in odd ones. Who begins may move the ratio alike in each round:
    fresh copies of 16 MiB took 7 % longer on the side that came second (Xeon, two cores,
    2026-11-30; the cause is not known). So both orders count alike in the mean. Deviations are
    widened for the degree of freedom that this takes.
    """
    is_known = np.isfinite(ratios)
    count = is_known.sum(axis=1, keepdims=True)
    orders = [
        np.nansum(ratios[:, first::2], axis=1, keepdims=True)
        / is_known[:, first::2].sum(axis=1, keepdims=True)
        for first in range(2)
    ]
    widening = np.sqrt((count - 1) / np.maximum(count - 2, 1))
    rest = ratios.copy()
    for first, mean in enumerate(orders):
        rest[:, first::2] -= mean
    corrected: Floats = np.nanmean(orders, axis=0) + widening * rest
    return corrected


def _logs(base: Results, new: Results, cells: Index, column: str) -> Floats:
    """Return logs of a column of both sides, (sides, cells, rounds); NaN without a process."""
    rounds = 1 + max((*base.processes["process"], *new.processes["process"]), default=0)
    figures = np.full((len(SIDES), len(cells), rounds), np.nan)
    for of_side, side in zip(figures, (base, new)):
        processes = side.processes[side.processes["cell"].isin(cells)]
        places = cells.get_indexer(processes["cell"].astype(object))
        of_side[places, processes["process"]] = processes[column]
    figures[~(figures > 0)] = np.nan
    logs: Floats = np.log(figures)
    return logs


def _speed_corrections(logs: Floats, baselines: Floats) -> Floats:
    """Return the log by which each process of either side ran slower than usual. A cell with a
    process without a baseline is not corrected."""
    usual = np.array([np.nanmedian(side) for side in baselines if np.isfinite(side).any()])
    is_known = np.isfinite(baselines) | ~np.isfinite(logs)
    is_corrected = is_known.all(axis=(0, 2), keepdims=True)
    return np.where(is_corrected, statistics.speed_correction_log(baselines, usual), 0.0)


def _slowdown(logs: Floats, corrections: Floats) -> float:
    """Return the log of how much slower the machine was for new; 0 if nothing was corrected."""
    is_moved = np.isfinite(logs) & (corrections != 0)
    if not is_moved.any(axis=(1, 2)).all():
        return 0.0
    base, new = (np.median(side[moved]) for side, moved in zip(corrections, is_moved))
    return float(new - base)


def judge_times(
    times: Times,
    noise: Names,
    usable: Bools,
    judged: Bools,
    settings: Settings,
    session: Mapping[str, float] | None = None,
    controls: Bools | None = None,
) -> DataFrame:
    """Return verdict, reason and figures of every cell; inconclusive without evidence. ``usable``
    cells are used to estimate the noise; of these, ``judged`` cells get a verdict and figures. For
    session and controls see ``statistics.estimate``."""
    logs = np.where(usable[:, None], times.logs, np.nan)
    estimate = statistics.estimate(logs[0], logs[1], noise, times.paired, session, controls)
    estimate = Estimate(*np.where(judged, [*vars(estimate).values()], np.nan))
    fewest = np.isfinite(times.logs).sum(axis=2).min(axis=0)
    is_enough = (fewest >= MIN_PROCESSES) & np.isfinite(estimate.error)
    table = _judge_effects(estimate, is_enough, settings)
    table["reason"] = Series(Reason(verdicts.TOO_FEW), table.index).mask(is_enough, Reason())
    needed = processes_needed(estimate, times.paired, settings)
    more = np.fmax(needed, np.maximum(fewest + 1, MIN_PROCESSES)) - fewest
    return table.assign(
        more=np.where(judged & (table["verdict"] == INCONCLUSIVE), more, np.nan),
        **_figures_of_sides(times.logs),
        paired=times.paired & judged,
        in_turns=times.in_turns & judged,
        fresh=False,
        close=table["p"] < CLOSE_P,
    )


def _figures_of_sides(logs: Floats) -> dict[str, NDArray[Any]]:
    """Return the columns of each side: seconds and number of processes of the cells."""
    figures = {}
    for side, of_side in zip(SIDES, logs):
        figures[f"{side}_seconds"] = np.exp(statistics.means(of_side))
        figures[f"{side}_processes"] = np.isfinite(of_side).sum(axis=1)
    return figures


def processes_needed(estimate: Estimate, paired: Bools, settings: Settings) -> Floats:
    """Return the processes per side, (cells,), that would decide a cell with probability POWER at
    the estimated effect.

    The smaller number of two decisions: a difference of more than ``min_effect`` at the level of
    the promise, or of less than ``equivalence``. Processes are taken to run side by side, because
    more of them do not reduce the variance between sessions. NaN without a variance.
    """
    size = np.abs(estimate.effect)
    variance = np.where(paired, 1.0, 2.0) * estimate.sd**2
    quantile = scipy.special.stdtrit(estimate.df, 1 - settings.promise / 2) + scipy.special.ndtri(
        POWER
    )
    to_differ = _processes_for(size - math.log1p(settings.min_effect), variance, quantile)
    # an effect near zero has two margins to stay clear of
    quantile = scipy.special.stdtrit(estimate.df, 0.95) + scipy.special.ndtri((1 + POWER) / 2)
    to_equal = _processes_for(math.log1p(settings.equivalence) - size, variance, quantile)
    needed = np.maximum(np.ceil(np.fmin(to_differ, to_equal)), MIN_PROCESSES)
    return np.where(np.isfinite(estimate.error), needed, np.nan)


def detectable(error: Floats, df: Floats | float, settings: Settings) -> Floats:
    """Return the smallest change that would have been found with a chance of DETECTION: one that
    exceeds ``min_effect`` at the level of the promise. error: of the log of a ratio."""
    quantile = scipy.special.stdtrit(df, 1 - settings.promise / 2)
    quantile += scipy.special.ndtri(DETECTION)
    change: Floats = np.expm1(math.log1p(settings.min_effect) + quantile * error)
    return change


@np.errstate(divide="ignore", invalid="ignore")
def _processes_for(gap: Floats, variance: Floats, quantile: Floats) -> Floats:
    """Return the processes that show an effect to lie ``gap`` (log) from a margin; inf if it does
    not."""
    return np.where(gap > 0, variance * (quantile / np.maximum(gap, 1e-9)) ** 2, np.inf)


def _judge_effects(estimate: Estimate, is_enough: Bools, settings: Settings) -> DataFrame:
    """Return verdict, ratio, its intervals and p values of effects; inconclusive where
    ``is_enough`` is false."""
    margins = math.log1p(settings.min_effect), math.log1p(settings.equivalence)
    p = np.where(is_enough, statistics.p_different(estimate, margins[0]), np.nan)
    p_equivalence = np.where(is_enough, statistics.p_equivalent(estimate, margins[1]), np.nan)
    q = statistics.q_values(p)
    is_flagged = (q <= settings.fdr) & (p <= settings.promise)
    conditions = [
        is_flagged & (estimate.effect > 0),
        is_flagged,
        p_equivalence <= statistics.MAX_EQUIVALENCE_P,
    ]
    verdict = np.select(conditions, [SLOWER, FASTER, NO_CHANGE], INCONCLUSIVE)
    figures = {"verdict": verdict, "ratio": np.exp(estimate.effect)}
    figures |= {"p": p, "q": q, "p_equivalence": p_equivalence}
    figures["detectable"] = detectable(estimate.error, estimate.df, settings)
    for percent in (95, 90):
        ends = statistics.interval(estimate, percent / 100)
        figures[f"low{percent}"], figures[f"high{percent}"] = np.exp(ends)
    return DataFrame(figures)


def withhold_busy(figures: DataFrame, base: Series, new: Series, in_turns: Bools) -> DataFrame:
    """Make cells without a quiet process on one side inconclusive: the machine may cause the
    difference, except between samples taken in turns. base, new: whether a cell had one, by
    cell."""
    is_busy = DataFrame({"base": base, "new": new}).reindex(figures.index).eq(False)
    is_busy.loc[in_turns] = False
    is_busy["both"] = is_busy.all(axis=1)
    for side, rows in is_busy.items():
        reason = Reason(verdicts.NEVER_QUIET, str(side))
        figures.loc[rows, ["verdict", "reason", "close"]] = [INCONCLUSIVE, reason, False]
    return figures


def judge_fresh(
    figures: DataFrame,
    times: Times,
    noise: Names,
    is_open: Bools,
    fresh: Sequence[Results],
    settings: Settings,
) -> DataFrame:
    """Judge close cells again, by fresh processes alone.

    Selecting cells by their first figures and judging them by the same figures would exaggerate the
    effects. Cells that were measured again only to estimate the noise keep their first verdict.
    """
    close = figures["close"].to_numpy(dtype=bool)
    has_times = np.isfinite(times.logs).any(axis=2).all(axis=0)
    second = judge_times(times, noise, close | (is_open & has_times), close, settings)
    second = second.set_axis(figures.index).assign(fresh=True, close=True)
    base, new = (side.cells.set_index("cell")["quiet"] for side in fresh)
    second = withhold_busy(second, base, new, times.in_turns)
    first = figures.assign(q=np.nan)  # the first stage flags nothing
    return concat([first[~close], second[close]]).loc[figures.index]


# --- instruction counts ---------------------------------------------------------------------------


def judge_counts(cells: DataFrame, settings: Settings) -> DataFrame:
    """Return verdict and figures of every open count: medians over processes, whose only error is
    memory layout."""
    columns = {side: [f"{side}_{name}" for name in SIDE_COUNT] for side in SIDES}
    counts = [
        cells[names].astype(float).set_axis(SIDE_COUNT, axis=1).join(cells[LAYOUT_GROUP])
        for names in columns.values()
    ]
    positive = concat(counts)
    positive[SIDE_COUNT] = positive[SIDE_COUNT].where(positive[SIDE_COUNT] > 0)
    spread = verdicts.layout_sd(positive)[: len(cells)]
    base, new = np.split(positive["value"].to_numpy(), 2)
    effect = np.where(cells["verdict"] == "", np.log(new / base), np.nan)
    # each range is over two processes at least
    df = 4.0 * cells.groupby(LAYOUT_GROUP, dropna=False)["what"].transform("size")
    estimate = Estimate(effect, spread * math.sqrt(2), df.to_numpy(), spread)
    figures = _judge_effects(estimate, np.isfinite(effect), settings).set_axis(cells.index)
    return figures.assign(
        reason=Reason(), base_count=counts[0]["value"], new_count=counts[1]["value"]
    )


def add_times(counted: DataFrame, timed: DataFrame, benchmarks: Benchmarks) -> DataFrame:
    """Add the result of the same route's time: time (its verdict, "" if not decided), time_ratio,
    and contradicts (whether the two disagree)."""
    conversions = [name for name, each in benchmarks.items() if each.role == Role.CONVERSION]
    timed = timed[timed["verdict"].isin(DECIDED) & timed["benchmark"].isin(conversions)]
    times = timed.drop_duplicates(CALL, keep="last")[[*CALL, "verdict", "ratio"]]
    times = counted[CALL].merge(times, on=CALL, how="left").set_axis(counted.index)
    time = times["verdict"].fillna("").astype(str)
    expected = counted["verdict"].map(verdicts.TIME_VERDICTS)
    return counted.assign(
        time=time,
        time_ratio=times["ratio"].astype(float),
        contradicts=time.ne("") & expected.notna() & time.ne(expected),
    )


# --- verdicts of a history ------------------------------------------------------------------------


def judge_as_history(cells: DataFrame, ratios: DataFrame, settings: Settings) -> DataFrame:
    """Replace the figures and verdicts of times, or of counts, by those of their history. ratios:
    see history.compare_releases. Cells of a series over several sizes get the parameter ``sizes``
    (its ends, in bytes) instead of nbytes."""
    keys = MultiIndex.from_arrays([series_of(cells), cells["what"]])
    ratios = ratios.set_index(["series", "what"]).reindex(keys).set_axis(cells.index)
    ratios = judge_ratios(ratios, settings)
    figures = ratios[["ratio", "q", "low95", "high95", "detectable", "low90", "high90", "verdict"]]
    figures = figures.assign(verdict=figures["verdict"].replace(verdicts.TIME_VERDICTS))
    is_judged = cells["verdict"].isin((*DECIDED, INCONCLUSIVE)) & ratios["ratio"].notna()
    cells[figures.columns] = cells[figures.columns].mask(is_judged, figures)
    _name_sizes(cells, ratios.loc[is_judged, "sizes"])
    return cells


def _name_sizes(cells: DataFrame, sizes_of: "Series[object]") -> None:
    """Give the cells of a series over several sizes the parameter ``sizes`` in place of nbytes.

    sizes_of  cell -> the sizes of its series
    """
    for cell, sizes in sizes_of.items():
        if len(sizes) > 1:
            parameters = cells.at[cell, "parameters"] | {"sizes": (sizes[0], sizes[-1])}
            del parameters["nbytes"]
            cells.at[cell, "parameters"] = parameters


def judge_ratios(ratios: DataFrame, settings: Settings) -> DataFrame:
    """Return ``ratios`` with low90, high90 and detectable, and a verdict where they have none."""
    width = ratios["high95"] / ratios["low95"]  # of 95 %
    half_width = width ** (Z90_OVER_Z95 / 2)  # of 90 %, a factor
    low90 = ratios["ratio"] / half_width
    high90 = ratios["ratio"] * half_width
    limit = 1 + settings.equivalence
    is_small = (high90 < limit) & (low90 > 1 / limit)
    undecided = np.where(is_small, NO_CHANGE, INCONCLUSIVE)
    error = np.log(width) / (2 * Z95)
    return ratios.assign(
        low90=low90,
        high90=high90,
        detectable=detectable(error, MANY_DF, settings),
        verdict=ratios["verdict"].where(ratios["verdict"] != "", undecided),
    )


def merge_sizes(cells: DataFrame) -> DataFrame:
    """Keep one row per series of several sizes: the first of those that were quiet and
    have the most processes."""
    has_sizes = cells["parameters"].map(lambda parameters: "sizes" in parameters).astype(bool)
    fewest = cells[["base_processes", "new_processes"]].min(axis=1)
    best = cells.assign(series=series_of(cells), fewest=fewest)[has_sizes]
    best = best.sort_values(["base_quiet", "new_quiet", "fewest"], ascending=False, kind="stable")
    return cells.drop(best.index[best.duplicated("series")])


def check_by_history(history: History) -> SelfCheck:
    """Return how often the history reports a change of a toolchain against itself.

    Halves of the baseline's processes would check a test that is not used here. They also fail it:
    processes of one session may be fast and slow by turns, two of a half alike, and 8.7 % of the
    cells of torch 2.10.0 were flagged.
    """
    flagged, series = map(int, history.replicates[["flagged", "series"]].sum())
    bounds = statistics.rate_bounds(flagged, series)
    return SelfCheck(len(history.replicates), series, flagged, *bounds)


# --- the comparison's own check -------------------------------------------------------------------


def splits(processes: int) -> list[tuple[list[int], list[int]]]:
    """Return ways to halve a baseline's processes: each half gets one of two neighbours in time.
    Empty below four.

    An interleaved comparison divides processes in the same way, and drift is the same for both
    halves. Differences between sessions do not show in halves of one session: see
    statistics.session_variance.
    """
    pairs = [(k, k + 1) for k in range(0, processes - 1, 2)]
    if len(pairs) < 2:
        return []
    choices = [
        [pair, pair[::-1]] if 1 <= place <= MAX_SWAPPED_PAIRS else [pair]
        for place, pair in enumerate(pairs)
    ]
    return [([one for one, _ in order], [two for _, two in order]) for order in product(*choices)]


def self_check(times: Times, noise: Names, is_open: Bools, settings: Settings) -> SelfCheck:
    """A/A over the splits of the baseline's processes, of open cells with at least four."""
    is_present = np.isfinite(times.logs[0])
    is_enough = is_open & (is_present.sum(axis=1) >= MIN_PROCESSES)
    logs = times.logs[0, is_enough]
    if not len(logs):
        return SelfCheck(0, 0, 0.0, *statistics.rate_bounds(0, 0))
    last_process = np.flatnonzero(is_present.any(axis=0))[-1]
    flags = []
    for one, other in splits(1 + int(last_process)):
        estimate = statistics.estimate(
            logs[:, one], logs[:, other], noise[is_enough], times.paired[is_enough]
        )
        figures = _judge_effects(estimate, np.isfinite(estimate.error), settings)
        flags.append(figures["verdict"].isin((SLOWER, FASTER)).sum())
    mean = float(np.mean(flags))
    lower, _ = statistics.rate_bounds(math.floor(mean), len(logs))
    _, upper = statistics.rate_bounds(math.ceil(mean), len(logs))
    return SelfCheck(len(flags), len(logs), mean, lower, upper)
