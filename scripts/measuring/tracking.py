"""Histories measured: which toolchains, in which order, and each installed, timed and filed in turn.

What a run of toolchains is to measure is kept on disk until all of it is measured. The first one is measured again
at the end. While the instructions of one are counted, the next is installed: no noise touches a count.

Run as a program: installs the release with this tag, with so many environments on disk at most.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program it is alone

import cli
from cli import UserError
from store import files, quiet
from store.records import Line, name_of, with_samples
from toolchains import environments, ledger
from toolchains.ledger import Toolchain

# not relative: this is a program, too
from measuring.engine import ENVIRONMENTS, RESULTS, ROOT, asv, discover
from measuring.processes import Show, after, apart, progress, session
from measuring.profiles import PROFILES
from measuring.profiles import cells as cells_in
from measuring.record import file_record, how_quiet, new_record, result_file
from measuring.rounds import Cells, cells_of, take_rounds
from measuring.state import Kept, State

# --- what is to be measured -------------------------------------------------------------------------------------------


def coarse_to_fine(line: Sequence[Toolchain]) -> list[Toolchain]:
    """First, last or nearly so, middle, quarters: the order of the places' binary digits reversed (van der Corput).

    In order of release, a drift of the machine over the hours would look like a trend of the releases.
    """
    width = len(line).bit_length()
    order = sorted(range(len(line)), key=lambda place: f"{place:0{width}b}"[::-1])
    return [line[place] for place in order]


@dataclass
class Plan(Kept):
    """What a run is to measure and what it has measured; what failed is tried again: perhaps it was the network.

    beside: toolchains of which a visit stands beside those of other days, by the same benchmarks, and replaces none
    named  the reference, where it is not just the first that can be measured
    """

    tags: list[str]
    profile: str
    only: str | None
    rounds: int
    finished: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    named: str = ""

    def begin(self) -> None:
        """Keep this plan in place of an interrupted one, of whose toolchains those that are whole are filed."""
        for path in self.directory.glob("*/"):
            left = State(path)
            if not left.publish(RESULTS):
                left.finish()
        self.save()

    @property
    def reference(self) -> str:
        """The toolchain that is measured first, and again at the end; the oldest may have no wheel for this Python."""
        return self.named or (self.finished[0] if self.finished else self.tags[0])


# --- what came since --------------------------------------------------------------------------------------------------


def due_plan(directory: Path, machine: str, added: Collection[Toolchain], profile: str, rounds: int) -> Plan | None:
    """The plan of an interrupted run in ``directory``, or else one of what is due on a machine; None where nothing is.

    The release before a new one is measured with it, and its visit stands beside those of other days.
    """
    interrupted = Plan.load(directory)
    if interrupted:
        return interrupted
    tags: dict[str, bool] = {}  # whether it is new
    for package in ledger.PACKAGES:
        for toolchain in due(machine, package, added):
            before = judged_by(machine, toolchain, tags)
            if before:
                tags.setdefault(before.tag, False)
            tags[toolchain.tag] = True
    if not any(tags.values()):
        return None
    return Plan(directory, list(tags), profile, None, rounds, beside=[tag for tag, new in tags.items() if not new])


def due(machine: str, package: str, added: Collection[Toolchain]) -> list[Toolchain]:
    """The releases of a history that a machine has yet to measure, in order: those ``added`` now, and what came after
    the last that it has dealt with, or after the last that any machine has where it has none."""
    line = ledger.history(package)
    here, anywhere = ([release.commit[:8] in _dealt_with(name) for release in line] for name in (machine, None))
    known = here if any(here) else anywhere
    last = max((place for place, dealt_with in enumerate(known) if dealt_with), default=len(line))
    return [release for place, release in enumerate(line) if place > last or (release in added and not here[place])]


def judged_by(machine: str, toolchain: Toolchain, planned: Collection[str]) -> Toolchain | None:
    """The release to judge another one by: the last before it that the machine has figures of or is going to measure,
    else simply the last before it."""
    line = ledger.history(toolchain.history)
    before, measured = line[: line.index(toolchain)], _dealt_with(machine)
    known = [release for release in before if release.tag in planned or measured.get(release.commit[:8])]
    return (known or before)[-1] if before else None


def _dealt_with(machine: str | None) -> dict[str, bool]:
    """Of the toolchains that a machine, or any, has run records of: the first eight letters of the commit -> whether it
    could be measured, once at least."""
    measured: dict[str, bool] = {}
    for path in files.result_files(RESULTS, machine, files.RECORDS):
        try:
            whole = any(not record.failed for record in files.read_records(path))
        except UserError:  # it is broken: whoever measured it, nothing can be compared with that
            whole = False
        commit = path.name.split("-")[0]
        measured[commit] = measured.get(commit, False) or whole
    return measured


# --- the next toolchain, installed meanwhile --------------------------------------------------------------------------

BEHIND = 10  # as nice(1) has it: a tenth of a core that another wants, so that no busy machine stops an install


@contextlib.contextmanager
def installing(tag: str, keep: int) -> Iterator[None]:
    """A release is installed while the block runs, and is when it is left; where it cannot be, who needs it learns why.

    In a process of its own, so that what this one uses stays its own, and nothing of it is left when we are ended.
    """
    silent = subprocess.DEVNULL
    command = [sys.executable, __file__, tag, str(keep)]
    started = time.monotonic()
    with session(command, ROOT, stdin=silent, stdout=silent, stderr=silent) as process:
        yield
        if process.wait() == 0:
            print(f"{tag}: installed ahead, ready after {time.monotonic() - started:.0f} s", flush=True)


def stand_back() -> None:
    """From now on this process, and what it starts, has what the others leave: the visit waits for counts, and these
    leave a core when the last of them runs.

    Where Linux has autogroups, a session is one, and it is groups that are weighed, not the processes in them; each has
    a niceness of its own (sched(7)).
    """
    if hasattr(os, "nice"):  # Windows has none
        os.nice(BEHIND)
    with contextlib.suppress(OSError):  # no autogroups here, or another one's
        Path("/proc/self/autogroup").write_text(str(BEHIND), encoding="utf-8")


# --- a plan carried out -----------------------------------------------------------------------------------------------


class Tracker:
    """Carries out a plan. about: what else the run records say."""

    def __init__(self, plan: Plan, machine: str, keep: int, about: Mapping[str, Any] | None = None) -> None:
        self.plan, self.machine, self.keep, self.about = plan, machine, keep, about or {}
        self.known = ledger.tagged()
        self.failed: dict[str, str] = {}  # tag -> why
        self.here = environments.here()
        self.benchmarks: dict[str, Any] = {}
        self.show: Show
        self.done = 0
        self.coming: Toolchain | None = None  # to be measured next

    def run(self) -> dict[str, str]:
        """Measure what is left of the plan, then the first toolchain again; tag -> why it could not be measured."""
        plan = self.plan
        left = [tag for tag in plan.tags if tag not in plan.finished]
        while left and not self.attempt(self.begin, left[0]):
            left.pop(0)
        if not left and not self.attempt(self.begin, plan.reference):
            return self.failed
        each = self.cells().total(plan.rounds)
        again = len(plan.tags) > 1
        with progress(each * (len(left) + again), f"{len(left)} toolchains") as self.show:
            for number, tag in enumerate(left, start=1):
                self.coming = self.known[left[number]] if number < len(left) else None
                if self.attempt(self.take, tag, tag in plan.beside and self.comparable(tag)):
                    plan.finished.append(tag)
                    plan.save()
                self.done = each * number
                # the reference is needed again: let its environment be the last to go
                environments.used(environments.directory(ROOT / ENVIRONMENTS, self.known[plan.reference]))
            if again and plan.reference in plan.finished:
                self.attempt(self.take, plan.reference, True)
        for tag, reason in self.failed.items():
            self.file_failure(self.known[tag], reason)
        return self.failed

    def attempt(self, work: Callable[..., None], tag: str, *arguments: Any) -> bool:
        """Do what is to be done with a toolchain, if that can be. What is wrong with it stops no other."""
        try:
            work(tag, *arguments)
        except (environments.InstallError, UserError) as error:
            print(cli.line(f"{tag} failed: {error}"), flush=True)
            self.failed[tag] = str(error)
            return False
        return True

    def begin(self, tag: str) -> None:
        """Find the benchmarks with this toolchain: how much there is to do is known then."""
        self.prepare(self.known[tag])
        self.benchmarks = discover(self.machine, tag)

    def comparable(self, tag: str) -> bool:
        """Whether a toolchain has results that the benchmarks as they are now may add to."""
        lines = files.read_measurements(result_file(self.machine, self.known[tag].commit))
        before = {line["benchmark"]: line["version"] for line in lines}
        now = {name: benchmark["version"] for name, benchmark in self.benchmarks.items() if name in before}
        return bool(now) and all(before[name] == version for name, version in now.items())

    def prepare(self, toolchain: Toolchain) -> tuple[Path, Toolchain]:
        """A Python that has this toolchain, and what it has of it: the build variant, too."""
        if self.here and environments.same(toolchain, self.here):
            return Path(sys.executable), self.here
        ready = environments.is_ready(environments.directory(ROOT / ENVIRONMENTS, toolchain))
        started = time.monotonic()
        environment = environments.prepare(ROOT / ENVIRONMENTS, toolchain, self.keep)
        build = environments.installed_in(environment, toolchain)
        if not ready:
            print(f"{toolchain.tag}: {build} installed in {time.monotonic() - started:.0f} s", flush=True)
        return environments.python(environment), build

    def ahead(self) -> AbstractContextManager[None]:
        """Installs the toolchain to come, where three may stay: it, the one that is measured, and the reference."""
        coming = self.coming
        if coming is None or self.keep < 3 or (self.here and environments.same(coming, self.here)):
            return nullcontext()
        ready = environments.is_ready(environments.directory(ROOT / ENVIRONMENTS, coming))
        return nullcontext() if ready else installing(coming.tag, self.keep)

    def take(self, tag: str, again: bool) -> None:
        """Install one toolchain, take its rounds and file their record."""
        plan, toolchain, before = self.plan, self.known[tag], self.done
        python, build = self.prepare(toolchain)
        state = State(plan.directory / ("again" if again else tag))
        if state.publish(RESULTS):
            print(f"{tag}: was whole when the run was interrupted, and is filed now", flush=True)
            return
        record = state.load()
        if record is None:
            record = new_record(plan.profile, plan.only, self.machine, build, str(python), plan.rounds)
            record = replace(record, toolchain=replace(record.toolchain, tag=tag), **self.about)
            state.start(record)
        cells = self.cells(record.settings.no_device)
        show = after(self.show, before)
        meanwhile = self.ahead()
        record = take_rounds(record, state, cells, plan.rounds, show, commit=tag, beside=again, meanwhile=meanwhile)
        if again:
            first = files.read_measurements(result_file(self.machine, toolchain.commit))
            second = [{"run": "", **line} for line in state.lines()]
            record = replace(record, drift=drift(figures(first), figures(second)))
            print(f"{tag} again: {drift_words(record.drift)}", flush=True)
        file_record(record, toolchain.commit, state, beside=again)
        print(f"{tag}: {record.samples} samples in {record.seconds:.0f} s; {how_quiet(record)}", flush=True)

    def cells(self, no_device: str = "not looked for yet") -> Cells:
        plan = self.plan
        return cells_of(PROFILES[plan.profile], self.benchmarks, plan.only, plan.profile, no_device)

    def file_failure(self, toolchain: Toolchain, reason: str) -> None:
        """Have asv file the cells of a toolchain as failed, unless that would bury results of another day."""
        if result_file(self.machine, toolchain.commit).exists():
            return
        plan, cells = self.plan, self.cells()
        patterns = [pattern for expressions in cells.patterns.values() for pattern in expressions]
        record = new_record(plan.profile, plan.only, self.machine, toolchain, None, plan.rounds)
        record = replace(record, **self.about, failed=reason)
        state = State(plan.directory / "failed")
        state.start(record)
        state.begin()
        command = asv("run", f"{toolchain.tag}^!", "--machine", self.machine)
        command += [part for pattern in patterns for part in ("--bench", pattern)]
        apart(command, ROOT, {**os.environ, environments.RESULTS_VARIABLE: str(state.results)})
        whole = (state.results / self.machine / result_file(self.machine, toolchain.commit).name).is_file()
        state.save(record)
        if whole:
            lost = (
                cell
                for name, expressions in cells.patterns.items()
                for cell in cells_in(expressions, self.benchmarks[name])
            )
            file_record(replace(record, failures={reason: tuple(lost)}), toolchain.commit, state)
        state.finish()


def figures(lines: Iterable[Line]) -> dict[str, float]:
    """Cell -> the median over its quiet processes, in seconds per call."""
    by_run: dict[str, list[Line]] = {}
    for line in with_samples(lines):
        by_run.setdefault(line["run"], []).append(line)
    by_cell: dict[str, list[float]] = {}
    for run in map(quiet.Run, by_run.values()):
        for line, seconds, is_quiet in zip(run.lines, run.figures(), run.quiet):
            if is_quiet:
                by_cell.setdefault(name_of(line), []).append(float(seconds))
    return {cell: statistics.median(processes) for cell, processes in by_cell.items()}


def drift(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """How the cells of a toolchain, in seconds, moved between two visits: later over sooner."""
    ratios = sorted(after[cell] / seconds for cell, seconds in before.items() if cell in after)
    if not ratios:
        return {"cells": 0}
    quarter, middle, rest = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {"cells": len(ratios), "median": middle, "quarter": quarter, "three_quarters": rest}


def drift_words(drift: Mapping[str, float]) -> str:
    """A drift in words."""
    if not drift["cells"]:
        return "nothing to compare with"
    half = f"half of {drift['cells']} cells within {drift['quarter']:.3f} and {drift['three_quarters']:.3f}"
    return f"{drift['median']:.3f} times what it took at first ({half})"


if __name__ == "__main__":
    stand_back()
    environments.prepare(ROOT / ENVIRONMENTS, ledger.tagged()[sys.argv[1]], int(sys.argv[2]))
