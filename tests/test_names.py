"""Names that stand for too much: what is called so names no thing."""

import ast
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
EMPTY = {"one", "found", "own", "told"}


def bound(path):
    """(name, line) of each variable, parameter, field, function and class of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
            yield node.name, node.lineno
        elif isinstance(node, ast.alias):
            yield node.asname, node.lineno


def test_nothing_has_a_name_that_says_nothing():
    files = sorted(SCRIPTS.rglob("*.py"))
    assert not [(path.name, line, name) for path in files for name, line in bound(path) if name in EMPTY]
