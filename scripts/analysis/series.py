"""Series of a machine: the figures of one route, dtype and size along the releases of a package.

A series holds times or instruction counts. All sizes of a route that shares memory are one series
of times, because its cost does not depend on the size. A point is one session of a release here;
``changes`` averages the sessions of a release. The error of a time comes from processes and
sessions; that of a count comes from memory layout.

The SDs of sessions come from two whole histories of 26 toolchains, measured on the same machine
seven hours apart (``check.py history``, docs/lab-notes.md).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy
from pandas import DataFrame, Series, concat
from store.files import node_name
from store.frames import MEASURED, rows_of
from store.schema import UNKNOWN, RunRecord
from toolchains import ledger

from benchmarks.contracts import ALIAS, COPY, INTO, NONE
from benchmarks.core.probes import MEMORY, PROCESSOR

from . import statistics
from .results import Results, parameters_of, where
from .statistics import Floats
from .suite import noise_of_cells
from .verdicts import INSTRUCTIONS, TIME, layout_sd

CONTROL = "control"  # noise class of work that a release should not change
MIN_POINT_PROCESSES = 2  # quiet processes per point: two suffice, with a wider interval
# SD of log seconds between sessions of one toolchain, beyond that of processes, by noise class.
# It comes from STUDIED_PAIRS
SESSION_SD = {ALIAS: 0.007, COPY: 0.005, INTO: 0.004, MEMORY: 0.05, CONTROL: 0.01}
STUDIED_PAIRS = 26
OTHER_SESSION_SD = 0.006  # of noise classes that families declare themselves
MAX_MEMORY_BASELINE_LOG = math.log(2)  # range of plausible baselines of the memory probe
FDR = 0.02  # with 0.05, a tenth of the changes of 16 MiB copies were not reproduced
OFFSET_ROUNDS = 10  # turns in which offsets and levels are found

FILE = ["file", "machine", "commit", "torch", "numpy", "python"]
SESSION = ["file", "run", "package", "release", "torch", "numpy", "node", "middle"]
BASELINES = {PROCESSOR: "processor baseline", MEMORY: "memory baseline"}  # columns of probes, in ns
PLATFORM = ["cpu", "libc", "interpreter"]  # what a count depends on besides the release
SESSION_COLUMNS = list(
    dict.fromkeys([*FILE, *SESSION, *BASELINES.values(), "date", "tag", "name", *PLATFORM])
)
NOISE = ["noise", "control"]
CELL_FACTS = [*NOISE, "parameters", "family", "through_memory"]  # of a cell besides its series


@dataclass(frozen=True)
class SessionPoints:
    """The points of all series that one Python measured.

    points      one row per series and session: what describes the series (see ``describe_cells``),
                sizes (bytes, all of them), what (time or instructions), SESSION, y (log of seconds
                or instructions), variance (of y, by processes and sessions), spread (SD by memory
                layout, 0 for times), processes (0: counted), functions (of a count)
    replicates  see ``History.replicates``
    session_sd  noise class -> SD of log seconds between sessions
    nodes       see ``History.nodes``
    """

    points: DataFrame
    replicates: DataFrame
    session_sd: Mapping[str, float]
    nodes: DataFrame


def points_of(results: Results, sessions: DataFrame) -> SessionPoints:
    """Return the points of sessions of one Python, see ``sessions_of``. A cell counts in the
    version of the benchmark that was measured last."""
    times, timed_cells = _time_points(results, sessions)
    node_offsets = _node_offsets(times)
    times["y"] -= node_offsets
    counts, counted_cells = _count_points(results, sessions)
    points = concat([times, counts], join="inner")
    points = points.astype({"y": float, "variance": float, "processes": int})
    cells = concat([timed_cells.assign(what=TIME), counted_cells.assign(what=INSTRUCTIONS)])
    points = _describe_series(cells.reset_index()).merge(points, on="series")

    pairs = _session_pairs(times)
    session_sd = _session_sd(pairs, points.query("what == @TIME")["noise"].unique())
    session_variance = points["noise"].map(session_sd).fillna(0.0).astype(float) ** 2
    return SessionPoints(
        points=points.assign(variance=points["variance"] + session_variance),
        replicates=_replicates(pairs, session_sd),
        session_sd=session_sd,
        nodes=_describe_nodes(times, node_offsets),
    )


# --- sessions -------------------------------------------------------------------------------------


def sessions_of(results: Results) -> DataFrame:
    """Return one row per session of a release, in order of release.

    Columns: SESSION_COLUMNS (run: when it began; middle: s since the epoch; baselines of the speed
    probes: ns) and same_platform (whether PLATFORM is that of the newest release, where known).
    """
    files = where(results.cells, status=MEASURED).drop_duplicates("file")
    rows = []
    for file in files[FILE].astype(object).to_dict("records"):
        toolchain = ledger.toolchains_by_commit().get(file["commit"])
        if toolchain:
            records = results.sessions_of(file["file"]) or [UNKNOWN]
            rows += [file | _describe_session(file, toolchain, record) for record in records]
    rows.sort(key=lambda row: (ledger.order(row["release"]), row["run"]))
    sessions = DataFrame(rows, columns=SESSION_COLUMNS)
    platform = sessions[PLATFORM].copy()
    platform.loc[sessions["python"] == "", "interpreter"] = ""
    newest = platform.groupby([sessions["package"], sessions["python"]]).transform("last")
    is_same = platform.eq("") | newest.eq("") | platform.eq(newest)
    return sessions.assign(same_platform=is_same.all(axis=1))


def _describe_session(
    file: Mapping[str, str], toolchain: ledger.Toolchain, record: RunRecord
) -> dict[str, object]:
    started = pd.to_datetime(record.started, errors="coerce", utc=True)
    return {
        "torch": file["torch"] or toolchain.torch,
        "numpy": file["numpy"] or toolchain.numpy,
        "package": toolchain.history,
        "name": toolchain.name,
        # a history of Python has several
        "python": "" if toolchain.package == ledger.PYTHON else file["python"],
        "release": toolchain.version,
        "date": toolchain.date,
        "tag": toolchain.tag,
        "node": node_name(file["file"]),
        "run": record.started,
        "middle": math.nan if pd.isna(started) else started.timestamp() + record.seconds / 2,
        "cpu": record.conditions.cpu,
        "libc": record.conditions.libc,
        "interpreter": record.settings.python,
        **{name: record.baselines.get(probe, math.nan) for probe, name in BASELINES.items()},
    }


# --- cells and series -----------------------------------------------------------------------------


def describe_cells(rows: DataFrame, results: Results) -> DataFrame:
    """Return one row per cell of ``rows``, indexed by cell, in the order of the benchmarks.

    Columns: series (an id), benchmark, group, direction, the parameters, contract, version (of the
    newest row) and CELL_FACTS. noise is the noise class, CONTROL for controls.
    """
    columns = ["cell", "benchmark", "group", "direction", *results.parameters]
    columns = [*dict.fromkeys([*columns, "contract", "version", "family"])]
    cells = rows.drop_duplicates("cell", keep="last")[columns].reset_index(drop=True)
    cells = cells.astype({name: object for name in cells.select_dtypes("category")})
    controls = {name for name, declared in results.benchmarks.items() if declared.control}
    noise = Series(noise_of_cells(cells, results.benchmarks), cells.index)
    is_control = cells["benchmark"].isin(controls)
    cells = cells.assign(
        parameters=parameters_of(cells, results),
        control=is_control,
        noise=noise.mask(is_control, CONTROL),
        through_memory=noise == MEMORY,
    )
    # the contract of a counted route is declared where the route is timed
    routes = rows_of(cells[["direction", "route", "dtype", "contract"]])
    cells["contract"] = [
        contract or results.contracts.get((direction, route), NONE).memory_for(dtype or "")
        for direction, route, dtype, contract in routes
    ]
    cells = cells.set_index("cell")
    cells["series"] = series_of(cells)
    return cells.loc[[cell for cell in results.cell_parameters if cell in cells.index]]


def series_of(cells: DataFrame) -> Series:
    """Return the series of each cell (the index): all sizes of a route that shares memory are one
    series. cells: benchmark, parameters and noise."""
    names = []
    for benchmark, parameters in zip(cells["benchmark"], cells["parameters"]):
        values = [repr(value) for name, value in parameters.items() if name != "nbytes"]
        names.append(f"{benchmark}({', '.join(values)})")
    return Series(names, cells.index, object).where(cells["noise"] == ALIAS, cells.index)


def _describe_series(cells: DataFrame) -> DataFrame:
    """Return one row per series: what describes its first cell, and ``sizes``."""
    sizes = cells.groupby("series")["nbytes"].agg(lambda nbytes: (*map(int, nbytes.dropna()),))
    series = cells.drop_duplicates("series").drop(columns=CELL_FACTS)
    return series.assign(sizes=series["series"].map(sizes))


def _newest_version(rows: DataFrame, results: Results) -> tuple[DataFrame, DataFrame]:
    """Return the rows of the newest version of their benchmark, and their cells."""
    rows = rows.sort_values("run", kind="stable")
    rows = rows.astype(dict.fromkeys(["cell", "file", "version"], object))
    cells = describe_cells(rows, results)
    return rows[rows["version"] == rows["cell"].map(cells["version"])], cells


# --- points ---------------------------------------------------------------------------------------


def _time_points(results: Results, sessions: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return one row per series and session that have times, and the cells."""
    runs = sessions.drop_duplicates(["file", "run"])
    processes = results.processes[results.processes["file"].isin(runs["file"])]
    processes, cells = _newest_version(processes.query("quiet and seconds > 0"), results)
    processes = processes[["cell", "seconds", "baseline", "file", "run", "round"]]
    processes = processes.merge(runs[[*SESSION, *BASELINES.values()]], on=["file", "run"])
    processes = processes.join(cells[["series", *NOISE, "through_memory"]], on="cell")
    processes["y"] = np.log(processes["seconds"]) - _slowdown_log(processes, runs)
    # The processes of a round share where libraries lie in memory, which moves a call by some
    # percent (docs/lab-notes.md). So sizes of a route that shares memory are pooled within a round,
    # after removing the offset of each size: four rounds of four sizes are four independent
    # values, not sixteen
    of_round = ["series", "file", "run", "round"]
    processes["y"] -= _offsets(processes, ["cell"], of_round, "median", "series")
    of_session = ["series", *NOISE, *SESSION]
    rounds = processes.groupby([*of_session, "round"], sort=False, dropna=False, as_index=False)
    rounds = rounds["y"].median()
    points = rounds.groupby(of_session, sort=False, dropna=False, as_index=False).agg(
        y=("y", "median"), processes=("y", "size"), within=("y", "var")
    )
    points = points.query("processes >= @MIN_POINT_PROCESSES")
    points = points.assign(variance=_process_variance(points), spread=0.0, functions=None)
    return points, cells


def _count_points(results: Results, sessions: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return one row per series and file that have instruction counts, and the cells. Only medians
    over several processes are used, of the newest release's platform."""
    repeated = [name for name, declared in results.benchmarks.items() if declared.repeated]
    counts = where(results.values, benchmark=repeated).query("low > 0")
    last = sessions.query("same_platform").drop_duplicates("file", keep="last")[SESSION]
    counts = last.merge(counts.drop(columns=["torch", "numpy"]), on="file")
    counts, cells = _newest_version(counts, results)
    of_release = counts.groupby(["package", "cell", "release"])  # nodes differ by layout alone
    counts["low"] = of_release["low"].transform("min")
    counts["high"] = of_release["high"].transform("max")
    spread = layout_sd(counts)
    counts = counts.assign(
        y=np.log(counts["value"].astype(float)), spread=spread, variance=spread**2, processes=0
    )
    return counts.join(cells[["series", *NOISE]], on="cell"), cells


def _slowdown_log(processes: DataFrame, runs: DataFrame) -> Floats:
    """Return the log by which each process ran slower than at the machine's usual baseline; copies
    through memory use the memory probe. 0 if interpreters differ (probes are their own work) or
    baselines are not plausible."""
    if runs["interpreter"].replace("", None).nunique() > 1:
        return np.zeros(len(processes))
    memory, processor = BASELINES[MEMORY], BASELINES[PROCESSOR]
    slowdown = statistics.speed_correction_log(_log(processes["baseline"]), _log(runs[processor]))
    of_memory = statistics.speed_correction_log(
        _log(processes[memory]), _log(runs[memory]), MAX_MEMORY_BASELINE_LOG
    )
    return np.where(processes["through_memory"], of_memory, slowdown)


def _log(values: "Series[float]") -> Floats:
    logs: Floats = np.log(values.to_numpy(dtype=float))
    return logs


def _process_variance(points: DataFrame) -> Floats:
    """Return the variance of each point by its processes, moderated towards that of the series'
    other sessions (Smyth 2004, over the sessions of a noise class; each series has its scale)."""
    scale = points.groupby("series")["within"].transform("mean").clip(lower=1e-8).to_numpy()
    ratio = points["within"].to_numpy() / scale
    processes = points["processes"].to_numpy(dtype=float)
    variance = np.full(len(points), np.nan)
    for members in points.groupby("noise").indices.values():
        df = processes[members] - 1
        prior = statistics.fit_prior(ratio[members], df)
        posterior, _ = statistics.squeeze(ratio[members], df, prior)
        variance[members] = posterior * scale[members] / processes[members]
    least: Floats = np.maximum(variance, statistics.MIN_VARIANCE)
    return least


def average_points(points: DataFrame, *keys: str) -> DataFrame:
    """Return one row per group: y averaged with weights 1 / ``variance``, its own variance, the sum
    of processes, and the other columns of the first row."""
    weight = 1 / points["variance"]
    weighted = points.assign(y=weight * points["y"], variance=weight)
    summed = ("y", "variance", "processes")
    rules = {name: "sum" if name in summed else "first" for name in weighted if name not in keys}
    sums = weighted.groupby(list(keys), sort=False, as_index=False).agg(rules)
    return sums.assign(y=sums["y"] / sums["variance"], variance=1 / sums["variance"])


# --- nodes ----------------------------------------------------------------------------------------


def _node_offsets(times: DataFrame) -> "Series[float]":
    """Return each node's offset in ``y`` over all series of a noise class; 0 with one node."""
    if times["node"].nunique() < 2:
        return Series(0.0, index=times.index)
    return _offsets(times, ["noise", "node"], ["series", "torch", "numpy"], "mean", "noise")


def _describe_nodes(times: DataFrame, offsets: "Series[float]") -> DataFrame:
    """Return ``History.nodes`` of all packages; empty with one node."""
    if times["node"].nunique() < 2:
        return DataFrame(columns=["package", "node", "sessions", "releases", "ratio"])
    times = times.assign(offset=offsets)[~times["control"]]
    nodes = times.groupby(["package", "node"], as_index=False).agg(
        sessions=("run", "nunique"), releases=("release", "nunique"), ratio=("offset", "median")
    )
    nodes["ratio"] = np.exp(nodes["ratio"])
    return nodes.sort_values("node", key=lambda names: names.map(lambda name: (len(name), name)))


def _offsets(
    points: DataFrame, group: list[str], level: list[str], statistic: str, centre: str
) -> "Series[float]":
    """Return the offset in ``y`` of each group: the median difference from the level, which is the
    ``statistic`` of the groups by ``level``. Offsets have a mean of 0 per ``centre``. Offsets and
    levels are found in turns."""
    groups = [points[name] for name in group]
    levels = [points[name] for name in level]
    offset = Series(0.0, index=points.index)
    for _ in range(OFFSET_ROUNDS):
        base = (points["y"] - offset).groupby(levels).transform(statistic)
        offset = (points["y"] - base).groupby(groups).transform("median")
        offset -= offset.groupby(points[centre]).transform("mean")
    return offset


# --- differences between sessions -----------------------------------------------------------------


def _session_pairs(times: DataFrame) -> DataFrame:
    """Return one row per series and two consecutive sessions of one toolchain: effect (later -
    sooner, log), variance (of both by their processes), noise, hours."""
    times = times.dropna(subset="middle").sort_values("middle", kind="stable")
    prior = times.groupby(["series", "torch", "numpy"])[["y", "variance", "middle"]].shift()
    return times.assign(
        effect=times["y"] - prior["y"],
        variance=times["variance"] + prior["variance"],
        hours=(times["middle"] - prior["middle"]) / 3600,
    ).dropna(subset="effect")


def _session_sd(pairs: DataFrame, noise_classes: Iterable[str]) -> dict[str, float]:
    """Return noise class -> SD of log seconds between sessions, from the pairs on this machine and
    from SESSION_SD, which counts as its STUDIED_PAIRS. Cells of one pair move together, so a few
    pairs alone say little."""
    pairs = pairs.assign(excess=pairs["effect"] ** 2 - pairs["variance"])
    session_sd = {}
    for noise in noise_classes:
        of_class = where(pairs, noise=noise)
        variances = of_class.groupby(["torch", "numpy", "hours"])["excess"].mean() / 2
        total = STUDIED_PAIRS * SESSION_SD.get(noise, OTHER_SESSION_SD) ** 2
        total += variances.clip(lower=0).sum()
        session_sd[str(noise)] = math.sqrt(total / (STUDIED_PAIRS + len(variances)))
    return session_sd


def _replicates(pairs: DataFrame, session_sd: Mapping[str, float]) -> DataFrame:
    """Return ``History.replicates``: the test of changes on toolchains against themselves."""
    pairs = pairs.query("not control")
    session_variance = pairs["noise"].map(session_sd).astype(float) ** 2
    support = pairs["effect"] / np.sqrt(pairs["variance"] + 2 * session_variance)
    pairs = pairs.assign(p=2 * scipy.special.ndtr(-np.abs(support).to_numpy(dtype=float)))
    pair = ["torch", "numpy", "run"]
    p = pairs.groupby([*pair, "noise"])["p"]
    q = p.transform(lambda values: statistics.q_values(values.to_numpy()))
    pairs = pairs.assign(flagged=q <= FDR, half=pairs["effect"].abs())
    replicates = pairs.groupby(pair, sort=False, as_index=False).agg(
        hours=("hours", "first"),
        series=("effect", "size"),
        median=("effect", "median"),
        half=("half", "median"),
        flagged=("flagged", "sum"),
    )
    replicates[["median", "half"]] = np.exp(replicates[["median", "half"]])
    return replicates.drop(columns="run")
