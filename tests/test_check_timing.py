"""check.py timing: bias is called bias and noise noise, on machines busy in known ways; errors are one line."""

import json
import math
import random
import sys
from types import SimpleNamespace

import check as verb
import machines
import numpy as np
import pytest
from checking import timing as checking
from conftest import ROOT, run
from machines import Machine

from benchmarks import probes, statement, timing

KIB, MIB = 2**10, 2**20
SIZES = (8, MIB, 16 * MIB)
ROUTES = 12  # enough for the noise of a size to be learnt from all of its cells
COLD = 20  # calls of a bulk copy that a process makes before its allocator is warm


def seconds(route, nbytes):
    """Of a call, at full speed: the first half of the routes are views, the others copy at 20 GB/s."""
    return (0.4 + 0.1 * route) * 1e-6 + (nbytes / 20e9 if route >= ROUTES // 2 else 0.0)


class Toy:
    params = ([str(route) for route in range(ROUTES)], ["float32"], list(SIZES))
    param_names = ("route", "dtype", "nbytes")

    def timeit_call(self, route, dtype, nbytes):
        return str(seconds(int(route), nbytes)), {}


class Simulation:
    """A machine, the two timers on it, and how the suite's differs from the truth.

    scale, setup  its timer reads so many times the truth; it times a setup of so many seconds at every call, too
    unseen        log sd of what a block takes more or less, which no probe sees
    """

    def __init__(self, machine, scale=1.0, setup=0.0, unseen=0.0):
        self.machine, self.scale, self.setup, self.unseen = machine, scale, setup, unseen
        self.random = random.Random(1)
        self.calls = 0

    def in_child(self, work):
        self.machine.work(machines.PAUSE)
        self.calls = 0
        return json.loads(json.dumps(work()))

    def call(self, number, each):
        """Seconds that so many calls take here and now. In a new process bulk copies are slow at first."""
        cold = min(number, max(0, COLD - self.calls)) if each > 1e-4 else 0
        self.calls += number
        return self.machine.work((number + 3 * cold) * each * math.exp(self.random.gauss(0, self.unseen)))

    def suite_timer(self, expression, globals, timer):
        own = SimpleNamespace()
        own.timeit = lambda number: self.scale * self.call(number, float(expression) + self.setup)
        return own

    def torch_timer(self, expression, namespace):
        def block(number, before):
            self.call(before, float(expression))
            return SimpleNamespace(raw_times=[self.call(number, float(expression))])

        return SimpleNamespace(
            timeit=lambda number: block(number, max(number // 100, 2)),
            blocked_autorange=lambda min_run_time: block(1, 1),
        )


@pytest.fixture
def check(monkeypatch):
    """A function: what the check finds on a simulation, and ends with."""

    def run(simulation, processes=4):
        machine, toy = simulation.machine, Toy()
        made = statement.StatementBenchmark("toy.Toy.timeit_call", toy.timeit_call, [toy.timeit_call, toy])
        cells = [checking.Cell(made, (r, "float32", nbytes)) for r in toy.params[0] for nbytes in SIZES]
        monkeypatch.setattr(probes, "_RECENT", {kind: probes.Recent() for kind in probes.NEAR})
        monkeypatch.setattr(probes, "probe", machine.probe)
        monkeypatch.setattr(
            probes, "MoveProbe", lambda kind: lambda: machine.work(5e-4 if kind == probes.MEMORY else 4e-5)
        )
        for module in (probes, statement, timing, checking):
            monkeypatch.setattr(module, "time", machine)
        for module in (statement, checking):
            monkeypatch.setattr(module, "timeit", SimpleNamespace(Timer=simulation.suite_timer))
        monkeypatch.setattr(checking, "torch_timer", simulation.torch_timer)
        monkeypatch.setattr(checking, "in_child", simulation.in_child)
        monkeypatch.setattr(checking, "find_cells", lambda only, sizes: cells)
        monkeypatch.setattr(checking.os, "environ", {**checking.os.environ})
        found, judge = [], checking.judge
        monkeypatch.setattr(checking, "judge", lambda cells: found.append(judge(cells)) or found[0])
        code = verb.main(["timing", "--processes", str(processes)])
        monkeypatch.setattr(checking, "judge", judge)
        assert code == found[0].code
        return found[0]

    return run


def verdicts(found, name):
    rows = found.rows[found.rows["verdict"] == name]
    return set(zip(rows["route"], rows["bytes"]))


# Honest ---------------------------------------------------------------------------------------------------------------


MACHINES = {
    "quiet": lambda: Machine(machines.quiet_throughout),
    "a neighbour half of the time": lambda: Machine(machines.bursts(0.5)),
    "a turbo that decays": lambda: Machine(machines.turbo(gain=0.75, seconds=4.0, every=14.0)),
    "a hypervisor's steal": lambda: Machine(machines.quiet_throughout, away=machines.steal()),
}


@pytest.mark.parametrize("name", MACHINES)
def test_honest(check, name):
    found = check(Simulation(MACHINES[name]()))
    assert found.code == 0, (found.bias, found.noise)
    assert not verdicts(found, checking.BIAS)
    clear = found.rows[found.rows["verdict"] == ""]
    assert (abs(clear[["suite/torch", "torch/torch"]] - 1) < 0.02).all(axis=None) and len(clear)


# Bias -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["quiet", "a neighbour half of the time"])
def test_timer_that_reads_a_tenth_too_much(check, name):
    found = check(Simulation(MACHINES[name](), scale=1.1))
    assert found.code == 1
    assert len(verdicts(found, checking.BIAS)) > 0.8 * len(found.rows)
    clear = found.rows[found.rows["verdict"] != checking.NOISY]
    assert (abs(clear[["suite/torch", "block/torch"]] - 1.1) < 0.02).all(axis=None)


def test_timer_that_reads_three_percent_too_much(check):
    """No cell is beyond 5 %, and the median cell is beyond 2 %."""
    found = check(Simulation(Machine(machines.quiet_throughout), scale=1.03))
    assert found.code == 1 and not verdicts(found, checking.BIAS)
    assert found.rows["suite/torch"].median() == pytest.approx(1.03, abs=0.005)


def test_setup_that_is_timed(check):
    """A fifth of a microsecond a call: bias of what takes a microsecond, and of nothing that takes a millisecond."""
    found = check(Simulation(Machine(machines.quiet_throughout), setup=2e-7))
    places = zip(found.rows["route"], found.rows["bytes"])
    assert found.code == 1
    assert verdicts(found, checking.BIAS) == {each for each in places if seconds(int(each[0]), each[1]) < 3e-6}


def test_warm_up_left_out(check, monkeypatch):
    """A fresh bulk copy is slow in a new process: the suite's figure is biased, and no block is."""

    def short(self):
        self.number = max(1, int(timing.SAMPLE_SECONDS / self.timer.timeit(1)))
        return self.number

    monkeypatch.setattr(timing.Timing, "warm_up", short)
    found = check(Simulation(Machine(machines.quiet_throughout)))
    bulk = {(str(route), 16 * MIB) for route in range(ROUTES // 2, ROUTES)}
    assert found.code == 1 and verdicts(found, checking.BIAS) == bulk
    assert (abs(found.rows["block/torch"] - 1) < 0.02).all()
    assert (found.rows.loc[found.rows["verdict"] == checking.BIAS, "suite/torch"] > 3).all()


# Noise ----------------------------------------------------------------------------------------------------------------


def restless(length, span=2.0, until=400.0):
    """Speeds anywhere between the best and ``span`` times slower, another one every ``length`` seconds."""
    levels = np.exp(np.random.default_rng(0).uniform(0, math.log(span), int(until / length))).tolist()
    return lambda t: levels[int(t / length)]


NOISY = {
    "another speed in every sample": {"machine": restless(5e-3)},
    "several speeds in a sample": {"machine": restless(3e-4)},
    "what no probe sees": {"machine": machines.quiet_throughout, "unseen": 0.35},
}


@pytest.mark.parametrize("name", NOISY)
def test_noise_is_not_called_bias(check, name):
    slow, unseen = NOISY[name]["machine"], NOISY[name].get("unseen", 0.0)
    found = check(Simulation(Machine(slow), unseen=unseen))
    assert not verdicts(found, checking.BIAS)
    if name == "another speed in every sample":  # probes see it, and it is taken out: that there is no bias can be told
        assert found.code == 0, found.noise
        return
    assert found.code == 2, found.bias


def test_bias_is_found_in_noise(check):
    """Where the check cannot tell an honest suite from a biased one cell by cell, the median cell still may."""
    found = check(Simulation(Machine(restless(3e-4)), scale=1.2))
    assert found.code == 1
    assert found.bias[-1].partition(" is ")[0] == "the median block/torch"


def noise(rng, sd, cells=185, processes=4):
    """Readings of one timer: normal, and one in ten processes three times as far off."""
    return sd * rng.standard_normal((cells, processes)) * rng.choice([1, 1, 1, 1, 1, 1, 1, 1, 1, 3], (cells, processes))


SIZE_OF = np.repeat([str(size) for size in checking.SIZES], 37)


@pytest.mark.parametrize("sd", [0.005, 0.03, 0.1])
def test_false_alarms_are_rare(sd):
    """In a run of 185 cells noise has one called biased in 5 % of runs at most, however strong it is."""
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        readings = [noise(rng, sd) for _ in range(3)]
        alarms += checking.deviations(*readings, SIZE_OF, len(SIZE_OF))["biased"].any()
    assert alarms <= 9  # as many as a rate of 5 % has by chance


@pytest.mark.parametrize("itself, biased", [(0.0, [17]), (math.log(1.1), [])])
def test_one_biased_cell_is_found_unless_torch_deviates_from_itself_as_much(itself, biased):
    rng = np.random.default_rng(0)
    own, torch, again = (noise(rng, 0.005) for _ in range(3))
    own[17] += math.log(1.1)
    again[17] += itself
    found = checking.deviations(own, torch, again, SIZE_OF, len(SIZE_OF))
    assert np.flatnonzero(found["biased"]).tolist() == biased and found["noisy"][17] == (not biased)
    assert found["noisy"].mean() < 0.05


def test_blocks_keep_their_probes(check, monkeypatch):
    """A line of each timer, with a probe before and one behind each of its blocks."""
    taken, measure = [], checking.measure
    monkeypatch.setattr(checking, "measure", lambda *given: taken.append(measure(*given)) or taken[-1])
    check(Simulation(Machine(machines.quiet_throughout)))
    for process in taken:
        assert tuple(process) == checking.TIMERS
        for timer in checking.TIMERS[1:]:
            line = process[timer]
            count = len(line["seconds"])
            assert line["waits"] == list(range(1, count)) and {*map(len, line["probes"].values())} == {2 * count}
    probes = taken[0][checking.SUITE]["probes"]["processor"], taken[0][checking.TORCH]["probes"]["processor"]
    assert probes[0][1] == probes[1][0], "behind one is before the next"


# The command ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--sizes", "8,"], "--sizes '8,': takes bytes, separated by commas"),
        (["--sizes", "9"], "--sizes 9: the suite has 8, 4096"),
        (["--only", "no such route"], "--only 'no such route' matches no cell"),
        (["--processes", "1"], "--processes takes a whole number from 2"),
    ],
)
def test_errors_are_one_line_before_anything_is_measured(monkeypatch, called, arguments, says):
    monkeypatch.setattr(checking, "measure_all", lambda *_: pytest.fail("it measured"))
    monkeypatch.setattr(checking.os, "environ", {**checking.os.environ})
    code, said, complaint = called(verb, "timing", *arguments)
    assert (code, said, complaint.count("\n")) == (2, "", 1) and complaint.startswith(f"check.py: {says}")


def test_slow_cells_have_fewer_processes(monkeypatch):
    """A call that takes a second takes minutes in four processes."""
    taken = {"quick": {"run": {"seconds": [1e-6]}}, "slow": {"run": {"seconds": [1.0]}}, "skipped": None}
    cells = [checking.Cell(None, (route, "float32", 8)) for route in taken]
    monkeypatch.setattr(checking, "in_child", lambda work: taken[work.args[0].params[0]])
    checking.measure_all(cells, 4)
    assert [(len(cell.processes), cell.skipped) for cell in cells] == [(4, False), (2, False), (0, True)]


@pytest.mark.slow
def test_on_this_machine(tmp_path):
    """One cell, really: no bias is found in an honest suite, be the machine quiet or not."""
    options = ("--only", "'t.numpy()'", "--sizes", "8", "--processes", "2")
    done = run(sys.executable, ROOT / "scripts" / "check.py", "timing", *options, home=tmp_path)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    assert "t.numpy()" in done.stdout
