"""reports/feed.xml: an Atom feed (RFC 4287) over all machines, with an entry per release that changed something.

Ids are made from a release's tag, so they are permanent.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from analysis.history import History
from store.files import put

from .page import render_web
from .release_news import ReleaseNews, release_news

FEED = "feed.xml"
# of the ids; must never change
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "numpy-torch-conversion/releases")


@dataclass(frozen=True)
class Entry:
    """A release. updated: time of its newest measurement, or the day of the release if no run has
    a time. news: on each machine, that of the longest history first."""

    id: uuid.UUID
    updated: str
    news: Sequence[ReleaseNews]


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


def _entry(tag: str, news: Sequence[ReleaseNews]) -> Entry:
    started = [each.release.started for each in news if each.release.started]
    day = f"{news[0].release.date}T12:00:00+00:00"
    return Entry(uuid.uuid5(NAMESPACE, tag), max(started, default=day), news)
