"""What was timed, a cell each with its contract, and which cells belong together: what every page starts from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .choice import Evidence, evidence_of
from .contracts import ALIAS, memory_for, of_cell, safe
from .results import Results, parameters_of, summarize

NUMPY_TO_TORCH, TORCH_TO_NUMPY = "numpy→torch", "torch→numpy"
HOST_TO_DEVICE, DEVICE_TO_HOST = "host→device", "device→host"
DIRECTIONS = (NUMPY_TO_TORCH, TORCH_TO_NUMPY, HOST_TO_DEVICE, DEVICE_TO_HOST)
# What reports do with a benchmark's figures beside showing them, as its class declares it (benchmarks/families.py)
CONVERSION, GRAD, LISTS, CASTING = "conversion", "requires grad", "lists", "casting"  # what advice is about
MEMCPY, HARNESS, SEMANTICS = "memcpy", "harness", "semantics"
BY_BYTES = 2.0  # memcpy takes this many times what a call of it takes: the bytes decide, a bandwidth has a meaning


@dataclass(frozen=True)
class Cell:
    """A timed cell. seconds: median over the figures of its processes; low, high: their range.

    parameters: name -> value, of those it has, in the benchmark's order
    declared:   what its benchmark says in benchmarks.json, role, title and direction among it
    order:      place of its route in the catalogue
    calm:       whether the machine was calm while any of the processes measured, True where that is not known
    """

    benchmark: str
    cell: str
    parameters: Mapping[str, Any] = field(hash=False, compare=False)
    declared: Mapping[str, Any] = field(hash=False, compare=False)
    seconds: float
    low: float
    high: float
    cv: float
    processes: int
    order: int
    contract: Mapping[str, Any] = field(hash=False, compare=False)
    evidence: Evidence = field(hash=False, compare=False)
    calm: bool = True

    def text(self, name: str) -> str:
        """A parameter as text; "" where it has none of that name."""
        return str(self.parameters.get(name, ""))

    @property
    def route(self) -> str:
        return self.text("route")

    @property
    def dtype(self) -> str:
        return self.text("dtype")

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
        return str(self.declared.get("role", ""))

    @property
    def direction(self) -> str:
        own = self.text("direction") or self.declared.get("direction", "")
        return str(self.contract.get("direction", "") or own)

    @property
    def memory(self) -> str:
        """alias, copy or into, for this cell's dtype and layout."""
        return memory_for(self.contract, self.dtype, self.text("layout"))

    @property
    def safe(self) -> bool:
        return safe(self.contract)


def cells_of(results: Results) -> list[Cell]:
    """All timed cells, in the order of the catalogue."""
    if results.processes.empty:
        return []
    table = summarize(results.processes)
    table["evidence"] = evidence_of(table, results.benchmarks)
    names = [name for name in ("benchmark", "cell", *Cell.__dataclass_fields__) if name in table]
    cells = []
    for row, own in zip(table.to_dict("records"), parameters_of(table, results)):
        benchmark = results.benchmarks[row["benchmark"]]
        spellings = dict(zip(benchmark["param_names"], benchmark["params"])).get("route", [])
        route = own.get("route")
        cells.append(
            Cell(
                **{name: row[name] for name in names},
                parameters=own,
                declared=benchmark,
                order=spellings.index(repr(route)) if repr(route) in spellings else 0,
                contract=of_cell(results.benchmarks, row["benchmark"], route),
            )
        )
    return cells


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
    """Cells of a benchmark and the usual dtype that differ in route and size alone, by their other parameters."""
    found: dict[tuple[str, ...], list[Cell]] = {}
    usual = usual_dtype(cells)
    for cell in (cell for cell in cells if cell.dtype == usual):
        others = [str(value) for name, value in cell.parameters.items() if name not in ("route", "nbytes")]
        found.setdefault(tuple(others), []).append(cell)
    return found


@dataclass(frozen=True)
class Limit:
    """memcpy on this machine, in the same run."""

    seconds: Mapping[int, float]  # nbytes -> seconds

    def decides(self, nbytes: int) -> bool:
        """Whether at this size it is the bytes that take the time, and not the call."""
        return nbytes in self.seconds and self.seconds[nbytes] >= BY_BYTES * min(self.seconds.values())

    def efficiency(self, cell: Cell) -> float:
        """memcpy's seconds ÷ the route's: 1 is the limit."""
        return self.seconds[cell.nbytes] / cell.seconds


def limit_of(cells: Iterable[Cell]) -> Limit:
    return Limit({cell.nbytes: cell.seconds for cell in cells if cell.role == MEMCPY})
