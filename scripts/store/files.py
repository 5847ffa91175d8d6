"""Locate, read, check and write result files, and export them to asv. No other module knows their
layout.

    reports/results/benchmarks.json        asv's description of the suite
    reports/results/MACHINE/machine.json   asv's description of the machine
    reports/results/MACHINE/STEM.jsonl.gz  measurements: a line of JSON per process, with its
                                           samples and speed probes, and one per cell with
                                           instruction counts
    reports/results/MACHINE/STEM.jsonl     run records, a line each
    reports/results/MACHINE/STEM.json      asv's results of the same figures, exported for asv show,
                                           compare, publish

asv chooses STEM: COMMIT-toolchain-pyVERSION, with the first eight letters of the toolchain's
commit. Each node of a fleet has its own directory inside its machine's directory. The path of a
result is the path of asv's file. The other files of the result lie in the same directory.
"""

import contextlib
import gzip
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import cli
import msgspec
from cli import MAX_TEXT_LENGTH, RESULTS, UserError

from . import schema
from .schema import Counts, Measurement, RunRecord, T, TimedProcess

MEASUREMENTS, RECORDS = ".jsonl.gz", ".jsonl"
BENCHMARKS, MACHINE = "benchmarks.json", "machine.json"
TABLE = "versions.json"  # in reports/results of this checkout, for results of any other, too
NODE_PREFIX = "node-"  # of the directories of a fleet's nodes, in that of their machine type
MACHINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # of a machine
# Reserved names: files and directories next to those of machines, in reports/, reports/results/ and
# on the site
RESERVED_NAMES = {"results", "history", "asv", "index.html", "readme.md", "feed.xml", "answers.csv"}
RESERVED_NAMES |= {"figures.csv", "figures-columns.csv", BENCHMARKS, TABLE, "toolchains.jsonl"}
# File names of results in a machine's directory. Other files there are left alone
RESULT_FILE = re.compile(r"[0-9a-f]{8}-toolchain-py3\.[0-9]{1,2}\.json(?:l|l\.gz)?")
# Limits of a file: decompressed bytes (four times those of the profile full), lines, bytes of one
# JSON text, and lists and objects in a line of measurements (an empty one takes twenty times as
# much memory as its text)
MAX_FILE_BYTES, MAX_LINES, MAX_LINE_BYTES, MAX_BRACKETS = 128 * 2**20, 2**18, 4 * 2**20, 64
FRESH_SUFFIX = "-fresh"  # of the checkout that holds a side's fresh processes, next to the side's
# Errors that Python raises for a malformed file: no JSON, other types, missing names, numbers of
# four hundred digits, deeply nested brackets
PARSE_ERRORS = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    SyntaxError,
    RecursionError,
    MemoryError,
)
COMPRESSION_LEVEL = 9  # a tenth smaller than the usual 6, and reading takes no longer


class BrokenFile(UserError):
    """A file that cannot be read. Its arguments are the path and the reason, worded to follow the
    path."""

    def __str__(self) -> str:
        path, why = self.args
        return f"{path} {why}: remove it or restore it from git"


# --- where ----------------------------------------------------------------------------------------


def machines(results: Path) -> list[str]:
    """Return the names of the machines with results, sorted. UserError if there are none."""
    if not results.is_dir():
        raise UserError(f"{results}: no such directory; python scripts/run.py makes results")
    names = sorted({path.relative_to(results).parts[0] for path in result_files(results)})
    if not names:
        raise no_results(results)
    for name in names:
        if machine_name_problem(name):
            raise UserError(
                f"{results} holds results of a machine named {name!a}: rename its directory"
            )
    return names


def no_results(results: Path, machine: str | None = None) -> UserError:
    """An error that says that there are none, and what to do."""
    for path in sorted(results.glob(f"{machine or '*'}/*.json")):
        if path.name != MACHINE and not RESULT_FILE.fullmatch(path.name):
            return UserError(
                f"{results} holds no results of this suite; {path.relative_to(results)} is of "
                "another configuration of asv: run asv with this checkout's asv.conf.json"
            )
    of_machine = f" of {machine}" if machine else ""
    return UserError(f"{results} holds no results{of_machine}; python scripts/run.py makes some")


def machine_name_problem(name: str) -> str:
    """Return why this cannot name a machine and its directories, or "" if it can."""
    if not MACHINE_NAME.fullmatch(name):
        return "use letters, digits, dot, dash and underscore"
    if name.lower() in RESERVED_NAMES or name.startswith(NODE_PREFIX):
        return f"reports/{name} is taken, choose another name"
    return ""


def result_files(results: Path, machine: str | None = None, suffix: str = ".json") -> list[Path]:
    """Return the result files of a machine, or of all machines: first its own, then those of its
    nodes. ``suffix`` chooses other files of the results."""
    files = []
    for directory in _directories(results, "*") if machine is None else [results / machine]:
        for place in [directory, *_directories(directory, f"{NODE_PREFIX}*")]:
            if place.is_symlink():
                raise UserError(f"{place} is a link: put the directory itself there")
            paths = sorted(place.glob(f"*{suffix}"))
            files += [path for path in paths if RESULT_FILE.fullmatch(path.name)]
    return files


def _directories(place: Path, pattern: str) -> list[Path]:
    # "*/" matches files, too, before Python 3.11
    return sorted(filter(Path.is_dir, place.glob(pattern)))


def result_name(path: Path) -> str:
    """The name of a result in tables and records: its stem, preceded by its node if a fleet
    measured it."""
    stem = sibling(path, "").name
    return f"{path.parent.name}/{stem}" if path.parent.name.startswith(NODE_PREFIX) else stem


def sibling(path: Path, suffix: str) -> Path:
    """The file of the same result with another suffix."""
    return path.with_name(path.name.removesuffix(".gz")).with_suffix(suffix)


def node_name(file: str) -> str:
    """The fleet node that measured a file; "" if the file belongs to the machine itself."""
    return file.rpartition("/")[0]


def results_directory(path: Path) -> Path:
    """The results directory that holds a result. UserError if it has no benchmarks.json."""
    machine = path.absolute().parent
    directory = (machine.parent if machine.name.startswith(NODE_PREFIX) else machine).parent
    if not (directory / BENCHMARKS).is_file():
        raise UserError(
            f"{path}: no {BENCHMARKS} in {directory}, so this is no results directory of asv"
        )
    return directory


def fresh_results(results: Path) -> Path | None:
    """The results of the fresh processes that ``compare.py --run`` added to these; None if there
    are none."""
    checkout = results.absolute().parent.parent
    fresh = checkout.parent / (checkout.name + FRESH_SUFFIX) / "reports" / "results"
    return fresh if any(fresh.glob(f"*/*{RECORDS}")) else None  # the record is filed last


# --- reading --------------------------------------------------------------------------------------


def read_content(path: Path) -> bytes:
    """Return the bytes of a result file, decompressed.

    UserError if it is a pipe or a link. ValueError if there are more than MAX_FILE_BYTES bytes, or
    if compressed data is cut off or followed by other bytes. zlib.error if data that should be
    compressed is not.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BrokenFile(path, "is no file")
    with path.open("rb") as file:
        held = file.read(MAX_FILE_BYTES + 1)
    packed = zlib.decompressobj(wbits=31) if path.name.endswith(MEASUREMENTS) else None
    if packed:
        held = packed.decompress(held, MAX_FILE_BYTES + 1)
    if len(held) > MAX_FILE_BYTES:
        raise ValueError(f"it holds more than {MAX_FILE_BYTES >> 20} MiB")
    if packed and (not packed.eof or packed.unused_data):
        raise ValueError("it ends before its end, or goes on behind it")
    return held


def read_texts(path: Path) -> list[bytes]:
    """Return the JSON texts of a file: one, or one per line. ValueError if there are too many, or
    one is too long."""
    held = read_content(path)
    if held.count(b"\n") > MAX_LINES:
        raise ValueError(f"it holds more than {MAX_LINES:,} lines")
    found = [held] if path.suffix == ".json" else held.splitlines()
    max_brackets = MAX_BRACKETS if path.suffix == ".gz" else MAX_LINE_BYTES
    for text in found:
        if len(text) > MAX_LINE_BYTES or text.count(b"[") + text.count(b"{") > max_brackets:
            raise ValueError(f"it has a line of {len(text)} letters")
    return found


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise UserError if the block reads a broken file, or cannot read it."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (*PARSE_ERRORS, zlib.error) as error:
        raise BrokenFile(path, f"is broken ({error})") from None


NUMBERS = frozenset((float, int, type(None)))  # types without text


def harmless(value: Any) -> Any:
    """Make every text in loaded JSON a ``line``, because pages, figures and terminals show it,
    whoever wrote it.

    ValueError if two names become equal.
    """
    if isinstance(value, str):
        return cli.one_line(value)
    if isinstance(value, list | tuple):  # of samples, by the million
        items = (item if type(item) in NUMBERS else harmless(item) for item in value)
        return type(value)(items)
    if isinstance(value, dict):
        members = {cli.one_line(name): harmless(item) for name, item in value.items()}
        if len(members) < len(value):
            raise ValueError("names in it are alike but for what cannot be shown")
        return members
    return value


def read_json(path: Path) -> Any:
    """Read a JSON file and make it ``harmless``. UserError if it is missing or broken. The bare NaN
    of asv is read."""
    with reading(path):
        return harmless(json.loads(read_texts(path)[0].decode()))


def read_entries(path: Path) -> dict[str, dict[str, Any]]:
    """Read the objects in a JSON file that holds one object, see ``read_json``. BrokenFile if it
    holds another value. asv's benchmarks.json also has the version of its format."""
    loaded = read_json(path)
    if not isinstance(loaded, dict):
        raise BrokenFile(path, "holds no JSON object")
    return {name: each for name, each in loaded.items() if isinstance(each, dict)}


def _read_lines(path: Path, decode: Callable[[bytes], T]) -> list[T]:
    """Decode each line of a file; there are none without the file. An error names the line."""
    rows: list[T] = []
    if not os.path.lexists(path):
        return rows
    with reading(path):
        for number, text in enumerate(read_texts(path), 1):
            try:
                rows.append(decode(text))
            except PARSE_ERRORS as error:
                raise ValueError(f"line {number}: {error}") from None
        if not rows and path.suffix == ".gz":
            raise ValueError("it is empty")
    return rows


def read_records(path: Path) -> list[RunRecord]:
    """Read the run records of a result, oldest first. ``asv run`` by hand leaves none.

    UserError, which names line and field, if they are broken.
    """
    file = {"file": result_name(path)}

    def decode(text: bytes) -> RunRecord:
        return schema.from_json(RunRecord, {**harmless(json.loads(text.decode())), **file})

    return _read_lines(sibling(path, RECORDS), decode)


def read_measurements(path: Path) -> list[TimedProcess | Counts]:
    """Read the measurements of a result. ``asv run`` by hand leaves none.

    UserError, which names line and field, if the file is broken, truncated, or no gzip.
    """
    return _read_lines(sibling(path, MEASUREMENTS), _measurement)


def _measurement(text: bytes) -> TimedProcess | Counts:
    """Decode a line of measurements and make its names ``harmless``."""
    line = schema.decode_measurement(text)
    version = version_number(line.benchmark, line.version)
    if version != line.version:
        msgspec.structs.force_setattr(line, "version", version)
    names = "".join([line.benchmark, line.version, *line.params])
    # all at once: a file holds thousands of lines
    if names.isprintable() and len(names) <= MAX_TEXT_LENGTH:
        return line
    shown = {name: harmless(getattr(line, name)) for name in ("benchmark", "version", "params")}
    return msgspec.structs.replace(line, **shown)


# --- versions of benchmarks -----------------------------------------------------------------------


@cache
def _version_numbers() -> Mapping[str, Mapping[str, str]]:
    """Return the table of the committed results: benchmark -> hash of its source -> version.

    Hashes stood for versions before benchmarks/versions.lock. A checkout without results has no
    table.
    """
    path = RESULTS / TABLE
    return read_entries(path) if path.is_file() else {}


def version_number(benchmark: str, version: str) -> str:
    """Return the version of a benchmark as a number, where the table has its hash; else as it is:
    that of other code. Measurements keep their hash on the disk."""
    return _version_numbers().get(benchmark, {}).get(version, version)


# --- writing --------------------------------------------------------------------------------------


def put(path: Path, content: str | bytes) -> None:
    """Write a file atomically, and make its directory if it is missing. An interruption leaves the
    old content.

    Several processes may write at once. Each writes a temporary file, and removes the leftovers of
    killed processes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*.new"):
        import psutil

        if not psutil.pid_exists(int(left.name.split(".")[-2])):
            left.unlink(missing_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def measurements_text(lines: Iterable[Measurement]) -> bytes:
    """Return the content of a measurements file. The same lines give the same bytes."""
    return gzip.compress(schema.encode_lines(lines).encode(), COMPRESSION_LEVEL, mtime=0)


def merge(
    earlier: Sequence[Measurement],
    fresh: Sequence[Measurement],
    keep: bool = False,
    stopped: Collection[str] = (),
) -> list[Measurement]:
    """Merge the measurements of a run into those of a file.

    A run replaces the earlier lines of its cells. If one earlier run had more processes of a cell,
    the cell's earlier lines stay, too, so a quick run adds to them. Processes of earlier runs are
    not added up: a history measures its first toolchain twice, and the first session of the next
    history replaces both. Lines of a benchmark whose version has changed are removed.

    keep     keep all earlier lines: the processes join those of other days
    stopped  cells that needed no further process in this run: its lines replace all others
    """
    versions = {line.benchmark: line.version for line in fresh}
    current = [
        line for line in earlier if versions.get(line.benchmark, line.version) == line.version
    ]
    fresh_counts, earlier_counts = _process_counts(fresh), _process_counts(current)
    kept_lines = [
        line
        for line in current
        if keep
        or (line.cell not in stopped and fresh_counts[line.cell] < earlier_counts[line.cell])
    ]
    return [*kept_lines, *fresh]


def _process_counts(lines: Iterable[Measurement]) -> Counter[str]:
    """Cell -> its number of rounds in the run that had the most."""
    rounds = {(line.cell, line.run, line.round) for line in lines}
    counts = Counter[str]()
    for (cell, _), count in Counter((cell, run) for cell, run, _ in rounds).items():
        counts[cell] = max(counts[cell], count)
    return counts


def record_text(record: RunRecord) -> str:
    """A run record as a line of its file."""
    return json.dumps(schema.to_json(record), sort_keys=True) + "\n"


def put_all(staging: Path, results: Path) -> None:
    """Copy the files of ``staging`` into the directory ``results``, each atomically.

    Measurements come first and records last, so a concurrent reader finds the measurements of every
    figure and record.
    """
    for suffix in (MEASUREMENTS, ".json", RECORDS):
        for path in sorted(staging.rglob(f"*{suffix}")):
            put(results / path.relative_to(staging), path.read_bytes())
