"""How many instructions does one call take? Counted by Valgrind, so that no noise touches it.

Torch's wheels for Linux carry Valgrind's client requests, and callgrind counts between two of them. One process counts
every cell of a toolchain (asv's setup_cache), for to start one under Valgrind takes a quarter of a minute.
"""

import gc as _gc
import itertools as _itertools
import json as _json
import os as _os
import re as _re
import shutil as _shutil
import statistics as _statistics
import subprocess as _subprocess
import sys as _sys
import tempfile as _tempfile
from pathlib import Path as _Path

import torch as _torch

from . import conversion as _conversion
from . import routes as _routes
from . import sources as _sources

section = "Instructions per call"
about = (
    "By Valgrind's callgrind, the empty loop taken off: evidence about calls, not about bytes, of which a single "
    "instruction moves many. It depends on the C library, the processor's instruction sets and the interpreter. "
    "Spread: by how much three counts differ."
)
place = 11
across = "dtype"
SIZES = [8, 4 * 2**10]
ROOT = _Path(__file__).resolve().parent.parent
COUNTS = "counts.json"
REPEATS = 3
FEW, MOST = 10, 500  # calls that are counted at a time: the more instructions one takes, the fewer
ENOUGH = 500_000  # instructions, of which the few that differ between two counts are less than a thousandth
WARM = 20  # calls before, so that caches of Python and allocators have settled
TIMEOUT = 1800  # seconds


def _missing():
    """Why nothing can be counted here; "" where it can."""
    if not getattr(_torch._C, "_valgrind_supported_platform", lambda: False)():
        return "this build of torch does not talk to Valgrind: its wheels for Linux do"
    if not (_shutil.which("valgrind") and _shutil.which("callgrind_control")):
        return "needs Valgrind: apt-get install valgrind"
    return ""


def _counted(directory, statement, names, calls, repeats):
    """Instructions that so many calls take, once for each repeat, from what callgrind dumps at the second request."""
    code = f"def run():\n toggle()\n for _ in range({calls}): {statement}\n dump()"
    made = {**names, "toggle": _torch._C._valgrind_toggle, "dump": _torch._C._valgrind_toggle_and_dump_stats}
    exec(code, made)
    for _ in range(1 + repeats):  # Python 3.11 and newer specialize the loop while it first runs
        made["run"]()
    dumps = sorted(directory.glob("callgrind.out.*.*"), key=lambda path: int(path.suffix[1:]))
    counts = [int(_re.search(r"^(?:totals|summary): (\d+)", path.read_text(), _re.MULTILINE)[1]) for path in dumps]
    for path in dumps:
        path.unlink()
    return counts[1:]


def _of_a_call(directory, statement, names, empty=0.0):
    """Instructions of a call, ``empty`` taken off, once for each repeat."""
    for _ in range(WARM):
        exec(statement, names)
    (some,) = _counted(directory, statement, names, FEW, 1)
    calls = max(FEW, min(MOST, ENOUGH * FEW // max(1, some)))
    return [count / calls - empty for count in _counted(directory, statement, names, calls, REPEATS)]


def count_all(path):
    """Count every cell, in a process that runs under callgrind, and file counts.json in the directory ``path``.

    A cell is there by its direction, route, dtype and size, with its counts or with the reason why it has none.
    """
    directory = _Path(path)
    _subprocess.run(["callgrind_control", "-i", "on", str(_os.getpid())], check=True, stdout=_subprocess.DEVNULL)
    _gc.disable()
    found = {}
    (empty,) = _counted(directory, "pass", {}, MOST, 1)
    for family in (NumpyToTorch(), TorchToNumpy()):
        for expression, dtype, nbytes in _itertools.product(*family.params):
            route = _routes.find(expression, family.direction)
            try:
                names = _sources.namespace(route, _sources.source(route, dtype, nbytes))
                counts = _of_a_call(directory, expression, names, empty / MOST)
            except NotImplementedError as reason:
                counts = str(reason)
            found[family.key(expression, dtype, nbytes)] = counts
    (directory / COUNTS).write_text(_json.dumps(found), encoding="utf-8")


# Named by the function itself, so that the measurement's version follows what it does
CODE = f"import sys; from benchmarks import instructions; instructions.{count_all.__name__}(sys.argv[1])"


class _Instructions(_conversion._Conversion):
    """route × dtype × nbytes over contiguous sources."""

    timeit_convert = None  # the base's

    def key(self, *cell):
        return " ".join(map(str, (self.direction, *cell)))

    def setup_cache(self, code=CODE):
        why = _missing()
        if why:
            return why
        with _tempfile.TemporaryDirectory() as directory:
            valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", "--dump-line=no"]
            valgrind.append(f"--callgrind-out-file={directory}/callgrind.out.1")
            environment = {**_os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            command = [*valgrind, _sys.executable, "-c", code, directory]
            done = _subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
            counts = _Path(directory, COUNTS)
            if done.returncode or not counts.is_file():
                said = done.stderr.strip().splitlines() or ["nothing"]
                return f"Valgrind ended with {done.returncode}: {said[-1]}"
            return _json.loads(counts.read_text(encoding="utf-8"))

    setup_cache.timeout = TIMEOUT

    def setup(self, cache, route, dtype, nbytes):
        if isinstance(cache, str):
            raise NotImplementedError(cache)
        self.counts = cache[self.key(route, dtype, nbytes)]
        if isinstance(self.counts, str):
            raise NotImplementedError(self.counts)

    def track_instructions(self, cache, route, dtype, nbytes):
        return _statistics.median(self.counts)

    track_instructions.unit = "instructions"

    def track_spread(self, cache, route, dtype, nbytes):
        return 100 * (max(self.counts) / min(self.counts) - 1)

    track_spread.unit = "% spread"


class NumpyToTorch(_Instructions):
    direction = _routes.NUMPY_TO_TORCH
    params = (*_conversion.NumpyToTorch.params[:2], SIZES)


class TorchToNumpy(_Instructions):
    direction = _routes.TORCH_TO_NUMPY
    params = (*_conversion.TorchToNumpy.params[:2], SIZES)
