"""Hockney's model of what moves bytes, t(n) = latency + n / bandwidth, fitted to measured times.

The fit minimizes the sum of squared relative errors: seconds span six decades, and a plain least-squares line would
know nothing but the largest. A fit that misses a point by more than GOOD is no fit: caches and page faults bend the
line, and a latency and a bandwidth taken from a bent one predict nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

LEAST = 4  # sizes that a fit of two parameters takes
GOOD = 0.2  # largest relative deviation of a point from the fit


@dataclass(frozen=True)
class Fit:
    """latency in seconds, bandwidth in bytes a second, deviation: the largest relative error of a point."""

    latency: float
    bandwidth: float
    deviation: float

    @property
    def half(self) -> float:
        """n½: the bytes at which half of the bandwidth is reached."""
        return self.latency * self.bandwidth

    @property
    def good(self) -> bool:
        return self.deviation <= GOOD

    def seconds(self, nbytes: float) -> float:
        return self.latency + nbytes / self.bandwidth


def fit(seconds: Mapping[int, float]) -> Fit | None:
    """The model of nbytes -> seconds; None where there are too few sizes, or no such line with positive parameters."""
    if len(seconds) < LEAST:
        return None
    sizes, times = np.array(list(seconds), dtype=float), np.array(list(seconds.values()))
    scale = sizes.max() / times.max()  # both columns of like size
    terms = np.stack([1 / times, sizes / times / scale], axis=1)
    latency, inverse = np.linalg.lstsq(terms, np.ones(len(times)), rcond=None)[0]
    if latency <= 0 or inverse <= 0:
        return None
    predicted = latency + sizes * inverse / scale
    return Fit(float(latency), float(scale / inverse), float(np.abs(predicted / times - 1).max()))
