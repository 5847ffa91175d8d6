"""Check whether submitted results may be published. Only content that this suite writes is accepted.

The steps check the directory, then the content of its files, then the measurements. A step runs only if the one before
found nothing, so each can rely on the earlier checks. ``pages/build.py`` puts findings into words.
"""

import json
import os
import platform
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, filterfalse, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

from cli import UserError
from store import asv_files, files
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
from store.versions import version_number
from toolchains import environments, ledger

from benchmarks.contracts import COPY, INTO, ONE_THREAD, Role

from .cells import cells_of, limit_of
from .results import load_files
from .statistics import MIN_PROCESSES
from .transfers import too_fast, transfers_of, worst

# Limits: files of a machine, bytes of all of them (decompressed), runs of a toolchain, findings reported.
# 26 toolchains in eight rounds and a standard profile take 47 MiB of text
MOST_FILES, MOST_BYTES, MOST_RUNS, MOST_FINDINGS = 301, 64 * 2**20, 20, 20
# Allowed share of timed cells without a quiet process; allowed ratio of a copy's bandwidth to memcpy's (noise may slow
# memcpy, too, and 1.1 is seen); bytes from which on that is checked: below, the call decides
BUSY_SHARE, BEYOND, FROM = 0.25, 1.5, 4096
# Patterns in JSON: a path of a machine; a host, an address, a person; an escape of an unprintable character. Each
# begins with a literal and looks back by two at most, so the time is proportional to the text
PRIVATE = (
    r"/(?<![\w:/.)\]]/)[\w.]|~/|:\\|@(?<=\w@)\w|\\(?<!\\\\)(?:\\\\)*[bfnrtu]|\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\w.-])"
    r"|\.(?:local|lan|internal|localdomain|home|corp|intra)\b|DESKTOP-\w|LAPTOP-\w|ip-\d+-\d|Mac[Bb]ook|macbook"
)
SHARED = (
    "localhost",
    "root",
    "runner",
    "user",
    "admin",
    "linux",
    "ubuntu",
    "debian",
    "fedora",
    "docker",
)  # impersonal
OBJECTS = (
    "toolchain",
    "settings",
    "conditions",
    "params",
)  # their fields are listed, too; other objects hold data
BY_REASON = ("skipped", "failures", "device_changed")  # reason -> cells
# Fields of run records, of measurements and of asv's files
ROWS = (RunRecord, Toolchain, Settings, Conditions, TimedProcess, Counts)
FIELDS = asv_files.FIELDS | {name for row in ROWS for name in row.__struct_fields__} - {"file"}


class Finding(NamedTuple):
    """A problem. file: its file in the directory; kind: a block of pages/templates/prose/submission.md.jinja; subject:
    the subject, and ``further`` ones of its kind; values: found and wanted."""

    file: str
    kind: str
    subject: str = ""
    values: tuple[Any, ...] = ()
    further: int = 0


def findings(directory: Path, suite: Path) -> list[Finding]:
    """Return the first MOST_FINDINGS problems of the results in a machine's directory.

    suite  this suite's own benchmarks.json: a submitted one is not used

    UserError if there are no results at all.
    """
    here, described = directory.absolute(), files.read_json(suite)
    steps = (
        _of_directory(here),
        _of_files(here, described),
        _of_figures(here, suite.parent, described),
    )
    try:
        return next(filter(None, (list(islice(step, MOST_FINDINGS)) for step in steps)), [])
    except files.BrokenFile as error:
        path, why = error.args
        return [Finding(path.name, "broken_file", why)]


def _named(file: str, named: Mapping[str, Collection[str]], *values: Any) -> Iterator[Finding]:
    """Yield one finding per kind with any names."""
    for what, names in named.items():
        if names:
            yield Finding(file, what, min(map(str, names)), values, len(names) - 1)


def _of_directory(here: Path) -> Iterator[Finding]:
    """Check that the directory holds only files with names of results. Nothing is opened."""
    entries = (
        []
        if here.is_symlink() or not here.is_dir()
        else list(islice(here.iterdir(), MOST_FILES + 1))
    )
    names, of_results = (
        {path.name for path in entries},
        [path for path in entries if files.RESULT_FILE.fullmatch(path.name)],
    )
    if not of_results:
        raise UserError(
            f"{here} holds no results: name reports/results/MACHINE, which run.py fills"
        )
    plain = {
        path.name
        for path in [here / files.MACHINE, *of_results]
        if path.is_file() and not path.is_symlink()
    }
    belong = {
        files.sibling(path, suffix).name
        for path in of_results
        for suffix in (".json", files.RECORDS)
    }
    named = {"many": names if len(entries) > MOST_FILES else (), "strange": names - plain}
    named |= {
        "name": {files.machine_name_problem(here.name)} - {""},
        "absent": (belong | {files.MACHINE}) - names,
    }
    yield from _named(here.name, named, MOST_FILES)


def _of_files(here: Path, described: Mapping[str, Any]) -> Iterator[Finding]:
    """Find fields, texts and cells that this suite (``described``) does not write, and those of other machines."""
    suite = {name: one["params"] for name, one in described.items() if isinstance(one, dict)}
    cells = {cell for name, params in suite.items() for cell in cell_names(name, params)}
    own = [
        name
        for name in (platform.node(), os.environ.get("USER", ""))
        if len(name) > 3 and name not in SHARED
    ]
    private = re.compile("|".join([PRIVATE, *(rf"{re.escape(name)}\b" for name in own)]))
    runner = environments.requirements(ledger.history("torch")[-1])[-1].removeprefix("asv_runner==")
    left, mine = MOST_BYTES, set[str]()
    for path in sorted(
        here.iterdir(), reverse=True
    ):  # per result: processes, runs, then asv's file
        found = {"cell": set[str](), "text": set[str](), "toolchain": set[str]()}
        with files.reading(path):
            texts = files.read_texts(path)
            left -= sum(map(len, texts))
            if left < 0 or (len(texts) > MOST_RUNS and path.suffix == files.RECORDS):
                return (yield Finding(path.name, "large", values=(MOST_BYTES >> 20, MOST_RUNS)))
            for loaded in map(json.loads, texts):
                said = json.dumps(loaded, ensure_ascii=False)
                found["text"].update(
                    said[max(0, at.start() - 30) : at.end() + 30] for at in private.finditer(said)
                )
                found["text"].update(
                    () if said.isprintable() else filterfalse(str.isprintable, said)
                )
                for what, names in _names_in(loaded, suite):
                    found.setdefault(what, set()).update(names)
        mine |= found["cell"] | found["toolchain"] if path.suffix != ".json" else set()
        ours = {
            "field": FIELDS,
            "cell": cells,
            "figure": mine,
            "foreign": {here.name},
            "runner": {"", runner},
        }
        ours["toolchain"] = {
            "",
            *(commit for commit in mine if path.name.startswith(str(commit)[:8])),
        }
        yield from _named(
            path.name,
            {what: found[what] - ours.get(what, set()) for what in found},
            here.name,
            runner,
        )
        mine = mine if path.suffix != ".json" else set()


def _names_in(loaded: Any, suite: Mapping[str, Any]) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield (kind, names) of an object in a file. suite: benchmark -> its parameters; others are no cell."""
    inner = [loaded, *(loaded[name] for name in OBJECTS if isinstance(loaded.get(name), dict))]
    columns, made = loaded.get("result_columns", ()), loaded.get("toolchain")
    yield "field", chain(columns, *inner)
    yield (
        "cell",
        [cell_name(loaded["benchmark"], loaded["params"])]
        if "benchmark" in loaded
        else loaded.get("noisy_cells", ()),
    )
    yield "foreign", (each["machine"] for each in inner if "machine" in each)
    yield "runner", [loaded.get("asv_runner", "")]
    yield (
        "toolchain",
        [ledger.parse_toolchain(**made).commit if made else loaded.get("commit_hash", "")],
    )
    yield from (
        ("cell", listed) for reason in BY_REASON for listed in loaded.get(reason, {}).values()
    )
    for name, row in (
        (name, dict(zip(columns, row))) for name, row in loaded.get("results", {}).items()
    ):
        known = row["params"] == suite.get(name)
        cells = zip(cell_names(name, row["params"]), row["result"] or repeat(None)) if known else ()
        yield "cell", () if known else [name]
        yield (
            "figure",
            (cell for cell, value in cells if value == value),
        )  # NaN: it was skipped, or not asked for


def _of_figures(here: Path, results: Path, described: Mapping[str, Any]) -> Iterator[Finding]:
    """Find other versions of benchmarks, too few processes or quiet ones, and impossible times."""
    paths = files.result_files(here.parent, here.name)
    loaded = load_files(results, paths)
    for name, part in ((path.name, loaded.of_file(files.result_name(path))) for path in paths):
        versions = set(zip(part.cells["benchmark"], part.cells["version"]))
        other = {
            benchmark
            for benchmark, version in versions
            if version_number(benchmark, str(described[benchmark].get("version"))) != version
        }
        unrecorded = set(part.processes["run"]) - {run.started for run in part.runs}
        yield from _named(name, {"version": other, "no_record": unrecorded})
        if part.processes.empty or unrecorded:
            continue
        rounds, last, noisy = (
            max(run.rounds for run in part.runs),
            part.last,
            1 - float(part.timed["quiet"].mean()),
        )
        wrong = {
            "interrupted": last.rounds < last.planned and (last.rounds, last.planned),
            "few": rounds < MIN_PROCESSES and (rounds, MIN_PROCESSES),
            "busy": noisy > BUSY_SHARE and (noisy, BUSY_SHARE),
            "unwatched": noisy < 1 and part.processes["baseline"].isna().all() and (noisy,),
        }
        yield from (Finding(name, what, values=values) for what, values in wrong.items() if values)
        cells = cells_of(part)
        limit, moved = limit_of(cells), transfers_of(part, cells)
        plain = cells[(cells["role"] == Role.CONVERSION) & (cells["nbytes"] >= FROM)]
        # copies by several threads may be faster than memcpy, which has one
        copies = plain[plain["memory"].isin((COPY, INTO)) & (plain["threads"] == ONE_THREAD)]
        shares = [
            (one, share)
            for one in copies.itertuples()
            if (share := limit.share(one)) and share > BEYOND
        ]
        fast = filter(None, (too_fast(moved), worst({"memcpy": shares})))
        yield from (Finding(name, one.than, one.worst.cell, (one.cells, one.reads)) for one in fast)
