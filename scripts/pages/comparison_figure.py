"""A comparison as a forest plot, and as the parts of a page's section: sentences, figure, table."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")  # draws into files, needs no display
import matplotlib.pyplot as plt
from analysis.comparison import Comparison
from analysis.verdicts import FASTER, INCONCLUSIVE, NO_CHANGE, SLOWER, of_verdict
from cli import put
from matplotlib.axes import Axes

from pages import show
from pages.comparison_words import (
    all_lines,
    cell_line,
    cell_text,
    counts_line,
    factor,
    headline,
    number,
    percentage,
    sentence,
    title,
    trust,
    withheld,
)
from pages.figures import GRID, INK, MONO, MUTED, STYLE, Figure, finish, ratio_axis
from pages.tables import Table

AT_MOST = 40  # rows of a plot that can still be read
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
        rows += drawable[: AT_MOST - len(rows)]
    return sorted(rows, key=lambda row: -row["ratio"])


def draw_forest(ax: Axes, cells: list[dict[str, Any]], equivalence: float) -> None:
    """Ratio new / base with its 95 % interval, a row a cell, the first at the top; hollow: inconclusive."""
    ax.axvspan(1 / (1 + equivalence), 1 + equivalence, color=GRID, alpha=0.6, linewidth=0)
    ax.axvline(1.0, color=MUTED, linewidth=0.9)
    for place, row in enumerate(cells):
        marker, colour = MARKS[row["verdict"]]
        hollow = row["verdict"] == INCONCLUSIVE
        ax.hlines(place, row["low95"], row["high95"], color=colour, linewidth=1.4)
        ax.plot(
            row["ratio"],
            place,
            marker=marker,
            color=colour,
            markersize=4.6,
            markerfacecolor="white" if hollow else colour,
            markeredgecolor=colour,
        )
    ends = [row[name] for row in cells for name in ("low95", "high95")]
    seen = [row["ratio"] for row in cells]
    # an interval may be far wider than any effect: the axis follows the effects, and arrows are not needed to see that
    low = max(min(ends), min(*seen, 1 / (1 + 2 * equivalence)) / 1.5)
    high = min(max(ends), max(*seen, 1 + 2 * equivalence) * 1.5)
    ax.set_xscale("log")
    ax.set_xlim(min(low, 1 / (1 + 2 * equivalence)) / 1.02, max(high, 1 + 2 * equivalence) * 1.02)
    ax.set_ylim(len(cells) - 0.4, -0.6)
    room = 0.4 / (ax.get_window_extent().width / ax.figure.dpi)  # 0.4 inches between labels
    ratio_axis(ax.xaxis, ax.get_xlim(), room, TICKS, number)
    ax.set_yticks([])
    ax.grid(axis="y", visible=False)


def label(row: Mapping[str, Any]) -> str:
    """The cell in one line of text."""
    return show.short(cell_text(row), LETTERS)


def forest(comparison: Comparison, name: str = "comparison") -> Figure | None:
    """The figure; None where no cell has an effect to draw. The same comparison gives the same bytes."""
    cells = chosen(comparison)
    if not cells:
        return None
    labels = [label(row) for row in cells]
    words = [_word(row) for row in cells]
    left, plot = LETTER * max(map(len, labels)) + 0.32, 2.8
    right = LETTER * max(map(len, words)) + 0.25
    width, height = left + plot + right, ROW * (len(cells) + 1)
    total = height + 0.55
    with plt.style.context(str(STYLE)):
        figure = plt.figure(figsize=(width, total))
        ax = figure.add_axes((left / width, 0.45 / total, plot / width, height / total))
        draw_forest(ax, cells, comparison.settings.equivalence)
        ax.set_xlabel(f"time of {comparison.new['toolchain']} / time of {comparison.base['toolchain']}")
        for place, (text, word) in enumerate(zip(labels, words)):
            look: dict[str, Any] = {"fontsize": 7, "va": "center_baseline", "transform": ax.get_yaxis_transform()}
            ax.text(-0.03, place, text, ha="right", color=INK, family=MONO, **look)
            ax.text(1.03, place, word, ha="left", color=INK, **look)
        return finish(figure, name, title(comparison), described(comparison), (), caption(comparison))


def _word(row: Mapping[str, Any]) -> str:
    """Ratio and verdict as the sentences have them: 1.18× faster where the ratio of times is .85."""
    return factor(row["verdict"], row["ratio"]) + ("" if row["verdict"] == NO_CHANGE else f" {row['verdict']}")


def described(comparison: Comparison) -> str:
    """What the figure shows, in words."""
    shown = len(chosen(comparison))
    rest = f"; the {shown} with the largest changes are shown" if shown < len(comparison.cells) else ""
    return f"{headline(comparison)}. {counts_line(comparison)}{rest}."


def caption(comparison: Comparison) -> str:
    return (
        "Ratio of times with its 95 % interval, largest first. Band: ±"
        f"{percentage(comparison.settings.equivalence)}. Hollow: inconclusive. Squares are slower, circles faster."
    )


def section(comparison: Comparison) -> tuple[tuple[str, ...], tuple[tuple[Figure, Table], ...], tuple[str, ...]]:
    """For a page: its sentences, its figure with the data table, and how far to trust it."""
    intro = (f"{title(comparison)}: {headline(comparison)}.", *all_lines(comparison))
    figure = forest(comparison)
    data = Table(
        title="Cells in the figure",
        columns=("cell", "verdict"),
        rows=tuple((cell_line(row), sentence(row, comparison)) for row in chosen(comparison)),
        numeric=False,
    )
    return intro, (((figure, data),) if figure else ()), (*withheld(comparison), *trust(comparison))


def save(comparison: Comparison, path: Path) -> bool:
    """Write the figure; whether there was one to write."""
    figure = forest(comparison)
    if figure is not None:
        put(path, figure.file)
    return figure is not None
