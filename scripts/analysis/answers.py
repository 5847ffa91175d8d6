"""Which route to take: the recommendation and what it rests on, as data; pages/advice.py says it.

A need is what somebody wants ("a copy of this array as a tensor"); its candidates are the routes that do it. At each
measured size a route is good where it is safe, not decided to be slower than another safe one (see choice.py), and at
most AS_GOOD behind the fastest. Safe: no hazard, and no input that it silently gets wrong or dies of. Neighbouring
sizes that have a good route in common get one: of several that which is good at most sizes, so that an answer has few
names, then the one that is the least behind.

To take the fastest median at each size would change the route by noise: on three machines a copy's answer had 3 or 4
parts in place of 1 or 2. To take the catalogue's first of all that tie cost up to 30 %.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.contracts import ALIAS, INTO, MEMORIES, Route
from benchmarks.families import CASTING

from .case import AS_GOOD
from .cells import Cell, conversions, from_lists, requires_grad
from .choice import slower, unbeaten

FLAT = 1.25  # largest median / smallest median up to which a time is the same "at any size"
SLOW = 1.5  # a route that takes more than this many times the recommended one's seconds is worth a warning
ALIKE = 1.1  # routes whose times differ by less are equally slow to a reader
# Kinds of need: alias, copy and into in either direction, what has benchmarks of its own, and what crosses a link
PLAIN, GRAD, LISTS, CAST, MOVE = "plain", "requires grad", "lists", "cast", "move"


@dataclass(frozen=True)
class Choice:
    """The route to take at one size, with every candidate beside it, fastest first."""

    cell: Cell
    ties: tuple[Cell, ...]  # safe and not decided to be slower or faster than the chosen one
    others: tuple[Cell, ...]  # safe and decided to be slower
    undecided: tuple[Cell, ...]  # safe, and never measured while the machine was quiet, as the chosen one may be
    hazardous: tuple[Cell, ...]  # decided to be faster, and not safe
    busy: bool  # the machine was never calm while a safe candidate was measured: nothing is decided about that one

    @property
    def nbytes(self) -> int:
        return self.cell.nbytes

    @property
    def conditional(self) -> list[Cell]:
        """The routes that are faster on a condition, which whoever waits for the bytes heeds, and that none of these
        beats; in catalogue order."""
        fast = [cell for cell in self.hazardous if cell.contract.non_blocking]
        return sorted(unbeaten(fast), key=lambda cell: cell.order)

    @property
    def unsafe(self) -> list[Cell]:
        """What is faster, and waiting does not make it right to take."""
        return [cell for cell in self.hazardous if not cell.contract.non_blocking]


@dataclass(frozen=True)
class Segment:
    """Neighbouring sizes at which the same route is chosen, and the same one is faster on a condition."""

    choices: tuple[Choice, ...]

    @property
    def route(self) -> str:
        return self.choices[0].cell.route

    @property
    def contract(self) -> Route:
        return self.choices[0].cell.contract

    @property
    def sizes(self) -> list[int]:
        return [choice.nbytes for choice in self.choices]

    @property
    def moves(self) -> bool:
        """Whether bytes move, so that threads matter."""
        return self.choices[0].cell.memory != ALIAS

    @property
    def calm(self) -> tuple[Choice, ...]:
        """The choices whose figures count: the calm ones, where there are any."""
        return tuple(choice for choice in self.choices if choice.cell.calm) or self.choices

    @property
    def flat(self) -> bool:
        """Whether the route takes the same time at all sizes."""
        seconds = [choice.cell.seconds for choice in self.calm]
        return max(seconds) <= FLAT * min(seconds)

    @property
    def middle(self) -> Cell:
        """The chosen cell whose time lies in the middle."""
        cells = sorted((choice.cell for choice in self.calm), key=lambda cell: cell.seconds)
        return cells[len(cells) // 2]

    @property
    def conditional(self) -> Cell | None:
        """The route that is faster on a condition at all sizes, or else at the largest; its cell there."""
        each = [{cell.route for cell in choice.hazardous} for choice in self.choices]
        faster = self.choices[-1].conditional
        common = [cell for cell in faster if all(cell.route in routes for routes in each)]
        return next(iter(common or faster), None)


@dataclass(frozen=True)
class Need:
    """What somebody wants.

    dtypes, goal  of a cast: the sources' dtypes that share an answer, and the result's
    host, array   of what crosses a link: which memory is at the host's end, and whether as an array or a tensor
    """

    kind: str
    direction: str
    memory: str
    dtypes: tuple[str, ...] = ()
    goal: str = ""
    host: str = ""
    array: bool = False

    @property
    def into(self) -> bool:
        return self.memory == INTO


@dataclass(frozen=True)
class Answer:
    """What to take for a need, by size: segments in order of size.

    rivals: all ways that people take, the candidates among them. each: of a cast, the segments of each source dtype,
    which have the same routes in the same order; ``segments`` and ``rivals`` are those of the first.
    """

    need: Need
    segments: tuple[Segment, ...]
    rivals: tuple[Cell, ...]
    each: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict, hash=False)

    @property
    def choices(self) -> dict[int, Choice]:
        return {choice.nbytes: choice for choice in choices_of(self.segments)}


def choices_of(segments: Iterable[Segment]) -> list[Choice]:
    return [choice for segment in segments for choice in segment.choices]


def choose(candidates: Iterable[Cell]) -> tuple[Segment, ...]:
    """The fewest segments of sizes that have a good route in common, from small sizes to large; cut where the route
    that is faster on a condition changes.

    At a size at which the machine was never calm while a route was measured, nothing is decided about that route: its
    neighbours' choice may stand there, but it is not chosen for that size alone if another was measured in calm.
    """
    by_size: dict[int, list[Cell]] = {}
    for cell in candidates:
        by_size.setdefault(cell.nbytes, []).append(cell)
    groups: list[tuple[list[int], dict[str, Good]]] = []
    often: Counter[str] = Counter()
    for nbytes in sorted(by_size):
        good = _good(by_size[nbytes])
        often.update(list(good))
        sizes, before = groups[-1] if groups else ([], {})
        common = {route: before[route].and_at(good[route]) for route in before if route in good}
        groups[len(groups) - bool(common) :] = [([*sizes, nbytes], common) if common else ([nbytes], good)]
    segments: list[Segment] = []
    for sizes, routes in groups:
        first = min(routes, key=lambda route: (routes[route].noisy, -often[route], routes[route]))
        segments += _cut([_choice(by_size[nbytes], first) for nbytes in sizes])
    return tuple(segments)


class Good(NamedTuple):
    """A route that may be taken at some sizes, the least to be taken first. noisy: at all of them; behind: the fastest
    ones, log seconds; order: in the catalogue."""

    noisy: bool
    behind: float
    order: int

    def and_at(self, another: "Good") -> "Good":
        """At the sizes of both."""
        return Good(self.noisy and another.noisy, self.behind + another.behind, self.order)


def _good(cells: Sequence[Cell]) -> dict[str, Good]:
    """The safe routes of a size that none is decided to be faster than and that take at most AS_GOOD longer than the
    fastest, or were never measured in calm."""
    unbeaten_ones = unbeaten(preferred(cells))
    fastest = min(unbeaten_ones, key=lambda cell: (not cell.calm, cell.seconds)).seconds
    behind = {cell: max(0.0, math.log(cell.seconds / fastest)) for cell in unbeaten_ones}
    return {
        cell.route: Good(not cell.calm, behind[cell], cell.order)
        for cell in unbeaten_ones
        if not cell.calm or behind[cell] <= math.log1p(AS_GOOD)
    }


def _cut(choices: Iterable[Choice]) -> list[Segment]:
    """Choices of one route, cut where no route is faster on a condition at both sizes, though one is at either."""
    parts: list[list[Choice]] = []
    best: list[set[str]] = []
    for choice in choices:
        good = {cell.route for cell in choice.conditional}
        if parts and (best[-1] & good or not (best[-1] | good)):
            parts[-1].append(choice)
            best[-1] &= good
        else:
            parts.append([choice])
            best.append(good)
    return [Segment(tuple(part)) for part in parts]


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
        undecided=tuple(c for c, good, lost, _ in each if good and not lost and not (c.calm and chosen.calm)),
        hazardous=tuple(cell for cell, good, _, won in each if not good and won),
        busy=not all(cell.calm for cell in candidates),
    )


# What else is known of an answer


def busy_sizes(choices: Iterable[Choice]) -> list[int]:
    """The sizes at which not everything could be decided because of the machine."""
    return sorted({choice.nbytes for choice in choices if choice.busy})


@dataclass(frozen=True)
class Tied:
    """The routes that are as good as the chosen one at some size, and the sizes at which one is."""

    routes: tuple[str, ...]
    sizes: tuple[int, ...]


def tied(segments: Iterable[Segment]) -> Tied | None:
    """None where the chosen route is decided to be the fastest at every size."""
    some = [choice for choice in choices_of(segments) if choice.ties]
    routes = dict.fromkeys(cell.route for choice in some for cell in choice.ties)
    return Tied(tuple(routes), tuple(choice.nbytes for choice in some)) if some else None


def faster_alone(answer: Answer, alone: Answer) -> dict[str, list[Cell]]:
    """The routes that are decided to be faster than the chosen one where torch has one thread, with their cells."""
    faster: dict[str, list[Cell]] = {}
    for nbytes, choice in alone.choices.items():
        chosen = answer.choices.get(nbytes)
        if chosen and any(cell.route == chosen.cell.route for cell in choice.others):
            faster.setdefault(choice.cell.route, []).append(choice.cell)
    return faster


def hazardous(segments: Iterable[Segment]) -> list[tuple[Cell, float]]:
    """Each route that is faster but not safe, where it gains most, with the chosen one's seconds ÷ its own."""
    gains: dict[str, tuple[Cell, float]] = {}
    for choice in choices_of(segments):
        for cell in choice.hazardous:
            gain = choice.cell.seconds / cell.seconds
            if cell.route not in gains or gain > gains[cell.route][1]:
                gains[cell.route] = cell, gain
    return list(gains.values())


def slowest(segments: Iterable[Segment], rivals: Sequence[Cell]) -> tuple[Cell, float] | None:
    """The rival that costs the largest factor, and that; of those that are ALIKE in it, the catalogue's first."""
    measured: list[tuple[Cell, float]] = []
    for choice in choices_of(segments):
        here = [cell for cell in rivals if cell.nbytes == choice.nbytes]
        far = slower(here, [choice.cell], SLOW - 1)[:, 0]
        measured += [(cell, cell.seconds / choice.cell.seconds) for cell, slow in zip(here, far) if slow]
    largest = max((factor for _, factor in measured), default=0.0)
    alike = [(cell, factor) for cell, factor in measured if factor * ALIKE >= largest]
    return min(alike, key=lambda pair: (pair[0].order, -pair[0].nbytes), default=None)


# Needs


def answers(cells: Sequence[Cell]) -> list[Answer]:
    """Every decision that the results can answer."""
    return [*decisions(cells), *_special(cells)]


def decisions(cells: Sequence[Cell]) -> list[Answer]:
    """Alias, copy and into, in each direction."""
    plain = conversions(cells)
    answered = []
    for memory in MEMORIES:
        for direction in dict.fromkeys(cell.direction for cell in plain):
            same = tuple(cell for cell in plain if (cell.direction, cell.memory) == (direction, memory))
            candidates = [cell for cell in same if cell.contract.keeps_dtype(cell.dtype)]
            if candidates:
                answered.append(Answer(Need(PLAIN, direction, memory), choose(candidates), same))
    return answered


def _special(cells: Sequence[Cell]) -> Iterator[Answer]:
    """Needs that have a benchmark of their own."""
    for kind, candidates in ((GRAD, requires_grad(cells)), (LISTS, from_lists(cells))):
        if candidates:
            segments = choose(candidates)
            first = segments[0].choices[0].cell
            yield Answer(Need(kind, first.direction, first.memory), segments, tuple(candidates))
    casting: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.role == CASTING:  # parallel.py has classes of the same names, for torch's own number of threads
            casting.setdefault((cell.direction, cell.benchmark.split(".")[1]), []).append(cell)
    for those in casting.values():
        yield from _casts(those)


def _casts(cells: Sequence[Cell]) -> Iterator[Answer]:
    """One answer a source dtype; dtypes with the same recommendation share one. At a size at which nothing safe was
    measured there is none: what is left may give another dtype."""
    safe = {(cell.dtype, cell.nbytes) for cell in cells if cell.safe}
    cells = [cell for cell in cells if (cell.dtype, cell.nbytes) in safe] or cells
    alike: dict[tuple[tuple[str, ...], str], dict[str, tuple[Segment, ...]]] = {}
    for dtype in dict.fromkeys(cell.dtype for cell in cells):
        segments = choose([cell for cell in cells if cell.dtype == dtype])
        key = tuple(segment.route for segment in segments), segments[0].contract.casts_to
        alike.setdefault(key, {})[dtype] = segments
    for (_, goal), each in alike.items():
        dtype, segments = next(iter(each.items()))
        first = segments[0].choices[0].cell
        rivals = tuple(cell for cell in cells if cell.dtype == dtype)
        yield Answer(Need(CAST, cells[0].direction, first.memory, tuple(each), goal), segments, rivals, each)
