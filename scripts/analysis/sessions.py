"""What was measured of a machine's releases, visit by visit, and what the machine itself did meanwhile.

A visit is one release, measured in four processes. What was measured twice tells what sessions differ by, and how far
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
from store.files import node_of, read_records, result_files
from store.records import Record, sessions_of
from toolchains import ledger
from toolchains.ledger import Toolchain

from . import statistics, steps
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
class Visit:
    """Processes of one toolchain that were measured one after the other.

    logs    (cells, processes) log seconds
    floors  the same of the pulses by which they are at full speed, NaN where there are none
    middle  seconds since the epoch; NaN where no run record says when
    pace    (cells,) what is taken out of the logs for full speed to be the same at all visits, the mean over processes
    """

    release: Release
    logs: Floats
    floors: Floats
    middle: float
    pace: Floats | float = 0.0


# --- what was measured -----------------------------------------------------------------------------------------------


def packages(results: Results) -> list[str]:
    """The packages of which two releases and more were measured: timed, or counted in repeats."""
    measured = set(measured_files(results)["file"])
    histories = [package for file, package in files(results).items() if file in measured]
    return [package for package in ledger.PACKAGES if histories.count(package) > 1]


def files(results: Results) -> dict[str, str]:
    """The result files of releases, those that failed, too -> the package whose history it is."""
    package_of: dict[str, str] = {}
    for table in (measured_files(results), results.missing):
        for file, commit in table[["file", "commit"]].drop_duplicates().itertuples(index=False):
            toolchain = ledger.find(commit)
            if toolchain:
                package_of[file] = toolchain.history
    return package_of


def measured_files(results: Results) -> pd.DataFrame:
    """A row a file that has figures along a history, with what it is of."""
    columns = ["file", "machine", "commit", "torch", "numpy", "python"]
    tables = [table[columns] for table in (results.processes, steps.repeated(results))]
    return pd.concat(tables).drop_duplicates("file")


def _measured(results: Results) -> Iterator[tuple[str, Release]]:
    """Every release that has figures, of both histories, and the Python it ran on."""
    files = dict.fromkeys(record.file for record in results.runs)
    started = {file: sessions_of(results.runs_of(file))[0].started for file in files}
    for row in measured_files(results).to_dict("records"):
        toolchain = ledger.find(row["commit"])
        if toolchain:
            torch, numpy = row["torch"] or toolchain.torch, row["numpy"] or toolchain.numpy
            yield str(row["python"]), Release(toolchain, row["file"], torch, numpy, started.get(row["file"], ""))


def releases_of(results: Results, package: str) -> tuple[dict[str, list[Release]], str, tuple[str, ...]]:
    """Version -> the releases that were measured, one of each node; the Python they ran on, and notes of what is left
    out."""
    by_python: dict[str, dict[str, list[Release]]] = {}
    for python, release in _measured(results):
        if release.toolchain.history == package:
            by_python.setdefault(python, {}).setdefault(release.version, []).append(release)
    python, chosen = max(by_python.items(), key=lambda item: (len(item[1]), ledger.parts(item[0])))
    others = {other: theirs for other, theirs in by_python.items() if other != python}
    notes = tuple(f"{len(theirs)} releases were measured on Python {other}, too" for other, theirs in others.items())
    return {version: chosen[version] for version in sorted(chosen, key=ledger.parts)}, python, notes


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
    kinds = {name: place for place, name in enumerate(results.benchmarks)}
    rows = rows.assign(
        place=rows["file"].map(order).astype(int), kind=rows["benchmark"].map(kinds).astype(int), row=range(len(rows))
    )
    newest = rows.sort_values("place", kind="stable").drop_duplicates("cell", keep="last")
    newest = newest.sort_values(["kind", "row"])
    newest["parameters"] = parameters_of(newest, results)
    newest["declared"] = newest["benchmark"].astype(object).map(results.benchmarks)
    names = ["benchmark", "family", "group", "method", *results.parameters, "parameters", "declared", "version"]
    return newest.set_index("cell")[names]


def visits_in(results: Results, release: Release, table: pd.DataFrame) -> Iterator[Visit]:
    """The visits of one release, the oldest first: a run that was appended to the one before is a visit of its own."""
    rows = results.processes_of(release.file)
    # a noisy cell is the machine's doing, no release's
    rows = rows[rows["cell"].isin(table.index) & rows["quiet"]]
    rows = rows[rows["version"].to_numpy() == table["version"].reindex(rows["cell"]).to_numpy()]
    records = sessions_of(results.runs_of(release.file))
    sizes = [record.rounds for record in records]
    width = max(int(rows["process"].max()) + 1 if len(rows) else 1, sum(sizes))
    logs, floors = np.full((len(table), width), np.nan), np.full((len(table), width), np.nan)
    places = table.index.get_indexer(rows["cell"]), rows["process"].to_numpy(dtype=int)
    logs[places] = np.log(rows["seconds"])
    floors[places] = np.log(rows["baseline"].to_numpy(dtype=float))
    if sum(sizes) != logs.shape[1]:
        yield Visit(release, logs, floors, _middle(records[0]) if records else math.nan)
        return
    for record, end, size in zip(records, np.cumsum(sizes), sizes):
        yield Visit(release, logs[:, end - size : end], floors[:, end - size : end], _middle(record))


def at_one_speed(visits: Sequence[Visit], results: Results) -> list[Visit]:
    """The visits as if full speed were the same at all of them, see ``paces``; as they are where interpreters differ,
    whose work pulses are."""
    files = {visit.release.file for visit in visits}
    interpreters = {record.settings.python for file in files for record in results.runs_of(file)}
    if len(interpreters - {""}) != 1:
        return list(visits)
    each = paces([visit.logs for visit in visits], [visit.floors for visit in visits])
    paced = []
    for visit, pace in zip(visits, each):
        there = np.isfinite(visit.logs)
        mean = np.where(there, pace, 0.0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
        paced.append(replace(visit, logs=visit.logs - pace, pace=mean))
    return paced


def _middle(record: Record) -> float:
    """When half of a run was done, in seconds since the epoch."""
    try:
        return datetime.fromisoformat(record.started).timestamp() + record.seconds / 2
    except ValueError:
        return math.nan


def points(visits: Sequence[Visit], noise: Any) -> tuple[Floats, Floats]:
    """Mean of each cell's processes at each visit, and its error: (cells, visits) each."""
    alone = np.ones(len(noise), dtype=bool)
    points = [statistics.estimate(np.zeros_like(visit.logs), visit.logs, noise, alone) for visit in visits]
    return np.stack([point.effect for point in points], axis=1), np.stack([point.error for point in points], axis=1)


def together(on_nodes: Sequence[Release], visits: Sequence[Visit]) -> Visit:
    """All processes of a release, whichever node measured them."""
    files = {release.file for release in on_nodes}
    mine = [visit for visit in visits if visit.release.file in files]
    logs, floors = (np.hstack([getattr(visit, name) for visit in mine]) for name in ("logs", "floors"))
    return Visit(on_nodes[0], logs, floors, mine[0].middle)


# --- the machine -----------------------------------------------------------------------------------------------------


def pairs_of(visits: Sequence[Visit]) -> list[tuple[Visit, Visit]]:
    """Visits of one toolchain, on one node, each with the next in time."""

    def of(visit: Visit) -> tuple[str, str, str]:
        return visit.release.torch, visit.release.numpy, node_of(visit.release.file)

    pairs = []
    dated = sorted((visit for visit in visits if math.isfinite(visit.middle)), key=lambda visit: visit.middle)
    for what in dict.fromkeys(map(of, dated)):
        same = [visit for visit in dated if of(visit) == what]
        pairs += list(zip(same, same[1:]))
    return pairs


def difference(sooner: Visit, later: Visit, noise: Any) -> Estimate:
    """What the cells of two visits differ by, later over sooner."""
    return statistics.estimate(sooner.logs, later.logs, noise, np.zeros(len(noise), dtype=bool))


def session_variances(between: Sequence[Estimate], noise: Any, drifts: Sequence[Floats] = ()) -> dict[str, float]:
    """Family -> variance of what two sessions differ by, the mean over the repeats; their drift taken out if given."""
    variances = []
    for place, estimated in enumerate(between):
        effect = estimated.effect - drifts[place] if drifts else estimated.effect
        variances.append(statistics.repeat_variances(effect, estimated.error**2, noise))
    return {
        family: float(np.mean([by_family[family] for by_family in variances]))
        for family in (variances[0] if variances else ())
    }


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
    visits = [visit for release in releases for visit in visits_in(loaded, release, table)]
    pairs = pairs_of(at_one_speed(visits, loaded))
    return session_variances([difference(sooner, later, noise) for sooner, later in pairs], noise)


def repeat_of(sooner: Visit, later: Visit, effect: Floats, controls: Any) -> Repeat:
    """What is said of two visits of one toolchain; ``effect``: their difference, (cells,)."""
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


def drift_at(visit: Visit, pairs: Sequence[tuple[Visit, Visit]], moved: Sequence[Floats], cells: int) -> Floats:
    """What the machine had drifted by at a visit, (cells,): in proportion to the time between the two visits of one
    release that lie around it, the tightest such, beyond the drift at the first of them; nothing where there are none.

    Not between the histories' common toolchain and itself: that repeat shows whether the correction was right.
    """
    around = [
        (later.middle - sooner.middle, place)
        for place, (sooner, later) in enumerate(pairs)
        if sooner.release.file == later.release.file and sooner.middle < visit.middle <= later.middle
    ]
    if not around:
        return np.zeros(cells)
    length, place = min(around)
    begin = pairs[place][0]
    # a release that came later was measured between visits of another day, which had drifted since the first day
    return drift_at(begin, pairs, moved, cells) + moved[place] * ((visit.middle - begin.middle) / length)
