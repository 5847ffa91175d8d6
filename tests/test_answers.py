"""Recommendations: the fastest safe route, ties and hazards; and which routes share memory."""

import csv
import io
import re

import pytest
import resultfiles
from analysis.cells import cells_of
from analysis.findings import Semantics
from analysis.needs import choices, rows_per_answer
from analysis.results import load
from analysis.suite import noise_of_cells
from measured_routes import FIRST, SECOND, SIZES, THIRD, loaded
from pages import page as page_files
from pages import show, tables
from pages.advice import answer_box, answer_title, conditions_box, unusual_inputs
from resultfiles import FROM_NUMPY, KIB, MIB, around, contract, conversion, every, memcpy

from benchmarks import contracts
from benchmarks.core import timing

NOISY, THIRDS = [0.8, 1.0, 1.3, 1.7], [0.8, 0.95, 1.05, 1.3]  # processes in different phases of a busy machine
RISKY = {"hazard": "bites"}


def at(route, *seconds, sizes=SIZES):
    """Return the processes at each size: around a number of µs, or one process per µs in a list."""
    each = zip(sizes, seconds * len(sizes) if len(seconds) == 1 else seconds)
    return {(route, n): around(s * 1e-6) if isinstance(s, float) else [one * 1e-6 for one in s] for n, s in each}


HIDDEN = {"inputs": {"masked": contracts.Does.UNMASKED, "object": "TypeError", "sparse": "ValueError", "0-d": "works"}}
BOTH = at(FIRST, 1.0) | at(SECOND, 0.8)
# Name -> processes; fields of contracts other than a plain copy's; cells without a quiet process. The snapshot has the
# recommendation at each size and its text.
CASES = {
    "the fastest": [at(FIRST, 0.4) | at(SECOND, 0.9)],
    "close medians": [at(FIRST, 1.04) | at(SECOND, 1.0)],
    "medians apart": [at(FIRST, 1.07) | at(SECOND, 1.0)],
    "processes overlap": [at(FIRST, [1.0, 1.6]) | at(SECOND, [0.9, 1.1])],
    "apart by 10 %, where processes differ by 8 %": [
        at(FIRST, [1.10, 1.12, 1.16, 1.19]) | at(SECOND, [0.99, 1.01, 1.05, 1.08])
    ],
    "processes near each other": [at(FIRST, [1.0, 1.0, 1.4])],
    "the same at any size": [at(FIRST, 1.0, 1.1, 1.2)],
    "not the same at any size": [at(FIRST, 1.0, 1.1, 1.3)],
    "routes cross": [at(FIRST, 1.0, 9.0, 9.0, 1.0) | at(SECOND, 2.0, 5.0, 5.0, 2.0)],
    "a size at which they tie joins its neighbour": [at(FIRST, 1.0) | at(SECOND, 2.0, 1.5, 1.01, 0.7, 0.5)],
    "hardly behind, where processes differ by a third": [
        at(FIRST, 1.0, 1.0, [1.08 * s for s in THIRDS]) | at(SECOND, 2.0, 2.0, THIRDS)
    ],
    "behind, where processes differ by a third": [
        at(FIRST, 1.0, 1.0, [1.13 * s for s in THIRDS]) | at(SECOND, 2.0, 2.0, THIRDS)
    ],
    "one is not measured above": [at(FIRST, 1.0, sizes=[8]) | at(SECOND, 2.0, 2.0)],
    # the third is 9 % slower than the fastest and 4.5 % slower than the second, which ties with both
    "ties are not transitive": [at(THIRD, 1.09) | at(SECOND, 1.045) | at(FIRST, 1.0)],
    "slow, perhaps": [at(FIRST, 1.0) | at(SECOND, [1.6 * s for s in NOISY]) | at(THIRD, 1.4)],
    "the slowest, of two that are alike": [at(FIRST, 1.0) | at(SECOND, 3.9) | at(THIRD, 4.0)],
    "a hazard, faster perhaps": [at(FIRST, NOISY) | at(SECOND, [0.8 * s for s in NOISY[::-1]]), {SECOND: RISKY}],
    "a hazard, faster": [BOTH, {SECOND: RISKY}],
    "wrong, silently": [BOTH, {SECOND: {"inputs": {"structured": contracts.Does.WRONG}}}],
    "nothing but a hazard": [at(FIRST, 1.0), {FIRST: RISKY | {"needs": "torch>=9.9"}}],
    "what happens in silence is said, what raises is not": [at(FIRST, 1.0), {FIRST: HIDDEN}],
    "another dtype is no candidate but a warning": [
        at(FIRST, 1.0, 20.0) | at(SECOND, 0.1, 10000.0),
        {SECOND: {"casts_to": "python", "per_element": True, "hazard": "by element"}},
    ],
    "never quiet, and at most half as long": [
        at(FIRST, 1.0, sizes=[8]) | at(SECOND, 2.0, sizes=[8]) | at(THIRD, 2.5, sizes=[8]),
        {},
        [(FIRST, 8)],
    ],
    "a hazard is no better for being quiet": [BOTH, {SECOND: RISKY}, [(FIRST, 8)]],
    # a noisy cell, or a size without quiet cells, gets no range of its own if it is at most a tenth behind
    "noisy sizes join their neighbours": [
        at(FIRST, 1.0, 1.6, 1.0, 0.54, 1.0) | at(SECOND, 1.5, 1.5, 1.5, 0.5, 1.5),
        {},
        [(FIRST, KIB), (FIRST, MIB), (SECOND, MIB)],
    ],
    "noisy, and far behind": [
        at(FIRST, 1.0, 3.0, 3.0, sizes=SIZES[:3]) | at(SECOND, 2.0, 1.5, 1.5, sizes=SIZES[:3]),
        {},
        [(FIRST, SIZES[1]), (FIRST, SIZES[2]), (SECOND, SIZES[2])],
    ],
    "nothing was quiet": [at(FIRST, 1.0, sizes=[8]) | at(SECOND, 0.1, sizes=[8]), {}, [(FIRST, 8), (SECOND, 8)]],
}


def text(answer):
    boxes = filter(None, (answer_box(answer), conditions_box([answer])))
    return [show.to_plain(line) for box in boxes for line in (*box.sentences, *box.notes)]


@pytest.mark.parametrize("name", CASES)
def test_what_is_recommended(tmp_path, snapshot, name):
    (found,) = rows_per_answer(choices(cells_of(loaded(tmp_path, *CASES[name]))), contracts.ONE_THREAD)
    kinds = [" ".join(map(str, row)) for row in found[["nbytes", "route", "kind"]].itertuples(index=False)]
    assert [
        *kinds,
        *text(found),
        *(f"tied: {take.route}" for take in answer_box(found).recommendations if take.tied),
    ] == snapshot


def test_an_alias_that_casts_counts_as_a_copy(tmp_path):
    caster = contract("torch.Tensor(a)", "alias", casts_to="float32")
    times = {("torch.Tensor(a)", "float64", 8): around(1e-7), ("torch.from_numpy(a)", "float64", 8): around(1e-6)}
    bench = conversion(times, [caster, FROM_NUMPY], dtypes=("float64",))
    (found,) = rows_per_answer(choices(cells_of(load(resultfiles.write(tmp_path, [bench])))), contracts.ONE_THREAD)
    assert found["route"].iloc[0] == "torch.from_numpy(a)"


def test_dtypes_with_one_recommendation_share_an_answer(rich_results):
    found = {
        answer_title(rows): rows
        for rows in rows_per_answer(choices(cells_of(load(rich_results))), contracts.ONE_THREAD)
    }
    cast = found["float64 and uint8 NumPy array to float32 tensor"]
    assert any(re.search(r"10\.0 µs \w+ float64, 10\.0 µs \w+ uint8 ", line) for line in text(cast))


# --- what shares memory ----------------------------------------------------------------------------------------------


def memory_said(loaded, *names):
    """Yield whether cells share memory, by these parameters, as advice, noise families and the CSV say."""
    first = loaded.processes.drop_duplicates("cell")
    yield {tuple(getattr(cell, name) for name in names): cell.memory for cell in cells_of(loaded).itertuples()}
    yield dict(zip(zip(*(first[name] for name in names)), noise_of_cells(first, loaded.benchmarks)))
    rows = csv.DictReader(io.StringIO(page_files.results_csv(loaded)))
    yield {tuple(row[name] for name in names): row["contract"] for row in rows if row["seconds"]}


def test_one_rule_says_what_shares_memory(tmp_path):
    """Advice, broken contracts, noise families and the CSV agree: a cast copies, a view of the bits does not."""
    view = contract("t.view(torch.int16).numpy()", "alias", "torch→numpy", casts_to="int16", view=True)
    cast = contract("torch.Tensor(a)", "alias", casts_to="float32")
    wanted = {("torch.Tensor(a)", "int64"): "copy", ("torch.Tensor(a)", "float32"): "alias"}
    wanted["t.view(torch.int16).numpy()", "bfloat16"] = "alias"
    kinds, bits = {"int64": 0, "float32": 1}, {"dtype": ["bfloat16"]}
    benches = [
        every("semantics.TorchToNumpy.track_alias", lambda *_: 1, [view], "1: shares", **bits),
        every("semantics.NumpyToTorch.track_alias", lambda _, dtype: kinds[dtype], [cast], "1: shares", dtype=[*kinds]),
        every("casting.Bfloat16ToNumpy.timeit_convert", lambda *_: 1e-6, [view], **bits, nbytes=[8]),
        every("conversion.NumpyToTorch.timeit_convert", lambda *_: 1e-6, [cast], dtype=[*kinds], nbytes=[8]),
    ]
    loaded = load(resultfiles.write(tmp_path, benches))
    assert all(said == wanted for said in memory_said(loaded, "route", "dtype"))
    assert Semantics(loaded).broken(loaded.contracts.values()) == []


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
    inputs = {"strided": "works", "masked": contracts.Does.UNMASKED}
    promise = contract(route, "alias", copies=["strided"], inputs=inputs)
    wanted = {("contiguous",): "alias", ("strided",): "copy"}
    params = {"layout": ["contiguous", "strided"], "nbytes": [MIB]}
    bench = every("layout.NumpyToTorch.timeit_convert", lambda *_: 1e-6, [promise], **params)
    loaded = load(resultfiles.write(tmp_path, [bench]))
    assert all(said == wanted for said in memory_said(loaded, "layout"))
    table, _ = tables.contracts(Semantics(loaded), [*loaded.contracts.values()])
    assert table.rows[0][2] == "alias; copy of strided"
    assert show.to_plain(table.rows[0][6]) == "drops the mask, silently: masked; works: strided"


def test_a_measured_break_of_a_contract_is_said(tmp_path, rich_results):
    loaded = load(rich_results)
    values = loaded.values
    values.loc[(values["method"] == "track_alias") & (values["route"] == "torch.tensor(a)"), "value"] = 1
    broken = Semantics(loaded).broken(loaded.contracts.values())
    *_, last = show.render_paragraphs("machine_sections", "contracts", transfers=False, broken=broken)
    assert len(broken) == 1
    assert show.to_plain(last) == "`torch.tensor(a)` shares memory for float32; its contract says copy."


@pytest.mark.parametrize("does", [does for does, kind in contracts.Does.KINDS.items() if kind not in contracts.FINE])
def test_every_outcome_has_words(does):
    """Each outcome needs its own words: a template prints nothing for a name that it does not find."""
    (said,) = unusual_inputs(contracts.Route("f(a)", contracts.COPY, contracts.NUMPY_TO_TORCH, inputs={"masked": does}))
    assert re.fullmatch(r"masked \w.+\.", said)


def test_some_of_every_size_in_words():
    every = (8, KIB, 4 * KIB, 64 * KIB, MIB, 4 * MIB)
    said = {
        (8,): "8 B",
        (8, KIB): "8 B and 1 KiB",
        (8, 4 * KIB, 64 * KIB, MIB): "8 B and 4 KiB to 1 MiB",
        every: "8 B to 4 MiB",
    }
    assert all(show.size_ranges(sizes, every) == words for sizes, words in said.items())
