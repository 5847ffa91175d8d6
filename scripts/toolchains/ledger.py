"""The ledger: a small git repository, made on demand and never pushed, in which every toolchain is one commit.

asv asks a repository which commits there are, when they were made and what they are called. Here the thing that
changes is an installed release, so a commit stands for one torch with one numpy: its tree says which, its date is
torch's release date, its tag can be typed. Commits are made without parents and joined with ``git replace --graft``,
so a toolchain's hash depends on that toolchain alone: the same on every machine, whatever else is in the ledger.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

RELEASES = Path(__file__).with_name("releases.json")
BRANCH = "installed"
UNKNOWN_DATE = "2022-01-01"  # of a build that is neither a release nor dated in its version


@dataclass(frozen=True)
class Toolchain:
    """One torch with its build variant (2.13.0+cpu) and one numpy (2.4.6)."""

    torch: str
    numpy: str

    @property
    def tag(self) -> str:
        """Name of the commit, to be typed where asv takes a commit."""
        return re.sub(r"[^\w.+-]", "-", f"torch-{self.torch}-numpy-{self.numpy}")

    @property
    def date(self) -> str:
        """Day of torch's release; of a nightly the day in its version."""
        released = json.loads(RELEASES.read_text(encoding="utf-8"))["torch"]
        nightly = re.search(r"\.dev(\d{4})(\d{2})(\d{2})", self.torch)
        if nightly:
            return "-".join(nightly.groups())
        return released.get(self.torch.split("+")[0], UNKNOWN_DATE)

    def __str__(self) -> str:
        return f"torch {self.torch} with numpy {self.numpy}"


def _git(repository: Path, *arguments: str, stdin: bytes = b"") -> str:
    # The user's own git configuration (signing, hooks, templates) must not reach the ledger's hashes
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, input=stdin, env=environment, check=True, capture_output=True).stdout.decode()


def _commit(toolchain: Toolchain, mark: int) -> str:
    """A parentless commit in git's fast-import language."""
    tree = json.dumps(asdict(toolchain), sort_keys=True) + "\n"
    when = datetime.strptime(toolchain.date, "%Y-%m-%d").replace(hour=12, tzinfo=timezone.utc)
    stamp = f"ledger <ledger@localhost> {int(when.timestamp())} +0000"
    lines = [
        f"commit refs/tags/{toolchain.tag}",
        f"mark :{mark}",
        f"author {stamp}",
        f"committer {stamp}",
        f"data {len(str(toolchain).encode())}",
        str(toolchain),
        "M 100644 inline toolchain.json",
        f"data {len(tree.encode())}",
        tree,
    ]
    return "\n".join(lines) + "\n"


def make(path: Path, toolchains: Iterable[Toolchain]) -> None:
    """Make the ledger of these toolchains, in their order, unless ``path`` holds it already."""
    line: list[Toolchain] = list(dict.fromkeys(toolchains))
    stamp = json.dumps([toolchain.tag for toolchain in line])
    known = path / "toolchains.json"
    if known.is_file() and known.read_text(encoding="utf-8") == stamp:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=path.parent, prefix="ledger-"))
    try:
        _git(fresh, "init", "--quiet", "--bare", f"--initial-branch={BRANCH}")
        stream = "".join(_commit(toolchain, mark) for mark, toolchain in enumerate(line, start=1))
        _git(fresh, "fast-import", "--quiet", stdin=stream.encode())
        for before, after in zip(line, line[1:]):
            _git(fresh, "replace", "--graft", after.tag, before.tag)
        _git(fresh, "update-ref", f"refs/heads/{BRANCH}", f"refs/tags/{line[-1].tag}")
        (fresh / "toolchains.json").write_text(stamp, encoding="utf-8")
        shutil.rmtree(path, ignore_errors=True)
        fresh.rename(path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def commit_hash(path: Path, toolchain: Toolchain) -> str:
    """Hash of a toolchain's commit in the ledger at ``path``; CalledProcessError if it is not there."""
    return _git(path, "rev-parse", f"refs/tags/{toolchain.tag}").strip()
