"""Two toolchains measured side by side: their processes in turns, A B B A, so that a machine's drift meets both.

Each side has a copy of the checkout's code, so that an edit meanwhile changes neither, and a Python of its own, in
which this file, run as a program, takes one round at a time. The copies are ``DIRECTORY/base`` and ``DIRECTORY/new``,
those of the second stage ``base-fresh`` and ``new-fresh``; results lie in each as in any checkout, with run records
that say which belong together.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program it is alone

import cli
from cli import UserError, matcher
from store import quiet
from store.files import FRESH
from store.records import with_samples
from toolchains import environments, ledger
from toolchains.selection import Target

# not relative: this is a program, too
from measuring.engine import ENVIRONMENTS, ROOT, check_asv, discover, new_id, register
from measuring.machine import settings
from measuring.processes import apart, last_line, progress
from measuring.profiles import PROFILES, exactly
from measuring.profiles import cells as cells_in
from measuring.record import file_record, new_record, summed_up
from measuring.rounds import cells_of, take_round
from measuring.state import State

CODE = ("asv.conf.json", "benchmarks", "requirements.txt", "scripts")  # what a side needs of the checkout
SIDES = ("base", "new")
ROUNDS, FRESH_ROUNDS = 4, 8  # processes a side: everywhere, and where it is close
# Quiet pairs that a verdict takes: statistics.MIN_PROCESSES, which a side's Python may lack the packages for
ENOUGH = 4
MORE = 0.5  # of the time that the rounds took: rounds more of what was not quiet on both sides end then


@dataclass(frozen=True)
class Side:
    """root: the copy of the checkout it runs in. target: what it measures."""

    name: str
    root: Path
    target: Target

    def ask(self, **job: Any) -> Any:
        """Have this side's Python do a job, see ``serve``; its answer. UserError with its own words if it cannot."""
        job["commit"] = self.target.commit
        command = [str(self.target.python), str(self.root / "scripts" / "measuring" / "interleave.py"), json.dumps(job)]
        done = apart(command, self.root)
        if done.returncode:
            raise UserError(f"{self.name}: {last_line(done.stderr)}")
        *said, answer = done.stdout.splitlines() or ["null"]
        for line in said:
            print(cli.line(f"{self.name}: {line}"), flush=True)
        return json.loads(answer)


def copy_code(source: Path, root: Path) -> None:
    """What a run needs of the checkout or copy ``source``, into ``root``, which is made anew."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for part in CODE:
        if (source / part).is_dir():
            shutil.copytree(source / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source / part, root / part)


def prepare(directory: Path, targets: Sequence[Target], suffix: str = "") -> tuple[Side, Side]:
    """Two sides with a copy of the code each; the environments that releases are installed in are the checkout's."""
    sides = []
    (ROOT / ENVIRONMENTS).mkdir(parents=True, exist_ok=True)
    for name, measured in zip(SIDES, targets):
        root = directory / (name + suffix)
        copy_code(ROOT, root)
        (root / ENVIRONMENTS).parent.mkdir()
        (root / ENVIRONMENTS).symlink_to(ROOT / ENVIRONMENTS, target_is_directory=True)
        sides.append(Side(name, root, measured))
    return sides[0], sides[1]


def cells_to_measure(side: Side, machine: str, profile: str, only: str) -> tuple[list[str], list[str]]:
    """asv's names of the cells of a profile that match ``only``, as the suite on this side has them: those that are
    timed, and those of repeated counts."""
    timed, counted = side.ask(do="discover", machine=machine, profile=profile)
    chosen = list(filter(matcher(only), timed)), list(filter(matcher(only), counted))
    if not any(chosen):
        cells = len(timed) + len(counted)
        raise UserError(f"--only {only!r} matches none of the {cells} cells of the profile {profile}")
    return chosen


def order(number: int) -> tuple[int, int]:
    """The sides as they take a round: base new, new base, base new, ..."""
    return (0, 1) if number % 2 == 0 else (1, 0)


def unpaired(base: Mapping[str, Sequence[int]], new: Mapping[str, Sequence[int]], enough: int) -> set[str]:
    """The cells that were quiet on both sides in fewer than ``enough`` rounds; base, new: cell -> its quiet rounds.

    Those that never were quiet on one of the sides are not waited for any longer.
    """
    return {cell for cell in base if base[cell] and new.get(cell) and len({*base[cell]} & {*new[cell]}) < enough}


def collect(
    sides: tuple[Side, Side],
    cells: Sequence[str],
    rounds: int,
    about: Mapping[str, Any],
    show: Callable[[int], None],
    counted: Sequence[str] = (),
) -> None:
    """Take ``rounds`` processes a cell on both sides, in turns, and file a run record on each; count once.

    A noisy process has no counterpart. Cells that have fewer than ENOUGH pairs get more rounds on both
    sides, as long as that takes no more than MORE of the time that the rounds took.

    about  what both records say: id (of this collection), stage, machine, profile, only, command
    show   takes the number of processes done
    """

    def take(number: int, which: int, chosen: Sequence[str]) -> None:
        patterns = exactly([*chosen, *(() if number else counted)])
        job = {"machine": about["machine"], "patterns": patterns, "number": number, "cells": len(chosen)}
        sides[which].ask(do="round", **job)

    for side in sides:
        side.ask(do="start", rounds=rounds, **about)
    begun = time.monotonic()
    turns = [(number, which) for number in range(rounds if cells else 1) for which in order(number)]
    for done, (number, which) in enumerate(turns, start=1):
        take(number, which, cells)
        show(done * len(cells))
    took = time.monotonic() - begun
    for number in range(rounds, 2 * rounds):
        base, new = (side.ask(do="quiet", machine=about["machine"]) for side in sides)
        lacking = unpaired(base, new, min(rounds, ENOUGH))
        if not lacking or time.monotonic() - begun > (1 + MORE) * took:
            break
        print(f"{len(lacking)} cells were not quiet on both sides {min(rounds, ENOUGH)} times: another round of them")
        for which in order(number):
            take(number, which, [cell for cell in cells if cell in lacking])
    for side in sides:
        side.ask(do="finish", side=side.name, **about)


def measure(
    targets: Sequence[Target],
    machine: str,
    profile: str,
    only: str,
    command: str,
    again: Callable[[Side, Side], tuple[Sequence[str], int]],
) -> tuple[Side, Side]:
    """Both sides in turns, then fresh processes where it is close; the sides as the first stage left them.

    command  that asked for it, for the run records
    again    takes those sides: the cells to measure again, and how many of them are close; the rest tell the noise
    """
    directory = ROOT / ".asv" / "compare" / new_id()
    about = {"id": directory.name, "machine": machine, "profile": profile, "only": only or None, "command": command}
    sides = prepare(directory, targets)
    cells, counted = cells_to_measure(sides[0], machine, profile, only)
    print(f"{len(cells)} cells x {ROUNDS} processes on both sides, in turns; {len(counted)} counted once")
    with progress(len(cells) * ROUNDS * 2, "measuring") as show:
        collect(sides, cells, ROUNDS, {**about, "stage": 1}, show, counted)
    more, close = again(*sides)
    if more:
        print(
            f"{close} cells are close: {FRESH_ROUNDS} fresh processes on both sides decide them"
            f" ({len(more) - close} more are measured with them, to know the noise)"
        )
        fresh = prepare(directory, targets, FRESH)
        with progress(len(more) * FRESH_ROUNDS * 2, "measuring again") as show:
            collect(fresh, more, FRESH_ROUNDS, {**about, "stage": 2}, show)
    print(f"the data is in {directory.relative_to(ROOT)}: compare.py compares its base and new again")
    return sides


# --- what a side's own Python does -----------------------------------------------------------------------------------


def serve(job: dict[str, Any]) -> Any:
    """Do one job in this process's checkout and with its torch; only the standard library and asv are needed."""
    check_asv()
    commit, python = job["commit"], Path(sys.executable)
    try:
        toolchain = environments.toolchain()
        wanted = ledger.find(commit) if commit else None
        if wanted and (wanted.release, wanted.numpy) != (toolchain.release, toolchain.numpy):
            ready = environments.prepare(ROOT / ENVIRONMENTS, wanted, environments.keep())
            toolchain, python = environments.installed_in(ready, wanted), environments.python(ready)
    except (ModuleNotFoundError, environments.InstallError) as missing:
        raise UserError(str(missing)) from None
    machine = job["machine"]
    register(machine)
    state = State(ROOT / ".asv" / "runs" / machine)
    if job["do"] == "discover":
        benchmarks = discover(machine, commit)
        no_device = settings(str(python)).no_device
        here = cells_of(PROFILES[job["profile"]], benchmarks, None, job["profile"], no_device)
        for said in here.left_out():
            print(f"skipped: {said}")
        repeated = {name: patterns for name, patterns in here.patterns.items() if benchmarks[name].get("repeated")}
        return [
            [cell for name, patterns in each.items() for cell in cells_in(patterns, benchmarks[name])]
            for each in (here.timed, repeated)
        ]
    if job["do"] == "start":
        state.start(new_record(job["profile"], job["only"], machine, toolchain, str(python), job["rounds"]))
        return None
    record = state.load()
    if record is None:
        raise UserError("what was collected so far is gone")
    if job["do"] == "round":
        number = job["number"]
        # nothing is taken again: the other side's process that ran beside it would be long gone. Who asks says how far
        # both sides are
        take_round(record, state, number, job["patterns"], job["cells"], lambda *done: None, commit, again=False)
        return None
    if job["do"] == "quiet":
        by_cell = quiet.Run(with_samples(state.lines())).rounds()
        return {cell: [number for number, was in rounds.items() if was] for cell, rounds in by_cell.items()}
    about = {name: job[name] for name in ("id", "stage", "side")}
    record = replace(summed_up(record, state.lines()), command=job["command"], interleaved=about)
    return file_record(record, commit or toolchain.commit, state).name


if __name__ == "__main__":
    try:
        print(json.dumps(serve(json.loads(sys.argv[1]))))
    except UserError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
