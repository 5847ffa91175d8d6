"""How accurate is a history? The width of its intervals, and whether a second one agrees with it.

    python scripts/check.py history MACHINE
    python scripts/check.py history MACHINE --before REV    against its results at a git revision

It reads results and measures nothing. It prints half of a point's 95 % interval per noise class,
how many large changes have a reason, then the false alarms in controls and in toolchains that were
measured twice. "memory" means copies of 16 MiB and more. A change has a reason if functions explain
80 % of the change of its instructions, or if its instructions did not change.

With --before it compares with the history of the same toolchains and machine at that revision. A
history compares its releases with each other, so the median ratio of the two is printed, then left
out:

    covered      points that differ as little as both intervals allow
    again        reported changes that the other history reports, too, at most one release apart
    missed       steps above 5 % in both histories that neither reports
    A/A          changes reported in the differences of the two, where nothing changed
    counts       instruction counts that agree

Exit status: 0 as promised. 1 if fewer than 90 % of changes of 5 % and more have a reason, fewer
than 93 or more than 98 % of points are covered, fewer than 95 % of changes of 7 % and more or 80 %
of those of 3 to 7 % are reported again, more than 8 are missed, or the A/A reports a change.
"""

import io
import math
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy
from analysis.changes import LAYOUT, UNCHANGED, find_changes
from analysis.history import History, count_of, explained_counts, histories_of
from analysis.results import load
from analysis.series import CONTROL, FDR
from analysis.statistics import Z95, q_values, rate_bounds
from analysis.verdicts import DEFAULT, INSTRUCTIONS, TIME, Because, Settings
from cli import RESULTS, ROOT, CommandLine, Parser, UserError
from pages.show import percent
from pandas import DataFrame, Series, concat
from store.frames import rows_of

from benchmarks.core.probes import MEMORY

SERIES = ["package", "series"]
POINT = [*SERIES, "what", "release", "version"]
# Size class of changes -> its range of ratios, and the share that the other history must report
SIZES = {
    "7 % and more": (1.07, math.inf, 0.95),
    "3 to 7 %": (1.03, 1.07, 0.8),
    "below 3 %": (1.0, 1.03, 0.0),
}
COVERED = (0.93, 0.98)  # promised share of points whose difference is within both intervals
LARGE_RATIO = 1.05  # of a step in both histories that one should report; of a change with a reason
MIN_REASONS = 0.9  # promised share of such changes
MAX_MISSED = 8  # such steps that neither reports
COUNT_TOLERANCE = 0.005  # medians of instruction counts agree if they differ by at most this share
Line = tuple[str, bool]  # a line to print, and whether its promise is kept


def load_histories(machine: str, results: Path) -> list[History]:
    """Return the histories of a machine, from all its results in a directory."""
    return [*histories_of(load(results, machine)).values()]


def load_histories_at(machine: str, revision: str) -> list[History]:
    """Return the histories of a machine, from its results at a git revision. UserError without
    results."""
    results = RESULTS.relative_to(ROOT)
    command = ["git", "archive", "--format=zip", "--end-of-options", f"{revision}^{{commit}}"]
    command += [f"{results}/{machine}", f"{results}/benchmarks.json"]
    try:
        archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise UserError(
            f"--before {revision}: no git revision of this checkout with results of {machine}"
        ) from None
    with tempfile.TemporaryDirectory(prefix="history-") as directory:
        zipfile.ZipFile(io.BytesIO(archive)).extractall(directory)
        return load_histories(machine, Path(directory, results))


# --- one history ----------------------------------------------------------------------------------


def describe_histories(histories: Sequence[History]) -> Iterator[Line]:
    """Report the precision of histories' points, and their false alarms."""
    for history in histories:
        yield from _precision(history)
        controls = history.rows.query("control and what == @TIME")["series"].nunique()
        counts = history.changes["what"].value_counts()
        changes = ", ".join(f"{count} of {kind}" for kind, count in counts.items())
        alarms = f"{len(history.false_alarms)} of {controls} controls"
        yield f"{history.package}: {changes or 'no'} changes reported; {alarms}", True
        if "because" in history.rows:
            yield _report_reasons(history)
    replicates = histories[0].replicates
    if len(replicates):
        flagged, series = map(int, replicates[["flagged", "series"]].sum())
        text = f"toolchains measured twice: {flagged} of {series} series reported as changed"
        yield text, rate_bounds(flagged, series)[0] <= DEFAULT.promise


def _precision(history: History) -> Iterator[Line]:
    rows = history.rows.query("not control")
    noise_classes = rows["noise"].where(rows["what"] == TIME, INSTRUCTIONS)
    half_widths = (rows["high"] / rows["low"]) ** 0.5 - 1
    for noise, values in half_widths.groupby(noise_classes, sort=False):
        median, high = (percent(share, 1) for share in values.quantile([0.5, 0.9]))
        text = f"{len(values):,} points, ±{median} in the median, 90th percentile ±{high}"
        yield f"{history.package}, {noise}: {text}", True


def _report_reasons(history: History) -> Line:
    """Report how many large changes have a reason: of instructions, and of times by the counts of
    the same call."""
    counts = explained_counts(history.changes)
    sizes = np.abs(np.log(history.changes["ratio"].astype(float)))
    large = rows_of(history.changes[sizes >= math.log(LARGE_RATIO)])
    counted = [each if each.what == INSTRUCTIONS else count_of(each, counts) for each in large]
    because = [each.because for each in counted if each]
    explained = sum(isinstance(each, Because) and each.is_enough for each in because)
    unchanged = sum(each.evidence in (UNCHANGED, LAYOUT) for each in large)
    share = (explained + unchanged) / max(len(large), 1)
    return (
        f"{history.package}, changes of 5 % and more: functions explain {explained} of "
        f"{len(large)}, and the instructions of {unchanged} did not change, {percent(share)}",
        share >= MIN_REASONS,
    )


# --- two measurements of one history --------------------------------------------------------------


def compare_histories(newer: Sequence[History], older: Sequence[History]) -> Iterator[Line]:
    """Report whether two measurements of a history agree. UserError if they have no time in
    common."""
    first, second = points_of(newer), points_of(older)
    pairs = first.merge(second, on=POINT, suffixes=("", "_then"))
    # as ``find_changes`` takes points: y is the log of the ratio, without a change, because the
    # toolchain is the same
    pairs = pairs.assign(
        y=np.log(pairs["value"] / pairs["value_then"]),
        error=np.hypot(pairs["error"], pairs["error_then"]),
        spread=0.0,
    )
    times = pairs.query("what == @TIME")
    if times.empty:
        raise UserError(
            "no figure was measured in both by the same benchmarks: name another revision"
        )
    shift = times["y"].median()  # such as from another clock of the host on that day
    times = times.assign(y=times["y"] - shift)
    ratio = f"{math.exp(shift):.3f} times those of the other history"
    yield f"all times together: {ratio}, left out below", True
    yield from _report_coverage(times)
    changes = concat([_find_again(first, second), _find_again(second, first)])
    yield from _report_repeats(changes)
    times = times.query("noise != @CONTROL").reset_index(drop=True)
    times["place"] = times.groupby(SERIES).cumcount()
    yield _report_missed(times, changes)
    settings = newer[0].settings
    yield _report_false_changes(times, settings)
    counts = pairs.query("what == @INSTRUCTIONS")
    if len(counts):
        yield _report_counts(counts, settings)


def points_of(histories: Sequence[History]) -> DataFrame:
    """Return the points of histories, each with its standard error in log units. Times also have
    their place in the series."""
    points = concat([history.rows for history in histories], ignore_index=True)
    times = points.query("what == @TIME and not control")
    error = np.log(points["high"] / points["low"]) / 2 / Z95
    return points.assign(error=error, place=times.groupby(SERIES).cumcount())


def _report_coverage(times: DataFrame) -> Iterator[Line]:
    for noise, points in times.groupby("noise", sort=False):
        sizes = points["y"].abs()
        covered = int((sizes <= Z95 * points["error"]).sum())
        # the share of a few points may miss COVERED by chance
        low, high = rate_bounds(covered, len(points))
        is_kept = noise == CONTROL or (high >= COVERED[0] and low <= COVERED[1])
        yield (
            f"{noise}: {len(points):,} points differ by {percent(sizes.median(), 1)} in the "
            f"median, {percent(covered / len(points), 1)} as little as both intervals allow",
            is_kept,
        )


def _find_again(points: DataFrame, other: DataFrame) -> DataFrame:
    """Return the reported changes of times in ``points`` at releases that ``other`` has, too.
    is_found says whether ``other`` reports a change of the same direction there."""
    other = other.dropna(subset="place")
    changes = points.dropna(subset="place").query("verdict != ''").drop(columns="place")
    changes = changes.merge(other[[*POINT, "place"]], on=POINT)
    is_found = _has_neighbour(changes, other.query("verdict != ''"), [*SERIES, "verdict"])
    sizes = np.abs(np.log(changes["ratio"].astype(float)))
    return changes.assign(is_found=is_found, size=np.exp(sizes))


def _has_neighbour(rows: DataFrame, other: DataFrame, keys: list[str]) -> "Series[bool]":
    """Return whether each row has a match in ``other``: equal in ``keys``, and at the same or a
    neighbouring place."""
    pairs = rows.reset_index().merge(other[[*keys, "place"]], on=keys)
    return rows.index.isin(pairs.query("abs(place_x - place_y) <= 1")["index"])


def _report_repeats(changes: DataFrame) -> Iterator[Line]:
    """changes: see ``_find_again``."""
    for name, (low, high, promise) in SIZES.items():
        is_found = changes.loc[changes["size"].between(low, high, inclusive="left"), "is_found"]
        share = is_found.mean() if len(is_found) else 1.0
        again = f"{int(is_found.sum())} of {len(is_found)} reported again, {percent(share)}"
        yield f"changes of time, {name}: {again}", share >= promise


def _report_missed(times: DataFrame, changes: DataFrame) -> Line:
    """Report the large steps in both measurements that neither reports."""
    logs = np.log(times[["value", "value_then"]])
    steps = logs.groupby([times[key] for key in SERIES]).diff()
    is_large = steps.abs().min(axis=1) > math.log(LARGE_RATIO)
    large = times[is_large & (steps.prod(axis=1) > 0)]
    changes = changes[POINT].merge(times[[*POINT, "place"]], on=POINT)
    missed = large[~_has_neighbour(large, changes, SERIES)]
    of_memory = int((missed["noise"] == MEMORY).sum())
    count = len(missed) - of_memory
    return (
        f"missed: {count} steps of more than 5 % in both histories; "
        f"of memory, whose points are less well known, {of_memory}",
        count <= MAX_MISSED,
    )


def _report_false_changes(times: DataFrame, settings: Settings) -> Line:
    """Report the changes found in the ratios of both measurements, where nothing changed."""
    classes = times.groupby(["package", "noise"])
    alarms = sum(find_changes(points, settings)["verdict"].ne("").sum() for _, points in classes)
    series = times.groupby(SERIES).ngroups
    return f"A/A: {alarms} changes reported in the differences of {series} series", not alarms


def _report_counts(counts: DataFrame, settings: Settings) -> Line:
    """Report how many instruction counts agree."""
    sizes = counts["y"].abs()
    agreeing = int((sizes <= COUNT_TOLERANCE).sum())
    q = q_values((2 * scipy.special.ndtr(-sizes / counts["error"])).to_numpy())
    changed = int(((q <= FDR) & (sizes > math.log1p(settings.min_effect))).sum())
    medians = f"{agreeing:,} of {len(counts):,} medians within {percent(COUNT_TOLERANCE, 1)}"
    return (
        f"instruction counts: {medians}; {changed} would be reported as changed",
        rate_bounds(changed, len(counts))[0] <= DEFAULT.promise,
    )


def main(argv: CommandLine = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("machine", metavar="MACHINE", help="a directory of reports/results")
    parser.add_argument(
        "--before", metavar="REV", help="git revision with another measurement of this history"
    )
    options = parser.parse_args(argv)
    now = load_histories(options.machine, RESULTS)
    if not any((history.rows["what"] == TIME).any() for history in now):
        raise UserError(
            f"{options.machine} has no history of times: python scripts/track.py measures one"
        )
    lines = list(describe_histories(now))
    if options.before:
        lines += compare_histories(now, load_histories_at(options.machine, options.before))
    for text, is_kept in lines:
        print(text if is_kept else f"{text} (promised: otherwise)")
    return 0 if all(is_kept for _, is_kept in lines) else 1
