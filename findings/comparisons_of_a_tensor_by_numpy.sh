#!/bin/sh
# A NumPy comparison of a torch tensor gives a uint8 tensor, which ~ does not negate.
#
# Seen with torch 2.13.0 and numpy 2.4.6: np.isnan(t), np.isfinite(t) and np.greater(t, 0) return tensors of dtype uint8,
# because Tensor.__array_wrap__ turns booleans into uint8. So ~np.isnan(t) holds 254 and 255, all of them true.
# torch.isnan(t) and np.isnan(t.numpy()) return booleans.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch

t = torch.tensor([1.0, float("nan"), 3.0])
for name, mask in {
    "np.isnan(t)": np.isnan(t),
    "np.isfinite(t)": np.isfinite(t),
    "np.greater(t, 0)": np.greater(t, 0),
}.items():
    print(f"{name:18s}", mask.dtype, mask.tolist())
    assert mask.dtype == torch.uint8
print("~np.isnan(t)      ", (~np.isnan(t)).tolist())
assert (~np.isnan(t)).tolist() == [255, 254, 255]
assert (~np.isnan(t)).bool().all()
assert (~torch.isnan(t)).tolist() == [True, False, True]
assert (~np.isnan(t.numpy())).tolist() == [True, False, True]
PYTHON
