"""The time of a route at a size that was not measured.

Between measured sizes a time is interpolated; where their bandwidths or processes differ, it is a
range. Beyond them it is extrapolated, up to MAX_EXTRAPOLATION times the size. Times are not
extended across a size at which they jump, nor from one layout to another.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from .cells import BY_BYTES
from .ranking import weakest
from .statistics import Floats

# From this multiple of the shortest call on, a time says something about bandwidth
BANDWIDTH_SHOWS = 1.25
# Extrapolation ends at this multiple of the largest measured size, or fraction of the smallest
MAX_EXTRAPOLATION = 4.0
STEADY_SESSION = 0.1  # relative: difference between sessions of a machine, see ranking.is_steady
UNSTEADY_SESSION = 0.25  # the same of a machine that is not steady
# Relative: an estimated time is given as a range if processes of a session may be further off.
# Between two runs of one machine, 94 % of the figures with processes this close differ by less, and
# 74 % of the others (docs/lab-notes.md)
SINGLE_TIME_ERROR = 0.15
MEASURED, INTERPOLATED, EXTRAPOLATED = ("measured", "interpolated", "extrapolated")
ANY_SIZE: "pd.Series[float]" = pd.Series([1.0])  # seconds per byte that are the same at any size


def estimate(
    curve: pd.DataFrame,
    nbytes: int,
    jumps: Sequence[int] = (),
    regime: int = 0,
    limit: "pd.Series[float]" = ANY_SIZE,
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
    curve = curve.sort_values("nbytes")
    usable = curve[np.searchsorted(jumps, curve["nbytes"], "right") == regime]
    nearest = _nearest_rows(usable, nbytes)
    if nearest.empty:
        return None
    sizes = tuple(nearest["nbytes"])
    row: dict[str, object] = nearest.iloc[-1].to_dict() | {"sizes": sizes}
    if nbytes in sizes:
        return row
    call = curve["seconds"].min()
    figures = _figures(nearest)
    if len(sizes) == 2:
        figure = _interpolate(figures, sizes, nbytes, call)
    elif constant:
        figure = figures[0]
    elif reaches(nbytes, sizes[0]):
        figure = _extrapolate(figures[0], nbytes / sizes[0], call, usable)
        figure = _with_limit(figure, limit, nbytes, sizes[0])
    else:
        return None
    return row | {"nbytes": nbytes} | _estimated_fields(nearest, figure, session)


def reaches(number: int, measured: int) -> bool:
    """Whether an answer for a size, or for a number of arrays, may rest on a measured one."""
    return 1 / MAX_EXTRAPOLATION <= number / measured <= MAX_EXTRAPOLATION


def _nearest_rows(curve: pd.DataFrame, nbytes: int) -> pd.DataFrame:
    """Select the row of the size itself, or those of the next smaller and the next larger size."""
    smaller = curve[curve["nbytes"] <= nbytes].tail(1)
    larger = curve[curve["nbytes"] >= nbytes].head(1)
    return pd.concat([smaller, larger]).drop_duplicates("nbytes")


def _figures(rows: pd.DataFrame) -> Floats:
    """Return seconds, low and high (rows, 3), where the interval holds further processes."""
    seconds = rows["seconds"]
    factor = np.exp(rows["within"].astype(float))
    low = rows["low"].clip(upper=seconds / factor)
    high = rows["high"].clip(lower=seconds * factor)
    return np.column_stack([seconds, low, high]).astype(float)


def _estimated_fields(
    nearest: pd.DataFrame, figure: Sequence[float], session: float
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
        "kind": weakest(nearest["kind"]),
        "quiet": nearest["quiet"].all(),
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


def _extrapolate(figure: Floats, ratio: float, call: float, curve: pd.DataFrame) -> list[float]:
    """Extrapolate the figure of one size to ``ratio`` times that size.

    From the fastest size the call's part of the time is not known: it may be all of it. Below the
    smallest size it is at least that of a straight line through the two smallest.
    """
    is_fastest = figure[0] <= call
    smallest = curve.head(2)
    if is_fastest and ratio < 1 < len(smallest):
        call = max(0.0, np.polyfit(smallest["nbytes"], smallest["seconds"], 1)[1])
    elif is_fastest:
        call = 0.0
    seconds, low, high = call + np.maximum(0.0, figure - call) * ratio
    if is_fastest:
        low = min(low, figure[1])
        high = max(high, figure[2])
    return [seconds, low, high]


def _with_limit(
    figure: Sequence[float], limit: "pd.Series[float]", nbytes: int, measured_size: int
) -> list[float]:
    """Widen a figure, extrapolated from a measured size, by the change of memcpy's seconds per
    byte."""
    places = limit.index.searchsorted([nbytes, measured_size])
    estimated, measured = limit.iloc[np.minimum(places, len(limit) - 1)]
    change = estimated / measured
    seconds, low, high = figure
    return [seconds, low * min(1.0, change), high * max(1.0, change)]
