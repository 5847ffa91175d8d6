"""What a run has measured so far, on disk: whole jobs only, whatever stops it.

    .asv/runs/NAME/run/plan.json    what was asked for
    .asv/runs/NAME/run/TAG/2        the third round of a session: run.json (its record so far), sampling.jsonl (what
                                    processes logged) and results/ (asv's files)
    .asv/runs/NAME/run/filed/0-TAG  the first session that is filed in reports/results
    .asv/runs/NAME/run/work         the job that is being taken

A job becomes whole by one rename, and so a session becomes filed. A kill, or a full disk, at any moment costs the job
that is being taken, and nothing else. To resume is to take the jobs that the journal lacks.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cli import UserError, put
from store.files import BROKEN
from store.records import Line, Made, Unfinished, made_of

from .engine import FILES, LOG, logged
from .processes import read

RECORD, PLAN, FILED = "run.json", "plan.json", "filed"
NAMED = 2.0  # seconds to wait for whoever holds a run: by then it has ended, or has said who it is


@dataclass(frozen=True)
class Plan:
    """What a run was asked for.

    tags       toolchains, in the order in which they are measured; "" is what this Python has
    beside     those of which a session stands beside those of other days, by the same benchmarks, and replaces none
    reference  is measured first and last; "": the first that can be measured, for the oldest may have no wheel
    fleet      of a node: id of the campaign, engine, node
    """

    machine: str
    profile: str
    only: str
    rounds: int
    tags: tuple[str, ...] = ("",)
    command: str = ""
    beside: tuple[str, ...] = ()
    reference: str = ""
    fleet: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Job:
    """A round of a session: of one toolchain (by its tag), on one side where it is measured several times."""

    tag: str
    round: int
    side: str = ""
    cells: tuple[str, ...] = ()  # by asv's names; none: those that the profile has in this round

    @property
    def session(self) -> str:
        return "-".join(filter(None, (self.tag or "installed", self.side)))


class Journal:
    """The finished jobs of a run, kept in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work = directory / "work"

    def plan(self) -> Plan | None:
        """What was asked for; None where nothing is kept. UserError where it cannot be read."""
        return restored(Plan, self.directory / PLAN, self.directory)

    def save(self, plan: Plan) -> None:
        """This is what is asked for now; what is measured stays."""
        put(self.directory / PLAN, json.dumps(asdict(plan)))

    def forget(self) -> None:
        """Another run begins. By one rename: half of a journal would be measured, or filed, again."""
        gone = self.directory.with_name(f".{self.directory.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            self.directory.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def rounds(self, session: str) -> list[int]:
        """The rounds of a session that are whole."""
        return sorted(int(path.name) for path in (self.directory / session).glob("*") if path.name.isdecimal())

    def places(self, session: str) -> list[Path]:
        """Where they lie."""
        return [self.directory / session / str(number) for number in self.rounds(session)]

    def begin(self) -> None:
        """A job begins. What an interrupted one left is gone."""
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / FILES).mkdir(parents=True)
        (self.work / LOG).touch()

    def keep(self, job: Job, record: Unfinished) -> None:
        """The job is whole, and this is the record of its session now."""
        (self.work / RECORD).write_text(json.dumps(asdict(record)), encoding="utf-8")
        place = self.directory / job.session
        place.mkdir(exist_ok=True)
        self.work.rename(place / str(job.round))

    def record(self, session: str) -> Unfinished | None:
        """The record of a session after its last whole job; None where there is none. UserError where it is broken."""
        places = self.places(session)
        return restored(Unfinished, places[-1] / RECORD, self.directory, needed=True) if places else None

    def lines(self, session: str, working: bool = False) -> list[Line]:
        """What the processes of a session logged, those of the job that is being taken included where it says so."""
        places = self.places(session) + ([self.work] if working else [])
        return [line for place in places for line in logged(place)]

    # --- sessions -----------------------------------------------------------------------------------------------------

    def filed(self) -> list[str]:
        """The sessions that are filed, in the order in which that was done."""
        marks = [path.name.split("-", 1) for path in (self.directory / FILED).glob("*-*")]
        return [session for _, session in sorted(marks, key=lambda mark: int(mark[0]))]

    def is_filed(self, session: str) -> None:
        """Note that the results of a session are filed; its jobs are gone."""
        (self.directory / FILED).mkdir(exist_ok=True)
        mark = self.directory / FILED / f"{len(self.filed())}-{session}"
        (self.directory / session).rename(mark)
        for place in mark.iterdir():
            shutil.rmtree(place, ignore_errors=True)


def restored(of: type[Made], path: Path, directory: Path, /, needed: bool = False, **more: object) -> Made | None:
    """What a file below ``directory`` holds, with what its JSON has not; None where there is no such file.

    UserError where it cannot be read, or is ``needed`` and not there: taken for nothing, all would be measured again.
    """
    try:
        return made_of(of, json.loads(path.read_text(encoding="utf-8")) | more)
    except (OSError, *BROKEN) as error:
        if isinstance(error, FileNotFoundError) and not needed:
            return None
        raise UserError(f"{path} cannot be read: remove {directory}, and begin anew") from None


@contextlib.contextmanager
def held(directory: Path, seconds: float = NAMED) -> Iterator[None]:
    """Nobody else measures into ``directory`` meanwhile; UserError says who does, after so many seconds."""
    from filelock import FileLock, Timeout  # comes with asv, by way of virtualenv

    directory.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory.with_name(directory.name + ".lock"), timeout=seconds)
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
