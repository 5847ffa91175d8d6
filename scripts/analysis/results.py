"""The loader: measurements and run records as one frame of cells. Everything else is a view of it."""

import ast
import gc
import itertools
import math
import statistics
import sys
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
from store.records import UNKNOWN, Line, Record, Toolchain, made_of, name_of, recent
from toolchains import ledger

from benchmarks.contracts import COPY, INTO, NONE, Family, Role, Route
from benchmarks.probes import MEMORY, PROCESSOR
from benchmarks.timing import LARGE

ASV_RESULT_VERSION = 2
# Parameters that every table has a column for, empty where a benchmark has it not; for others, where one has it
PARAMETERS = ("route", "dtype", "nbytes", "layout", "threads", "memory", "statement")
# The other columns: of a file, of a cell, of a process, and of a cell's figure
OF_FILE = ("machine", "file", "commit", "toolchain", "torch", "numpy", "python")
OF_CELL = ("benchmark", "family", "group", "method", "cell")
NAMES = (*OF_FILE, *OF_CELL)
OF_PROCESS = ("process", "round", "seconds", "samples", "quiet", "run", "beside", "baseline")
OF_FIGURE = (
    *("direction", "contract", "status", "seconds", "low", "high", "cv", "processes", "quiet"),
    *("value", "unit", "instructions", "reason"),
)
# What no parameter can be called; a parameter `direction` is the direction
COLUMNS = frozenset((*NAMES, "version", *OF_PROCESS, *OF_FIGURE)) - {"direction"}
MEASURED, FAILED, SKIPPED = "measured", "failed", "skipped"
MOST_CELLS = 100_000  # of a benchmark; ours have at most 2592
TYPES = {"result": int, "place": int, "seconds": float, "value": float, "low": float, "high": float}  # of tables
# A line of measurements of a figure that nobody knows more of
BY_HAND = {"run": "", "round": 0, "wanted": 1, "waits": [], "probes": {}, "disturbed": []}
TOGETHER = 8  # files from which on two processes read them: starting one takes as long as four files


# --- what benchmarks.json says ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Declared(Family):
    """A benchmark. name, type, unit, param_names, params, version, sample_time [s]: asv's, values in its spelling.

    contracts  route -> what it promises
    question   the first paragraph of its file's docstring
    """

    name: str
    type: str
    unit: str
    param_names: tuple[str, ...]
    params: tuple[tuple[str, ...], ...]
    version: str = ""
    sample_time: float = 0.0
    contracts: Mapping[str, Route] = field(default_factory=dict)
    question: str = ""

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]

    @property
    def group(self) -> str:
        """Its module and class."""
        return self.name.rpartition(".")[0]

    def listed(self, parameter: str) -> Sequence[str]:
        """The values of a parameter, in asv's spelling; none where it has no such parameter."""
        return dict(zip(self.param_names, self.params)).get(parameter, ())

    def nth(self, parameter: str, value: object) -> int:
        """Place of a value among those of a parameter; the end for another's."""
        spellings = self.listed(parameter)
        return spellings.index(repr(value)) if repr(value) in spellings else len(spellings)


Benchmarks = Mapping[str, Declared]  # name -> what it says


def declared_in(benchmarks: Any) -> dict[str, Declared]:
    """The benchmarks of a benchmarks.json; UserError where it holds something else."""
    if not isinstance(benchmarks, dict):
        raise UserError("benchmarks.json is not asv's: remove it or restore it from git")
    return {name: _declared(name, each) for name, each in benchmarks.items() if isinstance(each, dict)}


def _declared(name: str, description: Mapping[str, Any]) -> Declared:
    try:
        declared = made_of(Declared, description)
        if declared.name != name:
            raise ValueError(f"its name is {declared.name}")
        if len(declared.params) != len(declared.param_names):
            raise ValueError(f"{len(declared.param_names)} names of {len(declared.params)} parameters")
    except (TypeError, ValueError) as error:
        raise UserError(
            f"benchmarks.json says of {name} what this cannot read ({error}): remove it or restore it from git"
        ) from None
    return declared


def noise_of_cells(cells: pd.DataFrame, benchmarks: Benchmarks) -> list[str]:
    """The class of each row's noise: as the family declares; else memory where many bytes move through it, else alias,
    copy or into, else the benchmark's family. ``cells`` has the columns benchmark, contract, nbytes and family.

    On a virtual machine of Zen 4, 26 toolchains measured twice and 7 hours apart, 90 % of figures differ by at most
    21 % where 16 MiB are copied, by 2.1 % where less is, by 2.3 % where memory is shared (scripts/check.py history).
    """
    names = []
    for name, memory, nbytes, family in cells[["benchmark", "contract", "nbytes", "family"]].itertuples(index=False):
        moves = memory in (COPY, INTO) or benchmarks[name].role == Role.MEMCPY
        through_memory = moves and nbytes >= LARGE  # of no size: false
        names.append(benchmarks[name].noise or (MEMORY if through_memory else memory) or family)
    return names


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)  # of tables == says nothing
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
    processes  one row per process of a timed cell: the same names, then process (0, 1, ...: its round, those of later
               runs numbered on), round (of its run), seconds (its figure, a quantile of its quiet samples), samples
               (how many it was to take), quiet, run (when its run began), beside (part -> seconds of what it timed in
               turns), baseline (ns of the speed probes that its figure is corrected to; NaN where it is as it was
               taken). Of a cell with quiet processes the others are left out, of one without all but the fastest sample
    runs       the run records, oldest first
    benchmarks what benchmarks.json holds of every benchmark
    parameters the columns that are parameters
    given      cell -> its parameters, by name, in the order of its benchmark
    unknown    (file, benchmark) -> figures of cells that benchmarks.json does not describe (any more)
    """

    cells: pd.DataFrame
    processes: pd.DataFrame
    runs: list[Record]
    benchmarks: Benchmarks
    parameters: Sequence[str]
    given: Mapping[str, Mapping[str, Any]]
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

    def of_file(self, file: str) -> "Results":
        """What one result holds."""
        return replace(
            self,
            cells=self.cells[self.cells["file"] == file],
            processes=self.processes[self.processes["file"] == file],
            runs=[record for record in self.runs if record.file == file],
            unknown={key: figures for key, figures in self.unknown.items() if key[0] == file},
        )

    def sessions_of(self, file: str) -> list[Record]:
        """The runs that a result holds timed processes of, and later ones that only counted, oldest first."""
        own = self.of_file(file)
        timed = set(own.processes["run"])
        since = max(timed, default="")
        return [
            record
            for record in own.runs
            if record.started in timed or (record.started > since and not (record.samples or record.failed))
        ]

    def changed(self, rows: pd.DataFrame) -> list[bool]:
        """Of each benchmark and version in these rows whether the benchmark has another version now."""
        versions = rows[["benchmark", "version"]].drop_duplicates().itertuples(index=False, name=None)
        return [self.benchmarks[name].version != version for name, version in versions]

    @property
    def quiet(self) -> list[float]:
        """Shares of the time in which the machine was quiet, of the runs that took times; none where nobody watched."""
        timed = set(self.processes["run"])
        return [run.quiet for run in self.runs if run.started in timed and run.quiet is not None]

    @property
    def last(self) -> Record:
        """The record of the last run; UNKNOWN where there is none."""
        return self.runs[-1] if self.runs else UNKNOWN


def load(results: Path, machine: str | None = None) -> Results:
    """Load a results directory, or what one machine has in it.

    UserError where the directory or the machine is not there, is empty, or a file is broken.
    """
    return load_files(results, _paths(results, machine))


def _paths(results: Path, machine: str | None) -> list[Path]:
    known = files.machines(results)
    if machine not in (None, *known):
        raise UserError(f"{results} holds no results of {machine}; it knows {', '.join(known)}")
    return files.result_files(results, machine)


def newest(runs: Mapping[Path, Sequence[Record]]) -> list[Path]:
    """Of results with their run records those that measured something: first the one that a page is about."""
    paths = {files.file_of(path): path for path in runs}
    dated = sorted(itertools.chain.from_iterable(runs.values()), key=lambda record: record.started)
    return [paths[file] for file in recent(dated)]


def shown(results: Path, machine: str) -> tuple[list[Path], list[str]]:
    """The results that a machine's pages are about, and the toolchains of the others: pages show the releases along a
    history, the run that was made for its own sake most recently, the one before it, and what has no run record."""
    runs = {path: files.read_records(path) for path in _paths(results, machine)}
    two, along = newest(runs)[:2], ledger.tagged()
    others = {
        path: records[-1].toolchain.tag
        for path, records in runs.items()
        if records and path not in two and records[-1].toolchain.tag not in along
    }
    return [path for path in runs if path not in others], list(others.values())


def load_files(results: Path, paths: Sequence[Path]) -> Results:
    """Load these results of a results directory; see ``load``."""
    benchmarks = declared_in(files.read_json(results / files.BENCHMARKS))
    suite, given = _suite(benchmarks)
    places = {cell: place for place, cell in enumerate(given)}
    read = partial(_read, places=places, timing=[name for name, each in benchmarks.items() if each.type == "time"])
    if len(paths) < TOGETHER:
        parts = list(map(read, paths))
    else:
        # lines are many small lists and no cycles: looking for those took a tenth of the time
        with ProcessPoolExecutor(2, initializer=gc.disable) as readers:
            parts = list(readers.map(read, paths, chunksize=4))
    processes, cells = (_named(table, parts, suite) for table in _tables(parts))
    cells = _with_instructions(cells.astype({"version": str}))
    if cells.empty:
        raise UserError(f"{results} holds no figures; python scripts/run.py makes some")
    named = dict.fromkeys([*PARAMETERS, *(name for each in benchmarks.values() for name in each.param_names)])
    parameters = [name for name in named if name in PARAMETERS or cells[name].notna().any()]
    order = [*OF_FILE, *OF_CELL, *(name for name in parameters if name != "direction"), "version"]
    return Results(
        cells=cells[[*order, *OF_FIGURE]],
        processes=processes[[*order, "direction", "contract", *OF_PROCESS]],
        runs=sorted(itertools.chain.from_iterable(part.records for part in parts), key=lambda record: record.started),
        benchmarks=benchmarks,
        parameters=parameters,
        given=given,
        unknown={(part.labels["file"], name): n for part in parts for name, n in part.unknown.items()},
    )


def _suite(benchmarks: Benchmarks) -> tuple[pd.DataFrame, dict[str, dict[str, Any]]]:
    """A row per cell that benchmarks.json describes, in its order, with parameters and contract; the parameters of
    each."""
    given: dict[str, dict[str, Any]] = {}
    rows = []
    for name, declared in benchmarks.items():
        taken = [parameter for parameter in declared.param_names if parameter in COLUMNS]
        if taken:
            raise UserError(f"{name} has a parameter called {taken[0]}, as a column of every table is: rename it")
        try:
            if math.prod(map(len, declared.params)) > MOST_CELLS:
                raise ValueError(f"more than {MOST_CELLS} cells")
            values = [harmless([ast.literal_eval(word) for word in words]) for words in declared.params]
        except BROKEN as error:
            raise UserError(f"benchmarks.json has other parameters of {name} than this reads ({error})") from None
        family, group, method = [*name.split("."), "", ""][:3]
        known = {"benchmark": name, "family": family, "group": group, "method": method}
        known["unit"] = declared.unit if declared.type != "time" else ""
        for cell, combination in zip(files.spelled(name, declared.params), itertools.product(*values)):
            named = given[cell] = dict(zip(declared.param_names, combination))
            contract = declared.contracts.get(named.get("route", ""), NONE)
            direction = contract.direction or declared.direction or str(named.get("direction", ""))
            memory = contract.memory_for(str(named.get("dtype", "")), str(named.get("layout", "")))
            rows.append({"cell": cell, **known, **named, "direction": direction, "contract": memory})
    columns = dict.fromkeys([*OF_CELL, *PARAMETERS, "direction", "contract", "unit", *itertools.chain(*rows)])
    table = pd.DataFrame(rows, columns=list(columns))
    texts = [name for name in table if all(isinstance(value, str) for value in table[name])]
    return table.astype({name: "category" for name in texts}), given


@dataclass(frozen=True)
class _Part:
    """What one result holds, read in a process of its own. labels: what all its rows share; versions: by benchmark;
    tables: of processes, counts and what is missing, with the ``place`` of each row's cell in the suite."""

    labels: Mapping[str, str]
    records: Sequence[Record]
    versions: Mapping[str, str]
    tables: Sequence[pd.DataFrame]
    unknown: Counter[str]


def _read(path: Path, places: Mapping[str, int], timing: Collection[str]) -> _Part:
    """UserError where a file of the result is broken. places: of the suite's cells; timing: benchmarks that time."""
    records, lines, asv = files.read_records(path), files.read_measurements(path), files.read_json(path)
    figures = {name_of(line): line["benchmark"] for line in lines}
    try:
        if asv["version"] != ASV_RESULT_VERSION:
            raise UserError(f"{path} is of asv's format {asv['version']}, this reads {ASV_RESULT_VERSION}: asv update")
        commit, python, machine = asv["commit_hash"], asv["python"], asv["params"]["machine"]
        rows = {name: dict(zip(asv["result_columns"], entries)) for name, entries in asv["results"].items()}
        versions = {name: row["version"] for name, row in rows.items()}
        for text in (commit, python, machine, *versions.values()):
            if not isinstance(text, str):
                raise TypeError(f"it holds {text!r}")
        made = records[-1].toolchain if records else _of_history(commit)
        labels = [machine, files.file_of(path), commit, made.tag, made.torch, made.numpy, python]
        by_hand, absent = _by_hand(rows, figures, timing)
        for record in records:  # the last one that names a cell knows why it has no figure
            for status, reasons in ((SKIPPED, record.skipped), (FAILED, record.failures)):
                absent |= {cell: (status, reason) for reason, cells in reasons.items() for cell in cells}
        versions |= {line["benchmark"]: line["version"] for line in lines}
    except BROKEN as error:
        raise BrokenFile(path, f"is not a result of this suite ({type(error).__name__}: {error})") from None
    figures |= {name_of(line): line["benchmark"] for line in by_hand}
    without = [
        (places[cell], *why)
        for cell, why in absent.items()
        if cell in places and cell not in figures and cell.partition("(")[0] in rows
    ]
    missing = pd.DataFrame(without, columns=["place", "status", "reason"])
    unknown = Counter(name for cell, name in figures.items() if cell not in places)
    with files.reading(files.beside(path, files.MEASUREMENTS)):
        every = [*lines, *by_hand]
        tables = _timed(every, places, records), _counted(every, places), missing
    return _Part(dict(zip(OF_FILE, labels)), records, versions, tables, unknown)


def _of_history(commit: str) -> Toolchain:
    """The toolchain of a commit that asv was run for by hand; its hash alone outside the histories."""
    toolchain = ledger.commits().get(commit)
    return Toolchain(toolchain.tag, toolchain.torch, toolchain.numpy) if toolchain else Toolchain(commit[:8])


def _timed(lines: Sequence[Line], places: Mapping[str, int], records: Sequence[Record]) -> pd.DataFrame:
    """The processes that figures rest on, a row each."""
    rows = []
    for cell, processes in quiet.counting(lines, records).items():
        for number, (run, place) in processes.items() if cell in places else ():
            line, corrected = run.lines[place], not math.isnan(run.slowdown[place])
            beside = {part: float(np.quantile(taken, quiet.QUANTILE)) for part, taken in line.get("parts", {}).items()}
            baseline = run.baselines[PROCESSOR] if corrected else math.nan
            of_process = number, line["round"], run.figures[place], line["wanted"], run.quiet[place], line["run"]
            rows.append((places[cell], *of_process, beside, baseline))
    return pd.DataFrame(rows, columns=["place", *OF_PROCESS])


def _counted(lines: Sequence[Line], places: Mapping[str, int]) -> pd.DataFrame:
    """A row per counted cell: the median of its counts, and their range where there are several."""
    last = {places.get(name_of(line), -1): line["values"] for line in lines if "values" in line}
    ends = {cell: (min(values), max(values)) if len(values) > 1 else (math.nan,) * 2 for cell, values in last.items()}
    counts = [(cell, statistics.median(values), *ends[cell]) for cell, values in last.items() if cell >= 0]
    return pd.DataFrame(counts, columns=["place", "value", "low", "high"])


def _by_hand(
    rows: Mapping[str, Any], known: Collection[str], timing: Collection[str]
) -> tuple[list[Line], dict[str, tuple[str, str]]]:
    """The cells that asv's file has a figure of and no run measured, for asv was run by hand: as a line of measurements
    each, of one sample or count; and why the others have none, for they failed there."""
    lines, failed = list[Line](), dict[str, tuple[str, str]]()
    for name, row in rows.items():
        params, results, timed = row["params"] or [], row["result"] or [], name in timing
        count = math.prod(map(len, params))  # before they are spelled: a short file can name billions
        if count > MOST_CELLS or len(results) not in (0, count):
            raise ValueError(f"{name} has {len(results)} results, and {count} cells")
        for words, value in zip(itertools.product(*params), results or [None] * count):
            line = {"benchmark": name, "params": words, **BY_HAND}
            cell = name_of(line)
            if cell in known:
                continue
            if value is None:
                failed[cell] = FAILED, ""
            elif not isinstance(value, (int, float)) or abs(value) > sys.float_info.max or (timed and value <= 0):
                raise TypeError(f"{cell} is {value!r}")
            elif value == value:  # NaN: it was skipped, or not asked for
                lines.append(line | {"seconds" if timed else "values": [value]})
    return lines, failed


# --- frames ----------------------------------------------------------------------------------------------------------


def _tables(parts: Sequence[_Part]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The processes of all results, and a row per cell and result of what was timed, counted, or is missing."""

    def together(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
        numbered = [table.assign(result=number) for number, table in enumerate(tables)]
        filled = [table for table in numbered if len(table)] or numbered[:1]
        # an empty one knows no types, by which pandas 2 decides those of the whole
        table = pd.concat(filled, ignore_index=True)
        return table.astype({name: kind for name, kind in TYPES.items() if name in table})

    processes, counts, missing = map(together, zip(*(part.tables for part in parts)))
    processes = processes.sort_values(["result", "place", "process"], ignore_index=True)
    grouped = processes.groupby(["result", "place"], sort=False)
    figures = grouped["seconds"].agg(seconds="median", low="min", high="max", mean="mean", std="std", processes="size")
    figures["cv"] = figures.pop("std") / figures.pop("mean")
    figures["quiet"] = grouped["quiet"].any()
    measured = [table.assign(status=MEASURED) for table in (figures.reset_index(), counts)]
    cells = pd.concat([*measured, missing], ignore_index=True)
    return processes, cells.sort_values(["result", "place"], ignore_index=True)


def _named(table: pd.DataFrame, parts: Sequence[_Part], suite: pd.DataFrame) -> pd.DataFrame:
    """A table with what is known of the result and the cell of each row."""
    labels = pd.DataFrame([part.labels for part in parts]).astype("category")
    of_file, of_cell = labels.take(table["result"]), suite.take(table["place"])
    versions = [parts[result].versions.get(name, "") for result, name in zip(table["result"], of_cell["benchmark"])]
    table["version"] = pd.Categorical(versions)
    return pd.concat([of_file.reset_index(drop=True), of_cell.reset_index(drop=True), table], axis=1)


def _with_instructions(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells, those of plain conversions with the instructions that were counted of the same call."""
    same = ["result", "direction", "route", "dtype", "nbytes"]
    counted = cells[cells["family"] == "instructions"].drop_duplicates(same).set_index(same)["value"]
    plain = cells["family"] == "conversion"
    cells.loc[plain, "instructions"] = cells[plain].join(counted.rename("counted"), on=same)["counted"]
    return cells


def parameters_of(table: pd.DataFrame, results: Results) -> list[dict[str, Any]]:
    """The parameters of each row of a table of results: name -> value, of those its benchmark has, in its order."""
    return [dict(results.given[cell]) for cell in table["cell"]]
