"""A hash of the code that decides a family's figures, equal under other names.

The hash covers the family's class and, recursively, all definitions of this package that its code
names. Names that this package gives become numbers: definitions, local names, parameters and
attributes. Names of torch, numpy, Python and asv stay, as do constants. Comments, docstrings,
annotations and layout are left out, and so are declarations for reports, parameter values and
catalogues. So a new size, a better title or a better name gives an equal hash, on every Python.

Where in doubt, the hash changes. It covers the timing for every class that names a timed one. A
local name that its module also gives to something else counts as that. Covered classes share the
numbers of their attributes: who renames one renames all. An attribute that equals a text keeps its
name, because ``getattr`` may look it up by that text.
"""

import ast
import re
from collections import defaultdict
from copy import deepcopy
from hashlib import sha256

from ..contracts import DECLARED

# Catalogues do not decide figures: a cell is named by a route's expression or a setting's text
CATALOGUES = ("routes.", "transfer_routes.", "outcomes.", "contracts.", "environment.SETTINGS")
# Attributes of a class or a benchmark that only inform reports, select cells, or set how long and
# how often asv runs them
DESCRIPTIVE = {*DECLARED, "params", "param_names", "contracts", "rounds", "timeout", "unit"}
DESCRIPTIVE = re.compile(rf"(@timeit_\w+\.)?@=?({'|'.join(DESCRIPTIVE - {'direction'})})")
# Attributes that asv reads, besides those that statement.py names in a text
ASV_ATTRIBUTES = "'setup' 'teardown' 'setup_cache' 'number' 'repeat' 'processes' 'timer'"
# What decides nothing in a dump, with what only some Pythons write: they differ in empty fields, in
# the context of a name, and in empty texts after a value in an f-string
SKIPPED = re.compile(
    r"(conversion=-?\d+\)), Constant\(value=''\)"
    r"|(\w+=\[\]|ctx=\w+\(\)|kind='u'|is_lazy=0|name='\w+'(?=, (bases|keywords|body)))(, )?"
)
# Beginning of the text of a class with benchmarks
FAMILY = r"'#0' '#1' Module\(body=\[ClassDef.*FunctionDef\(name='@=(timeit|track)_"
KEPT = ("timeit_", "track_", "__")  # beginnings of attributes that asv or Python reads
TIMING = "timing.Timing"  # decides all times


def bound_names(node):
    """Yield the names that a node binds, with those of scopes inside."""
    for part in ast.walk(node):
        match part:
            case (
                ast.Name(name, ast.Store())
                | ast.arg(name)
                | ast.FunctionDef(name)
                | ast.ClassDef(name)
                | ast.ExceptHandler(name=str(name))
            ):
                yield name


def defined_names(module):
    """Yield the names that a module defines, and how; "" for what else it does, such as a call."""
    for statement in module.body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                pass
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
                for target, value in zip(targets, values):
                    yield getattr(target, "id", ""), ast.Assign([target], value)
            case ast.Assign(targets):
                for name in [*bound_names(ast.Tuple(targets))] or [""]:
                    yield name, statement
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.AnnAssign(ast.Name(name)):
                yield name, statement
            case _:
                yield "", statement


class Package(ast.NodeTransformer):
    """Definitions of a package, by names such as timing.Timing, and their canonical texts.

    In a text, "#" precedes the name of a definition, "@" an attribute and what Python defines, "@="
    an attribute where a class defines it, and "$" the numbers of a local name.

    definitions  name -> its statements; "timing." -> those that define nothing, such as a call
    imports      such as timing.np -> numpy
    module       module of the definition whose text is being written
    scopes       names of each function or comprehension around
    """

    def __init__(self, root):
        self.definitions = {}
        self.imports = {}
        self.scopes = []
        for path in sorted(root.rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for name, statement in defined_names(tree):
                self.definitions.setdefault(f"{path.stem}.{name}", []).append(statement)
            for node in ast.walk(tree):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    for alias in node.names:
                        target = f"{getattr(node, 'module', None)}.{alias.name}"
                        name = f"{path.stem}.{alias.asname or alias.name}"
                        self.imports[name] = target.removeprefix("None.")
        statement_type = (root / "core/statement.py").read_text(encoding="utf-8")
        self.protocol = ASV_ATTRIBUTES + statement_type.replace('"', "'")
        self.texts = defaultdict(str, {name: self.text(name) for name in self.definitions})

    def text(self, name):
        """Return the text of a definition; of those in a catalogue only constants have one."""
        self.module = name.split(".")[0]
        statements = deepcopy(self.definitions[name])
        is_constant = isinstance(getattr(statements[0], "value", None), ast.Constant)
        if name.startswith(CATALOGUES) and not is_constant:
            return ""
        dump = ast.dump(self.visit(ast.Module(statements, [])))
        return f"'#{name}' '#{self.module}.' " + SKIPPED.sub(r"\1", dump).replace(", )", ")")

    def meaning(self, dotted):
        """Return what a dotted name stands for."""
        name = ".".join(dotted.split(".")[-2:])
        if name in self.imports:
            return self.meaning(self.imports[name])
        return f"#{name}" if name in self.definitions else dotted

    def word(self, name, is_defined=True):
        """Return what replaces a name, where it is defined or used."""
        dotted = f"{self.module}.{name}"
        meaning = self.meaning(dotted)
        if meaning != dotted:
            return meaning
        numbers = [
            f"${depth}.{names.index(name)}"
            for depth, names in enumerate(self.scopes)
            if name in names
        ]
        return numbers[-1] if numbers else ("@=" if is_defined else "@") + name

    def visit_scope(self, node):
        self.scopes.append([*bound_names(node)])
        self.generic_visit(node)
        self.scopes.pop()
        return node

    visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_scope
    visit_GeneratorExp = visit_scope

    def visit_FunctionDef(self, node):
        node.name, node.returns = self.word(node.name), None
        return self.visit_scope(node)

    def visit_Assign(self, node):
        self.generic_visit(node)
        is_descriptive = all(map(DESCRIPTIVE.fullmatch, map(ast.unparse, node.targets)))
        return None if is_descriptive else node

    def visit_arg(self, node):
        return ast.arg(self.word(node.arg))

    def visit_Name(self, node):
        return ast.Name(self.word(node.id, isinstance(node.ctx, ast.Store)))

    def visit_Attribute(self, node):
        is_defined = isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
        base = self.visit(node.value)
        if getattr(base, "id", "#")[0].isalpha():  # a module
            return ast.Name(self.meaning(f"{base.id}.{node.attr}"))
        return ast.Attribute(base, ("@=" if is_defined else "@") + node.attr)

    def visit_Call(self, node):
        """A keyword becomes a place among the names of the function, where that is known."""
        self.generic_visit(node)
        for definition in self.definitions.get(getattr(node.func, "id", "")[1:], []):
            names = [*bound_names(definition)]
            for keyword in node.keywords:
                if keyword.arg in names:
                    keyword.arg = str(names.index(keyword.arg))
        return node

    def visit_AnnAssign(self, node):
        return self.visit(ast.Assign([node.target], node.value or ast.Constant(...)))

    def visit_Expr(self, node):
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def closure(self, start):
        """Return the texts of a definition and of all that it uses, with numbers for names."""
        covered = [start]
        for name in covered:  # it grows
            used = dict.fromkeys(re.findall(r"'#([\w.]+)'", self.texts[name]))
            covered += [name for name in used if name not in covered]
        text = "".join(map(self.texts.get, covered))
        words = {f"#{name}": f"#{index}" for index, name in enumerate(covered)}
        for index, name in enumerate(dict.fromkeys(re.findall(r"@=(\w+)", text))):
            if not name.startswith(KEPT) and f"'{name}'" not in text + self.protocol:
                words[f"@{name}"] = words[f"@={name}"] = f"@{index}"
        return re.sub(r"[#@][\w.=]+", lambda match: words.get(match[0], match[0]), text)


def family_hashes(root):
    """Return the hash of each family, a benchmark class as asv finds it, by module.Class."""
    package = Package(root)
    hashes = {}
    for name in sorted(package.definitions):
        text = package.closure(name)
        if re.search(r"FunctionDef\(name='@=timeit_", text):
            text += package.closure(TIMING)
        if "._" not in name and re.match(FAMILY, text):
            hashes[name] = sha256(text.encode()).hexdigest()[:16]
    return hashes
