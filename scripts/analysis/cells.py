"""What was timed, a cell each with its contract, and which cells belong together: what every page starts from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.contracts import (
    ALIAS,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    NUMPY_TO_TORCH,
    ONE_THREAD,
    PARALLEL,
    TORCH_TO_NUMPY,
    Route,
)
from benchmarks.families import CONVERSION, GRAD, LISTS, MEMCPY

from .case import BY_BYTES, itemsize
from .choice import Evidence, evidence_of
from .declared import Declared, contract_of
from .results import Results, parameters_of

DIRECTIONS = (NUMPY_TO_TORCH, TORCH_TO_NUMPY, HOST_TO_DEVICE, DEVICE_TO_HOST)
UNSAID = "float32"  # the dtype of families that have no parameter of that name
USUAL = 64 * 2**20  # bytes that answers on one size are about, where they were measured


@dataclass(frozen=True)
class Cell:
    """A timed cell. seconds: median over the figures of its processes; low, high: their range.

    parameters: name -> value, of those it has, in the benchmark's order
    declared:   what its benchmark says in benchmarks.json
    order:      place of its route in the catalogue
    calm:       whether the machine was calm while any of the processes measured, True where that is not known
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
    evidence: Evidence = field(hash=False, compare=False)
    calm: bool = True

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
    def safe(self) -> bool:
        return self.contract.safe


def cells_of(results: Results) -> list[Cell]:
    """All timed cells, in the order of the catalogue."""
    table = results.timed
    if table.empty:
        return []
    table = table.assign(
        calm=table["quiet"],
        processes=table["processes"].astype(int),
        evidence=evidence_of(table, results.processes, results.benchmarks),
    )
    names = ["benchmark", "cell", "seconds", "low", "high", "cv", "processes", "calm", "evidence"]
    cells = []
    for row, parameters in zip(table.to_dict("records"), parameters_of(table, results)):
        benchmark = results.benchmarks[row["benchmark"]]
        spellings = benchmark.listed("route")
        route = parameters.get("route")
        cells.append(
            Cell(
                **{name: row[name] for name in names},
                parameters=parameters,
                declared=benchmark,
                order=spellings.index(repr(route)) if repr(route) in spellings else 0,
                contract=contract_of(results.benchmarks, row["benchmark"], route).on(str(parameters.get("memory", ""))),
            )
        )
    return cells


def row_of(names: Iterable[str]) -> str:
    """Of parameters the one that rows are of: the route, or else the first that is no size."""
    others = [name for name in names if name != "nbytes"]
    return "route" if "route" in others else next(iter(others), "")


def method(cell: Cell) -> str:
    """What a benchmark's method measures: "completion" of timeit_completion."""
    return cell.benchmark.rpartition(".")[2].partition("_")[2]


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


def requires_grad(cells: Iterable[Cell]) -> list[Cell]:
    """The routes that give an array that shares the memory of a tensor that requires grad."""
    return [cell for cell in cells if cell.role == GRAD and cell.memory == ALIAS]


def from_lists(cells: Iterable[Cell]) -> list[Cell]:
    """The routes that make one tensor of a list of arrays."""
    return [cell for cell in cells if cell.role == LISTS]


def alike(cells: Sequence[Cell]) -> dict[tuple[str, ...], list[Cell]]:
    """Cells of a benchmark and the usual dtype that differ in row and size alone, by their other parameters."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    usual = usual_dtype(cells)
    for cell in (cell for cell in cells if cell.dtype == usual):
        others = [str(value) for name, value in cell.parameters.items() if name not in (cell.row, "nbytes")]
        groups.setdefault(tuple(others), []).append(cell)
    return groups


class Placed(Protocol):
    """What has parameters, a cell or what a table says of one."""

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    @property
    def nbytes(self) -> int: ...


def usual_size(cells: Iterable[Placed], of: str = "route", up_to: int = USUAL) -> int:
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
