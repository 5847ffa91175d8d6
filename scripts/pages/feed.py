"""reports/feed.xml: an Atom feed over all machines, an entry a release that changed something.

Ids and anchors are made of a release's tag, so they stay whatever else comes.
"""

import contextlib
import itertools
import uuid
import xml.etree.ElementTree as xml
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from analysis.changes import LEAST_RELEASES
from analysis.history import History
from analysis.pairs import news_of
from cli import UserError, put

from . import history_words as words
from . import release_notes as news
from . import show

FEED = "feed.xml"
TITLE = "What releases of torch and numpy changed in the cost of moving data between them"
AUTHOR = "The authors of the NumPy-PyTorch conversion benchmarks"  # as in CITATION.cff
ATOM = "http://www.w3.org/2005/Atom"
SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "numpy-torch-conversion/releases")  # of the ids, for good


@dataclass(frozen=True)
class Told:
    """What a release changed on a machine: lines, the most important first. measured: when the run began that
    measured it; said: the verdicts, in words."""

    tag: str
    name: str
    date: str
    machine: str
    measured: str
    said: tuple[str, ...]
    lines: tuple[str, ...]


def changes_of(results: Path, histories: Sequence[History]) -> list[Told]:
    """What the releases of a machine's histories changed, those that changed something."""
    return [change for history in histories for change in _told(results, history)]


def _told(results: Path, history: History) -> Iterator[Told]:
    """A history's own changes, release by release; of the newest, and where releases are too few for a history, what a
    comparison with the release before it says, for one point alone makes no level."""
    changed = words.by_release(words.changes(history))
    stepped = {findings[0][1].at.version: findings for findings in words.steps_by_release(history)}
    short = len(history.releases) < LEAST_RELEASES
    for place, release in enumerate(history.releases):
        by_verdict = {group[0].verdict: words.release_line(group) for group in changed if group[0].at is release}
        verdicts, lines = {*by_verdict}, [by_verdict[verdict] for verdict in news.CHANGED if verdict in by_verdict]
        if release.version in stepped:
            lines.append(f"{words.unit(history).capitalize()}: {words.steps_line(stepped[release.version])}")
            verdicts |= {finding.step.verdict for _, finding in stepped[release.version] if finding.step}
        if place and (short or release is history.releases[-1]):
            with contextlib.suppress(UserError):  # then there is nothing to compare with
                compared = news_of(results, history.machine, release.toolchain)
                verdicts |= {*news.changed(compared)}
                lines += [news.paragraph(compared)] if news.changed(compared) else []
        if verdicts:
            said = tuple(said for verdict, said in news.CHANGED.items() if verdict in verdicts)
            about = release.toolchain.tag, release.name, release.date, history.machine, release.started
            yield Told(*about, said, tuple(lines))


def write(output: Path, machines: Sequence[Sequence[Told]]) -> Path | None:
    """Write the feed over what releases changed on each machine that has a history; None where there is none."""
    if not machines:
        return None
    by_tag = words.together(itertools.chain.from_iterable(machines), lambda change: change.tag)
    newest_first = sorted(by_tag, key=lambda changes: (changes[0].date, changes[0].tag), reverse=True)
    put(output / FEED, _feed(newest_first))
    return output / FEED


def _feed(entries: Sequence[Sequence[Told]]) -> str:
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
        every = {word for change in changes for word in change.said}
        said = ", ".join(word for word in news.CHANGED.values() if word in every)
        _add(entry, "id", f"urn:uuid:{uuid.uuid5(SPACE, first.tag)}")
        _add(entry, "title", f"{first.name}: {said}")
        _add(entry, "updated", _updated(changes))
        _add(entry, "published", f"{first.date}T12:00:00Z")
        for change in changes:  # one alternate at most, says RFC 4287
            way = "alternate" if change is first else "related"
            _add(entry, "link", rel=way, type="text/html", title=change.machine, href=_address(change))
        _add(entry, "content", "".join(map(_html, changes)), type="html")
    xml.indent(feed)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{xml.tostring(feed, encoding="unicode")}\n'


def _add(parent: xml.Element, name: str, text: str | None = None, **attributes: str) -> xml.Element:
    child = xml.SubElement(parent, name, attributes)
    child.text = text
    return child


def _updated(changes: Sequence[Told]) -> str:
    """When an entry last changed: its newest measurement; the day of the release where no run says when."""
    return max((change.measured for change in changes if change.measured), default=f"{changes[0].date}T12:00:00+00:00")


def _address(change: Told) -> str:
    return f"history/{quote(change.machine)}/index.html#{quote(change.tag)}"


def _html(change: Told) -> str:
    """What a release changed on a machine, as HTML."""
    items = "".join(f"<li>{show.to_html(line)}</li>" for line in change.lines)
    link = f'<a href="{_address(change)}">{show.to_html(change.machine)}</a>'
    return f"<p>On {link}:</p><ul>{items}</ul>"
