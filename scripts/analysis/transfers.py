"""Transfers between host and accelerator: what was measured, against what the link allows, and which route to take.

Three times, never mixed: completion (the call and a synchronize), enqueue (the call alone) and sustained (several
copies in flight and one synchronize, by the copy). Routes are chosen by completion. The hazard of a non-blocking route
(read before a synchronize and it is garbage) is no reason to hide it: completion timing synchronizes, as whoever heeds
the hazard does. So each answer names the fastest route without a condition and, where a route with one is faster, that
route and its condition beside it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .answers import Choice, Segment, choose
from .cells import BY_BYTES, DEVICE_TO_HOST, HOST_TO_DEVICE, Cell, method, usual_dtype
from .choice import unbeaten
from .contracts import INTO
from .results import Results

FAMILIES = ("transfer", "overlap", "firsts", "link")  # of benchmarks that an accelerator takes part in
BOTH = "both at once"
PAGEABLE, PINNED, REGISTERED = HOSTS = ("pageable", "pinned", "registered")
COMPLETION, ENQUEUE, SUSTAINED = "completion", "enqueue", "sustained"
USUAL = 64 * 2**20  # bytes that answers are about, where they were measured
# Decimal GB/s that one lane carries, after encoding, by generation of PCI Express
PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.56}
BEYOND = 1.1  # of the measured limit: more than noise
MAIN = ("HostToDevice", "DeviceToHost")


@dataclass(frozen=True)
class Need:
    """What somebody wants: which way, which memory at the host's end, NumPy or torch there, fresh or existing."""

    direction: str
    host: str
    array: bool
    into: bool


def need(cell: Cell) -> Need:
    return Need(cell.direction, cell.host, cell.contract.array, cell.memory == INTO)


@dataclass(frozen=True)
class Link:
    """What the link allows. limits: direction -> size -> cell of the pinned copy by the device's clock."""

    limits: Mapping[str, Mapping[int, Cell]]
    hardware: Mapping[str, float]
    floor: Cell | None

    def bandwidth(self, direction: str) -> float | None:
        """Most bytes a second of all sizes measured; both ways at once moves twice the bytes. None: not measured."""
        moved = 2 if direction == BOTH else 1
        return max(
            (moved * cell.nbytes / cell.seconds for cell in self.limits.get(direction, {}).values()), default=None
        )

    def share(self, cell: Cell) -> float | None:
        """Bytes a second of a transfer ÷ the limit of its direction."""
        top = self.bandwidth(cell.direction)
        return cell.nbytes / cell.seconds / top if top else None

    @property
    def capacity(self) -> float | None:
        """Bytes a second each way that the link's generation and width carry; None where they are not known."""
        lane = PER_LANE.get(int(self.hardware.get("link generation", 0)))
        width = self.hardware.get("link width")
        return lane * width * 1e9 if lane and width else None


@dataclass(frozen=True)
class Transfers:
    """The cells that an accelerator takes part in. main: host tensors and arrays of the usual dtype."""

    cells: tuple[Cell, ...]
    main: tuple[Cell, ...]
    link: Link
    missing: tuple[Mapping[str, Any], ...] = ()
    _least: Mapping[tuple[str, str, str], tuple[float, int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.cells or self.link.hardware)

    def of(self, clock: str, direction: str = "", host: str = "") -> list[Cell]:
        """Main cells by clock, direction and host memory."""
        wanted = (cell for cell in self.main if method(cell) == clock)
        return [c for c in wanted if direction in ("", c.direction) and host in ("", c.host)]

    def group(self, family: str, group: str) -> list[Cell]:
        return [cell for cell in self.cells if (cell.family, cell.group) == (family, group)]

    def find(self, clock: str, route: str, host: str, nbytes: int | None = None) -> Cell | None:
        """One main cell; at the usual size, or the nearest measured below it, where no size is asked for."""
        found = {cell.nbytes: cell for cell in self.of(clock, host=host) if cell.route == route}
        return found.get(usual_size(found.values()) if nbytes is None else nbytes)

    def by_bytes(self, cell: Cell) -> bool:
        """Whether the bytes take the time of this cell, and not the call: only then has a bandwidth a meaning."""
        least, sizes = self._least.get((cell.benchmark, cell.route, cell.host), (0.0, 1))
        return sizes == 1 or cell.seconds >= BY_BYTES * least

    def why_not(self, **wanted: str) -> str:
        """Why cells like these have no figure, where all of them give one reason; "" otherwise."""
        rows = [row for row in self.missing if all(row.get(name) == value for name, value in wanted.items())]
        reasons = {str(row["reason"]) for row in rows if row["status"] == "skipped"}
        return reasons.pop() if len(reasons) == 1 else ""


def transfers_of(results: Results, cells: Iterable[Cell]) -> Transfers:
    """The part of the results that an accelerator takes part in."""
    own = tuple(cell for cell in cells if cell.family in FAMILIES)
    ways = (HOST_TO_DEVICE, DEVICE_TO_HOST)
    plain = [cell for cell in own if cell.family == "transfer" and cell.group in MAIN and cell.direction in ways]
    usual = usual_dtype([cell for cell in plain if method(cell) == COMPLETION] or plain)
    main = tuple(cell for cell in plain if cell.dtype == usual)
    limits: dict[str, dict[int, Cell]] = {}
    for cell in own:
        if (cell.family, cell.group) == ("link", "Limit"):
            limits.setdefault(cell.direction, {})[cell.nbytes] = cell
    counted = results.values[(results.values["family"] == "link") & (results.values["group"] == "Hardware")]
    hardware = dict(zip(counted["quantity"], counted["value"])) if len(counted) else {}
    floor = next((cell for cell in own if (cell.family, cell.group) == ("link", "Floor")), None)
    times: dict[tuple[str, str, str], list[float]] = {}
    for cell in plain:
        if cell.dtype == usual:
            times.setdefault((cell.benchmark, cell.route, cell.host), []).append(cell.seconds)
    least = {key: (min(found), len(found)) for key, found in times.items()}
    missing = results.missing[results.missing["family"].isin(FAMILIES)].to_dict("records")
    return Transfers(own, main, Link(limits, hardware, floor), tuple(missing), least)


def usual_size(cells: Iterable[Cell]) -> int:
    """The size at which the most routes were measured; of equals USUAL, or what is nearest below it."""
    routes: dict[int, set[str]] = {}
    for cell in cells:
        routes.setdefault(cell.nbytes, set()).add(cell.route)
    return max(routes, key=lambda n: (len(routes[n]), n <= USUAL, n if n <= USUAL else -n), default=0)


def needs(cells: Iterable[Cell]) -> dict[Need, list[Cell]]:
    """The cells of each need: host to device before back, pageable memory first."""
    found: dict[Need, list[Cell]] = {}
    for cell in cells:
        found.setdefault(need(cell), []).append(cell)
    ways = (HOST_TO_DEVICE, DEVICE_TO_HOST)

    def order(key: Need) -> tuple[int, bool, int, bool]:
        place = HOSTS.index(key.host) if key.host in HOSTS else len(HOSTS)
        return ways.index(key.direction), not key.array, place, key.into

    return {key: found[key] for key in sorted(found, key=order)}


def conditional(choice: Choice) -> list[Cell]:
    """The routes with a condition that are faster than the chosen one and beaten by none, in catalogue order."""
    fast = [cell for cell in choice.hazardous if cell.contract.non_blocking]
    return sorted(unbeaten(fast), key=lambda cell: cell.order) if fast else []


def comparable(cells: Sequence[Cell]) -> list[Cell]:
    """The cells at the sizes with the most routes: where some were not measured, the fastest may be among these."""
    routes = Counter(cell.nbytes for cell in cells)
    most = max(routes.values(), default=0)
    return [cell for cell in cells if routes[cell.nbytes] == most]


def bands(cells: Sequence[Cell]) -> list[Segment]:
    """Neighbouring sizes with one route, cut where the route that is faster under a condition changes."""
    found: list[Segment] = []
    for segment in choose(comparable(cells)):
        parts: list[list[Choice]] = []
        best: list[set[str]] = []
        for choice in segment.choices:
            good = {cell.route for cell in conditional(choice)}
            if parts and (best[-1] & good or not (best[-1] | good)):
                parts[-1].append(choice)
                best[-1] &= good
            else:
                parts.append([choice])
                best.append(good)
        found += [replace(segment, choices=tuple(part)) for part in parts]
    return found


def faster(segment: Segment) -> Cell | None:
    """The route that is faster under a condition over a whole band, at the band's largest size."""
    each = [{cell.route for cell in choice.hazardous} for choice in segment.choices]
    found = conditional(segment.choices[-1])
    common = [cell for cell in found if all(cell.route in routes for routes in each)]
    return next(iter(common or found), None)


@dataclass(frozen=True)
class Recommendation:
    """What to take for a need at one size: the chosen route, and those that are faster under a condition or unsafe."""

    need: Need
    choice: Choice

    @property
    def faster(self) -> Cell | None:
        """The fastest that has a condition, where one is faster than the chosen one."""
        return next(iter(conditional(self.choice)), None)

    @property
    def unsafe(self) -> list[Cell]:
        """What is faster, and waiting does not make it right to take."""
        return [cell for cell in self.choice.hazardous if not cell.contract.non_blocking]


def recommendations(found: Transfers) -> list[list[Recommendation]]:
    """By completion time, at the usual size: a list for each way and end at the host, fresh and existing."""
    ends: dict[tuple[str, bool, str], dict[Need, list[Cell]]] = {}
    for key, cells in needs(found.of(COMPLETION)).items():
        if not key.array or key.host == PAGEABLE:
            ends.setdefault((key.direction, key.array, key.host), {})[key] = cells
    made = []
    for by_need in ends.values():
        nbytes = usual_size(cell for cells in by_need.values() for cell in cells)
        here = {key: [cell for cell in cells if cell.nbytes == nbytes] for key, cells in by_need.items()}
        made.append([Recommendation(key, choose(cells)[0].choices[0]) for key, cells in here.items() if cells])
    return made


@dataclass(frozen=True)
class TooFast:
    """Transfers that read faster than they can be: how many, and the worst of them with what it reads.

    reads: bytes a second, or the share of the measured limit.
    """

    cells: int
    worst: Cell
    reads: float


def beyond_capacity(found: Transfers) -> TooFast | None:
    """What reads more than the link carries: something did not wait."""
    capacity = found.link.capacity
    limits = [cell for by_size in found.link.limits.values() for cell in by_size.values()]
    if capacity is None:
        return None
    fast = [cell for cell in (*_waited(found), *limits) if _rate(cell) > capacity * _ways(cell)]
    worst = max(fast, key=lambda cell: _rate(cell) / _ways(cell), default=None)
    return TooFast(len(fast), worst, _rate(worst)) if worst else None


def beyond_limit(found: Transfers) -> TooFast | None:
    """What reads more than the measured limit of the link."""
    shares = [(cell, found.link.share(cell) or 0.0) for cell in _waited(found)]
    fast = [(cell, share) for cell, share in shares if share > BEYOND]
    return TooFast(len(fast), *max(fast, key=lambda pair: pair[1])) if fast else None


def _waited(found: Transfers) -> list[Cell]:
    """What ends with a synchronize."""
    return [cell for cell in found.main if method(cell) in (COMPLETION, SUSTAINED)]


def _ways(cell: Cell) -> int:
    return 2 if cell.direction == BOTH else 1


def _rate(cell: Cell) -> float:
    return _ways(cell) * cell.nbytes / cell.seconds


# Overlap


@dataclass(frozen=True)
class Hidden:
    """How much of a transfer, or of the product if that is shorter, hides behind the other."""

    product: Cell
    transfer: Cell
    both: Cell

    @staticmethod
    def _share(product: float, transfer: float, both: float) -> float:
        return (product + transfer - both) / min(product, transfer)

    @property
    def share(self) -> float:
        return self._share(self.product.seconds, self.transfer.seconds, self.both.seconds)

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the most that the ranges of the processes allow."""
        products, transfers = (self.product.low, self.product.high), (self.transfer.low, self.transfer.high)
        pairs = [(p, t) for p in products for t in transfers]
        pairs += [(p, p) for p in products if transfers[0] <= p <= transfers[1]]  # where the share may turn
        pairs += [(t, t) for t in transfers if products[0] <= t <= products[1]]
        shares = [self._share(p, t, both) for p, t in pairs for both in (self.both.low, self.both.high)]
        return min(shares), max(shares)


def hidden(found: Transfers) -> list[Hidden]:
    """One a direction, host memory and size whose three parts were measured."""
    parts: dict[tuple[str, str, int], dict[str, Cell]] = {}
    for cell in found.group("overlap", "Hidden"):
        parts.setdefault((cell.direction, cell.host, cell.nbytes), {})[cell.part] = cell
    names = ("product", "transfer", "both")
    return [Hidden(*(each[name] for name in names)) for each in parts.values() if set(names) <= set(each)]
