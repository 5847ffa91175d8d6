"""A page: its data, its layout and its files.

results.csv has the figures of a page, figures.csv the figures of all machines and releases. Both
are the table of cells (analysis/results.py), a row per machine, toolchain and cell. figures.csv is
too large to commit at each build, so only the site has it. The processes and samples behind a
figure are in reports/results.
"""

import contextlib
import functools
import hashlib
import math
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import jinja2
import pandas as pd
from analysis import verdicts
from analysis.cells import Limit, cells_of, conversions, limit_of, usual_dtype
from analysis.findings import Gain, Semantics, worst_neighbour_costs
from analysis.needs import choices, rows_per_answer
from analysis.results import Results, where
from analysis.transfers import Transfers, transfers_of
from cli import UserError
from markupsafe import Markup
from pandas import DataFrame, Series
from store.files import put
from store.frames import Cell, csv_columns
from store.schema import RunRecord
from toolchains import ledger

from benchmarks.contracts import ALL_THREADS, ONE_THREAD

from . import show
from .advice import Box
from .change_pictures import SHADE_RATIOS, HeatMap, shade_class
from .figures import Figure, Panel, slug
from .pairs import Pairs
from .show import Lines
from .tables import Counts, Entry, Missing, Table, lines_of, missing_reasons

COMPARE = "compare.js"  # beside a page that compares: script and data, loaded where it runs
CITATION = Path(__file__).resolve().parents[2] / "CITATION.cff"


OVERVIEW_LINK = ("All machines", "../")  # of a page in a directory of its own
FIGURES_CSV, FIGURES_COLUMNS_CSV = "figures.csv", "figures-columns.csv"
DIGITS = 7  # significant digits: more than the clock has
# Column -> attribute of a toolchain
OF_RELEASE = {"history": "history", "release": "version", "released": "date"}


# --- the data of a machine's page ----------------------------------------------------------------


@dataclass(frozen=True)
class MachineData:
    """The results of one machine and one toolchain, with what follows from them.

    prior_run           results of the run before on this machine; None if there is none
    other_results       names of results of this machine that the page does not show
    cells               the timed cells whose bytes memory could move, see analysis.cells.cells_of
    one_thread          of these, cells with one torch thread and cells of a device
    conversions         of these, plain conversions of ``dtype``, the usual one
    choices             ranked routes per need and size, see analysis.needs.choices
    threads             torch threads of ``answers``: torch's default if it was measured, else 1
    one_thread_answers  the rows of ``choices`` per answer, with one torch thread
    default_answers     the same with torch's default number; empty if it was not measured
    memcpy              the limit of copies in this run
    missing             benchmark and parameters of a cell -> why it has no figure
    instructions        of calls, see analysis.verdicts.counts_by_call
    neighbour_costs     copies that are slow between neighbours in memory
    """

    machine: str
    results: Results
    prior_run: Results | None
    other_results: Sequence[str]
    cells: DataFrame
    one_thread: DataFrame
    conversions: DataFrame
    dtype: str
    choices: DataFrame
    threads: int
    one_thread_answers: Sequence[DataFrame]
    default_answers: Sequence[DataFrame]
    transfers: Transfers
    memcpy: Limit
    semantics: Semantics
    missing: Missing
    instructions: Counts
    neighbour_costs: Sequence[Gain]

    @property
    def answers(self) -> Sequence[DataFrame]:
        """The rows of ``choices`` per answer of the page."""
        return self.default_answers or self.one_thread_answers


def read_machine(
    results: Results,
    machine: str = "",
    prior_run: Results | None = None,
    other_results: Sequence[str] = (),
) -> MachineData:
    """Read the data of a machine's page. results: of one file."""
    timed = cells_of(results)
    cells = where(timed, credible=True)
    one_thread = cells[(cells["threads"] == ONE_THREAD) | cells["device"]]
    plain = conversions(one_thread)
    ranked = choices(cells)
    default_answers = rows_per_answer(ranked, ALL_THREADS)
    return MachineData(
        machine=machine,
        results=results,
        prior_run=prior_run,
        other_results=other_results,
        cells=cells,
        one_thread=one_thread,
        conversions=plain,
        dtype=usual_dtype(plain),
        choices=ranked,
        threads=(results.last.settings.torch_threads or 1) if default_answers else 1,
        one_thread_answers=rows_per_answer(ranked, ONE_THREAD),
        default_answers=default_answers,
        transfers=transfers_of(results, timed),
        memcpy=limit_of(one_thread),
        semantics=Semantics(results),
        missing=missing_reasons(results),
        instructions=verdicts.counts_by_call(results),
        neighbour_costs=worst_neighbour_costs(cells),
    )


# --- layout ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """A part of a page: sentences, figures and tables. Tables without rows are left out."""

    key: str
    title: str
    intro: Lines = ()
    figures: tuple[Panel, ...] = ()
    tables: tuple[Table, ...] = ()
    after: Lines = ()
    folded: bool = False  # only its title is visible until a reader opens it

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tuple(filter(None, self.tables)))

    def __bool__(self) -> bool:
        return bool(self.figures or self.tables)


@dataclass(frozen=True, kw_only=True)
class Page:
    """All data for the templates."""

    title: str
    machine: str = ""  # if the page is about one machine
    facts: Lines
    source: str = ""  # machine, toolchain and date, in a figure's file
    warnings: Lines = ()
    answers: Table | None = None  # first; then the boxes are notes, and last
    boxes: tuple[Box, ...] = ()
    legend: Lines = ()  # how to read the boxes
    sections: list[Section]
    links: tuple[tuple[str, str], ...]  # text of the link, and the directory of another page
    runs: Sequence[RunRecord]  # whose figures it shows, oldest first
    prior_runs: Sequence[RunRecord] = ()  # whose figures it compares with these
    address: str  # in a checkout
    trail: tuple[tuple[str, str], ...] = ()  # links to the pages above it, as ``links``
    csv: str = ""
    columns: Mapping[Lines, str] = field(default_factory=dict)  # of results.csv, with their meaning
    toolchain: str = ""  # if the page has one
    samples: str = ""  # address of the raw data, if there are any
    data: str = "results.csv"  # the file that ``csv`` becomes
    heats: tuple[HeatMap, ...] = ()  # before the boxes
    feed: str = ""  # address of the feed for this page
    pairs: tuple[Pairs, ...] = ()  # history pages, and the page over all machines
    form: str = ""  # data of the form, see advice.py; "" for a page without a form
    commands: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # figure -> commands, where they are known
    best_routes: DataFrame = field(
        default_factory=DataFrame
    )  # machine pages: a call per need and size
    quiet: float | None = None  # machine pages: the smallest share of quiet samples of its runs
    threads: int = 0  # machine pages: of torch, in its answers

    @property
    def releases(self) -> list[str]:
        """The sections that rows of boxes link to, by key."""
        return [row.address for box in self.boxes for row in box.rows]

    @property
    def unlinked_sections(self) -> list[Section]:
        return [section for section in self.sections if section.key not in self.releases]

    @property
    def heat_key(self) -> list[tuple[str, float]]:
        """The shades of heat maps, and the ratio at which each begins."""
        ratios = [*(1 / ratio for ratio in SHADE_RATIOS[::-1]), 1.0, *SHADE_RATIOS]
        return [(shade_class(ratio), ratio) for ratio in ratios]

    @property
    def anchors(self) -> dict[str, str]:
        """Key of a section -> its Markdown anchor."""
        return {each.key: anchor(each.title) for each in self.sections}

    @property
    def docs(self) -> str:
        """The directory of documents in a checkout."""
        return "../" * self.address.count("/") + "docs/"

    @property
    def rebuild(self) -> str:
        option = f" --machine {shlex.quote(self.machine)}" if self.machine else ""
        return f"python scripts/report.py{option}"

    @property
    def measured_by(self) -> Lines:
        """The commands that measured the page's figures, with their days and the suite's
        revision."""
        return _described(self.runs)

    @property
    def compared_with(self) -> Lines:
        """The same of the runs that it compares these with."""
        return _described(self.prior_runs)

    @property
    def citation(self) -> str:
        """How to cite the page's figures: the suite with its version, and the data by their
        hash."""
        return show.render_line("origin", "citation", cited=read_citation(), page=self)

    @functools.cached_property
    def csv_sha256(self) -> str:
        return hashlib.sha256(self.csv.encode()).hexdigest()


def _described(runs: Sequence[RunRecord]) -> Lines:
    return show.render_paragraphs("origin", "runs", runs=runs, shell_command=shell_command)


@functools.cache
def read_citation() -> dict[str, Any]:
    """The content of CITATION.cff."""
    import yaml

    cited: dict[str, Any] = yaml.safe_load(CITATION.read_text(encoding="utf-8"))
    return cited


def anchor(title: str) -> str:
    """The anchor of a heading in Markdown, as GitHub derives it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def shell_command(record: RunRecord) -> str:
    """The command of a run, quoted for a shell: earlier records hold their pattern without
    quotes."""
    command = record.command.replace(f"--only {record.only}", f"--only {shlex.quote(record.only)}")
    return command or "asv run --record-samples"


def page_files(page: Page) -> dict[str, str]:
    """The files of a page, by name."""
    panels = chain(*(section.figures for section in page.sections))
    files = {f"{figure.name}.svg": figure_file(figure, page.source) for figure, _ in panels}
    readme = render_markdown("page.md.jinja", page=page)
    files |= {page.data: page.csv} if page.csv else {}
    files |= {COMPARE: render_web(COMPARE, page=page)} if page.pairs else {}
    return files | {"README.md": readme, "index.html": render_web("page.html.jinja", page=page)}


def figure_file(figure: Figure, source: str) -> str:
    """A figure with its title, and the source of its data, as SVG."""
    return render_web("figure.svg.jinja", figure=figure, source=source)


def render_web(template: str, **values: object) -> str:
    """Render a template of HTML or XML."""
    return _environment(_html, autoescape=True).get_template(template).render(**values)


def render_markdown(template: str, **values: object) -> str:
    """Render a template of Markdown."""
    return _environment(_markdown).get_template(template).render(**values)


def write_into(directory: Path, page: Page) -> Path:
    """Write a page's files into a directory that holds other files, too."""
    for name, content in page_files(page).items():
        put(directory / name, content)
    return directory / "index.html"


def write(directory: Path, page: Page) -> Path:
    """Write a page's files, all or none, and remove an older page's figures. Raise UserError if a
    file cannot be written."""
    fresh, old = (directory.with_name(f".{directory.name}.{end}") for end in ("new", "old"))

    def settle() -> None:
        """Undo a write that was interrupted between the two renames, and remove temporary
        directories."""
        if old.is_dir() and not directory.exists():
            old.rename(directory)
        for left in (fresh, old):
            shutil.rmtree(left, ignore_errors=True)

    try:
        settle()
        if directory.is_dir():
            shutil.copytree(directory, fresh, symlinks=True, ignore=shutil.ignore_patterns("*.svg"))
        write_into(fresh, page)
        if directory.is_dir():
            directory.rename(old)
        fresh.rename(directory)
    except OSError as error:
        raise UserError(f"cannot write {error.filename or directory}: {error.strerror}") from None
    finally:
        settle()
    return directory / "index.html"


@functools.cache
def _environment(convert: Callable[[Entry], str], autoescape: bool = False) -> jinja2.Environment:
    """convert: the filter `line`, applied to every value in Markdown."""
    loader = jinja2.FileSystemLoader(show.TEMPLATES)
    made = show.make_environment(autoescape=autoescape, loader=loader, keep_trailing_newline=True)
    made.filters |= {
        "line": convert,
        "number": show.number,
        "bare": show.bare,
        "slug": slug,
        "code": lambda words: convert(show.code(words)),
    }
    made.globals["COMPARE"] = COMPARE
    made.filters["as_text"] = lambda markup: escape(str(markup))  # HTML as text of an XML element
    return made


def _html(entry: Entry) -> Markup:
    if isinstance(entry, list):
        return Markup("".join(f"<div>{show.to_html(line)}</div>" for line in entry))
    return Markup(show.to_html(entry))


def _markdown(entry: Entry) -> str:
    return "<br>".join(map(show.to_markdown, lines_of(entry)))


# --- CSV ------------------------------------------------------------------------------------------


def column_meanings(block: str, **values: object) -> dict[Lines, str]:
    """Meaning of the columns of a CSV file, in order: a paragraph of
    templates/prose/columns.md.jinja each."""
    meanings = {}
    for paragraph in show.render_paragraphs("columns", block, **values):
        names, _, meaning = paragraph.partition(": ")
        meanings[tuple(names.split(", "))] = meaning
    return meanings


def results_columns(results: Results) -> dict[Lines, str]:
    """Meaning of the columns of the CSV of these results."""
    return csv_columns(Cell, results.parameters)


def results_csv(results: Results) -> str:
    """All cells as CSV: timed cells, counted ones, and cells without a figure."""
    of_row = [ledger.toolchains_by_commit().get(commit) for commit in results.cells["commit"]]
    releases = {
        name: [getattr(one, field, "") for one in of_row] for name, field in OF_RELEASE.items()
    }
    return to_csv(results.cells.assign(**releases)[[*chain(*results_columns(results))]], DIGITS)


def _number(digits: int, value: float) -> str:
    """Format whole numbers without a point: a column with missing values holds floats."""
    value = show.round_last_bits(value)
    return f"{value:.0f}" if value % 1 == 0 else f"{value:.{digits}g}"


def to_csv(table: DataFrame, digits: int | None = None) -> str:
    """A table as CSV. Text that a spreadsheet would read as a formula, and is not a number, gets a
    quote in front. Several values of one entry are separated by spaces.

    digits  significant digits of numbers; None: all
    """
    texts = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    columns = {name: Series(map(_quoted, table[name]), table.index, dtype=object) for name in texts}
    number = partial(_number, digits) if digits else None
    return str(
        table.assign(**columns).to_csv(index=False, lineterminator="\n", float_format=number)
    )


def _quoted(entry: object) -> object:
    if isinstance(entry, tuple):
        return " ".join(map(str, entry))
    if isinstance(entry, str) and entry.startswith(("=", "@", "+", "-")):
        with contextlib.suppress(ValueError):
            return entry if math.isfinite(float(entry)) else f"'{entry}"
        return f"'{entry}"
    return entry


def write_figures(results: Results, directory: Path) -> None:
    """Write figures.csv, and the meaning of its columns, into a directory."""
    put(directory / FIGURES_CSV, results_csv(results))
    rows = [
        {"column": name, "meaning": words}
        for names, words in results_columns(results).items()
        for name in names
    ]
    licence = show.render_line("origin", "licence", cited=read_citation())
    rows.append({"column": "*", "meaning": licence})
    put(directory / FIGURES_COLUMNS_CSV, to_csv(DataFrame(rows)))
