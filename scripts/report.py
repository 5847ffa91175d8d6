#!/usr/bin/env python3
"""Build the page of a machine from its results, and print its answers.

    python scripts/report.py                   the page of every machine that has results
    python scripts/report.py --machine NAME    the page of one machine

Writes index.html (one file that loads nothing), README.md, the figures as SVG and results.csv (every figure) into
reports/NAME/. The same results give the same bytes.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
from analysis import (
    answers,
    comparison,
    comparison_figure,
    figures,
    questions,
    show,
    tables,
    transfer_tables,
    transfers,
)
from analysis.answers import ON_DEVICE, Advice, Answer, Cell
from analysis.cli import Parser, UserError, run
from analysis.figures import Figure
from analysis.results import Results, load, machines
from analysis.sections import Section, transfer_sections
from analysis.show import Code, Line
from analysis.spreadsheet import columns_of, csv_of
from analysis.tables import Table
from analysis.transfers import Transfers
from markupsafe import Markup

REPORTS = Path(__file__).resolve().parent.parent / "reports"
TEMPLATES = Path(__file__).resolve().parent / "analysis"
LEGEND: tuple[Line, ...] = (
    (
        "Transfers are chosen by completion: the call and a synchronize. GB/s are decimal; the limit is the fastest "
        "pinned copy into memory that exists, measured in the same run and direction. A condition is a hazard that "
        "completion heeds by waiting; “no condition” has none. ",
        *(Code("a"), " is a NumPy array, "),
        *(Code("t"), " the tensor to move, "),
        *(Code("device"), " the accelerator, "),
        *(Code("d"), " an existing tensor on it, "),
        *(Code("h"), " an existing host tensor, "),
        *(Code("s"), " a persistent pinned staging tensor, "),
        *(Code("stages"), " two pinned chunks and a side stream."),
    ),
)
TRANSFERS_VERIFIED: Line = (
    "Transfers are not measured that way: before each was timed, what arrived was compared with what was sent.",
)


@dataclass(frozen=True)
class Page:
    """All that the templates show."""

    machine: str
    toolchain: str
    facts: tuple[str, ...]
    answers: list[Answer]
    usual: str  # dtype of the sources that decisions are about
    transfers: list[Advice]
    legend: tuple[Line, ...]  # what the answers about transfers mean
    warnings: tuple[Line, ...]
    sections: list[Section]
    command: str
    rebuild: str
    csv_sha256: str
    columns: dict[str, str]


def of_file(results: Results, file: str) -> Results:
    """What one result file holds."""
    tables = {name: getattr(results, name) for name in ("processes", "values", "missing")}
    kept: dict[str, Any] = {name: table[table["file"] == file] for name, table in tables.items()}
    kept["unknown"] = {key: figures for key, figures in results.unknown.items() if key[0] == file}
    return replace(results, runs=[record for record in results.runs if record["file"] == file], **kept)


def latest(results: Results) -> tuple[Results, Results | None, list[str]]:
    """The results of the file that was run most recently, of the one before it, and the toolchains of all others."""
    found: dict[str, str] = {}
    for table in (results.processes, results.values, results.missing):
        found.update(zip(table["file"], table["toolchain"]))
    whole = [record for record in results.runs if record["file"] in found and not record.get("failed")]
    # a history's last run is its first toolchain again: the page is about what was measured for its own sake
    chosen = [record for record in whole if record.get("profile") != "tracking"] or whole
    recorded = list(dict.fromkeys(record["file"] for record in reversed(chosen))) or list(found)[::-1]
    others = [toolchain for name, toolchain in found.items() if name != recorded[0]]
    before = of_file(results, recorded[1]) if len(recorded) > 1 else None
    return of_file(results, recorded[0]), before, others


def comparison_section(base: Results | None, new: Results) -> Section:
    """What got faster or slower against the run before on this machine; empty where there is none to compare with."""
    title = "Against the run before"
    if base is None or base.processes.empty or new.processes.empty:
        return Section("comparison", title)
    compared = comparison.compare(base, new)
    intro, drawn, after = comparison_figure.section(compared)
    counts = tuple((verdict, str(count)) for verdict, count in compared.counts.items() if count)
    return Section(
        "comparison", title, intro, drawn, (tables.Table(("Verdicts",), ("verdict", "cells"), counts),), after
    )


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


def warnings_of(results: Results, others: Sequence[str], cells: Sequence[Cell], moved: Transfers) -> tuple[Line, ...]:
    """What a reader must know before the answers."""
    found: list[Line] = transfers.impossible(moved)
    failed = results.missing[results.missing["status"] == "failed"]
    if len(failed):
        names = list(dict.fromkeys(failed["benchmark"]))
        cells_failed = "1 cell failed" if len(failed) == 1 else f"{len(failed)} cells failed"
        found.append((f"{cells_failed}, in {show.join(names)}: listed under Machine and method.",))
    processes = max((cell.processes for cell in cells), default=0)
    if 0 < processes < 4:
        plural = "process" if processes == 1 else "processes"
        found.append(
            (
                f"A quick look: {processes} {plural} a cell, too few for an interval or a verdict. The ranges are "
                "those of the processes, not confidence intervals.",
            )
        )
    if others:
        found.append((f"The latest run is shown. There are results of {show.join(others)}, too.",))
    if results.unknown:
        unknown = sorted({name for _, name in results.unknown})
        count = sum(results.unknown.values())
        plural = "figure is" if count == 1 else "figures are"
        parts = ("not shown, of benchmarks that benchmarks.json does not describe any more: ", *tables.named(unknown))
        found.append((f"{count} {plural} ", *parts, "."))
    broken = tables.Semantics(results).broken(results.contracts.values())
    if broken:
        found.append((f"Measurement contradicts {len(broken)} promises of contracts: listed under Contracts.",))
    return tuple(found)


def sections_of(
    results: Results, before: Results | None, cells: list[Cell], made: list[Answer], moved: Transfers
) -> list[Section]:
    """The sections that the results can fill, in the order of the page."""
    missing = tables.Missing(results.missing)
    limit = answers.limit_of(cells)

    def data(figure: Figure) -> tuple[Figure, Table]:
        return figure, tables.curves(figure.cells, missing, limit if figure.limited else None)

    semantics = tables.Semantics(results)
    measured = {cell.direction for cell in cells} | {direction for direction, _ in semantics.alias}
    shown = [key for key in tables.catalogue(results) if key[0] in measured]
    usual = answers.usual_dtype(answers.conversions(cells))
    decisions = [answer for answer in made if answer in answers.decisions(cells)]
    fitted, bent = transfer_tables.fits(
        c for c in answers.conversions(cells) if c.memory in (answers.COPY, answers.INTO)
    )
    first, *more_transfers = transfer_sections(moved, missing)
    sections = [
        Section(
            "decision",
            "Decision table",
            (
                (
                    f"Source of {usual}, by its size in bytes. GB/s are decimal, bytes of the source over seconds; % "
                    "of memcpy compares with C's memmove into warm memory on one thread, measured in the same run, and "
                    f"is shown from where memmove takes {answers.BY_BYTES:g} times its call. Tie: the ranges of the "
                    f"processes overlap, or the medians are within {show.percent(answers.TIE)}. Next: the fastest safe "
                    "route that is slower, and by how much.",
                ),
            ),
            tables=(tables.decision(decisions, limit),) if decisions else (),
        ),
        first,
        Section(
            "size",
            "Time against size",
            (("One line a route. Bars: the range over processes. Dashed: memcpy, the limit of what copies.",),),
            tuple(map(data, figures.times(cells, limit))),
            tuple(fitted),
            tuple(bent),
        ),
        Section(
            "efficiency",
            "Efficiency of copies",
            (
                (
                    "memcpy's seconds over the route's: 100 % is what the machine allows. memcpy writes into warm "
                    "memory; a route that makes fresh memory also pays for the pages it touches for the first time.",
                ),
            ),
            tuple(map(data, figures.efficiency(cells, limit))),
        ),
        Section("dtype", "By dtype", tables=tuple(tables.dtypes(cells, missing))),
        Section("casting", "Casting on the way", tables=tuple(tables.casting(cells, missing))),
        Section(
            "layout",
            "Layout of the source",
            (("Strided: every second element. 5-d: (n, 2, 3, 4, 5). A route that shares memory keeps the strides.",),),
            tables=tuple(tables.layout(cells, missing)),
        ),
        Section(
            "batches",
            "Many small arrays",
            figures=tuple(map(data, figures.batches(cells))),
            tables=tuple(tables.batches(cells, missing)),
        ),
        Section("grad", "Tensors that require grad", tables=tuple(tables.requires_grad(cells, missing))),
        Section(
            "cold",
            "Source not in the caches",
            (
                (
                    "The sources are rotated through more memory than the caches hold. Taking the next one is part of "
                    "the time; the harness's floor under Machine and method says how much.",
                ),
            ),
            tables=tuple(tables.cold(cells, missing)),
        ),
        Section("threads", "More threads", tables=tuple(tables.threads(cells, missing))),
        *more_transfers,
        *(
            Section(
                family,
                f"{family[:1].upper()}{family[1:]}",
                (("The dtype with the most sizes; results.csv holds the others.",),),
                figures=tuple(map(data, figures.others(own))),
                tables=tuple(tables.others(own, missing)),
            )
            for family, own in answers.other_families(cells).items()
        ),
        Section("footprint", "Memory", tables=tuple(tables.footprint(results.values))),
        Section(
            "contracts",
            "Contracts",
            (
                (
                    "Memory and dtype as declared in the catalogue, and beside them as measured on this toolchain by "
                    "writing to one side and looking at the other. What a route does with awkward inputs is declared, "
                    "and tested by tests/test_contracts.py.",
                ),
                (
                    "int8, torch's CharTensor, converts both ways, tested by tests/test_contracts.py; that it cannot "
                    "is an old belief.",
                ),
                *([TRANSFERS_VERIFIED] if moved.main else []),
                *semantics.broken(results.contracts.values()),
            ),
            tables=tuple(tables.contracts(results, semantics, shown)),
        ),
        comparison_section(before, results),
        Section(
            "questions",
            "What users ask",
            tables=(questions.Questions(results, cells, moved).table(questions.device_reason(results.runs)),),
        ),
        _method(results, cells, missing),
    ]
    return [section for section in sections if section]


def _method(results: Results, cells: Sequence[Cell], missing: tables.Missing) -> Section:
    record = results.runs[-1] if results.runs else {}
    parts = [tables.runs(results.runs), tables.environment(record) if record else None]
    parts += [tables.spread(cells), tables.floor(cells), tables.absent(missing)]
    disturbed = record.get("disturbed_cells") or {}
    lengths = {found["sample_time"] for found in results.benchmarks.values() if found.get("sample_time")}
    least = f", repeated so often that it takes {show.seconds(min(lengths))} at least" if lengths else ""
    after: list[Line] = []
    if record:
        after.append((f"Disturbed samples that were kept: {_named(disturbed)}.",))
    counts = results.missing["status"].value_counts()
    after += [
        (f"Cells without a figure: {counts.get('failed', 0)} failed, {counts.get('skipped', 0)} skipped.",),
        (
            f"A sample is a timeit loop over the statement{least}, divided by the number of calls. A process takes "
            "its samples after warming up to steady state. Its seconds are the 25 % quantile of its samples: what the "
            "machine does when left alone.",
        ),
        (
            "A cell's seconds are the median over its processes, and its range is from the lowest to the highest "
            "process. With few processes that range is not a confidence interval, and nothing here is a verdict on a "
            "difference smaller than it.",
        ),
        (
            "A sample is disturbed if its process did not get a processor for nearly all of its time (QUIET in "
            "benchmarks/statement.py). It is taken again, within a limit a process (RETAKES); what is still disturbed "
            "then is kept and counted.",
        ),
        (
            "One thread, unless the section says otherwise. Warm sources: the same array is converted again and "
            "again, so what fits a cache is in it. The result is freed before the next call, so a copy may get the "
            "memory of the one before.",
        ),
        (
            "Limitations: one machine, one toolchain, one run a page. Sizes in between the measured ones are not "
            "known, and a crossover is known only as lying between two of them. Virtual machines share memory "
            "bandwidth with neighbours that no record shows.",
        ),
    ]
    return Section("method", "Machine and method", tables=tuple(table for table in parts if table), after=tuple(after))


def _named(cells: dict[str, int], most: int = 12) -> str:
    """Cells and their counts in words; the largest counts where they are many."""
    if not cells:
        return "none"
    order = sorted(cells.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{count} of {cell}" for cell, count in order[:most]]
    return ", ".join(words) + (f" and {len(order) - most} more cells" if len(order) > most else "")


def page_of(results: Results, before: Results | None, machine: str, others: Sequence[str], csv: str) -> Page:
    """Everything the page of a machine says."""
    cells = answers.cells_of(results)
    made = answers.answers(cells)
    moved = transfers.transfers_of(results, cells, ON_DEVICE)
    about_transfers = transfers.advice(moved)
    record = results.runs[-1] if results.runs else {}
    every = [*results.processes["toolchain"], *results.values["toolchain"], *results.missing["toolchain"]]
    return Page(
        machine=machine,
        toolchain=every[0],
        facts=facts_of(results),
        answers=made,
        usual=answers.usual_dtype(answers.conversions(cells)),
        transfers=about_transfers,
        legend=LEGEND if about_transfers else (),
        warnings=warnings_of(results, others, cells, moved),
        sections=sections_of(results, before, cells, made, moved),
        command=record.get("command", "asv run --record-samples"),
        rebuild=f"python scripts/report.py --machine {machine}",
        csv_sha256=hashlib.sha256(csv.encode()).hexdigest(),
        columns=columns_of(results),
    )


def _templates() -> tuple[jinja2.Template, jinja2.Template]:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    options: dict[str, Any] = {"loader": loader, "trim_blocks": True, "lstrip_blocks": True}
    options |= {"undefined": jinja2.StrictUndefined, "keep_trailing_newline": True}
    web = jinja2.Environment(autoescape=True, **options)
    text = jinja2.Environment(autoescape=False, **options)  # Markdown: every value passes the filter `line`
    for environment, convert in ((web, _html), (text, _markdown)):
        environment.filters["line"] = convert
        environment.filters["size"] = show.size
    return web.get_template("page.html.jinja"), text.get_template("page.md.jinja")


def _html(entry: tables.Entry) -> Markup:
    if isinstance(entry, list):
        return Markup("".join(f"<div>{show.to_html(line)}</div>" for line in entry))
    return Markup(show.to_html(entry))


def _markdown(entry: tables.Entry) -> str:
    lines = entry if isinstance(entry, list) else [entry]
    return "<br>".join(map(show.to_markdown, lines))


def write(directory: Path, page: Page, csv: str) -> Path:
    """Write a page's files; UserError where that is not possible. The figures of an older page are removed."""
    web, text = _templates()
    drawn = [figure for section in page.sections for figure, _ in section.figures]
    files = {f"{figure.name}.svg": figure.file for figure in drawn}
    files |= {"results.csv": csv, "README.md": text.render(page=page), "index.html": web.render(page=page)}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("*.svg"):
            if old.name not in files:
                old.unlink()
        for name, content in files.items():
            (directory / name).write_bytes(content.encode())
    except OSError as error:
        raise UserError(f"cannot write {error.filename or directory}: {error.strerror}") from None
    return directory / "index.html"


def tell(page: Page, path: Path) -> None:
    """Print the answers and where the page is; with colours where rich can be imported."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        for line in _told(page):
            print("".join(part for part, _ in line))
        print(path)
        return
    console = Console(highlight=False, soft_wrap=True)
    for line in _told(page):
        console.print(Text.assemble(*line))
    console.print(Text(str(path), style="underline"))


def _told(page: Page) -> Iterable[list[tuple[str, str]]]:
    """Lines of the terminal, as (text, style of rich)."""
    yield [(page.machine, "bold"), (": " + " · ".join(page.facts), "")]
    for warning in page.warnings:
        yield [(show.to_plain(warning), "yellow")]
    for answer in [*page.answers, *page.transfers]:
        yield [("", "")]
        yield [(answer.title, "bold")]
        for line in answer.lines:
            yield [("  ", ""), *((part, "cyan" if isinstance(part, show.Code) else "") for part in line)]
        for line in answer.notes:
            yield [("  - ", "dim"), *((part, "cyan" if isinstance(part, show.Code) else "dim") for part in line)]
    yield [("", "")]


def build(results: Path, machine: str, output: Path) -> tuple[Page, Path]:
    """Build and write the page of one machine."""
    loaded, before, others = latest(load(results, machine))
    csv = csv_of(loaded)
    page = page_of(loaded, before, machine, others, csv)
    return page, write(output / machine, page, csv)


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--machine", help="build the page of this machine only")
    parser.add_argument("--results", type=Path, default=REPORTS / "results", help="asv's results directory")
    parser.add_argument("--output", type=Path, default=REPORTS, help="directory of the pages")
    chosen = parser.parse_args(argv)
    for machine in machines(chosen.results) if chosen.machine is None else [chosen.machine]:
        page, path = build(chosen.results, machine, chosen.output)
        tell(page, Path(os.path.relpath(path)))
    return 0


if __name__ == "__main__":
    run(main)
