"""What the package index has: final releases that the ledger lacks, with the days they came on, and candidates.

pip is asked, so the index is whatever pip is configured for: an address, or a directory of files. It says which
versions there are, and where it looked; places that speak JSON say when each came (PEP 700). Where none does, or one
has the same day for all, a release's day is that on which it was first seen, and releases.json says so under ``seen``.

Release candidates and nightlies are found and installed on request, and are never part of a history. Each has an
environment of its own, with asv in it, so that a comparison can run it beside the last release. A nightly is dated by
its version; in the ledger both are on the branch of what is outside the histories.
"""

import contextlib
import json
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cli import UserError
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from . import environments, ledger

JSON = "application/vnd.pypi.simple.v1+json"  # PEP 691
DAY = re.compile(r"\d{4}-\d\d-\d\d")
SECONDS = 300  # that pip, or a place, may take to answer


def offered(package: str, *options: str) -> tuple[list[str], list[str]]:
    """What the index has of a package, whichever Python it is for: its versions, and the addresses at which pip looked;
    ``options`` are pip's. UserError where pip fails."""
    command = [sys.executable, "-m", "pip", "index", "versions", package, "-vv", "--ignore-requires-python", *options]
    try:
        said = environments.run(command, SECONDS)
    except environments.InstallError as error:
        raise UserError(f"pip cannot say which releases of {package} there are: {error}") from None
    matched = re.search(r"^Available versions: (.+)$", said, re.MULTILINE)
    if not matched:
        raise UserError(f"pip cannot say which releases of {package} there are: {environments.reason(said)}")
    return matched[1].split(", "), re.findall(r"^\s*\* (https?://\S+)$", said, re.MULTILINE)


def files_at(place: str) -> list[Mapping[str, Any]]:
    """The files that a place lists of a package; none where it speaks no JSON, or does not answer."""
    try:
        request = urllib.request.Request(place, headers={"Accept": JSON})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return list(json.loads(answer.read())["files"])
    except (OSError, ValueError, LookupError, TypeError):  # it may say anything
        return []


def wheels(files: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Version -> the days of its wheels, "" where one has none; [] where all of them are withdrawn."""
    by_version: dict[str, list[str]] = {}
    for file in files:
        with contextlib.suppress(InvalidWheelFilename):  # a source, or nothing that pip would take
            _, version, _, _ = parse_wheel_filename(str(file.get("filename")))
            days = by_version.setdefault(str(version), [])
            days += [] if file.get("yanked") else [str(file.get("upload-time") or "")[:10]]
    return by_version


def days_of(listed: Mapping[str, list[str]]) -> dict[str, str]:
    """Version -> the day of its first wheel, see ``wheels``. Nothing where several have one day: so says an index that
    does not know them."""
    known = {version: [day for day in days if DAY.fullmatch(day)] for version, days in listed.items()}
    days = {version: min(dates) for version, dates in known.items() if dates}
    return {} if len(days) > 1 and len(set(days.values())) == 1 else days


def since(known: Iterable[str], versions: Iterable[str]) -> list[str]:
    """The final releases that came after those that are known, in order: the next of a minor release, or a later one.

    What is missing in between was left out, and stays so.
    """
    minors: dict[tuple[int, ...], Version] = {}
    for version in sorted(map(Version, known)):
        minors[version.release[:2]] = version
    newest = max(minors.values())
    final = [each for each in map(version_of, versions) if each and not each.is_prerelease and not each.local]
    return [str(version) for version in sorted(final) if version > minors.get(version.release[:2], newest)]


def version_of(text: str) -> Version | None:
    """None where it is none by today's rules."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def update(today: str = "") -> list[ledger.Toolchain]:
    """Add to releases.json what came since its last releases; those, history by history, in order of release."""
    today = today or datetime.now(timezone.utc).date().isoformat()
    added: list[str] = []
    for package in ledger.PACKAGES:
        versions, places = offered(package)
        known = [toolchain.version for toolchain in ledger.history(package)]
        fresh = since(known, versions)
        listed = wheels(file for place in places for file in files_at(place)) if fresh else {}
        days = days_of(listed)
        dated = {version: days.get(version, today) for version in fresh if listed.get(version) != []}
        ledger.add(package, dated, seen=[version for version in dated if version not in days])
        added += [f"{package}-{version}" for version in dated]
    return [toolchain for package in ledger.PACKAGES for toolchain in ledger.history(package) if toolchain.tag in added]


# --- release candidates and nightlies ---------------------------------------------------------------------------------


INSTALL_SECONDS = 3600  # that an installation may take


def candidate_environments(root: Path, options: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Of each package that has a candidate: the last release's tag and the candidate's environment in ``root``, made
    when it is asked for. UserError where it cannot be. ``options`` are pip's."""
    for package in ledger.PACKAGES:
        version = newest_candidate(package, options)
        last = ledger.history(package)[-1].tag
        print(f"{package} {version} is the newest" if version else f"nothing comes after {last} yet")
        if not version:
            continue
        try:
            environment = install_candidate(root, package, version, options)
        except environments.InstallError as error:
            raise UserError(f"{package} {version} cannot be installed: {error}") from None
        yield last, environment


def newest_candidate(package: str, options: Sequence[str]) -> str:
    """The newest version that is not final and comes after the last release; "" where there is none. ``options`` are
    pip's."""
    last = Version(ledger.history(package)[-1].version)
    versions, _ = offered(package, "--pre", *options)
    found = [each for each in map(version_of, versions) if each and each.is_prerelease]
    newer = [version for version in found if Version(version.base_version) > last]
    return str(max(newer)) if newer else ""


def install_candidate(root: Path, package: str, version: str, options: Sequence[str]) -> Path:
    """The environment of a candidate, the other package as histories hold it; InstallError says why there is none."""
    held = ledger.history(package)[-1]
    pins = {"torch": held.release, "numpy": held.numpy, package: version}
    text = environments.REQUIREMENTS.read_text(encoding="utf-8")
    wanted = [f"{name}==={pin}" for name, pin in pins.items()]
    wanted += re.findall(r"^(?:asv|asv_runner)==\S+", text, re.MULTILINE)
    environment = root / re.sub(r"[^\w.+-]", "-", f"{package}-{version}")
    if not environments.is_ready(environment):
        shutil.rmtree(environment, ignore_errors=True)
        environments.make(environment, wanted, INSTALL_SECONDS, ["--pre", *options])
        (environment / environments.READY).touch()
    return environment
