#!/usr/bin/env python3
"""Check on this machine that the suite keeps its promises.

    python scripts/check.py timing     compare timing with torch.utils.benchmark: about 15 minutes
    python scripts/check.py noise      measure under deliberate noise: about half an hour
    python scripts/check.py advice     test the advice on random cases: five to ten minutes
    python scripts/check.py questions  test advise.py --measure on everyday questions: half an hour
    python scripts/check.py libraries  time arrays of other libraries (docs/libraries.md): a minute
    python scripts/check.py history    check the intervals of a history, from results: seconds
    python scripts/check.py power      how often compare.py --run finds a planted slowdown: hours

Each has its own --help. Exit status: 0 promises kept, 1 not kept, 2 too noisy or not possible to
check.
"""

import os
import pkgutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import CommandLine, Parser, UserError

# Name of a check -> module and function in the package checking
CHECKS = {
    "timing": "planted:timing",
    "noise": "planted:noise",
    "advice": "advice:main",
    "questions": "question:main",
    "libraries": "libraries:main",
    "history": "history:main",
    "power": "power:main",
}


def main(argv: CommandLine = None) -> int:
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    parser = Parser(__doc__)
    parser.add_argument("what", choices=CHECKS)
    parser.parse_args([name])
    if name in ("advice", "questions") and not hasattr(os, "fork"):
        raise UserError("this check forks processes, which this system cannot")
    return int(pkgutil.resolve_name(f"checking.{CHECKS[name]}")(rest))


if __name__ == "__main__":
    cli.run(main)
