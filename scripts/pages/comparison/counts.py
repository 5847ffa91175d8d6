"""Counts of a comparison in words: what takes more instructions now, and where time says otherwise."""

from collections.abc import Mapping
from typing import Any

from analysis.comparison import Comparison
from analysis.verdicts import AS_MANY, DECIDED, FEWER, INCONCLUSIVE, MORE, NO_CHANGE

from pages import show

CHANGED = (MORE, FEWER)


def sentence(row: Mapping[str, Any], why: str, margin: str) -> str:
    """A count's verdict with its evidence, and what the time of the same call says where that is something else.

    why: its reason in words; margin: what "as many" is to exclude
    """
    unit, verdict = row["unit"], row["verdict"]
    numbers = f"{row['base_count']:,.0f} → {row['new_count']:,.0f}" if row["base_count"] == row["base_count"] else ""
    range_of = f"{row['low']:.3f}–{row['high']:.3f} by any two repeats"
    if verdict in CHANGED:
        words = f"{row['ratio']:.3g}× the {unit} ({numbers}; {range_of})"
    elif verdict == AS_MANY:
        words = f"as many {unit}, to {margin} ({numbers}; {range_of})"
    elif verdict == INCONCLUSIVE:
        words = f"inconclusive: {range_of} ({numbers} {unit})"
    else:
        return f"{verdict}: {why}"
    if row["contradicts"]:
        changed = row["time"] in DECIDED and row["time"] != NO_CHANGE
        words += f"; but its time: {row['time']}" + (f", {row['time_ratio']:.3g}× as long" if changed else "")
    return words


def counted_line(comparison: Comparison) -> str:
    """How many counts changed and how many did not; "" where nothing is counted in repeats."""
    table = comparison.counted
    if table.empty:
        return ""
    by_verdict = table["verdict"].value_counts(sort=False)
    order = [*comparison.counts_decided, *(name for name in by_verdict.index if name not in comparison.counts_decided)]
    said = show.join([f"{by_verdict[name]} {name}" for name in order if name in by_verdict])
    disagree = int(table["contradicts"].sum())
    rest = f"; time says otherwise of {disagree}" if disagree else ""
    return f"{show.join(list(dict.fromkeys(table['unit'].dropna())))} of {len(table)} calls: {said}{rest}"


def changed(comparison: Comparison) -> str:
    """What changed, in a few words: 2 calls of more instructions; "" where nothing did."""
    by_verdict = comparison.counts_decided
    unit = next(iter(comparison.counted["unit"].dropna()), "")
    words = show.join([f"{by_verdict[name]} of {name}" for name in CHANGED if by_verdict[name]])
    return f"{words} {unit}" if words else ""
