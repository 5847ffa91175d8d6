"""A history in pictures: a panel a route, cost against the day of release, and all routes × releases at one glance.

Panels show levels and where they change. At one glance the colour is the cost relative to the newest release; a tile
leads to its panel.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import matplotlib

matplotlib.use("svg")  # draws into files, needs no display
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
from analysis.changes import CHANGED, Counted, Series
from analysis.history import History
from analysis.sessions import Release
from analysis.statistics import HALF, Floats
from matplotlib.axes import Axes

from benchmarks.contracts import ALIAS
from pages import show
from pages.comparison_words import number
from pages.figures import INK, MARKERS, MONO, MUTED, POINTS, STYLE, Figure, finish, ratio_axis
from pages.page import Heat, Strip, Tile

from .history_words import anchors

ACROSS = 3  # panels in a row
PANEL, HEIGHT = 2.35, 1.2  # inches, of a plot
COUNTS, GAP = 0.5, 0.2  # of one of counts below it, and between the two
LEFT, RIGHT, HEAD, FOOT, TOP, BOTTOM = 0.42, 0.12, 0.42, 0.3, 0.05, 0.05  # inches around each, and around all
LETTERS = 42  # of a route, that fit above a panel
LEAST = math.log(1.12)  # a panel shows at least this much up and down: noise is not to look like news
TICKS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)


Groups = Mapping[str, tuple[Sequence[Series], Sequence[Counted]]]  # what is together -> its times and counts


@dataclass(frozen=True)
class Group:
    """Routes of one direction and contract, float32, each with its series and counts. name: of the figure."""

    title: str
    name: str
    memory: str
    routes: Groups


def panels(history: History, name: str, title: str, caption: str, groups: Groups) -> Figure:
    """One figure of a panel for each of ``groups``: what it is called -> its series, and what is counted of it.

    Cost is relative to each series' last level, which is 1: what older releases took of what the newest takes. Counts
    stand below their series, over the same days.
    """
    rows = math.ceil(len(groups) / ACROSS)
    width = ACROSS * (LEFT + PANEL + RIGHT)  # however few there are: panels of all figures are of one size
    below = GAP + COUNTS if any(series and counted for series, counted in groups.values()) else 0.0
    each = HEAD + HEIGHT + below + FOOT
    height = rows * each + TOP + BOTTOM
    with plt.style.context(str(STYLE)):
        figure = plt.figure(figsize=(width, height))
        gids, order = anchors(groups), itertools.count()
        timed = any(series for series, _ in groups.values())  # then the figure's table is of times alone
        for place, (label, (series, counted)) in enumerate(groups.items()):
            row, column = divmod(place, ACROSS)
            left = column * (LEFT + PANEL + RIGHT) + LEFT
            bottom = height - TOP - row * each - HEAD - HEIGHT
            ax = figure.add_axes((left / width, bottom / height, PANEL / width, HEIGHT / height))
            ax.set_gid(gids[label])
            draw(ax, series or counted, history, HEIGHT, order if series or not timed else None)
            ax.set_title(show.short(label, LETTERS), fontsize=7.4, family=MONO, loc="left", pad=17, color=INK)
            if series and counted:
                ax.tick_params(labelbottom=False)
                ax = figure.add_axes((left / width, (bottom - below) / height, PANEL / width, COUNTS / height))
                draw(ax, counted, history, COUNTS, sizes=[cell.nbytes for cell in series])
        return finish(figure, name, title, described(history, groups), (), caption)


def relative(cell: Series | Counted) -> Floats:
    """Of a cell over its last level, (4, releases): points, low and high ends of their ranges, and levels.

    The range of a time is its 95 % interval, that of a count the range of its repeats.
    """
    if isinstance(cell, Counted):
        return np.stack([cell.values, cell.low, cell.high, cell.levels]) / cell.levels[-1]
    values, half = cell.values - cell.levels[-1], HALF * cell.errors
    return np.exp([values, values - half, values + half, cell.levels - cell.levels[-1]])


def changes_of(cell: Series | Counted) -> dict[Release, float]:
    """The releases at which a cell changed -> new over old."""
    if isinstance(cell, Counted):
        return {step.at: step.ratio for step in cell.steps}
    return {broken.at: broken.ratio for broken in cell.breaks if broken.verdict in CHANGED}


def draw(
    ax: Axes,
    cells: Sequence[Series | Counted],
    history: History,
    inches: float,
    rows: Iterator[int] | None = None,
    sizes: Sequence[int] = (),
) -> None:
    """Each cell's cost over its last level: points with their ranges, levels as lines, changes by release.

    inches  how high the panel is
    rows    of the figure's table, from which a page says what a point is; None where the table has none of these
    sizes   a cell looks as the one that is of as many bytes
    """
    colours = [f"#{colour.lstrip('#')}" for colour in plt.rcParams["axes.prop_cycle"].by_key()["color"]]
    at: dict[str, float] = {}
    across = low = high = 0.0
    for index, cell in enumerate(cells):
        days = np.array([_day(release.date) for release in cell.releases])
        points, least, most, levels = drawn = relative(cell)
        same = sizes.index(cell.nbytes) if cell.nbytes in sizes else len(sizes) + index
        colour, marker = colours[same % len(colours)], MARKERS[same % len(MARKERS)]
        gid = None if rows is None else f"{POINTS}{next(rows)}"
        ax.vlines(days, least, most, color=colour, linewidth=0.9, alpha=0.35)
        ax.plot(days, points, linestyle="", marker=marker, color=colour, markeredgewidth=0, markersize=2.6, gid=gid)
        ax.step(days, levels, where="post", color=colour, linewidth=1.1)
        at |= {release.version: _day(release.date) for release in changes_of(cell)}
        if isinstance(cell, Counted):
            up, room, last = 1.08, 1.2, f"{cell.levels[-1]:,.0f} {cell.unit if cell is cells[-1] else ''}"
        else:
            up, room, last = 1.04, 1.0, show.seconds(math.exp(cell.levels[-1]))
        text = f"{show.size(cell.nbytes) if cell.nbytes else ''} {last}".strip()
        ax.text(across, up, text, transform=ax.transAxes, color=colour, fontsize=6.4, va="bottom")
        across += 0.0235 * len(text) + 0.05
        low, high = max(low, -room * math.log(drawn.min())), max(high, room * math.log(drawn.max()))
    _axes(ax, at, history, (low, high), inches)


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


def described(history: History, groups: Groups) -> str:
    """What a figure shows, in words computed from its series."""
    first, last = history.releases[0], history.releases[-1]
    timed = [(f"{label} changed", _versions(series)) for label, (series, _) in groups.items()]
    counts = [(f"the {cells[0].unit} of {label}", _versions(cells)) for label, (_, cells) in groups.items() if cells]
    words = [f"{what} at {show.join(versions)}" for what, versions in (*timed, *counts) if versions]
    clauses = "; ".join(words) if words else "no change of level was found"
    return f"{len(groups)} panels, {first.name} to {last.version}. Of {history.package}: {clauses}."


def _versions(cells: Sequence[Series | Counted]) -> list[str]:
    """The releases that changed any of these cells, by their days."""
    releases = sorted((release for cell in cells for release in changes_of(cell)), key=lambda release: release.date)
    return list(dict.fromkeys(release.version for release in releases))


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
        strips = [
            Strip(route, _by(cell), f"#{group.name}-{panels[route]}", tuple(_tiles(history, cell)))
            for route, (series, counted) in group.routes.items()
            for cell in _chosen(group.memory, series, counted)
        ]
        made.append((group.title, tuple(strips)))
    title = f"Cost by release of {history.package}, with {history.held}"
    versions = tuple(release.version for release in history.releases)
    ids = () if history.series else tuple(release.toolchain.tag for release in history.releases)
    return Heat(title, versions, tuple(made), LEGEND.format(versions[-1]), ids)


def _chosen(memory: str, series: Sequence[Series], counted: Sequence[Counted]) -> list[Series | Counted]:
    """What stands for a route: its instructions, and, where it does not share memory, the longest of those times that
    most releases have, for what takes long was hardly ever quiet; else its shortest time where none were counted."""
    calls = sorted(counted, key=lambda cell: cell.nbytes)[:1]
    if memory == ALIAS:
        return [*(calls or series[:1])]
    most = max((len(cell.releases) for cell in series), default=0)
    return [*calls, *[cell for cell in series if 2 * len(cell.releases) > most][-1:]]


def _by(cell: Series | Counted) -> str:
    what = cell.unit if isinstance(cell, Counted) else "time"
    return f"{what}, {show.size(cell.nbytes)}" if cell.nbytes else what


def _tiles(history: History, cell: Series | Counted) -> Iterator[Tile | None]:
    """A tile for each release of the history."""
    ratios = {release.version: float(ratio) for release, ratio in zip(cell.releases, relative(cell)[-1])}
    steps = {release.version: step for release, step in changes_of(cell).items()}
    for release in history.releases:
        ratio, step = ratios.get(release.version), steps.get(release.version)
        if ratio is None:
            yield None
            continue
        about = f"{release.name}: {number(ratio)}× of {cell.releases[-1].version} ({_by(cell)})"
        about += f"; here it became {number(step)}×" if step else ""
        shade = _shade(ratio)
        yield Tile(number(ratio) if shade else "1", about, shade, step is not None)


def _shade(ratio: float) -> str:
    place = sum(max(ratio, 1 / ratio) >= factor for factor in SHADES)
    return f"{'s' if ratio > 1 else 'f'}{place}" if place else ""
