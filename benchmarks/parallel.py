"""What do routes that copy cost with as many threads as torch takes by itself, as most programs run?

Every other family has one thread. Here the families of conversions are timed again, by the routes that move bytes and
at sizes from which on torch spreads a copy over its threads.
"""

import torch as _torch

from . import batches as _batches
from . import casting as _casting
from . import contracts as _contracts
from . import conversion as _conversion
from . import layout as _layout
from . import routes as _routes
from . import sources as _sources

section = "More threads"
place = 9
about = "torch has its default number of threads; if that is more than 8, 8 threads are measured, too."
drawn = False
noise = "parallel"
_ONE_THREAD = {"role": "conversion", "called": "one thread"}

FROM = 4 * _contracts.PARALLEL  # bytes from which torch spreads a copy of float32 over its threads
SAMPLES = 12  # per process: torch's threads have to fall asleep between two, so each takes some milliseconds
ALL, EIGHT = _contracts.ALL_THREADS, "8"


class _Parallel:
    """The same family with the parameter ``threads`` after the route."""

    param_names = ("route", "threads", "dtype", "nbytes")
    on_all_cores = True

    def setup(self, route, threads, *others):
        by_default = _sources.DEFAULT_THREADS
        if by_default == 1 or (threads == EIGHT and by_default <= int(EIGHT)):
            raise NotImplementedError(f"torch takes {by_default} thread{'s' * (by_default > 1)} here by itself")
        _torch.set_num_threads(int(EIGHT) if threads == EIGHT else by_default)
        super().setup(route, *others)

    def samples_for(self, route, threads, *others):
        return min(SAMPLES, super().samples_for(route, *others))

    def timeit_convert(self, route, threads, *others):
        return super().timeit_convert(route, *others)


def _params(family, direction, *others, threads=(ALL,), dtype="float32", layout=""):
    """Return the routes of a family that move bytes, its other parameters or ``others``, and its sizes from FROM on."""
    others = others or family.params[1:-1]
    routes = (_routes.find(route, direction) for route in family.params[0])
    moving = [route.expression for route in routes if route.memory_for(dtype, layout) != _routes.ALIAS]
    return moving, list(threads), *others, [size for size in family.params[-1] if size >= FROM]


class NumpyToTorch(_Parallel, _conversion.NumpyToTorch):
    beside = _ONE_THREAD
    params = _params(_conversion.NumpyToTorch, _routes.NUMPY_TO_TORCH, ["float32"], threads=(ALL, EIGHT))


class TorchToNumpy(_Parallel, _conversion.TorchToNumpy):
    beside = _ONE_THREAD
    params = _params(_conversion.TorchToNumpy, _routes.TORCH_TO_NUMPY, ["float32"], threads=(ALL, EIGHT))


class LayoutToTorch(_Parallel, _layout.NumpyToTorch):
    title = "by layout"
    param_names = ("route", "threads", "layout", "nbytes")
    params = _params(_layout.NumpyToTorch, _routes.NUMPY_TO_TORCH, layout="strided")


class LayoutToNumpy(_Parallel, _layout.TorchToNumpy):
    title = "by layout"
    param_names = ("route", "threads", "layout", "nbytes")
    params = _params(_layout.TorchToNumpy, _routes.TORCH_TO_NUMPY, layout="strided")


class ArraysToTensor(_Parallel, _batches.ArraysToTensor):
    param_names = ("route", "threads", "nbytes")
    params = _params(_batches.ArraysToTensor, _routes.NUMPY_TO_TORCH)


class TensorsToArray(_Parallel, _batches.TensorsToArray):
    param_names = ("route", "threads", "nbytes")
    params = _params(_batches.TensorsToArray, _routes.TORCH_TO_NUMPY)


class UnevenArraysToTensor(_Parallel, _batches.UnevenArraysToTensor):
    param_names = ("route", "threads", "layout", "nbytes")
    params = _params(_batches.UnevenArraysToTensor, _routes.NUMPY_TO_TORCH)


class UnevenTensorsToArray(_Parallel, _batches.UnevenTensorsToArray):
    param_names = ("route", "threads", "layout", "nbytes")
    params = _params(_batches.UnevenTensorsToArray, _routes.TORCH_TO_NUMPY)


class NumpyToFloat32(_Parallel, _casting.NumpyToFloat32):
    role = "casting"
    title = "to float32"
    params = _params(_casting.NumpyToFloat32, _routes.NUMPY_TO_TORCH, dtype="float64")


class Bfloat16ToNumpy(_Parallel, _casting.Bfloat16ToNumpy):
    role = "casting"
    title = "from bfloat16"
    params = _params(_casting.Bfloat16ToNumpy, _routes.TORCH_TO_NUMPY, dtype="bfloat16")


class NumpyToFloat16(_Parallel, _casting.NumpyToFloat16):
    role = "casting"
    params = _params(_casting.NumpyToFloat16, _routes.NUMPY_TO_TORCH)


class NumpyToBfloat16(_Parallel, _casting.NumpyToBfloat16):
    role = "casting"
    params = _params(_casting.NumpyToBfloat16, _routes.NUMPY_TO_TORCH)


class TensorToFloat16(_Parallel, _casting.TensorToFloat16):
    role = "casting"
    params = _params(_casting.TensorToFloat16, _routes.TORCH_TO_NUMPY)
