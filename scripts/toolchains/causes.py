"""Causes of changes that were found by hand, in causes.yaml."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml
from cli import UserError

CAUSES = Path(__file__).with_suffix(".yaml")
STATUSES = ("probable", "confirmed")


@dataclass(frozen=True)
class Cause:
    """An entry of causes.yaml, which explains the fields."""

    release: str
    routes: str
    link: str
    status: str
    evidence: str

    def __post_init__(self) -> None:
        re.compile(self.routes)
        if self.status not in STATUSES or not self.link.startswith("https://"):
            raise ValueError(f"{self.release}: {self.status}, {self.link}")

    def explains(self, route: object) -> bool:
        """Whether it is a cause of a change of this route."""
        return isinstance(route, str) and re.fullmatch(self.routes, route) is not None


@cache
def read_causes(path: Path = CAUSES) -> tuple[Cause, ...]:
    """Read the causes. UserError if an entry is broken."""
    try:
        return tuple(Cause(**entry) for entry in yaml.safe_load(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError, re.error, yaml.YAMLError) as error:
        raise UserError(f"{path.name} has a broken entry: {error}") from None
