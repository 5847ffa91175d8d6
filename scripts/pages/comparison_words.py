"""A comparison in words: for the terminal, for a pull request, for programs.

Verdicts are in words, and colour only repeats them. Changes come first, then the counts, then how
far to trust them: the A/A check and cells that were not comparable. For instructions: increases,
and cells where time disagrees. Terminal, comment, JSON and page print the same ``Summary`` and
cells.
"""

import itertools
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TextIO

import pandas as pd
from analysis import verdicts
from analysis.comparison import Comparison
from analysis.verdicts import (
    FAILED,
    FASTER,
    FEWER,
    INCONCLUSIVE,
    MORE,
    NO_CHANGE,
    NOT_COMPARABLE,
    SLOWER,
    Reason,
    rows_with_verdict,
)
from store.schema import MACHINE

from . import show
from .tables import Table, render_table

MARKER = "<!-- numpy-torch-conversion: compare -->"  # finds the comment of an earlier run
BOLD, DIM = "1", "2"  # terminal codes
RED, GREEN, YELLOW = "31", "32", "33"
COLOURS = {
    SLOWER: f"{BOLD};{RED}",
    MORE: f"{BOLD};{RED}",
    FASTER: f"{BOLD};{GREEN}",
    FEWER: f"{BOLD};{GREEN}",
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


CellRow = Mapping[str, Any]  # of ``Comparison.cells`` or ``counted``


# --- figures -------------------------------------------------------------------------------------


def number(value: float, digits: int = 2) -> str:
    """A ratio or probability: 1.08, 0.93; a large or tiny one has three significant digits."""
    if value == 0 or 10**-digits / 2 <= value < 100:
        return f"{value:.{digits}f}"
    return show.significant(value)


def probability(value: float) -> str:
    """A p or q value: = 0.003, or < 0.001."""
    return "< 0.001" if value < 0.001 else f"= {number(value, 3)}"


def ratio_range(low: float, high: float) -> str:
    return f"{number(low)}–{number(high)}"


def percentage(share: float) -> str:
    """5 %, 0.5 %, 0.42 %."""
    return f"{100 * share:.3g} %"


def verdict_name(verdict: str, equivalence: float) -> str:
    """The verdict for readers; "no change" names the size of change that is excluded."""
    return f"no change larger than {percentage(equivalence)}" if verdict == NO_CHANGE else verdict


def change_text(row: CellRow) -> str:
    """Ratio and verdict for a sentence: 1.18× faster if the ratio of times is 0.85."""
    ratio = 1 / row["ratio"] if row["verdict"] == FASTER else row["ratio"]
    return f"{number(ratio)}×" + ("" if row["verdict"] == NO_CHANGE else f" {row['verdict']}")


def count_list(counts: Mapping[str, int], equivalence: float) -> str:
    """Verdicts with their counts, without counts of zero."""
    texts = [
        f"{count} {verdict_name(verdict, equivalence)}"
        for verdict, count in counts.items()
        if count
    ]
    return show.join(texts)


FUNCTIONS = {  # that sentences call
    each.__name__: each
    for each in (
        number,
        probability,
        ratio_range,
        percentage,
        verdict_name,
        change_text,
        count_list,
    )
}


# --- sentences -----------------------------------------------------------------------------------


def reason_text(reason: Reason) -> str:
    """A reason in words; "" where there is none."""
    if not reason:
        return ""
    block = reason.code.replace(" ", "_")
    return show.render_line(
        "comparison_reasons", block, reason=reason, machine=MACHINE, percentage=percentage
    )


@dataclass(frozen=True)
class Summary:
    """The sentences on a whole comparison, each a block of comparison.md.jinja.

    decided         how many cells were decided
    timed           all verdicts of times with their counts; "" without timed cells
    counted         those of instruction counts, or ""
    changed_counts  how many counts rose and fell, or ""
    obstacle        why there is no verdict on times
    withheld        the same where verdicts on times were withheld, else ""
    refusal         why the exit code is 2, and what to do
    trust           how the figures came about, and how often the method errs on them
    """

    title: str
    decided: str
    timed: str
    counted: str
    changed_counts: str
    obstacle: str
    headline: str
    withheld: str
    refusal: str
    trust: tuple[str, ...]

    @property
    def counts(self) -> tuple[str, ...]:
        """What was decided, and all verdicts with their counts."""
        return tuple(filter(None, (self.timed and self.decided, self.timed, self.counted)))


LINES = [name for name in Summary.__dataclass_fields__ if name != "trust"]


def summarise(comparison: Comparison) -> Summary:
    """Put a comparison into sentences."""
    cells, counted = comparison.cells, comparison.counted
    reasons = Counter([*cells["reason"], *counted["reason"]])
    values = {
        **FUNCTIONS,
        "comparison": comparison,
        "settings": comparison.settings,
        "check": comparison.check,
        "cells": len(cells),
        "counted_cells": len(counted),
        "units": [*counted["unit"].dropna().unique()],
        "count_verdicts": {
            **comparison.counts_decided,
            **counted["verdict"].value_counts(sort=False),
        },
        "contradictions": counted["contradicts"].sum(),
        "busy": sum(reason.code == verdicts.NEVER_QUIET for reason in cells["reason"]),
        "processes": cells[["base_processes", "new_processes"]].min(axis=1).max(),
        "usual_reason": reason_text(max(reasons, key=reasons.__getitem__)),
        "excluded": [*_excluded(cells)],
        "notes": [*map(reason_text, comparison.notes)],
    }
    for block in LINES:  # later ones quote earlier ones
        values[block] = show.render_line("comparison", block, **values)
    trust = show.render_paragraphs("comparison", "trust", **values)
    return Summary(**{block: values[block] for block in LINES}, trust=trust)


def _excluded(cells: pd.DataFrame) -> Iterator[tuple[str, int, str]]:
    """Verdict, number of cells and reason of cells that were not compared."""
    for verdict, most in REASONS.items():
        reasons = Counter(cells.loc[cells["verdict"] == verdict, "reason"])
        for reason, count in reasons.most_common(most):
            yield verdict, count, reason_text(reason)


# --- cells ---------------------------------------------------------------------------------------


def cell_text(row: CellRow) -> str:
    """A cell for readers: its route, then its other parameters, its benchmark and method."""
    values = dict(row["parameters"])
    expression = values.pop("route", None) or values.pop("statement", None)
    parts = [show.code(expression)] if expression else []
    benchmark = f"{row['family']}.{row['group']}"
    method = str(row["method"]).partition("_")[2]
    if method not in ("convert", row["family"]):
        benchmark += f" {method}"
    parts.append(
        ", ".join([*(show.parameter_text(name, values[name]) for name in values), benchmark])
    )
    return " · ".join(parts)


def time_evidence(row: CellRow, comparison: Comparison) -> str:
    """The verdict on a cell's time with its evidence, a sentence."""
    return _evidence("of_time", row, comparison)


def count_evidence(row: CellRow, comparison: Comparison) -> str:
    """The verdict on a cell's instruction count with its evidence, a sentence."""
    return _evidence("of_count", row, comparison)


def _evidence(block: str, row: CellRow, comparison: Comparison) -> str:
    return show.render_line(
        "comparison",
        block,
        **FUNCTIONS,
        row=row,
        reason=reason_text(row["reason"]),
        final=row["reason"].code in verdicts.FINAL,
        equivalence=comparison.settings.equivalence,
        interleaved=comparison.interleaved,
        most=MAX_PROCESSES,
    )


Cells = list[tuple[str, str]]  # the evidence and the name of each


def _groups(comparison: Comparison, everything: bool) -> Iterator[tuple[str, Cells]]:
    """Verdicts of times, then of counts, changes first, with their cells."""
    counted = dict.fromkeys(comparison.counted["verdict"])
    for verdict in verdicts.VERDICTS if everything else TIME_VERDICTS:
        rows = rows_with_verdict(comparison.cells, verdict)
        yield verdict, [(time_evidence(row, comparison), cell_text(row)) for row in rows]
    for verdict in counted if everything else COUNT_VERDICTS:
        rows = rows_with_verdict(comparison.counted, verdict)
        yield verdict, [(count_evidence(row, comparison), cell_text(row)) for row in rows]


def cells_table(rows: Sequence[CellRow], comparison: Comparison) -> Table:
    """The cells of a figure and their verdicts."""
    cells = [(cell_text(row), time_evidence(row, comparison)) for row in rows]
    return render_table("comparison", "figure_cells", False, cells=cells)


def verdicts_table(comparison: Comparison) -> Table:
    """The number of cells with each verdict on times."""
    return render_table("comparison", "verdicts", counts=comparison.counts)


# --- the terminal --------------------------------------------------------------------------------


def terminal(comparison: Comparison, everything: bool, stream: TextIO = sys.stdout) -> None:
    """Print the comparison, with colours where ``stream`` is a terminal."""
    coloured = stream.isatty() and "NO_COLOR" not in os.environ
    stream.write(text(comparison, everything, coloured))


def text(comparison: Comparison, everything: bool, coloured: bool = False) -> str:
    """The comparison as lines, not wrapped to any width."""
    styled = _styled if coloured else lambda style, line: line
    cells = [*_listing(comparison, everything)]
    width = min(max((len(cell[1]) for cell in cells), default=0), MAX_EVIDENCE_LETTERS)
    summary = summarise(comparison)
    lines = [styled(BOLD, summary.title), ""]
    for style, evidence, cell, cell_style in cells:
        gap = " " * (width - len(evidence))
        lines.append(f"{styled(style, evidence)}{gap}  {styled(cell_style, cell)}".rstrip())
    lines += [""] * bool(cells)
    lines += [styled(BOLD, summary.headline), *summary.counts]
    lines += [styled(YELLOW, summary.withheld)] * bool(summary.withheld)
    lines += [styled(DIM, line) for line in summary.trust]
    return "\n".join(lines) + "\n"


def _styled(style: str, line: str) -> str:
    return f"\x1b[{style}m{line}\x1b[0m" if style else line


def _listing(comparison: Comparison, everything: bool) -> Iterator[tuple[str, str, str, str]]:
    """Each cell's evidence and name, with the style of both; of many, only the first."""
    for verdict, cells in _groups(comparison, everything):
        style = COLOURS.get(verdict, "")
        shown = len(cells) if everything else MAX_CELLS
        for evidence, cell in cells[:shown]:
            yield style, evidence, show.bare(cell), ""
        if len(cells) > shown:
            yield style, f"and {len(cells) - shown} more", "--all shows them", DIM


# --- a pull request ------------------------------------------------------------------------------


def markdown(comparison: Comparison, everything: bool, command: str) -> str:
    """A comment for a pull request: headline, counts of verdicts, changes, how far to trust them,
    the command."""
    rows = [
        f"| {show.to_markdown(evidence)} | {show.to_markdown(cell)} |"
        for _, cells in _groups(comparison, everything)
        for evidence, cell in cells
    ]
    comment = partial(
        show.render,
        "comparison_comment",
        marker=MARKER,
        summary=summarise(comparison),
        counts=comparison.counts,
        label=partial(verdict_name, equivalence=comparison.settings.equivalence),
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
    check = comparison.check
    document = {
        "format": 1,
        "command": command,
        "settings": {**vars(comparison.settings), "promise": comparison.settings.promise},
        "base": comparison.base,
        "new": comparison.new,
        "interleaved": comparison.interleaved,
        "exit_code": comparison.exit_code,
        "headline": summary.headline,
        "withheld": summary.obstacle if comparison.withheld else "",
        "session_variance": dict(comparison.session_variance),
        "counts": comparison.counts,
        "decided": {
            "cells": comparison.decided,
            "of": comparison.comparable,
            "share": _plain(comparison.share_decided),
            "sentence": summary.decided,
        },
        "self_check": {**vars(check), "rate": _plain(check.rate)},
        "skipped_on_both_sides": comparison.skipped,
        "counted_once": comparison.counted_once,
        "notes": [reason_text(note) for note in comparison.notes],
        "cells": [
            _plain_row(row) | {"sentence": time_evidence(row, comparison)}
            for row in comparison.cells.to_dict("records")
        ],
        "counted": [
            _plain_row(row) | {"sentence": count_evidence(row, comparison)}
            for row in comparison.counted.to_dict("records")
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain_row(row: CellRow) -> dict[str, object]:
    values = {name: _plain(value) for name, value in row.items() if name != "parameters"}
    return values | {"reason": reason_text(row["reason"])}


def _plain(value: object) -> object:
    """Convert a value of a table for JSON."""
    absent = value is pd.NA or (isinstance(value, float) and not math.isfinite(value))
    return None if absent else value
