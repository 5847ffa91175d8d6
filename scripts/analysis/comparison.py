"""BASE against NEW: one verdict for every timed cell, and the comparison's own check of how often it errs.

A verdict rests on processes (see statistics.py). A cell is **faster** or **slower** where its false discovery rate is
at most ``Settings.fdr`` and its own p value at most ``Settings.promise``: the first bounds the share of wrong flags
among the flags of a large comparison, the second the chance that an unchanged cell is flagged in one of any size.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from cli import UserError, matcher
from store.records import MACHINE

from benchmarks.contracts import COPY, INTO
from benchmarks.families import CONVERSION, MEMCPY
from benchmarks.probes import MEMORY
from benchmarks.timing import LARGE

from . import statistics, verdicts
from .declared import Benchmarks
from .results import Results, parameters_of
from .statistics import MIN_PROCESSES, Bools, Estimate, Floats
from .verdicts import (
    AS_MANY,
    DECIDED,
    DEFAULT,
    FASTER,
    INCONCLUSIVE,
    INSTRUCTIONS,
    NO_CHANGE,
    NOT_COMPARABLE,
    SAME_WAY,
    SLOWER,
    TIME,
    Reason,
    Settings,
)

CLOSE = 0.10  # p value below which fresh processes decide (two stages)
MOST_SPLITS = 8  # of the baseline's processes in the A/A
OF_MACHINE = ("machine", *MACHINE)  # its name, and what it is
SPEED = math.log(1.005)  # from which on it is said that the machine ran at another speed
PLAUSIBLE = math.log(1.25)  # of baselines on one machine: six sessions in two hours were within 1.06
PER_CELL = ("asv_runner", "launch")  # settings of a run that must be the same on both sides


@dataclass(frozen=True)
class SelfCheck:
    """A/A: the baseline's processes against each other, by the method of the comparison. Whatever it flags is wrong.

    flagged and cells are those of one split on average, over ``splits`` splits; lower and upper bound the rate (one-
    sided, 95 % each) as if the splits were one, for they share their data.
    """

    splits: int
    cells: int
    flagged: float
    lower: float
    upper: float

    @property
    def rate(self) -> float:
        return self.flagged / self.cells if self.cells else math.nan

    def contradicts(self, promise: float) -> bool:
        """Whether more than the promised share of unchanged cells is flagged, beyond doubt."""
        return self.lower > promise


@dataclass(frozen=True)
class Comparison:
    """cells: one row a timed cell that either side has a figure or a failure of, with

        cell, benchmark, family, group, method; a column a parameter, and parameters (those it has, by name);
        noise (the family whose noise it has);
        verdict (one of VERDICTS), reason (a Reason);
        base_seconds, new_seconds (geometric mean over the figures of their processes);
        base_processes, new_processes (that the verdict rests on); paired; close (to a verdict: takes fresh
        processes), fresh (has them);
        ratio (new / base) with low95, high95, low90, high90; p, q, p_equivalence; more (processes a side that would
        probably decide an inconclusive cell, beyond those there are).
    Figures that a cell does not have are NaN.

    counted: one row a cell that either side counted in repeats, or failed to: the names, unit, verdict (more, fewer, as
    many, or one that needs no figures), reason, base_count, new_count (medians of repeats), ratio, low and high (of any
    two repeats), time, time_ratio, contradicts (see with_times). looked_at: how many cells are counted once, and not
    compared. ``sessions`` is the variance of sessions by family, where it was learnt from
    toolchains that were measured twice. in_history: ratios, intervals and verdicts are those of the history that both
    are releases of.
    """

    settings: Settings
    cells: pd.DataFrame
    check: SelfCheck
    base: dict[str, Any]
    new: dict[str, Any]
    interleaved: bool
    skipped: int
    counted: pd.DataFrame
    looked_at: int
    notes: tuple[Reason, ...]
    sessions: Mapping[str, float] = field(default_factory=dict)
    in_history: bool = False

    @property
    def withheld(self) -> bool:
        """Whether the self-check contradicts the promise: what would have been decided is inconclusive."""
        return self.check.contradicts(self.settings.promise)

    @property
    def counts(self) -> dict[str, int]:
        """Cells of each verdict; they add up to all cells."""
        return _count(self.cells["verdict"], verdicts.VERDICTS)

    @property
    def comparable(self) -> int:
        """Timed cells that could be compared, decided or not."""
        return self.decided + self.counts[INCONCLUSIVE]

    @property
    def decided(self) -> int:
        """Cells that are slower, faster or have not changed."""
        return sum(self.counts[verdict] for verdict in DECIDED)

    @property
    def share_decided(self) -> float:
        """Decided cells of the comparable ones; NaN where there are none."""
        return self.decided / self.comparable if self.comparable else math.nan

    @property
    def counts_decided(self) -> dict[str, int]:
        """Counts of each verdict that is about them."""
        return _count(self.counted["verdict"], (verdicts.MORE, verdicts.FEWER, verdicts.AS_MANY))

    @property
    def possible(self) -> bool:
        """Whether any cell could be judged at all."""
        if any(self.counts_decided.values()):
            return True
        measured = self.cells[self.cells["verdict"].isin((*DECIDED, INCONCLUSIVE))]
        enough = measured[["base_processes", "new_processes"]].min(axis=1) >= MIN_PROCESSES
        return bool(enough.any()) and not self.withheld

    @property
    def exit_code(self) -> int:
        """0 nothing slower, 1 something slower or of more instructions, 2 could not compare or too little decided.

        What is slower was found, however little was decided beside it; that nothing is takes decided cells.
        """
        if not self.possible:
            return 2
        if self.counts[SLOWER] or self.counts_decided[verdicts.MORE]:
            return 1
        # counts alone are decided without times
        return 0 if not self.comparable or self.share_decided >= self.settings.min_decided else 2


def _count(said: pd.Series, wanted: Sequence[str]) -> dict[str, int]:
    counted: dict[str, int] = said.value_counts().reindex(wanted, fill_value=0).to_dict()
    return counted


# --- the two sides as one table ------------------------------------------------------------------------------------


def describe(results: Results) -> dict[str, Any]:
    """What a side is: machine, toolchain, and of its last run what bears on comparing."""
    first = results.cells.iloc[0]
    record, conditions = results.last, results.last.conditions
    return {
        **{name: str(first[name]) for name in ("machine", "toolchain", "torch", "numpy", "python", "commit", "file")},
        "started": record.started,
        "command": record.command,
        "rounds": record.rounds or None,
        "asv_runner": record.asv_runner or None,
        "launch": record.launch or None,
        "interpreter": record.settings.python or None,
        "cpu": conditions.cpu or None,
        "cores": conditions.cores_allowed,
        "libc": conditions.libc or None,
        "caches": ", ".join(f"{level} {size}" for level, size in conditions.caches.items()),
        "system": conditions.system or None,
        "interleaved": record.interleaved or None,
    }


def _cells_of(results: Results, only: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One side: a row a cell that is timed or counted in repeats, indexed by cell, and the processes of timed ones."""
    kinds = {name: TIME if each.type == "time" else INSTRUCTIONS for name, each in results.benchmarks.items()}
    kinds = {name: what for name, what in kinds.items() if what == TIME or results.benchmarks[name].repeated}
    parts = [part[part["benchmark"].isin(kinds)] for part in (results.processes, results.values, results.missing)]
    if only:
        matches = matcher(only)
        parts = [part[np.array([matches(cell) for cell in part["cell"]], dtype=bool)] for part in parts]
    processes, counts, missing = parts
    columns = ["cell", "benchmark", "family", "group", "method", *results.parameters, "contract", "unit", *ONE_SIDE]
    measured = [part.assign(status="measured", reason="") for part in (processes.drop_duplicates("cell"), counts)]
    cells = pd.concat([part.reindex(columns=columns).astype(object) for part in (*measured, missing)])
    cells = cells.drop_duplicates("cell").reset_index(drop=True)
    cells["parameters"] = parameters_of(cells, results)
    cells["what"] = cells["benchmark"].map(kinds)
    readable = processes.loc[processes["seconds"].between(0, math.inf, inclusive="neither"), "cell"]
    unreadable = (cells["status"] == "measured") & (cells["what"] == TIME) & ~cells["cell"].isin(readable)
    cells.loc[unreadable, ["status", "reason"]] = ["failed", "no time above zero"]
    return cells.set_index("cell"), processes


def _logs(processes: pd.DataFrame, column: str, names: pd.Index) -> Floats:
    """The log of a column, (cells, processes), of the cells of these names; NaN where there is no such process."""
    rounds = range(processes["process"].max() + 1 if len(processes) else 1)
    by_round = processes.groupby(["cell", "process"], observed=True)[column].last().unstack()
    values = by_round.reindex(index=names, columns=rounds).to_numpy(dtype=float)
    return np.log(np.where(values > 0, values, np.nan))


def correction(baselines: Floats, usual: Floats, plausible: float = PLAUSIBLE) -> Floats:
    """The log by which something ran slower than the machine usually does, from logs of baselines. 0 where it has none,
    and everywhere where baselines differ by more than is ``plausible``: then probes are other work."""
    known = usual[np.isfinite(usual)]
    if not len(known) or np.ptp(known) > plausible:
        return np.zeros_like(baselines)
    return np.nan_to_num(baselines - np.median(known))


def families(cells: pd.DataFrame, benchmarks: Benchmarks) -> Any:
    """Of what the cells' noise is, (cells,): as the family declares; else of the memory where many bytes move through
    it, else alias, copy or into, else the benchmark's family.

    cells       rows with benchmark, contract, nbytes and family
    benchmarks  benchmark -> its description in benchmarks.json

    On a virtual machine of Zen 4, 26 toolchains measured twice and 7 hours apart, 90 % of figures differ by at most
    21 % where 16 MiB are copied, by 2.1 % where less is, by 2.3 % where memory is shared (scripts/check.py history).
    """
    names = []
    for name, memory, nbytes, family in cells[["benchmark", "contract", "nbytes", "family"]].itertuples(index=False):
        moves = memory in (COPY, INTO) or benchmarks[name].role == MEMCPY
        through_memory = moves and nbytes >= LARGE  # of no size: false
        names.append(benchmarks[name].noise or (MEMORY if through_memory else memory) or family)
    return np.array(names, dtype=str)


def controls_of(cells: pd.DataFrame, benchmarks: Benchmarks) -> Bools:
    """Whether they are cells, memcpy and the like, that no toolchain can change; arguments as of ``families``."""
    return np.array([benchmarks[name].control for name in cells["benchmark"]], dtype=bool)


def _differences(base: Mapping[str, Any], new: Mapping[str, Any], names: Iterable[str]) -> list[Reason]:
    """What the sides differ in, of what both know."""
    return [
        Reason(verdicts.DIFFERS, about=name, values=(base[name], new[name]))
        for name in names
        if base[name] and new[name] and base[name] != new[name]
    ]


def _notes(base: Mapping[str, Any], new: Mapping[str, Any], settings: Settings, slower: float) -> list[Reason]:
    notes = _differences(base, new, ("python", "system"))
    if settings.across_machines:
        notes += [replace(each, what=verdicts.ACROSS) for each in _differences(base, new, OF_MACHINE)[:1]]
    if not (base["asv_runner"] and new["asv_runner"]):
        notes.append(Reason(verdicts.NO_RECORD))
    if abs(slower) > SPEED:
        notes.append(Reason(verdicts.OTHER_SPEED, "new" if slower > 0 else "base", values=(math.expm1(abs(slower)),)))
    return notes


def is_interleaved(base: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether process k of one side ran next to process k of the other, by what both run records say."""
    before, after = base["interleaved"] or {}, new["interleaved"] or {}
    same = bool(before.get("id")) and (before.get("id"), before.get("stage")) == (after.get("id"), after.get("stage"))
    return same and before.get("side") != after.get("side")


def belong_together(base: Results, new: Results, fresh_base: Results, fresh_new: Results) -> bool:
    """Whether the last two are the second stage of the interleaved collection that the first two began."""
    first = [describe(side)["interleaved"] or {} for side in (base, new)]
    second = [describe(side)["interleaved"] or {} for side in (fresh_base, fresh_new)]
    return all(
        earlier.get("id") and (earlier.get("id"), earlier.get("side")) == (later.get("id"), later.get("side"))
        for earlier, later in zip(first, second)
    )


# --- verdicts ------------------------------------------------------------------------------------------------------


def compare(
    base: Results,
    new: Results,
    settings: Settings = DEFAULT,
    fresh: tuple[Results, Results] | None = None,
    sessions: Mapping[str, float] | None = None,
    check: SelfCheck | None = None,
) -> Comparison:
    """The verdict of every cell that was timed or counted in repeats. UserError where the two sides have none, or none
    that ``only`` matches.

    fresh     a second collection, base and new, of the cells that were close in the first: they are judged by it alone
    sessions  noise class -> variance of what two sessions on this machine differ by, where that is known
    check     how often the method errs, where that is known; else by the baseline's own processes
    """
    sides = describe(base), describe(new)
    contracts = {**base.benchmarks, **new.benchmarks}
    (first, _), (second, _) = parts = [_cells_of(side, settings.only) for side in (base, new)]
    every = _joined(first, second)
    table, counted = (every[every["what"] == what].drop(columns="what") for what in (TIME, INSTRUCTIONS))
    skipped = int((table["verdict"] == "skipped").sum())
    if len(every) == skipped + int((counted["verdict"] == "skipped").sum()):
        matched = f" that match {settings.only!r}" if settings.only else ""
        raise UserError(f"neither side has timed cells{matched}")
    _refuse(counted, () if settings.across_machines else _differences(*sides, verdicts.SAME))
    _refuse(table, _differences(*sides, PER_CELL if settings.across_machines else (*OF_MACHINE, *PER_CELL)))
    counted = _judge_counts(counted, settings)
    table = table[[name for name in table if name not in {"unit", *OF_COUNTS}]].assign(**NOTHING)
    interleaved = is_interleaved(*sides)

    logs, slower = _at_one_speed(sides, [processes for _, processes in parts], table.index)
    paired = _paired(logs, interleaved)
    logs = _in_pairs(logs, paired)
    table["noise"] = family = families(table, contracts)
    open_cells = (table["verdict"] == "").to_numpy()
    controls = controls_of(table, contracts)[open_cells]
    before, after = (side[open_cells] for side in logs)
    session = False if interleaved else (sessions or True)
    estimated = statistics.estimate(before, after, family[open_cells], paired[open_cells], session, controls)
    check = check or self_check(before, family[open_cells], paired[open_cells], settings)
    decided = _decide(before, after, paired[open_cells], estimated, settings)
    _withhold_busy(decided, *(table.loc[open_cells, f"{side}_quiet"] for side in ("base", "new")))
    if fresh is not None:
        _decide_fresh(decided, table.index[open_cells], family[open_cells], fresh, settings)
    for column in decided.columns:
        table.loc[open_cells, column] = decided[column].to_numpy()
    for side, name in zip(logs, ("base", "new")):
        means = np.exp(statistics.means(side))
        table[f"{name}_seconds"] = table[f"{name}_seconds"].where(table[f"{name}_seconds"].notna(), means)
        processes = np.isfinite(side).sum(axis=1)
        table[f"{name}_processes"] = table[f"{name}_processes"].where(table["fresh"], processes).astype(int)

    if check.contradicts(settings.promise):
        table.loc[table["verdict"].isin(DECIDED), ["verdict", "reason"]] = [INCONCLUSIVE, Reason(verdicts.WITHHELD)]
    cells = table[table["verdict"] != "skipped"].reset_index()
    return Comparison(
        settings=settings,
        cells=cells,
        check=check,
        base=sides[0],
        new=sides[1],
        interleaved=interleaved,
        skipped=skipped,
        counted=with_times(counted, cells, contracts),
        looked_at=len({*base.values["cell"], *new.values["cell"]} - {*counted["cell"]}),
        notes=tuple(_notes(*sides, settings, slower)),
        sessions={} if interleaved else dict(sessions or {}),
    )


def _at_one_speed(
    sides: tuple[Mapping[str, Any], Mapping[str, Any]], processes: Sequence[pd.DataFrame], names: pd.Index
) -> tuple[tuple[Floats, Floats], float]:
    """Log seconds of both sides, (cells, processes), as if the machine's speed had been the same; the log of how much
    slower it was for new. A virtual machine holds a baseline for a run, and another an hour later, by what runs on its
    host. Probes are the interpreter's own work, so the interpreter has to be the same, and the machine."""
    logs = [_logs(side, "seconds", names) for side in processes]
    base, new = sides
    interpreters = base["interpreter"] and new["interpreter"]
    if not interpreters or _differences(base, new, (*OF_MACHINE, "interpreter", "libc")):
        return (logs[0], logs[1]), 0.0
    baselines = [_logs(side, "baseline", names) for side in processes]
    usual = np.array([np.nanmedian(each) for each in baselines if np.isfinite(each).any()])
    # a cell of which some process has no baseline stays as it is
    known = np.all([(np.isfinite(own) | ~np.isfinite(log)).all(axis=1) for own, log in zip(baselines, logs)], axis=0)
    moved = [np.where(known[:, None], correction(own, usual), 0.0) for own in baselines]
    taken_out = [own[np.isfinite(log) & (own != 0)] for log, own in zip(logs, moved)]
    slower = float(np.median(taken_out[1]) - np.median(taken_out[0])) if all(map(len, taken_out)) else 0.0
    return (logs[0] - moved[0], logs[1] - moved[1]), slower


ONE_SIDE = ("status", "reason", "version", "samples", "quiet", "value", "low", "high")  # what each side says of a cell
OF_COUNTS = tuple(f"{side}_{name}" for side in ("base", "new") for name in ("value", "low", "high"))
FIGURES = ("ratio", "low95", "high95", "low90", "high90", "p", "q", "p_equivalence", "more")
NOTHING = dict.fromkeys((*FIGURES, "base_seconds", "new_seconds"), math.nan)  # of what was not decided by processes
NOTHING |= dict.fromkeys(("base_processes", "new_processes"), 0) | dict.fromkeys(("paired", "fresh", "close"), False)


def _joined(base: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """The union of both sides' cells, indexed by cell, with the verdicts that need no statistics."""
    names = new.index.union(base.index, sort=False)
    table = new.reindex(names).combine_first(base.reindex(names)).loc[names].drop(columns=[*ONE_SIDE])
    for side, cells in (("base", base), ("new", new)):
        for column in ONE_SIDE:
            table[f"{side}_{column}"] = cells[column].reindex(names)
        table[f"{side}_status"] = table[f"{side}_status"].fillna("absent")
    columns = ["base_status", "new_status", "base_reason", "new_reason"]
    judged = [verdicts.of_status(*row) for row in table[columns].itertuples(index=False, name=None)]
    table["verdict"], table["reason"] = ([each[place] for each in judged] for place in (0, 1))
    return table


def _refuse(table: pd.DataFrame, differences: Sequence[Reason]) -> None:
    """Not comparable: the sides differ, or the benchmark's version or samples a process do."""
    open_cells = table["verdict"] == ""
    if differences:
        table.loc[open_cells, ["verdict", "reason"]] = [NOT_COMPARABLE, differences[0]]
        return
    versions = open_cells & (table["base_version"] != table["new_version"])
    samples = open_cells & table["base_samples"].notna() & (table["base_samples"] != table["new_samples"])
    table.loc[samples, "reason"] = [
        Reason(verdicts.DIFFERS, about="samples", values=(int(base), int(new)))
        for base, new in table.loc[samples, ["base_samples", "new_samples"]].itertuples(index=False)
    ]
    table.loc[versions, "reason"] = Reason(verdicts.SUITE)
    table.loc[samples | versions, "verdict"] = NOT_COMPARABLE


def _judge_counts(table: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Counts, in repeats on both sides, with ratio and its range, and a verdict where they have none yet."""
    counts = table[[*OF_COUNTS]].astype(float)
    both = (counts[["base_value", "new_value"]] > 0).all(axis=1)
    counted = counts.where(counts > 0)[both].reindex(counts.index)  # of none nothing can be said
    old, old_low, old_high, new, new_low, new_high = counted.to_numpy().T
    ratio, low, high = new / old, new_low / old_high, new_high / old_low
    judged = [verdicts.judge_counts(*ends, settings) for ends in zip(low, high)]
    verdict = np.where(table["verdict"] == "", judged, table["verdict"])
    table = table.assign(verdict=verdict, ratio=ratio, low=low, high=high)
    table = table.assign(base_count=counts["base_value"], new_count=counts["new_value"])
    shown = [name for name in table if not str(name).startswith(("base_", "new_")) or str(name).endswith("_count")]
    return table.loc[table["verdict"] != "skipped", shown].reset_index()


def with_times(counted: pd.DataFrame, timed: pd.DataFrame, benchmarks: Benchmarks) -> pd.DataFrame:
    """``counted`` with what the time of the same call says: time (its verdict, "" where it was not decided) and
    time_ratio; and whether the two disagree, contradicts."""
    same = ["direction", *verdicts.CALL]
    ways = {name: each.direction for name, each in benchmarks.items()}
    conversions = [name for name, each in benchmarks.items() if each.role == CONVERSION]
    timed = timed[timed["verdict"].isin(DECIDED) & timed["benchmark"].isin(conversions)]
    counts, times = (each.assign(direction=each["benchmark"].map(ways)) for each in (counted, timed))
    times = times[[*same, "verdict", "ratio"]].drop_duplicates(same, keep="last").astype(dict.fromkeys(same, object))
    found = counts[same].astype(object).merge(times, on=same, how="left").set_index(counted.index)
    time = found["verdict"].fillna("").astype(str)
    expected = counted["verdict"].map({**SAME_WAY, AS_MANY: NO_CHANGE})
    contradicts = time.ne("") & expected.notna() & time.ne(expected)
    return counted.assign(time=time, time_ratio=found["ratio"].astype(float), contradicts=contradicts)


def _paired(logs: tuple[Floats, Floats], interleaved: bool) -> Bools:
    """Cells (cells,) of an interleaved collection with enough rounds that gave both sides a process, or with all."""
    if not interleaved:
        return np.zeros(len(logs[0]), dtype=bool)
    width = min(side.shape[1] for side in logs)
    in_base, in_new = (np.isfinite(side[:, :width]) for side in logs)
    enough: Bools = ((in_base & in_new).sum(axis=1) >= MIN_PROCESSES) | (in_base == in_new).all(axis=1)
    return enough


def _in_pairs(logs: tuple[Floats, Floats], paired: Bools) -> tuple[Floats, Floats]:
    """The same without the processes of paired cells that have no counterpart on the other side."""
    width = min(side.shape[1] for side in logs)
    both = np.isfinite(logs[0][:, :width]) & np.isfinite(logs[1][:, :width])
    drop = paired[:, None] & ~both
    if not paired.any():
        return logs
    return np.where(drop, np.nan, logs[0][:, :width]), np.where(drop, np.nan, logs[1][:, :width])


def _decide(base: Floats, new: Floats, paired: Bools, estimated: Estimate, settings: Settings) -> pd.DataFrame:
    """Verdict, reason and FIGURES of cells that may be compared, one row each; without evidence inconclusive."""
    margin, same = math.log1p(settings.min_effect), math.log1p(settings.equivalence)
    counts = np.isfinite(base).sum(axis=1), np.isfinite(new).sum(axis=1)
    fewest = np.minimum(*counts)
    enough = (fewest >= MIN_PROCESSES) & np.isfinite(estimated.error)
    p = np.where(enough, statistics.p_different(estimated, margin), np.nan)
    q = statistics.q_values(p)
    equivalence = np.where(enough, statistics.p_equivalent(estimated, same), np.nan)
    flagged = (q <= settings.fdr) & (p <= settings.promise)
    verdict = np.select(
        [flagged & (estimated.effect > 0), flagged, equivalence <= 0.05], [SLOWER, FASTER, NO_CHANGE], INCONCLUSIVE
    )
    (low95, high95), (low90, high90) = (np.exp(statistics.interval(estimated, c)) for c in (0.95, 0.90))
    needed = statistics.processes_needed(estimated, paired, margin, same, settings.promise)
    more = np.where(fewest < MIN_PROCESSES, np.fmax(needed, MIN_PROCESSES) - fewest, np.fmax(needed - fewest, 1))
    return pd.DataFrame(
        {
            "verdict": verdict,
            "reason": [Reason() if there else Reason(verdicts.TOO_FEW) for there in enough],
            "ratio": np.exp(estimated.effect),
            "low95": low95,
            "high95": high95,
            "low90": low90,
            "high90": high90,
            "p": p,
            "q": q,
            "p_equivalence": equivalence,
            "more": np.where(verdict == INCONCLUSIVE, more, np.nan),
            "base_processes": counts[0],
            "new_processes": counts[1],
            "base_seconds": np.exp(statistics.means(base)),
            "new_seconds": np.exp(statistics.means(new)),
            "paired": paired,
            "fresh": False,
            "close": p < CLOSE,
        }
    )


def _withhold_busy(decided: pd.DataFrame, base: pd.Series, new: pd.Series) -> None:
    """Decide nothing, in place, of cells that one side never saw quiet: the machine may be what differs."""
    busy_base, busy_new = (side.eq(False).to_numpy(dtype=bool) for side in (base, new))
    for who, busy in (("both", busy_base & busy_new), ("base", busy_base & ~busy_new), ("new", ~busy_base & busy_new)):
        decided.loc[busy, ["verdict", "reason", "close"]] = [INCONCLUSIVE, Reason(verdicts.NEVER_QUIET, who), False]


def _decide_fresh(
    decided: pd.DataFrame, names: pd.Index, family: Any, fresh: tuple[Results, Results], settings: Settings
) -> None:
    """Replace, in place, what the first stage says of close cells by the verdict of fresh processes alone.

    Selecting cells by their first figures and judging them by the same figures would exaggerate the effects. Cells
    that were measured again as witnesses of the noise keep their first verdict.
    """
    sides = describe(fresh[0]), describe(fresh[1])
    parts = [_cells_of(side, settings.only) for side in fresh]
    logs, _ = _at_one_speed(sides, [processes for _, processes in parts], names)
    paired = _paired(logs, is_interleaved(*sides))
    logs = _in_pairs(logs, paired)
    close = decided["close"].to_numpy(dtype=bool)
    taken = close | (np.isfinite(logs[0]).any(axis=1) & np.isfinite(logs[1]).any(axis=1))
    if not close.any():
        return
    base, new, pairs = logs[0][taken], logs[1][taken], paired[taken]
    estimated = statistics.estimate(base, new, family[taken], pairs)
    judged, chosen = close[taken], np.flatnonzero(close)
    estimated = Estimate(*(value[judged] for value in vars(estimated).values()))
    again = _decide(base[judged], new[judged], pairs[judged], estimated, settings)
    again[["fresh", "close"]] = True
    _withhold_busy(again, *(cells["quiet"].reindex(names[chosen]) for cells, _ in parts))
    decided["q"] = np.nan  # of the first stage: it flags nothing
    for column in again.columns:
        decided[column] = decided[column].astype(again[column].dtype)
        decided.loc[chosen, column] = again[column].to_numpy()


def to_measure_again(comparison: Comparison) -> list[str]:
    """The cells of a first stage that take fresh processes: the close ones, and as witnesses of the noise enough others
    of their families, spread over the suite, for variances to be moderated (see statistics.estimate)."""
    again: list[str] = []
    for _, cells in comparison.cells.groupby("noise", sort=False):
        close = cells[cells["close"].eq(True)]["cell"]
        others = cells[cells["close"].ne(True) & cells["base_processes"].gt(0) & cells["new_processes"].gt(0)]["cell"]
        wanted = min(len(others), max(0, statistics.MIN_FAMILY - len(close)))
        if len(close):
            places = np.linspace(0, len(others) - 1, wanted).round().astype(int)
            again += [*close, *others.iloc[places]]
    return again


# --- the comparison's own check --------------------------------------------------------------------------------------


def splits(processes: int) -> list[tuple[list[int], list[int]]]:
    """Halves of a baseline's processes, MOST_SPLITS at most: of every two neighbours in time one goes to each half.

    So do the processes of an interleaved comparison, and drift is the same for both halves. What differs between two
    sessions no half of one session can show: see statistics.session_variance.
    """
    pairs = [(k, k + 1) for k in range(0, processes - 1, 2)]
    halves = []
    for swaps in product((False, True), repeat=max(0, len(pairs) - 1)):
        picked = [pair[::-1] if swap else pair for pair, swap in zip(pairs, (False, *swaps))]
        halves.append(([pair[0] for pair in picked], [pair[1] for pair in picked]))
    return halves[:: max(1, len(halves) // MOST_SPLITS)][:MOST_SPLITS] if len(pairs) > 1 else []


def self_check(base: Floats, family: Any, paired: Bools, settings: Settings) -> SelfCheck:
    """A/A over the splits of the baseline's processes: log seconds (cells, processes), of cells with at least four."""
    enough = np.isfinite(base).sum(axis=1) >= MIN_PROCESSES
    base, family, paired = base[enough], family[enough], paired[enough]
    margin = math.log1p(settings.min_effect)
    flagged, used = 0, splits(base.shape[1] if len(base) else 0)
    for half, other in used:
        estimated = statistics.estimate(base[:, half], base[:, other], family, paired)
        p = statistics.p_different(estimated, margin)
        flagged += int(((statistics.q_values(p) <= settings.fdr) & (p <= settings.promise)).sum())
    cells = len(base) if used else 0
    mean = flagged / len(used) if used else 0.0
    lower, upper = statistics.rate_bounds(math.floor(mean), cells)[0], statistics.rate_bounds(math.ceil(mean), cells)[1]
    return SelfCheck(len(used), cells, mean, lower, upper)
