"""What a route's contract says of a source, read from benchmarks.json: the one place that decides it.

A contract is what benchmarks/routes.py promises of a route, as plain data (Route.contract). ``Contract.memory_for`` is
the same rule as Route.memory_for there; tests/test_catalogue.py holds the two together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

ALIAS, COPY, INTO = MEMORIES = ("alias", "copy", "into")
FINE = ("works", "detaches")  # what it says of an input that it simply takes
RAISES = "Error"  # how what it says ends of an input that it refuses: the exception's name
UNSAFE = ("wrong", "abort")  # how what it says begins of an input that goes wrong without an exception
GRAD = "requires grad"  # the awkward source that questions and measurements ask for


@dataclass(frozen=True)
class Contract:
    """What a route promises; the fields are those of Route, and explained there.

    A contract that was made before a field has its default: such a route is no view, copies no layout, waits until the
    bytes have arrived, and moves tensors.
    """

    direction: str
    expression: str
    memory: str
    casts_to: str = ""
    view: bool = False
    inputs: Mapping[str, str] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    copies: tuple[str, ...] = ()
    non_blocking: bool = False
    array: bool = False
    needs: str = ""
    per_element: bool = False
    hazard: str = ""
    caution: str = ""

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

    @property
    def safe(self) -> bool:
        """Whether the route may be recommended: no hazard, and no input that it silently gets wrong or dies of."""
        return not self.hazard and not any(does.startswith(UNSAFE) for does in self.inputs.values())

    @property
    def takes_grad(self) -> bool:
        """Whether it says that it takes a tensor that requires grad."""
        return self.inputs.get(GRAD) in FINE

    @property
    def outcomes(self) -> dict[str, list[str]]:
        """What happens -> the awkward sources it happens to: what is silent first, what works last."""

        def rank(does: str) -> int:
            silent = does.startswith(UNSAFE) or "silently" in does
            return 0 if silent else 3 if does in FINE else 2 if does.endswith(RAISES) else 1

        found: dict[str, list[str]] = {}
        for source, does in self.inputs.items():
            found.setdefault(does, []).append(source)
        return {does: found[does] for does in sorted(found, key=rank)}

    @property
    def quiet(self) -> dict[str, list[str]]:
        """The outcomes for the sources that the route neither simply takes nor refuses by an exception."""
        return {does: own for does, own in self.outcomes.items() if does not in FINE and not does.endswith(RAISES)}

    @property
    def refused(self) -> list[str]:
        """The awkward sources that it refuses by an exception."""
        return [source for does, own in self.outcomes.items() if does.endswith(RAISES) for source in own]


NONE = Contract("", "", "")  # of a benchmark without routes, or a route that it does not know


def of_cell(benchmarks: Mapping[str, Mapping[str, Any]], benchmark: str, route: Any) -> Contract:
    """The contract of a benchmark's route, NONE where there is none. benchmarks: as Results has them."""
    found: Contract = benchmarks.get(benchmark, {}).get("contracts", {}).get(route, NONE)
    return found


def memory_of_cells(cells: pd.DataFrame, benchmarks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """alias, copy, into or "" of each row; ``cells`` has the columns benchmark, route, dtype and layout."""

    def each() -> Iterator[str]:
        for name, route, dtype, layout in zip(cells["benchmark"], cells["route"], cells["dtype"], cells["layout"]):
            words = (word if isinstance(word, str) else "" for word in (dtype, layout))
            yield of_cell(benchmarks, name, route).memory_for(*words)

    return list(each())
