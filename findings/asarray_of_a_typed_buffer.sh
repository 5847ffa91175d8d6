#!/bin/sh
# torch.asarray of a typed buffer reads its bytes as float32, whatever the buffer says it holds.
#
# Seen with torch 2.13.0 and numpy 2.4.6: array.array("d", [1.0, 2.0]) and memoryview(float64 array) become twice as many
# float32 numbers, without an error: torch takes its default dtype, not the buffer's format. dtype=torch.float64 mends it.
# torch.tensor and torch.as_tensor of the same objects give the right numbers. numpy.asarray takes the format, too.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import array

import numpy as np
import torch

numbers = [1.0, 2.0]
for name, buffer in {
    "array.array": array.array("d", numbers),
    "memoryview": memoryview(np.array(numbers)),
}.items():
    misread, right = torch.asarray(buffer), torch.asarray(buffer, dtype=torch.float64)
    print(f"{name:12s} asarray: {misread.tolist()}  with dtype: {right.tolist()}")
    assert misread.dtype == torch.float32 and misread.tolist() == [0.0, 1.875, 0.0, 2.0]
    assert right.tolist() == torch.tensor(buffer).tolist() == torch.as_tensor(buffer).tolist() == numbers
    assert np.asarray(buffer).tolist() == numbers
PYTHON
