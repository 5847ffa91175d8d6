"""The pages of histories: of one machine, and over several.

The data is read once (history_data.py). Each section is a view of it: heat maps and curves
(history_pictures.py), what a release changed (release_news.py), and the method here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from urllib.parse import quote

import pandas as pd
from analysis.changes import CONFIRMED, LAYOUT, REFUTED, UNDETERMINED, MachineChange
from analysis.history import History
from analysis.results import Results
from analysis.verdicts import TIME
from store import frames
from store.frames import Change

from . import show
from .advice import Box, capitalize_first
from .change_words import conditions_text, effect_text, route_lines, route_text
from .comparison_words import number
from .csv_files import to_csv
from .history_data import HistoryData, read_histories
from .history_pictures import heat_maps, history_figures
from .page import Page, Section
from .release_news import ReleaseNews, changes_table, release_news
from .tables import Table, render_table

CSV_DIGITS = 5  # significant


def link(histories: Sequence[History]) -> str:
    """Text of links to this page."""
    return f"What releases changed: {show.join([_span(history) for history in histories])}"


def _span(history: History) -> str:
    return f"{history.releases[0].name} to {history.releases[-1].version}"


def page_of(results: Results, histories: Sequence[History]) -> Page:
    """The content of the page of a machine's histories."""
    data = read_histories(results, histories)
    news = {history.package: release_news(history) for history in histories}
    commands = [record.command for record in data.records if record.command]
    columns = csv_columns(data)
    machine = data.machine
    return Page(
        title=f"What releases of torch and numpy changed on {machine}",
        machine=machine,
        facts=_paragraphs("facts", data),
        warnings=_warnings(data),
        boxes=tuple(_box(history, news[history.package]) for history in histories),
        heats=tuple(chain.from_iterable(map(heat_maps, histories))),
        legend=_paragraphs("legend", data),
        sections=[
            *(
                _release_section(data, history, each)
                for history in histories
                for each in news[history.package]
            ),
            *_figure_sections(data),
            _method(data),
        ],
        links=(
            (
                f"What to use on {machine}: every conversion with one toolchain",
                f"../../{quote(machine)}/",
            ),
        ),
        command=max(commands, key=commands.count, default="python scripts/track.py"),
        csv=history_csv(data, columns),
        columns=columns,
        samples=f"../../results/{quote(machine)}/",
        feed="../../feed.xml",
    )


def _paragraphs(block: str, data: HistoryData, **values: object) -> tuple[str, ...]:
    values |= {"histories": data.histories, "records": data.records, "nodes": data.node_count}
    return show.render_paragraphs("history", block, number=number, **values)


def _warnings(data: HistoryData) -> tuple[str, ...]:
    timed = [history.rows[history.rows["what"] == TIME] for history in data.histories]
    return _paragraphs(
        "warnings",
        data,
        outdated=sum(data.outdated),
        benchmarks=len(data.outdated),
        processes=[rows["processes"].median() for rows in timed],
    )


def _box(history: History, news: Sequence[ReleaseNews]) -> Box:
    """The headline of each release, the newest first."""
    rows = tuple(
        (
            each.release.tag,
            (
                f"{each.release.name} ({each.release.date})",
                each.headline,
                each.summaries[0] if each.timed else "",
            ),
        )
        for each in news
    )
    columns = ("release", "routes that changed, once each", "largest change of time")
    return Box(f"{_span(history)}, {history.fixed_package}", columns=columns, rows=rows)


def _release_section(data: HistoryData, history: History, news: ReleaseNews) -> Section:
    """What a release changed: its headline, what behaves differently, and a row per route."""
    release = news.release
    appearances, redefinitions = (
        [*rows[rows["release"] == release.version].itertuples()]
        for rows in (data.appearances[history.package], data.redefinitions[history.package])
    )
    behaviour = _paragraphs("behaviour", data, appearances=appearances, redefinitions=redefinitions)
    return Section(
        release.tag,
        f"{release.name}, {release.date}",
        (f"{capitalize_first(news.headline)}.", *behaviour),
        tables=(changes_table(history, release),),
    )


def _figure_sections(data: HistoryData) -> Iterator[Section]:
    for history in data.histories:
        title = f"{history.package}: cost against release date"
        intro = _paragraphs("curves", data) if history is data.histories[0] else ()
        figures = tuple(history_figures(history))
        yield Section(f"{history.package}-curves", title, intro, figures, wide=True)


def _method(data: HistoryData) -> Section:
    replicates = pd.concat([history.replicates for history in data.histories])
    pairs = [*replicates.drop_duplicates(["torch", "numpy", "hours"]).itertuples()]
    controls = data.rows[data.rows["control"]]
    times = data.rows[data.rows["what"].eq(TIME) & ~data.rows["control"]]
    half = (times["high"] / times["low"]) ** 0.5 - 1  # half the 95 % interval of a point
    alarms = [
        (history.package, alarm.release, route_text(alarm), effect_text(alarm))
        for history in data.histories
        for alarm in history.false_alarms.itertuples()
    ]
    intro = _paragraphs(
        "method",
        data,
        controls=len(controls[["package", "series"]].drop_duplicates()),
        precision=half.groupby(times["noise"], sort=False).median().to_dict(),
        pairs=pairs,
        alarms=alarms,
    )
    parts = [render_table("history", "replicates", pairs=pairs, number=number)]
    parts += [_nodes_table(history) for history in data.histories]
    return Section("method", "Machine and method", intro, tables=tuple(parts))


def _nodes_table(history: History) -> Table:
    nodes = [*history.nodes.itertuples()]
    return render_table("history", "nodes", package=history.package, nodes=nodes, number=number)


# --- CSV ----------------------------------------------------------------------------------------


def csv_columns(data: HistoryData) -> dict[tuple[str, ...], str]:
    """The meaning of the columns of results.csv."""
    absent = {*frames.parameter_names(Change)}.difference(data.parameters)
    absent |= {"nodes_with", "nodes_without"}.difference(data.rows)
    return frames.csv_columns(Change, data.parameters, absent)


def history_csv(data: HistoryData, columns: dict[tuple[str, ...], str]) -> str:
    """The CSV file of histories, a row per series, release and kind of evidence."""
    files = {
        (history.package, release.version): release.files
        for history in data.histories
        for release in history.releases
    }
    rows = data.rows.assign(
        files=[files[release] for release in zip(data.rows["package"], data.rows["release"])],
        nbytes=pd.to_numeric(data.rows["nbytes"]).astype("Int64"),
    )
    names = [*chain(*columns)]
    names.sort(key=lambda name: name not in ("package", "machine"))  # these two come first
    return to_csv(rows[names], digits=CSV_DIGITS)


# --- over several machines: which changes all of them show, and which only some ------------------


MAX_SHARED_ROWS = 30  # of a table; changes.csv has all
MAX_EXAMPLES = 3  # of each outcome at the head of the page, of different routes


@dataclass(frozen=True)
class SharedChange:
    """A change that several machines measured.

    first    its row on the machine that measured the most releases
    effects  per machine: its name, the effect there, and the releases compared if these are others
    """

    first: Change
    effects: Sequence[tuple[str, str, str]]

    @property
    def route(self) -> str:
        """In one line."""
        return route_text(self.first)

    @property
    def route_lines(self) -> list[str]:
        return route_lines(self.first)

    @property
    def conditions(self) -> str:
        return conditions_text(self.first)


def shared_changes(changes: pd.DataFrame) -> dict[str, list[SharedChange]]:
    """Outcome (CONFIRMED, REFUTED or UNDETERMINED) -> changes. Those that code layout alone
    explains are left out."""
    outcomes: dict[str, list[SharedChange]] = {
        outcome: [] for outcome in (CONFIRMED, REFUTED, UNDETERMINED)
    }
    for _, rows in changes[changes["evidence"] != LAYOUT].groupby("change"):
        seen = set(rows["said"])
        outcome = next(each for each in (REFUTED, UNDETERMINED, CONFIRMED) if each in seen)
        machines = [*rows.itertuples()]
        outcomes[outcome].append(
            SharedChange(machines[0], [_machine_effect(row, machines[0]) for row in machines])
        )
    return outcomes


def _machine_effect(row: MachineChange, first: MachineChange) -> tuple[str, str, str]:
    same_releases = (row.since, row.until) == (first.since, first.until)
    releases = "" if same_releases else f"{row.since} to {row.until}"
    return row.machine, effect_text(row), releases


def page_over_machines(machines: Sequence[str], changes: pd.DataFrame) -> Page:
    """The content of the page over all histories. changes: see
    ``history.changes_over_machines``."""
    outcomes = shared_changes(changes)
    overview = show.render_paragraphs(
        "history", "over_machines", outcomes=outcomes, examples=MAX_EXAMPLES
    )
    columns = frames.csv_columns(MachineChange)
    return Page(
        title="What releases of torch and numpy changed, by machine",
        facts=(f"speed changes by release, compared across {len(machines)} machines",),
        boxes=(Box("The same everywhere, or only here", lines=overview),),
        legend=show.render_paragraphs("history", "machines"),
        sections=[
            _outcome_section(outcome, shared, machines)
            for outcome, shared in outcomes.items()
            if shared
        ],
        links=(
            *((f"{machine}: all its changes", f"{quote(machine)}/") for machine in machines),
            ("What to use on each machine", "../"),
        ),
        command="python scripts/track.py",
        csv=to_csv(changes[[*chain(*columns)]], digits=CSV_DIGITS),
        columns=columns,
        data="changes.csv",
    )


def _outcome_section(
    outcome: str, changes: Sequence[SharedChange], machines: Sequence[str]
) -> Section:
    table = render_table(
        "history",
        "shared",
        False,
        outcome=outcome,
        changes=changes,
        machines=machines,
        most=MAX_SHARED_ROWS,
    )
    return Section(outcome.replace(" ", "-"), table.title, tables=(table,))
