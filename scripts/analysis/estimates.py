"""The time of a route at a size that was not measured.

Between measured sizes a time is interpolated; where their bandwidths or processes differ, it is a
range. Beyond them it is extrapolated, up to MAX_EXTRAPOLATION times the size. Times are not
extended across a size at which they jump, nor from one layout to another. The last section refuses
cases that are impossible; answers.py those that were not measured.
"""

import bisect
import itertools
import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from cli import UserError
from pandas import DataFrame, Series
from store.frames import rows_of

from benchmarks.contracts import ALIAS

from .cells import BY_BYTES, itemsize
from .needs import NUMPY, ZERO_D, Case
from .ranking import weakest
from .statistics import Floats

# From this multiple of the shortest call on, a time says something about bandwidth
BANDWIDTH_SHOWS = 1.25
# Extrapolation ends at this multiple of the largest measured size, or fraction of the smallest
MAX_EXTRAPOLATION = 4.0
STEADY_SESSION = 0.1  # relative: difference between sessions of a machine, see ranking.Steadiness
UNSTEADY_SESSION = 0.25  # the same of a machine that is not steady
# Relative: an estimated time is given as a range if processes of a session may be further off.
# Between two runs of one machine, 94 % of the figures with processes this close differ by less, and
# 74 % of the others (docs/lab-notes.md)
SINGLE_TIME_ERROR = 0.15
MEASURED, INTERPOLATED, EXTRAPOLATED = ("measured", "interpolated", "extrapolated")
Row = dict[str, Any]  # of a curve
ANY_SIZE: "Series[float]" = Series([1.0])  # seconds per byte that are the same at any size


def estimate(
    curve: DataFrame,
    nbytes: int,
    jumps: Sequence[int] = (),
    regime: int = 0,
    limit: "Series[float]" = ANY_SIZE,
    constant: bool = False,
    session: float = STEADY_SESSION,
) -> dict[str, Any] | None:
    """Estimate the row of a route at one size from its rows by size, with how (measured,
    interpolated or extrapolated) and the sizes that it rests on.

    None if no measured size can be used. An estimate has no rate and share. Its interval holds the
    times of more processes in another session. It is a range where these would differ by more than
    SINGLE_TIME_ERROR, or sessions by more than STEADY_SESSION.

    jumps     sizes at which times of the curve jump
    regime    number of jumps below what is estimated; only rows above as many are used
    limit     seconds per byte of memcpy by size; if it differs between the size and the measured
              one, the interval holds both
    constant  the time does not depend on the size, as for alias routes, so the nearest size holds
              for all sizes beyond it
    session   relative difference between sessions
    """
    rows: list[Row] = [row._asdict() for row in rows_of(curve.sort_values("nbytes"))]
    usable = [row for row in rows if bisect.bisect_right(jumps, row["nbytes"]) == regime]
    nearest = _nearest_rows(usable, nbytes)
    if not nearest:
        return None
    sizes = tuple(row["nbytes"] for row in nearest)
    row = nearest[-1] | {"sizes": sizes}
    if nbytes in sizes:
        return row
    call = min(row["seconds"] for row in rows)
    figures = np.array([*map(_figure, nearest)])
    if len(sizes) == 2:
        figure = _interpolate(figures, sizes, nbytes, call)
    elif constant:
        figure = figures[0]
    elif reaches(nbytes, sizes[0]):
        figure = _extrapolate(figures[0], (sizes[0], nbytes), call, usable[:2], limit)
        figure = _with_limit(figure, limit, nbytes, sizes[0])
    else:
        return None
    return row | {"nbytes": nbytes} | _estimated_fields(nearest, figure, session)


def _nearest_rows(rows: Sequence[Row], nbytes: int) -> Sequence[Row]:
    """Return the row of a size, else its neighbours on either side; rows: by size."""
    place = bisect.bisect_left(rows, nbytes, key=itemgetter("nbytes"))
    if place < len(rows) and rows[place]["nbytes"] == nbytes:
        return rows[place : place + 1]
    return rows[max(0, place - 1) : place + 1]


def reaches(number: int, measured: int) -> bool:
    """Whether an answer for a size, or for a number of arrays, may rest on a measured one."""
    return 1 / MAX_EXTRAPOLATION <= number / measured <= MAX_EXTRAPOLATION


def _figure(row: Row) -> tuple[float, float, float]:
    """Return seconds, low and high of a row, where the interval holds further processes."""
    seconds, factor = row["seconds"], math.exp(row["within"])
    return seconds, min(row["low"], seconds / factor), max(row["high"], seconds * factor)


def _estimated_fields(
    nearest: Sequence[Row], figure: Sequence[float], session: float
) -> dict[str, object]:
    """Return the fields of an estimate that a measured row has otherwise.

    figure: seconds, low and high, without the difference between sessions
    """
    seconds, low, high = figure
    error = max(high / seconds, seconds / low) - 1
    return {
        "seconds": seconds,
        "low": low / (1 + session),
        "high": high * (1 + session),
        "rate": math.nan,
        "share": math.nan,
        "kind": weakest(row["kind"] for row in nearest),
        "quiet": all(row["quiet"] for row in nearest),
        "how": INTERPOLATED if len(nearest) == 2 else EXTRAPOLATED,
        "is_range": session > STEADY_SESSION or error > SINGLE_TIME_ERROR,
    }


def _interpolate(figures: Floats, sizes: Sequence[int], nbytes: int, call: float) -> list[float]:
    """Interpolate between the figures of two sizes along several lines.

    The lines: at the bandwidth of either, if its BANDWIDTH_SHOWS; straight in time against size;
    and, if the bytes take most of the smaller one's time, in log time on top of the call against
    log size, which is the likely one. All of them reproduce a line of latency and bandwidth. Where
    a cache ends between the sizes, times lie between the lines of the two bandwidths.
    """
    small, large = figures
    smaller, larger = sizes
    scaled = np.maximum(0.0, figures - call) * nbytes / np.array(sizes)[:, np.newaxis]
    at_bandwidths = call + scaled[figures[:, 0] >= BANDWIDTH_SHOWS * call]
    at_bandwidths = at_bandwidths.clip(figures[:, 1].min(), figures[:, 2].max())
    straight = small + (nbytes - smaller) / (larger - smaller) * (large - small)
    likely = straight
    if small[0] >= BY_BYTES * call:
        power = math.log(nbytes / smaller) / math.log(larger / smaller)
        likely = call + scaled[0] ** (1 - power) * scaled[1] ** power
    lines = np.vstack([at_bandwidths, straight, likely])
    return [likely[0], lines[:, 1].min(), lines[:, 2].max()]


def _extrapolate(
    figure: Floats,
    sizes: tuple[int, int],
    call: float,
    smallest: Sequence[Row],
    limit: "Series[float]",
) -> list[float]:
    """Extrapolate the figure of one size to another.

    sizes     the measured one, the other
    smallest  rows of the two smallest sizes

    From the fastest size the call's part of the time is not known: it may be all of it. Below the
    smallest size it is at least that of a straight line through the two smallest. If the largest is
    the fastest of several, bytes cost little there, as in long lists: the likely time adds that of
    memcpy, where that is less.
    """
    measured_size, nbytes = sizes
    ratio = nbytes / measured_size
    is_fastest = figure[0] <= call
    if is_fastest and ratio < 1 < len(smallest):
        lengths, times = zip(*((row["nbytes"], row["seconds"]) for row in smallest))
        call = max(0.0, np.polyfit(lengths, times, 1)[1])
    elif is_fastest:
        call = 0.0
    seconds, low, high = call + np.maximum(0.0, figure - call) * ratio
    if is_fastest:
        low = min(low, figure[1])
        high = max(high, figure[2])
        if ratio > 1 and len(smallest) > 1:
            more = (nbytes - measured_size) * _seconds_per_byte(limit, nbytes)
            seconds = min(seconds, figure[0] + more)
    return [seconds, low, high]


def _seconds_per_byte(limit: "Series[float]", nbytes: int) -> float:
    """Return what memcpy takes per byte at a size, or at the largest that was measured."""
    return float(limit.iloc[min(limit.index.searchsorted(nbytes), len(limit) - 1)])


def _with_limit(
    figure: Sequence[float], limit: "Series[float]", nbytes: int, measured_size: int
) -> list[float]:
    """Widen a figure, extrapolated from a measured size, by the change of memcpy's seconds per
    byte."""
    change = _seconds_per_byte(limit, nbytes) / _seconds_per_byte(limit, measured_size)
    seconds, low, high = figure
    return [seconds, low * min(1.0, change), high * max(1.0, change)]


# --- cases without an answer ----------------------------------------------------------------------


FLOATS = ("float", "bfloat", "complex")  # beginnings of dtypes that can require grad


class NoAnswer(UserError):
    """A case without an answer: the reason, a block of pages/templates/prose/no_answer.md.jinja,
    and the values that it names."""

    def __init__(self, reason: str, case: Case, **values: object) -> None:
        super().__init__(f"no answer: {reason}")
        self.reason = reason
        self.case = case
        self.values = values


class NotMeasured(NoAnswer):
    """A case without an answer that a measurement would have."""


def check_request(case: Case) -> None:
    """NoAnswer if the case is impossible with any route."""
    is_array = case.source == NUMPY
    reasons = {
        "same_ends": case.source == case.target,
        "host_without_device": case.host and not case.device,
        "array_with_grad": case.grad and is_array,
        "read_only_tensor": case.read_only and not is_array,
        "shared_write": case.read_only and case.writable and case.memory == ALIAS,
        "bfloat16_array": is_array and case.dtype == "bfloat16",
        "same_dtype": case.goal == case.dtype,
    }
    for reason in itertools.compress(reasons, reasons.values()):
        raise NoAnswer(reason, case)


def check_source(case: Case) -> None:
    """NoAnswer if no source is of this dtype and size."""
    item = itemsize(case.dtype)
    if case.nbytes % item or (case.layout == ZERO_D and case.nbytes != item):
        raise NoAnswer("odd_size", case, itemsize=item)
    if case.grad and not case.dtype.startswith(FLOATS):
        raise NoAnswer("integers_with_grad", case)
