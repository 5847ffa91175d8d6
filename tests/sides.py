"""Two made-up sides to compare: their times of two routes at a dozen sizes, and the verdicts on them."""

from pathlib import Path

import numpy as np
import resultfiles
from analysis import comparison
from analysis.results import load
from analysis.verdicts import Settings

SIZES = [2**k for k in range(12)]
ROUTES = ["torch.from_numpy(a)", "torch.tensor(a)"]
CONTRACTS = [resultfiles.contract(ROUTES[0], "alias"), resultfiles.contract(ROUTES[1], "copy")]
RESULT = "box/c0ffee00-toolchain-py3.11.json"
RECORD = "box/c0ffee00-toolchain-py3.11.jsonl"
NOISE = 0.3  # sd of log time; too noisy for a single cell to be significant


def cells(seed, change=None, processes=4, sd=0.005):
    """(route, nbytes) -> seconds of each process; ``change`` multiplies those of some cells."""
    rng = np.random.default_rng(seed)
    every = [(route, nbytes) for route in ROUTES for nbytes in SIZES]
    times = {cell: list(1e-6 * np.exp(rng.normal(0, sd, processes))) for cell in every}
    for cell, factor in (change or {}).items():
        times[cell] = [second * factor for second in times[cell]]
    return times


def write(root, times, record=None, slow=(), lines=None, machine="box", **how):
    """Write a results directory of one conversion benchmark; return its path as text.

    record  changed fields of the run record
    slow    (cell, round) of processes at half the machine's speed
    lines   changed fields of all measurements
    """
    benches = [resultfiles.conversion(times, CONTRACTS)]
    how.setdefault("records", [resultfiles.record(benches, machine=machine, **(record or {}))])
    slow = {((route, "float32", nbytes), number) for (route, nbytes), number in slow}
    resultfiles.write(Path(root), benches, machine, slow=slow, **how)
    if lines:
        resultfiles.mend(root, lambda line: {**line, **lines})
    return str(root)


def together(side, stage=1, rounds=4, collection="1"):
    return {"rounds": rounds, "interleaved": {"id": collection, "stage": stage, "side": side}}


def compared(base, new, **how):
    return comparison.compare(load(Path(base)), load(Path(new)), Settings(**how))


def verdicts(found):
    return {(row["route"], row["nbytes"]): row["verdict"] for row in found.cells.to_dict("records")}
