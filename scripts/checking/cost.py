"""What pulses cost, and whether they move figures: this code and a copy of it without them, in turns.

No machine at hand is calm for a whole run. So what a process waited, and the samples that it took once more, are taken
out of its time: it logs both. And of a cell's processes the least disturbed quarter stands for it.
"""

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli import UserError
from measuring.engine import ROOT
from measuring.interleave import copy_code
from measuring.processes import duration
from records import calm

from .noise import CALM, MACHINE, NEW, Step, Workplace, append
from .promises import MOVED, SIZES, TIME, Row, percent

PLAIN = "plain"  # the code without pulses
SECONDS = {NEW: 150.0, PLAIN: 130.0}  # of a run, on a calm 2-core machine
QUARTER, TENTH = 0.25, 0.1  # of the processes of a cell, and of the samples of a process: a figure's own quantile

WITHOUT = """

# --- appended by scripts/check_cost.py to a copy: no pulses, and no call that is there because of one ----------------
Timing._kinds = lambda self: ((), False)
"""


class Turns(Workplace):
    """Both codes, and of each run its processes."""

    def start(self, plan: Mapping[str, Any]) -> None:
        super().start({**plan, "before": ""})
        copy_code(ROOT, self.directory / "code" / PLAIN)
        append(self.directory / "code" / PLAIN, "timing.py", WITHOUT)

    def _run(self, step: Step, plan: Mapping[str, Any]) -> dict[str, Any]:
        """As of any run, and processes: see ``processes``."""
        result = super()._run(step, plan)
        (log,) = (self.directory / step.name / "reports" / "results" / MACHINE).glob(f"*{calm.SUFFIX}")
        return {**result, "processes": processes(log)}


def processes(log: Path) -> list[tuple[str, float, float]]:
    """Of every process its cell, the seconds that it took but for what noise cost it, and its figure."""
    return [
        (calm.name_of(line), line["took"] - line["waited"], _quantile(line["seconds"], TENTH))
        for line in calm.timed(calm.read(log))
    ]


def steps(runs: int) -> list[Step]:
    """With pulses and without by turns."""
    return [Step(CALM, what, number) for number in range(1, runs + 1) for what in (NEW, PLAIN)]


def measure(place: Turns, planned: Sequence[Step]) -> None:
    """Do the steps that are not done, with the time left after each."""
    left = [step for step in planned if place.result(step) is None]
    about = duration(sum(SECONDS[step.what] for step in left))
    print(f"{len(left)} of {len(planned)} runs to do: about {about} on a calm 2-core machine", flush=True)
    began, expected = time.monotonic(), 0.0
    for number, step in enumerate(left, 1):
        place.do(step)
        expected += SECONDS[step.what]
        rest = sum(SECONDS[later.what] for later in left[number:]) * (time.monotonic() - began) / expected
        print(f"{number}/{len(left)} {step.name}; about {duration(rest)} left", flush=True)


def _quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return statistics.quantiles(ordered, n=round(1 / share), method="inclusive")[0] if len(ordered) > 1 else ordered[0]


@dataclass(frozen=True)
class Cost:
    """Of one cell what its least disturbed processes have, with pulses over without: time, and log of the figure.

    with_pulses, without: seconds of such a process, waits and retakes aside
    """

    nbytes: int
    with_pulses: float
    without: float
    moved: float


def costs(new: Sequence[Mapping[str, Any]], plain: Sequence[Mapping[str, Any]], share: float = QUARTER) -> list[Cost]:
    """Every cell that runs of both codes have; ``share``: the quantile of its processes that stands for it."""
    sides = [_by_cell(runs) for runs in (new, plain)]
    sizes = {cell: n for run in new for cell, n in run["nbytes"].items()}
    shared = [cell for cell in sides[0] if cell in sides[1] and cell in sizes]
    if not shared:
        raise UserError("the runs with pulses and those without have no cell in common")
    every = []
    for cell in shared:
        (took, figure), (plain_took, plain_figure) = (
            [_quantile(values, share) for values in zip(*side[cell])] for side in sides
        )
        every.append(Cost(sizes[cell], took, plain_took, math.log(figure / plain_figure)))
    return every


def _by_cell(runs: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    by_cell: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        for cell, took, figure in run["processes"]:
            by_cell.setdefault(cell, []).append((took, figure))
    return by_cell


def time_of(costs_of: Iterable[Cost]) -> float:
    """Of all these cells together, with pulses over without."""
    every = list(costs_of)
    return sum(cost.with_pulses for cost in every) / sum(cost.without for cost in every)


def moved(costs_of: Iterable[Cost]) -> float:
    """How far the median cell's figure moves, 0.01 is 1 % longer with pulses."""
    return math.expm1(statistics.median(cost.moved for cost in costs_of))


def rows(place: Turns, planned: Sequence[Step]) -> list[Row]:
    """The table's lines, with pulses against without; beside them the code without pulses against itself."""
    new, plain = ([place.result(step) for step in planned if step.what == what] for what in (NEW, PLAIN))
    every, against_itself = costs(new, plain), costs(plain[::2], plain[1::2])
    classes = {name: [cost for cost in every if low <= cost.nbytes <= high] for name, (low, high) in SIZES.items()}
    nine = statistics.quantiles([math.expm1(abs(cost.moved)) for cost in every], n=10, method="inclusive")[8]
    lines = [
        (
            "time of a process, waits and retakes aside",
            f"at most {TIME}",
            f"{time_of(every):.3f}",
            time_of(every) <= TIME,
        ),
        *((f"{name}: {len(of)} cells", "", f"{time_of(of):.3f}", None) for name, of in classes.items() if of),
        ("by the median of a cell's processes", "", f"{time_of(costs(new, plain, 0.5)):.3f}", None),
        ("without pulses against itself", "", f"{time_of(against_itself):.3f}", None),
        (
            f"figure of the median of {len(every)} cells",
            f"moves by at most {percent(MOVED, 0)}",
            f"{100 * moved(every):+.2f} %",
            abs(moved(every)) <= MOVED,
        ),
        *(
            (f"{name}: median of {len(of)} cells", "", f"{100 * moved(of):+.2f} %", None)
            for name, of in classes.items()
            if of
        ),
        ("nine cells in ten move by at most", "", percent(nine), None),
        ("without pulses against itself: the median cell", "", f"{100 * moved(against_itself):+.2f} %", None),
    ]
    return [
        Row(label, promise, {CALM: text}, {} if kept is None else {CALM: kept}) for label, promise, text, kept in lines
    ]
