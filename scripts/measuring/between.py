"""More sizes around a crossover and around a break, chosen when a run has measured its own.

A crossover lies between two sizes at which different routes are the fastest, a break where the fastest route's time
grows by more than its bytes do, the call taken off: caches end there, or the allocator begins to fetch fresh pages.
Both sizes are measured whole; the middle of what lies between them comes next, then that of the half it is in, with all
processes each time.
"""

import ast
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

from cli import matcher
from store import quiet
from store.records import Line, Record, Unfinished, name_of, with_samples

from .processes import after, progress
from .profiles import exactly
from .rounds import START, take_round
from .state import State

PLAIN, BETWEEN = "conversion", "between"  # roles that benchmarks declare
DTYPE = "float32"
TIE = 0.05  # relative: a route that takes so much longer is as good
BREAK = 1.2  # times as long a byte: what caches do by and by is less, over an interval that is nearly narrow enough
CALLED = 1.5  # times its shortest call that a time is, at least, to tell what is left of it without the call
NARROW = 1.4  # an interval is, where its ends are less than so many times apart


@dataclass(frozen=True)
class Time:
    """Seconds of a route at a size: median and range over its quiet processes. took: what a process of it takes."""

    seconds: float
    low: float
    high: float
    took: float

    def beats(self, other: "Time") -> bool:
        """By more than a tie, and in every process."""
        return self.seconds * (1 + TIE) < other.seconds and self.high < other.low


Curves = Mapping[str, Mapping[int, Time]]  # route -> size -> its time, of routes that one may choose between


@dataclass(frozen=True)
class Middle:
    """A size between two others: the cells of all routes that one may choose between there, for advice compares routes
    at sizes that both were measured at. what: "crossover" or "break"; took: seconds of one process of each cell."""

    what: str
    cells: tuple[str, ...]
    took: float


def refine(record: Unfinished, state: State, benchmarks: Mapping[str, Any], minutes: float) -> Unfinished:
    """Choose cells and take as many rounds of them as of the others, again and again, while there is time; the record
    then.

    minutes  that this may take, beside what is waited for quiet, which has its own budget

    ``record.between`` keeps the steps, so that an interrupted run goes on in the middle of one. Each has rounds of
    its own, numbered on from those of the run: processes share what a round shares only with those beside them.
    """
    planned = record.planned
    before = _worked(record) if record.worked is None else record.worked
    record = replace(record, worked=before)
    while True:
        if not record.between or record.rounds == planned * (1 + len(record.between)):  # what was chosen is done
            left = 60 * minutes - (_worked(record) - before)
            asked = {cell for step in record.between for cell in step}
            middles = choose(state.lines(), benchmarks, asked, record.only)
            taken = _affordable(middles, left / planned)
            if not taken:
                break
            step = tuple(cell for middle in taken for cell in middle.cells)
            record = replace(record, between=(*record.between, step))
            print(_said(middles) + ("" if taken == middles else f"; there is time for {len(step)} of them"))
        first, cells = planned * len(record.between), record.between[-1]
        with progress(len(cells) * planned, "between sizes") as show:
            for number in range(record.rounds, first + planned):
                show_step = after(show, -first * len(cells))  # a round tells of all before it, too
                record = take_round(record, state, number, exactly(cells), len(cells), show_step, "")
    return replace(record, rounds=min(record.rounds, planned))  # of each cell, those of the steps included


def _worked(record: Record) -> float:
    """Seconds of a run without those that it waited."""
    return record.seconds - record.waited


def _affordable(middles: Iterable[Middle], seconds: float) -> list[Middle]:
    """The first of these, as many as one process of each cell takes so many seconds."""
    left, taken = seconds - START, []
    for middle in middles:
        left -= middle.took
        if left < 0:
            break
        taken.append(middle)
    return taken


def _said(middles: Sequence[Middle]) -> str:
    cells = sum(len(middle.cells) for middle in middles)
    kinds = Counter(middle.what for middle in middles)
    around = " and ".join(f"{number} {what}{'s' * (number > 1)}" for what, number in kinds.items())
    return f"{cells} cell{'s' * (cells > 1)} between sizes, around {around}"


def choose(
    lines: Iterable[Line], benchmarks: Mapping[str, Any], asked: Collection[str] = (), only: str | None = None
) -> list[Middle]:
    """The middle of every interval that is too wide, those of crossovers first.

    lines       of the sampling log
    benchmarks  as asv describes them
    asked       cells that were chosen before, whatever came of them
    only        a pattern: cells that it does not match are left out
    """
    times, matches = _times(lines, benchmarks), matcher(only)
    middles: dict[tuple[str, ...], Middle] = {}
    for what, looking in (("crossover", crossovers), ("break", breaks)):
        for name, benchmark in benchmarks.items():
            if benchmark.get("role") != BETWEEN:
                continue
            sizes = [int(size) for size in benchmark["params"][benchmark["param_names"].index("nbytes")]]
            for curves in _choices(benchmark, times):
                for low, high in sorted(looking(curves)):
                    middle = middle_of(low, high, sizes)
                    named = [f"{name}({route!r}, {DTYPE!r}, {middle})" for route in curves if middle]
                    cells = tuple(cell for cell in named if cell not in asked and matches(cell))
                    took = max(curve[size].took for curve in curves.values() for size in (low, high) if size in curve)
                    if cells:
                        middles.setdefault(cells, Middle(what, cells, took * len(cells)))
    return list(middles.values())


def _times(lines: Iterable[Line], benchmarks: Mapping[str, Any]) -> dict[tuple[str, str], dict[int, Time]]:
    """Direction and route -> its quiet times by size, of the plain conversions and of those between their sizes."""
    run = quiet.Run(with_samples(lines))
    last = {name_of(line): line for line in run.lines}
    by_cell: dict[str, dict[int, float]] = {}
    for line, figure, is_quiet in zip(run.lines, run.figures().tolist(), run.quiet):
        if is_quiet:
            by_cell.setdefault(name_of(line), {}).setdefault(line["round"], figure)
    times: dict[tuple[str, str], dict[int, Time]] = {}
    for cell, rounds in by_cell.items():
        benchmark = benchmarks.get(last[cell]["benchmark"], {})
        seconds = list(rounds.values())
        if benchmark.get("role") not in (PLAIN, BETWEEN):
            continue
        values = dict(zip(benchmark["param_names"], map(ast.literal_eval, last[cell]["params"])))
        if values["dtype"] == DTYPE:
            time = Time(statistics.median(seconds), min(seconds), max(seconds), last[cell]["took"])
            times.setdefault((benchmark["direction"], values["route"]), {})[values["nbytes"]] = time
    return times


def _choices(benchmark: Mapping[str, Any], times: Mapping[tuple[str, str], Mapping[int, Time]]) -> list[Curves]:
    """The measured routes of a benchmark that do the same with memory: nobody else chooses between them."""
    by_memory: dict[str, dict[str, Mapping[int, Time]]] = {}
    for route, promised in benchmark["contracts"].items():
        curve = times.get((benchmark["direction"], route))
        if curve:
            by_memory.setdefault(promised["memory"], {})[route] = curve
    return list(by_memory.values())


def middle_of(low: int, high: int, sizes: Sequence[int]) -> int:
    """Of these sizes the one nearest to the geometric middle; 0 where there is none, or both are near enough."""
    inside = [size for size in sizes if low < size < high] if high >= NARROW * low else []
    return min(inside, key=lambda size: max(size / low, high / size), default=0)


def crossovers(curves: Curves) -> set[tuple[int, int]]:
    """Where of two routes each is decided to be faster on its side, and none else to be faster there: the neighbouring
    sizes between which that changes. One at which they tie belongs to neither side, so there may be two of these."""
    intervals = set()
    for pair in combinations(curves, 2):
        curve, other = (curves[route] for route in pair)
        sizes = sorted(curve.keys() & other.keys())
        ahead = [curve[size].beats(other[size]) - other[size].beats(curve[size]) for size in sizes]
        best = [at for at, lead in enumerate(ahead) if lead and _unbeaten(curves, pair[lead < 0], sizes[at])]
        for first, last in pairwise(best):
            if ahead[first] != ahead[last]:
                intervals |= {(sizes[at], sizes[at + 1]) for at in range(first, last) if ahead[at] != ahead[at + 1]}
    return intervals


def _unbeaten(curves: Curves, route: str, size: int) -> bool:
    return not any(curve[size].beats(curves[route][size]) for curve in curves.values() if size in curve)


def breaks(curves: Curves) -> set[tuple[int, int]]:
    """The neighbouring sizes between which a route that is the fastest at either takes more time than it has bytes.

    Its call is taken off where enough is left: between 64 KiB and 1 MiB it hides that a cache ends.
    """
    sizes = {size for curve in curves.values() for size in curve}
    fastest = {n: min((r for r in curves if n in curves[r]), key=lambda r: curves[r][n].seconds) for n in sizes}
    return {
        (low, high)
        for route, curve in curves.items()
        for low, high in pairwise(sorted(curve))
        if route in (fastest[low], fastest[high]) and _grows(curve, low, high) > BREAK * high / low
    }


def _grows(curve: Mapping[int, Time], low: int, high: int) -> float:
    """How many times as long the bytes take at ``high`` as at ``low``; all of the time where the call is most of it."""
    shortest = min(time.seconds for time in curve.values())
    call = shortest if curve[low].seconds >= CALLED * shortest else 0.0
    return (curve[high].seconds - call) / (curve[low].seconds - call)
