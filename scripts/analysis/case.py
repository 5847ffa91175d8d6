"""A case, an array of some size that somebody has here and wants there, and its routes, looked up in what is ranked.

Plain data in, plain data out, by the standard library alone: ``Known`` is what choices.py makes of results, and what a
page and a cache hold as JSON. Between measured sizes a time is interpolated; beyond them it is extrapolated to FARTHEST
times the size; nothing is carried across a size at which times leap, nor from one layout to another.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cli import UserError
from store.records import MACHINE, Conditions

from benchmarks.contracts import (
    ALIAS,
    ALL_THREADS,
    CONTIGUOUS,
    COPY,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    INTO,
    NONE,
    NUMPY_TO_TORCH,
    ONE_THREAD,
    PAGEABLE,
    PARALLEL,
    PINNED,
    TORCH_TO_NUMPY,
    Route,
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
FRESH = 32 * 2**20  # bytes: from here on glibc gives fresh memory fresh pages at every call, see benchmarks/sources.py
LARGEST = 2**50  # of bytes and of transfers
FARTHEST = 4.0  # times the largest measured size, or that part of the smallest: nothing is said of sizes beyond
# Relative, of two routes: figures of a call that moves 16 MiB differ by 9 % (SD) from session to session, others by 1 %
AS_GOOD = 0.1
BY_BYTES = 2.0  # what takes this many times its shortest call: the bytes decide, a bandwidth has a meaning
MEASURED, INTERPOLATED, EXTRAPOLATED = ("measured", "interpolated", "extrapolated")
# What a route is among those of its need at a size: to be taken, as good, slower, not known to be (an upper bound);
# faster for whoever heeds its condition; faster and not safe; nothing that anybody would take
GOOD = BEST, TIE, SLOWER, UNDECIDED = "best", "tie", "slower", "undecided"
CONDITION, UNSAFE, OTHER = "condition", "unsafe", "other"


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits[0]) // 8) if digits else 1  # bool


def uses(route: str, name: str) -> bool:
    """Whether a route's expression uses a name of the catalogue."""
    return re.search(rf"\b{name}\b", route) is not None


# --- what is known ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """What somebody has and wants: routes of one need are ranked against each other.

    memory   alias, copy or into
    goal     dtype of the result; "": that of the source
    batch    several arrays become one
    threads  that torch has: ONE_THREAD, another number, or ALL_THREADS; "" where a link is crossed
    host     memory at the host's end of a link; array: there it is a NumPy array, else a tensor
    enqueue  ranked by how long the call holds its caller, else by completion
    """

    direction: str
    memory: str
    dtype: str
    goal: str = ""
    layout: str = CONTIGUOUS
    grad: bool = False
    batch: bool = False
    threads: str = ""
    host: str = ""
    array: bool = False
    enqueue: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is one array or tensor that keeps its dtype and requires no grad."""
        return not (self.goal or self.grad or self.batch)

    @property
    def crosses(self) -> bool:
        """Whether it crosses the link to a device."""
        return self.direction in (HOST_TO_DEVICE, DEVICE_TO_HOST)


@dataclass(frozen=True)
class Row:
    """A route at a measured size. Rows of a need and size are in the order to take them.

    need    place in Known.needs
    kind    BEST, TIE, SLOWER, CONDITION or UNSAFE
    seconds per call, median over processes; low, high: their range
    quiet   False: no process was, and seconds is an upper bound
    rate    bytes per second where the bytes take the time; share: of what memcpy or the link allows
    arrays  the source is so many arrays, ``nbytes`` together
    paid    what is pinned once for it, by its name in the route; once: seconds of that, None where not measured
    """

    need: int
    nbytes: int
    route: str
    kind: str
    seconds: float
    low: float
    high: float
    quiet: bool = True
    rate: float | None = None
    share: float | None = None
    arrays: int = 0
    paid: str = ""
    once: float | None = None


@dataclass(frozen=True)
class Effect:
    """What changes a route's time by ``factor`` at a size; said of ``routes``.

    setting  of the environment, with which it is so many times as fast; "": it takes so many times as long, where its
             arrays lie as neighbours do
    """

    route: str
    nbytes: int
    factor: float
    routes: tuple[str, ...]
    setting: str = ""
    caution: str = ""


@dataclass(frozen=True)
class Known:
    """What is known of one machine and one toolchain. breaks: sizes from which fresh memory takes longer; threads: of
    torch by itself; limit: bytes and seconds of memcpy.

    dtypes: direction -> those that the suite times, each with why it has no figure; day: of the run
    """

    machine: str
    toolchain: str = ""
    torch: str = ""
    numpy: str = ""
    day: str = ""
    device: str = ""
    device_name: str = ""
    conditions: Conditions = Conditions()
    threads: int = 1
    breaks: tuple[int, ...] = ()
    limit: tuple[tuple[float, ...], ...] = ()
    needs: tuple[Need, ...] = ()
    rows: tuple[Row, ...] = ()
    contracts: tuple[Route, ...] = ()
    effects: tuple[Effect, ...] = ()
    dtypes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def transfers(self) -> bool:
        """Whether transfers to or from a device were measured."""
        return any(need.crosses for need in self.needs)

    def contract(self, route: str, direction: str) -> Route:
        """The contract of a route; NONE where there is none."""
        return next((c for c in self.contracts if (c.expression, c.direction) == (route, direction)), NONE)

    def breaks_of(self, need: Need) -> tuple[int, ...]:
        """The sizes at which the times of a need leap: where its routes take fresh memory of the host, and where torch
        begins to spread a copy over its threads."""
        fresh = self.breaks if need.memory == COPY and need.direction != HOST_TO_DEVICE else ()
        spreads = need.threads not in ("", ONE_THREAD) and need.memory != ALIAS
        return (PARALLEL * itemsize(need.dtype), *fresh) if spreads else fresh

    @property
    def spreads(self) -> bool:
        """Whether conversions were measured with as many threads as torch takes by itself."""
        return any(need.threads == ALL_THREADS for need in self.needs)


# --- cases ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What somebody has and wants; ``check`` says what is wrong with it.

    nbytes   of the source; of each array where there are several
    memory   alias, copy or into; "": alias where that can be, else copy
    host     memory at the host's end of a link; "": pageable, or pinned once by whoever asks
    batch    how many arrays become one; 0: it is one already
    enqueue  rank by how long the caller is held
    count    how many transfers share what is paid once
    goal     dtype of the result; "": that of the source
    threads  that torch has; "": as many as it takes by itself, or one where nothing else was measured
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
    goal: str = ""
    threads: str = ""

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

    def threads_in(self, known: "Known") -> str:
        """How many threads torch has, as needs have it."""
        if self.device:
            return ""
        asked = self.threads or (ALL_THREADS if known.spreads else ONE_THREAD)
        return ALL_THREADS if known.spreads and asked == str(known.threads) else asked

    def needs(self, known: Known, memory: str, dtype: str, grad: bool) -> list[int]:
        """The places of the needs that it is, with this memory, dtype and grad."""
        wanted = Need(
            *(self.direction, memory, dtype, self.goal, self.layout, grad),
            batch=bool(self.batch),
            threads=self.threads_in(known),
            array=self.array,
            enqueue=self.enqueue,
        )
        hosts = (self.host,) if self.host else ("", *HOSTS)
        every = enumerate(known.needs)
        return [place for place, need in every if need.host in hosts and replace(need, host="") == wanted]


@dataclass(frozen=True, kw_only=True)
class Candidate(Row):
    """A route for a case: what rows say of its size. rate and share are None where it was not measured.

    how    measured, interpolated or extrapolated; sizes: those that it rests on
    total  seconds, with what falls on each of the case's transfers of what is paid once: ranked by it
    """

    how: str = MEASURED
    sizes: tuple[int, ...] = ()
    contract: Route = NONE
    memory: str = ""
    host: str = ""
    total: float = 0.0

    @property
    def tie(self) -> bool:
        return self.kind == TIE

    @property
    def unpriced(self) -> bool:
        """Whether something is paid once and nobody knows how much."""
        return bool(self.paid) and self.once is None


def estimate(
    curve: Mapping[int, Row], nbytes: int, breaks: Sequence[int] = (), limit: Sequence[Sequence[float]] = ()
) -> Candidate | None:
    """What a route's rows, by size, say of a size; None where no measured size may speak for it.

    breaks: sizes from which on other times hold; no row on the other side says anything. limit: bytes and seconds of
    memcpy: where a byte costs it more or less at the size than where the route was measured, the interval holds both.
    """
    if nbytes in curve:
        return Candidate(**vars(curve[nbytes]), sizes=(nbytes,))
    side = [size for size in sorted(curve) if not any(min(size, nbytes) < at <= max(size, nbytes) for at in breaks)]
    below, above = [size for size in side if size < nbytes], [size for size in side if size > nbytes]
    call = min(row.seconds for row in curve.values())
    if below and above:
        left, right = curve[below[-1]], curve[above[0]]
        middles, lows, highs = (_lines(left, right, name, nbytes, call) for name in ("seconds", "low", "high"))
        return _rests_on((left, right), INTERPOLATED, nbytes, middles[-1], min(lows), max(highs))
    if not side:
        return None
    row = curve[below[-1] if below else above[0]]
    ratio = nbytes / row.nbytes
    if not 1 / FARTHEST <= ratio <= FARTHEST:
        return None
    call = call if len(curve) > 1 else 0.0  # of one size alone nobody knows which part is the call
    low, seconds, high = (call + max(0.0, value - call) * ratio for value in (row.low, row.seconds, row.high))
    if len(curve) == 1:
        low, high = min(low, row.low), max(high, row.high)
    dearer = _per_byte(limit, nbytes) / _per_byte(limit, row.nbytes)
    return _rests_on((row,), EXTRAPOLATED, nbytes, seconds, low * min(1.0, dearer), high * max(1.0, dearer))


def _rests_on(rows: Sequence[Row], how: str, nbytes: int, seconds: float, low: float, high: float) -> Candidate:
    """A size that was not measured: of the kinds of the rows the one that promises least."""
    kind = min((row.kind for row in rows), key=(UNSAFE, CONDITION, UNDECIDED, SLOWER, TIE, BEST).index)
    figure = {"nbytes": nbytes, "seconds": seconds, "low": low, "high": high, "rate": None, "share": None}
    known = {"kind": kind, "quiet": all(row.quiet for row in rows)}
    return Candidate(**{**vars(rows[-1]), **figure, **known}, how=how, sizes=tuple(row.nbytes for row in rows))


def _per_byte(limit: Sequence[Sequence[float]], nbytes: int) -> float:
    """Seconds per byte of memcpy at the next size that it was measured at, else at the largest; 1 of none."""
    found = sorted((size, seconds / size) for size, seconds in limit)
    return next((each for size, each in found if size >= nbytes), found[-1][1] if found else 1.0)


def _lines(left: Row, right: Row, name: str, nbytes: int, call: float) -> tuple[float, ...]:
    """Seconds on the lines between two rows: straight in time against size and, where the bytes take most of it, in log
    time on top of the call against log size. So latency and bandwidth give their own line back in both."""
    first, last = getattr(left, name), getattr(right, name)
    straight = first + (nbytes - left.nbytes) / (right.nbytes - left.nbytes) * (last - first)
    if left.seconds < BY_BYTES * call or min(first, last) <= call:
        return (straight,)
    power = math.log(nbytes / left.nbytes) / math.log(right.nbytes / left.nbytes)
    return straight, call + (first - call) * ((last - call) / (first - call)) ** power


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Ranked: the routes to take, the first first; one at least.

    conditional  those that are faster for whoever heeds a condition; unsafe: those that would be but for a hazard
    unmeasured   routes that would do, of which no measured size speaks for the case's
    arrays       how many arrays the figures of a batch are of; 0: it is none
    instead      the dtype and "no grad" whose times are used, "" where they are the case's own
    """

    case: Case
    known: Known
    ranked: tuple[Candidate, ...]
    conditional: tuple[Candidate, ...] = ()
    unsafe: tuple[Candidate, ...] = ()
    unmeasured: tuple[str, ...] = ()
    arrays: int = 0
    instead: str = ""


def answer(case: Case, known: Known) -> Answer:
    """The routes for a case. UserError where there cannot be such a case, or nothing measured speaks for it."""
    check(case)
    _check_known(case, known)
    found = [_answer(case, known, *source) for source in _sources(case, known)]
    there = [each for each in found if each is not None]
    if not there:
        raise UserError(_nothing(case, known))
    return min(there, key=lambda each: each.ranked[0].how == EXTRAPOLATED)  # its own first, if that will do


def _sources(case: Case, known: Known) -> Iterator[tuple[str, str, bool]]:
    """Memory, dtype and grad whose times may speak for a case: its own first. Bits are bits, and to detach takes no
    time; another layout may be another thing to do."""
    alike = (case.direction, case.layout, case.goal)
    sources = (known.needs[row.need] for row in known.rows)
    counts = Counter(need.dtype for need in sources if (need.direction, need.layout, need.goal) == alike)
    dtypes = [case.dtype]
    if counts and not case.goal:
        dtypes = list(dict.fromkeys((case.dtype, max(counts, key=counts.__getitem__))))
    for memory in (case.memory,) if case.memory else (ALIAS, COPY):
        for dtype in dtypes:
            for grad in dict.fromkeys((case.grad, False)):
                if case.needs(known, memory, dtype, grad):
                    yield memory, dtype, grad
        if any(case.needs(known, memory, dtype, case.grad) for dtype in dtypes):
            return


def _answer(case: Case, known: Known, memory: str, dtype: str, grad: bool) -> Answer | None:
    """By the times of a source; None where none of its routes may be taken."""
    places = case.needs(known, memory, dtype, grad)
    here = [row for row in known.rows if row.need in places]
    if case.host == PINNED:  # it is there already
        here = [replace(row, paid="", once=None) for row in here]
    curves: dict[tuple[int, str], dict[int, Row]] = {}
    # those of the case's own size first, as they are ranked there
    for row in sorted(here, key=lambda row: row.nbytes != case.total):
        curves.setdefault((row.need, row.route), {})[row.nbytes] = row
    candidates, unmeasured = [], []
    sizes = {place: {row.nbytes for row in here if row.need == place} for place in places}
    for (place, route), curve in curves.items():
        need = known.needs[place]
        contract = known.contract(route, case.direction).on(need.host)
        if case.dtype in contract.refuses or (case.grad and not contract.takes_grad):
            continue
        if contract.memory_for(case.dtype, case.layout) != memory:
            continue
        limit = () if need.crosses or need.memory == ALIAS else known.limit
        found = estimate(curve, case.total, known.breaks_of(need), limit)
        # between its sizes lies one at which others were measured: a driver stages from some size on, times leap there
        wide = need.crosses and found and any(found.sizes[0] < size < found.sizes[-1] for size in sizes[place])
        if found is None or wide:
            unmeasured.append(route)
        else:
            candidates.append(candidate_of(found, need, contract, case.count))
    good = [each for each in candidates if each.kind in GOOD]
    if not good:
        return None
    ranked_here = good[0].kind == BEST and all(each.how == MEASURED for each in good)
    if not ranked_here or len({(each.host, each.paid, each.once) for each in good}) > 1:
        good.sort(key=lambda each: (each.unpriced, each.total))
        named = [each for each in good if each.kind == BEST and not each.paid]  # at all sizes that it rests on
        if len(named) == 1 and named[0].total <= (1 + AS_GOOD) * good[0].total:
            good.sort(key=lambda each: each is not named[0])
        tied = not good[0].paid and good[0].kind in (BEST, TIE)
        kinds = [TIE if tied and each.kind in (BEST, TIE) and not each.paid else SLOWER for each in good]
        good = [replace(each, kind=kind) for each, kind in zip(good, [BEST, *kinds[1:]])]
    faster = [each for each in candidates if each not in good and each.total < good[0].total]
    words = [*([dtype] if dtype != case.dtype else []), *(["no grad"] if grad != case.grad else [])]
    return Answer(
        case,
        known,
        tuple(good),
        tuple(each for each in faster if each.kind == CONDITION),
        tuple(each for each in faster if each.kind == UNSAFE),
        tuple(dict.fromkeys(unmeasured)),
        max(row.arrays for curve in curves.values() for row in curve.values()),
        " ".join(words),
    )


def candidate_of(found: Candidate, need: Need, contract: Route, count: int = 1) -> Candidate:
    """A route of a need. count: transfers that share what is paid once."""
    total = found.seconds + (found.once or 0.0) / count
    return replace(found, contract=contract, memory=need.memory, host=need.host, total=total)


def effects_on(candidate: Candidate, case: Case, known: Known) -> list[Effect]:
    """What would change the time of a route that moves bytes: the settings that were measured on the case's side of the
    size at which times leap; and arrays that lie as neighbours do, at the nearest size, among those that were measured.

    A contiguous source alone is copied in one piece.
    """
    found = [each for each in known.effects if candidate.route in each.routes and candidate.memory != ALIAS]
    settings = [e for e in found if e.setting and all((at <= e.nbytes) == (at <= case.total) for at in known.breaks)]
    near = {each.nbytes: each for each in reversed(found) if not each.setting and case.layout == CONTIGUOUS}
    if not near or not min(near) <= case.nbytes <= max(near):
        return settings
    return [*settings, near[min(near, key=lambda nbytes: abs(math.log(nbytes / case.nbytes)))]]


# --- what cannot be answered ------------------------------------------------------------------------------------------


def check(case: Case) -> None:
    """UserError where a case contradicts itself, or there cannot be one."""
    counted = case.threads.isdecimal() and int(case.threads)
    batched = case.device or case.memory in (ALIAS, INTO) or case.grad or case.layout != CONTIGUOUS
    wrong = {
        f"--from {case.source} --to {case.target}: two of {', '.join(ENDS)}, and not the same": (
            (case.source, case.target) not in WAYS
        ),
        f"--nbytes {case.nbytes}: more than memory holds": case.total > LARGEST,
        f"--count {case.count}: from one transfer to {LARGEST}": not 1 <= case.count <= LARGEST,
        f"--batch {case.batch}: a batch is of two arrays at least": case.batch < 0 or case.batch == 1,
        "--batch is about arrays on the host that become a fresh one: no other option goes with it": (
            case.batch and batched
        ),
        "--share: nothing is shared between host and device": case.memory == ALIAS and case.device,
        "--source: which memory matters for transfers alone, --from cuda or --to cuda": case.host and not case.device,
        "--threads: it is about conversions on the host; a transfer has one": case.threads and case.device,
        f"--threads {case.threads}: a number of threads, or {ALL_THREADS}, those of torch's default": (
            case.threads not in ("", ALL_THREADS) and not counted
        ),
        "--enqueue: on the host every call holds the caller until it is done; it is about transfers": (
            case.enqueue and not case.device
        ),
        "--grad: a NumPy array requires no grad": case.grad and case.source == NUMPY,
        f"--grad: floating point and complex tensors require grad, {case.dtype} does not": (
            case.grad and not case.dtype.startswith(FLOATS)
        ),
    }
    for why, holds in wrong.items():
        if holds:
            raise UserError(why)


def _check_known(case: Case, known: Known) -> None:
    """UserError where nothing is known of the case's direction, dtype or layout."""
    here = [need for need in known.needs if need.direction == case.direction]
    casts = dict.fromkeys(f"{need.dtype} to {need.goal}" for need in here if need.goal)
    dtypes = known.dtypes.get(case.direction, {})
    lacking = dtypes.get(case.dtype)
    threads = sorted({need.threads for need in here})
    counts = [str(known.threads) if each == ALL_THREADS else each for each in threads]
    layouts, size = sorted({need.layout for need in here}), itemsize(case.dtype)
    wrong = {
        f"no transfer {case.direction} was measured on {known.machine}: with an accelerator, "
        "python scripts/run.py --profile transfers does that": case.device and not here,
        f"--dtype {case.dtype} --to-dtype {case.goal}: not measured {case.direction}; "
        f"there are {', '.join(casts) or 'none'}": case.goal and f"{case.dtype} to {case.goal}" not in casts,
        f"--dtype {case.dtype}: not timed {case.direction}; there are {', '.join(dtypes)}": (
            not case.goal and case.dtype not in dtypes
        ),
        f"--dtype {case.dtype}: not on this toolchain, {lacking}": lacking and not case.goal,
        f"--nbytes {case.nbytes}: no whole number of {case.dtype}, which takes {size} bytes": case.nbytes % size,
        f"--threads {case.threads}: measured with {', '.join(counts)}": case.threads_in(known) not in threads,
        f"--layout {case.layout}: not measured {case.direction}; there are {', '.join(layouts)}": (
            case.layout not in layouts
        ),
        f"--layout {ZERO_D}: one {case.dtype}, {size} bytes and not {case.nbytes}": (
            case.layout == ZERO_D and case.nbytes != size
        ),
    }
    for why, holds in wrong.items():
        if holds:
            raise UserError(why)


def _nothing(case: Case, known: Known) -> str:
    """Why no route can be recommended."""
    wanted = {ALIAS: " that shares memory", COPY: " that copies", INTO: " into a buffer"}.get(case.memory, "")
    grad = " and takes a tensor that requires grad" if case.grad else ""
    host = f" of {case.host} memory" if case.host else ""
    what = f"a batch of {case.dtype}" if case.batch else f"{case.layout} {case.dtype}{host}"
    said = f"no route {case.direction}{wanted}{grad} was measured for {what}"
    if any(case.dtype in contract.refuses for contract in known.contracts if contract.direction == case.direction):
        return f"--dtype {case.dtype}: no route keeps it {case.direction}, they raise"
    places = {place for source in _sources(case, known) for place in case.needs(known, *source)}
    sizes = sorted({row.nbytes for row in known.rows if row.need in places and row.kind not in (CONDITION, UNSAFE)})
    near = f"near {case.total} bytes; it was of {', '.join(map(str, sizes))} bytes"
    return f"{said} {near}" if sizes else said


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
