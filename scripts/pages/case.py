"""A case as somebody types it, and its answer: in words, as code to paste, as JSON, and as data for a page's form.

The form (templates/form.js) filters the rows that scripts/advise.py has and computes nothing: what it shows of a route
is said here.
"""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from functools import partial
from typing import Any

from analysis import case as cases
from analysis.case import (
    BEST,
    CUDA,
    EXTRAPOLATED,
    INTERPOLATED,
    WAYS,
    Answer,
    Candidate,
    Case,
    Known,
    candidate_of,
    effects_on,
    itemsize,
    uses,
)
from cli import UserError

from benchmarks.contracts import ALIAS, ALL_THREADS, CONTIGUOUS, PINNED, Route

from . import show
from .show import code

LIKENESS = {"cpu": "CPU", "cores": "number of cores", "caches": "caches"}
SHOWN = 5  # routes


# --- in words ---------------------------------------------------------------------------------------------------------


def words(answer: Answer, differs: Sequence[str] = (), asked: bool = False) -> Iterator[str]:
    """Lines for a terminal. differs: in what the machine is not this one; asked: for its results."""
    case, known, best = answer.case, answer.known, answer.ranked[0]
    yield show.to_plain(whose(known))
    if differs and not asked:
        unlike = show.join([LIKENESS[name] for name in differs])
        yield f"Warning: this machine has no results, and differs from that one in {unlike}; scripts/run.py makes some."
    yield ""
    yield show.to_plain(title(case, threads_of(case, known)))
    for place, candidate in enumerate(answer.ranked[:SHOWN], 1):
        yield show.to_plain(f"  {place}. {line_of(candidate, case)}")
    rest = len(answer.ranked) - SHOWN
    if rest > 0:
        yield f"  and {rest} more"
    for note in notes(answer):
        yield show.to_plain(f"  - {note}")
    yield ""
    yield snippet(case, best, known)


def whose(known: Known) -> str:
    """The machine, toolchain and day that an answer is about."""
    return " ".join(show.prose("case_words", "whose", known=known))


def title(case: Case, threads: int = 0) -> str:
    """A case in words. threads: that torch has; 0: nobody asks."""
    return " ".join(show.prose("case_words", "title", case=case, threads=threads))


def threads_of(case: Case, known: Known) -> int:
    """How many threads torch has in a case; 0 where that is no question."""
    threads = case.threads_in(known)
    return known.threads if threads == ALL_THREADS else int(threads or 0)


def line_of(candidate: Candidate, case: Case) -> str:
    """A route with its time and what else there is to know of it in a line."""
    return f"{code(candidate.route)}, {cost_of(candidate, case.device, case.count)}"


def cost_of(candidate: Candidate, device: bool, count: int = 1) -> str:
    return " ".join(show.prose("case_words", "cost", route=candidate, device=device, count=count))


def notes(answer: Answer) -> tuple[str, ...]:
    """What the answer rests on, hazards, settings, and what is missing: a sentence each."""
    case, best = answer.case, answer.ranked[0]
    shown = answer.ranked[:SHOWN]
    return show.prose(
        "case",
        answer=answer,
        case=case,
        best=best,
        shown=shown,
        ties=[best.route, *(each.route for each in answer.ranked if each.tie)],
        rests=routes_by((_rests_on(each, case), each.route) for each in shown),
        one_thread=not (case.device or case.threads or answer.known.spreads) and best.memory != ALIAS,
        promises=routes_by((text, each.route) for each in shown for text in promises(each.contract)),
        unpriced=[each.route for each in shown if each.unpriced],
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


def _rests_on(candidate: Candidate, case: Case) -> str:
    """How a figure came about that was not measured as it stands; "" of one that was."""
    sizes, at = show.sizes(candidate.sizes), show.size(case.total)
    if candidate.how == INTERPOLATED:
        return f"{at}: interpolated between {sizes}"
    return f"{at}: extrapolated from {sizes}" if candidate.how == EXTRAPOLATED else ""


def why_unsafe(contract: Route) -> str:
    """Why a route is not recommended."""
    return contract.hazard or "it gets some inputs wrong without an exception"


def promises(contract: Route) -> Iterator[str]:
    """What somebody who takes the route is to know."""
    yield from filter(None, (contract.hazard, contract.caution))
    if contract.needs:
        yield f"needs {show.join(contract.needs.split())}"


# --- code to paste ----------------------------------------------------------------------------------------------------


def snippet(case: Case, best: Candidate, known: Known) -> str:
    """Python that makes all names a route needs, takes it, and waits where it may return early."""
    count = case.nbytes // itemsize(case.dtype)
    kind = known.device.partition(":")[0] or CUDA
    rows = min(1024, count & -count)  # a power of two
    values: dict[str, Any] = {"case": case, "best": best, "kind": kind, "count": count, "rows": rows}
    return show.written("code_to_paste", uses=partial(uses, best.route), **values).strip()


# --- JSON -------------------------------------------------------------------------------------------------------------


def as_json(answer: Answer, differs: Sequence[str] = ()) -> str:
    """The answer with everything it rests on; seconds and bytes."""
    known = answer.known

    def plain(candidate: Candidate) -> dict[str, Any]:
        fields = {name: value for name, value in asdict(candidate).items() if name not in ("need", "contract")}
        contract = {name: getattr(candidate.contract, name) for name in ("hazard", "caution", "needs", "non_blocking")}
        return {**fields, **contract, "code": snippet(answer.case, candidate, known)}

    document = {
        "case": asdict(answer.case),
        "machine": {name: getattr(known, name) for name in ("machine", "toolchain", "torch", "numpy", "day")},
        "differs": list(differs),
        **{name: [*map(plain, getattr(answer, name))] for name in ("ranked", "conditional", "unsafe")},
        **{name: getattr(answer, name) for name in ("unmeasured", "instead", "arrays")},
        "notes": [show.to_plain(note) for note in notes(answer)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


# --- the form of a page -----------------------------------------------------------------------------------------------

ALIKE = ("dtype", "goal", "layout", "memory", "host", "grad", "enqueue", "threads")  # of a case and of a need


def embedded(known: Known) -> str:
    """JSON that may stand in a script element.

    A row: need, bytes, route, kind, seconds, what it costs in words, and the code to paste of the one to take. Words
    are places in a list, for most of them are said often.
    """
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    rows: list[list[Any]] = []
    about: dict[str, list[int]] = {}
    ends = {way: pair for pair, way in WAYS.items()}
    for row in known.rows:
        need = known.needs[row.need]
        contract = known.contract(row.route, need.direction).on(need.host)
        own = replace(row, paid="", once=None) if need.host == PINNED else row  # who chooses pinned memory has it
        candidate = candidate_of(Candidate(**vars(own)), need, contract)
        batch = row.arrays if need.batch else 0
        alike = {name: getattr(need, name) for name in ALIKE}
        asked = Case(*ends[need.direction, need.array], row.nbytes // max(1, batch), batch=batch, **alike)
        code = [word(snippet(asked, candidate, known))] if row.kind == BEST else []
        cost = cost_of(candidate, need.crosses)
        rows.append([row.need, row.nbytes, word(row.route), word(row.kind), row.seconds, cost, *code])
        key = f"{row.need} {word(row.route)}"
        if key not in about:
            notes = [f"{said}." for said in promises(contract)]
            notes += [f"unusual inputs: {words}" for words in unusual(contract)]
            about[key] = [word(note) for note in notes]
    # what most programs have comes first
    threads = sorted({need.threads for need in known.needs} - {""}, key=lambda each: (each != ALL_THREADS, each))
    document: dict[str, Any] = {
        "ways": {" ".join(pair): way for pair, way in WAYS.items()},
        "shown": SHOWN,
        "threads": [(each, f"{known.threads}, torch's default" if each == ALL_THREADS else each) for each in threads],
        "needs": [list(vars(need).values()) for need in known.needs],
        "rows": rows,
        "about": about,
        "words": list(words),
    }
    # "</script>" would end the element, and "<!--" begin a comment, wherever a text has them
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


# --- a case as somebody types it --------------------------------------------------------------------------------------


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
ENDS = ", ".join(cases.ENDS)
MEMORIES = {"any": (), "own": ("--own",), "share": ("--share",), "into": ("--into-buffer",)}


def size(text: str) -> int:
    """Bytes of "3MiB", "3 MB" or "4096"; UserError where that is no whole number of them."""
    matched = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*(|[kmg]i?)b?\s*", text, re.IGNORECASE)
    nbytes = Fraction(matched[1]) * UNITS[matched[2].lower()] if matched else Fraction(1, 2)
    if nbytes.denominator != 1:
        raise UserError(f"--nbytes {text!r}: write bytes such as 4096, 3MiB or 3MB")
    if nbytes < 1:
        raise UserError(f"--nbytes {text}: one byte at least")
    return int(nbytes)


def whole(option: str, text: str, least: int | None = None) -> int:
    """A whole number; UserError where it is none, or less than that."""
    try:
        number = int(text)
    except ValueError:
        raise UserError(f"{option} {text!r} is no whole number") from None
    if least is not None and number < least:
        raise UserError(f"{option} {text}: {least} at least")
    return number


def case_of(chosen: argparse.Namespace) -> Case:
    """The case that was typed; UserError where it contradicts itself."""
    if chosen.host not in ("", *cases.HOSTS):
        raise UserError(f"--source {chosen.host}: {' or '.join(cases.HOSTS)}")
    typed = {name: getattr(chosen, name) for name in Case.__dataclass_fields__}
    counted = {name: whole(f"--{name}", typed[name]) for name in ("batch", "count")}
    case = Case(**typed | counted | {"nbytes": size(chosen.nbytes)})
    cases.check(case)
    return case


def one_of(names: Iterable[str], text: str) -> str:
    """One of these; UserError where it is none."""
    if text not in names:
        raise UserError(f"one of {', '.join(names)}")
    return text


# Asked one at a time: the option, the question, what Enter says, and what raises UserError at another answer
QUESTIONS: tuple[tuple[str, str, str, Callable[[str], object]], ...] = (
    ("from", f"What have you got? ({ENDS})", "numpy", partial(one_of, cases.ENDS)),
    ("to", f"Where do you want it? ({ENDS})", "torch", partial(one_of, cases.ENDS)),
    ("nbytes", "How large is it? (such as 4096, 3MiB)", "1MiB", size),
    ("dtype", "Of which dtype?", "float32", str),
    ("layout", "In which layout? (contiguous, strided, transposed, fortran, 5-d, 0-d)", CONTIGUOUS, str),
    (
        "memory",
        "Must the result be a copy, share memory, or go into an existing buffer? (any, own, share, into)",
        "any",
        partial(one_of, MEMORIES),
    ),
    ("count", "How many times?", "1", partial(whole, "--count", least=1)),
)


def ask() -> list[str]:
    """The arguments that answers to questions make; UserError where the input ends."""
    given: list[str] = []
    for option, question, usual, check in QUESTIONS:
        said = ""
        while not said:
            print(f"{question} [{usual}] ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                raise UserError("no more answers; python scripts/advise.py --help lists the options")
            said = line.strip() or usual
            try:
                check(said)
            except UserError as error:
                print(error, file=sys.stderr)
                said = ""
        given += MEMORIES[said] if option == "memory" else (f"--{option}", said)
    print(f"\n{shlex.join(['python', 'scripts/advise.py', *given])}\n", file=sys.stderr)
    return given
