"""What the package index has and the ledger lacks: final releases of torch and numpy, and the days they came on.

pip is asked, so the index is whatever pip is configured for: an address, or a directory of files. It says which
versions there are, and where it looked; places that speak JSON say when each came (PEP 700). Where none does, or one
has the same day for all, a release's day is that on which it was first seen, and releases.json says so under ``seen``.
"""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import groupby
from typing import Any

from cli import UserError

from . import environments, ledger

JSON = "application/vnd.pypi.simple.v1+json"  # PEP 691
DAY = re.compile(r"\d{4}-\d\d-\d\d")
FINAL = re.compile(r"\d+(\.\d+)+")  # no candidate, no nightly, no build variant
SECONDS = 300  # that pip, or a place, may take to answer


@dataclass(frozen=True)
class Offer:
    """What pip finds of a package: its versions, and the addresses at which it looked."""

    versions: tuple[str, ...]
    places: tuple[str, ...]


def offered(package: str, *options: str) -> Offer:
    """What the index has of a package, whichever Python it is for; ``options`` are pip's. UserError where pip fails."""
    command = [sys.executable, "-m", "pip", "index", "versions", package, "-vv", "--ignore-requires-python", *options]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"the package index did not say in {SECONDS} s which releases of {package} there are") from None
    matched = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if done.returncode or not matched:
        reason = environments.reason(done.stderr or done.stdout)
        raise UserError(f"pip cannot say which releases of {package} there are: {reason}")
    places = re.findall(r"^\s*\* (https?://\S+)$", done.stdout, re.MULTILINE)
    return Offer(tuple(matched[1].split(", ")), tuple(places))


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
        name = str(file.get("filename"))
        if name.endswith(".whl"):
            days = by_version.setdefault(name.split("-")[1], [])
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
    minors = {
        minor: max(patches)
        for minor, patches in groupby(sorted(map(ledger.parts, known)), key=lambda numbers: numbers[:2])
    }
    newest = max(minors.values())
    final = sorted(filter(FINAL.fullmatch, versions), key=ledger.parts)
    return [version for version in final if ledger.parts(version) > minors.get(ledger.parts(version)[:2], newest)]


def update(today: str = "") -> list[ledger.Toolchain]:
    """Add to releases.json what came since its last releases; those, history by history, in order of release."""
    today = today or datetime.now(timezone.utc).date().isoformat()
    added: list[str] = []
    for package in ledger.PACKAGES:
        offer = offered(package)
        known = [toolchain.version for toolchain in ledger.history(package)]
        fresh = since(known, offer.versions)
        listed = wheels(file for place in offer.places for file in files_at(place)) if fresh else {}
        days = days_of(listed)
        dated = {version: days.get(version, today) for version in fresh if listed.get(version) != []}
        ledger.add(package, dated, seen=[version for version in dated if version not in days])
        added += [f"{package}-{version}" for version in dated]
    return [toolchain for package in ledger.PACKAGES for toolchain in ledger.history(package) if toolchain.tag in added]
