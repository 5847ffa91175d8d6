"""scripts/check_cost.py: turns that were calm count, the others do not, and its exit code follows the promises."""

import re
import sys

import check_cost
import cli
import pytest
from checking import cost
from checking.noise import BEFORE, CALM, NEW, Step, Workplace
from test_noise import RECORD, line_of


def ran(seconds, calm=0.97, factor=1.0):
    return {
        "cells": {cell: 1e-6 * factor for cell in "abc"},
        "record": {**RECORD, "seconds": seconds, "calm": calm},
    }


def turns(*each):
    """Turns of runs of this code that take so long, with so much calm, beside runs of before that take 10 s."""
    return [
        cost.turn_of(ran(seconds, calm, 1.004), ran(10.0, None), ran(seconds, 0.99, 1.004)) for seconds, calm in each
    ]


def test_a_turn_lies_between_two_runs_and_is_as_calm_as_the_worse_of_them():
    turn = cost.turn_of(ran(10.0, 0.95, 1.02), ran(10.0, None), ran(12.0, 0.85, 1.0))
    assert turn.time == pytest.approx(1.1)
    assert turn.full == 0.85 and not turn.calm
    assert set(turn.moved) == {*"abc"} and turn.moved["a"] == pytest.approx(0.0099, abs=1e-4)


def test_what_was_not_calm_does_not_count():
    table = cost.rows(turns((11.0, 0.95), (10.8, 0.92), (11.1, 0.97), (30.0, 0.5)))
    values = {row.label: (row.values[CALM], row.kept) for row in table}
    assert values["turns in which the machine was calm"] == ("3 of 4", {})
    assert values["time, new ÷ before: the median turn (least, most)"] == ("1.10 (1.08–1.11)", {CALM: True})
    assert values["figures, new ÷ before: the median of 3 cells"] == ("1.0040", {CALM: True})
    assert values["time in the turns that were not: the median"] == ("3.00", {})


@pytest.mark.parametrize("broken, label", [({"seconds": 12.0}, "time"), ({"factor": 1.02}, "figures")])
def test_broken_promise(broken, label):
    runs = [cost.turn_of(*(ran(**{"seconds": 10.0, **broken}) if new else ran(10.0) for new in (1, 0, 1)))] * 3
    kept = {row.label.partition(",")[0]: row.kept[CALM] for row in cost.rows(runs) if row.kept}
    assert kept == {"time": label != "time", "figures": label != "figures"}


def test_too_few_calm_turns_tell_nothing():
    with pytest.raises(cli.UserError, match="calm in 2 of 3 turns, and it takes 3"):
        cost.rows(turns((11.0, 0.95), (11.0, 0.95), (11.0, 0.5)))


@pytest.fixture
def place(tmp_path):
    made = Workplace(tmp_path / "cost")
    made.directory.mkdir()
    made._write("plan", {"before": "c0ffee00" * 5, "new": "f00d", "only": "", "command": "the command"})
    (made.directory / CALM).mkdir()
    return made


def test_it_goes_on_until_enough_turns_were_calm(place, monkeypatch, capsys):
    """The second is not; finished runs are kept, so that a check that was interrupted measures none again."""
    done = []

    def do(self, step):
        done.append(step.name)
        (self.directory / step.name).mkdir()
        calm = 0.6 if step == Step(CALM, NEW, 3) else 0.97
        self._write(step.name, ran(10.0 if step.what == BEFORE else 11.0, calm))

    monkeypatch.setattr(Workplace, "do", do)
    assert check_cost.main(["--resume", str(place.directory), "--turns", "3"]) == 0
    printed = capsys.readouterr().out
    assert line_of(printed, "turns in which")[2] == "3 of 5"
    assert line_of(printed, "time, new")[1:] == ["at most 1.15", "1.10 (1.10–1.10)", "yes"]
    assert printed.splitlines()[-1].endswith("new is f00d, before c0ffee00; `the command`")
    assert len(done) == 11 and done[:3] == ["calm/new-1", "calm/before-1", "calm/new-2"]
    check_cost.main(["--resume", str(place.directory), "--turns", "3"])
    assert len(done) == 11
    check_cost.main(["--resume", str(place.directory), "--turns", "4"])
    assert len(done) == 13


def test_it_ends_in_time(place, monkeypatch, capsys):
    monkeypatch.setattr(Workplace, "do", lambda self, step: self._write(step.name, ran(10.0, 0.5)))
    monkeypatch.setattr(cost.shutil, "rmtree", lambda path: None)
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr(cost.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(sys, "argv", ["check_cost.py", "--resume", str(place.directory), "--minutes", "5"])
    with pytest.raises(SystemExit) as ended:
        cli.run(check_cost.main)
    assert ended.value.code == 2
    assert "calm in 0 of" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "one of the arguments --before --resume is required"),
        (["--before", "nosuchrevision"], "is no revision of this checkout"),
        (["--before", "HEAD", "--turns", "1"], "--turns takes a whole number from 3"),
        (["--before", "HEAD", "--minutes", "0"], "--minutes takes a whole number from 1"),
        (["--resume", "nowhere"], "there is nothing to go on with"),
    ],
    ids=str,
)
def test_wrong_argument(arguments, says, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(check_cost, "SCRATCH", tmp_path)
    monkeypatch.setattr(sys, "argv", ["check_cost.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.run(check_cost.main)
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and len(lines) == 1 and says in lines[0], lines


def test_its_cells_are_the_suites(suite):
    assert [name for name in suite if re.search(cost.CELLS, name)] == ["conversion.TorchToNumpy.timeit_convert"]
