"""Advice in words: the boxes at the head of a page, and what to know of a route.

Sentences are in templates/prose: advice, settings, unusual_inputs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from analysis.cells import Row, first_row
from analysis.findings import Gain, SettingAdvice
from analysis.ranking import BEST, CONDITION, SLOWER, TIE, UNDECIDED, UNSAFE
from analysis.results import where
from pandas import DataFrame, concat
from store.frames import rows_of

from benchmarks.contracts import ALIAS, Route

from . import show
from .show import Lines, code, render_line

FLAT_RATIO = 1.25  # largest median / smallest median up to which a time is the same "at any size"
WIDE_RATIO = 1.5  # from this ratio of highest to lowest process, a time is shown with its range
# One process each is enough: two runs differ by 3 % (90th percentile, docs/lab-notes.md)
CLEAR_RATIO = 1.25
SIMILAR_RATIO = 1.1  # routes whose times differ by less are equally slow to a reader


@dataclass(frozen=True)
class Recommendation:
    """A route to take. tied: another route may be as fast at one of its sizes."""

    condition: str  # and sizes; "" if always
    route: str
    cost: str
    tied: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.condition}{': ' if self.condition else ''}{code(self.route)}, {self.cost}"


@dataclass(frozen=True)
class BoxRow:
    """A row of a box, which links to the section with this key: a title, an entry for each column
    but the first, and what all of them say in a few words."""

    address: str
    title: str
    entries: Lines
    short: str


@dataclass(frozen=True)
class Box:
    """A box at the head of a page, also printed in the terminal: routes to take or findings, and
    notes on them."""

    title: str
    recommendations: tuple[Recommendation, ...] = ()
    lines: Lines = ()
    notes: Lines = ()
    threads: str = ""  # number of torch threads in words; "" where it does not matter
    folded: bool = False  # on a page only its title is visible until a reader opens it
    columns: Lines = ()
    rows: tuple[BoxRow, ...] = ()

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.threads}" if self.threads else self.title

    @property
    def sentences(self) -> Lines:
        rows = (f"{row.title}: {'. '.join(filter(None, row.entries))}" for row in self.rows)
        return (*(choice.sentence for choice in self.recommendations), *self.lines, *rows)


# --- boxes of a page ------------------------------------------------------------------------------


def answer_box(rows: DataFrame, one_thread: DataFrame | None = None, threads: int = 1) -> Box:
    """The box for one answer of a page, see analysis.needs.rows_per_answer.

    one_thread: the same answer's rows with one torch thread, if ``rows`` are with several
    ``threads``
    """
    best, needs = where(rows, kind=BEST), rows["need"].unique()
    first = where(rows, need=needs[0])
    choices = [*recommendations(first)]
    if len(needs) > 1:  # they differ by dtype: their times at the largest of the most common sizes
        casts = where(best, nbytes=best["nbytes"].mode().max())
        cost = render_line("advice", "casts", cells=rows_of(casts))
        choices[-1] = replace(choices[-1], cost=cost)
        first = first[:0]
    moves_bytes = best["memory"].iloc[0] != ALIAS
    return Box(
        answer_title(rows),
        tuple(choices),
        notes=_answer_box_notes(rows, first, one_thread),
        threads=show.threads(threads) if moves_bytes else "",
    )


def _answer_box_notes(rows: DataFrame, one_need: DataFrame, one_thread: DataFrame | None) -> Lines:
    """Ties, faster routes that are not recommended, and the slowest route. one_need: the rows if
    they have one need, else none."""
    ties = where(one_need, kind=TIE)
    faster = where(one_need, kind=[CONDITION, UNSAFE])
    faster = faster.sort_values("ratio", kind="stable").drop_duplicates("route").sort_index()
    # of routes about as slow as the slowest, name the first in the catalogue, at its largest size
    slow = quiet_or_all(where(one_need, slow=True))
    slow = slow[slow["ratio"] * SIMILAR_RATIO >= slow["ratio"].max()]
    slow = slow.sort_values(["order", "nbytes"], ascending=[True, False])
    return show.render_paragraphs(
        "advice",
        "notes",
        no_verdict=no_verdict_notes(rows),
        ties=ties["route"].unique().tolist(),
        tie_sizes=ties["nbytes"].unique().tolist(),
        ties_everywhere=bool(
            (ties.groupby("route")["nbytes"].nunique() == ties["nbytes"].nunique()).all()
        ),
        sizes=one_need["nbytes"].unique().tolist(),
        one_thread={} if one_thread is None else _faster_on_one_thread(one_need, one_thread),
        faster=rows_of(faster),
        slowest=first_row(slow),
        slow_routes=slow["route"].nunique(),
        unsafe_reason=unsafe_reason,
    )


def conditions_box(answers: Sequence[DataFrame]) -> Box | None:
    """Conditions of all routes named in the answers, each stated once; None if there are no
    conditions."""
    if not answers:
        return None
    rows = concat(answers)
    routes = rows_of(where(rows, kind=BEST).drop_duplicates("route"))
    promised = group_routes(routes, promises)
    inputs = group_routes(routes, _input_outcomes)
    lines = show.render_paragraphs("advice", "conditions", promised=promised, inputs=inputs)
    return Box("Conditions and unusual inputs", lines=lines, folded=True) if lines else None


def _faster_on_one_thread(rows: DataFrame, one_thread: DataFrame) -> dict[str, list[Row]]:
    """Routes significantly faster with one torch thread than the recommended route, with their
    cells."""
    recommended = where(rows, kind=BEST)[["nbytes", "route"]]
    slower = where(one_thread, kind=SLOWER).merge(recommended)["nbytes"]
    faster = where(one_thread, kind=BEST, nbytes=[*slower])
    groups = faster.groupby("route", sort=False)
    return {str(route): rows_of(cells) for route, cells in groups}


def setting_box(advised: SettingAdvice) -> Box:
    """Environment variables to set before starting a program."""
    title, cost, *notes = show.render_paragraphs("settings", "setting", advised=advised)
    return Box(title, (Recommendation("", advised.settings[0], cost),), notes=tuple(notes))


def neighbours_box(copies: Sequence[Gain]) -> Box | None:
    """Say that copies are slower if their arrays are neighbours in memory, and how to avoid it;
    None without copies."""
    if not copies:
        return None
    title, avoided, *lines = show.render_paragraphs("settings", "neighbours", copies=copies)
    return Box(title, lines=tuple(lines), notes=(avoided,))


def answer_title(rows: DataFrame) -> str:
    """Title of an answer whose rows have one need, or several that differ only in the source's
    dtype."""
    dtypes = list(rows["dtype"].unique())
    return render_line("advice", "title", need=rows["need"].iloc[0], dtypes=dtypes)


def capitalize_first(words: str) -> str:
    """Capitalise the first letter and leave the rest unchanged."""
    return words[:1].upper() + words[1:]


def recommendations(rows: DataFrame) -> Iterator[Recommendation]:
    """The routes to take for a need, one per part. Times are of quiet cells, if there are any: one
    time for all sizes if it hardly changes (see ``is_flat``), else up to three, each with its range
    if the range is WIDE_RATIO."""
    best = where(rows, kind=BEST)
    close = (rows["kind"] == TIE) & (rows["ratio"] < CLEAR_RATIO)
    is_tied = (close | (rows["kind"] == UNDECIDED)).groupby(rows["part"]).any()
    parts = best["part"].nunique()
    for number, (part, cells) in enumerate(best.groupby("part"), 1):
        sizes, timed = cells["nbytes"].tolist(), rows_of(quiet_or_all(cells))
        condition = render_line("advice", "sizes", sizes=sizes, number=number, parts=parts)
        cost = _part_cost(timed, parts == 1 and len(sizes) > 2)
        yield Recommendation(condition, timed[0].route, cost, bool(is_tied[part]))


def _part_cost(cells: Sequence[Row], at_any_size: bool) -> str:
    """The times of a route at its sizes. at_any_size: the sizes are all that were measured."""
    middle = len(cells) // 2
    places = sorted({0, middle, len(cells) - 1})
    median = sorted(cells, key=lambda cell: cell.seconds)[middle]
    return render_line(
        "advice",
        "time",
        is_flat=len(cells) > 1 and is_flat([cell.seconds for cell in cells]),
        at_any_size=at_any_size,
        median=median,
        ends=(cells[0].nbytes, cells[-1].nbytes),
        cells=[cells[place] for place in places],
        wide_ratio=WIDE_RATIO,
    )


def quiet_or_all(cells: DataFrame) -> DataFrame:
    """Return the quiet cells, or all cells if no cell is quiet."""
    return where(cells, quiet=True) if cells["quiet"].any() else cells


def is_flat(seconds: Sequence[float]) -> bool:
    """Whether a route's time is practically the same at all sizes."""
    return max(seconds) <= FLAT_RATIO * min(seconds)


def is_constant(rows: DataFrame) -> bool:
    """Whether the routes of an answer share memory and take the same time at all sizes."""
    by_route = rows.groupby("route")["seconds"]
    return bool(rows["memory"].iloc[0] == ALIAS and by_route.agg(is_flat).all())


def has_one_time(rows: DataFrame) -> bool:
    """Whether one route was measured at several sizes, and takes the same time at all of them."""
    return is_constant(rows) and len({*rows["route"]}) == 1 < len({*rows["nbytes"]})


def no_verdict_notes(rows: DataFrame) -> list[str]:
    """Say at which sizes noise on the machine left comparisons undecided."""
    undecided = where(rows, kind=UNDECIDED)["nbytes"].unique().tolist()
    sizes = rows["nbytes"].unique().tolist()
    return [*show.render_paragraphs("advice", "no_verdict", undecided=undecided, sizes=sizes)]


# --- what to know of a route ----------------------------------------------------------------------


class Contracted(Protocol):
    """A row of a route: a timed cell or a candidate."""

    @property
    def route(self) -> str: ...

    @property
    def contract(self) -> Route: ...


def group_routes(
    rows: Iterable[Contracted], texts: Callable[[Route], Iterable[str]]
) -> dict[str, list[str]]:
    """Map each text on a contract to the routes of the rows that it applies to."""
    routes: dict[str, list[str]] = {}
    for row in rows:
        for text in texts(row.contract):
            routes.setdefault(text, []).append(row.route)
    return routes


def _input_outcomes(contract: Route) -> list[str]:
    """What a route does with unusual inputs, a line each; what it refuses is left out."""
    return show.render_lines("unusual_inputs", "outcomes", contract=contract)


def unusual_inputs(contract: Route) -> Lines:
    """How a route handles unusual inputs, in a sentence; empty if it simply accepts or refuses them
    all."""
    outcomes = _input_outcomes(contract)
    refused = len(contract.refused)
    return show.render_paragraphs("unusual_inputs", "sentence", outcomes=outcomes, refused=refused)


def unsafe_reason(contract: Route) -> str:
    """Why a route is not recommended."""
    return contract.hazard or "it gets some inputs wrong without an exception"


def promises(contract: Route) -> Iterator[str]:
    """Hazards, cautions, rules of sharing and requirements of a route."""
    yield from filter(None, (contract.hazard, contract.caution))
    yield from show.render_lines("unusual_inputs", "sharing", contract=contract)
    if "strided" in contract.copies:
        yield "shares the memory of a contiguous source"
    if contract.needs:
        yield f"needs {show.join(contract.needs.split())}"
