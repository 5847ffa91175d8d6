"""scripts/check_cost.py: both codes in turns, what stands for a cell, and an exit code that follows the promises."""

import json
import sys

import check_cost
import cli
import pytest
from checking import cost
from checking.noise import CALM, NEW, Step, Workplace
from test_noise import RECORD, line_of

SIZES = {"a": 8, "b": 2**20, "c": 2**26}


def ran(took=0.1, figure=1e-6, noisy=0):
    """A run of four processes a cell, of which some met noise."""
    factors = [1.0] * (4 - noisy) + [5.0] * noisy
    processes = [(cell, took * factor, figure * factor) for cell in SIZES for factor in factors]
    return {"record": RECORD, "nbytes": SIZES, "processes": processes}


def test_the_least_disturbed_quarter_stands_for_a_cell():
    """That three of four processes met noise on one side alone moves nothing."""
    found = cost.costs([ran(0.11, 1.01e-6, noisy=2)] * 2, [ran(0.10, 1e-6)])
    assert cost.time_of(found) == pytest.approx(1.1)
    assert cost.moved(found) == pytest.approx(0.01)
    assert sorted(each.nbytes for each in found) == sorted(SIZES.values())


def test_no_cell_in_common():
    with pytest.raises(cli.UserError, match="no cell in common"):
        cost.costs([ran()], [{**ran(), "processes": []}])


@pytest.fixture
def place(tmp_path):
    made = cost.Turns(tmp_path / "cost")
    made.directory.mkdir()
    plan = {"before": "", "new": "f00d", "runs": 2, "only": "", "command": "the command"}
    made._write("plan", plan)
    (made.directory / CALM).mkdir()
    for step in cost.steps(2):
        made._write(step.name, ran(0.11, 1.004e-6) if step.what == NEW else ran())
    return made


def shown(place, capsys):
    code = check_cost.main(["--resume", str(place.directory)])
    return code, capsys.readouterr().out


def test_kept_promises(place, capsys):
    code, printed = shown(place, capsys)
    assert code == 0
    assert line_of(printed, "time of a process")[1:] == ["at most 1.15", "1.100", "yes"]
    assert line_of(printed, "≥ 16 MiB: 1 cells")[2] == "1.100"
    assert line_of(printed, "without pulses against itself |")[2] == "1.000"
    assert line_of(printed, "figure of the median")[1:] == ["moves by at most 1 %", "+0.40 %", "yes"]
    assert line_of(printed, "nine cells in ten")[2] == "0.4 %"
    assert printed.splitlines()[-1].endswith("new is f00d; `the command`")


@pytest.mark.parametrize("broken, line", [({"took": 0.12}, "time of"), ({"figure": 0.98e-6}, "figure of")])
def test_broken_promise(place, capsys, broken, line):
    for number in (1, 2):
        place._write(Step(CALM, NEW, number).name, ran(**broken))
    code, printed = shown(place, capsys)
    assert code == 1
    (said,) = (text for text in printed.splitlines() if "**no**" in text)
    assert said.startswith(f"| {line}")


def test_finished_runs_are_not_repeated(place, capsys, monkeypatch):
    missing = Step(CALM, cost.PLAIN, 2)
    (place.directory / f"{missing.name}.json").unlink()
    done = []
    monkeypatch.setattr(Workplace, "do", lambda self, step: (done.append(step), self._write(step.name, ran())))
    assert shown(place, capsys)[0] == 0
    assert done == [missing]


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--runs", "1"], "--runs takes a whole number from 2"),
        (["--resume", "nowhere", "--runs", "3"], "--resume goes on with what was chosen then"),
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


@pytest.mark.slow  # two runs
def test_a_copy_without_pulses_takes_as_many_samples(tmp_path):
    """And has none, or the check would compare the code with itself."""
    place = cost.Turns(tmp_path / "cost")
    only = r"TorchToNumpy\.timeit_convert\('t.numpy\(\)', 'float32', 8\)"
    place.start({"new": "", "runs": 1, "only": only, "command": ""})
    logged = {}
    for step in cost.steps(1):
        place.do(step)
        assert len(place.result(step)["processes"]) == 4
        (log,) = (place.directory / step.name / "reports" / "results").glob("*/*.ndjson")
        logged[step.what] = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(len(line["probes"]["processor"]) > 20 for line in logged[NEW])
    assert not any(line["probes"] for line in logged[cost.PLAIN])
    assert all(len(line["seconds"]) >= 20 for line in logged[cost.PLAIN])
    waited = {step.what: place.result(step)["processes"] for step in cost.steps(1)}
    for what, lines in logged.items():
        but_for_noise = sorted(line["took"] - line["waited"] for line in lines)
        assert sorted(took for _, took, _ in waited[what]) == but_for_noise
