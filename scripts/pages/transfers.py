"""Transfers between host and device in words: routes to take, and the sections of a machine's page.

The sentences are in templates/prose/transfers.md.jinja.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from analysis import transfers
from analysis.cells import BOTH_WAYS, LINK, SUSTAINED, Row, usual_dtype, usual_size
from analysis.needs import Need, uses
from analysis.ranking import BEST, CONDITION, OTHER, SLOWER, TIE, UNSAFE, rank
from analysis.ties import RECOMMENDED_EXCESS, too_few_processes
from analysis.transfers import Transfers

from benchmarks.contracts import (
    COMPLETION,
    DEVICE_TO_HOST,
    ENQUEUE,
    HOST_TO_DEVICE,
    PINNED,
    Role,
)

from . import figures, show
from .advice import (
    Box,
    Recommendation,
    capitalize_first,
    no_verdict_notes,
    promises,
    unsafe_reason,
)
from .machine_data import MachineData
from .page import Section
from .show import code, render_line, render_paragraphs
from .svg import Figure, slug
from .tables import Table, by_size, curves, render_table

# From pageable and pinned memory by one blocking call, and from pageable memory through pinned memory
TOGETHER = (
    *transfers.PLAIN.values(),
    "s.copy_(t); d.copy_(s, non_blocking=True)",
    "copy_in_chunks(d, t, stages)",
)
CLOCKS = (COMPLETION, ENQUEUE, SUSTAINED)
# Names in routes that stage or pin memory themselves: reported if slower
STAGING_NAMES = ("s", "stages", "pin_memory")
UNREPORTED_CHANGES = ("clock", "link generation")  # of a device during a run: they always change

# --- what is advised --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TransferAnswer:
    """The cells for the sentences on the ranked routes of a need at one size.

    conditional  the cell of the route that is faster on a condition, if any
    ties         routes as fast as the best
    undecided    cells with too few processes for a comparison with the best
    slower       the next slower cell, and those of routes that stage or pin memory themselves
    unsafe       faster cells of unsafe routes
    noisy        sentences on sizes without a verdict
    early        completion and enqueue cell of the same copy by a non-blocking call, if both were measured
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
    """Boxes at the head of a page: one per direction and host memory, by completion time, and one on scalars."""
    moved = data.transfers
    summary = _summary(moved)
    boxes = [Box("Transfers in short", lines=summary)] if summary else []
    for group in transfers.recommendations(data.choices, moved):
        answers = [_answer(rows, moved) for rows in group.values()]
        choices = [
            choice
            for need, answer in zip(group, answers)
            for choice in _recommendations(need, answer, len(group) > 1, moved)
        ]
        title = endpoints(next(iter(group)), answers[0].best.nbytes)
        boxes.append(Box(title, tuple(choices), notes=_notes(answers, moved)))
    scalars = rank(moved.select_role(Role.SCALAR))
    if len(scalars):
        answer = _answer(scalars)
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
    """The best route of a need, and the one that is faster on a condition. several: the box has several needs, so that
    each names its result."""
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


def _answer(rows: pd.DataFrame, moved: Transfers | None = None) -> TransferAnswer:
    """Select the cells for the sentences on ranked routes at one size."""
    best, ties, slower = best_cell(rows), _cells(rows, TIE), _cells(rows, SLOWER)
    # a route with a condition is not a tie, but leaving it out would be advice against it
    conditional_ties = [
        cell for cell in _cells(rows, OTHER) if cell.non_blocking and cell.seconds < best.seconds
    ]
    early = None
    if moved and best.host == PINNED and not best.non_blocking:
        early = moved.without_waiting(best)
    return TransferAnswer(
        best=best,
        conditional=_conditional_cell(rows),
        ties=[cell.route for cell in ties if not too_few_processes(cell, best)],
        undecided=[cell for cell in (*ties, *conditional_ties) if too_few_processes(cell, best)],
        slower=[
            *slower[:1],
            *(cell for cell in slower[1:] if any(uses(cell.route, n) for n in STAGING_NAMES)),
        ],
        unsafe=_cells(rows, UNSAFE),
        noisy=no_verdict_notes(rows),
        early=early if early and all(early) else None,
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


def _cells(rows: pd.DataFrame, kind: str) -> list[Row]:
    return list(rows[rows["kind"] == kind].itertuples())


def best_cell(rows: pd.DataFrame) -> Row:
    """The cell of the route to take, at the smallest size of ranked routes."""
    return _cells(rows, BEST)[0]


def _conditional_cell(rows: pd.DataFrame) -> Row | None:
    """The cell, at the largest size of a part, of the route that is faster on a condition at all sizes, or else there.
    If several lead without a significant difference, take the catalogue's first within RECOMMENDED_EXCESS of the
    fastest."""
    faster = rows[rows["kind"].isin([CONDITION, UNSAFE])]
    everywhere = faster.groupby("route")["nbytes"].nunique() == rows["nbytes"].nunique()
    last = faster[(faster["nbytes"] == rows["nbytes"].max()) & faster["leads"]]
    last = last[last["seconds"] <= (1 + RECOMMENDED_EXCESS) * last["seconds"].min()]
    at_all_sizes = last[last["route"].isin(everywhere.index[everywhere])]
    return next(pd.concat([at_all_sizes, last]).itertuples(), None)


def impossible(moved: Transfers) -> tuple[str, ...]:
    """Warnings of transfers with impossibly short times, of clocks that disagree, and of a lost device."""
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


def _recommended_lines(cells: pd.DataFrame, parameter: str) -> Iterator[str]:
    """The route to take for each benchmark, host memory and value of a parameter, a paragraph each."""
    done = cells[cells["method"] == COMPLETION]
    values = done["parameters"].map(lambda parameters: parameters[parameter])
    titles = [family.title or family.direction for family in done["declared"]]
    keys = [pd.Series(titles, done.index, str), values, "host"]
    for (title, value, host), group in done.groupby(keys, sort=False):
        answer = _answer(rank(group))
        amount = show.size(value) if parameter == "nbytes" else f"{value:,} {parameter}"
        cost = f"{code(answer.best.route)}, {show.time(answer.best)}."
        line = f"{capitalize_first(title)}, {amount}, {host} memory: {cost}"
        yield " ".join((line, *_notes([answer])))


# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Band:
    """A row of the decision table: an answer for a range of sizes, with the figures at its largest size.

    conditional  the cell of the route that is faster on a condition, if any
    measured     number of the need's ``routes`` measured at the largest size
    by_bytes     bytes, not the call, take most of the time
    """

    endpoints: str
    result: str
    sizes: str
    answer: TransferAnswer
    conditional: Row | None
    conditional_cost: str
    measured: int
    routes: int
    by_bytes: bool
    share: float | None


def decision(data: MachineData) -> list[Table]:
    """One table per direction: memory state × size band, with the figures at the band's largest size."""
    tables = []
    answers = transfers.transfer_answers(data.choices, data.transfers)
    for direction, group in itertools.groupby(answers, lambda answer: answer[0].direction):
        bands = [
            _band(need, rows, ranked["route"].nunique(), data.transfers)
            for need, ranked in group
            for _, rows in ranked.groupby("part")
        ]
        table = render_table("transfers", "decision", False, direction=direction, bands=bands)
        tables.append(table)
    return tables


def _band(need: Need, rows: pd.DataFrame, routes: int, moved: Transfers) -> Band:
    last = rows[rows["nbytes"] == rows["nbytes"].max()]
    answer, conditional = _answer(last), _conditional_cell(rows)
    best = answer.best
    return Band(
        endpoints=endpoints(need),
        result=result_words(need),
        sizes=show.size_range([rows["nbytes"].min(), best.nbytes]),
        answer=answer,
        conditional=conditional,
        conditional_cost=cost_words(conditional, moved) if conditional else "",
        measured=last["route"].nunique(),
        routes=routes,
        by_bytes=moved.bytes_decide(best),
        share=moved.limit(best.direction).share(best),
    )


def clocks(moved: Transfers) -> Table:
    """Completion, enqueue and sustained times of non-blocking routes side by side, at the size where most were
    measured."""
    cells = moved.main[moved.main["non_blocking"]]
    nbytes = usual_size(cells[cells["method"].isin((ENQUEUE, SUSTAINED))].itertuples())
    cells = cells[cells["nbytes"] == nbytes]
    calls = [
        (*call, [_clock_entry(group, clock, moved) for clock in CLOCKS])
        for call, group in cells.groupby(["route", "direction", "host"], sort=False)
    ]
    return render_table("transfers", "by_clock", nbytes=nbytes, calls=calls, clocks=CLOCKS)


def _clock_entry(cells: pd.DataFrame, clock: str, moved: Transfers) -> str:
    words = show.time if clock == ENQUEUE else lambda cell: cost_words(cell, moved)
    return "".join(words(cell) for cell in cells[cells["method"] == clock].itertuples())


def _hidden(moved: Transfers) -> Table:
    """How much of a transfer hides behind other work."""
    cells = [*transfers.hidden(moved).itertuples()]
    shares = [
        render_line("transfers", "share", share=cell.share, sound=cell.sound) for cell in cells
    ]
    return render_table("transfers", "hidden", rows=[*zip(cells, shares)])


def _pinning(moved: Transfers) -> Table:
    """The first pinned memory of a process: uses as rows, sizes as columns."""
    cells = moved.select_role(Role.PINNING)
    sizes = sorted(cells["nbytes"].unique())
    rows = []
    for use, group in cells.groupby("method", sort=False):
        by_nbytes = {cell.nbytes: cell for cell in group.itertuples()}
        rows.append((use, [by_nbytes.get(nbytes) for nbytes in sizes]))
    return render_table("transfers", "pinning", rows=rows, sizes=sizes)


def _limits(moved: Transfers) -> Table:
    """The link's limit: directions as rows, sizes as columns. A cell's rate is in bytes per second one way."""
    sizes = sorted(moved.select_role(Role.LINK)["nbytes"].unique())
    rows = [
        (direction, limit.moved, [limit.cells.get(nbytes) for nbytes in sizes])
        for direction, limit in moved.limits.items()
    ]
    has_both = BOTH_WAYS in moved.limits
    return render_table(
        "transfers", "limits", rows=rows, sizes=sizes, capacity=moved.capacity, has_both=has_both
    )


# --- sections ---------------------------------------------------------------------------------------------------------


def transfer_sections(data: MachineData) -> dict[str, Section]:
    """The sections of a machine with an accelerator, by key. Sections without measurements stay empty."""
    moved = data.transfers
    sections = (
        Section(
            "transfers",
            "Transfers: what to take",
            _decision_introduction(moved),
            tables=tuple(decision(data)),
        ),
        Section(
            "clocks",
            "Transfers: completion, enqueue, sustained",
            _introduction("clocks", clocks=[clock for clock in CLOCKS if len(moved.select(clock))]),
            tuple(_figures(data)),
            (clocks(moved),),
        ),
        Section(
            "overlap",
            "Transfers behind compute",
            _introduction("overlap"),
            tables=(_hidden(moved),),
        ),
        Section(
            "firsts",
            "What the first use costs",
            _introduction("firsts", contexts=[*moved.select_role(Role.CONTEXT).itertuples()]),
            tables=(_pinning(moved),),
        ),
        Section("link", "The link", _link_introduction(moved), tables=(_limits(moved),)),
    )
    return {section.key: section for section in sections}


def _introduction(block: str, **values: Any) -> tuple[str, ...]:
    return render_paragraphs("transfers", block, **values)


def _decision_introduction(moved: Transfers) -> tuple[str, ...]:
    measured, missing = {*moved.main["host"]}, {*moved.missing["memory"]}
    unmeasured = [host for host in transfers.HOSTS if host in missing - measured]
    processes = moved.main["processes"]
    return _introduction(
        "transfers",
        dtype="".join(moved.main["dtype"].unique()),
        has_limit=any(moved.limit(direction).bandwidth for direction in LINK),
        limit_reason=moved.skip_reason(role=Role.LINK),
        unmeasured=[
            (host, moved.skip_reason(role=Role.TRANSFER, memory=host))
            for host in (unmeasured if measured else ())
        ],
        processes=sorted({processes.min(), processes.max()}) if len(processes) else [],
    )


def _link_introduction(moved: Transfers) -> tuple[str, ...]:
    changes: Mapping[str, Sequence[str]] = moved.run.device_changed
    return _introduction(
        "link",
        synchronize=[*moved.select_role(Role.SYNCHRONIZE).itertuples()],
        hardware=moved.hardware,
        capacity=moved.capacity,
        run=moved.run,
        changes={name: cells for name, cells in changes.items() if name not in UNREPORTED_CHANGES},
    )


def _figures(data: MachineData) -> Iterator[tuple[Figure, Table]]:
    """Per direction: GB/s for all host memory together, then time against size for each memory and clock."""
    moved = data.transfers
    dtype = usual_dtype(moved.main)
    for direction in LINK:
        cells = _bandwidth_cells(moved, direction)
        title, name = f"{direction}: GB/s by completion", slug("bandwidth", direction)
        limit = moved.limit(direction).bandwidth
        for figure in figures.bandwidths(name, f"{title} ({dtype})", cells, limit):
            table = by_size(title, cells, data.missing, lambda cell: cost_words(cell, moved))
            yield figure, table
    for direction, host, clock in itertools.product(LINK, transfers.HOSTS, CLOCKS):
        title = f"{direction}, {host} host memory: {clock} time ({dtype})"
        timed = [*moved.select(clock, direction, host).itertuples()]
        name = slug("transfer", direction, host, clock)
        for figure in figures.times_figure(name, title, timed):
            yield figure, curves(figure.cells, data.missing)


def _bandwidth_cells(moved: Transfers, direction: str) -> list[Row]:
    """The cells of TOGETHER whose bytes take the time. Their route names the host memory, too."""
    cells = moved.select(COMPLETION, direction)
    renamed = []
    for cell in cells[cells["route"].isin(TOGETHER)].itertuples():
        if moved.bytes_decide(cell):
            route = f"{cell.host}: {cell.route}"
            parameters = {**cell.parameters, "route": route}
            renamed.append(cell._replace(route=route, parameters=parameters))
    return renamed
