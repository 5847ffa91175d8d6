"""How accurate is a history? The width of its intervals, and whether a second history shows the same changes.

    python scripts/check.py history MACHINE
    python scripts/check.py history MACHINE --before REV    against its results at a git revision

It reads results and measures nothing. It prints half of a point's 95 % interval per noise class, then the false alarms
in controls and in toolchains that were measured twice. "memory" means copies of 16 MiB and more.

With --before it compares with the history of the same toolchains and machine at that revision. A history compares its
releases with each other, so the median ratio of the two is said and then left out:

    covered      points that differ as little as both intervals allow
    again        reported changes that the other history reports, too, at the same release or a neighbour
    missed       steps above 5 % in both histories that neither reports
    A/A          changes reported in the differences of the two, where nothing changed
    counts       instruction counts that agree

Exit status: 0 as promised. 1 if fewer than 93 or more than 98 % of points are covered, fewer than 95 % of changes of
7 % and more or 80 % of those of 3 to 7 % are reported again, more than 8 are missed, or the A/A reports a change.
"""

import io
import math
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from analysis.changes import find_changes
from analysis.history import History, histories_of
from analysis.results import load
from analysis.series import CONTROL, FDR
from analysis.statistics import Z95, q_values, rate_bounds
from analysis.verdicts import CHANGED, DEFAULT, INSTRUCTIONS, TIME
from cli import RESULTS, ROOT, Parser, UserError
from pages import show
from scipy import special

from benchmarks.probes import MEMORY

SERIES = ["package", "series"]
KEY = [*SERIES, "what", "release", "version"]
# Size class of changes -> its range of ratios, and the share that the other history must report again
SIZES = {
    "7 % and more": (1.07, math.inf, 0.95),
    "3 to 7 %": (1.03, 1.07, 0.8),
    "below 3 %": (1.0, 1.03, 0.0),
}
COVERED = (0.93, 0.98)  # promised share of points whose difference is within both intervals
LARGE, MISSED = (
    1.05,
    8,
)  # steps above this ratio in both histories, and how many of them may be missed
COUNTS = 0.005  # medians of instruction counts agree if they differ by at most this share
Line = tuple[str, bool]  # a line to print, and whether its promise is kept


def histories(machine: str, results: Path) -> list[History]:
    """The histories of a machine, from all its results in a directory."""
    return [*histories_of(load(results, machine)).values()]


def histories_at(machine: str, revision: str) -> list[History]:
    """The histories of a machine, from its results at a git revision. UserError without results."""
    inside = RESULTS.relative_to(ROOT)
    chosen = [str(inside / machine), str(inside / "benchmarks.json")]
    command = [
        "git",
        "archive",
        "--format=zip",
        "--end-of-options",
        f"{revision}^{{commit}}",
        *chosen,
    ]
    try:
        archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise UserError(
            f"--before {revision}: no git revision of this checkout with results of {machine}"
        ) from None
    with tempfile.TemporaryDirectory(prefix="history-") as directory:
        zipfile.ZipFile(io.BytesIO(archive)).extractall(directory)
        return histories(machine, Path(directory, inside))


def known(every: Sequence[History]) -> Iterator[Line]:
    """Report the precision of a history's points, and its false alarms."""
    for history in every:
        rows = history.rows[~history.rows["control"]]
        classes = rows["noise"].where(rows["what"] == TIME, INSTRUCTIONS)
        for noise, own in ((rows["high"] / rows["low"]) ** 0.5 - 1).groupby(classes, sort=False):
            middle, wide = (show.percent(own.quantile(share), 1) for share in (0.5, 0.9))
            text = f"{history.package}, {noise}: {len(own):,} points, ±{middle} in the median, 90th percentile ±{wide}"
            yield text, True
        controls = history.rows.loc[
            history.rows["control"] & (history.rows["what"] == TIME), "series"
        ].nunique()
        said = ", ".join(
            f"{count} of {what}" for what, count in history.changes["what"].value_counts().items()
        )
        alarms = f"{len(history.false_alarms)} of {controls} controls"
        yield f"{history.package}: {said or 'no'} changes reported; {alarms}", True
    twice = every[0].replicates
    if len(twice):
        flagged, series = int(twice["flagged"].sum()), int(twice["series"].sum())
        text = f"toolchains measured twice: {flagged} of {series} series reported as changed"
        yield text, rate_bounds(flagged, series)[0] <= DEFAULT.promise


def points_of(every: Sequence[History]) -> pd.DataFrame:
    """The points of histories, each with its standard error in log units. Times also have their place in the series."""
    rows = pd.concat([history.rows for history in every])
    rows["error"] = np.log(rows["high"] / rows["low"]) / 2 / Z95
    timed = (rows["what"] == TIME) & ~rows["control"]
    rows.loc[timed, "place"] = rows[timed].groupby(SERIES).cumcount()
    return rows


def compared(now: Sequence[History], before: Sequence[History]) -> Iterator[Line]:
    """Report whether two measurements of a history agree. UserError if they have no point in common."""
    first, second = points_of(now), points_of(before)
    both = first.merge(second, on=KEY, suffixes=("", "_then"))
    both["y"] = np.log(
        both["value"] / both["value_then"]
    )  # the toolchain is the same, so nothing changed
    both["error"], both["spread"] = np.hypot(both["error"], both["error_then"]), 0.0
    times, counts = (both[both["what"] == what] for what in (TIME, INSTRUCTIONS))
    if times.empty:
        raise UserError(
            "no figure was measured in both by the same benchmarks: name another revision"
        )
    common = times["y"].median()  # such as from another clock of the host on that day
    times = times.assign(y=times["y"] - common)
    yield (
        f"all times together: {math.exp(common):.3f} times those of the other history, left out below",
        True,
    )
    for noise, own in times.groupby("noise", sort=False):
        covered = int((own["y"].abs() <= Z95 * own["error"]).sum())
        low, high = rate_bounds(
            covered, len(own)
        )  # the share of a few points may miss COVERED by chance
        text = f"{noise}: {len(own):,} points differ by {show.percent(own['y'].abs().median(), 1)} in the median, "
        text += f"{show.percent(covered / len(own), 1)} as little as both intervals allow"
        yield text, noise == CONTROL or (high >= COVERED[0] and low <= COVERED[1])

    again = pd.concat([_again(first, second), _again(second, first)])
    for name, (least, most, promise) in SIZES.items():
        seen = again.loc[again["size"].between(least, most, inclusive="left"), "seen"]
        share = seen.mean() if len(seen) else 1.0
        text = f"changes of time, {name}: {int(seen.sum())} of {len(seen)} reported again, {show.percent(share)}"
        yield text, share >= promise

    plain = times[times["noise"] != CONTROL].reset_index(drop=True)
    plain["place"] = plain.groupby(SERIES).cumcount()
    logs = np.log(plain[["value", "value_then"]]).groupby([plain[key] for key in SERIES]).diff()
    large = plain[(logs.abs().min(axis=1) > math.log(LARGE)) & (logs.prod(axis=1) > 0)]
    missed = large[~_near(large, again[KEY].merge(plain[[*KEY, "place"]], on=KEY), SERIES)]
    of_memory = int((missed["noise"] == MEMORY).sum())
    text = f"missed: {len(missed) - of_memory} steps of more than 5 % in both histories"
    yield (
        f"{text}; of memory, whose points are less well known, {of_memory}",
        len(missed) - of_memory <= MISSED,
    )

    settings = now[0].settings
    alarms = sum(
        (find_changes(own, settings)["verdict"] != "").sum()
        for _, own in plain.groupby(["package", "noise"])
    )
    yield (
        f"A/A: {alarms} changes reported in the differences of {plain.groupby(SERIES).ngroups} series",
        not alarms,
    )

    if len(counts):
        near = int((counts["y"].abs() <= COUNTS).sum())
        q = q_values((2 * special.ndtr(-counts["y"].abs() / counts["error"])).to_numpy())
        changed = int(((q <= FDR) & (counts["y"].abs() > math.log1p(settings.min_effect))).sum())
        text = f"instruction counts: {near:,} of {len(counts):,} medians within {show.percent(COUNTS, 1)}"
        yield (
            f"{text}; {changed} would be reported as changed",
            rate_bounds(changed, len(counts))[0] <= DEFAULT.promise,
        )


def _near(rows: pd.DataFrame, others: pd.DataFrame, on: list[str]) -> "pd.Series[bool]":
    """Whether each row has a match in ``others``: equal in ``on``, and at the same or a neighbouring place."""
    pairs = rows.reset_index().merge(others[[*on, "place"]], on=on)
    return rows.index.isin(pairs.loc[(pairs["place_x"] - pairs["place_y"]).abs() <= 1, "index"])


def _again(rows: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """The reported changes of times in ``rows`` at releases that ``others`` has, too. ``seen`` says whether ``others``
    reports a change of the same direction there."""
    others = others.dropna(subset=["place"])
    found = rows[rows["verdict"].isin(CHANGED) & rows["place"].notna()].drop(columns="place")
    found = found.merge(others[[*KEY, "place"]], on=KEY)
    seen = _near(found, others[others["verdict"].isin(CHANGED)], [*SERIES, "verdict"])
    return found.assign(seen=seen, size=np.exp(np.abs(np.log(found["ratio"].astype(float)))))


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("machine", metavar="MACHINE", help="a directory of reports/results")
    parser.add_argument(
        "--before", metavar="REV", help="git revision with another measurement of this history"
    )
    chosen = parser.parse_args(argv)
    now = histories(chosen.machine, RESULTS)
    if not any((history.rows["what"] == TIME).any() for history in now):
        raise UserError(
            f"{chosen.machine} has no history of times: python scripts/track.py measures one"
        )
    lines = list(known(now))
    if chosen.before:
        lines += compared(now, histories_at(chosen.machine, chosen.before))
    for text, kept in lines:
        print(text if kept else f"{text} (promised: otherwise)")
    return 0 if all(kept for _, kept in lines) else 1
