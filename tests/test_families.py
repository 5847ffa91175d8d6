"""A new family is one file in benchmarks/: what it declares, and whatever its parameters, shows up everywhere."""

import csv
import json
import re

import pytest
import resultfiles
from analysis.cells import cells_of
from analysis.results import load
from cli import UserError
from conftest import Checkout
from pages import families, tables
from resultfiles import Bench, around, contract, conversion

pytest.importorskip("torch")

BACK = '''\
"""What does it cost to take a tensor back from a queue?

A paragraph that is nobody's question.
"""

import queue

import torch as _torch

section = "Through a queue"
about = "By one thread."


class Queue:
    title = "a tensor, put and taken"
    param_names = ("depth", "nbytes")
    params = ([1, 16], [8, 4096])

    def setup(self, depth, nbytes):
        self.names = {"q": queue.Queue(), "t": _torch.zeros(nbytes // 4), "depth": depth}

    def timeit_through(self, depth, nbytes):
        return "for _ in range(depth): q.put(t)\\nfor _ in range(depth): q.get()", self.names, depth

    def track_references(self, depth, nbytes):
        return 3 * depth

    track_references.unit = "references"
'''


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A checkout with one file more in benchmarks/, measured by plain asv, and its page."""
    checkout = Checkout(tmp_path_factory.mktemp("family"))
    (checkout.root / "benchmarks" / "back.py").write_text(BACK, encoding="utf-8")
    ran = checkout.bench("^back", rounds=1)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = checkout.run("scripts/report.py")
    assert told.returncode == 0, told.stderr
    (page,) = (checkout.root / "reports").glob("*/README.md")
    return page.parent


@pytest.mark.slow
def test_a_family_with_a_new_parameter_is_on_page_table_and_csv(built):
    text = (built / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## Through a queue") :].split("\n## ")[0]
    heads, counted = (re.findall(rf"^\| {first} \| (.+) \| $", section, re.MULTILINE) for first in ("depth", "16"))
    assert heads == ["8 B | 4 KiB"] * 2 and counted[1:] == ["48 references | 48 references"]
    (drawn,) = built.glob("time-back-*.svg")
    assert "1 depth" in drawn.read_text(encoding="utf-8")
    html = (built / "index.html").read_text(encoding="utf-8")
    assert 'id="through-a-queue"' in html and "48 references" in html
    rows = list(csv.DictReader((built / "results.csv").open(encoding="utf-8")))
    assert {row["depth"] for row in rows if row["seconds"]} == {"1", "16"}
    assert {(row["depth"], row["value"]) for row in rows if row["unit"]} >= {("1", "3"), ("16", "48")}


def family(tmp_path, params, cells, **declared):
    """The sections of a page of one made-up family."""
    bench = Bench("novel.Family.timeit_anything", params, cells, declared=declared)
    results = load(resultfiles.write(tmp_path, [bench]))
    return families.sections(results, cells_of(results), tables.Missing(results))


def test_a_parameter_without_a_place_makes_a_table_each(tmp_path):
    """None is lost: routes down, sizes across, and a table for every value of what is neither."""
    params = {"route": ["f(a)", "g(a)"], "workers": [1, 4], "nbytes": [8, 64]}
    cells = {(r, w, n): around(1e-6 * w + n * 1e-9) for r in params["route"] for w in (1, 4) for n in (8, 64)}
    (section,) = family(tmp_path, params, cells, drawn=False)
    assert [table.title for table in section.tables] == [
        "Family, anything, 1 worker, by size",
        "Family, anything, 4 workers, by size",
    ]
    assert [table.columns for table in section.tables] == [("route", "8 B", "64 B")] * 2
    assert section.tables[1].rows[0][1] == "4.01 µs"


def test_what_has_no_route_has_rows_all_the_same(tmp_path):
    params = {"workers": [1, 4], "depth": [2, 3]}
    cells = {(w, d): around(1e-6 * w * d) for w in (1, 4) for d in (2, 3)}
    (section,) = family(tmp_path, params, cells, across="depth")
    (table,) = section.tables
    assert table.columns == ("workers", "2", "3") and [row[0] for row in table.rows] == ["1", "4"]
    assert table.rows[1][2] == "12.0 µs"


def test_a_cell_that_is_beside_stands_beside(tmp_path):
    params = {"route": ["f(a)"], "threads": ["one", "all"]}
    cells = {("f(a)", "one"): around(2e-6), ("f(a)", "all"): around(1e-6)}
    beside = {"threads": "one", "called": "alone"}
    (section,) = family(tmp_path, params, cells, across="threads", beside=beside)
    assert section.tables[0].rows == (
        ("\x0ef(a)\x0f", ["1.00 µs", "999 ns to 1.00 µs", "alone 2.00 µs: 0.500× as long"]),
    )


def test_a_cell_with_nothing_to_stand_beside_has_its_own_place(tmp_path):
    params, cells = {"form": ["plain", "pinned"]}, {("plain",): around(2e-6)}
    (section,) = family(tmp_path, params, cells, beside={"form": "plain", "called": "plain"})
    assert section.tables[0].columns == ("", "plain") and section.tables[0].rows == (("all", "2.00 µs"),)


def test_families_of_an_accelerator_have_a_place_of_their_own(tmp_path):
    bench = Bench(
        "novel.Family.timeit_anything", {"nbytes": [8]}, {(8,): around(1e-6)}, declared={"needs_device": True}
    )
    results = load(resultfiles.write(tmp_path, [bench]))
    found = [families.sections(results, cells_of(results), tables.Missing(results), place) for place in (False, True)]
    assert [[section.title for section in own] for own in found] == [[], ["Novel"]]


def test_two_cells_in_one_place_are_an_error():
    """One of them would be lost in silence."""
    marks = [tables.Mark({"route": "f(a)", "nbytes": 8, "depth": depth}, ["1 µs"]) for depth in (1, 2)]
    with pytest.raises(ValueError, match="title"):
        tables.laid("title", "novel.Family.timeit_anything", marks, "nbytes", None, str, "route")


def test_a_parameter_cannot_be_called_as_a_column_is(tmp_path):
    bench = Bench("novel.Family.timeit_anything", {"seconds": [1]}, {(1,): around(1e-6)})
    with pytest.raises(UserError, match="seconds"):
        load(resultfiles.write(tmp_path, [bench]))


def test_roles_are_known_on_both_sides():
    """A role that no report knows would hide its family's figures; one that no family has is dead."""
    from benchmarks.contracts import Role

    described = json.loads((resultfiles.ROOT / "reports/results/benchmarks.json").read_text(encoding="utf-8"))
    declared = {made["role"] for made in described.values() if isinstance(made, dict)} - {""}
    ours = {value for name, value in vars(Role).items() if name.isupper() and isinstance(value, str)}
    assert declared == ours


def test_a_family_keeps_its_place(tmp_path):
    warm = conversion({("f(a)", n): around(1e-6) for n in (8, 64)}, [contract("f(a)", "copy")])
    other = Bench("novel.Family.timeit_anything", {"nbytes": [8]}, {(8,): around(1e-6)}, declared={"place": 1})
    cold = Bench("cold.NumpyToTorch.timeit_convert", {"route": ["f(a)"], "nbytes": [8]}, {("f(a)", 8): around(1e-6)})
    results = load(resultfiles.write(tmp_path, [warm, cold, other]))
    found = families.sections(results, cells_of(results), tables.Missing(results))
    assert [section.title for section in found if section] == ["Novel", "Source not in the caches"]
