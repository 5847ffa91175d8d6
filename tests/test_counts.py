"""Instruction counts with repeats: their verdicts, next to those of the times of the same calls."""

import json
from dataclasses import replace

import numpy as np
import pytest
import resultfiles
from analysis import comparison
from analysis.cells import cells_of, conversions
from analysis.results import load
from analysis.verdicts import Settings, counts_by_call
from cli import UserError
from pages import comparison_words, show, tables
from resultfiles import AS_TENSOR, FROM_NUMPY, KIB, SKIPPED, TENSOR, Bench, around, conversion

CONTRACTS = [FROM_NUMPY, AS_TENSOR, TENSOR]
VIEW, MAYBE, COPY = ROUTES = [promise["expression"] for promise in CONTRACTS]
DTYPES = ["float32", "float64", "float16", "complex64", "int32", "int64", "uint8", "bool"]
NAME = "instructions.NumpyToTorch.track_instructions"


def side(root, counts, *more, **record):
    """Loaded results. counts: per process, by (route, nbytes) or (route, dtype, nbytes); more: other benchmarks."""
    return load(write_side(root, counts, *more, **record))


def write_side(root, counts, *more, **record):
    counted = replace(conversion(counts, CONTRACTS, dtypes=DTYPES), name=NAME, unit="instructions")
    benches = [counted, *more]
    return resultfiles.write(root, benches, records=[resultfiles.record(benches, **record)])


def compared(tmp_path, base, new, more=((), ()), **settings):
    one, other = side(tmp_path / "base", base, *more[0]), side(tmp_path / "new", new, *more[1])
    return comparison.compare(one, other, Settings(**settings))


BASE = {(VIEW, 8): [5700, 5705, 5707], (MAYBE, 8): [6900, 6920, 6930], (COPY, 4 * KIB): [21000, 21300, 21400]}


CHANGED = {(VIEW, 8): [9100, 9105, 9108], (MAYBE, 8): [6910, 6915, 6931], (COPY, 4 * KIB): [20100, 21300, 21900]}
LACKING = {(VIEW, 8): SKIPPED, (MAYBE, 8): None, (COPY, 4 * KIB): BASE[COPY, 4 * KIB]}
NEAR, WIDE = [5700, 5702, 5704, 5706], [5700, 5780, 5820, 5860]
LOW, HIGH = [5700, 5701, 5702, 5703], [6000, 6001, 6002, 6003]


# A cell's counts per process on BASE, on NEW, a factor of the latter, the verdict
RANGES = [
    (NEAR, NEAR, 1.02, "more"),
    (NEAR, NEAR, 1.009, "as many"),  # below the smallest reported change
    (NEAR, NEAR, 0.98, "fewer"),
    (WIDE, WIDE, 1.02, "inconclusive"),  # below the spread of the processes
    (WIDE, WIDE, 1.15, "more"),
    (LOW, [LOW[0], *HIGH[1:]], 1.0, "inconclusive"),
    ([0, 0, 1], [5, 5, 6], 1.0, "inconclusive"),  # a count of 0 has no ratio
]
# All processes of one side may be in one of two states by chance: another dtype shows both states
STATES = {(VIEW, 8): LOW, (VIEW, "int32", 8): [*LOW[:2], *HIGH[2:]]}
OTHERS = {(VIEW, 8): HIGH, (VIEW, "int32", 8): [*LOW[:3], *HIGH[3:]]}


@pytest.mark.parametrize(
    ("base", "new", "verdicts", "code"),
    [
        # a call of more instructions is one that became slower
        (BASE, CHANGED, ["more", "as many", "inconclusive"], 1),
        (CHANGED, BASE, ["fewer", "as many", "inconclusive"], 0),
        (LACKING, BASE, ["new", "failed", "as many"], None),
        (STATES, OTHERS, ["inconclusive"] * 2, 2),
        *(({(VIEW, 8): a}, {(VIEW, 8): [times * n for n in b]}, [verdict], None) for a, b, times, verdict in RANGES),
    ],
)
def test_the_range_over_processes_decides(tmp_path, base, new, verdicts, code):
    found = compared(tmp_path, base, new)
    assert list(found.counted["verdict"]) == verdicts and code in (None, found.exit_code)


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_memory_layout_looks_like_no_change(tmp_path, factor):
    """Counts of 400 cells (50 calls, eight dtypes) vary by 3 % between processes, on average."""
    logs = np.random.default_rng(5).normal(0, 0.03 / 2.06, (2, 400, 4))
    keys = [(VIEW, dtype, 8 * size) for size in range(1, 51) for dtype in DTYPES]
    sides = [{key: list(5700 * np.exp(own)) for key, own in zip(keys, side)} for side in logs]
    sides[1] = {key: [factor * count for count in counts] for key, counts in sides[1].items()}
    changed = compared(tmp_path, *sides).counted["verdict"].isin(("more", "fewer")).mean()
    assert changed <= 0.005 if factor == 1 else changed >= 0.8


LIBC = {"conditions": {"cpu": "A CPU", "libc": "2.36"}}
# Differences of NEW: its counts, its run record, its measurements
OTHERWISE = {
    "nothing": {},
    "a cell was skipped and one failed": {"counts": LACKING},
    "another CPU": {"record": {"conditions": {"cpu": "Another"}}},
    "another libc": {"record": {"conditions": {"cpu": "A CPU", "libc": "2.99"}}},
    "another name of the machine": {"record": {"machine": "other"}},  # the result file says the same
    "another version of the count": {"lines": {"version": "v2"}},
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_why_counts_are_not_compared(what, tmp_path, snapshot):
    new = {"counts": BASE, "record": {}, "lines": {}} | OTHERWISE[what]
    one, _ = side(tmp_path / "base", BASE, **LIBC), side(tmp_path / "new", new["counts"], **LIBC | new["record"])
    resultfiles.mend(tmp_path / "new", lambda line: line | new["lines"])
    found = comparison.compare(one, load(tmp_path / "new"))
    said = [f"{row.verdict}: {comparison_words.reason_text(row.reason)}" for row in found.counted.itertuples()]
    assert [found.exit_code, comparison_words.summarise(found)["headline"], *said] == snapshot


def test_time_and_count_of_a_call_stand_side_by_side(tmp_path, snapshot):
    sizes = [2**k for k in range(3, 13)]
    base = {(VIEW, n): [5700, 5705] for n in sizes}
    slower = base | {(VIEW, n): [6900, 6905] for n in (8, 64, 128)} | {(VIEW, 256): [5700, 6905]}
    before = {(route, n): around(1e-6) for route in ROUTES for n in sizes}
    after = before | {(VIEW, n): around(1.2e-6) for n in (16, 64, 256)} | {(VIEW, 128): around(0.8e-6)}
    times = [[conversion(seconds, CONTRACTS)] for seconds in (before, after)]
    found = compared(tmp_path, base, slower, times, min_decided=0)
    rows = json.loads(comparison_words.as_json(found, "command"))["counted"]
    said = [" | ".join(str(row[name]) for name in ("nbytes", "verdict", "time", "contradicts")) for row in rows]
    assert (said, comparison_words.markdown(found, False, "command")) == snapshot


def test_functions_explain_a_change_of_counts(tmp_path):
    for side, functions in (("base", {"a:f": 5000, "a:g": 700}), ("new", {"a:f": 5000, "a:h": 4000, "a:g": 100})):
        write_side(tmp_path / side, BASE if side == "base" else CHANGED)
        resultfiles.mend(tmp_path / side, lambda line, own=functions: line | {"functions": own})
    found = comparison.compare(load(tmp_path / "base"), load(tmp_path / "new"))
    because = found.counted["because"].iloc[0]
    assert because.functions == (("a:h", 4000), ("a:g", -600)) and because.explained == pytest.approx(1.0)
    assert found.counted["because"].iloc[1] is None  # as many
    said = "1.60× more instructions (5,705 → 9,105; 95 % CI 1.59–1.60): +4,000 of +3,400 instructions in h, −600 in g"
    assert said in comparison_words.text(found, False)
    assert json.loads(comparison_words.as_json(found, ""))["counted"][0]["because"]["total"] == 3400


def test_what_is_counted_once_is_not_compared(tmp_path):
    bench = Bench("footprint.NumpyToTorch.track_bytes", {"route": [VIEW], "nbytes": [8]}, {(VIEW, 8): 64}, unit="bytes")
    assert compared(tmp_path, BASE, BASE, [[bench], [bench]]).counted_once == 1


def test_only_means_cells_of_counts_too(tmp_path):
    found = compared(tmp_path, BASE, BASE, only="from_numpy")
    assert found.counted[["route", "nbytes"]].to_numpy().tolist() == [[VIEW, 8]]
    with pytest.raises(UserError, match="'nosuch'"):
        compared(tmp_path / "none", BASE, BASE, only="nosuch")


def test_a_panels_table_has_the_instructions_of_its_calls(tmp_path):
    times = {(route, n): around(1e-6) for route in ROUTES for n in (8, 4 * KIB, 64 * KIB)}
    counts = {(VIEW, 8): [5700, 5705, 5707], (COPY, 4 * KIB): [21000, 21500, 21800]}
    loaded = side(tmp_path, counts, conversion(times, CONTRACTS))
    cells = [*conversions(cells_of(loaded)).itertuples()]
    made = tables.curves(cells, tables.missing_reasons(loaded), tables.NO_LIMIT, counts_by_call(loaded))
    assert made.columns[-2:] == ("instructions, 8 B", "instructions, 4 KiB")
    assert {show.bare(row[0]): row[-2:] for row in made.rows} == {
        VIEW: ("5,705", ""),
        MAYBE: ("", ""),
        COPY: ("", ["21,500", "21,000 to 21,800"]),
    }
