"""The loader: measurements and run records as one frame of cells. Everything else is a view of it."""

import ast
import gc
import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cli import UserError, harmless
from store import files, quiet
from store.files import BROKEN, BrokenFile
from store.records import UNKNOWN, Line, Record, Toolchain, name_of, recent, with_samples
from toolchains import ledger

from benchmarks.contracts import Route
from benchmarks.probes import PROCESSOR

from .declared import Benchmarks, Declared, contract_of, declared_in

ASV_RESULT_VERSION = 2
# Parameters that every table has a column for, empty where a benchmark has it not; for others, where one has it
PARAMETERS = ("route", "dtype", "nbytes", "layout", "threads", "memory", "statement")
# The other columns: of a file, of a cell, of a process, and of a cell's figure
OF_FILE = ("machine", "file", "commit", "toolchain", "torch", "numpy", "python")
OF_CELL = ("benchmark", "family", "group", "method", "cell")
NAMES = (*OF_FILE, *OF_CELL)
OF_PROCESS = ("process", "seconds", "median", "samples", "number", "quiet", "run", "beside", "baseline")
OF_FIGURE = (
    *("direction", "contract", "status", "seconds", "low", "high", "cv", "processes", "quiet"),
    *("value", "unit", "instructions", "reason"),
)
# What no parameter can be called; a parameter `direction` is the direction
COLUMNS = frozenset((*NAMES, "version", *OF_PROCESS, *OF_FIGURE)) - {"direction"}
MEASURED, FAILED, SKIPPED = "measured", "failed", "skipped"
# What is read of asv's file, with its kind; "a.b" is b in a
FILE = {"commit_hash": str, "python": str, "params": dict, "params.machine": str, "results": dict}
MOST_CELLS = 100_000  # of a benchmark; ours have at most 2592
TOGETHER = 8  # files from which on two processes read them: starting one takes as long as four files


@dataclass(frozen=True)
class Results:
    """Results of one or more runs. Times are in seconds per call.

    cells      one row per machine, toolchain and cell. machine, file (name of the result), commit, toolchain (tag),
               torch, numpy, python; benchmark (module.Class.method), family (module), group (Class), method, cell
               (asv's name with parameters); a column per parameter; version (of the measurement); direction and
               contract (alias, copy, into or "") of its route; status (measured, failed or skipped), reason. Of a timed
               cell seconds (median over its processes), low and high (their range), cv (their coefficient of
               variation), processes (how many), quiet (False: no process was, and seconds is an upper bound),
               instructions (of one call of the same route, dtype and size; NaN where they were not counted). Of a
               counted cell value and unit, and low and high over repeats
    processes  one row per process of a timed cell: the same names, then process (its round: 0, 1, ...), seconds (its
               figure, a quantile of its quiet samples), median, samples (how many it was to take), number (calls per
               sample), quiet, run (when its run began), beside (part -> seconds of what it timed in turns), baseline
               (ns of the speed probes that its figure is corrected to; NaN where it is as it was taken). Of a cell with
               quiet processes the others are left out, of one without all but the fastest sample
    runs       the run records, oldest first
    benchmarks what benchmarks.json holds of every benchmark
    parameters the columns that are parameters
    unknown    (file, benchmark) -> figures of a benchmark that benchmarks.json does not describe (any more)
    """

    cells: pd.DataFrame
    processes: pd.DataFrame
    runs: list[Record]
    benchmarks: Benchmarks
    parameters: Sequence[str] = PARAMETERS
    unknown: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @cached_property
    def timed(self) -> pd.DataFrame:
        """The cells that have a time."""
        return self.cells[self.cells["seconds"].notna()]

    @cached_property
    def values(self) -> pd.DataFrame:
        """The cells that were counted (track_*)."""
        return self.cells[self.cells["value"].notna()]

    @cached_property
    def missing(self) -> pd.DataFrame:
        """The cells that failed or were skipped."""
        return self.cells[self.cells["status"] != MEASURED]

    @cached_property
    def contracts(self) -> Mapping[tuple[str, str], Route]:
        """(direction, route) -> what the route promises."""
        each = (contract for benchmark in self.benchmarks.values() for contract in benchmark.contracts.items())
        return {(contract.direction, route): contract for route, contract in each}

    def of_role(self, table: pd.DataFrame, role: str) -> pd.DataFrame:
        """The rows of a table that are of benchmarks with a role."""
        return table[table["benchmark"].isin([n for n, declared in self.benchmarks.items() if declared.role == role])]

    def repeated(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table that are of benchmarks whose counts are medians of repeats."""
        return table[table["benchmark"].isin([n for n, declared in self.benchmarks.items() if declared.repeated])]

    def of_file(self, file: str) -> "Results":
        """What one result holds."""
        return replace(
            self,
            cells=self.cells.take(self._rows_by_file.get(file, [])),
            processes=self.processes_of(file),
            runs=self.runs_of(file),
            unknown={key: figures for key, figures in self.unknown.items() if key[0] == file},
        )

    # who asks file by file looks at all records and at all rows once

    @cached_property
    def _runs_by_file(self) -> Mapping[str, list[Record]]:
        by_file: dict[str, list[Record]] = {}
        for record in self.runs:
            by_file.setdefault(record.file, []).append(record)
        return by_file

    @cached_property
    def _rows_by_file(self) -> Mapping[str, Any]:
        by_file: Mapping[str, Any] = self.cells.groupby("file", sort=False, observed=True).indices
        return by_file

    @cached_property
    def _processes_by_file(self) -> Mapping[str, Any]:
        by_file: Mapping[str, Any] = self.processes.groupby("file", sort=False, observed=True).indices
        return by_file

    def runs_of(self, file: str) -> list[Record]:
        """The run records of a result, oldest first."""
        return self._runs_by_file.get(file, [])

    def processes_of(self, file: str) -> pd.DataFrame:
        """The rows of ``processes`` that are of a result."""
        return self.processes.take(self._processes_by_file.get(file, []))

    @property
    def last(self) -> Record:
        """The record of the last run; UNKNOWN where there is none."""
        return self.runs[-1] if self.runs else UNKNOWN


def load(results: Path, machine: str | None = None, toolchain: str | None = None) -> Results:
    """Load a results directory, or what one machine (and one toolchain, by tag or commit) has in it.

    UserError where the directory, the machine or the toolchain is not there, is empty, or a file is broken.
    """
    return load_files(results, _paths(results, machine), toolchain)


def _paths(results: Path, machine: str | None) -> list[Path]:
    known = files.machines(results)
    if machine is not None and machine not in known:
        raise UserError(f"{results} holds no results of {machine}; it knows {', '.join(known)}")
    chosen = known if machine is None else [machine]
    return [path for name in chosen for path in files.result_files(results, name)]


def newest(runs: Mapping[Path, Sequence[Record]]) -> list[Path]:
    """Of results with their run records those that measured something: first the one that a page is about."""
    paths = {files.file_of(path): path for path in runs}
    dated = sorted(itertools.chain.from_iterable(runs.values()), key=lambda record: record.started)
    return [paths[file] for file in recent(dated)]


def shown(results: Path, machine: str) -> tuple[list[Path], list[str]]:
    """The results that a machine's pages are about, and the toolchains of the others: pages show the releases along a
    history, the run that was made for its own sake most recently, the one before it, and what has no run record."""
    runs = {path: files.read_records(path) for path in _paths(results, machine)}
    two = newest(runs)[:2]
    along = {toolchain.tag for package in ledger.PACKAGES for toolchain in ledger.history(package)}
    others = {
        path: records[-1].toolchain.tag
        for path, records in runs.items()
        if records and path not in two and records[-1].toolchain.tag not in along
    }
    return [path for path in runs if path not in others], list(others.values())


def load_files(results: Path, paths: Sequence[Path], toolchain: str | None = None) -> Results:
    """Load these results of a results directory, or what one toolchain has in them; see ``load``."""
    benchmarks = declared_in(files.read_json(results / files.BENCHMARKS))
    for name, benchmark in benchmarks.items():
        taken = [parameter for parameter in benchmark.param_names if parameter in COLUMNS]
        if taken:
            raise UserError(f"{name} has a parameter called {taken[0]}, as a column of every table is: rename it")
    read = partial(_read, timing=[name for name, benchmark in benchmarks.items() if benchmark.type == "time"])
    if len(paths) < TOGETHER:
        parts = list(map(read, paths))
    else:
        # lines are many small lists and no cycles: looking for those took a tenth of the time
        with ProcessPoolExecutor(2, initializer=gc.disable) as readers:
            parts = list(readers.map(read, paths, chunksize=4))
    runs = sorted(itertools.chain.from_iterable(part.records for part in parts), key=lambda record: record.started)
    chosen = [(path, part) for path, part in zip(paths, parts) if toolchain is None or part.is_of(toolchain)]
    named, places = _named(chosen, benchmarks)
    unknown = Counter(
        (part.file, _benchmark(cell, benchmarks))
        for _, part in chosen
        for cell in part.cells[: part.figures]
        if cell not in places
    )
    if not len(named):
        what = f" of {toolchain}" if toolchain else ""
        raise UserError(f"{results} holds no figures{what}; python scripts/run.py makes some")
    kept = [part for _, part in chosen]
    processes = _joined([part.processes for part in kept], kept, named, places)
    counts = _joined([part.counts for part in kept], kept, named, places)
    missing = _joined([part.missing for part in kept], kept, named, places)
    names = {name for benchmark in benchmarks.values() for name in benchmark.param_names}
    parameters = tuple(name for name in named if name in (*PARAMETERS, *names))
    order = [*OF_FILE, *OF_CELL, *(name for name in parameters if name != "direction"), "version"]
    return Results(
        cells=_cells(processes, counts, missing)[[*order, *OF_FIGURE]],
        processes=processes[[*order, "direction", "contract", *OF_PROCESS]],
        runs=runs,
        benchmarks=benchmarks,
        parameters=parameters,
        unknown=unknown,
    )


@dataclass(frozen=True)
class _Part:
    """What one result holds, read in a process of its own. labels: what all its rows share; cells: asv's names of its
    cells; versions: of each; figures: how many of the first have a figure. The frames have a column ``cell``, the place
    in ``cells``, and those of the process's, the count's or the reason's own."""

    file: str
    labels: Mapping[str, str]
    records: Sequence[Record]
    cells: Sequence[str]
    versions: Sequence[str]
    figures: int
    processes: pd.DataFrame
    counts: pd.DataFrame
    missing: pd.DataFrame

    def is_of(self, toolchain: str) -> bool:
        return self.labels["toolchain"] == toolchain or self.labels["commit"].startswith(toolchain)


def _read(path: Path, timing: Collection[str]) -> _Part:
    """UserError where a file of the result is broken. timing: the benchmarks that time."""
    records, lines = files.read_records(path), files.read_measurements(path)
    asv, cells = files.read_json(path), _Places()
    try:
        processes, counts = _timed(lines, cells), _counted(lines, cells)
    except BROKEN as error:
        raise BrokenFile(files.beside(path, files.MEASUREMENTS), f"is broken ({error})") from None
    try:
        if asv["version"] != ASV_RESULT_VERSION:
            raise UserError(f"{path} is of asv's format {asv['version']}, this reads {ASV_RESULT_VERSION}: asv update")
        check(asv, FILE)
        made = records[-1].toolchain if records else _of_history(asv["commit_hash"])
        labels = {
            "machine": asv["params"]["machine"],
            "file": files.file_of(path),
            "commit": asv["commit_hash"],
            "toolchain": made.tag,
            "torch": made.torch,
            "numpy": made.numpy,
            "python": asv["python"],
        }
        rows = {name: dict(zip(asv["result_columns"], entries)) for name, entries in asv["results"].items()}
        for row in rows.values():
            check(row, {"version": str})
        versions = {name: row["version"] for name, row in rows.items()} | {
            one["benchmark"]: one["version"] for one in lines
        }
        by_hand, silent = _by_hand(rows, cells)
        if by_hand:
            figures: list[tuple[Any, ...]] = [
                (cells[cell], 0, value, value, 1, 1, True, "", {}, math.nan, value) for cell, value in by_hand.items()
            ]
            table = pd.DataFrame(figures, columns=["cell", *OF_PROCESS, "value"])
            timed = np.array([_benchmark(cell, versions) in timing for cell in by_hand])
            processes = _with(processes, table.loc[timed, ["cell", *OF_PROCESS]])
            counts = _with(counts, table.loc[~timed, ["cell", "value"]])
        with_figures = len(cells)
        missing = _without(records, rows, cells, silent)
        of_cell = [versions.get(_benchmark(cell, versions), "") for cell in cells]
    except BROKEN as error:
        raise BrokenFile(path, f"is not a result of this suite ({type(error).__name__}: {error})") from None
    return _Part(files.file_of(path), labels, records, list(cells), of_cell, with_figures, processes, counts, missing)


class _Places(dict[str, int]):
    """Name -> its place in the order in which names were asked for: frames of numbers are quick to sort and to send."""

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, len(self))


def check(fields: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """TypeError where something is not of its kind, KeyError where it is not there."""
    for name, kind in kinds.items():
        outer, _, inner = name.rpartition(".")
        value = fields[outer][inner] if outer else fields[inner]
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}")


def _of_history(commit: str) -> Toolchain:
    """The toolchain of a commit that asv was run for by hand; its hash alone outside the histories."""
    toolchain = ledger.find(commit)
    return Toolchain(toolchain.tag, toolchain.torch, toolchain.numpy) if toolchain else Toolchain(commit[:8])


def _benchmark(cell: str, names: Collection[str]) -> str:
    """The benchmark of a cell, one of these names; what stands before the parameters where it is none of them."""
    ends = [*(found.start() for found in re.finditer(r"\(", cell)), len(cell)]
    return next((cell[:end] for end in ends if cell[:end] in names), cell[: ends[0]])


def _timed(lines: Sequence[Line], places: _Places) -> pd.DataFrame:
    """The processes that figures rest on, a row each.

    A run is judged by its own baselines. Of the processes of a round the first quiet one counts. The rounds of a second
    run of the same cells go on where the first run's end. Of a cell without quiet processes the one with the fastest
    sample is left, and that sample alone: what disturbs a sample makes it longer, so on the undisturbed machine the
    cell takes at most this. Two runs differ less in it than in any quantile.
    """
    frames, ends = [], Counter[int]()
    by_run: dict[str, list[Line]] = {}
    for line in with_samples(lines):
        by_run.setdefault(line["run"], []).append(line)
    for started, of_run in by_run.items():
        run = quiet.Run(of_run)
        cells = [places[name_of(line)] for line in of_run]
        frame = pd.DataFrame(
            {
                "cell": cells,
                "process": [ends[cell] + line["round"] for cell, line in zip(cells, of_run)],
                "seconds": run.figures(),
                "median": run.figures(0.5),
                "samples": [line["wanted"] for line in of_run],
                "number": [line["number"] for line in of_run],
                "quiet": run.quiet,
                "run": started,
                "beside": [_beside(line) for line in of_run],
                "baseline": np.where(np.isnan(run.slowdown), math.nan, run.baselines.get(PROCESSOR, math.nan)),
                "fastest": run.fastest,
            }
        )
        frames.append(frame)
        ends.update(dict.fromkeys(cells, 1 + max(line["round"] for line in of_run)))
    if not frames:
        return pd.DataFrame(columns=["cell", *OF_PROCESS])
    table = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    # the first quiet process of a round, or else the one with its fastest sample
    table["rank"] = np.where(table["quiet"], table.index.astype(float), table["fastest"])
    table = table.sort_values(["quiet", "rank"], ascending=[False, True], kind="stable")
    table = table.drop_duplicates(["cell", "process"])
    cell = table["cell"].to_numpy()
    some = np.bincount(cell, weights=table["quiet"])[cell] > 0
    noisy = table[~some].drop_duplicates("cell")  # fastest first
    noisy = noisy.assign(seconds=noisy["fastest"], median=noisy["fastest"], baseline=math.nan)
    return pd.concat([table[some & table["quiet"]], noisy])[["cell", *OF_PROCESS]].reset_index(drop=True)


def _beside(line: Line) -> dict[str, float]:
    return {name: float(np.quantile(samples, quiet.QUANTILE)) for name, samples in line.get("parts", {}).items()}


def _counted(lines: Sequence[Line], places: _Places) -> pd.DataFrame:
    """A row per counted cell: the median of its counts, and their range where there are several."""
    last = {name_of(line): line["values"] for line in lines if "values" in line}
    several = {cell: values for cell, values in last.items() if len(values) > 1}
    return pd.DataFrame(
        {
            "cell": [places[cell] for cell in last],
            "value": [statistics.median(values) for values in last.values()],
            "low": [min(several.get(cell, [math.nan])) for cell in last],
            "high": [max(several.get(cell, [math.nan])) for cell in last],
        }
    )


def _by_hand(rows: Mapping[str, Any], known: Collection[str]) -> tuple[dict[str, float], list[str]]:
    """The cells that asv's file has a figure of and no run measured, for asv was run by hand -> that figure. Beside
    them the cells that failed there."""
    by_hand: dict[str, float] = {}
    silent: list[str] = []
    for name, row in rows.items():
        params, results = row["params"] or [], row["result"] or []
        count = math.prod(map(len, params))  # before they are spelled: a short file can name billions
        if count > MOST_CELLS or len(results) not in (0, count):
            raise ValueError(f"{name} has {len(results)} results, and {count} cells")
        cells = files.spelled(name, params)
        results = results or [None] * count
        there = {cell: value for cell, value in zip(cells, results) if cell not in known}
        silent += [cell for cell, value in there.items() if value is None]
        for cell, value in there.items():
            if not isinstance(value, (int, float, type(None))) or value in (math.inf, -math.inf):
                raise TypeError(f"{cell} is {value!r}")
        by_hand |= {cell: value for cell, value in there.items() if value is not None and value == value}
    return by_hand, silent


def _with(table: pd.DataFrame, more: pd.DataFrame) -> pd.DataFrame:
    parts = [part for part in (table, more) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else table


def _without(
    records: Sequence[Record], rows: Mapping[str, Any], places: _Places, silent: Collection[str]
) -> pd.DataFrame:
    """The cells that have no figure, by the last record that names them, and those that asv alone saw fail."""
    outcomes = {cell: (FAILED, "") for cell in silent}
    for record in records:
        for status, reasons in ((SKIPPED, record.skipped), (FAILED, record.failures)):
            outcomes |= {cell: (status, reason) for reason, cells in reasons.items() for cell in cells}
    absent = {c: outcome for c, outcome in outcomes.items() if c not in places and _benchmark(c, rows) in rows}
    return pd.DataFrame([(places[c], *o) for c, o in absent.items()], columns=["cell", "status", "reason"])


# --- frames ----------------------------------------------------------------------------------------------------------


def _named(parts: Sequence[tuple[Path, _Part]], benchmarks: Benchmarks) -> tuple[pd.DataFrame, dict[str, int]]:
    """A row per cell of any result, in the order of benchmarks.json, with its parameters and contract; cell -> row."""
    values: dict[str, tuple[Any, ...]] = {}
    of: dict[str, Declared] = {}
    for path, part in parts:
        try:
            for cell in part.cells:
                name = _benchmark(cell, benchmarks) if cell not in values else ""
                if name in benchmarks:
                    of[cell] = benchmarks[name]
                    values[cell] = _parameters(cell, of[cell])
        except BROKEN as error:
            raise BrokenFile(path, f"is not a result of this suite ({type(error).__name__}: {error})") from None
    place = {name: number for number, name in enumerate(benchmarks)}
    spelled = {
        name: [{word: number for number, word in enumerate(words)} for words in declared.params]
        for name, declared in benchmarks.items()
    }

    def order(cell: str) -> tuple[int, ...]:
        name = of[cell].name
        return place[name], *(at.get(repr(value), len(at)) for at, value in zip(spelled[name], values[cell]))

    cells = sorted(values, key=order)
    declared = [of[cell] for cell in cells]
    given = [dict(zip(each.param_names, values[cell])) for each, cell in zip(declared, cells)]
    parameters = dict.fromkeys([*PARAMETERS, *(name for each in benchmarks.values() for name in each.param_names)])
    used = {name for each in given for name in each}
    promised = [contract_of(benchmarks, each.name, named.get("route")) for each, named in zip(declared, given)]
    table = pd.DataFrame(
        {
            "cell": cells,
            "benchmark": [each.name for each in declared],
            "family": [each.family for each in declared],
            "group": [(each.name.split(".") + [""])[1] for each in declared],
            "method": [(each.name.split(".") + ["", ""])[2] for each in declared],
            **{name: [each.get(name) for each in given] for name in parameters if name in used or name in PARAMETERS},
            "direction": [
                promise.direction or each.direction or str(named.get("direction", ""))
                for promise, each, named in zip(promised, declared, given)
            ],
            "contract": [
                promise.memory_for(str(named.get("dtype", "")), str(named.get("layout", "")))
                for promise, named in zip(promised, given)
            ],
            "unit": [each.unit if each.type != "time" else "" for each in declared],
        }
    )
    texts = [name for name in table if all(isinstance(value, str) or value is None for value in table[name])]
    return table.astype({name: "category" for name in texts}), {cell: number for number, cell in enumerate(cells)}


def _parameters(cell: str, benchmark: Declared) -> tuple[Any, ...]:
    """The values of a cell's parameters, from asv's name of it."""
    inner = cell[len(benchmark.name) + 1 : -1]
    values = tuple(harmless(list(ast.literal_eval(f"({inner},)")))) if inner else ()
    if len(values) != len(benchmark.param_names):
        raise ValueError(f"{cell} has {len(values)} parameters, and its benchmark {len(benchmark.param_names)}")
    return values


def _joined(
    frames: Sequence[pd.DataFrame], parts: Sequence[_Part], named: pd.DataFrame, places: Mapping[str, int]
) -> pd.DataFrame:
    """The rows of all results, with what is known of their result and their cell, in the order of both."""
    sizes = [len(frame) for frame in frames]
    table = pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    result = np.repeat(np.arange(len(frames)), sizes)
    # place of each cell of each part, one part after the other
    begins = np.cumsum([0, *(len(part.cells) for part in parts)])
    of_parts = np.array([places.get(cell, -1) for part in parts for cell in part.cells], dtype=np.intp)
    versions = pd.Series(itertools.chain.from_iterable(part.versions for part in parts), dtype="category")
    cell = begins[result] + table.pop("cell").to_numpy(dtype=np.intp)
    table["result"], table["place"] = result, of_parts[cell]
    table["version"] = versions.take(cell).array
    table = table[table["place"] >= 0]
    table = table.sort_values(["result", "place", *(["process"] if "process" in table else [])], ignore_index=True)
    labels = pd.DataFrame([part.labels for part in parts]).astype("category")
    of_file = labels.take(table["result"]).reset_index(drop=True)
    of_cell = named.take(table["place"]).reset_index(drop=True)
    return pd.concat([of_file, of_cell, table], axis=1)


def _cells(processes: pd.DataFrame, counts: pd.DataFrame, missing: pd.DataFrame) -> pd.DataFrame:
    """One row per cell and result of what was timed, counted, or is missing."""
    grouped = processes.groupby(["result", "place"], sort=False)
    figures = grouped["seconds"].agg(seconds="median", low="min", high="max", mean="mean", std="std", processes="size")
    figures["cv"] = figures.pop("std") / figures.pop("mean")
    figures["quiet"] = grouped["quiet"].any()
    first = processes.drop_duplicates(["result", "place"]).drop(columns=list(OF_PROCESS))
    timed = first.join(figures, on=["result", "place"])
    table = pd.concat([timed.assign(status=MEASURED), counts.assign(status=MEASURED), missing], ignore_index=True)
    table = table.sort_values(["result", "place"], ignore_index=True).astype({"version": str})
    same = ["result", "direction", "route", "dtype", "nbytes"]
    instructions = table[table["family"] == "instructions"].drop_duplicates(same).set_index(same)["value"]
    plain = table["family"] == "conversion"
    table.loc[plain, "instructions"] = table[plain].join(instructions.rename("counted"), on=same)["counted"]
    return table


def parameters_of(table: pd.DataFrame, results: Results) -> list[dict[str, Any]]:
    """The parameters of each row of a table of results: name -> value, of those its benchmark has, in its order."""
    names = {name: benchmark.param_names for name, benchmark in results.benchmarks.items()}
    columns = {name: table[name].tolist() for name in results.parameters if name in table}
    whole = [name for name, values in columns.items() if all(_whole(value) for value in values)]
    for name in whole:  # a column with holes holds floats
        columns[name] = [None if value is None or value != value else int(value) for value in columns[name]]
    return [
        {name: columns[name][place] for name in names[benchmark]} for place, benchmark in enumerate(table["benchmark"])
    ]


def _whole(value: Any) -> bool:
    """Whether a value is a whole number, or none at all."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value is None or number and (value != value or value == int(value))
