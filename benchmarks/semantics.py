"""Does a route alias, which dtype does it give, does it take a tensor that requires grad? Measured, on every toolchain.

A history of these shows where a release changed what a route means, not only what it costs. asv tracks numbers, so
aliasing is 1 or 0, a dtype is its place in DTYPES, and grad is 1 (taken) or 0 (refused).
"""

import numpy as _np
import torch as _torch

from . import conversion as _conversion
from . import routes as _routes
from . import sources as _sources

role = "semantics"

DTYPES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"),
    *("complex64", "complex128", "uint16", "uint32", "uint64"),
]
NBYTES = 4096


def result_of(route, names):
    """Return the route's result: the value of its expression, or the buffer it wrote into."""
    result = eval(route.expression, names)
    return names["b"] if route.memory == _routes.INTO else result


def _bytes(values):
    """Return the memory of an array or a tensor as a NumPy view of bytes, writable where the source is."""
    if isinstance(values, _torch.Tensor):
        values = values.detach()
        values = (values.view(_torch.int16) if values.dtype == _torch.bfloat16 else values).numpy()
    return values.reshape(-1).view(_np.uint8)


def _seen(written, read):
    """Whether a write to ``written`` shows in ``read``. Restores both."""
    written, read = _bytes(written), _bytes(read)
    before = read.copy()
    written ^= 1
    changed = not _np.array_equal(before, read)
    written ^= 1
    return changed


def shares_memory(source, result):
    """Whether source and result alias, tested by writing to one and reading the other, in both directions.

    Both must be contiguous. A read-only side (such as from numpy.from_dlpack in NumPy 1) is only read. Raises
    AssertionError if a write shows in one direction but not in the other.
    """
    pairs = [(source, result), (result, source)]
    seen = {_seen(written, read) for written, read in pairs if _bytes(written).flags.writeable}
    assert len(seen) == 1, "a write shows in one direction only" if seen else "neither side can be written to"
    return seen.pop()


def dtype_name(values):
    """Return the name of the dtype of an array or a tensor."""
    return str(values.dtype).replace("torch.", "")


class _Semantics:
    """route × dtype."""

    def setup(self, route, dtype):
        self.route = _routes.find(route, self.direction)
        self.source = _sources.source(self.route, dtype, NBYTES)
        self.result = result_of(self.route, _sources.namespace(self.route, self.source))

    def track_alias(self, route, dtype):
        return int(shares_memory(self.source, self.result))

    track_alias.unit = "1: shares memory"

    def track_dtype(self, route, dtype):
        return DTYPES.index(dtype_name(self.result))

    track_dtype.unit = "place in " + " ".join(DTYPES)
    track_dtype.stands_for = DTYPES


class NumpyToTorch(_Semantics):
    direction = _routes.NUMPY_TO_TORCH
    params = _conversion.NumpyToTorch.params[:2]


class TorchToNumpy(_Semantics):
    direction = _routes.TORCH_TO_NUMPY
    params = _conversion.TorchToNumpy.params[:2]


class RequiresGrad:
    """Whether a route takes a float32 tensor that requires grad."""

    params = (_conversion.TorchToNumpy.params[0],)
    direction = _routes.TORCH_TO_NUMPY

    def setup(self, route):
        route = _routes.find(route, _routes.TORCH_TO_NUMPY)
        source = _sources.source(route, "float32", NBYTES)
        self.names = _sources.namespace(route, source.requires_grad_())

    def track_taken(self, route):
        try:
            eval(route, self.names)
        except (RuntimeError, BufferError):
            return 0
        return 1

    track_taken.unit = "1: taken"
