"""The page's tables, as plain data: columns, rows of sentences, notes. Templates and the terminal only lay them out.

Sentences are in templates/prose/tables.md.jinja.

The same as CSV: results.csv with the figures of a page, figures.csv with those of all machines and releases. Both are
the frame of cells (analysis/results.py), a row per machine, toolchain and cell. figures.csv is too large to be
committed at each build, so the site carries it. The processes and samples behind a figure are in reports/results.
"""

import contextlib
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
from analysis.cells import DIRECTIONS, MARGIN, Limit, Row, decided, too_few
from analysis.choices import BEST, SLOWER
from analysis.choices import TIE as AS_FAST
from analysis.findings import DTYPE, Semantics
from analysis.results import PARAMETERS, Results, parameters_of
from cli import put
from store import quiet
from store.records import Record, Settings
from toolchains import ledger

from benchmarks.contracts import ALIAS, COPY, Role, Route

from . import advice, show
from .show import code, steady

KEPT = "kept"  # a dtype that is the source's
TAKEN = {True: "yes", False: "no", None: ""}  # a tensor that requires grad; None: not measured
UNDECIDED = "no verdict"  # of two cells, one of which has no quiet process
BUSY_NOTE: str = f"{show.BUSY.strip()} Upper bound: the fastest sample, as none is quiet."
TIE = f"Tie: neither route takes significantly more than {show.percent(MARGIN)} longer than the other."
IN_CACHE = 2**20  # bytes that tables of one size are about, where they were measured
WORTH = 0.005  # by which processes differ in a count: said from here on
NO_COUNTS: Mapping[Hashable, Any] = MappingProxyType({})
SHOWN = 6  # routes named at most where a reason holds for many

Entry = str | list[str]  # a list: lines below each other


@dataclass(frozen=True)
class Table:
    """title says what the figures are; rows hold one entry a column; the first column names the row.

    ids: of the first rows, where a page may be linked to there; made of what a row is about
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    numeric: bool = True  # every column but the first holds figures
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Say what the mark of a figure means where one is marked."""
        entries = (line for row in self.rows for entry in row for line in lines_of(entry))
        marked = (show.BUSY in text for line in entries for text, is_code in show.spans(line) if not is_code)
        if BUSY_NOTE not in self.notes and any(marked):
            object.__setattr__(self, "notes", (*self.notes, BUSY_NOTE))

    def __bool__(self) -> bool:
        return bool(self.rows)


def lines_of(entry: Entry) -> list[str]:
    return [entry] if isinstance(entry, str) else entry


def compared(cell: Row, other: Row, words: str, tie: str = "tie") -> str:
    """``words`` where the difference of two cells is decided, else that it is not."""
    quiet = cell.quiet and other.quiet
    if decided(cell, other):
        return words if quiet else words + show.BUSY
    if too_few(cell, other):
        return "not enough processes to decide"
    return tie if quiet else UNDECIDED


def said(block: str, **values: Any) -> list[str]:
    """The lines of a block of templates/prose/tables.md.jinja."""
    return [line.strip() for line in show.written("tables", block, **values).splitlines() if line.strip()]


@dataclass(frozen=True)
class Mark:
    """What a table says of a cell, and its parameters. order: of its route in the catalogue."""

    parameters: Mapping[str, Any]
    lines: list[str]
    order: int = 0

    @property
    def nbytes(self) -> int:
        return int(self.parameters.get("nbytes", 0))


class Missing(dict[tuple[Any, ...], tuple[str, str]]):
    """Benchmark and parameters of a cell -> why a place in a table is empty: status and reason."""

    def __init__(self, results: Results) -> None:
        absent = results.missing
        reasons = absent["reason"].where(absent["reason"].astype(bool), "see asv show")
        names = zip(absent["benchmark"], parameters_of(absent, results))
        super().__init__(
            zip(((name, *parameters.values()) for name, parameters in names), zip(absent["status"], reasons))
        )


def pivot(
    title: str,
    cells: Sequence[Row],
    column: str,
    missing: Missing,
    entry: Callable[[Row], Entry] = show.time,
    head: Callable[[Any], str] = str,
) -> Table:
    """Routes of one benchmark down, one parameter across; see laid."""
    marks = [Mark(cell.parameters, lines_of(entry(cell)), cell.order) for cell in cells]
    benchmark, row = (cells[0].benchmark, cells[0].down) if cells else ("", "route")
    return laid(title, benchmark, marks, column, missing, head, row)


def laid(
    title: str,
    benchmark: str,
    marks: Sequence[Mark],
    column: str,
    missing: Missing,
    head: Callable[[Any], str],
    row: str,
) -> Table:
    """One parameter down, one across. A place without a figure says why in a note.

    ValueError where two cells would have one place: a table that shows one of them would lose the other in silence.
    """
    placed = {(mark.parameters.get(row), mark.parameters.get(column)): mark for mark in marks}
    if len(placed) < len(marks):
        raise ValueError(f"{benchmark}: two figures have one place in the table {title}")
    across = list(dict.fromkeys(value for _, value in placed))
    if column == "nbytes":
        across.sort()
    reasons: dict[str, list[str]] = {}
    body = []
    for name, first in {m.parameters.get(row): m for m in sorted(marks, key=lambda m: m.order)}.items():
        line: list[Entry] = [code(name) if name and row in show.CODE_VALUES else str(name or "all")]
        for value in across:
            there, like = placed.get((name, value)), {**first.parameters, column: value}
            status, reason = ("", "") if there else missing.get((benchmark, *like.values()), ("", ""))
            word = {"": "", "skipped": "n/a"}.get(status, "failed")
            if word:
                reasons.setdefault(f"{word}: {reason}", []).append(str(name))
            line.append(_entry(there.lines) if there else word)
        body.append(tuple(line))
    notes = tuple(f"{why} ({named(routes)})." for why, routes in reasons.items())
    return Table(title, (row, *map(head, across)), tuple(body), notes)


def _entry(lines: list[str]) -> Entry:
    """Lines below each other; a single one by itself."""
    return lines[0] if len(lines) == 1 else lines


def named(routes: Iterable[str]) -> str:
    """Routes in words, each once; the first of them where they are many."""
    each = list(dict.fromkeys(routes))
    if len(each) <= SHOWN:
        return show.codes(each)
    return "".join(f"{code(route)}, " for route in each[: SHOWN - 1]) + f"and {len(each) - SHOWN + 1} more"


def decision(asked: Sequence[pd.DataFrame], limit: Limit) -> Table:
    """Need down, size across: route, seconds, and for copies the bandwidth and its share of memcpy's. asked: what
    analysis.choices.asked gives of plain conversions."""
    sizes = sorted({int(nbytes) for rows in asked for nbytes in rows["nbytes"]})
    table = []
    for rows in asked:
        here = {nbytes: _decision(at, limit) for nbytes, at in rows.groupby("nbytes")}
        table.append((advice.title(rows), *(here.get(nbytes, "") for nbytes in sizes)))
    return Table("What to take at each size", ("need", *map(show.size, sizes)), tuple(table), numeric=False)


def _decision(rows: pd.DataFrame, limit: Limit) -> list[str]:
    (best,), ties, slower = ([*rows[rows["kind"] == kind].itertuples()] for kind in (BEST, AS_FAST, SLOWER))
    share = limit.share(best) if best.memory != ALIAS and limit.decides(best.nbytes) else None
    return said("decision", best=best, share=share, ties=[tie.route for tie in ties], slower=slower[:1])


def curves(
    cells: Sequence[Row],
    missing: Missing,
    limit: Limit | None = None,
    counts: Mapping[Hashable, Any] = NO_COUNTS,
) -> Table:
    """The figures behind a panel of time against size: median, range below it; memcpy in the last row.

    counts: instructions of calls, see verdicts.of_calls; a column for each size at which some of the cells have them
    """

    def both(cell: Row) -> list[str]:
        return [show.time(cell), show.interval(cell.low, cell.high)]

    table = pivot("Median, and range over processes", cells, "nbytes", missing, both, show.size)
    sizes = sorted({cell.nbytes for cell in cells})
    columns, rows = table.columns, table.rows
    down = {cell.route: cell for cell in sorted(cells, key=lambda cell: cell.order)}.values()  # as the table's rows
    for n in sizes:
        counted = [counts.get((cell.direction, cell.route, cell.dtype, n)) for cell in down]
        if any(counted):
            columns = (*columns, f"instructions, {show.size(n)}")
            rows = tuple((*row, count(instructions)) for row, instructions in zip(rows, counted, strict=True))
    if limit and limit.seconds:
        row = ("memcpy", *(show.seconds(limit.seconds[n]) if n in limit.seconds else "" for n in sizes))
        rows = (*rows, row + ("",) * (len(columns) - len(row)))
    return Table(table.title, columns, rows, table.notes)


def shares(cells: Sequence[Row], missing: Missing, limit: Limit) -> Table:
    """The figures behind a panel of efficiency: memcpy's time as a share of the route's."""

    def share(cell: Row) -> Entry:
        return f"{show.percent(limit.share(cell) or 0)}{'' if cell.quiet else show.BUSY}"

    return pivot("memcpy's time divided by the route's", cells, "nbytes", missing, share, show.size)


def count(counted: Any) -> Entry:
    """A count, and its range where processes differ by more than is worth mentioning."""
    return _entry([f"{counted.value:,.0f}", *count_range(counted.low, counted.high)]) if counted else ""


def count_range(low: float, high: float) -> list[str]:
    """The range of a count over processes, where they differ by more than is worth mentioning."""
    return [f"{low:,.0f} to {high:,.0f}"] if high > low * (1 + WORTH) else []


def measured_memory(semantics: Semantics, contract: Route) -> str:
    """alias, copy or into, by dtype where they differ; "" where it was not measured."""
    return _by_dtype(semantics.memory(contract))


def _measured_dtype(semantics: Semantics, contract: Route) -> str:
    """Kept, one for all, or by source dtype."""
    seen = semantics.of(contract, DTYPE)
    if seen and all(source == result for source, result in seen.items()):
        return KEPT
    return _by_dtype(seen)


def broken(semantics: Semantics, contracts: Iterable[Route]) -> list[str]:
    """A sentence for each promise of a contract that the measurement contradicts."""
    return said("broken", promises=semantics.broken(contracts))


def _by_dtype(words: Mapping[str, str]) -> str:
    """One word where all dtypes agree, else the word of most with the exceptions named."""
    kinds = list(dict.fromkeys(words.values()))
    if len(kinds) < 2:
        return "".join(kinds)
    return "; ".join(f"{kind}: {', '.join(dtype for dtype in words if words[dtype] == kind)}" for kind in kinds)


def contracts(results: Results, semantics: Semantics, shown: Sequence[tuple[str, str]]) -> list[Table]:
    """One table a direction: what each route promises, and what it was measured to do."""
    tables = []
    for direction in dict.fromkeys(direction for direction, _ in shown):
        promises = [results.contracts[key] for key in shown if key[0] == direction]
        graded = any(semantics.taken(promise) is not None for promise in promises)
        rows: list[tuple[Entry, ...]] = []
        for promise in promises:
            casts_to = {"": KEPT, "python": "by way of Python's"}.get(promise.casts_to, promise.casts_to)
            refuses = "; ".join(f"{dtype}: {how}" for dtype, how in promise.refuses.items())
            route: list[str] = [code(promise.expression), *filter(None, (refuses, *advice.promises(promise)))]
            does: list[str] = [f"{does}: {', '.join(sources)}" for does, sources in promise.outcomes.items()]
            memory, dtype = measured_memory(semantics, promise), _measured_dtype(semantics, promise)
            row = (route, _memory(promise), memory, casts_to, dtype, does)
            rows.append((*row, *([TAKEN[semantics.taken(promise)]] if graded else [])))
        columns = ("route", "memory", "measured", "result dtype", "measured", "unusual inputs")
        more = ("takes grad, measured",) if graded else ()
        title = f"{direction}: contracts, declared and measured"
        tables.append(Table(title, (*columns, *more), tuple(rows), numeric=False))
    return tables


def _memory(contract: Route) -> str:
    """alias, copy or into; of a route that shares memory of some sources only, of which."""
    if contract.copies:
        return f"{contract.memory}; {COPY} of {', '.join(contract.copies)}"
    if contract.casts_to and contract.memory_for(contract.casts_to) == ALIAS != contract.memory_for(""):
        return f"{ALIAS} of {contract.casts_to}, else {COPY}"
    return contract.memory


def catalogue(results: Results) -> list[tuple[str, str]]:
    """(direction, route) of every contract, in the catalogue's order as far as benchmarks tell it."""
    families = sorted(results.benchmarks.values(), key=lambda each: (each.place, -len(each.contracts)))
    keys: dict[tuple[str, str], None] = {}
    for family in families:
        promises = sorted(family.contracts.values(), key=lambda promise: family.nth("route", promise.expression))
        keys |= dict.fromkeys((promise.direction, promise.expression) for promise in promises)
    directions = [*DIRECTIONS, *dict.fromkeys(direction for direction, _ in keys)]
    return sorted(keys, key=lambda key: directions.index(key[0]))


def spread(cells: pd.DataFrame) -> Table:
    """How far processes differ: coefficient of variation between the processes of a cell, by kind of memory."""
    several = cells[cells["processes"] > 1]
    kinds = several["memory"].where(several["memory"] != "", several["family"])
    rows: list[tuple[Entry, ...]] = []
    for kind, of_kind in several.groupby(kinds, sort=False):
        worst, median = of_kind.loc[of_kind["cv"].idxmax()], show.percent(of_kind["cv"].median(), 1)
        rows.append((str(kind), f"{len(of_kind)}", median, [show.percent(worst["cv"], 1), code(worst["cell"])]))
    columns = ("memory", "results", "median", "maximum")
    return Table("Coefficient of variation between the processes of a result", columns, tuple(rows))


def floor(cells: pd.DataFrame) -> Table:
    """What the harness itself takes."""
    harness = cells[cells["role"] == Role.HARNESS].itertuples()
    rows = tuple((cell.parameters["statement"], show.time(cell)) for cell in harness)
    return Table("The harness itself", ("statement", "time per call"), rows)


def absent(results: Results) -> Table:
    """Every cell without a figure: grouped by benchmark and reason, with the number of cells and the routes."""
    groups = results.missing.groupby(["status", "benchmark", "reason"], sort=False, observed=True, dropna=False)
    rows = tuple(
        (code(benchmark), f"{status}: {reason or 'see asv show'}", f"{len(each)}", named(each["route"].dropna()))
        for (status, benchmark, reason), each in groups
    )
    return Table("Results without a figure", ("benchmark", "reason", "results", "routes"), rows, numeric=False)


def environment(record: Record) -> Table:
    """The machine and toolchain of a run, as its record has them; what was not recorded is left out."""
    settings = record.settings
    values = {"record": record, "at": settings, "on": record.conditions, "device": device_of(settings)}
    lines = [line.partition("|") for line in said("environment", **values)]
    shown = tuple((name.strip(), value.strip()) for name, _, value in lines if value)
    return Table("Machine and toolchain at the start of the run", ("property", "value"), shown, numeric=False)


def device_of(settings: Settings) -> str:
    """The accelerator of a run in words; "" where there was none."""
    device, name = settings.device, settings.device_name
    return f"{name} ({device})" if device and name else device


def runs(records: Sequence[tuple[Record, str]]) -> Table:
    """One row per run, with its command: when, how, how quiet it was, and how many samples were taken again."""
    rows = []
    for record, command in records:
        profile = f"{record.profile}, only {record.only}" if record.only else record.profile
        quiet = "" if record.quiet is None else show.percent(record.quiet)
        measured = (f"{record.rounds}", f"{record.samples:,}", quiet, f"{record.retaken:,}", f"{record.seconds:.0f} s")
        rows.append((record.started, code(command), profile, *measured))
    columns = ("started", "command", "profile", "processes per result", "samples", "quiet", "taken again", "took")
    return Table("Runs whose figures are on this page", columns, tuple(rows), numeric=False)


# --- CSV --------------------------------------------------------------------------------------------------------------


FIGURES_CSV, FIGURES_COLUMNS_CSV = "figures.csv", "figures-columns.csv"
DIGITS = 7  # significant: the clock has fewer
# What a process's seconds are, in words
FIGURE = f"the {quiet.QUANTILE:.0%} quantile of its quiet samples".replace("%", " %")
OF_RELEASE = {"history": "history", "release": "version", "released": "date"}  # column -> what it is of a toolchain


def columns(block: str, **values: Any) -> dict[tuple[str, ...], str]:
    """What the columns of a CSV file mean, in its order: a paragraph of templates/prose/columns.md.jinja each."""
    said = (paragraph.partition(": ") for paragraph in show.prose("columns", block, **values))
    return {tuple(names.split(", ")): words for names, _, words in said}


def columns_of(results: Results) -> dict[tuple[str, ...], str]:
    """The same of the CSV of these results."""
    others = [name for name in results.parameters if name not in (*PARAMETERS, "direction")]
    return columns("cells", parameters=PARAMETERS, figure=FIGURE, others=others)


def csv_of(results: Results) -> str:
    """Every cell: what was timed, counted, or has no figure."""
    known = {commit: ledger.find(commit) for commit in results.cells["commit"].unique()}
    of_row = [known[commit] for commit in results.cells["commit"]]
    releases = {name: [getattr(one, field, "") for one in of_row] for name, field in OF_RELEASE.items()}
    return text_of(results.cells.assign(**releases)[[*chain(*columns_of(results))]], DIGITS)


def _number(digits: int, value: float) -> str:
    """Whole numbers as such: a column with holes holds floats."""
    value = steady(value)
    return f"{value:.0f}" if value % 1 == 0 else f"{value:.{digits}g}"


def text_of(table: pd.DataFrame, digits: int | None = None) -> str:
    """A table as CSV. What a spreadsheet would take for a formula, and is no number, has a quote before it. Several
    values of one entry stand with a space between them.

    digits  significant ones of numbers; None: all
    """
    texts = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    columns = {name: pd.Series(map(_quoted, table[name]), table.index, dtype=object) for name in texts}
    number = partial(_number, digits) if digits else None
    return str(table.assign(**columns).to_csv(index=False, lineterminator="\n", float_format=number))


def _quoted(entry: Any) -> Any:
    if isinstance(entry, tuple):
        return " ".join(map(str, entry))
    if isinstance(entry, str) and entry.startswith(("=", "@", "+", "-")):
        with contextlib.suppress(ValueError):
            return entry if math.isfinite(float(entry)) else f"'{entry}"
        return f"'{entry}"
    return entry


def write_figures(results: Results, directory: Path) -> None:
    """Write figures.csv, and the meaning of its columns, into a directory."""
    put(directory / FIGURES_CSV, csv_of(results))
    rows = [{"column": name, "meaning": words} for names, words in columns_of(results).items() for name in names]
    put(directory / FIGURES_COLUMNS_CSV, text_of(pd.DataFrame(rows)))
