"""A history on several nodes of a kind: what releases cost on all of them, what a node adds, what is on some only.

Nothing of this is asked where one machine measured a history.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from store.files import node_of

from .results import Results
from .sessions import Release
from .statistics import HALF, Bools, Crossed, Floats, Places, crossed, weighted_mean
from .steps import repeated

if TYPE_CHECKING:  # which has what is found here
    from .levels import Break, Series

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
