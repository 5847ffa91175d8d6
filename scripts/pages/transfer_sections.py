"""The sections of a machine's page on transfers between host and device: tables, figures and
introductions.

The sentences are in templates/prose/transfers.md.jinja.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis import transfers
from analysis.cells import BOTH_WAYS, LINK, SUSTAINED, Row, usual_dtype, usual_size
from analysis.needs import Need
from analysis.transfers import Transfers
from pandas import DataFrame

from benchmarks.contracts import COMPLETION, ENQUEUE, Role

from . import figures, show
from .machine_data import MachineData
from .page import Section
from .show import render_line, render_paragraphs
from .svg import Figure, slug
from .tables import Table, by_size, curves, render_table
from .transfers import (
    TransferAnswer,
    answer_of,
    conditional_cell,
    cost_words,
    endpoints,
    result_words,
)

# From pageable and pinned memory by one blocking call, and from pageable memory through pinned
# memory
TOGETHER = (
    *transfers.PLAIN.values(),
    "s.copy_(t); d.copy_(s, non_blocking=True)",
    "copy_in_chunks(d, t, stages)",
)
CLOCKS = (COMPLETION, ENQUEUE, SUSTAINED)
UNREPORTED_CHANGES = ("clock", "link generation")  # of a device during a run: they always change


# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Band:
    """A row of the decision table: an answer for a range of sizes, with the figures at its largest
    size.

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
    """One table per direction: memory state × size band, with the figures at the band's largest
    size."""
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


def _band(need: Need, rows: DataFrame, routes: int, moved: Transfers) -> Band:
    last = rows[rows["nbytes"] == rows["nbytes"].max()]
    answer, conditional = answer_of(last), conditional_cell(rows)
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
    """Completion, enqueue and sustained times of non-blocking routes side by side, at the size
    where most were measured."""
    cells = moved.main[moved.main["non_blocking"]]
    nbytes = usual_size(cells[cells["method"].isin((ENQUEUE, SUSTAINED))].itertuples())
    cells = cells[cells["nbytes"] == nbytes]
    calls = [
        (*call, [_clock_entry(group, clock, moved) for clock in CLOCKS])
        for call, group in cells.groupby(["route", "direction", "host"], sort=False)
    ]
    return render_table("transfers", "by_clock", nbytes=nbytes, calls=calls, clocks=CLOCKS)


def _clock_entry(cells: DataFrame, clock: str, moved: Transfers) -> str:
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
    """The link's limit: directions as rows, sizes as columns. A cell's rate is in bytes per second
    one way."""
    sizes = sorted(moved.select_role(Role.LINK)["nbytes"].unique())
    rows = [
        (direction, limit.moved, [limit.cells.get(nbytes) for nbytes in sizes])
        for direction, limit in moved.limits.items()
    ]
    has_both = BOTH_WAYS in moved.limits
    return render_table(
        "transfers", "limits", rows=rows, sizes=sizes, capacity=moved.capacity, has_both=has_both
    )


# --- sections -------------------------------------------------------------------------------------


def transfer_sections(data: MachineData) -> dict[str, Section]:
    """The sections of a machine with an accelerator, by key. Sections without measurements stay
    empty."""
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


def _introduction(block: str, **values: object) -> tuple[str, ...]:
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
    """Per direction: GB/s for all host memory together, then time against size for each memory and
    clock."""
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
