"""The loader: asv's result files and their run records as tidy tables. Everything else starts from these."""

import ast
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from toolchains import installed, ledger

from . import calm
from .cli import UserError, harmless

ASV_RESULT_VERSION = 2
# What Python says of a file that holds something else: no JSON, other kinds, names that are not there, numbers of four
# hundred digits, brackets in brackets in brackets
BROKEN = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, SyntaxError, RecursionError, MemoryError)
# Parameters that benchmarks of this suite have; a table has a column for each, empty where a benchmark has it not
PARAMETERS = ("route", "dtype", "nbytes", "layout", "threads", "memory", "statement")
# Parameters that single benchmarks have; a table has a column for each only where it holds such a benchmark
MORE_PARAMETERS = ("direction", "part", "form", "quantity")
# The other columns: what every table has, and what each has of its own
NAMES = (
    *("machine", "file", "commit", "toolchain", "torch", "numpy", "python"),
    *("benchmark", "family", "group", "method", "cell"),
)
TIMING = ("process", "seconds", "median", "samples", "number", "calm", "run")
COUNTING = ("value", "unit")
MISSING = ("status", "reason")
# What is read of a benchmark, a contract and a run record, with its kind; "a.b" is b in a
BENCHMARK = {"name": str, "type": str, "unit": str, "params": list, "param_names": list}
FILE = {"commit_hash": str, "python": str, "params": dict, "params.machine": str, "results": dict}
CONTRACT = {
    **dict.fromkeys(("direction", "expression", "memory", "casts_to", "needs", "hazard", "caution"), str),
    **dict.fromkeys(("inputs", "refuses"), dict),
    "view": bool,
}
RECORD = {
    **dict.fromkeys(
        ("toolchain", "settings", "conditions", "conditions.caches", "skipped", "failures", "disturbed_cells"), dict
    ),
    **dict.fromkeys(("toolchain.tag", "toolchain.torch", "toolchain.numpy", "command", "started"), str),
    "floors": dict,
    "calm": (int, float, type(None)),
    **dict.fromkeys(("samples", "retaken", "disturbed", "seconds", "conditions.memory_bytes"), (int, float)),
}


@dataclass(frozen=True)
class Results:
    """Results of one or more runs.

    processes  one row a cell and process. machine, commit, toolchain, torch, numpy, python; benchmark
               (module.Class.method), family (module), group (Class), method, cell (asv's name with parameters), a
               column for each of PARAMETERS; version (of the measurement); process (the round it is of: 0, 1, ...),
               seconds (its figure: a quantile of its samples, see calm.py), median, samples (how many it was to take),
               number (calls a sample), calm (whether the machine ran at full speed meanwhile; None where nobody
               watched), run (when the run began that it is of; "" where that is not known). Of a cell with calm
               processes the others are left out, of one without all but the fastest sample
    values     one row a cell that is counted and not timed (track_*): the same names, then value and unit
    missing    one row a cell that has no figure: the same names, then status (failed or skipped) and reason
    samples    row label in `processes` -> the samples in seconds that the row rests on
    runs       the run records, oldest first
    contracts  (direction, route) -> what the route promises
    benchmarks asv's own description of every benchmark
    unknown    (file, benchmark) -> figures of a benchmark that benchmarks.json does not describe (any more)
    """

    processes: pd.DataFrame
    values: pd.DataFrame
    missing: pd.DataFrame
    samples: Mapping[int, np.ndarray]
    runs: list[dict[str, Any]]
    contracts: Mapping[tuple[str, str], dict[str, Any]]
    benchmarks: Mapping[str, dict[str, Any]]
    unknown: Mapping[tuple[str, str], int] = field(default_factory=dict)


def read_json(path: Path) -> Any:
    """A JSON file, made harmless; UserError if it is not there or broken. asv writes bare NaN, which Python reads."""
    only_file(path)
    try:
        return harmless(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except BROKEN as error:
        raise UserError(f"{path} is broken ({error}): remove it or restore it from git") from None


def only_file(path: Path) -> bool:
    """Whether there is such a file; UserError where something else has its name: a pipe hangs, a link leads nowhere."""
    if os.path.lexists(path) and not path.is_file():
        raise UserError(f"{path} is no file: remove it or restore it from git")
    return path.is_file()


def machines(results: Path) -> list[str]:
    """The machines that have results, by name."""
    if not results.is_dir():
        raise UserError(f"{results}: no such directory; python scripts/run.py makes results")
    found = sorted({path.parent.name for path in results.glob("*/*.json") if path.name != "machine.json"})
    if not found:
        raise UserError(f"{results} holds no results; python scripts/run.py makes some")
    for name in found:
        if name in installed.TAKEN or not name.isprintable():
            raise UserError(f"{results} holds results of a machine named {name!a}: rename its directory")
    return found


def load(results: Path, machine: str | None = None, toolchain: str | None = None) -> Results:
    """Load a results directory of asv, or what one machine (and one toolchain, by tag or commit) has in it.

    UserError where the directory, the machine or the toolchain is not there, is empty, or a file is broken.
    """
    known = machines(results)
    if machine is not None and machine not in known:
        raise UserError(f"{results} holds no results of {machine}; it knows {', '.join(known)}")
    paths = [
        path
        for name in (known if machine is None else [machine])
        for path in sorted((results / name).glob("*.json"))
        if path.name != "machine.json"
    ]
    return load_files(results, paths, toolchain)


def load_files(results: Path, paths: Sequence[Path], toolchain: str | None = None) -> Results:
    """Load these result files of a results directory of asv, or what one toolchain has in them; see load."""
    benchmarks = read_json(results / "benchmarks.json")
    if not isinstance(benchmarks, dict):
        raise UserError(f"{results / 'benchmarks.json'} is not asv's: remove it or restore it from git")
    benchmarks = {name: benchmark for name, benchmark in benchmarks.items() if isinstance(benchmark, dict)}
    contracts = _contracts(benchmarks)
    for name, benchmark in benchmarks.items():
        params, names = benchmark.get("params", []), benchmark.get("param_names", [])
        if not isinstance(params, list) or not isinstance(names, list) or len(params) != len(names):
            raise UserError(f"benchmarks.json names other parameters of {name} than it has: restore it from git")
    runs: list[dict[str, Any]] = []
    tables: tuple[list, list, list] = ([], [], [])
    samples: list[np.ndarray] = []
    unknown: dict[tuple[str, str], int] = {}
    for path in paths:
        records = read_runs(path.with_suffix(".jsonl"))
        runs += records
        _load_file(path, records, watched_in(path), benchmarks, tables, samples, unknown, toolchain)
    if not any(tables):
        what = f" of {toolchain}" if toolchain else ""
        raise UserError(f"{results} holds no figures{what}; python scripts/run.py makes some")
    processes, values, missing = (
        pd.DataFrame(rows) if rows else pd.DataFrame(columns=[*NAMES, *PARAMETERS, "version", *own])
        for rows, own in zip(tables, (TIMING, COUNTING, MISSING))
    )
    return Results(
        processes=processes,
        values=values,
        missing=missing,
        samples=dict(enumerate(samples)),
        runs=sorted(runs, key=lambda record: str(record.get("started"))),
        contracts=contracts,
        benchmarks=benchmarks,
        unknown=unknown,
    )


def check(found: Mapping[str, Any], kinds: Mapping[str, Any], required: Sequence[str] = ()) -> None:
    """TypeError where something that is there is not of its kind, KeyError where something required is not there."""
    for name, kind in kinds.items():
        outer, _, inner = name.rpartition(".")
        holder = found.get(outer, {}) if outer else found
        if inner not in holder:
            if name in required:
                raise KeyError(name)
        elif not isinstance(holder[inner], kind) or holder[inner] in (math.inf, -math.inf):
            raise TypeError(f"{name} is {holder[inner]!r}")


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The run records beside a result file, oldest first; none where asv was run by hand."""
    if not only_file(path):
        return []
    try:
        records = [harmless(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        for record in records:
            check(record, RECORD, ("toolchain", "toolchain.tag", "skipped"))
            if not all(isinstance(count, int) and count >= 0 for count in record.get("disturbed_cells", {}).values()):
                raise TypeError("disturbed_cells holds more than counts")
        return [{**record, "file": path.stem} for record in records]
    except BROKEN as error:
        raise UserError(f"{path} is broken ({error}): remove it or restore it from git") from None


@dataclass(frozen=True)
class Watched:
    """Samples that stand between pulses. processes: cell -> round -> what is used; taken: cell -> all its samples."""

    processes: Mapping[str, Mapping[int, calm.Process]]
    taken: Mapping[str, set[float]]


def watched_in(path: Path) -> Watched:
    """What lies beside a result file of samples and their pulses; nothing where asv was run by hand."""
    beside = path.with_suffix(calm.SUFFIX)
    only_file(beside)
    try:
        lines = calm.read(beside)
        taken: dict[str, set[float]] = {}
        for line in lines:
            taken.setdefault(calm.name_of(line), set()).update(line["seconds"])
        return Watched(calm.chosen(lines), taken)
    except BROKEN as error:
        raise UserError(f"{beside} is broken ({error}): remove it or restore it from git") from None


def _contracts(benchmarks: Mapping[str, dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    contracts = {}
    try:
        for benchmark in benchmarks.values():
            for route, contract in benchmark.get("contracts", {}).items():
                check(contract, CONTRACT, ("direction", "expression", "memory"))
                for words in (contract.get("inputs", {}), contract.get("refuses", {})):
                    if not all(isinstance(word, str) for word in words.values()):
                        raise TypeError(words)
                contracts[contract["direction"], route] = contract
        return contracts
    except BROKEN:
        raise UserError("benchmarks.json holds contracts this cannot read: remove it or restore it from git") from None


def _cells(
    benchmark: Mapping[str, Any], row: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """Name, spelled parameters and parameters of each cell of a benchmark, in the result file's order."""
    params = row["params"] or []
    for spellings in itertools.product(*params):
        cell = f"{benchmark['name']}({', '.join(spellings)})" if params else benchmark["name"]
        values = (harmless(ast.literal_eval(spelling)) for spelling in spellings)
        yield cell, spellings, dict(zip(benchmark["param_names"], values))


def _load_file(
    path: Path,
    records: list[dict[str, Any]],
    watched: Watched,
    benchmarks: Mapping[str, dict[str, Any]],
    tables: tuple[list, list, list],
    samples: list[np.ndarray],
    unknown: dict[tuple[str, str], int],
    toolchain: str | None,
) -> None:
    file = read_json(path)
    try:
        if file["version"] != ASV_RESULT_VERSION:
            raise UserError(f"{path} is of asv's format {file['version']}, this reads {ASV_RESULT_VERSION}: asv update")
        check(file, FILE, list(FILE))
        made = records[-1]["toolchain"] if records else _of_history(file["commit_hash"])
        common = {
            "machine": file["params"]["machine"],
            "file": path.stem,
            "commit": file["commit_hash"],
            "toolchain": made.get("tag", file["commit_hash"][:8]),
            "torch": made.get("torch", ""),
            "numpy": made.get("numpy", ""),
            "python": file["python"],
        }
        if toolchain is not None and common["toolchain"] != toolchain and not common["commit"].startswith(toolchain):
            return
        rounds = sum(map(rounds_of, visits_of(records)))
        reasons = {
            cell: why
            for record in records
            for why, cells in [*record["skipped"].items(), *(record.get("failures") or {}).items()]
            for cell in cells
        }
        columns = file["result_columns"]
        for name, entries in file["results"].items():
            if name in benchmarks:
                if benchmarks[name]["name"] != name:
                    raise KeyError(name)
                row = dict(zip(columns, entries))
                _load_benchmark(benchmarks[name], row, watched, rounds, common, reasons, tables, samples)
            else:
                figures = dict(zip(columns, entries))["result"] or []
                unknown[path.stem, name] = sum(value is not None and value == value for value in figures)
    except BROKEN as error:
        raise UserError(
            f"{path} is not a result file of this suite ({type(error).__name__}: {error}): remove it or restore it"
        ) from None


def visits_of(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the run records of a file, oldest first, the last run and the later ones that added their processes to it."""
    first = max((place for place, record in enumerate(records) if "drift" not in record), default=0)
    return list(records[first:])


def rounds_of(record: Mapping[str, Any]) -> int:
    """How many processes a run took of a cell; 0 where its record does not say."""
    return int(record.get("rounds") or 0)


def _of_history(commit: str) -> dict[str, str]:
    """What a run record would say of a commit that asv was run for by hand; nothing of one outside the histories."""
    found = ledger.find(commit)
    return {"tag": found.tag, "torch": found.torch, "numpy": found.numpy} if found else {}


def _load_benchmark(
    benchmark: Mapping[str, Any],
    row: dict[str, Any],
    watched: Watched,
    rounds: int,
    common: dict[str, Any],
    reasons: Mapping[str, str],
    tables: tuple[list, list, list],
    samples: list[np.ndarray],
) -> None:
    processes, values, missing = tables
    check(benchmark, BENCHMARK, list(BENCHMARK))
    check(row, {"version": str}, ["version"])
    family, group, method = (benchmark["name"].split(".") + ["", ""])[:3]
    names = {**common, "benchmark": benchmark["name"], "family": family, "group": group, "method": method}
    timed = benchmark["type"] == "time"
    if len(row["params"] or []) != len(benchmark["param_names"]):
        raise ValueError(f"{benchmark['name']} has {len(row['params'] or [])} parameters")
    if min(benchmark.get("samples_per_process", []), default=1) < 1:
        raise ValueError(f"samples_per_process of {benchmark['name']} holds {min(benchmark['samples_per_process'])}")
    each = dict(zip(map(tuple, itertools.product(*benchmark["params"])), benchmark.get("samples_per_process", [])))
    results, taken, numbers = row["result"], row.get("samples"), row.get("stats_number")
    for index, (cell, spellings, parameters) in enumerate(_cells(benchmark, row)):
        value = results[index] if results else None
        labels = {**names, "cell": cell, **dict.fromkeys(PARAMETERS), **parameters, "version": row["version"]}
        if value is None or (isinstance(value, float) and math.isnan(value)):
            if value is None or cell in reasons:
                status = "failed" if value is None else "skipped"
                missing.append({**labels, "status": status, "reason": reasons.get(cell, "")})
            continue  # any other NaN: not part of a run
        if not timed:
            if not isinstance(value, (int, float)) or not math.isfinite(value):
                raise TypeError(f"{cell} is {value!r}")
            values.append({**labels, "value": value, "unit": benchmark["unit"]})
            continue
        raw = np.asarray(taken[index] if taken and taken[index] else [value], dtype=float)
        if not (np.isfinite(raw) & (raw > 0)).all():
            raise ValueError(f"{cell} took {raw.min()} to {raw.max()} seconds")
        own = watched.processes.get(cell, {})
        if own and watched.taken[cell].issuperset(raw.tolist()):
            found: list[tuple[int, np.ndarray, int, int, bool | None, str]] = [
                (number, np.asarray(process.samples), process.wanted, process.number, process.calm, process.run)
                for number, process in own.items()
            ]
        else:  # of a run by hand, or of a suite that took no pulses
            size = each.get(spellings, len(raw))
            if row["version"] != benchmark.get("version") and rounds:
                size = len(raw) // rounds or 1  # benchmarks.json says how many samples the present version takes
            if rounds and len(raw) > size and len(raw) % size:
                raise ValueError(f"{cell} has {len(raw)} samples, and a process takes {size}")
            parts = raw.reshape(-1, size) if len(raw) % size == 0 else raw.reshape(1, -1)
            calls = int(numbers[index]) if numbers else 1
            if calls < 1:
                raise ValueError(f"{cell} made {calls} calls a sample")
            found = [(number, part, len(part), calls, None, "") for number, part in enumerate(parts)]
        for process, part, wanted, calls, quiet, run in found:
            figure, middle = np.quantile(part, (calm.UNWATCHED if quiet is None else calm.QUANTILE, 0.5))
            timing = {"process": process, "seconds": figure, "median": middle}
            timing |= {"samples": wanted, "number": calls, "calm": quiet, "run": run}
            processes.append({**labels, **timing})
            samples.append(part)


def summarize(processes: pd.DataFrame) -> pd.DataFrame:
    """One row a cell: seconds (median over processes), low and high (their range), cv (between them), processes; each
    and rounds (tuples of the seconds and of the round of every process), watched (whether somebody looked if the
    machine was calm) and calm (False where it was for no process of the cell)."""
    keys = [c for c in processes.columns if c not in TIMING]
    calm = processes["calm"] if "calm" in processes else pd.Series(None, processes.index, dtype=object)
    looked = processes.assign(watched=calm.notna(), busy=calm.eq(False).fillna(False).astype(bool))
    grouped = looked.groupby(keys, dropna=False, sort=False)
    table = grouped["seconds"].agg(seconds="median", low="min", high="max", mean="mean", std="std", processes="size")
    table["cv"] = table.pop("std") / table.pop("mean")
    table["each"], table["rounds"] = grouped["seconds"].agg(tuple), grouped["process"].agg(tuple)
    table["watched"], table["calm"] = grouped["watched"].all(), ~grouped["busy"].all()
    return table.reset_index()
