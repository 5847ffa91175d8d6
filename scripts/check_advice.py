#!/usr/bin/env python3
"""Is what advise.py says right? Measure what no profile contains, and compare.

    python scripts/check_advice.py                        16 sizes of 3 KiB to 200 MB × 4 dtypes, both directions
    python scripts/check_advice.py --sizes 3072,200000000 --dtypes float16

Every case is asked of this machine's results: whatever is fastest, what shares memory, what copies, and what goes into
a buffer. The routes that are named and may matter are then timed at that size and dtype, each in processes of its own
and between speed probes, as the suite does. It prints

    regret      by how much longer the advised route takes than the best, in the median process, with its range; the
                best is chosen by the other processes
    prediction  by how much the predicted time misses the time that was measured

Exit code 1 where the mean regret is above 3 % or the largest above 20 %, or fewer than 90 % of the predictions are
within 15 %; 2 where the machine was too noisy for half of the cases to be judged.
"""

import argparse
import math
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

from checking import advice
from checking.timing import sizes_of
from cli import Parser, UserError, run
from measuring.engine import RESULTS
from pages import case as words
from pages import show

from benchmarks.probes import PATIENCE_VARIABLE

WORST = 5  # that are named
PATIENCE = 300.0  # seconds that all processes wait for a quiet machine together


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--machine", help="whose results are asked: this one's name (default: the only one there is)")
    parser.add_argument("--sizes", default=",".join(map(str, advice.SIZES)), help="bytes, separated by commas")
    parser.add_argument("--dtypes", default=",".join(advice.DTYPES), help="separated by commas")
    parser.add_argument("--processes", type=int, default=4, help="processes per cell (default 4)")
    chosen = parser.parse_args(argv)
    chosen.sizes = sizes_of(chosen.sizes)
    if chosen.processes < 1 or min(chosen.sizes) < 1:
        raise UserError("--processes and --sizes take whole numbers from 1")
    return chosen


def summary(verdict: advice.Verdict) -> list[str]:
    """The figures, and the worst of each kind."""
    lines = [f"quiet {show.percent(verdict.quiet)} of the time; {len(verdict.regret)} of {verdict.asked} cases judged"]
    if verdict.regret:
        mean = statistics.fmean(value for value, _ in verdict.regret)
        worst = show.percent(verdict.regret[0][0], 1)
        lines.append(f"regret of the median process: mean {show.percent(mean, 1)}, maximum {worst}")
    if verdict.errors:
        middle = statistics.median(error for error, _ in verdict.errors)
        lines.append(
            f"predictions: {show.percent(verdict.within)} of {len(verdict.errors)} within "
            f"{show.percent(advice.ERROR)}, half of them within {show.percent(middle, 1)}"
        )
    for value, asked in verdict.regret[:WORST]:
        if value > 0 and asked.best:
            took, least = (show.seconds(math.exp(cell.log)) for cell in (asked.cells[0], asked.best))
            low, high = (show.percent(share, 1) for share in (asked.regrets[0], asked.regrets[-1]))
            lines.append(
                f"  {show.percent(value, 1)} ({low} to {high}): {words.title(asked.case)}: {asked.cells[0].route} took "
                f"{took}, {asked.best.route} {least}"
            )
    for _, cell in verdict.errors[:WORST]:
        predicted, took = show.seconds(cell.predicted), show.seconds(math.exp(cell.log))
        lines.append(f"  {cell.route}, {cell.dtype}, {show.size(cell.nbytes)}: predicted {predicted}, took {took}")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    if not hasattr(os, "fork"):
        raise UserError("this check forks processes, which this system cannot")
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    from analysis.choices import every

    known = [results for results in every(RESULTS) if chosen.machine in (None, results.machine)]
    if len(known) != 1:
        raise UserError(
            "--machine: whose results? there are " + (", ".join(results.machine for results in known) or "none")
        )
    asked = advice.questions(known[0], chosen.sizes, chosen.dtypes.split(","))
    os.environ.setdefault(PATIENCE_VARIABLE, str(PATIENCE))
    advice.measure(asked, chosen.processes)
    verdict = advice.judge(asked)
    print("\n".join(summary(verdict)))
    return verdict.code


if __name__ == "__main__":
    run(main)
