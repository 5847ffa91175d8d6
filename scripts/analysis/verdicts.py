"""Verdicts of a comparison on a cell, their reasons and thresholds, and the error of instruction counts.

The machine's speed does not change a count, but memory layout does: the addresses of objects. The processes that count
a route differ in layout (benchmarks/instructions.py), and their range shows its effect on the count.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .results import MEASURED, SKIPPED, Results
from .statistics import Floats

TIME, INSTRUCTIONS = "time", "instructions"
SLOWER, FASTER, NO_CHANGE, INCONCLUSIVE = "slower", "faster", "no change", "inconclusive"
NOT_COMPARABLE, FAILED, NEW, GONE = "not comparable", "failed", "new", "gone"
VERDICTS = (SLOWER, FASTER, NO_CHANGE, INCONCLUSIVE, NOT_COMPARABLE, FAILED, NEW, GONE)
DECIDED = (SLOWER, FASTER, NO_CHANGE)
MORE, FEWER, AS_MANY = ("more", "fewer", "as many")
COUNT_VERDICTS = {
    SLOWER: MORE,
    FASTER: FEWER,
    NO_CHANGE: AS_MANY,
}  # the verdicts on instruction counts
TIME_VERDICTS = {count: time for time, count in COUNT_VERDICTS.items()}
CHANGED = (SLOWER, FASTER, MORE, FEWER)
# Values of Reason.code, besides FAILED
FIELD_DIFFERS, ACROSS, NO_RECORD, SUITE = (
    "differs",
    "differs and was asked for",
    "no run record",
    "the suite changed",
)
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
    values: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.code)


@dataclass(frozen=True)
class Settings:
    """min_effect and equivalence are relative changes (0.01 is 1 %), fdr the false discovery rate, min_decided the
    share of comparable cells that a comparison has to decide (0: none)."""

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
    """Return the verdict and reason of a cell that can be judged without figures, else "". SKIPPED: on both sides.

    row          base_status (measured, failed, skipped or absent), base_reason, base_version, base_samples; the same of
                 new
    differences  between the sides that make such cells not comparable
    """
    base, new = row["base_status"], row["new_status"]
    if FAILED in (base, new):
        who = "both" if base == new else ("base" if base == FAILED else "new")
        why = row["new_reason"] if new == FAILED else row["base_reason"]
        return FAILED, Reason(FAILED, who, why if isinstance(why, str) else "")
    for one, other, verdict, side in ((base, new, GONE, "new"), (new, base, NEW, "base")):
        if one == MEASURED != other:
            about = row[f"{side}_reason"]
            return verdict, Reason(SKIPS, side, about) if other == SKIPPED else Reason(
                NOT_RUN, side
            )
    if base != MEASURED:
        return SKIPPED, Reason()
    if differences:
        return NOT_COMPARABLE, differences[0]
    if row["base_version"] != row["new_version"]:
        return NOT_COMPARABLE, Reason(SUITE)
    samples = row["base_samples"], row["new_samples"]
    if samples[0] == samples[0] != samples[1]:
        return NOT_COMPARABLE, Reason(
            FIELD_DIFFERS, detail="samples", values=tuple(map(int, samples))
        )
    return "", Reason()


def rows_with_verdict(table: "pd.DataFrame", verdict: str) -> list[dict[str, Any]]:
    """Return the rows of a verdict, largest change first; rows without a ratio keep their order."""
    rows: list[dict[str, Any]] = largest_first(table[table["verdict"] == verdict]).to_dict(
        "records"
    )
    return rows


def verdict_of_change(
    effect: "pd.Series[float] | Floats", counted: "pd.Series[bool]"
) -> np.ndarray:
    """Return the verdict of a larger or smaller time or count; effect: log of a ratio."""
    return np.where(
        counted, np.where(effect > 0, MORE, FEWER), np.where(effect > 0, SLOWER, FASTER)
    )


def largest_first(rows: pd.DataFrame) -> pd.DataFrame:
    """Sort changes by the size of their ratio; rows without one keep their order."""
    return rows.sort_values("ratio", key=lambda ratio: -np.log(ratio).abs(), kind="stable")


# --- instruction counts ----------------------------------------------------------------------------------------------


COUNT_CONDITIONS = (
    "machine",
    "cpu",
    "python",
    "libc",
)  # what counts depend on besides the toolchain
CALL = ["direction", "route", "dtype", "nbytes"]  # columns shared by the time and count of a cell
MIN_LAYOUT_SD = 0.0005  # smallest SD of log counts, if all processes happen to agree: loops and caches differ by that


def counts_by_call(results: Results) -> dict[Hashable, Any]:
    """Return CALL -> its count with value (median), low and high, if several processes counted it, for the results of
    one toolchain."""
    rows = results.values[results.values["low"].notna()].set_index(CALL)
    return dict(zip(rows.index, rows[["value", "low", "high"]].itertuples(index=False)))


def layout_sd(counts: pd.DataFrame) -> Floats:
    """SD of the log of each count by memory layout; counts: rows with benchmark, route, nbytes, low and high.

    It is half of the range over processes, as root mean square over all rows of one route and size. Often there are two
    states, and all processes of a row may happen to be in one of them.
    """
    square = (np.log((counts["high"] / counts["low"]).astype(float)) / 2) ** 2
    alike = [counts[name] for name in ("benchmark", "route", "nbytes")]
    pooled = square.groupby(alike, dropna=False, observed=True).transform("mean")
    spread: Floats = np.sqrt(pooled.to_numpy()).clip(MIN_LAYOUT_SD)
    return spread
