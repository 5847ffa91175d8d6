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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, Index, MultiIndex, Series, concat
from scipy import special

from benchmarks.contracts import Role

from . import statistics, verdicts
from .history import History
from .results import Results
from .series import series_of
from .statistics import MIN_PROCESSES, Z90_OVER_Z95, Bools, Estimate, Floats
from .suite import Benchmarks
from .verdicts import (
    CALL,
    DECIDED,
    FASTER,
    INCONCLUSIVE,
    LAYOUT_GROUP,
    NO_CHANGE,
    SIDE_COUNT,
    SLOWER,
    Reason,
    Settings,
)

CLOSE_P = 0.10  # p value below which fresh processes decide (two stages)
MAX_EQUIVALENCE_P = 0.05
MAX_SWAPPED_PAIRS = 3  # pairs of the baseline's processes that change halves in the A/A: 8 splits
SIDES = ("base", "new")
POWER = 0.8  # chance of a decision that ``processes_needed`` promises
Names = NDArray[np.str_]


class Times(NamedTuple):
    """Speed-corrected times of both sides.

    base, new   log seconds, (cells, processes), NaN without a process
    paired      (cells,): processes with the same number ran side by side
    slowdown    log of how much slower the machine was for new
    """

    base: Floats
    new: Floats
    paired: Bools
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
    collection = first.get("id", "")
    is_common = collection == second.get("id", "") and first.get("stage") == second.get("stage")
    return str(collection) if is_common and first.get("side") != second.get("side") else ""


def corrected_times(base: Results, new: Results, cells: Index, have_same_probes: bool) -> Times:
    """Return the times of both sides, corrected to one speed of the machine.

    A virtual machine keeps one baseline for a run, and may have another an hour later, depending on
    its host's load. Probes are the interpreter's own work, so nothing is corrected unless both
    sides have the same. Cells of an interleaved collection are paired if enough rounds, or all,
    gave both sides a process; other rounds are then left out.
    """
    sides = (base.processes, new.processes)
    rounds = range(1 + max(int(side["process"].max()) if len(side) else 0 for side in sides))
    logs = [_logs(side, "seconds", cells, rounds) for side in sides]
    slowdown = 0.0
    if have_same_probes:
        baselines = [_logs(side, "baseline", cells, rounds) for side in sides]
        corrections = _speed_corrections(logs, baselines)
        slowdown = _slowdown(logs, corrections)
        logs = [side - correction for side, correction in zip(logs, corrections)]
    if not interleaved_collection(base, new):
        return Times(logs[0], logs[1], np.full(len(cells), False), slowdown)
    has_process = np.isfinite(logs)
    has_both = has_process.all(axis=0)
    paired = has_both.sum(axis=1) >= MIN_PROCESSES
    paired |= (has_process[0] == has_process[1]).all(axis=1)
    logs = [np.where(paired[:, None] & ~has_both, np.nan, side) for side in logs]
    return Times(logs[0], logs[1], paired, slowdown)


def _logs(processes: DataFrame, column: str, cells: Index, rounds: range) -> Floats:
    """Return logs of a column, (cells, rounds); NaN without a process."""
    last = processes.groupby(["cell", "process"], observed=True)[column].last().unstack()
    values = last.reindex(index=cells, columns=rounds).to_numpy(dtype=float)
    logs: Floats = np.log(np.where(values > 0, values, np.nan))
    return logs


def _speed_corrections(logs: Sequence[Floats], baselines: Sequence[Floats]) -> list[Floats]:
    """Return the log by which each process of either side ran slower than usual. A cell with a
    process without a baseline is not corrected."""
    usual = np.array([np.nanmedian(side) for side in baselines if np.isfinite(side).any()])
    is_known = np.isfinite(baselines) | ~np.isfinite(logs)
    is_corrected = np.all(is_known, axis=(0, 2), keepdims=True)[0]
    return [
        np.where(is_corrected, statistics.speed_correction_log(side, usual), 0.0)
        for side in baselines
    ]


def _slowdown(logs: Sequence[Floats], corrections: Sequence[Floats]) -> float:
    """Return the log of how much slower the machine was for new; 0 if nothing was corrected."""
    moved = [
        correction[np.isfinite(side) & (correction != 0)]
        for side, correction in zip(logs, corrections)
    ]
    return float(np.median(moved[1]) - np.median(moved[0])) if all(map(len, moved)) else 0.0


def judge_times(
    times: Times,
    noise: Names,
    usable: Bools,
    judged: Bools,
    settings: Settings,
    session: bool | Mapping[str, float] = False,
    controls: Bools | None = None,
) -> DataFrame:
    """Return verdict, reason and figures of every cell; inconclusive without evidence. ``usable``
    cells are used to estimate the noise; of these, ``judged`` cells get a verdict and figures. For
    session and controls see ``statistics.estimate``."""
    base = np.where(usable[:, None], times.base, np.nan)
    new = np.where(usable[:, None], times.new, np.nan)
    estimate = statistics.estimate(base, new, noise, times.paired, session, controls)
    estimate = Estimate(*np.where(judged, [*vars(estimate).values()], np.nan))
    counts = np.isfinite([times.base, times.new]).sum(axis=2)
    fewest = counts.min(axis=0)
    is_enough = (fewest >= MIN_PROCESSES) & np.isfinite(estimate.error)
    table = _judge_effects(estimate, is_enough, settings)
    table["reason"] = [Reason() if enough else Reason(verdicts.TOO_FEW) for enough in is_enough]
    table["more"] = _more_processes(estimate, times.paired, fewest, settings)
    table["more"] = table["more"].where(judged & (table["verdict"] == INCONCLUSIVE))
    return table.assign(
        base_seconds=np.exp(statistics.means(times.base)),
        base_processes=counts[0],
        new_seconds=np.exp(statistics.means(times.new)),
        new_processes=counts[1],
        paired=times.paired & judged,
        fresh=False,
        close=table["p"] < CLOSE_P,
    )


def processes_needed(
    estimate: Estimate, paired: Bools, min_effect: float, equivalence: float, alpha: float
) -> Floats:
    """Return the processes per side, (cells,), that would decide a cell with probability POWER at
    the estimated effect.

    The smaller number of two decisions: a difference of more than ``min_effect`` at level
    ``alpha``, or of less than ``equivalence`` (both in log units). Processes are taken to run side
    by side, because more of them do not reduce the variance between sessions. NaN without a
    variance.
    """
    size = np.abs(estimate.effect)
    variance = np.where(paired, 1.0, 2.0) * estimate.sd**2
    quantile = special.stdtrit(estimate.df, 1 - alpha / 2) + special.ndtri(POWER)
    to_differ = _processes_for(size - min_effect, variance, quantile)
    # an effect near zero has two margins to stay clear of
    quantile = special.stdtrit(estimate.df, 0.95) + special.ndtri((1 + POWER) / 2)
    to_equal = _processes_for(equivalence - size, variance, quantile)
    needed = np.maximum(np.ceil(np.fmin(to_differ, to_equal)), MIN_PROCESSES)
    return np.where(np.isfinite(estimate.error), needed, np.nan)


@np.errstate(divide="ignore", invalid="ignore")
def _processes_for(gap: Floats, variance: Floats, quantile: Floats) -> Floats:
    """Return the processes that show an effect to lie ``gap`` (log) from a margin; inf if it does
    not."""
    return np.where(gap > 0, variance * (quantile / np.maximum(gap, 1e-9)) ** 2, np.inf)


def _more_processes(
    estimate: Estimate, paired: Bools, processes: NDArray[np.int_], settings: Settings
) -> Floats:
    """Return the additional processes per side that would probably decide each cell."""
    margins = math.log1p(settings.min_effect), math.log1p(settings.equivalence)
    needed = processes_needed(estimate, paired, *margins, settings.promise)
    least = np.where(processes < MIN_PROCESSES, MIN_PROCESSES, processes + 1)
    return np.fmax(needed, least) - processes


def _judge_effects(estimate: Estimate, is_enough: Bools, settings: Settings) -> DataFrame:
    """Return verdict, ratio, its intervals and p values of effects; inconclusive where
    ``is_enough`` is false."""
    p_changed = statistics.p_different(estimate, math.log1p(settings.min_effect))
    p_equivalent = statistics.p_equivalent(estimate, math.log1p(settings.equivalence))
    p = np.where(is_enough, p_changed, np.nan)
    p_equivalence = np.where(is_enough, p_equivalent, np.nan)
    q = statistics.q_values(p)
    is_flagged = (q <= settings.fdr) & (p <= settings.promise)
    conditions = [
        is_flagged & (estimate.effect > 0),
        is_flagged,
        p_equivalence <= MAX_EQUIVALENCE_P,
    ]
    low95, high95 = np.exp(statistics.interval(estimate, 0.95))
    low90, high90 = np.exp(statistics.interval(estimate, 0.9))
    return DataFrame(
        {
            "verdict": np.select(conditions, [SLOWER, FASTER, NO_CHANGE], INCONCLUSIVE),
            "ratio": np.exp(estimate.effect),
            "p": p,
            "q": q,
            "p_equivalence": p_equivalence,
            "low95": low95,
            "high95": high95,
            "low90": low90,
            "high90": high90,
        }
    )


def withhold_busy(figures: DataFrame, base: Series, new: Series) -> DataFrame:
    """Make cells without a quiet process on one side inconclusive: the machine may cause the
    difference. base, new: whether a cell had one, by cell."""
    is_busy = {
        side: quiet.reindex(figures.index).eq(False) for side, quiet in zip(SIDES, (base, new))
    }
    is_busy["both"] = is_busy["base"] & is_busy["new"]
    for side, rows in is_busy.items():
        reason = Reason(verdicts.NEVER_QUIET, side)
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
    has_times = np.isfinite(times.base).any(axis=1) & np.isfinite(times.new).any(axis=1)
    second = judge_times(times, noise, close | (is_open & has_times), close, settings)
    second = second.set_axis(figures.index)
    second[["fresh", "close"]] = True
    second = withhold_busy(second, *(side.cells.set_index("cell")["quiet"] for side in fresh))
    first = figures.assign(q=np.nan)  # the first stage flags nothing
    return concat([first[~close], second[close]]).loc[figures.index]


# --- instruction counts ---------------------------------------------------------------------------


def judge_counts(cells: DataFrame, settings: Settings) -> DataFrame:
    """Return verdict and figures of every open count: medians over processes, whose only error is
    memory layout."""
    counts = {side: _counts(cells, side) for side in SIDES}
    positive = concat([side.where(side > 0).join(cells[LAYOUT_GROUP]) for side in counts.values()])
    spread = verdicts.layout_sd(positive)[: len(cells)]
    base, new = np.split(positive["value"].to_numpy(), 2)
    effect = np.where(cells["verdict"] == "", np.log(new / base), np.nan)
    # each range is over two processes at least
    df = 4.0 * cells.groupby(LAYOUT_GROUP, dropna=False)["what"].transform("size")
    estimate = Estimate(effect, spread * math.sqrt(2), df.to_numpy(), spread)
    figures = _judge_effects(estimate, np.isfinite(effect), settings).set_axis(cells.index)
    return figures.assign(
        reason=Reason(), base_count=counts["base"]["value"], new_count=counts["new"]["value"]
    )


def _counts(cells: DataFrame, side: str) -> DataFrame:
    """Return SIDE_COUNT of one side."""
    columns = {f"{side}_{name}": name for name in SIDE_COUNT}
    return cells[[*columns]].rename(columns=columns).astype(float)


def add_times(counted: DataFrame, timed: DataFrame, benchmarks: Benchmarks) -> DataFrame:
    """Add the result of the same route's time: time (its verdict, "" if not decided), time_ratio,
    and contradicts (whether the two disagree)."""
    conversions = [name for name, each in benchmarks.items() if each.role == Role.CONVERSION]
    timed = timed[timed["verdict"].isin(DECIDED) & timed["benchmark"].isin(conversions)]
    times = timed[[*CALL, "verdict", "ratio"]].drop_duplicates(CALL, keep="last")
    times = counted[CALL].merge(times, on=CALL, how="left").set_axis(counted.index)
    time = times["verdict"].fillna("").astype(str)
    expected = counted["verdict"].map(verdicts.TIME_VERDICTS)
    contradicts = time.ne("") & expected.notna() & time.ne(expected)
    return counted.assign(
        time=time, time_ratio=times["ratio"].astype(float), contradicts=contradicts
    )


# --- verdicts of a history ------------------------------------------------------------------------


def judge_as_history(cells: DataFrame, ratios: DataFrame, settings: Settings) -> DataFrame:
    """Replace the figures and verdicts of times, or of counts, by those of their history. ratios:
    see history.compare_releases. Cells of a series over several sizes get the parameter ``sizes``
    (its ends, in bytes) instead of nbytes."""
    keys = MultiIndex.from_arrays([series_of(cells), cells["what"]])
    ratios = ratios.set_index(["series", "what"]).reindex(keys).set_axis(cells.index)
    figures = _history_figures(ratios, settings)
    is_judged = cells["verdict"].isin((*DECIDED, INCONCLUSIVE)) & ratios["ratio"].notna()
    cells[figures.columns] = cells[figures.columns].mask(is_judged, figures)
    has_sizes = is_judged & (ratios["sizes"].str.len() > 1)
    for cell, sizes in ratios.loc[has_sizes, "sizes"].items():
        parameters = cells.at[cell, "parameters"] | {"sizes": (sizes[0], sizes[-1])}
        del parameters["nbytes"]
        cells.at[cell, "parameters"] = parameters
    return cells


def _history_figures(ratios: DataFrame, settings: Settings) -> DataFrame:
    """Return the figures of a comparison for ratios of a history: verdict, ratio, q, intervals."""
    half_width = (ratios["high"] / ratios["low"]) ** (Z90_OVER_Z95 / 2)  # of 90 %, a factor
    low90 = ratios["ratio"] / half_width
    high90 = ratios["ratio"] * half_width
    limit = 1 + settings.equivalence
    is_small = (high90 < limit) & (low90 > 1 / limit)
    verdict = ratios["verdict"].replace(verdicts.TIME_VERDICTS)
    return ratios[["ratio", "q"]].assign(
        low95=ratios["low"],
        high95=ratios["high"],
        low90=low90,
        high90=high90,
        verdict=verdict.where(verdict.ne(""), np.where(is_small, NO_CHANGE, INCONCLUSIVE)),
    )


def merge_sizes(cells: DataFrame) -> DataFrame:
    """Keep one row per series of several sizes: the first of those that were quiet and
    have the most processes."""
    has_sizes = cells["parameters"].map(lambda parameters: "sizes" in parameters).astype(bool)
    fewest = cells[["base_processes", "new_processes"]].min(axis=1)
    best = cells.assign(series=series_of(cells), fewest=fewest)[has_sizes]
    best = best.sort_values(["base_quiet", "new_quiet", "fewest"], ascending=False, kind="stable")
    return cells[~has_sizes | cells.index.isin(best.drop_duplicates("series").index)]


def check_by_history(history: History) -> SelfCheck:
    """Return how often the history reports a change of a toolchain against itself.

    Halves of the baseline's processes would check a test that is not used here. They also fail it:
    processes of one session may be fast and slow by turns, two of a half alike, and 8.7 % of the
    cells of torch 2.10.0 were flagged.
    """
    totals = history.replicates[["flagged", "series"]].sum()
    flagged, series = int(totals["flagged"]), int(totals["series"])
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
    has_process = np.isfinite(times.base)
    is_enough = is_open & (has_process.sum(axis=1) >= MIN_PROCESSES)
    cells = int(is_enough.sum())
    halves = splits(1 + int(np.flatnonzero(has_process.any(axis=0))[-1])) if cells else []
    logs, noise, paired = times.base[is_enough], noise[is_enough], times.paired[is_enough]
    flags = [
        _count_flags(statistics.estimate(logs[:, one], logs[:, other], noise, paired), settings)
        for one, other in halves
    ]
    mean = sum(flags) / len(flags) if flags else 0.0
    return SelfCheck(
        splits=len(flags),
        cells=cells,
        flagged=mean,
        lower=statistics.rate_bounds(math.floor(mean), cells)[0],
        upper=statistics.rate_bounds(math.ceil(mean), cells)[1],
    )


def _count_flags(estimate: Estimate, settings: Settings) -> int:
    figures = _judge_effects(estimate, np.isfinite(estimate.error), settings)
    return int(figures["verdict"].isin((SLOWER, FASTER)).sum())
