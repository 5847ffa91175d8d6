"""Texts of result files, run records and directory names are shown and never interpreted as Markdown, HTML, SVG, CSV or
terminal codes. Such texts are untrusted: senders of results and torch's error messages decide their content."""

import csv
import io
import re
import xml.etree.ElementTree as xml
from html.parser import HTMLParser

import compare
import made_histories
import pandas
import pytest
import resultfiles
import sides
from conftest import build
from pages import page as page_files
from pages import show
from resultfiles import SKIPPED, contract, edited, every
from store.files import harmless
from untrusted import MARKDOWN, WORDS, shown

PLAIN = "word"
ALL = " ".join(word for word in WORDS if word.isprintable() and len(word) < 100)
CONTROL = "".join(word for word in WORDS if not word.isprintable())
# A page takes a second. So one has all words at once; the others have one word each that matters at the end of a text
PAGES = [ALL, CONTROL, "x" * 5000, "|", "`", "\\", "$x_{", "[/bold]"]
SIZES = (8, 2**20, 2**24)
# Addresses of links in our pages
OWN = re.compile(
    r"#|[a-z0-9-]+\.(csv|svg)$|compare\.js$"
    r"|(\.\./)*(history/)?index\.html(#at=compare-machines&new=(box|a\.b_c-1))?$"
    r"|(\.\./)+docs/[a-z]+\.md$"
    r"|(\.\./)*(feed\.xml|((results|history)/)?(box|a\.b_c-1)/[\w.%-]*)(#[\w=&.%+-]*)?$"
)
OURS = {"br", "details", "summary", "code", "!--"}  # HTML in our Markdown


def benches(word, slower):
    """Return small benchmarks of every kind that a page describes, with the untrusted ``word`` wherever one can be."""
    promises = {"hazard": word, "caution": word, "inputs": {"requires grad": word, word: word}, "refuses": {word: word}}
    routes = [contract(f"f(a, {word})", "copy", **promises), contract("g(a)", "copy"), contract("h(a)", "alias")]

    def seconds(route, _, n):
        return slower * ({"g(a)": 2e-6, "h(a)": 3e-6}.get(route, 1e-6) + n / 1e10)

    both = {"dtype": ["float32", word], "nbytes": SIZES}
    converted = every("conversion.NumpyToTorch.timeit_convert", seconds, routes, **both)
    converted.cells |= {("g(a)", word, SIZES[0]): SKIPPED, ("h(a)", word, SIZES[0]): None}
    own = {"route": ["g(a)"], "dtype": ["float32"], "nbytes": SIZES, "layout": [word]}
    return [
        converted,
        every("limits.Memcpy.timeit_copy", lambda n: slower * (2e-7 + n / 5e10), nbytes=SIZES),
        every("limits.Floor.timeit_floor", lambda _: slower * 4e-9, statement=[word]),
        every(f"{word.replace('.', '')}.Own.timeit_{word}", lambda *cell: slower * (1e-6 + cell[2] / 1e10), **own),
    ]


def record(found, word):
    """Return a run record with the word in every field that can hold text."""
    cell = next(bench.spelled(key) for bench in found for key, value in bench.cells.items() if value is None)
    made = resultfiles.record(found, skipped=word)
    names = ("torch", "numpy", "python", "cuda", "hip", "git", "device", "device_name", "driver", "no_device")
    about = ("cpu", "system", "libc", "governor", "transparent_hugepages")
    return made | {
        **dict.fromkeys(("profile", "only", "asv", "launch", "not_awake", "device_lost"), word),
        "command": f"python scripts/run.py --only {word}",
        "toolchain": {"tag": f"tag {word}", "torch": word, "numpy": word},
        "settings": made["settings"] | dict.fromkeys(names, word),
        "conditions": made["conditions"] | dict.fromkeys(about, word) | {"caches": {word: word}},
        "noisy_cells": [word],
        "failures": {f"failed {word}": [cell]},
    }


def write(root, word, slower=1.0):
    """Write two runs, and results of a benchmark that benchmarks.json no longer describes."""
    found = benches(word, slower)
    resultfiles.write(root, found, records=[record(found, word), record(found, word) | {"started": "2026-03-04"}])
    with edited(root / sides.RESULT) as (file,):
        file["results"][f"gone.{word}"] = file["results"]["limits.Floor.timeit_floor"]
    return root


def built(results, output):
    """Build the pages and return their directories: the page over all machines first, a history last."""
    build(results, output)
    return sorted((path.parent for path in output.rglob("index.html")), key=lambda path: len(path.parts))


class Tags(HTMLParser):
    """A page's tags with the names of their attributes, and the addresses of its links."""

    def __init__(self, directory):
        super().__init__()
        self.found, self.addresses = [], []
        self.feed((directory / "index.html").read_text())

    def handle_starttag(self, tag, attributes):
        if tag not in ("path", "wbr", "use", "defs", "g", "text", "rect"):
            self.found.append((tag, *sorted(name for name, _ in attributes)))
        self.addresses += [value for name, value in attributes if name in ("href", "src")]


def parsed(text):
    """Return the types of a Markdown text's blocks in order, the addresses of its links, and its HTML tags."""
    tokens = MARKDOWN.parse(text)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    links = [value for token in every for name, value in token.attrs.items() if name in ("href", "src")]
    html = "".join(token.content for token in every if token.type.startswith("html"))
    blocks = [token.type for token in tokens if token.type != "html_block"]
    return blocks, links, {*re.findall(r"</?([\w!-]+)", html)}


def harmless_markdown(text, plain, alike=True):
    """Check that a text has the blocks, tables, cells and links of the text with PLAIN words, and only our HTML.

    alike  whether both texts have the same parts; else every kind of part must also be in the other text
    """
    assert shown(text)
    (blocks, links, tags), (usual, leading, _) = parsed(text), parsed(plain)
    drawing = re.compile(r"[a-z0-9-]+\.svg")  # its name depends on its content
    links, leading = ([drawing.sub(".svg", link) for link in each] for each in (links, leading))
    # in GitHub's tables a cell ends at a pipe after an even number of backslashes
    pipe = re.compile(r"(?<!\\)(?:\\\\)*\|")
    rows, others = ([len(pipe.findall(row)) for row in each.splitlines()] for each in (text, plain))
    if alike:
        assert (blocks, links, rows) == (usual, leading, others)
    else:
        assert set(blocks) <= set(usual) and set(links) <= set(leading)
        assert all(one == other or not one or not other for one, other in zip(rows, rows[1:]))
    assert tags <= OURS, tags
    # GitHub turns bare addresses into links, except in code
    assert not re.search(r"https?://|www\.", re.sub(r"`[^`]*`", "", text))


def history(root, word):
    """Write a history in which one release changed a route. The machine's name has Markdown characters, too."""
    logs = made_histories.logs_of(1)
    logs[3:, 2] += 1
    logs[0, 11] = float("nan")
    promises = [contract(route, "copy") for route in (*(f"f{number}(a, {word})" for number in range(11)), "g(a)")]
    conditions = resultfiles.record([])["conditions"] | {"cpu": word}
    about = {"command": f"python scripts/track.py {word}", "conditions": conditions}
    return made_histories.write(root, logs, made_histories.SERIES[:6], promises, machine="a.b_c-1", record=about)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Function that writes results (``write``, ``history``) -> directories of its pages with PLAIN words."""
    roots = {made: tmp_path_factory.mktemp("plain") for made in (write, history)}
    return {made: built(made(root / "results", PLAIN), root / "out") for made, root in roots.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "made, word",
    [*((write, word) for word in PAGES), (history, ALL), (history, "\x1b[31m\n")],
    ids=lambda each: ascii(each[:20]) if isinstance(each, str) else each.__name__,
)
def test_a_page_shows_words_of_files_and_obeys_none(made, word, plain, tmp_path, capsys, recwarn):
    pages = built(made(tmp_path / "results", word), tmp_path / "out")
    printed = capsys.readouterr()
    assert not printed.err and not recwarn.list and shown(printed.out)
    # other words change the routes of a run, which then differ from its contracts
    alike = word.isprintable() and (made is history or len(word) < 100)
    for page, other in zip(pages, plain[made], strict=True):
        harmless_markdown((page / "README.md").read_text(), (other / "README.md").read_text(), alike)
        said, usual = Tags(page), Tags(other)
        assert said.found == usual.found if alike else set(said.found) <= set(usual.found)
        assert [address for address in said.addresses if not OWN.match(address)] == []
        for table in page.glob("*.csv"):
            rows, others = (list(csv.reader((path / table.name).open(newline=""))) for path in (page, other))
            assert {len(row) for row in rows} == {len(others[0])} and (len(rows) == len(others) or not alike)
            assert all(map(shown, (entry for row in rows for entry in row)))
    assert len([*pages[0].rglob("*.csv")]) >= 2, "of all machines and of one"
    drawings, others = (list(overall.rglob("*.svg")) for overall, *_ in (pages, plain[made]))
    assert len(drawings) == len(others) >= (3 if made is write else 1)
    for drawing in drawings:
        root = xml.fromstring(drawing.read_text())
        assert shown("".join(root.itertext())) and not any("script" in node.tag for node in root.iter())
        assert float(root.get("width").removesuffix("pt")) < 72 * 20


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_a_comparison_shows_words_of_files_and_obeys_none(form, tmp_path, capsys):
    told = []
    for word in (f"{ALL}\x1b[31m", PLAIN):
        root = tmp_path / str(len(word))
        sides = [str(write(root / side, word, slower)) for side, slower in (("base", 1.0), ("new", 9.0))]
        drawing = tmp_path / "drawing.svg"
        options = ["--format", form, "--all", "--figure", str(drawing), "--only", "```|\n```|", "--min-decided", "0"]
        assert compare.main([*sides, *options]) == 0
        xml.fromstring(drawing.read_text())
        told.append(capsys.readouterr().out)
    assert shown(told[0])
    if form == "markdown":
        harmless_markdown(*told)


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+cmd|'x'!A1", "-2+3", "-", "=", "+inf", "-nan"])
def test_no_spreadsheet_takes_a_text_for_a_formula(text):
    table = pandas.DataFrame({"a": [text, "-1.5e-3", "+2", "f(a) = b", None], "b": [-1.5, 2, 3, 4, float("nan")]})
    rows = list(csv.reader(io.StringIO(page_files.to_csv(table))))
    assert rows[1:] == [[f"'{text}", "-1.5"], ["-1.5e-3", "2.0"], ["+2", "3.0"], ["f(a) = b", "4.0"], ["", ""]]


@pytest.mark.parametrize("value", [15442.5, 15442.500000000002, 15442.499999999998])
def test_a_tie_is_rounded_alike_on_every_processor(value):
    """Values that differ only in the last bit are rounded to the same text: vector units differ in that bit of exp."""
    assert page_files.to_csv(pandas.DataFrame({"a": [value]}), digits=5) == "a\n15442\n"
    assert show.significant(value, 5) == "15,442"


def test_texts_of_files_are_made_harmless_once():
    assert harmless({"a\n": ["\x1b[31m", 1.5, None, {"b": "c"}]}) == {"a ": [" [31m", 1.5, None, {"b": "c"}]}
    with pytest.raises(ValueError, match="alike"):
        harmless({"a\n": 1, "a\r": 2})
