#!/usr/bin/env python3
"""Rank the routes for your array by measured time, with the code to paste.

    python scripts/advise.py --from numpy --to torch --nbytes 3MiB --dtype float16 --own
    python scripts/advise.py --from torch --to cuda --nbytes 64MiB --source pageable --count 1000

It uses the results of this machine or, if there are none, those of the most similar machine, and says which. The first
answer after a run takes a few seconds, later ones about one.

Exit status: 0 an answer, 2 no answer is possible.
"""

import argparse
import contextlib
import os
import pickle
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from analysis.case import ENDS, Case, Known, answer, closest
from analysis.choices import every
from cli import RESULTS, ROOT, Parser, UserError, bytes_of, put, whole
from measuring.machine import caches
from pages.case import as_json, words
from store.records import Conditions
from toolchains import environments, selection

from benchmarks.contracts import ALIAS, CONTIGUOUS, COPY, INTO, PAGEABLE, PINNED

KEPT = ROOT / ".asv" / "advise.pickle"
ROOMS = ("scripts/analysis", "scripts/store", "scripts/toolchains", "benchmarks")  # whose code decides what is known
LARGEST = 2**50  # of bytes, and of what is counted


def size(text: str) -> int:
    """Bytes of "3MiB", "3 MB" or "4096"."""
    nbytes = bytes_of(text)
    if nbytes is None or not 0 < nbytes <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r}: write bytes such as 4096, 3MiB or 3MB")
    return nbytes


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.option("--from", "library or device of the source", dest="source", choices=ENDS, required=True)
    parser.option("--to", "library or device of the result", dest="target", choices=ENDS, required=True)
    about = "size of the source, such as 3MiB; with --batch, of each array"
    parser.option("--nbytes NBYTES", about, type=size, required=True)
    parser.option("--dtype DTYPE", "dtype of the source", default="float32")
    parser.option("--to-dtype DTYPE", "dtype of the result (default: dtype of the source)", dest="goal", default="")
    parser.option("--layout LAYOUT", "layout of the source, such as fortran", default=CONTIGUOUS)
    memory = parser.add_mutually_exclusive_group()
    for name, value, what in (
        ("--own", COPY, "the result must be a copy"),
        ("--share", ALIAS, "the result must share the source's memory"),
        ("--into-buffer", INTO, "write into an existing buffer"),
    ):
        memory.add_argument(name, dest="memory", action="store_const", const=value, default="", help=what)
    threads = "number of torch threads, such as 1 in a DataLoader worker (default: torch's default)"
    parser.option("--threads N", threads, type=str, default="")
    parser.option("--source", "host memory of a transfer", dest="host", choices=(PAGEABLE, PINNED), default="")
    parser.option("--grad", "the source requires grad")
    parser.option("--batch N", "combine N arrays into one", type=partial(whole, least=2), default=0)
    parser.option("--enqueue", "rank by enqueue time: until the call returns")
    parser.option("--count N", "number of transfers over which one-time costs are amortised", default=1)
    parser.option("--json", "print the whole answer as JSON")
    about = "machine whose results to use (default: this machine, or the most similar one)"
    parser.option("--machine NAME", about, type=selection.check_machine)
    parser.option("--results DIR", "directory of results", default=RESULTS)
    return parser.parse_args(argv)


def known_in(results: Path) -> list[Known]:
    """Of every machine in a results directory, as choices.every has it; UserError as there.

    To make it takes seconds, so KEPT holds it as long as neither results nor code change.
    """
    paths = [path for room in ROOMS for path in (ROOT / room).glob("*.py")]
    paths += [results / "benchmarks.json", *results.rglob("*.json*")]
    there = [(path, path.stat()) for path in sorted(set(paths)) if path.is_file()]
    stamp = [(str(path.resolve()), stat.st_size, stat.st_mtime_ns) for path, stat in there]
    with contextlib.suppress(Exception):  # not there, broken, or of another pandas
        kept, known = pickle.loads(KEPT.read_bytes())
        if kept == stamp:
            return list(known)
    known = every(results)
    with contextlib.suppress(OSError):  # a checkout that may not be written to
        put(KEPT, pickle.dumps((stamp, known)))
    return known


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(sys.argv[1:] if argv is None else argv)
    case = Case(**{name: getattr(chosen, name) for name in Case.__dataclass_fields__})
    known = known_in(chosen.results)
    named = [results for results in known if chosen.machine in (None, results.machine)]
    if not named:
        there = ", ".join(results.machine for results in known)
        raise UserError(f"--machine {chosen.machine}: no results of it, there are those of {there}")
    here = Conditions(cpu=environments.cpu_model(), cores=os.cpu_count(), caches=caches())
    nearest, differs = closest(named, here, case.device)
    found = answer(case, nearest)
    if chosen.json:
        sys.stdout.write(as_json(found, differs))
    else:
        print("\n".join(words(found, differs, asked=chosen.machine is not None)))
    return 0


if __name__ == "__main__":
    cli.run(main)
