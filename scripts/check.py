#!/usr/bin/env python3
"""Check on this machine that the suite keeps its promises.

    python scripts/check.py timing     compare timing with torch.utils.benchmark: about 8 minutes
    python scripts/check.py noise      measure under deliberate noise: about half an hour
    python scripts/check.py advice     test the advice on random cases: about ten minutes
    python scripts/check.py history    check the intervals of a history, from results: seconds

Each has its own --help. Exit status: 0 promises kept, 1 not kept, 2 too noisy or not possible to check.
"""

import argparse
import math
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import Parser, UserError

from benchmarks.contracts import ALL_THREADS, ONE_THREAD
from benchmarks.probes import PATIENCE_VARIABLE

if TYPE_CHECKING:  # no numpy here: timing sets its threads first
    from checking.advice import Verdict

ADVICE = """Is what advise.py says right?

    python scripts/check.py advice                          about ten minutes
    python scripts/check.py advice --cases 20 --threads 1   fewer cases, of programs with one torch thread

Advice asks for cases that no profile has: random sizes from 3 KiB to 256 MiB, four layouts, lists of arrays, dtypes,
both directions, with torch's own number of threads and with one. Of each case it times the ranked routes in turns, each
in processes of its own and between speed probes, as the suite does. It prints for either number of threads

    regret      by how much longer the advised route takes than the best one, in the median process. The best one is
                chosen by the other processes. Its interval is the range over processes
    prediction  by how much the predicted time misses the measured one

Exit code: 0 as promised. 1 where the mean regret is above 3 %, the largest above 20 %, or fewer than 90 % of the
predictions are within 15 %. 2 where the machine was too noisy to judge half of the cases.
"""
WORST = 5  # that are named
PATIENCE = 300.0  # seconds that all processes wait for a quiet machine together


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(ADVICE)
    parser.add_argument("--machine", help="machine whose results to use (default: the only one)")
    parser.add_argument("--cases", type=int, default=40, help="number of cases per number of threads (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random cases (default: 0)")
    parser.add_argument("--threads", choices=[ONE_THREAD, ALL_THREADS], help="torch threads (default: both)")
    parser.add_argument("--processes", type=int, default=3, help="processes per route and case (default: 3)")
    chosen = parser.parse_args(argv)
    if chosen.processes < 1 or chosen.cases < 1:
        raise UserError("--processes and --cases take whole numbers from 1")
    return chosen


def summary(threads: int, verdict: "Verdict") -> list[str]:
    """The figures for a number of threads, and the largest misses."""
    from checking import advice
    from pages import case as words
    from pages import show

    lines = [f"{show.threads(threads)}: {len(verdict.regret)} of {verdict.asked} cases judged"]
    if verdict.regret:
        mean = statistics.fmean(value for value, _ in verdict.regret)
        worst = show.percent(verdict.regret[0][0], 1)
        lines.append(f"  regret of the median process: mean {show.percent(mean, 1)}, maximum {worst}")
    if verdict.errors:
        middle = statistics.median(error for error, _ in verdict.errors)
        lines.append(
            f"  predictions: {show.percent(verdict.within)} of {len(verdict.errors)} within "
            f"{show.percent(advice.ERROR)}, half of them within {show.percent(middle, 1)}"
        )
    for value, asked in verdict.regret[:WORST]:
        if value > 0 and asked.best:
            took, least = (show.seconds(math.exp(cell.log)) for cell in (asked.cells[0], asked.best))
            low, high = (show.percent(share, 1) for share in (asked.regrets[0], asked.regrets[-1]))
            lines.append(
                f"    {show.percent(value, 1)} ({low} to {high}): {words.title(asked.case)}: {asked.cells[0].route} "
                f"took {took}, {asked.best.route} {least}"
            )
    for _, cell in verdict.errors[:WORST]:
        predicted, took = show.seconds(cell.predicted), show.seconds(math.exp(cell.log))
        lines.append(f"    {cell.route}, {words.title(cell.case)}: predicted {predicted}, took {took}")
    return lines


def check_advice(argv: Sequence[str] | None) -> int:
    chosen = arguments(argv)
    if not hasattr(os, "fork"):
        raise UserError("this check forks processes, which this system cannot")
    from analysis.choices import every
    from checking import advice
    from measuring.engine import RESULTS
    from pages import show

    known = [results for results in every(RESULTS) if chosen.machine in (None, results.machine)]
    if len(known) != 1:
        raise UserError(
            "--machine: whose results? there are " + (", ".join(results.machine for results in known) or "none")
        )
    (results,) = known
    threads = [chosen.threads] if chosen.threads else [ALL_THREADS, ONE_THREAD] if results.spreads else [ONE_THREAD]
    asked = {each: advice.questions(results, each, chosen.cases, chosen.seed) for each in threads}
    os.environ.setdefault(PATIENCE_VARIABLE, str(PATIENCE))
    advice.measure([question for questions in asked.values() for question in questions], chosen.processes)
    (verdicts, quiet), codes = advice.judged(asked), []
    print(f"quiet {show.percent(quiet)} of the time, seed {chosen.seed}")
    for each, verdict in verdicts.items():
        print("\n".join(summary(results.threads if each == ALL_THREADS else 1, verdict)))
        codes.append(verdict.code)
    return 1 if 1 in codes else max(codes)


def check_named(name: str, argv: Sequence[str]) -> int:
    """Make a check with its own options; the exit code."""
    if name == "advice":
        return check_advice(argv)
    if name == "timing":
        from checking import timing

        return timing.main(argv)
    if name == "noise":
        from checking import noise

        return noise.main(argv)
    from checking import history

    return history.main(argv)


CHECKS = ("timing", "noise", "advice", "history")


def main(argv: Sequence[str] | None = None) -> int:
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name not in CHECKS:
        parser = Parser(__doc__)
        parser.add_argument("what", choices=CHECKS)
        parser.parse_args([name])
    return check_named(name, rest)


if __name__ == "__main__":
    cli.run(main)
