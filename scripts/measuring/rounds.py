"""Rounds: every cell of a run in one process each, and what was noisy again, as long as the budget allows."""

import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

from cli import UserError, matcher
from store import quiet
from store.records import Unfinished, name_of, with_samples

from .engine import round_of
from .machine import awake
from .processes import Show, after
from .profiles import PROFILES, Profile, cells, exactly, select
from .record import summed_up
from .state import State

PATIENCE = 0.2  # seconds a planned process: about what one takes, so a busy machine takes about twice the time
WITHIN = 2 / 3  # of what a round may wait goes to its processes, the rest to processes anew for what was noisy
PASSES = 2  # over the cells that were noisy, at the end of the last round; of those before it, which it judges, one
START = 4.0  # seconds that asv takes before it measures anything


@dataclass(frozen=True)
class Cells:
    """The cells of a profile, as patterns for asv's --bench by benchmark."""

    patterns: Mapping[str, Sequence[str]]
    timed: Mapping[str, Sequence[str]]
    again: Mapping[str, Sequence[str]]  # of what is timed: in rounds after the first
    processes: int  # that time a cell, in the first round
    repeated: int  # in each round after it
    looked_at: int  # cells that are counted and not timed: once is enough
    unavailable: Mapping[str, Sequence[str]]  # why benchmarks are left out -> which
    on_device: bool = False  # an accelerator takes part in some
    asleep: Sequence[str] = ()  # benchmarks that time how it wakes
    counted: Sequence[str] = ()  # patterns of what no noise touches

    def total(self, rounds: int) -> int:
        """Processes that time a cell, in so many rounds."""
        return self.processes + (rounds - 1) * self.repeated

    def left_out(self) -> list[str]:
        """How many benchmarks are left out, of which families, and why: a line a reason."""
        lines = []
        for why, names in self.unavailable.items():
            families = dict.fromkeys(name.partition(".")[0] for name in names)
            lines.append(f"{len(names)} benchmarks ({', '.join(families)}): {why}")
        return lines


def cells_of(
    profile: Profile, benchmarks: Mapping[str, Any], only: str | None, title: str, no_device: str = ""
) -> Cells:
    """The cells of ``profile`` whose name matches ``only``; UserError if there is none, or none is left.

    Benchmarks that need a device are left out here, once for all, where a reason is given why there is ``no_device``,
    and those that need a program that is not found: asking each of their thousands of cells would cost a process each.
    """
    patterns, again = (_matching(select(profile, benchmarks, later), benchmarks, only) for later in (False, True))
    if not patterns:
        raise UserError(f"--only {only!r} matches no cell of the profile {title}")
    unavailable: dict[str, list[str]] = {}
    for name in list(patterns):
        why = unable(benchmarks[name], no_device)
        if why:
            unavailable.setdefault(why, []).append(name)
            del patterns[name]
    if not patterns:
        raise UserError(f"nothing that was asked for can be measured here: {'; '.join(unavailable)}")
    timed = {name: expressions for name, expressions in patterns.items() if benchmarks[name]["type"] == "time"}
    again = {name: expressions for name, expressions in again.items() if name in timed}
    every, processes, repeated = (
        sum(len(cells(expressions, benchmarks[name])) for name, expressions in each.items())
        for each in (patterns, timed, again)
    )
    return Cells(
        patterns,
        timed,
        again,
        processes,
        repeated,
        looked_at=every - processes,
        unavailable=unavailable,
        on_device=any(benchmarks[name].get("needs_device") for name in patterns),
        asleep=[name for name in patterns if benchmarks[name].get("asleep")],
        counted=[pattern for name, each in patterns.items() if benchmarks[name].get("repeated") for pattern in each],
    )


def _matching(patterns: dict[str, list[str]], benchmarks: Mapping[str, Any], only: str | None) -> dict[str, list[str]]:
    """The patterns of the cells whose name matches ``only``, where that is given."""
    if not only:
        return patterns
    matches = matcher(only)
    chosen = {
        name: list(filter(matches, cells(expressions, benchmarks[name]))) for name, expressions in patterns.items()
    }
    return {name: exactly(names) for name, names in chosen.items() if names}


def unable(benchmark: Mapping[str, Any], no_device: str) -> str:
    """Why a benchmark can measure nothing here, by what it declares that it needs; "" where it can."""
    if no_device and benchmark.get("needs_device"):
        return no_device
    missing = ((name, how) for name, how in benchmark.get("needs_programs", {}).items() if not shutil.which(name))
    return next((f"needs {name}: {how}" for name, how in missing), "")


def budget(processes: int, profile: str = "") -> float:
    """Seconds that so many processes may take longer, all together, where the machine is noisy."""
    return PATIENCE * processes * (PROFILES[profile].patience if profile in PROFILES else 1.0)


def take_rounds(
    record: Unfinished,
    state: State,
    cells: Cells,
    rounds: int,
    show: Show,
    commit: str = "",
    beside: bool = False,
    meanwhile: AbstractContextManager[None] | None = None,
) -> Unfinished:
    """Take the rounds that ``record`` still lacks, each a step; ``show`` is told how far it is, as of ``progress``.
    The record then.

    beside     the processes will stand beside those of an earlier session, which counted: nothing is counted
    meanwhile  what is done while that is counted which no noise touches, before anything is timed
    """
    counting = (cells.counted, meanwhile or nullcontext())
    for number in range(record.rounds, rounds):
        selected = cells.again if number else cells.timed if beside else cells.patterns
        if not selected:
            break  # asv takes no pattern for every benchmark there is
        patterns = [pattern for expressions in selected.values() for pattern in expressions]
        processes = cells.repeated if number else cells.processes
        show_round = after(show, cells.processes - processes)  # the first round has more processes than the others
        record = take_round(record, state, number, patterns, processes, show_round, commit, counting=counting)
    return sum_up(record, state, cells)


def sum_up(record: Unfinished, state: State, cells: Cells) -> Unfinished:
    """The record with what the log says of the run, and what was left out of it."""
    record = summed_up(record, state.lines())
    left_out = {why: tuple(names) for why, names in cells.unavailable.items()}
    return replace(record, skipped={**record.skipped, **left_out})


def take_round(
    record: Unfinished,
    state: State,
    number: int,
    patterns: Sequence[str],
    processes: int,
    show: Show,
    commit: str,
    again: bool = True,
    counting: tuple[Sequence[str], AbstractContextManager[None]] = ((), nullcontext()),
) -> Unfinished:
    """Take a round of so many processes, then new ones of noisy cells, as long as the budget allows; the
    record then.

    What rounds before this one did not use of their part of the budget is this one's, too.

    again     noisy cells, in this or an earlier round as it looks now, get another process of that round
    counting  which of the patterns no noise touches: they come first, and what is done meanwhile
    """
    state.begin()
    before = len(state.lines())
    patience = record.patience + budget(processes, record.profile)
    started, left = time.monotonic(), patience - record.waited

    def logged() -> int:
        return state.log.read_bytes().count(b"\n") - before

    def advance() -> None:
        show(number * processes + min(logged(), processes))

    def advance_again(earlier: int, seconds: Sequence[float]) -> None:
        show((number + 1) * processes, sum(seconds[logged() - earlier :]))

    asv = partial(round_of, machine=record.machine, state=state, commit=commit)
    allowance = (WITHIN * left if again else left, processes)
    take = partial(asv, advance=advance, patience=allowance)
    counted, meanwhile = counting
    untouched = [pattern for pattern in patterns if pattern in counted]
    if untouched:
        print("counting what no noise touches: some minutes in which nothing is shown", flush=True)
        with meanwhile:
            take(untouched)
    others = [pattern for pattern in patterns if pattern not in counted]
    record = _round(record, others, take) if others else record
    state.mark(lambda cell: number)
    left -= sum(line["waited"] for line in with_samples(state.lines()[before:]))
    passes = PASSES if number + 1 >= record.planned else 1
    for _ in range(passes if again else 0):
        run = quiet.Run(with_samples(state.lines()))
        lacking = run.lacking(range(number + 1))
        took = {name_of(line): line["took"] for line in run.lines}
        retaken = _affordable(lacking, took, left)
        if not retaken:
            break
        begun = time.monotonic()
        advance_pass = partial(advance_again, logged(), [took[cell] for cell in retaken])
        taking = partial(asv, advance=advance_pass, patience=(left, len(retaken)))
        record = _round(record, exactly(retaken), taking)
        state.mark({cell: lost[0] for cell, lost in lacking.items()}.__getitem__)
        left -= time.monotonic() - begun
    record = replace(
        record,
        patience=round(patience, 1),
        waited=round(patience - left, 1),
        rounds=number + 1,
        seconds=round(record.seconds + time.monotonic() - started, 1),
    )
    state.save(record)
    return record


def _round(record: Unfinished, patterns: Sequence[str], asv: Callable[..., None]) -> Unfinished:
    """A run of asv; where a device takes part, on the record's cores and with the device kept awake, but for the
    benchmarks that time how it wakes. The record says whether it was.
    """
    if not record.on_device:
        asv(patterns)
        return record
    names = tuple(f"^{re.escape(name)}" for name in record.asleep)
    alone = [pattern for pattern in patterns if pattern.startswith(names)]
    others = [pattern for pattern in patterns if pattern not in alone]
    if alone:
        asv(alone, cores=record.cores)
    if others:
        with awake() as why_not:
            record = replace(record, awake=not why_not, not_awake=why_not)
            asv(others, cores=record.cores)
    return record


def _affordable(cells: Collection[str], took: Mapping[str, float], seconds: float) -> list[str]:
    """The first of these cells, as many as one process each of takes so many seconds."""
    spent = accumulate(took[cell] for cell in cells)
    return [cell for cell, so_far in zip(cells, spent) if so_far <= seconds - START]
