"""Sources have the dtype, bytes and layout that they claim, and random, touched pages that a seed reproduces."""

import contextlib
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import possible

from benchmarks import conversion, files, limits, placement, routes, semantics
from benchmarks.core import sources

INTO_TENSOR, INTO_ARRAY = "np.copyto(b.numpy(), a)", "np.copyto(b, t.numpy())"


def names_of(expression, source):
    """Return the names (variables) that a route's expression uses."""
    direction = routes.NUMPY_TO_TORCH if isinstance(source, np.ndarray) else routes.TORCH_TO_NUMPY
    return sources.namespace(routes.find(expression, direction), source)


MADE = [
    *((sources.array, each) for each in sources.NUMPY_DTYPES),
    *((sources.tensor, each) for each in sources.TORCH_DTYPES),
]


@pytest.mark.parametrize("make, dtype", MADE)
@pytest.mark.parametrize("nbytes", [1, 8, 4096, 2**20])
def test_source_has_its_bytes(make, dtype, nbytes):
    """A source has at least one element, in writable memory of its own."""
    made = make(dtype, nbytes)
    assert (semantics.dtype_name(made), made.nbytes, made.ndim) == (dtype, max(nbytes, made[:1].nbytes), 1)
    if make == sources.array:
        assert made.flags.c_contiguous and made.flags.writeable and made.flags.owndata
    else:
        assert made.is_contiguous() and not made.requires_grad


@pytest.mark.parametrize("dtype", sources.NUMPY_DTYPES)
def test_every_page_is_random(dtype):
    """The kernel maps untouched pages to one shared page of zeros. Copies of it would look too fast."""
    pages = sources.array(dtype, 2**20).view("uint8").reshape(-1, 4096)
    assert pages.any(axis=1).all()
    assert len(np.unique(pages[:8], axis=0)) == 8


def test_same_seed_same_numbers():
    assert np.array_equal(sources.array("float32", 4096), sources.array("float32", 4096))
    assert not np.array_equal(sources.array("float32", 4096), sources.array("float32", 4096, seed=1))
    assert torch.equal(sources.tensor("float32", 4096), torch.from_numpy(sources.array("float32", 4096)))


def turned(a, order):
    """Whether ``a`` is a matrix in Fortran order with two odd sides."""
    return a.ndim == 2 and order == (False, True) and min(a.shape) > 1 and a.shape[0] % 2 == a.shape[1] % 2 == 1


# Layout -> whether an array has it; order: whether the array is C-contiguous and Fortran-contiguous
IS = {
    "contiguous": lambda a, order: a.ndim == 1 and all(order),
    "strided": lambda a, order: a.strides == (8,) and a.nbytes == 2**20,
    "transposed": turned,
    "fortran": turned,
    "power of two": lambda a, order: a.shape == (512, 512) and order == (False, True),
    "5-d": lambda a, order: a.ndim == 5 and order == (True, False) and a.shape[1:] == (2, 2, 4, 4),
    "0-d": lambda a, order: a.shape == (),
}


@pytest.mark.parametrize("layout", sources.LAYOUTS)
def test_layout_is_what_it_says(layout):
    a = sources.laid_out("float32", 2**20, layout)
    assert a.any() and IS[layout](a, (a.flags.c_contiguous, a.flags.f_contiguous))


@pytest.mark.parametrize("nbytes", [*sources.SIZES[:3], 2**20])
@pytest.mark.parametrize("layout", sources.LAYOUTS)
def test_layout_has_its_size_or_there_is_none(layout, nbytes):
    try:
        made = sources.laid_out("float32", nbytes, layout)
    except NotImplementedError as reason:
        assert (layout, nbytes) == ("5-d", 8) and "256 bytes" in str(reason)
    else:
        assert made.nbytes == (4 if layout == "0-d" else pytest.approx(nbytes, rel=0.01))


def test_sizes_are_powers_of_two_in_order():
    """The exception is 28 MiB, just below the size from which fresh copies get fresh pages."""
    assert [size for size in sources.SIZES if size & (size - 1)] == [28 * 2**20]
    assert sorted(set(sources.SIZES)) == sources.SIZES


def test_buffer_only_where_the_expression_names_it():
    a, t = sources.array("float32", 64), sources.tensor("float32", 64)
    used = {"b.copy_(torch.from_numpy(a))": a, INTO_ARRAY: t, "torch.from_numpy(a)": a, "t.numpy()": t}
    assert ["b" in names_of(expression, source) for expression, source in used.items()] == [True, True, False, False]


@pytest.mark.parametrize(
    ("torch_version", "numpy_version", "missing"),
    [
        ("2.9.0", "2.1.0", ""),
        ("2.10.1+cpu", "2.4.6", ""),  # versions are compared as numbers, not as text
        ("2.9.0.dev20260801+cu130", "2.1.0", ""),
        ("2.8.0", "2.4.6", "torch 2.9"),
        ("2.9.0", "1.26.4", "numpy 2.1"),
    ],
)
def test_require_names_what_is_missing(monkeypatch, torch_version, numpy_version, missing):
    monkeypatch.setattr(sources, "VERSIONS", {"torch": torch_version, "numpy": numpy_version})
    with pytest.raises(NotImplementedError, match=f"needs {missing}") if missing else contextlib.nullcontext():
        sources.require("torch>=2.9 numpy>=2.1")


def test_too_large_for_the_machine_is_skipped_with_its_size():
    with pytest.raises(NotImplementedError, match=r"^needs 1048576\.0 GiB of free memory$"):
        sources.require_memory(2**50)
    sources.require_memory(2**10)


def test_by_element_needs_more_memory(monkeypatch):
    """A list of 64 Mi Python floats takes gigabytes: the cell must be skipped, not killed."""
    asked = []
    monkeypatch.setattr(sources, "require_memory", asked.append)
    sources.source(routes.find("torch.tensor(a)", routes.NUMPY_TO_TORCH), "uint8", 2**16)
    sources.source(routes.find("torch.tensor(a.tolist())", routes.NUMPY_TO_TORCH), "uint8", 2**16)
    assert asked[1] > asked[0] + 40 * 2**16


# Where they lie -----------------------------------------------------------------------------------------------------


def place(values):
    return sources.address(values) % sources.PAGE


@pytest.mark.parametrize("dtype", sources.NUMPY_DTYPES)
@pytest.mark.parametrize("distance", placement.DISTANCES.values())
def test_a_buffer_lies_as_far_behind_its_source_as_asked(dtype, distance):
    a = sources.array(dtype, 2**16)
    names = sources.placed(names_of(INTO_TENSOR, a), distance)
    assert (place(names["b"]) - place(names["a"])) % sources.PAGE == distance
    assert names["a"].dtype == a.dtype and (names["a"] == a).all() and names["a"].flags.c_contiguous
    assert names["b"].dtype == getattr(torch, dtype) and torch.equal(names["b"], torch.from_numpy(a))
    assert place(names["a"]) % 64 == sources.BY_NUMPY, "as malloc gives fresh pages"


def test_arrays_begin_where_their_library_lets_them_begin():
    """A copy by torch may take twice as long if its target does not begin at a cache line."""
    large = 2**26  # bytes: from 32 MiB on glibc gives a mapping of its own, whatever was freed before
    assert np.empty(large, np.uint8).ctypes.data % 64 == sources.BY_NUMPY
    assert torch.empty(large, dtype=torch.uint8).data_ptr() % 64 == sources.BY_TORCH
    a, t = sources.array("float32", 2**16), sources.tensor("float32", 2**16)
    assert place(sources.placed(names_of(INTO_TENSOR, a))["b"]) == sources.BY_TORCH
    assert place(sources.placed(names_of(INTO_ARRAY, t))["b"]) == sources.BY_NUMPY
    assert place(names_of(INTO_TENSOR, a[::2])["b"]) % 64 == sources.BY_TORCH


@pytest.mark.parametrize("dtype", sources.TORCH_DTYPES)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_tensor_is_placed_as_torch_allocates_and_stays_what_it_is(dtype, requires_grad):
    t = sources.tensor(dtype, 2**16)
    if requires_grad and not t.is_floating_point():
        pytest.skip("only floating point numbers can require grad")
    names = sources.placed({"t": t.requires_grad_(requires_grad)})
    assert names["t"].dtype == t.dtype and torch.equal(names["t"], t)
    assert names["t"].requires_grad == requires_grad and names["t"].is_leaf and names["t"].is_contiguous()
    assert place(names["t"]) == sources.PAGE // 2 and place(names["t"]) % 64 == 0


def test_only_what_memmove_copies_is_moved():
    strided = np.arange(8)[::2]
    assert sources.placed({"a": strided})["a"] is strided
    scalar = sources.placed({"a": np.array(3.5)})["a"]
    assert scalar.shape == () and scalar == 3.5


@pytest.mark.parametrize("name, distance", placement.DISTANCES.items())
@pytest.mark.parametrize("family", ["NumpyToTorch", "TorchToNumpy"])
def test_the_family_of_placement_times_what_it_says(family, name, distance):
    made = getattr(placement, family)()
    for route in made.params[0]:
        made.setup(route, name, 2**16)
        statement, names = made.timeit_convert(route, name, 2**16)
        source = names["a"] if "a" in names else names["t"]
        apart = (place(names["b"]) - place(source)) % sources.PAGE
        assert statement == route and apart == distance


def test_conversions_and_their_limit_lie_apart():
    made = conversion.NumpyToTorch()
    made.setup(INTO_TENSOR, "float32", 2**16)
    _, names = made.timeit_convert(INTO_TENSOR, "float32", 2**16)
    assert abs(place(names["b"]) - place(names["a"])) == sources.PAGE // 2 + sources.BY_NUMPY
    limit = limits.Memcpy()
    limit.setup(2**16)
    assert (limit.names["target"] - limit.names["source"]) % sources.PAGE == sources.PAGE // 2


def test_fresh_copies_are_counted_that_are_neighbours(monkeypatch):
    made = placement.FreshToTorch()
    (route, *_), orders, _ = made.params
    counts = [made.track_neighbours(route, order, 2**16) for order in orders]
    assert all(0 <= count <= 100 for count in counts)
    monkeypatch.setattr(placement.sources, "is_neighbour", lambda source, target: source is not target)
    assert made.track_neighbours(route, orders[0], 64) == 100


@pytest.mark.parametrize("distance, near", [(0, False), (1, True), (16, True), (31, True), (32, False), (4096, False)])
def test_neighbours_begin_less_than_32_bytes_further_on_in_their_pages(distance, near):
    block = np.zeros(3 * sources.PAGE, np.uint8)
    assert sources.is_neighbour(block[:8], block[distance : distance + 8]) == near
    assert sources.is_neighbour(block[:8], torch.from_numpy(block[distance + sources.PAGE :])) == near


# Files: written, read in full, out of the page cache for cold samples, and removed at the end -------------------------

MAPPED = "torch.from_numpy(np.memmap(path, dtype=np.float32, mode='c'))"
NBYTES = 2**20


@pytest.fixture
def made(request):
    """The benchmark of a route, set up. Its teardown must remove all files."""
    cell = getattr(request, "param", MAPPED), NBYTES
    benchmark = files.FileToTensor()
    with possible():
        benchmark.setup(*cell)
    yield benchmark
    benchmark.teardown(*cell)
    assert not Path(benchmark.directory.name).exists()


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("made", [route.expression for route in routes.select(routes.FILES)], indirect=True)
def test_every_number_is_read(made, request):
    route = request.node.callspec.params["made"]
    opened, names = made.timeit_open(route, NBYTES)
    numbers = eval(opened, names).clone()
    assert numbers.dtype == torch.float32 and len(numbers) == NBYTES // 4
    warm, names = made.timeit_warm(route, NBYTES)
    assert eval(warm, names) == numbers.sum()


def test_a_cold_sample_finds_no_page_in_memory_or_says_why(made):
    path = made.names["path"]
    with possible():
        statement, names = made.timeit_cold(MAPPED, NBYTES)
    for _ in range(2):
        names["prepare"]()
        assert files.cached_pages(path) == 0
        eval(statement, names)
        assert files.cached_pages(path) == NBYTES // os.sysconf("SC_PAGE_SIZE")
    kept = np.memmap(path, dtype=np.float32, mode="r")  # a mapping keeps its pages in memory
    kept.sum()
    line = "^temporary files stay in memory here: set TMPDIR to a directory on a disk$"
    with pytest.raises(NotImplementedError, match=line):
        names["prepare"]()


def test_a_system_that_cannot_forget_is_a_reason_to_skip(made, monkeypatch):
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with pytest.raises(NotImplementedError, match="^this system cannot be told to forget a file$"):
        made.timeit_cold(MAPPED, NBYTES)


def test_no_room_is_a_reason_to_skip(made, monkeypatch):
    made.teardown(MAPPED, NBYTES)
    monkeypatch.setattr(shutil, "disk_usage", lambda directory: SimpleNamespace(free=NBYTES))
    with pytest.raises(NotImplementedError, match=r"^needs 0\.0 GiB of room in the directory of temporary files$"):
        made.setup(MAPPED, NBYTES)
