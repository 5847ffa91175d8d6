"""The page of a machine's histories.

The data is read once. Each section is a view of it: heat maps (change_pictures.py), what a release
changed (release_news.py), why, as far as somebody found out by hand (causes.yaml), and the method.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import yaml
from analysis import findings
from analysis.changes import LAYOUT
from analysis.history import History, Release
from analysis.results import Results, where
from analysis.verdicts import TIME
from cli import UserError
from pandas import DataFrame, concat
from store import frames
from store.frames import Change, rows_of
from store.schema import RunRecord

from . import show
from .advice import Box, BoxRow
from .change_pictures import heat_maps
from .page import Page, Section, to_csv
from .pairs import Pairs, release_pairs
from .release_news import ReleaseNews, changes_table, release_news
from .show import Lines
from .tables import render_table

CSV_DIGITS = 5  # significant
CAUSES = Path(__file__).with_name("causes.yaml")
STATUSES = ("probable", "confirmed")


@dataclass(frozen=True)
class HistoryData:
    """All that the page of a machine's histories shows.

    records     of all sessions, by start
    parameters  columns of parameters that any series has, in order
    outdated    of each benchmark: whether it has changed since it was measured
    appearances, redefinitions
                package -> routes that a release gains or loses, or whose behaviour it changes;
                see ``analysis.findings``
    """

    histories: Sequence[History]
    records: Sequence[RunRecord]
    parameters: Sequence[str]
    outdated: Sequence[bool]
    appearances: Mapping[str, DataFrame]
    redefinitions: Mapping[str, DataFrame]

    @cached_property
    def rows(self) -> DataFrame:
        """The rows of all histories."""
        return concat([history.rows for history in self.histories], ignore_index=True)

    def paragraphs(self, block: str, **values: object) -> Lines:
        """A block of history.md.jinja. nodes: number of the machine's; 0 for a single computer."""
        values |= {"histories": self.histories, "records": self.records}
        nodes = max(len(history.nodes) for history in self.histories)
        return show.render_paragraphs("history", block, nodes=nodes, **values)


def read_histories(results: Results, histories: Sequence[History]) -> HistoryData:
    """Gather the data of a page from a machine's results and the histories made from them."""
    releases = {history.package: history.releases for history in histories}
    files = {file for each in releases.values() for release in each for file in release.files}
    records = [record for file in files for record in results.sessions_of(file)]
    rows = concat([history.rows for history in histories])
    return HistoryData(
        histories=histories,
        records=sorted(records, key=lambda record: record.started),
        parameters=[
            name for name in results.parameters if name != "direction" and rows[name].notna().any()
        ],
        outdated=results.version_changes(rows),
        appearances={name: findings.appearances(results, each) for name, each in releases.items()},
        redefinitions={name: findings.redefined(results, each) for name, each in releases.items()},
    )


def link(histories: Sequence[History]) -> str:
    """Text of links to this page."""
    return f"What releases changed: {show.join([*map(span, histories)])}"


def span(history: History) -> str:
    return f"{history.releases[0].name} to {history.releases[-1].version}"


def _packages(histories: Sequence[History]) -> str:
    varies_python = any(not history.python for history in histories)
    return "torch, numpy and Python" if varies_python else "torch and numpy"


def page_of(results: Results, histories: Sequence[History]) -> Page:
    """The content of the page of a machine's histories."""
    data = read_histories(results, histories)
    news = [release_news(history) for history in histories]
    pairs = [release_pairs(history) for history in histories]
    columns = csv_columns(data)
    machine = histories[0].machine
    sections = [
        _release_section(data, history, each, of_releases)
        for history, of_history, of_releases in zip(histories, news, pairs)
        for each in of_history
    ]
    timed = [where(history.rows, what=TIME) for history in histories]
    warnings = data.paragraphs(
        "warnings",
        outdated=sum(data.outdated),
        benchmarks=len(data.outdated),
        processes=[rows["processes"].median() for rows in timed],
    )
    return Page(
        title=f"What releases of {_packages(histories)} changed on {machine}",
        machine=machine,
        facts=data.paragraphs("facts"),
        warnings=warnings,
        boxes=tuple(map(_box, histories, news)),
        heats=tuple(chain.from_iterable(map(heat_maps, histories))),
        legend=data.paragraphs("legend"),
        pairs=tuple(pairs),
        sections=[*sections, _method(data)],
        trail=(("All machines", "../../"), ("Histories", "../")),
        links=(
            (
                f"What to use on {machine}: every conversion with one toolchain",
                f"../../{quote(machine)}/",
            ),
            *_cause_links(histories),
        ),
        runs=data.records,
        address=f"reports/history/{machine}/index.html",
        csv=history_csv(data, columns),
        columns=columns,
        samples=f"../../results/{quote(machine)}/",
        feed="../../feed.xml",
    )


def _box(history: History, news: Sequence[ReleaseNews]) -> Box:
    """The headline of each release, the newest first."""
    rows = []
    for each in news:
        title = f"{each.release.name} ({each.release.date})"
        entries = (each.headline, each.summaries[0] if each.timed else "")
        rows.append(BoxRow(each.release.tag, title, entries, each.tally))
    columns = (
        "release",
        "routes that changed, per direction and requires_grad",
        "largest change of time",
    )
    title = f"{span(history)}, {history.fixed_package}"
    return Box(title, columns=columns, rows=tuple(rows))


def _release_section(
    data: HistoryData, history: History, news: ReleaseNews, pairs: Pairs
) -> Section:
    """What a release changed: its headline, what behaves differently, a row per route, and what
    change of other routes would have been found."""
    release = news.release
    appearances, redefinitions = (
        rows_of(where(rows, release=release.version))
        for rows in (data.appearances[history.package], data.redefinitions[history.package])
    )
    behaviour = data.paragraphs(
        "behaviour",
        news=news,
        appearances=appearances,
        redefinitions=redefinitions,
    )
    return Section(
        release.tag,
        f"{release.name}, {release.date}",
        (news.findings, *_causes(history, release), *behaviour),
        after=pairs.tables[news.previous.version, release.version].notes[-1:],
        tables=(changes_table(history, release),),
        folded=True,
    )


@dataclass(frozen=True)
class Cause:
    """An entry of causes.yaml, which explains the fields."""

    release: str
    routes: str
    link: str
    status: str
    evidence: str

    def __post_init__(self) -> None:
        re.compile(self.routes)
        if self.status not in STATUSES or not self.link.startswith("https://"):
            raise ValueError(f"{self.release}: {self.status}, {self.link}")

    def explains(self, route: object) -> bool:
        """Whether it is a cause of a change of this route."""
        return isinstance(route, str) and re.fullmatch(self.routes, route) is not None


@cache
def read_causes(path: Path = CAUSES) -> tuple[Cause, ...]:
    """Read the causes. UserError if an entry is broken."""
    try:
        return tuple(Cause(**entry) for entry in yaml.safe_load(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError, re.error, yaml.YAMLError) as error:
        raise UserError(f"{path.name} has a broken entry: {error}") from None


def _causes(history: History, release: Release) -> Lines:
    """The causes that are known by hand of changes of a release, a paragraph each."""
    changes = history.changes
    is_counted = changes["release"].eq(release.version) & changes["evidence"].ne(LAYOUT)
    routes = changes.loc[is_counted, "route"].dropna().unique()
    explained = [
        (cause, [*filter(cause.explains, routes)])
        for cause in read_causes()
        if cause.release == release.tag
    ]
    return show.render_paragraphs("history", "causes", explained=explained)


def _cause_links(histories: Sequence[History]) -> Iterator[tuple[str, str]]:
    """Text and address of the causes that are known by hand, each once."""
    names = {release.tag: release.name for history in histories for release in history.releases}
    links = {cause.link: names[cause.release] for cause in read_causes() if cause.release in names}
    for link, name in links.items():
        yield f"Cause at {name}: {link.removeprefix('https://github.com/')}", link


def _method(data: HistoryData) -> Section:
    replicates = concat([history.replicates for history in data.histories])
    pairs = rows_of(replicates.drop_duplicates(["torch", "numpy", "hours"]))
    controls = where(data.rows, control=True)
    times = where(data.rows, what=TIME, control=False)
    half = (times["high"] / times["low"]) ** 0.5 - 1  # half the 95 % interval of a point
    alarms = concat([history.false_alarms for history in data.histories])
    intro = data.paragraphs(
        "method",
        controls=len(controls[["package", "series"]].drop_duplicates()),
        precision=half.groupby(times["noise"], sort=False).median().to_dict(),
        pairs=pairs,
        alarms=rows_of(alarms),
    )
    tables = [render_table("history", "replicates", pairs=pairs)]
    for history in data.histories:
        nodes = rows_of(history.nodes)
        tables.append(render_table("history", "nodes", package=history.package, nodes=nodes))
    return Section("method", "Machine and method", intro, tables=tuple(tables), folded=True)


# --- CSV ----------------------------------------------------------------------------------------


def csv_columns(data: HistoryData) -> dict[Lines, str]:
    """The meaning of the columns of results.csv."""
    absent = {*frames.parameter_names(Change)}.difference(data.parameters)
    absent |= {"because", "nodes_with", "nodes_without"}.difference(data.rows)
    return frames.csv_columns(Change, data.parameters, absent)


def history_csv(data: HistoryData, columns: Mapping[Lines, str]) -> str:
    """The CSV file of histories, a row per series, release and kind of evidence."""
    files = {
        (history.package, release.version): release.files
        for history in data.histories
        for release in history.releases
    }
    rows = data.rows.assign(
        files=[*map(files.get, zip(data.rows["package"], data.rows["release"]))],
        nbytes=pd.to_numeric(data.rows["nbytes"]).astype("Int64"),
    )
    names = [*chain(*columns)]
    names.sort(key=lambda name: name not in ("package", "machine"))  # these two come first
    return to_csv(rows[names], digits=CSV_DIGITS)
