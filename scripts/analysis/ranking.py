"""Rank the routes of a need at each measured size.

At each size a route is good where it is safe, ties with the fastest safe route, and may be
recommended (see below). A safe route has no hazard, and no input makes it die or give a wrong
result silently. Neighbouring sizes that have a good route in common get one route. Of several it is
the one that is good at the most sizes, so that an answer names few routes; of equals the one
closest to the fastest.

The fastest median at each size would change with noise: on three machines a copy's answer had 3 or
4 parts instead of 1 or 2. The first tied route of the catalogue cost up to 30 %.

Both rules, which routes tie and which may be recommended, stand here only. ``evidence_of`` gives
them the cells of results, ``measured`` those of a measured question; ``Steadiness`` has their
limits that depend on how quiet the machine was.

Two cells **tie** where neither takes significantly longer than the other. A cell is significantly
slower where the hypothesis that it takes at most MARGIN more is rejected at the comparison's
promise (see verdicts.Settings and statistics.p_different). A difference below the margin does not
matter, and one within the noise of the processes would not be seen in the next run. Variances of
processes are moderated within families of similar noise. The cells of a family share an effect in
each round, such as the machine's clock. It cancels in rounds in which both cells have a process;
otherwise, or where the families differ, it is added as a variance of its own. Cells of two runs
(``run.py --only``) are corrected to one speed of the machine by both baselines, and the variance
between sessions is added.

With fewer than MIN_PROCESSES processes, a cell uses its family's variance and degrees of freedom
if the family is large enough to moderate. Elsewhere the noise is not known, so the SD of a process
is taken as FEW_SD at least, as seen on a busy machine. Then a ratio of 2.8 is significant with one
process, 2.1 with two, 1.9 with three.

A cell without a quiet process is an upper bound. For one thread on the host, two runs of a machine
that was hardly ever quiet differ by a factor of 2 at most (docs/lab-notes.md), so the cell counts
as one process. Where other work takes a core that torch's threads or a device's driver wait for,
the factor was 12, so no difference to such a cell is significant.

Of routes that tie with the fastest, those **may be recommended** that take at most the share
``Steadiness.excess_limit`` longer.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from pandas import DataFrame, Index, MultiIndex, Series
from store.frames import TimedCell

from benchmarks import contracts
from benchmarks.core.probes import MEMORY

from . import statistics
from .results import Results, where
from .series import SESSION_SD
from .statistics import MIN_PROCESSES, Bools, Floats, Levels, Names
from .suite import noise_of_cells
from .verdicts import Settings

# Kinds of routes of a need at a size: the best, as good, slower, undecided (an upper bound); faster
# on a condition; faster and not safe; of no use
GOOD = BEST, TIE, SLOWER, UNDECIDED = "best", "tie", "slower", "undecided"
KINDS = (*GOOD, CONDITION := "condition", UNSAFE := "unsafe", OTHER := "other")
# A route that takes more than this many times the seconds of the best is worth a warning
SLOW_RATIO = 1.5
SIZE_OF_NEED = ["number", "nbytes"]  # the need, by its number, and the size
MARGIN = 0.05  # relative: a route slower by up to this is as good
PROMISE = Settings().promise  # of pairs that differ by MARGIN, at most this share is significant
FEW_SD = 0.25  # of log seconds, between processes
EXPECTED = 0.9  # share of further processes within a prediction interval
LEVELS = tuple(Levels.__dataclass_fields__)

# --- ranks ----------------------------------------------------------------------------------------


def rank(cells: DataFrame, needs: Sequence[str] = ("role",)) -> DataFrame:
    """Rank the routes of each need: those with the same values in the columns ``needs``.

    Return the cells by need and size, in the order to take them, with number (of the need), part,
    kind, leads, ratio and slow, see store.frames.Choice.
    """
    cells = cells.assign(number=cells.groupby([*needs], sort=False).ngroup())
    is_candidate = _keeps_dtype(cells)
    is_eligible = is_candidate & _is_safe(cells, is_candidate)
    cells = cells.assign(is_candidate=is_candidate, is_eligible=is_eligible)
    cells = cells.merge(_best_routes(cells[is_eligible]), on=SIZE_OF_NEED)
    is_best = (cells["route"] == cells["best_route"]) & cells["is_eligible"]
    best_cells = cells[is_best].drop_duplicates(SIZE_OF_NEED)
    is_best = cells.index.isin(best_cells.index)
    references = cells[SIZE_OF_NEED].merge(best_cells, on=SIZE_OF_NEED)
    cells["kind"] = _kinds(cells, is_best, references)
    on_condition = select_fastest(where(cells, kind=CONDITION), SIZE_OF_NEED)
    cells["leads"] = is_best | cells.index.isin(on_condition.index)
    cells["ratio"] = cells["seconds"] / references["seconds"]
    cells["slow"] = significantly_slower(cells, references, SLOW_RATIO - 1)
    cells = _in_order(cells).join(_parts(cells), on=SIZE_OF_NEED)
    return cells.drop(columns=["is_candidate", "is_eligible", "best_route"])


def _keeps_dtype(cells: DataFrame) -> "Series[bool]":
    """Whether a route keeps the dtype; True for all routes of a need if none does."""
    return cells["keeps"] | ~cells.groupby("number")["keeps"].transform("any")


def _is_safe(cells: DataFrame, is_candidate: "Series[bool]") -> "Series[bool]":
    """Whether a route is safe; True for all routes at a size if no candidate is."""
    safe_candidate = cells.assign(safe=cells["safe"] & is_candidate).groupby(SIZE_OF_NEED)["safe"]
    return cells["safe"] | ~safe_candidate.transform("any")


def _kinds(cells: DataFrame, is_best: Bools, references: DataFrame) -> Names:
    """Return the kind of each cell against the best cell at its size."""
    is_measured = cells["quiet"] & references["quiet"]
    is_slower = significantly_slower(cells, references)
    is_faster = significantly_slower(references, cells)
    conditions = {
        BEST: is_best,
        SLOWER: cells["is_eligible"] & is_slower,
        TIE: cells["is_eligible"] & is_measured,
        UNDECIDED: cells["is_eligible"],
        OTHER: ~cells["is_candidate"] | ~is_faster,
        CONDITION: cells["non_blocking"],
    }
    return np.select([*conditions.values()], [*conditions], UNSAFE)


def _in_order(cells: DataFrame) -> DataFrame:
    """Sort the cells of each size by kind. Those that lead come first, in the order of the
    catalogue, then the others by time."""
    cells = cells.assign(
        place=cells["kind"].map(KINDS.index),
        seconds_behind=cells["seconds"].mask(cells["leads"], 0),
    )
    order = [*SIZE_OF_NEED, "place", "seconds_behind", "order"]
    return cells.sort_values(order, kind="stable").drop(columns=["place", "seconds_behind"])


def _best_routes(cells: DataFrame) -> DataFrame:
    """Return the best route (``best_route``) for each need and size: one per run of neighbouring
    sizes, with as few runs as possible. It is good at all sizes of its run. A route without a quiet
    process is judged by its upper bound."""
    tied = select_fastest(cells, SIZE_OF_NEED)
    fastest = tied.groupby(SIZE_OF_NEED)["seconds"].transform("min")
    good = tied.assign(excess=np.log(tied["seconds"] / fastest))
    good = good[recommendable(tied["seconds"], fastest, tied["excess_limit"])]
    routes = good.groupby(SIZE_OF_NEED)["route"].agg(set)
    runs = _number_runs(routes.index.get_level_values("number"), routes).rename("run")
    sizes = good.groupby(["number", "route"])["nbytes"].transform("size")
    # a route common to all sizes of a run has the largest count of sizes in it
    routes_of_runs = (
        good.assign(sizes=sizes)
        .join(runs, on=SIZE_OF_NEED)
        .groupby(["run", "route"], as_index=False)
        .agg(
            sizes_of_run=("nbytes", "size"),
            sizes=("sizes", "first"),
            excess=("excess", "sum"),
            order=("order", "first"),
        )
        .sort_values(
            ["sizes_of_run", "sizes", "excess", "order"], ascending=[False, False, True, True]
        )
    )
    best_routes = routes_of_runs.drop_duplicates("run").set_index("run")["route"]
    return runs.map(best_routes).rename("best_route").reset_index()


def _parts(ranked: DataFrame) -> "Series[int]":
    """Return the ``part`` of each need and size."""
    is_leader = (ranked["kind"] == CONDITION) & ranked["leads"]
    by_size = ranked.assign(leader=ranked["route"].where(is_leader)).groupby(SIZE_OF_NEED)
    leaders = by_size["leader"].agg(lambda routes: {*routes.dropna()})
    best_routes = by_size["best_route"].first()
    keys = zip(leaders.index.get_level_values("number"), best_routes)
    return _number_runs(keys, leaders).rename("part")


def _number_runs(keys: Iterable[object], sets: "Series[set[str]]") -> "Series[int]":
    """Return the number of the run that each item belongs to. A run consists of neighbours with one
    key, whose sets all share an element or are all empty."""
    run = 0
    numbers = []
    previous_key = None
    shared = set[str]()
    for key, elements in zip(keys, sets):
        if key == previous_key and (shared & elements or shared == elements):
            shared = shared & elements
        else:
            run += 1
            shared = elements
        previous_key = key
        numbers.append(run)
    return Series(numbers, sets.index, dtype=int)


# --- recommendations ------------------------------------------------------------------------------


def recommendable(
    seconds: "Series[float] | float",
    fastest: "Series[float] | float",
    excess_limit: "Series[float] | float",
) -> "Series[bool] | bool":
    """Whether routes that tie with the fastest take few enough seconds to be recommended."""
    return seconds <= (1 + excess_limit) * fastest


def weakest(kinds: Iterable[str]) -> str:
    """Return the kind that speaks least for a route, of those that it has."""
    return max(kinds, key=KINDS.index)


def too_few_processes(cell: TimedCell, reference: TimedCell) -> bool:
    """Whether two quiet cells tie for want of processes only: the slower one takes too long to be
    recommended."""
    processes = min(cell.processes, reference.processes)
    fast, slow = sorted((cell, reference), key=lambda timed: timed.seconds)
    is_quiet = cell.quiet and reference.quiet
    may_replace = recommendable(slow.seconds, fast.seconds, slow.excess_limit)
    return is_quiet and processes < MIN_PROCESSES and not may_replace


# --- ties -----------------------------------------------------------------------------------------


def significantly_slower(cells: DataFrame, references: DataFrame, margin: float = MARGIN) -> Bools:
    """Test row by row whether ``cells`` take more than (1 + margin) times as long as
    ``references``; one row of either is compared with all rows of the other."""
    if cells.empty or references.empty:
        return np.zeros(0, dtype=bool)
    estimated = _compare(cells, references)
    p = statistics.p_different(estimated, math.log1p(margin))
    significant = (estimated.effect > 0) & (p <= PROMISE)
    return significant


def equivalent(cells: DataFrame, references: DataFrame) -> Bools:
    """Test row by row whether ``cells`` and ``references`` differ by less than MARGIN."""
    p = statistics.p_equivalent(_compare(cells, references), math.log1p(MARGIN))
    return p <= statistics.MAX_EQUIVALENCE_P


def _compare(cells: DataFrame, references: DataFrame) -> statistics.Estimate:
    """Estimate row by row how much longer ``cells`` take than ``references``."""
    noise, reference_noise = cells["noise"].to_numpy(), references["noise"].to_numpy()
    # of cells of two runs, the shares differ by 1 and -1
    run_difference = _array(cells["shares"]) - _array(references["shares"])
    through_memory = (noise == MEMORY) | (reference_noise == MEMORY)
    variance = np.where(through_memory, 2 * SESSION_SD[MEMORY] ** 2, statistics.MIN_SESSION_SD**2)
    return statistics.compare_levels(
        _levels(references),
        _levels(cells),
        noise == reference_noise,
        variance * (run_difference**2).sum(axis=1) / 2,
    )


def _levels(cells: DataFrame) -> Levels:
    return Levels(*(_array(cells[name]) for name in LEVELS))


def _array(column: "Series[object]") -> Any:
    """Return the column as one array, also where it has an array per row."""
    return np.array(column.tolist())


def select_fastest(cells: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Select the cells that tie with, or are faster than, each cell with the same values in
    ``columns``; at least one for each combination of values."""
    places = cells[[*columns]].assign(place=range(len(cells)))
    pairs = places.merge(places, on=[*columns])
    cell, reference = pairs["place_x"], pairs["place_y"]
    slower = cell[significantly_slower(cells.iloc[cell], cells.iloc[reference])]
    return cells[~np.isin(range(len(cells)), slower)]


def differ_significantly(cell: TimedCell, reference: TimedCell) -> bool:
    """Whether one of the two is significantly slower than the other."""
    columns = [*LEVELS, "noise", "shares"]  # all others take ten times as long
    rows = [[getattr(row, name) for name in columns] for row in (cell, reference)]
    pair = DataFrame(rows, columns=columns)
    return bool(significantly_slower(pair, pair[::-1]).any())


# --- evidence -------------------------------------------------------------------------------------


class Steadiness(NamedTuple):
    """What a ranking may rely on, by the share of time in which the machine was quiet; None: not
    known."""

    quiet_share: float | None

    @property
    def is_steady(self) -> bool:
        """Whether another session would find the same times.

        A machine that was quiet for less of a run may be at another clock in the next: nine
        sessions of Emerald Rapids that were quiet 9 to 27 % of the time had baselines of 33.6 to
        40.6 µs, and figures in proportion (docs/lab-notes.md).
        """
        return self.quiet_share is None or self.quiet_share >= 0.5

    @property
    def excess_limit(self) -> float:
        """The limit of a tie: a route that ties with the fastest, and takes at most this share
        longer, may be recommended.

        Figures of a call that moves 16 MiB differ by 9 % (SD) from session to session, others by
        1 %.
        """
        return 0.1


def evidence_of(cells: DataFrame, timed: DataFrame, results: Results) -> DataFrame:
    """Return the evidence of the processes of ``cells``, in the rows of ``timed``: the columns of
    ``weigh``, ``within`` and ``excess_limit``, see store.frames.TimedCell.

    A noisy cell counts as one process at best, see above. On a steady machine a prediction uses a
    single process without an interval: 90 % of the results of two runs differ by 3 % at most there
    (docs/lab-notes.md).
    """
    key = ["file", "cell"]
    names = MultiIndex.from_frame(timed[key])
    by_process = {  # two pivots: one of both has no columns where nothing was timed
        name: results.processes.pivot(index=key, columns=["run", "process"], values=name).reindex(
            names
        )
        for name in ("seconds", "baseline")
    }
    logs = np.log(by_process["seconds"].to_numpy(dtype=float))
    baselines = np.log(by_process["baseline"].to_numpy(dtype=float))
    logs -= statistics.speed_correction_log(baselines, baselines)
    noise = np.array(noise_of_cells(timed, results.benchmarks))
    evidence = weigh(logs, noise, by_process["seconds"].columns.get_level_values("run"))
    quiet = cells["quiet"].to_numpy()
    alone = ((cells["threads"] == contracts.ONE_THREAD) & ~cells["device"]).to_numpy()
    steadiness = Steadiness(results.quiet_share)
    predicts = quiet & ~(evidence["guessed"] & steadiness.is_steady)
    return evidence.assign(
        variance=evidence["variance"].where(quiet, np.where(alone, FEW_SD**2, math.inf)),
        df=evidence["df"].where(quiet, math.inf),
        within=np.where(
            predicts, statistics.prediction_half_width(_levels(evidence), EXPECTED), 0.0
        ),
        excess_limit=steadiness.excess_limit,
    )


def weigh(logs: Floats, noise: Names, runs: "Index[str] | str" = "") -> DataFrame:
    """Return one row per cell: noise (the family whose noise it has); the fields of
    statistics.Levels; guessed (its variance is known only from its own few processes); shares (of
    its processes, per run).

    logs: log seconds of processes (cells, rounds), NaN where there is none; see statistics.levels.
    runs: the run of each round, or of all rounds.
    """
    levels = statistics.levels(logs, noise)
    guessed = (levels.n < MIN_PROCESSES) & (levels.df < np.maximum(levels.n, 1.5))
    is_of_run = np.broadcast_to(runs, logs.shape[1:]) == np.unique(runs)[:, np.newaxis]
    shares = levels.present @ is_of_run.T.astype(float) / levels.n[:, np.newaxis]
    evidence = vars(levels) | {
        "variance": np.where(guessed, np.fmax(levels.variance, FEW_SD**2), levels.variance),
        "df": np.where(guessed, np.inf, levels.df),
        "present": [*levels.present],
        "guessed": guessed,
        "shares": [*shares],
    }
    return DataFrame({"noise": noise, **evidence})
