"""The version of a measurement: a hash of the code that decides it.

The hash covers a benchmark's class and, recursively, all names that its code uses in this package. It leaves out
comments, docstrings, layout, declarations for reports, parameter values and other benchmarks of the class. So a new
size or a better title does not invalidate figures.
"""

import ast
import inspect
import io
import itertools
import re
import textwrap
import tokenize
from functools import cache
from hashlib import sha256
from pathlib import Path

from .contracts import DECLARED

HERE = Path(__file__).resolve().parent
# Catalogues do not decide figures: a cell is named by a route's expression or a setting's text, the rest is metadata.
# File -> name of the catalogue in it, "" if the whole file is one
CATALOGUES = {HERE / "routes.py": "", HERE / "contracts.py": "", HERE / "environment.py": "SETTINGS"}
# Attributes of a class that only inform reports, select cells, or set how long and how often asv runs them
SPOKEN = {*DECLARED, "params", "param_names", "contracts", "rounds", "timeout", "unit"} - {"direction"}
BENCHMARK = re.compile("timeit_|track_")
TIMING = HERE / "timing.py", "Timing"  # decides all times


def bare(source):
    """Return Python source as lines of code, each after its depth, without comments, docstrings and layout.

    Uses slices of the source, not tokens, which differ between Python versions (3.12 splits f-strings).
    """
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    lines, depth, pieces, kinds = [], 0, [], []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            depth += 1 if token.type == tokenize.INDENT else -1
        elif token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            if pieces and kinds != [tokenize.STRING]:  # a line with only a string is a docstring
                lines.append(f"{depth} {''.join(pieces)}")
            pieces, kinds = [], []
        elif token.type not in (tokenize.COMMENT, tokenize.NL):
            start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
            pieces.append(re.sub(r"\s+", "", source[start:end]))
            kinds.append(token.type)
    return "\n".join(lines)


class File:
    """Definitions and imports of a Python file, by name.

    nodes: name -> the statements that define it; imported: name -> (file of this package, name in it or "").
    """

    def __init__(self, path):
        self.lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        self.nodes, self.imported = {}, {}
        for node in ast.parse("".join(self.lines)).body:
            for name in _defined(node):
                self.nodes.setdefault(name, []).append(node)
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                for name in node.names:
                    file, inner = (node.module, name.name) if node.module else (name.name, "")
                    self.imported[name.asname or name.name] = path.with_name(f"{file}.py"), inner


result_name = cache(File)


@cache  # many benchmarks have statements in common
def _text(file, node):
    """Return the code of a statement of a file, with its decorators."""
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
    return bare(textwrap.dedent("".join(file.lines[first - 1 : node.end_lineno])))


def _defined(node):
    """Return the names that a statement of a file defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.If, ast.Try)):
        return [name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [name.id for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)]


@cache
def _used(node):
    """Return the names that a statement uses: ("array", "") is a name, ("_sources", "array") an attribute of one."""
    parts = list(ast.walk(node))
    names = {(part.id, "") for part in parts if isinstance(part, ast.Name)}
    of = (part for part in parts if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name))
    return names | {(part.value.id, part.attr) for part in of}


def _deciding(node, method):
    """Yield the statements of a class that decide the figures of its benchmark ``method``."""
    for part in node.body:
        targets = part.targets if isinstance(part, ast.Assign) else []
        about = [getattr(target, "attr", None) or getattr(target, "id", "") for target in targets]
        others = [name for name in _defined(part) if BENCHMARK.match(name) and name != method]
        if not others and not (about and set(about) <= SPOKEN):
            yield part


def owner(func):
    """Return the class of a method, or the function itself."""
    return type(func.__self__) if hasattr(func, "__self__") else func


def version_of(func):
    """Return the version of the benchmark ``func``, a function or a method."""
    own, method = owner(func), func.__name__
    path = Path(inspect.getsourcefile(own)).resolve()
    waiting = [(path, own.__name__), *([TIMING] if method.startswith("timeit_") else [])]
    code = {}
    while waiting:
        path, name = waiting.pop()
        if (path, name) in code or CATALOGUES.get(path) in ("", name) or not path.is_file():
            continue
        file = result_name(path)
        if name in file.imported:
            waiting.append(file.imported[name])
            continue
        code[path, name] = lines = []
        for node in file.nodes.get(name, ()):
            parts = [*node.bases, *_deciding(node, method)] if isinstance(node, ast.ClassDef) else [node]
            lines += [_text(file, part) for part in parts]
            for local, inner in itertools.chain.from_iterable(map(_used, parts)):
                if local in file.imported:
                    there, defined = file.imported[local]
                    waiting.append((there, defined or inner))
                elif local in file.nodes:
                    waiting.append((path, local))
    each = [(path.name, name, "\n".join(lines)) for (path, name), lines in code.items() if lines]
    return sha256("\0".join("\0".join(one) for one in sorted(each)).encode()).hexdigest()[:16]
