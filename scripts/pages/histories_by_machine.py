"""The page over several machines' histories: which changes are everywhere, which on some only, how advice differs.

Changes are those of ``changes.over_machines``. Which route is chosen at the newest release, and which are decided to
be slower, is analysis/choices.py's word, as on the page of one machine.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from analysis.verdicts import INSTRUCTIONS
from cli import put
from store.files import node_of

from benchmarks.contracts import ONE_THREAD
from pages import show
from pages.advice import Box, title
from pages.history_page import call_of, effect_of, others
from pages.page import Page, Section, rendered
from pages.show import code, prose
from pages.spreadsheet import text_of
from pages.tables import Entry, Table
from pages.transfers import question as question_of

AT_MOST = 30  # rows of a table; changes.csv has all
IN_BOX = 3  # questions, and changes of each sort, that the head of the page names
COLUMNS: dict[tuple[str, ...], str] = {
    ("change",): "a number: one change on all machines",
    ("package", "release", "benchmark", "route", "dtype", "sizes", "what"): "where it was reported, and of which call",
    ("machine", "since", "until"): "a machine that measured the call around that release, and its releases before and "
    "after the change",
    (
        "verdict",
        "ratio",
        "ratio_low",
        "ratio_high",
    ): "slower, faster, more or fewer; new over old on that machine, with "
    "its 95 % interval (of instructions: of any two repeats)",
    ("said",): "same, differs or not known",
}


def write(output: Path, histories: Mapping[str, Sequence[History]], advised: Sequence[pd.DataFrame]) -> Path | None:
    """Write index.html, README.md and changes.csv over machines with histories; None where no two have a call or a
    question in common. advised: of each machine what to take at its newest release, see ``of_newest``."""
    changes, advice = over_machines(histories), pd.concat(advised, ignore_index=True) if advised else pd.DataFrame()
    asked = _asked(advice) if len(advice) else advice
    if changes.empty and asked.empty:
        return None
    for name, content in rendered(page_of(list(histories), changes, asked)).items():
        put(output / name, content)
    return output / "index.html"


def page_of(machines: Sequence[str], changes: pd.DataFrame, asked: pd.DataFrame) -> Page:
    """Everything the page over all histories says. changes: see ``over_machines``; asked: see ``_asked``."""
    different = _differing(asked) if len(asked) else asked
    said = changes[changes["evidence"] != LAYOUT].groupby("change")["said"].agg(set)
    sorts = {DIFFERS: said.map(lambda each: DIFFERS in each)}
    sorts[NOT_KNOWN] = ~sorts[DIFFERS] & said.map(lambda each: NOT_KNOWN in each)
    sorts[SAME] = ~sorts[DIFFERS] & ~sorts[NOT_KNOWN]
    numbers = {sort: said.index[chosen] for sort, chosen in sorts.items()}
    counts = {sort.replace(" ", "_"): len(found) for sort, found in numbers.items()}
    lines = [*prose("history", "over_machines", every=len(said), **counts)]
    for sort, word in ((SAME, "Same"), (DIFFERS, "Differs")):
        calls = changes[changes["change"].isin(numbers[sort])].drop_duplicates("route")["change"]
        lines += [f"{word}: {_change(changes, number)}" for number in calls[:IN_BOX]]
    titles = {
        SAME: "The same on every machine",
        DIFFERS: "Different on some machine",
        NOT_KNOWN: "Not known on some machine",
    }
    return Page(
        title="What releases of torch and numpy changed, by machine",
        machine="",
        facts=(f"which speed changes of releases appear on each of {len(machines)} machines",),
        warnings=tuple(_other_releases(asked)),
        boxes=(Box("The same everywhere, or only here", lines=tuple(lines)), *_advice(asked, different)),
        legend=prose("history", "machines"),
        sections=[
            *(
                Section(sort.replace(" ", "-"), title, tables=(_table(title, machines, changes, numbers[sort]),))
                for sort, title in titles.items()
                if len(numbers[sort])
            ),
            *_differences(different),
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
    each = [f"{effect_of(row)} on {row['machine']}" for row in rows]
    unit = ", instructions" if first["what"] == INSTRUCTIONS else ""
    where = ", ".join(filter(None, (show.span(first["sizes"]), others(first))))
    call = ", ".join(filter(None, call_of(first)))
    return f"{first['package']} {first['release']}, {call}{unit}: {show.join(each)} ({where})"


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
    own, of_first = ((each["since"], each["until"]) for each in (row, first))
    return [effect_of(row), *([" to ".join(own)] if own != of_first else [])]


def _csv(changes: pd.DataFrame) -> str:
    names = [name for names in COLUMNS for name in names]
    table = changes.assign(sizes=[" ".join(map(str, sizes)) for sizes in changes["sizes"]])
    return text_of(table[names], float_format="%.5g")


# --- what to take -----------------------------------------------------------------------------------------------------

ASKED = ["question", "dtype", "nbytes"]


def of_newest(history: History, newest: Results) -> pd.DataFrame:
    """What to take by ``newest``, the results of the newest release of a history, and what is slower.

    A row a question, source and route: machine, release (such as "torch 2.15.0 with numpy 1.26.4"), node (that measured
    it, or ""), question (as on a machine's page), dtype, nbytes, route, kind (case.BEST or SLOWER) and seconds.
    """
    timed = cells_of(newest)
    table = choices([*filter(credible, timed)])
    each = [here for rows in asked_of(table, ONE_THREAD) for _, here in rows.groupby(["need", "nbytes"], sort=False)]
    parts = [here.assign(question=title(here)) for here in each]
    for by_need in recommendations(table, transfers_of(newest, timed)):
        parts += [here.assign(question=question_of(need)) for need, here in by_need.items()]
    every = pd.concat(parts) if parts else table.assign(question="")
    every = every[every["kind"].isin([case.BEST, case.SLOWER])].assign(
        dtype=lambda rows: [c.dtype for c in rows["cell"]]
    )
    release = history.releases[-1]
    about = {"release": f"{release.name} with {history.held}", "node": node_of(release.file)}
    return every[[*ASKED, "route", "kind", "seconds"]].assign(machine=history.machine, **about)


def _asked(advised: pd.DataFrame) -> pd.DataFrame:
    """The rows of questions, dtypes and sizes that several machines answer."""
    return advised[advised.groupby(ASKED)["machine"].transform("nunique") > 1]


def _differing(asked: pd.DataFrame) -> pd.DataFrame:
    """What machines take where they take different routes, the largest loss first: a row a machine, with ``others``,
    the routes that others take and that are slower here -> their seconds.

    Two machines differ where each decides that the other's route is slower. Else, as far as is known, one of the routes
    does for both.
    """
    best, slower = (asked[asked["kind"] == kind] for kind in (case.BEST, case.SLOWER))
    pairs = best.merge(best[[*ASKED, "machine", "route"]], on=ASKED, suffixes=("", "_there"))
    pairs = pairs.merge(
        slower[[*ASKED, "machine", "route", "seconds"]],
        left_on=[*ASKED, "machine", "route_there"],
        right_on=[*ASKED, "machine", "route"],
        suffixes=("", "_slower"),
    )
    back = pairs[[*ASKED, "machine", "machine_there"]].set_axis([*ASKED, "machine_there", "machine"], axis=1)
    both = pairs.merge(back, on=[*ASKED, "machine", "machine_there"])
    if both.empty:
        return both
    loss = (both["seconds_slower"] / both["seconds"]).groupby([both[name] for name in ASKED]).max().rename("loss")
    others = pairs.groupby([*ASKED, "machine"]).apply(lambda own: dict(zip(own["route_there"], own["seconds_slower"])))
    found = best.merge(loss, on=ASKED).merge(others.rename("others"), on=[*ASKED, "machine"], how="left")
    return found.sort_values("loss", ascending=False, kind="stable")


# --- in words --------------------------------------------------------------------------------------------------------


def _other_releases(asked: pd.DataFrame) -> Iterator[str]:
    """What makes machines differ beside themselves."""
    releases = asked.drop_duplicates("machine")
    if len(asked) and releases["release"].nunique() > 1:
        each = show.join([f"{row.release} on {row.machine}" for row in releases.itertuples()])
        yield f"What to take is that of each machine's newest release: {each}. What differs may be the releases'."


def _advice(asked: pd.DataFrame, different: pd.DataFrame) -> list[Box]:
    """How many questions machines decide differently, and the largest of these; nothing where none is asked of two."""
    if asked.empty:
        return []
    every = asked.groupby(ASKED).ngroups
    found = list(different.groupby(ASKED, sort=False))
    lines = [f"Of {every} questions that several machines answer, {len(found)} have significantly different answers."]
    for question, rows in found[:IN_BOX]:
        routes = show.join([f"{code(row.route)} on {row.machine}" for row in rows.itertuples()])
        lines.append(f"{', '.join(_question(*question))}: {routes}.")
    if len(found) > IN_BOX:
        lines.append(f"{len(found) - IN_BOX} more are in the table.")
    return [Box("What to take, by machine", lines=tuple(lines))]


def _question(question: str, dtype: str, nbytes: int) -> list[str]:
    """What was asked, and of which source."""
    return [question, " ".join(filter(None, (dtype, show.size(nbytes))))]


def _differences(different: pd.DataFrame) -> list[Section]:
    """What the machines prefer where two of them differ."""
    if different.empty:
        return []
    rows = [
        (_question(*question), [_taken(row) for row in found.to_dict("records")])
        for question, found in different.groupby(ASKED, sort=False)
    ]
    machines = different.drop_duplicates("machine").to_dict("records")
    where = [f"{row['release']} on {' '.join(filter(None, (row['machine'], row['node'])))}" for row in machines]
    about = prose("advice_by_machine", where=show.join(where))
    table = Table("Different routes", ("question", "what to take"), tuple(rows), numeric=False)
    return [Section("advice", "Where machines prefer different routes", about, tables=(table,))]


def _taken(row: Mapping[str, Any]) -> str:
    """What a machine prefers, and what the others' routes take there."""
    others = row["others"] if isinstance(row["others"], dict) else {}
    slower = show.join([f"{code(route)} {show.seconds(seconds)}" for route, seconds in others.items()])
    taken = f"{row['machine']}: {code(row['route'])}, {show.seconds(row['seconds'])}"
    return f"{taken}; {slower}" if slower else taken
