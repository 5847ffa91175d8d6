"""Transfers between host and accelerator: what was measured, against what the link allows, and which route to take.

Three times, never mixed: completion (until the bytes have arrived), enqueue (the call alone) and sustained (several
copies in flight and one synchronize, by the copy). Routes are chosen by completion. The hazard of a non-blocking route
(read before a synchronize and it is garbage) is no reason to hide it: completion timing synchronizes, as whoever heeds
the hazard does. So each answer names the fastest route without a condition and, where a route with one is faster, that
route and its condition beside it.

Hockney's model of what moves bytes, t(n) = latency + n / bandwidth, is fitted to measured times. The fit minimizes the
sum of squared relative errors: seconds span six decades, and a plain least-squares line would know nothing but the
largest. A fit that misses a point by more than GOOD_FIT is no fit: caches and page faults bend the line, and a latency
and a bandwidth taken from a bent one predict nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from store.records import UNKNOWN, Record

from benchmarks.contracts import (
    COMPLETION,
    CONTIGUOUS,
    DEVICE_TO_HOST,
    ENQUEUE,
    HOST_TO_DEVICE,
    INTO,
    PAGEABLE,
    PINNED,
    REGISTERED,
)
from benchmarks.families import BEHIND, BUSY, HARDWARE, OVERLAP, SYNCHRONIZE, TRANSFER

from .case import Need
from .cells import (
    SUSTAINED,
    Cell,
    Limit,
    bytes_decide,
    credible,
    links_of,
    method,
    usual_dtype,
    usual_size,
)
from .results import Results

WAYS = (HOST_TO_DEVICE, DEVICE_TO_HOST)
PARTS = ("products", "transfer", "both")  # of overlap.Hidden
HOSTS = (PAGEABLE, PINNED, REGISTERED)
# Decimal GB/s that one lane carries, after encoding, by generation of PCI Express
PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.56}
BEYOND = 1.1  # of the measured limit: more than noise
QUEUED = 0.005  # seconds of work that benchmarks/busy.py queues before a call, or behind one
NOISE = 0.2  # of a share that hides: what is further beyond nothing or all is no share of anything


@dataclass(frozen=True)
class Link:
    """What the link allows. limits: direction -> the pinned copy by the device's clock."""

    limits: Mapping[str, Limit]
    hardware: Mapping[str, float]
    floor: Cell | None

    def limit(self, direction: str) -> Limit:
        """The limit of a direction; one that knows nothing where it was not measured."""
        return self.limits.get(direction, Limit())

    @property
    def capacity(self) -> float | None:
        """Bytes a second each way that the link's generation and width carry; None where they are not known."""
        lane = PER_LANE.get(int(self.hardware.get("link generation", 0)))
        width = self.hardware.get("link width")
        return lane * width * 1e9 if lane and width else None


@dataclass(frozen=True)
class Transfers:
    """The cells that an accelerator takes part in. main: host tensors and arrays of the usual dtype.

    withheld: cells that are no part of these, nor of anything on a page, because no memory moves bytes so fast.
    run: the record of the last run; it tells how the device ran.
    beside: cell -> of each process the seconds of what it timed in turns with it.
    """

    cells: tuple[Cell, ...]
    main: tuple[Cell, ...]
    link: Link
    missing: tuple[Mapping[str, Any], ...] = ()
    withheld: tuple[Cell, ...] = ()
    run: Record = UNKNOWN
    beside: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)
    _seconds: Mapping[tuple[str, str, str], Mapping[int, float]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.cells or self.link.hardware)

    def of(self, clock: str, direction: str = "", host: str = "") -> list[Cell]:
        """Main cells by clock, direction and host memory."""
        wanted = (cell for cell in self.main if method(cell) == clock)
        return [c for c in wanted if direction in ("", c.direction) and host in ("", c.host)]

    def role(self, role: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.role == role]

    def find(self, clock: str, route: str, host: str, nbytes: int | None = None) -> Cell | None:
        """One main cell; at the usual size, or the nearest measured below it, where no size is asked for."""
        by_size = {cell.nbytes: cell for cell in self.of(clock, host=host) if cell.route == route}
        return by_size.get(usual_size(by_size.values()) if nbytes is None else nbytes)

    def by_bytes(self, cell: Cell) -> bool:
        """Whether the bytes take the time of this cell, and not the call: only then has a bandwidth a meaning."""
        seconds = self._seconds.get((cell.benchmark, cell.route, cell.host), {})
        return len(seconds) < 2 or bytes_decide(seconds, cell.nbytes)

    def why_not(self, **wanted: str) -> str:
        """Why cells like these have no figure, where all of them give one reason; "" otherwise."""
        rows = [row for row in self.missing if all(row.get(name) == value for name, value in wanted.items())]
        reasons = {str(row["reason"]) for row in rows if row["status"] == "skipped"}
        return reasons.pop() if len(reasons) == 1 else ""


def asynchronous(done: Cell, queued: Cell) -> bool:
    """Whether a call returns before its bytes have arrived, by its completion and its enqueue time."""
    return queued.seconds < done.seconds


def transfers_of(results: Results, cells: Iterable[Cell]) -> Transfers:
    """The part of the results that an accelerator takes part in."""
    every = tuple(cell for cell in cells if cell.declared.needs_device)
    on_device = tuple(filter(credible, every))
    withheld = tuple(cell for cell in every if not credible(cell))
    plain = [cell for cell in on_device if cell.role == TRANSFER and cell.direction in WAYS]
    usual = usual_dtype([cell for cell in plain if method(cell) == COMPLETION] or plain)
    main = tuple(cell for cell in plain if cell.dtype == usual)
    counted = results.of_role(results.values, HARDWARE)
    hardware = dict(zip(counted["quantity"], counted["value"])) if len(counted) else {}
    floor = next((cell for cell in on_device if cell.role == SYNCHRONIZE), None)
    seconds: dict[tuple[str, str, str], dict[int, float]] = {}
    for cell in main:
        seconds.setdefault((cell.benchmark, cell.route, cell.host), {})[cell.nbytes] = cell.seconds
    roles = {name: benchmark.role for name, benchmark in results.benchmarks.items() if benchmark.needs_device}
    rows = results.missing.to_dict("records")
    missing = [{**row, "role": roles[row["benchmark"]]} for row in rows if row["benchmark"] in roles]
    beside: dict[str, list[Mapping[str, float]]] = {}
    timed = results.of_role(results.processes, OVERLAP)
    for name, parts in zip(timed["cell"], timed["beside"]):
        beside.setdefault(name, []).append(parts)
    return Transfers(
        on_device,
        main,
        Link(links_of(on_device), hardware, floor),
        tuple(missing),
        withheld,
        results.last,
        beside,
        seconds,
    )


def answered(table: pd.DataFrame, transfers: Transfers) -> list[tuple[Need, pd.DataFrame]]:
    """What of ``choices`` is about plain transfers of the usual dtype, by completion: the rows of each need.

    Host to device comes before back, pageable memory first.
    """
    usual = transfers.main[0].dtype if transfers.main else ""
    here = table[table["direction"].isin(WAYS) & (table["dtype"] == usual) & (table["layout"] == CONTIGUOUS)]

    def order(answer: tuple[Need, pd.DataFrame]) -> tuple[int, bool, int, bool]:
        need, _ = answer
        return WAYS.index(need.direction), not need.array, HOSTS.index(need.host), need.memory == INTO

    wanted = [(need, rows) for need, rows in here.groupby("need", sort=False) if need.plain and not need.enqueue]
    return sorted(wanted, key=order)


def comparable(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows at the sizes with the most routes: where some were not measured, the fastest may be among these."""
    routes = rows["nbytes"].map(rows["nbytes"].value_counts())
    return rows[routes == routes.max()]


def recommendations(table: pd.DataFrame, transfers: Transfers) -> list[dict[Need, pd.DataFrame]]:
    """At the usual size: what to take for each need, fresh and existing of one end together."""
    ends: dict[tuple[str, bool, str], dict[Need, pd.DataFrame]] = {}
    for need, rows in answered(table, transfers):
        if not need.array or need.host == PAGEABLE:
            ends.setdefault((need.direction, need.array, need.host), {})[need] = rows
    chosen = []
    for by_need in ends.values():
        nbytes = usual_size(pd.concat(by_need.values())["cell"])
        here = {need: rows[rows["nbytes"] == nbytes] for need, rows in by_need.items()}
        chosen.append({need: rows for need, rows in here.items() if len(rows)})
    return chosen


@dataclass(frozen=True)
class TooFast:
    """Transfers that read faster than they can be: how many, and the worst of them with what it reads.

    reads: bytes a second, or the share of the measured limit.
    """

    cells: int
    worst: Cell
    reads: float


def worst(rates: Sequence[tuple[Cell, float]]) -> TooFast | None:
    """How many cells read too much, and the one of them that reads most; None of none."""
    return TooFast(len(rates), *max(rates, key=lambda pair: pair[1])) if rates else None


def beyond_capacity(transfers: Transfers) -> TooFast | None:
    """What reads more than the link carries: something did not wait."""
    capacity = transfers.link.capacity
    if capacity is None:
        return None
    moved = {cell: 1 for cell in _waited(transfers)}
    moved |= {cell: limit.moved for limit in transfers.link.limits.values() for cell in limit.cells.values()}
    fast = worst([(cell, rate) for cell in moved if (rate := cell.nbytes / cell.seconds) > capacity])
    return fast and replace(fast, reads=moved[fast.worst] * fast.reads)


def beyond_memory(transfers: Transfers) -> TooFast | None:
    """What reads more than any memory moves, and is withheld."""
    return worst([(cell, cell.nbytes / cell.seconds) for cell in transfers.withheld])


def beyond_limit(transfers: Transfers) -> TooFast | None:
    """What reads more than the measured limit of the link."""
    shares = []
    for cell in _waited(transfers):
        limit = transfers.link.limit(cell.direction)
        if cell.nbytes >= min(limit.cells, default=0):  # smaller ones may lie in a cache, which the limit did not
            shares.append((cell, limit.share(cell) or 0.0))
    return worst([(cell, share) for cell, share in shares if share > BEYOND])


def _waited(transfers: Transfers) -> list[Cell]:
    """What ends with a synchronize."""
    return [cell for cell in transfers.main if method(cell) in (COMPLETION, SUSTAINED)]


# Overlap


@dataclass(frozen=True)
class Hidden:
    """How much of a transfer, or of the products if these are shorter, hides behind the other.

    cell   both at once
    parts  of each process the seconds of products, transfer and both, which it took in turns
    """

    cell: Cell
    parts: Sequence[Mapping[str, float]]

    def seconds(self, part: str) -> float:
        return median(each[part] for each in self.parts)

    @property
    def shares(self) -> list[float]:
        """One a process."""
        return [
            (each["products"] + each["transfer"] - each["both"]) / min(each["products"], each["transfer"])
            for each in self.parts
        ]

    @property
    def share(self) -> float:
        return median(self.shares)

    @property
    def sound(self) -> bool:
        """Whether the share is one: as much as noise explains, between nothing and all."""
        return -NOISE <= self.share <= 1 + NOISE


def hidden(transfers: Transfers) -> list[Hidden]:
    """One a direction, host memory and size of which a process measured all parts."""
    cells = ((cell, transfers.beside.get(cell.cell, ())) for cell in transfers.role(OVERLAP))
    return [
        Hidden(cell, parts)
        for cell, each in cells
        if (parts := [seconds for seconds in each if set(PARTS) <= set(seconds)])
    ]


# A busy device


@dataclass(frozen=True)
class Beside:
    """The same done in two ways, of which one may wait for the work that was queued."""

    cell: Cell
    other: Cell

    @property
    def waits(self) -> bool:
        """Whether ``cell`` waits for the work and the other does not."""
        return self.cell.seconds - self.other.seconds >= QUEUED / 2


def while_busy(transfers: Transfers) -> list[Beside]:
    """Calls with work queued before them, beside the same calls with nothing before them, where these were measured.

    Not where one of both has no quiet process: a large copy that a neighbour slows seems to wait for the work.
    """
    calls = []
    for cell in transfers.role(BUSY):
        clock = ENQUEUE if cell.contract.non_blocking else COMPLETION
        alone = transfers.find(clock, cell.route, cell.host, cell.nbytes)
        if alone is not None and alone.quiet and cell.quiet:
            calls.append(Beside(cell, alone))
    return calls


def read_behind(transfers: Transfers) -> list[Beside]:
    """Reading by a wait for the device beside reading by the copy's event, work queued behind the copy; one a size."""
    forms: dict[int, list[Cell]] = {}
    for cell in transfers.role(BEHIND):
        forms.setdefault(cell.nbytes, []).append(cell)
    pairs = (sorted(cells, key=lambda cell: "synchronize" in cell.text("form")) for cells in forms.values())
    return [Beside(cells[1], cells[0]) for cells in pairs if len(cells) == 2]


# --- Hockney's model --------------------------------------------------------------------------------------------------


LEAST_SIZES = 4  # sizes that a fit of two parameters takes
GOOD_FIT = 0.2  # largest relative deviation of a point from the fit


@dataclass(frozen=True)
class Fit:
    """latency in seconds, bandwidth in bytes a second, deviation: the largest relative error of a point."""

    latency: float
    bandwidth: float
    deviation: float

    @property
    def half(self) -> float:
        """n½: the bytes at which half of the bandwidth is reached."""
        return self.latency * self.bandwidth

    @property
    def good(self) -> bool:
        return self.deviation <= GOOD_FIT

    def seconds(self, nbytes: float) -> float:
        return self.latency + nbytes / self.bandwidth


def fit(seconds: Mapping[int, float]) -> Fit | None:
    """The model of nbytes -> seconds; None where there are too few sizes, or no such line with positive parameters."""
    if len(seconds) < LEAST_SIZES:
        return None
    sizes, times = np.array(list(seconds), dtype=float), np.array(list(seconds.values()))
    scale = sizes.max() / times.max()  # both columns of like size
    terms = np.stack([1 / times, sizes / times / scale], axis=1)
    latency, inverse = np.linalg.lstsq(terms, np.ones(len(times)), rcond=None)[0]
    if latency <= 0 or inverse <= 0:
        return None
    predicted = latency + sizes * inverse / scale
    return Fit(float(latency), float(scale / inverse), float(np.abs(predicted / times - 1).max()))
