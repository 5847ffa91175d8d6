"""The timed cells with their contracts, the groups they form, and the test which of two cells is faster.

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
quiet differ by a factor of 2 at most (docs/accuracy.md), so the cell decides as one process does. Where other work
takes a core that torch's threads or a device's driver wait for, the factor was 12, so the cell decides nothing.
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

LINK = (
    contracts.HOST_TO_DEVICE,
    contracts.DEVICE_TO_HOST,
)  # directions that cross the link to a device
DIRECTIONS = (contracts.NUMPY_TO_TORCH, contracts.TORCH_TO_NUMPY, *LINK)
SUSTAINED, BOTH = "sustained", "both at once"
UNSAID = "float32"  # the dtype of families that have no parameter of that name
# Relative, of two routes: figures of a call that moves 16 MiB differ by 9 % (SD) from session to session, others by 1 %
AS_GOOD = 0.1
BY_BYTES = 2.0  # from this multiple of the shortest call on, the bytes decide and a bandwidth is meaningful
MARGIN = 0.05  # relative: a route slower by up to this is as good
PROMISE = Settings().promise  # of pairs that differ by MARGIN, at most this share is decided
FEW_SD = 0.25  # of log seconds, between processes
EXPECTED = 0.9  # share of further processes within a prediction interval
# A machine that was quiet for less of a run may be at another clock in the next: nine sessions of Emerald Rapids that
# were quiet 9 to 27 % of the time had baselines of 33.6 to 40.6 µs, and figures in proportion (docs/accuracy.md)
STEADY = 0.5
FASTEST = 1e12  # bytes per second, above any memory: a faster figure was not waited for
USUAL = 64 * 2**20  # bytes: the usual size of answers about one size, where measured
TAKEN_OVER = [
    "benchmark",
    "cell",
    "family",
    "direction",
    "seconds",
    "low",
    "high",
    "cv",
    "processes",
    "quiet",
]
# Columns of parameters; "" where a benchmark lacks one
TEXTS = {
    "route": "route",
    "dtype": "dtype",
    "layout": "layout",
    "threads": "threads",
    "host": "memory",
}
FLAGS = ("keeps", "safe", "non_blocking", "quiet")
LEVELS = tuple(Levels.__dataclass_fields__)
Row = Any  # of the cells, as DataFrame.itertuples has it


def cells_of(results: Results) -> pd.DataFrame:
    """Return one row per timed cell, in the order of the catalogue.

    benchmark, cell, family, role, method (what it measures: "completion" of timeit_completion), declared (its entry in
    benchmarks.json), parameters (name -> value), down (the parameter whose values are rows of tables and lines of
    panels; "" where there is none); route, dtype, layout, direction, nbytes (0 where it has none), threads (of torch),
    host (memory of the host's side of a transfer), contract, order (of the route in the catalogue), memory (alias, copy
    or into, for this dtype and layout), keeps (its dtype), safe, non_blocking, device (an accelerator takes part);
    spread    torch splits it over its threads if it has several; the time on one thread then does not hold for several
    credible  memory could move bytes at the measured rate; checked only for transfers that were waited for
    seconds   median over the figures of its processes; low, high: their range; cv: their coefficient of variation
    processes their number; quiet: whether any was quiet (True if not known), else seconds is an upper bound
    within    log seconds from ``seconds`` within which a share EXPECTED of more processes would lie; 0 where not quiet
    and the columns of ``weigh``
    """
    timed = results.timed
    given, declared = (
        parameters_of(timed, results),
        [results.benchmarks[name] for name in timed["benchmark"]],
    )
    text = {column: [str(own.get(name, "")) for own in given] for column, name in TEXTS.items()}
    text["threads"] = [threads or contracts.ONE_THREAD for threads in text["threads"]]
    named = zip(declared, text["route"], text["host"])
    promises = [each.contracts.get(route, contracts.NONE).on(host) for each, route, host in named]
    nbytes = np.array([own.get("nbytes", 0) for own in given], dtype=int)
    method = pd.Series(
        [name.partition("_")[2] for name in timed["method"]], timed.index, dtype=object
    )
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
    table = table.astype(
        dict.fromkeys(TAKEN_OVER[:4], object) | dict.fromkeys(FLAGS, bool) | {"processes": int}
    )
    return table.reset_index(drop=True).join(evidence_of(table, timed, results))


def itemsize(dtype: str) -> int:
    """Bytes per element."""
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits[0]) // 8) if digits else 1  # bool


def row_of(names: Iterable[str]) -> str:
    """Return the parameter whose values are the rows: the route, or else the first one that is not a size."""
    others = [name for name in names if name != "nbytes"]
    return "route" if "route" in others else next(iter(others), "")


def usual_dtype(cells: pd.DataFrame) -> str:
    """Return the dtype measured at the most sizes, then in the most cells; the first if several are equal."""
    found = cells.groupby("dtype", sort=False)["nbytes"].agg(["nunique", "size"])
    return str(
        next(iter(found.sort_values(["nunique", "size"], ascending=False, kind="stable").index), "")
    )


def with_threads(cells: pd.DataFrame, threads: str) -> pd.DataFrame:
    """Select the host cells that hold in a program with this number of torch threads: the cells measured with it and,
    of those on one thread, the ones that torch does not spread. Empty if nothing was measured with this number."""
    cells = cells[~cells["device"]]
    own = cells[cells["threads"] == threads]
    shared = cells[(cells["threads"] == contracts.ONE_THREAD) & ~cells["spread"]]
    return own if threads == contracts.ONE_THREAD or own.empty else pd.concat([shared, own])


def conversions(cells: pd.DataFrame) -> pd.DataFrame:
    """Select plain conversions of the usual dtype, the cells used for decisions and curves."""
    plain = cells[cells["role"] == contracts.Role.CONVERSION]
    return plain[plain["dtype"] == usual_dtype(plain)]


def usual_size(cells: Iterable[Row], of: str = "route", up_to: int = USUAL) -> int:
    """Return the size with the most values of a parameter; of equals the largest ``up_to``, or just above it."""
    values: dict[int, set[Any]] = {}
    for cell in cells:
        values.setdefault(cell.nbytes, set()).add(cell.parameters.get(of))
    return max(
        values, key=lambda n: (len(values[n]), n <= up_to, n if n <= up_to else -n), default=0
    )


def at_usual_size(cells: pd.DataFrame, of: str = "route", up_to: int = USUAL) -> pd.DataFrame:
    """The cells at the usual size."""
    return cells[cells["nbytes"] == usual_size(cells.itertuples(), of, up_to)]


def bytes_decide(seconds: Mapping[int, float], nbytes: int) -> bool:
    """Whether the bytes, not the call, take most of the time at this size. seconds: of one route, by size."""
    return nbytes in seconds and seconds[nbytes] >= BY_BYTES * min(seconds.values())


@dataclass(frozen=True)
class Limit:
    """The best achieved bandwidth on this machine in the same run: memcpy, or a pinned copy over the link.

    cells   size -> the cell that is the limit
    moved   bytes moved per byte of the size: 2 where they move both ways
    steady  the largest bandwidth is the limit at all sizes (a link); that of memory depends on the caches
    """

    cells: Mapping[int, Row] = field(default_factory=dict)
    moved: int = 1
    steady: bool = False

    @property
    def seconds(self) -> dict[int, float]:
        return {nbytes: cell.seconds for nbytes, cell in self.cells.items()}

    @property
    def bandwidth(self) -> float | None:
        """Largest bandwidth over all measured sizes, in bytes per second; None if nothing was measured."""
        return max((self.moved * n / seconds for n, seconds in self.seconds.items()), default=None)

    def decides(self, nbytes: int) -> bool:
        return bytes_decide(self.seconds, nbytes)

    def share(self, cell: Row) -> float | None:
        """Return the limit's seconds for as many bytes ÷ the cell's (1 is the limit), or None if not measured."""
        if self.steady:
            return cell.nbytes / cell.seconds / self.bandwidth if self.bandwidth else None
        return self.seconds[cell.nbytes] / cell.seconds if cell.nbytes in self.cells else None


def limit_of(cells: pd.DataFrame) -> Limit:
    """The memcpy limit."""
    return Limit(
        {cell.nbytes: cell for cell in cells[cells["role"] == contracts.Role.MEMCPY].itertuples()}
    )


def links_of(cells: pd.DataFrame) -> dict[str, Limit]:
    """Direction, or BOTH -> its link limit."""
    ways = cells[cells["role"] == contracts.Role.LINK].groupby("direction", sort=False)
    return {
        str(way): Limit(
            {cell.nbytes: cell for cell in own.itertuples()},
            moved=2 if way == BOTH else 1,
            steady=True,
        )
        for way, own in ways
    }


# --- which of two is faster ------------------------------------------------------------------------------------------


def evidence_of(cells: pd.DataFrame, timed: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return the evidence of the processes of ``cells``, in the rows of ``timed``. A noisy cell counts as one process
    at best, see above. On a steady machine a prediction uses a single process without an interval: 90 % of the results
    of two runs differ by 3 % at most there (docs/accuracy.md)."""
    names = pd.MultiIndex.from_frame(timed[["file", "cell"]])
    wide = [
        results.processes.pivot(
            index=["file", "cell"], columns=["run", "process"], values=name
        ).reindex(names)
        for name in ("seconds", "baseline")
    ]
    logs, baselines = (np.log(table.to_numpy(dtype=float)) for table in wide)
    logs -= statistics.correction(baselines, baselines)
    runs = wide[0].columns.get_level_values("run")
    found = weigh(logs, np.array(noise_of_cells(timed, results.benchmarks)), runs)
    quiet, alone = (
        cells["quiet"].to_numpy(),
        ((cells["threads"] == contracts.ONE_THREAD) & ~cells["device"]).to_numpy(),
    )
    variance = found["variance"].where(quiet, np.where(alone, FEW_SD**2, math.inf))
    known = quiet & ~(found["guessed"] & is_steady(min(results.quiet, default=None)))
    within = np.where(known, statistics.within(found, EXPECTED), 0.0)
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


def slower(cells: pd.DataFrame, others: pd.DataFrame, by: float = MARGIN) -> Bools:
    """Test row by row whether ``cells`` take more than (1 + by) times as long as ``others``; one row of either is
    compared with all rows of the other."""
    if cells.empty or others.empty:
        return np.zeros(0, dtype=bool)
    levels, base = (
        Levels(*(np.array([*each[name]]) for name in LEVELS)) for each in (cells, others)
    )
    noise, against = (each["noise"].to_numpy() for each in (cells, others))
    apart = np.subtract(
        *(np.array([*each["shares"]]) for each in (cells, others))
    )  # of two runs: 1 and -1
    through_memory = (noise == MEMORY) | (against == MEMORY)
    variance = np.where(through_memory, 2 * SESSION_SD[MEMORY] ** 2, statistics.SESSION_SD**2)
    estimated = statistics.between(
        base, levels, noise == against, variance * (apart**2).sum(axis=1) / 2
    )
    p = statistics.p_different(estimated, math.log1p(by))
    decided: Bools = (estimated.effect > 0) & (p <= PROMISE)
    return decided


def unbeaten(cells: pd.DataFrame, within: Sequence[str] = ()) -> pd.DataFrame:
    """Select the cells without a faster one, as far as decided; at least one. within: only cells with equal values in
    these columns are compared."""
    places = cells[[*within]].assign(everything=0, place=range(len(cells)))
    pairs = places.merge(places, on=[*within, "everything"])
    beaten = pairs["place_x"][slower(cells.iloc[pairs["place_x"]], cells.iloc[pairs["place_y"]])]
    return cells[~np.isin(range(len(cells)), beaten)]


def decided(cell: Row, other: Row) -> bool:
    """Whether one of the two is decided to be slower than the other."""
    both = pd.DataFrame([cell, other])
    return bool(slower(both, both[::-1]).any())


def too_few(cell: Row, other: Row) -> bool:
    """Whether two quiet cells differ by more than a tie may, with too few processes to decide."""
    apart = abs(math.log(cell.seconds / other.seconds)) > math.log1p(AS_GOOD)
    return (
        apart
        and cell.quiet
        and other.quiet
        and min(cell.processes, other.processes) < MIN_PROCESSES
    )
