"""Verdicts of a comparison on a cell, their reasons and thresholds; the error of counts.

The machine's speed does not change a count, but memory layout does: the addresses of objects. The
processes that count a route differ in layout (benchmarks/instructions.py), and their range shows
its effect on the count.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from cli import matcher
from pandas import DataFrame, Series, concat
from store.frames import MEASURED, SKIPPED
from store.schema import about

from .results import Results, parameters_of
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
SIDES = ("base", "new")
# Columns of a cell, and of a cell on each side
CELL_COLUMNS = ["benchmark", "family", "group", "method"]
SIDE_COUNT = ["value", "low", "high"]  # of an instruction count
SIDE_FIGURES = [*SIDE_COUNT, "functions"]
SIDE_COLUMNS = ["status", "reason", "version", "samples", "quiet", *SIDE_FIGURES]
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
    across_builds: bool = False

    @property
    def promise(self) -> float:
        """At most this share of unchanged cells is flagged."""
        return self.fdr / 10


DEFAULT = Settings()


# --- rows of a comparison -------------------------------------------------------------------------

_STATUS = about("on that side: measured, failed, skipped or absent")
_REASON = about("why that side has no figure")
_VERSION = about("of the measurement: figures of different ones do not compare")
_SAMPLES = about("planned number per process")
_QUIET = about("False where no process of that side was quiet")
_INTERVAL = about("ends of the interval of the ratio, with 95 or 90 % confidence")
_TESTS = about(
    "p value of no difference, its false discovery rate, and p value of a difference that matters"
)


class ComparedCell:
    """What a time and an instruction count have in common in a comparison. Figures that are missing
    are NaN."""

    cell: str = about("asv's name of the cell")
    benchmark: str = about("asv's name of the benchmark")
    family: str = about("module of the benchmark")
    group: str = about("class of the benchmark")
    method: str = about("method of the benchmark")
    direction: str = about("what the route converts")
    contract: str = about("alias, copy, into, or empty")
    parameters: dict[str, object] = about(
        "of the benchmark: name -> value; sizes: least and largest of a series"
    )
    base_status: str = _STATUS
    base_reason: str = _REASON
    base_version: str = _VERSION
    base_samples: int | None = _SAMPLES
    base_quiet: bool | None = _QUIET
    new_status: str = _STATUS
    new_reason: str = _REASON
    new_version: str = _VERSION
    new_samples: int | None = _SAMPLES
    new_quiet: bool | None = _QUIET
    noise: str = about("class of cells with like noise")
    verdict: str = about("on times one of VERDICTS; on counts more, fewer or as many")
    reason: Reason = about("of the verdict; empty where figures decide")
    ratio: float = about("new over base")
    low95: float = _INTERVAL
    high95: float = _INTERVAL
    low90: float = _INTERVAL
    high90: float = _INTERVAL
    detectable: float = about("smallest change that would have been found with a chance of 95 %")
    p: float = _TESTS
    q: float = _TESTS
    p_equivalence: float = _TESTS


_SECONDS = about("geometric mean over the processes of that side, per call", "s")
_PROCESSES = about("of that side, used for the verdict")


class ComparedTime(ComparedCell):
    """A timed cell of a comparison."""

    base_seconds: float = _SECONDS
    new_seconds: float = _SECONDS
    base_processes: int = _PROCESSES
    new_processes: int = _PROCESSES
    paired: bool = about("whether its processes ran side by side")
    in_turns: bool = about("whether these took their samples in turns")
    fresh: bool = about("whether fresh processes decided")
    close: bool = about("whether it is close to a verdict, and needs fresh processes")
    more: float = about(
        "additional processes per side that would probably decide an inconclusive cell"
    )


_COUNT = about("median over the processes of that side, per call", "unit of the benchmark")


class ComparedCount(ComparedCell):
    """A cell of a comparison that several processes counted."""

    unit: str = about("of the count")
    base_count: float = _COUNT
    new_count: float = _COUNT
    because: object = about("of a change: Because, or None")
    time: str = about("verdict on the time of the same call; empty if not decided")
    time_ratio: float = about("of that time: new over base")
    contradicts: bool = about("whether that time says otherwise")


# --- verdicts that need no figures ----------------------------------------------------------------


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
        side = "new" if new == FAILED else "base"
        return FAILED, Reason(FAILED, "both" if base == new else side, row[f"{side}_reason"])
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


def _absence(row: Mapping[str, Any], side: str) -> Reason:
    """Return why a side did not measure a cell."""
    skips = row[f"{side}_status"] == SKIPPED
    return Reason(SKIPS, side, row[f"{side}_reason"]) if skips else Reason(NOT_RUN, side)


def _cells_of(results: Results, only: str) -> DataFrame:
    """Return one row per cell of a side that is timed, or counted by several processes, indexed by
    cell."""
    kinds = {
        name: TIME if declared.type == "time" else INSTRUCTIONS
        for name, declared in results.benchmarks.items()
        if declared.type == "time" or declared.repeated
    }
    cells = results.cells[results.cells["benchmark"].isin(kinds)].astype(object)
    cells = cells[cells["cell"].map(matcher(only, cells["cell"])).astype(bool)]
    samples = results.processes.drop_duplicates("cell").set_index("cell")["samples"]
    cells = cells.assign(
        what=cells["benchmark"].map(kinds),
        parameters=parameters_of(cells, results),
        reason=cells["reason"].fillna(""),
        samples=cells["cell"].map(samples),
    )
    is_measured_time = (cells["what"] == TIME) & (cells["status"] == MEASURED)
    is_unreadable = is_measured_time & ~(cells["seconds"] > 0)
    cells.loc[is_unreadable, ["status", "reason"]] = [FAILED, "no time above zero"]
    names = [*CELL_COLUMNS, *results.parameters, "direction", "contract", "unit"]
    columns = dict.fromkeys([*names, "parameters", "what", *SIDE_COLUMNS])
    return cells.set_index("cell")[[*columns]].astype(object)


def join_sides(
    base: Results, new: Results, only: str, differences: Mapping[str, Sequence[Reason]]
) -> DataFrame:
    """Return the union of both sides' cells, by cell, with the verdicts that need no figures.
    differences: between the sides, by kind of figure, that make such figures not comparable."""
    tables = {"new": _cells_of(new, only), "base": _cells_of(base, only)}
    cells = concat(tables.values())
    cells = cells[~cells.index.duplicated()].drop(columns=SIDE_COLUMNS)
    for side in SIDES:
        cells = cells.join(tables[side][SIDE_COLUMNS].add_prefix(f"{side}_"))
        cells[f"{side}_status"] = cells[f"{side}_status"].fillna("absent")
    judged = [
        judge_without_figures(row, differences[row["what"]]) for row in cells.to_dict("records")
    ]
    return cells.join(DataFrame(judged, cells.index, ["verdict", "reason"]))


def verdict_of_change(effect: "Series[float] | Floats", what: "Series[str]") -> np.ndarray:
    """Return the verdict of a larger or smaller time or count; effect: log of a ratio."""
    of_count = np.where(effect > 0, MORE, FEWER)
    return np.where(what == INSTRUCTIONS, of_count, np.where(effect > 0, SLOWER, FASTER))


def has_slower(counts: Mapping[str, float]) -> bool:
    """Whether anything is slower or takes more instructions. counts: by verdict."""
    return bool(counts[SLOWER] or counts[MORE])


def count_changes(changed: DataFrame) -> dict[str, float]:
    """Return verdict -> number of changed rows, and under verdict_ratio their median ratio."""
    counts: dict[str, float] = {}
    for verdict in CHANGED:
        ratios = changed["ratio"][changed["verdict"] == verdict].astype(float)
        counts[verdict] = len(ratios)
        if len(ratios):
            counts[f"{verdict}_ratio"] = ratios.median()
    return counts


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


class CountRange(NamedTuple):
    """A count: the median of several processes, and their range."""

    value: float
    low: float
    high: float


def counts_by_call(results: Results) -> dict[Hashable, CountRange]:
    """Return CALL -> its count with value (median), low and high, if several processes counted it,
    for the results of one toolchain."""
    counts = results.values.dropna(subset="low").set_index(CALL)[SIDE_COUNT]
    return dict(zip(counts.index, counts.itertuples(index=False, name="CountRange")))


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


# --- the functions behind a change of counts ------------------------------------------------------


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
