#!/usr/bin/env python3
"""How well is a history known? How wide its intervals are, and whether they hold what was measured again.

    python scripts/check_history.py                        the histories of the only machine that has results
    python scripts/check_history.py NAME --before REV      those of a machine, against its results at a git revision

Reads results, and measures nothing. A line a history and family of noise, "memory" being copies of 16 MiB and more:
half of the 95 % interval of a point, in the median and of nine in ten. With --before, what they differ by from points
of the same release and benchmark that were measured at another time, and how many of these pairs are as far apart as
both intervals allow; how many of the changes that are told went the same way then; and of counts how many medians agree
within 0.5 %, and how many a comparison would call changed; and how many cells compare.py flags where it compares
toolchains with themselves. Exit code 1 where intervals, but of memory, are wider than 3 % in the median, where fewer
than 95 % of pairs or changes are seen again (beyond chance), or where more than 0.5 % of counts or cells are flagged.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import numpy as np
import pandas as pd
from analysis.statistics import rate_bounds
from analysis.verdicts import DECIDED, DEFAULT, FASTER, INCONCLUSIVE, SLOWER
from checking.repeated import CALLS, COUNTS, HELD, Repeated, Verdicts, checked
from cli import Parser, UserError
from measuring.engine import RESULTS
from pages import show
from store.files import machines

from benchmarks.probes import MEMORY


def width(history: Repeated) -> Iterator[tuple[str, bool]]:
    """What is said of a history's points, and whether it is as promised."""
    for family, half in history.points.groupby("family", sort=False)["half"]:
        kept = family == MEMORY or bool(half.median() <= CALLS)
        middle, wide = (show.percent(half.quantile(share), 1) for share in (0.5, 0.9))
        yield f"{history.package}, {family}: {len(half):,} points, ± {middle}, nine in ten ± {wide}", kept


def again(repeated: Sequence[Repeated]) -> Iterator[tuple[str, bool]]:
    """The same of what was measured twice, of all histories together: they are of one machine, and of few visits."""
    hours = show.join([f"{history.hours:.1f}" for history in repeated if math.isfinite(history.hours)])
    pairs = pd.concat([history.points for history in repeated]).dropna(subset="apart")
    for family, points in pairs.groupby("family", sort=False):
        middle, wide = (show.percent(points["apart"].abs().quantile(share), 1) for share in (0.5, 0.9))
        yield (
            f"{family}, {hours} hours apart: {len(points):,} points differ by {middle} in the median, nine in ten "
            f"by {wide}; {show.percent(points['held'].mean(), 1)} as both intervals allow",
            rate_bounds(int((~points["held"]).sum()), len(points))[0] <= 1 - HELD,  # of few more are out by chance
        )
    breaks = np.array([each for history in repeated for each in history.breaks]).reshape(-1, 2)
    if len(breaks):
        same, within = breaks.sum(axis=0).tolist()
        yield (
            f"changes: of {len(breaks)} that are told {same} went the same way, and {within} by as much as both "
            "intervals allow",
            max(rate_bounds(len(breaks) - held, len(breaks))[0] for held in (same, within)) <= 1 - HELD,
        )
    medians = np.concatenate([history.counts for history in repeated])
    if len(medians):
        flagged, near = sum(history.flagged for history in repeated), int((medians <= COUNTS).sum())
        yield (
            f"counts: {near:,} of {len(medians):,} medians within {show.percent(COUNTS, 1)}, "
            f"{show.percent(float(medians.max()), 1)} at most; {flagged} would be told as changes",
            rate_bounds(flagged, len(medians))[0] <= DEFAULT.promise,
        )


def alike(verdicts: Verdicts) -> Iterator[tuple[str, bool]]:
    """What comparisons of toolchains with themselves come to."""
    judged = {key: cells for key, cells in verdicts.items() if key[1] in (*DECIDED, INCONCLUSIVE)}
    cells = sum(judged.values())
    flagged = sum(number for (_, verdict), number in judged.items() if verdict in (SLOWER, FASTER))
    steady = {key: number for key, number in judged.items() if key[0] != MEMORY}
    decided = sum(number for (_, verdict), number in steady.items() if verdict in DECIDED)
    if steady:
        yield (
            f"compared with themselves: {flagged} of {cells:,} cells flagged; of those that are not of memory "
            f"{show.percent(decided / sum(steady.values()))} are decided",
            rate_bounds(flagged, cells)[0] <= DEFAULT.promise,
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("machine", nargs="?", metavar="NAME", help="a folder of reports/results")
    parser.add_argument("--before", metavar="REV", help="a git revision that has its results of another time")
    chosen = parser.parse_args(argv)
    known = machines(RESULTS)
    if chosen.machine not in known and (chosen.machine or len(known) != 1):
        raise UserError(f"whose histories? there are results of {show.join(known)}")
    repeated, verdicts = checked(chosen.machine or known[0], chosen.before)
    said = [*(line for history in repeated for line in width(history)), *again(repeated), *alike(verdicts)]
    for line, kept in said:
        print(line if kept else f"{line} (promised: otherwise)")
    return 0 if all(kept for _, kept in said) else 1


if __name__ == "__main__":
    cli.run(main)
