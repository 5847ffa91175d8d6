"""Time a cell: warm up, choose the length of a sample, take samples between probes, keep the quiet
ones. Log what asv's results cannot hold: samples with their probes, and reasons for cells without a
figure.

What ``Timing`` uses decides figures, so it is in the hash of every timed family (versions.py).
"""

import contextlib
import dis
import json
import math
import operator
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from . import probes

SAMPLES = 20  # per process
# per process, from LARGE on: there the process explains 70-90 % of the variance, not the sample
SAMPLES_LARGE = 8
LARGE = 16 * 2**20  # bytes
# Shortest sample: 10,000 times the clock's resolution, and short enough to fit between two bursts
# of a neighbour, which may come every millisecond. Samples of 3 ms were quiet half as often, and
# took ten times as long.
SAMPLE_SECONDS = 0.0003
WARMUP_SECONDS = 0.02
# a fresh 16 MiB copy takes ten until glibc reuses its memory, fifty more until the caches settle
WARMUP_CALLS = 100
WARMUP_AT_MOST = 0.2  # seconds, for calls so slow that five of them would take longer
UNDISTURBED = (
    0.95  # least CPU time / wall time of a sample; below it, the machine did other work meanwhile
)
CACHED = 256 * 2**10  # bytes from which a copy needs more than the core's own cache
# Bytes per second that no core reaches in its caches, and no machine in its memory: a faster call
# moves no bytes.
FASTEST = {probes.CACHE: 2e11, probes.MEMORY: 1e12}
# seconds: a call that takes less may have had its memory in a cache, which the probes emptied
REFRESH = 0.005
DIGITS = 6  # kept digits of a sample: a hundredth of the clock's resolution

LONGEST_LINE = 120  # letters of an error's first line; a longer line is cut to its first sentence
NOTES = {}  # facts that this process found before its samples, logged with them
GONE = "the device was lost: "  # prefix of the reason of such a skip
LOST = ".lost"  # suffix of the file next to the log with the reason why the device stopped working
LOG_VARIABLE = "CONVERSION_SAMPLING_LOG"  # path of the log


def samples_per_process(nbytes=0):
    """Return the samples per process of a cell of ``nbytes`` bytes. Constant, so that results can
    be split again.
    """
    return SAMPLES_LARGE if nbytes >= LARGE else SAMPLES


@dataclass
class Timing:
    """Timing of the statement of a cell. timer: its timeit.Timer.

    count            samples wanted
    nbytes           bytes that a call moves
    calls            calls in the statement: samples are per call
    number           runs of the statement per sample; 0: as many as fill sample_time
    once             can be timed once per process: no warm-up, one sample of one call
    single_threaded  False: host work is spread over threads or waits for a device, and CPU time is
                     meaningless
    on_all_cores     torch spreads the work over all cores, so each is watched: a stalled thread
                     stalls all
    probed           False: the device's own clock times it, independent of the host's speed
    prepare          called before every sample
    partner          other processes, with which samples are taken in turns, see turns.Partner;
                     None: without one
    """

    timer: object
    count: int
    nbytes: int = 0
    calls: int = 1
    number: int = 0
    once: bool = False
    single_threaded: bool = True
    on_all_cores: bool = False
    probed: bool = True
    prepare: object = None
    partner: object = None
    sample_time: float = SAMPLE_SECONDS
    warmup_time: float = WARMUP_SECONDS

    def take(self):
        """Return the samples in seconds per call, the runs of the statement in each, and the record
        to log.
        """
        number = 1 if self.once else self.warm_up()
        kinds, refresh = self._kinds()
        watch = probes.Watch(kinds, self.prepare, self._cores())
        if self.partner and self.partner.meet():
            self.count *= self.partner.samples
        seconds_per_call, quiet, disturbed = [], [], []
        while sum(quiet) < self.count and (len(seconds_per_call) < self.count or watch.left > 0):
            with self.partner.turn() if self.partner else contextlib.nullcontext():
                if not watch.quiet and watch.left > 0:
                    watch.wait()
                if self.on_all_cores:  # wakes torch's threads
                    self.timer.timeit(number)
                elif refresh or self.partner and self.nbytes < LARGE:  # the other emptied caches
                    self.timer.timeit(1)
                seconds, undisturbed, good = watch.judge(lambda: self.sample(number))
            seconds_per_call.append(float(f"{seconds / number / self.calls:.{DIGITS}g}"))
            quiet.append(good)
            if not undisturbed:
                disturbed.append(len(seconds_per_call) - 1)
            if self.once:
                break
        # prefer quiet samples, then those with the least disturbed probes; keep the order in which
        # they were taken
        ranks = [*zip(map(operator.not_, quiet), watch.distances())]
        best = sorted(range(len(ranks)), key=ranks.__getitem__)[: self.count]
        record = {
            "at": round(time.time(), 3),
            "wanted": self.count,
            "number": number,
            "seconds": seconds_per_call,
            "disturbed": disturbed,
            "probes": watch.probes,
            "waits": watch.waits,
            "waiting": watch.waiting,
            "waited": round(watch.close(), 4),
        }
        if self.partner and self.partner.turns == len(seconds_per_call):
            record["in_turns"] = True
        return [seconds_per_call[index] for index in sorted(best)], number, record

    def warm_up(self):
        """Call until caches, allocator and clock frequency are steady; return the number of calls
        per sample.

        The fastest calls so far decide it: a single call that waits milliseconds for a core would
        seem long enough.
        """
        number = self.number or 1
        calls, fastest, start = 0, math.inf, time.perf_counter()
        while True:
            fastest = min(fastest, self.timer.timeit(number) / number)
            calls += number
            elapsed = time.perf_counter() - start
            long_enough = self.number or fastest * number >= self.sample_time
            if long_enough and (
                elapsed >= WARMUP_AT_MOST or (elapsed >= self.warmup_time and calls >= WARMUP_CALLS)
            ):
                return number
            if self.warmup_time == 0 and self.number:  # asv run --quick
                return number
            if not long_enough:
                growth = self.sample_time / max(fastest * number, 1e-9)
                number = max(number + 1, int(number * min(10.0, max(1.1, growth))))

    def _kinds(self):
        """Return the kinds of probes for this cell, and whether a call must first bring its memory
        back to a cache.
        """
        if not self.probed:
            return (), False
        if self.nbytes < CACHED or self.once:
            return (probes.PROCESSOR,), False
        moves = probes.MEMORY if self.nbytes >= LARGE else probes.CACHE
        seconds = math.inf
        for _ in range(2):
            if self.prepare is not None:
                self.prepare()
            seconds = min(seconds, self.timer.timeit(1))
        if seconds <= self.calls * self.nbytes / FASTEST[moves]:
            return (probes.PROCESSOR,), False
        # a call before the sample would put work into the queue that ``prepare`` has drained
        return (probes.PROCESSOR, moves), seconds < REFRESH and self.prepare is None

    def _cores(self):
        """Return the probe of all cores, if this cell needs one and threads can be bound."""
        is_needed = self.on_all_cores and hasattr(os, "sched_getaffinity")
        return probes.Cores() if is_needed else None

    def sample(self, number):
        """Return the seconds of ``number`` calls, and whether the process had a processor
        throughout.
        """
        if self.on_all_cores:
            waited = probes.ready()
            seconds = self.timer.timeit(number)
            return seconds, probes.ready() - waited <= (
                1 - UNDISTURBED
            ) * seconds  # False if unknown
        cpu, wall = time.process_time(), time.perf_counter()
        seconds = self.timer.timeit(number)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        return seconds, not self.single_threaded or cpu >= UNDISTURBED * wall


# --- the log --------------------------------------------------------------------------------------


def log(**record):
    """Append one JSON line to the sampling log, if the caller of asv asked for one (scripts/run.py
    does).
    """
    if path := os.environ.get(LOG_VARIABLE):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def note(**facts):
    """Add ``facts`` to the next record of samples; each process measures one cell."""
    NOTES.update(facts)


def lose(reason):
    """Keep later processes of this run from trying the device again. A logged run began with a
    working device.
    """
    if path := os.environ.get(LOG_VARIABLE):
        Path(path + LOST).write_text(reason, encoding="utf-8")


def lost():
    """Return why the device of this run stopped working; "" if no process has lost it."""
    file = Path(os.environ.get(LOG_VARIABLE, "") + LOST)
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def first_line(error):
    """Return the first line of an exception's text; torch adds pages of advice below it."""
    return str(error).strip().split("\n")[0]


def first_sentence(error):
    """Return the first line or, if it is long, its first sentence: torch may add advice on the same
    line.
    """
    line = first_line(error)
    return line if len(line) <= LONGEST_LINE else re.split(r"(?<=[a-z\d)])\. (?=[A-Z])", line)[0]


def is_out_of_memory(error):
    """Whether an exception says that the host or the device has no more memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(
        phrase in text for phrase in ("out of memory", "can't allocate memory", "not enough memory")
    )


@contextlib.contextmanager
def out_of_memory_skips():
    """Skip the cell, with its reason, where host or device run out of memory inside."""
    try:
        yield
    except Exception as error:
        if isinstance(error, NotImplementedError) or not is_out_of_memory(
            error
        ):  # the first is already a skip
            raise
        raise NotImplementedError(f"out of memory: {first_sentence(error)}") from None


def is_torchs(error):
    """Whether a NotImplementedError is torch's own, for an operator that a backend lacks: a
    failure, not a skip.

    Ours come from a ``raise``. Torch's come from a call without a Python frame, or from torch's own
    files.
    """
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    raised = dis.opname[code.co_code[trace.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")
    torch = Path(sys.modules["torch"].__file__).resolve().parent
    return not raised or torch in Path(code.co_filename).parents
