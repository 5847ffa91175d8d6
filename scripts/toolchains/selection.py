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
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from pathlib import Path

from cli import Parser, UserError
from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version
from store import files
from store.files import TABLE, put

from . import environments, ledger
from .ledger import Toolchain

INSTALLED = "installed"
HASH = re.compile(r"[0-9a-f]{4,40}")  # a commit hash or its beginning
JSON = "application/vnd.pypi.simple.v1+json"  # PEP 691
SECONDS = environments.INDEX_SECONDS


# --- releases -------------------------------------------------------------------------------------


def find_release(name: str, histories: Sequence[str] = ()) -> Toolchain | None:
    """Find the release in these histories whose tag or version is ``name``, or whose commit begins
    with it. Without histories, take tags and commits of all, and versions of ledger.PACKAGES.
    Return None if there is no match. Raise UserError if there are several.
    """
    prefix = name if HASH.fullmatch(name) else "no commit"
    matches = [
        toolchain
        for history in histories or ledger.histories()
        for toolchain in ledger.history(history)
        if name == toolchain.tag
        or toolchain.commit.startswith(prefix)
        or (name == toolchain.version and history in (histories or ledger.PACKAGES))
    ]
    if len(matches) > 1:
        tags = " or ".join(toolchain.tag for toolchain in matches)
        raise UserError(f"{name} could be {tags}: write one of them")
    return matches[0] if matches else None


def add_release_options(parser: Parser) -> None:
    """Add options that choose releases (see ``chosen_releases``), limit environments, or only print
    the plan."""
    names = ledger.histories()
    parser.option(
        "--history", "releases of this history only (default: torch and numpy)", choices=names
    )
    parser.option("--releases 2.6.0,2.13.0", "these (default: the last patch of every minor one)")
    parser.option("--since 2.0", "this release and later ones")
    parser.option("--keep N", "maximum number of environments on disk (default: see asv.conf.json)")
    parser.option("--dry-run", "print the plan and exit")


def selected_histories(args: argparse.Namespace) -> Sequence[str]:
    """The histories that these options choose from."""
    return [args.history] if args.history else ledger.PACKAGES


def select_releases(args: argparse.Namespace) -> list[Toolchain]:
    """Return the chosen releases, history by history, in order of release. Raise UserError if a
    name is unknown or no release is left."""
    if args.since is not None and not re.fullmatch(r"\d+(\.\d+)*", args.since):
        raise UserError(f"--since {args.since!r} is no version")
    histories = selected_histories(args)
    if args.releases is None:
        toolchains = [toolchain for history in histories for toolchain in ledger.series(history)]
    else:
        toolchains = _releases_by_name(args.releases.replace(",", " ").split(), histories)
    oldest = ledger.order(args.since or "0")
    toolchains = [each for each in toolchains if ledger.order(each.version) >= oldest]
    if not toolchains:
        raise UserError("no release is left to measure")
    return toolchains


def _releases_by_name(names: Iterable[str], histories: Sequence[str]) -> list[Toolchain]:
    """The releases of these names, in order of release. Raise UserError if a name is unknown."""
    releases = {find_release(name, histories): name for name in names}
    if None in releases:
        raise UserError(
            f"{releases[None]} is no release of {' or '.join(histories)} in {ledger.RELEASES.name}"
        )
    listed = [toolchain for history in histories for toolchain in ledger.history(history)]
    return [toolchain for toolchain in listed if toolchain in releases]


# --- the package index ----------------------------------------------------------------------------


def available_versions(package: str) -> tuple[list[str], list[str]]:
    """Return a package's versions in the index, for any Python, and the addresses where pip looked.
    Raise UserError if pip fails.

    Both are read from pip's text. Before pip 25, such as in an environment that Python's venv made,
    it prints no JSON, and its JSON has no addresses.
    """
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


def list_files(place: str) -> list[Mapping[str, object]]:
    """Return the files of a package that an address lists. The list is empty without JSON or
    without an answer."""
    import urllib.request  # 50 ms, which advise.py spends better

    try:
        request = urllib.request.Request(place, headers={"Accept": JSON})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return list(json.loads(answer.read())["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def first_days(index_files: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Version -> the day of its first wheel, in the format of releases.json. Versions without a day
    are left out."""
    days: dict[str, str] = {}
    for file in index_files:
        with contextlib.suppress(ValueError):  # an sdist, or a file of which the index knows no day
            _, version, _, _ = parse_wheel_filename(str(file.get("filename")))
            day = date.fromisoformat(str(file.get("upload-time"))[:10]).isoformat()
            days[str(version)] = min(day, days.get(str(version), day))
    return days


def newer_versions(listed: Iterable[str], versions: Iterable[str]) -> list[str]:
    """Return the new final releases in order: later patches of a known minor release, and releases
    later than all known ones.

    Releases missing in between were left out on purpose, and stay out.
    """
    newest_patches = {version.release[:2]: version for version in sorted(map(Version, listed))}
    newest = max(newest_patches.values())
    later = []
    for text in versions:
        with contextlib.suppress(InvalidVersion):  # invalid by today's rules
            version = Version(text)
            is_final = not version.is_prerelease and not version.local
            if is_final and version > newest_patches.get(version.release[:2], newest):
                later.append(version)
    return list(map(str, sorted(later)))


def update_releases(today: str = "") -> list[Toolchain]:
    """Add newer releases to releases.json. Return them, history by history, in order of release."""
    today = today or datetime.now(timezone.utc).date().isoformat()
    old_commits = set(ledger.toolchains_by_commit())
    text = ledger.RELEASES.read_text(encoding="utf-8")
    releases = json.loads(text)
    for package in ledger.PACKAGES:
        days = _days_of_new_releases(package, releases[package], today)
        for version, (day, is_dated) in days.items():
            releases[package][version] = day
            if not is_dated:
                releases.setdefault("seen", {}).setdefault(package, []).append(version)
        by_version = sorted(releases[package].items(), key=lambda release: Version(release[0]))
        releases[package] = dict(by_version)
    # only after both packages were asked about: a release is new only once
    if releases != json.loads(text):
        put(ledger.RELEASES, json.dumps(releases, indent=2, ensure_ascii=False) + "\n")
        ledger.clear_caches()
    toolchains = ledger.toolchains_by_commit()
    return [toolchain for commit, toolchain in toolchains.items() if commit not in old_commits]


def _days_of_new_releases(
    package: str, listed: Iterable[str], today: str
) -> dict[str, tuple[str, bool]]:
    """New version -> its day, and whether the index knows it; else it is the day ``today``."""
    versions, places = available_versions(package)
    new_versions = newer_versions(listed, versions)
    if not new_versions:
        return {}
    days = first_days(file for place in places for file in list_files(place))
    if len(days) > 1 and len(set(days.values())) == 1:
        days = {}  # one day for all: the index does not know them
    return {version: (days.get(version, today), version in days) for version in new_versions}


# --- the Python to measure with -------------------------------------------------------------------


# The Python that runs asv; commit of the release to install, "" = its own toolchain
Target = tuple[Path, str]


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
        f"--run takes a release such as torch-2.6.0, {INSTALLED!r}, or a Python or virtual "
        f"environment that has torch, numpy and asv; {name} is none of them"
    )


# --- results --------------------------------------------------------------------------------------


def check_machine_name(name: str) -> str:
    """Return the name of a machine. Raise UserError if its results directory cannot have that
    name."""
    problem = files.machine_name_problem(name)
    if problem:
        raise UserError(f"--machine {name!r}: {problem}")
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
                f"{name} is not a result file: those lie in reports/results/MACHINE/ "
                "and end with .json"
            )
        return path
    if path.is_dir():
        full = path.absolute()
        places = [
            (path, machine),
            (path / "reports" / "results", machine),
            (full.parent, full.name),
        ]
        places = [place for place in places if (place[0] / files.BENCHMARKS).is_file()]
        if not places:
            raise UserError(
                f"{path} is no results directory: neither it nor its parent has a benchmarks.json"
            )
        results, machine = places[0]
    matches = files.result_files(results, machine)
    if not matches:
        raise files.no_results(results, machine)
    if not path.is_dir():
        matches = _files_of_toolchain(name, matches)
    if len(matches) > 1:
        names = ", ".join(f"{file.parent.name}/{file.name}" for file in matches)
        raise UserError(
            f"{name} has {len(matches)} result files ({names}): name one, or restrict by --machine"
        )
    return matches[0]


def _files_of_toolchain(name: str, paths: Iterable[Path]) -> list[Path]:
    """Select the ``paths`` of the toolchain ``name``. Raise UserError if there are none."""
    toolchain = find_release(name)
    prefix = toolchain.commit if toolchain else name if HASH.fullmatch(name) else ""
    tags: dict[Path, str] = {}
    broken = []
    for path in paths:
        try:
            records = files.read_records(path)
        except UserError:
            broken.append(path.name)
            continue
        # a plain asv run leaves no record, and so no tag; its file's name begins with the commit's
        tags[path] = records[-1].toolchain.tag if records else path.name[:8]
    matches = [
        path
        for path, tag in tags.items()
        if tag == name or (prefix and path.name.startswith(prefix[:8]))
    ]
    if not matches:
        measured = ", ".join(sorted(set(tags.values())))
        results = f"there are results of {measured}" if tags else "none of the results can be read"
        hint = f"; could not read {', '.join(broken)}" if broken else ""
        raise UserError(
            f"{name} is no file, no directory and no toolchain with results: {results}{hint}"
        )
    return matches
