"""The sections about transfers of a machine's page, and their tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from analysis.answers import choose
from analysis.cells import Cell, method, usual_size
from analysis.transfers import (
    BOTH,
    GOOD_FIT,
    HOSTS,
    LEAST_SIZES,
    PARTS,
    SUSTAINED,
    Fit,
    Hidden,
    Transfers,
    comparable,
    fit,
    hidden,
    needs,
)
from store.records import Record

from benchmarks import families as roles
from benchmarks.contracts import COMPLETION, DEVICE_TO_HOST, ENQUEUE, HOST_TO_DEVICE
from pages import figures, show
from pages.advice import capital
from pages.figures import Figure, slug
from pages.page import Section
from pages.show import code
from pages.tables import IN_CACHE, TIE, Entry, Missing, Table, curves, named, pivot
from pages.transfer_advice import cost_words, result_of, way_of

UNBROKEN = "\N{NO-BREAK SPACE}"


def decision(transfers: Transfers) -> list[Table]:
    """One table a direction: memory state × size band, the figures at the band's largest size."""
    tables = []
    for direction in (HOST_TO_DEVICE, DEVICE_TO_HOST):
        rows: list[tuple[Entry, ...]] = []
        for need, cells in needs(transfers.of(COMPLETION, direction)).items():
            for segment in choose(comparable(cells)):
                choice = segment.choices[-1]
                sizes = [show.size(c.nbytes) for c in (segment.choices[0], choice)]
                lines: list[str] = [code(choice.cell.route)]
                if choice.cell.contract.hazard:
                    lines.append(choice.cell.contract.hazard)
                if choice.ties:
                    lines.append(f"tie: {named([tie.route for tie in choice.ties])}")
                rows.append(
                    (
                        [capital(way_of(need)), result_of(need)],
                        (sizes[0] if len(segment.choices) == 1 else f"{sizes[0]} to {sizes[1]}").replace(" ", UNBROKEN),
                        lines,
                        show.time(choice.cell),
                        *_speed(choice.cell, transfers),
                        _next(choice.others[0], choice.cell) if choice.others else "",
                        _condition(segment.conditional, choice.cell, transfers),
                    )
                )
        take = "fastest, without a condition unless said"
        columns = ("need", "size", take, "completion", "GB/s", "% of the limit", "next")
        title = f"{direction}: completion, GB/s and % at the largest size of each row"
        tables.append(Table(title, (*columns, "faster on a condition"), tuple(rows), numeric=False))
    return [table for table in tables if table]


def _speed(cell: Cell, transfers: Transfers) -> tuple[str, str]:
    if not transfers.by_bytes(cell):
        return "", ""
    share = transfers.link.limit(cell.direction).share(cell)
    return show.significant(cell.nbytes / cell.seconds / 1e9, 2), show.percent(share) if share else ""


def _next(cell: Cell, chosen: Cell) -> list[str]:
    return [f"{code(cell.route)} {show.ratio(cell.seconds / chosen.seconds)}"]


def _condition(cell: Cell | None, chosen: Cell, transfers: Transfers) -> Entry:
    if cell is None:
        return ""
    gain = f"{show.ratio(chosen.seconds / cell.seconds)} as fast"
    return [code(cell.route), f"{cost_words(cell, transfers)}: {gain}", cell.contract.hazard]


def clocks(transfers: Transfers) -> list[Table]:
    """Completion, enqueue and sustained of non-blocking routes side by side, at the size where most were measured."""
    every = [cell for cell in transfers.main if cell.contract.non_blocking]
    held = [cell for cell in every if method(cell) in (ENQUEUE, SUSTAINED)]
    if not held:
        return []
    nbytes = usual_size(held)
    here = {(c.direction, c.host, c.route, method(c)): c for c in every if c.nbytes == nbytes}
    rows: list[tuple[Entry, ...]] = []
    for direction, host, route in dict.fromkeys(key[:3] for key in here):
        cells = [here.get((direction, host, route, clock)) for clock in (COMPLETION, ENQUEUE, SUSTAINED)]
        done, queued, several = cells
        share = f"{show.significant(100 * queued.seconds / done.seconds, 2)} %" if queued and done else ""
        rows.append(
            (
                code(route),
                f"{direction}, {host}",
                cost_words(done, transfers) if done else "",
                show.time(queued) if queued else "",
                share,
                cost_words(several, transfers) if several else "",
            )
        )
    columns = ("route", "way, host memory", "completion", "enqueue", "enqueue ÷ completion", "sustained, by the copy")
    title = f"Non-blocking routes at {show.size(nbytes)}, by three clocks"
    return [Table(title, columns, tuple(rows))]


def bandwidths(cells: Sequence[Cell], missing: Missing, transfers: Transfers) -> Table:
    """The figures behind a panel of GB/s against size."""

    def speed(cell: Cell) -> Entry:
        share = transfers.link.limit(cell.direction).share(cell)
        lines: list[str] = [f"{show.bandwidth(cell.nbytes / cell.seconds)}"]
        return [*lines, show.percent(share)] if share else lines

    title = "Decimal GB/s of the median, and % of the measured limit"
    return pivot(title, cells, "nbytes", missing, speed, show.size)


def dtypes(transfers: Transfers, missing: Missing) -> list[Table]:
    """Transfers by dtype where more than one was measured."""
    tables = []
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in transfers.cells:
        if cell.role == roles.TRANSFER and cell.dtype and method(cell) == COMPLETION:
            groups.setdefault((cell.benchmark, cell.host), []).append(cell)
    for (_, host), cells in groups.items():
        nbytes = usual_size(cells, "dtype", IN_CACHE)
        here = [cell for cell in cells if cell.nbytes == nbytes]
        several = {c.route for c in here if len({d.dtype for d in here if d.route == c.route}) > 1}
        shown = [cell for cell in here if cell.route in several]
        if shown:
            title = f"{cells[0].direction}, {host}, completion, {show.size(nbytes)}, by dtype"
            tables.append(pivot(title, shown, "dtype", missing))
    return tables


# Overlap


def overlap(transfers: Transfers) -> list[Table]:
    """The share that hides."""
    rows: list[tuple[Entry, ...]] = []
    for each in hidden(transfers):
        span = f"{show.percent(min(each.shares))} to {show.percent(max(each.shares))}" if each.sound else ""
        name = f"{each.cell.direction}, {each.cell.host}, {show.size(each.cell.nbytes)}"
        rows.append((name, *(show.seconds(each.seconds(part)) for part in PARTS), share_words(each), span))
    title = "A non-blocking copy beside matrix products on another stream, completion"
    columns = ("transfer", "products", "transfer alone", "both", "hidden", "range")
    return [Table(title, columns, tuple(rows))] if rows else []


def share_words(each: Hidden) -> str:
    """The share that hides; what noise lifts above all or below nothing is said to be that, or not told at all."""
    share = each.share
    if not each.sound:
        return "not told: the three times do not fit together"
    if share > 1:
        return f"all ({show.percent(share)} by noise)"
    return f"none ({show.percent(share)} by noise)" if share < 0 else show.percent(share)


# One-time costs, the link

ONCE = {
    "allocate": "first pinned allocation in a process",
    "pin_copy": "t.pin_memory(): a pinned copy of an existing tensor",
    "register": "registering an existing tensor's memory in place",
}


def firsts(transfers: Transfers) -> list[Table]:
    """What the first use costs, in seconds and in seconds a GiB."""
    tables = []
    context = transfers.role(roles.CONTEXT)
    rows: list[tuple[Entry, ...]] = []
    for cell in context:
        rows.append(("the device's context, made by the first tensor on it", _range(cell)))
    title = "The first tensor on the device, from before its driver is touched"
    tables.append(Table(title, ("what", "once a process"), tuple(rows)))
    pinned = transfers.role(roles.PINNING)
    sizes = sorted({cell.nbytes for cell in pinned})
    here = {(method(cell), cell.nbytes): cell for cell in pinned}
    rows = []
    for what in dict.fromkeys(method(cell) for cell in pinned):
        cells = [here.get((what, n)) for n in sizes]
        rows.append((ONCE.get(what, what), *(_once(cell) if cell else "n/a" for cell in cells)))
    title = "Pinned memory for the first time in a process, the context there already"
    tables.append(Table(title, ("what", *map(show.size, sizes)), tuple(rows)))
    return [table for table in tables if table]


def _range(cell: Cell) -> Entry:
    low_high = show.interval(cell.low, cell.high)
    return [show.time(cell), low_high] if cell.processes > 1 else show.time(cell)


def _once(cell: Cell) -> Entry:
    per_gib = cell.seconds / cell.nbytes * 2**30
    return [show.time(cell), f"{show.significant(per_gib)} s/GiB"]


HARDWARE: Mapping[str, Callable[[float], str]] = {
    "link generation": lambda value: f"Gen{value:.0f}",
    "link width": lambda value: f"x{value:.0f}",
    "graphics clock": lambda value: f"{value:.0f} MHz",
    "memory clock": lambda value: f"{value:.0f} MHz",
}


def link(transfers: Transfers) -> list[Table]:
    """The link as its driver describes it under load, what it carries, its measured limits, the floor of completion."""
    hardware, capacity = transfers.link.hardware, transfers.link.capacity
    rows: list[tuple[Entry, ...]] = []
    for name, value in hardware.items():
        rows.append((name, HARDWARE[name](value) if name in HARDWARE else f"{value:.0f}"))
    if capacity is not None:
        rows.append(("carried each way, after encoding", show.bandwidth(capacity)))
    tables = [Table("Read under load with nvidia-ml-py", ("what", "value"), tuple(rows), numeric=False)]
    limits = transfers.link.limits
    sizes = sorted({n for limit in limits.values() for n in limit.cells})
    rows = []
    for direction, limit in limits.items():
        entries: list[Entry] = []
        for n in sizes:
            cell = limit.cells.get(n)
            entries.append(_limit(cell, limit.moved, capacity) if cell else "n/a")
        rows.append((direction, *entries))
    notes: tuple[str, ...] = ()
    if BOTH in limits:
        notes = ("Both at once: twice the size moves, and GB/s count both ways.",)
    title = "The limit: a pinned copy into memory that exists, by the device's clock"
    tables.append(Table(title, ("direction", *map(show.size, sizes)), tuple(rows), notes))
    if transfers.link.floor is not None:
        rows = [("synchronize() of an idle device", _range(transfers.link.floor))]
        tables.append(Table("The floor of every completion time", ("what", "a call"), tuple(rows)))
    return [table for table in tables if table]


def _limit(cell: Cell, moved: int, capacity: float | None) -> Entry:
    rate = moved * cell.nbytes / cell.seconds
    lines: list[str] = [show.bandwidth(rate), show.time(cell)]
    if capacity:
        lines.append(f"{show.percent(rate / capacity / moved)} of what the link carries")
    return lines


# Latency and bandwidth

FITTED = (
    "Time = α + bytes / bandwidth (decimal GB/s), fitted by relative error; n½: where half of the bandwidth is reached"
)


def fits(cells: Iterable[Cell]) -> tuple[list[Table], list[str]]:
    """Hockney's model, a row a route, and a sentence on the routes that it does not fit; both empty at few sizes."""
    series: dict[tuple[str, str, str], dict[int, float]] = {}
    for cell in cells:
        series.setdefault((cell.direction, cell.host, cell.route), {})[cell.nbytes] = cell.seconds
    rows: list[tuple[Entry, ...]] = []
    bent: list[str] = []
    for (direction, host, route), seconds in series.items():
        model = fit(seconds)
        if model is not None and model.good:
            rows.append(([code(route), f"{direction}, {host}" if host else direction], *_fitted(model)))
        elif len(seconds) >= LEAST_SIZES:
            bent.append(route)
    columns = ("route", "latency α", "bandwidth", "n½", "largest deviation")
    table = Table(FITTED, columns, tuple(rows))
    lines: list[str] = []
    if bent:
        why = "caches and page faults bend the line"
        within = show.percent(GOOD_FIT)
        lines.append(f"No fit of time = α + bytes / bandwidth within {within} ({why}): {named(bent)}.")
    return [table] if table else [], lines


def _fitted(model: Fit) -> tuple[str, ...]:
    worst = show.percent(model.deviation)
    return show.seconds(model.latency), show.bandwidth(model.bandwidth), show.size(round(model.half)), worst


# --- sections ---------------------------------------------------------------------------------------------------------


MEANING = {
    COMPLETION: "until the bytes have arrived: the call, and a synchronize where the call may return before",
    ENQUEUE: "the call alone: how long the caller is held, the queue empty before it",
    SUSTAINED: "several copies in flight and one synchronize, by the copy",
}


def transfer_sections(transfers: Transfers, missing: Missing) -> list[Section]:
    """What a machine with an accelerator has on its page; sections of what was not measured stay empty."""
    fitted, bent = fits(transfers.of(COMPLETION))
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
            tables=tuple(decision(transfers)),
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
            tables=(*clocks(transfers), *fitted),
            after=tuple(bent),
        ),
        Section(
            "transfer-dtypes",
            "Transfers by dtype",
            tables=tuple(dtypes(transfers, missing)),
        ),
        Section(
            "overlap",
            "Transfers behind compute",
            (
                "Hidden: (products + transfer - both) / min(products, transfer), of three times that one process took "
                "in turns; as many products as take one to two times the transfer. The range is that of the "
                "processes; more than 100 % or less than 0 % is noise.",
            ),
            tables=tuple(overlap(transfers)),
        ),
        Section(
            "firsts",
            "What the first use costs",
            (
                "Once in a process: each figure is the median over processes that did it once. The driver's start is "
                "part of the first tensor unless something beside this run keeps the device awake (persistence mode).",
            ),
            tables=tuple(firsts(transfers)),
        ),
        Section("link", "The link", tuple(_device_ran(transfers.run)), tables=tuple(link(transfers))),
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
                    yield figure, bandwidths(figure.cells, missing, transfers)


def _named(about: str, cells: list[Cell]) -> tuple[str, str, list[Cell]]:
    return about, f"{about} ({cells[0].dtype})" if cells else about, cells
