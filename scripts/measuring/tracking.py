"""A history measured: each toolchain installed, timed and filed in turn, and the first one again at the end."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import cli
from cli import UserError
from store import files, quiet
from store.records import Line, name_of, with_samples
from toolchains import environments, ledger
from toolchains.ledger import Toolchain

from .beside import installing
from .engine import ENVIRONMENTS, RESULTS, ROOT, asv, discover
from .plan import Plan
from .processes import Show, after, apart, progress
from .profiles import PROFILES
from .profiles import cells as cells_in
from .record import file_record, how_quiet, new_record, result_file
from .rounds import Cells, cells_of, take_rounds


class Tracker:
    """Carries out a plan. about: what else the run records say."""

    def __init__(self, plan: Plan, machine: str, keep: int, about: Mapping[str, Any] | None = None) -> None:
        self.plan, self.machine, self.keep, self.about = plan, machine, keep, about or {}
        self.known = {toolchain.tag: toolchain for toolchain in ledger.commits().values()}
        self.here = environments.here()
        self.benchmarks: dict[str, Any] = {}
        self.show: Show
        self.done = 0
        self.coming: Toolchain | None = None  # to be measured next

    def run(self) -> None:
        """Measure what is left of the plan, then the first toolchain again."""
        plan = self.plan
        left = [tag for tag in plan.tags if tag not in plan.finished]
        while left and not self.begin(left[0]):
            left.pop(0)
        if not left and not self.begin(plan.reference):
            return
        each = self.cells().total(plan.rounds)
        again = len(plan.tags) > 1
        with progress(each * (len(left) + again), f"{len(left)} toolchains") as self.show:
            for number, tag in enumerate(left, start=1):
                self.coming = self.known[left[number]] if number < len(left) else None
                if self.attempt(tag, again=tag in plan.beside and self.comparable(tag)):
                    plan.finished.append(tag)
                    plan.save()
                self.done = each * number
                # the reference is needed again: let its environment be the last to go
                environments.used(environments.directory(ROOT / ENVIRONMENTS, self.known[plan.reference]))
            if again and plan.reference in plan.finished:
                self.attempt(plan.reference, again=True)
        for tag, reason in plan.failed.items():
            self.file_failure(self.known[tag], reason)

    def begin(self, tag: str) -> bool:
        """Find the benchmarks with this toolchain, if it can be installed: how much there is to do is known then."""
        try:
            self.prepare(self.known[tag])
            self.benchmarks = discover(self.machine, tag)
        except (environments.InstallError, UserError) as error:
            self.fail(tag, error)
            return False
        return True

    def attempt(self, tag: str, again: bool = False) -> bool:
        """Measure a toolchain. What is wrong with it stops no other."""
        try:
            self.take(tag, again)
        except (environments.InstallError, UserError) as error:
            self.fail(tag, error)
            return False
        return True

    def comparable(self, tag: str) -> bool:
        """Whether a toolchain has results that the benchmarks as they are now may add to."""
        lines = files.read_measurements(result_file(self.machine, self.known[tag].commit))
        before = {line["benchmark"]: line["version"] for line in lines}
        now = {name: benchmark["version"] for name, benchmark in self.benchmarks.items() if name in before}
        return bool(now) and all(before[name] == version for name, version in now.items())

    def fail(self, tag: str, error: Exception) -> None:
        print(cli.line(f"{tag} failed: {error}"), flush=True)
        self.plan.failed[tag] = str(error)
        self.plan.save()

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
        state = plan.state("again" if again else tag)
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
        state = plan.state("failed")
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


def see_through(plan: Plan, machine: str, keep: int, new: bool, build: Callable[[str], object]) -> int:
    """Carry out a plan, say what came of it, and have ``build`` make a page; the exit code. new: it is watch.py's."""
    print(
        f"{len(plan.tags) - len(plan.finished)} of {len(plan.tags)} toolchains on {machine}, "
        f"profile {plan.profile}, {plan.rounds} processes a cell, at most {keep} environments on disk"
    )
    again = "--new" if new else "--resume"
    try:
        Tracker(plan, machine, keep).run()
    except KeyboardInterrupt:
        print(f"{len(plan.finished)} toolchains are saved; python scripts/track.py {again} goes on")
        raise
    if plan.finished:
        build(machine)
    for tag, reason in plan.failed.items():
        print(cli.line(f"{tag} has no results: {reason}"))
    # a new release that is not for this Python is done with, or every week would try it again
    lasting = new and all(reason.startswith(environments.NO_WHEEL) for reason in plan.failed.values())
    if plan.failed and not lasting:
        print(f"python scripts/track.py {again} tries those again")
        return 2
    plan.finish()
    if plan.failed:
        return 2
    print("all saved; asv compare, asv find and asv publish work over releases")
    return 0


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
