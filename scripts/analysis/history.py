"""Histories: how each release of torch or numpy changed the cost of every route, as one table of points and changes.

A series is one route, dtype and size along the releases: its time, or its instruction count. All sizes of a route that
shares memory are one series of times, because its cost does not depend on the size. A point is one release. The error
of a time comes from processes and sessions; that of a count comes from memory layout.

Levels of times are found by exact optimal partitioning (statistics.optimal_partition). A change of level is reported if
its false discovery rate, over all places where a series of its noise class could change, is at most ``FDR``. Changes of
instruction counts are found in the same way, but must exceed the effect of memory layout between processes. The last
sections summarise changes: between two releases, by release, over machines.

The thresholds and the session SDs come from two whole histories of 26 toolchains, measured on the same machine seven
hours apart (``check.py history``, docs/accuracy.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from packaging.version import Version
from scipy import special
from store.files import node_name
from store.schema import UNKNOWN
from toolchains import ledger

from benchmarks.contracts import ALIAS, COPY, INTO, NONE
from benchmarks.probes import MEMORY, PROCESSOR

from . import statistics
from .results import MEASURED, Results, noise_of_cells, parameters_of
from .statistics import MAX_BASELINE_RANGE_LOG, Z90_OVER_Z95, Z95, Floats
from .verdicts import (
    CHANGED,
    DEFAULT,
    INSTRUCTIONS,
    TIME,
    TIME_VERDICTS,
    Settings,
    largest_first,
    layout_sd,
    verdict_of_change,
)

CONTROL = "control"  # noise class of work that a release should not change
MIN_POINT_PROCESSES = 2  # quiet processes per point: two suffice, with a wider interval
# SD of log seconds between sessions of one toolchain, beyond that of processes, by noise class: from STUDIED_PAIRS
SESSION_SD = {ALIAS: 0.007, COPY: 0.005, INTO: 0.004, MEMORY: 0.05, CONTROL: 0.01}
STUDIED_PAIRS = 26
OTHER_SD = 0.006  # of noise classes that families declare themselves
OF_CELL = ["parameters", "family", "through_memory"]  # properties of a cell besides its series
PROBES = {PROCESSOR: "processor baseline", MEMORY: "memory baseline"}  # their columns, in ns
OF_SESSION = [
    "file",
    "run",
    "package",
    "release",
    "torch",
    "numpy",
    "node",
    "middle",
    *PROBES.values(),
]
DECISIVE = ["cpu", "libc", "interpreter"]  # what a count depends on besides the release
OF_RELEASE = ["package", "version", "date", "tag", "torch", "numpy", "started"]
# Evidence on a change: the other figure (count or time) changes the same way, the opposite way, or not at all
AGREES, CONTRADICTS, UNCHANGED = "agrees", "contradicts", "unchanged"
LAYOUT = (
    "layout"  # same instructions and a change below ``Settings.equivalence``: placement of the code
)
CONFIRMED, REFUTED, UNDETERMINED = (
    "same",
    "differs",
    "not known",
)  # whether another machine shows a change
FDR = 0.02  # with 0.05, a tenth of the changes of 16 MiB copies were not reproduced
# Largest q of a reported change. The same data choose its place and test it: in simulated series of 17 and 26 releases,
# 3 to 4 % of reported changes are false with q at FDR, and 0.4 to 1.5 % with half of that
MAX_Q = FDR / 2
PENALTY = 6.0  # per change point, in squared standard errors; the test decides what is reported
ROUTE = ["group", "direction", "route"]  # the columns that identify a route in a history
OF_MACHINE = ["machine", "package", "series", "what"]
SERIES = OF_MACHINE[1:]


@dataclass(frozen=True)
class History:
    """History of one package's releases on one machine. ``fixed_package`` is the other package and its version.

    releases    a named tuple per release, in order: name ("torch 2.6.0"), version, date, tag, torch and numpy (as
                imported, the build variant included), files (results of all sessions) and started (the first session)
    rows        one row per series, release and ``what`` (time or instructions), in order of release:
                package, machine, release, date, before (the release before it in the series); series (an id); cell (of
                its smallest size), benchmark, group, direction, route, dtype, nbytes, sizes (all of them), the other
                parameters, contract, version (of the benchmark), noise (class), control; processes (0: counted); value,
                low, high (of the point: seconds or instructions, with a 95 % interval), level (of its segment);
                and where a level begins: ratio (new level / old) with ratio_low and ratio_high, q, verdict ("" if it is
                not reported), earliest and latest (releases between which it lies, 95 %), evidence (AGREES,
                CONTRADICTS, UNCHANGED, LAYOUT or ""), nodes_with and nodes_without (names, of several nodes)
    replicates  one row per pair of sessions of one toolchain: torch, numpy, hours (between them), series (compared),
                median (ratio), half (of the ratios lie within this factor), flagged (at ``FDR``: false alarms)
    session_sd  noise class -> SD of log seconds between sessions
    nodes       one row per node: node, sessions, releases, ratio (its time over that of the mean node); empty for one
    failures    version -> why its measurement failed
    other_pythons another Python -> number of releases measured with it
    uncounted_releases   number of releases without counts, as they were counted on another processor, C library or Python
    """

    package: str
    machine: str
    python: str
    fixed_package: str
    releases: tuple[Any, ...]
    rows: pd.DataFrame
    replicates: pd.DataFrame
    session_sd: Mapping[str, float]
    nodes: pd.DataFrame
    failures: Mapping[str, str]
    other_pythons: Mapping[str, int]
    uncounted_releases: int
    settings: Settings

    @cached_property
    def changes(self) -> pd.DataFrame:
        """The rows of reported changes, controls left out: the largest first."""
        return largest_first(self.rows[self.rows["verdict"].isin(CHANGED) & ~self.rows["control"]])

    @property
    def false_alarms(self) -> pd.DataFrame:
        """The rows of controls with reported changes: no release should have changed them."""
        return self.rows[self.rows["verdict"].isin(CHANGED) & self.rows["control"]]


def histories_of(results: Results, settings: Settings = DEFAULT) -> dict[str, History]:
    """Return package -> history for the results of one machine. A package needs at least two measured releases, and a
    result with enough quiet processes.

    If releases were measured with several Pythons, only those with the most common one are used.
    """
    every, histories = sessions(results), {}
    measured = every.groupby(["package", "python"], as_index=False)["release"].nunique()
    most = measured.sort_values(["release", "python"]).drop_duplicates("package", keep="last")
    for python, own in every.merge(most[["package", "python"]]).groupby("python"):
        points, pairs, nodes = _points(results, own)
        is_time = points["what"] == TIME
        session_sd, counted = _session_sd(pairs, points[is_time]), not is_time.all()
        replicates = _replicates(pairs, session_sd)
        points["variance"] += points["noise"].map(session_sd).fillna(0.0).astype(float) ** 2
        for package, mine in own.groupby("package"):
            of_package = points[points["package"] == package]
            if mine["release"].nunique() > 1 and len(of_package):
                (held,) = set(ledger.PACKAGES) - {str(package)}
                others = measured[(measured["package"] == package) & (measured["python"] != python)]
                histories[package] = History(
                    package=package,
                    machine=mine["machine"].iloc[0],
                    python=python,
                    fixed_package=f"{held} {' and '.join(mine[held].str.partition('+')[0].unique())}",
                    releases=_releases(mine),
                    rows=_rows(of_package, mine, settings),
                    replicates=replicates,
                    session_sd=session_sd,
                    nodes=nodes[nodes["package"] == package],
                    failures=_failed(results, package),
                    other_pythons=dict(zip(others["python"], others["release"])),
                    uncounted_releases=mine.loc[~mine["alike"], "release"].nunique()
                    if counted
                    else 0,
                    settings=settings,
                )
    return {package: histories[package] for package in ledger.PACKAGES if package in histories}


# --- measurements ----------------------------------------------------------------------------------------------------


def sessions(results: Results) -> pd.DataFrame:
    """One row per session of a release, in order of release: OF_SESSION (run: when it began; middle: s since the epoch;
    baselines of the speed probes: ns), date, tag, python, machine, DECISIVE and alike (whether these equal those of the
    newest release)."""
    rows = []
    names = ["file", "machine", "commit", "torch", "numpy", "python"]
    measured = results.cells.loc[results.cells["status"] == MEASURED, names].drop_duplicates("file")
    for of_file in measured.astype(object).to_dict("records"):
        toolchain = ledger.toolchains_by_commit().get(of_file["commit"])
        if not toolchain:
            continue
        for record in results.sessions_of(of_file["file"]) or [UNKNOWN]:
            started = pd.to_datetime(record.started, errors="coerce", utc=True)
            rows.append(
                of_file
                | {
                    "package": toolchain.history,
                    "release": toolchain.version,
                    "date": toolchain.date,
                }
                | {"tag": toolchain.tag, "node": node_name(of_file["file"]), "run": record.started}
                | {
                    "torch": of_file["torch"] or toolchain.torch,
                    "numpy": of_file["numpy"] or toolchain.numpy,
                }
                | {
                    "middle": math.nan
                    if pd.isna(started)
                    else started.timestamp() + record.seconds / 2
                }
                | dict(
                    zip(
                        DECISIVE,
                        (record.conditions.cpu, record.conditions.libc, record.settings.python),
                    )
                )
                | {
                    column: record.baselines.get(probe, math.nan)
                    for probe, column in PROBES.items()
                }
            )
    columns = [*dict.fromkeys([*names, *OF_SESSION]), "date", "tag", *DECISIVE]
    table = pd.DataFrame(
        sorted(rows, key=lambda row: (Version(row["release"]), row["run"])), columns=columns
    )
    facts = table[DECISIVE]
    newest = table.groupby(["package", "python"])[DECISIVE].transform("last")
    return table.assign(alike=(facts.eq("") | newest.eq("") | facts.eq(newest)).all(axis=1))


def _releases(mine: pd.DataFrame) -> tuple[Any, ...]:
    """``History.releases``, of the sessions of one package."""
    table = mine.rename(columns={"release": "version", "run": "started"}).groupby(
        "version", sort=False, as_index=False
    )
    files = table["file"].agg(lambda names: tuple(dict.fromkeys(names)))["file"]
    table = table.first()[OF_RELEASE].assign(
        files=files, name=lambda own: own["package"] + " " + own["version"]
    )
    return tuple(table.itertuples(index=False, name="Release"))


def _failed(results: Results, package: str) -> dict[str, str]:
    measured = set(results.cells.loc[results.cells["status"] == MEASURED, "file"])
    tags = {toolchain.tag: toolchain.version for toolchain in ledger.history(package)}
    return {
        tags[record.toolchain.tag]: record.failed
        for record in results.runs
        if record.failed and record.toolchain.tag in tags and record.file not in measured
    }


def _of_series(table: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return one row per cell of ``table``, indexed by cell, with the version of its newest row and the columns of
    ``History.rows`` that describe a series."""
    names = [
        "cell",
        "benchmark",
        "group",
        "direction",
        *results.parameters,
        "contract",
        "version",
        "family",
    ]
    kept = table.drop_duplicates("cell", keep="last")[list(dict.fromkeys(names))].reset_index(
        drop=True
    )
    kept = kept.astype({name: object for name in kept.select_dtypes("category")})
    kept["parameters"] = parameters_of(kept, results)
    kept["control"] = np.array(
        [results.benchmarks[name].control for name in kept["benchmark"]], dtype=bool
    )
    kept["noise"] = noise_of_cells(kept, results.benchmarks)
    kept["through_memory"] = kept["noise"] == MEMORY
    kept["noise"] = kept["noise"].mask(kept["control"], CONTROL)
    calls = zip(kept["direction"], kept["route"], kept["dtype"], kept["contract"])
    kept[
        "contract"
    ] = [  # instructions are of routes whose contract is declared where they are timed
        contract or results.contracts.get((direction, route), NONE).memory_for(dtype or "")
        for direction, route, dtype, contract in calls
    ]
    kept = kept.set_index("cell")
    kept["series"] = series_of(kept)
    return kept.loc[[cell for cell in results.cell_parameters if cell in kept.index]]


def series_of(cells: pd.DataFrame) -> pd.Series:
    """Return the series of each cell (the index): all sizes of a route that shares memory are one series."""
    apart = [
        f"{benchmark}({', '.join(repr(value) for name, value in parameters.items() if name != 'nbytes')})"
        for benchmark, parameters in zip(cells["benchmark"], cells["parameters"])
    ]
    return pd.Series(np.where(cells["noise"] == ALIAS, apart, cells.index), cells.index)


# --- points ----------------------------------------------------------------------------------------------------------


def _points(
    results: Results, every: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """One row per series and session: the names of the series, what, the session, y (log seconds or instructions),
    variance (of its processes), spread (SD by memory layout) and processes. Also return the pairs of sessions and
    ``History.nodes``.

    every: see ``sessions``. A cell counts in the version of the benchmark that was measured last.
    """
    runs = every.drop_duplicates(["file", "run"])
    times = results.processes
    times = times[
        times["file"].isin(runs["file"]) & times["quiet"].astype(bool) & (times["seconds"] > 0)
    ]
    times, of_times = _named(times, results)
    taken = times[["cell", "seconds", "baseline", "file", "run", "round"]].merge(
        runs[OF_SESSION], on=["file", "run"]
    )
    taken = taken.join(of_times[["series", "noise", "control", "through_memory"]], on="cell")
    taken["y"] = np.log(taken["seconds"]) - _correction(taken, runs)
    # The processes of a round share where libraries lie in memory, which moves a call by some percent
    # (docs/accuracy.md). So sizes of a route that shares memory are pooled within a round, after removing the offset of
    # each size: four rounds of four sizes are four independent values, not sixteen
    taken["y"] -= _offsets(taken, ["cell"], ["series", "file", "run", "round"], "median", "series")
    same = [
        "series",
        "noise",
        "control",
        *(name for name in OF_SESSION if name not in PROBES.values()),
    ]
    of_rounds = taken.groupby([*same, "round"], sort=False, dropna=False, as_index=False)[
        "y"
    ].median()
    points = of_rounds.groupby(same, sort=False, dropna=False, as_index=False).agg(
        y=("y", "median"), processes=("y", "size"), within=("y", "var")
    )
    points = points[points["processes"] >= MIN_POINT_PROCESSES]
    points["variance"] = _moderated(points)
    nodes = _take_out_nodes(points)

    repeated = [
        name for name, each in results.benchmarks.items() if each.repeated
    ]  # whose counts are medians
    counts = results.values[results.values["benchmark"].isin(repeated)]
    counts = counts[counts["low"] > 0]
    last = every.loc[every["alike"], OF_SESSION].drop_duplicates("file", keep="last")
    counts, of_counts = _named(
        last.merge(counts.drop(columns=["torch", "numpy"]), on="file"), results
    )
    of_release = counts.groupby(
        ["package", "cell", "release"]
    )  # no release causes differences between nodes
    counts = counts.assign(
        low=of_release["low"].transform("min"), high=of_release["high"].transform("max")
    )
    counts = counts.assign(
        y=np.log(counts["value"].astype(float)), spread=layout_sd(counts), processes=0
    )
    counts = counts.join(of_counts[["series", "noise", "control"]], on="cell").assign(
        variance=counts["spread"] ** 2
    )

    names = pd.concat([of_times.assign(what=TIME), of_counts.assign(what=INSTRUCTIONS)])
    sizes = names.groupby("series")["nbytes"].agg(
        lambda values: tuple(int(size) for size in values.dropna())
    )
    series = (
        names.reset_index().drop_duplicates("series").drop(columns=["noise", "control", *OF_CELL])
    )
    both = pd.concat(
        [
            points.assign(spread=0.0),
            counts[[*points.columns.intersection(counts.columns), "spread"]],
        ]
    )
    both = both.astype({"y": float, "variance": float, "processes": int})
    pairs = _pairs(points)
    return series.assign(sizes=series["series"].map(sizes)).merge(both, on="series"), pairs, nodes


def _named(rows: pd.DataFrame, results: Results) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of the newest version of their benchmark, and the table of their cells (see _of_series)."""
    rows = rows.sort_values("run", kind="stable").astype(
        dict.fromkeys(["cell", "file", "version"], object)
    )
    names = _of_series(rows, results)
    return rows[rows["version"] == rows["cell"].map(names["version"])], names


def _correction(processes: pd.DataFrame, runs: pd.DataFrame) -> Floats:
    """Return the log by which each process ran slower than at the machine's usual baseline; copies through memory use
    the memory probe. 0 if interpreters differ (probes are their own work) or baselines are not plausible."""

    def slower(own: str, probe: str, plausible: float) -> Floats:
        baselines, usual = (
            np.log(each.to_numpy(dtype=float)) for each in (processes[own], runs[PROBES[probe]])
        )
        return statistics.speed_correction_log(baselines, usual, plausible)

    if runs.loc[runs["interpreter"] != "", "interpreter"].nunique() > 1:
        return np.zeros(len(processes))
    through = slower(PROBES[MEMORY], MEMORY, math.log(2))
    return np.where(
        processes["through_memory"], through, slower("baseline", PROCESSOR, MAX_BASELINE_RANGE_LOG)
    )


def _moderated(points: pd.DataFrame) -> Floats:
    """Return the variance of each point by its processes, moderated towards that of the series' other sessions (Smyth
    2004, over the sessions of a noise class; each series by its own scale)."""
    usual = points.groupby("series")["within"].transform("mean").clip(lower=1e-8)
    ratio, df = (
        (points["within"] / usual).to_numpy(),
        (points["processes"] - 1).to_numpy(dtype=float),
    )
    variance = np.full(len(points), np.nan)
    for _, members in points.groupby("noise").indices.items():
        prior = statistics.fit_prior(ratio[members], df[members])
        posterior, _ = statistics.squeeze(ratio[members], df[members], prior)
        variance[members] = (
            posterior * usual.to_numpy()[members] / points["processes"].to_numpy()[members]
        )
    floor: Floats = np.maximum(variance, statistics.MIN_VARIANCE)
    return floor


def _take_out_nodes(points: pd.DataFrame) -> pd.DataFrame:
    """Subtract from ``y``, in place, each node's offset over all series of a noise class. Return one row per node;
    empty with one node."""
    if points["node"].nunique() < 2:
        return pd.DataFrame(columns=["package", "node", "sessions", "releases", "ratio"])
    added = _offsets(points, ["noise", "node"], ["series", "torch", "numpy"], "mean", "noise")
    points["y"] -= added
    own = points[~points["control"]].assign(added=added)
    table = own.groupby(["package", "node"]).agg(
        sessions=("run", "nunique"), releases=("release", "nunique"), ratio=("added", "median")
    )
    table["ratio"] = np.exp(table["ratio"])
    return table.reset_index().sort_values(
        "node", key=lambda names: names.map(lambda name: (len(name), name))
    )


def _averaged(points: pd.DataFrame, *by: str) -> pd.DataFrame:
    """Return one row per group: y averaged with weights 1 / ``variance``, its own variance, the sum of processes, and
    the other columns of the first row."""
    weight = 1 / points["variance"]
    table = points.assign(y=weight * points["y"], variance=weight)
    how = {
        name: "sum" if name in ("y", "variance", "processes") else "first"
        for name in table
        if name not in by
    }
    sums = table.groupby(list(by), sort=False, as_index=False).agg(how)
    return sums.assign(y=sums["y"] / sums["variance"], variance=1 / sums["variance"])


def _offsets(
    table: pd.DataFrame, own: list[str], level: list[str], how: str, within: str
) -> "pd.Series[float]":
    """Return the offset in ``y`` of each group by ``own``: the median difference from the level, which is the ``how``
    of the group by ``level``. Offsets have a mean of 0 per ``within``. Offsets and levels are found in turns."""
    offset = pd.Series(0.0, index=table.index)
    for _ in range(10):
        base = (table["y"] - offset).groupby([table[name] for name in level]).transform(how)
        offset = (table["y"] - base).groupby([table[name] for name in own]).transform("median")
        offset -= offset.groupby(table[within]).transform("mean")
    return offset


# --- times: differences between sessions -----------------------------------------------------------------------------


def _pairs(pooled: pd.DataFrame) -> pd.DataFrame:
    """One row per series and two consecutive sessions of one toolchain: effect (later - sooner, log), variance (of both
    by their processes), noise, hours."""
    same = ["series", "torch", "numpy"]
    table = pooled.dropna(subset="middle").sort_values("middle", kind="stable")
    before = table.groupby(same)[["y", "variance", "middle"]].shift()
    return table.assign(
        effect=table["y"] - before["y"],
        variance=table["variance"] + before["variance"],
        hours=(table["middle"] - before["middle"]) / 3600,
    ).dropna(subset="effect")


def _session_sd(pairs: pd.DataFrame, pooled: pd.DataFrame) -> dict[str, float]:
    """Return noise class -> SD of log seconds between sessions, from the pairs on this machine and from SESSION_SD,
    which counts as its STUDIED_PAIRS. Cells of one pair move together, so a few pairs alone say little."""
    learnt = {}
    for noise in pooled["noise"].unique():
        own, usual = pairs[pairs["noise"] == noise], SESSION_SD.get(noise, OTHER_SD) ** 2
        seen = (own["effect"] ** 2 - own["variance"]).groupby(
            [own["torch"], own["numpy"], own["hours"]]
        ).mean() / 2
        learnt[str(noise)] = math.sqrt(
            (STUDIED_PAIRS * usual + seen.clip(lower=0).sum()) / (STUDIED_PAIRS + len(seen))
        )
    return learnt


def _replicates(pairs: pd.DataFrame, session_sd: Mapping[str, float]) -> pd.DataFrame:
    """``History.replicates``: the test of changes on toolchains against themselves."""
    pairs = pairs[~pairs["control"]]
    error = np.sqrt(pairs["variance"] + 2 * pairs["noise"].map(session_sd).astype(float) ** 2)
    pairs = pairs.assign(p=2 * special.ndtr(-np.abs(pairs["effect"] / error).to_numpy(dtype=float)))
    pair = ["torch", "numpy", "run"]
    q = pairs.groupby([*pair, "noise"])["p"].transform(lambda p: statistics.q_values(p.to_numpy()))
    table = pairs.assign(flagged=q <= FDR, half=pairs["effect"].abs()).groupby(
        pair, sort=False, as_index=False
    )
    table = table.agg(
        hours=("hours", "first"),
        series=("effect", "size"),
        median=("effect", "median"),
        half=("half", "median"),
        flagged=("flagged", "sum"),
    )
    return table.drop(columns="run").assign(
        median=np.exp(table["median"]), half=np.exp(table["half"])
    )


# --- changes ---------------------------------------------------------------------------------------------------------


def _rows(points: pd.DataFrame, mine: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """``History.rows``: the sessions of a release are averaged, weighted by their precision."""
    dates = mine.drop_duplicates("release").set_index("release")["date"]
    order = {release: place for place, release in enumerate(dates.index)}
    table = _averaged(points, "series", "release")
    table = table.assign(error=table["variance"] ** 0.5, at=table["release"].map(order))
    table = table.assign(machine=mine["machine"].iloc[0], date=table["release"].map(dates))
    table["place"] = pd.factorize(table["series"])[0]
    table = table.sort_values(["place", "at"]).reset_index(drop=True)
    table = table.join(
        pd.concat([find_changes(own, settings) for _, own in table.groupby("noise", sort=False)])
    )
    half = Z95 * table["error"]
    ends = {
        "value": table["y"],
        "low": table["y"] - half,
        "high": table["y"] + half,
        "level": table["level"],
    }
    table = add_evidence(
        table.assign(**{name: np.exp(log) for name, log in ends.items()}), order, settings
    )
    if points["node"].nunique() > 1:
        table = add_nodes(table, points)
    known = ["y", "variance", "within", "error", "spread", "place", "at", *OF_SESSION]
    return table.drop(
        columns=[name for name in known if name in table and name not in ("package", "release")]
    )


# --- one series ------------------------------------------------------------------------------------------------------


def find_changes(own: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Return level (log) and before for the series of one noise class, and where a level begins, ratio, its ends, q,
    verdict, earliest and latest. Each series is in order of release, with y (log), error and spread (see layout_sd; 0
    for times).

    Change points are dropped, the weakest first, and levels are found again without them, until all remaining have a q
    of at most MAX_Q. Those smaller than ``min_effect``, or than the range over processes by layout, are also dropped.
    """
    series = [each for _, each in own.groupby("series", sort=False)]
    known = [(each["y"].to_numpy(), each["error"].to_numpy()) for each in series]
    smallest = [max(math.log1p(settings.min_effect), 2 * each["spread"].iloc[0]) for each in series]
    starts = [statistics.optimal_partition(y, error, PENALTY) for y, error in known]
    least, places = 2.0, len(own) - len(series)
    while True:
        levels = [
            _levels(*each, begins, effect, least)
            for each, begins, effect in zip(known, starts, smallest)
        ]
        level, effect, error, support = map(np.concatenate, zip(*levels))
        p = np.concatenate([2 * special.ndtr(-support), np.ones(places - len(support))])
        q = statistics.q_values(p)[: len(support)]
        if (q <= MAX_Q).all():
            break
        least = support[q <= MAX_Q].min() if (q <= MAX_Q).any() else math.inf
    index = np.concatenate([each.index for each in series])
    changed = [each.index[start] for each, begins in zip(series, starts) for start in begins[1:]]
    ends = {
        "ratio": effect,
        "ratio_low": effect - Z95 * error,
        "ratio_high": effect + Z95 * error,
    }
    found = pd.DataFrame(
        {name: np.exp(log) for name, log in ends.items()} | {"q": q}, index=changed
    )
    found["verdict"] = verdict_of_change(effect, own.loc[changed, "what"] == INSTRUCTIONS)
    ranges = [
        each["release"].iloc[[*statistics.break_range(*values, begins, number)]].to_numpy()
        for each, values, begins in zip(series, known, starts)
        for number in range(1, len(begins))
    ]
    found["earliest"], found["latest"] = np.array(ranges, dtype=object).reshape(-1, 2).T
    table = pd.DataFrame({"level": level}, index=index).join(found)
    return table.assign(
        before=own.groupby("series")["release"].shift(), verdict=table["verdict"].fillna("")
    )


def _levels(
    y: Floats, error: Floats, starts: list[int], smallest: float, least: float
) -> tuple[Floats, ...]:
    """Return the level of each point of a series, and for each change of level effect (log), error and support (the
    effect in standard errors, 0 if below ``smallest``). Changes with less than ``least`` are removed from ``starts``,
    the weakest first."""
    weight = 1.0 / error**2
    while True:
        edges = list(zip(starts, [*starts[1:], len(y)]))
        means = np.array([np.average(y[a:b], weights=weight[a:b], returned=True) for a, b in edges])
        effects = np.diff(means[:, 0])
        errors = np.sqrt(1.0 / means[1:, 1] + 1.0 / means[:-1, 1])
        support = np.where(np.abs(effects) >= smallest, np.abs(effects) / errors, 0.0)
        if not len(support) or support.min() >= least:
            return np.repeat(means[:, 0], [b - a for a, b in edges]), effects, errors, support
        del starts[int(np.argmin(support)) + 1]


# --- evidence --------------------------------------------------------------------------------------------------------


def add_evidence(rows: pd.DataFrame, order: Mapping[str, int], settings: Settings) -> pd.DataFrame:
    """Add ``evidence``: the other figure (count or time) of the same route, at the releases of the change."""
    route, way = (
        rows.groupby([*ROUTE, "dtype"], dropna=False).ngroup(),
        rows["verdict"].replace(TIME_VERDICTS),
    )
    table = rows[
        ["series", "what", "sizes", "release", "before", "y", "error", "at", "earliest", "latest"]
    ]
    table = table.assign(same=route, way=way, row=rows.index)
    pairs = table[way != ""].merge(table, on="same", suffixes=("", "_other"))
    pairs = pairs[pairs["what"] != pairs["what_other"]]
    alike = [
        bool({*sizes} & {*others}) for sizes, others in zip(pairs["sizes"], pairs["sizes_other"])
    ]
    pairs = pairs[np.array(alike, dtype=bool)]
    where = (pairs[end].map(order) for end in ("earliest", "latest"))
    found = pairs[pairs["way_other"].ne("") & pairs["at_other"].between(*where)]
    agrees = (found["way"] == found["way_other"]).groupby(found["row"]).any()
    # for a change of time without one of instructions: the counts of each size at this release and the one before
    counts = pairs[(pairs["what"] == TIME) & ~pairs["row"].isin(agrees.index)]
    old, new = (counts[counts["release_other"] == counts[end]] for end in ("before", "release"))
    both = old.merge(new, on=["row", "series_other"], suffixes=("_old", "_new"))
    effect = np.abs(both["y_other_new"] - both["y_other_old"])
    most = effect + Z95 * Z90_OVER_Z95 * np.hypot(both["error_other_new"], both["error_other_old"])
    alike = (most < math.log1p(settings.equivalence)).groupby(both["row"]).all()
    same = alike.index[alike]
    evidence = pd.Series("", index=rows.index)
    evidence[agrees.index] = np.where(agrees, AGREES, CONTRADICTS)
    small = np.abs(np.log(rows.loc[same, "ratio"].astype(float))) < math.log1p(settings.equivalence)
    evidence[same] = np.where(small, LAYOUT, UNCHANGED)
    return rows.assign(evidence=evidence)


def add_nodes(rows: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Add the nodes that show each change of time and those that do not (see ``_said``), in order of release."""
    times = rows[rows["what"] == TIME]
    level = (times["verdict"] != "").groupby(times["series"]).cumsum()
    of_level = points.merge(
        times[["series", "release"]].assign(level=level), on=["series", "release"]
    )
    of_node = ["series", "level", "node"]
    means = _averaged(of_level[[*of_node, "y", "variance"]], *of_node).sort_values("node")
    both = means.merge(means.assign(level=means["level"] + 1), on=of_node, suffixes=("", "_old"))
    changed = (
        times.loc[times["verdict"] != "", ["series", "ratio"]].assign(level=level).reset_index()
    )
    both = both.merge(changed, on=["series", "level"])
    seen, error = both["y"] - both["y_old"], Z95 * np.sqrt(both["variance"] + both["variance_old"])
    said = _said(np.log(both["ratio"].astype(float)), seen, seen - error, seen + error)
    for name, which in (("nodes_with", CONFIRMED), ("nodes_without", REFUTED)):
        rows[name] = (
            both[said == which]
            .groupby("index")["node"]
            .agg(", ".join)
            .reindex(rows.index, fill_value="")
        )
    return rows


def _said(effect: "pd.Series[float] | Floats", *seen: "pd.Series[float] | Floats") -> np.ndarray:
    """Return whether a machine, or a node, shows a change: CONFIRMED if it shows at least half of it and its interval
    excludes the opposite sign, REFUTED if the interval excludes half of it. All are logs of ratios; seen: the ratio and
    its interval."""
    share, *ends = (log / effect for log in seen)
    same = (share >= 0.5) & (np.minimum(*ends) > 0)
    return np.select([np.maximum(*ends) < 0.5, same], [REFUTED, CONFIRMED], UNDETERMINED)


# --- two releases ----------------------------------------------------------------------------------------------------


def compare_releases(history: History, base: str, new: str) -> pd.DataFrame:
    """Return the cost of each route at release ``new`` over ``base``. One row per series of both releases: series,
    what, sizes, ratio, low and high (95 %), q, verdict ("" without a reported change).

    With reported changes between the two, the ratio is that of their levels, as on the page of the history; a single
    change keeps its own interval and q. Without, it is the ratio of the two points.
    """
    pairs = history.rows[OF_MACHINE].drop_duplicates().assign(base=base, new=new)
    return pairs.join(_ratios(_placed(history.rows), pairs)).dropna(subset="ratio")


def _placed(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the place of each row's release, and of the one before, in the order of all releases."""
    places = {
        version: place for place, version in enumerate(sorted({*rows["release"]}, key=Version))
    }
    return rows.assign(place=rows["release"].map(places), place_before=rows["before"].map(places))


def _ratios(rows: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return ``compare_releases`` for pairs of releases of a series (NaN if one is missing), with the number of reported
    ``changes`` between them. Indexed as ``pairs`` (OF_MACHINE, base and new)."""
    logs = np.log(rows[["value", "low", "high", "level"]].astype(float))
    points = (
        rows[[*OF_MACHINE, "release", "place", "sizes"]]
        .join(logs)
        .set_index([*OF_MACHINE, "release"])
    )
    named = (pd.MultiIndex.from_frame(pairs[[*OF_MACHINE, end]]) for end in ("base", "new"))
    old, new = (points.reindex(each).set_axis(pairs.index) for each in named)
    places = pd.concat([old["place"], new["place"]], axis=1)
    found = (
        pairs[OF_MACHINE]
        .assign(first=places.min(axis=1), last=places.max(axis=1))
        .reset_index(names="pair")
    )
    found = found.merge(rows[rows["verdict"] != ""], on=OF_MACHINE)
    found = found[found["place"].gt(found["first"]) & found["place"].le(found["last"])]
    low, high = (np.log(found[name].astype(float)) for name in ("ratio_low", "ratio_high"))
    found = found.assign(low=low, high=high, square=(high - low) ** 2 / 4, changes=1).groupby(
        "pair"
    )
    found = found.agg({"changes": "sum", "q": "max", "square": "sum", "low": "sum", "high": "sum"})
    found = found.reindex(pairs.index)
    changed, single = found["changes"].notna(), found["changes"] == 1
    effect = (new["value"] - old["value"]).mask(changed, new["level"] - old["level"])
    half = np.hypot(old["high"] - old["low"], new["high"] - new["low"]) / 2
    half = half.mask(changed, np.sqrt(found["square"]))
    forth = single & (old["place"] < new["place"])
    low = (effect - half).mask(single, -found["high"]).mask(forth, found["low"])
    high = (effect + half).mask(single, -found["low"]).mask(forth, found["high"])
    verdict = np.where(
        changed & ((low > 0) | (high < 0)),
        verdict_of_change(low, pairs["what"] == INSTRUCTIONS),
        "",
    )
    ratios = {"ratio": np.exp(effect), "low": np.exp(low), "high": np.exp(high)}
    return found[["changes", "q"]].assign(sizes=old["sizes"], **ratios, verdict=verdict)


# --- by release, over machines ---------------------------------------------------------------------------------------


def largest_by_route(found: pd.DataFrame, *apart: str) -> pd.DataFrame:
    """Return the largest change of each route at each release, from ``History.changes`` (largest first): one row per
    ``what``, and per value of the columns ``apart``."""
    return found.groupby(
        ["package", "release", "what", *apart, *ROUTE], sort=False, dropna=False
    ).head(1)


def headlines(history: History) -> pd.DataFrame:
    """Return one row per release except the oldest, newest first, indexed by release: the number of routes with each
    verdict, and the median ratio (slower_ratio, faster_ratio). A route counts once for time and once for instructions,
    by its largest change; changes with the evidence LAYOUT are left out."""
    routes = largest_by_route(history.changes[history.changes["evidence"] != LAYOUT])
    table = pd.DataFrame(index=[release.version for release in history.releases[:0:-1]])
    for verdict in CHANGED:
        own = routes[routes["verdict"] == verdict].groupby("release")["ratio"]
        table[verdict] = own.size().reindex(table.index, fill_value=0)
        table[f"{verdict}_ratio"] = own.median().astype(float)
    return table


def changes_over_machines(histories: Mapping[str, Sequence[History]]) -> pd.DataFrame:
    """Return one row per change and machine, for reported changes of series that other machines measured around that
    release: the columns of ``History.changes`` with machine, verdict, ratio and its ends of that machine, change (a
    number, the largest change 0), since and until (the releases of that machine that its ratio compares) and said: CONFIRMED
    (at least half of the change, and no change is excluded), REFUTED (half of it is excluded) or UNDETERMINED.

    A change reported by several machines is one change, of the machine with the most releases. If a machine lacks the
    releases, both machines are compared over its nearest releases around them. The result is UNDETERMINED if the first
    machine has another change between these releases, or has not measured them.
    """
    every = sorted(
        (history for each in histories.values() for history in each),
        key=lambda one: -len(one.releases),
    )
    if not every:
        return pd.DataFrame()
    rows = _placed(pd.concat([history.rows for history in every], ignore_index=True))
    found = pd.concat([history.changes for history in every])
    found = found.merge(rows[[*OF_MACHINE, "release", "place", "place_before"]]).reset_index(
        names="change"
    )
    found["larger"] = found["ratio"] > 1
    kept = found[:0]
    for _, mine in found.groupby(["package", "machine"], sort=False):
        pairs = mine.merge(kept, on=[*SERIES, "larger"], suffixes=("", "_kept"))
        again = (pairs["place_before"] < pairs["place_kept"]) & (
            pairs["place_before_kept"] < pairs["place"]
        )
        kept = pd.concat([kept, mine[~mine["change"].isin(pairs.loc[again, "change"])]])

    # the nearest releases around each change, on each machine that has any
    points = rows[[*OF_MACHINE, "release", "place"]].sort_values("place", kind="stable")
    pairs = kept[["change", *OF_MACHINE, "place", "place_before"]].merge(
        points, on=SERIES, suffixes=("_first", "")
    )
    pairs = pairs[pairs["machine_first"] != pairs["machine"]]
    same = ["change", "machine_first", *OF_MACHINE]
    old = pairs[pairs["place"] <= pairs["place_before"]].drop_duplicates(same, keep="last")
    new = pairs[pairs["place"] >= pairs["place_first"]].drop_duplicates(same, keep="first")
    around = old.merge(new, on=same, suffixes=("", "_new")).rename(
        columns={"release": "base", "release_new": "new"}
    )
    around = around[[*same, "base", "new"]]
    there, here = (
        around.join(_ratios(rows, around)),
        _ratios(rows, around.assign(machine=around["machine_first"])),
    )
    said = _said(np.log(here["ratio"]), *np.log(there[["ratio", "low", "high"]]).to_numpy().T)
    there = there.rename(
        columns={"low": "ratio_low", "high": "ratio_high", "base": "since", "new": "until"}
    )
    there["said"] = np.where(here["changes"] == 1, said, UNDETERMINED)

    first = largest_first(kept[kept["change"].isin(there["change"])])
    first = first.assign(
        since=first["before"], until=first["release"], said=CONFIRMED, rank=-math.inf
    )
    there["rank"] = there["machine"].map(
        {history.machine: -place for place, history in enumerate(every[::-1])}
    )
    taken = ["machine", "ratio", "ratio_low", "ratio_high", "since", "until", "said", "rank"]
    table = pd.concat(
        [first, first.drop(columns=taken).merge(there[["change", *taken]], on="change")]
    )
    table["change"] = pd.Index(first["change"]).get_indexer(table["change"])
    table = table.sort_values(["change", "rank"], kind="stable", ignore_index=True)
    table["verdict"] = verdict_of_change(
        np.log(table["ratio"].astype(float)), table["what"] == INSTRUCTIONS
    )
    return table[[*every[0].rows.columns, "said", "since", "until", "change"]]
