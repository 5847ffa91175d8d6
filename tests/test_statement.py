"""StatementBenchmark takes the announced number of samples of its statement, and recognises disturbed ones."""

import itertools
import json
import math
import os
import random
import statistics
import time
import timeit
from types import SimpleNamespace

import pytest
from statements import Counted, benchmark, ran
from store import quiet
from store.schema import decode_log

from benchmarks.core import probes, timing
from benchmarks.core.statement import CountBenchmark, StatementBenchmark

pytestmark = pytest.mark.usefixtures("probe")

# Samples ------------------------------------------------------------------------------------------------------------


def test_samples_are_seconds_a_call():
    made, result = ran()
    assert result["samples"] == pytest.approx([1e-6] * timing.SAMPLES)
    assert isinstance(result["number"], int)
    assert result["number"] * 1e-6 >= timing.SAMPLE_SECONDS
    assert made.instance.calls >= timing.WARMUP_CALLS + timing.SAMPLES * result["number"]
    assert result["number"] * 1e-6 < 20 * timing.SAMPLE_SECONDS, "not much longer than needed"
    assert made.instance.setups == 1, "asv's own type runs it before every call, which leaves the caches cold"


def test_a_call_that_waits_in_the_warm_up_does_not_choose_the_length_of_a_sample():
    """A call of 25 µs once waited 4 ms for a core in the warm-up. Its samples then had one call each, of 79 µs."""
    seconds = itertools.chain([4e-3], itertools.repeat(25e-6))
    timer = SimpleNamespace(timeit=lambda number: number * next(seconds))
    assert timing.Timing(timer, count=1).warm_up() * 25e-6 >= timing.SAMPLE_SECONDS


@pytest.mark.parametrize(
    "nbytes, more, counts",
    [
        (8, {}, [timing.SAMPLES, timing.SAMPLES_LARGE]),
        (timing.LARGE, {}, [timing.SAMPLES, timing.SAMPLES_LARGE]),
        (8, {"samples_for": lambda self, nbytes: 3 if nbytes == 8 else 6}, [3, 6]),
    ],
)
def test_samples_per_process_is_what_run_gives(nbytes, more, counts):
    """The loader splits a cell's flat samples by samples_per_process. A class may set it with samples_for."""
    sizes = [8, timing.LARGE]
    made, result = ran(Counted, nbytes, params=(sizes,), param_names=("nbytes",), **more)
    assert made.samples_per_process == counts and len(result["samples"]) == counts[sizes.index(nbytes)]


def test_number_and_repeat_are_obeyed():
    """asv hands the first process's number to the others, and --quick sets both."""
    made, result = ran(Counted, number=7, repeat=3, warmup_time=0)
    assert (len(result["samples"]), result["number"]) == (3, 7)
    assert made.instance.calls == 7 + 3 * 7


def test_every_cell_of_the_suite_says_its_samples(suite):
    timed = {name: made for name, made in suite.items() if isinstance(made, StatementBenchmark)}
    assert timed.keys() == {name for name in suite if ".timeit_" in name}
    assert "conversion.NumpyToTorch.timeit_convert" in timed
    for name, made in timed.items():
        assert len(made.samples_per_process) == math.prod(map(len, made.params)), name
        assert all(isinstance(count, int) and count >= 1 for count in made.samples_per_process), name
        assert (made.type, made.unit) == ("time", "seconds")


def test_planted_cost_is_read():
    """Samples agree with timeit's best time. The ratios are wide, so that the test passes on a busy machine."""

    class Work:
        params = ([1_000, 20_000],)

        def timeit_call(self, n):
            return "sum(range(n))", {"n": n}

    read = {}
    for n in Work.params[0]:
        read[n] = statistics.median(ran(Work, n)[1]["samples"])
        best = min(timeit.repeat("sum(range(n))", globals={"n": n}, number=20, repeat=100)) / 20
        assert 0.3 < read[n] / best < 4
    assert 5 < read[20_000] / read[1_000] < 80


# Disturbance --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probed", [True, False])
def test_on_a_quiet_machine_no_sample_is_disturbed(logged, probed):
    """A benchmark timed by a device's own clock (probed=False) needs no probes."""
    result, line = logged(probed=probed)
    assert line["seconds"] == result["samples"] and line["wanted"] == len(result["samples"]) == timing.SAMPLES
    assert line["disturbed"] == line["waiting"] == [] and line["waited"] == 0
    assert line["probes"] == ({"processor": [25_000] * (timing.SAMPLES + 1)} if probed else {})
    assert line["benchmark"] == "toy.Counted.timeit_call"


def test_sample_without_a_processor_is_taken_again(monkeypatch, logged):
    still = [0.0] * 6  # a CPU clock that stands still in three samples, and runs fast in the rest
    monkeypatch.setattr(time, "process_time", lambda: still.pop() if still else 1e6 * time.perf_counter())
    result, line = logged(number=10)
    assert (len(line["seconds"]), line["disturbed"]) == (timing.SAMPLES + 3, [0, 1, 2])
    assert result["samples"] == line["seconds"][3:]


def test_sample_between_slow_probes_is_taken_again(logged, probe):
    """The probe after the 40th sample is slow, and so are three more in the wait that follows. Then all are quiet."""
    probe([25e-6] * (1 + 1 + 39) + [40e-6] * 4)  # the first probe is discarded, the second precedes the first sample
    _, line = logged(repeat=50)
    assert len(line["seconds"]) == 51 and line["waits"] == [40]
    assert line["probes"]["processor"] == [25_000] * 40 + [40_000] + [25_000] * 12
    run = quiet.Run(decode_log(json.dumps(line)))
    run.baselines = {"processor": 25_000}
    assert run.quiet_samples.sum() == 50


def test_machine_that_got_faster_is_not_quiet_either(logged, probe):
    """The machine does not hold its faster clock. Samples at that clock would not be comparable to the others."""
    probe([25e-6] * 42 + [20e-6])
    _, line = logged(repeat=50)
    assert len(line["seconds"]) > 50


@pytest.mark.parametrize("before, least, most", [(0.0, 0.016, 0.2), (5.0, 0, 0)])
def test_patience_is_bounded(before, least, most, monkeypatch, logged, probe):
    """The waits of one process and of all together are bounded. After them the least disturbed samples are kept."""
    monkeypatch.setenv(probes.PATIENCE_VARIABLE, "5.0")
    monkeypatch.setattr(probes, "PATIENCE", 0.02)
    probes._RECENT["processor"].waited = before
    probe(itertools.chain([25e-6] * 42, itertools.repeat(50e-6)))
    result, line = logged(repeat=60)
    assert len(result["samples"]) == 60 and least <= line["waited"] <= most, "a sleep may last longer on a busy machine"
    assert line["probes"]["processor"][-1] == 50_000
    assert probes._RECENT["processor"].waited == pytest.approx(before + line["waited"], abs=1e-4)


def test_the_first_process_waits_for_quiet_too(monkeypatch, logged, probe):
    """The first process takes probes before its first sample, to know which are slow. Later processes share them."""
    monkeypatch.setattr(probes, "FIRST", 0.01)
    draw = random.Random(1)
    probe(draw.choice([25e-6, 50e-6, 50e-6, 50e-6]) for _ in itertools.count())
    _, line = logged()
    assert probes._RECENT["processor"].baseline() == pytest.approx(math.log(25e-6))
    assert line["waits"][0] < 16, "without knowing, the first 32 looks would pass for quiet"
    taken = probes._RECENT["processor"].shared[0]
    probes.Watch()
    assert probes._RECENT["processor"].shared[0] == taken + 1, "one look, and no second meeting"


def test_patience_is_shared_fairly(monkeypatch):
    """The last processes of a round may wait, too: the first must not use up the patience."""
    monkeypatch.setenv(probes.PATIENCE_VARIABLE, "10/100")
    recent, had = probes.Recent(), []
    for _ in range(100):
        had.append(recent.patience())
        recent.waited += had[-1]
    assert had[0] == pytest.approx(0.2) and sum(had) <= 10.0
    assert had[50] > 0.08 and had[80] > 0.03, "each might wait 0.1 s on average"
    monkeypatch.setenv(probes.PATIENCE_VARIABLE, "100/100")
    assert probes.Recent().patience() == probes.PATIENCE


@pytest.mark.parametrize("more", [{}, {"single_threaded": False}, {"needs_device": True}])
def test_calls_that_quiet_is_too_short_for_are_not_waited_for(more, monkeypatch, logged):
    """Each sample begins quiet and ends disturbed. After HOPELESS such samples the benchmark no longer waits.

    CPU time cannot show a disturbance if a call uses several threads or waits for a device.
    """
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    _, line = logged(**more)
    assert len(line["seconds"]) == timing.SAMPLES and line["waited"] < probes.PATIENCE / 2
    assert line["disturbed"] == ([] if more else [*range(timing.SAMPLES)])


def test_large_samples_stand_between_probes_of_what_they_need(logged):
    """Only calls that move the bytes get cache or memory probes. An alias of 16 MiB is faster than any memory."""

    class Large:
        params = ([8, timing.CACHED, timing.LARGE], ["pass", "sum(range(10_000))"])
        param_names = ["nbytes", "code"]

        def timeit_call(self, nbytes, code):
            return code, {}

    for nbytes in Large.params[0]:
        for code in Large.params[1]:
            _, line = logged(Large, nbytes, code)
            moved = [] if code == "pass" else {timing.CACHED: ["cache"], timing.LARGE: ["memory"]}.get(nbytes, [])
            assert list(line["probes"]) == ["processor", *moved]
            looks = len(line["seconds"]) + len(line["waits"]) + 1
            assert all(len(taken) == looks for taken in line["probes"].values())


def test_processes_of_a_fork_server_share_what_they_saw():
    recent = probes.Recent()
    child = os.fork()
    if not child:
        for _ in range(probes.RECOMPUTED_AFTER):
            recent.add(30e-6)
        recent.waited = 1.5
        os._exit(0)
    os.waitpid(child, 0)
    assert recent.waited == 1.5 and recent.baseline() == pytest.approx(math.log(30e-6))


def test_nothing_is_logged_unasked(monkeypatch, tmp_path):
    monkeypatch.delenv(timing.LOG_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    ran()
    assert not list(tmp_path.iterdir())


# Options of a benchmark ---------------------------------------------------------------------------------------------


def test_once_is_one_call_of_a_fresh_process():
    made, result = ran(once=True)
    assert (len(result["samples"]), result["number"], made.instance.calls) == (1, 1, 1)
    assert made.samples_per_process == [1]


def test_statement_of_several_calls_is_read_by_the_call():
    def timeit_call(self):
        return "call(); call(); call(); call()", {"call": self.call}, 4

    assert ran(timeit_call=timeit_call)[1]["samples"] == pytest.approx([1e-6] * timing.SAMPLES)


@pytest.mark.parametrize(
    ("name", "drained", "number"), [("synchronize", True, 2), ("prepare", False, 1)], ids=["drained", "prepared"]
)
def test_what_a_namespace_does_before_every_sample(name, drained, number):
    order = []

    def timeit_call(self):
        return "call()", {"call": lambda: order.append("call"), name: lambda: order.append(name)}

    ran(timeit_call=timeit_call, timer=time.perf_counter, number=number, repeat=3, drained=drained, warmup_time=0)
    expected = [name, *["call"] * number] * 3 + [name]
    assert order[-len(expected) :] == expected


# Skips --------------------------------------------------------------------------------------------------------------


def refuse(self, *params):
    raise NotImplementedError("needs a tachyon")


FULL = "CUDA out of memory. Tried to allocate 1.00 GiB"


def exhaust(self):
    raise RuntimeError(f"{FULL}\nand pages of advice")


def fail(self):
    raise ValueError("no such thing\nand a page of advice")


@pytest.mark.parametrize(
    "what, where, reason",
    [
        ("skipped", {"timeit_call": refuse}, "needs a tachyon"),
        ("skipped", {"timeit_call": refuse, "of": CountBenchmark}, "needs a tachyon"),
        ("skipped", {"setup": exhaust}, f"out of memory: {FULL}"),
        ("skipped", {"timeit_call": exhaust}, f"out of memory: {FULL}"),
        ("failed", {"setup": fail}, "ValueError: no such thing"),
        ("failed", {"timeit_call": fail}, "ValueError: no such thing"),
        ("failed", {"timeit_call": lambda self: ("fail(1)", {"fail": fail})}, "ValueError: no such thing"),
    ],
)
def test_skips_and_failures_are_logged_and_not_swallowed(what, where, reason, log):
    made = benchmark(**where)
    with pytest.raises(NotImplementedError if what == "skipped" else ValueError):
        if made.do_setup():
            raise NotImplementedError  # asv leaves the cell out
        made.run()
    assert log()[0] == {"benchmark": "toy.Counted.timeit_call", "params": [], what: reason}
    assert what == "skipped" or len(log()) == 1
