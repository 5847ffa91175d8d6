"""The pages of a machine, built from its results and written, and what is said of them on a terminal."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from analysis import sessions
from analysis.results import Results, load
from cli import line, put
from store.records import recent

from pages.history import advice, kinds
from pages.history import page as history_page
from pages.history.advice import ADVICE

from . import show
from .feed import CHANGES, changes_of
from .index import ANSWERS, summary_of
from .machine import page_of
from .page import Page, write
from .spreadsheet import csv_of

HISTORY = "history"  # beside the directories of machines


def _coloured(sentence: str, style: str) -> list[tuple[str, str]]:
    return [(text, "cyan" if is_code else style) for text, is_code in show.spans(sentence)]


def build(results: Path, machine: str, output: Path) -> Iterator[tuple[Page, Path]]:
    """Build and write the page of one machine, and that of its histories where it has any."""
    everything = load(results, machine)
    histories = history_page.histories_of(everything)
    loaded, before, others = latest(everything, sessions.files(everything) if histories else ())
    csv = csv_of(loaded)
    links = [(history_page.link(histories), f"../{HISTORY}/{quote(machine)}/")] if histories else []
    page = page_of(loaded, before, machine, others, csv, links)
    yield page, write(output / machine, page, {ANSWERS: summary_of(page)})
    if histories:
        csv = history_page.csv_of(histories)
        releases_page = history_page.page_of(everything, histories, csv)
        newest = everything.of_file(histories[0].releases[-1].file)
        also = {CHANGES: changes_of(results, histories), ADVICE: advice.text_of(histories[0], newest)}
        yield releases_page, write(output / HISTORY / machine, releases_page, also)


def name_histories(output: Path) -> None:
    """Name the machines that have a page of their histories, for whoever opens the directory; where there are several,
    with what they have in common."""
    if kinds.write(output / HISTORY):
        return
    names = sorted(path.parent.name for path in (output / HISTORY).glob("*/index.html"))
    places = [(show.to_markdown(name), quote(name)) for name in names]
    lines = [f"- [{name}]({place}/README.md), [one file of HTML]({place}/index.html)" for name, place in places]
    if names:
        title = "# What releases of torch and numpy changed, by machine"
        put(output / HISTORY / "README.md", "\n".join([title, "", *lines, ""]))


def latest(results: Results, elsewhere: Collection[str] = ()) -> tuple[Results, Results | None, list[str]]:
    """The results of the file that was run most recently, of the one before it, and the toolchains of all others but
    those of the files ``elsewhere``, which have a page of their own."""
    toolchains = dict(results.cells[["file", "toolchain"]].drop_duplicates().itertuples(index=False, name=None))
    recorded = recent(record for record in results.runs if record.file in toolchains) or list(toolchains)[::-1]
    others = [toolchain for name, toolchain in toolchains.items() if name != recorded[0] and name not in elsewhere]
    before = results.of_file(recorded[1]) if len(recorded) > 1 else None
    return results.of_file(recorded[0]), before, others


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
