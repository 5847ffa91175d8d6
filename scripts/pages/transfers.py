"""Transfers between host and device on a machine's page: the routes to take in words, and the
sections with tables, figures and introductions.

The sentences are in templates/prose/transfers.md.jinja.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis import transfers
from analysis.cells import (
    BOTH_WAYS,
    LINK,
    SUSTAINED,
    Row,
    first_row,
    usual_dtype,
    usual_size,
)
from analysis.needs import Need, uses
from analysis.ranking import (
    BEST,
    CONDITION,
    OTHER,
    SLOWER,
    TIE,
    UNSAFE,
    rank,
    recommendable,
    too_few_processes,
)
from analysis.results import where
from analysis.transfers import Transfers
from pandas import DataFrame, Series, concat
from store.frames import rows_of

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
from .figures import slug
from .page import MachineData, Section
from .show import Lines, code, render_line, render_paragraphs
from .tables import Table, by_size, curves, render_table

# Names in routes that stage or pin memory themselves: reported if slower
STAGING_NAMES = ("s", "stages", "pin_memory")
# From pageable and pinned memory by one blocking call, and from pageable memory through pinned
# memory
TOGETHER = (
    *transfers.PLAIN.values(),
    "s.copy_(t); d.copy_(s, non_blocking=True)",
    "copy_in_chunks(d, t, stages)",
)
CLOCKS = (COMPLETION, ENQUEUE, SUSTAINED)
UNREPORTED_CHANGES = ("clock", "link generation")  # of a device during a run: they always change

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
    early: tuple[Row | None, Row | None] | None


def advice_boxes(data: MachineData) -> list[Box]:
    """Boxes at the head of a page: one per direction and host memory, by completion time, and one
    on scalars."""
    moved = data.transfers
    summary = _summary(moved)
    boxes = [Box("Transfers in short", lines=summary)] if summary else []
    for group in transfers.recommendations(data.choices, moved):
        answers = {need: answer_of(rows, moved) for need, rows in group.items()}
        choices = [
            choice
            for need, answer in answers.items()
            for choice in _recommendations(need, answer, len(group) > 1, moved)
        ]
        need, answer = next(iter(answers.items()))
        title = endpoints(need, answer.best.nbytes)
        boxes.append(Box(title, tuple(choices), notes=_notes([*answers.values()], moved)))
    scalars = rank(moved.select_role(Role.SCALAR))
    if len(scalars):
        answer = answer_of(scalars)
        choice = Recommendation("", answer.best.route, show.time(answer.best))
        title = "From the device to a number: a scalar such as a loss"
        boxes.append(Box(title, (choice,), notes=_notes([answer])))
    return boxes


def _summary(moved: Transfers) -> Lines:
    summaries = transfers.summaries(moved)
    bandwidths = [moved.limit(way).bandwidth for way in (BOTH_WAYS, HOST_TO_DEVICE, DEVICE_TO_HOST)]
    return render_paragraphs(
        "transfers",
        "short",
        summaries=summaries,
        bandwidths=bandwidths if summaries and all(bandwidths) else [],
        garbage=moved.garbage,
        is_unified=bool(summaries) and moved.run.settings.is_unified,
    )


def _recommendations(
    need: Need, answer: TransferAnswer, several: bool, moved: Transfers
) -> Iterator[Recommendation]:
    """The best route of a need, and the one that is faster on a condition. several: the box has
    several needs, so that each names its result."""
    for cell in filter(None, (answer.best, answer.conditional)):
        condition = render_line(
            "transfers",
            "condition",
            result=result_words(need) if several else "",
            is_faster=cell is not answer.best,
            hazard=cell.contract.hazard,
        )
        yield Recommendation(condition, cell.route, cost_words(cell, moved))


def answer_of(rows: DataFrame, moved: Transfers | None = None) -> TransferAnswer:
    """Select the cells for the sentences on ranked routes at one size."""
    best = best_cell(rows)
    ties, slower, others = (rows_of(where(rows, kind=kind)) for kind in (TIE, SLOWER, OTHER))
    # a route with a condition is not a tie, but leaving it out would be advice against it
    others = [cell for cell in others if cell.non_blocking and cell.seconds < best.seconds]
    early = None
    if moved and best.host == PINNED and not best.non_blocking:
        early = moved.without_waiting(best)
    return TransferAnswer(
        best=best,
        conditional=conditional_cell(rows),
        ties=[cell.route for cell in ties if not too_few_processes(cell, best)],
        undecided=[cell for cell in (*ties, *others) if too_few_processes(cell, best)],
        slower=[
            cell
            for cell in slower
            if cell is slower[0] or any(uses(cell.route, name) for name in STAGING_NAMES)
        ],
        unsafe=rows_of(where(rows, kind=UNSAFE)),
        noisy=no_verdict_notes(rows),
        early=early if early and all(early) else None,
    )


def _notes(answers: Sequence[TransferAnswer], moved: Transfers | None = None) -> Lines:
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


def best_cell(rows: DataFrame) -> Row:
    """The cell of the route to take, at the smallest size of ranked routes."""
    return next(iter(rows_of(where(rows, kind=BEST))))


def conditional_cell(rows: DataFrame) -> Row | None:
    """The cell, at the largest size of a part, of the route that is faster on a condition at all
    sizes, or else there. If several lead without a significant difference, take the catalogue's
    first that may be recommended."""
    faster = where(rows, kind=[CONDITION, UNSAFE])
    sizes = faster.groupby("route")["nbytes"].transform("nunique")
    last = where(faster, leads=True, nbytes=rows["nbytes"].max())
    last = last[recommendable(last["seconds"], last["seconds"].min(), last["excess_limit"])]
    at_all_sizes = last[sizes[last.index] == rows["nbytes"].nunique()]
    return first_row(concat([at_all_sizes, last]))


def impossible(moved: Transfers) -> Lines:
    """Warnings of transfers with impossibly short times, of clocks that disagree, and of a lost
    device."""
    fast = transfers.too_fast(moved)
    return render_paragraphs("transfers", "impossible", fast=fast, moved=moved)


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


def family_sentences(moved: Transfers) -> dict[str, Lines]:
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
        waiting=rows_of(where(calls, waits=True)),
        returning=rows_of(where(calls, waits=False)),
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
    done = where(cells, method=COMPLETION)
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


# --- tables ---------------------------------------------------------------------------------------


def decision(data: MachineData) -> list[Table]:
    """One table per direction: memory state × size band, with the figures at the band's largest
    size."""
    bands = defaultdict(list)
    for need, ranked in transfers.transfer_answers(data.choices, data.transfers):
        for _, rows in ranked.groupby("part"):
            band = _band(need, rows, data.transfers) | {"routes": ranked["route"].nunique()}
            bands[need.direction].append(band)
    return [
        render_table("transfers", "decision", False, direction=direction, bands=of_direction)
        for direction, of_direction in bands.items()
    ]


def _band(need: Need, rows: DataFrame, moved: Transfers) -> dict:
    """A row of the decision table: an answer for a range of sizes, with the figures at its largest
    size.

    conditional  the cell of the route that is faster on a condition, if any
    measured     number of the need's routes measured at the largest size
    by_bytes     bytes, not the call, take most of the time
    """
    last = where(rows, nbytes=rows["nbytes"].max())
    answer, conditional = answer_of(last), conditional_cell(rows)
    best = answer.best
    return {
        "endpoints": endpoints(need),
        "result": result_words(need),
        "sizes": show.size_range([rows["nbytes"].min(), best.nbytes]),
        "answer": answer,
        "conditional": conditional,
        "conditional_cost": cost_words(conditional, moved) if conditional else "",
        "measured": last["route"].nunique(),
        "by_bytes": moved.bytes_decide(best),
        "share": moved.limit(best.direction).share(best),
    }


def clocks(moved: Transfers) -> Table:
    """Completion, enqueue and sustained times of non-blocking routes side by side, at the size
    where most were measured."""
    cells = where(moved.main, non_blocking=True)
    nbytes = usual_size(rows_of(where(cells, method=[ENQUEUE, SUSTAINED])))
    by_call = where(cells, nbytes=nbytes).groupby(["route", "direction", "host"], sort=False)
    calls = [
        (*call, [_clock_entry(where(group, method=clock), moved) for clock in CLOCKS])
        for call, group in by_call
    ]
    return render_table("transfers", "by_clock", nbytes=nbytes, calls=calls, clocks=CLOCKS)


def _clock_entry(cells: DataFrame, moved: Transfers) -> str:
    cell = first_row(cells)
    if cell is None:
        return ""
    return show.time(cell) if cell.method == ENQUEUE else cost_words(cell, moved)


def _pinning(moved: Transfers) -> Table:
    """The first pinned memory of a process: uses as rows, sizes as columns."""
    cells = moved.select_role(Role.PINNING)
    sizes = sorted(cells["nbytes"].unique())
    rows = [
        (use, [first_row(where(group, nbytes=nbytes)) for nbytes in sizes])
        for use, group in cells.groupby("method", sort=False)
    ]
    return render_table("transfers", "pinning", rows=rows, sizes=sizes)


def _limits(moved: Transfers) -> Table:
    """The link's limit: directions as rows, sizes as columns. A cell's rate is in bytes per second
    one way."""
    sizes = sorted(moved.select_role(Role.LINK)["nbytes"].unique())
    return render_table(
        "transfers", "limits", limits=moved.limits, sizes=sizes, capacity=moved.capacity
    )


# --- sections -------------------------------------------------------------------------------------


def transfer_sections(data: MachineData) -> tuple[Section, ...]:
    """The sections of a machine with an accelerator. Sections without measurements stay empty."""
    moved = data.transfers
    measured_clocks = [clock for clock in CLOCKS if len(moved.select(clock))]
    contexts = rows_of(moved.select_role(Role.CONTEXT))
    idle = rows_of(moved.select_role(Role.SYNCHRONIZE))
    hidden = render_table("transfers", "hidden", cells=rows_of(transfers.hidden(moved)))
    return (
        _section("transfers", decision(data), **_decision_values(moved)),
        _section("clocks", [clocks(moved)], tuple(_figures(data)), clocks=measured_clocks),
        _section("overlap", [hidden]),
        _section("firsts", [_pinning(moved)], contexts=contexts),
        _section(
            "link", [_limits(moved)], synchronize=idle, moved=moved, unreported=UNREPORTED_CHANGES
        ),
    )


def _section(
    key: str, tables: list[Table], panels: tuple[figures.Panel, ...] = (), **values: object
) -> Section:
    """A section whose title and introduction are the block ``key`` of the template."""
    title, *introduction = render_paragraphs("transfers", key, **values)
    return Section(key, title, tuple(introduction), panels, tuple(tables))


def _decision_values(moved: Transfers) -> dict:
    measured, missing = {*moved.main["host"]}, {*moved.missing["memory"]}
    unmeasured = [host for host in transfers.HOSTS if host in missing - measured]
    return {
        "dtype": "".join(moved.main["dtype"].unique()),
        "has_limit": any(moved.limit(direction).bandwidth for direction in LINK),
        "limit_reason": moved.skip_reason(role=Role.LINK),
        "unmeasured": [
            (host, moved.skip_reason(role=Role.TRANSFER, memory=host))
            for host in (unmeasured if measured else ())
        ],
        "processes": show.ends(moved.main["processes"]),
    }


def _figures(data: MachineData) -> Iterator[figures.Panel]:
    """Per direction: GB/s for all host memory together, then time against size for each memory and
    clock."""
    moved = data.transfers
    dtype = usual_dtype(moved.main)
    for direction in LINK:
        cells = _bandwidth_cells(moved, direction)
        if not cells:
            continue
        title, name = f"{direction}: GB/s by completion", slug("bandwidth", direction)
        limit = moved.limit(direction).bandwidth
        bounds = {cell.nbytes: cell.nbytes / limit for cell in cells} if limit else {}
        for figure in figures.times_figure(name, f"{title} ({dtype})", DataFrame(cells), bounds):
            yield figure, by_size(title, cells, data.missing, lambda cell: cost_words(cell, moved))
    for direction, host, clock in itertools.product(LINK, transfers.HOSTS, CLOCKS):
        title = f"{direction}, {host} host memory: {clock} time ({dtype})"
        timed = moved.select(clock, direction, host)
        name = slug("transfer", direction, host, clock)
        for figure in figures.times_figure(name, title, timed):
            yield figure, curves(figure.cells, data.missing)


def _bandwidth_cells(moved: Transfers, direction: str) -> list[Row]:
    """The cells of TOGETHER whose bytes take the time. Their route names the host memory, too."""
    renamed = []
    for cell in rows_of(where(moved.select(COMPLETION, direction), route=TOGETHER)):
        if moved.bytes_decide(cell):
            route = f"{cell.host}: {cell.route}"
            parameters = {**cell.parameters, "route": route}
            renamed.append(cell._replace(route=route, parameters=parameters))
    return renamed
