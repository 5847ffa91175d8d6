"""A comparison in words: for the terminal, for a pull request, for programs.

Verdicts are in words, and colour only repeats them. Changes come first, then the counts, then how far to trust them:
the A/A check and cells that were not comparable. For instructions: increases, and cells where time disagrees.
"""

import itertools
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

import pandas as pd
from analysis import verdicts
from analysis.comparison import Comparison
from analysis.verdicts import FASTER, INCONCLUSIVE, NO_CHANGE, SLOWER, Reason, rows_with_verdict
from store.schema import MACHINE

from pages import show
from pages.show import code

MARKER = "<!-- numpy-torch-conversion: compare -->"  # finds the comment of an earlier run on a pull request
BOLD, DIM = "1", "2"  # terminal codes
COLOURS = {
    SLOWER: "1;31",
    FASTER: "1;32",
    INCONCLUSIVE: DIM,
    verdicts.FAILED: "31",
    verdicts.NOT_COMPARABLE: "33",
}
COLOURS |= {verdicts.MORE: COLOURS[SLOWER], verdicts.FEWER: COLOURS[FASTER]}
CHANGED_COUNTS = (verdicts.MORE, verdicts.FEWER)
FIRST = (SLOWER, FASTER, verdicts.FAILED)  # always shown, ...
AT_MOST = 20  # ... this many of each
COMMENT_CHARACTERS = 60_000  # GitHub refuses a comment of more than 65,536
MANY = 1000  # processes: a larger number is not advised


def reason_text(reason: Reason) -> str:
    """A reason in words; "" where there is none."""
    block = reason.code.replace(" ", "_")
    about = {"reason": reason, "machine": MACHINE, "words": sys.modules[__name__]}
    return show.render_line("comparison_reasons", block, **about) if reason else ""


def number(value: float, digits: int = 2) -> str:
    """A ratio or probability: 1.08, 0.93; a large or tiny one has three significant digits: 1,230."""
    return (
        f"{value:.{digits}f}"
        if value == 0 or 10**-digits / 2 <= value < 100
        else show.significant(value)
    )


def probability(value: float) -> str:
    """A p or q value: = 0.003, or < 0.001."""
    return "< 0.001" if value < 0.001 else f"= {number(value, 3)}"


def ends(low: float, high: float) -> str:
    return f"{number(low)}–{number(high)}"


def percentage(share: float) -> str:
    """5 %, 0.5 %, 0.42 %."""
    return f"{100 * share:.3g} %"


def verdict_name(verdict: str, comparison: Comparison) -> str:
    """The verdict for readers; "no change" names the size of change that is excluded."""
    if verdict == NO_CHANGE:
        return f"no change larger than {percentage(comparison.settings.equivalence)}"
    return verdict


def change_of(row: Mapping[str, Any]) -> str:
    """Ratio and verdict for a sentence: 1.18× faster if the ratio of times is 0.85."""
    ratio = 1 / row["ratio"] if row["verdict"] == FASTER else row["ratio"]
    return f"{number(ratio)}×" + ("" if row["verdict"] == NO_CHANGE else f" {row['verdict']}")


def sentences(block: str, comparison: Comparison, **values: Any) -> tuple[str, ...]:
    """The sentences of a block of comparison.md.jinja."""
    about = {
        "comparison": comparison,
        "settings": comparison.settings,
        "check": comparison.check,
        "many": MANY,
    }
    about |= {"words": sys.modules[__name__], "verdicts": verdicts, "Counter": Counter}
    return show.render_paragraphs("comparison", block, **about, **values)


def sentence(block: str, comparison: Comparison, **values: Any) -> str:
    """The sentences of a block in one line."""
    return " ".join(sentences(block, comparison, **values))


def listed(counts: Mapping[str, int], comparison: Comparison) -> str:
    """Verdicts with their counts, without counts of zero."""
    return show.join(
        [
            f"{count} {verdict_name(verdict, comparison)}"
            for verdict, count in counts.items()
            if count
        ]
    )


def cell_line(row: Mapping[str, Any]) -> str:
    """A cell for readers: its route, then its other parameters, its benchmark and method."""
    values = dict(row["parameters"])
    expression = values.pop("route", None) or values.pop("statement", None)
    parts = [show.parameter_text(name, value) for name, value in values.items()]
    method = str(row["method"]).partition("_")[2]
    parts.append(
        f"{row['family']}.{row['group']}"
        + (f" {method}" if method not in ("convert", row["family"]) else "")
    )
    rest = ", ".join(parts)
    return f"{code(expression)} · {rest}" if expression else rest


# --- the terminal ----------------------------------------------------------------------------------------------------


def terminal(comparison: Comparison, everything: bool, stream: TextIO = sys.stdout) -> None:
    """Print the comparison, with colours where ``stream`` is a terminal."""
    stream.write(
        text(comparison, everything, coloured=stream.isatty() and "NO_COLOR" not in os.environ)
    )


def text(comparison: Comparison, everything: bool, coloured: bool = False) -> str:
    """The comparison as lines, not wrapped to any width."""

    def styled(style: str, line: str) -> str:
        return f"\x1b[{style}m{line}\x1b[0m" if coloured and style else line

    listing: list[tuple[str, str, str]] = []  # style of a verdict, its sentence, the cell
    for verdict, pairs in _told(comparison, everything):
        shown = pairs if everything else pairs[:AT_MOST]
        rows = [(words, show.bare(cell_line(row))) for words, row in shown]
        if len(pairs) > len(shown):
            rows.append((f"and {len(pairs) - len(shown)} more", styled(DIM, "--all shows them")))
        listing += [(COLOURS.get(verdict, ""), *row) for row in rows]
    width = min(max((len(evidence) for _, evidence, _ in listing), default=0), 74)
    lined = [styled(BOLD, sentence("title", comparison)), ""]
    for style, evidence, cell in listing:
        lined.append(f"{styled(style, evidence)}{' ' * (width - len(evidence))}  {cell}".rstrip())
    lined += [""] if listing else []
    lined += [styled(BOLD, sentence("headline", comparison)), *sentences("counts", comparison)]
    lined += [
        styled(COLOURS[verdicts.NOT_COMPARABLE], line) for line in sentences("withheld", comparison)
    ]
    return (
        "\n".join([*lined, *(styled(DIM, line) for line in sentences("trust", comparison))]) + "\n"
    )


def _told(
    comparison: Comparison, everything: bool
) -> Iterator[tuple[str, list[tuple[str, Mapping[str, Any]]]]]:
    """Verdicts of times, then of counts, changes first. Each comes with its cells: a sentence and the row of each."""
    for verdict in verdicts.VERDICTS if everything else FIRST:
        yield (
            verdict,
            [
                (sentence("of_time", comparison, row=row), row)
                for row in rows_with_verdict(comparison.cells, verdict)
            ],
        )
    for verdict in (
        dict.fromkeys(comparison.counted["verdict"])
        if everything
        else (*CHANGED_COUNTS, verdicts.FAILED)
    ):
        yield (
            verdict,
            [
                (sentence("of_count", comparison, row=row), row)
                for row in rows_with_verdict(comparison.counted, verdict)
            ],
        )


# --- a pull request --------------------------------------------------------------------------------------------------


def markdown(comparison: Comparison, everything: bool, command: str) -> str:
    """A comment for a pull request: headline, counts of verdicts, changes, how far to trust them, the command."""
    pairs = [pair for _, group in _told(comparison, everything) for pair in group]
    rows = [
        f"| {show.to_markdown(verdict)} | {show.to_markdown(cell_line(row))} |"
        for verdict, row in pairs
    ]

    def comment(shown: int) -> str:
        about: dict[str, Any] = {
            "comparison": comparison,
            "words": sys.modules[__name__],
            "command": command,
        }
        return show.render("comparison_comment", rows=rows, shown=shown, **about) + "\n"

    room = COMMENT_CHARACTERS - len(comment(0))
    return comment(
        sum(length <= room for length in itertools.accumulate(len(row) + 1 for row in rows))
    )


# --- programs --------------------------------------------------------------------------------------------------------


def as_json(comparison: Comparison, command: str) -> str:
    """The whole comparison for programs: SI seconds, ratios new / base, null where a cell has no such figure."""
    cells, counted = (
        [
            {name: _plain(value) for name, value in row.items() if name != "parameters"}
            | {
                "reason": reason_text(row["reason"]),
                "sentence": sentence(block, comparison, row=row),
            }
            for row in table.to_dict("records")
        ]
        for table, block in ((comparison.cells, "of_time"), (comparison.counted, "of_count"))
    )
    check = comparison.check
    document = {
        "format": 1,
        "command": command,
        "settings": {**vars(comparison.settings), "promise": comparison.settings.promise},
        "base": comparison.base,
        "new": comparison.new,
        "interleaved": comparison.interleaved,
        "exit_code": comparison.exit_code,
        "headline": sentence("headline", comparison),
        "withheld": sentence("why_not", comparison) if comparison.withheld else "",
        "session_variance": dict(comparison.session_variance),
        "counts": comparison.counts,
        "decided": {
            "cells": comparison.decided,
            "of": comparison.comparable,
            "share": _plain(comparison.share_decided),
            "sentence": sentence("decided", comparison),
        },
        "self_check": {**vars(check), "rate": _plain(check.rate)},
        "skipped_on_both_sides": comparison.skipped,
        "counted_once": comparison.counted_once,
        "notes": [reason_text(note) for note in comparison.notes],
        "cells": cells,
        "counted": counted,
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Convert a value of a table for JSON."""
    absent = value is pd.NA or (isinstance(value, float) and not math.isfinite(value))
    return None if absent else value
