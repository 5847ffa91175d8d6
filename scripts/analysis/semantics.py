"""What routes were measured to do, and where their contracts promise something else."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from .contracts import ALIAS, COPY, GRAD, INTO, TORCH_TO_NUMPY, Contract
from .declared import Declared
from .results import Results
from .roles import SEMANTICS

MEMORY, DTYPE, TAKEN = "memory", "dtype", "grad"  # what is measured of a route
MEASURED = {"track_alias": MEMORY, "track_dtype": DTYPE, "track_taken": TAKEN}  # by methods of benchmarks/semantics.py


def facts(results: Results) -> pd.DataFrame:
    """The rows of Results.values that say what routes were measured to do."""
    rows = results.of_role(results.values, SEMANTICS)
    return rows[rows["method"].isin(MEASURED)]


def measured(benchmark: Declared, row: Mapping[str, Any]) -> tuple[str, bool | str]:
    """What one of the facts is about, and what it says: whether memory is shared; the result's dtype; whether what
    requires grad is taken. benchmark: as benchmarks.json describes it; a dtype that it does not name is "?"."""
    what, value = MEASURED[row["method"]], row["value"]
    if what != DTYPE:
        return what, bool(value)
    names = benchmark.stands_for
    return what, names[int(value)] if value < len(names) else "?"


@dataclass(frozen=True)
class Broken:
    """A promise of a contract that the measurement contradicts.

    what, measured  as ``measured`` has them
    dtype           of the source; "" where it is about TAKEN
    promised        as the contract has it
    """

    route: str
    what: str
    dtype: str
    measured: bool | str
    promised: str


class Semantics:
    """What was measured of each route.

    alias, dtype  direction and route -> dtype of the source -> whether memory is shared, dtype of the result
    grad          route -> whether it took a tensor that requires grad
    """

    def __init__(self, results: Results) -> None:
        self.alias: dict[tuple[str, str], dict[str, bool]] = {}
        self.dtype: dict[tuple[str, str], dict[str, str]] = {}
        self.grad: dict[str, bool] = {}
        for row in facts(results).to_dict("records"):
            benchmark = results.benchmarks[row["benchmark"]]
            key = benchmark.direction, row["route"]
            what, value = measured(benchmark, row)
            if what == TAKEN:
                self.grad[row["route"]] = bool(value)
            elif what == MEMORY:
                self.alias.setdefault(key, {})[row["dtype"]] = bool(value)
            else:
                self.dtype.setdefault(key, {})[row["dtype"]] = str(value)

    def memory(self, contract: Contract) -> dict[str, str]:
        """alias, copy or into as measured, by dtype."""
        seen = self.alias.get((contract.direction, contract.expression), {})
        fresh = INTO if contract.memory == INTO and not any(seen.values()) else COPY
        return {dtype: ALIAS if shares else fresh for dtype, shares in seen.items()}

    def result(self, contract: Contract) -> dict[str, str]:
        """The result's dtype as measured, by the source's."""
        return self.dtype.get((contract.direction, contract.expression), {})

    def taken(self, contract: Contract) -> bool | None:
        """Whether the route took a tensor that requires grad; None where that was not measured."""
        return self.grad.get(contract.expression) if contract.direction == TORCH_TO_NUMPY else None

    def broken(self, contracts: Iterable[Contract]) -> list[Broken]:
        """The promises of contracts that the measurement contradicts."""
        contradicted: list[Broken] = []
        for contract in contracts:
            key = contract.direction, contract.expression
            for dtype, shares in self.alias.get(key, {}).items():
                promised = contract.memory_for(dtype)
                if shares != (promised == ALIAS):
                    contradicted.append(Broken(key[1], MEMORY, dtype, shares, promised))
            for dtype, result in self.dtype.get(key, {}).items():
                promised = contract.casts_to or dtype
                if promised not in ("python", result):
                    contradicted.append(Broken(key[1], DTYPE, dtype, result, promised))
            taken, promise = self.taken(contract), contract.inputs.get(GRAD)
            if taken is not None and promise and taken != contract.takes_grad:
                contradicted.append(Broken(key[1], TAKEN, "", taken, promise))
        return contradicted
