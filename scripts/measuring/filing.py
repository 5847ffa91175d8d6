"""File a session in reports/results: its measurements, their export for asv, and its record."""

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from store import asv_files, files, quiet
from store.files import put
from store.schema import (
    LogLine,
    Measurement,
    NoFigure,
    Reasons,
    RunRecord,
    TimedProcess,
    with_samples,
)

from benchmarks.core.sampling_log import GONE

from .engine import FILES, SILENT, read_log
from .profiles import group_by_reason

STEADY = 0.95  # share of a device's highest clock that counts as the highest


def file_measured(
    record: RunRecord, path: Path, lines: Sequence[Measurement], places: Sequence[Path]
) -> None:
    """File measurements, their export to asv's file, and their record, in this order. So a
    concurrent reader finds the measurements of every figure and of every record.

    lines   all measurements of the result
    places  directories of the session's jobs, with the log of the processes and asv's own files,
            which describe the benchmarks and the machine
    """
    for description in (files.BENCHMARKS, f"{record.machine}/{files.MACHINE}"):
        source = places[-1] / FILES / description
        if source.is_file():
            put(path.parents[1] / description, source.read_bytes())
    if lines:
        put(files.sibling(path, files.MEASUREMENTS), files.measurements_text(lines))
    # the lines of other runs are gone
    runs = {line.run for line in lines} - {record.started}
    records = [each for each in files.read_records(path) if each.failed or each.started in runs]
    ran = [place / FILES / record.machine / path.name for place in places]
    ran = [file for file in ran if file.is_file()]
    if ran:
        record = with_silent_failures(record, ran)
        tried = {line.cell for place in places for line in read_log(place)}
        asv_files.export(ran, path, lines, [*records, record], tried)
    text = "".join(map(files.record_text, [*records, record]))
    put(files.sibling(path, files.RECORDS), text)


def with_silent_failures(record: RunRecord, ran: Sequence[Path]) -> RunRecord:
    """Return the record with the cells that failed in asv's files ``ran``, although no process said
    why."""
    explained = {*itertools.chain(*record.skipped.values(), *record.failures.values())}
    silent = tuple(cell for cell in asv_files.failed_cells(ran) if cell not in explained)
    if not silent:
        return record
    return replace(record, failures={**record.failures, SILENT: silent})


# --- records --------------------------------------------------------------------------------------


def summary(record: RunRecord) -> str:
    """Return a line about a session: samples, duration, and how quiet the machine was."""
    text = (
        f"{record.toolchain.tag}: {record.samples} samples in {record.seconds:.0f} s, "
        f"{record.waited:.0f} of them waiting for quiet"
    )
    if record.quiet is not None:
        text += f"; the machine was quiet {record.quiet:.0%} of the time"
    if record.noisy_cells:
        text += f"; cells without a quiet process, which are marked: {len(record.noisy_cells)}"
    return text


def complete_record(record: RunRecord, lines: Sequence[LogLine], unavailable: Reasons) -> RunRecord:
    """Return the record, completed from the sampling log: how quiet the run was, skipped cells and
    reasons.

    unavailable  reason -> benchmarks left out
    """
    run = quiet.Run(with_samples(lines))
    without = [line for line in lines if isinstance(line, NoFigure)]
    skipped = group_by_reason(
        (line.skipped, line.cell) for line in without if line.skipped is not None
    )
    share = run.quiet_share()
    return replace(
        record,
        quiet=round(share, 4) if share == share else None,
        baselines={probe: round(baseline, 1) for probe, baseline in run.baselines.items()},
        samples=sum(line.wanted for line in run.lines),
        retaken=sum(max(0, len(line.seconds) - line.wanted) for line in run.lines),
        noisy_cells=run.never_quiet(),
        skipped={**skipped, **unavailable},
        failures=group_by_reason(
            (line.failed, line.cell) for line in without if line.failed is not None
        ),
        device_lost=next((reason for reason in skipped if reason.startswith(GONE)), ""),
        device_probe={
            quantity: (min(values), max(values))
            for quantity, values in device_readings(run.lines).items()
            if values
        },
        device_changed=device_changes(run.lines),
    )


def device_readings(lines: Sequence[TimedProcess]) -> dict[str, list[int]]:
    """Quantity that the device's driver reports -> its readings around the samples."""
    states = [state for line in lines for state in line.device]
    return {
        "link generation": [state.link_generation for state in states],
        "clock": [state.clock for state in states],
    }


def device_changes(lines: Sequence[TimedProcess]) -> Reasons:
    """How the device was slower, unsteady or unseen -> the cells."""
    pairs = []
    highest = {name: max(values, default=0) for name, values in device_readings(lines).items()}
    for line in lines:
        changes = [f"slowed by {reason}" for state in line.device for reason in state.slowed_by]
        if line.warmed and not line.warmed.steady:
            changes.append("clock not steady after warming up")
        if line.unseen:
            changes.append("waiting not verified")
        for quantity, values in device_readings([line]).items():
            if values and min(values) < STEADY * highest[quantity]:
                changes.append(quantity)
        pairs += [(change, line.cell) for change in changes]
    return group_by_reason(pairs)


def drift(earlier: Sequence[Measurement], later: Sequence[Measurement]) -> dict[str, float]:
    """Return the number of cells in both sessions, and the median ratio of asv's figures, later
    over earlier."""
    old = quiet.used_samples(with_samples(earlier))
    new = quiet.used_samples(with_samples(later))
    ratios = [
        statistics.median(new[cell][0]) / statistics.median(old[cell][0])
        for cell in old.keys() & new
    ]
    if not ratios:
        return {"cells": 0}
    return {"cells": len(ratios), "median": statistics.median(ratios)}
