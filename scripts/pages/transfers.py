"""What is said about transfers between host and device: what to take, and the sections of a machine's page."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pandas as pd
from analysis import case, transfers
from analysis.case import AS_GOOD, BEST, CONDITION, SLOWER, UNSAFE, Need, uses
from analysis.cells import BOTH, SUSTAINED, Cell, method, usual_size
from analysis.choices import rank
from analysis.transfers import WAYS, Hidden, Transfers

from benchmarks import families as roles
from benchmarks.contracts import COMPLETION, ENQUEUE, HOST_TO_DEVICE, INTO, PAGEABLE, PINNED
from pages import figures, show
from pages.advice import Box, Take, busy, capital
from pages.case import promises, why_unsafe
from pages.figures import Figure, slug
from pages.page import Section
from pages.show import code, prose
from pages.tables import IN_CACHE, TIE, Entry, Missing, Table, curves, named, pivot, too_few

# From pageable and pinned memory by one blocking call, and from pageable memory by way of pinned
TOGETHER = (*transfers.PLAIN.values(), "s.copy_(t); d.copy_(s, non_blocking=True)", "copy_in_chunks(d, t, stages)")
UNBROKEN = "\N{NO-BREAK SPACE}"
MEANING = {
    COMPLETION: "until the bytes have arrived: the call, and a synchronize where the call may return before",
    ENQUEUE: "the call alone: how long the caller is held, the queue empty before it",
    SUSTAINED: "several copies in flight and one synchronize, by the copy",
}

# --- what is advised --------------------------------------------------------------------------------------------------


def advice(table: pd.DataFrame, moved: Transfers) -> list[Box]:
    """What to know first, a box a way and end at the host, by completion time, and one on scalars."""
    words = prose("transfers", "short", short=transfers.in_short(moved), moved=moved, both=BOTH)
    made = [Box("Transfers in short", lines=words)] if words else []
    made += [_box(each, moved) for each in transfers.recommendations(table, moved)]
    scalars = rank(moved.role(roles.SCALAR))
    if len(scalars):
        cell = best(scalars)
        notes = (*busy(scalars), *_conditions(cell), *_beside(scalars))
        take = Take("", cell.route, show.time(cell))
        made.append(Box("From the device to a number: a scalar such as a loss", (take,), notes=notes))
    return made


def _box(each: Mapping[Need, pd.DataFrame], moved: Transfers) -> Box:
    """What to take for needs that differ in whether the result is fresh alone, at one size."""
    need, rows = next(iter(each.items()))
    end = f"{end_of(need)} of {show.size(best(rows).nbytes)}"
    title = f"From {end} to the device" if need.direction == HOST_TO_DEVICE else f"From the device to {end}"
    takes: list[Take] = []
    notes: list[str] = []
    for need, rows in each.items():
        chosen, fast = best(rows), _on_condition(rows)
        fresh = f"{result_of(need)}, " if len(each) > 1 else ""
        how = "on a condition" if chosen.contract.hazard else "no condition"
        takes.append(Take(fresh + how, chosen.route, cost_words(chosen, moved)))
        notes += [*busy(rows), *_conditions(chosen), *_beside(rows), *_both_times(chosen, moved)]
        if fast is not None:
            takes.append(Take(f"{fresh}faster, on a condition", fast.route, cost_words(fast, moved)))
            gain = show.ratio(chosen.seconds / fast.seconds)
            notes += [f"{code(fast.route)} is {gain} as fast as {code(chosen.route)}.", *_conditions(fast)]
        for cell in _of(rows, UNSAFE):
            notes.append(f"{code(cell.route)} is faster, {show.time(cell)}, but: {why_unsafe(cell.contract)}.")
    if not moved.link.limit(need.direction).bandwidth:
        notes.append("No share of the link's limit: the limit was not measured in this run.")
    return Box(title, tuple(takes), notes=tuple(dict.fromkeys(notes)))


def _of(rows: pd.DataFrame, kind: str) -> list[Cell]:
    return list(rows["cell"][rows["kind"] == kind])


def best(rows: pd.DataFrame) -> Cell:
    """The cell to take of ranked routes, at the smallest size."""
    return _of(rows, BEST)[0]


def _on_condition(rows: pd.DataFrame) -> Cell | None:
    """Of the rows of a part the route that is faster on a condition at all sizes, or else at the largest; there. Of
    several that nothing is decided to be faster than, the catalogue's first that is not far behind the fastest."""
    faster = rows[rows["kind"].isin([CONDITION, UNSAFE])]
    everywhere = faster.groupby("route")["nbytes"].nunique() == rows["nbytes"].nunique()
    last = faster[(faster["nbytes"] == rows["nbytes"].max()) & faster["leads"]]
    last = last[last["seconds"] <= (1 + AS_GOOD) * last["seconds"].min()]
    common = last[last["route"].isin(everywhere.index[everywhere])]
    return next(iter([*common["cell"], *last["cell"]]), None)


def _conditions(cell: Cell) -> Iterator[str]:
    yield from (f"{code(cell.route)}: {text}." for text in promises(cell.contract))


def _both_times(cell: Cell, moved: Transfers) -> Iterator[str]:
    """Of pinned memory: what the same call takes, and how long it holds its caller, where it does not wait."""
    done, held = moved.without_waiting(cell)
    if cell.host == PINNED and not cell.contract.non_blocking and done and held:
        yield f"{code(done.route)}: there after {show.time(done)}, the caller free after {show.time(held)}."


def _beside(rows: pd.DataFrame) -> Iterator[str]:
    """What is tied with the route to take, what cannot be decided, the next slower, and what stages or pins by hand."""
    chosen, ties = best(rows), _of(rows, case.TIE)
    if alike := [cell.route for cell in ties if not too_few(cell, chosen)]:
        yield f"Tie with {show.codes(alike)}."
    # what has a condition is no tie, and silence about it would be advice against it
    perhaps = [cell for cell in _of(rows, case.OTHER) if cell.contract.non_blocking and cell.seconds < chosen.seconds]
    for cell in (cell for cell in (*ties, *perhaps) if too_few(cell, chosen)):
        ratio, why = show.ratio(cell.seconds / chosen.seconds), cell.contract.hazard
        yield f"Not enough processes to decide: {code(cell.route)}, {ratio} the time{why and f'; {why}'}."
    for place, slower in enumerate(_of(rows, SLOWER)):
        if not place or any(uses(slower.route, name) for name in ("s", "stages", "pin_memory")):
            said = "Next" if not place else "Slower"
            yield f"{said}: {code(slower.route)}, {show.ratio(slower.seconds / chosen.seconds)} the time."


def in_a_line(what: str, rows: pd.DataFrame) -> str:
    """What to take at one size, what is as good, and what is faster on a condition."""
    chosen, fast = best(rows), _on_condition(rows)
    words = [f"{what}: {code(chosen.route)}, {show.time(chosen)}."]
    if why := chosen.contract.hazard or chosen.contract.caution:
        words.append(f"{code(chosen.route)}: {why}.")
    words += _beside(rows)
    if fast is not None:
        faster = f"{code(fast.route)}, {show.time(fast)}, is {show.ratio(chosen.seconds / fast.seconds)} as fast"
        words.append(f"On a condition {faster}: {fast.contract.hazard}.")
    return " ".join(words)


def impossible(moved: Transfers) -> tuple[str, ...]:
    """Warnings of transfers that read faster than they can be, of clocks that disagree, of a device that was lost."""
    return prose("transfers", "impossible", fast=transfers.too_fast(moved), link=moved.link, run=moved.run)


# A need and a transfer in words


def end_of(need: Need) -> str:
    """The host's end."""
    if need.array:
        return "a NumPy array" if need.host == PAGEABLE else f"a NumPy array in {need.host} memory"
    return f"a {need.host} host tensor"


def way_of(need: Need) -> str:
    end = end_of(need)
    return f"from {end} to the device" if need.direction == HOST_TO_DEVICE else f"from the device to {end}"


def question(need: Need) -> str:
    return f"{capital(way_of(need))}, {result_of(need)}"


def result_of(need: Need) -> str:
    """New or existing, as the beginning of a line."""
    there = need.direction == HOST_TO_DEVICE
    if need.memory == INTO:
        return f"into {'a device' if there else 'a host'} tensor that exists"
    return "a new array" if need.array and not there else "a new tensor"


def cost_words(cell: Cell, moved: Transfers) -> str:
    """Time, and decimal GB/s and share of the limit where these have a meaning and are known."""
    words = [show.time(cell)]
    if moved.by_bytes(cell):
        share = moved.link.limit(cell.direction).share(cell)
        words.append(show.bandwidth(cell.nbytes / cell.seconds))
        words += [f"{show.percent(share)} of the limit"] if share else []
    return ", ".join(words)


# --- what sections say beside their tables ----------------------------------------------------------------------------


def said(moved: Transfers) -> dict[str, tuple[str, ...]]:
    """Family -> sentences."""
    calls = transfers.while_busy(moved)
    held, free = (_listed(each.cell for each in calls if each.waits == waits) for waits in (True, False))
    return {
        "busy": prose("transfers", "busy", held=held, free=free, behind=transfers.read_behind(moved)),
        "many": tuple(_chosen(moved.role(roles.MANY), "tensors")),
        "transfer": tuple(_chosen(moved.role(roles.CAST_ON_THE_WAY), "nbytes")),
    }


def _listed(cells: Iterable[Cell]) -> str:
    """Routes, each with the host memory and the sizes at which it was measured to be so."""
    sizes: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        word = "from" if cell.direction == HOST_TO_DEVICE else "to"
        sizes.setdefault((cell.route, word, cell.host), []).append(show.size(cell.nbytes))
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for (route, word, host), measured in sizes.items():
        hosts.setdefault((route, word, show.join(measured)), []).append(host)
    return "; ".join(
        f"{code(route)} {word} {show.join(memories)} memory, {at}" for (route, word, at), memories in hosts.items()
    )


def _chosen(cells: Iterable[Cell], by: str) -> Iterator[str]:
    """What to take of each benchmark from each host memory, at each value of a parameter."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        if cell.benchmark.endswith("completion"):
            value = cell.parameters[by]
            much = show.size(value) if by == "nbytes" else f"{value:,} {by}"
            groups.setdefault((cell.declared.title or cell.direction, much, cell.host), []).append(cell)
    for (what, much, host), group in groups.items():
        yield in_a_line(f"{capital(what)}, {much}, {host} memory", rank(group))


# --- tables -----------------------------------------------------------------------------------------------------------


def decision(table: pd.DataFrame, moved: Transfers) -> list[Table]:
    """One table a direction: memory state × size band, the figures at the band's largest size."""
    take = "fastest, without a condition unless said"
    columns = ("need", "size", take, "completion", "GB/s", "% of the limit", "next", "faster on a condition")
    made = []
    for direction in WAYS:
        rows = tuple(
            _band(need, part, moved, ranked["route"].nunique())
            for need, ranked in transfers.answered(table, moved)
            if need.direction == direction
            for _, part in ranked.groupby("part")
        )
        title = f"{direction}: completion, GB/s and % at the largest size of each row"
        made.append(Table(title, columns, rows, numeric=False))
    return [table for table in made if table]


def _band(need: Need, rows: pd.DataFrame, moved: Transfers, routes: int) -> tuple[Entry, ...]:
    last, fast = rows[rows["nbytes"] == rows["nbytes"].max()], _on_condition(rows)
    cell = best(last)
    tied, left = (
        named([tie.route for tie in _of(last, case.TIE) if too_few(tie, cell) == few]) for few in (False, True)
    )
    sizes = dict.fromkeys(show.size(nbytes) for nbytes in (rows["nbytes"].min(), cell.nbytes))
    here = last["route"].nunique()
    slower = [f"{code(c.route)} {show.ratio(c.seconds / cell.seconds)}" for c in _of(last, SLOWER)[:1]]
    faster: list[str] = []
    if fast is not None:
        gain = f"{show.ratio(cell.seconds / fast.seconds)} as fast"
        faster = [code(fast.route), f"{cost_words(fast, moved)}: {gain}", fast.contract.hazard]
    row = (
        [capital(way_of(need)), result_of(need)],
        [" to ".join(sizes).replace(" ", UNBROKEN), *([f"{here} of {routes} routes"] if here < routes else [])],
        [code(cell.route), cell.contract.hazard, tied and f"tie: {tied}", left and f"not enough processes: {left}"],
        show.time(cell),
        *_speed(cell, moved),
        slower or "",
        faster or "",
    )
    return tuple(entry if isinstance(entry, str) else [line for line in entry if line] for entry in row)


def _speed(cell: Cell, moved: Transfers) -> tuple[str, str]:
    if not moved.by_bytes(cell):
        return "", ""
    share = moved.link.limit(cell.direction).share(cell)
    return show.significant(cell.nbytes / cell.seconds / 1e9, 2), show.percent(share) if share else ""


def clocks(moved: Transfers) -> list[Table]:
    """Completion, enqueue and sustained of non-blocking routes side by side, at the size where most were measured."""
    every = [cell for cell in moved.main if cell.contract.non_blocking]
    held = [cell for cell in every if method(cell) in (ENQUEUE, SUSTAINED)]
    if not held:
        return []
    nbytes = usual_size(held)
    here = {(c.direction, c.host, c.route, method(c)): c for c in every if c.nbytes == nbytes}
    rows: list[tuple[Entry, ...]] = []
    for direction, host, route in dict.fromkeys(key[:3] for key in here):
        done, queued, several = (here.get((direction, host, route, c)) for c in (COMPLETION, ENQUEUE, SUSTAINED))
        share = f"{show.significant(100 * queued.seconds / done.seconds, 2)} %" if queued and done else ""
        completion, sustained = (cost_words(cell, moved) if cell else "" for cell in (done, several))
        enqueue = show.time(queued) if queued else ""
        rows.append((code(route), f"{direction}, {host}", completion, enqueue, share, sustained))
    columns = ("route", "way, host memory", "completion", "enqueue", "enqueue ÷ completion", "sustained, by the copy")
    title = f"Non-blocking routes at {show.size(nbytes)}, by three clocks"
    return [Table(title, columns, tuple(rows))]


def dtypes(moved: Transfers, missing: Missing) -> list[Table]:
    """Transfers by dtype where more than one was measured."""
    tables = []
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in moved.cells:
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


def overlap(moved: Transfers) -> list[Table]:
    """The share that hides."""
    rows: list[tuple[Entry, ...]] = []
    for each in transfers.hidden(moved):
        span = f"{show.percent(min(each.shares))} to {show.percent(max(each.shares))}" if each.sound else ""
        name = f"{each.cell.direction}, {each.cell.host}, {show.size(each.cell.nbytes)}"
        rows.append((name, *(show.seconds(each.seconds(part)) for part in transfers.PARTS), share_words(each), span))
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


def firsts(moved: Transfers) -> list[Table]:
    """What the first use costs, in seconds and in seconds a GiB."""
    made = "the device's context, made by the first tensor on it"
    context = tuple((made, _range(cell)) for cell in moved.role(roles.CONTEXT))
    here = {(method(cell), cell.nbytes): cell for cell in moved.role(roles.PINNING)}
    sizes = sorted({nbytes for _, nbytes in here})
    pinned = tuple(
        (ONCE.get(what, what), *(_once(here[what, n]) if (what, n) in here else "n/a" for n in sizes))
        for what in dict.fromkeys(what for what, _ in here)
    )
    first = "The first tensor on the device, from before its driver is touched"
    allocated = "Pinned memory for the first time in a process, the context there already"
    tables = (
        Table(first, ("what", "once a process"), context),
        Table(allocated, ("what", *map(show.size, sizes)), pinned),
    )
    return [table for table in tables if table]


def _range(cell: Cell) -> Entry:
    low_high = show.interval(cell.low, cell.high)
    return [show.time(cell), low_high] if cell.processes > 1 else show.time(cell)


def _once(cell: Cell) -> Entry:
    per_gib = cell.seconds / cell.nbytes * 2**30
    return [show.time(cell), f"{show.significant(per_gib)} s/GiB"]


HARDWARE = {"link generation": "Gen{:.0f}", "link width": "x{:.0f}"}
HARDWARE |= dict.fromkeys(("graphics clock", "memory clock"), "{:.0f} MHz")


def link(moved: Transfers) -> list[Table]:
    """The link as its driver describes it under load, what it carries, its measured limits, the floor of completion."""
    capacity, limits = moved.link.capacity, moved.link.limits
    driver = [(name, HARDWARE.get(name, "{:.0f}").format(value)) for name, value in moved.link.hardware.items()]
    if capacity is not None:
        driver.append(("carried each way, after encoding", show.bandwidth(capacity)))
    sizes = sorted({n for limit in limits.values() for n in limit.cells})
    measured = tuple(
        (way, *(_limit(limit.cells[n], limit.moved, capacity) if n in limit.cells else "n/a" for n in sizes))
        for way, limit in limits.items()
    )
    both = ("Both at once: twice the size moves, and GB/s count both ways.",) if BOTH in limits else ()
    title = "The limit: a pinned copy into memory that exists, by the device's clock"
    floor = [("synchronize() of an idle device", _range(cell)) for cell in [moved.link.floor] if cell]
    tables = (
        Table("Read under load with nvidia-ml-py", ("what", "value"), tuple(driver), numeric=False),
        Table(title, ("direction", *map(show.size, sizes)), measured, both),
        Table("The floor of every completion time", ("what", "a call"), tuple(floor)),
    )
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
        model = transfers.fit(seconds)
        if model is not None and model.good:
            fitted = show.seconds(model.latency), show.bandwidth(model.bandwidth), show.size(round(model.half))
            way = f"{direction}, {host}" if host else direction
            rows.append(([code(route), way], *fitted, show.percent(model.deviation)))
        elif len(seconds) >= transfers.LEAST_SIZES:
            bent.append(route)
    columns = ("route", "latency α", "bandwidth", "n½", "largest deviation")
    why = f"within {show.percent(transfers.GOOD_FIT)} (caches and page faults bend the line)"
    lines = [f"No fit of time = α + bytes / bandwidth {why}: {named(bent)}."] if bent else []
    return [Table(FITTED, columns, tuple(rows))] if rows else [], lines


# --- sections ---------------------------------------------------------------------------------------------------------


def transfer_sections(table: pd.DataFrame, moved: Transfers, missing: Missing) -> list[Section]:
    """What a machine with an accelerator has on its page; sections of what was not measured stay empty."""
    fitted, bent = fits(moved.of(COMPLETION))
    have = {cell.host for cell in moved.main}
    lacking = {str(row.get("memory")) for row in moved.missing} if have else set()
    hosts = [host for host in transfers.HOSTS if host not in have and host in lacking]

    def words(block: str) -> tuple[str, ...]:
        return prose(
            "transfers",
            block,
            moved=moved,
            run=moved.run,
            dtype=moved.main[0].dtype if moved.main else "",
            meaning=MEANING,
            tie=TIE,
            limits=any(moved.link.limit(direction).bandwidth for direction in WAYS),
            no_limit=moved.why_not(role=roles.LINK),
            absent={host: moved.why_not(role=roles.TRANSFER, memory=host) for host in hosts},
            processes=sorted({cell.processes for cell in moved.main}),
        )

    return [
        Section("transfers", "Transfers: what to take", words("transfers"), tables=tuple(decision(table, moved))),
        Section(
            "clocks",
            "Transfers: completion, enqueue, sustained",
            words("clocks"),
            tuple(_curves(moved, missing)),
            (*clocks(moved), *fitted),
            tuple(bent),
        ),
        Section("transfer-dtypes", "Transfers by dtype", tables=tuple(dtypes(moved, missing))),
        Section("overlap", "Transfers behind compute", words("overlap"), tables=tuple(overlap(moved))),
        Section("firsts", "What the first use costs", words("firsts"), tables=tuple(firsts(moved))),
        Section("link", "The link", words("link"), tables=tuple(link(moved))),
    ]


def _curves(moved: Transfers, missing: Missing) -> Iterator[tuple[Figure, Table]]:
    """A direction's GB/s from all host memory together, then each memory's time against size by every clock."""
    for direction in WAYS:
        usual = [cell for cell in moved.of(COMPLETION, direction) if cell.route in TOGETHER and moved.by_bytes(cell)]
        cells = [replace(c, parameters={**c.parameters, "route": f"{c.host}: {c.route}"}) for c in usual]
        about, name = f"{direction}: GB/s by completion", slug("bandwidth", direction)
        for figure in figures.bandwidths(name, *_named(about, cells), moved.link.limit(direction).bandwidth):
            yield figure, pivot(about, cells, "nbytes", missing, lambda cell: cost_words(cell, moved), show.size)
    for direction, host, clock in itertools.product(WAYS, transfers.HOSTS, MEANING):
        cells, about = moved.of(clock, direction, host), f"{direction}, {host} host memory: {clock} time"
        for figure in figures.times_figure(slug("transfer", direction, host, clock), *_named(about, cells)):
            yield figure, curves(figure.cells, missing)


def _named(about: str, cells: list[Cell]) -> tuple[str, list[Cell]]:
    return f"{about} ({cells[0].dtype})" if cells else about, cells
