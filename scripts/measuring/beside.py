"""What runs beside a measurement: the installation of the next toolchain, and a process that keeps the device awake.

The toolchain to come is installed while the one before it is counted: no noise touches a count. A process holds a
context on the device beside a run: without one, each process timed finds clocks and link asleep.

Run as a program: installs the release with this tag, with so many environments on disk at most.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program it is alone

from toolchains import environments, ledger

from measuring.engine import ENVIRONMENTS, ROOT
from measuring.machine import DEVICE_SECONDS, IN_SUITE, device_that_works
from measuring.processes import session

# --- the next toolchain -----------------------------------------------------------------------------------------------

BEHIND = 10  # as nice(1) has it: a tenth of a core that another wants, so that no busy machine stops an install


@contextlib.contextmanager
def installing(tag: str, keep: int) -> Iterator[None]:
    """A release is installed while the block runs, and is when it is left; where it cannot be, who needs it learns why.

    In a process of its own, so that what this one uses stays its own, and nothing of it is left when we are ended.
    """
    silent = subprocess.DEVNULL
    command = [sys.executable, __file__, tag, str(keep)]
    started = time.monotonic()
    with session(command, ROOT, stdin=silent, stdout=silent, stderr=silent) as process:
        yield
        if process.wait() == 0:
            print(f"{tag}: installed ahead, ready after {time.monotonic() - started:.0f} s", flush=True)


def stand_back() -> None:
    """From now on this process, and what it starts, has what the others leave: the visit waits for counts, and these
    leave a core when the last of them runs.

    Where Linux has autogroups, a session is one, and it is groups that are weighed, not the processes in them; each has
    a niceness of its own (sched(7)).
    """
    if hasattr(os, "nice"):  # Windows has none
        os.nice(BEHIND)
    with contextlib.suppress(OSError):  # no autogroups here, or another one's
        Path("/proc/self/autogroup").write_text(str(BEHIND), encoding="utf-8")


# --- a device that is kept awake --------------------------------------------------------------------------------------


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


if __name__ == "__main__":
    stand_back()
    tag, keep = sys.argv[1:]
    known = {toolchain.tag: toolchain for toolchain in ledger.commits().values()}
    environments.prepare(ROOT / ENVIRONMENTS, known[tag], int(keep))
