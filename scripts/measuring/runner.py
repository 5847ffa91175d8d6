"""One runner over one journal: it takes jobs, keeps complete jobs, and files complete sessions.

A job is a round of a session: every cell in one process, then noisy cells again, as long as the budget allows.
``run.py``, ``track.py``, ``compare.py --run`` and a node of a fleet differ only in their list of jobs.

    .asv/runs/NAME/run/plan.json    the plan: what the user asked for
    .asv/runs/NAME/run/TAG/2        the third round of a session: run.json (its record so far), sampling.jsonl (the log
                                    of its processes) and results/ (asv's files)
    .asv/runs/NAME/run/filed/0-TAG  the first session that is filed in reports/results
    .asv/runs/NAME/run/work         the job that is being taken

One rename makes a job complete, and another marks a session as filed. A kill, or a full disk, loses only the job that
is being taken. A resumed run takes the jobs that the journal lacks.

A history is measured from coarse to fine, several toolchains at a time, and its reference again at the end. Two sides
take turns, A B B A, so that a machine's drift affects both. Each side has a copy of the checkout's code, so that an
edit meanwhile changes neither side. Each side also has its own Python, which runs asv there. The copies are
``.asv/compare/ID/base`` and ``new``, in the second stage ``base-fresh`` and ``new-fresh``. Each holds results as any
checkout does. Run records say which results belong together.
"""

import contextlib
import itertools
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import cli
import psutil
from cli import UserError
from msgspec import structs
from store import asv_files, files, quiet
from store.files import put
from store.schema import (
    LogLine,
    Measurement,
    NoFigure,
    RunRecord,
    Settings,
    T,
    TimedProcess,
    Toolchain,
    encode_lines,
    from_json,
    to_json,
    with_samples,
)
from toolchains import environments, ledger
from toolchains.selection import Target

from benchmarks.sampling_log import GONE

from . import engine
from .engine import ENVIRONMENTS, FILES, LAUNCH, LOG, RESULTS, ROOT, SILENT, Suite, logged
from .machine import Awake, check_machine, conditions, read_libraries, settings
from .processes import Progress, apart, os_session, read
from .profiles import PROFILES, START, Cells, by_reason, cells_of, exactly

RECORD, PLAN, FILED = "run.json", "plan.json", "filed"
AGAIN = "again"  # side of a repeated session, which is kept beside the earlier one
NAMED = 2.0  # seconds to wait for a lock: by then its holder has ended, or written its name
PATIENCE = 0.2  # seconds to wait per planned process: about what one takes, so a busy machine takes about twice as long
WITHIN = (
    2 / 3
)  # share of a round's waiting time for its first processes; the rest is for new processes of noisy cells
HOPE = 0.25  # least share of cells with a quiet process; below it a profile with a time limit stops waiting
PASSES = 2  # over the noisy cells of all rounds after the last round; after each earlier round there is one pass
STEADY = 0.95  # share of a device's highest clock that counts as the highest
SPARE = 2  # environments besides the measured ones: for the reference and for the next toolchain
BEHIND = 10  # niceness of an install: it gets a tenth of a core that counting also uses, and so delays no count
SIDES = ("base", "new")
ROUNDS, FRESH_ROUNDS = 4, 8  # processes per side: for all cells, and for close ones
# Quiet pairs that a verdict needs: statistics.MIN_PROCESSES. The measuring Python may lack packages to import it
ENOUGH = 4
MORE = 0.5  # extra time, as a share of the rounds' time, in which rounds may begin for cells not quiet on both sides
LOST = (
    environments.InstallError,
    UserError,
)  # errors of one toolchain, which do not stop the others


class Changed(UserError):
    """benchmarks/ changed after the first rounds were taken: no toolchain of the run can continue."""


# --- the journal ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The settings of a run.

    tags       toolchains, in the order in which they are measured; "" is this Python's toolchain
    beside     tags whose new sessions are kept beside earlier ones, instead of replacing them, if the benchmarks are
               the same
    reference  toolchain measured first and last; "": the first that can be measured, since the oldest may have no wheel
    fleet      for a node: id of the campaign, engine, node
    """

    machine: str
    profile: str
    only: str
    rounds: int
    tags: tuple[str, ...] = ("",)
    command: str = ""
    beside: tuple[str, ...] = ()
    reference: str = ""
    fleet: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A round of a session: one toolchain (by its tag), on one side if it is measured several times."""

    tag: str
    round: int
    side: str = ""
    cells: tuple[str, ...] = ()  # asv's names; empty: the profile's cells in this round

    @property
    def session(self) -> str:
        return "-".join(filter(None, (self.tag or "installed", self.side)))


class Journal:
    """The finished jobs of a run, kept in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work = directory / "work"

    def plan(self) -> Plan | None:
        """Load the plan. Return None without a plan. Raise UserError if it cannot be read."""
        return restored(Plan, self.directory / PLAN, self.directory)

    def save(self, plan: Plan) -> None:
        """Save the plan. Finished jobs stay."""
        put(self.directory / PLAN, json.dumps(asdict(plan)))

    def forget(self) -> None:
        """Remove the journal, because another run begins. One rename removes it: half of a journal would be measured,
        or filed, again."""
        gone = self.directory.with_name(f".{self.directory.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            self.directory.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def rounds(self, session: str) -> dict[int, Path]:
        """Complete round of a session -> its directory, in order."""
        places = [path for path in (self.directory / session).glob("*") if path.name.isdecimal()]
        return dict(sorted((int(path.name), path) for path in places))

    def begin(self) -> None:
        """Prepare the directory of a job. Files of an interrupted job are removed."""
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / FILES).mkdir(parents=True)
        (self.work / LOG).touch()

    def keep(self, job: Job, record: RunRecord) -> None:
        """Move a finished job into the journal, with the record of its session so far."""
        (self.work / RECORD).write_text(json.dumps(to_json(record)), encoding="utf-8")
        place = self.directory / job.session
        place.mkdir(exist_ok=True)
        self.work.rename(place / str(job.round))

    def record(self, session: str) -> RunRecord | None:
        """Return a session's record after its last complete job, or None. Raise UserError if the file is broken."""
        places = list(self.rounds(session).values())
        return restored(RunRecord, places[-1] / RECORD, self.directory) if places else None

    def lines(self, session: str) -> list[LogLine]:
        """Return the lines that a session's processes logged in its complete jobs."""
        return [line for place in self.rounds(session).values() for line in logged(place)]

    def filed(self) -> list[str]:
        """Return the filed sessions, in order of filing."""
        marks = [path.name.split("-", 1) for path in (self.directory / FILED).glob("*-*")]
        return [session for _, session in sorted(marks, key=lambda mark: int(mark[0]))]

    def mark_filed(self, session: str) -> None:
        """Mark a session as filed and remove its jobs."""
        (self.directory / FILED).mkdir(exist_ok=True)
        mark = self.directory / FILED / f"{len(self.filed())}-{session}"
        (self.directory / session).rename(mark)
        for place in mark.iterdir():
            shutil.rmtree(place, ignore_errors=True)


def restored(cls: type[T], path: Path, directory: Path) -> T | None:
    """Read a dataclass from a file below ``directory``. Return None if the file does not exist.

    Raise UserError if the file cannot be read. A run that ignored it would measure everything again.
    """
    try:
        return from_json(cls, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, *files.PARSE_ERRORS):
        raise UserError(f"{path} cannot be read: remove {directory}, and begin anew") from None


@contextlib.contextmanager
def lock_directory(directory: Path, seconds: float | None = None) -> Iterator[None]:
    """Let no other process measure into ``directory`` meanwhile. If one does after ``seconds``, raise UserError with
    its name."""
    from filelock import FileLock, Timeout  # comes with asv, by way of virtualenv

    directory.parent.mkdir(parents=True, exist_ok=True)
    lock, holder = (directory.with_name(directory.name + suffix) for suffix in (".lock", ".holder"))
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(FileLock(lock, timeout=seconds or NAMED))
        except Timeout:
            who = f"by {read(holder) or 'another process'}: wait for it, or use --machine"
            raise UserError(f"{directory.name} is being measured already, {who}") from None
        stack.callback(holder.unlink, missing_ok=True)
        command = cli.one_line(
            " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        )  # only UTF-8 can be written
        put(holder, f"process {os.getpid()} ({command}) since {time.strftime('%H:%M')}")
        yield


# --- the runner -------------------------------------------------------------------------------------------------------


def budget(processes: int, profile: str, planned: int = 0) -> float:
    """Return the seconds that ``processes`` of the ``planned`` processes may wait for the machine to be quiet."""
    known = PROFILES[profile]
    return min(
        PATIENCE * processes * known.patience,
        known.longest_wait * processes / max(planned, processes, 1),
    )


@dataclass
class Session:
    """Shared state of the jobs of one toolchain. ``under`` is the commit that results are filed under. ``python`` is
    the interpreter that has the toolchain."""

    suite: Suite
    python: Path
    under: str
    record: RunRecord
    cells: Cells


@dataclass
class Runner:
    """Take the jobs of a plan, inside a ``with`` block of ``device``.

    sides       side -> suite measured there, unless it is this checkout with the job's toolchain
    collection  common to both sides, as written to their records
    planned     all jobs, in order, for the estimate of the time left
    """

    journal: Journal
    plan: Plan
    sides: Mapping[str, Suite] = field(default_factory=dict)
    collection: Mapping[str, Any] = field(default_factory=dict)
    planned: list[Job] = field(default_factory=list)
    benchmarks: dict[str, Any] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.here, self.progress, self.device = (
            environments.running_toolchain(),
            Progress("measuring"),
            Awake(),
        )

    @property
    def reference(self) -> str:
        """The toolchain that is measured first and again at the end. "" if no toolchain could be measured so far."""
        begun = [
            *self.journal.filed(),
            *(tag for tag in self.plan.tags if self.journal.rounds(Job(tag, 0).session)),
        ]
        return self.plan.reference or next((tag for tag in begun if tag in self.plan.tags), "")

    @property
    def remaining(self) -> list[str]:
        """The toolchains of the plan that are not filed."""
        filed = self.journal.filed()
        return [tag for tag in self.plan.tags if Job(tag, 0).session not in filed]

    def measure(
        self, after_round: Callable[["Runner", Job], None] = lambda runner, job: None
    ) -> dict[str, str]:
        """Take the remaining jobs in staggered order, and file each session after its last round. With several
        toolchains, measure the reference again at the end. Return tag -> why a toolchain could not be measured.

        Toolchains that failed before are tried again: perhaps the network failed.

        after_round  called after each job whose session continues
        """
        tags, failed, ended = self.remaining, dict[str, str](), set[str]()
        first = [Job(tag, 0) for tag in tags]
        if len(self.plan.tags) > 1:
            first.append(Job(self.reference or tags[0], 0, AGAIN))
        order = staggered(len(first), self.plan.rounds, environments.environment_limit() - SPARE)
        self.planned = [replace(first[place], round=number) for place, number in order]
        coming = {
            tag: ledger.toolchains_by_tag()[following]
            for tag, following in itertools.pairwise(tags)
        }
        with self.device:
            for job in self.planned:
                if (
                    job.side == AGAIN
                ):  # the reference, unless nothing was measured since its last session
                    job = replace(job, tag=self.reference)
                    since = {*tags} - {*failed} or self.journal.filed()[-1:] != [job.session]
                    if not job.tag or not since:
                        continue
                if job.session in ended:
                    continue
                is_last = job.round + 1 == self.plan.rounds
                try:
                    if job.side == AGAIN and not self.open(job).cells.timed:
                        continue  # instruction counts do not drift
                    if self.overdue(job):
                        ended.add(job.session)
                    elif self.take(job, installing(coming.get(job.tag), self.here)) and not is_last:
                        after_round(self, job)
                    if is_last or job.session in ended:
                        print(summary_of(self.file(job)), flush=True)
                except LOST as error:
                    if not job.tag or isinstance(error, Changed):
                        raise
                    print(cli.one_line(f"{job.tag} failed: {error}"), flush=True)
                    failed[job.tag] = str(error)
                    ended.add(job.session)
                if self.reference:  # needed again: its environment must be removed last
                    environments.note_use(
                        environments.directory(
                            ROOT / ENVIRONMENTS, ledger.toolchains_by_tag()[self.reference]
                        )
                    )
        for tag, reason in failed.items():
            self.file_failure(tag, reason)
        return failed

    def open(self, job: Job) -> Session:
        """Return the session of a job, with its toolchain installed and its cells selected."""
        plan, suite = self.plan, self.sides.get(job.side) or suite_of(job.tag)
        if (
            job.session not in self.sessions or suite.commit
        ):  # another process may have removed its environment
            python, toolchain = self.prepare(suite)
        if job.session not in self.sessions:
            record = self.journal.record(job.session) or self.new_record(
                toolchain, settings(str(python)), job
            )
            self.benchmarks = self.benchmarks or suite.discover(plan.machine)
            no_device, near = record.settings.no_device, record.settings.near_cores
            cells = cells_of(
                PROFILES[plan.profile], self.benchmarks, plan.only, plan.profile, no_device
            )
            # memory of the far NUMA node is another population
            record = structs.replace(
                record, cores=near if cells.on_device and len(near) > 1 else ()
            )
            self.sessions[job.session] = Session(
                suite, python, suite.commit or toolchain.commit, record, cells
            )
        return self.sessions[job.session]

    def prepare(self, suite: Suite) -> tuple[Path, ledger.Toolchain]:
        """Return a Python with the suite's toolchain, and the toolchain really installed, with its build variant."""
        toolchain = ledger.toolchains_by_commit().get(suite.commit)
        if toolchain is None:
            return suite.python, suite.installed()
        if self.here and environments.is_installed(toolchain, self.here):
            return Path(sys.executable), self.here
        root, started = suite.root / ENVIRONMENTS, time.monotonic()
        ready = environments.is_ready(environments.directory(root, toolchain))
        environment = environments.prepare(root, toolchain, environments.environment_limit())
        build = environments.installed_in(environment, toolchain)
        if not ready:
            print(
                f"{toolchain.tag}: {build} installed in {time.monotonic() - started:.0f} s",
                flush=True,
            )
        return environments.interpreter_of(environment), build

    def new_record(self, toolchain: ledger.Toolchain, known: Settings, job: Job) -> RunRecord:
        """Return the record of a new session."""
        plan = self.plan
        return RunRecord(
            toolchain=Toolchain(job.tag or toolchain.tag, toolchain.torch, toolchain.numpy),
            skipped={},
            planned=plan.rounds,
            settings=known,
            conditions=conditions(),
            asv=metadata.version("asv"),
            asv_runner=metadata.version("asv_runner"),
            launch=LAUNCH,
            started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            interleaved={**self.collection, "side": job.side} if self.collection else {},
            **{
                name: getattr(plan, name)
                for name in ("profile", "only", "command", "machine", "fleet")
            },
        )

    def again(self, job: Job) -> bool:
        """Whether a session is kept beside earlier ones of its toolchain: if planned, with the same benchmarks."""
        if job.side == AGAIN or job.tag not in self.plan.beside:
            return job.side == AGAIN
        suite = suite_of(job.tag)
        lines = files.read_measurements(result_file(self.plan.machine, suite.commit, suite.results))
        before = {line.benchmark: line.version for line in lines}
        same = {
            before[name] == now["version"]
            for name, now in self.benchmarks.items()
            if name in before
        }
        return same == {True}

    def cells_in(self, job: Job, known: Cells) -> Sequence[str]:
        """Return the cells of a job: its own, or all in a session's first round and the timed ones in the others."""
        return job.cells or (
            known.round(job.round) if job.round or self.again(job) else known.names
        )

    def hopeless(self, job: Job) -> bool:
        """Whether too few cells were quiet so far. Then a profile with a time limit stops waiting."""
        run = quiet.Run(with_samples(self.journal.lines(job.session)))
        return len(run.never_quiet()) > (1 - HOPE) * len(run.rounds())

    def overdue(self, job: Job) -> bool:
        """Whether this round would exceed the profile's time limit on a machine that is hardly quiet; if so, say so."""
        record, longest = self.journal.record(job.session), PROFILES[self.plan.profile].longest
        if not (record and record.rounds) or record.seconds * (1 + 1 / record.rounds) <= longest:
            return False
        if late := self.hopeless(job):
            done = f"{record.rounds} of {self.plan.rounds} rounds"
            print(f"ended after {done}: on so noisy a machine more tell little", flush=True)
        return late

    def take(
        self, job: Job, meanwhile: contextlib.AbstractContextManager[None] | None = None
    ) -> bool:
        """Take a round, then new processes of noisy cells, as long as the budget allows. Return False if the round is
        complete already.

        This round may also use the remaining budget of earlier rounds. Cells that the job names are taken once: a new
        process would have no counterpart on the other side.

        meanwhile  context in which instructions are counted, before any timing
        """
        if job.round in self.journal.rounds(job.session):
            return False
        session, plan = self.open(job), self.plan
        now = {name: benchmark["version"] for name, benchmark in self.benchmarks.items()}
        before = (line for line in self.journal.lines(job.session) if isinstance(line, Measurement))
        if any(line.version != now.get(line.benchmark) for line in before):
            begin = f"begin anew without --resume, or remove {self.journal.directory}"
            raise Changed(f"benchmarks/ changed since the interrupted run: {begin}")
        if not self.progress.total:  # an estimate: other sessions may have fewer cells
            coming = [
                each for each in self.planned if each.round not in self.journal.rounds(each.session)
            ]
            counts = (
                len({*self.cells_in(each, session.cells)} - {*session.cells.counted})
                for each in coming
            )
            self.progress.total = sum(counts)
        cells = self.cells_in(job, session.cells)
        if not cells and job.round:
            return False
        self.journal.begin()
        record, timed = session.record, job.cells or session.cells.round(job.round)
        total, done = session.cells.total(plan.rounds), session.cells.total(job.round)
        patience = record.patience + budget(len(timed), plan.profile, total)
        longest = PROFILES[plan.profile].longest
        if (
            done and longest < math.inf
        ):  # wait for the time that processes leave, at their speed so far
            takes = (record.seconds - record.waited) * total / done
            spare = 0.0 if self.hopeless(job) else longest - takes
            patience = min(patience, max(record.waited, spare))
        started, left = time.monotonic(), patience - record.waited
        work, lacking = self.journal.work, dict[str, int]()
        log = work / LOG

        def asv(chosen: Sequence[str], patience: tuple[float, int], timing: bool = True) -> None:
            before = self.progress.done - log.read_bytes().count(b"\n")

            def advance() -> None:
                if timing:  # counting takes a different time
                    self.progress.at(before + log.read_bytes().count(b"\n"))

            run = partial(
                session.suite.measure,
                machine=plan.machine,
                place=work,
                advance=advance,
                patience=patience,
            )
            session.record = self.device.measure(session.record, session.cells, chosen, run)
            advance()
            # new lines belong to the first round that their cell lacks, or to this one; others already have a round
            log.write_text(encode_lines(logged(work, job.round, lacking)), encoding="utf-8")

        counted = {*session.cells.counted}
        allowance = (left if job.cells else WITHIN * left, len(timed))
        # without patterns asv would run every benchmark
        if counting := [cell for cell in cells if cell in counted]:
            print("counting instructions: takes some minutes without output", flush=True)
            with meanwhile or contextlib.nullcontext():
                asv(counting, allowance, timing=False)
        if timing := [cell for cell in cells if cell not in counted]:
            read_libraries(session.python)
            asv(timing, allowance)
        left -= sum(line.waited for line in with_samples(logged(work)))
        for _ in range(0 if job.cells else PASSES if job.round + 1 >= plan.rounds else 1):
            run = quiet.Run(with_samples([*self.journal.lines(job.session), *logged(work)]))
            lacking = run.lacking()
            took = {line.cell: line.took for line in run.lines}
            spent = itertools.accumulate(took[cell] for cell in lacking)
            retaken = [cell for cell, so_far in zip(lacking, spent) if so_far <= left - START]
            if not retaken:
                break
            begun = time.monotonic()
            self.progress.total += len(retaken)
            asv(retaken, (left, len(retaken)))
            left -= time.monotonic() - begun
        session.record = structs.replace(
            session.record,
            patience=round(patience, 1),
            waited=round(patience - left, 1),
            rounds=job.round + bool(cells),
            seconds=round(record.seconds + time.monotonic() - started, 1),
        )
        self.journal.keep(job, session.record)
        return True

    def file(self, job: Job, complete: bool = True) -> RunRecord:
        """File a session's finished jobs: measurements, their export to asv's file, and the record. Return the record.

        They are merged with the present files, so that results which asv filed meanwhile are kept. Filing twice changes
        nothing. At least one job of the session must be finished.

        complete  False: the session continues
        """
        session, lines, beside = self.open(job), self.journal.lines(job.session), self.again(job)
        record = summed_up(session.record, lines, session.cells.unavailable)
        rounds = (
            self.plan.rounds if session.cells.timed else 0
        )  # counting is complete after one round
        record = structs.replace(record, planned=max(record.rounds, rounds))
        path = result_file(
            record.machine, session.under, session.suite.results, record.settings.python
        )
        before = [line for line in files.read_measurements(path) if line.run != record.started]
        fresh = [
            structs.replace(line, run=record.started)
            for line in lines
            if isinstance(line, Measurement)
        ]
        if job.side == AGAIN:
            record = structs.replace(record, drift=drift(before, fresh))
            if record.drift["cells"]:
                moved = f"{record.drift['median']:.3f} times what {record.drift['cells']} cells took at first"
                print(f"{job.tag} again: {moved}", flush=True)
        places = list(self.journal.rounds(job.session).values())
        file_measured(record, path, files.merge(before, fresh, beside), places)
        if complete:
            self.journal.mark_filed(job.session)
            del self.sessions[job.session]
        return structs.replace(record, file=files.result_name(path))

    def file_whole(self) -> None:
        """File the finished sessions of an interrupted run, before another run replaces it."""
        known = {
            "": self.here and self.here.tag,
            **{tag: tag for tag in ledger.toolchains_by_tag()},
        }
        for tag in self.remaining:
            job = Job(tag, 0)
            record = self.journal.record(job.session)
            own = record and known.get(tag) == record.toolchain.tag
            if own and len(self.journal.rounds(job.session)) >= self.plan.rounds:
                print(
                    f"{self.file(job).toolchain.tag}: was complete when the run was interrupted; filed now"
                )

    def file_failure(self, tag: str, reason: str) -> None:
        """Let asv file the cells of a toolchain as failed, unless that would replace earlier results."""
        plan, suite, place = self.plan, suite_of(tag), self.journal.work
        path = result_file(plan.machine, suite.commit, suite.results)
        if path.exists() or not self.benchmarks:
            return
        cells = cells_of(
            PROFILES[plan.profile], self.benchmarks, plan.only, plan.profile, "not looked for yet"
        ).names
        self.journal.begin()
        variables = {**os.environ, environments.RESULTS_VARIABLE: str(place / FILES)}
        apart(suite.asv(plan.machine, exactly(cells)), suite.root, variables)
        if (place / FILES / plan.machine / path.name).is_file():
            record = self.new_record(ledger.toolchains_by_tag()[tag], Settings(), Job(tag, 0))
            record = structs.replace(record, failed=reason, failures={reason: tuple(cells)})
            file_measured(record, path, [], [place])


def staggered(toolchains: int, rounds: int, abreast: int) -> list[tuple[int, int]]:
    """Return ordered jobs, (place of a toolchain, round): ``abreast`` toolchains at a time, each behind the last.

    A machine may take some percent longer for minutes, and no probe sees it. In this order it affects a round or two of
    several toolchains, whose rounds then differ. If it affected all rounds of one toolchain, it would look like a
    change.
    """
    part = math.ceil(rounds / max(1, min(abreast, rounds)))
    jobs = itertools.product(range(toolchains), range(rounds))
    return sorted(jobs, key=lambda job: (job[0] + job[1] // part, job[1] % part, job[0]))


def suite_of(tag: str) -> Suite:
    """Return this checkout's suite for a toolchain ("": this Python's own)."""
    return Suite(commit=ledger.toolchains_by_tag()[tag].commit if tag else "")


INSTALL = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from toolchains import environments, ledger
environments.prepare(Path(sys.argv[2]), ledger.toolchains_by_tag()[sys.argv[3]], environments.environment_limit())
"""


@contextlib.contextmanager
def installing(coming: ledger.Toolchain | None, here: ledger.Toolchain | None) -> Iterator[None]:
    """Install the next toolchain while the block runs, and wait for it at the end. If the install fails, the job that
    needs it says why. Do nothing if fewer than three environments may stay: the next, the measured and the reference's.

    The install runs in a process of its own. So this process keeps its lock of an environment, and the install ends
    with this process. Its niceness leaves the cores to the counts. With autogroups Linux weighs these instead
    (sched(7)).
    """
    root = ROOT / ENVIRONMENTS
    needless = (
        coming is None
        or environments.environment_limit() < 3
        or (here and environments.is_installed(coming, here))
    )
    if coming is None or needless or environments.is_ready(environments.directory(root, coming)):
        yield
        return
    silent, started = subprocess.DEVNULL, time.monotonic()
    command = [sys.executable, "-c", INSTALL, str(ROOT / "scripts"), str(root), coming.tag]
    with os_session(command, ROOT, stdin=silent, stdout=silent, stderr=silent) as process:
        with contextlib.suppress(OSError, psutil.Error):
            psutil.Process(process.pid).nice(BEHIND)
            Path(f"/proc/{process.pid}/autogroup").write_text(str(BEHIND), encoding="utf-8")
        yield
        if process.wait() == 0:
            print(
                f"{coming.tag}: installed ahead, ready after {time.monotonic() - started:.0f} s",
                flush=True,
            )


# --- records ----------------------------------------------------------------------------------------------------------


def result_file(machine: str, commit: str, results: Path, python: str = "") -> Path:
    """Return asv's result file of a toolchain on a machine, for that version of Python (default: ours). Measurements
    and run records lie beside it."""
    major, minor, *_ = (python or platform.python_version()).split(".")
    return results / machine / f"{commit[:8]}-toolchain-py{major}.{minor}.json"


def file_measured(
    record: RunRecord, path: Path, lines: Sequence[Measurement], places: Sequence[Path]
) -> None:
    """File measurements, their export to asv's file, and their record, in this order. So a concurrent reader finds the
    measurements of every figure and of every record.

    lines   all measurements of the result
    places  directories of the session's jobs, with the log of the processes and asv's own files, which describe the
            benchmarks and the machine
    """
    said = [line for place in places for line in logged(place)]
    for described in (files.BENCHMARKS, f"{record.machine}/{files.MACHINE}"):
        if (places[-1] / FILES / described).is_file():
            put(path.parents[1] / described, (places[-1] / FILES / described).read_bytes())
    if lines:
        put(files.sibling(path, files.MEASUREMENTS), files.measurements_text(lines))
    runs = {line.run for line in lines} - {record.started}
    known = [
        each for each in files.read_records(path) if each.failed or each.started in runs
    ]  # the others' is gone
    ran = [
        file for place in places if (file := place / FILES / record.machine / path.name).is_file()
    ]
    if ran:
        known_why = {*itertools.chain(*record.skipped.values(), *record.failures.values())}
        if silent := tuple(cell for cell in asv_files.failed_cells(ran) if cell not in known_why):
            record = structs.replace(record, failures={**record.failures, SILENT: silent})
        asv_files.export(ran, path, lines, [*known, record], {line.cell for line in said})
    put(files.sibling(path, files.RECORDS), "".join(map(files.record_text, [*known, record])))


def summary_of(record: RunRecord) -> str:
    """Return a line about a session: samples, duration, and how quiet the machine was."""
    words = f"{record.toolchain.tag}: {record.samples} samples in {record.seconds:.0f} s, "
    words += f"{record.waited:.0f} of them waiting for quiet"
    if record.quiet is not None:
        words += f"; the machine was quiet {record.quiet:.0%} of the time"
    if record.noisy_cells:
        words += f"; cells without a quiet process, which are marked: {len(record.noisy_cells)}"
    return words


def summed_up(
    record: RunRecord, lines: Sequence[LogLine], unavailable: Mapping[str, tuple[str, ...]]
) -> RunRecord:
    """Return the record, completed from the sampling log: how quiet the run was, skipped cells and reasons.

    unavailable  reason -> benchmarks left out
    """
    run = quiet.Run(with_samples(lines))
    without = [line for line in lines if isinstance(line, NoFigure)]
    skipped = by_reason((line.skipped, line.cell) for line in without if line.skipped is not None)
    share = run.quiet_share()
    return structs.replace(
        record,
        quiet=round(share, 4) if share == share else None,
        baselines={probe: round(baseline, 1) for probe, baseline in run.baselines.items()},
        samples=sum(line.wanted for line in run.lines),
        retaken=sum(max(0, len(line.seconds) - line.wanted) for line in run.lines),
        noisy_cells=run.never_quiet(),
        skipped={**skipped, **unavailable},
        failures=by_reason((line.failed, line.cell) for line in without if line.failed is not None),
        **around_samples(run.lines),
        device_lost=next((why for why in skipped if why.startswith(GONE)), ""),
    )


def around_samples(timed: Sequence[TimedProcess]) -> dict[str, Any]:
    """Return device_probe and device_changed of a run's record: the driver's readings around the samples."""
    around = [(each, line.cell) for line in timed for each in line.device]
    seen = {
        what: [getattr(each, what.replace(" ", "_")) for each, _ in around]
        for what in ("link generation", "clock")
        if around
    }
    spans = {what: (min(taken), max(taken)) for what, taken in seen.items()}
    unsteady = [line for line in timed if line.warmed and not line.warmed.steady]
    changed = [
        *((f"slowed by {reason}", cell) for each, cell in around for reason in each.slowed_by),
        *(("clock not steady after warming up", line.cell) for line in unsteady),
        *(("waiting not verified", line.cell) for line in timed if line.unseen),
        *(
            (what, cell)
            for what, (_, most) in spans.items()
            for each, cell in around
            if getattr(each, what.replace(" ", "_")) < STEADY * most
        ),
    ]
    return {"device_probe": spans, "device_changed": by_reason(changed)}


def drift(before: Sequence[Measurement], after: Sequence[Measurement]) -> dict[str, float]:
    """Return the number of cells in both sessions, and the median ratio of asv's figures, later over earlier."""
    sooner, later = (quiet.used_samples(with_samples(lines)) for lines in (before, after))
    ratios = [
        statistics.median(later[cell][0]) / statistics.median(sooner[cell][0])
        for cell in sooner.keys() & later
    ]
    return {"cells": len(ratios), **({"median": statistics.median(ratios)} if ratios else {})}


# --- runs and histories -----------------------------------------------------------------------------------------------


def coarse_to_fine(line: Sequence[str]) -> list[str]:
    """Order by the positions' reversed binary digits (van der Corput): first, (nearly) last, middle, quarters.

    In order of release, a drift of the machine over the hours would look like a trend of the releases.
    """
    order = sorted(range(len(line)), key=lambda place: f"{place:0{len(line).bit_length()}b}"[::-1])
    return [line[place] for place in order]


def choose_plan(
    journal: Journal, chosen: Namespace, fresh: Plan, choosing: Sequence[str] = ()
) -> Plan:
    """Return the plan of the interrupted run with --resume, else ``fresh``. A run that is not resumed is removed, after
    its complete sessions are filed.

    Raise UserError if there is nothing to resume, or if --resume comes with other options than that run had. Only the
    number of rounds may differ.

    choosing  the options that choose toolchains
    """
    check_machine(RESULTS / fresh.machine)
    plan = journal.plan()
    if plan and chosen.resume:
        changed = [name for name in choosing if getattr(chosen, name) and fresh.tags != plan.tags]
        changed += [
            name
            for name in ("profile", "only")
            if getattr(chosen, name) not in (None, getattr(plan, name))
        ]
        changed += ["again"] if fresh.beside and not plan.beside else []
        if changed:
            raise UserError(
                f"the interrupted run had other options (--{', --'.join(changed)}): use --resume alone"
            )
        return replace(plan, rounds=chosen.rounds or plan.rounds)
    if plan:
        Runner(journal, plan).file_whole()
    elif chosen.resume:
        raise UserError(f"nothing to resume on {fresh.machine}: leave out --resume")
    journal.forget()
    return fresh


def start_runner(journal: Journal, plan: Plan) -> Runner:
    """Save a plan and return its runner. Raise UserError if results of that name come from another machine, or if a
    toolchain is no longer in releases.json."""
    if gone := sorted({*plan.tags} - {"", *ledger.toolchains_by_tag()}):
        begin = f"restore it there, begin anew without --resume, or remove {journal.directory}"
        raise UserError(
            f"{gone[0]} of the interrupted run is not in {ledger.RELEASES.name}: {begin}"
        )
    check_machine(RESULTS / plan.machine)
    engine.register(plan.machine)
    journal.save(plan)
    return Runner(journal, plan)


# --- new releases -----------------------------------------------------------------------------------------------------


def due_plan(plan: Plan, added: Collection[ledger.Toolchain]) -> Plan | None:
    """Return ``plan`` with the releases due on its machine, or None if no release is due.

    Due are the releases ``added`` now, and those after the last release with a run record of the machine. Without such
    records, those of all machines count. With a new release the one before it is measured, too, beside its earlier
    sessions. That is the last earlier release which the machine has figures of or is going to measure, else simply the
    previous release.
    """
    new: dict[str, bool] = {}
    here, anywhere = dealt_with(plan.machine), dealt_with(None)
    for package in ledger.PACKAGES:
        line = ledger.history(package)
        known = here if any(release.commit[:8] in here for release in line) else anywhere
        last = max(
            (place for place, each in enumerate(line) if each.commit[:8] in known),
            default=len(line),
        )
        for place, release in enumerate(line):
            if place > last or (release in added and release.commit[:8] not in here):
                measured = [
                    one for one in line[:place] if one.tag in new or here.get(one.commit[:8])
                ]
                for before in (measured or line[:place])[-1:]:
                    new.setdefault(before.tag, False)
                new[release.tag] = True
    beside = tuple(tag for tag in new if not new[tag])
    return replace(plan, tags=tuple(new), beside=beside) if any(new.values()) else None


def dealt_with(machine: str | None) -> dict[str, bool]:
    """Toolchain with run records of a machine, or of any machine (None), as the first eight letters of its commit ->
    whether it was measured at least once."""
    measured: dict[str, bool] = {}
    for path in files.result_files(RESULTS, machine, files.RECORDS):
        commit = path.name.split("-")[0]
        measured.setdefault(commit, False)
        with contextlib.suppress(UserError):  # a broken file: nothing can be compared with it
            measured[commit] |= any(not record.failed for record in files.read_records(path))
    return measured


# --- two sides --------------------------------------------------------------------------------------------------------


def runner_of(stage: int, directory: Path, targets: Sequence[Target], plan: Plan) -> Runner:
    """Return the runner of a stage, with a copy of the code for each side. Releases are installed in the checkout's
    environments."""
    sides, suffix = {}, files.FRESH_SUFFIX if stage == 2 else ""
    for name, (python, commit) in zip(SIDES, targets):
        sides[name] = suite = Suite(directory / (name + suffix), python, commit)
        engine.copy_code(ROOT, suite.root)
        engine.link_environments(suite.root, ROOT / ENVIRONMENTS)
    return Runner(
        Journal(directory / f"stage-{stage}"), plan, sides, {"id": directory.name, "stage": stage}
    )


def take_sides(runner: Runner, number: int, cells: Sequence[str]) -> None:
    """Take a round of these cells on both sides, in turns: base new, new base, base new, ..."""
    for side in SIDES if number % 2 == 0 else SIDES[::-1]:
        runner.take(Job("", number, side, tuple(cells)))


def quiet_rounds(journal: Journal, side: str) -> dict[str, set[int]]:
    """Cell -> its quiet rounds on a side."""
    by_cell = quiet.Run(with_samples(journal.lines(Job("", 0, side).session))).rounds()
    return {
        cell: {number for number, was in rounds.items() if was} for cell, rounds in by_cell.items()
    }


def collect(runner: Runner, cells: Sequence[str], counted: Sequence[str] = ()) -> None:
    """Take the plan's rounds of these cells on both sides, in turns, and ``counted`` once. File a record on each side.

    A noisy process is not repeated, because its repetition would have no counterpart. Cells with fewer than ENOUGH
    quiet pairs get more rounds on both sides. No extra round begins after MORE of the time that the plan's rounds took.
    """
    begun, rounds = time.monotonic(), runner.plan.rounds if cells else 1
    runner.progress.total = len(SIDES) * len(cells) * rounds
    with runner.device:
        for number in range(rounds):
            take_sides(runner, number, cells if number else [*cells, *counted])
        took, enough = time.monotonic() - begun, min(rounds, ENOUGH)
        for number in range(rounds, 2 * rounds):
            base, new = (quiet_rounds(runner.journal, side) for side in SIDES)
            # cells that never were quiet on one of the sides get no more rounds
            hopeful = [cell for cell in cells if base.get(cell) and new.get(cell)]
            lacking = [cell for cell in hopeful if len(base[cell] & new[cell]) < enough]
            if not lacking or time.monotonic() - begun > (1 + MORE) * took:
                break
            print(
                f"cells that were not quiet on both sides {enough} times: {len(lacking)}; another round of them"
            )
            runner.progress.total += len(SIDES) * len(lacking)
            take_sides(runner, number, lacking)
        for side in SIDES:
            runner.file(Job("", 0, side))


def measure_sides(
    targets: Sequence[Target], plan: Plan, again: Callable[[Path, Path], tuple[Sequence[str], int]]
) -> tuple[Path, Path]:
    """Measure both sides in turns, then close cells in fresh processes. Return the sides' roots of the first stage.

    again  takes these roots; returns the cells to measure again and the number of close ones (the others show noise)
    """
    directory = ROOT / ".asv" / "compare" / engine.new_id()
    engine.register(plan.machine)
    runner = runner_of(1, directory, targets, plan)
    for side in SIDES:
        try:
            cells = runner.open(Job("", 0, side)).cells
        except LOST as error:
            raise UserError(f"{side}: {error}") from None
    if not cells.timed and not cells.counted:
        raise UserError(
            f"--only {plan.only!r} matches no cell of the profile {plan.profile} that can be compared"
        )
    once = f"{len(cells.counted)} counted once"
    print(f"{len(cells.timed)} cells x {plan.rounds} processes on both sides, in turns; {once}")
    collect(runner, cells.timed, cells.counted)
    base, new = (runner.sides[name].root for name in SIDES)
    more, close = again(base, new)
    if more:
        others = f"{len(more) - close} more are measured with them, to know the noise"
        print(
            f"close cells, which {FRESH_ROUNDS} fresh processes on both sides decide: {close} ({others})"
        )
        collect(runner_of(2, directory, targets, replace(plan, rounds=FRESH_ROUNDS)), more)
    print(
        f"the data is in {os.path.relpath(directory)}: compare.py compares its base and new again"
    )
    return base, new
