"""Verdicts: what changed is found and nothing else, what cannot be compared says why, sides in turns are paired."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import resultfiles
from analysis import comparison
from analysis.verdicts import (
    FASTER,
    INCONCLUSIVE,
    NEVER_QUIET,
    NO_CHANGE,
    NOT_COMPARABLE,
    OTHER_SPEED,
    SLOWER,
    Reason,
)
from pages import comparison_words
from sides import NOISE, RESULT, ROUTES, SIZES, cells, compared, together, verdicts, write
from store.files import MEASUREMENTS, measurements_text, read_measurements

ONE, OTHER = (ROUTES[0], 8), (ROUTES[1], 4)


@pytest.mark.parametrize("one, other, code", [(1.3, 0.7, 1), (0.7, 1.3, 1), (0.7, 1.0, 0)])
def test_what_changed_is_found_and_nothing_else(tmp_path, one, other, code):
    found = compared(write(tmp_path / "a", cells(0)), write(tmp_path / "b", cells(1, {ONE: one, OTHER: other})))
    planted = {cell: SLOWER if by > 1 else FASTER for cell, by in {ONE: one, OTHER: other}.items() if by != 1}
    named = verdicts(found)
    assert {cell: named.pop(cell) for cell in planted} == planted
    assert set(named.values()) <= {NO_CHANGE, INCONCLUSIVE} and found.exit_code == code
    assert sum(found.counts.values()) == len(found.cells) == len(ROUTES) * len(SIZES)


def probed(root, times, slow=(), clock=resultfiles.steady, **more):
    """Results with probes; ``slow``: cell, round of processes at half the machine's speed."""
    slow = {((route, "float32", nbytes), number) for (route, nbytes), number in slow}
    return write(root, times, slow=slow, clock=clock, **more)


def test_nothing_is_decided_of_what_was_never_quiet(tmp_path):
    """Twice the time, and the machine at half its speed: that is the machine's, not the release's."""
    quiet = probed(tmp_path / "quiet", cells(0))
    busy = probed(tmp_path / "busy", cells(1, {ONE: 2.0}), {(ONE, number) for number in range(4)})
    for base, new, who in ((quiet, busy, "new"), (busy, quiet, "base")):
        found = compared(base, new)
        assert found.counts[SLOWER] == found.counts[FASTER] == 0
        row = next(row for row in found.cells.to_dict("records") if (row["route"], row["nbytes"]) == ONE)
        assert (row["verdict"], row["reason"]) == (INCONCLUSIVE, Reason(NEVER_QUIET, who))
        assert not row["close"], "fresh processes are for what is close"
    # the same figures from a machine that was quiet are a finding
    assert verdicts(compared(quiet, probed(tmp_path / "really", cells(1, {ONE: 2.0}))))[ONE] == SLOWER


def test_quiet_processes_alone_decide(tmp_path):
    """One process of every cell at half the speed: three quiet ones are too few for a verdict, and no outlier."""
    slow = {((route, nbytes), 2) for route in ROUTES for nbytes in SIZES[:4]}
    times = cells(1)
    for cell, number in slow:
        times[cell][number] *= 2
    found = compared(probed(tmp_path / "base", cells(0)), probed(tmp_path / "new", times, slow))
    few = found.cells[found.cells["nbytes"].isin(SIZES[:4])]
    assert set(few["new_processes"]) == {3} and set(few["verdict"]) == {INCONCLUSIVE}
    assert few["ratio"].between(0.97, 1.03).all()


SETTINGS = resultfiles.record([])["settings"]


@pytest.mark.parametrize(
    "probes, interpreter, corrected",
    [
        (True, "3.11.7", True),  # another level of the machine an hour later is no change
        (False, "3.11.7", False),
        (True, "3.12.1", False),  # probes of another interpreter are other work
        (True, None, False),
    ],
)
def test_times_are_compared_as_at_one_speed(tmp_path, probes, interpreter, corrected):
    """A side took 4 % longer for everything, its probes, too."""
    base = probed(tmp_path / "base", cells(1, sd=0.002))
    times = cells(2, {(route, nbytes): 1.04 for route in ROUTES for nbytes in SIZES}, sd=0.002)
    settings = {**SETTINGS, "python": interpreter}
    new = probed(tmp_path / "new", times, clock=lambda _: 1.04, record={"settings": settings})
    if not probes:
        edit(base, probes={})
    found = compared(base, new)
    assert found.cells["ratio"].median() == pytest.approx(1.0 if corrected else 1.04, abs=0.01)
    for side, each in (("new", found), ("base", compared(new, base))):
        notes = [note for note in each.notes if note.what == OTHER_SPEED]
        assert [(note.side, round(note.values[0], 3)) for note in notes] == ([(side, 0.04)] if corrected else [])
    assert not corrected or set(found.cells["verdict"]) == {NO_CHANGE}


def test_the_share_of_decided_cells_is_of_those_that_could_be_compared(tmp_path):
    """New, gone and failed cells are no part of it, and a share that is just reached is enough."""
    one, other = cells(0), cells(1)
    del one[ROUTES[0], 1], other[ROUTES[0], 2]
    one[ROUTES[0], 4] = None
    for times, seed in ((one, 2), (other, 3)):
        noisy = cells(seed, sd=NOISE)
        times.update({cell: noisy[cell] for cell in noisy if cell[0] == ROUTES[1] and cell[1] >= 2**9})
    base, new = write(tmp_path / "a", one), write(tmp_path / "b", other)
    found = compared(base, new)
    assert (found.decided, found.comparable, len(found.cells)) == (18, 21, 24)
    assert found.share_decided == 18 / 21
    assert compared(base, new, min_decided=18 / 21).exit_code == 0
    assert compared(base, new, min_decided=0.86).exit_code == 2


def edit(directory, **changed):
    path = Path(directory) / RESULT
    lines = [{**line, **changed} for line in read_measurements(path)]
    path.with_suffix(MEASUREMENTS).write_bytes(measurements_text(lines))


CPU = {"cpu": "A CPU", "cores_allowed": 2}


@pytest.mark.parametrize(
    ("record", "lines", "reason"),
    [
        ({"asv_runner": "0.4.0"}, {}, "asv_runner differs: 0.3.2, 0.4.0"),
        ({"launch": "spawn"}, {}, "launch differs: forkserver, spawn"),
        ({"conditions": CPU | {"cpu": "Another"}}, {}, "machine (cpu) differs: A CPU, Another"),
        ({"conditions": CPU | {"caches": {"L2": "512K"}}}, {}, "machine (caches) differs: L2 1024K, L2 512K"),
        ({}, {"wanted": 2}, "samples per process differ: 4, 2"),
        ({}, {"wanted": 2, "version": "v2"}, "the benchmark itself changed: measure both sides with the same suite"),
    ],
)
def test_what_is_not_comparable_says_why(tmp_path, record, lines, reason):
    base, new = write(tmp_path / "a", cells(0)), write(tmp_path / "b", cells(1), record=record)
    edit(new, **lines)
    found = compared(base, new)
    assert set(found.cells["reason"].map(comparison_words.why)) == {reason}
    assert found.counts[NOT_COMPARABLE] == len(found.cells) and found.exit_code == 2


def test_another_machine_only_if_asked_for(tmp_path):
    base, new = write(tmp_path / "a", cells(0)), write(tmp_path / "b", cells(1), machine="other")
    assert compared(base, new).exit_code == 2
    found = compared(base, new, across_machines=True)
    assert found.exit_code == 0
    assert any("box, other" in line for line in comparison_words.lines("trust", found))


def test_a_contradicted_promise_withholds_verdicts(tmp_path):
    """Processes that alternate between two states: neighbours differ, and the method takes it for a change."""
    times = {cell: [s * (1.3 if k % 2 else 1) for k, s in enumerate(own)] for cell, own in cells(0, sd=1e-4).items()}
    found = compared(write(tmp_path / "a", times), write(tmp_path / "b", cells(1, {(ROUTES[0], 8): 3})))
    assert found.check.lower > found.settings.promise
    assert found.exit_code == 2
    assert set(found.cells["verdict"]) == {INCONCLUSIVE}
    assert "withheld" in comparison_words.text(found, False)
    assert "withheld" in comparison_words.markdown(found, False, "")


def test_the_self_check_finds_nothing_in_honest_noise(pair):
    check = compared(*pair).check
    assert (check.splits, check.cells, check.flagged, check.lower) == (2, len(ROUTES) * len(SIZES), 0, 0)
    assert 0.05 < check.upper < 0.2


def test_splits_take_one_of_every_two_neighbours():
    assert comparison.splits(3) == []
    assert comparison.splits(4) == [([0, 2], [1, 3]), ([0, 3], [1, 2])]
    for processes in range(4, 30):
        found = comparison.splits(processes)
        assert 2 <= len(found) <= comparison.MOST_SPLITS
        for one, other in found:
            assert sorted(one + other) == list(range(processes // 2 * 2))
            assert all({a, b} == {2 * k, 2 * k + 1} for k, (a, b) in enumerate(zip(one, other)))


def test_results_without_a_record_are_compared_with_a_note(tmp_path):
    found = compared(write(tmp_path / "a", cells(0), records=[]), write(tmp_path / "b", cells(1), records=[]))
    assert found.exit_code == 0 and "record" in comparison_words.lines("trust", found)[-1]


STATES = {
    "measured": [1e-6, 1.01e-6, 0.99e-6, 1e-6],
    "slow": [2e-6, 2.01e-6, 1.99e-6, 2e-6],
    "two processes": [1e-6, 1.01e-6],
    "failed": None,
    "skipped": resultfiles.SKIPPED,
    "absent": resultfiles.ABSENT,
}


def test_every_cell_has_exactly_one_verdict(tmp_path, snapshot):
    """Whatever state each side's cells are in, counts add up to the union of what either side has."""
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


def test_sides_that_ran_in_turns_are_paired(tmp_path):
    """Drift that both sides of a pair share hides a change of 5 % only from who ignores the pairs."""
    drift = np.array([1.0, 1.2, 0.9, 1.1])
    base = {cell: list(np.array(own) * drift) for cell, own in cells(0).items()}
    new = {cell: list(np.array(own) * drift) for cell, own in cells(1, {(ROUTES[0], 8): 1.05}).items()}
    paired = compared(
        write(tmp_path / "a", base, record=together("base")), write(tmp_path / "b", new, record=together("new"))
    )
    assert paired.interleaved and paired.cells["paired"].all()
    assert verdicts(paired)[ROUTES[0], 8] == SLOWER and paired.counts[SLOWER] == 1
    apart = compared(write(tmp_path / "c", base), write(tmp_path / "d", new))
    assert not apart.interleaved and not apart.cells["paired"].any() and apart.counts[SLOWER] == 0


def test_a_cell_that_lost_a_process_is_not_paired(tmp_path):
    new = cells(1)
    new[ROUTES[0], 8] = new[ROUTES[0], 8][:3]
    found = compared(
        write(tmp_path / "a", cells(0), record=together("base")), write(tmp_path / "b", new, record=together("new"))
    )
    assert (~found.cells["paired"]).sum() == 1


def test_close_cells_bring_witnesses_of_their_familys_noise(pair):
    found = compared(*pair)
    again = comparison.to_measure_again(found)
    close = set(found.cells[found.cells["close"]]["cell"])
    assert close and close <= set(again) and len(again) == len(set(again))
    assert sum("from_numpy" in cell for cell in again) >= 10
    found.cells["close"] = False
    assert comparison.to_measure_again(found) == []
