#!/usr/bin/env python3
"""Does the suite keep what it promises, on this machine?

    python scripts/check.py timing     is it honest? against torch.utils.benchmark, about 8 minutes
    python scripts/check.py noise      what does noise do to its figures? about half an hour
    python scripts/check.py advice     is what advise.py says right? about ten minutes
    python scripts/check.py history    how well is a history known? from results, seconds

Each has options, see --help behind its name. Exit code: 0 as promised, 1 not, 2 too noisy, or could not be checked.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import Parser, UserError

CHECKS = ("timing", "noise", "advice", "history")


def main(argv: Sequence[str] | None = None) -> int:
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name not in CHECKS:
        parser = Parser(__doc__)
        parser.add_argument("what", choices=CHECKS)
        parser.parse_args([name])
    if name in ("timing", "advice") and not hasattr(os, "fork"):
        raise UserError("this check forks processes, which this system cannot")
    return importlib.import_module(f"checking.{name}").main(rest)


if __name__ == "__main__":
    cli.run(main)
