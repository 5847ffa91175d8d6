"""How a page is laid out and written."""

import functools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from cli import UserError
from markupsafe import Markup

from . import show
from .figures import Figure
from .tables import Entry, Table

TEMPLATES = Path(__file__).resolve().parent / "templates"


@dataclass(frozen=True)
class Section:
    """A part of a page: sentences, figures, tables."""

    key: str
    title: str
    intro: tuple[str, ...] = ()
    figures: tuple[tuple[Figure, Table], ...] = ()
    tables: tuple[Table, ...] = ()
    after: tuple[str, ...] = ()
    wide: bool = False  # its figures take the page's whole width

    def __bool__(self) -> bool:
        return bool(self.figures or self.tables)


def write(directory: Path, template: str, page: Any, csv: str) -> Path:
    """Write a page's files, all or none; UserError where that is not possible. An older page's figures are removed.

    ``template`` names the pair of templates of this kind of page. They extend base.*.jinja, which show machine, facts,
    warnings, links, sections, command, rebuild, csv_sha256 and columns of every page.
    """
    web, text = _templates(template)
    drawn = [figure for section in page.sections for figure, _ in section.figures]
    files = {f"{figure.name}.svg": figure.file for figure in drawn}
    files |= {"results.csv": csv, "README.md": text.render(page=page), "index.html": web.render(page=page)}
    fresh, old = (directory.with_name(f".{directory.name}.{end}") for end in ("new", "old"))
    try:
        for left in (fresh, old):
            shutil.rmtree(left, ignore_errors=True)
        if directory.is_dir():
            shutil.copytree(directory, fresh, symlinks=True, ignore=shutil.ignore_patterns("*.svg"))
        fresh.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (fresh / name).write_bytes(content.encode())
        if directory.is_dir():
            directory.rename(old)
        fresh.rename(directory)
    except OSError as error:
        raise UserError(f"cannot write {error.filename or directory}: {error.strerror}") from None
    finally:
        for left in (fresh, old):
            shutil.rmtree(left, ignore_errors=True)
    return directory / "index.html"


@functools.cache
def _templates(name: str) -> tuple[jinja2.Template, jinja2.Template]:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    options: dict[str, Any] = {"loader": loader, "trim_blocks": True, "lstrip_blocks": True}
    options |= {"undefined": jinja2.StrictUndefined, "keep_trailing_newline": True}
    web = jinja2.Environment(autoescape=True, **options)
    text = jinja2.Environment(autoescape=False, **options)  # Markdown: every value passes the filter `line`
    for environment, convert in ((web, _html), (text, _markdown)):
        environment.filters["line"] = convert
        environment.filters["code"] = lambda words, convert=convert: convert(show.code(words))
    return web.get_template(f"{name}.html.jinja"), text.get_template(f"{name}.md.jinja")


def _html(entry: Entry) -> Markup:
    if isinstance(entry, list):
        return Markup("".join(f"<div>{show.to_html(line)}</div>" for line in entry))
    return Markup(show.to_html(entry))


def _markdown(entry: Entry) -> str:
    lines = entry if isinstance(entry, list) else [entry]
    return "<br>".join(map(show.to_markdown, lines))
