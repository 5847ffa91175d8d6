"""Verdicts: only real changes are found, cells that cannot be compared say why, sides in turns are paired.

Also the output of a comparison: on a terminal, in a comment, as JSON, as a figure, and on a page.
"""

import io
import itertools
import json
import re

import numpy as np
import pytest
import resultfiles
from analysis import comparison, judging
from analysis import verdicts as known
from analysis.verdicts import FASTER, NEVER_QUIET, SLOWER
from pages import change_pictures, comparison_words, machine, show
from sides import NOISE, ROUTES, SIZES, cells, compared, together, verdicts, write

ONE, OTHER = (ROUTES[0], 8), (ROUTES[1], 4)


def half(times, slow):
    """A side whose listed processes took twice the time, with probes of a machine at half its speed."""
    for cell, number in slow:
        times[cell][number] *= 2
    return {"times": times, "slow": slow, "clock": resultfiles.steady}


def says(**record):
    """NEW, with these differences in its run record."""
    return {"times": cells(1), "record": record}


def in_turns(times, name):
    """A side whose rounds drift like the other's; with a name, its record says that both ran in turns."""
    drifted = {cell: [one * by for one, by in zip(own, (1.0, 1.2, 0.9, 1.1))] for cell, own in times.items()}
    return {"times": drifted, "record": together(name) if name else {}}


BASE, EVERY = {"times": cells(0)}, [(route, nbytes) for route in ROUTES for nbytes in SIZES]
LOST = {"times": cells(1) | {ONE: cells(1)[ONE][:3]}}
QUIET = BASE | {"clock": resultfiles.steady}
NEVER = half(cells(1), [(ONE, number) for number in range(4)])
SMALL = half(cells(1), [(cell, 2) for cell in EVERY if cell[1] in SIZES[:4]])
LEVEL = {"times": cells(1, sd=0.002), "clock": resultfiles.steady}
HIGHER = {"times": cells(2, dict.fromkeys(EVERY, 1.04), sd=0.002), "clock": lambda _: 1.04}
PYTHON = {name: {"settings": {**resultfiles.record([])["settings"], "python": name}} for name in ("3.12.1", None)}
BUILT = resultfiles.record([])["settings"]
PLAIN = BASE | {"record": {"settings": BUILT | {"build": "optimised, LTO"}}}
UNOPTIMISED = {"settings": BUILT | {"build": "not optimised"}}
CPU = {"cpu": "A CPU", "cores_allowed": 2}
TWO_STATES = {cell: [s * (1.3 if k % 2 else 1) for k, s in enumerate(own)] for cell, own in cells(0, sd=1e-4).items()}
HALF = [cell for cell in EVERY if cell[0] == ROUTES[1] and cell[1] >= 2**9]
FEW = [{**cells(seed), **{cell: cells(seed + 2, sd=NOISE)[cell] for cell in HALF}} for seed in (0, 1)]
FEW[0][ROUTES[0], 4] = None
del FEW[0][ROUTES[0], 1], FEW[1][ROUTES[0], 2]
SHARE = {"times": FEW[0]}, {"times": FEW[1]}
LOUD = {"times": cells(0, sd=NOISE)}, {"times": cells(1, sd=NOISE)}
# Both sides and settings; the snapshot has the output
BUSY = [(cell, number) for cell in EVERY if cell[0] == ROUTES[1] for number in range(4)]
HALVES = [{cell: own[: 2 + 2 * (cell[0] == route)] for cell, own in cells(0).items()} for route in ROUTES]
ACROSS = {"across_machines": True}
COMPARED = {
    "one is slower and one faster, nothing else": (BASE, {"times": cells(1, {ONE: 1.3, OTHER: 0.7})}),
    "one is faster, which fails nothing": (BASE, {"times": cells(1, {ONE: 0.7})}),
    # new, gone and failed cells do not count as comparable
    "a share that is just reached is enough": (*SHARE, {"min_decided": 18 / 21}),
    "a share that is not reached": (*SHARE, {"min_decided": 0.86}),
    "too little decided is no pass": LOUD,
    "where nothing has to be decided it is one": (*LOUD, {"min_decided": 0}),
    "what is slower was found all the same": (LOUD[0], {"times": cells(1, {ONE: 1e3}, sd=NOISE)}),
    # twice the time at half the machine's speed is no change; only close cells get fresh processes
    "nothing of what NEW never had quiet": (QUIET, NEVER),
    "nothing of what BASE never had quiet": (NEVER, QUIET),
    "the same figures where it was quiet are a finding": (QUIET, {**QUIET, "times": cells(1, {ONE: 2.0})}),
    "three quiet processes are too few, and no outlier": (QUIET, SMALL),
    # one side, its probes included, took 4 % longer for everything: a slower machine is no change
    "NEW at another speed": (LEVEL, HIGHER),
    "BASE at another speed": (HIGHER, LEVEL),
    "without probes nothing is corrected": ({**LEVEL, "lines": {"probes": {}}}, HIGHER),
    "probes of another interpreter are other work": (LEVEL, {**HIGHER, "record": PYTHON["3.12.1"]}),
    "probes of an interpreter that nobody knows": (LEVEL, {**HIGHER, "record": PYTHON[None]}),
    "another asv_runner": (BASE, says(asv_runner="0.4.0")),
    "another way to launch": (BASE, says(launch="spawn")),
    "another CPU": (BASE, says(conditions=CPU | {"cpu": "Another"})),
    "other caches": (BASE, says(conditions=CPU | {"caches": {"L2": "512K"}})),
    "other samples": (BASE, {"times": cells(1), "lines": {"wanted": 2}}),
    "another version, and so other samples": (BASE, {"times": cells(1), "lines": {"wanted": 2, "version": "v2"}}),
    "another machine": (BASE, {"times": cells(1), "machine": "other"}),
    "another build of Python": (PLAIN, {"times": cells(1), "record": UNOPTIMISED}),
    "another build, if asked for": (PLAIN, {"times": cells(1), "record": UNOPTIMISED}, {"across_builds": True}),
    "another build than an unknown one": (BASE, {"times": cells(1), "record": UNOPTIMISED}),
    "another machine, if asked for": (BASE, {"times": cells(1, dict.fromkeys(EVERY, 2.0)), "machine": "other"}, ACROSS),
    # processes alternate between two states, which looks like a change
    "a contradicted promise withholds verdicts": ({"times": TWO_STATES}, {"times": cells(1, {ONE: 3})}),
    "without a record, with a note": (BASE | {"records": []}, {"times": cells(1), "records": []}),
    "5 % behind drift that pairs share": (in_turns(cells(0), "base"), in_turns(cells(1, {ONE: 1.05}), "new")),
    "nothing behind drift without pairs": (in_turns(cells(0), ""), in_turns(cells(1, {ONE: 1.05}), "")),
    # cells without quiet samples count as one process: more rounds do not help
    "nothing where NEW was never quiet at all": (QUIET, half(cells(1), BUSY), {"only": re.escape(ROUTES[1])}),
    "too few processes on one side or the other": ({"times": HALVES[0]}, {"times": HALVES[1]}),
    "one lost a process and is no pair": (BASE | {"record": together("base")}, {**LOST, "record": together("new")}),
}


@pytest.mark.parametrize("what", COMPARED)
def test_what_is_said_of_two_sides(what, tmp_path, snapshot):
    """The snapshot counts cells by verdict, reason, processes per side and pairing, with the range of ratios."""
    base, new, *how = COMPARED[what]
    found = compared(write(tmp_path / "a", **base), write(tmp_path / "b", **new), **(how[0] if how else {}))
    rows, said = found.cells.assign(why=found.cells["reason"].map(comparison_words.reason_text)), []
    for key, own in rows.groupby(["verdict", "why", "base_processes", "new_processes", "paired"]):
        said.append(" | ".join(map(str, (len(own), *key, f"{own['ratio'].min():.2f} to {own['ratio'].max():.2f}"))))
    said += [f"{row.verdict}: {row.cell}" for row in rows.itertuples() if row.verdict in (SLOWER, FASTER)]
    said += [
        f"{rows['ratio'].median():.2f}",
        comparison_words.summarise(found)["headline"],
        *comparison_words.summarise(found)["trust"],
        *([comparison_words.summarise(found)["refusal"]] if found.exit_code == 2 else []),
    ]
    assert [f"exit code {found.exit_code}", *map(show.to_plain, said)] == snapshot
    assert not rows["close"][rows["reason"].map(lambda reason: reason.code == NEVER_QUIET)].any()
    for told in (comparison_words.text(found, False), comparison_words.markdown(found, False, "")):
        assert ("withheld" in told) == found.withheld


def test_ratios_have_no_exponent():
    ratios = {1.083: "1.08", 99.4: "99.40", 1234.0: "1,230", 0.0012: "0.00120", 0.0: "0.00", float("inf"): "n/a"}
    assert {ratio: show.number(ratio) for ratio in ratios} == ratios


def test_splits_take_one_of_every_two_neighbours():
    assert judging.splits(3) == []
    assert judging.splits(4) == [([0, 2], [1, 3]), ([0, 3], [1, 2])]
    for processes in (*range(4, 30), 200):  # for many processes, too, without enumerating all splits
        found = judging.splits(processes)
        assert 2 <= len(found) <= 2**judging.MAX_SWAPPED_PAIRS
        for one, other in found:
            assert sorted(one + other) == list(range(processes // 2 * 2))
            assert all({a, b} == {2 * k, 2 * k + 1} for k, (a, b) in enumerate(zip(one, other)))


STATES = {
    "measured": [1e-6, 1.01e-6, 0.99e-6, 1e-6],
    "slow": [2e-6, 2.01e-6, 1.99e-6, 2e-6],
    "two processes": [1e-6, 1.01e-6],
    "failed": None,
    "skipped": resultfiles.SKIPPED,
    "absent": resultfiles.ABSENT,
}


def test_every_cell_has_exactly_one_verdict(tmp_path, snapshot):
    """Verdict counts add up to the union of both sides' cells, for every pair of states."""
    pairs = list(itertools.product(STATES, repeat=2))
    sides = [{(ROUTES[0], 8 + k): STATES[pair[which]] for k, pair in enumerate(pairs)} for which in (0, 1)]
    sides = [{cell: taken for cell, taken in side.items() if taken != resultfiles.ABSENT} for side in sides]
    found = compared(write(tmp_path / "a", sides[0]), write(tmp_path / "b", sides[1]))
    assert sum(found.counts.values()) == len(found.cells) == found.cells["cell"].nunique()
    named = verdicts(found)
    assert {" → ".join(pair): named.get((ROUTES[0], 8 + k), "") for k, pair in enumerate(pairs)} == snapshot
    assert comparison_words.text(found, True) and comparison_words.markdown(found, True, "")
    assert len(json.loads(comparison_words.as_json(found, ""))["cells"]) == len(found.cells)


# --- interleaved sides -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 24])
@pytest.mark.parametrize("turns", [False, True])
def test_figures_that_are_all_the_same_are_compared(tmp_path, count, turns):
    """Identical times, as from a coarse clock, are compared: four processes suffice despite zero variance."""
    first, *others = list(cells(0))[:count]
    times = {cell: cells(0, {first: 1.3}, sd=0)[cell] for cell in (first, *others)}
    how = [{"record": together(side)} if turns else {} for side in ("base", "new")]
    before = write(tmp_path / "base", {**times, first: times[others[0]]}, **how[0])
    said = verdicts(compared(before, write(tmp_path / "new", times, **how[1])))
    assert said == {first: SLOWER, **dict.fromkeys(others, known.NO_CHANGE)}


def test_close_cells_bring_witnesses_of_their_familys_noise(pair):
    found = compared(*pair)
    again = comparison.cells_to_remeasure(found)
    close = set(found.cells[found.cells["close"]]["cell"])
    assert close and close <= set(again) and len(again) == len(set(again))
    assert sum("from_numpy" in cell for cell in again) >= 10
    found.cells["close"] = False
    assert comparison.cells_to_remeasure(found) == []


FRESH = {"fresh": True}
STRONG, WEAK = {"p": 0.0008, "p_equivalence": 0.008}, {"p": 0.004, "p_equivalence": 0.04}


@pytest.mark.parametrize(
    "figures, clear",
    [
        ({"verdict": SLOWER, "close": True, **WEAK}, True),  # fresh processes decide it
        ({"verdict": SLOWER, "close": True, **WEAK, **FRESH}, False),
        ({"verdict": FASTER, "close": True, **STRONG, **FRESH}, True),
        ({"verdict": known.NO_CHANGE, **STRONG}, True),
        ({"verdict": known.NO_CHANGE, **WEAK}, False),
        ({"verdict": known.INCONCLUSIVE, **STRONG}, False),
        ({"verdict": known.INCONCLUSIVE, "p": float("nan")}, False),  # too few processes
        ({"verdict": known.FAILED, "p": float("nan")}, True),
    ],
)
def test_a_stage_may_end_once_every_cell_is_close_or_clear(pair, figures, clear):
    """Of the second stage only the cells that it measures decide."""
    found = compared(*pair)
    rest = {"verdict": known.NO_CHANGE, "close": False, "fresh": False, **(WEAK if "fresh" in figures else STRONG)}
    found.cells[[*rest]] = [*rest.values()]
    found.cells.loc[found.cells.index[0], [*figures]] = [*figures.values()]
    assert comparison.has_clear_answers(found) == clear


def test_looking_every_four_rounds_misses_hardly_more_changes():
    """Of 4,000 cells that changed by just the margin, 5 % may be called unchanged after 24 rounds.

    Their ratios differ by 2 % (SD) between rounds."""
    count, settings = 4000, known.Settings(equivalence=0.03)
    ratios = np.random.default_rng(8).normal(np.log(1.03), 0.02, (count, 24))
    logs, family, ever = np.stack([-ratios / 2, ratios / 2]), np.full(count, "copy"), np.ones(count, bool)
    decided = np.full(count, "", object)
    for rounds in range(4, 28, 4):
        times = judging.Times(logs[:, :, :rounds], ever, ever, 0.0)
        judged = judging.judge_times(times, family, ever, ever, settings)
        is_first = (decided == "") & (comparison.clear_cells(judged, settings) | (rounds == 24))
        decided[is_first] = judged["verdict"][is_first]
    assert 0.03 < (decided == known.NO_CHANGE).mean() <= 0.06


# --- in words ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def found(tmp_path):
    """A comparison with every verdict but "not comparable", of sides that ran in turns."""
    base, new = cells(0), cells(1, {ONE: 1.3, OTHER: 0.7})
    noisy = cells(2, sd=NOISE)
    new |= {cell: noisy[cell] for cell in noisy if cell[1] >= 2**10}
    new |= {(ROUTES[0], 1): None, (ROUTES[0], 2): [1e-6] * 2, (ROUTES[1], 1): resultfiles.SKIPPED}
    del base[ROUTES[0], 16]
    sides = {"base": base, "new": new}
    return compared(*(write(tmp_path / side, own, record=together(side)) for side, own in sides.items()))


def test_text_and_markdown_name_every_verdict(found, snapshot):
    assert comparison_words.text(found, True) == snapshot
    assert comparison_words.markdown(found, True, "the command") == snapshot


def test_a_terminal_has_the_same_words_in_colour(found, monkeypatch):
    terminal, plain = io.StringIO(), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    comparison_words.terminal(found, False, plain)
    comparison_words.terminal(found, False, terminal)
    assert re.search(r"\x1b\[1;31m1\.\d\d× slower \(95 % CI", terminal.getvalue())
    assert re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()) == plain.getvalue()


def test_markdown_fits_a_comment(found, monkeypatch):
    monkeypatch.setattr(comparison_words, "COMMENT_CHARACTERS", 2500)
    short = comparison_words.markdown(found, True, "the command")
    assert len(short) <= 2500 and re.search(r"\d+ more\b", short)


def test_json_has_everything(found):
    document = json.loads(comparison_words.as_json(found, "the command"))
    assert document["counts"] == found.counts and document["exit_code"] == found.exit_code == 1
    assert (document["decided"]["cells"], document["decided"]["of"]) == (found.decided, found.comparable)
    row = next(row for row in document["cells"] if row["verdict"] == SLOWER)
    figures = ("ratio", "low95", "high95", "low90", "high90", "p", "q", "p_equivalence", "base_seconds", "new_seconds")
    assert all(isinstance(row[name], float) for name in figures) and row["sentence"].startswith("1.3")


def test_the_figure_and_the_section_of_a_page(found):
    """The figure does not depend on matplotlib's current settings."""
    import matplotlib

    one = change_pictures.forest(found).svg
    with matplotlib.rc_context({"lines.linewidth": 3}):
        assert change_pictures.forest(found).svg == one
    assert 'role="img"' in one and "1.3" in one and "torch.from_numpy(a)" in one
    assert "conversion.NumpyToTorch" in one and "conversion.0" not in one and one.count("1 faster of 24 cells") == 2
    section = machine.comparison_section(found)
    assert re.search(r"\b1 \w+ and 1 \w+ of 24 ", section.intro[0])
    ((figure, table),) = section.figures
    assert "<svg" in figure.inline and len(table.rows) == len(change_pictures.forest_cells(found)) and section.after
