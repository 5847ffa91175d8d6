"""What is advised, in words: boxes in the head of a page, the answer to a case, and the data of a page's form.

The form (templates/form.js) filters the rows that scripts/advise.py has and computes nothing: what it shows of a route
is said here. Sentences are in templates/prose: advice, case, settings, code_to_paste.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
from analysis import choices
from analysis.cells import Row, itemsize
from analysis.findings import Advised, Gain

from benchmarks.contracts import ALIAS, ALL_THREADS, Route

from . import show
from .show import code, said

FLAT = 1.25  # largest median / smallest median up to which a time is the same "at any size"
WIDE = 1.5  # highest / lowest process from which a time comes with its range
CLEAR = 1.25  # by this one process each is enough: in nine cells of ten two runs differ by 3 % (docs/accuracy.md)
ALIKE = 1.1  # routes whose times differ by less are equally slow to a reader
SHOWN = 5  # routes of an answer
FORM = ("need", "nbytes", "route", "kind", "title", "command", "cost", "code", "notes")  # columns that the form has


@dataclass(frozen=True)
class Take:
    """A route to take. tied: at one of its sizes another one may be as fast."""

    when: str  # "" where that is always
    route: str
    cost: str
    tied: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.when}{': ' if self.when else ''}{code(self.route)}, {self.cost}"


@dataclass(frozen=True)
class Box:
    """A box in the head of a page, shown by the terminal, too: what to take or what was found, and notes on that."""

    title: str
    takes: tuple[Take, ...] = ()
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    threads: str = ""  # that torch has, in words; "" where that is no question
    folded: bool = False  # on a page only its title shows until a reader opens it
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of these columns; first the section it leads to

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.threads}" if self.threads else self.title

    @property
    def said(self) -> tuple[str, ...]:
        rows = (f"{first}: {'. '.join(filter(None, rest))}" for _, (first, *rest) in self.rows)
        return (*(take.sentence for take in self.takes), *self.lines, *rows)


# --- boxes of a page --------------------------------------------------------------------------------------------------


def advice(rows: pd.DataFrame, alone: pd.DataFrame | None = None, threads: int = 1) -> Box:
    """The box of what a page answers, see analysis.choices.asked.

    alone: the rows of the same where torch has one thread, where these are of several ``threads``
    """
    best, needs = rows[rows["kind"] == choices.BEST], rows["need"].unique()
    first = rows[rows["need"] == needs[0]]
    of_one = first if len(needs) == 1 else first[:0]  # the others differ by dtype
    faster = of_one[of_one["kind"].isin([choices.CONDITION, choices.UNSAFE])].sort_values("ratio", kind="stable")
    slow = quiet_of(of_one[of_one["slow"]])
    notes = show.prose(
        "advice",
        "notes",
        busy=busy(rows),
        ties=of_one[of_one["kind"] == choices.TIE],
        alone=_faster_alone(of_one, alone) if alone is not None else {},
        measured=of_one["nbytes"].unique(),
        faster=faster.drop_duplicates("route").sort_index(),
        # routes that cost as good as the largest factor: the catalogue's first of them, at its largest size, is named
        slowest=slow[slow["ratio"] * ALIKE >= slow["ratio"].max()].sort_values(
            ["order", "nbytes"], ascending=[True, False]
        ),
        why_unsafe=why_unsafe,
    )
    taken = list(takes(first))
    if len(needs) > 1:
        alike = best[best["nbytes"] == best["nbytes"].mode().max()]  # the largest of those that most have
        taken[-1] = replace(taken[-1], cost=said("advice", "casts", cells=alike))
    moves = best["memory"].iloc[0] != ALIAS
    return Box(title(rows), tuple(taken), notes=notes, threads=show.threads(threads) if moves else "")


def conditions(made: Sequence[pd.DataFrame]) -> Box | None:
    """What to know of all routes that the answers name, each fact once; None where there is nothing."""
    best = pd.concat(made) if made else pd.DataFrame(columns=["kind", "route", "contract"])
    routes = list(best[best["kind"] == choices.BEST].drop_duplicates("route").itertuples())
    promised = routes_by(routes, lambda row: promises(row.contract))
    inputs = routes_by(routes, lambda row: show.lines("unusual_inputs", "outcomes", contract=row.contract))
    lines = show.prose("advice", "conditions", promised=promised, inputs=inputs)
    return Box("Conditions and unusual inputs", lines=lines, folded=True) if lines else None


def _faster_alone(rows: pd.DataFrame, alone: pd.DataFrame) -> dict[str, list[Row]]:
    """The routes that are decided to be faster than the one to take where torch has one thread, with their cells."""
    take = rows[rows["kind"] == choices.BEST][["nbytes", "route"]]
    beaten = alone[alone["kind"] == choices.SLOWER].merge(take)["nbytes"]
    better = alone[(alone["kind"] == choices.BEST) & alone["nbytes"].isin(beaten)]
    return {str(route): [*cells.itertuples()] for route, cells in better.groupby("route", sort=False)}


def setting(advised: Advised) -> Box:
    """A setting of the environment to start a program with."""
    title, cost, *notes = show.prose("settings", "setting", advised=advised)
    return Box(title, (Take("", advised.setting, cost),), notes=tuple(notes))


def neighbours(copies: Sequence[Gain]) -> Box:
    """That a copy takes longer where its arrays lie as neighbours do, and what to do about it."""
    title, avoided, *lines = show.prose("settings", "neighbours", copies=copies)
    return Box(title, lines=tuple(lines), notes=(avoided,))


def title(rows: pd.DataFrame) -> str:
    """What is answered by rows of a need, or of some that differ in the source's dtype."""
    return titled(rows["need"].iloc[0], list(rows["dtype"].unique()))


def titled(need: choices.Need, dtypes: Sequence[str] = ()) -> str:
    """A need in words. dtypes: of the source, where it is cast."""
    return said("advice", "title", need=need, dtypes=dtypes)


def capital(words: str) -> str:
    """With a capital at the beginning, the rest as it is."""
    return words[:1].upper() + words[1:]


def takes(rows: pd.DataFrame) -> Iterator[Take]:
    """The routes to take for a need, one per part. Times are those of quiet cells, where there are any: one for all
    sizes if it hardly changes (see ``flat``), else up to three, each with its range if that is WIDE."""
    parts = [cells for _, cells in rows[rows["kind"] == choices.BEST].groupby("part")]
    close = (rows["kind"] == choices.TIE) & (rows["ratio"] < CLEAR)
    tied = (close | (rows["kind"] == choices.UNDECIDED)).groupby(rows["part"]).any()
    for index, (cells, is_tied) in enumerate(zip(parts, tied), 1):
        sizes, timed = [*cells["nbytes"]], [*quiet_of(cells).itertuples()]
        shown = [timed[place] for place in sorted({0, len(timed) // 2, len(timed) - 1})]
        values = {"sizes": sizes, "index": index, "parts": len(parts), "timed": timed, "shown": shown, "wide": WIDE}
        values["flat"] = flat([cell.seconds for cell in timed])
        when, cost = (said("advice", block, **values) for block in ("when", "time"))
        yield Take(when, timed[0].route, cost, bool(is_tied))


def quiet_of(cells: pd.DataFrame) -> pd.DataFrame:
    """The quiet ones; all where none is."""
    return cells[cells["quiet"]] if cells["quiet"].any() else cells


def flat(seconds: Sequence[float]) -> bool:
    """Whether a route's time is the same at any size, as far as a reader minds."""
    return max(seconds) <= FLAT * min(seconds)


def busy(rows: pd.DataFrame) -> list[str]:
    """That not everything could be decided because of the machine, and at which sizes."""
    sizes, every = (list(table["nbytes"].unique()) for table in (rows[rows["kind"] == choices.UNDECIDED], rows))
    return list(show.prose("advice", "busy", sizes=sizes, every=every))


# --- what to know of a route ------------------------------------------------------------------------------------------


def routes_by(rows: Iterable[Any], texts: Callable[[Any], Iterable[str]]) -> dict[str, list[str]]:
    """Each text that is said of a row, with the routes that it is about."""
    routes: dict[str, list[str]] = {}
    for row in rows:
        for text in texts(row):
            routes.setdefault(text, []).append(row.route)
    return routes


def unusual(contract: Route) -> tuple[str, ...]:
    """What a route does with unusual inputs, in a sentence; none where it simply takes or refuses them all."""
    return show.prose("unusual_inputs", "sentence", contract=contract)


def why_unsafe(contract: Route) -> str:
    """Why a route is not recommended."""
    return contract.hazard or "it gets some inputs wrong without an exception"


def promises(contract: Route) -> Iterator[str]:
    """What somebody who takes the route is to know."""
    yield from filter(None, (contract.hazard, contract.caution))
    if "strided" in contract.copies:
        yield "shares the memory of a contiguous source"
    if contract.needs:
        yield f"needs {show.join(contract.needs.split())}"


# --- the answer to a case ---------------------------------------------------------------------------------------------


def words(answer: choices.Answer, differs: Sequence[str] = ()) -> str:
    """Lines for a terminal. differs: in what the machine is not the one that nobody asked about."""
    case, known, ranked = answer.case, answer.known, answer.ranked
    lines = [line_of(each, case) for each in ranked]
    values = {"differs": differs, "lines": lines, "most": SHOWN, "notes": notes(answer)}
    values |= {"title": case_title(case, threads_of(case, known)), "code": snippet(case, ranked[0], known)}
    return show.to_plain(show.written("case", "answer", answer=answer, **values)).strip()


def case_title(case: choices.Case, threads: int = 0) -> str:
    """A case in words. threads: that torch has; 0: nobody asks."""
    return said("case", "title", case=case, threads=threads)


def threads_of(case: choices.Case, known: choices.Known) -> int:
    """How many threads torch has in a case; 0 where that is no question."""
    threads = case.threads_in(known)
    return known.threads if threads == ALL_THREADS else int(threads or 0)


def line_of(candidate: Any, case: choices.Case) -> str:
    """A route with its time and what else there is to know of it in a line."""
    return f"{code(candidate.route)}, {said('case', 'cost', route=candidate, count=case.count)}"


def notes(answer: choices.Answer) -> tuple[str, ...]:
    """What the answer rests on, hazards, settings, and what is missing: a sentence each."""
    best, shown = answer.ranked[0], answer.ranked[:SHOWN]
    return show.prose(
        "case",
        "notes",
        answer=answer,
        case=answer.case,
        best=best,
        shown=shown,
        ties=[each.route for each in answer.of(choices.BEST, choices.TIE)],
        threads=threads_of(answer.case, answer.known),
        rests=routes_by(shown, lambda row: show.prose("case", "rests", route=row)),
        promises=routes_by(shown, lambda row: promises(row.contract)),
        unusual=unusual(best.contract),
        why_unsafe=why_unsafe,
        effects=choices.effects_on(best, answer.case, answer.known),
    )


def snippet(case: choices.Case, best: Any, known: choices.Known) -> str:
    """Python that makes all names a route needs, takes it, and waits where it may return early."""
    count = case.nbytes // itemsize(case.dtype)
    kind = known.run.settings.device.partition(":")[0] or choices.CUDA
    columns = min(1000, math.isqrt(count)) | 1  # as benchmarks/sources.py lays it out
    if case.layout == "power of two":
        columns = min(1024, 1 << (math.isqrt(count).bit_length() - 1))
    values: dict[str, Any] = {"case": case, "best": best, "kind": kind, "count": count, "columns": columns}
    return show.written("code_to_paste", uses=partial(choices.uses, best.route), **values).strip()


def as_json(answer: choices.Answer, differs: Sequence[str] = ()) -> str:
    """The answer with everything it rests on; seconds and bytes."""
    known, code = answer.known, [snippet(answer.case, each, answer.known) for each in answer.routes.itertuples()]
    routes = answer.routes.drop(columns=["need", "within"]).assign(code=code)
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


def case_of(row: Any) -> choices.Case:
    """The case that a row of Known.rows is measured for."""
    (ends,) = (ends for ends, way in choices.WAYS.items() if way == (row.direction, row.array))
    batch = row.arrays if row.batch else 0
    alike = {name: getattr(row, name) for name in choices.NEED if name in choices.Case.__dataclass_fields__}
    return choices.Case(*ends, row.nbytes // max(1, batch), **alike | {"batch": batch})


def about(contract: Route) -> str:
    """What to know of a route, a line each."""
    return "\n".join([f"{said}." for said in promises(contract)] + [f"unusual inputs: {w}" for w in unusual(contract)])


def embedded(known: choices.Known) -> str:
    """JSON that may stand in a script element: the columns FORM of the rows, each as places in a list of its values.

    nbytes   of the source; of several, of each
    command  that asks scripts/advise.py for the same with NBYTES
    title    of the case, and code to paste, where the row is of the route to take
    """
    rows = choices.priced(known.rows)  # who chooses pinned memory has it
    each = [(row, case_of(row), row.kind == choices.BEST) for row in rows.itertuples()]
    rows = rows.assign(
        nbytes=[case.nbytes for _, case, _ in each],
        command=[said("case", "command", case=case, known=known) for _, case, _ in each],
        title=[case_title(case, threads_of(case, known)) if best else "" for _, case, best in each],
        cost=[said("case", "cost", route=row, count=1) for row, _, _ in each],
        code=[snippet(case, row, known) if best else "" for row, case, best in each],
        notes=[about(row.contract) for row, _, _ in each],
    )
    packed = {name: pd.factorize(rows[name]) for name in FORM}
    # what most programs have comes first
    threads = sorted({*rows["threads"]} - {""}, key=lambda each: (each != ALL_THREADS, each))
    document: dict[str, Any] = {
        "ways": {" ".join(pair): way for pair, way in choices.WAYS.items()},
        "shown": SHOWN,
        "threads": [(each, f"{known.threads}, torch's default" if each == ALL_THREADS else each) for each in threads],
        "rows": {name: [places.tolist(), values.tolist()] for name, (places, values) in packed.items()},
    }
    # "</script>" would end the element, and "<!--" begin a comment, wherever a text has them
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=vars).replace("<", "\\u003c")
