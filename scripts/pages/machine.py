"""The sections of a machine's page: what is said about conversions on its processor, and in which order."""

from collections.abc import Mapping, Sequence

from analysis import choice, comparison, verdicts
from analysis.answers import PLAIN, Answer
from analysis.cells import Cell, conversions, limit_of, usual_dtype
from analysis.curves import BY_BYTES
from analysis.findings import Semantics
from analysis.results import Results
from analysis.statistics import MIN_PROCESSES
from analysis.transfers import Transfers

from pages.comparison import figure as comparison_figure
from pages.transfers.said import said
from pages.transfers.sections import transfer_sections

from . import families, figures, questions, show, tables
from .figures import Figure
from .page import Section, prose
from .tables import Table

TRANSFERS_VERIFIED = (
    "Transfers are not measured that way: before each was timed, what arrived was compared with what was sent."
)


def sections_of(
    results: Results, before: Results | None, cells: list[Cell], made: list[Answer], moved: Transfers
) -> list[Section]:
    """The sections that the results can fill, in the order of the page."""
    missing = tables.Missing(results)
    limit, counted = limit_of(cells), verdicts.of_calls(results)

    def data(figure: Figure) -> tuple[Figure, Table]:
        return figure, tables.curves(figure.cells, missing, limit if figure.limited else None, counted)

    semantics = Semantics(results)
    measured = {cell.direction for cell in cells} | {direction for direction, _ in semantics.alias}
    shown = [key for key in tables.catalogue(results) if key[0] in measured]
    plain = conversions(cells)
    usual, decisions = usual_dtype(plain), [answer for answer in made if answer.need.kind == PLAIN]
    first, clocks, dtypes, *more_transfers = transfer_sections(moved, missing)
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
        *families.sections(results, cells, missing),
        clocks,
        dtypes,
        *families.sections(results, cells, missing, on_device=True, sentences=said(moved)),
        *more_transfers,
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
            tables=(questions.Questions(results, cells, moved).table(results.last.settings.no_device),),
        ),
        _method(results, cells, missing),
    ]
    return [section for section in sections if section]


def comparison_section(base: Results | None, new: Results) -> Section:
    """What got faster or slower against the run before on this machine; empty where there is none to compare with."""
    title = "Against the run before"
    if base is None or base.processes.empty or new.processes.empty:
        return Section("comparison", title)
    compared = comparison.compare(base, new)
    intro, drawn, after = comparison_figure.section(compared)
    verdicts = tuple((verdict, str(count)) for verdict, count in compared.counts.items() if count)
    return Section(
        "comparison", title, intro, drawn, (tables.Table("Verdicts", ("verdict", "cells"), verdicts),), after
    )


def _method(results: Results, cells: Sequence[Cell], missing: tables.Missing) -> Section:
    parts = [tables.runs(results.runs), tables.environment(results.last) if results.runs else None]
    parts += [tables.spread(cells), tables.floor(cells), tables.absent(missing)]
    lengths = {declared.sample_time for declared in results.benchmarks.values() if declared.sample_time}
    absent = results.missing["status"].value_counts()
    after = prose(
        "machine_method",
        disturbed=_named(results.last.disturbed_cells) if results.runs else "",
        failed=absent.get("failed", 0),
        skipped=absent.get("skipped", 0),
        least=show.seconds(min(lengths)) if lengths else "",
        figure=show.FIGURE,
        margin=show.percent(choice.MARGIN),
        promise=f"{choice.PROMISE:g}",
        processes=MIN_PROCESSES,
    )
    return Section("method", "Machine and method", tables=tuple(table for table in parts if table), after=after)


def _named(cells: Mapping[str, int], most: int = 12) -> str:
    """Cells and their counts in words; the largest counts where they are many."""
    if not cells:
        return "none"
    order = sorted(cells.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{count} of {cell}" for cell, count in order[:most]]
    return ", ".join(words) + (f" and {len(order) - most} more cells" if len(order) > most else "")
