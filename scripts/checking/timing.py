"""Conversions timed by the suite, by torch.utils.benchmark and by stock asv: the same calls, in forked processes."""

import itertools
import math
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cli import UserError, matcher
from measuring.checkup import benchmark_of, figure, in_child
from measuring.processes import duration
from measuring.profiles import KIB, MIB
from store.records import Line, name_of

from benchmarks.probes import Watch
from benchmarks.timing import UNDISTURBED, Timing

BLOCK_SECONDS = 0.6  # that the blocks of one process take at most, unless a single block of each takes longer
SLOW, SLOW_PROCESSES = 0.3, 2  # seconds a call from which so many processes do: routes that go by Python's numbers
SIZES = (8, 4 * KIB, MIB, 16 * MIB, 64 * MIB)
BENCHMARKS = ("conversion.NumpyToTorch.timeit_convert", "conversion.TorchToNumpy.timeit_convert")
DTYPE = "float32"
SUITE, TORCH, AGAIN = "suite", "torch", "torch again"  # whose block it is


@dataclass
class Cell:
    """A cell and what was measured of it. processes: the two lines of each, see ``measure``; stock in seconds."""

    benchmark: Any
    params: tuple
    processes: list[list[Line]] = field(default_factory=list)
    stock: float = math.nan
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


def by_stock_asv(benchmark: Any, cell: tuple) -> float:
    """Seconds a call as asv's time_ method with a setup reads them: the median of its samples."""
    from asv_runner.benchmarks.time import TimeBenchmark

    benchmark._current_params = cell
    benchmark.do_setup()
    expression, namespace = benchmark.func(*cell)
    exec(f"def time_route():\n    {expression}", namespace)
    method = namespace["time_route"]

    def setup() -> None:  # a new source before every call, as a setup method makes it
        benchmark.do_setup()
        namespace.update(benchmark.func(*cell)[1])

    method.setup, method.pretty_source = setup, expression
    stock = TimeBenchmark("time_route", method, [method])
    stock.do_setup()
    return statistics.median(stock.run()["samples"])


def measure_all(cells: Sequence[Cell], processes: int) -> None:
    """One process of every cell, then the next of every cell: a slow minute meets no cell in all of its processes."""
    total = len(cells) * (processes + 1)
    started, shown, done = time.perf_counter(), 0.0, 0
    for turn in range(processes + 1):
        for cell in cells:
            if turn < (min(processes, SLOW_PROCESSES) if cell.slow else processes) and not cell.skipped:
                lines = in_child(partial(measure, cell.benchmark, cell.params, turn))
                cell.skipped = lines is None
                cell.processes += [lines] if lines else []
            elif turn == processes and not cell.skipped:
                cell.stock = in_child(partial(by_stock_asv, cell.benchmark, cell.params))
            done += 1
            spent = time.perf_counter() - started
            shown = progress(done / total, spent, shown)


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
