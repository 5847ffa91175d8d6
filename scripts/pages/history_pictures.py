"""Pictures of a machine's histories: heat maps of routes × releases, and a panel per route, its
cost against the day of release."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from analysis.changes import LAYOUT
from analysis.history import History, Release
from analysis.verdicts import INSTRUCTIONS, TIME
from matplotlib.axes import Axes
from store.frames import Change

from . import show
from .change_words import grad_text, series_text
from .comparison_words import number
from .figures import RATIO_TICKS, figure_of, label_ticks
from .history_data import PICTURE_KEYS, PictureRow, picture_rows
from .svg import INK, MARKERS, MONO, MUTED, POINTS, STYLE, Figure, Look, finish, slug
from .tables import Table, render_table

SHADE_RATIOS = (1.02, 1.05, 1.1, 1.25, 1.5)  # a tile is a shade darker from each of these on
MEMORY_WORDS = {
    "alias": "sharing memory",
    "copy": "making a copy",
    "into": "into an existing buffer",
}


@dataclass(frozen=True)
class Tile:
    """A series at one release.

    text     cost over that at the release ``base``: 1 where they are equal, else as ``ratio``
    shade    CSS class, see ``shade_class``
    verdict  of a change reported at the release, with its ``change``; "" without one
    """

    release: Release
    text: str
    ratio: str
    base: str
    shade: str
    verdict: str
    change: str


@dataclass(frozen=True)
class HeatRow:
    """A series: its route, its sizes in words, and a tile per release; None without a figure."""

    route: str
    series: str
    tiles: tuple[Tile | None, ...]


@dataclass(frozen=True)
class HeatMap:
    """groups: their title, and a row per series."""

    title: str
    versions: tuple[str, ...]
    groups: tuple[tuple[str, tuple[HeatRow, ...]], ...]
    legend: str


def heat_maps(history: History) -> Iterator[HeatMap]:
    """A map of times, then one of instructions. Only series with a reported change are shown."""
    rows = picture_rows(history)
    versions = [release.version for release in history.releases]
    for figure in (TIME, INSTRUCTIONS):
        points = rows[rows["what"] == figure]
        counted = points["verdict"].ne("") & points["evidence"].ne(LAYOUT)
        shown = points[points["series"].isin(points.loc[counted, "series"])]
        if shown.empty:
            continue
        series_count = points["series"].nunique()
        legend = show.render_line(
            "history",
            "heat",
            history=history,
            figure=figure,
            base=max(points["base"], key=versions.index),
            series=series_count,
            hidden=series_count - shown["series"].nunique(),
            precision=(points["high"] / points["low"]).median() ** 0.5 - 1,
        )
        groups = tuple(
            (group_title(*key), tuple(_heat_rows(history, group)))
            for key, group in shown.groupby(PICTURE_KEYS, sort=False)
        )
        yield HeatMap(f"{history.package}: {figure} by release", tuple(versions), groups, legend)


def _heat_rows(history: History, group: pd.DataFrame) -> Iterator[HeatRow]:
    for _, points in group.groupby("series", sort=False):
        point_at = {point.release: point for point in points.itertuples()}
        tiles = tuple(
            _tile(release, point_at[release.version]) if release.version in point_at else None
            for release in history.releases
        )
        first = next(iter(point_at.values()))
        yield HeatRow(first.route, series_text(first), tiles)


def _tile(release: Release, point: PictureRow) -> Tile:
    return Tile(
        release=release,
        text="1" if point.over == 1 else number(point.over),
        ratio=number(point.over),
        base=point.base,
        shade=shade_class(point.over),
        verdict=point.verdict,
        change=number(point.ratio) if point.verdict else "",
    )


def group_title(direction: str, memory: str) -> str:
    """Title of the routes of a picture, which share PICTURE_KEYS."""
    return f"{direction}, {MEMORY_WORDS.get(memory, memory)}"


def shade_class(ratio: float) -> str:
    """s1 (slower than the newest level) to s5, f1 (faster) to f5, "" if about the same."""
    darkness = sum(max(ratio, 1 / ratio) >= least for least in SHADE_RATIOS)
    return f"{'s' if ratio > 1 else 'f'}{darkness}" if darkness else ""


# --- panels --------------------------------------------------------------------------------------


COLUMNS = 2  # panels side by side
# Inches
PLOT_WIDTH, TIMES_HEIGHT = 3.3, 1.5  # of a plot of times
COUNTS_HEIGHT, COUNTS_GAP = 0.6, 0.2  # of a plot of counts below it, and of the gap between them
LEFT, RIGHT, HEAD, FOOT = 0.75, 0.15, 0.5, 0.35  # around the plots of a panel
PANEL_WIDTH = LEFT + PLOT_WIDTH + RIGHT
WIDTH = COLUMNS * PANEL_WIDTH
TITLE_LETTERS = 44  # of a route's name above a panel
FONT_POINTS = 8.5  # 11 pixels on a page
FONTS = dict.fromkeys(("font.size", "xtick.labelsize", "ytick.labelsize"), FONT_POINTS)
# Of a label above a plot, as shares of the plot's width
LETTER_WIDTH, LABEL_GAP = 0.0235, 0.05


def history_figures(history: History) -> Iterator[tuple[Figure, Table]]:
    """A figure per direction and contract, with a panel per route whose time changed by more than
    ``equivalence``. If nothing was timed, instructions are used instead."""
    rows = picture_rows(history)
    figure = TIME if (rows["what"] == TIME).any() else INSTRUCTIONS
    effect = np.abs(np.log(rows["ratio"].astype(float)))
    large = effect >= math.log1p(history.settings.equivalence)
    large &= rows["what"].eq(figure) & rows["verdict"].ne("")
    changed = rows.loc[large, ["group", "route"]].drop_duplicates()
    for key, group in rows.merge(changed).groupby(PICTURE_KEYS, sort=False):
        points = group[group["what"] == figure]
        ids = {name: f"{POINTS}{place}" for place, name in enumerate(points["series"].unique())}
        yield _panels(history, key, group, ids), _points(history, points)


def _points(history: History, points: pd.DataFrame) -> Table:
    """The figure's data: a row per series, a column per release."""
    versions = [release.version for release in history.releases]
    timed = points["what"].eq(TIME).all()
    series = []
    for _, rows in points.groupby("series", sort=False):
        first = next(rows.itertuples())
        values = {row.release: _amount(row, row.value) for row in rows.itertuples()}
        texts = [values.get(version, "") for version in versions]
        series.append((first.route, first.sizes, texts))
    return render_table("history", "points", versions=versions, timed=timed, series=series)


def _amount(point: Change, amount: float) -> str:
    """Seconds, or a number of instructions."""
    return show.seconds(amount) if point.what == TIME else f"{show.round_last_bits(amount):,.0f}"


def _panels(
    history: History, key: tuple[str, str], rows: pd.DataFrame, ids: Mapping[str, str]
) -> Figure:
    """Draw a figure's panels on one scale. ids: series -> SVG id, which names its row of the
    figure's table."""
    routes = [route for _, route in rows.groupby(["group", "route"], sort=False)]
    limits = {kind: _limits(points) for kind, points in rows.groupby("what")}
    days = mdates.datestr2num([release.date for release in history.releases])
    first, last = history.releases[0], history.releases[-1]
    with plt.style.context([STYLE, FONTS]):
        figure = _draw_routes(routes, limits, days, ids)
        return finish(
            figure,
            slug("history", history.package, *key),
            f"{len(routes)} route{'s' * (len(routes) > 1)}, {first.name} to {last.version}.",
            (),
            f"{history.package}: {group_title(*key)}, relative to {last.name}",
        )


def _draw_routes(
    routes: Sequence[pd.DataFrame],
    limits: Mapping[str, tuple[float, float]],
    days: Sequence[float],
    ids: Mapping[str, str],
) -> plt.Figure:
    plots = TIMES_HEIGHT + (COUNTS_GAP + COUNTS_HEIGHT if len(limits) > 1 else 0.0)
    panel_height = HEAD + plots + FOOT
    height = math.ceil(len(routes) / COLUMNS) * panel_height
    figure = plt.figure(figsize=(WIDTH, height))
    for index, route in enumerate(routes):
        row, column = divmod(index, COLUMNS)
        corner = (column * PANEL_WIDTH + LEFT, height - row * panel_height - HEAD)
        for ax, points in _plots(figure, corner, route):
            _draw(ax, points, ids)
            _set_axes(ax, days, limits[points["what"].iloc[0]])
    return figure


def _plots(
    figure: plt.Figure, corner: tuple[float, float], route: pd.DataFrame
) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """The plots of a route with their points: times, and counts below them. corner: of the upper
    one, left and top, in inches."""
    left, bottom = corner
    width, height = figure.get_size_inches()
    kinds = [kind for kind in (TIME, INSTRUCTIONS) if (route["what"] == kind).any()]
    for index, kind in enumerate(kinds):
        inches = COUNTS_HEIGHT if index else TIMES_HEIGHT
        bottom -= inches + (COUNTS_GAP if index else 0.0)
        ax = figure.add_axes((left / width, bottom / height, PLOT_WIDTH / width, inches / height))
        ax.set_ylabel("time" if kind == TIME else "instr.", fontsize=FONT_POINTS)
        ax.tick_params(labelbottom=kind == kinds[-1])
        yield ax, route[route["what"] == kind]
        if not index:
            first = next(route.itertuples())
            title = ", ".join(filter(None, (first.route, grad_text(first))))
            font: Look = {"fontsize": FONT_POINTS, "family": MONO, "color": INK}
            ax.set_title(show.short(title, TITLE_LETTERS), loc="left", pad=16, **font)


def _limits(points: pd.DataFrame) -> tuple[float, float]:
    """Ends of the axis of ratios."""
    low = (points["low"] / points["newest"]).min()
    high = (points["high"] / points["newest"]).max()
    return min(low / 1.03, 1 / 1.1), max(high * 1.03, 1.1)


def _draw(ax: Axes, points: pd.DataFrame, ids: Mapping[str, str]) -> None:
    """Draw a line per series of a route, with its label above the plot. ids: of the SVG."""
    colours = plt.rcParams["axes.prop_cycle"]()
    place = 0.0
    for (series, rows), colour, marker in zip(
        points.groupby("series", sort=False), colours, cycle(MARKERS)
    ):
        _draw_series(ax, rows, colour, {"marker": marker, "gid": ids.get(series)})
        (last,) = rows.tail(1).itertuples()
        label = f"{show.size_range(last.sizes)} {_amount(last, last.level)}".strip()
        font: Look = {"fontsize": FONT_POINTS, "va": "bottom", **colour}
        ax.text(place, 1.04, label, transform=ax.transAxes, **font)
        place += LETTER_WIDTH * len(label) + LABEL_GAP


def _draw_series(ax: Axes, rows: pd.DataFrame, colour: Look, marks: Look) -> None:
    """Draw points with their intervals, levels, and a rule at each reported change."""
    days = mdates.datestr2num(rows["date"])
    ratios = rows[["value", "low", "high", "level"]].div(rows["newest"], axis=0)
    ax.vlines(days, ratios["low"], ratios["high"], linewidth=1.0, alpha=0.35, **colour)
    marks = marks | {"linestyle": "", "markeredgewidth": 0, "markersize": 3}
    ax.plot(days, ratios["value"], **marks, **colour)
    ax.step(days, ratios["level"], where="post", linewidth=1.3, **colour)
    for day in days[rows["verdict"].ne("").to_numpy()]:
        ax.axvline(day, color=MUTED, linewidth=0.5, linestyle=(0, (2, 2)))


def _set_axes(ax: Axes, days: Sequence[float], limits: tuple[float, float]) -> None:
    """Set the axes of release days and of ratios."""
    margin = 0.03 * max(1.0, max(days) - min(days))
    ax.set_xlim(min(days) - margin, max(days) + margin)
    ax.xaxis.set_major_locator(mdates.YearLocator())
    ax.xaxis.set_major_formatter(mdates.DateFormatter("%Y"))
    ax.set_yscale("log")
    ax.set_ylim(*limits)
    figure = figure_of(ax)
    inches = ax.get_position().height * figure.get_figheight()
    label_ticks(ax.yaxis, RATIO_TICKS, 0.24 / inches, "{:g}×".format)
