"""The sections of a machine's page: what is said about conversions on its processor, and in which order."""

from collections.abc import Sequence

from analysis import choice, comparison, transfers
from analysis.answers import PLAIN, Answer
from analysis.cells import BY_BYTES, Cell, conversions, limit_of, usual_dtype
from analysis.results import Results
from analysis.semantics import Semantics
from analysis.statistics import MIN_PROCESSES
from analysis.transfers import Transfers

from pages.comparison import figure as comparison_figure
from pages.transfers.sections import transfer_sections

from . import figures, questions, show, tables
from .advice import capital
from .figures import Figure
from .page import Section, prose
from .tables import Table

# Families with a place on the page
FAMILIES = ("conversion", "casting", "layout", "batches", "cold", "threads", "limits", *transfers.FAMILIES)
TRANSFERS_VERIFIED: str = (
    "Transfers are not measured that way: before each was timed, what arrived was compared with what was sent."
)


def sections_of(
    results: Results, before: Results | None, cells: list[Cell], made: list[Answer], moved: Transfers
) -> list[Section]:
    """The sections that the results can fill, in the order of the page."""
    missing = tables.Missing(results.missing)
    limit = limit_of(cells)

    def data(figure: Figure) -> tuple[Figure, Table]:
        return figure, tables.curves(figure.cells, missing, limit if figure.limited else None)

    semantics = Semantics(results)
    measured = {cell.direction for cell in cells} | {direction for direction, _ in semantics.alias}
    shown = [key for key in tables.catalogue(results) if key[0] in measured]
    plain = conversions(cells)
    usual, decisions = usual_dtype(plain), [answer for answer in made if answer.need.kind == PLAIN]
    first, *more_transfers = transfer_sections(moved, missing)
    sections = [
        Section(
            "decision",
            "Decision table",
            (
                f"Source of {usual}, by its size in bytes. GB/s are decimal, bytes of the source over seconds; % "
                "of memcpy compares with C's memmove into warm memory on one thread, measured in the same run, and "
                f"is shown from where memmove takes {BY_BYTES:g} times its call. {tables.TIE} Next: the "
                "fastest safe route that is slower, and by how much.",
            ),
            tables=(tables.decision(decisions, limit),) if decisions else (),
        ),
        first,
        Section(
            "size",
            "Time against size",
            ("One line a route. Bars: the range over processes. Dashed: memcpy, the limit of what copies.",),
            tuple(map(data, figures.times(cells, limit))),
        ),
        Section(
            "efficiency",
            "Efficiency of copies",
            (
                "memcpy's seconds over the route's: 100 % is what the machine allows. memcpy writes into warm "
                "memory; a route that makes fresh memory also pays for the pages it touches for the first time.",
            ),
            tuple(map(data, figures.efficiency(cells, limit))),
        ),
        Section("dtype", "By dtype", tables=tuple(tables.dtypes(cells, missing))),
        Section("casting", "Casting on the way", tables=tuple(tables.casting(cells, missing))),
        Section(
            "layout",
            "Layout of the source",
            ("Strided: every second element. 5-d: (n, 2, 3, 4, 5). A route that shares memory keeps the strides.",),
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
                "The sources are rotated through more memory than the caches hold. Taking the next one is part of "
                "the time; the harness's floor under Machine and method says how much.",
            ),
            tables=tuple(tables.cold(cells, missing)),
        ),
        Section("threads", "More threads", tables=tuple(tables.threads(cells, missing))),
        *more_transfers,
        *(
            Section(
                family,
                capital(family),
                ("The dtype with the most sizes; results.csv holds the others.",),
                figures=tuple(map(data, figures.others(own))),
                tables=tuple(tables.others(own, missing)),
            )
            for family, own in other_families(cells).items()
        ),
        Section("footprint", "Memory", tables=tuple(tables.footprint(results.values))),
        Section(
            "contracts",
            "Contracts",
            (
                "Memory and dtype as declared in the catalogue, and beside them as measured on this toolchain by "
                "writing to one side and looking at the other. What a route does with awkward sources is declared, "
                "and tested by tests/test_contracts.py. An alias of a broadcast array or of an expanded tensor has "
                "one number for all its elements: a write to one shows in all.",
                "int8, torch's CharTensor, converts both ways, tested by tests/test_contracts.py; that it cannot "
                "is an old belief.",
                *([TRANSFERS_VERIFIED] if moved.main else []),
                *tables.broken(semantics, results.contracts.values()),
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


def other_families(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells of families that the page has no section for, so that a new family shows up on it."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.family not in FAMILIES:
            found.setdefault(cell.family, []).append(cell)
    return found


def comparison_section(base: Results | None, new: Results) -> Section:
    """What got faster or slower against the run before on this machine; empty where there is none to compare with."""
    title = "Against the run before"
    if base is None or base.processes.empty or new.processes.empty:
        return Section("comparison", title)
    compared = comparison.compare(base, new)
    intro, drawn, after = comparison_figure.section(compared)
    counts = tuple((verdict, str(count)) for verdict, count in compared.counts.items() if count)
    return Section("comparison", title, intro, drawn, (tables.Table("Verdicts", ("verdict", "cells"), counts),), after)


def _method(results: Results, cells: Sequence[Cell], missing: tables.Missing) -> Section:
    record = results.runs[-1] if results.runs else {}
    parts = [tables.runs(results.runs), tables.environment(record) if record else None]
    parts += [tables.spread(cells), tables.floor(cells), tables.absent(missing)]
    disturbed = record.get("disturbed_cells") or {}
    lengths = {found["sample_time"] for found in results.benchmarks.values() if found.get("sample_time")}
    counts = results.missing["status"].value_counts()
    after = prose(
        "machine_method",
        disturbed=_named(disturbed) if record else "",
        failed=counts.get("failed", 0),
        skipped=counts.get("skipped", 0),
        least=show.seconds(min(lengths)) if lengths else "",
        figure=show.FIGURE,
        margin=show.percent(choice.MARGIN),
        promise=f"{choice.PROMISE:g}",
        processes=MIN_PROCESSES,
    )
    return Section("method", "Machine and method", tables=tuple(table for table in parts if table), after=after)


def _named(cells: dict[str, int], most: int = 12) -> str:
    """Cells and their counts in words; the largest counts where they are many."""
    if not cells:
        return "none"
    order = sorted(cells.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{count} of {cell}" for cell, count in order[:most]]
    return ", ".join(words) + (f" and {len(order) - most} more cells" if len(order) > most else "")
