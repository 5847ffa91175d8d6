"""Runs that are killed, started twice, or starved of disk, and bad input: what was promised, and what fell short."""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from analysis.results import load, read_runs
from cli import UserError
from measuring.engine import ROOT
from measuring.interleave import copy_code
from measuring.processes import duration, own_home
from measuring.state import State
from records import calm

MACHINE, ROUNDS = "robust", 2
COMMAND = ["scripts/run.py", "--only", r"limits\.Floor", "--machine", MACHINE, "--no-report"]
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL")
LONGEST = 300.0  # seconds that any of it may take
ORPHAN = 8.0  # seconds after which nothing may run any more
DISK = 24 * 2**20  # bytes of the disk that fills up


class FellShort(Exception):
    """What was promised and did not hold; the text says which."""


class Copy:
    """A copy of the code to measure in, with a home of its own.

    cache: directory of compiled Python, which copies may share: to compile torch takes half of a short run.
    """

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self.cache = root / "checkout", cache
        self.home = root / "home"
        self.home.mkdir(parents=True)
        copy_code(ROOT, self.root)

    @property
    def state(self) -> State:
        return State(self.root / ".asv" / "runs" / MACHINE)

    @property
    def results(self) -> Path:
        return self.root / "reports" / "results"

    def start(self, *more: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *COMMAND, *more],
            cwd=self.root,
            env={**own_home(self.home), "PYTHONPYCACHEPREFIX": str(self.cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def left(self) -> list[int]:
        """Processes that work in the copy."""
        processes = []
        for path in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                if str(os.readlink(path)).startswith(str(self.root)):
                    processes.append(int(path.parent.name))
        return processes

    def check_nothing_runs(self) -> None:
        until = time.monotonic() + ORPHAN
        while self.left():
            if time.monotonic() > until:
                for process in self.left():
                    with contextlib.suppress(OSError):
                        os.kill(process, signal.SIGKILL)
                raise FellShort(f"something ran on for {ORPHAN:.0f} s")
            time.sleep(0.05)

    def check_whole(self, rounds: int = ROUNDS) -> None:
        """Every cell has these rounds, once each; asv's file, the samples and one record tell of the same."""
        (record_file,) = self.results.glob(f"{MACHINE}/*.jsonl")
        counts = [record.rounds for record in read_runs(record_file)]
        if counts != [rounds]:
            raise FellShort(f"records of {counts} rounds")
        lines = calm.read(record_file.with_suffix(calm.SUFFIX))
        cells = {calm.name_of(line) for line in lines}
        for cell in cells:
            of_cell = [line for line in lines if calm.name_of(line) == cell]
            if {line["round"] for line in of_cell} != set(range(rounds)) or len({line["run"] for line in of_cell}) != 1:
                raise FellShort(f"{cell} has the rounds {[line['round'] for line in of_cell]}")
        if set(load(self.results).processes["cell"]) != cells:
            raise FellShort("asv's file has other cells than the samples")
        if list(self.root.rglob("*.new")) or self.state.load() is not None:
            raise FellShort("something half done is left")


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code, and what it complained of; FellShort where it does not end."""
    try:
        _, err = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise FellShort(f"still there after {LONGEST:.0f} s") from None
    return process.returncode, err


def resumed(copy: Copy) -> None:
    code, err = ended(copy.start("--resume", "--rounds", str(ROUNDS)))
    if code:
        raise FellShort(f"--resume ended with {code}: {err.strip()[-300:]}")


def undisturbed(cache: Path) -> float:
    """Seconds that a run takes which nobody ends, what all import compiled; UserError where it fails."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(cache)}
    subprocess.run([sys.executable, "-c", "import asv.main, torch"], env=environment, capture_output=True)
    with tempfile.TemporaryDirectory(prefix="robust-") as place:
        copy, began = Copy(Path(place), cache), time.monotonic()
        code, err = ended(copy.start("--rounds", str(ROUNDS)))
        if code:
            raise UserError(f"a run that nobody kills ends with {code}: {err.strip()[-300:]}")
        return time.monotonic() - began


def kill(copy: Copy, rng: random.Random, typical: float) -> None:
    """End a run somewhere, and go on with it. ``typical``: seconds that one takes."""
    process = copy.start("--rounds", str(ROUNDS))
    name = rng.choice(SIGNALS)
    if rng.random() < 0.5:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, typical))
    else:
        aimed(copy, process, rng)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(getattr(signal, name))
    code, err = ended(process)
    copy.check_nothing_runs()
    if code not in (0, -signal.SIGKILL, 130, 128 + signal.SIGTERM, 128 + signal.SIGHUP, *early(name)):
        raise FellShort(f"{name}: ended with {code}: {err.strip()[-300:]}")
    if err.count("\n") > 2 and code not in early(name):  # Python itself says where it was while it still imported
        raise FellShort(f"{name}: {err.count(chr(10))} lines of complaint: {err.strip()[-300:]}")
    if code or not list(copy.results.glob(f"{MACHINE}/*.jsonl")):
        resumed(copy)
    copy.check_whole()


def early(name: str) -> list[int]:
    """Exit codes of a Python that a signal ended before it had begun to heed it."""
    return [-getattr(signal, name), 1] if name == "SIGINT" else [-getattr(signal, name)]


def aimed(copy: Copy, process: "subprocess.Popen[str]", rng: random.Random) -> None:
    """Wait for a change of what is kept, the first, second, ... of a run, and some milliseconds more."""
    changes, seen, until = rng.randint(1, 4), None, time.monotonic() + LONGEST
    while changes and process.poll() is None and time.monotonic() < until:
        kept = sorted(path.name for path in copy.state.directory.glob("*")) if copy.state.directory.is_dir() else []
        if kept != seen:
            seen, changes = kept, changes - 1
        time.sleep(0.0005)
    time.sleep(rng.choice((0, 0, 0.002, 0.01, 0.05)))


def pair(copy: Copy) -> None:
    """Two at once: one of them measures."""
    both = [copy.start("--rounds", "1") for _ in range(2)]
    (code, _), (other_code, complaint) = sorted(ended(process) for process in both)
    if code != 0 or other_code != 2 or "is being measured already, by process" not in complaint:
        raise FellShort(f"exit codes {code} and {other_code}: {complaint.strip()[-300:]}")
    copy.check_whole(1)


@contextlib.contextmanager
def small_disk(root: Path) -> Iterator[Path]:
    """A file system of DISK bytes; UserError where this user may not mount one."""
    place = root / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        raise UserError("a small disk cannot be mounted here (not root, or no tmpfs)")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True)


def full(root: Path, cache: Path, rng: random.Random) -> None:
    """The disk that the checkout lies on fills up in the middle of a run."""
    with small_disk(root) as disk:
        copy = Copy(disk, cache)
        process = copy.start("--rounds", str(ROUNDS))
        aimed(copy, process, rng)
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        code, err = ended(process)
        copy.check_nothing_runs()
        if code not in (0, 2) or len(err.splitlines()) > 2:
            raise FellShort(f"full disk: ended with {code}: {err.strip()[-300:]}")
        filler.unlink()
        if code:
            resumed(copy)
        copy.check_whole()


def inputs(count: int) -> tuple[int, list[str]]:
    """How many inputs were tried, and what fell short."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/test_fuzz.py"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "FUZZ_EXAMPLES": str(count)}, capture_output=True, text=True
    )
    if done.returncode not in (0, 1):
        raise UserError(f"the inputs could not be tried: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
    errors = re.findall(r"^E +(\S.*)$", done.stdout, re.MULTILINE)
    return count, errors[:1] if done.returncode else []


def campaign(title: str, count: int, attempt: Callable[[Path], None]) -> list[str]:
    """Try it so many times, each in a directory of its own; what fell short."""
    short, began = [], time.monotonic()
    for number in range(1, count + 1):
        with tempfile.TemporaryDirectory(prefix="robust-", ignore_cleanup_errors=True) as place:
            try:
                attempt(Path(place))
            except FellShort as why:
                short.append(str(why))
                print(f"{title} {number}: {why}", flush=True)
        left = (time.monotonic() - began) / number * (count - number)
        if number % 10 == 0 or number == count:
            print(f"{title}: {number} tried, {len(short)} fell short; about {duration(left)} left", flush=True)
    return short
