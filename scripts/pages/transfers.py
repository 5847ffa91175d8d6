"""What is said about transfers between host and device: what to take, and the sections of a machine's page.

The sentences are in templates/prose/transfers.md.jinja.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
from analysis import transfers
from analysis.cells import AS_GOOD, BOTH, LINK, SUSTAINED, Row, too_few, usual_dtype, usual_size
from analysis.choices import BEST, CONDITION, OTHER, SLOWER, UNSAFE, Need, rank, uses
from analysis.choices import TIE as TIED
from analysis.transfers import Transfers

from benchmarks.contracts import COMPLETION, ENQUEUE, PINNED, Role

from . import figures, show
from .advice import Box, Take, busy, capital, promises, why_unsafe
from .figures import Figure, slug
from .page import Section
from .show import code, prose
from .tables import TIE, Entry, Missing, Table, curves, named, pivot

# From pageable and pinned memory by one blocking call, and from pageable memory by way of pinned
TOGETHER = (*transfers.PLAIN.values(), "s.copy_(t); d.copy_(s, non_blocking=True)", "copy_in_chunks(d, t, stages)")
UNBROKEN = "\N{NO-BREAK SPACE}"
MEANING = {
    COMPLETION: "until the bytes have arrived: the call, and a synchronize where the call may return before",
    ENQUEUE: "the call alone: how long the caller is held, the queue empty before it",
    SUSTAINED: "several copies in flight and one synchronize, by the copy",
}
BY_HAND = ("s", "stages", "pin_memory")  # names in routes that stage or pin by themselves: said where they are slower

# --- what is advised --------------------------------------------------------------------------------------------------


def advice(table: pd.DataFrame, moved: Transfers) -> list[Box]:
    """What to know first, a box a way and end at the host, by completion time, and one on scalars."""
    short = prose("transfers", "short", short=transfers.in_short(moved), moved=moved, both=BOTH)
    made = [Box("Transfers in short", lines=short)] if short else []
    for each in transfers.recommendations(table, moved):
        need, answers = next(iter(each)), [_picked(rows) for rows in each.values()]
        takes: list[Take] = []
        for one, picked in zip(each, answers):
            fresh = f"{result_of(one)}, " if len(each) > 1 else ""
            how = "on a condition" if picked["best"].contract.hazard else "no condition"
            when = {f"{fresh}{how}": picked["best"], f"{fresh}faster, on a condition": picked["fast"]}
            takes += [Take(how, cell.route, cost_words(cell, moved)) for how, cell in when.items() if cell]
        made.append(Box(way(need, answers[0]["best"].nbytes), tuple(takes), notes=_notes(answers, moved)))
    scalars = rank(moved.role(Role.SCALAR))
    if len(scalars):
        cell = best(scalars)
        title = "From the device to a number: a scalar such as a loss"
        made.append(Box(title, (Take("", cell.route, show.time(cell)),), notes=_notes([_picked(scalars)])))
    return made


def _picked(rows: pd.DataFrame) -> dict[str, Any]:
    """Of ranked routes at one size what sentences are about, as cells."""
    chosen, ties = best(rows), _of(rows, TIED)
    # what has a condition is no tie, and silence about it would be advice against it
    perhaps = [cell for cell in _of(rows, OTHER) if cell.non_blocking and cell.seconds < chosen.seconds]
    slower = _of(rows, SLOWER)
    return {
        "best": chosen,
        "fast": _on_condition(rows),
        "alike": [cell.route for cell in ties if not too_few(cell, chosen)],
        "undecided": [cell for cell in (*ties, *perhaps) if too_few(cell, chosen)],
        "slower": slower[:1] + [c for c in slower[1:] if any(uses(c.route, name) for name in BY_HAND)],
        "unsafe": _of(rows, UNSAFE),
        "noisy": busy(rows),
    }


def _notes(answers: list[dict[str, Any]], moved: Transfers | None = None) -> tuple[str, ...]:
    """What to know beside what is taken, each fact once."""
    said = prose("transfers", "notes", answers=answers, moved=moved, promises=promises, why=why_unsafe, pinned=PINNED)
    return tuple(dict.fromkeys(said))


def _of(rows: pd.DataFrame, kind: str) -> list[Row]:
    return list(rows[rows["kind"] == kind].itertuples())


def best(rows: pd.DataFrame) -> Row:
    """The cell to take of ranked routes, at the smallest size."""
    return _of(rows, BEST)[0]


def _on_condition(rows: pd.DataFrame) -> Row | None:
    """Of the rows of a part the route that is faster on a condition at all sizes, or else at the largest; there. Of
    several that nothing is decided to be faster than, the catalogue's first that is not far behind the fastest."""
    faster = rows[rows["kind"].isin([CONDITION, UNSAFE])]
    everywhere = faster.groupby("route")["nbytes"].nunique() == rows["nbytes"].nunique()
    last = faster[(faster["nbytes"] == rows["nbytes"].max()) & faster["leads"]]
    last = last[last["seconds"] <= (1 + AS_GOOD) * last["seconds"].min()]
    common = last[last["route"].isin(everywhere.index[everywhere])]
    return next(pd.concat([common, last]).itertuples(), None)


def impossible(moved: Transfers) -> tuple[str, ...]:
    """Warnings of transfers that read faster than they can be, of clocks that disagree, of a device that was lost."""
    return prose("transfers", "impossible", fast=transfers.too_fast(moved), moved=moved, run=moved.run)


def way(need: Need, nbytes: int = 0) -> str:
    """From where to where in words; of so many bytes, where these are given."""
    return show.said("transfers", "way", need=need, nbytes=nbytes)


def result_of(need: Need) -> str:
    """New or existing, as the beginning of a line."""
    return show.said("transfers", "result", need=need)


def cost_words(cell: Row, moved: Transfers) -> str:
    """Time, and decimal GB/s and share of the limit where these have a meaning and are known."""
    words = [show.time(cell)]
    if moved.by_bytes(cell):
        share = moved.limit(cell.direction).share(cell)
        words.append(show.bandwidth(cell.nbytes / cell.seconds))
        words += [f"{show.percent(share)} of the limit"] if share else []
    return ", ".join(words)


def said(moved: Transfers) -> dict[str, tuple[str, ...]]:
    """Family -> what sections say beside their tables."""
    calls = transfers.while_busy(moved)
    calls["size"] = calls["nbytes"].map(show.size)
    for names, listed in ((["direction", "host"], "size"), (["direction", "size"], "host")):
        keys = ["waits", "route", *names]
        calls = calls.groupby(keys, sort=False)[listed].agg(lambda each: show.join([*each])).reset_index()
    return {
        "busy": prose("transfers", "busy", calls=calls, behind=transfers.read_behind(moved), waits=transfers.waits),
        "many": tuple(_in_lines(moved.role(Role.MANY), "tensors")),
        "transfer": tuple(_in_lines(moved.role(Role.CAST_ON_THE_WAY), "nbytes")),
    }


def _in_lines(cells: pd.DataFrame, by: str) -> Iterator[str]:
    """What to take of each benchmark from each host memory, at each value of a parameter, a paragraph each."""
    done = cells[cells["method"] == COMPLETION]
    values = done["parameters"].map(lambda own: own[by])
    about = [each.title or each.direction for each in done["declared"]]
    for (what, value, host), group in done.groupby([pd.Series(about, done.index, str), values, "host"], sort=False):
        picked, much = _picked(rank(group)), show.size(value) if by == "nbytes" else f"{value:,} {by}"
        cost = f"{code(picked['best'].route)}, {show.time(picked['best'])}."
        yield " ".join((f"{capital(what)}, {much}, {host} memory: {cost}", *_notes([picked])))


# --- tables -----------------------------------------------------------------------------------------------------------


def decision(table: pd.DataFrame, moved: Transfers) -> list[Table]:
    """One table a direction: memory state × size band, the figures at the band's largest size."""
    take = "fastest, without a condition unless said"
    columns = ("need", "size", take, "completion", "GB/s", "% of the limit", "next", "faster on a condition")
    made = []
    for direction in LINK:
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
    last = rows[rows["nbytes"] == rows["nbytes"].max()]
    picked, fast, here = _picked(last), _on_condition(rows), last["route"].nunique()
    cell = picked["best"]
    others = {"tie": picked["alike"], "not enough processes": [each.route for each in picked["undecided"]]}
    sizes = dict.fromkeys(show.size(nbytes) for nbytes in (rows["nbytes"].min(), cell.nbytes))
    share = moved.limit(cell.direction).share(cell)
    faster: list[str] = []
    if fast:
        gain = f"{cost_words(fast, moved)}: {show.ratio(cell.seconds / fast.seconds)} as fast"
        faster = [code(fast.route), gain, fast.contract.hazard]
    alike = [f"{word}: {named(routes)}" for word, routes in others.items() if routes]
    entries: tuple[list[str], ...] = (
        [way(need), result_of(need)],
        [" to ".join(sizes).replace(" ", UNBROKEN), f"{here} of {routes} routes" if here < routes else ""],
        [code(cell.route), cell.contract.hazard, *alike],
        [show.time(cell)],
        [show.significant(cell.nbytes / cell.seconds / 1e9, 2) if moved.by_bytes(cell) else ""],
        [show.percent(share) if share and moved.by_bytes(cell) else ""],
        [f"{code(c.route)} {show.ratio(c.seconds / cell.seconds)}" for c in picked["slower"][:1]],
        faster,
    )
    return tuple([line for line in lines if line] for lines in entries)


def clocks(moved: Transfers) -> list[Table]:
    """Completion, enqueue and sustained of non-blocking routes side by side, at the size where most were measured."""
    every = moved.main[moved.main["non_blocking"]]
    nbytes = usual_size(every[every["method"].isin((ENQUEUE, SUSTAINED))].itertuples())
    here = every[every["nbytes"] == nbytes]
    words = {clock: show.time if clock == ENQUEUE else partial(cost_words, moved=moved) for clock in MEANING}
    body = []
    for (route, way, host), each in here.groupby(["route", "direction", "host"], sort=False):
        by = {cell.method: cell for cell in each.itertuples()}
        said = (say(by[clock]) if clock in by else "" for clock, say in words.items())
        body.append((code(route), f"{way}, {host}", *said))
    title = f"Non-blocking routes at {show.size(nbytes)}, by three clocks"
    return [Table(title, ("route", "way, host memory", *MEANING), tuple(body))] if nbytes else []


def overlap(moved: Transfers) -> list[Table]:
    """The share that hides."""
    found, rows, cells = transfers.hidden(moved), [], moved.role(Role.OVERLAP)
    for cell in cells[cells["cell"].isin(found.index)].itertuples():
        row = found.loc[cell.cell]
        name = f"{cell.direction}, {cell.host}, {show.size(cell.nbytes)}"
        span = f"{show.percent(row['low'])} to {show.percent(row['high'])}" if row["sound"] else ""
        rows.append((name, *(show.seconds(row[part]) for part in transfers.PARTS), share_words(**row), span))
    title = "A non-blocking copy beside matrix products, or beside a copy back, on another stream: completion"
    columns = ("transfer", "the other alone", "transfer alone", "both", "hidden", "range")
    return [Table(title, columns, tuple(rows))] if rows else []


def share_words(share: float, sound: bool, **_: float) -> str:
    """The share that hides; what noise lifts above all or below nothing is said to be that, or not told at all."""
    words = show.percent(share)
    if not sound:
        return "unknown: the three times do not fit together"
    return words if 0 <= share <= 1 else f"{'all' if share > 1 else 'none'} ({words} by noise)"


ONCE = {
    "allocate": "first pinned allocation in a process",
    "pin_copy": "t.pin_memory(): a pinned copy of an existing tensor",
    "register": "registering an existing tensor's memory in place",
}


def firsts(moved: Transfers) -> list[Table]:
    """What the first use of pinned memory costs, in seconds and in seconds a GiB."""
    here = moved.role(Role.PINNING)
    sizes, found = sorted(here["nbytes"].unique()), {(cell.method, cell.nbytes): cell for cell in here.itertuples()}
    rows = tuple(
        (ONCE.get(what, what), *(_once(found[what, n]) if (what, n) in found else "n/a" for n in sizes))
        for what in here["method"].unique()
    )
    title = "Pinned memory for the first time in a process, the context there already"
    return [Table(title, ("what", *map(show.size, sizes)), rows)] if rows else []


def _once(cell: Row) -> Entry:
    return [show.time(cell), f"{show.significant(cell.seconds / cell.nbytes * 2**30)} s/GiB"]


def link(moved: Transfers) -> list[Table]:
    """The link's measured limits, beside what it carries."""
    sizes = sorted({nbytes for limit in moved.limits.values() for nbytes in limit.cells})

    def entry(cell: Row | None, ways: int) -> Entry:
        rate = cell.nbytes / cell.seconds if cell else 0.0
        carried = [f"{show.percent(rate / moved.capacity)} of what the link carries"] if moved.capacity else []
        return [show.bandwidth(ways * rate), show.time(cell), *carried] if cell else "n/a"

    limits = moved.limits.items()
    rows = tuple((way, *(entry(limit.cells.get(nbytes), limit.moved) for nbytes in sizes)) for way, limit in limits)
    both = ("Both at once: twice the size moves, and GB/s count both ways.",) if BOTH in moved.limits else ()
    title = "The limit: a pinned copy into memory that exists, by the device's clock"
    return [Table(title, ("direction", *map(show.size, sizes)), rows, both)] if rows else []


# --- sections ---------------------------------------------------------------------------------------------------------


def transfer_sections(table: pd.DataFrame, moved: Transfers, missing: Missing) -> list[Section]:
    """What a machine with an accelerator has on its page; sections of what was not measured stay empty."""
    have = {*moved.main["host"]}
    lacking = {*moved.missing["memory"]} if have else set()
    hosts = [host for host in transfers.HOSTS if host not in have and host in lacking]

    def words(block: str) -> tuple[str, ...]:
        return prose(
            "transfers",
            block,
            moved=moved,
            run=moved.run,
            dtype=usual_dtype(moved.main),
            meaning=MEANING,
            tie=TIE,
            limits=any(moved.limit(direction).bandwidth for direction in LINK),
            no_limit=moved.why_not(role=Role.LINK),
            absent={host: moved.why_not(role=Role.TRANSFER, memory=host) for host in hosts},
            processes=sorted({*moved.main["processes"]}),
        )

    drawn = tuple(_curves(moved, missing))
    return [
        Section("transfers", "Transfers: what to take", words("transfers"), tables=tuple(decision(table, moved))),
        Section("clocks", "Transfers: completion, enqueue, sustained", words("clocks"), drawn, tuple(clocks(moved))),
        Section("overlap", "Transfers behind compute", words("overlap"), tables=tuple(overlap(moved))),
        Section("firsts", "What the first use costs", words("firsts"), tables=tuple(firsts(moved))),
        Section("link", "The link", words("link"), tables=tuple(link(moved))),
    ]


def _curves(moved: Transfers, missing: Missing) -> Iterator[tuple[Figure, Table]]:
    """A direction's GB/s from all host memory together, then each memory's time against size by every clock."""
    for direction in LINK:
        usual = moved.of(COMPLETION, direction)
        usual = [c for c in usual[usual["route"].isin(TOGETHER)].itertuples() if moved.by_bytes(c)]
        names = [f"{cell.host}: {cell.route}" for cell in usual]
        cells = [c._replace(route=n, parameters={**c.parameters, "route": n}) for c, n in zip(usual, names)]
        about, name = f"{direction}: GB/s by completion", slug("bandwidth", direction)
        for figure in figures.bandwidths(name, *_named(about, cells), moved.limit(direction).bandwidth):
            yield figure, pivot(about, cells, "nbytes", missing, lambda cell: cost_words(cell, moved), show.size)
    for direction, host, clock in itertools.product(LINK, transfers.HOSTS, MEANING):
        about, cells = (
            f"{direction}, {host} host memory: {clock} time",
            [*moved.of(clock, direction, host).itertuples()],
        )
        for figure in figures.times_figure(slug("transfer", direction, host, clock), *_named(about, cells)):
            yield figure, curves(figure.cells, missing)


def _named(about: str, cells: list[Row]) -> tuple[str, list[Row]]:
    return f"{about} ({cells[0].dtype})" if cells else about, cells
