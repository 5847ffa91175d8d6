"""The suite as benchmarks.json describes it: benchmarks with their declarations, and their
cells."""

import ast
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from cli import UserError
from pandas import DataFrame
from store.files import PARSE_ERRORS, harmless, version_number
from store.frames import Cell, Parameter, Process
from store.schema import PARAMETER, cell_names, columns_of, from_json

from benchmarks.contracts import COPY, INTO, NONE, Family, Role, Route
from benchmarks.core.probes import MEMORY
from benchmarks.core.timing import LARGE

MAX_CELLS = 100_000  # of a benchmark; ours have at most 2592
# Columns that every table has and no parameter may be called after. A parameter `direction` is the
# direction
RESERVED = {
    column.name
    for row in (Cell, Process)
    for column in columns_of(row).values()
    if column.note != PARAMETER and column.name != "direction"
}


@dataclass(frozen=True, kw_only=True)
class Declared(Family):
    """A benchmark. name, type, unit, param_names, params, version and sample_time [s] are asv's;
    values are in its spelling.

    contracts  route -> what it promises
    question   the first paragraph of its file's docstring
    """

    name: str
    type: str
    unit: str
    param_names: tuple[str, ...]
    params: tuple[tuple[str, ...], ...]
    version: str = ""
    sample_time: float = 0.0
    contracts: Mapping[str, Route] = field(default_factory=dict)
    question: str = ""

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]

    @property
    def group(self) -> str:
        """Module and class."""
        return self.name.rpartition(".")[0]

    def listed(self, parameter: str) -> Sequence[str]:
        """Return the values of a parameter, in asv's spelling; empty if the benchmark has no such
        parameter."""
        return dict(zip(self.param_names, self.params)).get(parameter, ())

    def nth(self, parameter: str, value: object) -> int:
        """Return the index of a value among those of a parameter; their number if it is not one of
        them."""
        spellings = self.listed(parameter)
        return spellings.index(repr(value)) if repr(value) in spellings else len(spellings)


Benchmarks = Mapping[str, Declared]  # by name


def declared_in(benchmarks: object) -> dict[str, Declared]:
    """Return the benchmarks of a benchmarks.json; UserError if it holds anything else."""
    if not isinstance(benchmarks, dict):
        raise UserError("benchmarks.json is not asv's: remove it or restore it from git")
    return {
        name: _declared(name, description)
        for name, description in benchmarks.items()
        if isinstance(description, dict)
    }


def _declared(name: str, description: object) -> Declared:
    try:
        declared = from_json(Declared, description)
        if declared.name != name:
            raise ValueError(f"its name is {declared.name}")
        names, values = len(declared.param_names), len(declared.params)
        if names != values:
            raise ValueError(f"{names} names of {values} parameters")
    except (TypeError, ValueError) as error:
        raise UserError(
            f"benchmarks.json says of {name} what this cannot read ({error}): remove it or restore "
            "it from git"
        ) from None
    return replace(declared, version=version_number(name, declared.version))


def cells_in(benchmarks: Benchmarks) -> tuple[DataFrame, dict[str, dict[str, Parameter]]]:
    """Return one row per cell in benchmarks.json, in its order, with its names, parameters,
    contract and unit; and cell -> its parameters, by name, in the order of its benchmark.

    UserError if a parameter is called like a column, or its values cannot be read.
    """
    cell_parameters: dict[str, dict[str, Parameter]] = {}
    rows = []
    for name, declared in benchmarks.items():
        of_benchmark = _benchmark_columns(declared)
        combinations = itertools.product(*_parameter_values(declared))
        for cell, combination in zip(cell_names(name, declared.params), combinations):
            parameters = dict(zip(declared.param_names, combination))
            of_route = _route_columns(declared, parameters)
            rows.append({**of_benchmark, **parameters, "cell": cell, **of_route})
            cell_parameters[cell] = parameters
    names = [*_COLUMNS, *itertools.chain(*rows)]
    table = DataFrame(rows, columns=list(dict.fromkeys(names)))
    texts = [name for name in table if all(isinstance(value, str) for value in table[name])]
    return table.astype(dict.fromkeys(texts, "category")), cell_parameters


def _benchmark_columns(declared: Declared) -> dict[str, str]:
    """Return the names of a benchmark, and the unit of what it counts."""
    family, group, method = [*declared.name.split("."), "", ""][:3]
    unit = declared.unit if declared.type != "time" else ""
    columns = {"benchmark": declared.name, "family": family, "group": group, "method": method}
    return {**columns, "unit": unit}


def _route_columns(declared: Declared, parameters: Mapping[str, object]) -> dict[str, str]:
    """Return the direction of a cell, and what its contract promises."""
    route, dtype, layout, direction = (
        str(parameters.get(name, "")) for name in ("route", "dtype", "layout", "direction")
    )
    contract = declared.contracts.get(route, NONE)
    return {
        "direction": contract.direction or declared.direction or direction,
        "contract": contract.memory_for(dtype, layout),
    }


_COLUMNS = ["cell", "benchmark", "family", "group", "method", "direction", "contract", "unit"]
_COLUMNS += [column.name for column in columns_of(Cell).values() if column.note == PARAMETER]


def _parameter_values(declared: Declared) -> list[list[Parameter]]:
    for parameter in declared.param_names:
        if parameter in RESERVED:
            raise UserError(
                f"{declared.name} has a parameter called {parameter}, as a column of every table "
                "is: rename it"
            )
    try:
        if math.prod(map(len, declared.params)) > MAX_CELLS:
            raise ValueError(f"more than {MAX_CELLS} cells")
        return [
            [cast(Parameter, harmless(ast.literal_eval(each))) for each in values]
            for values in declared.params
        ]
    except PARSE_ERRORS as error:
        raise UserError(
            f"benchmarks.json has other parameters of {declared.name} than this reads ({error})"
        ) from None


def noise_of_cells(cells: DataFrame, benchmarks: Benchmarks) -> list[str]:
    """Return the noise class of each row: the one that the family declares; else memory if at least
    LARGE bytes move through it; else alias, copy or into; else the benchmark's family. ``cells``
    has the columns benchmark, contract, nbytes and family.

    On a virtual machine of Zen 4, with 26 toolchains measured twice, 7 hours apart, 90 % of figures
    differ by at most 21 % for copies of 16 MiB, by 2.1 % for smaller copies, by 2.3 % for shared
    memory (scripts/check.py history).
    """
    names = []
    columns = cells[["benchmark", "contract", "nbytes", "family"]]
    for name, memory, nbytes, family in columns.itertuples(index=False):
        declared = benchmarks[name]
        moves = memory in (COPY, INTO) or declared.role == Role.MEMCPY
        through_memory = moves and nbytes >= LARGE  # of no size: false
        names.append(declared.noise or (MEMORY if through_memory else memory) or family)
    return names
