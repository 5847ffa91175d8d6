"""Time what costs more than its neighbour in the table of docs/libraries.md.

    python scripts/check.py libraries

Each expression runs in turns with the one to take in its place, on an array of 16 Ki numbers; the
fastest of five turns counts. Cases whose library this Python lacks are left out.

Exit status: 0 each takes longer, as the table says. 1 one does not.
"""

import timeit
import warnings
from importlib import metadata

import numpy as np
from cli import CommandLine, Parser
from packaging.requirements import Requirement
from pages.libraries import LibraryCase, library_cases
from pages.show import ratio

COUNT = 2**14  # numbers
TURNS = 5


def why_not_here(case: LibraryCase) -> str:
    """Return which release this Python lacks; "" if it has all that a case needs."""
    for need in map(Requirement, case.needs.split()):
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            return f"{need.name} is not installed: make test-libraries"
        if not need.specifier.contains(version):
            return f"needs {need}, this is {version}"
    return ""


def namespace(case: LibraryCase, count: int) -> dict[str, object]:
    """Return the names of a case's expressions, with x of so many numbers."""
    import torch  # every module of scripts/ can be imported without it

    names: dict[str, object] = {"np": np, "torch": torch, "a": np.arange(1.0, 1 + count)}
    exec(f"{case.imports}\n{case.make}", names)
    return names


def main(argv: CommandLine = None) -> int:
    Parser(__doc__).parse_args(argv)
    warnings.simplefilter("ignore")
    is_slower = []
    for case in library_cases():
        if reason := case.slow and why_not_here(case):
            print(f"{case.have}: left out, {reason}")
            continue
        names = namespace(case, COUNT) if case.slow else {}
        for pair in case.slow.items():
            timers = [timeit.Timer(expression, globals=names) for expression in pair]
            turns = [[timer.timeit(1) for timer in timers] for _ in range(TURNS)]
            seconds, faster = map(min, zip(*turns))
            is_slower.append(seconds > faster)
            print(f"{case.have}: {pair[0]} takes {ratio(seconds / faster)} as long as {pair[1]}")
    return int(not all(is_slower))
