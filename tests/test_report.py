"""The report: what it recommends, what its page holds, and that it says clearly what is wrong."""

import builtins
import csv
import hashlib
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import report
import resultfiles
from analysis import answers, comparison
from analysis.cells import cells_of
from analysis.results import load
from analysis.semantics import Semantics
from cli import UserError
from pages import figures, show, spreadsheet, tables
from pages.advice import advice, title
from resultfiles import SKIPPED, Bench, around, contract, conversion, memcpy

ROOT = Path(__file__).resolve().parent.parent
KIB, MIB = 2**10, 2**20
FROM_NUMPY = contract("torch.from_numpy(a)", "alias")
AS_TENSOR = contract("torch.as_tensor(a)", "alias")
CLONE = contract("torch.from_numpy(a).clone()", "copy")
TENSOR = contract("torch.tensor(a)", "copy")


def answers_to(tmp_path, *benches):
    return answers.answers(cells_of(load(resultfiles.write(tmp_path, benches))))


def only(found):
    assert len(found) == 1
    return found[0]


def text(answer):
    said = advice(answer)
    return "\n".join(show.to_plain(line) for line in (*said.said, *said.notes))


def build(results, output, *arguments):
    assert report.main(["--results", str(results), "--output", str(output), *arguments]) == 0
    return output / "box"


@pytest.fixture
def rich_results(tmp_path):
    """Every family, both directions, ties, a failed and a skipped cell."""
    sizes = (8, MIB, 16 * MIB)
    copies = {
        (c["expression"], n): around(1e-6 + n / 4e10 * (i + 1)) for i, c in enumerate((CLONE, TENSOR)) for n in sizes
    }
    aliases = {
        (c["expression"], n): around(4e-7 * (i + 1)) for i, c in enumerate((FROM_NUMPY, AS_TENSOR)) for n in sizes
    }
    to_torch = [FROM_NUMPY, AS_TENSOR, CLONE, TENSOR]
    more = {("torch.from_numpy(a)", "int64", MIB): around(4e-7), ("torch.tensor(a)", "int64", MIB): None}
    times = {(route, "float32", n): value for (route, n), value in {**aliases, **copies}.items()} | more
    to_numpy = [contract("t.numpy()", "alias", "torch→numpy", inputs={"requires grad": "RuntimeError"})]
    grads = [contract("t.detach().numpy()", "alias", "torch→numpy", inputs={"requires grad": "detaches"})]
    casts = [
        contract(f"torch.from_numpy(a).{how}", "copy", casts_to="float32") for how in ("float()", "to(torch.float32)")
    ]
    lists = [contract("torch.tensor(arrays)", "copy", per_element=True), contract("torch.stack(arrays)", "copy")]
    routes = {"route": ["torch.from_numpy(a)", "torch.tensor(a)"]}
    grid = {(r, n): around(1e-6 + n / 1e10) for r in routes["route"] for n in sizes}
    benches = [
        conversion(times, to_torch, dtypes=("float32", "int64")),
        conversion({("t.numpy()", n): around(5e-7) for n in sizes}, to_numpy, "TorchToNumpy"),
        conversion({("t.detach().numpy()", n): around(7e-7) for n in sizes[:2]}, grads, "RequiresGradToNumpy"),
        memcpy({n: around(2e-7 + n / 5e10) for n in sizes}),
        Bench("limits.Floor.timeit_floor", {"statement": ["empty statement"]}, {("empty statement",): around(4e-9)}),
        Bench(
            "casting.NumpyToFloat32.timeit_convert",
            {"route": [c["expression"] for c in casts], "dtype": ["float64", "uint8"], "nbytes": [MIB]},
            {
                (c["expression"], d, MIB): around(1e-5 * (i + 1))
                for i, c in enumerate(casts)
                for d in ("float64", "uint8")
            },
            casts,
        ),
        Bench(
            "batches.ArraysToTensor.timeit_convert",
            {"route": [c["expression"] for c in lists], "nbytes": list(sizes[1:])},
            {(c["expression"], n): around(n / 1e10 / (50 if i else 1)) for i, c in enumerate(lists) for n in sizes[1:]},
            lists,
        ),
        Bench(
            "layout.NumpyToTorch.timeit_convert",
            routes | {"layout": ["contiguous", "0-d"], "nbytes": [8, MIB]},
            {(r, "contiguous", MIB): around(1e-6) for r in routes["route"]}
            | {(r, "0-d", 8): around(9e-7) for r in routes["route"]}
            | {(r, "0-d", MIB): SKIPPED for r in routes["route"]},
            [FROM_NUMPY, TENSOR],
        ),
        Bench("cold.NumpyToTorch.timeit_convert", routes | {"nbytes": list(sizes)}, grid, [FROM_NUMPY, TENSOR]),
        Bench(
            "threads.NumpyToTorch.timeit_convert",
            {"route": ["torch.tensor(a)"], "threads": ["one", "all"], "nbytes": [MIB]},
            {("torch.tensor(a)", "one", MIB): around(2e-5), ("torch.tensor(a)", "all", MIB): around(1e-5)},
            [TENSOR],
        ),
        Bench(
            "footprint.NumpyToTorch.track_bytes",
            routes | {"nbytes": [MIB]},
            {("torch.from_numpy(a)", MIB): 0, ("torch.tensor(a)", MIB): MIB},
            unit="bytes",
        ),
        Bench(
            "footprint.NumpyToTorch.track_page_faults",
            routes | {"nbytes": [MIB]},
            {("torch.from_numpy(a)", MIB): 0.125, ("torch.tensor(a)", MIB): 256.0},
            unit="pages",
        ),
        Bench(
            "semantics.NumpyToTorch.track_alias",
            routes | {"dtype": ["float32"]},
            {("torch.from_numpy(a)", "float32"): 1, ("torch.tensor(a)", "float32"): 0},
            unit="1: shares memory",
        ),
        Bench(
            "semantics.NumpyToTorch.track_dtype",
            routes | {"dtype": ["float32"]},
            {("torch.from_numpy(a)", "float32"): 1, ("torch.tensor(a)", "float32"): 1},
            unit="place in bool float32",
        ),
        Bench("novel.Family.timeit_anything", routes | {"nbytes": list(sizes)}, grid, [FROM_NUMPY, TENSOR]),
    ]
    return resultfiles.write(tmp_path / "results", benches)


# The recommendation


def test_the_fastest_route_is_recommended(tmp_path):
    times = {("torch.from_numpy(a)", 8): around(4e-7), ("torch.as_tensor(a)", 8): around(9e-7)}
    found = only(answers_to(tmp_path, conversion(times, [AS_TENSOR, FROM_NUMPY])))
    assert found.segments[0].route == "torch.from_numpy(a)"
    assert "Slowest: `torch.as_tensor(a)`, 900 ns at 8 B, 2.25× the time" in text(found)
    assert "any size" not in text(found)


@pytest.mark.parametrize("other, same", [(1.04, True), (1.07, False)])
def test_close_medians_tie_and_the_catalogue_decides(tmp_path, other, same):
    times = {("torch.from_numpy(a)", 8): around(other * 1e-6), ("torch.as_tensor(a)", 8): around(1e-6)}
    found = only(answers_to(tmp_path, conversion(times, [FROM_NUMPY, AS_TENSOR])))
    choice = found.choices[8]
    assert choice.cell.route == ("torch.from_numpy(a)" if same else "torch.as_tensor(a)")
    assert [cell.route for cell in choice.ties] == (["torch.as_tensor(a)"] if same else [])
    assert ("Tie" in text(found)) == same


def test_overlapping_processes_tie(tmp_path):
    times = {("torch.from_numpy(a)", 8): [1.0e-6, 1.6e-6], ("torch.as_tensor(a)", 8): [0.9e-6, 1.1e-6]}
    found = only(answers_to(tmp_path, conversion(times, [FROM_NUMPY, AS_TENSOR])))
    assert found.segments[0].route == "torch.from_numpy(a)"


def test_a_crossover_is_bounded_by_measured_sizes(tmp_path):
    small, large = (8, KIB), (MIB, 16 * MIB)
    times = {("torch.tensor(a)", n): around(1e-6) for n in small} | {
        ("torch.tensor(a)", n): around(1e-3) for n in large
    }
    clone = "torch.from_numpy(a).clone()"
    times |= {(clone, n): around(2e-6) for n in small} | {(clone, n): around(5e-4) for n in large}
    found = only(answers_to(tmp_path, conversion(times, [CLONE, TENSOR])))
    assert [segment.route for segment in found.segments] == ["torch.tensor(a)", clone]
    assert "up to 1 KiB: `torch.tensor(a)`" in text(found)
    assert f"from 1 MiB on: `{clone}`" in text(found)
    assert "The crossover lies between 1 KiB and 1 MiB" in text(found)


def test_a_tie_does_not_make_a_crossover(tmp_path):
    clone = "torch.from_numpy(a).clone()"
    times = {("torch.tensor(a)", n): around(1e-6) for n in (8, KIB)}
    times |= {(clone, 8): around(1.5e-6), (clone, KIB): around(0.99e-6)}
    found = only(answers_to(tmp_path, conversion(times, [CLONE, TENSOR])))
    assert [segment.route for segment in found.segments] == ["torch.tensor(a)"]


@pytest.mark.parametrize(
    "promise",
    [
        {"hazard": "bites"},
        {"inputs": {"structured": "wrong values, silently"}},
        {"inputs": {"x": "aborts the process"}},
    ],
)
def test_a_hazardous_route_is_named_and_not_recommended(tmp_path, promise):
    risky = contract("torch.risky(a)", "alias", **promise)
    times = {("torch.risky(a)", 8): around(1e-7), ("torch.from_numpy(a)", 8): around(4e-7)}
    found = only(answers_to(tmp_path, conversion(times, [risky, FROM_NUMPY])))
    assert found.segments[0].route == "torch.from_numpy(a)"
    assert "`torch.risky(a)` is 4.00× as fast (100 ns at 8 B), but not recommended" in text(found)
    assert promise.get("hazard", "without an exception") in text(found)


def test_where_every_route_has_a_hazard_the_answer_says_so(tmp_path):
    risky = contract("torch.risky(a)", "alias", hazard="bites", needs="torch>=9.9")
    found = only(answers_to(tmp_path, conversion({("torch.risky(a)", 8): around(1e-7)}, [risky])))
    assert "`torch.risky(a)`: bites." in text(found)
    assert "`torch.risky(a)` needs torch>=9.9." in text(found)


def test_a_route_that_changes_the_dtype_is_no_candidate_but_a_warning(tmp_path):
    lists = contract("torch.tensor(a.tolist())", "copy", casts_to="python", per_element=True, hazard="by element")
    times = {("torch.tensor(a.tolist())", 8): around(1e-7), ("torch.tensor(a)", 8): around(1e-6)}
    times |= {("torch.tensor(a.tolist())", MIB): around(1e-2), ("torch.tensor(a)", MIB): around(2e-5)}
    found = only(answers_to(tmp_path, conversion(times, [TENSOR, lists])))
    assert {segment.route for segment in found.segments} == {"torch.tensor(a)"}
    assert "Slowest: `torch.tensor(a.tolist())`, 10.0 ms at 1 MiB, 500× the time: by element." in text(found)


def test_an_alias_that_casts_counts_as_a_copy(tmp_path):
    caster = contract("torch.Tensor(a)", "alias", casts_to="float32")
    times = {("torch.Tensor(a)", "float64", 8): around(1e-7), ("torch.from_numpy(a)", "float64", 8): around(1e-6)}
    found = only(answers_to(tmp_path, conversion(times, [caster, FROM_NUMPY], dtypes=("float64",))))
    assert found.segments[0].route == "torch.from_numpy(a)"


def test_one_rule_says_what_shares_memory(tmp_path):
    """A cast copies, a view of the bits does not: so say advice, broken promises, noise families and the CSV alike."""
    view = contract("t.view(torch.int16).numpy()", "alias", "torch→numpy", casts_to="int16", view=True)
    cast = contract("torch.Tensor(a)", "alias", casts_to="float32")
    wanted = {("torch.Tensor(a)", "int64"): "copy", ("torch.Tensor(a)", "float32"): "alias"}
    wanted["t.view(torch.int16).numpy()", "bfloat16"] = "alias"
    params = {"route": [view["expression"]], "dtype": ["bfloat16"], "nbytes": [8]}
    shares = [
        Bench(f"semantics.{group}.track_alias", dict(list(params.items())[:2]), cells, [promise], unit="1: shares")
        for group, params, cells, promise in (
            ("TorchToNumpy", params, {(view["expression"], "bfloat16"): 1}, view),
            (
                "NumpyToTorch",
                {"route": ["torch.Tensor(a)"], "dtype": ["int64", "float32"]},
                {("torch.Tensor(a)", "int64"): 0, ("torch.Tensor(a)", "float32"): 1},
                cast,
            ),
        )
    ]
    bits = Bench("casting.Bfloat16ToNumpy.timeit_convert", params, {(*key, 8): around(1e-6) for key in wanted}, [view])
    times = {("torch.Tensor(a)", dtype, 8): around(1e-6) for dtype in ("int64", "float32")}
    loaded = load(resultfiles.write(tmp_path, [bits, conversion(times, [cast], dtypes=("int64", "float32")), *shares]))
    assert {(cell.route, cell.dtype): cell.memory for cell in cells_of(loaded)} == wanted
    assert Semantics(loaded).broken(loaded.contracts.values()) == []
    first = loaded.processes.drop_duplicates("cell")
    noise = comparison.families(first, loaded.benchmarks)
    assert dict(zip(zip(first["route"], first["dtype"]), noise)) == wanted
    rows = csv.DictReader(io.StringIO(spreadsheet.csv_of(loaded)))
    assert {(r["route"], r["dtype"]): r["contract"] for r in rows if r["kind"] == "timed"} == wanted


def test_a_layout_that_a_route_copies_is_no_alias(tmp_path):
    route = "torch.from_numpy(a).contiguous()"
    promise = contract(route, "alias", copies=["strided"], inputs={"strided": "works", "masked": "loses it, silently"})
    wanted = {"contiguous": "alias", "strided": "copy"}
    params = {"route": [route], "layout": list(wanted), "nbytes": [MIB]}
    cells = {(route, layout, MIB): around(1e-6) for layout in wanted}
    loaded = load(resultfiles.write(tmp_path, [Bench("layout.NumpyToTorch.timeit_convert", params, cells, [promise])]))
    assert {cell.layout: cell.memory for cell in cells_of(loaded)} == wanted
    first = loaded.processes.drop_duplicates("cell")
    assert dict(zip(first["layout"], comparison.families(first, loaded.benchmarks))) == wanted
    rows = csv.DictReader(io.StringIO(spreadsheet.csv_of(loaded)))
    assert {row["layout"]: row["contract"] for row in rows if row["kind"] == "timed"} == wanted
    (table,) = tables.contracts(loaded, Semantics(loaded), list(loaded.contracts))
    assert table.rows[0][1] == "alias; copy of strided"
    assert [show.to_plain(line) for line in table.rows[0][5]] == ["loses it, silently: masked", "works: strided"]


@pytest.mark.parametrize("last, same", [(1.2, True), (1.3, False)])
def test_any_size_only_where_the_seconds_are_the_same(tmp_path, last, same):
    times = {("torch.from_numpy(a)", n): around(t * 1e-6) for n, t in ((8, 1.0), (KIB, 1.1), (MIB, last))}
    found = only(answers_to(tmp_path, conversion(times, [FROM_NUMPY])))
    assert ("at any size from 8 B to 1 MiB" in text(found)) == same


def test_dtypes_with_one_recommendation_share_an_answer(rich_results):
    found = {title(answer.need): answer for answer in answers.answers(cells_of(load(rich_results)))}
    cast = found["float64 and uint8 NumPy array to float32 tensor"]
    assert "10.0 µs from float64, 10.0 µs from uint8 at 1 MiB" in text(cast)


# The page


class Reader(HTMLParser):
    """Collects ids, references, the names of elements, and checks that elements close in order."""

    VOID = {"meta", "br", "wbr", "link", "img", "hr"}

    def __init__(self, page):
        super().__init__()
        self.ids, self.references, self.open, self.names, self.labelled = [], [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.names.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        self.references += [found[name] for name in ("src", "href", "xlink:href", "srcset", "data") if name in found]
        if tag == "svg":
            self.labelled.append((found.get("role"), found.get("aria-labelledby", "").split()))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes what is not open"


@pytest.fixture
def page(rich_results, tmp_path):
    return build(rich_results, tmp_path / "out")


@pytest.fixture
def read(page):
    return Reader((page / "index.html").read_text())


def test_every_section_is_there(page):
    html = (page / "index.html").read_text()
    found = re.findall(r'<section id="([^"]+)">', html)
    assert found == [
        *("decision", "size", "efficiency", "dtype", "casting", "layout", "batches", "grad", "cold", "threads"),
        *("novel", "footprint", "contracts", "questions", "method", "data"),
    ]
    assert re.findall(r"^## (.*)$", (page / "README.md").read_text(), re.MULTILINE)[0] == "Answers"


def test_the_page_loads_nothing(page, read):
    assert read.open == []
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(read.names)
    for reference in read.references:
        assert reference.startswith("#") or (page / reference).is_file(), reference
    html = (page / "index.html").read_text()
    assert not re.search(r"@import|url\((?!#)", html)


def test_ids_are_unique_and_references_lead_somewhere(read):
    assert len(read.ids) == len(set(read.ids))
    assert {reference[1:] for reference in read.references if reference.startswith("#")} <= set(read.ids)


def test_every_figure_has_title_description_file_and_table(page, read):
    html = (page / "index.html").read_text()
    assert len(read.labelled) == html.count("<figure>") == 6
    for role, labels in read.labelled:
        assert role == "img" and len(labels) == 2 and set(labels) <= set(read.ids)
    for figure in re.findall(r"<figure>.*?</figure>", html, re.DOTALL):
        assert re.search(r"<title [^>]*>[^<]+</title>\s*<desc [^>]*>[^<]+</desc>", figure)
        assert "<table" in figure and "python scripts/run.py" in figure and "SHA-256" in figure
        name = re.search(r'href="([\w-]+\.svg)"', figure)[1]
        assert (page / name).read_text().startswith("<?xml")


def test_colours_of_the_page_follow_the_scheme(page):
    svg = "".join(re.findall(r"<svg.*?</svg>", (page / "index.html").read_text(), re.DOTALL))
    bare = re.sub(r"var\([^)]*\)", "", svg)
    assert not re.search(r"#[0-9a-f]{6}\b", bare)
    assert "#ffffff" in next(page.glob("time-*.svg")).read_text()


def test_the_same_results_give_the_same_bytes(rich_results, tmp_path):
    first, second = build(rich_results, tmp_path / "one"), build(rich_results, tmp_path / "two")
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_the_csv_holds_every_process_and_count(rich_results, page):
    loaded = load(rich_results)
    rows = list(csv.DictReader((page / "results.csv").open(encoding="utf-8")))
    timed = [row for row in rows if row["kind"] == "timed"]
    figures = sorted(float(row["seconds"]) for row in timed)
    assert figures == pytest.approx(sorted(loaded.processes["seconds"]), rel=1e-6)
    assert [row["kind"] for row in rows].count("counted") == len(loaded.values) == 8
    assert [row["kind"] for row in rows].count("failed") == 1
    assert [(row["kind"], row["note"]) for row in rows].count(("skipped", "the reason")) == 2
    assert timed[0]["contract"] == "alias"
    about = {row["benchmark"]: row["note"] for row in rows if row["kind"] == "about"}
    assert (about["machine"], about["toolchain"]) == ("box", "torch-2.0-numpy-1.26")
    of_benchmarks = {row["benchmark"]: row["note"] for row in rows if row["kind"] == "benchmark"}
    assert of_benchmarks["conversion.NumpyToTorch.timeit_convert"] == "numpy→torch; version v1"
    assert {row["benchmark"] for row in timed} <= set(of_benchmarks)
    digest = hashlib.sha256((page / "results.csv").read_bytes()).hexdigest()
    assert digest in (page / "index.html").read_text() and digest in (page / "README.md").read_text()
    documented = [name for names in spreadsheet.COLUMNS for name in names]
    assert set(rows[0]) == set(documented)


def test_a_full_profile_makes_a_csv_below_two_megabytes(tmp_path):
    routes = [contract(f"torch.from_numpy(a).way{i:02}()", "copy") for i in range(50)]  # as long as real ones
    dtypes = ("float32", "float64", "complex128", "bfloat16", "uint8", "int64", "float16", "bool", "int8", "int16")
    seconds = [1.234567891e-5, 1.3456789123e-5, 1.4567891234e-5, 1.5678912345e-5]
    sizes = [2**i for i in range(20, 27)]
    times = {(one["expression"], dtype, n): seconds for one in routes for dtype in dtypes for n in sizes}
    loaded = load(resultfiles.write(tmp_path, [conversion(times, routes, dtypes=dtypes)]))
    assert len(loaded.processes) == 14_000
    assert len(spreadsheet.csv_of(loaded).encode()) < 2e6


def test_figures_of_benchmarks_that_are_no_more_are_counted_and_named(rich_results, tmp_path):
    path = rich_results / "benchmarks.json"
    described = json.loads(path.read_text())
    del described["novel.Family.timeit_anything"]
    path.write_text(json.dumps(described))
    made = build(rich_results, tmp_path / "out")
    said = "6 figures are not shown, of benchmarks that benchmarks.json does not describe any more: "
    assert f"{said}<code>novel.Family.timeit_anything</code>." in (made / "index.html").read_text()


def test_questions_are_answered_as_far_as_the_cpu_goes(page):
    markdown = (page / "README.md").read_text()
    assert "`torch.from_numpy(a)` shares memory (measured: alias), 400 ns at 16 MiB." in markdown
    assert "3, 7, 8, 9, 10 and 11: about accelerators | not measured here: needs the transfers profile." in markdown


def test_failed_and_skipped_cells_are_counted_and_named(page):
    for name in ("index.html", "README.md"):
        said = (page / name).read_text()
        assert "1 failed, 2 skipped" in said
        assert "the reason" in said
        assert "conversion.NumpyToTorch.timeit_convert" in said
    assert "1 cell failed, in" in (page / "index.html").read_text()


def test_markdown_links_and_tables_hold_together(page):
    markdown = (page / "README.md").read_text()
    for target in re.findall(r"\]\(([^)]+)\)", markdown):
        assert (page / target).is_file(), target
    for block in re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block
        assert re.fullmatch(r"\|( -+:? \|| -+ \|)+", block.splitlines()[1])


def test_a_measured_break_of_a_contract_is_said(tmp_path, rich_results):
    loaded = load(rich_results)
    values = loaded.values
    values.loc[(values["method"] == "track_alias") & (values["route"] == "torch.tensor(a)"), "value"] = 1
    broken = tables.broken(Semantics(loaded), loaded.contracts.values())
    assert [show.to_plain(line) for line in broken] == [
        "`torch.tensor(a)` shares memory for float32; its contract says copy."
    ]


def test_a_new_route_shows_up_everywhere(tmp_path):
    new = contract("torch.brand_new(a)", "alias")
    times = {("torch.brand_new(a)", n): around(1e-7) for n in (8, KIB)}
    times |= {("torch.from_numpy(a)", n): around(4e-7) for n in (8, KIB)}
    made = build(resultfiles.write(tmp_path / "r", [conversion(times, [FROM_NUMPY, new])]), tmp_path / "out")
    for name in ("index.html", "README.md", "results.csv", "time-numpy-to-torch-alias.svg"):
        assert "torch.brand_new(a)" in (made / name).read_text().replace("<wbr>", ""), name


def test_names_are_escaped(tmp_path):
    nasty = "f(a, '<script>alert(1)</script>') & `x` | y $z$"
    promise = contract(nasty, "alias", hazard="<b>bold</b> | bar")
    bench = conversion({(nasty, n): around(1e-6) for n in (8, KIB)}, [promise])
    lines = [resultfiles.record([bench], command="run <i>", machine="box")]
    made = build(resultfiles.write(tmp_path / "r", [bench], records=lines), tmp_path / "out")
    html = (made / "index.html").read_text()
    assert "<script" not in html and "<b>bold" not in html and "<i>" not in html
    assert Reader(html).open == []
    assert "<b>bold" not in (made / "README.md").read_text()


def test_sections_without_figures_are_left_out(tmp_path):
    promises = [contract("torch.tensor(arrays)", "copy")]
    params = {"route": ["torch.tensor(arrays)"], "nbytes": [MIB]}
    bench = Bench("batches.ArraysToTensor.timeit_convert", params, {("torch.tensor(arrays)", MIB): [1e-3]}, promises)
    html = (build(resultfiles.write(tmp_path / "r", [bench]), tmp_path / "out") / "index.html").read_text()
    assert re.findall(r'<section id="([^"]+)">', html) == ["batches", "contracts", "questions", "method", "data"]
    assert "<figure>" not in html


def test_only_counted_values(tmp_path):
    alias = Bench(
        "semantics.NumpyToTorch.track_alias",
        {"route": ["torch.from_numpy(a)"], "dtype": ["float32"]},
        {("torch.from_numpy(a)", "float32"): 1},
        [FROM_NUMPY],
        unit="1: shares memory",
    )
    made = build(resultfiles.write(tmp_path / "r", [alias]), tmp_path / "out")
    assert "answer none of the decisions" in (made / "index.html").read_text()


def test_every_cell_failed(tmp_path):
    bench = conversion({("torch.tensor(a)", 8): None}, [TENSOR])
    html = (build(resultfiles.write(tmp_path / "r", [bench]), tmp_path / "out") / "index.html").read_text()
    assert "1 failed, 0 skipped" in html


def test_asv_run_by_hand(tmp_path):
    bench = conversion({("torch.tensor(a)", n): [1e-6] for n in (8, KIB)}, [TENSOR])
    html = (build(resultfiles.write(tmp_path / "r", [bench], records=[]), tmp_path / "out") / "index.html").read_text()
    assert "asv was run by hand" in html and "c0ffee00" in html


def test_old_figures_are_removed_and_other_files_kept(rich_results, tmp_path):
    out = tmp_path / "out" / "box"
    out.mkdir(parents=True)
    (out / "time-old.svg").write_text("old")
    (out / "notes.txt").write_text("mine")
    build(rich_results, tmp_path / "out")
    assert not (out / "time-old.svg").exists()
    assert (out / "notes.txt").read_text() == "mine"


def test_the_latest_run_is_shown_and_the_others_are_named(tmp_path):
    bench = conversion({("torch.tensor(a)", 8): [1e-6]}, [TENSOR])
    older = resultfiles.record([bench], started="2020-01-01T00:00:00+00:00", toolchain={"tag": "old", "torch": "1"})
    older["toolchain"]["numpy"] = "1"
    root = resultfiles.write(tmp_path / "r", [bench], commit="f" * 40, records=[older])
    resultfiles.write(root, [bench])
    html = (build(root, tmp_path / "out") / "index.html").read_text()
    assert "There are results of old, too." in html and "2026-01-02" in html


# The command


def test_terminal_says_the_answers_and_where_the_page_is(rich_results, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build(rich_results, tmp_path / "out")
    said = capsys.readouterr().out
    assert "torch.from_numpy(a), 400 ns at any size from 8 B to 16 MiB" in said
    assert said.splitlines()[-1] == str(Path("out", "box", "index.html"))


def test_terminal_without_rich(rich_results, tmp_path, capsys, monkeypatch):
    build(rich_results, tmp_path / "out")
    pretty = capsys.readouterr().out
    real = builtins.__import__

    def without_rich(name, *arguments, **keywords):
        if name.split(".")[0] == "rich":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    build(rich_results, tmp_path / "out")
    assert capsys.readouterr().out == pretty


def test_every_machine_gets_its_page(tmp_path):
    bench = conversion({("torch.tensor(a)", 8): [1e-6]}, [TENSOR])
    for machine in ("one", "two"):
        resultfiles.write(tmp_path / "r", [bench], machine=machine)
    assert report.main(["--results", str(tmp_path / "r"), "--output", str(tmp_path / "out")]) == 0
    assert sorted(path.parent.name for path in (tmp_path / "out").glob("*/index.html")) == ["one", "two"]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--machine", "nowhere"], "no results of nowhere; it knows box"),
        (["--machine", "../../etc"], "use letters, digits"),
        (["--machine", "history"], "reports/history is taken"),
        (["--results", "absent"], "absent: no such directory"),
        (["--results", "empty"], "empty holds no results"),
        (["--output", "blocked"], "cannot write"),
        (["--unknown"], "unrecognized arguments"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(rich_results, tmp_path, arguments, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "blocked").write_text("a file")
    given = ["--results", str(rich_results), "--output", "out", *arguments]
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "report.py", *given], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and said in done.stderr


def test_broken_results_are_one_line(rich_results, tmp_path):
    path = next((rich_results / "box").glob("*-toolchain-*.json"))
    path.write_text(path.read_text()[:100])
    with pytest.raises(UserError, match="is broken"):
        build(rich_results, tmp_path / "out")


def test_a_report_imports_neither_torch_nor_the_benchmarks(rich_results, tmp_path):
    code = (
        "import sys, report; report.main(sys.argv[1:]);"
        "sys.exit(bool({'torch', 'benchmarks', 'asv', 'asv_runner'} & {name.split('.')[0] for name in sys.modules}))"
    )
    command = [sys.executable, "-c", code, "--results", rich_results, "--output", tmp_path / "out"]
    assert subprocess.run(command, cwd=ROOT / "scripts", capture_output=True).returncode == 0


# Pieces


def test_labels_keep_their_distance_and_their_order():
    places = figures.spaced([0.5, 0.5, 0.51, 0.9, 0.99], 0.1, 0.0, 1.0)
    assert all(b - a >= 0.1 - 1e-9 for a, b in zip(places, places[1:]))
    assert places[0] >= 0 and places[-1] <= 1.0 + 1e-9
    assert figures.spaced([0.2, 0.8], 0.1, 0.0, 1.0) == pytest.approx([0.2, 0.8])


@pytest.mark.parametrize(
    "value, shown",
    [(3.91e-7, "391 ns"), (9.996e-7, "1.00 µs"), (0.01234, "12.3 ms"), (4e-10, "0.40 ns"), (12.0, "12.0 s")],
)
def test_seconds_are_shown_with_a_prefix(value, shown):
    assert show.seconds(value) == shown


@pytest.mark.parametrize("value, shown", [(8, "8 B"), (4096, "4 KiB"), (2**28, "256 MiB"), (1536, "1.5 KiB")])
def test_sizes_are_powers_of_two(value, shown):
    assert show.size(value) == shown


@pytest.mark.parametrize("value, shown", [(1.234, "1.23×"), (41.2, "41×"), (526.3, "526×"), (1188.0, "1,190×")])
def test_ratios_have_two_or_three_digits(value, shown):
    assert show.ratio(value) == shown


def test_two_toolchains_are_compared(tmp_path):
    """A route that became twice as slow, among others that did not, is named under a heading of its own."""
    routes = [contract(f"route_{number}(a)", "alias") for number in range(12)]

    def run_of(factor, tag, commit, started):
        times = {(r["expression"], 8): [1e-6 * (1 + 0.004 * p) for p in (0, 1, 2, 3)] for r in routes}
        times["route_3(a)", 8] = [seconds * factor for seconds in times["route_3(a)", 8]]
        benches = [conversion(times, routes)]
        made = {"tag": tag, "torch": tag.split("-")[1], "numpy": "1.26"}
        resultfiles.write(
            tmp_path / "results",
            benches,
            records=[resultfiles.record(benches, toolchain=made, started=started)],
            commit=commit,
        )

    run_of(1.0, "torch-2.0-numpy-1.26", "a" * 40, "2026-01-01T00:00:00+00:00")
    run_of(2.0, "torch-2.1-numpy-1.26", "b" * 40, "2026-01-02T00:00:00+00:00")
    text = (build(tmp_path / "results", tmp_path / "out") / "README.md").read_text(encoding="utf-8")
    section = text.split("Against the run before", 2)[-1].split("\n## ")[0]
    assert "torch-2.0-numpy-1.26" in section and "torch-2.1-numpy-1.26" in section
    assert re.search(r"1 slower of 12 cells", section)
    assert "route\\_3" in section or "route_3(a)" in section


# A busy machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "slow", "says"),
    [
        (0.23, 1, "The machine was busy: it ran at full speed 23 % of the time."),
        (0.23, 0, "Every figure rests on samples that were taken then."),
        (0.95, 1, "The machine was calm for the most part: it ran at full speed 95 % of the time."),
        (0.95, 0, ""),
    ],
)
def test_page_and_terminal_say_how_calm_the_machine_was(tmp_path, capsys, share, slow, says):
    sizes = [2**k for k in range(3, 13)]
    times = {("torch.from_numpy(a)", n): [4e-7 * (1 + slow * (n == 8))] * 4 for n in sizes}
    bench = conversion(times, [FROM_NUMPY])
    records = [resultfiles.record([bench], calm=share, rounds=4)]
    root = resultfiles.write(tmp_path / "results", [bench], records=records)
    never = {(("torch.from_numpy(a)", "float32", 8), k) for k in range(4)} if slow else ()
    resultfiles.watched(root, bench, never)
    made = build(root, tmp_path / "out")
    page, told = (made / "README.md").read_text(encoding="utf-8"), capsys.readouterr().out
    assert f"at full speed {share:.0%} of the time".replace("%", " %") in page and says in page and says in told
    if says:
        assert page.index(says) < page.index("torch.from_numpy(a)"), "before the answers"
        assert told.index(says) < told.index("torch.from_numpy(a)")
    else:
        assert "The machine was" not in page + told
    marked = "1 of 10 cells never had any: they are marked ~, and nothing is decided by them."
    assert (marked in page) == (marked in told) == bool(slow)
    assert ("800 ns ~" in page) == bool(slow)


@pytest.mark.parametrize("name", ["results.csv", "README.md", "index.html"])
def test_a_page_is_whole_or_as_it_was(tmp_path, monkeypatch, name):
    """Stopped while one of its files is written: all are the old ones, and what else lay there stays."""
    results = resultfiles.write(tmp_path / "r", [conversion({("torch.from_numpy(a)", 8): around(1e-6)}, [FROM_NUMPY])])
    page = build(results, tmp_path / "out")
    (page / "mine.txt").write_text("mine")
    (page / "gone.svg").write_text("of an older page")
    before = {path.name: path.read_bytes() for path in page.iterdir()}
    write_bytes = Path.write_bytes

    def stopped(self, data):
        write_bytes(self, data[:10] if self.name == name else data)
        if self.name == name:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "write_bytes", stopped)
        build(results, tmp_path / "out")
    assert {path.name: path.read_bytes() for path in page.iterdir()} == before
    assert [path.name for path in page.parent.iterdir()] == [page.name]
    build(results, tmp_path / "out")
    assert {path.name for path in page.iterdir()} == {*before} - {"gone.svg"}


def test_a_page_names_the_runs_that_it_shows(tmp_path):
    """A quick look at some of the cells that a whole run had measured."""
    old, new = "2026-01-02T03:04:05+00:00", "2026-02-03T04:05:06+00:00"
    sizes = [2**k for k in range(3, 23)]
    looked = sizes[:5]
    cells = {("torch.from_numpy(a)", n): [1e-6] * (1 if n in looked else 4) for n in sizes}
    bench = conversion(cells, [FROM_NUMPY])
    records = [
        resultfiles.record([bench], command="python scripts/run.py --profile standard", started=old),
        resultfiles.record([bench], command="python scripts/run.py --rounds 1", started=new),
    ]
    root = resultfiles.write(tmp_path / "r", [bench], records=records)
    path = resultfiles.watched(root, bench, run=old)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if int(line["params"][-1]) in looked:
            line["run"] = new
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = load(root)
    told = [show.to_plain(line) for line in report.of_runs(made)]
    assert told == [
        "15 of 20 timed cells are of the run of 2026-01-02 03:04: `python scripts/run.py --profile standard`.",
        "A quick look in 5 of 20 cells: 1 process a cell, too few for an interval or a verdict. The ranges are those "
        "of the processes, not confidence intervals.",
    ]
    page = build(root, tmp_path / "out")
    assert "15 of 20 timed cells are of the run of 2026-01-02" in (page / "README.md").read_text()
    rows = list(csv.DictReader(io.StringIO((page / "results.csv").read_text())))
    assert [sum(row["run"] == run for row in rows) for run in (old, new)] == [60, 5]
    whole = [conversion(dict.fromkeys(cells, [1e-6] * 4), [FROM_NUMPY])]
    assert report.of_runs(load(resultfiles.write(tmp_path / "one", whole))) == []
