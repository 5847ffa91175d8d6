"""Choose the toolchains of a history: coarse to fine, or the releases that a machine lacks."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from cli import RESULTS, UserError
from msgspec.structs import replace
from store import files
from toolchains import ledger

from .journal import Plan
from .profiles import Names


def coarse_to_fine(tags: Names) -> list[str]:
    """Order by the positions' reversed binary digits (van der Corput): first, (nearly) last,
    middle, quarters.

    In order of release, a drift of the machine over the hours would look like a trend of the
    releases.
    """
    digits = len(tags).bit_length()
    positions = sorted(range(len(tags)), key=lambda position: f"{position:0{digits}b}"[::-1])
    return [tags[position] for position in positions]


def due_plan(
    plan: Plan, added: Collection[ledger.Toolchain], results: Path = RESULTS
) -> Plan | None:
    """Return ``plan`` with the releases due on its machine, or None if no release is due.

    Due are the releases ``added`` now, and those after the last release with a run record of the
    machine. Without such records, those of all machines count. With a new release the one before it
    is measured, too, beside its earlier sessions. That is the last earlier release which the
    machine has figures of or is going to measure, else simply the previous release.
    """
    is_due: dict[str, bool] = {}  # in order of measuring; False: only to compare with
    recorded = recorded_toolchains(results, plan.machine)
    anywhere = recorded_toolchains(results, None)
    for releases in map(ledger.history, ledger.PACKAGES):
        last = _last_place(releases, recorded, anywhere)
        for place, release in enumerate(releases):
            if place <= last and (release not in added or _key(release) in recorded):
                continue
            if earlier := releases[:place]:
                measured = [
                    each for each in earlier if each.tag in is_due or recorded.get(_key(each))
                ]
                is_due.setdefault((measured or earlier)[-1].tag, False)
            is_due[release.tag] = True
    if not any(is_due.values()):
        return None
    additional = tuple(tag for tag in is_due if not is_due[tag])
    return replace(plan, tags=tuple(is_due), additional=additional)


def _key(release: ledger.Toolchain) -> str:
    """The beginning of the names of a toolchain's result files."""
    return release.commit[:8]


def _last_place(releases: Sequence[ledger.Toolchain], *records: Mapping[str, bool]) -> int:
    """Return the place of the last release in the first of ``records`` that has any, else the
    number of releases."""
    for recorded in records:
        if places := [place for place, each in enumerate(releases) if _key(each) in recorded]:
            return places[-1]
    return len(releases)


def recorded_toolchains(results: Path, machine: str | None) -> dict[str, bool]:
    """Toolchain with run records of a machine, or of any machine (None), as the first eight letters
    of its commit -> whether it was measured at least once."""
    measured: dict[str, bool] = {}
    for path in files.result_files(results, machine, files.RECORDS):
        key = path.name.split("-")[0]
        measured.setdefault(key, False)
        with contextlib.suppress(UserError):  # a broken file: nothing can be compared with it
            measured[key] |= any(not record.failed for record in files.read_records(path))
    return measured
