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
from analysis.changes import CHANGED, Series, sides
from analysis.history import History, history_of
from analysis.results import Results, load, load_files
from analysis.sessions import packages, sessions_in
from analysis.statistics import HALF, Floats, weighted_mean
from analysis.verdicts import DEFAULT, SAME_WAY, judge_counts
from cli import UserError
from measuring.engine import RESULTS, ROOT
from store.files import result_files

from .noise import export, revision

# What is promised: half of an interval of calls, in the median; how often intervals hold; what counts agree to
CALLS, HELD, COUNTS = 0.03, 0.95, 0.005

Verdicts: TypeAlias = "Counter[tuple[str, str]]"  # family of noise and verdict -> cells
KEY = ["cell", "release"]  # with the version that was measured


@dataclass(frozen=True)
class Repeated:
    """A package's history, and what it differs by from that of before.

    points  a row per series and release: its family of noise (comparison.families), half of a 95 % interval, relative;
            where it was measured before, too, the log ratio to then (apart), and whether that is within the 95 %
            interval of the difference (held)
    counts  (pairs,) of the counts that were taken twice how far the medians lie apart, relative
    flagged how many of them a comparison would call changed
    hours   lie in between, in the median
    breaks  of those that are told, where both sides were measured at the other time, too: whether it went the same way
            then, and whether by as much as both intervals allow
    """

    package: str
    points: pd.DataFrame
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
    history = now[1]
    points, counts, then, counted = _points(*now), _counts(history), _points(), _counts()
    hours: dict[str, float] = {}
    if before:
        started = {release.version: release.started for release in before[1].releases}
        between = {
            release.version: _hours(started.get(release.version, ""), release.started) for release in history.releases
        }
        hours = {version: gone for version, gone in between.items() if gone}  # 0: it is the same visit
        then, counted = (each[each["release"].isin([*hours])] for each in (_points(*before), _counts(before[1])))
    points = points.merge(then, on=KEY, how="left", suffixes=("", "_then"))
    together = np.hypot(points["error"], points["error_then"])
    points["half"], points["apart"] = HALF * points["error"], points["value"] - points["value_then"]
    points["held"] = points["apart"].abs() <= HALF * together
    points.loc[~np.isfinite(together), "apart"] = np.nan
    pairs = counts.merge(counted, on=KEY, suffixes=("", "_then"))
    ratios = zip(pairs["low"] / pairs["high_then"], pairs["high"] / pairs["low_then"])
    known = then.set_index(KEY)[["value", "error"]]
    return Repeated(
        package=history.package,
        points=points,
        counts=(pairs["value"] / pairs["value_then"] - 1).abs().to_numpy(),
        flagged=sum(judge_counts(low, high, history.settings) in SAME_WAY for low, high in ratios),
        hours=float(np.median(list(hours.values()))) if hours else math.nan,
        breaks=[seen for series in history.series for seen in _breaks(series, known)],
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
        if not any(each.points["apart"].notna().any() for each in repeated):
            raise UserError(f"no figure of {machine} was measured at {before} and again since, by the same benchmarks")
        return repeated, against_themselves(machine, RESULTS, results)


def _points(results: Results | None = None, history: History | None = None) -> pd.DataFrame:
    """Of each release of each series its log seconds (value), and their error."""
    rows = []
    if results and history and history.series:
        names = pd.DataFrame([series.names for series in history.series])
        for series, family in zip(history.series, comparison.families(names, results.benchmarks)):
            for release, value, error in zip(series.releases, series.values, series.errors):
                rows.append((family, _cell(series.names), release.version, value, error))
    return pd.DataFrame(rows, columns=["family", *KEY, "value", "error"]).astype({"value": float, "error": float})


def _counts(history: History | None = None) -> pd.DataFrame:
    rows = [
        (_cell(cell.names), release.version, *count)
        for cell in (history.counted if history else ())
        for release, *count in zip(cell.releases, cell.values, cell.low, cell.high)
    ]
    return pd.DataFrame(rows, columns=[*KEY, "value", "low", "high"]).astype(
        dict.fromkeys(("value", "low", "high"), float)
    )


def _cell(names: Mapping[str, Any]) -> str:
    return f"{names['cell']} {names['version']}"


def _breaks(series: Series, then: pd.DataFrame) -> Iterator[tuple[bool, bool]]:
    """Of each break that is told, what the same releases say at the other time: see Repeated.breaks."""
    versions = [release.version for release in series.releases]
    keys = pd.MultiIndex.from_product([[_cell(series.names)], versions])
    values, errors = then.reindex(keys).to_numpy(dtype=float).T
    for number, broken in enumerate(series.breaks, start=1):
        known = [side & np.isfinite(values) for side in sides(series, number, versions)]
        if broken.verdict in CHANGED and all(side.any() for side in known):
            (old, before), (new, after) = (weighted_mean(values[side], errors[side] ** 2) for side in known)
            effect, half = math.log(broken.ratio), math.log(broken.high / broken.low) / 2
            within = abs(new - old - effect) <= math.hypot(half, HALF * math.sqrt(before + after))
            yield (new - old) * effect > 0, within


def _hours(sooner: str, later: str) -> float:
    """From one to the other; 0 where it is not known when they were."""
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(sooner)).total_seconds() / 3600
    except ValueError:
        return 0.0
