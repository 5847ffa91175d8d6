"""What is advised, in words: a title, a line a recommendation, notes on what it rests on."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from analysis.answers import (
    CAST,
    GRAD,
    LISTS,
    PLAIN,
    Answer,
    Choice,
    Need,
    Segment,
    busy_sizes,
    choices_of,
    crossovers,
    hazardous,
    slowest,
    ties,
)
from analysis.cells import Cell
from analysis.findings import Advised, Gain, Slowed

from benchmarks.contracts import (
    ALIAS,
    COPY,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    INTO,
    NUMPY_TO_TORCH,
    TORCH_TO_NUMPY,
    Route,
)

from . import show
from .case import unusual
from .show import code

ENDS = {
    NUMPY_TO_TORCH: ("NumPy array", "tensor"),
    TORCH_TO_NUMPY: ("tensor", "NumPy array"),
    HOST_TO_DEVICE: ("host tensor", "device"),
    DEVICE_TO_HOST: ("device tensor", "host"),
}
MEMORY = {ALIAS: "sharing its memory", COPY: "as a copy of its own", INTO: "into a buffer that exists"}


@dataclass(frozen=True)
class Take:
    """A route to take."""

    when: str  # "" where that is always
    route: str
    cost: str

    @property
    def sentence(self) -> str:
        return f"{self.when}{': ' if self.when else ''}{code(self.route)}, {self.cost}"


@dataclass(frozen=True)
class Box:
    """A box in the head of a page, shown by the terminal, too: what to take or what was found, and notes on that."""

    title: str
    takes: tuple[Take, ...] = ()
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    threads: str = ""  # that torch has, in words; "" where that is no question

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.threads}" if self.threads else self.title

    @property
    def said(self) -> tuple[str, ...]:
        return (*(take.sentence for take in self.takes), *self.lines)


def advice(answer: Answer, alone: Answer | None = None, threads: int = 1) -> Box:
    """alone: the answer where torch has one thread, where this one is of several ``threads``."""
    of = "" if answer.need.memory == ALIAS else show.threads(threads)
    if len(answer.each) > 1:
        return replace(_advice_by_dtype(answer), threads=of)
    segments = answer.segments
    notes = [*busy(choices_of(segments)), *_alone(answer, alone), *_crossovers(segments), *_promises(segments)]
    notes += [*_ties(segments), *_hazardous(segments), *_slowest(answer)]
    return Box(title(answer.need), tuple(takes(segments)), notes=tuple(notes), threads=of)


def _alone(answer: Answer, alone: Answer | None) -> Iterator[str]:
    """The routes that are decided to be faster where torch has one thread, with their times."""
    faster: dict[str, list[str]] = {}
    chosen = {choice.nbytes: choice.cell.route for choice in choices_of(answer.segments)}
    for choice in choices_of(alone.segments) if alone else ():
        if any(cell.route == chosen.get(choice.nbytes) for cell in choice.others):
            at = f"{show.time(choice.cell)} at {show.size(choice.nbytes)}"
            faster.setdefault(choice.cell.route, []).append(at)
    for route, times in faster.items():
        yield f"With one thread, as in a DataLoader worker: {code(route)}, {', '.join(times)}."


def _advice_by_dtype(answer: Answer) -> Box:
    """The times from all source dtypes, at the largest size of the first; no notes on one of them."""
    *before, final = takes(answer.segments)
    last = {dtype: segments[-1].choices[-1] for dtype, segments in answer.each.items()}
    times = ", ".join(f"{show.time(choice.cell)} from {dtype}" for dtype, choice in last.items())
    size = show.size(answer.segments[-1].sizes[-1])
    every = [choice for segments in answer.each.values() for choice in choices_of(segments)]
    notes = (*busy(every), *_crossovers(answer.segments), *_promises(answer.segments))
    return Box(title(answer.need), (*before, replace(final, cost=f"{times} at {size}")), notes=notes)


def setting(advised: Advised) -> Box:
    """A setting of the environment to start a program with."""
    kept = max((gain.kept for gain in advised.gains if gain.kept is not None), default=None)
    price = [] if kept is None else [f"the process keeps {show.size(kept)} when all results are freed"]
    notes = [f"It stands before the command: {code(f'{advised.setting} python program.py')}."]
    notes += [f"{code(advised.setting)}: {advised.caution}."] if advised.caution else []
    notes += [f"Tie with {show.codes(advised.ties)}."] if advised.ties else []
    notes += ["Not decided here: the machine was busy."] if advised.busy else []
    size = show.size(advised.gains[0].cell.nbytes)
    takes = (Take("", advised.setting, "; ".join([*map(_gain, advised.gains), *price])),)
    titles = {gain.cell.declared.title for gain in advised.gains}
    about = capital(titles.pop()) if len(titles) == 1 else "Fresh memory"
    return Box(f"{about}, {size}: a setting to start with", takes, notes=tuple(notes))


def neighbours(copies: Sequence[Slowed]) -> Box:
    """That a copy takes longer where its arrays lie as neighbours do, and what to do about it."""

    return Box(
        "Copies between arrays of whole pages, allocated one behind the other",
        lines=tuple(map(between_neighbours, copies)),
        notes=(
            "This processor moves bytes so slowly where the target begins 1 to 31 bytes further on in its page than "
            "the source. Benchmarks lay all other arrays apart. "
            f"{show.codes(copies[0].cell.declared.settings)} before the command avoids it, with glibc; routes by "
            "which torch copies do not have it.",
        ),
    )


def between_neighbours(each: Slowed) -> str:
    times = f"{show.time(each.cell)} at {show.size(each.cell.nbytes)}, {show.time(each.apart)} where they lie apart"
    return f"{code(each.cell.route)}: {times}, {show.ratio(each.factor)} as long"


def _gain(gain: Gain) -> str:
    times = f"{show.time(gain.cell)}, without it {show.time(gain.without)}"
    return f"{code(gain.cell.route)} takes {times}: {show.ratio(gain.factor)} as fast"


def title(need: Need) -> str:
    source, target = ends(need.direction)
    return {
        PLAIN: f"{capital(source)} to {target}, {MEMORY.get(need.memory, need.memory)}",
        GRAD: "Tensor that requires grad to NumPy array, sharing its memory",
        LISTS: "List of NumPy arrays into one tensor",
        CAST: f"{show.join(need.dtypes)} {source} to {need.goal} {target}",
    }[need.kind]


def ends(direction: str) -> tuple[str, str]:
    """Source and result of a direction in words."""
    return ENDS.get(direction, ("source", direction or "result"))


def capital(words: str) -> str:
    """With a capital at the beginning, the rest as it is."""
    return words[:1].upper() + words[1:]


def takes(segments: Sequence[Segment]) -> Iterator[Take]:
    """One a segment."""
    alone = len(segments) == 1
    for index, segment in enumerate(segments):
        low, high = show.size(segment.sizes[0]), show.size(segment.sizes[-1])
        if alone:
            where = ""
        elif index == 0:
            where = f"up to {high}"
        elif index == len(segments) - 1:
            where = f"from {low} on"
        else:
            where = f"at {low}" if len(segment.sizes) == 1 else f"from {low} to {high}"
        yield Take(where, segment.route, _time(segment, everywhere=alone and len(segment.sizes) > 2))


def _time(segment: Segment, everywhere: bool) -> str:
    """Seconds in words: one figure where they are the same at all sizes, else up to three sizes."""
    choices = segment.calm
    first, last = choices[0], choices[-1]
    if len(choices) > 1 and segment.flat:
        sizes = f"from {show.size(first.nbytes)} to {show.size(last.nbytes)}"
        return f"{show.time(segment.middle)} {'at any size ' if everywhere else ''}{sizes}"
    shown = dict.fromkeys((first, choices[len(choices) // 2], last))
    return ", ".join(f"{show.time(choice.cell)} at {show.size(choice.nbytes)}" for choice in shown)


def busy(choices: Iterable[Choice]) -> Iterator[str]:
    """The sizes at which not everything could be decided because of the machine."""
    sizes = busy_sizes(choices)
    if sizes:
        at = f" at {show.sizes(sizes)}" if any(sizes) else ""
        yield f"Not decided here: the machine was busy{at}."


def _crossovers(segments: Sequence[Segment]) -> Iterator[str]:
    crossings = crossovers(segments)
    bounds = []
    for crossover in crossings:
        inside = f" (undecided at {show.sizes(crossover.undecided)})" if crossover.undecided else ""
        bounds.append(f"between {show.size(crossover.low)} and {show.size(crossover.high)}{inside}")
    if crossings:
        lie = "The crossover lies" if len(crossings) == 1 else "The crossovers lie"
        which = "other sizes" if any(crossover.undecided for crossover in crossings) else "sizes"
        yield f"{lie} {show.join(bounds)}: {which} in between were not measured."


def _promises(segments: Sequence[Segment]) -> Iterator[str]:
    """What the chosen routes need, their hazards, and what they do with unusual inputs."""
    contracts = {segment.route: segment.contract for segment in segments}
    for route, contract in contracts.items():
        if contract.needs:
            yield f"{code(route)} {needs_words(contract)}."
        for said in filter(None, (contract.hazard, contract.caution)):
            yield f"{code(route)}: {said}."
    inputs: dict[str, list[str]] = {}
    for route, contract in contracts.items():
        for words in unusual(contract):
            inputs.setdefault(words, []).append(route)
    for words, routes in inputs.items():
        yield f"Unusual inputs{'' if len(routes) == len(contracts) else f' of {show.codes(routes)}'}: {words}"


def needs_words(contract: Route) -> str:
    """What a route needs in words; "" where it needs nothing."""
    return f"needs {show.join(contract.needs.split())}" if contract.needs else ""


def _ties(segments: Sequence[Segment]) -> Iterator[str]:
    for segment in segments:
        low, high = show.size(segment.sizes[0]), show.size(segment.sizes[-1])
        sizes = low if len(segment.sizes) == 1 else f"{low} to {high}"
        tied = ties(segment)
        if tied.always:
            where = "" if len(segments) == 1 and len(segment.sizes) > 1 else f" at {sizes}"
            yield f"Tie{where} with {show.codes(tied.always)}."
        if len(tied.sometimes) == 1:
            ((route, tied_sizes),) = tied.sometimes.items()
            yield f"Tie at {show.sizes(tied_sizes)} with {code(route)}."
        elif tied.sometimes:
            yield f"Tie at some sizes of {sizes} with {show.codes(list(tied.sometimes))}."


def _hazardous(segments: Sequence[Segment]) -> Iterator[str]:
    """One sentence on each route that is faster but not safe, at the size where it gains most."""
    for cell, gain in hazardous(segments):
        at = f"{show.time(cell)} at {show.size(cell.nbytes)}"
        yield f"{code(cell.route)} is {show.ratio(gain)} as fast ({at}), but not recommended: {why_unsafe(cell)}."


def why_unsafe(cell: Cell) -> str:
    """Why a route is not recommended."""
    return cell.contract.hazard or "it gets some inputs wrong without an exception"


def _slowest(answer: Answer) -> Iterator[str]:
    """A warning of the rival that costs the largest factor."""
    rival = slowest(answer.segments, answer.rivals)
    if rival:
        cell, factor = rival
        hazard = f": {cell.contract.hazard}" if cell.contract.hazard else ""
        at = f"{show.time(cell)} at {show.size(cell.nbytes)}"
        yield f"Slowest: {code(cell.route)}, {at}, {show.ratio(factor)} the time{hazard}."
