"""Histories: what each release of torch or numpy did to the cost of every cell, from what scripts/track.py measured.

A point is a release, measured in one visit of four processes. It has the error that its processes show and the
variance that sessions differ by, which is learnt from what was measured twice.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.probes import MEMORY

from . import findings, levels, sessions, statistics, steps
from .comparison import controls_of, families
from .findings import Appearance, Semantic
from .levels import CHANGED, Break, Series
from .results import Results
from .sessions import Release, Repeat, Visit
from .statistics import Floats
from .verdicts import DEFAULT, Settings


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
    counted: tuple[steps.Counted, ...] = ()
    nodes: levels.Nodes | None = None

    @property
    def breaks(self) -> list[tuple[Series, Break]]:
        """Every break whose verdict is faster or slower, the largest change first."""
        changes = [(series, broken) for series in self.series for broken in series.breaks if broken.verdict in CHANGED]
        return sorted(changes, key=lambda pair: -abs(math.log(pair[1].ratio)))


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
    visits = [visit for release in every for visit in sessions.visits_in(results, release, table)]
    noise = families(table, results.benchmarks)
    # the machine is the same for both histories: what was measured twice in either tells of it, and so does the
    # toolchain that they have in common
    others_too = {
        name: sessions.releases_of(results, name)[0] for name in sessions.packages(results) if name != package
    }
    others = [
        visit
        for theirs in others_too.values()
        for on_nodes in theirs.values()
        for release in on_nodes
        for visit in sessions.visits_in(results, release, table)
    ]
    paced = sessions.at_one_speed([*visits, *others], results)
    visits, others, pairs = paced[: len(visits)], paced[len(visits) :], sessions.pairs_of(paced)
    controls = controls_of(table, results.benchmarks)
    between = [sessions.difference(sooner, later, noise) for sooner, later in pairs]
    repeats = [sessions.repeat_of(*pair, estimated.effect, controls) for pair, estimated in zip(pairs, between)]
    slopes = [sessions.drift(estimated.effect, noise) for estimated in between]
    known = sessions.session_variances(between, noise, slopes)
    # an effect is the difference of two visits, a point is one
    session = np.array([known.get(family, statistics.SESSION_SD**2) / 2 for family in noise])
    points = visits if len(every) > len(releases) else _first(visits, releases)
    raw, corrected, errors = _figures(points, pairs, slopes, noise)
    crossed = None
    if len(every) > len(releases):
        crossed = _crossed(points, corrected, np.nan_to_num(errors) ** 2 + session[:, None], list(copies))
        fitted = crossed.crossed(noise)
        alone = points, raw, corrected, errors
        points = [sessions.together(on_nodes, visits) for on_nodes in copies.values()]
        raw, corrected, errors = fitted.level, fitted.level, fitted.error
    # two repeats do not show what the memory may be like at 26 visits, and neighbours may be of different nodes: there
    # what these differ by is taken for what visits do. Elsewhere releases do: of 273 changes told so on Zen 4, where
    # 149 were told otherwise, 272 went the same way in a history 7 hours before (scripts/check_history.py)
    twice = (noise != MEMORY) & bool(pairs) & (crossed is None)
    between_points = np.zeros(len(table)) if crossed else session  # in the errors, where nodes tell it
    shared = levels.shared(
        levels.series_of(table, points, raw, corrected, errors, between_points, twice), releases, noise
    )
    # what visits share is in every history of a machine; of what is more in this one its releases differ
    of_visits = shared
    for theirs in [] if crossed else others_too.values():
        their_releases = [on_nodes[0] for on_nodes in theirs.values()]
        their_points = _first(others, their_releases)
        their_series = levels.series_of(
            table, their_points, *_figures(their_points, pairs, slopes, noise), session, twice
        )
        of_visits = np.fmin(of_visits, levels.shared(their_series, their_releases, noise))
    of_visits, shared = np.nan_to_num(of_visits), np.nan_to_num(shared)
    of_releases = np.maximum(shared - of_visits, 0.0)
    series = levels.series_of(table, points, raw, corrected, errors, between_points + of_visits, twice, of_releases)
    shuffled = levels.shuffled(series, releases, settings)
    series = levels.judged(series, settings)
    nodes = None
    if crossed:
        series = [_placed(place, cell, crossed, releases) for place, cell in enumerate(series)]
        nodes = _nodes(results, table, alone, session + shared, crossed, fitted, copies, series, controls, settings)
    rows, comparable = steps.repeated(results), steps.alike(results, releases)
    if len(rows) and len(comparable) < len(releases):
        left_out = len(releases) - len(comparable)
        notes += (f"Instructions of {left_out} releases were counted on another processor, C library or Python",)
    cells = sessions.cells_of(results, comparable, rows)
    return History(
        package=package,
        machine=str(sessions.measured_files(results)["machine"].iloc[0]),
        python=python,
        held=sessions.held(package, releases),
        releases=tuple(releases),
        series=tuple(cell for cell, control in zip(series, controls) if not control),
        controls=tuple(cell for cell, control in zip(series, controls) if control),
        repeats=tuple(repeats),
        session_sd={str(name): float(np.sqrt(session[noise == name][0])) for name in dict.fromkeys(noise[~controls])},
        appearances=tuple(findings.appearances(results, releases)),
        semantics=tuple(findings.redefined(results, releases)),
        looked_at=findings.looked_at(results, releases),
        failed=sessions.failures(results, package),
        shuffled=shuffled,
        settings=settings,
        notes=notes,
        counted=tuple(steps.along(cells, rows, comparable, series, results.benchmarks, settings)),
        nodes=nodes,
    )


def _first(visits: Sequence[Visit], releases: Sequence[Release]) -> list[Visit]:
    """The first visit of each release."""
    first = {visit.release.file: visit for visit in reversed(visits)}
    return [first[release.file] for release in releases]


def _figures(
    visits: Sequence[Visit], pairs: Sequence[tuple[Visit, Visit]], moved: Sequence[Floats], noise: Any
) -> tuple[Floats, Floats, Floats]:
    """Of the cells at each visit, (cells, visits): log seconds as measured, those without the machine's drift, and the
    error by the processes.

    moved: by how much the machine drifted between the visits of each of ``pairs``, (cells,)
    """
    values, errors = sessions.points(visits, noise)
    raw = values + np.stack([np.broadcast_to(visit.pace, len(values)) for visit in visits], axis=1)
    drifts = [sessions.drift_at(visit, pairs, moved, len(values)) for visit in visits]
    return raw, values - np.stack(drifts, axis=1), errors


# --- nodes -----------------------------------------------------------------------------------------------------------


def _crossed(points: Sequence[Visit], values: Floats, variance: Floats, versions: Sequence[str]) -> levels.Points:
    """The visits of several nodes, by release and node."""
    names = levels.names_of([visit.release.file for visit in points])
    release = np.array([versions.index(visit.release.version) for visit in points])
    node = np.array([names.index(levels.name_of(visit.release.file)) for visit in points])
    return levels.Points(names, values, variance, release, node)


def _placed(cell: int, series: Series, crossed: levels.Points, releases: Sequence[Release]) -> Series:
    """A series with what the nodes say of each of its breaks."""
    versions = [release.version for release in releases]
    breaks = [
        replace(broken, nodes=crossed.at(cell, *levels.sides(series, number, versions), math.log(broken.ratio)))
        for number, broken in enumerate(series.breaks, start=1)
    ]
    return replace(series, breaks=tuple(breaks))


def _nodes(
    results: Results,
    table: pd.DataFrame,
    alone: tuple[Sequence[Visit], Floats, Floats, Floats],
    noise: Floats,
    crossed: levels.Points,
    fitted: statistics.Crossed,
    copies: Mapping[str, Sequence[Release]],
    series: Sequence[Series],
    controls: Any,
    settings: Settings,
) -> levels.Nodes:
    """What each node adds, and the changes that are on some of them only: each node's own history is judged for that.

    alone  the visits with their raw and corrected values and errors; noise: (cells,) variance of a visit beside these
    """
    points, raw, corrected, errors = alone
    versions = list(copies)
    releases = [on_nodes[0] for on_nodes in copies.values()]
    nodes, local = [], []
    for place, name in enumerate(crossed.names):
        columns = np.flatnonzero(crossed.node == place).tolist()
        mine = [points[k] for k in columns]
        # a release's first visit stands for it, as on one machine
        once = [
            columns[k] for k, visit in enumerate(mine) if visit.release not in [before.release for before in mine[:k]]
        ]
        theirs = [replace(points[k], release=releases[versions.index(points[k].release.version)]) for k in once]
        history = levels.judged(
            levels.series_of(
                table,
                theirs,
                raw[:, once],
                corrected[:, once],
                errors[:, once],
                noise,
                np.zeros(len(table), dtype=bool),
            ),
            settings,
        )
        for cell, (node_series, all_nodes) in enumerate(zip(history, series)):
            confirmed = [each for each in all_nodes.breaks if each.verdict in CHANGED]
            for number, each in enumerate(node_series.breaks, start=1):
                if each.verdict in CHANGED and not levels.is_covered(each, confirmed, versions):
                    said = crossed.at(cell, *levels.sides(node_series, number, versions), math.log(each.ratio))
                    local.append((node_series, replace(each, nodes=said)))
        free = fitted.node[~controls, place]
        adds = float(np.exp(np.nanmedian(free))) if np.isfinite(free).any() else math.nan
        nodes.append(levels.Node(name, len(columns), len(once), adds, tuple(history)))
    files = [release.file for on_nodes in copies.values() for release in on_nodes]
    return levels.Nodes(
        nodes=tuple(nodes),
        node_sd=fitted.node_sd,
        interaction_sd=fitted.interaction_sd,
        local=tuple(sorted(local, key=lambda pair: -abs(math.log(pair[1].ratio)))),
        differing=tuple(levels.differing(results, copies)),
        unlike=tuple(levels.unlike(results, files)),
        pretended=levels.is_pretended(results, files),
    )
