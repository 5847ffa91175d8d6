"""The measured routes of one machine with their costs, and the machine most like another."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from cli import RESULTS, UserError
from pandas import DataFrame, Series
from store import files
from store.frames import Choice, rows_of
from store.questions import remember
from store.schema import (
    HARDWARE,
    UNKNOWN,
    Conditions,
    RunRecord,
    Settings,
    have_other_builds,
    machine_differences,
)
from toolchains import interpreters

from benchmarks.contracts import (
    ALIAS,
    ALL_THREADS,
    ALLOCATE,
    COPY,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    INTO,
    ONE_THREAD,
    PAGEABLE,
    PARALLEL,
    PIN,
    PINNED,
    Role,
)

from .cells import BY_BYTES, Limit, cells_of, itemsize, limit_of, links_of
from .estimates import ANY_SIZE, MEASURED, estimate
from .findings import Gain, neighbour_costs, setting_advice
from .needs import NEED_FIELDS, Case, Need, choices, uses
from .ranking import BEST, OTHER, Steadiness
from .results import Results, load_files, newest, where

T = TypeVar("T")
# Dtypes with tested contracts and no times: bits are bits
UNTIMED_DTYPES = ("int8", "int16", "complex128")
# From here on glibc gives fresh memory fresh pages at every call, see benchmarks/core/sources.py
FRESH_BYTES = 32 * 2**20
# NumPy releases the GIL to copy a larger array, which takes 70 ns on Emerald Rapids for any dtype
# (NPY_BEGIN_THREADS_THRESHOLDED in numpy/ndarraytypes.h)
MAX_ELEMENTS_WITH_GIL = 500
# CUDA's driver copies more than this from pageable memory through its own pinned memory
MAX_UNSTAGED_BYTES = 64 * 2**10
CHUNK_BYTES = 8 * 2**20  # pinned memory that a copy in chunks keeps, see benchmarks/core/moving.py
CELL_FIELDS = [
    *("nbytes", "route", "seconds", "low", "high", "within", "quiet", "contract", "excess_limit")
]


class Candidate(Choice):
    """A route for a need at a size with its costs: a row of ``costs``, ``add_totals`` or
    ``Answer.routes``, of ``rows_of``.

    rate      bytes per second; NaN where the bytes do not decide the time
    share     of the limit of its bytes; NaN where it has none
    paid      the memory that is pinned once, by its name in the route; "": none
    once      seconds that this takes; NaN where not measured
    how       MEASURED, INTERPOLATED or EXTRAPOLATED
    is_range  the seconds are given as a range
    total     seconds per transfer with one-time costs; of ``add_totals``
    sizes     that an estimate rests on; of ``Answer.routes``
    counts    numbers of arrays that an estimate rests on; of lists of another number
    """

    rate: float
    share: float
    paid: str
    once: float
    how: str
    is_range: bool
    total: float
    sizes: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class MachineAnswers:
    """The measured routes and effects of one machine and one toolchain.

    run      the record of the last run
    quiet    smallest of ``Results.quiet``; None: not known
    rows     the choices of all kinds but OTHER, with their costs: see ``costs``
    limit    seconds per byte of memcpy, by size
    effects  costs of placement and gains of settings
    dtypes   direction -> dtype that can be asked for -> why it has no figure
    """

    name: str
    run: RunRecord
    quiet: float | None
    rows: DataFrame
    limit: "Series[float]"
    effects: Sequence[Gain]
    dtypes: Mapping[str, Mapping[str, str]]

    @property
    def threads(self) -> int:
        """The default number of torch threads."""
        return self.run.settings.torch_threads or 1

    @cached_property
    def spreads(self) -> bool:
        """Whether conversions were measured with torch's default number of threads."""
        return ALL_THREADS in set(self.rows["threads"])

    @property
    def is_steady(self) -> bool:
        """See ``Steadiness``."""
        return Steadiness(self.quiet).is_steady

    def torch_threads(self, case: Case) -> str:
        """Return the number of torch threads of a case as ``Need.threads`` spells it."""
        default = "" if case.device else ALL_THREADS if self.spreads else ONE_THREAD
        threads = case.threads or default
        return ALL_THREADS if self.spreads and threads == f"{self.threads}" else threads

    def jump_sizes(self, need: Need) -> list[int]:
        """Return the sizes at which the times of a need jump: torch spreads a copy over its
        threads, NumPy releases the GIL for each array of a list, a driver stages, or a result in
        host memory takes FRESH_BYTES."""
        item = itemsize(need.dtype)
        sizes = []
        if need.arrays:
            sizes.append((MAX_ELEMENTS_WITH_GIL + 1) * item * need.arrays)
        if need.memory != ALIAS and need.threads not in ("", ONE_THREAD):
            sizes.append(PARALLEL * item)
        if need.direction == HOST_TO_DEVICE:
            sizes += [MAX_UNSTAGED_BYTES + 1] if need.host == PAGEABLE else []
        elif need.memory == COPY and self.run.conditions.libc.startswith("glibc"):
            sizes.append(FRESH_BYTES * item // itemsize(need.goal or need.dtype))
        return sorted(sizes)

    def regime(self, need: Need, nbytes: int) -> int:
        """Return the number of ``jump_sizes`` up to a size."""
        return sum(jump <= nbytes for jump in self.jump_sizes(need))


# --- loading --------------------------------------------------------------------------------------


def last_run(results: Path, machine: str) -> tuple[RunRecord, list[Path]]:
    """Return the last run of a machine and its result file; all result files if there is no
    record."""
    paths = files.result_files(results, machine)
    records = files.result_files(results, machine, files.RECORDS)
    return remember("last run", [*paths, *records], lambda: _last_run(paths))


def _last_run(paths: list[Path]) -> tuple[RunRecord, list[Path]]:
    runs = {path: files.read_records(path) for path in paths}
    last = newest(runs)[:1]
    return (runs[last[0]][-1], last) if last else (UNKNOWN, [*runs])


def last_runs(results: Path, machine: str | None = None) -> dict[str, RunRecord]:
    """Return the record of the last run of each machine, or of one. UserError if there are no
    results of it."""
    machines = files.machines(results)
    if machine not in (None, *machines):
        raise UserError(
            f"--machine {machine}: no results of it, there are those of {', '.join(machines)}"
        )
    return {name: last_run(results, name)[0] for name in machines if machine in (None, name)}


def load_machine(results: Path, machine: str) -> MachineAnswers:
    """Load the last run of a machine with results; UserError if a file is broken."""
    return _load(results, machine, _answers)


def load_choices(results: Path, machine: str) -> DataFrame:
    """Load the choices of the last run of a machine, of all kinds."""
    return _load(results, machine, _times)


def _load(results: Path, machine: str, compute: Callable[[Results, str], T]) -> T:
    """Compute a value of the last run of a machine, or take it from before."""
    _, paths = last_run(results, machine)
    suffixes = (".json", files.MEASUREMENTS, files.RECORDS)
    inputs = {*results.glob("*.json*"), RESULTS / files.TABLE, *paths}
    inputs |= {files.sibling(path, suffix) for path in paths for suffix in suffixes}
    existing = filter(Path.is_file, inputs)
    name = f"{compute.__name__} {machine}"
    return remember(name, existing, lambda: compute(load_files(results, paths), machine))


def _credible_cells(loaded: Results) -> DataFrame:
    cells = cells_of(loaded)
    return where(cells, credible=True)


def _answers(loaded: Results, machine: str) -> MachineAnswers:
    cells = _credible_cells(loaded)
    return machine_answers(loaded, machine, cells, choices(cells))


def _times(loaded: Results, machine: str) -> DataFrame:
    table = choices(_credible_cells(loaded))
    return table[[*NEED_FIELDS, *CELL_FIELDS]].drop(columns="contract")


def machine_answers(
    results: Results, machine: str, cells: DataFrame, table: DataFrame
) -> MachineAnswers:
    """Combine results, their credible cells (see ``cells_of``) and the choices of these cells."""
    memcpy = Series(limit_of(cells).seconds, dtype=float).sort_index()
    effects = neighbour_costs(cells)
    for advice in setting_advice(results, cells):
        effects += advice.gains
    return MachineAnswers(
        name=machine,
        run=results.last,
        quiet=results.quiet_share,
        rows=costs(cells, table),
        limit=ANY_SIZE if memcpy.empty else memcpy / memcpy.index,
        effects=effects,
        dtypes=_dtypes(results),
    )


def _dtypes(results: Results) -> dict[str, dict[str, str]]:
    """Return direction -> dtype that the suite times, or one of UNTIMED_DTYPES -> why it has no
    figure in that direction; "" where it has one."""
    reasons: dict[str, dict[str, str]] = {}
    for declared in results.benchmarks.values():
        if declared.role in (Role.CONVERSION, Role.TRANSFER):
            dtypes = [word.strip("'") for word in declared.listed("dtype")]
            reasons.setdefault(declared.direction, {}).update(dict.fromkeys(dtypes, ""))
    for dtypes_of_direction in reasons.values():
        dtypes_of_direction.update(dict.fromkeys(UNTIMED_DTYPES, ""))
    cells = results.of_role(results.cells, Role.CONVERSION)
    for (direction, dtype), rows in cells.groupby(["direction", "dtype"], observed=True):
        skipped = where(rows, status="skipped")["reason"]
        if len(skipped) and not (rows["status"] == "measured").any():
            reasons[direction][dtype] = f"not on this toolchain, {skipped.iloc[-1]}"
    return reasons


def closest_machine(
    records: Mapping[str, RunRecord], conditions: Conditions, device: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the machine most like one with these conditions and this Python, and the fields that
    differ.

    device: prefer machines with an accelerator
    """
    current = Settings(build=interpreters.build())
    differences = {}
    for name, record in records.items():
        fields = machine_differences(record.conditions, conditions, is_strict=True)
        # optimised or not, whatever the release of Python
        is_other = have_other_builds(current, record.settings)
        differences[name] = (*fields, "build") if is_other else fields

    def distance(name: str) -> tuple[bool, int, int, int]:
        record = records[name]
        lacks_device = device and not record.settings.device
        more_cores = (record.conditions.cores or 0) - (conditions.cores or 0)
        hardware = len({*HARDWARE}.intersection(differences[name]))
        return lacks_device, hardware, len(differences[name]), abs(more_cores)

    nearest = min(records, key=distance)
    return nearest, differences[nearest]


# --- costs ----------------------------------------------------------------------------------------


def costs(cells: DataFrame, table: DataFrame) -> DataFrame:
    """Return the choices of all kinds but OTHER, with their costs: see Candidate."""
    fastest = table.groupby(["need", "route"], sort=False)["seconds"].transform("min")
    moves_bytes = (table["memory"] != ALIAS) & ~table["enqueue"]
    moves_bytes &= table["seconds"] >= BY_BYTES * fastest
    rate = (table["nbytes"] / table["seconds"]).where(moves_bytes)
    table = table.assign(rate=rate)[table["kind"] != OTHER]
    memcpy = limit_of(cells)
    links = links_of(cells)
    pinning = where(cells, role=Role.PINNING)[[*CELL_FIELDS, "method"]].assign(kind=BEST)
    shares = []
    one_time_costs = []
    for row in rows_of(table):
        limit = links.get(row.direction, Limit()) if row.need.crosses else memcpy
        shares.append(_share(row, row.rate, limit))
        one_time_costs.append(_one_time_cost(row, pinning))
    paid = DataFrame(one_time_costs, table.index, ["paid", "once"])
    columns = ["need", *NEED_FIELDS, *CELL_FIELDS, "kind", "rate"]
    return table[columns].assign(share=shares).join(paid).assign(how=MEASURED, is_range=False)


def _share(row: Choice, rate: float, limit: Limit) -> float:
    """Return the route's share of its limit; NaN where it has none. A cast moves other bytes than
    memcpy, and several threads move more."""
    has_limit = row.need.crosses or (row.threads in ("", ONE_THREAD) and not row.goal)
    if not has_limit or not rate > 0:
        return math.nan
    return limit.share(row) or math.nan


def _one_time_cost(row: Choice, pinning: DataFrame) -> tuple[str, float]:
    """Return the memory that is pinned once, by its name in the route ("": none), and the seconds
    that this takes, NaN where not measured."""
    name, method, nbytes = _pinned_memory(row.route, row.nbytes, row.need)
    if not name:
        return "", 0.0
    estimated = estimate(where(pinning, method=method), nbytes)
    return name, estimated["seconds"] if estimated else math.nan


def _pinned_memory(route: str, nbytes: int, need: Need) -> tuple[str, str, int]:
    """Return the route's name of the memory that is pinned once ("": none), the method that pins
    it, and its bytes."""
    staging = {"buffers": 2 * nbytes, "s": nbytes, "stages": CHUNK_BYTES}
    for name, pinned_bytes in staging.items():
        if need.host and uses(route, name):
            return name, ALLOCATE, pinned_bytes
    if need.host == PINNED and need.direction != DEVICE_TO_HOST:
        return "t", PIN, nbytes
    if need.host == PINNED and need.memory == INTO:
        return "h", ALLOCATE, nbytes
    # torch's allocator keeps pinned memory, so the time of a new result includes it
    return "", "", 0


def add_totals(rows: DataFrame, count: int = 1, pinned: bool = True) -> DataFrame:
    """Add ``total``, the seconds per transfer with one-time costs amortised over ``count``
    transfers. If memory is ``pinned`` already, pinning is free."""
    is_free = (rows["host"] == PINNED) & pinned
    paid = rows["paid"].mask(is_free, "")
    once = rows["once"].mask(is_free, 0.0)
    return rows.assign(paid=paid, once=once, total=rows["seconds"] + once.fillna(0.0) / count)
