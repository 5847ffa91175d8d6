"""Metadata of benchmarks for reports, and the vocabulary of that metadata.

A route has a contract, a family has declarations. asv writes both to benchmarks.json. This module
uses only the standard library, because benchmarks/ and scripts/ both import it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypedDict

NUMPY_TO_TORCH = "numpy→torch"
TORCH_TO_NUMPY = "torch→numpy"
HOST_TO_DEVICE = "host→device"
DEVICE_TO_HOST = "device→host"
FILE_TO_TENSOR = "file→tensor"
PROCESS_TO_PROCESS = "process→process"

PAGEABLE = "pageable"  # ordinary host memory
PINNED = "pinned"  # page-locked when it was allocated
REGISTERED = "registered"  # ordinary memory, page-locked in place

ONE_THREAD, ALL_THREADS = "1", "all"  # torch's threads: "all" is its default number
# Elements from which torch spreads a copy over its threads: one more than GRAIN_SIZE, up to which
# one thread makes all of it (parallel_for in ATen/Parallel-inl.h)
PARALLEL = 2**15 + 1

CONTIGUOUS = "contiguous"  # default layout of a source
UNEVEN = "uneven"  # layout of a list of arrays whose size is not a multiple of LINE
LINE = 64  # bytes of a cache line

ALIAS = "alias"  # the result shares the source's memory
COPY = "copy"  # the result is fresh memory
INTO = "into"  # the result is written into an existing buffer
MEMORIES = (ALIAS, COPY, INTO)

# Benchmark methods: the timed parts of a transfer, and of the use of pinned memory
COMPLETION, ENQUEUE, PIN, ALLOCATE = "completion", "enqueue", "pin_copy", "allocate"

CONVERSION = "conversion"  # default family of a route

Names = tuple[str, ...]
Outcomes = Mapping[str, str]  # awkward source or dtype -> outcome


class Does:
    """Outcome of a route for an awkward source, if it raises nothing.

    If the route drops something, the text says what. If it misreads the source, the outcome is
    WRONG.
    """

    WORKS = "works"
    DETACHES = "detaches"
    WARNS = "works, warns once a process"
    WARNS_EACH_TIME = "works, warns each time"
    UNMASKED = "drops the mask, silently"
    REAL_PART = "warns, drops the imaginary part"
    COUNTS = "counts of its unit, rounded, silently"
    INFINITE = "warns, gives infinities"
    UNCONVERTED = "gives it back as it is, silently"
    WRONG = "wrong values, silently"
    FEWER = "gives fewer numbers, silently"
    PARSES = "reads the text as numbers, silently"
    MASK_TO_NAN = "gives NaN where masked, silently (integers raise)"
    NONE_TO_NAN = "gives NaN for None, silently"
    NUMPY_DTYPE = "gives NumPy's common dtype, silently"
    TORCH_DTYPE = "gives torch's common dtype, rounded, silently"
    BUFFER_DTYPE = "gives the buffer's dtype, silently"
    REPEATS = "repeats an array of fewer numbers where it can, silently"
    NOTHING = "gives an empty float64 result, silently"
    EXTENDS = "adds zeros to the file, silently"
    PADS = "fills shorter arrays up with zeros, silently"
    FOLLOWS = "works, and the result requires grad"
    ACCUMULATES = "works, and the buffer keeps the graph of every copy, silently"
    # Kind of each outcome, for code that branches on it; the name of an exception has the kind
    # RAISES
    KINDS = {
        **{WORKS: "works", FOLLOWS: "works", DETACHES: "detaches"},
        **{WARNS: "warns", WARNS_EACH_TIME: "warns", REAL_PART: "warns", INFINITE: "warns"},
        **dict.fromkeys([UNMASKED, COUNTS, UNCONVERTED, FEWER, ACCUMULATES, PARSES], "silent"),
        **dict.fromkeys(
            [
                MASK_TO_NAN,
                NONE_TO_NAN,
                NUMPY_DTYPE,
                TORCH_DTYPE,
                BUFFER_DTYPE,
                NOTHING,
                REPEATS,
                PADS,
            ],
            "silent",
        ),
        **{WRONG: "wrong", EXTENDS: "wrong"},
    }


RAISES = "raises"
ENDS = "can end the process on some inputs"  # in a hazard; no test gives it such an input
UNSAFE = ("wrong",)  # fails without an exception
FINE = ("works", "detaches")  # takes the source as it is
KIND_ORDER = {
    "silent": 0,
    "wrong": 0,
    "warns": 1,
    RAISES: 2,
    "works": 3,
    "detaches": 3,
}
# Awkward source in an unusual shape -> the source whose outcome it shares, where a contract does
# not list it
DEGENERATE = {
    "negative strides, length 1": "negative strides",
    "record field, length 1": "record field",
    "negative view, length 1": "negative view",
    "conjugate view, strided": "conjugate view",
    "byte-swapped, 0-d": "byte-swapped",
    "masked, 0-d": "masked",
    "read-only, 0-d": "read-only",
    "read-only, strided": "read-only",
    "strings, 0-d": "strings",
}
GRAD = "requires grad"  # the awkward source that questions and measurements are about


def kind(does: str) -> str:
    """Return the kind of an outcome: a key of KIND_ORDER."""
    return Does.KINDS.get(does, RAISES)


@dataclass(frozen=True)
class Route:
    """One way to convert, written as the Python expression a user would write, with its contract.

    Routes that were described before a field existed take its default.

    expression    the code that is timed, tested, shown and pasted
    memory        alias, copy or into, where the dtype is kept; a cast always makes a copy, a view
                  of the bits does not
    direction     numpy→torch or torch→numpy
    casts_to      dtype of every result; "python": the dtype made from Python numbers; "": the
                  source's dtype
    view          the result is a view of the source's bits as numbers of casts_to, so it shares
                  memory
    inputs        awkward source -> outcome: works, warns, an exception's name, ... Those that can
                  end the process are not listed: its hazard says ENDS and what to use
    follows       of torch's defaults those that change the result: "dtype", "device"
    refuses       dtype -> the exception it raises
    copies        sources.LAYOUTS and awkward sources that it copies although its memory is alias
    families      the benchmarks that time it
    host_memory   transfers: kinds of host memory that it accepts
    non_blocking  transfers: the call may return before the bytes have arrived
    array         transfers: the host's end is a NumPy array, not a tensor
    needs         release it appeared in, such as "torch>=1.11"
    per_element   makes a Python object of every element: seconds where others take milliseconds
    memmove       copies a contiguous source with C's memmove, as NumPy does: see sources.placed
    hazard        one sentence that tables and advice show; a route with a hazard is never
                  recommended
    hazard_memory transfers: host memory that has the hazard. Empty: any memory
    caution       one sentence that tables and advice show, too: how an unusual source changes the
                  route's meaning
    """

    expression: str
    memory: str = COPY
    direction: str = ""
    casts_to: str = ""
    view: bool = False
    inputs: Outcomes = field(default_factory=dict)
    follows: Names = ()
    refuses: Outcomes = field(default_factory=dict)
    copies: Names = ()
    families: Names = (CONVERSION,)
    host_memory: Names = ()
    non_blocking: bool = False
    array: bool = False
    needs: str = ""
    per_element: bool = False
    memmove: bool = False
    hazard: str = ""
    hazard_memory: Names = ()
    caution: str = ""

    def outcome(self, source: str) -> str:
        """Return the outcome of an awkward source; "" if it can end the process."""
        return self.inputs.get(source) or self.inputs.get(DEGENERATE.get(source, ""), "")

    def result_dtype(self, dtype: str) -> str:
        """Return the name of the result's dtype for a source of ``dtype``."""
        if self.casts_to == "python":
            wide = (
                self.direction == TORCH_TO_NUMPY
            )  # torch makes its default dtypes, NumPy keeps Python's precision
            kinds = {"bool": "bool", "complex": "complex128" if wide else "complex64"}
            kinds.update(float="float64" if wide else "float32", int="int64")
            return kinds[
                re.sub(r"[^a-z].*", "", dtype).replace("uint", "int").replace("bfloat", "float")
            ]
        return self.casts_to or dtype

    def keeps_dtype(self, dtype: str) -> bool:
        """Whether the result has the source's dtype."""
        return self.casts_to in ("", dtype)

    def memory_for(self, dtype: str, layout: str = "") -> str:
        """Return alias, copy or into for a source of ``dtype`` in ``layout``; "" without a
        contract.

        A route that shares memory makes a copy in two cases: it changes the dtype and is not a view
        of the source's bits, or its contract lists the layout in ``copies``.
        """
        shares = self.view or (self.keeps_dtype(dtype) and layout not in self.copies)
        return COPY if self.memory == ALIAS and not shares else self.memory

    def on(self, host: str) -> "Route":
        """Return the contract for ``host`` memory at the host's end: without a hazard of other
        memory.
        """
        elsewhere = host and self.hazard_memory and host not in self.hazard_memory
        return replace(self, hazard="") if elsewhere else self

    @property
    def safe(self) -> bool:
        """Whether the route may be recommended: no hazard, no silently wrong result."""
        return not self.hazard and not any(kind(does) in UNSAFE for does in self.inputs.values())

    @property
    def owner(self) -> str:
        """Library whose memory an alias shares on the host, which decides how long it is valid."""
        owners = {NUMPY_TO_TORCH: "numpy", TORCH_TO_NUMPY: "torch"}
        return owners.get(self.direction, "") if self.memory == ALIAS else ""

    @property
    def takes_grad(self) -> bool:
        """Whether its contract accepts a tensor that requires grad."""
        return GRAD in self.inputs and kind(self.inputs[GRAD]) in FINE

    @property
    def outcomes(self) -> dict[str, list[str]]:
        """Outcome -> awkward sources with this outcome; silent outcomes first, working last."""
        sources: dict[str, list[str]] = {}
        for source, does in self.inputs.items():
            sources.setdefault(does, []).append(source)
        return {
            does: sources[does] for does in sorted(sources, key=lambda does: KIND_ORDER[kind(does)])
        }

    @property
    def quiet(self) -> dict[str, list[str]]:
        """Outcomes that are neither FINE nor an exception, with their sources."""
        return {
            does: sources
            for does, sources in self.outcomes.items()
            if kind(does) not in (*FINE, RAISES)
        }

    @property
    def refused(self) -> list[str]:
        """Awkward sources for which it raises an exception."""
        return [source for source, does in self.inputs.items() if kind(does) == RAISES]

    def contract(self) -> dict[str, object]:
        """Return the contract as plain data, for asv's benchmarks.json."""
        return {**vars(self)}  # asdict takes 3 ms for the routes of a family, in every process


class Promises(TypedDict, total=False):
    """Promises that several routes have in common."""

    casts_to: str
    per_element: bool
    hazard: str
    host_memory: tuple[str, ...]
    families: tuple[str, ...]


NONE = Route("", "")  # for a benchmark without routes, or an unknown route


class Role:
    """Further use of a family's figures in reports."""

    # subjects of advice
    CONVERSION, GRAD, LISTS, CASTING, SETTINGS = (
        "conversion",
        "requires grad",
        "lists",
        "casting",
        "settings",
    )
    PLACEMENT = "placement"  # compared with figures where source and buffer lie apart
    MEMCPY, HARNESS, SEMANTICS = "memcpy", "harness", "semantics"
    # with an accelerator
    TRANSFER, SCALAR, OVERLAP, CONTEXT, PINNING = (
        "transfer",
        "scalar",
        "overlap",
        "context",
        "pinned memory",
    )
    LINK, SYNCHRONIZE, HARDWARE = "link", "synchronize", "hardware"
    BUSY, BEHIND, MANY, CAST_ON_THE_WAY = "busy", "work behind", "many", "cast on the way"
    READ_EARLY = "read too early"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Declarations of a family, as attributes of a file, a class or a method; the innermost counts.

    needs_device   uses an accelerator: left out where there is none
    needs_programs program -> how to get it: left out where it is not found
    asleep         times the wake-up of an accelerator: nothing else in the run may use one
                   meanwhile
    control        independent of the toolchain: memcpy and the like
    noise          name of its noise, shared by families of the same name; "": the memory (alias,
                   copy, into) of its routes, else the family
    direction      direction of the conversion or transfer, where its parameters and routes do not
                   give it
    role           further use of its figures in reports: one of Role
    section        its title on a page; "": the family's name
    place          position of the section on the page
    about          sentences below the section's question
    title          name of its figures in the title of a table; "": the direction
    across         the parameter whose values are a table's columns
    down           the parameter whose values are a table's rows; "": the route, or else the first
                   that is no size
    has_panels     a panel of time against nbytes for every combination of the other parameters
    reference      reference of a figure: parameter or "role" -> its value there, "called" -> a name
                   for it
    stands_for     names that a count stands for, if the count is an index into them
    repeated       a count is the median of several: compared by their spread, and followed along
                   histories
    settings       values of a parameter `setting` that advice may name -> a note for the user
    applies_to     a field of contracts: a setting that helps here helps all routes with this field
    multiple_of    counts are shown as multiples of this parameter
    arrays         number of arrays in its source; 0: a single array
    """

    needs_device: bool = False
    needs_programs: Mapping[str, str] = field(default_factory=dict)
    asleep: bool = False
    control: bool = False
    noise: str = ""
    direction: str = ""
    role: str = ""
    section: str = ""
    place: int = 99
    about: str = ""
    title: str = ""
    across: str = "nbytes"
    down: str = ""
    has_panels: bool = True
    reference: Mapping[str, object] = field(default_factory=dict)
    stands_for: tuple[str, ...] = ()
    repeated: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    applies_to: str = ""
    multiple_of: str = ""
    arrays: int = 0


DECLARED = tuple(each.name for each in fields(Family))
