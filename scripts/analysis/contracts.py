"""What a route's contract says of a source, read from benchmarks.json: the one place that decides it.

A contract is what benchmarks/routes.py promises of a route, as plain data (Route.contract). ``Contract.memory_for`` is
the same rule as Route.memory_for there; tests/test_catalogue.py holds the two together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

NUMPY_TO_TORCH, TORCH_TO_NUMPY = "numpy→torch", "torch→numpy"
HOST_TO_DEVICE, DEVICE_TO_HOST = "host→device", "device→host"
ALIAS, COPY, INTO = MEMORIES = ("alias", "copy", "into")
# Kinds of what happens to an awkward source, as benchmarks/routes.py has them, and their order: what is silent first
KINDS = {"silent": 0, "wrong": 0, "aborts": 0, "warns": 1, "raises": 2, "works": 3, "detaches": 3}
FINE = ("works", "detaches")  # it simply takes the source
UNSAFE = ("wrong", "aborts")  # it goes wrong without an exception
RAISES = "raises"
GRAD = "requires grad"  # the awkward source that questions and measurements ask for


@dataclass(frozen=True)
class Contract:
    """What a route promises; the fields are those of Route, and explained there. kinds: what happens -> its kind.

    A contract that was made before a field has its default: such a route is no view, copies no layout, waits until the
    bytes have arrived, and moves tensors. What happens is an exception where its kind is not told.
    """

    direction: str
    expression: str
    memory: str
    casts_to: str = ""
    view: bool = False
    inputs: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    copies: tuple[str, ...] = ()
    non_blocking: bool = False
    array: bool = False
    needs: str = ""
    per_element: bool = False
    memmove: bool = False
    hazard: str = ""
    hazard_memory: tuple[str, ...] = ()
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

    def on(self, host: str) -> "Contract":
        """The contract where ``host`` memory is at the host's end: a hazard that is about other memory is none."""
        elsewhere = host and self.hazard_memory and host not in self.hazard_memory
        return replace(self, hazard="") if elsewhere else self

    @property
    def safe(self) -> bool:
        """Whether the route may be recommended: no hazard, and no input that it silently gets wrong or dies of."""
        return not self.hazard and not any(self.kind(does) in UNSAFE for does in self.inputs.values())

    def kind(self, does: str) -> str:
        """Of what happens to an awkward source, one of KINDS."""
        kind = self.kinds.get(does, does)
        return kind if kind in KINDS else RAISES

    @property
    def takes_grad(self) -> bool:
        """Whether it says that it takes a tensor that requires grad."""
        return GRAD in self.inputs and self.kind(self.inputs[GRAD]) in FINE

    @property
    def outcomes(self) -> dict[str, list[str]]:
        """What happens -> the awkward sources it happens to: what is silent first, what works last."""
        sources: dict[str, list[str]] = {}
        for source, does in self.inputs.items():
            sources.setdefault(does, []).append(source)
        return {does: sources[does] for does in sorted(sources, key=lambda does: KINDS[self.kind(does)])}

    @property
    def quiet(self) -> dict[str, list[str]]:
        """The outcomes for the sources that the route neither simply takes nor refuses by an exception."""
        return {does: sources for does, sources in self.outcomes.items() if self.kind(does) not in (*FINE, RAISES)}

    @property
    def refused(self) -> list[str]:
        """The awkward sources that it refuses by an exception."""
        return [source for source, does in self.inputs.items() if self.kind(does) == RAISES]


NONE = Contract("", "", "")  # of a benchmark without routes, or a route that it does not know
