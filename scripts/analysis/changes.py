"""Where the level of a series of times or of counts changes along a history, and which changes are confirmed.

Breaks of times are found by exact optimal partitioning; each is then tested as a comparison is, and over all series at
once. A count has no noise, no drift and no sessions, so nothing is tested: what moves it beside the release is where
objects lie in memory, and that its repeats show (benchmarks/instructions.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from packaging.version import Version
from store.records import UNKNOWN, Record, sessions_of

from benchmarks.families import CONVERSION

from . import statistics, verdicts
from .comparison import judge
from .declared import Benchmarks
from .results import Results
from .sessions import Release, Session
from .statistics import MIN_PROCESSES, Bools, Estimate, Floats
from .verdicts import AS_MANY, FASTER, INCONCLUSIVE, SAME_WAY, SLOWER, Settings

CHANGED = (SLOWER, FASTER)
LEAST_RELEASES = 4  # fewer do not tell a change from noise
SHUFFLES = 8  # of the releases, for the method's own check


@dataclass(frozen=True)
class Along:
    """One cell along a history.

    names    the cell's names and parameters (benchmark, route, dtype, nbytes, ...); parameters: those that it has, by
             name; declared: what its benchmark says in benchmarks.json
    """

    names: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """Benchmark and route: what one panel or one row is about."""
        return str(self.names["benchmark"]), str(self.names["route"])

    @property
    def nbytes(self) -> int:
        """Bytes of the source; 0 where the benchmark has no such parameter."""
        return int(self.names["nbytes"]) if pd.notna(self.names["nbytes"]) else 0


@dataclass(frozen=True)
class OnNode:
    """What one node says of a change: new level over old with its 95 % interval.

    has: whether the node has the change, None where that is not decided.
    """

    node: str
    ratio: float
    low: float
    high: float
    has: bool | None


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
    errors   standard deviation of each point by its processes, and by what sessions differ by
    known    whether what sessions differ by was learnt from what was measured twice
    shared   variance of what its releases differ by in all cells of a family of noise alike
    noise    what a level must stand out from: errors and shared; where nobody knows what sessions differ by, at least
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


def sides(series: Series, number: int, versions: Sequence[str]) -> tuple[Bools, Bools]:
    """Of break ``number`` (1 is the first) the releases, among ``versions``, of the levels before and after it."""
    edges = [*series.starts, len(series.releases)]
    masks = []
    for first, last in ((edges[number - 1], edges[number]), (edges[number], edges[number + 1])):
        of_level = {release.version for release in series.releases[first:last]}
        masks.append(np.array([version in of_level for version in versions]))
    return masks[0], masks[1]


def series_of(
    table: pd.DataFrame,
    sessions: Sequence[Session],
    raw: Floats,
    corrected: Floats,
    variance: Floats,
    known: Bools,
    shared: Floats | float = 0.0,
) -> list[Series]:
    """Every cell's series with its levels; raw, corrected and variance are (cells, sessions).

    variance  of a point by its processes, and by what sessions differ by
    known     (cells,) whether what sessions differ by is known from what was measured twice
    shared    (cells,) variance of what releases share; none unless given
    """
    series = []
    common = np.broadcast_to(shared, len(table))
    counts = np.stack([np.isfinite(session.logs).sum(axis=1) for session in sessions], axis=1).astype(np.float64)
    for place, (cell, names) in enumerate(zip(table.index, table.to_dict("records"))):
        there = np.flatnonzero(np.isfinite(corrected[place])).tolist()
        values, errors = corrected[place, there], np.sqrt(variance[place, there])
        noise, starts, levels = _fit(values, np.sqrt(variance[place, there] + common[place]), known[place])
        releases = tuple(sessions[k].release for k in there)
        points = (raw[place, there], values, errors, bool(known[place]), float(common[place]), noise)
        series.append(Series({"cell": cell, **names}, releases, *points, counts[place, there], starts, levels))
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
    """Variance, (cells,), of what all cells of a family share in a release or in its session; NaN where unknown.

    The median over the cells of a family, or over all where it has few, of what the levels leave, release by release.
    """
    places = {release.file: place for place, release in enumerate(releases)}
    left = np.full((len(series), len(releases)), np.nan)
    for row, cell in zip(left, series):
        row[[places[release.file] for release in cell.releases]] = cell.values - cell.levels
    variance = np.full(len(series), np.nan)
    for family in np.unique(noise):
        own = left[noise == family]
        own = own if len(own) >= statistics.MIN_FAMILY else left
        own = own[:, np.isfinite(own).sum(axis=0) >= statistics.MIN_FAMILY]
        if own.shape[1] >= LEAST_RELEASES:
            shifts = np.nanmedian(own, axis=0)
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
    tests = []
    for cell in series:
        spans = _spans(cell.values, cell.noise, cell.starts)
        free = len(cell.values) - len(spans)
        for (_, _, old, before), (_, _, new, after) in zip(spans, spans[1:]):
            tests.append((new - old, math.sqrt(before + after), free, cell.whole))
    effect, errors, df, whole = np.array(tests, dtype=np.float64).reshape(-1, 4).T
    known = df > 0
    estimated = Estimate(effect, np.where(known, errors, np.nan), np.where(known, df, np.nan), errors)
    silent = sum(1 for cell in series if len(cell.starts) == 1)
    return judge(estimated, known & (whole > 0), settings, silent)


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


# --- counts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A change of a count: not yet at ``before``, from ``at`` on, which count it one after the other.

    old is the median of the repeats of ``since``, the release that the level before is known by, new that of ``at``;
    low and high are new / old by any two repeats; verdict is more or fewer. crept: ``before`` counts as many as ``at``,
    and the change has added up since ``since``.
    """

    before: Release
    at: Release
    since: Release
    old: float
    new: float
    low: float
    high: float
    verdict: str
    crept: bool

    @property
    def ratio(self) -> float:
        return self.new / self.old


@dataclass(frozen=True)
class Finding:
    """A step, a confirmed break of the time of the same call, or both where they may be of one release.

    timed: whether the call is timed at all, along this history.
    """

    step: Step | None
    time: Break | None
    disagree: bool
    timed: bool = True

    @property
    def at(self) -> Release:
        change = self.step or self.time
        assert change
        return change.at

    @property
    def size(self) -> float:
        """Of the larger of the two: the log of its ratio, without its sign."""
        return max(abs(math.log(change.ratio)) for change in (self.step, self.time) if change)


@dataclass(frozen=True)
class Counted(Along):
    """One cell that is counted in repeats, along a history: arrays are over the releases that count it.

    values are medians of the repeats, low and high the least and the most of them;
    levels the count at the release that each level is known by; findings in order of release.
    """

    unit: str
    releases: tuple[Release, ...]
    values: Floats
    low: Floats
    high: Floats
    levels: Floats
    findings: tuple[Finding, ...] = ()

    @property
    def steps(self) -> list[Step]:
        return [finding.step for finding in self.findings if finding.step]

    def range_of(self, old: int, new: int) -> tuple[float, float]:
        """The least and the most that the count at place ``new`` is of that at ``old``, by any two repeats."""
        return float(self.low[new] / self.high[old]), float(self.high[new] / self.low[old])

    def spread(self, place: int) -> float:
        """The most of the repeats over the least."""
        return float(self.high[place] / self.low[place])


def alike(results: Results, releases: Sequence[Release]) -> list[Release]:
    """The releases that were counted with the processor, C library and Python of the newest, as far as is known."""
    counted = [_decisive(next(iter(sessions_of(results.runs_of(release.file))), UNKNOWN)) for release in releases]
    return [
        release
        for release, conditions in zip(releases, counted)
        if all(not one or not newest or one == newest for one, newest in zip(conditions, counted[-1]))
    ]


def _decisive(record: Record) -> tuple[str, ...]:
    """What a count depends on beside the release."""
    return record.conditions.cpu, record.conditions.libc, record.settings.python


def along(
    cells: pd.DataFrame,
    rows: pd.DataFrame,
    releases: Sequence[Release],
    timed: Sequence[Series],
    benchmarks: Benchmarks,
    settings: Settings,
) -> list[Counted]:
    """Every counted cell with what was found of it.

    cells     a row a cell, indexed by it, with its names and the version that counts
    rows      the counts, see ``sessions.repeated``
    releases  those that count, in order
    timed     the series of the history, their breaks judged
    """
    conversions = [series for series in timed if series.names["declared"].role == CONVERSION]
    times = {verdicts.call(series.names, benchmarks): series for series in conversions}
    by_cell = dict(list(rows.groupby(["cell", "version"], sort=False, observed=True)))
    counted_cells = []
    for cell, names in zip(cells.index, cells.to_dict("records")):
        own = by_cell[cell, names["version"]].set_index("file")
        there = tuple(release for release in releases if release.file in own.index)
        own = own.loc[[release.file for release in there]]
        values, low, high = own[["value", "low", "high"]].to_numpy(dtype=float).T
        counted = Counted({"cell": cell, **names}, own["unit"].iloc[-1], there, values, low, high, values)
        steps, levels = _steps(counted, settings)
        findings = _findings(counted, steps, times.get(verdicts.call(names, benchmarks)), settings)
        counted_cells.append(replace(counted, levels=levels, findings=tuple(findings)))
    return counted_cells


def _steps(counted: Counted, settings: Settings) -> tuple[list[Step], Floats]:
    """The steps of a count, and its level at each release.

    A release is judged against one of the level before, so that what is too small in each adds up: its first release,
    or the first whose repeats agree, for others hide a change. What changed by no more than its repeats differ by is an
    outlier unless the next release shows it, too.
    """
    steps: list[Step] = []
    begins = known = 0  # where the level begins, and the release that it is known by
    levels = counted.values.copy()
    places = range(len(counted.releases))
    for at in places[1:]:
        low, high = counted.range_of(known, at)
        verdict, after = (
            verdicts.judge_counts(*counted.range_of(known, place), settings) if place in places else ""
            for place in (at, at + 1)
        )
        clear = max(low, 1 / high) > max(counted.spread(known), counted.spread(at))
        if verdict in SAME_WAY and (clear or after == verdict):
            crept = verdicts.judge_counts(*counted.range_of(at - 1, at), settings) == AS_MANY
            before, now, since = (counted.releases[place] for place in (at - 1, at, known))
            old, new = float(counted.values[known]), float(counted.values[at])
            steps.append(Step(before, now, since, old, new, low, high, verdict, crept))
            begins = known = at
        elif verdict not in SAME_WAY and counted.spread(known) > 1 + settings.min_effect >= counted.spread(at):
            known = at
        levels[begins : at + 1] = counted.values[known]
    return steps, levels


def _findings(counted: Counted, steps: Sequence[Step], timed: Series | None, settings: Settings) -> list[Finding]:
    """Steps beside the breaks of the time of the same call, in order of release."""
    findings = [_beside(step, timed, settings) for step in steps]
    explained = [id(finding.time) for finding in findings]
    if timed:
        alone = [
            broken for broken in timed.breaks if broken.verdict in SAME_WAY.values() and id(broken) not in explained
        ]
        findings += [Finding(None, broken, _unexplained(broken, counted, timed, settings)) for broken in alone]
    return sorted(findings, key=lambda finding: Version(finding.at.version))


def _beside(step: Step, timed: Series | None, settings: Settings) -> Finding:
    """A step with the break of the time that may be of its release; one in the same direction first.

    No break says something only where the time of both releases was measured well enough for one to be confirmed.
    """
    breaks = [broken for broken in timed.breaks if _covers(timed, broken, step.at)] if timed else []
    same = SAME_WAY[step.verdict]
    decided = sorted(
        (broken for broken in breaks if broken.verdict in SAME_WAY.values()), key=lambda broken: broken.verdict != same
    )
    if decided:
        size = any(_large(change.ratio, settings) for change in (step, decided[0]))
        return Finding(step, decided[0], size and decided[0].verdict != same)
    open_still = any(broken.verdict == INCONCLUSIVE for broken in breaks)
    known = timed and timed.judged and {step.before, step.at} <= set(timed.releases)
    return Finding(step, None, bool(known) and not open_still and _large(step.ratio, settings), timed is not None)


def _covers(timed: Series, broken: Break, at: Release) -> bool:
    """Whether a break of the time may have been at a release."""
    first, last = (timed.releases.index(end) for end in (broken.earliest, broken.latest))
    return at in timed.releases[first : last + 1]


def _unexplained(broken: Break, counted: Counted, timed: Series, settings: Settings) -> bool:
    """Whether a large break of the time is of a call that counts as many before and after it."""
    before = timed.releases[timed.releases.index(broken.earliest) - 1]
    if not _large(broken.ratio, settings) or not {before, broken.latest} <= set(counted.releases):
        return False
    ends = counted.releases.index(before), counted.releases.index(broken.latest)
    return verdicts.judge_counts(*counted.range_of(*ends), settings) == AS_MANY


def _large(ratio: float, settings: Settings) -> bool:
    return abs(math.log(ratio)) > math.log(1 + settings.equivalence)
