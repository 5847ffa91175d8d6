"""The answer to a case: in words, as code to paste, as JSON, and as data for a page's form.

The form (templates/form.js) filters the rows that scripts/advise.py has and computes nothing: what it shows of a route
is said here.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import pandas as pd
from analysis.case import (
    BEST,
    CUDA,
    EXTRAPOLATED,
    INTERPOLATED,
    MEASURED,
    TIE,
    WAYS,
    Answer,
    Case,
    Known,
    effects_on,
    in_pinned,
    itemsize,
    priced,
    uses,
)

from benchmarks.contracts import ALIAS, ALL_THREADS, Route

from . import show
from .show import code

LIKENESS = {"cpu": "CPU", "cores": "number of cores", "caches": "caches"}
SHOWN = 5  # routes


# --- in words ---------------------------------------------------------------------------------------------------------


def words(answer: Answer, differs: Sequence[str] = (), asked: bool = False) -> Iterator[str]:
    """Lines for a terminal. differs: in what the machine is not this one; asked: for its results."""
    case, known, ranked = answer.case, answer.known, answer.ranked
    yield " ".join(show.prose("case_words", "whose", known=known, run=known.run))
    if differs and not asked:
        unlike = show.join([LIKENESS[name] for name in differs])
        yield f"Warning: this machine has no results, and differs from that one in {unlike}; scripts/run.py makes some."
    yield ""
    yield title(case, threads_of(case, known))
    for place, candidate in enumerate(ranked[:SHOWN], 1):
        yield show.to_plain(f"  {place}. {line_of(candidate, case)}")
    if len(ranked) > SHOWN:
        yield f"  and {len(ranked) - SHOWN} more"
    for note in notes(answer):
        yield show.to_plain(f"  - {note}")
    yield ""
    yield snippet(case, ranked[0], known)


def title(case: Case, threads: int = 0) -> str:
    """A case in words. threads: that torch has; 0: nobody asks."""
    return " ".join(show.prose("case_words", "title", case=case, threads=threads))


def threads_of(case: Case, known: Known) -> int:
    """How many threads torch has in a case; 0 where that is no question."""
    threads = case.threads_in(known)
    return known.threads if threads == ALL_THREADS else int(threads or 0)


def line_of(candidate: Any, case: Case) -> str:
    """A route with its time and what else there is to know of it in a line."""
    return f"{code(candidate.route)}, {cost_of(candidate, case.count)}"


def cost_of(candidate: Any, count: int = 1) -> str:
    return " ".join(show.prose("case_words", "cost", route=candidate, count=count))


def notes(answer: Answer) -> tuple[str, ...]:
    """What the answer rests on, hazards, settings, and what is missing: a sentence each."""
    case, ranked = answer.case, answer.ranked
    best, shown = ranked[0], ranked[:SHOWN]
    return show.prose(
        "case",
        answer=answer,
        case=case,
        best=best,
        shown=shown,
        ties=[best.route, *(each.route for each in ranked if each.kind == TIE)],
        rests=routes_by((_rests_on(each, case), each.route) for each in shown),
        one_thread=not (case.device or case.threads or answer.known.spreads) and best.memory != ALIAS,
        promises=routes_by((text, each.route) for each in shown for text in promises(each.contract)),
        unpriced=[each.route for each in shown if each.once != each.once],
        unusual=unusual(best.contract),
        why_unsafe=why_unsafe,
        effects=effects_on(best, case, answer.known),
    )


def routes_by(said: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Each text with the routes that it is about."""
    routes: dict[str, list[str]] = {}
    for text, route in said:
        if text:
            routes.setdefault(text, []).append(route)
    return routes


def unusual(contract: Route) -> tuple[str, ...]:
    """What a route does with unusual inputs, in a sentence; none where it simply takes or refuses them all."""
    return show.prose("unusual_inputs", contract=contract)


def outcomes(contract: Route) -> list[str]:
    """The same, a piece for each thing that it does; what is refused is left out."""
    pieces = [piece for words in unusual(contract) for piece in words.rstrip(".").split("; ")]
    return [piece for piece in pieces if not piece.endswith("(see Contracts)")]


def _rests_on(candidate: Any, case: Case) -> str:
    """How a figure came about that was not measured as it stands; "" of one that was."""
    how = {MEASURED: "", INTERPOLATED: "interpolated between", EXTRAPOLATED: "extrapolated from"}[candidate.how]
    return how and f"{show.size(case.total)}: {how} {show.sizes(candidate.sizes)}"


def why_unsafe(contract: Route) -> str:
    """Why a route is not recommended."""
    return contract.hazard or "it gets some inputs wrong without an exception"


def promises(contract: Route) -> Iterator[str]:
    """What somebody who takes the route is to know."""
    yield from filter(None, (contract.hazard, contract.caution))
    if contract.needs:
        yield f"needs {show.join(contract.needs.split())}"


# --- code to paste, JSON ----------------------------------------------------------------------------------------------


def snippet(case: Case, best: Any, known: Known) -> str:
    """Python that makes all names a route needs, takes it, and waits where it may return early."""
    count = case.nbytes // itemsize(case.dtype)
    kind = known.run.settings.device.partition(":")[0] or CUDA
    rows = min(1024, count & -count)  # a power of two
    values: dict[str, Any] = {"case": case, "best": best, "kind": kind, "count": count, "rows": rows}
    return show.written("code_to_paste", uses=partial(uses, best.route), **values).strip()


def as_json(answer: Answer, differs: Sequence[str] = ()) -> str:
    """The answer with everything it rests on; seconds and bytes."""
    known, code = answer.known, [snippet(answer.case, each, answer.known) for each in answer.routes.itertuples()]
    routes = answer.routes.drop(columns="need").assign(code=code)
    document = {
        "case": asdict(answer.case),
        "machine": known.machine,
        "toolchain": known.run.toolchain.tag,
        "measured": known.run.started,
        "differs": list(differs),
        "routes": json.loads(routes.to_json(orient="records", default_handler=vars, double_precision=15)),
        "unmeasured": list(answer.unmeasured),
        "instead": answer.instead,
        "notes": [show.to_plain(note) for note in notes(answer)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


# --- the form of a page -----------------------------------------------------------------------------------------------

FORM = ("need", "nbytes", "route", "kind", "cost", "code", "notes")  # columns that it has
ALIKE = ("dtype", "goal", "layout", "memory", "host", "grad", "enqueue", "threads")  # of a case and of a need


def case_of(row: Any) -> Case:
    """The case that a row of Known.rows is measured for."""
    (ends,) = (ends for ends, way in WAYS.items() if way == (row.direction, row.array))
    batch = row.arrays if row.batch else 0
    alike = {name: getattr(row, name) for name in ALIKE}
    return Case(*ends, row.nbytes // max(1, batch), batch=batch, **alike)


def about(contract: Route) -> str:
    """What to know of a route, a line each."""
    return "\n".join(
        [*(f"{said}." for said in promises(contract)), *(f"unusual inputs: {w}" for w in unusual(contract))]
    )


def embedded(known: Known) -> str:
    """JSON that may stand in a script element: the columns FORM of the rows, each as places in a list of its values.

    code: to paste, of the route to take.
    """
    rows = priced(in_pinned(known.rows))  # who chooses pinned memory has it
    each = list(rows.itertuples())
    rows["cost"] = [cost_of(row) for row in each]
    rows["code"] = [snippet(case_of(row), row, known) if row.kind == BEST else "" for row in each]
    said = rows.drop_duplicates(["need", "route"]).set_index(["need", "route"])["contract"].map(about)
    rows["notes"] = list(said.loc[[(row.need, row.route) for row in each]])
    packed = {name: pd.factorize(rows[name]) for name in FORM}
    # what most programs have comes first
    threads = sorted({*rows["threads"]} - {""}, key=lambda each: (each != ALL_THREADS, each))
    document: dict[str, Any] = {
        "ways": {" ".join(pair): way for pair, way in WAYS.items()},
        "shown": SHOWN,
        "threads": [(each, f"{known.threads}, torch's default" if each == ALL_THREADS else each) for each in threads],
        "rows": {name: [places.tolist(), values.tolist()] for name, (places, values) in packed.items()},
    }
    # "</script>" would end the element, and "<!--" begin a comment, wherever a text has them
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=vars).replace("<", "\\u003c")
