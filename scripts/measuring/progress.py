"""How far long work is, and how long it will take."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Protocol


def duration(seconds: float) -> str:
    """A time to wait, in words."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Show(Protocol):
    """Takes how many processes are done, and the seconds for cells that are just taken once more."""

    def __call__(self, done: int, more: float = 0.0) -> None: ...


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
