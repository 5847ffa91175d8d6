"""What a family says of itself for those who read its results, and the words it says it with.

It travels with every benchmark to benchmarks.json. Standard library alone: benchmarks/ and scripts/ both import it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

# Roles: what reports do with figures beside showing them
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
    """An attribute of a file, a class or a method; the nearest counts.

    needs_device   an accelerator takes part: left out where there is none
    needs_programs program -> how to get it: left out where it is not found
    asleep         it times how an accelerator wakes: nothing else of the run may use one meanwhile
    control        no toolchain can change it: memcpy and the like
    noise          what its noise is called, and shared with; "": as what its routes do with memory, else as the
                   family
    direction      which way it converts or transfers, where its parameters and routes do not say
    role           what reports do with its figures beside showing them: one of those above
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


NAMES = tuple(each.name for each in fields(Family))
SPOKEN = tuple(name for name in NAMES if name != "direction")  # what decides no figure
