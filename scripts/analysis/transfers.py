"""Transfers between host and accelerator: what was measured, against what the link allows, and which route to take.

Three times, never mixed: completion (the call and a synchronize), enqueue (the call alone) and sustained (several
copies in flight and one synchronize, by the copy). Routes are chosen by completion. The hazard of a non-blocking route
(read before a synchronize and it is garbage) is no reason to hide it: completion timing synchronizes, as whoever heeds
the hazard does. So each answer names the fastest route without a condition and, where a route with one is faster, that
route and its condition beside it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pages import show
from pages.show import Code, Line

from .answers import BY_BYTES, Advice, Cell, Choice, Segment, busy_at, choose, usual_dtype, why_unsafe
from .choice import unbeaten
from .contracts import INTO
from .results import Results

HOST_TO_DEVICE, DEVICE_TO_HOST, BOTH = "host→device", "device→host", "both at once"
PAGEABLE, PINNED, REGISTERED = HOSTS = ("pageable", "pinned", "registered")
COMPLETION, ENQUEUE, SUSTAINED = "completion", "enqueue", "sustained"
MEANING = {
    COMPLETION: "the call and a synchronize: until the bytes have arrived",
    ENQUEUE: "the call alone: how long the caller is held, the queue empty before it",
    SUSTAINED: "several copies in flight and one synchronize, by the copy",
}
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

    @property
    def end(self) -> str:
        """The host's end in words."""
        if self.array:
            return "a NumPy array" if self.host == PAGEABLE else f"a NumPy array in {self.host} memory"
        return f"a {self.host} host tensor"

    @property
    def way(self) -> str:
        return (
            f"from {self.end} to the device" if self.direction == HOST_TO_DEVICE else f"from the device to {self.end}"
        )

    @property
    def fresh(self) -> str:
        """New or existing, as the beginning of a line."""
        if self.into:
            return f"into {'a device' if self.direction == HOST_TO_DEVICE else 'a host'} tensor that exists"
        return f"a new {'array' if self.array and self.direction == DEVICE_TO_HOST else 'tensor'}"


def method(cell: Cell) -> str:
    """completion, enqueue, sustained, or what else the benchmark's method measures."""
    return cell.benchmark.rpartition(".")[2].partition("_")[2]


def non_blocking(route: str) -> bool:
    """Whether the call may return before the bytes have arrived, as the catalogue has it (Route.non_blocking)."""
    return "non_blocking=True" in route or "copy_in_chunks" in route


def gives_array(route: str) -> bool:
    """Whether what arrives at the host is a NumPy array."""
    return "numpy(" in route


def need(cell: Cell) -> Need:
    to_device = cell.direction == HOST_TO_DEVICE
    array = bool(re.search(r"\ba\b", cell.route)) if to_device else gives_array(cell.route)
    return Need(cell.direction, cell.host, array, cell.memory == INTO)


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

    def speed(self, cell: Cell) -> list[str]:
        """Decimal GB/s and share of the limit, where these have a meaning and are known."""
        if not self.by_bytes(cell):
            return []
        share = self.link.share(cell)
        words = [show.bandwidth(cell.nbytes / cell.seconds)]
        return words + ([f"{show.percent(share)} of the limit"] if share else [])

    def told(self, cell: Cell) -> str:
        """Time, bandwidth and share in words."""
        return ", ".join([cell.shown, *self.speed(cell)])

    def why_not(self, **wanted: str) -> str:
        """Why cells like these have no figure, where all of them give one reason; "" otherwise."""
        rows = [row for row in self.missing if all(row.get(name) == value for name, value in wanted.items())]
        reasons = {str(row["reason"]) for row in rows if row["status"] == "skipped"}
        return reasons.pop() if len(reasons) == 1 else ""


def transfers_of(results: Results, cells: Iterable[Cell], families: Sequence[str]) -> Transfers:
    """The part of the results that an accelerator takes part in."""
    own = tuple(cell for cell in cells if cell.family in families)
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
    missing = results.missing[results.missing["family"].isin(families)].to_dict("records")
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
    fast = [cell for cell in choice.hazardous if non_blocking(cell.route)]
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


def advice(found: Transfers) -> list[Advice]:
    """Answers about one size, by completion time."""
    made = []
    boxes: dict[tuple[str, bool, str], dict[Need, list[Cell]]] = {}
    for key, cells in needs(found.of(COMPLETION)).items():
        if not key.array or key.host == PAGEABLE:
            boxes.setdefault((key.direction, key.array, key.host), {})[key] = cells
    for (direction, _, _), box in boxes.items():
        nbytes = usual_size(cell for cells in box.values() for cell in cells)
        here = {key: own for key, cells in box.items() if (own := [c for c in cells if c.nbytes == nbytes])}
        first = next(iter(here))
        size = show.size(nbytes)
        there = direction == HOST_TO_DEVICE
        title = f"From {first.end} of {size} to the device" if there else f"From the device to {first.end} of {size}"
        made.append(_box(title, here, found, bool(found.link.bandwidth(direction))))
    scalars = found.group("transfer", "Scalar")
    if scalars:
        made.append(_scalar(scalars))
    return made


def _box(title: str, here: Mapping[Need, list[Cell]], found: Transfers, limited: bool) -> Advice:
    lines: list[Line] = []
    notes: list[Line] = []
    for key, cells in here.items():
        segments = choose(cells)
        choice = segments[0].choices[0]
        chosen, fast = choice.cell, next(iter(conditional(choice)), None)
        fresh = f"{key.fresh}, " if len(here) > 1 else ""
        how = "on a condition: " if chosen.contract.get("hazard") else "no condition: "
        lines.append((fresh + how, Code(chosen.route), f", {found.told(chosen)}"))
        notes += [*busy_at(segments), *_condition(chosen), *_beside(choice)]
        if fast is not None:
            lines.append((f"{fresh}faster, on a condition: ", Code(fast.route), f", {found.told(fast)}"))
            gain = f"{show.ratio(chosen.seconds / fast.seconds)} as fast as "
            notes += [(Code(fast.route), f" is {gain}", Code(chosen.route), "."), *_condition(fast)]
        rest = [cell for cell in choice.hazardous if not non_blocking(cell.route)]
        notes += [(Code(c.route), f" is faster, {c.shown}, but: {why_unsafe(c)}.") for c in rest]
    if not limited:
        notes.append(("No share of the link's limit: the limit was not measured in this run.",))
    return Advice(title, tuple(lines), tuple(dict.fromkeys(notes)))


def _condition(cell: Cell) -> Iterable[Line]:
    if cell.contract.get("hazard"):
        yield (Code(cell.route), f": {cell.contract['hazard']}.")
    if cell.contract.get("needs"):
        yield (Code(cell.route), f" needs {cell.contract['needs'].replace(' ', ' and ')}.")


def _beside(choice: Choice) -> Iterable[Line]:
    """What is tied with the chosen route, and the next slower."""
    if choice.ties:
        yield ("Tie with ", *show.codes([cell.route for cell in choice.ties]), ".")
    if choice.others:
        slower = choice.others[0]
        yield ("Next: ", Code(slower.route), f", {show.ratio(slower.seconds / choice.cell.seconds)} the time.")


def _scalar(cells: Sequence[Cell]) -> Advice:
    segments = choose(cells)
    choice = segments[0].choices[0]
    lines = (("", Code(choice.cell.route), f", {choice.cell.shown}"),)
    notes = (*busy_at(segments), *_condition(choice.cell), *_beside(choice))
    return Advice("From the device to a number: a scalar such as a loss", lines, notes)


def impossible(found: Transfers) -> list[Line]:
    """Transfers that read faster than the link can carry, or than its measured limit: something did not wait."""
    capacity = found.link.capacity
    warnings: list[Line] = []
    waited = [cell for cell in found.main if method(cell) in (COMPLETION, SUSTAINED)]
    limits = [cell for by_size in found.link.limits.values() for cell in by_size.values()]
    if capacity is not None:
        fast = [(_rate(cell), cell) for cell in (*waited, *limits) if _rate(cell) > capacity * _ways(cell)]
        if fast:
            rate, worst = max(fast, key=lambda pair: pair[0] / _ways(pair[1]))
            generation, width = (int(found.link.hardware[f"link {word}"]) for word in ("generation", "width"))
            count = "1 cell reads" if len(fast) == 1 else f"{len(fast)} cells read"
            warnings.append(
                (
                    f"Not possible: {count} more than the link carries (Gen{generation} x{width}: "
                    f"{show.bandwidth(capacity)} each way), the most with {show.bandwidth(rate)}: ",
                    Code(worst.cell),
                    ". Either a synchronize is missing or the link is not PCI Express: do not trust these transfers.",
                )
            )
    beyond = [(share, c) for c in waited if (share := found.link.share(c) or 0) > BEYOND]
    if beyond and not warnings:
        share, worst = max(beyond, key=lambda pair: pair[0])
        count = "1 cell reads" if len(beyond) == 1 else f"{len(beyond)} cells read"
        why = f"{count} more than the measured limit of the link, the most {show.percent(share)} of it: "
        warnings.append((f"Doubtful: {why}", Code(worst.cell), "."))
    return warnings


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

    def told(self) -> str:
        """The share in words; what noise lifts above all or below nothing is said to be that."""
        share = self.share
        if share > 1:
            return f"all ({show.percent(share)} by noise)"
        return f"none ({show.percent(share)} by noise)" if share < 0 else show.percent(share)


def hidden(found: Transfers) -> list[Hidden]:
    """One a direction, host memory and size whose three parts were measured."""
    parts: dict[tuple[str, str, int], dict[str, Cell]] = {}
    for cell in found.group("overlap", "Hidden"):
        parts.setdefault((cell.direction, cell.host, cell.nbytes), {})[cell.part] = cell
    names = ("product", "transfer", "both")
    return [Hidden(*(each[name] for name in names)) for each in parts.values() if set(names) <= set(each)]
