#!/bin/sh
# numpy.nonzero and numpy.size of a torch tensor answer another question than of an array.
#
# Seen with torch 2.13.0 and numpy 2.4.6: np.nonzero(t) hands over to Tensor.nonzero, so it returns one tensor with a row
# per element instead of a tuple with an array per dimension. As an index it then selects whole rows, without an error.
# np.size(t) returns the tensor's bound method "size" instead of a number.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch

a = np.array([[1.0, 0.0], [0.0, 3.0]])
t = torch.from_numpy(a)
of_array, of_tensor = np.nonzero(a), np.nonzero(t)
print("np.nonzero(array): ", of_array)
print("np.nonzero(tensor):", of_tensor)
assert isinstance(of_array, tuple) and isinstance(of_tensor, torch.Tensor)
print("a[...] with the first:", a[of_array].tolist(), "with the second:", a[of_tensor].tolist())
assert a[of_array].tolist() == [1.0, 3.0]
assert a[of_tensor].shape == (2, 2, 2)
print("np.size(array):", np.size(a), " np.size(tensor):", np.size(t))
assert np.size(a) == 4 and callable(np.size(t))
PYTHON
