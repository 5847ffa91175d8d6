#!/bin/sh
# zarr 3 neither stores a tensor nor takes one as an index, where h5py does both.
#
# Seen with zarr 3.1.6, h5py 3.16.0, torch 2.13.0 and numpy 2.4.6: zarr takes a tensor for an array, since it has a shape
# and a dtype, and then asks torch's dtype for what only NumPy's have. The exceptions name that ("'torch.dtype' object has no
# attribute 'name'"), not the tensor. The tensor's array works everywhere.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet zarr==3.1.6 h5py==3.16.0 torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import h5py
import numpy as np
import torch
import zarr

t, places = torch.ones(4), torch.tensor([0, 2])
stored = zarr.create_array({}, data=np.arange(4.0, dtype=np.float32))
for name, act, error in (
    ("zarr.create_array({}, data=t)", lambda: zarr.create_array({}, data=t), TypeError),
    ("z[:] = t", lambda: stored.__setitem__(slice(None), t), AttributeError),
    ("z[places]", lambda: stored[places], AttributeError),
):
    try:
        act()
    except error as caught:
        print(f"{name}: {type(caught).__name__}: {caught}")
    else:
        raise SystemExit(f"{name} works now")
stored[:] = t.numpy()
assert stored[places.numpy()].tolist() == [1.0, 1.0]
with h5py.File("memory", "w", driver="core", backing_store=False) as file:
    dataset = file.create_dataset("a", data=t)
    dataset[:] = t + 1
    print("h5py:", dataset.dtype, dataset[places])
    assert dataset[places].tolist() == [2.0, 2.0]
PYTHON
