"""The chooser of a page: it says what scripts/advise.py says, to the last digit, and is used as people use it."""

import itertools
import json
import random
import re
import subprocess
from dataclasses import replace
from urllib.parse import urlencode

import made_up
import pytest
from analysis import case as cases
from analysis.case import Case, rank
from analysis.published import every
from browser import node, opened
from cli import UserError
from conftest import ROOT, build
from pages import case as words
from pages import chooser, show

SCRIPT = ROOT / "scripts" / "pages" / "templates" / "advise.js"
ASK = """
const advise = require(process.argv[1]);
const { known, cases } = JSON.parse(require("fs").readFileSync(0));
advise.know(known);
console.log(JSON.stringify(cases.map((given) => advise.asJson(given))));
"""
MEMORIES = {"": "any", "copy": "own", "alias": "share", "into": "into-buffer"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return made_up.results_in(tmp_path_factory.mktemp("known"))


@pytest.fixture(scope="module")
def known(results):
    return every(results)[0]


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    return build(results, tmp_path_factory.mktemp("page"))


def some(known, count, seed):
    """Cases of all kinds, many of which cannot be."""
    chance = random.Random(seed)
    dtypes = sorted({dtype for found in known.dtypes.values() for dtype in found})
    layouts = sorted({point.layout for point in known.points})
    measured = sorted({point.nbytes for point in known.points})
    for _ in range(count):
        crosses = chance.random() < 0.4
        source, target = chance.sample(cases.ENDS if crosses else cases.ENDS[:2], 2)
        dtype = chance.choice(dtypes)
        nbytes = chance.choice(measured) if chance.random() < 0.4 else int(2 ** chance.uniform(0, 34))
        if chance.random() < 0.9:
            size = cases.itemsize(dtype)
            nbytes = max(size, nbytes // size * size)
        yield Case(
            source,
            target,
            nbytes,
            dtype,
            chance.choice(layouts) if chance.random() < 0.3 else "contiguous",
            chance.choice(["", "", "alias", "copy", "into"]),
            chance.choice(["", "pageable", "pinned"]) if crosses else "",
            chance.random() < 0.15,
            chance.choice([1, 2, 64]) if chance.random() < 0.1 else 0,
            crosses and chance.random() < 0.3,
            chance.choice([1, 1, 1000]) if crosses else 1,
        )


def told(case, known):
    """What the page is to say of a case."""
    try:
        answer = rank(case, known)
    except UserError as error:
        return {"wrong": str(error)}

    def plain(one):
        figure = one.figure
        return {
            "route": one.route,
            "memory": one.memory,
            "host": one.host,
            **{name: pytest.approx(getattr(figure, name), rel=1e-9) for name in ("seconds", "low", "high")},
            "total": pytest.approx(one.total, rel=1e-9),
            "tie": one.tie,
            "line": words.line_of(one, case),
            "code": "\n".join(words.snippet(case, one, known)),
        }

    return {
        "title": words.title(case),
        "ranked": [plain(one) for one in answer.ranked],
        "unsafe": [plain(one) for one in answer.unsafe],
        "notes": list(dict.fromkeys(words.notes(answer))),
    }


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("busy", [0.0, 0.3], ids=["calm", "busy"])
def test_it_says_what_advise_says(known, seed, busy):
    chance = random.Random(seed)
    known = replace(known, points=tuple(replace(each, calm=chance.random() >= busy) for each in known.points))
    wanted = compared(known, list(some(known, 250, seed)))
    assert 50 < sum("wrong" in each for each in wanted) < 200, "cases of both kinds"


def compared(known, asked):
    """Ask both; what is said of each case."""
    given = json.dumps({"known": json.loads(chooser.embedded(known)), "cases": [vars(case) for case in asked]})
    done = subprocess.run([node(), "-e", ASK, SCRIPT], input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    wanted = [told(case, known) for case in asked]
    for case, answer, want in zip(asked, answers, wanted, strict=True):
        assert {name: answer.get(name) for name in want} == want, case
    return wanted


def test_it_says_what_advise_says_of_buffers_that_persist(tmp_path):
    accelerator = pytest.importorskip("accelerator")  # which needs torch
    known = every(accelerator.write(tmp_path, accelerator.transfers()))[0]
    ways = [("numpy", "cuda"), ("cuda", "numpy")]
    asked = [
        Case(*way, nbytes, memory="into", host=host, count=count)
        for way, host, count in itertools.product(ways, ["pageable", "pinned"], [1, 1000])
        for nbytes in (4096, 64 * 2**20)
    ]
    wanted = compared(known, asked)
    ranked = {one["route"]: one["code"] for each in wanted for one in each["ranked"]}
    assert "d = torch.empty(a.shape, dtype=torch.float32, device=device)" in ranked["d.copy_(torch.from_numpy(a))"]
    staged = ranked["s.numpy()[:] = a; d.copy_(s, non_blocking=True)"]
    assert "s = torch.empty(a.shape, dtype=torch.float32, pin_memory=True)" in staged
    assert "synchronize()" in staged.splitlines()[-1]
    assert ranked["h.copy_(t).numpy()"].splitlines()[-1] == "a = h.copy_(t).numpy()"
    unsafe = {one["route"]: one["code"] for each in wanted for one in each["unsafe"]}
    double = unsafe["buffers.start(t); buffers.read()"]
    assert "buffers = Buffers(" in double and double.splitlines()[-1] == "buffers.start(t); a = buffers.read()"
    for code in (*ranked.values(), *unsafe.values()):
        compile(code, "pasted", "exec")


def test_numbers_are_rounded_alike():
    """What lies halfway goes to the even digit in Python, and up in JavaScript's own way."""
    numbers = [12.25, 12.35, 0.125, 184.25, 1.005, 999.5, 0.0009996, 2.5e-7, 1e-6, 9.995e-4, 1.15e-9]
    shown = f"{numbers}.map((n) => [show.significant(n), show.seconds(n), show.ratio(n)])"
    code = f"const {{ show }} = require(process.argv[1]); console.log(JSON.stringify({shown}))"
    done = subprocess.run([node(), "-e", code, SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == [[show.significant(n), show.seconds(n), show.ratio(n)] for n in numbers]


def test_what_is_embedded_cannot_end_its_element(known):
    hostile = chooser.embedded(known).replace("box", "</script><!--")
    assert "<" in hostile and "<" not in chooser.embedded(known)


# --- in a browser ----------------------------------------------------------------------------------------------------


def address(page, case):
    """Where the page has the answer to a case."""
    options = {"from": case.source, "to": case.target, "nbytes": case.nbytes, "dtype": case.dtype}
    options |= {"layout": case.layout, "memory": MEMORIES[case.memory], "source": case.host or "any"}
    options |= {"grad": str(case.grad).lower(), "batch": case.batch, "enqueue": str(case.enqueue).lower()}
    return f"{(page / 'index.html').as_uri()}#{urlencode({**options, 'count': case.count})}"


@pytest.mark.slow
def test_a_link_holds_an_answer(page, known):
    """A hundred random cases, asked of the page in a browser and of the script's own code."""
    asked = [case for case in some(known, 400, 9) if "wrong" not in told(case, known)][:100]
    assert len(asked) == 100
    with opened() as browser:
        for case in asked:
            browser.goto(address(page, case))
            want = told(case, known)
            chosen = browser.locator("#choose .chosen")
            chosen.locator("h3", has_text=re.compile(f"^{re.escape(want['title'])}$")).wait_for()
            lines = [show.bare(one["line"]) for one in want["ranked"][: words.SHOWN]]
            assert chosen.locator("ol li").all_inner_texts() == lines, case
            assert chosen.locator("pre").inner_text() == want["ranked"][0]["code"]
            assert chosen.locator("ul li").all_inner_texts() == [show.bare(note) for note in want["notes"]]
        assert browser.complaints == []
        assert {url.partition("#")[0] for url in browser.requests} == {(page / "index.html").as_uri()}


@pytest.mark.slow
def test_by_keyboard_alone(page):
    with opened() as browser:
        browser.goto((page / "index.html").as_uri())
        first = browser.locator("#choose .chosen h3").inner_text()
        assert first == "From numpy to torch, 1 MiB of float32"
        browser.locator("#choose select[name=from]").focus()
        for wanted in ("from", "to", "nbytes", "slider"):
            assert browser.evaluate("document.activeElement.name") == wanted
            if wanted != "slider":
                browser.keyboard.press("Tab")
        browser.keyboard.press("ArrowRight")
        browser.keyboard.press("ArrowRight")
        assert browser.locator("#choose .chosen h3").inner_text() == "From numpy to torch, 2 MiB of float32"
        assert "nbytes=2MiB" in browser.url
        browser.locator("#choose input[name=nbytes]").fill("3 bananas")
        assert "write bytes such as" in browser.locator("#choose .chosen").inner_text()
        browser.locator("#choose input[name=nbytes]").fill("3MiB")
        browser.locator("#choose .paste button").focus()
        browser.keyboard.press("Enter")
        browser.locator("#choose .paste button", has_text="Cop").wait_for()
        assert browser.complaints == []


@pytest.mark.slow
def test_what_cannot_be_is_not_there_to_be_chosen(page):
    with opened() as browser:
        browser.goto((page / "index.html").as_uri())
        grad = browser.locator("#choose input[name=grad]")
        assert grad.is_disabled(), "an array requires no grad"
        browser.locator("#choose select[name=from]").select_option("torch")
        assert browser.locator("#choose select[name=to]").input_value() == "numpy" and grad.is_enabled()
        browser.locator("#choose input[name=batch]").fill("8")
        assert grad.is_disabled(), "a batch is about arrays"
        browser.locator("#choose input[name=batch]").fill("0")
        assert browser.locator("#choose input[name=enqueue]").is_hidden(), "what is about transfers"
        browser.locator("#choose select[name=to]").select_option("cuda")
        assert browser.locator("#choose input[name=enqueue]").is_visible()
        assert "share" not in browser.locator("#choose select[name=memory] option:enabled").evaluate_all(
            "options => options.map((option) => option.value)"
        )


@pytest.mark.slow
def test_without_javascript_the_page_is_what_it_was(page):
    with opened(java_script_enabled=False) as browser:
        browser.goto((page / "index.html").as_uri())
        assert browser.locator("#choose").is_hidden() and browser.locator(".answers").is_visible()
