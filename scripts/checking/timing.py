"""Is the suite honest on this machine? Compare it with torch.utils.benchmark, and separate bias from noise.

    python scripts/check.py timing                 every conversion route at five sizes: about 8 minutes
    python scripts/check.py timing --only from_numpy --sizes 8,4096

Each cell is measured in processes of its own: four unless --processes says otherwise, two where a call takes 0.3 s. A
process makes the source and times the same expression on it in three ways:

    suite/torch  as asv would: the benchmark's whole run() in a fresh process, with its own warm-up, probes and retakes
    block/torch  in short blocks that alternate with torch's: one sample as the suite takes it
    torch/torch  the same blocks timed by two torch.utils.benchmark.Timers: torch against itself, the A/A

A block of torch's is what Timer(expression, num_threads=1) reads of as many calls as the suite makes for a sample. The
first ratio sees whatever the suite does; the second, free of drift, says whether its loop and clock are at fault.

All of it stands between probes, and only what was quiet by all probes of the check counts. Like is compared with like:
each reading is the 10 % quantile, which is the suite's figure (blocked_autorange shows the median of its blocks). A
deviation is the mean over processes of the log ratio within a process. What noise may make of it is learnt from the
spread over processes and from torch against itself, in this cell and in all of its size.

Exit code 1 is bias: a cell deviates by more than 5 % beyond its noise, or the median cell, of all or of one size, by
more than 2 % beyond its error. Exit code 2 is too noisy to decide: noise could hide 5 % in more than half of the cells
(they are marked ?), or 2 % in the median cell. Otherwise 0.
"""

import importlib
import itertools
import os
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cli import ONLY, Parser, UserError, matcher
from measuring.checkup import benchmark_of, figure, in_child
from measuring.processes import duration
from measuring.profiles import KIB, MIB
from store.records import Line, name_of

from benchmarks.probes import PATIENCE_VARIABLE, Watch
from benchmarks.timing import UNDISTURBED, Timing

PATIENCE = 120.0  # seconds that all processes wait for quiet together: a busy machine adds as much
BLOCK_SECONDS = 0.6  # that the blocks of one process take at most, unless a single block of each takes longer
SLOW, SLOW_PROCESSES = 0.3, 2  # seconds a call from which so many processes do: routes that go by Python's numbers
SIZES = (8, 4 * KIB, MIB, 16 * MIB, 64 * MIB)
BENCHMARKS = ("conversion.NumpyToTorch.timeit_convert", "conversion.TorchToNumpy.timeit_convert")
DTYPE = "float32"
SUITE, TORCH, AGAIN = "suite", "torch", "torch again"  # whose block it is


@dataclass
class Cell:
    """A cell and what was measured of it. processes: the two lines of each, see ``measure``."""

    benchmark: Any
    params: tuple
    processes: list[list[Line]] = field(default_factory=list)
    skipped: bool = False

    @property
    def slow(self) -> bool:
        """Whether one call takes so long that SLOW_PROCESSES must do."""
        return any(statistics.median(whole["seconds"]) > SLOW for whole, _ in self.processes)

    @property
    def name(self) -> str:
        """As asv has it."""
        return name_of({"benchmark": self.benchmark.name, "params": [*map(repr, self.params)]})

    @property
    def route(self) -> str:
        return self.params[0]

    @property
    def nbytes(self) -> int:
        return self.params[2]


def sizes_of(text: str) -> list[int]:
    """Bytes that a user typed, each once; UserError where they are none."""
    try:
        return list(dict.fromkeys(int(size) for size in text.split(",")))
    except ValueError:
        raise UserError(f"--sizes {text!r}: takes bytes, separated by commas") from None


def find_cells(only: str, sizes: Sequence[int]) -> list[Cell]:
    """The cells to measure, in order; UserError where there are none."""
    cells, matches = [], matcher(only)
    for name in BENCHMARKS:
        benchmark = benchmark_of(name)
        routes, _, known = benchmark._params
        unknown = [str(size) for size in sizes if size not in known]
        if unknown:
            raise UserError(f"--sizes {','.join(unknown)}: the suite has {', '.join(map(str, known))}")
        every = [Cell(benchmark, (route, DTYPE, size)) for route in routes for size in sizes]
        cells += [cell for cell in every if matches(cell.name)]
    if not cells:
        raise UserError(f"--only {only!r} matches no cell")
    return cells


def torch_timer(expression: str, namespace: dict[str, Any]) -> Any:
    from torch.utils.benchmark import Timer

    return Timer(expression, globals=namespace, num_threads=1)


def torch_block(timer: Any, number: int, had: float) -> tuple[float, bool]:
    """Seconds of ``number`` calls by torch's Timer; whether the process had a processor for ``had`` of the time."""
    cpu, wall = time.process_time(), time.perf_counter()
    # either makes calls before it times any: timeit two and more, which is much where one takes a second
    measured = timer.timeit(number) if number > 1 else timer.blocked_autorange(min_run_time=0)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return measured.raw_times[0], cpu >= had * wall


def suite_block(suite_timing: Any, number: int) -> tuple[float, bool]:
    """A sample as the suite takes it, after as many calls as torch's Timer makes before it begins to time."""
    suite_timing.timer.timeit(warm_calls(number))
    return suite_timing.sample(number)


def warm_calls(number: int) -> int:
    return max(number // 100, 2) if number > 1 else 1


def blocks(benchmark: Any, cell: tuple, whole: Line, turn: int) -> Line:
    """The suite's blocks and torch's, in turns; a line like the suite's own, with whose block each is in ``by``.

    One of each in every order, one order after the other, so that neither drift nor what the block before left in the
    caches favours any. Calls a block: as many as the suite made for a sample of ``whole``.
    """
    began, number = time.perf_counter(), whole["number"]
    expression, namespace = benchmark.func(*cell)
    timer = timeit.Timer(expression, globals=namespace, timer=benchmark.timer)
    suite_timing = Timing(timer, whole["wanted"], single_threaded=benchmark.single_threaded)
    take: dict[str, Callable[[], tuple[float, bool]]] = {SUITE: partial(suite_block, suite_timing, number)}
    for name in (TORCH, AGAIN):
        take[name] = partial(torch_block, torch_timer(expression, namespace), number, UNDISTURBED)
    calls = len(take) * (number + warm_calls(number))  # in a block of each
    affordable = BLOCK_SECONDS / (calls * statistics.median(whole["seconds"]))
    wanted = max(1, min(whole["wanted"], int(affordable)))
    watch = Watch(tuple(whole["probes"]))
    by: list[str] = []
    seconds: list[float] = []
    disturbed: list[int] = []
    good = dict.fromkeys(take, 0)
    orders = list(itertools.permutations(take))
    for order in itertools.islice(itertools.cycle(orders), turn, None):
        for name in order:
            if not watch.quiet and watch.left > 0:
                watch.wait()
            took, undisturbed, quiet = watch.judge(take[name])
            by.append(name)
            seconds.append(took / number)
            good[name] += quiet
            if not undisturbed:
                disturbed.append(len(by) - 1)
        if min(good.values()) >= wanted or (len(by) >= wanted * len(take) and watch.left <= 0):
            break
    watch.close()
    return {
        **{name: whole[name] for name in ("benchmark", "params", "number")},
        **{"at": time.time(), "wanted": wanted, "by": by, "seconds": seconds, "disturbed": disturbed},
        **{"probes": watch.probes, "waits": watch.waits, "waiting": watch.waiting},
        "took": time.perf_counter() - began,
    }


def measure(benchmark: Any, cell: tuple, turn: int) -> list[Line] | None:
    """What one process has of a cell: the line of the suite's figure, and that of the blocks. None where it is skipped.

    The figure comes first, as in asv's processes: a warm-up that is too short shows.
    """
    whole = figure(benchmark, cell)
    return None if whole is None else [whole, blocks(benchmark, cell, whole, turn)]


def measure_all(cells: Sequence[Cell], processes: int) -> None:
    """One process of every cell, then the next of every cell: a slow minute meets no cell in all of its processes."""
    started, shown, done = time.perf_counter(), 0.0, 0
    for turn in range(processes):
        for cell in cells:
            if turn < (min(processes, SLOW_PROCESSES) if cell.slow else processes) and not cell.skipped:
                lines = in_child(partial(measure, cell.benchmark, cell.params, turn))
                cell.skipped = lines is None
                cell.processes += [lines] if lines else []
            done += 1
            shown = progress(done / len(cells) / processes, time.perf_counter() - started, shown)


def progress(share: float, spent: float, shown: float) -> float:
    """Say on stderr how much is done and how long the rest takes, after ``spent`` seconds; when it was last said.

    A terminal has one line that changes, a file a line every 15 seconds.
    """
    terminal = sys.stderr.isatty()
    if spent - shown < (0.5 if terminal else 15) and (share < 1 or not terminal):
        return shown
    text = f"check: {share:.0%}, {duration(spent * (1 - share) / share)} left" if share < 1 else ""
    print(f"\r{text}\033[K" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)
    return spent


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--only", metavar="REGEX", default="", help=ONLY)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="sizes in bytes, separated by commas")
    parser.add_argument("--processes", type=int, default=4, help="processes per result (default: 4)")
    chosen = parser.parse_args(argv)
    sizes = sizes_of(chosen.sizes)
    if chosen.processes < 2:
        raise UserError("--processes takes a whole number from 2: noise is what processes differ by")
    if not hasattr(os, "fork"):
        raise UserError("this check forks processes, which this system cannot")
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    cells = find_cells(chosen.only, sizes)
    importlib.import_module("torch.utils.benchmark")  # once, and not in each process: a quarter of a second
    os.environ.setdefault(PATIENCE_VARIABLE, str(PATIENCE))
    measure_all(cells, chosen.processes)
    measured = [cell for cell in cells if not cell.skipped]
    if not measured:
        raise UserError("this toolchain skips every one of these cells")
    from . import bias  # numpy: not before its threads are set, and no part of what is measured

    verdict = bias.judge(measured)
    print("\n".join(bias.table(verdict.rows)))
    for cell in cells:
        if cell.skipped:
            print(f"{cell.route:44} {cell.nbytes:8} n/a on this toolchain")
    print("\n" + "\n".join(bias.summary(verdict)))
    return verdict.code
