"""The stop rule of a race: which results no further process can change an answer by.

A route of a need at a size stops where it is significantly slower than the best one there, or
equivalent to it. Any other tie goes on. The tests are those of the ranking: they use its variances,
moderated over results, and its error rates. The best route stops once all others there have. No
result stops with fewer than two quiet processes, so noise stops none.
"""

from collections.abc import Collection

import numpy as np
from pandas import Categorical, DataFrame, Series
from store.schema import Reasons

from benchmarks.contracts import Role

from .needs import choices
from .ranking import (
    BEST,
    GOOD,
    SIZE_OF_NEED,
    SLOWER,
    TIE,
    equivalent,
)
from .statistics import Names

# Why a result stops; of one that several needs have, the first that applies counts
REASONS = DECIDED, TIED, BEATEN, NO_ANSWER = (
    "best, and all other routes are decided",
    "as good as the best route",
    "slower than the best route",
    "no answer rests on it",
)
MIN_QUIET_PROCESSES = 2  # of a result that stops
# Roles of results that are compared with each other by tests of their own, see findings.py
OTHER_TESTS = (Role.PLACEMENT, Role.SETTINGS)


def stop_reasons(cells: DataFrame, kept: Collection[str] = ()) -> Reasons:
    """Return why results need no further process -> their cells.

    cells  as ``cells_of`` returns them
    kept   cells that never stop
    """
    ranked = choices(cells)
    reasons = Series(_reasons_at_size(ranked), ranked.index)
    needs = ranked.set_index(SIZE_OF_NEED).index
    has_rivals = needs.isin(needs[reasons == ""])
    reasons = reasons.mask((reasons == DECIDED) & has_rivals, "")
    in_order = Series(Categorical(reasons, ["", *REASONS], ordered=True), ranked["cell"])
    reason_of_cell = in_order.groupby(level=0).min()
    stops = cells["cell"].map(reason_of_cell.astype(object)).fillna(NO_ANSWER)
    goes_on = cells["role"].isin(OTHER_TESTS) | cells["device"] | cells["cell"].isin([*kept])
    goes_on |= cells["processes"] < MIN_QUIET_PROCESSES
    by_reason = cells["cell"].groupby(stops.mask(goes_on, ""))
    return {str(reason): tuple(stopped) for reason, stopped in by_reason if reason}


def _reasons_at_size(ranked: DataFrame) -> Names:
    """Return why each ranked route stops, at its need and size alone; "" if it goes on."""
    best = ranked[ranked["kind"] == BEST].drop_duplicates(SIZE_OF_NEED)
    references = ranked[SIZE_OF_NEED].merge(best, on=SIZE_OF_NEED).set_axis(ranked.index)
    kind = ranked["kind"]
    conditions = {
        DECIDED: kind == BEST,
        TIED: (kind == TIE) & equivalent(ranked, references),
        BEATEN: kind == SLOWER,
        NO_ANSWER: ~kind.isin(GOOD),
    }
    return np.select([*conditions.values()], [*conditions], "")
