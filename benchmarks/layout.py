"""What do strided, transposed, Fortran-ordered, 5-D and 0-d sources cost? nbytes is that of the
elements.
"""

from . import conversion, routes
from .core import sources

section = "Layout of the source"
about = (
    "Elements are float32. Strided: every second element. Transposed and Fortran: odd number of "
    "columns. Power of two: transposed, which caches handle badly. Sharing keeps the strides."
)
place = 5
across = "layout"
has_panels = False

SIZES = [8, 4 * 2**10, 256 * 2**10, 2**20, 16 * 2**20, 64 * 2**20]


class _Layout(conversion._Conversion):
    """route × layout × nbytes of float32."""

    def samples_for(self, route, layout, nbytes):
        return super().samples_for(route, "float32", nbytes)

    def setup(self, route, layout, nbytes):
        route = self.find(route)
        sources.require(route.needs)
        if layout == "0-d" and nbytes != SIZES[0]:
            raise NotImplementedError("a 0-d source has one size")
        sources.require_memory(4 * nbytes)
        source = sources.laid_out("float32", nbytes, layout)
        if self.direction == routes.TORCH_TO_NUMPY:
            source = sources.torch.from_numpy(source)
        self.names = sources.namespace(route, source)

    def timeit_convert(self, route, layout, nbytes):
        return route, sources.placed(self.names)


class NumpyToTorch(_Layout):
    direction = routes.NUMPY_TO_TORCH
    params = (routes.expressions(routes.LAYOUT, direction), sources.LAYOUTS, SIZES)


class TorchToNumpy(_Layout):
    direction = routes.TORCH_TO_NUMPY
    params = (routes.expressions(routes.LAYOUT, direction), sources.LAYOUTS, SIZES)
