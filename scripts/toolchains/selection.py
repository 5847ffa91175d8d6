"""What names on a command line select: releases, a Python to measure with, a machine, a file of results."""

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cli import Parser, UserError
from packaging.version import Version
from store import files

from . import ledger
from .ledger import Toolchain

INSTALLED = "installed"
HASH = re.compile(r"[0-9a-f]{4,40}")  # of a commit, or its beginning


# --- releases --------------------------------------------------------------------------------------------------------


def release(name: str, packages: Iterable[str] = ledger.PACKAGES) -> Toolchain | None:
    """The release of these packages' histories that has this tag, version or beginning of its commit, or None.

    UserError where there are several.
    """
    known = [toolchain for package in packages for toolchain in ledger.history(package)]
    begins = HASH.fullmatch(name) is not None
    matching = [
        toolchain
        for toolchain in known
        if name in (toolchain.tag, toolchain.version) or (begins and toolchain.commit.startswith(name))
    ]
    if len(matching) > 1:
        raise UserError(f"{name} could be {' or '.join(toolchain.tag for toolchain in matching)}: write one of them")
    return matching[0] if matching else None


def releases(names: str | None, packages: Sequence[str], since: str | None) -> list[Toolchain]:
    """Releases of these packages' histories, history by history, in order of release.

    names  as ``release`` takes them, with commas or spaces between; None: the last patch of every minor release
    since  a version: those before it are left out

    UserError where a name is none of a release, or none is left.
    """
    if since is not None and not re.fullmatch(r"\d+(\.\d+)*", since):
        raise UserError(f"--since {since!r} is no version")
    if names is None:
        toolchains = [toolchain for package in packages for toolchain in ledger.series(package)]
    else:
        named = []
        for name in names.replace(",", " ").split():
            toolchain = release(name, packages)
            if toolchain is None:
                raise UserError(f"{name} is no release of {' or '.join(packages)} in {ledger.RELEASES.name}")
            named.append(toolchain)
        toolchains = [toolchain for package in packages for toolchain in ledger.history(package) if toolchain in named]
    if since is not None:
        toolchains = [toolchain for toolchain in toolchains if Version(toolchain.version) >= Version(since)]
    if not toolchains:
        raise UserError("no release is left to measure")
    return toolchains


def add_releases(parser: Parser) -> None:
    """The options that choose releases, see ``chosen_releases``."""
    parser.option("--history", "releases of this package only (default: of both)", choices=ledger.PACKAGES)
    parser.option("--releases 2.6.0,2.13.0", "these (default: the last patch of every minor one)")
    parser.option("--since 2.0", "from this release on")


def packages(chosen: argparse.Namespace) -> Sequence[str]:
    """Whose histories such options choose from."""
    return [chosen.history] if chosen.history else ledger.PACKAGES


def chosen_releases(chosen: argparse.Namespace) -> list[Toolchain]:
    """The releases that such options choose; UserError as of ``releases``."""
    return releases(chosen.releases, packages(chosen), chosen.since)


# --- what to measure with --------------------------------------------------------------------------------------------


Target = tuple[Path, str]  # the Python that runs asv; the commit of the release that it installs, "" for its own


def python(name: str) -> Path | None:
    """The Python that ``name`` is: an executable, one on the PATH, or that of a virtual environment; None if none is.

    Symbolic links stay: a virtual environment's Python is one, and knows its packages by where it lies.
    """
    path = Path(os.path.expanduser(name)).absolute()
    places = [path / "bin" / "python", path / "Scripts" / "python.exe"] if path.is_dir() else [path]
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place
    program = shutil.which(name)
    return Path(program) if program else None


def target(name: str) -> Target:
    """What ``name`` is to be measured: "installed" (what this Python has), a Python, see ``python``, or a release, see
    ``release``. UserError where it is none of them.
    """
    if name == INSTALLED:
        return Path(sys.executable), ""
    interpreter = python(name)
    if interpreter:
        return interpreter, ""
    toolchain = release(name)
    if toolchain:
        return Path(sys.executable), toolchain.commit
    raise UserError(
        f"--run takes a release such as torch-2.6.0, {INSTALLED!r}, or a Python or virtual environment that has torch, "
        f"numpy and asv; {name} is none of them"
    )


# --- results ---------------------------------------------------------------------------------------------------------


def check_machine(name: str) -> str:
    """A machine's name, and so that of a directory of results; UserError where this cannot be one."""
    if why := files.no_name(name):
        raise UserError(f"--machine {name!r}: {why}")
    return name


def result_file(name: str, results: Path, machine: str | None = None) -> Path:
    """The one result file that ``name`` is, is in, or is the toolchain of; UserError where there is none, or several.

    name     a file; a directory: a checkout, asv's results directory or one machine's in it; or a toolchain that has
             results in the directory ``results``: its tag, the beginning of its commit, or a release
    machine  whose, where several have some
    """
    path = Path(name)
    if path.is_file():
        if path.suffix != ".json" or path.name in (files.MACHINE, files.BENCHMARKS):
            raise UserError(f"{name} is not a result file: those lie in reports/results/MACHINE/ and end with .json")
        return path
    found = _in_directory(path, machine) if path.is_dir() else _of_toolchain(name, _results(results, machine))
    if len(found) > 1:
        named = ", ".join(f"{file.parent.name}/{file.name}" for file in found)
        raise UserError(f"{name} has {len(found)} result files ({named}): name one, or restrict by --machine")
    return found[0]


def _results(results: Path, machine: str | None = None) -> list[Path]:
    found = files.result_files(results, machine)
    if not found:
        raise UserError(f"{results} holds no results{f' of {machine}' if machine else ''}")
    return found


def _in_directory(path: Path, machine: str | None) -> list[Path]:
    for results in (path, path / "reports" / "results"):
        if (results / files.BENCHMARKS).is_file():
            return _results(results, machine)
    if (path.absolute().parent / files.BENCHMARKS).is_file():
        return _results(path.absolute().parent, path.absolute().name)
    raise UserError(f"{path} is no results directory: neither it nor its parent has a benchmarks.json")


def _of_toolchain(name: str, paths: Iterable[Path]) -> list[Path]:
    known = release(name)
    matching, tags, broken = [], set(), []
    for path in paths:
        short = path.name.split("-")[0]  # asv's file name has the first eight letters of the commit
        try:
            records = files.read_records(path)
            tag = records[-1].toolchain.tag if records else ""
            # a plain asv run leaves no run record and so no tag
            right = tag == name or (known is not None and known.commit.startswith(short))
            if not right and HASH.fullmatch(name) and (short.startswith(name) or name.startswith(short)):
                right = str(files.read_json(path)["commit_hash"]).startswith(name)
        except (OSError, UserError, LookupError, TypeError):
            broken.append(path.name)
            continue
        tags.add(tag or short)
        if right:
            matching.append(path)
    if not matching:
        there = f"there are results of {', '.join(sorted(tags))}" if tags else "none of the results can be read"
        hint = f"; could not read {', '.join(broken)}" if broken else ""
        raise UserError(f"{name} is no file, no directory and no toolchain with results: {there}{hint}")
    return matching
