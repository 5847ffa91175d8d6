"""Which setting of the environment to start a program with, as data: where it gains more than any choice of a route.

It is chosen as a route is (see answers.py), for each route at the size that answers are about: of the settings that the
family advises, those that none is decided to be slower than; of these, those by which the route is decided to be more
than GAIN times as fast as without; of these the family's first. Routes that have one in common get one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .cells import Cell, usual_size
from .choice import slower, unbeaten
from .results import Results, parameters_of
from .roles import SETTINGS

GAIN = 1.5


@dataclass(frozen=True)
class Gain:
    """A route with a setting and without. kept: bytes that the process has more of afterwards; None: not counted."""

    cell: Cell
    without: Cell
    kept: float | None

    @property
    def factor(self) -> float:
        return self.without.seconds / self.cell.seconds


@dataclass(frozen=True)
class Advised:
    """A setting for some routes. ties: as good for all of them. busy: nothing is decided about some of the others."""

    setting: str
    caution: str
    gains: tuple[Gain, ...]
    ties: tuple[str, ...]
    busy: bool


def advised(results: Results, cells: Iterable[Cell]) -> list[Advised]:
    """The settings to take, each with the routes that gain; none where none is decided to gain enough."""
    kept = _kept(results)
    routes: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.role == SETTINGS:
            routes.setdefault((cell.benchmark, cell.route), []).append(cell)
    groups: list[tuple[list[str], list[dict[str, Gain]], bool]] = []
    for of_route in routes.values():
        nbytes = usual_size(of_route, "setting")
        here = [cell for cell in of_route if cell.nbytes == nbytes]
        gaining = {cell.text("setting"): Gain(cell, other, kept.get(_key(cell))) for cell, other in _gaining(here)}
        busy = not all(cell.calm for cell in here)
        common = [setting for setting in groups[-1][0] if setting in gaining] if groups else []
        if common:
            groups[-1] = (common, [*groups[-1][1], gaining], groups[-1][2] or busy)
        elif gaining:
            groups.append((list(gaining), [gaining], busy))
    advice = []
    for (setting, *ties), each, busy in groups:
        gains = tuple(gaining[setting] for gaining in each)
        caution = gains[0].cell.declared.settings[setting]
        advice.append(Advised(setting, caution, gains, tuple(ties), busy))
    return advice


def _gaining(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Of one route at one size: the cells of the settings that gain enough and are as good as any, in the family's
    order, each with the one without a setting."""
    known = {cell.text("setting"): cell for cell in cells}
    without = known.get(cells[0].declared.beside["setting"])
    if without is None:
        return []
    order = cells[0].declared.listed("setting")  # of the entries: benchmarks.json sorts what is advised by its letters
    candidates = [cell for name, cell in known.items() if name in cell.declared.settings]
    good = unbeaten(sorted(candidates, key=lambda cell: order.index(repr(cell.text("setting")))))
    return [(cell, without) for cell in good if slower([without], [cell], GAIN - 1)[0, 0]]


def _key(cell: Cell) -> tuple[object, ...]:
    return cell.benchmark.rpartition(".")[0], *cell.parameters.values()


def _kept(results: Results) -> dict[tuple[object, ...], float]:
    """Class and parameters -> bytes that the process keeps when the results are freed."""
    rows = results.values[results.values["method"] == "track_kept"]
    groups = [name.rpartition(".")[0] for name in rows["benchmark"]]
    each = zip(groups, parameters_of(rows, results), rows["value"])
    return {(group, *parameters.values()): value for group, parameters, value in each}
