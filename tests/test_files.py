"""Files are written, read in full, out of the page cache where they should be, and gone afterwards."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks import files, routes  # noqa: E402

MAPPED = "torch.from_numpy(np.memmap(path, dtype=np.float32, mode='c'))"
NBYTES = 2**20


@pytest.fixture
def made(request):
    """The benchmark of a route, set up."""
    cell = getattr(request, "param", MAPPED), NBYTES
    benchmark = files.FileToTensor()
    try:
        benchmark.setup(*cell)
    except NotImplementedError as reason:
        pytest.skip(str(reason))
    yield benchmark
    benchmark.teardown(*cell)


@pytest.fixture
def evictable(made):
    """Its file, where this machine can evict it."""
    path = made.names["path"]
    try:
        files.evict(path)
    except NotImplementedError as reason:
        pytest.skip(str(reason))
    return Path(path)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("made", [route.expression for route in routes.select(routes.FILES)], indirect=True)
def test_every_number_is_read(made, request):
    route = request.node.callspec.params["made"]
    opened, names = made.timeit_open(route, NBYTES)
    numbers = eval(opened, names).clone()
    assert numbers.dtype == torch.float32 and len(numbers) == NBYTES // 4
    warm, names = made.timeit_warm(route, NBYTES)
    assert eval(warm, names) == numbers.sum()


def test_a_cold_sample_finds_no_page_in_memory(made, evictable):
    statement, names = made.timeit_cold(MAPPED, NBYTES)
    for _ in range(2):
        names["prepare"]()
        assert files.cached_pages(evictable) == 0
        eval(statement, names)
        assert files.cached_pages(evictable) == NBYTES // os.sysconf("SC_PAGE_SIZE")


def test_pages_that_stay_are_a_reason_to_skip(made, evictable):
    kept = np.memmap(evictable, dtype=np.float32, mode="r")
    kept.sum()
    line = "^temporary files stay in memory here: set TMPDIR to a directory on a disk$"
    with pytest.raises(NotImplementedError, match=line):
        made.timeit_cold(MAPPED, NBYTES)


def test_a_system_that_cannot_forget_is_a_reason_to_skip(made, monkeypatch):
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with pytest.raises(NotImplementedError, match="^this system cannot be told to forget a file$"):
        made.timeit_cold(MAPPED, NBYTES)


def test_no_room_is_a_reason_to_skip(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda directory: SimpleNamespace(free=NBYTES))
    benchmark = files.FileToTensor()
    with pytest.raises(NotImplementedError, match=r"^needs 0\.0 GiB of room in the directory of temporary files$"):
        benchmark.setup(MAPPED, NBYTES)
    benchmark.teardown(MAPPED, NBYTES)
    assert not Path(benchmark.directory.name).exists()


def test_nothing_is_left(made):
    made.teardown(MAPPED, NBYTES)
    assert not Path(made.directory.name).exists()
