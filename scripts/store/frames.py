"""The rows of tables. ``check_frame`` holds a table against its declaration where it is made.

The columns of results.csv, their order and their meaning are those of ``Cell``.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import pandas as pd

from .quiet import QUANTILE
from .schema import CSV_ONLY, INTERNAL, OPTIONAL, PARAMETER, about, columns_of

MEASURED, FAILED, SKIPPED = "measured", "failed", "skipped"  # values of a cell's status
FIGURE_DEFINITION = f"the {QUANTILE:.0%} quantile of its quiet samples".replace("%", " %")
# Kinds of NumPy's dtypes that a declared type may have; any other type is held as objects
KINDS: Mapping[Any, str] = {float: "fiu", int: "iu", bool: "b", bool | None: "bO"}

_MACHINE = about(
    "name of the machine, and of the result, as in reports/results: there file.jsonl.gz has the "
    "processes with all samples"
)
_RELEASE = about(
    "of a toolchain of a history: the package whose release is meant, its version, the day of that "
    "release",
    note=CSV_ONLY,
)
_PACKAGE = about("of the toolchain")
_PARAMETERS = about(
    "parameters, empty if the benchmark has no such parameter; nbytes: bytes of the source; memory: "
    "of the host, in transfers",
    note=PARAMETER,
)
_ROUTE = about(
    "of the route: what it converts, and what its contract promises for that dtype: alias, copy or "
    "into"
)
_STATUS = about("measured, failed or skipped, and why there is no figure")
_RANGE = about(
    "the least and the most of the processes that timed or counted it; their coefficient of variation"
)
_VALUE = about("of what was counted")


class _Labels(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a cell, its parameters, and the result that it is of."""

    machine: Annotated[str, _MACHINE]
    file: Annotated[str, _MACHINE]
    commit: Annotated[str, about("of the toolchain in the ledger", note=INTERNAL)]
    toolchain: Annotated[str, about("its tag in the ledger", note=INTERNAL)]
    history: Annotated[str, _RELEASE]
    release: Annotated[str, _RELEASE]
    released: Annotated[str, _RELEASE]
    torch: Annotated[str, _PACKAGE]
    numpy: Annotated[str, _PACKAGE]
    python: Annotated[str, _PACKAGE]
    benchmark: Annotated[
        str,
        about(
            "asv's name, module.Class.method; with the parameters in brackets it is the name of the "
            "cell"
        ),
    ]
    family: Annotated[str, about("module of the benchmark", note=INTERNAL)]
    group: Annotated[str, about("class of the benchmark", note=INTERNAL)]
    method: Annotated[str, about("method of the benchmark", note=INTERNAL)]
    cell: Annotated[str, about("asv's name of the cell", note=INTERNAL)]
    route: Annotated[str, _PARAMETERS]
    dtype: Annotated[str, _PARAMETERS]
    nbytes: Annotated[float, _PARAMETERS]
    layout: Annotated[str, _PARAMETERS]
    threads: Annotated[str, _PARAMETERS]
    memory: Annotated[str, _PARAMETERS]
    statement: Annotated[str, _PARAMETERS]
    direction: Annotated[str, _ROUTE]
    contract: Annotated[str, _ROUTE]
    version: Annotated[str, about("of the measurement: figures of different ones do not compare")]


class Cell(_Labels, frozen=True, kw_only=True):
    """A cell of a result: timed, counted, or without a figure (analysis/results.py)."""

    status: Annotated[str, _STATUS]
    reason: Annotated[str, _STATUS]
    seconds: Annotated[
        float,
        about(
            f"of what was timed: median over the processes, each by {FIGURE_DEFINITION}, in seconds "
            "per call",
            "s",
        ),
    ]
    low: Annotated[float, _RANGE]
    high: Annotated[float, _RANGE]
    cv: Annotated[float, _RANGE]
    processes: Annotated[float, about("that measured the cell")]
    quiet: Annotated[
        bool | None, about("False where no process was quiet: seconds is an upper bound")
    ]
    value: Annotated[float, _VALUE]
    unit: Annotated[str, _VALUE]
    instructions: Annotated[
        float, about("of one call of the same route, dtype and size, where they were counted")
    ]


class Process(_Labels, frozen=True, kw_only=True):
    """A process of a timed cell (analysis/results.py). A cell with quiet processes has only these; a
    cell without has only its fastest sample."""

    process: Annotated[int, about("its round; those of later runs are numbered on")]
    round: Annotated[int, about("its round in its run")]
    seconds: Annotated[float, about(f"its figure: {FIGURE_DEFINITION}, per call", "s")]
    samples: Annotated[int, about("their planned number")]
    quiet: Annotated[bool, about("whether it was quiet")]
    run: Annotated[str, about("when its run began")]
    beside: Annotated[dict[str, float], about("part timed in turns with it -> its figure", "s")]
    baseline: Annotated[
        float, about("of the probes to which its figure is corrected; NaN if it is not", "ns")
    ]


def parameter_names(row: type) -> list[str]:
    """Return the columns that are parameters of benchmarks."""
    return [column.name for column in columns_of(row).values() if column.note == PARAMETER]


CELL_PARAMETERS = parameter_names(Cell)


def frame_columns(row: type, parameters: Iterable[str] = ()) -> list[str]:
    """Return the columns of a table, in order. parameters: further ones, of single families."""
    names = [column.name for column in columns_of(row).values() if column.note != CSV_ONLY]
    return [*names, *(name for name in parameters if name not in names)]


def csv_columns(row: type, parameters: Sequence[str] = ()) -> dict[tuple[str, ...], str]:
    """Return the meaning of the columns of a CSV file, in order. Neighbours with one meaning are
    together. parameters: further ones, of single families."""
    declared = [column for column in columns_of(row).values() if column.note != INTERNAL]
    groups = itertools.groupby(declared, key=lambda column: column.meaning)
    columns = {tuple(column.name for column in group): meaning for meaning, group in groups}
    names = [column.name for column in declared]
    if others := tuple(name for name in parameters if name not in names):
        columns[others] = "parameters of single families"
    return columns


def check_frame(frame: pd.DataFrame, row: type, parameters: Iterable[str] = ()) -> pd.DataFrame:
    """Return the table. TypeError, which names the column, if one is missing, is not declared, or has
    another type. parameters: columns of parameters of single families."""
    declared = columns_of(row)
    needed = {name for name, column in declared.items() if column.note not in (OPTIONAL, CSV_ONLY)}
    for name in sorted(needed.difference(frame)):
        raise TypeError(f"a table of {row.__name__} has no column {name}")
    for name in frame:
        column = declared.get(name)
        if column is None and name not in parameters:
            raise TypeError(f"a table of {row.__name__} has an undeclared column {name}")
        if column is None or column.note == PARAMETER:  # of the benchmark's own type
            continue
        values = frame[name]
        # a column without values has the type of its NaN
        if values.dtype.kind not in KINDS.get(column.type, "O") and values.notna().any():
            wanted = getattr(column.type, "__name__", column.type)
            raise TypeError(
                f"column {name} of a table of {row.__name__} holds {values.dtype}, not {wanted}"
            )
    return frame
