"""A history in words and tables: what changed, at which release, by how much; what is new; what has another meaning."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from analysis.findings import DTYPE, MEMORY, TAKEN, Semantic
from analysis.history import History
from analysis.levels import LEAST_RELEASES, Break, Series
from analysis.sessions import Release, Repeat
from analysis.steps import Counted
from analysis.verdicts import FASTER, SLOWER

from benchmarks.contracts import ALIAS, COPY
from benchmarks.families import CONVERSION
from pages import show
from pages.comparison_words import change, factor, number
from pages.figures import MEMCPY_LABEL, PANEL, slug
from pages.show import code
from pages.tables import Entry, Table, named

AT_MOST = 30  # rows of the largest changes; results.csv holds all
NAMED = ("route", "statement", "nbytes")  # parameters that stand by themselves
TOLD = 4  # changes that the head of the page names


@dataclass(frozen=True)
class Change:
    """What a release did to a route: the breaks of its cells in one direction, the largest first."""

    at: Release
    verdict: str
    breaks: tuple[tuple[Series, Break], ...]

    @property
    def largest(self) -> tuple[Series, Break]:
        return self.breaks[0]

    @property
    def size(self) -> float:
        return abs(math.log(self.largest[1].ratio))


@dataclass(frozen=True)
class Group:
    """Routes of one direction and kind of memory, float32: series by size and counts, by route. name: of the figure."""

    title: str
    name: str
    memory: str
    routes: Mapping[str, Sequence[Series]]
    counted: Mapping[str, Sequence[Counted]]


def changes(history: History) -> list[Change]:
    """Everything that was found slower or faster, a row a release and route, the largest first."""
    grouped: dict[tuple[str, str, str, str], list[tuple[Series, Break]]] = {}
    for series, broken in history.breaks:
        grouped.setdefault((broken.at.version, *series.key, broken.verdict), []).append((series, broken))
    made = [Change(breaks[0][1].at, key[3], tuple(breaks)) for key, breaks in grouped.items()]
    return sorted(made, key=lambda route_change: -route_change.size)


def direction(series: Series) -> str:
    """What a series is about beside its route."""
    declared = series.names["declared"]
    way, role = declared.direction, declared.role
    what = "" if role == CONVERSION else role or series.names["family"]
    return ", ".join(filter(None, (way, what)))


def route_of(series: Series | Counted) -> str:
    expression = series.names["route"] if isinstance(series.names["route"], str) else series.names["statement"]
    return code(expression) if isinstance(expression, str) else MEMCPY_LABEL


def anchors(labels: Iterable[str]) -> dict[str, str]:
    """Label -> id of its panel within a figure, made of what it is called; those alike but for case are numbered."""
    ids: dict[str, str] = {}
    for label in labels:
        name = f"{PANEL}{slug(label)}"
        taken = sum(other == name or other.startswith(f"{name}--") for other in ids.values())
        ids[label] = f"{name}--{taken + 1}" if taken else name
    return ids


def size_and_more(series: Series | Counted) -> tuple[str, str]:
    """Of a cell its size, and its other parameters; "" where it has none."""
    return show.size(series.nbytes) if series.nbytes else "", others(series.names["parameters"])


def others(parameters: Mapping[str, object]) -> str:
    """The parameters that do not stand by themselves, in words: "float32, 4 workers"."""
    return ", ".join(show.valued(name, value) for name, value in parameters.items() if name not in NAMED)


def place_of(series: Series | Counted) -> str:
    """Size, dtype and what else a cell has: "4 KiB, float32"."""
    return ", ".join(filter(None, size_and_more(series)))


def around(series: Series, broken: Break) -> tuple[float, float]:
    """Seconds at the levels before and after a break, the machine's drift taken out."""
    place = series.releases.index(broken.at)
    return math.exp(series.levels[place - 1]), math.exp(series.levels[place])


def on_nodes(broken: Break) -> str:
    """On which nodes a change is: "on 4 of 4 nodes", "only on node-b"; "" where one machine measured it."""
    having, lacking = ([on.node for on in broken.nodes if on.has is answer] for answer in (True, False))
    if not broken.nodes:
        return ""
    if having and len(having) + len(lacking) == len(broken.nodes) and len(having) <= len(lacking):
        return f"only on {show.join(having)}"
    said = f"on {len(having)} of {len(broken.nodes)} nodes"
    return said + (f", not on {show.join(lacking)}" if lacking else "")


def largest(history: History, route_changes: Sequence[Change], remark: Callable[[Change], list[str]]) -> Table:
    """remark: what there is to add to a change, as lines."""
    rows: list[tuple[Entry, ...]] = []
    for route_change in route_changes[:AT_MOST]:
        series, broken = route_change.largest
        effect, evidence = change(broken.verdict, broken.ratio, broken.low, broken.high, broken.q)
        old, new = (show.seconds(value) for value in around(series, broken))
        rows.append(
            (
                [route_change.at.name, route_change.at.date, *_or(history, route_change)],
                [route_of(series), direction(series)],
                [effect, evidence, *remark(route_change)],
                [place_of(series), f"{old} → {new}"],
                also(route_change) or "",
            )
        )
    rest = len(route_changes) - len(rows)
    notes: list[str] = [f"{rest} smaller changes are in results.csv."] if rest > 0 else []
    return Table(
        f"The largest changes, a row a route and release of {history.package}",
        ("release", "route", "change", "at", "and at"),
        tuple(rows),
        tuple(notes),
        numeric=False,
        ids=tuple(address(route_change) for route_change in route_changes[:AT_MOST]),
    )


def address(change: Change) -> str:
    """The id of a change, made of what it is about; routes that are alike but for case differ in its end."""
    about = (change.at.toolchain.tag, *change.largest[0].key, change.verdict)
    return f"{slug('change', *about)}-{sha256(' '.join(about).encode()).hexdigest()[:6]}"


def _or(history: History, route_change: Change) -> list[str]:
    """The other releases at which its largest break may have been, as a line to go below its release."""
    broken = route_change.largest[1]
    first, last = history.releases.index(broken.earliest), history.releases.index(broken.latest)
    others = [release.version for release in history.releases[first : last + 1] if release is not broken.at]
    if not others:
        return []
    return [f"or {show.join(others, 'or') if len(others) < 3 else f'{others[0]} to {others[-1]}'}"]


def also(route_change: Change) -> list[str]:
    """The other cells of a change, sizes first; dtypes of one size together."""
    cells = [
        (series, 1 / broken.ratio if broken.verdict == FASTER else broken.ratio)
        for series, broken in route_change.breaks[1:]
    ]
    return cells_by_size(cells)


def cells_by_size(cells: Iterable[tuple[Series | Counted, float]]) -> list[str]:
    """Cells with their factors, a line a size: "4 KiB, 5 dtypes: 1.10–1.20×"."""
    by_size: dict[str, list[tuple[str, float]]] = {}
    for series, ratio in cells:
        size, dtype = size_and_more(series)
        by_size.setdefault(size, []).append((dtype, ratio))
    words = []
    for size, same_size in sorted(by_size.items()):
        ratios = [ratio for _, ratio in same_size]
        ends = dict.fromkeys((number(min(ratios)), number(max(ratios))))
        span = f"{'–'.join(ends)}×"
        dtypes = show.join([dtype for dtype, _ in same_size]) if len(same_size) < 4 else f"{len(same_size)} dtypes"
        words.append(f"{', '.join(filter(None, (size, dtypes)))}: {span}")
    return words


def releases(history: History, route_changes: Sequence[Change]) -> Table:
    """A row a release: how many cells it changed, what is new, and its largest change."""
    rows: list[tuple[Entry, ...]] = []
    for release in history.releases:
        at_release = [route_change for route_change in route_changes if route_change.at is release]
        counts = [
            str(sum(len(route_change.breaks) for route_change in at_release if route_change.verdict == verdict) or "")
            for verdict in (SLOWER, FASTER)
        ]
        new = [appearance for appearance in history.appearances if appearance.at is release]
        meaning = [semantic for semantic in history.semantics if semantic.at is release]
        first = release is history.releases[0]
        rows.append(
            (
                [release.version, release.date],
                *(("", "") if first else counts),
                (f"{len(new)}" if new else ""),
                (f"{len(meaning)}" if meaning else ""),
                "where it begins" if first else (_short(history, at_release[0]) if at_release else ""),
            )
        )
    for version, reason in history.failed.items():
        rows.append((version, "", "", "", "", f"not measured: {reason}"))
    return Table(
        f"Releases of {history.package}, {history.held} held",
        (history.package, "cells slower", "cells faster", "new or gone", "meaning", "largest change"),
        tuple(rows),
        numeric=False,
        ids=tuple(release.toolchain.tag for release in history.releases),
    )


def _short(history: History, route_change: Change) -> str:
    series, broken = route_change.largest
    effect, _ = change(broken.verdict, broken.ratio, broken.low, broken.high, broken.q)
    other = "".join(f" ({text})" for text in _or(history, route_change))
    return f"{route_of(series)} {effect} at {place_of(series)}, {direction(series)}{other}"


def appeared(history: History) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for appearance in history.appearances:
        what = named(appearance.routes)
        dtypes = show.join(appearance.dtypes) if appearance.dtypes else "as a whole"
        word = "new" if appearance.gained else "gone"
        rows.append(
            (
                [appearance.at.name, appearance.at.date],
                word,
                what,
                f"{appearance.direction}, {dtypes}",
                appearance.reason,
            )
        )
    return Table(
        "What has a figure from a release on and had none before, or the other way round",
        ("release", "it is", "routes", "of", "otherwise"),
        tuple(rows),
        numeric=False,
    )


ABOUT = {MEMORY: "memory", DTYPE: "dtype of the result", TAKEN: "tensor that requires grad"}
SEEN: Mapping[str, Mapping[bool | str, str]] = {
    MEMORY: {True: ALIAS, False: COPY},
    TAKEN: {True: "taken", False: "refused"},
}


def meant(changed: Semantic) -> tuple[str, str]:
    """("memory", "alias → copy")"""
    seen = SEEN.get(changed.what, {})
    return ABOUT[changed.what], f"{seen.get(changed.old, changed.old)} → {seen.get(changed.new, changed.new)}"


def meaning(history: History) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for changed in history.semantics:
        dtypes = show.join(changed.dtypes) if changed.dtypes else "float32"
        rows.append(
            (
                [changed.at.name, changed.at.date],
                [code(changed.route), changed.direction],
                *meant(changed),
                dtypes,
            )
        )
    return Table(
        "Where a route means something else from a release on",
        ("release", "route", "what", "change", "of"),
        tuple(rows),
        numeric=False,
    )


def repeats(measured_again: Sequence[Repeat]) -> Table:
    """How far the machine was the same when it measured a toolchain again."""
    rows: list[tuple[Entry, ...]] = []
    for repeat in measured_again:
        name = (
            repeat.sooner.name
            if repeat.sooner is repeat.later
            else f"{repeat.sooner.name}, which is {repeat.later.name}"
        )
        half = f"{number(repeat.quarter, 3)} to {number(repeat.three_quarters, 3)}"
        rows.append(
            (
                name,
                f"{repeat.hours:.1f} h",
                str(repeat.cells),
                number(repeat.median, 3),
                half,
                number(repeat.controls, 3),
            )
        )
    return Table(
        "The same toolchain again: later time over sooner time",
        ("toolchain", "apart", "cells", "median", "half of them within", "memcpy and floor"),
        tuple(rows),
    )


def sessions(history: History) -> str:
    """What one visit differs from another by, in words."""
    by: dict[str, list[str]] = {}
    for family, sd in history.session_sd.items():
        by.setdefault(f"{100 * sd:.1f} %", []).append(family)
    if len(by) == 1:
        return next(iter(by))
    return show.join([f"{sd} for {show.join(families)}" for sd, families in by.items()])


def curves(timed: Iterable[Series], history: History) -> Table:
    """The points of a figure: seconds as measured, a row a series."""
    rows = [(series, [show.seconds(seconds) for seconds in np.exp(series.raw)]) for series in timed]
    return along("Seconds as measured, before the drift is taken out", rows, history)


def along(title: str, points: Iterable[tuple[Series | Counted, Sequence[str]]], history: History) -> Table:
    """A row a cell, with what it has at each release: an entry for each of its own."""
    versions = [release.version for release in history.releases]
    rows: list[tuple[Entry, ...]] = []
    for cell, entries in points:
        by_version = dict(zip((release.version for release in cell.releases), entries))
        label = ", ".join(filter(None, (route_of(cell), place_of(cell))))
        rows.append((label, *(by_version.get(version, "n/a") for version in versions)))
    return Table(title, ("route", *versions), tuple(rows))


def head(history: History, route_changes: Sequence[Change]) -> tuple[str, ...]:
    """What a history comes to, for the head of the page: how much changed, then the releases that changed the most."""
    cells, touched = len(history.series), {id(series) for series, _ in history.breaks}
    if len(history.releases) < LEAST_RELEASES:
        two = f"{history.releases[0].toolchain.tag} {history.releases[-1].toolchain.tag}"
        return (
            f"{len(history.releases)} releases are too few to tell a change from noise. A verdict on two: "
            f"{code(f'python scripts/compare.py {two}')}",
        )
    if not route_changes:
        return (f"No change of level was found in {cells} cells.",)
    lines = [release_line(group) for group in by_release(route_changes)[:TOLD]]
    return (f"{len(touched)} of {cells} cells changed level at least once, most of all at:", *lines)


def by_release(route_changes: Sequence[Change]) -> list[list[Change]]:
    """Changes of the same release and verdict together: first those whose cells changed the most in sum."""
    groups: dict[tuple[str, str], list[Change]] = {}
    for route_change in route_changes:
        groups.setdefault((route_change.at.version, route_change.verdict), []).append(route_change)
    return sorted(
        groups.values(),
        key=lambda group: -sum(abs(math.log(b.ratio)) for route_change in group for _, b in route_change.breaks),
    )


def release_line(route_changes: Sequence[Change]) -> str:
    """torch 2.11.0: 21 routes faster (156 cells, median 1.24×), most of all `t.detach().numpy()`, 1.39× at 1 MiB (…)"""
    series, broken = route_changes[0].largest
    effect, evidence = change(broken.verdict, broken.ratio, broken.low, broken.high, broken.q)
    old, new = (show.seconds(value) for value in around(series, broken))
    where = f"{place_of(series)}, {direction(series)} ({old} → {new}; {evidence})"
    where += "".join(f", {said}" for said in filter(None, [on_nodes(broken)]))
    cells = [abs(math.log(b.ratio)) for each in route_changes for _, b in each.breaks]
    if len(cells) == 1:
        return f"{route_changes[0].at.name}: {route_of(series)} {effect} at {where}"
    routes = len({route_change.largest[0].names["route"] for route_change in route_changes})
    middle = number(math.exp(float(np.median(cells))))
    return (
        f"{route_changes[0].at.name}: {routes} route{'s' if routes > 1 else ''} {broken.verdict} ({len(cells)} cells, "
        f"median {middle}×), most of all {route_of(series)}, {factor(broken.verdict, broken.ratio)} at {where}"
    )


def overall(history: History) -> str:
    """What the newest release takes of what the oldest took, in the cells that both measured."""
    first, last = history.releases[0], history.releases[-1]
    ratios = [
        float(cell.values[-1] - cell.values[0])
        for cell in history.series
        if cell.releases[0] is first and cell.releases[-1] is last
    ]
    if not ratios:
        return f"No cell was measured at both {first.name} and {last.version}."
    slower, faster = (sum(1 for ratio in ratios if sign * ratio > math.log(1.05)) for sign in (1, -1))
    return (
        f"From {first.name} to {last.version}: of {len(ratios)} cells that both measure, {faster} became more than "
        f"1.05× faster, {slower} more than 1.05× slower; the median cell takes "
        f"{number(math.exp(float(np.median(ratios))))}× the time."
    )
