"""The answer to a case in words: for a terminal, as JSON, as code to paste, and in a page's form.

The form (templates/form.js) filters the rows of scripts/advise.py and computes nothing: this module
writes all it shows about a route. Sentences are in templates/prose: case, no_answer, code_to_paste.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from urllib.parse import urlencode

from analysis.answers import Answer, effects_on
from analysis.cells import itemsize
from analysis.costs import Candidate, MachineAnswers, add_totals
from analysis.estimates import MAX_EXTRAPOLATION, MEASURED, NoAnswer
from analysis.needs import DIRECTION_OF_ENDS, NEED_FIELDS, Case, uses
from analysis.ranking import BEST, CONDITION, TIE, UNSAFE
from analysis.results import where
from pandas import DataFrame, factorize
from store.frames import rows_of

from benchmarks.contracts import ALIAS, ALL_THREADS, COPY, INTO

from . import show
from .advice import group_routes, is_flat, promises, unsafe_reason, unusual_inputs
from .show import Lines, code, render_line
from .tables import Table, render_table

OPTIONAL_FIELDS = (
    "shape",
    "expression",
    "read_only",
    "writable",
    "values",
)  # of a case that has them
MAX_ROUTES = 5  # routes listed in an answer
CODE_NAMES = ("a", "t", "m", "b", "h", "d", "s", "buffers", "stages")  # defined by code to paste
FORM_COLUMNS = ("need", "nbytes", "route", "kind", "title", "command", "cost", "code", "notes")
FORM_MEMORIES = {"": "any", COPY: "own", ALIAS: "share", INTO: "into-buffer"}  # as in form.js
ENDS_OF_DIRECTION = {direction: ends for ends, direction in DIRECTION_OF_ENDS.items()}


def no_answer_text(refusal: NoAnswer) -> str:
    """Why a case has no answer, and what to do."""
    values = {**refusal.values, "case": refusal.case, "reach": f"{MAX_EXTRAPOLATION:.0f}"}
    return render_line("no_answer", refusal.reason, **values)


def answer_text(answer: Answer, differences: Sequence[str] = (), command: str = "") -> str:
    """Lines for a terminal.

    differences  properties in which this machine differs from the measured one
    command      that measures the case, offered where the answer leaves something open
    """
    case, machine, routes = answer.case, answer.machine, answer.ranked
    text = show.render(
        "case",
        "answer",
        machine=machine.name,
        run=machine.run,
        differences=differences,
        title=case_title(case, case_threads(case, machine)),
        lines=[route_line(route, case) for route in routes[:MAX_ROUTES]],
        further=len(routes[MAX_ROUTES:]),
        notes=answer_notes(answer),
        code=snippet(case, routes[0], machine),
        command="" if case.device else command,
        offered=open_reason(answer),
    )
    return show.to_plain(text).strip()


def open_reason(answer: Answer) -> str:
    """What an answer leaves open that a measurement of its case could settle: a range, an estimate,
    a tie; "" if nothing."""
    best = answer.ranked[0]
    if answer.measured or answer.case.device or best.memory == ALIAS:
        return ""
    if best.is_range:
        return "range"
    if best.how != MEASURED or answer.instead:
        return "estimate"
    return "tie" if len(answer.select(BEST, TIE)) > 1 else ""


def case_title(case: Case, threads: int = 0) -> str:
    """A case in words. threads: number of torch threads; 0: not shown."""
    return render_line("case", "title", case=case, threads=threads)


def case_threads(case: Case, machine: MachineAnswers) -> int:
    """Number of torch threads in a case; 0 where it does not matter."""
    threads = machine.torch_threads(case)
    return machine.threads if threads == ALL_THREADS else int(threads or 0)


def route_line(route: Candidate, case: Case) -> str:
    """A route with its time and its conditions, in one line."""
    return f"{code(route.route)}, {cost_text(route, case.count)}"


def cost_text(route: Candidate, count: int = 1) -> str:
    """The time of a route with its conditions. count: number of calls."""
    return render_line("case", "cost", route=route, count=count)


def answer_notes(answer: Answer) -> Lines:
    """The evidence for the answer, hazards, settings and missing results, a sentence each."""
    case, machine = answer.case, answer.machine
    routes = answer.ranked[:MAX_ROUTES]
    best = routes[0]
    estimates: dict[str, list[str]] = {}
    for route in routes:
        for text in show.render_paragraphs("case", "estimate", route=route):
            estimates.setdefault(text, []).append(route.route)
    measured = measured_notes(answer)
    return measured + show.render_paragraphs(
        "case",
        "notes",
        case=case,
        is_steady=machine.is_steady,
        quiet=machine.quiet,
        spreads=machine.spreads,
        best=best,
        routes=routes,
        ties=[route.route for route in answer.select(BEST, TIE)],
        threads=case_threads(case, machine),
        estimates=estimates,
        promises=group_routes(routes, promises),
        unusual=unusual_inputs(best.contract),
        effects=effects_on(best, case, machine),
        conditional=answer.select(CONDITION),
        unsafe=answer.select(UNSAFE),
        unsafe_reason=unsafe_reason,
        unmeasured=answer.unmeasured,
        instead=answer.instead,
    )


def measured_notes(answer: Answer) -> Lines:
    """What was measured for this case alone; empty if nothing was."""
    measured = answer.measured
    if not measured:
        return ()
    refused: dict[str, list[str]] = {}
    for route, check in measured.checks.items():
        if "fails" in check:
            refused.setdefault(check["fails"], []).append(route)
    rows = answer.routes
    return show.render_paragraphs(
        "case",
        "measured",
        routes=len(rows),
        processes=len(measured.lines),
        seconds=measured.run.seconds,
        quiet=answer.machine.quiet,
        own=rows_of(where(rows, route=measured.user_routes)),
        refused=refused,
    )


def snippet(case: Case, best: Candidate, machine: MachineAnswers) -> str:
    """Python code that defines all names a route uses, runs it, and waits where it may return
    early."""
    count = case.nbytes // itemsize(case.dtype)
    columns = min(1000, math.isqrt(count)) | 1  # the layout of benchmarks/core/sources.py
    if case.layout == "power of two":
        columns = min(1024, 1 << (math.isqrt(count).bit_length() - 1))
    text = show.render(
        "code_to_paste",
        case=case,
        best=best,
        names=[name for name in CODE_NAMES if uses(best.route, name)],
        device_type=machine.run.settings.device.partition(":")[0],
        count=count,
        columns=columns,
    )
    return text.strip()


def measured_table(answers: Sequence[Answer]) -> Table:
    """The best route of each question that was measured on a machine."""
    rows = []
    for answer in answers:
        title = case_title(answer.case, case_threads(answer.case, answer.machine))
        rows.append((title, route_line(answer.ranked[0], answer.case), answer.measured))
    return render_table("tables", "measured", False, rows=rows)


def as_json(answer: Answer, differences: Sequence[str] = ()) -> str:
    """The answer with all its evidence, in seconds and bytes."""
    machine, run = answer.machine, answer.machine.run
    fields = asdict(answer.case)
    snippets = [snippet(answer.case, route, machine) for route in rows_of(answer.routes)]
    routes = answer.routes.drop(columns=["need", "within", "excess_limit"]).assign(code=snippets)
    rows = routes.to_json(orient="records", default_handler=asdict, double_precision=15)
    document = {
        "case": {
            name: value for name, value in fields.items() if value or name not in OPTIONAL_FIELDS
        },
        "machine": machine.name,
        "toolchain": run.toolchain.tag,
        "measured": run.started,
        "differs": differences,
        "routes": json.loads(rows),
        "unmeasured": answer.unmeasured,
        "instead": answer.instead,
        "notes": [show.to_plain(note) for note in answer_notes(answer)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


# --- the form of a page ---------------------------------------------------------------------------


def row_case(row: Candidate) -> Case:
    """The case that a row of MachineAnswers.rows answers."""
    source, target = ENDS_OF_DIRECTION[row.direction, row.array]
    shared_names = [name for name in NEED_FIELDS if name in Case.__dataclass_fields__]
    fields = {name: getattr(row, name) for name in shared_names} | {"batch": row.arrays}
    return Case(source, target, row.nbytes // max(1, row.arrays), **fields)


def case_options(case: Case) -> dict[str, str | bool]:
    """A case as the form's fields hold it, by their names."""
    return {
        "from": case.source,
        "to": case.target,
        "nbytes": str(case.nbytes),
        "dtype": case.dtype,
        "to-dtype": case.goal or "same",
        "layout": case.layout,
        "memory": FORM_MEMORIES[case.memory],
        "threads": case.threads or ALL_THREADS,
        "source": case.host or "pageable",
        "read-only": case.read_only,
        "grad": case.grad,
        "batch": str(case.batch),
        "enqueue": case.enqueue,
    }


USUAL_OPTIONS = case_options(Case("numpy", "torch", 2**20))  # of a form that nobody touched
ADDRESS_OPTIONS = ("from", "to", "nbytes")  # of every address that holds a case


def case_address(case: Case) -> str:
    """The fragment of a page's address with which its form shows a case."""
    options = {
        name: "true" if value is True else value
        for name, value in case_options(case).items()
        if name in ADDRESS_OPTIONS or value != USUAL_OPTIONS[name]
    }
    return urlencode(options)


def form_data(machine: MachineAnswers) -> str:
    """JSON for a script element: the columns FORM_COLUMNS of the rows, each as indices into a list
    of its distinct values.

    nbytes   of the source; of each source where there are several
    flat     per need: its time is about the same at all sizes
    usual    what fields hold until a reader chooses; held  of these, what every address holds
    command  scripts/advise.py command for the same case, with NBYTES for the size
    title    of the case, and code to paste, if the row is of the route to take
    """
    rows = add_totals(machine.rows)  # a reader who chooses pinned memory already has it
    texts = DataFrame([_row_texts(row, machine) for row in rows_of(rows)], rows.index)
    rows = rows.assign(**texts)
    columns = {}
    for name in FORM_COLUMNS:
        places, values = factorize(rows[name])
        columns[name] = [places.tolist(), values.tolist()]
    # the most common setting first
    threads = sorted({*rows["threads"]} - {""}, key=lambda count: (count != ALL_THREADS, count))
    default = f"{machine.threads}, torch's default"
    by_need = where(rows, kind=BEST).groupby("need", sort=False)["seconds"]
    flat = {need for need, seconds in by_need if is_flat([*seconds])}
    document = {
        "usual": USUAL_OPTIONS,
        "held": ADDRESS_OPTIONS,
        "ways": {" ".join(ends): direction for ends, direction in DIRECTION_OF_ENDS.items()},
        "shown": MAX_ROUTES,
        "reach": MAX_EXTRAPOLATION,
        "read_only": render_line("case", "read_only"),
        "caution": render_line("case", "read_only_caution"),
        "threads": [(count, default if count == ALL_THREADS else count) for count in threads],
        "flat": [need in flat for need in columns["need"][1]],
        "rows": columns,
    }
    return show.script_json(document)


def _row_texts(row: Candidate, machine: MachineAnswers) -> dict[str, str | int]:
    """The texts of a row, among them the conditions of its route and its behaviour on unusual
    inputs, a line each."""
    case, is_best = row_case(row), row.kind == BEST
    notes = [f"{promise}." for promise in promises(row.contract)]
    notes += [f"unusual inputs: {words}" for words in unusual_inputs(row.contract)]
    return {
        "nbytes": case.nbytes,
        "command": render_line("case", "command", case=case, machine=machine.name),
        "title": case_title(case, case_threads(case, machine)) if is_best else "",
        "cost": cost_text(row),
        "code": snippet(case, row, machine) if is_best else "",
        "notes": "\n".join(notes),
    }
