"""Verdicts of a comparison on a cell, their reasons and thresholds; the error of counts.

The machine's speed does not change a count, but memory layout does: the addresses of objects. The
processes that count a route differ in layout (benchmarks/instructions.py), and their range shows
its effect on the count.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pandas import DataFrame, Series
from store.frames import MEASURED, SKIPPED

from .results import Results
from .statistics import Floats

TIME, INSTRUCTIONS = "time", "instructions"
SLOWER, FASTER, NO_CHANGE, INCONCLUSIVE = "slower", "faster", "no change", "inconclusive"
NOT_COMPARABLE, FAILED, NEW, GONE = "not comparable", "failed", "new", "gone"
VERDICTS = (SLOWER, FASTER, NO_CHANGE, INCONCLUSIVE, NOT_COMPARABLE, FAILED, NEW, GONE)
DECIDED = (SLOWER, FASTER, NO_CHANGE)
MORE, FEWER, AS_MANY = ("more", "fewer", "as many")
# The verdicts on instruction counts
COUNT_VERDICTS = {SLOWER: MORE, FASTER: FEWER, NO_CHANGE: AS_MANY}
TIME_VERDICTS = {count: time for time, count in COUNT_VERDICTS.items()}
CHANGED = (SLOWER, FASTER, MORE, FEWER)
# Values of Reason.code, besides FAILED
FIELD_DIFFERS, ACROSS = "differs", "differs and was asked for"
NO_RECORD, SUITE = "no run record", "the suite changed"
OTHER_SPEED = "another speed"
SKIPS, NOT_RUN, TOO_FEW = "skips it", "not part of the run", "too few processes"
WITHHELD, NEVER_QUIET = FINAL = ("withheld", "never quiet")  # more processes would not decide these


@dataclass(frozen=True)
class Reason:
    """The reason of a cell's verdict, or a note on a comparison; false if empty.

    side    base, new or both
    detail  that side's reason; the field that differs
    values  values of that field in base and new
    """

    code: str = ""
    side: str = ""
    detail: str = ""
    values: tuple[object, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.code)


@dataclass(frozen=True)
class Settings:
    """min_effect and equivalence are relative changes (0.01 is 1 %), fdr the false discovery rate,
    min_decided the share of comparable cells that a comparison has to decide (0: none)."""

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


def judge_without_figures(
    row: Mapping[str, Any], differences: Sequence[Reason]
) -> tuple[str, Reason]:
    """Return the verdict and reason of a cell that can be judged without figures, else "". SKIPPED:
    on both sides.

    row          base_status (measured, failed, skipped or absent), base_reason, base_version,
                 base_samples; the same of new
    differences  between the sides that make such cells not comparable
    """
    base, new = row["base_status"], row["new_status"]
    if FAILED in (base, new):
        return FAILED, _failure(row)
    if base == MEASURED != new:
        return GONE, _absence(row, "new")
    if new == MEASURED != base:
        return NEW, _absence(row, "base")
    if base != MEASURED:
        return SKIPPED, Reason()
    if differences:
        return NOT_COMPARABLE, differences[0]
    if row["base_version"] != row["new_version"]:
        return NOT_COMPARABLE, Reason(SUITE)
    samples = row["base_samples"], row["new_samples"]
    if samples[0] == samples[0] != samples[1]:  # NaN where nothing was timed
        values = tuple(map(int, samples))
        return NOT_COMPARABLE, Reason(FIELD_DIFFERS, detail="samples", values=values)
    return "", Reason()


def _failure(row: Mapping[str, Any]) -> Reason:
    failed = [side for side in ("base", "new") if row[f"{side}_status"] == FAILED]
    detail = row[f"{failed[-1]}_reason"]
    side = "both" if len(failed) > 1 else failed[0]
    return Reason(FAILED, side, detail if isinstance(detail, str) else "")


def _absence(row: Mapping[str, Any], side: str) -> Reason:
    """Return why a side did not measure a cell."""
    if row[f"{side}_status"] == SKIPPED:
        return Reason(SKIPS, side, row[f"{side}_reason"])
    return Reason(NOT_RUN, side)


def rows_with_verdict(table: DataFrame, verdict: str) -> list[dict[str, Any]]:
    """Return the rows of a verdict, largest change first; rows without a ratio keep their order."""
    rows = largest_first(table[table["verdict"] == verdict])
    records: list[dict[str, Any]] = rows.to_dict("records")
    return records


def verdict_of_change(effect: "Series[float] | Floats", counted: "Series[bool]") -> np.ndarray:
    """Return the verdict of a larger or smaller time or count; effect: log of a ratio."""
    of_count = np.where(effect > 0, MORE, FEWER)
    return np.where(counted, of_count, np.where(effect > 0, SLOWER, FASTER))


def largest_first(rows: DataFrame) -> DataFrame:
    """Sort changes by the size of their ratio; rows without one keep their order."""
    return rows.sort_values("ratio", key=lambda ratio: -np.log(ratio).abs(), kind="stable")


# --- instruction counts ---------------------------------------------------------------------------


# What counts depend on besides the toolchain
COUNT_CONDITIONS = ("machine", "cpu", "python", "libc")
CALL = ["direction", "route", "dtype", "nbytes"]  # columns shared by the time and count of a cell
# Smallest SD of log counts, if all processes happen to agree: loops and caches differ by that
MIN_LAYOUT_SD = 0.0005
LAYOUT_GROUP = ["benchmark", "route", "nbytes"]  # counts that share their effect of layout


def counts_by_call(results: Results) -> dict[Hashable, Any]:
    """Return CALL -> its count with value (median), low and high, if several processes counted it,
    for the results of one toolchain."""
    rows = results.values[results.values["low"].notna()].set_index(CALL)
    return dict(zip(rows.index, rows[["value", "low", "high"]].itertuples(index=False)))


def layout_sd(counts: DataFrame) -> Floats:
    """SD of the log of each count by memory layout; counts: rows with benchmark, route, nbytes, low
    and high.

    It is half of the range over processes, as root mean square over all rows of one route and size.
    Often there are two states, and all processes of a row may happen to be in one of them.
    """
    square = (np.log((counts["high"] / counts["low"]).astype(float)) / 2) ** 2
    groups = [counts[name] for name in LAYOUT_GROUP]
    pooled = square.groupby(groups, dropna=False, observed=True).transform("mean")
    spread: Floats = np.sqrt(pooled.to_numpy()).clip(MIN_LAYOUT_SD)
    return spread
