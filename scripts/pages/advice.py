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
    faster_alone,
    hazardous,
    slowest,
    tied,
)
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
from .case import unusual, why_unsafe
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
    segments = answer.segments
    every = [choice for each in answer.each.values() for choice in choices_of(each)] or choices_of(segments)
    contracts = {segment.route: segment.contract for segment in segments}
    inputs: dict[str, list[str]] = {}
    for route, contract in contracts.items():
        for words in unusual(contract):
            inputs.setdefault(words, []).append(route)
    of_one = len(answer.each) < 2  # the others differ by dtype
    notes = show.prose(
        "advice",
        busy=tuple(busy(every)),
        tied=tied(segments) if of_one else None,
        alone=faster_alone(answer, alone) if alone and of_one else {},
        contracts=contracts,
        inputs=inputs,
        hazardous=hazardous(segments) if of_one else (),
        slowest=slowest(segments, answer.rivals) if of_one else None,
        needs_words=needs_words,
        why_unsafe=why_unsafe,
    )
    taken = tuple(takes(segments)) if of_one else _takes_by_dtype(answer)
    return Box(title(answer.need), taken, notes=notes, threads=show.threads(threads) if segments[0].moves else "")


def _takes_by_dtype(answer: Answer) -> tuple[Take, ...]:
    """The times from all source dtypes, at the largest size of the first."""
    *before, final = takes(answer.segments)
    last = {dtype: segments[-1].choices[-1] for dtype, segments in answer.each.items()}
    times = ", ".join(f"{show.time(choice.cell)} from {dtype}" for dtype, choice in last.items())
    return (*before, replace(final, cost=f"{times} at {show.size(answer.segments[-1].sizes[-1])}"))


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
            f"{show.codes([*copies[0].cell.declared.settings])} before the command avoids it, with glibc; routes by "
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


def needs_words(contract: Route) -> str:
    """What a route needs in words; "" where it needs nothing."""
    return f"needs {show.join(contract.needs.split())}" if contract.needs else ""
