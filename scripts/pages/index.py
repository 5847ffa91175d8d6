"""The page over all machines: where each one's pages are, what holds on all of them, and what only on some."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pandas as pd
from cli import put

from . import show
from .advice import Box, Take
from .page import Page, Section, rendered
from .spreadsheet import text_of
from .tables import Entry, Table

TITLE = "What it costs to move data between NumPy and PyTorch"
COLUMNS = {
    ("machine", "question"): "whose answer, and to what",
    ("threads",): "how many torch has; empty where that is no question",
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

    @property
    def threads(self) -> dict[str, str]:
        """Question -> how many threads torch has in the answer, in words; "" where that is no question."""
        return {box.title: box.threads for box in self.boxes if box.takes}

    def said(self, question: str) -> list[str]:
        """The answer to a question, for a cell of a table."""
        sentences = [take.sentence for take in self.answers.get(question, ())]
        threads = self.threads.get(question)
        return [f"{threads}:", *sentences] if threads else sentences


def summary_of(page: Page) -> Summary:
    """What the head of a machine's page says."""
    return Summary(page.machine, tuple(page.facts), tuple(page.boxes), next((words for words, _ in page.links), ""))


def write(output: Path, summaries: Sequence[Summary]) -> Path:
    """Write index.html, README.md and answers.csv over these machines, one at least."""
    page = page_of(summaries)
    for name, content in rendered(page).items():
        put(output / name, content)
    return output / "index.html"


def page_of(machines: Sequence[Summary]) -> Page:
    """Everything the page over all machines says."""
    questions = list(dict.fromkeys(question for summary in machines for question in summary.answers))
    alike = {question: _alike(question, machines) for question in questions}
    number = len(machines)
    boxes = _grouped(alike, machines) if number > 1 else machines[0].boxes
    links = []
    for summary in machines:
        place = f"{quote(summary.machine)}/"
        links.append((f"{summary.machine}: {' · '.join(summary.facts)}", place))
        links += [(f"{summary.machine}: {summary.history}", f"history/{place}")] if summary.history else []
    return Page(
        title=TITLE,
        machine="",
        facts=(f"{number} machine{'s' if number > 1 else ''}",),
        warnings=(),
        boxes=boxes,
        legend=(),
        sections=[Section("machines", "Side by side", (), tables=(_table(questions, alike, machines),))],
        links=tuple(links),
        command="python scripts/run.py",
        csv=_csv(machines),
        columns=COLUMNS,
        data="answers.csv",
        feed="feed.xml" if any(summary.history for summary in machines) else "",
    )


def _answering(question: str, machines: Sequence[Summary]) -> list[Summary]:
    return [summary for summary in machines if question in summary.answers]


def _alike(question: str, machines: Sequence[Summary]) -> tuple[str, ...]:
    """The routes that all machines take that answer the question; () where they differ."""
    taken = [
        tuple(dict.fromkeys(take.route for take in summary.answers[question]))
        for summary in _answering(question, machines)
    ]
    return taken[0] if len({frozenset(routes) for routes in taken}) == 1 else ()


def _grouped(alike: dict[str, tuple[str, ...]], machines: Sequence[Summary]) -> tuple[Box, ...]:
    """A line a question: where machines agree, where they differ, and where a single one answers."""
    same: list[str] = []
    other: list[str] = []
    alone: list[str] = []
    for question, routes in alike.items():
        answering = _answering(question, machines)
        said = f"{question}: {show.codes(routes)}"
        if not routes:
            other.append(question)
        elif len(answering) == 1:
            alone.append(f"{said} ({answering[0].machine})")
        else:
            fewer = f" ({len(answering)} machines)" if len(answering) < len(machines) else ""
            same.append(f"{said}{fewer}")
    titled = {
        f"The same on all {len(machines)} machines, or on as many as answer it": same,
        "Not the same everywhere: see side by side": other,
        "Answered on one machine only": alone,
    }
    return tuple(Box(title, lines=tuple(lines)) for title, lines in titled.items() if lines)


def _table(questions: Sequence[str], alike: dict[str, tuple[str, ...]], machines: Sequence[Summary]) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for question in questions:
        several = len(_answering(question, machines)) > 1
        note = "different routes" if not alike[question] else "the same routes" if several else "one machine"
        cells = [summary.said(question) or "" for summary in machines]
        rows.append(([question, *([note] if len(machines) > 1 else [])], *cells))
    return Table("Answers", ("question", *(summary.machine for summary in machines)), tuple(rows), numeric=False)


def _csv(machines: Sequence[Summary]) -> str:
    rows = [
        (summary.machine, question, summary.threads[question], take.when, take.route, show.bare(take.cost))
        for summary in machines
        for question, takes in summary.answers.items()
        for take in takes
    ]
    columns = [name for names in COLUMNS for name in names]
    return text_of(pd.DataFrame(rows, columns=columns))
