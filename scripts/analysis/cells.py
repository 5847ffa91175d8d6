"""The timed cells with their contracts, and the groups they form."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from store.frames import TimedCell, check_frame

from benchmarks import contracts

from .results import Results, parameters_of
from .ties import evidence_of

LINK = (
    contracts.HOST_TO_DEVICE,
    contracts.DEVICE_TO_HOST,
)  # directions that cross the link to a device
DIRECTIONS = (contracts.NUMPY_TO_TORCH, contracts.TORCH_TO_NUMPY, *LINK)
SUSTAINED, BOTH_WAYS = "sustained", "both at once"
DEFAULT_DTYPE = "float32"  # the dtype of families that have no parameter of that name
BY_BYTES = 2.0  # from this multiple of the shortest call on, the bytes decide and a bandwidth is meaningful
FASTEST = 1e12  # bytes per second, above any memory: a faster figure was not waited for
USUAL = 64 * 2**20  # bytes: the usual size of answers about one size, where measured
TAKEN_OVER = [
    "benchmark",
    "cell",
    "family",
    "direction",
    "seconds",
    "low",
    "high",
    "cv",
    "processes",
    "quiet",
]
# Columns of parameters; "" where a benchmark lacks one
TEXTS = {
    "route": "route",
    "dtype": "dtype",
    "layout": "layout",
    "threads": "threads",
    "host": "memory",
}
FLAGS = ("keeps", "safe", "non_blocking", "quiet")
Row = TimedCell  # as DataFrame.itertuples has it


def cells_of(results: Results) -> pd.DataFrame:
    """Return one row per timed cell, in the order of the catalogue.

    benchmark, cell, family, role, method (what it measures: "completion" of timeit_completion), declared (its entry in
    benchmarks.json), parameters (name -> value), down (the parameter whose values are rows of tables and lines of
    panels; "" where there is none); route, dtype, layout, direction, nbytes (0 where it has none), threads (of torch),
    host (memory of the host's side of a transfer), contract, order (of the route in the catalogue), memory (alias, copy
    or into, for this dtype and layout), keeps (its dtype), safe, non_blocking, device (an accelerator takes part);
    spread    torch splits it over its threads if it has several; the time on one thread then does not hold for several
    credible  memory could move bytes at the measured rate; checked only for transfers that were waited for
    seconds   median over the figures of its processes; low, high: their range; cv: their coefficient of variation
    processes their number; quiet: whether any was quiet (True if not known), else seconds is an upper bound
    within    log seconds from ``seconds`` within which a share EXPECTED of more processes would lie; 0 where not quiet
    and the columns of ``weigh``
    """
    timed = results.timed
    given, declared = (
        parameters_of(timed, results),
        [results.benchmarks[name] for name in timed["benchmark"]],
    )
    text = {column: [str(own.get(name, "")) for own in given] for column, name in TEXTS.items()}
    text["threads"] = [threads or contracts.ONE_THREAD for threads in text["threads"]]
    named = zip(declared, text["route"], text["host"])
    promises = [each.contracts.get(route, contracts.NONE).on(host) for each, route, host in named]
    nbytes = np.array([own.get("nbytes", 0) for own in given], dtype=int)
    method = pd.Series(
        [name.partition("_")[2] for name in timed["method"]], timed.index, dtype=object
    )
    device = np.array([each.needs_device for each in declared], dtype=bool)
    waited = device & method.isin((contracts.COMPLETION, SUSTAINED))
    elements = nbytes // [itemsize(dtype or DEFAULT_DTYPE) for dtype in text["dtype"]]
    by_element = np.array([each.per_element for each in promises], dtype=bool)
    memory = timed["contract"].astype(object)
    table = timed[TAKEN_OVER].assign(
        **text,
        declared=declared,
        parameters=given,
        contract=promises,
        memory=memory,
        nbytes=nbytes,
        method=method,
        device=device,
        role=[each.role for each in declared],
        down=[each.down or row_of(own) for each, own in zip(declared, given)],
        order=[each.nth("route", own.get("route")) for each, own in zip(declared, given)],
        keeps=[
            each.keeps_dtype(dtype or DEFAULT_DTYPE) for each, dtype in zip(promises, text["dtype"])
        ],
        safe=[each.safe for each in promises],
        non_blocking=[each.non_blocking for each in promises],
        spread=(memory != contracts.ALIAS) & ~by_element & (elements >= contracts.PARALLEL),
        credible=~waited | (nbytes <= FASTEST * timed["seconds"]),
    )
    table = table.astype(
        dict.fromkeys(TAKEN_OVER[:4], object) | dict.fromkeys(FLAGS, bool) | {"processes": int}
    )
    cells = table.reset_index(drop=True).join(evidence_of(table, timed, results))
    return check_frame(cells, TimedCell)


def itemsize(dtype: str) -> int:
    """Bytes per element."""
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits[0]) // 8) if digits else 1  # bool


def row_of(names: Iterable[str]) -> str:
    """Return the parameter whose values are the rows: the route, or else the first one that is not a size."""
    others = [name for name in names if name != "nbytes"]
    return "route" if "route" in others else next(iter(others), "")


def usual_dtype(cells: pd.DataFrame) -> str:
    """Return the dtype measured at the most sizes, then in the most cells; the first if several are equal."""
    found = cells.groupby("dtype", sort=False)["nbytes"].agg(["nunique", "size"])
    return str(
        next(iter(found.sort_values(["nunique", "size"], ascending=False, kind="stable").index), "")
    )


def with_threads(cells: pd.DataFrame, threads: str) -> pd.DataFrame:
    """Select the host cells that hold in a program with this number of torch threads: the cells measured with it and,
    of those on one thread, the ones that torch does not spread. Empty if nothing was measured with this number."""
    cells = cells[~cells["device"]]
    own = cells[cells["threads"] == threads]
    shared = cells[(cells["threads"] == contracts.ONE_THREAD) & ~cells["spread"]]
    return own if threads == contracts.ONE_THREAD or own.empty else pd.concat([shared, own])


def conversions(cells: pd.DataFrame) -> pd.DataFrame:
    """Select plain conversions of the usual dtype, the cells used for decisions and curves."""
    plain = cells[cells["role"] == contracts.Role.CONVERSION]
    return plain[plain["dtype"] == usual_dtype(plain)]


def usual_size(cells: Iterable[Any], parameter: str = "route", up_to: int = USUAL) -> int:
    """Return the size with the most values of a parameter; of equals the largest ``up_to``, or just above it."""
    values: dict[int, set[Any]] = {}
    for cell in cells:
        values.setdefault(cell.nbytes, set()).add(cell.parameters.get(parameter))
    return max(
        values, key=lambda n: (len(values[n]), n <= up_to, n if n <= up_to else -n), default=0
    )


def at_usual_size(
    cells: pd.DataFrame, parameter: str = "route", up_to: int = USUAL
) -> pd.DataFrame:
    """The cells at the usual size."""
    return cells[cells["nbytes"] == usual_size(cells.itertuples(), parameter, up_to)]


def bytes_decide(seconds: Mapping[int, float], nbytes: int) -> bool:
    """Whether the bytes, not the call, take most of the time at this size. seconds: of one route, by size."""
    return nbytes in seconds and seconds[nbytes] >= BY_BYTES * min(seconds.values())


@dataclass(frozen=True)
class Limit:
    """The best achieved bandwidth on this machine in the same run: memcpy, or a pinned copy over the link.

    cells   size -> the cell that is the limit
    moved   bytes moved per byte of the size: 2 where they move both ways
    steady  the largest bandwidth is the limit at all sizes (a link); that of memory depends on the caches
    """

    cells: Mapping[int, Row] = field(default_factory=dict)
    moved: int = 1
    steady: bool = False

    @property
    def seconds(self) -> dict[int, float]:
        return {nbytes: cell.seconds for nbytes, cell in self.cells.items()}

    @property
    def bandwidth(self) -> float | None:
        """Largest bandwidth over all measured sizes, in bytes per second; None if nothing was measured."""
        return max((self.moved * n / seconds for n, seconds in self.seconds.items()), default=None)

    def decides(self, nbytes: int) -> bool:
        return bytes_decide(self.seconds, nbytes)

    def share(self, cell: Row) -> float | None:
        """Return the limit's seconds for as many bytes ÷ the cell's (1 is the limit), or None if not measured."""
        if self.steady:
            return cell.nbytes / cell.seconds / self.bandwidth if self.bandwidth else None
        return self.seconds[cell.nbytes] / cell.seconds if cell.nbytes in self.cells else None


def limit_of(cells: pd.DataFrame) -> Limit:
    """The memcpy limit."""
    return Limit(
        {cell.nbytes: cell for cell in cells[cells["role"] == contracts.Role.MEMCPY].itertuples()}
    )


def links_of(cells: pd.DataFrame) -> dict[str, Limit]:
    """Direction, or BOTH_WAYS -> its link limit."""
    ways = cells[cells["role"] == contracts.Role.LINK].groupby("direction", sort=False)
    return {
        str(way): Limit(
            {cell.nbytes: cell for cell in own.itertuples()},
            moved=2 if way == BOTH_WAYS else 1,
            steady=True,
        )
        for way, own in ways
    }
