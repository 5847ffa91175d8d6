"""Words of result files, run records and directories are shown and never obeyed: as Markdown, HTML, SVG, CSV, or by a
terminal. Whoever sends results for a page, or an error message that torch printed, decides what is in them."""

import csv
import io
import re
import xml.etree.ElementTree as xml
from html.parser import HTMLParser

import compare
import pandas
import pytest
import resultfiles
import sides
import test_history
from conftest import build
from markdown_it import MarkdownIt
from pages import show, tables
from resultfiles import SKIPPED, contract, edited, every
from store.files import harmless

PLAIN = "word"
WORDS = [
    "|",
    "a | b | c |",
    "`",
    "a ``` b",
    "`|`",
    "\\",
    "\\|",
    "a\\` | [x](y)",
    "](javascript:alert(1))",
    "![x](https://example.org/x.png)",
    "<script>alert(1)</script>",
    "<b onclick='alert(1)'>",
    "'\" onload=alert(1) x='",
    "-->",
    "]]>",
    "&lt;script&gt;",
    "https://example.org www.example.org",
    "**_~~",
    "$x_{",
    "$$",
    "{{ 7 * 7 }}{% raw %}",
    "[bold red]x[/]",
    "[/bold]",
    "a\nb\n\n# heading\n\n- item",
    "\r\n| a | b |\r\n|---|---|",
    "\x1b[31m\x1b]0;title\x07",
    "\x00\x07\x08\x7f\x9b",
    "\x0ecode\x0f\x0e",
    "\u202eright to left",
    "\u2028\u2029\x85",
    "\ud800",
    "\ufffe\uffff",
    '=HYPERLINK("x")',
    "x" * 5000,
]
ALL = " ".join(word for word in WORDS if word.isprintable() and len(word) < 100)
CONTROL = "".join(word for word in WORDS if not word.isprintable())
# A page takes a second: one with all words at once, and those alone that mean most at the end of a text
PAGES = [ALL, CONTROL, "x" * 5000, "|", "`", "\\", "$x_{", "[/bold]"]
SIZES = (8, 2**20, 2**24)
MARKDOWN = MarkdownIt("commonmark").enable("table")
# Where links in a page of ours lead
OWN = re.compile(r"#|[a-z0-9-]+\.(csv|svg)$|(\.\./)*(feed\.xml|((results|history)/)?(box|a\.b_c-1)/[\w.%-]*)$")
OURS = {"br", "details", "summary", "code", "!--"}  # HTML in our Markdown


def benches(word, slower):
    """A bit of every kind of benchmark that a page has words for, with a word of theirs wherever there can be one."""
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
    """A run record that says the word wherever it can."""
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
    """Two runs, and results of benchmarks that nothing describes any more."""
    found = benches(word, slower)
    resultfiles.write(root, found, records=[record(found, word), record(found, word) | {"started": "2026-03-04"}])
    with edited(root / sides.RESULT) as (file,):
        file["results"][f"gone.{word}"] = file["results"]["limits.Floor.timeit_floor"]
    return root


def built(results, output):
    """The directories of pages: first that of the page over all machines, last that of a history."""
    build(results, output)
    return sorted((path.parent for path in output.rglob("index.html")), key=lambda path: len(path.parts))


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes, and where its links lead."""

    def __init__(self, directory):
        super().__init__()
        self.found, self.addresses = [], []
        self.feed((directory / "index.html").read_text())

    def handle_starttag(self, tag, attributes):
        if tag not in ("path", "wbr", "use", "defs", "g", "text", "rect"):
            self.found.append((tag, *sorted(name for name, _ in attributes)))
        self.addresses += [value for name, value in attributes if name in ("href", "src")]


def parsed(text):
    """Of Markdown: the kinds of its blocks in order, where its links lead, and the tags of its HTML."""
    tokens = MARKDOWN.parse(text)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    links = [value for token in every for name, value in token.attrs.items() if name in ("href", "src")]
    html = "".join(token.content for token in every if token.type.startswith("html"))
    blocks = [token.type for token in tokens if token.type != "html_block"]
    return blocks, links, {*re.findall(r"</?([\w!-]+)", html)}


def harmless_markdown(text, plain, alike=True):
    """Whether a text has the blocks, tables, cells and links of one that says PLAIN, and no HTML but ours.

    alike  both say as much; else what is in it must be in the other, too
    """
    assert shown(text)
    (blocks, links, tags), (usual, leading, _) = parsed(text), parsed(plain)
    drawing = re.compile(r"[a-z0-9-]+\.svg")  # named by what it shows
    links, leading = ([drawing.sub(".svg", link) for link in each] for each in (links, leading))
    # GitHub's tables: a cell ends at a pipe that no odd number of backslashes precedes
    pipe = re.compile(r"(?<!\\)(?:\\\\)*\|")
    rows, others = ([len(pipe.findall(row)) for row in each.splitlines()] for each in (text, plain))
    if alike:
        assert (blocks, links, rows) == (usual, leading, others)
    else:
        assert set(blocks) <= set(usual) and set(links) <= set(leading)
        assert all(one == other or not one or not other for one, other in zip(rows, rows[1:]))
    assert tags <= OURS, tags
    # and GitHub makes links of bare addresses, but in code
    assert not re.search(r"https?://|www\.", re.sub(r"`[^`]*`", "", text))


def shown(text):
    """Whether a text has no letter that a terminal, XML or a reader could stumble over."""
    return all(letter.isprintable() or letter == "\n" for letter in text)


def history(root, word):
    """Releases of which one changed a route, in the history of a machine whose name is no Markdown either."""
    logs = test_history.logs_of(1)
    logs[3:, 2] += 1
    logs[0, 11] = float("nan")
    promises = [contract(route, "copy") for route in (*(f"f{number}(a, {word})" for number in range(11)), "g(a)")]
    conditions = resultfiles.record([])["conditions"] | {"cpu": word}
    about = {"command": f"python scripts/track.py {word}", "conditions": conditions}
    return test_history.write(root, logs, test_history.SERIES[:6], promises, machine="a.b_c-1", record=about)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What writes results -> the directories of the pages that say PLAIN."""
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
    # else the routes of a run are not those of its contracts
    alike = word.isprintable() and (made is history or len(word) < 100)
    for page, other in zip(pages, plain[made], strict=True):
        harmless_markdown((page / "README.md").read_text(), (other / "README.md").read_text(), alike)
        said, usual = Tags(page), Tags(other)
        assert said.found == usual.found if alike else set(said.found) <= set(usual.found)
        assert all(map(OWN.match, said.addresses))
        (table,) = page.glob("*.csv")
        rows, others = (list(csv.reader((path / table.name).open(newline=""))) for path in (page, other))
        assert {len(row) for row in rows} == {len(others[0])} and (len(rows) == len(others) or not alike)
        assert all(map(shown, (entry for row in rows for entry in row)))
    drawings, others = (list(overall.rglob("*.svg")) for overall, *_ in (pages, plain[made]))
    assert len(drawings) == len(others) > (2 if made is write else 1)
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
    rows = list(csv.reader(io.StringIO(tables.text_of(table))))
    assert rows[1:] == [[f"'{text}", "-1.5"], ["-1.5e-3", "2.0"], ["+2", "3.0"], ["f(a) = b", "4.0"], ["", ""]]


@pytest.mark.parametrize("value", [15442.5, 15442.500000000002, 15442.499999999998])
def test_a_tie_is_rounded_alike_on_every_processor(value):
    """Vector units differ in the last bit of an exponential function."""
    assert tables.text_of(pandas.DataFrame({"a": [value]}), digits=5) == "a\n15442\n"
    assert show.significant(value, 5) == "15,442"


def test_texts_of_files_are_made_harmless_once():
    assert harmless({"a\n": ["\x1b[31m", 1.5, None, {"b": "c"}]}) == {"a ": [" [31m", 1.5, None, {"b": "c"}]}
    with pytest.raises(ValueError, match="alike"):
        harmless({"a\n": 1, "a\r": 2})
