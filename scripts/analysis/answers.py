"""The routes for a case: an array of a given size with its source and target.

``answer`` looks up its routes among those that were measured on a machine. See estimates.py for sizes that were not
measured.
"""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from cli import UserError, size

from benchmarks import contracts
from benchmarks.contracts import ALIAS, ALL_THREADS, CONTIGUOUS, COPY, ONE_THREAD

from .cells import itemsize
from .costs import MachineAnswers, add_totals
from .estimates import (
    ANY_SIZE,
    EXTRAPOLATED,
    FARTHEST,
    MEASURED,
    STEADY_SESSION,
    UNSTEADY_SESSION,
    estimate,
)
from .findings import Gain
from .needs import DIRECTION_OF_ENDS, NUMPY, ZERO_D, Case
from .ranking import BEST, GOOD, SLOWER, TIE, UNDECIDED
from .ties import RECOMMENDED_EXCESS

FLOATS = ("float", "bfloat", "complex")


@dataclass(frozen=True)
class Answer:
    """routes: rows of ``estimate``, ``add_totals``. First the routes to take, in order, at least one; then those that would
    be faster on a condition, or without a hazard.

    unmeasured   suitable routes without a measured size that can be used for the case
    instead      the other dtype and "no grad" whose times are used; "" if the times are the case's own
    """

    case: Case
    machine: MachineAnswers
    routes: pd.DataFrame
    unmeasured: tuple[str, ...] = ()
    instead: str = ""

    @property
    def ranked(self) -> list[Any]:
        return self.select(*GOOD)

    def select(self, *kinds: str) -> list[Any]:
        return list(self.routes[self.routes["kind"].isin(kinds)].itertuples())


def answer(case: Case, machine: MachineAnswers) -> Answer:
    """Return the routes for a case. UserError if the case is impossible, or no measured time can be used for it.

    A case without times of its own may use those of the usual dtype, or of a source that requires no grad: bits are
    bits, and detaching takes no time. Those of another layout are not used, as the work may differ.
    """
    rows, grads = _matching_rows(case, machine), dict.fromkeys([case.grad, False])
    dtypes = dict.fromkeys(
        [case.dtype, case.dtype if case.goal else rows["dtype"].value_counts().index[0]]
    )
    rows = rows[rows["dtype"].isin(dtypes) & rows["grad"].isin(grads)]
    rows = rows[
        rows["memory"] == (case.memory or (ALIAS if (rows["memory"] == ALIAS).any() else COPY))
    ]
    by_source = dict(list(rows.groupby(["dtype", "grad", "layout"])))
    sources = [
        by_source[each]
        for each in itertools.product(dtypes, grads, case.layouts)
        if each in by_source
    ]
    found = [made for own in sources if (made := _answer_from(own, case, machine))]
    if not found:
        raise UserError(_no_answer_reason(case, machine, rows))
    return min(
        found, key=lambda made: made.ranked[0].how == EXTRAPOLATED
    )  # the case's own first, unless extrapolated


def _answer_from(rows: pd.DataFrame, case: Case, machine: MachineAnswers) -> Answer | None:
    """Answer from the rows of one need on any host memory; None if none of its routes may be taken."""
    need = rows["need"].iloc[0]

    def fits(contract: contracts.Route) -> bool:
        takes = case.dtype not in contract.refuses and (contract.takes_grad or not case.grad)
        return takes and contract.memory_for(case.dtype, case.layout) == need.memory

    rows = rows[rows["contract"].map(fits).astype(bool)]
    # rows of the case's own size come first, in their ranking
    rows = rows.sort_values("nbytes", key=lambda sizes: sizes != case.total, kind="stable")
    alias = need.memory == ALIAS and not need.crosses
    limit = ANY_SIZE if need.crosses or alias else machine.limit
    session = STEADY_SESSION if machine.is_steady else UNSTEADY_SESSION
    # host -> sizes at which times jump, of the measured dtype and of the case's: torch spreads elements, not bytes
    hosts = {host: replace(need, host=host) for host in rows["host"].unique()}
    leaps = {
        host: (machine.jump_sizes(own), machine.jump_sizes(replace(own, dtype=case.dtype)))
        for host, own in hosts.items()
    }
    said = {
        (host, route): estimate(curve, case.total, *leaps[host], limit, alias, session)
        for (host, route), curve in rows.groupby(["host", "route"], sort=False)
    }
    found = pd.DataFrame([row for row in said.values() if row], columns=[*rows, "sizes"])
    found = add_totals(found, case.count, pinned=case.host == contracts.PINNED)
    good = _in_order(found[found["kind"].isin(GOOD)])
    if good.empty:
        return None
    faster = found[~found["kind"].isin(GOOD) & (found["total"] < good["total"].iloc[0])]
    unmeasured = dict.fromkeys(route for (_, route), row in said.items() if row is None)
    instead = [need.dtype] * (need.dtype != case.dtype) + ["no grad"] * (need.grad != case.grad)
    return Answer(case, machine, pd.concat([good, faster]), (*unmeasured,), " ".join(instead))


def _in_order(good: pd.DataFrame) -> pd.DataFrame:
    """Keep the ranking of a measured size; sort the routes of any other size by time. Then the route that is best at
    the measured sizes comes first, if it is as good; routes that tie there also tie here, up to the first slower
    one."""
    ranked = good["kind"].head(1).eq(BEST).all() and good["how"].eq(MEASURED).all()
    if ranked and len(good[["host", "paid", "once"]].drop_duplicates()) <= 1:
        return good
    free = good["paid"].eq("")
    named = (
        good["kind"].eq(BEST)
        & free
        & (good["total"] <= (1 + RECOMMENDED_EXCESS) * good["total"].min())
    )
    first = ~named if named.sum() == 1 else True
    good = good.assign(
        first=first, unknown=good["once"].isna(), alike=good["kind"].ne(SLOWER) & free
    )
    good = good.sort_values(["first", "unknown", "total"], kind="stable")
    kinds = np.where(
        good["kind"] == UNDECIDED, UNDECIDED, np.where(good.pop("alike").cummin(), TIE, SLOWER)
    )
    return good.drop(columns=["first", "unknown"]).assign(kind=[BEST, *kinds[1:]])


def effects_on(best: Any, case: Case, machine: MachineAnswers) -> list[Gain]:
    """Return the effects on the time of a route that moves bytes: settings measured on the case's side of all sizes at
    which times jump; and neighbouring arrays, at the nearest measured size around the case's.

    Only a contiguous source is copied in one piece.
    """
    found = [
        each for each in machine.effects if each.applies_to(best.contract) and best.memory != ALIAS
    ]
    leaps = machine.jump_sizes(best.need)
    settings = [
        e
        for e in found
        if e.setting and all((at <= e.slow.nbytes) == (at <= case.total) for at in leaps)
    ]
    near = [e for e in found if not e.setting and case.layout == CONTIGUOUS]
    sizes = [each.slow.nbytes for each in near]
    if near and min(sizes) <= case.nbytes <= max(sizes):
        settings.append(min(near, key=lambda each: abs(math.log(each.slow.nbytes / case.nbytes))))
    return settings


def _matching_rows(case: Case, machine: MachineAnswers) -> pd.DataFrame:
    """Select the rows that match a case in every property that cannot be substituted; UserError if there are none, or
    the case is impossible."""
    if case.source == case.target:
        raise UserError(f"--from {case.source} --to {case.target}: name two different ones")
    if case.grad and case.source == NUMPY:
        raise UserError("--grad: arrays require no grad, leave it out")
    if (case.source, case.dtype) == (NUMPY, "bfloat16"):
        raise UserError(
            "--dtype bfloat16: NumPy has no such dtype; for such a tensor use --to-dtype bfloat16"
        )
    if case.goal == case.dtype:
        raise UserError(f"--to-dtype {case.goal}: the source has it, leave it out")
    direction, array = DIRECTION_OF_ENDS[case.source, case.target]
    rows = machine.rows[(machine.rows["direction"] == direction) & (machine.rows["array"] == array)]
    if rows.empty:
        how = "make bench-here PYTHON=python3 PROFILE=transfers"
        device = f"; with an accelerator, {how} measures it" if case.device else ""
        raise UserError(
            f"--from {case.source} --to {case.target}: not measured on {machine.name}{device}"
        )
    wanted = {
        "batch": bool(case.batch),
        "enqueue": case.enqueue,
        "layout": case.layout,
        "goal": case.goal,
    }
    wanted |= {"threads": _threads_to_use(case, machine, rows)}
    wanted |= {
        name: value
        for name, value in (("host", case.host), ("dtype", case.goal and case.dtype))
        if value
    }
    for name, value in wanted.items():
        fits = rows[name].isin(case.layouts if name == "layout" else [value])
        option = {"goal": "to-dtype", "host": "source"}.get(name, name)
        if not fits.any():
            said = (
                f"--{option}"
                if value is True
                else f"--{option} {value}"
                if value
                else f"no --{option}"
            )
            there = [] if isinstance(value, bool) else sorted({*rows[name]} - {""})
            others = ", ".join(
                str(machine.threads) if each == ALL_THREADS else each for each in there
            )
            goal = f" to {case.goal}" if name == "dtype" else ""
            told = f"there are {others}" if others else "leave it out"
            raise UserError(f"{said}: not measured {direction}{goal}; {told}")
        rows = rows[fits]
    dtypes, each = machine.dtypes.get(direction, {}), itemsize(case.dtype)
    lacking = dtypes.get(case.dtype, f"not timed {direction}; there are {', '.join(dtypes)}")
    if lacking and not case.goal:
        raise UserError(f"--dtype {case.dtype}: {lacking}")
    if case.nbytes % each or (case.layout == ZERO_D and case.nbytes != each):
        wanted_size = each if case.layout == ZERO_D else f"a multiple of {each}"
        raise UserError(
            f"--nbytes {case.nbytes}: a {case.layout} source of {case.dtype} has {wanted_size}"
        )
    if case.grad and not case.dtype.startswith(FLOATS):
        raise UserError(
            f"--grad: floating point and complex tensors require grad, {case.dtype} does not"
        )
    return rows


def _threads_to_use(case: Case, machine: MachineAnswers, rows: pd.DataFrame) -> str:
    """Return the number of threads whose rows are used for a case. It is one if the case's size was not measured and is
    too small for torch to spread; then sizes on either side can be used."""
    threads = machine.torch_threads(case)
    there = rows[rows["threads"] == threads]
    measured = ((there["nbytes"] == case.total) & (there["dtype"] == case.dtype)).any()
    spread = case.total >= contracts.PARALLEL * itemsize(case.dtype)
    return threads if spread or not threads or there.empty or measured else ONE_THREAD


def _no_answer_reason(case: Case, machine: MachineAnswers, rows: pd.DataFrame) -> str:
    """Why no route can be recommended."""
    direction = DIRECTION_OF_ENDS[case.source, case.target][0]
    if any(case.dtype in contract.refuses for contract in rows["contract"]):
        casts = machine.rows[
            (machine.rows["direction"] == direction) & (machine.rows["dtype"] == case.dtype)
        ]
        goals = (
            " or ".join(f"--to-dtype {goal}" for goal in sorted({*casts["goal"]} - {""}))
            or "--to-dtype"
        )
        return f"--dtype {case.dtype}: every route {direction} refuses it; add {goals}"
    if case.grad and not any(contract.takes_grad for contract in rows["contract"]):
        return f"--grad: every such route {direction} refuses it; leave it out, and detach first"
    wanted = {
        ALIAS: " that shares memory",
        COPY: " that copies",
        contracts.INTO: " into a buffer",
    }.get(case.memory, "")
    grad = " and takes a tensor that requires grad" if case.grad else ""
    what = f"a batch of {case.dtype}" if case.batch else f"{case.layout} {case.dtype}"
    what += f" to {case.goal}" if case.goal else ""
    sizes = sorted({*rows["nbytes"][rows["kind"].isin(GOOD)]})
    far = f"answers reach {FARTHEST:.0f} times beyond the sizes measured: {', '.join(map(size, sizes))}"
    near = f" near {size(case.total)}; {far}" if sizes else ""
    return f"no route {direction}{wanted}{grad} was measured for {what}{near}"
