"""A hash of the code that decides a family's figures, the same under other names.

The hash covers the family's class and, recursively, everything of this package that its code uses.
Definitions, local names, parameters, and attributes that the covered classes define become indices.
Names of torch, numpy, Python and asv stay, as do constants. Comments, docstrings, annotations and
layout are not in the syntax tree, or are left out of it. So are declarations for reports, parameter
values and catalogues. So a new size, a better title or a better name gives the same hash, on every
Python.

An attribute keeps its name where a text of the same name occurs, because ``getattr`` may look it up
by that text.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ..contracts import DECLARED

# Catalogues do not decide figures: a cell is named by a route's expression or a setting's text, the
# rest is metadata. Module -> name of the catalogue in it, "" if the whole module is one
CATALOGUES = {"routes": "", "contracts": "", "environment": "SETTINGS"}
# Attributes of a class that only inform reports, select cells, or set how long and how often asv
# runs them
DESCRIPTIVE = {*DECLARED, "params", "param_names", "contracts", "rounds", "timeout", "unit"}
DESCRIPTIVE -= {"direction"}
# Attributes that asv reads, besides those that statement.py names in a text
ASV = {
    "setup",
    "teardown",
    "setup_cache",
    "number",
    "repeat",
    "processes",
    "min_run_count",
    "timer",
}
BENCHMARKS = ("timeit_", "track_")  # prefixes of methods
SKIPPED = {"ctx", "kind", "type_comment", "type_params", "annotation", "returns", "is_lazy"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
HASH_DIGITS = 16


class External(str):
    """Dotted name of something outside the package, such as numpy.float32 or len."""


class Definition(NamedTuple):
    """What a module of the package defines at its top level. name "": the statements that define
    nothing.
    """

    module: Path
    name: str


Target = External | Definition | Path  # a path is a module of the package, or a package


class Module:
    """The top level of a file.

    definitions  name -> the statements that define it; "" -> statements that define nothing, such
                 as a call
    imports      name -> what it stands for
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, Target] = {}
        for statement in separated(ast.parse(path.read_text(encoding="utf-8")).body):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                self.imports.update(imported(statement, path))
                continue
            for name in bound_names([statement]) or {""}:
                self.definitions.setdefault(name, []).append(statement)

    def find(self, name: str) -> Target:
        """Return what a name of this file's top level stands for."""
        if name in self.definitions:
            return Definition(self.path, name)
        return self.imports.get(name, External(name))


@cache
def module_at(path: Path) -> Module:
    return Module(path)


@cache
def find_in(place: Path, name: str) -> Target:
    """Return what ``name`` of a module, or of a package, stands for. Follows imports."""
    if place.suffix != ".py":
        inner = submodule(place, name)
        return inner if inner else External(name)
    target = module_at(place).find(name)
    if isinstance(target, Definition) and target.module != place:
        return find_in(target.module, target.name)
    return target


@cache
def submodule(package: Path, name: str) -> Path | None:
    """Return the path of a module or a package in a package; None if there is none."""
    for path in (package / f"{name}.py", package / name):
        if path.exists():
            return path
    return None


def imported(statement: ast.Import | ast.ImportFrom, path: Path) -> dict[str, Target]:
    """Return what the names stand for that an import statement of a file binds."""
    targets: dict[str, Target] = {}
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            first = alias.name.partition(".")[0]
            targets[alias.asname or first] = External(alias.name if alias.asname else first)
        return targets
    package = path
    for _ in range(statement.level):
        package = package.parent
    for part in (statement.module or "").split(".") if statement.level and statement.module else ():
        package = submodule(package, part) or package / part
    for alias in statement.names:
        name = alias.asname or alias.name
        if not statement.level:
            targets[name] = External(f"{statement.module}.{alias.name}")
        elif package.is_dir():
            targets[name] = submodule(package, alias.name) or External(alias.name)
        else:
            targets[name] = Definition(package, alias.name)
    return targets


def separated(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements without docstrings and ``pass``, ``a, b = 1, 2`` as two assignments."""
    for statement in statements:
        if is_empty(statement):
            continue
        pairs = parallel_assignments(statement)
        if pairs:
            yield from (ast.Assign(targets=[target], value=value) for target, value in pairs)
        else:
            yield statement


def is_empty(statement: ast.stmt) -> bool:
    """Whether a statement does nothing: a docstring, or ``pass``."""
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return text or isinstance(statement, ast.Pass)


def parallel_assignments(statement: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """Return the pairs of target and value of ``a, b = 1, 2``; [] for any other statement."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return []
    target, value = statement.targets[0], statement.value
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
        return []
    names = all(isinstance(each, ast.Name) for each in target.elts)
    starred = any(isinstance(each, ast.Starred) for each in value.elts)
    if not names or starred or len(target.elts) != len(value.elts):
        return []
    return list(zip(target.elts, value.elts))


def bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that nodes bind in their own scope; not those of functions, classes and
    comprehensions inside.
    """
    names: set[str] = set()
    outer: set[str] = set()
    for node in nodes:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, COMPREHENSIONS):
            walrus = (each for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
            names.update(each.target.id for each in walrus)
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            outer.update(node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        names |= bound_names(ast.iter_child_nodes(node))
    return names - outer


@cache
def names_in_body(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """Return the names that the body of a function binds."""
    return frozenset(bound_names(node.body if isinstance(node.body, list) else [node.body]))


def parameters(arguments: ast.arguments) -> list[str]:
    """Return the names of a function's parameters, in order."""
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [each for each in (arguments.vararg, arguments.kwarg) if each]
    return [each.arg for each in [*plain, *starred]]


def fields_of(node: ast.ClassDef) -> list[str]:
    """Return the annotated names of a class: the fields of a dataclass."""
    annotated = (each for each in node.body if isinstance(each, ast.AnnAssign))
    return [each.target.id for each in annotated if isinstance(each.target, ast.Name)]


def deciding(node: ast.ClassDef) -> Iterator[ast.stmt]:
    """Yield the statements of a class that decide figures."""
    for statement in separated(node.body):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        names = {getattr(each, "attr", "") or getattr(each, "id", "") for each in targets}
        if not names or not names <= DESCRIPTIVE:
            yield statement


@cache
def texts_in(path: Path) -> frozenset[str]:
    """Return the texts in a file that may be names of attributes."""
    constants = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    texts = (node.value for node in constants if isinstance(node, ast.Constant))
    return frozenset(text for text in texts if isinstance(text, str) and text.isidentifier())


@dataclass
class Scope:
    """Names of a function, a lambda or a comprehension, with the class of ``self``; or those of a
    class body.
    """

    names: Collection[str]
    self_name: str = ""
    owner: Definition | None = None
    is_class: bool = False
    indices: dict[str, int] = field(default_factory=dict)


@dataclass
class Attributes:
    """Attributes that the covered classes define. Classes that inherit from each other share
    theirs.

    Of an unknown object, ``word`` names the attribute in all classes that it may have: those that
    covered code names, not only as a base. The family itself and Timing are made by other code.

    defined   class -> the attributes that it defines, in order
    methods   name -> the methods of that name
    texts     texts in the code
    referred  definitions that the code names, not only as a base
    indices   (class at the root of the inheritance, attribute) -> index
    """

    defined: dict[Definition, list[str]] = field(default_factory=dict)
    methods: dict[str, list[ast.arguments]] = field(default_factory=dict)
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
        roots = self.root(first), self.root(second)
        if roots[0] != roots[1]:
            self.parents[roots[1]] = roots[0]

    def number(self, protocol: Iterable[str]) -> None:
        """Give indices to the attributes whose name nobody looks up by a text."""
        literal = self.texts.union(protocol)
        for definition, names in self.defined.items():
            for name in names:
                if name not in literal and not name.startswith((*BENCHMARKS, "__")):
                    key = self.root(definition), name
                    self.indices.setdefault(key, len(self.indices))

    def word(self, name: str, owner: Definition | None) -> str:
        """Return the canonical word of an attribute. owner: the class, where it is known."""
        if owner is not None:
            return f".{self.indices.get((self.root(owner), name), name)}"
        roots = {self.root(each) for each in self.referred}
        indices = [self.indices.get((root, name)) for root in roots]
        indices = [index for index in indices if index is not None]
        return "." + ("|".join(map(str, sorted(indices))) if indices else name)


class Walk:
    """A walk over the code that decides a family's figures. words: its canonical form."""

    def __init__(self, package: Path, attributes: Attributes, is_first: bool) -> None:
        self.package = package
        self.attributes, self.is_first = attributes, is_first
        self.words: list[str] = []
        self.indices: dict[Definition, int] = {}  # in order of first appearance
        self.waiting: list[Definition] = []
        self.modules: list[Path] = []  # of the definitions, each with effects to cover at the end
        self.scopes: list[Scope] = []
        self.local_count = 0
        self.module = package

    def cover(self, *definitions: Definition) -> list[str]:
        """Walk over these definitions and all that they use; return the words."""
        for definition in definitions:
            self.index(definition)
        every = (Definition(module, "") for module in self.modules)
        effects = (each for each in every if "" in module_at(each.module).definitions)
        while definition := self.waiting.pop(0) if self.waiting else next(effects, None):
            self.define(definition)
        return self.words

    def define(self, definition: Definition) -> None:
        """Walk over the statements of a definition."""
        self.module = definition.module
        self.words.append(f"#{self.indices.get(definition, '')}=")
        for statement in module_at(definition.module).definitions.get(definition.name, ()):
            self.local_count = 0
            if isinstance(statement, ast.ClassDef):
                self.class_body(statement, definition)
            elif isinstance(statement, FUNCTIONS):
                self.function(statement, None)
            else:
                self.visit(statement)

    def refer(self, target: Target) -> None:
        """Add the word of a target; cover a definition later."""
        if isinstance(target, Path):
            self.words.append(target.stem)
        elif isinstance(target, External):
            self.words.append(target)
        elif is_catalogue(target):
            self.words.append(self.catalogued(target))
        else:
            self.attributes.referred.add(target)
            self.words.append(f"#{self.index(target)}")

    def index(self, definition: Definition) -> int:
        """Return the index of a definition. The first time, it begins to wait, as do effects of its
        module.
        """
        if definition not in self.indices:
            self.indices[definition] = len(self.indices)
            self.waiting.append(definition)
            if definition.module not in self.modules:
                self.modules.append(definition.module)
        return self.indices[definition]

    def catalogued(self, definition: Definition) -> str:
        """Return the word of a name of a catalogue: the value of a constant, else an index."""
        (statement, *_) = module_at(definition.module).definitions[definition.name]
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Constant):
            return ascii(value.value)
        return f"~{self.indices.setdefault(definition, len(self.indices))}"

    # --- nodes ---

    def visit(self, node: ast.AST) -> None:
        """Add the words of a node."""
        visitor = getattr(self, f"visit_{type(node).__name__}", self.plain)
        visitor(node)

    def plain(self, node: ast.AST) -> None:
        """Add a node's type and its fields. Newer Pythons have more fields, which are empty."""
        self.words.append(f"({type(node).__name__}")
        for name, value in ast.iter_fields(node):
            if name not in SKIPPED and value is not None and value != [] and value != 0:
                self.words.append(name)
                self.value(value)
        self.words.append(")")

    def value(self, value: Any) -> None:
        """Add the words of a field."""
        if isinstance(value, ast.AST):
            self.visit(value)
        elif isinstance(value, list):
            self.words.append("[")
            for item in value:
                self.value(item)
            self.words.append("]")
        else:
            self.words.append(ascii(value))

    def block(self, statements: Iterable[ast.stmt]) -> None:
        """Add the words of statements."""
        for statement in statements:
            if not is_empty(statement):
                self.visit(statement)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value.isidentifier():
            self.attributes.texts.add(node.value)
        self.words.append(ascii(node.value))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Pythons differ in how they cut the text between the values of an f-string."""
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += part.value
                continue
            self.words.append(f"f{text!a}")
            text = ""
            self.visit(part)
        self.words.append(f"f{text!a}")

    def visit_Name(self, node: ast.Name) -> None:
        self.name(node.id)

    def name(self, name: str) -> None:
        """Add the word of a name, which is local, of the class body, or of the module."""
        scope = self.scope_of(name)
        if scope is None:
            self.refer(find_in(self.module, name))
        elif scope.is_class:
            self.words.append(self.attributes.word(name, scope.owner))
        else:
            if name not in scope.indices:
                scope.indices[name] = self.local_count
                self.local_count += 1
            self.words.append(f"${scope.indices[name]}")

    def scope_of(self, name: str) -> Scope | None:
        """Return the innermost scope with a name. Functions do not see the names of a class around
        them.
        """
        for depth, scope in enumerate(reversed(self.scopes)):
            if name in scope.names and (depth == 0 or not scope.is_class):
                return scope
        return None

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

    def target(self, node: ast.expr) -> Target | None:
        """Return what a dotted name of the package or of another library stands for; None for other
        expressions.
        """
        if isinstance(node, ast.Name) and self.scope_of(node.id) is None:
            return find_in(self.module, node.id)
        if isinstance(node, ast.Attribute):
            base = self.target(node.value)
            if isinstance(base, Path):
                return find_in(base, node.attr)
            if isinstance(base, External):
                return External(f"{base}.{node.attr}")
        return None

    def owner(self, node: ast.expr) -> Definition | None:
        """Return the class of ``self``, of ``Class()``, or of a class itself; None where nobody
        knows.
        """
        if isinstance(node, ast.Name):
            scope = self.scope_of(node.id)
            if scope and scope.self_name == node.id:
                return scope.owner
        target = self.target(node.func if isinstance(node, ast.Call) else node)
        return target if isinstance(target, Definition) and class_of(target) else None

    def visit_Call(self, node: ast.Call) -> None:
        self.words.append("(Call")
        self.visit(node.func)
        for argument in node.args:
            self.visit(argument)
        names = self.parameter_names(node.func)
        for keyword in node.keywords:
            word = keyword.arg if keyword.arg not in names else names.index(keyword.arg)
            self.words.append(f"{word}=")
            self.visit(keyword.value)
        self.words.append(")")

    def parameter_names(self, node: ast.expr) -> list[str]:
        """Return the parameters of a function or class of the package, without self; [] if it is
        not known which.
        """
        target = self.target(node)
        if isinstance(target, Definition):
            for statement in module_at(target.module).definitions[target.name]:
                if isinstance(statement, FUNCTIONS):
                    return parameters(statement.args)
            return constructor_parameters(target)
        methods = (
            self.attributes.methods.get(node.attr, []) if isinstance(node, ast.Attribute) else []
        )
        return parameters(methods[0])[1:] if len(methods) == 1 else []

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.name(node.name)
        self.function(node, None)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.function(node, None)

    def function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, owner: Definition | None
    ) -> None:
        """Add a function. owner: its class, if it is a method."""
        self.words.append(f"({type(node).__name__}")
        decorators = getattr(node, "decorator_list", [])
        names = parameters(node.args)
        self.value([*decorators, *node.args.defaults, *node.args.kw_defaults])
        body = node.body if isinstance(node.body, list) else [node.body]
        bound = names_in_body(node)
        is_static = any(
            isinstance(each, ast.Name) and each.id == "staticmethod" for each in decorators
        )
        self_name = names[0] if owner and names and not is_static else ""
        self.scopes.append(Scope(bound.union(names), self_name, owner))
        counts = [
            len(each) for each in (node.args.posonlyargs, node.args.args, node.args.kwonlyargs)
        ]
        self.words.append(f"{counts}{bool(node.args.vararg)}{bool(node.args.kwarg)}")
        for name in names:
            self.name(name)
        for statement in body:
            if not (isinstance(statement, ast.stmt) and is_empty(statement)):
                self.visit(statement)
        self.scopes.pop()
        self.words.append(")")

    def comprehension(self, node: Any) -> None:
        """Add a comprehension: its first iterable belongs to the scope around it."""
        self.words.append(f"({type(node).__name__}")
        first = node.generators[0].iter
        self.visit(first)
        targets = (name for each in node.generators for name in ast.walk(each.target))
        self.scopes.append(Scope({each.id for each in targets if isinstance(each, ast.Name)}))
        for each in node.generators:
            self.words.append(f"for{each.is_async}")
            self.visit(each.target)
            if each.iter is not first:
                self.visit(each.iter)
            self.value(each.ifs)
        for part in ("elt", "key", "value"):
            if getattr(node, part, None) is not None:
                self.visit(getattr(node, part))
        self.scopes.pop()
        self.words.append(")")

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """A class inside a function."""
        self.name(node.name)
        self.class_body(node, Definition(self.module, node.name))

    def class_body(self, node: ast.ClassDef, definition: Definition) -> None:
        """Add a class: its bases, and the statements that decide figures."""
        self.words.append("(ClassDef")
        self.value(node.decorator_list)
        for keyword in node.keywords:
            self.words.append(f"{keyword.arg}=")
            self.visit(keyword.value)
        for base in node.bases:
            target = self.target(base)
            if isinstance(target, Definition):
                self.attributes.join(definition, target)
                self.words.append(f"#{self.index(target)}")
            else:
                self.visit(base)
        statements = [*deciding(node)]
        names = bound_names(separated(node.body))
        own = self.attributes.defined.setdefault(definition, [])
        self.scopes.append(Scope(names, owner=definition, is_class=True))
        for statement in statements:
            own += sorted(bound_names([statement]))
            if isinstance(statement, FUNCTIONS):
                if self.is_first:
                    self.attributes.methods.setdefault(statement.name, []).append(statement.args)
                self.words.append(self.attributes.word(statement.name, definition))
                self.function(statement, definition)
            else:
                self.visit(statement)
        self.scopes.pop()
        self.words.append(")")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """As if there were no annotation; without a value, it is only a field of a class."""
        if node.value is not None:
            self.visit_Assign(ast.Assign(targets=[node.target], value=node.value))
        elif self.scopes and self.scopes[-1].is_class:
            self.visit(node.target)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.words.append("(Assign")
        self.value(node.targets)
        self.visit(node.value)
        self.words.append(")")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.words.append("(except")
        if node.type:
            self.visit(node.type)
        if node.name:
            self.name(node.name)
        self.block(node.body)
        self.words.append(")")

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, target in imported(node, self.module).items():
            self.refer(target)
            self.name(name)

    visit_ImportFrom = visit_Import

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        """Says nothing that the places of the names do not say."""

    visit_Nonlocal = visit_Global

    def visit_Pass(self, node: ast.Pass) -> None:
        """Does nothing."""

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.plain(node)


def is_catalogue(definition: Definition) -> bool:
    """Whether a definition is one of a catalogue, which decides no figures."""
    return CATALOGUES.get(definition.module.stem) in ("", definition.name)


def class_of(definition: Definition) -> ast.ClassDef | None:
    """Return the class that a definition is, or None."""
    for statement in module_at(definition.module).definitions.get(definition.name, ()):
        if isinstance(statement, ast.ClassDef):
            return statement
    return None


def bases_of(definition: Definition) -> list[Definition]:
    """Return the bases of a class that the package defines."""
    node, bases = class_of(definition), []
    for base in node.bases if node else ():
        target: Target = External("")
        if isinstance(base, ast.Name):
            target = find_in(definition.module, base.id)
        elif isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
            module = find_in(definition.module, base.value.id)
            target = find_in(module, base.attr) if isinstance(module, Path) else target
        if isinstance(target, Definition):
            bases.append(target)
    return bases


def members(definition: Definition) -> dict[str, ast.stmt]:
    """Return the members of a class, with those that it inherits."""
    inherited: dict[str, ast.stmt] = {}
    for base in reversed(bases_of(definition)):
        inherited.update(members(base))
    node = class_of(definition)
    for statement in separated(node.body) if node else ():
        inherited.update(dict.fromkeys(bound_names([statement]), statement))
    return inherited


def constructor_parameters(definition: Definition) -> list[str]:
    """Return the parameters of a class, without self: those of __init__, or the fields of a
    dataclass.
    """
    constructor = members(definition).get("__init__")
    if isinstance(constructor, FUNCTIONS):
        return parameters(constructor.args)[1:]
    node = class_of(definition)
    inherited = [name for base in bases_of(definition) for name in constructor_parameters(base)]
    return [*inherited, *fields_of(node)] if node else []


def benchmark_methods(definition: Definition) -> list[str]:
    """Return the benchmarks of a class; one that is set to None is none."""
    return [
        name
        for name, statement in members(definition).items()
        if name.startswith(BENCHMARKS)
        and not (isinstance(statement, ast.Assign) and is_none(statement.value))
    ]


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def families(package: Path) -> dict[str, Definition]:
    """Return the benchmark classes of a package, as asv finds them: module.Class -> its definition."""
    found = {}
    for path in sorted(package.glob("*.py")):
        for name in module_at(path).definitions:
            definition = Definition(path, name)
            if name and not name.startswith("_") and benchmark_methods(definition):
                found[f"{path.stem}.{name}"] = definition
    return found


def words_of(definition: Definition, package: Path) -> list[str]:
    """Return the canonical form of the code that decides a family's figures."""
    start = [definition]
    if any(name.startswith("timeit_") for name in benchmark_methods(definition)):
        start.append(Definition(core(package, "timing"), "Timing"))  # decides all times
    attributes = Attributes()
    Walk(package, attributes, is_first=True).cover(*start)  # to know the attributes
    attributes.number({*DESCRIPTIVE, *DECLARED, *ASV, *texts_in(core(package, "statement"))})
    return Walk(package, attributes, is_first=False).cover(*start)


def core(package: Path, name: str) -> Path:
    """Return the path of a module of the engine."""
    return submodule(package / "core", name) or package / f"{name}.py"


def family_hash(definition: Definition, package: Path) -> str:
    """Return the hash of a family of a package."""
    text = " ".join(words_of(definition, package))
    return sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def family_hashes(package: Path) -> Mapping[str, str]:
    """Return the hash of each family of a package."""
    return {
        family: family_hash(definition, package) for family, definition in families(package).items()
    }
