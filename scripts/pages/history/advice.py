"""What to take at the newest release of a history, and where machines decidedly prefer different routes.

Which route is chosen, and which are decided to be slower, is analysis/answers.py's word, as on the page of one machine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from analysis.answers import Choice, Need, answers, choices_of
from analysis.cells import cells_of
from analysis.history import History
from analysis.results import Results
from analysis.transfers import credible, recommendations, transfers_of
from store.files import node_of

from pages import show
from pages.advice import Box, capital, title
from pages.page import Section
from pages.show import code
from pages.tables import Entry, Table
from pages.transfers import result_of, way_of

IN_BOX = 3  # differences


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


@dataclass(frozen=True)
class Differing:
    """A question that two machines at least decide differently.

    by_machine: machine -> what it prefers, of all that were asked; loss: the largest factor by which a machine is
    slower with the route of another that it differs from
    """

    by_machine: Mapping[str, Preferred]
    loss: float


def of_newest(history: History, newest: Results) -> Advice:
    """What to take by ``newest``, the results of the newest release of a history."""
    release = history.releases[-1]
    return Advice(f"{release.name} with {history.held}", node_of(release.file), tuple(_preferred(newest)))


def _preferred(results: Results) -> Iterator[Preferred]:
    timed = cells_of(results)
    for answer in answers([*filter(credible, timed)]):
        each = answer.each or {"": answer.segments}
        for dtype, segments in each.items():
            need = replace(answer.need, dtypes=(dtype,)) if dtype else answer.need
            yield from (_of(title(need), choice) for choice in choices_of(segments))
    for by_need in recommendations(transfers_of(results, timed)):
        yield from (_of(_moved(need), choice) for need, choice in by_need.items())


def _moved(need: Need) -> str:
    return f"{capital(way_of(need))}, {result_of(need)}"


def _of(question: str, choice: Choice) -> Preferred:
    cell = choice.cell
    slower = {other.route: _short(other.seconds) for other in choice.others}
    return Preferred(question, cell.dtype or "", choice.nbytes, cell.route, _short(cell.seconds), slower)


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


def differing(advised: Mapping[str, Advice]) -> list[Differing]:
    """Where machines prefer different routes, the largest loss first.

    Two differ where each decides that the other's route is slower. Else, as far as is known, one of the routes does for
    both.
    """
    differences = []
    for by_machine in asked(advised):
        losses = [
            here.slower[there.route] / here.seconds
            for here in by_machine.values()
            for there in by_machine.values()
            if there.route in here.slower and here.route in there.slower
        ]
        if losses:
            differences.append(Differing(by_machine, max(losses)))
    return sorted(differences, key=lambda difference: -difference.loss)


# --- in words --------------------------------------------------------------------------------------------------------


def warnings(advised: Mapping[str, Advice]) -> Iterator[str]:
    """What makes machines differ beside themselves."""
    if len({advice.release for advice in advised.values()}) > 1 and asked(advised):
        each = show.join([f"{advice.release} on {machine}" for machine, advice in advised.items()])
        yield f"What to take is told of each machine's newest release: {each}. What differs there may be the releases'."


def boxes(advised: Mapping[str, Advice]) -> list[Box]:
    """How many questions machines decide differently, and the largest of these; nothing where none is asked of two."""
    every, differences = asked(advised), differing(advised)
    if not every:
        return []
    lines = [f"Of {len(every)} questions that several machines answer, {len(differences)} are decided differently."]
    for difference in differences[:IN_BOX]:
        first = next(iter(difference.by_machine.values()))
        routes = show.join([f"{code(each.route)} on {machine}" for machine, each in difference.by_machine.items()])
        lines.append(f"{first.question}, {_source(first)}: {routes}.")
    if len(differences) > IN_BOX:
        lines.append(f"{len(differences) - IN_BOX} more are in the table.")
    return [Box("What to take, by machine", lines=tuple(lines))]


def _source(preferred: Preferred) -> str:
    return " ".join(filter(None, (preferred.dtype, show.size(preferred.nbytes))))


def sections(advised: Mapping[str, Advice]) -> list[Section]:
    """What the machines prefer where two of them differ."""
    differences = differing(advised)
    if not differences:
        return []
    rows: list[tuple[Entry, ...]] = []
    for difference in differences:
        first = next(iter(difference.by_machine.values()))
        rows.append(
            ([first.question, _source(first)], [_told(machine, difference) for machine in difference.by_machine])
        )
    where = show.join(
        [f"{advice.release} on {' '.join(filter(None, (name, advice.node)))}" for name, advice in advised.items()]
    )
    about = (
        f"By the newest release that each machine measured: {where}. Two machines differ where each decides that the "
        "other's route is slower, by the test that chooses the routes of a machine's page. Where one of them decides "
        "no such thing nothing is said: as far as is known, one of the routes does for both.",
    )
    table = Table("Different routes", ("question", "what to take"), tuple(rows), numeric=False)
    return [Section("advice", "Where machines prefer different routes", about, tables=(table,))]


def _told(machine: str, difference: Differing) -> str:
    """What a machine prefers, and what the others' routes take there."""
    here = difference.by_machine[machine]
    others = dict.fromkeys(other.route for other in difference.by_machine.values() if other.route in here.slower)
    beside = [f"{code(route)} {show.seconds(here.slower[route])}" for route in others]
    return f"{machine}: {code(here.route)}, {show.seconds(here.seconds)}" + (f"; {show.join(beside)}" if beside else "")
