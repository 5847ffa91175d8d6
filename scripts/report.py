#!/usr/bin/env python3
"""Build the pages of a machine from its results, and print its answers.

    python scripts/report.py                   the pages of every machine that has results
    python scripts/report.py --machine NAME    the pages of one machine

Writes index.html (one file that loads nothing), README.md, the figures as SVG and results.csv (every figure) into
reports/NAME/, and where releases of torch or numpy were measured (scripts/track.py) the same of their history into
reports/history/NAME/. The same results give the same bytes.
"""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

from analysis import history
from analysis.answers import answers
from analysis.cells import cells_of, conversions, usual_dtype
from analysis.results import Results, load, machines
from analysis.semantics import Semantics
from analysis.statistics import MIN_PROCESSES
from analysis.transfers import Transfers, transfers_of
from cli import Parser, line, put, run
from measuring.profiles import check_chosen
from pages import show, tables
from pages.advice import advice
from pages.history import page as history_page
from pages.machine import sections_of
from pages.page import Page, prose, write
from pages.show import code
from pages.spreadsheet import columns_of, csv_of
from pages.transfers import advice as transfer_advice

REPORTS = Path(__file__).resolve().parent.parent / "reports"
HISTORY = "history"  # beside the directories of machines
CALM = 0.9  # share of the time at full speed from which a machine is called calm


def of_file(results: Results, file: str) -> Results:
    """What one result file holds."""
    tables = {name: getattr(results, name) for name in ("processes", "values", "missing")}
    kept: dict[str, Any] = {name: table[table["file"] == file] for name, table in tables.items()}
    kept["unknown"] = {key: figures for key, figures in results.unknown.items() if key[0] == file}
    return replace(results, runs=[record for record in results.runs if record["file"] == file], **kept)


def latest(results: Results, elsewhere: Collection[str] = ()) -> tuple[Results, Results | None, list[str]]:
    """The results of the file that was run most recently, of the one before it, and the toolchains of all others but
    those of the files ``elsewhere``, which have a page of their own."""
    found: dict[str, str] = {}
    for table in (results.processes, results.values, results.missing):
        found.update(table[["file", "toolchain"]].drop_duplicates().itertuples(index=False, name=None))
    whole = [record for record in results.runs if record["file"] in found and not record.get("failed")]
    # a history's last run is its first toolchain again: the page is about what was measured for its own sake
    chosen = [record for record in whole if record.get("profile") != "tracking"] or whole
    recorded = list(dict.fromkeys(record["file"] for record in reversed(chosen))) or list(found)[::-1]
    others = [toolchain for name, toolchain in found.items() if name != recorded[0] and name not in elsewhere]
    before = of_file(results, recorded[1]) if len(recorded) > 1 else None
    return of_file(results, recorded[0]), before, others


def facts_of(results: Results) -> tuple[str, ...]:
    """Toolchain, processor, date and size of the evidence, for the head of the page."""
    facts = []
    record = results.runs[-1] if results.runs else {}
    if record:
        at, on = record.get("settings") or {}, record.get("conditions") or {}
        made = record.get("toolchain") or {}
        torch, numpy = at.get("torch") or made.get("torch"), at.get("numpy") or made.get("numpy")
        facts += [f"torch {torch}", f"numpy {numpy}", f"Python {at['python']}" if at.get("python") else ""]
        facts.append(f"{on['cpu']}, {on['cores_allowed']} cores" if on.get("cpu") and on.get("cores_allowed") else "")
        facts.append(tables.device_of(at))
        if isinstance(record.get("calm"), (int, float)):
            facts.append(f"at full speed {show.percent(record['calm'])} of the time")
        facts += [str(record.get("started", ""))[:10], f"profile {record['profile']}" if record.get("profile") else ""]
    else:
        python = [*results.processes["python"], *results.values["python"], *results.missing["python"]][0]
        facts += [f"Python {python}", "no run record: asv was run by hand, so toolchain and date are unknown"]
    if not results.processes.empty:
        counts = results.processes.groupby("cell")["process"].size()
        low, high = counts.min(), counts.max()
        each = f"{low}" if low == high else f"{low} to {high}"
        facts.append(f"{len(counts):,} timed cells, {each} process{'es' if high > 1 else ''} each")
    return tuple(fact for fact in facts if fact)


def busy_machine(results: Results) -> str:
    """How busy the machine was and what that means for the figures; "" where it was calm, or nobody watched."""
    share = results.runs[-1].get("calm") if results.runs else None
    timed = results.processes
    never = timed[timed["calm"].eq(False)]["cell"].nunique()
    if share is None or (share >= CALM and not never):
        return ""
    speed = f"it ran at full speed {show.percent(share)} of the time"
    was = f"The machine was busy: {speed}." if share < CALM else f"The machine was calm for the most part: {speed}."
    if not never:
        return f"{was} Every figure rests on samples that were taken then."
    cells = timed["cell"].nunique()
    return (
        f"{was} Figures rest on samples that were taken then. {never} of {cells} cells never had any: they are marked "
        f"{show.BUSY.strip()}, and nothing is decided by them."
    )


def runs_shown(results: Results) -> list[tuple[dict[str, Any], int, int]]:
    """The runs that timed cells are of: record (empty where it is not known which run), cells, and processes of the
    cell that has most. The latest comes first; a cell with processes of several runs counts as the latest one's."""
    timed = results.processes
    if timed.empty:
        return []
    records = {str(record.get("started", "")): record for record in results.runs}
    cells = timed.groupby("cell", sort=False).agg(run=("run", "max"), processes=("process", "size"))
    found = [(records.get(run, {}), len(own), int(own["processes"].max())) for run, own in cells.groupby("run")]
    return found[::-1]


def of_runs(results: Results) -> list[str]:
    """Which runs the cells are of where there are several, and which of those are a quick look."""
    found: list[str] = []
    shown = runs_shown(results)
    total = sum(count for _, count, _ in shown)
    for record, count, _ in shown[1:] if len(shown) > 1 else []:
        when = f"the run of {str(record['started'])[:16].replace('T', ' ')}" if record else "an earlier run"
        command = f": {code(record['command'])}" if record.get("command") else ""
        found.append(f"{count} of {total} timed cells are of {when}{command}.")
    for _, count, processes in shown:
        if processes < MIN_PROCESSES:
            plural = "process" if processes == 1 else "processes"
            which = "" if len(shown) == 1 else f" in {count} of {total} cells"
            found.append(
                f"A quick look{which}: {processes} {plural} a cell, too few for an interval or a verdict. The ranges "
                "are those of the processes, not confidence intervals."
            )
    return found


def warnings_of(results: Results, others: Sequence[str], moved: Transfers) -> tuple[str, ...]:
    """What a reader must know before the answers."""
    found: list[str] = transfer_advice.impossible(moved)
    failed = results.missing[results.missing["status"] == "failed"]
    if len(failed):
        names = list(dict.fromkeys(failed["benchmark"]))
        cells_failed = "1 cell failed" if len(failed) == 1 else f"{len(failed)} cells failed"
        found.append(f"{cells_failed}, in {show.join(names)}: listed under Machine and method.")
    found += of_runs(results)
    busy = busy_machine(results)
    if busy:
        found.append(busy)
    if others:
        found.append(f"The latest run is shown. There are results of {show.join(others)}, too.")
    if results.unknown:
        unknown = sorted({name for _, name in results.unknown})
        count = sum(results.unknown.values())
        plural = "figure is" if count == 1 else "figures are"
        found.append(
            f"{count} {plural} not shown, of benchmarks that benchmarks.json does not describe any more: "
            f"{tables.named(unknown)}."
        )
    broken = Semantics(results).broken(results.contracts.values())
    if broken:
        found.append(f"Measurement contradicts {len(broken)} promises of contracts: listed under Contracts.")
    return tuple(found)


def page_of(
    results: Results,
    before: Results | None,
    machine: str,
    others: Sequence[str],
    csv: str,
    links: Sequence[tuple[str, str]] = (),
) -> Page:
    """Everything the page of a machine says."""
    cells = cells_of(results)
    made = answers(cells)
    moved = transfers_of(results, cells)
    about_transfers = transfer_advice.advice(moved)
    record = results.runs[-1] if results.runs else {}
    every = [*results.processes["toolchain"], *results.values["toolchain"], *results.missing["toolchain"]]
    return Page(
        title=f"NumPy and PyTorch conversions on {machine}",
        machine=machine,
        facts=facts_of(results),
        boxes=(*map(advice, made), *about_transfers),
        legend=prose(
            "machine_legend",
            conversions=bool(made),
            transfers=bool(about_transfers),
            usual=usual_dtype(conversions(cells)),
        ),
        warnings=warnings_of(results, others, moved),
        sections=sections_of(results, before, cells, made, moved),
        links=tuple(links),
        command=record.get("command", "asv run --record-samples"),
        csv=csv,
        columns=columns_of(results),
        toolchain=every[0],
    )


def tell(page: Page, path: Path) -> None:
    """Print what a page's boxes say and where the page is; with colours where rich can be imported."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        for parts in _told(page):
            print("".join(part for part, _ in parts))
        print(line(str(path)))
        return
    console = Console(highlight=False, soft_wrap=True)
    for parts in _told(page):
        console.print(Text.assemble(*parts))
    console.print(Text(line(str(path)), style="underline"))


def _told(page: Page) -> Iterable[list[tuple[str, str]]]:
    """Lines of the terminal, as (text, style of rich)."""
    yield [(page.machine, "bold"), (": " + " · ".join(page.facts), "")]
    for warning in page.warnings:
        yield [(show.to_plain(warning), "yellow")]
    for box in page.boxes:
        yield [("", "")]
        yield [(box.title, "bold")]
        yield from ([("  ", ""), *_coloured(words, "")] for words in box.said)
        yield from ([("  - ", "dim"), *_coloured(words, "dim")] for words in box.notes)
    yield [("", "")]


def _coloured(sentence: str, style: str) -> list[tuple[str, str]]:
    return [(text, "cyan" if is_code else style) for text, is_code in show.spans(sentence)]


def build(results: Path, machine: str, output: Path) -> Iterator[tuple[Page, Path]]:
    """Build and write the page of one machine, and that of its histories where it has any."""
    everything = load(results, machine)
    histories = history_page.histories_of(everything)
    loaded, before, others = latest(everything, history.files(everything) if histories else ())
    csv = csv_of(loaded)
    links = [(history_page.link(histories), f"../{HISTORY}/{quote(machine)}/")] if histories else []
    page = page_of(loaded, before, machine, others, csv, links)
    yield page, write(output / machine, page)
    if histories:
        csv = history_page.csv_of(histories)
        own = history_page.page_of(everything, histories, csv)
        yield own, write(output / HISTORY / machine, own)


def index(output: Path) -> None:
    """Name the machines that have a page of their histories, for whoever opens the directory."""
    names = sorted(path.parent.name for path in (output / HISTORY).glob("*/index.html"))
    places = [(show.to_markdown(name), quote(name)) for name in names]
    lines = [f"- [{name}]({place}/README.md), [one file of HTML]({place}/index.html)" for name, place in places]
    if names:
        title = "# What releases of torch and numpy changed, by machine"
        put(output / HISTORY / "README.md", "\n".join([title, "", *lines, ""]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--machine", help="build the page of this machine only")
    parser.add_argument("--results", type=Path, default=REPORTS / "results", help="asv's results directory")
    parser.add_argument("--output", type=Path, default=REPORTS, help="directory of the pages")
    chosen = parser.parse_args(argv)
    check_chosen(None, chosen.machine, None)
    for machine in machines(chosen.results) if chosen.machine is None else [chosen.machine]:
        for page, path in build(chosen.results, machine, chosen.output):
            tell(page, Path(os.path.relpath(path)))
    index(chosen.output)
    return 0


if __name__ == "__main__":
    run(main)
