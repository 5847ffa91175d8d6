#!/bin/sh
# jax.numpy.from_dlpack of a tensor shares memory or copies by the tensor's address, and wraps large integers.
#
# Seen with jax 0.10.2, torch 2.13.0 and numpy 2.4.6 on a CPU: a tensor whose data begin at a multiple of 64 bytes is
# shared, a slice of it that begins elsewhere is copied, and nothing says which. With JAX's default of 32 bits, an int64
# tensor becomes int32, and 2**40 + 5 becomes 5 without a warning, by from_dlpack as by asarray.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet jax==0.10.2 torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import jax.numpy as jnp
import torch

t = torch.zeros(4096)
begin = -t.data_ptr() % 64 // t.itemsize
for first in (begin, begin + 16, begin + 1):
    part = t[first:]
    shares = jnp.from_dlpack(part).unsafe_buffer_pointer() == part.data_ptr()
    print(f"begins {part.data_ptr() % 64:2d} bytes behind a multiple of 64: shares memory: {shares}")
    assert shares == (part.data_ptr() % 64 == 0)
large = torch.tensor([2**40 + 5])
for convert in (jnp.from_dlpack, jnp.asarray):
    print(convert.__name__, convert(large).dtype, convert(large).tolist())
    assert convert(large).tolist() == [5] and convert(large).dtype == jnp.int32
PYTHON
