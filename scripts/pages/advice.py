"""Advice in words: the boxes at the head of a page, the answer to a case, and the data of a page's form.

The form (templates/form.js) filters the rows of scripts/advise.py and computes nothing: this module writes all it shows
about a route. Sentences are in templates/prose: advice, case, settings, code_to_paste.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
from analysis import ranking
from analysis.answers import Answer, effects_on
from analysis.cells import Row, itemsize
from analysis.costs import MachineAnswers, add_totals
from analysis.findings import Gain, SettingAdvice
from analysis.needs import CUDA, DIRECTION_OF_ENDS, NEED_FIELDS, Case, Need, uses

from benchmarks.contracts import ALIAS, ALL_THREADS, Route

from . import show
from .show import code, render_line

FLAT_RATIO = 1.25  # largest median / smallest median up to which a time is the same "at any size"
WIDE_RATIO = 1.5  # from this ratio of highest to lowest process, a time is shown with its range
CLEAR_RATIO = 1.25  # one process each is enough for this ratio: two runs differ by 3 % (90th percentile, docs/lab-notes.md)
SIMILAR_RATIO = 1.1  # routes whose times differ by less are equally slow to a reader
MAX_ROUTES = 5  # routes listed in an answer
FORM_COLUMNS = (
    "need",
    "nbytes",
    "route",
    "kind",
    "title",
    "command",
    "cost",
    "code",
    "notes",
)  # columns of the form


@dataclass(frozen=True)
class Recommendation:
    """A route to take. tied: another route may be as fast at one of its sizes."""

    condition: str  # and sizes; "" if always
    route: str
    cost: str
    tied: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.condition}{': ' if self.condition else ''}{code(self.route)}, {self.cost}"


@dataclass(frozen=True)
class Box:
    """A box at the head of a page, also printed in the terminal: routes to take or findings, and notes on them."""

    title: str
    recommendations: tuple[Recommendation, ...] = ()
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    threads: str = ""  # number of torch threads in words; "" where it does not matter
    folded: bool = False  # on a page only its title is visible until a reader opens it
    columns: tuple[str, ...] = ()
    rows: tuple[
        tuple[str, tuple[str, ...]], ...
    ] = ()  # key of the section that a row links to, an entry per column

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.threads}" if self.threads else self.title

    @property
    def sentences(self) -> tuple[str, ...]:
        rows = (f"{first}: {'. '.join(filter(None, rest))}" for _, (first, *rest) in self.rows)
        return (*(take.sentence for take in self.recommendations), *self.lines, *rows)


# --- boxes of a page --------------------------------------------------------------------------------------------------


def answer_box(rows: pd.DataFrame, alone: pd.DataFrame | None = None, threads: int = 1) -> Box:
    """The box for one answer of a page, see analysis.needs.rows_per_answer.

    alone: the same answer's rows with one torch thread, if ``rows`` are with several ``threads``
    """
    best, needs = rows[rows["kind"] == ranking.BEST], rows["need"].unique()
    first = rows[rows["need"] == needs[0]]
    of_one = first if len(needs) == 1 else first[:0]  # the others differ by dtype
    faster = of_one[of_one["kind"].isin([ranking.CONDITION, ranking.UNSAFE])].sort_values(
        "ratio", kind="stable"
    )
    slow = quiet_or_all(of_one[of_one["slow"]])
    notes = show.render_paragraphs(
        "advice",
        "notes",
        busy=no_verdict_notes(rows),
        ties=of_one[of_one["kind"] == ranking.TIE],
        alone=_faster_alone(of_one, alone) if alone is not None else {},
        measured=of_one["nbytes"].unique(),
        faster=faster.drop_duplicates("route").sort_index(),
        # of routes about as slow as the slowest, name the first in the catalogue, at its largest size
        slowest=slow[slow["ratio"] * SIMILAR_RATIO >= slow["ratio"].max()].sort_values(
            ["order", "nbytes"], ascending=[True, False]
        ),
        unsafe_reason=unsafe_reason,
    )
    taken = list(recommendations(first))
    if len(needs) > 1:
        alike = best[
            best["nbytes"] == best["nbytes"].mode().max()
        ]  # the largest of the most common sizes
        taken[-1] = replace(taken[-1], cost=render_line("advice", "casts", cells=alike))
    moves = best["memory"].iloc[0] != ALIAS
    return Box(
        answer_title(rows),
        tuple(taken),
        notes=notes,
        threads=show.threads(threads) if moves else "",
    )


def conditions_box(made: Sequence[pd.DataFrame]) -> Box | None:
    """Conditions of all routes named in the answers, each stated once; None if there are no conditions."""
    best = pd.concat(made) if made else pd.DataFrame(columns=["kind", "route", "contract"])
    routes = list(best[best["kind"] == ranking.BEST].drop_duplicates("route").itertuples())
    promised = group_routes(routes, lambda row: promises(row.contract))
    inputs = group_routes(
        routes, lambda row: show.render_lines("unusual_inputs", "outcomes", contract=row.contract)
    )
    lines = show.render_paragraphs("advice", "conditions", promised=promised, inputs=inputs)
    return Box("Conditions and unusual inputs", lines=lines, folded=True) if lines else None


def _faster_alone(rows: pd.DataFrame, alone: pd.DataFrame) -> dict[str, list[Row]]:
    """Routes significantly faster with one torch thread than the recommended route, with their cells."""
    take = rows[rows["kind"] == ranking.BEST][["nbytes", "route"]]
    beaten = alone[alone["kind"] == ranking.SLOWER].merge(take)["nbytes"]
    better = alone[(alone["kind"] == ranking.BEST) & alone["nbytes"].isin(beaten)]
    return {
        str(route): [*cells.itertuples()] for route, cells in better.groupby("route", sort=False)
    }


def setting_box(advised: SettingAdvice) -> Box:
    """Environment variables to set before starting a program."""
    title, cost, *notes = show.render_paragraphs("settings", "setting", advised=advised)
    return Box(title, (Recommendation("", advised.setting, cost),), notes=tuple(notes))


def neighbours_box(copies: Sequence[Gain]) -> Box:
    """Say that a copy is slower if its arrays are neighbours in memory, and how to avoid it."""
    title, avoided, *lines = show.render_paragraphs("settings", "neighbours", copies=copies)
    return Box(title, lines=tuple(lines), notes=(avoided,))


def answer_title(rows: pd.DataFrame) -> str:
    """Title of an answer whose rows have one need, or several that differ only in the source's dtype."""
    return need_title(rows["need"].iloc[0], list(rows["dtype"].unique()))


def need_title(need: Need, dtypes: Sequence[str] = ()) -> str:
    """A need in words. dtypes: of the source, where it is cast."""
    return render_line("advice", "title", need=need, dtypes=dtypes)


def capitalize_first(words: str) -> str:
    """Capitalise the first letter and leave the rest unchanged."""
    return words[:1].upper() + words[1:]


def recommendations(rows: pd.DataFrame) -> Iterator[Recommendation]:
    """The routes to take for a need, one per part. Times are of quiet cells, if there are any: one time for all sizes
    if it hardly changes (see ``flat``), else up to three, each with its range if the range is WIDE."""
    parts = [cells for _, cells in rows[rows["kind"] == ranking.BEST].groupby("part")]
    close = (rows["kind"] == ranking.TIE) & (rows["ratio"] < CLEAR_RATIO)
    tied = (close | (rows["kind"] == ranking.UNDECIDED)).groupby(rows["part"]).any()
    for index, (cells, is_tied) in enumerate(zip(parts, tied), 1):
        sizes, timed = [*cells["nbytes"]], [*quiet_or_all(cells).itertuples()]
        shown = [timed[place] for place in sorted({0, len(timed) // 2, len(timed) - 1})]
        values = {
            "sizes": sizes,
            "index": index,
            "parts": len(parts),
            "timed": timed,
            "shown": shown,
            "wide": WIDE_RATIO,
        }
        values["flat"] = is_flat([cell.seconds for cell in timed])
        when, cost = (render_line("advice", block, **values) for block in ("when", "time"))
        yield Recommendation(when, timed[0].route, cost, bool(is_tied))


def quiet_or_all(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the quiet cells, or all cells if no cell is quiet."""
    return cells[cells["quiet"]] if cells["quiet"].any() else cells


def is_flat(seconds: Sequence[float]) -> bool:
    """Whether a route's time is practically the same at all sizes."""
    return max(seconds) <= FLAT_RATIO * min(seconds)


def no_verdict_notes(rows: pd.DataFrame) -> list[str]:
    """Say at which sizes noise on the machine left comparisons undecided."""
    sizes, every = (
        list(table["nbytes"].unique()) for table in (rows[rows["kind"] == ranking.UNDECIDED], rows)
    )
    return list(show.render_paragraphs("advice", "busy", sizes=sizes, every=every))


# --- what to know of a route ------------------------------------------------------------------------------------------


def group_routes(
    rows: Iterable[Any], texts: Callable[[Any], Iterable[str]]
) -> dict[str, list[str]]:
    """Map each text to the routes of the rows that it applies to."""
    routes: dict[str, list[str]] = {}
    for row in rows:
        for text in texts(row):
            routes.setdefault(text, []).append(row.route)
    return routes


def unusual_inputs(contract: Route) -> tuple[str, ...]:
    """How a route handles unusual inputs, in a sentence; empty if it simply accepts or refuses them all."""
    return show.render_paragraphs("unusual_inputs", "sentence", contract=contract)


def unsafe_reason(contract: Route) -> str:
    """Why a route is not recommended."""
    return contract.hazard or "it gets some inputs wrong without an exception"


def promises(contract: Route) -> Iterator[str]:
    """Hazards, cautions and requirements of a route."""
    yield from filter(None, (contract.hazard, contract.caution))
    if "strided" in contract.copies:
        yield "shares the memory of a contiguous source"
    if contract.needs:
        yield f"needs {show.join(contract.needs.split())}"


# --- the answer to a case ---------------------------------------------------------------------------------------------


def answer_text(answer: Answer, differs: Sequence[str] = ()) -> str:
    """Lines for a terminal. differs: properties in which this machine differs from the measured one."""
    case, known, ranked = answer.case, answer.machine, answer.ranked
    lines = [route_line(each, case) for each in ranked]
    values = {"differs": differs, "lines": lines, "most": MAX_ROUTES, "notes": answer_notes(answer)}
    values |= {
        "title": case_title(case, case_threads(case, known)),
        "code": snippet(case, ranked[0], known),
    }
    return show.to_plain(show.render("case", "answer", answer=answer, **values)).strip()


def case_title(case: Case, threads: int = 0) -> str:
    """A case in words. threads: number of torch threads; 0: not shown."""
    return render_line("case", "title", case=case, threads=threads)


def case_threads(case: Case, known: MachineAnswers) -> int:
    """Number of torch threads in a case; 0 where it does not matter."""
    threads = known.torch_threads(case)
    return known.threads if threads == ALL_THREADS else int(threads or 0)


def route_line(candidate: Any, case: Case) -> str:
    """A route with its time and its conditions, in one line."""
    return (
        f"{code(candidate.route)}, {render_line('case', 'cost', route=candidate, count=case.count)}"
    )


def answer_notes(answer: Answer) -> tuple[str, ...]:
    """The evidence for the answer, hazards, settings and missing results, a sentence each."""
    best, shown = answer.ranked[0], answer.ranked[:MAX_ROUTES]
    return show.render_paragraphs(
        "case",
        "notes",
        answer=answer,
        case=answer.case,
        best=best,
        shown=shown,
        ties=[each.route for each in answer.select(ranking.BEST, ranking.TIE)],
        threads=case_threads(answer.case, answer.machine),
        rests=group_routes(shown, lambda row: show.render_paragraphs("case", "rests", route=row)),
        promises=group_routes(shown, lambda row: promises(row.contract)),
        unusual=unusual_inputs(best.contract),
        unsafe_reason=unsafe_reason,
        effects=effects_on(best, answer.case, answer.machine),
    )


def snippet(case: Case, best: Any, known: MachineAnswers) -> str:
    """Python code that defines all names a route uses, runs it, and waits where it may return early."""
    count = case.nbytes // itemsize(case.dtype)
    kind = known.run.settings.device.partition(":")[0] or CUDA
    columns = min(1000, math.isqrt(count)) | 1  # the layout of benchmarks/core/sources.py
    if case.layout == "power of two":
        columns = min(1024, 1 << (math.isqrt(count).bit_length() - 1))
    values: dict[str, Any] = {
        "case": case,
        "best": best,
        "kind": kind,
        "count": count,
        "columns": columns,
    }
    return show.render("code_to_paste", uses=partial(uses, best.route), **values).strip()


def as_json(answer: Answer, differs: Sequence[str] = ()) -> str:
    """The answer with all its evidence, in seconds and bytes."""
    known, code = (
        answer.machine,
        [snippet(answer.case, each, answer.machine) for each in answer.routes.itertuples()],
    )
    routes = answer.routes.drop(columns=["need", "within"]).assign(code=code)
    document = {
        "case": asdict(answer.case),
        "machine": known.name,
        "toolchain": known.run.toolchain.tag,
        "measured": known.run.started,
        "differs": list(differs),
        "routes": json.loads(
            routes.to_json(orient="records", default_handler=vars, double_precision=15)
        ),
        "unmeasured": list(answer.unmeasured),
        "instead": answer.instead,
        "notes": [show.to_plain(note) for note in answer_notes(answer)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


# --- the form of a page -----------------------------------------------------------------------------------------------


def row_case(row: Any) -> Case:
    """The case that a row of MachineAnswers.rows answers."""
    (ends,) = (ends for ends, way in DIRECTION_OF_ENDS.items() if way == (row.direction, row.array))
    batch = row.arrays if row.batch else 0
    alike = {name: getattr(row, name) for name in NEED_FIELDS if name in Case.__dataclass_fields__}
    return Case(*ends, row.nbytes // max(1, batch), **alike | {"batch": batch})


def route_notes(contract: Route) -> str:
    """Conditions of a route and its behaviour on unusual inputs, a line each."""
    return "\n".join(
        [f"{promise}." for promise in promises(contract)]
        + [f"unusual inputs: {w}" for w in unusual_inputs(contract)]
    )


def form_data(known: MachineAnswers) -> str:
    """JSON for a script element: the columns FORM of the rows, each as indices into a list of its distinct values.

    nbytes   of the source; of each source where there are several
    command  scripts/advise.py command for the same case, with NBYTES for the size
    title    of the case, and code to paste, if the row is of the route to take
    """
    rows = add_totals(known.rows)  # a reader who chooses pinned memory already has it
    each = [(row, row_case(row), row.kind == ranking.BEST) for row in rows.itertuples()]
    rows = rows.assign(
        nbytes=[case.nbytes for _, case, _ in each],
        command=[render_line("case", "command", case=case, known=known) for _, case, _ in each],
        title=[
            case_title(case, case_threads(case, known)) if best else "" for _, case, best in each
        ],
        cost=[render_line("case", "cost", route=row, count=1) for row, _, _ in each],
        code=[snippet(case, row, known) if best else "" for row, case, best in each],
        notes=[route_notes(row.contract) for row, _, _ in each],
    )
    packed = {name: pd.factorize(rows[name]) for name in FORM_COLUMNS}
    # the most common setting first
    threads = sorted({*rows["threads"]} - {""}, key=lambda each: (each != ALL_THREADS, each))
    document: dict[str, Any] = {
        "ways": {" ".join(pair): way for pair, way in DIRECTION_OF_ENDS.items()},
        "shown": MAX_ROUTES,
        "threads": [
            (each, f"{known.threads}, torch's default" if each == ALL_THREADS else each)
            for each in threads
        ],
        "rows": {
            name: [places.tolist(), values.tolist()] for name, (places, values) in packed.items()
        },
    }
    # "</script>" in a text would end the element, and "<!--" would begin a comment
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=vars).replace(
        "<", "\\u003c"
    )
