"""How well is a history known? Its intervals, and what a second history of the same toolchains says of its changes."""

import contextlib
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from analysis.changes import CHANGED, INSTRUCTIONS, TIME, reported
from analysis.history import CONTROL, History, history_of, packages
from analysis.results import load
from analysis.statistics import HALF, rate_bounds
from analysis.verdicts import DEFAULT, SAME_WAY, judge_counts
from cli import Parser, UserError
from measuring.engine import RESULTS, ROOT
from pages import show
from store.files import machines

from benchmarks.probes import MEMORY

from .noise import export, revision

KEY = ["package", "series", "what", "release"]
SIZES = {"7 % and more": (1.07, math.inf), "3 to 7 %": (1.03, 1.07), "below 3 %": (1.0, 1.03)}
SEEN = {"7 % and more": 0.95, "3 to 7 %": 0.8}  # share of changes that the other history reports again
COVERED = (0.93, 0.98)  # share of points that differ as little as both intervals allow
LARGE, MISSED = 1.05, 8  # changes above this in both histories, and how many of them may be missed


@dataclass(frozen=True)
class Repeated:
    """Two histories of the same toolchains on one machine.

    points    one row per series of times and release of both: noise, effect (log, now over before), error (of both)
    again     one row per reported change of either: noise, ratio, seen (the other reports one of the same direction, at
              that release or a neighbour)
    missed    as ``again``: neighbouring releases that differ by more than LARGE in both, which neither reports
    alarms    series that change by the differences of both, where nothing did
    counts    one row per counted cell and release of both: apart (ratio of the medians), changed (would be reported)
    """

    points: pd.DataFrame
    again: pd.DataFrame
    missed: pd.DataFrame
    alarms: int
    series: int
    counts: pd.DataFrame


def histories(machine: str, results: Path) -> list[History]:
    """The histories of a machine by all results in that folder."""
    known = load(results, machine)
    return [history_of(known, package) for package in packages(known)]


@contextlib.contextmanager
def of_revision(machine: str, name: str) -> Iterator[Path]:
    """A folder of the results that a machine has at a git revision."""
    inside = RESULTS.relative_to(ROOT)
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        export(revision(name), Path(folder), [str(inside / machine), str(inside / "benchmarks.json")])
        yield Path(folder, inside)


def compared(now: list[History], before: list[History]) -> Repeated:
    """UserError where the two have no point in common."""
    first, second = (pd.concat([history.rows for history in each]) for each in (now, before))
    first, second = (each.assign(error=np.log(each["high"] / each["low"]) / 2 / HALF) for each in (first, second))
    both = first.merge(second, on=KEY, suffixes=("", "_then"))
    times = both[(both["what"] == TIME)].assign(
        effect=lambda table: np.log(table["value"] / table["value_then"]),
        error=lambda table: np.hypot(table["error"], table["error_then"]),
    )
    if times.empty:
        raise UserError("no figure was measured in both by the same benchmarks: name another revision")
    counts = both[both["what"] == INSTRUCTIONS]
    ranges = zip(counts["low"] / counts["high_then"], counts["high"] / counts["low_then"])
    settings = now[0].settings
    again = pd.concat([_seen(first, second), _seen(second, first)])
    plain = times[times["noise"] != CONTROL].reset_index(drop=True).assign(y=lambda table: table["effect"])
    alarms = [reported(own, settings) for _, own in plain.groupby(["package", "noise"], sort=False)]
    return Repeated(
        points=times,
        again=again,
        missed=_missed(plain, again),
        alarms=sum(int((table["verdict"] != "").sum()) for table in alarms),
        series=plain.groupby(["package", "series"]).ngroups,
        counts=pd.DataFrame(
            {
                "apart": (counts["value"] / counts["value_then"] - 1).abs(),
                "changed": [judge_counts(low, high, settings) in SAME_WAY for low, high in ranges],
            }
        ),
    )


def _seen(rows: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """The reported changes of times in ``rows`` whose release ``others`` has, too, with ``seen``."""
    times, others = (each[(each["what"] == TIME) & ~each["control"]] for each in (rows, others))
    places = others.assign(place=others.groupby(["package", "series"]).cumcount())
    reported = places[places["verdict"].isin(CHANGED)]
    found = times[times["verdict"].isin(CHANGED)].merge(places[[*KEY, "place"]], on=KEY)
    pairs = found.merge(
        reported[["package", "series", "verdict", "place"]], on=["package", "series", "verdict"], how="left"
    )
    near = pairs[(pairs["place_x"] - pairs["place_y"]).abs() <= 1]
    seen = pd.MultiIndex.from_frame(found[KEY]).isin(pd.MultiIndex.from_frame(near[KEY]))
    return found.assign(seen=seen, size=np.exp(np.abs(np.log(found["ratio"].astype(float)))))


def _missed(times: pd.DataFrame, again: pd.DataFrame) -> pd.DataFrame:
    """Steps from one release to the next of more than LARGE in both histories, of which neither reports a change there
    or at a neighbour."""
    each = times.groupby(["package", "series"])
    steps = [np.log(times[name]) - np.log(each[name].shift()) for name in ("value", "value_then")]
    large = (np.minimum(*map(np.abs, steps)) > math.log(LARGE)) & (steps[0] * steps[1] > 0)
    places = times.assign(place=each.cumcount())
    reported = again.drop(columns="place").merge(places[[*KEY, "place"]], on=KEY)[["package", "series", "place"]]
    found = places[large].merge(reported, on=["package", "series"], how="left")
    near = found[(found["place_x"] - found["place_y"]).abs() <= 1]
    told = pd.MultiIndex.from_frame(places.loc[large, KEY]).isin(pd.MultiIndex.from_frame(near[KEY]))
    return places[large][~told]


# --- in words --------------------------------------------------------------------------------------------------------


HELP = """How well is a history known? How wide its intervals are, and what a second history says of its changes.

    python scripts/check.py history                        the histories of the only machine that has results
    python scripts/check.py history NAME --before REV      those of a machine, against its results at a git revision

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
    parser = Parser(HELP)
    parser.add_argument("machine", nargs="?", metavar="NAME", help="machine: a directory of reports/results")
    parser.add_argument("--before", metavar="REV", help="git revision with another measurement of this history")
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
