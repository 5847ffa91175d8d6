"""What a release changed on a machine: a title and a paragraph, its table, and files for programs.

The news of all releases and machines become reports/feed.xml, an Atom feed (RFC 4287) with an entry
per release that changed something. Ids are made from a release's tag, so they are permanent.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from urllib.parse import quote

from analysis.changes import LAYOUT, ROUTE
from analysis.history import (
    History,
    Release,
    count_of,
    explained_counts,
    headlines,
    histories_of,
    largest_by_route,
)
from analysis.results import load, where
from analysis.verdicts import CHANGED, FASTER, INSTRUCTIONS, SLOWER, TIME, has_slower
from cli import one_line
from pandas import DataFrame
from store.files import put
from store.frames import Change, rows_of
from toolchains import ledger

from . import show
from .change_pictures import USUAL_DTYPE
from .page import render_web
from .show import Lines
from .tables import Table, render_table

Rows = Sequence[Change]
MAX_SUMMARIES = 3  # routes in a paragraph
MAX_ROUTES = 10  # of each kind in a release's table; results.csv has all


@dataclass(frozen=True)
class ReleaseNews:
    """The changes of one release on a machine.

    previous   the release before it
    counts     a row of ``history.headlines``: verdict -> number of routes
    headline   "38 routes faster (median 1.12×), 8 slower (median 1.04×)"
    tally      "38 faster, 8 slower; most: `t.numpy()` 1.36× faster"
    summaries  the routes with the largest changes, a line each; changes of time come first
    timed      whether any time changed
    """

    machine: str
    release: Release
    previous: Release
    counts: Mapping[str, int]
    headline: str
    tally: str
    summaries: Lines
    timed: bool

    @property
    def title(self) -> str:
        """torch 2.10.0: 38 routes faster (median 1.12×), 8 slower"""
        return f"{self.release.name}: {self.headline}"

    @property
    def findings(self) -> str:
        return show.render_line("history", "findings", news=self)

    @property
    def changed(self) -> dict[str, int]:
        """Verdict -> number of routes, without zeros."""
        return {verdict: self.counts[verdict] for verdict in CHANGED if self.counts[verdict]}

    @property
    def first_seen(self) -> bool:
        """Whether the release is dated by the day it was first seen."""
        return ledger.first_seen(self.release.package, self.release.version)

    @property
    def paragraph(self) -> str:
        return show.render_line("history", "news", news=self)

    @property
    def address(self) -> str:
        return f"history/{quote(self.machine)}/index.html#{quote(self.release.tag)}"

    @property
    def exit_code(self) -> int:
        """0: no route is slower; 1: a route is slower or takes more instructions."""
        return int(has_slower(self.counts))


def release_news(history: History) -> list[ReleaseNews]:
    """News of every release but the oldest, the newest first."""
    shown = history.changes[history.changes["evidence"] != LAYOUT]
    counts_of = explained_counts(history.changes)
    routes = _times_first(largest_by_route(shown, "verdict"))
    counts = headlines(history).to_dict("index")
    news = []
    for previous, release in pairwise(history.releases):
        changes = where(routes, release=release.version).head(MAX_SUMMARIES)
        row = counts[release.version]
        largest = next(iter(rows_of(changes.query("what == @TIME").head(1))), None)
        pairs = ((change, count_of(change, counts_of)) for change in rows_of(changes))
        summaries = (
            show.render_line("history", "summary", change=change, counted=counted)
            for change, counted in pairs
        )
        news.append(
            ReleaseNews(
                machine=history.machine,
                release=release,
                previous=previous,
                counts=row,
                headline=show.render_line("history", "headline", row=row),
                tally=show.render_line("history", "tally", row=row, largest=largest),
                summaries=tuple(summaries),
                timed=largest is not None,
            )
        )
    return news[::-1]


def _times_first(changes: DataFrame) -> DataFrame:
    """Changes of times, then changes of instructions, each in the order given."""
    return changes.sort_values("what", key=lambda figure: figure != TIME, kind="stable")


# --- the table of a release ---------------------------------------------------------------------


def changes_table(history: History, release: Release) -> Table:
    """A row per route: slower routes, then faster ones, then routes of which only the instructions
    changed."""
    changes = where(history.changes, release=release.version)
    by_layout = changes["evidence"] == LAYOUT
    routes: dict[str, list[tuple[Rows, list[Rows]]]] = {SLOWER: [], FASTER: [], INSTRUCTIONS: []}
    counted = _times_first(changes[~by_layout])
    counted = counted.assign(
        row=rows_of(counted)
    )  # once for all groups: a call looks up each column
    for _, rows in counted.groupby(ROUTE, sort=False, dropna=False):
        is_time = rows["what"] == TIME
        counts = rows[~is_time].groupby("verdict", sort=False)
        largest = rows.iloc[0]
        routes[largest["verdict"] if is_time.any() else INSTRUCTIONS].append(
            (rows["row"].tolist(), [cells["row"].tolist() for _, cells in counts])
        )
    return render_table(
        "history",
        "changes",
        False,
        release=release.name,
        routes=routes,
        most=MAX_ROUTES,
        usual_dtype=USUAL_DTYPE,
        small=int((by_layout & changes["what"].eq(TIME)).sum()),
        nodes=len(history.nodes),
    )


# --- the verdict of a release, after it was measured -------------------------------------------


def print_changes(
    results: Path, machine: str, releases: Sequence[ledger.Toolchain], directory: Path | None
) -> list[int]:
    """Print the changes of each release on a machine, and write them to ``directory`` if given.
    Return an exit code each (2: the release, or the one before it, was not measured there)."""
    if not releases:
        return []
    loaded = load(results, machine)
    histories = histories_of(loaded).values()
    news_of = {news.release.tag: news for history in histories for news in release_news(history)}
    failures = {record.toolchain.tag: record.failed for record in loaded.runs if record.failed}
    for tag in (toolchain.tag for toolchain in releases):
        if news := news_of.get(tag):
            print(show.to_plain(news.paragraph))
            if directory:
                directory.mkdir(parents=True, exist_ok=True)
                put(directory / f"{tag}.md", markdown(news))
                put(directory / f"{tag}.json", as_json(news))
        else:
            reason = f": {failures[tag]}" if tag in failures else " or is the oldest there"
            print(one_line(f"{tag} cannot be judged: it has no quiet figures on {machine}{reason}"))
    return [news_of[release.tag].exit_code if release.tag in news_of else 2 for release in releases]


def markdown(news: ReleaseNews) -> str:
    """A heading and the paragraph, with a link to the page of the history."""
    heading = show.to_markdown(news.title)
    text = show.to_markdown(news.paragraph)
    return f"### {heading}\n\n{text} [The history](reports/history/{news.machine}/README.md).\n"


def as_json(news: ReleaseNews) -> str:
    """The news for programs. changed: verdict -> number of routes."""
    document = {
        "format": 2,
        "tag": news.release.tag,
        "release": news.release.name,
        "released": news.release.date,
        "first_seen": news.first_seen,
        "before": news.previous.tag,
        "machine": news.machine,
        "measured": news.release.started,
        "title": news.title,
        "paragraph": show.bare(news.paragraph),
        "exit_code": news.exit_code,
        "changed": news.changed,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


# --- the feed ------------------------------------------------------------------------------------


FEED = "feed.xml"
# of the ids; must never change
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "numpy-torch-conversion/releases")


def write_feed(output: Path, histories: Sequence[History]) -> None:
    """Write the feed over the histories of all machines. If there are no histories, remove an
    older feed."""
    if not histories:
        (output / FEED).unlink(missing_ok=True)
        return
    longest_first = sorted(histories, key=lambda history: -len(history.releases))
    news = [each for history in longest_first for each in release_news(history) if each.changed]
    news.sort(key=lambda each: (each.release.date, each.release.tag), reverse=True)
    entries = [_entry(tag, [*each]) for tag, each in groupby(news, lambda each: each.release.tag)]
    put(
        output / FEED, render_web("feed.xml.jinja", entries=entries, name=FEED, namespace=NAMESPACE)
    )


def _entry(tag: str, news: Sequence[ReleaseNews]) -> dict[str, object]:
    """The feed's entry on a release. updated: time of its newest measurement, or the day of the
    release if no run has a time. news: on each machine, that of the longest history first."""
    started = [each.release.started for each in news if each.release.started]
    day = f"{news[0].release.date}T12:00:00+00:00"
    return {"id": uuid.uuid5(NAMESPACE, tag), "updated": max(started, default=day), "news": news}
