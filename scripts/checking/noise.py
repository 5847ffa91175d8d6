"""What does noise do to the suite's figures? Makes some on purpose and measures, with it and without.

    python scripts/check.py noise                      quiet and noise: about half an hour
    python scripts/check.py noise --condition noise    noise alone

Noise is one process on every core that by turns does nothing and either burns CPU or streams memory, 1 to 50 ms each:
half of the time. It is there only while something is measured. In both conditions

    A/A        two quick runs of the same code, four processes a cell: each cell's figure in one against the other, and
               what compare.py flags of them, which is wrong
    slowdown   one alias route made 10 % slower: compare.py --run, in turns

Exit code: 0 every promise was kept, 1 one was not, 2 could not measure. Leave the machine alone meanwhile.
"""

import contextlib
import io
import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
from analysis.pairs import compare_named
from analysis.results import load
from analysis.verdicts import FASTER, SLOWER, Settings
from cli import ONLY, Parser, UserError, matcher
from measuring.engine import CODE, RESULTS, ROOT, copy_code, new_id
from measuring.processes import apart, last_line, own_home
from measuring.profiles import MIB
from pages import show

QUIET, NOISE = CONDITIONS = "quiet", "noise"
MACHINE = "noise"  # the name that results are filed under, in copies of the checkout
MEDIAN, NINETY = 0.02, 0.06  # promised of the A/A, as |log ratio|
SHORTEST, LONGEST = 0.001, 0.050  # seconds, of a burst and of a pause
BURN, STREAM = "burn", "stream"
STREAMED = 64 * MIB  # source and target of one process: beyond the caches
PIECE = MIB  # copied between two looks at the clock: a tenth of the shortest burst


# --- noise -----------------------------------------------------------------------------------------------------------


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
    for what, burst, pause in bursts(random.Random(seed)):
        end = time.perf_counter() + burst
        while time.perf_counter() < end:
            if what == STREAM:
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


# --- code of another revision -----------------------------------------------------------------------------------------


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
COUNTED, MADE = 10, {"base": 10, "new": 11}  # calls of a statement: those it is divided by, those it makes on a side

PLANT = f"""

# --- appended by check.py noise to a copy -------------------------------------------------------------------
# One route takes {MADE["new"]} calls for {COUNTED} on one side. Both sides run these same files, so that measurement
# versions are equal, and learn by the name of their directory which side they are.
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


def plant(root: Path) -> None:
    """Make ROUTE slower on one side of the comparisons in turns that the copy ``root`` will run."""
    with (root / "benchmarks" / "conversion.py").open("a", encoding="utf-8") as benchmarks:
        benchmarks.write(PLANT)


def alias_cells() -> str:
    """Regular expression over asv's names of cells: those the slowdown is looked for among."""
    routes = "|".join(map(re.escape, ALIASES))
    return rf"^conversion\.(NumpyToTorch|TorchToNumpy)\..*\('({routes})', 'float32', (8|67108864)\)$"


# --- what is measured ------------------------------------------------------------------------------------------------


def call(root: Path, *arguments: str) -> str:
    """What this Python printed, run in ``root`` with a home of its own; UserError with its words if it failed."""
    home = root.parent / "home"
    home.mkdir(exist_ok=True)
    done = apart([sys.executable, *arguments], root, own_home(home))
    if done.returncode not in (0, 1, 2) or not done.stdout:
        raise UserError(f"{arguments[0]} in {root.name}: {last_line(done.stderr)}")
    return done.stdout


def runs(place: Path, only: str) -> tuple[Path, Path]:
    """Two quick runs of this code, in copies of the checkout; their results."""
    roots = place / "run-1", place / "run-2"
    for root in roots:
        copy_code(ROOT, root)
        command = ["--profile", "quick", "--rounds", "4", "--no-report", "--machine", MACHINE]
        call(root, "scripts/run.py", *command, *(["--only", only] if only else []))
    return roots[0] / RESULTS.relative_to(ROOT), roots[1] / RESULTS.relative_to(ROOT)


def planted(place: Path) -> dict[str, Any]:
    """What compare.py --run says of a slowdown that is there, of which cells around it have none."""
    root = place / "planted"
    copy_code(ROOT, root)
    plant(root)
    command = ["--run", "installed", "installed", "--profile", "quick", "--machine", MACHINE, "--only", alias_cells()]
    return json.loads(call(root, "scripts/compare.py", *command, "--format", "json"))


Finding = tuple[str, bool]  # a line, and whether what it promises was kept


def apart_by(results: tuple[Path, Path]) -> Iterator[Finding]:
    """The A/A of two runs, and of their comparison."""
    tables = [load(path).timed for path in results]
    one, other = (dict(zip(table["cell"], table["seconds"])) for table in tables)
    off = np.array([abs(np.log(one[cell] / other[cell])) for cell in one if cell in other])
    if not len(off):
        raise UserError("two runs of one code have no cell in common")
    for what, value, promise in (
        ("the median cell", float(np.median(off)), MEDIAN),
        ("the 90th percentile", float(np.quantile(off, 0.9)), NINETY),
    ):
        line = (
            f"two runs differ by {show.percent(value, 1)} in {what} of {len(off)} (promised: {show.percent(promise)})"
        )
        yield line, value <= promise
    compared = compare_named(str(results[0]), str(results[1]), RESULTS, None, Settings())
    flags = int(compared.cells["verdict"].isin((SLOWER, FASTER)).sum())
    yield f"their comparison flags {flags} cells (promised: 0)", flags == 0


def found_in(said: Mapping[str, Any]) -> Iterator[Finding]:
    """A planted slowdown, and the cells beside it."""
    have = [cell for cell in said["cells"] if cell["route"] == ROUTE]
    others = [cell for cell in said["cells"] if cell["route"] != ROUTE]
    found = sum(cell["verdict"] == SLOWER for cell in have)
    wrong = sum(cell["verdict"] in (SLOWER, FASTER) for cell in others)
    yield f"a slowdown of 10 % is found in {found} of {len(have)} cells (promised: all)", found == len(have) > 0
    yield f"unchanged cells that are flagged: {wrong} of {len(others)} (promised: 0)", wrong == 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--condition", choices=(*CONDITIONS, "both"), default="both", help="default: both")
    parser.add_argument("--only", metavar="REGEX", default="", help=f"{ONLY} (the slowdown has cells of its own)")
    chosen = parser.parse_args(argv)
    matcher(chosen.only)
    directory, kept = ROOT / ".asv" / "noise" / new_id(), True
    for condition in CONDITIONS if chosen.condition == "both" else (chosen.condition,):
        place = directory / condition
        place.mkdir(parents=True)
        with noise(condition) if condition == NOISE else contextlib.nullcontext():
            results, said = runs(place, chosen.only), planted(place)
        for line, was_kept in (*apart_by(results), *found_in(said)):
            print(f"{condition}: {line}" + ("" if was_kept else ": not kept"), flush=True)
            kept &= was_kept
    print(f"the data is in {os.path.relpath(directory)}")
    return 0 if kept else 1
