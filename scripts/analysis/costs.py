"""The measured routes of one machine with their costs, and the machine most like another."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from store import files
from store.schema import MACHINE, UNKNOWN, Conditions, RunRecord

from benchmarks import contracts
from benchmarks.contracts import (
    ALIAS,
    ALL_THREADS,
    COPY,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    ONE_THREAD,
    Role,
)

from .cells import BY_BYTES, cells_of, itemsize, limit_of, links_of
from .estimates import ANY_SIZE, MEASURED, estimate
from .findings import Gain, neighbour_costs, setting_advice
from .needs import NEED_FIELDS, Case, Need, choices, uses
from .ranking import BEST, OTHER
from .results import Results, load_files, newest
from .ties import is_steady

UNTIMED = (
    "int8",
    "int16",
    "complex128",
)  # dtypes with tested contracts and no times: bits are bits
FRESH = (
    32 * 2**20
)  # bytes: from here on glibc gives fresh memory fresh pages at every call, see benchmarks/core/sources.py
# Elements: NumPy releases the GIL to copy a larger array, which takes 70 ns on Emerald Rapids for any dtype
# (NPY_BEGIN_THREADS_THRESHOLDED in numpy/ndarraytypes.h)
RELEASED = 500
STAGED = (
    64 * 2**10
)  # bytes: CUDA's driver copies more than this from pageable memory through its own pinned memory
CHUNKS = (
    8 * 2**20
)  # bytes of pinned memory that a copy in chunks keeps, see benchmarks/core/moving.py
OF_CELL = ["nbytes", "route", "seconds", "low", "high", "within", "quiet", "contract"]


@dataclass(frozen=True)
class MachineAnswers:
    """The measured routes and effects of one machine and one toolchain.

    run      the record of the last run
    quiet    smallest of ``Results.quiet``; None: not machine
    rows     the choices of all kinds but OTHER, with their costs: see ``costs``
    limit    seconds per byte of memcpy, by size
    effects  costs of placement and gains of settings
    dtypes   direction -> dtype that can be asked for -> why it has no figure
    """

    name: str
    run: RunRecord
    quiet: float | None
    rows: pd.DataFrame
    limit: "pd.Series[float]"
    effects: Sequence[Gain]
    dtypes: Mapping[str, Mapping[str, str]]

    @property
    def threads(self) -> int:
        """The default number of torch threads."""
        return self.run.settings.torch_threads or 1

    @property
    def spreads(self) -> bool:
        """Whether conversions were measured with torch's default number of threads."""
        return ALL_THREADS in set(self.rows["threads"])

    @property
    def is_steady(self) -> bool:
        """See ``is_steady``."""
        return is_steady(self.quiet)

    def torch_threads(self, case: Case) -> str:
        """Return the number of torch threads of a case as ``Need.threads`` spells it."""
        default = "" if case.device else ALL_THREADS if self.spreads else ONE_THREAD
        threads = case.threads or default
        return ALL_THREADS if self.spreads and threads == str(self.threads) else threads

    def jump_sizes(self, need: Need) -> list[int]:
        """Return the sizes at which the times of a need jump: torch spreads a copy over its threads, NumPy releases the
        GIL for each array of a list, a driver stages, or a result in host memory takes FRESH bytes."""
        fresh = need.memory == COPY and need.direction != HOST_TO_DEVICE
        each, made = itemsize(need.dtype), itemsize(need.goal or need.dtype)
        leaps = {
            (RELEASED + 1) * each * int(self.rows["arrays"].max()): need.batch,
            contracts.PARALLEL * each: need.threads not in ("", ONE_THREAD)
            and need.memory != ALIAS,
            FRESH * each // made: fresh and self.run.conditions.libc.startswith("glibc"),
            STAGED + 1: (need.direction, need.host) == (HOST_TO_DEVICE, contracts.PAGEABLE),
        }
        return sorted(nbytes for nbytes, there in leaps.items() if there)


def last_run(results: Path, machine: str) -> tuple[RunRecord, list[Path]]:
    """Return the last run of a machine and its result file; all result files if there is no record."""
    runs = {path: files.read_records(path) for path in files.result_files(results, machine)}
    last = newest(runs)[:1]
    return (runs[last[0]][-1], last) if last else (UNKNOWN, [*runs])


def load_machine(results: Path, machine: str) -> MachineAnswers:
    """Load the last run of a machine with results; UserError if a file is broken."""
    loaded = load_files(results, last_run(results, machine)[1])
    cells = cells_of(loaded)
    cells = cells[cells["credible"]]
    return machine_answers(loaded, machine, cells, choices(cells))


def machine_answers(
    results: Results, machine: str, cells: pd.DataFrame, table: pd.DataFrame
) -> MachineAnswers:
    """Combine results, their credible cells (see ``cells_of``) and the choices of these cells."""
    memcpy = pd.Series(limit_of(cells).seconds, dtype=float).sort_index()
    limit = ANY_SIZE if memcpy.empty else memcpy / memcpy.index
    effects = [
        *neighbour_costs(cells),
        *(gain for each in setting_advice(results, cells) for gain in each.gains),
    ]
    quiet = min(results.quiet, default=None)
    return MachineAnswers(
        machine, results.last, quiet, costs(cells, table), limit, effects, _dtypes(results)
    )


def costs(cells: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return the choices of all kinds but OTHER, with their costs.

    rate    bytes per second where the bytes take most of the time, else NaN; share: of the memcpy or link limit, or NaN
    arrays  number of arrays in the source, ``nbytes`` together
    paid    the memory that is pinned once, by its name in the route; once: its seconds, NaN where not measured
    how     MEASURED, and no range: see ``estimate``
    """
    links, memcpy = links_of(cells), limit_of(cells)
    pinning = cells.loc[cells["role"] == Role.PINNING, [*OF_CELL, "method"]].assign(kind=BEST)
    fastest = table.groupby(["need", "route"], sort=False)["seconds"].transform("min")
    moves = (
        (table["seconds"] >= BY_BYTES * fastest)
        & (table["memory"] != ALIAS)
        & ~table["enqueue"].astype(bool)
    )

    def cost(row: Any) -> tuple[float, int, str, float]:
        copies = (
            memcpy if row.threads in ("", ONE_THREAD) and not row.goal else None
        )  # a cast moves other bytes
        bound = links.get(row.direction) if row.need.crosses else copies
        what, clock, nbytes = _paid(row.route, row.nbytes, row.need)
        once = estimate(pinning[pinning["method"] == clock], nbytes) if what else {"seconds": 0.0}
        share = bound.share(row) if bound and row.rate > 0 else None
        return share or math.nan, row.declared.arrays, what, once["seconds"] if once else math.nan

    rows = table.assign(rate=(table["nbytes"] / table["seconds"]).where(moves))[
        table["kind"] != OTHER
    ]
    more = pd.DataFrame(
        [*map(cost, rows.itertuples())], rows.index, ["share", "arrays", "paid", "once"]
    )
    return (
        rows[["need", *NEED_FIELDS, *OF_CELL, "kind", "rate"]]
        .join(more)
        .assign(how=MEASURED, is_range=False)
    )


def _paid(route: str, nbytes: int, need: Need) -> tuple[str, str, int]:
    """Return the route's name of the memory that is pinned once ("": none), the method that pins it, and its bytes."""
    for name, pinned in {"buffers": 2 * nbytes, "s": nbytes, "stages": CHUNKS}.items():
        if need.host and uses(route, name):
            return name, contracts.ALLOCATE, pinned
    if need.host != contracts.PINNED or (
        need.direction == DEVICE_TO_HOST and need.memory != contracts.INTO
    ):
        return (
            "",
            "",
            0,
        )  # torch's allocator keeps pinned memory, so the time of a new result includes it
    return *(
        ("h", contracts.ALLOCATE) if need.direction == DEVICE_TO_HOST else ("t", contracts.PIN)
    ), nbytes


def add_totals(rows: pd.DataFrame, count: int = 1, pinned: bool = True) -> pd.DataFrame:
    """Add ``total``, the seconds per transfer with one-time costs amortised over ``count`` transfers. If memory is
    ``pinned`` already, pinning is free."""
    free = (rows["host"] == contracts.PINNED) & pinned
    rows = rows.assign(paid=rows["paid"].mask(free, ""), once=rows["once"].mask(free, 0.0))
    return rows.assign(total=rows["seconds"] + rows["once"].fillna(0.0) / count)


def _dtypes(results: Results) -> dict[str, dict[str, str]]:
    """Direction -> dtype that the suite times, or one of UNTIMED -> why it has no figure in that direction; "" where it
    has one."""
    found: dict[str, dict[str, str]] = {}
    for each in (
        each
        for each in results.benchmarks.values()
        if each.role in (Role.CONVERSION, Role.TRANSFER)
    ):
        found.setdefault(each.direction, {}).update(
            (word.strip("'"), "") for word in each.listed("dtype")
        )
    found = {
        direction: {**dtypes, **dict.fromkeys(UNTIMED, "")} for direction, dtypes in found.items()
    }
    cells = results.of_role(results.cells, Role.CONVERSION)
    for (way, dtype), rows in cells.groupby(["direction", "dtype"], observed=True):
        skipped = rows["reason"][rows["status"] == "skipped"]
        if len(skipped) and not (rows["status"] == "measured").any():
            found[way][dtype] = f"not on this toolchain, {skipped.iloc[-1]}"
    return found


def closest_machine(
    records: Mapping[str, RunRecord], conditions: Conditions, device: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the machine most like one with these conditions, and the fields that differ. device: prefer machines with an
    accelerator."""

    def differs(machine: str) -> tuple[str, ...]:
        return tuple(
            name
            for name in MACHINE
            if getattr(records[machine].conditions, name) != getattr(conditions, name)
        )

    def distance(machine: str) -> tuple[bool, int, int]:
        lacking, cores = (
            device and not records[machine].settings.device,
            records[machine].conditions.cores or 0,
        )
        return lacking, len(differs(machine)), abs(cores - (conditions.cores or 0))

    nearest = min(records, key=distance)
    return nearest, differs(nearest)
