#!/bin/sh
# t += array makes a new tensor: it has other memory and may have another dtype, and views of t keep the old values.
#
# Seen with torch 2.13.0 and numpy 2.4.6: Tensor.__iadd__ refuses a NumPy array, so Python falls back to the array's own
# addition, and the name is bound to its result. A float32 tensor becomes float64. t.add_(array) raises TypeError, and
# array += t raises TypeError, too: the two directions differ.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import operator

import numpy as np
import torch

t = torch.zeros(3)
view, address = t.view(3), t.data_ptr()
t += np.ones(3)
print("t:", t, " a view of the tensor before:", view)
assert t.data_ptr() != address and t.dtype == torch.float64
assert view.tolist() == [0.0, 0.0, 0.0]
for name, act in {
    "t.add_(array)": lambda: torch.zeros(3).add_(np.ones(3)),
    "array += t": lambda: operator.iadd(np.zeros(3), torch.ones(3)),
    "array * t": lambda: np.ones(3) * torch.ones(3),
}.items():
    try:
        act()
    except TypeError as error:
        print(f"{name}: TypeError: {error}")
    else:
        raise SystemExit(f"{name} works now")
print("t * array:", torch.ones(3) * np.ones(3))
PYTHON
