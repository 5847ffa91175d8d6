"""The page over several machines' histories: which changes are everywhere, and which on some machines only."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from analysis.changes import DIFFERS, LAYOUT, NOT_KNOWN, SAME, over_machines
from analysis.history import History
from analysis.verdicts import INSTRUCTIONS

from pages import show
from pages.advice import Box
from pages.history_page import effect_of, named_route, route_of, where
from pages.page import Page, Section, write_into
from pages.show import prose
from pages.spreadsheet import text_of
from pages.tables import Entry, Table

AT_MOST = 30  # rows of a table; changes.csv has all
IN_BOX = 3  # changes of each sort that the head of the page names
COLUMNS: dict[tuple[str, ...], str] = {
    ("change",): "a number: one change on all machines",
    ("package", "release", "benchmark", "route", "dtype", "sizes", "what"): "where it was reported, and of which route",
    ("machine", "since", "until"): "a machine that measured the route around that release, and its releases before and "
    "after the change",
    ("verdict", "ratio", "ratio_low", "ratio_high"): "slower, faster, more or fewer; new over old on that machine, "
    "with its 95 % interval",
    ("said",): "same, differs or not known",
}
TITLES = {
    SAME: "The same on every machine",
    DIFFERS: "Different on some machine",
    NOT_KNOWN: "Not known on some machine",
}


def write(output: Path, histories: Mapping[str, Sequence[History]]) -> Path | None:
    """Write index.html, README.md and changes.csv over machines with histories; None where no two have a route in
    common."""
    changes = over_machines(histories)
    return None if changes.empty else write_into(output, page_of(list(histories), changes))


def page_of(machines: Sequence[str], changes: pd.DataFrame) -> Page:
    """Everything the page over all histories says. changes: see ``over_machines``."""
    told = changes[changes["evidence"] != LAYOUT].groupby("change")["said"].agg(set)
    said = told.map(lambda each: next(sort for sort in (DIFFERS, NOT_KNOWN, SAME) if sort in each))
    numbers = {sort: said.index[said == sort] for sort in TITLES}
    counts = {sort.replace(" ", "_"): len(found) for sort, found in numbers.items()}
    lines = [*prose("history", "over_machines", every=len(said), **counts)]
    for sort, word in ((SAME, "Same"), (DIFFERS, "Differs")):
        routes = changes[changes["change"].isin(numbers[sort])].drop_duplicates("route")["change"]
        lines += [f"{word}: {_change(changes, number)}" for number in routes[:IN_BOX]]
    tables = {sort: _table(title, machines, changes, numbers[sort]) for sort, title in TITLES.items()}
    return Page(
        title="What releases of torch and numpy changed, by machine",
        machine="",
        facts=(f"speed changes by release, compared across {len(machines)} machines",),
        warnings=(),
        boxes=(Box("The same everywhere, or only here", lines=tuple(lines)),),
        legend=prose("history", "machines"),
        sections=[
            Section(sort.replace(" ", "-"), table.title, tables=(table,))
            for sort, table in tables.items()
            if table.rows
        ],
        links=(
            *((f"{machine}: all its changes", f"{quote(machine)}/") for machine in machines),
            ("What to use on each machine", "../"),
        ),
        command="python scripts/track.py",
        csv=text_of(changes[[name for names in COLUMNS for name in names]], digits=5),
        columns=COLUMNS,
        data="changes.csv",
    )


def _change(changes: pd.DataFrame, number: int) -> str:
    """torch 2.0.1, `torch.tensor(a)`, numpy→torch: 1.2× slower on one, 1.3× slower on other (4 KiB)"""
    rows = changes[changes["change"] == number].to_dict("records")
    on = show.join([f"{effect_of(row)} on {row['machine']}" for row in rows])
    unit = ", instructions" if rows[0]["what"] == INSTRUCTIONS else ""
    return f"{rows[0]['package']} {rows[0]['release']}, {named_route(rows[0])}{unit}: {on} ({where(rows[0])})"


def _table(title: str, machines: Sequence[str], changes: pd.DataFrame, numbers: "pd.Index[Any]") -> Table:
    """A row per change, a column per machine: its effect there, and between which releases if these are others."""
    rows: list[tuple[Entry, ...]] = []
    for number in numbers[:AT_MOST]:
        of_change = changes[changes["change"] == number]
        first, spans = of_change.iloc[0], of_change["since"] + " to " + of_change["until"]
        effects = zip(of_change.to_dict("records"), spans)
        on = {row["machine"]: [effect_of(row), *([span] if span != spans.iloc[0] else [])] for row, span in effects}
        known = (f"{first['package']} {first['release']}", route_of(first), first["what"], where(first))
        rows.append((*known, *(on.get(machine, "") for machine in machines)))
    more = f"{len(numbers) - AT_MOST:,} more are in changes.csv."
    columns = ("release", "route", "what", "at", *machines)
    return Table(title, columns, tuple(rows), (more,) if len(numbers) > AT_MOST else (), numeric=False)
