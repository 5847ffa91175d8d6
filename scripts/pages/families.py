"""A family's section of a page: question, panels and tables, as its benchmarks declare (contracts.Family)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from analysis.cells import Row, row_of, usual_dtype, usual_size
from analysis.findings import pair_with_reference
from analysis.results import Results, parameters_of
from analysis.suite import Declared

from benchmarks.contracts import ONE_THREAD, Role

from . import show, tables
from .advice import capitalize_first
from .figures import times_figure
from .page import Section
from .svg import Figure, slug
from .tables import GridEntry, Missing, Table, curves, if_significant

# roles shown here; other roles have sections of their own
OWN: tuple[str, ...] = ("", Role.CONVERSION, Role.GRAD, Role.LISTS, Role.CASTING, Role.SETTINGS)
OWN += (Role.PLACEMENT, Role.SCALAR, Role.BUSY, Role.BEHIND, Role.MANY, Role.CAST_ON_THE_WAY)
ACROSS = {"nbytes": "size", "dtype": "the source's dtype", "memory": "host memory"}
Shown = tuple[list[tuple[Figure, Table]], list[Table]]


def sections(
    results: Results,
    cells: pd.DataFrame,
    missing: Missing,
    on_device: bool = False,
    sentences: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Section]:
    """One section per family, in the declared order.

    on_device: families that use an accelerator; False: the other families
    sentences: family -> sentences that answer its question
    """
    families: dict[tuple[int, str], list[Declared]] = {}
    for name in dict.fromkeys([*cells["benchmark"], *results.values["benchmark"]]):
        declared = results.benchmarks[name]
        if declared.role in OWN and declared.needs_device == on_device:
            title = declared.section or capitalize_first(declared.family)
            families.setdefault((declared.place, title), []).append(declared)
    for (_, title), benchmarks in sorted(families.items(), key=lambda item: item[0][0]):
        drawn, made = _shown(benchmarks, results, cells, missing)
        words = " ".join(filter(None, (benchmarks[0].question, benchmarks[0].about)))
        measured = {
            *cells["dtype"][cells["benchmark"].isin([declared.name for declared in benchmarks])]
        }
        shown = [cell.dtype for figure, _ in drawn for cell in figure.cells]
        if shown and measured - {*shown}:
            words += f" Figures are for {shown[0]}; results.csv has the other dtypes."
        intro = (*filter(None, [words]), *(sentences or {}).get(benchmarks[0].family, ()))
        yield Section(slug(title), title, intro, tuple(drawn), tuple(made))


def _shown(
    benchmarks: Sequence[Declared], results: Results, cells: pd.DataFrame, missing: Missing
) -> Shown:
    """The figures and tables of a family, times before counts."""
    drawn: list[tuple[Figure, Table]] = []
    made: list[Table] = []
    for declared in benchmarks:
        timed = cells[cells["benchmark"] == declared.name]
        panels = [*_panels(timed, missing)] if len(timed) and declared.has_panels else []
        drawn += panels
        if len(timed) and not panels:
            made += _timed(declared, timed, cells, missing)
    counted = [declared for declared in benchmarks if declared.type != "time"]
    for group in dict.fromkeys(declared.group for declared in counted):
        made += _counted([each for each in counted if each.group == group], results, missing)
    return drawn, made


def _panels(cells: pd.DataFrame, missing: Missing) -> Iterator[tuple[Figure, Table]]:
    """Time against size for the usual dtype: a panel for each combination of the other parameters. Empty if there is
    only one size."""
    usual = cells[cells["dtype"] == usual_dtype(cells)]
    own = (cells["down"].iloc[0], "nbytes")
    others = [
        tuple(str(each) for name, each in given.items() if name not in own)
        for given in usual["parameters"]
    ]
    for values, series in usual.groupby(pd.Series(others, usual.index, object), sort=False):
        first, *_ = shown = [*series.itertuples()]
        name = ", ".join((_about(first), *values))
        for figure in times_figure(slug("time", first.family, name), name, shown):
            yield figure, curves(figure.cells, missing)


def _about(cell: Row) -> str:
    """Title of a benchmark's figures."""
    return _titled(cell.declared) + ("" if cell.method in ("convert", "") else f", {cell.method}")


def _titled(declared: Declared) -> str:
    """Direction and title, or the name of the class if it declares neither."""
    words = ": ".join(filter(None, (declared.direction, declared.title)))
    return words or declared.name.split(".")[-2:][0]


def _timed(
    declared: Declared, cells: pd.DataFrame, every: pd.DataFrame, missing: Missing
) -> list[Table]:
    """Tables of seconds, each compared with the cell that the family declares in ``reference``."""
    if (
        declared.role == Role.CONVERSION
        and "threads" not in declared.param_names
        and cells["dtype"].nunique() < 2
    ):
        return []  # shown in "Time against size"
    called, role = declared.reference.get("called", ""), declared.reference.get("role")
    pairs: list[tuple[Row, Any]] = pair_with_reference(cells.itertuples())
    if role:
        there = every[(every["role"] == role) & (every["threads"] == ONE_THREAD)]
        there = there[there["dtype"] == usual_dtype(there)]
        others = {(cell.direction, cell.route, cell.nbytes): cell for cell in there.itertuples()}
        pairs = [(cell, others.get((cell.direction, cell.route, cell.nbytes))) for cell, _ in pairs]
    stand_beside = {other.cell for cell, other in pairs if other is not None and other is not cell}

    ranged = "threads" in declared.param_names and cells["processes"].max() > 1

    def mark(cell: Row, other: Row | None) -> GridEntry:
        lines = [show.time(cell), *([show.interval(cell.low, cell.high)] if ranged else [])]
        if other is not None and other is not cell:
            as_long = f"{show.ratio(cell.seconds / other.seconds)} as long"
            lines.append(f"{called} {show.time(other)}: {if_significant(cell, other, as_long)}")
        return GridEntry(cell.parameters, lines)

    shown = [
        mark(cell, other)
        for cell, other in pairs
        if other is not cell or cell.cell not in stand_beside
    ]
    made = _tables(declared, _about(pairs[0][0]), shown, missing)
    notes = show.render_lines("tables", "ranges", processes=[*cells["processes"]]) if ranged else []
    return [replace(table, notes=(*notes, *table.notes)) for table in made]


def _counted(benchmarks: Sequence[Declared], results: Results, missing: Missing) -> Iterator[Table]:
    """Tables of counts. An entry has a line for each benchmark of the class."""
    marks: dict[tuple[Any, ...], GridEntry] = {}
    for declared in benchmarks:
        rows = results.values[results.values["benchmark"] == declared.name]
        for row, parameters in zip(rows.to_dict("records"), parameters_of(rows, results)):
            mark = marks.setdefault(tuple(parameters.values()), GridEntry(parameters, []))
            text, words = _counts(row["unit"], parameters.get(declared.multiple_of))
            mark.lines.append(text(row["value"]) + words)
            mark.lines.extend(tables.count_range(row["low"], row["high"], text))
    return _tables(benchmarks[0], _titled(benchmarks[0]), list(marks.values()), missing)


def _counts(unit: str, of: float | None) -> tuple[Callable[[float], str], str]:
    """How counts are written, as multiples of ``of`` if given, the value of a parameter; and the words behind them."""
    if of:
        return lambda value: show.ratio(value / of) if value else "nothing", ""
    if unit.startswith("bytes"):
        return show.size, unit.removeprefix("bytes")
    return lambda value: show.significant(value, 2) if value < 100 else f"{value:,.0f}", f" {unit}"


def _tables(
    declared: Declared, about: str, marks: Sequence[GridEntry], missing: Missing
) -> Iterator[Table]:
    """A table for each combination of the parameters that are neither rows nor columns. If sizes are not the columns,
    each column shows the usual size, or else another size that its head names."""
    names = declared.param_names
    values = {name: {mark.parameters[name] for mark in marks} for name in names}
    wanted, rows = declared.across, declared.down
    free = [name for name in names if name != (rows or "route")]
    several = [name for name in (wanted, "nbytes", *free) if len(values.get(name, ())) > 1]
    across = next(iter(several), wanted if wanted in free else next(iter(free), ""))
    down = rows or row_of(name for name in names if name != across)
    fixed = [name for name in free if name not in (across, down, "nbytes")]
    sized = "nbytes" in free and across != "nbytes"
    groups: dict[tuple[Any, ...], list[GridEntry]] = {}
    for mark in marks:
        groups.setdefault(tuple(mark.parameters[name] for name in fixed), []).append(mark)
    for combination, group in groups.items():
        nbytes = usual_size(group, across, tables.IN_CACHE_BYTES) if sized else 0
        usual_last = sorted(group, key=lambda mark: mark.nbytes == nbytes)
        sizes = {mark.parameters.get(across): mark.nbytes for mark in usual_last}
        shown = [
            mark for mark in group if not sized or mark.nbytes == sizes[mark.parameters.get(across)]
        ]
        words = [
            about,
            *(show.parameter_text(name, value) for name, value in zip(fixed, combination)),
        ]
        words += [show.size(nbytes)] if sized else []
        words += [f"by {ACROSS.get(across, across)}"] if across else []

        def head(value: Any, sizes: Mapping[Any, int] = sizes, usual: int = nbytes) -> str:
            named = show.size(value) if across == "nbytes" else str(value)
            return (
                named
                if not sized or sizes[value] == usual
                else f"{named} ({show.size(sizes[value])})"
            )

        yield tables.lay_out(", ".join(words), declared, shown, across, missing, head, down)
