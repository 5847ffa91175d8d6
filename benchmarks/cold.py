"""What does a conversion cost when its source is not in the caches?

The sources are rotated through more memory than the caches hold, so each call meets one that has
been evicted. Taking the next source is part of the statement: ``limits.Floor`` says what that alone
costs.
"""

import itertools

from . import conversion, routes
from .core import sources

section = "Source not in the caches"
about = (
    "Sources are float32 and rotate through more memory than the caches hold. The time includes "
    "taking the next source (see the harness overhead under Machine and method)."
)
place = 8
has_panels = False
reference = {"role": "conversion", "called": "warm"}

SIZES = [64 * 2**10, 2**20, 16 * 2**20]
ROTATED = 256 * 2**20  # bytes: eight times the last-level cache of common server cores


class _Cold(conversion._Conversion):
    """route × nbytes of float32, sources rotated."""

    def samples_for(self, route, nbytes):
        return super().samples_for(route, "float32", nbytes)

    def setup(self, route, nbytes):
        route = self.find(route)
        rotated = max(ROTATED, 2 * sources.cache_size())
        sources.require_memory(rotated + 4 * nbytes)
        first = sources.source(route, "float32", nbytes)
        copy = first.clone if self.direction == routes.TORCH_TO_NUMPY else first.copy
        rotation = [first, *(copy() for _ in range(rotated // nbytes - 1))]
        self.names = sources.namespace(route, first)
        self.names["rotate"] = itertools.cycle(rotation).__next__

    def timeit_convert(self, route, nbytes):
        name = "t" if self.direction == routes.TORCH_TO_NUMPY else "a"
        return f"{name} = rotate(); {route}", self.names


class NumpyToTorch(_Cold):
    direction = routes.NUMPY_TO_TORCH
    params = (routes.expressions(routes.COLD, direction), SIZES)


class TorchToNumpy(_Cold):
    direction = routes.TORCH_TO_NUMPY
    params = (routes.expressions(routes.COLD, direction), SIZES)
