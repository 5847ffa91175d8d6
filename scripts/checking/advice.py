"""Is the advice of advise.py right?

    python scripts/check.py advice                          about ten minutes
    python scripts/check.py advice --cases 20 --threads 1   fewer cases, of programs with one torch thread

It asks for cases that no profile has: random sizes from 3 KiB to 256 MiB, four layouts, lists of arrays, dtypes, both
directions, with torch's own number of threads and with one. For each case it times the ranked routes in turns, each in
processes of its own and between speed probes, as the suite does. It prints for either number of threads

    regret      by how much longer the advised route takes than the best one, in the median process. The best one is
                chosen by the other processes. Its interval is the range over processes
    prediction  by how much the predicted time misses the measured one

Exit status: 0 as promised. 1 if the mean regret is above 3 %, the largest above 20 %, or fewer than 90 % of the
predictions are within 15 %. 2 if the machine was too noisy to judge half of the cases.
"""

import contextlib
import io
import itertools
import json
import math
import multiprocessing
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from analysis.case import NUMPY, TORCH, Case, Known, answer
from analysis.choices import every
from analysis.statistics import Floats, means
from cli import RESULTS, ROOT, Parser, UserError
from measuring.processes import Progress
from pages import case as words
from pages import show
from store import quiet
from store.records import Line

from benchmarks.contracts import ALL_THREADS, CONTIGUOUS, COPY, INTO, ONE_THREAD
from benchmarks.probes import PATIENCE_VARIABLE
from benchmarks.sampling_log import LOG_VARIABLE
from benchmarks.timing import samples_per_process

SMALLEST, LARGEST = 3 * 2**10, 2**28  # bytes
STEP = 2**10  # sizes are an odd number of these, so no profile has them
ARRAYS = 64  # of a list, as benchmarks/batches.py makes it
LAYOUTS = (CONTIGUOUS, "strided", "transposed", "fortran")
DTYPES = ("float32", "float16", "int64", "complex64")
MORE = 20  # cases drawn for each that is wanted: not all can be answered, as where nothing was measured near the size
HOPELESS = 20.0  # times the best route's predicted time: a route that is to take as long is not measured
# What the answers are to hold: regret in the mean and at most, error of nine predictions in ten
MEAN, WORST, ERROR, SHARE = 0.03, 0.20, 0.15, 0.9
NAMED = 5  # of the worst
PATIENCE = 300.0  # seconds that all processes wait for a quiet machine together


@dataclass
class Question:
    """A case that was answered: its routes, the advised one first, with seconds predicted; the lines of each."""

    case: Case
    routes: list[str]
    predicted: list[float]
    lines: list[list[Line]] = field(default_factory=list)


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

    def answered() -> Iterator[Question]:
        rng = random.Random(f"{seed} {threads}")
        for _ in range(MORE * count):
            case = drawn(threads, rng)
            with contextlib.suppress(UserError):  # nothing was measured near it
                ranked = answer(case, known).ranked
                ranked = [each for each in ranked if each.total <= HOPELESS * ranked[0].total]
                if len(ranked) > 1:
                    yield Question(case, [each.route for each in ranked], [each.seconds for each in ranked])

    asked = list(itertools.islice(answered(), count))
    if not asked:
        raise UserError("no route was measured near any of these cases: scripts/run.py --profile standard")
    return asked


# --- cells measured without asv, each in a forked process that starts as asv's do ------------------------------------


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a forked process: every measurement starts from the same state, as asv's do."""
    fork = multiprocessing.get_context("fork")
    reader, writer = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: writer.send(work()))
    child.start()
    writer.close()
    try:
        return reader.recv()
    except EOFError:
        raise UserError("a measuring process died: see its message above") from None
    finally:
        child.join()


def benchmark_of(name: str) -> Any:
    """A benchmark of the suite, as asv finds it by its name."""
    from asv_runner.discovery import get_benchmark_from_name

    from benchmarks import statement  # noqa: F401  it registers the suite's types

    return get_benchmark_from_name(str(ROOT / "benchmarks"), name)


def benchmark_for(case: Case) -> tuple[str, tuple[Any, ...]]:
    """The benchmark that times a case, and its parameters behind the route."""
    parallel, forwards = case.threads != ONE_THREAD, case.source == NUMPY
    threads = (case.threads,) if parallel else ()
    if case.batch:
        family, name = "batches", "ArraysToTensor" if forwards else "TensorsToArray"
        others: tuple[Any, ...] = (case.total,)
    else:
        family, others = "conversion", (case.dtype, case.nbytes)
        name = "NumpyToTorch" if forwards else "TorchToNumpy"
        if case.layout != CONTIGUOUS:
            family, others = "layout", (case.layout, case.nbytes)
            name = name if not parallel else "LayoutToTorch" if forwards else "LayoutToNumpy"
    return f"{'parallel' if parallel else family}.{name}.timeit_convert", (*threads, *others)


def measure(asked: Sequence[Question], processes: int) -> None:
    """The routes of a case in turns, a process each, case by case, then all again; says on stderr how far it is."""
    made = {name: benchmark_of(name) for name in {benchmark_for(question.case)[0] for question in asked}}
    turns = [(question, at) for _ in range(processes) for question in asked for at in range(len(question.routes))]
    progress = Progress("check", len(turns))
    with contextlib.redirect_stdout(sys.stderr):
        for done, (question, at) in enumerate(turns):
            progress.at(done)
            name, params = benchmark_for(question.case)
            line = in_child(partial(_figure, made[name], (question.routes[at], *params)))
            if line is None:
                raise UserError(f"{question.routes[at]} is skipped for {question.case}, and the results have it")
            question.lines = question.lines or [[] for _ in question.routes]
            question.lines[at].append(line)


def _figure(benchmark: Any, params: tuple[Any, ...]) -> Line | None:
    """What the suite logs of a cell when it sets it up and measures it as it always does; None where it skips it. Its
    size is none of the benchmark's parameters: so that is to know of no other cell."""
    benchmark._params = [[value] for value in params]
    benchmark.samples_per_process = [samples_per_process(params[-1])]
    benchmark._current_params = params
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file, contextlib.redirect_stdout(io.StringIO()):
        os.environ[LOG_VARIABLE] = file.name  # asv says on stdout what it skips
        try:
            if benchmark.do_setup():
                return None
            benchmark.run(*params)
        except NotImplementedError:
            return None
        return json.loads(file.readlines()[-1])


def regrets(readings: Floats) -> list[float]:
    """By which share the advised route, the first, takes longer than the best, process by process, in order.

    The best is that of the other processes: chosen by the same one, it would be the luckiest of all routes.

    readings  (routes, processes) of log seconds, NaN where a process was noisy
    """
    found = []
    for process, own in enumerate(readings.T):
        rest = means(np.delete(readings, process, axis=1))
        known = np.isfinite(rest) & np.isfinite(own)
        if known[0]:
            found.append(math.exp(own[0] - own[np.argmin(np.where(known, rest, math.inf))]) - 1)
    return sorted(found)


def logs_of(lines: Sequence[Line], baselines: Mapping[str, float]) -> Floats:
    """Log seconds per call of each process: the suite's figure; NaN of a noisy one."""
    run = quiet.Run(lines, baselines)
    return np.where(run.quiet, np.log(run.figures()), np.nan)


def judged(asked: Sequence[Question], run: quiet.Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What was measured: a row per question that can be judged, by regret; one per predicted route, by its error."""
    cases, routes = [], []
    for question in asked:
        readings = np.array([logs_of(lines, run.baselines) for lines in question.lines])
        title, found, took = words.title(question.case), regrets(readings), np.exp(means(readings))
        measured = pd.DataFrame(
            {"route": question.routes, "took": took, "predicted": question.predicted, "case": title}
        )
        routes.append(measured.dropna())
        if found:
            best, ends = int(np.nanargmin(took)), (float(np.median(found)), found[0], found[-1])
            cases.append((*ends, question.routes[0], took[0], question.routes[best], took[best], title))
    names = ["regret", "low", "high", "advised", "took", "best", "best took", "case"]
    by_case, by_route = pd.DataFrame(cases, columns=names), pd.concat(routes)
    by_route["error"] = np.log(by_route["took"] / by_route["predicted"]).abs()
    return by_case.sort_values("regret", ascending=False), by_route.sort_values("error", ascending=False)


def code_of(asked: int, regret: "pd.Series[float]", error: "pd.Series[float]") -> int:
    """0 as good as promised, 1 not, 2 too noisy: fewer than half of the questions have quiet figures."""
    if 2 * len(regret) < asked:
        return 2
    good = regret.mean() <= MEAN and regret.max() <= WORST and (error <= math.log1p(ERROR)).mean() >= SHARE
    return 0 if good else 1


def summary(threads: int, asked: int, cases: pd.DataFrame, routes: pd.DataFrame) -> Iterator[str]:
    """The figures for a number of threads, and the largest misses."""
    yield f"{show.threads(threads)}: {len(cases)} of {asked} cases judged"
    if len(cases):
        mean, worst = (show.percent(value, 1) for value in (cases["regret"].mean(), cases["regret"].max()))
        yield f"  regret of the median process: mean {mean}, maximum {worst}"
    if len(routes):
        within = show.percent((routes["error"] <= math.log1p(ERROR)).mean())
        middle = show.percent(routes["error"].median(), 1)
        yield f"  predictions: {within} of {len(routes)} within {show.percent(ERROR)}, half of them within {middle}"
    shares = dict.fromkeys(("regret", "low", "high", "error"), partial(show.percent, digits=1))
    shown = shares | dict.fromkeys(("took", "best took", "predicted"), show.seconds)
    for worst in (cases[cases["regret"] > 0], routes):
        yield worst.head(NAMED).to_string(index=False, formatters=shown) if len(worst) else ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--machine", help="machine whose results to use (default: the only one)")
    parser.option("--cases N", "for each number of threads", default=40)
    parser.add_argument("--seed", type=int, default=0, help="another one gives other cases (default 0)")
    parser.add_argument("--threads", choices=[ONE_THREAD, ALL_THREADS], help="of torch (default: both)")
    parser.option("--processes N", "per route and case", default=3)
    chosen = parser.parse_args(argv)
    known = [results for results in every(RESULTS) if chosen.machine in (None, results.machine)]
    if len(known) != 1:
        raise UserError(
            f"--machine: name one with results: {show.join([each.machine for each in known]) or 'there is none'}"
        )
    (results,) = known
    threads = [chosen.threads] if chosen.threads else [ALL_THREADS, ONE_THREAD] if results.spreads else [ONE_THREAD]
    asked = {each: questions(results, each, chosen.cases, chosen.seed) for each in threads}
    every_one = [question for own in asked.values() for question in own]
    os.environ.setdefault(PATIENCE_VARIABLE, str(PATIENCE))
    measure(every_one, chosen.processes)
    run, codes = quiet.Run([line for question in every_one for lines in question.lines for line in lines]), []
    print(f"quiet {show.percent(run.quiet_share())} of the time, seed {chosen.seed}")
    for each, own in asked.items():
        cases, routes = judged(own, run)
        print(*summary(results.threads if each == ALL_THREADS else 1, len(own), cases, routes), sep="\n")
        codes.append(code_of(len(own), cases["regret"], routes["error"]))
    return 1 if 1 in codes else max(codes)
