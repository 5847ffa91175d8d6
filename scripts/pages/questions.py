"""Users' questions and their answers, as far as the run has figures or contracts for them.

A function per question selects its cells; templates/prose/questions.md.jinja holds questions and
sentences. A question without an answer is left out.
"""

from collections.abc import Sequence
from operator import attrgetter

from analysis.cells import Row, at_usual_size, list_rows
from analysis.ranking import BEST, differ_significantly, rank
from analysis.results import where
from analysis.transfers import Transfers
from pandas import DataFrame, concat

from benchmarks.contracts import (
    ALIAS,
    COMPLETION,
    COPY,
    DEVICE_TO_HOST,
    ENQUEUE,
    NONE,
    PAGEABLE,
    PINNED,
    REGISTERED,
    TORCH_TO_NUMPY,
    Role,
)

from . import show, transfers
from .advice import recommendations
from .page import MachineData
from .tables import Table, by_dtype, if_significant

DETACH_ORDERS = ("t.detach().cpu().numpy()", "t.cpu().detach().numpy()")
Call = tuple[str, str]  # a route and host memory
TO_DEVICE = "t.to(device)"
TO_DEVICE_EARLY = "t.to(device, non_blocking=True)"
PIN_TO_DEVICE = "t.pin_memory().to(device, non_blocking=True)"
INTO_HOST = "h.copy_(t)"
INTO_HOST_EARLY = "h.copy_(t, non_blocking=True)"
SIGNIFICANT, TIE, NOISY = "significant", "tie", "noisy"  # verdicts on two cells


def questions_table(data: MachineData) -> Table:
    """The questions that the run answers, each with the sentences of its answer."""
    moved = data.transfers
    answers = concat([data.choices[:0], *data.one_thread_answers])
    existing = ((INTO_HOST, PAGEABLE), (INTO_HOST, PINNED), (INTO_HOST_EARLY, PINNED))
    pinned = ((TO_DEVICE, PINNED), (TO_DEVICE_EARLY, PINNED))
    non_blocking = (_early_copy(moved, TO_DEVICE_EARLY, host) for host in (PINNED, PAGEABLE))
    pinning = moved.select_role(Role.PINNING)
    text = show.render(
        "questions",
        sharing=_sharing_routes(data, answers),
        lists=_list_routes(answers),
        to_host=_compared(moved, ("t.cpu()", PAGEABLE), existing),
        grad=_grad_routes(data),
        orders=_detach_orders(data),
        bfloat16=_bfloat16_routes(data),
        pinned=_compared(moved, (TO_DEVICE, PAGEABLE), pinned),
        at_every_call=_compared(moved, (TO_DEVICE, PAGEABLE), [(PIN_TO_DEVICE, PAGEABLE)]),
        non_blocking=[*filter(None, non_blocking)],
        early_read=_early_copy(moved, INTO_HOST_EARLY, PINNED),
        pinning=list_rows(at_usual_size(pinning)),
        no_registration=moved.skip_reason(role=Role.PINNING, method="timeit_register"),
        registered=_compared(moved, (TO_DEVICE, REGISTERED), [(TO_DEVICE, PINNED)]),
        contexts=list_rows(moved.select_role(Role.CONTEXT)),
        allocations=list_rows(where(pinning, method="allocate").sort_values("nbytes")),
        numpy2=_numpy2(data),
        slow_neighbours=data.neighbour_costs,
        placed=len(where(data.one_thread, role=Role.PLACEMENT)),
    )
    parts = (show.paragraphs(question) for question in text.split("\n# ")[1:])
    rows = tuple((question, answer) for question, *answer in parts if answer)
    return Table("What users ask", ("question", "answer"), rows, numeric=False)


def _verdict(cell: Row, reference: Row) -> str:
    if differ_significantly(cell, reference):
        return SIGNIFICANT
    return TIE if cell.quiet and reference.quiet else NOISY


def _copy(moved: Transfers, cell: Row | None, reference: Row | None = None) -> dict | None:
    """A transfer with its cost in words, the cell that it is compared with, if any, and the verdict
    on the two: SIGNIFICANT, TIE or NOISY."""
    if cell is None:
        return None
    verdict = _verdict(cell, reference) if reference else ""
    cost = transfers.cost_words(cell, moved)
    return {"cell": cell, "cost": cost, "reference": reference, "verdict": verdict}


def _compared(moved: Transfers, call: Call, others: Sequence[Call]) -> tuple:
    """A transfer, and those of ``others`` at its size, compared with it."""
    first = moved.find(COMPLETION, *call)
    cells = [moved.find(COMPLETION, *other, first.nbytes) for other in others] if first else []
    return _copy(moved, first), [_copy(moved, cell, first) for cell in cells if cell]


def _early_copy(moved: Transfers, route: str, host: str) -> dict | None:
    """A non-blocking copy by completion time, the same by a blocking call, and its enqueue time."""
    early = moved.find(COMPLETION, route, host)
    if early is None:
        return None
    plain = route.replace(", non_blocking=True", "")
    return {
        "early": early,
        "blocking": moved.find(COMPLETION, plain, host, early.nbytes),
        "queued": moved.find(ENQUEUE, route, host, early.nbytes),
    }


def _sharing_routes(data: MachineData, answers: DataFrame) -> list:
    """The routes to take that share memory, each with the memory as measured, "" where it was
    not."""
    rows = where(answers, kind=BEST, memory=ALIAS, goal=[""], grad=False, batch=False)
    largest = rows.drop_duplicates(["need", "part"], keep="last")
    return [(cell, by_dtype(data.semantics.memory(cell.contract))) for cell in largest.itertuples()]


def _list_routes(answers: DataFrame) -> list:
    """Of lists of arrays, the route that converts each element, at its largest size, with the
    routes to take there, and whether these differ from it."""
    lists = where(answers, batch=True)
    by_element = lists["contract"].map(attrgetter("per_element")).astype(bool)
    routes = []
    for slow in lists[by_element].tail(1).itertuples():
        best = where(lists[~by_element], kind=BEST, nbytes=slow.nbytes).itertuples()
        routes.append((slow, [(cell, differ_significantly(cell, slow)) for cell in best]))
    return routes


def _grad_routes(data: MachineData) -> dict:
    """What takes a tensor that requires grad: on the host, and from a device into a fresh array."""
    plain = data.results.contracts.get((TORCH_TO_NUMPY, "t.numpy()"), NONE)
    answers = [where(rows, grad=True) for rows in data.one_thread_answers if rows["safe"].iloc[0]]
    arrays = data.transfers.select(COMPLETION, DEVICE_TO_HOST, PAGEABLE)
    fresh = where(arrays, safe=True, array=True, memory=[ALIAS, COPY])
    takes_grad = fresh["contract"].map(attrgetter("takes_grad")).astype(bool)
    best: dict = {}
    for cells in (fresh, fresh[takes_grad]):
        if len(cells):
            cell = transfers.best_cell(rank(at_usual_size(cells)))
            best.setdefault(cell.route, _copy(data.transfers, cell))
    return {
        "refusal": "" if plain.takes_grad else plain.inputs.get("requires grad", ""),
        "on_host": [choice.sentence for rows in answers for choice in recommendations(rows)],
        "from_device": [*best.values()],
    }


def _detach_orders(data: MachineData) -> list:
    """Where the tensor is, the faster order of two calls, the other one, and the verdict. On a tie,
    the catalogue's order."""
    on_device = data.transfers.select(COMPLETION, DEVICE_TO_HOST)
    orders = []
    for source, cells in (("CPU", data.conversions), ("device", on_device)):
        both = list_rows(at_usual_size(where(cells, route=DETACH_ORDERS)))
        if len(both) == 2:
            both.sort(key=lambda cell: DETACH_ORDERS.index(cell.route))
            verdict = _verdict(*both)
            if verdict == SIGNIFICANT:
                both.sort(key=lambda cell: cell.seconds)
            else:
                verdict = if_significant(both[0], both[1], "", "no significant difference")
            orders.append((source, *both, verdict))
    return orders


def _bfloat16_routes(data: MachineData) -> dict:
    """Routes from bfloat16 to NumPy at the usual size, safe ones first, and why the plain route
    refuses it."""
    plain = data.results.contracts.get((TORCH_TO_NUMPY, "t.numpy()"), NONE)
    casts = where(data.one_thread, role=Role.CASTING, direction=TORCH_TO_NUMPY, dtype="bfloat16")
    routes = at_usual_size(casts).sort_values("safe", ascending=False, kind="stable")
    return {"refusal": plain.refuses.get("bfloat16", ""), "routes": list_rows(routes)}


def _numpy2(data: MachineData) -> dict:
    """The last run, how many conversions were timed and how many failed, and the hazard of np.array
    of a tensor."""
    results, roles = data.results, (Role.CONVERSION, Role.GRAD)
    constructor = results.contracts.get((TORCH_TO_NUMPY, "np.array(t)"), NONE)
    cells = where(data.conversions, direction=TORCH_TO_NUMPY, route="np.array(t)")
    return {
        "run": results.last,
        "timed": len(where(data.one_thread, role=roles)),
        "failed": len(results.of_role(where(results.missing, status="failed"), *roles)),
        "hazard": constructor.hazard,
        "cells": list_rows(at_usual_size(cells)),
    }
