"""Versions of benchmarks, and the hashes that guard them, in benchmarks/versions.lock.

A version is a number, raised by hand: results of another version of a family (a benchmark class)
are not compared. The lock also holds a hash of the code that decides the family's figures. ``make
lint`` runs this module and fails where the hash has changed and the lock has not. Two ways lead
on::

    python -m benchmarks.core.versions --raise FAMILY
    python -m benchmarks.core.versions --record FAMILY REASON

The first: older results are no longer compared. The second: why figures cannot have changed.

FAMILY is a name such as transfer.Casting, or a pattern: '*' stands for all families that have
changed.

The hash covers the family's class and, recursively, all definitions of this package that its code
names. Names that this package gives become numbers: definitions, local names, parameters and
attributes. Names of torch, numpy, Python and asv stay, as do constants. Comments, docstrings,
annotations and layout are left out, and so are declarations for reports, parameter values and
catalogues. So a new size, a better title or a better name gives an equal hash, on every Python.

Where in doubt, the hash changes. It covers the timing for every class that names a timed one. A
local name that its module also gives to something else counts as that. Covered classes share the
numbers of their attributes: who renames one renames all. An attribute that equals a text keeps its
name, because ``getattr`` may look it up by that text.

This module needs only the standard library, and discovery reads the lock alone.
"""

import argparse
import ast
import fnmatch
import re
import sys
from collections import defaultdict
from copy import deepcopy
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ..contracts import DECLARED

PACKAGE = Path(__file__).resolve().parent.parent
LOCK = "versions.lock"  # in the package
UNLOCKED = "0"  # version of a family that the lock does not have
HEADER = "# family version hash reason: see benchmarks/core/versions.py\n"
COMMAND = "python -m benchmarks.core.versions"
WAYS = f"""\
  {COMMAND} --raise FAMILY            older results are no longer compared
  {COMMAND} --record FAMILY REASON    figures cannot have changed, because of REASON
FAMILY may be a pattern: '*' is all of these."""
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


class Entry(NamedTuple):
    """A family in the lock. reason: why the last recorded hash leaves the version; or ""."""

    version: str = UNLOCKED
    hash: str = ""
    reason: str = ""


def read(path):
    """Read a lock: family -> its entry. ValueError, with the line, if a line is not readable."""
    entries = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        family, *words = line.split(maxsplit=3) or "#"
        if family.startswith("#"):
            continue
        if len(words) < 2 or not words[0].isdecimal():
            raise ValueError(f"{path}: {line!r} is not: family version hash reason")
        entries[family] = Entry(*words)
    return entries


def write(path, entries):
    """Write a lock, a line per family in alphabetic order."""
    lines = (" ".join([family, *entry]).rstrip() for family, entry in sorted(entries.items()))
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines), encoding="utf-8")


@cache
def locked():
    """Return this package's lock."""
    return read(PACKAGE / LOCK)


def version_of(benchmark):
    """Return the version of a benchmark, such as cold.NumpyToTorch.timeit_convert."""
    return locked().get(benchmark.rpartition(".")[0], Entry()).version


def package_hash(package=PACKAGE):
    """Return a hash of all files of a package. A run that goes on sees by it that benchmarks/ was
    edited.
    """
    files = sorted([*package.rglob("*.py"), *package.glob(LOCK)])
    contents = (f"{path.relative_to(package)}\0".encode() + path.read_bytes() for path in files)
    return sha256(b"".join(contents)).hexdigest()[:16]


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


def differences(entries, hashes):
    """Return the families whose entry is not up to date, each with what is wrong."""
    faults = {}
    for family in sorted({*entries, *hashes}):
        if family not in entries:
            faults[family] = "is not in the lock (either command adds it, with version 1)"
        elif family not in hashes:
            faults[family] = (
                "is in the lock, and there is no such family (either command removes it)"
            )
        elif entries[family].hash != hashes[family]:
            faults[family] = "code that decides its figures has changed, and its entry has not"
    return faults


def update(entries, hashes, families, reason):
    """Bring families up to date. Without a reason, or if they are new, the version is raised."""
    for family in families:
        version = entries.pop(family, Entry()).version
        if family in hashes:
            is_raised = version == UNLOCKED or not reason
            entries[family] = Entry(str(int(version) + is_raised), hashes[family], reason)


def main(arguments=None, package=PACKAGE):
    """Check the lock, or update it. Return 1 if it is not up to date."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Check versions.lock, or update it.")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--raise", dest="pattern", metavar="FAMILY", help="raise its version")
    ways.add_argument(
        "--record", nargs=2, metavar=("FAMILY", "REASON"), help="record its hash, with a reason"
    )
    options = parser.parse_args(arguments)
    pattern, reason = options.record or (options.pattern, "")
    if options.record and not reason.strip():
        parser.error("--record needs a reason: why can figures not have changed?")
    entries, hashes = read(package / LOCK), family_hashes(package)
    faults = differences(entries, hashes)
    if pattern:
        families = fnmatch.filter(faults, pattern)
        update(entries, hashes, families, " ".join(reason.split()))
        write(package / LOCK, entries)
        print(f"benchmarks/{LOCK}: {', '.join(families) or 'nothing to change'}")
    elif faults:
        for family, fault in faults.items():
            print(f"benchmarks/{LOCK}: {family}: {fault}", file=sys.stderr)
        print(WAYS, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
