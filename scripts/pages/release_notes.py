"""What a release changed, in a title and a paragraph: for a terminal, an issue, a feed, a program."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cli
import pandas as pd
from analysis.changes import CHANGED, LAYOUT, by_call, headlines
from analysis.history import History, Release, history_of, packages
from analysis.results import load
from analysis.verdicts import MORE, SLOWER
from cli import UserError, put
from toolchains import ledger

from . import show
from .history_page import headline, summary

SHOWN = 3  # calls that a paragraph names


@dataclass(frozen=True)
class News:
    """What one release changed on a machine: ``row`` of ``changes.headlines``, and its changes, one row per call, the
    largest change of time first. before: the release before it."""

    history: History
    release: Release
    before: Release
    row: dict[str, Any]
    calls: pd.DataFrame

    @property
    def title(self) -> str:
        """torch 2.10.0: 38 calls faster (median 1.12×), 8 slower"""
        return f"{self.release.name}: {headline(self.row)}"

    @property
    def lines(self) -> list[str]:
        """The calls that changed most, each in a line."""
        return [summary(row) for row in self.calls.head(SHOWN).to_dict("records")]

    @property
    def paragraph(self) -> str:
        against = f"against {self.before.version} on {self.history.machine}"
        seen = "first seen " if ledger.first_seen(self.history.package, self.release.version) else ""
        most = f" Largest: {'; '.join(self.lines)}." if self.lines else ""
        return f"{self.release.name} ({seen}{self.release.date}) {against}: {headline(self.row)}.{most}"

    @property
    def exit_code(self) -> int:
        """0 nothing slower, 1 something slower or of more instructions."""
        return 1 if self.row[SLOWER] or self.row[MORE] else 0


def news_in(history: History) -> list[News]:
    """Every release but the oldest, the newest first."""
    found = by_call(history.changes[history.changes["evidence"] != LAYOUT])
    found = found.sort_values("what", key=lambda what: what != "time", kind="stable")
    rows = {row["release"]: row for row in headlines(history).to_dict("records")}
    pairs = list(zip(history.releases, history.releases[1:]))[::-1]
    return [News(history, at, before, rows[at.version], found[found["release"] == at.version]) for before, at in pairs]


def news_of(results: Path, machine: str, toolchain: ledger.Toolchain) -> News:
    """What a release changed on a machine. UserError if it, or the release before it, was not measured there."""
    loaded = load(results, machine)
    failed = [record.failed for record in loaded.runs if record.failed and record.toolchain.tag == toolchain.tag]
    if toolchain.history in packages(loaded):
        for news in news_in(history_of(loaded, toolchain.history)):
            if news.release.version == toolchain.version:
                return news
    why = f": {failed[-1]}" if failed else " or is the oldest there"
    raise UserError(f"{toolchain.tag} has no figures on {machine}{why}")


def tell(results: Path, machine: str, releases: Sequence[ledger.Toolchain], into: Path | None) -> list[int]:
    """Print what each release changed, and write it if ``into`` is given; an exit code each (2: not measured)."""
    codes = []
    for toolchain in releases:
        try:
            news = news_of(results, machine, toolchain)
        except UserError as why:
            print(cli.line(f"{toolchain.tag} cannot be judged: {why}"))
            codes.append(2)
            continue
        print(show.to_plain(news.paragraph))
        codes.append(news.exit_code)
        if into:
            into.mkdir(parents=True, exist_ok=True)
            put(into / f"{toolchain.tag}.md", markdown(news))
            put(into / f"{toolchain.tag}.json", as_json(news))
    return codes


def markdown(news: News) -> str:
    """A heading and the paragraph, with a link into the page of the history."""
    page = f"reports/history/{news.history.machine}/README.md"
    heading, text = show.to_markdown(news.title), show.to_markdown(news.paragraph)
    return f"### {heading}\n\n{text} [The history]({page}).\n"


def as_json(news: News) -> str:
    """The same for programs; changed: verdict -> calls."""
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
