#!/bin/sh
# pandas finds almost no number of a Series in a tensor that holds them all, and others in the next run.
#
# Seen with pandas 3.1.1, polars 2.1.0, torch 2.13.0 and numpy 2.4.6: Series.isin(tensor) raises nothing. pandas makes a list
# of the tensor, whose elements are tensors, and looks them up by hash. The hash of a tensor is its address, so a number is
# found by chance. The tensor's array is right, and so is polars with the tensor. Index and DataFrame do the same as Series.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pandas==3.1.1 polars==2.1.0 torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pandas as pd
import polars as pl
import torch

numbers = [*range(1000)]
t = torch.tensor(numbers)
for name, found, by_array in (
    ("Series", pd.Series(numbers).isin(t), pd.Series(numbers).isin(t.numpy())),
    ("Index", pd.Index(numbers).isin(t), pd.Index(numbers).isin(t.numpy())),
):
    print(f"{name:6s} isin(tensor): {sum(found)} of 1000  isin(array): {sum(by_array)}")
    assert sum(found) < 100 and sum(by_array) == 1000
found = pl.Series(numbers).is_in(t)
print(f"polars is_in(tensor): {found.sum()}")
assert found.all()
PYTHON
