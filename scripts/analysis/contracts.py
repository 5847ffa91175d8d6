"""What a route's contract says for a source of one dtype, read from benchmarks.json: the one place that decides it.

A contract is what benchmarks/routes.py promises of a route, as plain data (Route.contract). ``memory_for`` is the same
rule as Route.memory_for there; tests/test_catalogue.py holds the two together.
"""

from collections.abc import Mapping
from typing import Any

ALIAS, COPY, INTO = MEMORIES = ("alias", "copy", "into")
FINE = ("works", "detaches")  # what it says of an input that it simply takes
UNSAFE = ("wrong", "abort")  # how what it says begins of an input that goes wrong without an exception


def keeps_dtype(contract: Mapping[str, Any], dtype: str) -> bool:
    """Whether a route gives the source's dtype."""
    return contract.get("casts_to", "") in ("", dtype)


def memory_for(contract: Mapping[str, Any], dtype: str) -> str:
    """alias, copy or into for a source of ``dtype``; "" where there is no contract.

    A route that shares memory copies where it changes the dtype, unless it is a view of the source's bits. Contracts
    made before they had the field ``view`` are read as those of routes that are none.
    """
    memory = str(contract.get("memory", ""))
    shares = keeps_dtype(contract, dtype) or contract.get("view", False)
    return COPY if memory == ALIAS and not shares else memory


def safe(contract: Mapping[str, Any]) -> bool:
    """Whether a route may be recommended: no hazard, and no input that it silently gets wrong or dies of."""
    outcomes = contract.get("inputs", {}).values()
    return not contract.get("hazard") and not any(str(does).startswith(UNSAFE) for does in outcomes)


def takes_grad(contract: Mapping[str, Any]) -> bool:
    """Whether a route says that it takes a tensor that requires grad."""
    return contract.get("inputs", {}).get("requires grad") in FINE


def of_cell(benchmarks: Mapping[str, Mapping[str, Any]], benchmark: str, route: Any) -> Mapping[str, Any]:
    """The contract of a benchmark's route, {} where there is none. ``benchmarks`` are those of benchmarks.json."""
    return benchmarks.get(benchmark, {}).get("contracts", {}).get(route, {})
