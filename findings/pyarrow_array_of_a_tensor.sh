#!/bin/sh
# pyarrow makes no array of a tensor, though the tensor is a sequence with __array__ and DLPack, and fails only at its end.
#
# Seen with pyarrow 26.0.1, torch 2.13.0 and numpy 2.4.6: pa.array(t) raises ArrowInvalid. It first makes a tensor of every
# element, so that 100,000 elements take more than a hundred times as long to fail as pa.array(t.numpy()) takes to work.
# pa.table fails in the same way. pandas 3.1.1 and polars 2.1.0 take the same tensor.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pyarrow==26.0.1 pandas==3.1.1 polars==2.1.0 torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import time

import pandas as pd
import polars as pl
import pyarrow as pa
import torch

t = torch.zeros(100_000)

def seconds_of(act):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return min(times)

def fail():
    try:
        pa.array(t)
    except pa.ArrowInvalid as error:
        return str(error)
    raise SystemExit("pyarrow makes an array of a tensor now")

print("pa.array(t): ArrowInvalid:", fail())
works, fails = seconds_of(lambda: pa.array(t.numpy())), seconds_of(fail)
print(f"fails after {fails:.3f} s; pa.array(t.numpy()) takes {works:.6f} s: {fails / works:.0f} times")
assert fails > 100 * works
try:
    pa.table({"a": t})
except pa.ArrowInvalid:
    pass
else:
    raise SystemExit("pyarrow makes a table of a tensor now")
assert len(pd.Series(t)) == len(pl.Series(t)) == 100_000
PYTHON
