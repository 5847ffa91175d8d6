"""What routes do otherwise on the toolchains of make test-oldest and make test-newest than on the pinned one.

Found by those commands and checked by them: what is listed here must happen there, and nothing else may. A toolchain
that is not listed is held to the contracts as they are, so a release that changes something is seen.
"""

from benchmarks import routes, sources

DLPACK, TO_DLPACK = "torch.from_dlpack(a)", "np.from_dlpack(t)"
ASARRAY = ("torch.asarray(a)", "torch.asarray(a, copy=False)")

# Beginning of torch's version -> (route, kind of source or dtype) -> what happens
OUTCOMES = {
    "1.13": {
        **{
            (DLPACK, kind): does
            for does, kinds in {
                routes.Does.ABORTS: ["complex", "masked"],
                "RuntimeError": ["record field"],
                "TypeError": ["broadcast", "byte-swapped", "datetime64", "longdouble", "ml_dtypes", "object"]
                + ["object of numbers", "read-only", "structured"],
            }.items()
            for kind in kinds
        },
        **{(TO_DLPACK, kind): "RuntimeError" for kind in ("conjugate view", "quantized", "requires grad", "sparse")},
        ("t.contiguous().numpy()", "sparse"): "TypeError",
        # NumPy before 1.24 does not warn of infinities
        ("torch.from_numpy(a.astype(np.float16))", "datetime64"): f"{routes.Does.INFINITE}, but {routes.Does.WORKS}",
        # NumPy before 2 asks for no copy argument
        **{
            ("np.array(t)", kind): routes.Does.WORKS for kind in ("complex", "empty", "expanded", "ordinary", "strided")
        },
    },
    "2.15": {
        (DLPACK, "negative strides"): "RuntimeError",
        **{
            (f"np.from_dlpack(t{more})", kind): "BufferError"
            for more in ("", ", copy=True")
            for kind in ("bfloat16", "float8")
        },
    },
}

# Beginning of torch's version -> what else of tests/test_contracts.py does not hold there -> why
NOT_SO = {
    "1.13": {
        **{f"test_conversion[{route}-bool]": "DLPack had no bool" for route in (DLPACK, TO_DLPACK)},
        **{f"test_any_shape_and_layout[{route}]": "DLPack had no bool" for route in (DLPACK, TO_DLPACK)},
        **dict.fromkeys(
            [f"test_a_write_to_an_alias_of_one_repeated_number_shows_in_all[{route}]" for route in (DLPACK, TO_DLPACK)],
            "it raised, or gave an array that is not writable",
        ),
        **{
            test: "asarray shared the memory of a 0-d array, too"
            for test in [
                "test_asarray_that_may_not_copy_raises_and_yet_copies_a_0d_array",
                *(f"test_memory_of_every_layout[{route}-0-d]" for route in ASARRAY),
                *(f"test_any_shape_and_layout[{route}]" for route in ASARRAY),
            ]
        },
    },
}


def _here(known):
    """What is known of the torch that runs."""
    return next((found for version, found in known.items() if sources.VERSIONS["torch"].startswith(f"{version}.")), {})


def promised(route, kind, pinned):
    """What a route does with a kind of source, or raises for a dtype, on this toolchain; ``pinned``: on the other."""
    return _here(OUTCOMES).get((route.expression, kind), pinned)


def not_so(test):
    """Why a test of the contracts does not hold on this toolchain; "" where it does."""
    return _here(NOT_SO).get(test, "")
