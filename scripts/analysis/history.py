"""Histories: what each release of torch or numpy did to the cost of every cell, from what scripts/track.py measured.

A point is a release, measured in one visit of four processes. It has the error that its processes show and the
variance that sessions differ by, which is learnt from what was measured twice. Where the level of a series changes is
found by exact optimal partitioning; each break is then tested as a comparison is, and over all series at once.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from records.runs import Record, visits_of
from toolchains import ledger
from toolchains.ledger import Toolchain

from . import nodes as several
from . import statistics, steps
from .comparison import controls_of, families, judge, paces
from .declared import contract_of
from .results import Results, load_files, node_of, parameters_of, read_runs, result_files
from .semantics import facts, measured
from .statistics import MIN_PROCESSES, Estimate, Floats
from .verdicts import DEFAULT, FASTER, SLOWER, Settings

CHANGED = (SLOWER, FASTER)
LEAST_RELEASES = 4  # fewer do not tell a change from noise
SHUFFLES = 8  # of the releases, for the method's own check


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
    nodes: tuple[several.OnNode, ...] = ()


@dataclass(frozen=True)
class Series(steps.Along):
    """One cell along a history: arrays are over the releases that measured it, in log seconds.

    values   mean over processes, the machine's drift taken out; raw is without that
    errors   standard deviation of each point by its processes, and by what visits differ by
    noise    the same, or what neighbours differ by where that is more
    processes  (releases,) how many there were
    starts   index of the first release of each level, the first 0
    levels   (releases,) the level that each point belongs to
    """

    releases: tuple[Release, ...]
    raw: Floats
    values: Floats
    errors: Floats
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
class Semantic:
    """A route that means another thing from a release on; what, old and new as semantics.measured has them."""

    at: Release
    before: Release
    direction: str
    route: str
    what: str
    old: bool | str
    new: bool | str
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class Appearance:
    """Cells that have a figure from a release on and had none before (``gained``), or the other way round.

    routes (all of them) with these dtypes; dtypes is empty where it is the route as a whole. reason: why there is no
    figure on the other side.
    """

    at: Release
    before: Release
    gained: bool
    direction: str
    routes: tuple[str, ...]
    dtypes: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class History:
    """All that is known of one package's releases on one machine.

    looked_at is how many facts about what routes mean a release has, at least and at most; failed is why a release was
    not measured. shuffled is how many breaks are confirmed, one number a shuffle, where the releases of all that the
    levels leave are shuffled, the same way in every series: whatever is found there is wrong. counted are the cells
    that are counted in repeats, with their steps.
    """

    package: str
    machine: str
    python: str
    held: str
    releases: tuple[Release, ...]
    series: tuple[Series, ...]
    controls: tuple[Series, ...]
    repeats: tuple[Repeat, ...]
    session_sd: Mapping[str, float]
    appearances: tuple[Appearance, ...]
    semantics: tuple[Semantic, ...]
    looked_at: tuple[int, int]
    failed: Mapping[str, str]
    shuffled: tuple[int, ...]
    settings: Settings
    notes: tuple[str, ...] = ()
    counted: tuple[steps.Counted, ...] = ()
    nodes: several.Nodes | None = None

    @property
    def breaks(self) -> list[tuple[Series, Break]]:
        """Every break whose verdict is faster or slower, the largest change first."""
        changes = [(series, broken) for series in self.series for broken in series.breaks if broken.verdict in CHANGED]
        return sorted(changes, key=lambda pair: -abs(math.log(pair[1].ratio)))


@dataclass(frozen=True)
class _Visit:
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


def packages(results: Results) -> list[str]:
    """The packages of which two releases and more were measured: timed, or counted in repeats."""
    measured = set(_there(results)["file"])
    histories = [package for file, package in files(results).items() if file in measured]
    return [package for package in ledger.PACKAGES if histories.count(package) > 1]


def files(results: Results) -> dict[str, str]:
    """The result files of releases, those that failed, too -> the package whose history it is."""
    package_of: dict[str, str] = {}
    for table in (_there(results), results.missing):
        for file, commit in table[["file", "commit"]].drop_duplicates().itertuples(index=False):
            toolchain = ledger.find(commit)
            if toolchain:
                package_of[file] = toolchain.history
    return package_of


def _there(results: Results) -> pd.DataFrame:
    """A row a file that has figures along a history, with what it is of."""
    columns = ["file", "machine", "commit", "torch", "numpy", "python"]
    tables = [table[columns] for table in (results.processes, steps.repeated(results))]
    return pd.concat(tables).drop_duplicates("file")


def history_of(results: Results, package: str, settings: Settings = DEFAULT) -> History:
    """The history of one package in the results of one machine; see ``packages``.

    Where releases were measured on several Pythons, that of the most releases.
    """
    copies, python, notes = _releases(results, package)
    releases = [on_nodes[0] for on_nodes in copies.values()]
    every = [release for on_nodes in copies.values() for release in on_nodes]
    table = _cells(results, every, results.processes)
    calm = _of(results.processes, (release.file for release in every))
    # a cell that never was calm, in any release, has no history
    table = table[table.index.isin(calm.loc[calm["calm"].ne(False), "cell"])]
    visits = [visit for release in every for visit in _visits(results, release, table)]
    noise = families(table, results.benchmarks)
    # the machine is the same for both histories: what was measured twice in either tells of it, and so does the
    # toolchain that they have in common
    others_too = [
        release
        for name in packages(results)
        if name != package
        for on_nodes in _releases(results, name)[0].values()
        for release in on_nodes
    ]
    others = [visit for release in others_too for visit in _visits(results, release, table)]
    paced = _paced([*visits, *others], results)
    visits, pairs = paced[: len(visits)], _pairs(paced)
    controls = controls_of(table, results.benchmarks)
    between = [_between(sooner, later, noise) for sooner, later in pairs]
    repeats = [_repeat(*pair, estimated.effect, controls) for pair, estimated in zip(pairs, between)]
    slopes = [_drift(estimated.effect, noise) for estimated in between]
    known = _learnt(between, noise, slopes)
    # an effect is the difference of two visits, a point is one
    session = np.array([known.get(family, statistics.SESSION_SD**2) / 2 for family in noise])
    first = {visit.release.file: visit for visit in reversed(visits)}
    points = visits if len(every) > len(releases) else [first[release.file] for release in releases]
    drifts = [_drift_at(visit, pairs, slopes, len(table)) for visit in points]
    values, errors = _points(points, noise)
    raw = values + np.stack([np.broadcast_to(visit.pace, len(table)) for visit in points], axis=1)
    corrected = values - np.stack(drifts, axis=1)
    crossed = None
    if len(every) > len(releases):
        crossed = _crossed(points, corrected, np.nan_to_num(errors) ** 2 + session[:, None], list(copies))
        fitted = crossed.crossed(noise)
        alone = points, raw, corrected, errors
        points = [_together(on_nodes, visits) for on_nodes in copies.values()]
        raw, corrected, errors = fitted.level, fitted.level, fitted.error
    between_points = np.zeros(len(table)) if crossed else session  # in the errors, where nodes tell it
    shared = _shared(_series(table, points, raw, corrected, errors, between_points), releases, noise)
    series = _series(table, points, raw, corrected, errors, between_points + shared)
    shuffled = _shuffled(series, releases, settings)
    series = _judged(series, settings)
    nodes = None
    if crossed:
        series = [_placed(place, cell, crossed, releases) for place, cell in enumerate(series)]
        nodes = _nodes(results, table, alone, session + shared, crossed, fitted, copies, series, controls, settings)
    rows, comparable = steps.repeated(results), steps.alike(results, releases)
    if len(rows) and len(comparable) < len(releases):
        left_out = len(releases) - len(comparable)
        notes += (f"Instructions of {left_out} releases were counted on another processor, C library or Python",)
    cells = _cells(results, comparable, rows)
    return History(
        package=package,
        machine=str(_there(results)["machine"].iloc[0]),
        python=python,
        held=_held(package, releases),
        releases=tuple(releases),
        series=tuple(cell for cell, control in zip(series, controls) if not control),
        controls=tuple(cell for cell, control in zip(series, controls) if control),
        repeats=tuple(repeats),
        session_sd={str(name): float(np.sqrt(session[noise == name][0])) for name in dict.fromkeys(noise[~controls])},
        appearances=tuple(_appearances(results, releases)),
        semantics=tuple(_semantics(results, releases)),
        looked_at=_looked_at(results, releases),
        failed=_failed(results, package),
        shuffled=shuffled,
        settings=settings,
        notes=notes,
        counted=tuple(steps.along(cells, rows, comparable, series, results.benchmarks, settings)),
        nodes=nodes,
    )


# --- what was measured ---------------------------------------------------------------------------------------------


def _measured(results: Results) -> Iterator[tuple[str, Release]]:
    """Every release that has figures, of both histories, and the Python it ran on."""
    started = {record.file: record.started for record in reversed(results.runs)}
    for row in _there(results).to_dict("records"):
        toolchain = ledger.find(row["commit"])
        if toolchain:
            torch, numpy = row["torch"] or toolchain.torch, row["numpy"] or toolchain.numpy
            yield str(row["python"]), Release(toolchain, row["file"], torch, numpy, started.get(row["file"], ""))


def _releases(results: Results, package: str) -> tuple[dict[str, list[Release]], str, tuple[str, ...]]:
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


def _held(package: str, releases: Sequence[Release]) -> str:
    """The other package and the version it was held at."""
    other = next(name for name in ledger.PACKAGES if name != package)
    versions = dict.fromkeys(getattr(release, other).split("+")[0] for release in releases)
    return f"{other} {' and '.join(versions)}"


def _failed(results: Results, package: str) -> dict[str, str]:
    """Releases that could not be measured at all, with the reason."""
    measured = set(_there(results)["file"])
    tags = {toolchain.tag: toolchain.version for toolchain in ledger.history(package)}
    return {
        tags[record.toolchain.tag]: record.failed
        for record in results.runs
        if record.failed and record.toolchain.tag in tags and record.file not in measured
    }


def _of(table: pd.DataFrame, files: Iterable[str]) -> pd.DataFrame:
    return table[table["file"].isin(set(files))]


def _cells(results: Results, releases: Sequence[Release], table: pd.DataFrame) -> pd.DataFrame:
    """One row a cell of ``table``, indexed by cell, of the version that the newest release has."""
    rows = _of(table, (release.file for release in releases))
    order = {release.file: place for place, release in enumerate(releases)}
    kinds = {name: place for place, name in enumerate(results.benchmarks)}
    rows = rows.assign(place=rows["file"].map(order), kind=rows["benchmark"].map(kinds), row=range(len(rows)))
    newest = rows.sort_values("place", kind="stable").drop_duplicates("cell", keep="last")
    newest = newest.sort_values(["kind", "row"])
    newest["parameters"] = parameters_of(newest, results)
    newest["declared"] = newest["benchmark"].map(results.benchmarks)
    names = ["benchmark", "family", "group", "method", *results.parameters, "parameters", "declared", "version"]
    return newest.set_index("cell")[names]


def _visits(results: Results, release: Release, table: pd.DataFrame) -> Iterator[_Visit]:
    """The visits of one release, the oldest first: a run that was appended to the one before is a visit of its own."""
    rows = results.processes_of(release.file)
    # what never was calm is the machine's doing, no release's
    rows = rows[rows["cell"].isin(table.index) & rows["calm"].ne(False)]
    rows = rows[rows["version"].to_numpy() == table["version"].reindex(rows["cell"]).to_numpy()]
    records = visits_of(results.runs_of(release.file))
    sizes = [record.rounds for record in records]
    width = max(int(rows["process"].max()) + 1 if len(rows) else 1, sum(sizes))
    logs, floors = np.full((len(table), width), np.nan), np.full((len(table), width), np.nan)
    places = table.index.get_indexer(rows["cell"]), rows["process"].to_numpy(dtype=int)
    logs[places] = np.log(rows["seconds"])
    floors[places] = np.log(rows["floor"].to_numpy(dtype=float))
    if sum(sizes) != logs.shape[1]:
        yield _Visit(release, logs, floors, _middle(records[0]) if records else math.nan)
        return
    for record, end, size in zip(records, np.cumsum(sizes), sizes):
        yield _Visit(release, logs[:, end - size : end], floors[:, end - size : end], _middle(record))


def _paced(visits: Sequence[_Visit], results: Results) -> list[_Visit]:
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


# --- the machine ---------------------------------------------------------------------------------------------------


def _pairs(visits: Sequence[_Visit]) -> list[tuple[_Visit, _Visit]]:
    """Visits of one toolchain, on one node, each with the next in time."""

    def of(visit: _Visit) -> tuple[str, str, str]:
        return visit.release.torch, visit.release.numpy, node_of(visit.release.file)

    pairs = []
    dated = sorted((visit for visit in visits if math.isfinite(visit.middle)), key=lambda visit: visit.middle)
    for what in dict.fromkeys(map(of, dated)):
        same = [visit for visit in dated if of(visit) == what]
        pairs += list(zip(same, same[1:]))
    return pairs


def _between(sooner: _Visit, later: _Visit, noise: Any) -> Estimate:
    """What the cells of two visits differ by, later over sooner."""
    return statistics.estimate(sooner.logs, later.logs, noise, np.zeros(len(noise), dtype=bool))


def _learnt(between: Sequence[Estimate], noise: Any, drifts: Sequence[Floats] = ()) -> dict[str, float]:
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
        for record in read_runs(path) if path.name[:8] in known else []:
            if not record.failed:
                toolchain = record.toolchain
                twice.setdefault((toolchain.torch, toolchain.numpy), []).append(path.with_suffix(".json"))
    files = {path for paths in twice.values() if len(paths) > 1 for path in paths}
    if not files:
        return {}
    loaded = load_files(results, sorted(files))
    releases = [release for _, release in _measured(loaded)]
    table = _cells(loaded, releases, loaded.processes)
    noise = families(table, loaded.benchmarks)
    visits = [visit for release in releases for visit in _visits(loaded, release, table)]
    pairs = _pairs(_paced(visits, loaded))
    return _learnt([_between(sooner, later, noise) for sooner, later in pairs], noise)


def _repeat(sooner: _Visit, later: _Visit, effect: Floats, controls: Any) -> Repeat:
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


def _drift(effect: Floats, noise: Any) -> Floats:
    """What the cells of each family moved by alike: its median effect, (cells,); of a small family that of all."""
    known = np.isfinite(effect)
    everything = float(np.median(effect[known])) if known.any() else 0.0
    moved = np.full(len(effect), everything)
    for family in np.unique(noise):
        members = (noise == family) & known
        if members.sum() >= statistics.MIN_FAMILY:
            moved[noise == family] = np.median(effect[members])
    return moved


def _drift_at(visit: _Visit, pairs: Sequence[tuple[_Visit, _Visit]], moved: Sequence[Floats], cells: int) -> Floats:
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
    return _drift_at(begin, pairs, moved, cells) + moved[place] * ((visit.middle - begin.middle) / length)


# --- levels and breaks -----------------------------------------------------------------------------------------------


def _points(visits: Sequence[_Visit], noise: Any) -> tuple[Floats, Floats]:
    """Mean of each cell's processes at each visit, and its error: (cells, visits) each."""
    alone = np.ones(len(noise), dtype=bool)
    points = [statistics.estimate(np.zeros_like(visit.logs), visit.logs, noise, alone) for visit in visits]
    return np.stack([point.effect for point in points], axis=1), np.stack([point.error for point in points], axis=1)


def _series(
    table: pd.DataFrame, visits: Sequence[_Visit], raw: Floats, corrected: Floats, errors: Floats, session: Floats
) -> list[Series]:
    """Every cell's series with its levels; raw, corrected and errors are (cells, visits), session is (cells,)."""
    series = []
    for place, (cell, names) in enumerate(zip(table.index, table.to_dict("records"))):
        there = [k for k, known in enumerate(np.isfinite(corrected[place])) if known]
        point_errors = np.sqrt(np.nan_to_num(errors[place, there]) ** 2 + session[place])
        values = corrected[place, there]
        deviation, starts, levels = _fit(values, point_errors)
        releases = tuple(visits[k].release for k in there)
        counts = np.array([np.isfinite(visits[k].logs[place]).sum() for k in there], dtype=np.float64)
        points = (raw[place, there], values, point_errors, deviation, counts)
        series.append(Series({"cell": cell, **names}, releases, *points, starts, levels))
    return series


def _fit(values: Floats, errors: Floats) -> tuple[Floats, tuple[int, ...], Floats]:
    """Of points with their errors: what noise they have, where levels begin, and the level of each; of none, none."""
    if not len(values):
        return values, (), values
    noise = statistics.history_noise(values, errors)
    starts = statistics.optimal_partition(values, noise) if len(values) >= LEAST_RELEASES else [0]
    levels = np.empty(len(values))
    for first, last, mean, _ in _spans(values, noise, starts):
        levels[first:last] = mean
    return noise, tuple(starts), levels


def _spans(values: Floats, noise: Floats, starts: Sequence[int]) -> list[tuple[int, int, float, float]]:
    """Of each level: its first point, the one after its last, its mean weighted by the noise, the variance of that."""
    spans = []
    for first, last in zip(starts, [*starts[1:], len(values)]):
        weight = noise[first:last] ** -2.0
        mean = float(np.sum(weight * values[first:last]) / np.sum(weight))
        spans.append((first, last, mean, 1.0 / float(np.sum(weight))))
    return spans


def _shared(series: Sequence[Series], releases: Sequence[Release], noise: Any) -> Floats:
    """Variance, (cells,), of what all cells of a kind of memory share in a visit, whatever release it was.

    Seen in no repeat alone: for each kind, the median over its cells of what the levels leave, release by release.
    """
    places = {release.file: place for place, release in enumerate(releases)}
    left = np.full((len(series), len(releases)), np.nan)
    for row, cell in zip(left, series):
        row[[places[release.file] for release in cell.releases]] = cell.values - cell.levels
    variance = np.zeros(len(series))
    for family in np.unique(noise):
        kind = left[noise == family]
        kind = kind[:, np.isfinite(kind).sum(axis=0) >= statistics.MIN_FAMILY]
        if kind.shape[1] >= LEAST_RELEASES:
            shifts = np.nanmedian(kind, axis=0)
            variance[noise == family] = (statistics.MAD_TO_SD * np.median(np.abs(shifts - np.median(shifts)))) ** 2
    return variance


def _shuffled(series: Sequence[Series], releases: Sequence[Release], settings: Settings) -> tuple[int, ...]:
    """How many breaks are confirmed where nothing changed: in what the levels leave, its releases shuffled."""
    confirmed = []
    for seed in range(SHUFFLES if len(releases) >= LEAST_RELEASES else 0):
        order = np.random.default_rng(seed).permutation(len(releases))
        rank = {release.file: int(order[place]) for place, release in enumerate(releases)}
        mixed = []
        for cell in series:
            by = np.argsort([rank[release.file] for release in cell.releases], kind="stable")
            values, errors = (cell.values - cell.levels)[by], cell.errors[by]
            deviation, starts, levels = _fit(values, errors)
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


def _judged(series: Sequence[Series], settings: Settings) -> list[Series]:
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


# --- nodes -----------------------------------------------------------------------------------------------------------


def _crossed(points: Sequence[_Visit], values: Floats, variance: Floats, versions: Sequence[str]) -> several.Points:
    """The visits of several nodes, by release and node."""
    names = several.names_of([visit.release.file for visit in points])
    release = np.array([versions.index(visit.release.version) for visit in points])
    node = np.array([names.index(several.name_of(visit.release.file)) for visit in points])
    return several.Points(names, values, variance, release, node)


def _together(on_nodes: Sequence[Release], visits: Sequence[_Visit]) -> _Visit:
    """All processes of a release, whichever node measured them."""
    files = {release.file for release in on_nodes}
    mine = [visit for visit in visits if visit.release.file in files]
    logs, floors = (np.hstack([getattr(visit, name) for visit in mine]) for name in ("logs", "floors"))
    return _Visit(on_nodes[0], logs, floors, mine[0].middle)


def _placed(cell: int, series: Series, crossed: several.Points, releases: Sequence[Release]) -> Series:
    """A series with what the nodes say of each of its breaks."""
    versions = [release.version for release in releases]
    breaks = [
        replace(broken, nodes=crossed.at(cell, *several.sides(series, number, versions), math.log(broken.ratio)))
        for number, broken in enumerate(series.breaks, start=1)
    ]
    return replace(series, breaks=tuple(breaks))


def _nodes(
    results: Results,
    table: pd.DataFrame,
    alone: tuple[Sequence[_Visit], Floats, Floats, Floats],
    noise: Floats,
    crossed: several.Points,
    fitted: statistics.Crossed,
    copies: Mapping[str, Sequence[Release]],
    series: Sequence[Series],
    controls: Any,
    settings: Settings,
) -> several.Nodes:
    """What each node adds, and the changes that are on some of them only: each node's own history is judged for that.

    alone  the visits with their raw and corrected values and errors; noise: (cells,) variance of a visit beside these
    """
    points, raw, corrected, errors = alone
    versions = list(copies)
    releases = [on_nodes[0] for on_nodes in copies.values()]
    nodes, local = [], []
    for place, name in enumerate(crossed.names):
        columns = np.flatnonzero(crossed.node == place).tolist()
        mine = [points[k] for k in columns]
        # a release's first visit stands for it, as on one machine
        once = [
            columns[k] for k, visit in enumerate(mine) if visit.release not in [before.release for before in mine[:k]]
        ]
        theirs = [replace(points[k], release=releases[versions.index(points[k].release.version)]) for k in once]
        history = _judged(_series(table, theirs, raw[:, once], corrected[:, once], errors[:, once], noise), settings)
        for cell, (node_series, all_nodes) in enumerate(zip(history, series)):
            confirmed = [each for each in all_nodes.breaks if each.verdict in CHANGED]
            for number, each in enumerate(node_series.breaks, start=1):
                if each.verdict in CHANGED and not several.is_covered(each, confirmed, versions):
                    said = crossed.at(cell, *several.sides(node_series, number, versions), math.log(each.ratio))
                    local.append((node_series, replace(each, nodes=said)))
        free = fitted.node[~controls, place]
        adds = float(np.exp(np.nanmedian(free))) if np.isfinite(free).any() else math.nan
        nodes.append(several.Node(name, len(columns), len(once), adds, tuple(history)))
    files = [release.file for on_nodes in copies.values() for release in on_nodes]
    return several.Nodes(
        nodes=tuple(nodes),
        node_sd=fitted.node_sd,
        interaction_sd=fitted.interaction_sd,
        local=tuple(sorted(local, key=lambda pair: -abs(math.log(pair[1].ratio)))),
        differing=tuple(several.differing(results, copies)),
        unlike=tuple(several.unlike(results, files)),
        pretended=several.is_pretended(results, files),
    )


# --- what appeared, and what it means --------------------------------------------------------------------------------


def _appearances(results: Results, releases: Sequence[Release]) -> Iterator[Appearance]:
    """What has a figure from a release on and had none before, or the other way round; of what has a route."""
    about: dict[str, tuple[str, str, str]] = {}
    there: dict[str, set[str]] = {release.file: set() for release in releases}
    absent: dict[tuple[str, str], str] = {}
    for table in (results.processes.drop_duplicates(["file", "cell"]), results.missing):
        rows = table[table["file"].isin(there) & table["method"].str.startswith("timeit_") & table["route"].notna()]
        for row in rows.to_dict("records"):
            contract = contract_of(results.benchmarks, row["benchmark"], row["route"])
            about[row["cell"]] = (contract.direction, row["route"], str(row["dtype"] or ""))
            if "status" in row:
                absent[row["file"], row["cell"]] = row["reason"] or row["status"]
            else:
                there[row["file"]].add(row["cell"])
    for before, at in zip(releases, releases[1:]):
        for gained, having, lacking in ((True, at, before), (False, before, at)):
            known = {about[cell][:2] for cell in there[lacking.file]}
            dtypes_of: dict[tuple[str, str, str], list[str]] = {}  # direction, route, reason -> dtypes
            for cell in sorted(there[having.file] - there[lacking.file], key=list(about).index):
                reason = absent.get((lacking.file, cell))
                if reason is not None:  # else it was not part of that run
                    direction, route, dtype = about[cell]
                    dtypes_of.setdefault((direction, route, reason), []).append(dtype)
            alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
            for (direction, route, reason), dtypes in dtypes_of.items():
                some = tuple(dict.fromkeys(filter(None, dtypes))) if (direction, route) in known else ()
                alike.setdefault((direction, reason, some), []).append(route)
            for (direction, reason, some), routes in alike.items():
                yield Appearance(at, before, gained, direction, tuple(routes), some, reason)


def _semantics(results: Results, releases: Sequence[Release]) -> Iterator[Semantic]:
    """Where alias, dtype or grad of a route differ from the release before."""
    rows = _of(facts(results), (release.file for release in releases))
    seen = {(row["file"], row["cell"]): row for row in rows.to_dict("records")}
    cells = rows.drop_duplicates("cell").to_dict("records")
    for before, at in zip(releases, releases[1:]):
        changed: dict[tuple[str, str, str, bool | str, bool | str], list[str]] = {}
        for row in cells:
            old, new = (seen.get((release.file, row["cell"])) for release in (before, at))
            if old and new and old["value"] != new["value"] and old["version"] == new["version"]:
                benchmark = results.benchmarks[row["benchmark"]]
                (what, was), (_, became) = measured(benchmark, old), measured(benchmark, new)
                key = benchmark.direction, row["route"], what, was, became
                changed.setdefault(key, []).append(row["dtype"] if isinstance(row["dtype"], str) else "")
        for (direction, route, what, was, became), dtypes in changed.items():
            yield Semantic(at, before, direction, route, what, was, became, tuple(filter(None, dtypes)))


def _looked_at(results: Results, releases: Sequence[Release]) -> tuple[int, int]:
    """How many facts about what routes mean the releases have: the fewest and the most."""
    each = facts(results)["file"].value_counts()
    counts = [int(each.get(release.file, 0)) for release in releases]
    return min(counts), max(counts)
