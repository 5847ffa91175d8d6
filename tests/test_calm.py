"""Pulses: which level of a machine is its full speed, and which samples are kept, on machines busy in known ways."""

import math

import machines
import numpy as np
import pytest
from machines import Machine
from records import calm

from benchmarks import pulses, said, statement, timing

pytestmark = pytest.mark.slow  # simulates machines for minutes of theirs

CALL = 500e-9  # seconds of the call that is timed, at full speed
PROCESSES = 240


class Timer:
    """timeit's, on a simulated machine."""

    def __init__(self, machine, call=CALL):
        self.machine, self.call = machine, call

    def timeit(self, number):
        return self.machine.work(number * self.call)


@pytest.fixture
def simulated(monkeypatch):
    """A function: the lines that PROCESSES processes log on a machine, in rounds with a rest between them."""

    def run(machine, call=CALL, processes=PROCESSES, rounds=4, rest=2.0):
        class Toy:
            params = [["x"]]
            param_names = ["route"]

            def timeit_call(self, route):
                return "", {}

        toy = Toy()
        made = statement.StatementBenchmark("toy.Toy.timeit_call", toy.timeit_call, [toy.timeit_call, toy])
        lines = []
        monkeypatch.setattr(pulses, "time", machine)
        monkeypatch.setattr(timing, "time", machine)
        monkeypatch.setattr(statement, "time", machine)
        monkeypatch.setattr(pulses, "pulse", machine.pulse)
        monkeypatch.setattr(pulses, "_RECENT", {kind: pulses.Recent() for kind in pulses.CALM})
        monkeypatch.setattr(said, "log", lambda **line: lines.append(line))
        for number in range(rounds):
            machine.now += rest
            for cell in range(processes // rounds):
                machine.work(machines.PAUSE)
                made._current_params = ("x",)
                made._began = machine.now
                made._load_vars()
                made._measure(Timer(machine, call), ("x",), None, 1)
                lines[-1] |= {"run": "one", "round": number, "params": [repr(cell)]}
        return lines

    return run


def judged(lines):
    """Floors, and cell -> the processes that its figure rests on."""
    return calm.floors(lines), calm.chosen(lines)


def figures(found):
    """Each cell's seconds: median of its processes' figures."""
    return {cell: float(np.median([process.seconds for process in own.values()])) for cell, own in found.items()}


def is_calm(own):
    return all(process.calm for process in own.values())


def holds_full_speed(lines):
    """The floor is the machine's full speed, and nine cells in ten are calm and read right."""
    floors, found = judged(lines)
    assert floors["processor"] * 1e-9 == pytest.approx(machines.PULSE, rel=0.02)
    kept = {cell: value for cell, value in figures(found).items() if is_calm(found[cell])}
    assert len(kept) > 0.9 * len(found)
    assert all(value == pytest.approx(CALL, rel=0.02) for value in kept.values())


def test_both_halves_of_the_rule_speak_of_the_same():
    """What takes samples imports no scripts, and scripts import no benchmarks: each has its own copy of these."""
    assert (pulses.CALM, pulses.LEVEL, pulses.HELD) == (calm.NEAR, calm.LEVEL, calm.HELD)
    assert (pulses.POLL, timing.DIGITS) == (calm.POLL_SECONDS, calm.DIGITS)


def test_a_figure_is_the_lower_end_of_the_calm_samples():
    """As numpy interpolates it; two calm pulses do not see a burst between them."""
    samples = [3.0, 1.0, 1.1, 9.0, 1.2, 1.3, 1.4]
    for count in range(1, len(samples) + 1):
        process = calm.Process(samples[:count], True, 7, 1)
        assert process.seconds == pytest.approx(np.quantile(samples[:count], calm.QUANTILE))


def test_what_never_was_calm_takes_at_most_the_fastest_sample_of_all():
    """Of every process of the cell, those taken again included; one calm process is worth more than all of them."""

    def line(number, slow, *seconds):
        pulse = [50_000 if slow else 25_000] * (len(seconds) + 1)
        about = {"benchmark": "toy.Toy.timeit_call", "params": [], "run": "one", "at": 0.0, "took": 0.1, "waits": []}
        return (
            about
            | {"round": number, "wanted": 2, "number": 7, "seconds": seconds, "disturbed": []}
            | {"probes": {"processor": pulse}}
        )

    known = {"processor": 25_000.0}
    busy = [line(0, True, 4.0, 3.0), line(0, True, 2.0, 2.5), line(1, True, 5.0, 6.0)]
    found = calm.attempts(busy, known)["toy.Toy.timeit_call"]
    assert calm.select(found) == {0: calm.Process([2.0], False, 2, 7, "one")}
    found = calm.attempts([*busy, line(1, False, 3.5, 3.6), line(1, True, 1.0, 1.0)], known)["toy.Toy.timeit_call"]
    assert calm.select(found) == {1: calm.Process([3.5, 3.6], True, 2, 7, "one", floor=25_000.0)}


def paced(seconds, processor, **more):
    """A process that took such samples, with so long a pulse before the first and behind each."""
    line = {"number": 7, "seconds": seconds, "wanted": len(seconds), "disturbed": [], "waits": [], "round": 0}
    return calm.judge(line | {"probes": {"processor": processor}} | more, {"processor": 25_000.0, "memory": 200_000.0})


def test_a_pulse_behind_bytes_in_memory_finds_its_code_driven_out():
    """It takes a few µs more, though the machine is at full speed; not the one before, nor the one after a wait."""
    memory = {"memory": [200_000] * 4}

    def calm_of(processor, waits=(), pulses=memory):
        line = {"seconds": [1.0, 1.1, 1.2][: len(processor) - 1 - len(waits)], "waits": list(waits), "disturbed": []}
        line |= {"number": 7, "wanted": 1, "round": 0, "probes": {"processor": processor} | pulses}
        return calm.judge(line, {"processor": 25_000.0, "memory": 200_000.0, "cache": 200_000.0})

    high = int(25_000 * 1.1)
    behind = high + calm.COLD
    assert calm_of([25_000, behind, behind, behind]).samples == [1.0, 1.1, 1.2]
    assert calm_of([high, behind, behind + 2, behind]).samples == [1.0], "more is another one's"
    assert calm_of([high + 2, behind, behind, behind]).samples == [1.1, 1.2], "before the first there is no sample"
    waited = [25_000, behind, high + 2, behind]  # of the two looks between two samples the second follows the wait
    assert calm_of(waited, waits=[1]).samples == [1.0]
    assert calm_of([25_000, behind, 25_000, behind], waits=[1]).samples == [1.0, 1.1]
    assert not calm_of([25_000, behind, behind, behind], pulses={"cache": [200_000] * 4}).calm
    lines = [{"at": 0, "seconds": [1.0] * 3, "waits": [], "probes": {"processor": [25_000, *[behind] * 3]}}]
    lines[0]["probes"]["memory"] = [300_000, 200_000, 200_000, 200_000]
    lines += [{"at": 1, "seconds": [1.0] * 200, "waits": [], "probes": {"processor": [25_000] * 201}}]
    assert calm.floors(lines) == pytest.approx({"processor": 25_000, "memory": 200_000}), "found behind samples, too"


def test_what_a_clock_does_within_calm_is_taken_out():
    """Pulses and samples take 6 % longer alike; a pulse that something else lengthens does not shorten a figure."""
    process = paced([1.06, 1.07, 1.08], [26_500] * 4)
    assert process.calm and process.samples == pytest.approx([1.0, 1.07 / 1.06, 1.08 / 1.06], rel=1e-5)
    assert paced([1.0] * 4, [25_000, 25_000, 25_000, 27_000, 25_000]).seconds == pytest.approx(1.0)
    assert paced([1.0] * 3, [24_000] * 4).seconds == pytest.approx(25 / 24, rel=1e-5), (
        "faster than the level that is held"
    )


@pytest.mark.parametrize(
    "more",
    [
        {"probes": {"processor": [26_500] * 3, "memory": [200_000] * 3}},  # waits for memory, which has its own clock
        {"device": [{}, {}]},
        {"on_device": True},
        {"probes": {"processor": [60_000] * 3}},  # never calm: as it was taken
        {"pulses": {}},
    ],
    ids=str,
)
def test_what_goes_by_another_clock_stays_as_it_was_taken(more):
    process = paced([1.06, 1.07], [26_500] * 3, **more)
    assert process.samples == [1.06, 1.07] and math.isnan(process.floor)


def test_floor_of_what_moves_bytes_is_that_of_a_processor_at_full_speed():
    """A busy machine: nine in ten pulses are slow, and those in the caches nowhere near a level by themselves."""
    rng = np.random.default_rng(2)
    lines = []
    for at in range(200):
        slow = rng.random(21) < 0.93
        own = np.where(slow, 50_000, 25_000)
        moved = 30_000 * np.where(slow, 1.1 + rng.random(21), 1 + 0.06 * rng.random(21))
        lines.append({"at": at, "probes": {"processor": own.tolist(), "cache": moved.round().tolist()}})
    assert calm.floor([pulse for line in lines for pulse in line["probes"]["cache"]]) > 31_000, "by themselves"
    found = calm.floors(lines)
    assert found == {"processor": pytest.approx(25_000), "cache": pytest.approx(30_400, rel=0.015)}
    assert calm.floors([]) == {} == calm.floors([{"at": 0, "pulses": {}}])


# The rule, on whole machines ------------------------------------------------------------------------------------------


def test_calm_throughout(simulated):
    """Nothing is taken again, and nothing is waited for."""
    lines = simulated(Machine(machines.calm))
    floors, found = judged(lines)
    assert floors["processor"] * 1e-9 == pytest.approx(machines.PULSE, rel=0.01)
    assert all(is_calm(own) and len(own) == 4 for own in found.values())
    assert all(value == pytest.approx(CALL, rel=0.01) for value in figures(found).values())
    assert sum(len(line["seconds"]) - line["wanted"] for line in lines) <= 0.01 * sum(line["wanted"] for line in lines)
    assert sum(line["waited"] for line in lines) < 0.01 * sum(line["took"] for line in lines)
    assert calm.share(lines, floors) > 0.99


@pytest.mark.parametrize("share", [0.5, 0.85])
def test_neighbour_on_the_core(simulated, share):
    """Slow 50 and 85 % of the time, in phases of milliseconds to seconds: what is kept is what a calm machine reads."""
    lines = simulated(Machine(machines.bursts(share)))
    floors, found = judged(lines)
    assert floors["processor"] * 1e-9 == pytest.approx(machines.PULSE, rel=0.02)
    assert sum(is_calm(own) for own in found.values()) > 0.97 * len(found)
    off = [abs(math.log(value / CALL)) for cell, value in figures(found).items() if is_calm(found[cell])]
    assert max(off) < 0.06 and sorted(off)[len(off) // 2] < 0.01
    assert calm.share(lines, floors) == pytest.approx(1 - share, abs=0.2)


def test_neighbour_without_pulses(simulated, monkeypatch):
    """The same machine, nothing waited for and nothing selected: what the test above would let through otherwise."""
    monkeypatch.setattr(pulses, "PATIENCE", 0.0)
    lines = simulated(Machine(machines.bursts(0.5)))
    raw = [sorted(line["seconds"])[len(line["seconds"]) // 4] for line in lines]
    assert sum(value > 1.3 * CALL for value in raw) > 0.3 * len(raw)


def test_turbo_that_decays(simulated):
    """The clock of the first seconds, and of a moment after each rest, is never seen again: it is not the floor."""
    lines = simulated(Machine(machines.turbo(gain=0.75, seconds=4.0, every=14.0)))
    floors, found = judged(lines)
    assert floors["processor"] * 1e-9 == pytest.approx(machines.PULSE, rel=0.02)
    assert all(value == pytest.approx(CALL, rel=0.02) for cell, value in figures(found).items() if is_calm(found[cell]))
    assert sum(is_calm(own) for own in found.values()) > 0.9 * len(found)
    # what was learnt in the turbo is forgotten: the machine does not wait for it for ever
    assert sum(line["waited"] for line in lines) < 0.35 * sum(line["took"] for line in lines)


def logs_of(lines):
    """Log seconds of each cell's calm processes, as taken and at full speed: (processes, 2) arrays."""
    floors, by_cell = calm.floors(lines), {}
    for line in lines:
        process = calm.judge(line, floors)
        if process.calm:
            taken = calm.judge(line, floors, at_full_speed=False)
            by_cell.setdefault(calm.name_of(line), []).append((math.log(taken.seconds), math.log(process.seconds)))
    return [np.array(each) for each in by_cell.values() if len(each) >= 3]


def test_clock_that_wanders(simulated):
    """Within what is calm. What is left in the figures is a third of what the clock makes of them, and less."""
    cells = logs_of(simulated(Machine(machines.wandering())))
    as_taken, at_full_speed = np.median([cell.std(axis=0, ddof=1) for cell in cells], axis=0)
    assert as_taken > 0.01 and at_full_speed < as_taken / 3
    apart = np.concatenate([cell - cell.mean(axis=0) for cell in cells])
    paces = apart[:, 0] - apart[:, 1]
    assert paces @ apart[:, 0] / (paces @ paces) == pytest.approx(1, abs=0.1), "samples follow the pulses"


def test_throttling(simulated):
    """Two fifths of every period too hot: the floor is the speed that comes back."""
    lines = simulated(Machine(machines.throttling(slow=1.5, period=5.0, hot=2.0)))
    holds_full_speed(lines)


def test_throttled_for_good(simulated):
    """Hot after the first eighth, and never fast again: the level that is held is the slow one."""
    lines = simulated(Machine(machines.phase(slow=1 / 1.5, end=3.0)), rest=0.0)
    holds_full_speed(lines)


def test_quota(simulated):
    """A container's quota takes the processor away for half of each tenth of a second; the clock is as it was."""
    lines = simulated(Machine(machines.calm, away=machines.quota()))
    floors, found = judged(lines)
    assert floors["processor"] * 1e-9 == pytest.approx(machines.PULSE, rel=0.02)
    assert all(is_calm(own) for own in found.values())
    assert all(value == pytest.approx(CALL, rel=0.01) for value in figures(found).values())


def test_quota_and_calls_longer_than_it(simulated):
    """A call of 80 ms never has its processor throughout: no figure of it is called calm."""
    lines = simulated(Machine(machines.calm, away=machines.quota()), call=0.08, processes=16)
    _, found = judged(lines)
    assert not any(is_calm(own) for own in found.values())


@pytest.mark.parametrize("hidden", [False, True])
def test_steal(simulated, hidden):
    """A hypervisor takes the processor for 2 ms of 11, whether or not the guest's accounting of CPU time sees it."""
    lines = simulated(Machine(machines.calm, away=machines.steal(), hidden=hidden))
    floors, found = judged(lines)
    assert floors["processor"] * 1e-9 == pytest.approx(machines.PULSE, rel=0.02)
    assert all(value == pytest.approx(CALL, rel=0.02) for value in figures(found).values())


def test_run_that_begins_in_a_slow_phase(simulated):
    """What was kept while nothing better was known is dropped when the whole run is in sight."""
    lines = simulated(Machine(machines.phase(slow=1.4, end=4.0)), rest=0.0)
    floors, found = judged(lines)
    early = [line for line in lines if line["at"] < 3.5]
    assert early and not any(calm.judge(line, floors).calm for line in early)
    kept = {cell: value for cell, value in figures(found).items() if is_calm(found[cell])}
    assert all(value == pytest.approx(CALL, rel=0.02) for value in kept.values())
