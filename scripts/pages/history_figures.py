"""Figures of a machine's histories: a panel per route, its cost against the day of release."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from analysis.cells import Row
from analysis.history import History
from analysis.verdicts import INSTRUCTIONS, TIME
from matplotlib.axes import Axes

from . import show
from .change_words import grad_text
from .figures import RATIO_TICKS, label_ticks
from .heat_map import group_title
from .history_data import PICTURE_KEYS, picture_rows
from .svg import INK, MARKERS, MONO, MUTED, POINTS, STYLE, Figure, finish, slug
from .tables import Table, render_table

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
        yield _panels(history, key, group, points["series"].unique()), _points(history, points)


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


def _amount(point: Row, amount: float) -> str:
    """Seconds, or a number of instructions."""
    return show.seconds(amount) if point.what == TIME else f"{show.round_last_bits(amount):,.0f}"


def _panels(
    history: History, key: tuple[str, str], rows: pd.DataFrame, series: Sequence[str]
) -> Figure:
    """Draw a figure's panels on one scale. series: in the order of the rows of the figure's table."""
    routes = [route for _, route in rows.groupby(["group", "route"], sort=False)]
    limits = {kind: _limits(points) for kind, points in rows.groupby("what")}
    plots = TIMES_HEIGHT + (COUNTS_GAP + COUNTS_HEIGHT if len(limits) > 1 else 0.0)
    panel_height = HEAD + plots + FOOT
    height = math.ceil(len(routes) / COLUMNS) * panel_height
    ids = {name: f"{POINTS}{place}" for place, name in enumerate(series)}
    days = mdates.datestr2num([release.date for release in history.releases])
    with plt.style.context([STYLE, FONTS]):
        figure = plt.figure(figsize=(WIDTH, height))
        for index, route in enumerate(routes):
            row, column = divmod(index, COLUMNS)
            corner = (column * PANEL_WIDTH + LEFT, height - row * panel_height - HEAD)
            for ax, points in _plots(figure, corner, route):
                _draw(ax, points, ids)
                _set_axes(ax, days, limits[points["what"].iloc[0]])
        first, last = history.releases[0], history.releases[-1]
        return finish(
            figure,
            slug("history", history.package, *key),
            f"{len(routes)} route{'s' * (len(routes) > 1)}, {first.name} to {last.version}.",
            (),
            f"{history.package}: {group_title(*key)}, relative to {last.name}",
        )


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
            font: dict[str, Any] = {"fontsize": FONT_POINTS, "family": MONO, "color": INK}
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
        _draw_series(ax, rows, colour, marker=marker, gid=ids.get(series))
        (last,) = rows.tail(1).itertuples()
        label = f"{show.size_range(last.sizes)} {_amount(last, last.level)}".strip()
        font: dict[str, Any] = {"fontsize": FONT_POINTS, "va": "bottom", **colour}
        ax.text(place, 1.04, label, transform=ax.transAxes, **font)
        place += LETTER_WIDTH * len(label) + LABEL_GAP


def _draw_series(ax: Axes, rows: pd.DataFrame, colour: dict[str, Any], **marks: Any) -> None:
    """Draw points with their intervals, levels, and a rule at each reported change."""
    days = mdates.datestr2num(rows["date"])
    ratios = rows[["value", "low", "high", "level"]].div(rows["newest"], axis=0)
    ax.vlines(days, ratios["low"], ratios["high"], linewidth=1.0, alpha=0.35, **colour)
    marks |= {"linestyle": "", "markeredgewidth": 0, "markersize": 3}
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
    inches = ax.get_position().height * ax.figure.get_figheight()
    label_ticks(ax.yaxis, RATIO_TICKS, 0.24 / inches, "{:g}×".format)
