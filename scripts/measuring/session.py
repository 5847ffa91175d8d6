"""The session of a toolchain: the suite and Python that measure it, its cells, its run record."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from pathlib import Path

from cli import UserError
from msgspec.structs import replace
from store import files
from store.files import version_number
from store.schema import Measurement, RunRecord, Settings, Toolchain
from toolchains import ledger

from .engine import CHECKOUT, LAUNCH, Suite
from .journal import REPEAT, Job, Journal, Plan
from .machine import conditions
from .profiles import Benchmarks, Cells, Names, select_cells


class BenchmarksChanged(UserError):
    """benchmarks/ changed after the first rounds were taken: no toolchain of the run can
    continue."""


@dataclass(frozen=True)
class Clock:
    """The time of day, and a clock in seconds that is never set back."""

    utc: Callable[[], datetime] = partial(datetime.now, timezone.utc)
    monotonic: Callable[[], float] = time.monotonic


@dataclass
class Session:
    """Shared state of the jobs of one toolchain.

    python  the interpreter that has the toolchain
    commit  results are filed under it
    """

    suite: Suite
    python: Path
    commit: str
    record: RunRecord
    cells: Cells


@dataclass
class Sessions:
    """The sessions of a run.

    suite       of releases and of this Python's toolchain
    sides       side -> suite measured there instead
    collection  common to both sides, as written to their records
    benchmarks  as asv discovers them, once a session is open
    """

    journal: Journal
    plan: Plan
    suite: Suite = CHECKOUT
    sides: Mapping[str, Suite] = field(default_factory=dict)
    collection: Mapping[str, str | int] = field(default_factory=dict)
    clock: Clock = Clock()
    benchmarks: Benchmarks = field(default_factory=dict)
    opened: dict[str, Session] = field(default_factory=dict)

    def open(self, job: Job) -> Session:
        """Return the session of a job, with its toolchain installed and its cells selected."""
        suite = self.sides.get(job.side) or self.suite.of_release(job.tag)
        session = self.opened.get(job.session)
        if session and not suite.commit:
            return session
        # even for an open session: another process may have removed its environment
        python, toolchain = suite.prepare()
        if session is None:
            session = self.opened[job.session] = self._begin(job, suite, python, toolchain)
        return session

    def _begin(self, job: Job, suite: Suite, python: Path, toolchain: ledger.Toolchain) -> Session:
        plan = self.plan
        record = self.journal.record(job)
        if record is None:
            record = self.new_record(job, toolchain, suite.settings(python))
        if not self.benchmarks:
            self.benchmarks = suite.discover(plan.machine)
        settings = record.settings
        cells = select_cells(plan.profile, self.benchmarks, plan.only, settings.no_device)
        # memory of the far NUMA node is another population
        is_bound = cells.on_device and len(settings.near_cores) > 1
        cores = settings.near_cores if is_bound else ()
        record = replace(record, cores=cores, code=record.code or suite.code_hash())
        return Session(suite, python, suite.commit or toolchain.commit, record, cells)

    def new_record(self, job: Job, toolchain: ledger.Toolchain, settings: Settings) -> RunRecord:
        """Return the record of a new session."""
        plan = self.plan
        return RunRecord(
            toolchain=Toolchain(job.tag or toolchain.tag, toolchain.torch, toolchain.numpy),
            skipped={},
            profile=plan.profile,
            only=plan.only,
            planned=plan.rounds,
            command=plan.command,
            machine=plan.machine,
            settings=settings,
            conditions=conditions(),
            asv=metadata.version("asv"),
            asv_runner=metadata.version("asv_runner"),
            launch=LAUNCH,
            started=self.clock.utc().isoformat(timespec="seconds"),
            interleaved={**self.collection, "side": job.side} if self.collection else {},
            fleet=plan.fleet,
        )

    def adds_to_earlier(self, job: Job) -> bool:
        """Whether a session is added to earlier ones of its toolchain: if planned, with the same
        benchmarks."""
        if job.side == REPEAT:
            return True
        if job.tag not in self.plan.additional:
            return False
        suite = self.suite.of_release(job.tag)
        lines = files.read_measurements(suite.result_file(self.plan.machine, suite.commit))
        versions = {line.benchmark: line.version for line in lines}
        comparable = {
            self.benchmarks[name]["version"] == version
            for name, version in versions.items()
            if name in self.benchmarks
        }
        return comparable == {True}

    def cells_in(self, job: Job, cells: Cells) -> Names:
        """Return the cells of a job: its own, or all in a session's first round and the timed ones
        in the others."""
        if job.cells:
            return job.cells
        if job.round or self.adds_to_earlier(job):
            return cells.round(job.round)
        return cells.names

    def count_processes(self, jobs: Sequence[Job], cells: Cells) -> int:
        """Return the number of timed processes in these jobs, if all have the ``cells`` of one of
        them."""
        counted = {*cells.counted}
        return sum(len({*self.cells_in(job, cells)} - counted) for job in jobs)

    def check_versions(self, job: Job) -> None:
        """Raise BenchmarksChanged if a session's finished rounds were taken by other benchmarks."""
        session = self.opened[job.session]
        if session.record.code == session.suite.code_hash() and not self.has_other_versions(job):
            return
        raise BenchmarksChanged(
            "benchmarks/ changed since the interrupted run: begin anew without --resume, "
            f"or remove {self.journal.directory}"
        )

    def has_other_versions(self, job: Job) -> bool:
        """Whether a session measured a benchmark that has another version now, or is gone."""
        for line in self.journal.lines(job):
            if isinstance(line, Measurement):
                current = self.benchmarks.get(line.benchmark, {}).get("version")
                if version_number(line.benchmark, line.version) != current:
                    return True
        return False
