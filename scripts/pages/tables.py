"""The page's tables, as plain data: columns, rows of sentences, notes. Templates and the terminal only lay them out."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from analysis.answers import Answer, Choice
from analysis.cells import DIRECTIONS, Cell, Limit, alike, conversions, direction_of
from analysis.choice import MARGIN, decided
from analysis.contracts import ALIAS, COPY, memory_for, outcomes
from analysis.results import PARAMETERS, Results
from analysis.semantics import DTYPE, MEMORY, Broken, Semantics

from . import advice, show
from .show import code

KEPT = "kept"  # a dtype that is the source's
TAKEN = {True: "yes", False: "no", None: ""}  # a tensor that requires grad; None: not measured
FLOOR = "limits.Floor.timeit_floor"
UNDECIDED = "not decided"  # of two cells, one of which was never measured in calm
BUSY_NOTE: str = f"{show.BUSY.strip()} at most: the machine was never calm, and this is the fastest sample of all."
TIE = (
    f"Tie: it was not decided that either route takes more than {show.percent(MARGIN)} longer than the other (see "
    "Machine and method)."
)
SHOWN = 6  # routes named at most where a reason holds for many

Entry = str | list[str]  # a list: lines below each other


@dataclass(frozen=True)
class Table:
    """title says what the figures are; rows hold one entry a column; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    numeric: bool = True  # every column but the first holds figures

    def __post_init__(self) -> None:
        """Say what the mark of a figure means where one is marked."""
        entries = (
            line for row in self.rows for entry in row for line in ([entry] if isinstance(entry, str) else entry)
        )
        marked = (show.BUSY in text for line in entries for text, is_code in show.spans(line) if not is_code)
        if BUSY_NOTE not in self.notes and any(marked):
            object.__setattr__(self, "notes", (*self.notes, BUSY_NOTE))

    def __bool__(self) -> bool:
        return bool(self.rows)


def compared(cell: Cell, other: Cell, words: str, tie: str = "tie") -> str:
    """``words`` where the difference of two cells is decided, else that it is not."""
    if decided(cell, other):
        return words
    return tie if cell.calm and other.calm else UNDECIDED


class Missing:
    """What was not measured, by cell, so that a table can say why a place is empty."""

    def __init__(self, missing: pd.DataFrame) -> None:
        names = ["benchmark", *PARAMETERS]
        self.rows = missing.to_dict("records")
        self._found = {tuple(_plain(row[name]) for name in names): row for row in self.rows}

    def entry(self, like: Cell, **parameters: Any) -> dict[str, Any] | None:
        """The row of the cell that differs from ``like`` in these parameters; None where it is not part of a run."""
        wanted = {name: getattr(like, "host" if name == "memory" else name) for name in PARAMETERS} | parameters
        return self._found.get((like.benchmark, *(_plain(wanted[name]) for name in PARAMETERS)))


def _plain(value: Any) -> str:
    """A parameter as text, the same from a table and from a cell; "" where there is none."""
    if value is None or value == "" or value == 0 or (isinstance(value, float) and value != value):
        return ""
    return str(int(value)) if isinstance(value, float) else str(value)


def pivot(
    title: str,
    cells: Sequence[Cell],
    column: str,
    missing: Missing,
    entry: Callable[[Cell], Entry] = show.time,
    head: Callable[[Any], str] = str,
) -> Table:
    """Routes down, one parameter across. A place without a figure says n/a or failed, and a note says why."""
    cells = list(cells)
    found = {(cell.route, getattr(cell, column)): cell for cell in cells}
    across = list(dict.fromkeys(getattr(cell, column) for cell in cells))
    if column == "nbytes":
        across.sort()
    routes = _in_order(cells)
    reasons: dict[str, list[str]] = {}
    rows = []
    for route in routes:
        like = next(cell for cell in cells if cell.route == route)
        row: list[Entry] = [code(route)]
        for value in across:
            cell = found.get((route, value))
            absent = None if cell else missing.entry(like, **{"memory" if column == "host" else column: value})
            if absent:
                word = "n/a" if absent["status"] == "skipped" else "failed"
                reasons.setdefault(f"{word}: {absent['reason'] or 'see asv show'}", []).append(route)
                row.append(word)
            else:
                row.append(entry(cell) if cell else "")
        rows.append(tuple(row))
    notes = tuple(f"{why} ({named(routes)})." for why, routes in reasons.items())
    return Table(title, ("route", *map(head, across)), tuple(rows), notes)


def named(routes: Iterable[str]) -> str:
    """Routes in words, each once; the first of them where they are many."""
    each = list(dict.fromkeys(routes))
    if len(each) <= SHOWN:
        return show.codes(each)
    return "".join(f"{code(route)}, " for route in each[: SHOWN - 1]) + f"and {len(each) - SHOWN + 1} more"


def _in_order(cells: Iterable[Cell]) -> list[str]:
    """Routes in the catalogue's order."""
    return list(dict.fromkeys(cell.route for cell in sorted(cells, key=lambda cell: cell.order)))


def decision(answers: Sequence[Answer], limit: Limit) -> Table:
    """Need down, size across: route, seconds, and for copies the bandwidth and its share of memcpy's."""
    sizes = sorted({nbytes for answer in answers for nbytes in answer.choices})
    rows = []
    for answer in answers:
        choices = answer.choices
        rows.append((advice.title(answer.need), *(_decision(choices[n], limit) if n in choices else "" for n in sizes)))
    return Table("What to take at each size", ("need", *map(show.size, sizes)), tuple(rows), numeric=False)


def _decision(choice: Choice, limit: Limit) -> list[str]:
    cell = choice.cell
    lines: list[str] = [code(cell.route), show.time(cell)]
    if cell.memory != ALIAS and limit.decides(cell.nbytes):
        moved = show.bandwidth(cell.nbytes / cell.seconds)
        lines.append(f"{moved}, {show.percent(limit.efficiency(cell))} of memcpy")
    if choice.ties:
        lines.append(f"tie: {show.codes([tie.route for tie in choice.ties])}")
    if choice.others:
        next_best = choice.others[0]
        lines.append(f"next: {code(next_best.route)} {show.ratio(next_best.seconds / cell.seconds)}")
    return lines


def curves(cells: Sequence[Cell], missing: Missing, limit: Limit | None = None) -> Table:
    """The figures behind a panel of time against size: median, range below it; memcpy in the last row."""

    def both(cell: Cell) -> list[str]:
        return [show.time(cell), show.interval(cell.low, cell.high)]

    table = pivot("Median, and range over processes", cells, "nbytes", missing, both, show.size)
    sizes = sorted({cell.nbytes for cell in cells})
    if limit is None or not limit.seconds:
        return table
    row = ("memcpy", *(show.seconds(limit.seconds[n]) if n in limit.seconds else "" for n in sizes))
    return Table(table.title, table.columns, (*table.rows, row), table.notes)


def usual_size(cells: Sequence[Cell], column: str) -> int:
    """The size at which most values of a parameter were measured; the largest up to 1 MiB among equals."""
    values: dict[int, set[Any]] = {}
    for cell in cells:
        values.setdefault(cell.nbytes, set()).add(getattr(cell, column))
    return max(values, key=lambda n: (len(values[n]), n <= 2**20, n if n <= 2**20 else -n), default=0)


def _groups(cells: Iterable[Cell], family: str) -> list[list[Cell]]:
    """The cells of a family, a list a benchmark."""
    own = [cell for cell in cells if cell.family == family]
    return [[cell for cell in own if cell.benchmark == name] for name in dict.fromkeys(cell.benchmark for cell in own)]


def dtypes(cells: Sequence[Cell], missing: Missing) -> list[Table]:
    """Cost by dtype, at the size that was measured with the most dtypes; nothing where that is one dtype."""
    tables = []
    for own in _groups(cells, "conversion"):
        nbytes = usual_size(own, "dtype")
        shown = [cell for cell in own if cell.nbytes == nbytes]
        if len({cell.dtype for cell in shown}) > 1:
            title = f"{own[0].direction}, {show.size(nbytes)}, by the source's dtype"
            tables.append(pivot(title, _regular(shown, own, "dtype"), "dtype", missing))
    return tables


def _regular(shown: Sequence[Cell], own: Sequence[Cell], column: str) -> list[Cell]:
    """The shown cells with their columns in the order the benchmark has them."""
    order = {value: place for place, value in enumerate(dict.fromkeys(getattr(cell, column) for cell in own))}
    return sorted(shown, key=lambda cell: order[getattr(cell, column)])


def casting(cells: Sequence[Cell], missing: Missing) -> list[Table]:
    """One table a benchmark: by dtype at one size, or by size where there is one dtype."""
    tables = []
    for own in _groups(cells, "casting"):
        if len({cell.dtype for cell in own}) > 1:
            nbytes = usual_size(own, "dtype")
            title = f"{own[0].direction}, {show.size(nbytes)} of the source, by the source's dtype"
            tables.append(pivot(title, [cell for cell in own if cell.nbytes == nbytes], "dtype", missing))
        else:
            title = f"{own[0].direction}, from {own[0].dtype}, by size of the source"
            tables.append(pivot(title, own, "nbytes", missing, head=show.size))
    return tables


def layout(cells: Sequence[Cell], missing: Missing) -> list[Table]:
    """Routes by layout at the size with the most layouts; a layout that was not measured there shows its own size."""
    tables = []
    for own in _groups(cells, "layout"):
        nbytes = usual_size(own, "layout")
        here = {cell.layout for cell in own if cell.nbytes == nbytes}
        sizes = {cell.layout: nbytes if cell.layout in here else cell.nbytes for cell in own}
        shown = [cell for cell in own if cell.nbytes == sizes[cell.layout]]
        title = f"{own[0].direction}, float32, {show.size(nbytes)} of elements unless the column says otherwise"
        heads = {name: name if n == nbytes else f"{name} ({show.size(n)})" for name, n in sizes.items()}
        tables.append(pivot(title, shown, "layout", missing, head=heads.__getitem__))
    return tables


def batches(cells: Sequence[Cell], missing: Missing) -> list[Table]:
    """Lists and nested containers, by size of all arrays together."""
    titles = {"ArraysToTensor": "A list of arrays into one tensor", "TreeToNumpy": "A nested container of tensors"}
    titles["TreeToTorch"] = "A nested container of arrays"
    return [
        pivot(f"{titles.get(own[0].group, own[0].group)}, by total size", own, "nbytes", missing, head=show.size)
        for own in _groups(cells, "batches")
    ]


def requires_grad(cells: Sequence[Cell], missing: Missing) -> list[Table]:
    """The routes that take a tensor that requires grad, by size."""
    own = [cell for cell in cells if cell.group.startswith("RequiresGrad")]
    title = "torch→numpy from a tensor that requires grad, by size"
    return [pivot(title, own, "nbytes", missing, head=show.size)] if own else []


def cold(cells: Sequence[Cell], missing: Missing) -> list[Table]:
    """Cold beside warm: the same route, size and dtype in the conversion family."""
    warm = {(cell.direction, cell.route, cell.nbytes): cell for cell in conversions(cells)}

    def against(cell: Cell) -> Entry:
        same = warm.get((cell.direction, cell.route, cell.nbytes))
        if same is None:
            return show.time(cell)
        how = compared(cell, same, show.ratio(cell.seconds / same.seconds))
        return [show.time(cell), f"warm {show.time(same)}: {how}"]

    return [
        pivot(f"{own[0].direction}, source not in the caches, by size", own, "nbytes", missing, against, show.size)
        for own in _groups(cells, "cold")
    ]


def threads(cells: Sequence[Cell], missing: Missing) -> list[Table]:
    """All cores beside one thread, by size."""
    tables = []
    for own in _groups(cells, "threads"):
        one = {(cell.route, cell.nbytes): cell for cell in own if cell.threads == "one"}

        def against(cell: Cell, one: Mapping[tuple[str, int], Cell] = one) -> Entry:
            single = one.get((cell.route, cell.nbytes))
            if single is None:
                return show.time(cell)
            gain = compared(cell, single, f"{show.ratio(single.seconds / cell.seconds)} as fast")
            return [show.time(cell), f"one thread {show.time(single)}: {gain}"]

        every = [cell for cell in own if cell.threads != "one"]
        title = f"{own[0].direction}, torch on all cores against one thread, by size"
        tables.append(pivot(title, every, "nbytes", missing, against, show.size))
    return [table for table in tables if table]


def others(cells: Sequence[Cell], missing: Missing) -> list[Table]:
    """Families without a section of their own, where there is one size: with more, the figures have tables."""
    return [
        pivot(f"{', '.join(names)}, by size", own, "nbytes", missing, head=show.size)
        for names, own in alike(cells).items()
        if len({cell.nbytes for cell in own}) == 1
    ]


def footprint(values: pd.DataFrame) -> list[Table]:
    """Bytes allocated and pages faulted in by one call, by size."""
    tables = []
    own = values[(values["family"] == "footprint") & values["nbytes"].notna()]
    for group in dict.fromkeys(own["group"]):
        rows = own[own["group"] == group]
        found: dict[tuple[str, int], dict[str, float]] = {}
        for row in rows.to_dict("records"):
            found.setdefault((row["route"], int(row["nbytes"])), {})[row["method"]] = float(row["value"])
        sizes = sorted({nbytes for _, nbytes in found})
        body = tuple(
            (code(route), *(_footprint(found.get((route, n), {}), n) for n in sizes))
            for route in dict.fromkeys(rows["route"])
        )
        title = f"{direction_of(group)}: bytes allocated by a call, as a multiple of the source's; pages faulted in"
        tables.append(Table(title, ("route", *map(show.size, sizes)), body))
    return tables


def _footprint(counted: Mapping[str, float], nbytes: int) -> Entry:
    lines: list[str] = []
    if "track_bytes" in counted:
        allocated = counted["track_bytes"]
        times = "nothing" if allocated == 0 else show.ratio(allocated / nbytes)
        lines.append(times)
    if "track_page_faults" in counted:
        pages = counted["track_page_faults"]
        lines.append(f"{show.significant(pages, 2) if pages < 100 else f'{pages:,.0f}'} pages")
    return lines


def measured_memory(semantics: Semantics, contract: Mapping[str, Any]) -> str:
    """alias, copy or into, by dtype where they differ; "" where it was not measured."""
    return _by_dtype(semantics.memory(contract))


def _measured_dtype(semantics: Semantics, contract: Mapping[str, Any]) -> str:
    """Kept, one for all, or by source dtype."""
    seen = semantics.result(contract)
    if seen and all(source == result for source, result in seen.items()):
        return KEPT
    return _by_dtype(seen)


def broken(semantics: Semantics, contracts: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each promise of a contract that the measurement contradicts."""
    return [_broken(one) for one in semantics.broken(contracts)]


def _broken(one: Broken) -> str:
    if one.what == MEMORY:
        does = f"{'shares memory' if one.measured else 'does not share memory'} for {one.dtype}"
    elif one.what == DTYPE:
        does = f"gives {one.measured} for {one.dtype}"
    else:
        does = f"{'takes' if one.measured else 'refuses'} a tensor that requires grad"
    return f"{code(one.route)} {does}; its contract says {one.promised}."


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
            casts_to = {"": KEPT, "python": "by way of Python's"}.get(promise["casts_to"], promise["casts_to"])
            refuses = "; ".join(f"{dtype}: {how}" for dtype, how in promise.get("refuses", {}).items())
            notes = [
                word
                for word in (
                    advice.needs_words(promise),
                    refuses,
                    promise.get("hazard", ""),
                    promise.get("caution", ""),
                )
                if word
            ]
            route: list[str] = [code(promise["expression"]), *notes]
            does: list[str] = [f"{does}: {', '.join(sources)}" for does, sources in outcomes(promise).items()]
            memory, dtype = measured_memory(semantics, promise), _measured_dtype(semantics, promise)
            row = (route, _memory(promise), memory, casts_to, dtype, does)
            rows.append((*row, *([TAKEN[semantics.taken(promise)]] if graded else [])))
        columns = ("route", "memory", "measured", "result dtype", "measured", "awkward sources")
        more = ("grad taken, measured",) if graded else ()
        title = f"{direction}: what each route promises, what was measured, what it does with awkward sources"
        tables.append(Table(title, (*columns, *more), tuple(rows), numeric=False))
    return tables


def _memory(contract: Mapping[str, Any]) -> str:
    """alias, copy or into; of a route that shares memory of some sources only, of which."""
    casts_to = contract["casts_to"]
    if contract.get("copies"):
        return f"{contract['memory']}; {COPY} of {', '.join(contract['copies'])}"
    if casts_to and memory_for(contract, casts_to) == ALIAS != memory_for(contract, ""):
        return f"{ALIAS} of {casts_to}, else {COPY}"
    return str(contract["memory"])


def catalogue(results: Results) -> list[tuple[str, str]]:
    """(direction, route) of every contract, in the catalogue's order as far as benchmarks tell it."""
    found: dict[tuple[str, str], None] = {}
    families = ["conversion", "casting", "layout", "batches"]

    def rank(name: str) -> tuple[int, int]:
        family = name.split(".")[0]
        return (families.index(family) if family in families else len(families)), -len(
            results.benchmarks[name].get("contracts", {})
        )

    for name in sorted(results.benchmarks, key=rank):
        benchmark = results.benchmarks[name]
        promises = benchmark.get("contracts", {})
        by_spelling = {repr(route): route for route in promises}
        if "route" in benchmark.get("param_names", []):
            spellings = benchmark["params"][benchmark["param_names"].index("route")]
            for route in (by_spelling[spelling] for spelling in spellings if spelling in by_spelling):
                found[promises[route]["direction"], route] = None
    directions = [*DIRECTIONS, *dict.fromkeys(direction for direction, _ in found)]
    return sorted(found, key=lambda key: directions.index(key[0]))


def spread(cells: Sequence[Cell]) -> Table:
    """How far processes differ: coefficient of variation between the processes of a cell, by kind of memory."""
    kinds: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.processes > 1:
            limits = cell.family in ("limits", "link")
            kinds.setdefault(cell.memory or ("limits" if limits else cell.family), []).append(cell)
    rows: list[tuple[Entry, ...]] = []
    for kind, own in kinds.items():
        worst = max(own, key=lambda cell: cell.cv)
        rows.append(
            (
                kind,
                f"{len(own)}",
                show.percent(statistics.median(cell.cv for cell in own), 1),
                [show.percent(worst.cv, 1), code(worst.cell)],
            )
        )
    columns = ("memory", "cells", "median", "worst")
    return Table("Coefficient of variation between the processes of a cell", columns, tuple(rows))


def floor(cells: Sequence[Cell]) -> Table:
    """What the harness itself takes."""
    rows = tuple((cell.statement, show.time(cell)) for cell in cells if cell.benchmark == FLOOR)
    return Table("The harness itself", ("statement", "a call"), rows)


def absent(missing: Missing) -> Table:
    """Every cell without a figure: grouped by benchmark and reason, with the number of cells and the routes."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in missing.rows:
        groups.setdefault((row["status"], row["benchmark"], row["reason"]), []).append(row)
    rows = []
    for (status, benchmark, reason), own in groups.items():
        routes = [row["route"] for row in own if _plain(row["route"])]
        rows.append((code(benchmark), f"{status}: {reason or 'see asv show'}", f"{len(own)}", named(routes)))
    title = "Cells without a figure"
    return Table(title, ("benchmark", "why", "cells", "routes"), tuple(rows), numeric=False)


def environment(record: Mapping[str, Any]) -> Table:
    """The machine and toolchain of a run, as its record has them; what was not recorded is left out."""
    at, on = record.get("settings") or {}, record.get("conditions") or {}
    caches = ", ".join(f"{level} {size}" for level, size in on.get("caches", {}).items())
    cores = f"{on['cores_allowed']} of {on['cores']} allowed" if "cores" in on and "cores_allowed" in on else ""
    load = on.get("load_average")
    rows: list[tuple[str, Any]] = [
        ("torch", f"{at.get('torch', '')}{_in_brackets('git', str(at.get('git') or '')[:12])}"),
        ("numpy", at.get("numpy")),
        ("Python", at.get("python")),
        ("CUDA, HIP", ", ".join(str(at[name]) for name in ("cuda", "hip") if at.get(name)) or "none"),
        ("device", device_of(at)),
        ("threads of torch", at.get("torch_threads")),
        ("CPU", on.get("cpu")),
        ("cores", cores),
        ("caches", caches),
        ("memory", show.size(on["memory_bytes"]) if on.get("memory_bytes") else ""),
        ("system", on.get("system")),
        ("C library", on.get("libc")),
        ("frequency governor", on.get("governor") or "not visible"),
        ("transparent huge pages", on.get("transparent_hugepages") or "not visible"),
        ("load average at the start", f"{load:.2f}" if isinstance(load, (int, float)) else ""),
        ("asv, asv_runner", " and ".join(str(record[k]) for k in ("asv", "asv_runner") if record.get(k))),
        ("launch method", record.get("launch")),
    ]
    shown = tuple((name, str(value)) for name, value in rows if value not in (None, ""))
    return Table("Machine and toolchain, as they were when the run started", ("what", "value"), shown, numeric=False)


def device_of(settings: Mapping[str, Any]) -> str:
    """The accelerator of a run in words; "" where there was none."""
    device, name = settings.get("device"), settings.get("device_name")
    return f"{name} ({device})" if device and name else str(device or "")


def _in_brackets(name: str, value: str) -> str:
    return f" ({name} {value})" if value else ""


def runs(records: Sequence[Mapping[str, Any]]) -> Table:
    """One row a run: when, how, how calm the machine was, and how much of it was disturbed."""
    rows = []
    for record in records:
        profile = str(record.get("profile", ""))
        if record.get("only"):
            profile += f", only {record['only']}"
        command: str = code(str(record.get("command", "")))
        share, seconds = disturbed(record), _count(record, "seconds")
        again, kept = _count(record, "retaken"), _count(record, "disturbed")
        rows.append(
            (
                str(record.get("started", "")),
                command,
                profile,
                str(record.get("rounds", "")),
                f"{_count(record, 'samples'):,}",
                "" if record.get("calm") is None else show.percent(record["calm"]),
                f"{show.percent(share, 2)} ({again} taken again, {kept} kept)",
                f"{seconds:.0f} s",
            )
        )
    columns = ("started", "command", "profile", "processes a cell", "samples", "at full speed", "disturbed", "took")
    return Table("Runs whose figures are on this page", columns, tuple(rows), numeric=False)


def disturbed(record: Mapping[str, Any]) -> float:
    """Share of samples during which the machine did something else too: taken again or, after too many tries, kept."""
    again, kept = _count(record, "retaken"), _count(record, "disturbed")
    return (again + kept) / max(1, _count(record, "samples") + again)


def _count(record: Mapping[str, Any], name: str) -> float:
    """A number of a run record; 0 where it has none of that name."""
    value = record.get(name)
    return value if isinstance(value, (int, float)) else 0
