"""What is advised, in words: a title, a line a recommendation, notes on what it rests on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from analysis.case import BEST, CONDITION, GOOD, SLOWER, TIE, UNDECIDED, UNSAFE
from analysis.cells import Cell
from analysis.findings import Advised, Slowed

from benchmarks.contracts import (
    ALIAS,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    NUMPY_TO_TORCH,
    TORCH_TO_NUMPY,
)

from . import show
from .case import outcomes, promises, routes_by, why_unsafe
from .show import code

ENDS = {
    NUMPY_TO_TORCH: ("NumPy array", "tensor"),
    TORCH_TO_NUMPY: ("tensor", "NumPy array"),
    HOST_TO_DEVICE: ("host tensor", "device"),
    DEVICE_TO_HOST: ("device tensor", "host"),
}
FLAT = 1.25  # largest median / smallest median up to which a time is the same "at any size"
WIDE = 1.5  # highest / lowest process from which a time comes with its range
CLEAR = 1.25  # by this one process each is enough: in nine cells of ten two runs differ by 3 % (docs/accuracy.md)
ALIKE = 1.1  # routes whose times differ by less are equally slow to a reader


@dataclass(frozen=True)
class Take:
    """A route to take. tied: at one of its sizes another one may be as fast, or its own time is an upper bound."""

    when: str  # "" where that is always
    route: str
    cost: str
    tied: bool = False

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
    folded: bool = False  # on a page only its title shows until a reader opens it
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of these columns; first the section it leads to

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.threads}" if self.threads else self.title

    @property
    def said(self) -> tuple[str, ...]:
        rows = (f"{first}: {'. '.join(filter(None, rest))}" for _, (first, *rest) in self.rows)
        return (*(take.sentence for take in self.takes), *self.lines, *rows)


def advice(rows: pd.DataFrame, alone: pd.DataFrame | None = None, threads: int = 1) -> Box:
    """The box of what a page answers, see analysis.choices.asked.

    alone: the rows of the same where torch has one thread, where these are of several ``threads``
    """
    best, needs = rows[rows["kind"] == BEST], list(rows["need"].unique())
    first = rows[rows["need"] == needs[0]]
    of_one = first if len(needs) == 1 else first[:0]  # the others differ by dtype
    faster = of_one[of_one["kind"].isin([CONDITION, UNSAFE])].sort_values("ratio", kind="stable")
    faster = faster.drop_duplicates("route").sort_index()
    notes = show.prose(
        "advice",
        busy=tuple(busy(rows)),
        ties=of_one[of_one["kind"] == TIE],
        alone=_faster_alone(of_one, alone) if alone is not None else {},
        measured=of_one["nbytes"].nunique(),
        faster=list(zip(faster["cell"], faster["ratio"])),
        slowest=_slowest(of_one),
        why_unsafe=why_unsafe,
    )
    taken = list(takes(first))
    if len(needs) > 1:  # the times from all source dtypes, at the largest size of each
        last = best.drop_duplicates("need", keep="last")
        times = ", ".join(f"{show.time(cell)} from {cell.dtype}" for cell in last["cell"])
        taken[-1] = replace(taken[-1], cost=f"{times} at {show.size(last['nbytes'].iloc[0])}")
    moves = best["cell"].iloc[0].memory != ALIAS
    return Box(title(rows), tuple(taken), notes=notes, threads=show.threads(threads) if moves else "")


def conditions(made: Sequence[pd.DataFrame]) -> Box | None:
    """What to know of all routes that the answers name, each fact once; None where there is nothing."""
    best = [cell for rows in made for cell in rows["cell"][rows["kind"] == BEST]]
    contracts = {cell.route: cell.contract for cell in best}.items()
    lines = show.prose(
        "conditions",
        promised=routes_by((words, route) for route, each in contracts for words in promises(each)),
        inputs=routes_by((words, route) for route, each in contracts for words in outcomes(each)),
    )
    return Box("Conditions and unusual inputs", lines=lines, folded=True) if lines else None


def _faster_alone(rows: pd.DataFrame, alone: pd.DataFrame) -> dict[str, list[Cell]]:
    """The routes that are decided to be faster than the one to take where torch has one thread, with their cells."""
    take = rows[rows["kind"] == BEST][["nbytes", "route"]]
    beaten = alone[alone["kind"] == SLOWER].merge(take)["nbytes"]
    better = alone[(alone["kind"] == BEST) & alone["nbytes"].isin(beaten)]
    return {route: list(cells) for route, cells in better.groupby("route", sort=False)["cell"]}


def _slowest(rows: pd.DataFrame) -> tuple[Cell, float] | None:
    """The route that costs the largest factor, and that; of those that are ALIKE in it, the catalogue's first."""
    slow = rows[rows["slow"]]
    alike = slow[slow["ratio"] * ALIKE >= slow["ratio"].max()]
    pairs = zip(alike["cell"], alike["ratio"])
    return min(pairs, key=lambda pair: (pair[0].order, -pair[0].nbytes), default=None)


def setting(advised: Advised) -> Box:
    """A setting of the environment to start a program with."""
    kept = max((gain.kept for gain in advised.gains if gain.kept is not None), default=None)
    titles = {gain.cell.declared.title for gain in advised.gains}
    about = capital(titles.pop()) if len(titles) == 1 else "Fresh memory"
    cost = " ".join(show.prose("settings", "cost", advised=advised, kept=kept))
    return Box(
        f"{about}, {show.size(advised.gains[0].cell.nbytes)}: environment variables to set before python",
        (Take("", advised.setting, cost),),
        notes=show.prose("settings", "notes", advised=advised),
    )


def neighbours(copies: Sequence[Slowed]) -> Box:
    """That a copy takes longer where its arrays lie as neighbours do, and what to do about it."""
    return Box(
        "Copies between arrays of whole pages, allocated one behind the other",
        lines=show.prose("settings", "neighbours", copies=copies),
        notes=show.prose("settings", "avoided", settings=[*copies[0].cell.declared.settings]),
    )


def title(rows: pd.DataFrame) -> str:
    """What is answered by rows of a need, or of some that differ in the source's dtype."""
    need = rows["need"].iloc[0]
    source, target = ends(need.direction)
    if need.grad:
        return "Tensor that requires grad to NumPy array, sharing memory"
    if need.batch:
        return "List of NumPy arrays into one tensor"
    if need.goal:
        return f"{show.join(list(rows['dtype'].unique()))} {source} to {need.goal} {target}"
    return f"{capital(source)} to {target}, {show.MEMORY.get(need.memory, need.memory)}"


def ends(direction: str) -> tuple[str, str]:
    """Source and result of a direction in words."""
    return ENDS.get(direction, ("source", direction or "result"))


def capital(words: str) -> str:
    """With a capital at the beginning, the rest as it is."""
    return words[:1].upper() + words[1:]


def takes(rows: pd.DataFrame) -> Iterator[Take]:
    """What to take of the rows of a need: one a part."""
    parts = [list(cells) for _, cells in rows[rows["kind"] == BEST].groupby("part")["cell"]]
    noisy = ~rows["cell"].map(lambda cell: cell.quiet).astype(bool)
    close = (rows["kind"] == TIE) & (rows["ratio"] < CLEAR)
    tied = (close | (rows["kind"] == UNDECIDED) | ((rows["kind"] == BEST) & noisy)).groupby(rows["part"]).any()
    for index, (cells, is_tied) in enumerate(zip(parts, tied)):
        low, high = show.size(cells[0].nbytes), show.size(cells[-1].nbytes)
        if len(parts) == 1:
            where = ""
        elif index == 0:
            where = f"up to {high}"
        elif index == len(parts) - 1:
            where = f"from {low} on"
        else:
            where = f"at {low}" if len(cells) == 1 else f"from {low} to {high}"
        time = _time(cells, everywhere=len(parts) == 1 and len(cells) > 2)
        yield Take(where, cells[0].route, time, bool(is_tied))


def _time(cells: Sequence[Cell], everywhere: bool) -> str:
    """Seconds in words, of the quiet cells where there are any: one figure for all sizes if that does, else up to three
    sizes, each with its range if that is WIDE."""
    cells = [cell for cell in cells if cell.quiet] or cells
    first, last = cells[0], cells[-1]
    by_time = sorted(cells, key=lambda cell: cell.seconds)
    if len(cells) > 1 and flat(cells):
        sizes = f"from {show.size(first.nbytes)} to {show.size(last.nbytes)}"
        return f"{show.time(by_time[len(cells) // 2])} {'at any size ' if everywhere else ''}{sizes}"
    shown = dict.fromkeys((first, cells[len(cells) // 2], last))
    ranges = {cell: f" ({show.interval(cell.low, cell.high)})" if cell.high > WIDE * cell.low else "" for cell in shown}
    return ", ".join(f"{show.time(cell)}{ranges[cell]} at {show.size(cell.nbytes)}" for cell in shown)


def flat(cells: Sequence[Cell]) -> bool:
    """Whether a route's time is the same at any size, as far as a reader minds."""
    return max(cell.seconds for cell in cells) <= FLAT * min(cell.seconds for cell in cells)


def busy(rows: pd.DataFrame) -> Iterator[str]:
    """The sizes at which not everything could be decided because of the machine."""
    sizes = sorted({cell.nbytes for cell in rows["cell"][rows["kind"].isin(GOOD)] if not cell.quiet})
    if sizes:
        yield f"No verdict{f' at {show.sizes(sizes)}' if any(sizes) else ''}: the machine was noisy."
