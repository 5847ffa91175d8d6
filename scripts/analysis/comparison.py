"""BASE against NEW: one verdict for every cell that was timed, or counted by several processes.

See ``judging`` for what verdicts rest on. Two releases of one history have the figures and verdicts
of that history (see history.compare_releases).
"""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from cli import UserError
from pandas import DataFrame, Index, concat
from store.files import fresh_results, result_name, results_directory
from store.frames import SKIPPED, check_frame
from store.schema import HARDWARE
from toolchains import selection

from . import verdicts
from .changes import ROUTE
from .history import History, compare_releases, histories_of
from .judging import (
    SelfCheck,
    Times,
    add_times,
    check_by_history,
    corrected_times,
    interleaved_collection,
    judge_as_history,
    judge_counts,
    judge_fresh,
    judge_times,
    merge_sizes,
    self_check,
    withhold_busy,
)
from .results import Results, load, load_files, where
from .series import SESSION_SD
from .statistics import MAX_EQUIVALENCE_P, MIN_FAMILY, MIN_PROCESSES, MIN_SESSION_SD, Bools
from .suite import Benchmarks, noise_of_cells
from .verdicts import (
    DECIDED,
    DEFAULT,
    FASTER,
    INCONCLUSIVE,
    INSTRUCTIONS,
    NO_CHANGE,
    SIDE_FIGURES,
    SIDES,
    SLOWER,
    TIME,
    ComparedCount,
    ComparedTime,
    Reason,
    Settings,
    count_changes,
    explain_rows,
    largest_first,
)

MACHINE_FIELDS = ("machine", *HARDWARE)  # its name and its hardware
BUILD_FIELDS = ("libc", "build")  # of the C library and of Python, both as costly as a release
# From which on a note says that the machine's speed differed
MIN_NOTED_SLOWDOWN_LOG = math.log(1.005)
RUN_FIELDS = ("asv_runner", "launch")  # settings of a run that must be the same on both sides
# Fields that must be equal, on one machine
EQUAL_FIELDS = {
    INSTRUCTIONS: verdicts.COUNT_CONDITIONS,
    TIME: (*MACHINE_FIELDS, *RUN_FIELDS),
}
EQUAL_FIELDS_ACROSS = {INSTRUCTIONS: (), TIME: RUN_FIELDS}  # of different machines
EXPLAINED = ["value", "functions"]  # columns that explain a change of counts
EXPLAINED_OF_SIDES = [[f"{side}_{name}" for name in EXPLAINED] for side in SIDES]
EARLY_SHARE = 1 / 6  # of the p value that decides a cell: by then a stage may end early
Side = Mapping[str, object]


@dataclass(frozen=True)
class Comparison:
    """Two sides and the verdicts on them.

    cells             one ComparedTime per timed cell with a figure or a failure on either side
    base, new         see ``describe_side``
    skipped           number of cells that both sides skip
    counted           one ComparedCount per cell that several processes counted, or failed to count,
                      on either side
    counted_once      number of cells that are counted once and not compared
    session_variance  noise class -> variance between sessions, if learnt from toolchains that were
                      measured twice
    in_history        ratios, intervals and verdicts are those of the common history
    """

    settings: Settings
    cells: DataFrame
    check: SelfCheck
    base: Side
    new: Side
    interleaved: bool
    skipped: int
    counted: DataFrame
    counted_once: int
    notes: tuple[Reason, ...]
    session_variance: Mapping[str, float]
    in_history: bool

    @property
    def withheld(self) -> bool:
        """Whether the self-check contradicts the promise: decided times are then inconclusive."""
        return self.check.lower > self.settings.promise

    @property
    def counts(self) -> dict[str, int]:
        """Cells of each verdict; they add up to all cells."""
        return _count(self.cells, verdicts.VERDICTS)

    @property
    def counts_decided(self) -> dict[str, int]:
        """Instruction counts of each verdict on counts."""
        return _count(self.counted, verdicts.COUNT_VERDICTS.values())

    def changed_rows(self, table: DataFrame) -> DataFrame:
        """The changed rows of ``cells`` or ``counted`` that count, the largest first. In a history
        a route counts once, by its largest change, as on its page."""
        rows = largest_first(where(table, verdict=verdicts.CHANGED))
        return rows.drop_duplicates(ROUTE) if self.in_history else rows

    @property
    def changed(self) -> Mapping[str, float]:
        """Verdict -> number of its rows that count, and under verdict_ratio their median."""
        tables = [self.changed_rows(table) for table in (self.cells, self.counted)]
        return count_changes(concat([table[["verdict", "ratio"]] for table in tables]))

    @property
    def decided(self) -> int:
        """Cells that are slower, faster or have not changed."""
        return sum(self.counts[verdict] for verdict in DECIDED)

    @property
    def in_turns(self) -> int:
        """Cells whose samples were taken in turns."""
        return int(self.cells["in_turns"].eq(True).sum())

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
        if self.decided or any(self.counts_decided.values()):
            return True  # a history may decide with fewer
        undecided = self.cells.query("verdict == @INCONCLUSIVE")
        fewest = undecided[["base_processes", "new_processes"]].min(axis=1)
        return bool(fewest.max() >= MIN_PROCESSES) and not self.withheld

    @property
    def exit_code(self) -> int:
        """0 nothing slower, 1 something slower or of more instructions, 2 could not compare or too
        little decided.

        A slower cell counts however few cells are decided; exit code 0 needs enough decided cells.
        """
        if not self.can_judge:
            return 2
        if verdicts.has_slower(self.changed):
            return 1
        # counts alone are decided without times
        return 0 if not self.comparable or self.share_decided >= self.settings.min_decided else 2


def _count(table: DataFrame, names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = table["verdict"].value_counts().to_dict()
    return {name: counts.get(name, 0) for name in names}


# --- the two sides -------------------------------------------------------------------------------


def describe_side(results: Results) -> Side:
    """Return a side's machine, toolchain, and what of its last run bears on comparing."""
    cell = results.cells.iloc[0]
    record = results.last
    conditions = record.conditions
    caches = (f"{level} {size}" for level, size in conditions.caches.items())
    names = ("machine", "toolchain", "torch", "numpy", "python", "commit", "file")
    fields = ("started", "command", "rounds", "interleaved", *RUN_FIELDS)
    return {
        **{name: str(cell[name]) for name in names},
        **{name: getattr(record, name) or None for name in fields},
        "interpreter": record.settings.python or None,
        **{name: getattr(record.settings, name) or None for name in ("build", "compiler")},
        **{name: getattr(conditions, name) or None for name in ("cpu", "libc", "system")},
        "cores": conditions.cores_allowed,
        "caches": ", ".join(caches),
    }


def _differences(base: Results, new: Results, names: Iterable[str]) -> list[Reason]:
    """Return the fields known on both sides with different values."""
    sides = describe_side(base), describe_side(new)
    fields = ((name, tuple(side[name] for side in sides)) for name in names)
    return [
        Reason(verdicts.FIELD_DIFFERS, detail=name, values=values)
        for name, values in fields
        if all(values) and values[0] != values[1]
    ]


def _times(base: Results, new: Results, cells: Index) -> Times:
    """Return the times of cells. They are corrected where both sides have the same probes."""
    fields = (*MACHINE_FIELDS, "interpreter", *BUILD_FIELDS)
    have_interpreters = base.last.settings.python and new.last.settings.python
    have_same_probes = have_interpreters and not _differences(base, new, fields)
    return corrected_times(base, new, cells, bool(have_same_probes))


def _notes(base: Results, new: Results, slowdown: float, settings: Settings) -> tuple[Reason, ...]:
    """Return the notes on a comparison. slowdown: see ``Times``."""
    notes = _differences(base, new, ("python", "compiler", "system"))
    asked = _differences(base, new, MACHINE_FIELDS)[:1] if settings.across_machines else []
    asked += _differences(base, new, BUILD_FIELDS) if settings.across_builds else []
    notes += [replace(reason, code=verdicts.ACROSS) for reason in asked]
    if not (base.last.asv_runner and new.last.asv_runner):
        notes.append(Reason(verdicts.NO_RECORD))
    if abs(slowdown) > MIN_NOTED_SLOWDOWN_LOG:
        slower = "new" if slowdown > 0 else "base"
        notes.append(Reason(verdicts.OTHER_SPEED, slower, values=(math.expm1(abs(slowdown)),)))
    return tuple(notes)


# --- the comparison -------------------------------------------------------------------------------


def compare(
    base: Results,
    new: Results,
    settings: Settings = DEFAULT,
    fresh: Sequence[Results] = (),
    history: History | None = None,
    releases: tuple[str, str] | None = None,
) -> Comparison:
    """Judge every cell that was timed, or counted by several processes. UserError if the two sides
    have no such cell, or ``only`` matches none.

    fresh     second collection (base, new) of the close cells of the first; these are judged by it
              alone
    history   of this machine, if it knows the variance between two sessions
    releases  of both sides, if they are releases of that history
    """
    cells = _join_sides(base, new, settings)
    open_cells = cells[cells["verdict"] != SKIPPED]
    benchmarks = {**base.benchmarks, **new.benchmarks}
    session = _session_variance(base, new, history)
    timed = where(open_cells, what=TIME)
    times = _times(base, new, timed.index)
    timed, check = _judge_timed(timed, times, benchmarks, settings, fresh, session)
    ratios = None
    if history and releases:
        check = check_by_history(history)
        ratios = compare_releases(history, [releases])
        timed = judge_as_history(timed, ratios, settings)
        timed.loc[timed["verdict"].isin(DECIDED), ["reason", "more"]] = [Reason(), math.nan]
    if check.lower > settings.promise:
        timed = _withhold(timed)
    counted = _judge_counted(where(open_cells, what=INSTRUCTIONS), ratios, settings)
    counted = add_times(counted, timed, benchmarks).drop(columns="what").reset_index()
    timed = merge_sizes(timed).drop(columns=["what", "unit"]).reset_index()
    return Comparison(
        settings=settings,
        cells=check_frame(timed, ComparedTime, {*base.parameters, *new.parameters}),
        check=check,
        base=describe_side(base),
        new=describe_side(new),
        interleaved=session is None,
        skipped=len(where(cells, what=TIME, verdict=SKIPPED)),
        counted=check_frame(counted, ComparedCount, {*base.parameters, *new.parameters}),
        counted_once=len(
            {*base.values["cell"], *new.values["cell"]} - {*where(cells, what=INSTRUCTIONS).index}
        ),
        notes=_notes(base, new, times.slowdown, settings),
        session_variance=session or {},
        in_history=bool(releases),
    )


def _judge_counted(cells: DataFrame, ratios: DataFrame | None, settings: Settings) -> DataFrame:
    """Return the counted cells with their verdicts and figures, those of their history if it has
    ``ratios``, and what explains a change."""
    base, new = (cells[names].set_axis(EXPLAINED, axis=1) for names in EXPLAINED_OF_SIDES)
    counted = _add_figures(cells, judge_counts(cells, settings).assign(noise=INSTRUCTIONS))
    if ratios is not None:
        counted = judge_as_history(counted, ratios, settings)
    counted["verdict"] = counted["verdict"].replace(verdicts.COUNT_VERDICTS)
    is_changed = counted["verdict"].isin(verdicts.CHANGED)
    return counted.assign(because=explain_rows(base, new, is_changed))


def _withhold(timed: DataFrame) -> DataFrame:
    """Withhold the verdicts of a comparison that decides too often."""
    withheld = [INCONCLUSIVE, Reason(verdicts.WITHHELD)]
    timed.loc[timed["verdict"].isin(DECIDED), ["verdict", "reason"]] = withheld
    return timed


def _join_sides(base: Results, new: Results, settings: Settings) -> DataFrame:
    """Return ``verdicts.join_sides``. UserError without a timed cell."""
    fields = EQUAL_FIELDS_ACROSS if settings.across_machines else EQUAL_FIELDS
    if not settings.across_builds:
        fields = {kind: (*names, *BUILD_FIELDS) for kind, names in fields.items()}
    differences = {kind: _differences(base, new, names) for kind, names in fields.items()}
    cells = verdicts.join_sides(base, new, settings.only, differences)
    if (cells["verdict"] == SKIPPED).all():
        matched = f" that match {settings.only!r}" if settings.only else ""
        raise UserError(f"neither side has timed cells{matched}")
    return cells


def _session_variance(
    base: Results, new: Results, history: History | None
) -> dict[str, float] | None:
    """Return noise class -> variance of the difference between two sessions, if known; None for
    sides of one session. Of two machines it is the usual one: what their cells differ by says
    nothing about sessions."""
    if interleaved_collection(base, new):
        return None
    if _differences(base, new, ("machine",)):
        return {noise: max(MIN_SESSION_SD**2, 2 * sd**2) for noise, sd in SESSION_SD.items()}
    return {noise: 2 * sd**2 for noise, sd in history.session_sd.items()} if history else {}


def _judge_timed(
    cells: DataFrame,
    times: Times,
    benchmarks: Benchmarks,
    settings: Settings,
    fresh: Sequence[Results],
    session: Mapping[str, float] | None,
) -> tuple[DataFrame, SelfCheck]:
    """Return the timed cells with their verdicts and figures, and the comparison's check. session:
    see ``statistics.estimate``."""
    noise = np.array(noise_of_cells(cells, benchmarks), dtype=str)
    controls = np.array([benchmarks[name].control for name in cells["benchmark"]], dtype=bool)
    is_open = (cells["verdict"] == "").to_numpy()
    figures = judge_times(times, noise, is_open, is_open, settings, session, controls)
    figures = figures.set_axis(cells.index)
    base, new = cells["base_quiet"], cells["new_quiet"]
    figures = withhold_busy(figures, base, new, times.in_turns)
    if fresh and figures["close"].any():
        again = _times(fresh[0], fresh[1], cells.index)
        figures = judge_fresh(figures, again, noise, is_open, fresh, settings)
    check = self_check(times, noise, is_open, settings)
    return _add_figures(cells, figures.assign(noise=noise)), check


def _add_figures(cells: DataFrame, figures: DataFrame) -> DataFrame:
    """Add the figures to the cells, and their verdict and reason where a cell has none yet."""
    judged = ["verdict", "reason"]
    figures[judged] = figures[judged].where(cells["verdict"] == "", cells[judged])
    counts = [f"{side}_{name}" for side in SIDES for name in SIDE_FIGURES]
    return cells.drop(columns=[*judged, *counts]).join(figures)


def cells_to_remeasure(comparison: Comparison) -> list[str]:
    """Return the cells of a first stage that need fresh processes: the close ones, and enough
    others of their noise class, over the suite, to moderate variances (see statistics.estimate)."""
    names: list[str] = []
    for _, cells in comparison.cells.groupby("noise", sort=False):
        is_close = cells["close"].eq(True)
        close = cells.loc[is_close, "cell"]
        has_processes = (cells["base_processes"] > 0) & (cells["new_processes"] > 0)
        witnesses = cells.loc[~is_close & has_processes, "cell"]
        if len(close):
            count = min(len(witnesses), max(0, MIN_FAMILY - len(close)))
            places = np.linspace(0, len(witnesses) - 1, count).round().astype(int)
            names += [*close, *witnesses.iloc[places]]
    return names


def has_clear_answers(comparison: Comparison) -> bool:
    """Whether further processes would hardly change an answer: every cell of the stage is clear, or
    close, so that fresh processes decide it."""
    cells = comparison.cells
    is_fresh = cells["fresh"].eq(True)
    if is_fresh.any():  # the second stage, which decides them alone
        return bool(clear_cells(cells[is_fresh], comparison.settings).all())
    return bool((clear_cells(cells, comparison.settings) | cells["close"].eq(True)).all())


def clear_cells(cells: DataFrame, settings: Settings) -> Bools:
    """Whether each cell is decided by so strong evidence that looking again would hardly add wrong
    decisions, or has no figures to decide it."""
    verdict = cells["verdict"]
    kinds = [verdict.isin((SLOWER, FASTER)), verdict == NO_CHANGE, verdict == INCONCLUSIVE]
    p_of_change = EARLY_SHARE * settings.promise
    p_of_none = EARLY_SHARE * MAX_EQUIVALENCE_P
    is_strong = [cells["p"] <= p_of_change, cells["p_equivalence"] <= p_of_none, False]
    return np.select(kinds, is_strong, True)


# --- sides by their names -------------------------------------------------------------------------


def compare_by_name(
    base: str, new: str, results: Path, machine: str | None, settings: Settings
) -> Comparison:
    """Compare the result files of two names, with the fresh processes of ``compare.py --run`` if
    there are any.

    Two releases of one history, on one machine, have the ratios, intervals and verdicts of that
    history. UserError if a name matches no file or several, or both names match the same file.
    """
    files = [selection.find_result_file(name, results, machine) for name in (base, new)]
    if files[0].resolve() == files[1].resolve():
        raise UserError(f"BASE and NEW are the same file, {files[0]}: name two, or use --run")
    sides = [load_files(results_directory(file), [file]) for file in files]
    for name, side in zip((base, new), sides):
        if side.timed.empty and side.last.failed:
            raise UserError(f"{name} could not be measured: {side.last.failed}")
    judge = partial(compare, sides[0], sides[1], settings)
    if fresh := _load_fresh(files, interleaved_collection(*sides)):
        return judge(fresh)
    repeated = None
    for history in _common_histories(files, settings):
        older, newer = _releases_in(history, files)
        if older and newer and older != newer:
            return judge(history=history, releases=(older, newer))
        if repeated is None and len(history.replicates):
            repeated = history
    return judge(history=repeated)


def _releases_in(history: History, files: Sequence[Path]) -> list[str]:
    """Return the releases of a history that files are results of, "" for none."""
    versions = {file: release.version for release in history.releases for file in release.files}
    return [versions.get(result_name(file), "") for file in files]


def _load_fresh(files: Sequence[Path], collection: str) -> list[Results]:
    """Return the fresh processes of both sides, if the same collection has them; else none."""
    stages = [fresh_results(results_directory(file)) for file in files]
    fresh = [
        load_files(stage, [selection.find_result_file(str(stage), stage)])
        for stage in stages
        if stage and collection and all(stages)
    ]
    return fresh if fresh and interleaved_collection(*fresh) == collection else []


def _common_histories(files: Sequence[Path], settings: Settings) -> list[History]:
    """Return the histories of the machine of both files; none if they are of two machines."""
    base, new = (file.absolute().parent for file in files)
    # a broken file of another release is no obstacle; report.py names it
    with contextlib.suppress(UserError):
        if base == new:
            results = load(results_directory(files[0]), base.name)
            return [*histories_of(results, settings).values()]
    return []
