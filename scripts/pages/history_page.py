"""The page of a machine's histories: changes release by release, then the curves and the method.

Pictures: a heat map of routes × releases, and a panel per route, cost against the day of release.

The page over several machines' histories shows which changes are on all machines, and which on some only.

The changes of a release are also a title and a paragraph: for a terminal, an issue, a program, and reports/feed.xml.
The feed is an Atom feed over all machines, with an entry per release that changed something. Ids and anchors are made
from a release's tag, so they are permanent.
"""

import json
import math
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from analysis import findings
from analysis.history import (
    CONFIRMED,
    LAYOUT,
    REFUTED,
    ROUTE,
    UNDETERMINED,
    History,
    headlines,
    histories_of,
    largest_by_route,
)
from analysis.results import Results, load
from analysis.verdicts import CHANGED, FASTER, FEWER, INSTRUCTIONS, MORE, SLOWER, TIME
from cli import one_line
from matplotlib.axes import Axes
from store.files import put
from store.schema import RunRecord
from toolchains import ledger

from pages import show, tables
from pages.advice import Box, capital
from pages.comparison_words import number
from pages.figures import (
    INK,
    MARKERS,
    MONO,
    MUTED,
    POINTS,
    RATIOS,
    STYLE,
    Figure,
    finish,
    slug,
    ticks,
)
from pages.page import Page, Section, web
from pages.show import code, prose
from pages.tables import Table, tabled, text_of

AT_MOST = 10  # routes shown in a release's table; results.csv has all
# Pictures
ACROSS = 2  # panels in a row
PANEL, HEIGHT = 3.3, 1.5  # inches, of a plot of times
COUNTS, GAP = 0.6, 0.2  # inches, of a plot of counts below it, and of the gap between the two
LEFT, RIGHT, HEAD, FOOT = 0.75, 0.15, 0.5, 0.35  # inches around each
LETTERS = 44  # of a route's name that fit above a panel
FONT = 8.5  # points: 11 pixels on a page
SHADES = (1.02, 1.05, 1.1, 1.25, 1.5)  # a tile is a shade darker from each of these factors on
MEMORY_WORDS = {
    "alias": "sharing memory",
    "copy": "making a copy",
    "into": "into an existing buffer",
}
GROUP = ["direction", "contract"]
# Changes of a release
NAMED = 3  # routes named in a paragraph
FEED = "feed.xml"
SPACE = uuid.uuid5(
    uuid.NAMESPACE_URL, "numpy-torch-conversion/releases"
)  # of the ids; must never change
# Page over several machines
MOST_SHARED = 30  # rows of a table; changes.csv has all


def link(histories: Sequence[History]) -> str:
    """Text of links to this page."""
    return f"What releases changed: {show.join(list(map(_span, histories)))}"


def _span(history: History) -> str:
    return f"{history.releases[0].name} to {history.releases[-1].version}"


def page_of(results: Results, histories: Sequence[History]) -> Page:
    """The content of the page of a machine's histories."""
    machine = histories[0].machine
    files = {
        file for history in histories for release in history.releases for file in release.files
    }
    records = sorted(chain(*map(results.sessions_of, files)), key=lambda record: record.started)
    commands = [record.command for record in records if record.command] or [
        "python scripts/track.py"
    ]
    changed = results.version_changes(pd.concat([history.rows for history in histories]))
    return Page(
        title=f"What releases of torch and numpy changed on {machine}",
        machine=machine,
        facts=_prose("facts", histories=histories, records=records),
        warnings=_prose("warnings", histories=histories, records=records, changed=changed),
        boxes=tuple(map(_box, histories)),
        heats=tuple(chain(*map(heats_of, histories))),
        legend=_prose("legend"),
        sections=[
            *_sections(results, histories),
            *_figures(histories),
            _method(histories, records),
        ],
        links=(
            (
                f"What to use on {machine}: every conversion with one toolchain",
                f"../../{quote(machine)}/",
            ),
        ),
        command=max(dict.fromkeys(commands), key=commands.count),
        **sheet(results, histories),
        samples=f"../../results/{quote(machine)}/",
        feed="../../feed.xml",
    )


def _prose(block: str, **values: Any) -> tuple[str, ...]:
    return prose("history", block, words=sys.modules[__name__], **values)


def _tabled(block: str, numeric: bool = True, **values: Any) -> Table:
    return tabled("history", block, numeric, words=sys.modules[__name__], **values)


# --- in words --------------------------------------------------------------------------------------------------------


def headline(row: Any) -> str:
    """Headline for a row of ``headlines``: "38 routes faster (median 1.12×), 8 slower (median 1.04×)"."""
    return " ".join(_prose("headline", row=row))


def effect_of(row: Any, unit: str = "") -> str:
    """A change with its interval: "1.31× faster (1.29–1.32)", "1.10× fewer"."""
    ratio, low, high = (float(row[name]) for name in ("ratio", "ratio_low", "ratio_high"))
    if row["verdict"] in (FASTER, FEWER):
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    ends = list(dict.fromkeys((number(low), number(high))))
    exact = row["what"] == INSTRUCTIONS and len(ends) == 1
    return f"{number(ratio)}× {row['verdict']}{unit}" + ("" if exact else f" ({'–'.join(ends)})")


def route_of(row: Any) -> list[str]:
    """The route of a row, then its direction and whether its source requires grad."""
    expression = row["route"] if isinstance(row["route"], str) else row["statement"]
    name = code(expression) if isinstance(expression, str) else row["group"]
    return [name, ", ".join(filter(None, (str(row["direction"]), grad_of(row))))]


def named_route(row: Any) -> str:
    """The route of a row in one line."""
    return ", ".join(filter(None, route_of(row)))


def where(row: Any) -> str:
    """The sizes and the other parameters of a row in words: "4 KiB to 16 MiB, float32"."""
    others = (
        show.valued(name, row[name])
        for name in ("dtype", "layout", "threads")
        if isinstance(row[name], str)
    )
    return ", ".join(filter(None, (show.span(row["sizes"]), *others)))


def summary(row: Any) -> str:
    """A change in one line: `t.numpy()`, torch→numpy: 1.31× faster (1.29–1.32), 4 KiB to 16 MiB"""
    effect = effect_of(row, " instructions" if row["what"] == INSTRUCTIONS else "")
    return f"{named_route(row)}: {', '.join(filter(None, (effect, show.span(row['sizes']))))}"


def _box(history: History) -> Box:
    """The headline of each release, the newest first."""
    rows = []
    for news in news_in(history):
        most = news.lines[0] if (news.routes["what"] == TIME).any() else ""
        rows.append(
            (
                news.release.tag,
                (f"{news.release.name} ({news.release.date})", headline(news.row), most),
            )
        )
    columns = ("release", "routes that changed, once each", "largest change of time")
    return Box(f"{_span(history)}, {history.fixed_package}", columns=columns, rows=tuple(rows))


# --- a section per release -------------------------------------------------------------------------------------------


def _sections(results: Results, histories: Sequence[History]) -> Iterator[Section]:
    for history in histories:
        appeared, meant = (
            find(results, history.releases) for find in (findings.appearances, findings.redefined)
        )
        for news in news_in(history):
            behaviour = _prose("behaviour", at=news.release, appeared=appeared, meant=meant)
            intro, about = (
                (f"{capital(headline(news.row))}.", *behaviour),
                f"{news.release.name}, {news.release.date}",
            )
            yield Section(news.release.tag, about, intro, tables=(_changes(history, news.release),))


def _changes(history: History, release: Any) -> Table:
    """A row per route: slower routes, then faster ones, then routes of which only the instructions changed."""
    own = history.changes[history.changes["release"] == release.version]
    layout = own["evidence"] == LAYOUT
    times_first = own[~layout].sort_values("what", key=lambda what: what != TIME, kind="stable")
    routes: dict[str, list[pd.DataFrame]] = {SLOWER: [], FASTER: [], INSTRUCTIONS: []}
    for _, rows in times_first.groupby(ROUTE, sort=False, dropna=False):
        largest = rows.iloc[0]
        routes[largest["verdict"] if largest["what"] == TIME else INSTRUCTIONS].append(rows)
    small = int((layout & (own["what"] == TIME)).sum())
    about = {"routes": routes, "most": AT_MOST, "small": small, "nodes": len(history.nodes)}
    return _tabled("changes", False, release=release, **about)


# --- pictures ---------------------------------------------------------------------------------------------------------


def _shown(history: History) -> pd.DataFrame:
    """The rows of routes in one dtype. newest: level at the last release, ``base``; over: level / newest."""
    rows = history.rows[history.rows["route"].notna() & ~history.rows["control"]]
    rows = rows[rows["dtype"].isna() | (rows["dtype"] == "float32")]
    last = rows.groupby(["series", "what"])[["level", "release"]].transform("last")
    return rows.assign(
        over=rows["level"] / last["level"], newest=last["level"], base=last["release"]
    )


# --- at one glance ---------------------------------------------------------------------------------------------------


def heats_of(history: History) -> Iterator[dict[str, Any]]:
    """Heat maps of times, then of instructions. Only series with a reported change are shown."""
    rows = _shown(history)
    versions = [release.version for release in history.releases]
    for what in (TIME, INSTRUCTIONS):
        own = rows[rows["what"] == what]
        told = own["verdict"].ne("") & own["evidence"].ne(LAYOUT)
        shown = own[own["series"].isin(own.loc[told, "series"])]
        if len(shown):
            base, half = (
                max(own["base"], key=versions.index),
                (own["high"] / own["low"]).median() ** 0.5 - 1,
            )
            about = {
                "history": history,
                "what": what,
                "own": own,
                "shown": shown,
                "base": base,
                "half": half,
            }
            title, legend = (
                f"{history.package}: {what} by release",
                show.said("history", "heat", **about),
            )
            groups, words = shown.groupby(GROUP, sort=False), sys.modules[__name__]
            yield {
                "title": title,
                "releases": history.releases,
                "groups": groups,
                "legend": legend,
                "words": words,
            }


def titled(direction: str, memory: str) -> str:
    """Title of the routes of a ``GROUP``."""
    return f"{direction}, {MEMORY_WORDS.get(memory, memory)}"


def measured_by(row: Any) -> str:
    """The sizes of a series, and whether its source requires grad."""
    return ", ".join(filter(None, (show.span(row["sizes"]), grad_of(row))))


def grad_of(row: Any) -> str:
    """Say if the source of a row of ``History.rows`` requires grad; else ""."""
    return "t requires grad" if str(row["group"]).startswith("RequiresGrad") else ""


def factor(over: float) -> str:
    """Text of a tile: cost / newest level."""
    return "1" if over == 1 else number(over)


def shade(over: float) -> str:
    """CSS class of a tile: s1 (slower than the newest level) to s5, f1 (faster) to f5, "" if about the same."""
    place = sum(max(over, 1 / over) >= factor for factor in SHADES)
    return f"{'s' if over > 1 else 'f'}{place}" if place else ""


# --- panels ----------------------------------------------------------------------------------------------------------


def figures_of(history: History) -> Iterator[tuple[Figure, Table]]:
    """A figure per direction and contract, with a panel per route whose time changed by more than ``equivalence``. If
    nothing was timed, instructions are used instead."""
    rows = _shown(history)
    what = TIME if (rows["what"] == TIME).any() else INSTRUCTIONS
    size = np.abs(np.log(rows["ratio"].astype(float)))
    large = rows[
        (rows["what"] == what)
        & rows["verdict"].ne("")
        & (size >= math.log1p(history.settings.equivalence))
    ]
    routes = large[["group", "route"]].drop_duplicates()
    rows = rows.merge(routes, on=["group", "route"])
    for key, group in rows.groupby(GROUP, sort=False):
        name, title = slug("history", history.package, *key), titled(*key)
        own = group[group["what"] == what]
        gids = {series: f"{POINTS}{place}" for place, series in enumerate(own["series"].unique())}
        series = own.groupby("series", sort=False)
        data = _tabled("points", releases=history.releases, timed=what == TIME, series=series)
        yield _panels(history, name, title, group, gids), data


def _panels(
    history: History, name: str, title: str, rows: pd.DataFrame, gids: Mapping[str, str]
) -> Figure:
    """Draw a figure's panels on one scale. gids: series -> SVG id, which names its row of the figure's table."""
    routes = [each for _, each in rows.groupby(["group", "route"], sort=False)]
    limits = {what: _limits(own) for what, own in rows.groupby("what")}
    each = HEAD + HEIGHT + (GAP + COUNTS if len(limits) > 1 else 0.0) + FOOT
    wide, high = ACROSS * (LEFT + PANEL + RIGHT), math.ceil(len(routes) / ACROSS) * each
    with plt.style.context(
        [STYLE, {"font.size": FONT, "xtick.labelsize": FONT, "ytick.labelsize": FONT}]
    ):
        figure = plt.figure(figsize=(wide, high))
        for index, route in enumerate(routes):
            row, column = divmod(index, ACROSS)
            left, top = column * (LEFT + PANEL + RIGHT) + LEFT, high - row * each - HEAD
            shown = [what for what in (TIME, INSTRUCTIONS) if (route["what"] == what).any()]
            bottom = top
            for what, inches, gap in zip(shown, (HEIGHT, COUNTS), (0.0, GAP)):
                bottom -= inches + gap
                ax = figure.add_axes((left / wide, bottom / high, PANEL / wide, inches / high))
                _draw(ax, history, route[route["what"] == what], gids)
                ax.set_ylim(*limits[what])
                ticks(ax.yaxis, RATIOS, 0.24 / inches, "{:g}×".format)
                ax.set_ylabel("time" if what == TIME else "instr.", fontsize=FONT)
                ax.tick_params(labelbottom=what == shown[-1])
                if what == shown[0]:
                    first = route.iloc[0]
                    label = show.short(
                        ", ".join(filter(None, (first["route"], grad_of(first)))), LETTERS
                    )
                    ax.set_title(label, fontsize=FONT, family=MONO, loc="left", pad=16, color=INK)
        description = f"{len(routes)} route{'s' * (len(routes) > 1)}, {_span(history)}."
        caption = f"{history.package}: {title}, relative to {history.releases[-1].name}"
        return finish(figure, name, description, (), caption)


def _limits(rows: pd.DataFrame) -> tuple[float, float]:
    low, high = (rows["low"] / rows["newest"]).min(), (rows["high"] / rows["newest"]).max()
    return min(float(low) / 1.03, 1 / 1.1), max(float(high) * 1.03, 1.1)


def _draw(ax: Axes, history: History, rows: pd.DataFrame, gids: Mapping[str, str]) -> None:
    """Draw the panel of one route, a line per series."""
    looks = zip(plt.rcParams["axes.prop_cycle"](), cycle(MARKERS))
    across = 0.0
    for (series, each), (look, marker) in zip(rows.groupby("series", sort=False), looks):
        days = mdates.datestr2num(each["date"])
        points, low, high, level = (
            each[name] / each["newest"] for name in ("value", "low", "high", "level")
        )
        gid = gids.get(series)
        ax.vlines(days, low, high, linewidth=1.0, alpha=0.35, **look)
        ax.plot(
            days,
            points,
            linestyle="",
            marker=marker,
            markeredgewidth=0,
            markersize=3,
            gid=gid,
            **look,
        )
        ax.step(days, level, where="post", linewidth=1.3, **look)
        for day in days[each["verdict"].ne("").to_numpy()]:
            ax.axvline(day, color=MUTED, linewidth=0.5, linestyle=(0, (2, 2)))
        last = each.iloc[-1]
        value = (
            show.seconds(last["level"])
            if last["what"] == TIME
            else f"{show.steady(last['level']):,.0f}"
        )
        text = f"{show.span(last['sizes'])} {value}".strip()
        ax.text(across, 1.04, text, transform=ax.transAxes, fontsize=FONT, va="bottom", **look)
        across += 0.0235 * len(text) + 0.05
    every = mdates.datestr2num([release.date for release in history.releases])
    margin = 0.03 * max(1.0, max(every) - min(every))
    ax.set_xlim(min(every) - margin, max(every) + margin)
    ax.xaxis.set_major_locator(mdates.YearLocator())
    ax.xaxis.set_major_formatter(mdates.DateFormatter("%Y"))
    ax.set_yscale("log")


# --- method, data ----------------------------------------------------------------------------------------------------


def _figures(histories: Sequence[History]) -> Iterator[Section]:
    for history in histories:
        made = tuple(figures_of(history))
        title = f"{history.package}: cost against release date"
        about = _prose("curves") if history is histories[0] else ()
        yield Section(f"{history.package}-curves", title, about, made, wide=True)


def _method(histories: Sequence[History], records: Sequence[RunRecord]) -> Section:
    twice = pd.concat([history.replicates for history in histories]).drop_duplicates(
        ["torch", "numpy", "hours"]
    )
    rows = pd.concat([history.rows for history in histories])
    times = rows[(rows["what"] == TIME) & ~rows["control"]]
    half = (times["high"] / times["low"]) ** 0.5 - 1  # half the 95 % interval of a point
    resolution = half.groupby(times["noise"], sort=False).median()
    alarms = pd.concat([history.false_alarms for history in histories]).to_dict("records")
    about = {
        "controls": rows[rows["control"]],
        "resolution": resolution,
        "twice": twice,
        "alarms": alarms,
    }
    said = _prose("method", histories=histories, records=records, **about)
    nodes = [_tabled("nodes", history=history) for history in histories]
    return Section(
        "method", "Machine and method", said, tables=(_tabled("replicates", twice=twice), *nodes)
    )


def sheet(results: Results, histories: Sequence[History]) -> dict[str, Any]:
    """The CSV file of histories, a row per series, release and kind of evidence, and the meaning of its columns."""
    rows = pd.concat([history.rows for history in histories], ignore_index=True)
    files = {
        (each.package, each.version): each.files
        for history in histories
        for each in history.releases
    }
    rows["files"] = [files[release] for release in zip(rows["package"], rows["release"])]
    rows["nbytes"] = pd.to_numeric(rows["nbytes"]).astype("Int64")
    parameters = [
        name for name in results.parameters if name != "direction" and rows[name].notna().any()
    ]
    columns = tables.columns("history", parameters=parameters, nodes="nodes_with" in rows)
    wanted = sorted(
        chain(*columns), key=lambda name: name not in ("package", "machine")
    )  # these two come first
    return {"csv": text_of(rows[wanted], digits=5), "columns": columns}


# --- the page over several machines -----------------------------------------------------------------------------------


def page_over_machines(machines: Sequence[str], changes: pd.DataFrame) -> Page:
    """The content of the page over all histories. changes: see ``history.changes_over_machines``."""
    found: dict[str, list[Any]] = {sort: [] for sort in (CONFIRMED, REFUTED, UNDETERMINED)}
    for _, rows in changes[changes["evidence"] != LAYOUT].groupby("change"):
        said = next(
            sort for sort in (REFUTED, UNDETERMINED, CONFIRMED) if sort in set(rows["said"])
        )
        found[said].append(rows.to_dict("records"))
    made = {
        sort: _tabled("shared", False, sort=sort, changes=each, machines=machines, most=MOST_SHARED)
        for sort, each in found.items()
    }
    columns = tables.columns("machines")
    return Page(
        title="What releases of torch and numpy changed, by machine",
        facts=(f"speed changes by release, compared across {len(machines)} machines",),
        boxes=(
            Box("The same everywhere, or only here", lines=_prose("over_machines", found=found)),
        ),
        legend=_prose("machines"),
        sections=[
            Section(sort.replace(" ", "-"), each.title, tables=(each,))
            for sort, each in made.items()
            if each
        ],
        links=(
            *((f"{machine}: all its changes", f"{quote(machine)}/") for machine in machines),
            ("What to use on each machine", "../"),
        ),
        command="python scripts/track.py",
        csv=text_of(changes[[*chain(*columns)]], digits=5),
        columns=columns,
        data="changes.csv",
    )


# --- what a release changed -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class News:
    """The changes of one release on a machine.

    before  the release before it
    row     of ``history.headlines``
    routes  its changes, one row per route, the largest change of time first
    """

    history: History
    release: Any
    before: Any
    row: dict[str, Any]
    routes: pd.DataFrame

    @property
    def title(self) -> str:
        """torch 2.10.0: 38 routes faster (median 1.12×), 8 slower"""
        return f"{self.release.name}: {headline(self.row)}"

    @property
    def lines(self) -> list[str]:
        """The routes with the largest changes, a line each."""
        return [summary(row) for row in self.routes.head(NAMED).to_dict("records")]

    @property
    def paragraph(self) -> str:
        seen = ledger.first_seen(self.history.package, self.release.version)
        return " ".join(_prose("news", news=self, seen=seen, headline=headline(self.row)))

    @property
    def address(self) -> str:
        return f"history/{quote(self.history.machine)}/index.html#{quote(self.release.tag)}"

    @property
    def exit_code(self) -> int:
        """0: no route is slower; 1: a route is slower or takes more instructions."""
        return 1 if self.row[SLOWER] or self.row[MORE] else 0


def news_in(history: History) -> list[News]:
    """News of every release but the oldest, the newest first."""
    found = largest_by_route(history.changes[history.changes["evidence"] != LAYOUT], "verdict")
    found = found.sort_values("what", key=lambda what: what != "time", kind="stable")
    told = zip(
        history.releases[::-1], history.releases[-2::-1], headlines(history).to_dict("records")
    )
    return [
        News(history, at, before, row, found[found["release"] == at.version])
        for at, before, row in told
    ]


def print_changes(
    results: Path, machine: str, releases: Sequence[ledger.Toolchain], into: Path | None
) -> list[int]:
    """Print the changes of each release on a machine, and write them if ``into`` is given. Return an exit code each (2:
    the release, or the one before it, was not measured there)."""
    if not releases:
        return []
    loaded = load(results, machine)
    known = {
        news.release.tag: news
        for history in histories_of(loaded).values()
        for news in news_in(history)
    }
    failed = {record.toolchain.tag: record.failed for record in loaded.runs if record.failed}
    for tag in (toolchain.tag for toolchain in releases):
        if tag not in known:
            why = f": {failed[tag]}" if tag in failed else " or is the oldest there"
            print(one_line(f"{tag} cannot be judged: it has no quiet figures on {machine}{why}"))
            continue
        print(show.to_plain(known[tag].paragraph))
        if into:
            into.mkdir(parents=True, exist_ok=True)
            put(into / f"{tag}.md", markdown(known[tag]))
            put(into / f"{tag}.json", as_json(known[tag]))
    return [
        known[toolchain.tag].exit_code if toolchain.tag in known else 2 for toolchain in releases
    ]


def markdown(news: News) -> str:
    """A heading and the paragraph, with a link to the page of the history."""
    place = f"reports/history/{news.history.machine}/README.md"
    heading, text = show.to_markdown(news.title), show.to_markdown(news.paragraph)
    return f"### {heading}\n\n{text} [The history]({place}).\n"


def as_json(news: News) -> str:
    """The news for programs. changed: verdict -> number of routes."""
    document = {
        "format": 2,
        "tag": news.release.tag,
        "release": news.release.name,
        "released": news.release.date,
        "first_seen": ledger.first_seen(news.history.package, news.release.version),
        "before": news.before.tag,
        "machine": news.history.machine,
        "measured": news.release.started,
        "title": news.title,
        "paragraph": show.bare(news.paragraph),
        "exit_code": news.exit_code,
        "changed": {verdict: news.row[verdict] for verdict in CHANGED if news.row[verdict]},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def write_feed(output: Path, histories: Sequence[History]) -> None:
    """Write the feed over the histories of all machines. If there are no histories, remove an older feed."""
    if not histories:
        (output / FEED).unlink(missing_ok=True)
        return
    every = chain(*map(news_in, sorted(histories, key=lambda history: -len(history.releases))))
    changed = [news for news in every if any(news.row[verdict] for verdict in CHANGED)]
    changed.sort(key=lambda news: (news.release.date, news.release.tag), reverse=True)
    entries = [
        _entry(tag, [*each]) for tag, each in groupby(changed, key=lambda news: news.release.tag)
    ]
    put(output / FEED, web("feed.xml.jinja", entries=entries, name=FEED, space=SPACE))


def _entry(tag: str, changes: Sequence[News]) -> dict[str, Any]:
    """updated: time of the newest measurement, or the day of the release if no run has a time."""
    started = [news.release.started for news in changes if news.release.started]
    updated = max(started, default=f"{changes[0].release.date}T12:00:00+00:00")
    return {"id": uuid.uuid5(SPACE, tag), "updated": updated, "news": changes}
