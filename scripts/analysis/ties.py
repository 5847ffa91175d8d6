"""Which routes tie, and which may be recommended. Both rules stand here only.

Two cells **tie** where neither takes significantly longer than the other. A cell is significantly
slower where the hypothesis that it takes at most MARGIN more is rejected at the comparison's
promise (see verdicts.Settings and statistics.p_different). A difference below the margin does not
matter, and one within the noise of the processes would not be seen in the next run. Variances of
processes are moderated within families of similar noise. The cells of a family share an effect in
each round, such as the machine's clock. It cancels in rounds in which both cells have a process;
otherwise, or where the families differ, it is added as a variance of its own. Cells of two runs
(``run.py --only``) are corrected to one speed of the machine by both baselines, and the variance
between sessions is added.

With fewer than MIN_PROCESSES processes, a cell uses its family's variance and degrees of freedom
if the family is large enough to moderate. Elsewhere the noise is not known, so the SD of a process
is taken as FEW_SD at least, as seen on a busy machine. Then a ratio of 2.8 is significant with one
process, 2.1 with two, 1.9 with three.

A cell without a quiet process is an upper bound. For one thread on the host, two runs of a machine
that was hardly ever quiet differ by a factor of 2 at most (docs/lab-notes.md), so the cell counts
as one process. Where other work takes a core that torch's threads or a device's driver wait for,
the factor was 12, so no difference to such a cell is significant.

Of routes that tie with the fastest, those **may be recommended** that take at most
RECOMMENDED_EXCESS longer.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pandas import DataFrame, Index, MultiIndex, Series
from store.frames import TimedCell

from benchmarks import contracts
from benchmarks.core.probes import MEMORY

from . import statistics
from .results import Results
from .series import SESSION_SD
from .statistics import MIN_PROCESSES, Bools, Floats, Levels, Names
from .suite import noise_of_cells
from .verdicts import Settings

MARGIN = 0.05  # relative: a route slower by up to this is as good
PROMISE = Settings().promise  # of pairs that differ by MARGIN, at most this share is significant
# Relative: figures of a call that moves 16 MiB differ by 9 % (SD) from session to session, others
# by 1 %
RECOMMENDED_EXCESS = 0.1
FEW_SD = 0.25  # of log seconds, between processes
EXPECTED = 0.9  # share of further processes within a prediction interval
# A machine that was quiet for less of a run may be at another clock in the next: nine sessions of
# Emerald Rapids that were quiet 9 to 27 % of the time had baselines of 33.6 to 40.6 µs, and figures
# in proportion (docs/lab-notes.md)
STEADY = 0.5
LEVELS = tuple(Levels.__dataclass_fields__)


# --- recommendations ------------------------------------------------------------------------------


def recommendable(
    seconds: "Series[float] | float", fastest: "Series[float] | float"
) -> "Series[bool] | bool":
    """Whether routes that tie with the fastest take few enough seconds to be recommended."""
    return seconds <= (1 + RECOMMENDED_EXCESS) * fastest


def too_few_processes(cell: TimedCell, reference: TimedCell) -> bool:
    """Whether two quiet cells tie for want of processes only: the slower one takes too long to be
    recommended."""
    processes = min(cell.processes, reference.processes)
    fast, slow = sorted((cell.seconds, reference.seconds))
    is_quiet = cell.quiet and reference.quiet
    return is_quiet and processes < MIN_PROCESSES and not recommendable(slow, fast)


# --- ties -----------------------------------------------------------------------------------------


def significantly_slower(cells: DataFrame, references: DataFrame, margin: float = MARGIN) -> Bools:
    """Test row by row whether ``cells`` take more than (1 + margin) times as long as
    ``references``; one row of either is compared with all rows of the other."""
    if cells.empty or references.empty:
        return np.zeros(0, dtype=bool)
    noise, reference_noise = cells["noise"].to_numpy(), references["noise"].to_numpy()
    # of cells of two runs, the shares differ by 1 and -1
    run_difference = _array(cells["shares"]) - _array(references["shares"])
    through_memory = (noise == MEMORY) | (reference_noise == MEMORY)
    variance = np.where(through_memory, 2 * SESSION_SD[MEMORY] ** 2, statistics.MIN_SESSION_SD**2)
    estimated = statistics.compare_levels(
        _levels(references),
        _levels(cells),
        noise == reference_noise,
        variance * (run_difference**2).sum(axis=1) / 2,
    )
    p = statistics.p_different(estimated, math.log1p(margin))
    significant: Bools = (estimated.effect > 0) & (p <= PROMISE)
    return significant


def _levels(cells: DataFrame) -> Levels:
    return Levels(*(_array(cells[name]) for name in LEVELS))


def _array(column: "Series[object]") -> Any:
    """Return the column as one array, also where it has an array per row."""
    return np.array(column.tolist())


def select_fastest(cells: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Select the cells that tie with, or are faster than, each cell with the same values in
    ``columns``; at least one for each combination of values."""
    places = cells[[*columns]].assign(place=range(len(cells)))
    pairs = places.merge(places, on=[*columns])
    cell, reference = pairs["place_x"], pairs["place_y"]
    slower = cell[significantly_slower(cells.iloc[cell], cells.iloc[reference])]
    return cells[~np.isin(range(len(cells)), slower)]


def differ_significantly(cell: TimedCell, reference: TimedCell) -> bool:
    """Whether one of the two is significantly slower than the other."""
    pair = DataFrame([cell, reference])
    return bool(significantly_slower(pair, pair[::-1]).any())


# --- evidence -------------------------------------------------------------------------------------


def is_steady(quiet: float | None) -> bool:
    """Whether the machine was quiet enough for another session to find the same times; True if not
    known."""
    return quiet is None or quiet >= STEADY


def evidence_of(cells: DataFrame, timed: DataFrame, results: Results) -> DataFrame:
    """Return the evidence of the processes of ``cells``, in the rows of ``timed``: the columns of
    ``weigh`` and ``within``, see store.frames.TimedCell.

    A noisy cell counts as one process at best, see above. On a steady machine a prediction uses a
    single process without an interval: 90 % of the results of two runs differ by 3 % at most there
    (docs/lab-notes.md).
    """
    key = ["file", "cell"]
    names = MultiIndex.from_frame(timed[key])
    by_process = {  # two pivots: one of both has no columns where nothing was timed
        name: results.processes.pivot(index=key, columns=["run", "process"], values=name).reindex(
            names
        )
        for name in ("seconds", "baseline")
    }
    logs = np.log(by_process["seconds"].to_numpy(dtype=float))
    baselines = np.log(by_process["baseline"].to_numpy(dtype=float))
    logs -= statistics.speed_correction_log(baselines, baselines)
    noise = np.array(noise_of_cells(timed, results.benchmarks))
    evidence = weigh(logs, noise, by_process["seconds"].columns.get_level_values("run"))
    quiet = cells["quiet"].to_numpy()
    alone = ((cells["threads"] == contracts.ONE_THREAD) & ~cells["device"]).to_numpy()
    noisy_variance = np.where(alone, FEW_SD**2, math.inf)
    predicts = quiet & ~(evidence["guessed"] & is_steady(min(results.quiet, default=None)))
    return evidence.assign(
        variance=evidence["variance"].where(quiet, noisy_variance),
        df=evidence["df"].where(quiet, math.inf),
        within=np.where(
            predicts, statistics.prediction_half_width(_levels(evidence), EXPECTED), 0.0
        ),
    )


def weigh(logs: Floats, noise: Names, runs: "Index[str] | str" = "") -> DataFrame:
    """Return one row per cell: noise (the family whose noise it has); the fields of
    statistics.Levels; guessed (its variance is known only from its own few processes); shares (of
    its processes, per run).

    logs: log seconds of processes (cells, rounds), NaN where there is none; see statistics.levels.
    runs: the run of each round, or of all rounds.
    """
    levels = statistics.levels(logs, noise)
    guessed = (levels.n < MIN_PROCESSES) & (levels.df < np.maximum(levels.n, 1.5))
    is_of_run = np.broadcast_to(runs, logs.shape[1:]) == np.unique(runs)[:, np.newaxis]
    shares = levels.present @ is_of_run.T.astype(float) / levels.n[:, np.newaxis]
    evidence = vars(levels) | {
        "variance": np.where(guessed, np.fmax(levels.variance, FEW_SD**2), levels.variance),
        "df": np.where(guessed, np.inf, levels.df),
        "present": [*levels.present],
        "guessed": guessed,
        "shares": [*shares],
    }
    return DataFrame({"noise": noise, **evidence})
