"""What pulses cost on a calm machine, and whether they move figures: this code and one of before, in short turns.

A host is calm by the minute, and a whole run takes several. So runs are short, of both codes in turns, and one of
before counts where the machine was calm in the runs of this code on both sides of it.
"""

import math
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli import UserError
from measuring.checkup import CALM_SHARE
from measuring.progress import duration
from records.runs import record_of

from .noise import BEFORE, CALM, NEW, Step, Workplace
from .promises import Row, percent

TIME, MOVED = 1.15, 0.01  # promised of new against before: its time, and how far the median cell's figure moves
LEAST = 3  # calm turns, with fewer of which nothing is said
# A benchmark with every kind of memory and of pulse. By its name: the --only of revisions of before knows no cells
CELLS = r"^conversion\.TorchToNumpy\."


@dataclass(frozen=True)
class Turn:
    """A run of before between two of this code. full: share of the time at full speed, in the worse of the two; time:
    seconds a cell of this code over those of before; moved: cell -> log of this code's figure over that of before."""

    full: float
    time: float
    moved: Mapping[str, float]

    @property
    def calm(self) -> bool:
        return self.full >= CALM_SHARE


def turn_of(sooner: Mapping[str, Any], before: Mapping[str, Any], later: Mapping[str, Any]) -> Turn:
    """A turn of what its three runs gave, see Workplace."""
    runs = sooner, before, later
    shared = set.intersection(*(set(run["cells"]) for run in runs))
    if not shared:
        raise UserError("the two codes have no cell in common")
    first, middle, last = (record_of(run["record"]).seconds / len(run["cells"]) for run in runs)
    both = [run["cells"] for run in (sooner, later)]
    return Turn(
        min(record_of(run["record"]).calm or 0.0 for run in (sooner, later)),
        (first + last) / 2 / middle,
        {
            cell: statistics.mean(math.log(run[cell]) for run in both) - math.log(before["cells"][cell])
            for cell in shared
        },
    )


def measure(place: Workplace, enough: int, seconds: float) -> list[Turn]:
    """Turns until ``enough`` were calm, or no other would end within ``seconds``; says after each how it was."""
    turns: list[Turn] = []
    began = time.monotonic()
    sooner = _run(place, Step(CALM, NEW, 1))
    while sum(turn.calm for turn in turns) < enough:
        started, number = time.monotonic(), len(turns) + 1
        before, later = (_run(place, step) for step in (Step(CALM, BEFORE, number), Step(CALM, NEW, number + 1)))
        turns.append(turn_of(sooner, before, later))
        sooner, took = later, time.monotonic() - started
        left = seconds - (time.monotonic() - began)
        print(
            f"turn {number}: at full speed {percent(turns[-1].full, 0)} of the time, {turns[-1].time:.2f} times as "
            f"long; {sum(turn.calm for turn in turns)} of {enough} calm turns, {duration(max(left, 0.0))} left at most",
            flush=True,
        )
        if left < took:
            break
    return turns


def _run(place: Workplace, step: Step) -> Any:
    """What a run gave, now or before an interruption."""
    if place.result(step) is None:
        place.do(step)
        shutil.rmtree(place.directory / step.name)
    return place.result(step)


def rows(turns: Sequence[Turn]) -> list[Row]:
    """The table's lines. UserError with too few calm turns."""
    calm = [turn for turn in turns if turn.calm]
    if len(calm) < LEAST:
        raise UserError(
            f"the machine was calm in {len(calm)} of {len(turns)} turns, and it takes {LEAST} to tell: try another "
            "hour, or a machine on which nothing else runs"
        )
    shared = set.intersection(*(set(turn.moved) for turn in calm))
    moved = {cell: statistics.mean(turn.moved[cell] for turn in calm) for cell in shared}
    middle = math.expm1(statistics.median(moved.values()))
    nine = statistics.quantiles(map(abs, moved.values()), n=10, method="inclusive")[8] if len(moved) > 1 else middle
    times = sorted(turn.time for turn in calm)
    time_ratio = statistics.median(times)
    table = [
        ("turns in which the machine was calm", "", f"{len(calm)} of {len(turns)}", None),
        (
            "time, new ÷ before: the median turn (least, most)",
            f"at most {TIME}",
            f"{time_ratio:.2f} ({times[0]:.2f}–{times[-1]:.2f})",
            time_ratio <= TIME,
        ),
        (
            f"figures, new ÷ before: the median of {len(moved)} cells",
            f"within {percent(MOVED, 0)}",
            f"{1 + middle:.4f}",
            abs(middle) <= MOVED,
        ),
        ("nine cells in ten within", "", percent(math.expm1(nine)), None),
    ]
    busy = [turn.time for turn in turns if not turn.calm]
    if busy:
        table.append(
            ("time in the turns that were not: the median", "", f"{statistics.median(busy):.2f}", None),
        )
    return [
        Row(label, promise, {CALM: text}, {} if kept is None else {CALM: kept}) for label, promise, text, kept in table
    ]
