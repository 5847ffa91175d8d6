"""What advice ranks by, of every machine, kept on disk: to make it takes pandas and seconds, to read it neither."""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path

from cli import put
from store.records import made_of

from .case import Known

KEPT = Path(__file__).resolve().parents[2] / ".asv" / "advise.json"
ROOMS = ("analysis", "records", "toolchains")  # of scripts/, whose code decides what is known


def known_in(results: Path, kept: Path) -> list[Known]:
    """Of every machine in a results directory, as published.every has it; UserError as there.

    kept: the file that holds it, where neither results nor code have changed since, or is to hold it.
    """
    stamp = _stamp(results)
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError, RecursionError):
        stored = json.loads(kept.read_text(encoding="utf-8"))
        if stored["stamp"] == stamp:
            return [made_of(Known, machine) for machine in stored["machines"]]
    from .published import every

    machines = every(results)
    with contextlib.suppress(OSError):  # a checkout that may not be written to
        kept.parent.mkdir(parents=True, exist_ok=True)
        put(kept, json.dumps({"stamp": stamp, "machines": [asdict(machine) for machine in machines]}))
    return machines


def _stamp(results: Path) -> list[list[str | int]]:
    """Name, size and time of all files that decide it."""
    scripts = Path(__file__).resolve().parent.parent
    files = [path for room in ROOMS for path in (scripts / room).glob("*.py")]
    files += [results / "benchmarks.json", *results.rglob("*.json*"), *results.rglob("*.ndjson")]
    there = [(path, path.stat()) for path in sorted(set(files)) if path.is_file()]
    return [[str(path.resolve()), stat.st_size, stat.st_mtime_ns] for path, stat in there]
