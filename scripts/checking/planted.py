"""check.py noise, check.py timing: plant a change in a copy of the suite, and see what its own
comparison reports."""

import contextlib
import inspect
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from analysis.comparison import compare_by_name
from analysis.results import load
from analysis.verdicts import FASTER, INCONCLUSIVE, SLOWER, Settings
from cli import ONLY, RESULTS, ROOT, Parser, UserError, size
from measuring.engine import copy_code, new_id
from measuring.processes import os_session
from pages import show
from pages.show import percent
from pandas import DataFrame, Series

Report = Mapping[str, Any]  # of compare.py --format json
MACHINE = "checked"  # name of the machine in copies of the checkout

# --- copies of the suite in which the two sides of a comparison differ ----------------------------

SIDE = """

# --- appended by check.py to a copy. Both sides run these same files, so that the versions of the
# benchmarks are equal,
# and learn by the name of their directory which side they are
import pathlib as _pathlib

_CHECKOUT = str(_pathlib.Path(__file__).resolve()).rpartition("/benchmarks/")[0]
_SIDE = _CHECKOUT.rpartition("/")[2].partition("-")[0]
"""


def variables_with_home(home: Path) -> dict[str, str]:
    """Environment variables with another home directory, and none of git or of this suite."""
    own = ("GIT_", "CONVERSION_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**inherited, "HOME": str(home)}


def call(root: Path, *arguments: str, stdout: int = subprocess.PIPE) -> str:
    """Run this Python in ``root`` and return its output, "" if that goes to another file
    ``stdout``. SystemExit if it refused, and has printed why; UserError if it failed otherwise.

    It has a home directory of its own, for the machines of asv and the settings of git, and no
    variables of git or of this suite.
    """
    home = root.parent / "home"
    home.mkdir(exist_ok=True)
    command = [sys.executable, *arguments, "--machine", MACHINE]
    variables = variables_with_home(home)
    with os_session(command, root, variables, stdout=stdout) as process:
        printed, _ = process.communicate()
    if process.returncode == 2 and not printed:
        raise SystemExit(2)
    # a comparison with verdicts has its own exit status
    if process.returncode not in ((0, 1, 2) if printed else (0,)):
        raise UserError(
            f"{arguments[0]} in {root.name} ended with exit status {process.returncode}"
        )
    return printed or ""


def plant(root: Path, file: str, code: str) -> None:
    """Append ``code``, which makes the two sides differ, to a file of the benchmarks in the copy
    ``root``."""
    path = root / "benchmarks" / file
    path.write_text(path.read_text(encoding="utf-8") + SIDE + code, encoding="utf-8")


def compare_with_itself(place: Path, file: str, code: str, only: str, *options: str) -> Report:
    """Plant ``code`` in a copy of this suite, compare it with itself by compare.py --run, and
    return the report."""
    root = place / "planted"
    copy_code(ROOT, root)
    plant(root, file, code)
    command = ["--run", "installed", "installed", "--only", only, "--format", "json", *options]
    report: Report = json.loads(call(root, "scripts/compare.py", *command))
    return report


# --- noise ----------------------------------------------------------------------------------------

QUIET, NOISE = "quiet", "noise"
CONDITIONS = (QUIET, NOISE)
# Promises for the A/A: limits on quantiles of |log ratio|
PROMISED = (("the median cell", 0.5, 0.02), ("the 90th percentile", 0.9, 0.06))
SMALL_BYTES = 2**20
# One process of noise, on the core given as its argument, with bursts and pauses of 1 to 50 ms. Its
# buffers exceed the caches and hold ones: untouched pages of zeros could share one page. A piece
# takes a tenth of the shortest burst
NOISE_PROGRAM = """
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
def disturb_cores() -> Iterator[list[int]]:
    """Make noise on every core that this process may use while the block runs. Yield the ids of its
    processes.

    UserError if one of them ended before the block did.
    """
    cores = (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else range(os.cpu_count() or 1)
    )
    with contextlib.ExitStack() as stack:
        commands = [[sys.executable, "-c", NOISE_PROGRAM, str(core)] for core in cores]
        processes = [stack.enter_context(os_session(command, ROOT)) for command in commands]
        yield [process.pid for process in processes]
        if any(process.poll() is not None for process in processes):
            raise UserError(
                "a process that makes noise ended early, so this was not measured in noise"
            )


ROUTE = "torch.from_numpy(a)"
# Similar routes, too: their cells are enough to estimate the noise of a family
ALIASES = (ROUTE, "torch.as_tensor(a)", "t.numpy()", "t.detach().numpy()", "np.asarray(t)")
CELLS_OF_ALIASES = (
    rf"^conversion\.\w+\.\w+\('({'|'.join(map(re.escape, ALIASES))})', 'float32', (8|67108864)\)$"
)


def repeat_calls(route: str, base: int, new: int) -> str:
    """Return code to plant in conversion.py: ``new`` calls of a route on one side, timed as the
    ``base`` calls of the other.

    Both sides run the same code, and only the length of a range differs: 34 calls in a row in place
    of 33 let fresh copies of 1 MiB lie elsewhere, and take a fifth longer in some processes.
    """
    return f"""
_unchanged = _Conversion.timeit_convert


def _timeit_convert(self, route, dtype, nbytes):  # asv names parameters as the method does
    statement, names, *calls = _unchanged(self, route, dtype, nbytes)
    if route != {route!r}:
        return statement, names, *calls
    repeats = range({new} if _SIDE == "new" else {base})
    statement = f"for _ in repeats: {{statement}}"
    return statement, {{**names, "repeats": repeats}}, {base} * (calls[0] if calls else 1)


_Conversion.timeit_convert = _timeit_convert
"""


SLOWDOWN = repeat_calls(ROUTE, 10, 11)


def measure_twice(place: Path, only: str) -> list[Path]:
    """Make two quick runs of this code in copies of the checkout, with their progress on stderr.
    Return their results."""
    command = ["scripts/run.py", "--rounds", "4", "--no-race", "--no-report"]
    if only:
        command += ["--only", only]
    roots = [place / "run-1", place / "run-2"]
    for root in roots:
        copy_code(ROOT, root)
        call(root, *command, stdout=sys.stderr.fileno())
    return [root / RESULTS.relative_to(ROOT) for root in roots]


Finding = tuple[str, bool]  # a line, and whether its promise was kept


def differences(results: Sequence[Path]) -> Iterator[Finding]:
    """The A/A of two runs and of their comparison, also of small sizes alone, which use no cache
    shared with others."""
    first, second = (load(path).timed.set_index("cell") for path in results)
    log_ratios = np.log(first["seconds"] / second["seconds"]).abs().dropna()
    if log_ratios.empty:
        raise UserError("two runs of one code have no cell in common")
    small = log_ratios[first["nbytes"].reindex(log_ratios.index) <= SMALL_BYTES]
    for cells, limit in ((log_ratios, ""), (small, f" of up to {size(SMALL_BYTES)}")):
        for quantile, share, promise in PROMISED if len(cells) else ():
            value = cells.quantile(share)
            of_cells = f"in {quantile} of {len(cells)}{limit} (promised: {percent(promise)})"
            yield f"two runs differ by {percent(value, 1)} {of_cells}", value <= promise
    compared = compare_by_name(str(results[0]), str(results[1]), RESULTS, None, Settings())
    flags = compared.counts[SLOWER] + compared.counts[FASTER]
    yield f"their comparison flags {flags} cells (promised: 0)", flags == 0


def judge_slowdown(report: Report) -> Iterator[Finding]:
    """Report whether the planted slowdown was found, and how many unchanged cells were flagged."""
    cells = DataFrame(report["cells"], columns=["route", "verdict"])
    is_slowed = cells["route"] == ROUTE
    slowed, unchanged = cells["verdict"][is_slowed], cells["verdict"][~is_slowed]
    detected = int((slowed == SLOWER).sum())
    flags = int(unchanged.isin((SLOWER, FASTER)).sum())
    yield (
        f"a slowdown of 10 % is found in {detected} of {len(slowed)} cells (promised: all)",
        detected == len(slowed) > 0,
    )
    yield (
        f"unchanged cells that are flagged: {flags} of {len(unchanged)} (promised: 0)",
        flags == 0,
    )


def noise(argv: Sequence[str]) -> int:
    """What does noise do to the suite's figures? Measure with and without deliberate noise.

        python scripts/check.py noise                      quiet and noise: about half an hour
        python scripts/check.py noise --condition noise    noise alone

    Noise is one process per core. It is busy for half of the time, in bursts of 1 to 50 ms that
    burn CPU or stream memory, and runs only while something is measured. Under both conditions this
    check makes two comparisons:

        A/A        two quick runs of the same code, four processes per result: how far their figures
                   differ, and what compare.py reports (every reported change is a false alarm)
        slowdown   one alias route made 10 % slower: compare.py --run, in turns

    Exit status: 0 all promises kept, 1 not all, 2 could not measure. Do not use the machine
    meanwhile.
    """
    parser = Parser(inspect.getdoc(noise))
    parser.add_argument(
        "--condition", choices=(*CONDITIONS, "both"), default="both", help="default: both"
    )
    parser.option("--only NAME", f"{ONLY} (the slowdown has cells of its own)", default="")
    args = parser.parse_args(argv)
    directory = ROOT / ".asv" / "noise" / new_id()
    status = 0
    for condition in CONDITIONS if args.condition == "both" else (args.condition,):
        place = directory / condition
        with disturb_cores() if condition == NOISE else contextlib.nullcontext():
            results = measure_twice(place, args.only)
            report = compare_with_itself(
                place, "conversion.py", SLOWDOWN, CELLS_OF_ALIASES, "--profile", "quick"
            )
        for line, is_kept in (*differences(results), *judge_slowdown(report)):
            print(f"{condition}: {line}{'' if is_kept else ': not kept'}", flush=True)
            status |= not is_kept
    print(f"the data is in {os.path.relpath(directory)}")
    return status


# --- timing ---------------------------------------------------------------------------------------

CELLS = (
    r"^conversion\.(NumpyToTorch|TorchToNumpy)\..*'float32', (8|4096|1048576|16777216|67108864)\)$"
)
MAX_DEVIATION = 0.05  # of a cell
MAX_MEDIAN_DEVIATION = 0.02
LIMIT_TEXT = f"{MAX_DEVIATION:.0%}"
CONFIDENCE = 0.99  # of the interval of the median cell
MAX_NOISY_SHARE = 0.5  # of the cells, whose deviation is not known to MAX_DEVIATION
MIN_CELLS = 10  # the median of fewer is not judged

# torch's Timer makes two or more calls before it times any, which is costly if a call takes a
# second
TORCH = """
if _SIDE == "base":
    from types import SimpleNamespace as _Names

    from torch.utils import benchmark as _benchmark

    class _Timer:
        def __init__(self, statement, globals, timer):
            self.timer = _benchmark.Timer(statement, globals=globals, num_threads=1)

        def timeit(self, number):
            few = number == 1
            timer = self.timer
            run = timer.blocked_autorange(min_run_time=0) if few else timer.timeit(number)
            return run.raw_times[0] / run.number_per_run * number

    def _longer(self, warm_up=timing.Timing.warm_up):
        number = warm_up(self)
        for _ in range(self.count):
            self.timer.timeit(number)
        return number

    timeit, timing.Timing.warm_up = _Names(Timer=_Timer), _longer
"""


def median_interval(effects: "Series[float]") -> tuple[float, float]:
    """The confidence interval of the median of all such cells, in log units; unbounded for few
    cells."""
    from scipy.stats import quantile_test  # scipy.stats takes half a second to import

    if len(effects) < MIN_CELLS:
        return -math.inf, math.inf
    low, high = quantile_test(effects, p=0.5).confidence_interval(CONFIDENCE)
    return float(low), float(high)


def judge_timing(report: Report) -> tuple[DataFrame, list[str], list[str]]:
    """Return the cells of a comparison (suite time / torch time), the signs of bias, and those of
    too much noise."""
    cells = DataFrame(report["cells"]).dropna(subset="ratio")
    if cells.empty:
        raise UserError("no cell was timed on both sides")
    biased = cells["verdict"].isin((SLOWER, FASTER)).sum()
    noisy = (cells["verdict"] == INCONCLUSIVE).sum()
    bias, noise = [], []
    if biased:
        bias.append(f"{biased} of {len(cells)} cells deviate by more than {LIMIT_TEXT}")
    if noisy > MAX_NOISY_SHARE * len(cells):
        noise.append(f"a bias of {LIMIT_TEXT} could hide in {noisy} of {len(cells)} cells")
    effects = np.log(cells["ratio"].astype(float))
    low, high = median_interval(effects)
    if 2 * MAX_MEDIAN_DEVIATION < high - low < math.inf:
        noise.append(f"the median is known to ±{(high - low) / 2:.1%} only")
    groups = {"": effects}
    groups |= {f" at {nbytes} bytes": group for nbytes, group in effects.groupby(cells["nbytes"])}
    for place, group in groups.items():
        low, high = median_interval(group)
        if max(low, -high) > math.log1p(MAX_MEDIAN_DEVIATION):
            bias.append(f"the median{place} is {math.exp(group.median()):.3f}")
    return cells, bias, noise


def timing(argv: Sequence[str]) -> int:
    """Is the suite honest on this machine? Compare it with torch.utils.benchmark, and separate bias
    from noise.

        python scripts/check.py timing                     every conversion of float32, at up to
                                                           five sizes
        python scripts/check.py timing --only from_numpy   those of some routes, in any dtype and
                                                           size

    compare.py --run measures two copies of the suite in turns, four processes a side and more where
    it is close. In one of them a torch.utils.benchmark.Timer takes the samples, after a warm-up
    that is longer by as many samples as a process takes. Sources, processes, probes and the choice
    of quiet samples are the same on both sides. So a difference is one of the suite's loop, its
    clock, its setup or its warm-up. Noise is known as in every comparison, by A/A, too.

    Exit code 1 is bias: a cell differs by more than 5 % beyond its noise, or the median cell, of
    all or of one size, by more than 2 % beyond its error. Exit code 2 is too noisy to decide: a
    bias of 5 % could hide in more than half of the cells, or one of 2 % in the median cell.
    Otherwise 0.
    """
    parser = Parser(inspect.getdoc(timing))
    parser.add_argument("--only", metavar="NAME", default=CELLS, help=ONLY)
    args = parser.parse_args(argv)
    place = ROOT / ".asv" / "timing" / new_id()
    # "no change" is a deviation below MAX_DEVIATION. A comparison requires --equivalence to exceed
    # --min-effect
    margins = ["--min-effect", f"{MAX_DEVIATION:.1%}"]
    margins += ["--equivalence", f"{MAX_DEVIATION + 0.001:.1%}", "--profile", "standard"]
    report = compare_with_itself(place, "core/statement.py", TORCH, args.only, *margins)
    cells, bias, noise = judge_timing(report)
    print_cells(cells)
    judged = cells[cells["verdict"] != INCONCLUSIVE]
    line = f"\nsuite against torch.utils.benchmark: {len(judged)} of {len(cells)} cells decided"
    if len(judged):
        deviations = (judged["ratio"].astype(float) - 1).abs()
        median, largest = deviations.median(), deviations.max()
        line += f"; median deviation {percent(median, 1)}, maximum {percent(largest, 1)}"
    print(line)
    if bias:
        print(f"bias: {'; '.join(bias)}")
        return 1
    if noise:
        print(
            f"too noisy to decide: {'; '.join(noise)}: "
            "try again when the machine has nothing else to do"
        )
        return 2
    return 0


def print_cells(cells: DataFrame) -> None:
    """Print the cells of a comparison of the suite with torch's Timer."""
    titles = {
        "nbytes": "size",
        "new_seconds": "suite",
        "base_seconds": "torch",
        "ratio": "suite/torch",
    }
    table = cells[["route", *titles, "low95", "high95", "verdict"]].astype({"nbytes": int})
    formatters = {
        "size": show.size,
        "suite": show.seconds,
        "torch": show.seconds,
        "route": "{:44}".format,
    }
    print(
        table.rename(columns=titles).to_string(
            index=False, formatters=formatters, float_format="{:.3f}".format, na_rep="–"
        )
    )
