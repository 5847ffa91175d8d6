"""A history in words and tables: what changed, at which release, by how much; what is new; what has another meaning.

Then what counts of instructions add to it, and where they and times disagree; and, of several nodes, where a change is,
what nodes add, and where their counts differ.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

import numpy as np
from analysis.changes import LEAST_RELEASES, Break, Counted, Finding, Series, Step
from analysis.findings import DTYPE, MEMORY, TAKEN, Semantic
from analysis.history import History, Nodes
from analysis.sessions import Release, Repeat
from analysis.verdicts import FASTER, FEWER, MORE, SLOWER

from benchmarks.contracts import ALIAS, COPY
from benchmarks.families import CONVERSION
from pages import show
from pages.comparison_words import change, factor, number
from pages.figures import MEMCPY_LABEL, PANEL, slug
from pages.page import Section
from pages.show import code, prose
from pages.tables import Entry, Table, named

AT_MOST = 30  # rows of the largest changes; results.csv holds all
MOST_ROWS = 20  # rows of changes on some nodes
NAMED = ("route", "statement", "nbytes")  # parameters that stand by themselves
TOLD = 4  # changes that the head of the page names
ABOUT = {MEMORY: "memory", DTYPE: "dtype of the result", TAKEN: "tensor that requires grad"}
SEEN: Mapping[str, Mapping[bool | str, str]] = {
    MEMORY: {True: ALIAS, False: COPY},
    TAKEN: {True: "taken", False: "refused"},
}
COUNTED = {MORE: "more {}", FEWER: "fewer {}", "": "as many {}"}
TIMED = {SLOWER: "more time", FASTER: "less time", "": "no change of time was found"}
ELSEWHERE = "not the call's own work, such as memory or the machine"

Found = tuple[Counted, Finding]
T = TypeVar("T")


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


def changes(history: History) -> list[Change]:
    """Everything that was found slower or faster, a row a release and route, the largest first."""
    alike = together(history.breaks, lambda pair: (pair[1].at.version, pair[0].key, pair[1].verdict))
    made = [Change(breaks[0][1].at, breaks[0][1].verdict, tuple(breaks)) for breaks in alike]
    return sorted(made, key=lambda route_change: -route_change.size)


def together(items: Iterable[T], by: Callable[[T], Hashable]) -> list[list[T]]:
    """Those alike together, in the order of the first of each."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return list(groups.values())


def section(key: str, title: str, about: tuple[str, ...], *tables: Table) -> Section:
    """A part of a page, of those tables that are not empty."""
    return Section(key, title, about, tables=tuple(filter(None, tables)))


def left_out(rows: int, most: int, words: str) -> tuple[str, ...]:
    """The note of a table that shows no more than ``most`` rows."""
    return (f"{rows - most} {words}.",) if rows > most else ()


# --- cells and changes in words --------------------------------------------------------------------------------------


def direction(cell: Series | Counted) -> str:
    """What a cell is about beside its route."""
    declared = cell.names["declared"]
    timed = isinstance(cell, Series) and declared.role != CONVERSION
    return ", ".join(filter(None, (declared.direction, (declared.role or cell.names["family"]) if timed else "")))


def route_of(cell: Series | Counted) -> str:
    expression = cell.names["route"] if isinstance(cell.names["route"], str) else cell.names["statement"]
    return code(expression) if isinstance(expression, str) else MEMCPY_LABEL


def anchors(labels: Iterable[str]) -> dict[str, str]:
    """Label -> id of its panel within a figure, made of what it is called; those alike but for case are numbered."""
    ids: dict[str, str] = {}
    for label in labels:
        name = f"{PANEL}{slug(label)}"
        taken = sum(other == name or other.startswith(f"{name}--") for other in ids.values())
        ids[label] = f"{name}--{taken + 1}" if taken else name
    return ids


def size_and_more(cell: Series | Counted) -> tuple[str, str]:
    """Of a cell its size, and its other parameters; "" where it has none."""
    return show.size(cell.nbytes) if cell.nbytes else "", others(cell.names["parameters"])


def others(parameters: Mapping[str, object]) -> str:
    """The parameters that do not stand by themselves, in words: "float32, 4 workers"."""
    return ", ".join(show.valued(name, value) for name, value in parameters.items() if name not in NAMED)


def place_of(cell: Series | Counted) -> str:
    """Size, dtype and what else a cell has: "4 KiB, float32"."""
    return ", ".join(filter(None, size_and_more(cell)))


def effect_of(broken: Break) -> tuple[str, str]:
    """A break and its evidence, see ``comparison_words.change``."""
    return change(broken.verdict, broken.ratio, broken.low, broken.high, broken.q)


def around(series: Series, broken: Break) -> str:
    """Seconds at the levels before and after a break, the machine's drift taken out: "391 ns → 420 ns"."""
    place = series.releases.index(broken.at)
    return " → ".join(show.seconds(math.exp(level)) for level in series.levels[place - 1 : place + 1])


def on_nodes(broken: Break) -> str:
    """On which nodes a change is: "on 4 of 4 nodes", "only on node-b"; "" where one machine measured it."""
    having, lacking = ([on.node for on in broken.nodes if on.has is answer] for answer in (True, False))
    if not broken.nodes:
        return ""
    if having and len(having) + len(lacking) == len(broken.nodes) and len(having) <= len(lacking):
        return f"only on {show.join(having)}"
    said = f"on {len(having)} of {len(broken.nodes)} nodes"
    return said + (f", not on {show.join(lacking)}" if lacking else "")


def cells_by_size(cells: Iterable[tuple[Series | Counted, float]]) -> list[str]:
    """Cells with their factors, a line a size: "4 KiB, 5 dtypes: 1.10–1.20×"."""
    by_size: dict[str, list[tuple[str, float]]] = {}
    for cell, ratio in cells:
        size, dtype = size_and_more(cell)
        by_size.setdefault(size, []).append((dtype, ratio))
    words = []
    for size, same_size in sorted(by_size.items()):
        ratios = [ratio for _, ratio in same_size]
        span = "–".join(dict.fromkeys((number(min(ratios)), number(max(ratios)))))
        dtypes = show.join([dtype for dtype, _ in same_size]) if len(same_size) < 4 else f"{len(same_size)} dtypes"
        words.append(f"{', '.join(filter(None, (size, dtypes)))}: {span}×")
    return words


def _or(history: History, broken: Break) -> list[str]:
    """The other releases at which a break may have been, as a line to go below its release."""
    first, last = history.releases.index(broken.earliest), history.releases.index(broken.latest)
    versions = [release.version for release in history.releases[first : last + 1] if release is not broken.at]
    few = show.join(versions, "or") if len(versions) < 3 else f"{versions[0]} to {versions[-1]}"
    return [f"or {few}"] if versions else []


# --- the head of the page --------------------------------------------------------------------------------------------


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


def head(history: History, route_changes: Sequence[Change]) -> tuple[str, ...]:
    """What a history comes to: how much changed, then the releases that changed the most."""
    cells, touched = len(history.series), {id(series) for series, _ in history.breaks}
    if not cells:
        steps = steps_by_release(history)
        noiseless = f"Nothing was timed; {unit(history)} have no noise. Most of all changed at:"
        lines = [f"{pairs[0][1].at.name}: {steps_line(pairs)}" for pairs in steps[:TOLD]]
        return (noiseless if steps else "Nothing changed.", *lines)
    if len(history.releases) < LEAST_RELEASES:
        two = f"{history.releases[0].toolchain.tag} {history.releases[-1].toolchain.tag}"
        few = f"{len(history.releases)} releases are too few to tell a change from noise. A verdict on two"
        return overall(history), f"{few}: {code(f'python scripts/compare.py {two}')}"
    if not route_changes:
        return overall(history), f"No change of level was found in {cells} cells."
    lines = [release_line(group) for group in by_release(route_changes)[:TOLD]]
    changed = f"{len(touched)} of {cells} cells changed level at least once, most of all at:"
    return overall(history), changed, *lines


def by_release(route_changes: Sequence[Change]) -> list[list[Change]]:
    """Changes of the same release and verdict together: first those whose cells changed the most in sum."""
    groups = together(route_changes, lambda route_change: (route_change.at.version, route_change.verdict))
    return sorted(groups, key=lambda group: -sum(_sizes(group)))


def _sizes(route_changes: Sequence[Change]) -> list[float]:
    return [abs(math.log(broken.ratio)) for route_change in route_changes for _, broken in route_change.breaks]


def release_line(route_changes: Sequence[Change]) -> str:
    """torch 2.11.0: 21 routes faster (156 cells, median 1.24×), most of all `t.detach().numpy()`, 1.39× at 1 MiB (…)"""
    series, broken = route_changes[0].largest
    effect, evidence = effect_of(broken)
    where = f"{place_of(series)}, {direction(series)} ({around(series, broken)}; {evidence})"
    where = ", ".join(filter(None, (where, on_nodes(broken))))
    cells = _sizes(route_changes)
    if len(cells) == 1:
        return f"{broken.at.name}: {route_of(series)} {effect} at {where}"
    routes = len({route_change.largest[0].names["route"] for route_change in route_changes})
    middle = number(math.exp(float(np.median(cells))))
    return (
        f"{broken.at.name}: {routes} route{'s' if routes > 1 else ''} {broken.verdict} ({len(cells)} cells, "
        f"median {middle}×), most of all {route_of(series)}, {factor(broken.verdict, broken.ratio)} at {where}"
    )


# --- what changed ----------------------------------------------------------------------------------------------------


def largest(history: History, route_changes: Sequence[Change]) -> Table:
    """The largest changes of times, with what counts and nodes say of them."""
    rows: list[tuple[Entry, ...]] = []
    findings = findings_in(history)
    for each in route_changes[:AT_MOST]:
        series, broken = each.largest
        factors = ((cell, 1 / one.ratio if one.verdict == FASTER else one.ratio) for cell, one in each.breaks[1:])
        rows.append(
            (
                [each.at.name, each.at.date, *_or(history, broken)],
                [route_of(series), direction(series)],
                [*effect_of(broken), *count_remark(findings, each), *filter(None, [on_nodes(broken)])],
                [place_of(series), around(series, broken)],
                cells_by_size(factors) or "",
            )
        )
    return Table(
        f"The largest changes, a row a route and release of {history.package}",
        ("release", "route", "change", "at", "and at"),
        tuple(rows),
        left_out(len(route_changes), AT_MOST, "smaller changes are in results.csv"),
        numeric=False,
        ids=tuple(address(each) for each in route_changes[:AT_MOST]),
    )


def address(route_change: Change) -> str:
    """The id of a change, made of what it is about; routes that are alike but for case differ in its end."""
    about = (route_change.at.toolchain.tag, *route_change.largest[0].key, route_change.verdict)
    return f"{slug('change', *about)}-{sha256(' '.join(about).encode()).hexdigest()[:6]}"


def releases(history: History, route_changes: Sequence[Change]) -> Table:
    """A row a release: how many cells it changed, what is new, and its largest change."""
    rows: list[tuple[Entry, ...]] = []
    for release in history.releases:
        here = [each for each in route_changes if each.at is release]
        first = release is history.releases[0]
        counts = [sum(len(each.breaks) for each in here if each.verdict == verdict) for verdict in (SLOWER, FASTER)]
        counts += [sum(each.at is release for each in found) for found in (history.appearances, history.semantics)]
        most = _short(history, here[0]) if here else ""
        shown = [str(count or "") for count in counts]
        rows.append(([release.version, release.date], *shown, "where it begins" if first else most))
    rows += [(version, "", "", "", "", f"not measured: {reason}") for version, reason in history.failed.items()]
    return Table(
        f"Releases of {history.package}, {history.held} held",
        (history.package, "cells slower", "cells faster", "new or gone", "meaning", "largest change"),
        tuple(rows),
        numeric=False,
        ids=tuple(release.toolchain.tag for release in history.releases),
    )


def _short(history: History, route_change: Change) -> str:
    series, broken = route_change.largest
    other = "".join(f" ({text})" for text in _or(history, broken))
    return f"{route_of(series)} {effect_of(broken)[0]} at {place_of(series)}, {direction(series)}{other}"


def appeared(history: History) -> Table:
    rows = [
        (
            [each.at.name, each.at.date],
            "new" if each.gained else "gone",
            named(each.routes),
            f"{each.direction}, {show.join(each.dtypes) or 'as a whole'}",
            each.reason,
        )
        for each in history.appearances
    ]
    title = "What has a figure from a release on and had none before, or the other way round"
    return Table(title, ("release", "it is", "routes", "of", "otherwise"), tuple(rows), numeric=False)


def meant(changed: Semantic) -> tuple[str, str]:
    """("memory", "alias → copy")"""
    seen = SEEN.get(changed.what, {})
    return ABOUT[changed.what], f"{seen.get(changed.old, changed.old)} → {seen.get(changed.new, changed.new)}"


def meaning(history: History) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for each in history.semantics:
        at, route = [each.at.name, each.at.date], [code(each.route), each.direction]
        rows.append((at, route, *meant(each), show.join(each.dtypes) or "float32"))
    title = "Where a route means something else from a release on"
    return Table(title, ("release", "route", "what", "change", "of"), tuple(rows), numeric=False)


def repeats(measured_again: Iterable[Repeat]) -> Table:
    """How far the machine was the same when it measured a toolchain again."""
    rows = []
    for repeat in measured_again:
        names = list(dict.fromkeys((repeat.sooner.name, repeat.later.name)))
        half = f"{number(repeat.quarter, 3)} to {number(repeat.three_quarters, 3)}"
        ratios = number(repeat.median, 3), half, number(repeat.controls, 3)
        rows.append((", which is ".join(names), f"{repeat.hours:.1f} h", str(repeat.cells), *ratios))
    columns = ("toolchain", "apart", "cells", "median", "half of them within", "memcpy and floor")
    return Table("The same toolchain again: later time over sooner time", columns, tuple(rows))


def sessions(history: History) -> str:
    """What one session differs from another by, in words."""
    alike = together(history.session_sd.items(), lambda item: f"{100 * item[1]:.1f} %")
    by = {f"{100 * group[0][1]:.1f} %": [family for family, _ in group] for group in alike}
    if len(by) == 1:
        return next(iter(by))
    return show.join([f"{sd} for {show.join(families)}" for sd, families in by.items()])


def curves(cells: Sequence[Series | Counted], history: History) -> Table:
    """The points of a figure, a row a cell: seconds as measured where anything was timed, else counts."""
    versions = [release.version for release in history.releases]
    timed = [cell for cell in cells if isinstance(cell, Series)]
    rows = []
    for cell in timed or cells:
        own = map(show.seconds, np.exp(cell.raw)) if isinstance(cell, Series) else (f"{v:,.0f}" for v in cell.values)
        at = dict(zip((release.version for release in cell.releases), own))
        label = ", ".join(filter(None, (route_of(cell), place_of(cell))))
        rows.append((label, *(at.get(version, "n/a") for version in versions)))
    counts = f"{unit(history).capitalize()} of a call"
    title = "Seconds as measured, before the drift is taken out" if timed else counts
    return Table(title, ("route", *versions), tuple(rows))


# --- counts of instructions -------------------------------------------------------------------------------------------


def unit(history: History) -> str:
    """What is counted: instructions."""
    return show.join(list(dict.fromkeys(counted.unit for counted in history.counted)))


def count_note(history: History) -> Iterator[str]:
    """What the counts come to, for the head of the page."""
    if history.counted:
        stepped = sum(1 for counted in history.counted if counted.steps)
        against = sum(any(finding.disagree for finding in counted.findings) for counted in history.counted)
        rest = f"; of {against} their time says otherwise" if against else ""
        yield f"{unit(history).capitalize()} of {len(history.counted)} calls: {stepped} changed{rest}."


def steps_by_release(history: History) -> list[list[Found]]:
    """Steps of the same release together: first those that changed the most in sum."""
    grouped = together((pair for pair in findings_in(history) if pair[1].step), lambda pair: pair[1].at.version)
    return sorted(grouped, key=lambda pairs: -sum(pair[1].size for pair in pairs))


def steps_line(pairs: Sequence[Found]) -> str:
    """3 routes (5 cells), most of all `torch.tensor(a)`, 1.2× the instructions at 4 KiB, float32"""
    counted, finding = pairs[0]
    routes = len({pair[0].key for pair in pairs})
    most = f"{route_of(counted)}, {_factor(counted, finding.step)} at {place_of(counted)}" if finding.step else ""
    return f"{routes} route{'s' if routes > 1 else ''} ({len(pairs)} cells), most of all {most}"


def count_remark(findings: Sequence[Found], route_change: Change) -> list[str]:
    """What the counts say of a change of times, as a line to go below it; none where its cells are not counted.

    findings: those of the history
    """
    times = {id(broken) for _, broken in route_change.breaks}
    pairs = [pair for pair in findings if id(pair[1].time) in times]
    chosen = [pair for pair in pairs if pair[1].disagree] or [pair for pair in pairs if pair[1].step]
    if not chosen:
        return []
    counted, finding = chosen[0]
    said = _counted(counted, finding) if finding.disagree else f"{counted.unit} agree"
    ratio = f", {number(finding.step.ratio)}×" if finding.step else f": {ELSEWHERE}"
    return [f"{said}{ratio}{f' ({place_of(counted)})' if len(route_change.breaks) > 1 else ''}"]


def count_section(history: History) -> Section:
    """Steps of counts, and what time says otherwise; empty where nothing is counted in repeats."""
    name, settings = unit(history), history.settings
    least, large = (f"{100 * share:g} %" for share in (settings.min_effect, settings.equivalence))
    about = prose("history_counts", unit=name, least=least, large=large)
    tables = _steps(history), _disagreements(history)
    return section(slug(history.package, name), f"{history.package}: {name}", about, *tables)


def findings_in(history: History) -> list[Found]:
    """Every step, and every confirmed break of the time of a counted call, the largest first."""
    every = [(counted, finding) for counted in history.counted for finding in counted.findings]
    return sorted(every, key=lambda pair: -pair[1].size)


def _steps(history: History) -> Table:
    """A row a release and route, the largest step first."""
    every = [(step, *pair) for pair in findings_in(history) if (step := pair[1].step)]
    every.sort(key=lambda item: -abs(math.log(item[0].ratio)))
    grouped = together(every, lambda item: (item[0].at.version, item[1].key, item[0].verdict))
    rows: list[tuple[Entry, ...]] = []
    for group in grouped[:AT_MOST]:
        step, counted, _ = group[0]
        since = [f"added up since {step.since.version}"] if step.crept else []
        certain = f"{number(step.low)}–{number(step.high)} by any two repeats"
        rows.append(
            (
                [step.at.name, step.at.date, *since],
                [route_of(counted), direction(counted)],
                [_factor(counted, step), certain, *_on_some(history, counted, step)],
                [place_of(counted), f"{step.old:,.0f} → {step.new:,.0f}"],
                cells_by_size([(other, smaller.ratio) for smaller, other, _ in group[1:]]) or "",
                _times([finding for _, _, finding in group]),
            )
        )
    return Table(
        f"Where {unit(history)} changed, a row a route and release of {history.package}",
        ("release", "route", "change", "at", "and at", "time of these calls"),
        tuple(rows),
        left_out(len(grouped), AT_MOST, "smaller ones are in results.csv"),
        numeric=False,
    )


def _disagreements(history: History) -> Table:
    """A row a release, a route and what time and count say of it."""
    against = (pair for pair in findings_in(history) if pair[1].disagree)
    grouped = together(against, lambda pair: (pair[1].at.version, pair[0].key, _verdicts(pair[1])))
    rows: list[tuple[Entry, ...]] = []
    for pairs in grouped[:AT_MOST]:
        counted, finding = pairs[0]
        step, time = finding.step, finding.time
        said = _counted(counted, finding)
        rows.append(
            (
                [finding.at.name, finding.at.date],
                [route_of(counted), direction(counted)],
                _factor(counted, step) if step else said,
                list(effect_of(time)) if time else "no change found",
                [place_of(counted), *([f"and {len(pairs) - 1} more cells"] if len(pairs) > 1 else [])],
                f"{said}, {TIMED[_verdicts(finding)[1]]}{'' if step else f': {ELSEWHERE}'}",
            )
        )
    return Table(
        f"Where time and {unit(history)} disagree",
        ("release", "route", unit(history), "time", "at", "that is"),
        tuple(rows),
        left_out(len(grouped), AT_MOST, "smaller ones are in results.csv"),
        numeric=False,
    )


def _verdicts(finding: Finding) -> tuple[str, str]:
    """Of the count and of the time; "" where there is no change."""
    return finding.step.verdict if finding.step else "", finding.time.verdict if finding.time else ""


def _counted(counted: Counted, finding: Finding) -> str:
    return COUNTED[_verdicts(finding)[0]].format(counted.unit)


def _factor(counted: Counted, step: Step) -> str:
    return f"{number(step.ratio)}× the {counted.unit}"


def _on_some(history: History, counted: Counted, step: Step) -> list[str]:
    """Whether nodes count otherwise at an end of a step: of each release one node's counts stand for all."""
    ends = {step.since.version, step.at.version}
    differing = history.nodes.differing if history.nodes else ()
    apart = any(cell.cell == counted.names["cell"] and cell.release.version in ends for cell in differing)
    return ["not the same on all nodes"] if apart else []


def _times(findings: Sequence[Finding]) -> list[str]:
    """What the time of calls did at their steps: a line a verdict, with how many where they differ."""
    said = Counter(map(_time, findings))
    return list(said) if len(said) == 1 else [f"{verdict}: {cells}" for verdict, cells in said.most_common()]


def _time(finding: Finding) -> str:
    if finding.time:
        return finding.time.verdict
    if not finding.timed:
        return "not timed"
    return "no change found" if finding.disagree else "not decided"


# --- several nodes ----------------------------------------------------------------------------------------------------


def node_warnings(history: History) -> tuple[str, ...]:
    """What makes the nodes less than nodes of a machine type."""
    nodes = history.nodes
    if nodes is None:
        return ()
    differing = dict.fromkeys(node for cell in nodes.differing for node in cell.counts)
    return prose("node_warnings", nodes=nodes, unlike=show.join(nodes.unlike), differing=show.join([*differing]))


def node_section(history: History) -> Section:
    """What the nodes say; empty where there is one machine."""
    nodes = history.nodes
    if nodes is None:
        return Section(f"{history.package}-nodes", "")
    spread, apart = (
        show.join([f"{show.percent(sd, 1)} for {name}" for name, sd in by_family.items()])
        for by_family in (nodes.node_sd, nodes.interaction_sd)
    )
    about = prose("history_nodes", nodes=spread, interaction=apart)
    tables = _nodes(nodes), _local(history, nodes), _differing(nodes)
    return section(f"{history.package}-nodes", f"{history.package}: nodes", about, *tables)


def _nodes(nodes: Nodes) -> Table:
    rows = []
    for node in nodes.nodes:
        takes = f"{number(node.adds, 3)}×" if node.adds == node.adds else ""
        rows.append((node.name, str(node.releases), str(node.sessions), takes))
    title = "The nodes: times over those of the mean node, the median over cells"
    return Table(title, ("node", "releases", "visits", "takes"), tuple(rows))


def _local(history: History, nodes: Nodes) -> Table:
    """Changes that not all nodes have: those that all of them together show, too."""
    partly = [(series, broken) for series, broken in history.breaks if any(on.has is False for on in broken.nodes)]
    breaks = sorted([*partly, *nodes.local], key=lambda pair: -max(abs(on.ratio - 1) for on in pair[1].nodes))
    rows: list[tuple[Entry, ...]] = []
    for series, broken in breaks[:MOST_ROWS]:
        where = ", ".join(filter(None, (place_of(series), direction(series))))
        each = [
            f"{on.node}: {number(on.ratio, 3)}× ({number(on.low, 3)} to {number(on.high, 3)})" for on in broken.nodes
        ]
        at, said = [broken.at.name, broken.at.date], [on_nodes(broken), effect_of(broken)[0]]
        rows.append((at, [route_of(series), where], said, each))
    title = f"Changes of {history.package} that are not on every node"
    notes = left_out(len(breaks), MOST_ROWS, "more are not shown")
    return Table(title, ("release", "route", "where", "node by node"), tuple(rows), notes, numeric=False)


def _differing(nodes: Nodes) -> Table:
    rows = [
        (each.release.name, each.cell, [f"{node}: {count:,.0f}" for node, count in each.counts.items()])
        for each in nodes.differing[:MOST_ROWS]
    ]
    title = "Counts that nodes do not agree in: no repeat of one is within those of another"
    notes = left_out(len(nodes.differing), MOST_ROWS, "more are not shown")
    return Table(title, ("release", "cell", "instructions"), tuple(rows), notes, numeric=False)
