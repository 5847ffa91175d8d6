"""Which releases a machine has yet to measure, each with the one before it, as the plan of a run."""

import json
from collections.abc import Collection
from pathlib import Path

from store import files
from store.records import record_of
from toolchains import ledger
from toolchains.ledger import Toolchain

from .engine import RESULTS
from .plan import Plan


def plan_of(directory: Path, machine: str, added: Collection[Toolchain], profile: str, rounds: int) -> Plan | None:
    """The plan of an interrupted run in ``directory``, or else one of what is due on a machine; None where nothing is.

    The release before a new one is measured with it, and its visit stands beside those of other days.
    """
    interrupted = Plan.load(directory)
    if interrupted:
        return interrupted
    tags: dict[str, bool] = {}  # whether it is new
    for package in ledger.PACKAGES:
        for toolchain in due(machine, package, added):
            before = reference(machine, toolchain, tags)
            if before:
                tags.setdefault(before.tag, False)
            tags[toolchain.tag] = True
    if not any(tags.values()):
        return None
    return Plan(directory, list(tags), profile, None, rounds, beside=[tag for tag, new in tags.items() if not new])


def new_in(plan: Plan) -> list[Toolchain]:
    """The releases that a plan is made for."""
    every = {toolchain.tag: toolchain for toolchain in ledger.commits().values()}
    return [every[tag] for tag in plan.tags if tag not in plan.beside and tag in every]


def due(machine: str, package: str, added: Collection[Toolchain]) -> list[Toolchain]:
    """The releases of a history that a machine has yet to measure, in order: those ``added`` now, and what came after
    the last that it has dealt with, or after the last that any machine has where it has none."""
    line = ledger.history(package)
    here, every = (
        [place for place, release in enumerate(line) if any(_records(name, release))] for name in (machine, "*")
    )
    known = here or every
    later = line[max(known) + 1 :] if known else ()
    return [
        release for release in line if release in later or (release in added and not any(_records(machine, release)))
    ]


def reference(machine: str, toolchain: Toolchain, planned: Collection[str]) -> Toolchain | None:
    """The release to judge another one by: the last before it that the machine has figures of or is going to measure,
    else simply the last before it."""
    line = ledger.history(toolchain.history)
    before = line[: line.index(toolchain)]
    known = [
        release
        for release in before
        if release.tag in planned or not all(map(_failed, _records(machine, release) or [""]))
    ]
    return (known or before)[-1] if before else None


def _records(machine: str, toolchain: Toolchain) -> list[str]:
    """The run records of a release on a machine, a line of JSON each; "*": on any."""
    paths = files.result_files(RESULTS, None if machine == "*" else machine, files.RECORDS)
    of_release = [path for path in paths if path.name.startswith(f"{toolchain.commit[:8]}-")]
    return [line for path in of_release for line in path.read_text(encoding="utf-8").splitlines()]


def _failed(record: str) -> bool:
    """Whether a run record says that the release could not be measured; of one that says nothing that is so, too."""
    try:
        return bool(record_of(json.loads(record)).failed)
    except (ValueError, TypeError):
        return True
