"""reports/feed.xml: an Atom feed over all machines, an entry a release that changed something.

Ids and anchors are made of a release's tag, so they stay whatever else comes.
"""

import itertools
import uuid
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from analysis.changes import CHANGED
from analysis.history import History
from cli import put

from . import show
from .release_notes import News, news_in

FEED = "feed.xml"
TITLE = "What releases of torch and numpy changed in the cost of moving data between them"
AUTHOR = "The authors of the NumPy-PyTorch conversion benchmarks"  # as in CITATION.cff
ATOM = "http://www.w3.org/2005/Atom"
SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "numpy-torch-conversion/releases")  # of the ids, for good


def changes_of(histories: Sequence[History]) -> list[News]:
    """The releases of a machine's histories that changed something."""
    every = itertools.chain.from_iterable(map(news_in, histories))
    return [news for news in every if any(news.row[verdict] for verdict in CHANGED)]


def write(output: Path, machines: Sequence[Sequence[News]]) -> Path | None:
    """Write the feed over what releases changed on each machine that has a history; None where there is none."""
    if not machines:
        return None
    by_tag: dict[str, list[News]] = {}
    for news in itertools.chain.from_iterable(machines):
        by_tag.setdefault(news.release.tag, []).append(news)
    entries = [sorted(each, key=lambda news: -len(news.history.releases)) for each in by_tag.values()]
    entries.sort(key=lambda each: (each[0].release.date, each[0].release.tag), reverse=True)
    put(output / FEED, _feed(entries))
    return output / FEED


def _feed(entries: Sequence[Sequence[News]]) -> str:
    feed = xml.Element("feed", {"xmlns": ATOM, "xml:lang": "en"})
    _add(feed, "id", f"urn:uuid:{SPACE}")
    _add(feed, "title", TITLE)
    _add(feed, "updated", max(map(_updated, entries), default="1970-01-01T00:00:00Z"))
    _add(_add(feed, "author"), "name", AUTHOR)
    _add(feed, "link", rel="self", type="application/atom+xml", href=FEED)
    _add(feed, "link", rel="alternate", type="text/html", href="index.html")
    for changes in entries:
        first = changes[0]
        entry = _add(feed, "entry")
        _add(entry, "id", f"urn:uuid:{uuid.uuid5(SPACE, first.release.tag)}")
        _add(entry, "title", first.title)
        _add(entry, "updated", _updated(changes))
        _add(entry, "published", f"{first.release.date}T12:00:00Z")
        for news in changes:  # one alternate at most, says RFC 4287
            way = "alternate" if news is first else "related"
            _add(entry, "link", rel=way, type="text/html", title=news.history.machine, href=_address(news))
        _add(entry, "content", "".join(map(_html, changes)), type="html")
    xml.indent(feed)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{xml.tostring(feed, encoding="unicode")}\n'


def _add(parent: xml.Element, name: str, text: str | None = None, **attributes: str) -> xml.Element:
    child = xml.SubElement(parent, name, attributes)
    child.text = text
    return child


def _updated(changes: Sequence[News]) -> str:
    """When an entry last changed: its newest measurement; the day of the release where no run says when."""
    started = [news.release.started for news in changes if news.release.started]
    return max(started, default=f"{changes[0].release.date}T12:00:00+00:00")


def _address(news: News) -> str:
    return f"history/{quote(news.history.machine)}/index.html#{quote(news.release.tag)}"


def _html(news: News) -> str:
    """What a release changed on a machine, as HTML."""
    items = "".join(f"<li>{show.to_html(line)}</li>" for line in (news.title, *news.lines))
    link = f'<a href="{_address(news)}">{show.to_html(news.history.machine)}</a>'
    return f"<p>On {link}:</p><ul>{items}</ul>"
