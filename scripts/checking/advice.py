"""Is what advise.py says right? Routes measured at sizes and dtypes that no profile has, against what was predicted."""

import itertools
import math
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

from analysis.case import NUMPY, TORCH, Answer, Case, Known, answer
from cli import UserError
from measuring.checkup import benchmark_of, figure, in_child
from store import quiet
from store.records import Line

from benchmarks.contracts import ALIAS, COPY, INTO
from benchmarks.timing import samples_per_process

from .bias import logs_of
from .timing import BENCHMARKS, progress

WAYS = dict(zip(((NUMPY, TORCH), (TORCH, NUMPY)), BENCHMARKS))
SIZES = (*(3 * 2**k for k in range(10, 25)), 200_000_000)  # 3 KiB to 48 MiB, and 200 MB
DTYPES = ("float32", "float16", "int64", "complex64")
MEMORIES = ("", ALIAS, COPY, INTO)
HOPELESS = 20.0  # times the best route's predicted time: a route that is to take as long is not measured
# What the answers are to hold: regret in the mean and at worst, error of nine predictions in ten
MEAN, WORST, ERROR, SHARE = 0.03, 0.20, 0.15, 0.9


@dataclass
class Cell:
    """A route, dtype and size: seconds that were predicted, and the log of each process."""

    ends: tuple[str, str]
    route: str
    dtype: str
    nbytes: int
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


@dataclass(frozen=True)
class Question:
    """A case, what was answered, and its routes' cells in the order of the answer."""

    case: Case
    answer: Answer
    cells: tuple[Cell, ...]

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


def questions(known: Known, sizes: Sequence[int], dtypes: Sequence[str]) -> list[Question]:
    """Everything that is asked, with a cell for each route that may matter; UserError where nothing can be."""
    cells: dict[tuple[Any, ...], Cell] = {}
    asked = []
    for ends, nbytes, dtype, memory in itertools.product(WAYS, sizes, dtypes, MEMORIES):
        case = Case(*ends, nbytes, dtype, memory=memory)
        try:
            answered = answer(case, known)
        except UserError:  # no route does that
            continue
        hopeless = HOPELESS * answered.ranked[0].total
        to_measure = []
        for each in answered.ranked:
            if each.total <= hopeless:
                key = (ends, each.route, dtype, nbytes)
                to_measure.append(cells.setdefault(key, Cell(*key, each.figure.seconds)))
        asked.append(Question(case, answered, tuple(to_measure)))
    if not asked:
        raise UserError("no route was measured for any of these sizes and dtypes: scripts/run.py --profile standard")
    return asked


def _cells(asked: Sequence[Question]) -> list[Cell]:
    """Each once, whoever asks for it."""
    return list({id(cell): cell for question in asked for cell in question.cells}.values())


def measure(asked: Sequence[Question], processes: int) -> None:
    """Every cell in a process of its own, then all again; says on stderr how far it is."""
    cells = _cells(asked)
    benchmarks = {ends: benchmark_of(name) for ends, name in WAYS.items()}
    began, shown = time.perf_counter(), 0.0
    for turn in range(processes):
        for place, cell in enumerate(cells):
            line = in_child(partial(_figure, benchmarks[cell.ends], cell))
            if line is None:
                raise UserError(
                    f"{cell.route} is skipped for {cell.dtype}, and the results have it: of another toolchain?"
                )
            cell.lines.append(line)
            share = (turn * len(cells) + place + 1) / (processes * len(cells))
            shown = progress(share, time.perf_counter() - began, shown)


def _figure(benchmark: Any, cell: Cell) -> Line | None:
    """As the suite measures it, at a size that is none of its parameters: so it is to know of no other cell."""
    params = cell.route, cell.dtype, cell.nbytes
    benchmark._params = [[value] for value in params]
    benchmark.samples_per_process = [samples_per_process(cell.nbytes)]
    return figure(benchmark, params)


@dataclass(frozen=True)
class Verdict:
    """regret: of each question that was judged, of all ``asked``; errors: |log| of each predicted cell; quiet: share of
    the time."""

    asked: int
    regret: list[tuple[float, Question]]
    errors: list[tuple[float, Cell]]
    quiet: float

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


def judge(asked: Sequence[Question]) -> Verdict:
    """What was measured, judged with the speed probes of all of it in sight."""
    cells = _cells(asked)
    lines = [line for cell in cells for line in cell.lines]
    run = quiet.Run(lines)
    for cell in cells:
        cell.readings = logs_of(cell.lines, run.baselines).tolist()
    judged = [question for question in asked if question.regrets]

    def ranked(values: Iterator[tuple[float, Any]]) -> list[tuple[float, Any]]:
        return sorted(values, key=lambda pair: -pair[0])

    return Verdict(
        len(asked),
        ranked((question.regret, question) for question in judged),
        ranked((abs(cell.error), cell) for cell in cells if math.isfinite(cell.error)),
        run.quiet_share(),
    )
