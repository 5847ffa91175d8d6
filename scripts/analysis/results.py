"""The loader: asv's result files and their run records as tidy tables. Everything else starts from these."""

import ast
import contextlib
import gc
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cli import UserError, harmless
from records import calm
from records.runs import UNKNOWN, Record, Toolchain, record_of, visits_of
from toolchains import ledger
from toolchains.selection import NODE, TAKEN

from .contracts import Contract
from .declared import Benchmarks, Declared, declared_in

ASV_RESULT_VERSION = 2
# What Python says of a file that holds something else: no JSON, other kinds, names that are not there, numbers of four
# hundred digits, brackets in brackets in brackets
BROKEN = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, SyntaxError, RecursionError, MemoryError)
# Parameters that every table has a column for, empty where a benchmark has it not; for others, where one has it
PARAMETERS = ("route", "dtype", "nbytes", "layout", "threads", "memory", "statement")
# The other columns: what every table has, and what each has of its own
NAMES = (
    *("machine", "file", "commit", "toolchain", "torch", "numpy", "python"),
    *("benchmark", "family", "group", "method", "cell"),
)
TIMING = ("process", "seconds", "median", "samples", "number", "calm", "run", "beside", "floor")
COUNTING = ("value", "low", "high", "unit")
MISSING = ("status", "reason")
COLUMNS = frozenset((*NAMES, "version", *TIMING, *COUNTING, *MISSING))  # what no parameter can be called
# What is read of a result file, with its kind; "a.b" is b in a
FILE = {"commit_hash": str, "python": str, "params": dict, "params.machine": str, "results": dict}


@dataclass(frozen=True)
class Results:
    """Results of one or more runs.

    processes  one row a cell and process. machine, commit, toolchain, torch, numpy, python; benchmark
               (module.Class.method), family (module), group (Class), method, cell (asv's name with parameters), a
               column for each of PARAMETERS; version (of the measurement); process (the round it is of: 0, 1, ...),
               seconds (its figure: a quantile of its samples, see calm.py), median, samples (how many it was to take),
               number (calls a sample), calm (whether the machine ran at full speed meanwhile; None where nobody
               watched), run (when the run began that it is of; "" where that is not known), beside (part -> seconds
               of what the same process timed in turns with it; mostly none), floor (ns of the pulses by which it is
               at full speed, NaN where it is as it was taken). Of a cell with calm
               processes the others are left out, of one without all but the fastest sample
    values     one row a cell that is counted and not timed (track_*): the same names, then value and unit; where that
               is the median of repeats, low and high, the least and the most of them, else NaN
    missing    one row a cell that has no figure: the same names, then status (failed or skipped) and reason
    runs       the run records, oldest first
    contracts  (direction, route) -> what the route promises
    benchmarks what benchmarks.json says of every benchmark
    parameters the columns that are parameters
    unknown    (file, benchmark) -> figures of a benchmark that benchmarks.json does not describe (any more)
    """

    processes: pd.DataFrame
    values: pd.DataFrame
    missing: pd.DataFrame
    runs: list[Record]
    contracts: Mapping[tuple[str, str], Contract]
    benchmarks: Benchmarks
    unknown: Mapping[tuple[str, str], int] = field(default_factory=dict)
    parameters: Sequence[str] = PARAMETERS

    def of_role(self, table: pd.DataFrame, role: str) -> pd.DataFrame:
        """The rows of a table that are of benchmarks with a role."""
        return self._declaring(table, "role", role)

    def repeated(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table that are of benchmarks whose counts are medians of repeats."""
        return self._declaring(table, "repeated", True)

    def _declaring(self, table: pd.DataFrame, name: str, value: Any) -> pd.DataFrame:
        declaring = [benchmark for benchmark, declared in self.benchmarks.items() if getattr(declared, name) == value]
        return table[table["benchmark"].isin(declaring)]

    # who asks file by file looks at all records and at all rows once

    @cached_property
    def _runs_by_file(self) -> Mapping[str, list[Record]]:
        by_file: dict[str, list[Record]] = {}
        for record in self.runs:
            by_file.setdefault(record.file, []).append(record)
        return by_file

    @cached_property
    def _rows_by_file(self) -> Mapping[str, Any]:
        by_file: Mapping[str, Any] = self.processes.groupby("file", sort=False).indices
        return by_file

    def runs_of(self, file: str) -> list[Record]:
        """The run records of a result file, oldest first."""
        return self._runs_by_file.get(file, [])

    def processes_of(self, file: str) -> pd.DataFrame:
        """The rows of ``processes`` that are of a result file."""
        return self.processes.take(self._rows_by_file.get(file, []))

    @property
    def last(self) -> Record:
        """The record of the last run; UNKNOWN where there is none."""
        return self.runs[-1] if self.runs else UNKNOWN


class BrokenFile(UserError):
    """A file that cannot be read; ``what`` is wrong with it, by its name."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path} {what}: remove it or restore it from git")
        self.what = f"{path.name} {what}"


def read_json(path: Path) -> Any:
    """A JSON file, made harmless; UserError if it is not there or broken. asv writes bare NaN, which Python reads."""
    only_file(path)
    try:
        return harmless(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except BROKEN as error:
        raise BrokenFile(path, f"is broken ({error})") from None


def only_file(path: Path) -> bool:
    """Whether there is such a file; UserError where something else has its name: a pipe hangs, a link leads nowhere."""
    if os.path.lexists(path) and not path.is_file():
        raise BrokenFile(path, "is no file")
    return path.is_file()


def machines(results: Path) -> list[str]:
    """The machines that have results, by name."""
    if not results.is_dir():
        raise UserError(f"{results}: no such directory; python scripts/run.py makes results")
    names = sorted({path.relative_to(results).parts[0] for path in result_files(results)})
    if not names:
        raise UserError(f"{results} holds no results; python scripts/run.py makes some")
    for name in names:
        if name in TAKEN or not name.isprintable():
            raise UserError(f"{results} holds results of a machine named {name!a}: rename its directory")
    return names


def load(results: Path, machine: str | None = None, toolchain: str | None = None) -> Results:
    """Load a results directory of asv, or what one machine (and one toolchain, by tag or commit) has in it.

    UserError where the directory, the machine or the toolchain is not there, is empty, or a file is broken.
    """
    known = machines(results)
    if machine is not None and machine not in known:
        raise UserError(f"{results} holds no results of {machine}; it knows {', '.join(known)}")
    chosen = known if machine is None else [machine]
    return load_files(results, [path for name in chosen for path in result_files(results, name)], toolchain)


def result_files(results: Path, machine: str | None = None, suffix: str = ".json") -> list[Path]:
    """The result files of a machine, or what lies beside them by another suffix: its own, then those of its nodes."""
    files = []
    for directory in sorted(results.glob("*/")) if machine is None else [results / machine]:
        for place in places_of(directory):
            files += [path for path in sorted(place.glob(f"*{suffix}")) if path.name != "machine.json"]
    return files


def places_of(directory: Path) -> list[Path]:
    """Where the result files of a machine may lie: in its directory, and in those of its nodes."""
    return [directory, *sorted(directory.glob(f"{NODE}*/"))]


def file_of(path: Path) -> str:
    """What tables and records call a result file: its stem, after the name of the node where a fleet measured it."""
    return f"{path.parent.name}/{path.stem}" if path.parent.name.startswith(NODE) else path.stem


def node_of(file: str) -> str:
    """The node of a fleet that a file is of; "" where it is of the machine."""
    return file.rpartition("/")[0]


def load_files(results: Path, paths: Sequence[Path], toolchain: str | None = None) -> Results:
    """Load these result files of a results directory of asv, or what one toolchain has in them; see load."""
    benchmarks = declared_in(read_json(results / "benchmarks.json"))
    for name, benchmark in benchmarks.items():
        taken = [parameter for parameter in benchmark.param_names if parameter in COLUMNS]
        if taken:
            raise UserError(f"{name} has a parameter called {taken[0]}, as a column of every table is: rename it")
    runs: list[Record] = []
    tables = Tables(benchmarks)
    unknown: dict[tuple[str, str], int] = {}
    with _uncollected():
        for path in paths:
            records = read_runs(path.with_suffix(".jsonl"))
            runs += records
            _load_file(path, records, watched_in(path), tables, unknown, toolchain)
    if not any((tables.timed, tables.counted, tables.missing)):
        what = f" of {toolchain}" if toolchain else ""
        raise UserError(f"{results} holds no figures{what}; python scripts/run.py makes some")
    every = (tables.timed, tables.counted, tables.missing)
    parameters = tuple(dict.fromkeys([*PARAMETERS, *(name for rows in every for name in rows.parameters())]))
    return Results(
        processes=tables.timed.frame(parameters),
        values=tables.counted.frame(parameters),
        missing=tables.missing.frame(parameters),
        parameters=parameters,
        runs=sorted(runs, key=lambda record: record.started),
        contracts={
            (contract.direction, route): contract
            for benchmark in benchmarks.values()
            for route, contract in benchmark.contracts.items()
        },
        benchmarks=benchmarks,
        unknown=unknown,
    )


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's cyclic garbage collector, which looks at millions of samples again and again and finds nothing:
    it took a quarter of the time of 200 files, and no memory is saved by it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def check(fields: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """TypeError where something is not of its kind, KeyError where it is not there."""
    for name, kind in kinds.items():
        outer, _, inner = name.rpartition(".")
        value = fields[outer][inner] if outer else fields[inner]
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}")


def read_runs(path: Path) -> list[Record]:
    """The run records beside a result file, oldest first; none where asv was run by hand."""
    if not only_file(path):
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [record_of(harmless(json.loads(line)), file_of(path)) for line in lines]
    except BROKEN as error:
        raise BrokenFile(path, f"is broken ({error})") from None


@dataclass(frozen=True)
class Watched:
    """Samples that stand between pulses. processes: cell -> round -> what is used; taken: cell -> all its samples."""

    processes: Mapping[str, Mapping[int, calm.Process]]
    taken: Mapping[str, set[float]]


def watched_in(path: Path) -> Watched:
    """What lies beside a result file of samples and their pulses; nothing where asv was run by hand."""
    beside = path.with_suffix(calm.SUFFIX)
    only_file(beside)
    lines = lines_in(beside)
    taken: dict[str, set[float]] = {}
    with _named(beside):
        for line in lines:
            taken.setdefault(calm.name_of(line), set()).update(line["seconds"])
        return Watched(calm.chosen(lines), taken)


def lines_in(path: Path) -> list[calm.Line]:
    """The samples and pulses in a file, a line a process; UserError where it is broken."""
    with _named(path):
        return calm.read(path)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """What is wrong with a file of samples, in one line."""
    try:
        yield
    except BROKEN as error:
        raise BrokenFile(path, f"is broken ({error})") from None


@dataclass(frozen=True)
class Grid:
    """The cells of a benchmark. names: asv's; columns: parameter -> its value in each cell; samples: how many a process
    takes of each, where benchmarks.json says so."""

    names: Sequence[str]
    columns: Mapping[str, Sequence[Any]]
    samples: Sequence[int | None]


def _grid(benchmark: Declared, params: Sequence[Sequence[str]]) -> Grid:
    """The cells of a benchmark as a result file lists its parameters; benchmarks.json may list others by now."""
    name, names = benchmark.name, benchmark.param_names
    if len(params) != len(names):
        raise ValueError(f"{name} has {len(params)} parameters")
    known = dict(zip(itertools.product(*benchmark.params), benchmark.samples_per_process))
    every = list(itertools.product(*params))
    values = itertools.product(*([harmless(ast.literal_eval(word)) for word in spellings] for spellings in params))
    return Grid(
        [f"{name}({', '.join(spellings)})" if params else name for spellings in every],
        dict(zip(names, map(list, zip(*values)))),
        [known.get(spellings) for spellings in every],
    )


class Rows:
    """A table that grows, kept by column: what all cells of a benchmark in a file have in common is kept once."""

    def __init__(self, names: Sequence[str]) -> None:
        self.blocks: list[tuple[Mapping[str, str], Grid, list[int]]] = []
        self.outcomes: dict[str, list[Any]] = {name: [] for name in names}

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def add(self, labels: Mapping[str, str], grid: Grid, places: list[int], *outcomes: Sequence[Any]) -> None:
        """Rows of a benchmark in a file: what they share, which cells they are of, columns of their outcomes."""
        if places:
            self.blocks.append((labels, grid, places))
            for column, values in zip(self.outcomes.values(), outcomes):
                column += values

    def parameters(self) -> Iterator[str]:
        """The names of the parameters, some of them more than once."""
        yield from itertools.chain.from_iterable(grid.columns for _, grid, _ in self.blocks)

    def frame(self, parameters: Sequence[str]) -> pd.DataFrame:
        """The table, with the columns in the order in which Results names them."""
        columns: dict[str, Any] = {}
        for name in (*NAMES, *parameters, "version"):
            parts: list[list[Any]] = []
            for labels, grid, places in self.blocks:
                if name in labels:
                    parts.append([labels[name]] * len(places))
                else:
                    known = grid.names if name == "cell" else grid.columns.get(name)
                    parts.append([known[place] for place in places] if known else [None] * len(places))
            columns[name] = pd.Series(list(itertools.chain.from_iterable(parts)))
        return pd.DataFrame({**columns, **self.outcomes})


class Tables:
    """What the result files hold, as it is read."""

    def __init__(self, benchmarks: Benchmarks) -> None:
        self.benchmarks = benchmarks
        self.timed, self.counted, self.missing = Rows(TIMING), Rows(COUNTING), Rows(MISSING)
        self._grids: dict[Any, Grid] = {}

    def grid(self, name: str, params: Sequence[Sequence[str]] | None) -> Grid:
        """The cells of a benchmark; most files list them alike."""
        key = name, tuple(map(tuple, params or []))
        if key not in self._grids:
            self._grids[key] = _grid(self.benchmarks[name], key[1])
        return self._grids[key]


def _load_file(
    path: Path,
    records: Sequence[Record],
    watched: Watched,
    tables: Tables,
    unknown: dict[tuple[str, str], int],
    toolchain: str | None,
) -> None:
    file = read_json(path)
    try:
        if file["version"] != ASV_RESULT_VERSION:
            raise UserError(f"{path} is of asv's format {file['version']}, this reads {ASV_RESULT_VERSION}: asv update")
        check(file, FILE)
        made = records[-1].toolchain if records else _of_history(file["commit_hash"])
        common = {
            "machine": file["params"]["machine"],
            "file": file_of(path),
            "commit": file["commit_hash"],
            "toolchain": made.tag,
            "torch": made.torch,
            "numpy": made.numpy,
            "python": file["python"],
        }
        if toolchain is not None and common["toolchain"] != toolchain and not common["commit"].startswith(toolchain):
            return
        rounds = sum(record.rounds for record in visits_of(records))
        reasons = {
            cell: why
            for record in records
            for why, cells in [*record.skipped.items(), *record.failures.items()]
            for cell in cells
        }
        columns = file["result_columns"]
        for name, entries in file["results"].items():
            if name in tables.benchmarks:
                row = dict(zip(columns, entries))
                _load_benchmark(tables.benchmarks[name], row, watched, rounds, common, reasons, tables)
            else:
                figures = dict(zip(columns, entries))["result"] or []
                unknown[file_of(path), name] = sum(value is not None and value == value for value in figures)
    except BROKEN as error:
        raise BrokenFile(path, f"is not a result file of this suite ({type(error).__name__}: {error})") from None


def _of_history(commit: str) -> Toolchain:
    """What a run record would say of a commit that asv was run for by hand; its hash alone outside the histories."""
    toolchain = ledger.find(commit)
    return Toolchain(toolchain.tag, toolchain.torch, toolchain.numpy) if toolchain else Toolchain(commit[:8])


def _load_benchmark(
    benchmark: Declared,
    row: dict[str, Any],
    watched: Watched,
    rounds: int,
    common: Mapping[str, str],
    reasons: Mapping[str, str],
    tables: Tables,
) -> None:
    check(row, {"version": str})
    name, version = benchmark.name, row["version"]
    family, group, method = (name.split(".") + ["", ""])[:3]
    labels = {**common, "benchmark": name, "family": family, "group": group, "method": method, "version": version}
    grid = tables.grid(name, row["params"])
    results = row["result"] or [None] * len(grid.names)
    if len(results) != len(grid.names):
        raise ValueError(f"{name} has {len(results)} results, and {len(grid.names)} cells")
    there = [place for place, value in enumerate(results) if value is not None and value == value]
    # any other NaN: not part of a run
    absent = [n for n, value in enumerate(results) if value is None or (value != value and grid.names[n] in reasons)]
    status = ["failed" if results[place] is None else "skipped" for place in absent]
    tables.missing.add(labels, grid, absent, status, [reasons.get(grid.names[place], "") for place in absent])
    samples = row.get("samples") or results
    if benchmark.type != "time":
        repeats = [samples[place] if isinstance(samples[place], list) else [] for place in there]
        for place, counts in zip(there, repeats):
            for count in (results[place], *counts):
                if not isinstance(count, (int, float)) or not math.isfinite(count):
                    raise TypeError(f"{grid.names[place]} is {count!r}")
        low, high = ([end(counts, default=math.nan) for counts in repeats] for end in (min, max))
        values = [results[place] for place in there]
        tables.counted.add(labels, grid, there, values, low, high, [benchmark.unit] * len(there))
        return
    numbers = row.get("stats_number")
    processes: list[tuple[int, int, calm.Process]] = []
    for place in there:
        cell, raw = grid.names[place], samples[place]
        raw = raw if isinstance(raw, list) and raw else [results[place]]
        if not calm.are_seconds(raw):
            raise ValueError(f"{cell} took {min(raw)} to {max(raw)} seconds")
        by_round = watched.processes.get(cell)
        if by_round and watched.taken[cell].issuperset(raw):
            processes += [(place, number, process) for number, process in by_round.items()]
            continue
        # of a run by hand, or of a suite that took no pulses
        size = grid.samples[place] or len(raw)
        if version != benchmark.version and rounds:
            size = len(raw) // rounds or 1  # benchmarks.json says how many samples the present version takes
        if rounds and len(raw) > size and len(raw) % size:
            raise ValueError(f"{cell} has {len(raw)} samples, and a process takes {size}")
        size = len(raw) if len(raw) % size else size
        calls = int(numbers[place]) if numbers else 1
        if calls < 1:
            raise ValueError(f"{cell} made {calls} calls a sample")
        for number, first in enumerate(range(0, len(raw), size)):
            processes.append((place, number, calm.Process(raw[first : first + size], None, size, calls)))
    tables.timed.add(
        labels,
        grid,
        [place for place, _, _ in processes],
        [number for _, number, _ in processes],
        *_figures([process for _, _, process in processes]),
        *(
            [getattr(process, name) for _, _, process in processes]
            for name in ("wanted", "number", "calm", "run", "beside", "floor")
        ),
    )


def _figures(processes: Sequence[calm.Process]) -> tuple[list[float], list[float]]:
    """The figure of each process and the median of its samples; many at once, for there are many of them."""
    figures, medians = np.empty(len(processes)), np.empty(len(processes))
    alike: dict[tuple[int, float], list[int]] = {}
    for place, process in enumerate(processes):
        alike.setdefault((len(process.samples), process.quantile), []).append(place)
    for (_, quantile), places in alike.items():
        samples = np.array([processes[place].samples for place in places], dtype=float)
        figures[places], medians[places] = np.quantile(samples, (quantile, 0.5), axis=1)
    return figures.tolist(), medians.tolist()


def summarize(processes: pd.DataFrame) -> pd.DataFrame:
    """One row a cell: seconds (median over processes), low and high (their range), cv (between them), processes; each
    and rounds (tuples of the seconds and of the round of every process), watched (whether somebody looked if the
    machine was calm) and calm (False where it was for no process of the cell)."""
    keys = [c for c in processes.columns if c not in TIMING]
    calm = processes["calm"] if "calm" in processes else pd.Series(None, processes.index, dtype=object)
    looked = processes.assign(watched=calm.notna(), busy=calm.eq(False).fillna(False).astype(bool))
    grouped = looked.groupby(keys, dropna=False, sort=False)
    table = grouped["seconds"].agg(seconds="median", low="min", high="max", mean="mean", std="std", processes="size")
    table["cv"] = table.pop("std") / table.pop("mean")
    table["each"], table["rounds"] = grouped["seconds"].agg(tuple), grouped["process"].agg(tuple)
    table["watched"], table["calm"] = grouped["watched"].all(), ~grouped["busy"].all()
    return table.reset_index()


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
