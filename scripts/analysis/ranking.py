"""Rank the routes of a need at each measured size.

At each size a route is good where it is safe, not significantly slower than another safe one, and may be recommended
(see ties.py). A safe route has no hazard, and no input makes it die or give a wrong result silently. Neighbouring sizes
that have a good route in common get one route. Of several it is the one that is good at the most sizes, so that an
answer names few routes; of equals the one closest to the fastest.

The fastest median at each size would change with noise: on three machines a copy's answer had 3 or 4 parts instead of 1
or 2. The first tied route of the catalogue cost up to 30 %.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .ties import RECOMMENDED_EXCESS, select_fastest, significantly_slower

SLOW = 1.5  # a route that takes more than this many times the recommended one's seconds is worth a warning
# Kinds of routes of a need at a size: the best, as good, slower, undecided (an upper bound); faster on a condition;
# faster and not safe; of no use
GOOD = BEST, TIE, SLOWER, UNDECIDED = "best", "tie", "slower", "undecided"
KINDS = (*GOOD, CONDITION := "condition", UNSAFE := "unsafe", OTHER := "other")
AT = ["number", "nbytes"]  # the need, by its number, and the size


def rank(cells: pd.DataFrame, needs: Sequence[str] = ()) -> pd.DataFrame:
    """Rank the routes of one need, or of each value of the columns ``needs``: the cells by need and size, in the order
    to take them, and

    part     of the answer: neighbouring sizes with the same best route and the same fastest route with a condition
    kind     BEST, TIE, SLOWER, UNDECIDED (one of both is an upper bound), CONDITION, UNSAFE or OTHER
    leads    it is the best, or the fastest route with a condition, as far as decided
    ratio    of its seconds to those of the best route at that size
    slow     it is decided to take more than SLOW times as long as the best
    """
    cells = cells.assign(number=cells.groupby([*needs], sort=False).ngroup() if needs else 0)
    # candidates keep the dtype, if any route does; of these, the wanted ones are safe, if any is
    candidate = cells["keeps"] | ~cells.groupby("number")["keeps"].transform("any")
    safe = candidate & cells["safe"]
    wanted = candidate & (safe | ~safe.groupby([cells[name] for name in AT]).transform("any"))
    cells = cells.assign(candidate=candidate, wanted=wanted)
    cells = cells.merge(_taken(cells[wanted]), on=AT)
    taken = cells[(cells["route"] == cells["taken"]) & cells["candidate"]].drop_duplicates(AT)
    best, chosen = cells.index.isin(taken.index), cells[AT].merge(taken, on=AT)
    behind, far, ahead = (
        significantly_slower(cells, chosen),
        significantly_slower(cells, chosen, SLOW - 1),
        significantly_slower(chosen, cells),
    )
    alike = np.where(cells["quiet"] & chosen["quiet"], TIE, UNDECIDED)
    kinds = [
        best,
        cells["wanted"] & behind,
        cells["wanted"],
        ~cells["candidate"] | ~ahead,
        cells["non_blocking"],
    ]
    cells["kind"] = np.select(kinds, [BEST, SLOWER, alike, OTHER, CONDITION], UNSAFE)
    cells["leads"] = best | cells.index.isin(
        select_fastest(cells[cells["kind"] == CONDITION], AT).index
    )
    cells["ratio"], cells["slow"] = cells["seconds"] / chosen["seconds"], far
    # among routes with a condition the leaders come first, in the order of the catalogue
    places = {"place": cells["kind"].map(KINDS.index), "later": ~cells["leads"]}
    places["then"] = cells["seconds"].where(places["later"], 0.0)
    cells = cells.assign(**places).sort_values(
        [*AT, "place", "later", "then", "order"], kind="stable"
    )
    cells = cells.join(_parts(cells).rename("part"), on=AT)
    return cells.drop(columns=["candidate", "wanted", "taken", "place", "later", "then"])


def _taken(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the route to take (``taken``) for each need and size: one per run of neighbouring sizes, with as few runs
    as possible. It is good at all sizes of its run: no route is decided to be faster, and it takes at most RECOMMENDED_EXCESS
    longer than the fastest. A route without a quiet process is judged by its upper bound."""
    good = select_fastest(cells, AT)
    ratio = good["seconds"] / good.groupby(AT)["seconds"].transform("min")
    good = good.assign(behind=np.log(ratio))[ratio <= 1 + RECOMMENDED_EXCESS]
    routes = good.groupby(AT)["route"].agg(set)
    run = _runs(routes.index.get_level_values("number"), routes)
    often = good.groupby(["number", "route"])["nbytes"].transform("size")
    good = good.assign(often=often, sizes=1).join(run.rename("run"), on=AT)
    added = {"sizes": "sum", "often": "first", "behind": "sum", "order": "first"}
    each = good.groupby(["run", "route"], as_index=False).agg(added)
    # a route common to all sizes of a run has the largest count of sizes
    each = each.sort_values([*added], ascending=[False, False, True, True]).drop_duplicates("run")
    return (
        good[[*AT, "run"]]
        .drop_duplicates()
        .merge(each.rename(columns={"route": "taken"})[["run", "taken"]])
    )


def _parts(ranked: pd.DataFrame) -> "pd.Series[int]":
    """``part`` of each need and size."""
    best = ranked[ranked["kind"] == BEST].set_index(AT)["route"]
    led = (
        ranked[(ranked["kind"] == CONDITION) & ranked["leads"]]
        .groupby(AT)["route"]
        .agg(set)
        .to_dict()
    )
    leaders = pd.Series([led.get(at, set[str]()) for at in best.index], best.index, dtype=object)
    return _runs(zip(best.index.get_level_values("number"), best), leaders)


def _runs(keys: Iterable[Any], sets: "pd.Series[Any]") -> "pd.Series[int]":
    """Return the number of the run that each item belongs to. A run consists of neighbours with one key, whose sets all
    share an element or are all empty."""
    begins, before, common = list[bool](), None, set[str]()
    for key, own in zip(keys, sets):
        begins.append(key != before or not (common & own or common == own == set()))
        before, common = key, own if begins[-1] else common & own
    return pd.Series(begins, sets.index, dtype=int).cumsum()
