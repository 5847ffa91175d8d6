"""figures.csv: every figure of all machines and releases as one table, a row per cell and toolchain.

Too large to be committed at each build: the site carries them. The samples behind a figure are in reports/results.
"""

import io
from pathlib import Path

import pandas as pd
from analysis.results import PARAMETERS, Results
from cli import put
from toolchains import ledger

from .spreadsheet import FIGURE

CSV, COLUMNS_CSV = "figures.csv", "figures-columns.csv"
COLUMNS: dict[tuple[str, ...], str] = {
    ("machine",): "name of the machine, as in reports/results",
    ("history", "release", "released"): "of a toolchain of a history: the package whose release is meant, its version, "
    "the day of that release",
    ("torch", "numpy", "python"): "what was imported, torch with its build variant",
    ("benchmark",): "asv's name, module.Class.method",
    tuple(PARAMETERS): "parameters, empty where a benchmark has them not; nbytes: bytes of the source; memory: of the "
    "host, in transfers",
    ("contract",): "what the route's contract promises for that dtype: alias, copy or into",
    ("version",): "of the measurement: figures of different ones do not compare",
    ("seconds",): f"of what was timed: median over the processes, each by {FIGURE}, in seconds a call",
    ("low", "high"): "the least and the most of the processes, or of the repeats of a count",
    ("processes",): "that measured the cell",
    ("quiet",): "False where no process was quiet: seconds is an upper bound",
    ("value", "unit"): "of what was counted",
}


def columns_of(results: Results) -> dict[tuple[str, ...], str]:
    """The columns of the table of these results, and what they mean."""
    more = tuple(name for name in results.parameters if name not in PARAMETERS)
    return {**COLUMNS, **({more: "parameters of single families"} if more else {})}


def table_of(results: Results) -> pd.DataFrame:
    """What was timed, then what was counted, a row a cell and toolchain; columns as of ``columns_of``."""
    every = pd.concat([part.astype(object) for part in (results.timed, results.values)], ignore_index=True)
    known = {commit: ledger.find(commit) for commit in every["commit"].unique()}
    of_row = [known[commit] for commit in every["commit"]]
    every["history"] = [toolchain.history if toolchain else "" for toolchain in of_row]
    every["release"] = [toolchain.version if toolchain else "" for toolchain in of_row]
    every["released"] = [toolchain.date if toolchain else "" for toolchain in of_row]
    table = every.reindex(columns=[name for names in columns_of(results) for name in names])
    for name in ("nbytes", "processes"):
        table[name] = pd.to_numeric(table[name]).astype("Int64")
    for name in ("seconds", "low", "high", "value"):
        table[name] = pd.to_numeric(table[name])
    table["quiet"] = table["quiet"].astype("boolean")
    rest = [name for name in table if table[name].dtype == object]  # a parameter of numbers and words is words
    return table.assign(**{name: table[name].map(str, na_action="ignore").astype("string") for name in rest})


def write(results: Results, directory: Path) -> None:
    """Write the table, and the meaning of its columns, into a directory."""
    table, text = table_of(results), io.StringIO()
    table.to_csv(text, index=False, lineterminator="\n", float_format="%.7g")
    put(directory / CSV, text.getvalue())
    rows = [{"column": name, "meaning": words} for names, words in columns_of(results).items() for name in names]
    put(directory / COLUMNS_CSV, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))
