"""Transfers between host and device in words: the routes to take.

The sentences are in templates/prose/transfers.md.jinja.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis import transfers
from analysis.cells import BOTH_WAYS, Row
from analysis.needs import Need, uses
from analysis.ranking import BEST, CONDITION, OTHER, SLOWER, TIE, UNSAFE, rank
from analysis.ties import recommendable, too_few_processes
from analysis.transfers import Transfers
from pandas import DataFrame, Series, concat

from benchmarks.contracts import (
    COMPLETION,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    PINNED,
    Role,
)

from . import show
from .advice import (
    Box,
    Recommendation,
    capitalize_first,
    no_verdict_notes,
    promises,
    unsafe_reason,
)
from .machine_data import MachineData
from .show import code, render_line, render_paragraphs

# Names in routes that stage or pin memory themselves: reported if slower
STAGING_NAMES = ("s", "stages", "pin_memory")

# --- what is advised ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TransferAnswer:
    """The cells for the sentences on the ranked routes of a need at one size.

    conditional  the cell of the route that is faster on a condition, if any
    ties         routes as fast as the best
    undecided    cells with too few processes for a comparison with the best
    slower       the next slower cell, and those of routes that stage or pin memory themselves
    unsafe       faster cells of unsafe routes
    noisy        sentences on sizes without a verdict
    early        completion and enqueue cell of the same copy by a non-blocking call, if both were
                 measured
    """

    best: Row
    conditional: Row | None
    ties: Sequence[str]
    undecided: Sequence[Row]
    slower: Sequence[Row]
    unsafe: Sequence[Row]
    noisy: Sequence[str]
    early: tuple[Row, Row] | None = None


def advice_boxes(data: MachineData) -> list[Box]:
    """Boxes at the head of a page: one per direction and host memory, by completion time, and one
    on scalars."""
    moved = data.transfers
    summary = _summary(moved)
    boxes = [Box("Transfers in short", lines=summary)] if summary else []
    for group in transfers.recommendations(data.choices, moved):
        answers = [answer_of(rows, moved) for rows in group.values()]
        choices = [
            choice
            for need, answer in zip(group, answers)
            for choice in _recommendations(need, answer, len(group) > 1, moved)
        ]
        title = endpoints(next(iter(group)), answers[0].best.nbytes)
        boxes.append(Box(title, tuple(choices), notes=_notes(answers, moved)))
    scalars = rank(moved.select_role(Role.SCALAR))
    if len(scalars):
        answer = answer_of(scalars)
        choice = Recommendation("", answer.best.route, show.time(answer.best))
        title = "From the device to a number: a scalar such as a loss"
        boxes.append(Box(title, (choice,), notes=_notes([answer])))
    return boxes


def _summary(moved: Transfers) -> tuple[str, ...]:
    summaries = transfers.summaries(moved)
    bandwidths = [moved.limit(way).bandwidth for way in (BOTH_WAYS, HOST_TO_DEVICE, DEVICE_TO_HOST)]
    garbage = [(host, nbytes, share) for (host, nbytes), share in moved.garbage.items() if share]
    return render_paragraphs(
        "transfers",
        "short",
        summaries=summaries,
        bandwidths=bandwidths if summaries and all(bandwidths) else [],
        garbage=garbage,
    )


def _recommendations(
    need: Need, answer: TransferAnswer, several: bool, moved: Transfers
) -> Iterator[Recommendation]:
    """The best route of a need, and the one that is faster on a condition. several: the box has
    several needs, so that each names its result."""
    result = result_words(need) if several else ""
    for cell in filter(None, (answer.best, answer.conditional)):
        condition = render_line(
            "transfers",
            "condition",
            result=result,
            is_faster=cell is not answer.best,
            hazard=cell.contract.hazard,
        )
        yield Recommendation(condition, cell.route, cost_words(cell, moved))


def answer_of(rows: DataFrame, moved: Transfers | None = None) -> TransferAnswer:
    """Select the cells for the sentences on ranked routes at one size."""
    best, ties, slower = best_cell(rows), _cells(rows, TIE), _cells(rows, SLOWER)
    # a route with a condition is not a tie, but leaving it out would be advice against it
    conditional_ties = [
        cell for cell in _cells(rows, OTHER) if cell.non_blocking and cell.seconds < best.seconds
    ]
    completion = enqueue = None
    if moved and best.host == PINNED and not best.non_blocking:
        completion, enqueue = moved.without_waiting(best)
    return TransferAnswer(
        best=best,
        conditional=conditional_cell(rows),
        ties=[cell.route for cell in ties if not too_few_processes(cell, best)],
        undecided=[cell for cell in (*ties, *conditional_ties) if too_few_processes(cell, best)],
        slower=[
            *slower[:1],
            *(cell for cell in slower[1:] if any(uses(cell.route, n) for n in STAGING_NAMES)),
        ],
        unsafe=_cells(rows, UNSAFE),
        noisy=no_verdict_notes(rows),
        early=(completion, enqueue) if completion and enqueue else None,
    )


def _notes(answers: Sequence[TransferAnswer], moved: Transfers | None = None) -> tuple[str, ...]:
    """Notes on the routes taken, each fact once."""
    direction = answers[0].best.direction
    notes = render_paragraphs(
        "transfers",
        "notes",
        answers=answers,
        limit_missing=bool(moved and not moved.limit(direction).bandwidth),
        promises=promises,
        unsafe_reason=unsafe_reason,
    )
    return tuple(dict.fromkeys(notes))


def _cells(rows: DataFrame, kind: str) -> list[Row]:
    return list(rows[rows["kind"] == kind].itertuples())


def best_cell(rows: DataFrame) -> Row:
    """The cell of the route to take, at the smallest size of ranked routes."""
    return _cells(rows, BEST)[0]


def conditional_cell(rows: DataFrame) -> Row | None:
    """The cell, at the largest size of a part, of the route that is faster on a condition at all
    sizes, or else there. If several lead without a significant difference, take the catalogue's
    first that may be recommended."""
    faster = rows[rows["kind"].isin([CONDITION, UNSAFE])]
    everywhere = faster.groupby("route")["nbytes"].nunique() == rows["nbytes"].nunique()
    last = faster[(faster["nbytes"] == rows["nbytes"].max()) & faster["leads"]]
    last = last[recommendable(last["seconds"], last["seconds"].min())]
    at_all_sizes = last[last["route"].isin(everywhere.index[everywhere])]
    return next(concat([at_all_sizes, last]).itertuples(), None)


def impossible(moved: Transfers) -> tuple[str, ...]:
    """Warnings of transfers with impossibly short times, of clocks that disagree, and of a lost
    device."""
    return render_paragraphs(
        "transfers",
        "impossible",
        fast=transfers.too_fast(moved),
        device_lost=moved.run.device_lost,
        clock_ratios=moved.clock_ratios,
        hardware=moved.hardware,
        capacity=moved.capacity,
    )


def endpoints(need: Need, nbytes: int = 0) -> str:
    """Source and destination in words, with the size if ``nbytes`` is given."""
    return render_line("transfers", "endpoints", need=need, nbytes=nbytes)


def result_words(need: Need) -> str:
    """New or existing result, as the beginning of a line."""
    return render_line("transfers", "result", need=need)


def cost_words(cell: Row, moved: Transfers) -> str:
    """Time, with decimal GB/s and share of the limit where they are meaningful and known."""
    by_bytes = moved.bytes_decide(cell)
    share = moved.limit(cell.direction).share(cell) if by_bytes else None
    return render_line("transfers", "cost", cell=cell, by_bytes=by_bytes, share=share)


def family_sentences(moved: Transfers) -> dict[str, tuple[str, ...]]:
    """Family -> sentences beside the tables of its section."""
    calls = transfers.while_busy(moved)
    calls["size"] = calls["nbytes"].map(show.size)
    for names, listed in ((["direction", "host"], "size"), (["direction", "size"], "host")):
        groups = calls.groupby(["waits", "route", *names], sort=False)
        calls = groups[listed].agg(lambda words: show.join([*words])).reset_index()
    read_behind = [
        (event, wait, transfers.waits(wait, event)) for event, wait in transfers.read_behind(moved)
    ]
    busy = render_paragraphs(
        "transfers",
        "busy",
        waiting=[*calls[calls["waits"] == True].itertuples()],  # noqa: E712, an object column
        returning=[*calls[calls["waits"] == False].itertuples()],  # noqa: E712
        read_behind=read_behind,
    )
    return {
        "busy": busy,
        "many": tuple(_recommended_lines(moved.select_role(Role.MANY), "tensors")),
        "transfer": tuple(_recommended_lines(moved.select_role(Role.CAST_ON_THE_WAY), "nbytes")),
    }


def _recommended_lines(cells: DataFrame, parameter: str) -> Iterator[str]:
    """The route to take for each benchmark, host memory and value of a parameter, a paragraph
    each."""
    done = cells[cells["method"] == COMPLETION]
    values = done["parameters"].map(lambda parameters: parameters[parameter])
    titles = [family.title or family.direction for family in done["declared"]]
    keys = [Series(titles, done.index, str), values, "host"]
    for (title, value, host), group in done.groupby(keys, sort=False):
        answer = answer_of(rank(group))
        amount = show.size(value) if parameter == "nbytes" else f"{value:,} {parameter}"
        line = (
            f"{capitalize_first(title)}, {amount}, {host} memory: "
            f"{code(answer.best.route)}, {show.time(answer.best)}."
        )
        yield " ".join((line, *_notes([answer])))
