"""How many instructions does one call take? Counted by Valgrind, so that no noise touches it.

Torch's wheels for Linux carry Valgrind's client requests, and callgrind counts between two of them.
Four processes count every cell of a toolchain (asv's setup_cache), for to start one under Valgrind
takes a quarter of a minute.
"""

import gc
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from . import conversion, routes
from .core import callgrind, sources, timing

section = "Instructions per call"
about = (
    "Counted by Valgrind's callgrind, less the empty loop. Counts describe calls, not bytes: an "
    "instruction moves many. They depend on the C library, the processor's instruction sets and "
    "the interpreter. Valgrind hides AVX-512: where a processor has it, counts describe the AVX2 "
    "code that torch and NumPy choose without it."
)
place = 11
across = "dtype"
repeated = True
needs_programs = {"valgrind": "apt-get install valgrind"}
SIZES = [8, 4 * 2**10]
ROOT = Path(__file__).resolve().parent.parent
DUMPS = "dumps.json"
EMPTY_LOOP = "empty loop"
COUNTING = "-counting"  # ending of the file that shows how far counting is
# Processes that count each cell. A count depends on addresses: hashes of addresses collide, and
# copies are aligned or not. Valgrind gives every process the same ones. So a count repeats to the
# last digit, but another release may change it by its addresses alone. Each process therefore has
# other objects, holes in malloc's heap and another environment size. For t.numpy().copy(), 4 KiB,
# ten such processes counted 8,976 to 9,475 instructions; three that differ only in Python's objects
# counted 9,218 to 9,234. On two cores, four take as long as three.
REPEATS = 4
MOVED = 997  # objects
BYTES = 613  # of the environment
CALLS, SLOW_CALLS = 50, 10  # calls per count; SLOW_CALLS for routes that convert element by element
TIMEOUT = 1800  # seconds


def _dump(directory, statement, names, calls=CALLS):
    """Count the instructions of ``calls`` calls and their loop: callgrind dumps them between two
    requests. Return the name of the dump, in ``directory``, and the number of calls.

    Two uncounted runs of ``calls`` calls come first: caches and allocators settle, and Python 3.11
    and newer specialize the loop while it first runs.
    """
    copies = dict(names)
    exec(
        f"def run(calls, begin, end):\n begin()\n for _ in range(calls): {statement}\n end()",
        copies,
    )
    for begin, end in (
        (dict, dict),
        (dict, dict),
        (torch._C._valgrind_toggle, torch._C._valgrind_toggle_and_dump_stats),
    ):
        copies["run"](calls, begin, end)
    (dump,) = directory.glob("callgrind.out.*.*")
    return dump.rename(directory / f"dump{dump.suffix}").name, calls


def dump_all(path):
    """Count every cell, in a process under callgrind, and write dumps and dumps.json to the
    directory ``path``.

    Its keys are direction, route, dtype and size of a cell, or EMPTY_LOOP. Its values are a dump
    and its calls, or reasons for missing counts. Nothing reads a dump here: under Valgrind that
    took 72 % of the time.
    """
    directory = Path(path)
    subprocess.run(
        ["callgrind_control", "-i", "on", str(os.getpid())], check=True, stdout=subprocess.DEVNULL
    )
    gc.disable()
    dumps = {EMPTY_LOOP: _dump(directory, "pass", {})}
    families = NumpyToTorch(), TorchToNumpy()
    total = REPEATS * sum(math.prod(map(len, family.params)) for family in families)
    for family in families:
        for expression, dtype, nbytes in itertools.product(*family.params):
            note_progress(total)
            route = routes.find(expression, family.direction)
            try:
                names = sources.namespace(route, sources.source(route, dtype, nbytes))
                calls = SLOW_CALLS if route.per_element else CALLS
                dump = _dump(directory, expression, names, calls)
            except NotImplementedError as reason:
                dump = str(reason)
            except Exception as error:  # of one route: the others are still counted
                dump = {"failed": f"{type(error).__name__}: {timing.first_line(error)}"}
            dumps[family.key(expression, dtype, nbytes)] = dump
    (directory / DUMPS).write_text(json.dumps(dumps), encoding="utf-8")


def _read_dump(path, calls):
    """Return the instructions of a call and its loop iteration, and those of each function."""
    text = path.read_text(encoding="utf-8", errors="replace")
    count = int(re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)[1])
    functions = callgrind.functions(text).items()
    return count / calls, Counter({name: cost / calls for name, cost in functions})


def _read_all(directory):
    """Return what ``dump_all`` counted: by cell a count and its largest functions, less the empty
    loop, or why there is none.
    """
    dumps = json.loads((directory / DUMPS).read_text(encoding="utf-8"))
    name, calls = dumps.pop(EMPTY_LOOP)
    empty, of_loop = _read_dump(directory / name, calls)
    counts = {}
    for cell, dump in dumps.items():
        counts[cell] = dump
        if isinstance(dump, list):
            count, functions = _read_dump(directory / dump[0], dump[1])
            functions.subtract(of_loop)
            counts[cell] = [count - empty, callgrind.largest(functions, count - empty)]
    return counts


def note_progress(total):
    """Note beside the log of samples that another of ``total`` counts begins."""
    if log := os.environ.get(timing.LOG_VARIABLE):
        with open(log + COUNTING, "a", encoding="utf-8") as file:
            file.write(f"{total}\n")


# Contains the function's name, so that the family's hash covers its code. Objects copies first move
# all later ones in memory; a seventh of the first, of up to 70 kB, are deleted and leave holes.
CODE = (
    "import sys; moved = [bytearray(size * size % 70_000 + size % 700) for size in "
    "range(int(sys.argv[2]))]; del moved[::7]; "
    f"from benchmarks import instructions; instructions.{dump_all.__name__}(sys.argv[1])"
)


def _counts(code, moved):
    """Run ``dump_all`` in a new process, after making ``moved`` objects; return its counts or why
    there are none.
    """
    with tempfile.TemporaryDirectory() as directory:
        valgrind = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--collect-atstart=no",
            "--dump-line=no",
        ]
        valgrind.append(f"--callgrind-out-file={directory}/callgrind.out.1")
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        environment["MOVES_THE_STACK"] = "x" * (moved // MOVED * BYTES)
        command = [*valgrind, sys.executable, "-c", code, directory, str(moved)]
        try:
            done = subprocess.run(
                command, cwd=directory, env=environment, capture_output=True, text=True
            )
        except FileNotFoundError:
            return "needs Valgrind"
        if done.returncode or not Path(directory, DUMPS).is_file():
            messages = [
                line
                for line in done.stderr.splitlines()
                if line.strip() and not line.startswith("==")
            ] or ["nothing"]
            return f"Valgrind ended with {done.returncode}: {messages[-1]}"
        return _read_all(Path(directory))


def _joined(repeats):
    """Return the counts of a cell with the functions of the median one, or why there are none."""
    if not isinstance(repeats[0], list):
        return repeats[0]
    counts = [count for count, _ in repeats]
    _, functions = sorted(repeats, key=lambda repeat: repeat[0])[len(repeats) // 2]
    return {"samples": counts, "number": 1, "functions": functions}


class _Instructions(conversion._Conversion):
    """route × dtype × nbytes over contiguous sources."""

    timeit_convert = None  # the base's

    def key(self, *cell):
        return " ".join(map(str, (self.direction, *cell)))

    def setup_cache(self, code=CODE):
        if not getattr(torch._C, "_valgrind_supported_platform", lambda: False)():
            return "this build of torch does not talk to Valgrind: its wheels for Linux do"
        with ThreadPoolExecutor(
            os.cpu_count()
        ) as pool:  # noise does not affect counts: run in parallel
            repeats = list(pool.map(_counts, [code] * REPEATS, range(0, REPEATS * MOVED, MOVED)))
        broken = [each for each in repeats if isinstance(each, str)]
        if broken:
            return broken[0]
        return {cell: _joined([each[cell] for each in repeats]) for cell in repeats[0]}

    setup_cache.timeout = TIMEOUT

    def setup(self, cache, route, dtype, nbytes):
        if isinstance(cache, str):
            raise NotImplementedError(cache)
        self.counts = cache[self.key(route, dtype, nbytes)]
        if isinstance(self.counts, str):
            raise NotImplementedError(self.counts)
        if "failed" in self.counts:
            raise RuntimeError(self.counts["failed"])

    def track_instructions(self, cache, route, dtype, nbytes):
        return self.counts  # asv takes the median of the samples, and keeps their spread

    track_instructions.unit = "instructions"


class NumpyToTorch(_Instructions):
    direction = routes.NUMPY_TO_TORCH
    params = (*conversion.NumpyToTorch.params[:2], SIZES)


class TorchToNumpy(_Instructions):
    direction = routes.TORCH_TO_NUMPY
    params = (*conversion.TorchToNumpy.params[:2], SIZES)
