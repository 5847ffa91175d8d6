"""Pages as people meet them: with a screen reader, on a telephone, in the dark, by pointing at things."""

from dataclasses import replace
from types import SimpleNamespace

import made_up
import pytest
import test_history
from browser import opened
from conftest import build
from pages import build as machines
from pages.page import write_into

pytestmark = pytest.mark.slow
WIDE, NARROW = 1280, 390


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One of each kind: of a machine with an accelerator, of one with all families, of histories, and over machines."""
    root = tmp_path_factory.mktemp("pages")
    one, other = made_up.results_in(root / "link"), made_up.rich(root / "rich")
    link, rich = build(one, root / "out" / "link"), build(other, root / "out" / "rich")
    logs = test_history.logs_of(14, len(test_history.SERIES))
    logs[5:, :10] += 0.3  # so many rows have a filter
    results = test_history.write(root / "history", logs, extra=test_history.meanings, skipped=[(0, "route1(a)")])
    history = test_history.build(results, root / "out" / "history")
    over = root / "out" / "over"
    built = [machines.build(place, "box", over / place.name) for place in (one, other)]
    pages = [replace(each.pages[0][0], machine=name) for each, name in zip(built, ("one", "other"))]
    write_into(over, machines.index_of(pages))
    return SimpleNamespace(link=link, rich=rich, history=history, over=over)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("kind", ["link", "rich", "history", "over"])
def test_axe_finds_nothing(pages, kind, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    address = (getattr(pages, kind) / "index.html").as_uri()
    with opened(viewport={"width": width, "height": 900}, color_scheme=scheme) as browser:
        browser.goto(address)
        found = axe.Axe().run(browser).response["violations"]
        assert [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found] == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, "nothing to scroll sideways"
        assert browser.complaints == [] and browser.requests == [address]


def test_tables_sort_and_filter(pages):
    with opened() as browser:
        browser.goto((pages.link / "index.html").as_uri())
        table = browser.locator("#size table").first
        browser.locator("#size details").first.evaluate("details => (details.open = true)")
        before = table.locator("tbody tr th").all_inner_texts()
        head = table.locator("thead th button").nth(1)
        head.click()
        times = table.locator("tbody tr td:nth-child(2) div:first-child").all_inner_texts()
        assert table.locator("thead th").nth(1).get_attribute("aria-sort") == "ascending" and len(times) > 1
        units = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
        seconds = [float(text.split()[0]) * units[text.split()[1]] for text in times]
        assert seconds == sorted(seconds)
        head.click()
        head.click()
        assert table.locator("tbody tr th").all_inner_texts() == before


def test_a_point_says_what_it_is(pages):
    with opened() as browser:
        browser.goto((pages.link / "index.html").as_uri())
        mark = browser.locator('#size g[id*="-points-0"] use').first
        mark.scroll_into_view_if_needed()
        box = mark.bounding_box()
        browser.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        said = browser.locator(".said").inner_text()
        row = browser.locator("#size figure").first.locator("tbody tr").first
        route = row.locator("th").text_content()
        assert said.startswith(f"{route} · 256 MiB: ") and said.endswith("s"), "of what shares memory, one size"


def test_a_tile_leads_to_its_release(pages):
    with opened(viewport={"width": WIDE, "height": 900}) as browser:
        browser.goto((pages.history / "index.html").as_uri())
        tile = browser.locator(".heat td.step").first
        assert "(1.35×)" in tile.get_attribute("title")
        tile.locator("a").click()
        section = browser.url.partition("#")[2]
        box = browser.locator(f'[id="{section}"]').bounding_box()
        assert 0 <= box["y"] < 900, "the section is on the screen"


def test_a_filter_leaves_the_rows_that_have_the_words(pages):
    with opened() as browser:
        browser.goto((pages.history / "index.html").as_uri())
        browser.locator("input.filter").first.fill("route2")
        table = browser.locator(f"[id='{test_history.SERIES[5].tag}'] table").first
        shown = [row for row in table.locator("tbody tr").all() if row.is_visible()]
        assert len(shown) == 1 and "slower" in shown[0].inner_text()
