"""Histories of several machines side by side: which changes are everywhere, which on some only, how advice differs.

A machine's changes are those of its results.csv.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from urllib.parse import quote

import pandas as pd
from analysis.verdicts import SAME_WAY
from cli import put
from toolchains import ledger

from pages import show
from pages.advice import Box
from pages.comparison_words import number
from pages.page import Page, Section, rendered
from pages.show import code
from pages.tables import Entry, Table

from . import advice, words
from .page import COLUMNS as HISTORY
from .page import COUNTS, NODES

NOT_A_CELL = {name for names in (*HISTORY, *COUNTS, *NODES) for name in names}  # all other columns are parameters
CELL = ("cell", "route", "place")
CHANGES = {*SAME_WAY, *SAME_WAY.values()}
AT_MOST = 30  # rows of a table; changes.csv has all
TOLD, ALSO = 3, 4  # changes of each sort that the head of the page names; other cells that a row names
COLUMNS: dict[tuple[str, ...], str] = {
    ("history", "release"): "the package and its version",
    ("benchmark", "cell"): "what was timed or counted",
    ("verdict",): "slower or faster; of counts more or fewer",
    ("on", "ratio"): "a machine that has the change, and new level over old there",
    ("everywhere",): "whether all machines that measured the cell at that release and before it have the change",
}


@dataclass(frozen=True)
class Shared:
    """A change of one cell, ``route`` at ``place``. ratios: machine -> new level over old; without: machines that
    measured it and show none."""

    package: str
    release: str
    benchmark: str
    cell: str
    route: str
    place: str
    verdict: str
    ratios: dict[str, float]
    without: tuple[str, ...]

    @property
    def of_route(self) -> tuple[str, ...]:
        """The same for all cells and for times and counts of a route that one release changed one way."""
        return self.package, self.release, self.route or self.benchmark, SAME_WAY.get(self.verdict, self.verdict)

    @property
    def size(self) -> float:
        return max(abs(math.log(ratio)) for ratio in self.ratios.values())


def write(output: Path, tables: dict[str, pd.DataFrame], advised: Mapping[str, advice.Advice]) -> Path | None:
    """Write index.html, README.md and changes.csv over machines with histories; None where no two have a cell in
    common. tables, advised: of each machine ``changes_in`` its CSV, and what to take at its newest release."""
    cells = [cell for table in tables.values() for cell in {*zip(table["benchmark"], table["cell"])}]
    if len(cells) == len({*cells}):
        return None
    page = page_of(tables, advised)
    for name, content in rendered(page).items():
        put(output / name, content)
    return output / "index.html"


def changes_in(csv: str) -> pd.DataFrame:
    """The CSV of a history, with one name a cell."""
    table = pd.read_csv(StringIO(csv), dtype=str, keep_default_na=False)
    names = [name for name in table if name not in NOT_A_CELL]
    cells = list(zip(*(table[name] for name in names))) if names else [()] * len(table)
    places = {cell: _place(dict(zip(names, cell))) for cell in {*cells}}
    table["cell"] = [", ".join(filter(None, cell)) for cell in cells]
    table["route"], table["place"] = ([places[cell][part] for cell in cells] for part in (0, 1))
    table["ratio"] = pd.to_numeric(table["ratio"])
    return table[["history", "release", "benchmark", *CELL, "verdict", "ratio", "earliest", "latest"]]


def _place(parameters: Mapping[str, str]) -> tuple[str, str]:
    """Of a cell's parameters, "" where it has none of that name: its route, and the others in words: 4 KiB, float32."""
    given = {name: value for name, value in parameters.items() if value}
    size = show.size(float(given["nbytes"])) if "nbytes" in given else ""
    route = given.get("route") or given.get("statement", "")
    return route, ", ".join(filter(None, (size, words.others(given))))


def changes(tables: dict[str, pd.DataFrame]) -> list[Shared]:
    """Every confirmed change of a cell that several machines measured, the largest first.

    Of two machines it is one change where both may have it by the same release: a change that one machine sees at a
    release may have come with any that it did not measure since the one before. Of several it is the one most alike.
    """
    shared = []
    groups = {
        machine: dict(list(table.groupby(["history", "benchmark", "cell"], sort=False)))
        for machine, table in tables.items()
    }
    for key in dict.fromkeys(key for by_cell in groups.values() for key in by_cell):
        by_machine = {machine: theirs[key] for machine, theirs in groups.items() if key in theirs}
        confirmed = {
            machine: [
                {**row, "since": _before(table, row)} for row in table.to_dict("records") if row["verdict"] in CHANGES
            ]
            for machine, table in by_machine.items()
        }
        left = sorted(
            ((machine, row) for machine in confirmed for row in confirmed[machine]), key=lambda pair: -_size(pair[1])
        )
        while left and len(by_machine) > 1:
            machine, first = left[0]
            alike = {machine: first}
            for other in confirmed.keys() - {machine}:
                free = [row for name, row in left if name == other and _overlap(first, row)]
                if free:
                    alike[other] = min(free, key=lambda row: abs(math.log(row["ratio"] / first["ratio"])))
            left = [(name, row) for name, row in left if alike.get(name) is not row]
            ratios = {name: float(alike[name]["ratio"]) for name in by_machine if name in alike}
            release = min((row["release"] for row in alike.values()), key=ledger.parts)
            # where a machine has one that may be this one and is another's, nobody knows
            silent = [name for name in by_machine if not any(_overlap(first, row) for row in confirmed[name])]
            without = tuple(name for name in silent if _spans(by_machine[name], first))
            if len(ratios) + len(without) > 1:
                package, benchmark, _ = key
                cell, route, place = (first[name] for name in CELL)
                shared.append(
                    Shared(package, release, benchmark, cell, route, place, first["verdict"], ratios, without)
                )
    return sorted(shared, key=lambda change: -change.size)


def _size(change: dict) -> float:  # type: ignore[type-arg]
    return abs(math.log(change["ratio"]))


def _before(table: pd.DataFrame, change: dict) -> str:  # type: ignore[type-arg]
    """The last release of a cell's that was measured before a change may have been."""
    first = ledger.parts(change["earliest"])
    return max((release for release in table["release"] if ledger.parts(release) < first), key=ledger.parts)


def _overlap(change: dict, other: dict) -> bool:  # type: ignore[type-arg]
    since, last, others_since, others_last = (
        ledger.parts(row[name]) for row in (change, other) for name in ("since", "latest")
    )
    return change["verdict"] == other["verdict"] and others_since < last and since < others_last


def _spans(table: pd.DataFrame, change: dict) -> bool:  # type: ignore[type-arg]
    """Whether a machine measured the cell on both sides of a change of another."""
    versions = [ledger.parts(version) for version in table["release"]]
    return min(versions) < ledger.parts(change["earliest"]) and max(versions) >= ledger.parts(change["latest"])


def by_route(shared: Iterable[Shared]) -> list[list[Shared]]:
    """Changes of one route and benchmark by the same release, which the same machines have, together; in the order of
    the largest of each, which comes first."""
    grouped: dict[tuple[object, ...], list[Shared]] = {}
    for change in shared:
        key = (change.package, change.release, change.benchmark, change.route, change.verdict)
        grouped.setdefault((*key, *sorted(change.ratios), "without", *sorted(change.without)), []).append(change)
    return list(grouped.values())


def page_of(tables: dict[str, pd.DataFrame], advised: Mapping[str, advice.Advice]) -> Page:
    """Everything the page over all histories says; advised: what to take at the newest release of each."""
    shared = changes(tables)
    everywhere, here = ([change for change in shared if bool(change.without) is some] for some in (False, True))
    shared_by_all = {change.of_route for change in everywhere}
    by_some = {change.of_route for change in here} - shared_by_all
    lines = [
        f"Of {len(shared_by_all | by_some)} changes of a route by a release {len(shared_by_all)} are, in a cell at "
        f"least, on every machine that measured it, {len(by_some)} on some only."
    ]
    routes_everywhere, routes_here = by_route(everywhere), by_route(here)
    lines += [f"Everywhere: {_said(alike)}" for alike in routes_everywhere[:TOLD]]
    lines += [f"Confirmed only on {show.join(list(alike[0].ratios))}: {_said(alike)}" for alike in routes_here[:TOLD]]
    about = (
        "A change is one of a level, confirmed on its own machine. It is the same change on two machines where it may "
        "have come with the same release, which one of them perhaps did not measure. That a machine shows none is no "
        "proof that it has none: it may see less.",
    )
    return Page(
        title="What releases of torch and numpy changed, by machine",
        machine="",
        facts=(f"{len(tables)} machines",),
        warnings=tuple(advice.warnings(advised)),
        boxes=(Box("Everywhere, or only here", lines=tuple(lines)), *advice.boxes(advised)),
        legend=(),
        sections=[
            Section("everywhere", "Changes on every machine", about, tables=(_table("Everywhere", routes_everywhere),)),
            Section("here", "Changes on some machines", tables=(_table("On some", routes_here),)),
            *advice.sections(advised),
        ],
        links=(
            *((f"{machine}: all its changes", f"{quote(machine)}/") for machine in tables),
            ("What to use on each machine", "../"),
        ),
        command="python scripts/track.py",
        csv=_csv(shared),
        columns=COLUMNS,
        data="changes.csv",
    )


def _said(alike: Sequence[Shared]) -> str:
    """torch 2.0.1, `torch.tensor(a)`: 1.2× the time on one and 1.3× on other (4 KiB, float32; and 2 other cells)"""
    change, rest = alike[0], len(alike) - 1
    unit = "instructions" if change.verdict in SAME_WAY else "time"
    ratios = [f"{number(ratio)}×" for ratio in change.ratios.values()]
    ratios[0] += f" the {unit}"
    if len(ratios) > 1:  # else the machine was named
        ratios = [f"{ratio} on {machine}" for machine, ratio in zip(change.ratios, ratios)]
    more = f"; and {rest} other cell{'s' if rest > 1 else ''}" if rest else ""
    what = f"{change.package} {change.release}, {code(change.route or change.benchmark)}"
    return f"{what}: {show.join(ratios)} ({change.place}{more})"


def _table(title: str, grouped: Sequence[Sequence[Shared]]) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for alike in grouped[:AT_MOST]:
        change = alike[0]
        lines = [f"{machine}: {number(ratio)}×" for machine, ratio in change.ratios.items()]
        lines += [f"{machine}: none confirmed" for machine in change.without]
        route = [code(change.route), change.benchmark] if change.route else [change.benchmark]
        release, also = f"{change.package} {change.release}", [each.place for each in alike[1 : 1 + ALSO]]
        more = [f"and {len(alike) - 1 - ALSO} more"] if len(alike) > 1 + ALSO else []
        rows.append((release, route, change.verdict, [change.place, *lines], [*also, *more] or ""))
    rest = len(grouped) - len(rows)
    notes = (f"{rest} more are in changes.csv, with every cell of these.",) if rest > 0 else ()
    names = ("release", "route", "change", "at, and new level over old", "and at")
    return Table(title, names, tuple(rows), notes, numeric=False)


def _csv(shared: Sequence[Shared]) -> str:
    rows = [
        (
            change.package,
            change.release,
            change.benchmark,
            change.cell,
            change.verdict,
            machine,
            f"{ratio:.5g}",
            not change.without,
        )
        for change in shared
        for machine, ratio in change.ratios.items()
    ]
    text = StringIO()
    names = [name for names in COLUMNS for name in names]
    pd.DataFrame(rows, columns=names).to_csv(text, index=False, lineterminator="\n")
    return text.getvalue()
