"""What a comparison may say of a cell, why, and from which size of a change on; and what it says of counts.

No noise touches counts, and their repeats show what else does. A repeat is another process, in which objects lie
elsewhere in memory (benchmarks/instructions.py). Two counts differ where all repeats of one lie beyond all of the
other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .results import MEASURED, SKIPPED, Results

TIME, INSTRUCTIONS = "time", "instructions"
SLOWER, FASTER, NO_CHANGE, INCONCLUSIVE = "slower", "faster", "no change", "inconclusive"
NOT_COMPARABLE, FAILED, NEW, GONE = "not comparable", "failed", "new", "gone"
VERDICTS = (SLOWER, FASTER, NO_CHANGE, INCONCLUSIVE, NOT_COMPARABLE, FAILED, NEW, GONE)
DECIDED = (SLOWER, FASTER, NO_CHANGE)
MORE, FEWER, AS_MANY = OF_COUNTS = ("more", "fewer", "as many")
SAME_WAY = {MORE: SLOWER, FEWER: FASTER}  # what the time of a route says where it agrees with its count
# What a Reason may be, beside FAILED
DIFFERS, ACROSS, NO_RECORD, SUITE = "differs", "differs and was asked for", "no run record", "the suite changed"
OTHER_SPEED = "another speed"
SKIPS, NOT_RUN, TOO_FEW = "skips it", "not part of the run", "too few processes"
WITHHELD, NEVER_QUIET = FINAL = ("withheld", "never quiet")  # not decided, however many more processes there are


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


def without_figures(row: Mapping[str, Any], differences: Sequence[Reason]) -> tuple[str, Reason]:
    """The verdict and reason of a cell that takes no figures, and "" where they decide it; SKIPPED: by both sides.

    row          base_status (measured, failed, skipped or absent), base_reason, base_version, base_samples; the same of
                 new
    differences  of the sides, because of which such cells cannot be compared
    """
    base, new = row["base_status"], row["new_status"]
    if FAILED in (base, new):
        who = "both" if base == new else ("base" if base == FAILED else "new")
        why = row["new_reason"] if new == FAILED else row["base_reason"]
        return FAILED, Reason(FAILED, who, why if isinstance(why, str) else "")
    for one, other, verdict, side in ((base, new, GONE, "new"), (new, base, NEW, "base")):
        if one == MEASURED != other:
            about = row[f"{side}_reason"]
            return verdict, Reason(SKIPS, side, about) if other == SKIPPED else Reason(NOT_RUN, side)
    if base != MEASURED:
        return SKIPPED, Reason()
    if differences:
        return NOT_COMPARABLE, differences[0]
    if row["base_version"] != row["new_version"]:
        return NOT_COMPARABLE, Reason(SUITE)
    samples = row["base_samples"], row["new_samples"]
    if samples[0] == samples[0] != samples[1]:
        return NOT_COMPARABLE, Reason(DIFFERS, about="samples", values=tuple(map(int, samples)))
    return "", Reason()


def of_verdict(table: "pd.DataFrame", verdict: str) -> list[dict[str, Any]]:
    """The rows of a verdict, of times or of counts: the largest change first, those without a ratio in their order."""
    judged = table[table["verdict"] == verdict]
    order = np.argsort(-np.abs(np.log(judged["ratio"].to_numpy(dtype=float, na_value=np.nan))), kind="stable")
    rows: list[dict[str, Any]] = judged.iloc[order].to_dict("records")
    return rows


# --- counts against counts --------------------------------------------------------------------------------------------


SAME = ("machine", "cpu", "python", "libc")  # what instructions depend on beside the toolchain
TIMED = ("route", "dtype", "nbytes")  # what time and count of a cell share in a direction


@dataclass(frozen=True)
class Count:
    """The median of repeats, and the range of them."""

    value: float
    low: float
    high: float


def of_calls(results: Results) -> dict[tuple[Any, ...], Count]:
    """Direction, route, dtype and bytes of a cell -> its count, where that has repeats; of one toolchain's results."""
    rows = results.values[results.values["low"].notna()].to_dict("records")
    return {
        (results.benchmarks[row["benchmark"]].direction, *(row[name] for name in TIMED)): Count(
            row["value"], row["low"], row["high"]
        )
        for row in rows
    }


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
