"""Is the advice of advise.py right?

    python scripts/check.py advice                          five to ten minutes
    python scripts/check.py advice --cases 20 --threads 1   fewer cases, of programs with one torch thread

It asks for cases that no profile has: random sizes from 3 KiB to 256 MiB, four layouts, lists of arrays, dtypes, both
directions, with torch's own number of threads and with one. For each case it times the ranked routes in turns, each in
processes of its own and between speed probes, as the suite does. Processes that were not quiet are taken again. It
prints how fast the processor is now, for one session may be at another clock than the next, and for either number of
threads

    regret      by how much longer the advised route takes than the best one, in the median process. The best one is
                chosen by the other processes. Its interval is the range over processes
    prediction  by how much the predicted time misses the measured one; where a range is predicted, by how much the
                nearer end does, and nothing if it holds the measured time; where an upper bound is, by how much that
                is exceeded

Exit status: 0 as promised. 1 if the mean regret is above 3 %, the largest above 20 %, fewer than 90 % of the predicted
times are within 15 %, fewer than 90 % of the ranges hold the time, or fewer than 90 % of the upper bounds are exceeded
by at most 15 %. 2 if the machine was too noisy to judge half of the cases.
"""

import contextlib
import functools
import io
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import pandas as pd
from analysis.answers import answer
from analysis.costs import MachineAnswers, load_machine
from analysis.estimates import SINGLE_TIME_ERROR
from analysis.needs import NUMPY, TORCH, Case
from analysis.statistics import Floats, means
from cli import RESULTS, ROOT, Parser, UserError
from measuring.processes import Progress
from pages import show
from pages.advice import case_title
from store import files, quiet
from store.schema import TimedProcess, decode_log, with_samples

from benchmarks.contracts import ALL_THREADS, CONTIGUOUS, COPY, INTO, LINE, ONE_THREAD, UNEVEN
from benchmarks.core.probes import PATIENCE_VARIABLE, PROCESSOR
from benchmarks.core.sampling_log import LOG_VARIABLE
from benchmarks.core.timing import samples_per_process

SMALLEST, LARGEST = 3 * 2**10, 2**28  # bytes
STEP = 2**10  # sizes are an odd number of these, so no profile has them
ARRAYS = 64  # arrays in a list, as in benchmarks/batches.py
LAYOUTS = (CONTIGUOUS, "strided", "transposed", "fortran")
DTYPES = ("float32", "float16", "int64", "complex64")
MORE = 20  # cases drawn per wanted case: some have no answer, such as those without measurements near the size
HOPELESS = (
    20.0  # routes with a longer predicted time, in multiples of the best route's, are not measured
)
MEAN, WORST, SHARE = (
    0.03,
    0.20,
    0.9,
)  # promises: mean regret, maximum regret, share of right predictions
NAMED = 5  # number of worst cases printed
PATIENCE = 300.0  # seconds that all processes together wait for a quiet machine; also the time to repeat noisy ones


def drawn(threads: str, rng: random.Random) -> Case:
    """Draw a case at random. Its size is log-uniform. Two cases in seven are contiguous, and two in seven are lists,
    half of them uneven."""
    size = math.exp(rng.uniform(math.log(SMALLEST), math.log(LARGEST)))
    nbytes = STEP * (2 * round(size / STEP / 2) + 1)
    ends = rng.choice(((NUMPY, TORCH), (TORCH, NUMPY)))
    kind = rng.choice((CONTIGUOUS, CONTIGUOUS, "list", UNEVEN, *LAYOUTS[1:]))
    if kind in ("list", UNEVEN):
        uneven = (
            nbytes // ARRAYS
        )  # an odd multiple of 16 bytes; other sizes are an odd number of lines
        each = uneven if kind == UNEVEN else LINE * (2 * max(1, uneven // LINE // 2) + 1)
        return Case(*ends, each, memory=COPY, batch=ARRAYS, threads=threads)
    dtype = (
        rng.choice(DTYPES) if kind == CONTIGUOUS else "float32"
    )  # layouts are measured with one dtype
    return Case(*ends, nbytes, dtype, kind, rng.choice((COPY, INTO)), threads=threads)


def questions(known: MachineAnswers, threads: str, count: int, seed: int) -> pd.DataFrame:
    """Draw ``count`` cases with an answer. Return a row per competitive route, the advised one first, with the ``ends``
    of its predicted time. Cases with a single route are left out: they have no regret. UserError without any case."""
    rng, asked = random.Random(f"{seed} {threads}"), list[pd.DataFrame]()
    for case in (drawn(threads, rng) for _ in range(MORE * count)):
        with contextlib.suppress(UserError):  # no measurement near this case
            ranked = answer(case, known).ranked
            near = [each for each in ranked if each.total <= HOPELESS * ranked[0].total]
            rows = [(case, each.route, *ends(each)) for each in near]
            asked += (
                [pd.DataFrame(rows, columns=["case", "route", "least", "most"])]
                if len(rows) > 1
                else []
            )
        if len(asked) == count:
            break
    if not asked:
        raise UserError(
            "no route was measured near any of these cases: scripts/run.py --profile standard"
        )
    return pd.concat(asked, ignore_index=True)


def ends(predicted: Any) -> tuple[float, float]:
    """The ends of a predicted range. A single time is both ends. An upper bound begins at 0."""
    least, most = (
        (predicted.low, predicted.high) if predicted.is_range else (predicted.seconds,) * 2
    )
    return (least if predicted.quiet else 0.0), most


def benchmark_for(case: Case) -> tuple[str, tuple[Any, ...]]:
    """The benchmark that times a case, and its parameters after the route."""
    parallel, uneven = case.threads != ONE_THREAD, UNEVEN in case.layouts
    kind, named, names = "conversion", [case.dtype], ("NumpyToTorch", "TorchToNumpy")
    if case.batch:
        kind, named, names = "batches", [UNEVEN] * uneven, ("ArraysToTensor", "TensorsToArray")
    elif case.layout != CONTIGUOUS:
        kind, named, names = (
            "layout",
            [case.layout],
            ("LayoutToTorch", "LayoutToNumpy") if parallel else names,
        )
    family, *threads = ["parallel", case.threads] if parallel else [kind]
    name = f"{family}.{'Uneven' * uneven}{names[case.source == TORCH]}.timeit_convert"
    return name, (*threads, *named, case.total)


def measure(asked: pd.DataFrame, processes: int) -> quiet.Run:
    """Measure the routes of each case in turns, one process per route, then repeat this for all cases. At the end,
    measure noisy processes again while there is time. Print progress on stderr."""
    timed = [
        (row.case, row.route, *benchmark_for(row.case)) for row in asked.itertuples()
    ] * processes
    progress, lines = Progress("check", len(timed)), dict[int, TimedProcess]()
    lacking, until = list(range(len(timed))), math.inf
    with contextlib.redirect_stdout(sys.stderr):
        while lacking and time.monotonic() < until:
            for place in lacking:
                if time.monotonic() < until:
                    lines[place] = _process(*timed[place])
                    progress.at(progress.done + 1)
            run = quiet.Run([*lines.values()])
            # The first pass measures all of them, however long it takes
            lacking, until = (
                np.flatnonzero(~run.quiet).tolist(),
                min(until, time.monotonic() + PATIENCE),
            )
            progress.total += len(lacking)
    return run


def _process(case: Case, route: str, name: str, params: tuple[Any, ...]) -> TimedProcess:
    """Measure a route in a process of its own. UserError if this fails."""
    benchmark_of(name)  # loaded once, so that each process starts from the same state, as in asv
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as child:
            return child.submit(_line, case, name, (route, *params)).result()
    except BrokenProcessPool:
        raise UserError("a measuring process died: see its message above") from None


@functools.cache
def benchmark_of(name: str) -> Any:
    """Load a benchmark of the suite by name, as asv does."""
    from asv_runner.discovery import get_benchmark_from_name

    from benchmarks.core import statement  # noqa: F401  registers the suite's types

    return get_benchmark_from_name(str(ROOT / "benchmarks"), name)


def _line(case: Case, name: str, params: tuple[Any, ...]) -> TimedProcess:
    """Set up and measure a cell as the suite always does, and return its log line. UserError if the suite skips it.
    The benchmark's parameters do not include this size, so they are replaced by those of this cell."""
    benchmark = benchmark_of(name)
    benchmark._params, benchmark._current_params = [[value] for value in params], params
    benchmark.samples_per_process = [samples_per_process(params[-1])]
    with (
        tempfile.NamedTemporaryFile("r", encoding="utf-8") as file,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        os.environ[LOG_VARIABLE] = file.name  # asv says on stdout what it skips
        with contextlib.suppress(NotImplementedError):
            if not benchmark.do_setup():
                benchmark.run(*params)
                return with_samples(decode_log(file.read()))[-1]
    raise UserError(f"{params[0]} is skipped for {case}, and the results have it")


def regrets(readings: Floats) -> list[float]:
    """Return how much longer the advised route (the first) takes than the best one: a share per process, sorted.

    The other processes choose the best route. Chosen by the same process, it would be the luckiest of all routes.

    readings  (routes, processes) of log seconds, NaN where a process was noisy
    """
    found = []
    for process, own in enumerate(readings.T):
        rest = means(np.delete(readings, process, axis=1))
        known = np.isfinite(rest) & np.isfinite(own)
        if known[0]:
            found.append(math.exp(own[0] - own[np.argmin(np.where(known, rest, math.inf))]) - 1)
    return sorted(found)


def judged(asked: pd.DataFrame, readings: Floats) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row per case that can be judged, by regret, and a row per predicted route, by error; largest first.

    readings  (rows of ``asked``, processes), as in ``regrets``
    """
    routes = asked.assign(took=np.exp(means(readings)), case=asked["case"].map(case_title))
    routes["error"] = np.log(
        routes["took"] / routes["took"].clip(routes["least"], routes["most"])
    ).abs()
    cases = []
    for _, own in routes.groupby(asked["case"], sort=False):
        if found := regrets(readings[own.index]):
            advised, best = own.iloc[0], own.loc[own["took"].idxmin()]
            two = (advised["route"], advised["took"], best["route"], best["took"], advised["case"])
            cases.append((float(np.median(found)), found[0], found[-1], *two))
    names = ["regret", "low", "high", "advised", "took", "best", "best took", "case"]
    by_error = routes[["route", "took", "least", "most", "case", "error"]].dropna()
    by_regret = pd.DataFrame(cases, columns=names).sort_values("regret", ascending=False)
    return by_regret, by_error.sort_values("error", ascending=False)


def right(routes: pd.DataFrame) -> dict[str, "pd.Series[bool]"]:
    """Promise about predictions -> whether each of these routes keeps it."""
    error, within = routes["error"], show.percent(SINGLE_TIME_ERROR)
    is_bound, is_time = routes["least"] == 0, routes["least"] == routes["most"]
    found = {
        f"times: {{}} within {within}": error[is_time] <= math.log1p(SINGLE_TIME_ERROR),
        "ranges: {} hold the time": error[~is_time & ~is_bound] == 0,
        f"upper bounds: {{}} exceeded by at most {within}": error[is_bound]
        <= math.log1p(SINGLE_TIME_ERROR),
    }
    return {promise: kept for promise, kept in found.items() if len(kept)}


def code_of(asked: int, regret: "pd.Series[float]", routes: pd.DataFrame) -> int:
    """The exit status: 0 promises kept, 1 not kept, 2 too noisy (fewer than half of the cases have quiet figures)."""
    if 2 * len(regret) < asked:
        return 2
    good = regret.mean() <= MEAN and regret.max() <= WORST
    return 0 if good and all(kept.mean() >= SHARE for kept in right(routes).values()) else 1


def summary(threads: int, asked: int, cases: pd.DataFrame, routes: pd.DataFrame) -> Iterator[str]:
    """Yield the lines to print for a number of threads: the figures, then the worst cases and predictions."""
    share = functools.partial(show.percent, digits=1)
    yield f"{show.threads(threads)}: {len(cases)} of {asked} cases judged"
    if len(cases):
        mean, worst = map(share, cases["regret"].agg(["mean", "max"]))
        yield f"  regret of the median process: mean {mean}, maximum {worst}"
    for promise, kept in right(routes).items():
        yield "  predicted " + promise.format(f"{show.percent(kept.mean())} of {len(kept)}")
    shown: dict[str, Any] = dict.fromkeys(("regret", "low", "high", "error"), share)
    shown |= dict.fromkeys(("took", "best took", "least", "most"), show.seconds)
    for most in (cases[cases["regret"] > 0], routes):
        yield most.head(NAMED).to_string(index=False, formatters=shown) if len(most) else ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--machine", help="machine whose results to use (default: the only one)")
    parser.option("--cases N", "for each number of threads", default=40)
    parser.add_argument(
        "--seed", type=int, default=0, help="another one gives other cases (default 0)"
    )
    parser.add_argument(
        "--threads", choices=[ONE_THREAD, ALL_THREADS], help="of torch (default: both)"
    )
    parser.option("--processes N", "per route and case", default=3)
    chosen = parser.parse_args(argv)
    machines = [name for name in files.machines(RESULTS) if chosen.machine in (None, name)]
    if len(machines) != 1:
        raise UserError(
            f"--machine: name one with results: {show.join(machines) or 'there is none'}"
        )
    known = load_machine(RESULTS, machines[0])
    threads = (
        [chosen.threads]
        if chosen.threads
        else [ALL_THREADS, ONE_THREAD]
        if known.spreads
        else [ONE_THREAD]
    )
    asked = pd.concat(
        [questions(known, each, chosen.cases, chosen.seed) for each in threads], ignore_index=True
    )
    os.environ.setdefault(PATIENCE_VARIABLE, str(PATIENCE))
    run = measure(asked, chosen.processes)
    readings = np.where(run.quiet, np.log(run.figures), np.nan).reshape(chosen.processes, -1).T
    print(f"quiet {show.percent(run.quiet_share())} of the time, seed {chosen.seed}")
    if PROCESSOR in known.run.baselines:
        times = run.baselines[PROCESSOR] / known.run.baselines[PROCESSOR]
        print(
            f"the processor's speed probe takes {times:.2f} times what it took when the results were measured"
        )
    codes = []
    for each, own in asked.groupby(asked["case"].map(lambda case: case.threads), sort=False):
        count, (cases, routes) = (
            own["case"].nunique(),
            judged(own.reset_index(drop=True), readings[own.index]),
        )
        print(*summary(known.threads if each == ALL_THREADS else 1, count, cases, routes), sep="\n")
        codes.append(code_of(count, cases["regret"], routes))
    return 1 if 1 in codes else max(codes)
