#!/usr/bin/env python3
"""What can be measured? Writes reports/results/benchmarks.json, asv's description of benchmarks/, anew.

    python scripts/describe.py     after a change of benchmarks/; measures nothing

Every run of asv writes that file, and beside it what is known of the machine, which is no part of a change of
benchmarks/. So asv runs in a copy of the code here, and only the description is kept.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import Parser, UserError
from measuring.engine import RESULTS, ROOT, check_asv
from measuring.interleave import copy_code
from measuring.processes import last_line
from store.files import BENCHMARKS


def main(argv: Sequence[str] | None = None) -> int:
    Parser(__doc__).parse_args(argv)
    check_asv()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "code"
        copy_code(ROOT, copy)
        command = [sys.executable, "-m", "asv", "run", "--bench", "just-discover"]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"asv found no benchmarks: {last_line(done.stdout + done.stderr, 'it printed nothing')}")
        RESULTS.mkdir(parents=True, exist_ok=True)
        shutil.copy(copy / "reports" / "results" / BENCHMARKS, RESULTS)
    print((RESULTS / BENCHMARKS).relative_to(ROOT))
    return 0


if __name__ == "__main__":
    cli.run(main)
