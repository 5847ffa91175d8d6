"""Differences of routes on the toolchains of make test-oldest and make test-newest from the pinned toolchain.

These commands found the differences and check them: each must occur there, and no other may. A toolchain that is not
listed must keep the contracts unchanged, so that a release that changes something is noticed.
"""

from benchmarks import contracts, routes
from benchmarks.core import sources

DLPACK, TO_DLPACK = BOTH = ("torch.from_dlpack(a)", "np.from_dlpack(t)")
ASARRAY = ("torch.asarray(a)", "torch.asarray(a, copy=False)")

# torch's minor version -> route -> outcome -> kinds of source, or dtypes
OUTCOMES = {
    "1.13": {
        DLPACK: {
            contracts.ENDS: ["complex", "masked", "record field, length 1"],
            "RuntimeError": ["record field", "ulonglong"],
            "TypeError": ["broadcast", "byte-swapped", "datetime64", "longdouble", "ml_dtypes", "object"]
            + ["object of numbers", "read-only", "strings", "structured"],
        },
        TO_DLPACK: {"RuntimeError": ["conjugate view", "quantized", "requires grad", "sparse"]},
        "t.contiguous().numpy()": {"TypeError": ["sparse"]},
        "torch.asarray(a, copy=True)": {routes.Does.WORKS: ["read-only, 0-d"]},
        "torch.frombuffer(a, dtype=dtype)": {"TypeError": ["ulonglong"]},
        # NumPy before 1.24 makes an array of lists of unequal length
        "torch.from_numpy(np.array(values))": {"TypeError": ["ragged"]},
        # NumPy before 1.24 does not warn of infinities
        "torch.from_numpy(a.astype(np.float16))": {f"{routes.Does.INFINITE}, but {routes.Does.WORKS}": ["datetime64"]},
        # NumPy before 2 asks for no copy argument
        "np.array(t)": {routes.Does.WORKS: ["complex", "empty", "expanded", "ordinary", "strided"]},
    },
    "2.15": {
        TO_DLPACK: {"BufferError": ["bfloat16", "float8"]},
        "np.from_dlpack(t, copy=True)": {"BufferError": ["bfloat16", "float8"]},
    },
}

NO_BOOL = "DLPack had no bool"
READ_ONLY = "it raised, or gave an array that is not writable"
FLIPS = "flip takes unsigned numbers"
SHARED = "asarray shared the memory of a 0-d array, too"

# torch's minor version -> other tests of tests/test_contracts.py that do not hold there -> reason
NOT_SO = {
    "1.13": {
        **{f"test_a_route_keeps_values_dtype_and_memory[{route}-bool]": NO_BOOL for route in BOTH},
        **{f"test_a_write_to_an_alias_of_one_repeated_number_shows_in_all[{route}]": READ_ONLY for route in BOTH},
        **{f"test_a_layout_is_shared_as_declared[{route}-0-d]": SHARED for route in ASARRAY},
        "test_asarray_that_may_not_copy_raises_and_yet_copies_a_0d_array": SHARED,
        "test_an_alias_holds_until_torch_moves_its_memory[np.from_dlpack(t)]": READ_ONLY,
    },
    "2.15": {f"test_an_unsigned_tensor_refuses[{dtype}-t.flip(0)]": FLIPS for dtype in ("uint16", "uint32", "uint64")},
}


HERE = ".".join(sources.VERSIONS["torch"].split(".")[:2])


def promised(route, kind, pinned):
    """Return a route's outcome for a kind of source or a dtype on this toolchain; ``pinned``: on the pinned one."""
    listed = OUTCOMES.get(HERE, {}).get(route.expression, {})
    return next((does for does, kinds in listed.items() if kind in kinds), pinned)


def not_so(test):
    """Return why a test of the contracts does not hold on this toolchain; "" if it holds."""
    return NOT_SO.get(HERE, {}).get(test, "")
