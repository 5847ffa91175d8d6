#!/usr/bin/env python3
"""Find slow, unsafe and legacy conversions in Python code and notebooks, with what to write.

    python scripts/scan.py src train.ipynb
    python scripts/scan.py src --format sarif > scan.sarif
    python scripts/scan.py src --select CNV304 --machine intel-emerald-rapids-2-core-vm

It reads files and runs none; docs/rules.md has the rules. A gain is from the results of this
machine or, if there are none, of the most similar machine, and it says which. A comment
"# noqa: CNV101" silences a line.

Exit status: 0 nothing found, 1 something found, 2 it cannot scan.
"""

import argparse
import ast
import itertools
import json
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from analysis import costs
from analysis.patterns import book, diagnose, may_match
from cli import RESULTS, CommandLine, Parser, UserError, one_line
from measuring.machine import conditions
from pages import rules
from store.files import PARSE_ERRORS
from toolchains import selection

FORMATS = ("text", "json", "github", "sarif")
NOTEBOOK = ".ipynb"
LEFT_OUT = re.compile(r"\..+|__pycache__|node_modules|site-packages")  # directories
OTHER_LANGUAGE = re.compile(r"\s*%%(?!time|capture|prun)")  # a cell for bash and the like
# Lines of a cell that are no Python: %matplotlib inline, !pip install, files = !ls, help?
MAGIC = re.compile(r"^([ \t]*)(?:[\w.]+\?+$|(?:[\w, ]+=\s*)?[%!?](?:.*\\\n)*.*)", re.MULTILINE)
NOQA = re.compile(r"#\s*noqa(?!\w)(?:\s*:\s*([A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*))?", re.IGNORECASE)


def arguments(argv: CommandLine) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="file or directory")
    parser.option("--format", "of the output", choices=FORMATS, default=FORMATS[0])
    codes = [rule["code"] for rule in book()["rules"]]
    about = "only this rule, repeatable (default: all that are on)"
    parser.option("--select CODE", about, choices=codes, action="append")
    about = "machine whose results to use (default: this machine, or the most similar one)"
    parser.option("--machine NAME", about, type=selection.check_machine_name)
    parser.option("--results DIR", "directory of results", default=RESULTS)
    return parser.parse_args(argv)


def files_in(name: str) -> list[Path]:
    """A file, or those of a directory to scan, in order. UserError if there are none."""
    path = Path(name)
    if not path.is_dir():
        return [path]
    files = [
        each
        for each in sorted(path.rglob("*"))
        if each.suffix in (".py", NOTEBOOK)
        and each.is_file()
        and not any(map(LEFT_OUT.fullmatch, each.relative_to(path).parts[:-1]))
    ]
    if not files:
        raise UserError(f"{name}: holds no .py and no {NOTEBOOK} file")
    return files


def read_cells(path: Path) -> list[str]:
    """The code of a file, or of each cell of a notebook, "" where that is no Python."""
    text = path.read_text("utf-8-sig", "replace")
    if path.suffix != NOTEBOOK:
        return [text]
    cells = json.loads(text)["cells"]
    codes = ("".join(cell["source"]) if cell["cell_type"] == "code" else "" for cell in cells)
    return ["" if OTHER_LANGUAGE.match(code) else code for code in codes]


def parse(text: str, is_cell: bool) -> ast.Module:
    """Parse a file, or a cell as IPython reads it: with magic, and perhaps indented."""
    try:
        return ast.parse(text)
    except SyntaxError:
        if not is_cell:
            raise
        code = MAGIC.sub(lambda line: f"{line[1]}pass" + "\n" * line[0].count("\n"), text)
        return ast.parse(textwrap.dedent(code))


def scan(path: Path, codes: frozenset[str]) -> Iterator[str | dict[str, Any]]:
    """The places in a file where rules apply, and a line for each part that does not parse."""
    lines: list[tuple[int, int, str]] = []  # cell (0 in a file), line in it, text
    tree = ast.Module([], [])
    for number, text in enumerate(read_cells(path), 1):
        cell = number if path.suffix == NOTEBOOK else 0
        try:
            part = parse(text, cell > 0)
        except SyntaxError as error:
            yield f"{path}:{f'cell {cell}:' if cell else ''}{error.lineno or 1}: {error.msg}"
            continue
        tree.body += (ast.increment_lineno(part, len(lines)) if lines else part).body
        lines += [(cell, line, code) for line, code in enumerate(text.split("\n"), 1)]
    if not may_match("\n".join(code for *_, code in lines), codes):
        return
    for node, place in diagnose(tree, codes):
        cell, line, code = lines[node.lineno - 1]
        _, end_line, last = lines[node.end_lineno - 1]
        if not is_silenced(f"{code}\n{last}", place["rule"]["code"]):
            yield place | {
                "path": one_line(f"{path}"),
                "cell": cell,
                "line": line,
                "column": column(code, node.col_offset),
                "end_line": end_line,
                "end_column": column(last, node.end_col_offset),
            }


def is_silenced(lines: str, code: str) -> bool:
    """Whether a comment silences a rule on these lines."""
    return any(not codes or code in codes.upper() for codes in NOQA.findall(lines))


def column(line: str, offset: int) -> int:
    """The column, from 1, of a place given in bytes."""
    return len(line.encode()[:offset].decode(errors="ignore")) + 1


def main(argv: CommandLine = None) -> int:
    options = arguments(argv)
    on = [rule["code"] for rule in book()["rules"] if rule.get("default", True)]
    codes = frozenset(options.select or on)
    warnings.simplefilter("ignore", SyntaxWarning)  # of invalid escapes in the code
    places: list[dict[str, Any]] = []
    for path in dict.fromkeys(itertools.chain(*map(files_in, options.paths))):
        try:
            for part in scan(path, codes):
                if isinstance(part, str):
                    print(f"not scanned: {one_line(part)}", file=sys.stderr)
                else:
                    places.append(part)
        except (*PARSE_ERRORS, OSError) as error:
            if not path.exists():
                raise
            reason = f"{path}: {type(error).__name__}: {error}"
            print(f"not scanned: {one_line(reason)}", file=sys.stderr)
    if places:
        records = costs.last_runs(options.results, options.machine)
        machine, _ = costs.closest_machine(records, conditions(), device=False)
        rules.explain(places, machine, costs.load_choices(options.results, machine))
    sys.stdout.write(rules.output(places, options.format))
    return int(bool(places))


if __name__ == "__main__":
    cli.run(main)
