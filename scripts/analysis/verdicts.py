"""What a comparison may say of a cell, why, and from which size of a change on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

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
