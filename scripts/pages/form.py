"""The data of a page's form.

The form (templates/form.js) filters the rows of scripts/advise.py and computes nothing: this module
writes all it shows about a route.
"""

import json
from urllib.parse import urlencode

import pandas as pd
from analysis.costs import Candidate, MachineAnswers, add_totals
from analysis.estimates import MAX_EXTRAPOLATION
from analysis.needs import DIRECTION_OF_ENDS, NEED_FIELDS, Case
from analysis.ranking import BEST

from benchmarks.contracts import ALIAS, ALL_THREADS, COPY, INTO, Route

from .advice import is_flat, promises, unusual_inputs
from .case_answer import MAX_ROUTES, case_threads, case_title, cost_text, snippet
from .show import render_line

FORM_COLUMNS = ("need", "nbytes", "route", "kind", "title", "command", "cost", "code", "notes")
FORM_MEMORIES = {COPY: "own", ALIAS: "share", INTO: "into-buffer"}  # as form.js names them
ENDS_OF_DIRECTION = {direction: ends for ends, direction in DIRECTION_OF_ENDS.items()}


def row_case(row: Candidate) -> Case:
    """The case that a row of MachineAnswers.rows answers."""
    source, target = ENDS_OF_DIRECTION[row.direction, row.array]
    shared_names = [name for name in NEED_FIELDS if name in Case.__dataclass_fields__]
    fields = {name: getattr(row, name) for name in shared_names} | {"batch": row.arrays}
    return Case(source, target, row.nbytes // max(1, row.arrays), **fields)


def case_address(case: Case) -> str:
    """The fragment of a page's address with which its form shows a case."""
    options = {"from": case.source, "to": case.target, "nbytes": case.nbytes, "dtype": case.dtype}
    options |= {"layout": case.layout, "memory": FORM_MEMORIES[case.memory]}
    options |= {"source": case.host or "pageable", "to-dtype": case.goal or "same"}
    options |= {"threads": case.threads} if case.threads else {}
    options |= {name: str(getattr(case, name)).lower() for name in ("grad", "batch", "enqueue")}
    return urlencode(options)


def route_notes(contract: Route) -> str:
    """Conditions of a route and its behaviour on unusual inputs, a line each."""
    notes = [f"{promise}." for promise in promises(contract)]
    notes += [f"unusual inputs: {words}" for words in unusual_inputs(contract)]
    return "\n".join(notes)


def form_data(machine: MachineAnswers) -> str:
    """JSON for a script element: the columns FORM_COLUMNS of the rows, each as indices into a list
    of its distinct values.

    nbytes   of the source; of each source where there are several
    flat     per need: its time is about the same at all sizes
    command  scripts/advise.py command for the same case, with NBYTES for the size
    title    of the case, and code to paste, if the row is of the route to take
    """
    rows = add_totals(machine.rows)  # a reader who chooses pinned memory already has it
    texts = pd.DataFrame([_row_texts(row, machine) for row in rows.itertuples()], rows.index)
    rows = rows.assign(**texts)
    columns = {}
    for name in FORM_COLUMNS:
        places, values = pd.factorize(rows[name])
        columns[name] = [places.tolist(), values.tolist()]
    # the most common setting first
    threads = sorted({*rows["threads"]} - {""}, key=lambda count: (count != ALL_THREADS, count))
    default = f"{machine.threads}, torch's default"
    by_need = rows[rows["kind"] == BEST].groupby("need", sort=False)["seconds"]
    flat = {need for need, seconds in by_need if is_flat([*seconds])}
    document = {
        "ways": {" ".join(ends): direction for ends, direction in DIRECTION_OF_ENDS.items()},
        "shown": MAX_ROUTES,
        "reach": MAX_EXTRAPOLATION,
        "read_only": render_line("case", "read_only"),
        "caution": render_line("case", "read_only_caution"),
        "threads": [(count, default if count == ALL_THREADS else count) for count in threads],
        "flat": [need in flat for need in columns["need"][1]],
        "rows": columns,
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=vars)
    # "</script>" in a text would end the element, and "<!--" would begin a comment
    return text.replace("<", "\\u003c")


def _row_texts(row: Candidate, machine: MachineAnswers) -> dict[str, str | int]:
    case, is_best = row_case(row), row.kind == BEST
    return {
        "nbytes": case.nbytes,
        "command": render_line("case", "command", case=case, machine=machine.name),
        "title": case_title(case, case_threads(case, machine)) if is_best else "",
        "cost": cost_text(row),
        "code": snippet(case, row, machine) if is_best else "",
        "notes": route_notes(row.contract),
    }
