"""BASE against NEW: one verdict for every timed cell, and the comparison's own check of how often it errs.

A verdict rests on processes (see statistics.py). A cell is **faster** or **slower** where its false discovery rate is
at most ``Settings.fdr`` and its own p value at most ``Settings.promise``: the first bounds the share of wrong flags
among the flags of a large comparison, the second the chance that an unchanged cell is flagged in one of any size.
Two releases of one history have the figures and verdicts of that history (see history.compare_releases).
"""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cli import UserError, matcher
from store.files import fresh_results, result_name, results_directory
from store.schema import MACHINE
from toolchains import selection

from benchmarks.contracts import Role

from . import statistics, verdicts
from .history import History, compare_releases, histories_of
from .results import (
    MEASURED,
    OF_CELL,
    SKIPPED,
    Results,
    load,
    load_files,
    noise_of_cells,
    parameters_of,
)
from .series import series_of
from .statistics import MIN_PROCESSES, Z90_OVER_Z95, Bools, Estimate, Floats
from .verdicts import (
    CALL,
    DECIDED,
    DEFAULT,
    INCONCLUSIVE,
    INSTRUCTIONS,
    NO_CHANGE,
    TIME,
    Reason,
    Settings,
)

CLOSE = 0.10  # p value below which fresh processes decide (two stages)
TURNED = 3  # pairs of the baseline's processes that change halves in the A/A: 8 splits at most
OF_MACHINE = ("machine", *MACHINE)  # its name and its hardware
SPEED = math.log(1.005)  # from which on a note says that the machine's speed differed
PER_CELL = ("asv_runner", "launch")  # settings of a run that must be the same on both sides
ALIKE = {
    INSTRUCTIONS: verdicts.COUNT_CONDITIONS,
    TIME: (*OF_MACHINE, *PER_CELL),
}  # fields that must be equal, on one machine
SIDES = ("base", "new")
Logs = tuple[Floats, Floats]  # of base and of new, (cells, processes)


@dataclass(frozen=True)
class SelfCheck:
    """A/A: the baseline's processes against each other, by the method of the comparison. Every flag is a false alarm.

    flagged and cells are averages per split over ``splits`` splits; lower and upper bound the rate (one-sided, 95 %
    each) as for a single split, because splits share their data.
    """

    splits: int
    cells: int
    flagged: float
    lower: float
    upper: float

    @property
    def rate(self) -> float:
        return self.flagged / self.cells if self.cells else math.nan


@dataclass(frozen=True)
class Comparison:
    """cells: one row per timed cell with a figure or a failure on either side, with

        cell, benchmark, family, group, method; a column per parameter, and parameters (its own, by name);
        noise (the class whose noise it has);
        verdict (one of VERDICTS), reason (a Reason);
        base_seconds, new_seconds (geometric mean over processes);
        base_processes, new_processes (used for the verdict); paired;
        close (to a verdict: needs fresh processes), fresh (has them);
        ratio (new / base) with low95, high95, low90, high90; p, q, p_equivalence;
        more (additional processes per side that would probably decide an inconclusive cell).
    Missing figures are NaN.

    counted: one row per cell that several processes counted, or failed to count, on either side: the names, unit,
    verdict (more, fewer, as many, or one that needs no figures), reason, base_count, new_count (medians over
    processes), the ratio and its evidence as above, time, time_ratio, contradicts (see _with_times). counted_once: number
    of cells that are counted once and not compared. sessions: noise class -> variance between sessions, if learnt from
    toolchains that were measured twice. in_history: ratios, intervals and verdicts are those of the common history.
    """

    settings: Settings
    cells: pd.DataFrame
    check: SelfCheck
    base: dict[str, Any]
    new: dict[str, Any]
    interleaved: bool
    skipped: int
    counted: pd.DataFrame
    counted_once: int
    notes: tuple[Reason, ...]
    session_variance: Mapping[str, float]
    in_history: bool

    @property
    def withheld(self) -> bool:
        """Whether the self-check contradicts the promise: decided times then become inconclusive."""
        return self.check.lower > self.settings.promise

    @property
    def counts(self) -> dict[str, int]:
        """Cells of each verdict; they add up to all cells."""
        return _count(self.cells, verdicts.VERDICTS)

    @property
    def counts_decided(self) -> dict[str, int]:
        """Instruction counts of each verdict on counts."""
        return _count(self.counted, [*verdicts.COUNT_VERDICTS.values()])

    @property
    def decided(self) -> int:
        """Cells that are slower, faster or have not changed."""
        return sum(self.counts[verdict] for verdict in DECIDED)

    @property
    def comparable(self) -> int:
        """Timed cells that could be compared, decided or not."""
        return self.decided + self.counts[INCONCLUSIVE]

    @property
    def share_decided(self) -> float:
        """Decided cells of the comparable ones; NaN where there are none."""
        return self.decided / self.comparable if self.comparable else math.nan

    @property
    def can_judge(self) -> bool:
        """Whether any cell could be judged at all."""
        undecided = self.cells[self.cells["verdict"] == INCONCLUSIVE]
        enough = undecided[["base_processes", "new_processes"]].min(axis=1) >= MIN_PROCESSES
        # a history may decide with fewer
        return any((self.decided, *self.counts_decided.values())) or (
            bool(enough.any()) and not self.withheld
        )

    @property
    def exit_code(self) -> int:
        """0 nothing slower, 1 something slower or of more instructions, 2 could not compare or too little decided.

        A slower cell counts however few cells are decided; exit code 0 needs enough decided cells.
        """
        if not self.can_judge:
            return 2
        if self.counts[verdicts.SLOWER] or self.counts_decided[verdicts.MORE]:
            return 1
        # counts alone are decided without times
        return 0 if not self.comparable or self.share_decided >= self.settings.min_decided else 2


def _count(table: pd.DataFrame, wanted: Sequence[str]) -> dict[str, int]:
    counted: dict[str, int] = (
        table["verdict"].value_counts().reindex(wanted, fill_value=0).to_dict()
    )
    return counted


# --- the two sides as one table ------------------------------------------------------------------------------------


def describe(results: Results) -> dict[str, Any]:
    """Return a side's machine, toolchain, and the settings of its last run that bear on comparing."""
    first = results.cells.iloc[0]
    record, conditions = results.last, results.last.conditions
    return {
        **{
            name: str(first[name])
            for name in ("machine", "toolchain", "torch", "numpy", "python", "commit", "file")
        },
        **{
            name: getattr(record, name) or None
            for name in ("started", "command", "rounds", "interleaved", *PER_CELL)
        },
        "interpreter": record.settings.python or None,
        **{name: getattr(conditions, name) or None for name in ("cpu", "libc", "system")},
        "cores": conditions.cores_allowed,
        "caches": ", ".join(f"{level} {size}" for level, size in conditions.caches.items()),
    }


ONE_SIDE = [
    "status",
    "reason",
    "version",
    "samples",
    "quiet",
    "value",
    "low",
    "high",
]  # columns of a cell on each side


def _cells_of(results: Results, only: str) -> pd.DataFrame:
    """Return one row per cell of a side that is timed, or counted by several processes, indexed by cell."""
    kinds = {
        name: TIME if each.type == "time" else INSTRUCTIONS
        for name, each in results.benchmarks.items()
    }
    kinds = {
        name: what
        for name, what in kinds.items()
        if what == TIME or results.benchmarks[name].repeated
    }
    cells = results.cells[results.cells["benchmark"].isin(kinds)].astype({"cell": object})
    cells = cells[cells["cell"].map(matcher(only)).astype(bool)]
    cells = cells.assign(
        what=cells["benchmark"].map(kinds).astype(object), parameters=parameters_of(cells, results)
    )
    cells["reason"] = cells["reason"].astype(object).fillna("")
    cells["samples"] = cells["cell"].map(
        results.processes.drop_duplicates("cell").set_index("cell")["samples"]
    )
    unreadable = (cells["status"] == MEASURED) & (cells["what"] == TIME) & ~(cells["seconds"] > 0)
    names = [
        *OF_CELL[:-1],
        *results.parameters,
        "direction",
        "contract",
        "unit",
        "parameters",
        "what",
        *ONE_SIDE,
    ]
    cells = cells.set_index("cell").reindex(columns=list(dict.fromkeys(names))).astype(object)
    cells.loc[unreadable.to_numpy(), ["status", "reason"]] = ["failed", "no time above zero"]
    return cells


def _joined(
    base: pd.DataFrame, new: pd.DataFrame, differences: Mapping[str, Sequence[Reason]]
) -> pd.DataFrame:
    """Return the union of both sides' cells, indexed by cell, with the verdicts that need no statistics. differences:
    between the sides, by kind of figure, which make times or instructions not comparable."""
    table = pd.concat([new, base[~base.index.isin(new.index)]]).drop(columns=ONE_SIDE)
    for side, cells in zip(SIDES, (base, new)):
        table = table.join(cells[ONE_SIDE].add_prefix(f"{side}_"))
        table[f"{side}_status"] = table[f"{side}_status"].fillna("absent")
    judged = [
        verdicts.judge_without_figures(row, differences[row["what"]])
        for row in table.to_dict("records")
    ]
    table["verdict"], table["reason"] = ([each[place] for each in judged] for place in (0, 1))
    return table


def _differences(
    base: Mapping[str, Any], new: Mapping[str, Any], names: Iterable[str]
) -> list[Reason]:
    """Return the fields known on both sides with different values."""
    return [
        Reason(verdicts.FIELD_DIFFERS, detail=name, values=(base[name], new[name]))
        for name in names
        if base[name] and new[name] and base[name] != new[name]
    ]


def _notes(
    base: Mapping[str, Any], new: Mapping[str, Any], settings: Settings, slower: float
) -> list[Reason]:
    notes = _differences(base, new, ("python", "system"))
    if settings.across_machines:
        notes += [
            replace(each, code=verdicts.ACROSS) for each in _differences(base, new, OF_MACHINE)[:1]
        ]
    if not (base["asv_runner"] and new["asv_runner"]):
        notes.append(Reason(verdicts.NO_RECORD))
    if abs(slower) > SPEED:
        notes.append(
            Reason(
                verdicts.OTHER_SPEED,
                "new" if slower > 0 else "base",
                values=(math.expm1(abs(slower)),),
            )
        )
    return notes


# --- verdicts ------------------------------------------------------------------------------------------------------


def compare(
    base: Results,
    new: Results,
    settings: Settings = DEFAULT,
    fresh: Sequence[Results] = (),
    session_variance: Mapping[str, float] | None = None,
    history: tuple[History, str, str] | None = None,
) -> Comparison:
    """Judge every cell that was timed, or counted by several processes. UserError if the two sides have no such cell,
    or ``only`` matches none.

    fresh     second collection (base, new) of the close cells of the first; these are judged by it alone
    session_variance  noise class -> variance of the difference between two sessions on this machine, if known
    history   the common history of both sides, and their two releases
    """
    sides, contracts = (describe(base), describe(new)), {**base.benchmarks, **new.benchmarks}
    same = {INSTRUCTIONS: (), TIME: PER_CELL} if settings.across_machines else ALIKE
    differences = {what: _differences(*sides, names) for what, names in same.items()}
    every = _joined(_cells_of(base, settings.only), _cells_of(new, settings.only), differences)
    skipped = every["verdict"] == SKIPPED
    if skipped.all():
        matched = f" that match {settings.only!r}" if settings.only else ""
        raise UserError(f"neither side has timed cells{matched}")
    timed = every["what"] == TIME
    counted, table = every[~timed & ~skipped], every[timed & ~skipped]
    is_open = (table["verdict"] == "").to_numpy()

    logs, paired, slower = _logs(base, new, table.index)
    noise = np.array(noise_of_cells(table, contracts), dtype=str)
    controls = np.array([contracts[name].control for name in table["benchmark"]], dtype=bool)
    interleaved = bool(collection_of(base, new))
    session = not interleaved and (session_variance or True)
    decided = _decide(logs, paired, noise, is_open, is_open, settings, session, controls).set_axis(
        table.index
    )
    check = _check(history[0]) if history else self_check(logs[0], noise, paired, is_open, settings)
    _withhold_busy(decided, table["base_quiet"], table["new_quiet"])
    if fresh and decided["close"].any():
        decided = _decide_fresh(decided, noise, is_open, fresh, settings)
    table = _with(table, decided.assign(noise=noise))
    counted = _with(counted, _judge_counts(counted, settings).assign(noise=INSTRUCTIONS))
    if history:
        said = compare_releases(*history).set_index(["series", "what"])
        table, counted = (_as_in(said, rows, settings) for rows in (table, counted))
        table.loc[table["verdict"].isin(DECIDED), ["reason", "more"]] = [Reason(), math.nan]
    if check.lower > settings.promise:
        table.loc[table["verdict"].isin(DECIDED), ["verdict", "reason"]] = [
            INCONCLUSIVE,
            Reason(verdicts.WITHHELD),
        ]
    counted["verdict"] = counted["verdict"].replace(verdicts.COUNT_VERDICTS)
    return Comparison(
        settings=settings,
        cells=_merged(table).drop(columns=["what", "unit"]).reset_index(),
        check=check,
        base=sides[0],
        new=sides[1],
        interleaved=interleaved,
        skipped=int((skipped & timed).sum()),
        counted=_with_times(counted, table, contracts).drop(columns=["what"]).reset_index(),
        counted_once=len({*base.values["cell"], *new.values["cell"]} - {*every.index[~timed]}),
        notes=tuple(_notes(*sides, settings, slower)),
        session_variance={} if interleaved else dict(session_variance or {}),
        in_history=history is not None,
    )


def _with(table: pd.DataFrame, figures: pd.DataFrame) -> pd.DataFrame:
    """Add the figures to the cells, and their verdict and reason where a cell has none yet."""
    said = figures[["verdict", "reason"]].where(
        table["verdict"] == "", table[["verdict", "reason"]]
    )
    from_these = [f"{side}_{name}" for side in SIDES for name in ("value", "low", "high")]
    return table.drop(columns=["verdict", "reason", *from_these]).join(figures.assign(**said))


def collection_of(base: Results, new: Results) -> str:
    """Return the collection in which process k of both sides ran side by side, by the run records, or ""."""
    first, second = base.last.interleaved, new.last.interleaved
    same = all(first.get(name) == second.get(name) for name in ("id", "stage"))
    return str(first.get("id", "")) if same and first.get("side") != second.get("side") else ""


def _logs(base: Results, new: Results, names: pd.Index) -> tuple[Logs, Bools, float]:
    """Return speed-corrected log seconds of both sides (NaN without a process), whether each cell's processes are
    paired, and the log of how much slower the machine was for new.

    A virtual machine keeps one baseline for a run, and may have another an hour later, depending on its host's load.
    Probes are the interpreter's own work, so interpreter and machine have to be the same. Cells of an interleaved
    collection are paired if enough rounds, or all, gave both sides a process; other rounds are then left out.
    """
    sides = describe(base), describe(new)
    processes = base.processes, new.processes
    rounds = range(1 + max(int(side["process"].max()) if len(side) else 0 for side in processes))

    def log(column: str) -> list[Floats]:
        tables = (
            side.groupby(["cell", "process"], observed=True)[column].last().unstack()
            for side in processes
        )
        values = (
            table.reindex(index=names, columns=rounds).to_numpy(dtype=float) for table in tables
        )
        return [np.log(np.where(each > 0, each, np.nan)) for each in values]

    first, second = logs = log("seconds")
    slower, interpreters = 0.0, sides[0]["interpreter"] and sides[1]["interpreter"]
    if interpreters and not _differences(*sides, (*OF_MACHINE, "interpreter", "libc")):
        baselines = log("baseline")
        usual = np.array([np.nanmedian(each) for each in baselines if np.isfinite(each).any()])
        # a cell with a process without a baseline is not corrected
        known = [
            (np.isfinite(own) | ~np.isfinite(each)).all(axis=1)
            for own, each in zip(baselines, logs)
        ]
        moved = [
            np.where(
                np.all(known, axis=0)[:, None], statistics.speed_correction_log(own, usual), 0.0
            )
            for own in baselines
        ]
        first, second = (each - own for each, own in zip(logs, moved))
        out = [own[np.isfinite(each) & (own != 0)] for each, own in zip(logs, moved)]
        slower = float(np.median(out[1]) - np.median(out[0])) if all(map(len, out)) else 0.0
    in_base, in_new = (np.isfinite(each) for each in (first, second))
    both = in_base & in_new
    paired = ((both.sum(axis=1) >= MIN_PROCESSES) | (in_base == in_new).all(axis=1)) & bool(
        collection_of(base, new)
    )
    alone = paired[:, None] & ~both
    return (np.where(alone, np.nan, first), np.where(alone, np.nan, second)), paired, slower


def _decide(
    logs: Logs,
    paired: Bools,
    noise: Any,
    taken: Bools,
    judged: Bools,
    settings: Settings,
    session: bool | Mapping[str, float] = False,
    controls: Bools | None = None,
) -> pd.DataFrame:
    """Return verdict, reason and figures of every cell; inconclusive without evidence. ``taken`` cells are used to
    estimate the noise; of these, ``judged`` cells get a verdict and figures."""
    base, new = (np.where(taken[:, None], side, np.nan) for side in logs)
    every = statistics.estimate(base, new, noise, paired, session, controls)
    estimated = Estimate(*np.where(judged, [*vars(every).values()], np.nan))
    processes = [np.isfinite(side).sum(axis=1) for side in logs]
    fewest = np.minimum(*processes)
    enough = (fewest >= MIN_PROCESSES) & np.isfinite(estimated.error)
    table = _figures(estimated, enough, settings)
    margins = math.log1p(settings.min_effect), math.log1p(settings.equivalence)
    needed = statistics.processes_needed(estimated, paired, *margins, settings.promise)
    more = np.where(
        fewest < MIN_PROCESSES, np.fmax(needed, MIN_PROCESSES) - fewest, np.fmax(needed - fewest, 1)
    )
    table["reason"] = [Reason() if there else Reason(verdicts.TOO_FEW) for there in enough]
    table["more"] = np.where(judged & (table["verdict"] == INCONCLUSIVE), more, np.nan)
    for side, each, count in zip(SIDES, logs, processes):
        table[f"{side}_seconds"], table[f"{side}_processes"] = np.exp(statistics.means(each)), count
    return table.assign(paired=paired & judged, fresh=False, close=table["p"] < CLOSE)


def _figures(estimated: Estimate, enough: Bools, settings: Settings) -> pd.DataFrame:
    """Return verdict, ratio, its intervals and p values of effects; inconclusive where ``enough`` is false."""
    margin, same = math.log1p(settings.min_effect), math.log1p(settings.equivalence)
    p = np.where(enough, statistics.p_different(estimated, margin), np.nan)
    equivalence = np.where(enough, statistics.p_equivalent(estimated, same), np.nan)
    q = statistics.q_values(p)
    flagged = (q <= settings.fdr) & (p <= settings.promise)
    conditions = [flagged & (estimated.effect > 0), flagged, equivalence <= 0.05]
    verdict = np.select(conditions, [verdicts.SLOWER, verdicts.FASTER, NO_CHANGE], INCONCLUSIVE)
    figures = {
        "verdict": verdict,
        "ratio": np.exp(estimated.effect),
        "p": p,
        "q": q,
        "p_equivalence": equivalence,
    }
    for confidence in (95, 90):
        ends = np.exp(statistics.interval(estimated, confidence / 100))
        figures |= {f"low{confidence}": ends[0], f"high{confidence}": ends[1]}
    return pd.DataFrame(figures)


def _withhold_busy(decided: pd.DataFrame, base: pd.Series, new: pd.Series) -> None:
    """Make cells without a quiet process on one side inconclusive, in place: the machine may cause the difference."""
    in_base, in_new = (quiet.reindex(decided.index).eq(False) for quiet in (base, new))
    for who, busy in (
        ("both", in_base & in_new),
        ("base", in_base & ~in_new),
        ("new", in_new & ~in_base),
    ):
        decided.loc[busy, ["verdict", "reason", "close"]] = [
            INCONCLUSIVE,
            Reason(verdicts.NEVER_QUIET, who),
            False,
        ]


def _decide_fresh(
    decided: pd.DataFrame, noise: Any, is_open: Bools, fresh: Sequence[Results], settings: Settings
) -> pd.DataFrame:
    """Judge close cells again, by fresh processes alone.

    Selecting cells by their first figures and judging them by the same figures would exaggerate the effects. Cells that
    were measured again only to estimate the noise keep their first verdict.
    """
    logs, paired, _ = _logs(fresh[0], fresh[1], decided.index)
    close = decided["close"].to_numpy(dtype=bool)
    taken = close | (is_open & np.all([np.isfinite(side).any(axis=1) for side in logs], axis=0))
    again = _decide(logs, paired, noise, taken, close, settings).set_axis(decided.index)
    again[["fresh", "close"]] = True
    _withhold_busy(again, *(side.cells.set_index("cell")["quiet"] for side in fresh))
    first = decided.assign(q=np.nan)  # the first stage flags nothing
    return pd.concat([first[~close], again[close]]).loc[decided.index]


def cells_to_remeasure(comparison: Comparison) -> list[str]:
    """Return the cells of a first stage that need fresh processes: the close ones, and enough others of their noise
    class, spread over the suite, to moderate variances (see statistics.estimate)."""
    again: list[str] = []
    for _, cells in comparison.cells.groupby("noise", sort=False):
        close = cells[cells["close"].eq(True)]["cell"]
        others = cells[
            cells["close"].ne(True) & cells["base_processes"].gt(0) & cells["new_processes"].gt(0)
        ]["cell"]
        wanted = min(len(others), max(0, statistics.MIN_FAMILY - len(close)))
        if len(close):
            places = np.linspace(0, len(others) - 1, wanted).round().astype(int)
            again += [*close, *others.iloc[places]]
    return again


# --- instruction counts ----------------------------------------------------------------------------------------------


def _judge_counts(table: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Return verdict and figures of every open count: medians over processes, whose only error is memory layout."""
    columns, same = ["value", "low", "high"], ["benchmark", "route", "nbytes"]
    sides = [
        table[[f"{side}_{name}" for name in columns]].set_axis(columns, axis=1).astype(float)
        for side in SIDES
    ]
    base, new = (side.where(side > 0).join(table[same]) for side in sides)
    spread = verdicts.layout_sd(pd.concat([base, new]))[: len(table)]
    effect = np.log(new["value"] / base["value"]).where(table["verdict"] == "").to_numpy()
    df = 4.0 * table.groupby(same, dropna=False)["what"].transform(
        "size"
    )  # each range is over two at least
    estimated = Estimate(effect, spread * math.sqrt(2), df.to_numpy(), spread)
    found = _figures(estimated, np.isfinite(effect), settings).set_axis(table.index)
    return found.assign(reason=Reason(), base_count=sides[0]["value"], new_count=sides[1]["value"])


def _with_times(
    counted: pd.DataFrame, timed: pd.DataFrame, benchmarks: Mapping[str, Any]
) -> pd.DataFrame:
    """Add the result of the same route's time: time (its verdict, "" if not decided), time_ratio, and contradicts
    (whether the two disagree)."""
    conversions = [name for name, each in benchmarks.items() if each.role == Role.CONVERSION]
    timed = timed[timed["verdict"].isin(DECIDED) & timed["benchmark"].isin(conversions)]
    times = timed[[*CALL, "verdict", "ratio"]].drop_duplicates(CALL, keep="last")
    found = counted[CALL].merge(times, on=CALL, how="left").set_axis(counted.index)
    time = found["verdict"].fillna("").astype(str)
    expected = counted["verdict"].map(verdicts.TIME_VERDICTS)
    contradicts = time.ne("") & expected.notna() & time.ne(expected)
    return counted.assign(
        time=time, time_ratio=found["ratio"].astype(float), contradicts=contradicts
    )


# --- the comparison's own check --------------------------------------------------------------------------------------


def splits(processes: int) -> list[tuple[list[int], list[int]]]:
    """Return ways to halve a baseline's processes: each half gets one of two neighbours in time. Empty below four.

    An interleaved comparison divides processes in the same way, and drift is the same for both halves. Differences
    between sessions do not show in halves of one session: see statistics.session_variance.
    """
    pairs = [(k, k + 1) for k in range(0, processes - 1, 2)]
    if len(pairs) < 2:
        return []
    orders = product(
        *([pair, pair[::-1]] if 1 <= at <= TURNED else [pair] for at, pair in enumerate(pairs))
    )
    return [(list(one), list(other)) for one, other in (zip(*order) for order in orders)]


def self_check(
    base: Floats, noise: Any, paired: Bools, is_open: Bools, settings: Settings
) -> SelfCheck:
    """A/A over the splits of the baseline's processes: log seconds (cells, processes), of cells with at least four."""
    there = np.isfinite(base)
    enough = is_open & (there.sum(axis=1) >= MIN_PROCESSES)
    used = splits(1 + int(np.flatnonzero(there.any(axis=0))[-1])) if enough.any() else []
    flagged = 0
    for half, other in used:
        estimated = statistics.estimate(
            base[enough][:, half], base[enough][:, other], noise[enough], paired[enough]
        )
        verdict = _figures(estimated, np.isfinite(estimated.error), settings)["verdict"]
        flagged += int(verdict.isin((verdicts.SLOWER, verdicts.FASTER)).sum())
    cells = int(enough.sum())
    mean = flagged / len(used) if used else 0.0
    lower, upper = (
        statistics.rate_bounds(math.floor(mean), cells)[0],
        statistics.rate_bounds(math.ceil(mean), cells)[1],
    )
    return SelfCheck(len(used), cells, mean, lower, upper)


def _check(history: History) -> SelfCheck:
    """Return how often the history reports a change of a toolchain against itself.

    Halves of the baseline's processes would check a test that is not used here. They also fail it: processes of one
    session may be fast and slow by turns, two of a half alike, and 8.7 % of the cells of torch 2.10.0 were flagged.
    """
    flagged, series = (int(history.replicates[name].sum()) for name in ("flagged", "series"))
    return SelfCheck(
        len(history.replicates), series, flagged, *statistics.rate_bounds(flagged, series)
    )


# --- sides by their names --------------------------------------------------------------------------------------------


def compare_by_name(
    base: str, new: str, results: Path, machine: str | None, settings: Settings
) -> Comparison:
    """Compare the result files of two names, with the fresh processes of ``compare.py --run`` if there are any.

    Two releases of one history, on one machine, have the ratios, intervals and verdicts of that history. UserError if a
    name matches no file or several, or both names match the same file.
    """
    files = [selection.find_result_file(name, results, machine) for name in (base, new)]
    if files[0].resolve() == files[1].resolve():
        raise UserError(f"BASE and NEW are the same file, {files[0]}: name two, or use --run")
    places = [results_directory(file) for file in files]
    first, second = (load_files(place, [file]) for place, file in zip(places, files))
    for name, side in ((base, first), (new, second)):
        if side.timed.empty and side.last.failed:
            raise UserError(f"{name} could not be measured: {side.last.failed}")
    collection, stages = (
        collection_of(first, second),
        [stage for place in places if (stage := fresh_results(place))],
    )
    if collection and len(stages) == len(places):
        again = [
            load_files(stage, [selection.find_result_file(str(stage), stage)]) for stage in stages
        ]
        if collection_of(*again) == collection:
            return compare(first, second, settings, again)
    histories: Mapping[str, History] = {}
    if files[0].absolute().parent == files[1].absolute().parent:
        with contextlib.suppress(
            UserError
        ):  # a broken file of another release is no obstacle; report.py names it
            histories = histories_of(load(places[0], files[0].absolute().parent.name), settings)
    learnt: dict[str, float] = {}
    for history in histories.values():
        versions = {file: release.version for release in history.releases for file in release.files}
        older, newer = (versions.get(result_name(file), "") for file in files)
        variances = {noise: 2 * sd**2 for noise, sd in history.session_sd.items()}
        if older and newer and older != newer:
            return compare(first, second, settings, (), variances, (history, older, newer))
        learnt = learnt or (variances if len(history.replicates) else {})
    return compare(first, second, settings, (), learnt)


def _as_in(said: pd.DataFrame, rows: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Replace the figures and verdicts of times, or of counts, by those of their history (see history.compare_releases). Cells
    of a series over several sizes get the parameter ``sizes`` (its ends, in bytes) instead of nbytes."""
    series, same = series_of(rows), 1 + settings.equivalence
    own = said.reindex(pd.MultiIndex.from_arrays([series, rows["what"]])).set_axis(rows.index)
    judged = rows["verdict"].isin((*DECIDED, INCONCLUSIVE)) & own["ratio"].notna()
    narrower = (own["high"] / own["low"]) ** (Z90_OVER_Z95 / 2)
    taken = {"ratio": own["ratio"], "low95": own["low"], "high95": own["high"], "q": own["q"]}
    taken |= {"low90": own["ratio"] / narrower, "high90": own["ratio"] * narrower}
    small = np.where(
        taken["high90"].lt(same) & taken["low90"].gt(1 / same), NO_CHANGE, INCONCLUSIVE
    )
    of_time = own["verdict"].map(lambda word: verdicts.TIME_VERDICTS.get(word, word))
    taken["verdict"] = of_time.where(own["verdict"].ne(""), small)
    for name, values in taken.items():
        rows[name] = rows[name].mask(judged, values)
    several = judged & (own["sizes"].str.len() > 1)
    for cell, sizes in own.loc[several, "sizes"].items():
        names = {
            name: value for name, value in rows.at[cell, "parameters"].items() if name != "nbytes"
        }
        rows.at[cell, "parameters"] = names | {"sizes": (sizes[0], sizes[-1])}
    return rows


def _merged(table: pd.DataFrame) -> pd.DataFrame:
    """Keep one row per series of several sizes: the first of those that were quiet and have the most processes."""
    several = table["parameters"].map(lambda given: "sizes" in given).astype(bool)
    fewest = table[["base_processes", "new_processes"]].min(axis=1)
    best = table.assign(series=series_of(table), fewest=fewest)[several]
    best = best.sort_values(["base_quiet", "new_quiet", "fewest"], ascending=False, kind="stable")
    return table[~several | table.index.isin(best.drop_duplicates("series").index)]
