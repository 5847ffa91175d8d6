"""Two toolchains measured side by side: their processes in turns, A B B A, so that a machine's drift meets both.

Each side has a copy of the checkout's code, so that an edit meanwhile changes neither, and a Python of its own, which
runs asv there. The copies are ``DIRECTORY/base`` and ``DIRECTORY/new``, those of the second stage ``base-fresh`` and
``new-fresh``; results lie in each as in any checkout, with run records that say which belong together.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cli import UserError
from store import quiet
from store.files import FRESH
from store.records import with_samples
from toolchains import environments
from toolchains.selection import Target as Chosen

from .engine import ENVIRONMENTS, ROOT, Suite, copy_code, new_id
from .journal import Job, Journal, Plan
from .runner import LOST, Runner, Target

SIDES = ("base", "new")
ROUNDS, FRESH_ROUNDS = 4, 8  # processes a side: everywhere, and where it is close
# Quiet pairs that a verdict takes: statistics.MIN_PROCESSES, which who measures may lack the packages for
ENOUGH = 4
MORE = 0.5  # of the time that the rounds took: rounds more of what was not quiet on both sides end then


def prepare(directory: Path, chosen: Sequence[Chosen], suffix: str = "") -> dict[str, Target]:
    """Two sides with a copy of the code each; the environments that releases are installed in are the checkout's."""
    sides = {}
    (ROOT / ENVIRONMENTS).mkdir(parents=True, exist_ok=True)
    for name, (python, commit) in zip(SIDES, chosen):
        suite = Suite(directory / (name + suffix), python)
        copy_code(ROOT, suite.root)
        suite.environments.parent.mkdir()
        suite.environments.symlink_to(ROOT / ENVIRONMENTS, target_is_directory=True)
        sides[name] = Target(suite, commit)
    return sides


def jobs_of(numbers: Sequence[int], cells: Sequence[str], counted: Sequence[str] = ()) -> Iterator[Job]:
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


def collect(runner: Runner, cells: Sequence[str], rounds: int, counted: Sequence[str] = ()) -> None:
    """Take ``rounds`` processes a cell on both sides, in turns, and file a run record on each; count once.

    A noisy process has no counterpart. Cells that have fewer than ENOUGH pairs get more rounds on both
    sides, as long as that takes no more than MORE of the time that the rounds took.
    """
    begun = time.monotonic()
    runner.planned = list(jobs_of(range(rounds if cells else 1), cells, counted))
    with runner.progress, runner.device:
        for job in runner.planned:
            runner.take(job)
        took = time.monotonic() - begun
        for number in range(rounds, 2 * rounds):
            base, new = (quiet_rounds(runner.journal, side) for side in SIDES)
            lacking = unpaired(base, new, min(rounds, ENOUGH))
            if not lacking or time.monotonic() - begun > (1 + MORE) * took:
                break
            print(
                f"{len(lacking)} cells were not quiet on both sides {min(rounds, ENOUGH)} times: another round of them"
            )
            for job in jobs_of([number], [cell for cell in cells if cell in lacking]):
                runner.take(job)
        for side in SIDES:
            runner.file(Job("", 0, side))


def cells_to_measure(runner: Runner) -> tuple[Sequence[str], Sequence[str]]:
    """The cells of a plan: those that are timed, and those of repeated counts. UserError if none is."""
    cells, plan = runner.open(Job("", 0, SIDES[0])).cells, runner.plan
    if not cells.timed and not cells.counted:
        raise UserError(f"--only {plan.only!r} matches no cell of the profile {plan.profile} that can be compared")
    return cells.timed, cells.counted


def measure(
    chosen: Sequence[Chosen],
    plan: Plan,
    again: Callable[[Path, Path], tuple[Sequence[str], int]],
) -> tuple[Path, Path]:
    """Both sides in turns, then fresh processes where it is close; the sides' roots, as the first stage left them.

    again  takes those: the cells to measure again, and how many of them are close; the rest say how much noise there is
    """
    directory = ROOT / ".asv" / "compare" / new_id()
    sides = prepare(directory, chosen)

    def runner_of(sides: Mapping[str, Target], stage: int) -> Runner:
        def about(side: str) -> dict[str, object]:
            return {"interleaved": {"id": directory.name, "stage": stage, "side": side}}

        rounds = ROUNDS if stage == 1 else FRESH_ROUNDS
        journal, keep = Journal(directory / f"stage-{stage}"), environments.keep()
        return Runner(journal, replace(plan, rounds=rounds), keep, sides, about)

    runner = runner_of(sides, 1)
    for side in SIDES:
        try:
            runner.open(Job("", 0, side))
        except LOST as error:
            raise UserError(f"{side}: {error}") from None
    cells, counted = cells_to_measure(runner)
    print(f"{len(cells)} cells x {ROUNDS} processes on both sides, in turns; {len(counted)} counted once")
    collect(runner, cells, ROUNDS, counted)
    base, new = (sides[name].suite.root for name in SIDES)
    more, close = again(base, new)
    if more:
        print(
            f"{close} cells are close: {FRESH_ROUNDS} fresh processes on both sides decide them"
            f" ({len(more) - close} more are measured with them, to know the noise)"
        )
        collect(runner_of(prepare(directory, chosen, FRESH), 2), more, FRESH_ROUNDS)
    print(f"the data is in {os.path.relpath(directory)}: compare.py compares its base and new again")
    return base, new
