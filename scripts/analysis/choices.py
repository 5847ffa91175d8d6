"""Ranked routes for every need at every measured size, and the routes for a case.

``choices`` is that table. A page's answers and tables, its form and scripts/advise.py are views of it. A need is a
source with a wanted result (see Need); its candidates are the routes that produce it. At each size a route is good
where it is safe, not decided to be slower than another safe one (see cells.slower), and at most AS_GOOD behind the
fastest. A safe route has no hazard, and no input makes it die or give a wrong result silently. Neighbouring sizes that
have a good route in common get one route. Of several it is the one that is good at the most sizes, so that an answer
names few routes; of equals the one closest to the fastest.

The fastest median at each size would change with noise: on three machines a copy's answer had 3 or 4 parts instead of 1
or 2. The first tied route of the catalogue cost up to 30 %.

A case is an array of a given size with its source and target. ``answer`` looks up its routes in the table. Between
measured sizes a time is interpolated; where their bandwidths or processes differ, it is a range. Beyond them it is
extrapolated, up to FARTHEST times the size. Times are not extended across a size at which they jump, nor from one
layout to another.
"""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cli import UserError, size
from store import files
from store.records import MACHINE, UNKNOWN, Conditions, Record

from benchmarks import contracts
from benchmarks.contracts import (
    ALIAS,
    ALL_THREADS,
    CONTIGUOUS,
    COPY,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    ONE_THREAD,
    Role,
)

from .cells import (
    AS_GOOD,
    BY_BYTES,
    DIRECTIONS,
    LINK,
    UNSAID,
    cells_of,
    is_steady,
    itemsize,
    limit_of,
    links_of,
    slower,
    unbeaten,
    usual_dtype,
    with_threads,
)
from .findings import Gain, advised, between_neighbours
from .results import Results, load_files, newest

NUMPY, TORCH, CUDA = ENDS = ("numpy", "torch", "cuda")
ZERO_D, TRANSPOSED = (
    "0-d",
    "m",
)  # a layout, and the name of a transposed source in routes that cross a link
# Source and target -> direction, and whether the host's end of a link is a NumPy array
WAYS = {
    (NUMPY, TORCH): (contracts.NUMPY_TO_TORCH, False),
    (TORCH, NUMPY): (contracts.TORCH_TO_NUMPY, False),
    (NUMPY, CUDA): (HOST_TO_DEVICE, True),
    (TORCH, CUDA): (HOST_TO_DEVICE, False),
    (CUDA, NUMPY): (DEVICE_TO_HOST, True),
    (CUDA, TORCH): (DEVICE_TO_HOST, False),
}
FLOATS = ("float", "bfloat", "complex")
UNTIMED = (
    "int8",
    "int16",
    "complex128",
)  # dtypes with tested contracts and no times: bits are bits
FRESH = (
    32 * 2**20
)  # bytes: from here on glibc gives fresh memory fresh pages at every call, see benchmarks/sources.py
# Elements: NumPy releases the GIL to copy a larger array, which takes 70 ns on Emerald Rapids for any dtype
# (NPY_BEGIN_THREADS_THRESHOLDED in numpy/ndarraytypes.h)
RELEASED = 500
STAGED = (
    64 * 2**10
)  # bytes: CUDA's driver copies more than this from pageable memory through its own pinned memory
CHUNKS = 8 * 2**20  # bytes of pinned memory that a copy in chunks keeps, see benchmarks/moving.py
FELT = 1.25  # times the shortest call: from here on a time says something about bandwidth
FARTHEST = 4.0  # extrapolation ends at this multiple of the largest measured size, or fraction of the smallest
UNSTEADY = (
    0.25  # relative: difference between sessions of an unsteady machine; of a steady one AS_GOOD
)
# Relative: an estimated time is given as a range if processes of a session may be further off. Between two runs of one
# machine, 94 % of the figures with processes this close differ by less, and 74 % of the others (docs/accuracy.md)
CLOSE = 0.15
SLOW = 1.5  # a route that takes more than this many times the recommended one's seconds is worth a warning
MEASURED, INTERPOLATED, EXTRAPOLATED = ("measured", "interpolated", "extrapolated")
# Kinds of routes of a need at a size: the best, as good, slower, undecided (an upper bound); faster on a condition;
# faster and not safe; of no use
GOOD = BEST, TIE, SLOWER, UNDECIDED = "best", "tie", "slower", "undecided"
KINDS = (*GOOD, CONDITION := "condition", UNSAFE := "unsafe", OTHER := "other")
OF_CELL = ["nbytes", "route", "seconds", "low", "high", "within", "quiet", "contract"]
AT = ["number", "nbytes"]  # the need, by its number, and the size
SAME: "pd.Series[float]" = pd.Series([1.0])  # seconds per byte that are the same at any size


def uses(route: str, name: str) -> bool:
    """Whether a route's expression uses a name of the catalogue."""
    return re.search(rf"\b{name}\b", route) is not None


# --- routes of a need -------------------------------------------------------------------------------------------------


def rank(cells: pd.DataFrame, needs: Sequence[str] = ()) -> pd.DataFrame:
    """Rank the routes of one need, or of each value of the columns ``needs``: the cells by need and size, in the order
    to take them, and

    part     of the answer: neighbouring sizes with the same best route and the same fastest route with a condition
    kind     BEST, TIE, SLOWER, UNDECIDED (one of both is an upper bound), CONDITION, UNSAFE or OTHER
    leads    it is the best, or the fastest route with a condition, as far as decided
    ratio    of its seconds to those of the best route at that size
    slow     it is decided to take more than SLOW times as long as the best
    """
    cells = cells.assign(number=cells.groupby([*needs], sort=False).ngroup() if needs else 0)
    # candidates keep the dtype, if any route does; of these, the wanted ones are safe, if any is
    candidate = cells["keeps"] | ~cells.groupby("number")["keeps"].transform("any")
    safe = candidate & cells["safe"]
    wanted = candidate & (safe | ~safe.groupby([cells[name] for name in AT]).transform("any"))
    cells = cells.assign(candidate=candidate, wanted=wanted)
    cells = cells.merge(_taken(cells[wanted]), on=AT)
    taken = cells[(cells["route"] == cells["taken"]) & cells["candidate"]].drop_duplicates(AT)
    best, chosen = cells.index.isin(taken.index), cells[AT].merge(taken, on=AT)
    behind, far, ahead = (
        slower(cells, chosen),
        slower(cells, chosen, SLOW - 1),
        slower(chosen, cells),
    )
    alike = np.where(cells["quiet"] & chosen["quiet"], TIE, UNDECIDED)
    kinds = [
        best,
        cells["wanted"] & behind,
        cells["wanted"],
        ~cells["candidate"] | ~ahead,
        cells["non_blocking"],
    ]
    cells["kind"] = np.select(kinds, [BEST, SLOWER, alike, OTHER, CONDITION], UNSAFE)
    cells["leads"] = best | cells.index.isin(unbeaten(cells[cells["kind"] == CONDITION], AT).index)
    cells["ratio"], cells["slow"] = cells["seconds"] / chosen["seconds"], far
    # among routes with a condition the leaders come first, in the order of the catalogue
    places = {"place": cells["kind"].map(KINDS.index), "later": ~cells["leads"]}
    places["then"] = cells["seconds"].where(places["later"], 0.0)
    cells = cells.assign(**places).sort_values(
        [*AT, "place", "later", "then", "order"], kind="stable"
    )
    cells = cells.join(_parts(cells).rename("part"), on=AT)
    return cells.drop(columns=["candidate", "wanted", "taken", "place", "later", "then"])


def _taken(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the route to take (``taken``) for each need and size: one per run of neighbouring sizes, with as few runs
    as possible. It is good at all sizes of its run: no route is decided to be faster, and it takes at most AS_GOOD
    longer than the fastest. A route without a quiet process is judged by its upper bound."""
    good = unbeaten(cells, AT)
    ratio = good["seconds"] / good.groupby(AT)["seconds"].transform("min")
    good = good.assign(behind=np.log(ratio))[ratio <= 1 + AS_GOOD]
    routes = good.groupby(AT)["route"].agg(set)
    run = _runs(routes.index.get_level_values("number"), routes)
    often = good.groupby(["number", "route"])["nbytes"].transform("size")
    good = good.assign(often=often, sizes=1).join(run.rename("run"), on=AT)
    added = {"sizes": "sum", "often": "first", "behind": "sum", "order": "first"}
    each = good.groupby(["run", "route"], as_index=False).agg(added)
    # a route common to all sizes of a run has the largest count of sizes
    each = each.sort_values([*added], ascending=[False, False, True, True]).drop_duplicates("run")
    return (
        good[[*AT, "run"]]
        .drop_duplicates()
        .merge(each.rename(columns={"route": "taken"})[["run", "taken"]])
    )


def _parts(ranked: pd.DataFrame) -> "pd.Series[int]":
    """``part`` of each need and size."""
    best = ranked[ranked["kind"] == BEST].set_index(AT)["route"]
    led = (
        ranked[(ranked["kind"] == CONDITION) & ranked["leads"]]
        .groupby(AT)["route"]
        .agg(set)
        .to_dict()
    )
    leaders = pd.Series([led.get(at, set[str]()) for at in best.index], best.index, dtype=object)
    return _runs(zip(best.index.get_level_values("number"), best), leaders)


def _runs(keys: Iterable[Any], sets: "pd.Series[Any]") -> "pd.Series[int]":
    """Return the number of the run that each item belongs to. A run consists of neighbours with one key, whose sets all
    share an element or are all empty."""
    begins, before, common = list[bool](), None, set[str]()
    for key, own in zip(keys, sets):
        begins.append(key != before or not (common & own or common == own == set()))
        before, common = key, own if begins[-1] else common & own
    return pd.Series(begins, sets.index, dtype=int).cumsum()


# --- needs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """A source and the wanted result. Routes of one need are ranked against each other.

    memory   alias, copy or into
    goal     dtype of the result; "": that of the source
    batch    several arrays become one
    threads  torch threads: ONE_THREAD, another number, or ALL_THREADS; "" where a link is crossed
    host     memory at the host's end of a link; array: the host's end is a NumPy array, else a tensor
    enqueue  ranked by enqueue time, else by completion time
    """

    direction: str
    memory: str
    dtype: str
    goal: str = ""
    layout: str = CONTIGUOUS
    grad: bool = False
    batch: bool = False
    threads: str = ""
    host: str = ""
    array: bool = False
    enqueue: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is one array or tensor that keeps its dtype and requires no grad."""
        return not (self.goal or self.grad or self.batch)

    @property
    def crosses(self) -> bool:
        """Whether it crosses the link to a device."""
        return self.direction in LINK


NEED = tuple(Need.__dataclass_fields__)


def choices(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the ranked routes of every need in the cells, with the columns of ``rank`` and Need, and the need."""
    needed = _needed(cells)
    kept = needed.groupby([*NEED])["keeps"].transform("any")
    table = rank(needed[kept | (needed["goal"] != "")], NEED)  # else all change it
    return table.assign(need=[Need(*need) for need in table[[*NEED]].itertuples(index=False)])


def _needed(cells: pd.DataFrame) -> pd.DataFrame:
    """Select the cells that answer a need, with the columns NEED. Enqueue time is a need of its own; there the caller
    is taken to heed the hazard."""
    numbers = sorted({ONE_THREAD, *cells.loc[~cells["device"], "threads"]})
    on_host = (with_threads(cells, threads).assign(threads=threads) for threads in numbers)
    cells = pd.concat([*on_host, cells[cells["device"]].assign(threads="")], ignore_index=True)
    transposed = cells["device"] & cells["route"].map(lambda route: uses(route, TRANSPOSED)).astype(
        bool
    )
    moved = transposed | (cells["role"] == Role.TRANSFER)
    arrays = cells["declared"].map(lambda declared: declared.arrays > 0).astype(bool)
    # families of layouts have a contiguous source, too, to compare theirs with
    roles = (Role.CONVERSION, Role.GRAD, Role.LISTS, Role.CASTING)
    plain = cells["role"].isin(roles) | arrays | (cells["layout"] != "")
    clocked = cells["method"].isin((contracts.COMPLETION, contracts.ENQUEUE))
    asked = clocked.where(moved, plain & (cells["layout"] != CONTIGUOUS))
    named = (cells["route"] != "") & (cells["memory"] != "") & cells["direction"].isin(DIRECTIONS)
    cast = (cells["role"] == Role.CASTING) & ~cells["keeps"]
    needed = cells.assign(
        dtype=cells["dtype"].replace("", UNSAID),
        goal=cells["contract"].map(lambda contract: contract.casts_to).where(cast, ""),
        layout=cells["layout"]
        .replace("", CONTIGUOUS)
        .mask(moved, CONTIGUOUS)
        .mask(transposed, "transposed"),
        grad=cells["role"] == Role.GRAD,
        batch=arrays,
        array=cells["contract"].map(lambda contract: contract.array).astype(bool),
        enqueue=False,
    )[asked & named]
    crosses = needed["device"] & needed["direction"].isin(LINK)
    early = crosses & (needed["method"] == contracts.ENQUEUE)
    heeded = needed["contract"].map(lambda contract: replace(contract, hazard="").safe).astype(bool)
    held = needed.assign(enqueue=True, safe=heeded.where(early, needed["safe"]))
    both = pd.concat(
        [needed[~early], held[early | (crosses & ~needed["non_blocking"])]], ignore_index=True
    )
    # routes that torch does not spread may also have been measured with several threads: then those cells count
    return both.drop_duplicates([*NEED, "nbytes", "route"], keep="last", ignore_index=True)


def asked(table: pd.DataFrame, threads: str) -> list[pd.DataFrame]:
    """Return the rows of each answer on a page: alias, copy and into in either direction for the usual dtype; sources
    that require grad; lists; and casts, where dtypes with one recommendation share an answer."""
    here = table[
        (table["threads"] == threads) & (table["layout"] == CONTIGUOUS) & (table["host"] == "")
    ]
    grad, batch, goal = here["grad"].astype(bool), here["batch"].astype(bool), here["goal"] != ""
    plain = here[~(grad | batch | goal)]
    plain = plain[plain["dtype"] == usual_dtype(plain)]
    ways = itertools.product(contracts.MEMORIES, plain["direction"].unique())
    found = [
        plain[(plain["memory"] == memory) & (plain["direction"] == way)] for memory, way in ways
    ]
    found += [
        here[grad & (here["memory"] == ALIAS)],
        here[batch & (here["direction"] == contracts.NUMPY_TO_TORCH)],
    ]
    casts: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for need, rows in here[goal].groupby("need", sort=False):
        best = rows[rows["kind"] == BEST]
        if best["safe"].all():
            routes = best.drop_duplicates("part")["route"]
            casts.setdefault((need.direction, need.goal, *routes), []).append(rows)
    found += [
        pd.concat(casts[key]) for key in sorted(casts, key=lambda key: DIRECTIONS.index(key[0]))
    ]
    return [rows for rows in found if len(rows)]


# --- measurements of a machine ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """The measured routes and effects of one machine and one toolchain.

    run      the record of the last run
    quiet    smallest of ``Results.quiet``; None: not known
    rows     the choices of all kinds but OTHER, with their costs: see ``costs``
    limit    seconds per byte of memcpy, by size
    effects  costs of placement and gains of settings
    dtypes   direction -> dtype that can be asked for -> why it has no figure
    """

    machine: str
    run: Record
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
    def steady(self) -> bool:
        """See ``is_steady``."""
        return is_steady(self.quiet)

    def breaks(self, need: Need) -> list[int]:
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


def latest(results: Path, machine: str) -> tuple[Record, list[Path]]:
    """Return the last run of a machine and its result file; all result files if there is no record."""
    runs = {path: files.read_records(path) for path in files.result_files(results, machine)}
    last = newest(runs)[:1]
    return (runs[last[0]][-1], last) if last else (UNKNOWN, [*runs])


def known_in(results: Path, machine: str) -> Known:
    """Load the last run of a machine with results; UserError if a file is broken."""
    loaded = load_files(results, latest(results, machine)[1])
    cells = cells_of(loaded)
    cells = cells[cells["credible"]]
    return known_of(loaded, machine, cells, choices(cells))


def known_of(results: Results, machine: str, cells: pd.DataFrame, table: pd.DataFrame) -> Known:
    """Combine results, their credible cells (see ``cells_of``) and the choices of these cells."""
    memcpy = pd.Series(limit_of(cells).seconds, dtype=float).sort_index()
    limit = SAME if memcpy.empty else memcpy / memcpy.index
    effects = [
        *between_neighbours(cells),
        *(gain for each in advised(results, cells) for gain in each.gains),
    ]
    quiet = min(results.quiet, default=None)
    return Known(
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
        rows[["need", *NEED, *OF_CELL, "kind", "rate"]]
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


def priced(rows: pd.DataFrame, count: int = 1, pinned: bool = True) -> pd.DataFrame:
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


# --- cases ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A source of a given size and the wanted result.

    nbytes   of the source; per array if there are several
    memory   alias, copy or into; "": alias where possible, else copy
    host     memory at the host's end of a link; "": pageable, or pinned once by the caller
    batch    number of arrays that become one; 0: a single source
    enqueue  rank by enqueue time
    count    number of transfers over which one-time costs are amortised
    goal     dtype of the result; "": that of the source
    threads  of torch; "": its default number, or one if no other was measured
    """

    source: str
    target: str
    nbytes: int
    dtype: str = "float32"
    layout: str = CONTIGUOUS
    memory: str = ""
    host: str = ""
    grad: bool = False
    batch: int = 0
    enqueue: bool = False
    count: int = 1
    goal: str = ""
    threads: str = ""

    @property
    def device(self) -> bool:
        return CUDA in (self.source, self.target)

    @property
    def total(self) -> int:
        """Bytes that are moved."""
        return self.nbytes * max(1, self.batch)

    @property
    def layouts(self) -> list[str]:
        """Layouts whose times can be used, the best first: those of even arrays may be used for uneven ones."""
        uneven = self.batch and self.layout == CONTIGUOUS and self.nbytes % contracts.LINE
        return [contracts.UNEVEN, CONTIGUOUS] if uneven else [self.layout]

    def threads_in(self, known: Known) -> str:
        """Return the number of torch threads as ``Need.threads`` spells it."""
        asked = self.threads or (
            "" if self.device else ALL_THREADS if known.spreads else ONE_THREAD
        )
        return ALL_THREADS if known.spreads and asked == str(known.threads) else asked


@dataclass(frozen=True)
class Answer:
    """routes: rows of ``estimate``, ``priced``. First the routes to take, in order, at least one; then those that would
    be faster on a condition, or without a hazard.

    unmeasured   suitable routes without a measured size that can be used for the case
    instead      the other dtype and "no grad" whose times are used; "" if the times are the case's own
    """

    case: Case
    known: Known
    routes: pd.DataFrame
    unmeasured: tuple[str, ...] = ()
    instead: str = ""

    @property
    def ranked(self) -> list[Any]:
        return self.of(*GOOD)

    def of(self, *kinds: str) -> list[Any]:
        return list(self.routes[self.routes["kind"].isin(kinds)].itertuples())


def answer(case: Case, known: Known) -> Answer:
    """Return the routes for a case. UserError if the case is impossible, or no measured time can be used for it.

    A case without times of its own may use those of the usual dtype, or of a source that requires no grad: bits are
    bits, and detaching takes no time. Those of another layout are not used, as the work may differ.
    """
    rows, grads = _alike(case, known), dict.fromkeys([case.grad, False])
    dtypes = dict.fromkeys(
        [case.dtype, case.dtype if case.goal else rows["dtype"].value_counts().index[0]]
    )
    rows = rows[rows["dtype"].isin(dtypes) & rows["grad"].isin(grads)]
    rows = rows[
        rows["memory"] == (case.memory or (ALIAS if (rows["memory"] == ALIAS).any() else COPY))
    ]
    by_source = dict(list(rows.groupby(["dtype", "grad", "layout"])))
    sources = [
        by_source[each]
        for each in itertools.product(dtypes, grads, case.layouts)
        if each in by_source
    ]
    found = [made for own in sources if (made := _by(own, case, known))]
    if not found:
        raise UserError(_nothing(case, known, rows))
    return min(
        found, key=lambda made: made.ranked[0].how == EXTRAPOLATED
    )  # the case's own first, unless extrapolated


def _by(rows: pd.DataFrame, case: Case, known: Known) -> Answer | None:
    """Answer from the rows of one need on any host memory; None if none of its routes may be taken."""
    need = rows["need"].iloc[0]

    def fits(contract: contracts.Route) -> bool:
        takes = case.dtype not in contract.refuses and (contract.takes_grad or not case.grad)
        return takes and contract.memory_for(case.dtype, case.layout) == need.memory

    rows = rows[rows["contract"].map(fits).astype(bool)]
    # rows of the case's own size come first, in their ranking
    rows = rows.sort_values("nbytes", key=lambda sizes: sizes != case.total, kind="stable")
    alias = need.memory == ALIAS and not need.crosses
    limit = SAME if need.crosses or alias else known.limit
    session = AS_GOOD if known.steady else UNSTEADY
    # host -> sizes at which times jump, of the measured dtype and of the case's: torch spreads elements, not bytes
    hosts = {host: replace(need, host=host) for host in rows["host"].unique()}
    leaps = {
        host: (known.breaks(own), known.breaks(replace(own, dtype=case.dtype)))
        for host, own in hosts.items()
    }
    said = {
        (host, route): estimate(curve, case.total, *leaps[host], limit, alias, session)
        for (host, route), curve in rows.groupby(["host", "route"], sort=False)
    }
    found = pd.DataFrame([row for row in said.values() if row], columns=[*rows, "sizes"])
    found = priced(found, case.count, pinned=case.host == contracts.PINNED)
    good = _in_order(found[found["kind"].isin(GOOD)])
    if good.empty:
        return None
    faster = found[~found["kind"].isin(GOOD) & (found["total"] < good["total"].iloc[0])]
    unmeasured = dict.fromkeys(route for (_, route), row in said.items() if row is None)
    instead = [need.dtype] * (need.dtype != case.dtype) + ["no grad"] * (need.grad != case.grad)
    return Answer(case, known, pd.concat([good, faster]), (*unmeasured,), " ".join(instead))


def _in_order(good: pd.DataFrame) -> pd.DataFrame:
    """Keep the ranking of a measured size; sort the routes of any other size by time. Then the route that is best at
    the measured sizes comes first, if it is as good; routes that tie there also tie here, up to the first slower
    one."""
    ranked = good["kind"].head(1).eq(BEST).all() and good["how"].eq(MEASURED).all()
    if ranked and len(good[["host", "paid", "once"]].drop_duplicates()) <= 1:
        return good
    free = good["paid"].eq("")
    named = good["kind"].eq(BEST) & free & (good["total"] <= (1 + AS_GOOD) * good["total"].min())
    first = ~named if named.sum() == 1 else True
    good = good.assign(
        first=first, unknown=good["once"].isna(), alike=good["kind"].ne(SLOWER) & free
    )
    good = good.sort_values(["first", "unknown", "total"], kind="stable")
    kinds = np.where(
        good["kind"] == UNDECIDED, UNDECIDED, np.where(good.pop("alike").cummin(), TIE, SLOWER)
    )
    return good.drop(columns=["first", "unknown"]).assign(kind=[BEST, *kinds[1:]])


def effects_on(best: Any, case: Case, known: Known) -> list[Gain]:
    """Return the effects on the time of a route that moves bytes: settings measured on the case's side of all sizes at
    which times jump; and neighbouring arrays, at the nearest measured size around the case's.

    Only a contiguous source is copied in one piece.
    """
    found = [
        each for each in known.effects if each.is_about(best.contract) and best.memory != ALIAS
    ]
    leaps = known.breaks(best.need)
    settings = [
        e
        for e in found
        if e.setting and all((at <= e.slow.nbytes) == (at <= case.total) for at in leaps)
    ]
    near = [e for e in found if not e.setting and case.layout == CONTIGUOUS]
    sizes = [each.slow.nbytes for each in near]
    if near and min(sizes) <= case.nbytes <= max(sizes):
        settings.append(min(near, key=lambda each: abs(math.log(each.slow.nbytes / case.nbytes))))
    return settings


# --- sizes that were not measured -------------------------------------------------------------------------------------


def estimate(
    curve: pd.DataFrame,
    nbytes: int,
    breaks: Sequence[int] = (),
    own: Sequence[int] = (),
    limit: "pd.Series[float]" = SAME,
    constant: bool = False,
    session: float = AS_GOOD,
) -> dict[str, Any] | None:
    """Estimate the row of a route at one size from its rows by size, with how (measured, interpolated or extrapolated)
    and the sizes that it rests on. None if no measured size can be used. An estimate has no rate and share. Its
    interval holds the times of more processes in another session. It is a range where these would not be CLOSE, or
    sessions differ by more than AS_GOOD.

    breaks: sizes at which times of the curve jump; rows on the other side are not used. own: the same of what is
    estimated. limit: seconds per byte of memcpy by size; if it differs between the size and the measured one, the
    interval holds both. constant: the time does not depend on the size, as for alias routes, so the nearest size holds
    for all sizes beyond it. session: relative difference between sessions.
    """
    curve = curve.sort_values("nbytes")
    here = curve[
        np.searchsorted(breaks, curve["nbytes"], "right") == np.searchsorted(own, nbytes, "right")
    ]
    ends = pd.concat(
        [here[here["nbytes"] <= nbytes].tail(1), here[here["nbytes"] >= nbytes].head(1)]
    )
    ends = ends.drop_duplicates("nbytes")
    if ends.empty:
        return None
    last, sizes = ends.iloc[-1].to_dict(), tuple(ends["nbytes"])
    if nbytes in sizes:
        return {**last, "sizes": sizes}
    most = np.exp(ends["within"].astype(float))
    low, high = (
        ends["low"].clip(upper=ends["seconds"] / most),
        ends["high"].clip(lower=ends["seconds"] * most),
    )
    figures = np.column_stack([ends["seconds"], low, high]).astype(float)
    call = curve["seconds"].min()
    if constant and len(ends) == 1:
        how, (seconds, low, high) = EXTRAPOLATED, figures[0]
    elif len(ends) == 2:
        how, lines = INTERPOLATED, _lines(figures, sizes, nbytes, call)
        (seconds, _, _), low, high = lines[-1], lines[:, 1].min(), lines[:, 2].max()
    else:
        how, ratio = EXTRAPOLATED, nbytes / sizes[0]
        if not 1 / FARTHEST <= ratio <= FARTHEST:
            return None
        # with one size, or from the fastest, the call's part of the time is not known: it may be all of it. Below the
        # smallest size it is at least that of a straight line through the two smallest
        alone, least = len(curve) == 1 or figures[0, 0] <= call, here.head(2)
        if alone and ratio < 1 < len(least):
            call = max(0.0, np.polyfit(least["nbytes"], least["seconds"], 1)[1])
        elif alone:
            call = 0.0
        seconds, low, high = call + np.maximum(0.0, figures[0] - call) * ratio
        if alone:
            low, high = min(low, figures[0, 1]), max(high, figures[0, 2])
        there, then = limit.iloc[
            np.minimum(limit.index.searchsorted([nbytes, sizes[0]]), len(limit) - 1)
        ]
        low, high = low * min(1.0, there / then), high * max(1.0, there / then)
    kind = max(ends["kind"], key=KINDS.index)  # the weaker of the two
    is_range = session > AS_GOOD or max(high / seconds, seconds / low) > 1 + CLOSE
    low, high = low / (1 + session), high * (1 + session)
    figure = {
        "nbytes": nbytes,
        "seconds": seconds,
        "low": low,
        "high": high,
        "rate": math.nan,
        "share": math.nan,
    }
    about = {
        "kind": kind,
        "quiet": ends["quiet"].all(),
        "how": how,
        "sizes": sizes,
        "is_range": is_range,
    }
    return {**last, **figure, **about}


def _lines(figures: Any, sizes: Sequence[int], nbytes: int, call: float) -> Any:
    """Interpolate between the figures of two sizes along several lines, the likely one last: at the bandwidth of
    either, if its bytes are FELT; straight in time against size; and, if the bytes take most of the smaller one's time,
    in log time on top of the call against log size. All of them reproduce a line of latency and bandwidth. Where a
    cache ends between the sizes, times lie between the lines of the two bandwidths."""
    smaller, larger = sizes
    above = np.maximum(0.0, figures - call) * nbytes / np.array(sizes)[:, np.newaxis]
    bandwidths = (call + above[figures[:, 0] >= FELT * call]).clip(
        figures[:, 1].min(), figures[:, 2].max()
    )
    straight = figures[0] + (nbytes - smaller) / (larger - smaller) * (figures[1] - figures[0])
    power = math.log(nbytes / smaller) / math.log(larger / smaller)
    bent = (
        call + above[0] ** (1 - power) * above[1] ** power
        if figures[0, 0] >= BY_BYTES * call
        else straight
    )
    return np.vstack([bandwidths, straight, bent])


# --- cases without an answer ------------------------------------------------------------------------------------------


def _alike(case: Case, known: Known) -> pd.DataFrame:
    """Select the rows that match a case in every property that cannot be substituted; UserError if there are none, or
    the case is impossible."""
    if case.source == case.target:
        raise UserError(f"--from {case.source} --to {case.target}: name two different ones")
    if case.grad and case.source == NUMPY:
        raise UserError("--grad: arrays require no grad, leave it out")
    if (case.source, case.dtype) == (NUMPY, "bfloat16"):
        raise UserError(
            "--dtype bfloat16: NumPy has no such dtype; for such a tensor use --to-dtype bfloat16"
        )
    if case.goal == case.dtype:
        raise UserError(f"--to-dtype {case.goal}: the source has it, leave it out")
    direction, array = WAYS[case.source, case.target]
    rows = known.rows[(known.rows["direction"] == direction) & (known.rows["array"] == array)]
    if rows.empty:
        how = "make bench-here PYTHON=python3 PROFILE=transfers"
        device = f"; with an accelerator, {how} measures it" if case.device else ""
        raise UserError(
            f"--from {case.source} --to {case.target}: not measured on {known.machine}{device}"
        )
    wanted = {
        "batch": bool(case.batch),
        "enqueue": case.enqueue,
        "layout": case.layout,
        "goal": case.goal,
    }
    wanted |= {"threads": _speaking(case, known, rows)}
    wanted |= {
        name: value
        for name, value in (("host", case.host), ("dtype", case.goal and case.dtype))
        if value
    }
    for name, value in wanted.items():
        fits = rows[name].isin(case.layouts if name == "layout" else [value])
        option = {"goal": "to-dtype", "host": "source"}.get(name, name)
        if not fits.any():
            said = (
                f"--{option}"
                if value is True
                else f"--{option} {value}"
                if value
                else f"no --{option}"
            )
            there = [] if isinstance(value, bool) else sorted({*rows[name]} - {""})
            others = ", ".join(
                str(known.threads) if each == ALL_THREADS else each for each in there
            )
            goal = f" to {case.goal}" if name == "dtype" else ""
            told = f"there are {others}" if others else "leave it out"
            raise UserError(f"{said}: not measured {direction}{goal}; {told}")
        rows = rows[fits]
    dtypes, each = known.dtypes.get(direction, {}), itemsize(case.dtype)
    lacking = dtypes.get(case.dtype, f"not timed {direction}; there are {', '.join(dtypes)}")
    if lacking and not case.goal:
        raise UserError(f"--dtype {case.dtype}: {lacking}")
    if case.nbytes % each or (case.layout == ZERO_D and case.nbytes != each):
        wanted_size = each if case.layout == ZERO_D else f"a multiple of {each}"
        raise UserError(
            f"--nbytes {case.nbytes}: a {case.layout} source of {case.dtype} has {wanted_size}"
        )
    if case.grad and not case.dtype.startswith(FLOATS):
        raise UserError(
            f"--grad: floating point and complex tensors require grad, {case.dtype} does not"
        )
    return rows


def _speaking(case: Case, known: Known, rows: pd.DataFrame) -> str:
    """Return the number of threads whose rows are used for a case. It is one if the case's size was not measured and is
    too small for torch to spread; then sizes on either side can be used."""
    threads = case.threads_in(known)
    there = rows[rows["threads"] == threads]
    measured = ((there["nbytes"] == case.total) & (there["dtype"] == case.dtype)).any()
    spread = case.total >= contracts.PARALLEL * itemsize(case.dtype)
    return threads if spread or not threads or there.empty or measured else ONE_THREAD


def _nothing(case: Case, known: Known, rows: pd.DataFrame) -> str:
    """Why no route can be recommended."""
    direction = WAYS[case.source, case.target][0]
    if any(case.dtype in contract.refuses for contract in rows["contract"]):
        casts = known.rows[
            (known.rows["direction"] == direction) & (known.rows["dtype"] == case.dtype)
        ]
        goals = (
            " or ".join(f"--to-dtype {goal}" for goal in sorted({*casts["goal"]} - {""}))
            or "--to-dtype"
        )
        return f"--dtype {case.dtype}: every route {direction} refuses it; add {goals}"
    if case.grad and not any(contract.takes_grad for contract in rows["contract"]):
        return f"--grad: every such route {direction} refuses it; leave it out, and detach first"
    wanted = {
        ALIAS: " that shares memory",
        COPY: " that copies",
        contracts.INTO: " into a buffer",
    }.get(case.memory, "")
    grad = " and takes a tensor that requires grad" if case.grad else ""
    what = f"a batch of {case.dtype}" if case.batch else f"{case.layout} {case.dtype}"
    what += f" to {case.goal}" if case.goal else ""
    sizes = sorted({*rows["nbytes"][rows["kind"].isin(GOOD)]})
    far = f"answers reach {FARTHEST:.0f} times beyond the sizes measured: {', '.join(map(size, sizes))}"
    near = f" near {size(case.total)}; {far}" if sizes else ""
    return f"no route {direction}{wanted}{grad} was measured for {what}{near}"


def closest(
    records: Mapping[str, Record], here: Conditions, device: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the machine most like this one, and the fields that differ. device: prefer machines with an
    accelerator."""

    def differs(machine: str) -> tuple[str, ...]:
        return tuple(
            name
            for name in MACHINE
            if getattr(records[machine].conditions, name) != getattr(here, name)
        )

    def distance(machine: str) -> tuple[bool, int, int]:
        lacking, cores = (
            device and not records[machine].settings.device,
            records[machine].conditions.cores or 0,
        )
        return lacking, len(differs(machine)), abs(cores - (here.cores or 0))

    nearest = min(records, key=distance)
    return nearest, differs(nearest)
