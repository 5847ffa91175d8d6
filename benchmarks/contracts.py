"""What a benchmark says of itself for those who read its results, and the words it says it with.

A route promises, a family declares; both travel with every benchmark to benchmarks.json. Standard library alone:
benchmarks/ and scripts/ both import it.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

NUMPY_TO_TORCH = "numpy→torch"
TORCH_TO_NUMPY = "torch→numpy"
HOST_TO_DEVICE = "host→device"
DEVICE_TO_HOST = "device→host"
FILE_TO_TENSOR = "file→tensor"
PROCESS_TO_PROCESS = "process→process"

PAGEABLE = "pageable"  # ordinary host memory
PINNED = "pinned"  # page-locked when it was allocated
REGISTERED = "registered"  # ordinary memory, page-locked in place

ONE_THREAD, ALL_THREADS = "1", "all"  # how many torch has: all are its default
PARALLEL = 2**15  # elements: torch spreads the copy of so many over its threads (GRAIN_SIZE in ATen/TensorIterator.h)

CONTIGUOUS = "contiguous"  # the layout of a source that is not said otherwise
UNEVEN = "uneven"  # that of a list of arrays whose size is no multiple of LINE
LINE = 64  # bytes of a line of the cache

ALIAS = "alias"  # the result shares the source's memory
COPY = "copy"  # the result is fresh memory
INTO = "into"  # the result is written into a buffer that already exists
MEMORIES = (ALIAS, COPY, INTO)

# What is timed of a transfer, and of pinned memory: the methods of benchmarks
COMPLETION, ENQUEUE, PIN, ALLOCATE = "completion", "enqueue", "pin_copy", "allocate"

CONVERSION = "conversion"  # the family that times a route, if its entry names no other

Names = tuple[str, ...]
Outcomes = Mapping[str, str]  # an awkward source, or a dtype -> what happens


class Does:
    """What a route does with an awkward source, if it raises nothing. If it loses something that a user may miss, the
    words say what. If it reads one thing for another, it is plain wrong.
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
    ABORTS = "aborts the process"
    SEGFAULT = "kills the process (SIGSEGV)"
    BUS_ERROR = "kills the process (SIGBUS)"
    FEWER = "gives fewer numbers, silently"
    EXTENDS = "adds zeros to the file, silently"
    FOLLOWS = "works, and the result requires grad"
    ACCUMULATES = "works, and the buffer keeps the graph of every copy, silently"
    # The kind of each, for code that decides by it; the name of an exception has the kind RAISES
    KINDS = {
        **{WORKS: "works", FOLLOWS: "works", DETACHES: "detaches"},
        **{WARNS: "warns", WARNS_EACH_TIME: "warns", REAL_PART: "warns", INFINITE: "warns"},
        **{UNMASKED: "silent", COUNTS: "silent", UNCONVERTED: "silent", FEWER: "silent", ACCUMULATES: "silent"},
        **{WRONG: "wrong", EXTENDS: "wrong", ABORTS: "aborts", SEGFAULT: "aborts", BUS_ERROR: "aborts"},
    }


RAISES = "raises"
UNSAFE = ("wrong", "aborts")  # it goes wrong without an exception
FINE = ("works", "detaches")  # it simply takes the source
KIND_ORDER = {"silent": 0, "wrong": 0, "aborts": 0, "warns": 1, RAISES: 2, "works": 3, "detaches": 3}
GRAD = "requires grad"  # the awkward source that questions and measurements ask for


def kind(does: str) -> str:
    """The kind of what happens to an awkward source: one of KIND_ORDER."""
    return Does.KINDS.get(does, RAISES)


@dataclass(frozen=True)
class Route:
    """One way to convert, written as the Python expression a user would write, and what it promises.

    Defaults hold for a route that was described before a field was there.

    expression    what is timed, tested, shown and pasted
    memory        alias, copy or into, where the dtype is kept; a cast always makes a copy, a view of the bits does not
    direction     numpy→torch or torch→numpy
    casts_to      dtype of every result; "python": what the numbers become by way of Python's; "": the source's own
    view          the result is a view of the source's bits as numbers of casts_to, so it shares memory all the same
    inputs        awkward source -> what happens: works, warns, an exception's name, ...
    refuses       dtype -> the exception it raises
    copies        sources.LAYOUTS and awkward sources that it copies though its memory is alias
    families      the benchmarks that time it
    host_memory   transfers: states of the host memory at the far end that it can take
    non_blocking  transfers: the call may return before the bytes have arrived
    array         transfers: what is at the host's end is a NumPy array, else a tensor
    needs         release it appeared in, such as "torch>=1.11"
    per_element   makes a Python object of every element: seconds where others take milliseconds
    memmove       it is C's memmove that moves the bytes of a contiguous source, as NumPy has it: see sources.placed
    hazard        one sentence that tables and advice show; a route with one is recommended to nobody
    hazard_memory transfers: host memory that the hazard is about; of other memory it is none. Empty: about any
    caution       one sentence that they show, too: where a source that one would not pass changes what the route means
    """

    expression: str
    memory: str = COPY
    direction: str = ""
    casts_to: str = ""
    view: bool = False
    inputs: Outcomes = field(default_factory=dict)
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

    def result_dtype(self, dtype: str) -> str:
        """Name of the result's dtype for a source of ``dtype``."""
        if self.casts_to == "python":
            wide = self.direction == TORCH_TO_NUMPY  # torch makes its default dtypes, NumPy keeps Python's precision
            kinds = {"bool": "bool", "complex": "complex128" if wide else "complex64"}
            kinds.update(float="float64" if wide else "float32", int="int64")
            return kinds[re.sub(r"[^a-z].*", "", dtype).replace("uint", "int").replace("bfloat", "float")]
        return self.casts_to or dtype

    def keeps_dtype(self, dtype: str) -> bool:
        """Whether the route gives the source's dtype."""
        return self.casts_to in ("", dtype)

    def memory_for(self, dtype: str, layout: str = "") -> str:
        """alias, copy or into for a source of ``dtype`` in ``layout``; "" where there is no contract.

        A route that shares memory copies where it changes the dtype, unless it is a view of the source's bits, and
        copies the layouts that its contract names.
        """
        shares = self.view or (self.keeps_dtype(dtype) and layout not in self.copies)
        return COPY if self.memory == ALIAS and not shares else self.memory

    def on(self, host: str) -> "Route":
        """The contract where ``host`` memory is at the host's end: a hazard that is about other memory is none."""
        elsewhere = host and self.hazard_memory and host not in self.hazard_memory
        return replace(self, hazard="") if elsewhere else self

    @property
    def safe(self) -> bool:
        """Whether the route may be recommended: no hazard, and no input that it silently gets wrong or dies of."""
        return not self.hazard and not any(kind(does) in UNSAFE for does in self.inputs.values())

    @property
    def takes_grad(self) -> bool:
        """Whether it says that it takes a tensor that requires grad."""
        return GRAD in self.inputs and kind(self.inputs[GRAD]) in FINE

    @property
    def outcomes(self) -> dict[str, list[str]]:
        """What happens -> the awkward sources it happens to: what is silent first, what works last."""
        sources: dict[str, list[str]] = {}
        for source, does in self.inputs.items():
            sources.setdefault(does, []).append(source)
        return {does: sources[does] for does in sorted(sources, key=lambda does: KIND_ORDER[kind(does)])}

    @property
    def quiet(self) -> dict[str, list[str]]:
        """The outcomes for the sources that the route neither simply takes nor refuses by an exception."""
        return {does: sources for does, sources in self.outcomes.items() if kind(does) not in (*FINE, RAISES)}

    @property
    def refused(self) -> list[str]:
        """The awkward sources that it refuses by an exception."""
        return [source for source, does in self.inputs.items() if kind(does) == RAISES]

    def contract(self) -> dict[str, Any]:
        """The promises as plain data, for asv's benchmarks.json."""
        return asdict(self)


NONE = Route("", "")  # of a benchmark without routes, or a route that it does not know


class Role:
    """What reports do with a family's figures beside showing them."""

    # what advice is about
    CONVERSION, GRAD, LISTS, CASTING, SETTINGS = "conversion", "requires grad", "lists", "casting", "settings"
    PLACEMENT = "placement"  # beside their figures where source and buffer lie apart
    MEMCPY, HARNESS, SEMANTICS = "memcpy", "harness", "semantics"
    # of what an accelerator takes part in
    TRANSFER, SCALAR, OVERLAP, CONTEXT, PINNING = "transfer", "scalar", "overlap", "context", "pinned memory"
    LINK, SYNCHRONIZE, HARDWARE = "link", "synchronize", "hardware"
    BUSY, BEHIND, MANY, CAST_ON_THE_WAY = "busy", "work behind", "many", "cast on the way"
    READ_EARLY = "read too early"


@dataclass(frozen=True, kw_only=True)
class Family:
    """What a family says of itself, in an attribute of a file, a class or a method; the nearest counts.

    needs_device   an accelerator takes part: left out where there is none
    needs_programs program -> how to get it: left out where it is not found
    asleep         it times how an accelerator wakes: nothing else of the run may use one meanwhile
    control        no toolchain can change it: memcpy and the like
    noise          what its noise is called, and shared with; "": as what its routes do with memory, else as the
                   family
    direction      which way it converts or transfers, where its parameters and routes do not say
    role           what reports do with its figures beside showing them: one of Role
    section        the title it has on a page; "": the family's name
    place          of the section among the others
    about          sentences below the section's question
    title          what its figures are, in the title of a table; "": the direction
    across         the parameter whose values are a table's columns
    down           the parameter whose values are a table's rows; "": the route, or else the first that is no size
    drawn          a panel of time against nbytes for every combination of the other parameters
    beside         what a figure is compared with: parameter or "role" -> its value there, "called" -> a name for it
    stands_for     what a count stands for, where it is a place among these names
    repeated       a count is the median of several: compared by their spread, and followed along histories
    settings       values of a parameter `setting` that advice may name -> what their user must know
    speaks_for     a promise of contracts: what a setting gains here is gained by all routes that make it
    multiple_of    the parameter that a count is shown as a multiple of
    arrays         how many arrays make its source; 0: it is one
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
    drawn: bool = True
    beside: Mapping[str, Any] = field(default_factory=dict)
    stands_for: tuple[str, ...] = ()
    repeated: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    speaks_for: str = ""
    multiple_of: str = ""
    arrays: int = 0


DECLARED = tuple(each.name for each in fields(Family))
