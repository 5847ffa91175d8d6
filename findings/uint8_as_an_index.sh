#!/bin/sh
# An index of dtype uint8 is a mask to torch and a list of places to NumPy, whichever library made it.
#
# Seen with torch 2.13.0 and numpy 2.4.6: tensor[uint8 array] selects by mask (with a warning that this is deprecated),
# array[uint8 tensor] takes places, and so does tensor[uint16 array]. A boolean tensor without dimensions is taken for the
# number 1 by an array: array[torch.tensor(True)] is its second element, array[True] adds a dimension.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch

a = np.array([10, 20, 30])
t = torch.from_numpy(a)
index = np.array([1, 0, 1], dtype=np.uint8)
by_mask, by_place = t[index], a[torch.from_numpy(index)]
print("tensor[uint8 array]: ", by_mask.tolist())
print("array[uint8 tensor]: ", by_place.tolist())
print("tensor[uint16 array]:", t[index.astype(np.uint16)].tolist())
assert by_mask.tolist() == [10, 30]
assert by_place.tolist() == t[index.astype(np.uint16)].tolist() == [20, 10, 20]
print("array[torch.tensor(True)]:", a[torch.tensor(True)], " array[True]:", a[True].tolist())
assert a[torch.tensor(True)] == 20 and a[True].shape == (1, 3)
PYTHON
