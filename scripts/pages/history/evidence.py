"""What counts of instructions and several nodes add to a history, in words and tables.

Of counts: their steps, and where time and count disagree. Of nodes: where a change is, what nodes add, and where their
counts differ.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from analysis.history import History
from analysis.levels import Break, Node, Nodes, Series
from analysis.steps import Counted, Finding, Step
from analysis.verdicts import FASTER, FEWER, MORE, SLOWER

from pages import show
from pages.comparison_words import change, number
from pages.figures import slug
from pages.page import Section
from pages.tables import Entry, Table

from . import words
from .words import AT_MOST, TOLD, Change, along, cells_by_size, place_of, route_of

# --- counts of instructions -------------------------------------------------------------------------------------------


Found = tuple[Counted, Finding]
T = TypeVar("T")
COUNTED = {MORE: "more {}", FEWER: "fewer {}", "": "as many {}"}
TIMED = {SLOWER: "more time", FASTER: "less time", "": "no change of time was found"}
BELOW = " Below stand the {}, with the range of their repeats, over those of the newest release."
ELSEWHERE = "not the call's own work, such as memory or the machine"


def unit(history: History) -> str:
    """What is counted: instructions."""
    return show.join(list(dict.fromkeys(counted.unit for counted in history.counted)))


def note(history: History) -> Iterator[str]:
    """What the counts come to, for the head of the page."""
    if history.counted:
        stepped = sum(1 for counted in history.counted if counted.steps)
        against = len({id(counted) for counted, _ in _disagreeing(history)})
        rest = f"; of {against} their time says otherwise" if against else ""
        yield f"{unit(history).capitalize()} of {len(history.counted)} calls: {stepped} changed{rest}."


def head(history: History) -> Iterator[str]:
    """What the counts come to where nothing was timed: how many changed, then the releases that changed the most."""
    grouped = by_release(history)
    yield (
        f"Nothing was timed; {unit(history)} have no noise. Most of all changed at:" if grouped else "Nothing changed."
    )
    yield from (f"{pairs[0][1].at.name}: {release_line(pairs)}" for pairs in grouped[:TOLD])


def by_release(history: History) -> list[list[Found]]:
    """Steps of the same release together: first those that changed the most in sum."""
    stepped = [pair for pair in findings_in(history) if pair[1].step]
    grouped = _grouped(stepped, lambda pair: pair[1].at.version)
    return sorted(grouped, key=lambda pairs: -sum(pair[1].size for pair in pairs))


def release_line(pairs: Sequence[Found]) -> str:
    """3 routes (5 cells), most of all `torch.tensor(a)`, 1.2× the instructions at 4 KiB, float32"""
    counted, finding = pairs[0]
    routes = len({pair[0].key for pair in pairs})
    most = f"{route_of(counted)}, {_factor(counted, finding.step)} at {place_of(counted)}" if finding.step else ""
    return f"{routes} route{'s' if routes > 1 else ''} ({len(pairs)} cells), most of all {most}"


def curves(groups: Mapping[str, Sequence[Counted]], history: History) -> Table:
    """The points of a figure: counts, a row a cell."""
    every = (counted for group in groups.values() for counted in group)
    rows = [(counted, [f"{value:,.0f}" for value in counted.values]) for counted in every]
    return along(f"{unit(history).capitalize()} of a call", rows, history)


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
    factor = f", {number(finding.step.ratio)}×" if finding.step else f": {ELSEWHERE}"
    return [f"{said}{factor}{f' ({place_of(counted)})' if len(route_change.breaks) > 1 else ''}"]


def count_section(history: History) -> Section:
    """Steps of counts, and what time says otherwise; empty where nothing is counted in repeats."""
    name, settings = unit(history), history.settings
    least, large = (f"{100 * share:g} %" for share in (settings.min_effect, settings.equivalence))
    return Section(
        slug(history.package, name),
        f"{history.package}: {name}",
        (
            f"The {name} of a call are counted and have no noise, so that a change is of that very release: the first "
            f"that differs by more than {least}, by any two of their repeats, from the release where the level before "
            f"began. Less than {least} a release is found where it has added up. What differs by no more than its own "
            "repeats, in which objects lie elsewhere in memory, is a change if the next release shows it, too.",
            f"Time and count disagree where one of them changes by more than {large} and the other does not, or goes "
            "the other way. That no change of time was found does not exclude a small one.",
        ),
        tables=tuple(filter(None, (_steps(history), _disagreements(history)))),
    )


def findings_in(history: History) -> list[Found]:
    """Every step, and every confirmed break of the time of a counted call, the largest first."""
    every = [(counted, finding) for counted in history.counted for finding in counted.findings]
    return sorted(every, key=lambda pair: -pair[1].size)


def _disagreeing(history: History) -> list[Found]:
    return [pair for pair in findings_in(history) if pair[1].disagree]


def _grouped(items: Sequence[T], by: Callable[[T], Hashable]) -> list[list[T]]:
    """Those alike together, in the order of the first of each."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return list(groups.values())


def _steps(history: History) -> Table:
    """A row a release and route, the largest step first."""
    every = [(step, *pair) for pair in findings_in(history) if (step := pair[1].step)]
    every.sort(key=lambda item: -abs(math.log(item[0].ratio)))
    grouped = _grouped(every, lambda item: (item[0].at.version, item[1].key, item[0].verdict))
    rows: list[tuple[Entry, ...]] = []
    for group in grouped[:AT_MOST]:
        step, counted, _ = group[0]
        rows.append(
            (
                [step.at.name, step.at.date, *_since(step)],
                [route_of(counted), direction(counted)],
                [
                    _factor(counted, step),
                    f"{number(step.low)}–{number(step.high)} by any two repeats",
                    *_on_some(history, counted, step),
                ],
                [place_of(counted), f"{step.old:,.0f} → {step.new:,.0f}"],
                cells_by_size([(other, smaller.ratio) for smaller, other, _ in group[1:]]) or "",
                _times([finding for _, _, finding in group]),
            )
        )
    return Table(
        f"Where {unit(history)} changed, a row a route and release of {history.package}",
        ("release", "route", "change", "at", "and at", "time of these calls"),
        tuple(rows),
        _rest(grouped),
        numeric=False,
    )


def _disagreements(history: History) -> Table:
    """A row a release, a route and what time and count say of it."""
    grouped = _grouped(_disagreeing(history), lambda pair: (pair[1].at.version, pair[0].key, _verdicts(pair[1])))
    rows: list[tuple[Entry, ...]] = []
    for pairs in grouped[:AT_MOST]:
        counted, finding = pairs[0]
        step, time = finding.step, finding.time
        rows.append(
            (
                [finding.at.name, finding.at.date],
                [route_of(counted), direction(counted)],
                _factor(counted, step) if step else _counted(counted, finding),
                list(change(time.verdict, time.ratio, time.low, time.high, time.q)) if time else "no change found",
                [place_of(counted), *([f"and {len(pairs) - 1} more cells"] if len(pairs) > 1 else [])],
                f"{_counted(counted, finding)}, {TIMED[_verdicts(finding)[1]]}{'' if step else f': {ELSEWHERE}'}",
            )
        )
    return Table(
        f"Where time and {unit(history)} disagree",
        ("release", "route", unit(history), "time", "at", "that is"),
        tuple(rows),
        _rest(grouped),
        numeric=False,
    )


def _rest(grouped: Sequence[list[T]]) -> tuple[str, ...]:
    left = len(grouped) - AT_MOST
    return (f"{left} smaller ones are in results.csv.",) if left > 0 else ()


def _verdicts(finding: Finding) -> tuple[str, str]:
    """Of the count and of the time; "" where there is no change."""
    return finding.step.verdict if finding.step else "", finding.time.verdict if finding.time else ""


def _counted(counted: Counted, finding: Finding) -> str:
    return COUNTED[_verdicts(finding)[0]].format(counted.unit)


def _factor(counted: Counted, step: Step) -> str:
    return f"{number(step.ratio)}× the {counted.unit}"


def direction(counted: Counted) -> str:
    return str(counted.names["declared"].direction)


def _since(step: Step) -> list[str]:
    return [f"added up since {step.since.version}"] if step.crept else []


def _on_some(history: History, counted: Counted, step: Step) -> list[str]:
    """Whether nodes count otherwise at an end of a step: of each release one node's counts stand for all."""
    ends = {step.since.version, step.at.version}
    differing = history.nodes.differing if history.nodes else ()
    apart = any(cell.names["cell"] == counted.names["cell"] and cell.release.version in ends for cell in differing)
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


MOST_ROWS = 20  # rows of changes on some nodes


def node_remark(route_change: words.Change) -> list[str]:
    """Where a change is, as a line to go below it; none where one machine measured it."""
    said = words.on_nodes(route_change.largest[1])
    return [said] if said else []


def node_warnings(history: History) -> Iterator[str]:
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


def node_section(history: History) -> Section:
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
    rest = len(breaks) - MOST_ROWS
    return Table(
        f"Changes of {history.package} that are not on every node",
        ("release", "route", "where", "node by node"),
        tuple(_placed(series, broken) for series, broken in breaks[:MOST_ROWS]),
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
        tuple(rows[:MOST_ROWS]),
        (f"{len(rows) - MOST_ROWS} more are not shown.",) if len(rows) > MOST_ROWS else (),
        numeric=False,
    )
