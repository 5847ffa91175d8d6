"""Copies within a device, queued to keep it busy."""

import math
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
