"""CSV files, and the meaning of their columns.

results.csv has the figures of a page, figures.csv the figures of all machines and releases. Both
are the table of cells (analysis/results.py), a row per machine, toolchain and cell. figures.csv is
too large to commit at each build, so only the site has it. The processes and samples behind a
figure are in reports/results.
"""

import contextlib
import math
from functools import partial
from itertools import chain
from pathlib import Path

import pandas as pd
from analysis.results import Results
from pandas import DataFrame, Series
from store.files import put
from store.frames import Cell, csv_columns
from toolchains import ledger

from . import show
from .show import round_last_bits

FIGURES_CSV, FIGURES_COLUMNS_CSV = "figures.csv", "figures-columns.csv"
DIGITS = 7  # significant digits: more than the clock has
# Column -> attribute of a toolchain
OF_RELEASE = {"history": "history", "release": "version", "released": "date"}


def column_meanings(block: str, **values: object) -> dict[tuple[str, ...], str]:
    """Meaning of the columns of a CSV file, in order: a paragraph of
    templates/prose/columns.md.jinja each."""
    meanings = {}
    for paragraph in show.render_paragraphs("columns", block, **values):
        names, _, meaning = paragraph.partition(": ")
        meanings[tuple(names.split(", "))] = meaning
    return meanings


def results_columns(results: Results) -> dict[tuple[str, ...], str]:
    """Meaning of the columns of the CSV of these results."""
    return csv_columns(Cell, results.parameters)


def results_csv(results: Results) -> str:
    """All cells as CSV: timed cells, counted ones, and cells without a figure."""
    of_row = [ledger.toolchains_by_commit().get(commit) for commit in results.cells["commit"]]
    releases = {
        name: [getattr(one, field, "") for one in of_row] for name, field in OF_RELEASE.items()
    }
    return to_csv(results.cells.assign(**releases)[[*chain(*results_columns(results))]], DIGITS)


def _number(digits: int, value: float) -> str:
    """Format whole numbers without a point: a column with missing values holds floats."""
    value = round_last_bits(value)
    return f"{value:.0f}" if value % 1 == 0 else f"{value:.{digits}g}"


def to_csv(table: DataFrame, digits: int | None = None) -> str:
    """A table as CSV. Text that a spreadsheet would read as a formula, and is not a number, gets a
    quote in front. Several values of one entry are separated by spaces.

    digits  significant digits of numbers; None: all
    """
    texts = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    columns = {name: Series(map(_quoted, table[name]), table.index, dtype=object) for name in texts}
    number = partial(_number, digits) if digits else None
    return str(
        table.assign(**columns).to_csv(index=False, lineterminator="\n", float_format=number)
    )


def _quoted(entry: object) -> object:
    if isinstance(entry, tuple):
        return " ".join(map(str, entry))
    if isinstance(entry, str) and entry.startswith(("=", "@", "+", "-")):
        with contextlib.suppress(ValueError):
            return entry if math.isfinite(float(entry)) else f"'{entry}"
        return f"'{entry}"
    return entry


def write_figures(results: Results, directory: Path) -> None:
    """Write figures.csv, and the meaning of its columns, into a directory."""
    put(directory / FIGURES_CSV, results_csv(results))
    rows = [
        {"column": name, "meaning": words}
        for names, words in results_columns(results).items()
        for name in names
    ]
    put(directory / FIGURES_COLUMNS_CSV, to_csv(DataFrame(rows)))
