"""The rows of result files and of tables: for each field its name, type, unit and one line of
meaning, once.

Result files are decoded and validated by these classes, tables are checked by them
(``check_frame``), and the columns of results.csv are printed from them. To add a field: write it
where it is measured, and declare it here. With the note TABLED it is a column of the tables of
processes, and as their median one of cells and of results.csv.
"""

import itertools
import json
import math
import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from benchmarks.core.probes import NEAR_BASELINE_LOG

T = TypeVar("T")
Numbers = tuple[int | float, ...]
Cells = tuple[str, ...]  # names of cells, as asv writes them
Reasons = dict[str, Cells]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
MAX_ROUNDS, MAX_CALLS = 10**5, 10**15  # a run has fewer rounds, a sample fewer calls


# Notes of columns: a record leaves the field out where it is empty; a table may lack the column; it
# is a parameter of benchmarks; it is not in the CSV file; it is only there; tables have the field
RARE, OPTIONAL, PARAMETER, INTERNAL, CSV_ONLY = "rare", "optional", "parameter", "internal", "csv"
TABLED = "tabled"


def about(meaning: str, unit: str = "", *, note: str = "", **limits: Any) -> Any:
    """Describe a field: of a row that files hold in its type (``Annotated``, where meaning and unit
    alone need no call), else in place of its value. limits: of msgspec.Meta, such as ``ge``."""
    return Meta(description=meaning, extra={"unit": unit, "note": note}, **limits)


class Column(NamedTuple):
    """A declared field."""

    name: str
    type: object
    unit: str
    meaning: str
    note: str


def columns_of(row: type) -> dict[str, Column]:
    """Return the declared fields of a class of rows by name, in order. Last are the fields of its
    ``lines``, if it has that attribute, with the note TABLED."""
    columns = {}
    for name, kind in typing.get_type_hints(row, include_extras=True).items():
        if typing.get_origin(kind) is Annotated:
            kind, *metadata = typing.get_args(kind)
            texts = [each for each in metadata if isinstance(each, str)]
            meta = about(*texts) if texts else metadata[-1]
        else:
            meta = getattr(row, name)
        columns[name] = Column(name, kind, meaning=meta.description, **meta.extra)
    lines = columns_of(row.lines) if hasattr(row, "lines") else {}
    return columns | {name: line for name, line in lines.items() if line.note == TABLED}


# --- lines of the sampling log and of measurements ------------------------------------------------


def cell_name(benchmark: str, params: Sequence[str]) -> str:
    """asv's name of the cell of a benchmark with these values of its parameters."""
    return f"{benchmark}({', '.join(params)})" if params else benchmark


def cell_names(benchmark: str, params: Sequence[Sequence[str]]) -> list[str]:
    """asv's names of the cells of a benchmark with these values of each parameter."""
    return [cell_name(benchmark, values) for values in itertools.product(*params)]


class LogLine(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
):
    """A line that a process logs about its cell."""

    run: Annotated[str, "when its run `started`: the run's record (`.jsonl`) has the baselines"]
    round: Annotated[int, about("round of the run, from 0", ge=0, lt=MAX_ROUNDS)]
    benchmark: Annotated[str, "asv's name of the benchmark: module.Class.method"]
    params: Annotated[tuple[str, ...], "values of the benchmark's parameters, in asv's spelling"]

    @property
    def cell(self) -> str:
        """asv's name of the cell."""
        return cell_name(self.benchmark, self.params)

    def __post_init__(self) -> None:
        if not self.run.isprintable():
            raise ValueError(f"run is {self.run!a}")


class NoFigure(LogLine, frozen=True, kw_only=True):
    """A line of the log that says why a cell has no figure: it was skipped, or it failed."""

    skipped: Annotated[str | None, "why the cell was skipped"] = None
    failed: Annotated[str | None, "how the cell failed"] = None


class Measurement(LogLine, frozen=True, kw_only=True):
    """A line of a measurements file: a timed process, or the counts of a cell."""

    version: Annotated[str, "of the benchmark: figures of different versions do not compare"]
    at: Annotated[float, "when the process ended (Unix time)", "s"]


class DeviceState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """What a device's driver reports."""

    link_generation: Annotated[int, "PCIe generation of the link"] = msgspec.field(
        name="link generation"
    )
    clock: Annotated[int, "clock of the multiprocessors", "MHz"]
    slowed_by: Annotated[tuple[str, ...], "reasons of a slower clock"] = msgspec.field(
        name="slowed by"
    )


class WarmUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """How long a device was warmed up before the samples."""

    seconds: Annotated[float, "duration", "s"]
    first: Annotated[float, "first sample of the work that warms it up", "s"]
    last: Annotated[float, "last sample of that work", "s"]
    steady: Annotated[bool, "whether the last samples were alike"]


class TimedProcess(Measurement, frozen=True, kw_only=True):
    """A process that took samples. ValueError, which names the field, where lists do not fit
    together.

    quiet.Run checks that samples and probes are positive, once they are arrays.
    """

    wanted: Annotated[int, about("samples that the process was to take", ge=1)]
    number: Annotated[int, about("calls per sample", ge=1, lt=MAX_CALLS)]
    seconds: Annotated[Numbers, about("samples that it took, per call", "s", min_length=1)]
    disturbed: Annotated[
        tuple[int, ...], "places of the samples during which the process had no processor"
    ]
    probes: Annotated[
        dict[str, Numbers],
        "kind of speed probe -> times: one before the first sample, one after each, one per wait",
        "ns",
    ]
    waits: Annotated[
        tuple[int, ...],
        "samples taken before it waited for quiet, per wait: then a probe more is taken",
    ]
    waiting: Annotated[Numbers, "some probes during these waits", "ns"]
    waited: Annotated[float, "time spent in these waits", "s"]
    parts: Annotated[
        dict[str, Numbers], "other part -> its samples, taken in turns with these", "s"
    ] = {}
    device: Annotated[
        tuple[DeviceState, ...], "state of the device before and after the samples"
    ] = ()
    warmed: Annotated[WarmUp | None, "how the device was warmed up"] = None
    in_turns: Annotated[bool, "whether the same sample of the other side's process came next"] = (
        False
    )
    unseen: Annotated[str, "why it was not verified that the call waits for the device"] = ""
    on_device: Annotated[bool, "whether the device's clock, not the processor's, sets the time"] = (
        False
    )
    took: Annotated[float, "duration of set-up, warm-up and samples", "s"]

    def __post_init__(self) -> None:
        super().__post_init__()
        count = len(self.seconds)
        for part, seconds in self.parts.items():
            # the sum, because min and max may miss a NaN
            if len(seconds) != count or not min(seconds) > 0 or not math.isfinite(sum(seconds)):
                raise ValueError(f"{self.cell} took {seconds}: parts of {part!a}")
        for kind, probes in self.probes.items():
            if kind not in NEAR_BASELINE_LOG:
                raise ValueError(f"{self.cell} has probes of {kind!a}")
            if len(probes) != count + 1 + len(self.waits):
                raise ValueError(f"{self.cell} has {len(probes)} probes around {count} samples")
        if not all(0 <= place < count for place in self.disturbed):
            raise ValueError(f"{self.cell} has no sample {self.disturbed}: disturbed")


class Counts(Measurement, frozen=True, kw_only=True):
    """The counts of a cell, such as instructions of a call."""

    values: Annotated[
        Numbers, about("counts, one per repeat", "unit of the benchmark", min_length=1)
    ]
    functions: Annotated[
        dict[str, int],
        "library:function -> its own instructions of a call, in the process with the median count; "
        "those that make 97 % of it",
    ] = {}
    took: Annotated[float, "duration of set-up and counting", "s"] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(map(str.isprintable, self.functions)):
            raise ValueError(f"{self.cell} counted in a function whose name is not printable")
        if not all(math.isfinite(value) for value in self.values):
            raise ValueError(f"{self.cell} counted {self.values}: values")


def with_samples(lines: Iterable[LogLine]) -> list[TimedProcess]:
    """The lines of processes that took samples."""
    return [line for line in lines if isinstance(line, TimedProcess)]


_TIMED, _COUNTS = msgspec.json.Decoder(TimedProcess), msgspec.json.Decoder(Counts)


def decode_measurement(text: bytes) -> TimedProcess | Counts:
    """Decode a line of a measurements file. ValueError or TypeError, which names the field, if it
    is none."""
    is_count = b'"values":' in text
    try:
        return _COUNTS.decode(text) if is_count else _TIMED.decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # json accepts more, such as half of a surrogate pair
        loaded = json.loads(text)
        return from_json(Counts, loaded) if is_count else from_json(TimedProcess, loaded)


def decode_log(
    text: str, default_round: int = 0, rounds: Mapping[str, int] | None = None
) -> list[LogLine]:
    """Decode the sampling log of a run that is being taken. A line without a round gets the one
    that ``rounds`` has for its cell, else the default. ValueError if a line is none."""
    lines = []
    for loaded in map(json.loads, text.splitlines()):
        line = TimedProcess if "seconds" in loaded else Counts if "values" in loaded else NoFigure
        cell = cell_name(loaded["benchmark"], loaded["params"])
        round_of_new = (rounds or {}).get(cell, default_round)
        lines.append(from_json(line, {"run": "", "round": round_of_new, **loaded}))
    return lines


def encode_lines(lines: Iterable[LogLine]) -> str:
    """Return lines as JSON. The same lines give the same text."""
    return "".join(json.dumps(msgspec.to_builtins(line)) + "\n" for line in lines)


# --- run records ----------------------------------------------------------------------------------


class Toolchain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The toolchain to measure."""

    tag: Annotated[str, "its tag in the ledger"]
    torch: Annotated[str, "release of torch"] = ""
    numpy: Annotated[str, "release of numpy"] = ""
    python: Annotated[str, "release of Python, where the toolchain is of one"] = ""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The packages really imported; the device, or why there is none."""

    torch: Annotated[str, "version of torch"] = ""
    numpy: Annotated[str, "version of numpy"] = ""
    python: Annotated[str, "version of Python; of a free-threaded one with a t"] = ""
    build: Annotated[str, "how Python was built: optimised or not, LTO, GIL; empty: unknown"] = ""
    compiler: Annotated[str, "compiler of Python"] = ""
    cuda: Annotated[str, "version of CUDA for which torch was built"] = ""
    hip: Annotated[str, "version of HIP for which torch was built"] = ""
    git: Annotated[str, "torch's commit"] = ""
    torch_threads: Annotated[int | None, "torch's threads"] = None
    device: Annotated[str, "torch's name of the accelerator"] = ""
    device_name: Annotated[str, "model of the accelerator"] = ""
    driver: Annotated[str, "version of its driver"] = ""
    environment: Annotated[dict[str, str], "its variables that are set"] = {}
    no_device: Annotated[str, "why there is no accelerator"] = ""
    near_cores: Annotated[tuple[int, ...], "cores near the accelerator, by its driver"] = ()
    device_node: Annotated[int | None, "NUMA node of the accelerator's bus"] = None
    memory_nodes: Annotated[str, "NUMA nodes whose memory the run may use"] = ""
    is_unified: Annotated[bool, "host and accelerator share one memory, by its properties"] = False


def have_other_builds(one: Settings, other: Settings) -> bool:
    """Whether the builds of Python of two runs are known and differ."""
    return bool(one.build and other.build and one.build != other.build)


# Conditions that distinguish two machines. A virtual machine may report any CPU as "AMD EPYC"
HARDWARE = ("cpu", "cores", "caches")
MACHINE = (*HARDWARE, "libc")  # another C library copies and allocates at another speed


class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Properties of the machine that affect timing, at the start of the run."""

    cpu: Annotated[str, "model of the processor"] = ""
    cores: Annotated[int | None, "its cores"] = None
    cores_allowed: Annotated[int | None, "cores that the run may use"] = None
    caches: Annotated[dict[str, str], "level -> size, as the system reports it"] = {}
    memory_bytes: Annotated[int, "size of the memory", "bytes"] = 0
    system: Annotated[str, "operating system and its release"] = ""
    libc: Annotated[str, "C library and its version"] = ""
    governor: Annotated[str, "governor of the processor's clock"] = ""
    transparent_hugepages: Annotated[str, "use of transparent huge pages"] = ""
    load_average: Annotated[Finite | None, "processes that ran, a mean of one minute"] = None


def machine_differences(
    one: Conditions, other: Conditions, is_strict: bool = False
) -> tuple[str, ...]:
    """Return the fields of MACHINE that are known of both machines and differ; strict: also unknown
    hardware."""
    pairs = ((name, getattr(one, name), getattr(other, name)) for name in MACHINE)
    return tuple(
        name
        for name, *values in pairs
        if values[0] != values[1] and (all(values) or (is_strict and name in HARDWARE))
    )


class RunRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run: what was measured, with which toolchain, where, by which command, how quiet the
    machine was. A missing field, as in a record of another version, has its default, which means
    "unknown"."""

    toolchain: Annotated[Toolchain, "the toolchain to measure"]
    skipped: Annotated[Reasons, "reason -> the cells skipped for it"]
    failures: Annotated[Reasons, "reason -> the cells that failed for it"] = {}
    profile: Annotated[str, "name of the profile"] = ""
    only: Annotated[str, "pattern that chose the cells; empty: all of the profile"] = ""
    planned: Annotated[int, "processes planned per cell"] = 0
    command: Annotated[str, "command that began the run"] = ""
    machine: Annotated[str, "name under which the results are filed"] = ""
    settings: Annotated[Settings, "the packages really imported, and the device"] = Settings()
    conditions: Annotated[Conditions, "the machine at the start of the run"] = Conditions()
    revision: Annotated[
        str,
        about(
            "git revision of the suite, with -dirty if its code had changed; empty: unknown",
            note=RARE,
        ),
    ] = ""
    asv: Annotated[str, "version of asv"] = ""
    asv_runner: Annotated[str, "version of asv_runner"] = ""
    launch: Annotated[str, "asv's launch method"] = ""
    started: Annotated[str, "when the run began (ISO 8601): its name in measurements"] = ""
    rounds: Annotated[int, "processes taken per cell, fewer where its race `stopped`"] = 0
    stopped: Annotated[
        Reasons, about("why cells took fewer processes than planned -> these cells", note=RARE)
    ] = {}
    seconds: Annotated[Finite, "duration of the run", "s"] = 0.0
    patience: Annotated[Finite, "longest wait for quiet allowed", "s"] = 0.0
    waited: Annotated[Finite, "part of the duration spent waiting for quiet", "s"] = 0.0
    quiet: Annotated[
        Finite | None,
        "share of the probed time in which the machine was undisturbed; null without probes",
    ] = None
    baselines: Annotated[dict[str, Finite], "kind of speed probe -> its baseline", "ns"] = {}
    samples: Annotated[int, "samples wanted"] = 0
    retaken: Annotated[int, "samples taken in addition"] = 0
    noisy_cells: Annotated[
        Cells, "cells without a quiet process: their figures are upper bounds"
    ] = ()
    failed: Annotated[str, about("why the toolchain could not be measured at all", note=RARE)] = ""
    drift: Annotated[
        dict[str, int | Finite],
        about("of a toolchain measured again, until version 0.5: read by nothing", note=RARE),
    ] = {}
    interleaved: Annotated[
        dict[str, str | int],
        about("of a side of a comparison: id of the collection, stage, side", note=RARE),
    ] = {}
    fleet: Annotated[
        dict[str, str],
        about("of a fleet's node: id of the campaign, engine, node (an anonymous name)", note=RARE),
    ] = {}
    cores: Annotated[
        tuple[int, ...],
        about("cores to which the processes were bound; empty: all allowed", note=RARE),
    ] = ()
    awake: Annotated[bool, about("whether a context was kept open on the device", note=RARE)] = (
        False
    )
    not_awake: Annotated[str, about("why none was kept open", note=RARE)] = ""
    device_probe: Annotated[
        dict[str, Numbers],
        about("quantity reported around samples -> its minimum and maximum", note=RARE),
    ] = {}
    device_changed: Annotated[
        Reasons,
        about(
            "quantity below its maximum, unsteady or unseen, or reason of a slower device -> cells",
            note=RARE,
        ),
    ] = {}
    device_lost: Annotated[
        str, about("why the device stopped working, if the run went on without it", note=RARE)
    ] = ""
    code: Annotated[
        str,
        about(
            "hash of all files of benchmarks/, by which a run that goes on sees that they were "
            "edited",
            note=RARE,
        ),
    ] = ""
    file: Annotated[str, "name of the result with this record; not in the file itself"] = ""


UNKNOWN = RunRecord(Toolchain(""), {})  # for results of ``asv run`` by hand
_RARE_FIELDS = {name for name, field in columns_of(RunRecord).items() if field.note == RARE}


def to_json(record: RunRecord) -> dict[str, object]:
    """A record as JSON stores it: without its file, and without rare fields that are empty."""
    entries: dict[str, object] = msgspec.to_builtins(record)
    del entries["file"]
    settings: dict[str, object] = entries["settings"]  # type: ignore[assignment]
    for name in ("build", "compiler"):
        if not settings[name]:
            del settings[name]
    return {name: value for name, value in entries.items() if value or name not in _RARE_FIELDS}


def from_json(cls: type[T], loaded: object) -> T:
    """Make a declared row, or a dataclass, from loaded JSON. A null field has its default.

    TypeError, which names the field, if a value has another type or a field is missing; of a
    declared row also if a field is unknown. A dataclass ignores unknown fields.
    """
    try:
        return msgspec.convert(_without_nulls(loaded), cls)
    except msgspec.ValidationError as error:
        raise TypeError(str(error)) from None


def _without_nulls(loaded: object) -> object:
    if not isinstance(loaded, dict):
        return loaded
    return {name: _without_nulls(value) for name, value in loaded.items() if value is not None}


def latest_files(runs: Iterable[RunRecord]) -> list[str]:
    """The files of runs that measured something, latest first. A page is about the first. ``runs``:
    oldest first.

    Runs of a history count only if there are no others. The last run of a history repeats its first
    toolchain, and a page is about a toolchain that was measured for its own sake.
    """
    measured = [record for record in runs if not record.failed]
    own_sake = [record for record in measured if record.profile != "tracking"]
    return list(dict.fromkeys(record.file for record in reversed(own_sake or measured)))
