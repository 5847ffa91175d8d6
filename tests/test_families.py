"""A family on a page: where it stands, and how its parameters are laid out."""

import json

import pytest
import resultfiles
from analysis.cells import cells_of
from analysis.results import load
from cli import UserError
from pages import families, show, tables
from resultfiles import ABSENT, around, contract, conversion, every
from test_report_transfers import lines_of

pytest.importorskip("torch")


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
