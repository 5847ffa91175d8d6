"""Sources that hypothesis draws: kind × dtype × shape × flags, and lists of them; with what a contract says of each."""

import math
from functools import partial, reduce

import elsewhere
import numpy as np
import torch
from hypothesis import strategies as st
from inputs import plain

from benchmarks import contracts, routes, semantics

Does = contracts.Does
SOLELY_ALIGNED = ("object", "complex128", "longdouble")
UNSIGNED = {"uint16", "uint32", "uint64"}  # torch does not promote them
ODD_DTYPES = [">f4", ">i8", "datetime64[s]", "longdouble", "object", "U3", "Q", "q", "i4,f4"]
DTYPES = [name for name in semantics.DTYPES if name != "bfloat16"]
TORCH_DTYPES = [name for name in (*semantics.DTYPES, "float8_e4m3fn") if hasattr(torch, name)]
FLAGS = ("flipped", "stepped", "transposed", "broadcast", "read-only", "unaligned", "masked", "record field")
TENSOR_FLAGS = ("stepped", "transposed", "expanded", "requires grad", "conjugate view", "negative view", "sparse")
SHAPES = st.lists(st.sampled_from([0, 1, 1, 2, 3]), max_size=3).map(tuple)


def an_array(dtype, shape, flags):
    """A small array with these flags, as far as its dtype and shape allow."""
    if "stepped" in flags and shape:
        shape = (*shape[:-1], 2 * shape[-1])
    numbers = np.arange(math.prod(shape)) % 7 + 1
    numbers = (numbers * 10**8 if dtype.startswith("datetime") else numbers).astype(dtype)
    if "record field" in flags and dtype not in SOLELY_ALIGNED:
        records = np.zeros(numbers.size, [("tag", "i1"), ("number", numbers.dtype)])
        records["number"] = numbers
        a = records["number"].reshape(shape)
    elif "unaligned" in flags and dtype not in SOLELY_ALIGNED:
        a = np.zeros(numbers.nbytes + 1, "uint8")[1:].view(numbers.dtype)
        a[...] = numbers
        a = a.reshape(shape)
    else:
        a = numbers.reshape(shape)
    if a.ndim:
        a = a[..., ::2] if "stepped" in flags else a
        a = a[::-1] if "flipped" in flags else a
        a = a.T if "transposed" in flags else a
        a = np.broadcast_to(a, (2, *a.shape)) if "broadcast" in flags and a.ndim < 3 else a
    if "read-only" in flags:
        a.flags.writeable = False
    return np.ma.array(a, mask=True) if "masked" in flags and a.size and not a.dtype.names else a


def a_tensor(dtype, shape, flags):
    """A small tensor with these flags, as far as its dtype allows."""
    shape = (*shape[:-1], 2 * shape[-1]) if "stepped" in flags and shape else shape
    t = (torch.arange(math.prod(shape)) % 7 + 1).to(getattr(torch, dtype)).reshape(shape)
    if t.dim():
        t = t[..., ::2] if "stepped" in flags else t
        t = t.mT if "transposed" in flags and t.dim() > 1 else t
        t = t.expand(2, *t.shape) if "expanded" in flags else t
    if t.is_complex():
        t = t.conj() if "conjugate view" in flags or "negative view" in flags else t
        t = t.imag if "negative view" in flags else t
    if "sparse" in flags and dtype in ("float32", "float64") and t.dim():
        t = t.detach().to_sparse()
    return t.detach().requires_grad_() if "requires grad" in flags and t.dtype.is_floating_point else t


ARRAYS = st.builds(
    an_array, st.sampled_from([*DTYPES, *ODD_DTYPES]), SHAPES, st.sets(st.sampled_from(FLAGS), max_size=3)
)
TENSORS = st.builds(a_tensor, st.sampled_from(TORCH_DTYPES), SHAPES, st.sets(st.sampled_from(TENSOR_FLAGS), max_size=3))


def lists_of(sources):
    """Lists of sources: of one kind, or of any."""
    several = st.lists(sources, max_size=3).filter(lambda items: len(items) != 1)
    return st.one_of(sources.map(lambda one: [one, one]), several)


def kinds_of(values):
    """The awkward kinds of an array or tensor, as docs/glossary.md defines them."""
    if isinstance(values, torch.Tensor):
        dense = values.layout == torch.strided
        found = {
            "complex": values.is_complex(),
            "conjugate view": values.is_conj() and values.is_contiguous(),
            "conjugate view, strided": values.is_conj() and not values.is_contiguous(),
            "empty": not values.numel(),
            "expanded": dense and any(not s and n > 1 for s, n in zip(values.stride(), values.shape)),
            "float8": "float8" in str(values.dtype),
            "negative view, length 1": values.is_neg() and values.is_contiguous(),
            "negative view": values.is_neg() and not values.is_contiguous(),
            "requires grad": values.requires_grad,
            "sparse": not dense,
        }
    else:
        dtype, order = values.dtype, "C" if values.flags.c_contiguous else ""
        negative = min(values.strides, default=0) < 0
        shape = ", 0-d" if not values.ndim else "" if order else ", strided"
        torn = any(stride % dtype.itemsize for stride in values.strides)
        found = {
            "broadcast": values.size and any(not s and n > 1 for s, n in zip(values.strides, values.shape)),
            "byte-swapped, 0-d" if not values.ndim else "byte-swapped": not dtype.isnative,
            "complex": dtype.kind == "c",
            "datetime64": dtype.kind == "M",
            "empty": not values.size,
            "longdouble": dtype.char in "gG",
            "masked, 0-d" if not values.ndim else "masked": isinstance(values, np.ma.MaskedArray),
            "negative strides, length 1": negative and order,
            "negative strides": negative and not order,
            "object of numbers": dtype.kind == "O",
            f"read-only{shape}": not values.flags.writeable,
            "record field, length 1": torn and order,
            "record field": torn and not order,
            "strided": not order,
            "strings, 0-d" if not values.ndim else "strings": dtype.kind == "U",
            "structured": dtype.names,
            "ulonglong": dtype.char == "Q",
            "unaligned": not values.flags.aligned,
        }
    return {kind for kind, holds in found.items() if holds}


def buffers(route, source):
    """The names of a route's expression for a buffer of the source's shape and dtype, if there is such a dtype."""
    name = source.dtype.name if isinstance(source, np.ndarray) else semantics.dtype_name(source)
    dtype = getattr(torch, name, torch.float32)
    if route.direction == routes.TORCH_TO_NUMPY:
        return {"b": np.zeros(tuple(source.shape), name if hasattr(np, name) else "float32")}
    return {"dtype": dtype, "b": torch.zeros(source.shape, dtype=dtype)}


def layout_of(route, source):
    """The layout or kind of a source that decides whether a route shares its memory."""
    is_array = isinstance(source, np.ndarray)
    flat = source.flags.c_contiguous if is_array else source.layout == torch.strided and source.is_contiguous()
    lazy = [
        name
        for name, holds in (("conjugate", torch.is_conj), ("negative", torch.is_neg))
        if not is_array and holds(source)
    ]
    views = [f"{name} view" for name in lazy if f"{name} view" in route.copies]
    return next(iter(views), "" if flat and source.ndim else "strided" if source.ndim else "0-d")


def kinds_of_list(items):
    """The awkward kinds of a list of arrays or tensors."""
    dtypes, shapes = {item.dtype for item in items}, {tuple(item.shape) for item in items}
    names = {semantics.dtype_name(item) for item in items}
    mixed = "mixed-dtype, unsigned" if names & UNSIGNED else "mixed-dtype"
    found = {"empty list": not items, mixed: len(dtypes) > 1, "ragged": len(shapes) > 1, "0-d": () in shapes}
    return {kind for kind, holds in found.items() if holds}.union(*map(kinds_of, items))


def promised_exceptions(route, kinds, dtypes):
    """The exceptions of a contract for a source of these kinds, and all outcomes; None: it may end the process."""
    here = partial(elsewhere.promised, route)
    outcomes = {here(kind, route.outcome(kind) or Does.WORKS * (kind == "0-d")) for kind in kinds}
    if not all(outcomes) or contracts.ENDS in outcomes:
        return None
    raised = {does for does in outcomes if contracts.kind(does) == contracts.RAISES}
    if ".copy_(" not in route.expression:  # it is the buffer that has no such dtype
        raised |= {here(dtype, route.refuses[dtype]) for dtype in dtypes if dtype in route.refuses}
    return raised, outcomes


def list_dtype(items, outcomes):
    """The dtype that a list's result has by its contract."""
    if Does.TORCH_DTYPE in outcomes:
        found = [getattr(torch, getattr(item.dtype, "name", semantics.dtype_name(item))) for item in items]
        return semantics.dtype_name(torch.empty(0, dtype=reduce(torch.promote_types, found)))
    return np.result_type(*(plain(item).dtype for item in items)).name if items else "float64"
