"""What was timed, a cell each with its contract, and which cells belong together: what every page starts from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .choice import Evidence, evidence_of
from .contracts import ALIAS, Contract, of_cell
from .results import MORE_PARAMETERS, PARAMETERS, Results, summarize

NUMPY_TO_TORCH, TORCH_TO_NUMPY = "numpy→torch", "torch→numpy"
HOST_TO_DEVICE, DEVICE_TO_HOST = "host→device", "device→host"
DIRECTIONS = (NUMPY_TO_TORCH, TORCH_TO_NUMPY, HOST_TO_DEVICE, DEVICE_TO_HOST)
MEMCPY = "limits.Memcpy.timeit_copy"
BY_BYTES = 2.0  # what takes this many times its shortest call: the bytes decide, a bandwidth has a meaning
USUAL = 64 * 2**20  # bytes that answers on one size are about, where they were measured


@dataclass(frozen=True)
class Cell:
    """A timed cell. seconds: median over the figures of its processes; low, high: their range.

    calm: whether the machine was calm while any of the processes measured, True where that is not known.
    """

    benchmark: str
    cell: str
    family: str
    group: str
    route: str
    dtype: str
    nbytes: int
    layout: str
    threads: str
    host: str  # the parameter memory of transfers: pageable, pinned, registered
    statement: str
    seconds: float
    low: float
    high: float
    cv: float
    processes: int
    order: int
    contract: Contract = field(hash=False, compare=False)
    evidence: Evidence = field(hash=False, compare=False)
    calm: bool = True
    way: str = ""  # the parameter direction, of benchmarks without routes
    part: str = ""
    form: str = ""

    @property
    def direction(self) -> str:
        return self.contract.direction or self.way

    @property
    def memory(self) -> str:
        """alias, copy or into, for this cell's dtype and layout."""
        return self.contract.memory_for(self.dtype, self.layout)

    @property
    def safe(self) -> bool:
        return self.contract.safe


def cells_of(results: Results) -> list[Cell]:
    """All timed cells, in the order of the catalogue."""
    if results.processes.empty:
        return []
    table = summarize(results.processes)
    table["evidence"] = evidence_of(table, results.benchmarks)
    parameters = [*PARAMETERS, *(name for name in MORE_PARAMETERS if name in table)]
    table[parameters] = table[parameters].astype(object).where(table[parameters].notna(), "")
    cells = []
    for row in table.to_dict("records"):
        benchmark = results.benchmarks[row["benchmark"]]
        names = benchmark["param_names"]
        spellings = benchmark["params"][names.index("route")] if "route" in names else []
        order = spellings.index(repr(row["route"])) if repr(row["route"]) in spellings else 0
        wanted: dict[str, Any] = {name: row[name] for name in Cell.__dataclass_fields__ if name in row}
        wanted |= {"nbytes": int(row["nbytes"] or 0), "host": row["memory"], "way": row.get("direction", "")}
        contract = of_cell(results.benchmarks, row["benchmark"], row["route"])
        cells.append(Cell(**wanted, order=order, contract=contract))
    return cells


def method(cell: Cell) -> str:
    """What a benchmark's method measures: "completion" of timeit_completion."""
    return cell.benchmark.rpartition(".")[2].partition("_")[2]


def direction_of(group: str) -> str:
    """The direction that a benchmark's class is about; its name where it is about none."""
    to_numpy = dict.fromkeys(("TorchToNumpy", "RequiresGrad", "RequiresGradToNumpy"), TORCH_TO_NUMPY)
    return {"NumpyToTorch": NUMPY_TO_TORCH, **to_numpy}.get(group, group)


def usual_dtype(cells: Sequence[Cell]) -> str:
    """The dtype that was measured at the most sizes, then in the most cells; the first of equals."""
    sizes: dict[str, set[int]] = {}
    for cell in cells:
        sizes.setdefault(cell.dtype, set()).add(cell.nbytes)
    counts = Counter(cell.dtype for cell in cells)
    return max(sizes, key=lambda dtype: (len(sizes[dtype]), counts[dtype]), default="")


def conversions(cells: Iterable[Cell]) -> list[Cell]:
    """The cells of plain conversions of the usual dtype: what decisions and curves are about."""
    plain = [c for c in cells if c.family == "conversion" and not c.group.startswith("RequiresGrad")]
    usual = usual_dtype(plain)
    return [cell for cell in plain if cell.dtype == usual]


def requires_grad(cells: Iterable[Cell]) -> list[Cell]:
    """The routes that give an array that shares the memory of a tensor that requires grad."""
    return [cell for cell in cells if cell.group.startswith("RequiresGrad") and cell.memory == ALIAS]


def from_lists(cells: Iterable[Cell]) -> list[Cell]:
    """The routes that make one tensor of a list of arrays."""
    return [cell for cell in cells if cell.group == "ArraysToTensor"]


def alike(cells: Sequence[Cell]) -> dict[tuple[str, ...], list[Cell]]:
    """Cells of the usual dtype that differ in route and size alone, what one panel can hold, by all else they have."""
    found: dict[tuple[str, ...], list[Cell]] = {}
    usual = {name: usual_dtype([c for c in cells if c.benchmark == name]) for name in {c.benchmark for c in cells}}
    for cell in (cell for cell in cells if cell.dtype == usual[cell.benchmark]):
        names = (cell.group, method(cell), cell.host, cell.dtype, cell.layout, cell.threads, cell.statement)
        found.setdefault(tuple(filter(None, names)), []).append(cell)
    return found


def usual_size(cells: Iterable[Cell], of: str = "route", up_to: int = USUAL) -> int:
    """The size at which most values of a parameter were measured; of equals the largest ``up_to``, or just above it."""
    values: dict[int, set[str]] = {}
    for cell in cells:
        values.setdefault(cell.nbytes, set()).add(getattr(cell, of))
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
    return Limit({cell.nbytes: cell for cell in cells if cell.benchmark == MEMCPY})
