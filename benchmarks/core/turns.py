"""Two processes that time the same cell on two sides take their samples in turns, on one core.

A disturbance that outlasts two samples then slows both alike, and the ratio of two neighbours
hardly changes. scripts/measuring/runner.py starts asv on both sides at once. A process finds the
other by two named pipes, and goes on alone if it does not come. Uses only the standard library.
"""

import contextlib
import hashlib
import os
import select
import struct
import time
from pathlib import Path

VARIABLE = "CONVERSION_TURNS"  # path of the pipe that this side reads: DIRECTORY/first or /second
ROLES = ("first", "second")  # the pipes; the first side takes the first sample
# A side that passes its turn still has to fall asleep. Without this pause in seconds its way there
# interrupts the other's sample: copies of 1 MiB took 2 % longer on one side
SETTLE = 0.0001
PATIENCE = 60.0  # longest wait for the other side, in seconds: for its set-up, or for a slow sample
READY, TURN, ABSENT = range(3)  # messages
_MESSAGE = struct.Struct("<16sBq")  # the cell, the message, the process that sends it


def partner_of(cell):
    """Return the Partner that times a cell on the other side; None where there is no such side."""
    return Partner(cell, Path(os.environ[VARIABLE])) if VARIABLE in os.environ else None


class Partner:
    """The process that times the same cell on the other side.

    pipe     that this process reads
    samples  times as many as a process takes alone
    is_here  both processes are ready, and none has waited in vain
    turns    samples that this process took in turns
    """

    samples = 5

    def __init__(self, cell, pipe):
        self.cell = hashlib.sha256(cell.encode()).digest()[:16]
        self.is_next = pipe.name == ROLES[0]
        other = pipe.with_name(ROLES[self.is_next])
        # for reading and writing: opening waits for nobody, and a pipe never ends
        self.inbox, self.outbox = (os.open(path, os.O_RDWR) for path in (pipe, other))
        self.is_here = False
        self.turns = 0

    def meet(self):
        """Wait until the other side has warmed up, too; return whether it came. Both then run on
        one core, whose speed is the same for both.
        """
        self._tell(READY)
        other = self._hear(READY)
        self.is_here = other is not None
        if self.is_here and hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[(os.getpid() + other) % len(cores)]})
        return self.is_here

    def leave(self):
        """Tell the other side not to wait: this process takes no samples."""
        self._tell(ABSENT)

    @contextlib.contextmanager
    def turn(self):
        """Wait for the other side's sample before the block, and let it take its next one after."""
        if self.is_here and not self.is_next:
            self.is_here = self._hear(TURN) is not None
        self.is_next = False
        if self.is_here:
            time.sleep(SETTLE)
        yield
        if self.is_here:
            self.turns += 1
            self._tell(TURN)

    def _tell(self, message):
        os.write(self.outbox, _MESSAGE.pack(self.cell, message, os.getpid()))

    def _hear(self, wanted):
        """Return the process that sends this message; None if it leaves, or says nothing: then this
        one leaves, too. Messages about other cells are left over from processes that ended early.
        """
        end = time.monotonic() + PATIENCE
        while (left := end - time.monotonic()) > 0 and select.select([self.inbox], [], [], left)[0]:
            cell, message, process = _MESSAGE.unpack(os.read(self.inbox, _MESSAGE.size))
            if cell == self.cell and message in (wanted, ABSENT):
                return None if message == ABSENT else process
        self.leave()
        return None
