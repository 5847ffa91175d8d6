#!/bin/sh
# torch.tensor of a float64 column keeps float64 or rounds to float32, depending on the library that the column is of.
#
# Seen with torch 2.13.0, numpy 2.4.6, pandas 3.1.1, polars 2.1.0 and pyarrow 26.0.1: torch takes a pandas or polars column
# element by element. Elements of a plain pandas column are NumPy's numbers, so the result is float64. Those of a polars
# column, and of a pandas column backed by Arrow, are Python's, so the result is float32, without a warning. A pyarrow array
# is not taken by element, and stays float64. torch.tensor(column.to_numpy()) keeps the dtype of them all.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6 pandas==3.1.1 polars==2.1.0 pyarrow==26.0.1
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pandas as pd
import polars as pl
import pyarrow as pa
import torch

numbers = [1 / 3, 1.0]
KEPT, ROUNDED = torch.float64, torch.float32
for name, column, wanted in (
    ("pandas", pd.Series(numbers), KEPT),
    ("pandas, Float64", pd.Series(numbers, dtype="Float64"), KEPT),
    ("pandas, backed by Arrow", pd.Series(numbers, dtype="double[pyarrow]"), ROUNDED),
    ("polars", pl.Series(numbers), ROUNDED),
    ("pyarrow", pa.array(numbers), KEPT),
):
    found = torch.tensor(column).dtype
    print(f"{name:24s} torch.tensor: {found}  of to_numpy(): {torch.tensor(column.to_numpy()).dtype}")
    assert found == torch.as_tensor(column).dtype == wanted
    assert torch.tensor(column.to_numpy()).dtype == KEPT
PYTHON
