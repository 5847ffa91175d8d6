"""What sections about transfers say beside their tables: the answer to their question."""

from collections.abc import Iterable, Iterator

from analysis.answers import choose
from analysis.cells import Cell
from analysis.contracts import HOST_TO_DEVICE
from analysis.roles import CAST_ON_THE_WAY, MANY
from analysis.transfers import Beside, Transfers, read_behind, while_busy

from pages import show
from pages.show import code

from .advice import in_a_line


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
