"""Heat maps of a machine's histories: routes × releases, one of times and one of instructions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from analysis.cells import Row
from analysis.changes import LAYOUT
from analysis.history import History
from analysis.verdicts import INSTRUCTIONS, TIME

from . import show
from .change_words import series_text
from .comparison_words import number
from .history_data import PICTURE_KEYS, picture_rows

SHADE_RATIOS = (1.02, 1.05, 1.1, 1.25, 1.5)  # a tile is a shade darker from each of these on
MEMORY_WORDS = {
    "alias": "sharing memory",
    "copy": "making a copy",
    "into": "into an existing buffer",
}


@dataclass(frozen=True)
class Tile:
    """A series at one release.

    text     cost over that at the release ``base``: 1 where they are equal, else as ``ratio``
    shade    CSS class, see ``shade_class``
    verdict  of a change reported at the release, with its ``change``; "" without one
    """

    release: Any
    text: str
    ratio: str
    base: str
    shade: str
    verdict: str
    change: str


@dataclass(frozen=True)
class HeatRow:
    """A series: its route, its sizes in words, and a tile per release; None where it has no figure."""

    route: str
    series: str
    tiles: tuple[Tile | None, ...]


@dataclass(frozen=True)
class HeatMap:
    """groups: their title, and a row per series."""

    title: str
    versions: tuple[str, ...]
    groups: tuple[tuple[str, tuple[HeatRow, ...]], ...]
    legend: str


def heat_maps(history: History) -> Iterator[HeatMap]:
    """A map of times, then one of instructions. Only series with a reported change are shown."""
    rows = picture_rows(history)
    versions = [release.version for release in history.releases]
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
        groups = tuple(
            (group_title(*key), tuple(_heat_rows(history, group)))
            for key, group in shown.groupby(PICTURE_KEYS, sort=False)
        )
        yield HeatMap(f"{history.package}: {figure} by release", tuple(versions), groups, legend)


def _heat_rows(history: History, group: pd.DataFrame) -> Iterator[HeatRow]:
    for _, points in group.groupby("series", sort=False):
        point_at = {point.release: point for point in points.itertuples()}
        tiles = tuple(
            _tile(release, point_at[release.version]) if release.version in point_at else None
            for release in history.releases
        )
        first = next(iter(point_at.values()))
        yield HeatRow(first.route, series_text(first), tiles)


def _tile(release: Any, point: Row) -> Tile:
    return Tile(
        release=release,
        text="1" if point.over == 1 else number(point.over),
        ratio=number(point.over),
        base=point.base,
        shade=shade_class(point.over),
        verdict=point.verdict,
        change=number(point.ratio) if point.verdict else "",
    )


def group_title(direction: str, memory: str) -> str:
    """Title of the routes of a picture, which share PICTURE_KEYS."""
    return f"{direction}, {MEMORY_WORDS.get(memory, memory)}"


def shade_class(ratio: float) -> str:
    """s1 (slower than the newest level) to s5, f1 (faster) to f5, "" if about the same."""
    darkness = sum(max(ratio, 1 / ratio) >= least for least in SHADE_RATIOS)
    return f"{'s' if ratio > 1 else 'f'}{darkness}" if darkness else ""
