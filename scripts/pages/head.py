"""A machine's page as data: facts, warnings and answers for its head, and the sections below them."""

from collections.abc import Sequence

from analysis.answers import answers
from analysis.cells import cells_of, conversions, usual_dtype
from analysis.findings import Semantics, advised, slowed
from analysis.published import known_of
from analysis.results import Results
from analysis.statistics import MIN_PROCESSES
from analysis.transfers import Transfers, credible, transfers_of
from records.runs import UNKNOWN, Record

from pages.transfers import advice as transfer_advice

from . import chooser, show, tables
from .advice import advice, neighbours, setting
from .machine import sections_of
from .page import Page, prose
from .show import code
from .spreadsheet import columns_of

CALM = 0.9  # share of the time at full speed from which a machine is called calm


def facts_of(results: Results) -> tuple[str, ...]:
    """Toolchain, processor, date and size of the evidence, for the head of the page."""
    facts = []
    if results.runs:
        record = results.last
        at, on, made = record.settings, record.conditions, record.toolchain
        facts += [f"torch {at.torch or made.torch}", f"numpy {at.numpy or made.numpy}"]
        facts.append(f"Python {at.python}" if at.python else "")
        facts.append(f"{on.cpu}, {on.cores_allowed} cores" if on.cpu and on.cores_allowed else "")
        facts.append(tables.device_of(at))
        paces = paces_of(results)
        facts.append(f"at full speed {show.percents(paces)} of the time" if paces else "")
        facts += [record.started[:10], f"profile {record.profile}" if record.profile else ""]
    else:
        python = [*results.processes["python"], *results.values["python"], *results.missing["python"]][0]
        facts += [f"Python {python}", "no run record: asv was run by hand, so toolchain and date are unknown"]
    if not results.processes.empty:
        counts = results.processes.groupby("cell")["process"].size()
        low, high = counts.min(), counts.max()
        each = f"{low}" if low == high else f"{low} to {high}"
        facts.append(f"{len(counts):,} timed cells, {each} process{'es' if high > 1 else ''} each")
    return tuple(fact for fact in facts if fact)


def busy_machine(results: Results) -> str:
    """How busy the machine was and what that means for the figures; "" where it was calm, or nobody watched."""
    paces = paces_of(results)
    timed = results.processes
    never = timed[timed["calm"].eq(False)]["cell"].nunique()
    if not paces or (min(paces) >= CALM and not never):
        return ""
    speed = f"it ran at full speed {show.percents(paces)} of the time"
    was = (
        f"The machine was busy: {speed}." if min(paces) < CALM else f"The machine was calm for the most part: {speed}."
    )
    if not never:
        return f"{was} Every figure rests on samples that were taken then."
    cells = timed["cell"].nunique()
    return (
        f"{was} Figures rest on samples that were taken then. {never} of {cells} cells never had any: they are marked "
        f"{show.BUSY.strip()}, and nothing is decided by them."
    )


def paces_of(results: Results) -> list[float]:
    """Shares of the time at full speed, a run that cells are of each; none where nobody watched."""
    shown = [record.calm for record, _, _ in runs_shown(results) if record.calm is not None]
    last = results.last.calm
    return shown or ([] if last is None else [last])


def runs_shown(results: Results) -> list[tuple[Record, int, int]]:
    """The runs that timed cells are of: record (UNKNOWN where it is not known which run), cells, and processes of the
    cell that has most. The latest comes first; a cell with processes of several runs counts as the latest one's."""
    timed = results.processes
    if timed.empty:
        return []
    records = {record.started: record for record in results.runs}
    cells = timed.groupby("cell", sort=False).agg(run=("run", "max"), processes=("process", "size"))
    runs = [(records.get(run, UNKNOWN), len(rows), int(rows["processes"].max())) for run, rows in cells.groupby("run")]
    return runs[::-1]


def of_runs(results: Results) -> list[str]:
    """Which runs the cells are of where there are several, and which of those are a quick look."""
    sentences: list[str] = []
    shown = runs_shown(results)
    total = sum(count for _, count, _ in shown)
    for record, count, _ in shown[1:] if len(shown) > 1 else []:
        when = f"the run of {record.started[:16].replace('T', ' ')}" if record.started else "an earlier run"
        command = f": {code(record.command)}" if record.command else ""
        sentences.append(f"{count} of {total} timed cells are of {when}{command}.")
    for _, count, processes in shown:
        if processes < MIN_PROCESSES:
            plural = "process" if processes == 1 else "processes"
            which = "" if len(shown) == 1 else f" in {count} of {total} cells"
            sentences.append(
                f"A quick look{which}: {processes} {plural} a cell, too few for an interval or a verdict. The ranges "
                "are those of the processes, not confidence intervals."
            )
    return sentences


def outdated(results: Results) -> str:
    """Whether benchmarks have changed since the figures were taken; "" where none has."""
    timed = results.processes[["benchmark", "version"]].drop_duplicates()
    now = [results.benchmarks[name].version for name in timed["benchmark"]]
    changed = sum(version != known for version, known in zip(timed["version"], now))
    if not changed:
        return ""
    which = "All benchmarks" if changed == len(timed) else f"{changed} of {len(timed)} benchmarks"
    return f"{which} have changed since these figures were taken: what they are now may give others."


def warnings_of(results: Results, others: Sequence[str], moved: Transfers) -> tuple[str, ...]:
    """What a reader must know before the answers."""
    warnings: list[str] = transfer_advice.impossible(moved)
    failed = results.missing[results.missing["status"] == "failed"]
    if len(failed):
        names = list(dict.fromkeys(failed["benchmark"]))
        cells_failed = "1 cell failed" if len(failed) == 1 else f"{len(failed)} cells failed"
        warnings.append(f"{cells_failed}, in {show.join(names)}: listed under Machine and method.")
    warnings += of_runs(results)
    busy = busy_machine(results)
    if busy:
        warnings.append(busy)
    dated = outdated(results)
    if dated:
        warnings.append(dated)
    if others:
        warnings.append(f"The latest run is shown. There are results of {show.join(others)}, too.")
    if results.unknown:
        unknown = sorted({name for _, name in results.unknown})
        count = sum(results.unknown.values())
        plural = "figure is" if count == 1 else "figures are"
        warnings.append(
            f"{count} {plural} not shown, of benchmarks that benchmarks.json does not describe any more: "
            f"{tables.named(unknown)}."
        )
    broken = Semantics(results).broken(results.contracts.values())
    if broken:
        warnings.append(f"Measurement contradicts {len(broken)} promises of contracts: listed under Contracts.")
    return tuple(warnings)


def page_of(
    results: Results,
    before: Results | None,
    machine: str,
    others: Sequence[str],
    csv: str,
    links: Sequence[tuple[str, str]] = (),
) -> Page:
    """Everything the page of a machine says."""
    timed = cells_of(results)
    cells = [*filter(credible, timed)]
    made = answers(cells)
    copies = slowed(cells)
    moved = transfers_of(results, timed)
    about_transfers = transfer_advice.advice(moved)
    every = [*results.processes["toolchain"], *results.values["toolchain"], *results.missing["toolchain"]]
    return Page(
        title=f"NumPy and PyTorch conversions on {machine}",
        machine=machine,
        facts=facts_of(results),
        # what gains more than any choice of a route comes first
        boxes=(
            *map(setting, advised(results, cells)),
            *([neighbours(copies)] if copies else []),
            *map(advice, made),
            *about_transfers,
        ),
        legend=prose(
            "machine_legend",
            conversions=bool(made),
            transfers=bool(about_transfers),
            usual=usual_dtype(conversions(cells)),
        ),
        warnings=warnings_of(results, others, moved),
        sections=sections_of(results, before, cells, made, moved),
        links=tuple(links),
        command=results.last.command or "asv run --record-samples",
        csv=csv,
        columns=columns_of(results),
        toolchain=every[0],
        known=chooser.embedded(known) if (known := known_of(results, machine, cells)).points else "",
    )
