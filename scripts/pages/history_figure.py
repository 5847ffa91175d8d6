"""A history in pictures: routes × releases at one glance, and a panel per route, cost against the day of release."""

import math
from collections.abc import Iterator
from datetime import date
from typing import Any

import matplotlib

matplotlib.use("svg")  # draws into files, needs no display
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from analysis.history import LAYOUT, History
from analysis.verdicts import INSTRUCTIONS, TIME
from matplotlib.axes import Axes

from pages import show
from pages.comparison_words import number
from pages.figures import INK, MARKERS, MONO, MUTED, POINTS, RATIOS, STYLE, Figure, finish, slug, ticks
from pages.page import Heat, Strip, Tile
from pages.tables import Table

ACROSS = 2  # panels in a row
PANEL, HEIGHT = 3.3, 1.5  # inches, of a plot of times
COUNTS, GAP = 0.6, 0.2  # of one of counts below it, and between the two
LEFT, RIGHT, HEAD, FOOT = 0.75, 0.15, 0.5, 0.35  # inches around each
LETTERS = 44  # of a route, that fit above a panel
FONT = 8.5  # points: 11 pixels on a page
SHADES = (1.02, 1.05, 1.1, 1.25, 1.5)  # factors from which on a tile is a shade darker
MEMORY_WORDS = {"alias": "sharing memory", "copy": "making a copy", "into": "into an existing buffer"}
GROUP = ["direction", "contract"]


def _shown(history: History) -> pd.DataFrame:
    """The rows of routes in one dtype, with ``over`` their newest level, and the release that has it as ``base``."""
    rows = history.rows[history.rows["route"].notna() & ~history.rows["control"]]
    rows = rows[rows["dtype"].isna() | (rows["dtype"] == "float32")]
    last = rows.groupby(["series", "what"])[["level", "release"]].transform("last")
    return rows.assign(over=rows["level"] / last["level"], newest=last["level"], base=last["release"])


# --- at one glance ---------------------------------------------------------------------------------------------------


def heats_of(history: History) -> Iterator[Heat]:
    """Times, then instructions: of series with a reported change only."""
    rows = _shown(history)
    versions = tuple(release.version for release in history.releases)
    for what in (TIME, INSTRUCTIONS):
        own = rows[rows["what"] == what]
        told = own["verdict"].ne("") & own["evidence"].ne(LAYOUT)
        shown = own[own["series"].isin(own.loc[told, "series"])]
        groups = [
            (_title(key), tuple(_strip(each, history) for _, each in group.groupby("series", sort=False)))
            for key, group in shown.groupby(GROUP, sort=False)
        ]
        if groups:
            half = (own["high"] / own["low"]).median() ** 0.5 - 1
            every, without = own["series"].nunique(), own["series"].nunique() - shown["series"].nunique()
            named = f"{history.package} {max(own['base'], key=versions.index)} (with {history.held})"
            values = {"what": what, "base": named, "every": every, "without": without}
            legend = show.said("history", "heat", resolution=show.percent(half, 1) if what == TIME else "", **values)
            yield Heat(f"{history.package}: {what} by release", versions, tuple(groups), legend)


def _title(key: tuple[str, str]) -> str:
    direction, memory = key
    return f"{direction}, {MEMORY_WORDS.get(memory, memory)}"


def _strip(each: pd.DataFrame, history: History) -> Strip:
    first = each.iloc[0]
    by_release = each.set_index("release").to_dict("index")
    tiles = (_tile(release, by_release.get(release.version)) for release in history.releases)
    return Strip(first["route"], ", ".join(filter(None, (show.span(first["sizes"]), grad_of(first)))), tuple(tiles))


def grad_of(row: Any) -> str:
    """What a row of ``History.rows`` is taken from, where that requires grad."""
    return "t requires grad" if str(row["group"]).startswith("RequiresGrad") else ""


def _tile(release: Any, row: Any) -> Tile | None:
    if row is None:
        return None
    changed = bool(row["verdict"])
    about = f"{release.name}: {number(row['over'])}× of {row['base']}"
    about += f"; {row['verdict']} here ({number(row['ratio'])}×)" if changed else ""
    place = sum(max(row["over"], 1 / row["over"]) >= factor for factor in SHADES)
    shade = f"{'s' if row['over'] > 1 else 'f'}{place}" if place else ""
    return Tile(number(row["over"]) if shade else "1", about, shade, f"#{release.tag}" if changed else "")


# --- panels ----------------------------------------------------------------------------------------------------------


def figures_of(history: History) -> Iterator[tuple[Figure, Table]]:
    """A figure per direction and contract: a panel per route whose time changed by more than ``equivalence``; where
    nothing was timed, whose instructions did."""
    rows = _shown(history)
    what = TIME if (rows["what"] == TIME).any() else INSTRUCTIONS
    size = np.abs(np.log(rows["ratio"].astype(float)))
    large = rows[(rows["what"] == what) & rows["verdict"].ne("") & (size >= math.log1p(history.settings.equivalence))]
    routes = large[["group", "route"]].drop_duplicates()
    rows = rows.merge(routes, on=["group", "route"])
    for key, group in rows.groupby(GROUP, sort=False):
        name, title = slug("history", history.package, *key), _title(key)
        yield _panels(history, name, title, group), _points(history, group[group["what"] == what])


def _panels(history: History, name: str, title: str, rows: pd.DataFrame) -> Figure:
    """Panels of one figure have one scale."""
    routes = [each for _, each in rows.groupby(["group", "route"], sort=False)]
    counted = (rows["what"] == INSTRUCTIONS).any() and (rows["what"] == TIME).any()
    each = HEAD + HEIGHT + (GAP + COUNTS if counted else 0.0) + FOOT
    wide, high = ACROSS * (LEFT + PANEL + RIGHT), math.ceil(len(routes) / ACROSS) * each
    limits = {what: _limits(rows[rows["what"] == what]) for what in (TIME, INSTRUCTIONS)}
    with (
        plt.style.context(str(STYLE)),
        plt.rc_context({"font.size": FONT, "xtick.labelsize": FONT, "ytick.labelsize": FONT}),
    ):
        figure = plt.figure(figsize=(wide, high))
        place = 0
        for index, route in enumerate(routes):
            row, column = divmod(index, ACROSS)
            left, top = column * (LEFT + PANEL + RIGHT) + LEFT, high - row * each - HEAD
            shown = [what for what in (TIME, INSTRUCTIONS) if (route["what"] == what).any()]
            bottom = top
            for what in shown:
                inches = HEIGHT if what == shown[0] else COUNTS
                bottom -= inches + (GAP if what != shown[0] else 0.0)
                ax = figure.add_axes((left / wide, bottom / high, PANEL / wide, inches / high))
                place = _draw(ax, history, route[route["what"] == what], place if what == shown[0] else None) or place
                ax.set_ylim(*limits[what])
                ticks(ax.yaxis, RATIOS, 0.24 / inches, "{:g}×".format)
                ax.set_ylabel("time" if what == TIME else "instr.", fontsize=FONT)
                ax.tick_params(labelbottom=what == shown[-1])
                if what == shown[0]:
                    label = show.short(route["route"].iloc[0], LETTERS)
                    ax.set_title(label, fontsize=FONT, family=MONO, loc="left", pad=16, color=INK)
        span = f"{history.releases[0].name} to {history.releases[-1].version}"
        description = f"{len(routes)} route{'s' * (len(routes) > 1)}, {span}."
        caption = f"{history.package}: {title}, relative to {history.releases[-1].name}"
        return finish(figure, name, description, (), caption)


def _limits(rows: pd.DataFrame) -> tuple[float, float]:
    if rows.empty:
        return 0.9, 1.1
    low, high = (rows["low"] / rows["newest"]).min(), (rows["high"] / rows["newest"]).max()
    return min(float(low) / 1.03, 1 / 1.1), max(float(high) * 1.03, 1.1)


def _draw(ax: Axes, history: History, rows: pd.DataFrame, place: int | None) -> int | None:
    """One route: a line per series. ``place`` is the number of its first series in the figure's table, None if it has
    none there; the number after its last."""
    colours = [f"#{colour.lstrip('#')}" for colour in plt.rcParams["axes.prop_cycle"].by_key()["color"]]
    across = 0.0
    for index, (_, each) in enumerate(rows.groupby("series", sort=False)):
        days = np.array([float(mdates.date2num(date.fromisoformat(day))) for day in each["date"]])
        points, low, high, level = (each[name] / each["newest"] for name in ("value", "low", "high", "level"))
        colour, marker = colours[index % len(colours)], MARKERS[index % len(MARKERS)]
        gid = None if place is None else f"{POINTS}{place + index}"
        ax.vlines(days, low, high, color=colour, linewidth=1.0, alpha=0.35)
        ax.plot(days, points, linestyle="", marker=marker, color=colour, markeredgewidth=0, markersize=3, gid=gid)
        ax.step(days, level, where="post", color=colour, linewidth=1.3)
        for day in days[each["verdict"].ne("").to_numpy()]:
            ax.axvline(day, color=MUTED, linewidth=0.5, linestyle=(0, (2, 2)))
        last = each.iloc[-1]
        value = show.seconds(last["level"]) if last["what"] == TIME else f"{last['level']:,.0f}"
        text = f"{show.span(last['sizes'])} {value}".strip()
        ax.text(across, 1.04, text, transform=ax.transAxes, color=colour, fontsize=FONT, va="bottom")
        across += 0.0235 * len(text) + 0.05
    every = [float(mdates.date2num(date.fromisoformat(release.date))) for release in history.releases]
    margin = 0.03 * max(1.0, max(every) - min(every))
    ax.set_xlim(min(every) - margin, max(every) + margin)
    ax.xaxis.set_major_locator(mdates.YearLocator())
    ax.xaxis.set_major_formatter(mdates.DateFormatter("%Y"))
    ax.set_yscale("log")
    return None if place is None else place + rows["series"].nunique()


def _points(history: History, rows: pd.DataFrame) -> Table:
    """The points of a figure, a row per series."""
    versions = [release.version for release in history.releases]
    table = []
    for _, each in rows.groupby("series", sort=False):
        first, values = each.iloc[0], dict(zip(each["release"], each["value"]))
        form = show.seconds if first["what"] == TIME else "{:,.0f}".format
        sizes = show.sizes(dict.fromkeys((first["sizes"][0], first["sizes"][-1]))) if first["sizes"] else ""
        label = ", ".join(filter(None, (show.code(first["route"]), sizes)))
        table.append((label, *(form(values[version]) if version in values else "n/a" for version in versions)))
    return Table(
        "Seconds per call" if (rows["what"] == TIME).any() else "Instructions per call",
        ("route", *versions),
        tuple(table),
    )
