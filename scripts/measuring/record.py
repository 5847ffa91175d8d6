"""The record of a run: what was measured, with what, where and how calm it was; filed beside asv's results."""

import itertools
import json
import platform
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from records import calm
from records.runs import Record, Settings, Toolchain, Unfinished, plain
from toolchains import ledger

from .engine import LAUNCH, RESULTS
from .machine import conditions, settings
from .state import State

STEADY = 0.95  # of a device's highest clock: as high as that
SILENT = "its process ended without a word: it crashed, was killed, or took longer than asv allows"


def new_record(
    profile: str,
    only: str | None,
    machine: str,
    toolchain: ledger.Toolchain,
    python: str | None,
    rounds: int,
) -> Unfinished:
    """The record of a run that begins. ``python`` has the toolchain; None where nothing has, because it could not be
    installed."""
    return Unfinished(
        toolchain=Toolchain(toolchain.tag, toolchain.torch, toolchain.numpy),
        skipped={},
        profile=profile,
        only=only or "",
        planned=rounds,
        command=" ".join([f"python scripts/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        machine=machine,
        settings=settings(python) if python else Settings(),
        conditions=conditions(),
        asv=metadata.version("asv"),
        asv_runner=metadata.version("asv_runner"),
        launch=LAUNCH,
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def summed_up(record: Unfinished, lines: Sequence[Mapping[str, Any]]) -> Unfinished:
    """The record with what the sampling log says of the run: how calm it was, what was skipped and why."""
    timed = calm.timed(lines)
    absent: dict[str, dict[str, list[str]]] = {"skipped": {}, "failed": {}}
    for line in lines:
        for status, reasons in absent.items():
            if status in line and calm.name_of(line) not in reasons.setdefault(line[status], []):
                reasons[line[status]].append(calm.name_of(line))
    floors = calm.floors(timed)
    share = calm.share(timed, floors)
    cells: dict[str, int] = {}
    for cell, rounds in calm.attempts(timed, floors).items():
        kept = sum(len(process.samples) for process in calm.select(rounds).values() if not process.calm)
        if kept:
            cells[cell] = kept
    pulse, changed = device_pulse(timed)
    return replace(
        record,
        calm=round(share, 4) if share == share else None,
        floors={kind: round(floor, 1) for kind, floor in floors.items()},
        samples=sum(line["wanted"] for line in timed),
        retaken=sum(max(0, len(line["seconds"]) - line["wanted"]) for line in timed),
        disturbed=sum(cells.values()),
        disturbed_cells=cells,
        skipped={why: tuple(names) for why, names in absent["skipped"].items()},
        failures={why: tuple(names) for why, names in absent["failed"].items()},
        device_pulse=pulse,
        device_changed=changed,
    )


def device_pulse(timed: Iterable[calm.Line]) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[str, ...]]]:
    """How the device ran around the samples, by its driver: device_pulse and device_changed of a run's record."""
    readings: dict[str, list[tuple[float, str]]] = {}
    changed: dict[str, dict[str, None]] = {}
    for line in timed:
        for around in line.get("device", ()):
            for reason in around["slowed by"]:
                changed.setdefault(f"slowed by {reason}", {})[calm.name_of(line)] = None
            for quantity in ("link generation", "clock"):
                readings.setdefault(quantity, []).append((around[quantity], calm.name_of(line)))
    for quantity, each in readings.items():
        for value, cell in each:
            if value < STEADY * max(each)[0]:
                changed.setdefault(quantity, {})[cell] = None
    spans = {quantity: (min(each)[0], max(each)[0]) for quantity, each in readings.items()}
    return spans, {what: tuple(cells) for what, cells in changed.items()}


def how_calm(record: Record) -> str:
    """What a run record says of the machine, in words."""
    if record.calm is None:
        return "nothing was timed"
    words = f"the machine ran at full speed {record.calm:.0%} of the time"
    never = len(record.disturbed_cells)
    return words + (f"; {never} cells never were calm, and are marked" if never else "")


def record_file(machine: str, commit: str) -> Path:
    """The file of run records beside asv's result file, which has the same name and another suffix."""
    version = platform.python_version_tuple()
    return RESULTS / machine / f"{commit[:8]}-toolchain-py{version[0]}.{version[1]}.jsonl"


def file_record(record: Record, commit: str, state: State, append: bool = False) -> Path:
    """File what the run measured: asv's results, beside them its samples and pulses and its record; the record's path.

    append  the samples stay beside those of earlier runs of the same cells, instead of replacing them. That is also so
            for cells that a run before had more processes of: a quick look adds to what is known, and replaces nothing
    """
    path = record_file(record.machine, commit)
    state.begin()
    fresh = state.results / path.relative_to(RESULTS)
    timed = [{"run": record.started, **line} for line in calm.timed(state.lines())]
    if timed:
        new = {calm.name_of(line) for line in timed}
        earlier = calm.read(path.with_suffix(calm.SUFFIX))
        more = set() if append else better_known(path.with_suffix(".json"), fresh.with_suffix(".json"), earlier, timed)
        lines = [*(line for line in earlier if append or calm.name_of(line) not in new - more), *timed]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        fresh.with_suffix(calm.SUFFIX).write_text(text, encoding="utf-8")
        # as they were taken: what full speed is changes while a run goes on, and asv's file is one of many stages
        settle(fresh.with_suffix(".json"), calm.chosen(lines, at_full_speed=False), new)
    if fresh.with_suffix(".json").is_file():
        silent = without_reason(fresh.with_suffix(".json"), record)
        if silent:
            record = replace(record, failures={**record.failures, SILENT: tuple(silent)})
    records = path.read_text(encoding="utf-8") if path.is_file() else ""
    fresh.write_text(records + json.dumps(plain(record), sort_keys=True) + "\n", encoding="utf-8")
    state.complete()
    state.publish(RESULTS)
    return path


def better_known(before: Path, after: Path, earlier: Iterable[calm.Line], timed: Iterable[calm.Line]) -> set[str]:
    """The cells of which an earlier run had more processes, by the same measurement, than the new one. Not all runs
    together: a history visits its first toolchain twice, and the next history's first visit replaces both.

    before, after  asv's result files, which have the versions of the measurements
    """
    from asv.results import Results

    if not before.is_file():
        return set()
    versions = [Results.load(str(path)).benchmark_version for path in (before, after)]
    places = ({(calm.name_of(line), line["run"], line["round"]) for line in lines} for lines in (earlier, timed))
    counts = [Counter((cell, run) for cell, run, _ in processes) for processes in places]
    same = {name for name, version in versions[1].items() if versions[0].get(name) == version}
    most = {cell: count for (cell, _), count in sorted(counts[0].items(), key=lambda each: each[1])}
    return {
        cell for (cell, _), count in counts[1].items() if most.get(cell, 0) > count and cell.partition("(")[0] in same
    }


def without_reason(path: Path, record: Record) -> list[str]:
    """The cells that failed since the run began, and of which no process said why."""
    from asv.results import Results

    explained = {cell for cells in (*record.skipped.values(), *record.failures.values()) for cell in cells}
    results, began = Results.load(str(path)), datetime.fromisoformat(record.started).timestamp()
    unexplained = []
    for name in results.get_all_result_keys():
        if (results.started_at.get(name) or 0) / 1000 >= began - 1:  # asv rounds
            params = results.get_result_params(name)
            for value, spellings in zip(results.get_result_value(name, params), itertools.product(*params)):
                cell = calm.name_of({"benchmark": name, "params": spellings})
                if value is None and cell not in explained:
                    unexplained.append(cell)
    return unexplained


def settle(path: Path, chosen: Mapping[str, Mapping[int, calm.Process]], cells: Collection[str]) -> None:
    """Have asv's own figures of these cells rest on the samples that ours rest on: calm ones, where there are any, as
    they were taken."""
    from asv.results import Results
    from asv.runner import BenchmarkResult

    results = Results.load(str(path))
    for name in list(results.get_all_result_keys()):
        params = results.get_result_params(name)
        value, samples = (ask(name, params) for ask in (results.get_result_value, results.get_result_samples))
        number: list[int | None] = [None] * len(value)  # None: asv leaves a cell's statistics as they are
        for index, spellings in enumerate(itertools.product(*params)):
            cell = calm.name_of({"benchmark": name, "params": spellings})
            if cell in cells and cell in chosen and samples[index] is not None:
                processes = list(chosen[cell].values())
                samples[index] = [sample for process in processes for sample in process.samples]
                number[index] = processes[-1].number
        changed = {index for index, made in enumerate(number) if made is not None}
        if changed:
            results.add_result(
                {"name": name, "version": results.benchmark_version[name], "params": params},
                BenchmarkResult(value, samples, number, 0, "", None),
                started_at=datetime.fromtimestamp(results.started_at[name] / 1000, timezone.utc),
                duration=results.duration.get(name),
                record_samples=True,
                selected_idx=changed,
            )
    results.save(str(path.parent.parent))
