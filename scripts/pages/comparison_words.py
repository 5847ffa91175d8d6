"""A comparison in words: for the terminal, for a pull request, for programs.

Verdicts are said in words, colour only repeats them. What changed comes first, then the counts, then how far to trust
them: the A/A and what was not comparable. Of instructions: what takes more now, and where time says otherwise.
"""

import json
import math
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

import pandas as pd
from analysis import verdicts
from analysis.comparison import Comparison
from analysis.statistics import MIN_PROCESSES
from analysis.verdicts import FASTER, INCONCLUSIVE, NO_CHANGE, SLOWER, Reason, of_verdict
from store.records import MACHINE

from pages import show
from pages.show import code

MARKER = "<!-- numpy-torch-conversion: compare -->"  # finds the comment of an earlier run on a pull request
COLOURS = {SLOWER: "bold red", FASTER: "bold green", INCONCLUSIVE: "dim"}
COLOURS |= {verdicts.FAILED: "red", verdicts.NOT_COMPARABLE: "yellow"}
COLOURS |= {verdicts.MORE: COLOURS[SLOWER], verdicts.FEWER: COLOURS[FASTER]}
FIRST = (SLOWER, FASTER, verdicts.FAILED)  # shown without being asked for, ...
AT_MOST = 20  # ... this many of each
COMMENT_CHARACTERS = 60_000  # GitHub refuses a comment of more than 65,536
MANY = 1000  # processes: beyond it the number is no advice


DIFFERENCE = {name: f"machine ({name}) differs" for name in MACHINE}
DIFFERENCE |= {"samples": "samples a process differ"}


def why(reason: Reason) -> str:
    """A reason in words; "" where there is none."""
    if not reason:
        return ""
    difference = f"{DIFFERENCE.get(reason.about, f'{reason.about} differs')}: {', '.join(map(str, reason.values))}"
    share = percentage(reason.values[0]) if reason.what == verdicts.OTHER_SPEED else ""
    values = {"reason": reason, "difference": difference, "share": share, "processes": MIN_PROCESSES}
    return " ".join(show.prose("comparison_reasons", reason.what.replace(" ", "_"), **values))


def number(value: float, digits: int = 2) -> str:
    """A ratio or probability without a leading zero: 1.08, .93."""
    if not math.isfinite(value):
        return "n/a"
    text = f"{value:.{digits}f}" if value < 100 else f"{value:.3g}"
    return text[1:] if text.startswith("0.") else text


def probability(value: float) -> str:
    """A p or q value: = .003, or < .001."""
    return "< .001" if value < 0.001 else f"= {number(value, 3)}"


def percentage(share: float) -> str:
    """5 %, 0.5 %, 0.42 %."""
    return f"{100 * share:.3g} %"


def verdict_name(verdict: str, comparison: Comparison) -> str:
    """The verdict as people read it: "no change" says of what size."""
    if verdict == NO_CHANGE:
        return f"no change larger than {percentage(comparison.settings.equivalence)}"
    return verdict


def factor(verdict: str, ratio: float) -> str:
    """How many times slower or faster, of the ratio of times: 1.18×."""
    return f"{number(1 / ratio if verdict == FASTER else ratio)}×"


def change_of(row: Mapping[str, Any]) -> str:
    """Ratio and verdict as the sentences have them: 1.18× faster where the ratio of times is .85."""
    return factor(row["verdict"], row["ratio"]) + ("" if row["verdict"] == NO_CHANGE else f" {row['verdict']}")


def change(verdict: str, ratio: float, low: float, high: float, q: float) -> tuple[str, str]:
    """A change that was found, and its evidence: ("1.08× slower", "95 % CI 1.05–1.11; q = .003")."""
    if verdict == FASTER:
        low, high = 1 / high, 1 / low
    return f"{factor(verdict, ratio)} {verdict}", f"95 % CI {number(low)}–{number(high)}; q {probability(q)}"


def sentence(row: Mapping[str, Any], comparison: Comparison) -> str:
    """A cell's verdict with its evidence."""
    verdict = row["verdict"]
    base, new = row["base_processes"], row["new_processes"]
    kind = "fresh processes" if row["fresh"] else "processes"
    processes = f"{base} {kind} a side" if base == new else f"{base} and {new} {kind}"
    if verdict in (SLOWER, FASTER):
        effect, evidence = change(verdict, row["ratio"], row["low95"], row["high95"], row["q"])
        return f"{effect} ({evidence}; {processes})"
    if verdict == NO_CHANGE:
        name = verdict_name(verdict, comparison)
        return f"{name} (90 % CI {number(row['low90'])}–{number(row['high90'])})"
    if verdict == INCONCLUSIVE:
        return f"{verdict}: {_undecided(row, comparison)}"
    return f"{verdict}: {why(row['reason'])}"


def _undecided(row: Mapping[str, Any], comparison: Comparison) -> str:
    seen = f"{number(row['low95'])}–{number(row['high95'])}; " if math.isfinite(row["low95"]) else ""
    if row["reason"].what in verdicts.FINAL:
        return seen + why(row["reason"])
    more = int(row["more"]) if math.isfinite(row["more"]) else 0
    wanted = f"{more:,} more process{'es' if more > 1 else ''}"
    if more > MANY:
        return f"{seen}more than {MANY:,} processes would be needed to decide ±{_margin(comparison)}"
    if row["reason"]:
        return f"{seen}{why(row['reason'])}; at least {wanted} needed"
    side_by_side = "" if comparison.interleaved else ", taken by --run,"
    return f"{seen}about {wanted}{side_by_side} would decide ±{_margin(comparison)}"


def _margin(comparison: Comparison) -> str:
    return percentage(comparison.settings.equivalence)


def cell_line(row: Mapping[str, Any]) -> str:
    """A cell as people know it: its route, then what else tells it apart."""
    values = dict(row["parameters"])
    parts: list[str] = []
    expression = values.pop("route", None) or values.pop("statement", None)
    for name, value in values.items():
        if name in ("nbytes", "sizes"):
            value = " to ".join(show.size(float(size)) for size in (value if name == "sizes" else [value]))
            parts.append(value)
        else:
            parts.append(show.valued(name, value))
    method = str(row["method"]).partition("_")[2]
    parts.append(f"{row['family']}.{row['group']}" + (f" {method}" if method not in ("convert", row["family"]) else ""))
    rest = ", ".join(parts)
    return f"{code(expression)} · {rest}" if expression else rest


def cell_text(row: Mapping[str, Any]) -> str:
    """The same as plain text."""
    return show.bare(cell_line(row))


def counts_line(comparison: Comparison) -> str:
    """All verdicts with their counts, and what the counts add up to."""
    counted = [f"{count} {verdict_name(verdict, comparison)}" for verdict, count in comparison.counts.items() if count]
    return f"{len(comparison.cells)} cells: {show.join(counted)}"


def decided_line(comparison: Comparison) -> str:
    """How much was decided: without it "nothing slower" may mean that nothing was seen."""
    decided = f"{comparison.decided} of {comparison.comparable} cells decided"
    if not comparison.comparable:
        return decided
    return f"{decided}, {percentage(comparison.share_decided)} of those that could be compared"


def all_lines(comparison: Comparison) -> list[str]:
    """How much was decided, and all verdicts with their counts: of times, then of counts."""
    timed = [decided_line(comparison), counts_line(comparison)] if len(comparison.cells) else []
    return [*timed, *filter(None, [counted_line(comparison)])]


def title(comparison: Comparison) -> str:
    base, new = comparison.base, comparison.new
    base_toolchain, new_toolchain = base["toolchain"], new["toolchain"]
    if base["machine"] != new["machine"]:
        return f"{base_toolchain} on {base['machine']} → {new_toolchain} on {new['machine']}"
    return f"{base_toolchain} → {new_toolchain} on {new['machine']}"


def trust(comparison: Comparison) -> tuple[str, ...]:
    """How the figures came about and how often the method errs on them, a sentence each."""
    reasons = []
    for verdict, most in ((verdicts.NOT_COMPARABLE, None), (verdicts.NEW, 3), (verdicts.GONE, 3)):
        counted = Counter(row["reason"] for row in of_verdict(comparison.cells, verdict))
        reasons += [(verdict, cells, why(reason)) for reason, cells in counted.most_common(most)]
    session = math.sqrt(max(comparison.sessions.values(), default=0.0))
    return show.prose(
        "comparison_trust",
        comparison=comparison,
        check=comparison.check,
        rate=percentage(comparison.check.rate),
        bounds=[percentage(bound) for bound in (comparison.check.lower, comparison.check.upper)],
        promise=percentage(comparison.settings.promise),
        learnt=percentage(round(session, 3)) if session else "",
        reasons=reasons,
        notes=[why(note) for note in comparison.notes],
    )


def withheld(comparison: Comparison) -> list[str]:
    """That the method's own check contradicts what it promises, where it does."""
    return [f"verdicts withheld: {_contradicted(comparison)}"] if comparison.withheld else []


def _contradicted(comparison: Comparison) -> str:
    check = comparison.check
    return (
        f"the A/A flags {check.rate:.1%} of cells that cannot differ (at least "
        f"{check.lower:.1%}), and at most {comparison.settings.promise:.1%} was promised: no verdict on this data"
    )


def headline(comparison: Comparison) -> str:
    """The answer in one sentence."""
    counts = comparison.counts
    if comparison.withheld:
        return "could not compare: the data contradicts what the method promises"
    if not comparison.possible:
        return "could not compare: " + why_not(comparison)
    changed = [f"{counts[verdict]} {verdict}" for verdict in (SLOWER, FASTER) if counts[verdict]]
    outcome = f"{show.join(changed)} of {len(comparison.cells)} cells" if changed else "nothing faster, nothing slower"
    if comparison.cells.empty:
        outcome = "" if changed_counts(comparison) else "nothing changed"
    outcome = "; ".join(filter(None, (outcome, changed_counts(comparison))))
    return f"too little decided: {outcome}" if comparison.exit_code == 2 else outcome


def refusal(comparison: Comparison) -> str:
    """Why the exit code is 2, and what to do, in one line."""
    if not comparison.possible:
        return f"could not compare: {why_not(comparison)}"
    return (
        f"too little decided: {decided_line(comparison)}, and --min-decided asks for "
        f"{percentage(comparison.settings.min_decided)}: take more processes (run.py --rounds 8; in turns: "
        "compare.py --run), find a quieter machine, or ask for less"
    )


def why_not(comparison: Comparison) -> str:
    """Why no cell could be judged."""
    if comparison.withheld:
        return _contradicted(comparison)
    if comparison.counts[INCONCLUSIVE]:
        fewest = comparison.cells[["base_processes", "new_processes"]].max().min()
        return f"a verdict takes 4 processes a side and no cell has more than {fewest} on both: run.py --rounds 4"
    reasons = Counter([*comparison.cells["reason"], *comparison.counted["reason"]]).most_common(1)
    return f"no cell has comparable figures on both sides ({why(reasons[0][0])})"


# --- the terminal ----------------------------------------------------------------------------------------------------


def terminal(comparison: Comparison, everything: bool, stream: TextIO = sys.stdout) -> None:
    """Print the comparison: with colours and a table where ``stream`` is a terminal and rich is installed."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        Console = None  # type: ignore[assignment, misc]
    if Console is None or not stream.isatty():
        stream.write(text(comparison, everything))
        return
    console = Console(file=stream, highlight=False)
    console.print(Text(title(comparison), style="bold"))
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    table.add_column("verdict", overflow="fold", ratio=1)
    table.add_column("cell", overflow="fold", ratio=1)
    for verdict, evidence, cell, hidden in _listing(comparison, everything):
        table.add_row(Text(evidence, style=COLOURS.get(verdict, "")), Text(cell, style="dim" if hidden else ""))
    if table.row_count:
        console.print(table)
    styled = [("bold", [headline(comparison)]), ("", all_lines(comparison)), ("bold yellow", withheld(comparison))]
    for style, lines in [*styled, ("dim", trust(comparison))]:
        for line in lines:
            console.print(Text(line, style=style))


def text(comparison: Comparison, everything: bool) -> str:
    """The same as plain text, whatever the width."""
    listing = list(_listing(comparison, everything))
    width = min(max((len(evidence) for _, evidence, _, _ in listing), default=0), 74)
    width = min(width, max(40, shutil.get_terminal_size((160, 24)).columns // 2))
    lines = [title(comparison), ""]
    lines += [f"{evidence:<{width}}  {cell}".rstrip() for _, evidence, cell, _ in listing]
    lines += [""] if listing else []
    lines += [headline(comparison), *all_lines(comparison), *withheld(comparison), *trust(comparison)]
    return "\n".join(lines) + "\n"


def _listing(comparison: Comparison, everything: bool) -> Iterator[tuple[str, str, str, bool]]:
    """(verdict, its sentence, the cell, whether the row stands for hidden ones): what changed first."""
    for verdict, pairs in _told(comparison, everything):
        shown = pairs if everything else pairs[:AT_MOST]
        for said, row in shown:
            yield verdict, said, cell_text(row), False
        if len(pairs) > len(shown):
            yield verdict, f"and {len(pairs) - len(shown)} more", "--all shows them", True


def _told(comparison: Comparison, everything: bool) -> Iterator[tuple[str, list[tuple[str, Mapping[str, Any]]]]]:
    """Verdicts of times, then of counts, with their cells: what is said of each, and its row."""
    for verdict in verdicts.VERDICTS if everything else FIRST:
        yield verdict, [(sentence(row, comparison), row) for row in of_verdict(comparison.cells, verdict)]
    for verdict in dict.fromkeys(comparison.counted["verdict"]) if everything else (*CHANGED_COUNTS, verdicts.FAILED):
        yield verdict, [(count_sentence(row, comparison), row) for row in of_verdict(comparison.counted, verdict)]


# --- a pull request --------------------------------------------------------------------------------------------------


def markdown(comparison: Comparison, everything: bool, command: str) -> str:
    """A comment for a pull request: headline, how much was decided, what changed, how far to trust it, the command."""
    escape = show.to_markdown
    lines = [MARKER, f"### Conversion benchmarks: {escape(headline(comparison))}", ""]
    lines += [f"{escape(title(comparison))}: {escape(decided_line(comparison))}.", ""]
    counted = counted_line(comparison)
    lines += [f"{escape(counted)}.", ""] if counted else []
    pairs = [pair for _, group in _told(comparison, everything) for pair in group]
    listing = [f"| {escape(said)} | {escape(cell_line(row))} |" for said, row in pairs]
    tail = ["", "| verdict | cells |", "| --- | ---: |"]
    for verdict, count in comparison.counts.items():
        tail.append(f"| {escape(verdict_name(verdict, comparison))} | {count} |")
    tail += [f"| all | {len(comparison.cells)} |", "", "<details><summary>How far to trust this</summary>", ""]
    tail += [f"- {escape(line)}" for line in (*withheld(comparison), *trust(comparison))]
    tail += ["", "Made with:", "", show.fenced(command), "</details>", ""]
    if listing:
        lines += ["| verdict | cell |", "| --- | --- |"]
        room = COMMENT_CHARACTERS - sum(len(line) + 1 for line in (*lines, *tail))
        shown = 0
        while shown < len(listing) and room >= len(listing[shown]) + 100:
            room -= len(listing[shown]) + 1
            shown += 1
        lines += listing[:shown]
        if shown < len(listing):
            lines += ["", f"and {len(listing) - shown} more: a comment has room for no more of them"]
    return "\n".join([*lines, *tail])


# --- programs --------------------------------------------------------------------------------------------------------


def as_json(comparison: Comparison, command: str) -> str:
    """Everything, for programs: SI seconds, ratios new / base, null where a cell has no such figure."""
    cells, counted = (
        [
            {name: _plain(value) for name, value in row.items() if name != "parameters"}
            | {"reason": why(row["reason"]), "sentence": said(row, comparison)}
            for row in table.to_dict("records")
        ]
        for table, said in ((comparison.cells, sentence), (comparison.counted, count_sentence))
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
        "headline": headline(comparison),
        "withheld": _contradicted(comparison) if comparison.withheld else "",
        "session_variance": dict(comparison.sessions),
        "counts": comparison.counts,
        "decided": {
            "cells": comparison.decided,
            "of": comparison.comparable,
            "share": _plain(comparison.share_decided),
            "sentence": decided_line(comparison),
        },
        "self_check": {**vars(check), "rate": _plain(check.rate)},
        "skipped_on_both_sides": comparison.skipped,
        "counted_once": comparison.looked_at,
        "notes": [why(note) for note in comparison.notes],
        "cells": cells,
        "counted": counted,
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """A value of a table as JSON has it."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value


# --- counts of instructions -------------------------------------------------------------------------------------------


CHANGED_COUNTS = (verdicts.MORE, verdicts.FEWER)


def count_sentence(row: Mapping[str, Any], comparison: Comparison) -> str:
    """A count's verdict with its evidence, and what the time of the same call says where that is something else."""
    unit, verdict = row["unit"], row["verdict"]
    numbers = f"{row['base_count']:,.0f} → {row['new_count']:,.0f}" if row["base_count"] == row["base_count"] else ""
    range_of = f"{row['low']:.3f}–{row['high']:.3f} by any two repeats"
    if verdict in CHANGED_COUNTS:
        words = f"{row['ratio']:.3g}× the {unit} ({numbers}; {range_of})"
    elif verdict == verdicts.AS_MANY:
        words = f"as many {unit}, to ±{_margin(comparison)} ({numbers}; {range_of})"
    elif verdict == INCONCLUSIVE:
        words = f"inconclusive: {range_of} ({numbers} {unit})"
    else:
        return f"{verdict}: {why(row['reason'])}"
    if row["contradicts"]:
        changed = row["time"] in (SLOWER, FASTER)
        words += f"; but its time: {row['time']}" + (f", {row['time_ratio']:.3g}× as long" if changed else "")
    return words


def counted_line(comparison: Comparison) -> str:
    """How many counts changed and how many did not; "" where nothing is counted in repeats."""
    table = comparison.counted
    if table.empty:
        return ""
    by_verdict = table["verdict"].value_counts(sort=False)
    order = [*comparison.counts_decided, *(name for name in by_verdict.index if name not in comparison.counts_decided)]
    said = show.join([f"{by_verdict[name]} {name}" for name in order if name in by_verdict])
    disagree = int(table["contradicts"].sum())
    rest = f"; time says otherwise of {disagree}" if disagree else ""
    return f"{show.join(list(dict.fromkeys(table['unit'].dropna())))} of {len(table)} calls: {said}{rest}"


def changed_counts(comparison: Comparison) -> str:
    """What changed, in a few words: 2 calls of more instructions; "" where nothing did."""
    by_verdict = comparison.counts_decided
    unit = next(iter(comparison.counted["unit"].dropna()), "")
    words = show.join([f"{by_verdict[name]} of {name}" for name in CHANGED_COUNTS if by_verdict[name]])
    return f"{words} {unit}" if words else ""
