"""Outcomes of unusual sources for routes of the catalogue, and the names of its families."""

from collections.abc import Iterable, Mapping

from .contracts import (
    CONVERSION,
    Does,
    Outcomes,
)

CASTING = "casting"
BFLOAT16 = "bfloat16"
TO_FLOAT16 = "to float16"
TO_BFLOAT16 = "to bfloat16"
LAYOUT = "layout"
COLD = "cold"
BATCHES = "batches"
# Timed by scripts/advise.py --measure alone
BUFFERED_BATCHES, PADDED_BATCHES = "batches into a buffer", "padded batches"
PYTHON_LISTS = "Python lists"
STACKS = "stacks"
TREES = "trees"
FILES = "files"
SHARED = "shared"
HANDED_OVER = "handed over"
TRANSFER = "transfer"
SUSTAINED = "sustained"  # several may be in flight
TRANSFER_CASTING = "transfer casting"
TRANSFER_BFLOAT16 = "transfer to bfloat16"
TRANSFER_UINT8 = "transfer from uint8"
TRANSFER_LAYOUT = "transfer layout"
SCALAR = "scalar"
DEVICE_TREES = "device trees"
MANY = "many small tensors"
MAIN = (CONVERSION, LAYOUT, COLD)  # the routes people choose between, timed on every kind of source


def by_source(outcomes: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Invert outcome -> sources to source -> outcome."""
    return {source: does for does, sources in outcomes.items() for source in sources}


def replaced(inputs: Outcomes, outcomes: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return ``inputs`` with these outcomes replaced."""
    return {**inputs, **by_source(outcomes)}


RAISES = "RuntimeError"  # torch's most common exception
# numpy→torch: outcomes of torch.from_numpy and all functions built on it
FROM_NUMPY = by_source(
    {
        Does.WORKS: ["complex", "empty", "strided", "unaligned"],
        Does.WARNS: ["broadcast", "read-only"],
        Does.UNMASKED: ["masked"],
        "ValueError": ["byte-swapped", "negative strides", "record field"],
        "TypeError": [
            "datetime64",
            "longdouble",
            "ml_dtypes",
            "object",
            "object of numbers",
            "strings",
            "structured",
            "ulonglong",
        ],
    }
)
ALL_WORK = by_source({Does.WORKS: FROM_NUMPY})
COPIES_FIRST = replaced(FROM_NUMPY, {Does.WORKS: ["broadcast", "read-only"]})
NUMPY_COPIES_FIRST = replaced(COPIES_FIRST, {Does.WORKS: ["negative strides", "record field"]})
# of a source with one element along such an axis NumPy says that it is contiguous
CONTIGUOUS_FIRST = {
    **replaced(FROM_NUMPY, {Does.WORKS: ["broadcast", "negative strides", "record field"]}),
    "read-only, strided": Does.WORKS,
    **{source: "ValueError" for source in ("negative strides, length 1", "record field, length 1")},
}
CASTS_FROM_NUMPY = {**FROM_NUMPY, "complex": Does.REAL_PART}
CASTS_COPIES_FIRST = {**COPIES_FIRST, "complex": Does.REAL_PART}
NUMPY_CASTS = replaced(
    {**ALL_WORK, "complex": Does.REAL_PART},
    {
        Does.COUNTS: ["datetime64"],
        Does.UNMASKED: ["masked"],
        Does.PARSES: ["strings"],
        "TypeError": ["structured"],
        "ValueError": ["object"],
    },
)
DLPACK_COPIES_FIRST = {
    **by_source({"BufferError": FROM_NUMPY}),
    **by_source(
        {Does.WORKS: ["broadcast", "complex", "empty", "read-only", "strided", "unaligned"]}
    ),
    **by_source({Does.WORKS: ["negative strides", "record field", "ulonglong"]}),
    "masked": Does.UNMASKED,
}
DLPACK = {
    **DLPACK_COPIES_FIRST,
    "record field": "BufferError",
    "record field, length 1": Does.WORKS,
}
DLPACK.pop("negative strides")  # its hazard says ENDS
NUMPY_CASTS_TO_16 = {**NUMPY_CASTS, "datetime64": Does.INFINITE}
COPYTO = replaced(
    ALL_WORK,
    {
        Does.UNMASKED: ["masked"],
        "TypeError": ["datetime64", "object", "object of numbers", "strings", "structured"],
    },
)
LISTED = replaced(
    ALL_WORK,
    {
        RAISES: ["datetime64", "masked"],
        "ValueError": ["strings"],
        Does.WRONG: ["structured"],
        "TypeError": ["longdouble", "object", "strings, 0-d"],
    },
)
# Lists: what each array is, and what they are together
MIXED = ("mixed-dtype", "mixed-dtype, unsigned")
LISTS_BY_NUMPY = {
    **NUMPY_COPIES_FIRST,
    "byte-swapped": Does.WORKS,
    **dict.fromkeys(MIXED, Does.NUMPY_DTYPE),
    **dict.fromkeys(["ragged", "empty list"], "ValueError"),
}
LISTS_BY_NUMPY_ARRAY = {
    **LISTS_BY_NUMPY,
    "empty list": Does.NOTHING,
    "masked, 0-d": Does.MASK_TO_NAN,
}
LISTS_BY_TORCH = {
    **FROM_NUMPY,
    "mixed-dtype": Does.TORCH_DTYPE,
    **dict.fromkeys(["mixed-dtype, unsigned", "ragged", "empty list"], RAISES),
}
LISTS_COLLATED = {**LISTS_BY_TORCH, "empty list": "IndexError"}
LISTS_INTO_BUFFER = {
    **COPYTO,
    **dict.fromkeys(MIXED, Does.BUFFER_DTYPE),
    **dict.fromkeys(["ragged", "empty list"], "ValueError"),
}
LISTS_INTO_BUFFER_BY_TORCH = {**LISTS_BY_TORCH, "mixed-dtype": Does.BUFFER_DTYPE}
LISTS_BY_ELEMENT = {
    **dict.fromkeys(FROM_NUMPY, Does.WARNS),
    "masked": Does.MASK_TO_NAN,
    **{source: does for source, does in FROM_NUMPY.items() if does == "TypeError"},
    **{"strings": "ValueError", "ragged": "ValueError", "mixed-dtype": Does.TORCH_DTYPE},
    **{"mixed-dtype, unsigned": RAISES, "empty list": Does.WORKS, "0-d": "TypeError"},
}
# Lists of Python numbers
VALUES_BY_TORCH = {
    "empty list": Does.WORKS,
    **dict.fromkeys(["ragged", "strings"], "ValueError"),
    "None": RAISES,
}
VALUES_CAST_BY_TORCH = {**VALUES_BY_TORCH, "None": "TypeError"}
VALUES_CAST_BY_NUMPY = {**VALUES_BY_TORCH, "strings": Does.PARSES, "None": Does.NONE_TO_NAN}
VALUES_BY_NUMPY = {
    "empty list": Does.NOTHING,
    "ragged": "ValueError",
    **dict.fromkeys(["strings", "None"], "TypeError"),
}
# torch→numpy: outcomes of Tensor.numpy
NUMPY = by_source(
    {
        Does.WORKS: ["complex", "empty", "expanded", "strided"],
        RAISES: ["conjugate view", "negative view", "requires grad"],
        "TypeError": ["float8", "quantized", "sparse"],
    }
)
DETACHED = {**NUMPY, "requires grad": Does.DETACHES}
# copy_ reads a tensor in any representation; the array's own memory is dense
INTO_ARRAY = replaced(
    DETACHED,
    {Does.WORKS: ["conjugate view", "float8", "negative view"], RAISES: ["quantized", "sparse"]},
)
RESOLVED = replaced(NUMPY, {Does.WORKS: ["conjugate view", "negative view"]})
TORCH_CASTS = replaced(
    NUMPY,
    {Does.REAL_PART: ["complex", "conjugate view"], Does.WORKS: ["float8"], RAISES: ["quantized"]},
)
TORCH_CASTS_TO_16 = {**TORCH_CASTS, "negative view": Does.WORKS}
ASTYPE = {**NUMPY, "complex": Does.REAL_PART}
TO_DLPACK = replaced(
    NUMPY,
    {"BufferError": ["conjugate view", "quantized", "requires grad", "sparse"], RAISES: ["float8"]},
)
# a negative view is every second number of a complex tensor, so contiguous() copies it and applies
# the sign
DENSE = replaced(
    NUMPY,
    {
        Does.WORKS: ["conjugate view, strided", "negative view"],
        RAISES: ["negative view, length 1", "sparse"],
    },
)
TENSORS_BY_NUMPY = {
    **NUMPY,
    **dict.fromkeys(MIXED, Does.NUMPY_DTYPE),
    "ragged": "ValueError",
}
TENSORS_BY_TORCH = {
    **RESOLVED,
    "mixed-dtype": Does.TORCH_DTYPE,
    **dict.fromkeys(["mixed-dtype, unsigned", "ragged", "empty list"], RAISES),
}
TORCH_LISTED = by_source(
    {Does.WORKS: NUMPY, Does.DETACHES: ["requires grad"], RAISES: ["quantized", "sparse"]}
)
ALL_DTYPES = (
    "bfloat16",
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
    *("complex64", "complex128", "uint16", "uint32", "uint64"),
)
NO_BFLOAT16 = {"bfloat16": "TypeError"}  # NumPy has none
# What a user may set: torch.set_default_device, torch.set_default_dtype
DEVICE, BOTH_DEFAULTS = ("device",), ("dtype", "device")
CASTS_TO_BUFFER = "casts to the buffer's dtype silently: 300.7 becomes 44 in uint8"
CASTS_WITHIN_KIND = (
    "casts to the buffer's dtype silently within a kind (int64 to int8), and raises otherwise"
)
LEGACY_DATA = (
    "legacy: torch's documentation recommends detach() over .data, which autograd does not see"
)
