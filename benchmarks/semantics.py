"""Does a route alias, which dtype does it give, is its array writable, does it take a tensor that
requires grad? Measured, on every toolchain.

A history of these shows where a release changed what a route means, not only what it costs. asv
tracks numbers, so aliasing and writability are 1 or 0, a dtype is its place in DTYPES, and grad is
1 (taken) or 0 (refused).
"""

import numpy as np
import torch

from . import conversion, routes
from .core import sources

role = "semantics"

DTYPES = [
    *(
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ),
    *("complex64", "complex128", "uint16", "uint32", "uint64"),
]
NBYTES = 4096


def result_of(route, names):
    """Return the route's result: the value of its expression, or the buffer it wrote into."""
    result = eval(route.expression, names)
    return names["b"] if route.memory == routes.INTO else result


def _bytes(values):
    """Return the memory of an array or a tensor as a NumPy view of bytes, writable where the source
    is.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach()
        values = (values.view(torch.int16) if values.dtype == torch.bfloat16 else values).numpy()
    return values.reshape(-1).view(np.uint8)


def _seen(written, read):
    """Whether a write to ``written`` shows in ``read``. Restores both."""
    written, read = _bytes(written), _bytes(read)
    original = read.copy()
    written ^= 1
    changed = not np.array_equal(original, read)
    written ^= 1
    return changed


def shares_memory(source, result):
    """Whether source and result alias, tested by writing to one and reading the other, in both
    directions.

    Both must be contiguous. A read-only side (such as from numpy.from_dlpack in NumPy 1) is only
    read. Raises AssertionError if a write shows in one direction but not in the other.
    """
    pairs = [(source, result), (result, source)]
    seen = {_seen(written, read) for written, read in pairs if _bytes(written).flags.writeable}
    assert len(seen) == 1, (
        "a write shows in one direction only" if seen else "neither side can be written to"
    )
    return seen.pop()


def dtype_name(values):
    """Return the name of the dtype of an array or a tensor."""
    return str(values.dtype).replace("torch.", "")


class _Semantics:
    """route × dtype."""

    def setup(self, route, dtype):
        self.route = routes.find(route, self.direction)
        self.source = sources.source(self.route, dtype, NBYTES)
        self.result = result_of(self.route, sources.namespace(self.route, self.source))

    def track_alias(self, route, dtype):
        return int(shares_memory(self.source, self.result))

    track_alias.unit = "1: shares memory"

    def track_dtype(self, route, dtype):
        return DTYPES.index(dtype_name(self.result))

    track_dtype.unit = "place in " + " ".join(DTYPES)
    track_dtype.stands_for = DTYPES


class NumpyToTorch(_Semantics):
    direction = routes.NUMPY_TO_TORCH
    params = conversion.NumpyToTorch.params[:2]


class TorchToNumpy(_Semantics):
    direction = routes.TORCH_TO_NUMPY
    params = conversion.TorchToNumpy.params[:2]

    def track_writable(self, route, dtype):
        return int(self.result.flags.writeable)

    track_writable.unit = "1: writable"


class RequiresGrad:
    """Whether a route takes a float32 tensor that requires grad."""

    params = (conversion.TorchToNumpy.params[0],)
    direction = routes.TORCH_TO_NUMPY

    def setup(self, route):
        route = routes.find(route, routes.TORCH_TO_NUMPY)
        source = sources.source(route, "float32", NBYTES)
        self.names = sources.namespace(route, source.requires_grad_())

    def track_taken(self, route):
        try:
            eval(route, self.names)
        except (RuntimeError, BufferError):
            return 0
        return 1

    track_taken.unit = "1: taken"
