"""The page's figures. Functions that draw take the axes they are given; ``Figure`` holds the SVG for file and page."""

import hashlib
import io
import math
import os
import re
import textwrap
import xml.etree.ElementTree as xml
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["MPLBACKEND"] = "svg"  # draws into files, needs no display, whatever it named before
import matplotlib.pyplot as plt
from analysis.cells import Cell, Limit, conversions, method
from analysis.comparison import Comparison
from analysis.verdicts import FASTER, INCONCLUSIVE, NO_CHANGE, SLOWER, of_verdict
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    EngFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    PercentFormatter,
)

from benchmarks.contracts import ALIAS, COPY, INTO, MEMORIES

from . import advice, show
from . import comparison_words as words
from .show import code

STYLE = Path(__file__).with_name("report.mplstyle")
MARKERS = "os^Dv<>PX"  # beside seven colours: 63 lines before a pair repeats
INK, MUTED, GRID = "#1b1f24", "#6e7781", "#d8dee4"
MONO = "DejaVu Sans Mono"
MEMCPY_LABEL, LIMIT_LABEL = "memcpy", "measured limit"
WIDTH, PLOT = 3.67, 2.0  # inches: a telephone's 364 CSS pixels show its text of 8 points at 11 pixels; a plot's height
LEFT, RIGHT, TOP, BOTTOM = 0.62, 0.24, 0.06, 0.52  # inches around the plot
LABEL_POINTS, LABEL_GAP = 8, 11.5  # size of a label, and distance between the baselines of two
LABEL_LETTERS = 46  # a line of a label takes; what is longer is broken
NAME_LETTERS = 100  # of a file, of which a file system takes 255
# As the page shows them, so that it can give each a dark variant; the literal stays as fallback
VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--line", "#0072b2": "--blue", "#d55e00": "--red"}
VARIABLES |= {"#009e73": "--green", "#cc79a7": "--pink", "#e69f00": "--orange", "#56b4e9": "--sky"}
COLOUR = re.compile("|".join(VARIABLES))
FALLBACKS = {"'DejaVu Sans Mono'": "ui-monospace, Menlo, Consolas, monospace"}
FALLBACKS |= {"'DejaVu Sans'": "system-ui, 'Segoe UI', Roboto, sans-serif"}
FONT = re.compile("|".join(FALLBACKS))
REFERENCE = re.compile(r"#([\w.-]+)")  # to an id
FAMILY = re.compile(r"font-family: [^;]*;? ?")
SVG = "http://www.w3.org/2000/svg"
GROUP = f"{{{SVG}}}g"
PANEL, POINTS = "panel-", "points-"  # begin the ids of what a page links to, or reads
LONG = re.compile(r"(-?\d+\.\d\d)\d+")  # a number finer than any eye; an SVG is mostly numbers
DRAWN = ("d", "x", "y", "points", "transform")  # attributes that are numbers
xml.register_namespace("", SVG)
xml.register_namespace("xlink", "http://www.w3.org/1999/xlink")

Points = Sequence[tuple[float, float, float, float]]  # x, y, low, high


@dataclass(frozen=True)
class Figure:
    """name: of the SVG file, and prefix of every id in it. cells: what it shows, for its data table."""

    name: str
    title: str
    description: str
    file: str
    inline: str
    cells: tuple[Cell, ...]
    caption: str
    limited: bool = False  # memcpy is drawn, too


def lines(ax: Axes, series: Mapping[str, Points], limit: Points = (), name: str = MEMCPY_LABEL) -> None:
    """A line per route with range bars, named below in the order of their ends; ``limit`` (``name``) is dashed."""
    ends: list[tuple[float, str, Line2D]] = []
    if limit:
        (drawn,) = ax.plot(
            [p[0] for p in limit], [p[1] for p in limit], color=MUTED, linestyle=(0, (4, 2)), linewidth=1.1
        )
        ends.append((limit[-1][1], name, drawn))
    colours = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    for index, (label, points) in enumerate(series.items()):
        colour, marker = f"#{colours[index % len(colours)].lstrip('#')}", MARKERS[index % len(MARKERS)]
        x, y, low, high = zip(*points)
        ax.vlines(x, low, high, color=colour, linewidth=2.6, alpha=0.35)
        (drawn,) = ax.plot(x, y, color=colour, marker=marker, markeredgewidth=0, gid=f"{POINTS}{index}")
        ends.append((y[-1], label, drawn))
    _legend(ax, [(label, drawn) for _, label, drawn in sorted(ends, key=lambda end: (-end[0], end[1]))])


def _legend(ax: Axes, entries: Sequence[tuple[str, Line2D]]) -> None:
    """Names of lines below the plot, each with a piece of its line."""
    figure, row = ax.figure, LABEL_GAP / 72 / ax.figure.get_figheight()  # type: ignore[union-attr]
    above = sum(len(broken(label)) for label, _ in entries) - 0.3
    for label, drawn in entries:
        look = {name: getattr(drawn, f"get_{name}")() for name in ("color", "linestyle", "marker", "linewidth")}
        place = row * above
        figure.add_artist(
            Line2D([0.01, 0.045, 0.08], [place] * 3, markevery=[1], markersize=3.6, markeredgewidth=0, **look)
        )
        for text in broken(label):
            family = "DejaVu Sans" if label in (MEMCPY_LABEL, LIMIT_LABEL) else MONO
            figure.text(0.1, row * above, text, color=INK, fontsize=LABEL_POINTS, family=family, va="center_baseline")
            above -= 1


def broken(label: str) -> list[str]:
    """A label in lines that fit the figure."""
    return textwrap.wrap(label, LABEL_LETTERS, break_on_hyphens=False) or [label]


def dots(ax: Axes, cells: Sequence[Cell]) -> None:
    """A route per row with its name above, the fastest first: its time, and the range over processes."""
    for place, cell in enumerate(cells):
        ax.hlines(place, cell.low, cell.high, color="#0072b2", linewidth=2.6, alpha=0.35)
        ax.plot(cell.seconds, place, "o", color="#0072b2", markersize=4.4, markeredgewidth=0, gid=f"{POINTS}{place}")
        look: dict[str, Any] = {"fontsize": LABEL_POINTS, "family": MONO, "va": "center_baseline", "color": INK}
        ax.text(0.01, place - 0.5, show.short(label(cell), LABEL_LETTERS), transform=ax.get_yaxis_transform(), **look)
    ax.set_xlim(0, 1.08 * max(cell.high for cell in cells))
    ax.set_ylim(len(cells) - 0.5, -1)
    ax.set_yticks([])
    ax.xaxis.set_major_formatter(EngFormatter("s", sep=" "))
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel("time per call")


def size_axis(ax: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis of bytes with a tick at every measured size, labelled where there is room."""
    ax.set_xscale("log", base=2)
    low, high = min(sizes), max(sizes)
    margin = (high / low) ** 0.03
    ax.set_xlim(low / margin, high * margin)
    ax.set_xlabel("size of the source")
    apart = 0.55 / (ax.get_window_extent().width / ax.figure.dpi) * math.log2(high / low)  # inches, in doublings
    labelled: list[int] = []
    for nbytes in sorted(sizes, reverse=True):
        if not labelled or math.log2(labelled[-1] / nbytes) >= apart:
            labelled.append(nbytes)
    ax.xaxis.set_major_locator(FixedLocator(labelled))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: show.size(x)))
    ax.xaxis.set_minor_locator(FixedLocator(sorted(set(sizes) - set(labelled))))
    ax.xaxis.set_minor_formatter(NullFormatter())


def seconds_axis(ax: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis of seconds; 1, 2, 5 where it spans less than two decades."""
    ax.set_yscale("log")
    ax.set_ylabel("time per call")
    low, high = min(values), max(values)
    ax.set_ylim(low / 1.25, high * 1.25)
    decades = math.log10(high / low)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2 else (1,), numticks=12))
    ax.yaxis.set_major_formatter(EngFormatter("s", sep=" "))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_minor_locator(FixedLocator([]))


def ratio_axis(
    axis: Axis, limits: tuple[float, float], room: float, ticks: Sequence[float], form: Callable[[float], str]
) -> None:
    """Ticks of a logarithmic axis of ratios: 1, then of ``ticks`` those nearest to it that have ``room``.

    room is a share of the axis's length, form writes a label's number.
    """
    low, high = limits
    apart = room * math.log(high / low)
    chosen = [1.0]
    for tick in sorted((tick for tick in ticks if low <= tick <= high), key=lambda tick: abs(math.log(tick))):
        if all(abs(math.log(tick / other)) >= apart for other in chosen):
            chosen.append(tick)
    axis.set_major_locator(FixedLocator(sorted(chosen)))
    axis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{form(ratio)}×"))
    axis.set_minor_locator(FixedLocator([]))
    axis.set_minor_formatter(NullFormatter())


def label(cell: Cell) -> str:
    """What a line is called: by its route, or what else tells it from the others."""
    return cell.route or (show.valued(cell.row, cell.parameters[cell.row]) if cell.row else method(cell))


def _series(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Cells of each route, routes in the catalogue's order, sizes ascending; one series of what has no routes."""
    series: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.order, cell.nbytes)):
        series.setdefault(label(cell), []).append(cell)
    return series


def _points(cells: Sequence[Cell], point: Callable[[Cell], tuple[float, float, float, float]]) -> dict[str, Points]:
    return {route: [point(cell) for cell in by_size] for route, by_size in _series(cells).items()}


def draw_times(ax: Axes, cells: Sequence[Cell], limit: Limit | None = None) -> None:
    """Seconds against bytes, both logarithmic."""
    sizes = sorted({cell.nbytes for cell in cells})
    floor = [(n, s, s, s) for n, s in sorted(limit.seconds.items()) if n in sizes] if limit else []
    size_axis(ax, sizes)
    seconds_axis(ax, [s for cell in cells for s in (cell.low, cell.high)] + [point[1] for point in floor])
    lines(ax, _points(cells, lambda cell: (cell.nbytes, cell.seconds, cell.low, cell.high)), floor)


def draw_efficiency(ax: Axes, cells: Sequence[Cell], limit: Limit) -> None:
    """Share of memcpy's bandwidth against bytes, where the bytes decide the time."""
    size_axis(ax, sorted({cell.nbytes for cell in cells}))

    def point(cell: Cell) -> tuple[float, float, float, float]:
        top = limit.seconds[cell.nbytes]
        return cell.nbytes, top / cell.seconds, top / cell.high, top / cell.low

    ax.set_ylim(0, max(1.05, *(point(cell)[3] for cell in cells)))
    ax.set_ylabel("memcpy's time ÷ the route's")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    ax.axhline(1.0, color=MUTED, linestyle=(0, (4, 2)), linewidth=1.1)
    lines(ax, _points(cells, point))


def draw_bandwidth(ax: Axes, cells: Sequence[Cell], limit: float | None = None) -> None:
    """Decimal GB/s against bytes; ``limit`` in bytes a second."""
    sizes = sorted({cell.nbytes for cell in cells})
    size_axis(ax, sizes)

    def point(cell: Cell) -> tuple[float, float, float, float]:
        speed, low, high = (cell.nbytes / seconds / 1e9 for seconds in (cell.seconds, cell.high, cell.low))
        return cell.nbytes, speed, low, high

    series = _points(cells, point)
    top = [(float(n), limit / 1e9, limit / 1e9, limit / 1e9) for n in sizes] if limit else []
    ax.set_ylim(0, 1.08 * max(high for points in (*series.values(), top) for _, _, _, high in points))
    ax.set_ylabel("GB/s")
    lines(ax, series, top, LIMIT_LABEL)


def bandwidths(name: str, about: str, cells: Sequence[Cell], limit: float | None) -> list[Figure]:
    """GB/s against size, where there are two sizes and more."""
    if len({cell.nbytes for cell in cells}) < 2:
        return []
    with plt.style.context(STYLE):
        figure, ax = _panel([*_series(cells), *([LIMIT_LABEL] if limit else [])])
        draw_bandwidth(ax, cells, limit)
        most = max(cells, key=lambda cell: cell.nbytes / cell.seconds)
        found = (
            f"{about}: {show.bandwidth(most.nbytes / most.seconds)} by {code(label(most))} at {show.size(most.nbytes)}"
        )
        description = _told(cells) + (f" The measured limit is {show.bandwidth(limit)}." if limit else "")
        return [finish(figure, name, description, cells, found)]


def slug(*words: str) -> str:
    """A name for files and ids."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower().replace("→", "-to-")).strip("-")[:NAME_LETTERS]


def _panel(labels: Sequence[str], plot: float = PLOT) -> tuple[plt.Figure, Axes]:
    """A figure with room for these labels below the plot."""
    below = BOTTOM + sum(len(broken(label)) for label in labels) * LABEL_GAP / 72
    total = plot + TOP + below
    figure = plt.figure(figsize=(WIDTH, total))
    return figure, figure.add_axes((LEFT / WIDTH, below / total, 1 - (LEFT + RIGHT) / WIDTH, plot / total))


def finish(
    figure: plt.Figure, name: str, description: str, cells: Sequence[Cell], caption: str, limited: bool = False
) -> Figure:
    """Save the figure once; its SVG for a file (white paper) and for the page (the page's colours)."""
    title = show.bare(caption)
    buffer = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    root = xml.fromstring(buffer.getvalue())
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    _change(root, lambda key, value: _unique(key, value, name))
    _change(root, lambda key, value: FONT.sub(lambda font: f"{font[0]}, {FALLBACKS[font[0]]}", value))
    _lean(root, name)
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-title {name}-desc"}
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        about = xml.Element(f"{{{SVG}}}{tag}", id=f"{name}-{tag}")
        about.text, about.tail = text, "\n"
        root.insert(place, about)
    file = f'<?xml version="1.0" encoding="utf-8"?>\n{xml.tostring(root, encoding="unicode")}\n'
    # on the page: as wide as there is room, no paper, colours that have a dark variant
    del root.attrib["width"], root.attrib["height"]
    for parent in list(root.iter()):
        for style in parent.findall(f"{{{SVG}}}style"):
            parent.remove(style)
    _change(root, lambda key, value: re.sub(r"(fill|stroke): #ffffff", r"\1: none", value))
    _change(root, lambda key, value: COLOUR.sub(lambda colour: f"var({VARIABLES[colour[0]]}, {colour[0]})", value))
    _brief(root, name)
    for element in root.iter():  # a page holds many figures, and nobody reads them as text
        element.text, element.tail = (
            words if words and words.strip() else "" for words in (element.text, element.tail)
        )
    return Figure(
        name, title, description, file, xml.tostring(root, encoding="unicode") + "\n", tuple(cells), caption, limited
    )


def _lean(root: xml.Element, name: str) -> None:
    """Without what nobody sees: ids that nothing names, groups for nothing, what all of a group have each, turns by
    nothing, and digits: half of what matplotlib writes."""
    named = _named(root)
    for element in root.iter():
        identifier = element.attrib.get("id", "")
        if identifier not in named and not _kept(identifier, name):
            element.attrib.pop("id", None)
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
    for parent in reversed(list(root.iter())):
        children: list[xml.Element] = []
        for child in parent:
            if child.tag == GROUP and not child.attrib:
                children += child
            elif len(child) or child.tag != GROUP or "id" in child.attrib:
                children.append(child)
        parent[:] = children
        if parent.tag == GROUP and len(parent) > 1 and all(child.tag != GROUP for child in parent):
            for attribute in ("style", "clip-path"):
                (value, *others) = {child.get(attribute) for child in parent}
                if value and not others and attribute not in parent.attrib:
                    parent.set(attribute, value)
                    for child in parent:
                        del child.attrib[attribute]
    _change(root, lambda key, value: LONG.sub(r"\1", value) if key in DRAWN else value)


def _named(root: xml.Element) -> set[str]:
    """The ids that something in a drawing names."""
    values = (value for element in root.iter() for key, value in element.attrib.items() if key != "id")
    return {identifier for value in values for identifier in REFERENCE.findall(value)}


def _kept(identifier: str, name: str) -> bool:
    """Whether an id is one of those that a page links to, or reads."""
    return identifier.startswith((f"{name}-{PANEL}", f"{name}-{POINTS}"))


def _brief(root: xml.Element, name: str) -> None:
    """Ids of a drawing on a page, where there are many, as short as they can be; fonts as the page has them."""
    begin = hashlib.sha256(name.encode()).hexdigest()[:6]
    short = {old: f"f{begin}-{place}" for place, old in enumerate(sorted(_named(root)))}

    def brief(key: str, value: str) -> str:
        if key == "id":
            return short.get(value, value)
        if key == "style":
            value = FAMILY.sub(lambda font: "font-family: var(--mono); " if "Mono" in font[0] else "", value)
        return REFERENCE.sub(lambda reference: f"#{short.get(reference[1], reference[1])}", value)

    _change(root, brief)


def _change(root: xml.Element, change: Callable[[str, str], str]) -> None:
    """Replace the value of every attribute by what ``change`` makes of its name and value."""
    for element in root.iter():
        for key, value in element.attrib.items():
            element.attrib[key] = change(key, value)


def _unique(key: str, value: str, name: str) -> str:
    """An attribute whose ids begin with the figure's name: a page holds many figures."""
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href"):
        return value.replace("#", f"#{name}-", 1)
    return value.replace("url(#", f"url(#{name}-")


def _told(cells: Sequence[Cell], limit: Limit | None = None) -> str:
    """What a figure shows beyond its title, in words computed from its cells."""
    series, sizes = _series(cells), sorted({cell.nbytes for cell in cells})
    what = "routes" if cells[0].route else f"values of {cells[0].row}" if cells[0].row else "line"
    text = f"{len(series)} {what}, {show.span(sizes)}."
    if limit and sizes[-1] in limit.seconds:
        text += f" memcpy takes {show.seconds(limit.seconds[sizes[-1]])} at {show.size(sizes[-1])}."
    return text


def _usual_size(cells: Sequence[Cell]) -> int:
    """The largest of the sizes at which most routes were measured."""
    counts = Counter(cell.nbytes for cell in cells)
    return max(counts, key=lambda nbytes: (counts[nbytes], nbytes))


def found(cells: Sequence[Cell]) -> str:
    """The least and the most time at the usual size."""
    cells = [cell for cell in cells if cell.quiet] or cells
    nbytes = _usual_size(cells)
    first, *_, last = sorted((cell for cell in cells if cell.nbytes == nbytes), key=lambda cell: cell.seconds) * 2
    words = f"{show.time(first)} by {code(label(first))}" if label(first) else show.time(first)
    if last.seconds > first.seconds:
        words += f" to {show.time(last)} by {code(label(last))}"
    return f"{words} at {show.size(nbytes)}"


def times(cells: Sequence[Cell], limit: Limit) -> list[Figure]:
    """One panel per direction and kind of memory, where there are two sizes and more."""
    made = []
    plain = conversions(cells)
    for memory in MEMORIES:
        for direction in dict.fromkeys(cell.direction for cell in plain):
            shown = [cell for cell in plain if (cell.direction, cell.memory) == (direction, memory)]
            source, target = advice.ends(direction)
            about, name = (
                advice.capital(f"{source} to {target}, {advice.MEMORY[memory]}"),
                slug("time", direction, memory),
            )
            if memory == ALIAS and all(advice.flat(by_size) for by_size in _series(shown).values()):
                made += dots_figure(name, about, shown)
            else:
                made += times_figure(name, about, shown, limit if memory in (COPY, INTO) and limit.seconds else None)
    return made


def dots_figure(name: str, about: str, cells: Sequence[Cell]) -> list[Figure]:
    """The times of routes that do not depend on the size, at the largest size of each."""
    shown = sorted((by_size[-1] for by_size in _series(cells).values()), key=lambda cell: cell.seconds)
    if len(shown) < 2:
        return []
    with plt.style.context(STYLE):
        figure, ax = _panel([], plot=(2 * len(shown) + 1) * LABEL_GAP / 72)
        dots(ax, shown)
        return [finish(figure, name, _told(shown), shown, f"{about}: {found(shown)} and at any other size")]


def times_figure(name: str, about: str, cells: Sequence[Cell], limit: Limit | None = None) -> list[Figure]:
    if len({cell.nbytes for cell in cells}) < 2:
        return []
    with plt.style.context(STYLE):
        figure, ax = _panel([*_series(cells), *([MEMCPY_LABEL] if limit else [])])
        draw_times(ax, cells, limit)
        return [finish(figure, name, _told(cells, limit), cells, f"{about}: {found(cells)}", bool(limit))]


def efficiency(cells: Sequence[Cell], limit: Limit) -> list[Figure]:
    """One panel per direction: copies and copies into a buffer as a share of memcpy."""
    made = []
    plain = [cell for cell in conversions(cells) if cell.memory in (COPY, INTO) and limit.decides(cell.nbytes)]
    for direction in dict.fromkeys(cell.direction for cell in plain):
        shown = [cell for cell in plain if cell.direction == direction]
        if len({cell.nbytes for cell in shown}) < 2:
            continue
        nbytes = _usual_size(shown)
        best = max((cell for cell in shown if cell.nbytes == nbytes), key=lambda cell: limit.share(cell) or 0)
        with plt.style.context(STYLE):
            figure, ax = _panel(list(_series(shown)))
            draw_efficiency(ax, shown, limit)
            reached = f"{show.percent(limit.share(best) or 0)} of memcpy's speed at {show.size(nbytes)}"
            about = f"{direction}: {code(best.route)} reaches {reached}"
            made.append(finish(figure, slug("efficiency", direction), _told(shown, limit), shown, about))
    return made


# --- a comparison as a forest plot ------------------------------------------------------------------------------------


MOST_ROWS = 40  # of a forest plot that can still be read
ROW = 0.19  # inches
LETTER = 0.061  # inches a letter of a label takes
LETTERS = 120  # of a label at most
MARKS = {SLOWER: ("s", "#d55e00"), FASTER: ("o", "#009e73"), NO_CHANGE: ("|", MUTED), INCONCLUSIVE: ("D", MUTED)}
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100)


def chosen(comparison: Comparison) -> list[dict[str, Any]]:
    """The cells that the plot shows, from slowest to fastest: what changed, then what is undecided, then the rest."""
    rows: list[dict[str, Any]] = []
    changed = sorted(
        (row for verdict in (SLOWER, FASTER) for row in of_verdict(comparison.cells, verdict)),
        key=lambda row: -abs(math.log(row["ratio"])),
    )
    for group in (changed, of_verdict(comparison.cells, INCONCLUSIVE), of_verdict(comparison.cells, NO_CHANGE)):
        drawable = [row for row in group if math.isfinite(row["low95"])]
        rows += drawable[: MOST_ROWS - len(rows)]
    return sorted(rows, key=lambda row: -row["ratio"])


def draw_forest(ax: Axes, cells: list[dict[str, Any]], equivalence: float) -> None:
    """Ratio new / base with its 95 % interval, a row a cell, the first at the top; hollow: inconclusive."""
    ax.axvspan(1 / (1 + equivalence), 1 + equivalence, color=GRID, alpha=0.6, linewidth=0)
    ax.axvline(1.0, color=MUTED, linewidth=0.9)
    for place, row in enumerate(cells):
        marker, colour = MARKS[row["verdict"]]
        face = "white" if row["verdict"] == INCONCLUSIVE else colour
        ax.hlines(place, row["low95"], row["high95"], color=colour, linewidth=1.4)
        ax.plot(row["ratio"], place, marker=marker, color=colour, markersize=4.6, markerfacecolor=face)
    ends = [row[name] for row in cells for name in ("low95", "high95")]
    seen = [row["ratio"] for row in cells]
    # an interval may be far wider than any effect: the axis follows the effects, and arrows are not needed to see that
    low = max(min(ends), min(*seen, 1 / (1 + 2 * equivalence)) / 1.5)
    high = min(max(ends), max(*seen, 1 + 2 * equivalence) * 1.5)
    ax.set_xscale("log")
    ax.set_xlim(min(low, 1 / (1 + 2 * equivalence)) / 1.02, max(high, 1 + 2 * equivalence) * 1.02)
    ax.set_ylim(len(cells) - 0.4, -0.6)
    room = 0.4 / (ax.get_window_extent().width / ax.figure.dpi)  # 0.4 inches between labels
    ratio_axis(ax.xaxis, ax.get_xlim(), room, TICKS, words.number)
    ax.set_yticks([])
    ax.grid(axis="y", visible=False)


def forest(comparison: Comparison, name: str = "comparison") -> Figure | None:
    """The figure; None where no cell has an effect to draw. The same comparison gives the same bytes."""
    cells = chosen(comparison)
    if not cells:
        return None
    labels = [show.short(show.bare(words.cell_line(row)), LETTERS) for row in cells]
    verdicts = [words.change_of(row) for row in cells]
    rest = f"; the {len(cells)} with the largest changes are shown" if len(cells) < len(comparison.cells) else ""
    description = f"{words.headline(comparison)}. {words.counts_line(comparison)}{rest}."
    equivalence = comparison.settings.equivalence
    caption = f"Ratio of times with its 95 % interval, largest first. Band: ±{words.percentage(equivalence)}. Hollow: "
    caption += "inconclusive. Squares are slower, circles faster."
    left, plot = LETTER * max(map(len, labels)) + 0.32, 2.8
    right = LETTER * max(map(len, verdicts)) + 0.25
    width, height = left + plot + right, ROW * (len(cells) + 1)
    total = height + 0.55
    with plt.style.context(str(STYLE)):
        figure = plt.figure(figsize=(width, total))
        ax = figure.add_axes((left / width, 0.45 / total, plot / width, height / total))
        draw_forest(ax, cells, equivalence)
        ax.set_xlabel(f"time of {comparison.new['toolchain']} / time of {comparison.base['toolchain']}")
        for place, (text, word) in enumerate(zip(labels, verdicts)):
            look: dict[str, Any] = {"fontsize": 7, "va": "center_baseline", "transform": ax.get_yaxis_transform()}
            ax.text(-0.03, place, text, ha="right", color=INK, family=MONO, **look)
            ax.text(1.03, place, word, ha="left", color=INK, **look)
        return finish(figure, name, description, (), f"{words.title(comparison)}. {caption}")
