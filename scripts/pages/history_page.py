"""The page of a machine's histories: what changed, release by release, then the curves, and how it was measured.

In pictures: routes × releases at one glance, and a panel per route, cost against the day of release.

And the page over several machines' histories: which changes are everywhere, and which on some machines only.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from analysis import findings
from analysis.history import DIFFERS, LAYOUT, NOT_KNOWN, ROUTE, SAME, History, headlines, over_machines
from analysis.results import Results
from analysis.statistics import MIN_PROCESSES
from analysis.verdicts import FASTER, FEWER, INSTRUCTIONS, SLOWER, TIME
from matplotlib.axes import Axes
from store.records import Record

from pages import show, tables
from pages.advice import Box, capital
from pages.comparison_words import factor, number
from pages.figures import INK, MARKERS, MONO, MUTED, POINTS, RATIOS, STYLE, Figure, finish, slug, ticks
from pages.page import Heat, Page, Section, Strip, Tile, write_into
from pages.show import code, prose
from pages.tables import Entry, Table, text_of

AT_MOST = 10  # routes that a release's table shows; results.csv has all
# Of pictures
ACROSS = 2  # panels in a row
PANEL, HEIGHT = 3.3, 1.5  # inches, of a plot of times
COUNTS, GAP = 0.6, 0.2  # of one of counts below it, and between the two
LEFT, RIGHT, HEAD, FOOT = 0.75, 0.15, 0.5, 0.35  # inches around each
LETTERS = 44  # of a route, that fit above a panel
FONT = 8.5  # points: 11 pixels on a page
SHADES = (1.02, 1.05, 1.1, 1.25, 1.5)  # factors from which on a tile is a shade darker
MEMORY_WORDS = {"alias": "sharing memory", "copy": "making a copy", "into": "into an existing buffer"}
GROUP = ["direction", "contract"]
# Of the page over several machines
MOST_SHARED = 30  # rows of a table; changes.csv has all
IN_BOX = 3  # changes of each sort that the head of the page names
SORTS = {
    SAME: "The same on every machine",
    DIFFERS: "Different on some machine",
    NOT_KNOWN: "Not known on some machine",
}


def link(histories: Sequence[History]) -> str:
    """What another page calls this one."""
    spans = [f"{history.releases[0].name} to {history.releases[-1].version}" for history in histories]
    return f"What releases changed: {show.join(spans)}"


def page_of(results: Results, histories: Sequence[History]) -> Page:
    """Everything the page of a machine's histories says."""
    machine = histories[0].machine
    files = {file for history in histories for release in history.releases for file in release.files}
    records = sorted(
        (record for file in files for record in results.sessions_of(file)), key=lambda record: record.started
    )
    commands = [record.command for record in records if record.command] or ["python scripts/track.py"]
    sections = [section for history in histories for section in _sections(results, history)]
    return Page(
        title=f"What releases of torch and numpy changed on {machine}",
        machine=machine,
        facts=_facts(histories, records),
        warnings=_warnings(results, histories, records),
        boxes=tuple(_box(history) for history in histories),
        heats=tuple(heat for history in histories for heat in heats_of(history)),
        legend=prose("history", "legend"),
        sections=[*sections, *_figures(histories), _method(histories, records)],
        links=((f"What to use on {machine}: every conversion with one toolchain", f"../../{quote(machine)}/"),),
        command=max(dict.fromkeys(commands), key=commands.count),
        **sheet(results, histories),
        samples=f"../../results/{quote(machine)}/",
        feed="../../feed.xml",
    )


def _facts(histories: Sequence[History], records: Sequence[Record]) -> tuple[str, ...]:
    days = sorted({record.started[:10] for record in records if record.started})
    span = " to ".join(dict.fromkeys((*days[:1], *days[-1:])))
    nodes = max(len(history.nodes) for history in histories)
    conditions = records[-1].conditions if records else None
    return prose("history", "facts", histories=histories, nodes=nodes, conditions=conditions, days=span)


def _warnings(results: Results, histories: Sequence[History], records: Sequence[Record]) -> tuple[str, ...]:
    changed = results.changed(pd.concat([history.rows for history in histories]))
    times = [history.rows.loc[history.rows["what"] == TIME, "processes"] for history in histories]
    few = [int(processes.median()) for processes in times if len(processes) and processes.median() < MIN_PROCESSES]
    about = {"histories": histories, "few": few, "changed": sum(changed)}
    return prose("history", "warnings", benchmarks=len(changed), **about, **_nodes_differ(records))


def _nodes_differ(records: Sequence[Record]) -> dict[str, Any]:
    """Of a fleet's records whether one machine stood for all nodes, and what of the machine is not the same on all."""
    of_fleet = [record for record in records if record.fleet]
    names = {"processor": "cpu", "cores": "cores", "caches": "caches", "C library": "libc"}
    known = {name: {str(getattr(each.conditions, of)) for each in of_fleet} for name, of in names.items()}
    return {
        "pretended": any(record.fleet.get("engine") == "debug" for record in of_fleet),
        "unlike": [name for name, values in known.items() if len(values) > 1],
    }


# --- in words --------------------------------------------------------------------------------------------------------


def headline(row: Any) -> str:
    """Of a row of ``headlines``: "38 routes faster (median 1.12×), 8 slower (median 1.04×)"."""
    return show.said("history", "headline", row=row, factor=factor)


def effect_of(row: Any, unit: str = "") -> str:
    """A change with its interval: "1.31× faster (1.29–1.32)", "1.10× fewer"."""
    ratio, low, high = (float(row[name]) for name in ("ratio", "ratio_low", "ratio_high"))
    if row["verdict"] in (FASTER, FEWER):
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    ends = list(dict.fromkeys((number(low), number(high))))
    exact = row["what"] == INSTRUCTIONS and len(ends) == 1
    return f"{number(ratio)}× {row['verdict']}{unit}" + ("" if exact else f" ({'–'.join(ends)})")


def route_of(row: Any) -> list[str]:
    """The route of a row, and what it is beside."""
    expression = row["route"] if isinstance(row["route"], str) else row["statement"]
    name = code(expression) if isinstance(expression, str) else row["group"]
    return [name, ", ".join(filter(None, (str(row["direction"]), grad_of(row))))]


def named_route(row: Any) -> str:
    """The same in a line."""
    return ", ".join(filter(None, route_of(row)))


def where(row: Any) -> str:
    """The sizes and the other parameters of a row in words: "4 KiB to 16 MiB, float32"."""
    others = (show.valued(name, row[name]) for name in ("dtype", "layout", "threads") if isinstance(row[name], str))
    return ", ".join(filter(None, (show.span(row["sizes"]), *others)))


def summary(row: Any) -> str:
    """A change in one line: `t.numpy()`, torch→numpy: 1.31× faster (1.29–1.32), 4 KiB to 16 MiB"""
    effect = effect_of(row, " instructions" if row["what"] == INSTRUCTIONS else "")
    return f"{named_route(row)}: {', '.join(filter(None, (effect, show.span(row['sizes']))))}"


def _box(history: History) -> Box:
    """What each release came to, the newest first."""
    first, last = history.releases[0], history.releases[-1]
    changes = history.changes[history.changes["evidence"] != LAYOUT]
    largest = changes[changes["what"] == TIME].groupby("release").head(1).set_index("release")
    rows = []
    for row in _headlines(history):
        most = summary(largest.loc[row["release"]]) if row["release"] in largest.index else ""
        rows.append((row["tag"], (f"{history.package} {row['release']} ({row['date']})", headline(row), most)))
    columns = ("release", "routes that changed, once each", "largest change of time")
    return Box(f"{first.name} to {last.version}, {history.held}", columns=columns, rows=tuple(rows))


def _headlines(history: History) -> list[dict[str, Any]]:
    return headlines(history).iloc[:-1].to_dict("records")  # nothing comes before the oldest


# --- a section per release -------------------------------------------------------------------------------------------


def _sections(results: Results, history: History) -> Iterator[Section]:
    appeared = list(findings.appearances(results, history.releases))
    meant = list(findings.redefined(results, history.releases))
    for release, row in zip(history.releases[::-1], _headlines(history)):
        behaviour = prose("history", "behaviour", at=release, appeared=appeared, meant=meant)
        own = history.changes[history.changes["release"] == release.version]
        intro = (f"{capital(headline(row))}.", *behaviour)
        yield Section(release.tag, f"{release.name}, {release.date}", intro, tables=_changes(history, own, release))


def _changes(history: History, own: pd.DataFrame, release: Any) -> tuple[Table, ...]:
    """Slower routes, then faster ones, then those of which instructions alone changed: a row per route."""
    layout = own["evidence"] == LAYOUT
    times_first = own[~layout].sort_values("what", key=lambda what: what != TIME, kind="stable")
    route = times_first.groupby(ROUTE, sort=False, dropna=False).ngroup()
    first = times_first.assign(number=route)[~route.duplicated()]
    kinds = first["verdict"].where(first["what"] == TIME, INSTRUCTIONS)
    rows: list[tuple[Entry, ...]] = []
    for kind, words in {SLOWER: SLOWER, FASTER: FASTER, INSTRUCTIONS: "with other instructions"}.items():
        mine = first[kinds == kind]
        for largest in mine.head(AT_MOST).to_dict("records"):
            each = times_first[route == largest["number"]]
            times, counts = each[each["what"] == TIME], each[each["what"] == INSTRUCTIONS]
            evidence = prose("history", "evidence", row=largest, time=TIME, nodes=len(history.nodes))
            lines = prose("history", "times", times=times.to_dict("records"), effect_of=effect_of)
            rows.append((route_of(largest), [*lines], _counts(counts), [*evidence]))
        if len(mine) > AT_MOST:
            rows.append((f"{len(mine) - AT_MOST} more {words}: rows of this release in results.csv", "", "", ""))
    small = int((layout & (own["what"] == TIME)).sum())
    if small:
        rows.append((*prose("history", "layout", small=small), "same instructions"))
    columns = ("route", "time", "instructions", "evidence")
    return (Table(f"What {release.name} changed", columns, tuple(rows), numeric=False),) if rows else ()


def _counts(counts: pd.DataFrame) -> list[str]:
    """The largest change of a count, and the range over dtypes and sizes."""
    lines = []
    for verdict, each in counts.groupby("verdict", sort=False):
        first = each.sort_values("dtype", key=lambda dtypes: dtypes != "float32", kind="stable").iloc[0]
        line = f"{effect_of(first)}: {first['level'] / first['ratio']:,.0f} → {first['level']:,.0f}"
        ratios = [float(number(1 / ratio if verdict == FEWER else ratio)) for ratio in each["ratio"]]
        span = "–".join(dict.fromkeys(f"{ratio:.2f}" for ratio in (min(ratios), max(ratios))))
        lines += [line, *([f"{len(each)} cells: {span}×"] if len(each) > 1 else [])]
    return lines


# --- pictures ---------------------------------------------------------------------------------------------------------


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


# --- method, data ----------------------------------------------------------------------------------------------------


def _figures(histories: Sequence[History]) -> Iterator[Section]:
    for history in histories:
        made = tuple(figures_of(history))
        title = f"{history.package}: cost against release date"
        about = prose("history", "curves", history=history) if history is histories[0] else ()
        yield Section(f"{history.package}-curves", title, about, made, wide=True)


def _method(histories: Sequence[History], records: Sequence[Record]) -> Section:
    twice = pd.concat([history.replicates for history in histories]).drop_duplicates(["torch", "numpy", "hours"])
    alarms = pd.concat([history.false_alarms for history in histories])
    rows = pd.concat([history.rows for history in histories])
    controls, times = rows[rows["control"]], rows[(rows["what"] == TIME) & ~rows["control"]]
    half = (times["high"] / times["low"]) ** 0.5 - 1  # of the 95 % interval of a point
    shares = [record.quiet for record in records if record.quiet is not None]
    newest = histories[0].releases[-2:]
    tables = (_replicates(twice), *(_nodes(history) for history in histories if len(history.nodes)))
    return Section(
        "method",
        "Machine and method",
        prose(
            "history",
            "method",
            histories=histories,
            samples=sum(record.samples for record in records),
            quiet=show.percents(shares) if shares else "",
            resolution=half.groupby(times["noise"], sort=False).median(),
            twice=twice,
            alarms=[
                f"{row['package']} {row['release']}, {named_route(row)}: {effect_of(row)}"
                for row in alarms.to_dict("records")
            ],
            controls=len(controls[["package", "series"]].drop_duplicates()),
            example=" ".join((*(each.tag for each in newest), "--machine", histories[0].machine)),
            several=any(len(history.nodes) for history in histories),
        ),
        tables=tuple(filter(None, tables)),
    )


def _replicates(twice: pd.DataFrame) -> Table:
    rows = [
        (f"torch {row['torch']}, numpy {row['numpy']}", f"{row['hours']:.1f} h", str(row["series"]))
        + (f"{number(row['median'], 3)}×", show.percent(row["half"] - 1, 1), str(row["flagged"]))
        for row in twice.to_dict("records")
    ]
    columns = ("toolchain", "time between", "series", "median ratio", "half within ±", "reported")
    return Table("The same toolchain measured twice: any reported change is a false alarm", columns, tuple(rows))


def _nodes(history: History) -> Table:
    rows = [
        (row["node"] or "the machine itself", str(row["releases"]), str(row["sessions"]), f"{number(row['ratio'], 3)}×")
        for row in history.nodes.to_dict("records")
    ]
    return Table(
        f"Nodes of {history.package}'s history",
        ("node", "releases", "sessions", "time over the mean node"),
        tuple(rows),
    )


def sheet(results: Results, histories: Sequence[History]) -> dict[str, Any]:
    """The CSV file of histories, a row per series, release and kind of evidence, and what its columns mean."""
    rows = pd.concat([history.rows for history in histories], ignore_index=True)
    releases = [(history.package, release) for history in histories for release in history.releases]
    files = {(package, release.version): release.files for package, release in releases}
    rows["files"] = [files[release] for release in zip(rows["package"], rows["release"])]
    rows["nbytes"] = pd.to_numeric(rows["nbytes"]).astype("Int64")
    parameters = [name for name in results.parameters if name != "direction" and rows[name].notna().any()]
    columns = tables.columns("history", parameters=parameters, nodes="nodes_with" in rows)
    wanted = sorted(chain(*columns), key=lambda name: name not in ("package", "machine"))  # these two come first
    return {"csv": text_of(rows[wanted], digits=5), "columns": columns}


# --- the page over several machines -----------------------------------------------------------------------------------


def write_over_machines(output: Path, histories: Mapping[str, Sequence[History]]) -> Path | None:
    """Write index.html, README.md and changes.csv over machines with histories; None where no two have a route in
    common."""
    changes = over_machines(histories)
    return None if changes.empty else write_into(output, page_over_machines(list(histories), changes))


def page_over_machines(machines: Sequence[str], changes: pd.DataFrame) -> Page:
    """Everything the page over all histories says. changes: see ``over_machines``."""
    told = changes[changes["evidence"] != LAYOUT].groupby("change")["said"].agg(set)
    said = told.map(lambda each: next(sort for sort in (DIFFERS, NOT_KNOWN, SAME) if sort in each))
    numbers = {sort: said.index[said == sort] for sort in SORTS}
    counts = {sort.replace(" ", "_"): len(found) for sort, found in numbers.items()}
    lines = [*prose("history", "over_machines", every=len(said), **counts)]
    for sort, word in ((SAME, "Same"), (DIFFERS, "Differs")):
        routes = changes[changes["change"].isin(numbers[sort])].drop_duplicates("route")["change"]
        lines += [f"{word}: {_change(changes, number)}" for number in routes[:IN_BOX]]
    found = {sort: _table(title, machines, changes, numbers[sort]) for sort, title in SORTS.items()}
    columns = tables.columns("machines")
    return Page(
        title="What releases of torch and numpy changed, by machine",
        machine="",
        facts=(f"speed changes by release, compared across {len(machines)} machines",),
        warnings=(),
        boxes=(Box("The same everywhere, or only here", lines=tuple(lines)),),
        legend=prose("history", "machines"),
        sections=[
            Section(sort.replace(" ", "-"), table.title, tables=(table,)) for sort, table in found.items() if table.rows
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


def _change(changes: pd.DataFrame, shared: int) -> str:
    """torch 2.0.1, `torch.tensor(a)`, numpy→torch: 1.2× slower on one, 1.3× slower on other (4 KiB)"""
    rows = changes[changes["change"] == shared].to_dict("records")
    on = show.join([f"{effect_of(row)} on {row['machine']}" for row in rows])
    unit = ", instructions" if rows[0]["what"] == INSTRUCTIONS else ""
    return f"{rows[0]['package']} {rows[0]['release']}, {named_route(rows[0])}{unit}: {on} ({where(rows[0])})"


def _table(title: str, machines: Sequence[str], changes: pd.DataFrame, numbers: "pd.Index[Any]") -> Table:
    """A row per change, a column per machine: its effect there, and between which releases if these are others."""
    rows: list[tuple[Entry, ...]] = []
    for change in numbers[:MOST_SHARED]:
        of_change = changes[changes["change"] == change]
        first, spans = of_change.iloc[0], of_change["since"] + " to " + of_change["until"]
        effects = zip(of_change.to_dict("records"), spans)
        on = {row["machine"]: [effect_of(row), *([span] if span != spans.iloc[0] else [])] for row, span in effects}
        known = (f"{first['package']} {first['release']}", route_of(first), first["what"], where(first))
        rows.append((*known, *(on.get(machine, "") for machine in machines)))
    more = f"{len(numbers) - MOST_SHARED:,} more are in changes.csv."
    columns = ("release", "route", "what", "at", *machines)
    return Table(title, columns, tuple(rows), (more,) if len(numbers) > MOST_SHARED else (), numeric=False)
