#!/bin/sh
# pandas 3 copies an array into a Series, but shares a tensor's memory with it.
#
# Seen with pandas 3.1.1, torch 2.13.0 and numpy 2.4.6: since copy on write a Series owns a copy of the array it is made
# from. Of a torch tensor it owns none: a later write to the tensor changes the Series, and a copy of it that was taken
# lazily before. A DataFrame made from a tensor of two dimensions is a copy.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pandas==3.1.1 torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pandas as pd
import torch

t = torch.zeros(3)
a = t.numpy().copy()
from_array, from_tensor = pd.Series(a), pd.Series(t)
lazy = from_tensor.copy(deep=False)
frame = pd.DataFrame(t.reshape(3, 1))
a[0] = t[0] = 7.0
print("Series of the array: ", from_array.tolist())
print("Series of the tensor:", from_tensor.tolist(), " its lazy copy:", lazy.tolist())
print("DataFrame of the tensor:", frame[0].tolist())
assert from_array.tolist() == [0.0, 0.0, 0.0]
assert from_tensor.tolist() == lazy.tolist() == [7.0, 0.0, 0.0]
assert frame[0].tolist() == [0.0, 0.0, 0.0]
PYTHON
