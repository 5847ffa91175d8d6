"""The time of a route at a size that was not measured.

Between measured sizes a time is interpolated; where their bandwidths or processes differ, it is a range. Beyond them it
is extrapolated, up to FARTHEST times the size. Times are not extended across a size at which they jump, nor from one
layout to another.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from .cells import BY_BYTES
from .ranking import KINDS

FELT = 1.25  # times the shortest call: from here on a time says something about bandwidth
FARTHEST = 4.0  # extrapolation ends at this multiple of the largest measured size, or fraction of the smallest
STEADY_SESSION = 0.1  # relative: difference between sessions of a machine, see ties.is_steady
UNSTEADY_SESSION = 0.25  # the same of a machine that is not steady
# Relative: an estimated time is given as a range if processes of a session may be further off. Between two runs of one
# machine, 94 % of the figures with processes this close differ by less, and 74 % of the others (docs/lab-notes.md)
SINGLE_TIME_ERROR = 0.15
MEASURED, INTERPOLATED, EXTRAPOLATED = ("measured", "interpolated", "extrapolated")
ANY_SIZE: "pd.Series[float]" = pd.Series([1.0])  # seconds per byte that are the same at any size


def estimate(
    curve: pd.DataFrame,
    nbytes: int,
    breaks: Sequence[int] = (),
    own: Sequence[int] = (),
    limit: "pd.Series[float]" = ANY_SIZE,
    constant: bool = False,
    session: float = STEADY_SESSION,
) -> dict[str, Any] | None:
    """Estimate the row of a route at one size from its rows by size, with how (measured, interpolated or extrapolated)
    and the sizes that it rests on. None if no measured size can be used. An estimate has no rate and share. Its
    interval holds the times of more processes in another session. It is a range where these would not be SINGLE_TIME_ERROR, or
    sessions differ by more than STEADY_SESSION.

    breaks: sizes at which times of the curve jump; rows on the other side are not used. own: the same of what is
    estimated. limit: seconds per byte of memcpy by size; if it differs between the size and the measured one, the
    interval holds both. constant: the time does not depend on the size, as for alias routes, so the nearest size holds
    for all sizes beyond it. session: relative difference between sessions.
    """
    curve = curve.sort_values("nbytes")
    here = curve[
        np.searchsorted(breaks, curve["nbytes"], "right") == np.searchsorted(own, nbytes, "right")
    ]
    ends = pd.concat(
        [here[here["nbytes"] <= nbytes].tail(1), here[here["nbytes"] >= nbytes].head(1)]
    )
    ends = ends.drop_duplicates("nbytes")
    if ends.empty:
        return None
    last, sizes = ends.iloc[-1].to_dict(), tuple(ends["nbytes"])
    if nbytes in sizes:
        return {**last, "sizes": sizes}
    most = np.exp(ends["within"].astype(float))
    low, high = (
        ends["low"].clip(upper=ends["seconds"] / most),
        ends["high"].clip(lower=ends["seconds"] * most),
    )
    figures = np.column_stack([ends["seconds"], low, high]).astype(float)
    call = curve["seconds"].min()
    if constant and len(ends) == 1:
        how, (seconds, low, high) = EXTRAPOLATED, figures[0]
    elif len(ends) == 2:
        how, lines = INTERPOLATED, _lines(figures, sizes, nbytes, call)
        (seconds, _, _), low, high = lines[-1], lines[:, 1].min(), lines[:, 2].max()
    else:
        how, ratio = EXTRAPOLATED, nbytes / sizes[0]
        if not 1 / FARTHEST <= ratio <= FARTHEST:
            return None
        # with one size, or from the fastest, the call's part of the time is not known: it may be all of it. Below the
        # smallest size it is at least that of a straight line through the two smallest
        alone, least = len(curve) == 1 or figures[0, 0] <= call, here.head(2)
        if alone and ratio < 1 < len(least):
            call = max(0.0, np.polyfit(least["nbytes"], least["seconds"], 1)[1])
        elif alone:
            call = 0.0
        seconds, low, high = call + np.maximum(0.0, figures[0] - call) * ratio
        if alone:
            low, high = min(low, figures[0, 1]), max(high, figures[0, 2])
        there, then = limit.iloc[
            np.minimum(limit.index.searchsorted([nbytes, sizes[0]]), len(limit) - 1)
        ]
        low, high = low * min(1.0, there / then), high * max(1.0, there / then)
    kind = max(ends["kind"], key=KINDS.index)  # the weaker of the two
    is_range = (
        session > STEADY_SESSION or max(high / seconds, seconds / low) > 1 + SINGLE_TIME_ERROR
    )
    low, high = low / (1 + session), high * (1 + session)
    figure = {
        "nbytes": nbytes,
        "seconds": seconds,
        "low": low,
        "high": high,
        "rate": math.nan,
        "share": math.nan,
    }
    about = {
        "kind": kind,
        "quiet": ends["quiet"].all(),
        "how": how,
        "sizes": sizes,
        "is_range": is_range,
    }
    return {**last, **figure, **about}


def _lines(figures: Any, sizes: Sequence[int], nbytes: int, call: float) -> Any:
    """Interpolate between the figures of two sizes along several lines, the likely one last: at the bandwidth of
    either, if its bytes are FELT; straight in time against size; and, if the bytes take most of the smaller one's time,
    in log time on top of the call against log size. All of them reproduce a line of latency and bandwidth. Where a
    cache ends between the sizes, times lie between the lines of the two bandwidths."""
    smaller, larger = sizes
    above = np.maximum(0.0, figures - call) * nbytes / np.array(sizes)[:, np.newaxis]
    bandwidths = (call + above[figures[:, 0] >= FELT * call]).clip(
        figures[:, 1].min(), figures[:, 2].max()
    )
    straight = figures[0] + (nbytes - smaller) / (larger - smaller) * (figures[1] - figures[0])
    power = math.log(nbytes / smaller) / math.log(larger / smaller)
    bent = (
        call + above[0] ** (1 - power) * above[1] ** power
        if figures[0, 0] >= BY_BYTES * call
        else straight
    )
    return np.vstack([bandwidths, straight, bent])
