#!/bin/sh
# np.save and h5py store a bfloat16 array of ml_dtypes without an error, and what is read has the dtype void.
#
# Seen with ml_dtypes 0.6.0, numpy 2.4.6 and h5py 3.16.0: both write two opaque bytes per number (|V2). np.load and the
# dataset give them back as void, with which no arithmetic works; array.view(ml_dtypes.bfloat16) restores the numbers.
# zarr 3.1.6 refuses the same array by an exception.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet ml_dtypes==0.6.0 numpy==2.4.6 h5py==3.16.0 zarr==3.1.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import io

import h5py
import ml_dtypes
import numpy as np
import zarr

a = np.array([1.0, 2.5, -3.0], dtype=ml_dtypes.bfloat16)
file = io.BytesIO()
np.save(file, a)
file.seek(0)
loaded = np.load(file)
with h5py.File(io.BytesIO(), "w") as store:
    read = store.create_dataset("a", data=a)[:]
for name, back in {"np.load": loaded, "h5py": read}.items():
    print(name, back.dtype, "viewed:", back.view(ml_dtypes.bfloat16).tolist())
    assert back.dtype == np.dtype("V2")
    assert back.view(ml_dtypes.bfloat16).tolist() == [1.0, 2.5, -3.0]
try:
    zarr.create_array({}, data=a)
except ValueError as error:
    print("zarr: ValueError:", error)
else:
    raise SystemExit("zarr stores bfloat16 now")
PYTHON
