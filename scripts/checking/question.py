"""Measure the routes of one case on this machine, and keep what was measured beside its results.

``main`` checks the answers to everyday questions that were measured so.
"""

import contextlib
import inspect
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from analysis.answers import Answer
from analysis.cells import itemsize
from analysis.costs import closest_machine, last_run
from analysis.estimates import check_request, check_source
from analysis.measured import (
    Measured,
    candidates,
    measured_answer,
    pooled_variance,
    shared_level,
    suitable,
    undecided,
)
from analysis.needs import TORCH, ZERO_D, Case
from analysis.statistics import Floats, means
from cli import RESULTS, ROOT, CommandLine, Parser, UserError
from measuring.machine import check_machine, conditions
from measuring.processes import Progress
from measuring.question import Checks, Server, has_torch, race, sample_routes, serve
from pages import show
from pandas import DataFrame
from store import files, questions, quiet
from store.schema import Conditions, RunRecord, Settings, TimedProcess, Toolchain, from_json
from toolchains.environments import machine_name

from benchmarks.contracts import ALL_THREADS, CONTIGUOUS
from benchmarks.core.timing import LARGE


def measure_case(
    case: Case,
    user_routes: Sequence[str],
    results: Path,
    machine: str | None = None,
    server: Server | None = None,
) -> Answer:
    """Measure the safe routes for a case and those of the user in turns, and file the
    measurements. Print progress on stderr.

    server  that runs already

    UserError if the case is impossible, or nothing can be measured here.
    """
    if not has_torch():
        raise UserError(
            "--measure: this Python has no torch: pip install torch, or .venv/bin/python"
        )
    if not case.expression:
        check_request(case)
        check_source(case)
    if case.device:
        with contextlib.nullcontext(server) if server else serve() as server:
            raise UserError(f"--measure: {server.ask({'device': True})['fails']}")
    machine = machine or name_of_machine(results, conditions())
    check_machine(results / machine)
    began, start = datetime.now(timezone.utc), time.monotonic()
    print("measuring: importing torch and making the source", file=sys.stderr, flush=True)
    with contextlib.nullcontext(server) if server else serve() as server:
        source = server.make_source(question(case))
        described = _case_of_source(case, source)
        check_request(described)
        checks, lines = _measure(server, described, user_routes)
    settings = Settings(**source["versions"], torch_threads=source["threads"])
    run = RunRecord(
        Toolchain("measured", settings.torch, settings.numpy),
        {},
        settings=settings,
        conditions=conditions(),
        started=began.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - start, 1),
    )
    measured = Measured(case, described, (*user_routes,), checks, lines, run)
    questions.add_question(results, machine, measured)
    return measured_answer(measured, machine)


def measured_before(case: Case, results: Path, machine: str | None) -> Answer | None:
    """The answer to a case that was measured before on this machine, or on ``machine``; None if it
    was not."""
    for name in [machine] if machine else questions.machines_with_questions(results):
        for measured in questions.read_questions(results, name, Measured):
            if measured.question == case and (machine or _is_here(measured.run)):
                return measured_answer(measured, name)
    return None


def _is_here(run: RunRecord) -> bool:
    """Whether a run was on a machine like this one."""
    return not closest_machine({"": run}, conditions(), device=False)[1]


def name_of_machine(results: Path, present: Conditions) -> str:
    """The name under which results of this machine are filed, or would be."""
    with contextlib.suppress(UserError):  # there are no results
        records = {name: last_run(results, name)[0] for name in files.machines(results)}
        nearest, differs = closest_machine(records, present, device=False)
        if not differs:
            return nearest
    return machine_name()


def question(case: Case) -> dict[str, object]:
    """A case as the server takes it."""
    flat = () if case.layout == ZERO_D else (case.nbytes // itemsize(case.dtype),)
    threads = case.threads or ALL_THREADS
    return {**asdict(case), "shape": case.shape or flat, "threads": threads}


def _case_of_source(case: Case, source: Mapping[str, Any]) -> Case:
    """The case with what its source is. UserError if that contradicts the case."""
    arrays = source["arrays"]
    described = replace(
        case,
        shape=tuple(source["shape"]),
        nbytes=source["nbytes"] // max(1, arrays),
        threads=case.threads or ALL_THREADS,
    )
    if not case.expression:
        return described
    library = source["library"]
    if source["values"] and case.target != TORCH:
        raise UserError(
            f"--source {case.expression}: a list of Python numbers; np.array makes an array of it, "
            f"--to {TORCH} asks for a tensor"
        )
    if case.target == library:
        way = f"--from {case.target} --to {case.source}"
        raise UserError(f"--source {case.expression}: it is of {library}; write {way}")
    if not source["nbytes"]:
        raise UserError(f"--source {case.expression}: it is empty, there is nothing to measure")
    layout = CONTIGUOUS if source["contiguous"] else "strided"
    return replace(
        described,
        source=library,
        dtype=source["dtype"],
        layout=layout,
        grad=source["grad"],
        batch=arrays,
        values=source["values"],
    )


def _measure(
    server: Server, case: Case, user_routes: Sequence[str]
) -> tuple[Checks, list[TimedProcess]]:
    """Check all routes, and measure the suitable ones in turns. Return checks and lines."""
    checks = server.check([*candidates(case), *user_routes])
    for route in user_routes:
        if "fails" in checks[route]:
            raise UserError(f"--route {route}: {checks[route]['fails']}")
    routes, memory = suitable(case, checks, user_routes)
    outside = [route for route in user_routes if checks[route]["memory"] != memory]
    print(f"measuring: {len(routes)} routes in turns", file=sys.stderr, flush=True)
    lines = race(server, routes, case.total, partial(undecided, case=case, outside=outside))
    return checks, lines


# --- everyday questions ---------------------------------------------------------------------------


REFERENCE_ROUNDS, MAX_REFERENCE_ROUNDS = 5, 20
# Relative: chance in the difference of two routes, as one SD. With more, the largest regret of the
# best routes themselves is above MAX_REGRET
REFERENCE_ERROR = 0.03
MAX_MEAN_REGRET, MAX_REGRET = 0.01, 0.1

MAX_SECONDS, MAX_SECONDS_LARGE = 10.0, 25.0  # of the median question, up to LARGE bytes and above
IMAGES = "--shape 3x224x224 --batch"
QUESTIONS = (
    "--from numpy --to torch --nbytes 48KB --own",
    "--from numpy --to torch --nbytes 1MiB --own",
    "--from numpy --to torch --nbytes 3MB --own",
    "--from numpy --to torch --nbytes 16MiB --own",
    "--from numpy --to torch --nbytes 157MB --own",
    "--from torch --to numpy --nbytes 48KB --own",
    "--from torch --to numpy --nbytes 1MiB --own",
    "--from torch --to numpy --nbytes 12MB --own",
    "--from torch --to numpy --nbytes 100MB --own",
    "--from numpy --to torch --nbytes 600KB --into-buffer",
    "--from numpy --to torch --nbytes 40MB --into-buffer",
    "--from torch --to numpy --nbytes 600KB --into-buffer",
    "--from torch --to numpy --nbytes 40MB --into-buffer",
    "--from numpy --to torch --shape 512x768 --layout transposed --own",
    "--from numpy --to torch --shape 3000x4000 --layout transposed --own",
    "--from torch --to numpy --shape 512x768 --layout transposed --own",
    "--from numpy --to torch --shape 1024x1024 --layout strided --own",
    "--from torch --to numpy --shape 1024x1024 --layout strided --own",
    "--from numpy --to torch --shape 480x640x3 --layout flipped",
    "--from numpy --to torch --shape 1080x1920x3 --dtype uint8 --layout flipped",
    "--from numpy --to torch --shape 8x3x224x224 --layout channels_last --own",
    "--from numpy --to torch --shape 1000x300 --layout fortran --own",
    "--from numpy --to torch --nbytes 2MB --layout read-only --own",
    "--from numpy --to torch --shape 1080x1920x3 --dtype uint8 --to-dtype float32",
    "--from numpy --to torch --nbytes 8MB --dtype float64 --to-dtype float32",
    "--from numpy --to torch --nbytes 8MB --dtype int64 --to-dtype int32",
    "--from numpy --to torch --nbytes 1MB --dtype bool --to-dtype float32",
    "--from numpy --to torch --nbytes 2MB --dtype uint16 --own",
    "--from torch --to numpy --nbytes 4MiB --dtype bfloat16 --to-dtype float32",
    f"--from numpy --to torch {IMAGES} 32",
    f"--from numpy --to torch {IMAGES} 64",
    "--from numpy --to torch --nbytes 1MiB --batch 64",
    "--from numpy --to torch --nbytes 64 --batch 1000",
    "--from numpy --to torch --nbytes 256 --batch 20000",
    f"--from torch --to numpy {IMAGES} 32",
)


@dataclass(frozen=True)
class Outcome:
    """How a question was answered.

    route, seconds   advised, and how long that took; from results: "" where it was refused
    regret           of the median process; NaN where the machine was too noisy
    """

    question: str
    nbytes: int
    route: str
    seconds: float
    regret: float
    from_results: str
    regret_from_results: float


def ask(words: Sequence[str]) -> tuple[str, Case | None, float]:
    """Return the route that advise.py puts first and the case as it understood it, "" and None if
    it refuses, and the seconds it took."""
    start = time.monotonic()
    command = [sys.executable, f"{ROOT}/scripts/advise.py", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.monotonic() - start
    if done.returncode:
        return "", None, seconds
    answered = json.loads(done.stdout)
    case = from_json(Case, answered["case"])
    return answered["routes"][0]["route"], case, seconds


def time_in_turns(server: Server, routes: Sequence[str]) -> list[TimedProcess]:
    """Time the routes of the server's source in turns, until chance moves little."""
    lines: list[TimedProcess] = []
    for number in range(MAX_REFERENCE_ROUNDS):
        lines += sample_routes(server, routes, "", number)
        if is_precise(shared_level(quiet.Run(lines)).to_numpy()):
            break
    return lines


def reference(case: Case) -> tuple[list[str], Floats]:
    """Time all safe routes of a case. Return the routes and log seconds (routes, rounds)."""
    with serve() as server:
        server.make_source(question(case))
        routes, _ = suitable(case, server.check([*candidates(case)]))
        lines = time_in_turns(server, routes)
    return routes, shared_level(quiet.Run(lines)).to_numpy()


def is_precise(logs: Floats) -> bool:
    """Whether a reference has enough processes. logs: (routes, rounds), NaN where one was noisy"""
    variance, _ = pooled_variance(logs)
    counts = np.isfinite(logs).sum(axis=1)
    error = math.sqrt(2 * variance / max(1, np.median(counts)))
    return logs.shape[1] >= REFERENCE_ROUNDS and error <= REFERENCE_ERROR


def regrets(readings: Floats) -> list[float]:
    """Return how much longer the advised route (the first) takes than the best one: a share per
    process, sorted.

    The other processes choose the best route. Chosen by the same process, it would be the luckiest
    of all routes.

    readings  (routes, processes) of log seconds, NaN where a process was noisy
    """
    shares = []
    for process, times in enumerate(readings.T):
        other_means = means(np.delete(readings, process, axis=1))
        judged = np.isfinite(other_means) & np.isfinite(times)
        if judged[0]:
            best = np.argmin(np.where(judged, other_means, math.inf))
            shares.append(math.exp(times[0] - times[best]) - 1)
    return sorted(shares)


def regret_of(route: str, routes: Sequence[str], logs: Floats) -> float:
    """Return the regret of a route in the median process; NaN where that cannot be said."""
    if route not in routes:
        return math.nan
    place = routes.index(route)
    order = [place, *(other for other in range(len(routes)) if other != place)]
    shares = regrets(logs[order])
    return float(np.median(shares)) if shares else math.nan


def judge(text: str, results: Path) -> Outcome:
    """Ask a question in both ways, and judge the answers."""
    words = text.split()
    with tempfile.TemporaryDirectory() as place:
        route, case, seconds = ask([*words, "--measure", "--results", place])
    from_results, _, _ = ask([*words, "--results", str(results)])
    if case is None:
        return Outcome(text, 0, "", seconds, math.nan, from_results, math.nan)
    routes, logs = reference(case)
    regret, other_regret = (regret_of(each, routes, logs) for each in (route, from_results))
    return Outcome(text, case.total, route, seconds, regret, from_results, other_regret)


def summary(outcomes: DataFrame) -> list[str]:
    """Lines to print: both kinds of answers, and the worst ones."""
    large = outcomes["nbytes"] > LARGE
    count = len(outcomes)
    lines = [f"{count} questions"]
    for name, route, regret in (
        ("measured", "route", "regret"),
        ("from results", "from_results", "regret_from_results"),
    ):
        judged = outcomes[regret].dropna()
        shares = "none judged"
        if len(judged):
            mean, most = show.percent(judged.mean(), 1), show.percent(judged.max(), 1)
            shares = f"regret mean {mean}, maximum {most} ({len(judged)} judged)"
        lines.append(f"  {name}: {(outcomes[route] == '').sum()} refused, {shares}")
    for name, rows in (("up to 16 MiB", outcomes[~large]), ("above", outcomes[large])):
        if len(rows):
            median = rows["seconds"].median()
            lines.append(f"  seconds {name}: median {median:.1f}, most {rows['seconds'].max():.1f}")
    worst = outcomes.sort_values("regret", ascending=False).head(5)
    columns = ["question", "route", "seconds", "regret", "from_results", "regret_from_results"]
    return [*lines, worst[columns].to_string(index=False)]


def exit_status(outcomes: DataFrame) -> int:
    """0 promises kept, 1 not kept, 2 too noisy."""
    regret = outcomes["regret"].dropna()
    if 2 * len(regret) < len(outcomes):
        return 2
    large = outcomes["nbytes"] > LARGE
    slow = outcomes["seconds"][~large].median() > MAX_SECONDS
    slow |= outcomes["seconds"][large].median() > MAX_SECONDS_LARGE
    wrong = regret.mean() > MAX_MEAN_REGRET or regret.max() > MAX_REGRET
    return int(slow or wrong or (outcomes["route"] == "").any())


def main(argv: CommandLine = None) -> int:
    """Does advise.py --measure answer what people ask, in time, and rightly?

        python scripts/check.py questions                  35 everyday questions: about half an hour
        python scripts/check.py questions --questions 10   only the first ones

    For each question it runs ``advise.py --measure`` and notes the seconds, imports included. Then
    it times all safe routes in turns, 5 to 20 processes each, until chance moves the difference of
    two by 3 % at most. Regret is how much longer the advised route takes than the best one;
    samples that lost the processor do not count. Beside it stands the answer from this machine's
    results, where there are any: refused, or its regret.

    Exit status: 0 as promised. 1 if a question is refused, the mean regret is above 1 %, the
    largest above 10 %, or the median answer takes more than 10 s up to 16 MiB, 25 s up to 256 MiB.
    2 if the machine was too noisy to judge half of the questions.
    """
    parser = Parser(inspect.getdoc(main))
    parser.option("--questions N", "how many of them", default=len(QUESTIONS))
    parser.option("--results DIR", "directory of results", default=RESULTS)
    args = parser.parse_args(argv)
    if args.questions > len(QUESTIONS):
        raise UserError(f"--questions {args.questions}: there are {len(QUESTIONS)}")
    progress = Progress("check", args.questions)
    outcomes = []
    for text in QUESTIONS[: args.questions]:
        outcomes.append(judge(text, args.results))
        progress.at(len(outcomes))
        print(
            f"{text}: {outcomes[-1].route or 'refused'}, {outcomes[-1].seconds:.1f} s", flush=True
        )
    table = DataFrame(outcomes)
    print(*summary(table), sep="\n")
    return exit_status(table)
