"""May results that somebody submits be published? Whole, of this suite, calm enough, of nobody's home, and possible.

What is wrong is found as data, most of it file by file; pages/submission.py says it, and what to do.
"""

import getpass
import json
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cli import UserError
from store import files
from store.files import BROKEN, BrokenFile, places_of, read_json, read_records, result_files
from store.records import Conditions, Record, Settings, Toolchain

from benchmarks.contracts import COPY, INTO
from benchmarks.families import CONVERSION

from .cells import cells_of, limit_of
from .results import Results, load_files
from .statistics import MIN_PROCESSES
from .transfers import TooFast, beyond_capacity, beyond_limit, beyond_memory, transfers_of

# What a finding may be: the blocks of pages/templates/prose/submission.md.jinja
BROKEN_FILE, NO_RECORD, NO_SAMPLES, NO_MACHINE = "broken_file", "no_record", "no_samples", "no_machine"
INTERRUPTED, FAILED, VERSION, UNKNOWN = "interrupted", "failed", "version", "unknown"
RUNNER, FOREIGN, BUSY, UNWATCHED, FEW = "runner", "foreign", "busy", "unwatched", "few"
PATH, HOST, FIELD, STRANGE = "path", "host", "field", "strange"
MEMCPY, LINK, LIMIT, MEMORY = "memcpy", "link", "limit", "memory"

BUSY_SHARE = 0.25  # of the timed cells may never have been calm
BEYOND = 1.5  # times memcpy's bandwidth; on a busy machine memcpy itself may be disturbed, and 1.1 is seen there
FROM = 4096  # bytes, from which on a copy is compared with memcpy: below, the call decides

# Absolute paths, of any system, and what begins in somebody's home
PATHS = re.compile(r"(?<![\w:/.)\]])/(?:[\w.+-]+/)+[\w.+-]*|/(?:root|home)\b|~/\S+|\b[A-Za-z]:\\+\w[\w\\.-]*")
NAMES = re.compile(
    r"\b[\w-]+(?:\.[\w-]+)*\.(?:local|lan|internal|localdomain|home|corp|intra)\b"  # a host in its network
    r"|\b(?:DESKTOP|LAPTOP)-\w+|\bip-\d+-\d+-\d+-\d+\b|\b[\w-]*(?:MacBook|macbook)[\w-]*"  # as systems name them
    r"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|[\w.+-]+@[\w-]+\.\w+"  # an address of the network, of a person
)
SHARED = ("localhost", "root", "runner", "user", "admin", "linux", "ubuntu", "debian", "fedora", "docker")  # nobody's
MACHINE_FIELDS = frozenset(("arch", "cpu", "machine", "num_cpu", "os", "ram", "version"))  # as asv writes them
RESULT_FIELDS = frozenset(
    ("commit_hash", "env_name", "date", "params", "python", "requirements", "env_vars", "result_columns", "results")
) | {"durations", "version"}
SUFFIXES = (".json", files.RECORDS, files.MEASUREMENTS)


@dataclass(frozen=True)
class Finding:
    """What is wrong. file: whose, below the directory of results; about: of what; values: what was found, what is
    wanted."""

    file: str
    what: str
    about: str = ""
    values: tuple[Any, ...] = ()


def findings(directory: Path, suite: Path) -> list[Finding]:
    """What is wrong with the results in a directory, one machine's or a whole results directory of asv.

    suite  this suite's own benchmarks.json: what a submission brings along is not asked

    UserError where there are no results at all.
    """
    machines = _machines(directory)
    described = read_json(suite)
    wrong: list[Finding] = []
    for machine in machines:
        wrong += _of_files(machine)
        if not (machine / "machine.json").is_file():
            wrong.append(Finding(machine.name, NO_MACHINE))
        for path in _results_of(machine):
            wrong += _of_results(path, machine, suite.parent, described)
        for path in result_files(machine.parent, machine.name, ".jsonl"):
            if not path.with_suffix(".json").is_file():
                wrong.append(Finding(_name(path, machine), FAILED))
    return wrong


def _machines(directory: Path) -> list[Path]:
    """The directories of machines in a directory, or itself if it is one."""
    here = directory.absolute()
    if _results_of(here):
        return [here]
    machines = [path for path in sorted(directory.glob("*/")) if _results_of(path)]
    if not machines:
        raise UserError(f"{directory} holds no results: name reports/results/MACHINE, which run.py fills")
    return machines


def _results_of(machine: Path) -> list[Path]:
    """The result files of a machine and its nodes; a benchmarks.json that lies beside them is none."""
    return result_files(machine.parent, machine.name)


def _name(path: Path, machine: Path) -> str:
    return path.relative_to(machine.parent).as_posix()


# --- what is written in them -----------------------------------------------------------------------------------------


def _of_files(machine: Path) -> Iterator[Finding]:
    """Names and paths in any text of any file; files and fields that nothing of ours writes."""
    places = places_of(machine)
    for path in sorted(machine.rglob("*")):
        if path.is_file():
            name = _name(path, machine)
            if not path.name.endswith(SUFFIXES) or path.parent not in places:
                yield Finding(name, STRANGE)
            text = files.text_of(path)
            for what, pattern in ((PATH, PATHS), (HOST, _names_here())):
                for seen in dict.fromkeys(match.group() for match in pattern.finditer(text)):
                    yield Finding(name, what, seen)
            yield from _fields(path, text, name)


def _names_here() -> re.Pattern[str]:
    """NAMES, and those of whoever asks: on the machine that was measured they are known."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # nobody of that number
        user = ""
    names = [name for name in (platform.node(), user) if len(name) > 3 and name not in SHARED]
    return re.compile("|".join([NAMES.pattern, *(rf"\b{re.escape(name)}\b" for name in names)]))


def _fields(path: Path, text: str, name: str) -> Iterator[Finding]:
    """The fields of a file that no run writes: they may hold anything. Broken files are found when they are loaded."""
    kinds = {"toolchain": Toolchain, "settings": Settings, "conditions": Conditions}
    try:
        if path.name == "machine.json":
            parts = [("", json.loads(text), MACHINE_FIELDS)]
        elif path.suffix == ".json":
            result = json.loads(text)
            parts = [("", result, RESULT_FIELDS), ("params.", result["params"], MACHINE_FIELDS | {"python"})]
        elif path.suffix == ".jsonl":
            records = [json.loads(line) for line in text.splitlines()]
            parts = [("", record, _known(Record)) for record in records]
            parts += [
                (f"{part}.", each.get(part) or (), _known(kind)) for each in records for part, kind in kinds.items()
            ]
        else:
            return
        unknown = {f"{prefix}{field}" for prefix, found, known in parts for field in set(found) - known}
    except BROKEN:
        return
    for field in sorted(unknown):
        yield Finding(name, FIELD, field)


def _known(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


# --- what was measured -----------------------------------------------------------------------------------------------


def _of_results(path: Path, machine: Path, results: Path, described: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with a result file and those beside it. results: the directory of this suite's benchmarks.json."""
    name = _name(path, machine)
    try:
        loaded, runs = load_files(results, [path]), read_records(path)
    except UserError as error:
        what = error.what if isinstance(error, BrokenFile) else str(error).replace(f"{path.parent}/", "")
        yield Finding(name, BROKEN_FILE, what)
        return
    yield from _versions(name, loaded, described)
    if not runs:
        yield Finding(name, NO_RECORD)
        return
    for run in runs:
        if machine.name != run.machine:
            yield Finding(name, FOREIGN, run.machine, (machine.name,))
        if run.asv_runner and run.asv_runner != _runner():
            yield Finding(name, RUNNER, run.asv_runner, (_runner(),))
    yield from _evidence(path, name, loaded, runs)
    yield from _possible(name, loaded)


def _runner() -> str:
    """The asv_runner that the timing rests on."""
    text = (Path(__file__).resolve().parents[2] / "requirements.txt").read_text(encoding="utf-8")
    requirement = re.search(r"^asv_runner==(\S+)", text, re.MULTILINE)
    return requirement[1] if requirement else ""


def _versions(name: str, loaded: Results, described: Mapping[str, Any]) -> Iterator[Finding]:
    """Benchmarks that measured by other code than this suite's, or that it has not."""
    pairs = set(loaded.cells[["benchmark", "version"]].drop_duplicates().itertuples(index=False, name=None))
    other = sorted(name for name, version in pairs if described[name].get("version") not in (version, None))
    if other:
        yield Finding(name, VERSION, other[0], (len(other), len({benchmark for benchmark, _ in pairs})))
    for _, benchmark in loaded.unknown:
        yield Finding(name, UNKNOWN, benchmark)


def _evidence(path: Path, name: str, loaded: Results, runs: Sequence[Record]) -> Iterator[Finding]:
    """Too few processes of what was timed, or too few of them calm."""
    processes = loaded.processes
    if processes.empty:
        return
    rounds, last = max(run.rounds for run in runs), runs[-1]
    if last.rounds < last.planned:
        yield Finding(name, INTERRUPTED, values=(last.rounds, last.planned))
    if rounds < MIN_PROCESSES:
        yield Finding(name, FEW, values=(rounds, MIN_PROCESSES))
    if not path.with_suffix(files.MEASUREMENTS).is_file():
        yield Finding(name, NO_SAMPLES)
        return
    noisy = float((~loaded.timed["quiet"].astype(bool)).mean())
    if processes["baseline"].isna().all():
        yield Finding(name, UNWATCHED)
    elif noisy > BUSY_SHARE:
        yield Finding(name, BUSY, values=(noisy, BUSY_SHARE))


def _possible(name: str, loaded: Results) -> Iterator[Finding]:
    """Figures that this machine's own limits exclude."""
    cells = cells_of(loaded)
    limit = limit_of(cells)
    copies = [cell for cell in cells if cell.role == CONVERSION and cell.memory in (COPY, INTO) and cell.nbytes >= FROM]
    shares = [(share, cell) for cell in copies if (share := limit.share(cell)) and share > BEYOND]
    if shares:
        share, worst = max(shares, key=lambda pair: pair[0])
        yield _too_fast(name, MEMCPY, TooFast(len(shares), worst, share))
    transfers = transfers_of(loaded, cells)
    for what, fast in (
        (LINK, beyond_capacity(transfers)),
        (LIMIT, beyond_limit(transfers)),
        (MEMORY, beyond_memory(transfers)),
    ):
        if fast:
            yield _too_fast(name, what, fast)


def _too_fast(name: str, what: str, fast: TooFast) -> Finding:
    return Finding(name, what, fast.worst.cell, (fast.cells, fast.reads))
