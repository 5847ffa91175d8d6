"""Which of two routes is faster, decided by the statistics of a comparison on the processes of one run.

A cell is decided to be slower than another where the hypothesis that it takes at most MARGIN more is rejected at the
comparison's promise (see verdicts.Settings and statistics.p_different). Anything else is a tie: a difference below
the margin changes nobody's choice, and one that the processes do not show would be another in the next run. Variances
of processes are moderated within the families of alike noise. What the cells of a family share in a round, such as the
clock of the machine then, cancels in the rounds of which both have a process, and is added as a variance of its own for
the others, or where the families differ.

With fewer than MIN_PROCESSES processes a cell in a family large enough to moderate has the variance and the degrees of
freedom of that; elsewhere one cannot tell noise from nothing, so a process is taken to vary by FEW_SD at least: what
processes did on a busy machine. Then 2.8 times is decided with one process, 2.1 with two, 1.9 with three.

A cell that was never measured while the machine was calm decides nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from . import statistics
from .comparison import families
from .declared import Benchmarks
from .statistics import MIN_PROCESSES, Bools, Levels
from .verdicts import Settings

MARGIN = 0.05  # relative: a route that takes so much longer is as good
PROMISE = Settings().promise  # at most this share of pairs that differ by MARGIN is decided
FEW_SD = 0.25  # of log seconds, between processes


@dataclass(frozen=True)
class Evidence:
    """What the processes of one cell say, as statistics.Levels has it: log seconds. family: whose noise it has."""

    mean: float
    n: float
    variance: float
    df: float
    shared: float
    shared_df: float
    present: Sequence[bool]
    family: str = ""
    calm: bool = True


class Measured(Protocol):
    """What evidence is about, such as cells.Cell."""

    @property
    def evidence(self) -> Evidence: ...


Cells = TypeVar("Cells", bound=Measured)


def evidence_of(cells: pd.DataFrame, processes: pd.DataFrame, benchmarks: Benchmarks) -> list[Evidence]:
    """Of every timed cell of a run; both frames are those of results.Results."""
    wide = processes.pivot(index=["file", "cell"], columns="process", values="seconds")
    logs = np.log(wide.reindex(pd.MultiIndex.from_frame(cells[["file", "cell"]])).to_numpy(dtype=float))
    return weigh(logs, families(cells, benchmarks), np.ones(len(cells), bool), cells["quiet"].to_numpy(dtype=bool))


def weigh(logs: statistics.Floats, names: Any, known: Bools, calm: Bools) -> list[Evidence]:
    """Of cells by the log seconds of their processes (cells, rounds), NaN where there is none; see levels."""
    levels = statistics.levels(logs, names, known)
    guessed = (levels.n < MIN_PROCESSES) & (levels.df < np.maximum(levels.n, 1.5))  # nothing but its own processes
    variance = np.where(guessed, np.maximum(levels.variance, FEW_SD**2), levels.variance)
    df = np.where(guessed, np.inf, levels.df)
    columns = (levels.mean, levels.n, variance, df, levels.shared, levels.shared_df, levels.present, names, calm)
    return [Evidence(*values) for values in zip(*(column.tolist() for column in columns))]


def slower(cells: Sequence[Measured], others: Sequence[Measured], by: float = MARGIN) -> Bools:
    """Whether each of ``cells`` is decided to take more than (1 + by) times as long as each of ``others``: a table."""
    if not cells or not others:
        return np.zeros((len(cells), len(others)), dtype=bool)
    (levels, names, calm), (other, against, also) = _columns(cells), _columns(others)
    rows = Levels(*(values[:, None] for values in vars(levels).values()))
    estimated = statistics.between(other, rows, names[:, None] == against)
    p = statistics.p_different(estimated, math.log1p(by))
    return (estimated.effect > 0) & (p <= PROMISE) & calm[:, None] & also


def _columns(cells: Sequence[Measured]) -> tuple[Levels, Any, Bools]:
    """Levels, families and calm of cells."""
    evidence = [cell.evidence for cell in cells]
    columns = {
        name: np.array([getattr(of_cell, name) for of_cell in evidence]) for name in Evidence.__dataclass_fields__
    }
    names, calm = columns.pop("family"), columns.pop("calm").astype(bool)
    return Levels(**columns), names, calm


def unbeaten(cells: Sequence[Cells]) -> list[Cells]:
    """The cells that none of them is decided to be faster than; one at least."""
    table = slower(cells, cells)
    return [cell for cell, beaten in zip(cells, table) if not beaten.any()]


def decided(cell: Measured, other: Measured) -> bool:
    """Whether one of the two is decided to be slower than the other."""
    return bool(slower([cell, other], [cell, other]).any())
