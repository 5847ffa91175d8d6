"""Pages in a browser as people use them: with a screen reader, on a telephone, in dark mode, by pointing at things."""

import itertools
import random
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import advise
import made_histories
import made_up
import pytest
import resultfiles
from analysis.answers import answer
from analysis.comparison import compare, compare_by_name
from analysis.costs import load_machine
from analysis.needs import Case
from analysis.ranking import BEST
from analysis.verdicts import DEFAULT
from browsing import SHOWN, address, texts_of
from conftest import build
from pages import build as machines
from pages import comparison_words as words
from pages.case_answer import answer_notes, row_case
from pages.page import COMPARE, write_into
from pages.pairs import ACROSS
from resultfiles import KIB, MIB

pytestmark = pytest.mark.slow
WIDE, NARROW = 1280, 390
VALUES = "options => options.map((option) => option.value)"


@pytest.fixture
def browser(opened):
    with opened() as page:
        yield page


@pytest.fixture(scope="module")
def pages(known_results, committed, tmp_path_factory):
    """Addresses of pages: a machine with an accelerator, one with all families, one that is published, a history, all
    machines."""
    root = tmp_path_factory.mktemp("pages")
    rich = made_up.rich(root / "rich")
    (record,) = (rich / "box").glob("*.jsonl")
    record.write_text(record.read_text().replace('"torch_threads": 1', '"torch_threads": 4'))
    logs = made_histories.logs_of(14)
    logs[5:, :10] += 0.3  # tables of many rows have a filter
    logs[0, 1] = float("nan")
    results = made_histories.write(root / "history", logs, extra=made_histories.meanings)
    history = made_histories.build(results, root / "out" / "history")
    over = root / "out" / "over"
    built = [machines.build(place, "box", over / place.name) for place in (known_results, rich)]
    both = [replace(each.pages[0][0], machine=name) for each, name in zip(built, "ab")]
    write_into(over, machines.index_of(both, {name: each.results for each, name in zip(built, "ab")}))
    link, of_all = (each.pages[0][1] for each in built)
    places = {"link": link, "rich": of_all, "history": history / "index.html", "over": over / "index.html"}
    places["published"] = max((committed / "reports").glob("*-vm/index.html"))
    places["releases"] = max((committed / "reports").glob("history/*-vm/index.html"))
    return SimpleNamespace(
        **{kind: path.as_uri() for kind, path in places.items()}, results=rich, logs=results, built=built
    )


@pytest.mark.parametrize("kind", ["link", "rich", "history", "over", "published", "releases"])
def test_axe_finds_nothing(pages, browser, kind):
    """axe finds no accessibility problem, at either width and in either colour scheme."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    address = getattr(pages, kind)
    for width, scheme in itertools.product((NARROW, WIDE), ("light", "dark")):
        browser.set_viewport_size({"width": width, "height": 900})
        browser.emulate_media(color_scheme=scheme)
        browser.goto(address)
        violations = axe.Axe().run(browser).response["violations"]
        shown = [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in violations]
        assert shown == [], (width, scheme)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, "nothing to scroll sideways"
        screens = browser.evaluate("document.documentElement.scrollHeight") / 800
        assert screens <= (8 if kind in ("history", "releases") else 12) or width == NARROW
    script = address.replace("index.html", COMPARE)
    expected = {address, script} if kind in ("history", "over", "releases") else {address}
    assert browser.complaints == [] and set(browser.requests) == expected


def test_tables_sort_and_filter(pages, browser):
    browser.goto(pages.link)
    table = browser.locator("#size table").first
    browser.locator("#size details").first.evaluate("details => (details.open = true)")
    initial = table.locator("tbody tr th").all_inner_texts()
    head = table.locator("thead th button").nth(1)
    head.click()
    times = table.locator("tbody tr td:nth-child(2) div:first-child").all_inner_texts()
    assert table.locator("thead th").nth(1).get_attribute("aria-sort") == "ascending" and len(times) > 1
    units = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
    seconds = [float(text.split()[0]) * units[text.split()[1]] for text in times]
    assert seconds == sorted(seconds)
    head.click()
    head.click()
    assert table.locator("tbody tr th").all_inner_texts() == initial


def test_a_point_says_what_it_is(pages, browser):
    browser.goto(pages.link)
    mark = browser.locator('#size g[id*="-points-0"] use').first
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    browser.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = browser.locator(".said").inner_text()
    row = browser.locator("#size figure").first.locator("tbody tr").first
    route = row.locator("th").text_content()
    assert tip.startswith(f"{route} · 8 B: ") and tip.endswith("s")


def test_a_tile_leads_to_its_release(pages, browser):
    browser.goto(pages.history)
    tile = browser.locator(".heat td.step").first
    assert "(1.35×)" in tile.get_attribute("title")
    tile.locator("a").click()
    section = browser.url.partition("#")[2]
    box = browser.locator(f'[id="{section}"]').bounding_box()
    assert 0 <= box["y"] < browser.viewport_size["height"], "the section is on the screen"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_first_screen_leads_to_releases_and_shows_the_newest(pages, opened, width):
    with opened(java_script_enabled=False, viewport={"width": width, "height": 900}) as browser:
        browser.goto(pages.history)
        newest = browser.locator(".heat thead a").last.bounding_box()
        assert newest["x"] > width / 2 and newest["x"] + newest["width"] <= width and newest["y"] < 900
        browser.locator("nav a", has_text="Releases").click()
        links = browser.locator("#answers a").all()
        assert len(links) == 11 and links[-1].bounding_box()["y"] < 900
        tag = made_histories.SERIES[5].tag
        browser.locator(f"#answers [href='#{tag}']").click()
        assert "Largest: " in browser.locator(f"[id='{tag}'] p").first.inner_text()


def test_an_open_table_takes_the_width_of_the_window(pages, browser):
    browser.set_viewport_size({"width": 1900, "height": 900})
    browser.goto(pages.link)
    browser.locator("#size summary").first.click()
    assert browser.locator("#size figure").first.bounding_box()["width"] > 1100
    scroll = browser.locator(".tables .scroll").first
    assert scroll.evaluate("each => parseFloat(getComputedStyle(each).maxWidth)") > 1400


def test_a_filter_leaves_the_rows_that_have_the_words(pages, browser):
    section = made_histories.SERIES[5].tag
    browser.goto(f"{pages.history}#{section}")
    browser.locator(f"[id='{section}'] input.filter").fill("route2")
    table = browser.locator(f"[id='{section}'] table").first
    shown = [row for row in table.locator("tbody tr").all() if row.is_visible()]
    assert len(shown) == 1 and "slower" in shown[0].inner_text()
    browser.set_viewport_size({"width": NARROW, "height": 900})
    browser.goto(pages.over)  # where a row is shown as a card
    browser.locator("#routes input.filter").fill("zzz")
    assert browser.locator("#routes tbody tr").count() and not browser.locator("#routes tbody tr:visible").count()


@pytest.mark.parametrize(("base", "new"), [(4, 5), (5, 4), (0, 1), (0, 11)])
def test_two_releases_compare_as_compare_py_says(pages, browser, base, new):
    sides = [made_histories.SERIES[place] for place in (base, new)]
    found = compare_by_name(*(side.tag for side in sides), pages.logs, "box", DEFAULT)
    address = f"{pages.history}#at=compare-torch&base={sides[0].version}&new={sides[1].version}"
    browser.goto(address)
    shown = browser.locator("#compare-torch")
    assert shown.locator("h3").inner_text() == (words.summarise(found)["of_history"] or "no change")
    changed = found.changed_rows(found.cells)
    texts = [text.partition(" (")[0] for text in shown.locator("tbody td:last-child").all_inner_texts()]
    assert texts == [f"{max(row.ratio, 1 / row.ratio):.2f}× {row.verdict}" for row in changed.itertuples()]
    assert bool(texts) == (new != 1)
    shown.locator("select[name=new]").select_option(made_histories.SERIES[2].version)
    assert browser.url.endswith(f"new={made_histories.SERIES[2].version}") and browser.complaints == []


def test_two_machines_compare_as_compare_py_says(pages, browser):
    browser.goto(f"{pages.over}#at=compare-machines&base=b&new=a")
    found = words.summarise(compare(*(each.results for each in pages.built[::-1]), ACROSS))
    heading = browser.locator("#compare-machines h3").inner_text()
    assert heading.endswith(found["headline"].replace("cells", "results")) and browser.complaints == []
    browser.goto(f"{pages.over}#at=compare-machines&new=a")  # as the page of a machine leads there
    browser.reload()
    assert browser.locator("#compare-machines h3").inner_text() == heading


@pytest.mark.parametrize("runs_scripts", [True, False])
def test_a_page_alone_says_what_its_comparison_lacks(pages, opened, tmp_path, runs_scripts):
    page = tmp_path / "index.html"
    page.write_bytes(Path(pages.over.removeprefix("file://")).read_bytes())
    with opened(java_script_enabled=runs_scripts) as browser:
        browser.goto(page.as_uri())
        section = browser.locator("#compare-machines")
        assert COMPARE in section.inner_text() and section.locator("form").is_hidden()
        assert browser.locator("#routes table").is_visible()


# The form shows the same rows and words as scripts/advise.py, and is tested with clicks and keys as people use it ----


def test_it_shows_the_rows_that_advise_has(pages, known, browser):
    """For a hundred random cases the form shows the routes of scripts/advise.py, in the same order and words. It also
    shows the command that gives this answer."""
    cases = [row_case(row) for row in known.rows[known.rows["kind"] == BEST].itertuples()]
    cases = random.Random(1).sample(cases, min(100, len(cases)))
    assert len({(case.source, case.target, case.memory, case.enqueue, bool(case.batch)) for case in cases}) > 6
    for case in cases:
        browser.goto(address(pages.link, case))
        texts, code = texts_of(case, known)
        browser.locator("#choose .chosen h3", has_text=texts[0]).wait_for()
        command = browser.locator("#choose .command").inner_text()
        case_of_command = advise.case_of(advise.arguments(shlex.split(command)[2:]))
        assert case_of_command == replace(case, threads=case.threads.replace("all", ""))
        assert browser.locator(SHOWN).all_inner_texts() == texts, case
        assert browser.locator("#choose .chosen pre").inner_text() == code
        browser.locator("#choose input[name=nbytes]").dispatch_event("input")
        usual = replace(case, threads="")  # one thread is all that the page has
        assert browser.url == address(pages.link, usual), "the form gives a case the address that Python gives it"
    assert browser.complaints == []
    assert {url.partition("#")[0] for url in browser.requests} == {pages.link}


def test_between_measured_sizes_it_shows_both(pages, known, browser):
    case = Case("numpy", "torch", 3 * MIB, memory="copy")
    browser.goto(address(pages.link, case))
    assert 0 <= browser.locator("#choose").bounding_box()["y"] < 100, "a link to a case shows the form"
    note = browser.locator("#choose .chosen p").first
    assert note.inner_text() == "3 MiB was not measured. Shown: 1 MiB and 16 MiB."
    neighbours = [texts_of(replace(case, nbytes=size), known)[0] for size in (MIB, 16 * MIB)]
    assert browser.locator(SHOWN).all_inner_texts() == [*neighbours[0], *neighbours[1]]
    browser.goto(address(pages.link, replace(case, memory="alias")))
    assert note.inner_text().endswith("the time is about the same at all measured sizes. Shown: 1 MiB.")
    assert browser.locator("#choose .chosen h3").count() == 1


def test_the_bar_is_one_line_and_hides_no_heading(pages, browser):
    browser.goto(pages.rich)
    height, links = browser.locator("nav").bounding_box()["height"], browser.locator("nav a").all()
    assert len(links) <= 7 and height < 40
    for link in browser.locator("nav a[href^='#']").all():
        link.click()
        assert browser.locator(link.get_attribute("href")).bounding_box()["y"] >= height, link.inner_text()


def test_sizes_that_are_offered_are_those_that_were_measured(tmp_path, browser):
    """The form offers the measured sizes of uneven lists, too, which are not a whole number of MiB."""
    uneven = {"layout": ["uneven"], "nbytes": [MIB + KIB, 28 * MIB + KIB]}
    promises = [resultfiles.contract("torch.from_numpy(np.array(arrays))", "copy")]
    lists = resultfiles.every("batches.UnevenArraysToTensor.timeit_convert", lambda *_: 1e-4, promises, **uneven)
    page = build(resultfiles.write(tmp_path / "r", [made_up.host(), lists]), tmp_path / "out")
    case = Case("numpy", "torch", 2**14 + 2**4, memory="copy", layout="uneven", batch=64)
    browser.goto(address((page / "index.html").as_uri(), case))
    heading = browser.locator("#choose .chosen h3")
    assert "64 arrays of 16.02 KiB each of uneven float32" in heading.inner_text()
    offered = browser.locator("#sizes option").evaluate_all(VALUES)
    assert offered == ["16400B", "458768B"]
    browser.locator("#choose input[name=nbytes]").fill(offered[1])
    assert "64 arrays of 448 KiB each" in heading.inner_text()


def test_by_keyboard_alone(pages, browser):
    browser.goto(pages.link)
    heading = browser.locator("#choose .chosen h3")
    assert heading.inner_text().startswith("From numpy to torch, 1 MiB of float32")
    browser.locator("#choose select[name=from]").focus()
    for name in ("from", "to", "nbytes"):
        assert browser.evaluate("document.activeElement.name") == name
        if name != "nbytes":
            browser.keyboard.press("Tab")
    browser.keyboard.press("ControlOrMeta+a")
    browser.keyboard.type("16MiB")
    assert "16 MiB" in heading.inner_text() and "nbytes=16MiB" in browser.url
    browser.locator("#choose input[name=nbytes]").fill("3 bananas")
    assert "3MiB" in browser.locator("#choose .chosen").inner_text()
    browser.locator("#choose input[name=nbytes]").fill("1MiB")
    browser.locator("#choose .paste button").focus()
    browser.keyboard.press("Enter")
    browser.locator("#choose .paste button", has_text="Cop").wait_for()
    assert browser.complaints == []


def test_what_was_not_measured_is_not_there_to_be_chosen(pages, tmp_path, browser):
    browser.goto(pages.link)
    grad, enqueue = (browser.locator(f"#choose input[name={name}]") for name in ("grad", "enqueue"))
    browser.locator("#choose details summary").click()
    assert grad.is_hidden(), "an array requires no grad"
    browser.locator("#choose select[name=from]").select_option("torch")
    assert browser.locator("#choose select[name=to]").input_value() == "numpy" and grad.is_enabled()
    assert enqueue.is_hidden(), "what is about transfers"
    browser.locator("#choose select[name=to]").select_option("device")
    assert enqueue.is_visible()
    assert "share" not in browser.locator("#choose select[name=memory] option:enabled").evaluate_all(VALUES)
    host = build(resultfiles.write(tmp_path / "results", [made_up.host()]), tmp_path / "out")
    browser.goto((host / "index.html").as_uri())
    cuda = browser.locator("#choose select[name=to] option[value=device]")
    assert cuda.is_disabled() and cuda.inner_text() == "device: not measured"


def test_what_the_form_says_is_what_advise_says(pages, browser):
    """After each of 300 random clicks the form shows what scripts/advise.py answers to the command that it shows."""
    machine = load_machine(pages.results, "box")
    browser.goto(pages.rich)
    browser.locator("#choose details summary").click()
    chance, compared, cautioned = random.Random(1), 0, 0
    for _ in range(300):
        field = chance.choice(browser.locator("#choose :is(select, input[type=checkbox]):visible").all())
        if field.get_attribute("type") == "checkbox":
            field.click()
        else:
            value = chance.choice(field.locator("option:enabled").evaluate_all(VALUES))
            field.select_option(value)
            assert field.input_value() == value
        command = shlex.split(browser.locator("#choose .command").inner_text())
        case = advise.case_of(advise.arguments(command[2:]))
        shown = browser.locator(SHOWN).all_inner_texts()
        notes = browser.locator("#choose .chosen > p").all_inner_texts()
        if not any(note[0].isdigit() for note in notes):  # the size was measured
            compared += 1
            assert shown == texts_of(case, machine)[0], (browser.url, command)
            cautions = [note for note in answer_notes(answer(case, machine)) if "never write to" in note]
            assert browser.locator("#choose .chosen ul li", has_text="never write to").count() == len(cautions)
            cautioned += len(cautions)
        assert shown, browser.url
    assert compared > 150 and cautioned and browser.complaints == []


def test_a_choice_comes_back_where_it_was_measured(pages, browser):
    """What was chosen is kept while another choice has no such measurement, and the form says so."""
    browser.goto(pages.rich)
    browser.locator("#choose details summary").click()
    dtype, threads = (browser.locator(f"#choose select[name={name}]") for name in ("dtype", "threads"))
    assert threads.input_value() == "all"
    dtype.select_option("int64")
    assert threads.input_value() == "1"
    assert (
        "torch threads 4, torch's default was not measured for this. Shown: 1."
        in browser.locator("#choose .chosen").inner_text()
    )
    dtype.select_option("float32")
    assert threads.input_value() == "all" and browser.locator("#choose .chosen > p").count() == 0


def test_a_link_to_a_section_keeps_the_case(pages, browser):
    browser.goto(f"{pages.rich}#from=torch&to=numpy&nbytes=16MiB")
    browser.locator("nav a[href^='#']").nth(1).click()
    assert "from=torch" in browser.url and "&at=" in browser.url
    assert browser.locator("#choose select[name=from]").input_value() == "torch"
    browser.reload()
    assert browser.locator("#choose select[name=from]").input_value() == "torch"


def test_a_size_that_is_none_shows_no_command(pages, browser):
    browser.goto(pages.link)
    for text in ("3 bananas", "0", "1x"):
        browser.locator("#choose input[name=nbytes]").fill(text)
        assert browser.locator("#choose .command").inner_text() == ""
    browser.locator("#choose input[name=nbytes]").fill("4 TB")
    assert browser.locator("#choose .command").inner_text() == ""
    browser.locator("#choose input[name=nbytes]").fill("400 GB")
    assert "no estimate reaches that far. Shown: 256 MiB." in browser.locator("#choose .chosen").inner_text()
    browser.locator("#choose input[name=nbytes]").fill("512x512")
    assert "1 MiB" in browser.locator("#choose .chosen h3").inner_text()


def test_a_link_says_which_dtype(pages, browser):
    """A link's dtype is chosen even if it was measured only with one thread or only as a copy."""
    for dtype, goal, threads in (("float64", "float32", "1"), ("int64", "same", "1"), ("float32", "same", "all")):
        options = f"from=numpy&to=torch&nbytes=1MiB&dtype={dtype}&to-dtype={goal}"
        browser.goto(f"{pages.rich}#{options}")
        fields = [browser.locator(f"#choose select[name={name}]") for name in ("dtype", "to-dtype", "threads")]
        assert [field.input_value() for field in fields] == [dtype, goal, threads]


def test_without_javascript_the_page_is_what_it_was(pages, opened):
    with opened(java_script_enabled=False) as browser:
        browser.goto(pages.link)
        assert browser.locator("#choose").is_hidden() and browser.locator("#answers table").is_visible()
        browser.goto(f"{pages.history}#{made_histories.SERIES[5].tag}")
        sections = browser.locator("section details[open] > div")
        opened = [each.get_attribute("id") for each in sections.all()]
        assert opened == [made_histories.SERIES[5].tag], "a link opens the section of its release"
