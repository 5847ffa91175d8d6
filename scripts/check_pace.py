#!/usr/bin/env python3
"""What is it worth to take figures as at full speed? By how much processes of a cell differ, with that and without.

    python scripts/check_pace.py                                   of all committed runs that have pulses
    python scripts/check_pace.py reports/results/NAME/*.ndjson     of these

Reads samples and pulses, and measures nothing. A line a machine and kind of cell: how many runs and cells of them, the
standard deviation of a cell's calm processes in the median cell, as taken and at full speed, and the slope: where it is
1, samples follow the pulses; it means nothing where the clock is steady. Then, of each size that is moved in memory,
by how much the processor's pulse is above its floor right behind a sample, and before one. Exit code: 0 there are such
runs, 2 there are none.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

from analysis.results import lines_in
from checking.pace import colds, spreads
from cli import Parser, UserError, run
from measuring.engine import RESULTS
from pages import show
from records import calm


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE.ndjson", type=Path, help="samples (default: all committed)")
    chosen = parser.parse_args(argv)
    runs: dict[str, list[list[calm.Line]]] = {}
    for path in chosen.files or sorted(RESULTS.rglob(f"*{calm.SUFFIX}")):
        lines = lines_in(path)
        for name in dict.fromkeys(line["run"] for line in lines):
            runs.setdefault(path.parent.name, []).append([line for line in lines if line["run"] == name])
    if not runs:
        raise UserError("no samples with pulses are there: python scripts/run.py takes some")
    for machine, each in runs.items():
        for spread in spreads(each):
            what = f"{machine}, {spread.kind}: {len(each)} runs, {spread.cells} cells"
            differ = f"{spread.as_taken:.1%} as taken and by {spread.at_full_speed:.1%} at full speed"
            print(f"{what}; processes differ by {differ}, slope {spread.slope:.2f}")
        for cold in colds(each):
            behind, before = (f"{nanoseconds / 1000:.1f}" for nanoseconds in (cold.behind, cold.before))
            what = f"{machine}, {show.size(cold.nbytes)} in memory: {cold.looks} samples"
            print(f"{what}; the pulse behind one takes {behind} µs more than at full speed, the one before it {before}")
    return 0


if __name__ == "__main__":
    run(main)
