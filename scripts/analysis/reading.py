"""Read one result: its processes, counts and missing cells, as tables."""

import itertools
import math
import statistics
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from store import files, quiet
from store.asv_files import AsvFigures, AsvResult, read_asv
from store.files import PARSE_ERRORS, BrokenFile, version_number
from store.frames import FAILED, SKIPPED, Process
from store.schema import Counts, Measurement, RunRecord, TimedProcess, Toolchain, cell_name
from toolchains import ledger

from benchmarks.core.probes import PROCESSOR

from .suite import MAX_CELLS

Reasons = dict[str, tuple[str, str]]  # cell -> its status and reason
# Columns of processes that are fields of measurements, too, and have their values
FIELDS_OF_LINES = [name for name in Process.__annotations__ if hasattr(TimedProcess, name)]


@dataclass(frozen=True)
class ResultPart:
    """Data of one result, read in a process of its own. ``place`` is that of a row's cell in the
    suite.

    labels     columns that all its rows share
    versions   of its benchmarks
    processes  one row per process that figures rest on, with its place
    counts     one row per counted cell: place, value (median of its counts), low and high if
               several
    missing    one row per cell without a figure: place, status, reason
    unknown    benchmark -> number of figures of cells that are not in the suite
    """

    labels: Mapping[str, str]
    records: Sequence[RunRecord]
    versions: Mapping[str, str]
    processes: pd.DataFrame
    counts: pd.DataFrame
    missing: pd.DataFrame
    unknown: Counter[str]


def read_result(path: Path, places: Mapping[str, int], timing: Collection[str]) -> ResultPart:
    """Read a result. UserError if a file of it is broken.

    places  of the suite's cells
    timing  benchmarks that are timed
    """
    records = files.read_records(path)
    measured = files.read_measurements(path)
    benchmark_of = {line.cell: line.benchmark for line in measured}
    asv = read_asv(path)
    try:
        rows = asv.figures()
        by_hand, reasons = _by_hand(rows, benchmark_of, timing)
    except PARSE_ERRORS as error:
        raise BrokenFile(path, f"is not a result of this suite ({error})") from None
    lines = [*measured, *by_hand]
    benchmark_of |= {line.cell: line.benchmark for line in by_hand}
    reasons |= _recorded_reasons(records)
    versions = _versions(rows, measured)
    with files.reading(files.sibling(path, files.MEASUREMENTS)):
        return ResultPart(
            labels=_labels(path, asv, records),
            records=records,
            versions=versions,
            processes=timed_processes(lines, places, records),
            counts=_counted_cells(lines, places),
            missing=_missing_cells(reasons, places, rows, benchmark_of),
            unknown=Counter(name for cell, name in benchmark_of.items() if cell not in places),
        )


def _labels(path: Path, asv: AsvResult, records: Sequence[RunRecord]) -> dict[str, str]:
    """Return the columns that all rows of a result share."""
    toolchain = records[-1].toolchain if records else _toolchain_of(asv.commit_hash)
    return {
        "machine": asv.params.machine,
        "file": files.result_name(path),
        "commit": asv.commit_hash,
        "toolchain": toolchain.tag,
        "torch": toolchain.torch,
        "numpy": toolchain.numpy,
        "python": asv.python,
    }


def _versions(rows: Mapping[str, AsvFigures], measured: Iterable[Measurement]) -> dict[str, str]:
    """Return the versions of a result's benchmarks."""
    versions = {name: version_number(name, row.version) for name, row in rows.items()}
    return versions | {line.benchmark: line.version for line in measured}


def _missing_cells(
    reasons: Reasons,
    places: Mapping[str, int],
    benchmarks: Collection[str],
    measured: Collection[str],
) -> pd.DataFrame:
    """Return one row per cell of the suite and of these benchmarks that has a reason, and no
    figure."""
    rows = [
        (places[cell], *reason)
        for cell, reason in reasons.items()
        if cell in places and cell not in measured and cell.partition("(")[0] in benchmarks
    ]
    return pd.DataFrame(rows, columns=["place", "status", "reason"])


def _recorded_reasons(records: Sequence[RunRecord]) -> Reasons:
    """The last record that names a cell has the reason."""
    reasons: Reasons = {}
    for record in records:
        for status, cells_by_reason in ((SKIPPED, record.skipped), (FAILED, record.failures)):
            for reason, cells in cells_by_reason.items():
                reasons |= dict.fromkeys(cells, (status, reason))
    return reasons


def _toolchain_of(commit: str) -> Toolchain:
    """Return the toolchain of a commit measured by running asv by hand; only its hash outside the
    histories."""
    toolchain = ledger.toolchains_by_commit().get(commit)
    if toolchain is None:
        return Toolchain(commit[:8])
    return Toolchain(toolchain.tag, toolchain.torch, toolchain.numpy)


def timed_processes(
    lines: Sequence[Measurement], places: Mapping[str, int], records: Sequence[RunRecord]
) -> pd.DataFrame:
    """Return one row per process that figures rest on."""
    rows = []
    for cell, processes in quiet.select_processes(lines, records).items():
        for number, (run, index) in processes.items() if cell in places else ():
            line = run.lines[index]
            is_corrected = not math.isnan(run.slowdown[index])
            rows.append(
                {name: getattr(line, name) for name in FIELDS_OF_LINES}
                | {
                    "place": places[cell],
                    "process": number,
                    "seconds": run.figures[index],
                    "samples": line.wanted,
                    "quiet": run.quiet[index],
                    "beside": {
                        part: float(np.quantile(seconds, quiet.QUANTILE))
                        for part, seconds in line.parts.items()
                    },
                    "baseline": run.baselines[PROCESSOR] if is_corrected else math.nan,
                }
            )
    return pd.DataFrame(rows, columns=["place", *Process.__annotations__])


def _counted_cells(lines: Sequence[Measurement], places: Mapping[str, int]) -> pd.DataFrame:
    """Return one row per counted cell: the median of its counts, and their range if there are
    several. The last line of a cell counts."""
    counts = {line.cell: line.values for line in lines if isinstance(line, Counts)}
    rows = []
    for cell, values in counts.items():
        if cell in places:
            low, high = (min(values), max(values)) if len(values) > 1 else (math.nan, math.nan)
            rows.append((places[cell], statistics.median(values), low, high))
    return pd.DataFrame(rows, columns=["place", "value", "low", "high"])


def _by_hand(
    rows: Mapping[str, AsvFigures], measured: Collection[str], timing: Collection[str]
) -> tuple[list[TimedProcess | Counts], Reasons]:
    """Return figures in asv's file that no run measured (asv was run by hand), each as a line of
    measurements with one sample or count; and the status and reason of cells that failed there."""
    lines: list[TimedProcess | Counts] = []
    failed: Reasons = {}
    for name, row in rows.items():
        count = math.prod(map(len, row.params))  # checked first: a short file can name billions
        if count > MAX_CELLS or len(row.result) not in (0, count):
            raise ValueError(f"{name} has {len(row.result)} results, and {count} cells")
        for params, value in zip(itertools.product(*row.params), row.result or [None] * count):
            cell = cell_name(name, params)
            if cell in measured:
                continue
            if value is None:
                failed[cell] = FAILED, ""
            elif abs(value) > sys.float_info.max or (name in timing and value <= 0):
                raise TypeError(f"{cell} is {value!r}")
            elif not math.isnan(value):  # NaN: it was skipped, or not asked for
                lines.append(_line_by_hand(name, params, value, name in timing))
    return lines, failed


def _line_by_hand(
    name: str, params: tuple[str, ...], value: float, is_time: bool
) -> TimedProcess | Counts:
    """The line of measurements of a figure from asv's file, of which nothing else is known."""
    if not is_time:
        return Counts(
            run="", round=0, benchmark=name, params=params, version="", at=0.0, values=(value,)
        )
    return TimedProcess(
        run="",
        round=0,
        benchmark=name,
        params=params,
        version="",
        at=0.0,
        wanted=1,
        number=1,
        seconds=(value,),
        disturbed=(),
        probes={},
        waits=(),
        waiting=(),
        waited=0.0,
        took=0.0,
    )
