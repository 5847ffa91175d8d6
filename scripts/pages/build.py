"""The pages of a machine, built from its results and written, and what is said of them on a terminal. The page over all
machines: the fastest safe route for each need, machines side by side, and links to their pages."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pandas as pd
from analysis.history import History, along, histories_of
from analysis.results import Results, load_files, shown
from cli import line, put
from store.records import recent

from benchmarks.contracts import ONE_THREAD

from . import history_page, release_notes, show
from .machine import MOSTLY, page_of
from .page import Page, Section, write, write_into
from .tables import Entry, Table, csv_of, text_of

HISTORY = "history"  # beside the directories of machines
TITLE = "What it costs to move data between NumPy and PyTorch"
COLUMNS = {
    ("machine", "question"): "the machine, and the need that is answered",
    ("threads",): "torch threads: 1, or all (torch's default); empty for transfers",
    ("nbytes", "route"): "size of the source in bytes, and the fastest safe route there",
    ("seconds", "quiet"): "its time in seconds per call; False: no quiet sample, so an upper bound",
}
WANTED = (8, 2**20, 64 * 2**20)  # bytes at which machines stand next to each other, as far as all have measured them


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
    compared = history_page.write_over_machines(output / HISTORY, histories)
    if not compared:
        name_histories(output, list(histories))
    links = [("Changes by release, all machines", f"{HISTORY}/")] if compared else []
    write_into(output, index_of([each.pages[0][0] for each in built], links))


def name_histories(output: Path, machines: Sequence[str]) -> None:
    """Name the machines that have a page of their histories, for whoever opens the directory. What compared them before
    goes."""
    directory = output / HISTORY
    for name in ("index.html", "changes.csv", *(() if machines else ("README.md",))):
        (directory / name).unlink(missing_ok=True)
    if machines:
        put(directory / "README.md", show.written("index", "histories", machines=machines, quote=quote))


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


# --- the page over all machines ---------------------------------------------------------------------------------------


def index_of(machines: Sequence[Page], others: Sequence[tuple[str, str]] = ()) -> Page:
    """Everything the page over all machines says. A machine's page links to that of its history, if there is one."""
    links = [*others]
    for each in machines:
        links.append((each.machine, f"{quote(each.machine)}/"))
        links += [(f"{each.machine}: changes by release", f"history/{quote(each.machine)}/")] if each.links else []
    best = pd.concat([each.best.assign(machine=each.machine) for each in machines], ignore_index=True)
    table = side_by_side(best, machines)
    return Page(
        title=TITLE,
        machine="",
        facts=show.prose("index", "facts", machines=len(machines)),
        warnings=(),
        boxes=(),
        legend=(),
        sections=[Section("routes", "Fastest safe routes", show.prose("index", "answers"), tables=(table,))],
        links=tuple(links),
        command="python scripts/run.py",
        csv=text_of(best[[name for names in COLUMNS for name in names]]),
        columns=COLUMNS,
        data="answers.csv",
        feed="feed.xml" if any(each.links for each in machines) else "",
    )


def side_by_side(best: pd.DataFrame, machines: Sequence[Page]) -> Table:
    """Need down, machines across: call and times, at sizes that all machines have which answer it."""
    rows: list[tuple[Entry, ...]] = []
    for question, answers in best[best["threads"].isin(["", ONE_THREAD])].groupby("question", sort=False):
        measured = answers.groupby("nbytes")["machine"].nunique()
        common = measured.index[measured == measured.max()]
        sizes = [nbytes for nbytes in WANTED if nbytes in common] or common[-1:]
        there = answers[answers["nbytes"].isin(sizes)].sort_values("nbytes", kind="stable")
        found = {machine: _answer(here) for machine, here in there.groupby("machine")}
        rows.append((str(question), *(found.get(each.machine, "") for each in machines)))
    heads = [show.said("index", "head", page=each, mostly=MOSTLY) for each in machines]
    return Table("Fastest safe routes", ("need", *heads), tuple(rows), numeric=False)


def _answer(rows: pd.DataFrame) -> list[str]:
    """The call of a machine, and its times by size; another call where that is faster."""
    lines: list[str] = []
    for _, same in rows.groupby((rows["route"] != rows["route"].shift()).cumsum()):
        times = [f"{show.size(row.nbytes)}: {show.seconds(row.seconds, bool(row.quiet))}" for row in same.itertuples()]
        lines += [show.code(same["route"].iloc[0]), *times]
    return lines
