"""The catalogue: every route with its contract. To add a route, add one entry here.

From an entry come the route's benchmark cells, its contract tests, its row in every table and its advice. A route is
the expression a user would write, over these names:

    a       a NumPy array             arrays  a list of NumPy arrays
    t       a CPU tensor              tree    a nested dict and list of tensors or arrays
    b       an existing buffer of the other kind, same shape and dtype
    dtype   the torch dtype of `a`

Contracts are those of the pinned toolchain; the ``semantics`` benchmarks measure them on every toolchain.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

NUMPY_TO_TORCH = "numpy→torch"
TORCH_TO_NUMPY = "torch→numpy"

ALIAS = "alias"  # the result shares the source's memory
COPY = "copy"  # the result is fresh memory
INTO = "into"  # the result is written into a buffer that already exists

CONVERSION = "conversion"
CASTING = "casting"
BFLOAT16 = "bfloat16"
LAYOUT = "layout"
COLD = "cold"
BATCHES = "batches"
TREES = "trees"
MAIN = (CONVERSION, LAYOUT, COLD)  # the routes people choose between, timed on every kind of source

# What a route does with an awkward source, beside the name of an exception
WORKS = "works"
WARNS = "works, warns once a process"
WRONG = "wrong values, silently"
ABORTS = "aborts the process"

# numpy→torch: what torch.from_numpy does, and everything that is built on it
FROM_NUMPY = {
    "read-only": WARNS,
    "negative strides": "ValueError",
    "byte-swapped": "ValueError",
    "structured": "TypeError",
    "object": "TypeError",
}
COPIES_FIRST = {**FROM_NUMPY, "read-only": WORKS}
NUMPY_COPIES_FIRST = {**COPIES_FIRST, "negative strides": WORKS}
DLPACK = {
    "read-only": WORKS,
    "negative strides": ABORTS,
    "byte-swapped": "BufferError",
    "structured": "BufferError",
    "object": "BufferError",
}
# torch→numpy: what Tensor.numpy does
RAISES = "RuntimeError"
DETACHES = "detaches"
NUMPY = {"requires grad": RAISES, "conjugate view": RAISES, "negative view": RAISES}
DETACHED = {**NUMPY, "requires grad": DETACHES}
# torch has bfloat16 and NumPy has not
NO_BFLOAT16 = {"bfloat16": "TypeError"}


@dataclass(frozen=True)
class Route:
    """One way to convert, written as the Python expression a user would write, and what it promises.

    expression    what is timed, tested, shown and pasted
    direction     numpy→torch or torch→numpy
    memory        alias, copy or into, where the dtype is kept; a cast always makes a copy, a view of the bits does not
    casts_to      dtype of every result; "python": what the numbers become by way of Python's; "": the source's own
    inputs        awkward source -> what happens: works, warns, an exception's name, ...
    refuses       dtype -> the exception it raises
    families      the benchmarks that time it
    needs         release it appeared in, such as "torch>=1.11"
    per_element   makes a Python object of every element: seconds where others take milliseconds
    hazard        one sentence that tables and advice show
    """

    expression: str
    direction: str
    memory: str
    casts_to: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    families: tuple[str, ...] = (CONVERSION,)
    needs: str = ""
    per_element: bool = False
    hazard: str = ""

    def result_dtype(self, dtype):
        """Name of the result's dtype for a source of ``dtype``."""
        if self.casts_to == "python":
            wide = self.direction == TORCH_TO_NUMPY  # torch makes its default dtypes, NumPy keeps Python's precision
            kinds = {"bool": "bool", "complex": "complex128" if wide else "complex64"}
            kinds.update(float="float64" if wide else "float32", int="int64")
            kind = re.sub(r"[^a-z].*", "", dtype).replace("uint", "int").replace("bfloat", "float")
            return kinds[kind]
        return self.casts_to or dtype

    def memory_for(self, dtype):
        """alias, copy or into for a source of ``dtype``."""
        kept = self.result_dtype(dtype) == dtype or BFLOAT16 in self.families
        return self.memory if kept or self.memory == INTO else COPY

    def contract(self):
        """The promises as plain data, for asv's benchmarks.json."""
        return asdict(self)


def _to_torch(expression, memory, inputs=FROM_NUMPY, **promises):
    return Route(expression, NUMPY_TO_TORCH, memory, inputs=inputs, **promises)


def _to_numpy(expression, memory, inputs=NUMPY, refuses=NO_BFLOAT16, **promises):
    return Route(expression, TORCH_TO_NUMPY, memory, inputs=inputs, refuses=refuses, **promises)


def _cast(expression, inputs=FROM_NUMPY, **promises):
    return Route(expression, NUMPY_TO_TORCH, COPY, "float32", inputs=inputs, families=(CASTING,), **promises)


_TENSOR_CLASS = (
    "always gives float32: a complex source loses its imaginary part; takes a 0-d array of integers for a size and "
    "gives that many uninitialised numbers"
)
_BY_ELEMENT = "makes a Python object of every element; an empty source loses its dtype"
_NEVER_0D = "gives a 0-d source one dimension"

ROUTES = (
    # NumPy to torch
    _to_torch("torch.from_numpy(a)", ALIAS, families=MAIN),
    _to_torch("torch.as_tensor(a)", ALIAS, families=MAIN),
    _to_torch(
        "torch.asarray(a)", ALIAS, families=MAIN, needs="torch>=1.11", hazard="copies a 0-d array, shares any other"
    ),
    _to_torch("torch.asarray(a, copy=True)", COPY, inputs=COPIES_FIRST, needs="torch>=1.11"),
    _to_torch("torch.tensor(a)", COPY, inputs=COPIES_FIRST, families=MAIN),
    _to_torch("torch.Tensor(a)", ALIAS, casts_to="float32", hazard=_TENSOR_CLASS),
    _to_torch("torch.FloatTensor(a)", ALIAS, casts_to="float32", hazard=_TENSOR_CLASS),
    _to_torch("torch.from_numpy(a).clone()", COPY, families=MAIN),
    _to_torch("torch.from_numpy(a.copy())", COPY, inputs=NUMPY_COPIES_FIRST, families=MAIN),
    _to_torch(
        "torch.from_dlpack(a)",
        ALIAS,
        inputs=DLPACK,
        families=MAIN,
        needs="torch>=1.10",
        hazard="shares a read-only array without a warning, and aborts the process on negative strides",
    ),
    _to_torch(
        "torch.from_dlpack(a, copy=True)",
        COPY,
        inputs={**DLPACK, "negative strides": WORKS},
        needs="torch>=2.9 numpy>=2.1",
    ),
    _to_torch(
        "torch.frombuffer(a, dtype=dtype)",
        ALIAS,
        inputs={
            "read-only": WARNS,
            "negative strides": "RuntimeError",
            "byte-swapped": WRONG,
            "structured": WRONG,
            "object": WRONG,
        },
        needs="torch>=1.10",
        hazard="reinterprets the bytes whatever they are, and flattens the shape",
    ),
    _to_torch("torch.autograd.Variable(torch.from_numpy(a))", ALIAS),
    _to_torch("b.copy_(torch.from_numpy(a))", INTO, families=MAIN),
    _to_torch(
        "np.copyto(b.numpy(), a)",
        INTO,
        inputs={
            "read-only": WORKS,
            "negative strides": WORKS,
            "byte-swapped": WORKS,
            "structured": "TypeError",
            "object": "TypeError",
        },
    ),
    _to_torch(
        "torch.tensor(a.tolist())",
        COPY,
        casts_to="python",
        inputs={
            "read-only": WORKS,
            "negative strides": WORKS,
            "byte-swapped": WORKS,
            "structured": WRONG,
            "object": "TypeError",
        },
        per_element=True,
        hazard=_BY_ELEMENT,
    ),
    # torch to NumPy
    _to_numpy("t.numpy()", ALIAS, families=MAIN),
    _to_numpy(
        "t.numpy(force=True)",
        ALIAS,
        inputs={"requires grad": DETACHES, "conjugate view": WORKS, "negative view": WORKS},
        needs="torch>=1.13",
        hazard="shares memory or copies, depending on the tensor",
    ),
    _to_numpy("t.detach().numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.data.numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.cpu().numpy()", ALIAS),
    _to_numpy("t.to('cpu').numpy()", ALIAS),
    _to_numpy("t.cpu().data.numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.data.cpu().numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.detach().cpu().numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.cpu().detach().numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.detach().to('cpu').numpy()", ALIAS, inputs=DETACHED),
    _to_numpy("t.numpy().copy()", COPY, families=MAIN),
    _to_numpy("t.cpu().numpy().copy()", COPY),
    _to_numpy("t.cpu().detach().numpy().copy()", COPY, inputs=DETACHED),
    _to_numpy(
        "t.clone().numpy()",
        COPY,
        inputs={"requires grad": RAISES, "conjugate view": WORKS, "negative view": WORKS},
        families=MAIN,
    ),
    _to_numpy("np.asarray(t)", ALIAS, families=MAIN),
    _to_numpy("np.array(t)", COPY, hazard="warns on NumPy 2: Tensor.__array__ takes no copy argument"),
    _to_numpy("t.__array__()", ALIAS),
    _to_numpy(
        "np.from_dlpack(t)",
        ALIAS,
        inputs={"requires grad": "BufferError", "conjugate view": "BufferError", "negative view": WRONG},
        refuses={"bfloat16": "RuntimeError"},
        families=MAIN,
        needs="numpy>=1.23",
        hazard="a negative view (such as torch.imag of a conjugate) gets the wrong sign",
    ),
    _to_numpy("np.copyto(b, t.numpy())", INTO, families=MAIN),
    _to_numpy(
        "np.array(t.tolist())",
        COPY,
        casts_to="python",
        inputs={"requires grad": DETACHES, "conjugate view": WORKS, "negative view": WORKS},
        refuses={},
        per_element=True,
        hazard=_BY_ELEMENT,
    ),
    # Casting on the way
    _cast("torch.from_numpy(a).type(torch.float32)"),
    _cast("torch.from_numpy(a).to(torch.float32)"),
    _cast("torch.from_numpy(a).float()"),
    _cast(
        "torch.from_numpy(a.astype(np.float32))",
        inputs={**NUMPY_COPIES_FIRST, "byte-swapped": WORKS, "object": "ValueError"},
    ),
    _cast("torch.tensor(a, dtype=torch.float32)", inputs=COPIES_FIRST),
    _cast("torch.as_tensor(a, dtype=torch.float32)"),
    _to_numpy(
        "t.float().numpy()",
        COPY,
        inputs={"requires grad": RAISES},
        refuses={},
        casts_to="float32",
        families=(BFLOAT16,),
    ),
    _to_numpy(
        "t.view(torch.int16).numpy()",
        ALIAS,
        inputs={"requires grad": DETACHES},
        refuses={},
        casts_to="int16",
        families=(BFLOAT16,),
        hazard="the bits of the bfloat16 numbers, not their values: view them as ml_dtypes.bfloat16",
    ),
    # Layout: routes that matter where the source is not contiguous
    _to_torch("torch.from_numpy(a).contiguous()", ALIAS, families=(LAYOUT,)),
    _to_torch(
        "torch.from_numpy(np.ascontiguousarray(a))",
        ALIAS,
        inputs={**FROM_NUMPY, "negative strides": WORKS},
        families=(LAYOUT,),
        hazard=_NEVER_0D,
    ),
    # a negative view is every second number of a complex tensor, so contiguous() copies it and applies the sign
    _to_numpy("t.contiguous().numpy()", ALIAS, inputs={**NUMPY, "negative view": WORKS}, families=(LAYOUT,)),
    _to_numpy("np.ascontiguousarray(t.numpy())", ALIAS, families=(LAYOUT,), hazard=_NEVER_0D),
    # Many small arrays, nested containers
    Route(
        "torch.tensor(arrays)",
        NUMPY_TO_TORCH,
        COPY,
        families=(BATCHES,),
        per_element=True,
        hazard="converts element by element and warns once a process",
    ),
    Route("torch.from_numpy(np.stack(arrays))", NUMPY_TO_TORCH, COPY, families=(BATCHES,)),
    Route("torch.stack([torch.from_numpy(x) for x in arrays])", NUMPY_TO_TORCH, COPY, families=(BATCHES,)),
    Route("torch.tensor(np.array(arrays))", NUMPY_TO_TORCH, COPY, families=(BATCHES,)),
    Route("map_tree(torch.Tensor.numpy, tree)", TORCH_TO_NUMPY, ALIAS, families=(TREES,)),
    Route("map_tree(torch.from_numpy, tree)", NUMPY_TO_TORCH, ALIAS, families=(TREES,)),
)


def select(family, direction=None):
    """The routes of a family, in catalogue order."""
    return [route for route in ROUTES if family in route.families and direction in (None, route.direction)]


def find(expression, direction):
    """The route of that expression and direction; KeyError if the catalogue has none."""
    for route in ROUTES:
        if (route.expression, route.direction) == (expression, direction):
            return route
    raise KeyError(f"no route {expression!r} {direction}")
