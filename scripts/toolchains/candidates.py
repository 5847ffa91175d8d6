"""Release candidates and nightlies: found and installed on request, and never part of a history.

Each has an environment of its own, with asv in it, so that a comparison can run it beside the last release. A nightly
is dated by its version; in the ledger both are on the branch of what is outside the histories.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from cli import UserError

from . import environments, index, ledger

NOT_FINAL = re.compile(r"\d+(\.\d+)+(a|b|rc|\.dev)\d+(\+\w+)?")
SECONDS = 3600  # that an installation may take


def installed(root: Path, options: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Of each package that has a candidate: the last release's tag and the candidate's environment in ``root``, made
    when it is asked for. UserError where it cannot be. ``options`` are pip's."""
    for package in ledger.PACKAGES:
        version = newest(package, options)
        last = ledger.history(package)[-1].tag
        print(f"{package} {version} is the newest" if version else f"nothing comes after {last} yet")
        if not version:
            continue
        try:
            environment = install(root, package, version, options)
        except environments.InstallError as error:
            raise UserError(f"{package} {version} cannot be installed: {error}") from None
        yield last, environment


def newest(package: str, options: Sequence[str]) -> str:
    """The newest version that is not final and comes after the last release; "" where there is none. ``options`` are
    pip's."""
    last = ledger.parts(ledger.history(package)[-1].version)
    versions = index.offered(package, "--pre", *options).versions
    newer = [
        version for version in versions if NOT_FINAL.fullmatch(version) and ledger.parts(version)[: len(last)] > last
    ]
    return max(newer, key=ledger.parts, default="")


def install(root: Path, package: str, version: str, options: Sequence[str]) -> Path:
    """The environment of a candidate, the other package as histories hold it; InstallError says why there is none."""
    held = ledger.history(package)[-1]
    pins = {"torch": held.release, "numpy": held.numpy, package: version}
    text = environments.REQUIREMENTS.read_text(encoding="utf-8")
    wanted = [f"{name}==={pin}" for name, pin in pins.items()]
    wanted += re.findall(r"^(?:asv|asv_runner)==\S+", text, re.MULTILINE)
    environment = root / re.sub(r"[^\w.+-]", "-", f"{package}-{version}")
    if not environments.is_ready(environment):
        shutil.rmtree(environment, ignore_errors=True)
        environments.make(environment, wanted, SECONDS, ["--pre", *options])
        (environment / environments.READY).touch()
    return environment
