"""What was measured of a machine's releases, session by session, and what the machine itself did meanwhile.

A session is one release, measured in four processes. What was measured twice tells what sessions differ by, and how far
the machine drifted in between.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from packaging.version import Version
from store.files import node_of, read_records, result_files
from store.records import UNKNOWN, Record, sessions_of
from toolchains import ledger
from toolchains.ledger import Toolchain

from . import statistics
from .comparison import families, paces
from .results import Results, load_files, parameters_of
from .statistics import Estimate, Floats


@dataclass(frozen=True)
class Release:
    """A release that was measured. ``torch`` and ``numpy`` are what was really imported, the build variant included."""

    toolchain: Toolchain
    file: str
    torch: str
    numpy: str
    started: str

    @property
    def version(self) -> str:
        return self.toolchain.version

    @property
    def date(self) -> str:
        """Day of the release."""
        return self.toolchain.date

    @property
    def name(self) -> str:
        """torch 2.6.0"""
        return f"{self.toolchain.history} {self.version}"


@dataclass(frozen=True)
class Repeat:
    """A toolchain that was measured twice: later over sooner, over ``cells`` cells.

    median, quarter and three_quarters are ratios; hours lie in between. controls is the median ratio of the cells that
    no toolchain can change.
    """

    sooner: Release
    later: Release
    hours: float
    cells: int
    median: float
    quarter: float
    three_quarters: float
    controls: float


@dataclass(frozen=True)
class Session:
    """Processes of one toolchain that were measured one after the other.

    logs        (cells, processes) log seconds
    baselines   the same of the speed probes that they are corrected to, NaN where there are none
    middle      seconds since the epoch; NaN where no run record says when
    correction  (cells,) what is taken out of the logs for the machine's speed to be the same in all sessions, the mean
                over processes
    """

    release: Release
    logs: Floats
    baselines: Floats
    middle: float
    correction: Floats | float = 0.0


# --- what was measured -----------------------------------------------------------------------------------------------


def repeated(results: Results) -> pd.DataFrame:
    """The rows of ``Results.values`` that are medians of repeats."""
    table = results.repeated(results.values)
    return table[(table["low"] > 0) & table["value"].between(table["low"], table["high"])]


def packages(results: Results) -> list[str]:
    """The packages of which two releases and more were measured: timed, or counted in repeats."""
    histories = [release.toolchain.history for _, release in _measured(results)]
    return [package for package in ledger.PACKAGES if histories.count(package) > 1]


def files(results: Results) -> set[str]:
    """The result files of releases, those that failed, too."""
    tables = pd.concat([table[["file", "commit"]] for table in (measured_files(results), results.missing)])
    return {file for file, commit in set(tables.itertuples(index=False, name=None)) if ledger.find(commit)}


def measured_files(results: Results) -> pd.DataFrame:
    """A row a file that has figures along a history, with what it is of."""
    columns = ["file", "machine", "commit", "torch", "numpy", "python"]
    tables = [table[columns] for table in (results.processes, repeated(results))]
    return pd.concat(tables).drop_duplicates("file")


def _measured(results: Results) -> Iterator[tuple[str, Release]]:
    """Every release that has figures, of both histories, and the Python it ran on."""
    for row in measured_files(results).to_dict("records"):
        toolchain = ledger.find(row["commit"])
        if toolchain:
            torch, numpy = row["torch"] or toolchain.torch, row["numpy"] or toolchain.numpy
            first = next(iter(sessions_of(results.runs_of(row["file"]))), UNKNOWN)
            yield str(row["python"]), Release(toolchain, row["file"], torch, numpy, first.started)


def releases_of(results: Results, package: str) -> tuple[dict[str, list[Release]], str, tuple[str, ...]]:
    """Version -> the releases that were measured, one of each node; the Python they ran on, and notes of what is left
    out."""
    by_python: dict[str, dict[str, list[Release]]] = {}
    for python, release in _measured(results):
        if release.toolchain.history == package:
            by_python.setdefault(python, {}).setdefault(release.version, []).append(release)
    python, chosen = max(by_python.items(), key=lambda item: (len(item[1]), Version(item[0])))
    others = {other: theirs for other, theirs in by_python.items() if other != python}
    notes = tuple(f"{len(theirs)} releases were measured on Python {other}, too" for other, theirs in others.items())
    return {version: chosen[version] for version in sorted(chosen, key=Version)}, python, notes


def held(package: str, releases: Sequence[Release]) -> str:
    """The other package and the version it was held at."""
    other = next(name for name in ledger.PACKAGES if name != package)
    versions = dict.fromkeys(getattr(release, other).split("+")[0] for release in releases)
    return f"{other} {' and '.join(versions)}"


def failures(results: Results, package: str) -> dict[str, str]:
    """Releases that could not be measured at all, with the reason."""
    measured = set(measured_files(results)["file"])
    tags = {toolchain.tag: toolchain.version for toolchain in ledger.history(package)}
    return {
        tags[record.toolchain.tag]: record.failed
        for record in results.runs
        if record.failed and record.toolchain.tag in tags and record.file not in measured
    }


def of_files(table: pd.DataFrame, files: Iterable[str]) -> pd.DataFrame:
    """The rows of ``table`` that are of one of these result files."""
    return table[table["file"].isin(set(files))]


def cells_of(results: Results, releases: Sequence[Release], table: pd.DataFrame) -> pd.DataFrame:
    """One row a cell of ``table``, indexed by cell, of the version that the newest release has."""
    rows = of_files(table, (release.file for release in releases))
    order = {release.file: place for place, release in enumerate(releases)}
    listed = {name: place for place, name in enumerate(results.benchmarks)}
    places = rows["file"].map(order).astype(int)
    rows = rows.assign(place=places, listed=rows["benchmark"].map(listed).astype(int), row=range(len(rows)))
    newest = rows.sort_values("place", kind="stable").drop_duplicates("cell", keep="last")
    newest = newest.sort_values(["listed", "row"])
    newest["parameters"] = parameters_of(newest, results)
    newest["declared"] = newest["benchmark"].astype(object).map(results.benchmarks)
    names = ["benchmark", "family", "group", "method", *results.parameters, "parameters", "declared", "version"]
    return newest.set_index("cell")[names]


def sessions_at(results: Results, release: Release, table: pd.DataFrame) -> Iterator[Session]:
    """The sessions of one release, the oldest first: a run that was appended to another is a session of its own."""
    rows = results.processes_of(release.file)
    # a noisy cell is the machine's doing, no release's
    rows = rows[rows["cell"].isin(table.index) & rows["quiet"]]
    rows = rows[rows["version"].to_numpy() == table["version"].reindex(rows["cell"]).to_numpy()]
    records = sessions_of(results.runs_of(release.file))
    sizes = [record.rounds for record in records]
    width = max(int(rows["process"].max()) + 1 if len(rows) else 1, sum(sizes))
    logs, baselines = np.full((len(table), width), np.nan), np.full((len(table), width), np.nan)
    places = table.index.get_indexer(rows["cell"]), rows["process"].to_numpy(dtype=int)
    logs[places] = np.log(rows["seconds"])
    baselines[places] = np.log(rows["baseline"].to_numpy(dtype=float))
    if sum(sizes) != logs.shape[1]:
        yield Session(release, logs, baselines, _middle(records[0]) if records else math.nan)
        return
    for record, end, size in zip(records, np.cumsum(sizes), sizes):
        yield Session(release, logs[:, end - size : end], baselines[:, end - size : end], _middle(record))


def at_one_speed(sessions: Sequence[Session], results: Results) -> list[Session]:
    """The sessions with their speed corrected, see ``paces``; as they are where several interpreters measured them:
    probes are an interpreter's work."""
    files = {session.release.file for session in sessions}
    interpreters = {record.settings.python for file in files for record in results.runs_of(file)}
    if len(interpreters - {""}) != 1:
        return list(sessions)
    each = paces([session.logs for session in sessions], [session.baselines for session in sessions])
    corrected = []
    for session, correction in zip(sessions, each):
        there = np.isfinite(session.logs)
        mean = np.where(there, correction, 0.0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
        corrected.append(replace(session, logs=session.logs - correction, correction=mean))
    return corrected


def _middle(record: Record) -> float:
    """When half of a run was done, in seconds since the epoch."""
    try:
        return datetime.fromisoformat(record.started).timestamp() + record.seconds / 2
    except ValueError:
        return math.nan


def points(sessions: Sequence[Session], noise: Any) -> tuple[Floats, Floats]:
    """Mean of each cell's processes at each session, and its error: (cells, sessions) each."""
    alone = np.ones(len(noise), dtype=bool)
    points = [statistics.estimate(np.zeros_like(session.logs), session.logs, noise, alone) for session in sessions]
    return np.stack([point.effect for point in points], axis=1), np.stack([point.error for point in points], axis=1)


def together(on_nodes: Sequence[Release], sessions: Sequence[Session]) -> Session:
    """All processes of a release, whichever node measured them."""
    files = {release.file for release in on_nodes}
    mine = [session for session in sessions if session.release.file in files]
    logs, baselines = (np.hstack([getattr(session, name) for session in mine]) for name in ("logs", "baselines"))
    return Session(on_nodes[0], logs, baselines, mine[0].middle)


# --- the machine -----------------------------------------------------------------------------------------------------


def pairs_of(sessions: Iterable[Session]) -> list[tuple[Session, Session]]:
    """Sessions of one toolchain, on one node, each with the next in time."""
    same: dict[tuple[str, str, str], list[Session]] = {}
    dated = (session for session in sessions if math.isfinite(session.middle))
    for session in sorted(dated, key=lambda session: session.middle):
        release = session.release
        same.setdefault((release.torch, release.numpy, node_of(release.file)), []).append(session)
    return [pair for alike in same.values() for pair in zip(alike, alike[1:])]


def difference(sooner: Session, later: Session, noise: Any) -> Estimate:
    """What the cells of two sessions differ by, later over sooner."""
    return statistics.estimate(sooner.logs, later.logs, noise, np.zeros(len(noise), dtype=bool))


def session_variances(between: Sequence[Estimate], noise: Any, drifts: Sequence[Floats] = ()) -> dict[str, float]:
    """Family -> variance of what two sessions differ by, the mean over the repeats; their drift taken out if given."""
    effects = [each.effect - drift for each, drift in zip(between, drifts)] if drifts else [e.effect for e in between]
    variances = [statistics.repeat_variances(own, each.error**2, noise) for own, each in zip(effects, between)]
    families = variances[0] if variances else ()
    return {family: float(np.mean([by_family[family] for by_family in variances])) for family in families}


def sessions_in(results: Path, machine: str) -> dict[str, float]:
    """Family -> variance of an effect between two sessions on a machine, where a release was measured twice on it.

    Empty where none was. Reads the files of those releases alone.
    """
    twice: dict[tuple[str, str], list[Path]] = {}
    known = {commit[:8] for commit in ledger.commits()}
    for path in result_files(results, machine, ".jsonl"):
        for record in read_records(path) if path.name[:8] in known else []:
            if not record.failed:
                toolchain = record.toolchain
                twice.setdefault((toolchain.torch, toolchain.numpy), []).append(path.with_suffix(".json"))
    files = {path for paths in twice.values() if len(paths) > 1 for path in paths}
    if not files:
        return {}
    loaded = load_files(results, sorted(files))
    releases = [release for _, release in _measured(loaded)]
    table = cells_of(loaded, releases, loaded.processes)
    noise = families(table, loaded.benchmarks)
    sessions = [session for release in releases for session in sessions_at(loaded, release, table)]
    pairs = pairs_of(at_one_speed(sessions, loaded))
    return session_variances([difference(sooner, later, noise) for sooner, later in pairs], noise)


def repeat_of(sooner: Session, later: Session, effect: Floats, controls: Any) -> Repeat:
    """What is said of two sessions of one toolchain; ``effect``: their difference, (cells,)."""
    free = effect[~controls & np.isfinite(effect)]
    fixed = effect[controls & np.isfinite(effect)]
    quarter, middle, rest = np.exp(np.quantile(free, (0.25, 0.5, 0.75))) if len(free) else (math.nan,) * 3
    return Repeat(
        sooner=sooner.release,
        later=later.release,
        hours=(later.middle - sooner.middle) / 3600,
        cells=len(free),
        median=float(middle),
        quarter=float(quarter),
        three_quarters=float(rest),
        controls=float(np.exp(np.median(fixed))) if len(fixed) else math.nan,
    )


def drift(effect: Floats, noise: Any) -> Floats:
    """What the cells of each family moved by alike: its median effect, (cells,); of a small family that of all."""
    known = np.isfinite(effect)
    everything = float(np.median(effect[known])) if known.any() else 0.0
    moved = np.full(len(effect), everything)
    for family in np.unique(noise):
        members = (noise == family) & known
        if members.sum() >= statistics.MIN_FAMILY:
            moved[noise == family] = np.median(effect[members])
    return moved


def drift_at(session: Session, pairs: Sequence[tuple[Session, Session]], moved: Sequence[Floats], cells: int) -> Floats:
    """What the machine had drifted by at a session, (cells,): in proportion to the time between the two sessions of one
    release that lie around it, the tightest such, beyond the drift at the first of them; nothing where there are none.

    Not between the histories' common toolchain and itself: that repeat shows whether the correction was right.
    """
    around = [
        (later.middle - sooner.middle, place)
        for place, (sooner, later) in enumerate(pairs)
        if sooner.release.file == later.release.file and sooner.middle < session.middle <= later.middle
    ]
    if not around:
        return np.zeros(cells)
    length, place = min(around)
    begin = pairs[place][0]
    # a release that came later was measured between sessions of another day, which had drifted since the first day
    return drift_at(begin, pairs, moved, cells) + moved[place] * ((session.middle - begin.middle) / length)
