"""Where the level of a series changes along a history, and which of these changes are confirmed.

Breaks are found by exact optimal partitioning; each is then tested as a comparison is, and over all series at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from . import statistics
from .comparison import judge
from .nodes import OnNode
from .sessions import Release, Visit
from .statistics import MIN_PROCESSES, Bools, Estimate, Floats
from .steps import Along
from .verdicts import FASTER, SLOWER, Settings

CHANGED = (SLOWER, FASTER)
LEAST_RELEASES = 4  # fewer do not tell a change from noise
SHUFFLES = 8  # of the releases, for the method's own check


@dataclass(frozen=True)
class Break:
    """A change of level: from ``before``, the last release at the old level, to ``at``, the first at the new one.

    It may as well have been at any release from ``earliest`` to ``latest`` (95 %). ratio is new / old with its 95 %
    interval; q is over all series of the history; verdict as in a comparison. nodes: what each says of it, where there
    are several.
    """

    before: Release
    at: Release
    earliest: Release
    latest: Release
    ratio: float
    low: float
    high: float
    q: float
    verdict: str
    nodes: tuple[OnNode, ...] = ()


@dataclass(frozen=True)
class Series(Along):
    """One cell along a history: arrays are over the releases that measured it, in log seconds.

    values   mean over processes, the machine's drift taken out; raw is without that
    errors   standard deviation of each point by its processes, and by what visits differ by
    known    whether what visits differ by was learnt from what was measured twice
    shared   variance of what its releases differ by in all cells of a kind of memory alike
    noise    what a level must stand out from: errors and shared; where nobody knows what visits differ by, at least
             what neighbours do
    processes  (releases,) how many there were
    starts   index of the first release of each level, the first 0
    levels   (releases,) the level that each point belongs to
    """

    releases: tuple[Release, ...]
    raw: Floats
    values: Floats
    errors: Floats
    known: bool
    shared: float
    noise: Floats
    processes: Floats
    starts: tuple[int, ...]
    levels: Floats
    breaks: tuple[Break, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every release has the processes that a verdict takes."""
        return bool((self.processes >= MIN_PROCESSES).all())

    @property
    def judged(self) -> bool:
        """Whether a break of it could be confirmed."""
        return self.whole and len(self.releases) >= LEAST_RELEASES


def series_of(
    table: pd.DataFrame,
    visits: Sequence[Visit],
    raw: Floats,
    corrected: Floats,
    errors: Floats,
    session: Floats,
    known: Bools,
    shared: Floats | None = None,
) -> list[Series]:
    """Every cell's series with its levels; raw, corrected and errors are (cells, visits).

    session, shared  (cells,) variances of what visits differ by beside ``errors``, and of what releases share (none)
    known            (cells,) whether what visits differ by is known from what was measured twice
    """
    shared = np.zeros(len(table)) if shared is None else shared
    series = []
    for place, (cell, names) in enumerate(zip(table.index, table.to_dict("records"))):
        there = [k for k, known in enumerate(np.isfinite(corrected[place])) if known]
        point_errors = np.sqrt(np.nan_to_num(errors[place, there]) ** 2 + session[place])
        values = corrected[place, there]
        deviation, starts, levels = _fit(values, np.sqrt(point_errors**2 + shared[place]), known[place])
        releases = tuple(visits[k].release for k in there)
        counts = np.array([np.isfinite(visits[k].logs[place]).sum() for k in there], dtype=np.float64)
        points = (raw[place, there], values, point_errors, bool(known[place]), float(shared[place]), deviation, counts)
        series.append(Series({"cell": cell, **names}, releases, *points, starts, levels))
    return series


def _fit(values: Floats, errors: Floats, known: bool) -> tuple[Floats, tuple[int, ...], Floats]:
    """Of points with their errors: what noise they have, where levels begin, and the level of each; of none, none."""
    if not len(values):
        return values, (), values
    noise = errors if known else statistics.history_noise(values, errors)
    starts = statistics.optimal_partition(values, noise) if len(values) >= LEAST_RELEASES else [0]
    levels = np.empty(len(values))
    for first, last, mean, _ in _spans(values, noise, starts):
        levels[first:last] = mean
    return noise, tuple(starts), levels


def _spans(values: Floats, noise: Floats, starts: Sequence[int]) -> list[tuple[int, int, float, float]]:
    """Of each level: its first point, the one after its last, its mean weighted by the noise, the variance of that."""
    spans = []
    for first, last in zip(starts, [*starts[1:], len(values)]):
        spans.append((first, last, *statistics.weighted_mean(values[first:last], noise[first:last] ** 2)))
    return spans


def shared(series: Sequence[Series], releases: Sequence[Release], noise: Any) -> Floats:
    """Variance, (cells,), of what all cells of a kind of memory share in a release or in its visit; NaN where unknown.

    The median over the cells of a kind, or over all where it has few, of what the levels leave, release by release.
    """
    places = {release.file: place for place, release in enumerate(releases)}
    left = np.full((len(series), len(releases)), np.nan)
    for row, cell in zip(left, series):
        row[[places[release.file] for release in cell.releases]] = cell.values - cell.levels
    variance = np.full(len(series), np.nan)
    for family in np.unique(noise):
        kind = left[noise == family]
        kind = kind if len(kind) >= statistics.MIN_FAMILY else left
        kind = kind[:, np.isfinite(kind).sum(axis=0) >= statistics.MIN_FAMILY]
        if kind.shape[1] >= LEAST_RELEASES:
            shifts = np.nanmedian(kind, axis=0)
            variance[noise == family] = (statistics.MAD_TO_SD * np.median(np.abs(shifts - np.median(shifts)))) ** 2
    return variance


def shuffled(series: Sequence[Series], releases: Sequence[Release], settings: Settings) -> tuple[int, ...]:
    """How many breaks are confirmed where nothing changed: in what the levels leave, its releases shuffled."""
    confirmed = []
    for seed in range(SHUFFLES if len(releases) >= LEAST_RELEASES else 0):
        order = np.random.default_rng(seed).permutation(len(releases))
        rank = {release.file: int(order[place]) for place, release in enumerate(releases)}
        mixed = []
        for cell in series:
            by = np.argsort([rank[release.file] for release in cell.releases], kind="stable")
            values, errors = (cell.values - cell.levels)[by], cell.errors[by]
            deviation, starts, levels = _fit(values, np.sqrt(errors**2 + cell.shared), cell.known)
            mixed.append(replace(cell, values=values, errors=errors, noise=deviation, starts=starts, levels=levels))
        confirmed.append(int(_tested(mixed, settings)["verdict"].isin(CHANGED).sum()))
    return tuple(confirmed)


def _tested(series: Sequence[Series], settings: Settings) -> pd.DataFrame:
    """The test of each break, series by series: all are judged together, and series without one count, too.

    The degrees of freedom are those that the levels leave: noise that is learnt from a short history is not well known.
    A series with fewer processes than a comparison takes gets no verdict.
    """
    effect, error, df, whole = [], [], [], []
    for cell in series:
        spans = _spans(cell.values, cell.noise, cell.starts)
        for (_, _, old, before), (_, _, new, after) in zip(spans, spans[1:]):
            effect.append(new - old)
            error.append(math.sqrt(before + after))
            df.append(float(len(cell.values) - len(spans)))
            whole.append(cell.whole)
    free = np.array(df, dtype=np.float64)
    errors = np.array(error, dtype=np.float64)
    estimated = Estimate(
        np.array(effect, dtype=np.float64), np.where(free > 0, errors, np.nan), np.where(free > 0, free, np.nan), errors
    )
    silent = sum(1 for cell in series if len(cell.starts) == 1)
    return judge(estimated, (free > 0) & np.array(whole, dtype=bool), settings, silent)


def judged(series: Sequence[Series], settings: Settings) -> list[Series]:
    """The series with a verdict on each break."""
    rows = iter(_tested(series, settings).to_dict("records"))
    judged = []
    for cell in series:
        breaks = []
        for number, start in enumerate(cell.starts[1:], start=1):
            row = next(rows)
            first, last = statistics.break_range(cell.values, cell.noise, cell.starts, number)
            before, at, earliest, latest = (cell.releases[place] for place in (start - 1, start, first, last))
            ends = (row["ratio"], row["low95"], row["high95"], row["q"], row["verdict"])
            breaks.append(Break(before, at, earliest, latest, *ends))
        judged.append(replace(cell, breaks=tuple(breaks)))
    return judged
