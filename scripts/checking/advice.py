"""Is the advice of advise.py right?

    python scripts/check.py advice                          about ten minutes
    python scripts/check.py advice --cases 20 --threads 1   fewer cases, with one torch thread

It asks for cases that no profile has: random sizes from 3 KiB to 256 MiB, four layouts, lists of
2 to 100,000 arrays, shapes, dtypes, casts, both directions, with torch's own number of threads and
with one. For each case it times the ranked routes in turns, as ``check.py questions`` does: 5 to 20
processes each, until chance moves the difference of two by 3 % at most. It prints how fast the
processor is now, for one session may be at another clock than the next, and for either number of
threads

    regret      by how much longer the advised route takes than the best one, in the median process.
                The best one is chosen by the other processes. Its interval is the range over
                processes
    prediction  by how much the predicted time misses that of quiet processes; where a range is
                predicted, by how much the nearer end does, and nothing if it holds the time; where
                an upper bound is, by how much that is exceeded

Exit status: 0 as promised. 1 if the mean regret is above 3 %, the largest above 20 %, fewer than
90 % of the predicted times are within 15 %, fewer than 90 % of the ranges hold the time, or
fewer than 90 % of the upper bounds are exceeded by at most 15 %. 2 if the machine was too noisy
to judge half of the cases.
"""

import contextlib
import functools
import math
import random
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator

import numpy as np
from analysis.answers import answer
from analysis.costs import Candidate, MachineAnswers, load_machine
from analysis.estimates import SINGLE_TIME_ERROR
from analysis.measured import shared_level
from analysis.needs import NUMPY, TORCH, Case
from analysis.statistics import Floats, means
from cli import RESULTS, CommandLine, Parser, UserError
from measuring.processes import Progress
from measuring.question import serve
from pages import show
from pages.case_answer import case_title
from pandas import DataFrame, Series, concat
from store import files, quiet
from store.schema import TimedProcess

from benchmarks.contracts import ALL_THREADS, CONTIGUOUS, COPY, INTO, LINE, ONE_THREAD, UNEVEN
from benchmarks.core.probes import PROCESSOR
from checking.question import question, regrets, time_in_turns

MIN_BYTES = 3 * 2**10
MAX_BYTES = 2**28
STEP_BYTES = 2**10  # sizes are an odd number of these, so no profile has them
MAX_ARRAYS = 100_000  # in a list; 64 are measured, so most of these have no answer
LAYOUTS = (CONTIGUOUS, "strided", "transposed", "fortran")
DTYPES = ("float32", "float16", "int64", "complex64")
CASTS = (("float64", "float32"), ("uint8", "float32"), ("float32", "float16"))
# Cases to draw per case to judge: some have no answer, such as those without measurements near the
# size
DRAWS_PER_CASE = 20
# Routes with a longer predicted time, in multiples of the best route's, are not measured
MAX_PREDICTED_RATIO = 20.0
# Promises
MAX_MEAN_REGRET = 0.03
MAX_REGRET = 0.20
MIN_RIGHT_SHARE = 0.9  # of each kind of prediction
PRINTED_CASES = 5  # the worst ones


def draw_case(threads: str, rng: random.Random) -> Case:
    """Draw a case at random. Its size is log-uniform, and so is the number of arrays in a list. Two
    cases in nine are contiguous, two are lists, half of them uneven, and two are casts or have a
    shape."""
    nbytes = _log_uniform(MIN_BYTES, MAX_BYTES, rng)
    nbytes = STEP_BYTES * (2 * round(nbytes / STEP_BYTES / 2) + 1)
    source, target = rng.choice(((NUMPY, TORCH), (TORCH, NUMPY)))
    kind = rng.choice((CONTIGUOUS, CONTIGUOUS, "list", UNEVEN, "cast", "shape", *LAYOUTS[1:]))
    if kind in ("list", UNEVEN):
        arrays = round(_log_uniform(2, MAX_ARRAYS, rng))
        array_bytes = max(16, nbytes // arrays // 16 * 16)
        if kind != UNEVEN:  # an odd number of lines
            array_bytes = LINE * (2 * max(1, array_bytes // LINE // 2) + 1)
        return Case(source, target, array_bytes, memory=COPY, batch=arrays, threads=threads)
    if kind == "cast":
        dtype, goal = rng.choice(CASTS)
        return Case(NUMPY, TORCH, nbytes, dtype, goal=goal, threads=threads)
    memory = rng.choice((COPY, INTO))
    if kind == "shape":
        shape = (nbytes // STEP_BYTES, 16, 16)
        return Case(source, target, nbytes, memory=memory, threads=threads, shape=shape)
    # layouts are measured with one dtype
    dtype = rng.choice(DTYPES) if kind == CONTIGUOUS else "float32"
    return Case(source, target, nbytes, dtype, kind, memory, threads=threads)


def _log_uniform(least: float, most: float, rng: random.Random) -> float:
    return math.exp(rng.uniform(math.log(least), math.log(most)))


def draw_predictions(machine: MachineAnswers, threads: str, count: int, seed: int) -> DataFrame:
    """Draw ``count`` different cases with an answer. Return a row per competitive route, the
    advised one first, with its ``predicted_range``.

    Cases with a single route are left out: they have no regret. UserError without any case.
    """
    rng = random.Random(f"{seed} {threads}")
    rows: list[tuple[Case, str, float, float]] = []
    cases: set[Case] = set()
    for _ in range(DRAWS_PER_CASE * count):
        case = draw_case(threads, rng)
        if case in cases:
            continue
        try:
            ranked = answer(case, machine).ranked
        except UserError:  # no measurement near this case
            continue
        limit = MAX_PREDICTED_RATIO * ranked[0].total
        competitors = [route for route in ranked if route.total <= limit]
        if len(competitors) > 1:
            rows += [(case, route.route, *predicted_range(route)) for route in competitors]
            cases.add(case)
        if len(cases) == count:
            break
    if not rows:
        raise UserError(
            "no route was measured near any of these cases: scripts/run.py --profile standard"
        )
    return DataFrame(rows, columns=["case", "route", "least", "most"])


def predicted_range(route: Candidate) -> tuple[float, float]:
    """The ends of a predicted range, in seconds. A single time is both ends. An upper bound begins
    at 0.

    route  a row of ``Answer.routes``
    """
    low, high = (route.low, route.high) if route.is_range else (route.seconds, route.seconds)
    return (low if route.quiet else 0.0), high


def measure(predictions: DataFrame) -> tuple[DataFrame, quiet.Run]:
    """Time the routes of each case in turns. Return the predictions with ``logs`` and
    ``quiet_logs``, the log seconds of each process and of quiet ones (NaN for others), and the run
    of all processes. Print progress on stderr."""
    cases = predictions.groupby("case", sort=False)["route"].agg(list)
    progress = Progress("check", len(cases))
    lines: list[TimedProcess] = []
    logs: list[Floats] = []
    ends = []
    with serve() as server, contextlib.redirect_stdout(sys.stderr):
        for case, routes in cases.items():
            server.make_source(question(case))
            of_case = time_in_turns(server, routes)
            logs += [*shared_level(quiet.Run(of_case)).to_numpy()]
            lines += of_case
            ends.append(len(lines))
            progress.at(len(ends))
    run = quiet.Run(lines)
    quiet_logs: list[Floats] = []
    for processes, routes in zip(np.split(run.quiet_logs, ends), cases):
        quiet_logs += [*processes.reshape(-1, len(routes)).T]
    return predictions.assign(logs=logs, quiet_logs=quiet_logs), run


def typical_seconds(logs: Floats) -> float:
    """The geometric mean of processes, whose log seconds are given; NaN without one."""
    return float(np.exp(means(logs[np.newaxis])[0]))


def judge(measured: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return a row per case that can be judged, by regret, and a row per predicted route, by error;
    largest first.

    measured  predictions with their ``measure``
    """
    routes = measured.assign(
        took=measured["logs"].map(typical_seconds),
        quiet=measured["quiet_logs"].map(typical_seconds),
        case=measured["case"].map(case_title),
    )
    nearest = routes["quiet"].clip(routes["least"], routes["most"])
    routes["error"] = np.log(routes["quiet"] / nearest).abs()
    cases = []
    for _, of_case in routes.groupby(measured["case"], sort=False):
        shares = regrets(np.stack([*of_case["logs"]]))
        if shares:
            advised = of_case.iloc[0]
            best = of_case.loc[of_case["took"].idxmin()]
            verdict = (float(np.median(shares)), shares[0], shares[-1])
            cases.append(
                (*verdict, *advised[["route", "took"]], *best[["route", "took"]], advised["case"])
            )
    columns = ["regret", "low", "high", "advised", "took", "best", "best took", "case"]
    by_regret = DataFrame(cases, columns=columns).sort_values("regret", ascending=False)
    by_error = routes.dropna(subset="error").assign(took=routes["quiet"])
    by_error = by_error[["route", "took", "least", "most", "case", "error"]]
    return by_regret, by_error.sort_values("error", ascending=False)


def kept_promises(routes: DataFrame) -> dict[str, "Series[bool]"]:
    """Promise about predictions -> whether each of these routes keeps it."""
    is_bound = routes["least"] == 0
    is_time = routes["least"] == routes["most"]
    is_within = routes["error"] <= math.log1p(SINGLE_TIME_ERROR)
    limit = show.percent(SINGLE_TIME_ERROR)
    promises = {
        f"times: {{}} within {limit}": is_within[is_time],
        "ranges: {} hold the time": routes["error"][~is_time & ~is_bound] == 0,
        f"upper bounds: {{}} exceeded by at most {limit}": is_within[is_bound],
    }
    return {promise: is_kept for promise, is_kept in promises.items() if len(is_kept)}


def exit_status(cases: int, regret: "Series[float]", routes: DataFrame) -> int:
    """0 promises kept, 1 not kept, 2 too noisy: fewer than half of the cases can be judged."""
    if 2 * len(regret) < cases:
        return 2
    if regret.mean() > MAX_MEAN_REGRET or regret.max() > MAX_REGRET:
        return 1
    promises = kept_promises(routes).values()
    return int(any(is_kept.mean() < MIN_RIGHT_SHARE for is_kept in promises))


def summary_lines(
    threads: int, case_count: int, cases: DataFrame, routes: DataFrame
) -> Iterator[str]:
    """Yield the lines to print for a number of threads: the figures, then the worst cases and
    predictions."""
    share = functools.partial(show.percent, digits=1)
    yield f"{show.threads(threads)}: {len(cases)} of {case_count} cases judged"
    if len(cases):
        mean, largest = share(cases["regret"].mean()), share(cases["regret"].max())
        yield f"  regret of the median process: mean {mean}, maximum {largest}"
    for promise, is_kept in kept_promises(routes).items():
        yield "  predicted " + promise.format(f"{show.percent(is_kept.mean())} of {len(is_kept)}")
    formatters: dict[str, Callable[[float], str]] = dict.fromkeys(
        ("regret", "low", "high", "error"), share
    )
    formatters |= dict.fromkeys(("took", "best took", "least", "most"), show.seconds)
    for rows in (cases[cases["regret"] > 0], routes):
        worst = rows.head(PRINTED_CASES)
        yield worst.to_string(index=False, formatters=formatters) if len(worst) else ""


def arguments(argv: CommandLine) -> Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--machine", help="machine whose results to use (default: the only one)")
    parser.option("--cases N", "for each number of threads", default=40)
    parser.add_argument(
        "--seed", type=int, default=0, help="another one gives other cases (default 0)"
    )
    parser.add_argument(
        "--threads", choices=[ONE_THREAD, ALL_THREADS], help="of torch (default: both)"
    )
    return parser.parse_args(argv)


def load_only_machine(name: str | None) -> MachineAnswers:
    """Load the machine ``name``, or the only one. UserError if that is none or several."""
    machines = [machine for machine in files.machines(RESULTS) if name in (None, machine)]
    if len(machines) != 1:
        raise UserError(
            f"--machine: name one with results: {show.join(machines) or 'there is none'}"
        )
    return load_machine(RESULTS, machines[0])


def print_verdict(torch_threads: int, measured: DataFrame) -> int:
    """Print the summary of the cases with a number of threads. Return the exit status."""
    cases, routes = judge(measured)
    count = measured["case"].nunique()
    print(*summary_lines(torch_threads, count, cases, routes), sep="\n")
    return exit_status(count, cases["regret"], routes)


def main(argv: CommandLine = None) -> int:
    args = arguments(argv)
    machine = load_only_machine(args.machine)
    threads = [args.threads] if args.threads else [ONE_THREAD]
    if not args.threads and machine.spreads:
        threads = [ALL_THREADS, ONE_THREAD]
    predictions = concat(
        [draw_predictions(machine, number, args.cases, args.seed) for number in threads],
        ignore_index=True,
    )
    measured, run = measure(predictions)
    print(f"quiet {show.percent(run.quiet_share())} of the time, seed {args.seed}")
    if PROCESSOR in machine.run.baselines:
        slowdown = run.baselines[PROCESSOR] / machine.run.baselines[PROCESSOR]
        print(
            f"the processor's speed probe takes {slowdown:.2f} times what it took when the results "
            "were measured"
        )
    threads_of_rows = measured["case"].map(lambda case: case.threads)
    statuses = []
    for setting, rows in measured.groupby(threads_of_rows, sort=False):
        torch_threads = machine.threads if setting == ALL_THREADS else 1
        statuses.append(print_verdict(torch_threads, rows))
    return 1 if 1 in statuses else max(statuses)
