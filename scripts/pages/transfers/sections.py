"""The sections about transfers of a machine's page."""

from collections.abc import Iterator

from analysis import roles
from analysis.cells import Cell
from analysis.contracts import DEVICE_TO_HOST, HOST_TO_DEVICE
from analysis.curves import COMPLETION, ENQUEUE
from analysis.transfers import HOSTS, SUSTAINED, Transfers
from store.records import Record

from pages import figures, show
from pages.advice import capital
from pages.figures import Figure, slug
from pages.page import Section
from pages.tables import TIE, Missing, Table, curves

from . import tables as transfer_tables

MEANING = {
    COMPLETION: "until the bytes have arrived: the call, and a synchronize where the call may return before",
    ENQUEUE: "the call alone: how long the caller is held, the queue empty before it",
    SUSTAINED: "several copies in flight and one synchronize, by the copy",
}


def transfer_sections(transfers: Transfers, missing: Missing) -> list[Section]:
    """What a machine with an accelerator has on its page; sections of what was not measured stay empty."""
    fitted, bent = transfer_tables.fits(transfers.of(COMPLETION))
    own_dtype = transfers.main[0].dtype if transfers.main else ""
    return [
        Section(
            "transfers",
            "Transfers: what to take",
            (
                f"Host memory and size, {own_dtype}, by completion: {MEANING[COMPLETION]}. GB/s are decimal, bytes of "
                f"the source over seconds. {_limit_words(transfers)} {TIE} A condition is the hazard in a contract, "
                "which completion heeds by waiting. Sizes at which only some routes of a row were measured are in the "
                "curves below.",
                *_absent(transfers),
                *_evidence(transfers),
            ),
            tables=tuple(transfer_tables.decision(transfers)),
        ),
        Section(
            "clocks",
            "Transfers: completion, enqueue, sustained",
            (
                " ".join(
                    f"{capital(clock)} is {MEANING[clock]}."
                    for clock in (COMPLETION, ENQUEUE, SUSTAINED)
                    if transfers.of(clock)
                ),
            ),
            figures=tuple(_curves(transfers, missing)),
            tables=(*transfer_tables.clocks(transfers), *fitted),
            after=tuple(bent),
        ),
        Section(
            "transfer-dtypes",
            "Transfers by dtype",
            tables=tuple(transfer_tables.dtypes(transfers, missing)),
        ),
        Section(
            "overlap",
            "Transfers behind compute",
            (
                "Hidden: (products + transfer - both) / min(products, transfer), of three times that one process took "
                "in turns; as many products as take one to two times the transfer. The range is that of the "
                "processes; more than 100 % or less than 0 % is noise.",
            ),
            tables=tuple(transfer_tables.overlap(transfers)),
        ),
        Section(
            "firsts",
            "What the first use costs",
            (
                "Once in a process: each figure is the median over processes that did it once. The driver's start is "
                "part of the first tensor unless something beside this run keeps the device awake (persistence mode).",
            ),
            tables=tuple(transfer_tables.firsts(transfers)),
        ),
        Section("link", "The link", tuple(_device_ran(transfers.run)), tables=tuple(transfer_tables.link(transfers))),
    ]


NAMED = 3  # cells around which the device ran otherwise


def _device_ran(run: Record) -> Iterator[str]:
    """What the device's driver said around the samples, where it was asked, and where that was not as at its best."""
    units = {"clock": " MHz"}
    spans = (
        f"{name} {low:,.0f}{f' to {high:,.0f}' if high > low else ''}{units.get(name, '')}"
        for name, (low, high) in run.device_probe.items()
    )
    said = ", ".join(spans)
    if said:
        yield f"Before and after the samples of each process its driver said: {said}."
    for what, cells in run.device_changed.items():
        how = f"{what} below its most" if what in run.device_probe else what
        more = f" and {len(cells) - NAMED} more" if len(cells) > NAMED else ""
        yield f"{capital(how)}: {show.codes(cells[:NAMED])}{more}."
    if run.not_awake:
        yield f"The device was not kept awake beside this run: {run.not_awake}."


def _limit_words(transfers: Transfers) -> str:
    if not any(transfers.link.limit(direction).bandwidth for direction in (HOST_TO_DEVICE, DEVICE_TO_HOST)):
        why = transfers.why_not(role=roles.LINK)
        return f"No % of the link's limit: it was not measured{f' ({why})' if why else ''}."
    return (
        "% compares with the fastest pinned copy into memory that exists, by the device's clock in the same run and "
        "direction (below: The link). GB/s and % are shown from where the bytes and not the call take the time."
    )


def _absent(transfers: Transfers) -> Iterator[str]:
    """Host memory that no figure is about, with the reason."""
    have = {cell.host for cell in transfers.main}
    for host in (host for host in HOSTS if transfers.main and host not in have):
        if any(row.get("memory") == host for row in transfers.missing):
            why = transfers.why_not(role=roles.TRANSFER, memory=host)
            yield f"Nothing on {host} memory: {why or 'see Cells without a figure'}."


def _evidence(transfers: Transfers) -> Iterator[str]:
    counts = {cell.processes for cell in transfers.main}
    if counts and max(counts) < 4:
        low, high = min(counts), max(counts)
        each = f"{low}" if low == high else f"{low} to {high}"
        plural = "process" if high == 1 else "processes"
        yield f"{each} {plural} a cell: a quick look, too few for an interval or a verdict."


def _curves(transfers: Transfers, missing: Missing) -> Iterator[tuple[Figure, Table]]:
    """For each direction and host memory: completion and enqueue time, then completion's and sustained's GB/s."""
    for direction in (HOST_TO_DEVICE, DEVICE_TO_HOST):
        limit = transfers.link.limit(direction).bandwidth
        for host in HOSTS:
            for clock in (COMPLETION, ENQUEUE):
                cells = transfers.of(clock, direction, host)
                about = f"{direction}, {host} host memory: {clock} time"
                for figure in figures.times_figure(slug("transfer", direction, host, clock), *_named(about, cells)):
                    yield figure, curves(figure.cells, missing)
            for clock in (COMPLETION, SUSTAINED):
                cells = [cell for cell in transfers.of(clock, direction, host) if transfers.by_bytes(cell)]
                about = f"{direction}, {host} host memory: GB/s by {clock}"
                name = slug("bandwidth", direction, host, clock)
                for figure in figures.bandwidths(name, *_named(about, cells), limit):
                    yield figure, transfer_tables.bandwidths(figure.cells, missing, transfers)


def _named(about: str, cells: list[Cell]) -> tuple[str, str, list[Cell]]:
    return about, f"{about} ({cells[0].dtype})" if cells else about, cells
