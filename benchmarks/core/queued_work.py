"""Work queued on a device: to keep it busy, to see whether a call waits for it, to warm it up."""

import math
import statistics
import time

import torch

from .timing import note

BLOCK = (
    64 * 2**20
)  # bytes of each copy within the device: 30 µs on the fastest, 3 ms on a small one
TRIES = 3  # attempts at queueing work; the shortest counts
MOST_TRIES = 20  # attempts at seeing queued work: a host that is busy elsewhere looks too late
MOST = 1024  # most queued copies, where a wait returns at once: 14 ms of work on the fastest
HOPELESS = (
    20  # if queueing takes this many times as long as the work, the device works during the call
)

# seconds of work queued before a check: a call that returns too early is microseconds early
SEEN = 0.002
# A device's clock rises under load, from 345 to 1,980 MHz within 0.2 s; a sleeping link wakes in
# milliseconds
WARM_SECONDS, WARM_AT_MOST = 0.3, 2.0
WARM_STEP = 0.1  # seconds between two samples
WARM_WITHIN = 0.03  # their largest relative difference
CROSSING = 2**20  # bytes that cross the link with each piece of warm-up work


class Work:
    """Copies within a device, enough to keep it busy for ``seconds``; no copies if the device does
    not queue.
    """

    def __init__(self, device, seconds):
        self.device, self.copies, self.seen = device, 1, False
        self.original, self.duplicate = (
            torch.empty(BLOCK, dtype=torch.uint8, device=device.device) for _ in range(2)
        )
        while True:
            queueing, left = (
                min(each) for each in zip(*(self._time_queue() for _ in range(TRIES)))
            )
            if queueing > HOPELESS * seconds and not self.seen:
                self.copies = 0
            if not 0 < self.copies < MOST or left >= seconds:
                break
            self.copies = min(
                MOST, math.ceil(self.copies * min(10, max(1.1, seconds / max(left, 1e-9))))
            )

    def queue(self):
        for _ in range(self.copies):
            self.duplicate.copy_(self.original, non_blocking=True)

    def queue_before(self, call):
        """Queue work until the stream is seen to be busy. Without that, a check whether ``call``
        waits is impossible.

        If the device does not queue or cannot report, this is noted. Otherwise the cell is skipped.
        """
        for _ in range(MOST_TRIES):
            self.queue()
            idle = self.device.is_idle()
            if not idle:  # busy, or the device cannot say
                break
        if idle is False:
            return
        if self.copies and idle:
            raise NotImplementedError(
                f"could not tell whether {call} waits: {self.device} was never seen busy before"
            )
        note(unseen=f"{call}: the stream was not seen to be busy before")

    def _time_queue(self):
        """Return the seconds that queueing takes, and the seconds that the device then remains
        busy.
        """
        self.device.synchronize()
        start = time.perf_counter()
        self.queue()
        queued = time.perf_counter()
        self.seen = self.seen or self.device.is_idle() is False
        self.device.synchronize()
        return queued - start, time.perf_counter() - queued

    def require(self):
        """Skip the cell if no work can be queued."""
        if not self.copies:
            raise NotImplementedError(
                f"no work can be queued on {self.device}: it is done when the call returns"
            )
        return self


def check_synchronize(device):
    """Raise RuntimeError unless waits last as long as the queued work; return the Work, for
    more checks.
    """
    work = Work(device, SEEN)
    for call, wait in {
        "synchronize()": device.synchronize,
        "the stream's synchronize()": device.wait,
    }.items():
        work.queue_before(call)
        wait()
        device.require_idle(call)
    return work


def warm_up(device):
    """Load device and link until their clocks have risen: at least WARM_SECONDS, and until two
    samples agree.
    """
    sizes = (BLOCK, BLOCK, CROSSING)
    source, target, crossed = (
        torch.empty(size, dtype=torch.uint8, device=device.device) for size in sizes
    )
    host, start, samples, steady = (
        torch.empty(CROSSING, dtype=torch.uint8),
        time.perf_counter(),
        [],
        False,
    )
    while True:
        begun, pieces = time.perf_counter(), []
        while (piece_start := time.perf_counter()) < begun + WARM_STEP:
            target.copy_(source, non_blocking=True)
            crossed.copy_(host)
            device.synchronize()
            pieces.append(time.perf_counter() - piece_start)
        samples.append(statistics.median(pieces))
        steady = len(samples) > 1 and abs(math.log(samples[-1] / samples[-2])) <= WARM_WITHIN
        elapsed = time.perf_counter() - start
        if (steady and elapsed >= WARM_SECONDS) or elapsed >= WARM_AT_MOST:
            break
    note(
        warmed={
            "seconds": round(elapsed, 3),
            "first": samples[0],
            "last": samples[-1],
            "steady": steady,
        }
    )
