"""What a comparison may say of a cell, why, and from which size of a change on; and what it says of counts.

No noise touches counts, and their repeats show what else does. A repeat is another process, in which objects lie
elsewhere in memory (benchmarks/instructions.py). Two counts differ where all repeats of one lie beyond all of the
other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from cli import matcher

from benchmarks.families import CONVERSION

from .declared import Benchmarks
from .results import Results, parameters_of

SLOWER, FASTER, NO_CHANGE, INCONCLUSIVE = "slower", "faster", "no change", "inconclusive"
NOT_COMPARABLE, FAILED, NEW, GONE = "not comparable", "failed", "new", "gone"
VERDICTS = (SLOWER, FASTER, NO_CHANGE, INCONCLUSIVE, NOT_COMPARABLE, FAILED, NEW, GONE)
DECIDED = (SLOWER, FASTER, NO_CHANGE)
MORE, FEWER, AS_MANY = "more", "fewer", "as many"  # of counts
SAME_WAY = {MORE: SLOWER, FEWER: FASTER}  # what the time of a call says where it agrees with its count
# What a Reason may be, beside FAILED
DIFFERS, ACROSS, NO_RECORD, SUITE = "differs", "differs and was asked for", "no run record", "the suite changed"
OTHER_PACE = "full speed was another"
SKIPS, NOT_RUN, TOO_FEW = "skips it", "not part of the run", "too few processes"
WITHHELD, NEVER_CALM = FINAL = ("withheld", "never calm")  # not decided, however many more processes there are


@dataclass(frozen=True)
class Reason:
    """Why a cell has its verdict, or what else there is to know of a comparison; false where it is nothing.

    side    whose it is: base, new or both
    about   what that side says of the cell; what differs
    values  of what differs, base's and new's
    """

    what: str = ""
    side: str = ""
    about: str = ""
    values: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.what)


@dataclass(frozen=True)
class Settings:
    """min_effect and equivalence are relative changes (0.01 is 1 %), fdr the false discovery rate, min_decided the
    share of the comparable cells that a comparison has to decide (0: none)."""

    only: str = ""
    min_effect: float = 0.01
    equivalence: float = 0.05
    fdr: float = 0.05
    min_decided: float = 0.5
    across_machines: bool = False

    @property
    def promise(self) -> float:
        """At most this share of unchanged cells is flagged."""
        return self.fdr / 10


DEFAULT = Settings()


def of_status(base: str, new: str, why_base: Any, why_new: Any) -> tuple[str, Reason]:
    """The verdict and reason of a cell that takes no figures, and "" where they decide it; "skipped": by both sides.

    base, new  what either side has of it: measured, failed, skipped or absent; and why
    """
    if "failed" in (base, new):
        who = "both" if base == new else ("base" if base == "failed" else "new")
        why = why_new if new == "failed" else why_base
        return FAILED, Reason(FAILED, who, why if isinstance(why, str) else "")
    if base == "measured" != new:
        return GONE, Reason(SKIPS, "new", why_new) if new == "skipped" else Reason(NOT_RUN, "new")
    if new == "measured" != base:
        return NEW, Reason(SKIPS, "base", why_base) if base == "skipped" else Reason(NOT_RUN, "base")
    return "skipped" if base != "measured" else "", Reason()


def of_verdict(table: "pd.DataFrame", verdict: str) -> list[dict[str, Any]]:
    """The rows of a verdict, of times or of counts: the largest change first, those without a ratio in their order."""
    judged = table[table["verdict"] == verdict]
    order = np.argsort(-np.abs(np.log(judged["ratio"].to_numpy(dtype=float, na_value=np.nan))), kind="stable")
    rows: list[dict[str, Any]] = judged.iloc[order].to_dict("records")
    return rows


# --- counts against counts --------------------------------------------------------------------------------------------


SAME = ("machine", "cpu", "python", "libc")  # what instructions depend on beside the toolchain
ONE_SIDE = ("status", "reason", "version", "value", "low", "high")
CALL = ("route", "dtype", "nbytes")  # what tells a call apart in a direction


@dataclass(frozen=True)
class Count:
    """The median of repeats, and the range of them."""

    value: float
    low: float
    high: float


def of_calls(results: Results) -> dict[tuple[Any, ...], Count]:
    """Direction, route, dtype and bytes of a call -> its count, where that has repeats; of one toolchain's results."""
    rows = results.values[results.values["low"].notna()].to_dict("records")
    return {call(row, results.benchmarks): Count(row["value"], row["low"], row["high"]) for row in rows}


def compare(base: Results, new: Results, settings: Settings, differences: Sequence[Reason]) -> pd.DataFrame:
    """A row a cell whose count either side has repeats of, or a failure:

        cell, benchmark, family, group, method, unit; a column a parameter, and parameters;
        verdict (more, fewer, as many, or one of those of times that need no figures), reason (a Reason);
        base_count, new_count (medians of their repeats); ratio (new / base), low and high (of any two repeats).

    differences  of the sides, in what counts depend on (SAME): where there are some nothing is compared
    """
    base_cells, new_cells = (_repeated(side, settings.only) for side in (base, new))
    names = new_cells.index.union(base_cells.index, sort=False)
    table = new_cells.reindex(names).combine_first(base_cells.reindex(names)).loc[names].drop(columns=[*ONE_SIDE])
    sides = [side[list(ONE_SIDE)].reindex(names) for side in (base_cells, new_cells)]
    rows = []
    for before, after in zip(*(side.to_dict("records") for side in sides)):
        there, now = (side["status"] if isinstance(side["status"], str) else "absent" for side in (before, after))
        verdict, reason = of_status(there, now, before["reason"], after["reason"])
        ratio = _over(after["value"], before["value"])
        low, high = _over(after["low"], before["high"]), _over(after["high"], before["low"])
        if not verdict and differences:
            verdict, reason = NOT_COMPARABLE, differences[0]
        elif not verdict and before["version"] != after["version"]:
            verdict, reason = NOT_COMPARABLE, Reason(SUITE)
        found = judge_counts(low, high, settings) if ratio == ratio else INCONCLUSIVE
        rows.append((verdict or found, reason, before["value"], after["value"], ratio, low, high))
    columns = ["verdict", "reason", "base_count", "new_count", "ratio", "low", "high"]
    compared = table.join(pd.DataFrame(rows, index=names, columns=columns))
    return compared[compared["verdict"] != "skipped"].reset_index()


def _over(count: float, other: float) -> float:
    """A ratio of counts; NaN where one of them is none, of which nothing can be said."""
    return count / other if count > 0 and other > 0 else math.nan


def judge_counts(low: float, high: float, settings: Settings) -> str:
    """more, fewer, as many or inconclusive, of the range that a ratio of counts has by their repeats.

    A change is one of more than ``min_effect`` by any two repeats; as many: no two differ by more than ``equivalence``.
    """
    least, same = 1 + settings.min_effect, 1 + settings.equivalence
    if low > least:
        return MORE
    if high < 1 / least:
        return FEWER
    return AS_MANY if high <= same and low >= 1 / same else INCONCLUSIVE


def beside(counted: pd.DataFrame, timed: pd.DataFrame, benchmarks: Benchmarks) -> pd.DataFrame:
    """``counted`` with what the time of the same call says: time (its verdict, "" where it was not decided) and
    time_ratio; and whether the two disagree, contradicts.

    timed  cells with a verdict, as of comparison.Comparison
    """
    times = {
        call(row, benchmarks): row
        for row in timed.to_dict("records")
        if benchmarks[row["benchmark"]].role == CONVERSION and row["verdict"] in DECIDED
    }
    matched = [times.get(call(row, benchmarks), {}) for row in counted.to_dict("records")]
    verdicts = [row.get("verdict", "") for row in matched]
    return counted.assign(
        time=verdicts,
        time_ratio=[row.get("ratio", float("nan")) for row in matched],
        contradicts=[contradict(*pair) for pair in zip(counted["verdict"], verdicts)],
    )


def call(row: Mapping[str, Any], benchmarks: Benchmarks) -> tuple[Any, ...]:
    """What tells the call of a cell apart: direction, route, dtype, bytes."""
    return (benchmarks[row["benchmark"]].direction, *(row[name] for name in CALL))


def contradict(count: str, time: str) -> bool:
    """Whether a count and a time that were both decided say opposite things, or one of them that nothing changed."""
    if not time or count not in (MORE, FEWER, AS_MANY):
        return False
    return SAME_WAY[count] != time if count in SAME_WAY else time in (SLOWER, FASTER)


def _repeated(results: Results, only: str) -> pd.DataFrame:
    """One row a cell of one side that is counted in repeats, indexed by cell, with its status, reason and version."""
    columns = ["cell", "benchmark", "family", "group", "method", *results.parameters]
    there = results.values.assign(reason="")
    parts = [results.repeated(table) for table in (there, results.missing)]
    table = pd.concat([part.reindex(columns=[*columns, "unit", *ONE_SIDE]).astype(object) for part in parts])
    if only:
        table = table[table["cell"].map(matcher(only)).astype(bool)]
    table = table.drop_duplicates("cell").reset_index(drop=True)
    table["parameters"] = parameters_of(table, results)
    for name in ("value", "low", "high"):
        table[name] = pd.to_numeric(table[name])
    return table.set_index("cell")
