"""Conversions in Python code that are slow, unsafe or legacy: the rules of rules.yaml, matched
against syntax trees. Nothing is imported or run.

A pattern is compared with the text that ``ast.unparse`` makes of a node, after the names of NumPy
and torch in the file have become their full names. The kind of an expression is read off the
function that it calls, or off the assignments to its name in the same function; it is "" where they
leave it open.
"""

import ast
import functools
import itertools
import re
from ast import AST, Name, unparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).with_name("rules.yaml")
# Kind of a list -> that of its elements, and the other way round
SINGLE = {"arrays": "array", "tensors": "tensor"}
ARRAYS = ("array", "fresh", "mapped", "locked")
SEVERAL = {**dict.fromkeys(ARRAYS, "arrays"), "tensor": "tensors"}
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
STARTS = (ast.Call, ast.ListComp, ast.Assign, ast.AugAssign)  # nodes that patterns begin with
NAME = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*(?![\w=])")  # at the beginning of a dotted name
MAX_SHOWN = 80  # characters of an expression in an advice
MAX_APART = 2000  # nodes between the steps of a pattern: some 200 lines
MAX_DEPTH = 8  # assignments that are followed to find a kind
Names = dict[str, str]  # name in a pattern -> code


@functools.cache
def book() -> Any:
    """The content of rules.yaml."""
    return yaml.safe_load(RULES.read_text("utf-8"))


@functools.cache
def kinds() -> Names:
    """Function, type or .method -> kind."""
    return {name: kind for kind, names in book()["kinds"].items() for name in names}


@functools.cache
def expression(step: str) -> re.Pattern[str]:
    """The regular expression of a step: a name in it is a group."""
    text = re.escape(step.replace("np.", "numpy."))
    places = book()["places"]
    for name in {*NAME.findall(text)}.intersection(places):
        group = f"(?P<{name}>{places[name] if isinstance(places[name], str) else '.+'})"
        text = re.sub(rf"(?<![\w.]){name}(?![\w=])", rf"(?P={name})", text)
        text = text.replace(f"(?P={name})", group, 1)
    text = text.replace("in_place_", r"[a-z]\w*[^_]_").replace(re.escape("..."), ".*")
    return re.compile(text, re.DOTALL)


@functools.cache
def patterns(codes: frozenset[str]) -> Mapping[tuple[type, str], list[Any]]:
    """Type of node and name of the call in its first step -> patterns, with their rules."""
    by_start = defaultdict(list)
    for rule in book()["rules"]:
        for pattern in rule["patterns"] if rule["code"] in codes else ():
            by_start[start(pattern["found"][0])].append((rule, pattern))
    return by_start


@functools.cache
def start(step: str) -> tuple[type, str]:
    """Type of a step's node, and what it calls."""
    (statement,) = ast.parse(step).body
    node = statement.value if isinstance(statement, ast.Expr) else statement
    return type(node), called(node)


@functools.cache
def calls(codes: frozenset[str]) -> list[set[str]]:
    """The functions that each pattern calls, and its loop."""
    pairs = itertools.chain(*patterns(codes).values())
    texts = [(rule.get("loop", ""), " ".join(pattern["found"])) for rule, pattern in pairs]
    return [{loop, *re.findall(r"(\w+)\(", found)} - {"in_place_", ""} for loop, found in texts]


def may_match(text: str, codes: frozenset[str]) -> bool:
    """Whether a file calls all functions of a pattern; a file that does not has no place."""
    names = {*re.findall(r"(\w+) ?\(", text)}
    return "torch" in text and any(pattern <= names for pattern in calls(codes))


def called(node: AST) -> str:
    """The last name of what a node, or the value that it assigns, calls."""
    func = getattr(getattr(node, "value", node), "func", getattr(node, "func", None))
    return str(getattr(func, "attr", getattr(func, "id", "")))


def begin(node: AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def end(node: Any) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset


def shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else "…"


class Code:
    """A file: its nodes in source order, with their function, and with the loop at each of whose
    steps they run; what loops call."""

    def __init__(self, tree: AST) -> None:
        self.nodes: list[tuple[Any, AST, AST | None]] = []
        self.modules: Names = {}
        self.calls: dict[AST | None, set[str]] = defaultdict(set)
        self.given: dict[AST, dict[str, list[AST | None]]] = {}
        stack: list[tuple[Any, AST, AST | None, bool]] = [(tree, tree, None, False)]
        while stack:
            node, scope, loop, is_rare = stack.pop()
            self.nodes.append((node, scope, None if is_rare else loop))
            if isinstance(node, SCOPES):
                scope, loop = node, None
            elif isinstance(node, ast.For | ast.While):
                loop, is_rare = node, False
            elif isinstance(node, ast.If | ast.IfExp):
                is_rare = True
            elif isinstance(node, ast.Call):
                self.calls[loop].add(called(node))
                node.keywords.sort(key=lambda each: each.arg or "")  # as in patterns
            elif isinstance(node, ast.Import | ast.ImportFrom):
                module = f"{getattr(node, 'module', '')}.".lstrip(".")
                names = {each.asname or each.name: module + each.name for each in node.names}
                self.modules |= names
            children = [*ast.iter_child_nodes(node)][::-1]
            stack += [
                (child, scope, loop, is_rare)
                for child in children
                if not isinstance(child, ast.expr_context)
            ]

    def text(self, node: AST) -> str:
        """The code of a node, with full names of modules."""
        return NAME.sub(lambda name: self.modules.get(name[0], name[0]), unparse(node))

    def fill(self, step: str, names: Names) -> str:
        """A step or an advice with the user's names."""
        short = {name: shorten(text) for name, text in names.items()}
        text = NAME.sub(lambda name: short.get(name[0], name[0]), step.replace("np.", "numpy."))
        modules = {module: name for name, module in {"np": "numpy", **self.modules}.items()}
        for module in sorted(modules, key=len, reverse=True):
            text = re.sub(rf"(?<![\w.]){re.escape(module)}\b", modules[module], text)
        return text

    def values(self, scope: AST) -> dict[str, list[AST | None]]:
        """Name -> what a function gives to it; None where the code leaves it open."""
        if scope in self.given:
            return self.given[scope]
        values = self.given[scope] = defaultdict(list)
        for node in ast.walk(scope):
            match node:
                case (
                    ast.Assign([Name(name)], value)
                    | ast.AnnAssign(Name(name), value)
                    | ast.arg(name, value)
                ):
                    values[name].append(value)
                case ast.For(Name(name), value) | ast.comprehension(Name(name), value):
                    values[name].append(ast.Subscript(value, ast.Constant(0)))
                case ast.Call(ast.Attribute(Name(name), "append"), [value]):
                    values[name].append(ast.List([value]))
                case ast.NamedExpr(Name(name)) | ast.withitem(_, Name(name)):
                    values[name].append(None)
                case ast.Tuple(parts, ast.Store()):
                    for part in parts:
                        values[unparse(part)].append(None)
        return values

    def kind(self, node: AST | None, scope: AST, depth: int = 0) -> str:
        """The kind of an expression; "" if the code leaves it open."""
        if depth > MAX_DEPTH:
            return ""
        of = functools.partial(self.kind, scope=scope, depth=depth + 1)
        match node:
            case Name("self"):
                return "object"
            case Name(name):
                options = {*map(of, self.values(scope)[name])} - {"empty"}
                # an array with a name is not fresh
                return options.pop().replace("fresh", "array") if len(options) == 1 else ""
            case ast.Call(func) | (ast.Attribute() as func):
                name, text = self.text(func), unparse(node)
                kind = kinds().get(name) or kinds().get("." + name.rpartition(".")[2], "")
                if kind == "map":
                    return "mapped" if re.search("'r'[,)]", text) else "array"
                if kind == "fresh" and "copy=" in text:
                    return "array"
                source = of(getattr(func, "value", None)) if kind in ("same", "copied") else kind
                return "array" if kind == "copied" and source in ARRAYS else source
            case ast.Subscript(value, index):
                kind = of(value)
                # an element of an array may be a number
                is_part = kind == "tensor" or any(
                    isinstance(each, ast.Slice) for each in ast.walk(index)
                )
                return SINGLE.get(kind, kind.replace("fresh", "array") if is_part else "")
            case ast.BinOp(left, _, right):
                options = {of(left), of(right)} - {""}
                return options.pop() if len(options) == 1 else ""
            case ast.ListComp(element) | ast.List([element, *_]):
                return SEVERAL.get(of(element), "list")
            case ast.List():
                return "empty"
        return ""

    def match(
        self, step: str, node: AST, scope: AST, is_strict: bool
    ) -> tuple[Names, Names] | None:
        """What the names of a step stand for, and the conditions: code -> the kind that it must
        have, where the function leaves it open. None if the step does not match."""
        match = expression(step).fullmatch(self.text(node))
        conditions = {}
        for name, text in match.groupdict().items() if match else ():
            try:
                part = ast.parse(f"_[{text}]", mode="eval").body.slice  # type: ignore[attr-defined]
            except SyntaxError:
                return None
            wanted, kind = book()["places"][name], self.kind(part, scope)
            is_several = isinstance(part, ast.Tuple) and name != "index"  # arguments
            is_open = isinstance(wanted, list) and kind not in wanted
            if is_several or (is_open and (kind or is_strict)):
                return None
            if is_open:
                conditions[shorten(text)] = wanted[0]
        return (match.groupdict(), conditions) if match else None

    def follow(self, steps: list[str], names: Names, waits: list[str], first: int) -> Any:
        """The last of the steps that follow a node, by its number, in its function; None if there
        is a call of ``waits`` before, or a name gets another value."""
        last, function, _ = self.nodes[first]
        for node, scope, _ in self.nodes[first + 1 : first + MAX_APART]:
            if not steps:
                break
            if scope is not function or begin(node) < end(last):
                continue
            is_store = isinstance(getattr(node, "ctx", None), ast.Store)
            if called(node) in waits or (is_store and unparse(node) in names.values()):
                return None
            is_alike = isinstance(node, start(steps[0])[0])
            match = is_alike and self.match(steps[0], node, scope, True)
            if match and all(names.get(name, text) == text for name, text in match[0].items()):
                steps, last = steps[1:], node
        return None if steps else last

    def place(self, rule: Any, pattern: Any, number: int) -> tuple[Any, Any] | None:
        """See ``diagnose``, for the node of this number; None if the pattern does not match."""
        first, *steps = pattern["found"]
        node, scope, _ = self.nodes[number]
        match = self.match(first, node, scope, pattern.get("known", False))
        last = match and self.follow(steps, match[0], rule.get("waits", []), number)
        if not match or not last:
            return None
        names, conditions = match
        texts = [self.fill(step, names) for step in [first, *steps[:-1]]]
        return last, {
            "rule": rule,
            "pattern": pattern,
            "found": [*texts, shorten(unparse(last))] if steps else texts,
            "write": self.fill(pattern["write"], names),
            "conditions": conditions,
        }


def diagnose(tree: AST, codes: frozenset[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The places where rules with these codes apply, in source order: a node, with its rule and
    pattern, the steps that were found, what to write, and the conditions (see ``match``)."""
    code = Code(tree)
    ends: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))  # of a rule's last place
    for number, (node, _, loop) in enumerate(code.nodes):
        if not isinstance(node, STARTS):
            continue
        for rule, pattern in patterns(codes).get((type(node), called(node)), ()):
            is_looped = "loop" not in rule or (loop and rule["loop"] in code.calls[loop])
            if begin(node) < ends[rule["code"]] or not is_looped:
                continue
            if place := code.place(rule, pattern, number):
                ends[rule["code"]] = end(node)
                yield place
