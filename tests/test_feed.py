"""reports/feed.xml: Atom as RFC 4287 has it, an entry per release that changed something, whose address stays."""

import re
import xml.etree.ElementTree as xml
from dataclasses import replace
from urllib.parse import unquote, urlsplit

import pytest
from analysis.history import histories_of
from analysis.results import load
from pages.history_page import FEED, write_feed
from test_history import SERIES, logs_of, write

pytestmark = pytest.mark.slow  # builds histories and the feed of them

ATOM = "{http://www.w3.org/2005/Atom}"
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
        links = one.findall(f"{ATOM}link[@rel='alternate']")
        alternates = [(link.get("type"), link.get("hreflang")) for link in links]
        assert len(alternates) == len(set(alternates)) and all(link.get("href") for link in one.iter(f"{ATOM}link"))
    assert root.findtext(f"{ATOM}author/{ATOM}name"), "entries have none of their own"
    assert [link.get("href") for link in root.findall(f"{ATOM}link[@rel='self']")] == [FEED]
    for entry in every[1:]:
        content = entry.find(f"{ATOM}content")
        assert content.get("type") == "html" and content.text and not len(content)
    ids = [one.findtext(f"{ATOM}id") for one in every]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", one) for one in ids)
    return every[1:]


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


def test_an_entry_per_release_over_all_machines(tmp_path):
    logs = logs_of(3, len(SERIES))
    logs[5:, 2] += 0.4
    built = []
    for name in ("box", "ä b"):
        (made,) = histories_of(load(write(tmp_path / name, logs), "box")).values()
        built.append(replace(made, machine=name))
    write_feed(tmp_path, built)
    (entry,) = check((tmp_path / FEED).read_text(encoding="utf-8"))
    title = entry.findtext(f"{ATOM}title")
    assert re.match(rf"torch {re.escape(SERIES[5].version)}: 1 \w+ slower \(median 1\.49×\)", title)
    assert "<code>route2(<wbr>a)</code>" in entry.findtext(f"{ATOM}content")
    assert [link.get("href") for link in entry.findall(f"{ATOM}link")] == [
        f"history/box/index.html#{SERIES[5].tag}",
        f"history/%C3%A4%20b/index.html#{SERIES[5].tag}",
    ]
    alone = tmp_path / "alone"
    alone.mkdir()
    write_feed(alone, [built[1]])
    (again,) = check((alone / FEED).read_text(encoding="utf-8"))
    assert again.findtext(f"{ATOM}id") == entry.findtext(f"{ATOM}id"), "an id stays, whatever else comes"


def test_without_a_history_there_is_no_feed(tmp_path):
    assert write_feed(tmp_path, []) is None and not (tmp_path / FEED).exists()


def test_a_history_in_which_nothing_changed_has_an_empty_feed(tmp_path):
    """Its page links there."""
    write_feed(tmp_path, [*histories_of(load(write(tmp_path / "box", logs_of(3, 2), SERIES[:2]), "box")).values()])
    assert check((tmp_path / FEED).read_text(encoding="utf-8")) == []
