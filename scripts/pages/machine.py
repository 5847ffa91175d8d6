"""A machine's page as data: facts, warnings and answers for its head, and the sections below them.

The sections show the measurements of conversions on its processor. This module sets their order.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

import pandas as pd
from analysis import comparison, verdicts
from analysis.cells import (
    Limit,
    at_usual_size,
    cells_of,
    conversions,
    limit_of,
    usual_dtype,
)
from analysis.comparison import Comparison
from analysis.costs import machine_answers
from analysis.findings import Semantics, setting_advice, worst_neighbour_costs
from analysis.needs import choices, rows_per_answer
from analysis.ranking import BEST, rank
from analysis.results import Results
from analysis.ties import differ_significantly
from analysis.transfers import Transfers, transfer_answers, transfers_of
from store.files import MEASUREMENTS
from store.schema import UNKNOWN, RunRecord

from benchmarks.contracts import (
    ALIAS,
    ALL_THREADS,
    COMPLETION,
    DEVICE_TO_HOST,
    INTO,
    NONE,
    ONE_THREAD,
    PAGEABLE,
)
from pages import comparison_words as words
from pages import transfers

from . import families, figures, forest, show, tables
from .advice import (
    answer_box,
    answer_title,
    conditions_box,
    form_data,
    neighbours_box,
    recommendations,
    setting_box,
)
from .page import Page, Section
from .show import render_paragraphs
from .tables import Table, render_table, results_columns, results_csv

# --- the page, and its head -------------------------------------------------------------------------------------------


ORDERS = ("t.detach().cpu().numpy()", "t.cpu().detach().numpy()")


def list_runs(results: Results) -> list[tuple[RunRecord, int, int]]:
    """The runs of the timed cells, the latest first: record (UNKNOWN if the run is not known), number of cells, and
    maximum number of processes per cell. A cell with processes of several runs counts for the latest run."""
    records = {record.started: record for record in results.runs}
    timed = results.processes.groupby("cell", sort=False, observed=True)
    cells = timed.agg(run=("run", "max"), processes=("process", "size"))
    runs = [
        (records.get(run, UNKNOWN), len(rows), int(rows["processes"].max()))
        for run, rows in cells.groupby("run")
    ]
    return runs[::-1]


def shell_command(record: RunRecord) -> str:
    """The command of a run, quoted for a shell: earlier records hold their pattern without quotes."""
    return record.command.replace(f"--only {record.only}", f"--only {shlex.quote(record.only)}")


def commands_of(results: Results, sections: Sequence[Section]) -> Mapping[str, tuple[str, ...]]:
    """Figure -> the commands of the runs that measured its cells, the latest first."""
    runs = results.processes.groupby("cell", sort=False, observed=True)["run"].max()
    commands = {record.started: shell_command(record) for record in results.runs if record.command}
    measured = {}
    for figure in (figure for section in sections for figure, _ in section.figures if figure.cells):
        taken = sorted({runs[cell.cell] for cell in figure.cells}, reverse=True)
        measured[figure.name] = tuple(commands[run] for run in taken if run in commands)
    return measured


def machine_page(
    results: Results,
    before: Results | None,
    machine: str,
    others: Sequence[str],
    links: Sequence[tuple[str, str]],
) -> Page:
    """The content of a machine's page. results: of one file."""
    timed = cells_of(results)
    cells = timed[timed["credible"]]
    table = choices(cells)
    alone = rows_per_answer(table, ONE_THREAD)
    made = rows_per_answer(table, ALL_THREADS) or alone
    threads = 1 if made is alone else results.last.settings.torch_threads or 1
    with_one = {answer_title(rows): rows for rows in alone} if threads > 1 else {}
    copies = worst_neighbour_costs(cells)
    moved = transfers_of(results, timed)
    about_transfers = transfers.advice(table, moved)
    quiet, usual = results.quiet, usual_dtype(conversions(with_one_thread(cells)))
    about: dict[str, Any] = {
        "results": results,
        "others": others,
        "quiet": quiet,
        "runs": list_runs(results),
    }
    about |= {
        "threads": threads,
        "usual": usual,
        "conversions": bool(made),
        "transfers": bool(about_transfers),
    }
    about |= {"impossible": transfers.impossible(moved)}
    about |= {"broken": Semantics(results).broken(results.contracts.values())}
    return Page(
        title=f"NumPy and PyTorch conversions on {machine}",
        machine=machine,
        facts=render_paragraphs("machine_facts", **about),
        # what gains more than any choice of a route comes first, of a device the question that its card is bought for
        boxes=(
            *about_transfers[:1],
            *map(setting_box, setting_advice(results, cells)),
            *([neighbours_box(copies)] if copies else []),
            *(answer_box(rows, with_one.get(answer_title(rows)), threads) for rows in made),
            *about_transfers[1:],
            *filter(None, [conditions_box(made)]),
        ),
        legend=render_paragraphs("machine_legend", **about),
        warnings=render_paragraphs("machine_warnings", **about),
        sections=(sections := sections_of(results, before, cells, table, made, threads, moved)),
        commands=commands_of(results, sections),
        links=tuple(links),
        command=shell_command(results.last) or "asv run --record-samples",
        csv=results_csv(results),
        columns=results_columns(results),
        toolchain=results.cells["toolchain"].iloc[0],
        samples=f"../results/{quote(machine)}/{quote(results.cells['file'].iloc[0])}{MEASUREMENTS}",
        best_routes=best_routes(table, moved),
        quiet=min(quiet, default=None),
        form=form_data(machine_answers(results, machine, cells, table)) if len(table) else "",
    )


def best_routes(table: pd.DataFrame, moved: Transfers) -> pd.DataFrame:
    """The fastest safe route for each need and size that a page answers, as data for the page over all machines."""
    every = [
        rows for threads in (ONE_THREAD, ALL_THREADS) for rows in rows_per_answer(table, threads)
    ]
    named = [
        (answer_title(rows), rows)
        for frame in every
        for _, rows in frame.groupby("need", sort=False)
    ]
    named += [
        (f"{transfers.way(need)}, {transfers.result_of(need)}", rows)
        for need, rows in transfer_answers(table, moved)
    ]
    answers = [rows[rows["kind"] == BEST].assign(question=question) for question, rows in named]
    best = pd.concat(answers) if answers else table[:0].assign(question="")
    return best[["question", "threads", "nbytes", "route", "seconds", "quiet"]]


def with_one_thread(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of most sections. Answers and the sections of families have the other cells, too."""
    return cells[(cells["threads"] == ONE_THREAD) | cells["device"]]


# --- sections ---------------------------------------------------------------------------------------------------------


def sections_of(
    results: Results,
    before: Results | None,
    cells: pd.DataFrame,
    table: pd.DataFrame,
    made: Sequence[pd.DataFrame],
    threads: int,
    moved: Transfers,
) -> list[Section]:
    """The sections that have content, in the order of the page."""
    missing, one_thread, semantics = (
        tables.missing_reasons(results),
        with_one_thread(cells),
        Semantics(results),
    )
    limit, counted = limit_of(one_thread), verdicts.counts_by_call(results)
    times = tuple(
        (figure, tables.curves(figure.cells, missing, limit, counted))
        for figure in figures.times(one_thread, limit)
    )
    reached = tuple(
        (figure, tables.shares(figure.cells, missing, limit))
        for figure in figures.efficiency(one_thread, limit)
    )
    measured = {*cells["direction"]} | {direction for direction, *_ in semantics.measured}
    shown = [
        contract for contract in tables.catalogue_routes(results) if contract.direction in measured
    ]
    promised, broken = (
        tables.contracts(semantics, shown),
        tables.broken_promises(semantics, results.contracts.values()),
    )
    decisions = [rows for rows in made if rows["need"].iloc[0].plain]
    decided = tables.decision(decisions, limit if threads == 1 else Limit())
    about = {
        "threads": threads,
        "usual": usual_dtype(conversions(one_thread)),
        "transfers": len(moved.main) > 0,
    }

    def said(block: str) -> tuple[str, ...]:
        return render_paragraphs("machine_sections", block, **about)

    asking = questions(results, one_thread, rows_per_answer(table, ONE_THREAD), moved)
    first, clocks, *more_transfers = transfers.transfer_sections(table, moved, missing)
    against = []
    if before is not None and not (before.processes.empty or results.processes.empty):
        against.append(comparison_section(comparison.compare(before, results)))
    first_read = [
        Section("questions", "What users ask", tables=(asking,)),
        first,
        Section("size", f"Time against size, {show.threads(1)}", said("size"), times),
    ]
    details = [
        Section(
            "decision",
            f"Decision table, {show.threads(threads)}",
            said("decision"),
            tables=(decided,),
        ),
        Section(
            "efficiency", f"Efficiency of copies, {show.threads(1)}", said("efficiency"), reached
        ),
        *families.sections(results, cells, missing),
        clocks,
        *families.sections(
            results, cells, missing, on_device=True, sentences=transfers.family_sentences(moved)
        ),
        *more_transfers,
        Section("contracts", "Contracts", (*said("contracts"), *broken), tables=tuple(promised)),
        *against,
        _method(results, cells),
    ]
    return [
        section
        for section in (*first_read, *(replace(each, folded=True) for each in details))
        if section
    ]


def questions(
    results: Results, cells: pd.DataFrame, asked: Sequence[pd.DataFrame], moved: Transfers
) -> Table:
    """Users' questions, as far as the run has figures or contracts for them. A question without an answer is left out.

    The template holds the questions. It also selects the cells of an answer, where no ranking is needed.
    """
    rows = pd.concat(asked) if asked else choices(cells[:0])
    best, plain = rows["kind"] == BEST, rows["need"].map(lambda need: need.plain).astype(bool)
    shares = rows[best & plain & (rows["memory"] == ALIAS)]
    lists, by_element = (
        rows["batch"].astype(bool),
        rows["contract"].map(lambda each: each.per_element).astype(bool),
    )
    slow = rows[lists & by_element].tail(1)
    rest = rows[lists & best & ~by_element & rows["nbytes"].isin(slow["nbytes"])]
    grad = [each for each in asked if each["need"].iloc[0].grad and each["safe"].iloc[0]]
    arrays = moved.select(COMPLETION, DEVICE_TO_HOST, PAGEABLE)
    promised = arrays["contract"].map(lambda each: each.array and each.memory != INTO).astype(bool)
    fresh = arrays[arrays["safe"] & promised]
    graded = fresh[fresh["contract"].map(lambda each: each.takes_grad).astype(bool)]
    from_device = [
        transfers.best(rank(at_usual_size(able))) for able in (fresh, graded) if len(able)
    ]
    orders = []
    for where, those in (
        ("CPU", conversions(cells)),
        ("device", moved.select(COMPLETION, DEVICE_TO_HOST)),
    ):
        both = [*at_usual_size(those[those["route"].isin(ORDERS)]).itertuples()]
        if len(both) == 2:  # the faster one first; on a tie, the catalogue's order
            tie = (
                ""
                if differ_significantly(*both)
                else tables.if_significant(both[0], both[1], "", "no significant difference")
            )
            both.sort(key=lambda cell: ORDERS.index(cell.route) if tie else cell.seconds)
            orders.append((where, *both, tie))
    written = show.render(
        "questions",
        moved=moved,
        cost=partial(transfers.cost_words, moved=moved),
        decided=differ_significantly,
        usual=at_usual_size,
        semantics=Semantics(results),
        by_dtype=tables.by_dtype,
        no_contract=NONE,
        results=results,
        cells=cells,
        conversions=conversions(cells),
        sharing=[*shares.drop_duplicates(["need", "part"], keep="last").itertuples()],
        lists={"slow": [*slow.itertuples()], "best": [*rest.itertuples()]},
        takes_grad=[take for each in grad for take in recommendations(each)],
        from_device=from_device,
        orders=orders,
        copies=worst_neighbour_costs(cells),
    )
    each = (show.paragraphs(question) for question in written.split("\n# ")[1:])
    answers = tuple((question, answer) for question, *answer in each if answer)
    return Table("What users ask", ("question", "answer"), answers, numeric=False)


def comparison_section(compared: Comparison) -> Section:
    """Changes in speed since the run before on this machine."""
    summary = words.summarise(compared)
    figure = forest.forest(compared)
    cells = words.cells_table(forest.forest_cells(compared), compared)
    return Section(
        "comparison",
        "Against the run before",
        (f"{summary.title}: {summary.headline}.", *summary.counts),
        ((figure, cells),) if figure else (),
        (words.verdicts_table(compared),),
        tuple(filter(None, (summary.withheld, *summary.trust))),
    )


def _method(results: Results, cells: pd.DataFrame) -> Section:
    parts = (
        render_table(
            "tables",
            "runs",
            False,
            runs=[(record, shell_command(record)) for record in results.runs],
        ),
        *(tables.environment(record) for record in results.runs[-1:]),
        render_table("tables", "spread", cells=cells),
        render_table("tables", "harness", cells=cells),
        render_table("tables", "absent", False, missing=results.missing),
    )
    return Section(
        "method",
        "Machine and method",
        tables=parts,
        after=render_paragraphs("machine_method", results=results),
    )
