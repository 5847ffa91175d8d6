"""A process that holds a context beside a run: without one, each process timed finds clocks and link asleep."""

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator

from .engine import ROOT
from .machine import DEVICE_SECONDS, IN_SUITE, device_that_works
from .session import session

AWAKE = "awake"
CODE = f"{IN_SUITE}devices.hold({AWAKE!r})"


@contextlib.contextmanager
def awake(python: str = sys.executable, seconds: float = DEVICE_SECONDS) -> Iterator[str]:
    """A device that is kept awake while the block runs; gives why it is not, "" where it is.

    A device that takes one process alone is let go before the block begins.
    """
    command = [python, "-c", CODE, str(ROOT)]
    with contextlib.ExitStack() as stack:
        pipe = subprocess.PIPE
        beside = session(command, ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        process = stack.enter_context(beside)
        assert process.stdout
        readable, _, _ = select.select([process.stdout], [], [], seconds)
        if not readable or process.stdout.readline().strip() != AWAKE:
            why = "the process that was to hold a context made none"
        else:
            why = device_that_works(python, os.environ, seconds)["no_device"]
        if why:
            stack.close()
        yield why
