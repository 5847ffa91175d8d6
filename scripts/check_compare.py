#!/usr/bin/env python3
"""Is compare.py fast enough? Times it, start to finish, on 3,000 simulated cells with 40 samples a side.

    python scripts/check_compare.py            wall seconds of five runs, and their CPU seconds

Exit code 1 where the median is above two seconds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import numpy as np
from cli import Parser, run

COMPARE = Path(__file__).resolve().with_name("compare.py")
ROUTES, SIZES, PROCESSES, SAMPLES = 100, 30, 4, 10
GOAL = 2.0  # seconds
NAME = "conversion.NumpyToTorch.timeit_convert"


def write(root: Path, seed: int, slower: float) -> None:
    """A results directory in which every tenth cell is ``slower`` times as slow."""
    rng = np.random.default_rng(seed)
    cells = ROUTES * SIZES
    params = [[repr(f"route{k}(a)") for k in range(ROUTES)], ["'float32'"], [str(2**k) for k in range(SIZES)]]
    contract = {"direction": "numpy→torch", "memory": "copy"}
    benchmark = {
        "name": NAME,
        "type": "time",
        "unit": "seconds",
        "version": "1",
        "param_names": ["route", "dtype", "nbytes"],
        "params": params,
        "samples_per_process": [SAMPLES] * cells,
        "contracts": {f"route{k}(a)": {**contract, "expression": f"route{k}(a)"} for k in range(ROUTES)},
    }
    noise = rng.normal(0, 0.02, (cells, PROCESSES, 1)) + rng.normal(0, 0.03, (cells, PROCESSES, SAMPLES))
    seconds = 1e-6 * np.exp(noise) * np.where(np.arange(cells) % 10, 1.0, slower)[:, None, None]
    samples = seconds.reshape(cells, -1)
    row = [np.median(samples, axis=1).tolist(), params, "1", samples.tolist()]
    file = {
        "version": 2,
        "commit_hash": "c0ffee00" * 5,
        "params": {"machine": "simulated"},
        "python": "3.11",
        "result_columns": ["result", "params", "version", "samples"],
        "results": {NAME: row},
    }
    (root / "simulated").mkdir(parents=True)
    (root / "benchmarks.json").write_text(json.dumps({NAME: benchmark, "version": 2}), encoding="utf-8")
    (root / "simulated" / "c0ffee00-toolchain-py3.11.json").write_text(json.dumps(file), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    Parser(__doc__).parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        sides = [Path(scratch) / "base", Path(scratch) / "new"]
        write(sides[0], 0, 1.0)
        write(sides[1], 1, 1.15)
        walls = []
        for _ in range(5):
            before = os.times()
            done = subprocess.run([sys.executable, COMPARE, *sides], capture_output=True, text=True)
            after = os.times()
            walls.append(after.elapsed - before.elapsed)
            used = after.children_user + after.children_system - before.children_user - before.children_system
            print(f"{walls[-1]:.2f} s wall, {used:.2f} s CPU, exit code {done.returncode}")
            if done.returncode != 1:
                print(done.stderr or "every tenth cell is slower, and compare.py did not say so", file=sys.stderr)
                return 1
        counts = next(line for line in done.stdout.splitlines() if " cells: " in line)
        print(f"median {statistics.median(walls):.2f} s; {counts}")
    return int(statistics.median(walls) > GOAL)


if __name__ == "__main__":
    run(main)
