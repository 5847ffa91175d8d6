"""Routes ranked: for every need that results know, at every measured size, which route to take and which come after.

One ranking (answers.choose): a page's answers are its first routes, its form and scripts/advise.py list its rows. A
need is what somebody has and wants, see case.Need. Rows are what case.py looks up, as plain data that JSON holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from store import files

from benchmarks.contracts import (
    ALIAS,
    ALLOCATE,
    COMPLETION,
    CONTIGUOUS,
    DEVICE_TO_HOST,
    ENQUEUE,
    INTO,
    ONE_THREAD,
    PIN,
    PINNED,
)
from benchmarks.families import CASTING, CONVERSION, GRAD, LINK, LISTS, PINNING, TRANSFER

from .answers import Choice, choices_of, choose
from .case import BEST, CONDITION, FRESH, SLOWER, TIE, UNSAFE, Gain, Known, Need, Row, Slowed, estimate, uses
from .cells import DIRECTIONS, UNSAID, Cell, Limit, bytes_decide, cells_of, limit_of, method, with_threads
from .findings import advised, between_neighbours
from .results import Results, load_files, newest
from .transfers import credible

TRANSPOSED = "m"  # the name of a transposed source in routes that cross a link
CHUNKS = 8 * 2**20  # bytes of pinned memory that a copy in chunks keeps, see benchmarks/moving.py


def every(results: Path) -> list[Known]:
    """Of every machine with results, what was run last; UserError where there is none, or a file is broken."""
    known = []
    for machine in files.machines(results):
        runs = {path: files.read_records(path) for path in files.result_files(results, machine)}
        loaded = load_files(results, newest(runs)[:1] or list(runs))
        known.append(known_of(loaded, machine, [*filter(credible, cells_of(loaded))]))
    return known


def known_of(results: Results, machine: str, cells: Sequence[Cell]) -> Known:
    """Of results and their cells, but for those that no memory could move so fast."""
    last = results.last
    needs, rows = _ranked(cells)
    fresh = last.conditions.libc.startswith("glibc")
    return Known(
        machine,
        toolchain=last.toolchain.tag,
        torch=last.settings.torch or last.toolchain.torch,
        numpy=last.settings.numpy or last.toolchain.numpy,
        day=last.started[:10],
        device=last.settings.device,
        device_name=last.settings.device_name,
        conditions=last.conditions,
        threads=last.settings.torch_threads or 1,
        breaks=(FRESH,) if fresh else (),
        limit=tuple(limit_of(cells).seconds.items()),
        needs=tuple(needs),
        rows=tuple(rows),
        contracts=tuple(results.contracts.values()),
        gains=tuple(_gains(results, cells)),
        slowed=tuple(_slowed(results, cells)),
        dtypes=_dtypes(results),
        lacking=_lacking(results),
    )


def _ranked(cells: Sequence[Cell]) -> tuple[list[Need], list[Row]]:
    """The needs that the cells are about, and of each its rows, size by size in the order to take them."""
    by_need: dict[Need, list[Cell]] = {}
    for cell, need in _needed(cells):
        by_need.setdefault(need, []).append(cell)
    limit, link = limit_of(cells), _link(cells)
    once = {clock: _curve(cells, clock) for clock in (PIN, ALLOCATE)}
    rows: list[Row] = []
    for place, (need, those) in enumerate(by_need.items()):
        curves: dict[str, dict[int, float]] = {}
        for cell in those:
            curves.setdefault(cell.route, {})[cell.nbytes] = cell.seconds
        for cell, kind in (each for choice in choices_of(choose(those)) for each in _order(choice)):
            moves = need.memory != ALIAS and bytes_decide(curves[cell.route], cell.nbytes) and not need.enqueue
            bound = link.get(need.direction) if need.crosses else limit
            alone = need.threads in ("", ONE_THREAD)  # memcpy has one thread
            paid, price = _once(cell, need, once)
            rows.append(
                Row(
                    need=place,
                    nbytes=cell.nbytes,
                    route=cell.route,
                    kind=kind,
                    seconds=_short(cell.seconds),
                    low=_short(cell.low),
                    high=_short(cell.high),
                    quiet=cell.calm,
                    rate=_short(cell.nbytes / cell.seconds) if moves else None,
                    share=_short(share) if moves and bound and alone and (share := bound.share(cell)) else None,
                    arrays=cell.declared.arrays,
                    paid=paid,
                    once=price,
                )
            )
    return list(by_need), rows


def _order(choice: Choice) -> Iterator[tuple[Cell, str]]:
    """The route to take, those that tie, those that are slower; then what is faster on a condition, or unsafe."""
    yield choice.cell, BEST
    yield from ((cell, TIE) for cell in choice.ties)
    yield from ((cell, SLOWER) for cell in (*choice.others, *choice.undecided))
    yield from ((cell, CONDITION if cell.contract.non_blocking else UNSAFE) for cell in choice.hazardous)


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
            heeded = replace(cell, contract=replace(cell.contract, hazard="")) if method(cell) == ENQUEUE else cell
            yield heeded, replace(need, enqueue=True)
        if not need.crosses or method(cell) == COMPLETION:
            yield cell, need


def need_of(cell: Cell) -> Need | None:
    """None of a cell that nobody asks for."""
    route, contract, layout = cell.route, cell.contract, cell.text("layout") or CONTIGUOUS
    dtype = cell.dtype or UNSAID
    goal = "" if contract.keeps_dtype(dtype) else contract.casts_to
    crosses = cell.role == TRANSFER or (cell.declared.needs_device and uses(route, TRANSPOSED))
    if crosses and method(cell) in (COMPLETION, ENQUEUE):
        layout = "transposed" if uses(route, TRANSPOSED) else CONTIGUOUS
    elif crosses or not (
        cell.role in (CONVERSION, GRAD, LISTS, CASTING) or cell.declared.arrays or cell.text("layout")
    ):
        return None
    if not route or not cell.memory or cell.direction not in DIRECTIONS or (goal and cell.role != CASTING):
        return None
    source = (dtype, goal, layout, cell.role == GRAD, bool(cell.declared.arrays))
    return Need(cell.direction, cell.memory, *source, host=cell.host, array=contract.array)


def _link(cells: Sequence[Cell]) -> dict[str, Limit]:
    """Direction -> what the link carries at most."""
    limits: dict[str, dict[int, Cell]] = {}
    for cell in cells:
        if cell.role == LINK:
            limits.setdefault(cell.direction, {})[cell.nbytes] = cell
    return {direction: Limit(found, steady=True) for direction, found in limits.items()}


def _curve(cells: Sequence[Cell], clock: str) -> dict[int, Row]:
    """What pinned memory costs once, by size."""
    return {
        cell.nbytes: Row(0, cell.nbytes, "", BEST, cell.seconds, cell.low, cell.high)
        for cell in cells
        if cell.role == PINNING and method(cell) == clock
    }


def _once(cell: Cell, need: Need, curves: dict[str, dict[int, Row]]) -> tuple[str, float | None]:
    """What is paid once for a transfer, by its name in the route ("" for nothing), and its seconds, where known."""
    route, nbytes = cell.route, cell.nbytes
    if not need.crosses:
        return "", None
    if need.host == PINNED:
        if need.direction == DEVICE_TO_HOST and need.memory != INTO:
            return "", None  # torch's allocator keeps pinned memory, so the figure has it
        clock, what = (ALLOCATE, "h") if need.direction == DEVICE_TO_HOST else (PIN, "t")
        if uses(route, "buffers"):
            nbytes, what = 2 * nbytes, "buffers"
    elif uses(route, "s"):
        clock, what = ALLOCATE, "s"
    elif uses(route, "stages"):
        clock, what, nbytes = ALLOCATE, "stages", CHUNKS
    else:
        return "", None
    curve = curves[clock]
    found = estimate(curve, nbytes) if curve else None
    return what, _short(found.seconds) if found else None


def _short(value: float) -> float:
    """Six digits, for a page holds them, too: more than any figure is shown with."""
    return float(f"{value:.6g}")


def _gains(results: Results, cells: Sequence[Cell]) -> Iterator[Gain]:
    for advice in advised(results, cells):
        for gain in advice.gains:
            route, about = gain.cell.route, _spoken_for(results, gain.cell)
            yield Gain(advice.setting, route, gain.cell.nbytes, gain.factor, advice.caution, about)


def _slowed(results: Results, cells: Sequence[Cell]) -> Iterator[Slowed]:
    for slowed in between_neighbours(cells):
        yield Slowed(slowed.cell.route, slowed.cell.nbytes, slowed.factor, _spoken_for(results, slowed.cell))


def _spoken_for(results: Results, cell: Cell) -> tuple[str, ...]:
    """The routes that what was measured of one is said of: those that make the promise which its family declares."""
    promise = cell.declared.speaks_for
    routes = [each.expression for each in results.contracts.values() if promise and getattr(each, promise)]
    return tuple(dict.fromkeys([cell.route, *routes]))


def _dtypes(results: Results) -> dict[str, tuple[str, ...]]:
    by_direction: dict[str, dict[str, None]] = {}
    for benchmark in results.benchmarks.values():
        if benchmark.role in (CONVERSION, TRANSFER):
            spelled = by_direction.setdefault(benchmark.direction, {})
            spelled.update(dict.fromkeys(word.strip("'") for word in benchmark.listed("dtype")))
    return {direction: tuple(names) for direction, names in by_direction.items()}


def _lacking(results: Results) -> dict[str, str]:
    """ "direction dtype" -> why there is no figure of a dtype in a direction, where none of its cells has one."""
    ways = {name: each.direction for name, each in results.benchmarks.items() if each.role == CONVERSION}
    cells = results.cells[results.cells["benchmark"].isin(ways)]
    way = cells["benchmark"].astype(str).map(ways) + " " + cells["dtype"].astype(str)
    skipped = cells[(cells["status"] == "skipped") & ~way.isin(way[cells["status"] == "measured"])]
    return {name: why for name, why in zip(way[skipped.index], skipped["reason"]) if why}
