"""Who measures what: releases dealt to nodes, as data.

A block is what one job measures on one node: the reference, some releases, and the reference again. Each release is in
as many blocks as there are to be copies, so that what a node does to a release can be told from what the release does.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

INSTALL_MINUTES = 1.5  # of a release, where torch comes with CUDA
ENVIRONMENT_GB = 5  # of the same
MOST_COPIES = 8
CHOICE = 8  # nodes beyond the copies that a release may go to: of a large fleet all pairs are too many to look at
SPARE = 1.5  # times the estimate: what a job may take, for a node that is busy waits to be calm


@dataclass(frozen=True)
class Cost:
    """What a design comes to. visits: of all nodes; minutes: of the busiest node; disk_gb: of a node's environments."""

    visits: int
    minutes: float
    disk_gb: int


def deal(tags: Sequence[str], nodes: int, copies: int) -> list[list[str]]:
    """The blocks, one a node: each of ``tags`` in ``copies`` of them, as even as can be, in the order of ``tags``.

    Every release goes to the nodes that have the least so far and have met the least: over four nodes and twice that is
    01, 23, 02, 13, 03, 12. ValueError where there are fewer nodes than copies.
    """
    if not 1 <= copies <= nodes:
        raise ValueError(f"{copies} copies take as many nodes, and there are {nodes}")
    blocks: list[list[str]] = [[] for _ in range(nodes)]
    met: Counter[tuple[int, int]] = Counter()
    for tag in tags:
        least = sorted(range(nodes), key=lambda node: len(blocks[node]))[: copies + CHOICE]
        chosen = min(
            combinations(sorted(least), copies),
            key=lambda group: (
                sum(len(blocks[node]) for node in group),
                sum(met[pair] for pair in combinations(group, 2)),
            ),
        )
        met.update(combinations(chosen, 2))
        for node in chosen:
            blocks[node].append(tag)
    return blocks


def cost(blocks: Sequence[Sequence[str]], minutes: float, keep: int) -> Cost:
    """What blocks come to, where a visit takes so many minutes and so many environments may stay."""
    longest = max(len(block) for block in blocks)
    installed = min(keep, longest + 1)
    return Cost(
        sum(len(block) + 2 for block in blocks),
        (longest + 2) * minutes + (longest + 1) * INSTALL_MINUTES,
        installed * ENVIRONMENT_GB,
    )


def lacking(tags: Iterable[str], had: Mapping[str, Collection[str]], copies: int) -> dict[str, int]:
    """Release -> on how many nodes more it must be measured; had: release -> the nodes that have."""
    short = {tag: copies - len(had.get(tag, ())) for tag in tags}
    return {tag: number for tag, number in short.items() if number > 0}


@dataclass(frozen=True)
class More:
    """A block that tops up what is missing, on any node but those that have some of it."""

    tags: tuple[str, ...]
    without: tuple[str, ...]


def top_up(short: Mapping[str, int], had: Mapping[str, Collection[str]], nodes: int) -> list[More]:
    """Blocks for what is lacking, dealt to the nodes that are left: releases that the same nodes have go together."""
    groups: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for tag, number in short.items():
        groups.setdefault((tuple(sorted(had.get(tag, ()))), number), []).append(tag)
    return [
        More(tuple(block), without)
        for (without, number), tags in groups.items()
        for block in deal(tags, max(number, nodes - len(without)), number)
        if block
    ]
