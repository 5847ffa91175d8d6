"""The page over several machines' histories: which changes are everywhere, which on some only, how advice differs.

Changes are those of ``changes.over_machines``. Which route is chosen at the newest release, and which are decided to
be slower, is analysis/choices.py's word, as on the page of one machine.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from analysis import case
from analysis.cells import cells_of, credible
from analysis.changes import DIFFERS, LAYOUT, NOT_KNOWN, SAME, over_machines
from analysis.choices import asked as asked_of
from analysis.choices import choices
from analysis.history import History
from analysis.results import Results
from analysis.transfers import recommendations, transfers_of
from analysis.verdicts import FASTER, FEWER, INSTRUCTIONS, MORE, SLOWER
from cli import put
from store.files import node_of

from benchmarks.contracts import ONE_THREAD
from pages import show
from pages.advice import Box, capital, title
from pages.history_page import call_of, effect_of, others
from pages.page import Page, Section, rendered
from pages.show import code, prose
from pages.spreadsheet import text_of
from pages.tables import Entry, Table
from pages.transfers import result_of, way_of

AT_MOST = 30  # rows of a table; changes.csv has all
IN_BOX = 3  # questions, and changes of each sort, that the head of the page names
COLUMNS: dict[tuple[str, ...], str] = {
    ("change",): "a number: one change on all machines",
    ("package", "release", "benchmark", "route", "dtype", "sizes", "what"): "where it was reported, and of which call",
    ("machine", "since"): "a machine that measured the call around that release, and its release before it",
    (
        "verdict",
        "ratio",
        "ratio_low",
        "ratio_high",
    ): "slower, faster, more or fewer; new over old on that machine, with "
    "its 95 % interval (of instructions: of any two repeats)",
    ("said",): "same, differs or not known",
}


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


def write(output: Path, histories: Mapping[str, Sequence[History]], advised: Mapping[str, Advice]) -> Path | None:
    """Write index.html, README.md and changes.csv over machines with histories; None where no two have a call or a
    question in common. advised: of each machine what to take at its newest release."""
    changes = over_machines(histories)
    if changes.empty and not asked(advised):
        return None
    for name, content in rendered(page_of(list(histories), changes, advised)).items():
        put(output / name, content)
    return output / "index.html"


def page_of(machines: Sequence[str], changes: pd.DataFrame, advised: Mapping[str, Advice]) -> Page:
    """Everything the page over all histories says. changes: see ``over_machines``."""
    said = changes[changes["evidence"] != LAYOUT].groupby("change")["said"].agg(set)
    sorts = {DIFFERS: said.map(lambda each: DIFFERS in each)}
    sorts[NOT_KNOWN] = ~sorts[DIFFERS] & said.map(lambda each: NOT_KNOWN in each)
    sorts[SAME] = ~sorts[DIFFERS] & ~sorts[NOT_KNOWN]
    numbers = {sort: said.index[chosen] for sort, chosen in sorts.items()}
    lines = [
        f"{len(said)} changes were measured on several machines: {len(numbers[SAME])} are the same, "
        f"{len(numbers[DIFFERS])} differ, {len(numbers[NOT_KNOWN])} are not known on some machine."
    ]
    words = {SAME: "Same", DIFFERS: "Differs"}
    lines += [
        f"{word}: {_change(changes, number)}" for sort, word in words.items() for number in numbers[sort][:IN_BOX]
    ]
    titles = {SAME: "The same on every machine", DIFFERS: "Different on some machine", NOT_KNOWN: "Not known on some"}
    return Page(
        title="What releases of torch and numpy changed, by machine",
        machine="",
        facts=(f"{len(machines)} machines",),
        warnings=tuple(_other_releases(advised)),
        boxes=(Box("The same everywhere, or only here", lines=tuple(lines)), *_advice(advised)),
        legend=prose("history", "machines"),
        sections=[
            *(
                Section(sort.replace(" ", "-"), title, tables=(_table(title, machines, changes, numbers[sort]),))
                for sort, title in titles.items()
                if len(numbers[sort])
            ),
            *_differences(advised),
        ],
        links=(
            *((f"{machine}: all its changes", f"{quote(machine)}/") for machine in machines),
            ("What to use on each machine", "../"),
        ),
        command="python scripts/track.py",
        csv=_csv(changes),
        columns=COLUMNS,
        data="changes.csv",
    )


def _change(changes: pd.DataFrame, number: int) -> str:
    """torch 2.0.1, `torch.tensor(a)`, numpy→torch: 1.2× slower on one, 1.3× slower on other (4 KiB)"""
    rows = changes[changes["change"] == number].to_dict("records")
    first = rows[0]
    each = [f"{effect_of(_judged(row))} on {row['machine']}" for row in rows]
    unit = ", instructions" if first["what"] == INSTRUCTIONS else ""
    where = ", ".join(filter(None, (show.span(first["sizes"]), others(first))))
    call = ", ".join(filter(None, call_of(first)))
    return f"{first['package']} {first['release']}, {call}{unit}: {show.join(each)} ({where})"


def _judged(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the verdict that its own ratio has."""
    up, down = (MORE, FEWER) if row["what"] == INSTRUCTIONS else (SLOWER, FASTER)
    return {**row, "verdict": up if row["ratio"] > 1 else down}


def _table(title: str, machines: Sequence[str], changes: pd.DataFrame, numbers: Any) -> Table:
    """A row per change, a column per machine."""
    rows: list[tuple[Entry, ...]] = []
    for number in numbers[:AT_MOST]:
        of_change = {row["machine"]: row for row in changes[changes["change"] == number].to_dict("records")}
        first = next(iter(of_change.values()))
        where = ", ".join(filter(None, (show.span(first["sizes"]), others(first))))
        on = [_on(of_change[machine], first) if machine in of_change else "" for machine in machines]
        rows.append((f"{first['package']} {first['release']}", call_of(first), first["what"], where, *on))
    more = f"{len(numbers) - AT_MOST} more are in changes.csv."
    columns = ("release", "call", "what", "at", *machines)
    return Table(title, columns, tuple(rows), (more,) if len(numbers) > AT_MOST else (), numeric=False)


def _on(row: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    since = f"since {row['since']}" if row["since"] != first["since"] else ""
    return list(filter(None, (effect_of(_judged(row)), since)))


def _csv(changes: pd.DataFrame) -> str:
    names = [name for names in COLUMNS for name in names]
    table = changes.assign(sizes=[" ".join(map(str, sizes)) for sizes in changes["sizes"]])
    return text_of(table[names], float_format="%.5g")


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
