"""results.csv: every figure of a page as plain rows, made to be read without the page and small enough to be kept.

What holds for every row, or for every row of a benchmark, is said once, in rows of its own kind.
"""

import io

import pandas as pd
from analysis.results import NAMES, OF_FIGURE, PARAMETERS, Results
from store import quiet

DIGITS = 7  # significant, of seconds: the clock has fewer
ABOUT = ("machine", "toolchain", "torch", "numpy", "python")
# What a process's seconds are, in words
FIGURE = f"the {quiet.QUANTILE:.0%} quantile of its quiet samples".replace("%", " %")
COLUMNS: dict[tuple[str, ...], str] = {
    ("kind",): "about (what holds for all rows: its name under benchmark, its value under note), benchmark (what holds "
    "for all rows of one), timed (a row a cell and process), counted (a row a cell), failed or skipped (no figure)",
    ("benchmark",): "asv's name, module.Class.method; with the parameters in brackets it is the name of the cell",
    tuple(PARAMETERS): "parameters, empty where a benchmark has them not; nbytes: bytes of the source; memory: of "
    "the host, in transfers",
    ("contract",): "what the route's contract promises for that dtype: alias, copy or into",
    ("process",): "0, 1, …: the processes that measured the cell",
    ("seconds",): f"the process's figure, {FIGURE}, in seconds a call, to {DIGITS} digits",
    ("median",): f"median of the process's samples, in seconds a call, to {DIGITS} digits",
    ("samples", "number"): "samples of the process, calls a sample",
    ("quiet",): "True or False: whether the machine was quiet while the process measured",
    ("value", "unit"): "what was counted",
    ("note",): "why there is no figure; of a benchmark: its direction and the version of the measurement (figures of "
    "different versions do not compare)",
}
REPEATED: dict[tuple[str, ...], str] = {
    ("low", "high"): "the least and the most of its repeats, of a count that has some"
}
RUN_COLUMN: dict[tuple[str, ...], str] = {
    ("run",): "when the run began that measured the process; empty where that is not known"
}
BESIDE: dict[tuple[str, ...], str] = {
    ("beside",): "name=seconds of each part that the process timed in turns with the cell, as of an overlap"
}
# Said once, or by other columns
DERIVED = (*NAMES, "version", "status", "reason", "run", "beside", "baseline", *OF_FIGURE)


def columns_of(results: Results) -> dict[tuple[str, ...], str]:
    """The columns that the CSV of these results has, and what they mean."""
    more = [name for name in results.parameters if name not in PARAMETERS]
    several = "run" in results.processes and results.processes["run"].nunique() > 1
    columns = {
        **COLUMNS,
        **(REPEATED if results.values["low"].notna().any() else {}),
        **(RUN_COLUMN if several else {}),
        **(BESIDE if results.processes["beside"].astype(bool).any() else {}),
    }
    return {**columns, **({tuple(more): "parameters of single families"} if more else {})}


def _tables(results: Results) -> tuple[pd.DataFrame, ...]:
    return results.processes, results.values, results.missing


def csv_of(results: Results) -> str:
    """Every figure: what was timed a row a cell and process, then what was counted, then what has no figure."""
    parts = [pd.DataFrame(_about(results))]
    for kind, table in zip(("timed", "counted", ""), _tables(results)):
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
    buffer = io.StringIO()
    table.to_csv(buffer, index=False, lineterminator="\n")
    return buffer.getvalue()


def _parts(beside: dict[str, float]) -> str:
    return " ".join(f"{name}={seconds:.{DIGITS}g}" for name, seconds in beside.items())


def _about(results: Results) -> list[dict[str, str]]:
    """The rows that say once what holds for many."""
    every = pd.concat([table[[*NAMES, "version"]].astype(object) for table in _tables(results)], ignore_index=True)
    rows = [
        {"kind": "about", "benchmark": name, "note": " and ".join(dict.fromkeys(map(str, every[name]))) or "unknown"}
        for name in ABOUT
    ]
    versions = dict(zip(every["benchmark"], every["version"]))
    for name, version in versions.items():
        contracts = results.benchmarks[name].contracts.values()
        directions = " and ".join(dict.fromkeys(contract.direction for contract in contracts))
        note = f"{directions}; version {version}" if directions else f"version {version}"
        rows.append({"kind": "benchmark", "benchmark": name, "note": note})
    return rows
