"""StatementBenchmark: asv times, in the benchmark's own process, the statement that a ``timeit_*``
method returns.

asv's ``time_*`` methods cannot time a sub-microsecond call that needs a source made in ``setup``.
Since asv_runner 0.3 a setup forces one call per sample, with caches emptied by a new setup:
``torch.from_numpy(a)`` takes 74 µs instead of 0.43 µs. Here a method returns ``(statement,
namespace)``, like asv's own ``timeraw_*``. The statement runs in a ``timeit`` loop over the source
that ``setup`` made once.
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

from .. import contracts
from . import devices, driver, timing, turns, versions

LONGEST_REASON = 300  # letters of the reason of a failure
ROUNDS = 4  # processes per cell: a verdict needs at least four
# Attributes with which a benchmark sets its timing: those of timing.Timing, and others
TIMED = ("once", "single_threaded", "on_all_cores", "probed", "sample_time", "warmup_time")
TIMING_DEFAULTS = {name: getattr(timing.Timing, name) for name in TIMED} | {
    "drained": False,
    "light": False,
    "timed_by": None,
}


def _owner(func):
    """Return the class of a method, or the function itself."""
    return type(func.__self__) if hasattr(func, "__self__") else func


class _Declared:
    """Common base of both types of benchmark: the family's declarations and question, its version
    in versions.lock,
    and reasons of missing figures. ``param_names`` default to the method's parameters.
    """

    def __init__(self, name, func, attr_sources):
        super().__init__(name, func, attr_sources)
        parameters = [*inspect.signature(func).parameters][
            bool(self._setup_cache) :
        ]  # without the cache, the first
        self.param_names = [*_get_first_attr(attr_sources, "param_names", parameters)]
        for each, default in json.loads(
            json.dumps(asdict(contracts.Family()))
        ).items():  # asv cannot describe tuples
            setattr(self, each, _get_first_attr(attr_sources, each, default))
        text = inspect.getdoc(inspect.getmodule(_owner(func))) or ""
        self.question = " ".join(
            text.split("\n\n")[0].split()
        )  # the first paragraph of its file's docstring
        self.version = versions.version_of(self.name)
        self.version_alts = ()

    def do_setup(self):
        """Run the setups; return True if one skips the cell by NotImplementedError."""
        try:
            if self.needs_device and (reason := timing.lost()):
                raise NotImplementedError(f"{timing.GONE}{reason}")
            with timing.out_of_memory_skips():
                for setup in self._setups:
                    setup(*self._build_params())
        except Exception as error:
            if not self.log_why(error):
                raise
            return True
        return False

    def run(self, *params):
        """Return the result of ``take``; if it raises, log why."""
        try:
            with timing.out_of_memory_skips():
                return self.take(*params)
        except Exception as error:
            if self.log_why(error):  # asv takes NotImplementedError as a skip only in setup
                raise SkipNotImplemented(str(error)) from None
            raise

    def log_why(self, error):
        """Log why a cell has no figure; return whether it is a skip, not a failure."""
        if partner := turns.partner_of(self._cell):
            partner.leave()
        skipped = isinstance(error, NotImplementedError) and not timing.is_torchs(error)
        if skipped:
            print(f"asv: skipped: {error}")
            self.log(skipped=str(error))
        else:  # asv prints the reason of a failure, but does not store it
            self.log(
                failed=f"{type(error).__name__}: {timing.first_sentence(error)}"[:LONGEST_REASON]
            )
        return skipped

    @property
    def _cell(self):
        return f"{self.name}{self._current_params!r}"

    def log(self, **record):
        """Log a record of this cell, with its parameters as asv writes them."""
        timing.log(
            benchmark=self.name, params=[repr(value) for value in self._current_params], **record
        )

    def log_figures(self, began, **figures):
        self.log(version=self.version, **figures, took=round(time.perf_counter() - began, 4))


class CountBenchmark(_Declared, TrackBenchmark):
    """asv's own type, for counts."""

    def take(self, *params):
        """Return the count, or ``{"samples": [counts], "number": 1}`` if it is repeated, and log
        it, with further entries of the repeated one, such as ``functions``.
        """
        began = time.perf_counter()
        result = self.func(*params)
        values, further = [result], {}
        if isinstance(result, dict):
            further = {**result}
            result = {name: further.pop(name) for name in ("samples", "number")}
            values = result["samples"]
        if all(isinstance(value, (int, float)) and math.isfinite(value) for value in values):
            self.log_figures(began, at=round(time.time(), 3), values=values, **further)
        return result


class StatementBenchmark(_Declared, TimeBenchmark):
    """Times the statement that ``timeit_*`` returns as ``(statement, namespace)``, in seconds.

    An optional third value, ``calls``, is the number of calls in the statement: samples are per
    call. A function ``prepare`` in the namespace is called before every sample. A benchmark class,
    or a ``timeit_*`` method as its attribute, may set

    samples_for(*params)     samples per process of a cell (default: timing.samples_per_process)
    single_threaded = False  host work is spread over threads, or waits for another process: CPU
    time is meaningless;
                             the default with an accelerator
    on_all_cores = True      torch spreads the work over all cores: all of them are watched drained
    = True           call the namespace's ``synchronize`` before every sample probed = False
    the device's own clock times it, independent of the host's speed; or the work queued by
                             ``prepare`` would be done while probes are taken
    light = True             the host moves no bytes: probes that do would only empty the caches for
    the call once = True              can be timed once per process: no warm-up, one sample of one
    call
    timed_by                 set on the instance by its setup: times the statement elsewhere,
                             instead of a timeit.Timer; its optional ``parts`` map names to seconds
                             of other parts, one figure per call
    contracts = {}           contracts of its routes; written to asv's benchmarks.json, as is
    contracts.Family
    """

    name_regex = re.compile("^(Timeit[A-Z_].+)|(timeit_.+)$")
    _setup_isolates_timed_calls = False

    def __init__(self, name, func, attr_sources):
        super().__init__(name, func, attr_sources)
        self.rounds = int(_get_first_attr(attr_sources, "rounds", ROUNDS))
        self.contracts = _get_first_attr(attr_sources, "contracts", {})
        samples_for = _get_first_attr(attr_sources, "samples_for", self._usual_samples)
        self.samples_per_process = [
            1 if self.once else samples_for(*cell) for cell in itertools.product(*self._params)
        ]

    def _usual_samples(self, *cell):
        return timing.samples_per_process(self._nbytes(cell))

    def _nbytes(self, cell):
        return dict(zip(self.param_names, cell)).get("nbytes", 0)

    def _load_vars(self):
        super()._load_vars()
        # the host waits for the device, spinning or asleep
        defaults = {
            **TIMING_DEFAULTS,
            "single_threaded": not _get_first_attr(self._attr_sources, "needs_device", False),
        }
        for name, default in defaults.items():
            setattr(self, name, _get_first_attr(self._attr_sources, name, default))

    def do_setup(self):
        self._began = time.perf_counter()
        timing.NOTES.clear()
        skipped = super().do_setup()
        self._load_vars()  # a setup may set attributes for its cell
        return skipped

    def take(self, *params):
        """Warm up and take the samples: ``{"samples": [seconds a call], "number": calls a
        sample}``.
        """
        statement, namespace, *calls = self.func(*params)
        timer = self.timed_by or timeit.Timer(statement, globals=namespace, timer=self.timer)
        # asv run --quick and `-a repeat=N` set repeat; otherwise the cell's own constant decides
        usual = dict(zip(itertools.product(*self._params), self.samples_per_process))[params]
        device_states = [self._device_state()]
        samples, number, record = timing.Timing(
            timer,
            count=int(self.repeat) or usual,
            nbytes=0 if self.light else self._nbytes(params),
            calls=calls[0] if calls else 1,
            number=self.number,
            prepare=namespace["synchronize"] if self.drained else namespace.get("prepare"),
            partner=turns.partner_of(self._cell),
            **{name: getattr(self, name) for name in TIMED},
        ).take()
        if parts := getattr(timer, "parts", {}):
            record["parts"] = {
                part: seconds[-len(record["seconds"]) :] for part, seconds in parts.items()
            }
        device_states.append(self._device_state())
        if all(device_states):
            record["device"] = device_states
        record.update(timing.NOTES)
        if self.needs_device:
            record["on_device"] = True  # has its own clock, see scripts/store/quiet.py
        self.log_figures(self._began, **record)
        return {"samples": samples, "number": number}

    def _device_state(self):
        """Return the device's state from its driver; None if this process has no context."""
        return (
            driver.ask_driver(devices.find(), driver.driver_state)
            if self.needs_device and torch.cuda.is_initialized()
            else None
        )

    def do_profile(self, filename=None):
        """Profile the statement itself (asv's own would profile the method that merely returns it).

        The profile of a cell that is timed elsewhere, such as in another process, shows the wait
        for one call.
        """
        if filename is not None:
            statement, namespace = self.func(*self._current_params)[:2]
            names = {"timer": self.timed_by or timeit.Timer(statement, globals=namespace)}
            cProfile.runctx(f"timer.timeit({1 if self.timed_by else 100})", names, {}, filename)


# asv_runner finds benchmark types in its own package or any distribution named asv_bench*. This
# suite is not an installed distribution, so it registers its types. asv imports this module before
# any benchmark (__init__.py).
benchmark_types[:0] = [StatementBenchmark, CountBenchmark]
