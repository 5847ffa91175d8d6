"""What was timed, a cell each with its contract, which cells belong together, and which of two is faster.

A cell is decided to be slower than another where the hypothesis that it takes at most MARGIN more is rejected at the
comparison's promise (see verdicts.Settings and statistics.p_different). Anything else is a tie: a difference below
the margin changes nobody's choice, and one that the processes do not show would be another in the next run. Variances
of processes are moderated within the families of alike noise. What the cells of a family share in a round, such as the
clock of the machine then, cancels in the rounds of which both have a process, and is added as a variance of its own for
the others, or where the families differ.

With fewer than MIN_PROCESSES processes a cell in a family large enough to moderate has the variance and the degrees of
freedom of that; elsewhere one cannot tell noise from nothing, so a process is taken to vary by FEW_SD at least: what
processes did on a busy machine. Then 2.8 times is decided with one process, 2.1 with two, 1.9 with three.

A cell without a quiet process decides nothing.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.contracts import (
    ALIAS,
    COMPLETION,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    NUMPY_TO_TORCH,
    ONE_THREAD,
    PARALLEL,
    TORCH_TO_NUMPY,
    Route,
)
from benchmarks.families import CONVERSION, LINK, MEMCPY

from . import statistics
from .results import Benchmarks, Declared, Results, contract_of, noise_of_cells, parameters_of
from .statistics import MIN_PROCESSES, Bools, Levels
from .verdicts import Settings

DIRECTIONS = (NUMPY_TO_TORCH, TORCH_TO_NUMPY, HOST_TO_DEVICE, DEVICE_TO_HOST)
SUSTAINED, BOTH = "sustained", "both at once"
UNSAID = "float32"  # the dtype of families that have no parameter of that name
# Relative, of two routes: figures of a call that moves 16 MiB differ by 9 % (SD) from session to session, others by 1 %
AS_GOOD = 0.1
# The same of a figure without a quiet process. Two runs of a machine that was hardly ever quiet differ by 13 % or less
# in nine cells of ten (docs/accuracy.md), so the ratio of two such figures by 1.41 times that
AS_GOOD_NOISY = 0.25
BY_BYTES = 2.0  # what takes this many times its shortest call: the bytes decide, a bandwidth has a meaning
MARGIN = 0.05  # relative: a route that takes so much longer is as good
PROMISE = Settings().promise  # at most this share of pairs that differ by MARGIN is decided
FEW_SD = 0.25  # of log seconds, between processes
FASTEST = 1e12  # bytes a second that no memory moves: what reads more was not waited for
USUAL = 64 * 2**20  # bytes that answers on one size are about, where they were measured


@dataclass(frozen=True)
class Cell:
    """A timed cell. seconds: median over the figures of its processes; low, high: their range.

    parameters: name -> value, of those it has, in the benchmark's order
    declared:   what its benchmark says in benchmarks.json
    order:      place of its route in the catalogue
    quiet:      whether any of its processes was; else seconds is an upper bound. True where that is not known
    heeded:     whoever takes it heeds its hazard
    """

    benchmark: str
    cell: str
    parameters: Mapping[str, Any] = field(hash=False, compare=False)
    declared: Declared = field(hash=False, compare=False)
    seconds: float
    low: float
    high: float
    cv: float
    processes: int
    order: int
    contract: Route = field(hash=False, compare=False)
    evidence: Mapping[str, Any] = field(hash=False, compare=False)
    quiet: bool = True
    heeded: bool = False

    def text(self, name: str) -> str:
        """A parameter as text; "" where it has none of that name."""
        return str(self.parameters.get(name, ""))

    @property
    def route(self) -> str:
        return self.text("route")

    @property
    def row(self) -> str:
        """The parameter whose values are rows of tables and lines of panels; "" where there is none."""
        return self.declared.down or row_of(self.parameters)

    @property
    def dtype(self) -> str:
        return self.text("dtype")

    @property
    def threads(self) -> str:
        """How many threads torch had: ONE_THREAD, another number, or ALL_THREADS."""
        return self.text("threads") or ONE_THREAD

    @property
    def spread(self) -> bool:
        """Whether torch spreads it over its threads where it has several, so that one thread says nothing of them."""
        elements = self.nbytes // itemsize(self.dtype or UNSAID)
        return self.memory != ALIAS and not self.contract.per_element and elements >= PARALLEL

    @property
    def nbytes(self) -> int:
        return int(self.parameters.get("nbytes", 0))

    @property
    def host(self) -> str:
        """The memory of the host's side of a transfer: pageable, pinned, registered."""
        return self.text("memory")

    @property
    def family(self) -> str:
        return self.benchmark.partition(".")[0]

    @property
    def method(self) -> str:
        """What its benchmark's method measures: "completion" of timeit_completion."""
        return self.benchmark.rpartition(".")[2].partition("_")[2]

    @property
    def role(self) -> str:
        return self.declared.role

    @property
    def direction(self) -> str:
        return self.contract.direction or self.text("direction") or self.declared.direction

    @property
    def memory(self) -> str:
        """alias, copy or into, for this cell's dtype and layout."""
        return self.contract.memory_for(self.dtype, self.text("layout"))

    @property
    def credible(self) -> bool:
        """Whether memory could move bytes as fast as it reads; asked of transfers that were waited for alone."""
        waited = self.declared.needs_device and self.method in (COMPLETION, SUSTAINED)
        return not waited or self.nbytes <= FASTEST * self.seconds

    @property
    def safe(self) -> bool:
        return (replace(self.contract, hazard="") if self.heeded else self.contract).safe


def cells_of(results: Results) -> list[Cell]:
    """All timed cells, in the order of the catalogue."""
    table = results.timed
    if table.empty:
        return []
    table = table.assign(
        processes=table["processes"].astype(int),
        evidence=evidence_of(table, results.processes, results.benchmarks),
    )
    names = ["benchmark", "cell", "seconds", "low", "high", "cv", "processes", "quiet", "evidence"]
    cells = []
    for row, parameters in zip(table.to_dict("records"), parameters_of(table, results)):
        benchmark = results.benchmarks[row["benchmark"]]
        route = parameters.get("route")
        cells.append(
            Cell(
                **{name: row[name] for name in names},
                parameters=parameters,
                declared=benchmark,
                order=benchmark.nth("route", route),
                contract=contract_of(results.benchmarks, row["benchmark"], route).on(str(parameters.get("memory", ""))),
            )
        )
    return cells


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits[0]) // 8) if digits else 1  # bool


def row_of(names: Iterable[str]) -> str:
    """Of parameters the one that rows are of: the route, or else the first that is no size."""
    others = [name for name in names if name != "nbytes"]
    return "route" if "route" in others else next(iter(others), "")


def usual_dtype(cells: Sequence[Cell]) -> str:
    """The dtype that was measured at the most sizes, then in the most cells; the first of equals."""
    sizes: dict[str, set[int]] = {}
    for cell in cells:
        sizes.setdefault(cell.dtype, set()).add(cell.nbytes)
    counts = Counter(cell.dtype for cell in cells)
    return max(sizes, key=lambda dtype: (len(sizes[dtype]), counts[dtype]), default="")


def with_threads(cells: Iterable[Cell], threads: str) -> list[Cell]:
    """What holds on the host in a program in which torch has so many threads: the cells that were measured with as
    many and, of those with one, what torch does not spread. Nothing where none was measured with so many."""
    cells = [cell for cell in cells if not cell.declared.needs_device]
    own = [cell for cell in cells if cell.threads == threads]
    shared = [cell for cell in cells if cell.threads == ONE_THREAD and not cell.spread]
    return own if threads == ONE_THREAD or not own else [*shared, *own]


def conversions(cells: Iterable[Cell]) -> list[Cell]:
    """The cells of plain conversions of the usual dtype: what decisions and curves are about."""
    plain = [cell for cell in cells if cell.role == CONVERSION]
    usual = usual_dtype(plain)
    return [cell for cell in plain if cell.dtype == usual]


def alike(cells: Sequence[Cell]) -> dict[tuple[str, ...], list[Cell]]:
    """Cells of a benchmark and the usual dtype that differ in row and size alone, by their other parameters."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    usual = usual_dtype(cells)
    for cell in (cell for cell in cells if cell.dtype == usual):
        others = [str(value) for name, value in cell.parameters.items() if name not in (cell.row, "nbytes")]
        groups.setdefault(tuple(others), []).append(cell)
    return groups


def usual_size(cells: Iterable[Any], of: str = "route", up_to: int = USUAL) -> int:
    """The size at which most values of a parameter were measured; of equals the largest ``up_to``, or just above it."""
    values: dict[int, set[Any]] = {}
    for cell in cells:
        values.setdefault(cell.nbytes, set()).add(cell.parameters.get(of))
    return max(values, key=lambda n: (len(values[n]), n <= up_to, n if n <= up_to else -n), default=0)


def bytes_decide(seconds: Mapping[int, float], nbytes: int) -> bool:
    """Whether at this size it is the bytes that take the time, and not the call. seconds: of one way, by size."""
    return nbytes in seconds and seconds[nbytes] >= BY_BYTES * min(seconds.values())


@dataclass(frozen=True)
class Limit:
    """What moving bytes takes at best on this machine, in the same run: memcpy, or a pinned copy over the link.

    cells   size -> the cell that is the limit
    moved   bytes that move for each byte of the size: twice as many where they move both ways
    steady  the largest bandwidth is the limit at all sizes, as of a link; memory's depends on the caches
    """

    cells: Mapping[int, Cell] = field(default_factory=dict)
    moved: int = 1
    steady: bool = False

    @property
    def seconds(self) -> dict[int, float]:
        return {nbytes: cell.seconds for nbytes, cell in self.cells.items()}

    @property
    def bandwidth(self) -> float | None:
        """Most bytes a second of all sizes measured; None where none was."""
        return max((self.moved * n / seconds for n, seconds in self.seconds.items()), default=None)

    def decides(self, nbytes: int) -> bool:
        return bytes_decide(self.seconds, nbytes)

    def share(self, cell: Cell) -> float | None:
        """The limit's seconds for so many bytes ÷ the cell's: 1 is the limit. None where it was not measured."""
        if self.steady:
            return cell.nbytes / cell.seconds / self.bandwidth if self.bandwidth else None
        return self.seconds[cell.nbytes] / cell.seconds if cell.nbytes in self.cells else None


def limit_of(cells: Iterable[Cell]) -> Limit:
    """The limit of what copies in memory."""
    return Limit({cell.nbytes: cell for cell in cells if cell.role == MEMCPY})


def links_of(cells: Iterable[Cell]) -> dict[str, Limit]:
    """Direction, or BOTH -> the limit of what crosses the link."""
    measured: dict[str, dict[int, Cell]] = {}
    for cell in cells:
        if cell.role == LINK:
            measured.setdefault(cell.direction, {})[cell.nbytes] = cell
    return {way: Limit(by_size, moved=2 if way == BOTH else 1, steady=True) for way, by_size in measured.items()}


# --- which of two is faster ------------------------------------------------------------------------------------------


def evidence_of(cells: pd.DataFrame, processes: pd.DataFrame, benchmarks: Benchmarks) -> list[dict[str, Any]]:
    """What the processes of every timed cell of a run say; both frames are those of results.Results."""
    wide = processes.pivot(index=["file", "cell"], columns="process", values="seconds")
    logs = np.log(wide.reindex(pd.MultiIndex.from_frame(cells[["file", "cell"]])).to_numpy(dtype=float))
    noise = np.array(noise_of_cells(cells, benchmarks))
    return weigh(logs, noise, cells["quiet"].to_numpy(dtype=bool))


def weigh(logs: statistics.Floats, names: Any, quiet: Bools) -> list[dict[str, Any]]:
    """Of each cell a row of statistics.Levels, its family, whose noise it has, and whether it is quiet.

    logs: of their processes' seconds (cells, rounds), NaN where there is none; see statistics.levels.
    """
    levels = statistics.levels(logs, names)
    guessed = (levels.n < MIN_PROCESSES) & (levels.df < np.maximum(levels.n, 1.5))  # nothing but its own processes
    variance = np.where(guessed, np.maximum(levels.variance, FEW_SD**2), levels.variance)
    df = np.where(guessed, np.inf, levels.df)
    columns = {**vars(levels), "variance": variance, "df": df, "family": names, "quiet": quiet}
    return [dict(zip(columns, row)) for row in zip(*(column.tolist() for column in columns.values()))]


def slower(cells: Sequence[Cell], others: Sequence[Cell], by: float = MARGIN) -> Bools:
    """Whether each of ``cells`` is decided to take more than (1 + by) times as long as each of ``others``: a table."""
    if not cells or not others:
        return np.zeros((len(cells), len(others)), dtype=bool)
    (names, quiet, levels), (against, also, base) = map(_columns, (cells, others))
    rows = Levels(*(values[:, None] for values in vars(levels).values()))
    estimated = statistics.between(base, rows, names[:, None] == against)
    p = statistics.p_different(estimated, math.log1p(by))
    return (estimated.effect > 0) & (p <= PROMISE) & quiet[:, None] & also


def _columns(cells: Sequence[Cell]) -> tuple[Any, Bools, Levels]:
    """Families, quiet and levels of cells."""
    columns = {name: np.array([cell.evidence[name] for cell in cells]) for name in cells[0].evidence}
    return columns.pop("family"), columns.pop("quiet"), Levels(**columns)


def unbeaten(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that none of them is decided to be faster than; one at least."""
    table = slower(cells, cells)
    return [cell for cell, beaten in zip(cells, table) if not beaten.any()]


def decided(cell: Cell, other: Cell) -> bool:
    """Whether one of the two is decided to be slower than the other."""
    return bool(slower([cell, other], [cell, other]).any())


def too_few(cell: Cell, other: Cell) -> bool:
    """Whether two cells differ by more than a tie may, and have too few processes to decide anything."""
    apart = abs(math.log(cell.seconds / other.seconds)) > math.log1p(AS_GOOD)
    return apart and cell.quiet and other.quiet and min(cell.processes, other.processes) < MIN_PROCESSES
