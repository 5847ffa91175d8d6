"""A history at one glance: routes × releases, coloured by cost relative to the newest; a tile leads to its panel."""

import math
from collections.abc import Sequence

from analysis.contracts import ALIAS
from analysis.history import History
from analysis.levels import CHANGED, Series
from analysis.steps import Counted

from pages import show
from pages.comparison.words import number
from pages.page import Heat, Strip, Tile

from .words import Group, anchors

LEGEND = (
    "Cost of a route over that of {}, by the levels that were found: instructions of the call where they were counted, "
    "and time where it moves bytes. A bar marks a release that changed it; a tile leads to its panel."
)
SHADES = (1.02, 1.05, 1.1, 1.25, 1.5)  # factors from which on a tile is a shade darker


def heat_of(history: History, groups: Sequence[Group]) -> Heat:
    """The picture of a history."""
    made = []
    for group in groups:
        panels = anchors(group.routes)
        strips = []
        for route, series in group.routes.items():
            for cell in _chosen(group.memory, series, group.counted[route]):
                strips.append(Strip(route, _by(cell), f"#{group.name}-{panels[route]}", tuple(_tiles(history, cell))))
        made.append((group.title, tuple(strips)))
    title = f"Cost by release of {history.package}, with {history.held}"
    versions = tuple(release.version for release in history.releases)
    ids = () if history.series else tuple(release.toolchain.tag for release in history.releases)
    return Heat(title, versions, tuple(made), LEGEND.format(versions[-1]), ids)


def _chosen(memory: str, series: Sequence[Series], counted: Sequence[Counted]) -> list[Series | Counted]:
    """What stands for a route: its instructions, and, where it does not share memory, the longest of those times that
    most releases have, for what takes long was hardly ever calm; else its shortest time where none were counted."""
    calls = sorted(counted, key=lambda cell: cell.nbytes)[:1]
    if memory == ALIAS:
        return [*(calls or series[:1])]
    most = max((len(cell.releases) for cell in series), default=0)
    return [*calls, *[cell for cell in series if 2 * len(cell.releases) > most][-1:]]


def _by(cell: Series | Counted) -> str:
    what = cell.unit if isinstance(cell, Counted) else "time"
    return f"{what}, {show.size(cell.nbytes)}" if cell.nbytes else what


def _tiles(history: History, cell: Series | Counted) -> list[Tile | None]:
    """A tile for each release of the history."""
    if isinstance(cell, Counted):
        ratios = [float(level / cell.levels[-1]) for level in cell.levels]
        changed = {step.at.version: step.ratio for step in cell.steps}
    else:
        ratios = [math.exp(level - cell.levels[-1]) for level in cell.levels]
        changed = {broken.at.version: broken.ratio for broken in cell.breaks if broken.verdict in CHANGED}
    at = {release.version: ratio for release, ratio in zip(cell.releases, ratios)}
    last = cell.releases[-1].version
    tiles: list[Tile | None] = []
    for release in history.releases:
        ratio = at.get(release.version)
        if ratio is None:
            tiles.append(None)
            continue
        step = changed.get(release.version)
        about = f"{release.name}: {number(ratio)}× of {last} ({_by(cell)})"
        about += f"; here it became {number(step)}×" if step else ""
        tiles.append(Tile(number(ratio) if _shade(ratio) else "1", about, _shade(ratio), step is not None))
    return tiles


def _shade(ratio: float) -> str:
    place = sum(max(ratio, 1 / ratio) >= factor for factor in SHADES)
    return f"{'s' if ratio > 1 else 'f'}{place}" if place else ""
