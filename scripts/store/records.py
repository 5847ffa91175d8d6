"""The contents of result files: run records, a line of JSON each, and the names in a line of measurements.

A record says what was measured, with which toolchain, where, by which command, and how quiet the machine was. Runs
write records and reports read them. Their fields are defined here alone. A field that is missing, as in a record of
another version, has its default, which means "unknown".
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

import dacite

Made = TypeVar("Made")


def number(value: Any) -> float:
    """Return a finite number: a float, or an int as JSON may write it. TypeError for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isinf(value):
        raise TypeError(f"{value!r} is no finite number")
    return value


READING = dacite.Config(type_hooks={float: number})


def from_json(cls: type[Made], loaded: Any) -> Made:
    """Make a dataclass from loaded JSON. A missing or null field has its default. Unknown names are ignored.

    TypeError if a value has another type, or a field without a default is missing.
    """
    try:
        return dacite.from_dict(cls, plain_of(cls, loaded), READING)
    except dacite.DaciteError as error:
        raise TypeError(str(error)) from None


def plain_of(of: Any, loaded: Any) -> Any:
    """Prepare loaded JSON for dacite: lists become tuples, and null fields of a dataclass are dropped."""
    if isinstance(loaded, list):
        return tuple(plain_of(None, value) for value in loaded)
    if not isinstance(loaded, dict):
        return loaded
    own = {each.name: each.type for each in fields(of)} if is_dataclass(of) else {}
    return {
        name: plain_of(own.get(name), value)
        for name, value in loaded.items()
        if value is not None or not own
    }


Line = Mapping[
    str, Any
]  # of a measurements file: one process, or a cell's instruction counts; see files.py


def name_of(line: Line) -> str:
    """asv's name of the cell that a line describes."""
    return (
        f"{line['benchmark']}({', '.join(line['params'])})"
        if line["params"]
        else str(line["benchmark"])
    )


def with_samples(lines: Iterable[Line]) -> list[Line]:
    """The lines that hold samples; the others hold counts, or say why a cell was skipped."""
    return [line for line in lines if "seconds" in line]


# Fields that are left out of a record when empty, as in most runs
SOMETIMES = [
    "failed",
    "drift",
    "interleaved",
    "fleet",
    "cores",
    "awake",
    "not_awake",
    "device_probe",
    "device_changed",
]
SOMETIMES += ["device_lost"]


@dataclass(frozen=True)
class Toolchain:
    """The toolchain to measure: its tag in the ledger and the releases."""

    tag: str
    torch: str = ""
    numpy: str = ""


@dataclass(frozen=True)
class Settings:
    """The packages really imported, their build and number of threads; the device, or why there is none."""

    torch: str = ""
    numpy: str = ""
    python: str = ""
    cuda: str = ""
    hip: str = ""
    git: str = ""  # torch's commit
    torch_threads: int | None = None
    device: str = ""
    device_name: str = ""
    driver: str = ""  # of the device: its version
    environment: Mapping[str, str] = field(
        default_factory=dict
    )  # of the device: variables that are set
    no_device: str = ""
    near_cores: tuple[int, ...] = ()  # cores near the device, by its driver


# Conditions that distinguish two machines. A virtual machine may report any CPU as "AMD EPYC"
MACHINE = ("cpu", "cores", "caches")


@dataclass(frozen=True)
class Conditions:
    """Properties of the machine that affect timing, at the start of the run."""

    cpu: str = ""
    cores: int | None = None
    cores_allowed: int | None = None
    caches: Mapping[str, str] = field(
        default_factory=dict
    )  # level -> size, as the system reports it
    memory_bytes: float = 0
    system: str = ""
    libc: str = ""
    governor: str = ""
    transparent_hugepages: str = ""
    load_average: float | None = None


@dataclass(frozen=True)
class Record:
    """A run.

    skipped, failures  reason -> the cells without a figure for this reason
    only, planned      pattern that chose the cells; number of processes planned per cell
    rounds, seconds    processes taken per cell; duration of the run
    waited, patience   part of ``seconds`` spent waiting for quiet; the longest wait allowed
    quiet              share of the probed time in which the machine was undisturbed; None without probes
    baselines          name of a speed probe -> its baseline in ns
    samples, retaken   samples wanted; samples taken in addition
    noisy_cells        cells without a quiet process; their figures are upper bounds
    failed             why the toolchain could not be measured at all
    drift              for a toolchain that a history measured again: how its cells moved, see runner.drift
    interleaved        for a side of a comparison: id of the collection, stage, side
    fleet              for a node of a fleet: id of the campaign, engine, node (an anonymous name)
    cores              cores near the device to which the processes were bound; empty: all allowed cores
    awake, not_awake   whether a context was kept open on the device during the run; why not
    device_probe       quantity that the device's driver reports around samples -> its minimum and maximum
    device_changed     quantity below its maximum, unsteady or unseen, or reason of a slower device -> the cells
    device_lost        why the device stopped working, if the run went on without it
    file               stem of the file with this record; "" before it is filed
    """

    toolchain: Toolchain
    skipped: Mapping[str, tuple[str, ...]]
    failures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    profile: str = ""
    only: str = ""
    planned: int = 0
    command: str = ""
    machine: str = ""
    settings: Settings = Settings()
    conditions: Conditions = Conditions()
    asv: str = ""
    asv_runner: str = ""
    launch: str = ""
    started: str = ""
    rounds: int = 0
    seconds: float = 0.0
    patience: float = 0.0
    waited: float = 0.0
    quiet: float | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    samples: int = 0
    retaken: int = 0
    noisy_cells: tuple[str, ...] = ()
    failed: str = ""
    drift: Mapping[str, float] = field(default_factory=dict)
    interleaved: Mapping[str, Any] = field(default_factory=dict)
    fleet: Mapping[str, Any] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    awake: bool = False
    not_awake: str = ""
    device_probe: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    device_changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    device_lost: str = ""
    file: str = ""


UNKNOWN = Record(Toolchain(""), {})  # for results of ``asv run`` by hand


def record_of(loaded: Any, file: str = "") -> Record:
    """Make a record from a parsed line of JSON. TypeError or ValueError if it is no record."""
    return from_json(Record, {**loaded, "file": file})


def plain(record: Record) -> dict[str, Any]:
    """A record as JSON stores it: without its file and without empty optional fields."""
    entries, names = asdict(record), (each.name for each in fields(Record) if each.name != "file")
    return {name: entries[name] for name in names if entries[name] or name not in SOMETIMES}


def recent(runs: Iterable[Record]) -> list[str]:
    """The files of runs that measured something, latest first. A page shows the first. ``runs``: oldest first.

    Runs of a history count only if there are no others. The last run of a history repeats its first toolchain, and a
    page shows a toolchain that was measured for its own sake.
    """
    whole = [record for record in runs if not record.failed]
    chosen = [record for record in whole if record.profile != "tracking"] or whole
    return list(dict.fromkeys(record.file for record in reversed(chosen)))
