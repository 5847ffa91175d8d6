"""How well is a history known? The intervals of its points, and how far one that was measured again lies from it."""

import contextlib
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from analysis import comparison
from analysis.changes import CHANGED, Counted, Series, sides
from analysis.history import History, history_of
from analysis.results import Results, load, load_files
from analysis.sessions import packages, sessions_in
from analysis.statistics import HALF, Floats, weighted_mean
from analysis.verdicts import DEFAULT, SAME_WAY, Count, judge_counts
from cli import UserError
from measuring.engine import RESULTS, ROOT
from store.files import result_files

from .noise import export, revision

# What is promised: half of an interval of calls, in the median; how often intervals hold; what counts agree to
CALLS, HELD, COUNTS = 0.03, 0.95, 0.005

Verdicts: TypeAlias = "Counter[tuple[str, str]]"  # family of noise and verdict -> cells
Key = tuple[str, str]  # a cell, in the version that was measured, and a release


@dataclass(frozen=True)
class Kind:
    """Points of one family of noise (comparison.families): how wide they are, and what they differ by from before.

    half    (points,) half of a 95 % interval, relative
    apart   (pairs,) log ratios of points to the same ones of before
    held    (pairs,) whether that is within the 95 % interval of the difference
    """

    half: Floats
    apart: Floats
    held: Floats


@dataclass(frozen=True)
class Repeated:
    """A package's history: its families of noise by name; of the counts that were taken twice how far the medians lie
    apart, relative, and how many a comparison would call changed; hours lie in between, in the median.

    breaks  of those that are told, where both sides were measured at the other time, too: whether it went the same way
            then, and whether by as much as both intervals allow
    """

    package: str
    kinds: Mapping[str, Kind]
    counts: Floats
    flagged: int
    hours: float
    breaks: Sequence[tuple[bool, bool]]


def histories(machine: str, results: Path) -> dict[str, tuple[Results, History]]:
    """Package -> its history on that machine, by all results in that folder."""
    known = load(results, machine)
    return {package: (known, history_of(known, package)) for package in packages(known)}


@contextlib.contextmanager
def of_revision(machine: str, name: str) -> Iterator[Path]:
    """A folder of the results that a machine has at a git revision."""
    commit = revision(name)
    inside = RESULTS.relative_to(ROOT)
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        export(commit, Path(folder), [str(inside / machine), str(inside / "benchmarks.json")])
        yield Path(folder, inside)


def against_themselves(machine: str, now: Path, then: Path) -> Verdicts:
    """Every toolchain against itself at the other time, as compare.py does it with what sessions of now differ by."""
    learnt = sessions_in(now, machine)
    verdicts: Verdicts = Counter()
    for path in result_files(now, machine):
        before = then / path.relative_to(now)
        if before.is_file():
            sides = load_files(then, [before]), load_files(now, [path])
            if sides[0].last.started != sides[1].last.started:
                cells = comparison.compare(*sides, replace(DEFAULT, min_decided=0), sessions=learnt).cells
                verdicts.update(zip(cells["noise"], cells["verdict"]))
    return verdicts


def seen_again(now: tuple[Results, History], before: tuple[Results, History] | None) -> Repeated:
    """What a history is known to, and what it differs by from that of before."""
    results, history = now
    then: dict[Key, tuple[float, float]] = {}
    counted: dict[Key, Count] = {}
    hours: dict[str, float] = {}
    if before:
        started = {release.version: release.started for release in before[1].releases}
        between = {
            release.version: _hours(started.get(release.version, ""), release.started) for release in history.releases
        }
        hours = {version: gone for version, gone in between.items() if gone}  # 0: it is the same visit
        then = {key: figures for series in before[1].series for key, figures in _points(series) if key[1] in hours}
        counted = {key: figures for cell in before[1].counted for key, figures in _counts(cell) if key[1] in hours}
    kinds: dict[str, list[tuple[float, float, float]]] = {}
    table = pd.DataFrame([series.names for series in history.series])
    for series, family in zip(
        history.series, comparison.families(table, results.benchmarks).tolist() if len(table) else ()
    ):
        points = kinds.setdefault(family, [])
        for key, (value, error) in _points(series):
            other, its_error = then.get(key, (math.nan, math.nan))
            points.append((error, value - other, math.hypot(error, its_error)))
    pairs = [(count, counted[key]) for cell in history.counted for key, count in _counts(cell) if key in counted]
    ratios = [(count.low / other.high, count.high / other.low) for count, other in pairs]
    return Repeated(
        package=history.package,
        kinds={family: _kind(points) for family, points in kinds.items()},
        counts=np.array([abs(count.value / other.value - 1) for count, other in pairs]),
        flagged=sum(judge_counts(low, high, history.settings) in SAME_WAY for low, high in ratios),
        hours=float(np.median(list(hours.values()))) if hours else math.nan,
        breaks=[seen for series in history.series for seen in _breaks(series, then)],
    )


def checked(machine: str, before: str | None) -> tuple[list[Repeated], Verdicts]:
    """Every history of a machine, and its toolchains compared with themselves.

    UserError where it has no history, or no figure of one was measured at that revision, too.
    """
    now = histories(machine, RESULTS)
    if not any(history.series for _, history in now.values()):
        raise UserError(f"{machine} has no history of times: python scripts/track.py measures one")
    if not before:
        return [seen_again(history, None) for history in now.values()], Counter()
    with of_revision(machine, before) as results:
        then = histories(machine, results)
        repeated = [seen_again(history, then.get(package)) for package, history in now.items()]
        if not any(len(kind.apart) for each in repeated for kind in each.kinds.values()):
            raise UserError(f"no figure of {machine} was measured at {before} and again since, by the same benchmarks")
        return repeated, against_themselves(machine, RESULTS, results)


def _kind(points: Sequence[tuple[float, float, float]]) -> Kind:
    error, apart, together = np.array(points).T
    both = np.isfinite(apart) & np.isfinite(together)
    return Kind(HALF * error, apart[both], np.abs(apart[both]) <= HALF * together[both])


def _points(series: Series) -> Iterator[tuple[Key, tuple[float, float]]]:
    """Of each release of a series its log seconds, and their error."""
    for release, value, error in zip(series.releases, series.values, series.errors):
        yield _key(series.names, release.version), (float(value), float(error))


def _breaks(series: Series, then: Mapping[Key, tuple[float, float]]) -> Iterator[tuple[bool, bool]]:
    """Of each break that is told, what the same releases say at the other time: see Repeated.breaks."""
    keys = [key for key, _ in _points(series)]
    versions = [version for _, version in keys]
    values, errors = np.array([then.get(key, (math.nan, math.nan)) for key in keys]).T
    for number, broken in enumerate(series.breaks, start=1):
        known = [side & np.isfinite(values) for side in sides(series, number, versions)]
        if broken.verdict in CHANGED and all(side.any() for side in known):
            (old, before), (new, after) = (weighted_mean(values[side], errors[side] ** 2) for side in known)
            effect, half = math.log(broken.ratio), math.log(broken.high / broken.low) / 2
            within = abs(new - old - effect) <= math.hypot(half, HALF * math.sqrt(before + after))
            yield (new - old) * effect > 0, within


def _counts(cell: Counted) -> Iterator[tuple[Key, Count]]:
    for release, *count in zip(cell.releases, cell.values, cell.low, cell.high):
        yield _key(cell.names, release.version), Count(*count)


def _key(names: Mapping[str, Any], version: str) -> Key:
    return f"{names['cell']} {names['version']}", version


def _hours(sooner: str, later: str) -> float:
    """From one to the other; 0 where it is not known when they were."""
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(sooner)).total_seconds() / 3600
    except ValueError:
        return 0.0
