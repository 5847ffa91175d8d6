"""A submission as somebody sends it, and what may be wrong with its files."""

import gzip

import resultfiles
from resultfiles import CLONE, FROM_NUMPY, MIB, every, memcpy
from store import files
from toolchains.ledger import Toolchain

MACHINE = "amd-epyc-2-cores"

COMMIT = Toolchain("2.0", "1.26").commit


def submitted(root, fast=1.0, slow=()):
    """Write results as somebody submits them, beside this suite's benchmarks.json. Return the machine's directory.

    fast: factor by which copies are faster than possible; slow: processes without a quiet sample
    """
    cells = {"dtype": ["float32"], "nbytes": [8, MIB, 16 * MIB]}

    def seconds(route, _, n):
        return 4e-7 if route == FROM_NUMPY["expression"] else (1e-6 + n / 4e10) / (fast if n > 8 else 1)

    bench = every("conversion.NumpyToTorch.timeit_convert", seconds, [FROM_NUMPY, CLONE], **cells)
    benches = [bench, memcpy({n: 2e-7 + n / 5e10 for n in cells["nbytes"]})]
    plain = resultfiles.record(benches, machine=MACHINE, rounds=4, planned=4, noisy_cells=[])
    resultfiles.write(root, benches, MACHINE, [plain], COMMIT, slow, resultfiles.steady)
    return root / MACHINE


def changed(name, change):
    """Return a function that replaces the content of a file by ``change(content)``."""

    def spoil(directory):
        path = directory / name
        content = change(files.read_content(path))
        path.write_bytes(gzip.compress(content, 1) if name.endswith("gz") else content)

    return spoil


def planted(name, old, new):
    """Return a function that replaces the first ``old`` in a file by ``new``."""
    return changed(name, lambda content: content.replace(old.encode(), new.encode(), 1))
