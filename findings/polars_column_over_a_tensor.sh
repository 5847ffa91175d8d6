#!/bin/sh
# A polars column made of a tensor shares its memory, so that a later write makes what polars has noted of the column wrong.
#
# Seen with polars 2.1.0, pyarrow 26.0.1, torch 2.13.0 and numpy 2.4.6: pl.Series(t) and pa.array(t.numpy()) copy nothing,
# though both are immutable. After a write to the tensor both show it, and a column that was noted as sorted still returns
# its last number as its maximum. polars.Series(t.clone()) is safe, while clone() of the column shares the memory, too.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet polars==2.1.0 pyarrow==26.0.1 torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import polars as pl
import pyarrow as pa
import torch

t = torch.tensor([1.0, 2.0, 3.0])
column, arrow = pl.Series(t).set_sorted(), pa.array(t.numpy())
copied = column.clone()
t[0] = 9.0
print("polars:", column.to_list(), " its clone:", copied.to_list(), " pyarrow:", arrow.to_pylist())
print("maximum:", column.max(), " of a new column:", pl.Series(t).max())
assert column.to_list() == copied.to_list() == arrow.to_pylist() == [9.0, 2.0, 3.0]
assert column.max() == 3.0 and pl.Series(t).max() == 9.0
PYTHON
