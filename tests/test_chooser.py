"""The form of a page: it shows the rows that scripts/advise.py has, in its words, and is used as people use it."""

import json
import random
from dataclasses import replace
from urllib.parse import urlencode

import made_up
import pytest
from analysis.choices import BEST, Case, answer
from browser import opened
from conftest import build
from pages import advice as words
from pages import show

MEMORIES = {"copy": "own", "alias": "share", "into": "into-buffer"}


@pytest.fixture(scope="module")
def page(known_results, tmp_path_factory):
    return build(known_results, tmp_path_factory.mktemp("page"))


def address(page, case):
    """Where the page has the answer to a case."""
    options = {"from": case.source, "to": case.target, "nbytes": case.total, "dtype": case.dtype}
    options |= {"layout": case.layout, "memory": MEMORIES[case.memory], "source": case.host or "pageable"}
    options |= {"to-dtype": case.goal or "same", **({"threads": case.threads} if case.threads else {})}
    options |= {name: str(bool(getattr(case, name))).lower() for name in ("grad", "batch", "enqueue")}
    return f"{(page / 'index.html').as_uri()}#{urlencode(options)}"


def rows_of(case, known):
    """The rows that scripts/advise.py has for a case, as a page shows them, and the first of them."""
    ranked = answer(case, known).ranked
    return [show.bare(words.line_of(each, case)) for each in ranked[: words.SHOWN]], ranked[0]


def test_what_is_embedded_cannot_end_its_element(known):
    hostile = "</script><!--"
    rows = known.rows.assign(contract=[replace(contract, caution=hostile) for contract in known.rows["contract"]])
    found = words.embedded(replace(known, rows=rows))
    assert any(f"{hostile}." in notes for notes in json.loads(found)["rows"]["notes"][1]), "it is there as text"
    assert "<" not in found and "<" not in words.embedded(known)


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_shows_the_rows_that_advise_has(page, known):
    """A hundred random cases, and every need: route by route, in the same order and words."""
    asked = [words.case_of(row) for row in known.rows[known.rows["kind"] == BEST].itertuples()]
    asked = random.Random(1).sample(asked, min(100, len(asked)))
    assert len({(case.source, case.target, case.memory, case.enqueue, bool(case.batch)) for case in asked}) > 6
    with opened() as browser:
        for case in asked:
            browser.goto(address(page, case))
            lines, first = rows_of(case, known)
            chosen = browser.locator("#choose .chosen")
            chosen.locator("h3", has_text=show.size(case.total)).wait_for()
            assert chosen.locator("ol li").all_inner_texts() == lines, case
            assert chosen.locator("pre").inner_text() == words.snippet(case, first, known)
        assert browser.complaints == []
        assert {url.partition("#")[0] for url in browser.requests} == {(page / "index.html").as_uri()}


@pytest.mark.slow
def test_between_measured_sizes_it_shows_both(page, known):
    case = Case("numpy", "torch", 3 * 2**20, memory="copy")
    with opened() as browser:
        browser.goto(address(page, case))
        shown = browser.locator("#choose .chosen")
        assert shown.locator("h3").all_inner_texts() == ["1 MiB", "16 MiB"]
        assert "3 MiB" in shown.inner_text()
        for place, size in enumerate((2**20, 16 * 2**20)):
            lines, _ = rows_of(replace(case, nbytes=size), known)
            assert shown.locator("ol").nth(place).locator("li").all_inner_texts() == lines


@pytest.mark.slow
def test_by_keyboard_alone(page):
    with opened() as browser:
        browser.goto((page / "index.html").as_uri())
        assert browser.locator("#choose .chosen h3").inner_text() == "1 MiB"
        browser.locator("#choose select[name=from]").focus()
        for wanted in ("from", "to", "nbytes"):
            assert browser.evaluate("document.activeElement.name") == wanted
            if wanted != "nbytes":
                browser.keyboard.press("Tab")
        browser.keyboard.press("ControlOrMeta+a")
        browser.keyboard.type("16MiB")
        assert browser.locator("#choose .chosen h3").inner_text() == "16 MiB" and "nbytes=16MiB" in browser.url
        browser.locator("#choose input[name=nbytes]").fill("3 bananas")
        assert "3MiB" in browser.locator("#choose .chosen").inner_text()
        browser.locator("#choose input[name=nbytes]").fill("1MiB")
        browser.locator("#choose .paste button").focus()
        browser.keyboard.press("Enter")
        browser.locator("#choose .paste button", has_text="Cop").wait_for()
        assert browser.complaints == []


@pytest.mark.slow
def test_what_was_not_measured_is_not_there_to_be_chosen(page, tmp_path):
    with opened() as browser:
        browser.goto((page / "index.html").as_uri())
        grad, enqueue = (browser.locator(f"#choose input[name={name}]") for name in ("grad", "enqueue"))
        browser.locator("#choose details summary").click()
        assert grad.is_hidden(), "an array requires no grad"
        browser.locator("#choose select[name=from]").select_option("torch")
        assert browser.locator("#choose select[name=to]").input_value() == "numpy" and grad.is_enabled()
        assert enqueue.is_hidden(), "what is about transfers"
        browser.locator("#choose select[name=to]").select_option("cuda")
        assert enqueue.is_visible()
        assert "share" not in browser.locator("#choose select[name=memory] option:enabled").evaluate_all(
            "options => options.map((option) => option.value)"
        )
    benches = [made_up.host()]
    host = build(made_up.write(tmp_path / "results", benches, records=made_up.glibc(benches)), tmp_path / "out")
    with opened() as browser:
        browser.goto((host / "index.html").as_uri())
        cuda = browser.locator("#choose select[name=to] option[value=cuda]")
        assert cuda.is_disabled() and cuda.inner_text() == "cuda: not measured"


@pytest.mark.slow
def test_without_javascript_the_page_is_what_it_was(page):
    with opened(java_script_enabled=False) as browser:
        browser.goto((page / "index.html").as_uri())
        assert browser.locator("#choose").is_hidden() and browser.locator(".answers").is_visible()
