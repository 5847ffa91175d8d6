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

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    PIN,
    PINNED,
    REGISTERED,
)
from benchmarks.families import (
    BEHIND,
    BUSY,
    HARDWARE,
    LINK,
    OVERLAP,
    PINNING,
    READ_EARLY,
    SYNCHRONIZE,
    TRANSFER,
)

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
BEYOND = 1.02  # of the measured limit: more than noise
CLOCKS = 0.02  # relative, by which the host's clock and the device's may differ over the copies that are the limit
QUEUED = 0.005  # seconds of work that benchmarks/busy.py queues before a call, or behind one
NOISE = 0.2  # of a share that hides: what is further beyond nothing or all is no share of anything


@dataclass(frozen=True)
class Link:
    """What the link allows. limits: direction -> the pinned copy by the device's clock; disagreeing: direction -> what
    the host's clock reads over that, where they differ by more than CLOCKS."""

    limits: Mapping[str, Limit]
    hardware: Mapping[str, float]
    floor: Cell | None
    disagreeing: Mapping[str, float] = field(default_factory=dict)

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
    garbage: (host memory, bytes) -> % of results that had not arrived when their call returned.
    """

    cells: tuple[Cell, ...]
    main: tuple[Cell, ...]
    link: Link
    missing: tuple[Mapping[str, Any], ...] = ()
    withheld: tuple[Cell, ...] = ()
    run: Record = UNKNOWN
    beside: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)
    garbage: Mapping[tuple[str, int], float] = field(default_factory=dict)
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

    def without_waiting(self, cell: Cell) -> tuple[Cell | None, Cell | None]:
        """The same copy by a call that does not wait: until the bytes are there, and until the call returns."""
        early = cell.route.replace(")", ", non_blocking=True)", 1)
        done, held = (self.find(clock, early, cell.host, cell.nbytes) for clock in (COMPLETION, ENQUEUE))
        return done, held

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
    for role in (OVERLAP, LINK):
        timed = results.of_role(results.processes, role)
        for name, parts in zip(timed["cell"], timed["beside"]):
            beside.setdefault(name, []).append(parts)
    early = results.of_role(results.values, READ_EARLY)
    garbage = dict(zip(zip(early["memory"], early["nbytes"]), early["value"])) if len(early) else {}
    off: dict[str, float] = {}
    for cell in (cell for cell in on_device if cell.role == LINK):
        ratios = [each["host"] / each["device"] for each in beside.get(cell.cell, ()) if "host" in each]
        if ratios and abs(median(ratios) - 1) > CLOCKS:
            off[cell.direction] = median(ratios)
    return Transfers(
        on_device,
        main,
        Link(links_of(on_device), hardware, floor, off),
        tuple(missing),
        withheld,
        results.last,
        beside,
        garbage,
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
    """Transfers that read faster than they can be: how many, the worst, what it reads, and what that is more than.

    reads: bytes a second each way, of the measured limit its share; than: "memory" (any), "link" or "limit"
    """

    cells: int
    worst: Cell
    reads: float
    than: str


def worst(rates: Mapping[str, Sequence[tuple[Cell, float]]]) -> TooFast | None:
    """Of the first that has any; None where none has."""
    each = ((than, found) for than, found in rates.items() if found)
    return next((TooFast(len(found), *max(found, key=lambda pair: pair[1]), than) for than, found in each), None)


def too_fast(transfers: Transfers) -> TooFast | None:
    """What reads more than any memory moves, and is withheld; else more than the link carries, else than its limit."""
    link, capacity = transfers.link, transfers.link.capacity or math.inf
    waited = [cell for cell in transfers.main if method(cell) in (COMPLETION, SUSTAINED)]
    crossed = [*waited, *(cell for limit in link.limits.values() for cell in limit.cells.values())]
    # smaller ones may lie in a cache, which the limit did not
    against = ((cell, link.limit(cell.direction)) for cell in waited)
    shares = [(c, limit.share(c) or 0.0) for c, limit in against if c.nbytes >= min(limit.cells, default=0)]
    rates = {
        "memory": [(cell, cell.nbytes / cell.seconds) for cell in transfers.withheld],
        "link": [(cell, rate) for cell in crossed if (rate := cell.nbytes / cell.seconds) > capacity],
        "limit": [(cell, share) for cell, share in shares if share > BEYOND],
    }
    return worst(rates)


# What is to be known first

PLAIN = {HOST_TO_DEVICE: "d.copy_(t)", DEVICE_TO_HOST: "h.copy_(t)"}


@dataclass(frozen=True)
class Short:
    """A direction in short, at the usual size: into memory that exists, by a blocking call.

    early, held  the same from pinned memory by a call that does not wait, and how long that holds its caller
    half         the smallest measured size at which a pinned copy reaches half of the link's limit
    pays         transfers from which pinning a tensor has paid; None where that is not known
    """

    direction: str
    pageable: Cell
    pinned: Cell
    early: Cell | None
    held: Cell | None
    half: int | None
    pays: int | None


def in_short(transfers: Transfers) -> list[Short]:
    """What to know first of each direction that was measured from pageable and from pinned memory."""
    made = []
    for direction, route in PLAIN.items():
        pageable = transfers.find(COMPLETION, route, PAGEABLE)
        pinned = transfers.find(COMPLETION, route, PINNED, pageable.nbytes) if pageable else None
        if pageable is None or pinned is None:
            continue
        done, held = transfers.without_waiting(pinned)
        limit = transfers.link.limit(direction)
        by_size = [cell for cell in transfers.of(COMPLETION, direction, PINNED) if cell.route == route]
        half = min((cell.nbytes for cell in by_size if (limit.share(cell) or 0) >= 0.5), default=None)
        pins = [c.seconds for c in transfers.role(PINNING) if method(c) == PIN and c.nbytes == pinned.nbytes]
        gain = pageable.seconds - pinned.seconds
        pays = math.ceil(pins[0] / gain) if pins and gain > 0 else None
        made.append(Short(direction, pageable, pinned, done, held, half, pays))
    return made


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


def fit(seconds: Mapping[int, float]) -> Fit | None:
    """The model of nbytes -> seconds; None where there are too few sizes, or no such line with positive parameters."""
    if len(seconds) < LEAST_SIZES:
        return None
    sizes, times = np.array([*seconds.items()], dtype=float).T
    inverse, latency = np.polyfit(sizes, times, 1, w=1 / times)
    if latency <= 0 or inverse <= 0:
        return None
    deviation = np.abs((latency + sizes * inverse) / times - 1).max()
    return Fit(float(latency), float(1 / inverse), float(deviation))
