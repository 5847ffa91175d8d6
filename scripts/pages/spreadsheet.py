"""CSV files: results.csv with every figure of a page, figures.csv with those of all machines and releases.

results.csv is made to be read without the page and small enough to be kept: what holds for every row, or for every row
of a benchmark, is said once, in rows of its own kind. figures.csv has a row per cell and toolchain; it is too large to
be committed at each build, so the site carries it. The samples behind a figure are in reports/results.
"""

import contextlib
import math
from pathlib import Path
from typing import Any

import pandas as pd
from analysis.results import NAMES, OF_FIGURE, PARAMETERS, Results
from cli import put
from store import quiet
from toolchains import ledger

FIGURES_CSV, FIGURES_COLUMNS_CSV = "figures.csv", "figures-columns.csv"
DIGITS = 7  # significant, of seconds: the clock has fewer
ABOUT = ("machine", "toolchain", "torch", "numpy", "python")
# What a process's seconds are, in words
FIGURE = f"the {quiet.QUANTILE:.0%} quantile of its quiet samples".replace("%", " %")
ROUTE: dict[tuple[str, ...], str] = {
    tuple(PARAMETERS): "parameters, empty where a benchmark has them not; nbytes: bytes of the source; memory: of the "
    "host, in transfers",
    ("contract",): "what the route's contract promises for that dtype: alias, copy or into",
}
COLUMNS: dict[tuple[str, ...], str] = {
    ("kind",): "about (what holds for all rows: its name under benchmark, its value under note), benchmark (what holds "
    "for all rows of one), timed (a row a cell and process), counted (a row a cell), failed or skipped (no figure)",
    ("benchmark",): "asv's name, module.Class.method; with the parameters in brackets it is the name of the cell",
    **ROUTE,
    ("process",): "0, 1, …: the processes that measured the cell",
    ("seconds",): f"the process's figure, {FIGURE}, in seconds a call, to {DIGITS} digits",
    ("median",): f"median of the process's samples, in seconds a call, to {DIGITS} digits",
    ("samples", "number"): "samples of the process, calls a sample",
    ("quiet",): "True or False: whether the machine was quiet while the process measured",
    ("value", "unit"): "what was counted",
    ("note",): "why there is no figure; of a benchmark: its direction and the version of the measurement (figures of "
    "different versions do not compare)",
}
FIGURES: dict[tuple[str, ...], str] = {
    ("machine",): "name of the machine, as in reports/results",
    ("history", "release", "released"): "of a toolchain of a history: the package whose release is meant, its version, "
    "the day of that release",
    ("torch", "numpy", "python"): "what was imported, torch with its build variant",
    ("benchmark",): "asv's name, module.Class.method",
    **ROUTE,
    ("version",): "of the measurement: figures of different ones do not compare",
    ("seconds",): f"of what was timed: median over the processes, each by {FIGURE}, in seconds a call",
    ("low", "high"): "the least and the most of the processes, or of the repeats of a count",
    ("processes",): "that measured the cell",
    ("quiet",): "False where no process was quiet: seconds is an upper bound",
    ("value", "unit"): "of what was counted",
}
# Said once, or by other columns
DERIVED = (*NAMES, "version", "status", "reason", "run", "beside", "baseline", *OF_FIGURE)


def _of_families(results: Results) -> dict[tuple[str, ...], str]:
    """The columns of parameters that only some families have."""
    more = tuple(name for name in results.parameters if name not in PARAMETERS)
    return {more: "parameters of single families"} if more else {}


def columns_of(results: Results) -> dict[tuple[str, ...], str]:
    """The columns that the CSV of these results has, and what they mean."""
    columns = dict(COLUMNS)
    if results.values["low"].notna().any():
        columns["low", "high"] = "the least and the most of its repeats, of a count that has some"
    if "run" in results.processes and results.processes["run"].nunique() > 1:
        columns[("run",)] = "when the run began that measured the process; empty where that is not known"
    if results.processes["beside"].astype(bool).any():
        columns[("beside",)] = (
            "name=seconds of each part that the process timed in turns with the cell, as of an overlap"
        )
    return columns | _of_families(results)


def csv_of(results: Results) -> str:
    """Every figure: what was timed a row a cell and process, then what was counted, then what has no figure."""
    parts = [pd.DataFrame(_about(results))]
    for kind, table in (("timed", results.processes), ("counted", results.values), ("", results.missing)):
        part = table.copy()
        part.insert(0, "kind", kind or part["status"])
        part["note"] = part.get("reason", "")
        parts.append(part.astype(object))
    table = pd.concat(parts, ignore_index=True)
    wanted = [name for names in columns_of(results) for name in names]
    table = table.reindex(columns=[*wanted, *(name for name in table if name not in (*wanted, *DERIVED))])
    for column in ("nbytes", "process", "samples", "number"):
        table[column] = pd.to_numeric(table[column]).astype("Int64")
    if "value" in table:
        table["value"] = [f"{value:.0f}" if value % 1 == 0 else value for value in table["value"]]
    if "beside" in table:
        table["beside"] = [_parts(beside) if isinstance(beside, dict) else "" for beside in table["beside"]]
    for column in ("seconds", "median"):
        table[column] = [f"{value:.{DIGITS}g}" if pd.notna(value) else "" for value in table[column]]
    return text_of(table)


def text_of(table: pd.DataFrame, **options: Any) -> str:
    """A table as CSV. What a spreadsheet would take for a formula, and is no number, has a quote before it."""
    texts = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    columns = {name: pd.Series(map(_quoted, table[name]), table.index, dtype=object) for name in texts}
    return str(table.assign(**columns).to_csv(index=False, lineterminator="\n", **options))


def _quoted(entry: Any) -> Any:
    if isinstance(entry, str) and entry.startswith(("=", "@", "+", "-")):
        with contextlib.suppress(ValueError):
            return entry if math.isfinite(float(entry)) else f"'{entry}"
        return f"'{entry}"
    return entry


def _parts(beside: dict[str, float]) -> str:
    return " ".join(f"{name}={seconds:.{DIGITS}g}" for name, seconds in beside.items())


def _about(results: Results) -> list[dict[str, str]]:
    """The rows that say once what holds for many."""
    tables = (results.processes, results.values, results.missing)
    every = pd.concat([table[[*NAMES, "version"]].astype(object) for table in tables], ignore_index=True)
    rows = [
        {"kind": "about", "benchmark": name, "note": " and ".join(dict.fromkeys(map(str, every[name]))) or "unknown"}
        for name in ABOUT
    ]
    for name, version in dict(zip(every["benchmark"], every["version"])).items():
        directions = dict.fromkeys(contract.direction for contract in results.benchmarks[name].contracts.values())
        note = f"{' and '.join(directions)}; version {version}" if directions else f"version {version}"
        rows.append({"kind": "benchmark", "benchmark": name, "note": note})
    return rows


def figures_of(results: Results) -> pd.DataFrame:
    """What was timed, then what was counted, a row a cell and toolchain; columns as of FIGURES."""
    every = pd.concat([part.astype(object) for part in (results.timed, results.values)], ignore_index=True)
    known = {commit: ledger.find(commit) for commit in every["commit"].unique()}
    of_row = [known[commit] for commit in every["commit"]]
    for name, field in (("history", "history"), ("release", "version"), ("released", "date")):
        every[name] = [getattr(toolchain, field) if toolchain else "" for toolchain in of_row]
    table = every.reindex(columns=[name for names in (*FIGURES, *_of_families(results)) for name in names])
    for name in ("nbytes", "processes"):
        table[name] = pd.to_numeric(table[name]).astype("Int64")
    for name in ("seconds", "low", "high", "value"):
        table[name] = pd.to_numeric(table[name])
    table["quiet"] = table["quiet"].astype("boolean")
    rest = [name for name in table if table[name].dtype == object]  # a parameter of numbers and words is words
    return table.assign(**{name: table[name].map(str, na_action="ignore").astype("string") for name in rest})


def write_figures(results: Results, directory: Path) -> None:
    """Write figures.csv, and the meaning of its columns, into a directory."""
    put(directory / FIGURES_CSV, text_of(figures_of(results), float_format="%.7g"))
    columns = FIGURES | _of_families(results)
    rows = [{"column": name, "meaning": words} for names, words in columns.items() for name in names]
    put(directory / FIGURES_COLUMNS_CSV, text_of(pd.DataFrame(rows)))
