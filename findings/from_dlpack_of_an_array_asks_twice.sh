#!/bin/sh
# torch.from_dlpack(array) raises and catches a TypeError at each call where NumPy is older than 2.1.
#
# Seen with torch 2.13.0 and numpy 2.0.2 and 2.4.6. torch asks the array for its capsule with a version (max_version), which
# ndarray.__dlpack__ of numpy 2.0.2 does not know; torch catches the TypeError and asks again without. numpy 2.4.6 takes the
# keyword. With numpy 2.0.2 a capsule asked for without the keyword gives the same tensor in less than half the time.
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

answers = []


class Noted(np.ndarray):
    def __dlpack__(self, **keywords):
        try:
            capsule = super().__dlpack__(**keywords)
        except TypeError:
            answers.append("TypeError")
            raise
        answers.append("capsule")
        return capsule


def microseconds(convert):
    return min(timeit.repeat(lambda: convert(a), number=10_000, repeat=7)) * 100


a = np.zeros(4, np.float32)
torch.from_dlpack(a.view(Noted))
whole = microseconds(torch.from_dlpack)
unversioned = microseconds(lambda a: torch.from_dlpack(a.__dlpack__()))
print(f"numpy {np.__version__}: {', '.join(answers)}; {whole:.2f} us, by a capsule without a version {unversioned:.2f} us")
if np.__version__ == "2.0.2":
    assert answers == ["TypeError", "capsule"] and whole > 2 * unversioned
else:
    assert answers == ["capsule"]
PYTHON
done
