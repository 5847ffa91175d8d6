"""Speed probes find a machine's baseline and its quiet samples, on simulated machines that are busy in known ways."""

import math
import random
from bisect import bisect
from types import SimpleNamespace

import numpy as np
import pytest
from analysis import suite
from resultfiles import process
from statements import benchmark
from store import quiet
from store.schema import TimedProcess, from_json

from benchmarks.core import probes, statement, timing

pytestmark = pytest.mark.slow  # simulates minutes of a machine's time

CALL = 500e-9  # seconds of the timed call at full speed
ROUNDS, REST = 4, 2.0  # seconds before each round
PROBE, PAUSE = 25e-6, 30e-3  # seconds of a probe on the quiet machine; seconds of a process's start
OVERHEAD = 1e-7  # seconds that reading the clock takes


class Machine:
    """A simulated machine that is busy in a known way: a clock, and the slowdown at each time.

    It replaces ``time`` and ``probe`` in benchmarks/core/probes.py. So the code that takes samples runs as on a real
    machine, but thousands of times faster.

    slow(t)  factor by which work takes longer at t seconds
    away(t)  whether the processor is taken away at t seconds
    hidden   whether the guest's accounting of CPU time misses the time taken away
    """

    def __init__(self, slow=lambda t: 1.0, away=lambda t: False, hidden=False):
        self.slow, self.away, self.hidden = slow, away, hidden
        self.now = self.used = 0.0
        self.random = random.Random(0)

    def perf_counter(self):
        self.now += OVERHEAD
        return self.now

    def process_time(self):
        return self.used

    def time(self):
        return self.now

    def work(self, seconds):
        """Do work of ``seconds`` at full speed, in small steps at the speed of their time. Return its duration."""
        begun, left = self.now, seconds
        step = max(1e-4, seconds / 50)
        while left > 0:
            if self.away(self.now):
                self.now += 1e-3
                self.used += 1e-3 if self.hidden else 0.0
                continue
            part = min(step, left)
            took = part * self.slow(self.now) * (1 + 0.002 * abs(self.random.gauss(0, 1)))
            self.now += took
            self.used += took
            left -= part
        return self.now - begun


def bursts(share):
    """Return the slowdown by a neighbour on the core: phases of milliseconds to seconds, for ``share`` of the time."""
    rng = np.random.default_rng(1)
    lengths = rng.exponential(0.05, 8000) * rng.choice([0.05, 0.3, 3.0], 8000)
    lengths[::2] *= share / (1 - share)
    ends = np.cumsum(lengths).tolist()
    return lambda t: 1.9 if bisect(ends, t) % 2 == 0 else 1.0


def quota(t):
    """Return whether a cgroup's quota takes the processor away: the second half of each tenth of a second."""
    return t % 0.1 > 0.05


def steal(t):
    """Return whether a hypervisor takes the processor away: 2 ms of every 11 ms."""
    return t % 0.011 < 0.002


@pytest.fixture
def simulated(monkeypatch):
    """A function that simulates processes on a machine, in rounds with a rest before each.

    It returns the run and a table by cell: median seconds of its processes, whether all are quiet, and their number.
    """

    def run(machine, call=CALL, count=240):
        logged, timer = [], SimpleNamespace(timeit=lambda number: machine.work(number * call))
        made = benchmark(timed_by=timer)
        for module in (probes, timing, statement):
            monkeypatch.setattr(module, "time", machine)
        monkeypatch.setattr(probes, "probe", lambda: machine.work(PROBE))
        monkeypatch.setattr(probes, "_RECENT", {kind: probes.Recent() for kind in probes.NEAR_BASELINE_LOG})
        monkeypatch.setattr(timing, "log", lambda **line: logged.append(line))
        for number in range(ROUNDS):
            machine.now += REST
            for cell in range(count // ROUNDS):
                machine.work(PAUSE)
                made.do_setup()
                made.run()
                logged[-1] |= {"run": "one", "round": number, "params": [repr(cell)]}
        lines = [from_json(TimedProcess, line) for line in logged]
        by_cell = processes(lines).groupby("place")
        found = by_cell.agg(seconds=("seconds", "median"), quiet=("quiet", "all"), count=("quiet", "size"))
        return quiet.Run(lines), found

    return run


def processes(lines):
    """Return one row per process behind a figure. ``place`` is the name of its cell."""
    return suite.timed_processes(lines, {line.cell: line.cell for line in lines}, [])


def line(seconds, processor=(), **more):
    """Return a process with these samples. ``processor``: ns of the probes before the first and after each sample."""
    return process(seconds, **{"probes": {"processor": processor} if processor else {}, **more})


def alone(line):
    """Return a run of only this process, on a machine with known baselines."""
    run = quiet.Run([line])
    run.baselines = {"processor": 25_000.0, "memory": 200_000.0, "cache": 200_000.0}
    return run


def test_a_figure_is_the_lower_end_of_the_quiet_samples():
    """The figure is a low quantile, interpolated as numpy does: two quiet probes do not see a burst between them."""
    samples = [3.0, 1.0, 1.1, 9.0, 1.2, 1.3, 1.4]
    for count in range(1, len(samples) + 1):
        run = alone(line(samples[:count]))
        assert run.quiet.all() and run.figures == pytest.approx(np.quantile(samples[:count], quiet.QUANTILE))
    groups = np.array([0, 0, 2, 2, 2])
    found = quiet._quantile(np.array([4.0, 2.0, 1.0, 3.0, 2.0]), groups, 4)
    assert found[::2] == pytest.approx([2.2, 1.2]) and np.isnan(found[1::2]).all(), "a group without values has none"


def test_a_noisy_cell_takes_at_most_its_fastest_sample():
    """A noisy cell's figure is the fastest sample of all its processes, repeated ones included. If one process is
    quiet, only that one counts."""
    fast, slow = [25_000] * 3, [50_000] * 3
    others = [line([1.0, 1.0], fast, benchmark=f"toy.Toy.timeit_{number}") for number in range(20)]
    busy = [line([4.0, 3.0], slow), line([2.0, 2.5], slow), line([5.0, 6.0], slow, round=1)]
    again = [line([7.0, 7.0], fast, round=1), line([6.0, 6.0], fast, round=1)]  # the first quiet one of a round counts
    for more, figure in (([], (0, 2.0, False, math.nan)), (again, (1, 7.0, True, 25_000))):
        found = processes([*others, *busy, *more]).set_index("place").loc["toy.Toy.timeit_call"]
        assert tuple(found[["process", "seconds", "quiet", "baseline"]]) == pytest.approx(figure, nan_ok=True)


def test_a_probe_behind_bytes_in_memory_finds_its_code_driven_out():
    """A processor probe right after a sample that moves bytes in memory takes a few µs more, even at full speed. Probes
    before the first sample or after a wait do not."""

    def quiet_samples(*processor, waits=(), moved="memory"):
        seconds, probes = [1.0, 1.1, 1.2][: 3 - len(waits)], {"processor": processor, moved: [200_000] * 4}
        run = alone(line(seconds, waits=waits, probes=probes))
        return run.seconds[run.quiet_samples].tolist()

    high = int(25_000 * 1.1)
    behind = high + quiet.COLD_PROBE_NS
    assert quiet_samples(25_000, behind, behind, behind) == [1.0, 1.1, 1.2]
    assert quiet_samples(high, behind, behind + 2, behind) == [1.0], "more is another one's"
    assert quiet_samples(high + 2, behind, behind, behind) == [1.1, 1.2], "before the first there is no sample"
    # a wait between two samples has a probe before and one after it
    assert quiet_samples(25_000, behind, high + 2, behind, waits=[1]) == [1.0]
    assert quiet_samples(25_000, behind, 25_000, behind, waits=[1]) == [1.0, 1.1]
    assert quiet_samples(25_000, behind, behind, behind, moved="cache") == []
    moving = {"processor": [25_000, *[behind] * 3], "memory": [300_000, 200_000, 200_000, 200_000]}
    run = quiet.Run([line([1.0] * 3, probes=moving), line([1.0] * 200, [25_000] * 201, at=1)])
    assert run.baselines == pytest.approx({"processor": 25_000, "memory": 200_000}), "found behind samples, too"


DEVICE = {"link generation": 5, "clock": 1980, "slowed by": []}
LONGER = [1.06, 1.07], [26_500] * 3


@pytest.mark.parametrize(
    "seconds, processor, more, figure",
    [
        ([1.06, 1.07, 1.08], [26_500] * 4, {}, 1 + 0.2 * (1.07 / 1.06 - 1)),  # probes and samples are equally slower
        ([1.0] * 3, [24_000] * 4, {}, 25 / 24),  # faster than the baseline
        ([1.0] * 4, [25_000, 25_000, 25_000, 27_000, 25_000], {}, 1.0),  # one longer probe is not the clock's doing
        # no correction for work that does not follow the processor's clock, such as memory or a device
        (*LONGER, {"probes": {"processor": [26_500] * 3, "memory": [200_000] * 3}}, 1.061),
        (*LONGER, {"device": [DEVICE, DEVICE]}, 1.061),
        (*LONGER, {"on_device": True}, 1.061),
        ([1.06, 1.07], [], {}, 1.061),
        ([1.06, 1.07], [60_000] * 3, {}, 1.06),  # never quiet
    ],
)
def test_what_the_processors_clock_does_within_quiet_is_taken_out(seconds, processor, more, figure):
    assert alone(line(seconds, processor, **more)).figures == pytest.approx(figure, rel=1e-5)


def test_what_waits_for_a_device_alone_is_judged_by_its_own_spread():
    """Samples that only wait for a device are judged by their own spread. Probes of the host say nothing of a copy
    engine: on a noisy host they marked pinned copies as noisy whose times were right to 0.4 %."""
    held_up, steady = [1e-3, 1.5e-3, 2e-3, 2.5e-3, 3e-3], [1e-3, 1.004e-3, 1.008e-3, 1e-3, 4e-3]
    calls = [second / 100 for second in held_up]  # too short for their spread to matter
    run = quiet.Run([line(taken, on_device=True, number=1) for taken in (held_up, steady, calls)])
    assert list(run.quiet) == [False, True, True]
    assert max(run.used_samples(1)) < 1.05e-3 and run.figures[1] == pytest.approx(1e-3, rel=1e-3)


def test_floor_of_what_moves_bytes_is_that_of_a_processor_at_full_speed():
    """The baseline of probes that move bytes uses the moments when the processor's probe is quiet. On this busy machine
    93 % of probes are slow, and cache probes by themselves show no level."""
    rng = np.random.default_rng(5)
    slow = rng.random(4200) < 0.93
    own = np.where(slow, 50_000, 25_000)
    moved = 30_000 * np.where(slow, 1.1 + rng.random(4200), 1 + 0.06 * rng.random(4200))
    assert quiet.baseline(moved) > 31_000, "by themselves"
    found = quiet.Run([line([1.0] * 4199, probes={"processor": own, "cache": moved})]).baselines
    assert found == {"processor": pytest.approx(25_000), "cache": pytest.approx(30_400, rel=0.015)}
    assert quiet.Run([]).baselines == {} == quiet.Run([line([1.0])]).baselines


def test_what_moves_bytes_is_judged_by_memory_not_by_a_shared_cache():
    """While neighbours rest, a shared cache has part of the bytes of some probes. Then copies are quiet nevertheless.
    Without a level of their own, the fast probes are the baseline."""
    rng = np.random.default_rng(6)
    usual = 205_000 * np.exp(np.abs(rng.normal(0, 0.07, 4200)))
    moved = np.where(rng.random(4200) < 0.08, rng.uniform(110_000, 195_000, 4200), usual)
    assert quiet.baseline(moved) < 175_000, "as a machine that holds no level"
    run = quiet.Run([line([1.0] * 4199, probes={"processor": [25_000] * 4200, "memory": moved})])
    assert run.baselines["memory"] == pytest.approx(208_000, rel=0.02) and run.quiet_samples.mean() > 0.8
    scattered = line([1.0] * 4199, probes={"processor": [25_000] * 4200, "memory": 1e5 * rng.uniform(1, 10, 4200)})
    assert quiet.Run([scattered]).baselines["memory"] == pytest.approx(1.45e5, rel=0.1)


def test_a_machine_that_holds_no_level_has_the_baseline_that_it_reaches():
    """A machine without a level has the baseline that its fast probes reach. Probes of two runs of one machine take
    23 to 45 µs, with a bump at 32.5 µs that may look like a level. Calls between two probes at the bump took up to
    twice as long as undisturbed ones."""
    rng = np.random.default_rng(4)

    def run(fastest, bump):
        return rng.permutation(np.concatenate([rng.triangular(fastest, 35, 45, 10_000), rng.normal(32.5, 0.2, bump)]))

    one, other = quiet.baseline(run(23, 1500)), quiet.baseline(run(22, 500))
    assert max(one, other) < 29 and one == pytest.approx(other, rel=0.08)
    brief = np.concatenate([rng.normal(20, 0.1, 3000), rng.normal(25, 0.1, 9000)])  # a clock that it cannot keep
    assert quiet.baseline(brief) == pytest.approx(25, rel=0.01)


# The rule, on whole machines ------------------------------------------------------------------------------------------


# Name -> machine, quiet share of its time, largest relative error of its baseline, smallest share of cells with quiet
# processes only, largest relative error of their figures, largest ratio of time waited to time taken
WHOLE = {
    "quiet throughout": (Machine(), 1.0, 0.01, 1.0, 0.01, 0.01),
    # slow in phases of milliseconds to seconds: the kept samples are those of a quiet machine
    "a neighbour, slow half of the time": (Machine(bursts(0.5)), 0.52, 0.02, 0.97, 0.06, 1.0),
    "a neighbour, slow most of the time": (Machine(bursts(0.85)), 0.18, 0.02, 0.97, 0.06, 1.0),
    # The baseline is not the fast clock of the first seconds and of a moment after each rest, which the machine cannot
    # hold. Samplers forget the turbo's probes, so that they do not wait for it forever
    "a turbo that decays": (Machine(lambda t: 0.75 if t < 4 or t % 14 < 2 / 3 else 1.0), 0.85, 0.02, 0.9, 0.02, 0.35),
    # the baseline is the fast speed, because it comes back
    "throttled": (Machine(lambda t: 1.5 if t % 5 > 3 else 1.0), 0.6, 0.02, 0.9, 0.02, 1.0),
    # the baseline is the slow level, because the fast one never comes back
    "fast at first": (Machine(lambda t: 1 / 1.5 if t < REST + 3 else 1.0), 0.77, 0.02, 0.9, 0.02, 1.0),
    # a container's quota takes the processor away for half of each tenth of a second; the clock is as it was
    "a quota": (Machine(away=quota), 1.0, 0.02, 1.0, 0.01, 1.0),
    # a hypervisor takes the processor for 2 ms of 11, whether or not the guest's accounting of CPU time sees it
    "steal": (Machine(away=steal), 1.0, 0.02, 0.0, 0.02, 1.0),
    "hidden steal": (Machine(away=steal, hidden=True), 1.0, 0.02, 0.0, 0.02, 1.0),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_kept_is_what_a_quiet_machine_reads(simulated, name):
    machine, quiet_share, near, share, off, waited = WHOLE[name]
    run, found = simulated(machine)
    assert run.quiet_share() == pytest.approx(quiet_share, abs=0.01)
    assert run.baselines["processor"] * 1e-9 == pytest.approx(PROBE, rel=near)
    assert found["quiet"].mean() >= share
    errors = np.log(found["seconds"] / CALL).abs()[found["quiet"] | (share == 0)]
    assert errors.max() < off and errors.median() < 0.01
    assert sum(line.waited for line in run.lines) <= waited * sum(line.took for line in run.lines)
    if name == "quiet throughout":  # and nothing is taken again
        assert set(found["count"]) == {ROUNDS} and len(run.raw_seconds) <= 1.01 * sum(line.wanted for line in run.lines)


def test_quota_and_calls_longer_than_it(simulated):
    """A call of 80 ms is longer than the quota's 50 ms. It never has a processor throughout, so no figure is quiet."""
    _, found = simulated(Machine(away=quota), call=0.08, count=16)
    assert not found["quiet"].any()


def test_run_that_begins_in_a_slow_phase(simulated):
    """Samples of the slow phase look quiet at first. The baseline of the whole run then marks them as noisy."""
    run, found = simulated(Machine(lambda t: 1.4 if t < REST + 4 else 1.0))
    early = np.array([line.at < REST + 3.5 for line in run.lines])
    assert early.any() and not run.quiet[early].any()
    assert found["seconds"][found["quiet"]].to_numpy() == pytest.approx(CALL, rel=0.02)
