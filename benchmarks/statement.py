"""StatementBenchmark: asv times, in the benchmark's own process, the statement that a ``timeit_*`` method returns.

asv's ``time_*`` methods cannot time a sub-microsecond call that needs a source made in ``setup``: since asv_runner 0.3
a setup forces one call a sample with the caches emptied by a new setup, and ``torch.from_numpy(a)`` reads 74 µs instead
of 0.43 µs. Here a method returns ``(statement, namespace)``, as asv's own ``timeraw_*`` does, and the statement runs
in a ``timeit`` loop over the source that ``setup`` made once.
"""

import cProfile
import inspect
import itertools
import json
import math
import re
import time
import timeit
from dataclasses import asdict

import torch
from asv_runner.benchmarks import benchmark_types
from asv_runner.benchmarks._base import _get_first_attr
from asv_runner.benchmarks.mark import SkipNotImplemented
from asv_runner.benchmarks.time import TimeBenchmark
from asv_runner.benchmarks.track import TrackBenchmark

from . import devices, families, nvml, sampling_log, timing, version

ROUNDS = 4  # processes a cell: four are the least that a verdict can rest on


def declare(benchmark, attr_sources):
    """Give a benchmark what its family declares; its question is the first paragraph of its file's docstring."""
    for name, default in json.loads(json.dumps(asdict(families.Family()))).items():  # asv describes lists, no tuples
        setattr(benchmark, name, _get_first_attr(attr_sources, name, default))
    text = inspect.getdoc(inspect.getmodule(version.owner(benchmark.func))) or ""
    benchmark.question = " ".join(text.split("\n\n")[0].split())


class CountBenchmark(sampling_log.Logged, TrackBenchmark):
    """asv's own for what is counted and not timed, with what its family declares and the version of what decides it."""

    def __init__(self, name, func, attr_sources):
        super().__init__(name, func, attr_sources)
        declare(self, attr_sources)
        self.version, self.version_alts = version.version_of(func, spoken=families.SPOKEN), ()

    def run(self, *params):
        """The count, or ``{"samples": [counts], "number": 1}`` of a repeated one; logged like the samples of a time."""
        began = time.perf_counter()
        result = super().run(*params)
        values = result["samples"] if isinstance(result, dict) else [result]
        if all(isinstance(value, (int, float)) and math.isfinite(value) for value in values):
            took, text = round(time.perf_counter() - began, 4), self.params_text()
            about = {"benchmark": self.name, "params": text, "version": self.version, "at": round(time.time(), 3)}
            sampling_log.log(**about, values=values, took=took)
        return result


class StatementBenchmark(sampling_log.Logged, TimeBenchmark):
    """Times the statement that ``timeit_*`` returns as ``(statement, namespace)``, in seconds.

    A third value returned, ``calls``, says that the statement makes so many calls: samples are by the call. A function
    ``prepare`` in the namespace is called before every sample. A benchmark class, or a ``timeit_*`` method as its
    attribute, may say

    samples_for(*params)     samples a process takes of a cell (default: timing.samples_per_process)
    single_threaded = False  host work is spread over threads or waits for a device: CPU time tells nothing
    on_all_cores = True      torch spreads it over all cores: all of them are watched
    drained = True           call the namespace's ``synchronize`` before every sample
    probed = False           the device's own clock times it, and how fast the host is has no part in it; or what
                             ``prepare`` queued would be done while probes are taken
    light = True             the host moves no bytes: probes that do would only empty the caches that the call finds
    once = True              what is timed happens once in a process: no warm-up, one sample of one call
    timed_by                 of an instance, by its setup: times the statement in place of a timeit.Timer, elsewhere;
                             its ``parts``, where it has them, name the seconds of what it times beside, a figure a call
    contracts = {}           what its routes promise; travels to asv's benchmarks.json, as does what families.py names
    """

    name_regex = re.compile("^(Timeit[A-Z_].+)|(timeit_.+)$")
    _setup_isolates_timed_calls = False

    def __init__(self, name, func, attr_sources):
        super().__init__(name, func, attr_sources)
        declare(self, attr_sources)
        self.rounds = int(_get_first_attr(attr_sources, "rounds", ROUNDS))
        self.version = version.version_of(func, ("timing.py", "Timing"), spoken=families.SPOKEN)
        self.version_alts = ()
        self.contracts = _get_first_attr(attr_sources, "contracts", {})
        self.once = _get_first_attr(attr_sources, "once", False)
        self.drained = _get_first_attr(attr_sources, "drained", False)
        samples_for = _get_first_attr(attr_sources, "samples_for", None)
        cells = list(itertools.product(*self._params))
        if self.once:
            self.samples_per_process = [1] * len(cells)
        elif samples_for:
            self.samples_per_process = [samples_for(*cell) for cell in cells]
        else:
            self.samples_per_process = [timing.samples_per_process(self._nbytes(cell)) for cell in cells]

    def _nbytes(self, cell):
        return dict(zip(self.param_names, cell)).get("nbytes", 0)

    def _load_vars(self):
        super()._load_vars()
        self.sample_time = _get_first_attr(self._attr_sources, "sample_time", timing.SAMPLE_SECONDS)
        self.warmup_time = _get_first_attr(self._attr_sources, "warmup_time", timing.WARMUP_SECONDS)
        self.single_threaded = bool(_get_first_attr(self._attr_sources, "single_threaded", True))
        self.on_all_cores = bool(_get_first_attr(self._attr_sources, "on_all_cores", False))
        self.timed_by = _get_first_attr(self._attr_sources, "timed_by", None)
        # a setup may say so of its cell
        self.probed = _get_first_attr(self._attr_sources, "probed", True)
        self.light = _get_first_attr(self._attr_sources, "light", False)

    def do_setup(self):
        self._began = time.perf_counter()
        sampling_log.NOTES.clear()
        skipped = super().do_setup()
        if not skipped:
            self._load_vars()
        return skipped

    def run(self, *params):
        """Warm up and take the samples: ``{"samples": [seconds a call], "number": calls a sample}``."""
        try:
            return self._run(params)
        except SkipNotImplemented:
            raise
        except Exception as error:
            if isinstance(error, NotImplementedError) and not sampling_log.is_torchs(error):
                why = str(error)  # asv knows this as a skip in setup alone
            elif sampling_log.is_out_of_memory(error):
                why = f"out of memory: {sampling_log.first_sentence(error)}"
            else:
                self.log_failure(error)
                raise
            self.log_skip(why)
            raise SkipNotImplemented(why) from None

    def _run(self, params):
        statement, namespace, *calls = self.func(*params)
        timer = self.timed_by or timeit.Timer(statement, globals=namespace, timer=self.timer)
        prepare = namespace["synchronize"] if self.drained else namespace.get("prepare")
        return self._measure(timer, tuple(params), prepare, calls[0] if calls else 1)

    def _measure(self, timer, params, prepare, calls):
        """Samples in seconds a call; ``prepare`` is called before each, a statement makes ``calls`` calls."""
        # asv run --quick and `-a repeat=N` set repeat; otherwise the cell's own constant decides
        cells = list(itertools.product(*self._params))
        around = [self._device_state()]
        samples, number, found = timing.Timing(
            timer,
            count=int(self.repeat) if self.repeat else self.samples_per_process[cells.index(params)],
            nbytes=0 if self.light else self._nbytes(params),
            calls=calls,
            number=self.number,
            once=self.once,
            single_threaded=self.single_threaded,
            on_all_cores=self.on_all_cores,
            probed=self.probed,
            prepare=prepare,
            sample_time=self.sample_time,
            warmup_time=self.warmup_time,
        ).take()
        parts = {part: seconds[-len(found["seconds"]) :] for part, seconds in getattr(timer, "parts", {}).items()}
        if parts:
            found["parts"] = parts
        around.append(self._device_state())
        if all(around):
            found["device"] = around
        found.update(sampling_log.NOTES)
        if self.needs_device:
            found["on_device"] = True  # its clock is not the processor's, see scripts/records/quiet.py
        took = round(time.perf_counter() - self._began, 4)
        sampling_log.log(benchmark=self.name, params=self.params_text(), version=self.version, **found, took=took)
        return {"samples": samples, "number": number}

    def _device_state(self):
        """How the device runs, by its driver, once this process has a context; None where it has none."""
        return nvml.ask(devices.find(), nvml.state) if self.needs_device and torch.cuda.is_initialized() else None

    def do_profile(self, filename=None):
        """Profile the statement itself (asv's own would profile the method that merely returns it)."""
        statement, namespace = self.func(*self._current_params)[:2]
        code = compile(statement, self.name, "exec")
        profile = cProfile.Profile()
        names = dict(namespace)
        profile.runcall(lambda: [exec(code, names) for _ in range(100)])
        if filename is not None:
            profile.dump_stats(filename)


# asv_runner finds benchmark types by walking its own package or any distribution named asv_bench*. A suite that is not
# an installed distribution registers its types, and asv imports this before it looks at any benchmark (__init__.py).
benchmark_types[:0] = [StatementBenchmark, CountBenchmark]
