"""The catalogue: every route with its contract. To add a route, add one entry here.

An entry defines the route's benchmark cells, its contract tests, its row in every table and its
advice. A route is the expression a user would write, over these names:

    a       a NumPy array             arrays  a list of NumPy arrays
    t       a CPU tensor              tensors a list of CPU tensors
    tree    a nested dict and list of tensors or arrays
    values  a list of Python numbers, or of such lists
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

Contracts hold for the pinned toolchain; ``semantics`` benchmarks measure them on every one.
"""

from functools import partial

from .contracts import (  # noqa: F401  families take some as routes.X
    ALIAS,
    CONVERSION,
    COPY,
    DEVICE_TO_HOST,
    ENDS,
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
    Promises,
    Route,
)
from .list_routes import LIST_ROUTES
from .outcomes import (  # noqa: F401  families take some as routes.X
    ALL_DTYPES,
    ASTYPE,
    BATCHES,
    BFLOAT16,
    BOTH_DEFAULTS,
    BUFFERED_BATCHES,
    CASTING,
    CASTS_COPIES_FIRST,
    CASTS_FROM_NUMPY,
    CASTS_TO_BUFFER,
    CASTS_WITHIN_KIND,
    COLD,
    CONTIGUOUS_FIRST,
    COPIES_FIRST,
    COPYTO,
    DENSE,
    DETACHED,
    DEVICE,
    DEVICE_TREES,
    DLPACK,
    DLPACK_COPIES_FIRST,
    FILES,
    FROM_NUMPY,
    HANDED_OVER,
    INTO_ARRAY,
    LAYOUT,
    LEGACY_DATA,
    LISTED,
    MAIN,
    MANY,
    NO_BFLOAT16,
    NUMPY,
    NUMPY_CASTS,
    NUMPY_CASTS_TO_16,
    NUMPY_COPIES_FIRST,
    PADDED_BATCHES,
    PYTHON_LISTS,
    RAISES,
    RESOLVED,
    SCALAR,
    SHARED,
    STACKS,
    SUSTAINED,
    TO_BFLOAT16,
    TO_DLPACK,
    TO_FLOAT16,
    TORCH_CASTS,
    TORCH_CASTS_TO_16,
    TORCH_LISTED,
    TRANSFER,
    TRANSFER_BFLOAT16,
    TRANSFER_CASTING,
    TRANSFER_LAYOUT,
    TRANSFER_UINT8,
    TREES,
    by_source,
    replaced,
)
from .transfer_routes import (  # noqa: F401  families take some as routes.X
    ANY_HOST,
    HOSTS,
    TRANSFER_ROUTES,
)

DLPACK_COPIES = "torch>=2.9 numpy>=2.1"  # on demand
# Layouts copied by routes with contiguous results: the reason to call them
NOT_CONTIGUOUS = ("strided", "transposed", "fortran", "power of two")
NOT_DENSE = (*NOT_CONTIGUOUS, "expanded")
# Conversions through Python numbers
_OBJECTS = "makes a Python object of every element; an empty source loses its dtype"
BY_ELEMENT: Promises = {"casts_to": "python", "per_element": True, "hazard": _OBJECTS}
_TENSOR_CLASS = (
    "shares the memory of a source that has this dtype already, and a complex one loses its "
    "imaginary part; takes a 0-d array of integers for a size and gives that many uninitialised "
    "numbers"
)
_DATES = (
    "takes dates for counts of their unit, rounded to float32 (NaT for −9.2e18), and text for "
    "numbers, where other routes raise"
)
_HIDDEN_FLIP = "raises for negative strides along an axis of length 1, of which it makes no copy"
_NO_CAST = "shares the memory of a source that is float32 already"
_INFINITE = "numbers beyond 65,504 become infinite"
_NO_CAST_TO_16 = f"{_INFINITE}; shares the memory of a source that is float16 already"
_INFINITE_AND_WARNS = f"{_INFINITE}, of which NumPy warns from 1.24 on"
_PERHAPS_A_COPY = "shares memory or copies, depending on the tensor"
_NEVER_0D = "gives a 0-d source one dimension"
_LEGACY_VARIABLE = "legacy: every tensor is a Variable since torch 0.4, and the call only detaches"
# Contract fields that several routes share; an entry may override them
_to_torch = partial(Route, direction=NUMPY_TO_TORCH, inputs=FROM_NUMPY)
_asarray = partial(_to_torch, memory=ALIAS, copies=("0-d",), follows=DEVICE, needs="torch>=1.11")
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

ROUTES = (
    # NumPy to torch
    _to_torch("torch.from_numpy(a)", ALIAS, families=MAIN),
    _to_torch("torch.as_tensor(a)", ALIAS, follows=DEVICE, families=MAIN),
    _asarray("torch.asarray(a)", families=MAIN, hazard="copies a 0-d array, shares any other"),
    _asarray(
        "torch.asarray(a, copy=False)",
        hazard=(
            "copies a 0-d array all the same, and raises where any other would have to be copied, "
            "as under torch.set_default_device"
        ),
    ),
    _to_torch(
        "torch.asarray(a, copy=True)",
        COPY,
        inputs={**COPIES_FIRST, "read-only, 0-d": Does.WARNS},
        follows=DEVICE,
        needs="torch>=1.11",
    ),
    _to_torch("torch.tensor(a)", COPY, inputs=COPIES_FIRST, follows=DEVICE, families=MAIN),
    _to_torch(
        "b.new_tensor(a)",
        COPY,
        inputs=COPIES_FIRST,
        caution="gives the dtype of b, whatever that of a",
    ),
    _cast(
        "torch.Tensor(a)",
        ALIAS,
        follows=("dtype",),
        families=(CONVERSION,),
        hazard=f"gives torch's default dtype, float32 unless set: {_TENSOR_CLASS}",
    ),
    _cast(
        "torch.FloatTensor(a)",
        ALIAS,
        families=(CONVERSION,),
        hazard=f"always gives float32: {_TENSOR_CLASS}",
    ),
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
        hazard=f"shares a read-only array without a warning; {ENDS}: use torch.from_numpy(a)",
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
            **by_source({Does.WRONG: FROM_NUMPY}),
            **by_source({Does.WORKS: ["complex", "ml_dtypes", "ulonglong", "unaligned"]}),
            **by_source({RAISES: ["broadcast", "negative strides", "record field", "strided"]}),
            **{"empty": "ValueError", "masked": Does.UNMASKED, "read-only": Does.WARNS},
            **by_source({Does.WORKS: ["negative strides, length 1", "record field, length 1"]}),
        },
        needs="torch>=1.10",
        hazard="reinterprets the bytes whatever they are, and flattens the shape",
    ),
    _to_torch(
        "torch.utils.data.default_convert(a)",
        ALIAS,
        inputs=replaced(
            FROM_NUMPY,
            {Does.UNCONVERTED: ["masked", "object", "object of numbers", "strings"]},
        ),
        follows=DEVICE,
        needs="torch>=1.11",
        hazard=(
            "gives back what it does not know, "
            "such as masked arrays and those of objects or strings"
        ),
    ),
    _to_torch("torch.autograd.Variable(torch.from_numpy(a))", ALIAS, hazard=_LEGACY_VARIABLE),
    _to_torch("b.copy_(torch.from_numpy(a))", INTO, families=MAIN, caution=CASTS_TO_BUFFER),
    _to_torch(
        "np.copyto(b.numpy(), a)",
        INTO,
        inputs=COPYTO,
        memmove=True,
        caution=CASTS_WITHIN_KIND,
    ),
    _to_torch("torch.tensor(a.tolist())", COPY, inputs=LISTED, follows=BOTH_DEFAULTS, **BY_ELEMENT),
    _to_torch(
        "torch.as_tensor(a.tolist())", COPY, inputs=LISTED, follows=BOTH_DEFAULTS, **BY_ELEMENT
    ),
    # torch to NumPy
    _to_numpy("t.numpy()", ALIAS, families=MAIN),
    _resolving(
        "t.numpy(force=True)",
        inputs={**RESOLVED, "requires grad": Does.DETACHES},
        needs="torch>=1.13",
    ),
    _resolving("t.resolve_conj().resolve_neg().numpy()", inputs=RESOLVED, needs="torch>=1.10"),
    _to_numpy("t.detach().numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.data.numpy()", ALIAS, inputs=DETACHED, hazard=LEGACY_DATA),
    _to_numpy("t.cpu().numpy()", ALIAS),
    _to_numpy("t.to('cpu').numpy()", ALIAS),
    _to_numpy("t.cpu().data.numpy()", ALIAS, inputs=DETACHED, hazard=LEGACY_DATA),
    _to_numpy("t.data.cpu().numpy()", ALIAS, inputs=DETACHED, hazard=LEGACY_DATA),
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
        "np.asarray(t, copy=False)",
        ALIAS,
        inputs=dict.fromkeys([*NUMPY, "complex", "empty", "expanded", "strided"], "ValueError"),
        refuses=dict.fromkeys(ALL_DTYPES, "ValueError"),
        needs="numpy>=2.0",
        hazard="always raises, as Tensor.__array__ takes no copy argument: use np.asarray(t)",
    ),
    _to_numpy(
        "np.array(t)",
        COPY,
        inputs=replaced(NUMPY, {Does.WARNS_EACH_TIME: ["complex", "empty", "expanded", "strided"]}),
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
        hazard=(
            "a negative view (such as torch.imag of a conjugate) gets the wrong sign, "
            "and numbers of less than 8 bits are misread"
        ),
    ),
    _to_dlpack(
        "np.from_dlpack(t, copy=True)",
        inputs={**TO_DLPACK, "negative view": Does.WORKS},
        needs=DLPACK_COPIES,
    ),
    _to_numpy(
        "np.copyto(b, t.numpy())",
        INTO,
        families=MAIN,
        memmove=True,
        caution=CASTS_WITHIN_KIND,
    ),
    _to_numpy(
        "torch.from_numpy(b).copy_(t)",
        INTO,
        inputs=INTO_ARRAY,
        families=MAIN,
        caution=CASTS_TO_BUFFER,
    ),
    _to_numpy("np.array(t.tolist())", COPY, inputs=TORCH_LISTED, refuses={}, **BY_ELEMENT),
    # Casting on the way
    _cast("torch.from_numpy(a).type(torch.float32)", ALIAS, caution=_NO_CAST),
    _cast("torch.from_numpy(a).to(torch.float32)", ALIAS, caution=_NO_CAST),
    _cast("torch.from_numpy(a).float()", ALIAS, caution=_NO_CAST),
    _cast("torch.from_numpy(a.astype(np.float32))", inputs=NUMPY_CASTS, caution=_DATES),
    _cast("torch.tensor(a, dtype=torch.float32)", inputs=CASTS_COPIES_FIRST, follows=DEVICE),
    _cast("torch.as_tensor(a, dtype=torch.float32)", ALIAS, follows=DEVICE, caution=_NO_CAST),
    _from_bfloat16("t.float().numpy()", ALIAS, casts_to="float32", caution=_NO_CAST),
    _from_bfloat16(
        "t.view(torch.int16).numpy()",
        ALIAS,
        casts_to="int16",
        inputs=replaced(
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
        "torch.tensor(a, dtype=torch.float16)",
        inputs=CASTS_COPIES_FIRST,
        follows=DEVICE,
        caution=_INFINITE,
    ),
    _to_float16(
        "torch.as_tensor(a, dtype=torch.float16)",
        ALIAS,
        follows=DEVICE,
        caution=_NO_CAST_TO_16,
    ),
    _to_bfloat16("torch.from_numpy(a).bfloat16()"),
    _to_bfloat16("torch.from_numpy(a).to(torch.bfloat16)"),
    _to_bfloat16(
        "torch.tensor(a, dtype=torch.bfloat16)", inputs=CASTS_COPIES_FIRST, follows=DEVICE
    ),
    _to_bfloat16("torch.as_tensor(a, dtype=torch.bfloat16)", follows=DEVICE),
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
        inputs=CONTIGUOUS_FIRST,
        copies=(*NOT_CONTIGUOUS, "broadcast", "negative strides", "record field"),
        families=(LAYOUT,),
        hazard=f"{_NEVER_0D}; {_HIDDEN_FLIP}",
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
    *LIST_ROUTES,
    *TRANSFER_ROUTES,
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


def contracts_of(family: str, direction: str | None = None) -> dict[str, dict[str, object]]:
    """Return the contracts of a family's routes, by expression: ``contracts`` of its benchmarks."""
    return {route.expression: route.contract() for route in select(family, direction)}


def find(expression: str, direction: str) -> Route:
    """Return the route with this expression and direction; KeyError if the catalogue has none."""
    return _BY_NAME[expression, direction]
