"""Histories: what each release of torch or numpy did to the cost of every route, as one table of points and changes.

A series is one route, dtype and size along the releases: its time, or its instruction count. Sizes of a route that
shares memory are one series, for its cost does not depend on them. A point is one release; its error is that of its
processes and of sessions. Levels are found by exact optimal partitioning (statistics.optimal_partition); a change of
level is reported if its false discovery rate, over all places where a series of its noise class could change, is at
most ``FDR``.

The thresholds and the session SDs come from two whole histories of 26 toolchains, measured on the same machine seven
hours apart (``check.py history``, docs/accuracy.md).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from packaging.version import Version
from scipy import special
from store.files import node_of
from store.records import UNKNOWN, sessions_of
from toolchains import ledger

from benchmarks.contracts import ALIAS, COPY, INTO, NONE
from benchmarks.probes import MEMORY, PROCESSOR

from . import changes, statistics
from .changes import CHANGED, FDR
from .results import MEASURED, Results, noise_of_cells, parameters_of
from .statistics import HALF, PLAUSIBLE, Floats
from .verdicts import DEFAULT, TIME, Settings

CONTROL = "control"  # noise class of work that no release can change
LEAST_PROCESSES = 2  # quiet ones of a point: two are evidence, with a wider interval
# SD of log seconds that sessions of one toolchain differ by beyond their processes, by noise class: STUDIED pairs
SESSION_SD = {ALIAS: 0.007, COPY: 0.005, INTO: 0.004, MEMORY: 0.05, CONTROL: 0.01}
STUDIED = 26
OTHER_SD = 0.006  # of noise classes that families declare themselves
OF_CELL = ["version", "parameters", "family", "through_memory"]  # what is known of a cell beside its series
PROBES = {PROCESSOR: "processor baseline", MEMORY: "memory baseline"}  # their columns, in ns
OF_SESSION = ["file", "run", "package", "release", "torch", "numpy", "node", "middle", *PROBES.values()]


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
    for package, mine in every.groupby("package"):
        measured = mine.groupby("python")["release"].nunique()
        python = max(measured.index, key=lambda name: (measured[name], name))
        notes = [
            f"{n} releases were measured with Python {name}, too" for name, n in measured.items() if name != python
        ]
        if mine["release"].nunique() > 1:
            if python not in points:
                points[python] = _points(results, every[every["python"] == python])
            histories[package] = _history(results, mine[mine["python"] == python], *points[python], notes, settings)
    return {package: histories[package] for package in ledger.PACKAGES if package in histories}


def _history(
    results: Results,
    mine: pd.DataFrame,
    points: pd.DataFrame,
    replicates: pd.DataFrame,
    session_sd: Mapping[str, float],
    nodes: pd.DataFrame,
    notes: list[str],
    settings: Settings,
) -> History:
    """mine: the sessions of one package's releases, by one Python (see ``sessions``); points and the next: of all
    packages, see ``_points``."""
    package, machine = str(mine["package"].iloc[0]), str(mine["machine"].iloc[0])
    releases = tuple(_releases(mine))
    order = {release.version: place for place, release in enumerate(releases)}
    own, nodes = (table[table["package"] == package] for table in (points, nodes))
    parts = _times(own, order, settings), changes.steps(_counts(results, mine, notes), order, settings)
    rows = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)  # an empty one has no kinds
    rows = changes.with_evidence(rows, order, settings)
    if len(nodes):
        rows = changes.with_nodes(rows, own)
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
        replicates=replicates,
        session_sd=session_sd,
        nodes=nodes,
        failed=_failed(results, package),
        notes=tuple(notes),
        settings=settings,
    )


# --- what was measured -----------------------------------------------------------------------------------------------


def sessions(results: Results) -> pd.DataFrame:
    """One row per session of a release, in order of release: OF_SESSION (run: when it began; middle: s since the epoch;
    baselines of the speed probes: ns), date, tag, python, machine, and what counts depend on (DECISIVE)."""
    rows = []
    names = ["file", "machine", "commit", "torch", "numpy", "python"]
    measured = results.cells.loc[results.cells["status"] == MEASURED, names].drop_duplicates("file")
    for of_file in measured.astype(object).to_dict("records"):
        toolchain = ledger.find(of_file["commit"])
        if not toolchain:
            continue
        for record in sessions_of(results.runs_of(of_file["file"])) or [UNKNOWN]:
            started = pd.to_datetime(record.started, errors="coerce", utc=True)
            rows.append(
                of_file
                | {"package": toolchain.history, "release": toolchain.version, "date": toolchain.date}
                | {"tag": toolchain.tag, "node": node_of(of_file["file"]), "run": record.started}
                | {"torch": of_file["torch"] or toolchain.torch, "numpy": of_file["numpy"] or toolchain.numpy}
                | {"middle": math.nan if pd.isna(started) else started.timestamp() + record.seconds / 2}
                | dict(zip(DECISIVE, (record.conditions.cpu, record.conditions.libc, record.settings.python)))
                | {column: record.baselines.get(probe, math.nan) for probe, column in PROBES.items()}
            )
    columns = [*dict.fromkeys([*names, *OF_SESSION]), "date", "tag", *DECISIVE]
    return pd.DataFrame(sorted(rows, key=lambda row: (Version(row["release"]), row["run"])), columns=columns)


def _releases(table: pd.DataFrame) -> Iterator[Release]:
    for _, each in table.groupby("release", sort=False):
        first, files = each.iloc[0], tuple(dict.fromkeys(each["file"]))
        names = (str(first[name]) for name in ("package", "release", "date", "tag", "torch", "numpy"))
        package, version, date, tag, torch, numpy = names
        yield Release(package, version, date, tag, torch, numpy, files, str(first["run"]))


def _failed(results: Results, package: str) -> dict[str, str]:
    measured = set(results.cells.loc[results.cells["status"] == MEASURED, "file"])
    tags = {toolchain.tag: toolchain.version for toolchain in ledger.history(package)}
    return {
        tags[record.toolchain.tag]: record.failed
        for record in results.runs
        if record.failed and record.toolchain.tag in tags and record.file not in measured
    }


def _of_series(table: pd.DataFrame, results: Results) -> pd.DataFrame:
    """One row per cell of ``table``, indexed by it, of the version that the newest of its rows has, with the names that
    ``History.rows`` has of a series."""
    names = ["cell", "benchmark", "group", "direction", *results.parameters, "contract", "version", "family"]
    kept = table.drop_duplicates("cell", keep="last")[list(dict.fromkeys(names))].reset_index(drop=True)
    kept = kept.astype({name: object for name in kept.select_dtypes("category")})
    kept["parameters"] = parameters_of(kept, results)
    kept["control"] = np.array([results.benchmarks[name].control for name in kept["benchmark"]], dtype=bool)
    kept["noise"] = noise_of_cells(kept, results.benchmarks)
    kept["through_memory"] = kept["noise"] == MEMORY
    kept["noise"] = kept["noise"].mask(kept["control"], CONTROL)
    calls = zip(kept["direction"], kept["route"], kept["dtype"], kept["contract"])
    kept["contract"] = [  # instructions are of routes whose contract is declared where they are timed
        contract or results.contracts.get((direction, route), NONE).memory_for(dtype or "")
        for direction, route, dtype, contract in calls
    ]
    kept = kept.set_index("cell")
    kept["series"] = series_of(kept)
    places = {cell: place for place, cell in enumerate(results.given)}
    return kept.loc[sorted(kept.index, key=places.__getitem__)]


def series_of(cells: pd.DataFrame) -> pd.Series:
    """The series of cells, which are their index: sizes of a route that shares memory are one."""
    apart = [
        f"{benchmark}({', '.join(repr(value) for name, value in parameters.items() if name != 'nbytes')})"
        for benchmark, parameters in zip(cells["benchmark"], cells["parameters"])
    ]
    return pd.Series(np.where(cells["noise"] == ALIAS, apart, cells.index), cells.index)


# --- times: points ---------------------------------------------------------------------------------------------------


def _points(
    results: Results, every: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, Mapping[str, float], pd.DataFrame]:
    """One row per series and session: the names of the series, the session, y (log seconds), variance (of its
    processes), session_sd and processes. Beside it replicates, session_sd and nodes, see ``History``.

    every: see ``sessions``. A cell counts in the version of the benchmark that was measured last.
    """
    runs = every.drop_duplicates(["file", "run"])
    processes = results.processes
    processes = processes[processes["file"].isin(runs["file"]) & processes["quiet"].astype(bool)]
    processes = processes[processes["seconds"] > 0].astype(dict.fromkeys(["cell", "file", "run", "version"], object))
    names = _of_series(processes.sort_values("run", kind="stable"), results)
    processes = processes[processes["version"] == processes["cell"].map(names["version"])]
    taken = processes[["cell", "seconds", "baseline", "file", "run"]].merge(runs[OF_SESSION], on=["file", "run"])
    taken = taken.join(names[["series", "noise", "control", "through_memory"]], on="cell")
    taken["y"] = np.log(taken["seconds"]) - _correction(taken, runs)
    same = [name for name in taken if name not in ("seconds", "baseline", "through_memory", "y", *PROBES.values())]
    grouped = taken.groupby(same, sort=False, dropna=False)["y"]
    points = grouped.agg(y="median", processes="size", within="var").reset_index()
    points = points[points["processes"] >= LEAST_PROCESSES]
    points["variance"] = _moderated(points)
    nodes = _take_out_nodes(points)
    pooled = _pooled(points)
    pairs = _pairs(pooled)
    session_sd = _session_sd(pairs, pooled)
    pooled["session_sd"] = pooled["noise"].map(session_sd).astype(float)
    sizes = names.groupby("series")["nbytes"].agg(lambda values: tuple(int(size) for size in values.dropna()))
    series = names.reset_index().drop_duplicates("series").drop(columns=["noise", "control", *OF_CELL])
    points = series.assign(sizes=series["series"].map(sizes)).merge(pooled.drop(columns="cell"), on="series")
    return points, _replicates(pairs, session_sd), session_sd, nodes


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
        moved = np.where(taken, statistics.correction(baselines, usual, plausible), moved)
    return moved


def _moderated(points: pd.DataFrame) -> Floats:
    """The variance of each point by its processes: what they show, drawn to what the cell's other sessions show (Smyth
    2004, over the sessions of a noise class; each cell by its own scale)."""
    usual = points.groupby("cell")["within"].transform("mean").clip(lower=1e-8)
    ratio, df = (points["within"] / usual).to_numpy(), (points["processes"] - 1).to_numpy(dtype=float)
    variance = np.full(len(points), np.nan)
    for _, members in points.groupby("noise").indices.items():
        prior = statistics.fit_prior(ratio[members], df[members])
        posterior, _ = statistics.squeeze(ratio[members], df[members], prior)
        variance[members] = posterior * usual.to_numpy()[members] / points["processes"].to_numpy()[members]
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


def _averaged(points: pd.DataFrame, *by: str) -> pd.DataFrame:
    """One row per group: y, of points that weigh as much as their ``variance`` says they are known, its own variance,
    all processes; the rest of the first."""
    weight = 1 / points["variance"]
    table = points.drop(columns="variance").assign(y=weight * points["y"], weight=weight)
    how = {name: "sum" if name in ("y", "weight", "processes") else "first" for name in table if name not in by}
    means = table.groupby(list(by), sort=False, as_index=False).agg(how)
    means = means.assign(y=means["y"] / means["weight"], variance=1 / means["weight"])
    return means.drop(columns="weight")


def _pooled(points: pd.DataFrame) -> pd.DataFrame:
    """One row per series and session: sizes of a route that shares memory together, each without what it takes more
    than the others in all sessions (weighted least squares by turns)."""
    weight = 1 / points["variance"]
    in_session = [points["series"], points["file"], points["run"]]
    offset = pd.Series(0.0, index=points.index)
    for _ in range(10):
        total = weight.groupby(in_session).transform("sum")
        level = ((points["y"] - offset) * weight).groupby(in_session).transform("sum") / total
        of_cell = (weight * (points["y"] - level)).groupby(points["cell"]).transform("sum")
        offset = of_cell / weight.groupby(points["cell"]).transform("sum")
        offset -= offset.groupby(points["series"]).transform("mean")
    return _averaged(points.assign(y=points["y"] - offset), "series", "file", "run")


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
    pairs = pairs[~pairs["control"]]
    error = np.sqrt(pairs["variance"] + 2 * pairs["noise"].map(session_sd).astype(float) ** 2)
    pairs = pairs.assign(p=2 * special.ndtr(-np.abs(pairs["effect"] / error).to_numpy(dtype=float)))
    pair = ["torch", "numpy", "run"]
    q = pairs.groupby([*pair, "noise"])["p"].transform(lambda p: statistics.q_values(p.to_numpy()))
    table = pairs.assign(flagged=q <= FDR, half=pairs["effect"].abs()).groupby(pair, sort=False, as_index=False)
    table = table.agg(
        hours=("hours", "first"),
        series=("effect", "size"),
        median=("effect", "median"),
        half=("half", "median"),
        flagged=("flagged", "sum"),
    )
    return table.drop(columns="run").assign(median=np.exp(table["median"]), half=np.exp(table["half"]))


# --- times: levels ---------------------------------------------------------------------------------------------------


def _times(points: pd.DataFrame, order: Mapping[str, int], settings: Settings) -> pd.DataFrame:
    """The rows of ``History.rows`` that are of times: a release's sessions together, each as precise as its processes
    and sessions allow."""
    table = points.assign(variance=points["variance"] + points["session_sd"].astype(float) ** 2)
    table = _averaged(table, "series", "release")
    table = table.assign(error=table["variance"] ** 0.5, at=table["release"].map(order))
    table["place"] = pd.factorize(table["series"])[0]
    table = table.sort_values(["place", "at"]).reset_index(drop=True)
    found = [changes.reported(own, settings) for _, own in table.groupby("noise", sort=False)]
    table = table.join(pd.concat(found)) if found else table.assign(level=np.nan, **dict.fromkeys(changes.CHANGE))
    half = HALF * table["error"]
    ends = {"value": table["y"], "low": table["y"] - half, "high": table["y"] + half, "level": table["level"]}
    table = table.assign(what=TIME, **{name: np.exp(log) for name, log in ends.items()})
    known = [name for name in ("within", *OF_SESSION) if name in table and name != "release"]
    return table.drop(columns=["y", "variance", "error", "place", "at", "session_sd", *known])


# --- instruction counts ----------------------------------------------------------------------------------------------

DECISIVE = ["cpu", "libc", "interpreter"]  # what a count depends on beside the release


def _counts(results: Results, mine: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """One row per counted cell and release: value (the median of its repeats), low, high, and the series' names.

    Releases that were counted with another processor, C library or Python than the newest are left out, with a note.
    mine: the sessions of the releases.
    """
    rows = results.repeated(results.values)
    rows = rows[(rows["low"] > 0) & rows["value"].between(rows["low"], rows["high"])]
    facts = mine.drop_duplicates("release").set_index("release")[DECISIVE]
    newest = facts.iloc[-1]
    alike = (facts.eq("") | newest.eq("") | facts.eq(newest)).all(axis=1)
    if len(rows) and not alike.all():
        left_out = (~alike).sum()
        notes.append(f"Instructions of {left_out} releases were counted on another processor, C library or Python")
    files = mine.loc[mine["release"].map(alike), ["file", "release"]].drop_duplicates("file")
    rows = files.merge(rows.astype({"file": object, "cell": object, "version": object}), on="file")
    names = _of_series(rows, results)
    rows = rows[rows["version"] == rows["cell"].map(names["version"])]
    names["sizes"] = [() if pd.isna(nbytes) else (int(nbytes),) for nbytes in names["nbytes"]]
    names = names.drop(columns=OF_CELL).assign(series=names.index)
    # of several nodes: what they differ by is in the range, and is no release's doing
    of_release = rows.groupby(["cell", "release"], sort=False, as_index=False)
    counts = of_release.agg(value=("value", "median"), low=("low", "min"), high=("high", "max"))
    return counts.merge(names.reset_index(), on="cell")
