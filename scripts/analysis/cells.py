"""The timed cells with their contracts, and the groups they form."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pandas import DataFrame, concat
from store.frames import Parameter, TimedCell, check_frame, rows_of

from benchmarks import contracts
from benchmarks.contracts import COMPLETION, ONE_THREAD, Role

from .ranking import evidence_of
from .results import Results, where
from .suite import Declared

LINK = (contracts.HOST_TO_DEVICE, contracts.DEVICE_TO_HOST)  # directions that cross a device's link
DIRECTIONS = (contracts.NUMPY_TO_TORCH, contracts.TORCH_TO_NUMPY, *LINK)
SUSTAINED = "sustained"  # a method
BOTH_WAYS = "both at once"  # a direction of the link's limit
DEFAULT_DTYPE = "float32"  # the dtype of families that have no parameter of that name
# From this multiple of the shortest call on, the bytes decide and a bandwidth is meaningful
BY_BYTES = 2.0
# Bytes per second, above any memory: a faster figure was not waited for
MAX_BYTES_PER_SECOND = 1e12
USUAL_BYTES = 64 * 2**20  # the usual size of answers about one size, where measured
# Columns of results' cells that are kept
TEXT_COLUMNS = ["benchmark", "cell", "family", "direction", "contract"]
FIGURE_COLUMNS = ["seconds", "low", "high", "cv", "processes", "quiet"]
# Columns of text -> the parameter that they hold; "" where a benchmark lacks one
PARAMETER_OF_COLUMN = {
    "route": "route",
    "dtype": "dtype",
    "layout": "layout",
    "threads": "threads",
    "host": "memory",
}
# Columns that ``_describe`` adds -> dtype
COLUMNS = {
    **dict.fromkeys([*PARAMETER_OF_COLUMN, "declared", "role", "method", "parameters"], object),
    **dict.fromkeys(["down", "contract", "casts_to"], object),
    **dict.fromkeys(["arrays", "nbytes", "order"], int),
    **dict.fromkeys(["device", "array", "keeps", "safe", "non_blocking", "spread"], bool),
}
Row = TimedCell  # of ``rows_of``


def cells_of(results: Results) -> DataFrame:
    """Return one row per timed cell, in the order of the catalogue, with the columns of
    store.frames.TimedCell."""
    timed = results.timed.reset_index(drop=True)
    benchmark_of = dict(zip(timed["cell"], timed["benchmark"]))  # a cell may be in several results
    descriptions = {
        cell: _describe(results.benchmarks[name], dict(results.cell_parameters[cell]))
        for cell, name in benchmark_of.items()
    }
    rows = [descriptions[cell] for cell in timed["cell"]]
    cells = timed[TEXT_COLUMNS].astype(object).rename(columns={"contract": "memory"})
    figures = timed[FIGURE_COLUMNS].astype({"processes": int, "quiet": bool})
    described = DataFrame(rows, timed.index, [*COLUMNS]).astype(COLUMNS)
    cells = cells.join(figures).join(described)
    cells["spread"] &= cells["memory"] != contracts.ALIAS
    is_waited = cells["device"] & cells["method"].isin((COMPLETION, SUSTAINED))
    is_too_fast = cells["nbytes"] > MAX_BYTES_PER_SECOND * cells["seconds"]
    cells["credible"] = ~(is_waited & is_too_fast)
    return check_frame(cells.join(evidence_of(cells, timed, results)), TimedCell)


def _describe(declared: Declared, parameters: Mapping[str, Parameter]) -> dict[str, object]:
    """Return what the benchmark of a cell and its parameters say of it."""
    texts = {name: str(parameters.get(key, "")) for name, key in PARAMETER_OF_COLUMN.items()}
    dtype = texts["dtype"] or DEFAULT_DTYPE
    nbytes = parameters.get("nbytes", 0)
    if not isinstance(nbytes, int):
        raise TypeError(f"nbytes of {declared.name} is {nbytes!r}")
    contract = declared.contracts.get(texts["route"], contracts.NONE).on(texts["host"])
    is_large = nbytes // itemsize(dtype) >= contracts.PARALLEL - bool(declared.arrays)
    return texts | {
        "threads": texts["threads"] or ONE_THREAD,
        "declared": declared,
        "role": declared.role,
        "method": declared.name.rpartition(".")[2].partition("_")[2],
        "device": declared.needs_device,
        "arrays": parameters.get("arrays", declared.arrays),
        "parameters": parameters,
        "nbytes": nbytes,
        "down": declared.down or row_of(parameters),
        "order": declared.nth("route", parameters.get("route")),
        "contract": contract,
        "array": contract.array,
        "casts_to": contract.casts_to,
        "keeps": contract.keeps_dtype(dtype),
        "safe": contract.safe,
        "non_blocking": contract.non_blocking,
        "spread": is_large and not contract.per_element,
    }


def itemsize(dtype: str) -> int:
    """Bytes per element."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1  # bool


def row_of(names: Iterable[str]) -> str:
    """Return the parameter whose values are the rows: the route, or else the first one that is not
    a size."""
    candidates = [name for name in names if name != "nbytes"]
    return "route" if "route" in candidates else next(iter(candidates), "")


def first_row(cells: DataFrame) -> Row | None:
    return next(iter(rows_of(cells.head(1))), None)


def usual_dtype(cells: DataFrame) -> str:
    """Return the dtype measured at the most sizes, then in the most cells; the first if several are
    equal; "" without cells."""
    counts = cells.groupby("dtype", sort=False)["nbytes"].agg(["nunique", "size"])
    counts = counts.sort_values(["nunique", "size"], ascending=False, kind="stable")
    return next(iter(counts.index), "")


def with_threads(cells: DataFrame, threads: str) -> DataFrame:
    """Select the host cells that hold in a program with this number of torch threads: of those
    measured with it the ones that torch spreads, of those on one thread the others. Empty if
    nothing was measured with this number."""
    measured = where(cells, device=False, threads=threads)
    if threads == ONE_THREAD or measured.empty:
        return measured
    alone = where(cells, device=False, threads=ONE_THREAD, spread=False)
    return concat([alone, where(measured, spread=True)])


def conversions(cells: DataFrame) -> DataFrame:
    """Select plain conversions of the usual dtype, the cells used for decisions and curves."""
    plain = where(cells, role=Role.CONVERSION)
    return where(plain, dtype=[usual_dtype(plain)])


def usual_size(cells: Iterable[Row], parameter: str = "route", up_to: int = USUAL_BYTES) -> int:
    """Return the size with the most values of a parameter; of equals the largest ``up_to``, or just
    above it."""
    values: dict[int, set[object]] = {}
    for cell in cells:
        values.setdefault(cell.nbytes, set()).add(cell.parameters.get(parameter))

    def preference(nbytes: int) -> tuple[int, bool, int]:
        is_small = nbytes <= up_to
        return len(values[nbytes]), is_small, nbytes if is_small else -nbytes

    return max(values, key=preference, default=0)


def at_usual_size(cells: DataFrame, parameter: str = "route") -> DataFrame:
    """Select the cells at the usual size."""
    return where(cells, nbytes=usual_size(rows_of(cells), parameter))


def bytes_decide(seconds: Mapping[int, float], nbytes: int) -> bool:
    """Whether the bytes, not the call, take most of the time at this size.

    seconds: of one route, by size
    """
    return nbytes in seconds and seconds[nbytes] >= BY_BYTES * min(seconds.values())


@dataclass(frozen=True)
class Limit:
    """The best achieved bandwidth on this machine in the same run: memcpy, or a pinned copy over
    the link.

    cells    size -> the cell that is the limit
    moved    bytes moved per byte of the size: 2 where they move both ways
    is_link  the largest bandwidth is the limit at all sizes; that of memory depends on the caches
    """

    cells: Mapping[int, Row] = field(default_factory=dict)
    moved: int = 1
    is_link: bool = False

    @property
    def seconds(self) -> dict[int, float]:
        """Size -> seconds."""
        return {nbytes: cell.seconds for nbytes, cell in self.cells.items()}

    @property
    def bandwidth(self) -> float | None:
        """Largest bandwidth over all measured sizes, in bytes per second; None if nothing was
        measured."""
        bandwidths = [self.moved * nbytes / seconds for nbytes, seconds in self.seconds.items()]
        return max(bandwidths, default=None)

    def decides(self, nbytes: int) -> bool:
        """See ``bytes_decide``."""
        return bytes_decide(self.seconds, nbytes)

    def share(self, cell: Row) -> float | None:
        """Return the limit's seconds for as many bytes ÷ the cell's (1 is the limit), or None if
        not measured."""
        if self.is_link:
            return cell.nbytes / cell.seconds / self.bandwidth if self.bandwidth else None
        limit = self.cells.get(cell.nbytes)
        return limit.seconds / cell.seconds if limit else None


def _cells_by_size(cells: DataFrame) -> dict[int, Row]:
    return {cell.nbytes: cell for cell in rows_of(cells)}


def limit_of(cells: DataFrame) -> Limit:
    """Return the memcpy limit."""
    return Limit(_cells_by_size(where(cells, role=Role.MEMCPY)))


def links_of(cells: DataFrame) -> dict[str, Limit]:
    """Return the link's limits: direction, or BOTH_WAYS -> limit."""
    return {
        direction: Limit(_cells_by_size(rows), 2 if direction == BOTH_WAYS else 1, is_link=True)
        for direction, rows in where(cells, role=Role.LINK).groupby("direction", sort=False)
    }
