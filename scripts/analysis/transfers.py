"""Transfers between host and accelerator: times, the link's limits, and the routes to take.

Three times are kept apart: completion (until the bytes have arrived), enqueue (the call alone) and
sustained (per copy, with several copies in flight and one synchronize). Routes are chosen by
completion time. A non-blocking route has a hazard: its result is garbage if read before a
synchronize. It is still listed, because completion timing synchronizes, as a careful caller does.
So each answer names the fastest route without a condition. If a route with a condition is faster,
the answer names it, too, with its condition.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pandas import DataFrame, concat
from store.frames import rows_of
from store.schema import RunRecord

from benchmarks import contracts
from benchmarks.contracts import (
    COMPLETION,
    DEVICE_TO_HOST,
    ENQUEUE,
    HOST_TO_DEVICE,
    PAGEABLE,
    PIN,
    PINNED,
    Role,
)

from .cells import (
    LINK,
    SUSTAINED,
    Limit,
    Row,
    at_usual_size,
    bytes_decide,
    first_row,
    links_of,
    usual_dtype,
)
from .needs import Need
from .results import Results, where

HOSTS = (PAGEABLE, PINNED, contracts.REGISTERED)
PLAIN = {HOST_TO_DEVICE: "d.copy_(t)", DEVICE_TO_HOST: "h.copy_(t)"}
PARTS = ["other", "transfer", "both"]  # of overlap.Hidden
CLOCKS = ["host", "device"]  # of link.Limit
# Decimal GB/s that one lane carries, after encoding, by generation of PCI Express
PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.56}
MAX_SHARE = 1.02  # of the measured limit: a larger one is more than noise
# Relative: allowed difference between host and device clock over the copies of the limit
MAX_CLOCK_DIFFERENCE = 0.02
QUEUED_SECONDS = 0.005  # work that benchmarks/busy.py queues before a call, or behind one
SHARE_NOISE = 0.2  # of a hidden share: allowed distance below 0 or above 1


@dataclass(frozen=True)
class Transfers:
    """The cells that use an accelerator.

    main      host tensors and arrays of the usual dtype
    withheld  cells left out here and on all pages, because no memory is that fast
    limits    direction -> the pinned copy by the device's clock
    hardware  the driver's data on the link
    run       the record of the last run, with the state of the device
    parts     one row per process, by cell: seconds of the PARTS timed in turns, or of one copy by
              both CLOCKS
    garbage   (host memory, bytes) -> % of results that had not arrived when their call returned
    """

    cells: DataFrame
    main: DataFrame
    withheld: DataFrame
    limits: Mapping[str, Limit]
    hardware: Mapping[str, float]
    missing: DataFrame
    run: RunRecord
    parts: DataFrame
    garbage: Mapping[tuple[str, int], float]

    def select(self, clock: str, direction: str = "", host: str = "") -> DataFrame:
        """Select main cells by clock, direction and host memory."""
        return where(self.main, method=clock, direction=direction, host=host)

    def select_role(self, role: str) -> DataFrame:
        """Select cells by role."""
        return where(self.cells, role=role)

    def find(self, clock: str, route: str, host: str, nbytes: int | None = None) -> Row | None:
        """Return one main cell; without ``nbytes`` at the usual size, or the nearest measured size
        below it."""
        cells = where(self.main, method=clock, route=route, host=host)
        return first_row(at_usual_size(cells) if nbytes is None else where(cells, nbytes=nbytes))

    def without_waiting(self, cell: Row) -> tuple[Row | None, Row | None]:
        """Return the same copy by a non-blocking call: its completion and its enqueue cell."""
        route = cell.route.replace(")", ", non_blocking=True)", 1)
        completion = self.find(COMPLETION, route, cell.host, cell.nbytes)
        return completion, self.find(ENQUEUE, route, cell.host, cell.nbytes)

    def bytes_decide(self, cell: Row) -> bool:
        """Whether the bytes, not the call, take most of this cell's time: only then is a bandwidth
        meaningful."""
        sizes = where(self.main, benchmark=cell.benchmark, route=cell.route, host=cell.host)
        seconds = dict(zip(sizes["nbytes"], sizes["seconds"]))
        return len(sizes) < 2 or bytes_decide(seconds, cell.nbytes)

    def limit(self, direction: str) -> Limit:
        """Return the limit of a direction; an empty one if it was not measured."""
        return self.limits.get(direction, Limit())

    @property
    def capacity(self) -> float | None:
        """The link's bandwidth by generation and width, in bytes per second each way; None if these
        are not known."""
        lane = PER_LANE.get(int(self.hardware.get("link generation", 0)))
        width = self.hardware.get("link width")
        return lane * width * 1e9 if lane and width else None

    @property
    def clock_ratios(self) -> dict[str, float]:
        """Direction -> ratio of host to device clock over the copies of its limit, if more than
        MAX_CLOCK_DIFFERENCE from 1."""
        copies = self.select_role(Role.LINK)[["cell", "direction"]].join(self.parts, on="cell")
        copies = copies.dropna(subset=CLOCKS)
        ratios = copies["host"] / copies["device"]
        medians = ratios.groupby(copies["direction"], sort=False).median()
        return dict(medians[(medians - 1).abs() > MAX_CLOCK_DIFFERENCE])

    def skip_reason(self, **values: str) -> str:
        """Return why cells with these values have no figure, if all have the same reason; else
        ""."""
        reasons = where(self.missing, status="skipped", **values)["reason"].unique()
        return str(reasons[0]) if len(reasons) == 1 else ""


def transfers_of(results: Results, cells: DataFrame) -> Transfers:
    """Return the part of the results that uses an accelerator."""
    on_device = where(cells, device=True)
    credible = where(on_device, credible=True)
    plain = where(credible, role=Role.TRANSFER, direction=LINK)
    waited = where(plain, method=COMPLETION)
    dtype = usual_dtype(plain if waited.empty else waited)
    roles = {name: each.role for name, each in results.benchmarks.items() if each.needs_device}
    missing = where(results.missing, benchmark=[*roles])
    timed = results.of_role(results.processes, Role.OVERLAP, Role.LINK)
    parts = DataFrame([*timed["beside"]], index=timed["cell"])
    return Transfers(
        cells=credible,
        main=where(plain, dtype=[dtype]),
        withheld=where(on_device, credible=False),
        limits=links_of(credible),
        hardware=_counts(results, Role.HARDWARE, "quantity"),
        missing=missing.assign(role=missing["benchmark"].astype(object).map(roles)),
        run=results.last,
        parts=parts.reindex(columns=[*PARTS, *CLOCKS]),
        garbage=_counts(results, Role.READ_EARLY, "memory", "nbytes"),
    )


def _counts(results: Results, role: str, *columns: str) -> dict[Any, float]:
    """Return the values of these columns -> the count; empty without counts."""
    counts = results.of_role(results.values, role)
    return dict(counts.set_index([*columns])["value"]) if len(counts) else {}


# --- recommendations ------------------------------------------------------------------------------


def transfer_answers(table: DataFrame, transfers: Transfers) -> list[tuple[Need, DataFrame]]:
    """Return the rows of ``choices`` for each need of plain transfers of the usual dtype, by
    completion time.

    Host to device comes first, then device to host; in each, pageable memory first.
    """
    dtypes = [usual_dtype(transfers.main)]
    usual = where(table, direction=LINK, layout=contracts.CONTIGUOUS, dtype=dtypes)
    by_need = usual.groupby("need", sort=False)
    answers = [(need, rows) for need, rows in by_need if need.plain and not need.enqueue]

    def place(answer: tuple[Need, DataFrame]) -> tuple[int, bool, int, bool]:
        need, _ = answer
        is_into = need.memory == contracts.INTO
        return LINK.index(need.direction), not need.array, HOSTS.index(need.host), is_into

    return sorted(answers, key=place)


def recommendations(table: DataFrame, transfers: Transfers) -> list[dict[Need, DataFrame]]:
    """Return the choices for each need at the usual size; copy and into for the same host memory
    are one group."""
    groups = defaultdict(list)
    for need, rows in transfer_answers(table, transfers):
        if not need.array or need.host == PAGEABLE:
            groups[need.direction, need.array, need.host].append(rows)
    usual = [at_usual_size(concat(frames)) for frames in groups.values()]
    return [dict([*rows.groupby("need", sort=False)]) for rows in usual]


def summaries(transfers: Transfers) -> list[dict[str, object]]:
    """Summarise each direction that was measured with pageable and with pinned memory, at the usual
    size, by a blocking call into existing memory.

    early, held  completion and enqueue time of the same copy with pinned memory by a non-blocking
                 call
    half         the smallest measured size at which a pinned copy reaches half of the link's limit
    pays         number of transfers from which pinning a tensor pays off; None if not known
    """
    rows = []
    for direction, route in PLAIN.items():
        pageable = transfers.find(COMPLETION, route, PAGEABLE)
        pinned = transfers.find(COMPLETION, route, PINNED, pageable.nbytes) if pageable else None
        if pageable and pinned:
            completion, enqueue = transfers.without_waiting(pinned)
            rows.append(
                {
                    "direction": direction,
                    "pageable": pageable,
                    "pinned": pinned,
                    "early": completion,
                    "held": enqueue,
                    "half": _half_limit_size(transfers, direction),
                    "pays": _transfers_to_pay(transfers, pageable, pinned),
                }
            )
    return rows


def _half_limit_size(transfers: Transfers, direction: str) -> int | None:
    """Return the smallest size at which a plain pinned copy reaches half of the link's limit."""
    limit = transfers.limit(direction)
    copies = where(transfers.select(COMPLETION, direction, PINNED), route=PLAIN[direction])
    fast = (cell.nbytes for cell in rows_of(copies) if (limit.share(cell) or 0) >= 0.5)
    return min(fast, default=None)


def _transfers_to_pay(transfers: Transfers, pageable: Row, pinned: Row) -> int | None:
    """Return the number of transfers whose gain is the cost of pinning a tensor."""
    pinning = where(transfers.cells, role=Role.PINNING, method=PIN, nbytes=pinned.nbytes)
    gain = pageable.seconds - pinned.seconds
    return math.ceil(pinning["seconds"].iloc[-1] / gain) if len(pinning) and gain > 0 else None


# --- impossible times -----------------------------------------------------------------------------


class TooFast(NamedTuple):
    """Transfers with impossibly short times: their number, the worst, its rate, and the limit
    exceeded.

    reads  bytes per second each way, or the share of the measured limit
    than   "memory" (any), "link" or "limit"
    """

    cells: int
    worst: Row
    reads: float
    than: str


Rates = list[tuple[Row, float]]


def worst(rates: Mapping[str, Rates]) -> TooFast | None:
    """Return the finding of the first limit that any cell exceeds; None if there is none."""
    for limit, exceeding in rates.items():
        if exceeding:
            return TooFast(len(exceeding), *max(exceeding, key=lambda pair: pair[1]), limit)
    return None


def _rates_above(cells: Iterable[Row], most: float) -> Rates:
    """Return the cells of more than ``most`` bytes per second, with their rates."""
    rates = ((cell, cell.nbytes / cell.seconds) for cell in cells)
    return [pair for pair in rates if pair[1] > most]


def too_fast(transfers: Transfers) -> TooFast | None:
    """Return the (withheld) transfers faster than any memory; else those faster than the link, else
    than its limit."""
    waited = rows_of(where(transfers.main, method=[COMPLETION, SUSTAINED]))
    copies = [cell for limit in transfers.limits.values() for cell in limit.cells.values()]
    shares = []
    for cell in waited:
        limit = transfers.limit(cell.direction)
        share = limit.share(cell) or 0.0
        # smaller sources may lie in a cache, unlike those of the limit
        if cell.nbytes >= min(limit.cells, default=0) and share > MAX_SHARE:
            shares.append((cell, share))
    return worst(
        {
            "memory": _rates_above(rows_of(transfers.withheld), 0),
            "link": _rates_above([*waited, *copies], transfers.capacity or math.inf),
            "limit": shares,
        }
    )


# --- beside other work ----------------------------------------------------------------------------


def hidden(transfers: Transfers) -> DataFrame:
    """Return how much of the shorter of a transfer and the work beside it hides behind the longer:
    the cells with

    PARTS  seconds, medians over processes
    share  median of the processes' own shares; low, high: their range
    sound  whether the share lies between 0 and 1, within SHARE_NOISE
    """
    processes = transfers.parts.dropna(subset=PARTS)
    shorter = processes[["other", "transfer"]].min(axis=1)
    share = (processes["other"] + processes["transfer"] - processes["both"]) / shorter
    processes = processes.assign(share=share, low=share, high=share)
    figures = dict.fromkeys([*PARTS, "share"], "median") | {"low": "min", "high": "max"}
    by_cell = processes.groupby(level=0, sort=False, observed=True).agg(figures)
    by_cell["sound"] = by_cell["share"].between(-SHARE_NOISE, 1 + SHARE_NOISE)
    cells = transfers.select_role(Role.OVERLAP).drop(columns=["low", "high"])
    return cells.merge(by_cell, left_on="cell", right_index=True)


def waits(cell: Row, reference: Row) -> bool:
    """Whether ``cell`` waits for the queued work while ``reference`` does not."""
    return bool(cell.seconds - reference.seconds >= QUEUED_SECONDS / 2)


def while_busy(transfers: Transfers) -> DataFrame:
    """Return the calls that were measured with and without work queued before them: cells, and
    whether each waits for the work.

    Calls without a quiet process in either are left out: a large copy slowed by a neighbour seems
    to wait for the work.
    """
    calls = transfers.select_role(Role.BUSY)
    waiting = []
    for cell in rows_of(calls):
        clock = ENQUEUE if cell.non_blocking else COMPLETION
        idle = transfers.find(clock, cell.route, cell.host, cell.nbytes)
        waiting.append(waits(cell, idle) if idle and idle.quiet and cell.quiet else None)
    return calls.assign(waits=waiting).dropna(subset="waits")


def read_behind(transfers: Transfers) -> list[tuple[Row, Row]]:
    """Pair reading by the copy's event with reading after a wait for the device, by size, with work
    queued behind the copy."""
    pairs = []
    for _, rows in transfers.select_role(Role.BEHIND).groupby("nbytes", sort=False):
        by_event, *after_wait = sorted(
            rows_of(rows), key=lambda cell: "synchronize" in cell.parameters["form"]
        )
        pairs += [(by_event, cell) for cell in after_wait]
    return pairs
