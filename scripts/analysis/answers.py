"""The routes for a case: an array of a given size with its source and target.

``answer`` looks them up among the routes that were measured on a machine. See estimates.py for
sizes that were not measured, and for impossible cases.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from pandas import DataFrame, Series, concat
from store.frames import rows_of

from benchmarks import contracts
from benchmarks.contracts import ALIAS, ALL_THREADS, CONTIGUOUS, COPY, ONE_THREAD

from .cells import itemsize
from .costs import Candidate, MachineAnswers, add_totals
from .estimates import (
    ANY_SIZE,
    EXTRAPOLATED,
    INTERPOLATED,
    MEASURED,
    STEADY_SESSION,
    UNSTEADY_SESSION,
    NoAnswer,
    NotMeasured,
    check_request,
    check_source,
    estimate,
    reaches,
)
from .findings import Gain
from .needs import Case, Need
from .ranking import BEST, GOOD, SLOWER, TIE, UNDECIDED, recommendable, weakest
from .results import where

if TYPE_CHECKING:
    from .measured import Measured

TIMES = ["seconds", "low", "high"]
NUMBERS = ("arrays", "enqueue")  # fields of rows that are no texts


@dataclass(frozen=True)
class Answer:
    """The routes for a case on a machine.

    routes      rows of ``estimate`` with ``add_totals``. First the routes to take, in order, at
                least one; then those that would be faster on a condition, or without a hazard
    unmeasured  suitable routes without a measured size that can be used for the case
    instead     the other dtype and "no grad" whose times are used; "" if the times are the case's
    measured    what was measured for this case alone; None if it is from a machine's results
    """

    case: Case
    machine: MachineAnswers
    routes: DataFrame
    unmeasured: tuple[str, ...] = ()
    instead: str = ""
    measured: "Measured | None" = None

    @functools.cached_property
    def ranked(self) -> list[Candidate]:
        """The routes to take."""
        return self.select(*GOOD)

    def select(self, *kinds: str) -> list[Candidate]:
        """Return the routes of these kinds."""
        return rows_of(where(self.routes, kind=kinds))


def answer(case: Case, machine: MachineAnswers) -> Answer:
    """Return the routes for a case. NoAnswer if the case is impossible, or no measured time can be
    used for it.

    A case without times of its own may use those of the usual dtype, or of a source that requires
    no grad: bits are bits, and detaching takes no time. Those of another layout are not used, as
    the work may differ.
    """
    rows = _matching_rows(case, machine)
    usual_dtype = case.dtype if case.goal else rows["dtype"].value_counts().index[0]
    dtypes = [case.dtype, usual_dtype]
    grads = [case.grad, False]
    rows = where(rows, dtype=dtypes, grad=grads)
    default_memory = ALIAS if (rows["memory"] == ALIAS).any() else COPY
    rows = where(rows, memory=case.memory or default_memory)
    rows_by_source = dict([*rows.groupby(["dtype", "grad", "layout"])])
    sources = dict.fromkeys(itertools.product(dtypes, grads, case.layouts))
    answers = []
    for source in sources:
        if source in rows_by_source:
            of_source = _answer_from(rows_by_source[source], case, machine)
            answers += [of_source] if of_source else []
    if not answers:
        raise _no_answer(case, machine, rows)
    # the case's own source comes first, unless its time is extrapolated
    return min(answers, key=lambda of_source: of_source.ranked[0].how == EXTRAPOLATED)


# --- rows that match a case -----------------------------------------------------------------------


def _matching_rows(case: Case, machine: MachineAnswers) -> DataFrame:
    """Select the rows that match a case in every property that cannot be substituted; NoAnswer if
    there are none, or the case is impossible."""
    check_request(case)
    rows = where(machine.rows, direction=case.direction, array=case.has_host_array)
    if rows.empty:
        raise NotMeasured("direction", case, machine=machine.name)
    for field, values in _requirements(case, machine, rows).items():
        matches = rows[field].isin(values)
        if not matches.any():
            measured = sorted({*rows[field]} - {""}) if field not in NUMBERS else []
            alternatives = [f"{machine.threads}" if it == ALL_THREADS else it for it in measured]
            refused = NoAnswer if field in ("enqueue", "host") else NotMeasured
            raise refused("value", case, field=field, value=values[-1], alternatives=alternatives)
        rows = rows[matches]
    dtypes = machine.dtypes.get(case.direction, {})
    if not case.goal and case.dtype not in dtypes:
        raise NotMeasured("dtype_without_times", case, dtypes=[*dtypes])
    if not case.goal and dtypes[case.dtype]:
        raise NotMeasured("dtype_without_figure", case, because=dtypes[case.dtype])
    check_source(case)
    return rows


def _requirements(
    case: Case, machine: MachineAnswers, rows: DataFrame
) -> dict[str, Sequence[str | int]]:
    """Return the fields that cannot be substituted -> values that match the case."""
    requirements: dict[str, Sequence[str | int]] = {
        "arrays": _counts_to_use(case, rows),
        "enqueue": [case.enqueue],
        "layout": case.layouts,
        "goal": [case.goal],
        "threads": [_threads_to_use(case, machine, rows)],
    }
    if case.host:
        requirements["host"] = [case.host]
    if case.goal:
        requirements["dtype"] = [case.dtype]
    return requirements


def _counts_to_use(case: Case, rows: DataFrame) -> list[int]:
    """Return the measured numbers of arrays whose times are used: the case's own, or the next ones
    on either side. NotMeasured if it is beyond all, and the next is not near."""
    counts = sorted({*rows["arrays"]} - {0})
    if not case.batch or not counts or case.batch in counts:
        return [case.batch]
    fewer = [count for count in counts if count < case.batch][-1:]
    more = [count for count in counts if count > case.batch][:1]
    neighbours = fewer + more
    if len(neighbours) == 1 and not reaches(case.batch, neighbours[0]):
        raise NotMeasured("count", case, counts=counts)
    return neighbours


def _threads_to_use(case: Case, machine: MachineAnswers, rows: DataFrame) -> str:
    """Return the number of threads whose rows are used for a case. It is one if the case's size was
    not measured and is too small for torch to spread; then sizes on either side can be used."""
    threads = machine.torch_threads(case)
    rows = rows[rows["threads"] == threads]
    is_spread = case.total >= contracts.PARALLEL * itemsize(case.dtype)
    is_measured = ((rows["nbytes"] == case.total) & (rows["dtype"] == case.dtype)).any()
    return threads if is_spread or not threads or rows.empty or is_measured else ONE_THREAD


def _no_answer(case: Case, machine: MachineAnswers, rows: DataFrame) -> NoAnswer:
    """Return why no route can be recommended, though these rows match the case."""
    if any(case.dtype in contract.refuses for contract in rows["contract"]):
        goals = where(machine.rows, direction=case.direction, dtype=case.dtype)["goal"]
        return NoAnswer("refused_dtype", case, goals=sorted({*goals} - {""}))
    if case.grad and not any(contract.takes_grad for contract in rows["contract"]):
        return NoAnswer("refused_grad", case)
    good = where(rows, kind=GOOD)
    sizes = sorted({*good["nbytes"]})
    close_sizes = [nbytes for nbytes in sizes if reaches(case.total, nbytes)]
    jumps: list[int] = []
    if close_sizes:
        need = replace(good["need"].iloc[0], dtype=case.dtype)
        # between the case and each of the sizes that were measured
        jumps = [
            jump
            for jump in machine.jump_sizes(need)
            if all((case.total < jump) != (nbytes < jump) for nbytes in close_sizes)
        ]
    return NotMeasured("route", case, sizes=sizes, jump=min(jumps, default=0))


# --- routes of one source -------------------------------------------------------------------------


def _answer_from(rows: DataFrame, case: Case, machine: MachineAnswers) -> Answer | None:
    """Answer from the rows of one source on any host memory; None if none of its routes may be
    taken."""
    rows = rows[[_is_suitable(row, case) for row in rows_of(rows)]]
    if rows.empty:
        return None
    # rows of the case's own size come first, in their ranking
    rows = rows.sort_values("nbytes", key=lambda sizes: sizes != case.total, kind="stable")
    need = rows["need"].iloc[0]
    by_route = _estimates(rows, need, case, machine)
    routes = DataFrame(filter(None, by_route.values()), columns=[*rows, "sizes"])
    if case.batch:
        routes = _for_count(routes, rows, case.batch)
    routes = add_totals(routes, case.count, pinned=case.host == contracts.PINNED)
    is_good = routes["kind"].isin(GOOD)
    if not is_good.any():
        return None
    good = _in_order(routes[is_good])
    faster = routes[~is_good & (routes["total"] < good["total"].iloc[0])]
    answered = {*routes["route"]}
    unmeasured = [route for _, route, _ in by_route if route not in answered]
    return Answer(
        case,
        machine,
        concat([good, faster]),
        tuple(dict.fromkeys(unmeasured)),
        _substitutes(need, case),
    )


def _for_count(routes: DataFrame, rows: DataFrame, count: int) -> DataFrame:
    """Give the times of lists of ``count`` arrays, estimated from lists of other numbers that have
    as many bytes. They are ranges.

    rows  all measured sizes of the routes
    """
    by_count = {arrays: table.set_index("route") for arrays, table in routes.groupby("arrays")}
    if not by_count or count in by_count:
        return routes
    if len(by_count) == 2:
        estimated = _between_counts(by_count, count)
    else:
        [(arrays, table)] = by_count.items()
        if not reaches(count, arrays):
            return routes[:0]
        shortest = where(rows, arrays=arrays).groupby("route")["seconds"].min()
        estimated = _beyond_count(table, shortest, count / arrays)
    counts = [tuple(sorted(by_count))] * len(estimated)
    estimated = estimated.assign(rate=math.nan, share=math.nan, is_range=True, counts=counts)
    return estimated.reset_index()[[*routes, "counts"]]


def _between_counts(by_count: Mapping[int, DataFrame], count: int) -> DataFrame:
    """Interpolate between lists of two numbers of arrays. As the bytes are the same, each array
    adds the same time; a power of the number, the other line, holds where the caches differ."""
    (fewer, few), (more, many) = sorted(by_count.items())
    shared = few.index.intersection(many.index)
    small = few.loc[shared, TIMES]
    large = many.loc[shared, TIMES]
    straight = small + (large - small) * (count - fewer) / (more - fewer)
    power = small * (large / small) ** (math.log(count / fewer) / math.log(more / fewer))
    kinds = zip(few.loc[shared, "kind"], many.loc[shared, "kind"])
    return many.loc[shared].assign(
        seconds=straight["seconds"],
        low=np.minimum(straight["low"], power["low"]),
        high=np.maximum(straight["high"], power["high"]),
        arrays=count,
        kind=[*map(weakest, kinds)],
        quiet=few.loc[shared, "quiet"] & many.loc[shared, "quiet"],
        how=INTERPOLATED,
    )


def _beyond_count(table: DataFrame, shortest: "Series[float]", ratio: float) -> DataFrame:
    """Extrapolate to ``ratio`` times as many arrays. The shortest call of a route is the share of
    its arrays; the range reaches from there to the time that was measured."""
    further = (ratio - 1) * shortest.reindex(table.index)
    estimated = table[TIMES].add(further, axis=0)
    return table.assign(
        seconds=estimated["seconds"],
        low=table["low"].clip(upper=estimated["low"]),
        high=table["high"].clip(lower=estimated["high"]),
    )


def _substitutes(need: Need, case: Case) -> str:
    """Return ``Answer.instead`` for the need whose times are used."""
    substitutes = [need.dtype] if need.dtype != case.dtype else []
    substitutes += ["no grad"] if need.grad != case.grad else []
    return " ".join(substitutes)


def _is_suitable(row: Candidate, case: Case) -> bool:
    """Whether the route of a row takes the case's source and gives the wanted memory."""
    contract = row.contract
    takes_source = case.dtype not in contract.refuses and (contract.takes_grad or not case.grad)
    return takes_source and contract.memory_for(case.dtype, case.layout) == row.memory


def _estimates(
    rows: DataFrame, need: Need, case: Case, machine: MachineAnswers
) -> dict[tuple[str, str, int], dict[str, object] | None]:
    """Return (host memory, route, number of arrays) -> the estimated row for the case's bytes, see
    ``estimate``."""
    is_alias = need.memory == ALIAS and not need.crosses
    limit = ANY_SIZE if is_alias or need.crosses else machine.limit
    session = STEADY_SESSION if machine.is_steady else UNSTEADY_SESSION
    by_route = {}
    for (host, route, arrays), curve in rows.groupby(["host", "route", "arrays"], sort=False):
        # times jump at other sizes for the case's dtype: torch spreads elements, not bytes
        need_on_host = replace(need, host=host, arrays=arrays)
        regime = machine.regime(replace(need_on_host, dtype=case.dtype), case.total)
        jumps = machine.jump_sizes(need_on_host)
        by_route[host, route, arrays] = estimate(
            curve, case.total, jumps, regime, limit, is_alias, session
        )
    return by_route


def _in_order(good: DataFrame) -> DataFrame:
    """Keep the ranking of a measured size; sort the routes of any other size by time. Then the
    route that is best at the measured sizes comes first, if it may be recommended; routes that tie
    there also tie here, up to the first slower one."""
    is_ranked = good["kind"].iloc[0] == BEST and (good["how"] == MEASURED).all()
    if is_ranked and len(good[["host", "paid", "once"]].drop_duplicates()) == 1:
        return good
    is_free = good["paid"] == ""
    is_best = (good["kind"] == BEST) & is_free
    is_best &= recommendable(good["total"], good["total"].min(), good["excess_limit"])
    is_best &= is_best.sum() == 1
    good = good.assign(
        is_later=~is_best,
        has_unknown_cost=good["once"].isna(),
        may_tie=is_free & (good["kind"] != SLOWER),
    )
    good = good.sort_values(["is_later", "has_unknown_cost", "total"], kind="stable")
    kinds = np.where(good["may_tie"].cummin(), TIE, SLOWER)
    kinds = np.where(good["kind"] == UNDECIDED, UNDECIDED, kinds)
    good = good.drop(columns=["is_later", "has_unknown_cost", "may_tie"])
    return good.assign(kind=[BEST, *kinds[1:]])


# --- effects on a route ---------------------------------------------------------------------------


def effects_on(best: Candidate, case: Case, machine: MachineAnswers) -> list[Gain]:
    """Return the effects on the time of a route that moves bytes: settings measured on the case's
    side of all sizes at which times jump; and neighbouring arrays, at the nearest measured size
    around the case's.

    Only a contiguous source is copied in one piece.
    """
    if best.memory == ALIAS:
        return []
    gains = [gain for gain in machine.effects if gain.applies_to(best.contract)]
    regime = machine.regime(best.need, case.total)
    effects = [
        gain
        for gain in gains
        if gain.setting and machine.regime(best.need, gain.slow.nbytes) == regime
    ]
    neighbours = [gain for gain in gains if not gain.setting and case.layout == CONTIGUOUS]
    sizes = [gain.slow.nbytes for gain in neighbours]
    if neighbours and min(sizes) <= case.nbytes <= max(sizes):
        distances = [abs(math.log(nbytes / case.nbytes)) for nbytes in sizes]
        effects.append(neighbours[distances.index(min(distances))])
    return effects
