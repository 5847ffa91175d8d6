"""Histories: what each release of torch or numpy did to the cost of every call, as one table of points and changes.

A series is one call along the releases: its time, or its instruction count. Sizes of a call that shares memory are one
series, for its cost does not depend on them. A point is one release; its error is that of its processes and of
sessions. Levels are found by exact optimal partitioning (statistics.optimal_partition); a change of level is reported
if its false discovery rate, over all places where a series of its noise class could change, is at most ``FDR``.

The thresholds and the session SDs come from two whole histories of 26 toolchains, measured on the same machine seven
hours apart (``check.py history``, docs/accuracy.md).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from packaging.version import Version
from scipy import special
from store.files import node_of
from store.records import UNKNOWN, Record, sessions_of
from toolchains import ledger

from benchmarks.contracts import ALIAS, COPY, INTO, NONE
from benchmarks.probes import MEMORY, PROCESSOR

from . import changes, comparison, statistics
from .changes import CHANGED, FDR
from .comparison import PLAUSIBLE, controls_of, families
from .results import Results, parameters_of
from .statistics import HALF, Floats
from .verdicts import DEFAULT, TIME, Settings

CONTROL = "control"  # noise class of calls that no release can change
LEAST_PROCESSES = 2  # quiet ones of a point: two are evidence, with a wider interval
# SD of log seconds that sessions of one toolchain differ by beyond their processes, by noise class: STUDIED pairs
SESSION_SD = {ALIAS: 0.007, COPY: 0.005, INTO: 0.004, MEMORY: 0.05, CONTROL: 0.01}
STUDIED = 26
OTHER_SD = 0.006  # of noise classes that families declare themselves
OF_CELL = ["version", "parameters", "family", "through_memory"]  # what is known of a cell beside its series
PROBES = {PROCESSOR: "processor baseline", MEMORY: "memory baseline"}  # their columns, in ns
POINT = ["series", "release"]


@dataclass(frozen=True)
class Release:
    """A release that was measured, by one session or several, on one node or several.

    torch and numpy are what was imported, the build variant included; started is when its first session began.
    """

    package: str
    version: str
    date: str
    tag: str
    torch: str
    numpy: str
    files: tuple[str, ...]
    started: str

    @property
    def name(self) -> str:
        """torch 2.6.0"""
        return f"{self.package} {self.version}"

    @property
    def file(self) -> str:
        """The first result file."""
        return self.files[0]


@dataclass(frozen=True)
class History:
    """All that is known of one package's releases on one machine. ``held`` is the other package and its version.

    rows        one row per series, release and ``what`` (time or instructions), in order of release:
                package, machine, release, date, before (the release before it in the series); series (an id); cell (of
                its smallest size), benchmark, group, direction, route, dtype, nbytes, sizes (all of them), the other
                parameters, contract, noise (class), control; processes (0: counted); value, low, high (of the point:
                seconds with a 95 % interval, or instructions with the range of repeats), level (of its segment);
                and where a level begins: ratio (new level / old) with ratio_low and ratio_high, q, verdict ("" if it is
                not reported), earliest and latest (releases between which it lies, 95 %), evidence (AGREES,
                CONTRADICTS, UNCHANGED, LAYOUT or ""), nodes_with and nodes_without (names, of several nodes)
    replicates  one row per pair of sessions of one toolchain: torch, numpy, hours (between them), series (compared),
                median (ratio), half (of them lie within this factor), flagged (at ``FDR``: false alarms)
    session_sd  noise class -> SD of log seconds between sessions
    nodes       one row per node: node, sessions, releases, ratio (its time over that of the mean node); empty of one
    failed      version -> why it was not measured
    series      cell -> id of its series
    """

    package: str
    machine: str
    python: str
    held: str
    releases: tuple[Release, ...]
    rows: pd.DataFrame
    replicates: pd.DataFrame
    session_sd: Mapping[str, float]
    nodes: pd.DataFrame
    failed: Mapping[str, str]
    notes: tuple[str, ...]
    settings: Settings
    series: Mapping[str, str]

    @cached_property
    def changes(self) -> pd.DataFrame:
        """The rows of reported changes, controls left out: the largest first."""
        found = self.rows[self.rows["verdict"].isin(CHANGED) & ~self.rows["control"]]
        order = np.argsort(-np.abs(np.log(found["ratio"].to_numpy(dtype=float))), kind="stable")
        return found.iloc[order]

    @property
    def false_alarms(self) -> pd.DataFrame:
        """The rows of controls that are reported: no release can have changed them."""
        return self.rows[self.rows["verdict"].isin(CHANGED) & self.rows["control"]]


def along(results: Results) -> set[str]:
    """The result files of releases, those that failed, too."""
    table = results.cells[["file", "commit"]].drop_duplicates()
    return {file for file, commit in table.itertuples(index=False, name=None) if ledger.find(commit)}


def histories_of(results: Results, settings: Settings = DEFAULT) -> dict[str, History]:
    """Package -> its history, in the results of one machine, of the packages of which it measured two releases or more.

    Of releases that were measured with several Pythons, those of the Python that most were measured with.
    """
    every, points, histories = sessions(results), {}, {}
    for package, mine in every.groupby("package", sort=False):
        measured = mine.groupby("python")["release"].nunique()
        python = max(measured.index, key=lambda name: (measured[name], name))
        notes = [
            f"{n} releases were measured with Python {name}, too" for name, n in measured.items() if name != python
        ]
        if mine["release"].nunique() > 1:
            if python not in points:
                points[python] = _points(results, every[every["python"] == python])
            histories[package] = _history(results, mine[mine["python"] == python], points[python], notes, settings)
    return {package: histories[package] for package in ledger.PACKAGES if package in histories}


def _history(results: Results, mine: pd.DataFrame, points: "_Points", notes: list[str], settings: Settings) -> History:
    """mine: the sessions of one package's releases, by one Python; see ``sessions``."""
    package, machine = str(mine["package"].iloc[0]), str(mine["machine"].iloc[0])
    releases = tuple(_releases(mine))
    order = {release.version: place for place, release in enumerate(releases)}
    own = points.sessions[points.sessions["package"] == package]
    own = points.series.merge(own.drop(columns=["package", "torch", "numpy", "middle", "file"]), on="series")
    counts = _counts(results, releases, notes)
    rows = pd.concat([_times(own, order, settings), changes.steps(counts, order, settings)], ignore_index=True)
    rows = changes.with_evidence(rows, order, settings)
    nodes = points.nodes[points.nodes["package"] == package]
    if len(nodes):
        rows = changes.with_nodes(rows, own, order)
    rows.insert(0, "package", package)
    rows.insert(1, "machine", machine)
    rows.insert(3, "date", rows["release"].map({release.version: release.date for release in releases}))
    other = next(name for name in ledger.PACKAGES if name != package)
    held = dict.fromkeys(getattr(release, other).split("+")[0] for release in releases)
    return History(
        package=package,
        machine=machine,
        python=str(mine["python"].iloc[0]),
        held=f"{other} {' and '.join(held)}",
        releases=releases,
        rows=rows,
        replicates=_replicates(points.pairs, points.session_sd),
        session_sd=points.session_sd,
        nodes=nodes,
        failed=_failed(results, package),
        notes=tuple(notes),
        settings=settings,
        series=points.cells | dict(zip(counts["cell"], counts["series"])),
    )


# --- what was measured -----------------------------------------------------------------------------------------------


def sessions(results: Results) -> pd.DataFrame:
    """One row per session of a release, in order of release: package, release, date, tag, torch, numpy, python, file,
    node, machine, run (when it began), middle (s since the epoch), interpreter, baselines of the speed probes (ns)."""
    rows = []
    measured = results.cells[results.cells["status"] == "measured"]
    columns = ["file", "machine", "commit", "torch", "numpy", "python"]
    for of_file in measured[columns].drop_duplicates("file").to_dict("records"):
        toolchain = ledger.find(of_file["commit"])
        if not toolchain:
            continue
        for record in sessions_of(results.runs_of(of_file["file"])) or [UNKNOWN]:
            rows.append(
                of_file
                | {"package": toolchain.history, "release": toolchain.version, "date": toolchain.date}
                | {"tag": toolchain.tag, "node": node_of(of_file["file"]), "run": record.started}
                | {"torch": of_file["torch"] or toolchain.torch, "numpy": of_file["numpy"] or toolchain.numpy}
                | {"middle": _middle(record), "interpreter": record.settings.python}
                | {PROBES[probe]: record.baselines.get(probe, math.nan) for probe in PROBES}
            )
    more = ["package", "release", "date", "tag", "node", "run", "middle", "interpreter", *PROBES.values()]
    table = pd.DataFrame(rows, columns=[*columns, *more])
    order = sorted(range(len(table)), key=lambda k: (Version(table["release"][k]), table["run"][k]))
    return table.iloc[order].reset_index(drop=True)


def _middle(record: Record) -> float:
    started = pd.to_datetime(record.started, errors="coerce", utc=True)
    return math.nan if pd.isna(started) else float(started.timestamp()) + record.seconds / 2


def _releases(table: pd.DataFrame) -> Iterator[Release]:
    for _, each in table.groupby("release", sort=False):
        first = each.iloc[0]
        of_release = (first[name] for name in ("package", "release", "date", "tag", "torch", "numpy"))
        package, version, date, tag, torch, numpy = map(str, of_release)
        files = tuple(dict.fromkeys(each["file"]))
        yield Release(package, version, date, tag, torch, numpy, files, str(first["run"]))


def _failed(results: Results, package: str) -> dict[str, str]:
    measured = set(results.cells.loc[results.cells["status"] == "measured", "file"])
    tags = {toolchain.tag: toolchain.version for toolchain in ledger.history(package)}
    return {
        tags[record.toolchain.tag]: record.failed
        for record in results.runs
        if record.failed and record.toolchain.tag in tags and record.file not in measured
    }


def _of_series(table: pd.DataFrame, results: Results) -> pd.DataFrame:
    """One row per cell of ``table``, indexed by it, of the version that the newest of its rows has, with the names that
    ``History.rows`` has of a series."""
    cells = table.drop_duplicates("cell", keep="last").reset_index(drop=True)
    names = ["cell", "benchmark", "group", "direction", *results.parameters, "contract", "version"]
    kept = cells[[*dict.fromkeys(names)]].copy()
    kept["family"] = cells["family"]
    for name in kept.select_dtypes("category"):
        kept[name] = kept[name].astype(object)
    kept["parameters"] = parameters_of(cells, results)
    calls = zip(kept["direction"], kept["route"], kept["dtype"], kept["contract"])
    kept["contract"] = [  # instructions are of routes whose contract is declared where they are timed
        contract or results.contracts.get((direction, route), NONE).memory_for(dtype or "")
        for direction, route, dtype, contract in calls
    ]
    kept["control"] = controls_of(cells, results.benchmarks)
    noise = families(cells, results.benchmarks)
    kept["through_memory"], kept["noise"] = noise == MEMORY, np.where(kept["control"], CONTROL, noise)
    shares = (kept["noise"] == ALIAS).to_numpy()
    apart = [
        f"{row['benchmark']}({', '.join(repr(v) for name, v in row['parameters'].items() if name != 'nbytes')})"
        for row in kept.to_dict("records")
    ]
    kept["series"] = np.where(shares, apart, kept["cell"])
    place = {name: number for number, name in enumerate(results.benchmarks)}
    listed = results.cells.drop_duplicates("cell").reset_index(drop=True)
    rank = pd.Series(range(len(listed)), index=listed["cell"].astype(object))
    kept = kept.assign(_place=kept["benchmark"].map(place), _rank=kept["cell"].map(rank))
    return kept.sort_values(["_place", "_rank"]).drop(columns=["_place", "_rank"]).set_index("cell")


# --- times: points ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Points:
    """What was timed in the sessions of a machine.

    sessions    one row per series and session: run, package, release, torch, numpy, node, middle, noise, control, y
                (log seconds), variance (of its processes), session_sd, processes
    cells       cell -> series
    series      one row per series: cell, benchmark and the other names
    pairs       one row per series and two sessions of one toolchain
    session_sd  noise class -> SD of log seconds between sessions
    nodes       one row per package and node, see ``History.nodes``
    """

    sessions: pd.DataFrame
    cells: dict[str, str]
    series: pd.DataFrame
    pairs: pd.DataFrame
    session_sd: Mapping[str, float]
    nodes: pd.DataFrame


def _points(results: Results, every: pd.DataFrame) -> _Points:
    """every: see ``sessions``. A cell counts in the version of the benchmark that was measured last."""
    runs = every.drop_duplicates(["file", "run"])
    processes = results.processes
    processes = processes[processes["file"].isin(runs["file"]) & processes["quiet"].astype(bool)]
    processes = processes[processes["seconds"] > 0]
    names = _of_series(processes.sort_values("run", key=lambda run: run.astype(str), kind="stable"), results)
    processes = processes.astype({"cell": object, "file": object, "run": object, "version": object})
    processes = processes[processes["version"] == processes["cell"].map(names["version"])]
    processes = processes.merge(runs[["file", "run", *PROBES.values()]], on=["file", "run"])
    processes["through_memory"] = processes["cell"].map(names["through_memory"]).astype(bool)
    taken = processes.assign(y=np.log(processes["seconds"]) - _correction(processes, runs))
    grouped = taken.groupby(["cell", "file", "run"], sort=False)
    points = grouped.agg(y=("y", "median"), n=("y", "size"), within=("y", "var")).reset_index()
    points = points[points["n"] >= LEAST_PROCESSES]
    points = points.join(names[["series", "noise", "control"]], on="cell").merge(
        runs[["file", "run", "package", "release", "torch", "numpy", "node", "middle"]], on=["file", "run"]
    )
    points["variance"] = _moderated(points)
    nodes = _take_out_nodes(points)
    pooled = _pooled(points)
    pairs = _pairs(pooled)
    session_sd = _session_sd(pairs, pooled)
    pooled["session_sd"] = pooled["noise"].map(session_sd).astype(float)
    sizes = names.groupby("series")["nbytes"].agg(lambda values: tuple(int(size) for size in values.dropna()))
    series = names.reset_index().drop_duplicates("series").drop(columns=["noise", "control", *OF_CELL])
    of_cells = names["series"].to_dict()
    return _Points(pooled, of_cells, series.assign(sizes=series["series"].map(sizes)), pairs, session_sd, nodes)


def _correction(processes: pd.DataFrame, runs: pd.DataFrame) -> Floats:
    """The log by which each process ran slower than on the machine's usual baseline: of copies through memory that of
    the memory probe. None where interpreters differ, whose own work the probes are, or a baseline is not plausible."""
    moved: Floats = np.zeros(len(processes))
    if runs["interpreter"].replace("", np.nan).dropna().nunique() > 1:
        return moved
    through = processes["through_memory"].to_numpy()
    for taken, own, probe, plausible in (
        (~through, "baseline", PROCESSOR, PLAUSIBLE),
        (through, PROBES[MEMORY], MEMORY, math.log(2)),
    ):
        baselines, usual = (np.log(each.to_numpy(dtype=float)) for each in (processes[own], runs[PROBES[probe]]))
        moved = np.where(taken, comparison.correction(baselines, usual, plausible), moved)
    return moved


def _moderated(points: pd.DataFrame) -> Floats:
    """The variance of each point by its processes: what they show, drawn to what the cell's other sessions show (Smyth
    2004, over the sessions of a noise class; each cell by its own scale)."""
    usual = points.groupby("cell")["within"].transform("mean").clip(lower=1e-8)
    ratio, df = (points["within"] / usual).to_numpy(), (points["n"] - 1).to_numpy(dtype=float)
    variance = np.full(len(points), np.nan)
    for _, members in points.groupby("noise").indices.items():
        prior = statistics.fit_prior(ratio[members], df[members])
        posterior, _ = statistics.squeeze(ratio[members], df[members], prior)
        variance[members] = posterior * usual.to_numpy()[members] / points["n"].to_numpy()[members]
    floor: Floats = np.maximum(variance, 1e-10)  # of figures that are all the same
    return floor


def _take_out_nodes(points: pd.DataFrame) -> pd.DataFrame:
    """Take out of ``y``, in place, what a node adds to all cells of a noise class; one row per node, none of one."""
    if points["node"].nunique() < 2:
        return pd.DataFrame(columns=["package", "node", "sessions", "releases", "ratio"])
    added = pd.Series(0.0, index=points.index)
    for _ in range(10):
        level = (points["y"] - added).groupby([points["cell"], points["torch"], points["numpy"]]).transform("mean")
        added = (points["y"] - level).groupby([points["noise"], points["node"]]).transform("median")
        added -= added.groupby(points["noise"]).transform("mean")
    points["y"] -= added
    own = points[~points["control"]].assign(added=added)
    table = own.groupby(["package", "node"]).agg(
        sessions=("run", "nunique"), releases=("release", "nunique"), ratio=("added", "median")
    )
    table["ratio"] = np.exp(table["ratio"])
    return table.reset_index().sort_values("node", key=lambda names: names.map(lambda name: (len(name), name)))


def _pooled(points: pd.DataFrame) -> pd.DataFrame:
    """One row per series and session: sizes of a call that shares memory together, each without what it takes more than
    the others in all sessions (weighted least squares by turns)."""
    weight = 1 / points["variance"]
    in_session = [points["series"], points["file"], points["run"]]
    offset = pd.Series(0.0, index=points.index)
    for _ in range(10):
        total = weight.groupby(in_session).transform("sum")
        level = ((points["y"] - offset) * weight).groupby(in_session).transform("sum") / total
        of_cell = (weight * (points["y"] - level)).groupby(points["cell"]).transform("sum")
        offset = of_cell / weight.groupby(points["cell"]).transform("sum")
        offset -= offset.groupby(points["series"]).transform("mean")
    names = ["series", "file", "run", "package", "release", "torch", "numpy", "node", "middle", "noise", "control"]
    table = points.assign(wy=weight * (points["y"] - offset), weight=weight)
    pooled = table.groupby(names, sort=False, dropna=False).agg(
        wy=("wy", "sum"), weight=("weight", "sum"), processes=("n", "sum")
    )
    pooled = pooled.reset_index()
    means = {"y": pooled["wy"] / pooled["weight"], "variance": 1 / pooled["weight"]}
    return pooled.drop(columns=["wy", "weight"]).assign(**means)


# --- times: what sessions differ by ----------------------------------------------------------------------------------


def _pairs(pooled: pd.DataFrame) -> pd.DataFrame:
    """One row per series and two sessions of one toolchain, one after the other: effect (later - sooner, log), variance
    (of both by their processes), noise, hours."""
    same = ["series", "torch", "numpy"]
    table = pooled.dropna(subset="middle").sort_values("middle", kind="stable")
    before = table.groupby(same)[["y", "variance", "middle"]].shift()
    table = table.assign(
        effect=table["y"] - before["y"],
        variance=table["variance"] + before["variance"],
        hours=(table["middle"] - before["middle"]) / 3600,
    )
    return table.dropna(subset="effect")


def _session_sd(pairs: pd.DataFrame, pooled: pd.DataFrame) -> dict[str, float]:
    """Noise class -> SD of log seconds between sessions: of pairs on this machine and of SESSION_SD, which counts as
    the STUDIED pairs that it comes from. Cells of one pair move together, so a few pairs alone tell little."""
    learnt = {}
    for noise in pooled["noise"].unique():
        own, usual = pairs[pairs["noise"] == noise], SESSION_SD.get(noise, OTHER_SD) ** 2
        seen = (own["effect"] ** 2 - own["variance"]).groupby([own["torch"], own["numpy"], own["hours"]]).mean() / 2
        learnt[str(noise)] = math.sqrt((STUDIED * usual + seen.clip(lower=0).sum()) / (STUDIED + len(seen)))
    return learnt


def _replicates(pairs: pd.DataFrame, session_sd: Mapping[str, float]) -> pd.DataFrame:
    """``History.replicates``: the test of changes on toolchains against themselves."""
    rows = []
    error = np.sqrt(pairs["variance"] + 2 * pairs["noise"].map(session_sd).astype(float) ** 2)
    pairs = pairs.assign(p=2 * special.ndtr(-np.abs(pairs["effect"] / error).to_numpy(dtype=float)))
    for (torch, numpy, _), each in pairs[~pairs["control"]].groupby(["torch", "numpy", "run"], sort=False):
        q = each.groupby("noise")["p"].transform(lambda p: statistics.q_values(p.to_numpy()))
        size = each["effect"].abs()
        rows.append(
            (
                torch,
                numpy,
                each["hours"].iloc[0],
                len(each),
                *np.exp([each["effect"].median(), size.median()]),
                sum(q <= FDR),
            )
        )
    return pd.DataFrame(rows, columns=["torch", "numpy", "hours", "series", "median", "half", "flagged"])


# --- times: levels ---------------------------------------------------------------------------------------------------


def _combined(points: pd.DataFrame) -> pd.DataFrame:
    """One row per series and release: sessions together, each as precise as its processes and sessions allow."""
    weight = 1 / (points["variance"] + points["session_sd"].astype(float) ** 2)
    names = [name for name in points if name not in ("run", "node", "y", "variance", "session_sd", "processes")]
    table = points.assign(wy=weight * points["y"], weight=weight)
    grouped = table.groupby(POINT, sort=False)
    combined = grouped.agg(wy=("wy", "sum"), weight=("weight", "sum"), processes=("processes", "sum")).reset_index()
    combined = combined.assign(y=combined["wy"] / combined["weight"], error=combined["weight"] ** -0.5)
    return table[names].drop_duplicates(POINT).merge(combined.drop(columns=["wy", "weight"]), on=POINT)


def _times(points: pd.DataFrame, order: Mapping[str, int], settings: Settings) -> pd.DataFrame:
    """The rows of ``History.rows`` that are of times."""
    table = _combined(points)
    table = table.assign(place=pd.factorize(table["series"])[0], at=table["release"].map(order))
    table = table.sort_values(["place", "at"]).reset_index(drop=True)
    found = [changes.reported(own, settings) for _, own in table.groupby("noise", sort=False)]
    table = table.join(pd.concat(found)) if found else table.assign(level=np.nan, **dict.fromkeys(changes.CHANGE))
    half = HALF * table["error"]
    ends = {"value": table["y"], "low": table["y"] - half, "high": table["y"] + half, "level": table["level"]}
    table = table.assign(what=TIME, **{name: np.exp(log) for name, log in ends.items()})
    return table.drop(columns=["y", "error", "place", "at"])


# --- instruction counts ----------------------------------------------------------------------------------------------


def _counts(results: Results, releases: Sequence[Release], notes: list[str]) -> pd.DataFrame:
    """One row per counted cell and release: value (the median of its repeats), low, high, and the series' names.

    Releases that were counted with another processor, C library or Python than the newest are left out, with a note.
    """
    decisive = [_decisive(next(iter(sessions_of(results.runs_of(release.file))), UNKNOWN)) for release in releases]
    alike = [
        release
        for release, facts in zip(releases, decisive)
        if all(not one or not newest or one == newest for one, newest in zip(facts, decisive[-1]))
    ]
    rows = results.repeated(results.values)
    rows = rows[(rows["low"] > 0) & rows["value"].between(rows["low"], rows["high"])]
    if len(rows) and len(alike) < len(releases):
        left_out = len(releases) - len(alike)
        notes.append(f"Instructions of {left_out} releases were counted on another processor, C library or Python")
    versions = {file: release.version for release in alike for file in release.files}
    rows = rows[rows["file"].isin(versions)].assign(release=lambda table: table["file"].astype(object).map(versions))
    ranks = {file: place for place, file in enumerate(versions)}
    rows = rows.sort_values("file", key=lambda files: files.astype(object).map(ranks), kind="stable")
    names = _of_series(rows, results)
    rows = rows.astype({"cell": object, "version": object})
    rows = rows[rows["version"] == rows["cell"].map(names["version"])]
    names = names.assign(sizes=[() if pd.isna(nbytes) else (int(nbytes),) for nbytes in names["nbytes"]])
    names = names.drop(columns=OF_CELL).assign(series=names.index)
    # of several nodes: what they differ by is in the range, and is no release's doing
    of_release = rows.groupby(["cell", "release"], sort=False, as_index=False)
    counts = of_release.agg(value=("value", "median"), low=("low", "min"), high=("high", "max"))
    return counts.merge(names.reset_index(), on="cell")


def _decisive(record: Record) -> tuple[str, ...]:
    """What a count depends on beside the release."""
    return record.conditions.cpu, record.conditions.libc, record.settings.python
