"""Figures as SVG, for a file and for a page, in one style (report.mplstyle). Those of a machine:
lines against size, and dots where the size does not matter."""

import io
import itertools
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import matplotlib.pyplot as plt
import numpy as np
from analysis.cells import (
    Limit,
    Row,
    at_usual_size,
    conversions,
    list_rows,
    usual_dtype,
    usual_size,
)
from analysis.needs import Need
from analysis.results import where
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from pandas import DataFrame

from benchmarks.contracts import ALIAS, COPY, INTO, MEMORIES

from . import advice, show
from .show import render_line
from .tables import Table

Rows = Sequence[Row]
STYLE = Path(__file__).with_name("report.mplstyle")
MARKERS = "os^Dv<>PX"  # with seven colours: 63 lines before a pair repeats
INK, MUTED, GRID = "#1b1f24", "#6e7781", "#d8dee4"
BLUE, RED, GREEN = "#0072b2", "#d55e00", "#009e73"
SANS, MONO = "sans-serif", "monospace"  # the style defines their fonts
POINTS = "points-"  # prefix of the ids that a page's script reads
NAME_LETTERS = 100  # of a file name; file systems allow 255
# CSS variables of the page, so that each colour can have a dark variant
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    BLUE: "--blue",
    RED: "--red",
    GREEN: "--green",
    "#cc79a7": "--pink",
    "#e69f00": "--orange",
    "#56b4e9": "--sky",
}
Look = dict[str, Any]  # arguments of matplotlib
METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # all left out
IN_TAG = "(?=[^<>]*>)"  # follows what is no text of a reader
# What no reader sees, or what a group's elements share -> what stands for it
EXCESS = {
    "(?s:^.*?(?=<svg)|<!--.*?-->)": "",
    r"(?<=>)\s+|\s+(?=<)|\n": "",
    r'<g([^<>]*)>(<[^<>]*( style="[^"]*")[^<>]*/>(?:<[^<>]*\3[^<>]*/>)*)</g>': lambda group: (
        f"<g{group[1]}{group[3]}>{group[2].replace(group[3], '')}</g>"
    ),
    rf' id="[\w.]+_\d+"{IN_TAG}': "",  # nothing refers to these
    rf' transform="rotate\(-0 [^"]*"{IN_TAG}': "",
    rf"(?<=\.\d\d)\d+{IN_TAG}": "",
}
# A page has its own size, white, style and fonts
OF_FILE = {
    f' (?:width|height)="[^"]*pt"{IN_TAG}': "",
    "<defs><style.*?</style></defs>": "",
    f"(fill|stroke): #ffffff{IN_TAG}": r"\1: none",
    f"font-family: 'DejaVu Sans Mono'[^;]*;{IN_TAG}": "font-family: var(--mono);",
    f"font-family: (?!var)[^;]*; ?{IN_TAG}": "",
    f"(?:{'|'.join(VARIABLES)}){IN_TAG}": lambda colour: f"var({VARIABLES[colour[0]]})",
}


@dataclass(frozen=True)
class Figure:
    """name: of the SVG file, and prefix of every id in it. cells: shown in the figure and in its
    data table."""

    name: str
    description: str
    file: str
    inline: str
    cells: Rows
    caption: str


def slug(*words: str) -> str:
    """Make a name for files and ids."""
    text = "-".join(words).lower().replace("→", "-to-")
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:NAME_LETTERS]


def finish(figure: plt.Figure, name: str, description: str, cells: Rows, caption: str) -> Figure:
    """Save the figure once, and return its SVG for a file (white) and for the page (the page's
    fonts and colours)."""
    buffer = io.StringIO()
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata=METADATA)
    plt.close(figure)
    head = (
        f' role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(show.bare(caption))}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>'
    )
    svg = _replace(buffer.getvalue(), EXCESS).replace(">", head, 1)
    svg = svg.replace(f'id="{POINTS}', f'id="{name}-{POINTS}')  # a page holds many figures
    lines = svg.replace("><", ">\n<")
    file = f'<?xml version="1.0" encoding="utf-8"?>\n{lines}\n'
    return Figure(name, description, file, f"{_replace(svg, OF_FILE)}\n", cells, caption)


def _replace(text: str, replacements: Mapping[str, Any]) -> str:
    """Replace each pattern in turn."""
    for pattern, replacement in replacements.items():
        text = re.sub(pattern, replacement, text)
    return text


# --- lines against size --------------------------------------------------------------------------

Panel = tuple[Figure, Table]  # a figure and its data
DASHED: Look = {"color": MUTED, "linestyle": (0, (4, 2)), "linewidth": 1.1}
BAR: Look = {"linewidth": 2.6, "alpha": 0.35}  # of a range
# Inches
WIDTH, PLOT = 3.67, 2.0  # a phone's 364 CSS pixels show 8-point text at 11; height of a plot
LEFT, RIGHT, TOP, BOTTOM = 0.62, 0.24, 0.06, 0.52  # around the plot
SIZE_LABEL_GAP = 0.52  # between labels of sizes
LABEL_POINTS = 8  # of a label
LABEL_POINTS_GAP = 11.5  # between the baselines of two labels
LABEL_LETTERS = 46  # per line of a label; longer labels are broken
LABEL: Look = {"color": INK, "fontsize": LABEL_POINTS, "va": "center_baseline"}
# Labels of ratios, the nearest to 1 first
RATIO_TICKS: tuple[float, ...] = (
    1,
    0.9,
    1.1,
    0.8,
    1.25,
    0.67,
    1.5,
    0.5,
    2,
    0.33,
    3,
    0.2,
    5,
    0.1,
    10,
)
RATIO_TICKS += (0.05, 20, 0.02, 50, 0.01, 100)


@dataclass(frozen=True)
class Curves:
    """The quantity of lines against size. value: of bytes and their seconds; limit: name of the
    dashed line."""

    axis: str
    value: Callable[[int, float], float]
    formatter: Callable[[], ticker.Formatter]
    limit: str = "memcpy"
    log: bool = False


TIME = Curves(
    "time per call",
    lambda nbytes, seconds: seconds,
    partial(ticker.EngFormatter, "s", sep=" "),
    log=True,
)
SPEED = Curves(
    "GB/s", lambda nbytes, seconds: nbytes / seconds / 1e9, ticker.ScalarFormatter, "measured limit"
)


def share_of(limit: Limit) -> Curves:
    """Curves of the share of memcpy's speed."""
    formatter = partial(ticker.PercentFormatter, 1.0, decimals=0, symbol=" %")
    return Curves(
        "memcpy's time ÷ the route's",
        lambda nbytes, seconds: limit.seconds[nbytes] / seconds,
        formatter,
    )


def label(cell: Row) -> str:
    """Name of a line: its route, or else its row parameter or method."""
    named = cell.down and show.parameter_text(cell.down, cell.parameters[cell.down])
    return cell.route or named or cell.method


def against_size(
    name: str, caption: str, cells: Rows, curves: Curves, limit: Mapping[int, float]
) -> Figure:
    """A line per route with range bars; the legend below has the order of the lines' ends.
    limit: seconds by size."""
    in_order = sorted(cells, key=lambda cell: (cell.order, cell.nbytes))
    points = DataFrame([_point(cell, curves) for cell in in_order])
    sizes = sorted({cell.nbytes for cell in cells})
    dashed = {nbytes: curves.value(nbytes, limit[nbytes]) for nbytes in sizes if nbytes in limit}
    with plt.style.context(STYLE):
        figure, ax = _plot([*points["line"].unique(), *([curves.limit] if dashed else [])])
        _set_sizes(ax, sizes)
        _set_values(ax, curves, [*points["low"], *points["high"], *dashed.values()])
        if dashed:
            ax.plot([*dashed], [*dashed.values()], label=curves.limit, **DASHED)
        _draw_lines(ax, points)
        _draw_legend(ax, curves.limit)
        return finish(figure, name, _described(cells, limit, curves.limit), cells, caption)


def _point(cell: Row, curves: Curves) -> dict:
    seconds = {"value": cell.seconds, "low": cell.low, "high": cell.high}
    values = {name: curves.value(cell.nbytes, each) for name, each in seconds.items()}
    return values | {"line": label(cell), "nbytes": cell.nbytes}


def _draw_lines(ax: Axes, points: DataFrame) -> None:
    colours = plt.rcParams["axes.prop_cycle"]()
    lines = zip(points.groupby("line", sort=False), colours, itertools.cycle(MARKERS))
    for index, ((name, line), colour, marker) in enumerate(lines):
        ax.vlines(line["nbytes"], line["low"], line["high"], **BAR, **colour)
        look: Look = {"marker": marker, "markeredgewidth": 0, **colour}
        ax.plot(line["nbytes"], line["value"], label=name, gid=f"{POINTS}{index}", **look)


def _described(cells: Rows, limit: Mapping[int, float], dashed: str) -> str:
    """A description of a figure, in addition to its caption."""
    several = len({*map(label, cells)})
    values = {"cells": cells, "several": several, "limit": limit, "dashed": dashed}
    return render_line("figures", "described", **values)


def _plot(labels: Sequence[str], height: float = PLOT) -> tuple:
    """A plot with room for these labels below it."""
    below = BOTTOM + sum(len(broken(each)) for each in labels) * LABEL_POINTS_GAP / 72
    total = height + TOP + below
    figure = plt.figure(figsize=(WIDTH, total))
    width = 1 - (LEFT + RIGHT) / WIDTH
    return figure, figure.add_axes((LEFT / WIDTH, below / total, width, height / total))


def _draw_legend(ax: Axes, plain: str) -> None:
    """Draw a legend below the plot, each name with a piece of its line, in the order of the lines'
    ends. All names but ``plain`` are code."""
    figure = figure_of(ax)
    row = LABEL_POINTS_GAP / 72 / figure.get_figheight()
    lines = {str(line.get_label()): line for line in ax.get_lines()}
    names = sorted(lines, key=lambda name: (-_end(lines[name]), name))
    above = sum(len(broken(name)) for name in names) - 0.3
    for name in names:
        figure.add_artist(_legend_line(lines[name], row * above))
        font: Look = {"family": SANS if name == plain else MONO, **LABEL}
        for text in broken(name):
            figure.text(0.1, row * above, text, **font)
            above -= 1


def figure_of(ax: Axes) -> plt.Figure:
    """The figure that a plot is on."""
    figure = ax.figure
    assert isinstance(figure, plt.Figure), "a plot is on no subfigure here"
    return figure


def _end(line: Line2D) -> float:
    """The value at the right end of a line."""
    return float(np.asarray(line.get_ydata())[-1])


def _legend_line(line: Line2D, height: float) -> Line2D:
    names = ("color", "linestyle", "marker", "linewidth")
    look = {name: getattr(line, f"get_{name}")() for name in names}
    look |= {"markevery": [1], "markersize": 3.6, "markeredgewidth": 0}
    return Line2D([0.01, 0.045, 0.08], [height] * 3, **look)


def broken(label: str) -> list[str]:
    """Break a label into lines that fit the figure."""
    return textwrap.wrap(label, LABEL_LETTERS, break_on_hyphens=False) or [label]


def _set_sizes(ax: Axes, sizes: Sequence[int]) -> None:
    """Set a logarithmic axis of bytes, with a tick at every measured size and labels where there
    is room."""
    figure = figure_of(ax)
    margin = (sizes[-1] / sizes[0]) ** 0.03
    ax.set_xscale("log", base=2)
    ax.set_xlim(sizes[0] / margin, sizes[-1] * margin)
    ax.set_xlabel("size of the source")
    width = ax.get_window_extent().width / figure.dpi
    label_ticks(ax.xaxis, sizes[::-1], SIZE_LABEL_GAP / width, show.size)
    ax.xaxis.set_minor_locator(ticker.FixedLocator(sizes))


def _set_values(ax: Axes, curves: Curves, values: Sequence[float]) -> None:
    """Set a linear axis from zero, or a logarithmic one with ticks at 1, 2, 5 if it spans less than
    two decades."""
    low, high = min(values), max(values)
    ax.set_ylabel(curves.axis)
    if curves.log:
        ax.set_yscale("log")
        subs = (1, 2, 5) if high < 100 * low else (1,)
        ax.yaxis.set_major_locator(ticker.LogLocator(subs=subs, numticks=12))
        ax.yaxis.set_minor_locator(ticker.FixedLocator([]))
        ax.set_ylim(low / 1.25, high * 1.25)
    else:
        ax.set_ylim(0, 1.05 * high)
    ax.yaxis.set_major_formatter(curves.formatter())


def label_ticks(
    axis: Axis, candidates: Sequence[float], gap: float, text: Callable[[float], str]
) -> None:
    """Label a logarithmic axis at the ``candidates``, in this order. Skip one that is closer to an
    earlier one than ``gap``, a share of the axis."""
    low, high = axis.get_view_interval()
    least = gap * math.log(high / low)
    ticks: list[float] = []
    for tick in candidates:
        if low <= tick <= high and all(abs(math.log(tick / other)) >= least for other in ticks):
            ticks.append(tick)
    axis.set_major_locator(ticker.FixedLocator(sorted(ticks)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_locator(ticker.FixedLocator([]))
    axis.set_minor_formatter(ticker.NullFormatter())


# --- the figures of a machine --------------------------------------------------------------------


def _has_sizes(cells: Rows) -> bool:
    """Whether there are two or more sizes."""
    return len({cell.nbytes for cell in cells}) > 1


def times_figure(
    name: str, title: str, cells: Rows, limit: Limit | None = None
) -> Iterator[Figure]:
    """Seconds against size, both logarithmic, if there are two or more sizes."""
    if _has_sizes(cells):
        caption = times_caption(title, cells)
        yield against_size(name, caption, cells, TIME, limit.seconds if limit else {})


def bandwidths(name: str, title: str, cells: Rows, limit: float | None) -> Iterator[Figure]:
    """Decimal GB/s against size, if there are two or more sizes; ``limit`` in bytes per second."""
    if _has_sizes(cells):
        best = max(cells, key=lambda cell: cell.nbytes / cell.seconds)
        values = {"title": title, "cell": best, "label": label(best)}
        caption = render_line("figures", "bandwidth", **values)
        seconds = {cell.nbytes: cell.nbytes / limit for cell in cells} if limit else {}
        yield against_size(name, caption, cells, SPEED, seconds)


def times_caption(title: str, cells: Rows, anywhere: bool = False) -> str:
    """A caption: the shortest and the longest time at the usual size. anywhere: the times hold at
    all sizes."""
    cells = [cell for cell in cells if cell.quiet] or cells
    nbytes = usual_size(cells, cells[0].down, sys.maxsize)
    at_size = (cell for cell in cells if cell.nbytes == nbytes)
    fastest, *slower = sorted(at_size, key=lambda cell: cell.seconds)
    ends = [fastest, *(cell for cell in slower[-1:] if cell.seconds > fastest.seconds)]
    return render_line(
        "figures",
        "times",
        title=title,
        ends=[(cell, label(cell)) for cell in ends],
        nbytes=nbytes,
        anywhere=anywhere,
    )


def times(cells: DataFrame, limit: Limit) -> Iterator[Figure]:
    """One panel per kind of memory and direction with two or more sizes; dots where the size does
    not matter."""
    plain = conversions(cells).sort_values(["order", "nbytes"])
    directions = conversions(cells)["direction"].unique()
    for memory, direction in itertools.product(MEMORIES, directions):
        shown = where(plain, direction=[direction], memory=memory)
        title = advice.need_title(Need(direction, memory, usual_dtype(plain)))
        name = slug("time", direction, memory)
        by_route = shown.groupby("route", sort=False)["seconds"]
        if memory != ALIAS or not by_route.agg(advice.is_flat).all():
            bound = limit if memory in (COPY, INTO) else None
            yield from times_figure(name, title, list_rows(shown), bound)
            continue
        largest = shown.drop_duplicates("route", keep="last")
        if len(largest) > 1:
            fastest = list_rows(largest.sort_values("seconds", kind="stable"))
            yield dots(name, times_caption(title, fastest, anywhere=True), fastest)


def dots(name: str, caption: str, cells: Rows) -> Figure:
    """A row per route, the fastest first: its name, and below it its time and range over
    processes."""
    with plt.style.context(STYLE):
        figure, ax = _plot([], height=(2 * len(cells) + 1) * LABEL_POINTS_GAP / 72)
        font: Look = {"transform": ax.get_yaxis_transform(), "family": MONO, **LABEL}
        dot: Look = {"color": BLUE, "markersize": 4.4, "markeredgewidth": 0}
        for row, cell in enumerate(cells):
            ax.hlines(row, cell.low, cell.high, color=BLUE, **BAR)
            ax.plot(cell.seconds, row, "o", gid=f"{POINTS}{row}", **dot)
            ax.text(0.01, row - 0.5, show.short(label(cell), LABEL_LETTERS), **font)
        ax.set_xlim(0, 1.08 * max(cell.high for cell in cells))
        ax.set_ylim(len(cells) - 0.5, -1)
        ax.set_yticks([])
        ax.xaxis.set_major_formatter(TIME.formatter())
        ax.xaxis.set_major_locator(ticker.MaxNLocator(5))
        ax.set_xlabel(TIME.axis)
        return finish(figure, name, _described(cells, {}, ""), cells, caption)


def efficiency(cells: DataFrame, limit: Limit) -> Iterator[Figure]:
    """One panel per direction: copies, also into a buffer, as a share of memcpy, at sizes where
    bytes dominate."""
    sizes = [*filter(limit.decides, limit.seconds)]
    copies = where(conversions(cells), memory=[COPY, INTO], nbytes=sizes)
    for direction, rows in copies.groupby("direction", sort=False):
        shown = list_rows(rows)
        if not _has_sizes(shown):
            continue
        usual = at_usual_size(rows, shown[0].down, sys.maxsize).itertuples()
        best = max(usual, key=lambda cell: limit.share(cell) or 0)
        share = limit.share(best)
        caption = render_line("figures", "efficiency", direction=direction, cell=best, share=share)
        name = slug("efficiency", str(direction))
        yield against_size(name, caption, shown, share_of(limit), limit.seconds)
