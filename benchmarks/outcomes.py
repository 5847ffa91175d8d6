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
BUFFERED_BATCHES = "batches into a buffer"  # timed by scripts/advise.py --measure alone
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
            "structured",
        ],
    }
)
ALL_WORK = by_source({Does.WORKS: FROM_NUMPY})
COPIES_FIRST = replaced(FROM_NUMPY, {Does.WORKS: ["broadcast", "read-only"]})
NUMPY_COPIES_FIRST = replaced(COPIES_FIRST, {Does.WORKS: ["negative strides", "record field"]})
CASTS_FROM_NUMPY = {**FROM_NUMPY, "complex": Does.REAL_PART}
CASTS_COPIES_FIRST = {**COPIES_FIRST, "complex": Does.REAL_PART}
NUMPY_CASTS = replaced(
    {**ALL_WORK, "complex": Does.REAL_PART},
    {
        Does.COUNTS: ["datetime64"],
        Does.UNMASKED: ["masked"],
        "TypeError": ["structured"],
        "ValueError": ["object"],
    },
)
DLPACK_COPIES_FIRST = {
    **by_source({"BufferError": FROM_NUMPY}),
    **by_source(
        {Does.WORKS: ["broadcast", "complex", "empty", "read-only", "strided", "unaligned"]}
    ),
    **by_source({Does.WORKS: ["negative strides", "record field"], Does.UNMASKED: ["masked"]}),
}
DLPACK = {**DLPACK_COPIES_FIRST, "record field": "BufferError"}
DLPACK.pop("negative strides")  # its hazard says ENDS
NUMPY_CASTS_TO_16 = {**NUMPY_CASTS, "datetime64": Does.INFINITE}
COPYTO = replaced(
    ALL_WORK,
    {
        Does.UNMASKED: ["masked"],
        "TypeError": ["datetime64", "object", "object of numbers", "structured"],
    },
)
LISTED = replaced(
    ALL_WORK,
    {
        RAISES: ["datetime64", "masked"],
        "TypeError": ["longdouble", "object"],
        Does.WRONG: ["structured"],
    },
)
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
DENSE = replaced(NUMPY, {Does.WORKS: ["negative view"], RAISES: ["sparse"]})
TORCH_LISTED = by_source(
    {Does.WORKS: NUMPY, Does.DETACHES: ["requires grad"], RAISES: ["quantized", "sparse"]}
)
LEGACY_DATA = (
    "legacy: torch's documentation recommends detach() over .data, which autograd does not see"
)
