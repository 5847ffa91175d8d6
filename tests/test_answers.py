"""What is recommended: the fastest safe route, ties, hazards, and what shares memory."""

import csv
import io
import re

import pytest
import resultfiles
from analysis.case import BEST, TIE
from analysis.cells import cells_of
from analysis.choices import asked, choices
from analysis.declared import noise_of_cells
from analysis.findings import Semantics
from analysis.results import load
from pages import show, spreadsheet, tables
from pages.advice import advice, conditions, title
from pages.case import unusual
from resultfiles import AS_TENSOR, CLONE, FROM_NUMPY, KIB, MIB, TENSOR, Bench, around, contract, conversion, memcpy

from benchmarks import contracts, timing


def answers_to(tmp_path, *benches):
    return asked(choices(cells_of(load(resultfiles.write(tmp_path, benches)))), contracts.ONE_THREAD)


def only(found):
    assert len(found) == 1
    return found[0]


def routes_of(rows):
    """The route of each part of an answer."""
    return list(rows[rows["kind"] == BEST].drop_duplicates("part")["route"])


def kinds(rows, kind):
    return list(rows["route"][rows["kind"] == kind])


def text(answer):
    boxes = filter(None, (advice(answer), conditions([answer])))
    return "\n".join(show.to_plain(line) for box in boxes for line in (*box.said, *box.notes))


@pytest.mark.parametrize("other, tied", [(1.2, True), (1.3, False)])
def test_one_process_each_decides_what_is_far_apart(tmp_path, other, tied):
    times = {("torch.from_numpy(a)", 8): [1e-6], ("torch.as_tensor(a)", 8): [other * 1e-6]}
    found = only(answers_to(tmp_path, conversion(times, [FROM_NUMPY, AS_TENSOR])))
    assert [take.tied for take in advice(found).takes] == [tied]


@pytest.mark.parametrize("slowest, said", [(1.4, "1.00 µs at 8 B"), (1.6, "1.00 µs (1.00 to 1.60 µs) at 8 B")])
def test_processes_that_are_far_apart_give_a_range(tmp_path, slowest, said):
    times = {("torch.from_numpy(a)", 8): [1e-6, 1e-6, slowest * 1e-6]}
    (take,) = advice(only(answers_to(tmp_path, conversion(times, [FROM_NUMPY])))).takes
    assert take.cost == said


def test_the_fastest_route_is_recommended(tmp_path):
    times = {("torch.from_numpy(a)", 8): around(4e-7), ("torch.as_tensor(a)", 8): around(9e-7)}
    found = only(answers_to(tmp_path, conversion(times, [AS_TENSOR, FROM_NUMPY])))
    assert routes_of(found)[0] == "torch.from_numpy(a)"
    assert "Slowest: `torch.as_tensor(a)` takes 2.25× as long, 900 ns at 8 B." in text(found)
    assert "any size" not in text(found)


@pytest.mark.parametrize("other, same", [(1.04, True), (1.07, False)])
def test_close_medians_tie_and_the_fastest_is_named(tmp_path, other, same):
    times = {("torch.from_numpy(a)", 8): around(other * 1e-6), ("torch.as_tensor(a)", 8): around(1e-6)}
    found = only(answers_to(tmp_path, conversion(times, [FROM_NUMPY, AS_TENSOR])))
    assert kinds(found, BEST) == ["torch.as_tensor(a)"]
    assert kinds(found, TIE) == (["torch.from_numpy(a)"] if same else []) and advice(found).takes[0].tied == same
    assert ("No significant difference: `torch.from_numpy(a)`." in text(found)) == same


def test_overlapping_processes_tie(tmp_path):
    times = {("torch.from_numpy(a)", 8): [1.0e-6, 1.6e-6], ("torch.as_tensor(a)", 8): [0.9e-6, 1.1e-6]}
    found = only(answers_to(tmp_path, conversion(times, [FROM_NUMPY, AS_TENSOR])))
    assert routes_of(found)[0] == "torch.as_tensor(a)" and "No significant difference" in text(found)


@pytest.mark.parametrize(("behind", "parts"), [(1.08, 1), (1.13, 2)])
def test_sizes_share_a_route_that_is_hardly_behind_at_each(tmp_path, behind, parts):
    """Neither is decided to be slower at 1 MiB, where processes differ by a third."""
    clone, noise = "torch.from_numpy(a).clone()", (0.8, 0.95, 1.05, 1.3)
    times = {(route, n): around(t) for n in (8, KIB) for route, t in ((clone, 1e-6), ("torch.tensor(a)", 2e-6))}
    times |= {(clone, MIB): [behind * 1e-5 * s for s in noise], ("torch.tensor(a)", MIB): [1e-5 * s for s in noise]}
    found = only(answers_to(tmp_path, conversion(times, [CLONE, TENSOR])))
    assert routes_of(found) == [clone, "torch.tensor(a)"][:parts]


def test_where_routes_cross_the_answer_has_two_parts(tmp_path):
    small, large = (8, KIB), (MIB, 16 * MIB)
    times = {("torch.tensor(a)", n): around(1e-6) for n in small} | {
        ("torch.tensor(a)", n): around(1e-3) for n in large
    }
    clone = "torch.from_numpy(a).clone()"
    times |= {(clone, n): around(2e-6) for n in small} | {(clone, n): around(5e-4) for n in large}
    found = only(answers_to(tmp_path, conversion(times, [CLONE, TENSOR])))
    assert routes_of(found) == ["torch.tensor(a)", clone]
    assert "up to 1 KiB: `torch.tensor(a)`" in text(found)
    assert f"from 1 MiB on: `{clone}`" in text(found)


def test_a_tie_makes_no_part_of_its_own(tmp_path):
    clone = "torch.from_numpy(a).clone()"
    times = {("torch.tensor(a)", n): around(1e-6) for n in (8, KIB)}
    times |= {(clone, 8): around(1.5e-6), (clone, KIB): around(0.99e-6)}
    found = only(answers_to(tmp_path, conversion(times, [CLONE, TENSOR])))
    assert routes_of(found) == ["torch.tensor(a)"]


@pytest.mark.parametrize(
    "promise",
    [
        {"hazard": "bites"},
        {"inputs": {"structured": contracts.WRONG}},
        {"inputs": {"x": contracts.ABORTS}},
    ],
)
def test_a_hazardous_route_is_named_and_not_recommended(tmp_path, promise):
    risky = contract("torch.risky(a)", "alias", **promise)
    times = {("torch.risky(a)", 8): around(1e-7), ("torch.from_numpy(a)", 8): around(4e-7)}
    found = only(answers_to(tmp_path, conversion(times, [risky, FROM_NUMPY])))
    assert routes_of(found)[0] == "torch.from_numpy(a)"
    assert "Faster, but not recommended: `torch.risky(a)`, 100 ns at 8 B: " in text(found)
    assert promise.get("hazard", "without an exception") in text(found)


def test_where_every_route_has_a_hazard_the_answer_says_so(tmp_path):
    risky = contract("torch.risky(a)", "alias", hazard="bites", needs="torch>=9.9")
    found = only(answers_to(tmp_path, conversion({("torch.risky(a)", 8): around(1e-7)}, [risky])))
    assert "`torch.risky(a)`: bites." in text(found)
    assert "`torch.risky(a)`: needs torch>=9.9." in text(found)


def test_a_route_that_changes_the_dtype_is_no_candidate_but_a_warning(tmp_path):
    lists = contract("torch.tensor(a.tolist())", "copy", casts_to="python", per_element=True, hazard="by element")
    times = {("torch.tensor(a.tolist())", 8): around(1e-7), ("torch.tensor(a)", 8): around(1e-6)}
    times |= {("torch.tensor(a.tolist())", MIB): around(1e-2), ("torch.tensor(a)", MIB): around(2e-5)}
    found = only(answers_to(tmp_path, conversion(times, [TENSOR, lists])))
    assert set(routes_of(found)) == {"torch.tensor(a)"}
    assert "Slowest: `torch.tensor(a.tolist())` takes 500× as long, 10.0 ms at 1 MiB." in text(found)


def test_an_alias_that_casts_counts_as_a_copy(tmp_path):
    caster = contract("torch.Tensor(a)", "alias", casts_to="float32")
    times = {("torch.Tensor(a)", "float64", 8): around(1e-7), ("torch.from_numpy(a)", "float64", 8): around(1e-6)}
    found = only(answers_to(tmp_path, conversion(times, [caster, FROM_NUMPY], dtypes=("float64",))))
    assert routes_of(found)[0] == "torch.from_numpy(a)"


@pytest.mark.parametrize("last, same", [(1.2, True), (1.3, False)])
def test_any_size_only_where_the_seconds_are_the_same(tmp_path, last, same):
    times = {("torch.from_numpy(a)", n): around(t * 1e-6) for n, t in ((8, 1.0), (KIB, 1.1), (MIB, last))}
    found = only(answers_to(tmp_path, conversion(times, [FROM_NUMPY])))
    assert ("at any size from 8 B to 1 MiB" in text(found)) == same


def test_dtypes_with_one_recommendation_share_an_answer(rich_results):
    found = {title(rows): rows for rows in asked(choices(cells_of(load(rich_results))), contracts.ONE_THREAD)}
    cast = found["float64 and uint8 NumPy array to float32 tensor"]
    assert "10.0 µs from float64, 10.0 µs from uint8 at 1 MiB" in text(cast)


# --- what shares memory ----------------------------------------------------------------------------------------------


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
    noise = noise_of_cells(first, loaded.benchmarks)
    assert dict(zip(zip(first["route"], first["dtype"]), noise)) == wanted
    rows = csv.DictReader(io.StringIO(spreadsheet.csv_of(loaded)))
    assert {(r["route"], r["dtype"]): r["contract"] for r in rows if r["seconds"]} == wanted


def test_many_bytes_are_of_the_memory_whoever_moves_them(tmp_path):
    sizes = (MIB, timing.LARGE)
    kinds = {"torch.from_numpy(a)": "alias", "torch.tensor(a)": "copy", "b.copy_(a)": "into"}
    cells = {(route, nbytes): around(1e-6) for route in kinds for nbytes in sizes}
    benches = [conversion(cells, [contract(*kind) for kind in kinds.items()])]
    benches.append(memcpy({nbytes: around(1e-6) for nbytes in sizes}))
    loaded = load(resultfiles.write(tmp_path, benches))
    first = loaded.processes.drop_duplicates("cell")
    noise = zip(zip(first["route"].fillna("memcpy"), first["nbytes"]), noise_of_cells(first, loaded.benchmarks))
    small = {(route, MIB): kind for route, kind in [*kinds.items(), ("memcpy", "limits")]}
    large = {(route, timing.LARGE): kind if kind == "alias" else "memory" for (route, _), kind in small.items()}
    assert dict(noise) == small | large


def test_a_layout_that_a_route_copies_is_no_alias(tmp_path):
    route = "torch.from_numpy(a).contiguous()"
    inputs = {"strided": "works", "masked": contracts.UNMASKED}
    promise = contract(route, "alias", copies=["strided"], inputs=inputs)
    wanted = {"contiguous": "alias", "strided": "copy"}
    params = {"route": [route], "layout": list(wanted), "nbytes": [MIB]}
    cells = {(route, layout, MIB): around(1e-6) for layout in wanted}
    loaded = load(resultfiles.write(tmp_path, [Bench("layout.NumpyToTorch.timeit_convert", params, cells, [promise])]))
    assert {cell.text("layout"): cell.memory for cell in cells_of(loaded)} == wanted
    first = loaded.processes.drop_duplicates("cell")
    assert dict(zip(first["layout"], noise_of_cells(first, loaded.benchmarks))) == wanted
    rows = csv.DictReader(io.StringIO(spreadsheet.csv_of(loaded)))
    assert {row["layout"]: row["contract"] for row in rows if row["seconds"]} == wanted
    (table,) = tables.contracts(loaded, Semantics(loaded), list(loaded.contracts))
    assert table.rows[0][1] == "alias; copy of strided"
    assert [show.to_plain(line) for line in table.rows[0][5]] == ["drops the mask, silently: masked", "works: strided"]


def test_a_measured_break_of_a_contract_is_said(tmp_path, rich_results):
    loaded = load(rich_results)
    values = loaded.values
    values.loc[(values["method"] == "track_alias") & (values["route"] == "torch.tensor(a)"), "value"] = 1
    broken = tables.broken(Semantics(loaded), loaded.contracts.values())
    assert [show.to_plain(line) for line in broken] == [
        "`torch.tensor(a)` shares memory for float32; its contract says copy."
    ]


@pytest.mark.parametrize("does", [does for does, kind in contracts.KINDS.items() if kind not in contracts.FINE])
def test_every_outcome_has_words(does):
    """A template knows no name that it does not find, and would say nothing."""
    (said,) = unusual(contracts.Route("f(a)", contracts.NUMPY_TO_TORCH, contracts.COPY, inputs={"masked": does}))
    assert re.fullmatch(r"masked arrays \w.+\.", said)


def test_what_happens_in_silence_is_said_and_what_raises_is_not(tmp_path):
    inputs = {"masked": contracts.UNMASKED, "object": "TypeError", "sparse": "ValueError", "0-d": "works"}
    promise = contract("torch.from_numpy(a)", "alias", inputs=inputs)
    found = text(only(answers_to(tmp_path / "a", conversion({("torch.from_numpy(a)", 8): around(1e-6)}, [promise]))))
    assert "Masked arrays lose their mask silently: `torch.from_numpy(a)`." in found and "TypeError" not in found
    loud = contract("torch.from_numpy(a)", "alias", inputs={"object": "TypeError"})
    found = text(only(answers_to(tmp_path / "b", conversion({("torch.from_numpy(a)", 8): around(1e-6)}, [loud]))))
    assert "silently" not in found and "nusual" not in found
