"""Which functions gained or lost the instructions by which two counts of a call differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pandas import DataFrame, Series

MAX_FUNCTIONS = 10  # of a change, the largest first
MIN_EXPLAINED = 0.8  # share of a change; below it the functions do not explain it
Functions = Mapping[str, int]  # "library:function" -> its own instructions


@dataclass(frozen=True)
class Because:
    """The functions behind a change of instructions.

    functions  "library:function" and the instructions that it gained or lost, the largest first
    total      instructions that the call gained or lost
    explained  share of the total that all functions together gained or lost
    """

    functions: tuple[tuple[str, int], ...]
    total: float
    explained: float

    @property
    def is_enough(self) -> bool:
        """Whether the functions explain the change."""
        return abs(self.explained - 1) <= 1 - MIN_EXPLAINED

    def __str__(self) -> str:
        functions = "; ".join(f"{name} {change:+d}" for name, change in self.functions)
        return f"of {self.total:+.0f}: {functions}"


def explain(old: Functions, new: Functions, total: float) -> Because | None:
    """Return what functions did from one count to the next, None where one of both has none.

    Counts hold the functions that make most of them. One that only one of both counts holds has
    about none in the other.
    """
    if not (isinstance(old, Mapping) and isinstance(new, Mapping) and old and new and total):
        return None
    changes = {name: new.get(name, 0) - old.get(name, 0) for name in {**old, **new}}
    largest = sorted(changes.items(), key=lambda change: (-abs(change[1]), change[0]))
    functions = tuple(change for change in largest[:MAX_FUNCTIONS] if change[1])
    return Because(functions, total, sum(changes.values()) / total)


def explain_rows(old: DataFrame, new: DataFrame, changed: Sequence[bool]) -> "Series[object]":
    """Return ``explain`` of the changed rows, else None. Columns of both: value and functions."""
    rows = zip(old["functions"], new["functions"], new["value"] - old["value"], changed)
    because = [explain(*row) if is_changed else None for *row, is_changed in rows]
    return Series(because, new.index, dtype=object)
