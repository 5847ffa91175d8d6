"""Where results are, and how they are read, checked, written and exported to asv. The one module that knows.

    reports/results/benchmarks.json        asv's description of the suite
    reports/results/MACHINE/machine.json   asv's, too
    reports/results/MACHINE/STEM.jsonl.gz  measurements: a line of JSON per process, with its samples and speed probes,
                                           and one per counted cell
    reports/results/MACHINE/STEM.jsonl     run records, a line each (records.py)
    reports/results/MACHINE/STEM.json      asv's results of the same figures, exported for asv show, compare, publish

STEM is that of asv: COMMIT-toolchain-pyVERSION, the first eight letters of the toolchain's commit. The nodes of a fleet
have directories of their own in that of their machine. A path of a result is that of asv's file; the others lie beside.
"""

import contextlib
import gzip
import itertools
import json
import math
import os
import re
import statistics
import tempfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cli import LONGEST, UserError, harmless, put

from benchmarks.probes import NEAR

from .records import Line, Record, name_of, plain, record_of

try:  # reads twice as fast; whoever measures with a Python of their own may lack it
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]

MEASUREMENTS, RECORDS = ".jsonl.gz", ".jsonl"
BENCHMARKS, MACHINE = "benchmarks.json", "machine.json"
NODE = "node-"  # how the directories of a fleet's nodes begin, in that of their machine type
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # of a machine
# What lies beside the directories of machines, in reports/, in reports/results/ and on the site: no names of machines
TAKEN = frozenset(
    ("results", "history", "asv", "index.html", "readme.md", "feed.xml", "answers.csv", "figures.csv")
) | {"figures-columns.csv", BENCHMARKS, "toolchains.jsonl"}
# Of a result, in a machine's directory, beside machine.json; everything else in it is left alone
FILE = re.compile(r"[0-9a-f]{8}-toolchain-py3\.[0-9]{1,2}\.json(?:l|l\.gz)?")
# Bytes of a file, decompressed, four times what the profile full takes, its lines, and bytes of one object in it; lists
# and objects in a line of measurements, for an empty one takes twenty times as much memory as text
MOST, LINES, LONGEST_LINE, BRACKETS = 128 * 2**20, 2**18, 4 * 2**20, 64
ROUNDS, CALLS = 10**5, 10**15  # fewer of a run, and in a sample
FRESH = "-fresh"  # how the copy of the checkout ends that holds a side's fresh processes, beside that of the side
# What Python says of a file that holds something else: no JSON, other kinds, names that are not there, numbers of four
# hundred digits, brackets in brackets in brackets
BROKEN = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, SyntaxError, RecursionError, MemoryError)
# What a line with samples holds that is not checked otherwise, with its kind
KINDS: Mapping[str, Any] = {"run": str, "at": float, "round": int, "wanted": int, "number": int, "waiting": list}
LEVEL = 9  # of compression: a tenth smaller than the usual 6, and reading takes no longer


class BrokenFile(UserError):
    """A file that cannot be read. Its arguments are the path, and why: words that follow the file's name."""

    def __str__(self) -> str:
        path, why = self.args
        return f"{path} {why}: remove it or restore it from git"


# --- where -----------------------------------------------------------------------------------------------------------


def machines(results: Path) -> list[str]:
    """The machines that have results, by name; UserError where there are none."""
    if not results.is_dir():
        raise UserError(f"{results}: no such directory; python scripts/run.py makes results")
    names = sorted({path.relative_to(results).parts[0] for path in result_files(results)})
    if not names:
        raise UserError(f"{results} holds no results; python scripts/run.py makes some")
    for name in names:
        if no_name(name):
            raise UserError(f"{results} holds results of a machine named {name!a}: rename its directory")
    return names


def no_name(name: str) -> str:
    """Why this cannot be a machine's name, and so that of its directories; "" where it can."""
    if not NAME.fullmatch(name):
        return "use letters, digits, dot, dash and underscore"
    if name.lower() in TAKEN or name.startswith(NODE):
        return f"reports/{name} is taken, choose another name"
    return ""


def result_files(results: Path, machine: str | None = None, suffix: str = ".json") -> list[Path]:
    """The result files of a machine, or of all machines: its own, then those of its nodes. With another suffix the
    files of that kind."""
    files = []
    for directory in _directories(results, "*") if machine is None else [results / machine]:
        for place in [directory, *_directories(directory, f"{NODE}*")]:
            if place.is_symlink():
                raise UserError(f"{place} is a link: put the directory itself there")
            files += [path for path in sorted(place.glob(f"*{suffix}")) if FILE.fullmatch(path.name)]
    return files


def _directories(place: Path, pattern: str) -> list[Path]:
    return sorted(filter(Path.is_dir, place.glob(pattern)))  # "*/" matches files, too, before Python 3.11


def file_of(path: Path) -> str:
    """The name of a result in tables and records: its stem, after the name of the node where a fleet measured it."""
    stem = beside(path, "").name
    return f"{path.parent.name}/{stem}" if path.parent.name.startswith(NODE) else stem


def beside(path: Path, suffix: str) -> Path:
    """The file of a result with another suffix."""
    return path.with_name(path.name.removesuffix(".gz")).with_suffix(suffix)


def node_of(file: str) -> str:
    """The node of a fleet that a file is of; "" where it is of the machine."""
    return file.rpartition("/")[0]


def results_of(path: Path) -> Path:
    """The results directory that a result lies in; UserError where that has no benchmarks.json."""
    machine = path.absolute().parent
    directory = (machine.parent if machine.name.startswith(NODE) else machine).parent
    if not (directory / BENCHMARKS).is_file():
        raise UserError(f"{path}: no {BENCHMARKS} in {directory}, so this is no results directory of asv")
    return directory


def fresh_results(results: Path) -> Path | None:
    """The results of the fresh processes that ``compare.py --run`` took beside these; None where there are none."""
    checkout = results.absolute().parent.parent
    fresh = checkout.parent / (checkout.name + FRESH) / "reports" / "results"
    return fresh if any(fresh.glob(f"*/*{RECORDS}")) else None  # the record is filed last


# --- reading ---------------------------------------------------------------------------------------------------------


def content(path: Path) -> bytes:
    """The bytes of a file of results, decompressed. UserError if it is no file, but a pipe or a link; ValueError if
    there are more than MOST, or if compressed ones are cut off or go on; zlib.error if they are not compressed."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BrokenFile(path, "is no file")
    with path.open("rb") as file:
        held = file.read(MOST + 1)
    packed = zlib.decompressobj(wbits=31) if path.name.endswith(MEASUREMENTS) else None
    if packed:
        held = packed.decompress(held, MOST + 1)
    if len(held) > MOST:
        raise ValueError(f"it holds more than {MOST >> 20} MiB")
    if packed and (not packed.eof or packed.unused_data):
        raise ValueError("it ends before its end, or goes on behind it")
    return held


def texts(path: Path) -> list[bytes]:
    """The JSON texts of a file, one, or one per line; ValueError if they are too many, or one is far too long."""
    held = content(path)
    if held.count(b"\n") > LINES:
        raise ValueError(f"it holds more than {LINES:,} lines")
    found = [held] if path.suffix == ".json" else held.splitlines()
    for text in found:
        if len(text) > LONGEST_LINE or (path.suffix == ".gz" and text.count(b"[") + text.count(b"{") > BRACKETS):
            raise ValueError(f"it has a line of {len(text)} letters")
    return found


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """UserError if the file that the block reads is broken, or cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (*BROKEN, zlib.error) as error:
        raise BrokenFile(path, f"is broken ({error})") from None


def read_json(path: Path) -> Any:
    """A JSON file, made harmless; UserError if it is not there or broken. asv writes bare NaN, which Python reads."""
    with reading(path):
        return harmless(json.loads(texts(path)[0].decode()))


def read_records(path: Path) -> list[Record]:
    """The run records of a result, oldest first; none where asv was run by hand. UserError where they are broken."""
    path = beside(path, RECORDS)
    if not os.path.lexists(path):
        return []
    with reading(path):
        return [record_of(harmless(json.loads(line.decode())), file_of(path)) for line in texts(path)]


def read_measurements(path: Path) -> list[Line]:
    """The measurements beside a result, a line per process; none where asv was run by hand. UserError where the file is
    broken, truncated, or no gzip."""
    path = beside(path, MEASUREMENTS)
    if not os.path.lexists(path):
        return []
    with reading(path):
        lines = [_checked(_loaded(text)) for text in texts(path)]
        if not lines:
            raise ValueError("it is empty")
        return lines


def _loaded(text: bytes) -> Any:
    """A line of measurements, its names made harmless."""
    try:
        line = orjson.loads(text) if orjson else json.loads(text)
    except ValueError:
        line = json.loads(text)  # takes more than orjson does, such as half of a surrogate pair
    names = "".join([line["benchmark"], line["version"], *line["params"]])
    if not names.isprintable() or len(names) > LONGEST:  # all at once: a file holds thousands of lines
        line |= {name: harmless(line[name]) for name in ("benchmark", "version", "params")}
    return line


def _checked(line: Line) -> Line:
    """The line; ValueError, TypeError or KeyError where it is none of measurements. What samples and probes are is
    checked where they are arrays, by quiet.Run."""
    if not line["run"].isprintable():
        raise ValueError(f"run is {line['run']!a}")
    if "values" in line:
        if not line["values"] or not all(math.isfinite(value) for value in line["values"]):
            raise ValueError(f"{name_of(line)} counted {line['values']}")
        return line
    lists = (line["seconds"], line["disturbed"], line["waits"], line["waiting"], *line["probes"].values())
    if not set(map(type, itertools.chain(*lists))) <= {int, float}:
        raise TypeError(f"{name_of(line)} has other samples or probes than numbers")
    count = len(line["seconds"])
    if not count:
        raise ValueError(f"{name_of(line)} took no sample")
    for taken in line.get("parts", {}).values():
        # by their sum, for min and max may miss a NaN
        if len(taken) != count or not min(taken) > 0 or not math.isfinite(sum(taken)):
            raise ValueError(f"{name_of(line)} took {taken}")
    for probes in line["probes"].values():
        if len(probes) != count + 1 + len(line["waits"]):
            raise ValueError(f"{name_of(line)} has {len(probes)} probes around {count} samples")
    if not all(0 <= index < count for index in line["disturbed"]):
        raise ValueError(f"{name_of(line)} has no sample {line['disturbed']}")
    if not set(line["probes"]) <= NEAR.keys():
        raise ValueError(f"{name_of(line)} has probes of {', '.join(line['probes'])}")
    if [type(line[name]) for name in KINDS] != list(KINDS.values()):
        raise TypeError(f"it holds {', '.join(f'{name} {line[name]!r}' for name in KINDS)}")
    if not (0 <= line["round"] < ROUNDS and 1 <= line["number"] < CALLS and line["wanted"] >= 1):
        said = f"{line['number']} calls in {line['wanted']} samples of round {line['round']}"
        raise ValueError(f"{name_of(line)} made {said}")
    return line


# --- writing ---------------------------------------------------------------------------------------------------------


def measurements_text(lines: Iterable[Line]) -> bytes:
    """Lines of measurements as their file holds them: the same lines are the same bytes."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return gzip.compress(text.encode(), LEVEL, mtime=0)


def merged(earlier: Sequence[Line], fresh: Sequence[Line], keep: bool = False) -> list[Line]:
    """The measurements of a file once those of a run are in it.

    A run replaces the lines of its cells. Where one earlier run had more processes of a cell, its lines stay: a quick
    look adds to what is known. Earlier runs are not added up: a history measures its first toolchain twice, and the
    first session of the next history replaces both. Lines of a benchmark whose version has changed go.

    keep  all lines stay: the processes stand beside those of other days
    """
    versions = {line["benchmark"]: line["version"] for line in fresh}
    earlier = [line for line in earlier if versions.get(line["benchmark"], line["version"]) == line["version"]]
    before, now = _processes(earlier), _processes(fresh)
    replaced = {cell for cell in now if now[cell] >= before[cell]}
    return [*(line for line in earlier if keep or name_of(line) not in replaced), *fresh]


def _processes(lines: Iterable[Line]) -> Counter[str]:
    """Cell -> its rounds in the run that had most of them."""
    rounds = {(name_of(line), line["run"], line.get("round", 0)) for line in lines}
    of_run = Counter((cell, run) for cell, run, _ in rounds)
    return Counter({cell: count for (cell, _), count in reversed(of_run.most_common())})


def record_text(record: Record) -> str:
    """A run record as a line of its file."""
    return json.dumps(plain(record), sort_keys=True) + "\n"


def put_all(whole: Path, results: Path) -> None:
    """Copy the files of ``whole`` into the directory ``results``, where each is whole at any moment.

    Measurements come first and records last: whoever reads meanwhile finds the measurements of every figure and record.
    """
    for suffix in (MEASUREMENTS, ".json", RECORDS):
        for path in sorted(whole.rglob(f"*{suffix}")):
            put(results / path.relative_to(whole), path.read_bytes())


# --- asv's own files -------------------------------------------------------------------------------------------------


def export(
    ran: Sequence[Path], filed: Path, lines: Sequence[Line], records: Sequence[Record], tried: Collection[str]
) -> None:
    """Have asv's file of a result hold what a session measured: its figures rest on the measurements, without samples.

    ran      asv's own files of the session's runs, in order
    filed    asv's file as it lies in reports/results now, if there is one: cells that the session has not tried stay,
             those of ``asv run`` by hand included
    lines    all measurements of the result
    records  of all runs that those are of, as they are going to be filed; the last is the session's
    tried    all cells that a process of the session was started for

    The figures rest on the same samples as ours, without speed correction: those of a plain ``asv run`` have none
    either.
    """
    from asv.results import Results
    from asv.runner import BenchmarkResult

    both = Results.load(str(filed if filed.is_file() else ran[0]))
    known, skipped = used_samples(lines, records), {*itertools.chain(*records[-1].skipped.values())}
    for run in [Results.load(str(path)) for path in ran]:
        for name, params, figures in _figures_in(run):
            for cell in figures:
                if cell in known:
                    figures[cell] = statistics.median(known[cell][0])
                elif cell in skipped:
                    figures[cell] = math.nan
            # None: asv leaves their statistics as they are
            samples, numbers = zip(*(known.get(cell, (None, None)) for cell in figures))
            # asv takes a cell that the filed file has no place for, as of a route that is new, for one that failed
            filed_cells = spelled(name, both.get_result_params(name)) if name in both.get_all_result_keys() else []
            stay = set(filed_cells).difference(known, tried)
            of_run = {place for place, cell in enumerate(figures) if cell not in stay or figures[cell] is None}
            both.add_result(
                {"name": name, "version": run.benchmark_version[name], "params": params},
                BenchmarkResult([*figures.values()], samples, numbers, 0, "", None),
                started_at=datetime.fromtimestamp(run.started_at[name] / 1000, timezone.utc),
                duration=run.duration.get(name),
                selected_idx=of_run,
            )
    with tempfile.TemporaryDirectory() as whole:  # asv writes in place
        both.save(whole)
        put(filed, Path(whole, filed.parent.name, filed.name).read_bytes())


def without_figure(ran: Sequence[Path]) -> list[str]:
    """The cells that failed in the last of these runs of asv that took them, by asv's files."""
    from asv.results import Results

    failed: dict[str, bool] = {}
    for path in ran:
        for _, _, figures in _figures_in(Results.load(str(path))):
            failed |= {cell: value is None for cell, value in figures.items() if value is None or value == value}
    return [cell for cell, lost in failed.items() if lost]


def _figures_in(results: Any) -> Iterator[tuple[str, Sequence[Sequence[str]], dict[str, float | None]]]:
    """The benchmarks in asv's results, with their parameters and the figure of each cell; None of one that failed."""
    for name in results.get_all_result_keys():
        params = results.get_result_params(name)
        yield name, params, dict(zip(spelled(name, params), results.get_result_value(name, params)))


def spelled(name: str, params: Sequence[Sequence[str]]) -> list[str]:
    """asv's names of the cells of a benchmark with these parameters."""
    return [name_of({"benchmark": name, "params": words}) for words in itertools.product(*params)] if params else [name]


def used_samples(lines: Iterable[Line], records: Iterable[Record] = ()) -> dict[str, tuple[list[float], int | None]]:
    """Cell -> the samples that its figure rests on, as they were taken, and how many calls made each; of a counted
    cell its counts, and None. Of a cell without quiet processes the fastest sample alone."""
    from . import quiet  # numpy: who only looks for files does without

    lines = list(lines)
    used = dict[str, tuple[list[float], int | None]]()
    used |= {name_of(line): (list(line["values"]), None) for line in lines if "values" in line}
    for cell, processes in quiet.counting(lines, records).items():
        for run, place in processes.values():
            used[cell] = [*used.get(cell, ([], None))[0], *run.used_of(place)], run.lines[place]["number"]
    return used
