"""Rounds: every cell of a run in one process each, and what was not calm again, as long as the budget allows."""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cli import UserError, matcher
from records import calm

from .engine import round_of
from .profiles import Profile, cells, exactly, select
from .progress import Show
from .record import summary
from .state import State

PATIENCE = 0.2  # seconds a planned process: about what one takes, so a busy machine takes about twice the time
WITHIN = 2 / 3  # of what a round may wait goes to its processes, the rest to processes anew for what was not calm
PASSES = 2  # over the cells that were not calm, at the end of each round
START = 4.0  # seconds that asv takes before it measures anything


@dataclass(frozen=True)
class Cells:
    """The cells of a profile, as patterns for asv's --bench by benchmark."""

    patterns: Mapping[str, Sequence[str]]
    timed: Mapping[str, Sequence[str]]
    processes: int  # that time a cell, in one round
    looked_at: int  # cells that are counted and not timed: once is enough
    unavailable: Mapping[str, Sequence[str]]  # why benchmarks are left out -> which

    def left_out(self) -> list[str]:
        """How many benchmarks are left out, of which families, and why: a line a reason."""
        found = []
        for why, names in self.unavailable.items():
            families = dict.fromkeys(name.partition(".")[0] for name in names)
            found.append(f"{len(names)} benchmarks ({', '.join(families)}): {why}")
        return found


def cells_of(
    profile: Profile, benchmarks: Mapping[str, Any], only: str | None, title: str, no_device: str = ""
) -> Cells:
    """The cells of ``profile`` whose name matches ``only``; UserError if there is none.

    Benchmarks that need a device are left out here, once for all, where a reason is given why there is ``no_device``,
    and those that need a program that is not found: asking each of their thousands of cells would cost a process each.
    """
    patterns = select(profile, benchmarks)
    if only:
        matches = matcher(only)
        chosen = {name: list(filter(matches, cells(found, benchmarks[name]))) for name, found in patterns.items()}
        patterns = {name: exactly(found) for name, found in chosen.items() if found}
    if not patterns:
        raise UserError(f"--only {only!r} matches no cell of the profile {title}")
    unavailable: dict[str, list[str]] = {}
    for name in list(patterns):
        why = unable(benchmarks[name], no_device)
        if why:
            unavailable.setdefault(why, []).append(name)
            del patterns[name]
    timed = {name: found for name, found in patterns.items() if benchmarks[name]["type"] == "time"}
    return Cells(
        patterns,
        timed,
        processes=sum(len(cells(found, benchmarks[name])) for name, found in timed.items()),
        looked_at=sum(len(cells(found, benchmarks[name])) for name, found in patterns.items() if name not in timed),
        unavailable=unavailable,
    )


def unable(benchmark: Mapping[str, Any], no_device: str) -> str:
    """Why a benchmark can measure nothing here, by what it declares that it needs; "" where it can."""
    if no_device and benchmark.get("needs_device"):
        return no_device
    missing = ((name, how) for name, how in benchmark.get("needs_programs", {}).items() if not shutil.which(name))
    return next((f"needs {name}: {how}" for name, how in missing), "")


def budget(processes: int) -> float:
    """Seconds that so many processes may take longer, all together, where the machine is not calm."""
    return PATIENCE * processes


def take_rounds(
    record: dict[str, Any],
    state: State,
    cells: Cells,
    rounds: int,
    show: Show,
    commit: str = "",
    append: bool = False,
) -> None:
    """Take the rounds that ``record`` still lacks, each a step; ``show`` is told how far it is, as of ``progress``.

    ``append`` keeps the samples that were there before the first round, too.
    """
    for number in range(record["rounds"], rounds):
        selected = cells.timed if number or append else cells.patterns
        if not selected:
            break  # asv takes no pattern for every benchmark there is
        patterns = [pattern for found in selected.values() for pattern in found]
        take_round(record, state, number, patterns, cells.processes, show, commit, append or number > 0)
    sum_up(record, state, cells)


def sum_up(record: dict[str, Any], state: State, cells: Cells) -> None:
    """Have the record say what the log says of the run, and what was left out of it."""
    record.update(summary(state.lines()))
    for why, names in cells.unavailable.items():
        record["skipped"][why] = list(names)


def take_round(
    record: dict[str, Any],
    state: State,
    number: int,
    patterns: Sequence[str],
    processes: int,
    show: Show,
    commit: str,
    append: bool,
    again: bool = True,
) -> None:
    """Take a round of so many processes, then new ones of cells that were not calm, as long as the budget allows.

    What rounds before this one did not use of their part of the budget is this one's, too.

    again  cells that were not calm, in this or in an earlier round as it looks now, get another process of that round
    """
    state.begin()
    before = len(state.lines())
    patience = record["patience"] + budget(processes)
    started, left = time.monotonic(), patience - record["waited"]
    machine = record["machine"]

    def logged() -> int:
        return sum(1 for _ in state.log.open(encoding="utf-8")) - before

    def advance() -> None:
        show(number * processes + min(logged(), processes))

    def advance_again(earlier: int, seconds: Sequence[float]) -> None:
        show((number + 1) * processes, sum(seconds[logged() - earlier :]))

    round_of(patterns, machine, state, advance, append, commit, (WITHIN * left if again else left, processes))
    state.mark(lambda cell: number)
    left -= sum(line["waited"] for line in calm.timed(state.lines()[before:]))
    for _ in range(PASSES if again else 0):
        lines = calm.timed(state.lines())
        lacking = calm.lacking(calm.attempts(lines, calm.floors(lines)), range(number + 1))
        took = {calm.name_of(line): line["took"] for line in lines}
        retaken = _affordable(lacking, took, left)
        if not retaken:
            break
        begun = time.monotonic()
        told = partial(advance_again, logged(), [took[cell] for cell in retaken])
        round_of(exactly(retaken), machine, state, told, True, commit, (left, len(retaken)))
        state.mark({cell: lost[0] for cell, lost in lacking.items()}.__getitem__)
        left -= time.monotonic() - begun
    record["patience"], record["waited"] = round(patience, 1), round(patience - left, 1)
    record["rounds"] = number + 1
    record["seconds"] = round(record["seconds"] + time.monotonic() - started, 1)
    state.save(record)


def _affordable(cells: Iterable[str], took: Mapping[str, float], seconds: float) -> list[str]:
    """The first of these cells, as many as one process each of takes so many seconds."""
    left, chosen = seconds - START, []
    for cell in cells:
        left -= took[cell]
        if left < 0:
            break
        chosen.append(cell)
    return chosen
