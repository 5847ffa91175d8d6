"""Users' questions and their answers, as far as the run has figures or contracts for them.

A function per question selects its cells; templates/prose/questions.md.jinja holds questions and
sentences. A question without an answer is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass

from analysis.cells import Row, at_usual_size
from analysis.ranking import BEST, rank
from analysis.ties import differ_significantly
from analysis.transfers import Transfers
from pandas import DataFrame, concat

from benchmarks.contracts import (
    ALIAS,
    COMPLETION,
    DEVICE_TO_HOST,
    ENQUEUE,
    INTO,
    NONE,
    PAGEABLE,
    PIN,
    PINNED,
    REGISTERED,
    TORCH_TO_NUMPY,
    Role,
    Route,
)

from . import show, transfers
from .advice import recommendations
from .machine_data import MachineData
from .tables import Table, by_dtype, if_significant

DETACH_ORDERS = ("t.detach().cpu().numpy()", "t.cpu().detach().numpy()")
TO_DEVICE = "t.to(device)"
TO_DEVICE_EARLY = "t.to(device, non_blocking=True)"
PIN_TO_DEVICE = "t.pin_memory().to(device, non_blocking=True)"
TO_HOST = "t.cpu()"
INTO_HOST = "h.copy_(t)"
INTO_HOST_EARLY = "h.copy_(t, non_blocking=True)"
REGISTER = "register"
SIGNIFICANT, TIE, NOISY = "significant", "tie", "noisy"  # verdicts on two cells


@dataclass(frozen=True)
class Copy:
    """A transfer with its cost in words, and the cell that it is compared with, if any."""

    cell: Row
    cost: str
    reference: Row | None = None
    verdict: str = ""  # on the two: SIGNIFICANT, TIE or NOISY


def questions_table(data: MachineData) -> Table:
    """The questions that the run answers, each with the sentences of its answer."""
    text = show.render(
        "questions",
        sharing=_sharing_routes(data),
        lists=_list_routes(data),
        to_host=_copies_to_host(data.transfers),
        grad=_grad_routes(data),
        orders=_detach_orders(data),
        bfloat16=_bfloat16_routes(data),
        pinned=_pinned_sources(data.transfers),
        non_blocking=_non_blocking_copies(data.transfers),
        early_read=_early_read(data.transfers),
        pinning=_pinning(data.transfers),
        first_use=_first_use(data.transfers),
        numpy2=_numpy2(data),
        placement=_placement(data),
    )
    parts = (show.paragraphs(question) for question in text.split("\n# ")[1:])
    answers = tuple((question, answer) for question, *answer in parts if answer)
    return Table("What users ask", ("question", "answer"), answers, numeric=False)


def _with_contract(rows: DataFrame, test: Callable[[Route], bool]) -> DataFrame:
    """The rows whose contract passes a test."""
    return rows[rows["contract"].map(test).astype(bool)]


def _verdict(cell: Row, reference: Row) -> str:
    if differ_significantly(cell, reference):
        return SIGNIFICANT
    return TIE if cell.quiet and reference.quiet else NOISY


def _copy(moved: Transfers, cell: Row | None, reference: Row | None = None) -> Copy | None:
    if cell is None:
        return None
    verdict = _verdict(cell, reference) if reference else ""
    return Copy(cell, transfers.cost_words(cell, moved), reference, verdict)


def _sharing_routes(data: MachineData) -> list[tuple[Row, str]]:
    """The routes to take that share memory, each with the memory as measured, "" where it was
    not."""
    rows = concat([data.choices[:0], *data.one_thread_answers])
    rows = rows[(rows["kind"] == BEST) & (rows["memory"] == ALIAS)]
    rows = rows[rows["need"].map(lambda need: need.plain).astype(bool)]
    largest = rows.drop_duplicates(["need", "part"], keep="last")
    return [(cell, by_dtype(data.semantics.memory(cell.contract))) for cell in largest.itertuples()]


def _list_routes(data: MachineData) -> dict[str, object]:
    """Of lists of arrays, the route that converts each element, and the routes to take at its
    size."""
    rows = concat([data.choices[:0], *data.one_thread_answers])
    rows = rows[rows["batch"].astype(bool)]
    by_element = rows["contract"].map(lambda route: route.per_element).astype(bool)
    slow = next(rows[by_element].tail(1).itertuples(), None)
    if slow is None:
        return {"slow": None, "best": []}
    best = rows[(rows["kind"] == BEST) & ~by_element & (rows["nbytes"] == slow.nbytes)]
    return {
        "slow": slow,
        "best": [(cell, differ_significantly(cell, slow)) for cell in best.itertuples()],
    }


def _copies_to_host(moved: Transfers) -> dict[str, object]:
    """A copy into fresh pageable memory, and copies into tensors that exist compared with it."""
    fresh = moved.find(COMPLETION, TO_HOST, PAGEABLE)
    if fresh is None:
        return {"fresh": None, "existing": []}
    routes = ((INTO_HOST, PAGEABLE), (INTO_HOST, PINNED), (INTO_HOST_EARLY, PINNED))
    cells = (moved.find(COMPLETION, route, host, fresh.nbytes) for route, host in routes)
    return {
        "fresh": _copy(moved, fresh),
        "existing": [_copy(moved, cell, fresh) for cell in cells if cell],
    }


def _grad_routes(data: MachineData) -> dict[str, object]:
    """What takes a tensor that requires grad: on the host, and from a device into a fresh array."""
    plain = data.results.contracts.get((TORCH_TO_NUMPY, "t.numpy()"), NONE)
    answers = [
        rows
        for rows in data.one_thread_answers
        if rows["need"].iloc[0].grad and rows["safe"].iloc[0]
    ]
    arrays = data.transfers.select(COMPLETION, DEVICE_TO_HOST, PAGEABLE)
    arrays = arrays[arrays["safe"]]
    fresh = _with_contract(arrays, lambda route: route.array and route.memory != INTO)
    graded = _with_contract(fresh, lambda route: route.takes_grad)
    best: dict[str, Copy | None] = {}
    for cells in (fresh, graded):
        if len(cells):
            cell = transfers.best_cell(rank(at_usual_size(cells)))
            best.setdefault(cell.route, _copy(data.transfers, cell))
    return {
        "refusal": "" if plain.takes_grad else plain.inputs.get("requires grad", ""),
        "on_host": [choice.sentence for rows in answers for choice in recommendations(rows)],
        "from_device": [*best.values()],
    }


def _detach_orders(data: MachineData) -> list[tuple[str, Row, Row, str]]:
    """Where the tensor is, the faster order of two calls, the other one, and the verdict. On a tie,
    the catalogue's order."""
    sources = {
        "CPU": data.conversions,
        "device": data.transfers.select(COMPLETION, DEVICE_TO_HOST),
    }
    orders = []
    for source, cells in sources.items():
        both = [*at_usual_size(cells[cells["route"].isin(DETACH_ORDERS)]).itertuples()]
        if len(both) == 2:
            verdict = _verdict(*both)
            if verdict == SIGNIFICANT:
                both.sort(key=lambda cell: cell.seconds)
            else:
                both.sort(key=lambda cell: DETACH_ORDERS.index(cell.route))
                verdict = if_significant(both[0], both[1], "", "no significant difference")
            orders.append((source, *both, verdict))
    return orders


def _bfloat16_routes(data: MachineData) -> dict[str, object]:
    """Routes from bfloat16 to NumPy at the usual size, safe ones first, and why the plain route
    refuses it."""
    plain = data.results.contracts.get((TORCH_TO_NUMPY, "t.numpy()"), NONE)
    cells = data.one_thread
    casts = cells[(cells["role"] == Role.CASTING) & (cells["direction"] == TORCH_TO_NUMPY)]
    casts = at_usual_size(casts[casts["dtype"] == "bfloat16"])
    routes = [*casts.sort_values("safe", ascending=False, kind="stable").itertuples()]
    return {"refusal": plain.refuses.get("bfloat16", ""), "routes": routes}


def _pinned_sources(moved: Transfers) -> dict[str, object]:
    """A copy from pageable memory, copies from pinned memory compared with it, and pinning at every
    call."""
    pageable = moved.find(COMPLETION, TO_DEVICE, PAGEABLE)
    if pageable is None:
        return {"pageable": None, "pinned": [], "at_every_call": None}
    pinned = (
        moved.find(COMPLETION, route, PINNED, pageable.nbytes)
        for route in (TO_DEVICE, TO_DEVICE_EARLY)
    )
    every_call = moved.find(COMPLETION, PIN_TO_DEVICE, PAGEABLE, pageable.nbytes)
    return {
        "pageable": _copy(moved, pageable),
        "pinned": [_copy(moved, cell, pageable) for cell in pinned if cell],
        "at_every_call": _copy(moved, every_call, pageable),
    }


def _non_blocking_copies(moved: Transfers) -> list[dict[str, Row | None]]:
    """Per host memory, a non-blocking copy by completion time, the same by a blocking call, and its
    enqueue time."""
    copies = []
    for host in (PINNED, PAGEABLE):
        early = moved.find(COMPLETION, TO_DEVICE_EARLY, host)
        if early:
            blocking = moved.find(COMPLETION, TO_DEVICE, host, early.nbytes)
            queued = moved.find(ENQUEUE, TO_DEVICE_EARLY, host, early.nbytes)
            copies.append({"early": early, "blocking": blocking, "queued": queued})
    return copies


def _early_read(moved: Transfers) -> dict[str, Row | None]:
    """A non-blocking copy to the host, by completion and by enqueue time."""
    done = moved.find(COMPLETION, INTO_HOST_EARLY, PINNED)
    queued = moved.find(ENQUEUE, INTO_HOST_EARLY, PINNED, done.nbytes) if done else None
    return {"done": done, "queued": queued}


def _pinning(moved: Transfers) -> dict[str, object]:
    """The first pinned copy and the first registration, why the latter has no figure, and copies
    from such memory."""
    first = [*at_usual_size(moved.select_role(Role.PINNING)).itertuples()]
    registered = moved.find(COMPLETION, TO_DEVICE, REGISTERED)
    pinned = moved.find(COMPLETION, TO_DEVICE, PINNED, registered.nbytes) if registered else None
    reason = moved.skip_reason(role=Role.PINNING, method=f"timeit_{REGISTER}")
    return {
        "copies": [cell for cell in first if cell.method == PIN],
        "registrations": [cell for cell in first if cell.method == REGISTER],
        "reason": reason if first else "",
        "registered": _copy(moved, registered),
        "pinned": _copy(moved, pinned),
    }


def _first_use(moved: Transfers) -> dict[str, object]:
    """The context of the device, and the largest allocation of pinned memory."""
    pinning = moved.select_role(Role.PINNING).itertuples()
    allocations = [cell for cell in pinning if cell.method == "allocate"]
    return {
        "contexts": [*moved.select_role(Role.CONTEXT).itertuples()],
        "allocation": max(allocations, key=lambda cell: cell.nbytes, default=None),
    }


def _numpy2(data: MachineData) -> dict[str, object]:
    """The releases, how many conversions were timed and how many failed, and the hazard of np.array
    of a tensor."""
    results, run = data.results, data.results.last
    roles = (Role.CONVERSION, Role.GRAD)
    failures = results.missing[results.missing["status"] == "failed"]
    constructor = results.contracts.get((TORCH_TO_NUMPY, "np.array(t)"), NONE)
    cells = data.conversions
    cells = cells[(cells["direction"] == TORCH_TO_NUMPY) & (cells["route"] == "np.array(t)")]
    return {
        "torch": run.settings.torch or run.toolchain.torch,
        "numpy": run.settings.numpy or run.toolchain.numpy,
        "timed": int(data.one_thread["role"].isin(roles).sum()),
        "failed": sum(len(results.of_role(failures, role)) for role in roles),
        "hazard": constructor.hazard,
        "cells": [*at_usual_size(cells).itertuples()],
    }


def _placement(data: MachineData) -> dict[str, object]:
    """Copies that are slow between neighbours in memory, and whether any such copy was measured."""
    return {
        "copies": data.neighbour_costs,
        "measured": bool((data.one_thread["role"] == Role.PLACEMENT).any()),
    }
