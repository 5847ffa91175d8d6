"""What does it cost to turn a NumPy array into a tensor, and a tensor into a NumPy array, dtype
kept?
"""

from . import routes
from .core import sources, timing

section = "By dtype"
place = 3
across = "dtype"
has_panels = False  # decisions and curves of plain conversions have sections of their own


class _Conversion:
    """route × dtype × nbytes over contiguous sources."""

    direction = ""
    requires_grad = False
    timeout = 300

    def __init__(self):
        self.contracts = {route: self.find(route).contract() for route in self.params[0]}

    def find(self, route):
        return routes.find(route, self.direction)

    def samples_for(self, route, dtype, nbytes):
        """Two samples suffice for a call that takes a second."""
        slow = self.find(route).per_element and nbytes >= timing.LARGE
        return 2 if slow else timing.samples_per_process(nbytes)

    def setup(self, route, dtype, nbytes):
        route = self.find(route)
        source = sources.source(route, dtype, nbytes)
        if self.requires_grad:
            source.requires_grad_()
        self.names = sources.namespace(route, source)

    def timeit_convert(self, route, dtype, nbytes):
        return route, sources.placed(self.names)


class NumpyToTorch(_Conversion):
    role = "conversion"
    direction = routes.NUMPY_TO_TORCH
    params = (routes.expressions(routes.CONVERSION, direction), sources.NUMPY_DTYPES, sources.SIZES)


class TorchToNumpy(_Conversion):
    role = "conversion"
    direction = routes.TORCH_TO_NUMPY
    params = (routes.expressions(routes.CONVERSION, direction), sources.TORCH_DTYPES, sources.SIZES)


_DETACHING = [
    r.expression for r in routes.select(routes.CONVERSION, routes.TORCH_TO_NUMPY) if r.takes_grad
]


class RequiresGradToNumpy(_Conversion):
    """The routes that detach, on tensors that require grad."""

    role = "requires grad"
    section = "Tensors that require grad"
    about = "From a tensor that requires grad, by the routes that detach."
    place = 7
    across = "nbytes"
    direction = routes.TORCH_TO_NUMPY
    requires_grad = True
    params = (_DETACHING, ["float32"], [4 * 2**10, 2**20])
