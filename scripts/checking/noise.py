"""Noise made on purpose, and what is measured in it and without: runs of one or two codes, a slowdown, comparisons."""

import contextlib
import io
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from cli import UserError, put
from measuring.engine import ROOT
from measuring.interleave import CODE, copy_code
from measuring.processes import apart, duration, last_line, own_home
from measuring.profiles import MIB

CALM, NOISE = CONDITIONS = "calm", "noise"
NEW, BEFORE = "new", "before"
PLANTED, PAIRS = "planted", "pairs"
MACHINE = "noise"  # the name that results are filed under, in copies of the checkout
PROFILE, ROUNDS = "quick", 4
RUNS_BEFORE = 2

# Seconds of each step of the quick profile on a 2-core machine: the estimate shown before anything is measured
ESTIMATES = {
    CALM: {NEW: 150, BEFORE: 140, PLANTED: 250, PAIRS: 30},
    NOISE: {NEW: 320, BEFORE: 240, PLANTED: 450, PAIRS: 30},
}


# --- noise -----------------------------------------------------------------------------------------------------------

SHORTEST, LONGEST = 0.001, 0.050  # seconds, of a burst and of a pause
BURN, STREAM = "burn", "stream"
STREAMED = 64 * MIB  # source and target of one process: beyond the caches
PIECE = MIB  # copied between two looks at the clock: a tenth of the shortest burst


def bursts(rng: random.Random) -> Iterator[tuple[str, float, float]]:
    """What a noisy process does, for ever: (BURN or STREAM, seconds of the burst, seconds of the pause after it)."""
    while True:
        yield rng.choice((BURN, STREAM)), rng.uniform(SHORTEST, LONGEST), rng.uniform(SHORTEST, LONGEST)


def disturb(core: int | None, seed: str) -> None:
    """Make noise until the parent process is gone, on ``core`` where the system can pin a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    if core is not None:
        os.sched_setaffinity(0, {core})
    parent = multiprocessing.parent_process()
    # ones: pages of zeros that nobody wrote could be one page
    source, target = (memoryview(bytearray(b"\1") * (STREAMED // 2)) for _ in range(2))
    places = itertools.cycle(range(0, STREAMED // 2, PIECE))
    for kind, burst, pause in bursts(random.Random(seed)):
        end = time.perf_counter() + burst
        while time.perf_counter() < end:
            if kind == STREAM:
                place = next(places)
                target[place : place + PIECE] = source[place : place + PIECE]
            else:
                sum(range(1000))
        if parent is not None and not parent.is_alive():
            return  # killed before it could end this process
        time.sleep(pause)


@contextlib.contextmanager
def noise(seed: str) -> Iterator[list[BaseProcess]]:
    """Noise on every core that this process may use, while the block runs; the processes that make it.

    The same ``seed`` gives the same bursts. UserError where a process ended before the block did.
    """
    pins = hasattr(os, "sched_getaffinity")
    cores = sorted(os.sched_getaffinity(0)) if pins else [None] * (os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    try:
        for place, core in enumerate(cores):
            process: BaseProcess = context.Process(target=disturb, args=(core, f"{seed} {place}"), daemon=True)
            process.start()
            processes.append(process)
        yield processes
        if not all(process.is_alive() for process in processes):
            raise UserError("a process that makes noise ended early, so this was not measured in noise")
    finally:
        for process in processes:
            process.kill()
            process.join()


# --- code to measure -------------------------------------------------------------------------------------------------


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True)


def revision(name: str) -> str:
    """The commit that ``name`` is, as a hash; UserError where this checkout has no such revision."""
    try:
        done = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except FileNotFoundError:
        raise UserError("--before takes a git revision, and there is no git here") from None
    if done.returncode:
        raise UserError(f"--before {name!r} is no revision of this checkout")
    return done.stdout.decode().strip()


def this_code() -> str:
    """The checkout's commit in short, and whether it has other changes; "" where that cannot be known."""
    with contextlib.suppress(OSError):
        done = git("describe", "--always", "--dirty= with changes", "--exclude=*")
        return done.stdout.decode().strip()
    return ""


def export(commit: str, root: Path, paths: Sequence[str] = CODE) -> None:
    """What a run needs of that commit, or these files and folders of it, into ``root``."""
    archive = git("archive", "--format=zip", commit, "--", *paths)
    if archive.returncode:
        raise UserError(f"cannot export {commit[:8]}: {last_line(archive.stderr.decode())}")
    zipfile.ZipFile(io.BytesIO(archive.stdout)).extractall(root)


# --- a slowdown by construction --------------------------------------------------------------------------------------

ROUTE = "torch.from_numpy(a)"
# that and its like: enough cells for their noise to be known as a family's
ALIASES = (ROUTE, "torch.as_tensor(a)", "t.numpy()", "t.detach().numpy()", "np.asarray(t)")
ALIAS_SIZES = (8, 64 * MIB)
COUNTED, MADE = 10, {"base": 10, "new": 11}  # calls of a statement: those it is divided by, those it makes on a side
SLOWDOWN = MADE["new"] / COUNTED - 1

PLANT = f"""

# --- appended by scripts/check_noise.py to a copy -------------------------------------------------------------------
# One route takes {MADE["new"]} calls for {COUNTED} on one side. Both sides run these same files, so that measurement
# versions are equal, and tell by the name of their directory which side they are.
import pathlib as _pathlib

_MADE = {MADE}[_pathlib.Path(__file__).resolve().parents[1].name.partition("-")[0]]
_unchanged = _Conversion.timeit_convert


def _timeit_convert(self, route, *params):
    statement, names, *calls = _unchanged(self, route, *params)
    if route != {ROUTE!r}:
        return statement, names, *calls
    return "; ".join([statement] * _MADE), names, {COUNTED} * (calls[0] if calls else 1)


_Conversion.timeit_convert = _timeit_convert
"""


def append(root: Path, file: str, code: str) -> None:
    """Add code to a file of benchmarks/ in the copy ``root``."""
    with (root / "benchmarks" / file).open("a", encoding="utf-8") as benchmarks:
        benchmarks.write(code)


def plant(root: Path) -> None:
    """Make ROUTE slower on one side of the interleaved comparisons that the copy ``root`` will run."""
    append(root, "conversion.py", PLANT)


def alias_cells(sizes: Iterable[int] = ALIAS_SIZES) -> str:
    """Regular expression over asv's names of cells: those the slowdown is looked for among."""
    routes, nbytes = "|".join(map(re.escape, ALIASES)), "|".join(map(str, sizes))
    return rf"^conversion\.(NumpyToTorch|TorchToNumpy)\..*\('({routes})', 'float32', ({nbytes})\)$"


# --- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """what: NEW or BEFORE (a run of that code), PLANTED or PAIRS. number: which run of that code, from 1."""

    condition: str
    what: str
    number: int = 0

    @property
    def name(self) -> str:
        return f"{self.condition}/{self.what}" + (f"-{self.number}" if self.number else "")


def steps(conditions: Iterable[str], runs: int, before: bool) -> list[Step]:
    """What is measured, in order.

    Runs of both codes in turns, new before new before new: both A/A span as much time, and the runs of before lie in
    the middle of those that they are compared with.
    """
    planned = []
    for condition in conditions:
        for number in range(1, runs + 1):
            planned.append(Step(condition, NEW, number))
            if before and number <= RUNS_BEFORE:
                planned.append(Step(condition, BEFORE, number))
        planned += [Step(condition, PLANTED), Step(condition, PAIRS)]
    return planned


LOADER = """
import json, sys
from pathlib import Path
sys.path.insert(0, "scripts")
from analysis.results import load
results = load(Path("reports/results"))
table = results.timed
print(json.dumps({
    "cells": dict(zip(table["cell"], table["seconds"])),
    "nbytes": {cell: int(n) for cell, n in zip(table["cell"], table["nbytes"]) if n is not None and n == n},
    "quiet": list(table["cell"][table["quiet"].astype(bool)]),
    "record": results.runs[-1],
}, default=vars))
"""  # run in a copy of the code, since each version says itself what a cell's figure is


class Workplace:
    """The directory of one check: ``plan.json``, copies of the code, and a JSON file for each step that is done."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def start(self, plan: Mapping[str, Any]) -> None:
        copy_code(ROOT, self.directory / "code" / NEW)
        if plan["before"]:
            export(plan["before"], self.directory / "code" / BEFORE)
        (self.directory / "home").mkdir()
        self._write("plan", plan)

    def plan(self) -> dict[str, Any]:
        plan = self._read("plan")
        if plan is None:
            raise UserError(f"--resume {self.directory}: there is nothing to go on with")
        return plan

    def result(self, step: Step) -> Any:
        """What a finished step gave; None before."""
        return self._read(step.name)

    def do(self, step: Step) -> None:
        """Measure what the step measures, and keep what it gave."""
        methods: dict[str, Callable[..., Any]] = {PLANTED: self._planted, PAIRS: self._pairs}
        self._write(step.name, methods.get(step.what, self._run)(step, self.plan()))

    def _run(self, step: Step, plan: Mapping[str, Any]) -> dict[str, Any]:
        """A run: cells and nbytes (cell -> seconds, bytes), calm (cells that ever were), record (run.py's own), seconds
        (of all of it)."""
        root = self.directory / step.name
        copy_code(self.directory / "code" / step.what, root)
        command = ["--profile", PROFILE, "--rounds", str(ROUNDS), "--no-report", "--machine", MACHINE]
        with self._condition(step):
            started = time.monotonic()
            self.call(root, "scripts/run.py", *command, *(["--only", plan["only"]] if plan["only"] else []))
            seconds = time.monotonic() - started
        return {**json.loads(self.call(root, "-c", LOADER)), "seconds": round(seconds, 1)}

    def _planted(self, step: Step, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Both sides in turns by compare.py --run: what it says of four processes a side, and in the end."""
        root = self.directory / step.name
        copy_code(self.directory / "code" / NEW, root)
        plant(root)
        command = ["--run", "installed", "installed", "--profile", PROFILE, "--machine", MACHINE]
        with self._condition(step):
            fresh = self._compare(root, *command, "--only", alias_cells(plan["sizes"]))
        (measured,) = (root / ".asv" / "compare").iterdir()
        for side in MADE:  # away from the second stage's results, which compare.py would find beside them
            shutil.copytree(measured / side / "reports", root / "first" / side / "reports")
        return {"first": self._compare(root, "first/base", "first/new"), "fresh": fresh}

    def _pairs(self, step: Step, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Every two runs of the new code, compared."""
        names = [Step(step.condition, NEW, number).name for number in range(1, plan["runs"] + 1)]
        code = self.directory / "code" / NEW
        return [
            {"pair": pair, **self._compare(code, *(str(self.directory / name) for name in pair))}
            for pair in itertools.combinations(names, 2)
        ]

    def _compare(self, root: Path, *arguments: str) -> dict[str, Any]:
        """compare.py of the code in ``root``: of its JSON, what counts here."""
        said = json.loads(self.call(root, "scripts/compare.py", *arguments, "--format", "json", fine=(0, 1, 2)))
        wanted = ("cell", "route", "nbytes", "verdict", "ratio", "low95", "high95", "base_processes")
        cells = [{name: cell[name] for name in wanted} for cell in said["cells"]]
        return {"exit_code": said["exit_code"], "withheld": said["withheld"], "cells": cells}

    def _condition(self, step: Step) -> contextlib.AbstractContextManager[Any]:
        return noise(step.name) if step.condition == NOISE else contextlib.nullcontext()

    def call(self, root: Path, *arguments: str, fine: Sequence[int] = (0,)) -> str:
        """What this Python printed, run in ``root`` with a home of its own; UserError with its words if it failed."""
        done = apart([sys.executable, *arguments], root, own_home(self.directory / "home"))
        if done.returncode not in fine or not done.stdout:
            raise UserError(f"{arguments[0]} in {root.name}: {last_line(done.stderr)}")
        return done.stdout

    def _write(self, name: str, result: Any) -> None:
        put(self.directory / f"{name}.json", json.dumps(result))

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.directory / f"{name}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None


def measure(place: Workplace, planned: Sequence[Step], restricted: bool) -> None:
    """Do the steps that are not done, with the time left after each."""
    left = [step for step in planned if place.result(step) is None]
    expected = {step: ESTIMATES[step.condition][step.what] for step in left}
    about = duration(sum(expected.values()))
    print(
        f"{len(left)} of {len(planned)} steps to do, in {os.path.relpath(place.directory)}: about {about} on a 2-core "
        f"machine{', less with fewer cells' if restricted else ''}",
        flush=True,
    )
    if left and hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
        print(
            f"something else runs here (load average {os.getloadavg()[0]:.1f}): what is called calm is not", flush=True
        )
    taken = estimated = 0.0
    for number, step in enumerate(left, 1):
        started = time.monotonic()
        place.do(step)
        seconds = time.monotonic() - started
        taken, estimated = taken + seconds, estimated + expected[step]
        rest = sum(expected[later] for later in left[number:]) * taken / estimated
        print(f"{number}/{len(left)} {step.name}: {seconds:.0f} s; about {duration(rest)} left", flush=True)
