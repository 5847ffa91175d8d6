"""More sizes around a crossover and around a break, chosen when a run has measured its own.

A crossover lies between two sizes at which different routes are the fastest, a break where the fastest route's time
grows by more than its bytes do: caches end there, or the allocator begins to fetch fresh pages. Both sizes are measured
whole; the middle of what lies between them comes next, then that of the half it is in, with all processes each time.
"""

import ast
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from cli import matcher
from records import calm

from .profiles import exactly
from .progress import Show, progress
from .rounds import affordable, take_round
from .state import State

PLAIN, BETWEEN = "conversion", "between"  # roles that benchmarks declare
DTYPE = "float32"
TIE = 0.05  # relative: a route that takes so much longer is as good
BREAK = 1.2  # times as long a byte: what caches do by and by is less, over an interval that is nearly narrow enough
NARROW = 1.4  # an interval is, where its ends are less than so many times apart


@dataclass(frozen=True)
class Time:
    """Seconds of a route at a size: median and range over its calm processes. took: what a process of it takes."""

    seconds: float
    low: float
    high: float
    took: float

    def beats(self, other: "Time") -> bool:
        """By more than a tie, and in every process."""
        return self.seconds * (1 + TIE) < other.seconds and self.high < other.low


Curves = Mapping[str, Mapping[int, Time]]  # route -> size -> its time, of routes that one may choose between
Intervals = dict[tuple[int, int], list[str]]  # neighbouring sizes -> the routes to be measured between them


@dataclass(frozen=True)
class Choice:
    """Cells to be measured next, with the seconds that a process of each takes, and around how many of what."""

    cells: Mapping[str, float]
    crossovers: int
    breaks: int

    def __str__(self) -> str:
        around = [_counted(self.crossovers, "crossover"), _counted(self.breaks, "break")]
        return f"{_counted(len(self.cells), 'cell')} between sizes: around {' and '.join(filter(None, around))}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}" if number else ""


def refine(record: dict[str, Any], state: State, benchmarks: Mapping[str, Any], minutes: float) -> None:
    """Choose cells and take as many rounds of them as of the others, again and again, while there is time.

    minutes  that this may take, beside what is waited for calm, which has its own budget

    ``record["between"]`` keeps the steps, so that an interrupted run goes on in the middle of one. Each has rounds of
    its own, numbered on from those of the run: processes share what a round shares only with those beside them.
    """
    planned = record["planned"]
    own = record.setdefault("between", {"after": _worked(record), "steps": []})
    steps: list[list[str]] = own["steps"]
    while True:
        if not steps or record["rounds"] == planned * (1 + len(steps)):  # what was chosen is done
            left = 60 * minutes - (_worked(record) - own["after"])
            asked = {cell for step in steps for cell in step}
            choice = choose(state.lines(), benchmarks, asked, record["only"])
            cells = affordable(choice.cells, choice.cells, left / planned)
            if not cells:
                break
            print(choice if len(cells) == len(choice.cells) else f"{choice}; there is time for {len(cells)}")
            steps.append(cells)
        first, cells = planned * len(steps), steps[-1]
        with progress(len(cells) * planned, "between sizes") as show:
            for number in range(record["rounds"], first + planned):
                told = _later(show, first * len(cells))
                take_round(record, state, number, exactly(cells), len(cells), told, "", number > first)
    record["rounds"] = min(record["rounds"], planned)  # of each cell, those of the steps included


def _worked(record: Mapping[str, Any]) -> float:
    """Seconds of a run without those that it waited."""
    return float(record["seconds"] - record["waited"])


def _later(show: Show, before: int) -> Show:
    """Progress of what comes after so many processes."""
    return lambda done, more=0.0: show(done - before, more)


def choose(
    lines: Iterable[calm.Line], benchmarks: Mapping[str, Any], asked: Collection[str] = (), only: str | None = None
) -> Choice:
    """The cells in the middle of every interval that is too wide, those around crossovers first, but for ``asked``.

    lines       of the sampling log
    benchmarks  as asv describes them
    only        a pattern: cells that it does not match are left out
    """
    times, matches = _times(lines, benchmarks), matcher(only)
    found: dict[str, float] = {}
    counts = {crossovers: 0, breaks: 0}
    for looking in counts:
        for name, benchmark in benchmarks.items():
            if benchmark.get("role") != BETWEEN:
                continue
            sizes = [int(size) for size in benchmark["params"][benchmark["param_names"].index("nbytes")]]
            for curves in _choices(benchmark, times):
                for interval, routes in looking(curves).items():
                    middle = middle_of(*interval, sizes)
                    cells = {f"{name}({route!r}, {DTYPE!r}, {middle})": route for route in routes if middle}
                    wanted = {cell: route for cell, route in cells.items() if cell not in asked and matches(cell)}
                    counts[looking] += bool(wanted)
                    found |= {cell: curves[route][interval[1]].took for cell, route in wanted.items()}
    return Choice(found, *counts.values())


def _times(lines: Iterable[calm.Line], benchmarks: Mapping[str, Any]) -> dict[tuple[str, str], dict[int, Time]]:
    """Direction and route -> its calm times by size, of the plain conversions and of those between their sizes."""
    timed = calm.timed(lines)
    last = {calm.name_of(line): line for line in timed}
    found: dict[tuple[str, str], dict[int, Time]] = {}
    for cell, rounds in calm.attempts(timed, calm.floors(timed)).items():
        benchmark = benchmarks.get(last[cell]["benchmark"], {})
        seconds = [process.seconds for process in rounds.values() if process.calm]
        if benchmark.get("role") not in (PLAIN, BETWEEN) or not seconds:
            continue
        values = dict(zip(benchmark["param_names"], map(ast.literal_eval, last[cell]["params"])))
        if values["dtype"] == DTYPE:
            time = Time(statistics.median(seconds), min(seconds), max(seconds), last[cell]["took"])
            found.setdefault((benchmark["direction"], values["route"]), {})[values["nbytes"]] = time
    return found


def _choices(benchmark: Mapping[str, Any], times: Mapping[tuple[str, str], Mapping[int, Time]]) -> list[Curves]:
    """The measured routes of a benchmark that do the same with memory: nobody else chooses between them."""
    found: dict[str, dict[str, Mapping[int, Time]]] = {}
    for route, promised in benchmark["contracts"].items():
        curve = times.get((benchmark["direction"], route))
        if curve:
            found.setdefault(promised["memory"], {})[route] = curve
    return list(found.values())


def middle_of(low: int, high: int, sizes: Sequence[int]) -> int:
    """Of these sizes the one nearest to the geometric middle; 0 where there is none, or both are near enough."""
    inside = [size for size in sizes if low < size < high] if high >= NARROW * low else []
    return min(inside, key=lambda size: max(size / low, high / size), default=0)


def crossovers(curves: Curves) -> Intervals:
    """Where of two routes each is decided to be faster on its side, and none else to be faster there: the sizes in
    between at which that changes. Sizes at which they tie belong to neither, so there may be one on both sides."""
    found: Intervals = {}
    for pair in combinations(curves, 2):
        one, other = (curves[route] for route in pair)
        sizes = sorted(one.keys() & other.keys())
        ahead = [one[size].beats(other[size]) - other[size].beats(one[size]) for size in sizes]
        best = [at for at, lead in enumerate(ahead) if lead and _unbeaten(curves, pair[lead < 0], sizes[at])]
        for first, last in pairwise(best):
            changes = [at for at in range(first, last) if ahead[at] != ahead[at + 1]]
            for at in changes if ahead[first] != ahead[last] else ():
                routes = found.setdefault((sizes[at], sizes[at + 1]), [])
                routes += [route for route in pair if route not in routes]
    return found


def _unbeaten(curves: Curves, route: str, size: int) -> bool:
    return not any(curve[size].beats(curves[route][size]) for curve in curves.values() if size in curve)


def breaks(curves: Curves) -> Intervals:
    """Where the time of a route that is the fastest at either end grows by more than its bytes do."""
    at = {size: {route: curve[size] for route, curve in curves.items() if size in curve} for size in _sizes(curves)}
    fastest = {size: min(times, key=lambda route: times[route].seconds) for size, times in at.items()}
    found: Intervals = {}
    for route, curve in curves.items():
        for low, high in pairwise(sorted(curve)):
            grows = curve[high].seconds / curve[low].seconds > BREAK * high / low
            if grows and route in (fastest[low], fastest[high]):
                found.setdefault((low, high), []).append(route)
    return found


def _sizes(curves: Curves) -> set[int]:
    return {size for curve in curves.values() for size in curve}
