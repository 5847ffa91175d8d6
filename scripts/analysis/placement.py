"""Which routes take longer where a source and its buffer lie as neighbours in memory do, as data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .cells import Cell
from .choice import slower
from .roles import PLACEMENT
from .settings import GAIN


@dataclass(frozen=True)
class Slowed:
    """A route between neighbours, and between arrays that lie apart: of all sizes that where it costs most."""

    cell: Cell
    apart: Cell

    @property
    def factor(self) -> float:
        return self.cell.seconds / self.apart.seconds


def between_neighbours(cells: Iterable[Cell]) -> list[Slowed]:
    """The routes and sizes that are decided to be more than GAIN times as fast apart."""
    placed = [cell for cell in cells if cell.role == PLACEMENT]
    apart = {_place(cell): cell for cell in placed if cell.parameters.items() >= _beside(cell).items()}
    pairs = ((cell, apart.get(_place(cell))) for cell in placed)
    others = [(cell, other) for cell, other in pairs if other is not None and other is not cell]
    return [Slowed(cell, other) for cell, other in others if slower([cell], [other], GAIN - 1)[0, 0]]


def slowed(cells: Iterable[Cell]) -> list[Slowed]:
    """The same, of each route the size at which it costs most."""
    worst: dict[tuple[str, str], Slowed] = {}
    for pair in between_neighbours(cells):
        key = pair.cell.benchmark, pair.cell.route
        worst[key] = max(worst.get(key, pair), pair, key=lambda candidate: candidate.factor)
    return list(worst.values())


def _beside(cell: Cell) -> dict[str, Any]:
    """The parameters of the cells that stand beside others."""
    return {name: value for name, value in cell.declared.beside.items() if name != "called"}


def _place(cell: Cell) -> tuple[str, str, int]:
    return cell.benchmark, cell.route, cell.nbytes
