"""Rounds: what was not calm gets another process, within the time that is said, and asv's figures follow."""

import json
import re
import statistics

import measuring.rounds
import pytest
from cli import UserError
from measuring.processes import progress
from measuring.profiles import Profile, Rule, cells
from measuring.record import summed_up
from measuring.rounds import PASSES, START, cells_of, take_round
from measuring.state import State
from store import files, quiet
from store.records import Toolchain, Unfinished, name_of

CELLS = [f"toy.Toy.timeit_call({n})" for n in range(60)]


def line(cell, slow=False, waited=0.0, took=0.1):
    """What a process logs of a cell."""
    name, _, params = cell.rstrip(")").partition("(")
    pulse = 50_000 if slow else 25_000
    return {
        "benchmark": name,
        "params": [params],
        "at": 0.0,
        "wanted": 4,
        "number": 10,
        "seconds": [1e-6] * 4,
        "disturbed": [],
        "version": "v1",
        "probes": {"processor": [pulse] * 5},
        "waits": [],
        "waiting": [],
        "waited": waited,
        "took": took,
    }


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function: rounds of an asv that logs what ``slow(cell, attempt)`` says; its calls, the state, the record."""

    def take(slow, rounds=1, took=0.1, again=True, budget=1000.0, show=lambda done, more=0.0: None, planned=0):
        attempts, calls = {}, []

        def round_of(patterns, machine, state, advance, commit="", patience=(0.0, 0)):
            chosen = [cell for cell in CELLS if any(re.search(pattern, cell) for pattern in patterns)]
            calls.append((len(chosen), patience[0]))
            assert patience[1] == len(chosen)
            with state.log.open("a", encoding="utf-8") as file:
                for cell in chosen:
                    attempts[cell] = attempts.get(cell, 0) + 1
                    file.write(json.dumps(line(cell, slow(cell, attempts[cell]), took=took)) + "\n")
                    file.flush()
                    advance()

        monkeypatch.setattr(measuring.rounds, "round_of", round_of)
        monkeypatch.setattr(measuring.rounds, "PATIENCE", budget / len(CELLS) / rounds)
        state = State(tmp_path / "state")
        record = Unfinished(Toolchain(""), {}, machine="box", planned=planned)
        state.start(record)
        for number in range(rounds):
            chosen = [r"^toy\.Toy.*"]
            record = take_round(record, state, number, chosen, len(CELLS), show, "", again)
        return calls, state, record

    return take


def test_calm_machine_takes_nothing_again(machine):
    calls, state, record = machine(lambda cell, attempt: False, rounds=2)
    assert [count for count, _ in calls] == [60, 60]
    assert record.waited == 0 and record.rounds == 2 and state.load() == record
    assert {each["round"] for each in state.lines()} == {0, 1}


def test_cell_that_was_not_calm_gets_another_process_of_its_round(machine):
    lost = CELLS[7]
    calls, state, _ = machine(lambda cell, attempt: cell == lost and attempt == 1)
    assert [count for count, _ in calls] == [60, 1]
    own = [each for each in state.lines() if name_of(each) == lost]
    assert [each["round"] for each in own] == [0, 0]
    assert quiet.Run(state.lines()).rounds()[lost] == {0: True}


def test_passes_are_bounded(machine):
    calls, state, record = machine(lambda cell, attempt: cell in CELLS[:3])
    assert [count for count, _ in calls] == [60, *[3] * PASSES]
    summed = summed_up(record, state.lines())
    assert set(summed.noisy_cells) == set(CELLS[:3])
    assert summed.quiet == pytest.approx(0.9, abs=0.06) and summed.baselines == {"processor": 25_000.0}


def test_rounds_that_another_judges_are_passed_over_once(machine):
    calls, _, _ = machine(lambda cell, attempt: cell in CELLS[:3], rounds=2, planned=2)
    assert [count for count, _ in calls] == [60, 3, 60, *[3] * PASSES]


def test_a_history_waits_for_less_than_other_runs():
    assert measuring.rounds.budget(100, "tracking") == 0.75 * measuring.rounds.budget(100, "standard")
    assert measuring.rounds.budget(100, "standard") == measuring.rounds.budget(100)


def test_budget_is_kept(machine):
    """Twelve cells are lost, a process of each takes two seconds, and after asv's start there is time for five."""
    calls, _, _ = machine(lambda cell, attempt: cell in CELLS[:12], took=2.0, budget=START + 11.0)
    assert calls[1][0] == 5
    calls, _, _ = machine(lambda cell, attempt: cell in CELLS[:12], took=2.0, budget=START + 1.0)
    assert len(calls) == 1, "no time for one"


def test_progress_tells_of_cells_that_are_taken_once_more(machine, capsys):
    """Not "100 %, 0 s left" for a minute: that minute is said."""
    told = []
    machine(lambda cell, attempt: cell in CELLS[:3], took=2.0, show=lambda done, more=0.0: told.append((done, more)))
    assert [more for done, more in told if done == len(CELLS)][-3:] == [4.0, 2.0, 0.0]
    with progress(60, "measuring") as show:
        show(60, 20.0)
        assert capsys.readouterr().out == ""  # nothing to say yet: neither the end nor a quarter of a minute
        show(60)
        assert capsys.readouterr().out == "measuring: 100 %, 0 s left\n"


def test_patience_of_a_round_leaves_some_for_its_end(machine):
    calls, _, _ = machine(lambda cell, attempt: False, rounds=2, budget=100.0)
    assert [round(patience, 1) for _, patience in calls] == [33.3, 66.7], "what the first did not use is the second's"


def test_earlier_rounds_are_judged_again(machine):
    """A first round that lay wholly in a slow phase looks calm until the second has shown what the machine can do."""
    calls, state, _ = machine(lambda cell, attempt: attempt == 1, rounds=2)
    assert [count for count, _ in calls][:3] == [60, 60, 60]
    assert set(map(str, quiet.Run(state.lines()).rounds().values())) == {"{0: True, 1: True}"}


def test_sides_in_turns_take_nothing_again(machine):
    """The other side's process that ran beside it would be long gone: all they may wait is for the processes."""
    calls, _, _ = machine(lambda cell, attempt: attempt == 1, rounds=2, again=False, budget=100.0)
    assert [(count, round(patience)) for count, patience in calls] == [(60, 50), (60, 100)]


def test_cells_that_never_were_calm_come_first(machine):
    lost = CELLS[50:52]
    calls, state, _ = machine(
        lambda cell, attempt: cell in lost or (cell in CELLS[:10] and attempt > 1),
        rounds=2,
        took=2.0,
        budget=START + 5.0,
    )
    assert [name_of(each) for each in state.lines()[-2:]] == lost


def test_samples_lie_beside_the_results_and_asv_s_figures_follow(checkout):
    floor = "limits.Floor.timeit_floor"
    done = checkout.run("scripts/run.py", "--only", r"limits\.Floor", "--no-report", "--machine", checkout.machine)
    assert done.returncode == 0, done.stdout + done.stderr
    path = checkout.result_file()
    lines = files.read_measurements(path)
    assert {each["round"] for each in lines} == {0, 1, 2, 3}
    (record,) = map(json.loads, path.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines())
    assert {each["run"] for each in lines} == {record["started"]}
    assert 0 < record["quiet"] <= 1 and list(record["baselines"]) == ["processor"]
    assert f"quiet {record['quiet']:.0%} of the time" in done.stdout
    used = files.used_samples(lines)
    for params, (value, samples) in checkout.cells(floor).items():
        own, number = used[f"{floor}({params[0]})"]
        assert samples is None and value == pytest.approx(statistics.median(own)) and number >= 1

    # another run replaces the samples of its cells and leaves the others
    again = checkout.run(
        "scripts/run.py", "--only", r"limits\.Memcpy", "--rounds", "1", "--no-report", "--machine", checkout.machine
    )
    assert again.returncode == 0, again.stdout + again.stderr
    after = files.read_measurements(path)
    assert [each for each in after if each["benchmark"] == floor] == lines
    assert {each["run"] for each in after} - {record["started"]}


def test_only_chooses_cells(monkeypatch):
    """The same that asv's --bench and compare.py choose by it, a route as it stands included."""
    known = {
        "type": "time",
        "needs_device": False,
        "param_names": ["route", "nbytes"],
        "params": [["'f(a)'", "'f(a, b)'"], ["8", "64"]],
    }
    benchmarks = {"toy.Toy.timeit_call": known | {"name": "toy.Toy.timeit_call"}}
    every = Profile(1, 1.0, (Rule(r"toy\..*"),))

    def chosen(only):
        found = cells_of(every, benchmarks, only, "every")
        assert found.processes == len(cells(found.timed["toy.Toy.timeit_call"], benchmarks["toy.Toy.timeit_call"]))
        return cells(found.patterns["toy.Toy.timeit_call"], benchmarks["toy.Toy.timeit_call"])

    assert len(chosen(None)) == 4 == len(chosen("Toy"))
    assert chosen("f(a)") == ["toy.Toy.timeit_call('f(a)', 8)", "toy.Toy.timeit_call('f(a)', 64)"]
    assert chosen(r"b\).*64") == ["toy.Toy.timeit_call('f(a, b)', 64)"]
    with pytest.raises(UserError, match="--only 'nosuch' matches no cell of the profile every"):
        chosen("nosuch")
