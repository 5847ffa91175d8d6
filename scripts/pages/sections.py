"""Sections of a machine's page: one per family, as its benchmarks declare (contracts.Family), and
what users ask.

Users' questions are answered as far as the run has figures or contracts for them. A function per
question selects its cells; templates/prose/questions.md.jinja holds questions and sentences. A
question without an answer is left out.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from analysis.cells import Row, at_usual_size, row_of, usual_dtype, usual_size
from analysis.findings import pair_with_reference
from analysis.ranking import BEST, differ_significantly, rank
from analysis.results import parameters_of, where
from analysis.suite import Declared
from analysis.transfers import Transfers
from pandas import DataFrame, concat
from store.frames import Parameter, rows_of

from benchmarks.contracts import (
    ALIAS,
    COMPLETION,
    COPY,
    DEVICE_TO_HOST,
    ENQUEUE,
    NONE,
    ONE_THREAD,
    PAGEABLE,
    PINNED,
    REGISTERED,
    TORCH_TO_NUMPY,
    Role,
)

from . import show, transfers
from .advice import capitalize_first, recommendations
from .figures import Panel, slug, times_figure
from .page import MachineData, Section
from .show import Lines
from .tables import (
    IN_CACHE_BYTES,
    GridEntry,
    Missing,
    Table,
    by_dtype,
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
DETACH_ORDERS = ("t.detach().cpu().numpy()", "t.cpu().detach().numpy()")
Call = tuple[str, str]  # a route and host memory
TO_DEVICE = "t.to(device)"
TO_DEVICE_EARLY = "t.to(device, non_blocking=True)"
PIN_TO_DEVICE = "t.pin_memory().to(device, non_blocking=True)"
INTO_HOST = "h.copy_(t)"
INTO_HOST_EARLY = "h.copy_(t, non_blocking=True)"
SIGNIFICANT, TIE, NOISY = "significant", "tie", "noisy"  # verdicts on two cells


def family_sections(
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
    for cell in rows_of(where(cells, dtype=[usual_dtype(cells)])):
        axes = (cell.down, "nbytes")
        others = (str(value) for name, value in cell.parameters.items() if name not in axes)
        groups[tuple(others)].append(cell)
    for values, series in groups.items():
        title = ", ".join((_cell_title(series[0]), *values))
        rows = DataFrame(series)
        name = slug("time", series[0].family, title)
        if series[0].role == Role.LISTS:
            title, rows = f"{title}, {show.threads(1)}", rank(rows)
        for figure in times_figure(name, title, rows):
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
        return pair_with_reference(rows_of(cells))
    others = where(all_cells, role=role, threads=ONE_THREAD)
    others = where(others, dtype=[usual_dtype(others)])
    references = {(cell.direction, cell.route, cell.nbytes): cell for cell in rows_of(others)}
    return [
        (cell, references.get((cell.direction, cell.route, cell.nbytes))) for cell in rows_of(cells)
    ]


def _timed_entry(cell: Row, reference: Row | None, with_range: bool) -> GridEntry:
    lines = [show.time(cell)]
    if with_range:
        lines.append(show.interval(cell.low, cell.high))
    if reference is not None and reference is not cell:
        times = sorted((cell.seconds, reference.seconds))
        change = "faster" if times[0] == cell.seconds else "slower"
        words = f"{show.ratio(times[1] / times[0])} {change}"
        called = cell.declared.reference.get("called", "")
        verdict = if_significant(cell, reference, words)
        lines.append(f"{verdict} ({show.time(reference)} {called})")
    return GridEntry(cell.parameters, lines)


def _counted(benchmarks: Sequence[Declared], data: MachineData) -> Iterator[Table]:
    """Tables of counts. An entry has a line for each benchmark of the class."""
    entries: dict[tuple, GridEntry] = {}
    for declared in benchmarks:
        rows = where(data.results.values, benchmark=declared.name)
        for row, parameters in zip(rows_of(rows), parameters_of(rows, data.results)):
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


# --- what users ask -------------------------------------------------------------------------------


def questions_table(data: MachineData) -> Table:
    """The questions that the run answers, each with the sentences of its answer."""
    moved = data.transfers
    answers = concat([data.choices[:0], *data.one_thread_answers])
    existing = ((INTO_HOST, PAGEABLE), (INTO_HOST, PINNED), (INTO_HOST_EARLY, PINNED))
    pinned = ((TO_DEVICE, PINNED), (TO_DEVICE_EARLY, PINNED))
    non_blocking = (_early_copy(moved, TO_DEVICE_EARLY, host) for host in (PINNED, PAGEABLE))
    pinning = moved.select_role(Role.PINNING)
    text = show.render(
        "questions",
        sharing=_sharing_routes(data, answers),
        lists=_list_routes(answers),
        to_host=_compared(moved, ("t.cpu()", PAGEABLE), existing),
        grad=_grad_routes(data),
        orders=_detach_orders(data),
        bfloat16=_bfloat16_routes(data),
        pinned=_compared(moved, (TO_DEVICE, PAGEABLE), pinned),
        at_every_call=_compared(moved, (TO_DEVICE, PAGEABLE), [(PIN_TO_DEVICE, PAGEABLE)]),
        non_blocking=[*filter(None, non_blocking)],
        early_read=_early_copy(moved, INTO_HOST_EARLY, PINNED),
        pinning=rows_of(at_usual_size(pinning)),
        no_registration=moved.skip_reason(role=Role.PINNING, method="timeit_register"),
        registered=_compared(moved, (TO_DEVICE, REGISTERED), [(TO_DEVICE, PINNED)]),
        contexts=rows_of(moved.select_role(Role.CONTEXT)),
        allocations=rows_of(where(pinning, method="allocate").sort_values("nbytes")),
        numpy2=_numpy2(data),
        slow_neighbours=data.neighbour_costs,
        placed=len(where(data.one_thread, role=Role.PLACEMENT)),
    )
    parts = (show.paragraphs(question) for question in text.split("\n# ")[1:])
    rows = tuple((question, answer) for question, *answer in parts if answer)
    return Table("What users ask", ("question", "answer"), rows, numeric=False)


def _verdict(cell: Row, reference: Row) -> str:
    if differ_significantly(cell, reference):
        return SIGNIFICANT
    return TIE if cell.quiet and reference.quiet else NOISY


def _copy(moved: Transfers, cell: Row | None, reference: Row | None = None) -> dict | None:
    """A transfer with its cost in words, the cell that it is compared with, if any, and the verdict
    on the two: SIGNIFICANT, TIE or NOISY."""
    if cell is None:
        return None
    verdict = _verdict(cell, reference) if reference else ""
    cost = transfers.cost_words(cell, moved)
    return {"cell": cell, "cost": cost, "reference": reference, "verdict": verdict}


def _compared(moved: Transfers, call: Call, others: Sequence[Call]) -> tuple:
    """A transfer, and those of ``others`` at its size, compared with it."""
    first = moved.find(COMPLETION, *call)
    cells = [moved.find(COMPLETION, *other, first.nbytes) for other in others] if first else []
    return _copy(moved, first), [_copy(moved, cell, first) for cell in cells if cell]


def _early_copy(moved: Transfers, route: str, host: str) -> dict | None:
    """A non-blocking copy by completion time, the same by a blocking call, and its enqueue time."""
    early = moved.find(COMPLETION, route, host)
    if early is None:
        return None
    plain = route.replace(", non_blocking=True", "")
    return {
        "early": early,
        "blocking": moved.find(COMPLETION, plain, host, early.nbytes),
        "queued": moved.find(ENQUEUE, route, host, early.nbytes),
    }


def _sharing_routes(data: MachineData, answers: DataFrame) -> list:
    """The routes to take that share memory, each with the memory as measured, "" where it was
    not."""
    rows = where(answers, kind=BEST, memory=ALIAS, goal=[""], grad=False, arrays=0)
    largest = rows.drop_duplicates(["need", "part"], keep="last")
    return [(cell, by_dtype(data.semantics.memory(cell.contract))) for cell in rows_of(largest)]


def _list_routes(answers: DataFrame) -> list:
    """Of lists of arrays, the route that converts each element, at its largest size, with the
    routes to take there, and whether these differ from it."""
    lists = answers[answers["arrays"] > 0]
    by_element = lists["contract"].map(attrgetter("per_element")).astype(bool)
    routes = []
    for slow in rows_of(lists[by_element].tail(1)):
        same_size = where(lists[~by_element], nbytes=slow.nbytes, arrays=slow.arrays)
        best = rows_of(where(same_size, kind=BEST))
        routes.append((slow, [(cell, differ_significantly(cell, slow)) for cell in best]))
    return routes


def _grad_routes(data: MachineData) -> dict:
    """What takes a tensor that requires grad: on the host, and from a device into a fresh array."""
    plain = data.results.contracts.get((TORCH_TO_NUMPY, "t.numpy()"), NONE)
    answers = [where(rows, grad=True) for rows in data.one_thread_answers if rows["safe"].iloc[0]]
    arrays = data.transfers.select(COMPLETION, DEVICE_TO_HOST, PAGEABLE)
    fresh = where(arrays, safe=True, array=True, memory=[ALIAS, COPY])
    takes_grad = fresh["contract"].map(attrgetter("takes_grad")).astype(bool)
    best: dict = {}
    for cells in (fresh, fresh[takes_grad]):
        if len(cells):
            cell = transfers.best_cell(rank(at_usual_size(cells)))
            best.setdefault(cell.route, _copy(data.transfers, cell))
    return {
        "refusal": "" if plain.takes_grad else plain.inputs.get("requires grad", ""),
        "on_host": [choice.sentence for rows in answers for choice in recommendations(rows)],
        "from_device": [*best.values()],
    }


def _detach_orders(data: MachineData) -> list:
    """Where the tensor is, the faster order of two calls, the other one, and the verdict. On a tie,
    the catalogue's order."""
    on_device = data.transfers.select(COMPLETION, DEVICE_TO_HOST)
    orders = []
    for source, cells in (("CPU", data.conversions), ("device", on_device)):
        both = rows_of(at_usual_size(where(cells, route=DETACH_ORDERS)))
        if len(both) == 2:
            both.sort(key=lambda cell: DETACH_ORDERS.index(cell.route))
            verdict = _verdict(*both)
            if verdict == SIGNIFICANT:
                both.sort(key=lambda cell: cell.seconds)
            else:
                verdict = if_significant(both[0], both[1], "", "no significant difference")
            orders.append((source, *both, verdict))
    return orders


def _bfloat16_routes(data: MachineData) -> dict:
    """Routes from bfloat16 to NumPy at the usual size, safe ones first, and why the plain route
    refuses it."""
    plain = data.results.contracts.get((TORCH_TO_NUMPY, "t.numpy()"), NONE)
    casts = where(data.one_thread, role=Role.CASTING, direction=TORCH_TO_NUMPY, dtype="bfloat16")
    routes = at_usual_size(casts).sort_values("safe", ascending=False, kind="stable")
    return {"refusal": plain.refuses.get("bfloat16", ""), "routes": rows_of(routes)}


def _numpy2(data: MachineData) -> dict:
    """The last run, how many conversions were timed and how many failed, and the hazard of np.array
    of a tensor."""
    results, roles = data.results, (Role.CONVERSION, Role.GRAD)
    constructor = results.contracts.get((TORCH_TO_NUMPY, "np.array(t)"), NONE)
    cells = where(data.conversions, direction=TORCH_TO_NUMPY, route="np.array(t)")
    return {
        "run": results.last,
        "timed": len(where(data.one_thread, role=roles)),
        "failed": len(results.of_role(where(results.missing, status="failed"), *roles)),
        "hazard": constructor.hazard,
        "cells": rows_of(at_usual_size(cells)),
    }
