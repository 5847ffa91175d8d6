"""Check whether submitted results may be published. Only content of this suite is accepted.

The steps check the directory, then the content of its files, then the measurements. A step runs
only if the one before found nothing, so each can rely on the earlier checks. ``pages/build.py``
puts findings into words.
"""

import json
import os
import platform
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat, starmap
from pathlib import Path
from typing import Any, NamedTuple

from cli import MAX_TEXT_LENGTH, UserError
from store import asv_files, files
from store.frames import rows_of
from store.schema import (
    Conditions,
    Counts,
    RunRecord,
    Settings,
    TimedProcess,
    Toolchain,
    cell_name,
    cell_names,
)
from toolchains import environments, ledger

from benchmarks.contracts import COPY, INTO, ONE_THREAD, Role

from .cells import cells_of, limit_of
from .results import Results, load_files, where
from .statistics import MIN_PROCESSES
from .transfers import too_fast, transfers_of, worst

# Of a machine: files, and bytes of all of them, decompressed. 26 toolchains in eight rounds and a
# standard profile take 47 MiB of text
MAX_FILES, MAX_BYTES = 301, 64 * 2**20
MAX_RUNS = 20  # of a toolchain
MAX_FINDINGS = 20  # reported
MAX_NOISY_SHARE = 0.25  # of timed cells, without a quiet process
# Allowed ratio of a copy's bandwidth to memcpy's. Noise may slow memcpy, too, and 1.1 is seen
MAX_MEMCPY_RATIO = 1.5
MIN_CHECKED_BYTES = 4096  # of a copy: below, the call decides
# Patterns in JSON: a path of a machine, a host, an escape of an unprintable character. Each begins
# with a literal and looks back by two at most, so the time is proportional to the text. Names of
# people have no pattern: CONTRIBUTING.md asks to read the files for them
PRIVATE = (
    r"/(?<![\w:/.)\]]/)[\w.]|~/|:\\|\\(?<!\\\\)(?:\\\\)*[bfnrtu]"
    r"|\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\w.-])|\.(?:local|lan|internal|localdomain|home|corp|intra)\b"
    r"|DESKTOP-\w|LAPTOP-\w|ip-\d+-\d"
)
STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')  # of JSON
QUOTED_LETTERS = 30  # of a long text, and on each side of a private one
IMPERSONAL = {"localhost", "root", "runner", "user", "admin", "linux", "ubuntu", "debian", "fedora"}
IMPERSONAL |= {"docker"}
OBJECTS = ("toolchain", "settings", "conditions", "params")  # others hold data, not fields
BY_REASON = ("skipped", "failures", "device_changed")  # reason -> cells
ROWS = (RunRecord, Toolchain, Settings, Conditions, TimedProcess, Counts)
FIELDS = asv_files.FIELDS | {name for row in ROWS for name in row.__struct_fields__} - {"file"}
# Kinds of names in a file: fields, names of cells, of the machine, ...
KINDS = ("cell", "text", "long", "toolchain", "field", "foreign", "runner", "figure")
Names = defaultdict[str, set[Any]]  # kind -> names
Benchmarks = Mapping[str, Mapping[str, Any]]  # as in benchmarks.json
Parameters = Mapping[str, Any]  # benchmark -> the values of its parameters


class Finding(NamedTuple):
    """A problem.

    file     its file in the directory
    kind     a block of pages/templates/prose/submission.md.jinja
    subject  what it is about, and ``further`` ones of its kind
    values   found and allowed
    """

    file: str
    kind: str
    subject: str = ""
    values: tuple[object, ...] = ()
    further: int = 0


def findings(directory: Path, suite: Path) -> list[Finding]:
    """Return the first MAX_FINDINGS problems of the results in a machine's directory.

    suite  this suite's own benchmarks.json: a submitted one is not used

    UserError if there are no results at all.
    """
    directory = directory.absolute()
    described = files.read_entries(suite)
    steps = (
        _check_directory(directory),
        _check_files(directory, described),
        _check_figures(directory, suite.parent, described),
    )
    try:
        for step in steps:
            if found := list(islice(step, MAX_FINDINGS)):
                return found
    except files.BrokenFile as error:
        path, reason = error.args
        return [Finding(path.name, "broken_file", reason)]
    return []


def _for_names(
    file: str, names: Mapping[str, Collection[object]], *values: object
) -> Iterator[Finding]:
    """Yield one finding per kind with any names."""
    for kind, subjects in names.items():
        if subjects:
            yield Finding(file, kind, min(map(str, subjects)), values, len(subjects) - 1)


def _check_directory(directory: Path) -> Iterator[Finding]:
    """Check that the directory holds only files with names of results. Nothing is opened."""
    entries: list[Path] = []
    if directory.is_dir() and not directory.is_symlink():
        entries = list(islice(directory.iterdir(), MAX_FILES + 1))
    results = [path for path in entries if files.RESULT_FILE.fullmatch(path.name)]
    if not results:
        raise UserError(
            f"{directory} holds no results: name reports/results/MACHINE, which run.py fills"
        )
    needed = {files.MACHINE}
    for path in results:
        needed |= {files.sibling(path, suffix).name for suffix in (".json", files.RECORDS)}
    names = {path.name for path in entries}
    expected = {files.MACHINE, *(path.name for path in results)}
    ordinary = {path.name for path in entries if path.is_file() and not path.is_symlink()}
    problems = {
        "many": names if len(entries) > MAX_FILES else (),
        "strange": names - (expected & ordinary),
        "name": {files.machine_name_problem(directory.name)} - {""},
        "absent": needed - names,
    }
    yield from _for_names(directory.name, problems, MAX_FILES)


# --- names in files -------------------------------------------------------------------------------


def _check_files(directory: Path, described: Benchmarks) -> Iterator[Finding]:
    """Find fields, texts and cells that this suite (``described``) does not write, and those of
    other machines."""
    suite = {name: benchmark["params"] for name, benchmark in described.items()}
    runner = environments.pins()["asv_runner"]
    allowed = {
        "field": FIELDS,
        "cell": {*chain(*starmap(cell_names, suite.items()))},
        "foreign": {directory.name},
        "runner": {"", runner},
    }
    bytes_left = MAX_BYTES
    measured: set[str] = set()  # cells and toolchains of the result's processes and runs
    for path in sorted(directory.iterdir(), reverse=True):  # processes, runs, then asv's file
        with files.reading(path):
            texts = files.read_texts(path)
            bytes_left -= sum(map(len, texts))
            if bytes_left < 0 or (len(texts) > MAX_RUNS and path.suffix == files.RECORDS):
                yield Finding(path.name, "large", values=(MAX_BYTES >> 20, MAX_RUNS))
                return
            names = _names_in(texts, suite)
        if path.suffix != ".json":
            measured |= names["cell"] | names["toolchain"]
        # a result's file is named after its commit
        of_commit = {name for name in measured if path.name.startswith(str(name)[:8])}
        allowed |= {"figure": measured, "toolchain": {"", *of_commit}}
        problems = {kind: names[kind] - allowed.get(kind, set()) for kind in KINDS}
        yield from _for_names(path.name, problems, directory.name, runner, MAX_TEXT_LENGTH)
        if path.suffix == ".json":
            measured = set()


def _private_pattern() -> "re.Pattern[str]":
    """Match ``PRIVATE`` texts, and this machine's and user's own names."""
    own_names = {platform.node(), os.environ.get("USER", "")} - IMPERSONAL
    personal = [rf"{re.escape(name)}\b" for name in own_names if len(name) > 3]
    return re.compile("|".join([PRIVATE, *personal]))


def _names_in(texts: Iterable[bytes], suite: Parameters) -> Names:
    """Return the names in a file's JSON texts, and its private, long and unprintable texts."""
    private = _private_pattern()
    names: Names = defaultdict(set)
    for loaded in map(json.loads, texts):
        text = json.dumps(loaded, ensure_ascii=False)
        for match in private.finditer(text):
            start = max(0, match.start() - QUOTED_LETTERS)
            names["text"].add(text[start : match.end() + QUOTED_LETTERS])
        strings = STRING.findall(text) if len(text) > MAX_TEXT_LENGTH else ()
        names["long"].update(
            each[1:QUOTED_LETTERS] for each in strings if len(each) > MAX_TEXT_LENGTH + len('""')
        )
        if not text.isprintable():
            names["text"].update(letter for letter in text if not letter.isprintable())
        for kind, of_kind in _names_of(loaded, suite):
            names[kind].update(of_kind)
    return names


def _names_of(loaded: Any, suite: Parameters) -> Iterator[tuple[str, Iterable[Any]]]:
    """Yield (kind, names) of an object in a file. suite: benchmark -> its parameters; others are no
    cell."""
    objects = [loaded, *(loaded[name] for name in OBJECTS if isinstance(loaded.get(name), dict))]
    columns = loaded.get("result_columns", ())
    yield "field", chain(columns, *objects)
    yield "foreign", [each["machine"] for each in objects if "machine" in each]
    if "benchmark" in loaded:
        yield "cell", [cell_name(loaded["benchmark"], loaded["params"])]
    yield "runner", [loaded.get("asv_runner", "")]
    toolchain = loaded.get("toolchain")
    commit = ledger.parse_toolchain(**toolchain).commit if toolchain else ""
    yield "toolchain", [commit or loaded.get("commit_hash", "")]
    yield "cell", loaded.get("noisy_cells", ())
    for reason in BY_REASON:
        yield "cell", chain(*loaded.get(reason, {}).values())
    for name, entries in loaded.get("results", {}).items():
        row = dict(zip(columns, entries))
        if not _is_part(row["params"], suite.get(name)):
            yield "cell", [name]
            continue
        figures = zip(cell_names(name, row["params"]), row["result"] or repeat(None))
        # NaN: it was skipped, or not asked for
        yield "figure", (cell for cell, value in figures if value == value)


def _is_part(params: Sequence[Sequence[str]], suite: Sequence[Sequence[str]] | None) -> bool:
    """Whether all values of a benchmark's parameters are the suite's. An older catalogue has
    fewer."""
    if suite is None or len(params) != len(suite):
        return False
    pairs = zip(params, suite)
    return all(len(values) <= len(allowed) and {*values} <= {*allowed} for values, allowed in pairs)


# --- measurements ---------------------------------------------------------------------------------


def _check_figures(directory: Path, results: Path, described: Benchmarks) -> Iterator[Finding]:
    """Find other versions of benchmarks, too few processes or quiet ones, and impossible times."""
    paths = files.result_files(directory.parent, directory.name)
    loaded = load_files(results, paths)
    for path in paths:
        result = loaded.of_file(files.result_name(path))
        versions = result.cells.drop_duplicates(["benchmark", "version"])
        other_versions = {
            name
            for name, version in zip(versions["benchmark"], versions["version"])
            if files.version_number(name, str(described[name].get("version"))) != version
        }
        unrecorded = set(result.processes["run"]) - {run.started for run in result.runs}
        problems = {"version": other_versions, "no_record": unrecorded}
        yield from _for_names(path.name, problems)
        if not (result.processes.empty or unrecorded):
            yield from _check_processes(path.name, result)
            yield from _check_speed(path.name, result)


def _check_processes(file: str, result: Results) -> Iterator[Finding]:
    """Find too few processes or quiet ones."""
    last_run = result.last
    if last_run.rounds < last_run.planned:
        yield Finding(file, "interrupted", values=(last_run.rounds, last_run.planned))
    rounds = max(run.rounds for run in result.runs)
    if rounds < MIN_PROCESSES:
        yield Finding(file, "few", values=(rounds, MIN_PROCESSES))
    noisy_share = 1 - float(result.timed["quiet"].mean())
    if noisy_share > MAX_NOISY_SHARE:
        yield Finding(file, "busy", values=(noisy_share, MAX_NOISY_SHARE))
    if noisy_share < 1 and result.processes["baseline"].isna().all():
        yield Finding(file, "unwatched", values=(noisy_share,))


def _check_speed(file: str, result: Results) -> Iterator[Finding]:
    """Find times below what memory and links allow."""
    cells = cells_of(result)
    limit = limit_of(cells)
    # copies by several threads may be faster than memcpy, which has one
    copies = where(cells, role=Role.CONVERSION, memory=(COPY, INTO), threads=ONE_THREAD)
    copies = copies[copies["nbytes"] >= MIN_CHECKED_BYTES]
    ratios = ((copy, limit.share(copy)) for copy in rows_of(copies))
    fast_copies = [(copy, ratio) for copy, ratio in ratios if ratio and ratio > MAX_MEMCPY_RATIO]
    for fast in (too_fast(transfers_of(result, cells)), worst({"memcpy": fast_copies})):
        if fast:
            yield Finding(file, fast.than, fast.worst.cell, (fast.cells, fast.reads))
