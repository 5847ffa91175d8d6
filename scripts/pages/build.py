"""The pages of a machine, built from its results and written, and what is said of them on a terminal."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from analysis.history import History, along, histories_of
from analysis.results import Results, load_files, shown
from cli import line, put
from store.records import recent

from . import histories_by_machine, history_page, index, release_notes, show
from .machine import page_of
from .page import Page, write
from .spreadsheet import csv_of

HISTORY = "history"  # beside the directories of machines


@dataclass(frozen=True)
class Built:
    """The pages of a machine with where they were written, and what the pages over all machines are made of."""

    machine: str
    pages: Sequence[tuple[Page, Path]]
    histories: Sequence[History] = ()


def build(results: Path, machine: str, output: Path) -> Built:
    """Build and write the page of one machine, and that of its histories where it has any."""
    paths, unread = shown(results, machine)
    everything = load_files(results, paths)
    histories = [*histories_of(everything).values()]
    loaded, before, others = latest(everything, along(everything) if histories else ())
    others = [*unread, *others]
    csv = csv_of(loaded)
    links = [(history_page.link(histories), f"../{HISTORY}/{quote(machine)}/")] if histories else []
    page = page_of(loaded, before, machine, others, csv, links)
    written = [(page, write(output / machine, page))]
    if histories:
        csv = history_page.csv_of(histories)
        releases_page = history_page.page_of(everything, histories, csv)
        written.append((releases_page, write(output / HISTORY / machine, releases_page)))
    return Built(machine, written, histories)


def over_machines(built: Sequence[Built], output: Path) -> None:
    """Write what is made of the results of all machines: the page over them, that over their histories, the feed."""
    with_history = [each for each in built if each.histories]
    release_notes.write_feed(output, [each.histories for each in with_history])
    histories = {each.machine: each.histories for each in with_history}
    compared = histories_by_machine.write(output / HISTORY, histories)
    if not compared:
        name_histories(output, list(histories))
    index.write(
        output,
        [each.pages[0][0] for each in built],
        [("Changes by release, all machines", f"{HISTORY}/")] if compared else [],
    )


def name_histories(output: Path, machines: Sequence[str]) -> None:
    """Name the machines that have a page of their histories, for whoever opens the directory."""
    places = [(show.to_markdown(name), quote(name)) for name in machines]
    lines = [f"- [{name}]({place}/README.md), [one file of HTML]({place}/index.html)" for name, place in places]
    if machines:
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
    """Print what a page's boxes say and where the page is."""
    lines = [f"{page.machine}: {' · '.join(page.facts)}", *map(show.to_plain, page.warnings)]
    for box in page.boxes:
        lines += ["", box.heading, *(f"  {show.bare(words)}" for words in box.said)]
        lines += [f"  - {show.bare(words)}" for words in box.notes]
    print(*lines, "", line(str(path)), sep="\n")
