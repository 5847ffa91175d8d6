"""What is advised about transfers, and what sections about them say beside their tables."""

from collections.abc import Iterable, Iterator, Mapping

from analysis.answers import Choice, Need, choices_of, choose
from analysis.cells import Cell
from analysis.transfers import (
    Beside,
    TooFast,
    Transfers,
    beyond_capacity,
    beyond_limit,
    beyond_memory,
    read_behind,
    recommendations,
    while_busy,
)

from benchmarks.contracts import HOST_TO_DEVICE, PAGEABLE
from benchmarks.families import CAST_ON_THE_WAY, MANY, SCALAR
from pages import show
from pages.advice import Box, Take, busy, needs_words, why_unsafe
from pages.show import code


def advice(transfers: Transfers) -> list[Box]:
    """A box a way and end at the host, by completion time, and one on scalars."""
    made = [_box(each, transfers) for each in recommendations(transfers)]
    scalars = choose(transfers.role(SCALAR))
    if scalars:
        choice = scalars[0].choices[0]
        take = Take("", choice.cell.route, show.time(choice.cell))
        notes = (*busy(choices_of(scalars)), *_conditions(choice.cell), *_beside(choice))
        made.append(Box("From the device to a number: a scalar such as a loss", (take,), notes=notes))
    return made


def _box(each: Mapping[Need, Choice], transfers: Transfers) -> Box:
    """What to take for needs that differ in whether the result is fresh alone."""
    need, choice = next(iter(each.items()))
    end = f"{end_of(need)} of {show.size(choice.nbytes)}"
    title = f"From {end} to the device" if need.direction == HOST_TO_DEVICE else f"From the device to {end}"
    takes: list[Take] = []
    notes: list[str] = []
    for need, choice in each.items():
        chosen, fast = choice.cell, next(iter(choice.conditional), None)
        fresh = f"{result_of(need)}, " if len(each) > 1 else ""
        how = "on a condition" if chosen.contract.hazard else "no condition"
        takes.append(Take(fresh + how, chosen.route, cost_words(chosen, transfers)))
        notes += [*busy([choice]), *_conditions(chosen), *_beside(choice)]
        if fast is not None:
            takes.append(Take(f"{fresh}faster, on a condition", fast.route, cost_words(fast, transfers)))
            gain = show.ratio(chosen.seconds / fast.seconds)
            notes += [f"{code(fast.route)} is {gain} as fast as {code(chosen.route)}.", *_conditions(fast)]
        notes += [f"{code(c.route)} is faster, {show.time(c)}, but: {why_unsafe(c)}." for c in choice.unsafe]
    if not transfers.link.limit(need.direction).bandwidth:
        notes.append("No share of the link's limit: the limit was not measured in this run.")
    return Box(title, tuple(takes), notes=tuple(dict.fromkeys(notes)))


def _conditions(cell: Cell) -> Iterator[str]:
    if cell.contract.hazard:
        yield f"{code(cell.route)}: {cell.contract.hazard}."
    if cell.contract.needs:
        yield f"{code(cell.route)} {needs_words(cell.contract)}."


def _beside(choice: Choice) -> Iterator[str]:
    """What is tied with the chosen route, and the next slower."""
    if choice.ties:
        yield f"Tie with {show.codes([cell.route for cell in choice.ties])}."
    if choice.others:
        slower = choice.others[0]
        yield f"Next: {code(slower.route)}, {show.ratio(slower.seconds / choice.cell.seconds)} the time."


def in_a_line(what: str, choice: Choice) -> str:
    """What to take, what is as good, and what is faster on a condition."""
    chosen, fast = choice.cell, next(iter(choice.conditional), None)
    words = [f"{what}: {code(chosen.route)}, {show.time(chosen)}."]
    words += [
        f"{code(cell.route)}: {why}." for cell in (chosen,) if (why := cell.contract.hazard or cell.contract.caution)
    ]
    words += _beside(choice)
    if fast is not None:
        gain = show.ratio(chosen.seconds / fast.seconds)
        words.append(
            f"On a condition {code(fast.route)}, {show.time(fast)}, is {gain} as fast: {fast.contract.hazard}."
        )
    return " ".join(words)


def impossible(transfers: Transfers) -> list[str]:
    """Warnings of transfers that read faster than the link can carry, or else than its measured limit."""
    fast = beyond_memory(transfers)
    if fast:
        return [
            f"Not possible: {_count(fast)} more than any memory moves, the most with {show.bandwidth(fast.reads)}: "
            f"{code(fast.worst.cell)}. These figures are withheld: a synchronize did not wait, so do not trust the "
            "other transfers either."
        ]
    fast = beyond_capacity(transfers)
    if fast:
        generation, width = (int(transfers.link.hardware[f"link {word}"]) for word in ("generation", "width"))
        link = f"(Gen{generation} x{width}: {show.bandwidth(transfers.link.capacity or 0)} each way)"
        return [
            f"Not possible: {_count(fast)} more than the link carries {link}, the most with "
            f"{show.bandwidth(fast.reads)}: {code(fast.worst.cell)}. Either a synchronize is missing or the link is "
            "not PCI Express: do not trust these transfers."
        ]
    fast = beyond_limit(transfers)
    if fast:
        most = f"the most {show.percent(fast.reads)} of it"
        why = f"{_count(fast)} more than the measured limit of the link, {most}"
        return [f"Doubtful: {why}: {code(fast.worst.cell)}."]
    return []


def _count(fast: TooFast) -> str:
    return "1 cell reads" if fast.cells == 1 else f"{fast.cells} cells read"


# A need and a transfer in words


def end_of(need: Need) -> str:
    """The host's end."""
    if need.array:
        return "a NumPy array" if need.host == PAGEABLE else f"a NumPy array in {need.host} memory"
    return f"a {need.host} host tensor"


def way_of(need: Need) -> str:
    end = end_of(need)
    return f"from {end} to the device" if need.direction == HOST_TO_DEVICE else f"from the device to {end}"


def result_of(need: Need) -> str:
    """New or existing, as the beginning of a line."""
    there = need.direction == HOST_TO_DEVICE
    if need.into:
        return f"into {'a device' if there else 'a host'} tensor that exists"
    return "a new array" if need.array and not there else "a new tensor"


def cost_words(cell: Cell, transfers: Transfers) -> str:
    """Time, and decimal GB/s and share of the limit where these have a meaning and are known."""
    words = [show.time(cell)]
    if transfers.by_bytes(cell):
        share = transfers.link.limit(cell.direction).share(cell)
        words.append(show.bandwidth(cell.nbytes / cell.seconds))
        words += [f"{show.percent(share)} of the limit"] if share else []
    return ", ".join(words)


# --- what sections say beside their tables ----------------------------------------------------------------------------


def said(transfers: Transfers) -> dict[str, list[str]]:
    """Family -> sentences."""
    return {
        "busy": [*_held(while_busy(transfers)), *map(_behind, read_behind(transfers))],
        "many": list(_chosen(transfers.role(MANY), "tensors")),
        "transfer": list(_chosen(transfers.role(CAST_ON_THE_WAY), "nbytes")),
    }


def _held(calls: Iterable[Beside]) -> Iterator[str]:
    """Which calls wait until the queue is empty, and which do not."""
    calls = list(calls)
    held, free = ([each.cell for each in calls if each.waits == waits] for waits in (True, False))
    if held:
        yield f"Hold their caller until the work before them is done: {_listed(held)}."
    if free:
        yield f"Return while the work goes on: {_listed(free)}."


def _listed(cells: Iterable[Cell]) -> str:
    """Routes, each with the host memory and the sizes at which it was measured to be so."""
    sizes: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        word = "from" if cell.direction == HOST_TO_DEVICE else "to"
        sizes.setdefault((cell.route, word, cell.host), []).append(show.size(cell.nbytes))
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for (route, word, host), measured in sizes.items():
        hosts.setdefault((route, word, show.join(measured)), []).append(host)
    return "; ".join(
        f"{code(route)} {word} {show.join(memories)} memory, {at}" for (route, word, at), memories in hosts.items()
    )


def _behind(pair: Beside) -> str:
    """Whether reading by an event waits for less than reading after a synchronize."""
    waits, event = pair.cell, pair.other
    there = f"An array of {show.size(event.nbytes)}, its copy queued before the work, is read in {show.time(event)}"
    if not pair.waits:
        return f"{there} by its event, and no later by a wait for the device, {show.time(waits)}."
    return f"{there} by its event; a wait for the device takes {show.time(waits)}, the work behind the copy included."


def _chosen(cells: Iterable[Cell], by: str) -> Iterator[str]:
    """What to take from each host memory, at each value of a parameter."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.benchmark.endswith("completion"):
            value = cell.parameters[by]
            what = show.size(value) if by == "nbytes" else f"{value:,} {by}"
            groups.setdefault((what, cell.host), []).append(cell)
    for (what, host), group in groups.items():
        named = f"float32 to bfloat16, {what}" if by == "nbytes" else what
        yield in_a_line(f"{named} from {host} memory", choose(group)[0].choices[0])
