"""A comparison in words: for the terminal, for a pull request, for programs.

Verdicts are in words, and colour only repeats them. Changes come first, then the counts, then how
far to trust them: the A/A check and cells that were not comparable. For instructions: increases,
and cells where time disagrees. Terminal, comment, JSON and page print the same ``summarise`` and
cells.
"""

import itertools
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, TextIO

import pandas as pd
from analysis import verdicts
from analysis.comparison import Comparison
from analysis.results import where
from analysis.verdicts import (
    FAILED,
    FASTER,
    FEWER,
    INCONCLUSIVE,
    MORE,
    NOT_COMPARABLE,
    SLOWER,
    Because,
    Reason,
    largest_first,
)
from pandas import DataFrame
from store.schema import HARDWARE

from . import show
from .tables import Table, render_table

MARKER = "<!-- numpy-torch-conversion: compare -->"  # finds the comment of an earlier run
BOLD, DIM = "1", "2"  # terminal codes
RED, GREEN, YELLOW = "31", "32", "33"
COLOURS = {
    **dict.fromkeys((SLOWER, MORE), f"{BOLD};{RED}"),
    **dict.fromkeys((FASTER, FEWER), f"{BOLD};{GREEN}"),
    INCONCLUSIVE: DIM,
    FAILED: RED,
    NOT_COMPARABLE: YELLOW,
}
TIME_VERDICTS = (SLOWER, FASTER, FAILED)  # always shown, ...
COUNT_VERDICTS = (MORE, FEWER, FAILED)
MAX_CELLS = 20  # ... this many of each
MAX_EVIDENCE_LETTERS = 74  # of a verdict's column in a terminal
COMMENT_CHARACTERS = 60_000  # GitHub refuses a comment of more than 65,536
MAX_PROCESSES = 1000  # a larger number is not advised
# How many reasons are named why cells have such a verdict; None: all
REASONS = {NOT_COMPARABLE: None, verdicts.NEW: 3, verdicts.GONE: 3}
# Blocks of comparison.md.jinja on a whole comparison: later ones quote earlier ones
LINES = (
    "title",
    "decided",
    "timed",
    "counted",
    "changed_counts",
    "obstacle",
    "headline",
    "withheld",
    "refusal",
)
CellRow = Mapping[str, Any]  # of ``Comparison.cells`` or ``counted``


# --- sentences -----------------------------------------------------------------------------------


def reason_text(reason: Reason) -> str:
    """A reason in words; "" where there is none."""
    if not reason:
        return ""
    block = reason.code.replace(" ", "_")
    return show.render_line("comparison_reasons", block, reason=reason, machine=HARDWARE)


def summarise(comparison: Comparison) -> dict[str, Any]:
    """Return the sentences on a comparison by name: those of LINES, each a block of
    comparison.md.jinja, and paragraphs.

    decided         how many cells were decided
    timed           all verdicts of times with their counts; "" without timed cells
    counted         those of instruction counts, or ""
    changed_counts  how many counts rose and fell, or ""
    obstacle        why there is no verdict on times
    withheld        the same where verdicts on times were withheld, else ""
    refusal         why the exit code is 2, and what to do
    counts          what was decided, and all verdicts with their counts
    trust           how the figures came about, and how often the method errs on them
    """
    cells, counted = comparison.cells, comparison.counted
    reasons = Counter([*cells["reason"], *counted["reason"]])
    busy = Counter(reason.side for reason in cells["reason"] if reason.code == verdicts.NEVER_QUIET)
    values = {
        "comparison": comparison,
        "settings": comparison.settings,
        "check": comparison.check,
        "cells": len(cells),
        "of_history": _history_headline(comparison),
        "counted_cells": len(counted),
        "units": [*counted["unit"].dropna().unique()],
        "count_verdicts": {
            **comparison.counts_decided,
            **counted["verdict"].value_counts(sort=False),
        },
        "contradictions": counted["contradicts"].sum(),
        "busy": sum(busy.values()),
        "busy_sides": [*busy],
        "processes": cells[["base_processes", "new_processes"]].min(axis=1).max(),
        "usual_reason": reason_text(max(reasons, key=reasons.__getitem__)),
        "excluded": [*_excluded(cells)],
        "notes": [*map(reason_text, comparison.notes)],
    }
    for block in LINES:
        values[block] = show.render_line("comparison", block, **values)
    for block in ("counts", "trust"):
        values[block] = show.render_paragraphs("comparison", block, **values)
    return values


def _history_headline(comparison: Comparison) -> str:
    """The headline of the page of the history, "" if no time changed or there is no history."""
    changed = comparison.changed
    if not comparison.in_history or not (changed[SLOWER] or changed[FASTER]):
        return ""
    return show.render_line("history", "headline", row=changed)


def _excluded(cells: DataFrame) -> Iterator[tuple[str, int, str]]:
    """Verdict, number of cells and reason of cells that were not compared."""
    for verdict, most in REASONS.items():
        reasons = Counter(where(cells, verdict=verdict)["reason"])
        for reason, count in reasons.most_common(most):
            yield verdict, count, reason_text(reason)


# --- cells ---------------------------------------------------------------------------------------


def cell_text(row: CellRow) -> str:
    """A cell for readers: its route, then its other parameters, its benchmark and method."""
    return show.render_line("comparison", "cell", row=row)


def evidence(row: CellRow, comparison: Comparison) -> str:
    """The verdict on a cell's time or instruction count with its evidence, a sentence."""
    return show.render_line(
        "comparison",
        "of_count" if "unit" in row else "of_time",
        row=row,
        reason=reason_text(row["reason"]),
        final=row["reason"].code in verdicts.FINAL,
        equivalence=comparison.settings.equivalence,
        interleaved=comparison.interleaved,
        most=MAX_PROCESSES,
    )


Cells = list[tuple[str, str]]  # the evidence and the name of each


def _cells(rows: DataFrame, comparison: Comparison) -> Cells:
    return [(evidence(row, comparison), cell_text(row)) for row in rows.to_dict("records")]


def _groups(comparison: Comparison, everything: bool) -> Iterator[tuple[str, Cells]]:
    """Verdicts of times, then of counts, changes first, with their cells: of the changes those that
    count, unless ``everything``."""
    times, counts = comparison.cells, comparison.counted
    tables = (
        (times, verdicts.VERDICTS if everything else TIME_VERDICTS),
        (counts, counts["verdict"].unique() if everything else COUNT_VERDICTS),
    )
    for table, chosen in tables:
        for verdict in chosen:
            counted = table if everything or verdict == FAILED else comparison.changed_rows(table)
            rows = largest_first(where(counted, verdict=verdict))
            yield verdict, _cells(rows, comparison)


def cells_table(rows: DataFrame, comparison: Comparison) -> Table:
    """The cells of a figure and their verdicts."""
    return render_table("comparison", "figure_cells", False, cells=_cells(rows, comparison))


# --- the terminal --------------------------------------------------------------------------------


def terminal(comparison: Comparison, everything: bool, stream: TextIO = sys.stdout) -> None:
    """Print the comparison, with colours where ``stream`` is a terminal."""
    coloured = stream.isatty() and "NO_COLOR" not in os.environ
    stream.write(text(comparison, everything, coloured))


def text(comparison: Comparison, everything: bool, coloured: bool = False) -> str:
    """The comparison as lines, not wrapped to any width. Of many cells, only the first are shown,
    unless ``everything`` is."""
    groups = []
    longest = 0
    for verdict, cells in _groups(comparison, everything):
        shown = cells[: None if everything else MAX_CELLS]
        lines = [(show.bare(words), show.bare(cell)) for words, cell in shown]
        longest = max(longest, *(len(words) for words, _ in lines), 0)
        groups.append((COLOURS.get(verdict, ""), lines, len(cells) - len(shown)))
    return show.render(
        "comparison_terminal",
        summary=summarise(comparison),
        groups=groups,
        width=min(longest, MAX_EVIDENCE_LETTERS),
        coloured=coloured,
        styles={"bold": BOLD, "dim": DIM, "yellow": YELLOW},
    )


# --- a pull request ------------------------------------------------------------------------------


def markdown(comparison: Comparison, everything: bool, command: str) -> str:
    """A comment for a pull request: headline, counts of verdicts, changes, how far to trust them,
    the command."""
    rows = [
        f"| {show.to_markdown(words)} | {show.to_markdown(cell)} |"
        for _, cells in _groups(comparison, everything)
        for words, cell in cells
    ]
    comment = partial(
        show.render,
        "comparison_comment",
        marker=MARKER,
        summary=summarise(comparison),
        counts=comparison.counts,
        equivalence=comparison.settings.equivalence,
        command=command,
        rows=rows,
    )
    room = COMMENT_CHARACTERS - len(comment(shown=0)) - 1
    lengths = itertools.accumulate(len(row) + 1 for row in rows)
    return comment(shown=sum(length <= room for length in lengths)) + "\n"


# --- programs ------------------------------------------------------------------------------------


def as_json(comparison: Comparison, command: str) -> str:
    """The whole comparison for programs: SI seconds, ratios new / base, null where a cell has no
    such figure."""
    summary = summarise(comparison)
    check, settings = comparison.check, comparison.settings
    cells, counted = (
        [_plain_row(row, comparison) for row in table.to_dict("records")]
        for table in (comparison.cells, comparison.counted)
    )
    document = {
        "format": 1,
        "command": command,
        "settings": {**vars(settings), "promise": settings.promise},
        "base": comparison.base,
        "new": comparison.new,
        "interleaved": comparison.interleaved,
        "exit_code": comparison.exit_code,
        "headline": summary["headline"],
        "withheld": summary["obstacle"] if comparison.withheld else "",
        "session_variance": comparison.session_variance,
        "counts": comparison.counts,
        "changed": comparison.changed,
        "decided": {
            "cells": comparison.decided,
            "of": comparison.comparable,
            "share": _plain(comparison.share_decided),
            "sentence": summary["decided"],
        },
        "self_check": {**vars(check), "rate": _plain(check.rate)},
        "skipped_on_both_sides": comparison.skipped,
        "counted_once": comparison.counted_once,
        "notes": summary["notes"],
        "cells": cells,
        "counted": counted,
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain_row(row: CellRow, comparison: Comparison) -> dict[str, object]:
    values = {name: _plain(value) for name, value in row.items() if name != "parameters"}
    sentence = show.bare(evidence(row, comparison))
    return values | {"reason": reason_text(row["reason"]), "sentence": sentence}


def _plain(value: object) -> object:
    """Convert a value of a table for JSON."""
    if isinstance(value, Because):
        return vars(value)
    absent = value is pd.NA or (isinstance(value, float) and not math.isfinite(value))
    return None if absent else value
