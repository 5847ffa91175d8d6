"""A run is ended and gone on with, two begin at once, a disk fills up: nothing is lost, half written or left running.

CONVERSION_KILLS says how many runs are ended, of 100 in about 25 minutes; with it they are ended elsewhere each time,
a fifth as many pairs begin at once, and a tenth as many disks of either kind fill up.
"""

import contextlib
import os
import random
import re
import shutil
import subprocess
import time
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


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request, tmp_path):
    """A file system of a few MiB."""
    place, image = tmp_path / "disk", tmp_path / "image"
    place.mkdir()
    commands = [["mount", "-t", "tmpfs", "-o", f"size={kills.DISK}", "tmpfs", str(place)]]
    if request.param == "ext4":
        image.write_bytes(bytes(kills.DISK))
        commands = [["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(place)]]
    if any(not shutil.which(each[0]) or subprocess.run(each, capture_output=True).returncode for each in commands):
        pytest.skip(f"a small disk of {request.param} cannot be mounted here (not root, or none of it)")
    yield place
    subprocess.run(["umount", "-l", str(place)], capture_output=True)


def copies(folder, count):
    """So many suites, at least one, each removed when the next is asked for."""
    for number in range(max(1, count)):
        yield Copy(folder / str(number))
        shutil.rmtree(folder / str(number))


def test_runs_that_are_ended(tmp_path):
    rng = random.Random(SEED)
    undisturbed, began = Copy(tmp_path / "undisturbed"), time.monotonic()
    undisturbed.finish()
    typical = time.monotonic() - began
    undisturbed.check_whole()
    for copy in copies(tmp_path, KILLS):
        kills.kill(copy, rng, typical)


def test_two_at_once(tmp_path):
    """One of them measures."""
    rng = random.Random(SEED)
    for copy in copies(tmp_path, KILLS // 5):
        both = []
        for wait in (0.0, rng.choice((0.0, 0.01, 0.3, 1.0))):
            time.sleep(wait)
            both.append(copy.begin(rounds=1))
        (code, _), (other, complaint) = sorted(ended(process) for process in both)
        assert (code, other) == (0, 2) and re.search(r" process \d+", complaint)
        copy.check_whole(1)


def test_a_disk_that_fills_up(small_disk):
    """One line says so, and after making room --resume goes on."""
    rng, filler = random.Random(SEED), small_disk / "filler"
    for copy in copies(small_disk, KILLS // 10):
        process = copy.begin()
        kills.wait_for_change(copy, process, rng)
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        code, complaint = ended(process)
        copy.check_nothing_runs()
        assert code in (0, 2) and len(complaint.splitlines()) <= 2, complaint[-300:]
        filler.unlink()
        if code:
            copy.finish("--resume")
        copy.check_whole()
