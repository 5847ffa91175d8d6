"""What the package index has: final releases that the ledger lacks, with the days they came on.

pip is asked, so the index is whatever pip is configured for: an address, or a directory of files. It says which
versions there are, and where it looked; places that speak JSON say when each came (PEP 700). Where none does, or one
has the same day for all, a release's day is that on which it was first seen, and releases.json says so under ``seen``.
"""

import contextlib
import json
import re
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from cli import UserError
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from . import environments, ledger

JSON = "application/vnd.pypi.simple.v1+json"  # PEP 691
DAY = re.compile(r"\d{4}-\d\d-\d\d")
SECONDS = 300  # that pip, or a place, may take to answer


def offered(package: str) -> tuple[list[str], list[str]]:
    """What the index has of a package, whichever Python it is for: its versions, and the addresses at which pip looked.
    UserError where pip fails."""
    command = [sys.executable, "-m", "pip", "index", "versions", package, "-vv", "--ignore-requires-python"]
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
