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
import fnmatch
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent
LOCK = "versions.lock"  # in the package
UNLOCKED = "0"  # version of a family that the lock does not have
HEADER = "# family version hash reason: see benchmarks/core/versions.py\n"
COMMAND = "python -m benchmarks.core.versions"
WAYS = f"""\
  {COMMAND} --raise FAMILY            older results are no longer compared
  {COMMAND} --record FAMILY REASON    figures cannot have changed, because of REASON
FAMILY may be a pattern: '*' is all of these."""


class Entry(NamedTuple):
    """A family in the lock. reason: why the last recorded hash leaves the version; or ""."""

    version: str = UNLOCKED
    hash: str = ""
    reason: str = ""


def read(path):
    """Read a lock: family -> its entry. ValueError, with the line, if a line is not readable."""
    entries = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        family, *words = line.split(maxsplit=3) or "#"
        if family.startswith("#"):
            continue
        if len(words) < 2 or not words[0].isdecimal():
            raise ValueError(f"{path}: {line!r} is not: family version hash reason")
        entries[family] = Entry(*words)
    return entries


def write(path, entries):
    """Write a lock, a line per family in alphabetic order."""
    lines = (" ".join([family, *entry]).rstrip() for family, entry in sorted(entries.items()))
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines), encoding="utf-8")


@cache
def locked():
    """Return this package's lock."""
    return read(PACKAGE / LOCK)


def version_of(benchmark):
    """Return the version of a benchmark, such as cold.NumpyToTorch.timeit_convert."""
    return locked().get(benchmark.rpartition(".")[0], Entry()).version


def package_hash(package=PACKAGE):
    """Return a hash of all files of a package. A run that goes on sees by it that benchmarks/ was
    edited.
    """
    files = sorted([*package.rglob("*.py"), *package.glob(LOCK)])
    contents = (f"{path.relative_to(package)}\0".encode() + path.read_bytes() for path in files)
    return sha256(b"".join(contents)).hexdigest()[:16]


def differences(entries, hashes):
    """Return the families whose entry is not up to date, each with what is wrong."""
    faults = {}
    for family in sorted({*entries, *hashes}):
        if family not in entries:
            faults[family] = "is not in the lock (either command adds it, with version 1)"
        elif family not in hashes:
            faults[family] = (
                "is in the lock, and there is no such family (either command removes it)"
            )
        elif entries[family].hash != hashes[family]:
            faults[family] = "code that decides its figures has changed, and its entry has not"
    return faults


def update(entries, hashes, families, reason):
    """Bring families up to date. Without a reason, or if they are new, the version is raised."""
    for family in families:
        version = entries.pop(family, Entry()).version
        if family in hashes:
            is_raised = version == UNLOCKED or not reason
            entries[family] = Entry(str(int(version) + is_raised), hashes[family], reason)


def main(arguments=None, package=PACKAGE):
    """Check the lock, or update it. Return 1 if it is not up to date."""
    from .hashing import family_hashes

    parser = argparse.ArgumentParser(prog=COMMAND, description="Check versions.lock, or update it.")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--raise", dest="pattern", metavar="FAMILY", help="raise its version")
    ways.add_argument(
        "--record", nargs=2, metavar=("FAMILY", "REASON"), help="record its hash, with a reason"
    )
    options = parser.parse_args(arguments)
    pattern, reason = options.record or (options.pattern, "")
    if options.record and not reason.strip():
        parser.error("--record needs a reason: why can figures not have changed?")
    entries, hashes = read(package / LOCK), family_hashes(package)
    faults = differences(entries, hashes)
    if pattern:
        families = fnmatch.filter(faults, pattern)
        update(entries, hashes, families, " ".join(reason.split()))
        write(package / LOCK, entries)
        print(f"benchmarks/{LOCK}: {', '.join(families) or 'nothing to change'}")
    elif faults:
        for family, fault in faults.items():
            print(f"benchmarks/{LOCK}: {family}: {fault}", file=sys.stderr)
        print(WAYS, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
