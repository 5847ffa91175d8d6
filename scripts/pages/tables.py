"""The page's tables as plain data: columns, rows of sentences, notes. Templates and the terminal
only format them.

Sentences are in templates/prose/tables.md.jinja.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, zip_longest

from analysis.cells import DIRECTIONS, Limit, Row
from analysis.findings import DTYPE, Semantics
from analysis.ranking import BEST, differ_significantly, too_few_processes
from analysis.results import Results, parameters_of, where
from analysis.suite import Declared
from analysis.verdicts import CountRange
from pandas import DataFrame
from store.frames import SKIPPED, Parameter, rows_of
from store.schema import RunRecord

from benchmarks.contracts import ALIAS, Role, Route

from . import advice, show
from .show import Lines, code

NO_VERDICT = "no verdict"  # of two cells, if one has no quiet process
UPPER_BOUND_NOTE = (
    f"{show.UPPER_BOUND_MARK.strip()} Upper bound: the fastest sample, as no process was quiet."
)
ANSWER_BYTES = (8, 2**20, 64 * 2**20)  # sizes of the first table
IN_CACHE_BYTES = 2**20  # bytes: the size in tables of a single size, if it was measured
MAX_REPEATED_LETTERS = 40  # of a line that rows of a table of contracts repeat
MIN_COUNT_RANGE = 0.005  # the range of a count over processes is shown from this difference on

Counts = Mapping[Hashable, CountRange]  # of calls
NO_LIMIT = Limit()
NO_COUNTS: Counts = {}
Entry = str | list[str]  # a list holds several lines


@dataclass(frozen=True)
class Table:
    """title names the figures. Each row has an entry per column, and the first column names the
    row."""

    title: str
    columns: tuple[Entry, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: Lines = ()
    numeric: bool = True  # all columns but the first hold figures

    def __post_init__(self) -> None:
        """Add a note that explains the mark of upper bounds, if a figure has it."""
        lines = (line for row in self.rows for entry in row for line in lines_of(entry))
        texts = (text for line in lines for text, is_code in show.spans(line) if not is_code)
        is_marked = any(show.UPPER_BOUND_MARK in text for text in texts)
        if is_marked and UPPER_BOUND_NOTE not in self.notes:
            object.__setattr__(self, "notes", (*self.notes, UPPER_BOUND_NOTE))

    def __bool__(self) -> bool:
        return bool(self.rows)


def lines_of(entry: Entry) -> list[str]:
    return [entry] if isinstance(entry, str) else entry


def if_significant(cell: Row, other: Row, words: str, tie: str = "tie") -> str:
    """Return ``words`` if the difference of two cells is significant, else say that it is not."""
    quiet = cell.quiet and other.quiet
    if differ_significantly(cell, other):
        return words if quiet else words + show.UPPER_BOUND_MARK
    if too_few_processes(cell, other):
        return "not enough processes to decide"
    return tie if quiet else NO_VERDICT


def render_table(name: str, block: str, numeric: bool = True, **values: object) -> Table:
    """Make a table from a block of a template: title, names of columns, rows and notes, a line
    each. "¦" separates entries. "↵" follows each line of an entry with several lines, and precedes
    a note."""

    def entries(row: str) -> Iterator[Entry]:
        for text in row.split(show.ENTRY_SEPARATOR):
            parts = [part.strip() for part in text.split(show.LINE_MARK)]
            yield [*filter(None, parts)] if len(parts) > 1 else parts[0]

    title, columns, *lines = show.render_lines(name, block, **values)
    notes = [line for line in lines if line.startswith(show.LINE_MARK)]
    return Table(
        title,
        tuple(entries(columns)),
        tuple(tuple(entries(line)) for line in lines if line not in notes),
        tuple(note[1:].strip() for note in notes),
        numeric,
    )


@dataclass(frozen=True)
class GridEntry:
    """The entry of a cell in a table, and the cell's parameters."""

    parameters: Mapping[str, Parameter]
    lines: list[str]

    @property
    def nbytes(self) -> int:
        return int(self.parameters.get("nbytes", 0))


Missing = Mapping[tuple[object, ...], str]  # see missing_in


def missing_reasons(results: Results) -> Missing:
    """Benchmark and parameters of a cell -> reason for an empty entry: "n/a: no such call",
    "failed: ..."."""
    absent = results.missing
    reasons = {}
    for cell, parameters in zip(rows_of(absent), parameters_of(absent, results)):
        status = "n/a" if cell.status == SKIPPED else cell.status
        reason = f"{status}: {cell.reason or 'see asv show'}"
        reasons[(cell.benchmark, *parameters.values())] = reason
    return reasons


def by_size(
    title: str, cells: Sequence[Row], missing: Missing, entry: Callable[[Row], Entry]
) -> Table:
    """Routes of one benchmark as rows, sizes as columns; see lay_out."""
    marks = [GridEntry(cell.parameters, lines_of(entry(cell))) for cell in cells]
    return lay_out(title, cells[0].declared, marks, "nbytes", missing, size_head, cells[0].down)


def in_row_order(cells: Sequence[Row]) -> list[Row]:
    """The cells in the order of the rows of ``by_size``."""
    declared, row = cells[0].declared, cells[0].down
    return sorted(cells, key=lambda cell: declared.nth(row, cell.parameters.get(row)))


def size_head(nbytes: Parameter | None) -> str:
    """Head of a column of one size."""
    return show.size(int(nbytes or 0))


def lay_out(
    title: str,
    declared: Declared,
    marks: Sequence[GridEntry],
    column: str,
    missing: Missing,
    head: Callable[[Parameter | None], str],
    row: str,
) -> Table:
    """One parameter as rows, one as columns, values in declared order. An empty entry has its
    reason in short, and a note on each reason names the rows.

    Raises ValueError if two cells have the same place, because the table would silently drop one of
    them.
    """
    placed = {(mark.parameters.get(row), mark.parameters.get(column)): mark for mark in marks}
    if len(placed) < len(marks):
        raise ValueError(f"{declared.name}: two figures have one place in the table {title}")
    # a column may have its own size
    in_column = {mark.parameters.get(column): mark.parameters for mark in marks}
    columns = sorted(in_column, key=partial(declared.nth, column))
    gaps = defaultdict(list)

    def entry(name: Parameter | None, value: Parameter | None) -> Entry:
        if (name, value) in placed:
            return _entry(placed[name, value].lines)
        parameters = {**in_column[value], row: name}
        reason = missing.get((declared.name, *parameters.values()), "")
        gaps[reason].append(str(name))
        return reason.partition(":")[0]

    names = sorted({name: None for name, _ in placed}, key=partial(declared.nth, row))
    rows = [(_row_head(name, row), *(entry(name, value) for value in columns)) for name in names]
    notes = [f"{reason} ({show.list_routes(gaps[reason])})." for reason in filter(None, gaps)]
    return Table(title, (row, *map(head, columns)), tuple(rows), tuple(notes))


def _row_head(name: Parameter | None, row: str) -> str:
    """The first entry of a row: the value of the parameter ``row``."""
    if name is None:
        return "all"
    return code(str(name)) if name and row in show.CODE_VALUES else str(name)


def _entry(lines: list[str]) -> Entry:
    """Return the list of lines, or the line itself if there is only one."""
    return lines[0] if len(lines) == 1 else lines


def answers(titled: Iterable[tuple[str, DataFrame]]) -> Table:
    """Needs as rows: the routes to take, and their times at ANSWER_BYTES."""
    rows = []
    for title, ranked in titled:
        best = where(ranked, kind=BEST)
        first = where(ranked, need=[ranked["need"].iloc[0]])
        several = best["dtype"].nunique() > 1
        takes = [*advice.recommendations(first)]
        is_constant = advice.has_one_time(best)
        rows.append((title, takes, _at_answer_bytes(best), several, is_constant))
    return render_table("tables", "answers", False, rows=rows, sizes=ANSWER_BYTES)


def _at_answer_bytes(best: DataFrame) -> list[tuple[int, list[Row]]]:
    """Each size with the cells there, or at the measured size that is nearest to it."""
    columns = []
    for size in ANSWER_BYTES:
        nearest = min(best["nbytes"], key=partial(_distance, size))
        is_here = min(ANSWER_BYTES, key=partial(_distance, nearest)) == size
        columns.append((size, rows_of(where(best, nbytes=nearest)) if is_here else []))
    return columns


def _distance(size: int, other: int) -> float:
    return abs(math.log(size / other))


def curves(
    cells: Sequence[Row], missing: Missing, limit: Limit = NO_LIMIT, counts: Counts = NO_COUNTS
) -> Table:
    """The figures of a panel of time against size: median, and range below it. If the routes move
    bytes, memcpy's, too.

    counts: instructions of calls, see verdicts.counts_by_call; a column for each size at which any
    of the cells has a count
    """

    def both(cell: Row) -> list[str]:
        return [show.time(cell), show.interval(cell.low, cell.high)]

    table = by_size("Median, and range over processes", cells, missing, both)
    columns, rows, sizes = [*table.columns], [*table.rows], sorted({cell.nbytes for cell in cells})
    if limit.seconds and cells[0].memory != ALIAS:
        times = {nbytes: show.seconds(limit.seconds[nbytes]) for nbytes in limit.seconds}
        rows.append(("memcpy, 1 thread", *(times.get(nbytes, "") for nbytes in sizes)))
    of_route = {cell.route: cell for cell in in_row_order(cells)}
    for nbytes in sizes:
        counted = [
            counts.get((cell.direction, cell.route, cell.dtype, nbytes))
            for cell in of_route.values()
        ]
        if any(counted):
            columns.append(f"instructions, {show.size(nbytes)}")
            rows = [(*row, count_entry(count)) for row, count in zip_longest(rows, counted)]
    return replace(table, columns=tuple(columns), rows=tuple(rows))


def count_entry(counted: CountRange | None) -> Entry:
    """A count, with its range over processes if they differ by more than MIN_COUNT_RANGE."""
    if not counted:
        return ""
    return _entry([f"{counted.value:,.0f}", *count_range(counted.low, counted.high)])


def count_range(
    low: float, high: float, text: Callable[[float], str] = "{:,.0f}".format
) -> list[str]:
    """The range of a count over processes, if they differ by more than MIN_COUNT_RANGE."""
    return [f"{text(low)} to {text(high)}"] if high > low * (1 + MIN_COUNT_RANGE) else []


def by_dtype(words: Mapping[str, str]) -> str:
    """One word if all dtypes agree, else each word with its dtypes; "" if nothing was measured."""
    dtypes = defaultdict(list)
    for dtype, word in words.items():
        dtypes[word].append(dtype)
    if len(dtypes) < 2:
        return "".join(dtypes)
    return "; ".join(f"{word}: {', '.join(each)}" for word, each in dtypes.items())


def contracts(semantics: Semantics, routes: Sequence[Route]) -> list[Table]:
    """For each direction the contract of each route, with its measured behaviour, and a table of
    the notes that it refers to.

    routes: grouped by direction
    """
    tables: list[Table] = []
    for direction, group in groupby(routes, lambda route: route.direction):
        tables += _fold_repeats(_contract_table(direction, [*group], semantics), direction)
    return tables


def _contract_table(direction: str, routes: Sequence[Route], semantics: Semantics) -> Table:
    rows = []
    for route in routes:
        dtypes = {dtype: str(result) for dtype, result in semantics.values(route, DTYPE).items()}
        rows.append(
            {
                "route": route,
                "promises": [*advice.promises(route)],
                "memory": by_dtype(semantics.memory(route)),
                "keeps_dtype": bool(dtypes) and [*dtypes] == [*dtypes.values()],
                "dtypes": by_dtype(dtypes),
                "takes_grad": semantics.takes_grad(route),
            }
        )
    graded = any(row["takes_grad"] is not None for row in rows)
    return render_table("tables", "contracts", False, direction=direction, rows=rows, graded=graded)


def _fold_repeats(table: Table, direction: str) -> tuple[Table, Table]:
    """Move long lines that several rows share into a table of notes."""
    lines = [line for row in table.rows for entry in row for line in lines_of(entry)]
    shared = [line for line, count in Counter(lines).items() if count > 1]
    texts = [line for line in shared if len(line) > MAX_REPEATED_LETTERS]
    marks = {line: f"note {number}" for number, line in enumerate(texts, 1)}
    rows = [
        tuple(_entry([marks.get(line, line) for line in lines_of(entry)]) for entry in row)
        for row in table.rows
    ]
    notes = render_table("tables", "shared_notes", False, direction=direction, notes=marks)
    return replace(table, rows=tuple(rows)), notes


def catalogue_routes(results: Results) -> list[Route]:
    """All contracts, in the catalogue's order as far as benchmarks define it."""
    families = results.benchmarks.values()
    routes = {}
    for family in sorted(families, key=lambda each: (each.place, -len(each.contracts))):
        for name in sorted(family.contracts, key=partial(family.nth, "route")):
            direction = family.contracts[name].direction
            routes[direction, name] = results.contracts[direction, name]
    directions = [*DIRECTIONS, *(direction for direction, _ in routes)]
    return sorted(routes.values(), key=lambda route: directions.index(route.direction))


def environment(record: RunRecord) -> Table:
    """The machine and toolchain of a run, from its record. Fields that were not recorded are left
    out."""
    made = render_table("tables", "environment", False, record=record)
    return replace(made, rows=tuple(row for row in made.rows if row[1]))


def runs(runs: Sequence[tuple[RunRecord, str]]) -> Table:
    """The runs whose figures are on the page, each with its command."""
    return render_table("tables", "runs", False, runs=runs)


def spread(cells: DataFrame) -> Table:
    """How far processes of a cell differ, by memory; by family where a cell has none."""
    several = cells[cells["processes"] > 1]
    kinds = several["memory"].where(several["memory"] != "", several["family"])
    rows = []
    for kind, group in several.groupby(kinds, sort=False):
        worst = group.loc[group["cv"].idxmax()]
        rows.append((kind, len(group), group["cv"].median(), worst["cv"], worst["cell"]))
    return render_table("tables", "spread", rows=rows)


def harness(cells: DataFrame) -> Table:
    """What the harness itself takes per call."""
    return render_table("tables", "harness", cells=rows_of(where(cells, role=Role.HARNESS)))


def missing_results(missing: DataFrame) -> Table:
    """The cells without a figure, by reason."""
    names = ["status", "benchmark", "reason"]
    groups = missing.groupby(names, sort=False, observed=True, dropna=False)
    rows = [(*reason, len(cells), cells["route"].dropna().tolist()) for reason, cells in groups]
    return render_table("tables", "absent", False, rows=rows)
