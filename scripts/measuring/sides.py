"""Measure two sides in turns, A B B A, so that a machine's drift affects both.

Each side has a copy of the checkout's code, so that an edit meanwhile changes neither side. Each
side also has its own Python, which runs asv there. The copies are ``.asv/compare/ID/base`` and
``new``, in the second stage ``base-fresh`` and ``new-fresh``. Each holds results as any checkout
does. Run records say which results belong together.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cli import UserError
from msgspec import structs
from store import files, quiet
from store.schema import with_samples
from toolchains.selection import Target

from . import engine
from .engine import CHECKOUT, Suite, announce
from .journal import Job, Journal, Plan
from .profiles import Names
from .runner import TOOLCHAIN_ERRORS, Runner

SIDES = ("base", "new")
ROUNDS, FRESH_ROUNDS = 4, 8  # processes per side: for all cells, and for close ones
# Quiet pairs that a verdict needs: statistics.MIN_PROCESSES. The measuring Python may lack packages
# to import it
MIN_QUIET_PAIRS = 4
# Of the rounds' time, in which extra rounds may begin for cells not quiet on both sides
EXTRA_TIME_SHARE = 0.5


def measure_sides(
    targets: Sequence[Target],
    plan: Plan,
    choose_close: Callable[[Path, Path], tuple[Names, int]],
    suite: Suite = CHECKOUT,
) -> tuple[Path, Path]:
    """Measure both sides in turns, then close cells in fresh processes. Return the sides' roots of
    the first stage.

    choose_close  takes these roots; returns the cells to measure again and the number of close ones
                  (the others show noise)
    suite         the checkout whose code is measured
    """
    directory = suite.root / ".asv" / "compare" / engine.new_id()
    engine.register(plan.machine)
    runner = stage_runner(1, directory, targets, plan, suite)
    for side in SIDES:
        try:
            cells = runner.open(Job("", side=side)).cells
        except TOOLCHAIN_ERRORS as error:
            raise UserError(f"{side}: {error}") from None
    if not cells.timed and not cells.counted:
        raise UserError(
            f"--only {plan.only!r} matches no cell of the profile {plan.profile} "
            "that can be compared"
        )
    announce(
        f"{len(cells.timed)} cells x {plan.rounds} processes on both sides, in turns; "
        f"{len(cells.counted)} counted once"
    )
    collect(runner, cells.timed, cells.counted)
    base = runner.sides["base"].root
    new = runner.sides["new"].root
    fresh_cells, close = choose_close(base, new)
    if fresh_cells:
        announce(
            f"close cells, which {FRESH_ROUNDS} fresh processes on both sides decide: {close} "
            f"({len(fresh_cells) - close} more are measured with them, to know the noise)"
        )
        plan = structs.replace(plan, rounds=FRESH_ROUNDS)
        collect(stage_runner(2, directory, targets, plan, suite), fresh_cells)
    announce(
        f"the data is in {os.path.relpath(directory)}: compare.py compares its base and new again"
    )
    return base, new


def stage_runner(
    stage: int, directory: Path, targets: Sequence[Target], plan: Plan, suite: Suite = CHECKOUT
) -> Runner:
    """Return the runner of a stage, with a copy of the code for each side. Releases are installed
    in the checkout's environments."""
    sides = {}
    suffix = files.FRESH_SUFFIX if stage == 2 else ""
    for side, (python, commit) in zip(SIDES, targets):
        root = directory / (side + suffix)
        engine.copy_code(suite.root, root)
        engine.link_environments(root, suite.environments)
        sides[side] = replace(suite, root=root, python=python, commit=commit)
    collection: dict[str, str | int] = {"id": directory.name, "stage": stage}
    return Runner(Journal(directory / f"stage-{stage}"), plan, suite, sides, collection)


def collect(runner: Runner, cells: Names, counted: Names = ()) -> None:
    """Take the plan's rounds of these cells on both sides, in turns, and ``counted`` once. File a
    record on each side.

    A noisy process is not repeated, because its repetition would have no counterpart. Cells with
    fewer than MIN_QUIET_PAIRS quiet pairs get more rounds on both sides. No extra round begins
    after EXTRA_TIME_SHARE of the time that the plan's rounds took.
    """
    rounds = runner.plan.rounds if cells else 1
    runner.progress.total = len(SIDES) * len(cells) * rounds
    with runner.device:
        start = runner.clock.monotonic()
        for number in range(rounds):
            take_sides(runner, number, cells if number else [*cells, *counted])
        end = start + (1 + EXTRA_TIME_SHARE) * (runner.clock.monotonic() - start)
        pairs = min(rounds, MIN_QUIET_PAIRS)
        for number in range(rounds, 2 * rounds):
            lacking = lacking_pairs(runner.journal, cells, pairs)
            if not lacking or runner.clock.monotonic() > end:
                break
            announce(
                f"cells that were not quiet on both sides {pairs} times: {len(lacking)}; "
                "another round of them"
            )
            runner.progress.total += len(SIDES) * len(lacking)
            take_sides(runner, number, lacking)
        for side in SIDES:
            runner.file(Job("", side=side))


def take_sides(runner: Runner, number: int, cells: Names) -> None:
    """Take a round of these cells on both sides, in turns: base new, new base, base new, ..."""
    for side in SIDES if number % 2 == 0 else SIDES[::-1]:
        runner.take(Job("", number, side, tuple(cells)))


def lacking_pairs(journal: Journal, cells: Names, pairs: int) -> list[str]:
    """Return the cells that were quiet on both sides in fewer than this number of rounds. Cells
    that never were quiet on one of the sides are left out."""
    base = quiet_rounds(journal, "base")
    new = quiet_rounds(journal, "new")
    hopeful = [cell for cell in cells if base.get(cell) and new.get(cell)]
    return [cell for cell in hopeful if len(base[cell] & new[cell]) < pairs]


def quiet_rounds(journal: Journal, side: str) -> dict[str, set[int]]:
    """Cell -> its quiet rounds on a side."""
    run = quiet.Run(with_samples(journal.lines(Job("", side=side))))
    return {
        cell: {number for number, is_quiet in rounds.items() if is_quiet}
        for cell, rounds in run.rounds().items()
    }
