"""What a route takes at a size that was not measured: lines between the points that were, and how far they may be off.

Where the bytes take the time the line is straight in log time against log size, on top of the call (the shortest one);
where the call takes most of it, in time against size. So latency and bandwidth give their own line back in both. Where
fresh memory begins to be faulted in anew at every call the line is broken: each side goes on as its own neighbour says.
The range of a figure holds the processes', and what the other kind of line would say.

Plain data, and the standard library alone: whoever asks does not wait for pandas.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.contracts import CONTIGUOUS

BY_BYTES = 2.0  # what takes this many times its shortest call: the bytes decide, a bandwidth has a meaning
MEASURED, BETWEEN, BEYOND = "measured", "between", "beyond"  # how a figure came about
COMPLETION, ENQUEUE, LIMIT, PIN, ALLOCATE = "completion", "enqueue", "limit", "pin_copy", "allocate"  # clocks


@dataclass(frozen=True)
class Point:
    """A timed cell. seconds: median over its processes; low, high: their range.

    place   in Known.points
    clock   what was timed: completion, enqueue, a limit, or what is paid once
    host    memory at the host's end of a link
    arrays  the source is so many arrays, ``nbytes`` bytes together; 0: it is one
    behind  places of those that are decided to be faster (see choice.py), of the same source and size, or of the same
            route and size
    order   place of its route in the catalogue
    """

    place: int
    route: str
    direction: str
    nbytes: int
    seconds: float
    low: float
    high: float
    clock: str = COMPLETION
    host: str = ""
    dtype: str = ""
    layout: str = CONTIGUOUS
    grad: bool = False
    arrays: int = 0
    calm: bool = True
    behind: tuple[int, ...] = ()
    order: int = 0

    @property
    def source(self) -> tuple[str, str, bool]:
        """What routes of a direction may be measured on several kinds of."""
        return self.dtype, self.layout, self.grad


Curve = Mapping[int, Point]  # by size


@dataclass(frozen=True)
class Figure:
    """Seconds and their range. sizes: those measured that it rests on. broken: the line is, between these."""

    seconds: float
    low: float
    high: float
    how: str
    sizes: tuple[int, ...]
    broken: bool = False


def latency(curve: Curve) -> float:
    """Seconds of the shortest call."""
    return min(point.seconds for point in curve.values())


def parted(breaks: Sequence[int], nbytes: int, other: int) -> bool:
    """Whether a break lies between two sizes; it belongs to those above."""
    return any(min(nbytes, other) < size <= max(nbytes, other) for size in breaks)


def neighbours(curve: Curve, nbytes: int, breaks: Sequence[int] = ()) -> list[Point]:
    """The points that speak for a size: its own, or those on both sides, but for what a break parts from it."""
    if nbytes in curve:
        return [curve[nbytes]]
    below, above = [n for n in curve if n < nbytes], [n for n in curve if n > nbytes]
    near = [size for size in (max(below, default=0), min(above, default=0)) if size]
    return [curve[size] for size in near if not parted(breaks, size, nbytes)] or [curve[size] for size in near]


def figure_at(curve: Curve, nbytes: int, breaks: Sequence[int] = (), moves: bool = True) -> Figure:
    """What a curve of one point at least says of a size.

    breaks: sizes from which on another line holds. moves: whether bytes are moved, or else all is the call.
    """
    around, side = neighbours(curve, nbytes), neighbours(curve, nbytes, breaks)
    sizes = tuple(point.nbytes for point in around)
    if sizes == (nbytes,):
        return Figure(around[0].seconds, around[0].low, around[0].high, MEASURED, sizes)
    if len(side) == 1:
        how = BETWEEN if len(around) == 2 else BEYOND
        return Figure(*_going_on(curve, side[0], nbytes, breaks, moves), how, sizes, broken=len(around) == 2)
    left, right = around
    shortest = latency(curve)
    call = shortest if left.seconds >= BY_BYTES * shortest else None
    lows, highs = _lines(around, left.low, right.low, nbytes, call), _lines(around, left.high, right.high, nbytes, call)
    seconds = _lines(around, left.seconds, right.seconds, nbytes, call)[-1]
    return Figure(seconds, min(lows), max(highs), BETWEEN, sizes)


def _lines(
    ends: Sequence[Point], at_left: float, at_right: float, nbytes: int, call: float | None
) -> tuple[float, ...]:
    """Seconds on the lines through two points: straight in time against size and, where the call's part is known and
    the bytes take most of it, in log time on top of the call against log size."""
    left, right = (point.nbytes for point in ends)
    straight = at_left + (nbytes - left) / (right - left) * (at_right - at_left)
    if call is None or min(at_left, at_right) <= call:
        return (straight,)
    power = math.log(nbytes / left) / math.log(right / left)
    return straight, call + (at_left - call) * ((at_right - call) / (at_left - call)) ** power


def _going_on(
    curve: Curve, point: Point, nbytes: int, breaks: Sequence[int], moves: bool
) -> tuple[float, float, float]:
    """Seconds, low and high of a line that goes on from its last point, by the curve's latency and the bandwidth there;
    the range has in it that the bandwidth goes on to change as it did from the point before. Of one point alone nobody
    knows which part is the call: the seconds are as if none were, the range has in it that all is."""
    alone = moves and len(curve) == 1
    shortest, ratio = 0.0 if alone else latency(curve), nbytes / point.nbytes
    seconds, low, high = (shortest + max(0.0, at - shortest) * ratio for at in (point.seconds, point.low, point.high))
    if alone:
        low, high = min(low, point.low), max(high, point.high)
    before = [n for n in curve if (n < point.nbytes) == (nbytes > point.nbytes) and not parted(breaks, n, point.nbytes)]
    before = [n for n in before if n != point.nbytes]
    if before and point.seconds >= BY_BYTES * shortest:
        last = curve[min(before, key=lambda n: abs(n - point.nbytes))]
        steep = math.log(point.seconds / last.seconds) / math.log(point.nbytes / last.nbytes)
        low, high = min(low, point.low * ratio**steep), max(high, point.high * ratio**steep)
    return seconds, low, high
