"""Rank the routes of a need at each measured size.

At each size a route is good where it is safe, ties with the fastest safe route, and may be
recommended (see ties.py). A safe route has no hazard, and no input makes it die or give a wrong
result silently. Neighbouring sizes that have a good route in common get one route. Of several it is
the one that is good at the most sizes, so that an answer names few routes; of equals the one
closest to the fastest.

The fastest median at each size would change with noise: on three machines a copy's answer had 3 or
4 parts instead of 1 or 2. The first tied route of the catalogue cost up to 30 %.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from pandas import DataFrame, Series

from .statistics import Bools, Names
from .ties import recommendable, select_fastest, significantly_slower

# Kinds of routes of a need at a size: the best, as good, slower, undecided (an upper bound); faster
# on a condition; faster and not safe; of no use
GOOD = BEST, TIE, SLOWER, UNDECIDED = "best", "tie", "slower", "undecided"
KINDS = (*GOOD, CONDITION := "condition", UNSAFE := "unsafe", OTHER := "other")
# A route that takes more than this many times the seconds of the best is worth a warning
SLOW_RATIO = 1.5
SIZE_OF_NEED = ["number", "nbytes"]  # the need, by its number, and the size


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
    on_condition = select_fastest(cells[cells["kind"] == CONDITION], SIZE_OF_NEED)
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
    good = good[recommendable(tied["seconds"], fastest)]
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
