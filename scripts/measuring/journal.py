"""The plan of a run and its journal on disk: its finished jobs, and the lock that lets one process
measure at a time.

A job is a round of a session: every cell in one process, then noisy cells again, as long as the
budget allows.

    .asv/runs/NAME/run/plan.json    the plan: what the user asked for
    .asv/runs/NAME/run/TAG/2        the third round of a session: run.json (its record so far),
                                    sampling.jsonl (the log of its processes) and results/ (asv's
                                    files)
    .asv/runs/NAME/run/filed/0-TAG  the first session that is filed in reports/results
    .asv/runs/NAME/run/work         the job that is being taken

One rename makes a job complete, and another marks a session as filed. A kill, or a full disk, loses
only the job that is being taken. A resumed run takes the jobs that the journal lacks.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cli
import msgspec
from cli import RESULTS, UserError
from store import files
from store.files import put
from store.schema import LogLine, RunRecord, T, from_json, to_json
from toolchains import ledger

from .engine import FILES, LOG, read_log
from .processes import read_text
from .profiles import Names

RECORD, PLAN, FILED = "run.json", "plan.json", "filed"
REPEAT = "again"  # side of a repeated session, which is added to the earlier one
# Seconds to wait for a lock: by then its holder has ended, or written its name
LOCK_SECONDS = 2.0


class Plan(msgspec.Struct, frozen=True):
    """The settings of a run.

    tags       toolchains, in the order in which they are measured; "" is this Python's toolchain
    additional  tags whose new sessions are added to earlier ones, instead of replacing them, if the
                benchmarks are equal
    reference  toolchain measured first and last; "": the first that can be measured, since the
               oldest may have no wheel
    fleet      for a node: id of the campaign, engine, node
    race       results that can no longer change an answer take no further rounds
    """

    machine: str
    profile: str
    only: str
    rounds: int
    tags: tuple[str, ...] = ("",)
    command: str = ""
    additional: tuple[str, ...] = msgspec.field(default=(), name="beside")  # its name on disk
    reference: str = ""
    fleet: dict[str, str] = {}
    race: bool = False


@dataclass(frozen=True)
class Job:
    """A round of a session: one toolchain (by its tag), on one side if it is measured several
    times.

    cells  asv's names; empty: the profile's cells in this round
    """

    tag: str
    round: int = 0
    side: str = ""
    cells: tuple[str, ...] = ()

    @property
    def session(self) -> str:
        return "-".join(filter(None, (self.tag or "installed", self.side)))


# --- which toolchains, in which order -------------------------------------------------------------


def coarse_to_fine(tags: Names) -> list[str]:
    """Order by the positions' reversed binary digits (van der Corput): first, (nearly) last,
    middle, quarters.

    In order of release, a drift of the machine over the hours would look like a trend of the
    releases.
    """
    digits = len(tags).bit_length()
    positions = sorted(range(len(tags)), key=lambda position: f"{position:0{digits}b}"[::-1])
    return [tags[position] for position in positions]


def due_plan(
    plan: Plan, added: Collection[ledger.Toolchain], results: Path = RESULTS
) -> Plan | None:
    """Return ``plan`` with the releases due on its machine, or None if no release is due.

    Due are the releases ``added`` now, and those after the last release with a run record of the
    machine. Without such records, those of all machines count. With a new release the one before it
    is measured, too, beside its earlier sessions. That is the last earlier release which the
    machine has figures of or is going to measure, else simply the previous release.
    """
    is_due: dict[str, bool] = {}  # in order of measuring; False: only to compare with
    recorded = recorded_toolchains(results, plan.machine)
    anywhere = recorded_toolchains(results, None)
    for releases in map(ledger.history, ledger.histories()):
        is_usual = releases[0].history in ledger.PACKAGES
        if not is_usual and all(each.commit not in recorded for each in releases):
            continue  # nobody measured it here
        last = _last_place(releases, recorded, anywhere)
        for place, release in enumerate(releases):
            if place <= last and (release not in added or release.commit in recorded):
                continue
            if earlier := releases[:place]:
                measured = [
                    each for each in earlier if each.tag in is_due or recorded.get(each.commit)
                ]
                is_due.setdefault((measured or earlier)[-1].tag, False)
            is_due[release.tag] = True
    if not any(is_due.values()):
        return None
    additional = tuple(tag for tag in is_due if not is_due[tag])
    return msgspec.structs.replace(plan, tags=tuple(is_due), additional=additional)


def _last_place(releases: Sequence[ledger.Toolchain], *records: Mapping[str, bool]) -> int:
    """Return the place of the last release in the first of ``records`` that has any, else the
    number of releases."""
    for recorded in records:
        if places := [place for place, each in enumerate(releases) if each.commit in recorded]:
            return places[-1]
    return len(releases)


def recorded_toolchains(results: Path, machine: str | None) -> dict[str, bool]:
    """Commit of a history with run records of a machine, or of any machine (None) -> whether it was
    measured at least once."""
    commits = {commit[:8]: commit for commit in ledger.toolchains_by_commit()}
    measured: dict[str, bool] = {}
    for path in files.result_files(results, machine, files.RECORDS):
        commit = commits.get(path.name[:8], "")
        measured.setdefault(commit, False)
        with contextlib.suppress(UserError):  # a broken file: nothing can be compared with it
            measured[commit] |= any(not record.failed for record in files.read_records(path))
    return measured


# --- the journal ----------------------------------------------------------------------------------


class Journal:
    """The finished jobs of a run, kept in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work = directory / "work"
        self.ahead = directory / "ahead"  # the next job's work, as far as another job did it

    def plan(self) -> Plan | None:
        """Load the plan. Return None without a plan. Raise UserError if it cannot be read."""
        return load(Plan, self.directory / PLAN, self.directory)

    def save(self, plan: Plan) -> None:
        """Save the plan. Finished jobs stay."""
        put(self.directory / PLAN, json.dumps(msgspec.to_builtins(plan)))

    def forget(self) -> None:
        """Remove the journal, because another run begins. One rename removes it: half of a journal
        would be measured, or filed, again."""
        removed = self.directory.with_name(f".{self.directory.name}.gone")
        shutil.rmtree(removed, ignore_errors=True)
        if self.directory.exists():
            self.directory.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)

    def rounds(self, job: Job) -> dict[int, Path]:
        """Complete round of a job's session -> its directory, in order."""
        places = (self.directory / job.session).glob("*")
        return dict(sorted((int(path.name), path) for path in places if path.name.isdecimal()))

    def has(self, job: Job) -> bool:
        """Whether a job is complete."""
        return job.round in self.rounds(job)

    def begin(self) -> None:
        """Prepare the directory of a job. Files of an interrupted job are removed."""
        shutil.rmtree(self.work, ignore_errors=True)
        if self.ahead.exists():
            self.ahead.rename(self.work)
        else:
            make_place(self.work)

    def keep(self, job: Job, record: RunRecord) -> None:
        """Move a finished job into the journal, with the record of its session so far."""
        (self.work / RECORD).write_text(json.dumps(to_json(record)), encoding="utf-8")
        place = self.directory / job.session
        place.mkdir(exist_ok=True)
        self.work.rename(place / str(job.round))

    def record(self, job: Job) -> RunRecord | None:
        """Return the record of a job's session after its last complete job, or None. Raise
        UserError if the file is broken."""
        for place in reversed(self.rounds(job).values()):
            return load(RunRecord, place / RECORD, self.directory)
        return None

    def lines(self, job: Job) -> list[LogLine]:
        """Return the lines that the processes of a job's session logged in its complete jobs."""
        return [line for place in self.rounds(job).values() for line in read_log(place)]

    def filed(self) -> list[str]:
        """Return the filed sessions, in order of filing."""
        marks = (path.name.partition("-") for path in (self.directory / FILED).glob("*-*"))
        return [session for _, _, session in sorted(marks, key=lambda mark: int(mark[0]))]

    def mark_filed(self, session: str) -> None:
        """Mark a session as filed and remove its jobs."""
        mark = self.directory / FILED / f"{len(self.filed())}-{session}"
        mark.parent.mkdir(exist_ok=True)
        (self.directory / session).rename(mark)
        for place in mark.iterdir():
            shutil.rmtree(place, ignore_errors=True)


def make_place(directory: Path) -> None:
    """Make a directory for a run of asv."""
    (directory / FILES).mkdir(parents=True)
    (directory / LOG).touch()


def load(cls: type[T], path: Path, directory: Path) -> T | None:
    """Read a declared class from a file below ``directory``. Return None if the file does not
    exist.

    Raise UserError if the file cannot be read. A run that ignored it would measure everything
    again.
    """
    try:
        return from_json(cls, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, *files.PARSE_ERRORS):
        raise UserError(f"{path} cannot be read: remove {directory}, and begin anew") from None


@contextlib.contextmanager
def lock_directory(directory: Path, seconds: float | None = None) -> Iterator[None]:
    """Let no other process measure into ``directory`` meanwhile. If one does after ``seconds``,
    raise UserError with its name. The default is LOCK_SECONDS."""
    from filelock import FileLock, Timeout  # comes with asv, by way of virtualenv

    directory.parent.mkdir(parents=True, exist_ok=True)
    holder = directory.with_name(f"{directory.name}.holder")
    lock = FileLock(directory.with_name(f"{directory.name}.lock"), timeout=seconds or LOCK_SECONDS)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock)
        except Timeout:
            raise UserError(
                f"{directory.name} is being measured already, "
                f"by {read_text(holder) or 'another process'}: wait for it, or use --machine"
            ) from None
        stack.callback(holder.unlink, missing_ok=True)
        # only UTF-8 can be written
        command = cli.one_line(" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]))
        put(holder, f"process {os.getpid()} ({command}) since {time.strftime('%H:%M')}")
        yield
