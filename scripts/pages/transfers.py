"""Transfers between host and device in words: routes to take, and the sections of a machine's page.

The sentences are in templates/prose/transfers.md.jinja.
"""

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from analysis import transfers
from analysis.cells import LINK, SUSTAINED, Row, usual_dtype, usual_size
from analysis.needs import Need, uses
from analysis.ranking import BEST, CONDITION, OTHER, SLOWER, TIE, UNSAFE, rank
from analysis.ties import RECOMMENDED_EXCESS, too_few_processes
from analysis.transfers import Transfers

from benchmarks.contracts import COMPLETION, ENQUEUE, Role

from . import figures, show
from .advice import Box, Recommendation, capitalize_first, no_verdict_notes, promises, unsafe_reason
from .page import Section
from .show import code, render_paragraphs
from .svg import Figure, slug
from .tables import Missing, Table, by_size, curves, render_table

# From pageable and pinned memory by one blocking call, and from pageable memory through pinned memory
TOGETHER = (
    *transfers.PLAIN.values(),
    "s.copy_(t); d.copy_(s, non_blocking=True)",
    "copy_in_chunks(d, t, stages)",
)
CLOCKS = (COMPLETION, ENQUEUE, SUSTAINED)
BY_HAND = (
    "s",
    "stages",
    "pin_memory",
)  # names in routes that stage or pin memory themselves: reported if slower

# --- what is advised --------------------------------------------------------------------------------------------------


def advice(table: pd.DataFrame, moved: Transfers) -> list[Box]:
    """Boxes at the head of a page: one per direction and host memory, by completion time, and one on scalars."""
    short = render_paragraphs("transfers", "short", short=transfers.summaries(moved), moved=moved)
    made = [Box("Transfers in short", lines=short)] if short else []
    for each in transfers.recommendations(table, moved):
        need, answers = next(iter(each)), [_picked(rows) for rows in each.values()]
        takes: list[Recommendation] = []
        for one, picked in zip(each, answers):
            fresh = f"{result_of(one)}, " if len(each) > 1 else ""
            how = "on a condition" if picked["best"].contract.hazard else "no condition"
            when = {
                f"{fresh}{how}": picked["best"],
                f"{fresh}faster, on a condition": picked["fast"],
            }
            takes += [
                Recommendation(how, cell.route, cost_words(cell, moved))
                for how, cell in when.items()
                if cell
            ]
        made.append(
            Box(way(need, answers[0]["best"].nbytes), tuple(takes), notes=_notes(answers, moved))
        )
    scalars = rank(moved.select_role(Role.SCALAR))
    if len(scalars):
        cell = best(scalars)
        title = "From the device to a number: a scalar such as a loss"
        made.append(
            Box(
                title,
                (Recommendation("", cell.route, show.time(cell)),),
                notes=_notes([_picked(scalars)]),
            )
        )
    return made


def _picked(rows: pd.DataFrame) -> dict[str, Any]:
    """Select the cells for the sentences on ranked routes at one size."""
    chosen, ties = best(rows), _of(rows, TIE)
    # a route with a condition is not a tie, but leaving it out would be advice against it
    perhaps = [
        cell for cell in _of(rows, OTHER) if cell.non_blocking and cell.seconds < chosen.seconds
    ]
    slower = _of(rows, SLOWER)
    return {
        "best": chosen,
        "fast": _on_condition(rows),
        "alike": [cell.route for cell in ties if not too_few_processes(cell, chosen)],
        "undecided": [cell for cell in (*ties, *perhaps) if too_few_processes(cell, chosen)],
        "slower": slower[:1]
        + [c for c in slower[1:] if any(uses(c.route, name) for name in BY_HAND)],
        "unsafe": _of(rows, UNSAFE),
        "noisy": no_verdict_notes(rows),
    }


def _notes(answers: list[dict[str, Any]], moved: Transfers | None = None) -> tuple[str, ...]:
    """Notes on the routes taken, each fact once."""
    notes = render_paragraphs(
        "transfers",
        "notes",
        answers=answers,
        moved=moved,
        promises=promises,
        unsafe_reason=unsafe_reason,
    )
    return tuple(dict.fromkeys(notes))


def _of(rows: pd.DataFrame, kind: str) -> list[Row]:
    return list(rows[rows["kind"] == kind].itertuples())


def best(rows: pd.DataFrame) -> Row:
    """The cell of the route to take, at the smallest size of ranked routes."""
    return _of(rows, BEST)[0]


def _on_condition(rows: pd.DataFrame) -> Row | None:
    """The cell, at the largest size of a part, of the route that is faster on a condition at all sizes, or else there.
    If several lead without a significant difference, take the catalogue's first within RECOMMENDED_EXCESS of the fastest."""
    faster = rows[rows["kind"].isin([CONDITION, UNSAFE])]
    everywhere = faster.groupby("route")["nbytes"].nunique() == rows["nbytes"].nunique()
    last = faster[(faster["nbytes"] == rows["nbytes"].max()) & faster["leads"]]
    last = last[last["seconds"] <= (1 + RECOMMENDED_EXCESS) * last["seconds"].min()]
    common = last[last["route"].isin(everywhere.index[everywhere])]
    return next(pd.concat([common, last]).itertuples(), None)


def impossible(moved: Transfers) -> tuple[str, ...]:
    """Warnings of transfers with impossibly short times, of clocks that disagree, and of a lost device."""
    return render_paragraphs("transfers", "impossible", fast=transfers.too_fast(moved), moved=moved)


def way(need: Need, nbytes: int = 0) -> str:
    """Source and destination in words, with the size if ``nbytes`` is given."""
    return show.render_line("transfers", "way", need=need, nbytes=nbytes)


def result_of(need: Need) -> str:
    """New or existing result, as the beginning of a line."""
    return show.render_line("transfers", "result", need=need)


def cost_words(cell: Row, moved: Transfers) -> str:
    """Time, with decimal GB/s and share of the limit where they are meaningful and known."""
    words = [show.time(cell)]
    if moved.bytes_decide(cell):
        share = moved.limit(cell.direction).share(cell)
        words.append(show.bandwidth(cell.nbytes / cell.seconds))
        words += [f"{show.percent(share)} of the limit"] if share else []
    return ", ".join(words)


def family_sentences(moved: Transfers) -> dict[str, tuple[str, ...]]:
    """Family -> sentences beside the tables of its section."""
    calls = transfers.while_busy(moved)
    calls["size"] = calls["nbytes"].map(show.size)
    for names, listed in ((["direction", "host"], "size"), (["direction", "size"], "host")):
        keys = ["waits", "route", *names]
        calls = (
            calls.groupby(keys, sort=False)[listed]
            .agg(lambda each: show.join([*each]))
            .reset_index()
        )
    return {
        "busy": render_paragraphs(
            "transfers",
            "busy",
            calls=calls,
            behind=transfers.read_behind(moved),
            waits=transfers.waits,
        ),
        "many": tuple(_in_lines(moved.select_role(Role.MANY), "tensors")),
        "transfer": tuple(_in_lines(moved.select_role(Role.CAST_ON_THE_WAY), "nbytes")),
    }


def _in_lines(cells: pd.DataFrame, by: str) -> Iterator[str]:
    """The route to take for each benchmark, host memory and value of a parameter, a paragraph each."""
    done = cells[cells["method"] == COMPLETION]
    values = done["parameters"].map(lambda own: own[by])
    about = [each.title or each.direction for each in done["declared"]]
    for (what, value, host), group in done.groupby(
        [pd.Series(about, done.index, str), values, "host"], sort=False
    ):
        picked, much = (
            _picked(rank(group)),
            show.size(value) if by == "nbytes" else f"{value:,} {by}",
        )
        cost = f"{code(picked['best'].route)}, {show.time(picked['best'])}."
        yield " ".join(
            (f"{capitalize_first(what)}, {much}, {host} memory: {cost}", *_notes([picked]))
        )


# --- tables -----------------------------------------------------------------------------------------------------------


def _tabled(block: str, moved: Transfers, numeric: bool = True, **values: Any) -> Table:
    return render_table(
        "transfers", block, numeric, moved=moved, words=sys.modules[__name__], **values
    )


def decision(table: pd.DataFrame, moved: Transfers) -> list[Table]:
    """One table per direction: memory state × size band, with the figures at the band's largest size."""
    bands = [
        _band(need, part, ranked["route"].nunique())
        for need, ranked in transfers.transfer_answers(table, moved)
        for _, part in ranked.groupby("part")
    ]
    ways = itertools.groupby(bands, lambda band: band["need"].direction)
    return [_tabled("decision", moved, False, direction=way, bands=[*each]) for way, each in ways]


def _band(need: Need, rows: pd.DataFrame, routes: int) -> dict[str, Any]:
    """Values of a row of the decision table. here: number of the ``routes`` measured at its largest size."""
    last = rows[rows["nbytes"] == rows["nbytes"].max()]
    about = {
        "need": need,
        "smallest": rows["nbytes"].min(),
        "here": last["route"].nunique(),
        "routes": routes,
    }
    return {**_picked(last), "fast": _on_condition(rows), **about}


def clocks(moved: Transfers) -> Table:
    """Completion, enqueue and sustained times of non-blocking routes side by side, at the size where most were
    measured."""
    every = moved.main[moved.main["non_blocking"]]
    nbytes = usual_size(every[every["method"].isin((ENQUEUE, SUSTAINED))].itertuples())
    calls = every[every["nbytes"] == nbytes].groupby(["route", "direction", "host"], sort=False)
    return _tabled("by_clock", moved, nbytes=nbytes, calls=calls, clocks=CLOCKS)


# --- sections ---------------------------------------------------------------------------------------------------------


def transfer_sections(table: pd.DataFrame, moved: Transfers, missing: Missing) -> list[Section]:
    """The sections of a machine with an accelerator. Sections without measurements stay empty."""

    def words(block: str) -> tuple[str, ...]:
        return render_paragraphs("transfers", block, moved=moved, clocks=CLOCKS)

    drawn, hidden = (
        tuple(_curves(moved, missing)),
        _tabled("hidden", moved, cells=transfers.hidden(moved)),
    )
    return [
        Section(
            "transfers",
            "Transfers: what to take",
            words("transfers"),
            tables=tuple(decision(table, moved)),
        ),
        Section(
            "clocks",
            "Transfers: completion, enqueue, sustained",
            words("clocks"),
            drawn,
            (clocks(moved),),
        ),
        Section("overlap", "Transfers behind compute", words("overlap"), tables=(hidden,)),
        Section(
            "firsts",
            "What the first use costs",
            words("firsts"),
            tables=(_tabled("pinning", moved),),
        ),
        Section("link", "The link", words("link"), tables=(_tabled("limits", moved),)),
    ]


def _curves(moved: Transfers, missing: Missing) -> Iterator[tuple[Figure, Table]]:
    """Per direction: GB/s for all host memory together, then time against size for each memory and clock."""
    dtype = usual_dtype(moved.main)
    for direction in LINK:
        usual = moved.select(COMPLETION, direction)
        usual = [
            c for c in usual[usual["route"].isin(TOGETHER)].itertuples() if moved.bytes_decide(c)
        ]
        names = [f"{cell.host}: {cell.route}" for cell in usual]
        cells = [
            c._replace(route=n, parameters={**c.parameters, "route": n})
            for c, n in zip(usual, names)
        ]
        about, name = f"{direction}: GB/s by completion", slug("bandwidth", direction)
        for figure in figures.bandwidths(
            name, f"{about} ({dtype})", cells, moved.limit(direction).bandwidth
        ):
            yield figure, by_size(about, cells, missing, lambda cell: cost_words(cell, moved))
    for direction, host, clock in itertools.product(LINK, transfers.HOSTS, CLOCKS):
        about = f"{direction}, {host} host memory: {clock} time ({dtype})"
        cells = [*moved.select(clock, direction, host).itertuples()]
        for figure in figures.times_figure(slug("transfer", direction, host, clock), about, cells):
            yield figure, curves(figure.cells, missing)
