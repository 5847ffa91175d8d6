"""Runs that are killed and resumed, start in pairs or fill the disk lose nothing and leave no partial file or process.

A run is two rounds of a benchmark that takes no time, in a suite of tiny packages. run.py, asv, its processes, the
journal and the files are real. No process that a run started may outlive it. After --resume each of the two rounds is
exactly once in asv's file, in the samples and in one record.

CONVERSION_KILLS sets the number of runs that are killed; 100 take about 25 minutes. If it is set, the moments differ
from call to call. A fifth as many pairs start at once, and a tenth as many disks of either kind fill up.
"""

import contextlib
import glob
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import until
from filed_runs import MACHINE, ROUNDS, check_whole
from measuring.journal import Job, Journal
from store.schema import with_samples
from tiny import Project

KILLS = int(os.environ.get("CONVERSION_KILLS", "2"))
SEED = "kills" if "CONVERSION_KILLS" not in os.environ else None
OPTIONS = f"--profile tracking --only conversion --machine {MACHINE} --no-report --rounds {ROUNDS}".split()
LONGEST = 300.0  # seconds that a run may take
ORPHAN = 8.0  # seconds after which no process of a run may be left
DISK = 24 * 2**20  # bytes of the disk that fills up

ABSENT, WHY = not Path("/proc/self/cwd").exists(), "what runs on is found in /proc, which is not here"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(ABSENT, reason=WHY)]


TMPFS = f"mount -t tmpfs -o size={DISK} tmpfs disk"
EXT4 = f"truncate -s {DISK} image && mkfs.ext4 -q -m 0 image && mount -o loop image disk"


@pytest.fixture(params=[TMPFS, EXT4], ids=["tmpfs", "ext4"])
def small_disk(request, tmp_path):
    """A file system of a few MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(request.param, shell=True, cwd=tmp_path, capture_output=True).returncode:
        pytest.skip(f"a small disk cannot be mounted here (not root, or none of it): {request.param}")
    yield place
    subprocess.run(["umount", "-l", str(place)], capture_output=True)


def suites(folder, count):
    """Yield ``count`` suites, at least one. Each is removed before the next is made."""
    for number in range(max(1, count)):
        yield Project(folder / str(number), judged=True)
        shutil.rmtree(folder / str(number))


def begin(suite, *more):
    return suite.start(sys.executable, "scripts/run.py", *OPTIONS, *more, stdout=subprocess.DEVNULL)


def ended(process):
    """Wait until the process ends. Return its exit code and its text on stderr."""
    try:
        _, complaint = process.communicate(timeout=LONGEST)
    finally:
        process.kill()
    return process.returncode, complaint.strip()


def journal_of(suite):
    return Journal(suite.root / ".asv" / "runs" / MACHINE / "run")


def wait_for_change(suite, process, rng):
    """Wait for the first, second, third or fourth change of the run's journal, and up to 50 ms more."""
    changes, seen, end = rng.randint(1, 4), None, time.monotonic() + LONGEST
    while changes and process.poll() is None and time.monotonic() < end:
        kept = sorted(glob.glob("*/*", root_dir=journal_of(suite).directory))
        if kept != seen:
            seen, changes = kept, changes - 1
        time.sleep(0.0005)
    time.sleep(rng.choice((0, 0, 0.002, 0.01, 0.05)))


def go_on(suite):
    """Resume the run, or start it if it ended before it had a plan."""
    suite.verb("run", *OPTIONS, *(["--resume"] if journal_of(suite).plan() else []))


def check_nothing_runs(suite):
    until(lambda: not suite.left(), ORPHAN, f"something ran on for {ORPHAN:.0f} s")


def test_a_killed_run_loses_and_repeats_nothing(tmp_path):
    """A run can be killed at any moment. Half of the kills are at random times, half just after the journal changed."""
    rng = random.Random(SEED)
    undisturbed, began = Project(tmp_path / "undisturbed", judged=True), time.monotonic()
    undisturbed.verb("run", *OPTIONS)
    typical = time.monotonic() - began
    check_whole(undisturbed.root)
    for suite in suites(tmp_path, KILLS):
        process = begin(suite)
        how = rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL))
        if rng.random() < 0.5:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, typical))
        else:
            wait_for_change(suite, process, rng)
        process.send_signal(how)
        code, complaint = ended(process)
        check_nothing_runs(suite)
        # exit codes of a Python killed before it handled signals; SIGINT during its imports prints a traceback
        early = [-how, *([1] if how == signal.SIGINT else [])]
        said = f"{how.name}: ended with {code}: {complaint[-300:]}"
        assert code in (0, -signal.SIGKILL, 130, 128 + signal.SIGTERM, 128 + signal.SIGHUP, *early), said
        assert complaint.count("\n") < 2 or code in early, said
        whole = with_samples(journal_of(suite).lines(Job("")))
        if code or not list(suite.filed.glob(f"{MACHINE}/*.jsonl")):
            go_on(suite)
        check_whole(suite.root, whole=whole)


def test_of_two_runs_at_once_one_measures(tmp_path):
    """Of two runs started at once, one measures. The other exits with code 2 and names the first one's process."""
    rng = random.Random(SEED)
    for suite in suites(tmp_path, KILLS // 5):
        first = begin(suite, "--rounds", "1")
        time.sleep(rng.choice((0.0, 0.01, 0.3, 1.0)))
        second = begin(suite, "--rounds", "1")
        (code, _), (other, complaint) = sorted(map(ended, (first, second)))
        assert (code, other) == (0, 2) and re.search(r" process \d+", complaint)
        check_whole(suite.root, rounds=1)


def test_a_full_disk_ends_a_run_that_can_be_resumed(small_disk):
    """A full disk ends the run with at most two lines of complaint. Once there is room, --resume completes the run."""
    rng, filler = random.Random(SEED), small_disk / "filler"
    for suite in suites(small_disk, KILLS // 10):
        process = begin(suite)
        wait_for_change(suite, process, rng)
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        code, complaint = ended(process)
        check_nothing_runs(suite)
        assert code in (0, 2) and len(complaint.splitlines()) <= 2, complaint[-300:]
        filler.unlink()
        if code:
            go_on(suite)
        check_whole(suite.root)
