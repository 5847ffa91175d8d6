"""A family's section of a page: question, panels and tables, as its benchmarks declare
(contracts.Family)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from analysis.cells import Row, row_of, usual_dtype, usual_size
from analysis.findings import pair_with_reference
from analysis.results import parameters_of, where
from analysis.suite import Declared
from pandas import DataFrame
from store.frames import Parameter

from benchmarks.contracts import ONE_THREAD, Role

from . import show
from .advice import capitalize_first
from .figures import Panel, slug, times_figure
from .page import MachineData, Section
from .show import Lines
from .tables import (
    IN_CACHE_BYTES,
    GridEntry,
    Missing,
    Table,
    count_range,
    curves,
    if_significant,
    lay_out,
    size_head,
)

# Other roles have sections of their own
ROLES: Lines = ("", Role.CONVERSION, Role.GRAD, Role.LISTS, Role.CASTING, Role.SETTINGS)
ROLES += (Role.PLACEMENT, Role.SCALAR, Role.BUSY, Role.BEHIND, Role.MANY, Role.CAST_ON_THE_WAY)
COLUMN_WORDS = {"nbytes": "size", "dtype": "the source's dtype", "memory": "host memory"}


def sections(
    data: MachineData, on_device: bool = False, sentences: Mapping[str, Lines] | None = None
) -> Iterator[Section]:
    """One section per family, in the declared order.

    on_device: families that use an accelerator; False: the other families
    sentences: family -> sentences that answer its question
    """
    families = defaultdict(list)
    for name in dict.fromkeys([*data.cells["benchmark"], *data.results.values["benchmark"]]):
        declared = data.results.benchmarks[name]
        if declared.role in ROLES and declared.needs_device == on_device:
            title = declared.section or capitalize_first(declared.family)
            families[declared.place, title].append(declared)
    for (_, title), benchmarks in sorted(families.items(), key=lambda family: family[0][0]):
        panels, tables = _panels_and_tables(benchmarks, data)
        answers = (sentences or {}).get(benchmarks[0].family, ())
        introduction = (*_introduction(benchmarks, panels, data), *answers)
        yield Section(slug(title), title, introduction, tuple(panels), tuple(tables))


def _introduction(
    benchmarks: Sequence[Declared], panels: Sequence[Panel], data: MachineData
) -> Lines:
    """The family's question; which dtype its figures are for, if several were measured."""
    names = [declared.name for declared in benchmarks]
    measured = {*where(data.cells, benchmark=names)["dtype"]}
    panel_dtypes = {cell.dtype: None for figure, _ in panels for cell in figure.cells}
    is_partial = panel_dtypes and measured.difference(panel_dtypes)
    return show.render_paragraphs(
        "tables",
        "family",
        question=benchmarks[0].question,
        about=benchmarks[0].about,
        dtype=next(iter(panel_dtypes)) if is_partial else "",
    )


def _panels_and_tables(benchmarks: Sequence[Declared], data: MachineData) -> tuple:
    """The figures and tables of a family, times before counts."""
    panels = []
    tables = []
    counted = defaultdict(list)
    for declared in benchmarks:
        if declared.type != "time":
            counted[declared.group].append(declared)
        timed = where(data.cells, benchmark=declared.name)
        if timed.empty:
            continue
        curves_of_size = [*_panels(timed, data.missing)] if declared.has_panels else []
        panels += curves_of_size
        if not curves_of_size:
            tables += _timed(declared, timed, data)
    for members in counted.values():
        tables += _counted(members, data)
    return panels, tables


def _panels(cells: DataFrame, missing: Missing) -> Iterator[Panel]:
    """Time against size for the usual dtype: a panel for each combination of the other parameters.
    Empty if there is only one size."""
    groups = defaultdict(list)
    for cell in where(cells, dtype=[usual_dtype(cells)]).itertuples():
        axes = (cell.down, "nbytes")
        others = (str(value) for name, value in cell.parameters.items() if name not in axes)
        groups[tuple(others)].append(cell)
    for values, series in groups.items():
        title = ", ".join((_cell_title(series[0]), *values))
        for figure in times_figure(slug("time", series[0].family, title), title, series):
            yield figure, curves(figure.cells, missing)


def _cell_title(cell: Row) -> str:
    """Title of a benchmark's figures."""
    return _title(cell.declared) + ("" if cell.method in ("convert", "") else f", {cell.method}")


def _title(declared: Declared) -> str:
    """Direction and title, or the name of the class if it declares neither."""
    title = ": ".join(filter(None, (declared.direction, declared.title)))
    return title or declared.name.split(".")[-2:][0]


def _timed(declared: Declared, cells: DataFrame, data: MachineData) -> list[Table]:
    """Tables of seconds, each compared with the cell that the family declares in ``reference``."""
    has_threads = "threads" in declared.param_names
    is_plain = declared.role == Role.CONVERSION and not has_threads
    if is_plain and cells["dtype"].nunique() < 2:  # shown in "Time against size"
        return []
    pairs = _pairs(declared, cells, data.cells)
    references = {other.cell for cell, other in pairs if other is not None and other is not cell}
    with_range = has_threads and cells["processes"].max() > 1
    entries = [
        _timed_entry(cell, other, with_range)
        for cell, other in pairs
        if other is not cell or cell.cell not in references
    ]
    tables = [*_tables(declared, _cell_title(pairs[0][0]), entries, data.missing)]
    if not with_range:
        return tables
    notes = show.render_lines("tables", "ranges", processes=show.ends(cells["processes"]))
    return [replace(table, notes=(*notes, *table.notes)) for table in tables]


def _pairs(declared: Declared, cells: DataFrame, all_cells: DataFrame) -> list:
    """Each cell with its reference: a cell of its benchmark, or of the role that the family names,
    at the same route, direction and size."""
    role = declared.reference.get("role")
    if not role:
        return pair_with_reference(cells.itertuples())
    others = where(all_cells, role=role, threads=ONE_THREAD)
    others = where(others, dtype=[usual_dtype(others)])
    references = {(cell.direction, cell.route, cell.nbytes): cell for cell in others.itertuples()}
    return [
        (cell, references.get((cell.direction, cell.route, cell.nbytes)))
        for cell in cells.itertuples()
    ]


def _timed_entry(cell: Row, reference: Row | None, with_range: bool) -> GridEntry:
    lines = [show.time(cell)]
    if with_range:
        lines.append(show.interval(cell.low, cell.high))
    if reference is not None and reference is not cell:
        name = cell.declared.reference.get("called", "")
        as_long = f"{show.ratio(cell.seconds / reference.seconds)} as long"
        verdict = if_significant(cell, reference, as_long)
        lines.append(f"{name} {show.time(reference)}: {verdict}")
    return GridEntry(cell.parameters, lines)


def _counted(benchmarks: Sequence[Declared], data: MachineData) -> Iterator[Table]:
    """Tables of counts. An entry has a line for each benchmark of the class."""
    entries: dict[tuple, GridEntry] = {}
    for declared in benchmarks:
        rows = where(data.results.values, benchmark=declared.name)
        for row, parameters in zip(rows.itertuples(), parameters_of(rows, data.results)):
            place = tuple(parameters.values())
            entry = entries[place] = entries.get(place, GridEntry(parameters, []))
            count, unit = _count_format(row.unit, parameters.get(declared.multiple_of))
            lines = [count(row.value) + unit, *count_range(row.low, row.high, count)]
            entry.lines.extend(lines)
    first = benchmarks[0]
    return _tables(first, _title(first), [*entries.values()], data.missing)


def _count_format(unit: str, divisor: object) -> tuple:
    """How counts are written, as multiples of ``divisor`` if given, the value of a parameter; and
    the unit behind them."""
    if isinstance(divisor, int | float) and divisor:
        return lambda value: show.ratio(value / divisor) if value else "nothing", ""
    if unit.startswith("bytes"):
        return show.size, unit.removeprefix("bytes")
    return lambda value: show.significant(value, 2) if value < 100 else f"{value:,.0f}", f" {unit}"


def _tables(
    declared: Declared, title: str, entries: Sequence[GridEntry], missing: Missing
) -> Iterator[Table]:
    """A table for each combination of the parameters that are neither rows nor columns."""
    column, row = _axes(declared, entries)
    fixed = [name for name in declared.param_names if name not in (row, column, "nbytes")]
    groups = defaultdict(list)
    for entry in entries:
        groups[tuple(entry.parameters[name] for name in fixed)].append(entry)
    for values, group in groups.items():
        words = [title, *map(show.parameter_text, fixed, values)]
        yield _table(declared, words, group, missing, (column, row))


def _axes(declared: Declared, entries: Sequence[GridEntry]) -> tuple:
    """The parameters that are columns and rows. Columns are the one that the family wants, else the
    sizes, else another one, if it has several values."""
    names = declared.param_names
    free = [name for name in names if name != (declared.down or "route")]
    varying = [
        name
        for name in (declared.across, "nbytes", *free)
        if len({entry.parameters.get(name) for entry in entries}) > 1
    ]
    fallback = [declared.across] if declared.across in free else free
    column = next(iter([*varying, *fallback]), "")
    return column, declared.down or row_of(name for name in names if name != column)


def _table(
    declared: Declared,
    words: list[str],
    entries: Sequence[GridEntry],
    missing: Missing,
    axes: tuple[str, str],
) -> Table:
    """If sizes are not the columns, each column shows the usual size, or else another size that its
    head names."""
    column, row = axes
    sizes = {}
    usual = 0
    if "nbytes" in declared.param_names and "nbytes" not in axes:
        usual = usual_size(entries, column, IN_CACHE_BYTES)  # type: ignore[arg-type]
        words = [*words, show.size(usual)]
        for entry in sorted(entries, key=lambda entry: entry.nbytes == usual):  # the usual one last
            sizes[entry.parameters.get(column)] = entry.nbytes
        entries = [
            entry for entry in entries if entry.nbytes == sizes[entry.parameters.get(column)]
        ]
    if column:
        words = [*words, f"by {COLUMN_WORDS.get(column, column)}"]

    def head(value: Parameter | None) -> str:
        name = size_head(value) if column == "nbytes" else str(value)
        size = sizes.get(value, usual)
        return name if size == usual else f"{name} ({show.size(size)})"

    return lay_out(", ".join(words), declared, entries, column, missing, head, row)
