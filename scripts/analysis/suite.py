"""The suite as benchmarks.json describes it: benchmarks with their declarations, and their cells.
One result of it as tables: its processes, counts and missing cells."""

import ast
import itertools
import math
import statistics
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
from cli import UserError
from pandas import DataFrame
from pandas.api.types import infer_dtype
from store import files, quiet
from store.asv_files import AsvFigures, AsvResult, read_asv
from store.files import PARSE_ERRORS, BrokenFile, harmless, version_number
from store.frames import FAILED, PROCESS_COLUMNS, SKIPPED, Cell, Parameter, Process, rows_of
from store.schema import (
    PARAMETER,
    Counts,
    Measurement,
    RunRecord,
    TimedProcess,
    Toolchain,
    cell_name,
    cell_names,
    columns_of,
    from_json,
)
from toolchains import ledger

from benchmarks.contracts import COPY, INTO, NONE, Family, Role, Route
from benchmarks.core.probes import MEMORY, PROCESSOR
from benchmarks.core.timing import LARGE

# Parameters in descriptions of before version 0.6 -> their names since
RENAMED = {"lying": "placement", "copied": "copy_order"}
MAX_CELLS = 100_000  # of a benchmark; ours have at most 2592
# Columns that every table has and no parameter may be called after. A parameter `direction` is the
# direction
RESERVED = {
    column.name
    for row in (Cell, Process)
    for column in columns_of(row).values()
    if column.note != PARAMETER and column.name != "direction"
}


Reasons = dict[str, tuple[str, str]]  # cell -> its status and reason
# Columns of processes that are fields of measurements, too, and have their values
FIELDS_OF_LINES = [name for name in PROCESS_COLUMNS if hasattr(TimedProcess, name)]


# --- the suite ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Declared(Family):
    """A benchmark. name, type, unit, param_names, params, version and sample_time [s] are asv's;
    values are in its spelling.

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
        """Return the values of a parameter, in asv's spelling; empty if the benchmark has no such
        parameter."""
        return dict(zip(self.param_names, self.params)).get(parameter, ())

    def nth(self, parameter: str, value: object) -> int:
        """Return the place of a value among those of a parameter: of a number itself, so that sizes
        ascend; else its index, or their number if it is not one of them."""
        if isinstance(value, int):
            return value
        spellings = self.listed(parameter)
        return spellings.index(repr(value)) if repr(value) in spellings else len(spellings)


Benchmarks = Mapping[str, Declared]  # by name


def declared_in(benchmarks: object) -> dict[str, Declared]:
    """Return the benchmarks of a benchmarks.json; UserError if it holds anything else."""
    if not isinstance(benchmarks, dict):
        raise UserError("benchmarks.json is not asv's: remove it or restore it from git")
    return {
        name: _declared(name, description)
        for name, description in benchmarks.items()
        if isinstance(description, dict)
    }


def _declared(name: str, description: object) -> Declared:
    try:
        declared = from_json(Declared, description)
        if declared.name != name:
            raise ValueError(f"its name is {declared.name}")
        names, values = len(declared.param_names), len(declared.params)
        if names != values:
            raise ValueError(f"{names} names of {values} parameters")
    except (TypeError, ValueError) as error:
        raise UserError(
            f"benchmarks.json says of {name} what this cannot read ({error}): remove it or restore "
            "it from git"
        ) from None
    return replace(
        declared,
        version=version_number(name, declared.version),
        param_names=tuple(RENAMED.get(each, each) for each in declared.param_names),
        reference={RENAMED.get(each, each): value for each, value in declared.reference.items()},
    )


def cells_in(benchmarks: Benchmarks) -> tuple[DataFrame, dict[str, dict[str, Parameter]]]:
    """Return one row per cell in benchmarks.json, in its order, with its names, parameters,
    contract and unit; and cell -> its parameters, by name, in the order of its benchmark.

    UserError if a parameter is called like a column, or its values cannot be read.
    """
    cell_parameters = {}
    rows = []
    for name, declared in benchmarks.items():
        columns = dict(zip(("family", "group", "method"), [*name.split("."), "", ""]))
        unit = declared.unit if declared.type != "time" else ""
        columns = {"benchmark": name, **columns, "unit": unit}
        combinations = itertools.product(*_parameter_values(declared))
        for cell, combination in zip(cell_names(name, declared.params), combinations):
            parameters = dict(zip(declared.param_names, combination))
            of_route = _route_columns(declared, parameters)
            rows.append({**columns, **parameters, "cell": cell, **of_route})
            cell_parameters[cell] = parameters
    table = DataFrame(rows, columns=[*dict.fromkeys([*_COLUMNS, *itertools.chain(*rows)])])
    complete = table.columns[table.notna().all()]
    texts = [name for name in complete if infer_dtype(table[name]) == "string"]
    return table.astype(dict.fromkeys(texts, "category")), cell_parameters


def _route_columns(declared: Declared, parameters: Mapping[str, object]) -> dict[str, str]:
    """Return the direction of a cell, and what its contract promises."""
    route, dtype, layout, direction = (
        str(parameters.get(name, "")) for name in ("route", "dtype", "layout", "direction")
    )
    contract = declared.contracts.get(route, NONE)
    return {
        "direction": contract.direction or declared.direction or direction,
        "contract": contract.memory_for(dtype, layout),
    }


_COLUMNS = ["cell", "benchmark", "family", "group", "method", "direction", "contract", "unit"]
_COLUMNS += [column.name for column in columns_of(Cell).values() if column.note == PARAMETER]


def _parameter_values(declared: Declared) -> list[list[Parameter]]:
    for parameter in declared.param_names:
        if parameter in RESERVED:
            raise UserError(
                f"{declared.name} has a parameter called {parameter}, as a column of every table "
                "is: rename it"
            )
    try:
        if math.prod(map(len, declared.params)) > MAX_CELLS:
            raise ValueError(f"more than {MAX_CELLS} cells")
        return [[_parameter_value(each) for each in values] for values in declared.params]
    except PARSE_ERRORS as error:
        raise UserError(
            f"benchmarks.json has other parameters of {declared.name} than this reads ({error})"
        ) from None


def _parameter_value(text: str) -> Parameter:
    """The value of a parameter in asv's spelling. ValueError if it is no literal."""
    try:
        return cast(Parameter, harmless(ast.literal_eval(text)))
    except ValueError:  # names an object of ast by its address
        raise ValueError(f"{text} is no literal") from None


def noise_of_cells(cells: DataFrame, benchmarks: Benchmarks) -> list[str]:
    """Return the noise class of each row: the one that the family declares; else memory if at least
    LARGE bytes move through it; else alias, copy or into; else the benchmark's family. ``cells``
    has the columns benchmark, contract, nbytes and family.

    On a virtual machine of Zen 4, with 26 toolchains measured twice, 7 hours apart, 90 % of figures
    differ by at most 21 % for copies of 16 MiB, by 2.1 % for smaller copies, by 2.3 % for shared
    memory (scripts/check.py history).
    """
    names = []
    columns = cells[["benchmark", "contract", "nbytes", "family"]]
    for name, memory, nbytes, family in rows_of(columns):
        declared = benchmarks[name]
        moves = memory in (COPY, INTO) or declared.role == Role.MEMCPY
        through_memory = moves and nbytes >= LARGE  # of no size: false
        names.append(declared.noise or (MEMORY if through_memory else memory) or family)
    return names


# --- one result -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResultPart:
    """Data of one result, read in a process of its own. ``place`` is that of a row's cell in the
    suite.

    labels     columns that all its rows share
    versions   of its benchmarks
    processes  one row per process that figures rest on, with its place
    counts     one row per counted cell: place, value (median of its counts), low and high if
               several
    missing    one row per cell without a figure: place, status, reason
    unknown    benchmark -> number of figures of cells that are not in the suite
    """

    labels: Mapping[str, str]
    records: Sequence[RunRecord]
    versions: Mapping[str, str]
    processes: DataFrame
    counts: DataFrame
    missing: DataFrame
    unknown: Counter[str]


def read_result(
    path: Path, places: Mapping[str, int], timing: Collection[str], run: str = ""
) -> ResultPart:
    """Read a result. UserError if a file of it is broken.

    places  of the suite's cells
    timing  benchmarks that are timed
    run     read times of the run that started then; "": of all runs
    """
    records = files.read_records(path)
    measured = files.read_measurements(path)
    benchmark_of = {line.cell: line.benchmark for line in measured}
    asv = read_asv(path)
    try:
        rows = asv.figures()
        by_hand, reasons = _by_hand(rows, benchmark_of, timing)
    except PARSE_ERRORS as error:
        raise BrokenFile(path, f"is not a result of this suite ({error})") from None
    lines = [*measured, *by_hand]
    benchmark_of |= {line.cell: line.benchmark for line in by_hand}
    lines = [line for line in lines if run in ("", line.run) or isinstance(line, Counts)]
    reasons |= _recorded_reasons(records)
    with files.reading(files.sibling(path, files.MEASUREMENTS)):
        return ResultPart(
            labels=_labels(path, asv, records),
            records=records,
            versions=_versions(rows, measured),
            processes=timed_processes(lines, places, records),
            counts=_counted_cells(lines, places),
            missing=_missing_cells(reasons, places, rows, benchmark_of),
            unknown=Counter(name for cell, name in benchmark_of.items() if cell not in places),
        )


def _labels(path: Path, asv: AsvResult, records: Sequence[RunRecord]) -> dict[str, str]:
    """Return the columns that all rows of a result share."""
    toolchain = records[-1].toolchain if records else _toolchain_of(asv.commit_hash)
    return {
        "machine": asv.params.machine,
        "file": files.result_name(path),
        "commit": asv.commit_hash,
        "toolchain": toolchain.tag,
        "torch": toolchain.torch,
        "numpy": toolchain.numpy,
        "python": asv.python,
    }


def _versions(rows: Mapping[str, AsvFigures], measured: Iterable[Measurement]) -> dict[str, str]:
    """Return the versions of a result's benchmarks."""
    versions = {name: version_number(name, row.version) for name, row in rows.items()}
    return versions | {line.benchmark: line.version for line in measured}


def _missing_cells(
    reasons: Reasons,
    places: Mapping[str, int],
    benchmarks: Collection[str],
    measured: Collection[str],
) -> DataFrame:
    """Return one row per cell of the suite and of these benchmarks that has a reason, and no
    figure."""
    rows = [
        (places[cell], *reason)
        for cell, reason in reasons.items()
        if cell in places and cell not in measured and cell.partition("(")[0] in benchmarks
    ]
    return DataFrame(rows, columns=["place", "status", "reason"])


def _recorded_reasons(records: Sequence[RunRecord]) -> Reasons:
    """The last record that names a cell has the reason."""
    reasons: Reasons = {}
    for record in records:
        for status, cells_by_reason in ((SKIPPED, record.skipped), (FAILED, record.failures)):
            for reason, cells in cells_by_reason.items():
                reasons |= dict.fromkeys(cells, (status, reason))
    return reasons


def _toolchain_of(commit: str) -> Toolchain:
    """Return the toolchain of a commit measured by running asv by hand; only its hash outside the
    histories."""
    found = ledger.toolchains_by_commit().get(commit)
    if not found:
        return Toolchain(commit[:8])
    return Toolchain(found.tag, found.torch, found.numpy, found.python)


def timed_processes(
    lines: Sequence[Measurement], places: Mapping[str, int], records: Sequence[RunRecord]
) -> DataFrame:
    """Return one row per process that figures rest on."""
    rows = []
    for cell, processes in quiet.select_processes(lines, records).items():
        for number, (run, index) in processes.items() if cell in places else ():
            line = run.lines[index]
            is_corrected = not math.isnan(run.slowdown[index])
            rows.append(
                {name: getattr(line, name) for name in FIELDS_OF_LINES}
                | {
                    "place": places[cell],
                    "process": number,
                    "seconds": run.figures[index],
                    "samples": line.wanted,
                    "quiet": run.quiet[index],
                    "beside": {
                        part: float(np.quantile(seconds, quiet.QUANTILE))
                        for part, seconds in line.parts.items()
                    },
                    "baseline": run.baselines[PROCESSOR] if is_corrected else math.nan,
                    "turns": undisturbed_samples(line) if line.in_turns else (),
                }
            )
    return DataFrame(rows, columns=["place", *PROCESS_COLUMNS])


def undisturbed_samples(line: TimedProcess) -> tuple[float, ...]:
    """Return the samples of a process, NaN where it lost the processor meanwhile."""
    disturbed = {*line.disturbed}
    return tuple(math.nan if k in disturbed else each for k, each in enumerate(line.seconds))


def _counted_cells(lines: Sequence[Measurement], places: Mapping[str, int]) -> DataFrame:
    """Return one row per counted cell: the median of its counts, and their range if there are
    several. The last line of a cell counts."""
    counts = {line.cell: line for line in lines if isinstance(line, Counts)}
    rows = []
    for cell, line in counts.items():
        if cell in places:
            values = line.values
            low, high = (min(values), max(values)) if len(values) > 1 else (math.nan, math.nan)
            rows.append((places[cell], statistics.median(values), low, high, line.functions))
    return DataFrame(rows, columns=["place", "value", "low", "high", "functions"])


def _by_hand(
    rows: Mapping[str, AsvFigures], measured: Collection[str], timing: Collection[str]
) -> tuple[list[TimedProcess | Counts], Reasons]:
    """Return figures in asv's file that no run measured (asv was run by hand), each as a line of
    measurements with one sample or count; and the status and reason of cells that failed there."""
    lines = []
    failed = {}
    for name, row in rows.items():
        count = math.prod(map(len, row.params))  # checked first: a short file can name billions
        if count > MAX_CELLS or len(row.result) not in (0, count):
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
    if not is_time:
        return Counts(
            run="", round=0, benchmark=name, params=params, version="", at=0.0, values=(value,)
        )
    return TimedProcess(
        run="",
        round=0,
        benchmark=name,
        params=params,
        version="",
        at=0.0,
        wanted=1,
        number=1,
        seconds=(value,),
        disturbed=(),
        probes={},
        waits=(),
        waiting=(),
        waited=0.0,
        took=0.0,
    )
