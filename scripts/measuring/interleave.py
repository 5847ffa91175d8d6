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
from toolchains.selection import Target

from .engine import ENVIRONMENTS, ROOT, Suite, copy_code, new_id
from .journal import Job, Journal, Plan
from .runner import LOST, Runner

SIDES = ("base", "new")
ROUNDS, FRESH_ROUNDS = 4, 8  # processes a side: everywhere, and where it is close
# Quiet pairs that a verdict takes: statistics.MIN_PROCESSES, which who measures may lack the packages for
ENOUGH = 4
MORE = 0.5  # of the time that the rounds took: rounds more of what was not quiet on both sides end then


def prepare(directory: Path, targets: Sequence[Target], suffix: str = "") -> dict[str, Suite]:
    """Two sides with a copy of the code each; the environments that releases are installed in are the checkout's."""
    sides = {}
    (ROOT / ENVIRONMENTS).mkdir(parents=True, exist_ok=True)
    for name, (python, commit) in zip(SIDES, targets):
        sides[name] = suite = Suite(directory / (name + suffix), python, commit)
        copy_code(ROOT, suite.root)
        suite.environments.parent.mkdir()
        suite.environments.symlink_to(ROOT / ENVIRONMENTS, target_is_directory=True)
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
            for job in jobs_of([number], [cell for cell in cells if cell in lacking]):
                runner.take(job)
        for side in SIDES:
            runner.file(Job("", 0, side))


def measure(
    targets: Sequence[Target],
    plan: Plan,
    again: Callable[[Path, Path], tuple[Sequence[str], int]],
) -> tuple[Path, Path]:
    """Both sides in turns, then fresh processes where it is close; the sides' roots, as the first stage left them.

    again  takes those: the cells to measure again, and how many of them are close; the rest say how much noise there is
    """
    directory = ROOT / ".asv" / "compare" / new_id()

    def runner_of(stage: int, rounds: int, suffix: str = "") -> Runner:
        def about(side: str) -> dict[str, object]:
            return {"interleaved": {"id": directory.name, "stage": stage, "side": side}}

        sides, journal = prepare(directory, targets, suffix), Journal(directory / f"stage-{stage}")
        return Runner(journal, replace(plan, rounds=rounds), environments.keep(), sides, about)

    runner = runner_of(1, ROUNDS)
    for side in SIDES:
        try:
            cells = runner.open(Job("", 0, side)).cells
        except LOST as error:
            raise UserError(f"{side}: {error}") from None
    if not cells.timed and not cells.counted:
        raise UserError(f"--only {plan.only!r} matches no cell of the profile {plan.profile} that can be compared")
    print(f"{len(cells.timed)} cells x {ROUNDS} processes on both sides, in turns; {len(cells.counted)} counted once")
    collect(runner, cells.timed, ROUNDS, cells.counted)
    base, new = (runner.sides[name].root for name in SIDES)
    more, close = again(base, new)
    if more:
        print(
            f"{close} cells are close: {FRESH_ROUNDS} fresh processes on both sides decide them"
            f" ({len(more) - close} more are measured with them, to know the noise)"
        )
        collect(runner_of(2, FRESH_ROUNDS, FRESH), more, FRESH_ROUNDS)
    print(f"the data is in {os.path.relpath(directory)}: compare.py compares its base and new again")
    return base, new
