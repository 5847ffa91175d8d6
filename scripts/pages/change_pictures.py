"""Pictures of changes: heat maps of routes × releases, and a forest plot of a comparison."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from analysis.changes import LAYOUT
from analysis.comparison import Comparison
from analysis.history import History
from analysis.results import where
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
from pandas import DataFrame
from store.frames import Change, rows_of

from . import comparison_words as words
from . import show
from .figures import (
    GREEN,
    GRID,
    INK,
    MONO,
    MUTED,
    RATIO_TICKS,
    RED,
    STYLE,
    Figure,
    Look,
    finish,
    label_ticks,
)

USUAL_DTYPE = "float32"  # of the routes in pictures
SHADE_RATIOS = (1.02, 1.05, 1.1, 1.25, 1.5)  # a tile is a shade darker from each of these on
PICTURE_KEYS = ["direction", "contract"]  # a group of a heat map shows the routes that share these
LINE_WIDTH, LINE_HEIGHT = 72, 14  # of a row's line, in pixels
MIN_LINE_SPAN = math.log(1.1)  # of figures (log) that a line's height shows
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


class HeatRow(NamedTuple):
    """A series: its route, its sizes in words, the points of its line as SVG writes them, and a
    tile per release; None without a figure."""

    route: str
    series: str
    line: str
    tiles: Sequence[Tile | None]


@dataclass(frozen=True)
class HeatMap:
    """releases: version and tag of each, the tag "" of the first, which has no section. groups:
    their title and rows. folded: on a page only its title is visible until a reader opens it."""

    title: str
    releases: tuple[tuple[str, str], ...]
    groups: Sequence[tuple[str, Sequence[HeatRow]]]
    legend: str
    folded: bool


def picture_rows(history: History) -> DataFrame:
    """The rows of routes in one dtype. level_ratio: over the level at the last release, ``base``;
    shade: see ``shade_class``; tag: of the release."""
    rows = history.rows.query("route.notna() and not control")
    rows = rows[rows["dtype"].isna() | (rows["dtype"] == USUAL_DTYPE)]
    last = rows.groupby(["series", "what"])[["level", "release"]].transform("last")
    ratios = rows["level"] / last["level"]
    tags = {release.version: release.tag for release in history.releases}
    return rows.assign(
        base=last["release"],
        level_ratio=ratios,
        shade=ratios.map(shade_class),
        tag=rows["release"].map(tags),
    )


def heat_maps(history: History) -> Iterator[HeatMap]:
    """A map of times, then one of instructions. Only series with a reported change are shown."""
    rows = picture_rows(history)
    versions = [release.version for release in history.releases]
    tags = ["", *(release.tag for release in history.releases[1:])]
    for figure in (TIME, INSTRUCTIONS):
        points = where(rows, what=figure)
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
            (f"{key[0]}, {MEMORY_WORDS.get(key[1], key[1])}", [*_heat_rows(versions, group)])
            for key, group in shown.groupby(PICTURE_KEYS, sort=False)
        ]
        is_folded = figure == INSTRUCTIONS and bool((rows["what"] == TIME).any())
        yield HeatMap(
            f"{history.package}: {figure} by release",
            tuple(zip(versions, tags)),
            groups,
            legend,
            is_folded,
        )


def _heat_rows(versions: Sequence[str], group: DataFrame) -> Iterator[HeatRow]:
    for _, points in group.groupby("series", sort=False):
        of_release = {tile.release: tile for tile in rows_of(points)}
        first = next(iter(of_release.values()))
        series = show.render_line("history", "series", change=first)
        tiles = [*map(of_release.get, versions)]
        yield HeatRow(first.route, series, _line(tiles), tiles)


def _line(tiles: Sequence[Tile | None]) -> str:
    """The points of a row's line, on a scale (log) of its own."""
    figures = [(place, math.log(tile.value)) for place, tile in enumerate(tiles) if tile]
    values = [value for _, value in figures]
    scale = LINE_HEIGHT / max(MIN_LINE_SPAN, max(values) - min(values))
    step = LINE_WIDTH / max(1, len(tiles) - 1)
    points = ((place * step, (max(values) - value) * scale) for place, value in figures)
    return " ".join(f"{x:.0f},{y:.0f}" for x, y in points)


def shade_class(ratio: float) -> str:
    """s1 (slower than the newest level) to s5, f1 (faster) to f5, "" if about the same."""
    darkness = sum(max(ratio, 1 / ratio) >= least for least in SHADE_RATIOS)
    return f"{'s' if ratio > 1 else 'f'}{darkness}" if darkness else ""


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


def forest_cells(comparison: Comparison) -> DataFrame:
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
        description = show.render_line("figures", "forest_described", **views)
        return finish(
            figure, "comparison", description, (), show.render_line("figures", "forest", **views)
        )


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


def _set_ratios(ax: Axes, cells: DataFrame, equivalence: float) -> None:
    """Set a logarithmic axis. An interval that is far wider than any effect is cut off."""
    low = max(cells["low95"].min(), cells["ratio"].min() / 1.5)
    high = min(cells["high95"].max(), cells["ratio"].max() * 1.5)
    widest = 1 + 2 * equivalence
    ax.set_xscale("log")
    ax.set_xlim(min(low, 1 / widest) / 1.02, max(high, widest) * 1.02)
    label_ticks(ax.xaxis, RATIO_TICKS, 0.4 / FOREST_WIDTH, lambda ratio: f"{show.number(ratio)}×")
