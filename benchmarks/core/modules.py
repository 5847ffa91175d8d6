"""Definitions, imports and classes in the files of this package, by syntax alone."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

BENCHMARK_PREFIXES = ("timeit_", "track_")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class External(str):
    """Dotted name of something outside the package, such as numpy.float32 or len."""


class Definition(NamedTuple):
    """What a module of the package defines at its top level.

    name "" stands for its statements that define nothing, such as a call.
    """

    module: Path
    name: str


Target = External | Definition | Path  # a path is a module of the package, or a package


class Module:
    """The top level of a file.

    definitions  name -> the statements that define it; "" -> statements that define nothing
    imports      name -> what it stands for
    """

    def __init__(self, path: Path) -> None:
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, Target] = {}
        for statement in single_statements(ast.parse(path.read_text(encoding="utf-8")).body):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                self.imports.update(imported_names(statement, path))
            else:
                for name in bound_names([statement]) or {""}:
                    self.definitions.setdefault(name, []).append(statement)


@cache
def module_at(path: Path) -> Module:
    """Return a module of the package, read once."""
    return Module(path)


@cache
def find_name(place: Path, name: str) -> Target:
    """Return what a name stands for in a module, or in a package. Follows imports."""
    if place.suffix != ".py":
        paths = (place / f"{name}.py", place / name)
        return next((path for path in paths if path.exists()), External(name))
    module = module_at(place)
    if name in module.definitions:
        return Definition(place, name)
    target = module.imports.get(name, External(name))
    return find_name(target.module, target.name) if isinstance(target, Definition) else target


def find_expression(place: Path, node: ast.expr) -> Target | None:
    """Return what a dotted name of a module stands for; None for any other expression."""
    if isinstance(node, ast.Name):
        return find_name(place, node.id)
    base = find_expression(place, node.value) if isinstance(node, ast.Attribute) else None
    if isinstance(base, Path):
        return find_name(base, node.attr)
    return External(f"{base}.{node.attr}") if isinstance(base, External) else None


def imported_names(statement: ast.Import | ast.ImportFrom, path: Path) -> dict[str, Target]:
    """Return what the names stand for that an import statement of a file binds."""
    targets: dict[str, Target] = {}
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            targets[alias.asname or name] = External(name)
        elif statement.level:
            place: Target = path.parents[statement.level - 1]
            for part in (statement.module or "").split("."):
                if part and isinstance(place, Path):
                    place = find_name(place, part)
            is_module = isinstance(place, Path) and place.suffix == ".py"
            inner = Definition(place, alias.name) if is_module else find_name(place, alias.name)
            targets[alias.asname or alias.name] = inner
        else:
            external = External(f"{statement.module}.{alias.name}")
            targets[alias.asname or alias.name] = external
    return targets


def single_statements(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, with ``a, b = 1, 2`` as two assignments, without docstrings and pass."""
    for statement in statements:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Tuple(names)], value=ast.Tuple(values)) if [
                type(name) for name in names
            ] == [ast.Name] * len(values):
                yield from (ast.Assign([name], value) for name, value in zip(names, values))
            case _:
                yield statement


def bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that nodes bind in their own scope, not in scopes inside."""
    names: set[str] = set()
    for node in nodes:
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                names.add(name)
                continue
            case ast.Lambda():
                continue
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                walruses = (part for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
                names.update(part.target.id for part in walruses)
                continue
            case ast.Name(name, ast.Store()) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.alias():
                names.add(node.asname or node.name.partition(".")[0])
        names |= bound_names(ast.iter_child_nodes(node))
    return names


def class_at(definition: Definition) -> ast.ClassDef | None:
    """Return the class that a definition is, or None."""
    statements = module_at(definition.module).definitions.get(definition.name, [])
    return next((node for node in statements if isinstance(node, ast.ClassDef)), None)


def members(definition: Definition) -> dict[str, ast.stmt]:
    """Return the members of a class by name, with those that it inherits in the package."""
    node = class_at(definition)
    if node is None:
        return {}
    statements: dict[str, ast.stmt] = {}
    for base in reversed(node.bases):
        target = find_expression(definition.module, base)
        if isinstance(target, Definition):
            statements.update(members(target))
    for statement in single_statements(node.body):
        statements.update(dict.fromkeys(bound_names([statement]), statement))
    return statements


def benchmarks_in(definition: Definition) -> list[str]:
    """Return the benchmarks of a class; one that is set to None is none."""
    benchmarks = []
    for name, statement in members(definition).items():
        match statement:
            case ast.Assign(value=ast.Constant(None)):
                continue
        if name.startswith(BENCHMARK_PREFIXES):
            benchmarks.append(name)
    return benchmarks


def families(package: Path) -> dict[str, Definition]:
    """Return the benchmark classes of a package, as asv finds them, by module.Class."""
    definitions = [
        Definition(path, name)
        for path in sorted(package.glob("*.py"))
        for name in module_at(path).definitions
        if not name.startswith("_")
    ]
    return {
        f"{definition.module.stem}.{definition.name}": definition
        for definition in definitions
        if benchmarks_in(definition)
    }
