"""What files of results hold: the record of a run, a line of JSON each, and the names in a line of measurements.

A record says what was measured, with what, where, by which command, and how quiet the machine was. Runs write it,
reports read it; this is the one place that says what is in it. Fields that a record of another version lacks have their
defaults: nothing is known of them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

import dacite

Made = TypeVar("Made")


def number(value: Any) -> float:
    """A finite number, which JSON may write without a point."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isinf(value):
        raise TypeError(f"{value!r} is no finite number")
    return value


READING = dacite.Config(type_hooks={float: number})


def made_of(of: type[Made], loaded: Any) -> Made:
    """Make a dataclass of what JSON holds. A missing or null field has its default; other names are ignored.

    TypeError where a value is of another type, or a field without a default is missing.
    """
    try:
        return dacite.from_dict(of, plain_of(of, loaded), READING)
    except dacite.DaciteError as error:
        raise TypeError(str(error)) from None


def plain_of(of: Any, loaded: Any) -> Any:
    """What JSON holds of a type, as dacite takes it: lists become tuples, and a dataclass loses what is null."""
    if isinstance(loaded, list):
        return tuple(plain_of(None, value) for value in loaded)
    if not isinstance(loaded, dict):
        return loaded
    own = {each.name: each.type for each in fields(of)} if is_dataclass(of) else {}
    return {name: plain_of(own.get(name), value) for name, value in loaded.items() if value is not None or not own}


Line = Mapping[str, Any]  # of a file of measurements: one process, or what was counted of a cell; see files.py


def name_of(line: Line) -> str:
    """asv's name of the cell that a line is about."""
    return f"{line['benchmark']}({', '.join(line['params'])})" if line["params"] else str(line["benchmark"])


def with_samples(lines: Iterable[Line]) -> list[Line]:
    """The lines that hold samples; the others hold counts, or say why a cell was skipped."""
    return [line for line in lines if "seconds" in line]


# What most runs have not, and do not mention
SOMETIMES = ["failed", "drift", "interleaved", "fleet", "cores", "awake", "not_awake", "device_probe", "device_changed"]
SOMETIMES += ["device_lost"]


@dataclass(frozen=True)
class Toolchain:
    """What was to be measured: its tag in the ledger and the releases."""

    tag: str
    torch: str = ""
    numpy: str = ""


@dataclass(frozen=True)
class Settings:
    """What was really imported, in which build and with how many threads; the device, or why there is none."""

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
    environment: Mapping[str, str] = field(default_factory=dict)  # of the device: variables that are set
    no_device: str = ""
    near_cores: tuple[int, ...] = ()  # to the device, by its driver


# Of the conditions, what differs between two machines; the CPU of a virtual one is "AMD EPYC" whatever it is
MACHINE = ("cpu", "cores", "caches")


@dataclass(frozen=True)
class Conditions:
    """What of the machine bears on timing, as it was when the run started."""

    cpu: str = ""
    cores: int | None = None
    cores_allowed: int | None = None
    caches: Mapping[str, str] = field(default_factory=dict)  # level -> size, as the system says it
    memory_bytes: float = 0
    system: str = ""
    libc: str = ""
    governor: str = ""
    transparent_hugepages: str = ""
    load_average: float | None = None


@dataclass(frozen=True)
class Record:
    """A run.

    skipped, failures  reason -> the cells that have no figure for it
    only, planned      which cells were asked for, a pattern; how many processes of each
    rounds, seconds    processes taken of each cell; how long that took, of which ``waited`` for quiet, and ``patience``
                       is how long it might have
    quiet              share of the time undisturbed, as far as it was watched; None where nothing was
    baselines          speed probe, by its name -> its baseline in ns
    samples, retaken   samples that were wanted; those taken beyond
    noisy_cells        the cells without a quiet process, whose figure is an upper bound
    failed             why the toolchain could not be measured at all
    drift              of a toolchain that a history measured again: how its cells moved, see runner.drift
    interleaved        of a side of a comparison: id of the collection, stage, side
    fleet              of one node of a fleet: id of the campaign, engine, node (an anonymous name)
    cores              that the processes were held to, near the device; none: all that are allowed
    awake, not_awake   whether a context was kept on the device beside the run; why not
    device_probe       what the device's driver reports around samples -> the least and the most of it
    device_changed     what was below its most, not steady or not seen, or slowed the device down -> the cells
    device_lost        why the device did not work any more when the run went on without it
    file               stem of the file that it is in; where it is not yet in one, ""
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


UNKNOWN = Record(Toolchain(""), {})  # where asv was run by hand


def record_of(loaded: Any, file: str = "") -> Record:
    """The record that a line of JSON holds; TypeError or ValueError where it holds something else."""
    return made_of(Record, {**loaded, "file": file})


def plain(record: Record) -> dict[str, Any]:
    """What a line of JSON holds of a record."""
    entries, names = asdict(record), (each.name for each in fields(Record) if each.name != "file")
    return {name: entries[name] for name in names if entries[name] or name not in SOMETIMES}


def recent(runs: Iterable[Record]) -> list[str]:
    """The files of runs that measured something, the latest first: a page is about that one. ``runs``: oldest first.

    The runs of a history count only where there are no others. Its last run is its first toolchain again, and a page is
    about what was measured for its own sake.
    """
    whole = [record for record in runs if not record.failed]
    chosen = [record for record in whole if record.profile != "tracking"] or whole
    return list(dict.fromkeys(record.file for record in reversed(chosen)))
