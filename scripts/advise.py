#!/usr/bin/env python3
"""Which route to use for an array of yours, from what was measured: ranked, with the code to paste.

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
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from analysis.case import ENDS, Case, Known, answer, closest
from analysis.choices import every
from cli import Parser, UserError, bytes_of, put
from measuring.machine import caches
from pages.case import as_json, words
from store.records import Conditions
from toolchains import environments, selection

from benchmarks.contracts import ALIAS, CONTIGUOUS, COPY, INTO, PAGEABLE, PINNED

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "reports" / "results"
KEPT = ROOT / ".asv" / "advise.pickle"
ROOMS = ("scripts/analysis", "scripts/store", "scripts/toolchains", "benchmarks")  # whose code decides what is known
LARGEST = 2**50  # of bytes, and of what is counted


def size(text: str) -> int:
    """Bytes of "3MiB", "3 MB" or "4096"."""
    nbytes = bytes_of(text)
    if nbytes is None or not 0 < nbytes <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r}: write bytes such as 4096, 3MiB or 3MB")
    return nbytes


def whole(least: int) -> Callable[[str], int]:
    """A whole number from ``least``."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,15}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: a whole number from {least}")
        return int(text)

    return read


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--from", dest="source", choices=ENDS, required=True, help="library or device of the source")
    parser.add_argument("--to", dest="target", choices=ENDS, required=True, help="library or device of the result")
    parser.add_argument(
        "--nbytes", type=size, required=True, help="size of the source, such as 3MiB; with --batch, of each array"
    )
    parser.add_argument("--dtype", default="float32", help="dtype of the source (default: float32)")
    parser.add_argument(
        "--to-dtype", dest="goal", default="", help="dtype of the result (default: dtype of the source)"
    )
    parser.add_argument(
        "--layout", default=CONTIGUOUS, help="layout of the source, such as fortran (default: contiguous)"
    )
    memory = parser.add_mutually_exclusive_group()
    for name, value, what in (
        ("--own", COPY, "the result must be a copy"),
        ("--share", ALIAS, "the result must share the source's memory"),
        ("--into-buffer", INTO, "write into an existing buffer"),
    ):
        memory.add_argument(name, dest="memory", action="store_const", const=value, default="", help=what)
    threads = "number of torch threads, such as 1 in a DataLoader worker (default: torch's default)"
    parser.add_argument("--threads", default="", metavar="N", help=threads)
    parser.add_argument(
        "--source", dest="host", choices=(PAGEABLE, PINNED), default="", help="host memory of a transfer"
    )
    parser.add_argument("--grad", action="store_true", help="the source requires grad")
    parser.add_argument("--batch", type=whole(2), default=0, metavar="N", help="combine N arrays into one")
    parser.add_argument("--enqueue", action="store_true", help="rank by enqueue time: until the call returns")
    count = "number of transfers over which one-time costs are amortised (default: 1)"
    parser.add_argument("--count", type=whole(1), default=1, metavar="N", help=count)
    parser.add_argument("--json", action="store_true", help="print the whole answer as JSON")
    parser.add_argument(
        "--machine", help="machine whose results to use (default: this machine, or the most similar one)"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of results (default: reports/results)")
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
    selection.check_machine(chosen.machine)
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
