"""The ledger: every toolchain as a commit, so that asv can track it.

asv asks a repository for its commits, their dates and their names. Here the installed release
changes, so a commit stands for one torch with one numpy. Its date is the day of the release, and
its tag can be typed. There are two histories, each with one package held fixed, and a branch for
all other toolchains with results. No repository is stored. The hash of a toolchain is that of a git
commit without parents that holds only this toolchain. So the hash is the same on every machine,
whatever else is in the ledger.
"""

import errno
import json
import re
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from hashlib import sha1
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.version import Version

RELEASES = Path(__file__).with_name("releases.json")
PACKAGES = ("torch", "numpy")  # each has a history, and a branch of that name
OTHER_BRANCH = "installed"  # the branch of toolchains that are in neither history
LONGEST_VERSION = 64  # characters, because a tag may become a file name
UNKNOWN_DATE = "2022-01-01"  # for a build that is no release and has no date in its version


@cache
def _releases() -> dict[str, Any]:
    try:
        releases: dict[str, Any] = json.loads(RELEASES.read_text(encoding="utf-8"))
        for version, day in chain(*(releases[package].items() for package in PACKAGES)):
            Version(version), date.fromisoformat(day)
        Toolchain(**releases["held"])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise OSError(errno.EILSEQ, "is broken, restore it from git", str(RELEASES)) from None
    return releases


def first_seen(package: str, version: str) -> bool:
    """Whether a release is dated by the day it was first seen, because the package index gave no
    date."""
    return version in _releases().get("seen", {}).get(package, ())


@dataclass(frozen=True)
class Toolchain:
    """One torch with one numpy.

    ``torch`` includes the build variant (2.13.0+cpu) if it is known. A history consists of the
    package index's builds, whose variant depends on the platform. So in a history the variant is
    not part of a toolchain's identity.
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
        """Name of the commit, which asv accepts in place of the hash."""
        if self.history:
            return f"{self.history}-{self.version}"
        return re.sub(r"[^\w.+-]", "-", f"torch-{self.torch}-numpy-{self.numpy}")

    @property
    def date(self) -> str:
        """Day of the release that this commit stands for. For a nightly build, the day in its
        version."""
        nightly = re.search(r"\.dev(20\d{2})(\d{2})(\d{2})", self.torch)
        if nightly:
            return "-".join(nightly.groups())
        return _releases()[self.history or "torch"].get(self.version, UNKNOWN_DATE)

    @property
    def commit_time(self) -> int:
        """Time of the commit, in seconds since 1970: noon of its day. It is part of the hash."""
        return int(datetime.fromisoformat(f"{self.date}T12:00+00:00").timestamp())

    @property
    def commit(self) -> str:
        """Hash of the commit, as git would compute it. The commit holds one file and has no
        parents."""
        content = {"torch": self.torch, "numpy": self.numpy}
        if self.history:
            content |= {"torch": self.release, "history": self.history}
        blob = _git_hash("blob", json.dumps(content, sort_keys=True).encode() + b"\n")
        tree = _git_hash("tree", b"100644 toolchain.json\0" + bytes.fromhex(blob))
        author = f"ledger <ledger@localhost> {self.commit_time} +0000"
        header = f"tree {tree}\nauthor {author}\ncommitter {author}\n"
        return _git_hash(
            "commit", f"{header}\ntorch {content['torch']} with numpy {self.numpy}".encode()
        )

    def __str__(self) -> str:
        return f"torch {self.torch} with numpy {self.numpy}"


def _git_hash(kind: str, content: bytes) -> str:
    return sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


def history(package: str) -> tuple[Toolchain, ...]:
    """The releases of one package, in order of version. The other package is held fixed."""
    versions = sorted(_releases()[package], key=Version)
    held = _releases()["held"]
    return tuple(Toolchain(**{**held, package: version}, history=package) for version in versions)


def series(package: str) -> list[Toolchain]:
    """The last patch release of every minor release. These are measured by default."""
    last = {Version(toolchain.version).release[:2]: toolchain for toolchain in history(package)}
    return list(last.values())


def clear_caches() -> None:
    """Clear the caches, so that releases.json is read again."""
    _releases.cache_clear()
    toolchains_by_commit.cache_clear()


def identify(torch: str, numpy: str, from_index: bool) -> Toolchain:
    """Return the toolchain of this torch and numpy. It is in a history if both match and torch is
    the index's build."""
    if from_index:
        release = torch.split("+")[0]
        for toolchain in toolchains_by_commit().values():
            if (toolchain.torch, toolchain.numpy) == (release, numpy):
                return Toolchain(torch, numpy, toolchain.history)
    return Toolchain(torch, numpy)


@cache
def toolchains_by_commit() -> dict[str, Toolchain]:
    """Commit -> toolchain, for the histories."""
    return {toolchain.commit: toolchain for package in PACKAGES for toolchain in history(package)}


def parse_toolchain(torch: str, numpy: str, tag: str | None = None) -> Toolchain:
    """Return the toolchain that a run record names. Raise ValueError or TypeError if it cannot be a
    commit of asv. Such a toolchain in the ledger would make all others unusable."""
    if tag in toolchains_by_tag():
        return toolchains_by_tag()[tag]
    for version in (torch, numpy):
        if not version.isascii() or len(version) > LONGEST_VERSION:
            raise ValueError(f"{version[:LONGEST_VERSION]!a} is no version")
        Version(version)
    toolchain = Toolchain(torch, numpy)
    # an invalid day makes .commit raise ValueError
    if toolchain.commit and tag not in (None, toolchain.tag):
        raise ValueError(f"{toolchain} has another tag")
    return toolchain


def toolchains_by_tag() -> dict[str, Toolchain]:
    """Tag -> toolchain, for the histories."""
    return {toolchain.tag: toolchain for toolchain in toolchains_by_commit().values()}
