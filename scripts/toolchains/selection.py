"""Resolve names on a command line (releases, a Python to measure with, a machine, a result file),
and find releases that the package index has and the ledger lacks.

pip is asked, so the index is whatever pip is configured for: addresses, or directories of files.
pip lists the versions and the addresses where it looked. An address that serves JSON gives upload
dates (PEP 700). If no address does, or all releases have the same day, a release is dated by the
day it was first seen. releases.json lists it under ``seen``.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

from cli import Parser, UserError
from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version
from store import files
from store.files import put
from store.versions import TABLE

from . import environments, ledger
from .ledger import Toolchain

INSTALLED = "installed"
HASH = re.compile(r"[0-9a-f]{4,40}")  # a commit hash or its beginning
JSON = "application/vnd.pypi.simple.v1+json"  # PEP 691
SECONDS = environments.INDEX_SECONDS


# --- releases -------------------------------------------------------------------------------------


def find_release(name: str, packages: Iterable[str] = ledger.PACKAGES) -> Toolchain | None:
    """Find the release in these packages' histories whose tag or version is ``name``, or whose
    commit begins with it. Return None if there is no match. Raise UserError if there are several.
    """
    known = [toolchain for package in packages for toolchain in ledger.history(package)]
    begins = name if HASH.fullmatch(name) else "no commit"
    found = [
        each for each in known if name in (each.tag, each.version) or each.commit.startswith(begins)
    ]
    if len(found) > 1:
        raise UserError(
            f"{name} could be {' or '.join(toolchain.tag for toolchain in found)}: write one of them"
        )
    return found[0] if found else None


def add_release_options(parser: Parser) -> None:
    """Add options that choose releases (see ``chosen_releases``), limit environments, or only print
    the plan."""
    parser.option(
        "--history", "releases of this package only (default: of both)", choices=ledger.PACKAGES
    )
    parser.option("--releases 2.6.0,2.13.0", "these (default: the last patch of every minor one)")
    parser.option("--since 2.0", "this release and later ones")
    parser.option("--keep N", "maximum number of environments on disk (default: see asv.conf.json)")
    parser.option("--dry-run", "print the plan and exit")


def selected_packages(chosen: argparse.Namespace) -> Sequence[str]:
    """The packages whose histories these options choose from."""
    return [chosen.history] if chosen.history else ledger.PACKAGES


def select_releases(chosen: argparse.Namespace) -> list[Toolchain]:
    """Return the chosen releases, history by history, in order of release. Raise UserError if a
    name is unknown or no release is left."""
    if chosen.since is not None and not re.fullmatch(r"\d+(\.\d+)*", chosen.since):
        raise UserError(f"--since {chosen.since!r} is no version")
    among = selected_packages(chosen)
    if chosen.releases is None:
        toolchains = [toolchain for package in among for toolchain in ledger.series(package)]
    else:
        named = {
            name: find_release(name, among) for name in chosen.releases.replace(",", " ").split()
        }
        unknown = [name for name, toolchain in named.items() if toolchain is None]
        if unknown:
            raise UserError(
                f"{unknown[0]} is no release of {' or '.join(among)} in {ledger.RELEASES.name}"
            )
        toolchains = [
            each for package in among for each in ledger.history(package) if each in named.values()
        ]
    oldest = Version(chosen.since or "0")
    toolchains = [toolchain for toolchain in toolchains if Version(toolchain.version) >= oldest]
    if not toolchains:
        raise UserError("no release is left to measure")
    return toolchains


# --- the package index ----------------------------------------------------------------------------


def available_versions(package: str) -> tuple[list[str], list[str]]:
    """Return a package's versions in the index, for any Python, and the addresses where pip looked.
    Raise UserError if pip fails."""
    command = ["-m", "pip", "index", "versions", package]
    verbose = [sys.executable, *command, "-vv", "--ignore-requires-python"]
    error = "it lists none"
    try:
        output = environments.run_program(verbose, SECONDS)
        versions = re.search(r"^Available versions: (.+)$", output, re.MULTILINE)
        if versions:
            addresses = re.findall(r"^\s*\* (https?://\S+)$", output, re.MULTILINE)
            return versions[1].split(", "), addresses
    except environments.InstallError as failure:
        error = str(failure)
    raise UserError(
        f"pip cannot say which releases of {package} there are: {error}; "
        f"try: python {' '.join(command)}"
    )


def list_files(place: str) -> list[Mapping[str, Any]]:
    """Return the files of a package that an address lists. The list is empty without JSON or
    without an answer."""
    try:
        request = urllib.request.Request(place, headers={"Accept": JSON})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return list(json.loads(answer.read())["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def first_days(listed: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Version -> the day of its first wheel, in the format of releases.json. Versions without a day
    are left out."""
    found: dict[str, str] = {}
    for file in listed:
        with contextlib.suppress(ValueError):  # an sdist, or a file of which the index knows no day
            _, version, _, _ = parse_wheel_filename(str(file.get("filename")))
            day = date.fromisoformat(str(file.get("upload-time"))[:10]).isoformat()
            found[str(version)] = min(day, found.get(str(version), day))
    return found


def newer_versions(known: Iterable[str], versions: Iterable[str]) -> list[str]:
    """Return the new final releases in order: later patches of a known minor release, and releases
    later than all known ones.

    Releases missing in between were left out on purpose, and stay out.
    """
    minors = {version.release[:2]: version for version in sorted(map(Version, known))}
    newest, final = max(minors.values()), []
    for text in versions:
        with contextlib.suppress(InvalidVersion):  # invalid by today's rules
            version = Version(text)
            later = version > minors.get(version.release[:2], newest)
            final += [version] if later and not version.is_prerelease and not version.local else []
    return list(map(str, sorted(final)))


def update_releases(today: str = "") -> list[Toolchain]:
    """Add newer releases to releases.json. Return them, history by history, in order of release."""
    today = today or datetime.now(timezone.utc).date().isoformat()
    before, text = ledger.toolchains_by_commit(), ledger.RELEASES.read_text(encoding="utf-8")
    releases = json.loads(text)
    for package in ledger.PACKAGES:
        versions, places = available_versions(package)
        fresh = newer_versions(releases[package], versions)
        days = first_days(file for place in places for file in list_files(place)) if fresh else {}
        if (
            len(days) > 1 == len(set(days.values()))
        ):  # one day for all: the index does not know them
            days = {}
        for version in fresh:
            releases[package][version] = days.get(version, today)
            if version not in days:
                releases.setdefault("seen", {}).setdefault(package, []).append(version)
        releases[package] = dict(
            sorted(releases[package].items(), key=lambda release: Version(release[0]))
        )
    if releases != json.loads(
        text
    ):  # only after both packages were asked about: a release is new only once
        put(ledger.RELEASES, json.dumps(releases, indent=2, ensure_ascii=False) + "\n")
        ledger.clear_caches()
    return [
        toolchain
        for commit, toolchain in ledger.toolchains_by_commit().items()
        if commit not in before
    ]


# --- the Python to measure with -------------------------------------------------------------------


Target = tuple[
    Path, str
]  # the Python that runs asv; commit of the release to install, "" = its own toolchain


def find_python(name: str) -> Path | None:
    """Find the Python ``name``: an executable, a command on the PATH, or a virtual environment.
    Return None if missing.

    A symbolic link is not resolved. A virtual environment's Python is a link, and finds its
    packages by its location.
    """
    path = Path(os.path.expanduser(name)).absolute()
    place = environments.interpreter_of(path) if path.is_dir() else path
    program = shutil.which(str(place)) or shutil.which(name)
    return Path(program) if program else None


def find_target(name: str) -> Target:
    """Resolve an argument of --run: "installed" (this Python's toolchain), a Python (see
    ``python``) or a release (see ``release``). Raise UserError for any other name.
    """
    interpreter = Path(sys.executable) if name == INSTALLED else find_python(name)
    if interpreter:
        return interpreter, ""
    toolchain = find_release(name)
    if toolchain:
        return Path(sys.executable), toolchain.commit
    raise UserError(
        f"--run takes a release such as torch-2.6.0, {INSTALLED!r}, or a Python or virtual environment that has torch, "
        f"numpy and asv; {name} is none of them"
    )


# --- results --------------------------------------------------------------------------------------


def check_machine_name(name: str) -> str:
    """Return the name of a machine. Raise UserError if its results directory cannot have that name.
    """
    if why := files.machine_name_problem(name):
        raise UserError(f"--machine {name!r}: {why}")
    return name


def find_result_file(name: str, results: Path, machine: str | None = None) -> Path:
    """Return the only result file that ``name`` stands for. Raise UserError if there is no such
    file, or several.

    name     a file; a directory (a checkout, asv's results directory or a machine's directory in
             it); or a toolchain with results in the directory ``results``: its tag, the beginning
             of its commit, or a release
    machine  the machine to choose if several have such a file
    """
    path = Path(name)
    if path.is_file():
        if path.suffix != ".json" or path.name in (files.MACHINE, files.BENCHMARKS, TABLE):
            raise UserError(
                f"{name} is not a result file: those lie in reports/results/MACHINE/ and end with .json"
            )
        return path
    if path.is_dir():
        whole = path.absolute()
        places = (
            (path, machine),
            (path / "reports" / "results", machine),
            (whole.parent, whole.name),
        )
        holding = [place for place in places if (place[0] / files.BENCHMARKS).is_file()]
        if not holding:
            raise UserError(
                f"{path} is no results directory: neither it nor its parent has a benchmarks.json"
            )
        results, machine = holding[0]
    found = files.result_files(results, machine)
    if not found:
        raise UserError(f"{results} holds no results{f' of {machine}' if machine else ''}")
    found = found if path.is_dir() else _files_of_toolchain(name, found)
    if len(found) > 1:
        named = ", ".join(f"{file.parent.name}/{file.name}" for file in found)
        raise UserError(
            f"{name} has {len(found)} result files ({named}): name one, or restrict by --machine"
        )
    return found[0]


def _files_of_toolchain(name: str, paths: Iterable[Path]) -> list[Path]:
    """Select the ``paths`` of the toolchain ``name``. Raise UserError if there are none."""
    known = find_release(name)
    begins = known.commit if known else name if HASH.fullmatch(name) else ""
    tags, broken = dict[Path, str](), []
    for path in paths:
        try:
            records = files.read_records(path)
            # a plain asv run leaves no record, and so no tag; its file's name begins with the
            # commit's
            tags[path] = records[-1].toolchain.tag if records else path.name[:8]
        except UserError:
            broken.append(path.name)
    matching = [
        path
        for path, tag in tags.items()
        if tag == name or (begins and path.name.startswith(begins[:8]))
    ]
    if not matching:
        measured = ", ".join(sorted(set(tags.values())))
        there = f"there are results of {measured}" if tags else "none of the results can be read"
        hint = f"; could not read {', '.join(broken)}" if broken else ""
        raise UserError(
            f"{name} is no file, no directory and no toolchain with results: {there}{hint}"
        )
    return matching
