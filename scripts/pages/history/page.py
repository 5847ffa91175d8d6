"""The page of a machine's histories: one part for each package, then how it was measured and how far to trust it."""

import math
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from analysis.history import History, history_of
from analysis.levels import Series
from analysis.results import Results
from analysis.sessions import Release, packages
from analysis.statistics import HALF, LEARNT_SD, MIN_PROCESSES, SESSION_SD
from analysis.steps import Counted
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

from . import evidence, figure, words
from .figure import panels
from .words import Change, Group

MEMORY_WORDS = {"alias": "sharing memory", "copy": "making a copy", "into": "into a buffer that exists"}
CELL = ("benchmark",)  # and its parameters
COLUMNS = {
    ("history", "release", "released"): "the package, its version and the day of its release",
    ("torch", "numpy"): "what was imported, with the build variant",
    ("measured",): "when the run began",
    CELL: "the cell",
    ("processes",): "that measured it in that visit",
    ("seconds",): f"geometric mean over the processes, each by {FIGURE}, in seconds a call",
    (
        "corrected",
        "low95",
        "high95",
    ): "the same with the machine's drift taken out, and its 95 % interval: what it is known to by its processes and "
    "by what visits of this machine differ by",
    ("level",): "seconds at the level that the release belongs to",
    (
        "verdict",
        "ratio",
        "ratio_low95",
        "ratio_high95",
        "q",
    ): "of a release that begins a new level: the verdict on the break, "
    "new level over old, its 95 % interval, and q over all series of the history",
    ("earliest", "latest"): "the releases between which that level may have begun (95 %)",
}
COUNTS = {  # where something is counted
    (
        "count",
        "least",
        "most",
        "unit",
    ): "of a call that is counted: the median of its repeats, the least and the most of "
    "them; a release where that changed has a verdict and a ratio, which take no interval",
    ("disagree",): "True where time and count of a call say different things of a release",
}
NODES: dict[tuple[str, ...], str] = {  # where there are several
    ("nodes_with", "nodes_without"): "of a release that begins a new level: the nodes that show it, and do not"
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
    sections = [
        section
        for history in histories
        for section in _sections(history, groups[history.package], changed[history.package])
    ]
    return Page(
        title=f"What releases of torch and numpy changed on {machine}",
        machine=machine,
        facts=_facts(results, histories),
        warnings=tuple(_warnings(results, histories)),
        boxes=tuple(_box(history, changed[history.package]) for history in histories),
        heats=tuple(figure.heat_of(history, groups[history.package]) for history in histories),
        legend=prose("history_legend"),
        sections=[section for section in (*sections, _method(results, histories)) if section],
        links=((f"What to use on {machine}: every conversion with one toolchain", f"../../{quote(machine)}/"),),
        command=_command(results, histories),
        csv=csv,
        columns=columns_of(histories),
        samples=f"../../results/{quote(machine)}/",
        feed="../../feed.xml",
    )


def _records(results: Results, histories: Sequence[History]) -> list[Record]:
    files = {release.file for history in histories for release in history.releases}
    records = (record for file in files for record in sessions_of(results.runs_of(file)))
    return sorted(records, key=lambda record: record.started)


def _command(results: Results, histories: Sequence[History]) -> str:
    """The command that measured the releases; the commonest where there were several."""
    commands = [record.command for record in _records(results, histories) if record.command]
    return max(dict.fromkeys(commands), key=commands.count) if commands else "python scripts/track.py"


def _facts(results: Results, histories: Sequence[History]) -> tuple[str, ...]:
    facts = []
    for history in histories:
        first, last = history.releases[0], history.releases[-1]
        facts.append(f"{len(history.releases)} releases of {first.name} to {last.version} with {history.held}")
    most = max(len(history.nodes.nodes) if history.nodes else 1 for history in histories)
    facts += [f"{most} nodes"] if most > 1 else []
    facts.append(f"Python {histories[0].python}")
    records = _records(results, histories)
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
        yield from evidence.node_warnings(history)
    files = {release.file for history in histories for release in history.releases}
    counts = results.timed.loc[results.timed["file"].isin(files), "processes"]
    if len(counts) and counts.median() < MIN_PROCESSES:
        processes = f"{counts.median():.0f} process{'es' if counts.median() > 1 else ''}"
        yield f"A quick look: {processes} a cell where {MIN_PROCESSES} are needed for a verdict."
    if not any(history.repeats for history in histories) and any(history.series for history in histories):
        yield "No toolchain was measured twice: how far the machine drifted is not known, and not corrected for."


def _box(history: History, changes: Sequence[Change]) -> Box:
    first, last = history.releases[0], history.releases[-1]
    notes: list[str] = []
    new = [appearance for appearance in history.appearances if appearance.gained]
    routes = [route for appearance in new if not appearance.dtypes for route in appearance.routes]
    if routes:
        notes.append(f"New since then: {named(routes)}.")
    if history.looked_at[1] and not history.semantics:
        least, most = history.looked_at
        times = f"{most}" if least == most else f"{least} to {most}"
        notes.append(
            f"No release changed what a route means: memory, dtype of the result and grad ({times} facts a release)."
        )
    elif history.semantics:
        meaning = history.semantics[0]
        more = f", and {len(history.semantics) - 1} more" if len(history.semantics) > 1 else ""
        notes.append(
            f"Means something else: {meaning.at.name}, {code(meaning.route)}, {': '.join(words.meant(meaning))}{more}."
        )
    notes += evidence.note(history)
    return Box(
        f"{first.name} to {last.version} ({first.date} to {last.date})",
        lines=(words.overall(history), *words.head(history, changes))
        if history.series
        else tuple(evidence.head(history)),
        notes=tuple(notes),
    )


# --- the parts -----------------------------------------------------------------------------------------------------


def _sections(history: History, groups: Sequence[Group], changes: Sequence[Change]) -> Iterator[Section]:
    package = history.package
    if history.series:
        yield _changes(history, changes)
    yield evidence.node_section(history)
    yield evidence.count_section(history)
    yield Section(
        f"{package}-curves",
        f"{package}: cost against release date",
        (
            "A panel a route, float32. Cost is relative to the newest level, whose seconds stand above each panel "
            f"by size: 1.5× means that a release took half as long again as {history.releases[-1].name} does. "
            "Points are releases with 95 % intervals of what they take on this machine, lines the levels, dashed the "
            "releases that changed one." + (evidence.BELOW.format(evidence.unit(history)) if history.counted else "")
            if history.series
            else f"A panel a route, float32: the {evidence.unit(history)} of a call, with the range of their repeats, "
            f"over those of {history.releases[-1].name}. Dashed: the releases that changed them.",
        ),
        tuple(_figures(history, groups)),
        wide=True,
    )
    yield Section(f"{package}-new", f"{package}: what appeared", tables=tuple(filter(None, (words.appeared(history),))))
    yield Section(
        f"{package}-meaning",
        f"{package}: what means something else",
        ("Alias, dtype of the result and grad, as benchmarks/semantics.py found them in each release.",),
        tables=tuple(filter(None, (words.meaning(history),))),
    )


def _changes(history: History, changes: Sequence[Change]) -> Section:
    """What releases did to time."""
    package = history.package
    undecided = sum(1 for series in history.series for broken in series.breaks if broken.verdict == INCONCLUSIVE)
    settings, counted = history.settings, evidence.findings_in(history)

    def remark(change: Change) -> list[str]:
        return [*evidence.count_remark(counted, change), *evidence.node_remark(change)]

    return Section(
        f"{package}-changes",
        f"{package}: what changed",
        (
            "A change is a level that begins at a release and was confirmed by the test of a comparison: more "
            f"than {100 * settings.min_effect:g} % either way, false discoveries bounded at "
            f"{100 * settings.fdr:g} % over all {len(history.series)} series. A ratio compares levels: all "
            f"releases on both sides count. {undecided} breaks that the partition proposed were not confirmed. "
            "“or” names the releases at which it may as well have been (95 %).",
            *_own_check(history),
            f"A release stands for all patches since the release before it in the table; which patch it was, "
            f"{code(f'asv find {package}-A..{package}-B NAME')} tells.",
        ),
        tables=tuple(filter(None, (words.releases(history, changes), words.largest(history, changes, remark)))),
    )


def _own_check(history: History) -> Iterator[str]:
    """How often the method errs on this data."""
    if history.shuffled:
        mean, most = sum(history.shuffled) / len(history.shuffled), max(history.shuffled)
        yield (
            "A/A: with the releases shuffled in what the levels leave, where nothing can have changed, the method "
            f"confirms {mean:.3g} breaks in {len(history.series)} series on average over {len(history.shuffled)} "
            f"shuffles, {most} at most. False ones come together, for a visit's cells share its machine, and are "
            "small: be slow to believe a change below 1.1×."
        )


def _groups(results: Results, history: History) -> list[Group]:
    """For each direction and kind of memory its routes."""
    grouped: dict[tuple[str, str], dict[str, list[Series]]] = {}
    counted: dict[tuple[str, str], list[Counted]] = {}

    def routes_of(direction: str, cell: Series | Counted) -> dict[str, list[Series]]:
        declared = cell.names["declared"].direction
        contract = results.contracts.get((declared, cell.names["route"]), NONE)
        return grouped.setdefault((direction, contract.memory_for(cell.names["dtype"] or "")), {})

    def shown(cell: Series | Counted) -> bool:
        return isinstance(cell.names["route"], str) and cell.names["dtype"] in ("float32", None)

    for series in filter(shown, history.series):
        routes_of(words.direction(series), series).setdefault(str(series.names["route"]), []).append(series)
    for cell in filter(shown, history.counted):
        way, route = evidence.direction(cell), str(cell.names["route"])
        routes_of(way, cell).setdefault(route, [])  # though nothing was timed
        counted.setdefault((way, route), []).append(cell)
    groups = []
    for (direction, memory), routes in grouped.items():
        groups.append(
            Group(
                f"{direction}, {MEMORY_WORDS.get(memory, memory)}",
                slug("history", history.package, direction, memory),
                memory,
                {route: sorted(cells, key=lambda series: series.nbytes) for route, cells in routes.items()},
                {route: counted.get((direction, route), []) for route in routes},
            )
        )
    return groups


def _figures(history: History, groups: Sequence[Group]) -> Iterator[tuple[Figure, Table]]:
    """The panels of each group."""
    for group in groups:
        about = f"Cost against release date of {history.package}: {group.title}"
        every = [series for cells in group.routes.values() for series in cells]
        drawn = panels(history, group.name, about, group.title, list(group.routes.items()), group.counted)
        yield drawn, words.curves(every, history) if every else evidence.curves(group.counted, history)


def _method(results: Results, histories: Sequence[History]) -> Section:
    figures = []
    for history in histories:
        groups: dict[str, list[Series]] = {}
        for series in history.controls:
            name = show.bare(words.route_of(series))
            if name != MEMCPY_LABEL or series.nbytes in (4096, 2**20, 2**24):
                groups.setdefault(name, []).append(series)
        if groups:
            about = f"What no release of {history.package} can change"
            name = slug("history", history.package, "controls")
            made = panels(history, name, about, about, list(groups.items()))
            figures.append((made, words.curves([cell for cells in groups.values() for cell in cells], history)))
    twice = {(repeat.sooner.name, repeat.later.name): repeat for history in histories for repeat in history.repeats}
    sessions = list(dict.fromkeys(map(words.sessions, histories)))
    records = _records(results, histories)
    several = any(history.nodes for history in histories)
    again = "a reference is measured first on every node, and" if several else "the first"
    return Section(
        "method",
        "Machine and method",
        (
            "Releases are measured from coarse to fine, so that the machine's drift over the hours does not look "
            f"like a trend; {again} is measured again at the end. What its cells moved by in between, the median "
            "of each kind of memory, is taken out of every release in proportion to the time. The table says how "
            "large that was, and the panels show what no release can change: memcpy, and the harness itself. Where "
            "the two histories cross, one toolchain was measured for each.",
        ),
        tuple(figures),
        (words.repeats(list(twice.values())),) if twice else (),
        prose(
            "history_method",
            samples=_samples(records),
            figure=FIGURE,
            sessions=show.join(sessions, "or"),
            least=show.percent((LEARNT_SD if twice else SESSION_SD) / math.sqrt(2), 1),
            half=HALF,
            many=show.size(LARGE),
            example=_example(histories),
            limits="one kind of machine" if several else "one machine",
            visits="a visit or two" if several else "one visit",
        ),
        wide=True,
    )


def _example(histories: Sequence[History]) -> str:
    releases = histories[0].releases
    return f"{releases[-2].toolchain.tag} {releases[-1].toolchain.tag}"


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
    """The columns of the CSV, and what they mean."""
    every: list[Series | Counted] = []
    for history in histories:
        every += [*history.series, *history.controls, *history.counted]
    parameters = dict.fromkeys(name for cell in every for name in cell.names["parameters"])
    columns = {**COLUMNS, **(COUNTS if any(history.counted for history in histories) else {})}
    columns.update(NODES if any(history.nodes for history in histories) else {})
    return {(*names, *parameters) if names == CELL else names: words for names, words in columns.items()}


def csv_of(histories: Sequence[History]) -> str:
    """A row a series and release, then a row a count and release."""
    rows = []
    for history in histories:
        disagree = {id(finding.time) for counted in history.counted for finding in counted.findings if finding.disagree}
        for series in (*history.series, *history.controls):
            begins = {broken.at.version: broken for broken in series.breaks}
            low, high = series.values - HALF * series.errors, series.values + HALF * series.errors
            for place, release in enumerate(series.releases):
                broken = begins.get(release.version)
                rows.append(
                    {
                        **_about(history, release, series),
                        "processes": int(series.processes[place]),
                        "seconds": math.exp(series.raw[place]),
                        "corrected": math.exp(series.values[place]),
                        "low95": math.exp(low[place]),
                        "high95": math.exp(high[place]),
                        "level": math.exp(series.levels[place]),
                        "verdict": broken.verdict if broken else "",
                        "ratio": broken.ratio if broken else np.nan,
                        "ratio_low95": broken.low if broken else np.nan,
                        "ratio_high95": broken.high if broken else np.nan,
                        "q": broken.q if broken else np.nan,
                        "earliest": broken.earliest.version if broken else "",
                        "latest": broken.latest.version if broken else "",
                        "disagree": id(broken) in disagree if broken else "",
                        "nodes_with": " ".join(on.node for on in broken.nodes if on.has) if broken else "",
                        "nodes_without": " ".join(on.node for on in broken.nodes if on.has is False) if broken else "",
                    }
                )
        rows += [row for counted in history.counted for row in _counts(history, counted)]
    table = pd.DataFrame(rows).reindex(columns=[name for names in columns_of(histories) for name in names])
    for name in ("nbytes", "processes"):
        table[name] = pd.to_numeric(table[name]).astype("Int64")
    return str(table.to_csv(index=False, lineterminator="\n", float_format="%.5g"))


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
    steps = {finding.at.version: (finding.step, finding.disagree) for finding in counted.findings if finding.step}
    for place, release in enumerate(counted.releases):
        step, disagree = steps.get(release.version, (None, ""))
        yield {
            **_about(history, release, counted),
            "verdict": step.verdict if step else "",
            "ratio": step.ratio if step else np.nan,
            "earliest": release.version if step else "",
            "latest": release.version if step else "",
            "count": f"{counted.values[place]:.1f}",
            "least": f"{counted.low[place]:.1f}",
            "most": f"{counted.high[place]:.1f}",
            "unit": counted.unit,
            "disagree": disagree,
        }
