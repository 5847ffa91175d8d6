"""Transfers between host and accelerator: what was measured, against what the link allows, and which route to take.

Three times, never mixed: completion (until the bytes have arrived), enqueue (the call alone) and sustained (several
copies in flight and one synchronize, by the copy). Routes are chosen by completion. The hazard of a non-blocking route
(read before a synchronize and it is garbage) is no reason to hide it: completion timing synchronizes, as whoever heeds
the hazard does. So each answer names the fastest route without a condition and, where a route with one is faster, that
route and its condition beside it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
from store.records import Record

from benchmarks import contracts
from benchmarks.contracts import COMPLETION, DEVICE_TO_HOST, ENQUEUE, HOST_TO_DEVICE, PAGEABLE, PINNED, Role

from .cells import LINK, SUSTAINED, Limit, Row, at_usual_size, bytes_decide, links_of, usual_dtype
from .choices import Need
from .results import Results

HOSTS = (PAGEABLE, PINNED, contracts.REGISTERED)
PLAIN = {HOST_TO_DEVICE: "d.copy_(t)", DEVICE_TO_HOST: "h.copy_(t)"}
PARTS = ["other", "transfer", "both"]  # of overlap.Hidden
CLOCKS = ["host", "device"]  # of link.Limit
# Decimal GB/s that one lane carries, after encoding, by generation of PCI Express
PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.56}
BEYOND = 1.02  # of the measured limit: more than noise
APART = 0.02  # relative, by which the host's clock and the device's may differ over the copies that are the limit
QUEUED = 0.005  # seconds of work that benchmarks/busy.py queues before a call, or behind one
NOISE = 0.2  # of a share that hides: what is further beyond nothing or all is no share of anything


@dataclass(frozen=True)
class Transfers:
    """The cells that an accelerator takes part in. main: host tensors and arrays of the usual dtype.

    withheld: cells that are no part of these, nor of anything on a page, because no memory moves bytes so fast.
    limits: direction -> the pinned copy by the device's clock; hardware: what the driver says of the link.
    run: the record of the last run; it tells how the device ran.
    parts: a row a process, by cell: seconds of what it timed in turns (PARTS), or of the same by two CLOCKS.
    garbage: (host memory, bytes) -> % of results that had not arrived when their call returned.
    """

    cells: pd.DataFrame
    main: pd.DataFrame
    withheld: pd.DataFrame
    limits: Mapping[str, Limit]
    hardware: Mapping[str, float]
    missing: pd.DataFrame
    run: Record
    parts: pd.DataFrame
    garbage: Mapping[tuple[str, int], float]

    def of(self, clock: str, direction: str = "", host: str = "") -> pd.DataFrame:
        """Main cells by clock, direction and host memory."""
        return _where(self.main, method=clock, direction=direction, host=host)

    def role(self, role: str) -> pd.DataFrame:
        return _where(self.cells, role=role)

    def find(self, clock: str, route: str, host: str, nbytes: int | None = None) -> Row | None:
        """One main cell; at the usual size, or the nearest measured below it, where no size is asked for."""
        found = _where(self.main, method=clock, route=route, host=host)
        found = at_usual_size(found) if nbytes is None else found[found["nbytes"] == nbytes]
        return next(found.itertuples(), None)

    def without_waiting(self, cell: Row) -> tuple[Row | None, Row | None]:
        """The same copy by a call that does not wait: until the bytes are there, and until the call returns."""
        early = cell.route.replace(")", ", non_blocking=True)", 1)
        return self.find(COMPLETION, early, cell.host, cell.nbytes), self.find(ENQUEUE, early, cell.host, cell.nbytes)

    def by_bytes(self, cell: Row) -> bool:
        """Whether the bytes take the time of this cell, and not the call: only then has a bandwidth a meaning."""
        like = _where(self.main, benchmark=cell.benchmark, route=cell.route, host=cell.host)
        return len(like) < 2 or bytes_decide(dict(zip(like["nbytes"], like["seconds"])), cell.nbytes)

    def limit(self, direction: str) -> Limit:
        """The limit of a direction; one that knows nothing where it was not measured."""
        return self.limits.get(direction, Limit())

    @property
    def capacity(self) -> float | None:
        """Bytes a second each way that the link's generation and width carry; None where they are not known."""
        lane, width = PER_LANE.get(int(self.hardware.get("link generation", 0))), self.hardware.get("link width")
        return lane * width * 1e9 if lane and width else None

    @property
    def disagreeing(self) -> dict[str, float]:
        """Direction -> what the host's clock reads over the device's of the copies that are its limit, if too APART."""
        ways = self.role(Role.LINK).set_index("cell")["direction"].to_dict()
        both = self.parts[self.parts.index.isin(ways)].dropna(subset=CLOCKS)
        ratios = (both["host"] / both["device"]).groupby(both.index.map(ways), sort=False).median()
        return dict(ratios[(ratios - 1).abs() > APART])

    def why_not(self, **wanted: str) -> str:
        """Why cells like these have no figure, where all of them give one reason; "" otherwise."""
        rows = _where(self.missing, status="skipped", **wanted)
        reasons = rows["reason"].unique()
        return str(reasons[0]) if len(reasons) == 1 else ""


def _where(rows: pd.DataFrame, **wanted: str) -> pd.DataFrame:
    """The rows with these values; "" is any."""
    for name, value in wanted.items():
        rows = rows[rows[name] == value] if value else rows
    return rows


def transfers_of(results: Results, cells: pd.DataFrame) -> Transfers:
    """The part of the results that an accelerator takes part in."""
    every = cells[cells["device"]]
    on_device = every[every["credible"]]
    plain = on_device[(on_device["role"] == Role.TRANSFER) & on_device["direction"].isin(LINK)]
    waited = plain[plain["method"] == COMPLETION]
    roles = {name: each.role for name, each in results.benchmarks.items() if each.needs_device}
    rows = results.missing[results.missing["benchmark"].isin(roles)].astype({"benchmark": object})
    timed = pd.concat([results.of_role(results.processes, role) for role in (Role.OVERLAP, Role.LINK)])
    counted, early = (results.of_role(results.values, role) for role in (Role.HARDWARE, Role.READ_EARLY))
    return Transfers(
        cells=on_device,
        main=plain[plain["dtype"] == usual_dtype(plain if waited.empty else waited)],
        withheld=every[~every["credible"]],
        limits=links_of(on_device),
        hardware=dict(zip(counted["quantity"], counted["value"])) if len(counted) else {},
        missing=rows.assign(role=rows["benchmark"].map(roles)),
        run=results.last,
        parts=pd.DataFrame([*timed["beside"]], index=timed["cell"]).reindex(columns=[*PARTS, *CLOCKS]),
        garbage=dict(zip(zip(early["memory"], early["nbytes"]), early["value"])) if len(early) else {},
    )


# --- what to take -----------------------------------------------------------------------------------------------------


def answered(table: pd.DataFrame, transfers: Transfers) -> list[tuple[Need, pd.DataFrame]]:
    """What of ``choices`` is about plain transfers of the usual dtype, by completion: the rows of each need.

    Host to device comes before back, pageable memory first.
    """
    usual = usual_dtype(transfers.main)
    here = table[table["direction"].isin(LINK) & (table["dtype"] == usual) & (table["layout"] == contracts.CONTIGUOUS)]

    def order(answer: tuple[Need, pd.DataFrame]) -> tuple[int, bool, int, bool]:
        need, _ = answer
        return LINK.index(need.direction), not need.array, HOSTS.index(need.host), need.memory == contracts.INTO

    wanted = [(need, rows) for need, rows in here.groupby("need", sort=False) if need.plain and not need.enqueue]
    return sorted(wanted, key=order)


def recommendations(table: pd.DataFrame, transfers: Transfers) -> list[dict[Need, pd.DataFrame]]:
    """At the usual size: what to take for each need, fresh and existing of one end together."""
    ends: dict[tuple[str, bool, str], list[pd.DataFrame]] = {}
    for need, rows in answered(table, transfers):
        if not need.array or need.host == PAGEABLE:
            ends.setdefault((need.direction, need.array, need.host), []).append(rows)
    return [dict([*at_usual_size(pd.concat(each)).groupby("need", sort=False)]) for each in ends.values()]


def in_short(transfers: Transfers) -> list[dict[str, Any]]:
    """What to know first of each direction that was measured from pageable and from pinned memory, at the usual size,
    into memory that exists and by a blocking call.

    early, held  the same from pinned memory by a call that does not wait, and how long that holds its caller
    half         the smallest measured size at which a pinned copy reaches half of the link's limit
    pays         transfers from which pinning a tensor has paid; None where that is not known
    """
    made = []
    for direction, route in PLAIN.items():
        pageable = transfers.find(COMPLETION, route, PAGEABLE)
        pinned = transfers.find(COMPLETION, route, PINNED, pageable.nbytes) if pageable else None
        if pageable and pinned:
            early, held = transfers.without_waiting(pinned)
            limit, sizes = transfers.limit(direction), transfers.of(COMPLETION, direction, PINNED)
            half = [c.nbytes for c in _where(sizes, route=route).itertuples() if (limit.share(c) or 0) >= 0.5]
            pins = _where(transfers.role(Role.PINNING), method=contracts.PIN).set_index("nbytes")["seconds"].to_dict()
            gain = pageable.seconds - pinned.seconds
            pays = math.ceil(pins[pinned.nbytes] / gain) if pinned.nbytes in pins and gain > 0 else None
            said = {"pageable": pageable, "pinned": pinned, "early": early, "held": held}
            made.append({"direction": direction, **said, "half": min(half, default=None), "pays": pays})
    return made


# --- what cannot be ---------------------------------------------------------------------------------------------------


class TooFast(NamedTuple):
    """Transfers that read faster than they can be: how many, the worst, what it reads, and what that is more than.

    reads: bytes a second each way, of the measured limit its share; than: "memory" (any), "link" or "limit"
    """

    cells: int
    worst: Row
    reads: float
    than: str


def worst(rates: Mapping[str, Sequence[tuple[Row, float]]]) -> TooFast | None:
    """Of the first that has any; None where none has."""
    each = ((than, found) for than, found in rates.items() if found)
    return next((TooFast(len(found), *max(found, key=lambda pair: pair[1]), than) for than, found in each), None)


def too_fast(transfers: Transfers) -> TooFast | None:
    """What reads more than any memory moves, and is withheld; else more than the link carries, else than its limit."""

    def rates(cells: Iterable[Row], most: float) -> list[tuple[Row, float]]:
        return [(cell, cell.nbytes / cell.seconds) for cell in cells if cell.nbytes / cell.seconds > most]

    waited = [*transfers.main[transfers.main["method"].isin((COMPLETION, SUSTAINED))].itertuples()]
    crossed = [*waited, *(cell for limit in transfers.limits.values() for cell in limit.cells.values())]
    # smaller ones may lie in a cache, which the limit did not
    against = ((cell, transfers.limit(cell.direction)) for cell in waited)
    shares = ((c, limit.share(c) or 0.0) for c, limit in against if c.nbytes >= min(limit.cells, default=0))
    return worst(
        {
            "memory": rates(transfers.withheld.itertuples(), 0),
            "link": rates(crossed, transfers.capacity or math.inf),
            "limit": [(cell, share) for cell, share in shares if share > BEYOND],
        }
    )


# --- beside other work ------------------------------------------------------------------------------------------------


def hidden(transfers: Transfers) -> pd.DataFrame:
    """How much of a transfer, or of what runs beside it if that is shorter, hides behind the other: the cells with

    PARTS: seconds, medians over processes; share, of what one process took in turns; low, high: of the processes;
    sound: whether the share is one, as much as noise explains between nothing and all
    """
    each = transfers.parts.dropna(subset=PARTS)
    share = (each["other"] + each["transfer"] - each["both"]) / each[["other", "transfer"]].min(axis=1)
    rows = each.assign(share=share, low=share, high=share).groupby(level=0, sort=False, observed=True)
    made = rows.agg({**dict.fromkeys([*PARTS, "share"], "median"), "low": "min", "high": "max"})
    made = made.assign(sound=made["share"].between(-NOISE, 1 + NOISE))
    return transfers.role(Role.OVERLAP).drop(columns=["low", "high"]).merge(made, left_on="cell", right_index=True)


def waits(cell: Row, other: Row) -> bool:
    """Whether ``cell`` waits for the work that was queued, and the same done otherwise does not."""
    return bool(cell.seconds - other.seconds >= QUEUED / 2)


def while_busy(transfers: Transfers) -> pd.DataFrame:
    """The calls that were measured with work queued before them, and without: cells, and whether each waits for the
    work.

    Not where one of both has no quiet process: a large copy that a neighbour slows seems to wait for the work.
    """
    calls, found = transfers.role(Role.BUSY), []
    for cell in calls.itertuples():
        clock = ENQUEUE if cell.non_blocking else COMPLETION
        alone = transfers.find(clock, cell.route, cell.host, cell.nbytes)
        found.append(waits(cell, alone) if alone and alone.quiet and cell.quiet else None)
    return calls.assign(waits=found).dropna(subset="waits")


def read_behind(transfers: Transfers) -> list[tuple[Row, Row]]:
    """Reading by the copy's event and by a wait for the device, work queued behind the copy; a pair a size."""
    pairs = []
    for _, cells in transfers.role(Role.BEHIND).groupby("nbytes", sort=False):
        by_event, *others = sorted(cells.itertuples(), key=lambda cell: "synchronize" in cell.parameters["form"])
        pairs += [(by_event, other) for other in others]
    return pairs
