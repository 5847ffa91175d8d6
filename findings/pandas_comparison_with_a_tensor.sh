#!/bin/sh
# A pandas Series compared with an equal tensor is unequal everywhere.
#
# Seen with pandas 3.1.1, torch 2.13.0 and numpy 2.4.6: no exception and no warning. The comparison with the tensor's
# array, or with its list, is right.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pandas==3.1.1 torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pandas as pd
import torch

t = torch.tensor([0.0, 1.0, 2.0])
s = pd.Series([0.0, 1.0, 2.0])
print("s == t:        ", (s == t).tolist())
print("s == t.numpy():", (s == t.numpy()).tolist())
assert (s == t).tolist() == [False, False, False]
assert (s == t.numpy()).all() and (s == t.tolist()).all()
PYTHON
