"""Histories: what each release of torch or numpy did to the cost of every cell, from what scripts/track.py measured.

A point is a release, measured in one session of four processes. It has the error that its processes show and the
variance that sessions differ by, which is learnt from what was measured twice. Where several nodes of a machine type
measured a history: what releases cost on all of them, what a node adds, and what is on some only. Nothing of this is
asked where one machine measured it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from store.files import node_of
from store.records import Conditions

from benchmarks.probes import MEMORY

from . import changes, findings, sessions, statistics
from .changes import CHANGED, Break, Counted, OnNode, Series, judged, series_of, sides
from .comparison import controls_of, families
from .findings import Appearance, Semantic
from .results import Results
from .sessions import Release, Repeat, Session
from .statistics import HALF, Bools, Crossed, Floats, Places, weighted_mean
from .verdicts import DEFAULT, Settings

SHOWN = 0.5  # of a change: a node that has no more has it not


@dataclass(frozen=True)
class Node:
    """One node of a machine type. sessions of releases; adds: what it takes over the mean node, the median over cells,
    a ratio; series: its own history of each cell, with breaks as they are judged on one machine."""

    name: str
    sessions: int
    releases: int
    adds: float
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Differing:
    """A cell whose count is not the same on all nodes; counts: node -> median of the repeats."""

    release: Release
    cell: str
    counts: Mapping[str, float]


@dataclass(frozen=True)
class Nodes:
    """The nodes that a history was measured on; node_sd, interaction_sd: family -> standard deviation, see ``Crossed``.

    local: the changes that are on some nodes only; unlike: what of the machine, by name, is not the same on all;
    pretended: they are one machine, which stood for all of them.
    """

    nodes: tuple[Node, ...]
    node_sd: Mapping[str, float]
    interaction_sd: Mapping[str, float]
    local: tuple[tuple[Series, Break], ...]
    differing: tuple[Differing, ...]
    unlike: tuple[str, ...]
    pretended: bool


@dataclass(frozen=True)
class History:
    """All that is known of one package's releases on one machine.

    looked_at is how many facts about what routes mean a release has, at least and at most; failed is why a release was
    not measured. shuffled is how many breaks are confirmed, one number a shuffle, where the releases of all that the
    levels leave are shuffled, the same way in every series: whatever is found there is wrong. counted are the cells
    that are counted in repeats, with their steps.
    """

    package: str
    machine: str
    python: str
    held: str
    releases: tuple[Release, ...]
    series: tuple[Series, ...]
    controls: tuple[Series, ...]
    repeats: tuple[Repeat, ...]
    session_sd: Mapping[str, float]
    appearances: tuple[Appearance, ...]
    semantics: tuple[Semantic, ...]
    looked_at: tuple[int, int]
    failed: Mapping[str, str]
    shuffled: tuple[int, ...]
    settings: Settings
    notes: tuple[str, ...] = ()
    counted: tuple[Counted, ...] = ()
    nodes: Nodes | None = None

    @property
    def breaks(self) -> list[tuple[Series, Break]]:
        """Every break whose verdict is faster or slower, the largest change first."""
        return _largest_first(
            (series, broken) for series in self.series for broken in series.breaks if broken.verdict in CHANGED
        )


def history_of(results: Results, package: str, settings: Settings = DEFAULT) -> History:
    """The history of one package in the results of one machine; see ``packages``.

    Where releases were measured on several Pythons, that of the most releases.
    """
    copies, python, notes = sessions.releases_of(results, package)
    releases = [on_nodes[0] for on_nodes in copies.values()]
    every = [release for on_nodes in copies.values() for release in on_nodes]
    table = sessions.cells_of(results, every, results.processes)
    cells = sessions.of_files(results.timed, (release.file for release in every))
    # a cell that is noisy at every release has no history
    table = table[table.index.isin(cells.loc[cells["quiet"].astype(bool), "cell"])]
    noise, controls = families(table, results.benchmarks), controls_of(table, results.benchmarks)
    # the machine is the same for both histories: what was measured twice in either tells of it, and so does the
    # toolchain that they have in common
    others = [sessions.releases_of(results, name)[0] for name in sessions.packages(results) if name != package]
    of_others = [release for theirs in others for on_nodes in theirs.values() for release in on_nodes]
    measured = sessions.at_one_speed(
        [each for release in (*every, *of_others) for each in sessions.sessions_at(results, release, table)], results
    )
    pairs = sessions.pairs_of(measured)
    between = [sessions.difference(sooner, later, noise) for sooner, later in pairs]
    slopes = [sessions.drift(estimated.effect, noise) for estimated in between]
    known = sessions.session_variances(between, noise, slopes)
    # an effect is the difference of two sessions, a point is one
    apart = np.array([known.get(family, statistics.SESSION_SD**2) / 2 for family in noise])

    def figures(points: Sequence[Session]) -> tuple[Floats, Floats, Floats]:
        """Log seconds as measured, those without the machine's drift, and their variance: (cells, sessions)."""
        values, errors = sessions.points(points, noise)
        raw = values + np.stack([np.broadcast_to(point.correction, len(values)) for point in points], axis=1)
        drifts = [sessions.drift_at(point, pairs, slopes, len(values)) for point in points]
        return raw, values - np.stack(drifts, axis=1), np.nan_to_num(errors) ** 2 + apart[:, None]

    points, crossed, fitted = _first(measured, releases), None, None
    if len(every) > len(releases):
        own = [session for session in measured if session.release.toolchain.history == package]
        crossed = _crossed(own, *figures(own), list(copies))
        fitted = statistics.crossed(crossed.values, crossed.variance, crossed.release, crossed.node, noise)
        points = [sessions.together(on_nodes, own) for on_nodes in copies.values()]
        raw = corrected = fitted.level
        variance = np.nan_to_num(fitted.error) ** 2  # that of sessions is in it
    else:
        raw, corrected, variance = figures(points)
    # two repeats do not show what the memory may be like at 26 sessions, and neighbours may be of different nodes:
    # there what these differ by is taken for what sessions do. Elsewhere releases do: of 273 changes told so on Zen 4,
    # where 149 were told otherwise, 272 went the same way in a history 7 hours before (scripts/check_history.py)
    twice = (noise != MEMORY) & bool(pairs) & (crossed is None)
    shared = changes.shared(series_of(table, points, raw, corrected, variance, twice), releases, noise)
    # what sessions share is in every history of a machine; of what is more in this one its releases differ
    of_sessions = shared
    for theirs in [] if crossed else others:
        their_releases = [on_nodes[0] for on_nodes in theirs.values()]
        their_points = _first(measured, their_releases)
        their_series = series_of(table, their_points, *figures(their_points), twice)
        of_sessions = np.fmin(of_sessions, changes.shared(their_series, their_releases, noise))
    of_sessions, shared = np.nan_to_num(of_sessions), np.nan_to_num(shared)
    of_releases = np.maximum(shared - of_sessions, 0.0)
    series = series_of(table, points, raw, corrected, variance + of_sessions[:, None], twice, of_releases)
    shuffled = changes.shuffled(series, releases, settings)
    series = judged(series, settings)
    nodes = None
    if crossed and fitted:
        series = [
            replace(cell, breaks=tuple(crossed.placed(place, cell, each) for each in range(len(cell.breaks))))
            for place, cell in enumerate(series)
        ]
        nodes = _nodes(results, table, shared, crossed, fitted, copies, series, controls, settings)
    rows, comparable = sessions.repeated(results), changes.alike(results, releases)
    if len(rows) and len(comparable) < len(releases):
        left_out = len(releases) - len(comparable)
        notes += (f"Instructions of {left_out} releases were counted on another processor, C library or Python",)
    counted = sessions.cells_of(results, comparable, rows)
    return History(
        package=package,
        machine=str(sessions.measured_files(results)["machine"].iloc[0]),
        python=python,
        held=sessions.held(package, releases),
        releases=tuple(releases),
        series=tuple(cell for cell, control in zip(series, controls) if not control),
        controls=tuple(cell for cell, control in zip(series, controls) if control),
        repeats=tuple(sessions.repeat_of(*pair, each.effect, controls) for pair, each in zip(pairs, between)),
        session_sd={str(name): float(np.sqrt(apart[noise == name][0])) for name in dict.fromkeys(noise[~controls])},
        appearances=tuple(findings.appearances(results, releases)),
        semantics=tuple(findings.redefined(results, releases)),
        looked_at=findings.looked_at(results, releases),
        failed=sessions.failures(results, package),
        shuffled=shuffled,
        settings=settings,
        notes=notes,
        counted=tuple(changes.along(counted, rows, comparable, series, results.benchmarks, settings)),
        nodes=nodes,
    )


def _first(measured: Sequence[Session], releases: Sequence[Release]) -> list[Session]:
    """The first session of each release."""
    first = {session.release.file: session for session in reversed(measured)}
    return [first[release.file] for release in releases]


def _largest_first(found: Iterable[tuple[Series, Break]]) -> list[tuple[Series, Break]]:
    return sorted(found, key=lambda pair: -abs(math.log(pair[1].ratio)))


# --- nodes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Points:
    """Sessions of several nodes: raw, values and variance are (cells, sessions), release and node (sessions,), places
    in ``versions`` and ``names``."""

    sessions: Sequence[Session]
    raw: Floats
    values: Floats
    variance: Floats
    versions: Sequence[str]
    release: Places
    names: Sequence[str]
    node: Places

    def placed(self, cell: int, series: Series, number: int) -> Break:
        """Break ``number`` (0 is the first) of a cell's series, with what each node says of it; nodes that lack one of
        its sides say nothing and are left out."""
        broken = series.breaks[number]
        said = []
        known = np.isfinite(self.values[cell]) & (self.variance[cell] > 0)
        for place, name in enumerate(self.names):
            mine = known & (self.node == place)
            both = [mine & side[self.release] for side in sides(series, number + 1, self.versions)]
            if all(side.any() for side in both):
                (old, old_variance), (new, new_variance) = (
                    weighted_mean(self.values[cell, side], self.variance[cell, side]) for side in both
                )
                said.append(_on_node(name, new - old, math.sqrt(old_variance + new_variance), math.log(broken.ratio)))
        return replace(broken, nodes=tuple(said))


def _crossed(own: Sequence[Session], raw: Floats, values: Floats, variance: Floats, versions: Sequence[str]) -> Points:
    """The sessions of several nodes, by release and node; node-b comes before node-aa."""
    on = [_name_of(session.release.file) for session in own]
    names = sorted({*on}, key=lambda name: (len(name), name))
    release = np.array([versions.index(session.release.version) for session in own])
    return Points(own, raw, values, variance, versions, release, names, np.array([names.index(name) for name in on]))


def _name_of(file: str) -> str:
    """The node that a file is of, or that it is of the machine that results are filed under."""
    return node_of(file) or "the machine itself"


def _on_node(name: str, node_effect: float, error: float, effect: float) -> OnNode:
    size, direction = abs(effect), np.sign(effect)
    low, high = direction * node_effect - HALF * error, direction * node_effect + HALF * error
    has = True if low > 0 and direction * node_effect >= SHOWN * size else False if high < SHOWN * size else None
    ratio, *ends = np.exp([node_effect, node_effect - HALF * error, node_effect + HALF * error])
    return OnNode(name, float(ratio), float(ends[0]), float(ends[1]), has)


def _nodes(
    results: Results,
    table: pd.DataFrame,
    shared: Floats,
    points: Points,
    fitted: Crossed,
    copies: Mapping[str, Sequence[Release]],
    series: Sequence[Series],
    controls: Bools,
    settings: Settings,
) -> Nodes:
    """What each node adds, and the changes that are on some of them only: each node's own history is judged for that.

    shared  (cells,) variance of what the cells of a release share
    """
    releases = [on_nodes[0] for on_nodes in copies.values()]
    variance, unknown = points.variance + shared[:, None], np.zeros(len(table), dtype=bool)
    nodes, local = [], []
    for place, name in enumerate(points.names):
        own = np.flatnonzero(points.node == place)
        # a release's first session stands for it, as on one machine
        once = own[np.unique(points.release[own], return_index=True)[1]]
        theirs = [replace(points.sessions[k], release=releases[points.release[k]]) for k in once]
        raw, values = points.raw[:, once], points.values[:, once]
        history = judged(series_of(table, theirs, raw, values, variance[:, once], unknown), settings)
        for cell, (node_series, all_nodes) in enumerate(zip(history, series)):
            confirmed = [each for each in all_nodes.breaks if each.verdict in CHANGED]
            for number, each in enumerate(node_series.breaks):
                if each.verdict in CHANGED and not _is_covered(each, confirmed, points.versions):
                    local.append((node_series, points.placed(cell, node_series, number)))
        free = fitted.node[~controls, place]
        adds = float(np.exp(np.nanmedian(free))) if np.isfinite(free).any() else math.nan
        nodes.append(Node(name, len(own), len(once), adds, tuple(history)))
    records = [record for on in copies.values() for release in on for record in results.runs_of(release.file)]
    return Nodes(
        nodes=tuple(nodes),
        node_sd=fitted.node_sd,
        interaction_sd=fitted.interaction_sd,
        local=tuple(_largest_first(local)),
        differing=tuple(_differing(results, copies.values())),
        unlike=tuple(_unlike([record.conditions for record in records])),
        pretended=any(record.fleet.get("engine") == "debug" for record in records),
    )


def _is_covered(broken: Break, confirmed: Sequence[Break], versions: Sequence[str]) -> bool:
    """Whether a break that one node shows may be one of those that all nodes together show."""
    first, last = versions.index(broken.earliest.version), versions.index(broken.latest.version)
    return any(
        other.verdict == broken.verdict
        and versions.index(other.earliest.version) <= last
        and versions.index(other.latest.version) >= first
        for other in confirmed
    )


def _differing(results: Results, copies: Iterable[Sequence[Release]]) -> Iterator[Differing]:
    """Counts of a release that nodes do not agree in: no repeat of one is within the repeats of another."""
    rows = sessions.repeated(results)
    for on_nodes in copies:
        of_release = sessions.of_files(rows, (release.file for release in on_nodes))
        for (cell, _), table in of_release.groupby(["cell", "version"], sort=False, observed=True):
            if table["low"].max() > table["high"].min():
                counts = {_name_of(file): float(value) for file, value in zip(table["file"], table["value"])}
                yield Differing(on_nodes[0], str(cell), counts)


def _unlike(machines: Sequence[Conditions]) -> list[str]:
    """What is not the same on all machines, by name."""
    facts: dict[str, set[object]] = {
        "processor": {machine.cpu for machine in machines},
        "cores": {machine.cores for machine in machines},
        "caches": {str(sorted(machine.caches.items())) for machine in machines},
        "C library": {machine.libc for machine in machines},
        "system": {machine.system for machine in machines},
    }
    return [name for name, values in facts.items() if len(values) > 1]
