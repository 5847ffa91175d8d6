"""Verdicts of a comparison on a cell, their reasons and thresholds; the error of counts.

The machine's speed does not change a count, but memory layout does: the addresses of objects. The
processes that count a route differ in layout (benchmarks/instructions.py), and their range shows
its effect on the count.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec
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
# Columns of a cell, and of a cell on each side
CELL_COLUMNS = ["benchmark", "family", "group", "method"]
SIDE_COUNT = ["value", "low", "high"]  # of an instruction count
SIDE_COLUMNS = ["status", "reason", "version", "samples", "quiet", *SIDE_COUNT]
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


class ComparedCell(msgspec.Struct, frozen=True, kw_only=True):
    """What a time and an instruction count have in common in a comparison. Figures that are missing
    are NaN."""

    cell: Annotated[str, about("asv's name of the cell")]
    benchmark: Annotated[str, about("asv's name of the benchmark")]
    family: Annotated[str, about("module of the benchmark")]
    group: Annotated[str, about("class of the benchmark")]
    method: Annotated[str, about("method of the benchmark")]
    direction: Annotated[str, about("what the route converts")]
    contract: Annotated[str, about("alias, copy, into, or empty")]
    parameters: Annotated[
        dict[str, object],
        about("of the benchmark: name -> value; sizes: least and largest of a series"),
    ]
    base_status: Annotated[str, _STATUS]
    base_reason: Annotated[str, _REASON]
    base_version: Annotated[str, _VERSION]
    base_samples: Annotated[int | None, _SAMPLES]
    base_quiet: Annotated[bool | None, _QUIET]
    new_status: Annotated[str, _STATUS]
    new_reason: Annotated[str, _REASON]
    new_version: Annotated[str, _VERSION]
    new_samples: Annotated[int | None, _SAMPLES]
    new_quiet: Annotated[bool | None, _QUIET]
    noise: Annotated[str, about("class of cells with like noise")]
    verdict: Annotated[str, about("on times one of VERDICTS; on counts more, fewer or as many")]
    reason: Annotated[Reason, about("of the verdict; empty where figures decide")]
    ratio: Annotated[float, about("new over base")]
    low95: Annotated[float, _INTERVAL]
    high95: Annotated[float, _INTERVAL]
    low90: Annotated[float, _INTERVAL]
    high90: Annotated[float, _INTERVAL]
    p: Annotated[float, _TESTS]
    q: Annotated[float, _TESTS]
    p_equivalence: Annotated[float, _TESTS]


_SECONDS = about("geometric mean over the processes of that side, per call", "s")
_PROCESSES = about("of that side, used for the verdict")


class ComparedTime(ComparedCell, frozen=True, kw_only=True):
    """A timed cell of a comparison."""

    base_seconds: Annotated[float, _SECONDS]
    new_seconds: Annotated[float, _SECONDS]
    base_processes: Annotated[int, _PROCESSES]
    new_processes: Annotated[int, _PROCESSES]
    paired: Annotated[bool, about("whether its processes ran side by side")]
    fresh: Annotated[bool, about("whether fresh processes decided")]
    close: Annotated[bool, about("whether it is close to a verdict, and needs fresh processes")]
    more: Annotated[
        float,
        about("additional processes per side that would probably decide an inconclusive cell"),
    ]


_COUNT = about("median over the processes of that side, per call", "unit of the benchmark")


class ComparedCount(ComparedCell, frozen=True, kw_only=True):
    """A cell of a comparison that several processes counted."""

    unit: Annotated[str, about("of the count")]
    base_count: Annotated[float, _COUNT]
    new_count: Annotated[float, _COUNT]
    time: Annotated[str, about("verdict on the time of the same call; empty if not decided")]
    time_ratio: Annotated[float, about("of that time: new over base")]
    contradicts: Annotated[bool, about("whether that time says otherwise")]


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


def _failure(row: Mapping[str, object]) -> Reason:
    failed = [side for side in ("base", "new") if row[f"{side}_status"] == FAILED]
    detail = row[f"{failed[-1]}_reason"]
    side = "both" if len(failed) > 1 else failed[0]
    return Reason(FAILED, side, detail if isinstance(detail, str) else "")


def _absence(row: Mapping[str, object], side: str) -> Reason:
    """Return why a side did not measure a cell."""
    if row[f"{side}_status"] == SKIPPED:
        return Reason(SKIPS, side, str(row[f"{side}_reason"]))
    return Reason(NOT_RUN, side)


def _cells_of(results: Results, only: str) -> DataFrame:
    """Return one row per cell of a side that is timed, or counted by several processes, indexed by
    cell."""
    kinds = {
        name: TIME if declared.type == "time" else INSTRUCTIONS
        for name, declared in results.benchmarks.items()
        if declared.type == "time" or declared.repeated
    }
    cells = results.cells[results.cells["benchmark"].isin(kinds)].astype({"cell": object})
    cells = cells[cells["cell"].map(matcher(only)).astype(bool)]
    samples = results.processes.drop_duplicates("cell").set_index("cell")["samples"]
    cells = cells.assign(
        what=cells["benchmark"].map(kinds).astype(object),
        parameters=parameters_of(cells, results),
        reason=cells["reason"].astype(object).fillna(""),
        samples=cells["cell"].map(samples),
    )
    is_time = cells["what"] == TIME
    is_unreadable = is_time & (cells["status"] == MEASURED) & ~(cells["seconds"] > 0)
    cells["status"] = cells["status"].astype(object).mask(is_unreadable, FAILED)
    cells["reason"] = cells["reason"].mask(is_unreadable, "no time above zero")
    names = [*CELL_COLUMNS, *results.parameters, "direction", "contract", "unit"]
    columns = list(dict.fromkeys([*names, "parameters", "what", *SIDE_COLUMNS]))
    return cells.set_index("cell").reindex(columns=columns).astype(object)


def join_sides(
    base: Results, new: Results, only: str, differences: Mapping[str, Sequence[Reason]]
) -> DataFrame:
    """Return the union of both sides' cells, by cell, with the verdicts that need no figures.
    differences: between the sides, by kind of figure, that make such figures not comparable."""
    tables = {"base": _cells_of(base, only), "new": _cells_of(new, only)}
    is_gone = ~tables["base"].index.isin(tables["new"].index)
    cells = concat([tables["new"], tables["base"][is_gone]]).drop(columns=SIDE_COLUMNS)
    for side, table in tables.items():
        cells = cells.join(table[SIDE_COLUMNS].add_prefix(f"{side}_"))
        cells[f"{side}_status"] = cells[f"{side}_status"].fillna("absent")
    judged = [
        judge_without_figures(row, differences[row["what"]]) for row in cells.to_dict("records")
    ]
    cells["verdict"] = [verdict for verdict, _ in judged]
    cells["reason"] = [reason for _, reason in judged]
    return cells


def rows_with_verdict(table: DataFrame, verdict: str) -> list[dict[str, object]]:
    """Return the rows of a verdict, largest change first; rows without a ratio keep their order."""
    rows = largest_first(table[table["verdict"] == verdict])
    records: list[dict[str, object]] = rows.to_dict("records")
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


class CountRange(NamedTuple):
    """A count: the median of several processes, and their range."""

    value: float
    low: float
    high: float


def counts_by_call(results: Results) -> dict[Hashable, CountRange]:
    """Return CALL -> its count with value (median), low and high, if several processes counted it,
    for the results of one toolchain."""
    rows = results.values[results.values["low"].notna()].set_index(CALL)
    ranges = rows[[*CountRange._fields]].itertuples(index=False)
    return dict(zip(rows.index, map(CountRange._make, ranges)))


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
