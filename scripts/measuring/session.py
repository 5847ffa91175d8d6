"""The session of a toolchain: the suite and Python that measure it, its cells, its run record, and
filing it in reports/results."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from pathlib import Path

from cli import UserError
from msgspec.structs import replace
from store import asv_files, files, quiet
from store.schema import (
    LogLine,
    Measurement,
    NoFigure,
    Reasons,
    RunRecord,
    Settings,
    TimedProcess,
    Toolchain,
    with_samples,
)
from toolchains import ledger

from benchmarks.core.timing import GONE

from .engine import CHECKOUT, FILES, LAUNCH, SILENT, Suite, read_log, revision_of
from .journal import REPEAT, Job, Journal, Plan
from .machine import check_machine, conditions
from .profiles import Benchmarks, Cells, Names, group_by_reason, select_cells

STEADY = 0.95  # share of a device's highest clock that counts as the highest


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

    def racing(self, cells: Names) -> list[str]:
        """Select those of ``cells`` that a further process can change an answer by."""
        stopped = {*itertools.chain(*self.record.stopped.values())}
        return [cell for cell in cells if cell not in stopped]

    def round(self, number: int) -> list[str]:
        """Return the timed cells of a round, as far as is known now."""
        return self.racing(self.cells.round(number))


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
            settings = self._settings(suite, python)
            check_machine(suite.results / plan.machine, settings)
            record = self.new_record(job, toolchain, settings)
        if not self.benchmarks:
            self.benchmarks = suite.discover(plan.machine)
        settings = record.settings
        cells = select_cells(plan.profile, self.benchmarks, plan.only, settings.no_device)
        # memory of the far NUMA node is another population
        is_bound = cells.on_device and len(settings.near_cores) > 1
        cores = settings.near_cores if is_bound else ()
        record = replace(
            record,
            cores=cores,
            code=record.code or suite.code_hash(),
            revision=record.revision or revision_of(suite.root),
        )
        return Session(suite, python, suite.commit or toolchain.commit, record, cells)

    def _settings(self, suite: Suite, python: Path) -> Settings:
        """Return the settings of a Python; of the other side, if that is the same. Finding them
        takes an import of torch."""
        for other in self.opened.values():
            if (other.python, other.suite.commit) == (python, suite.commit):
                return other.record.settings
        return suite.settings(python)

    def new_record(self, job: Job, toolchain: ledger.Toolchain, settings: Settings) -> RunRecord:
        """Return the record of a new session."""
        plan = self.plan
        return RunRecord(
            toolchain=Toolchain(
                job.tag or toolchain.tag, toolchain.torch, toolchain.numpy, toolchain.python
            ),
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
        measured = [line for line in lines if line.benchmark in self.benchmarks]
        return bool(measured) and not self.has_other_versions(measured)

    def cells_in(self, job: Job, cells: Cells) -> Names:
        """Return the cells of a job: its own, or all in a session's first round and the timed ones
        in the others."""
        if job.cells:
            return job.cells
        if job.round or self.adds_to_earlier(job):
            return cells.round(job.round)
        return cells.names

    def count_processes(self, jobs: Sequence[Job], session: Session) -> int:
        """Return the number of timed processes in these jobs, if all have the cells of one
        session."""
        cells = session.cells
        counted = {*cells.counted}
        return sum(len({*session.racing(self.cells_in(job, cells))} - counted) for job in jobs)

    def check_versions(self, job: Job) -> None:
        """Raise BenchmarksChanged if a session's finished rounds were taken by other benchmarks."""
        session = self.opened[job.session]
        lines = self.journal.lines(job)
        if session.record.code == session.suite.code_hash() and not self.has_other_versions(lines):
            return
        raise BenchmarksChanged(
            "benchmarks/ changed since the interrupted run: begin anew without --resume, "
            f"or remove {self.journal.directory}"
        )

    def has_other_versions(self, lines: Sequence[LogLine]) -> bool:
        """Whether a benchmark that was measured has another version now, or is gone."""
        versions = {
            (line.benchmark, line.version) for line in lines if isinstance(line, Measurement)
        }
        return any(
            files.version_number(name, version) != self.benchmarks.get(name, {}).get("version")
            for name, version in versions
        )


# --- filing ---------------------------------------------------------------------------------------


def file_measured(
    record: RunRecord, path: Path, lines: Sequence[Measurement], places: Sequence[Path]
) -> None:
    """File measurements, their export to asv's file, and their record, in this order. So a
    concurrent reader finds the measurements of every figure and of every record.

    lines   all measurements of the result
    places  directories of the session's jobs, with the log of the processes and asv's own files,
            which describe the benchmarks and the machine
    """
    for description in (files.BENCHMARKS, f"{record.machine}/{files.MACHINE}"):
        sources = filter(Path.is_file, (place / FILES / description for place in places[::-1]))
        if source := next(sources, None):
            files.put(path.parents[1] / description, source.read_bytes())
    if lines:
        files.put(files.sibling(path, files.MEASUREMENTS), files.measurements_text(lines))
    # the lines of other runs are gone
    runs = {line.run for line in lines} - {record.started}
    records = [each for each in files.read_records(path) if each.failed or each.started in runs]
    ran = [place / FILES / record.machine / path.name for place in places]
    ran = list(filter(Path.is_file, ran))
    if ran:
        record = with_silent_failures(record, ran)
        tried = {line.cell for place in places for line in read_log(place)}
        asv_files.export(ran, path, lines, [*records, record], tried)
    text = "".join(map(files.record_text, [*records, record]))
    files.put(files.sibling(path, files.RECORDS), text)


def with_silent_failures(record: RunRecord, ran: Sequence[Path]) -> RunRecord:
    """Return the record with the cells that failed in asv's files ``ran``, although no process said
    why."""
    explained = {*itertools.chain(*record.skipped.values(), *record.failures.values())}
    pairs = [(SILENT, cell) for cell in asv_files.failed_cells(ran) if cell not in explained]
    return replace(record, failures=record.failures | group_by_reason(pairs))


def summary(record: RunRecord) -> str:
    """Return a line about a session: samples, duration, and how quiet the machine was."""
    text = (
        f"{record.toolchain.tag}: {record.samples} samples in {record.seconds:.0f} s, "
        f"{record.waited:.0f} of them waiting for quiet"
    )
    if record.quiet is not None:
        text += f"; the machine was quiet {record.quiet:.0%} of the time"
    if record.noisy_cells:
        text += f"; cells without a quiet process, which are marked: {len(record.noisy_cells)}"
    return text


def complete_record(record: RunRecord, lines: Sequence[LogLine], unavailable: Reasons) -> RunRecord:
    """Return the record, completed from the sampling log: how quiet the run was, skipped cells and
    reasons.

    unavailable  reason -> benchmarks left out
    """
    run = quiet.Run(with_samples(lines))
    without = [line for line in lines if isinstance(line, NoFigure)]
    skipped = group_by_reason((line.skipped, line.cell) for line in without)
    share = run.quiet_share()
    readings = device_readings(run.lines).items()
    return replace(
        record,
        quiet=round(share, 4) if share == share else None,
        baselines={probe: round(baseline, 1) for probe, baseline in run.baselines.items()},
        samples=sum(line.wanted for line in run.lines),
        retaken=sum(max(0, len(line.seconds) - line.wanted) for line in run.lines),
        noisy_cells=run.never_quiet(),
        skipped=skipped | unavailable,
        failures=group_by_reason((line.failed, line.cell) for line in without),
        device_lost=next((reason for reason in skipped if reason.startswith(GONE)), ""),
        device_probe={name: (min(values), max(values)) for name, values in readings},
        device_changed=device_changes(run.lines),
    )


def device_readings(lines: Sequence[TimedProcess]) -> dict[str, list[int]]:
    """Quantity that the device's driver reports -> its readings around the samples, if any."""
    states = [state for line in lines for state in line.device]
    generations = [state.link_generation for state in states]
    clocks = [state.clock for state in states]
    return {"link generation": generations, "clock": clocks} if states else {}


def device_changes(lines: Sequence[TimedProcess]) -> Reasons:
    """How the device was slower, unsteady or unseen -> the cells."""
    pairs = []
    highest = {name: max(values) for name, values in device_readings(lines).items()}
    for line in lines:
        changes = [f"slowed by {reason}" for state in line.device for reason in state.slowed_by]
        if line.warmed and not line.warmed.steady:
            changes.append("clock not steady after warming up")
        if line.unseen:
            changes.append("waiting not verified")
        for quantity, values in device_readings([line]).items():
            if min(values) < STEADY * highest[quantity]:
                changes.append(quantity)
        pairs += [(change, line.cell) for change in changes]
    return group_by_reason(pairs)
