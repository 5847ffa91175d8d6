"""What was timed, a cell each with its contract, which cells belong together, and which of two is faster.

A cell is decided to be slower than another where the hypothesis that it takes at most MARGIN more is rejected at the
comparison's promise (see verdicts.Settings and statistics.p_different). Anything else is a tie: a difference below
the margin changes nobody's choice, and one that the processes do not show would be another in the next run. Variances
of processes are moderated within the families of alike noise. What the cells of a family share in a round, such as the
clock of the machine then, cancels in the rounds of which both have a process, and is added as a variance of its own for
the others, or where the families differ. Cells of two runs, as ``run.py --only`` leaves them, are compared at one speed
of the machine, by the baselines of both, and with the variance of what sessions differ by beside it.

With fewer than MIN_PROCESSES processes a cell in a family large enough to moderate has the variance and the degrees of
freedom of that; elsewhere one cannot tell noise from nothing, so a process is taken to vary by FEW_SD at least: what
processes did on a busy machine. Then 2.8 times is decided with one process, 2.1 with two, 1.9 with three.

A cell without a quiet process says at most what it takes. Of what one thread does on the host, two runs of a machine
that was hardly ever quiet differ by a factor of 2 at most (docs/accuracy.md): it decides as one process does. Where a
core is taken that torch's threads, or a device's driver, wait for, the factor was 12: it decides nothing.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import contracts
from benchmarks.probes import MEMORY

from . import statistics
from .history import SESSION_SD
from .results import Results, noise_of_cells, parameters_of
from .statistics import MIN_PROCESSES, Bools, Levels
from .verdicts import Settings

LINK = (contracts.HOST_TO_DEVICE, contracts.DEVICE_TO_HOST)  # directions that cross the link to a device
DIRECTIONS = (contracts.NUMPY_TO_TORCH, contracts.TORCH_TO_NUMPY, *LINK)
SUSTAINED, BOTH = "sustained", "both at once"
UNSAID = "float32"  # the dtype of families that have no parameter of that name
# Relative, of two routes: figures of a call that moves 16 MiB differ by 9 % (SD) from session to session, others by 1 %
AS_GOOD = 0.1
BY_BYTES = 2.0  # what takes this many times its shortest call: the bytes decide, a bandwidth has a meaning
MARGIN = 0.05  # relative: a route that takes so much longer is as good
PROMISE = Settings().promise  # at most this share of pairs that differ by MARGIN is decided
FEW_SD = 0.25  # of log seconds, between processes
EXPECTED = 0.9  # of further processes are to lie within the interval of a prediction
# A machine that was quiet for less of a run may be at another clock in the next: nine sessions of Emerald Rapids that
# were quiet 9 to 27 % of the time had baselines of 33.6 to 40.6 µs, and figures in proportion (docs/accuracy.md)
STEADY = 0.5
FASTEST = 1e12  # bytes a second that no memory moves: what reads more was not waited for
USUAL = 64 * 2**20  # bytes that answers on one size are about, where they were measured
TAKEN_OVER = ["benchmark", "cell", "family", "direction", "seconds", "low", "high", "cv", "processes", "quiet"]
# Columns of parameters; "" where a benchmark has it not
TEXTS = {"route": "route", "dtype": "dtype", "layout": "layout", "threads": "threads", "host": "memory"}
FLAGS = ("keeps", "safe", "non_blocking", "quiet")
LEVELS = tuple(Levels.__dataclass_fields__)
Row = Any  # of the cells, as DataFrame.itertuples has it


def cells_of(results: Results) -> pd.DataFrame:
    """All timed cells, a row each in the order of the catalogue.

    benchmark, cell, family, role, method (what its method measures: "completion" of timeit_completion), declared (what
    benchmarks.json says of it), parameters (name -> value), down (the parameter whose values are rows of tables and
    lines of panels; "" where there is none); route, dtype, layout, direction, nbytes (0 where it has none), threads (of
    torch), host (memory of the host's side of a transfer), contract, order (of the route in the catalogue), memory
    (alias, copy or into, for this dtype and layout), keeps (its dtype), safe, non_blocking, device (an accelerator
    takes part);
    spread    torch spreads it over its threads where it has several, so that one thread says nothing of them
    credible  memory could move bytes as fast as it reads; asked of transfers that were waited for alone
    seconds   median over the figures of its processes; low, high: their range; cv: their coefficient of variation
    processes how many; quiet: whether any was, else seconds is an upper bound. True where that is not known
    within    log seconds from ``seconds`` within which a share EXPECTED of more processes would lie; 0 where not quiet
    and of its processes what ``weigh`` says
    """
    timed = results.timed
    given, declared = parameters_of(timed, results), [results.benchmarks[name] for name in timed["benchmark"]]
    text = {column: [str(own.get(name, "")) for own in given] for column, name in TEXTS.items()}
    text["threads"] = [threads or contracts.ONE_THREAD for threads in text["threads"]]
    named = zip(declared, text["route"], text["host"])
    promises = [each.contracts.get(route, contracts.NONE).on(host) for each, route, host in named]
    nbytes = np.array([own.get("nbytes", 0) for own in given], dtype=int)
    method = pd.Series([name.partition("_")[2] for name in timed["method"]], timed.index, dtype=object)
    device = np.array([each.needs_device for each in declared], dtype=bool)
    waited = device & method.isin((contracts.COMPLETION, SUSTAINED))
    elements = nbytes // [itemsize(dtype or UNSAID) for dtype in text["dtype"]]
    by_element = np.array([each.per_element for each in promises], dtype=bool)
    memory = timed["contract"].astype(object)
    table = timed[TAKEN_OVER].assign(
        **text,
        declared=declared,
        parameters=given,
        contract=promises,
        memory=memory,
        nbytes=nbytes,
        method=method,
        device=device,
        role=[each.role for each in declared],
        down=[each.down or row_of(own) for each, own in zip(declared, given)],
        order=[each.nth("route", own.get("route")) for each, own in zip(declared, given)],
        keeps=[each.keeps_dtype(dtype or UNSAID) for each, dtype in zip(promises, text["dtype"])],
        safe=[each.safe for each in promises],
        non_blocking=[each.non_blocking for each in promises],
        spread=(memory != contracts.ALIAS) & ~by_element & (elements >= contracts.PARALLEL),
        credible=~waited | (nbytes <= FASTEST * timed["seconds"]),
    )
    table = table.astype(dict.fromkeys(TAKEN_OVER[:4], object) | dict.fromkeys(FLAGS, bool) | {"processes": int})
    return table.reset_index(drop=True).join(evidence_of(table, timed, results))


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits[0]) // 8) if digits else 1  # bool


def row_of(names: Iterable[str]) -> str:
    """Of parameters the one that rows are of: the route, or else the first that is no size."""
    others = [name for name in names if name != "nbytes"]
    return "route" if "route" in others else next(iter(others), "")


def usual_dtype(cells: pd.DataFrame) -> str:
    """The dtype that was measured at the most sizes, then in the most cells; the first of equals."""
    found = cells.groupby("dtype", sort=False)["nbytes"].agg(["nunique", "size"])
    return str(next(iter(found.sort_values(["nunique", "size"], ascending=False, kind="stable").index), ""))


def with_threads(cells: pd.DataFrame, threads: str) -> pd.DataFrame:
    """What holds on the host in a program in which torch has so many threads: the cells that were measured with as
    many and, of those with one, what torch does not spread. Nothing where none was measured with so many."""
    cells = cells[~cells["device"]]
    own = cells[cells["threads"] == threads]
    shared = cells[(cells["threads"] == contracts.ONE_THREAD) & ~cells["spread"]]
    return own if threads == contracts.ONE_THREAD or own.empty else pd.concat([shared, own])


def conversions(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of plain conversions of the usual dtype: what decisions and curves are about."""
    plain = cells[cells["role"] == contracts.Role.CONVERSION]
    return plain[plain["dtype"] == usual_dtype(plain)]


def usual_size(cells: Iterable[Row], of: str = "route", up_to: int = USUAL) -> int:
    """The size at which most values of a parameter were measured; of equals the largest ``up_to``, or just above it."""
    values: dict[int, set[Any]] = {}
    for cell in cells:
        values.setdefault(cell.nbytes, set()).add(cell.parameters.get(of))
    return max(values, key=lambda n: (len(values[n]), n <= up_to, n if n <= up_to else -n), default=0)


def at_usual_size(cells: pd.DataFrame, of: str = "route", up_to: int = USUAL) -> pd.DataFrame:
    """The cells at that size."""
    return cells[cells["nbytes"] == usual_size(cells.itertuples(), of, up_to)]


def bytes_decide(seconds: Mapping[int, float], nbytes: int) -> bool:
    """Whether at this size it is the bytes that take the time, and not the call. seconds: of one way, by size."""
    return nbytes in seconds and seconds[nbytes] >= BY_BYTES * min(seconds.values())


@dataclass(frozen=True)
class Limit:
    """What moving bytes takes at best on this machine, in the same run: memcpy, or a pinned copy over the link.

    cells   size -> the cell that is the limit
    moved   bytes that move for each byte of the size: twice as many where they move both ways
    steady  the largest bandwidth is the limit at all sizes, as of a link; memory's depends on the caches
    """

    cells: Mapping[int, Row] = field(default_factory=dict)
    moved: int = 1
    steady: bool = False

    @property
    def seconds(self) -> dict[int, float]:
        return {nbytes: cell.seconds for nbytes, cell in self.cells.items()}

    @property
    def bandwidth(self) -> float | None:
        """Most bytes a second of all sizes measured; None where none was."""
        return max((self.moved * n / seconds for n, seconds in self.seconds.items()), default=None)

    def decides(self, nbytes: int) -> bool:
        return bytes_decide(self.seconds, nbytes)

    def share(self, cell: Row) -> float | None:
        """The limit's seconds for so many bytes ÷ the cell's: 1 is the limit. None where it was not measured."""
        if self.steady:
            return cell.nbytes / cell.seconds / self.bandwidth if self.bandwidth else None
        return self.seconds[cell.nbytes] / cell.seconds if cell.nbytes in self.cells else None


def limit_of(cells: pd.DataFrame) -> Limit:
    """The limit of what copies in memory."""
    return Limit({cell.nbytes: cell for cell in cells[cells["role"] == contracts.Role.MEMCPY].itertuples()})


def links_of(cells: pd.DataFrame) -> dict[str, Limit]:
    """Direction, or BOTH -> the limit of what crosses the link."""
    ways = cells[cells["role"] == contracts.Role.LINK].groupby("direction", sort=False)
    return {
        str(way): Limit({cell.nbytes: cell for cell in own.itertuples()}, moved=2 if way == BOTH else 1, steady=True)
        for way, own in ways
    }


# --- which of two is faster ------------------------------------------------------------------------------------------


def evidence_of(cells: pd.DataFrame, timed: pd.DataFrame, results: Results) -> pd.DataFrame:
    """What the processes of the cells, those of ``timed``, say. A noisy cell is as one process at best, see above. Of a
    steady machine a prediction takes one process as it is: 90 % of the results of two runs differ by 3 % at most there
    (docs/accuracy.md)."""
    names = pd.MultiIndex.from_frame(timed[["file", "cell"]])
    wide = [
        results.processes.pivot(index=["file", "cell"], columns=["run", "process"], values=name).reindex(names)
        for name in ("seconds", "baseline")
    ]
    logs, baselines = (np.log(table.to_numpy(dtype=float)) for table in wide)
    logs -= statistics.correction(baselines, baselines)
    runs = wide[0].columns.get_level_values("run")
    found = weigh(logs, np.array(noise_of_cells(timed, results.benchmarks)), runs)
    quiet, alone = cells["quiet"].to_numpy(), ((cells["threads"] == contracts.ONE_THREAD) & ~cells["device"]).to_numpy()
    variance = found["variance"].where(quiet, np.where(alone, FEW_SD**2, math.inf))
    known = quiet & ~(found["guessed"] & is_steady(min(results.quiet, default=None)))
    within = np.where(known, statistics.within(found, EXPECTED), 0.0)
    return found.assign(variance=variance, df=found["df"].where(quiet, math.inf), within=within)


def weigh(logs: statistics.Floats, noise: Any, runs: Any = "") -> pd.DataFrame:
    """Of each cell its noise (the family whose noise it has) and its values of statistics.Levels, a row each; guessed:
    whether its variance is known from nothing but its own processes, and those are few; shares: that each run has of
    its processes.

    logs: of their processes' seconds (cells, rounds), NaN where there is none; see statistics.levels. runs: the run of
    each round, or of all.
    """
    levels = vars(statistics.levels(logs, noise))
    n, df = levels["n"], levels["df"]
    guessed = (n < MIN_PROCESSES) & (df < np.maximum(n, 1.5))
    levels["variance"] = np.where(guessed, np.fmax(levels["variance"], FEW_SD**2), levels["variance"])
    of_run = (np.broadcast_to(runs, logs.shape[1:]) == np.unique(runs)[:, np.newaxis]).astype(float)
    levels["shares"] = [*(levels["present"] @ of_run.T / n[:, np.newaxis])]
    levels |= {"df": np.where(guessed, np.inf, df), "present": [*levels["present"]], "guessed": guessed}
    return pd.DataFrame({"noise": noise, **levels})


def is_steady(quiet: float | None) -> bool:
    """Whether the machine was quiet so much that another session will find the same times, as far as that is known."""
    return quiet is None or quiet >= STEADY


def slower(cells: pd.DataFrame, others: pd.DataFrame, by: float = MARGIN) -> Bools:
    """Whether each of ``cells`` is decided to take more than (1 + by) times as long as its one of ``others``, row by
    row; one row of either stands for all."""
    if cells.empty or others.empty:
        return np.zeros(0, dtype=bool)
    levels, base = (Levels(*(np.array([*each[name]]) for name in LEVELS)) for each in (cells, others))
    noise, against = (each["noise"].to_numpy() for each in (cells, others))
    apart = np.subtract(*(np.array([*each["shares"]]) for each in (cells, others)))  # of two runs: 1 and -1
    through_memory = (noise == MEMORY) | (against == MEMORY)
    variance = np.where(through_memory, 2 * SESSION_SD[MEMORY] ** 2, statistics.SESSION_SD**2)
    estimated = statistics.between(base, levels, noise == against, variance * (apart**2).sum(axis=1) / 2)
    p = statistics.p_different(estimated, math.log1p(by))
    decided: Bools = (estimated.effect > 0) & (p <= PROMISE)
    return decided


def unbeaten(cells: pd.DataFrame, within: Sequence[str] = ()) -> pd.DataFrame:
    """The cells that none of them is decided to be faster than; one at least. within: columns that tell apart those
    that are compared."""
    places = cells[[*within]].assign(everything=0, place=range(len(cells)))
    pairs = places.merge(places, on=[*within, "everything"])
    beaten = pairs["place_x"][slower(cells.iloc[pairs["place_x"]], cells.iloc[pairs["place_y"]])]
    return cells[~np.isin(range(len(cells)), beaten)]


def decided(cell: Row, other: Row) -> bool:
    """Whether one of the two is decided to be slower than the other."""
    both = pd.DataFrame([cell, other])
    return bool(slower(both, both[::-1]).any())


def too_few(cell: Row, other: Row) -> bool:
    """Whether two cells differ by more than a tie may, and have too few processes to decide anything."""
    apart = abs(math.log(cell.seconds / other.seconds)) > math.log1p(AS_GOOD)
    return apart and cell.quiet and other.quiet and min(cell.processes, other.processes) < MIN_PROCESSES
