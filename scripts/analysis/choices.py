"""Routes ranked: for every need, at every measured size, which route to take and which come after.

``choices`` is that table. A page's answers and tables, its form and scripts/advise.py are views of it. A need is what
somebody has and wants, see case.Need; its candidates are the routes that do it. At each size a route is good where it
is safe, not decided to be slower than another safe one (see cells.slower), and at most AS_GOOD behind the fastest.
Safe: no hazard, and no input that it silently gets wrong or dies of. Neighbouring sizes that have a good route in
common get one: of several that which is good at most sizes, so that an answer has few names, then the one least behind.

To take the fastest median at each size would change the route by noise: on three machines a copy's answer had 3 or 4
parts in place of 1 or 2. To take the catalogue's first of all that tie cost up to 30 %.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from store import files

from benchmarks.contracts import (
    ALIAS,
    ALLOCATE,
    COMPLETION,
    CONTIGUOUS,
    DEVICE_TO_HOST,
    ENQUEUE,
    INTO,
    MEMORIES,
    NUMPY_TO_TORCH,
    ONE_THREAD,
    PIN,
    PINNED,
)
from benchmarks.families import CASTING, CONVERSION, GRAD, LISTS, PINNING, TRANSFER

from . import case
from .case import AS_GOOD, BEST, BY_BYTES, FIGURES, KINDS, Effect, Known, Need, estimate, uses
from .cells import (
    DIRECTIONS,
    UNSAID,
    Cell,
    cells_of,
    credible,
    limit_of,
    links_of,
    method,
    slower,
    unbeaten,
    usual_dtype,
    with_threads,
)
from .findings import advised, between_neighbours
from .results import Results, load_files, newest

SLOW = 1.5  # a route that takes more than this many times the recommended one's seconds is worth a warning
TRANSPOSED = "m"  # the name of a transposed source in routes that cross a link
CHUNKS = 8 * 2**20  # bytes of pinned memory that a copy in chunks keeps, see benchmarks/moving.py
NEED = tuple(Need.__dataclass_fields__)
RANKED = ("nbytes", "part", "route", "kind", "leads", "seconds", "ratio", "slow", "cell")

# --- routes of a need -------------------------------------------------------------------------------------------------


def rank(cells: Sequence[Cell]) -> pd.DataFrame:
    """The routes of one need: a row per size and route, size by size in the order to take them.

    nbytes, route, cell
    part     of the answer: neighbouring sizes at which one route is to be taken, and one is faster on a condition
    kind     BEST, TIE, SLOWER, UNDECIDED (one of both is an upper bound), CONDITION, UNSAFE or OTHER; see case.py
    leads    it is the best, or no other route with a condition is decided to be faster
    seconds  per call; ratio: to those of the best route of its size
    slow     it is decided to take more than SLOW times as long as the best
    """
    return pd.DataFrame(_ranked(cells), columns=list(RANKED))


def _ranked(cells: Sequence[Cell]) -> Iterator[tuple[Any, ...]]:
    candidates = [cell for cell in cells if cell.contract.keeps_dtype(cell.dtype or UNSAID)] or cells
    by_size: dict[int, list[Cell]] = {}
    for cell in candidates:
        by_size.setdefault(cell.nbytes, []).append(cell)
    part = -1
    for sizes, route in _parts(by_size):
        leading = None
        for nbytes in sizes:
            rivals = [cell for cell in cells if cell.nbytes == nbytes and cell not in candidates]
            here = _kinds(by_size[nbytes], rivals, route)
            best, leaders = here[0][0], {cell.route for cell, kind, leads in here if kind == case.CONDITION and leads}
            if leading is None or not (leading & leaders or leading == leaders == set()):
                part, leading = part + 1, leaders
            leading = leading & leaders
            slow = slower([cell for cell, _, _ in here], [best], SLOW - 1)[:, 0]
            for (cell, kind, leads), far in zip(here, slow):
                yield nbytes, part, cell.route, kind, leads, cell.seconds, cell.seconds / best.seconds, bool(far), cell


def _parts(by_size: Mapping[int, Sequence[Cell]]) -> Iterator[tuple[list[int], str]]:
    """The fewest runs of neighbouring sizes that have a good route in common, each with the one to take.

    A route without a quiet process at a size is an upper bound there. Its neighbours' choice may stand at that size,
    but it is not chosen for that size alone if another route has a quiet process.
    """
    parts: list[dict[int, dict[str, Good]]] = []
    for nbytes in sorted(by_size):
        good = _good(by_size[nbytes])
        if not (parts and set(good).intersection(*parts[-1].values())):
            parts.append({})
        parts[-1][nbytes] = good
    often = Counter(route for part in parts for good in part.values() for route in good)
    for part in parts:
        first, *others = part.values()
        common = {route: [good[route] for good in part.values()] for route in first if all(route in o for o in others)}
        last = {
            route: (all(each.noisy for each in good), -often[route], sum(each.behind for each in good), good[0].order)
            for route, good in common.items()
        }
        yield list(part), min(last, key=last.__getitem__)


class Good(NamedTuple):
    """A route that may be taken at a size. noisy: it has no quiet process; behind: the fastest, log seconds; order: in
    the catalogue."""

    noisy: bool
    behind: float
    order: int


def _good(cells: Sequence[Cell]) -> dict[str, Good]:
    """The safe routes of a size that none is decided to be faster than and that take at most AS_GOOD longer than the
    fastest, or have no quiet process."""
    good = unbeaten(preferred(cells))
    fastest = min(good, key=lambda cell: (not cell.quiet, cell.seconds)).seconds
    behind = {cell: max(0.0, math.log(cell.seconds / fastest)) for cell in good}
    near = [cell for cell in good if not cell.quiet or behind[cell] <= math.log1p(AS_GOOD)]
    return {cell.route: Good(not cell.quiet, behind[cell], cell.order) for cell in near}


def preferred(cells: Sequence[Cell]) -> Sequence[Cell]:
    """The safe ones, or all where none is."""
    return [cell for cell in cells if cell.safe] or cells


def _kinds(cells: Sequence[Cell], rivals: Sequence[Cell], route: str) -> list[tuple[Cell, str, bool]]:
    """The cells of one size in the order to take them, ``route`` first: kind of each, and whether it leads."""
    chosen = next(cell for cell in cells if cell.route == route)
    rest = sorted((cell for cell in cells if cell is not chosen), key=lambda cell: (cell.seconds, cell.order))
    candidates = preferred(cells)
    kinds = {chosen: BEST}
    for cell, behind, ahead in zip(rest, slower(rest, [chosen])[:, 0], slower([chosen], rest)[0]):
        if cell in candidates:
            kinds[cell] = case.SLOWER if behind else case.TIE if cell.quiet and chosen.quiet else case.UNDECIDED
        else:
            kinds[cell] = case.OTHER if not ahead else case.CONDITION if cell.contract.non_blocking else case.UNSAFE
    leaders = unbeaten([cell for cell, kind in kinds.items() if kind == case.CONDITION])
    kinds |= dict.fromkeys(rivals, case.OTHER)
    # of those with a condition the leaders come first, as the catalogue has them
    every = sorted(
        kinds, key=lambda cell: (KINDS.index(kinds[cell]), cell not in leaders, cell in leaders and cell.order)
    )
    return [(cell, kinds[cell], cell is chosen or cell in leaders) for cell in every]


# --- needs ------------------------------------------------------------------------------------------------------------


def choices(cells: Sequence[Cell]) -> pd.DataFrame:
    """The routes of every need that the cells are about: the columns of ``rank``, the need, and those of case.Need."""
    by_need: dict[Need, list[Cell]] = {}
    for cell, need in _needed(cells):
        by_need.setdefault(need, []).append(cell)
    rows = [(need, *vars(need).values(), *row) for need, c in by_need.items() if _met(need, c) for row in _ranked(c)]
    return pd.DataFrame(rows, columns=["need", *NEED, *RANKED])


def _met(need: Need, cells: Iterable[Cell]) -> bool:
    """Whether one of the cells does what is wanted: the others of a need may change the dtype."""
    return bool(need.goal) or any(cell.contract.keeps_dtype(need.dtype) for cell in cells)


def _needed(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Need]]:
    """The cells that somebody may ask for, each with what for; what a transfer's caller is held by is another need."""
    for threads in sorted({ONE_THREAD, *(cell.threads for cell in cells if not cell.declared.needs_device)}):
        for cell in with_threads(cells, threads):
            # families of layouts have a contiguous source, too, to compare theirs with
            need = need_of(cell) if cell.text("layout") != CONTIGUOUS else None
            if need is not None:
                yield cell, replace(need, threads=threads)
    for cell in (cell for cell in cells if cell.declared.needs_device):
        need = need_of(cell)
        if need is None:
            continue
        if need.crosses and (method(cell) == ENQUEUE or not cell.contract.non_blocking):
            yield replace(cell, heeded=method(cell) == ENQUEUE), replace(need, enqueue=True)
        if not need.crosses or method(cell) == COMPLETION:
            yield cell, need


def need_of(cell: Cell) -> Need | None:
    """None of a cell that nobody asks for."""
    route, contract, layout = cell.route, cell.contract, cell.text("layout") or CONTIGUOUS
    dtype = cell.dtype or UNSAID
    goal = "" if cell.role != CASTING or contract.keeps_dtype(dtype) else contract.casts_to
    crosses = cell.role == TRANSFER or (cell.declared.needs_device and uses(route, TRANSPOSED))
    if crosses and method(cell) in (COMPLETION, ENQUEUE):
        layout = "transposed" if uses(route, TRANSPOSED) else CONTIGUOUS
    elif crosses or not (
        cell.role in (CONVERSION, GRAD, LISTS, CASTING) or cell.declared.arrays or cell.text("layout")
    ):
        return None
    if not route or not cell.memory or cell.direction not in DIRECTIONS:
        return None
    source = (dtype, goal, layout, cell.role == GRAD, bool(cell.declared.arrays))
    return Need(cell.direction, cell.memory, *source, host=cell.host, array=contract.array)


def asked(table: pd.DataFrame, threads: str) -> list[pd.DataFrame]:
    """What a page answers of ``choices``, the rows of each: alias, copy and into in either direction for the usual
    dtype; what requires grad; lists; casts, dtypes with one recommendation together."""
    here = table[(table["threads"] == threads) & (table["layout"] == CONTIGUOUS) & (table["host"] == "")]
    plain = here[~here["grad"].astype(bool) & ~here["batch"].astype(bool) & (here["goal"] == "")]
    plain = plain[plain["dtype"] == usual_dtype(list(plain["cell"]))]
    found = [
        plain[(plain["memory"] == memory) & (plain["direction"] == direction)]
        for memory in MEMORIES
        for direction in plain["direction"].unique()
    ]
    found.append(here[here["grad"].astype(bool) & (here["memory"] == ALIAS)])
    found.append(here[here["batch"].astype(bool) & (here["direction"] == NUMPY_TO_TORCH)])
    casts: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for need, rows in here[here["goal"] != ""].groupby("need", sort=False):
        best = rows[rows["kind"] == BEST]
        if all(cell.safe for cell in best["cell"]):
            routes = best.drop_duplicates("part")["route"]
            casts.setdefault((need.direction, need.goal, *routes), []).append(rows)
    in_order = sorted(casts, key=lambda key: DIRECTIONS.index(key[0]))
    return [rows for rows in [*found, *(pd.concat(casts[key]) for key in in_order)] if len(rows)]


# --- what is known of a machine ---------------------------------------------------------------------------------------


def every(results: Path) -> list[Known]:
    """Of every machine with results, what was run last; UserError where there is none, or a file is broken."""
    known = []
    for machine in files.machines(results):
        runs = {path: files.read_records(path) for path in files.result_files(results, machine)}
        loaded = load_files(results, newest(runs)[:1] or list(runs))
        cells = [*filter(credible, cells_of(loaded))]
        known.append(known_of(loaded, machine, cells, choices(cells)))
    return known


def known_of(results: Results, machine: str, cells: Sequence[Cell], table: pd.DataFrame) -> Known:
    """Of results, their cells but for those that no memory could move so fast, and the choices."""
    memcpy = pd.Series(limit_of(cells).seconds, dtype=float).sort_index()
    per_byte, effects = memcpy / memcpy.index, tuple(_effects(results, cells))
    return Known(machine, results.last, costs(cells, table), per_byte, effects, _dtypes(results))


def costs(cells: Sequence[Cell], table: pd.DataFrame) -> pd.DataFrame:
    """Of the choices those that somebody may take, with what else there is to say of them.

    low, high, quiet, contract  of the cell
    rate    bytes per second where the bytes take the time, else NaN; share: of what memcpy or the link allows, or NaN
    arrays  the source is so many arrays, ``nbytes`` together
    paid    what is pinned once for it, by its name in the route; once: seconds of that, NaN where not measured
    """
    links, memcpy = links_of(cells), limit_of(cells)
    pinning = {clock: _curve(cells, clock) for clock in (PIN, ALLOCATE)}
    fastest = table.groupby(["need", "route"], sort=False)["seconds"].transform("min")
    moves = (table["seconds"] >= BY_BYTES * fastest) & (table["memory"] != ALIAS) & ~table["enqueue"].astype(bool)

    def cost(row: Any) -> dict[str, Any]:
        need, cell = row.need, row.cell
        bound = links.get(need.direction) if need.crosses else memcpy if need.threads in ("", ONE_THREAD) else None
        share = bound.share(cell) if bound and row.rate > 0 else None
        own = {name: getattr(cell, name) for name in ("low", "high", "quiet", "contract")}
        return {**own, "share": share or math.nan, "arrays": cell.declared.arrays, **_once(cell, need, pinning)}

    rows = table.assign(rate=(table["nbytes"] / table["seconds"]).where(moves))[table["kind"] != case.OTHER]
    names = ["low", "high", "quiet", "contract", "share", "arrays", "paid", "once"]
    more = pd.DataFrame([*map(cost, rows.itertuples())], rows.index, names)
    return rows.drop(columns=["part", "leads", "ratio", "slow", "cell"]).join(more)


def _curve(cells: Iterable[Cell], clock: str) -> pd.DataFrame:
    """What pinned memory costs once, by size."""
    pinned = [cell for cell in cells if cell.role == PINNING and method(cell) == clock]
    names = ["nbytes", "quiet", *FIGURES]
    return pd.DataFrame([[getattr(cell, name) for name in names] for cell in pinned], columns=names).assign(kind=BEST)


def _once(cell: Cell, need: Need, curves: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """What is paid once for a transfer, by its name in the route, and its seconds."""
    route, nbytes, clock, what = cell.route, cell.nbytes, ALLOCATE, ""
    if need.host == PINNED and need.direction == DEVICE_TO_HOST and need.memory != INTO:
        pass  # torch's allocator keeps pinned memory, so the figure has it
    elif need.host == PINNED:
        clock, what = (ALLOCATE, "h") if need.direction == DEVICE_TO_HOST else (PIN, "t")
        if uses(route, "buffers"):
            nbytes, what = 2 * nbytes, "buffers"
    elif uses(route, "s"):
        what = "s"
    elif uses(route, "stages"):
        what, nbytes = "stages", CHUNKS
    found = estimate(curves[clock], nbytes) if what else {"seconds": 0.0}
    return {"paid": what, "once": found["seconds"] if found else math.nan}


def _effects(results: Results, cells: Sequence[Cell]) -> Iterator[Effect]:
    """What settings gain, and what placement costs."""
    found: list[tuple[Any, str, str]] = [(each, "", "") for each in between_neighbours(cells)]
    found += [(gain, each.setting, each.caution) for each in advised(results, cells) for gain in each.gains]
    for each, setting, caution in found:
        cell = each.cell
        yield Effect(cell.route, cell.nbytes, each.factor, _alike(results, cell), setting, caution)


def _alike(results: Results, cell: Cell) -> tuple[str, ...]:
    """The routes that what was measured of one is said of: those that make the promise which its family declares."""
    promise = cell.declared.speaks_for
    routes = [each.expression for each in results.contracts.values() if promise and getattr(each, promise)]
    return tuple(dict.fromkeys([cell.route, *routes]))


def _dtypes(results: Results) -> dict[str, dict[str, str]]:
    """Direction -> dtype that the suite times -> why it has no figure in that direction, where none of its cells has
    one; else ""."""
    timed = [each for each in results.benchmarks.values() if each.role in (CONVERSION, TRANSFER)]
    found: dict[str, dict[str, str]] = {}
    for benchmark in timed:
        spelled = (word.strip("'") for word in benchmark.listed("dtype"))
        found.setdefault(benchmark.direction, {}).update(dict.fromkeys(spelled, ""))
    ways = {each.name: each.direction for each in timed if each.role == CONVERSION}
    cells = results.cells[results.cells["benchmark"].isin(ways)]
    cells = cells.assign(way=cells["benchmark"].astype(str).map(ways))
    for (way, dtype), rows in cells.groupby(["way", "dtype"], observed=True):
        skipped = rows[rows["status"] == "skipped"]
        if len(skipped) and not (rows["status"] == "measured").any():
            found[way][dtype] = f"not on this toolchain, {skipped['reason'].iloc[-1]}"
    return found
