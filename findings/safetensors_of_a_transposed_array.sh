#!/bin/sh
# safetensors.numpy saves a transposed array with its numbers in another order, without an error.
#
# Seen with safetensors 0.8.0 and numpy 2.4.6: the file has the right shape, and the numbers in the order of the memory.
# safetensors.torch raises ValueError for such a tensor. An array made by np.ascontiguousarray is saved right.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet safetensors==0.8.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from safetensors.numpy import load, save

a = np.arange(6.0).reshape(2, 3).T
back = load(save({"a": a}))["a"]
print("saved: ", a.tolist())
print("loaded:", back.tolist())
assert back.shape == a.shape and not np.array_equal(back, a)
assert sorted(back.ravel()) == sorted(a.ravel())
assert np.array_equal(load(save({"a": np.ascontiguousarray(a)}))["a"], a)
PYTHON
