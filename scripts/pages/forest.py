"""A comparison as a forest plot: the ratio of times of each cell with its interval."""

import matplotlib.pyplot as plt
import numpy as np
from analysis.comparison import Comparison
from analysis.verdicts import FASTER, INCONCLUSIVE, NO_CHANGE, SLOWER
from matplotlib.axes import Axes

from . import comparison_words as words
from . import show
from .figures import RATIO_TICKS, label_ticks
from .svg import GREEN, GRID, INK, MONO, MUTED, RED, STYLE, Figure, Look, finish

MAX_ROWS = 40  # of a readable plot
ROW, PLOT_WIDTH, FOOT = 0.19, 2.8, 0.45  # inches
LETTER = 0.061  # inches per letter of a label
LABEL_LETTERS = 120  # at most
PRIORITY = {SLOWER: 0, FASTER: 0, INCONCLUSIVE: 1, NO_CHANGE: 2}  # the lowest are drawn first
MARKS = {
    SLOWER: ("s", RED),
    FASTER: ("o", GREEN),
    INCONCLUSIVE: ("D", MUTED),
    NO_CHANGE: ("|", MUTED),
}


def forest_cells(comparison: Comparison) -> list[words.CellRow]:
    """The cells of the plot, from slowest to fastest: changes first, then inconclusive ones, then
    others, as far as there is room."""
    cells = comparison.cells[np.isfinite(comparison.cells["low95"].astype(float))]
    # Known defect: the priority stands in for the benchmark's group, and so in the labels
    ranked = cells.assign(
        group=cells["verdict"].map(PRIORITY), size=-np.log(cells["ratio"].astype(float)).abs()
    )
    ranked = ranked.dropna(subset="group").sort_values(["group", "size"], kind="stable")
    shown = ranked[cells.columns].head(MAX_ROWS)
    return shown.sort_values("ratio", ascending=False, kind="stable").to_dict("records")


def forest(comparison: Comparison) -> Figure | None:
    """Ratio new / base with its 95 % interval, a row per cell, the first at the top; None if no
    cell has one."""
    rows = forest_cells(comparison)
    if not rows:
        return None
    labels = [show.short(show.bare(words.cell_text(row)), LABEL_LETTERS) for row in rows]
    verdicts = [words.change_text(row) for row in rows]
    with plt.style.context(str(STYLE)):
        figure, ax = _plot(labels, verdicts)
        _draw_band(ax, comparison.settings.equivalence)
        for place, row in enumerate(rows):
            _draw_row(ax, place, row)
            font: Look = {"fontsize": 7, "va": "center_baseline", "color": INK}
            font["transform"] = ax.get_yaxis_transform()
            ax.text(-0.03, place, labels[place], ha="right", family=MONO, **font)
            ax.text(1.03, place, verdicts[place], ha="left", **font)
        _set_ratios(ax, rows, comparison.settings.equivalence)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_yticks([])
        ax.grid(axis="y", visible=False)
        base, new = comparison.base["toolchain"], comparison.new["toolchain"]
        ax.set_xlabel(f"time of {new} / time of {base}")
        summary = words.summarise(comparison)
        description = show.render_line(
            "figures",
            "forest_described",
            summary=summary,
            shown=len(rows),
            cells=len(comparison.cells),
        )
        margin = words.percentage(comparison.settings.equivalence)
        caption = show.render_line("figures", "forest", title=summary.title, margin=margin)
        return finish(figure, "comparison", description, (), caption)


def _plot(labels: list[str], verdicts: list[str]) -> tuple[plt.Figure, Axes]:
    """A plot with room for labels on its left and verdicts on its right."""
    left = LETTER * max(map(len, labels)) + 0.32
    right = LETTER * max(map(len, verdicts)) + 0.25
    width, height = left + PLOT_WIDTH + right, ROW * (len(labels) + 1)
    total = height + 0.55
    figure = plt.figure(figsize=(width, total))
    return figure, figure.add_axes((left / width, FOOT / total, PLOT_WIDTH / width, height / total))


def _draw_band(ax: Axes, equivalence: float) -> None:
    """Draw the ratios that count as equal."""
    ax.axvspan(1 / (1 + equivalence), 1 + equivalence, color=GRID, alpha=0.6, linewidth=0)
    ax.axvline(1.0, color=MUTED, linewidth=0.9)


def _draw_row(ax: Axes, place: int, row: words.CellRow) -> None:
    marker, colour = MARKS[row["verdict"]]
    look: Look = {"marker": marker, "color": colour, "markersize": 4.6}
    look["markerfacecolor"] = "white" if row["verdict"] == INCONCLUSIVE else colour
    ax.hlines(place, row["low95"], row["high95"], color=colour, linewidth=1.4)
    ax.plot(row["ratio"], place, **look)


def _set_ratios(ax: Axes, rows: list[words.CellRow], equivalence: float) -> None:
    """Set a logarithmic axis. An interval that is far wider than any effect is cut off."""
    ratios = [row["ratio"] for row in rows]
    least, most = min(ratios) / 1.5, max(ratios) * 1.5
    low = max(min(row["low95"] for row in rows), least)
    high = min(max(row["high95"] for row in rows), most)
    ax.set_xscale("log")
    ax.set_xlim(min(low, 1 / (1 + 2 * equivalence)) / 1.02, max(high, 1 + 2 * equivalence) * 1.02)
    label_ticks(ax.xaxis, RATIO_TICKS, 0.4 / PLOT_WIDTH, lambda ratio: f"{words.number(ratio)}×")
