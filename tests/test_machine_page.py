"""The page of a machine: its content, that it is written as a whole, and its facts about the runs it shows."""

import hashlib
import re
from pathlib import Path

import made_up
import pandas as pd
import pytest
import resultfiles
import sides
from analysis.results import load
from analysis.suite import declared_in
from conftest import build
from pages import figures, machine, show, tables
from pages.build import index_of
from resultfiles import FROM_NUMPY, KIB, MIB, TENSOR, Bench, around, contract, conversion, every, mend, steady
from store.schema import RunRecord, from_json


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The directory of the page of ``made_up.rich``, not to be changed."""
    root = tmp_path_factory.mktemp("page")
    return build(made_up.rich(root / "results"), root)  # pages lie beside results, to which they link


def test_the_whole_page_in_words(page, snapshot):
    assert re.sub(r"[0-9a-f]{64}", "SHA", (page / "README.md").read_text(encoding="utf-8")) == snapshot


def test_the_whole_page_for_a_browser(page, snapshot):
    """The HTML matches its snapshot, without tables and drawings: the Markdown and SVG files have their content."""
    html = (page / "index.html").read_text(encoding="utf-8")
    html = re.sub(r"<(script|style|table)\b.*?</\1>", r"<\1>", html, flags=re.DOTALL)
    html = re.sub(r"<svg .*?(role=.*?</desc>).*?</svg>", r"<svg \1</svg>", html, flags=re.DOTALL)
    assert re.sub(r"[0-9a-f]{64}|[0-9a-f]{12}…", "SHA", html) == snapshot


def test_the_page_loads_nothing(page):
    html = (page / "index.html").read_text()
    assert not re.search(r"<(link|img|iframe|object|embed)\b", html)
    assert not re.search(r"@import|url\((?!#)|<script[^>]*src|fetch\(|XMLHttpRequest|import\(", html)


def test_colours_of_the_page_follow_the_scheme(page):
    svg = "".join(re.findall(r"<svg.*?</svg>", (page / "index.html").read_text(), re.DOTALL))
    bare = re.sub(r"var\([^)]*\)", "", svg)
    assert not re.search(r"#[0-9a-f]{6}\b", bare)
    assert "#ffffff" in next(page.glob("time-*.svg")).read_text()


def test_the_csv_holds_every_cell(page, snapshot):
    text = (page / "results.csv").read_text(encoding="utf-8")
    assert text.splitlines() == snapshot
    digest = hashlib.sha256((page / "results.csv").read_bytes()).hexdigest()
    assert digest in (page / "index.html").read_text() and digest in (page / "README.md").read_text()


ALIAS = "semantics.NumpyToTorch.track_alias"
ALIAS_COUNTED = every(ALIAS, lambda *_: 1, [FROM_NUMPY], "1: shares memory", dtype=["float32"])
TOYS = {"section": "Toys", "about": "Of a test.", "title": "toys", "place": 3, "down": "a, b"}
TIMED = conversion({("torch.tensor(a)", n): [1e-6] for n in (8, KIB)}, [TENSOR])
OLDER = resultfiles.record([TIMED], started="2020-01-01T00:00:00+00:00", toolchain={"tag": "old", "torch": "1"})


@pytest.mark.parametrize(
    ("benches", "records", "older"),
    [
        ([ALIAS_COUNTED], None, []),
        ([conversion({("torch.tensor(a)", 8): None}, [TENSOR])], None, []),
        ([TIMED], [], []),
        ([Bench("toy.Toy.timeit_call", {"a, b": [1]}, {(1,): [1e-6]}, declared=TOYS)], None, []),
        ([TIMED, ALIAS_COUNTED], None, [TIMED]),  # benchmarks.json describes the results written last
    ],
    ids=[
        "only counted",
        "every cell failed",
        "asv run by hand",
        "a comma",
        "an older toolchain, and a benchmark is no more",
    ],
)
def test_the_head_of_a_page(tmp_path, snapshot, benches, records, older):
    """The head of a page has its facts and warnings."""
    root = resultfiles.write(tmp_path / "r", benches, records=records)
    if older:
        resultfiles.write(root, older, commit="f" * 40, records=[OLDER])
    text = (build(root, tmp_path / "out") / "README.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if re.match(r"> |torch \d|Python \d|These ", line)] == snapshot
    assert "Measured by ." not in text
    samples = re.findall(r"\]\(\.\./results/(.+?)\)", text)
    filed = [] if records == [] else [*root.glob("box/c0ffee*.gz")]  # by hand, asv files no samples
    assert [root / each for each in samples] == filed


def test_two_toolchains_are_compared(tmp_path, snapshot):
    """Only one route became twice as slow. A page names it under a heading of its own."""
    for number, (version, change) in enumerate({"2.0": {}, "2.1": {(sides.ROUTES[0], 8): 2.0}}.items()):
        toolchain = {"tag": f"torch-{version}-numpy-1.26", "torch": version, "numpy": "1.26"}
        record = {"toolchain": toolchain, "started": f"2026-01-0{number + 1}T00:00:00+00:00"}
        sides.write(tmp_path / "results", sides.cells(number, change), commit=str(number) * 40, record=record)
    text = (build(tmp_path / "results", tmp_path / "out") / "README.md").read_text(encoding="utf-8")
    section = text.split("Against the run before", 2)[-1].split("\n## ")[0]
    assert section.replace("\\", "") == snapshot


@pytest.mark.parametrize(("share", "slow"), [(0.23, 1), (0.23, 0), (0.95, 1), (0.95, 0)])
def test_page_and_terminal_say_how_quiet_the_machine_was(tmp_path, capsys, snapshot, share, slow):
    sizes = [2**k for k in range(3, 13)]
    times = {("torch.from_numpy(a)", n): [4e-7 * (1 + slow * (n == 8))] * 4 for n in sizes}
    bench = conversion(times, [FROM_NUMPY])
    records = [resultfiles.record([bench], quiet=share, rounds=4)]
    never = {(("torch.from_numpy(a)", "float32", 8), k) for k in range(4)} if slow else ()
    root = resultfiles.write(tmp_path / "results", [bench], records=records, slow=never, clock=steady)
    made = build(root, tmp_path / "out")
    page, printed = (made / "README.md").read_text(encoding="utf-8"), capsys.readouterr().out
    warnings = [line[2:] for line in page.splitlines() if line.startswith("> ")]
    assert warnings == snapshot and all(line in printed for line in warnings)
    assert bool(warnings) == (share < 0.9 or bool(slow)) and f"quiet {share:.0%}".replace("%", " %") in page
    assert set(re.findall(r"\d+ ns ~", page)) == {"800 ns ~"} if slow else "~" not in page
    assert (show.to_plain(tables.UPPER_BOUND_NOTE) in page) == bool(slow)
    rows = pd.read_csv(made / "results.csv")
    assert list(rows["nbytes"][~rows["quiet"]]) == [8] * slow


def test_a_page_names_the_runs_that_it_shows(tmp_path, snapshot):
    """A full run measured two routes, and a later quick run one of them again. Each figure shows its run's command,
    ready to paste: a pattern is quoted, although earlier records lack the quotes."""
    old, new = "2026-01-02T03:04:05+00:00", "2026-02-03T04:05:06+00:00"
    looked, others = [8, KIB], [8, KIB, 4 * KIB]
    cells = {("f(a)", n): [1e-6 * n] for n in looked} | {("g(a)", n): around(1e-6 * n) for n in others}
    bench = conversion(cells, [contract("f(a)", "alias"), contract("g(a)", "copy")])  # each has a figure of its own
    whole = {"command": "python scripts/run.py --only (f|g).* --resume", "only": "(f|g).*", "rounds": 4, "quiet": 0.72}
    records = [
        resultfiles.record([bench], started=old, **whole),
        resultfiles.record([bench], started=new, command="python scripts/run.py --rounds 1", quiet=0.94),
    ]
    root = resultfiles.write(tmp_path / "r", [bench], records=records, clock=steady)
    mend(root, lambda line: {**line, "run": new if line["params"][0] == repr("f(a)") else old})
    made = load(root)
    counted = resultfiles.record([], started="2026-03-04", profile="full", samples=0, revision="abc-dirty")
    made.runs.append(from_json(RunRecord, counted))
    page = machine.machine_page(made, None, "box", [], [])
    assert page.facts[-3:-1] == ("2026-01-02", "profile quick"), "the run that measured most"
    assert sorted(show.to_plain(line).partition("`, ")[2] for line in page.measured_by) == [
        "2026-01-02, suite's revision unknown",
        "2026-02-03, suite's revision unknown",
        "2026-03-04, suite's revision abc-dirty",
    ]
    assert ", measured 2026-01-02 to 2026-03-04. " in page.citation and "version 0.5.0 (revision abc" in page.citation
    assert [run.started for run in index_of([page], {}).runs] == [old, new], "it shows no counts"
    said = show.render_paragraphs("machine_warnings", "runs", runs=machine.list_runs(made))
    assert [show.to_plain(line) for line in said] == snapshot
    assert sorted(made.quiet) == [0.72, 0.94], "not the last run's alone"
    html = (build(root, tmp_path / "out") / "index.html").read_text()
    assert re.findall(r"<p>Measured by <code>(.*?)</code>", html) == [
        "python scripts/run.py --rounds 1",
        "python scripts/run.py --only &#39;(f|g).*&#39; --resume",
    ]


# How pages are written and numbers shown ------------------------------------------------------------------------------


def test_a_page_is_whole_or_as_it_was(tmp_path, monkeypatch):
    """If a build stops while it writes a file or between two renames, the old page stays complete. Other files in its
    directory stay, too."""

    def built(seconds):
        bench = conversion({("torch.from_numpy(a)", 8): around(seconds)}, [FROM_NUMPY])
        return build(resultfiles.write(tmp_path / "r", [bench]), tmp_path / "out")

    def stopped(call, name):
        def as_usual_or_not(path, other):
            if name in path.name:
                raise KeyboardInterrupt
            return call(path, other)

        return as_usual_or_not

    page = built(1e-6)
    (page / "mine.txt").write_text("mine")
    (page / "gone.svg").write_text("of an older page")
    before = {path.name: path.read_bytes() for path in page.iterdir()}
    for name in ("results.csv", "README.md", "index.html", ".box.new"):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Path, "write_bytes", stopped(Path.write_bytes, name))
            patched.setattr(Path, "rename", stopped(Path.rename, name))
            built(2e-6)
        assert {path.name: path.read_bytes() for path in page.iterdir()} == before, name
        assert [path.name for path in page.parent.iterdir() if path.is_dir()] == [page.name], name
    built(2e-6)
    assert {path.name for path in page.iterdir()} == {*before} - {"gone.svg"}


def declared(**params):
    """Return a benchmark with these parameters."""
    return declared_in({"toy": every("toy", lambda *_: 1e-6, **params).description()})["toy"]


def test_two_cells_in_one_place_are_an_error():
    """Of two cells in one place of a table, one would be lost silently. So a ValueError is raised."""
    toy = declared(route=["f(a)"], nbytes=[8], depth=[1, 2])
    marks = [tables.GridEntry({"route": "f(a)", "nbytes": 8, "depth": depth}, ["1 µs"]) for depth in (1, 2)]
    with pytest.raises(ValueError, match="title"):
        tables.lay_out("title", toy, marks, "nbytes", None, str, "route")


def test_sizes_ascend_though_one_was_declared_last():
    toy = declared(route=["f(a)"], nbytes=[8, MIB, KIB])
    marks = [tables.GridEntry({"route": "f(a)", "nbytes": n}, [str(n)]) for n in (8, MIB, KIB)]
    made = tables.lay_out("title", toy, marks, "nbytes", None, str, "route")
    assert made.columns[1:] == made.rows[0][1:] == ("8", "1024", "1048576")


def test_an_empty_place_says_why_whatever_the_size_of_other_columns():
    """The reason for an empty place is found although columns differ in size. A row whose name is 0 shows its name."""
    sizes = {"A": MIB, "B": MIB, "X": 64 * MIB}
    toy = declared(workers=[0, 2], dtype=[*sizes], nbytes=[MIB, 64 * MIB])
    marks = [
        tables.GridEntry({"workers": n, "dtype": dtype, "nbytes": size}, ["1 µs"])
        for n in (0, 2)
        for dtype, size in sizes.items()
    ]
    (lacks,) = [mark for mark in marks if mark.parameters == {"workers": 0, "dtype": "B", "nbytes": MIB}]
    missing = {("toy", *lacks.parameters.values()): "n/a: no B here"}
    made = tables.lay_out("title", toy, [mark for mark in marks if mark is not lacks], "dtype", missing, str, "workers")
    assert made.rows == (("0", "1 µs", "n/a", "1 µs"), ("2", "1 µs", "1 µs", "1 µs")) and "no B here" in made.notes[0]


def test_a_label_is_broken_where_the_figure_ends():
    label = "torch.stack([torch.from_numpy(x) for x in arrays]).to(device, non_blocking=True)"
    pieces = figures.broken(label)
    assert "".join(pieces).replace(" ", "") == label.replace(" ", "")
    assert max(map(len, pieces)) <= figures.LABEL_LETTERS


@pytest.mark.parametrize(
    "way, values",
    [
        (show.seconds, {3.91e-7: "391 ns", 9.996e-7: "1.00 µs", 0.01234: "12.3 ms", 4e-10: "0.40 ns", 12.0: "12.0 s"}),
        (show.size, {8: "8 B", 4096: "4 KiB", 2**28: "256 MiB", 1536: "1.5 KiB"}),
        (show.ratio, {1.234: "1.23×", 41.2: "41×", 526.3: "526×", 1188.0: "1,190×"}),
    ],
)
def test_numbers_are_shown_with_a_unit_and_few_digits(way, values):
    assert {value: way(value) for value in values} == values


@pytest.mark.parametrize(("python", "warned"), [("not optimised", True), ("optimised, LTO", False)])
def test_the_head_tells_how_python_was_built(tmp_path, python, warned):
    results, settings = tmp_path / "results", resultfiles.record([])["settings"] | {"build": python}
    sides.write(results, sides.cells(0), {"settings": settings})
    page = (build(results, tmp_path) / "README.md").read_text(encoding="utf-8")
    assert ("Python was built without optimisation: a call takes 4 to 27 % more" in page) == warned
    assert f"Python 3.11.7 ({python})" in page
