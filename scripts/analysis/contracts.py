"""What a route's contract says of a source, read from benchmarks.json: the one place that decides it.

A contract is what benchmarks/routes.py promises of a route, as plain data (Route.contract). ``memory_for`` is the same
rule as Route.memory_for there; tests/test_catalogue.py holds the two together.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

ALIAS, COPY, INTO = MEMORIES = ("alias", "copy", "into")
FINE = ("works", "detaches")  # what it says of an input that it simply takes
UNSAFE = ("wrong", "abort")  # how what it says begins of an input that goes wrong without an exception


def keeps_dtype(contract: Mapping[str, Any], dtype: str) -> bool:
    """Whether a route gives the source's dtype."""
    return contract.get("casts_to", "") in ("", dtype)


def memory_for(contract: Mapping[str, Any], dtype: str, layout: str = "") -> str:
    """alias, copy or into for a source of ``dtype`` in ``layout``; "" where there is no contract.

    A route that shares memory copies where it changes the dtype, unless it is a view of the source's bits, and copies
    the layouts that its contract names. Contracts made before they had the fields ``view`` and ``copies`` are read as
    those of routes that are no view, and copy none.
    """
    memory = str(contract.get("memory", ""))
    keeps = keeps_dtype(contract, dtype) and layout not in contract.get("copies", ())
    shares = contract.get("view", False) or keeps
    return COPY if memory == ALIAS and not shares else memory


def safe(contract: Mapping[str, Any]) -> bool:
    """Whether a route may be recommended: no hazard, and no input that it silently gets wrong or dies of."""
    outcomes = contract.get("inputs", {}).values()
    return not contract.get("hazard") and not any(str(does).startswith(UNSAFE) for does in outcomes)


def outcomes(contract: Mapping[str, Any]) -> dict[str, list[str]]:
    """What happens -> the awkward sources it happens to: what is silent first, what works last."""

    def rank(does: str) -> int:
        silent = does.startswith(UNSAFE) or "silently" in does
        return 0 if silent else 3 if does in FINE else 2 if does.endswith("Error") else 1

    found: dict[str, list[str]] = {}
    for source, does in contract.get("inputs", {}).items():
        found.setdefault(str(does), []).append(source)
    return {does: found[does] for does in sorted(found, key=rank)}


def awkward(contract: Mapping[str, Any]) -> dict[str, list[str]]:
    """The outcomes for the sources that a route does not simply take."""
    return {does: sources for does, sources in outcomes(contract).items() if does not in FINE}


def needs(contract: Mapping[str, Any]) -> list[str]:
    """The packages, with their versions, and devices that a route needs."""
    return str(contract.get("needs", "")).split()


def takes_grad(contract: Mapping[str, Any]) -> bool:
    """Whether a route says that it takes a tensor that requires grad."""
    return contract.get("inputs", {}).get("requires grad") in FINE


def of_cell(benchmarks: Mapping[str, Mapping[str, Any]], benchmark: str, route: Any) -> Mapping[str, Any]:
    """The contract of a benchmark's route, {} where there is none. ``benchmarks`` are those of benchmarks.json."""
    return benchmarks.get(benchmark, {}).get("contracts", {}).get(route, {})


def memory_of_cells(cells: pd.DataFrame, benchmarks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """alias, copy, into or "" of each row; ``cells`` has the columns benchmark, route, dtype and layout."""
    rows = zip(cells["benchmark"], cells["route"], cells["dtype"], cells["layout"])
    return [
        memory_for(
            of_cell(benchmarks, name, route), *(word if isinstance(word, str) else "" for word in (dtype, layout))
        )
        for name, route, dtype, layout in rows
    ]
