#!/usr/bin/env python3
"""How well is a history known? How wide its intervals are, and what a second history says of its changes.

    python scripts/check_history.py                        the histories of the only machine that has results
    python scripts/check_history.py NAME --before REV      those of a machine, against its results at a git revision

Reads results, and measures nothing. Prints per noise class half of the 95 % interval of a point, then false alarms of
controls and of toolchains that were measured twice. "memory" is copies of 16 MiB and more.

With --before it compares with the history at that revision, of the same toolchains on the same machine:

    covered      points that differ as little as both intervals allow
    again        reported changes that the other history reports, too, at the same release or a neighbour
    missed       steps above 5 % in both histories that neither reports
    A/A          changes reported in the differences of the two, where nothing changed
    counts       instruction counts that agree

Exit code: 0 as promised. 1 if fewer than 93 or more than 98 % of points are covered, fewer than 95 % of changes of 7 %
and more or 80 % of those of 3 to 7 % are reported again, more than 8 are missed, or the A/A reports a change.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from analysis.changes import TIME
from analysis.history import CONTROL, History
from analysis.statistics import HALF, rate_bounds
from analysis.verdicts import DEFAULT
from checking.history import COVERED, MISSED, SEEN, SIZES, Repeated, compared, histories, of_revision
from cli import Parser, UserError
from measuring.engine import RESULTS
from pages import show
from store.files import machines

from benchmarks.probes import MEMORY

COUNTS = 0.005  # what medians of counts agree to
Line = tuple[str, bool]  # what is said, and whether it is as promised


def known(every: Sequence[History]) -> Iterator[Line]:
    """What a history is known to, and its false alarms."""
    for history in every:
        rows = history.rows[history.rows["what"] == TIME]
        half = (rows["high"] / rows["low"]) ** 0.5 - 1
        for noise, own in half[rows["noise"] != CONTROL].groupby(rows["noise"], sort=False):
            middle, wide = (show.percent(own.quantile(share), 1) for share in (0.5, 0.9))
            yield (
                f"{history.package}, {noise}: {len(own):,} points, ±{middle} in the median, 90th percentile ±{wide}",
                True,
            )
        changes = history.changes["what"].value_counts()
        controls = rows.loc[rows["control"], "series"].nunique()
        said = ", ".join(f"{count} of {what}" for what, count in changes.items())
        yield (
            f"{history.package}: {said or 'no'} changes reported; {len(history.false_alarms)} of {controls} controls",
            True,
        )
    twice = every[0].replicates
    if len(twice):
        flagged, series = int(twice["flagged"].sum()), int(twice["series"].sum())
        kept = rate_bounds(flagged, series)[0] <= DEFAULT.promise
        yield f"toolchains measured twice: {flagged} of {series} series reported as changed", kept


def again(repeated: Repeated) -> Iterator[Line]:
    """What two histories of the same toolchains say of each other."""
    points = repeated.points.assign(held=lambda table: table["effect"].abs() <= HALF * table["error"])
    for noise, own in points.groupby("noise", sort=False):
        share, covered = own["held"].mean(), int(own["held"].sum())
        # few points may be outside of the bounds by chance
        low, high = rate_bounds(covered, len(own))
        text = f"{noise}: {len(own):,} points differ by {show.percent(own['effect'].abs().median(), 1)} in the median, "
        text += f"{show.percent(share, 1)} as little as both intervals allow"
        yield text, noise == CONTROL or (high >= COVERED[0] and low <= COVERED[1])
    for name, (least, most) in SIZES.items():
        own = repeated.again[repeated.again["size"].between(least, most, inclusive="left")]
        share = own["seen"].mean() if len(own) else 1.0
        text = f"changes of time, {name}: {int(own['seen'].sum())} of {len(own)} reported again, {show.percent(share)}"
        yield text, share >= SEEN.get(name, 0.0)
    through = repeated.missed["noise"] == MEMORY
    missed, of_memory = int((~through).sum()), int(through.sum())
    text = f"missed: {missed} steps of more than 5 % in both histories"
    text += f"; of memory, whose points are less well known, {of_memory}"
    yield text, missed <= MISSED
    yield f"A/A: {repeated.alarms} changes reported in the differences of {repeated.series} series", not repeated.alarms
    counts = repeated.counts
    if len(counts):
        near, changed = int((counts["apart"] <= COUNTS).sum()), int(counts["changed"].sum())
        text = f"instruction counts: {near:,} of {len(counts):,} medians within {show.percent(COUNTS, 1)}"
        yield f"{text}; {changed} would be reported as changed", rate_bounds(changed, len(counts))[0] <= DEFAULT.promise


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("machine", nargs="?", metavar="NAME", help="a folder of reports/results")
    parser.add_argument("--before", metavar="REV", help="a git revision that has its results of another time")
    chosen = parser.parse_args(argv)
    found = machines(RESULTS)
    if chosen.machine not in found and (chosen.machine or len(found) != 1):
        raise UserError(f"whose histories? there are results of {show.join(found)}")
    machine = chosen.machine or found[0]
    now = histories(machine, RESULTS)
    if not any((history.rows["what"] == TIME).any() for history in now):
        raise UserError(f"{machine} has no history of times: python scripts/track.py measures one")
    lines = list(known(now))
    if chosen.before:
        with of_revision(machine, chosen.before) as results:
            lines += again(compared(now, histories(machine, results)))
    for text, kept in lines:
        print(text if kept else f"{text} (promised: otherwise)")
    return 0 if all(kept for _, kept in lines) else 1


if __name__ == "__main__":
    cli.run(main)
