"""A run is ended and gone on with, two begin at once, a disk fills up: nothing is lost, half written or left running.

CONVERSION_KILLS says how many runs are ended, of 100 in about an hour; with it they are ended elsewhere each time.
"""

import contextlib
import os
import random
import shutil
import subprocess
from pathlib import Path

import kills
import pytest
from kills import Copy, ended

KILLS = int(os.environ.get("CONVERSION_KILLS", "2"))
SEED = "kills" if "CONVERSION_KILLS" not in os.environ else None

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="what runs on is found in /proc, which is not here"),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a few MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kills.DISK}", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here (not root, or no tmpfs)")
    yield place
    subprocess.run(["umount", "-l", str(place)], capture_output=True)


def test_runs_that_are_ended(tmp_path, cache):
    rng = random.Random(SEED)
    typical = kills.undisturbed(Copy(tmp_path / "undisturbed", cache))
    for number in range(KILLS):
        kills.kill(Copy(tmp_path / str(number), cache), rng, typical)
        shutil.rmtree(tmp_path / str(number))


def test_two_at_once(tmp_path, cache):
    """One of them measures."""
    copy = Copy(tmp_path, cache)
    both = [copy.start("--rounds", "1") for _ in range(2)]
    (code, _), (other, complaint) = sorted(ended(process) for process in both)
    assert (code, other) == (0, 2) and "is being measured already, by process" in complaint
    copy.check_whole(1)


def test_a_disk_that_fills_up(small_disk, cache):
    """One line says so, and after making room --resume goes on."""
    copy = Copy(small_disk, cache)
    process = copy.start("--rounds", str(kills.ROUNDS))
    kills.wait_for_change(copy, process, random.Random(SEED))
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
    code, complaint = ended(process)
    copy.check_nothing_runs()
    assert code in (0, 2) and len(complaint.splitlines()) <= 2, complaint[-300:]
    filler.unlink()
    if code:
        copy.resume()
    copy.check_whole()
