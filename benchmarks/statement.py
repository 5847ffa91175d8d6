"""StatementBenchmark: asv times, in the benchmark's own process, the statement that a ``timeit_*`` method returns.

asv's ``time_*`` methods cannot time a sub-microsecond call that needs a source made in ``setup``: since asv_runner 0.3
a setup forces one call a sample with the caches emptied by a new setup, and ``torch.from_numpy(a)`` reads 74 µs instead
of 0.43 µs. Here a method returns ``(statement, namespace)``, as asv's own ``timeraw_*`` does, and the statement runs
in a ``timeit`` loop over the source that ``setup`` made once.
"""

import cProfile
import inspect
import io
import itertools
import json
import math
import os
import re
import time
import timeit
import tokenize
from functools import cache
from hashlib import sha256
from pathlib import Path

from asv_runner.benchmarks._base import _get_first_attr
from asv_runner.benchmarks.mark import SkipNotImplemented
from asv_runner.benchmarks.time import TimeBenchmark

from . import families, pulses

ROUNDS = 4  # processes a cell: four are the least that a verdict can rest on
SAMPLES = 20  # a process
SAMPLES_LARGE = 8  # a process, from LARGE on: there the process explains 70-90 % of the variance, not the sample
LARGE = 16 * 2**20  # bytes
# Least length of a sample: 10,000 times the clock's resolution, and short enough to fit between two bursts of a
# neighbour, which may come every millisecond. Samples of 3 ms were calm half as often, and cost ten times as much each.
SAMPLE_SECONDS = 0.0003
WARMUP_SECONDS = 0.02
WARMUP_CALLS = 100  # a fresh 16 MiB copy takes ten until glibc reuses its memory, fifty more until the caches settle
WARMUP_AT_MOST = 0.2  # seconds, for calls so slow that five of them would take longer
QUIET = 0.95  # CPU time / wall time of a sample below this: the machine did something else meanwhile
CACHED = 256 * 2**10  # bytes: from here on a copy is not done in the core's own cache alone
# Bytes a second that no core moves in its caches, and no machine in its memory: a call that takes less time than its
# bytes would moves none.
FASTEST = {pulses.CACHE: 2e11, pulses.MEMORY: 1e12}
REFRESH = 0.005  # seconds: a call that takes less may have had its memory in a cache, which the pulses emptied
DIGITS = 6  # of a sample that are kept: a hundredth of the clock's resolution
LONGEST_REASON = 300  # letters of why a cell failed
LOG_VARIABLE = "CONVERSION_SAMPLING_LOG"  # file that collects what asv's results have no place for


def samples_per_process(nbytes=0):
    """Samples that one process takes of a cell of ``nbytes`` bytes. Constant, so that results can be split again."""
    return SAMPLES_LARGE if nbytes >= LARGE else SAMPLES


def log(**record):
    """Append one JSON line to the sampling log, if the caller of asv asked for one (scripts/run.py does)."""
    path = os.environ.get(LOG_VARIABLE)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def first_line(error):
    """The first line of an exception's text; torch adds pages of advice below it."""
    return str(error).strip().split("\n")[0]


def is_out_of_memory(error):
    """Whether an exception says that the host or the device has no more memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(phrase in text for phrase in ("out of memory", "can't allocate memory", "not enough memory"))


@cache
def _bare_source(path):
    """Python source as lines of code, each behind its depth: blind to comments, docstrings and layout.

    Made of slices of the source, not of tokens, which differ between Python versions (3.12 takes f-strings apart).
    """
    source = Path(path).read_text(encoding="utf-8")
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    lines, depth, pieces, kinds = [], 0, [], []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            depth += 1 if token.type == tokenize.INDENT else -1
        elif token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            if pieces and kinds != [tokenize.STRING]:  # a line that is a string alone is a docstring
                lines.append(f"{depth} {''.join(pieces)}")
            pieces, kinds = [], []
        elif token.type not in (tokenize.COMMENT, tokenize.NL):
            start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
            pieces.append(re.sub(r"\s+", "", source[start:end]))
            kinds.append(token.type)
    return "\n".join(lines)


def measurement_version(*files):
    """Version of a measurement: a hash of the files that decide it, blind to comments, docstrings and layout.

    asv's default hashes the method and its ``setup`` alone, so a change of the sources they use would go unseen.
    """
    here = Path(__file__).parent
    decisive = [*(here / name for name in ("statement.py", "pulses.py", "sources.py")), *map(Path, files)]
    return sha256("\0".join(_bare_source(path) for path in decisive).encode()).hexdigest()[:16]


class StatementBenchmark(TimeBenchmark):
    """Times the statement that ``timeit_*`` returns as ``(statement, namespace)``, in seconds.

    A third value returned, ``calls``, says that the statement makes so many calls: samples are by the call. A benchmark
    class, or a ``timeit_*`` method as its attribute, may say

    samples_for(*params)     samples a process takes of a cell (default: samples_per_process)
    single_threaded = False  host work is spread over threads or waits for a device: CPU time tells nothing
    drained = True           call the namespace's ``synchronize`` before every sample
    pulsed = False           the device's own clock times it: how fast the host is has no part in it
    once = True              what is timed happens once in a process: no warm-up, one sample of one call
    measured_by = (files)    files beside its own that decide the measurement, for its version
    contracts = {}           what its routes promise; travels to asv's benchmarks.json, as does what families.py names
    """

    name_regex = re.compile("^(Timeit[A-Z_].+)|(timeit_.+)$")
    _setup_isolates_timed_calls = False

    def __init__(self, name, func, attr_sources):
        super().__init__(name, func, attr_sources)
        families.declare(self, attr_sources)
        self.rounds = int(_get_first_attr(attr_sources, "rounds", ROUNDS))
        decisive = _get_first_attr(attr_sources, "measured_by", ())
        classes = [base for base in type(func.__self__).__mro__ if base is not object]
        self.version = measurement_version(*dict.fromkeys(map(inspect.getsourcefile, classes)), *decisive)
        self.contracts = _get_first_attr(attr_sources, "contracts", {})
        self.once = _get_first_attr(attr_sources, "once", False)
        self.drained = _get_first_attr(attr_sources, "drained", False)
        self.pulsed = _get_first_attr(attr_sources, "pulsed", True)
        samples_for = _get_first_attr(attr_sources, "samples_for", None)
        cells = list(itertools.product(*self._params))
        if self.once:
            self.samples_per_process = [1] * len(cells)
        elif samples_for:
            self.samples_per_process = [samples_for(*cell) for cell in cells]
        else:
            self.samples_per_process = [samples_per_process(self._nbytes(cell)) for cell in cells]

    def _nbytes(self, cell):
        return dict(zip(self.param_names, cell)).get("nbytes", 0)

    def _load_vars(self):
        super()._load_vars()
        self.sample_time = _get_first_attr(self._attr_sources, "sample_time", SAMPLE_SECONDS)
        self.warmup_time = _get_first_attr(self._attr_sources, "warmup_time", WARMUP_SECONDS)
        self.single_threaded = bool(_get_first_attr(self._attr_sources, "single_threaded", True))

    def do_setup(self):
        """Run the setups; True when one says by NotImplementedError that the cell does not exist here."""
        self._began = time.perf_counter()
        try:
            for setup in self._setups:
                setup(*self._current_params)
        except NotImplementedError as reason:
            self._log_skip(reason)
            return True
        except Exception as error:
            self._log_failure(error)
            raise
        self._load_vars()
        return False

    def _log_failure(self, error):
        """asv prints why a cell failed, once, and keeps nothing of it."""
        why = f"{type(error).__name__}: {first_line(error)}"
        log(benchmark=self.name, params=self.params_text(), failed=why[:LONGEST_REASON])

    def _log_skip(self, reason):
        print(f"asv: skipped: {reason}")
        log(benchmark=self.name, params=self.params_text(), skipped=str(reason))

    def params_text(self):
        """The cell's parameters as asv writes them."""
        return [repr(value) for value in self._current_params]

    def run(self, *params):
        """Warm up and take the samples: ``{"samples": [seconds a call], "number": calls a sample}``."""
        try:
            return self._run(params)
        except SkipNotImplemented:
            raise
        except Exception as error:
            self._log_failure(error)
            raise

    def _run(self, params):
        try:
            statement, namespace, *calls = self.func(*params)
        except NotImplementedError as reason:  # asv knows this as a skip in setup alone
            self._log_skip(reason)
            raise SkipNotImplemented(str(reason)) from None
        timer = timeit.Timer(statement, globals=namespace, timer=self.timer)
        prepare = namespace["synchronize"] if self.drained else None
        try:
            return self._measure(timer, tuple(params), prepare, calls[0] if calls else 1)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._log_skip(f"out of memory: {first_line(error)}")
            raise SkipNotImplemented(str(error)) from None

    def _measure(self, timer, params, prepare, scale):
        """Samples in seconds a call; ``prepare`` is called before each, a statement makes ``scale`` calls."""
        # asv run --quick and `-a repeat=N` set repeat; otherwise the cell's own constant decides
        cells = list(itertools.product(*self._params))
        count = int(self.repeat) if self.repeat else self.samples_per_process[cells.index(params)]
        number = 1 if self.once else self._warm_up(timer)
        kinds, refresh = self._kinds(timer, self._nbytes(params), prepare, scale)
        watch = pulses.Watch(kinds, prepare)
        taken, calm, disturbed = [], [], []
        while sum(calm) < count and (len(taken) < count or watch.left > 0):
            if not watch.calm and watch.left > 0:
                watch.wait()
            if refresh:
                timer.timeit(1)
            seconds, quiet, good = watch.judge(lambda: self._sample(timer, number))
            taken.append(float(f"{seconds / number / scale:.{DIGITS}g}"))
            calm.append(good)
            if not quiet:
                disturbed.append(len(taken) - 1)
            if self.once:
                break
        # the calm ones first, then those whose surroundings were the least disturbed, in the order they were taken
        distances = watch.distances()
        best = sorted(range(len(taken)), key=lambda index: (not calm[index], distances[index]))[:count]
        samples = [taken[index] for index in sorted(best)]
        log(
            benchmark=self.name,
            params=self.params_text(),
            at=round(time.time(), 3),
            wanted=count,
            number=number,
            seconds=taken,
            disturbed=disturbed,
            pulses=watch.pulses,
            waits=watch.waits,
            waiting=watch.waiting,
            waited=round(watch.close(), 4),
            took=round(time.perf_counter() - self._began, 4),
        )
        return {"samples": samples, "number": number}

    def _warm_up(self, timer):
        """Call until caches, allocator and clock frequency are steady; the number of calls that make a sample."""
        number = self.number or 1
        calls, start = 0, time.perf_counter()
        while True:
            seconds = timer.timeit(number)
            calls += number
            elapsed = time.perf_counter() - start
            long_enough = self.number or seconds >= self.sample_time
            if long_enough and (elapsed >= WARMUP_AT_MOST or (elapsed >= self.warmup_time and calls >= WARMUP_CALLS)):
                return number
            if self.warmup_time == 0 and self.number:  # asv run --quick
                return number
            if not long_enough:
                growth = self.sample_time / max(seconds, 1e-9)
                number = max(number + 1, int(number * min(10.0, max(1.1, growth))))

    def _kinds(self, timer, nbytes, prepare, scale):
        """The kinds of pulses that see what slows this cell; whether its memory has to be met again after them."""
        if not self.pulsed:
            return (), False
        if nbytes < CACHED or self.once:
            return (pulses.PROCESSOR,), False
        moves = pulses.MEMORY if nbytes >= LARGE else pulses.CACHE
        seconds = math.inf
        for _ in range(2):
            if prepare is not None:
                prepare()
            seconds = min(seconds, timer.timeit(1))
        if seconds <= scale * nbytes / FASTEST[moves]:
            return (pulses.PROCESSOR,), False
        # a call before the sample would leave work in the queue of a device that was just drained
        return (pulses.PROCESSOR, moves), seconds < REFRESH and prepare is None

    def _sample(self, timer, number):
        """Seconds of ``number`` calls, and whether the process had a processor all the while."""
        cpu, wall = time.process_time(), time.perf_counter()
        seconds = timer.timeit(number)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        return seconds, not self.single_threaded or cpu >= QUIET * wall

    def do_profile(self, filename=None):
        """Profile the statement itself (asv's own would profile the method that merely returns it)."""
        statement, namespace = self.func(*self._current_params)[:2]
        code = compile(statement, self.name, "exec")
        profile = cProfile.Profile()
        names = dict(namespace)
        profile.runcall(lambda: [exec(code, names) for _ in range(100)])
        if filename is not None:
            profile.dump_stats(filename)
