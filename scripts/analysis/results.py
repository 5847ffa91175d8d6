"""The loader: measurements and run records as one table of cells. All other tables are views of
it."""

import gc
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from cli import UserError
from pandas import Categorical, DataFrame, concat
from store import files
from store.frames import (
    CELL_PARAMETERS,
    MEASURED,
    Cell,
    Parameter,
    Process,
    check_frame,
    frame_columns,
    rows_of,
)
from store.schema import UNKNOWN, RunRecord, columns_of, latest_files
from toolchains import ledger

from benchmarks.contracts import Route

from .suite import Benchmarks, ResultPart, cells_in, declared_in, read_result


def where(rows: DataFrame, **values: object) -> DataFrame:
    """Select the rows with these values, or one of several; "" matches any."""
    for name, value in values.items():
        several = value if isinstance(value, list | tuple) else [value]
        rows = rows if value == "" else rows[rows[name].isin(several)]
    return rows


# Files from which on two processes read them; starting one takes as long as four files
MIN_SHARED_FILES = 8
# Types of columns whose parts may be empty, and then have none
DTYPES = {"result": int, "place": int} | dict.fromkeys(("value", "low", "high"), float)
DTYPES |= {column.name: float for column in columns_of(Process).values() if column.type is float}


@dataclass(frozen=True, eq=False)  # == of tables gives no bool
class Results:
    """Results of one or more runs.

    cells      one row per machine, toolchain and cell: ``Cell``
    processes  one row per process of a timed cell: ``Process``
    runs       the run records, oldest first
    benchmarks the entries of benchmarks.json
    parameters the columns that are parameters
    cell_parameters  cell -> its parameters, by name, in the order of its benchmark
    unknown    (file, benchmark) -> number of figures of cells that benchmarks.json does not
               describe (any more)
    """

    cells: DataFrame
    processes: DataFrame
    runs: list[RunRecord]
    benchmarks: Benchmarks
    parameters: Sequence[str]
    cell_parameters: Mapping[str, Mapping[str, Parameter]]
    unknown: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @cached_property
    def timed(self) -> DataFrame:
        """The cells that have a time."""
        return self.cells[self.cells["seconds"].notna()]

    @cached_property
    def values(self) -> DataFrame:
        """The cells that were counted (track_*)."""
        return self.cells[self.cells["value"].notna()]

    @cached_property
    def missing(self) -> DataFrame:
        """The cells that failed or were skipped."""
        return self.cells[self.cells["status"] != MEASURED]

    @cached_property
    def contracts(self) -> Mapping[tuple[str, str], Route]:
        """(direction, route) -> contract."""
        return {
            (contract.direction, route): contract
            for declared in self.benchmarks.values()
            for route, contract in declared.contracts.items()
        }

    def of_role(self, table: DataFrame, *roles: str) -> DataFrame:
        """Select the rows of benchmarks with one of these roles."""
        names = [name for name, declared in self.benchmarks.items() if declared.role in roles]
        return where(table, benchmark=names)

    def of_file(self, file: str) -> "Results":
        """Select the data of one result."""
        return replace(
            self,
            cells=where(self.cells, file=file),
            processes=where(self.processes, file=file),
            runs=[record for record in self.runs if record.file == file],
            unknown={key: figures for key, figures in self.unknown.items() if key[0] == file},
        )

    def sessions_of(self, file: str) -> list[RunRecord]:
        """Return the runs with timed processes in a result, and later runs that only counted,
        oldest first."""
        own = self.of_file(file)
        timed = {*own.processes["run"]}
        since = max(timed, default="")
        return [
            record
            for record in own.runs
            if record.started in timed
            or (record.started > since and not (record.samples or record.failed))
        ]

    def version_changes(self, rows: DataFrame) -> list[bool]:
        """Return, for each benchmark and version in these rows, whether the benchmark now has
        another version."""
        versions = rows_of(rows[["benchmark", "version"]].drop_duplicates())
        return [self.benchmarks[row.benchmark].version != row.version for row in versions]

    @property
    def quiet(self) -> list[float]:
        """Share of quiet time of each run that took times; runs that did not record it are left
        out."""
        timed = set(self.processes["run"])
        return [run.quiet for run in self.runs if run.started in timed and run.quiet is not None]

    @property
    def quiet_share(self) -> float | None:
        """The lowest share of ``quiet``; None if no run recorded it."""
        return min(self.quiet, default=None)

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
    machines = files.machines(results)
    if machine not in (None, *machines):
        raise UserError(f"{results} holds no results of {machine}; it knows {', '.join(machines)}")
    return files.result_files(results, machine)


def newest(runs: Mapping[Path, Sequence[RunRecord]]) -> list[Path]:
    """Return the results whose runs measured something, first the one that a page is about (see
    ``latest_files``)."""
    paths = {files.result_name(path): path for path in runs}
    dated = sorted(itertools.chain(*runs.values()), key=lambda record: record.started)
    return [paths[file] for file in latest_files(dated)]


def select_results(results: Path, machine: str) -> tuple[list[Path], list[str]]:
    """Return the results on a machine's pages, and the toolchains of the others. Pages show the
    releases along a history, the two most recent runs made for their own sake (see ``newest``), and
    results without a run record."""
    runs = {path: files.read_records(path) for path in _paths(results, machine)}
    recent = newest(runs)[:2]
    releases = ledger.toolchains_by_tag()
    left_out = {
        path: records[-1].toolchain.tag
        for path, records in runs.items()
        if records and path not in recent and records[-1].toolchain.tag not in releases
    }
    return [path for path in runs if path not in left_out], [*left_out.values()]


def load_files(results: Path, paths: Sequence[Path], run: str = "") -> Results:
    """Load these files of a results directory; see ``load``.

    run  load times of the run that started then; "": of all runs
    """
    suite = _read_suite(results / files.BENCHMARKS)
    parts = _read_all(paths, suite, run)
    processes = _joined(part.processes for part in parts)
    processes = processes.sort_values(["result", "place", "process"], ignore_index=True)
    counts = _joined(part.counts for part in parts).assign(status=MEASURED)
    missing = _joined(part.missing for part in parts)
    cells = concat([_timed_cells(processes), counts, missing])
    if cells.empty:
        raise UserError(f"{results} holds no figures; python scripts/run.py makes some")
    cells = cells.sort_values(["result", "place"], ignore_index=True)
    processes = _with_names(processes, parts, suite.cells)
    cells = _with_instructions(_with_names(cells, parts, suite.cells).astype({"version": str}))
    cells = _with_stop_reasons(cells, parts)
    parameters = _measured_parameters(suite.benchmarks, cells)
    records = itertools.chain(*(part.records for part in parts))
    return Results(
        cells=check_frame(cells[frame_columns(Cell, parameters)], Cell, parameters),
        processes=check_frame(processes[frame_columns(Process, parameters)], Process, parameters),
        runs=sorted(records, key=lambda record: record.started),
        benchmarks=suite.benchmarks,
        parameters=parameters,
        cell_parameters=suite.cell_parameters,
        unknown=_unknown_cells(parts),
    )


class Suite(NamedTuple):
    """The benchmarks that a benchmarks.json describes, and their cells: see ``cells_in``."""

    benchmarks: Benchmarks
    cells: DataFrame
    cell_parameters: Mapping[str, Mapping[str, Parameter]]


def _read_suite(path: Path) -> Suite:
    """Read a benchmarks.json once, as a comparison loads three times what one file describes."""
    return _parse_suite(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=2)
def _parse_suite(path: Path, _written: int) -> Suite:
    benchmarks = declared_in(files.read_json(path))
    return Suite(benchmarks, *cells_in(benchmarks))


def _unknown_cells(parts: Sequence[ResultPart]) -> dict[tuple[str, str], int]:
    """File and name -> the cells that benchmarks.json does not have."""
    return {
        (part.labels["file"], name): count for part in parts for name, count in part.unknown.items()
    }


def _measured_parameters(benchmarks: Benchmarks, cells: DataFrame) -> list[str]:
    """Return the parameters that are columns of tables: those of all tables, and those of single
    families that were measured."""
    declared_names = itertools.chain(*(declared.param_names for declared in benchmarks.values()))
    names = dict.fromkeys([*CELL_PARAMETERS, *declared_names])
    return [name for name in names if name in CELL_PARAMETERS or cells[name].notna().any()]


def _read_all(paths: Sequence[Path], suite: Suite, run: str) -> list[ResultPart]:
    """Read results, in two processes if they are many."""
    read = partial(
        read_result,
        places={cell: place for place, cell in enumerate(suite.cell_parameters)},
        timing={name for name, declared in suite.benchmarks.items() if declared.type == "time"},
        run=run,
    )
    if len(paths) < MIN_SHARED_FILES:
        return list(map(read, paths))
    from concurrent.futures import ProcessPoolExecutor  # 35 ms, seldom needed

    # lines are many small lists without cycles: the cycle collector took a tenth of the time
    with ProcessPoolExecutor(2, initializer=gc.disable) as readers:
        return list(readers.map(read, paths, chunksize=4))


def _joined(tables: Iterable[DataFrame]) -> DataFrame:
    """Join a table of each result, with the number of the result."""
    numbered = [table.assign(result=number) for number, table in enumerate(tables)]
    # an empty table has no types, and would change those of the whole in pandas 2
    filled = [table for table in numbered if len(table)] or numbered[:1]
    table = concat(filled, ignore_index=True)
    return table.astype({name: dtype for name, dtype in DTYPES.items() if name in table})


def _timed_cells(processes: DataFrame) -> DataFrame:
    """Return one row per result and timed cell."""
    # pandas compares texts one by one, and ordered categories by their codes
    runs = Categorical(processes["run"], ordered=True)
    by_cell = processes.assign(run=runs).groupby(["result", "place"], sort=False)
    seconds = by_cell["seconds"]
    cells = seconds.agg(seconds="median", low="min", high="max", processes="size")
    cells["cv"] = seconds.std() / seconds.mean()
    cells["quiet"] = by_cell["quiet"].any()
    cells["run"] = by_cell["run"].max().astype(processes["run"].dtype)
    for name in set(frame_columns(Cell)).intersection(processes).difference(by_cell.keys, cells):
        cells[name] = by_cell[name].median()
    return cells.reset_index().assign(status=MEASURED)


def _with_names(table: DataFrame, parts: Sequence[ResultPart], suite: DataFrame) -> DataFrame:
    """Add the columns of each row's result and cell to a table."""
    labels = DataFrame([part.labels for part in parts]).astype("category")
    of_file = labels.take(table["result"]).reset_index(drop=True)
    of_cell = suite.take(table["place"]).reset_index(drop=True)
    versions = [
        parts[result].versions.get(name, "")
        for result, name in zip(table["result"], of_cell["benchmark"])
    ]
    named = concat([of_file, of_cell, table], axis=1)
    return named.assign(version=Categorical(versions))


def _with_stop_reasons(cells: DataFrame, parts: Sequence[ResultPart]) -> DataFrame:
    """Give the measured cells the reason why their last run took fewer processes than planned."""
    reasons = {
        (record.started, cell): reason
        for part in parts
        for record in part.records
        for reason, stopped in record.stopped.items()
        for cell in stopped
    }
    of_cells = [reasons.get(key) for key in zip(cells["run"], cells["cell"])]
    return cells.assign(reason=cells["reason"].where(cells["reason"].notna(), of_cells))


def _with_instructions(cells: DataFrame) -> DataFrame:
    """Add the instruction counts of the same call to the cells of plain conversions."""
    call = ["result", "direction", "route", "dtype", "nbytes"]
    counts = where(cells, family="instructions").drop_duplicates(call).set_index(call)["value"]
    plain = where(cells, family="conversion")[call]
    return cells.assign(instructions=plain.join(counts, on=call)["value"])


def parameters_of(table: DataFrame, results: Results) -> list[dict[str, Parameter]]:
    """Return the parameters of each row: name -> value, in the order of its benchmark."""
    return [dict(results.cell_parameters[cell]) for cell in table["cell"]]
