"""What does noise do to the suite's figures? Measure with and without deliberate noise.

    python scripts/check.py noise                      quiet and noise: about half an hour
    python scripts/check.py noise --condition noise    noise alone

Noise is one process per core. It is busy for half of the time, in bursts of 1 to 50 ms that burn CPU or stream memory,
and runs only while something is measured. Under both conditions this check makes two comparisons:

    A/A        two quick runs of the same code, four processes per result: how far their figures differ, and what
               compare.py reports (every reported change is a false alarm)
    slowdown   one alias route made 10 % slower: compare.py --run, in turns

Exit status: 0 all promises kept, 1 not all, 2 could not measure. Do not use the machine meanwhile.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from analysis.comparison import compare_named
from analysis.results import load
from analysis.verdicts import FASTER, SLOWER, Settings
from cli import ONLY, RESULTS, ROOT, Parser, UserError
from measuring.engine import copy_code, new_id
from measuring.processes import own_home, session
from pages import show

QUIET, NOISE = CONDITIONS = "quiet", "noise"
MACHINE = "checked"  # the name that results are filed under, in copies of the checkout
MEDIAN, NINETY = 0.02, 0.06  # promised of the A/A, as |log ratio|

# One process of noise, on the core that is its argument: bursts and pauses of 1 to 50 ms. What it streams is ones, for
# pages of zeros that nobody wrote could be one page, and beyond the caches; a piece takes a tenth of the shortest burst
DISTURB = """
import itertools, os, random, sys, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {int(sys.argv[1])})
rng, half, piece = random.Random(sys.argv[1]), 2**25, 2**20
source, target = (memoryview(bytearray(b"\\1") * half) for _ in range(2))
places = itertools.cycle(range(0, half, piece))
while True:
    streams, end = rng.random() < 0.5, time.perf_counter() + rng.uniform(0.001, 0.050)
    while time.perf_counter() < end:
        if streams:
            place = next(places)
            target[place : place + piece] = source[place : place + piece]
        else:
            sum(range(1000))
    time.sleep(rng.uniform(0.001, 0.050))
"""


@contextlib.contextmanager
def noise() -> Iterator[list[int]]:
    """Noise on every core that this process may use, while the block runs; the processes that make it.

    UserError where one ended before the block did.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    with contextlib.ExitStack() as stack:
        commands = [[sys.executable, "-c", DISTURB, str(core)] for core in cores]
        processes = [stack.enter_context(session(command, ROOT)) for command in commands]
        yield [process.pid for process in processes]
        if any(process.poll() is not None for process in processes):
            raise UserError("a process that makes noise ended early, so this was not measured in noise")


# --- copies of the suite, of which one side of a comparison is another ------------------------------------------------

SIDE = """

# --- appended by check.py to a copy. Both sides run these same files, so that the versions of the benchmarks are equal,
# and learn by the name of their directory which side they are
import pathlib as _pathlib

_SIDE = _pathlib.Path(__file__).resolve().parents[1].name.partition("-")[0]
"""


def call(root: Path, *arguments: str) -> str:
    """What this Python printed, run in ``root`` with a home of its own; UserError if it failed, and has said why."""
    home = root.parent / "home"
    home.mkdir(exist_ok=True)
    command = [sys.executable, *arguments, "--machine", MACHINE]
    with session(command, root, own_home(home), stdout=subprocess.PIPE, text=True) as process:
        printed, _ = process.communicate()
    if process.returncode not in (0, 1, 2) or not printed:
        raise UserError(f"{arguments[0]} in {root.name} ended with exit status {process.returncode}")
    return printed


def plant(root: Path, file: str, code: str) -> None:
    """Append to a file of the benchmarks in the copy ``root`` what makes one side of its comparisons another."""
    with (root / "benchmarks" / file).open("a", encoding="utf-8") as benchmarks:
        benchmarks.write(SIDE + code)


def in_turns(place: Path, file: str, code: str, only: str, *options: str) -> Any:
    """What compare.py --run says of a copy of this suite against itself with ``code`` planted; see ``plant``."""
    root = place / "planted"
    copy_code(ROOT, root)
    plant(root, file, code)
    command = ["--run", "installed", "installed", "--only", only, "--format", "json", *options]
    return json.loads(call(root, "scripts/compare.py", *command))


ROUTE = "torch.from_numpy(a)"
# that and its like: enough cells for their noise to be known as a family's
ALIASES = (ROUTE, "torch.as_tensor(a)", "t.numpy()", "t.detach().numpy()", "np.asarray(t)")
ALIKE = rf"^conversion\.\w+\.\w+\('({'|'.join(map(re.escape, ALIASES))})', 'float32', (8|67108864)\)$"
# One route takes eleven calls for ten on one side
SLOWDOWN = f"""
_unchanged = _Conversion.timeit_convert


def _timeit_convert(self, route, *params):
    statement, names, *calls = _unchanged(self, route, *params)
    if route != {ROUTE!r}:
        return statement, names, *calls
    return "; ".join([statement] * (11 if _SIDE == "new" else 10)), names, 10 * (calls[0] if calls else 1)


_Conversion.timeit_convert = _timeit_convert
"""


# --- what is promised -------------------------------------------------------------------------------------------------


def runs(place: Path, only: str) -> list[Path]:
    """Two quick runs of this code, in copies of the checkout; their results."""
    roots = [place / "run-1", place / "run-2"]
    for root in roots:
        copy_code(ROOT, root)
        call(root, "scripts/run.py", "--rounds", "4", "--no-report", *(["--only", only] if only else []))
    return [root / RESULTS.relative_to(ROOT) for root in roots]


Finding = tuple[str, bool]  # a line, and whether what it promises was kept


def apart_by(results: Sequence[Path]) -> Iterator[Finding]:
    """The A/A of two runs, and of their comparison."""
    one, other = (load(path).timed.set_index("cell")["seconds"] for path in results)
    off = np.log(one / other).abs().dropna()
    if off.empty:
        raise UserError("two runs of one code have no cell in common")
    shares = {"the median cell": (0.5, MEDIAN), "the 90th percentile": (0.9, NINETY)}
    for what, (share, promise) in shares.items():
        value = off.quantile(share)
        line = f"two runs differ by {show.percent(value, 1)} in {what} of {len(off)}"
        yield f"{line} (promised: {show.percent(promise)})", value <= promise
    compared = compare_named(str(results[0]), str(results[1]), RESULTS, None, Settings())
    flags = int(compared.cells["verdict"].isin((SLOWER, FASTER)).sum())
    yield f"their comparison flags {flags} cells (promised: 0)", flags == 0


def found_in(said: Mapping[str, Any]) -> Iterator[Finding]:
    """A planted slowdown, and the cells beside it."""
    have, others = ([cell["verdict"] for cell in said["cells"] if (cell["route"] == ROUTE) == it] for it in (1, 0))
    found, wrong = have.count(SLOWER), sum(verdict in (SLOWER, FASTER) for verdict in others)
    yield f"a slowdown of 10 % is found in {found} of {len(have)} cells (promised: all)", found == len(have) > 0
    yield f"unchanged cells that are flagged: {wrong} of {len(others)} (promised: 0)", wrong == 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--condition", choices=(*CONDITIONS, "both"), default="both", help="default: both")
    parser.option("--only REGEX", f"{ONLY} (the slowdown has cells of its own)", default="")
    chosen = parser.parse_args(argv)
    directory, kept = ROOT / ".asv" / "noise" / new_id(), True
    for condition in CONDITIONS if chosen.condition == "both" else (chosen.condition,):
        place = directory / condition
        with noise() if condition == NOISE else contextlib.nullcontext():
            results = runs(place, chosen.only)
            said = in_turns(place, "conversion.py", SLOWDOWN, ALIKE, "--profile", "quick")
        for line, was_kept in (*apart_by(results), *found_in(said)):
            print(f"{condition}: {line}" + ("" if was_kept else ": not kept"), flush=True)
            kept &= was_kept
    print(f"the data is in {os.path.relpath(directory)}")
    return 0 if kept else 1
