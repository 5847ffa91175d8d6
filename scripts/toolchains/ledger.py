"""The ledger: every toolchain as a commit, so that asv can track it.

asv asks a repository for its commits, their dates and their names. Here the installed release
changes, so a commit stands for one torch with one numpy, in some histories on one Python. Its date
is the day of the release, and its tag can be typed. A history varies torch, numpy or Python and
holds the others fixed. A branch has all other toolchains with results. No repository is stored. The
hash of a toolchain is that of a git commit without parents that holds only this toolchain. So the
hash is the same on every machine, whatever else is in the ledger.
"""

import dataclasses
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
PACKAGES = ("torch", "numpy")  # each has a history of that name, on any Python
PYTHON = "python"
OTHER_BRANCH = "installed"  # the branch of toolchains that are in no history
LONGEST_VERSION = 64  # characters, because a tag may become a file name
UNKNOWN_DATE = "2022-01-01"  # for a build that is no release and has no date in its version


@cache
def _releases() -> dict[str, Any]:
    try:
        releases: dict[str, Any] = json.loads(RELEASES.read_text(encoding="utf-8"))
        for version, day in chain(*(releases[package].items() for package in PACKAGES)):
            Version(version), date.fromisoformat(day)
        Toolchain(**releases["held"])
        for declared in releases.setdefault("histories", {}).values():
            releases[declared["package"]]
        for package in PACKAGES:
            releases["histories"][package] = {"package": package, **releases["held"]}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise OSError(errno.EILSEQ, "is broken, restore it from git", str(RELEASES)) from None
    return releases


def first_seen(history: str, version: str) -> bool:
    """Whether a release is dated by the day it was first seen, because the package index gave no
    date."""
    package = _releases()["histories"][history]["package"]
    return version in _releases().get("seen", {}).get(package, ())


def histories() -> list[str]:
    """The names of all histories; those of PACKAGES come first. Each has a branch of that name."""
    return [*PACKAGES, *(name for name in _releases()["histories"] if name not in PACKAGES)]


def order(version: str) -> tuple[Version, bool]:
    """Sort key of versions of a package or of Python: 3.13t is 3.13 without its GIL."""
    return Version(version.removesuffix("t")), version.endswith("t")


@dataclass(frozen=True)
class Toolchain:
    """One torch with one numpy, on one Python where that is set.

    ``torch`` includes the build variant (2.13.0+cpu) if it is known. A history consists of the
    package index's builds, whose variant depends on the platform. So in a history the variant is
    not part of a toolchain's identity.
    """

    torch: str
    numpy: str
    history: str = ""  # its name, or "" for a toolchain outside the histories
    python: str = ""  # release: 3.13, of a free-threaded build 3.13t; "": any Python with a GIL

    @property
    def release(self) -> str:
        """torch's version without its build variant."""
        return self.torch.split("+")[0]

    @property
    def package(self) -> str:
        """What its history varies: torch, numpy or python."""
        histories = _releases()["histories"]
        return str(histories[self.history]["package"]) if self.history else "torch"

    @property
    def version(self) -> str:
        """The release that this toolchain stands for in its history."""
        return {"numpy": self.numpy, PYTHON: self.python}.get(self.package, self.release)

    @property
    def name(self) -> str:
        """The name of that release for a reader."""
        package = "Python" if self.package == PYTHON else self.package
        return f"{package} {self.version}"

    @property
    def tag(self) -> str:
        """Name of the commit, which asv accepts in place of the hash."""
        if self.history:
            return f"{self.history}-{self.version}"
        python = f"-py{self.python}" if self.python else ""
        return re.sub(r"[^\w.+-]", "-", f"torch-{self.torch}-numpy-{self.numpy}{python}")

    @property
    def date(self) -> str:
        """Day of the release that this commit stands for. For a nightly build, the day in its
        version."""
        nightly = re.search(r"\.dev(20\d{2})(\d{2})(\d{2})", self.torch)
        if nightly:
            return "-".join(nightly.groups())
        return str(_releases()[self.package].get(self.version, UNKNOWN_DATE))

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
        if self.python:
            content["python"] = self.python
        blob = _git_hash("blob", json.dumps(content, sort_keys=True).encode() + b"\n")
        tree = _git_hash("tree", b"100644 toolchain.json\0" + bytes.fromhex(blob))
        author = f"ledger <ledger@localhost> {self.commit_time} +0000"
        header = f"tree {tree}\nauthor {author}\ncommitter {author}\n"
        message = dataclasses.replace(self, torch=content["torch"])
        return _git_hash("commit", f"{header}\n{message}".encode())

    def __str__(self) -> str:
        python = f" on Python {self.python}" if self.python else ""
        return f"torch {self.torch} with numpy {self.numpy}{python}"


def _git_hash(kind: str, content: bytes) -> str:
    return sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


def history(name: str) -> tuple[Toolchain, ...]:
    """The releases of a history, in order of version. What it does not vary is held fixed, but
    where a version of Python has no wheel of that."""
    declared = {"since": "0", **_releases()["histories"][name]}
    package = declared.pop("package")
    since = order(declared.pop("since"))
    listed = declared.pop("versions", dict.fromkeys(_releases()[package], {}))
    versions = sorted((version for version in listed if order(version) >= since), key=order)
    return tuple(
        Toolchain(**{**declared, package: version, **listed[version]}, history=name)
        for version in versions
    )


def series(name: str) -> list[Toolchain]:
    """The last patch release of every minor release. These are measured by default."""
    last = {}
    for toolchain in history(name):
        version, is_free_threaded = order(toolchain.version)
        last[version.release[:2], is_free_threaded] = toolchain
    return list(last.values())


def clear_caches() -> None:
    """Clear the caches, so that releases.json is read again."""
    _releases.cache_clear()
    toolchains_by_commit.cache_clear()


def identify(torch: str, numpy: str, from_index: bool, python: str = "") -> Toolchain:
    """Return the toolchain of this torch and numpy. It is in a history if both match and torch is
    the index's build. python: release of a free-threaded Python, else ""."""
    if from_index:
        release = torch.split("+")[0]
        for toolchain in toolchains_by_commit().values():
            if (toolchain.torch, toolchain.numpy, toolchain.python) == (release, numpy, python):
                return Toolchain(torch, numpy, toolchain.history, python)
    return Toolchain(torch, numpy, python=python)


@cache
def toolchains_by_commit() -> dict[str, Toolchain]:
    """Commit -> toolchain, for the histories."""
    return {toolchain.commit: toolchain for name in histories() for toolchain in history(name)}


def parse_toolchain(torch: str, numpy: str, tag: str | None = None, python: str = "") -> Toolchain:
    """Return the toolchain that a run record names. Raise ValueError or TypeError if it cannot be a
    commit of asv. Such a toolchain in the ledger would make all others unusable."""
    if tag in toolchains_by_tag():
        return toolchains_by_tag()[tag]
    for version in (torch, numpy, python.removesuffix("t") or "0"):
        if not version.isascii() or len(version) > LONGEST_VERSION:
            raise ValueError(f"{version[:LONGEST_VERSION]!a} is no version")
        Version(version)
    toolchain = Toolchain(torch, numpy, python=python)
    # an invalid day makes .commit raise ValueError
    if toolchain.commit and tag not in (None, toolchain.tag):
        raise ValueError(f"{toolchain} has another tag")
    return toolchain


def toolchains_by_tag() -> dict[str, Toolchain]:
    """Tag -> toolchain, for the histories."""
    return {toolchain.tag: toolchain for toolchain in toolchains_by_commit().values()}
