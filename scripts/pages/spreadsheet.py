"""CSV files: results.csv with the figures of a page, figures.csv with those of all machines and releases.

Both are the frame of cells (analysis/results.py), a row per machine, toolchain and cell. figures.csv is too large to be
committed at each build, so the site carries it. The processes and samples behind a figure are in reports/results.
"""

import contextlib
import math
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from analysis.results import PARAMETERS, Results
from cli import put
from store import quiet
from toolchains import ledger

from .show import steady

FIGURES_CSV, FIGURES_COLUMNS_CSV = "figures.csv", "figures-columns.csv"
DIGITS = 7  # significant: the clock has fewer
# What a process's seconds are, in words
FIGURE = f"the {quiet.QUANTILE:.0%} quantile of its quiet samples".replace("%", " %")
COLUMNS: dict[tuple[str, ...], str] = {
    ("machine", "file"): "name of the machine, and of the result, as in reports/results: there file.jsonl.gz has the "
    "processes with all samples",
    ("history", "release", "released"): "of a toolchain of a history: the package whose release is meant, its version, "
    "the day of that release",
    ("torch", "numpy", "python"): "of the toolchain",
    ("benchmark",): "asv's name, module.Class.method; with the parameters in brackets it is the name of the cell",
    tuple(PARAMETERS): "parameters, empty where a benchmark has them not; nbytes: bytes of the source; memory: of the "
    "host, in transfers",
    ("direction", "contract"): "of the route: what it converts, and what its contract promises for that dtype: alias, "
    "copy or into",
    ("version",): "of the measurement: figures of different ones do not compare",
    ("status", "reason"): "measured, failed or skipped, and why there is no figure",
    ("seconds",): f"of what was timed: median over the processes, each by {FIGURE}, in seconds per call",
    ("low", "high", "cv"): "the least and the most of the processes that timed or counted it; their coefficient of "
    "variation",
    ("processes",): "that measured the cell",
    ("quiet",): "False where no process was quiet: seconds is an upper bound",
    ("value", "unit"): "of what was counted",
    ("instructions",): "of one call of the same route, dtype and size, where they were counted",
}
OF_RELEASE = {"history": "history", "release": "version", "released": "date"}  # column -> what it is of a toolchain


def columns_of(results: Results) -> dict[tuple[str, ...], str]:
    """The columns that the CSV of these results has, and what they mean."""
    more = tuple(name for name in results.parameters if not any(name in names for names in COLUMNS))
    return COLUMNS | ({more: "parameters of single families"} if more else {})


def csv_of(results: Results) -> str:
    """Every cell: what was timed, counted, or has no figure."""
    known = {commit: ledger.find(commit) for commit in results.cells["commit"].unique()}
    of_row = [known[commit] for commit in results.cells["commit"]]
    releases = {name: [getattr(one, field, "") for one in of_row] for name, field in OF_RELEASE.items()}
    wanted = [name for names in columns_of(results) for name in names]
    return text_of(results.cells.assign(**releases)[wanted], DIGITS)


def _number(digits: int, value: float) -> str:
    """Whole numbers as such: a column with holes holds floats."""
    value = steady(value)
    return f"{value:.0f}" if value % 1 == 0 else f"{value:.{digits}g}"


def text_of(table: pd.DataFrame, digits: int | None = None) -> str:
    """A table as CSV. What a spreadsheet would take for a formula, and is no number, has a quote before it. Several
    values of one entry stand with a space between them.

    digits  significant ones of numbers; None: all
    """
    texts = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    columns = {name: pd.Series(map(_quoted, table[name]), table.index, dtype=object) for name in texts}
    number = partial(_number, digits) if digits else None
    return str(table.assign(**columns).to_csv(index=False, lineterminator="\n", float_format=number))


def _quoted(entry: Any) -> Any:
    if isinstance(entry, tuple):
        return " ".join(map(str, entry))
    if isinstance(entry, str) and entry.startswith(("=", "@", "+", "-")):
        with contextlib.suppress(ValueError):
            return entry if math.isfinite(float(entry)) else f"'{entry}"
        return f"'{entry}"
    return entry


def write_figures(results: Results, directory: Path) -> None:
    """Write figures.csv, and the meaning of its columns, into a directory."""
    put(directory / FIGURES_CSV, csv_of(results))
    rows = [{"column": name, "meaning": words} for names, words in columns_of(results).items() for name in names]
    put(directory / FIGURES_COLUMNS_CSV, text_of(pd.DataFrame(rows)))
