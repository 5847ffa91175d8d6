"""Programs in a session of their own that ends when we do, however we end, and how far a long work is.

asv starts a server, which forks a process a cell, each in a process group of its own: the session alone has them all.
Run as a program this is the watcher of one: it reads a session's number, and ends that session when its input ends,
which a process cannot prevent, not even one that is killed. So this file imports the standard library alone.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

GRACE = 5.0  # seconds that a program has after Ctrl-C before its session is killed
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextlib.contextmanager
def session(
    command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, **options: Any
) -> Iterator["subprocess.Popen[Any]"]:
    """A program, started; when the block is left, it and all it started are gone. ``options`` are Popen's."""
    watch = [sys.executable, "-I", "-S", __file__]
    watcher = subprocess.Popen(watch, stdin=subprocess.PIPE, text=True, start_new_session=True)
    assert watcher.stdin
    process = None
    try:
        with _later_interrupted():
            process = subprocess.Popen(command, cwd=cwd, env=env, start_new_session=True, **options)
            watcher.stdin.write(f"{process.pid}\n")
            watcher.stdin.flush()
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
                end(process.pid)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE)  # what hangs inside a driver outlives even a kill
            watcher.kill()
            watcher.wait()
            watcher.stdin.close()


def apart(
    command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a program that drives asv, in a session of its own; its exit code and what it printed."""
    pipe = subprocess.PIPE
    with session(command, cwd, env, stdout=pipe, stderr=pipe, text=True) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def own_home(home: Path) -> dict[str, str]:
    """The environment with a home of its own, where asv keeps its machines and git its settings, and none of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CONVERSION_"))}
    return {**kept, "HOME": str(home)}


def last_line(text: str, otherwise: str = "stopped without a word") -> str:
    """The last line that a program printed, or what else is to be said of it."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), otherwise)


def read(path: Path | str) -> str:
    """Text of a small file; "" where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def end(number: int) -> None:
    """Kill the processes of a session, and those that they start meanwhile.

    Where the system does not list them, the group of its first process, or that process alone.
    """
    if not Path("/proc/self/stat").is_file():
        with contextlib.suppress(OSError):
            os.killpg(number, signal.SIGKILL) if hasattr(os, "killpg") else os.kill(number, signal.SIGTERM)
        return
    until = time.monotonic() + GRACE
    while time.monotonic() < until:
        processes = members(number)
        for process in processes:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if not processes:
            return
        time.sleep(0.01)


def members(number: int) -> list[int]:
    """The processes of a session that run, as Linux lists them."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, _, _, belongs, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(belongs) == number and state not in "ZX":
                processes.append(int(path.parent.name))
    return processes


@contextlib.contextmanager
def _later_interrupted() -> Iterator[None]:
    """Ctrl-C, and what else ends us, takes effect when the block is done."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


# --- how far work is --------------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """A time to wait, in words."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


# Takes how many processes are done, and perhaps the seconds for cells that are just taken once more
Show = Callable[..., None]


def after(show: Show, before: int) -> Show:
    """Tells ``show`` of work that comes after so many processes which are done."""
    return lambda done, more=0.0: show(before + done, more)


@contextlib.contextmanager
def progress(total: int, title: str) -> Iterator[Show]:
    """A callable that takes the number of processes done: a bar with time left, or a line now and then.

    The time left is by the mean since the start, between toolchains that are measured others are installed; it is said
    from the first hundredth on, for what was installed or counted before the first process says nothing of the others.
    """
    start = shown = time.monotonic()
    finished = False

    def share_and_left(done: int, more: float) -> tuple[int, float]:
        share = 100 * min(done, total) // total
        return min(share, 99) if more else share, (time.monotonic() - start) * (total - done) / max(done, 1) + more

    try:
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        Progress = None  # type: ignore[assignment, misc]
    if Progress is not None and sys.stdout.isatty():
        text = TextColumn("{task.fields[share]:>3} %{task.fields[left]}")
        with Progress(TextColumn("{task.description}"), BarColumn(), text) as bar:
            task = bar.add_task(title, total=total, share=0, left="")

            def move(done: int, more: float = 0.0) -> None:
                share, left = share_and_left(done, more)
                words = f"  {duration(left)} left" if share and left > 0 else ""
                bar.update(task, completed=min(done, total), share=share, left=words)

            yield move
        return

    def line(done: int, more: float = 0.0) -> None:
        nonlocal shown, finished
        now = time.monotonic()
        last = done >= total and not more and not finished
        if done and (now - shown > 15 and not finished or last):
            shown, finished = now, last
            share, left = share_and_left(done, more)
            print(f"{title}: {share} %" + (f", {duration(left)} left" if share else ""), flush=True)

    yield line


if __name__ == "__main__":
    watched = sys.stdin.readline().strip()
    sys.stdin.read()
    if watched:
        end(int(watched))
