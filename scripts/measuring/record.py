"""The record of a run: what was measured, with what, where and how quiet it was; filed with its measurements."""

import itertools
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from store import files, quiet
from store.records import Line, Record, Settings, Toolchain, Unfinished, name_of, with_samples
from toolchains import ledger

from .engine import LAUNCH, RESULTS
from .machine import conditions, settings
from .state import State

STEADY = 0.95  # of a device's highest clock: as high as that
SILENT = "its process ended without a word: it crashed, was killed, or took longer than asv allows"


def new_record(
    profile: str, only: str | None, machine: str, toolchain: ledger.Toolchain, python: str | None, rounds: int
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
    """The record with what the sampling log holds of the run: how quiet it was, what was skipped and why."""
    run = quiet.Run(with_samples(lines))
    absent: dict[str, dict[str, dict[str, None]]] = {"skipped": {}, "failed": {}}
    for line in lines:
        for status, reasons in absent.items():
            if status in line:
                reasons.setdefault(line[status], {})[name_of(line)] = None
    share = run.quiet_share()
    probe, changed = device_probe(run.lines)
    return replace(
        record,
        quiet=round(share, 4) if share == share else None,
        baselines={kind: round(baseline, 1) for kind, baseline in run.baselines.items()},
        samples=sum(line["wanted"] for line in run.lines),
        retaken=sum(max(0, len(line["seconds"]) - line["wanted"]) for line in run.lines),
        noisy_cells=tuple(cell for cell, rounds in run.rounds().items() if not any(rounds.values())),
        skipped={why: tuple(names) for why, names in absent["skipped"].items()},
        failures={why: tuple(names) for why, names in absent["failed"].items()},
        device_probe=probe,
        device_changed=changed,
    )


def device_probe(timed: Iterable[Line]) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[str, ...]]]:
    """How the device ran around the samples, by its driver: device_probe and device_changed of a run's record."""
    readings: dict[str, list[tuple[float, str]]] = {}
    changed: dict[str, dict[str, None]] = {}
    for line in timed:
        for around in line.get("device", ()):
            for reason in around["slowed by"]:
                changed.setdefault(f"slowed by {reason}", {})[name_of(line)] = None
            for quantity in ("link generation", "clock"):
                readings.setdefault(quantity, []).append((around[quantity], name_of(line)))
    for quantity, each in readings.items():
        for value, cell in each:
            if value < STEADY * max(each)[0]:
                changed.setdefault(quantity, {})[cell] = None
    spans = {quantity: (min(each)[0], max(each)[0]) for quantity, each in readings.items()}
    return spans, {what: tuple(cells) for what, cells in changed.items()}


def how_quiet(record: Record) -> str:
    """What a run record holds of the machine, in words."""
    if record.quiet is None:
        return "nothing was timed"
    words = f"the machine was quiet {record.quiet:.0%} of the time"
    never = len(record.noisy_cells)
    return words + (f"; {never} cells have no quiet sample, and are marked" if never else "")


def result_file(machine: str, commit: str) -> Path:
    """asv's file of a toolchain on a machine; the measurements and run records lie beside it."""
    version = platform.python_version_tuple()
    return RESULTS / machine / f"{commit[:8]}-toolchain-py{version[0]}.{version[1]}.json"


def file_record(record: Record, commit: str, state: State, beside: bool = False) -> Path:
    """File what the run measured: measurements, asv's export of them, and its record; the path of asv's file.

    beside  the processes stay beside those of earlier runs of the same cells, instead of replacing them
    """
    path = result_file(record.machine, commit)
    state.begin()
    ran = state.results / path.relative_to(RESULTS)
    logged = state.lines()
    fresh = [{"run": record.started, **line} for line in logged if "seconds" in line or "values" in line]
    lines = files.merged(files.read_measurements(path), fresh, beside)
    if fresh:
        ran.with_suffix(files.MEASUREMENTS).write_bytes(files.measurements_text(lines))
    if ran.is_file():
        silent = without_reason(ran, record)
        if silent:
            record = replace(record, failures={**record.failures, SILENT: tuple(silent)})
        skipped = {cell for cells in record.skipped.values() for cell in cells}
        files.export(ran, path, lines, skipped, {name_of(line) for line in logged})
    records = path.with_suffix(files.RECORDS)
    before = records.read_text(encoding="utf-8") if records.is_file() else ""
    ran.with_suffix(files.RECORDS).write_text(before + files.record_text(record), encoding="utf-8")
    state.complete()
    state.publish(RESULTS)
    return path


def without_reason(ran: Path, record: Record) -> list[str]:
    """The cells that failed in a run, by asv's file of it, and of which no process logged why."""
    from asv.results import Results

    explained = {cell for cells in (*record.skipped.values(), *record.failures.values()) for cell in cells}
    results = Results.load(str(ran))
    unexplained = []
    for name in results.get_all_result_keys():
        params = results.get_result_params(name)
        for value, words in zip(results.get_result_value(name, params), itertools.product(*params)):
            cell = name_of({"benchmark": name, "params": words})
            if value is None and cell not in explained:
                unexplained.append(cell)
    return unexplained
