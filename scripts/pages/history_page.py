"""The page of a machine's histories: one part for each package, then how it was measured and how far to trust it."""

import math
from collections.abc import Container, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from analysis.changes import Counted, Series
from analysis.history import History, history_of
from analysis.results import Results
from analysis.sessions import Release, packages
from analysis.statistics import HALF, LEARNT_SD, MIN_PROCESSES, SESSION_SD
from analysis.verdicts import INCONCLUSIVE
from store.records import Record, sessions_of

from benchmarks.contracts import NONE
from benchmarks.timing import LARGE
from pages import show
from pages.advice import Box
from pages.figures import MEMCPY_LABEL, Figure, slug
from pages.page import Page, Section
from pages.show import code, prose
from pages.spreadsheet import FIGURE
from pages.tables import Table, named

from . import history_words as words
from .history_figure import Group, heat_of, panels
from .history_words import Change

MEMORY_WORDS = {"alias": "sharing memory", "copy": "making a copy", "into": "into a buffer that exists"}
CELL = ("benchmark",)  # and its parameters
COUNTS, NODES = ("count", "least", "most", "unit"), ("nodes_with", "nodes_without")
COLUMNS = {
    tuple(names.split()): meaning
    for names, meaning in {
        "history release released": "the package, its version and the day of its release",
        "torch numpy": "what was imported, with the build variant",
        "measured": "when the run began",
        "benchmark": "the cell",
        "processes": "that measured it in that visit",
        "seconds": f"geometric mean over the processes, each by {FIGURE}, in seconds a call",
        "corrected low95 high95": "the same with the machine's drift taken out, and its 95 % interval: what it is "
        "known to by its processes and by what visits of this machine differ by",
        "level": "seconds at the level that the release belongs to",
        "verdict ratio ratio_low95 ratio_high95 q": "of a release that begins a new level: the verdict on the break, "
        "new level over old, its 95 % interval, and q over all series of the history",
        "earliest latest": "the releases between which that level may have begun (95 %)",
        " ".join(COUNTS): "of a call that is counted: the median of its repeats, the least and the most of them; a "
        "release where that changed has a verdict and a ratio, which take no interval",
        "disagree": "True where time and count of a call say different things of a release",
        " ".join(NODES): "of a release that begins a new level: the nodes that show it, and do not",
    }.items()
}


def histories_of(results: Results) -> list[History]:
    """The histories that the results of one machine hold; see ``packages``."""
    return [history_of(results, package) for package in packages(results)]


def link(histories: Sequence[History]) -> str:
    """What another page calls this one."""
    spans = [f"{history.releases[0].name} to {history.releases[-1].version}" for history in histories]
    return f"What releases changed: {show.join(spans)}"


def page_of(results: Results, histories: Sequence[History], csv: str) -> Page:
    """Everything the page of a machine's histories says."""
    machine = histories[0].machine
    changed = {history.package: words.changes(history) for history in histories}
    groups = {history.package: _groups(results, history) for history in histories}
    records = _records(results, histories)
    commands = [record.command for record in records if record.command] or ["python scripts/track.py"]
    sections = [part for each in histories for part in _sections(each, groups[each.package], changed[each.package])]
    sections.append(_method(histories, records))
    return Page(
        title=f"What releases of torch and numpy changed on {machine}",
        machine=machine,
        facts=_facts(histories, records),
        warnings=tuple(_warnings(results, histories)),
        boxes=tuple(_box(history, changed[history.package]) for history in histories),
        heats=tuple(heat_of(history, groups[history.package]) for history in histories),
        legend=prose("history_legend"),
        sections=[section for section in sections if section],
        links=((f"What to use on {machine}: every conversion with one toolchain", f"../../{quote(machine)}/"),),
        command=max(dict.fromkeys(commands), key=commands.count),  # the commonest,
        csv=csv,
        columns=columns_of(histories),
        samples=f"../../results/{quote(machine)}/",
        feed="../../feed.xml",
    )


def _records(results: Results, histories: Sequence[History]) -> list[Record]:
    files = {release.file for history in histories for release in history.releases}
    records = (record for file in files for record in sessions_of(results.runs_of(file)))
    return sorted(records, key=lambda record: record.started)


def _facts(histories: Sequence[History], records: Sequence[Record]) -> tuple[str, ...]:
    facts = []
    for history in histories:
        first, last = history.releases[0], history.releases[-1]
        facts.append(f"{len(history.releases)} releases of {first.name} to {last.version} with {history.held}")
    most = max(len(history.nodes.nodes) if history.nodes else 1 for history in histories)
    facts += [f"{most} nodes"] if most > 1 else []
    facts.append(f"Python {histories[0].python}")
    if records:
        conditions = records[-1].conditions
        if conditions.cpu:
            facts.append(f"{conditions.cpu}, {conditions.cores_allowed} cores")
        days = sorted({record.started[:10] for record in records if record.started})
        facts.append(f"measured {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "") if days else "")
    timed, counted = (sum(len(getattr(history, name)) for history in histories) for name in ("series", "counted"))
    facts += [f"{timed} series of times" if timed else "", f"{counted} of counts" if counted else ""]
    return tuple(filter(None, facts))


def _warnings(results: Results, histories: Sequence[History]) -> Iterator[str]:
    for history in histories:
        for version, reason in history.failed.items():
            yield f"{history.package} {version} was not measured on Python {history.python}: {reason}."
        for note in history.notes:
            yield f"{note}; they are not shown."
        yield from words.node_warnings(history)
    files = {release.file for history in histories for release in history.releases}
    counts = results.timed.loc[results.timed["file"].isin(files), "processes"]
    if len(counts) and counts.median() < MIN_PROCESSES:
        processes = f"{counts.median():.0f} process{'es' if counts.median() > 1 else ''}"
        yield f"A quick look: {processes} a cell where {MIN_PROCESSES} are needed for a verdict."
    if not any(history.repeats for history in histories) and any(history.series for history in histories):
        yield "No toolchain was measured twice: how far the machine drifted is not known, and not corrected for."


def _box(history: History, changes: Sequence[Change]) -> Box:
    first, last = history.releases[0], history.releases[-1]
    new = [route for each in history.appearances if each.gained and not each.dtypes for route in each.routes]
    meant = [f"{each.at.name}, {code(each.route)}, {': '.join(words.meant(each))}" for each in history.semantics[:1]]
    notes = prose("history_notes", history=history, new=named(new), meant=show.join(meant))
    return Box(
        f"{first.name} to {last.version} ({first.date} to {last.date})",
        lines=words.head(history, changes),
        notes=(*notes, *words.count_note(history)),
    )


# --- the parts -----------------------------------------------------------------------------------------------------


def _sections(history: History, groups: Sequence[Group], changes: Sequence[Change]) -> Iterator[Section]:
    package = history.package
    if history.series:
        verdicts = [broken.verdict for series in history.series for broken in series.breaks]
        about = prose("history_changes", history=history, undecided=verdicts.count(INCONCLUSIVE))
        tables = words.releases(history, changes), words.largest(history, changes)
        yield words.section(f"{package}-changes", f"{package}: what changed", about, *tables)
    yield words.node_section(history)
    yield words.count_section(history)
    yield Section(
        f"{package}-curves",
        f"{package}: cost against release date",
        prose("history_curves", history=history, unit=words.unit(history)),
        tuple(_figures(history, groups)),
        wide=True,
    )
    yield words.section(f"{package}-new", f"{package}: what appeared", (), words.appeared(history))
    about = ("Alias, dtype of the result and grad, as benchmarks/semantics.py found them in each release.",)
    yield words.section(f"{package}-meaning", f"{package}: what means something else", about, words.meaning(history))


def _groups(results: Results, history: History) -> list[Group]:
    """For each direction and contract its routes."""
    grouped: dict[tuple[str, str], dict[str, tuple[list[Series], list[Counted]]]] = {}
    every: list[Series | Counted] = [*history.series, *history.counted]
    for cell in every:
        route, dtype = cell.names["route"], cell.names["dtype"]
        if isinstance(route, str) and dtype in ("float32", None):
            contract = results.contracts.get((cell.names["declared"].direction, route), NONE)
            routes = grouped.setdefault((words.direction(cell), contract.memory_for(dtype or "")), {})
            timed, counted = routes.setdefault(route, ([], []))
            if isinstance(cell, Series):
                timed.append(cell)
                timed.sort(key=lambda series: series.nbytes)
            else:
                counted.append(cell)
    groups = []
    for (direction, memory), routes in grouped.items():
        name = slug("history", history.package, direction, memory)
        groups.append(Group(f"{direction}, {MEMORY_WORDS.get(memory, memory)}", name, memory, routes))
    return groups


def _figures(history: History, groups: Sequence[Group]) -> Iterator[tuple[Figure, Table]]:
    """The panels of each group."""
    for group in groups:
        about = f"Cost against release date of {history.package}: {group.title}"
        timed, counted = ([cell for pair in group.routes.values() for cell in pair[place]] for place in (0, 1))
        yield panels(history, group.name, about, group.title, group.routes), words.curves(timed or counted, history)


def _method(histories: Sequence[History], records: Sequence[Record]) -> Section:
    figures = []
    for history in histories:
        groups: dict[str, tuple[list[Series], list[Counted]]] = {}
        for series in history.controls:
            name = show.bare(words.route_of(series))
            if name != MEMCPY_LABEL or series.nbytes in (4096, 2**20, 2**24):
                groups.setdefault(name, ([], []))[0].append(series)
        if groups:
            about = f"What no release of {history.package} can change"
            made = panels(history, slug("history", history.package, "controls"), about, about, groups)
            figures.append((made, words.curves([cell for cells, _ in groups.values() for cell in cells], history)))
    twice = {(repeat.sooner.name, repeat.later.name): repeat for history in histories for repeat in history.repeats}
    several = any(history.nodes for history in histories)
    return Section(
        "method",
        "Machine and method",
        prose("history_order", several=several),
        tuple(figures),
        (words.repeats(twice.values()),) if twice else (),
        prose(
            "history_method",
            samples=_samples(records),
            figure=FIGURE,
            sessions=show.join(list(dict.fromkeys(map(words.sessions, histories))), "or"),
            least=show.percent((LEARNT_SD if twice else SESSION_SD) / math.sqrt(2), 1),
            half=HALF,
            many=show.size(LARGE),
            example=" ".join(release.toolchain.tag for release in histories[0].releases[-2:]),
            several=several,
        ),
        wide=True,
    )


# --- the data --------------------------------------------------------------------------------------------------------


def _samples(records: Sequence[Record]) -> str:
    """How many samples there are, and how quiet the machine was."""
    words = f"{sum(record.samples for record in records):,} samples"
    shares = [record.quiet for record in records if record.quiet is not None]
    if shares:
        noisy = sum(len(record.noisy_cells) for record in records)
        words += f"; the machine was quiet {show.percents(shares)} of the time of a session; {noisy} figures without a"
        words += " quiet sample are left out"
    return f"{words}."


def columns_of(histories: Sequence[History]) -> dict[tuple[str, ...], str]:
    """The columns of the CSV, and what they mean: COLUMNS, but those of what none of the histories has."""
    cells = [cell for history in histories for cell in (*history.series, *history.controls, *history.counted)]
    parameters = dict.fromkeys(name for cell in cells for name in cell.names["parameters"])
    columns = {(*names, *parameters) if names == CELL else names: meaning for names, meaning in COLUMNS.items()}
    absent = [] if any(history.counted for history in histories) else [COUNTS, ("disagree",)]
    absent += [] if any(history.nodes for history in histories) else [NODES]
    return {names: meaning for names, meaning in columns.items() if names not in absent}


def csv_of(histories: Sequence[History]) -> str:
    """A row a series and release, then a row a count and release."""
    rows: list[dict[str, Any]] = []
    for history in histories:
        disagree = {id(finding.time) for counted in history.counted for finding in counted.findings if finding.disagree}
        for series in (*history.series, *history.controls):
            rows += _times(history, series, disagree)
        for counted in history.counted:
            rows += _counts(history, counted)
    table = pd.DataFrame(rows).reindex(columns=[name for names in columns_of(histories) for name in names])
    for name in ("nbytes", "processes"):
        table[name] = pd.to_numeric(table[name]).astype("Int64")
    return str(table.to_csv(index=False, lineterminator="\n", float_format="%.5g"))


def _times(history: History, series: Series, disagree: Container[int]) -> Iterator[dict[str, Any]]:
    """The rows of a cell that is timed, a release each; what begins no level has none of what is said of a break.

    disagree: ids of the breaks that counts say otherwise of
    """
    begins = {broken.at: broken for broken in series.breaks}
    half = HALF * series.errors
    figures = {"processes": series.processes, "seconds": np.exp(series.raw), "corrected": np.exp(series.values)}
    figures |= {"low95": np.exp(series.values - half), "high95": np.exp(series.values + half)}
    figures |= {"level": np.exp(series.levels)}
    for place, release in enumerate(series.releases):
        row = _about(history, release, series) | {name: values[place] for name, values in figures.items()}
        broken = begins.get(release)
        if broken:
            row |= {"verdict": broken.verdict, "ratio": broken.ratio, "q": broken.q}
            row |= {"ratio_low95": broken.low, "ratio_high95": broken.high}
            row |= {"earliest": broken.earliest.version, "latest": broken.latest.version}
            row |= {"disagree": id(broken) in disagree}
            for name, has in zip(NODES, (True, False)):
                row[name] = " ".join(on.node for on in broken.nodes if on.has is has)
        yield row


def _about(history: History, release: Release, cell: Series | Counted) -> dict[str, Any]:
    """What a row is about."""
    return {
        "history": history.package,
        "release": release.version,
        "released": release.date,
        "torch": release.torch,
        "numpy": release.numpy,
        "measured": release.started,
        "benchmark": cell.names["benchmark"],
        **cell.names["parameters"],
    }


def _counts(history: History, counted: Counted) -> Iterator[dict[str, Any]]:
    """The rows of a cell that is counted, a release each."""
    steps = {finding.at: (finding.step, finding.disagree) for finding in counted.findings if finding.step}
    ranges = zip(counted.values, counted.low, counted.high)
    for release, figures in zip(counted.releases, ranges):
        row = _about(history, release, counted) | {"unit": counted.unit}
        row |= {name: f"{figure:.1f}" for name, figure in zip(COUNTS, figures)}
        if release in steps:
            step, disagree = steps[release]
            row |= {"verdict": step.verdict, "ratio": step.ratio, "disagree": disagree}
            row |= {"earliest": release.version, "latest": release.version}
        yield row
