"""A hash of the code that decides a family's figures, equal under other names.

The hash covers the family's class and, recursively, all code of this package that it uses.
Definitions, local names, parameters, and attributes that the covered classes define become indices.
Names of torch, numpy, Python and asv stay, as do constants. Comments, docstrings, annotations and
layout are left out, and so are declarations for reports, parameter values and catalogues. So a new
size, a better title or a better name gives an equal hash, on every Python.

An attribute keeps its name where a text equals it, because ``getattr`` may look it up by that text.
"""

import ast
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path

from ..contracts import DECLARED
from .modules import (
    BENCHMARK_PREFIXES,
    FUNCTIONS,
    Definition,
    Target,
    benchmarks_in,
    bound_names,
    class_at,
    families,
    find_expression,
    find_name,
    imported_names,
    members,
    module_at,
    single_statements,
)

# Catalogues do not decide figures: a cell is named by a route's expression or a setting's text.
# Module -> name of the catalogue in it, "" if the whole module is one
CATALOGUES = dict.fromkeys(("routes", "transfer_routes", "outcomes", "contracts"), "")
CATALOGUES["environment"] = "SETTINGS"
# Attributes of a class that only inform reports, select cells, or set how long and how often asv
# runs them
DESCRIPTIVE = {*DECLARED, "params", "param_names", "contracts", "rounds", "timeout", "unit"}
DESCRIPTIVE -= {"direction"}
# Attributes that asv reads, besides those that statement.py names in a text
ASV_ATTRIBUTES = {"setup", "teardown", "setup_cache", "number", "repeat", "processes", "timer"}
# Fields of syntax nodes that decide nothing, or that only some Pythons have
SKIPPED_FIELDS = {"ctx", "kind", "type_comment", "type_params", "annotation", "returns", "is_lazy"}
HASH_DIGITS = 16


def deciding_statements(node: ast.ClassDef) -> list[ast.stmt]:
    """Return the statements of a class that decide figures."""
    statements = []
    for statement in single_statements(node.body):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        names = {getattr(part, "attr", "") or getattr(part, "id", "") for part in targets}
        if not names or not names <= DESCRIPTIVE:
            statements.append(statement)
    return statements


@cache
def names_in_body(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """Return the names that a function binds: parameters and local names."""
    body = node.body if isinstance(node.body, list) else [node.body]
    parts = [part for part in ast.walk(node) if isinstance(part, (ast.Global, ast.Nonlocal))]
    outer = {name for part in parts for name in part.names}
    return frozenset(bound_names(body).union(parameters(node.args)) - outer)


def parameters(arguments: ast.arguments) -> list[str]:
    """Return the names of a function's parameters, in order."""
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [part for part in (arguments.vararg, arguments.kwarg) if part]
    return [part.arg for part in [*plain, *starred]]


@dataclass
class Scope:
    """Names of a function, a comprehension or a class body.

    self_name  name of the first parameter of a method; its class is the owner
    indices    local name -> its index
    """

    names: Collection[str]
    self_name: str = ""
    owner: Definition | None = None
    is_class: bool = False
    indices: dict[str, int] = field(default_factory=dict)


@dataclass
class Attributes:
    """Attributes that the covered classes define. Classes that inherit from each other share them.

    Of an unknown object, ``word`` names the attribute in all classes that it may have: those that
    covered code names, not only as a base. Other code makes the family itself and Timing.

    defined   class -> the attributes that it defines, in order
    parents   class -> a class that stands for it, by inheritance
    texts     texts in the code
    referred  definitions that the code names, not only as a base
    indices   (class that stands for all, attribute) -> index
    """

    defined: dict[Definition, list[str]] = field(default_factory=dict)
    parents: dict[Definition, Definition] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    referred: set[Definition] = field(default_factory=set)
    indices: dict[tuple[Definition, str], int] = field(default_factory=dict)

    def root(self, definition: Definition) -> Definition:
        """Return the class that stands for all that inherit from each other."""
        while definition in self.parents:
            definition = self.parents[definition]
        return definition

    def join(self, first: Definition, second: Definition) -> None:
        """Note that one class inherits from the other."""
        if self.root(first) != self.root(second):
            self.parents[self.root(second)] = self.root(first)

    def number(self, protocol: Iterable[str]) -> None:
        """Give indices to the attributes whose name nobody looks up by a text."""
        literal = self.texts.union(protocol)
        for definition, names in self.defined.items():
            for name in names:
                if name not in literal and not name.startswith((*BENCHMARK_PREFIXES, "__")):
                    self.indices.setdefault((self.root(definition), name), len(self.indices))

    def word(self, name: str, owner: Definition | None) -> str:
        """Return the canonical word of an attribute. owner: the class, where it is known."""
        roots = {self.root(definition) for definition in ([owner] if owner else self.referred)}
        keys = [(root, name) for root in roots if (root, name) in self.indices]
        return "." + ("|".join(sorted(str(self.indices[key]) for key in keys)) or name)


class Walk:
    """A walk over the code that decides a family's figures. words: its canonical form."""

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self.words: list[str] = []
        self.indices: dict[Definition, int] = {}  # in order of first appearance
        self.waiting: list[Definition] = []
        self.modules: list[Path] = []  # of the definitions
        self.scopes: list[Scope] = []
        self.local_count = 0
        self.module = Path()

    def cover(self, start: Iterable[Definition]) -> list[str]:
        """Walk over definitions and all that they use, then over calls at import; return words."""
        for definition in start:
            self.index(definition)
        effects = (Definition(module, "") for module in self.modules)
        while definition := self.waiting.pop(0) if self.waiting else next(effects, None):
            self.module = definition.module
            statements = module_at(self.module).definitions.get(definition.name, [])
            for statement in statements:
                self.words.append(f"#{self.indices.get(definition, '')}=")
                self.local_count = 0
                if isinstance(statement, ast.ClassDef):
                    self.class_body(statement, definition)
                elif isinstance(statement, FUNCTIONS):
                    self.function(statement)
                else:
                    self.visit(statement)
        return self.words

    def index(self, definition: Definition) -> int:
        """Return the index of a definition. The first time, it begins to wait."""
        if definition not in self.indices:
            self.indices[definition] = len(self.indices)
            if not is_catalogue(definition):
                self.waiting.append(definition)
                if definition.module not in self.modules:
                    self.modules.append(definition.module)
        return self.indices[definition]

    def refer(self, target: Target) -> None:
        """Add the word of a target; of a constant in a catalogue it is the value."""
        if isinstance(target, Definition):
            (statement, *_) = module_at(target.module).definitions[target.name]
            value = getattr(statement, "value", None)
            if is_catalogue(target) and isinstance(value, ast.Constant):
                self.words.append(ascii(value.value))
                return
            self.attributes.referred.add(target)
            self.words.append(f"#{self.index(target)}")
        else:
            self.words.append(target.stem if isinstance(target, Path) else target)

    # --- nodes ---

    def visit(self, node: ast.AST) -> None:
        """Add the words of a node."""
        getattr(self, f"visit_{type(node).__name__}", self.plain)(node)

    def plain(self, node: ast.AST) -> None:
        """Add a node's type and its fields. Newer Pythons have more fields, which are empty."""
        self.words.append(f"({type(node).__name__}")
        for name, value in ast.iter_fields(node):
            if name not in SKIPPED_FIELDS and value:
                self.words.append(name)
                self.value(value)
        self.words.append(")")

    def value(self, value: object) -> None:
        """Add the words of a field."""
        if isinstance(value, list):
            self.words.append("[")
            for item in value:
                self.value(item)
            self.words.append("]")
        elif isinstance(value, ast.AST):
            self.visit(value)
        else:
            self.words.append(ascii(value))

    def visit_Constant(self, node: ast.Constant) -> None:
        self.attributes.texts.add(str(node.value))
        self.words.append(ascii(node.value))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Join texts: Pythons differ in how they cut the text between values."""
        text = ""
        for part in [*node.values, None]:
            if isinstance(part, ast.Constant):
                text += part.value
                continue
            self.words.append(f"f{text!a}")
            text = ""
            if part:
                self.visit(part)

    def visit_Name(self, node: ast.Name) -> None:
        self.name(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.name(node.arg)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.name(node.name)
        self.plain(ast.ExceptHandler(node.type, None, node.body))

    def name(self, name: str) -> None:
        """Add the word of a name, which is local, of the class body, or of the module."""
        scope = self.scope_of(name)
        if scope is None:
            self.refer(find_name(self.module, name))
        elif scope.is_class:
            self.words.append(self.attributes.word(name, scope.owner))
        else:
            if name not in scope.indices:
                scope.indices[name] = self.local_count
                self.local_count += 1
            self.words.append(f"${scope.indices[name]}")

    def scope_of(self, name: str) -> Scope | None:
        """Return the innermost scope with a name. Functions do not see names of a class body."""
        for scope in reversed(self.scopes):
            if name in scope.names and (scope is self.scopes[-1] or not scope.is_class):
                return scope
        return None

    def target(self, node: ast.expr) -> Target | None:
        """Return what a dotted name of the module stands for; None for other expressions."""
        first = node
        while isinstance(first, ast.Attribute):
            first = first.value
        if not isinstance(first, ast.Name) or self.scope_of(first.id):
            return None
        return find_expression(self.module, node)

    def owner(self, node: ast.expr) -> Definition | None:
        """Return the class of ``self``, of ``Class()``, or a class itself; None if unknown."""
        if isinstance(node, ast.Name):
            scope = self.scope_of(node.id)
            if scope and scope.self_name == node.id:
                return scope.owner
        target = self.target(node.func if isinstance(node, ast.Call) else node)
        return target if isinstance(target, Definition) and class_at(target) else None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        target = self.target(node)
        if target is not None:
            self.refer(target)
            return
        owner = self.owner(node.value)
        if owner and isinstance(node.ctx, ast.Store):
            self.attributes.defined.setdefault(owner, []).append(node.attr)
        self.visit(node.value)
        self.words.append(self.attributes.word(node.attr, owner))

    def visit_Call(self, node: ast.Call) -> None:
        """A keyword becomes the place of its parameter, where the function is known."""
        names = self.parameter_names(self.target(node.func))
        self.value([node.func, *node.args])
        for keyword in node.keywords:
            is_known = keyword.arg in names
            self.words.append(f"{names.index(keyword.arg) if is_known else keyword.arg}=")
            self.visit(keyword.value)

    def parameter_names(self, target: Target | None) -> list[str]:
        """Return the parameters of a function, or of a class's __init__; [] of anything else."""
        if not isinstance(target, Definition):
            return []
        statement = module_at(target.module).definitions[target.name][0]
        if isinstance(statement, ast.ClassDef):
            statement = members(target).get("__init__", statement)
        return parameters(statement.args) if isinstance(statement, FUNCTIONS) else []

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.name(node.name)
        self.function(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.function(node)

    def function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        owner: Definition | None = None,
    ) -> None:
        """Add a function. owner: its class, if it is a method."""
        decorators = getattr(node, "decorator_list", [])
        defaults = [*node.args.defaults, *node.args.kw_defaults]
        self.words.append(type(node).__name__)
        self.value([*decorators, *defaults])  # they belong to the scope around it
        is_static = "staticmethod" in {getattr(part, "id", "") for part in decorators}
        names = parameters(node.args)
        self_name = names[0] if owner and names and not is_static else ""
        self.scopes.append(Scope(names_in_body(node), self_name, owner))
        self.plain(node.args)
        self.value(node.body)
        self.scopes.pop()

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        """Add a comprehension. Its first iterable belongs to the scope around it."""
        self.visit(node.generators[0].iter)
        self.scopes.append(Scope(bound_names(part.target for part in node.generators)))
        self.plain(node)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def class_body(self, node: ast.ClassDef, definition: Definition) -> None:
        """Add a class: its bases, and the statements that decide figures."""
        self.words.append("(ClassDef")
        for base in node.bases:
            target = self.target(base)
            if isinstance(target, Definition):
                self.attributes.join(definition, target)
                self.words.append(f"#{self.index(target)}")
            else:
                self.visit(base)
        self.value([*node.decorator_list, *node.keywords])
        attributes = self.attributes.defined.setdefault(definition, [])
        names = bound_names(node.body)
        self.scopes.append(Scope(names, owner=definition, is_class=True))
        for statement in deciding_statements(node):
            attributes += sorted(bound_names([statement]))
            if isinstance(statement, FUNCTIONS):
                self.words.append(self.attributes.word(statement.name, definition))
                self.function(statement, definition)
            else:
                self.visit(statement)
        self.scopes.pop()
        self.words.append(")")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """A class inside a function."""
        self.name(node.name)
        self.class_body(node, Definition(self.module, node.name))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """As if there were no annotation."""
        if node.value:
            self.visit(ast.Assign([node.target], node.value))
        else:
            self.visit(node.target)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, target in imported_names(node, self.module).items():
            self.refer(target)
            self.name(name)

    visit_ImportFrom = visit_Import

    def ignore(self, node: ast.AST) -> None:
        """Add nothing: the node does nothing, or only says where a name belongs."""

    visit_Pass = visit_Global = visit_Nonlocal = ignore

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.visit(node.value)


def is_catalogue(definition: Definition) -> bool:
    """Whether a definition is one of a catalogue, which decides no figures."""
    return CATALOGUES.get(definition.module.stem) in ("", definition.name)


@cache
def protocol(package: Path) -> frozenset[str]:
    """Return the attributes that asv and the benchmark types read by name."""
    text = (package / "core" / "statement.py").read_text(encoding="utf-8")
    return frozenset({*DESCRIPTIVE, *DECLARED, *ASV_ATTRIBUTES, *re.findall(r'"(\w+)"', text)})


def family_hash(definition: Definition, package: Path) -> str:
    """Return the hash of a family of a package."""
    start = [definition]
    if any(name.startswith("timeit_") for name in benchmarks_in(definition)):
        start.append(Definition(package / "core" / "timing.py", "Timing"))  # decides all times
    attributes = Attributes()
    Walk(attributes).cover(start)  # to know the attributes
    attributes.number(protocol(package))
    words = Walk(attributes).cover(start)
    return sha256(" ".join(words).encode()).hexdigest()[:HASH_DIGITS]


def family_hashes(package: Path) -> dict[str, str]:
    """Return the hash of each family of a package."""
    return {name: family_hash(family, package) for name, family in families(package).items()}
