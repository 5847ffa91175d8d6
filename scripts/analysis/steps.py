"""Counts along a history: where they step, and whether the time of the same call agrees.

A count has no noise, no drift and no sessions, so nothing is tested: what moves it beside the release is where objects
lie in memory, and that its repeats show (benchmarks/instructions.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from store.records import UNKNOWN, Record, sessions_of
from toolchains import ledger

from benchmarks.families import CONVERSION

from . import verdicts
from .declared import Benchmarks
from .results import Results
from .statistics import Floats
from .verdicts import AS_MANY, INCONCLUSIVE, SAME_WAY, Settings

if TYPE_CHECKING:  # both have what is found here
    from .levels import Break, Series
    from .sessions import Release


@dataclass(frozen=True)
class Step:
    """A change of a count: not yet at ``before``, from ``at`` on, which count it one after the other.

    old is the median of the repeats of ``since``, the release that the level before is known by, new that of ``at``;
    low and high are new / old by any two repeats; verdict is more or fewer. crept: ``before`` counts as many as ``at``,
    and the change has added up since ``since``.
    """

    before: "Release"
    at: "Release"
    since: "Release"
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
    time: "Break | None"
    disagree: bool
    timed: bool = True

    @property
    def at(self) -> "Release":
        change = self.step or self.time
        assert change
        return change.at

    @property
    def size(self) -> float:
        """Of the larger of the two: the log of its ratio, without its sign."""
        return max(abs(math.log(change.ratio)) for change in (self.step, self.time) if change)


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
class Counted(Along):
    """One cell that is counted in repeats, along a history: arrays are over the releases that count it.

    values are medians of the repeats, low and high the least and the most of them;
    levels the count at the release that each level is known by; findings in order of release.
    """

    unit: str
    releases: "tuple[Release, ...]"
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


def repeated(results: Results) -> pd.DataFrame:
    """The rows of ``Results.values`` that are medians of repeats."""
    table = results.repeated(results.values)
    return table[(table["low"] > 0) & table["value"].between(table["low"], table["high"])]


def alike(results: Results, releases: "Sequence[Release]") -> "list[Release]":
    """The releases that were counted with the processor, C library and Python of the newest, as far as is known."""
    records = {release.file: next(iter(sessions_of(results.runs_of(release.file))), UNKNOWN) for release in releases}
    newest = _decisive(records[releases[-1].file]) if releases else ()
    return [
        release
        for release in releases
        if all(
            not condition or not other or condition == other
            for condition, other in zip(_decisive(records[release.file]), newest)
        )
    ]


def _decisive(record: Record) -> tuple[str, ...]:
    """What a count depends on beside the release."""
    return record.conditions.cpu, record.conditions.libc, record.settings.python


def along(
    cells: pd.DataFrame,
    rows: pd.DataFrame,
    releases: "Sequence[Release]",
    timed: "Sequence[Series]",
    benchmarks: Benchmarks,
    settings: Settings,
) -> list[Counted]:
    """Every counted cell with what was found of it.

    cells     a row a cell, indexed by it, with its names and the version that counts
    rows      the counts, see ``repeated``
    releases  those that count, in order
    timed     the series of the history, their breaks judged
    """
    times = {
        verdicts.call(series.names, benchmarks): series
        for series in timed
        if series.names["declared"].role == CONVERSION
    }
    there = {(row["cell"], row["file"], row["version"]): row for row in rows.to_dict("records")}
    counted_cells = []
    for cell, names in zip(cells.index, cells.to_dict("records")):
        keys = [(release, (cell, release.file, names["version"])) for release in releases]
        release_rows = [(release, there[key]) for release, key in keys if key in there]
        table = pd.DataFrame([row for _, row in release_rows], columns=["value", "low", "high", "unit"])
        values, low, high = (table[name].to_numpy(dtype=float) for name in ("value", "low", "high"))
        counted = Counted(
            {"cell": cell, **names},
            table["unit"].iloc[-1],
            tuple(release for release, _ in release_rows),
            values,
            low,
            high,
            values,
        )
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


def _findings(counted: Counted, steps: Sequence[Step], timed: "Series | None", settings: Settings) -> list[Finding]:
    """Steps beside the breaks of the time of the same call, in order of release."""
    findings = [_beside(step, timed, settings) for step in steps]
    explained = [id(finding.time) for finding in findings]
    if timed:
        alone = [
            broken for broken in timed.breaks if broken.verdict in SAME_WAY.values() and id(broken) not in explained
        ]
        findings += [Finding(None, broken, _unexplained(broken, counted, timed, settings)) for broken in alone]
    return sorted(findings, key=lambda finding: ledger.parts(finding.at.version))


def _beside(step: Step, timed: "Series | None", settings: Settings) -> Finding:
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


def _covers(timed: "Series", broken: "Break", at: "Release") -> bool:
    """Whether a break of the time may have been at a release."""
    first, last = (timed.releases.index(end) for end in (broken.earliest, broken.latest))
    return at in timed.releases[first : last + 1]


def _unexplained(broken: "Break", counted: Counted, timed: "Series", settings: Settings) -> bool:
    """Whether a large break of the time is of a call that counts as many before and after it."""
    before = timed.releases[timed.releases.index(broken.earliest) - 1]
    if not _large(broken.ratio, settings) or not {before, broken.latest} <= set(counted.releases):
        return False
    ends = counted.releases.index(before), counted.releases.index(broken.latest)
    return verdicts.judge_counts(*counted.range_of(*ends), settings) == AS_MANY


def _large(ratio: float, settings: Settings) -> bool:
    return abs(math.log(ratio)) > math.log(1 + settings.equivalence)
