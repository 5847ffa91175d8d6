"""Does it matter where in their pages a source and a buffer begin?

On some processors it decides how fast C copies bytes, by which NumPy copies: the same call in the
same program takes many times as long when its arrays happen to lie otherwise.
"""

from . import conversion, routes
from .core import environment, sources

role = "placement"
section = "Where arrays lie"
about = (
    "Elements are float32. Neighbours: the target begins 16 bytes further on in its page than the "
    "source, as arrays of whole pages do that malloc places one after the other. Apart: half a "
    "page more. Timed into an existing buffer. Counted: how often a fresh copy is a neighbour."
)
place = 9
has_panels = False

FAR_APART, NEIGHBOURS = "apart", "neighbours"
# The target has the same offset in its cache line in both, so alignment is no part of the
# difference
DISTANCES = {FAR_APART: sources.PAGE // 2 + sources.NEIGHBOURS, NEIGHBOURS: sources.NEIGHBOURS}
applies_to = "memmove"
settings = {
    text: caution for text, caution in environment.ADVISED.items() if text in environment.COPYING
}
COUNT = 100  # fresh copies
SIZES = [4 * 2**10, 64 * 2**10, 256 * 2**10, 2**20]


class _Placed(conversion._Conversion):
    """route × placement × nbytes of float32."""

    reference = {"placement": FAR_APART, "called": FAR_APART}

    def samples_for(self, route, placement, nbytes):
        return super().samples_for(route, "float32", nbytes)

    def setup(self, route, placement, nbytes):
        super().setup(route, "float32", nbytes)

    def timeit_convert(self, route, placement, nbytes):
        return route, sources.placed(self.names, DISTANCES[placement])


def _params(direction):
    conversions = routes.select(routes.CONVERSION, direction)
    return [r.expression for r in conversions if r.memory == routes.INTO], list(DISTANCES), SIZES


class NumpyToTorch(_Placed):
    direction = routes.NUMPY_TO_TORCH
    params = _params(direction)


class TorchToNumpy(_Placed):
    direction = routes.TORCH_TO_NUMPY
    params = _params(direction)


class _Fresh:
    """route × copy_order × nbytes of float32: how many of 100 fresh copies, all kept, are
    neighbours of their source.
    """

    title = "a hundred fresh copies that are kept"
    orders = {"each when it is made": False, "when all are made": True}

    def track_neighbours(self, route, copy_order, nbytes):
        catalogued, arrays, pairs = routes.find(route, self.direction), [], []
        for _ in range(COUNT):
            arrays.append(sources.source(catalogued, "float32", nbytes))
            if not self.orders[copy_order]:
                pairs.append((arrays[-1], eval(route, sources.namespace(catalogued, arrays[-1]))))
        if self.orders[copy_order]:
            pairs = [
                (source, eval(route, sources.namespace(catalogued, source))) for source in arrays
            ]
        return sum(sources.is_neighbour(*pair) for pair in pairs)

    track_neighbours.unit = "of 100 are neighbours"


def _fresh(direction):
    conversions = routes.select(routes.CONVERSION, direction)
    copying = [
        r.expression for r in conversions if r.memmove and r.memory == routes.COPY and r.safe
    ]
    return copying, list(_Fresh.orders), SIZES[:3]


class FreshToTorch(_Fresh):
    direction = routes.NUMPY_TO_TORCH
    params = _fresh(direction)


class FreshToNumpy(_Fresh):
    direction = routes.TORCH_TO_NUMPY
    params = _fresh(direction)
