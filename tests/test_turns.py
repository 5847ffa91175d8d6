"""Samples in turns: two processes that alternate, a side that does not come, and verdicts on ratios of neighbours."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import resultfiles
from analysis.verdicts import FASTER, INCONCLUSIVE, NO_CHANGE, SLOWER
from sides import ROUTES, SIZES, cells, compared, together, write

from benchmarks.core import turns

ROUNDS, SAMPLES = 8, 100


@pytest.fixture
def pipes(tmp_path, monkeypatch):
    """A function: the partner of a role for a cell. Nothing is bound to a core, and nobody is waited for long."""
    monkeypatch.setattr(turns, "PATIENCE", 0.5)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    held = []
    for role in turns.ROLES:
        os.mkfifo(tmp_path / role)
        held.append(os.open(tmp_path / role, os.O_RDWR))
    yield lambda role, cell="f(8)": turns.Partner(cell, tmp_path / role)
    for file in held:
        os.close(file)


def take(partner, samples, taken, role):
    """What Timing.take does: warm up, meet, then one sample a turn."""
    met = partner.meet()
    for _ in range(samples):
        with partner.turn():
            taken.append(role)
    return met, partner.is_here


def test_both_sides_sample_in_turns_the_first_first(pipes):
    taken = []
    pipes("second", "f(4)").leave()  # left over from a cell that one side skipped
    with ThreadPoolExecutor() as pool:
        sides = [pool.submit(take, pipes(role), 20, taken, role) for role in turns.ROLES[::-1]]
    assert [side.result() for side in sides] == [(True, True)] * 2
    assert taken == [*turns.ROLES] * 20


@pytest.mark.parametrize("leaves", [True, False])
def test_a_process_goes_on_alone_without_the_other(leaves, pipes):
    """The other side skips the cell and says so, or never comes. One that comes later does not wait in vain either."""
    if leaves:
        pipes("second").leave()
    taken = []
    assert take(pipes("first"), 3, taken, "first") == (False, False) and len(taken) == 3
    if not leaves:
        assert take(pipes("second"), 3, taken, "second")[1] is False and len(taken) == 6


def test_a_process_that_ends_early_is_not_waited_for_again(pipes):
    taken = []
    with ThreadPoolExecutor() as pool:
        sides = [pool.submit(take, pipes(role), count, taken, role) for role, count in zip(turns.ROLES, (2, 9))]
    assert sides[1].result() == (True, False) and taken.count("second") == 9


def test_no_partner_without_a_pipe(monkeypatch):
    monkeypatch.delenv(turns.VARIABLE, raising=False)
    assert turns.partner_of("f(8)") is None


def sides_in_turns(folder, factor, disturbed=()):
    """Two sides whose processes are disturbed by up to 50 %, both alike in each pair of samples. New takes ``factor``
    times as long with the first route; a process differs by 0.5 % from the next. The second side takes 20 % longer.
    Samples ``disturbed`` took 9 times as long.
    """
    rng = np.random.default_rng(3)
    noise = {key: rng.uniform(0, 0.5, SAMPLES) for key in np.ndindex(len(ROUTES), len(SIZES), ROUNDS)}

    def lines(side):
        def changed(line):
            route, _, nbytes = line["params"]
            place = ROUTES.index(eval(route)), SIZES.index(int(nbytes)), line["round"]
            seconds = 1e-6 * np.exp(noise[place] + rng.normal(0, 0.005) + rng.normal(0, 0.02, SAMPLES))
            seconds *= factor if side == "new" and place[0] == 0 else 1
            seconds *= 1.2 if (side == "new") == (line["round"] % 2 == 0) else 1
            seconds[[*disturbed]] *= 9
            probes = {"processor": [20000 if each < 0.05 else 90000 for each in (0, *noise[place])]}
            return {
                **line,
                "seconds": seconds.tolist(),
                "wanted": SAMPLES,
                "probes": probes,
                "waits": [],
                "waiting": [],
            } | {
                "in_turns": True,
                "disturbed": [*disturbed],
            }

        return changed

    for side in ("base", "new"):
        write(folder / side, cells(1, processes=ROUNDS), record=together(side, rounds=ROUNDS))
        resultfiles.mend(folder / side, lines(side))
    return compared(folder / "base", folder / "new", equivalence=0.03)


@pytest.mark.parametrize("factor, verdict", [(1.03, SLOWER), (1, NO_CHANGE), (1 / 1.03, FASTER)])
def test_a_small_change_is_found_on_a_machine_that_is_never_quiet(factor, verdict, tmp_path):
    """Every cell of the changed route is judged, none of the other is flagged, and no process was quiet."""
    found = sides_in_turns(tmp_path, factor).cells
    assert not found["base_quiet"].any()
    changed = found["route"] == ROUTES[0]
    assert (found.loc[changed, "verdict"] == verdict).mean() >= 0.9
    assert {*found.loc[~changed, "verdict"]} <= {NO_CHANGE, INCONCLUSIVE}
    assert found.loc[changed, "ratio"].to_numpy() == pytest.approx(factor, rel=0.015)


def test_disturbed_samples_do_not_count_and_some_must_be_left(tmp_path):
    assert {*sides_in_turns(tmp_path / "few", 1.03, range(60)).cells["verdict"]} >= {SLOWER}
    assert {*sides_in_turns(tmp_path / "most", 1.03, range(97)).cells["verdict"]} == {INCONCLUSIVE}
