"""The page over all machines: where each one's pages are, what holds on all of them, and what only on some."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from cli import put
from records.kinds import made_of

from . import show
from .advice import Box, Take
from .page import Page, Section, reading, rendered
from .tables import Entry, Table

TITLE = "What it costs to move data between NumPy and PyTorch"
ANSWERS = "answers.json"  # beside a machine's page: what its head says
COLUMNS = {
    ("machine", "question"): "whose answer, and to what",
    ("when", "route"): "what to take, and in which case; empty where that is always",
    ("cost",): "what it takes there",
}


@dataclass(frozen=True)
class Summary:
    """What the head of a machine's page says. history: what its page of releases is called; "" where it has none."""

    machine: str
    facts: tuple[str, ...]
    boxes: tuple[Box, ...]
    history: str = ""

    @property
    def answers(self) -> dict[str, tuple[Take, ...]]:
        """Question -> what to take."""
        return {box.title: box.takes for box in self.boxes if box.takes}


def summary_of(page: Page) -> str:
    """The answers of a machine's page, as JSON."""
    history = next((words for words, _ in page.links), "")
    found = Summary(page.machine, page.facts, page.boxes, history)
    return json.dumps(asdict(found), indent=1, ensure_ascii=False) + "\n"


def read(path: Path) -> Summary:
    """UserError where a file holds none."""
    with reading(path, "answers"):
        return made_of(Summary, json.loads(path.read_text(encoding="utf-8")))


def write(output: Path) -> Path | None:
    """Write index.html, README.md and answers.csv over the machines that have a page; None where there is none."""
    found = [read(path) for path in sorted(output.glob(f"*/{ANSWERS}"))]
    if not found:
        return None
    page = page_of(found)
    for name, content in rendered(page).items():
        put(output / name, content)
    return output / "index.html"


def page_of(machines: Sequence[Summary]) -> Page:
    """Everything the page over all machines says."""
    questions = list(dict.fromkeys(question for one in machines for question in one.answers))
    alike = {question: _alike(question, machines) for question in questions}
    number = len(machines)
    boxes = []
    if number > 1:
        same = [f"{question}: {show.codes(routes)}" for question, routes in alike.items() if routes]
        other = [question for question, routes in alike.items() if not routes]
        if same:
            boxes.append(Box(f"The same on all machines that were asked ({number})", lines=tuple(same)))
        if other:
            boxes.append(Box("Not the same everywhere: see side by side", lines=tuple(other)))
    else:
        boxes += machines[0].boxes
    links = []
    for one in machines:
        links.append((f"{one.machine}: {' · '.join(one.facts)}", f"{quote(one.machine)}/"))
        links += [(f"{one.machine}: {one.history}", f"history/{quote(one.machine)}/")] if one.history else []
    return Page(
        title=TITLE,
        machine="",
        facts=(f"{number} machine{'s' if number > 1 else ''}",),
        warnings=(),
        boxes=tuple(boxes),
        legend=(),
        sections=[Section("machines", "Side by side", (), tables=(_table(questions, alike, machines),))],
        links=tuple(links),
        command="python scripts/run.py",
        csv=_csv(machines),
        columns=COLUMNS,
        data="answers.csv",
        feed="feed.xml" if any(one.history for one in machines) else "",
    )


def _alike(question: str, machines: Sequence[Summary]) -> tuple[str, ...]:
    """The routes that all machines take that answer the question; () where they differ."""
    taken = [
        tuple(dict.fromkeys(take.route for take in one.answers[question]))
        for one in machines
        if question in one.answers
    ]
    return taken[0] if len({frozenset(routes) for routes in taken}) == 1 else ()


def _table(questions: Sequence[str], alike: dict[str, tuple[str, ...]], machines: Sequence[Summary]) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for question in questions:
        told = "the same routes" if alike[question] else "different routes"
        cells = [[take.sentence for take in one.answers.get(question, ())] or "" for one in machines]
        rows.append(([question, *([told] if len(machines) > 1 else [])], *cells))
    return Table("Answers", ("question", *(one.machine for one in machines)), tuple(rows), numeric=False)


def _csv(machines: Sequence[Summary]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for names in COLUMNS for name in names])
    for one in machines:
        for question, takes in one.answers.items():
            for take in takes:
                writer.writerow([one.machine, question, take.when, take.route, show.bare(take.cost)])
    return text.getvalue()
