"""What a page's form shows: the rows that scripts/advise.py has, in its words, as data for templates/form.js.

The script filters them and computes nothing: what it shows of a route is said here.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analysis.case import BEST, MEASURED, WAYS, Case, Figure, Known, Need, Row, candidate_of

from benchmarks.contracts import ALL_THREADS, PINNED

from . import case


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
        measured = Figure(row.seconds, row.low, row.high, MEASURED, (row.nbytes,))
        own = replace(row, paid="", once=None) if need.host == PINNED else row  # who chooses pinned memory has it
        candidate = candidate_of(need, contract, measured, [own])
        code = [word("\n".join(case.snippet(_case(need, row, ends), candidate, known)))] if row.kind == BEST else []
        cost = case.cost_of(candidate, need.crosses)
        rows.append([row.need, row.nbytes, word(row.route), word(row.kind), row.seconds, cost, *code])
        key = f"{row.need} {word(row.route)}"
        if key not in about:
            notes = [f"{said}." for said in case.promises(contract)]
            notes += [f"unusual inputs: {words}" for words in case.unusual(contract)]
            about[key] = [word(note) for note in notes]
    document: dict[str, Any] = {
        "ways": {" ".join(pair): way for pair, way in WAYS.items()},
        "shown": case.SHOWN,
        "threads": [
            (each, each if each.isdecimal() else f"{known.threads}, torch's default") for each in _threads(known)
        ],
        "needs": [list(vars(need).values()) for need in known.needs],
        "rows": rows,
        "about": about,
        "words": list(words),
    }
    # "</script>" would end the element, and "<!--" begin a comment, wherever a text has them
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _threads(known: Known) -> list[str]:
    """How many threads torch had, what most programs have first."""
    threads = {need.threads for need in known.needs} - {""}
    return sorted(threads, key=lambda each: (each != ALL_THREADS, each))


def _case(need: Need, row: Row, ends: Mapping[tuple[str, bool], tuple[str, str]]) -> Case:
    """The case that a row answers."""
    source, target = ends[need.direction, need.array]
    batch = row.arrays if need.batch else 0
    return Case(
        *(source, target, row.nbytes // max(1, batch), need.dtype, need.layout, need.memory, need.host, need.grad),
        batch=batch,
        enqueue=need.enqueue,
        goal=need.goal,
        threads=need.threads,
    )
