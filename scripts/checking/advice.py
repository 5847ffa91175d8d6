"""Is what advise.py says right? Routes measured at cases that no profile has, against what was predicted."""

import math
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

from analysis.case import NUMPY, TORCH, Case, Known, answer
from cli import UserError
from measuring.checkup import benchmark_of, figure, in_child
from store import quiet
from store.records import Line

from benchmarks.contracts import CONTIGUOUS, COPY, INTO, ONE_THREAD
from benchmarks.timing import samples_per_process

from .bias import logs_of
from .timing import progress

SMALLEST, LARGEST = 3 * 2**10, 2**28  # bytes
STEP = 2**10  # sizes are an odd number of these, so no profile has them
ARRAYS = 64  # of a list, as benchmarks/batches.py makes it
LAYOUTS = (CONTIGUOUS, "strided", "transposed", "fortran")
DTYPES = ("float32", "float16", "int64", "complex64")
MORE = 20  # cases drawn for each that is wanted: not all can be answered, as where nothing was measured near the size
HOPELESS = 20.0  # times the best route's predicted time: a route that is to take as long is not measured
# What the answers are to hold: regret in the mean and at most, error of nine predictions in ten
MEAN, WORST, ERROR, SHARE = 0.03, 0.20, 0.15, 0.9


@dataclass
class Cell:
    """A route for a case: seconds that were predicted, and the log of each process."""

    case: Case
    route: str
    predicted: float
    lines: list[Line] = field(default_factory=list)
    readings: list[float] = field(default_factory=list)  # log seconds, NaN where a process was not quiet

    def mean(self, processes: Iterable[int]) -> float:
        """Of these processes' log seconds, as far as they were quiet; NaN where none was."""
        known = [self.readings[process] for process in processes if math.isfinite(self.readings[process])]
        return statistics.fmean(known) if known else math.nan

    @property
    def log(self) -> float:
        """Mean of all processes' log seconds."""
        return self.mean(range(len(self.readings)))

    @property
    def error(self) -> float:
        """Log of measured over predicted seconds."""
        return self.log - math.log(self.predicted)

    def benchmark(self) -> tuple[str, tuple[Any, ...]]:
        """The benchmark that times it, and its parameters."""
        case, parallel = self.case, self.case.threads != ONE_THREAD
        direction = "NumpyToTorch" if case.source == NUMPY else "TorchToNumpy"
        if case.batch:
            family, name = "batches", "ArraysToTensor" if case.source == NUMPY else "TensorsToArray"
            others: tuple[Any, ...] = (case.total,)
        elif case.layout != CONTIGUOUS:
            family, others = "layout", (case.layout, case.nbytes)
            name = direction if not parallel else "LayoutToTorch" if case.source == NUMPY else "LayoutToNumpy"
        else:
            family, name, others = "conversion", direction, (case.dtype, case.nbytes)
        threads = (case.threads,) if parallel else ()
        return f"{'parallel' if parallel else family}.{name}.timeit_convert", (self.route, *threads, *others)


@dataclass(frozen=True)
class Question:
    """The cells of a case's routes, in the order of the answer."""

    cells: tuple[Cell, ...]

    @property
    def case(self) -> Case:
        return self.cells[0].case

    @property
    def best(self) -> Cell | None:
        """The fastest of those that were measured; None where the advised one was not."""
        known = [cell for cell in self.cells if math.isfinite(cell.log)]
        return min(known, key=lambda cell: cell.log) if known and math.isfinite(self.cells[0].log) else None

    @property
    def regrets(self) -> list[float]:
        """By which share the advised route takes longer than the best, process by process; below 0 where it is faster.

        The best is that of the other processes: chosen by the same one, it would be the luckiest of all routes.
        """
        processes = range(len(self.cells[0].readings))
        found = []
        for process in processes:
            rest = [other for other in processes if other != process]
            advised, *others = ((cell.mean(rest), cell.readings[process]) for cell in self.cells)
            if math.isfinite(sum(advised)):
                _, best = min([advised, *(each for each in others if math.isfinite(sum(each)))], key=itemgetter(0))
                found.append(math.exp(advised[1] - best) - 1)
        return sorted(found)

    @property
    def regret(self) -> float:
        """That of the median process; NaN where nothing was quiet."""
        return statistics.median(self.regrets) if self.regrets else math.nan


def drawn(threads: str, rng: random.Random) -> Case:
    """A case, each of its properties at random: the size log-uniform, two in five contiguous and one in five a list."""
    size = math.exp(rng.uniform(math.log(SMALLEST), math.log(LARGEST)))
    nbytes = STEP * (2 * round(size / STEP / 2) + 1)
    ends = rng.choice(((NUMPY, TORCH), (TORCH, NUMPY)))
    kind = rng.choice((CONTIGUOUS, CONTIGUOUS, "list", *LAYOUTS[1:]))
    if kind == "list":
        return Case(*ends, max(4, nbytes // ARRAYS), memory=COPY, batch=ARRAYS, threads=threads)
    dtype = rng.choice(DTYPES) if kind == CONTIGUOUS else "float32"  # layouts are measured with one dtype
    return Case(*ends, nbytes, dtype, kind, rng.choice((COPY, INTO)), threads=threads)


def questions(known: Known, threads: str, count: int, seed: int) -> list[Question]:
    """So many cases that can be answered, with the routes that may matter; UserError where there is none.

    A case of one route is none: it has no regret.
    """
    rng, asked = random.Random(f"{seed} {threads}"), []
    for _ in range(MORE * count):
        case = drawn(threads, rng)
        try:
            answered = answer(case, known)
        except UserError:  # nothing was measured near it
            continue
        hopeless = HOPELESS * answered.ranked[0].total
        ranked = [each for each in answered.ranked if each.total <= hopeless]
        if len(ranked) > 1:
            asked.append(Question(tuple(Cell(case, each.route, each.seconds) for each in ranked)))
        if len(asked) == count:
            break
    if not asked:
        raise UserError("no route was measured near any of these cases: scripts/run.py --profile standard")
    return asked


def measure(asked: Sequence[Question], processes: int) -> None:
    """The routes of a case in turns, a process each, case by case, then all again; says on stderr how far it is."""
    cells = [cell for question in asked for cell in question.cells]
    benchmarks = {name: benchmark_of(name) for name in {cell.benchmark()[0] for cell in cells}}
    began, shown = time.perf_counter(), 0.0
    for turn in range(processes):
        for place, cell in enumerate(cells):
            name, params = cell.benchmark()
            line = in_child(partial(_figure, benchmarks[name], params))
            if line is None:
                raise UserError(f"{cell.route} is skipped for {cell.case}, and the results have it")
            cell.lines.append(line)
            share = (turn * len(cells) + place + 1) / (processes * len(cells))
            shown = progress(share, time.perf_counter() - began, shown)


def _figure(benchmark: Any, params: tuple[Any, ...]) -> Line | None:
    """As the suite measures it, at a size that is none of its parameters: so it is to know of no other cell."""
    benchmark._params = [[value] for value in params]
    benchmark.samples_per_process = [samples_per_process(params[-1])]
    return figure(benchmark, params)


@dataclass(frozen=True)
class Verdict:
    """regret: of each question that was judged, of all ``asked``; errors: |log| of each predicted cell; the largest
    first."""

    asked: int
    regret: list[tuple[float, Question]]
    errors: list[tuple[float, Cell]]

    @property
    def within(self) -> float:
        """The share of predictions that were right."""
        good = sum(error <= math.log1p(ERROR) for error, _ in self.errors)
        return good / len(self.errors) if self.errors else math.nan

    @property
    def code(self) -> int:
        """0 as good as promised, 1 not, 2 too noisy to tell: fewer than half of the questions have quiet figures."""
        if 2 * len(self.regret) < self.asked:
            return 2
        mean, worst = statistics.fmean(value for value, _ in self.regret), max(value for value, _ in self.regret)
        return 0 if mean <= MEAN and worst <= WORST and self.within >= SHARE else 1


def judged(asked: Mapping[str, Sequence[Question]]) -> tuple[dict[str, Verdict], float]:
    """What was measured, judged with the speed probes of all of it in sight.

    Number of threads -> what was found, and the share of the time that was quiet.
    """
    cells = [cell for questions in asked.values() for question in questions for cell in question.cells]
    run = quiet.Run([line for cell in cells for line in cell.lines])
    for cell in cells:
        cell.readings = logs_of(cell.lines, run.baselines).tolist()
    return {threads: verdict(questions) for threads, questions in asked.items()}, run.quiet_share()


def verdict(asked: Sequence[Question]) -> Verdict:
    """On questions whose cells have their readings."""
    cells = [cell for question in asked for cell in question.cells]

    def ranked(values: Iterator[tuple[float, Any]]) -> list[tuple[float, Any]]:
        return sorted(values, key=lambda pair: -pair[0])

    return Verdict(
        len(asked),
        ranked((question.regret, question) for question in asked if question.regrets),
        ranked((abs(cell.error), cell) for cell in cells if math.isfinite(cell.error)),
    )
