"""Who measures what, in which order: a run, a history, what came since, and two toolchains side by side.

A history is measured from coarse to fine, and its reference again at the end. Two sides take turns, A B B A, so that a
machine's drift meets both. Each side has a copy of the checkout's code, so that an edit meanwhile changes neither, and
a Python of its own, which runs asv there. The copies are ``DIRECTORY/base`` and ``DIRECTORY/new``, those of the second
stage ``base-fresh`` and ``new-fresh``; results lie in each as in any checkout, with run records that say which belong
together.
"""

import contextlib
import os
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cli import UserError
from store import files, quiet
from store.records import with_samples
from toolchains import environments, ledger
from toolchains.ledger import Toolchain
from toolchains.selection import Target

from .engine import ENVIRONMENTS, RESULTS, ROOT, Suite, copy_code, link_environments, new_id, register
from .machine import check_machine
from .runner import AGAIN, LOST, Job, Journal, Plan, Runner

SIDES = ("base", "new")
ROUNDS, FRESH_ROUNDS = 4, 8  # processes a side: everywhere, and where it is close
# Quiet pairs that a verdict takes: statistics.MIN_PROCESSES, which who measures may lack the packages for
ENOUGH = 4
MORE = 0.5  # of the time that the rounds took: rounds more of what was not quiet on both sides end then


# --- runs and histories -----------------------------------------------------------------------------------------------


def coarse_to_fine(line: Sequence[Toolchain]) -> list[Toolchain]:
    """First, last or nearly so, middle, quarters: the order of the places' binary digits reversed (van der Corput).

    In order of release, a drift of the machine over the hours would look like a trend of the releases.
    """
    width = len(line).bit_length()
    order = sorted(range(len(line)), key=lambda place: f"{place:0{width}b}"[::-1])
    return [line[place] for place in order]


def plan_of(journal: Journal, chosen: Namespace, fresh: Plan, choosing: Sequence[str] = ()) -> Plan:
    """The plan to go on with, where that is asked for; else ``fresh`` begins, and the one before is forgotten, but for
    what it has whole.

    UserError where --resume comes with options that the interrupted run had not; with more or fewer rounds it may.

    choosing  the options that choose toolchains
    """
    check_machine(RESULTS / fresh.machine)
    plan = journal.plan()
    if plan and chosen.resume:
        asked = {name: (fresh.tags, plan.tags) for name in choosing if getattr(chosen, name)}
        asked |= {name: (getattr(chosen, name), getattr(plan, name)) for name in ("profile", "only")}
        changed = [f"--{name}" for name, (now, then) in asked.items() if now is not None and now != then]
        if changed:
            raise UserError(f"the interrupted run had other options ({', '.join(changed)}): use --resume alone")
        return replace(plan, rounds=chosen.rounds or plan.rounds)
    if plan:
        file_whole(Runner(journal, plan))
    elif chosen.resume:
        print("nothing to resume: starting a new run")
    journal.forget()
    return fresh


def file_whole(runner: Runner) -> None:
    """File what an interrupted run has whole: who begins another one does not want to lose it."""
    for tag in left(runner):
        jobs = runner.rounds_of(tag)
        record = runner.journal.record(jobs[0].session)
        own = record and (tag or (runner.here and runner.here.tag)) == record.toolchain.tag
        if own and len(runner.journal.rounds(jobs[0].session)) >= len(jobs):
            print(f"{runner.file(jobs[0]).toolchain.tag}: was complete when the run was interrupted; filed now")


def begun(journal: Journal, plan: Plan, **options: Any) -> Runner:
    """The runner of a plan, which is kept from now on; UserError where results of that name are another machine's."""
    check_machine(RESULTS / plan.machine)
    register(plan.machine)
    journal.save(plan)
    return Runner(journal, plan, **options)


def left(runner: Runner) -> list[str]:
    """The toolchains of the plan that are not filed."""
    filed = runner.journal.filed()
    return [tag for tag in runner.plan.tags if Job(tag, 0).session not in filed]


def is_closed(runner: Runner) -> bool:
    """Whether the reference of several toolchains was measured before all others and again behind them."""
    filed = runner.journal.filed()
    return len(runner.plan.tags) < 2 or (len(filed) > 1 and filed[-1] == Job(runner.reference, 0, AGAIN).session)


def measure(runner: Runner) -> dict[str, str]:
    """Take what is left of a plan, and of several toolchains the reference again; tag -> why it could not be measured.

    What failed before is tried again: perhaps it was the network.
    """
    tags = left(runner)
    sessions = [runner.rounds_of(tag) for tag in tags]
    runner.planned = [job for jobs in sessions for job in jobs]
    if (tags and len(runner.plan.tags) > 1) or not is_closed(runner):
        runner.planned += runner.rounds_of(runner.reference or tags[0], AGAIN)
    with runner.device:
        failed = runner.carry_out(sessions)
        if runner.reference and not is_closed(runner):
            failed |= runner.carry_out([runner.rounds_of(runner.reference, AGAIN)])
    for tag, reason in failed.items():
        runner.file_failure(tag, reason)
    return failed


# --- what came since --------------------------------------------------------------------------------------------------


def due_plan(plan: Plan, added: Collection[Toolchain]) -> Plan | None:
    """``plan`` with what is due on its machine; None where nothing is.

    Due are the releases ``added`` now, and those after the last that the machine has dealt with, or after the last that
    any machine has where it has none. The release before a new one is measured with it, and its session stands beside
    those of other days: the last that the machine has figures of or is going to measure, else simply the last.
    """
    new: dict[str, bool] = {}
    here, anywhere = dealt_with(plan.machine), dealt_with(None)
    for package in ledger.PACKAGES:
        line = ledger.history(package)
        known = here if any(release.commit[:8] in here for release in line) else anywhere
        last = max((place for place, each in enumerate(line) if each.commit[:8] in known), default=len(line))
        for place, release in enumerate(line):
            if place > last or (release in added and release.commit[:8] not in here):
                measured = [one for one in line[:place] if one.tag in new or here.get(one.commit[:8])]
                for before in (measured or line[:place])[-1:]:
                    new.setdefault(before.tag, False)
                new[release.tag] = True
    beside = tuple(tag for tag in new if not new[tag])
    return replace(plan, tags=tuple(new), beside=beside) if any(new.values()) else None


def dealt_with(machine: str | None) -> dict[str, bool]:
    """Of the toolchains that a machine, or any, has run records of: the first eight letters of the commit -> whether it
    could be measured, once at least."""
    measured: dict[str, bool] = {}
    for path in files.result_files(RESULTS, machine, files.RECORDS):
        commit = path.name.split("-")[0]
        measured.setdefault(commit, False)
        with contextlib.suppress(UserError):  # broken: whoever measured it, nothing can be compared with that
            measured[commit] |= any(not record.failed for record in files.read_records(path))
    return measured


# --- two sides --------------------------------------------------------------------------------------------------------


def prepare(directory: Path, targets: Sequence[Target], suffix: str = "") -> dict[str, Suite]:
    """Two sides with a copy of the code each; the environments that releases are installed in are the checkout's."""
    sides = {}
    for name, (python, commit) in zip(SIDES, targets):
        sides[name] = suite = Suite(directory / (name + suffix), python, commit)
        copy_code(ROOT, suite.root)
        link_environments(suite.root, ROOT / ENVIRONMENTS)
    return sides


def in_turns(numbers: Iterable[int], cells: Sequence[str], counted: Sequence[str] = ()) -> Iterator[Job]:
    """Rounds of both sides: base new, new base, base new, ... Counts are taken once, in the first."""
    for number in numbers:
        chosen = tuple([*cells, *(() if number else counted)])
        for side in SIDES if number % 2 == 0 else SIDES[::-1]:
            yield Job("", number, side, chosen)


def unpaired(base: Mapping[str, Sequence[int]], new: Mapping[str, Sequence[int]], enough: int) -> set[str]:
    """The cells that were quiet on both sides in fewer than ``enough`` rounds; base, new: cell -> its quiet rounds.

    Those that never were quiet on one of the sides are not waited for any longer.
    """
    return {cell for cell in base if base[cell] and new.get(cell) and len({*base[cell]} & {*new[cell]}) < enough}


def quiet_rounds(journal: Journal, side: str) -> dict[str, list[int]]:
    """Cell -> its rounds on a side that were quiet."""
    by_cell = quiet.Run(with_samples(journal.lines(Job("", 0, side).session))).rounds()
    return {cell: [number for number, was in rounds.items() if was] for cell, rounds in by_cell.items()}


def collect(runner: Runner, cells: Sequence[str], counted: Sequence[str] = ()) -> None:
    """Take the plan's rounds of these cells on both sides, in turns, and file a run record on each; count once.

    A noisy process has no counterpart. Cells that have fewer than ENOUGH pairs get more rounds on both sides, as long
    as that takes no more than MORE of the time that the rounds took.
    """
    begun, rounds = time.monotonic(), runner.plan.rounds
    runner.planned = list(in_turns(range(rounds if cells else 1), cells, counted))
    with runner.device:
        for job in runner.planned:
            runner.take(job)
        took, enough = time.monotonic() - begun, min(rounds, ENOUGH)
        for number in range(rounds, 2 * rounds):
            base, new = (quiet_rounds(runner.journal, side) for side in SIDES)
            lacking = unpaired(base, new, enough)
            if not lacking or time.monotonic() - begun > (1 + MORE) * took:
                break
            print(f"{len(lacking)} cells were not quiet on both sides {enough} times: another round of them")
            for job in in_turns([number], [cell for cell in cells if cell in lacking]):
                runner.take(job)
        for side in SIDES:
            runner.file(Job("", 0, side))


def measure_sides(
    targets: Sequence[Target], plan: Plan, again: Callable[[Path, Path], tuple[Sequence[str], int]]
) -> tuple[Path, Path]:
    """Both sides in turns, then fresh processes where it is close; the sides' roots, as the first stage left them.

    again  takes those: the cells to measure again, and how many of them are close; the rest say how much noise there is
    """
    directory = ROOT / ".asv" / "compare" / new_id()
    register(plan.machine)

    def runner_of(stage: int, rounds: int, suffix: str = "") -> Runner:
        sides, journal = prepare(directory, targets, suffix), Journal(directory / f"stage-{stage}")
        collection = {"id": directory.name, "stage": stage}
        return Runner(journal, replace(plan, rounds=rounds), environments.keep(), sides, collection)

    runner = runner_of(1, ROUNDS)
    for side in SIDES:
        try:
            cells = runner.open(Job("", 0, side)).cells
        except LOST as error:
            raise UserError(f"{side}: {error}") from None
    if not cells.timed and not cells.counted:
        raise UserError(f"--only {plan.only!r} matches no cell of the profile {plan.profile} that can be compared")
    print(f"{len(cells.timed)} cells x {ROUNDS} processes on both sides, in turns; {len(cells.counted)} counted once")
    collect(runner, cells.timed, cells.counted)
    base, new = (runner.sides[name].root for name in SIDES)
    more, close = again(base, new)
    if more:
        print(
            f"{close} cells are close: {FRESH_ROUNDS} fresh processes on both sides decide them"
            f" ({len(more) - close} more are measured with them, to know the noise)"
        )
        collect(runner_of(2, FRESH_ROUNDS, files.FRESH), more)
    print(f"the data is in {os.path.relpath(directory)}: compare.py compares its base and new again")
    return base, new
