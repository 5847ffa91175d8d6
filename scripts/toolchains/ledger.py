"""The ledger: every toolchain as a commit, so that asv can track it.

asv asks a repository which commits there are, when they were made and what they are called. Here the thing that
changes is an installed release, so a commit stands for one torch with one numpy: its date is the day of the release,
its tag can be typed. There are two histories, one package held fixed in each, and a branch for all other toolchains
that have results. No repository is stored: a toolchain's hash is that of a git commit without parents that holds it,
so it depends on that toolchain alone. It is the same on every machine, whatever else is in the ledger.
"""

import errno
import json
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from hashlib import sha1
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.version import Version

RELEASES = Path(__file__).with_name("releases.json")
PACKAGES = ("torch", "numpy")  # each has a history, and a branch of that name
OUTSIDE = "installed"  # the branch of toolchains that are in neither history
LONGEST_VERSION = 64  # letters; a tag is the name of a file
UNKNOWN_DATE = "2022-01-01"  # of a build that is neither a release nor dated in its version


@cache
def _releases() -> dict[str, Any]:
    try:
        releases: dict[str, Any] = json.loads(RELEASES.read_text(encoding="utf-8"))
        for version, day in chain(*(releases[package].items() for package in PACKAGES)):
            Version(version), datetime.strptime(day, "%Y-%m-%d")
        Toolchain(**releases["held"])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise OSError(errno.EILSEQ, "is broken, restore it from git", str(RELEASES)) from None
    return releases


def first_seen(package: str, version: str) -> bool:
    """Whether a release's day is the one on which it was first seen: the package index named none."""
    return version in _releases().get("seen", {}).get(package, ())


@dataclass(frozen=True)
class Toolchain:
    """One torch with one numpy.

    ``torch`` names the build variant (2.13.0+cpu) where it is known. A history is made of the builds that the package
    index serves, whichever variant that is on a platform, so there the variant is no part of the toolchain's identity.
    """

    torch: str
    numpy: str
    history: str = ""  # "torch", "numpy", or "" for a toolchain outside the histories

    @property
    def release(self) -> str:
        """torch's version without its build variant."""
        return self.torch.split("+")[0]

    @property
    def version(self) -> str:
        """The release that this toolchain stands for in its history."""
        return self.numpy if self.history == "numpy" else self.release

    @property
    def tag(self) -> str:
        """Name of the commit, to be typed where asv takes a commit."""
        if self.history:
            return f"{self.history}-{self.version}"
        return re.sub(r"[^\w.+-]", "-", f"torch-{self.torch}-numpy-{self.numpy}")

    @property
    def date(self) -> str:
        """Day of the release that this commit stands for; of a nightly the day in its version."""
        nightly = re.search(r"\.dev(20\d{2})(\d{2})(\d{2})", self.torch)
        if nightly:
            return "-".join(nightly.groups())
        return _releases()[self.history or "torch"].get(self.version, UNKNOWN_DATE)

    @property
    def made(self) -> int:
        """When the commit was made, in seconds since 1970: at noon of that day. It is part of its hash."""
        return int(datetime.strptime(self.date, "%Y-%m-%d").replace(hour=12, tzinfo=timezone.utc).timestamp())

    @property
    def commit(self) -> str:
        """The commit's hash, as git would make it: it holds one file, and has no parents."""
        torch = self.release if self.history else self.torch
        held = {"torch": torch, "numpy": self.numpy} | ({"history": self.history} if self.history else {})
        blob = _git_hash("blob", json.dumps(held, sort_keys=True).encode() + b"\n")
        tree = _git_hash("tree", b"100644 toolchain.json\0" + bytes.fromhex(blob))
        author = f"ledger <ledger@localhost> {self.made} +0000"
        text = f"tree {tree}\nauthor {author}\ncommitter {author}\n\ntorch {torch} with numpy {self.numpy}"
        return _git_hash("commit", text.encode())

    def __str__(self) -> str:
        return f"torch {self.torch} with numpy {self.numpy}"


def _git_hash(of: str, content: bytes) -> str:
    return sha1(f"{of} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


def history(package: str) -> tuple[Toolchain, ...]:
    """The releases of one package, in order of version, the other one held."""
    versions = sorted(_releases()[package], key=Version)
    held = _releases()["held"]
    return tuple(Toolchain(**{**held, package: version}, history=package) for version in versions)


def series(package: str) -> list[Toolchain]:
    """The last patch release of every minor release: what a history is measured at unless one asks for more."""
    last = {Version(toolchain.version).release[:2]: toolchain for toolchain in history(package)}
    return list(last.values())


def forget() -> None:
    """Read releases.json anew when it is asked for next."""
    _releases.cache_clear()
    commits.cache_clear()


def identify(torch: str, numpy: str, from_index: bool) -> Toolchain:
    """The toolchain of this torch and numpy: one of a history if torch is the package index's build and both match."""
    for known in commits().values() if from_index else ():
        if (known.torch, known.numpy) == (torch.split("+")[0], numpy):
            return Toolchain(torch, numpy, known.history)
    return Toolchain(torch, numpy)


@cache
def commits() -> dict[str, Toolchain]:
    """Commit -> toolchain, of the histories."""
    return {toolchain.commit: toolchain for package in PACKAGES for toolchain in history(package)}


def recorded(torch: str, numpy: str, tag: str | None = None) -> Toolchain:
    """The toolchain that a run record names. ValueError or TypeError where asv cannot have it: that would keep asv from
    all the others."""
    if tag in tagged():
        return tagged()[tag]
    for version in (torch, numpy):
        if not version.isascii() or len(version) > LONGEST_VERSION:
            raise ValueError(f"{version[:LONGEST_VERSION]!a} is no version")
        Version(version)
    toolchain = Toolchain(torch, numpy)
    if toolchain.commit and tag not in (None, toolchain.tag):  # a commit needs a day, which may be none
        raise ValueError(f"{toolchain} has another tag")
    return toolchain


def tagged() -> dict[str, Toolchain]:
    """Tag -> toolchain, of the histories."""
    return {toolchain.tag: toolchain for toolchain in commits().values()}


def find(commit: str) -> Toolchain | None:
    """The toolchain of a commit, among the histories."""
    return commits().get(commit)
