"""The page over the histories of several machines: which changes all of them show, and which only some."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from urllib.parse import quote

import pandas as pd
from analysis.cells import Row
from analysis.changes import CONFIRMED, LAYOUT, REFUTED, UNDETERMINED

from . import show, tables
from .advice import Box
from .change_words import conditions_text, effect_text, route_lines, route_text
from .history_page import CSV_DIGITS
from .page import Page, Section
from .tables import render_table, to_csv

MAX_ROWS = 30  # of a table; changes.csv has all
MAX_EXAMPLES = 3  # of each outcome at the head of the page, of different routes


@dataclass(frozen=True)
class SharedChange:
    """A change that several machines measured.

    first    its row on the machine that measured the most releases
    effects  per machine: its name, the effect there, and the releases compared if these are others
    """

    first: Row
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
    """Outcome (CONFIRMED, REFUTED or UNDETERMINED) -> changes. Those that code layout alone explains are
    left out."""
    outcomes: dict[str, list[SharedChange]] = {
        outcome: [] for outcome in (CONFIRMED, REFUTED, UNDETERMINED)
    }
    for _, rows in changes[changes["evidence"] != LAYOUT].groupby("change"):
        seen = set(rows["said"])
        outcome = next(each for each in (REFUTED, UNDETERMINED, CONFIRMED) if each in seen)
        machines = [*rows.itertuples()]
        outcomes[outcome].append(
            SharedChange(machines[0], [_effect(row, machines[0]) for row in machines])
        )
    return outcomes


def _effect(row: Row, first: Row) -> tuple[str, str, str]:
    same_releases = (row.since, row.until) == (first.since, first.until)
    releases = "" if same_releases else f"{row.since} to {row.until}"
    return row.machine, effect_text(row), releases


def page_over_machines(machines: Sequence[str], changes: pd.DataFrame) -> Page:
    """The content of the page over all histories. changes: see ``history.changes_over_machines``."""
    outcomes = shared_changes(changes)
    overview = show.render_paragraphs(
        "history", "over_machines", outcomes=outcomes, examples=MAX_EXAMPLES
    )
    columns = tables.column_meanings("machines")
    return Page(
        title="What releases of torch and numpy changed, by machine",
        facts=(f"speed changes by release, compared across {len(machines)} machines",),
        boxes=(Box("The same everywhere, or only here", lines=overview),),
        legend=show.render_paragraphs("history", "machines"),
        sections=[
            _section(outcome, shared, machines) for outcome, shared in outcomes.items() if shared
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


def _section(outcome: str, changes: Sequence[SharedChange], machines: Sequence[str]) -> Section:
    table = render_table(
        "history",
        "shared",
        False,
        outcome=outcome,
        changes=changes,
        machines=machines,
        most=MAX_ROWS,
    )
    return Section(outcome.replace(" ", "-"), table.title, tables=(table,))
