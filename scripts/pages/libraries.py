"""Arrays of other libraries, and their routes to a tensor: the cases of libraries.yaml."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from . import show
from .tables import Table, lines_of, render_table

CASES = Path(__file__).with_suffix(".yaml")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "libraries.md"


@dataclass(frozen=True)
class LibraryCase:
    """A case; libraries.yaml says what its fields mean."""

    have: str
    needs: str
    imports: str
    make: str
    array: str
    gives: str
    dtype: str
    take: str = ""
    copies: bool = False
    result: str = ""
    wanted: str = "a"
    fails: dict[str, str] = field(default_factory=dict)
    slow: dict[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def route(self) -> str:
        return self.take or f"torch.from_numpy({self.array})"

    @property
    def copy(self) -> str:
        """The route of what will be written to; "" if the usual one does."""
        return f"torch.tensor({self.array})" if self.read_only else ""

    @property
    def read_only(self) -> bool:
        return "read-only" in self.gives


def library_cases() -> list[LibraryCase]:
    return msgspec.convert(yaml.safe_load(CASES.read_text("utf-8")), list[LibraryCase])


def library_table() -> Table:
    """The cases, one a row."""
    return render_table("libraries", "table", False, cases=library_cases())


def document() -> str:
    """The text of docs/libraries.md."""
    table = library_table()
    rows = []
    for row in (table.columns, *table.rows):
        rows.append(["<br>".join(map(show.to_markdown, lines_of(entry))) for entry in row])
    rows.insert(1, ["---"] * len(table.columns))
    return show.to_plain(
        show.render("libraries", "document", rows=[f"| {' | '.join(row)} |" for row in rows])
    ).lstrip()


if __name__ == "__main__":
    DOCS.write_text(document(), "utf-8")
