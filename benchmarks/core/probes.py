"""Speed probes: fixed work timed next to every sample. They say how fast the machine was meanwhile.

CPU time over wall time sees a processor that was taken away. It does not see one that was slowed
down: by a neighbour on the same physical core, by heat, by a lower clock. A probe uses neither
torch nor numpy, so what changes between two probes of one interpreter is the machine (fixed work
quantum: Sottile and Minnich 2004).

Here samples are taken, and repeated, by the probes so far. Once a run is complete,
scripts/store/quiet.py judges again which samples are quiet. It shares the constants below and reads
all probes and samples from the sampling log. This module uses only the standard library.
"""

import ctypes
import math
import mmap
import os
import statistics
import time
import timeit
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Kinds of probes. Each sees slowdowns of its kind of work: a neighbour on the core, in the caches,
# on the memory bus.
PROCESSOR, CACHE, MEMORY = "processor", "cache", "memory"
# A probe this close to the baseline (log units) is quiet: within a tenth. Probes that move bytes
# vary more by themselves: copies between two of them within a fifth are as steady as between two
# within a tenth.
NEAR_BASELINE_LOG = {PROCESSOR: math.log(1.1), CACHE: math.log(1.2), MEMORY: math.log(1.2)}
WIDTH = 1.03  # width of a level: its slowest probe over its fastest
HELD = 0.05  # least share of the recent probes in a level that the machine holds
RECENT = 512  # probes that the current baseline comes from: those of 5 to 25 processes
RING = 3  # index of the first probe in the memory that processes share
RECOMPUTED_AFTER = 32  # probes after which the current baseline is recomputed
# seconds of probes by the first process that needs a kind: without them it could not judge its
# samples
FIRST = 0.2
PATIENCE = 0.3  # longest wait of a process for a quiet machine, in seconds
# longest wait of a process over its share of the remaining time, so that the last can wait, too
FAIR = 2
PATIENCE_VARIABLE = (
    "CONVERSION_PATIENCE"  # "12.5/200": seconds that the processes of an asv run may wait, how many
)
# samples that begin quiet and end disturbed, none being quiet: the machine is quiet for less than
# they take
HOPELESS = 5
SPINS = 0.05  # longest spin of threads without work, in seconds: GNU OpenMP's spin for 5 to 15 ms
ASLEEP = 0.001  # seconds: sleeping threads take no processor time in this interval
POLL = 0.004  # seconds between two recorded probes of a wait

# Decimal digits of a whole number: additions and multiplications in one loop, without a branch that
# depends on data. Steady when quiet on Intel's Emerald Rapids. There str.count, used until
# 2026-11-27, has two levels, presumably from the state of the branch predictors: that machine
# looked quiet 5 % of the time (docs/lab-notes.md). Python loops have levels of their own. sha256
# has its own instructions and hardly slows down.
_digits = timeit.Timer("str(number)", globals={"number": 7**600})
_TIMES = 10
# Kind -> bytes that its probes walk through, and bytes that one probe moves. A core's own cache
# does not hold the walk of CACHE; no cache holds that of MEMORY.
WALKS = {CACHE: (2 * 2**20, 2**20), MEMORY: (64 * 2**20, 4 * 2**20)}
UNITS = 1e-9  # seconds: probes are logged as whole nanoseconds


def probe():
    """Return the seconds of a fixed piece of work in the processor, 15 to 60 µs."""
    return _digits.timeit(_TIMES)


class MoveProbe:
    """Return the seconds of moving bytes in memory when called: 20 to 100 µs in the caches, 0.2 to
    1 ms beyond them.
    """

    def __init__(self, kind):
        self.again = kind == CACHE  # the first move brings the bytes into the cache
        size, self.chunk = WALKS[kind]
        # random and written, so that its pages exist
        self.memory = bytearray(os.urandom(2**16)) * (size // 2**16)
        self.source = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.target = self.source + size // 2
        self.places = size // 2 // self.chunk
        self.place = 0

    def __call__(self):
        if self.again:
            self._move()
        start = time.perf_counter()
        self._move()
        return time.perf_counter() - start

    def _move(self):
        offset = self.place * self.chunk
        self.place = (self.place + 1) % self.places
        ctypes.memmove(self.target + offset, self.source + offset, self.chunk)


class Cores:
    """The processor's probe on every core that this process may use, for work that torch spreads
    over all cores.

    Each core has its own thread for probes. The measuring thread must not take them: it would
    return to a core on which one of torch's threads waits. A copy of 1 MiB then took 2.4 ms instead
    of 17 µs (Linux 6.18, two cores).
    """

    def __init__(self):
        self.takers = [
            ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, {core}))
            for core in sorted(os.sched_getaffinity(0))
        ]

    def __call__(self):
        """Return the seconds on the slowest core, once torch's idle threads no longer spin."""
        until = time.perf_counter() + SPINS
        while time.perf_counter() < until:
            cpu_start = time.process_time()
            time.sleep(ASLEEP)
            if time.process_time() - cpu_start < ASLEEP / 2:
                break
        return max(taker.submit(self.take).result() for taker in self.takers)

    @staticmethod
    def take():
        _digits.timeit(1)  # wakes the core and fills its caches
        return probe()


def ready():
    """Return the total seconds that threads of this process waited for a core, ready to run; NaN if
    unknown.
    """
    try:
        waits = [
            int((task / "schedstat").read_text().split()[1])
            for task in Path("/proc/self/task").iterdir()
        ]
    except (OSError, IndexError):
        return math.nan
    return sum(waits) / 1e9


class Recent:
    """The latest probes of one kind and the seconds waited, of all processes from one fork server.

    Forked processes share this memory; spawned processes each have their own. asv runs one process
    at a time.
    """

    def __init__(self):
        # count of probes, seconds waited, count of processes, then the ring of logarithms of probes
        self.shared = memoryview(mmap.mmap(-1, 8 * (RING + RECENT))).cast("d")
        self.found_at, self.found = 0, None

    def add(self, seconds):
        count = int(self.shared[0])
        self.shared[RING + count % RECENT] = math.log(seconds)
        self.shared[0] = count + 1

    @property
    def waited(self):
        return self.shared[1]

    @waited.setter
    def waited(self, seconds):
        self.shared[1] = seconds

    def patience(self):
        """Return the seconds that the next process may wait."""
        allowed, _, processes = os.environ.get(PATIENCE_VARIABLE, "inf").partition("/")
        share = left = float(allowed) - self.waited
        if processes:
            share = FAIR * left / max(1, int(processes) - self.shared[2])
        self.shared[2] += 1
        return max(0.0, min(PATIENCE, left, share))

    def meet(self, take, fine):
        """Take probes for FIRST seconds; keep those that follow a true ``fine()``, at most enough
        to fill the ring.
        """
        start = now = time.perf_counter()
        while now - start < FIRST:
            good, seconds, now = fine(), take(), time.perf_counter()
            if good and now - start >= self.shared[0] * FIRST / RECENT:
                self.add(seconds)

    def baseline(self):
        """Return the logarithm of the fastest level that the machine held recently; None without
        enough probes.
        """
        if self.shared[0] >= self.found_at + RECOMPUTED_AFTER:
            self.found_at, self.found = int(self.shared[0]), self._find()
        return self.found

    def _find(self):
        ordered = sorted(self.shared[RING : RING + min(int(self.shared[0]), RECENT)])
        for first, fastest in enumerate(ordered):
            last = bisect_right(ordered, fastest + math.log(WIDTH))
            if last - first >= HELD * len(ordered):
                return statistics.median(ordered[first:last])


_RECENT = {kind: Recent() for kind in NEAR_BASELINE_LOG}


class Watch:
    """Takes probes before the first sample of a process and after each, and records how long the
    process waits.

    kinds    kinds of probes between samples; empty if a device's own clock times the samples,
             independent of the host's speed
    prepare  called before every look, so that a look shows the machine as it is when the next
             sample begins
    cores    takes the processor's probe on all cores; None: only on the core of this process
    """

    def __init__(self, kinds=(PROCESSOR,), prepare=None, cores=None):
        self.probe = cores or probe
        self.kinds = {kind: self.probe if kind == PROCESSOR else MoveProbe(kind) for kind in kinds}
        self.prepare = prepare
        self.probes = {kind: [] for kind in self.kinds}
        # samples taken before each wait: two looks lie between the last sample and the next
        self.waits = []
        self.waiting = []  # some probes taken during waits
        self.samples = 0
        self.patience = _RECENT[PROCESSOR].patience()
        self.waited = 0.0
        self.began = self.stayed = 0  # samples that began quiet, and samples that stayed quiet
        for kind, take in self.kinds.items():
            take()  # warms up its code and memory in this process
            if not _RECENT[kind].shared[0]:
                _RECENT[kind].meet(
                    take,
                    lambda kind=kind: (
                        kind == PROCESSOR or excess(self.probe()) <= NEAR_BASELINE_LOG[PROCESSOR]
                    ),
                )
        self.quiet = self.look()

    def look(self):
        """Take a probe of each kind, between two samples; return whether all are quiet, by the
        baselines so far.
        """
        if self.prepare is not None:
            self.prepare()
        self.quiet = True
        for kind, take in self.kinds.items():
            seconds = take()
            self.probes[kind].append(round(seconds / UNITS))
            if (
                self.quiet
            ):  # the processor's probe comes first: other baselines need a quiet processor
                _RECENT[kind].add(seconds)
            self.quiet &= excess(seconds, kind) <= NEAR_BASELINE_LOG[kind]
        return self.quiet

    def wait(self):
        """Take probes of the processor until one is quiet, or patience ends; then look again."""
        start, left = time.perf_counter(), self.left
        recorded_at = start
        while True:
            seconds = self.probe()
            now = time.perf_counter()
            if now - recorded_at >= POLL:
                recorded_at = now
                self.waiting.append(round(seconds / UNITS))
                _RECENT[PROCESSOR].add(seconds)
            if excess(seconds) <= NEAR_BASELINE_LOG[PROCESSOR] or now - start >= left:
                break
        self.waited += now - start
        self.waits.append(self.samples)
        self.look()

    @property
    def left(self):
        """Seconds that this process may still wait."""
        hopeless = self.began >= HOPELESS and not self.stayed
        return 0.0 if hopeless else max(0.0, self.patience - self.waited)

    def judge(self, sample):
        """Call ``sample``; return its seconds, whether it had the processor throughout, and whether
        it is quiet.

        A noisy sample is worth another try while ``left`` is above zero.
        """
        began, start = self.quiet, time.perf_counter()
        seconds, undisturbed = sample()
        self.samples += 1
        quiet = self.look() and began and undisturbed
        if not quiet and self.left > 0:  # with no time left, noisy samples are not repeated
            self.waited += time.perf_counter() - start
        self.began += began
        self.stayed += quiet
        return seconds, undisturbed, quiet

    def distances(self):
        """Return the distance of the probes around each sample from the baseline, in log units,
        summed over kinds.
        """
        excesses = [
            [excess(nanoseconds * UNITS, kind) for nanoseconds in probes]
            for kind, probes in self.probes.items()
        ]
        places = [
            sample + sum(wait <= sample for wait in self.waits) for sample in range(self.samples)
        ]
        return [sum(max(kind[place], kind[place + 1]) for kind in excesses) for place in places]

    def close(self):
        """Add the wait of this process to the total of all; return its seconds."""
        _RECENT[PROCESSOR].waited += self.waited
        return self.waited


def excess(seconds, kind=PROCESSOR):
    """Return a probe's absolute distance from the current baseline, in log units; 0 without enough
    probes.
    """
    baseline = _RECENT[kind].baseline()
    return 0.0 if baseline is None else abs(math.log(seconds) - baseline)
