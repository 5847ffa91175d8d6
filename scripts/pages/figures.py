"""Figures: lines against size, dots, and a comparison's intervals. ``Figure`` holds the SVG for file and page."""

import hashlib
import io
import itertools
import math
import re
import sys
import textwrap
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from analysis.cells import Limit, Row, at_usual_size, conversions, usual_dtype, usual_size
from analysis.comparison import Comparison
from analysis.needs import Need
from analysis.verdicts import FASTER, INCONCLUSIVE, NO_CHANGE, SLOWER
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D

from benchmarks.contracts import ALIAS, COPY, INTO, MEMORIES

from . import advice, show
from . import comparison_words as words
from .show import render_line

STYLE = Path(__file__).with_name("report.mplstyle")
MARKERS = "os^Dv<>PX"  # with seven colours: 63 lines before a pair repeats
INK, MUTED, GRID = "#1b1f24", "#6e7781", "#d8dee4"
SANS, MONO = "sans-serif", "monospace"  # the style defines their fonts
DASHED: dict[str, Any] = {"color": MUTED, "linestyle": (0, (4, 2)), "linewidth": 1.1}
WIDTH, PLOT = (
    3.67,
    2.0,
)  # inches: a figure's width (a phone's 364 CSS pixels show 8-point text at 11), a plot's height
LEFT, RIGHT, TOP, BOTTOM = 0.62, 0.24, 0.06, 0.52  # inches around the plot
SIZES_APART = 0.52  # inches between labels of sizes
LABEL_POINTS, LABEL_GAP = 8, 11.5  # size of a label, and distance between the baselines of two
LABEL_LETTERS = 46  # per line of a label; longer labels are broken
NAME_LETTERS = 100  # of a file name; file systems allow 255
# CSS variables of the page, so that each colour can have a dark variant; the literal stays as fallback
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    "#0072b2": "--blue",
    "#d55e00": "--red",
}
VARIABLES |= {"#009e73": "--green", "#cc79a7": "--pink", "#e69f00": "--orange", "#56b4e9": "--sky"}
COLOUR = re.compile("|".join(VARIABLES))
FONT = re.compile(r"font-family: ('DejaVu Sans Mono')?[^;]*;? ?")
REFERENCE = re.compile(r"(url\(#|^#)([\w-]+)")  # to an id
LONG = re.compile(r"(-?\d+\.\d\d)\d+")  # more digits than anyone can see; an SVG is mostly numbers
DRAWN = ("d", "x", "y", "points", "transform")  # attributes that are numbers
SVG = "http://www.w3.org/2000/svg"
GROUP = f"{{{SVG}}}g"
POINTS = "points-"  # prefix of the ids that a page's script reads
xml.register_namespace("", SVG)
xml.register_namespace("xlink", "http://www.w3.org/1999/xlink")


@dataclass(frozen=True)
class Figure:
    """name: of the SVG file, and prefix of every id in it. cells: shown in the figure and in its data table."""

    name: str
    description: str
    file: str
    inline: str
    cells: tuple[Row, ...]
    caption: str


# --- lines against size -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curves:
    """The quantity of lines against size. value: of bytes and their seconds; limit: name of the dashed line."""

    axis: str
    value: Callable[[int, float], float]
    form: Callable[[], ticker.Formatter]
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
    form = partial(ticker.PercentFormatter, 1.0, decimals=0, symbol=" %")
    return Curves(
        "memcpy's time ÷ the route's", lambda nbytes, seconds: limit.seconds[nbytes] / seconds, form
    )


def label(cell: Row) -> str:
    """Name of a line: its route, or else its row parameter or method."""
    return cell.route or (
        show.parameter_text(cell.down, cell.parameters[cell.down]) if cell.down else cell.method
    )


def _points(cells: Sequence[Row], value: Callable[[int, float], float]) -> pd.DataFrame:
    """A row per cell, in the catalogue's order, sizes ascending: name of its line, value and range."""
    rows = [
        (
            label(cell),
            cell.nbytes,
            *(value(cell.nbytes, each) for each in (cell.seconds, cell.low, cell.high)),
        )
        for cell in sorted(cells, key=lambda cell: (cell.order, cell.nbytes))
    ]
    return pd.DataFrame(rows, columns=["line", "nbytes", "value", "low", "high"])


def against_size(
    name: str, caption: str, cells: Sequence[Row], shows: Curves, limit: Mapping[int, float]
) -> Figure:
    """A line per route with range bars; the legend below has the order of the lines' ends. limit: seconds by size."""
    points = _points(cells, shows.value)
    sizes = sorted(points["nbytes"].unique().tolist())
    top = [shows.value(nbytes, limit[nbytes]) for nbytes in sizes if nbytes in limit]
    with plt.style.context(STYLE):
        figure, ax = _panel([*points["line"].unique(), *([shows.limit] if top else [])])
        _sizes_below(ax, sizes)
        _values_beside(ax, shows, np.concatenate([points[["low", "high"]].to_numpy().ravel(), top]))
        ends: list[tuple[float, str, Line2D]] = []
        if top:
            (drawn,) = ax.plot([nbytes for nbytes in sizes if nbytes in limit], top, **DASHED)
            ends.append((top[-1], shows.limit, drawn))
        looks = zip(plt.rcParams["axes.prop_cycle"](), itertools.cycle(MARKERS))
        for index, ((line, each), (colour, marker)) in enumerate(
            zip(points.groupby("line", sort=False), looks)
        ):
            look: dict[str, Any] = {
                "marker": marker,
                "markeredgewidth": 0,
                "gid": f"{POINTS}{index}",
                **colour,
            }
            ax.vlines(
                each["nbytes"], each["low"], each["high"], linewidth=2.6, alpha=0.35, **colour
            )
            (drawn,) = ax.plot(each["nbytes"], each["value"], **look)
            ends.append((each["value"].iloc[-1], str(line), drawn))
        _legend(
            ax,
            [(line, drawn) for _, line, drawn in sorted(ends, key=lambda end: (-end[0], end[1]))],
            shows.limit,
        )
        return finish(figure, name, _described(cells, limit, shows.limit), cells, caption)


def _described(cells: Sequence[Row], limit: Mapping[int, float], dashed: str) -> str:
    """A description of a figure, in addition to its caption."""
    several = len({label(cell) for cell in cells})
    return render_line(
        "figures", "described", cells=cells, several=several, limit=limit, dashed=dashed
    )


def _panel(labels: Sequence[str], plot: float = PLOT) -> tuple[plt.Figure, Axes]:
    """A figure with room for these labels below the plot."""
    below = BOTTOM + sum(len(broken(each)) for each in labels) * LABEL_GAP / 72
    total = plot + TOP + below
    figure = plt.figure(figsize=(WIDTH, total))
    return figure, figure.add_axes(
        (LEFT / WIDTH, below / total, 1 - (LEFT + RIGHT) / WIDTH, plot / total)
    )


def _legend(ax: Axes, entries: Sequence[tuple[str, Line2D]], plain: str) -> None:
    """Draw a legend below the plot, each name with a piece of its line. All names but ``plain`` are code."""
    figure, row = ax.figure, LABEL_GAP / 72 / ax.figure.get_figheight()  # type: ignore[union-attr]
    above = sum(len(broken(line)) for line, _ in entries) - 0.3
    for line, drawn in entries:
        look = {
            name: getattr(drawn, f"get_{name}")()
            for name in ("color", "linestyle", "marker", "linewidth")
        }
        look |= {"markevery": [1], "markersize": 3.6, "markeredgewidth": 0}
        figure.add_artist(Line2D([0.01, 0.045, 0.08], [row * above] * 3, **look))
        for text in broken(line):
            family = SANS if line == plain else MONO
            figure.text(
                0.1,
                row * above,
                text,
                color=INK,
                fontsize=LABEL_POINTS,
                family=family,
                va="center_baseline",
            )
            above -= 1


def broken(label: str) -> list[str]:
    """Break a label into lines that fit the figure."""
    return textwrap.wrap(label, LABEL_LETTERS, break_on_hyphens=False) or [label]


def _sizes_below(ax: Axes, sizes: Sequence[int]) -> None:
    """Set a logarithmic axis of bytes, with a tick at every measured size and labels where there is room."""
    margin = (sizes[-1] / sizes[0]) ** 0.03
    ax.set_xscale("log", base=2)
    ax.set_xlim(sizes[0] / margin, sizes[-1] * margin)
    ax.set_xlabel("size of the source")
    ticks(
        ax.xaxis,
        sizes[::-1],
        SIZES_APART / (ax.get_window_extent().width / ax.figure.dpi),
        show.size,
    )
    ax.xaxis.set_minor_locator(ticker.FixedLocator(sizes))


def _values_beside(ax: Axes, shows: Curves, values: Any) -> None:
    """Set a linear axis from zero, or a logarithmic one with ticks at 1, 2, 5 if it spans less than two decades."""
    low, high = values.min(), values.max()
    ax.set_ylabel(shows.axis)
    if shows.log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(
            ticker.LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,), numticks=12)
        )
        ax.yaxis.set_minor_locator(ticker.FixedLocator([]))
    ax.set_ylim(*(low / 1.25, high * 1.25) if shows.log else (0, 1.05 * high))
    ax.yaxis.set_major_formatter(shows.form())


def ticks(axis: Axis, wanted: Sequence[float], room: float, form: Callable[[float], str]) -> None:
    """Label a logarithmic axis at the ticks ``wanted``, in this order. Skip a tick closer to an earlier one than
    ``room``, a share of the axis."""
    low, high = axis.get_view_interval()
    apart = room * math.log(high / low)
    chosen: list[float] = []
    for tick in wanted:
        if low <= tick <= high and all(abs(math.log(tick / other)) >= apart for other in chosen):
            chosen.append(tick)
    axis.set_major_locator(ticker.FixedLocator(sorted(chosen)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: form(value)))
    axis.set_minor_locator(ticker.FixedLocator([]))
    axis.set_minor_formatter(ticker.NullFormatter())


def _sized(cells: Sequence[Row]) -> bool:
    return len({cell.nbytes for cell in cells}) > 1


def times_figure(
    name: str, about: str, cells: Sequence[Row], limit: Limit | None = None
) -> Iterator[Figure]:
    """Seconds against size, both logarithmic, if there are two or more sizes."""
    if _sized(cells):
        yield against_size(
            name, times_caption(about, cells), cells, TIME, limit.seconds if limit else {}
        )


def bandwidths(
    name: str, about: str, cells: Sequence[Row], limit: float | None
) -> Iterator[Figure]:
    """Decimal GB/s against size, if there are two or more sizes; ``limit`` in bytes per second."""
    if _sized(cells):
        most = max(cells, key=lambda cell: cell.nbytes / cell.seconds)
        caption = render_line("figures", "bandwidth", about=about, cell=most, label=label(most))
        seconds = {cell.nbytes: cell.nbytes / limit for cell in cells} if limit else {}
        yield against_size(name, caption, cells, SPEED, seconds)


def times_caption(about: str, cells: Sequence[Row], anywhere: bool = False) -> str:
    """A caption: the shortest and the longest time at the usual size. anywhere: the times hold at all sizes."""
    cells = [cell for cell in cells if cell.quiet] or cells
    nbytes = usual_size(cells, cells[0].down, sys.maxsize)
    ends = sorted((cell for cell in cells if cell.nbytes == nbytes), key=lambda cell: cell.seconds)
    shown = [
        (cell, label(cell))
        for cell in ([ends[0], ends[-1]] if ends[-1].seconds > ends[0].seconds else ends[:1])
    ]
    return render_line(
        "figures", "found", about=about, ends=shown, nbytes=nbytes, anywhere=anywhere
    )


# --- the figures of a machine -----------------------------------------------------------------------------------------


def times(cells: pd.DataFrame, limit: Limit) -> Iterator[Figure]:
    """One panel per kind of memory and direction with two or more sizes; dots where the size does not matter."""
    plain = conversions(cells)
    for memory, direction in itertools.product(MEMORIES, plain["direction"].unique()):
        shown = plain[(plain["direction"] == direction) & (plain["memory"] == memory)].sort_values(
            ["order", "nbytes"]
        )
        about = advice.need_title(Need(direction, memory, usual_dtype(plain)))
        name, by_route = (
            slug("time", direction, memory),
            shown.groupby("route", sort=False)["seconds"],
        )
        if memory != ALIAS or not all(advice.is_flat(seconds) for _, seconds in by_route):
            yield from times_figure(
                name, about, [*shown.itertuples()], limit if memory in (COPY, INTO) else None
            )
        elif len(largest := shown.drop_duplicates("route", keep="last")) > 1:
            fastest = [*largest.sort_values("seconds", kind="stable").itertuples()]
            yield dots(name, times_caption(about, fastest, anywhere=True), fastest)


def dots(name: str, caption: str, cells: Sequence[Row]) -> Figure:
    """A row per route, the fastest first: its name, and below it its time and range over processes."""
    with plt.style.context(STYLE):
        figure, ax = _panel([], plot=(2 * len(cells) + 1) * LABEL_GAP / 72)
        look: dict[str, Any] = {
            "fontsize": LABEL_POINTS,
            "family": MONO,
            "va": "center_baseline",
            "color": INK,
        }
        for row, cell in enumerate(cells):
            ax.hlines(row, cell.low, cell.high, color="#0072b2", linewidth=2.6, alpha=0.35)
            ax.plot(
                cell.seconds,
                row,
                "o",
                color="#0072b2",
                markersize=4.4,
                markeredgewidth=0,
                gid=f"{POINTS}{row}",
            )
            text = show.short(label(cell), LABEL_LETTERS)
            ax.text(0.01, row - 0.5, text, transform=ax.get_yaxis_transform(), **look)
        ax.set_xlim(0, 1.08 * max(cell.high for cell in cells))
        ax.set_ylim(len(cells) - 0.5, -1)
        ax.set_yticks([])
        ax.xaxis.set_major_formatter(TIME.form())
        ax.xaxis.set_major_locator(ticker.MaxNLocator(5))
        ax.set_xlabel(TIME.axis)
        return finish(figure, name, _described(cells, {}, ""), cells, caption)


def efficiency(cells: pd.DataFrame, limit: Limit) -> Iterator[Figure]:
    """One panel per direction: copies, also into a buffer, as a share of memcpy, at sizes where bytes dominate."""
    plain = conversions(cells)
    plain = plain[
        plain["memory"].isin((COPY, INTO)) & plain["nbytes"].map(limit.decides).astype(bool)
    ]
    for direction, own in plain.groupby("direction", sort=False):
        shown = [*own.itertuples()]
        if _sized(shown):
            usual = at_usual_size(own, shown[0].down, sys.maxsize).itertuples()
            best = max(usual, key=lambda cell: limit.share(cell) or 0)
            caption = render_line(
                "figures", "efficiency", direction=direction, cell=best, share=limit.share(best)
            )
            yield against_size(
                slug("efficiency", str(direction)), caption, shown, share_of(limit), limit.seconds
            )


# --- a comparison as a forest plot ------------------------------------------------------------------------------------


MOST_ROWS = 40  # of a readable forest plot
ROW, PLOT_OF_RATIOS = 0.19, 2.8  # inches
LETTER = 0.061  # inches per letter of a label
LETTERS = 120  # of a label at most
MARKS = {
    SLOWER: ("s", "#d55e00"),
    FASTER: ("o", "#009e73"),
    INCONCLUSIVE: ("D", MUTED),
    NO_CHANGE: ("|", MUTED),
}
# labels of ratios, the nearest to 1 first
RATIOS = (
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
    0.05,
    20,
    0.02,
    50,
    0.01,
    100,
)


def forest_cells(comparison: Comparison) -> list[dict[str, Any]]:
    """The cells of the plot, from slowest to fastest. Changes are chosen first, then inconclusive ones, then others."""
    cells = comparison.cells[np.isfinite(comparison.cells["low95"].astype(float))]
    group = cells["verdict"].map({SLOWER: 0, FASTER: 0, INCONCLUSIVE: 1, NO_CHANGE: 2})
    ranked = cells.assign(group=group, size=-np.log(cells["ratio"].astype(float)).abs()).dropna(
        subset="group"
    )
    rows = ranked.sort_values(["group", "size"], kind="stable")[cells.columns].head(MOST_ROWS)
    return rows.sort_values("ratio", ascending=False, kind="stable").to_dict("records")


def forest(comparison: Comparison) -> Figure | None:
    """Ratio new / base with its 95 % interval, a row per cell, the first at the top; None if no cell has one."""
    rows = forest_cells(comparison)
    if not rows:
        return None
    labels = [show.short(show.bare(words.cell_text(row)), LETTERS) for row in rows]
    verdicts = [words.change_text(row) for row in rows]
    left, right = LETTER * max(map(len, labels)) + 0.32, LETTER * max(map(len, verdicts)) + 0.25
    width, height = left + PLOT_OF_RATIOS + right, ROW * (len(rows) + 1)
    equivalence, total = comparison.settings.equivalence, height + 0.55
    with plt.style.context(str(STYLE)):
        figure = plt.figure(figsize=(width, total))
        ax = figure.add_axes((left / width, 0.45 / total, PLOT_OF_RATIOS / width, height / total))
        ax.axvspan(1 / (1 + equivalence), 1 + equivalence, color=GRID, alpha=0.6, linewidth=0)
        ax.axvline(1.0, color=MUTED, linewidth=0.9)
        look: dict[str, Any] = {
            "fontsize": 7,
            "va": "center_baseline",
            "transform": ax.get_yaxis_transform(),
        }
        for place, (row, text, verdict) in enumerate(zip(rows, labels, verdicts)):
            marker, colour = MARKS[row["verdict"]]
            face = "white" if row["verdict"] == INCONCLUSIVE else colour
            ax.hlines(place, row["low95"], row["high95"], color=colour, linewidth=1.4)
            ax.plot(
                row["ratio"],
                place,
                marker=marker,
                color=colour,
                markersize=4.6,
                markerfacecolor=face,
            )
            ax.text(-0.03, place, text, ha="right", color=INK, family=MONO, **look)
            ax.text(1.03, place, verdict, ha="left", color=INK, **look)
        ax.set_xscale("log")
        ends, ratios = (
            [row[name] for row in rows for name in ("low95", "high95")],
            [row["ratio"] for row in rows],
        )
        seen = np.clip(
            ends, min(ratios) / 1.5, max(ratios) * 1.5
        )  # an interval may be far wider than any effect
        ax.set_xlim(
            min(*seen, 1 / (1 + 2 * equivalence)) / 1.02, max(*seen, 1 + 2 * equivalence) * 1.02
        )
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ticks(ax.xaxis, RATIOS, 0.4 / PLOT_OF_RATIOS, lambda ratio: f"{words.number(ratio)}×")
        ax.set_yticks([])
        ax.grid(axis="y", visible=False)
        ax.set_xlabel(
            f"time of {comparison.new['toolchain']} / time of {comparison.base['toolchain']}"
        )
        summary = words.summarise(comparison)
        description = render_line(
            "figures",
            "forest_described",
            headline=summary.headline,
            timed=summary.timed,
            shown=len(rows),
            cells=len(comparison.cells),
        )
        caption = render_line(
            "figures", "forest", title=summary.title, equivalence=words.percentage(equivalence)
        )
        return finish(figure, "comparison", description, (), caption)


# --- SVG --------------------------------------------------------------------------------------------------------------


def slug(*words: str) -> str:
    """Make a name for files and ids."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower().replace("→", "-to-")).strip("-")[
        :NAME_LETTERS
    ]


def finish(
    figure: plt.Figure, name: str, description: str, cells: Sequence[Row], caption: str
) -> Figure:
    """Save the figure once, and return its SVG for a file (white) and for the page (the page's fonts and colours)."""
    buffer = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    plt.close(figure)
    root = xml.fromstring(buffer.getvalue())
    _lean(root, name)
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-title {name}-desc"}
    for place, (tag, text) in enumerate((("title", show.bare(caption)), ("desc", description))):
        about = xml.Element(f"{{{SVG}}}{tag}", id=f"{name}-{tag}")
        about.text = text
        root.insert(place, about)
    lines = xml.tostring(root, encoding="unicode").replace("><", ">\n<")
    file = f'<?xml version="1.0" encoding="utf-8"?>\n{lines}\n'
    del root.attrib["width"], root.attrib["height"]
    for parent in list(root.iter()):
        for style in parent.findall(f"{{{SVG}}}style"):
            parent.remove(style)
        for key, value in parent.attrib.items():
            value = re.sub(r"(fill|stroke): #ffffff", r"\1: none", value)
            value = COLOUR.sub(lambda colour: f"var({VARIABLES[colour[0]]}, {colour[0]})", value)
            parent.set(
                key, FONT.sub(lambda font: "font-family: var(--mono); " if font[1] else "", value)
            )
    return Figure(
        name,
        description,
        file,
        f"{xml.tostring(root, encoding='unicode')}\n",
        tuple(cells),
        caption,
    )


def _lean(root: xml.Element, name: str) -> None:
    """Remove the invisible half of matplotlib's output: unused ids, groups and rotations without effect, styles that a
    whole group repeats, excess digits, white space. As a page holds many figures, an id begins with the figure's name
    or a short hash of it."""
    values = [
        value for element in root.iter() for key, value in element.attrib.items() if key != "id"
    ]
    begin = hashlib.sha256(name.encode()).hexdigest()[:6]
    named = sorted({identifier for value in values for _, identifier in REFERENCE.findall(value)})
    short = {identifier: f"f{begin}-{place}" for place, identifier in enumerate(named)}
    for element in reversed(list(root.iter())):
        element.text, element.tail = (
            text and text.strip() for text in (element.text, element.tail)
        )
        identifier = element.attrib.pop("id", "")
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        for key, value in element.attrib.items():
            value = REFERENCE.sub(lambda reference: reference[1] + short[reference[2]], value)
            element.set(key, LONG.sub(r"\1", value) if key in DRAWN else value)
        if identifier in short or identifier.startswith(POINTS):
            element.set("id", short.get(identifier) or f"{name}-{identifier}")
        children: list[xml.Element] = []
        for child in element:
            if child.tag != GROUP or "id" in child.attrib or (len(child) and child.attrib):
                children.append(child)
            else:
                children += child
        element[:] = children
        if (
            element.tag == GROUP
            and len(element) > 1
            and all(child.tag != GROUP for child in element)
        ):
            for attribute in ("style", "clip-path"):
                (shared, *others) = {child.get(attribute) for child in element}
                if shared and not others and attribute not in element.attrib:
                    element.set(attribute, shared)
                    for child in element:
                        del child.attrib[attribute]
