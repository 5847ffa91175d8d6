"""What a run of toolchains is to measure and what it has measured, on disk until it has measured all of it."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from cli import put
from toolchains.ledger import Toolchain

from .engine import RESULTS
from .state import State, check_same

# Options of track.py that a plan is made of
RELEASES = ("history", "releases", "since")  # those that choose its toolchains
HOW = ("profile", "only", "rounds")


def coarse_to_fine(line: Sequence[Toolchain]) -> list[Toolchain]:
    """First, last or nearly so, middle, quarters: the order of the places' binary digits reversed (van der Corput).

    In order of release, a drift of the machine over the hours would look like a trend of the releases.
    """
    width = len(line).bit_length()
    order = sorted(range(len(line)), key=lambda place: f"{place:0{width}b}"[::-1])
    return [line[place] for place in order]


@dataclass
class Plan:
    """What a run is to measure and what it has measured, kept on disk until it has measured all of it.

    beside: toolchains of which a visit stands beside those of other days, by the same benchmarks, and replaces none
    named  the reference, where it is not just the first that can be measured
    """

    directory: Path
    tags: list[str]
    profile: str
    only: str | None
    rounds: int
    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    beside: list[str] = field(default_factory=list)
    named: str = ""

    @classmethod
    def of(
        cls, directory: Path, toolchains: Iterable[Toolchain], profile: str, only: str | None, rounds: int
    ) -> "Plan":
        """One of these toolchains, each history of them from coarse to fine."""
        lines = groupby(toolchains, key=lambda toolchain: toolchain.history)
        tags = [toolchain.tag for _, line in lines for toolchain in coarse_to_fine(list(line))]
        return cls(directory, tags, profile, only, rounds)

    @property
    def path(self) -> Path:
        return self.directory / "plan.json"

    def save(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        put(self.path, json.dumps({name: value for name, value in vars(self).items() if name != "directory"}))

    @classmethod
    def load(cls, directory: Path) -> "Plan | None":
        """The plan that is kept there, with what failed to be tried again: perhaps it was the network."""
        try:
            kept = json.loads((directory / "plan.json").read_text(encoding="utf-8"))
            return cls(directory, **{**kept, "failed": {}})
        except (OSError, ValueError, TypeError):
            return None

    def finish(self) -> None:
        self.path.unlink(missing_ok=True)

    def begin(self) -> None:
        """Keep this plan in place of an interrupted one, of whose toolchains those that are whole are filed."""
        for path in self.directory.glob("*/"):
            left = State(path)
            if not left.publish(RESULTS):
                left.finish()
        self.save()

    def resumed(self, said: Collection[str]) -> "Plan | None":
        """The plan of the interrupted run, None where there is none. UserError where that is another than this one by
        the options that were ``said``, which may repeat what it was asked but not change it.
        """
        interrupted = Plan.load(self.directory)
        if interrupted is None:
            return None
        then: dict[str, tuple[Any, Any]] = {option: (self.tags, interrupted.tags) for option in RELEASES}
        then |= {option: (getattr(self, option), getattr(interrupted, option)) for option in HOW}
        check_same({f"--{option}": both for option, both in then.items() if option in said})
        return interrupted

    @property
    def reference(self) -> str:
        """The toolchain that is measured first, and again at the end; the oldest may have no wheel for this Python."""
        return self.named or (self.finished[0] if self.finished else self.tags[0])

    def state(self, name: str) -> State:
        """What is measured so far of one toolchain."""
        return State(self.directory / name)
