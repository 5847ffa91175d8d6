"""What do routes that copy cost with as many threads as torch takes by itself, as most programs
run?

Every other family has one thread. Here the families of conversions are timed again, by the routes
that move bytes and at sizes from which on torch spreads a copy over its threads.
"""

import torch

from . import batches, casting, contracts, conversion, layout, routes
from .core import sources

section = "More threads"
place = 9
about = (
    "torch has its default number of threads; if that is more than 8, 8 threads are measured, too."
)
has_panels = False
noise = "parallel"
_ONE_THREAD = {"role": "conversion", "called": "one thread"}

FROM = 4 * (contracts.PARALLEL - 1)  # bytes of the largest float32 copy on one thread, for control
ABOVE = 132 * 2**10  # bytes, of a copy that torch spreads, just
# per process: torch's threads have to fall asleep between two, so each takes some milliseconds
SAMPLES = 12
ALL, EIGHT = contracts.ALL_THREADS, "8"


class _Parallel:
    """The same family with the parameter ``threads`` after the route."""

    param_names = ("route", "threads", "dtype", "nbytes")
    on_all_cores = True

    def setup(self, route, threads, *rest):
        by_default = sources.DEFAULT_THREADS
        if by_default == 1 or (threads == EIGHT and by_default <= int(EIGHT)):
            raise NotImplementedError(
                f"torch takes {by_default} thread{'s' * (by_default > 1)} here by itself"
            )
        torch.set_num_threads(int(EIGHT) if threads == EIGHT else by_default)
        super().setup(route, *rest)

    def samples_for(self, route, threads, *rest):
        return min(SAMPLES, super().samples_for(route, *rest))

    def timeit_convert(self, route, threads, *rest):
        return super().timeit_convert(route, *rest)


def _params(family, direction, *rest, threads=(ALL,), dtype="float32", layout=""):
    """Return the routes of a family that move bytes, its other parameters or ``rest``, and its
    sizes from FROM on.
    """
    rest = rest or family.params[1:-1]
    family_routes = (routes.find(route, direction) for route in family.params[0])
    moving = [
        route.expression
        for route in family_routes
        if route.memory_for(dtype, layout) != routes.ALIAS
    ]
    return moving, list(threads), *rest, [size for size in family.params[-1] if size >= FROM]


def _conversion_params(family):
    """Return the parameters of plain conversions, with the size ABOVE."""
    *rest, sizes = _params(family, family.direction, ["float32"], threads=(ALL, EIGHT))
    return *rest, sorted([*sizes, ABOVE])


class NumpyToTorch(_Parallel, conversion.NumpyToTorch):
    reference = _ONE_THREAD
    params = _conversion_params(conversion.NumpyToTorch)


class TorchToNumpy(_Parallel, conversion.TorchToNumpy):
    reference = _ONE_THREAD
    params = _conversion_params(conversion.TorchToNumpy)


class LayoutToTorch(_Parallel, layout.NumpyToTorch):
    title = "by layout"
    param_names = ("route", "threads", "layout", "nbytes")
    params = _params(layout.NumpyToTorch, routes.NUMPY_TO_TORCH, layout="strided")


class LayoutToNumpy(_Parallel, layout.TorchToNumpy):
    title = "by layout"
    param_names = ("route", "threads", "layout", "nbytes")
    params = _params(layout.TorchToNumpy, routes.TORCH_TO_NUMPY, layout="strided")


class ArraysToTensor(_Parallel, batches.ArraysToTensor):
    param_names = ("route", "threads", "nbytes")
    params = _params(batches.ArraysToTensor, routes.NUMPY_TO_TORCH)


class TensorsToArray(_Parallel, batches.TensorsToArray):
    param_names = ("route", "threads", "nbytes")
    params = _params(batches.TensorsToArray, routes.TORCH_TO_NUMPY)


class UnevenArraysToTensor(_Parallel, batches.UnevenArraysToTensor):
    param_names = ("route", "threads", "layout", "nbytes")
    params = _params(batches.UnevenArraysToTensor, routes.NUMPY_TO_TORCH)


class UnevenTensorsToArray(_Parallel, batches.UnevenTensorsToArray):
    param_names = ("route", "threads", "layout", "nbytes")
    params = _params(batches.UnevenTensorsToArray, routes.TORCH_TO_NUMPY)


class NumbersToTensor(_Parallel, batches.NumbersToTensor):
    param_names = ("route", "threads", "arrays", "nbytes")
    params = _params(batches.NumbersToTensor, routes.NUMPY_TO_TORCH)


class NumbersToArray(_Parallel, batches.NumbersToArray):
    param_names = ("route", "threads", "arrays", "nbytes")
    params = _params(batches.NumbersToArray, routes.TORCH_TO_NUMPY)


class NumpyToFloat32(_Parallel, casting.NumpyToFloat32):
    role = "casting"
    title = "to float32"
    params = _params(casting.NumpyToFloat32, routes.NUMPY_TO_TORCH, dtype="float64")


class Bfloat16ToNumpy(_Parallel, casting.Bfloat16ToNumpy):
    role = "casting"
    title = "from bfloat16"
    params = _params(casting.Bfloat16ToNumpy, routes.TORCH_TO_NUMPY, dtype="bfloat16")


class NumpyToFloat16(_Parallel, casting.NumpyToFloat16):
    role = "casting"
    params = _params(casting.NumpyToFloat16, routes.NUMPY_TO_TORCH)


class NumpyToBfloat16(_Parallel, casting.NumpyToBfloat16):
    role = "casting"
    params = _params(casting.NumpyToBfloat16, routes.NUMPY_TO_TORCH)


class TensorToFloat16(_Parallel, casting.TensorToFloat16):
    role = "casting"
    params = _params(casting.TensorToFloat16, routes.TORCH_TO_NUMPY)
