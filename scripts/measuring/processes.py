"""Run programs in a session of their own, which ends with this process in any case. Print the
progress of long work.

asv starts a server, which forks a process per cell, each in its own process group. Only the session
contains them all. Run as a program, this file is the watcher of a session, for the case that the
parent is killed. It reads the session's number, and ends the session when its input ends. A process
cannot prevent that, not even one that is killed.
"""

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil

GRACE = 5.0  # seconds that a program has after Ctrl-C before its session is killed
PROGRESS_SECONDS = 15  # between two lines of progress
SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
Command = Sequence[str | Path]
Environment = Mapping[str, str]


def environment_of(python: Path, **variables: str) -> dict[str, str]:
    """Return environment variables for programs of that Python: this process's, updated by
    ``variables``."""
    inherited = dict(os.environ)
    if python != Path(sys.executable):
        inherited.pop("PYTHONPATH", None)  # packages found there belong to this Python
    return {**inherited, **variables}


@contextlib.contextmanager
def os_session(
    command: Command,
    cwd: Path,
    env: Environment | None = None,
    **streams: Any,
) -> Iterator["subprocess.Popen[str]"]:
    """Start a program in a session of the operating system. At the end of the block, kill it and
    all processes that it started.

    streams  stdin, stdout and stderr, as for Popen
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, __file__], stdin=pipe, text=True, start_new_session=True
    ) as watcher:
        process = None
        try:
            with _later_interrupted():
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=env,
                    start_new_session=True,
                    text=True,
                    **streams,
                )
                print(process.pid, file=watcher.stdin, flush=True)
            yield process
        except BaseException:
            if process:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE)
            raise
        finally:
            with _later_interrupted():
                if process:
                    kill_session(process.pid)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(GRACE)  # a process that hangs in a driver survives even a kill
                watcher.kill()


class Program(NamedTuple):
    """A command, with its directory and its environment variables."""

    command: Command
    cwd: Path
    env: Environment | None = None


def run_in_session(
    command: Command,
    cwd: Path,
    env: Environment | None = None,
    seconds: float = math.inf,
    meanwhile: Callable[[], None] | None = None,
) -> "Done":
    """Run a program in a session of the operating system. See ``run_in_sessions``."""
    return run_in_sessions([Program(command, cwd, env)], seconds, meanwhile)[0]


def run_in_sessions(
    programs: Sequence[Program],
    seconds: float = math.inf,
    meanwhile: Callable[[], None] | None = None,
) -> list["Done"]:
    """Run programs at the same time, each in a session of the operating system. Return their
    outputs and exit codes, None after ``seconds``.

    meanwhile  called while the programs run, only a few times per second so as not to disturb
               measurements
    """
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as files, contextlib.ExitStack() as sessions:
        outputs = [_Output.open(files) for _ in programs]
        processes = [
            sessions.enter_context(os_session(*program, stdout=output.out, stderr=output.err))
            for program, output in zip(programs, outputs)
        ]
        while any(each.poll() is None for each in processes) and time.monotonic() < end:
            time.sleep(0.3 if meanwhile else 0.02)
            if meanwhile:
                meanwhile()
        codes = [process.poll() for process in processes]
        sessions.close()
        return [output.completed(code) for output, code in zip(outputs, codes)]


class Done(NamedTuple):
    """How a program ended. returncode: None if it was stopped."""

    returncode: int | None
    stdout: str
    stderr: str


class _Output(NamedTuple):
    """What a program prints. Files, not pipes: a process that hangs in a driver would keep a pipe
    open for ever."""

    out: IO[str]
    err: IO[str]

    @classmethod
    def open(cls, stack: contextlib.ExitStack) -> "_Output":
        """Open the files until the stack closes."""
        return cls(*(stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)))

    def completed(self, code: int | None) -> Done:
        """The texts, with the program's exit code."""
        for file in self:
            file.seek(0)
        return Done(code, self.out.read(), self.err.read())


def last_line(text: str, default: str = "stopped without a word") -> str:
    """Return the last non-blank line of a program's output, or ``default`` if there is none."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), default)


def read_text(path: Path | str) -> str:
    """Return the text of a small file, "" if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def kill_session(number: int) -> None:
    """Kill the processes of a session, and any that they start meanwhile. A process that hangs in a
    driver survives."""
    end = time.monotonic() + GRACE
    while (processes := session_members(number)) and time.monotonic() < end:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                psutil.Process(process).kill()
        time.sleep(0.01)


def session_members(number: int) -> list[int]:
    """Return the running processes of a session. The list is empty on systems without sessions,
    such as Windows."""
    processes = []
    for process in psutil.pids():
        with contextlib.suppress(OSError, AttributeError, psutil.Error):
            is_member = os.getsid(process) == number
            if is_member and psutil.Process(process).status() not in ("zombie", "dead"):
                processes.append(process)
    return processes


@contextlib.contextmanager
def _later_interrupted() -> Iterator[None]:
    """Delay signals until the end of the block. An interruption inside would leave a process
    unwatched."""
    delayed: list[int] = []
    with contextlib.ExitStack() as stack:
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                handler = signal.signal(number, lambda number, frame: delayed.append(number))
                stack.callback(signal.signal, number, handler)
        yield
    if delayed:
        signal.raise_signal(delayed[0])


# --- progress -------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """Format a waiting time."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


@dataclass
class Progress:
    """Print the percentage of ``total`` steps done, and the time left, estimated from the mean so
    far. Print at most one line per PROGRESS_SECONDS, and only for another percent.

    start, printed  times of the first step and of the last line
    """

    title: str
    total: int = 0
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    percent: int = 0
    start: float = math.nan
    printed: float = math.nan

    def at(self, done: int) -> None:
        """Note that ``done`` steps are done."""
        now = self.clock()
        self.done = done
        if math.isnan(self.start):
            self.start = self.printed = now
        share = min(done / max(self.total, 1), 1.0)
        if now - self.printed <= PROGRESS_SECONDS or int(100 * share) <= self.percent:
            return
        self.printed = now
        self.percent = int(100 * share)
        left = ""
        if 0.03 <= share < 1:
            left = f", {duration((now - self.start) * (1 - share) / share)} left"
        print(f"{self.title}: {share:.0%}{left}", flush=True)


if __name__ == "__main__":
    session = sys.stdin.readline().strip()
    sys.stdin.read()
    if session:
        kill_session(int(session))
