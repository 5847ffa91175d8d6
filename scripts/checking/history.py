"""How well is a history known? How wide its intervals are, and what a second history says of its changes.

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

import contextlib
import io
import math
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from analysis.changes import CHANGED, reported
from analysis.history import CONTROL, History, histories_of
from analysis.results import load
from analysis.statistics import HALF, rate_bounds
from analysis.verdicts import DEFAULT, INSTRUCTIONS, SAME_WAY, TIME, judge_counts
from cli import Parser, UserError
from measuring.engine import RESULTS, ROOT
from pages import show
from store.files import machines

from benchmarks.probes import MEMORY

SERIES = ["package", "series"]
KEY = [*SERIES, "what", "release"]
# Sizes of changes, and the share of them that the other history is to report again
SIZES = {"7 % and more": (1.07, math.inf, 0.95), "3 to 7 %": (1.03, 1.07, 0.8), "below 3 %": (1.0, 1.03, 0.0)}
COVERED = (0.93, 0.98)  # share of points that differ as little as both intervals allow
LARGE, MISSED = 1.05, 8  # changes above this in both histories, and how many of them may be missed
COUNTS = 0.005  # what medians of counts agree to
Line = tuple[str, bool]  # what is said, and whether it is as promised


def histories(machine: str, results: Path) -> list[History]:
    """The histories of a machine by all results in that folder."""
    return [*histories_of(load(results, machine)).values()]


@contextlib.contextmanager
def of_revision(machine: str, name: str) -> Iterator[Path]:
    """A folder of the results that a machine has at a git revision; UserError where this checkout has none such."""
    inside = RESULTS.relative_to(ROOT)
    command = [
        "git",
        "archive",
        "--format=zip",
        f"{name}^{{commit}}",
        "--",
        str(inside / machine),
        str(inside / "benchmarks.json"),
    ]
    try:
        archive = None if name.startswith("-") else subprocess.run(command, cwd=ROOT, capture_output=True)
    except FileNotFoundError:
        raise UserError("--before takes a git revision, and there is no git here") from None
    if archive is None or archive.returncode:
        raise UserError(f"--before {name!r} is no revision of this checkout that has results of {machine}")
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        zipfile.ZipFile(io.BytesIO(archive.stdout)).extractall(folder)
        yield Path(folder, inside)


def known(every: Sequence[History]) -> Iterator[Line]:
    """What a history is known to, and its false alarms."""
    for history in every:
        rows = history.rows[history.rows["what"] == TIME]
        half = (rows["high"] / rows["low"]) ** 0.5 - 1
        for noise, own in half[rows["noise"] != CONTROL].groupby(rows["noise"], sort=False):
            middle, wide = (show.percent(own.quantile(share), 1) for share in (0.5, 0.9))
            text = f"{history.package}, {noise}: {len(own):,} points, ±{middle} in the median, 90th percentile ±{wide}"
            yield text, True
        changes = history.changes["what"].value_counts()
        controls = rows.loc[rows["control"], "series"].nunique()
        said = ", ".join(f"{count} of {what}" for what, count in changes.items())
        alarms = f"{len(history.false_alarms)} of {controls} controls"
        yield f"{history.package}: {said or 'no'} changes reported; {alarms}", True
    twice = every[0].replicates
    if len(twice):
        flagged, series = int(twice["flagged"].sum()), int(twice["series"].sum())
        kept = rate_bounds(flagged, series)[0] <= DEFAULT.promise
        yield f"toolchains measured twice: {flagged} of {series} series reported as changed", kept


# --- two histories of the same toolchains ----------------------------------------------------------------------------


def compared(now: list[History], before: list[History]) -> Iterator[Line]:
    """What they say of each other; UserError where they have no point in common."""
    first, second = (pd.concat([history.rows for history in each]) for each in (now, before))
    first, second = (each.assign(error=np.log(each["high"] / each["low"]) / 2 / HALF) for each in (first, second))
    both = first.merge(second, on=KEY, suffixes=("", "_then"))
    times = both[both["what"] == TIME].assign(  # y: their difference, where nothing changed
        y=lambda table: np.log(table["value"] / table["value_then"]),
        error=lambda table: np.hypot(table["error"], table["error_then"]),
    )
    if times.empty:
        raise UserError("no figure was measured in both by the same benchmarks: name another revision")
    held = times["y"].abs() <= HALF * times["error"]
    for noise, own in times.assign(held=held).groupby("noise", sort=False):
        share, covered = own["held"].mean(), int(own["held"].sum())
        low, high = rate_bounds(covered, len(own))  # few points may be outside of the bounds by chance
        text = f"{noise}: {len(own):,} points differ by {show.percent(own['y'].abs().median(), 1)} in the median, "
        text += f"{show.percent(share, 1)} as little as both intervals allow"
        yield text, noise == CONTROL or (high >= COVERED[0] and low <= COVERED[1])

    again = pd.concat([_again(first, second), _again(second, first)])
    for name, (least, most, promise) in SIZES.items():
        own = again.loc[again["size"].between(least, most, inclusive="left"), "seen"]
        share = own.mean() if len(own) else 1.0
        text = f"changes of time, {name}: {int(own.sum())} of {len(own)} reported again, {show.percent(share)}"
        yield text, share >= promise

    plain = times[times["noise"] != CONTROL].reset_index(drop=True)
    plain["place"] = plain.groupby(SERIES).cumcount()
    steps = [np.log(plain[name]).groupby([plain[key] for key in SERIES]).diff() for name in ("value", "value_then")]
    large = plain[(np.minimum(*map(np.abs, steps)) > math.log(LARGE)) & (steps[0] * steps[1] > 0)]
    missed = large[~_near(large, again.drop(columns="place").merge(plain[[*KEY, "place"]], on=KEY), SERIES)]
    of_memory = int((missed["noise"] == MEMORY).sum())
    text = f"missed: {len(missed) - of_memory} steps of more than 5 % in both histories"
    yield f"{text}; of memory, whose points are less well known, {of_memory}", len(missed) - of_memory <= MISSED

    settings = now[0].settings
    tables = [reported(own, settings) for _, own in plain.groupby(["package", "noise"], sort=False)]
    alarms = sum(int((table["verdict"] != "").sum()) for table in tables)
    series = plain.groupby(SERIES).ngroups
    yield f"A/A: {alarms} changes reported in the differences of {series} series", not alarms

    counts = both[both["what"] == INSTRUCTIONS]
    if len(counts):
        near = int(((counts["value"] / counts["value_then"] - 1).abs() <= COUNTS).sum())
        ranges = zip(counts["low"] / counts["high_then"], counts["high"] / counts["low_then"])
        changed = sum(judge_counts(low, high, settings) in SAME_WAY for low, high in ranges)
        text = f"instruction counts: {near:,} of {len(counts):,} medians within {show.percent(COUNTS, 1)}"
        text += f"; {changed} would be reported as changed"
        yield text, rate_bounds(changed, len(counts))[0] <= DEFAULT.promise


def _near(rows: pd.DataFrame, others: pd.DataFrame, on: list[str]) -> "pd.Series[bool]":
    """Whether each row has one of the others of the same ``on``, at its place in the series or next to it."""
    pairs = rows.reset_index().merge(others[[*on, "place"]], on=on)
    return rows.index.isin(pairs.loc[(pairs["place_x"] - pairs["place_y"]).abs() <= 1, "index"])


def _again(rows: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """The reported changes of times in ``rows`` whose release ``others`` has, too; whether those have ``seen`` one of
    the same direction."""
    times, others = (each[(each["what"] == TIME) & ~each["control"]] for each in (rows, others))
    others = others.assign(place=others.groupby(SERIES).cumcount())
    found = times[times["verdict"].isin(CHANGED)].merge(others[[*KEY, "place"]], on=KEY)
    seen = _near(found, others[others["verdict"].isin(CHANGED)], [*SERIES, "verdict"])
    return found.assign(seen=seen, size=np.exp(np.abs(np.log(found["ratio"].astype(float)))))


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
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
            lines += compared(now, histories(machine, results))
    for text, kept in lines:
        print(text if kept else f"{text} (promised: otherwise)")
    return 0 if all(kept for _, kept in lines) else 1
