"""A case, an array of some size that somebody has here and wants there, and its routes ranked by what was measured.

Plain data in, plain data out, by the standard library alone: ``Known`` is what published.py makes of results and JSON
holds, so that a page or a check can rank by the same.

What was measured at few sizes (another dtype, another layout, a tensor that requires grad) follows the route's curve of
its usual source. Where both were measured it shows whether that is the same, or else by how much it is not.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cli import UserError
from store.records import MACHINE, Conditions

from benchmarks.contracts import (
    ALIAS,
    CONTIGUOUS,
    COPY,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    INTO,
    NONE,
    NUMPY_TO_TORCH,
    PAGEABLE,
    PINNED,
    TORCH_TO_NUMPY,
    Route,
)

from .curves import (
    ALLOCATE,
    BY_BYTES,
    COMPLETION,
    ENQUEUE,
    LIMIT,
    MEASURED,
    PIN,
    Curve,
    Figure,
    Point,
    figure_at,
    latency,
    neighbours,
    parted,
)

NUMPY, TORCH, CUDA = ENDS = ("numpy", "torch", "cuda")
HOSTS = (PAGEABLE, PINNED)
ZERO_D = "0-d"
# Source and target -> direction, and whether it is an array that is at the host's end of a link
WAYS = {
    (NUMPY, TORCH): (NUMPY_TO_TORCH, False),
    (TORCH, NUMPY): (TORCH_TO_NUMPY, False),
    (NUMPY, CUDA): (HOST_TO_DEVICE, True),
    (TORCH, CUDA): (HOST_TO_DEVICE, False),
    (CUDA, NUMPY): (DEVICE_TO_HOST, True),
    (CUDA, TORCH): (DEVICE_TO_HOST, False),
}
FLOATS = ("float", "bfloat", "complex")
MAPPED = 32 * 2**20  # bytes: from here on glibc gives fresh memory fresh pages at every call, see benchmarks/sources.py
LARGEST = 2**50  # of bytes and of transfers
AROUND = 4.0  # times a size, or that part of it: up to there what is decided elsewhere orders routes that tie
CHUNKS = 8 * 2**20  # bytes of pinned memory that a copy in chunks keeps, see benchmarks/moving.py


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) // 8 if digits else 1  # bool


@dataclass(frozen=True)
class Case:
    """What somebody has and wants; ``check`` says what is wrong with it.

    nbytes   of the source; of each array where there are several
    memory   alias, copy or into; "": alias or copy, whatever is fastest
    host     memory at the host's end of a link; "": pageable, or pinned once by whoever asks
    batch    how many arrays become one; 0: it is one already
    enqueue  rank by how long the caller is held
    count    how many transfers share what is paid once
    """

    source: str
    target: str
    nbytes: int
    dtype: str = "float32"
    layout: str = CONTIGUOUS
    memory: str = ""
    host: str = ""
    grad: bool = False
    batch: int = 0
    enqueue: bool = False
    count: int = 1

    @property
    def direction(self) -> str:
        return WAYS[self.source, self.target][0]

    @property
    def array(self) -> bool:
        """Whether it is an array that is at the host's end of a link."""
        return WAYS[self.source, self.target][1]

    @property
    def device(self) -> bool:
        return CUDA in (self.source, self.target)

    @property
    def total(self) -> int:
        """Bytes that are moved."""
        return self.nbytes * max(1, self.batch)


@dataclass(frozen=True)
class Gain:
    """A route with a setting of the environment is ``factor`` times as fast at this size; said of ``routes``."""

    setting: str
    route: str
    nbytes: int
    factor: float
    caution: str = ""
    routes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Slowed:
    """A route takes ``factor`` times as long at this size where its arrays lie as neighbours do; said of ``routes``."""

    route: str
    nbytes: int
    factor: float
    routes: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """What is known of one machine and one toolchain. dtypes: direction -> those that the suite times there.

    lacking: "direction dtype" -> why it has no figure. day: of the run.
    """

    machine: str
    toolchain: str = ""
    torch: str = ""
    numpy: str = ""
    day: str = ""
    device: str = ""
    device_name: str = ""
    conditions: Conditions = Conditions()
    points: tuple[Point, ...] = ()
    contracts: tuple[Route, ...] = ()
    gains: tuple[Gain, ...] = ()
    slowed: tuple[Slowed, ...] = ()
    dtypes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)

    @property
    def transfers(self) -> bool:
        """Whether transfers to or from a device were measured."""
        return any(point.direction in (HOST_TO_DEVICE, DEVICE_TO_HOST) for point in self.points)

    def contract(self, route: str, direction: str) -> Route:
        """The contract of a route; NONE where there is none."""
        return next((c for c in self.contracts if (c.expression, c.direction) == (route, direction)), NONE)


# --- candidates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Carried:
    """The figure is that of another source: ``instead`` of ``what``, both of which were measured at the size ``at``.

    factor  what that costs there; 1 where no difference is decided
    at      0: nowhere, so that nobody knows
    calm    False: nothing can be decided, for the machine was never calm there; it costs that at most
    """

    what: str
    instead: str
    at: int = 0
    factor: float = 1.0
    calm: bool = True


@dataclass(frozen=True)
class Candidate:
    """A route for a case.

    figure   of one transfer
    total    seconds, with what falls on each of the case's transfers of what is paid once: ranked by it
    once     what is paid once, None where that was not measured; paid: what for, "" for nothing
    rate     bytes a second; None where they take no time, or it is not they that do
    share    of the limit; None where that was not measured, or the figure was not at this size
    tie      as good as the best, as far as is decided at the measured sizes beside the case's
    speaks   the points of its curve that are beside the case's size; around: these and those within AROUND of it;
             anchors: those that show what its source costs
    """

    route: str
    contract: Route
    memory: str
    host: str
    figure: Figure
    total: float
    carried: tuple[Carried, ...] = ()
    once: Figure | None = None
    paid: str = ""
    rate: float | None = None
    share: float | None = None
    tie: bool = False
    gains: tuple[Gain, ...] = ()
    speaks: tuple[Point, ...] = ()
    around: tuple[Point, ...] = ()
    anchors: tuple[Point, ...] = ()

    @property
    def good(self) -> bool:
        """Whether it may be recommended: safe, or safe for whoever waits, as the code to paste does."""
        return self.contract.safe or self.contract.non_blocking

    @property
    def calm(self) -> bool:
        """Whether the machine was calm while what it rests on was measured."""
        return all(point.calm for point in (*self.speaks, *self.anchors))

    @property
    def unpriced(self) -> bool:
        """Whether something is paid once and nobody knows how much."""
        return bool(self.paid) and self.once is None

    @property
    def as_usual(self) -> bool:
        """Whether nothing about its source is decided to cost anything."""
        return all(each.factor == 1 for each in self.carried)


@dataclass(frozen=True)
class Answer:
    """Ranked: the routes to take, those that tie first, by what is decided beside the case's size and in catalogue
    order, then by time; one at least.

    unsafe   those that would be faster but for a hazard
    unknown  routes that would do, of which nothing like the case was measured
    arrays   how many arrays the figures of a batch are of; 0: it is none
    """

    case: Case
    known: Known
    ranked: tuple[Candidate, ...]
    unsafe: tuple[Candidate, ...] = ()
    unknown: tuple[str, ...] = ()
    arrays: int = 0


def rank(case: Case, known: Known) -> Answer:
    """The routes for a case. UserError where there cannot be such a case, or nothing was measured of it."""
    check(case)
    _check_known(case, known)
    curves = _curves(case, known)
    every = {key: _candidate(case, known, *key, by_source) for key, by_source in curves.items()}
    measured = [candidate for candidate in every.values() if candidate]
    good = sorted((each for each in measured if each.good), key=lambda each: (each.unpriced, each.total))
    if not good:
        raise UserError(_nothing(case, known, bool(measured)))
    # decisions are not transitive, so it may be that each is slower than some other
    level = [candidate for candidate in good if not any(_slower(candidate, other) for other in good)] or good[:1]
    # of those that tie first what is decided to be slower nowhere around the case's size, then the catalogue's order,
    # so that the same run measured twice gives the same advice
    ties = sorted(level, key=lambda each: (any(_lost(each, other) for other in level), each.speaks[0].order))
    ranked = [replace(each, tie=len(level) > 1) for each in ties] + [each for each in good if each not in level]
    unsafe = [each for each in measured if not each.good and _slower(ranked[0], each)]
    unknown = dict.fromkeys(route for (route, _), candidate in every.items() if candidate is None)
    arrays = max(
        point.arrays for by_source in curves.values() for curve in by_source.values() for point in curve.values()
    )
    return Answer(case, known, tuple(ranked), tuple(unsafe), tuple(unknown), arrays)


def _slower(candidate: Candidate, other: Candidate) -> bool:
    """Whether a candidate is decided to be slower at the measured sizes that speak for the case: at all, or at some
    where the ranges lie apart at its own. Where no size speaks for both, or something is paid once, the ranges tell
    alone. What nobody knows the price of is slower than what has none, and what takes so long at most, for the machine
    was never calm there, than what is known to take less."""
    if candidate.unpriced != other.unpriced:
        return candidate.unpriced
    if candidate.calm != other.calm:
        return other.calm and candidate.total > other.total - other.figure.seconds + other.figure.high
    decided = _compared(candidate, other)
    apart = (
        candidate.total - candidate.figure.seconds + candidate.figure.low
        > other.total - other.figure.seconds + other.figure.high
    )
    if candidate.paid or other.paid or not decided:
        return apart
    return all(decided) or (apart and any(decided))


def _compared(candidate: Candidate, other: Candidate, wide: bool = False) -> list[bool]:
    """Of each measured size that speaks for both, or lies around the case's, whether the candidate is decided to be
    slower there."""
    as_usual = candidate.as_usual and other.as_usual
    mine, others = ((each.around if wide else each.speaks) if as_usual else each.anchors for each in (candidate, other))
    return [b.place in a.behind for a in mine for b in others if (a.nbytes, a.source) == (b.nbytes, b.source)]


def _lost(candidate: Candidate, other: Candidate) -> bool:
    """Whether a candidate is decided to be slower at some measured size around the case's, and the other at none."""
    return any(_compared(candidate, other, wide=True)) and not any(_compared(other, candidate, wide=True))


# A source: dtype, layout, whether it requires grad. Of each route by host memory: source -> its curve
Source = tuple[str, str, bool]
Curves = dict[tuple[str, str], dict[Source, dict[int, Point]]]


def _curves(case: Case, known: Known) -> Curves:
    """The routes that do what the case wants, safely or not, by host memory, with what was measured of them."""
    fits = {c.expression: c for c in known.contracts if c.direction == case.direction and _fits(case, c)}
    curves: Curves = {}
    for point in known.points:
        if point.direction != case.direction or point.route not in fits or bool(point.arrays) != bool(case.batch):
            continue
        if case.device and point.host not in ((case.host,) if case.host else HOSTS):
            continue
        # a blocking call holds its caller until the bytes have arrived
        clock = ENQUEUE if case.enqueue and fits[point.route].non_blocking else COMPLETION
        if point.clock == clock:
            curves.setdefault((point.route, point.host), {}).setdefault(point.source, {})[point.nbytes] = point
    return curves


def _fits(case: Case, contract: Route) -> bool:
    return (
        contract.keeps_dtype(case.dtype)
        and contract.memory_for(case.dtype, case.layout) in ((case.memory,) if case.memory else (ALIAS, COPY))
        and (not case.device or contract.array == case.array)
        and case.dtype not in contract.refuses
        and (not case.grad or contract.takes_grad)
    )


def _candidate(
    case: Case, known: Known, route: str, host: str, curves: Mapping[Source, Mapping[int, Point]]
) -> Candidate | None:
    """None where nothing like the case was measured of the route."""
    contract = known.contract(route, case.direction).on(host)
    memory = contract.memory_for(case.dtype, case.layout)
    breaks = breaks_of(known, case.direction, memory)
    wanted = case.dtype, case.layout, case.grad
    # a curve of what the route does with this source: it may share the memory of one and copy another
    alike = [source for source in curves if contract.memory_for(*source[:2]) == memory]
    if not alike:
        return None
    usual = max(alike, key=lambda s: (len(curves[s]), s[1] == case.layout, s[1] == CONTIGUOUS, not s[2]))
    if case.total in curves.get(wanted, {}):
        usual = wanted
    curve = curves[usual]
    figure, speaks = figure_at(curve, case.total, breaks, memory != ALIAS), neighbours(curve, case.total, breaks)
    carried, anchors = [], []
    for what, instead, differing in _differences(wanted, usual, curves):
        both = [size for size in differing if size in curve]
        if not both:
            # another layout may be another thing to do; bits are bits, and to detach takes no time
            if case.layout in what:
                return None
            carried.append(Carried(what, instead))
            continue
        at = min(both, key=lambda size: abs(math.log(size / case.total)))
        anchors.append(differing[at])
        calm = differing[at].calm and curve[at].calm
        if not calm or differing[at].place in curve[at].behind or curve[at].place in differing[at].behind:
            carried.append(Carried(what, instead, at, differing[at].seconds / curve[at].seconds, calm))
            figure = _carry(figure, differing[at], curve[at], latency(curve))
        else:
            carried.append(Carried(what, instead, at))
    once, paid = _once(case, known, route, host, memory)
    rate, share = _rate(case, known, figure, curve) if memory != ALIAS else (None, None)
    return Candidate(
        route,
        contract,
        memory,
        host,
        figure,
        figure.seconds + (once.seconds / case.count if once else 0.0),
        tuple(carried),
        once,
        paid,
        rate,
        share,
        gains=tuple(
            gain
            for gain in known.gains
            if route in gain.routes and memory != ALIAS and not parted(breaks, gain.nbytes, case.total)
        ),
        speaks=tuple(speaks),
        around=tuple(p for size, p in curve.items() if p in speaks or 1 / AROUND <= size / case.total <= AROUND),
        anchors=tuple(anchors),
    )


def slowed_of(case: Case, known: Known, route: str) -> Slowed | None:
    """What a route costs between neighbours, at the size nearest to the case's; None where nothing is known of that.

    A contiguous source alone is copied in one piece.
    """
    slowed = [each for each in known.slowed if route in each.routes and case.layout == CONTIGUOUS]
    if not slowed or not min(each.nbytes for each in slowed) <= case.nbytes <= max(each.nbytes for each in slowed):
        return None
    return min(slowed, key=lambda each: abs(math.log(each.nbytes / case.nbytes)))


def breaks_of(known: Known, direction: str, memory: str) -> tuple[int, ...]:
    """The sizes from which on the times of routes with this memory leap: where they take fresh memory of the host."""
    fresh = memory == COPY and direction != HOST_TO_DEVICE and known.conditions.libc.startswith("glibc")
    return (MAPPED,) if fresh else ()


class Difference(NamedTuple):
    """What the case's source is and what the usual one is instead, and the curve of a source that differs in that."""

    what: str
    instead: str
    curve: Mapping[int, Point]


def _differences(wanted: Source, usual: Source, curves: Mapping[Source, Mapping[int, Point]]) -> list[Difference]:
    """All in one where such a source was measured, else one by one."""
    places = [place for place, (part, other) in enumerate(zip(wanted, usual)) if part != other]
    words = [(word, other) for word, other in zip(_words(wanted), _words(usual)) if word != other]
    if wanted in curves and places:
        return [Difference(" ".join(word for word, _ in words), " ".join(other for _, other in words), curves[wanted])]
    differences = []
    for place, (what, instead) in zip(places, words):
        alone = [source for source in curves if all((source[n] != usual[n]) == (n == place) for n in range(len(usual)))]
        curve = next((curves[source] for source in alone if source[place] == wanted[place]), {})
        differences.append(Difference(what, instead, curve))
    return differences


def _words(source: Source) -> tuple[str, str, str]:
    dtype, layout, grad = source
    return dtype, layout, "requires grad" if grad else "no grad"


def _carry(figure: Figure, point: Point, other: Point, shortest: float) -> Figure:
    """A figure with what another source costs: on top of the call where it is the bytes that take the time."""
    call = shortest if min(point.seconds, other.seconds) >= BY_BYTES * shortest else 0.0

    def carried(seconds: float, taken: float, usual: float) -> float:
        return call + max(0.0, seconds - call) * (taken - call) / (usual - call)

    return replace(
        figure,
        seconds=carried(figure.seconds, point.seconds, other.seconds),
        low=min(carried(figure.low, point.low, other.seconds), carried(figure.low, point.seconds, other.high)),
        high=max(carried(figure.high, point.high, other.seconds), carried(figure.high, point.seconds, other.low)),
    )


def _once(case: Case, known: Known, route: str, host: str, memory: str) -> tuple[Figure | None, str]:
    """What is paid once, None where that was not measured, and what for."""
    if case.host == PINNED or not case.device:
        return None, ""
    if host == PINNED:
        fresh = case.direction == DEVICE_TO_HOST and memory != INTO
        if fresh:
            return None, ""  # torch's allocator keeps pinned memory, so the figure has it
        clock, nbytes, what = (ALLOCATE, case.nbytes, "h") if case.source == CUDA else (PIN, case.nbytes, "t")
        if uses(route, "buffers"):
            nbytes, what = 2 * case.nbytes, "buffers"
    elif uses(route, "s"):
        clock, nbytes, what = ALLOCATE, case.nbytes, "s"
    elif uses(route, "stages"):
        clock, nbytes, what = ALLOCATE, CHUNKS, "stages"
    else:
        return None, ""
    curve = {point.nbytes: point for point in known.points if point.clock == clock}
    if not curve:
        return None, what
    # below the smallest it is the pages that cost, so as much less as there are fewer
    return figure_at(curve if nbytes >= min(curve) else {min(curve): curve[min(curve)]}, nbytes), what


def uses(route: str, name: str) -> bool:
    """Whether a route's expression uses a name of the catalogue."""
    return re.search(rf"\b{name}\b", route) is not None


def _rate(case: Case, known: Known, figure: Figure, curve: Curve) -> tuple[float | None, float | None]:
    """Bytes a second, and their share of what memcpy or the link allows."""
    if case.enqueue or figure.seconds < BY_BYTES * latency(curve):
        return None, None
    rate = case.total / figure.seconds
    direction = case.direction if case.device else ""
    limits = {p.nbytes: p for p in known.points if p.clock == LIMIT and p.direction == direction}
    if not limits:
        return rate, None
    if case.device:  # a link has one bandwidth, memory's depends on the caches
        return rate, rate / max(size / point.seconds for size, point in limits.items())
    # where either is drawn on from other sizes, the errors of both lines would make it 111 %
    there = figure.how == MEASURED and case.total in limits
    return rate, limits[case.total].seconds / figure.seconds if there else None


# --- what cannot be answered ------------------------------------------------------------------------------------------


def check(case: Case) -> None:
    """UserError where a case contradicts itself, or there cannot be one."""
    if (case.source, case.target) not in WAYS:
        raise UserError(f"--from {case.source} --to {case.target}: two of {', '.join(ENDS)}, and not the same")
    if case.nbytes < 1:
        raise UserError(f"--nbytes {case.nbytes}: one byte at least")
    if case.total > LARGEST:
        raise UserError(f"--nbytes {case.nbytes}: more than memory holds")
    if not 1 <= case.count <= LARGEST:
        raise UserError(f"--count {case.count}: from one transfer to {LARGEST}")
    if case.batch < 0 or case.batch == 1:
        raise UserError(f"--batch {case.batch}: a batch is of two arrays at least")
    if case.batch and (case.device or case.memory in (ALIAS, INTO) or case.grad or case.layout != CONTIGUOUS):
        raise UserError("--batch is about arrays on the host that become a fresh one: no other option goes with it")
    if case.memory == ALIAS and case.device:
        raise UserError("--share: nothing is shared between host and device")
    if case.host and not case.device:
        raise UserError("--source: which memory matters for transfers alone, --from cuda or --to cuda")
    if case.enqueue and not case.device:
        raise UserError("--enqueue: on the host every call holds the caller until it is done; it is about transfers")
    if case.grad and case.source == NUMPY:
        raise UserError("--grad: a NumPy array requires no grad")
    if case.grad and not case.dtype.startswith(FLOATS):
        raise UserError(f"--grad: floating point and complex tensors require grad, {case.dtype} does not")


def _check_known(case: Case, known: Known) -> None:
    """UserError where nothing is known of the case's direction, dtype or layout."""
    here = [point for point in known.points if point.direction == case.direction]
    if case.device and not here:
        raise UserError(
            f"no transfer {case.direction} was measured on {known.machine}: with an accelerator, "
            "python scripts/run.py --profile transfers does that"
        )
    dtypes = known.dtypes.get(case.direction, ())
    if case.dtype not in dtypes:
        raise UserError(f"--dtype {case.dtype}: not timed {case.direction}; there are {', '.join(dtypes)}")
    why = known.lacking.get(f"{case.direction} {case.dtype}")
    if why:
        raise UserError(f"--dtype {case.dtype}: not on this toolchain, {why}")
    size = itemsize(case.dtype)
    if case.nbytes % size:
        raise UserError(f"--nbytes {case.nbytes}: no whole number of {case.dtype}, which takes {size} bytes")
    layouts = sorted({point.layout for point in here})
    if case.layout not in layouts:
        raise UserError(f"--layout {case.layout}: not measured {case.direction}; there are {', '.join(layouts)}")
    if case.layout == ZERO_D and case.nbytes != size:
        raise UserError(f"--layout {ZERO_D}: one {case.dtype}, {size} bytes and not {case.nbytes}")


def _nothing(case: Case, known: Known, only_unsafe: bool) -> str:
    """Why no route can be recommended."""
    if only_unsafe:
        return "what does that has a hazard, every route: none is recommended"
    if any(case.dtype in contract.refuses for contract in known.contracts if contract.direction == case.direction):
        return f"--dtype {case.dtype}: no route keeps it {case.direction}, they raise"
    wanted = {ALIAS: " that shares memory", COPY: " that copies", INTO: " into a buffer"}.get(case.memory, "")
    grad = " and takes a tensor that requires grad" if case.grad else ""
    host = f" of {case.host} memory" if case.host else ""
    what = f"a batch of {case.dtype}" if case.batch else f"{case.layout} {case.dtype}{host}"
    return f"no route {case.direction}{wanted}{grad} was measured for {what}"


# --- whose results ----------------------------------------------------------------------------------------------------


def closest(known: Sequence[Known], here: Conditions, device: bool) -> tuple[Known, tuple[str, ...]]:
    """Of one machine at least the one most like this, and in what it differs. device: it has to have measured one, if
    any has."""

    def differs(machine: Known) -> tuple[str, ...]:
        return tuple(name for name in MACHINE if getattr(machine.conditions, name) != getattr(here, name))

    def distance(machine: Known) -> tuple[bool, int, int]:
        return (
            device and not machine.transfers,
            len(differs(machine)),
            abs((machine.conditions.cores or 0) - (here.cores or 0)),
        )

    nearest = min(known, key=distance)
    return nearest, differs(nearest)
