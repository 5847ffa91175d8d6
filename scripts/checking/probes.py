"""Which constant work is a good speed probe here: `PYTHONPATH=.:scripts python scripts/checking/probes.py [ROUNDS]`.

Each candidate stands between samples of each call in turn, as a probe does. For each pair it prints the median probe,
the share of the samples between two probes within a tenth of their baseline, and how much a figure (the 10 % quantile
of 20 such samples) varies.
"""

import itertools
import math
import os
import sys
import time
import timeit
import zlib

import numpy as np
import pandas as pd
import torch
from store.quiet import baseline

SECONDS = 0.8  # of one call with one candidate, a round
WANTED = 20  # samples of a figure

PROBES = {
    "str.count, the probe until now": ("count('ba')", 8, {"count": ("ab" * 2000).count}),
    "pow with a modulus": ("pow(b, e, m)", 1, {"b": 3**200, "e": 2**60 - 1, "m": 10**60 + 7}),
    "zlib.crc32 of 16 KiB": ("crc32(b)", 8, {"crc32": zlib.crc32, "b": os.urandom(2**14)}),
    "str(7**600)": ("str(x)", 10, {"x": 7**600}),
}
SMALL, LARGE, HUGE = (np.zeros(count, "float32") for count in (2**10, 2**18, 2**22))
CALLS = {
    "t.numpy()": ("t.numpy()", 400, {"t": torch.from_numpy(SMALL)}),
    "torch.from_numpy(a)": ("f(a)", 500, {"f": torch.from_numpy, "a": SMALL}),
    "torch.tensor(a), 4 KiB": ("f(a)", 100, {"f": torch.tensor, "a": SMALL}),
    "torch.from_numpy(a.copy()), 4 KiB": ("f(a.copy())", 300, {"f": torch.from_numpy, "a": SMALL}),
    "np.copyto(b, a), 1 MiB": ("f(b, a)", 12, {"f": np.copyto, "a": LARGE, "b": LARGE.copy()}),
    "np.copyto(b, a), 16 MiB": ("f(b, a)", 1, {"f": np.copyto, "a": HUGE, "b": HUGE.copy()}),
}


def seconds(statement, number, names):
    timer = timeit.Timer(statement, globals=names)
    return lambda: timer.timeit(number)


def main(rounds):
    torch.set_num_threads(1)
    taken = {}
    for _, (call, timed), (candidate, work) in itertools.product(range(rounds), CALLS.items(), PROBES.items()):
        probe, sample = seconds(*work), seconds(*timed)
        probe(), sample()
        probes, samples, until = [probe()], [], time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            samples.append(sample())
            probes.append(probe())
        taken.setdefault((candidate, call), []).append((np.array(probes), np.array(samples)))
    rows = []
    for (candidate, call), blocks in taken.items():
        held = baseline(np.concatenate([probes for probes, _ in blocks]))
        figures, kept, every = [], 0, 0
        for probes, samples in blocks:
            near = np.abs(np.log(probes / held)) <= math.log(1.1)
            quiet = samples[near[:-1] & near[1:]]
            kept, every = kept + len(quiet), every + len(samples)
            figures += [np.quantile(one, 0.1) for one in np.split(quiet, range(WANTED, len(quiet), WANTED))[:-1]]
        spread = np.log(figures).std() if len(figures) > 2 else math.nan
        rows.append((candidate, call, held * 1e6, kept / every, spread))
    table = pd.DataFrame(rows, columns=["probe", "call", "baseline µs", "quiet", "figures vary by"])
    print(table.to_string(index=False, formatters={"quiet": "{:.0%}".format, "figures vary by": "{:.2%}".format}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
