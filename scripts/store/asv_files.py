"""asv's own files: read its results, and export measurements to them."""

import itertools
import json
import math
import statistics
import tempfile
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from cli import UserError

from . import files
from .files import version_number
from .quiet import UsedSamples, used_samples
from .schema import Measurement, RunRecord, cell_names, from_json

if TYPE_CHECKING:
    from asv.results import Results
    from asv.runner import BenchmarkResult

RESULT_VERSION = 2  # of asv's format
# Columns of asv's rows that nothing here reads
UNREAD = {"started_at", "duration", "samples", "profile", "stats_number", "stats_repeat"}
UNREAD |= {"stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75"}
Figures = dict[str, float | None]  # cell -> its figure; None: it failed


class AsvMachine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """asv's description of a machine: machine.json, and ``params`` of a result, which add Python's
    version."""

    machine: str
    arch: str = ""
    cpu: str = ""
    num_cpu: str = ""
    os: str = ""
    ram: str = ""
    python: str = ""
    version: int = 0


class AsvFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """asv's row of a benchmark.

    result  a figure per cell, in the order of ``params``; null: it failed; NaN: it was skipped, or
            is not part of the run. Empty: all failed
    """

    params: tuple[tuple[str, ...], ...]
    version: str
    result: tuple[bool | int | float | None, ...] = ()


class AsvResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """asv's file of a result. results: benchmark -> its row, with the columns
    ``result_columns``."""

    version: int
    commit_hash: str
    python: str
    params: AsvMachine
    result_columns: tuple[str, ...]
    results: dict[str, tuple[object, ...]]
    env_name: str = ""
    # nothing here reads these
    date: object = None
    requirements: dict[str, object] = {}
    env_vars: dict[str, object] = {}
    durations: dict[str, object] = {}

    def figures(self) -> dict[str, AsvFigures]:
        """Benchmark -> its row. TypeError, which names benchmark and field, if a row is none."""
        rows = {}
        for name, row in self.results.items():
            figures = dict(zip(self.result_columns, row))
            for column in UNREAD:
                figures.pop(column, None)
            try:
                rows[name] = from_json(AsvFigures, figures)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
        return rows


FIELDS = {field for row in (AsvMachine, AsvFigures, AsvResult) for field in row.__struct_fields__}
FIELDS |= UNREAD


def read_asv(path: Path) -> AsvResult:
    """Read asv's file of a result. UserError, which names the field, if it is broken or of another
    format."""
    loaded = files.read_json(path)
    version = loaded.get("version") if isinstance(loaded, dict) else None
    if isinstance(version, int) and version != RESULT_VERSION:
        raise UserError(
            f"{path} is of asv's format {version}, this reads {RESULT_VERSION}: asv update"
        )
    try:
        return from_json(AsvResult, loaded)
    except TypeError as error:
        raise files.BrokenFile(path, f"is not a result of this suite ({error})") from None


def export(
    ran: Sequence[Path],
    filed: Path,
    lines: Sequence[Measurement],
    records: Sequence[RunRecord],
    tried: Collection[str],
) -> None:
    """Write the figures of a session to asv's file of a result, without samples. They come from the
    measurements.

    ran      asv's own files of the session's runs, in order
    filed    asv's present file in reports/results, if there is one. Cells that the session has not
             tried stay, including those of ``asv run`` by hand
    lines    all measurements of the result
    records  of all runs in ``lines``, as they will be filed; the last is the session's
    tried    all cells for which the session started a process

    The figures use the same samples as ours, without speed correction, as those of a plain
    ``asv run`` do.
    """
    samples_of = used_samples(lines, records)
    skipped = set(itertools.chain(*records[-1].skipped.values()))
    exported = _load(filed if filed.is_file() else ran[0])
    # asv's own dictionary: it drops results of other versions
    versions = exported.benchmark_version
    versions.update({name: version_number(name, hashed) for name, hashed in versions.items()})
    for path in ran:
        _add_run(exported, _load(path), samples_of, skipped, tried)
    with tempfile.TemporaryDirectory() as directory:  # asv writes in place
        exported.save(directory)
        text = Path(directory, filed.parent.name, filed.name).read_text(encoding="utf-8")
    # without asv's blanks, a sixth of the file
    files.put(filed, json.dumps(json.loads(text), separators=(",", ":")))


def _add_run(
    exported: "Results",
    run: "Results",
    samples_of: UsedSamples,
    skipped: Collection[str],
    tried: Collection[str],
) -> None:
    """Add the figures of a run of asv to the file that is exported. Cells with used samples have
    their median."""
    for name, params, figures in _figures_in(run):
        figures |= dict.fromkeys(figures.keys() & skipped, math.nan)
        for cell in samples_of.keys() & figures:
            figures[cell] = statistics.median(samples_of[cell][0])
        is_filed = name in exported.get_all_result_keys()
        filed = cell_names(name, exported.get_result_params(name)) if is_filed else []
        staying = set(filed).difference(samples_of, tried)
        # also cells that asv's present file does not have, as of a new route: asv takes a cell
        # without a place for a failed one
        places = {
            place
            for place, (cell, figure) in enumerate(figures.items())
            if cell not in staying or figure is None
        }
        exported.add_result(
            {"name": name, "version": run.benchmark_version[name], "params": params},
            _asv_figures(figures, samples_of),
            started_at=datetime.fromtimestamp(run.started_at[name] / 1000, timezone.utc),
            duration=run.duration.get(name),
            selected_idx=places,
        )


def _asv_figures(figures: Figures, samples_of: UsedSamples) -> "BenchmarkResult":
    """Return the figures of a benchmark with their samples, as asv's runner returns them."""
    from asv.runner import BenchmarkResult

    # None: asv leaves their statistics as they are
    samples, numbers = zip(*(samples_of.get(cell, (None, None)) for cell in figures))
    return BenchmarkResult([*figures.values()], samples, numbers, 0, "", None)


def failed_cells(ran: Sequence[Path]) -> list[str]:
    """Return the cells that failed in their latest run of asv, by asv's files."""
    failed: dict[str, bool] = {}
    for path in ran:
        for _, _, figures in _figures_in(_load(path)):
            for cell, figure in figures.items():
                if figure is None or not math.isnan(figure):  # NaN: it was skipped
                    failed[cell] = figure is None
    return [cell for cell, lost in failed.items() if lost]


def _load(path: Path) -> "Results":
    from asv.results import Results  # not needed to read our own files

    return Results.load(str(path))


def _figures_in(results: "Results") -> Iterator[tuple[str, Sequence[Sequence[str]], Figures]]:
    """Yield the benchmarks in asv's results, with their parameters and the figure of each cell."""
    for name in results.get_all_result_keys():
        params = results.get_result_params(name)
        figures = results.get_result_value(name, params)
        yield name, params, dict(zip(cell_names(name, params), figures))
