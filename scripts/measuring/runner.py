"""One runner for all that is measured: it takes jobs, keeps a journal of them, and files sessions that are whole.

Each job is a round: every cell of a session in one process, then what was noisy again, as long as the budget allows.
``run.py``, ``track.py``, ``compare.py --run`` and a node of a fleet differ in their list of jobs alone.
"""

import contextlib
import itertools
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import cli
import psutil
from cli import UserError
from store import files, quiet
from store.records import Line, Record, Settings, Toolchain, Unfinished, name_of, with_samples
from toolchains import environments, ledger

from benchmarks.sampling_log import GONE

from .engine import ENVIRONMENTS, FILES, LAUNCH, LOG, ROOT, SILENT, Suite, logged
from .journal import Job, Journal, Plan
from .machine import Awake, conditions, settings
from .processes import Progress, apart, session
from .profiles import PROFILES, Cells, cells_of, exactly

PATIENCE = 0.2  # seconds a planned process: about what one takes, so a busy machine takes about twice the time
WITHIN = 2 / 3  # of what a round may wait goes to its processes, the rest to processes anew for what was noisy
PASSES = 2  # over the cells that were noisy, at the end of the last round; of those before it, which it judges, one
START = 4.0  # seconds that asv takes before it measures anything
STEADY = 0.95  # of a device's highest clock: as high as that
BEHIND = 10  # as nice(1) has it: a tenth of a core that another wants, so that an install stops no count
LOST = (environments.InstallError, UserError)  # what is wrong with one toolchain, and stops no other


def budget(processes: int, profile: str, planned: int = 0) -> float:
    """Seconds that so many processes, of those that are planned, may take longer where the machine is noisy."""
    known = PROFILES[profile]
    return min(PATIENCE * processes * known.patience, known.longest_wait * processes / max(planned, processes, 1))


@dataclass
class Session:
    """A toolchain that is being measured: what its jobs have in common. ``under``: the commit it is filed under."""

    suite: Suite
    under: str
    record: Unfinished
    cells: Cells


class Runner:
    """Takes the jobs of a plan, within a block of its ``device``.

    keep     environments on disk at most
    sides    side -> what is measured there, where that is not the job's toolchain, in this checkout
    about    what else the records say, of a side
    between  is called with a job that is whole, and whose session has more
    """

    def __init__(
        self,
        journal: Journal,
        plan: Plan,
        keep: int = environments.KEEP,
        sides: Mapping[str, Suite] | None = None,
        about: Callable[[str], Mapping[str, Any]] = lambda side: {},
        between: Callable[["Runner", Job], None] = lambda runner, job: None,
    ) -> None:
        self.journal, self.plan, self.keep, self.sides = journal, plan, keep, sides or {}
        self.about, self.between = about, between
        self.here = environments.here()
        self.benchmarks: dict[str, Any] = {}
        self.sessions: dict[str, Session] = {}
        self.planned: list[Job] = []  # for the time that is left
        self.progress, self.device = Progress("measuring"), Awake()

    # --- a list of jobs -----------------------------------------------------------------------------------------------

    def sessions_of(self, tags: Iterable[str], side: str = "") -> list[list[Job]]:
        """The jobs of these toolchains, session by session."""
        return [[Job(tag, number, side) for number in range(self.plan.rounds)] for tag in tags]

    def file_whole(self) -> None:
        """File what an interrupted run has whole: who begins another one does not want to lose it."""
        for jobs in self.sessions_of(self.left()):
            record = self.journal.record(jobs[0].session)
            own = record and (jobs[0].tag or (self.here and self.here.tag)) == record.toolchain.tag
            if own and len(self.journal.rounds(jobs[0].session)) >= len(jobs):
                print(f"{self.file(jobs[0]).toolchain.tag}: was complete when the run was interrupted; filed now")

    def left(self) -> list[str]:
        """The toolchains of the plan that are not filed."""
        filed = self.journal.filed()
        return [tag for tag in self.plan.tags if Job(tag, 0).session not in filed]

    @property
    def reference(self) -> str:
        """The toolchain that is measured first, and again at the end; "" where none could be so far."""
        return self.plan.reference or next((tag for tag in self.journal.filed() if tag in self.plan.tags), "")

    def carry_out(self, sessions: Sequence[Sequence[Job]]) -> dict[str, str]:
        """Take the jobs of these sessions, and file each after its last; tag -> why it could not be measured."""
        failed: dict[str, str] = {}
        for jobs, coming in zip(sessions, [*sessions[1:], []]):
            tag = jobs[0].tag
            ahead = ledger.tagged()[coming[0].tag] if coming else None
            try:
                for job in jobs:
                    taken = self.take(job, installing(ahead, self.keep, self.here))
                    if taken and job is not jobs[-1]:
                        self.between(self, job)
                record = self.file(jobs[0])
                words = f"{record.samples} samples in {record.seconds:.0f} s, {record.waited:.0f} of them waiting"
                print(f"{record.toolchain.tag}: {words} for quiet; {how_quiet(record)}", flush=True)
            except LOST as error:
                if not tag:
                    raise
                print(cli.line(f"{tag} failed: {error}"), flush=True)
                failed[tag] = str(error)
            if self.reference:  # it is needed again: its environment is to be the last to go
                environments.used(environments.directory(ROOT / ENVIRONMENTS, ledger.tagged()[self.reference]))
        return failed

    def open(self, job: Job) -> Session:
        """The session of a job: its toolchain is installed, and what is to be measured is known."""
        if job.session in self.sessions:
            return self.sessions[job.session]
        plan = self.plan
        suite = self.sides.get(job.side) or Suite(commit=ledger.tagged()[job.tag].commit if job.tag else "")
        python, toolchain = self.prepare(suite)
        record = self.journal.record(job.session) or self.new_record(toolchain, python, job)
        self.benchmarks = self.benchmarks or suite.discover(plan.machine)
        cells = cells_of(PROFILES[plan.profile], self.benchmarks, plan.only, plan.profile, record.settings.no_device)
        if cells.on_device:  # memory of the far node is another population
            near = record.settings.near_cores
            record = replace(record, on_device=True, asleep=tuple(cells.asleep), cores=near if len(near) > 1 else ())
        if not self.progress.total:  # a session's own cells may be fewer: what is not there is skipped
            left = [each for each in self.planned if each.round not in self.journal.rounds(each.session)]
            self.progress.total = sum(len(each.cells or cells.round(each.round)) for each in left)
        self.sessions[job.session] = Session(suite, suite.commit or toolchain.commit, record, cells)
        return self.sessions[job.session]

    def prepare(self, suite: Suite) -> tuple[Path, ledger.Toolchain]:
        """A Python that has what is to be measured, and what it has of it: the build variant, too."""
        toolchain = ledger.find(suite.commit) if suite.commit else None
        if toolchain is None:
            return suite.python, suite.installed()
        if self.here and environments.same(toolchain, self.here):
            return Path(sys.executable), self.here
        ready = environments.is_ready(environments.directory(suite.environments, toolchain))
        started = time.monotonic()
        environment = environments.prepare(suite.environments, toolchain, self.keep)
        build = environments.installed_in(environment, toolchain)
        if not ready:
            print(f"{toolchain.tag}: {build} installed in {time.monotonic() - started:.0f} s", flush=True)
        return environments.python(environment), build

    def new_record(self, toolchain: ledger.Toolchain, python: Path | None, job: Job) -> Unfinished:
        """The record of a session that begins; ``python`` has the toolchain, None where it could not be installed."""
        plan = self.plan
        return Unfinished(
            toolchain=Toolchain(job.tag or toolchain.tag, toolchain.torch, toolchain.numpy),
            skipped={},
            profile=plan.profile,
            only=plan.only,
            planned=plan.rounds,
            command=plan.command,
            machine=plan.machine,
            settings=settings(str(python)) if python else Settings(),
            conditions=conditions(),
            asv=metadata.version("asv"),
            asv_runner=metadata.version("asv_runner"),
            launch=LAUNCH,
            started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            fleet=plan.fleet or {},
            **self.about(job.side),
        )

    def again(self, job: Job) -> bool:
        """Whether a session stands beside an earlier one of its toolchain, by benchmarks that are the same now."""
        if job.side == AGAIN:
            return True
        if job.tag not in self.plan.beside:
            return False
        lines = files.read_measurements(
            result_file(self.plan.machine, ledger.tagged()[job.tag].commit, Suite().results)
        )
        before = {line["benchmark"]: line["version"] for line in lines}
        now = {name: benchmark["version"] for name, benchmark in self.benchmarks.items() if name in before}
        return bool(now) and all(before[name] == version for name, version in now.items())

    # --- a job --------------------------------------------------------------------------------------------------------

    def take(self, job: Job, meanwhile: AbstractContextManager[None] | None = None) -> bool:
        """Take a round, then new processes of noisy cells, as long as the budget allows; False where it is whole.

        What rounds before this one did not use of their part of the budget is this one's, too. Cells that are named
        by the job are taken once: a process anew would have no counterpart on the other side.

        meanwhile  what is done while that is counted which no noise touches, before anything is timed
        """
        if job.round in self.journal.rounds(job.session):
            return False
        session, plan = self.open(job), self.plan
        timed = job.cells or session.cells.round(job.round)
        cells = timed if job.cells or job.round or self.again(job) else session.cells.every
        if not cells and job.round:
            return False
        self.journal.begin()
        if not cells:  # nothing is timed, as in a history of counts alone: to asv, no pattern is every benchmark
            self.journal.keep(job, session.record)
            return False
        earlier, record = len(self.journal.lines(job.session)), session.record
        patience = record.patience + budget(len(timed), plan.profile, session.cells.total(plan.rounds))
        started, left, done = time.monotonic(), patience - record.waited, self.progress.done
        log = self.journal.work / LOG

        def advance() -> None:
            self.progress.at(done + min(log.read_bytes().count(b"\n"), self.progress.total - done))

        def asv(cells: Sequence[str], patience: tuple[float, int], round_of: Callable[[str], int]) -> None:
            nonlocal record
            run = partial(session.suite.measure, machine=plan.machine, place=self.journal.work, advance=advance)
            record = self.device.measure(record, cells, partial(run, patience=patience))
            mark(self.journal.work, round_of)

        counted = {*session.cells.counted}
        allowance = (left if job.cells else WITHIN * left, len(timed))
        for untouched in (True, False):
            chosen = [cell for cell in cells if (cell in counted) == untouched]
            if untouched and chosen:
                print("counting instructions: takes some minutes without output", flush=True)
            if chosen:
                with (untouched and meanwhile) or nullcontext():
                    asv(chosen, allowance, lambda cell: job.round)
        left -= sum(line["waited"] for line in with_samples(self.lines(job)[earlier:]))
        passes = PASSES if job.round + 1 >= plan.rounds else 1
        for _ in range(0 if job.cells else passes):
            run = quiet.Run(with_samples(self.lines(job)))
            lacking = run.lacking(range(job.round + 1))
            retaken = affordable(lacking, {name_of(line): line["took"] for line in run.lines}, left)
            if not retaken:
                break
            begun = time.monotonic()
            self.progress.total += len(retaken)
            asv(retaken, (left, len(retaken)), {cell: lost[0] for cell, lost in lacking.items()}.__getitem__)
            left -= time.monotonic() - begun
        session.record = replace(
            record,
            patience=round(patience, 1),
            waited=round(patience - left, 1),
            rounds=job.round + 1,
            seconds=round(record.seconds + time.monotonic() - started, 1),
        )
        self.journal.keep(job, session.record)
        return True

    def lines(self, job: Job) -> list[Line]:
        return self.journal.lines(job.session, working=True)

    # --- filing -------------------------------------------------------------------------------------------------------

    def file(self, job: Job, whole: bool = True) -> Record:
        """File what there is of a job's session: measurements, asv's export of them, and its record, which is returned.

        What is filed by now is merged with, so that nothing is lost which asv filed meanwhile; a second time changes
        nothing. UserError where nothing was measured.

        whole  else the session goes on
        """
        record, lines = self.journal.record(job.session), self.journal.lines(job.session)
        if record is None:
            raise UserError(f"nothing was measured of {job.session} so far")
        session, beside = self.open(job), self.again(job)
        left_out = {why: tuple(names) for why, names in session.cells.unavailable.items()}
        record = summed_up(record, lines)
        record = replace(record, skipped={**record.skipped, **left_out}, planned=max(record.rounds, self.plan.rounds))
        path = result_file(record.machine, session.under, session.suite.results, record.settings.python)
        before = [line for line in files.read_measurements(path) if line["run"] != record.started]
        fresh = [{"run": record.started, **line} for line in lines if "seconds" in line or "values" in line]
        if job.side == AGAIN:
            record = replace(record, drift=drift(before, fresh))
            moved = f"{record.drift.get('median', math.nan):.3f} times what {record.drift['cells']} cells took at first"
            print(f"{job.tag} again: {moved}", flush=True)
        file_measured(record, path, files.merged(before, fresh, beside), lines, self.journal.places(job.session))
        if whole:
            self.journal.is_filed(job.session)
            del self.sessions[job.session]
        return replace(record, file=files.file_of(path))

    def file_failure(self, tag: str, reason: str) -> None:
        """Have asv file the cells of a toolchain as failed, unless that would bury results of another day."""
        toolchain, plan = ledger.tagged()[tag], self.plan
        suite = Suite(commit=toolchain.commit)
        path = result_file(plan.machine, suite.commit, suite.results)
        if path.exists() or not self.benchmarks:
            return
        cells = cells_of(PROFILES[plan.profile], self.benchmarks, plan.only, plan.profile, "not looked for yet")
        record = replace(self.new_record(toolchain, None, Job(tag, 0)), failed=reason)
        self.journal.begin()
        place = self.journal.work
        variables = {**os.environ, environments.RESULTS_VARIABLE: str(place / FILES)}
        apart(suite.asv(plan.machine, exactly(cells.every)), suite.root, variables)
        if (place / FILES / plan.machine / path.name).is_file():
            file_measured(replace(record, failures={reason: tuple(cells.every)}), path, [], [], [place])


INSTALL = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from toolchains import environments, ledger
environments.prepare(Path(sys.argv[2]), ledger.tagged()[sys.argv[3]], int(sys.argv[4]))
"""
AGAIN = "again"  # the side of a toolchain that was measured before, and stands beside that


def mark(place: Path, round_of: Callable[[str], int]) -> None:
    """Note in a log which round its new lines belong to, by the cell that they are about."""
    numbered = [line if "round" in line else {**line, "round": round_of(name_of(line))} for line in logged(place)]
    (place / LOG).write_text("".join(json.dumps(line) + "\n" for line in numbered), encoding="utf-8")


def affordable(cells: Iterable[str], took: Mapping[str, float], seconds: float) -> list[str]:
    """The first of these cells, as many as one process each of takes so many seconds."""
    spent = itertools.accumulate(map(took.__getitem__, cells := list(cells)))
    return [cell for cell, so_far in zip(cells, spent) if so_far <= seconds - START]


@contextlib.contextmanager
def installing(coming: ledger.Toolchain | None, keep: int, here: ledger.Toolchain | None) -> Iterator[None]:
    """The toolchain to come is installed while the block runs, and is when it is left; where it cannot be, who needs it
    learns why. Nothing is done where fewer than three may stay: it, the one that is measured, and the reference.

    In a process of its own, so that what this one uses stays its own, and nothing of it is left when we are ended. It
    leaves the cores to the counts. Where Linux has autogroups, it is these that are weighed (sched(7)).
    """
    root = ROOT / ENVIRONMENTS
    there = coming is None or (here and environments.same(coming, here))
    if coming is None or there or keep < 3 or environments.is_ready(environments.directory(root, coming)):
        yield
        return
    silent, started = subprocess.DEVNULL, time.monotonic()
    command = [sys.executable, "-c", INSTALL, str(ROOT / "scripts"), str(root), coming.tag, str(keep)]
    with session(command, ROOT, stdin=silent, stdout=silent, stderr=silent) as process:
        with contextlib.suppress(OSError, psutil.Error):
            psutil.Process(process.pid).nice(BEHIND)
            Path(f"/proc/{process.pid}/autogroup").write_text(str(BEHIND), encoding="utf-8")
        yield
        if process.wait() == 0:
            print(f"{coming.tag}: installed ahead, ready after {time.monotonic() - started:.0f} s", flush=True)


# --- records ----------------------------------------------------------------------------------------------------------


def result_file(machine: str, commit: str, results: Path, python: str = "") -> Path:
    """asv's file of a toolchain on a machine, measured with this version of Python, or with ours; the measurements and
    run records lie beside it."""
    major, minor, *_ = (python or platform.python_version()).split(".")
    return results / machine / f"{commit[:8]}-toolchain-py{major}.{minor}.json"


def file_measured(
    record: Record, path: Path, lines: Sequence[Line], logged: Sequence[Line], places: Sequence[Path]
) -> None:
    """File measurements, asv's export of them, and their record, in this order: whoever reads meanwhile finds the
    measurements of every figure, and no record without them.

    lines   all measurements of the result; logged: what the processes of the session said
    places  of its jobs, with asv's own files
    """
    ran = [place / FILES / record.machine / path.name for place in places]
    ran = [file for file in ran if file.is_file()]
    for place in places[-1:]:  # asv describes what it measures with each run
        for described in (files.BENCHMARKS, f"{record.machine}/{files.MACHINE}"):
            if (place / FILES / described).is_file():
                cli.put(path.parents[1] / described, (place / FILES / described).read_bytes())
    fresh = any("seconds" in line or "values" in line for line in logged)
    if fresh:
        cli.put(files.beside(path, files.MEASUREMENTS), files.measurements_text(lines))
    if ran:
        explained = {cell for cells in (*record.skipped.values(), *record.failures.values()) for cell in cells}
        silent = [cell for cell in files.without_figure(ran) if cell not in explained]
        if silent:
            record = replace(record, failures={**record.failures, SILENT: tuple(silent)})
        skipped = {cell for cells in record.skipped.values() for cell in cells}
        files.export(ran, path, lines, skipped, {name_of(line) for line in logged})
    known = [each for each in files.read_records(path) if each.started != record.started]
    cli.put(files.beside(path, files.RECORDS), "".join(map(files.record_text, [*known, record])))


def by_reason(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Reason -> the cells that it is one for, once each, in order."""
    found: dict[str, dict[str, None]] = {}
    for why, cell in pairs:
        found.setdefault(why, {})[cell] = None
    return {why: tuple(cells) for why, cells in found.items()}


def summed_up(record: Unfinished, lines: Sequence[Line]) -> Unfinished:
    """The record with what the sampling log holds of the run: how quiet it was, what was skipped and why."""
    run = quiet.Run(with_samples(lines))
    skipped, failures = (
        by_reason((line[status], name_of(line)) for line in lines if status in line) for status in ("skipped", "failed")
    )
    share = run.quiet_share()
    probe, changed = device_probe(run.lines)
    return replace(
        record,
        quiet=round(share, 4) if share == share else None,
        baselines={probe: round(baseline, 1) for probe, baseline in run.baselines.items()},
        samples=sum(line["wanted"] for line in run.lines),
        retaken=sum(max(0, len(line["seconds"]) - line["wanted"]) for line in run.lines),
        noisy_cells=tuple(cell for cell, rounds in run.rounds().items() if not any(rounds.values())),
        skipped=skipped,
        failures=failures,
        device_probe=probe,
        device_changed=changed,
        device_lost=next((why for why in skipped if why.startswith(GONE)), ""),
    )


def device_probe(timed: Sequence[Line]) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[str, ...]]]:
    """How the device ran around the samples, by its driver: device_probe and device_changed of a run's record."""
    around = [(each, name_of(line)) for line in timed for each in line.get("device", ())]
    spans = {}
    for quantity in ("link generation", "clock") if around else ():
        taken = [each[quantity] for each, _ in around]
        spans[quantity] = min(taken), max(taken)
    unsteady = [line for line in timed if not line.get("warmed", {"steady": True})["steady"]]
    changed = [
        *((f"slowed by {reason}", cell) for each, cell in around for reason in each["slowed by"]),
        *(("clock not steady after warming up", name_of(line)) for line in unsteady),
        *(("waiting not verified", name_of(line)) for line in timed if "unseen" in line),
        *((what, cell) for what, (_, most) in spans.items() for each, cell in around if each[what] < STEADY * most),
    ]
    return spans, by_reason(changed)


def how_quiet(record: Record) -> str:
    """What a run record holds of the machine, in words."""
    if record.quiet is None:
        return "nothing was timed"
    words = f"the machine was quiet {record.quiet:.0%} of the time"
    never = len(record.noisy_cells)
    return words + (f"; {never} cells have no quiet sample, and are marked" if never else "")


def drift(before: Sequence[Line], after: Sequence[Line]) -> dict[str, float]:
    """How the cells of a toolchain moved between two sessions, as asv has their figures: later over sooner."""
    sooner, later = (files.used_samples(with_samples(lines)) for lines in (before, after))
    ratios = [statistics.median(later[cell][0]) / statistics.median(sooner[cell][0]) for cell in sooner.keys() & later]
    return {"cells": len(ratios), **({"median": statistics.median(ratios)} if ratios else {})}
