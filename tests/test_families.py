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
from pages import families, show, tables
from resultfiles import ABSENT, around, contract, conversion, every
from test_report_transfers import lines_of

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


def sections(tmp_path, *benches, on_device=False):
    """The sections of a page of these benchmarks."""
    results = load(resultfiles.write(tmp_path, benches))
    return families.sections(results, cells_of(results), tables.Missing(results), on_device)


NAME = "novel.Family.timeit_anything"
# None of what was measured is lost: what has no route has rows, and what is neither down nor across has tables.
# What a family declares, its parameters, and the seconds of a cell
LAID = {
    "a parameter without a place makes a table each": (
        {"drawn": False},
        {"route": ["f(a)", "g(a)"], "workers": [1, 4], "nbytes": [8, 64]},
        lambda route, workers, n: 1e-6 * workers + n * 1e-9,
    ),
    "no route": ({"across": "depth"}, {"workers": [1, 4], "depth": [2, 3]}, lambda w, d: 1e-6 * w * d),
    "a cell that is beside stands beside": (
        {"across": "threads", "beside": {"threads": "one", "called": "alone"}},
        {"route": ["f(a)"], "threads": ["one", "all"]},
        lambda route, threads: 2e-6 if threads == "one" else 1e-6,
    ),
    "a cell with nothing to stand beside has its own place": (
        {"beside": {"form": "plain", "called": "plain"}},
        {"form": ["plain", "pinned"]},
        lambda form: 2e-6 if form == "plain" else ABSENT,
    ),
}


@pytest.mark.parametrize("what", LAID)
def test_how_a_family_is_laid_out(tmp_path, snapshot, what):
    declared, params, seconds = LAID[what]
    (section,) = sections(tmp_path, every(NAME, seconds, declared=declared, **params))
    assert [show.to_plain(line) for line in lines_of(section)] == snapshot


def test_families_of_an_accelerator_have_a_place_of_their_own(tmp_path):
    bench = every(NAME, lambda _: 1e-6, declared={"needs_device": True}, nbytes=[8])
    found = [sections(tmp_path, bench, on_device=place) for place in (False, True)]
    assert [[section.title for section in own] for own in found] == [[], ["Novel"]]


def test_two_cells_in_one_place_are_an_error():
    """One of them would be lost in silence."""
    marks = [tables.Mark({"route": "f(a)", "nbytes": 8, "depth": depth}, ["1 µs"]) for depth in (1, 2)]
    with pytest.raises(ValueError, match="title"):
        tables.laid("title", "novel.Family.timeit_anything", marks, "nbytes", None, str, "route")


def test_a_parameter_cannot_be_called_as_a_column_is(tmp_path):
    with pytest.raises(UserError, match="process"):
        load(resultfiles.write(tmp_path, [every(NAME, lambda _: 1e-6, process=[1])]))


def test_roles_are_known_on_both_sides():
    """A role that no report knows would hide its family's figures; one that no family has is dead."""
    from benchmarks.contracts import Role

    described = json.loads((resultfiles.ROOT / "reports/results/benchmarks.json").read_text(encoding="utf-8"))
    declared = {made["role"] for made in described.values() if isinstance(made, dict)} - {""}
    ours = {value for name, value in vars(Role).items() if name.isupper() and isinstance(value, str)}
    assert declared == ours


def test_a_family_keeps_its_place(tmp_path):
    promise = contract("f(a)", "copy")
    warm = conversion({("f(a)", n): around(1e-6) for n in (8, 64)}, [promise])
    other = every(NAME, lambda _: 1e-6, declared={"place": 1}, nbytes=[8])
    cold = every("cold.NumpyToTorch.timeit_convert", lambda *_: 1e-6, [promise], nbytes=[8])
    found = sections(tmp_path, warm, cold, other)
    assert [section.title for section in found if section] == ["Novel", "Source not in the caches"]
