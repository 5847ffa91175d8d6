"""Build and write everything that is published.

- The pages of a machine, from its results, and their summary for a terminal.
- The page over all machines: the fastest safe route for each need, machines side by side, and links to their pages.
- The site: all pages in one folder.
- Errors in submitted results, in words.
"""

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import quote, urlsplit

import pandas as pd
from analysis import history
from analysis.history import History, histories_of
from analysis.results import Results, load, load_files, select_results
from analysis.submission import Finding
from cli import ROOT, UserError, one_line
from store import files
from store.files import put
from store.schema import latest_files
from toolchains import ledger

from benchmarks.contracts import ONE_THREAD

from . import history_page, show, tables
from .feed import write_feed
from .machine import machine_page
from .machines_page import page_over_machines
from .page import Page, Section, render_web, write, write_into
from .tables import Table, render_table, to_csv

HISTORY = "history"  # beside the directories of machines
TITLE = "What it costs to move data between NumPy and PyTorch"
WANTED = (8, 2**20, 64 * 2**20)  # bytes at which machines are compared, if all have measured them
ASV = "asv"  # directory of asv's own site; its scripts make its links
RESULTS = "results"
PAGE = r"(?:index\.html|README\.md|feed\.xml|(?:results|answers|changes)\.csv|[a-z0-9-]+\.svg)"
MARKER = "<!-- numpy-torch-conversion: submission -->"  # finds the comment of an earlier check on a pull request
LONGEST = 200  # characters quoted from a file: a comment on GitHub has 65,536 at most
ADDRESSED = (
    '<meta property="og:type" content="website">\n'  # the page's own address is inserted after this
)


@dataclass(frozen=True)
class Built:
    """The pages of a machine with their paths, and its histories, from which the pages over all machines are built."""

    machine: str
    pages: Sequence[tuple[Page, Path]]
    histories: Sequence[History] = ()


def build(results: Path, machine: str, output: Path) -> Built:
    """Build and write the page of one machine, and the page of its histories if it has any."""
    paths, unread = select_results(results, machine)
    everything = load_files(results, paths)
    histories = [*histories_of(everything).values()]
    loaded, before, others = latest(everything, ledger.toolchains_by_tag() if histories else ())
    others = [*unread, *others]
    links = [(history_page.link(histories), f"../{HISTORY}/{quote(machine)}/")] if histories else []
    page = machine_page(loaded, before, machine, others, links)
    written = [(page, write(output / machine, page))]
    if histories:
        releases_page = history_page.page_of(everything, histories)
        written.append((releases_page, write(output / HISTORY / machine, releases_page)))
    return Built(machine, written, histories)


def over_machines(built: Sequence[Built], output: Path) -> None:
    """Write the output over all machines: their page, the page over their histories, and the feed."""
    histories = {each.machine: each.histories for each in built if each.histories}
    write_feed(output, [*chain(*histories.values())])
    changes, links = history.changes_over_machines(histories), []
    if changes.empty:  # no two machines have a route in common
        name_histories(output, list(histories))
    else:
        write_into(output / HISTORY, page_over_machines(list(histories), changes))
        links = [("Changes by release, all machines", f"{HISTORY}/")]
    write_into(output, index_of([each.pages[0][0] for each in built], links))


def name_histories(output: Path, machines: Sequence[str]) -> None:
    """Write a README that lists the machines with a page of their histories. Remove an earlier page that compared
    them."""
    directory = output / HISTORY
    for name in ("index.html", "changes.csv", *(() if machines else ("README.md",))):
        (directory / name).unlink(missing_ok=True)
    if machines:
        put(
            directory / "README.md",
            show.render("index", "histories", machines=machines, quote=quote),
        )


def latest(
    results: Results, elsewhere: Collection[str] = ()
) -> tuple[Results, Results | None, list[str]]:
    """The results of the latest file, the results of the file before it, and the toolchains of all files but the
    latest. Toolchains ``elsewhere`` are left out, because they have a page of their own."""
    toolchains = dict(
        results.cells[["file", "toolchain"]].drop_duplicates().itertuples(index=False, name=None)
    )
    recorded = (
        latest_files(record for record in results.runs if record.file in toolchains)
        or list(toolchains)[::-1]
    )
    others = [
        toolchain
        for name, toolchain in toolchains.items()
        if name != recorded[0] and toolchain not in elsewhere
    ]
    before = results.of_file(recorded[1]) if len(recorded) > 1 else None
    return results.of_file(recorded[0]), before, others


def print_summary(page: Page, path: Path) -> None:
    """Print the text of a page's boxes and the path of the page."""
    lines = [f"{page.machine}: {' · '.join(page.facts)}", *map(show.to_plain, page.warnings)]
    for box in page.boxes:
        lines += ["", box.heading, *(f"  {show.bare(words)}" for words in box.sentences)]
        lines += [f"  - {show.bare(words)}" for words in box.notes]
    print(*lines, "", one_line(str(path)), sep="\n")


# --- the page over all machines ---------------------------------------------------------------------------------------


def index_of(machines: Sequence[Page], others: Sequence[tuple[str, str]] = ()) -> Page:
    """The content of the page over all machines. A machine's page has links only if there is a page of its history."""
    links = [*others]
    for each in machines:
        links.append((each.machine, f"{quote(each.machine)}/"))
        links += (
            [(f"{each.machine}: changes by release", f"history/{quote(each.machine)}/")]
            if each.links
            else []
        )
    best = pd.concat(
        [each.best_routes.assign(machine=each.machine) for each in machines], ignore_index=True
    )
    table, columns = side_by_side(best, machines), tables.column_meanings("answers")
    return Page(
        title=TITLE,
        facts=show.render_paragraphs("index", "facts", machines=len(machines)),
        sections=[
            Section(
                "routes",
                "Fastest safe routes",
                show.render_paragraphs("index", "answers"),
                tables=(table,),
            )
        ],
        links=tuple(links),
        command="python scripts/run.py",
        csv=to_csv(best[[*chain(*columns)]]),
        columns=columns,
        data="answers.csv",
        feed="feed.xml" if any(each.links for each in machines) else "",
    )


def side_by_side(best: pd.DataFrame, machines: Sequence[Page]) -> Table:
    """Needs as rows, machines as columns: call and times, at the sizes common to all machines that answer the need."""
    rows: dict[str, pd.DataFrame] = {}
    for question, answers in best[best["threads"].isin(["", ONE_THREAD])].groupby(
        "question", sort=False
    ):
        measured = answers.groupby("nbytes")["machine"].nunique()
        common = measured.index[measured == measured.max()]
        sizes = [nbytes for nbytes in WANTED if nbytes in common] or common[-1:]
        rows[str(question)] = answers[answers["nbytes"].isin(sizes)].sort_values(
            "nbytes", kind="stable"
        )
    return render_table("index", "routes", False, rows=rows, machines=machines)


# --- the site ---------------------------------------------------------------------------------------------------------


def publish(reports: Path, folder: Path, url: str | None, with_asv: bool) -> str:
    """Replace the content of ``folder`` with pages and results, to be published at ``url``. Return its first page's
    path. UserError if that would delete other files, or if asv cannot make its own site."""
    if url and urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"--url {url}: write it with https://")
    folder, machines = folder.resolve(), files.machines(reports / RESULTS)
    copied = [reports.resolve() / name for name in (RESULTS, HISTORY, *machines)]
    if any(place.is_relative_to(folder) or folder.is_relative_to(place) for place in copied):
        raise UserError(
            f"--site {folder} would delete what it copies: name a folder apart from {reports}"
        )
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "index.html").is_file():
        raise UserError(f"--site {folder} holds something else: name an empty directory")
    results = load(reports / RESULTS)
    shutil.rmtree(folder, ignore_errors=True)
    _copy(reports, folder, machines)
    tables.write_figures(results, folder)
    if with_asv:
        command = [sys.executable, "-m", "asv", "publish", "--html-dir", str(folder / ASV)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise UserError(
                f"asv publish: {one_line((done.stdout + done.stderr).strip().splitlines()[-1])}"
            )
    if url:
        address(folder, url)
    return one_line(os.path.relpath(folder / "index.html"))


def _copy(reports: Path, folder: Path, machines: Sequence[str]) -> None:
    """Copy the pages, under the names that report.py gives them, and the results that the loader reads. Nothing else is
    copied, and no links."""
    machine = f"(?:{'|'.join(map(re.escape, machines))})"
    result = rf"{machine}/(?:{files.NODE_PREFIX}[\w.-]+/)?(?:{files.MACHINE}|{files.RESULT_FILE.pattern})"
    wanted = re.compile(
        rf"(?:(?:history/)?{machine}/|history/)?{PAGE}|{RESULTS}/(?:{files.BENCHMARKS}|{files.TABLE}|{result})"
    )
    for path in reports.rglob("*"):  # does not follow links
        place = path.relative_to(reports)
        if wanted.fullmatch(place.as_posix()) and path.is_file() and not path.is_symlink():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / place)
    # a web server may not list directories
    for directory in [
        path for path in (folder / RESULTS).glob("**/") if not (path / "index.html").exists()
    ]:
        name, paths = directory.relative_to(folder).as_posix(), sorted(directory.iterdir())
        put(directory / "index.html", render_web("listing.html.jinja", name=name, paths=paths))


def address(site: Path, url: str) -> None:
    """Write its published address into every page, for link previews. Make the feed's links absolute: feed readers know
    no relative ones."""
    feed = site / "feed.xml"
    if feed.is_file():
        put(
            feed,
            feed.read_text(encoding="utf-8").replace(
                'href="', f'href="{html.escape(url.rstrip("/"))}/'
            ),
        )
    for path in [
        path for path in sorted(site.rglob("*.html")) if path.relative_to(site).parts[0] != ASV
    ]:
        place = path.relative_to(site).as_posix().removesuffix("index.html")
        canonical = html.escape(f"{url.rstrip('/')}/{quote(place)}")
        said = f'<link rel="canonical" href="{canonical}">\n<meta property="og:url" content="{canonical}">\n'
        text = path.read_text(encoding="utf-8")
        put(path, text.replace(ADDRESSED, ADDRESSED + said, 1))


# --- a submission -----------------------------------------------------------------------------------------------------


def submission(name: str, findings: Sequence[Finding]) -> list[str]:
    """The findings, a sentence each. Quotes from the submission are code, so they mention nobody and link nowhere."""
    count = (
        f"{len(findings)} finding{'s' * (len(findings) > 1)}" if findings else "may be published"
    )
    return [
        f"{_quoted(name)}: {count}",
        *(f"{_quoted(each.file)}: {_found(each)}" for each in findings),
    ]


def _quoted(text: str) -> str:
    return show.code(one_line(text)[:LONGEST])


def _found(finding: Finding) -> str:
    about = _quoted(finding.subject) + (f" and {finding.further} more" if finding.further else "")
    return show.render_line("submission", finding.kind, about=about, values=finding.values)


def comment(sentences: Sequence[str]) -> str:
    """A comment for a pull request."""
    return "\n".join([MARKER, *(f"- {show.to_markdown(sentence)}" for sentence in sentences), ""])
