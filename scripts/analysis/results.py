"""The loader: measurements and run records as one table of cells. All other tables are views of it."""

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
from cli import UserError
from store import asv_files, files, quiet
from store.asv_files import AsvFigures
from store.files import PARSE_ERRORS, BrokenFile, harmless
from store.schema import (
    UNKNOWN,
    Counts,
    Measurement,
    RunRecord,
    TimedProcess,
    Toolchain,
    cell_name,
    cell_names,
    from_json,
    latest_files,
)
from store.versions import version_number
from toolchains import ledger

from benchmarks.contracts import COPY, INTO, NONE, Family, Role, Route
from benchmarks.probes import MEMORY, PROCESSOR
from benchmarks.timing import LARGE

# Parameters with a column in every table, empty if a benchmark lacks one; other parameters have one if measured
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
# Names that no parameter can have; a parameter `direction` is the direction
COLUMNS = frozenset((*NAMES, "version", *OF_PROCESS, *OF_FIGURE)) - {"direction"}
MEASURED, FAILED, SKIPPED = "measured", "failed", "skipped"
MOST_CELLS = 100_000  # of a benchmark; ours have at most 2592
TYPES = {
    "result": int,
    "place": int,
    "seconds": float,
    "value": float,
    "low": float,
    "high": float,
}  # of tables
TOGETHER = (
    8  # files: from here on two processes read them; starting one takes as long as four files
)


# --- benchmarks.json -------------------------------------------------------------------------------------------------


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
        """Module and class."""
        return self.name.rpartition(".")[0]

    def listed(self, parameter: str) -> Sequence[str]:
        """Return the values of a parameter, in asv's spelling; empty if the benchmark has no such parameter."""
        return dict(zip(self.param_names, self.params)).get(parameter, ())

    def nth(self, parameter: str, value: object) -> int:
        """Return the index of a value among those of a parameter; their number if it is not one of them."""
        spellings = self.listed(parameter)
        return spellings.index(repr(value)) if repr(value) in spellings else len(spellings)


Benchmarks = Mapping[str, Declared]  # by name


def declared_in(benchmarks: Any) -> dict[str, Declared]:
    """Return the benchmarks of a benchmarks.json; UserError if it holds anything else."""
    if not isinstance(benchmarks, dict):
        raise UserError("benchmarks.json is not asv's: remove it or restore it from git")
    return {
        name: _declared(name, each) for name, each in benchmarks.items() if isinstance(each, dict)
    }


def _declared(name: str, description: Mapping[str, Any]) -> Declared:
    try:
        declared = from_json(Declared, description)
        if declared.name != name:
            raise ValueError(f"its name is {declared.name}")
        if len(declared.params) != len(declared.param_names):
            raise ValueError(
                f"{len(declared.param_names)} names of {len(declared.params)} parameters"
            )
    except (TypeError, ValueError) as error:
        raise UserError(
            f"benchmarks.json says of {name} what this cannot read ({error}): remove it or restore it from git"
        ) from None
    return replace(declared, version=version_number(name, declared.version))


def noise_of_cells(cells: pd.DataFrame, benchmarks: Benchmarks) -> list[str]:
    """Return the noise class of each row: the one that the family declares; else memory if at least LARGE bytes move
    through it; else alias, copy or into; else the benchmark's family. ``cells`` has the columns benchmark, contract,
    nbytes and family.

    On a virtual machine of Zen 4, with 26 toolchains measured twice, 7 hours apart, 90 % of figures differ by at most
    21 % for copies of 16 MiB, by 2.1 % for smaller copies, by 2.3 % for shared memory (scripts/check.py history).
    """
    names = []
    for name, memory, nbytes, family in cells[
        ["benchmark", "contract", "nbytes", "family"]
    ].itertuples(index=False):
        moves = memory in (COPY, INTO) or benchmarks[name].role == Role.MEMCPY
        through_memory = moves and nbytes >= LARGE  # of no size: false
        names.append(benchmarks[name].noise or (MEMORY if through_memory else memory) or family)
    return names


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)  # == of tables gives no bool
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
               (their planned number), quiet, run (when its run began), beside (part -> seconds, for parts timed in
               turns), baseline (ns of the speed probes that its figure is corrected to; NaN if not corrected). A cell
               with quiet processes has only these; a cell without has only its fastest sample
    runs       the run records, oldest first
    benchmarks the entries of benchmarks.json
    parameters the columns that are parameters
    cell_parameters  cell -> its parameters, by name, in the order of its benchmark
    unknown    (file, benchmark) -> number of figures of cells that benchmarks.json does not describe (any more)
    """

    cells: pd.DataFrame
    processes: pd.DataFrame
    runs: list[RunRecord]
    benchmarks: Benchmarks
    parameters: Sequence[str]
    cell_parameters: Mapping[str, Mapping[str, Any]]
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
        """(direction, route) -> contract."""
        each = (
            contract
            for benchmark in self.benchmarks.values()
            for contract in benchmark.contracts.items()
        )
        return {(contract.direction, route): contract for route, contract in each}

    def of_role(self, table: pd.DataFrame, role: str) -> pd.DataFrame:
        """Select the rows of benchmarks with a role."""
        return table[
            table["benchmark"].isin(
                [n for n, declared in self.benchmarks.items() if declared.role == role]
            )
        ]

    def of_file(self, file: str) -> "Results":
        """Select the data of one result."""
        return replace(
            self,
            cells=self.cells[self.cells["file"] == file],
            processes=self.processes[self.processes["file"] == file],
            runs=[record for record in self.runs if record.file == file],
            unknown={key: figures for key, figures in self.unknown.items() if key[0] == file},
        )

    def sessions_of(self, file: str) -> list[RunRecord]:
        """Return the runs with timed processes in a result, and later runs that only counted, oldest first."""
        own = self.of_file(file)
        timed = set(own.processes["run"])
        since = max(timed, default="")
        return [
            record
            for record in own.runs
            if record.started in timed
            or (record.started > since and not (record.samples or record.failed))
        ]

    def version_changes(self, rows: pd.DataFrame) -> list[bool]:
        """Return, for each benchmark and version in these rows, whether the benchmark now has another version."""
        versions = (
            rows[["benchmark", "version"]].drop_duplicates().itertuples(index=False, name=None)
        )
        return [self.benchmarks[name].version != version for name, version in versions]

    @property
    def quiet(self) -> list[float]:
        """Share of quiet time of each run that took times; runs that did not record it are left out."""
        timed = set(self.processes["run"])
        return [run.quiet for run in self.runs if run.started in timed and run.quiet is not None]

    @property
    def last(self) -> RunRecord:
        """The record of the last run; UNKNOWN where there is none."""
        return self.runs[-1] if self.runs else UNKNOWN


def load(results: Path, machine: str | None = None) -> Results:
    """Load a results directory, or the results of one machine in it.

    UserError if the directory or the machine is missing or empty, or a file is broken.
    """
    return load_files(results, _paths(results, machine))


def _paths(results: Path, machine: str | None) -> list[Path]:
    known = files.machines(results)
    if machine not in (None, *known):
        raise UserError(f"{results} holds no results of {machine}; it knows {', '.join(known)}")
    return files.result_files(results, machine)


def newest(runs: Mapping[Path, Sequence[RunRecord]]) -> list[Path]:
    """Return the results whose runs measured something, first the one that a page is about (see ``recent``)."""
    paths = {files.result_name(path): path for path in runs}
    dated = sorted(itertools.chain.from_iterable(runs.values()), key=lambda record: record.started)
    return [paths[file] for file in latest_files(dated)]


def select_results(results: Path, machine: str) -> tuple[list[Path], list[str]]:
    """Return the results on a machine's pages, and the toolchains of the others. Pages show the releases along a
    history, the two most recent runs made for their own sake (see ``newest``), and results without a run record."""
    runs = {path: files.read_records(path) for path in _paths(results, machine)}
    two, along = newest(runs)[:2], ledger.toolchains_by_tag()
    others = {
        path: records[-1].toolchain.tag
        for path, records in runs.items()
        if records and path not in two and records[-1].toolchain.tag not in along
    }
    return [path for path in runs if path not in others], list(others.values())


def load_files(results: Path, paths: Sequence[Path]) -> Results:
    """Load these files of a results directory; see ``load``."""
    benchmarks = declared_in(files.read_json(results / files.BENCHMARKS))
    suite, cell_parameters = _suite(benchmarks)
    places = {cell: place for place, cell in enumerate(cell_parameters)}
    read = partial(
        _read,
        places=places,
        timing=[name for name, each in benchmarks.items() if each.type == "time"],
    )
    if len(paths) < TOGETHER:
        parts = list(map(read, paths))
    else:
        # lines are many small lists without cycles: the cycle collector took a tenth of the time
        with ProcessPoolExecutor(2, initializer=gc.disable) as readers:
            parts = list(readers.map(read, paths, chunksize=4))
    processes, cells = (_named(table, parts, suite) for table in _tables(parts))
    cells = _with_instructions(cells.astype({"version": str}))
    if cells.empty:
        raise UserError(f"{results} holds no figures; python scripts/run.py makes some")
    named = dict.fromkeys(
        [*PARAMETERS, *(name for each in benchmarks.values() for name in each.param_names)]
    )
    parameters = [name for name in named if name in PARAMETERS or cells[name].notna().any()]
    order = [*OF_FILE, *OF_CELL, *(name for name in parameters if name != "direction"), "version"]
    return Results(
        cells=cells[[*order, *OF_FIGURE]],
        processes=processes[[*order, "direction", "contract", *OF_PROCESS]],
        runs=sorted(
            itertools.chain.from_iterable(part.records for part in parts),
            key=lambda record: record.started,
        ),
        benchmarks=benchmarks,
        parameters=parameters,
        cell_parameters=cell_parameters,
        unknown={
            (part.labels["file"], name): n for part in parts for name, n in part.unknown.items()
        },
    )


def _suite(benchmarks: Benchmarks) -> tuple[pd.DataFrame, dict[str, dict[str, Any]]]:
    """Return one row per cell in benchmarks.json, in its order, with parameters and contract, and the
    ``cell_parameters`` of ``Results``."""
    cell_parameters: dict[str, dict[str, Any]] = {}
    rows = []
    for name, declared in benchmarks.items():
        taken = [parameter for parameter in declared.param_names if parameter in COLUMNS]
        if taken:
            raise UserError(
                f"{name} has a parameter called {taken[0]}, as a column of every table is: rename it"
            )
        try:
            if math.prod(map(len, declared.params)) > MOST_CELLS:
                raise ValueError(f"more than {MOST_CELLS} cells")
            values = [
                harmless([ast.literal_eval(word) for word in words]) for words in declared.params
            ]
        except PARSE_ERRORS as error:
            raise UserError(
                f"benchmarks.json has other parameters of {name} than this reads ({error})"
            ) from None
        family, group, method = [*name.split("."), "", ""][:3]
        known = {"benchmark": name, "family": family, "group": group, "method": method}
        known["unit"] = declared.unit if declared.type != "time" else ""
        for cell, combination in zip(cell_names(name, declared.params), itertools.product(*values)):
            named = cell_parameters[cell] = dict(zip(declared.param_names, combination))
            contract = declared.contracts.get(named.get("route", ""), NONE)
            direction = contract.direction or declared.direction or str(named.get("direction", ""))
            memory = contract.memory_for(str(named.get("dtype", "")), str(named.get("layout", "")))
            rows.append(
                {"cell": cell, **known, **named, "direction": direction, "contract": memory}
            )
    columns = dict.fromkeys(
        [*OF_CELL, *PARAMETERS, "direction", "contract", "unit", *itertools.chain(*rows)]
    )
    table = pd.DataFrame(rows, columns=list(columns))
    texts = [name for name in table if all(isinstance(value, str) for value in table[name])]
    return table.astype({name: "category" for name in texts}), cell_parameters


@dataclass(frozen=True)
class _Part:
    """Data of one result, read in a process of its own. labels: shared by all its rows; versions: by benchmark; tables:
    processes, counts and missing cells, with the ``place`` of each row's cell in the suite."""

    labels: Mapping[str, str]
    records: Sequence[RunRecord]
    versions: Mapping[str, str]
    tables: Sequence[pd.DataFrame]
    unknown: Counter[str]


def _read(path: Path, places: Mapping[str, int], timing: Collection[str]) -> _Part:
    """Read a result; UserError if a file of it is broken. places: of the suite's cells; timing: timed benchmarks."""
    records = files.read_records(path)
    lines = files.read_measurements(path)
    asv = asv_files.read_asv(path)
    figures = {line.cell: line.benchmark for line in lines}
    try:
        rows = asv.figures()
        by_hand, absent = _by_hand(rows, figures, timing)
    except PARSE_ERRORS as error:
        raise BrokenFile(path, f"is not a result of this suite ({error})") from None
    versions = {name: version_number(name, row.version) for name, row in rows.items()}
    versions |= {line.benchmark: line.version for line in lines}
    toolchain = records[-1].toolchain if records else _of_history(asv.commit_hash)
    names = (toolchain.tag, toolchain.torch, toolchain.numpy)
    labels = [asv.params.machine, files.result_name(path), asv.commit_hash, *names, asv.python]
    for record in records:  # the last record that names a cell has the reason
        for status, reasons in ((SKIPPED, record.skipped), (FAILED, record.failures)):
            for reason, cells in reasons.items():
                absent |= dict.fromkeys(cells, (status, reason))
    figures |= {line.cell: line.benchmark for line in by_hand}
    without = [
        (places[cell], *why)
        for cell, why in absent.items()
        if cell in places and cell not in figures and cell.partition("(")[0] in rows
    ]
    missing = pd.DataFrame(without, columns=["place", "status", "reason"])
    unknown = Counter(name for cell, name in figures.items() if cell not in places)
    with files.reading(files.sibling(path, files.MEASUREMENTS)):
        every = [*lines, *by_hand]
        tables = _timed(every, places, records), _counted(every, places), missing
    return _Part(dict(zip(OF_FILE, labels)), records, versions, tables, unknown)


def _of_history(commit: str) -> Toolchain:
    """Return the toolchain of a commit measured by running asv by hand; only its hash outside the histories."""
    toolchain = ledger.toolchains_by_commit().get(commit)
    return (
        Toolchain(toolchain.tag, toolchain.torch, toolchain.numpy)
        if toolchain
        else Toolchain(commit[:8])
    )


def _timed(
    lines: Sequence[Measurement], places: Mapping[str, int], records: Sequence[RunRecord]
) -> pd.DataFrame:
    """Return one row per process that figures rest on."""
    rows = []
    for cell, processes in quiet.select_processes(lines, records).items():
        for number, (run, place) in processes.items() if cell in places else ():
            line, corrected = run.lines[place], not math.isnan(run.slowdown[place])
            beside = {
                part: float(np.quantile(seconds, quiet.QUANTILE))
                for part, seconds in line.parts.items()
            }
            baseline = run.baselines[PROCESSOR] if corrected else math.nan
            of_process = (
                number,
                line.round,
                run.figures[place],
                line.wanted,
                run.quiet[place],
                line.run,
            )
            rows.append((places[cell], *of_process, beside, baseline))
    return pd.DataFrame(rows, columns=["place", *OF_PROCESS])


def _counted(lines: Sequence[Measurement], places: Mapping[str, int]) -> pd.DataFrame:
    """Return one row per counted cell: the median of its counts, and their range if there are several."""
    last = {places.get(line.cell, -1): line.values for line in lines if isinstance(line, Counts)}
    ends = {
        cell: (min(values), max(values)) if len(values) > 1 else (math.nan,) * 2
        for cell, values in last.items()
    }
    counts = [
        (cell, statistics.median(values), *ends[cell]) for cell, values in last.items() if cell >= 0
    ]
    return pd.DataFrame(counts, columns=["place", "value", "low", "high"])


def _by_hand(
    rows: Mapping[str, AsvFigures], measured: Collection[str], timing: Collection[str]
) -> tuple[list[TimedProcess | Counts], dict[str, tuple[str, str]]]:
    """Return figures in asv's file that no run measured (asv was run by hand), each as a line of
    measurements with one sample or count; and the status and reason of cells that failed there."""
    lines: list[TimedProcess | Counts] = []
    failed: dict[str, tuple[str, str]] = {}
    for name, row in rows.items():
        count = math.prod(map(len, row.params))  # checked first: a short file can name billions
        if count > MOST_CELLS or len(row.result) not in (0, count):
            raise ValueError(f"{name} has {len(row.result)} results, and {count} cells")
        for params, value in zip(itertools.product(*row.params), row.result or [None] * count):
            cell = cell_name(name, params)
            if cell in measured:
                continue
            if value is None:
                failed[cell] = FAILED, ""
            elif abs(value) > sys.float_info.max or (name in timing and value <= 0):
                raise TypeError(f"{cell} is {value!r}")
            elif not math.isnan(value):  # NaN: it was skipped, or not asked for
                lines.append(_line_by_hand(name, params, value, name in timing))
    return lines, failed


def _line_by_hand(
    name: str, params: tuple[str, ...], value: float, is_time: bool
) -> TimedProcess | Counts:
    """The line of measurements of a figure from asv's file, of which nothing else is known."""
    cell: dict[str, Any] = {"run": "", "round": 0, "benchmark": name, "params": params}
    cell |= {"version": "", "at": 0.0, "took": 0.0}
    if not is_time:
        return Counts(**cell, values=(value,))
    nothing: dict[str, Any] = dict.fromkeys(("disturbed", "waits", "waiting"), ())
    return TimedProcess(
        **cell, **nothing, wanted=1, number=1, seconds=(value,), probes={}, waited=0.0
    )


# --- frames ----------------------------------------------------------------------------------------------------------


def _tables(parts: Sequence[_Part]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the processes of all results, and one row per result and cell that was timed, counted, or is missing."""

    def together(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
        numbered = [table.assign(result=number) for number, table in enumerate(tables)]
        filled = [table for table in numbered if len(table)] or numbered[:1]
        # an empty table has no types, and would change those of the whole in pandas 2
        table = pd.concat(filled, ignore_index=True)
        return table.astype({name: kind for name, kind in TYPES.items() if name in table})

    processes, counts, missing = map(together, zip(*(part.tables for part in parts)))
    processes = processes.sort_values(["result", "place", "process"], ignore_index=True)
    grouped = processes.groupby(["result", "place"], sort=False)
    figures = grouped["seconds"].agg(
        seconds="median", low="min", high="max", mean="mean", std="std", processes="size"
    )
    figures["cv"] = figures.pop("std") / figures.pop("mean")
    figures["quiet"] = grouped["quiet"].any()
    measured = [table.assign(status=MEASURED) for table in (figures.reset_index(), counts)]
    cells = pd.concat([*measured, missing], ignore_index=True)
    return processes, cells.sort_values(["result", "place"], ignore_index=True)


def _named(table: pd.DataFrame, parts: Sequence[_Part], suite: pd.DataFrame) -> pd.DataFrame:
    """Add the columns of each row's result and cell to a table."""
    labels = pd.DataFrame([part.labels for part in parts]).astype("category")
    of_file, of_cell = labels.take(table["result"]), suite.take(table["place"])
    versions = [
        parts[result].versions.get(name, "")
        for result, name in zip(table["result"], of_cell["benchmark"])
    ]
    table["version"] = pd.Categorical(versions)
    return pd.concat(
        [of_file.reset_index(drop=True), of_cell.reset_index(drop=True), table], axis=1
    )


def _with_instructions(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the instruction counts of the same call to the cells of plain conversions."""
    same = ["result", "direction", "route", "dtype", "nbytes"]
    counted = (
        cells[cells["family"] == "instructions"].drop_duplicates(same).set_index(same)["value"]
    )
    plain = cells["family"] == "conversion"
    cells.loc[plain, "instructions"] = cells[plain].join(counted.rename("counted"), on=same)[
        "counted"
    ]
    return cells


def parameters_of(table: pd.DataFrame, results: Results) -> list[dict[str, Any]]:
    """Return the parameters of each row: name -> value, in the order of its benchmark."""
    return [dict(results.cell_parameters[cell]) for cell in table["cell"]]
