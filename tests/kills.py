"""Runs that are ended anywhere, begun twice, or starved of disk, in suites of tiny packages: what may be left of them.

The run is two rounds of a benchmark that takes no time: real are run.py, asv and its processes, journal, files. Nothing
that it started may run on, and after --resume there are two rounds, once each, in asv's file, in the samples and in one
record.
"""

import contextlib
import random
import signal
import subprocess
import sys
import time

import psutil
from analysis.results import load
from conftest import until
from measuring.runner import Journal
from store import files
from store.records import name_of, with_samples
from tiny import Project

MACHINE, ROUNDS = "robust", 2
COMMAND = ["scripts/run.py", "--profile", "tracking", "--only", "conversion", "--machine", MACHINE, "--no-report"]
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL")
LONGEST = 300.0  # seconds that any of it may take
ORPHAN = 8.0  # seconds after which nothing may run any more
DISK = 24 * 2**20  # bytes of the disk that fills up


class Copy(Project):
    """A suite to measure in, with a home of its own."""

    def __init__(self, folder):
        super().__init__(folder, judged=True)
        self.journal = Journal(self.root / ".asv" / "runs" / MACHINE / "run")

    def begin(self, *more, rounds=ROUNDS):
        return self.start(sys.executable, *COMMAND, "--rounds", str(rounds), *more, stdout=subprocess.DEVNULL)

    def finish(self, *more):
        code, complaint = ended(self.begin(*more))
        assert code == 0, f"run.py {' '.join(more)} ended with {code}: {complaint[-300:]}"

    def check_nothing_runs(self):
        try:
            until(lambda: not self.left(), ORPHAN, f"something ran on for {ORPHAN:.0f} s")
        finally:
            for process in self.left():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def check_whole(self, rounds=ROUNDS, whole=()):
        check_whole(self.root, MACHINE, rounds, whole)


def check_whole(root, machine, rounds, whole=()):
    """Every cell has these rounds, once each, those that were ``whole`` as they were taken; asv's file, the samples and
    one record tell of the same, and nothing half done is left. The measurements."""
    (record_file,) = root.rglob(f"results/{machine}/*.jsonl")
    assert [record.rounds for record in files.read_records(record_file)] == [rounds]
    lines = with_samples(files.read_measurements(record_file))
    taken = [{name: line[name] for name in line if name != "run"} for line in lines]
    assert all(line in taken for line in whole), "a finished round was measured again"
    cells = {name_of(line) for line in lines}
    for cell in cells:
        of_cell = [line for line in lines if name_of(line) == cell]
        assert {line["round"] for line in of_cell} == set(range(rounds)), cell
        assert len({line["run"] for line in of_cell}) == 1, cell
    assert set(load(record_file.parents[1]).processes["cell"]) == cells, "asv's file has other cells than the samples"
    assert not [*root.rglob("*.new"), *root.rglob("installed/[0-9]*")], "something half done is left"
    return lines


def ended(process):
    """Exit code, and what it complained of."""
    try:
        _, complaint = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise AssertionError(f"still there after {LONGEST:.0f} s") from None
    return process.returncode, complaint.strip()


def kill(copy, rng: random.Random, typical):
    """End a run, half of the times anywhere, else just when it keeps a round or files its results; go on with it."""
    process = copy.begin()
    name = rng.choice(SIGNALS)
    if rng.random() < 0.5:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, typical))
    else:
        wait_for_change(copy, process, rng)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(getattr(signal, name))
    code, complaint = ended(process)
    copy.check_nothing_runs()
    # of a Python that a signal ended before it had begun to heed it; it says where it was while it still imported
    early = [-getattr(signal, name), *([1] if name == "SIGINT" else [])]
    said = f"{name}: ended with {code}: {complaint[-300:]}"
    assert code in (0, -signal.SIGKILL, 130, 128 + signal.SIGTERM, 128 + signal.SIGHUP, *early), said
    assert complaint.count("\n") < 2 or code in early, said
    whole = [line for line in with_samples(copy.journal.lines("installed")) if "round" in line]
    if code or not list(copy.filed.glob(f"{MACHINE}/*.jsonl")):
        copy.finish("--resume")
    copy.check_whole(whole=whole)


def wait_for_change(copy, process, rng):
    """Wait for a change of what is kept, the first, second, ... of a run, and some milliseconds more."""
    changes, seen, end = rng.randint(1, 4), None, time.monotonic() + LONGEST
    while changes and process.poll() is None and time.monotonic() < end:
        kept = seen
        with contextlib.suppress(FileNotFoundError):
            kept = sorted(str(path) for path in copy.journal.directory.glob("*/*"))
        if kept != seen:
            seen, changes = kept, changes - 1
        time.sleep(0.0005)
    time.sleep(rng.choice((0, 0, 0.002, 0.01, 0.05)))
