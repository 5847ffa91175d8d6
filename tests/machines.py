"""Machines that are busy in known ways: a clock that runs, and how much slower than its best the processor is by then.

They stand in for ``time`` and ``probe`` in benchmarks/probes.py, so that what takes samples runs on them as it does on
real ones, thousands of times faster.
"""

import random
from bisect import bisect

import numpy as np

PROBE, PAUSE = 25e-6, 30e-3  # seconds of a probe on the quiet machine; of a process's start
OVERHEAD = 1e-7  # seconds that reading the clock takes


class Machine:
    """``slow(t)``: how many times longer work takes at t seconds. ``away(t)``: the processor is taken away then."""

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
        """Do so much of work at full speed: small steps, each at the speed of its time."""
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

    def probe(self):
        return self.work(PROBE)


def bursts(share, slow=1.9, mean=0.05, until=400.0):
    """A neighbour on the core: slow phases of some milliseconds to seconds, ``share`` of the time."""
    rng = np.random.default_rng(1)
    count = int(until / mean)
    lengths = rng.exponential(mean, count) * rng.choice([0.05, 0.3, 3.0], count)
    lengths[::2] *= share / (1 - share)
    ends = np.cumsum(lengths).tolist()
    return lambda t: slow if bisect(ends, t) % 2 == 0 else 1.0


def quota(t):
    """A cgroup's: full speed, then nothing until the tenth of a second ends."""
    return t % 0.1 > 0.05


def steal(t):
    """A hypervisor that takes the processor for two milliseconds every eleven."""
    return t % 0.011 < 0.002
