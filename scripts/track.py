#!/usr/bin/env python3
"""Measure what releases of torch and numpy did to conversion cost: each installed, timed by asv and filed in turn.

    python scripts/track.py                              both histories, the last patch of every minor release
    python scripts/track.py --history numpy --since 2.0
    python scripts/track.py --history torch --releases 2.6.0,2.13.0
    python scripts/track.py --resume                     go on where an interrupted run stopped

Every release gets a virtual environment in .asv/env, about 5 GB and a minute and a half each where torch comes with
CUDA; --keep says how many stay. A history is measured from coarse to fine, so what is there after an interruption spans
all of it. The first toolchain is measured again at the end, into the same result file: what the machine itself did over
the hours is in its samples, and summed up in its run record. Afterwards `asv compare`, `asv find` and `asv publish`
work over releases; `git -C .asv/ledger tag` lists their names. The page of the histories is built, too.
"""

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import ONLY, Parser, UserError, put, run
from measuring import rounds as measure
from measuring.profiles import PROFILES
from measuring.profiles import cells as cells_in
from measuring.session import apart
from measuring.state import State, held
from records import calm
from toolchains import environments, installed, ledger
from toolchains.ledger import Toolchain

ENVIRONMENTS = measure.ROOT / ".asv" / "env"  # as asv.conf.json has it


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--history", choices=ledger.PACKAGES, help="releases of this package only (default: of both)")
    parser.add_argument("--releases", metavar="2.6.0,2.13.0", help="these (default: the last patch of every minor one)")
    parser.add_argument("--since", metavar="2.0", help="from this release on")
    parser.add_argument("--profile", help=f"one of: {', '.join(PROFILES)} (default: tracking)")
    parser.add_argument("--only", metavar="REGEX", help=ONLY)
    parser.add_argument("--rounds", type=int, help="processes a cell (default: the profile's)")
    parser.add_argument("--resume", action="store_true", help="go on with the releases an interrupted run had left")
    parser.add_argument("--keep", type=int, metavar="N", help="environments on disk at most (default: asv.conf.json's)")
    parser.add_argument("--machine", help="name to file the results under (default: made of the hardware)")
    parser.add_argument("--no-report", action="store_true", help="do not build the page")
    chosen = parser.parse_args(argv)
    measure.check_chosen(chosen.profile, chosen.machine, chosen.only)
    for name in ("rounds", "keep"):
        if getattr(chosen, name) is not None and getattr(chosen, name) < 1:
            raise UserError(f"--{name} takes a whole number from 1")
    if chosen.since is not None and not re.fullmatch(r"\d+(\.\d+)*", chosen.since):
        raise UserError(f"--since {chosen.since!r} is no version")
    return chosen


def toolchains(chosen: argparse.Namespace) -> list[Toolchain]:
    """The toolchains that the command line asks for, history by history, in order of release."""
    packages = [chosen.history] if chosen.history else list(ledger.PACKAGES)
    if chosen.releases is None:
        found = [toolchain for package in packages for toolchain in ledger.series(package)]
    else:
        known = [toolchain for package in packages for toolchain in ledger.history(package)]
        found = []
        for name in filter(None, chosen.releases.replace(",", " ").split()):
            called = [toolchain for toolchain in known if name in (toolchain.tag, toolchain.version)]
            if len(called) > 1:
                raise UserError(f"{name} is a release of torch and of numpy: say --history torch or --history numpy")
            if not called:
                raise UserError(f"{name} is no release of {' or '.join(packages)} in {ledger.RELEASES.name}")
            found += called
        found = [toolchain for toolchain in known if toolchain in found]
    if chosen.since is not None:
        least = ledger.parts(chosen.since)
        found = [toolchain for toolchain in found if ledger.parts(toolchain.version) >= least]
    if not found:
        raise UserError("no release is left to measure")
    return found


def coarse_to_fine(line: Sequence[Toolchain]) -> list[Toolchain]:
    """First, last or nearly so, middle, quarters: the order of the places' binary digits reversed (van der Corput).

    In order of release, a drift of the machine over the hours would look like a trend of the releases.
    """
    width = len(line).bit_length()
    order = sorted(range(len(line)), key=lambda place: f"{place:0{width}b}"[::-1])
    return [line[place] for place in order]


@dataclass
class Plan:
    """What a run is to measure and what it has measured, kept on disk until it has measured all of it."""

    directory: Path
    tags: list[str]
    profile: str
    only: str | None
    rounds: int
    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.directory / "plan.json"

    def save(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        put(self.path, json.dumps({name: value for name, value in vars(self).items() if name != "directory"}))

    @classmethod
    def load(cls, directory: Path) -> "Plan | None":
        try:
            return cls(directory, **json.loads((directory / "plan.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def finish(self) -> None:
        self.path.unlink(missing_ok=True)

    @property
    def reference(self) -> str:
        """The toolchain that is measured first, and again at the end; the oldest may have no wheel for this Python."""
        return self.finished[0] if self.finished else self.tags[0]

    def state(self, name: str) -> State:
        """What is measured so far of one toolchain."""
        return State(self.directory / name)


def planned(chosen: argparse.Namespace, machine: str) -> Plan:
    """A new plan, or with --resume that of the interrupted run, which other options may repeat but not change."""
    directory = measure.ROOT / ".asv" / "runs" / machine / "track"
    profile = PROFILES[chosen.profile or "tracking"]
    lines = groupby(toolchains(chosen), key=lambda toolchain: toolchain.history)
    fresh = Plan(
        directory,
        [toolchain.tag for _, line in lines for toolchain in coarse_to_fine(list(line))],
        chosen.profile or "tracking",
        chosen.only,
        chosen.rounds or profile.rounds,
    )
    found = Plan.load(directory) if chosen.resume else None
    if found is None:
        if chosen.resume:
            print("nothing to resume: a new run")
        for path in directory.glob("*/"):
            left = State(path)
            if not left.publish(measure.RESULTS):  # what is whole is not lost
                left.finish()
        fresh.save()
        return fresh
    told = [name for name in ("history", "releases", "since") if getattr(chosen, name) is not None]
    changed = [f"--{name}" for name in told if found.tags != fresh.tags]
    changed += [
        f"--{name}"
        for name in ("profile", "only", "rounds")
        if getattr(chosen, name) is not None and getattr(chosen, name) != getattr(found, name)
    ]
    if changed:
        raise UserError(f"the interrupted run was another by {', '.join(changed)}: --resume alone goes on with it")
    found.failed = {}  # perhaps it was the network
    return found


class Tracker:
    """Carries out a plan."""

    def __init__(self, plan: Plan, machine: str, keep: int) -> None:
        self.plan, self.machine, self.keep = plan, machine, keep
        self.known = {toolchain.tag: toolchain for package in ledger.PACKAGES for toolchain in ledger.history(package)}
        self.here = installed.here()
        self.benchmarks: dict[str, Any] = {}
        self.show: measure.Show
        self.done = 0

    def run(self) -> None:
        """Measure what is left of the plan, then the first toolchain again."""
        plan = self.plan
        left = [tag for tag in plan.tags if tag not in plan.finished]
        while left and not self.begin(left[0]):
            left.pop(0)
        if not left and not self.begin(plan.reference):
            return
        each = self.cells().processes * plan.rounds
        again = len(plan.tags) > 1
        with measure.progress(each * (len(left) + again), f"{len(left)} toolchains") as self.show:
            for number, tag in enumerate(left, start=1):
                if self.attempt(tag):
                    plan.finished.append(tag)
                    plan.save()
                self.done = each * number
                # the reference is needed again: let its environment be the last to go
                environments.used(environments.directory(ENVIRONMENTS, self.known[plan.reference]))
            if again and plan.reference in plan.finished:
                self.attempt(plan.reference, again=True)
        for tag, reason in plan.failed.items():
            self.file_failure(self.known[tag], reason)

    def begin(self, tag: str) -> bool:
        """Find the benchmarks with this toolchain, if it can be installed: how much there is to do is known then."""
        try:
            self.prepare(self.known[tag])
            self.benchmarks = measure.discover(self.machine, tag)
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

    def fail(self, tag: str, error: Exception) -> None:
        print(cli.line(f"{tag} failed: {error}"), flush=True)
        self.plan.failed[tag] = str(error)
        self.plan.save()

    def prepare(self, toolchain: Toolchain) -> tuple[Path, Toolchain]:
        """A Python that has this toolchain, and what it has of it: the build variant, too."""
        if self.here and environments.same(toolchain, self.here):
            return Path(sys.executable), self.here
        ready = environments.is_ready(environments.directory(ENVIRONMENTS, toolchain))
        started = time.monotonic()
        environment = environments.prepare(ENVIRONMENTS, toolchain, self.keep)
        found = environments.found(environment, toolchain)
        if not ready:
            print(f"{toolchain.tag}: {found} installed in {time.monotonic() - started:.0f} s", flush=True)
        return environments.python(environment), found

    def take(self, tag: str, again: bool) -> None:
        """Install one toolchain, take its rounds and file their record."""
        plan, toolchain, before = self.plan, self.known[tag], self.done
        python, found = self.prepare(toolchain)
        state = plan.state("again" if again else tag)
        if state.publish(measure.RESULTS):
            print(f"{tag}: was whole when the run was interrupted, and is filed now", flush=True)
            return
        record = state.load()
        if record is None:
            record = measure.new_record(plan.profile, plan.only, self.machine, found, str(python), plan.rounds)
            record["toolchain"]["tag"] = tag
            state.start(record, [self.result_file(toolchain)])
        cells = self.cells(record["settings"]["device"])

        def show(done: int, more: float = 0.0) -> None:
            self.show(before + done, more)

        measure.take_rounds(record, state, cells, plan.rounds, show, commit=tag, append=again)
        if again:
            first = calm.read(self.result_file(toolchain).with_suffix(calm.SUFFIX))
            second = [{"run": "", **line} for line in state.lines()]
            record["drift"] = drift(figures(first), figures(second))
            print(f"{tag} again: {told(record['drift'])}", flush=True)
        measure.file_record(record, toolchain.commit, state, append=again)
        print(
            f"{tag}: {record['samples']} samples in {record['seconds']:.0f} s; {measure.how_calm(record)}", flush=True
        )

    def cells(self, device: str | None = None) -> measure.Cells:
        plan = self.plan
        return measure.cells_of(PROFILES[plan.profile], self.benchmarks, plan.only, plan.profile, device)

    def result_file(self, toolchain: Toolchain) -> Path:
        return measure.record_file(self.machine, toolchain.commit).with_suffix(".json")

    def file_failure(self, toolchain: Toolchain, reason: str) -> None:
        """Have asv file the cells of a toolchain as failed, unless that would bury results of another day."""
        if self.result_file(toolchain).exists():
            return
        plan, cells = self.plan, self.cells()
        patterns = [pattern for found in cells.patterns.values() for pattern in found]
        record = measure.new_record(plan.profile, plan.only, self.machine, toolchain, None, plan.rounds)
        state = plan.state("failed")
        state.start(record)
        state.begin()
        command = measure.asv("run", f"{toolchain.tag}^!", "--machine", self.machine)
        command += [part for pattern in patterns for part in ("--bench", pattern)]
        apart(command, measure.ROOT, {**os.environ, environments.RESULTS_VARIABLE: str(state.results)})
        whole = (state.results / self.machine / self.result_file(toolchain).name).is_file()
        state.save(record)
        if whole:
            lost = [cell for name, found in cells.patterns.items() for cell in cells_in(found, self.benchmarks[name])]
            none = {"samples": 0, "retaken": 0, "disturbed": 0, "disturbed_cells": {}}
            measure.file_record(
                {**record, **none, "failed": reason, "skipped": {reason: lost}}, toolchain.commit, state
            )
        state.finish()


def figures(lines: Iterable[calm.Line]) -> dict[str, float]:
    """Cell -> the median of the samples that its figure rests on, in seconds."""
    return {
        cell: statistics.median(sample for process in processes.values() for sample in process.samples)
        for cell, processes in calm.chosen(calm.timed(lines)).items()
    }


def drift(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Any]:
    """How the cells of a toolchain, in seconds, moved between two visits: later over sooner."""
    ratios = sorted(after[cell] / seconds for cell, seconds in before.items() if cell in after)
    if not ratios:
        return {"cells": 0}
    quarter, middle, rest = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {"cells": len(ratios), "median": middle, "quarter": quarter, "three_quarters": rest}


def told(drift: Mapping[str, Any]) -> str:
    """A drift in words."""
    if not drift["cells"]:
        return "nothing to compare with"
    half = f"half of {drift['cells']} cells within {drift['quarter']:.3f} and {drift['three_quarters']:.3f}"
    return f"{drift['median']:.3f} times what it took at first ({half})"


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    measure.check_asv()
    machine = chosen.machine or installed.machine_name(os.cpu_count() or 1)
    with held(measure.ROOT / ".asv" / "runs" / machine):
        return track(chosen, machine)


def track(chosen: argparse.Namespace, machine: str) -> int:
    """Carry out what is planned; the exit code."""
    from toolchains import plugin  # imports asv, which check_asv has found

    plan = planned(chosen, machine)
    keep = chosen.keep or environments.keep(plugin.configured("keep_environments"))
    os.environ[environments.KEEP_VARIABLE] = str(keep)  # for asv
    measure.check_machine(measure.RESULTS / machine)
    measure.register(machine)
    print(
        f"{len(plan.tags) - len(plan.finished)} of {len(plan.tags)} toolchains on {machine}, "
        f"profile {plan.profile}, {plan.rounds} processes a cell, at most {keep} environments on disk"
    )
    try:
        Tracker(plan, machine, keep).run()
    except KeyboardInterrupt:
        print(f"{len(plan.finished)} toolchains are saved; python scripts/track.py --resume goes on")
        raise
    if plan.finished and not chosen.no_report:
        measure.build_pages(machine)
    for tag, reason in plan.failed.items():
        print(cli.line(f"{tag} has no results: {reason}"))
    if plan.failed:
        print("python scripts/track.py --resume tries those again")
        return 2
    plan.finish()
    print("all saved; asv compare, asv find and asv publish work over releases")
    return 0


if __name__ == "__main__":
    run(main)
