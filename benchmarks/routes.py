"""The catalogue: every route with its contract. To add a route, add one entry here.

An entry defines the route's benchmark cells, its contract tests, its row in every table and its
advice. A route is the expression a user would write, over these names:

    a       a NumPy array             arrays  a list of NumPy arrays
    t       a CPU tensor              tensors a list of CPU tensors
    tree    a nested dict and list of tensors or arrays
    b       an existing buffer of the other kind, same shape and dtype
    dtype   the torch dtype of `a`

and, where an accelerator takes part, over

    device  the accelerator          d       an existing tensor on the device
    t       the tensor to move       h       an existing host tensor
    m       a transposed host tensor s       a persistent pinned staging tensor
    tensors small host tensors       ds      existing tensors on the device, one for each of
    `tensors` numbers tensors on the device of one number each buffers two pinned tensors
    stages  two pinned chunks and a side stream

and, where the numbers lie in a file,

    path    of the file              size    count of its numbers

and, where other processes take part,

    memory  a SharedMemory            block   an array in it, also open in a worker
    shared  a tensor in shared memory connection  to the worker

Contracts hold for the pinned toolchain; the ``semantics`` benchmarks measure them on every
toolchain.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from .contracts import (
    ALIAS,
    CONVERSION,
    COPY,
    DEVICE_TO_HOST,
    FILE_TO_TENSOR,
    HOST_TO_DEVICE,
    INTO,
    NUMPY_TO_TORCH,
    PAGEABLE,
    PINNED,
    PROCESS_TO_PROCESS,
    REGISTERED,
    TORCH_TO_NUMPY,
    Does,
    Outcomes,
    Route,
)

CASTING = "casting"
BFLOAT16 = "bfloat16"
TO_FLOAT16 = "to float16"
TO_BFLOAT16 = "to bfloat16"
LAYOUT = "layout"
COLD = "cold"
BATCHES = "batches"
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


def _each(outcomes: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Invert outcome -> sources to source -> outcome."""
    return {source: does for does, sources in outcomes.items() for source in sources}


def _but(inputs: Outcomes, outcomes: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return ``inputs`` with these outcomes replaced."""
    return {**inputs, **_each(outcomes)}


RAISES = "RuntimeError"  # torch's most common exception
# numpy→torch: outcomes of torch.from_numpy and all functions built on it
FROM_NUMPY = _each(
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
ALL_WORK = _each({Does.WORKS: FROM_NUMPY})
COPIES_FIRST = _but(FROM_NUMPY, {Does.WORKS: ["broadcast", "read-only"]})
NUMPY_COPIES_FIRST = _but(COPIES_FIRST, {Does.WORKS: ["negative strides", "record field"]})
CASTS_FROM_NUMPY = {**FROM_NUMPY, "complex": Does.REAL_PART}
CASTS_COPIES_FIRST = {**COPIES_FIRST, "complex": Does.REAL_PART}
NUMPY_CASTS = _but(
    {**ALL_WORK, "complex": Does.REAL_PART},
    {
        Does.COUNTS: ["datetime64"],
        Does.UNMASKED: ["masked"],
        "TypeError": ["structured"],
        "ValueError": ["object"],
    },
)
DLPACK = {
    **_each({"BufferError": FROM_NUMPY}),
    **_each({Does.WORKS: ["broadcast", "complex", "empty", "read-only", "strided", "unaligned"]}),
    "masked": Does.UNMASKED,
    "negative strides": Does.ABORTS,
}
NUMPY_CASTS_TO_16 = {**NUMPY_CASTS, "datetime64": Does.INFINITE}
DLPACK_COPIES = "torch>=2.9 numpy>=2.1"  # on demand
DLPACK_COPIES_FIRST = _but(DLPACK, {Does.WORKS: ["negative strides", "record field"]})
COPYTO = _but(
    ALL_WORK,
    {
        Does.UNMASKED: ["masked"],
        "TypeError": ["datetime64", "object", "object of numbers", "structured"],
    },
)
LISTED = _but(
    ALL_WORK,
    {
        RAISES: ["datetime64", "masked"],
        "TypeError": ["longdouble", "object"],
        Does.WRONG: ["structured"],
    },
)
# torch→numpy: outcomes of Tensor.numpy
NUMPY = _each(
    {
        Does.WORKS: ["complex", "empty", "expanded", "strided"],
        RAISES: ["conjugate view", "negative view", "requires grad"],
        "TypeError": ["float8", "quantized", "sparse"],
    }
)
DETACHED = {**NUMPY, "requires grad": Does.DETACHES}
# copy_ reads a tensor in any representation; the array's own memory is dense
INTO_ARRAY = _but(
    DETACHED,
    {Does.WORKS: ["conjugate view", "float8", "negative view"], RAISES: ["quantized", "sparse"]},
)
RESOLVED = _but(NUMPY, {Does.WORKS: ["conjugate view", "negative view"]})
TORCH_CASTS = _but(
    NUMPY,
    {Does.REAL_PART: ["complex", "conjugate view"], Does.WORKS: ["float8"], RAISES: ["quantized"]},
)
TORCH_CASTS_TO_16 = {**TORCH_CASTS, "negative view": Does.WORKS}
ASTYPE = {**NUMPY, "complex": Does.REAL_PART}
TO_DLPACK = _but(
    NUMPY,
    {"BufferError": ["conjugate view", "quantized", "requires grad", "sparse"], RAISES: ["float8"]},
)
# a negative view is every second number of a complex tensor, so contiguous() copies it and applies
# the sign
DENSE = _but(NUMPY, {Does.WORKS: ["negative view"], RAISES: ["sparse"]})
TORCH_LISTED = _each(
    {Does.WORKS: NUMPY, Does.DETACHES: ["requires grad"], RAISES: ["quantized", "sparse"]}
)
# Layouts copied by routes with contiguous results: the reason to call them
NOT_CONTIGUOUS = ("strided", "transposed", "fortran", "power of two")
NOT_DENSE = (*NOT_CONTIGUOUS, "expanded")
# Conversions through Python numbers
_OBJECTS = "makes a Python object of every element; an empty source loses its dtype"
BY_ELEMENT: dict[str, Any] = {"casts_to": "python", "per_element": True, "hazard": _OBJECTS}
# NumPy has no bfloat16
NO_BFLOAT16 = {"bfloat16": "TypeError"}


HOSTS = (PAGEABLE, PINNED)
ANY_HOST = (*HOSTS, REGISTERED)
# Autograd records a transfer between tensors like any other operation: a loop that refills the same
# buffer needs detach() first
MOVED, FILLED = {"requires grad": Does.FOLLOWS}, {"requires grad": Does.ACCUMULATES}
# file→tensor. A process that maps a file dies if the file is truncated meanwhile; one that has read
# it does not. If the file does not store the count of its numbers, a truncated file seems complete.
READ = _each(
    {
        "FileNotFoundError": ["missing"],
        "ValueError": ["cut short"],
        Does.WORKS: ["cut short in use", "written to"],
    }
)
MAPPED = {**READ, "cut short in use": Does.BUS_ERROR}
MAPPED_RAW = {**MAPPED, "cut short": Does.FEWER}
KILLED = {"written to": Does.SEGFAULT}
FROM_FILE = _but(MAPPED, {RAISES: ["missing", "cut short"]})

_SOURCE_IN_FLIGHT = (
    "from pinned memory, changing the source before a synchronize changes what arrives"
)
_PINS_EACH_CALL = (
    "copies on the calling thread at every call, and page-locks memory where torch's pinned cache "
    "has none to reuse: can be slower than a plain .to(device)"
)
_WAIT_BEFORE_REFILL = (
    "wait for the copy before the next refill of the staging tensor, or what arrives is mixed"
)
_TEMPORARY = "not contiguous: goes through a pageable temporary even when pinned"
_READ_TOO_EARLY = "reading the result before a synchronize gives garbage"
_SHOWS_THE_BUFFER = "the array shows what h holds: the next copy into h changes it"
_NEXT_BUT_ONE = (
    "the second start() after its own overwrites the array, also while it is read: "
    "copy what is to stay"
)
_CASTS_THERE = "converts on the device, so the wider bytes cross the link"

_TENSOR_CLASS = (
    "always gives float32: shares the memory of a source that is float32 already, and a complex "
    "one loses its imaginary part; takes a 0-d array of integers for a size and gives that many "
    "uninitialised numbers"
)
_DATES = "takes dates for counts of their unit, rounded to float32, where other routes raise"
_NO_CAST = "shares the memory of a source that is float32 already"
_INFINITE = "numbers beyond 65,504 become infinite"
_NO_CAST_TO_16 = f"{_INFINITE}; shares the memory of a source that is float16 already"
_INFINITE_AND_WARNS = f"{_INFINITE}, of which NumPy warns from 1.24 on"
_PERHAPS_A_COPY = "shares memory or copies, depending on the tensor"
_READ_ONLY_MAP = (
    "writing to the tensor kills the process: the warning, once a process, says undefined"
)
_WRITES_THROUGH = "a write to the tensor is a write to the file"
_MAKES_A_FILE = (
    f"{_WRITES_THROUGH}, and one that is missing or too short is made as long as asked for, "
    "with zeros"
)
_CLOSED_BELOW = (
    "using the tensor after memory.close(), or after memory is no longer named, kills the process"
)
_NEVER_0D = "gives a 0-d source one dimension"
_LEGACY_DATA = (
    "legacy: torch's documentation recommends detach() over .data, which autograd does not see"
)
_LEGACY_VARIABLE = "legacy: every tensor is a Variable since torch 0.4, and the call does nothing"

# Contract fields that several routes share; an entry may override them
_to_torch = partial(Route, direction=NUMPY_TO_TORCH, inputs=FROM_NUMPY)
_asarray = partial(_to_torch, memory=ALIAS, copies=("0-d",), needs="torch>=1.11")
_to_numpy = partial(Route, direction=TORCH_TO_NUMPY, inputs=NUMPY, refuses=NO_BFLOAT16)
_to_dlpack = partial(_to_numpy, refuses={"bfloat16": "RuntimeError"})
_resolving = partial(
    _to_numpy, memory=ALIAS, copies=("conjugate view", "negative view"), hazard=_PERHAPS_A_COPY
)
_cast = partial(
    Route,
    direction=NUMPY_TO_TORCH,
    casts_to="float32",
    inputs=CASTS_FROM_NUMPY,
    families=(CASTING,),
)
_to_float16 = partial(_cast, casts_to="float16", families=(TO_FLOAT16,))
_to_bfloat16 = partial(
    _cast, casts_to="bfloat16", families=(TO_BFLOAT16,), caution="keeps two or three decimal digits"
)
_cast_by_torch = partial(Route, direction=TORCH_TO_NUMPY, inputs=TORCH_CASTS)
_from_bfloat16 = partial(_cast_by_torch, families=(BFLOAT16,))
_numpy_float16 = partial(
    _cast_by_torch, casts_to="float16", inputs=TORCH_CASTS_TO_16, families=(TO_FLOAT16,)
)
_batch = partial(Route, direction=NUMPY_TO_TORCH, families=(BATCHES,))
_stack = partial(Route, direction=TORCH_TO_NUMPY, families=(STACKS,))
_from_file = partial(Route, direction=FILE_TO_TENSOR, families=(FILES,))
_mapped_raw = partial(_from_file, inputs=MAPPED_RAW)
_read_only = partial(_from_file, memory=ALIAS, hazard=_READ_ONLY_MAP)
_shared = partial(Route, direction=PROCESS_TO_PROCESS, families=(SHARED,))
_over_block = partial(
    _shared, memory=ALIAS, inputs={"closed in use": Does.SEGFAULT}, hazard=_CLOSED_BELOW
)
_handed_over = partial(Route, direction=PROCESS_TO_PROCESS, families=(HANDED_OVER,))
_to_device = partial(Route, direction=HOST_TO_DEVICE, host_memory=ANY_HOST, families=(TRANSFER,))
_early_to_device = partial(_to_device, non_blocking=True)
# bytes in pageable memory have left their source when the call returns
_in_flight = partial(_early_to_device, hazard=_SOURCE_IN_FLIGHT, hazard_memory=(PINNED, REGISTERED))
_staged = partial(
    _early_to_device, memory=INTO, host_memory=(PAGEABLE,), hazard=_WAIT_BEFORE_REFILL
)
_to_host = partial(Route, direction=DEVICE_TO_HOST, host_memory=(PAGEABLE,), families=(TRANSFER,))
_early_to_host = partial(
    _to_host, non_blocking=True, families=(TRANSFER, SUSTAINED), hazard=_READ_TOO_EARLY
)
_to_array = partial(_to_host, inputs=NUMPY, array=True)
CASTS: dict[str, Any] = {"casts_to": "float32", "families": (TRANSFER_CASTING, TRANSFER_UINT8)}
FROM_UINT8: dict[str, Any] = {"casts_to": "float32", "families": (TRANSFER_UINT8,)}
TREES_THERE: dict[str, Any] = {"host_memory": HOSTS, "families": (DEVICE_TREES,)}
MANY_THERE: dict[str, Any] = {"host_memory": HOSTS, "families": (MANY,)}
CASTS_TO_BFLOAT16: dict[str, Any] = {
    "casts_to": "bfloat16",
    "host_memory": HOSTS,
    "families": (TRANSFER_BFLOAT16,),
}

ROUTES = (
    # NumPy to torch
    _to_torch("torch.from_numpy(a)", ALIAS, families=MAIN),
    _to_torch("torch.as_tensor(a)", ALIAS, families=MAIN),
    _asarray("torch.asarray(a)", families=MAIN, hazard="copies a 0-d array, shares any other"),
    _asarray(
        "torch.asarray(a, copy=False)",
        hazard=(
            "copies a 0-d array all the same, and raises where any other would have to be copied"
        ),
    ),
    _to_torch("torch.asarray(a, copy=True)", COPY, inputs=COPIES_FIRST, needs="torch>=1.11"),
    _to_torch("torch.tensor(a)", COPY, inputs=COPIES_FIRST, families=MAIN),
    _to_torch(
        "b.new_tensor(a)",
        COPY,
        inputs=COPIES_FIRST,
        caution="gives the dtype of b, whatever that of a",
    ),
    _cast("torch.Tensor(a)", ALIAS, families=(CONVERSION,), hazard=_TENSOR_CLASS),
    _cast("torch.FloatTensor(a)", ALIAS, families=(CONVERSION,), hazard=_TENSOR_CLASS),
    _to_torch("torch.from_numpy(a).clone()", COPY, families=MAIN),
    _to_torch(
        "torch.from_numpy(a.copy())", COPY, inputs=NUMPY_COPIES_FIRST, families=MAIN, memmove=True
    ),
    _to_torch(
        "torch.from_dlpack(a)",
        ALIAS,
        inputs=DLPACK,
        families=MAIN,
        needs="torch>=1.10",
        hazard=(
            "shares a read-only array without a warning, and aborts the process on negative strides"
        ),
    ),
    _to_torch(
        "torch.from_dlpack(a, copy=True)",
        COPY,
        inputs=DLPACK_COPIES_FIRST,
        needs=DLPACK_COPIES,
        memmove=True,
    ),
    _to_torch(
        "torch.frombuffer(a, dtype=dtype)",
        ALIAS,
        inputs={
            **_each({Does.WRONG: FROM_NUMPY, Does.WORKS: ["complex", "unaligned"]}),
            **_each({RAISES: ["broadcast", "negative strides", "record field", "strided"]}),
            **{"empty": "ValueError", "masked": Does.UNMASKED, "read-only": Does.WARNS},
        },
        needs="torch>=1.10",
        hazard="reinterprets the bytes whatever they are, and flattens the shape",
    ),
    _to_torch(
        "torch.utils.data.default_convert(a)",
        ALIAS,
        inputs=_but(FROM_NUMPY, {Does.UNCONVERTED: ["masked", "object", "object of numbers"]}),
        needs="torch>=1.11",
        hazard=(
            "gives back what it does not know, "
            "such as masked arrays and those of objects or strings"
        ),
    ),
    _to_torch("torch.autograd.Variable(torch.from_numpy(a))", ALIAS, hazard=_LEGACY_VARIABLE),
    _to_torch("b.copy_(torch.from_numpy(a))", INTO, families=MAIN),
    _to_torch("np.copyto(b.numpy(), a)", INTO, inputs=COPYTO, memmove=True),
    _to_torch("torch.tensor(a.tolist())", COPY, inputs=LISTED, **BY_ELEMENT),
    # torch to NumPy
    _to_numpy("t.numpy()", ALIAS, families=MAIN),
    _resolving(
        "t.numpy(force=True)",
        inputs={**RESOLVED, "requires grad": Does.DETACHES},
        needs="torch>=1.13",
    ),
    _resolving("t.resolve_conj().resolve_neg().numpy()", inputs=RESOLVED, needs="torch>=1.10"),
    _to_numpy("t.detach().numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.data.numpy()", ALIAS, inputs=DETACHED, hazard=_LEGACY_DATA),
    _to_numpy("t.cpu().numpy()", ALIAS),
    _to_numpy("t.to('cpu').numpy()", ALIAS),
    _to_numpy("t.cpu().data.numpy()", ALIAS, inputs=DETACHED, hazard=_LEGACY_DATA),
    _to_numpy("t.data.cpu().numpy()", ALIAS, inputs=DETACHED, hazard=_LEGACY_DATA),
    _to_numpy("t.detach().cpu().numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.cpu().detach().numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.detach().to('cpu').numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.numpy().copy()", COPY, families=MAIN, memmove=True),
    _to_numpy("t.cpu().numpy().copy()", COPY, memmove=True),
    _to_numpy("t.cpu().detach().numpy().copy()", COPY, inputs=DETACHED, memmove=True),
    _to_numpy("t.detach().numpy().copy()", COPY, inputs=DETACHED, memmove=True),
    _to_numpy("t.clone().numpy()", COPY, inputs=RESOLVED, families=MAIN),
    _to_numpy(
        "t.detach().clone().numpy()", COPY, inputs={**RESOLVED, "requires grad": Does.DETACHES}
    ),
    _to_numpy("np.asarray(t)", ALIAS, families=MAIN),
    _to_numpy(
        "np.array(t)",
        COPY,
        inputs=_but(NUMPY, {Does.WARNS_EACH_TIME: ["complex", "empty", "expanded", "strided"]}),
        memmove=True,
        hazard="warns on NumPy 2: Tensor.__array__ takes no copy argument",
    ),
    _to_numpy("t.__array__()", ALIAS),
    _to_dlpack(
        "np.from_dlpack(t)",
        ALIAS,
        inputs={**TO_DLPACK, "negative view": Does.WRONG},
        families=MAIN,
        needs="numpy>=1.23",
        hazard="a negative view (such as torch.imag of a conjugate) gets the wrong sign",
    ),
    _to_dlpack(
        "np.from_dlpack(t, copy=True)",
        inputs={**TO_DLPACK, "negative view": Does.WORKS},
        needs=DLPACK_COPIES,
    ),
    _to_numpy("np.copyto(b, t.numpy())", INTO, families=MAIN, memmove=True),
    _to_numpy("torch.from_numpy(b).copy_(t)", INTO, inputs=INTO_ARRAY, families=MAIN),
    _to_numpy("np.array(t.tolist())", COPY, inputs=TORCH_LISTED, refuses={}, **BY_ELEMENT),
    # Casting on the way
    _cast("torch.from_numpy(a).type(torch.float32)", ALIAS, caution=_NO_CAST),
    _cast("torch.from_numpy(a).to(torch.float32)", ALIAS, caution=_NO_CAST),
    _cast("torch.from_numpy(a).float()", ALIAS, caution=_NO_CAST),
    _cast("torch.from_numpy(a.astype(np.float32))", inputs=NUMPY_CASTS, caution=_DATES),
    _cast("torch.tensor(a, dtype=torch.float32)", inputs=CASTS_COPIES_FIRST),
    _cast("torch.as_tensor(a, dtype=torch.float32)", ALIAS, caution=_NO_CAST),
    _from_bfloat16("t.float().numpy()", ALIAS, casts_to="float32", caution=_NO_CAST),
    _from_bfloat16(
        "t.view(torch.int16).numpy()",
        ALIAS,
        casts_to="int16",
        inputs=_but(
            DETACHED,
            {Does.WRONG: ["complex", "float8", "quantized"], "NotImplementedError": ["sparse"]},
        ),
        view=True,
        hazard=(
            "the bits of the bfloat16 numbers, not their values: view them as ml_dtypes.bfloat16"
        ),
    ),
    # To 16 bits: which of the two casts faster
    _to_float16("torch.from_numpy(a).half()", ALIAS, caution=_NO_CAST_TO_16),
    _to_float16("torch.from_numpy(a).to(torch.float16)", ALIAS, caution=_NO_CAST_TO_16),
    _to_float16(
        "torch.from_numpy(a.astype(np.float16))",
        inputs=NUMPY_CASTS_TO_16,
        caution=_INFINITE_AND_WARNS,
    ),
    _to_float16(
        "torch.tensor(a, dtype=torch.float16)", inputs=CASTS_COPIES_FIRST, caution=_INFINITE
    ),
    _to_float16("torch.as_tensor(a, dtype=torch.float16)", ALIAS, caution=_NO_CAST_TO_16),
    _to_bfloat16("torch.from_numpy(a).bfloat16()"),
    _to_bfloat16("torch.from_numpy(a).to(torch.bfloat16)"),
    _to_bfloat16("torch.tensor(a, dtype=torch.bfloat16)", inputs=CASTS_COPIES_FIRST),
    _to_bfloat16("torch.as_tensor(a, dtype=torch.bfloat16)"),
    _numpy_float16("t.half().numpy()", ALIAS, caution=_NO_CAST_TO_16),
    _numpy_float16("t.to(torch.float16).numpy()", ALIAS, caution=_NO_CAST_TO_16),
    _numpy_float16(
        "t.numpy().astype(np.float16)",
        inputs=ASTYPE,
        refuses=NO_BFLOAT16,
        caution=_INFINITE_AND_WARNS,
    ),
    # Layout: routes that matter where the source is not contiguous
    _to_torch(
        "torch.from_numpy(a).contiguous()",
        ALIAS,
        copies=(*NOT_CONTIGUOUS, "broadcast"),
        families=(LAYOUT,),
    ),
    _to_torch(
        "torch.from_numpy(np.ascontiguousarray(a))",
        ALIAS,
        inputs=_but(FROM_NUMPY, {Does.WORKS: ["broadcast", "negative strides", "record field"]}),
        copies=(*NOT_CONTIGUOUS, "broadcast", "negative strides", "record field"),
        families=(LAYOUT,),
        hazard=_NEVER_0D,
    ),
    _to_numpy(
        "t.contiguous().numpy()",
        ALIAS,
        inputs=DENSE,
        copies=(*NOT_DENSE, "negative view"),
        families=(LAYOUT,),
    ),
    _to_numpy(
        "np.ascontiguousarray(t.numpy())",
        ALIAS,
        copies=NOT_DENSE,
        families=(LAYOUT,),
        hazard=_NEVER_0D,
    ),
    # Many small arrays, nested containers
    _batch(
        "torch.tensor(arrays)",
        per_element=True,
        hazard="converts element by element and warns once a process",
    ),
    _batch("torch.from_numpy(np.stack(arrays))"),
    _batch("torch.stack([torch.from_numpy(x) for x in arrays])"),
    _batch("torch.tensor(np.array(arrays))"),
    _batch("torch.from_numpy(np.array(arrays))"),
    _batch("torch.utils.data.default_collate(arrays)", needs="torch>=1.11"),
    _stack("torch.stack(tensors).numpy()"),
    _stack("np.stack([t.numpy() for t in tensors])"),
    _stack("np.stack(tensors)"),
    _stack(
        "np.array(tensors)",
        needs="numpy>=1.25",
        caution="before NumPy 1.25 it gives an array of objects, or raises",
    ),
    Route("map_tree(torch.Tensor.numpy, tree)", ALIAS, TORCH_TO_NUMPY, families=(TREES,)),
    Route("map_tree(torch.from_numpy, tree)", ALIAS, NUMPY_TO_TORCH, families=(TREES,)),
    # Files
    _read_only(
        "torch.from_numpy(np.memmap(path, dtype=np.float32, mode='r'))",
        inputs={**MAPPED_RAW, **KILLED},
    ),
    _mapped_raw("torch.from_numpy(np.memmap(path, dtype=np.float32, mode='c'))"),
    _mapped_raw(
        "torch.from_numpy(np.memmap(path, dtype=np.float32, mode='r+'))",
        ALIAS,
        caution=_WRITES_THROUGH,
    ),
    _read_only("torch.from_numpy(np.load(path, mmap_mode='r'))", inputs={**MAPPED, **KILLED}),
    _from_file("torch.from_numpy(np.load(path, mmap_mode='c'))", inputs=MAPPED),
    _from_file(
        "torch.from_numpy(np.load(path, mmap_mode='r+'))",
        ALIAS,
        inputs={**MAPPED, "cut short": Does.EXTENDS},
        hazard=(
            f"{_WRITES_THROUGH}, "
            "and one that is too short is made as long as its header says, with zeros"
        ),
    ),
    _from_file("torch.from_file(path, size=size, dtype=torch.float32)", inputs=FROM_FILE),
    _from_file(
        "torch.from_file(path, shared=True, size=size, dtype=torch.float32)",
        ALIAS,
        inputs=_but(MAPPED, {Does.EXTENDS: ["missing", "cut short"]}),
        hazard=_MAKES_A_FILE,
    ),
    _from_file(
        "torch.load(path, mmap=True, weights_only=True)",
        inputs={**MAPPED, "cut short": "OSError"},
        needs="torch>=2.1",
    ),
    _from_file(
        "torch.from_numpy(np.fromfile(path, dtype=np.float32))",
        inputs={**READ, "cut short": Does.FEWER},
    ),
    _from_file("torch.from_numpy(np.load(path))", inputs=READ),
    _from_file("torch.load(path, weights_only=True)", inputs={**READ, "cut short": "OSError"}),
    # Between processes
    _shared("np.copyto(block, a)", INTO),
    _shared(
        "torch.from_numpy(a).share_memory_()",
        COPY,
        caution=(
            "moves the tensor's memory, not that of arrays or tensors which shared it before: "
            "a stays where it is"
        ),
    ),
    _over_block("torch.from_numpy(np.ndarray(a.shape, a.dtype, buffer=memory.buf))"),
    _over_block("torch.frombuffer(memory.buf, dtype=dtype)"),
    _shared(
        "torch.from_numpy(np.frombuffer(memory.buf, dtype=a.dtype))",
        ALIAS,
        inputs={"closed in use": "BufferError"},
    ),
    _handed_over("connection.send(a)", COPY),
    _handed_over("connection.send(torch.from_numpy(a))", COPY),
    _handed_over(
        "connection.send(shared)",
        ALIAS,
        caution="what the worker writes shows here, too, and the other way round",
    ),
    _handed_over(
        "np.copyto(block, a); connection.send(None)",
        INTO,
        caution="wait for the answer before the next one",
    ),
    # Host to device
    _to_device("t.to(device)", inputs=MOVED),
    _in_flight("t.to(device, non_blocking=True)", inputs=MOVED, families=(TRANSFER, SUSTAINED)),
    _to_device("t.cuda()", inputs=MOVED, needs="cuda"),
    _to_device("d.copy_(t)", INTO, inputs=FILLED),
    _in_flight(
        "d.copy_(t, non_blocking=True)", INTO, inputs=FILLED, families=(TRANSFER, SUSTAINED)
    ),
    _early_to_device(
        "t.pin_memory().to(device, non_blocking=True)",
        host_memory=(PAGEABLE,),
        hazard=_PINS_EACH_CALL,
    ),
    _staged("s.copy_(t); d.copy_(s, non_blocking=True)"),
    _staged(
        "copy_in_chunks(d, t, stages)",
        needs="streams",
        hazard="the copy runs on a side stream: the current stream waits for it, the host does not",
    ),
    _to_device("torch.from_numpy(a).to(device)", array=True),
    _in_flight("torch.from_numpy(a).to(device, non_blocking=True)", array=True),
    _to_device("torch.tensor(a, device=device)", array=True),
    _to_device("torch.as_tensor(a, device=device)", array=True),
    _to_device("torch.asarray(a, device=device)", array=True),
    _to_device("d.copy_(torch.from_numpy(a))", INTO, array=True),
    _staged("s.numpy()[:] = a; d.copy_(s, non_blocking=True)", array=True),
    _to_device("t.to(device, torch.float32)", **CASTS),
    _in_flight("t.to(device, torch.float32, non_blocking=True)", caution=_CASTS_THERE, **CASTS),
    _to_device("t.float().to(device)", **CASTS),
    # the copy waits, and the cast is queued behind it
    _to_device("t.to(device).float()", non_blocking=True, **FROM_UINT8),
    _in_flight("t.to(device, non_blocking=True).float()", **FROM_UINT8),
    _to_device("t.to(device, torch.bfloat16)", **CASTS_TO_BFLOAT16),
    _to_device("t.bfloat16().to(device)", **CASTS_TO_BFLOAT16),
    # the copy waits, and the cast is queued behind it
    _to_device(
        "t.to(device).bfloat16()", non_blocking=True, caution=_CASTS_THERE, **CASTS_TO_BFLOAT16
    ),
    _in_flight(
        "t.to(device, torch.bfloat16, non_blocking=True)", caution=_CASTS_THERE, **CASTS_TO_BFLOAT16
    ),
    # .to keeps the strides of a transpose: its bytes cross in memory order. A row-major destination
    # has another order.
    _to_device("m.to(device)", families=(TRANSFER_LAYOUT,)),
    _in_flight("m.to(device, non_blocking=True)", families=(TRANSFER_LAYOUT,)),
    _to_device("d.copy_(m)", INTO, families=(TRANSFER_LAYOUT,), hazard=_TEMPORARY),
    _early_to_device(
        "d.copy_(m, non_blocking=True)", INTO, families=(TRANSFER_LAYOUT,), hazard=_TEMPORARY
    ),
    _to_device("m.contiguous().to(device)", families=(TRANSFER_LAYOUT,)),
    # Device to host
    _to_host("t.cpu()", inputs=MOVED),
    _to_host("t.to('cpu')", inputs=MOVED),
    _early_to_host("t.to('cpu', non_blocking=True)", COPY, inputs=MOVED, host_memory=(PINNED,)),
    _to_host("h.copy_(t)", INTO, inputs=FILLED, host_memory=HOSTS),
    _early_to_host("h.copy_(t, non_blocking=True)", INTO, inputs=FILLED, host_memory=HOSTS),
    _to_array("t.cpu().numpy()"),
    _to_array("t.to('cpu').numpy()"),
    _to_array("t.detach().cpu().numpy()", inputs=DETACHED),
    _to_array("t.cpu().detach().numpy()", inputs=DETACHED),
    _to_array("t.detach().to('cpu').numpy()", inputs=DETACHED),
    _to_array("t.cpu().data.numpy()", inputs=DETACHED, hazard=_LEGACY_DATA),
    _to_array("t.numpy(force=True)", inputs=DETACHED, needs="torch>=1.13"),
    _to_array(
        "t.cpu().numpy().copy()", hazard="t.cpu() is a copy already: this makes a second one"
    ),
    _to_array(
        "t.cpu().detach().numpy().copy()", inputs=DETACHED, hazard="t.cpu() is a copy already"
    ),
    _to_array("h.copy_(t).numpy()", INTO, host_memory=HOSTS, caution=_SHOWS_THE_BUFFER),
    _to_array(
        "buffers.start(t); buffers.read()",
        INTO,
        host_memory=(PINNED,),
        needs="streams",
        hazard=_NEXT_BUT_ONE,
    ),
    _to_host("t.item()", families=(SCALAR,), hazard="waits for all work queued on the stream"),
    _to_host(
        "t.cpu().numpy()[()]", families=(SCALAR,), hazard="waits for all work queued on the stream"
    ),
    _to_array("t.cpu().float().numpy()", casts_to="float32", families=(TRANSFER_BFLOAT16,)),
    _to_array(
        "t.float().cpu().numpy()",
        casts_to="float32",
        families=(TRANSFER_BFLOAT16,),
        caution=_CASTS_THERE,
    ),
    _to_host(
        "[x.item() for x in numbers]",
        families=(MANY,),
        casts_to="python",
        hazard="waits for the device at each",
    ),
    _to_host("torch.stack(numbers).tolist()", families=(MANY,), casts_to="python"),
    _to_host("map_tree(lambda x: x.cpu().numpy(), tree)", families=(DEVICE_TREES,)),
    _to_device("map_tree(lambda x: x.to(device), tree)", **TREES_THERE),
    _in_flight("map_tree(lambda x: x.to(device, non_blocking=True), tree)", **TREES_THERE),
    _to_device("[x.to(device) for x in tensors]", **MANY_THERE),
    _in_flight("[x.to(device, non_blocking=True) for x in tensors]", **MANY_THERE),
    _in_flight(
        "torch._foreach_copy_(ds, tensors, non_blocking=True)",
        INTO,
        needs="torch>=2.1",
        caution="a private function of torch, which may change without notice",
        **MANY_THERE,
    ),
    _early_to_device(
        "torch.cat(tensors, out=s); "
        "s.to(device, non_blocking=True).split([len(x) for x in tensors])",
        hazard=_WAIT_BEFORE_REFILL,
        **MANY_THERE,
    ),
)
_BY_NAME = {(route.expression, route.direction): route for route in ROUTES}


def select(family: str, direction: str | None = None) -> list[Route]:
    """Return the routes of a family, in catalogue order."""
    return [
        route
        for route in ROUTES
        if family in route.families and direction in (None, route.direction)
    ]


def expressions(family: str, direction: str | None = None) -> list[str]:
    """Return the expressions of a family's routes: the parameter ``route`` of its benchmarks."""
    return [route.expression for route in select(family, direction)]


def contracts_of(family: str, direction: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the contracts of a family's routes, by expression: ``contracts`` of its benchmarks."""
    return {route.expression: route.contract() for route in select(family, direction)}


def find(expression: str, direction: str) -> Route:
    """Return the route with this expression and direction; KeyError if the catalogue has none."""
    return _BY_NAME[expression, direction]
