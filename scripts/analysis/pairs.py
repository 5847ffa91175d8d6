"""Two sides that are found, loaded and compared: by their names, or a release and the one before it."""

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from cli import UserError
from packaging.version import Version
from store.files import fresh_results, read_records, results_of
from store.records import Record
from toolchains import ledger, selection
from toolchains.ledger import Toolchain

from .comparison import Comparison, belong_together, compare
from .results import Results, load_files
from .sessions import sessions_in
from .verdicts import DEFAULT, Settings

# --- by name ----------------------------------------------------------------------------------------------------------


def compare_named(base: str, new: str, results: Path, machine: str | None, settings: Settings) -> Comparison:
    """Compare what ``result_file`` finds by two names, and fresh processes where ``compare.py --run`` took some.

    UserError where a name is of no file or of several, or both are of the same.
    """
    files = [selection.result_file(name, results, machine) for name in (base, new)]
    if files[0].resolve() == files[1].resolve():
        raise UserError(f"BASE and NEW are the same file, {files[0]}: its A/A needs a second run of that toolchain")
    places = [results_of(file) for file in files]
    first, second = (load_files(place, [file]) for place, file in zip(places, files))
    fresh = None
    stages = [stage for place in places if (stage := fresh_results(place))]
    if len(stages) == len(places):
        again = [load_files(stage, [selection.result_file(str(stage), stage)]) for stage in stages]
        fresh = (again[0], again[1]) if belong_together(first, second, *again) else None
    sessions = None
    if files[0].absolute().parent == files[1].absolute().parent:
        # files of neither side: one that is broken is no obstacle, and report.py names it
        with contextlib.suppress(UserError):
            sessions = sessions_in(places[0], files[0].absolute().parent.name)
    return compare(first, second, settings, fresh, sessions)


# --- a release and the one before it ----------------------------------------------------------------------------------


SESSION_HOURS = 12  # sessions closer than that tell of the releases, more distant ones of the machine, too


@dataclass(frozen=True)
class News:
    """A release of a history, and the one before it that the same machine measured, compared.

    file: stem of the release's result file; measured: when the run began that measured it
    """

    release: Toolchain
    before: Toolchain
    machine: str
    file: str
    measured: str
    comparison: Comparison


def news_of(results: Path, machine: str, release: Toolchain, settings: Settings = DEFAULT) -> News:
    """What ``release`` changed on a machine. UserError where it, or none before it, has figures there."""
    latest = _measured(results, machine, release)
    if latest is None:
        raise UserError(f"{release.tag} has no figures on {machine}{_why(results, machine, release)}")
    file, record = latest
    python = file.name.partition("-")[2]
    for before in reversed(ledger.history(release.history)):
        base = _measured(results, machine, before, python)
        if Version(before.version) < Version(release.version) and base:
            sides = load_files(results, [base[0]]), load_files(results, [file])
            baseline = _same_session(sides[0], record)
            comparison = compare(baseline, sides[1], settings, sessions=sessions_in(results, machine))
            return News(release, before, machine, file.stem, record.started, comparison)
    raise UserError(f"no release before {release.tag} has figures on {machine} with the same Python")


def _measured(results: Path, machine: str, toolchain: Toolchain, rest: str = "*.json") -> tuple[Path, Record] | None:
    """The result file of a release that was measured last, and the record of its last session; ``rest`` of its name."""
    files = (results / machine).glob(f"{toolchain.commit[:8]}-{rest}")
    measured = ((path, record) for path in files for record in read_records(path) if not record.failed)
    return max(measured, key=lambda each: (each[1].started, each[0]), default=None)


def _why(results: Path, machine: str, toolchain: Toolchain) -> str:
    """Why a release was not measured, where a run says so."""
    files = (results / machine).glob(f"{toolchain.commit[:8]}-*.jsonl")
    failed = (record.failed for path in files for record in read_records(path) if record.failed)
    return next((f": {reason}" for reason in failed), "")


def _same_session(base: Results, record: Record) -> Results:
    """What was measured of the release before in the session that measured the release, all of it where nothing was.

    A session of another day differs by what the machine did since, too.
    """
    near = [other.started for other in base.runs if _hours(other, record) <= SESSION_HOURS]
    processes = base.processes[base.processes["run"].isin(near)]
    if processes.empty:
        return base
    return replace(base, processes=processes.assign(process=processes["process"] - processes["process"].min()))


def _hours(first: Record, second: Record) -> float:
    """Between the beginnings of two runs; endless where one of them is not known."""
    try:
        moments = [datetime.fromisoformat(record.started) for record in (first, second)]
    except ValueError:
        return float("inf")
    return abs((moments[1] - moments[0]).total_seconds()) / 3600
