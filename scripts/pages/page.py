"""Lay out a page and write its files."""

import functools
import hashlib
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

import jinja2
from cli import UserError
from markupsafe import Markup
from pandas import DataFrame
from store.files import put

from . import show
from .advice import Box
from .change_pictures import HeatMap
from .svg import Figure, slug
from .tables import Entry, Table, lines_of

CITATION = Path(__file__).resolve().parents[2] / "CITATION.cff"


@dataclass(frozen=True)
class Section:
    """A part of a page: sentences, figures and tables. Tables without rows are left out."""

    key: str
    title: str
    intro: tuple[str, ...] = ()
    figures: tuple[tuple[Figure, Table], ...] = ()
    tables: tuple[Table, ...] = ()
    after: tuple[str, ...] = ()
    wide: bool = False  # its figures are as wide as the page
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
    facts: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    boxes: tuple[Box, ...] = ()
    legend: tuple[str, ...] = ()  # how to read the boxes
    sections: list[Section]
    links: tuple[tuple[str, str], ...]  # text of the link, and the directory of another page
    command: str
    csv: str
    columns: Mapping[tuple[str, ...], str]  # of results.csv, with their meaning
    toolchain: str = ""  # if the page has one
    samples: str = ""  # address of the raw data
    data: str = "results.csv"  # the file that ``csv`` becomes
    heats: tuple[HeatMap, ...] = ()  # after the boxes
    feed: str = ""  # address of the feed for this page
    form: str = ""  # data of the form, see advice.py; "" for a page without a form
    commands: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # figure -> commands; else ``command``
    best_routes: DataFrame = field(
        default_factory=DataFrame
    )  # machine pages: a call per need and size
    quiet: float | None = None  # machine pages: the smallest share of quiet samples of its runs

    @property
    def unlinked_sections(self) -> list[Section]:
        """The sections that no row of a box links to."""
        linked = {address for box in self.boxes for address, _ in box.rows}
        return [section for section in self.sections if section.key not in linked]

    @property
    def anchors(self) -> dict[str, str]:
        """Key of a section -> its Markdown anchor, which GitHub derives from the title."""
        return {
            each.key: re.sub(r"[^\w -]", "", each.title.lower()).replace(" ", "-")
            for each in self.sections
        }

    @property
    def rebuild(self) -> str:
        option = f" --machine {shlex.quote(self.machine)}" if self.machine else ""
        return f"python scripts/report.py{option}"

    @property
    def citation(self) -> str:
        """How to cite the page's figures: the suite with its version, and the data by its hash."""
        cited = dict(
            re.findall(
                r"^(title|version): *(.+)$", CITATION.read_text(encoding="utf-8"), re.MULTILINE
            )
        )
        suite = f"{cited['title']}, version {cited['version']}"
        return f"{suite}: {self.title}. {self.data}, SHA-256 {self.csv_sha256}."

    @functools.cached_property
    def csv_sha256(self) -> str:
        return hashlib.sha256(self.csv.encode()).hexdigest()


def page_files(page: Page) -> dict[str, str]:
    """The files of a page, by name."""
    drawn = [figure for section in page.sections for figure, _ in section.figures]
    files = {f"{figure.name}.svg": figure.file for figure in drawn}
    readme = _environment(_markdown).get_template("page.md.jinja").render(page=page)
    return files | {
        page.data: page.csv,
        "README.md": readme,
        "index.html": render_web("page.html.jinja", page=page),
    }


def render_web(template: str, **values: object) -> str:
    """Render a template of HTML or XML."""
    return _environment(_html, autoescape=True).get_template(template).render(**values)


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
        "slug": slug,
        "code": lambda words: convert(show.code(words)),
    }
    made.filters["as_text"] = lambda markup: escape(str(markup))  # HTML as text of an XML element
    return made


def _html(entry: Entry) -> Markup:
    if isinstance(entry, list):
        return Markup("".join(f"<div>{show.to_html(line)}</div>" for line in entry))
    return Markup(show.to_html(entry))


def _markdown(entry: Entry) -> str:
    return "<br>".join(map(show.to_markdown, lines_of(entry)))
