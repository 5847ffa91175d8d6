"""What advice ranks by (see case.py), made of results: points, what is decided between them, contracts, limits."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from store.files import machines, read_records, result_files
from store.records import recent

from benchmarks.contracts import CONTIGUOUS
from benchmarks.families import BETWEEN, CONVERSION, GRAD, LINK, LISTS, MEMCPY, PINNING, TRANSFER

from .case import Gain, Known, Slowed, uses
from .cells import Cell, cells_of, method
from .choice import slower
from .curves import ALLOCATE, COMPLETION, ENQUEUE, LIMIT, PIN, Point
from .findings import advised, between_neighbours
from .results import Results, load, load_files
from .transfers import credible

UNSAID = "float32"  # the dtype of families that have no parameter of that name
TRANSPOSED = "m"  # the name of a transposed source in routes that cross a link


def every(results: Path) -> list[Known]:
    """Of every machine with results, what was run last; UserError where there is none, or a file is broken."""
    known = []
    for machine in machines(results):
        runs = [record for path in result_files(results, machine, ".jsonl") for record in read_records(path)]
        runs.sort(key=lambda record: record.started)
        files = [results / machine / f"{name}.json" for name in recent(runs)]
        shown = next((path for path in files if path.is_file()), None)
        loaded = load_files(results, [shown]) if shown else load(results, machine)
        known.append(known_of(loaded, machine, [*filter(credible, cells_of(loaded))]))
    return known


def known_of(results: Results, machine: str, cells: Sequence[Cell]) -> Known:
    """Of results and their cells, but for those that no memory could move so fast."""
    last = results.last
    return Known(
        machine,
        toolchain=last.toolchain.tag,
        torch=last.settings.torch or last.toolchain.torch,
        numpy=last.settings.numpy or last.toolchain.numpy,
        day=last.started[:10],
        device=last.settings.device,
        device_name=last.settings.device_name,
        conditions=last.conditions,
        points=tuple(_points(cells)),
        contracts=tuple(results.contracts.values()),
        gains=tuple(_gains(results, cells)),
        slowed=tuple(_slowed(results, cells)),
        dtypes=_dtypes(results),
        lacking=_lacking(results),
    )


def _points(cells: Sequence[Cell]) -> list[Point]:
    """Of the cells that cases may be about, with what is decided between those of one direction and size."""
    plain = {(cell.direction, cell.route) for cell in cells if cell.role == CONVERSION}
    pairs = [(cell, point) for cell in cells if (point := _point(cell)) is not None]
    # families of layouts have a contiguous source, too, to compare theirs with
    twice = [cell.text("layout") == CONTIGUOUS and (cell.direction, cell.route) in plain for cell, _ in pairs]
    pairs = [pair for pair, known in zip(pairs, twice) if not known]
    points = [replace(point, place=place) for place, (_, point) in enumerate(pairs)]

    def group(place: int) -> tuple[str, int, bool]:
        return points[place].direction, points[place].nbytes, bool(points[place].arrays)

    behind: dict[int, tuple[int, ...]] = {}
    routes = [point.place for point in points if point.route]
    for _, each in itertools.groupby(sorted(routes, key=group), group):
        places = list(each)
        rivals = [pairs[place][0] for place in places]
        for place, beaten in zip(places, slower(rivals, rivals)):
            faster = [points[other] for other, lost in zip(places, beaten) if lost]
            alike = [p for p in faster if p.source == points[place].source or p.route == points[place].route]
            behind[place] = tuple(point.place for point in alike)
    return [replace(point, behind=behind.get(point.place, ())) for point in points]


def _point(cell: Cell) -> Point | None:
    """None of a cell that no case is about."""
    clock, layout = COMPLETION, cell.text("layout") or CONTIGUOUS
    route, direction, arrays = cell.route, cell.direction, cell.declared.arrays
    crosses = cell.role == TRANSFER or (cell.declared.needs_device and uses(route, TRANSPOSED))
    if cell.role in (MEMCPY, LINK):
        route, clock = "", LIMIT
    elif cell.role == PINNING and method(cell) in (PIN, ALLOCATE):
        route, clock = "", method(cell)
    elif crosses and method(cell) in (COMPLETION, ENQUEUE):
        clock, layout = method(cell), "transposed" if uses(route, TRANSPOSED) else CONTIGUOUS
    elif crosses or not (cell.role in (CONVERSION, BETWEEN, GRAD, LISTS) or arrays or cell.text("layout")):
        return None
    return Point(
        0,
        route,
        direction,
        cell.nbytes,
        _short(cell.seconds),
        _short(cell.low),
        _short(cell.high),
        clock=clock,
        host=cell.host,
        dtype=cell.dtype or UNSAID,
        layout=layout,
        grad=cell.role == GRAD,
        arrays=arrays,
        calm=cell.calm,
        order=cell.order,
    )


def _short(seconds: float) -> float:
    """Six digits, for a page holds them, too: more than any figure is shown with."""
    return float(f"{seconds:.6g}")


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
    """Why there is no figure of a dtype in a direction, where none of its cells has one."""
    directions = {
        name: benchmark.direction for name, benchmark in results.benchmarks.items() if benchmark.role == CONVERSION
    }
    timed = {(directions.get(b), d) for b, d in zip(results.processes["benchmark"], results.processes["dtype"])}
    missing = results.missing
    rows = zip(missing["benchmark"], missing["dtype"], missing["status"], missing["reason"])
    skipped = {(directions.get(name), dtype): why for name, dtype, status, why in rows if status == "skipped"}
    return {f"{way} {dtype}": why for (way, dtype), why in skipped.items() if way and (way, dtype) not in timed and why}
