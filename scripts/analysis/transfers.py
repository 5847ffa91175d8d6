"""Transfers between host and accelerator: times, the link's limits, and the routes to take.

Three times are kept apart: completion (until the bytes have arrived), enqueue (the call alone) and sustained (per copy,
with several copies in flight and one synchronize). Routes are chosen by completion time. A non-blocking route has a
hazard: its result is garbage if read before a synchronize. It is still listed, because completion timing synchronizes,
as a careful caller does. So each answer names the fastest route without a condition. If a route with a condition is
faster, the answer names it, too, with its condition.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
from store.schema import RunRecord

from benchmarks import contracts
from benchmarks.contracts import (
    COMPLETION,
    DEVICE_TO_HOST,
    ENQUEUE,
    HOST_TO_DEVICE,
    PAGEABLE,
    PINNED,
    Role,
)

from .cells import LINK, SUSTAINED, Limit, Row, at_usual_size, bytes_decide, links_of, usual_dtype
from .needs import Need
from .results import Results

HOSTS = (PAGEABLE, PINNED, contracts.REGISTERED)
PLAIN = {HOST_TO_DEVICE: "d.copy_(t)", DEVICE_TO_HOST: "h.copy_(t)"}
PARTS = ["other", "transfer", "both"]  # of overlap.Hidden
CLOCKS = ["host", "device"]  # of link.Limit
# Decimal GB/s that one lane carries, after encoding, by generation of PCI Express
PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.56}
BEYOND = 1.02  # times the measured limit: more than noise
MAX_CLOCK_DIFFERENCE = (
    0.02  # relative: allowed difference between host and device clock over the copies of the limit
)
QUEUED = 0.005  # seconds of work that benchmarks/busy.py queues before a call, or behind one
NOISE = 0.2  # of a hidden share: allowed distance below 0 or above 1


@dataclass(frozen=True)
class Transfers:
    """The cells that use an accelerator. main: host tensors and arrays of the usual dtype.

    withheld: cells left out here and on all pages, because no memory is that fast. limits: direction -> the pinned copy
    by the device's clock; hardware: the driver's data on the link. run: the record of the last run, with the state of
    the device. parts: one row per process, by cell: seconds of the PARTS timed in turns, or of one copy by both CLOCKS.
    garbage: (host memory, bytes) -> % of results that had not arrived when their call returned.
    """

    cells: pd.DataFrame
    main: pd.DataFrame
    withheld: pd.DataFrame
    limits: Mapping[str, Limit]
    hardware: Mapping[str, float]
    missing: pd.DataFrame
    run: RunRecord
    parts: pd.DataFrame
    garbage: Mapping[tuple[str, int], float]

    def select(self, clock: str, direction: str = "", host: str = "") -> pd.DataFrame:
        """Select main cells by clock, direction and host memory."""
        return _where(self.main, method=clock, direction=direction, host=host)

    def select_role(self, role: str) -> pd.DataFrame:
        return _where(self.cells, role=role)

    def find(self, clock: str, route: str, host: str, nbytes: int | None = None) -> Row | None:
        """Return one main cell; without ``nbytes`` at the usual size, or the nearest measured size below it."""
        found = _where(self.main, method=clock, route=route, host=host)
        found = at_usual_size(found) if nbytes is None else found[found["nbytes"] == nbytes]
        return next(found.itertuples(), None)

    def without_waiting(self, cell: Row) -> tuple[Row | None, Row | None]:
        """Return the same copy by a non-blocking call: its completion and its enqueue cell."""
        early = cell.route.replace(")", ", non_blocking=True)", 1)
        return self.find(COMPLETION, early, cell.host, cell.nbytes), self.find(
            ENQUEUE, early, cell.host, cell.nbytes
        )

    def bytes_decide(self, cell: Row) -> bool:
        """Whether the bytes, not the call, take most of this cell's time: only then is a bandwidth meaningful."""
        like = _where(self.main, benchmark=cell.benchmark, route=cell.route, host=cell.host)
        return len(like) < 2 or bytes_decide(
            dict(zip(like["nbytes"], like["seconds"])), cell.nbytes
        )

    def limit(self, direction: str) -> Limit:
        """Return the limit of a direction; an empty one if it was not measured."""
        return self.limits.get(direction, Limit())

    @property
    def capacity(self) -> float | None:
        """The link's bandwidth by generation and width, in bytes per second each way; None if these are not known."""
        lane, width = (
            PER_LANE.get(int(self.hardware.get("link generation", 0))),
            self.hardware.get("link width"),
        )
        return lane * width * 1e9 if lane and width else None

    @property
    def clock_ratios(self) -> dict[str, float]:
        """Direction -> ratio of host to device clock over the copies of its limit, if more than MAX_CLOCK_DIFFERENCE from 1."""
        ways = self.select_role(Role.LINK).set_index("cell")["direction"].to_dict()
        both = self.parts[self.parts.index.isin(ways)].dropna(subset=CLOCKS)
        ratios = (both["host"] / both["device"]).groupby(both.index.map(ways), sort=False).median()
        return dict(ratios[(ratios - 1).abs() > MAX_CLOCK_DIFFERENCE])

    def skip_reason(self, **wanted: str) -> str:
        """Return why such cells have no figure, if all have the same reason; else ""."""
        rows = _where(self.missing, status="skipped", **wanted)
        reasons = rows["reason"].unique()
        return str(reasons[0]) if len(reasons) == 1 else ""


def _where(rows: pd.DataFrame, **wanted: str) -> pd.DataFrame:
    """Select the rows with these values; "" matches any."""
    for name, value in wanted.items():
        rows = rows[rows[name] == value] if value else rows
    return rows


def transfers_of(results: Results, cells: pd.DataFrame) -> Transfers:
    """Return the part of the results that uses an accelerator."""
    every = cells[cells["device"]]
    on_device = every[every["credible"]]
    plain = on_device[(on_device["role"] == Role.TRANSFER) & on_device["direction"].isin(LINK)]
    waited = plain[plain["method"] == COMPLETION]
    roles = {name: each.role for name, each in results.benchmarks.items() if each.needs_device}
    rows = results.missing[results.missing["benchmark"].isin(roles)].astype({"benchmark": object})
    timed = pd.concat(
        [results.of_role(results.processes, role) for role in (Role.OVERLAP, Role.LINK)]
    )
    counted, early = (
        results.of_role(results.values, role) for role in (Role.HARDWARE, Role.READ_EARLY)
    )
    return Transfers(
        cells=on_device,
        main=plain[plain["dtype"] == usual_dtype(plain if waited.empty else waited)],
        withheld=every[~every["credible"]],
        limits=links_of(on_device),
        hardware=dict(zip(counted["quantity"], counted["value"])) if len(counted) else {},
        missing=rows.assign(role=rows["benchmark"].map(roles)),
        run=results.last,
        parts=pd.DataFrame([*timed["beside"]], index=timed["cell"]).reindex(
            columns=[*PARTS, *CLOCKS]
        ),
        garbage=dict(zip(zip(early["memory"], early["nbytes"]), early["value"]))
        if len(early)
        else {},
    )


# --- recommendations ------------------------------------------------------------------------------


def transfer_answers(table: pd.DataFrame, transfers: Transfers) -> list[tuple[Need, pd.DataFrame]]:
    """Return the rows of ``choices`` for each need of plain transfers of the usual dtype, by completion time.

    Host to device comes first, then device to host; in each, pageable memory first.
    """
    usual = usual_dtype(transfers.main)
    here = table[
        table["direction"].isin(LINK)
        & (table["dtype"] == usual)
        & (table["layout"] == contracts.CONTIGUOUS)
    ]

    def order(answer: tuple[Need, pd.DataFrame]) -> tuple[int, bool, int, bool]:
        need, _ = answer
        return (
            LINK.index(need.direction),
            not need.array,
            HOSTS.index(need.host),
            need.memory == contracts.INTO,
        )

    wanted = [
        (need, rows)
        for need, rows in here.groupby("need", sort=False)
        if need.plain and not need.enqueue
    ]
    return sorted(wanted, key=order)


def recommendations(table: pd.DataFrame, transfers: Transfers) -> list[dict[Need, pd.DataFrame]]:
    """Return the choices for each need at the usual size; copy and into for the same host memory are one group."""
    ends: dict[tuple[str, bool, str], list[pd.DataFrame]] = {}
    for need, rows in transfer_answers(table, transfers):
        if not need.array or need.host == PAGEABLE:
            ends.setdefault((need.direction, need.array, need.host), []).append(rows)
    return [
        dict([*at_usual_size(pd.concat(each)).groupby("need", sort=False)])
        for each in ends.values()
    ]


def summaries(transfers: Transfers) -> list[dict[str, Any]]:
    """Summarise each direction that was measured with pageable and with pinned memory, at the usual size, by a blocking
    call into existing memory.

    early, held  completion and enqueue time of the same copy with pinned memory by a non-blocking call
    half         the smallest measured size at which a pinned copy reaches half of the link's limit
    pays         number of transfers from which pinning a tensor pays off; None if not known
    """
    made = []
    for direction, route in PLAIN.items():
        pageable = transfers.find(COMPLETION, route, PAGEABLE)
        pinned = transfers.find(COMPLETION, route, PINNED, pageable.nbytes) if pageable else None
        if pageable and pinned:
            early, held = transfers.without_waiting(pinned)
            limit, sizes = (
                transfers.limit(direction),
                transfers.select(COMPLETION, direction, PINNED),
            )
            half = [
                c.nbytes
                for c in _where(sizes, route=route).itertuples()
                if (limit.share(c) or 0) >= 0.5
            ]
            pins = (
                _where(transfers.select_role(Role.PINNING), method=contracts.PIN)
                .set_index("nbytes")["seconds"]
                .to_dict()
            )
            gain = pageable.seconds - pinned.seconds
            pays = (
                math.ceil(pins[pinned.nbytes] / gain)
                if pinned.nbytes in pins and gain > 0
                else None
            )
            said = {"pageable": pageable, "pinned": pinned, "early": early, "held": held}
            made.append(
                {"direction": direction, **said, "half": min(half, default=None), "pays": pays}
            )
    return made


# --- impossible times -----------------------------------------------------------------------------


class TooFast(NamedTuple):
    """Transfers with impossibly short times: their number, the worst, its rate, and the limit exceeded.

    reads: bytes per second each way, or the share of the measured limit; than: "memory" (any), "link" or "limit"
    """

    cells: int
    worst: Row
    reads: float
    than: str


def worst(rates: Mapping[str, Sequence[tuple[Row, float]]]) -> TooFast | None:
    """Return the finding of the first limit that any cell exceeds; None if there is none."""
    each = ((than, found) for than, found in rates.items() if found)
    return next(
        (TooFast(len(found), *max(found, key=lambda pair: pair[1]), than) for than, found in each),
        None,
    )


def too_fast(transfers: Transfers) -> TooFast | None:
    """Return the (withheld) transfers faster than any memory; else those faster than the link, else than its limit."""

    def rates(cells: Iterable[Row], most: float) -> list[tuple[Row, float]]:
        return [
            (cell, cell.nbytes / cell.seconds)
            for cell in cells
            if cell.nbytes / cell.seconds > most
        ]

    waited = [*transfers.main[transfers.main["method"].isin((COMPLETION, SUSTAINED))].itertuples()]
    crossed = [
        *waited,
        *(cell for limit in transfers.limits.values() for cell in limit.cells.values()),
    ]
    # smaller sources may lie in a cache, unlike those of the limit
    against = ((cell, transfers.limit(cell.direction)) for cell in waited)
    shares = (
        (c, limit.share(c) or 0.0)
        for c, limit in against
        if c.nbytes >= min(limit.cells, default=0)
    )
    return worst(
        {
            "memory": rates(transfers.withheld.itertuples(), 0),
            "link": rates(crossed, transfers.capacity or math.inf),
            "limit": [(cell, share) for cell, share in shares if share > BEYOND],
        }
    )


# --- beside other work ----------------------------------------------------------------------------


def hidden(transfers: Transfers) -> pd.DataFrame:
    """Return how much of the shorter of a transfer and the work beside it hides behind the longer: the cells with

    PARTS: seconds, medians over processes; share, median of the processes' own shares; low, high: their range; sound:
    whether the share lies between 0 and 1, within NOISE
    """
    each = transfers.parts.dropna(subset=PARTS)
    share = (each["other"] + each["transfer"] - each["both"]) / each[["other", "transfer"]].min(
        axis=1
    )
    rows = each.assign(share=share, low=share, high=share).groupby(
        level=0, sort=False, observed=True
    )
    made = rows.agg({**dict.fromkeys([*PARTS, "share"], "median"), "low": "min", "high": "max"})
    made = made.assign(sound=made["share"].between(-NOISE, 1 + NOISE))
    return (
        transfers.select_role(Role.OVERLAP)
        .drop(columns=["low", "high"])
        .merge(made, left_on="cell", right_index=True)
    )


def waits(cell: Row, other: Row) -> bool:
    """Whether ``cell`` waits for the queued work while ``other`` does not."""
    return bool(cell.seconds - other.seconds >= QUEUED / 2)


def while_busy(transfers: Transfers) -> pd.DataFrame:
    """Return the calls that were measured with and without work queued before them: cells, and whether each waits for
    the work.

    Calls without a quiet process in either are left out: a large copy slowed by a neighbour seems to wait for the work.
    """
    calls, found = transfers.select_role(Role.BUSY), []
    for cell in calls.itertuples():
        clock = ENQUEUE if cell.non_blocking else COMPLETION
        alone = transfers.find(clock, cell.route, cell.host, cell.nbytes)
        found.append(waits(cell, alone) if alone and alone.quiet and cell.quiet else None)
    return calls.assign(waits=found).dropna(subset="waits")


def read_behind(transfers: Transfers) -> list[tuple[Row, Row]]:
    """Pair reading by the copy's event with reading after a wait for the device, by size, with work queued behind the
    copy."""
    pairs = []
    for _, cells in transfers.select_role(Role.BEHIND).groupby("nbytes", sort=False):
        by_event, *others = sorted(
            cells.itertuples(), key=lambda cell: "synchronize" in cell.parameters["form"]
        )
        pairs += [(by_event, other) for other in others]
    return pairs
