"""Every route keeps its contract on the pinned toolchain: values, memory, dtype, behaviour on unusual input.

The catalogue says what to expect, so a new entry is tested without a line here.
"""

import builtins
import os
import warnings

import drawing
import elsewhere
import numpy as np
import pytest
import torch
from autograd import RECORDED, grad_outcome
from conftest import possible
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import SOURCES, plain
from inputs import _shares as shares

from benchmarks import contracts, routes, semantics
from benchmarks.core import sources

pytestmark = pytest.mark.filterwarnings("ignore")  # the tests of awkward sources look at warnings


@pytest.fixture(autouse=True)
def this_toolchain(request):
    """Skip tests that this toolchain does not support (make test-oldest, make test-newest); the pinned one does."""
    given = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    with possible():
        sources.require(given["route"].needs if "route" in given else "")
    dtype = "float8_e4m3fn" if given.get("kind") == "float8" else given.get("dtype", "float32")
    if not hasattr(torch, dtype):
        pytest.skip(f"torch {torch.__version__} has no {dtype}")
    reason = elsewhere.not_so(request.node.name)
    if reason:
        request.applymarker(pytest.mark.xfail(strict=True, reason=f"torch {torch.__version__}: {reason}"))


NBYTES = 1024
BARE = {"np": np, "torch": torch}
ON_HOST = (routes.NUMPY_TO_TORCH, routes.TORCH_TO_NUMPY)
# routes whose source is not one array or tensor
MANY = (
    *(routes.BATCHES, routes.BUFFERED_BATCHES, routes.PADDED_BATCHES, routes.PYTHON_LISTS, routes.STACKS, routes.TREES),
)
ONE = [route for route in routes.ROUTES if route.direction in ON_HOST and not set(route.families) & set(MANY)]


def dtypes_of(route):
    """The dtypes that a route accepts: usually all that it does not refuse."""
    if routes.BFLOAT16 in route.families:
        return ["bfloat16"] if route.view else ["bfloat16", route.casts_to]
    # NumPy has no bfloat16; a Python int from 2**63 on is no int64: torch.tensor raises, np.array gives uint64
    lacking = {"bfloat16": route.direction == routes.NUMPY_TO_TORCH, "uint64": route.casts_to == "python"}
    return [name for name in semantics.DTYPES if not lacking.get(name) and name not in route.refuses]


def cases(kinds, chosen=ONE):
    """One pytest parameter for each route and each of its kinds."""
    return [pytest.param(route, kind, id=f"{route.expression}-{kind}") for route in chosen for kind in kinds(route)]


def namespace(route, source):
    """The names that the expression uses; a buffer to write into is zeroed."""
    names = sources.namespace(route, source)
    if "b" in names:
        names["b"][...] = 0
    return names


def same(result, wanted):
    """The same numbers, dtype and shape (NumPy 1.23 knows no strict=True)."""
    np.testing.assert_array_equal(result, wanted)
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)


def to_bfloat16(values):
    """Round to the nearest bfloat16, ties to even. The result is float32, since NumPy has no bfloat16."""
    bits = values.astype("float32").view("uint32")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view("float32")


def expected(route, source):
    """The numbers that the result should hold, worked out by NumPy alone."""
    if route.view:
        return source.view(torch.int16).numpy()
    values = plain(source)
    wanted = route.result_dtype(semantics.dtype_name(source))
    if values.dtype.kind == "c" and not wanted.startswith("complex"):
        values = values.real
    with np.errstate(over="ignore"):
        return to_bfloat16(values) if wanted == "bfloat16" else values.astype(wanted)


@pytest.mark.parametrize(("route", "dtype"), cases(dtypes_of))
def test_a_route_keeps_values_dtype_and_memory(route, dtype):
    """Values, dtype, memory: a write to either side shows in the other if the route aliases, and in neither if not."""
    source = sources.source(route, dtype, NBYTES)
    names = namespace(route, source)
    buffer = sources.address(names.get("b", source))
    result = semantics.result_of(route, names)
    assert route.memory != routes.INTO or sources.address(result) == buffer, "it wrote into another"
    same(plain(result), expected(route, source))
    assert isinstance(result, torch.Tensor if route.direction == routes.NUMPY_TO_TORCH else np.ndarray)
    assert semantics.dtype_name(result) == route.result_dtype(dtype)
    assert semantics.shares_memory(source, result) == (route.memory_for(dtype) == routes.ALIAS)


@pytest.mark.parametrize(("route", "dtype"), cases(lambda route: route.refuses))
def test_a_refused_dtype_raises(route, dtype):
    """A refused dtype raises the declared error, so a release that starts to convert it fails this test."""
    source = sources.tensor(dtype, NBYTES)
    with pytest.raises(Exception) as raised:
        # the route's buffer has the source's dtype, which NumPy may not know
        buffer = {"b": np.zeros(len(source), dtype)} if route.memory == routes.INTO else {}
        semantics.result_of(route, {"np": np, "torch": torch, "t": source, **buffer})
    assert raised.type.__name__ == elsewhere.promised(route, dtype, route.refuses[dtype])


# Routes that warn on ordinary sources: np.array(t) on each call (NumPy 2); torch, on a list of arrays, once per process
LOUD = {
    "np.array(t)": routes.Does.WARNS_EACH_TIME,
    "torch.tensor(arrays)": routes.Does.WARNS,
    "np.asarray(t, copy=False)": "ValueError",
}
KINDS = [
    *cases(lambda route: ["ordinary", *route.inputs], ONE),
    *cases(lambda route: ["ordinary"], routes.select(routes.BATCHES)),
]


@pytest.mark.parametrize(("route", "kind"), KINDS)
def test_an_unusual_source_does_what_the_contract_says(route, kind, isolated):
    """Unusual sources behave as the contract says; an alias route copies only the sources declared as copied."""
    if kind == "ml_dtypes":
        pytest.importorskip(kind)
    ordinary = LOUD.get(route.expression, routes.Does.WORKS)
    promised = elsewhere.promised(route, kind, route.inputs.get(kind, ordinary))
    if promised == contracts.ENDS:
        pytest.skip(promised)
    does, *converted = isolated("outcome", route.expression, route.direction, kind)
    assert does == promised
    if converted:
        dtype, shares = converted
        layout = "strided" if kind.endswith(", strided") else kind
        may = route.memory == routes.ALIAS and kind != "empty"  # an empty array has no memory to share
        assert shares == (may and route.memory_for(dtype, layout) == routes.ALIAS)


REPEATED = {routes.NUMPY_TO_TORCH: "broadcast", routes.TORCH_TO_NUMPY: "expanded"}


def repeated(route):
    """A source whose elements are all one number in memory."""
    return SOURCES[route.direction][REPEATED[route.direction]](route)


def aliases_repeated(route):
    kind = REPEATED[route.direction]
    memory = route.memory_for(semantics.dtype_name(repeated(route)), kind)
    return memory == routes.ALIAS and route.inputs[kind] in (routes.Does.WORKS, routes.Does.WARNS)


@pytest.mark.parametrize("route", list(filter(aliases_repeated, ONE)), ids=lambda r: r.expression)
def test_a_write_to_an_alias_of_one_repeated_number_shows_in_all(route):
    source = repeated(route)  # an array that is not writable: the tensor writes to it all the same
    result = semantics.result_of(route, namespace(route, source))
    result[0] = 7
    assert result.tolist() == [7] * 8
    assert route.view or plain(source).tolist() == [7] * 8


# Sharing ------------------------------------------------------------------------------------------------------------


OWNED = [r for r in ONE if r.owner and r.memory_for("float32") == routes.ALIAS and not r.view and dtypes_of(r)]


@pytest.mark.parametrize("route", OWNED, ids=lambda r: r.expression)
def test_an_alias_holds_until_torch_moves_its_memory(route):
    """Looks at addresses and versions alone: what torch has moved is freed, and is not read."""
    source = sources.source(route, "float32", NBYTES)
    result = semantics.result_of(route, namespace(route, source))
    array, tensor = (source, result) if route.owner == "numpy" else (result, source)
    before, version = sources.address(array), tensor._version
    array[...] = 7
    assert tensor._version == version, "autograd sees no write to the array"
    tensor.detach().add_(1)
    assert tensor._version == version + 1 and (array == 8).all()
    if "from_dlpack" not in route.expression:
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.resize_(2 * NBYTES)
    tensor.share_memory_()
    assert sources.address(tensor) != before, "torch moved the memory"
    assert sources.address(array) == before
    if route.owner == "numpy":
        assert (array == 8).all(), "NumPy's memory stays"


def test_dlpack_takes_bfloat16_once_a_package_registers_it(isolated):
    """Without, test_a_refused_dtype_raises has the exception."""
    pytest.importorskip("ml_dtypes")
    if not hasattr(getattr(np, "dtypes", None), "register_dlpack_dtype"):
        pytest.skip(f"NumPy {np.__version__}: dtypes can be registered from 2.5 on")
    assert isolated("registered") == ["bfloat16", [0, 1, 2, 3], True, "torch.bfloat16", True]


def test_an_array_by_dlpack_locks_no_storage():
    tensor = torch.ones(4)
    array = np.from_dlpack(tensor)
    before = sources.address(array)
    tensor.resize_(NBYTES)
    assert sources.address(tensor) != before == sources.address(array)


# torch's default -> how to set it, its usual value, another one
DEFAULTS = {
    "dtype": (torch.set_default_dtype, torch.float32, torch.float64),
    "device": (getattr(torch, "set_default_device", None), None, "meta"),  # from torch 2.0 on
}


@pytest.mark.parametrize("default", DEFAULTS)
@pytest.mark.parametrize(
    "route", [*ONE, *routes.select(routes.BATCHES), *routes.select(routes.PYTHON_LISTS)], ids=lambda r: r.expression
)
def test_only_declared_routes_follow_a_default_of_torch(route, default):
    """The contract names the defaults that change dtype or device of a route's result, or make it raise."""
    set_default, usual, other = DEFAULTS[default]
    if set_default is None or not dtypes_of(route):
        pytest.skip("torch has no such default, or the route always raises")
    a = np.ones(2, "float32")
    to_torch = route.direction == routes.NUMPY_TO_TORCH
    buffer = torch.zeros(2) if to_torch else a.copy()
    names = {**BARE, "a": a, "t": torch.ones(2), "dtype": torch.float32, "arrays": [a, a], "b": buffer, "values": [1.5]}
    found = []
    for value in (usual, other):
        set_default(value)
        try:
            result = semantics.result_of(route, names)
            found.append((str(result.dtype), str(getattr(result, "device", "cpu"))))
        except (RuntimeError, ValueError) as error:
            found.append(type(error).__name__)
        finally:
            set_default(usual)
    assert (found[0] != found[1]) == (default in route.follows)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "route",
    [r for r in ONE if r.inputs.get("requires grad") == "RuntimeError" and dtypes_of(r)],
    ids=lambda r: r.expression,
)
def test_without_grad_mode_no_route_of_torch_refuses_what_requires_grad(route, mode):
    t = torch.ones(3, requires_grad=True)
    with mode():
        assert semantics.result_of(route, {**BARE, "t": t, "b": np.zeros(3, "float32")}).tolist() == [1, 1, 1]


LACKING = ("t + 1", "t > 1", "t.max()", "t.min()", "t.flip(0)", "torch.stack([t, torch.arange(4)])")


@pytest.mark.skipif(not hasattr(torch, "uint64"), reason="torch has no uint64")
@pytest.mark.parametrize("expression", LACKING)
@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_an_unsigned_tensor_refuses(dtype, expression):
    with pytest.raises((NotImplementedError, RuntimeError)):
        eval(expression, {**BARE, "t": torch.from_numpy(np.arange(4, dtype=dtype))})


# Hazards ------------------------------------------------------------------------------------------------------------


def hazard(expression, direction=routes.NUMPY_TO_TORCH):
    """Return the route, which must declare a hazard: the test shows it."""
    route = routes.find(expression, direction)
    assert route.hazard
    return route


def value(expression, **names):
    return eval(expression, {"np": np, "torch": torch, **names})


# Bits of a 16-bit float -> its number as float32
WIDENED = {
    "float16": lambda bits: bits.view("float16").astype("float32"),
    "bfloat16": lambda bits: (bits.astype("uint32") << 16).view("float32"),
}
INFINITE = {"float16": 0x7C00, "bfloat16": 0x7F80}
TO_16_BITS = [route for route in ONE if route.casts_to in WIDENED]


def bits_of(route, numbers):
    """The bits of a route's result for float32 numbers."""
    a = np.array(numbers, "float32")
    with np.errstate(over="ignore"):
        result = value(route.expression, a=a, t=torch.from_numpy(a))
    return (result.view(torch.int16).numpy() if isinstance(result, torch.Tensor) else result).view("uint16")


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("route", TO_16_BITS, ids=lambda route: route.expression)
def test_a_cast_to_16_bits_rounds_to_nearest(route, sign):
    """Checks all 16-bit numbers, the midpoints between neighbours (ties to even), and values just beside them.

    Values beyond the largest number round to infinity, as if it were the next number; NaN stays NaN.
    """
    infinity = np.uint16(INFINITE[route.casts_to])
    lower = np.arange(infinity, dtype="uint16")
    numbers = WIDENED[route.casts_to](lower)
    gaps = np.diff(numbers)
    middles = numbers + np.append(gaps, gaps[-1]) / 2
    wanted = {
        "exact": (numbers, lower),
        "below": (np.nextafter(middles, np.float32(0)), lower),
        "middle": (middles, lower + (lower & 1)),
        "above": (np.nextafter(middles, np.float32(np.inf)), lower + 1),
        "beyond": (np.float32([np.finfo("float32").max, np.inf]), infinity),
    }
    assert bits_of(route, [sign * np.nan]) & 0x7FFF > infinity
    for where, (source, bits) in wanted.items():
        np.testing.assert_array_equal(bits_of(route, sign * source), bits | 0x8000 * (sign < 0), err_msg=where)


def test_torch_rounds_float64_to_float16_twice():
    """torch casts via float32, so a value just above a midpoint may round down. NumPy rounds once."""
    just_above = np.array([1 + 2**-11 + 2**-30])
    assert value("torch.from_numpy(a).half()", a=just_above).item() == 1
    assert value("torch.from_numpy(a.astype(np.float16))", a=just_above).item() == 1 + 2**-10


def test_asarray_that_may_not_copy_raises_and_yet_copies_a_0d_array():
    route = hazard("torch.asarray(a, copy=False)")
    a = np.array(3.0)
    assert not np.shares_memory(a, value(route.expression, a=a).numpy())
    for needs_a_copy in (np.float64(3), [1.0, 2.0], np.ones(3)[::-1]):
        with pytest.raises((RuntimeError, ValueError)):
            value(route.expression, a=needs_a_copy)
    with pytest.raises(ValueError, match="alias"):
        value("torch.asarray(a, dtype=torch.float32, copy=False)", a=np.ones(3))


def test_new_tensor_gives_the_dtype_of_the_other():
    route = routes.find("b.new_tensor(a)", routes.NUMPY_TO_TORCH)
    assert route.caution
    result = value(route.expression, a=np.array([1.5, 2.5]), b=torch.ones(3, dtype=torch.int32))
    assert result.dtype == torch.int32 and result.tolist() == [1, 2]


TENSOR_CLASSES = ("torch.Tensor(a)", "torch.FloatTensor(a)")
TO_TORCH, TO_NUMPY = ON_HOST
BUFFER, PLANE = "torch.frombuffer(a, dtype=dtype)", np.array([[1.0, 2.0], [3.0, 4.0]], dtype="float32")
STRINGS = np.array(["x"])
NOTHING = {"a": np.empty(0, "int64"), "t": torch.empty(0, dtype=torch.int64)}
# Hazards: direction, route, its names, check of the result
HAZARDS = [
    *((TO_TORCH, each, {"a": np.array(3)}, lambda r: r.shape == (3,)) for each in TENSOR_CLASSES),  # taken for a size
    (TO_TORCH, BUFFER, {"a": PLANE, "dtype": torch.float32}, lambda r: r.shape == (4,)),
    (TO_TORCH, BUFFER, {"a": PLANE, "dtype": torch.int32}, lambda r: r[0] == 0x3F800000),  # the bits of 1.0
    (TO_NUMPY, "np.from_dlpack(t)", {"t": torch.tensor([1 + 2j]).conj().imag}, lambda r: r.tolist() == [2]),  # not -2
    (TO_TORCH, "torch.tensor(a.tolist())", NOTHING, lambda r: r.is_floating_point()),
    (TO_NUMPY, "np.array(t.tolist())", NOTHING, lambda r: r.dtype.kind == "f"),
    (TO_TORCH, "torch.utils.data.default_convert(a)", {"a": STRINGS}, lambda r: r is STRINGS),
]


@pytest.mark.parametrize(("direction", "expression", "names", "shows"), HAZARDS)
def test_a_hazard_occurs(direction, expression, names, shows):
    assert shows(value(hazard(expression, direction).expression, **names))


# Shapes and layouts -------------------------------------------------------------------------------------------------

# BUFFER takes one contiguous dimension: its hazard says so
ANY_SHAPE = [
    r for r in ONE if set(r.families) & {routes.CONVERSION, routes.LAYOUT} and r.expression != BUFFER and dtypes_of(r)
]


@pytest.mark.parametrize(("route", "layout"), cases(lambda route: sources.LAYOUTS, ANY_SHAPE))
def test_a_layout_is_shared_as_declared(route, layout):
    """A route shares memory by layout as declared; one for contiguous results copies only the other layouts."""
    laid = sources.laid_out("float32", NBYTES, layout)
    source = laid if route.direction == routes.NUMPY_TO_TORCH else torch.from_numpy(laid)
    result = semantics.result_of(route, namespace(route, source))
    memory = route.memory_for("float32", layout)
    assert np.shares_memory(laid, plain(result)) == (memory == routes.ALIAS)
    if routes.LAYOUT in route.families and layout in ("transposed", "fortran", "power of two"):
        ordered = memory == routes.COPY and any(name in route.expression for name in (".copy()", "contiguous"))
        assert plain(result).flags.c_contiguous == ordered, "as pages/templates/prose/case.md.jinja says"


@pytest.fixture(scope="module")
def always_warn():
    """Have torch warn each time of what it warns of once a process."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


# Drawn sources ------------------------------------------------------------------------------------------------------

DRAWN = [route for route in ONE if dtypes_of(route)]
ELSEWHERE = pytest.mark.skipif(elsewhere.HERE == "1.13", reason="contracts of drawn sources are for newer toolchains")
LISTS = routes.select(routes.BATCHES) + routes.select(routes.STACKS)
LISTED = LISTS + routes.select(routes.BUFFERED_BATCHES)


def in_direction(direction, chosen):
    return [route for route in chosen if route.direction == direction]


def direction_of(*sources):
    """An empty list is one of arrays."""
    return TO_NUMPY if sources and isinstance(sources[0], torch.Tensor) else TO_TORCH


def drawn(draws, *values):
    """Decorate a test of drawn values; FUZZ_EXAMPLES multiplies their number."""
    number = draws * int(os.environ.get("FUZZ_EXAMPLES", "1000")) // 1000
    chosen = settings(max_examples=number, deadline=None, derandomize=True, database=None)
    return lambda test: ELSEWHERE(chosen(given(*values)(test)))


ONCE = {routes.Does.REAL_PART, routes.Does.INFINITE}  # torch warns of it once a process, NumPy of large numbers alone


def attempt(route, names, raised, outcomes):
    """Return a route's result, or None if it raises one of these exceptions, as it has to; check whether it warns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = semantics.result_of(route, names)
        except Exception as error:
            assert raised & {each.__name__ for each in type(error).__mro__}, repr(error)
            return None
    assert not raised, raised
    warns = any(contracts.kind(does) == "warns" for does in outcomes)
    assert route.expression in LOUD or outcomes & ONCE or bool(caught) == warns, [str(each.message) for each in caught]
    return result


def check_source(route, source):
    """A route does with a drawn source what its contract says of the kinds that the source is of."""
    kinds, dtype = drawing.kinds_of(source), semantics.dtype_name(source)
    casts = not route.keeps_dtype(dtype) and route.inputs is not routes.ASTYPE
    if casts:  # torch's cast applies the sign
        kinds -= {"negative view", "negative view, length 1"}
    promised = drawing.promised_exceptions(route, kinds, [dtype])
    is_size = route.expression in TENSOR_CLASSES and not source.ndim and source.dtype.kind in "biu"
    shows_hazard = is_size or (route.per_element and "empty" in kinds) or "copy=False" in route.expression
    if promised is None or shows_hazard or (route.view and dtype != "bfloat16"):
        return
    raised, outcomes = promised
    if routes.Does.UNCONVERTED in outcomes:
        raised, outcomes = set(), {routes.Does.UNCONVERTED}  # it goes first
    result = attempt(route, {**BARE, "a": source, "t": source, **drawing.buffers(route, source)}, raised, outcomes)
    if result is None or result is source or routes.Does.WRONG in outcomes:
        return
    ordinary = dtype in semantics.DTYPES
    wanted = expected(route, source) if ordinary else plain(source).astype(plain(result).dtype)
    wanted = wanted.ravel() if route.expression == BUFFER else wanted
    same(plain(result), wanted.reshape(1) if "ascontiguousarray" in route.expression and not source.ndim else wanted)
    assert isinstance(result, torch.Tensor) or result.flags.writeable
    if wanted.size and not casts:
        assert shares(source, result) == (route.memory_for(dtype, drawing.layout_of(route, source)) == routes.ALIAS)


@drawn(4000, st.one_of(drawing.ARRAYS, drawing.TENSORS))
def test_a_drawn_source_does_what_its_kinds_promise(always_warn, source):
    for route in in_direction(direction_of(source), DRAWN):
        check_source(route, source)


def check_list(route, items):
    """A route does with a drawn list what its contract says, or shows the hazard of going by element."""
    kinds, dtypes = drawing.kinds_of_list(items), {semantics.dtype_name(item) for item in items}
    promised = drawing.promised_exceptions(route, kinds, dtypes)
    by_element = (
        {"empty", "masked", "ragged", "0-d", "mixed-dtype", "mixed-dtype, unsigned"} if route.per_element else set()
    )
    if promised is None or kinds & by_element or (len(dtypes) > 1 and dtypes & {*route.refuses}):
        return
    raised, outcomes = promised
    if routes.Does.REPEATS in outcomes or (raised and "mixed-dtype" in str(kinds)):
        return  # shapes, or the common dtype, decide
    dtype = "float32" if raised else drawing.list_dtype(items, outcomes)
    buffer = torch.zeros((len(items), *(items[0].shape if items else ())), dtype=getattr(torch, dtype, torch.float32))
    names = {**BARE, "arrays": items, "tensors": items, "b": buffer}
    result = attempt(route, names, raised, outcomes) if routes.Does.MASK_TO_NAN not in outcomes else None
    if result is not None and items:
        wanted = np.array([plain(item) for item in items])
        same(plain(result), wanted.astype(plain(result).dtype if route.memory == routes.INTO else dtype))
        assert not any(np.may_share_memory(plain(item), plain(result)) for item in items)


@drawn(1000, st.one_of(drawing.lists_of(drawing.ARRAYS), drawing.lists_of(drawing.TENSORS)))
def test_a_drawn_list_does_what_its_kinds_promise(always_warn, items):
    for route in in_direction(direction_of(*items), LISTED):
        check_list(route, items)


# Many small arrays, nested containers -------------------------------------------------------------------------------


@pytest.mark.parametrize("route", LISTED, ids=lambda r: r.expression)
def test_a_list_becomes_a_copy_or_fills_a_buffer(route):
    tensors = routes.STACKS in route.families
    each = [(sources.tensor if tensors else sources.array)("float32", 64, seed) for seed in range(4)]
    buffer = torch.zeros(4, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if tensors else "ignore")
        result = value(route.expression, arrays=each, tensors=each, b=buffer)
    fills = routes.BUFFERED_BATCHES in route.families
    assert route.memory == (routes.INTO if fills else routes.COPY)
    result = buffer if fills else result
    same(plain(result), np.array([plain(one) for one in each]))
    assert not any(np.shares_memory(plain(one), plain(result)) for one in each)


@pytest.mark.parametrize("route", routes.select(routes.PADDED_BATCHES), ids=lambda r: r.expression)
def test_a_ragged_list_is_padded(route):
    arrays = [sources.array("float32", 4 * length, length) for length in (3, 1, 2)]
    wanted = np.array([np.pad(array, (0, 3 - array.size)) for array in arrays])
    same(plain(value(route.expression, arrays=arrays)), wanted)
    assert (route.memory, route.inputs["ragged"]) == (routes.COPY, routes.Does.PADS)


VALUES = {"empty list": [], "ragged": [[1.0], [1.0, 2.0]], "strings": ["1.5"], "None": [1.5, None]}


@pytest.mark.parametrize(
    ("route", "kind"), cases(lambda route: ["ordinary", *route.inputs], routes.select(routes.PYTHON_LISTS))
)
def test_python_numbers_convert_or_raise(route, kind):
    values = VALUES.get(kind, [[1, 2.5], [3, 4]])
    does = elsewhere.promised(route, kind, route.inputs.get(kind, routes.Does.WORKS))
    assert set(route.inputs) == {*VALUES}
    if contracts.kind(does) == contracts.RAISES:
        with pytest.raises(getattr(builtins, does)):
            value(route.expression, values=values)
    else:
        dtype = {"python": "float32", "": "float64"}.get(route.casts_to, route.casts_to)
        same(plain(value(route.expression, values=values)), np.array(values, dtype=float).astype(dtype))


@pytest.mark.parametrize("route", routes.select(routes.TREES), ids=lambda r: r.expression)
def test_a_tree_keeps_its_structure(route):
    to_torch = route.direction == routes.NUMPY_TO_TORCH
    leaves = [(sources.array if to_torch else sources.tensor)("float32", 64, seed) for seed in range(4)]
    tree = {"x": leaves[0], "rest": [leaves[1], {"y": leaves[2]}, (leaves[3],)]}
    result = value(route.expression, map_tree=sources.map_tree, tree=tree)
    found = [result["x"], result["rest"][0], result["rest"][1]["y"], result["rest"][2][0]]
    assert isinstance(result["rest"][2], tuple)
    for leaf, converted in zip(leaves, found):
        assert isinstance(converted, torch.Tensor if to_torch else np.ndarray)
        same(plain(converted), plain(leaf))
        assert semantics.shares_memory(leaf, converted) == (route.memory == routes.ALIAS)


# Files --------------------------------------------------------------------------------------------------------------

FILES = routes.select(routes.FILES)
KINDS_OF_FILES = ("ordinary", "missing", "cut short", "cut short in use", "written to")


@pytest.mark.parametrize(("route", "kind"), cases(lambda route: ["ordinary", *route.inputs], FILES))
def test_a_file_is_read_as_declared(route, kind, isolated, tmp_path):
    """A write to the tensor reaches the file only if the route aliases it."""
    does, *converted = isolated("file_outcome", route.expression, kind, str(tmp_path))
    ordinary = routes.Does.WORKS if "written to" in route.inputs else routes.Does.WARNS
    assert does == elsewhere.promised(route, kind, route.inputs.get(kind, ordinary))
    if kind in ("ordinary", "written to") and converted:
        dtype, changed = converted
        assert dtype == "float32"
        assert changed == (kind == "written to" and route.memory == routes.ALIAS)


@pytest.mark.parametrize("route", [*ONE, *FILES], ids=lambda route: route.expression)
def test_every_awkward_source_is_declared(route):
    """All but those that can end the process: the route's hazard says that there are some, and what to use."""
    undeclared = {*SOURCES.get(route.direction, KINDS_OF_FILES)} - {"ordinary", *contracts.DEGENERATE, *route.inputs}
    assert bool(undeclared) == (contracts.ENDS in route.hazard)
    assert not undeclared or ": use " in route.hazard


# Between processes --------------------------------------------------------------------------------------------------

SHARED, HANDED_OVER = routes.select(routes.SHARED), routes.select(routes.HANDED_OVER)


@pytest.mark.parametrize("route", SHARED, ids=lambda route: route.expression)
def test_a_write_shows_in_shared_memory_as_declared(route, isolated):
    """A write to an alias shows in the shared block; a route whose result is a copy has a caution.

    A route has a hazard if its result may be used after the memory is closed.
    """
    wanted = [] if route.memory == routes.COPY else ["block"]
    assert isolated("shared", route.expression, False) == [True, wanted]
    assert bool(route.caution) == (route.memory == routes.COPY)
    if "closed in use" in route.inputs:
        assert isolated("shared", route.expression, True) == [route.inputs["closed in use"]]
    assert (contracts.ENDS in route.hazard) == (route.memory == routes.ALIAS and "closed in use" not in route.inputs)


@pytest.mark.parametrize("route", HANDED_OVER, ids=lambda route: route.expression)
def test_a_worker_writes_to_what_was_handed_over(route, isolated):
    """The worker's write shows in the sent object (alias), in the common block (into), or nowhere (copy)."""
    wanted = {routes.COPY: [], routes.INTO: ["block"], routes.ALIAS: ["shared"]}[route.memory]
    assert isolated("handed_over", route.expression) == [True, wanted, False]


# Transfers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "route", [r for r in RECORDED if r.needs != "cuda"], ids=lambda r: f"{r.expression} {r.direction}"
)
def test_a_transfer_treats_grad_as_declared(route):
    """Autograd needs no real device: "meta" stands for the accelerator, and the host for what is read back."""
    device = torch.device("meta")
    names = {"t": torch.ones(3), "d": torch.empty(3, device=device), "h": torch.empty(3), "device": device}
    assert grad_outcome(route, names, lambda: eval(route.expression, names)) == route.inputs["requires grad"]
