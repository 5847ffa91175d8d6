"""A history in pictures: a panel a route, cost against the day of release, and all routes × releases at one glance.

Panels show levels and where they change. At one glance the colour is the cost relative to the newest release; a tile
leads to its panel.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType

import matplotlib

matplotlib.use("svg")  # draws into files, needs no display
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
from analysis.history import History
from analysis.levels import CHANGED, Series
from analysis.statistics import HALF, Floats
from analysis.steps import Counted
from matplotlib.axes import Axes

from benchmarks.contracts import ALIAS
from pages import show
from pages.comparison_words import number
from pages.figures import INK, MARKERS, MONO, MUTED, POINTS, STYLE, Figure, finish, ratio_axis
from pages.page import Heat, Strip, Tile

from .words import Group, anchors

ACROSS = 3  # panels in a row
PANEL, HEIGHT = 2.35, 1.2  # inches, of a plot
COUNTS, GAP = 0.5, 0.2  # of one of counts below it, and between the two
LEFT, RIGHT, HEAD, FOOT, TOP, BOTTOM = 0.42, 0.12, 0.42, 0.3, 0.05, 0.05  # inches around each, and around all
LETTERS = 42  # of a route, that fit above a panel
LEAST = math.log(1.12)  # a panel shows at least this much up and down: noise is not to look like news
TICKS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)


def panels(
    history: History,
    name: str,
    title: str,
    caption: str,
    groups: Sequence[tuple[str, Sequence[Series]]],
    counted: Mapping[str, Sequence[Counted]] = MappingProxyType({}),
) -> Figure:
    """One figure of a panel for each of ``groups``: what it is called, and its series.

    Cost is relative to each series' last level, which is 1: what older releases took of what the newest takes. Below a
    panel stands what is ``counted`` of its group, over the same days.
    """
    rows = math.ceil(len(groups) / ACROSS)
    width = ACROSS * (LEFT + PANEL + RIGHT)  # however few there are: panels of all figures are of one size
    below = GAP + COUNTS if any(series and counted.get(label) for label, series in groups) else 0.0
    each = HEAD + HEIGHT + below + FOOT
    height = rows * each + TOP + BOTTOM
    with plt.style.context(str(STYLE)):
        figure = plt.figure(figsize=(width, height))
        gids, order = anchors(label for label, _ in groups), itertools.count()
        timed = any(series for _, series in groups)  # then the figure's table is of times alone
        for place, (label, series) in enumerate(groups):
            row, column = divmod(place, ACROSS)
            left = column * (LEFT + PANEL + RIGHT) + LEFT
            bottom = height - TOP - row * each - HEAD - HEIGHT
            ax = figure.add_axes((left / width, bottom / height, PANEL / width, HEIGHT / height))
            ax.set_gid(gids[label])
            if series:
                draw_history(ax, series, history, order)
            else:
                draw_counts(ax, counted[label], series, history, HEIGHT, None if timed else order)
            ax.set_title(show.short(label, LETTERS), fontsize=7.4, family=MONO, loc="left", pad=17, color=INK)
            if series and counted.get(label):
                ax.tick_params(labelbottom=False)
                ax = figure.add_axes((left / width, (bottom - below) / height, PANEL / width, COUNTS / height))
                draw_counts(ax, counted[label], series, history, COUNTS)
        return finish(figure, name, title, described(history, groups, counted), (), caption)


def draw_history(ax: Axes, series: Sequence[Series], history: History, rows: Iterator[int]) -> None:
    """Each series' cost over its last level: points with 95 % intervals, levels as lines, breaks by name.

    rows: of the figure's table, from which a page says what a point is
    """
    breaks: dict[str, float] = {}
    across = 0.0
    for index, cell in enumerate(series):
        days = _days(cell)
        now = cell.levels[-1]
        values, levels, half = cell.values - now, cell.levels - now, HALF * cell.errors
        drawn = np.exp([values, values - half, values + half, levels])
        colour = _line(ax, index, days, drawn, f"{POINTS}{next(rows)}")
        for broken in cell.breaks:
            if broken.verdict in CHANGED:
                breaks[broken.at.version] = _day(broken.at.date)
        text = f"{show.size(cell.nbytes) if cell.nbytes else ''} {show.seconds(math.exp(now))}".strip()
        ax.text(across, 1.04, text, transform=ax.transAxes, color=colour, fontsize=6.4, va="bottom")
        across += 0.0235 * len(text) + 0.05
    _axes(ax, breaks, history, (_reach(series, -1), _reach(series, 1)), HEIGHT)


def draw_counts(
    ax: Axes,
    counted: Sequence[Counted],
    series: Sequence[Series],
    history: History,
    inches: float,
    rows: Iterator[int] | None = None,
) -> None:
    """Each count over its last level: points with the range of their repeats, levels as lines, steps by name.

    A count looks as that one of ``series`` does which is of as many bytes. inches: how high the panel is; rows: as of
    ``draw_history``
    """
    sizes = [cell.nbytes for cell in series]
    steps: dict[str, float] = {}
    across = low = high = 0.0
    for index, cell in enumerate(counted):
        drawn = np.stack([cell.values, cell.low, cell.high, cell.levels]) / cell.levels[-1]
        same = sizes.index(cell.nbytes) if cell.nbytes in sizes else len(sizes) + index
        colour = _line(ax, same, _days(cell), drawn, None if rows is None else f"{POINTS}{next(rows)}")
        steps |= {step.at.version: _day(step.at.date) for step in cell.steps}
        unit = cell.unit if cell is counted[-1] else ""
        text = f"{show.size(cell.nbytes) if cell.nbytes else ''} {cell.levels[-1]:,.0f} {unit}".strip()
        ax.text(across, 1.08, text, transform=ax.transAxes, color=colour, fontsize=6.4, va="bottom")
        across += 0.0235 * len(text) + 0.05
        low, high = max(low, -math.log(drawn.min())), max(high, math.log(drawn.max()))
    _axes(ax, steps, history, (1.2 * low, 1.2 * high), inches)


def _days(cell: Series | Counted) -> Floats:
    return np.array([_day(release.date) for release in cell.releases])


def _line(ax: Axes, index: int, days: Floats, drawn: Floats, gid: str | None = None) -> str:
    """Points, the lower and the upper ends of their ranges and the levels, (4, days); the line's colour."""
    colours = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    colour, marker = f"#{colours[index % len(colours)].lstrip('#')}", MARKERS[index % len(MARKERS)]
    points, low, high, levels = drawn
    ax.vlines(days, low, high, color=colour, linewidth=0.9, alpha=0.35)
    ax.plot(days, points, linestyle="", marker=marker, color=colour, markeredgewidth=0, markersize=2.6, gid=gid)
    ax.step(days, levels, where="post", color=colour, linewidth=1.1)
    return colour


def _axes(ax: Axes, changed: dict[str, float], history: History, reach: tuple[float, float], inches: float) -> None:
    """The axes of a panel that is so high, and the releases that changed something.

    reach: how far there is something to see below and above 1, in log units
    """
    first, last = (_day(release.date) for release in (history.releases[0], history.releases[-1]))
    for day in changed.values():
        ax.axvline(day, color=MUTED, linewidth=0.6, linestyle=(0, (2, 2)))
    _break_labels(ax, changed, first, last)
    margin = 0.03 * max(1.0, last - first)
    ax.set_xlim(first - margin, last + margin)
    ax.xaxis.set_major_locator(mdates.YearLocator())
    ax.xaxis.set_major_formatter(mdates.DateFormatter("%Y"))
    ax.set_yscale("log")
    low, high = (max(LEAST, end) for end in reach)
    room = 0.15 * (HEIGHT / inches) * (low + high)  # for the names of releases
    ax.set_ylim(math.exp(-low), math.exp(high + (room if changed else 0.0)))
    ratio_axis(ax.yaxis, ax.get_ylim(), 0.17 / inches, TICKS, "{:g}".format)


def _reach(series: Sequence[Series], sign: int) -> float:
    """How far points with their intervals lie above (1) or below (-1) their last level, in log units."""
    ends = (sign * (cell.values - cell.levels[-1]) + HALF * cell.errors for cell in series)
    return max((float(np.max(end)) for end in ends), default=0.0)


def _break_labels(ax: Axes, breaks: dict[str, float], first: float, last: float) -> None:
    """The releases that changed something, inside the panel at the top; those that would overlap one row lower."""
    width = max(1.0, last - first)
    ends = [-math.inf] * 3
    for version, day in sorted(breaks.items(), key=lambda item: item[1]):
        need = 0.026 * len(version) * width
        right = day + need > last
        begins, stops = (day - need, day) if right else (day, day + need)
        row = next((row for row, end in enumerate(ends) if begins > end), 0)
        ends[row] = stops
        ax.annotate(
            version,
            (day, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-1.5 if right else 1.5, -1 - 7 * row),
            textcoords="offset points",
            fontsize=5.8,
            color=INK,
            ha="right" if right else "left",
            va="top",
        )


def _day(text: str) -> float:
    return float(mdates.date2num(date.fromisoformat(text)))


def described(
    history: History, groups: Sequence[tuple[str, Sequence[Series]]], counted: Mapping[str, Sequence[Counted]]
) -> str:
    """What a figure shows, in words computed from its series."""
    first, last = history.releases[0], history.releases[-1]
    words = [f"{label} changed at {show.join(_changed(series))}" for label, series in groups if _changed(series)]
    for label, cells in counted.items():
        at = list(dict.fromkeys(step.at.version for cell in cells for step in cell.steps))
        words += [f"the {cells[0].unit} of {label} at {show.join(at)}"] if at else []
    clauses = "; ".join(words) if words else "no change of level was found"
    return f"{len(groups)} panels, {first.name} to {last.version}. Of {history.package}: {clauses}."


def _changed(series: Sequence[Series]) -> list[str]:
    releases = [broken.at for cell in series for broken in cell.breaks if broken.verdict in CHANGED]
    return list(dict.fromkeys(release.version for release in sorted(releases, key=lambda release: release.date)))


# --- the history at one glance ----------------------------------------------------------------------------------------


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
