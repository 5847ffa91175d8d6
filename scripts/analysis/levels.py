"""Where the level of a series changes along a history, which of these changes are confirmed, and on which nodes.

Breaks are found by exact optimal partitioning; each is then tested as a comparison is, and over all series at once.
Where several nodes of a kind measured a history: what releases cost on all of them, what a node adds, and what is on
some only. Nothing of this is asked where one machine measured it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from store.files import node_of

from . import statistics
from .comparison import judge
from .results import Results
from .sessions import Release, Visit
from .statistics import HALF, MIN_PROCESSES, Bools, Crossed, Estimate, Floats, Places, crossed, weighted_mean
from .steps import Along, repeated
from .verdicts import FASTER, SLOWER, Settings

# --- several nodes of a kind ------------------------------------------------------------------------------------------


SHOWN = 0.5  # of a change: a node that has no more has it not


@dataclass(frozen=True)
class OnNode:
    """What one node says of a change: new level over old with its 95 % interval.

    has: whether the node has the change, None where that is not decided.
    """

    node: str
    ratio: float
    low: float
    high: float
    has: bool | None


@dataclass(frozen=True)
class Node:
    """One node of a kind. visits of releases; adds: what it takes over the mean node, the median over cells, a ratio;
    series: its own history of each cell, with breaks as they are judged on one machine."""

    name: str
    visits: int
    releases: int
    adds: float
    series: "tuple[Series, ...]"


@dataclass(frozen=True)
class Differing:
    """A cell whose count is not the same on all nodes; counts: node -> median of the repeats."""

    release: Release
    names: Mapping[str, Any]
    counts: Mapping[str, float]


@dataclass(frozen=True)
class Nodes:
    """The nodes that a history was measured on; node_sd, interaction_sd: family -> standard deviation, see ``Crossed``.

    pretended: they are one machine, which stood for all of them.
    """

    nodes: tuple[Node, ...]
    node_sd: Mapping[str, float]
    interaction_sd: Mapping[str, float]
    local: "tuple[tuple[Series, Break], ...]"
    differing: tuple[Differing, ...]
    unlike: tuple[str, ...]
    pretended: bool


@dataclass(frozen=True)
class Points:
    """Visits of several nodes: values and variance are (cells, visits), release and node (visits,), numbers from 0."""

    names: tuple[str, ...]
    values: Floats
    variance: Floats
    release: Places
    node: Places

    def crossed(self, families: Any) -> Crossed:
        return crossed(self.values, self.variance, self.release, self.node, families)

    def at(self, cell: int, before: Bools, after: Bools, effect: float) -> tuple[OnNode, ...]:
        """What each node says of a change of one cell by ``effect`` (log) between releases; before, after: (releases,)
        that are on either side. Nodes that lack a side say nothing and are left out."""
        said = []
        known = np.isfinite(self.values[cell]) & (self.variance[cell] > 0)
        for place, name in enumerate(self.names):
            mine = known & (self.node == place)
            sides = [mine & side[self.release] for side in (before, after)]
            if not all(side.any() for side in sides):
                continue
            (old, old_variance), (new, new_variance) = (
                weighted_mean(self.values[cell, side], self.variance[cell, side]) for side in sides
            )
            said.append(_on_node(name, new - old, float(np.sqrt(old_variance + new_variance)), effect))
        return tuple(said)


def _on_node(name: str, node_effect: float, error: float, effect: float) -> OnNode:
    size, direction = abs(effect), np.sign(effect)
    low, high = direction * node_effect - HALF * error, direction * node_effect + HALF * error
    has = True if low > 0 and direction * node_effect >= SHOWN * size else False if high < SHOWN * size else None
    ratio, *ends = np.exp([node_effect, node_effect - HALF * error, node_effect + HALF * error])
    return OnNode(name, float(ratio), float(ends[0]), float(ends[1]), has)


def name_of(file: str) -> str:
    """The node that a file is of, or that it is of the machine that results are filed under."""
    return node_of(file) or "the machine itself"


def names_of(files: Sequence[str]) -> tuple[str, ...]:
    """The nodes that files are of, node-b before node-aa."""
    return tuple(sorted({name_of(file) for file in files}, key=lambda name: (len(name), name)))


def sides(series: "Series", number: int, versions: Sequence[str]) -> tuple[Bools, Bools]:
    """Of break ``number`` (1 is the first) the releases, among ``versions``, of the levels before and after it."""
    edges = [*series.starts, len(series.releases)]
    masks = []
    for first, last in ((edges[number - 1], edges[number]), (edges[number], edges[number + 1])):
        of_level = {release.version for release in series.releases[first:last]}
        masks.append(np.array([version in of_level for version in versions]))
    return masks[0], masks[1]


def is_covered(broken: "Break", confirmed: "Sequence[Break]", versions: Sequence[str]) -> bool:
    """Whether a break that one node shows may be one of those that all nodes together show."""
    first, last = versions.index(broken.earliest.version), versions.index(broken.latest.version)
    return any(
        other.verdict == broken.verdict
        and versions.index(other.earliest.version) <= last
        and versions.index(other.latest.version) >= first
        for other in confirmed
    )


def differing(results: Results, copies: Mapping[str, Sequence[Release]]) -> list[Differing]:
    """Counts of a release that nodes do not agree in: no repeat of one is within the repeats of another."""
    rows = repeated(results)
    differing_cells = []
    for on_nodes in copies.values():
        of_release = rows[rows["file"].isin([release.file for release in on_nodes])]
        for _, table in of_release.groupby(["cell", "version"], sort=False):
            if table["low"].max() > table["high"].min():
                counts = {name_of(file): float(value) for file, value in zip(table["file"], table["value"])}
                names = {str(name): value for name, value in table.iloc[0].items()}
                differing_cells.append(Differing(on_nodes[0], names, counts))
    return differing_cells


def unlike(results: Results, files: Sequence[str]) -> list[str]:
    """What of the machine, by name, is not the same on all nodes of a kind."""
    records = [record.conditions for file in files for record in results.runs_of(file)]
    facts = {
        "processor": [conditions.cpu for conditions in records],
        "cores": [str(conditions.cores) for conditions in records],
        "caches": [str(sorted(conditions.caches.items())) for conditions in records],
        "C library": [conditions.libc for conditions in records],
        "system": [conditions.system for conditions in records],
    }
    return [name for name, values in facts.items() if len(set(values)) > 1]


def is_pretended(results: Results, files: Sequence[str]) -> bool:
    """Whether one machine stood for the nodes."""
    return any(record.fleet.get("engine") == "debug" for file in files for record in results.runs_of(file))


# --- levels and breaks of a series ------------------------------------------------------------------------------------


CHANGED = (SLOWER, FASTER)
LEAST_RELEASES = 4  # fewer do not tell a change from noise
SHUFFLES = 8  # of the releases, for the method's own check


@dataclass(frozen=True)
class Break:
    """A change of level: from ``before``, the last release at the old level, to ``at``, the first at the new one.

    It may as well have been at any release from ``earliest`` to ``latest`` (95 %). ratio is new / old with its 95 %
    interval; q is over all series of the history; verdict as in a comparison. nodes: what each says of it, where there
    are several.
    """

    before: Release
    at: Release
    earliest: Release
    latest: Release
    ratio: float
    low: float
    high: float
    q: float
    verdict: str
    nodes: tuple[OnNode, ...] = ()


@dataclass(frozen=True)
class Series(Along):
    """One cell along a history: arrays are over the releases that measured it, in log seconds.

    values   mean over processes, the machine's drift taken out; raw is without that
    errors   standard deviation of each point by its processes, and by what visits differ by
    known    whether what visits differ by was learnt from what was measured twice
    shared   variance of what its releases differ by in all cells of a kind of memory alike
    noise    what a level must stand out from: errors and shared; where nobody knows what visits differ by, at least
             what neighbours do
    processes  (releases,) how many there were
    starts   index of the first release of each level, the first 0
    levels   (releases,) the level that each point belongs to
    """

    releases: tuple[Release, ...]
    raw: Floats
    values: Floats
    errors: Floats
    known: bool
    shared: float
    noise: Floats
    processes: Floats
    starts: tuple[int, ...]
    levels: Floats
    breaks: tuple[Break, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every release has the processes that a verdict takes."""
        return bool((self.processes >= MIN_PROCESSES).all())

    @property
    def judged(self) -> bool:
        """Whether a break of it could be confirmed."""
        return self.whole and len(self.releases) >= LEAST_RELEASES


def series_of(
    table: pd.DataFrame,
    visits: Sequence[Visit],
    raw: Floats,
    corrected: Floats,
    errors: Floats,
    session: Floats,
    known: Bools,
    shared: Floats | None = None,
) -> list[Series]:
    """Every cell's series with its levels; raw, corrected and errors are (cells, visits).

    session, shared  (cells,) variances of what visits differ by beside ``errors``, and of what releases share (none)
    known            (cells,) whether what visits differ by is known from what was measured twice
    """
    shared = np.zeros(len(table)) if shared is None else shared
    series = []
    for place, (cell, names) in enumerate(zip(table.index, table.to_dict("records"))):
        there = [k for k, known in enumerate(np.isfinite(corrected[place])) if known]
        point_errors = np.sqrt(np.nan_to_num(errors[place, there]) ** 2 + session[place])
        values = corrected[place, there]
        deviation, starts, levels = _fit(values, np.sqrt(point_errors**2 + shared[place]), known[place])
        releases = tuple(visits[k].release for k in there)
        counts = np.array([np.isfinite(visits[k].logs[place]).sum() for k in there], dtype=np.float64)
        points = (raw[place, there], values, point_errors, bool(known[place]), float(shared[place]), deviation, counts)
        series.append(Series({"cell": cell, **names}, releases, *points, starts, levels))
    return series


def _fit(values: Floats, errors: Floats, known: bool) -> tuple[Floats, tuple[int, ...], Floats]:
    """Of points with their errors: what noise they have, where levels begin, and the level of each; of none, none."""
    if not len(values):
        return values, (), values
    noise = errors if known else statistics.history_noise(values, errors)
    starts = statistics.optimal_partition(values, noise) if len(values) >= LEAST_RELEASES else [0]
    levels = np.empty(len(values))
    for first, last, mean, _ in _spans(values, noise, starts):
        levels[first:last] = mean
    return noise, tuple(starts), levels


def _spans(values: Floats, noise: Floats, starts: Sequence[int]) -> list[tuple[int, int, float, float]]:
    """Of each level: its first point, the one after its last, its mean weighted by the noise, the variance of that."""
    spans = []
    for first, last in zip(starts, [*starts[1:], len(values)]):
        spans.append((first, last, *statistics.weighted_mean(values[first:last], noise[first:last] ** 2)))
    return spans


def shared(series: Sequence[Series], releases: Sequence[Release], noise: Any) -> Floats:
    """Variance, (cells,), of what all cells of a kind of memory share in a release or in its visit; NaN where unknown.

    The median over the cells of a kind, or over all where it has few, of what the levels leave, release by release.
    """
    places = {release.file: place for place, release in enumerate(releases)}
    left = np.full((len(series), len(releases)), np.nan)
    for row, cell in zip(left, series):
        row[[places[release.file] for release in cell.releases]] = cell.values - cell.levels
    variance = np.full(len(series), np.nan)
    for family in np.unique(noise):
        kind = left[noise == family]
        kind = kind if len(kind) >= statistics.MIN_FAMILY else left
        kind = kind[:, np.isfinite(kind).sum(axis=0) >= statistics.MIN_FAMILY]
        if kind.shape[1] >= LEAST_RELEASES:
            shifts = np.nanmedian(kind, axis=0)
            variance[noise == family] = (statistics.MAD_TO_SD * np.median(np.abs(shifts - np.median(shifts)))) ** 2
    return variance


def shuffled(series: Sequence[Series], releases: Sequence[Release], settings: Settings) -> tuple[int, ...]:
    """How many breaks are confirmed where nothing changed: in what the levels leave, its releases shuffled."""
    confirmed = []
    for seed in range(SHUFFLES if len(releases) >= LEAST_RELEASES else 0):
        order = np.random.default_rng(seed).permutation(len(releases))
        rank = {release.file: int(order[place]) for place, release in enumerate(releases)}
        mixed = []
        for cell in series:
            by = np.argsort([rank[release.file] for release in cell.releases], kind="stable")
            values, errors = (cell.values - cell.levels)[by], cell.errors[by]
            deviation, starts, levels = _fit(values, np.sqrt(errors**2 + cell.shared), cell.known)
            mixed.append(replace(cell, values=values, errors=errors, noise=deviation, starts=starts, levels=levels))
        confirmed.append(int(_tested(mixed, settings)["verdict"].isin(CHANGED).sum()))
    return tuple(confirmed)


def _tested(series: Sequence[Series], settings: Settings) -> pd.DataFrame:
    """The test of each break, series by series: all are judged together, and series without one count, too.

    The degrees of freedom are those that the levels leave: noise that is learnt from a short history is not well known.
    A series with fewer processes than a comparison takes gets no verdict.
    """
    effect, error, df, whole = [], [], [], []
    for cell in series:
        spans = _spans(cell.values, cell.noise, cell.starts)
        for (_, _, old, before), (_, _, new, after) in zip(spans, spans[1:]):
            effect.append(new - old)
            error.append(math.sqrt(before + after))
            df.append(float(len(cell.values) - len(spans)))
            whole.append(cell.whole)
    free = np.array(df, dtype=np.float64)
    errors = np.array(error, dtype=np.float64)
    estimated = Estimate(
        np.array(effect, dtype=np.float64), np.where(free > 0, errors, np.nan), np.where(free > 0, free, np.nan), errors
    )
    silent = sum(1 for cell in series if len(cell.starts) == 1)
    return judge(estimated, (free > 0) & np.array(whole, dtype=bool), settings, silent)


def judged(series: Sequence[Series], settings: Settings) -> list[Series]:
    """The series with a verdict on each break."""
    rows = iter(_tested(series, settings).to_dict("records"))
    judged = []
    for cell in series:
        breaks = []
        for number, start in enumerate(cell.starts[1:], start=1):
            row = next(rows)
            first, last = statistics.break_range(cell.values, cell.noise, cell.starts, number)
            before, at, earliest, latest = (cell.releases[place] for place in (start - 1, start, first, last))
            ends = (row["ratio"], row["low95"], row["high95"], row["q"], row["verdict"])
            breaks.append(Break(before, at, earliest, latest, *ends))
        judged.append(replace(cell, breaks=tuple(breaks)))
    return judged
