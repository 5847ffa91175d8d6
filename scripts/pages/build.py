"""Build and write everything that is published.

- The pages of a machine, from its results, and their summary for a terminal.
- The page over all machines: the fastest safe route for each need, machines side by side, and links
  to their pages.
- The site: all pages in one folder.
- Errors in submitted results, in words.
"""

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import quote, urlsplit

from analysis.history import History, histories_of
from analysis.measured import Measured, measured_answer
from analysis.results import Results, load, load_files, select_results, where
from analysis.submission import Finding
from cli import ROOT, UserError, one_line
from pandas import DataFrame, concat
from store import files
from store.files import TABLE, put
from store.frames import rows_of
from store.questions import read_questions
from store.schema import latest_files
from toolchains import ledger

from benchmarks.contracts import ALL_THREADS, ONE_THREAD

from . import history_page, show
from .advice import has_one_time
from .libraries import library_table
from .machine import machine_page
from .page import (
    OVERVIEW_LINK,
    Page,
    Section,
    column_meanings,
    render_web,
    to_csv,
    write,
    write_figures,
    write_into,
)
from .pairs import machine_pairs
from .release_news import FEED, release_news, write_feed
from .tables import ANSWER_BYTES, Table, render_table

HISTORY = "history"  # next to the directories of machines
TITLE = "What it costs to move data between NumPy and PyTorch"
ASV = "asv"  # directory of asv's own site; its scripts make its links
RESULTS = "results"
PAGE = r"(?:index\.html|compare\.js|README\.md|feed\.xml|(?:results|answers)\.csv|[a-z0-9-]+\.svg)"
MARKER = "<!-- numpy-torch-conversion: submission -->"  # finds the comment of an earlier check
QUOTE_LETTERS = 200  # of a text from a file: a comment on GitHub has 65,536 at most
# the page's own address is inserted after this
OPEN_GRAPH_TYPE = '<meta property="og:type" content="website">\n'
ADDRESS = '<link rel="canonical" href="{0}">\n<meta property="og:url" content="{0}">\n'


@dataclass(frozen=True)
class Built:
    """The pages of a machine with their paths, and its histories, from which the pages over all
    machines are built."""

    machine: str
    pages: Sequence[tuple[Page, Path]]
    results: Results  # of its page
    histories: Sequence[History] = ()


def build(results: Path, machine: str, output: Path) -> Built:
    """Build and write the page of one machine, and the page of its histories if it has any."""
    paths, unread = select_results(results, machine)
    loaded = load_files(results, paths)
    histories = [*histories_of(loaded).values()]
    links = [(history_page.link(histories), f"../{HISTORY}/{quote(machine)}/")] if histories else []
    latest, previous, toolchains = latest_results(loaded, with_histories=bool(histories))
    questions = read_questions(results, machine, Measured)
    answers = [measured_answer(question, machine) for question in questions]
    page = machine_page(latest, previous, machine, [*unread, *toolchains], links, answers)
    pages = [(page, write(output / machine, page))]
    if histories:
        page = history_page.page_of(loaded, histories)
        pages.append((page, write(output / HISTORY / machine, page)))
    return Built(machine, pages, latest, histories)


def over_machines(built: Sequence[Built], output: Path) -> None:
    """Write the output over all machines: their page, the index of their histories, and the feed.
    Remove an older version's index if there are none."""
    histories = {each.machine: each.histories for each in built if each.histories}
    write_feed(output, [*chain(*histories.values())])
    if histories:
        write_into(output / HISTORY, index_of_histories(histories))
    else:
        for name in ("index.html", "README.md"):
            (output / HISTORY / name).unlink(missing_ok=True)
    results = {each.machine: each.results for each in built}
    write_into(output, index_of([each.pages[0][0] for each in built], results, bool(histories)))


def index_of_histories(histories: Mapping[str, Sequence[History]]) -> Page:
    """The content of the page that lists the releases of all histories."""
    tables = []
    for machine, of_machine in histories.items():
        news = [*chain.from_iterable(map(release_news, of_machine))]
        address = f"{quote(machine)}/"
        tables.append(
            render_table("index", "releases", False, machine=machine, address=address, news=news)
        )
    return Page(
        title="What releases of torch and numpy changed, by machine",
        facts=show.render_paragraphs("index", "facts_of_histories", machines=len(histories)),
        sections=[Section("histories", "Histories", tables=tuple(tables))],
        trail=(OVERVIEW_LINK,),
        links=(),
        runs=(),
        address="reports/history/index.html",
        feed=f"../{FEED}",
    )


def latest_results(
    results: Results, with_histories: bool
) -> tuple[Results, Results | None, list[str]]:
    """The results of the latest file, those of the file before it, and the toolchains of all files
    but the latest. Releases have a page of their own if there are histories, and are left out."""
    toolchains = dict(zip(results.cells["file"], results.cells["toolchain"]))
    recorded = latest_files(record for record in results.runs if record.file in toolchains)
    latest, *earlier = recorded or [*toolchains][::-1]
    releases = ledger.toolchains_by_tag() if with_histories else ()
    other_toolchains = [
        toolchain
        for name, toolchain in toolchains.items()
        if name != latest and toolchain not in releases
    ]
    previous = results.of_file(earlier[0]) if earlier else None
    return results.of_file(latest), previous, other_toolchains


def print_summary(page: Page, path: Path) -> None:
    """Print the text of a page's boxes and the path of the page."""
    lines = [f"{page.machine}: {' · '.join(page.facts)}", *map(show.to_plain, page.warnings)]
    for box in page.boxes:
        lines += ["", box.heading, *(f"  {show.bare(words)}" for words in box.sentences)]
        lines += [f"  - {show.bare(words)}" for words in box.notes]
    print(*lines, "", one_line(str(path)), sep="\n")


# --- the page over all machines -------------------------------------------------------------------


def index_of(
    machines: Sequence[Page], results: Mapping[str, Results], has_histories: bool = False
) -> Page:
    """The content of the page over all machines. results: of each machine, by its name."""
    histories = [
        ("What releases changed, by machine", f"{HISTORY}/"),
        ("Feed of what releases changed", FEED),
    ]
    best = concat(
        [page.best_routes.assign(machine=page.machine) for page in machines], ignore_index=True
    )
    columns = column_meanings("answers")
    intro, *notes = show.render_paragraphs("index", "answers")
    shown = shown_answers(best)
    table = side_by_side(shown, machines)
    libraries = Section(
        "libraries",
        "From what you have",
        show.render_paragraphs("libraries", "intro"),
        tables=(library_table(),),
        folded=True,
    )
    return Page(
        title=TITLE,
        facts=show.render_paragraphs("index", "facts", machines=len(machines)),
        sections=[
            Section("routes", "Fastest safe routes", (intro,), tables=(table,), after=tuple(notes)),
            libraries,
        ],
        pairs=machine_pairs(results, shown),
        links=(
            *((page.machine, f"{quote(page.machine)}/") for page in machines),
            *(histories if has_histories else ()),
            ("How a figure is measured", "../docs/method.md"),
            ("Glossary", "../docs/glossary.md"),
        ),
        runs=[
            record
            for page in machines
            for record in page.runs
            if record.samples or not record.started  # it shows times
        ],
        address="reports/index.html",
        csv=to_csv(best[[*chain(*columns)]]),
        columns=columns,
        data="answers.csv",
        feed=FEED if has_histories else "",
    )


def side_by_side(shown: DataFrame, machines: Sequence[Page]) -> Table:
    """Needs as rows, machines as columns: call and times of ``shown_answers``, or the call's one
    time where it shares memory."""
    rows = []
    for question, answers in shown.groupby("question", sort=False):
        answers = answers.sort_values("nbytes", kind="stable")
        entries = []
        for page in machines:
            own = where(answers, machine=page.machine)
            entries.append((page, rows_of(own), not own.empty and has_one_time(own)))
        rows.append((question, entries))
    return render_table("index", "routes", False, rows=rows, machines=machines, quote=quote)


def shown_answers(best: DataFrame) -> DataFrame:
    """Answers as machines' pages show them, with torch's default number of threads where it was
    measured, at the sizes shared by all machines that answer the need."""
    by_default = set(best.loc[best["threads"] == ALL_THREADS, "machine"])
    is_repeated = (best["threads"] == ONE_THREAD) & best["machine"].isin(by_default)
    best = best[~is_repeated]
    shown = []
    for _, answers in best.groupby("question", sort=False):
        measured = answers.groupby("nbytes")["machine"].nunique()
        shared = measured.index[measured == measured.max()]
        sizes = [size for size in shared if size in ANSWER_BYTES] or [*shared[-1:]]
        shown.append(where(answers, nbytes=sizes))
    return concat(shown) if shown else best


# --- the site -------------------------------------------------------------------------------------


def publish(reports: Path, folder: Path, url: str | None, with_asv: bool) -> str:
    """Replace the content of ``folder`` with pages, documents and results, to be published at
    ``url``. Return its first page's path. UserError if that would delete other files, or if asv
    cannot make its own site."""
    from .documents import publish_documents  # other commands need no markdown_it

    if url and urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"--url {url}: write it with https://")
    folder = folder.resolve()
    machines = files.machines(reports / RESULTS)
    sources = [reports.resolve() / name for name in (RESULTS, HISTORY, *machines)]
    if any(path.is_relative_to(folder) or folder.is_relative_to(path) for path in sources):
        raise UserError(
            f"--site {folder} would delete what it copies: name a folder apart from {reports}"
        )
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "index.html").is_file():
        raise UserError(f"--site {folder} holds something else: name an empty directory")
    results = load(reports / RESULTS)
    overview = reports / "index.html"
    links = overview.read_text(encoding="utf-8") if overview.is_file() else ""
    for machine in machines:
        page = f"{machine}/index.html"
        if page not in links or not (reports / page).is_file():
            raise UserError(f"{overview} has no page of {machine}: make report builds both")
    shutil.rmtree(folder, ignore_errors=True)
    _copy(reports, folder, machines)
    _list_directories(folder)
    publish_documents(folder)
    write_figures(results, folder)
    if with_asv:
        _publish_asv(folder / ASV)
    if url:
        _write_address(folder, url.rstrip("/"))
    return one_line(os.path.relpath(folder / "index.html"))


def _publish_asv(folder: Path) -> None:
    command = [sys.executable, "-m", "asv", "publish", "--html-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        last_line = (done.stdout + done.stderr).strip().splitlines()[-1]
        raise UserError(f"asv publish: {one_line(last_line)}")


def _copy(reports: Path, folder: Path, machines: Sequence[str]) -> None:
    """Copy the pages, under the names that report.py gives them, and the results that the loader
    reads. Nothing else is copied, and no links."""
    machine = f"(?:{'|'.join(map(re.escape, machines))})"
    result_file = f"(?:{files.MACHINE}|{files.RESULT_FILE.pattern})"
    result = rf"{machine}/(?:{files.NODE_PREFIX}[\w.-]+/)?{result_file}"
    page = f"(?:(?:history/)?{machine}/|history/)?{PAGE}"
    published = re.compile(f"{page}|{RESULTS}/(?:{files.BENCHMARKS}|{TABLE}|{result})")
    for path in reports.rglob("*"):  # does not follow links
        name = path.relative_to(reports).as_posix()
        if published.fullmatch(name) and path.is_file() and not path.is_symlink():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def _list_directories(folder: Path) -> None:
    """Add an index to the directories of results: a web server may not list them."""
    for directory in [*(folder / RESULTS).glob("**/")]:
        index = directory / "index.html"
        if not index.exists():
            paths = sorted(directory.iterdir())
            names = [f"{path.name}/index.html" if path.is_dir() else path.name for path in paths]
            title = directory.relative_to(folder).as_posix()
            put(index, render_web("listing.html.jinja", title=title, names=names))


def _write_address(site: Path, url: str) -> None:
    """Write its published address into every page, for link previews and citations. Make the
    feed's links absolute: feed readers know no relative ones."""
    feed = site / FEED
    if feed.is_file():
        text = feed.read_text(encoding="utf-8")
        put(feed, text.replace('href="', f'href="{html.escape(url)}/'))
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        if not name.startswith(f"{ASV}/"):
            address = html.escape(f"{url}/{quote(name.removesuffix('index.html'))}")
            tags = OPEN_GRAPH_TYPE + ADDRESS.format(address)
            text = path.read_text(encoding="utf-8").replace(OPEN_GRAPH_TYPE, tags, 1)
            put(path, text.replace(f"reports/{name}", address))


# --- a submission ---------------------------------------------------------------------------------


def submission(name: str, findings: Sequence[Finding]) -> list[str]:
    """The findings, a sentence each. Quotes from the submission are code, so they mention nobody
    and link nowhere."""
    count = f"{len(findings)} finding{'s' * (len(findings) > 1)}"
    return [
        f"{_quoted(name)}: {count if findings else 'may be published'}",
        *(f"{_quoted(finding.file)}: {_finding_sentence(finding)}" for finding in findings),
    ]


def _quoted(text: str) -> str:
    return show.code(one_line(text)[:QUOTE_LETTERS])


def _finding_sentence(finding: Finding) -> str:
    rest = f" and {finding.further} more" if finding.further else ""
    subject = _quoted(finding.subject) + rest
    return show.render_line("submission", finding.kind, subject=subject, values=finding.values)


def comment(sentences: Sequence[str]) -> str:
    """A comment for a pull request."""
    return "\n".join([MARKER, *(f"- {show.to_markdown(sentence)}" for sentence in sentences), ""])
