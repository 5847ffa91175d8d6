"""Who may import whom in scripts/: verbs → pages → analysis → toolchains and records → cli.

What is known (analysis) must not depend on how it is said (pages), and what is measured on neither; checks of the suite
itself (checking) use both. Imports inside of functions count, too: they are read from the source.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
VERBS = {path.stem for path in SCRIPTS.glob("*.py")} - {"cli"}
ROOMS = {path.parent.name for path in SCRIPTS.glob("*/__init__.py")}

# Room -> the others that it may import from; a verb may import from all, and anyone cli
MAY = {
    "records": set(),
    "toolchains": set(),
    "measuring": {"toolchains", "records"},
    "nodes": {"measuring", "toolchains", "records"},
    "analysis": {"toolchains", "records"},
    "pages": {"analysis", "toolchains", "records"},
    "checking": {"measuring", "analysis", "toolchains", "records"},
}
DRAWING = {"jinja2", "matplotlib", "markupsafe"}  # how it is said


def imported(path):
    """The first names of the modules that a file imports; relative ones are of its own room and left out."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


def imports_of(room):
    """(file, module) of each import in a room."""
    files = sorted((SCRIPTS / room).rglob("*.py"))
    return {(path.relative_to(SCRIPTS).as_posix(), name) for path in files for name in imported(path)}


def test_every_room_has_its_row():
    assert set(MAY) == ROOMS


@pytest.mark.parametrize("room", MAY)
def test_arrows_go_one_way(room):
    barred = (ROOMS | VERBS) - MAY[room] - {room}
    assert not {(file, name) for file, name in imports_of(room) if name in barred}


@pytest.mark.parametrize("room", ["records", "toolchains", "measuring", "nodes", "analysis", "checking"])
def test_only_pages_draw(room):
    assert not {(file, name) for file, name in imports_of(room) if name in DRAWING}


def test_cli_imports_no_room_and_no_verb():
    assert not imported(SCRIPTS / "cli.py") & (ROOMS | VERBS)


def own_words(path):
    """The first line of a file's docstring."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[0]


def test_the_map_has_every_file_in_its_own_words():
    """A map that is kept by hand is wrong after the third change."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = [path for room in ROOMS for path in (SCRIPTS / room).rglob("*.py")]
    files = [*(ROOT / "benchmarks").glob("*.py"), *(SCRIPTS / f"{verb}.py" for verb in VERBS), *rooms]
    wanted = set()
    for path in files:
        parts = path.relative_to(ROOT).parts
        below = parts[1:] if parts[0] == "benchmarks" or len(parts) == 2 else parts[2:]
        if path.name != "__init__.py":
            wanted.add(f"| `{'/'.join(below)}` | {own_words(path)} |")
    rows = {row for row in text.splitlines() if row.startswith("| `") and ".py` |" in row and row.count("|") == 3}
    assert rows == wanted
