"""How well is a history known? Its intervals, and what a second history of the same toolchains says of its changes."""

import contextlib
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from analysis.changes import CHANGED, INSTRUCTIONS, TIME, reported
from analysis.history import CONTROL, History, history_of, packages
from analysis.results import load
from analysis.statistics import HALF
from analysis.verdicts import SAME_WAY, judge_counts
from cli import UserError
from measuring.engine import RESULTS, ROOT

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
