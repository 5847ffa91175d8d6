#!/usr/bin/env python3
"""What can be measured? Writes reports/results/benchmarks.json, asv's description of benchmarks/, anew.

    python scripts/describe.py     after a change of benchmarks/; measures nothing

Every run of asv writes that file, and beside it what is known of the machine, which is no part of a change of
benchmarks/: only the description is kept.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import RESULTS, ROOT, Parser
from measuring.engine import Suite, check_asv
from store.files import BENCHMARKS
from toolchains import environments


def main(argv: Sequence[str] | None = None) -> int:
    Parser(__doc__).parse_args(argv)
    check_asv()
    Suite().discover(environments.machine_name(), keep=RESULTS / BENCHMARKS)
    print((RESULTS / BENCHMARKS).relative_to(ROOT))
    return 0


if __name__ == "__main__":
    cli.run(main)
