"""What benchmarks.json says of a benchmark: asv's description, and what its family declares (benchmarks/families.py).

The one place that reads it. ``Declared`` has what reports use, with the defaults of a benchmark that does not say it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cli import UserError
from store.records import made_of

from benchmarks.contracts import COPY, INTO, NONE, Route
from benchmarks.families import MEMCPY, Family
from benchmarks.probes import MEMORY
from benchmarks.timing import LARGE

if TYPE_CHECKING:  # advise.py answers in less time than pandas takes to import
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Declared(Family):
    """A benchmark. name, type, unit, param_names, params, version, sample_time [s]: asv's, values in its spelling.

    samples_per_process  how many a process takes of each cell; none where nobody says
    contracts            route -> what it promises
    question             the first paragraph of its file's docstring
    """

    name: str
    type: str
    unit: str
    param_names: tuple[str, ...]
    params: tuple[tuple[str, ...], ...]
    version: str = ""
    sample_time: float = 0.0
    samples_per_process: tuple[int, ...] = ()
    contracts: Mapping[str, Route] = field(default_factory=dict)
    question: str = ""

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]

    @property
    def group(self) -> str:
        """Its module and class."""
        return self.name.rpartition(".")[0]

    def listed(self, parameter: str) -> Sequence[str]:
        """The values of a parameter, in asv's spelling; none where it has no such parameter."""
        return dict(zip(self.param_names, self.params)).get(parameter, ())

    def nth(self, parameter: str, value: object) -> int:
        """Place of a value among those of a parameter; the end for another's."""
        spellings = self.listed(parameter)
        return spellings.index(repr(value)) if repr(value) in spellings else len(spellings)


Benchmarks = Mapping[str, Declared]  # name -> what it says


def declared_in(benchmarks: Any) -> dict[str, Declared]:
    """The benchmarks of a benchmarks.json; UserError where it holds something else."""
    if not isinstance(benchmarks, dict):
        raise UserError("benchmarks.json is not asv's: remove it or restore it from git")
    return {name: _declared(name, each) for name, each in benchmarks.items() if isinstance(each, dict)}


def _declared(name: str, description: Mapping[str, Any]) -> Declared:
    params, names = description.get("params", []), description.get("param_names", [])
    listed_both = isinstance(params, list) and isinstance(names, list) and len(params) == len(names)
    if not listed_both or not all(isinstance(parameter, str) for parameter in names):
        raise UserError(f"benchmarks.json names other parameters of {name} than it has: restore it from git")
    try:
        declared = made_of(Declared, description)
        if declared.name != name:
            raise ValueError(f"its name is {declared.name}")
        if min(declared.samples_per_process, default=1) < 1:
            raise ValueError(f"samples_per_process holds {min(declared.samples_per_process)}")
    except (TypeError, ValueError) as error:
        raise UserError(
            f"benchmarks.json says of {name} what this cannot read ({error}): remove it or restore it from git"
        ) from None
    return declared


def contract_of(benchmarks: Benchmarks, benchmark: str, route: Any) -> Route:
    """The contract of a benchmark's route; NONE of one without routes, or of a route that it does not know."""
    return benchmarks[benchmark].contracts.get(route, NONE)


def noise_of_cells(cells: "pd.DataFrame", benchmarks: Benchmarks) -> list[str]:
    """The class of each row's noise: as the family declares; else memory where many bytes move through it, else alias,
    copy or into, else the benchmark's family. ``cells`` has the columns benchmark, contract, nbytes and family.

    On a virtual machine of Zen 4, 26 toolchains measured twice and 7 hours apart, 90 % of figures differ by at most
    21 % where 16 MiB are copied, by 2.1 % where less is, by 2.3 % where memory is shared (scripts/check.py history).
    """
    names = []
    for name, memory, nbytes, family in cells[["benchmark", "contract", "nbytes", "family"]].itertuples(index=False):
        moves = memory in (COPY, INTO) or benchmarks[name].role == MEMCPY
        through_memory = moves and nbytes >= LARGE  # of no size: false
        names.append(benchmarks[name].noise or (MEMORY if through_memory else memory) or family)
    return names
