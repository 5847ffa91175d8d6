"""What a run has measured so far, on disk: whole steps only, and filed in one go.

    .asv/runs/NAME/3      the last whole step: run.json, sampling.jsonl (what processes logged), results/ (asv's files)
    .asv/runs/NAME/work   the step that is being taken, which begins as a copy of the last
    .asv/runs/NAME/whole  all of the run, on its way to reports/results

A step becomes whole by one rename. A kill, or a full disk, at any moment leaves what was there before the step or what
is there after it, never an asv result file that holds a round which the run's own record does not count.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from cli import UserError, put
from store.files import BROKEN, put_all
from store.records import Unfinished, checked, made_of, name_of

from .processes import read

RUN, LOG, RESULTS = "run.json", "sampling.jsonl", "results"
WORK, WHOLE = "work", "whole"
PLAN = "plan.json"  # of several runs, see Kept
NAMED = 2.0  # seconds to wait for whoever holds a run: by then it has ended, or has said who it is


class State:
    """The steps of one run; ``directory`` is where they are kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work = directory / WORK
        self.log = self.work / LOG  # where asv's processes log their samples during a step
        self.results = self.work / RESULTS  # asv's results directory during a step
        self.taking = False  # a step; what lies there before may be what an interrupted one left

    def _last(self) -> Path | None:
        """The last whole step."""
        steps = [path for path in self.directory.glob("*") if path.name.isdecimal()]
        return max(steps, key=lambda path: int(path.name), default=None)

    def start(self, record: Unfinished) -> None:
        """Begin a run anew."""
        self.finish()
        self.taking = True
        self.results.mkdir(parents=True)
        self.log.touch()
        self.save(record)

    def begin(self) -> None:
        """Begin a step. What an interrupted one left is gone."""
        last = self._last()
        if last is None:
            raise UserError(f"what was measured so far is gone from {self.directory}")
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(last, self.work)
        self.taking = True

    def save(self, record: Unfinished) -> None:
        """The step is whole, and this is the run's record now."""
        last = self._last()
        (self.work / RUN).write_text(json.dumps(asdict(record)), encoding="utf-8")
        self.work.rename(self.directory / str(int(last.name) + 1 if last else 0))
        self.taking = False
        if last:
            shutil.rmtree(last, ignore_errors=True)

    def load(self) -> Unfinished | None:
        """The run's record after its last whole step; None where there is none. UserError where it cannot be read."""
        last = self._last()
        if last is None:
            return None
        try:
            return made_of(Unfinished, json.loads((last / RUN).read_text(encoding="utf-8")))
        except (OSError, *BROKEN):
            raise UserError(f"{last / RUN} cannot be read: remove {self.directory}, and begin anew") from None

    def lines(self) -> list[dict[str, Any]]:
        """What the processes of the run logged, those of the step that is being taken included."""
        place = self.work if self.taking else self._last()
        if place is None:
            return []
        return [json.loads(line) for line in (place / LOG).read_text(encoding="utf-8").splitlines()]

    def mark(self, round_of_cell: Callable[[str], int]) -> None:
        """Say of the lines that have come since which round they belong to, by the cell that they are about."""
        lines = self.lines()
        for line in lines:
            if "round" not in line:
                line["round"] = round_of_cell(name_of(line))
        self.log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def publish(self, results: Path) -> bool:
        """File what is whole in ``results``, and forget the run; False where nothing is."""
        whole = self.directory / WHOLE
        if not whole.is_dir():
            return False
        put_all(whole, results)
        self.finish()
        return True

    def complete(self) -> None:
        """The step that is being taken is the last: its results are what is to be filed."""
        self.taking = False
        self.results.rename(self.directory / WHOLE)
        shutil.rmtree(self.work, ignore_errors=True)

    def finish(self) -> None:
        """Forget the run, its steps first: what is left of a filed run may be filed again, but not gone on with."""
        for path in sorted(self.directory.glob("*"), key=lambda path: not path.name.isdecimal()):
            if path.name.isdecimal() or path.name in (WORK, WHOLE):
                shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.directory.rmdir()  # unless other runs lie below it


Self = TypeVar("Self", bound="Kept")


@dataclass
class Kept:
    """What is kept on disk until all of it is done: the fields but ``directory``, in which that is."""

    directory: Path

    @classmethod
    def load(cls: type[Self], directory: Path) -> Self | None:
        """What is kept there; None where nothing is, or nothing that can be read."""
        try:
            kept = json.loads((directory / PLAN).read_text(encoding="utf-8"))
            kinds = get_type_hints(cls)
            return cls(directory, **{name: checked(name, kinds[name], value) for name, value in kept.items()})
        except (OSError, *BROKEN):
            return None

    @property
    def path(self) -> Path:
        return self.directory / PLAN

    def kept(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "directory"}

    def save(self) -> None:
        put(self.path, json.dumps(self.kept()))

    def finish(self) -> None:
        self.path.unlink(missing_ok=True)


def check_same(options: Mapping[str, tuple[Any, Any]]) -> None:
    """UserError where --resume comes with options that the interrupted run had not.

    options  name of an option -> what is asked now, None where it is not said, and what was asked then
    """
    changed = [f"--{name}" for name, (now, then) in options.items() if now is not None and now != then]
    if changed:
        raise UserError(f"the interrupted run was another by {', '.join(changed)}: --resume alone goes on with it")


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Nobody else measures into ``directory`` meanwhile; UserError says who does."""
    from filelock import FileLock, Timeout  # comes with asv, by way of virtualenv

    directory.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory.with_name(directory.name + ".lock"), timeout=NAMED)
    holder = directory.with_name(directory.name + ".holder")
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"{directory.name} is being measured already, by {read(holder) or 'another process'}: "
            "wait for it, or use --machine"
        ) from None
    try:
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        put(holder, f"process {os.getpid()} ({command}) since {time.strftime('%H:%M')}")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
