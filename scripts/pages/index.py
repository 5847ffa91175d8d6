"""The page over all machines: the fastest safe route for each need, machines side by side, and links to their pages."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from benchmarks.contracts import ONE_THREAD

from . import show
from .machine import MOSTLY
from .page import Page, Section, write_into
from .spreadsheet import text_of
from .tables import Entry, Table

TITLE = "What it costs to move data between NumPy and PyTorch"
COLUMNS = {
    ("machine", "question"): "the machine, and the need that is answered",
    ("threads",): "torch threads: 1, or all (torch's default); empty for transfers",
    ("nbytes", "route"): "size of the source in bytes, and the fastest safe route there",
    ("seconds", "quiet"): "its time in seconds per call; False: no quiet sample, so an upper bound",
}
WANTED = (8, 2**20, 64 * 2**20)  # bytes at which machines stand next to each other, as far as all have measured them


def write(output: Path, pages: Sequence[Page], links: Sequence[tuple[str, str]] = ()) -> Path:
    """Write index.html, README.md and answers.csv over these machines' pages, one at least; links: to other pages over
    all."""
    return write_into(output, page_of(pages, links))


def page_of(machines: Sequence[Page], others: Sequence[tuple[str, str]] = ()) -> Page:
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
    heads = [" ".join(show.prose("index", "head", page=each, mostly=MOSTLY)) for each in machines]
    return Table("Fastest safe routes", ("need", *heads), tuple(rows), numeric=False)


def _answer(rows: pd.DataFrame) -> list[str]:
    """The call of a machine, and its times by size; another call where that is faster."""
    lines: list[str] = []
    for _, same in rows.groupby((rows["route"] != rows["route"].shift()).cumsum()):
        times = [f"{show.size(row.nbytes)}: {show.seconds(row.seconds, bool(row.quiet))}" for row in same.itertuples()]
        lines += [show.code(same["route"].iloc[0]), *times]
    return lines
