#!/bin/sh
# Where torch cannot convert the other side, == with a tensor is the single value False instead of an exception.
#
# Seen with torch 2.13.0, numpy 2.4.6, ml_dtypes 0.6.0 and scipy 1.17.1: a tensor of ones == an equal bfloat16 array of
# ml_dtypes is False, and != is True, though t * array gives the right product. A scipy.sparse matrix == an equal tensor is
# False, too, though matrix @ tensor works, and matrix == array compares element by element. So assert (t == x), or all of
# it, fails for equal numbers, and a mask made this way is one value.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6 ml_dtypes==0.6.0 scipy==1.17.1
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import ml_dtypes
import numpy as np
import scipy.sparse
import torch

t = torch.ones(3)
bf16 = np.ones(3, dtype=ml_dtypes.bfloat16)
print("t == float32 array: ", t == np.ones(3, dtype=np.float32))
print("t == bfloat16 array:", t == bf16, " t != bfloat16 array:", t != bf16, " t * bfloat16 array:", t * bf16)
assert (t == np.ones(3, dtype=np.float32)).all()
assert (t == bf16) is False and (t != bf16) is True
assert (t * bf16).tolist() == [1.0, 1.0, 1.0]
eye = scipy.sparse.csr_matrix(np.eye(2))
print("sparse == array:    ", (eye == np.eye(2)).sum(), "of 4  sparse == tensor:", eye == torch.eye(2))
assert (eye == np.eye(2)).sum() == 4
assert (eye == torch.eye(2)) is False
assert (eye @ torch.ones(2)).tolist() == [1.0, 1.0]
PYTHON
