"""Histories: which toolchains are measured, in which order, and what came since.

A history is measured from coarse to fine, and its reference again at the end.
"""

from argparse import Namespace
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from cli import UserError
from store import files
from toolchains import ledger
from toolchains.ledger import Toolchain

from .engine import RESULTS, register
from .journal import Journal, Plan
from .machine import check_machine
from .runner import AGAIN, Runner


def coarse_to_fine(line: Sequence[Toolchain]) -> list[Toolchain]:
    """First, last or nearly so, middle, quarters: the order of the places' binary digits reversed (van der Corput).

    In order of release, a drift of the machine over the hours would look like a trend of the releases.
    """
    width = len(line).bit_length()
    order = sorted(range(len(line)), key=lambda place: f"{place:0{width}b}"[::-1])
    return [line[place] for place in order]


def begun(journal: Journal, plan: Plan, **options: Any) -> Runner:
    """The runner of a plan, which is kept from now on; UserError where results of that name are another machine's."""
    check_machine(RESULTS / plan.machine)
    register(plan.machine)
    journal.save(plan)
    return Runner(journal, plan, **options)


def measure(runner: Runner) -> dict[str, str]:
    """Take what is left of a plan, and of several toolchains the reference again; tag -> why it could not be measured.

    What failed before is tried again: perhaps it was the network.
    """
    journal, several = runner.journal, len(runner.plan.tags) > 1
    left = runner.left()
    sessions = runner.sessions_of(left)
    closing = several and (bool(left) or not is_closed(journal.filed(), runner.reference))
    closed = runner.sessions_of([runner.reference or left[0]], AGAIN) if closing else []
    runner.planned = [job for jobs in (*sessions, *closed) for job in jobs]
    with runner.device:
        failed = runner.carry_out(sessions)
        reference = runner.reference
        if several and reference and not is_closed(journal.filed(), reference):
            failed |= runner.carry_out(runner.sessions_of([reference], AGAIN))
    for tag, reason in failed.items():
        runner.file_failure(tag, reason)
    return failed


def plan_of(journal: Journal, chosen: Namespace, fresh: Plan, choosing: Sequence[str] = ()) -> Plan:
    """The plan to go on with, where that is asked for; else ``fresh`` begins, and the one before is forgotten.

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
            raise UserError(f"the interrupted run was another by {', '.join(changed)}: --resume alone goes on with it")
        return replace(plan, rounds=chosen.rounds or plan.rounds)
    if plan:
        Runner(journal, plan).file_whole()
    elif chosen.resume:
        print("nothing to resume: starting a new run")
    journal.forget()
    return fresh


def is_closed(sessions: Sequence[str], reference: str) -> bool:
    """Whether the reference was measured before these sessions and again behind them."""
    return len(sessions) > 1 and sessions[-1] == f"{reference}-{AGAIN}"


# --- what came since --------------------------------------------------------------------------------------------------


def due_plan(plan: Plan, added: Collection[Toolchain]) -> Plan | None:
    """``plan`` with what is due on its machine; None where nothing is.

    Due are the releases ``added`` now, and those after the last that the machine has dealt with, or after the last that
    any machine has where it has none. The release before a new one is measured with it, and its session stands beside
    those of other days: the last that the machine has figures of or is going to measure, else simply the last.
    """
    tags: dict[str, bool] = {}  # whether it is new
    here, anywhere = _dealt_with(plan.machine), _dealt_with(None)
    for package in ledger.PACKAGES:
        line = ledger.history(package)
        commits = [release.commit[:8] for release in line]
        known = here if here.keys() & {*commits} else anywhere
        last = max((place for place, commit in enumerate(commits) if commit in known), default=len(line))
        for place, release in enumerate(line):
            if place > last or (release in added and commits[place] not in here):
                measured = [one for one in line[:place] if one.tag in tags or here.get(one.commit[:8])]
                for before in (measured or line[:place])[-1:]:
                    tags.setdefault(before.tag, False)
                tags[release.tag] = True
    if not any(tags.values()):
        return None
    return replace(plan, tags=tuple(tags), beside=tuple(tag for tag, new in tags.items() if not new))


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
