"""A machine's page: facts, warnings and answers for its head, and the sections below them, in their
order.

The data are read once (page.MachineData). A function per section turns them into a view: tuples,
strings and numbers. The templates word it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from urllib.parse import quote

from analysis import comparison
from analysis.answers import Answer
from analysis.costs import machine_answers
from analysis.findings import setting_advice
from analysis.ranking import BEST, Steadiness
from analysis.results import Results, where
from analysis.transfers import transfer_answers
from pandas import DataFrame, concat
from store.files import MEASUREMENTS
from store.frames import MEASURED, rows_of
from store.schema import UNKNOWN, RunRecord

from pages import comparison_words as words
from pages import transfers

from . import change_pictures, figures, show, tables
from .advice import (
    Box,
    answer_box,
    answer_title,
    conditions_box,
    is_constant,
    neighbours_box,
    setting_box,
)
from .case_answer import case_address, form_data, measured_table, row_case
from .page import (
    OVERVIEW_LINK,
    MachineData,
    Page,
    Section,
    read_machine,
    results_columns,
    results_csv,
    shell_command,
)
from .sections import family_sections, questions_table
from .show import Lines, render_line, render_paragraphs
from .tables import Table

COMPARISON = "comparison"  # key of the section

# --- the page, and its head -----------------------------------------------------------------------


def machine_page(
    results: Results,
    prior_run: Results | None,
    machine: str,
    other_results: Sequence[str],
    links: Sequence[tuple[str, str]],
    questions: Sequence[Answer] = (),
) -> Page:
    """The content of a machine's page.

    results    of one file
    questions  answers that advise.py --measure measured there
    """
    data = read_machine(results, machine, prior_run, other_results)
    sections = page_sections(data, questions)
    keys = {section.key for section in sections}
    transfer_boxes = transfers.advice_boxes(data)
    has_samples = results.runs and (results.cells["status"] == MEASURED).any()
    file = quote(results.cells["file"].iloc[0] + MEASUREMENTS)
    return Page(
        title=f"NumPy and PyTorch conversions on {machine}",
        machine=machine,
        facts=_facts(data),
        source=render_line("figures", "source", machine=machine, run=_main_run(results)),
        answers=tables.answers(_titled(data, data.answers)),
        boxes=_boxes(data, transfer_boxes),
        legend=render_paragraphs(
            "machine_legend",
            conversions=bool(data.answers),
            transfers=transfer_boxes[0].lines if transfer_boxes else None,
            dtype=data.dtype,
            threads=data.threads,
        ),
        warnings=_warnings(data),
        sections=sections,
        commands=_commands(results, sections),
        trail=(OVERVIEW_LINK,),
        links=tuple(links),
        runs=[record for record in results.runs if not record.failed] or [UNKNOWN],
        prior_runs=prior_run.runs if prior_run and COMPARISON in keys else (),
        address=f"reports/{machine}/index.html",
        csv=results_csv(results),
        columns=results_columns(results),
        toolchain=results.cells["toolchain"].iloc[0],
        samples=f"../results/{quote(machine)}/{file}" if has_samples else "",
        best_routes=best_routes(data),
        quiet=results.quiet_share,
        threads=data.threads,
        form=_form(data),
    )


def list_runs(results: Results) -> list[tuple[RunRecord, int, int]]:
    """The runs of the timed cells, the latest first: record (UNKNOWN if the run is not known),
    number of cells, and maximum number of processes per cell. A cell with processes of several runs
    counts for the latest run."""
    records = {record.started: record for record in results.runs}
    timed = results.processes.groupby("cell", sort=False, observed=True)
    cells = timed.agg(run=("run", "max"), processes=("process", "size"))
    runs = [
        (records.get(run, UNKNOWN), len(rows), int(rows["processes"].max()))
        for run, rows in cells.groupby("run")
    ]
    return runs[::-1]


def _main_run(results: Results) -> RunRecord:
    """The run of the most cells."""
    runs = [run for run in list_runs(results) if run[0].started]
    run, *_ = max(runs, key=itemgetter(1), default=(results.last,))
    return run


def _facts(data: MachineData) -> Lines:
    results = data.results
    return render_paragraphs(
        "machine_facts",
        results=results,
        run=_main_run(results),
        python=results.cells["python"].iloc[0],
        cells=len(results.timed),
        processes=show.ends(results.timed["processes"].astype(int)),
    )


def _warnings(data: MachineData) -> Lines:
    results = data.results
    return render_paragraphs(
        "machine_warnings",
        impossible=transfers.impossible(data.transfers),
        failures=[*where(results.missing, status="failed")["benchmark"]],
        runs=list_runs(results),
        quiet=results.quiet,
        noisy=len(where(results.timed, quiet=False)),
        results=len(results.timed),
        changes=results.version_changes(results.timed),
        other_results=data.other_results,
        unknown=results.unknown,
        broken=len(data.semantics.broken(results.contracts.values())),
    )


def _boxes(data: MachineData, transfer_boxes: Sequence[Box]) -> tuple:
    """Notes on each answer; settings come last."""
    one_thread = {}
    if data.threads > 1:
        one_thread = {answer_title(rows): rows for rows in data.one_thread_answers}
    boxes = [
        *transfer_boxes,
        *(
            answer_box(rows, one_thread.get(answer_title(rows)), data.threads)
            for rows in data.answers
        ),
        conditions_box(data.answers),
        neighbours_box(data.neighbour_costs),
        *map(setting_box, setting_advice(data.results, data.cells)),
    ]
    return tuple(filter(None, boxes))


def _commands(results: Results, sections: Sequence[Section]) -> dict:
    """Figure -> the commands of the runs that measured its cells, the latest first."""
    run_of = results.processes.groupby("cell", observed=True)["run"].max()
    commands = {record.started: shell_command(record) for record in results.runs if record.command}
    figure_commands = {}
    for section in sections:
        for figure, _ in section.figures:
            runs = sorted({run_of[cell.cell] for cell in figure.cells}, reverse=True)
            figure_commands[figure.name] = tuple(commands[run] for run in runs if run in commands)
    return figure_commands


def _form(data: MachineData) -> str:
    if data.choices.empty:
        return ""
    return form_data(machine_answers(data.results, data.machine, data.cells, data.choices))


def best_routes(data: MachineData) -> DataFrame:
    """The fastest safe route for each need and size that a page answers, as data for the page over
    all machines."""
    answers = [
        rows
        for answer in (*data.one_thread_answers, *data.default_answers)
        for _, rows in answer.groupby("need", sort=False)
    ]
    best = [where(rows, kind=BEST).assign(question=title) for title, rows in _titled(data, answers)]
    rows = concat(best) if best else data.choices[:0].assign(question="")
    addresses = [case_address(row_case(row)) for row in rows_of(rows)]
    names = ["question", "threads", "nbytes", "route", "memory", "seconds", "quiet", "cell"]
    return rows[names].assign(address=addresses)


def _titled(data: MachineData, answers: Sequence[DataFrame]) -> Iterator[tuple[str, DataFrame]]:
    """These answers and those on transfers, each with its title."""
    yield from ((answer_title(rows), rows) for rows in answers)
    for need, rows in transfer_answers(data.choices, data.transfers):
        yield f"{transfers.endpoints(need)}, {transfers.result_words(need)}", rows


# --- sections -------------------------------------------------------------------------------------


def page_sections(data: MachineData, questions: Sequence[Answer] = ()) -> list[Section]:
    """The sections that have content, in the order of the page. All but the first ones are
    folded."""
    decisions, clocks, overlap, firsts, link = transfers.transfer_sections(data)
    device_sentences = transfers.family_sentences(data.transfers)
    first_read = [
        _size_section(data, "size", "time", data.answers, data.threads),
        decisions,
        Section("questions", "What users ask", tables=(questions_table(data),)),
    ]
    details = [
        _section("measured", data, parts=[measured_table(questions)]),
        _size_section(data, "single", "single", data.one_thread_answers, 1)
        if data.default_answers
        else None,
        *family_sections(data),
        clocks,
        *family_sections(data, on_device=True, sentences=device_sentences),
        overlap,
        firsts,
        link,
        _contracts_section(data),
        _prior_run_section(data),
        _method_section(data),
    ]
    folded = [replace(section, folded=True) for section in details if section]
    return [*filter(None, first_read), *folded]


def _section(
    key: str, data: MachineData, panels: Iterable[figures.Panel] = (), parts: Iterable[Table] = ()
) -> Section:
    """A section whose title and introduction are the block ``key`` of the template."""
    title, *introduction = render_paragraphs(
        "machine_sections",
        key,
        threads=data.threads,
        dtype=data.dtype,
        transfers=len(data.transfers.main) > 0,
        broken=data.semantics.broken(data.results.contracts.values()),
    )
    return Section(key, title, tuple(introduction), tuple(panels), tuple(parts))


def _size_section(
    data: MachineData, key: str, prefix: str, answers: Sequence[DataFrame], threads: int
) -> Section:
    """Figures of plain answers, and tables of those whose time is the same at all sizes."""
    curves = partial(
        tables.curves, missing=data.missing, limit=data.memcpy, counts=data.instructions
    )
    plain = [rows for rows in answers if rows["need"].iloc[0].plain]
    changing = [rows for rows in plain if not is_constant(rows)]
    drawn = figures.times(prefix, changing, threads, data.memcpy)
    constant = [
        replace(curves(rows_of(rows)), title=answer_title(rows))
        for rows in plain
        if is_constant(rows) and key == "size"
    ]
    return _section(key, data, [(figure, curves(figure.cells)) for figure in drawn], constant)


def _contracts_section(data: MachineData) -> Section:
    """The contracts of the directions that were measured."""
    measured = {direction for direction, *_ in data.semantics.measured} | {*data.cells["direction"]}
    routes = tables.catalogue_routes(data.results)
    routes = [route for route in routes if route.direction in measured]
    return _section("contracts", data, parts=tables.contracts(data.semantics, routes))


def _prior_run_section(data: MachineData) -> Section | None:
    prior = data.prior_run
    if prior is None or prior.processes.empty or data.results.processes.empty:
        return None
    return comparison_section(comparison.compare(prior, data.results))


def comparison_section(compared: comparison.Comparison) -> Section:
    """Changes in speed since the run before on this machine."""
    summary = words.summarise(compared)
    figure = change_pictures.forest(compared)
    cells = words.cells_table(change_pictures.forest_cells(compared), compared)
    return Section(
        COMPARISON,
        "Against the run before",
        (f"{summary['title']}: {summary['headline']}.", *summary["counts"]),
        ((figure, cells),) if figure else (),
        (tables.render_table("comparison", "verdicts", counts=compared.counts),),
        tuple(filter(None, (summary["withheld"], *summary["trust"]))),
    )


def _method_section(data: MachineData) -> Section:
    results = data.results
    sample_seconds = [family.sample_time for family in results.benchmarks.values()]
    notes = render_paragraphs(
        "machine_method",
        recorded=bool(results.runs),
        excess_limit=Steadiness(results.quiet_share).excess_limit,
        noisy=[*where(results.timed, quiet=False)["cell"]],
        failed=len(where(results.missing, status="failed")),
        skipped=len(where(results.missing, status="skipped")),
        stopped=results.timed["reason"].value_counts().to_dict(),
        sample_seconds=min(filter(None, sample_seconds), default=0),
    )
    parts = (
        tables.runs([(record, shell_command(record)) for record in results.runs]),
        *(tables.environment(record) for record in results.runs[-1:]),
        tables.spread(data.cells),
        tables.harness(data.cells),
        tables.missing_results(results.missing),
    )
    return Section("method", "Machine and method", tables=parts, after=notes)
