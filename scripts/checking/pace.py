"""By how much processes of a cell differ, as their samples were taken and at full speed (scripts/records/calm.py)."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from analysis.statistics import Floats
from records import calm

LEAST = 3  # calm processes of a cell
CALL, CACHE = "a call", "moves bytes in the caches"


@dataclass(frozen=True)
class Spread:
    """Of the cells of one kind: the standard deviation of a cell's calm processes, relative, in the median cell.

    slope: how many percent longer a process's samples are where its pulses are one percent longer, as they were taken
    """

    kind: str
    cells: int
    as_taken: float
    at_full_speed: float
    slope: float


def spreads(runs: Iterable[Sequence[calm.Line]]) -> Iterator[Spread]:
    """What processes differ by that go by the processor's clock; ``runs``: the lines of each."""
    by_kind: dict[str, list[Floats]] = {CALL: [], CACHE: []}
    for run in runs:
        for kind, logs in _cells(run):
            by_kind[kind].append(logs)
    for kind, cells in by_kind.items():
        if cells:
            taken, full = (statistics.median(float(np.std(cell[:, k], ddof=1)) for cell in cells) for k in (0, 1))
            apart = np.concatenate([cell - cell.mean(axis=0) for cell in cells])
            paces = apart[:, 0] - apart[:, 1]
            slope = float(paces @ apart[:, 0] / (paces @ paces)) if paces.any() else math.nan
            yield Spread(kind, len(cells), taken, full, slope)


@dataclass(frozen=True)
class Behind:
    """Of the looks of processes that move so many bytes in memory, by what the processor's pulse was above its floor.

    behind, before: ns in the median, right behind a sample and after a wait.
    """

    nbytes: int
    looks: int
    behind: float
    before: float


def colds(runs: Iterable[Sequence[calm.Line]]) -> Iterator[Behind]:
    """What a sample that moves bytes in memory does to the pulse right behind it; ``runs``: the lines of each."""
    above: dict[int, tuple[list[float], list[float]]] = {}
    for run in runs:
        timed = calm.timed(run)
        floors = calm.floors(timed)
        for line in timed:
            sizes = [int(value) for value in line["params"] if value.isdecimal()]
            if calm.MEMORY in line["pulses"] and sizes:
                cold, waited = calm.behind(line), above.setdefault(max(sizes), ([], []))
                for place, pulse in enumerate(line["pulses"][calm.PROCESSOR]):
                    waited[place not in cold].append(pulse - floors[calm.PROCESSOR])
    for nbytes, (behind, before) in sorted(above.items()):
        if behind and before:
            yield Behind(nbytes, len(behind), statistics.median(behind), statistics.median(before))


def _cells(run: Sequence[calm.Line]) -> Iterator[tuple[str, Floats]]:
    """Of each cell with so many calm processes its kind, and (processes, 2) log seconds: as taken, at full speed."""
    timed = [line for line in calm.timed(run) if calm.has_pace(line)]
    floors = calm.floors(timed)
    by_cell: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for line in timed:
        process = calm.judge(line, floors)
        if process.calm:
            taken = calm.judge(line, floors, at_full_speed=False)
            kind = CACHE if "cache" in line["pulses"] else CALL
            logs = math.log(taken.seconds), math.log(process.seconds)
            by_cell.setdefault((kind, calm.name_of(line)), []).append(logs)
    for (kind, _), each in by_cell.items():
        if len(each) >= LEAST:
            yield kind, np.array(each)
