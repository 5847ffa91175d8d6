"""A history on several nodes in words and tables: where a change is, what nodes add, where their counts differ."""

from collections.abc import Iterator, Sequence

from analysis.history import History
from analysis.levels import Break, Node, Nodes, Series

from pages import show
from pages.comparison.words import change, number
from pages.page import Section
from pages.tables import Entry, Table

from . import words

AT_MOST = 20  # rows of changes on some nodes


def remark(route_change: words.Change) -> list[str]:
    """Where a change is, as a line to go below it; none where one machine measured it."""
    said = words.on_nodes(route_change.largest[1])
    return [said] if said else []


def warnings(history: History) -> Iterator[str]:
    """What makes the nodes less than nodes of a kind."""
    nodes = history.nodes
    if nodes and nodes.pretended:
        yield (
            f"The {len(nodes.nodes)} nodes are one machine, which stood for all of them in turns (--engine debug): "
            "they tell how visits differ, and nothing of other machines."
        )
    if nodes and nodes.unlike:
        yield f"The nodes are not alike: they differ by {show.join(nodes.unlike)}."
    if nodes and nodes.differing:
        names = dict.fromkeys(node for cell in nodes.differing for node in cell.counts)
        yield f"{len(nodes.differing)} counts of instructions are not the same on {show.join(list(names))}: see below."


def section(history: History) -> Section:
    """What the nodes say; empty where there is one machine."""
    nodes = history.nodes
    if nodes is None:
        return Section(f"{history.package}-nodes", "")
    spread = show.join([f"{show.percent(sd, 1)} for {name}" for name, sd in nodes.node_sd.items()])
    apart = show.join([f"{show.percent(sd, 1)} for {name}" for name, sd in nodes.interaction_sd.items()])
    return Section(
        f"{history.package}-nodes",
        f"{history.package}: nodes",
        (
            "Log time is taken as release + node + visit, nodes being random: what a node adds is taken out of its "
            f"releases. Nodes differ by a standard deviation of {spread}; what a node does to a release, beyond what "
            f"visits differ by, by {apart}: intervals have that in them. Where all visits have pulses, what full speed "
            "each of them had is taken out before.",
            "A node has a change where its own visits show at least half of it and exclude none; it has it not where "
            "they exclude half of it. A change that is confirmed in a node's own history alone, judged as that of "
            "one machine, stands in a table of its own.",
        ),
        tables=tuple(filter(None, (_nodes(nodes), _local(history, nodes), _differing(nodes)))),
    )


def _nodes(nodes: Nodes) -> Table:
    def row(node: Node) -> tuple[Entry, ...]:
        return (
            node.name,
            str(node.releases),
            str(node.visits),
            f"{number(node.adds, 3)}×" if node.adds == node.adds else "",
        )

    return Table(
        "The nodes: times over those of the mean node, the median over cells",
        ("node", "releases", "visits", "takes"),
        tuple(map(row, nodes.nodes)),
    )


def _local(history: History, nodes: Nodes) -> Table:
    """Changes that not all nodes have: those that all of them together show, too."""
    partly = [(series, broken) for series, broken in history.breaks if any(on.has is False for on in broken.nodes)]
    breaks = sorted([*partly, *nodes.local], key=lambda pair: -max(abs(on.ratio - 1) for on in pair[1].nodes))
    rest = len(breaks) - AT_MOST
    return Table(
        f"Changes of {history.package} that are not on every node",
        ("release", "route", "where", "node by node"),
        tuple(_placed(series, broken) for series, broken in breaks[:AT_MOST]),
        (f"{rest} more are not shown.",) if rest > 0 else (),
        numeric=False,
    )


def _placed(series: Series, broken: Break) -> tuple[Entry, ...]:
    effect, _ = change(broken.verdict, broken.ratio, broken.low, broken.high, broken.q)
    each = [f"{on.node}: {number(on.ratio, 3)}× ({number(on.low, 3)} to {number(on.high, 3)})" for on in broken.nodes]
    return (
        [broken.at.name, broken.at.date],
        [words.route_of(series), ", ".join(filter(None, (words.place_of(series), words.direction(series))))],
        [words.on_nodes(broken), effect],
        each,
    )


def _differing(nodes: Nodes) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for cell in nodes.differing:
        counts: Sequence[str] = [f"{node}: {count:,.0f}" for node, count in cell.counts.items()]
        rows.append((cell.release.name, str(cell.names["cell"]), list(counts)))
    return Table(
        "Counts that nodes do not agree in: no repeat of one is within those of another",
        ("release", "cell", "instructions"),
        tuple(rows[:AT_MOST]),
        (f"{len(rows) - AT_MOST} more are not shown.",) if len(rows) > AT_MOST else (),
        numeric=False,
    )
