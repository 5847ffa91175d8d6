"""Which route to take: the recommendation, made once here and shown in the terminal, the page and its Markdown.

A need is what somebody wants ("a copy of this array as a tensor"); its candidates are the routes that do it. At each
measured size the fastest safe route is chosen. Safe: no hazard, and no input that it silently gets wrong or dies of.
Routes are tied with the fastest where the ranges of their processes overlap or the medians are within TIE. Among tied
routes the one that is tied at the most neighbouring sizes wins, then the catalogue's earlier.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import show
from .contracts import ALIAS, COPY, FINE, INTO, MEMORIES, keeps_dtype, memory_for, of_cell, safe
from .results import MORE_PARAMETERS, PARAMETERS, Results, summarize
from .show import Code, Line

MEMCPY = "limits.Memcpy.timeit_copy"
TIE = 0.03  # medians this close are tied
FLAT = 1.25  # largest median / smallest median up to which a time is the same "at any size"
SLOW = 1.5  # a route from this many times the recommended one's seconds on is worth a warning
BY_BYTES = 2.0  # memcpy takes this many times what a call of it takes: the bytes decide, a bandwidth has a meaning

NUMPY_TO_TORCH, TORCH_TO_NUMPY = "numpy→torch", "torch→numpy"
SOURCES = {
    NUMPY_TO_TORCH: ("NumPy array", "tensor"),
    TORCH_TO_NUMPY: ("tensor", "NumPy array"),
    "host→device": ("host tensor", "device"),
    "device→host": ("device tensor", "host"),
}
MEMORY_WORDS = {ALIAS: "sharing its memory", COPY: "as a copy of its own", INTO: "into a buffer that exists"}


@dataclass(frozen=True)
class Cell:
    """A timed cell. seconds: median over processes of each process's 25 % quantile; low, high: their range."""

    benchmark: str
    cell: str
    family: str
    group: str
    route: str
    dtype: str
    nbytes: int
    layout: str
    threads: str
    host: str  # the parameter memory of transfers: pageable, pinned, registered
    statement: str
    seconds: float
    low: float
    high: float
    cv: float
    processes: int
    order: int
    contract: Mapping[str, Any] = field(hash=False, compare=False)
    way: str = ""  # the parameter direction, of benchmarks without routes
    part: str = ""
    form: str = ""

    @property
    def direction(self) -> str:
        return self.contract.get("direction", "") or self.way

    @property
    def memory(self) -> str:
        """alias, copy or into, for this cell's dtype."""
        return memory_for(self.contract, self.dtype)

    @property
    def safe(self) -> bool:
        return safe(self.contract)


def cells_of(results: Results) -> list[Cell]:
    """All timed cells, in the order of the catalogue."""
    if results.processes.empty:
        return []
    table = summarize(results.processes)
    parameters = [*PARAMETERS, *(name for name in MORE_PARAMETERS if name in table)]
    table[parameters] = table[parameters].astype(object).where(table[parameters].notna(), "")
    cells = []
    for row in table.to_dict("records"):
        benchmark = results.benchmarks[row["benchmark"]]
        names = benchmark["param_names"]
        spellings = benchmark["params"][names.index("route")] if "route" in names else []
        order = spellings.index(repr(row["route"])) if repr(row["route"]) in spellings else 0
        wanted: dict[str, Any] = {name: row[name] for name in Cell.__dataclass_fields__ if name in row}
        wanted |= {"nbytes": int(row["nbytes"] or 0), "host": row["memory"], "way": row.get("direction", "")}
        contract = of_cell(results.benchmarks, row["benchmark"], row["route"])
        cells.append(Cell(**wanted, order=order, contract=contract))
    return cells


def tied(cell: Cell, fastest: Cell) -> bool:
    """Whether a cell is as fast as the fastest, as far as the processes can tell."""
    return cell.low <= fastest.high or cell.seconds <= fastest.seconds * (1 + TIE)


@dataclass(frozen=True)
class Choice:
    """The route to take at one size, with every candidate beside it, fastest first."""

    cell: Cell
    ties: tuple[Cell, ...]  # as fast, the chosen one left out
    others: tuple[Cell, ...]  # the safe candidates that are slower, fastest first
    hazardous: tuple[Cell, ...]  # faster than the chosen one beyond a tie, and not safe

    @property
    def nbytes(self) -> int:
        return self.cell.nbytes


@dataclass(frozen=True)
class Segment:
    """Neighbouring sizes at which the same route is chosen."""

    choices: tuple[Choice, ...]

    @property
    def route(self) -> str:
        return self.choices[0].cell.route

    @property
    def contract(self) -> Mapping[str, Any]:
        return self.choices[0].cell.contract

    @property
    def flat(self) -> bool:
        seconds = [choice.cell.seconds for choice in self.choices]
        return max(seconds) <= FLAT * min(seconds)

    def time(self) -> str:
        """Seconds in words: one figure where they are the same at all sizes, else up to three sizes."""
        choices = self.choices
        if len(choices) == 1:
            return f"{show.seconds(choices[0].cell.seconds)} at {show.size(choices[0].nbytes)}"
        if self.flat:
            middle = sorted(choice.cell.seconds for choice in choices)[len(choices) // 2]
            return f"{show.seconds(middle)} from {show.size(choices[0].nbytes)} to {show.size(choices[-1].nbytes)}"
        shown = dict.fromkeys((choices[0], choices[len(choices) // 2], choices[-1]))
        return ", ".join(f"{show.seconds(choice.cell.seconds)} at {show.size(choice.nbytes)}" for choice in shown)


@dataclass(frozen=True)
class Advice:
    """What to do about one need, as pages and the terminal show it."""

    title: str
    lines: tuple[Line, ...]  # when, what and how fast, three parts each
    notes: tuple[Line, ...]


@dataclass(frozen=True)
class Answer(Advice):
    """Advice by size: segments in order of size, one line each."""

    segments: tuple[Segment, ...]
    direction: str
    memory: str

    @property
    def choices(self) -> dict[int, Choice]:
        return {choice.nbytes: choice for segment in self.segments for choice in segment.choices}


def choose(candidates: Iterable[Cell]) -> tuple[Segment, ...]:
    """The fewest segments of sizes that have one route each among the fastest, from small sizes to large."""
    by_size: dict[int, list[Cell]] = {}
    for cell in candidates:
        by_size.setdefault(cell.nbytes, []).append(cell)
    groups: list[tuple[list[int], set[str]]] = []
    for nbytes in sorted(by_size):
        good = {cell.route for cell in _best(by_size[nbytes])}
        if groups and groups[-1][1] & good:
            groups[-1] = (groups[-1][0] + [nbytes], groups[-1][1] & good)
        else:
            groups.append(([nbytes], good))
    segments = []
    for sizes, routes in groups:
        first = min((cell for cell in by_size[sizes[0]] if cell.route in routes), key=lambda cell: cell.order)
        segments.append(Segment(tuple(_choice(by_size[nbytes], first.route) for nbytes in sizes)))
    return tuple(segments)


def _preferred(cells: Sequence[Cell]) -> list[Cell]:
    """The safe ones, or all where none is."""
    return [cell for cell in cells if cell.safe] or list(cells)


def _best(cells: Sequence[Cell]) -> list[Cell]:
    preferred = _preferred(cells)
    fastest = min(preferred, key=lambda cell: cell.seconds)
    return [cell for cell in preferred if tied(cell, fastest)]


def _choice(cells: Sequence[Cell], route: str) -> Choice:
    chosen = next(cell for cell in cells if cell.route == route)
    rest = sorted((cell for cell in cells if cell is not chosen), key=lambda cell: (cell.seconds, cell.order))
    preferred, best = _preferred(cells), _best(cells)
    return Choice(
        cell=chosen,
        ties=tuple(cell for cell in rest if cell in best),
        others=tuple(cell for cell in rest if cell in preferred and cell not in best),
        hazardous=tuple(
            cell for cell in rest if cell not in preferred and cell.seconds < chosen.seconds and not tied(chosen, cell)
        ),
    )


def answer(title: str, candidates: Sequence[Cell], rivals: Sequence[Cell] = ()) -> Answer:
    """The answer to one need. rivals: other ways people take, for the warning of the slowest; candidates are in it."""
    segments = choose(candidates)
    first = segments[0].choices[0].cell
    notes = [*_crossovers(segments), *_promises(segments), *_ties(segments), *_hazardous(segments)]
    notes += _slowest(segments, [*candidates, *rivals])
    return Answer(title, tuple(_sentences(segments)), tuple(notes), segments, first.direction, first.memory)


def _sentences(segments: Sequence[Segment]) -> Iterable[Line]:
    for index, segment in enumerate(segments):
        sizes = [choice.nbytes for choice in segment.choices]
        where = ""
        if len(segments) > 1:
            where = f"from {show.size(sizes[0])} on: " if index else f"up to {show.size(sizes[-1])}: "
            if 0 < index < len(segments) - 1:
                where = f"from {show.size(sizes[0])} to {show.size(sizes[-1])}: "
                where = f"at {show.size(sizes[0])}: " if len(sizes) == 1 else where
        time = segment.time()
        if len(segments) == 1 and segment.flat and len(sizes) > 2:
            time = time.replace(" from ", " at any size from ")
        yield (where, Code(segment.route), f", {time}")


def _crossovers(segments: Sequence[Segment]) -> Iterable[Line]:
    bounds = [
        f"between {show.size(before.choices[-1].nbytes)} and {show.size(after.choices[0].nbytes)}"
        for before, after in zip(segments, segments[1:])
    ]
    if bounds:
        word = "The crossover lies" if len(bounds) == 1 else "The crossovers lie"
        yield (f"{word} {show.join(bounds)}: sizes in between were not measured.",)


def _promises(segments: Sequence[Segment]) -> Iterable[Line]:
    """What the chosen routes need, their hazards, and the inputs they do not simply take."""
    for segment in {segment.route: segment for segment in segments}.values():
        contract = segment.contract
        if contract.get("needs"):
            yield (Code(segment.route), f" needs {contract['needs'].replace(' ', ' and ')}.")
        if contract.get("hazard"):
            yield (Code(segment.route), f": {contract['hazard']}.")
        outcomes: dict[str, list[str]] = {}
        for source, does in contract.get("inputs", {}).items():
            if does not in FINE:
                outcomes.setdefault(str(does), []).append(source)
        if outcomes:
            words = [f"{does} ({', '.join(sources)})" for does, sources in outcomes.items()]
            which = (" of ", Code(segment.route)) if len({one.route for one in segments}) > 1 else ()
            yield ("Awkward sources", *which, f": {'; '.join(words)}.")


def _ties(segments: Sequence[Segment]) -> Iterable[Line]:
    for segment in segments:
        counts = Counter(cell.route for choice in segment.choices for cell in choice.ties)
        always = [route for route, count in counts.items() if count == len(segment.choices)]
        if always:
            where = "" if len(segments) == 1 and len(segment.choices) > 1 else f" at {_sizes_of(segment)}"
            yield ("Tie", where, " with ", *show.codes(always), ".")
        sometimes = [route for route in counts if route not in always]
        if len(sometimes) == 1:
            sizes = [c.nbytes for c in segment.choices if any(cell.route == sometimes[0] for cell in c.ties)]
            yield (f"Tie at {show.sizes(sizes)} with ", Code(sometimes[0]), ".")
        elif sometimes:
            yield (f"Tie at some sizes of {_sizes_of(segment)} with ", *show.codes(sometimes), ".")


def _sizes_of(segment: Segment) -> str:
    first, last = segment.choices[0].nbytes, segment.choices[-1].nbytes
    return show.size(first) if first == last else f"{show.size(first)} to {show.size(last)}"


def _hazardous(segments: Sequence[Segment]) -> Iterable[Line]:
    """One sentence on each route that is faster but not safe, at the size where it gains most."""
    gains: dict[str, tuple[float, Cell]] = {}
    for choice in (choice for segment in segments for choice in segment.choices):
        for cell in choice.hazardous:
            gain = choice.cell.seconds / cell.seconds
            if gain > gains.get(cell.route, (0.0, cell))[0]:
                gains[cell.route] = gain, cell
    for gain, cell in gains.values():
        yield (
            Code(cell.route),
            f" is {show.ratio(gain)} as fast ({show.seconds(cell.seconds)} at {show.size(cell.nbytes)}), but not "
            f"recommended: {cell.contract.get('hazard') or 'it gets some inputs wrong without an exception'}.",
        )


def _slowest(segments: Sequence[Segment], rivals: Iterable[Cell]) -> Iterable[Line]:
    """A warning of the rival that costs the largest factor."""
    chosen = {choice.nbytes: choice.cell for segment in segments for choice in segment.choices}
    measured = [(cell.seconds / chosen[cell.nbytes].seconds, cell) for cell in rivals if cell.nbytes in chosen]
    factor, worst = max(measured, key=lambda pair: pair[0])
    if factor >= SLOW:
        hazard = worst.contract.get("hazard", "")
        yield (
            "Slowest: ",
            Code(worst.route),
            f", {show.seconds(worst.seconds)} at {show.size(worst.nbytes)}, {show.ratio(factor)} the time",
            f": {hazard}." if hazard else ".",
        )


def usual_dtype(cells: Sequence[Cell]) -> str:
    """The dtype that was measured at the most sizes, then in the most cells; the first of equals."""
    sizes: dict[str, set[int]] = {}
    for cell in cells:
        sizes.setdefault(cell.dtype, set()).add(cell.nbytes)
    counts = Counter(cell.dtype for cell in cells)
    return max(sizes, key=lambda dtype: (len(sizes[dtype]), counts[dtype]), default="")


# Families with a place on the page
ON_DEVICE = ("transfer", "overlap", "firsts", "link")
FAMILIES = ("conversion", "casting", "layout", "batches", "cold", "threads", "limits", *ON_DEVICE)


def other_families(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """The cells of families that the page has no section for, so that a new family shows up on it."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.family not in FAMILIES:
            found.setdefault(cell.family, []).append(cell)
    return found


def alike(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Cells of the usual dtype that differ in route and size alone, by a name in words: what one panel can hold."""
    found: dict[str, list[Cell]] = {}
    usual = {name: usual_dtype([c for c in cells if c.benchmark == name]) for name in {c.benchmark for c in cells}}
    for cell in (cell for cell in cells if cell.dtype == usual[cell.benchmark]):
        method = cell.benchmark.rpartition(".")[2].partition("_")[2]
        words = [cell.group, method, cell.host, cell.dtype, cell.layout, cell.threads, cell.statement]
        found.setdefault(", ".join(word for word in words if word), []).append(cell)
    return found


def conversions(cells: Iterable[Cell]) -> list[Cell]:
    """The cells of plain conversions of the usual dtype: what decisions and curves are about."""
    plain = [c for c in cells if c.family == "conversion" and not c.group.startswith("RequiresGrad")]
    usual = usual_dtype(plain)
    return [cell for cell in plain if cell.dtype == usual]


def decisions(cells: Sequence[Cell]) -> list[Answer]:
    """Alias, copy and into, in each direction."""
    plain = conversions(cells)
    answers = []
    for memory in MEMORIES:
        for direction in dict.fromkeys(cell.direction for cell in plain):
            same = [cell for cell in plain if (cell.direction, cell.memory) == (direction, memory)]
            candidates = [cell for cell in same if keeps_dtype(cell.contract, cell.dtype)]
            if candidates:
                source, target = SOURCES.get(direction, ("source", direction))
                title = f"{source[:1].upper()}{source[1:]} to {target}, {MEMORY_WORDS[memory]}"
                answers.append(answer(title, candidates, same))
    return answers


def requires_grad(cells: Iterable[Cell]) -> list[Cell]:
    """The routes that give an array that shares the memory of a tensor that requires grad."""
    return [cell for cell in cells if cell.group.startswith("RequiresGrad") and cell.memory == ALIAS]


def _special(cells: Sequence[Cell]) -> Iterable[Answer]:
    """Needs that have a benchmark of their own."""
    grad = requires_grad(cells)
    if grad:
        yield answer("Tensor that requires grad to NumPy array, sharing its memory", grad)
    lists = [cell for cell in cells if cell.group == "ArraysToTensor"]
    if lists:
        yield answer("List of NumPy arrays into one tensor", lists)
    casting = [cell for cell in cells if cell.family == "casting"]
    for group in dict.fromkeys(cell.group for cell in casting):
        yield from _casts([cell for cell in casting if cell.group == group])


def _casts(cells: Sequence[Cell]) -> Iterable[Answer]:
    """One answer a source dtype; dtypes with the same recommendation share one."""
    found: dict[tuple[tuple[str, ...], str], list[str]] = {}
    made: dict[tuple[tuple[str, ...], str], list[Cell]] = {}
    for dtype in dict.fromkeys(cell.dtype for cell in cells):
        own = [cell for cell in cells if cell.dtype == dtype]
        segments = choose(own)
        goal = segments[0].contract.get("casts_to", "")
        key = tuple(segment.route for segment in segments), goal
        found.setdefault(key, []).append(dtype)
        made.setdefault(key, []).extend(own)
    source, target = SOURCES.get(cells[0].direction, ("source", "result"))
    for key, dtypes in found.items():
        own = [cell for cell in made[key] if cell.dtype == dtypes[0]]
        one = answer(f"{show.join(dtypes)} {source} to {key[1]} {target}", own)
        if len(dtypes) > 1:
            one = _with_dtypes(one, [choose([c for c in made[key] if c.dtype == dtype]) for dtype in dtypes], dtypes)
        yield one


def _with_dtypes(one: Answer, each: Sequence[tuple[Segment, ...]], dtypes: Sequence[str]) -> Answer:
    """The answer for several source dtypes: the times of all, at the largest common size; no notes on one of them."""
    times = [
        f"{show.seconds(segments[-1].choices[-1].cell.seconds)} from {dtype}" for dtype, segments in zip(dtypes, each)
    ]
    size = show.size(one.segments[-1].choices[-1].nbytes)
    lines = (*one.lines[:-1], (*one.lines[-1][:2], f", {', '.join(times)} at {size}"))
    notes = tuple(_crossovers(one.segments)) + tuple(_promises(one.segments))
    return Answer(one.title, lines, notes, one.segments, one.direction, one.memory)


def answers(cells: Sequence[Cell]) -> list[Answer]:
    """Every decision that the results can answer."""
    return [*decisions(cells), *_special(cells)]


@dataclass(frozen=True)
class Limit:
    """memcpy on this machine, in the same run."""

    seconds: Mapping[int, float]  # nbytes -> seconds

    def decides(self, nbytes: int) -> bool:
        """Whether at this size it is the bytes that take the time, and not the call."""
        return nbytes in self.seconds and self.seconds[nbytes] >= BY_BYTES * min(self.seconds.values())

    def efficiency(self, cell: Cell) -> float:
        """memcpy's seconds ÷ the route's: 1 is the limit."""
        return self.seconds[cell.nbytes] / cell.seconds


def limit_of(cells: Iterable[Cell]) -> Limit:
    return Limit({cell.nbytes: cell.seconds for cell in cells if cell.benchmark == MEMCPY})
