"""The rows of tables. ``check_frame`` holds a table against its declaration where it is made.

The columns of results.csv, their order and their meaning are those of ``Cell``.
"""

import functools
import itertools
from collections import namedtuple
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pandas import DataFrame

from benchmarks.contracts import Route

from .quiet import QUANTILE, Bools, Floats
from .schema import CSV_ONLY, INTERNAL, OPTIONAL, PARAMETER, TimedProcess, about, columns_of

MEASURED, FAILED, SKIPPED = "measured", "failed", "skipped"  # values of a cell's status
FIGURE_DEFINITION = f"the {QUANTILE:.0%} quantile of its quiet samples".replace("%", " %")
# Kinds of NumPy's dtypes that a declared type may have; any other type is held as objects
KINDS: Mapping[object, str] = {float: "fiu", int: "iu", bool: "b", bool | None: "bO"}
Parameter = str | int  # a value of a benchmark's parameter

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
    "parameters, empty if the benchmark has no such parameter; nbytes: bytes of the source; "
    "memory: of the host, in transfers",
    note=PARAMETER,
)
_ROUTE = about(
    "of the route: what it converts, and what its contract promises for that dtype: alias, copy or "
    "into"
)
_STATUS = about(
    "measured, failed or skipped; why there is no figure, or why fewer processes than planned"
)
_RANGE = about(
    "the least and the most of the processes that timed or counted it; their coefficient of "
    "variation"
)
_VALUE = about("of what was counted")


class _Labels:
    """The names of a cell, its parameters, and the result that it is of."""

    machine: str = _MACHINE
    file: str = _MACHINE
    commit: str = about("of the toolchain in the ledger", note=INTERNAL)
    toolchain: str = about("its tag in the ledger", note=INTERNAL)
    history: str = _RELEASE
    release: str = _RELEASE
    released: str = _RELEASE
    torch: str = _PACKAGE
    numpy: str = _PACKAGE
    python: str = _PACKAGE
    benchmark: str = about(
        "asv's name, module.Class.method; with the parameters in brackets it is the name of "
        "the cell"
    )
    family: str = about("module of the benchmark", note=INTERNAL)
    group: str = about("class of the benchmark", note=INTERNAL)
    method: str = about("method of the benchmark", note=INTERNAL)
    cell: str = about("asv's name of the cell", note=INTERNAL)
    route: str = _PARAMETERS
    dtype: str = _PARAMETERS
    nbytes: float = _PARAMETERS
    layout: str = _PARAMETERS
    threads: str = _PARAMETERS
    memory: str = _PARAMETERS
    statement: str = _PARAMETERS
    direction: str = _ROUTE
    contract: str = _ROUTE
    version: str = about("of the measurement: figures of different ones do not compare")


class Cell(_Labels):
    """A cell of a result: timed, counted, or without a figure (analysis/results.py)."""

    lines = TimedProcess
    status: str = _STATUS
    reason: str = _STATUS
    seconds: float = about(
        f"of what was timed: median over the processes, each by {FIGURE_DEFINITION}, in "
        "seconds per call",
        "s",
    )
    low: float = _RANGE
    high: float = _RANGE
    cv: float = _RANGE
    processes: float = about("that measured the cell")
    quiet: bool | None = about("False where no process was quiet: seconds is an upper bound")
    value: float = _VALUE
    unit: str = _VALUE
    functions: dict[str, int] = about(
        "of a count of instructions: library:function -> its own", note=INTERNAL
    )
    instructions: float = about(
        "of one call of the same route, dtype and size, where they were counted"
    )


class Process(_Labels):
    """A process of a timed cell (analysis/results.py). A cell with quiet processes has only these;
    a cell without has only its fastest sample."""

    lines = TimedProcess
    process: int = about("its round; those of later runs are numbered on")
    round: int = about("its round in its run")
    seconds: float = about(f"its figure: {FIGURE_DEFINITION}, per call", "s")
    samples: int = about("their planned number")
    quiet: bool = about("whether it was quiet")
    run: str = about("when its run began")
    beside: dict[str, float] = about("part timed in turns with it -> its figure", "s")
    baseline: float = about(
        "of the probes to which its figure is corrected; NaN if it is not", "ns"
    )
    turns: tuple[float, ...] = about(
        "its samples, if the other side took one after each; NaN where it was disturbed", "s"
    )


class TimedCell:
    """A timed cell with its contract and the evidence of its processes (analysis/cells.py)."""

    benchmark: str = about("asv's name: module.Class.method")
    cell: str = about("asv's name of the cell")
    family: str = about("module of the benchmark")
    role: str = about("further use of its figures: contracts.Role")
    method: str = about('what is timed: "completion" of timeit_completion')
    declared: Any = about("its entry in benchmarks.json: analysis.suite.Declared")
    parameters: dict[str, Parameter] = about("name -> value, in the order of the benchmark")
    down: str = about("parameter whose values are rows of tables and lines of panels")
    route: str = about("the route; empty if it has none, as all parameters")
    dtype: str = about("dtype of the source")
    layout: str = about("layout of the source")
    threads: str = about("torch threads")
    host: str = about("memory at the host's end of a transfer")
    nbytes: int = about("size of the source; 0 if it has none", "bytes")
    direction: str = about("of the route")
    contract: Route = about("of the route")
    order: int = about("of the route in the catalogue")
    memory: str = about("alias, copy or into, for this dtype and layout")
    keeps: bool = about("whether the result has the source's dtype")
    safe: bool = about("whether the route is safe")
    non_blocking: bool = about("whether the call may return before the bytes arrive")
    device: bool = about("whether an accelerator takes part")
    arrays: int = about("number of arrays in the source; 0: a single array")
    array: bool = about("whether the host's end of a transfer is an array")
    casts_to: str = about("dtype of every result; empty: that of the source")
    spread: bool = about(
        "whether torch spreads it over its threads: then the time on one thread does not hold "
        "for several"
    )
    credible: bool = about(
        "whether memory could move bytes at that rate; checked for transfers waited for"
    )
    seconds: float = about("median over the figures of its processes", "s")
    low: float = about("least of its processes", "s")
    high: float = about("most of its processes", "s")
    cv: float = about("their coefficient of variation")
    processes: int = about("their number")
    quiet: bool = about("whether any was quiet; else seconds is an upper bound")
    noise: str = about("noise class")
    mean: float = about("of log seconds of its processes")
    n: float = about("number of processes with a figure")
    variance: float = about("of log seconds, without the effect shared in a round")
    df: float = about("degrees of freedom of the variance; 0 if it is not known")
    shared: float = about("variance of the effect that cells share in a round")
    shared_df: float = about("degrees of freedom of that variance")
    present: Bools = about("rounds with a process: an array of bool")
    shares: Floats = about("shares of its processes, per run: an array")
    guessed: bool = about("whether its variance is of its own few processes alone")
    within: float = about(
        "log seconds around seconds, for most further processes; 0 where it is not quiet"
    )
    excess_limit: float = about(
        "relative: a route that ties and takes at most this longer than the fastest may be "
        "recommended"
    )


class Choice(TimedCell):
    """A route for a need at a size (analysis/needs.py): a timed cell and its rank."""

    goal: str = about("wanted dtype; empty: that of the source")
    grad: bool = about("whether the source requires grad")
    enqueue: bool = about("whether it is ranked by enqueue time")
    need: Any = about("the need: analysis.needs.Need")
    number: int = about("of the need")
    part: int = about("of the answer: neighbouring sizes with the same best routes")
    kind: str = about("one of analysis.ranking.KINDS")
    leads: bool = about("whether it is the best, or the fastest with a condition")
    ratio: float = about("of its seconds to those of the best route at that size")
    slow: bool = about("whether it takes several times as long as the best")


_SERIES = about("the release, its day, and the release before it in this series")
_TIMED = "what was timed, then its parameters"
_POINT = about("seconds or instructions, with a 95 % interval")
_EFFECT = about("where a level begins: new over old, and the evidence")
_INTERVAL = about("the releases between which the change lies (95 %)")
_NODES = about("nodes that show the change, and that do not", note=OPTIONAL)


class Change:
    """A point of a series at a release, and the change of level that begins there, if one does
    (analysis/history.py)."""

    package: str = _SERIES
    release: str = _SERIES
    date: str = _SERIES
    before: str = _SERIES
    machine: str = about("where it was measured")
    files: tuple[str, ...] = about(
        "results of the release in reports/results: file.jsonl.gz has the processes with all "
        "samples",
        note=CSV_ONLY,
    )
    what: str = about("time or instructions")
    series: str = about("identifies the series", note=INTERNAL)
    cell: str = about("asv's name of the cell, of the smallest size", note=INTERNAL)
    group: str = about("class of the benchmark", note=INTERNAL)
    direction: str = about("of the route", note=INTERNAL)
    contract: str = about("what the route promises for the dtype", note=INTERNAL)
    noise: str = about("noise class", note=INTERNAL)
    benchmark: str = about(_TIMED)
    route: str = about(_TIMED, note=PARAMETER)
    dtype: str = about(_TIMED, note=PARAMETER)
    nbytes: float = about(_TIMED, "bytes", note=PARAMETER)
    layout: str = about(_TIMED, note=PARAMETER)
    threads: str = about(_TIMED, note=PARAMETER)
    memory: str = about(_TIMED, note=PARAMETER)
    statement: str = about(_TIMED, note=PARAMETER)
    version: str = about("of the benchmark: figures of different ones do not compare")
    sizes: tuple[int, ...] = about(
        "bytes; a route that shares memory costs the same at every size, and is one series",
        "bytes",
    )
    processes: int = about("quiet processes, of several sizes one per round; 0 for instructions")
    value: float = _POINT
    low: float = _POINT
    high: float = _POINT
    level: float = about("the value between two changes")
    verdict: str = _EFFECT
    ratio: float = _EFFECT
    ratio_low: float = _EFFECT
    ratio_high: float = _EFFECT
    q: float = _EFFECT
    earliest: str = _INTERVAL
    latest: str = _INTERVAL
    evidence: str = about("what instructions say of time, and time of them")
    because: object = about(
        "of a change of instructions: its size, and the functions (library:function) that gained "
        "or lost most",
        note=OPTIONAL,
    )
    nodes_with: str = _NODES
    nodes_without: str = _NODES
    control: bool = about("True for work that a release should not change")


@functools.cache
def row_type(columns: tuple[str, ...]) -> type[Any]:
    """The type of the rows of tables with these columns."""
    return namedtuple("Row", columns, rename=True)  # type: ignore[misc]


def rows_of(table: DataFrame) -> list[Any]:
    """Return the rows of a table, whose columns are attributes. DataFrame.itertuples gives the same
    with the index, and takes longer: it makes a new type at each call."""
    values = [column.tolist() for _, column in table.items()]
    return [*map(row_type(tuple(table.columns))._make, zip(*values))]


def parameter_names(row: type) -> list[str]:
    """Return the columns that are parameters of benchmarks."""
    return [column.name for column in columns_of(row).values() if column.note == PARAMETER]


CELL_PARAMETERS = parameter_names(Cell)
PROCESS_COLUMNS = [name for name in columns_of(Process) if name not in columns_of(_Labels)]


def frame_columns(row: type, parameters: Iterable[str] = ()) -> list[str]:
    """Return the columns of a table, in order. parameters: further ones, of single families."""
    names = [column.name for column in columns_of(row).values() if column.note != CSV_ONLY]
    return [*names, *(name for name in parameters if name not in names)]


def csv_columns(
    row: type, parameters: Sequence[str] = (), absent: Collection[str] = ()
) -> dict[tuple[str, ...], str]:
    """Return the meaning of the columns of a CSV file, in order. Neighbours with one meaning are
    together. parameters: further ones, of single families. absent: declared ones to leave out."""
    declared = [
        column
        for column in columns_of(row).values()
        if column.note != INTERNAL and column.name not in absent
    ]
    groups = itertools.groupby(declared, key=lambda column: column.meaning)
    columns = {tuple(column.name for column in group): meaning for meaning, group in groups}
    names = [column.name for column in declared]
    if others := tuple(name for name in parameters if name not in names):
        columns[others] = "parameters of single families"
    return columns


def check_frame(frame: DataFrame, row: type, parameters: Iterable[str] = ()) -> DataFrame:
    """Return the table. TypeError, which names the column, if one is missing, is not declared, or
    has another type. parameters: columns of parameters of single families."""
    declared = columns_of(row)
    table = f"a table of {row.__name__}"
    needed = {name for name, column in declared.items() if column.note not in (OPTIONAL, CSV_ONLY)}
    for name in sorted(needed.difference(frame)):
        raise TypeError(f"{table} has no column {name}")
    for name in frame.columns.difference([*declared, *parameters]):
        raise TypeError(f"{table} has an undeclared column {name}")
    for name, values in frame.items():
        column = declared.get(name)
        if column is None or column.note == PARAMETER:  # of the benchmark's own type
            continue
        # a column without values has the type of its NaN
        if values.dtype.kind not in KINDS.get(column.type, "O") and values.notna().any():
            wanted = getattr(column.type, "__name__", column.type)
            raise TypeError(f"column {name} of {table} holds {values.dtype}, not {wanted}")
    return frame
