"""The page over several machines' histories: which changes are everywhere, which on some only, how advice differs.

A machine's changes are those of its results.csv. Which route is chosen at the newest release, and which are decided to
be slower, is analysis/choices.py's word, as on the page of one machine.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import permutations
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from analysis import case
from analysis.cells import cells_of, credible
from analysis.choices import asked as asked_of
from analysis.choices import choices
from analysis.history import History
from analysis.results import Results
from analysis.transfers import recommendations, transfers_of
from analysis.verdicts import SAME_WAY
from cli import put
from store.files import node_of
from toolchains import ledger

from benchmarks.contracts import ONE_THREAD
from pages import show
from pages.advice import Box, capital, title
from pages.comparison_words import number
from pages.history_page import COLUMNS as HISTORY
from pages.history_words import left_out, others, together
from pages.page import Page, Section, rendered
from pages.show import code, prose
from pages.tables import Entry, Table
from pages.transfers import result_of, way_of

NOT_A_CELL = {name for names in HISTORY for name in names}  # all other columns are parameters
CELL = ("cell", "route", "place")
CHANGES = {*SAME_WAY, *SAME_WAY.values()}
AT_MOST = 30  # rows of a table; changes.csv has all
TOLD, ALSO = 3, 4  # changes of each sort that the head of the page names; other cells that a row names
IN_BOX = 3  # questions that the head of the page names
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


@dataclass(frozen=True)
class Preferred:
    """What to take for a question, asked as on a machine's page, from a source of this dtype and size.

    seconds  that the route takes
    slower   the safe routes that are decided to be slower there -> their seconds
    """

    question: str
    dtype: str
    nbytes: int
    route: str
    seconds: float
    slower: Mapping[str, float]


@dataclass(frozen=True)
class Advice:
    """What a machine prefers at a release, such as "torch 2.15.0 with numpy 1.26.4"; node: that measured it, or ""."""

    release: str
    node: str
    preferred: tuple[Preferred, ...]


def write(output: Path, tables: dict[str, pd.DataFrame], advised: Mapping[str, Advice]) -> Path | None:
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
    return route, ", ".join(filter(None, (size, others(given))))


def changes(tables: dict[str, pd.DataFrame]) -> list[Shared]:
    """Every confirmed change of a cell that several machines measured, the largest first.

    Of two machines it is one change where both may have it by the same release: a change that one machine sees at a
    release may have come with any that it did not measure since the one before. Of several it is the one most alike.
    """
    every = pd.concat([table.assign(machine=machine) for machine, table in tables.items()])
    shared: list[Shared] = []
    for _, rows in every.groupby(["history", "benchmark", "cell"], sort=False):
        if rows["machine"].nunique() > 1 and rows["verdict"].isin(CHANGES).any():
            shared += _of_cell(rows)
    return sorted(shared, key=lambda change: -max(abs(math.log(ratio)) for ratio in change.ratios.values()))


def _of_cell(rows: pd.DataFrame) -> Iterator[Shared]:
    """The changes of a cell that several machines measured; ``rows``: its releases on all of them."""
    measured = {str(machine): sorted(map(ledger.parts, own)) for machine, own in rows.groupby("machine")["release"]}
    machines = list(dict.fromkeys(rows["machine"]))
    confirmed = rows[rows["verdict"].isin(CHANGES)].to_dict("records")
    for row in confirmed:
        row |= {"first": ledger.parts(row["earliest"]), "last": ledger.parts(row["latest"])}
        row["since"] = max(version for version in measured[row["machine"]] if version < row["first"])
    left = sorted(confirmed, key=lambda row: -abs(math.log(row["ratio"])))
    while left:
        largest = left[0]
        alike = {largest["machine"]: largest}
        for other in machines:
            free = [row for row in left if row["machine"] == other and _overlap(largest, row)]
            if free and other not in alike:
                alike[other] = min(free, key=lambda row: abs(math.log(row["ratio"] / largest["ratio"])))
        left = [row for row in left if alike.get(row["machine"]) is not row]
        ratios = {name: float(alike[name]["ratio"]) for name in machines if name in alike}
        release = min((row["release"] for row in alike.values()), key=ledger.parts)
        # where a machine has one that may be this one and is another's, nobody knows
        seen = {row["machine"] for row in confirmed if _overlap(largest, row)}
        without = tuple(
            name
            for name in machines
            if name not in seen and measured[name][0] < largest["first"] and measured[name][-1] >= largest["last"]
        )
        if len(ratios) + len(without) > 1:
            about = {name: largest[name] for name in ("benchmark", *CELL, "verdict")}
            yield Shared(package=largest["history"], release=release, ratios=ratios, without=without, **about)


def _overlap(change: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two changes may have come with the same release."""
    return bool(
        change["verdict"] == other["verdict"] and other["since"] < change["last"] and change["since"] < other["last"]
    )


def by_route(shared: Iterable[Shared]) -> list[list[Shared]]:
    """Changes of one route and benchmark by the same release, which the same machines have, together; in the order of
    the largest of each, which comes first."""

    def of(change: Shared) -> tuple[object, ...]:
        about = change.package, change.release, change.benchmark, change.route, change.verdict
        return *about, frozenset(change.ratios), frozenset(change.without)

    return together(shared, of)


def page_of(tables: dict[str, pd.DataFrame], advised: Mapping[str, Advice]) -> Page:
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
    about = prose("histories_by_machine")
    return Page(
        title="What releases of torch and numpy changed, by machine",
        machine="",
        facts=(f"{len(tables)} machines",),
        warnings=tuple(_other_releases(advised)),
        boxes=(Box("Everywhere, or only here", lines=tuple(lines)), *_advice(advised)),
        legend=(),
        sections=[
            Section("everywhere", "Changes on every machine", about, tables=(_table("Everywhere", routes_everywhere),)),
            Section("here", "Changes on some machines", tables=(_table("On some", routes_here),)),
            *_differences(advised),
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
    notes = left_out(len(grouped), AT_MOST, "more are in changes.csv, with every cell of these")
    names = ("release", "route", "change", "at, and new level over old", "and at")
    return Table(title, names, tuple(rows), notes, numeric=False)


def _csv(shared: Sequence[Shared]) -> str:
    rows = []
    for change in shared:
        about = change.package, change.release, change.benchmark, change.cell, change.verdict
        rows += [(*about, machine, f"{ratio:.5g}", not change.without) for machine, ratio in change.ratios.items()]
    names = [name for names in COLUMNS for name in names]
    return str(pd.DataFrame(rows, columns=names).to_csv(index=False, lineterminator="\n"))


# --- what to take -----------------------------------------------------------------------------------------------------


def of_newest(history: History, newest: Results) -> Advice:
    """What to take by ``newest``, the results of the newest release of a history."""
    release = history.releases[-1]
    return Advice(f"{release.name} with {history.held}", node_of(release.file), tuple(_preferred(newest)))


def _preferred(results: Results) -> Iterator[Preferred]:
    timed = cells_of(results)
    table = choices([*filter(credible, timed)])
    for rows in asked_of(table, ONE_THREAD):
        for _, here in rows.groupby(["need", "nbytes"], sort=False):
            yield _of(title(here), here)
    for by_need in recommendations(table, transfers_of(results, timed)):
        for need, here in by_need.items():
            yield _of(f"{capital(way_of(need))}, {result_of(need)}", here)


def _of(question: str, rows: pd.DataFrame) -> Preferred:
    (cell,), others = (rows["cell"][rows["kind"] == kind] for kind in (case.BEST, case.SLOWER))
    slower = {other.route: _short(other.seconds) for other in others}
    return Preferred(question, cell.dtype or "", cell.nbytes, cell.route, _short(cell.seconds), slower)


def _short(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def asked(advised: Mapping[str, Advice]) -> list[dict[str, Preferred]]:
    """Machine -> what it prefers, of each question, dtype and size that several machines answer.

    advised: machine -> its advice
    """
    questions: dict[tuple[str, str, int], dict[str, Preferred]] = {}
    for machine, advice in advised.items():
        for preferred in advice.preferred:
            questions.setdefault((preferred.question, preferred.dtype, preferred.nbytes), {})[machine] = preferred
    return [by_machine for by_machine in questions.values() if len(by_machine) > 1]


def loss(by_machine: Mapping[str, Preferred]) -> float:
    """The largest factor by which a machine is slower with the route of another that it differs from; 0 where none do.

    Two differ where each decides that the other's route is slower. Else, as far as is known, one of the routes does for
    both.
    """
    pairs = permutations(by_machine.values(), 2)
    differing = ((here, there) for here, there in pairs if there.route in here.slower and here.route in there.slower)
    return max((here.slower[there.route] / here.seconds for here, there in differing), default=0.0)


def differing(advised: Mapping[str, Advice]) -> list[dict[str, Preferred]]:
    """Where machines prefer different routes, the largest loss first; see ``asked``."""
    return sorted(filter(loss, asked(advised)), key=loss, reverse=True)


# --- in words --------------------------------------------------------------------------------------------------------


def _other_releases(advised: Mapping[str, Advice]) -> Iterator[str]:
    """What makes machines differ beside themselves."""
    if len({advice.release for advice in advised.values()}) > 1 and asked(advised):
        each = show.join([f"{advice.release} on {machine}" for machine, advice in advised.items()])
        yield f"What to take is told of each machine's newest release: {each}. What differs there may be the releases'."


def _advice(advised: Mapping[str, Advice]) -> list[Box]:
    """How many questions machines decide differently, and the largest of these; nothing where none is asked of two."""
    every, differences = asked(advised), differing(advised)
    if not every:
        return []
    lines = [f"Of {len(every)} questions that several machines answer, {len(differences)} are decided differently."]
    for by_machine in differences[:IN_BOX]:
        routes = show.join([f"{code(each.route)} on {machine}" for machine, each in by_machine.items()])
        lines.append(f"{', '.join(_question(by_machine))}: {routes}.")
    if len(differences) > IN_BOX:
        lines.append(f"{len(differences) - IN_BOX} more are in the table.")
    return [Box("What to take, by machine", lines=tuple(lines))]


def _question(by_machine: Mapping[str, Preferred]) -> list[str]:
    """What was asked, and of which source."""
    first = next(iter(by_machine.values()))
    return [first.question, " ".join(filter(None, (first.dtype, show.size(first.nbytes))))]


def _differences(advised: Mapping[str, Advice]) -> list[Section]:
    """What the machines prefer where two of them differ."""
    differences = differing(advised)
    if not differences:
        return []
    rows = [(_question(each), [_told(machine, each) for machine in each]) for each in differences]
    machines = {" ".join(filter(None, (name, advice.node))): advice.release for name, advice in advised.items()}
    where = show.join([f"{release} on {machine}" for machine, release in machines.items()])
    about = prose("advice_by_machine", where=where)
    table = Table("Different routes", ("question", "what to take"), tuple(rows), numeric=False)
    return [Section("advice", "Where machines prefer different routes", about, tables=(table,))]


def _told(machine: str, by_machine: Mapping[str, Preferred]) -> str:
    """What a machine prefers, and what the others' routes take there."""
    here = by_machine[machine]
    others = dict.fromkeys(other.route for other in by_machine.values() if other.route in here.slower)
    beside = [f"{code(route)} {show.seconds(here.slower[route])}" for route in others]
    return f"{machine}: {code(here.route)}, {show.seconds(here.seconds)}" + (f"; {show.join(beside)}" if beside else "")
