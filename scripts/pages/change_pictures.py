"""Pictures of changes: heat maps of routes × releases, a panel per route with its cost against the
day of release, and a forest plot of a comparison."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from analysis.changes import LAYOUT
from analysis.comparison import Comparison
from analysis.history import History
from analysis.verdicts import (
    FASTER,
    INCONCLUSIVE,
    INSTRUCTIONS,
    NO_CHANGE,
    SLOWER,
    TIME,
    largest_first,
)
from matplotlib.axes import Axes
from store.frames import Change

from . import comparison_words as words
from . import show
from .figures import (
    GREEN,
    GRID,
    INK,
    MARKERS,
    MONO,
    MUTED,
    POINTS,
    RATIO_TICKS,
    RED,
    STYLE,
    Figure,
    Look,
    figure_of,
    finish,
    label_ticks,
    slug,
)
from .tables import Table, render_table

USUAL_DTYPE = "float32"  # of the routes in pictures
SHADE_RATIOS = (1.02, 1.05, 1.1, 1.25, 1.5)  # a tile is a shade darker from each of these on
PICTURE_KEYS = ["direction", "contract"]  # a picture shows the routes that share these
MEMORY_WORDS = {
    "alias": "sharing memory",
    "copy": "making a copy",
    "into": "into an existing buffer",
}


class Tile(Change):
    """A row of ``picture_rows``."""

    base: str
    level_ratio: float
    shade: str
    tag: str


@dataclass(frozen=True)
class HeatMap:
    """groups: their title, and a row per series: its route, its sizes in words, and a tile per
    release; None without a figure."""

    title: str
    versions: tuple[str, ...]
    groups: Sequence[tuple[str, Sequence[tuple[str, str, Sequence[Tile | None]]]]]
    legend: str


def picture_rows(history: History) -> pd.DataFrame:
    """The rows of routes in one dtype. value_ratio, low_ratio, high_ratio and level_ratio: over the
    level at the last release, ``base``; shade: see ``shade_class``; tag: of the release."""
    rows = history.rows.query("route.notna() and not control")
    rows = rows[rows["dtype"].isna() | (rows["dtype"] == USUAL_DTYPE)]
    last = rows.groupby(["series", "what"])[["level", "release"]].transform("last")
    ratios = rows[["value", "low", "high", "level"]].div(last["level"], axis=0)
    tags = {release.version: release.tag for release in history.releases}
    return rows.join(ratios.add_suffix("_ratio")).assign(
        base=last["release"],
        shade=ratios["level"].map(shade_class),
        tag=rows["release"].map(tags),
    )


def heat_maps(history: History) -> Iterator[HeatMap]:
    """A map of times, then one of instructions. Only series with a reported change are shown."""
    rows = picture_rows(history)
    versions = tuple(release.version for release in history.releases)
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
        groups = [
            (group_title(*key), [*_heat_rows(versions, group)])
            for key, group in shown.groupby(PICTURE_KEYS, sort=False)
        ]
        yield HeatMap(f"{history.package}: {figure} by release", versions, groups, legend)


def _heat_rows(
    versions: Sequence[str], group: pd.DataFrame
) -> Iterator[tuple[str, str, Sequence[Tile | None]]]:
    for _, points in group.groupby("series", sort=False):
        tiles = {tile.release: tile for tile in points.itertuples()}
        first = next(iter(tiles.values()))
        series = show.render_line("history", "series", change=first)
        yield first.route, series, [*map(tiles.get, versions)]


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
    changes = rows[rows["what"] == figure].query("verdict != ''")
    effect = np.abs(np.log(changes["ratio"].astype(float)))
    large = changes[effect >= math.log1p(history.settings.equivalence)]
    changed = large[["group", "route"]].drop_duplicates()
    for key, group in rows.merge(changed).groupby(PICTURE_KEYS, sort=False):
        points = group[group["what"] == figure]
        ids = {name: f"{POINTS}{place}" for place, name in enumerate(points["series"].unique())}
        yield _panels(history, key, group, ids), _points(history, points)


def _points(history: History, points: pd.DataFrame) -> Table:
    """The figure's data: a row per series, a column per release."""
    versions = [release.version for release in history.releases]
    series = [
        {row.release: row for row in rows.itertuples()}
        for _, rows in points.groupby("series", sort=False)
    ]
    return render_table("history", "points", versions=versions, series=series)


def _panels(
    history: History, key: tuple[str, str], rows: pd.DataFrame, ids: Mapping[str, str]
) -> Figure:
    """Draw a figure's panels on one scale. ids: series -> SVG id, which names its row of the
    figure's table."""
    first, last = history.releases[0], history.releases[-1]
    with plt.style.context([STYLE, FONTS]):
        figure, routes = _draw_routes(history, rows, ids)
        return finish(
            figure,
            slug("history", history.package, *key),
            f"{routes} route{'s' * (routes > 1)}, {first.name} to {last.version}.",
            (),
            f"{history.package}: {group_title(*key)}, relative to {last.name}",
        )


def _draw_routes(
    history: History, rows: pd.DataFrame, ids: Mapping[str, str]
) -> tuple[plt.Figure, int]:
    """Draw the panels, and return their number, too."""
    routes = rows.groupby(["group", "route"], sort=False)
    days = mdates.datestr2num([release.date for release in history.releases])
    ends = rows.groupby("what").agg({"low_ratio": "min", "high_ratio": "max"})
    plots = TIMES_HEIGHT + (COUNTS_GAP + COUNTS_HEIGHT if len(ends) > 1 else 0.0)
    panel_height = HEAD + plots + FOOT
    height = math.ceil(len(routes) / COLUMNS) * panel_height
    figure = plt.figure(figsize=(WIDTH, height))
    for (row, column), (_, route) in zip(np.ndindex(len(routes), COLUMNS), routes):
        corner = (column * PANEL_WIDTH + LEFT, height - row * panel_height - HEAD)
        for ax, points in _plots(figure, corner, route):
            _draw(ax, points, ids)
            _set_axes(ax, days, *ends.loc[points["what"].iloc[0]])
    return figure, len(routes)


def _plots(
    figure: plt.Figure, corner: tuple[float, float], route: pd.DataFrame
) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """The plots of a route with their points: times, and counts below them. corner: of the upper
    one, left and top, in inches."""
    left, bottom = corner
    width, height = figure.get_size_inches()
    kinds = [kind for kind in (TIME, INSTRUCTIONS) if (route["what"] == kind).any()]
    for kind in kinds:
        is_upper = kind == kinds[0]
        inches = TIMES_HEIGHT if is_upper else COUNTS_HEIGHT
        bottom -= inches if is_upper else COUNTS_HEIGHT + COUNTS_GAP
        ax = figure.add_axes((left / width, bottom / height, PLOT_WIDTH / width, inches / height))
        ax.set_ylabel("time" if kind == TIME else "instr.", fontsize=FONT_POINTS)
        ax.tick_params(labelbottom=kind == kinds[-1])
        yield ax, route[route["what"] == kind]
        if is_upper:
            title = show.render_line("history", "panel", change=next(route.itertuples()))
            font: Look = {"fontsize": FONT_POINTS, "family": MONO, "color": INK}
            ax.set_title(show.short(title, TITLE_LETTERS), loc="left", pad=16, **font)


def _draw(ax: Axes, points: pd.DataFrame, ids: Mapping[str, str]) -> None:
    """Draw a line per series of a route, with its label above the plot: points with their
    intervals, levels, and a rule at each reported change. ids: of the SVG."""
    colours = plt.rcParams["axes.prop_cycle"]()
    place = 0.0
    for (series, rows), colour, marker in zip(
        points.groupby("series", sort=False), colours, cycle(MARKERS)
    ):
        days = mdates.datestr2num(rows["date"])
        ax.vlines(days, rows["low_ratio"], rows["high_ratio"], linewidth=1.0, alpha=0.35, **colour)
        marks = {"marker": marker, "gid": ids.get(series), "markersize": 3, **colour}
        ax.plot(days, rows["value_ratio"], linestyle="", markeredgewidth=0, **marks)
        ax.step(days, rows["level_ratio"], where="post", linewidth=1.3, **colour)
        for day in days[rows["verdict"] != ""]:
            ax.axvline(day, color=MUTED, linewidth=0.5, linestyle=(0, (2, 2)))
        (last,) = rows.tail(1).itertuples()
        label = show.render_line("history", "line", point=last)
        font: Look = {"fontsize": FONT_POINTS, "va": "bottom", **colour}
        ax.text(place, 1.04, label, transform=ax.transAxes, **font)
        place += LETTER_WIDTH * len(label) + LABEL_GAP


def _set_axes(ax: Axes, days: Sequence[float], low: float, high: float) -> None:
    """Set the axes of release days, and of ratios from ``low`` to ``high``."""
    margin = 0.03 * max(1.0, max(days) - min(days))
    ax.set_xlim(min(days) - margin, max(days) + margin)
    ax.xaxis.set_major_locator(mdates.YearLocator())
    ax.xaxis.set_major_formatter(mdates.DateFormatter("%Y"))
    ax.set_yscale("log")
    ax.set_ylim(min(low / 1.03, 1 / 1.1), max(high * 1.03, 1.1))
    inches = ax.get_position().height * figure_of(ax).get_figheight()
    label_ticks(ax.yaxis, RATIO_TICKS, 0.24 / inches, "{:g}×".format)


# --- a comparison -------------------------------------------------------------------------------

MAX_ROWS = 40  # of a readable plot
ROW_HEIGHT, FOREST_WIDTH, FOREST_HEAD, FOREST_FOOT = 0.19, 2.8, 0.2, 0.45  # inches
LETTER = 0.061  # inches per letter of a label
LABEL_LETTERS = 120  # at most
PRIORITY = {SLOWER: 0, FASTER: 0, INCONCLUSIVE: 1, NO_CHANGE: 2}  # the lowest are drawn first
MARKS = {
    SLOWER: ("s", RED),
    FASTER: ("o", GREEN),
    INCONCLUSIVE: ("D", MUTED),
    NO_CHANGE: ("|", MUTED),
}


def forest_cells(comparison: Comparison) -> pd.DataFrame:
    """The cells of the plot, from slowest to fastest: changes first, then inconclusive ones, then
    others, as far as there is room."""
    cells = comparison.cells[np.isfinite(comparison.cells["low95"].astype(float))]
    ranked = cells.assign(priority=cells["verdict"].map(PRIORITY)).dropna(subset="priority")
    ranked = largest_first(ranked).sort_values("priority", kind="stable")
    return ranked.head(MAX_ROWS).sort_values("ratio", ascending=False, kind="stable")


def forest(comparison: Comparison) -> Figure | None:
    """Ratio new / base with its 95 % interval, a row per cell, the first at the top; None if no
    cell has one."""
    cells = forest_cells(comparison)
    if cells.empty:
        return None
    rows = cells.to_dict("records")
    labels = [show.short(show.bare(words.cell_text(row)), LABEL_LETTERS) for row in rows]
    verdicts = [show.render_line("comparison", "change", row=row) for row in rows]
    equivalence = comparison.settings.equivalence
    with plt.style.context(str(STYLE)):
        figure, ax = _forest_plot(labels, verdicts)
        ax.axvspan(1 / (1 + equivalence), 1 + equivalence, color=GRID, alpha=0.6, linewidth=0)
        ax.axvline(1.0, color=MUTED, linewidth=0.9)
        for place, row in enumerate(rows):
            _draw_cell(ax, place, row)
            font: Look = {"fontsize": 7, "va": "center_baseline", "color": INK}
            font["transform"] = ax.get_yaxis_transform()
            ax.text(-0.03, place, labels[place], ha="right", family=MONO, **font)
            ax.text(1.03, place, verdicts[place], ha="left", **font)
        _set_ratios(ax, cells, equivalence)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_yticks([])
        ax.grid(axis="y", visible=False)
        new, base = comparison.new["toolchain"], comparison.base["toolchain"]
        ax.set_xlabel(f"time of {new} / time of {base}")
        views = {"summary": words.summarise(comparison), "margin": equivalence}
        views |= {"shown": len(rows), "cells": len(comparison.cells)}
        _set_title(figure, show.render_line("figures", "forest_title", **views))
        description = show.render_line("figures", "forest_described", **views)
        return finish(
            figure, "comparison", description, (), show.render_line("figures", "forest", **views)
        )


def _set_title(figure: plt.Figure, title: str) -> None:
    """Write a title at the upper left corner, as far as there is room."""
    width, height = figure.get_size_inches()
    shown = show.short(show.bare(title), int(width / LETTER))
    figure.text(0.1 / width, 1 - 0.05 / height, shown, va="top", fontsize=8, color=INK)


def _forest_plot(labels: Sequence[str], verdicts: Sequence[str]) -> tuple[plt.Figure, Axes]:
    """A plot with room for labels on its left and verdicts on its right."""
    left = LETTER * max(map(len, labels)) + 0.32
    right = LETTER * max(map(len, verdicts)) + 0.25
    width, height = left + FOREST_WIDTH + right, ROW_HEIGHT * (len(labels) + 1)
    total = height + 0.55 + FOREST_HEAD
    figure = plt.figure(figsize=(width, total))
    box = (left / width, FOREST_FOOT / total, FOREST_WIDTH / width, height / total)
    return figure, figure.add_axes(box)


def _draw_cell(ax: Axes, place: int, row: words.CellRow) -> None:
    marker, colour = MARKS[row["verdict"]]
    fill = "white" if row["verdict"] == INCONCLUSIVE else colour
    look: Look = {"marker": marker, "markersize": 4.6, "markerfacecolor": fill}
    ax.hlines(place, row["low95"], row["high95"], color=colour, linewidth=1.4)
    ax.plot(row["ratio"], place, color=colour, **look)


def _set_ratios(ax: Axes, cells: pd.DataFrame, equivalence: float) -> None:
    """Set a logarithmic axis. An interval that is far wider than any effect is cut off."""
    low = max(cells["low95"].min(), cells["ratio"].min() / 1.5)
    high = min(cells["high95"].max(), cells["ratio"].max() * 1.5)
    widest = 1 + 2 * equivalence
    ax.set_xscale("log")
    ax.set_xlim(min(low, 1 / widest) / 1.02, max(high, widest) * 1.02)
    label_ticks(ax.xaxis, RATIO_TICKS, 0.4 / FOREST_WIDTH, lambda ratio: f"{show.number(ratio)}×")
