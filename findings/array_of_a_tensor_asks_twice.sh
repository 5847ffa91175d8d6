#!/bin/sh
# np.array(t) calls Tensor.__array__ twice in NumPy 2.1 and newer, and takes about twice as long as it would with one call.
#
# Seen with torch 2.13.0 and numpy 2.0.2 and 2.4.6. NumPy 2.4.6 asks for a copy (copy=True), the tensor's method has no such
# keyword and raises a TypeError, and NumPy asks again without it; the warning that it could give is not shown. NumPy 2.0.2
# asks once. A method that takes the keyword makes the same call about twice as fast. np.asarray(t) asks once in both.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for numpy in 2.0.2 2.4.6; do
    python3 -m venv "$folder/$numpy"
    "$folder/$numpy/bin/python" -m pip install --quiet torch==2.13.0 numpy==$numpy
    "$folder/$numpy/bin/python" -W ignore - <<'PYTHON'
import timeit

import numpy as np
import torch

method = torch.Tensor.__array__
t = torch.zeros(4)
calls = []


def noted(tensor, *dtype, **keywords):
    try:
        array = method(tensor, *dtype, **keywords)
    except TypeError:
        calls.append("TypeError")
        raise
    calls.append("array")
    return array


def taking_copy(tensor, dtype=None, copy=None):
    array = method(tensor, dtype)
    return array.copy() if copy else array


def microseconds():
    return min(timeit.repeat(lambda: np.array(t), number=10_000, repeat=7)) * 100


torch.Tensor.__array__ = noted
np.array(t)
by_array, calls = calls, []
np.asarray(t)
torch.Tensor.__array__ = method
before = microseconds()
torch.Tensor.__array__ = taking_copy
after = microseconds()
print(f"numpy {np.__version__}: np.array(t): {', '.join(by_array)}; np.asarray(t): {', '.join(calls)}; "
      f"{before:.2f} us, with a method that takes copy {after:.2f} us")
assert calls == ["array"]
if np.__version__ == "2.0.2":
    assert by_array == ["array"]
else:
    assert by_array == ["TypeError", "array"] and before > 1.4 * after
PYTHON
done
