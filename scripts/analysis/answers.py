"""Which route to take: the recommendation, made once here and shown in the terminal, the page and its Markdown.

A need is what somebody wants ("a copy of this array as a tensor"); its candidates are the routes that do it. At each
measured size a route is good where it is safe and not decided to be slower than another safe one (see choice.py). Safe:
no hazard, and no input that it silently gets wrong or dies of. Neighbouring sizes that have a good route in common get
one; of several the catalogue's first. So ties decide nothing: a size at which routes tie joins its neighbours, and the
same run measured twice gives the same advice but where a difference is barely decided. Being tied is not transitive, so
what counts is not to be beaten by any, rather than to be tied with the one that happened to read the fastest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pages import show
from pages.show import Code, Line

from .choice import Evidence, evidence_of, slower, unbeaten
from .contracts import ALIAS, COPY, FINE, INTO, MEMORIES, keeps_dtype, memory_for, of_cell, outcomes, safe
from .results import MORE_PARAMETERS, PARAMETERS, Results, summarize

MEMCPY = "limits.Memcpy.timeit_copy"
FLAT = 1.25  # largest median / smallest median up to which a time is the same "at any size"
SLOW = 1.5  # a route that takes more than this many times the recommended one's seconds is worth a warning
ALIKE = 1.1  # routes whose times differ by less are equally slow to a reader
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
    """A timed cell. seconds: median over the figures of its processes; low, high: their range.

    calm: whether the machine was calm while any of the processes measured, True where that is not known.
    """

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
    evidence: Evidence = field(hash=False, compare=False)
    calm: bool = True
    way: str = ""  # the parameter direction, of benchmarks without routes
    part: str = ""
    form: str = ""

    @property
    def direction(self) -> str:
        return self.contract.get("direction", "") or self.way

    @property
    def memory(self) -> str:
        """alias, copy or into, for this cell's dtype and layout."""
        return memory_for(self.contract, self.dtype, self.layout)

    @property
    def shown(self) -> str:
        """Its seconds in words."""
        return show.seconds(self.seconds, self.calm)

    @property
    def safe(self) -> bool:
        return safe(self.contract)


def cells_of(results: Results) -> list[Cell]:
    """All timed cells, in the order of the catalogue."""
    if results.processes.empty:
        return []
    table = summarize(results.processes)
    table["evidence"] = evidence_of(table, results.benchmarks)
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


@dataclass(frozen=True)
class Choice:
    """The route to take at one size, with every candidate beside it, fastest first."""

    cell: Cell
    ties: tuple[Cell, ...]  # safe and not decided to be slower or faster than the chosen one
    others: tuple[Cell, ...]  # safe and decided to be slower
    hazardous: tuple[Cell, ...]  # decided to be faster, and not safe
    busy: bool  # the machine was never calm while a safe candidate was measured: nothing is decided about that one

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
    def told(self) -> tuple[Choice, ...]:
        """The choices whose figures are told: the calm ones, where there are any."""
        return tuple(choice for choice in self.choices if choice.cell.calm) or self.choices

    @property
    def flat(self) -> bool:
        seconds = [choice.cell.seconds for choice in self.told]
        return max(seconds) <= FLAT * min(seconds)

    def time(self) -> str:
        """Seconds in words: one figure where they are the same at all sizes, else up to three sizes."""
        choices = self.told
        if len(choices) == 1:
            return f"{choices[0].cell.shown} at {show.size(choices[0].nbytes)}"
        if self.flat:
            middle = sorted((choice.cell for choice in choices), key=lambda cell: cell.seconds)[len(choices) // 2]
            return f"{middle.shown} from {show.size(choices[0].nbytes)} to {show.size(choices[-1].nbytes)}"
        shown = dict.fromkeys((choices[0], choices[len(choices) // 2], choices[-1]))
        return ", ".join(f"{choice.cell.shown} at {show.size(choice.nbytes)}" for choice in shown)


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
    """The fewest segments of sizes that have a good route in common, from small sizes to large.

    At a size at which the machine was never calm while a route was measured, nothing is decided about that route: its
    neighbours' choice may stand there, but it is not chosen for that size alone if another was measured in calm.
    """
    by_size: dict[int, list[Cell]] = {}
    for cell in candidates:
        by_size.setdefault(cell.nbytes, []).append(cell)
    groups: list[tuple[list[int], set[str]]] = []
    for nbytes in sorted(by_size):
        good = {cell.route for cell in unbeaten(preferred(by_size[nbytes]))}
        if groups and groups[-1][1] & good:
            groups[-1] = (groups[-1][0] + [nbytes], groups[-1][1] & good)
        else:
            groups.append(([nbytes], good))
    segments = []
    for sizes, routes in groups:
        good_cells = [cell for nbytes in sizes for cell in by_size[nbytes] if cell.route in routes]
        first = min(good_cells, key=lambda cell: (not cell.calm, cell.order))
        segments.append(Segment(tuple(_choice(by_size[nbytes], first.route) for nbytes in sizes)))
    return tuple(segments)


def preferred(cells: Sequence[Cell]) -> list[Cell]:
    """The safe ones, or all where none is."""
    return [cell for cell in cells if cell.safe] or list(cells)


def _choice(cells: Sequence[Cell], route: str) -> Choice:
    chosen = next(cell for cell in cells if cell.route == route)
    rest = sorted((cell for cell in cells if cell is not chosen), key=lambda cell: (cell.seconds, cell.order))
    candidates = preferred(cells)
    behind, ahead = slower(rest, [chosen])[:, 0], slower([chosen], rest)[0]
    each = [(cell, cell in candidates, bool(lost), bool(won)) for cell, lost, won in zip(rest, behind, ahead)]
    return Choice(
        cell=chosen,
        ties=tuple(c for c, good, lost, won in each if good and not lost and not won and c.calm and chosen.calm),
        others=tuple(cell for cell, good, lost, _ in each if good and lost),
        hazardous=tuple(cell for cell, good, _, won in each if not good and won),
        busy=not all(cell.calm for cell in candidates),
    )


def answer(title: str, candidates: Sequence[Cell], rivals: Sequence[Cell] = ()) -> Answer:
    """The answer to one need. rivals: other ways people take, for the warning of the slowest; candidates are in it."""
    segments = choose(candidates)
    first = segments[0].choices[0].cell
    notes = [*busy_at(segments), *_crossovers(segments), *_promises(segments), *_ties(segments)]
    notes += _hazardous(segments)
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


def busy_at(segments: Iterable[Segment]) -> Iterable[Line]:
    """The sizes at which not everything could be decided because of the machine."""
    sizes = sorted({choice.nbytes for segment in segments for choice in segment.choices if choice.busy})
    if sizes:
        at = f" at {show.sizes(sizes)}" if any(sizes) else ""
        yield (f"Not decided here: the machine was busy{at}.",)


def _crossovers(segments: Sequence[Segment]) -> Iterable[Line]:
    """Between the sizes at which either route is decided to be slower than the other; nothing where one is missing."""
    bounds, undecided = [], False
    for before, after in zip(segments, segments[1:]):
        low = [choice.nbytes for choice in before.choices if _slower_here(after.route, choice)]
        high = [choice.nbytes for choice in after.choices if _slower_here(before.route, choice)]
        if low and high:
            sizes = [choice.nbytes for choice in (*before.choices, *after.choices)]
            between = [nbytes for nbytes in sizes if low[-1] < nbytes < high[0]]
            undecided |= bool(between)
            inside = f" (undecided at {show.sizes(between)})" if between else ""
            bounds.append(f"between {show.size(low[-1])} and {show.size(high[0])}{inside}")
    if bounds:
        word = "The crossover lies" if len(bounds) == 1 else "The crossovers lie"
        which = "other sizes" if undecided else "sizes"
        yield (f"{word} {show.join(bounds)}: {which} in between were not measured.",)


def _slower_here(route: str, choice: Choice) -> bool:
    """Whether a route is decided to be slower than the one chosen at a size."""
    return any(cell.route == route for cell in choice.others)


def _promises(segments: Sequence[Segment]) -> Iterable[Line]:
    """What the chosen routes need, their hazards, and the inputs they do not simply take."""
    for segment in {segment.route: segment for segment in segments}.values():
        contract = segment.contract
        if contract.get("needs"):
            yield (Code(segment.route), f" needs {contract['needs'].replace(' ', ' and ')}.")
        for said in filter(None, map(contract.get, ("hazard", "caution"))):
            yield (Code(segment.route), f": {said}.")
        words = [f"{does} ({', '.join(sources)})" for does, sources in outcomes(contract).items() if does not in FINE]
        if words:
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
            f" is {show.ratio(gain)} as fast ({cell.shown} at {show.size(cell.nbytes)}), but not recommended: "
            f"{why_unsafe(cell)}.",
        )


def why_unsafe(cell: Cell) -> str:
    """Why a route is not recommended."""
    return cell.contract.get("hazard") or "it gets some inputs wrong without an exception"


def _slowest(segments: Sequence[Segment], rivals: Sequence[Cell]) -> Iterable[Line]:
    """A warning of the rival that costs the largest factor; of those that are ALIKE in it, of the catalogue's first."""
    measured: list[tuple[float, Cell]] = []
    for choice in (choice for segment in segments for choice in segment.choices):
        here = [cell for cell in rivals if cell.nbytes == choice.nbytes]
        far = slower(here, [choice.cell], SLOW - 1)[:, 0]
        measured += [(cell.seconds / choice.cell.seconds, cell) for cell, slow in zip(here, far) if slow]
    if measured:
        largest = max(factor for factor, _ in measured)
        alike = [(factor, cell) for factor, cell in measured if factor * ALIKE >= largest]
        factor, worst = min(alike, key=lambda pair: (pair[1].order, -pair[1].nbytes))
        hazard = worst.contract.get("hazard", "")
        yield (
            "Slowest: ",
            Code(worst.route),
            f", {worst.shown} at {show.size(worst.nbytes)}, {show.ratio(factor)} the time",
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
    times = [f"{segments[-1].choices[-1].cell.shown} from {dtype}" for dtype, segments in zip(dtypes, each)]
    size = show.size(one.segments[-1].choices[-1].nbytes)
    lines = (*one.lines[:-1], (*one.lines[-1][:2], f", {', '.join(times)} at {size}"))
    busy = busy_at(segment for segments in each for segment in segments)
    notes = (*busy, *_crossovers(one.segments), *_promises(one.segments))
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
