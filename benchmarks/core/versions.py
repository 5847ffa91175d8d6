"""Versions of benchmarks, and the hashes that guard them, in benchmarks/versions.lock.

A version is a number, raised by hand: results of another version of a family (a benchmark class)
are not compared. The lock also holds a hash of the code that decides the family's figures. ``make
lint`` runs this module and fails where the hash has changed and the lock has not. Two ways lead
on::

    python -m benchmarks.core.versions --raise FAMILY            older results are no longer
    compared python -m benchmarks.core.versions --record FAMILY REASON    figures cannot have
    changed, because of REASON

FAMILY is a name such as transfer.Casting, or a pattern: '*' stands for all families that have
changed.

The hash (hashing.py) covers the family's class and all code of this package that it uses. It
ignores names, aliases, comments, docstrings, annotations and layout. This module needs only the
standard library, and discovery reads the lock alone.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
LOCK = "versions.lock"  # in the package
UNLOCKED = "0"  # version of a family that the lock does not have
HEADER = "# family version hash reason: see benchmarks/core/versions.py\n"
COMMAND = "python -m benchmarks.core.versions"
CHANGED, UNKNOWN, GONE = "changed", "not in the lock", "no such family"


@dataclass(frozen=True)
class Entry:
    """A family in the lock. reason: why the last recorded hash leaves the version; or ""."""

    version: str
    hash: str
    reason: str = ""


def read(path: Path) -> dict[str, Entry]:
    """Read a lock: family -> its entry. ValueError, with the line, if a line is not readable."""
    entries = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        family, *words = line.split(maxsplit=3)
        if len(words) < 2 or not words[0].isdecimal():
            raise ValueError(f"{path}: {line!r} is not: family version hash reason")
        entries[family] = Entry(*words)
    return entries


def write(path: Path, entries: Mapping[str, Entry]) -> None:
    """Write a lock, a line per family in alphabetic order."""
    lines = (
        f"{family} {entry.version} {entry.hash} {entry.reason}".rstrip()
        for family, entry in sorted(entries.items())
    )
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines), encoding="utf-8")


@cache
def locked() -> dict[str, Entry]:
    """Return this package's lock."""
    return read(PACKAGE / LOCK)


def version_of(benchmark: str) -> str:
    """Return the version of a benchmark, such as cold.NumpyToTorch.timeit_convert."""
    entry = locked().get(benchmark.rpartition(".")[0])
    return entry.version if entry else UNLOCKED


def package_hash(package: Path = PACKAGE) -> str:
    """Return a hash of all files of a package. A run that goes on sees by it that benchmarks/ was
    edited.
    """
    files = sorted([*package.rglob("*.py"), package / LOCK])
    content = sha256()
    for path in files:
        content.update(f"{path.relative_to(package)}\0".encode())
        content.update(path.read_bytes() if path.exists() else b"")
    return content.hexdigest()[:16]


def differences(entries: Mapping[str, Entry], hashes: Mapping[str, str]) -> dict[str, str]:
    """Return the families whose entry is not up to date, each with its kind of difference."""
    kinds = {}
    for family in sorted({*entries, *hashes}):
        if family not in entries:
            kinds[family] = UNKNOWN
        elif family not in hashes:
            kinds[family] = GONE
        elif entries[family].hash != hashes[family]:
            kinds[family] = CHANGED
    return kinds


def updated(entry: Entry | None, fresh: str, reason: str | None) -> Entry:
    """Return the entry for a fresh hash: with the reason, or else with the next version."""
    if entry is None:
        return Entry("1", fresh)
    if reason is not None:
        return replace(entry, hash=fresh, reason=reason)
    return Entry(str(int(entry.version) + 1), fresh)


def update(path: Path, hashes: Mapping[str, str], pattern: str, reason: str | None) -> list[str]:
    """Bring the families that match the pattern up to date in the lock; return their names."""
    entries = read(path)
    updated_families = [
        family for family in differences(entries, hashes) if fnmatchcase(family, pattern)
    ]
    for family in updated_families:
        if family in hashes:
            entries[family] = updated(entries.get(family), hashes[family], reason)
        else:
            del entries[family]
    write(path, entries)
    return updated_families


def report(kinds: Mapping[str, str]) -> str:
    """Word the differences: a line per family, then the two ways on."""
    lines = [f"benchmarks/{LOCK}: {family}: {ABOUT[kind]}" for family, kind in kinds.items()]
    ways = (
        f"  {COMMAND} --raise FAMILY            older results are no longer compared",
        f"  {COMMAND} --record FAMILY REASON    figures cannot have changed, because of REASON",
        "FAMILY may be a pattern: '*' is all of these.",
    )
    return "\n".join([*lines, *ways])


ABOUT = {
    CHANGED: "code that decides its figures has changed, and its entry has not",
    UNKNOWN: "is not in the lock (either command adds it, with version 1)",
    GONE: "is in the lock, and there is no such family (either command removes it)",
}


def main(arguments: list[str] | None = None, package: Path = PACKAGE) -> int:
    """Check the lock, or update it. Return 1 if it is not up to date."""
    from .hashing import family_hashes

    parser = argparse.ArgumentParser(prog=COMMAND, description="Check versions.lock, or update it.")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--raise", dest="pattern", metavar="FAMILY", help="raise its version")
    ways.add_argument(
        "--record", nargs=2, metavar=("FAMILY", "REASON"), help="record its hash, with a reason"
    )
    options = parser.parse_args(arguments)
    path, hashes = package / LOCK, family_hashes(package)
    pattern, reason = options.record or (options.pattern, None)
    if reason is not None and not reason.strip():
        parser.error("--record needs a reason: why can figures not have changed?")
    if pattern:
        one_line = None if reason is None else " ".join(reason.split())
        updated_families = update(path, hashes, pattern, one_line)
        print(f"benchmarks/{LOCK}: {', '.join(updated_families) or 'nothing to change'}")
        return 0
    kinds = differences(read(path), hashes)
    if kinds:
        print(report(kinds), file=sys.stderr)
    return int(bool(kinds))


if __name__ == "__main__":
    sys.exit(main())
