"""A history in words and tables: what changed, at which release, by how much; what is new; what has another meaning."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from analysis.contracts import ALIAS, COPY
from analysis.history import LEAST_RELEASES, Break, History, Release, Repeat, Semantic, Series
from analysis.roles import CONVERSION
from analysis.semantics import DTYPE, MEMORY, TAKEN
from analysis.steps import Counted
from analysis.verdicts import FASTER, SLOWER

from pages import show
from pages.comparison.words import change, factor, number
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
    found: dict[tuple[str, str, str, str], list[tuple[Series, Break]]] = {}
    for series, one in history.breaks:
        found.setdefault((one.at.version, *series.key, one.verdict), []).append((series, one))
    made = [Change(own[0][1].at, key[3], tuple(own)) for key, own in found.items()]
    return sorted(made, key=lambda one: -one.size)


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
    found: dict[str, str] = {}
    for label in labels:
        name = f"{PANEL}{slug(label)}"
        taken = sum(other == name or other.startswith(f"{name}--") for other in found.values())
        found[label] = f"{name}--{taken + 1}" if taken else name
    return found


def size_and_more(series: Series | Counted) -> tuple[str, str]:
    """Of a cell its size, and its other parameters; "" where it has none."""
    others = {name: value for name, value in series.names["parameters"].items() if name not in NAMED}
    more = ", ".join(show.valued(name, value) for name, value in others.items())
    return show.size(series.nbytes) if series.nbytes else "", more


def place_of(series: Series | Counted) -> str:
    """Size, dtype and what else a cell has: "4 KiB, float32"."""
    return ", ".join(filter(None, size_and_more(series)))


def around(series: Series, one: Break) -> tuple[float, float]:
    """Seconds at the levels before and after a break, the machine's drift taken out."""
    place = series.releases.index(one.at)
    return math.exp(series.levels[place - 1]), math.exp(series.levels[place])


def on_nodes(one: Break) -> str:
    """On which nodes a change is: "on 4 of 4 nodes", "only on node-b"; "" where one machine measured it."""
    having, lacking = ([on.node for on in one.nodes if on.has is told] for told in (True, False))
    if not one.nodes:
        return ""
    if having and len(having) + len(lacking) == len(one.nodes) and len(having) <= len(lacking):
        return f"only on {show.join(having)}"
    said = f"on {len(having)} of {len(one.nodes)} nodes"
    return said + (f", not on {show.join(lacking)}" if lacking else "")


def largest(history: History, found: Sequence[Change], remark: Callable[[Change], list[str]]) -> Table:
    """remark: what there is to add to a change, as lines."""
    rows: list[tuple[Entry, ...]] = []
    for one in found[:AT_MOST]:
        series, broken = one.largest
        effect, evidence = change(broken.verdict, broken.ratio, broken.low, broken.high, broken.q)
        old, new = (show.seconds(value) for value in around(series, broken))
        rows.append(
            (
                [one.at.name, one.at.date, *_or(history, one)],
                [route_of(series), direction(series)],
                [effect, evidence, *remark(one)],
                [place_of(series), f"{old} → {new}"],
                also(one) or "",
            )
        )
    rest = len(found) - len(rows)
    notes: list[str] = [f"{rest} smaller changes are in results.csv."] if rest > 0 else []
    return Table(
        f"The largest changes, a row a route and release of {history.package}",
        ("release", "route", "change", "at", "and at"),
        tuple(rows),
        tuple(notes),
        numeric=False,
        ids=tuple(address(one) for one in found[:AT_MOST]),
    )


def address(change: Change) -> str:
    """The id of a change, made of what it is about; routes that are alike but for case differ in its end."""
    about = (change.at.toolchain.tag, *change.largest[0].key, change.verdict)
    return f"{slug('change', *about)}-{sha256(' '.join(about).encode()).hexdigest()[:6]}"


def _or(history: History, found: Change) -> list[str]:
    """The other releases at which its largest break may have been, as a line to go below its release."""
    one = found.largest[1]
    first, last = history.releases.index(one.earliest), history.releases.index(one.latest)
    others = [release.version for release in history.releases[first : last + 1] if release is not one.at]
    if not others:
        return []
    return [f"or {show.join(others, 'or') if len(others) < 3 else f'{others[0]} to {others[-1]}'}"]


def also(found: Change) -> list[str]:
    """The other cells of a change, sizes first; dtypes of one size together."""
    cells = [(series, 1 / one.ratio if one.verdict == FASTER else one.ratio) for series, one in found.breaks[1:]]
    return cells_by_size(cells)


def cells_by_size(cells: Iterable[tuple[Series | Counted, float]]) -> list[str]:
    """Cells with their factors, a line a size: "4 KiB, 5 dtypes: 1.10–1.20×"."""
    by_size: dict[str, list[tuple[str, float]]] = {}
    for series, ratio in cells:
        size, dtype = size_and_more(series)
        by_size.setdefault(size, []).append((dtype, ratio))
    words = []
    for size, own in sorted(by_size.items()):
        ratios = [ratio for _, ratio in own]
        ends = dict.fromkeys((number(min(ratios)), number(max(ratios))))
        span = f"{'–'.join(ends)}×"
        dtypes = show.join([dtype for dtype, _ in own]) if len(own) < 4 else f"{len(own)} dtypes"
        words.append(f"{', '.join(filter(None, (size, dtypes)))}: {span}")
    return words


def releases(history: History, found: Sequence[Change]) -> Table:
    """A row a release: how many cells it changed, what is new, and its largest change."""
    rows: list[tuple[Entry, ...]] = []
    for release in history.releases:
        own = [one for one in found if one.at is release]
        counts = [
            str(sum(len(one.breaks) for one in own if one.verdict == verdict) or "") for verdict in (SLOWER, FASTER)
        ]
        new = [one for one in history.appearances if one.at is release]
        meaning = [one for one in history.semantics if one.at is release]
        first = release is history.releases[0]
        rows.append(
            (
                [release.version, release.date],
                *(("", "") if first else counts),
                (f"{len(new)}" if new else ""),
                (f"{len(meaning)}" if meaning else ""),
                "where it begins" if first else (_short(history, own[0]) if own else ""),
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


def _short(history: History, found: Change) -> str:
    series, one = found.largest
    effect, _ = change(one.verdict, one.ratio, one.low, one.high, one.q)
    other = "".join(f" ({text})" for text in _or(history, found))
    return f"{route_of(series)} {effect} at {place_of(series)}, {direction(series)}{other}"


def appeared(history: History) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for one in history.appearances:
        what = named(one.routes)
        dtypes = show.join(one.dtypes) if one.dtypes else "as a whole"
        word = "new" if one.gained else "gone"
        rows.append(([one.at.name, one.at.date], word, what, f"{one.direction}, {dtypes}", one.reason))
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


def repeats(found: Sequence[Repeat]) -> Table:
    """How far the machine was the same when it measured a toolchain again."""
    rows: list[tuple[Entry, ...]] = []
    for one in found:
        name = one.sooner.name if one.sooner is one.later else f"{one.sooner.name}, which is {one.later.name}"
        half = f"{number(one.quarter, 3)} to {number(one.three_quarters, 3)}"
        rows.append((name, f"{one.hours:.1f} h", str(one.cells), number(one.median, 3), half, number(one.controls, 3)))
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


def curves(own: Iterable[Series], history: History) -> Table:
    """The points of a figure: seconds as measured, a row a series."""
    rows = [(series, [show.seconds(seconds) for seconds in np.exp(series.raw)]) for series in own]
    return along("Seconds as measured, before the drift is taken out", rows, history)


def along(title: str, points: Iterable[tuple[Series | Counted, Sequence[str]]], history: History) -> Table:
    """A row a cell, with what it has at each release: an entry for each of its own."""
    versions = [release.version for release in history.releases]
    rows: list[tuple[Entry, ...]] = []
    for one, entries in points:
        found = dict(zip((release.version for release in one.releases), entries))
        label = ", ".join(filter(None, (route_of(one), place_of(one))))
        rows.append((label, *(found.get(version, "n/a") for version in versions)))
    return Table(title, ("route", *versions), tuple(rows))


def head(history: History, found: Sequence[Change]) -> tuple[str, ...]:
    """What a history comes to, for the head of the page: how much changed, then the releases that changed the most."""
    cells, touched = len(history.series), {id(series) for series, _ in history.breaks}
    if len(history.releases) < LEAST_RELEASES:
        two = f"{history.releases[0].toolchain.tag} {history.releases[-1].toolchain.tag}"
        return (
            f"{len(history.releases)} releases are too few to tell a change from noise. A verdict on two: "
            f"{code(f'python scripts/compare.py {two}')}",
        )
    if not found:
        return (f"No change of level was found in {cells} cells.",)
    told = [release_line(own) for own in by_release(found)[:TOLD]]
    return (f"{len(touched)} of {cells} cells changed level at least once, most of all at:", *told)


def by_release(found: Sequence[Change]) -> list[list[Change]]:
    """Changes of the same release and verdict together: first those whose cells changed the most in sum."""
    groups: dict[tuple[str, str], list[Change]] = {}
    for one in found:
        groups.setdefault((one.at.version, one.verdict), []).append(one)
    return sorted(groups.values(), key=lambda own: -sum(abs(math.log(b.ratio)) for one in own for _, b in one.breaks))


def release_line(own: Sequence[Change]) -> str:
    """torch 2.11.0: 21 routes faster (156 cells, median 1.24×), most of all `t.detach().numpy()`, 1.39× at 1 MiB (…)"""
    series, one = own[0].largest
    effect, evidence = change(one.verdict, one.ratio, one.low, one.high, one.q)
    old, new = (show.seconds(value) for value in around(series, one))
    where = f"{place_of(series)}, {direction(series)} ({old} → {new}; {evidence})"
    where += "".join(f", {said}" for said in filter(None, [on_nodes(one)]))
    cells = [abs(math.log(b.ratio)) for each in own for _, b in each.breaks]
    if len(cells) == 1:
        return f"{own[0].at.name}: {route_of(series)} {effect} at {where}"
    routes = len({one.largest[0].names["route"] for one in own})
    middle = number(math.exp(float(np.median(cells))))
    return (
        f"{own[0].at.name}: {routes} route{'s' if routes > 1 else ''} {one.verdict} ({len(cells)} cells, "
        f"median {middle}×), most of all {route_of(series)}, {factor(one.verdict, one.ratio)} at {where}"
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
