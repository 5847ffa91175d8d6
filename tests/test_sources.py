"""Sources are what they say: dtype, bytes, layout, random and touched, the same every time."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks import routes, sources  # noqa: E402

ROUTE = routes.find("torch.from_numpy(a)", routes.NUMPY_TO_TORCH)
BACK = routes.find("t.numpy()", routes.TORCH_TO_NUMPY)


@pytest.mark.parametrize("dtype", sources.NUMPY_DTYPES)
@pytest.mark.parametrize("nbytes", [8, 4096, 2**20])
def test_array_has_its_bytes(dtype, nbytes):
    a = sources.array(dtype, nbytes)
    assert (a.dtype, a.nbytes, a.ndim) == (np.dtype(dtype), nbytes, 1)
    assert a.flags.c_contiguous and a.flags.writeable and a.flags.owndata


@pytest.mark.parametrize("dtype", sources.TORCH_DTYPES)
@pytest.mark.parametrize("nbytes", [8, 4096, 2**20])
def test_tensor_has_its_bytes(dtype, nbytes):
    t = sources.tensor(dtype, nbytes)
    assert (t.dtype, t.numel() * t.element_size(), t.dim()) == (getattr(torch, dtype), nbytes, 1)
    assert t.is_contiguous() and not t.requires_grad


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
def test_one_element_at_least(dtype):
    assert len(sources.array(dtype, 1)) == len(sources.tensor(dtype, 1)) == 1


@pytest.mark.parametrize("dtype", sources.NUMPY_DTYPES)
def test_every_page_is_random(dtype):
    """A page of zeros would be the kernel's one shared page, and a copy of it would look faster than it is."""
    pages = sources.array(dtype, 2**20).view("uint8").reshape(-1, 4096)
    assert pages.any(axis=1).all()
    assert len(np.unique(pages[:8], axis=0)) == 8


def test_same_seed_same_numbers():
    assert np.array_equal(sources.array("float32", 4096), sources.array("float32", 4096))
    assert not np.array_equal(sources.array("float32", 4096), sources.array("float32", 4096, seed=1))
    assert torch.equal(sources.tensor("float32", 4096), torch.from_numpy(sources.array("float32", 4096)))


@pytest.mark.parametrize("layout", sources.LAYOUTS)
def test_layout_is_what_it_says(layout):
    a = sources.laid_out("float32", 2**20, layout)
    flags = a.flags.c_contiguous, a.flags.f_contiguous
    assert a.any()
    match layout:
        case "contiguous":
            assert a.ndim == 1 and all(flags)
        case "strided":
            assert a.strides == (8,) and a.nbytes == 2**20
        case "transposed" | "fortran":
            assert a.ndim == 2 and flags == (False, True) and min(a.shape) > 1
        case "5-d":
            assert a.ndim == 5 and flags == (True, False) and a.shape[1:] == (2, 2, 4, 4)
        case "0-d":
            assert a.shape == ()
        case _:
            pytest.fail(f"no test of {layout}")
    if layout != "0-d":
        assert a.nbytes == pytest.approx(2**20, rel=0.01)


@pytest.mark.parametrize("nbytes", sources.SIZES[:3])
@pytest.mark.parametrize("layout", sources.LAYOUTS)
def test_layout_has_its_size_or_there_is_none(layout, nbytes):
    try:
        made = sources.laid_out("float32", nbytes, layout)
    except NotImplementedError as reason:
        assert (layout, nbytes) == ("5-d", 8) and "256 bytes" in str(reason)
    else:
        assert made.nbytes == (4 if layout == "0-d" else pytest.approx(nbytes, rel=0.01))


def test_sizes_are_powers_of_two_in_order():
    assert all(size & (size - 1) == 0 for size in sources.SIZES)
    assert sorted(set(sources.SIZES)) == sources.SIZES


def test_buffer_only_where_the_expression_names_it():
    a, t = sources.array("float32", 64), sources.tensor("float32", 64)
    into = sources.namespace(routes.find("b.copy_(torch.from_numpy(a))", routes.NUMPY_TO_TORCH), a)
    assert isinstance(into["b"], torch.Tensor) and into["b"].shape == a.shape and into["dtype"] == torch.float32
    assert not np.shares_memory(into["b"].numpy(), a)
    back = sources.namespace(routes.find("np.copyto(b, t.numpy())", routes.TORCH_TO_NUMPY), t)
    assert isinstance(back["b"], np.ndarray) and not np.shares_memory(back["b"], t.numpy())
    assert "b" not in sources.namespace(ROUTE, a) and "b" not in sources.namespace(BACK, t)


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.13.0+cpu", (2, 13, 0)), ("1.13.1", (1, 13, 1)), ("2.14.0.dev20260801+cu130", (2, 14, 0))],
)
def test_release(version, numbers):
    assert sources.release(version) == numbers


def test_newer_release_is_not_older_by_spelling():
    assert sources.release("2.9.1") < sources.release("2.10.0")


@pytest.mark.parametrize(
    ("torch_version", "numpy_version", "missing"),
    [
        ("2.9.0", "2.1.0", ""),
        ("2.10.1+cpu", "2.4.6", ""),
        ("2.8.0", "2.4.6", "torch 2.9"),
        ("2.9.0", "1.26.4", "numpy 2.1"),
    ],
)
def test_require_names_what_is_missing(monkeypatch, torch_version, numpy_version, missing):
    monkeypatch.setattr(sources, "VERSIONS", {"torch": torch_version, "numpy": numpy_version})
    if missing:
        with pytest.raises(NotImplementedError, match=f"needs {missing}"):
            sources.require("torch>=2.9 numpy>=2.1")
    else:
        sources.require("torch>=2.9 numpy>=2.1")


def test_too_large_for_the_machine_is_skipped_with_its_size():
    with pytest.raises(NotImplementedError, match=r"needs 1048576\.0 GiB of free memory"):
        sources.require_memory(2**50)
    sources.require_memory(2**10)


def test_refused_dtype_is_skipped_with_the_exception():
    with pytest.raises(NotImplementedError, match="bfloat16: raises TypeError"):
        sources.source(BACK, "bfloat16", 64)


def test_by_element_needs_more_memory(monkeypatch):
    """A list of 64 Mi Python floats takes gigabytes: the cell must be skipped, not killed."""
    asked = []
    monkeypatch.setattr(sources, "require_memory", asked.append)
    sources.source(routes.find("torch.tensor(a)", routes.NUMPY_TO_TORCH), "uint8", 2**16)
    sources.source(routes.find("torch.tensor(a.tolist())", routes.NUMPY_TO_TORCH), "uint8", 2**16)
    assert asked[1] > asked[0] + 40 * 2**16
