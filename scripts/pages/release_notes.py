"""What a release changed, in a title and a paragraph: for a terminal, an issue, a program, and reports/feed.xml.

The feed is an Atom feed over all machines, an entry a release that changed something. Ids and anchors are made of a
release's tag, so they stay whatever else comes.
"""

import itertools
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import cli
import jinja2
import pandas as pd
from analysis.history import CHANGED, LAYOUT, History, by_route, headlines, histories_of
from analysis.results import load
from analysis.verdicts import MORE, SLOWER
from cli import put
from toolchains import ledger

from . import page, show
from .history_page import headline, summary

SHOWN = 3  # routes that a paragraph names
FEED = "feed.xml"
SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "numpy-torch-conversion/releases")  # of the ids, for good


@dataclass(frozen=True)
class News:
    """What one release changed on a machine: ``row`` of ``history.headlines``, and its changes, one row per route, the
    largest change of time first. before: the release before it."""

    history: History
    release: Any
    before: Any
    row: dict[str, Any]
    routes: pd.DataFrame

    @property
    def title(self) -> str:
        """torch 2.10.0: 38 routes faster (median 1.12×), 8 slower"""
        return f"{self.release.name}: {headline(self.row)}"

    @property
    def lines(self) -> list[str]:
        """The routes that changed most, each in a line."""
        return [summary(row) for row in self.routes.head(SHOWN).to_dict("records")]

    @property
    def paragraph(self) -> str:
        seen = ledger.first_seen(self.history.package, self.release.version)
        return show.said("history", "news", news=self, seen=seen, headline=headline(self.row))

    @property
    def address(self) -> str:
        return f"history/{quote(self.history.machine)}/index.html#{quote(self.release.tag)}"

    @property
    def exit_code(self) -> int:
        """0 nothing slower, 1 something slower or of more instructions."""
        return 1 if self.row[SLOWER] or self.row[MORE] else 0


def news_in(history: History) -> list[News]:
    """Every release but the oldest, the newest first."""
    found = by_route(history.changes[history.changes["evidence"] != LAYOUT], "verdict")
    found = found.sort_values("what", key=lambda what: what != "time", kind="stable")
    rows = {row["release"]: row for row in headlines(history).to_dict("records")}
    pairs = list(zip(history.releases, history.releases[1:]))[::-1]
    return [News(history, at, before, rows[at.version], found[found["release"] == at.version]) for before, at in pairs]


def tell(results: Path, machine: str, releases: Sequence[ledger.Toolchain], into: Path | None) -> list[int]:
    """Print what each release changed on a machine, and write it if ``into`` is given; an exit code each (2: it, or the
    release before it, was not measured there)."""
    if not releases:
        return []
    loaded = load(results, machine)
    known = {news.release.tag: news for history in histories_of(loaded).values() for news in news_in(history)}
    failed = {record.toolchain.tag: record.failed for record in loaded.runs if record.failed}
    for tag in (toolchain.tag for toolchain in releases):
        if tag not in known:
            why = f": {failed[tag]}" if tag in failed else " or is the oldest there"
            print(cli.line(f"{tag} cannot be judged: it has no quiet figures on {machine}{why}"))
            continue
        print(show.to_plain(known[tag].paragraph))
        if into:
            into.mkdir(parents=True, exist_ok=True)
            put(into / f"{tag}.md", markdown(known[tag]))
            put(into / f"{tag}.json", as_json(known[tag]))
    return [known[toolchain.tag].exit_code if toolchain.tag in known else 2 for toolchain in releases]


def markdown(news: News) -> str:
    """A heading and the paragraph, with a link into the page of the history."""
    page = f"reports/history/{news.history.machine}/README.md"
    heading, text = show.to_markdown(news.title), show.to_markdown(news.paragraph)
    return f"### {heading}\n\n{text} [The history]({page}).\n"


def as_json(news: News) -> str:
    """The same for programs; changed: verdict -> number of routes."""
    document = {
        "format": 2,
        "tag": news.release.tag,
        "release": news.release.name,
        "released": news.release.date,
        "first_seen": ledger.first_seen(news.history.package, news.release.version),
        "before": news.before.tag,
        "machine": news.history.machine,
        "measured": news.release.started,
        "title": news.title,
        "paragraph": show.bare(news.paragraph),
        "exit_code": news.exit_code,
        "changed": {verdict: news.row[verdict] for verdict in CHANGED if news.row[verdict]},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


# --- the feed --------------------------------------------------------------------------------------------------------


def write_feed(output: Path, machines: Sequence[Sequence[History]]) -> Path | None:
    """Write the feed over the histories of each machine that has some; None where there is none."""
    if not machines:
        return None
    by_tag: dict[str, list[News]] = {}
    for news in itertools.chain.from_iterable(map(news_in, itertools.chain.from_iterable(machines))):
        if any(news.row[verdict] for verdict in CHANGED):
            by_tag.setdefault(news.release.tag, []).append(news)
    entries = [_entry(tag, sorted(each, key=lambda news: -len(news.history.releases))) for tag, each in by_tag.items()]
    entries.sort(key=lambda entry: (entry["news"][0].release.date, entry["news"][0].release.tag), reverse=True)
    environment = jinja2.Environment(**page.OPTIONS)
    environment.filters |= {"xml": escape, "quoted": quoteattr, "html": show.to_html}
    text = environment.get_template("feed.xml.jinja").render(entries=entries, name=FEED, space=SPACE)
    put(output / FEED, text)
    return output / FEED


def _entry(tag: str, changes: Sequence[News]) -> dict[str, Any]:
    """updated: when the entry last changed, its newest measurement; the day of the release where no run says when."""
    started = [news.release.started for news in changes if news.release.started]
    updated = max(started, default=f"{changes[0].release.date}T12:00:00+00:00")
    return {"id": uuid.uuid5(SPACE, tag), "updated": updated, "news": changes}
