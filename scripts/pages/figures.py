"""Figures as SVG, for a file and for a page, in one style (report.mplstyle). Those of a machine:
lines against size, and dots where the size does not matter."""

import io
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import matplotlib.pyplot as plt
from analysis.cells import Limit, Row, usual_size
from analysis.ranking import BEST, GOOD, OTHER, TIE
from analysis.results import where
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from pandas import DataFrame, Series
from store.frames import rows_of

from benchmarks.contracts import ALIAS

from . import advice, show
from .show import render_line
from .tables import Table, in_row_order

Rows = Sequence[Row]
STYLE = Path(__file__).with_name("report.mplstyle")
MARKERS = "os^Dv<>PX"
INK, MUTED, GRID = "#1b1f24", "#6e7781", "#d8dee4"
BLUE, RED, GREEN = "#0072b2", "#d55e00", "#009e73"
SANS, MONO = "sans-serif", "monospace"  # the style defines their fonts
POINTS = "points-"  # prefix of the ids that a page's script reads
NAME_LETTERS = 100  # of a file name; file systems allow 255
PIXELS_PER_POINT = 4 / 3
# CSS variables of the page, so that each colour can have a dark variant
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    BLUE: "--blue",
    RED: "--red",
    GREEN: "--green",
    "#cc79a7": "--pink",
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
    rf"(?<=\.\d\d)\d+{IN_TAG}|(?<=\d\d\.\d)\d+{IN_TAG}": "",
}
# A page has its own size, white, style and fonts
OF_FILE = {
    f' (?:width|height)="[^"]*pt"{IN_TAG}': "",
    "<defs><style.*?</style></defs>": "",
    rf' xmlns:xlink="[^"]*"{IN_TAG}| version="1.1"{IN_TAG}|xlink:(?=href=)|<g/>': "",
    f"(fill|stroke): #ffffff{IN_TAG}": r"\1: none",
    f"font-family: 'DejaVu Sans Mono'[^;]*;{IN_TAG}": "font-family: var(--mono);",
    f"font-family: (?!var)[^;]*; ?{IN_TAG}": "",
    f"(?:{'|'.join(VARIABLES)}){IN_TAG}": lambda colour: f"var({VARIABLES[colour[0]]})",
}


@dataclass(frozen=True)
class Figure:
    """name: of the SVG file, and prefix of every id in it. svg: without title and source. cells:
    shown in the figure, in its data table or in its note."""

    name: str
    description: str
    svg: str
    cells: Rows
    caption: str
    note: str = ""

    @property
    def inline(self) -> str:
        """The drawing for a page, which has the page's fonts and colours."""
        return f"{_replace(self.svg, OF_FILE)}\n"

    @property
    def size(self) -> list[float]:
        """Width and height in pixels."""
        points = re.findall(r'(?:width|height)="([\d.]+)pt"', self.svg)[:2]
        return [float(length) * PIXELS_PER_POINT for length in points]


def slug(*words: str) -> str:
    """Make a name for files and ids."""
    text = "-".join(words).lower().replace("→", "-to-")
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:NAME_LETTERS]


def finish(
    figure: plt.Figure, name: str, description: str, cells: Rows, caption: str, note: str = ""
) -> Figure:
    """Save the figure as SVG."""
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
    return Figure(name, description, svg, cells, caption, note)


def _replace(text: str, replacements: Mapping[str, Any]) -> str:
    """Replace each pattern in turn."""
    for pattern, replacement in replacements.items():
        text = re.sub(pattern, replacement, text)
    return text


# --- lines against size --------------------------------------------------------------------------

Panel = tuple[Figure, Table]  # a figure and its data
MAX_LINES = 5  # as many as colours: routes that are seldom fast are named below the figure
Y_TITLE = "time ÷ time of the fastest safe route"
LEAST_RATIO = 0.55  # of the axis: a limit that is far below leaves the plot
# Inches
WIDTH, PLOT = 3.67, 1.9  # a phone's 364 CSS pixels show 8-point text at 11; height of a plot
LEFT, RIGHT, TOP, BOTTOM = 0.38, 1.42, 0.26, 0.56  # around the plot; labels are right of it
VALUE_LABEL_GAP, SIZE_LABEL_GAP = 0.2, 0.27  # between labels of an axis
LABEL_POINTS = 7.5  # of a label
LABEL_POINTS_GAP = 10.0  # between the baselines of two lines of a label
LABEL_LETTERS = 18  # per line of a label; longer labels are broken
LABEL: Look = {"color": INK, "fontsize": LABEL_POINTS}
LEADER: Look = {"arrowstyle": "-", "linewidth": 0.9, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)}
DASHED: Look = {"color": MUTED, "linestyle": (0, (4, 2)), "linewidth": 1.1}
RULE: Look = {"color": MUTED, "linestyle": (0, (1, 2)), "linewidth": 1.0}  # the advice changes
RING: Look = {"marker": "o", "markersize": 6.5, "markerfacecolor": "none", "linestyle": ""}
RING |= {"markeredgewidth": 0.8, "markeredgecolor": INK}
BAND: Look = {"alpha": 0.18, "linewidth": 0}  # of a range
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


def label(cell: Row) -> str:
    """Name of a line: its route, or else its row parameter or method."""
    named = cell.down and show.parameter_text(cell.down, cell.parameters[cell.down])
    return cell.route or named or cell.method


def times_figure(
    name: str, title: str, cells: DataFrame, limit: Mapping[int, float] | None = None
) -> Iterator[Figure]:
    """Times over that of the fastest safe route against size, if there are two or more sizes. If
    the cells are ranked, the routes to take are marked. limit: seconds by size."""
    if cells["nbytes"].nunique() < 2:
        return
    safe = cells["safe"] | ~cells["safe"].any()
    kinds = cells["kind"] if "kind" in cells else safe.map({True: TIE, False: OTHER})
    lines = [*map(label, rows_of(cells))]
    cells = cells.assign(kind=kinds, line=lines).sort_values("nbytes", kind="stable")
    fastest = where(cells, kind=GOOD).groupby("nbytes")["seconds"].min()
    ratios = cells[["seconds", "low", "high"]].div(cells["nbytes"].map(fastest), axis=0)
    points = cells[["line", "nbytes", "kind", "contract"]].join(ratios)
    names = _contenders(where(points, kind=GOOD))
    others = points[~points["line"].isin(names)].groupby("line", sort=False)["seconds"].max()
    takes = [*advice.recommendations(cells)] if "part" in cells else []
    rows = rows_of(cells)
    limit = limit or {}
    bounds = Series(limit, dtype=float).div(fastest).dropna()
    with plt.style.context(STYLE):
        yield finish(
            _draw(points, names, bounds, in_row_order(rows)),
            name,
            render_line("figures", "described", cells=rows, several=len({*lines}), limit=limit),
            rows,
            render_line("figures", "finding", title=title, takes=takes)
            if takes
            else times_caption(title, rows),
            render_line("figures", "others", ratios=others.to_dict()),
        )


def _contenders(good: DataFrame) -> list[str]:
    """The lines to draw: routes to take first, then those nearest to the fastest."""
    by_element = good["contract"].map(attrgetter("per_element")).astype(bool)
    good = good if by_element.all() else good[~by_element]
    nearest = good.groupby("line")["seconds"].mean().sort_values(kind="stable").index
    return [*dict.fromkeys((*where(good, kind=BEST)["line"], *nearest))][:MAX_LINES]


def _draw(
    points: DataFrame, names: Sequence[str], bounds: "Series[float]", rows: Rows
) -> plt.Figure:
    """Draw a line per name with a band of its range, labelled at its end, and a dashed one of the
    limit. rows: in the order of the data table."""
    sizes = sorted({*points["nbytes"]})
    bound = "limit of the link" if rows[0].device else "memcpy, 1 thread"
    labels = [*names, *([bound] if len(bounds) else [])]
    letters = sum(len(broken(each)) for each in labels)
    figure, ax = _plot(max(PLOT, letters * LABEL_POINTS_GAP / 72))
    points = points.assign(place=points["nbytes"].map(sizes.index))
    order = [*dict.fromkeys(map(label, rows))]
    ends = [*_draw_lines(ax, points, names, order)]
    if len(bounds):
        ax.plot([*map(sizes.index, bounds.index)], bounds, **DASHED)
        ends.append((sizes.index(bounds.index[-1]), bounds.iloc[-1], bound, MUTED))
    best = where(points, kind=BEST)
    ax.plot(best["place"], best["seconds"], **RING)
    for place in best["place"][best["line"] != best["line"].shift()][1:]:
        ax.axvline(place - 0.5, **RULE)
    _set_axes(ax, sizes)
    _label_ends(ax, ends, bound)
    return figure


End = tuple[int, float, str, str]  # of a line: place, value, name and colour


def _draw_lines(
    ax: Axes, points: DataFrame, names: Sequence[str], order: Sequence[str]
) -> Iterator[End]:
    """Draw the lines of these names. order: of names, as rows of the data table."""
    colours = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    for name, colour, marker in zip(names, colours, MARKERS):
        line = where(points, line=name)
        ax.fill_between(line["place"], line["low"], line["high"], color=colour, **BAND)
        look: Look = {"color": colour, "marker": marker, "markeredgewidth": 0}
        ax.plot(line["place"], line["seconds"], gid=f"{POINTS}{order.index(name)}", **look)
        yield line["place"].iloc[-1], line["seconds"].iloc[-1], name, colour


def _label_ends(ax: Axes, ends: Sequence[End], plain: str) -> None:
    """Label lines at their right ends, from the lowest up, moved apart where they would overlap.
    All names but ``plain`` are code."""
    height = ax.get_window_extent().height / figure_of(ax).dpi * 72
    halves = {name: len(broken(name)) * LABEL_POINTS_GAP / height / 2 for _, _, name, _ in ends}
    to_axes = ax.transData + ax.transAxes.inverted()
    above, floor = 2 * sum(halves.values()), 0.0
    for place, value, name, colour in sorted(ends, key=lambda end: end[1]):
        above -= 2 * halves[name]
        value = max(value, ax.get_ylim()[0])
        middle = min(to_axes.transform((place, value))[1], 1 - above - halves[name])
        middle = max(middle, floor + halves[name])
        floor = middle + halves[name]
        ax.annotate(
            "\n".join(broken(name)),
            (place, value),
            (1.08, middle),
            textcoords="axes fraction",
            va="center",
            annotation_clip=False,
            family=SANS if name == plain else MONO,
            arrowprops=LEADER | {"color": colour},
            **LABEL,
        )


def _plot(height: float) -> tuple:
    """A plot with room for labels right of it."""
    total = height + TOP + BOTTOM
    figure = plt.figure(figsize=(WIDTH, total))
    width = 1 - (LEFT + RIGHT) / WIDTH
    return figure, figure.add_axes((LEFT / WIDTH, BOTTOM / total, width, height / total))


def figure_of(ax: Axes) -> plt.Figure:
    """The figure that a plot is on."""
    figure = ax.figure
    assert isinstance(figure, plt.Figure), "a plot is on no subfigure here"
    return figure


def broken(label: str) -> list[str]:
    """Break a label into lines that fit beside the plot, where an expression has a joint."""
    lines = [""]
    for piece in re.split(r"(?=[(\[])|(?<=\w{4})(?=\.)|(?<=\))(?=\.)|(?<= )", label):
        if len(lines[-1] + piece.rstrip()) > LABEL_LETTERS:
            lines.append("")
        lines[-1] += piece
    return [line.strip() for line in lines if line.strip()]


def _set_axes(ax: Axes, sizes: Sequence[int]) -> None:
    """Give each measured size a place, with labels where there is room, and set a logarithmic axis
    of ratios."""
    box = ax.get_window_extent()
    dpi = figure_of(ax).dpi
    step = math.ceil(SIZE_LABEL_GAP * len(sizes) * dpi / box.width)
    names = [show.size(nbytes).replace(" ", "\n") for nbytes in sizes[::step]]
    ax.set_xlim(-0.5, len(sizes) - 0.5)
    ax.set_xticks(range(0, len(sizes), step), names, fontsize=LABEL_POINTS)
    ax.set_xticks(range(len(sizes)), minor=True)
    ax.set_xlabel("size of the source")
    ax.set_title(Y_TITLE, loc="left", color=MUTED, fontsize=LABEL_POINTS, pad=5)
    ax.set_yscale("log", base=2)
    ax.set_ylim(max(LEAST_RATIO, ax.get_ylim()[0]))
    label_ticks(ax.yaxis, RATIO_TICKS, VALUE_LABEL_GAP * dpi / box.height, "{:g}×".format)


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


def times_caption(title: str, cells: Rows) -> str:
    """A caption: the shortest and the longest time at the usual size."""
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
    )


def times(
    prefix: str, answers: Sequence[DataFrame], threads: int, limit: Limit
) -> Iterator[Figure]:
    """A figure per answer with two or more sizes. prefix: of the names."""
    for rows in answers:
        need = rows["need"].iloc[0]
        decided = filter(limit.decides, limit.seconds if need.memory != ALIAS else ())
        yield from times_figure(
            slug(prefix, need.direction, need.memory),
            f"{advice.answer_title(rows)}, {show.threads(threads)}",
            rows,
            {nbytes: limit.seconds[nbytes] for nbytes in decided},
        )
