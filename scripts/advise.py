#!/usr/bin/env python3
"""Rank the routes for your array by measured time, with the code to paste.

    python scripts/advise.py --from numpy --to torch --nbytes 3MiB --dtype float16 --own
    python scripts/advise.py --from torch --to cuda --nbytes 64MiB --source pageable --count 1000

It uses the results of this machine or, if there are none, those of the most similar machine, and
says which.

Exit status: 0 an answer, 2 no answer is possible.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from analysis.answers import answer
from analysis.costs import closest_machine, last_run, load_machine
from analysis.needs import ENDS, Case
from cli import RESULTS, Parser, UserError, parse_size, whole_number
from measuring.machine import conditions
from pages.case_answer import answer_text, as_json
from store import files
from toolchains import selection

from benchmarks.contracts import ALIAS, CONTIGUOUS, COPY, INTO, PAGEABLE, PINNED

LARGEST = 2**50  # bytes


def size(text: str) -> int:
    """Bytes of "3MiB", "3 MB" or "4096"."""
    nbytes = parse_size(text)
    if nbytes is None or not 0 < nbytes <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r}: write bytes such as 4096, 3MiB or 3MB")
    return nbytes


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.option(
        "--from", "library or device of the source", dest="source", choices=ENDS, required=True
    )
    parser.option(
        "--to", "library or device of the result", dest="target", choices=ENDS, required=True
    )
    parser.option(
        "--nbytes NBYTES",
        "size, such as 3MiB; with --batch, of each array",
        type=size,
        required=True,
    )
    parser.option(
        "--dtype DTYPE", "dtype of the source, such as bfloat16 or int64", default="float32"
    )
    parser.option(
        "--to-dtype DTYPE",
        "dtype of the result (default: dtype of the source)",
        dest="goal",
        default="",
    )
    about = (
        "contiguous, strided, transposed, fortran, 'power of two', 0-d or 5-d: see docs/glossary.md"
    )
    parser.option("--layout LAYOUT", about, default=CONTIGUOUS)
    memory = parser.add_mutually_exclusive_group()
    memory_option = partial(memory.add_argument, dest="memory", action="store_const", default="")
    memory_option("--own", const=COPY, help="the result must be a copy")
    memory_option("--share", const=ALIAS, help="the result must share the source's memory")
    memory_option("--into-buffer", const=INTO, help="write into an existing buffer")
    parser.option(
        "--threads N",
        "torch threads; 1 in a DataLoader worker (default: torch's)",
        type=str,
        default="",
    )
    parser.option(
        "--source",
        "with cuda: memory of the host",
        dest="host",
        choices=(PAGEABLE, PINNED),
        default="",
    )
    parser.option("--grad", "the source requires grad")
    parser.option(
        "--batch N", "combine N arrays into one", type=partial(whole_number, least=2), default=0
    )
    parser.option("--enqueue", "with cuda: rank by the time until the call returns")
    parser.option(
        "--count N", "with cuda: transfers over which one-time costs are amortised", default=1
    )
    parser.option("--json", "print the whole answer as JSON")
    about = "machine whose results to use (default: this machine, or the most similar one)"
    parser.option("--machine NAME", about, type=selection.check_machine_name)
    parser.option("--results DIR", "directory of results", default=RESULTS)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(sys.argv[1:] if argv is None else argv)
    case = Case(**{name: getattr(options, name) for name in Case.__dataclass_fields__})
    machines = files.machines(options.results)
    if options.machine not in (None, *machines):
        raise UserError(
            f"--machine {options.machine}: no results of it, there are those of "
            f"{', '.join(machines)}"
        )
    records = {
        name: last_run(options.results, name)[0]
        for name in machines
        if options.machine in (None, name)
    }
    nearest, differs = closest_machine(records, conditions(), case.device)
    ranked = answer(case, load_machine(options.results, nearest))
    if options.json:
        sys.stdout.write(as_json(ranked, differs))
    else:
        print(answer_text(ranked, () if options.machine else differs))
    return 0


if __name__ == "__main__":
    cli.run(main)
