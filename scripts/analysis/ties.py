"""The test which of two cells is faster, on the evidence of their processes, and which routes may be recommended.

A cell is decided to be slower than another where the hypothesis that it takes at most MARGIN more is rejected at the
comparison's promise (see verdicts.Settings and statistics.p_different). Anything else is a tie: a difference below the
margin does not matter, and one within the noise of the processes would not be seen in the next run. Variances of
processes are moderated within families of similar noise. The cells of a family share an effect in each round, such as
the machine's clock. It cancels in rounds in which both cells have a process; otherwise, or where the families differ,
it is added as a variance of its own. Cells of two runs (``run.py --only``) are corrected to one speed of the machine by
both baselines, and the variance between sessions is added.

With fewer than MIN_PROCESSES processes, a cell uses its family's variance and degrees of freedom if the family is large
enough to moderate. Elsewhere the noise is not known, so the SD of a process is taken as FEW_SD at least, as seen on a
busy machine. Then a ratio of 2.8 is decided with one process, 2.1 with two, 1.9 with three.

A cell without a quiet process is an upper bound. For one thread on the host, two runs of a machine that was hardly ever
quiet differ by a factor of 2 at most (docs/lab-notes.md), so the cell decides as one process does. Where other work
takes a core that torch's threads or a device's driver wait for, the factor was 12, so the cell decides nothing.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from store.frames import TimedCell

from benchmarks import contracts
from benchmarks.core.probes import MEMORY

from . import statistics
from .results import Results
from .series import SESSION_SD
from .statistics import MIN_PROCESSES, Bools, Levels
from .suite import noise_of_cells
from .verdicts import Settings

# Relative, of two routes: figures of a call that moves 16 MiB differ by 9 % (SD) from session to session, others by 1 %
RECOMMENDED_EXCESS = 0.1
MARGIN = 0.05  # relative: a route slower by up to this is as good
PROMISE = Settings().promise  # of pairs that differ by MARGIN, at most this share is decided
FEW_SD = 0.25  # of log seconds, between processes
EXPECTED = 0.9  # share of further processes within a prediction interval
# A machine that was quiet for less of a run may be at another clock in the next: nine sessions of Emerald Rapids that
# were quiet 9 to 27 % of the time had baselines of 33.6 to 40.6 µs, and figures in proportion (docs/lab-notes.md)
STEADY = 0.5
LEVELS = tuple(Levels.__dataclass_fields__)
Row = TimedCell  # as DataFrame.itertuples has it


def evidence_of(cells: pd.DataFrame, timed: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return the evidence of the processes of ``cells``, in the rows of ``timed``. A noisy cell counts as one process
    at best, see above. On a steady machine a prediction uses a single process without an interval: 90 % of the results
    of two runs differ by 3 % at most there (docs/lab-notes.md)."""
    names = pd.MultiIndex.from_frame(timed[["file", "cell"]])
    wide = [
        results.processes.pivot(
            index=["file", "cell"], columns=["run", "process"], values=name
        ).reindex(names)
        for name in ("seconds", "baseline")
    ]
    logs, baselines = (np.log(table.to_numpy(dtype=float)) for table in wide)
    logs -= statistics.speed_correction_log(baselines, baselines)
    runs = wide[0].columns.get_level_values("run")
    found = weigh(logs, np.array(noise_of_cells(timed, results.benchmarks)), runs)
    quiet, alone = (
        cells["quiet"].to_numpy(),
        ((cells["threads"] == contracts.ONE_THREAD) & ~cells["device"]).to_numpy(),
    )
    variance = found["variance"].where(quiet, np.where(alone, FEW_SD**2, math.inf))
    known = quiet & ~(found["guessed"] & is_steady(min(results.quiet, default=None)))
    within = np.where(known, statistics.prediction_half_width(found, EXPECTED), 0.0)
    return found.assign(variance=variance, df=found["df"].where(quiet, math.inf), within=within)


def weigh(logs: statistics.Floats, noise: Any, runs: Any = "") -> pd.DataFrame:
    """Return one row per cell: noise (the family whose noise it has); the fields of statistics.Levels; guessed (its
    variance is known only from its own few processes); shares (of its processes, per run).

    logs: log seconds of processes (cells, rounds), NaN where there is none; see statistics.levels. runs: the run of
    each round, or of all rounds.
    """
    levels = vars(statistics.levels(logs, noise))
    n, df = levels["n"], levels["df"]
    guessed = (n < MIN_PROCESSES) & (df < np.maximum(n, 1.5))
    levels["variance"] = np.where(
        guessed, np.fmax(levels["variance"], FEW_SD**2), levels["variance"]
    )
    of_run = (np.broadcast_to(runs, logs.shape[1:]) == np.unique(runs)[:, np.newaxis]).astype(float)
    levels["shares"] = [*(levels["present"] @ of_run.T / n[:, np.newaxis])]
    levels |= {
        "df": np.where(guessed, np.inf, df),
        "present": [*levels["present"]],
        "guessed": guessed,
    }
    return pd.DataFrame({"noise": noise, **levels})


def is_steady(quiet: float | None) -> bool:
    """Whether the machine was quiet enough for another session to find the same times; True if not known."""
    return quiet is None or quiet >= STEADY


def significantly_slower(
    cells: pd.DataFrame, references: pd.DataFrame, margin: float = MARGIN
) -> Bools:
    """Test row by row whether ``cells`` take more than (1 + margin) times as long as ``references``; one row of either is
    compared with all rows of the other."""
    if cells.empty or references.empty:
        return np.zeros(0, dtype=bool)
    levels, base = (
        Levels(*(np.array([*each[name]]) for name in LEVELS)) for each in (cells, references)
    )
    noise, against = (each["noise"].to_numpy() for each in (cells, references))
    apart = np.subtract(
        *(np.array([*each["shares"]]) for each in (cells, references))
    )  # of two runs: 1 and -1
    through_memory = (noise == MEMORY) | (against == MEMORY)
    variance = np.where(through_memory, 2 * SESSION_SD[MEMORY] ** 2, statistics.MIN_SESSION_SD**2)
    estimated = statistics.compare_levels(
        base, levels, noise == against, variance * (apart**2).sum(axis=1) / 2
    )
    p = statistics.p_different(estimated, math.log1p(margin))
    decided: Bools = (estimated.effect > 0) & (p <= PROMISE)
    return decided


def select_fastest(cells: pd.DataFrame, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Select the cells without a faster one, as far as decided; at least one. columns: only cells with equal values in
    these columns are compared."""
    places = cells[[*columns]].assign(everything=0, place=range(len(cells)))
    pairs = places.merge(places, on=[*columns, "everything"])
    beaten = pairs["place_x"][
        significantly_slower(cells.iloc[pairs["place_x"]], cells.iloc[pairs["place_y"]])
    ]
    return cells[~np.isin(range(len(cells)), beaten)]


def differ_significantly(cell: Row, other: Row) -> bool:
    """Whether one of the two is decided to be slower than the other."""
    both = pd.DataFrame([cell, other])
    return bool(significantly_slower(both, both[::-1]).any())


def too_few_processes(cell: Row, other: Row) -> bool:
    """Whether two quiet cells differ by more than a tie may, with too few processes to decide."""
    apart = abs(math.log(cell.seconds / other.seconds)) > math.log1p(RECOMMENDED_EXCESS)
    return (
        apart
        and cell.quiet
        and other.quiet
        and min(cell.processes, other.processes) < MIN_PROCESSES
    )
