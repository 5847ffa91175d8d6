#!/usr/bin/env python3
"""Is the suite honest on this machine? Compare it with torch.utils.benchmark, and tell bias from noise.

    python scripts/check_timing.py                 every conversion route at five sizes: about 8 minutes
    python scripts/check_timing.py --only from_numpy --sizes 8,4096

Each cell is measured in processes of its own: four unless told otherwise, two where a call takes 0.3 s. A process makes
the source and times the same expression on it in three ways:

    suite/torch  as asv would: the benchmark's whole run() in a fresh process, with its own warm-up, probes and retakes
    block/torch  in short blocks that alternate with torch's: one sample as the suite takes it
    torch/torch  the same blocks timed by two torch.utils.benchmark.Timers: torch against itself, the A/A

A block of torch's is what Timer(expression, num_threads=1) reads of as many calls as the suite makes for a sample. The
first ratio sees whatever the suite does; the second, free of drift, says whether its loop and clock are at fault.

All of it stands between probes, and only what was quiet by all probes of the check counts. Like is compared with like:
each reading is the 10 % quantile, which is the suite's figure (blocked_autorange shows the median of its blocks). A
deviation is the mean over processes of the log ratio within a process. What noise may make of it is learnt from the
spread over processes and from torch against itself, in this cell and in all of its size.

Exit code 1 is bias: a cell deviates by more than 5 % beyond its noise, or the median cell, of all or of one size, by
more than 2 % beyond its error. Exit code 2 is too noisy to tell: noise could hide 5 % in more than half of the cells
(they are marked ?), or 2 % in the median cell. Otherwise 0.

One more process times each cell as asv's own time_ method with a setup does, for comparison: stock/torch.
"""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from checking import timing
from cli import ONLY, Parser, UserError, check_writable, matcher, put

from benchmarks.probes import PATIENCE_VARIABLE

PATIENCE = 120.0  # seconds that all processes wait for quiet together: a busy machine adds as much


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--only", metavar="REGEX", default="", help=ONLY)
    parser.add_argument("--sizes", default=",".join(map(str, timing.SIZES)), help="bytes, separated by commas")
    parser.add_argument("--processes", type=int, default=4, help="processes a cell (default 4)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write figures, samples and probes there, too")
    chosen = parser.parse_args(argv)
    chosen.sizes = timing.sizes_of(chosen.sizes)
    matcher(chosen.only)
    if chosen.processes < 2:
        raise UserError("--processes takes a whole number from 2: noise is what processes differ by")
    if chosen.json:
        check_writable("--json", chosen.json)
    return chosen


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    if not hasattr(os, "fork"):
        raise UserError("this check forks processes, which this system cannot")
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    cells = timing.find_cells(chosen.only, chosen.sizes)
    importlib.import_module("torch.utils.benchmark")  # once, and not in each process: a quarter of a second
    os.environ.setdefault(PATIENCE_VARIABLE, str(PATIENCE))
    timing.measure_all(cells, chosen.processes)
    measured = [cell for cell in cells if not cell.skipped]
    if not measured:
        raise UserError("this toolchain skips every one of these cells")
    from checking import bias  # numpy: not before its threads are set, and no part of what is measured

    verdict = bias.judge(measured)
    print("\n".join(bias.table(verdict.rows)))
    for cell in cells:
        if cell.skipped:
            print(f"{cell.route:44} {cell.nbytes:8} n/a on this toolchain")
    print("\n" + "\n".join(bias.summary(verdict)))
    if chosen.json:
        lines = [line for cell in measured for process in cell.processes for line in process]
        rows = json.loads(json.dumps(verdict.rows), parse_constant=lambda name: None)  # JSON has no NaN
        text = json.dumps({**asdict(verdict), "rows": rows, "samples": lines})
        put(chosen.json, text + "\n")
    return verdict.code


if __name__ == "__main__":
    cli.run(main)
