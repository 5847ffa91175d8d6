"""reports/feed.xml: Atom as RFC 4287 has it, an entry a release that changed something, whose address stays."""

import re
import xml.etree.ElementTree as xml
from urllib.parse import unquote, urlsplit

import pytest
from pages import feed
from pages.feed import FEED, Told
from test_history import SERIES, build, logs_of, write

pytestmark = pytest.mark.slow  # builds histories and the feed of them

ATOM = f"{{{feed.ATOM}}}"
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)")


def check(text):
    """What RFC 4287 asks of a feed and its entries; the entries."""
    root = xml.fromstring(text)
    assert root.tag == f"{ATOM}feed"
    every = [root, *root.findall(f"{ATOM}entry")]
    for one in every:
        for name in ("id", "title", "updated"):
            (found,) = one.findall(f"{ATOM}{name}")
            assert found.text and found.text.strip() == found.text
        assert MOMENT.fullmatch(one.findtext(f"{ATOM}updated"))
        alternates = [
            (link.get("type"), link.get("hreflang"))
            for link in one.findall(f"{ATOM}link")
            if link.get("rel") == "alternate"
        ]
        assert len(alternates) == len(set(alternates)) and all(link.get("href") for link in one.iter(f"{ATOM}link"))
    assert root.findtext(f"{ATOM}author/{ATOM}name"), "entries have none of their own"
    assert [link.get("href") for link in root.findall(f"{ATOM}link") if link.get("rel") == "self"] == [FEED]
    entries = every[1:]
    for entry in entries:
        content = entry.find(f"{ATOM}content")
        assert content.get("type") == "html" and content.text and not len(content)
    ids = [one.findtext(f"{ATOM}id") for one in every]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", one) for one in ids)
    return entries


def test_the_committed_feed(committed):
    """Valid, and its links lead to what they name."""
    reports = committed / "reports"
    entries = check((reports / FEED).read_text(encoding="utf-8"))
    assert len(entries) >= 10
    for entry in entries:
        for link in entry.findall(f"{ATOM}link"):
            place = urlsplit(link.get("href"))
            page = (reports / unquote(place.path)).read_text(encoding="utf-8")
            assert f'id="{unquote(place.fragment)}"' in page, link.get("href")


def told(tag, machine="box", measured="2026-01-02T03:04:05+00:00", said=("slower",), lines=("a <b> & c",)):
    package, _, version = tag.partition("-")
    return Told(tag, f"{package} {version}", "2026-01-01", machine, measured, said, lines)


def test_an_entry_a_release_over_all_machines(tmp_path):
    other = told("torch-2.6.0", "ä b", "2026-03-02T03:04:05+00:00", ("faster",))
    feed.write(tmp_path, [[told("torch-2.6.0")], [other]])
    first = (tmp_path / FEED).read_text(encoding="utf-8")
    (entry,) = check(first)
    assert entry.findtext(f"{ATOM}title") == "torch 2.6.0: slower, faster", "the most important first"
    assert entry.findtext(f"{ATOM}updated") == "2026-03-02T03:04:05+00:00"
    assert "<li>a &lt;b&gt; &amp; c</li>" in entry.findtext(f"{ATOM}content")
    assert [link.get("href") for link in entry.findall(f"{ATOM}link")] == [
        "history/box/index.html#torch-2.6.0",
        "history/%C3%A4%20b/index.html#torch-2.6.0",
    ]
    feed.write(tmp_path, [[told("torch-2.6.0"), told("numpy-2.6.0"), told("torch-2.7.0")]])
    again = {one.findtext(f"{ATOM}id") for one in check((tmp_path / FEED).read_text(encoding="utf-8"))}
    assert entry.findtext(f"{ATOM}id") in again and len(again) == 3, "an id stays, whatever else comes"


def test_without_a_history_there_is_no_feed(tmp_path):
    assert feed.write(tmp_path, []) is None and not (tmp_path / FEED).exists()


def test_a_history_in_which_nothing_changed_has_an_empty_feed(tmp_path):
    """Its page links there."""
    feed.write(tmp_path, [[]])
    assert check((tmp_path / FEED).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("count", [2, len(SERIES)])
def test_what_the_newest_release_changed_is_told(tmp_path, count):
    """By a comparison with the release before it: alone it makes no level, and two releases make no history."""
    logs = logs_of(3, count, cells=12)
    logs[-1] += 0.4
    build(write(tmp_path / "results", logs, SERIES[:count]), tmp_path / "reports")
    entries = check((tmp_path / "reports" / FEED).read_text(encoding="utf-8"))
    titles = {entry.findtext(f"{ATOM}title") for entry in entries}
    assert f"torch {SERIES[count - 1].version}: slower" in titles
    page = (tmp_path / "reports" / "history" / "box" / "index.html").read_text(encoding="utf-8")
    assert f'id="{SERIES[count - 1].tag}"' in page
