#!/usr/bin/env python3
"""Which call to use for an array of yours, from what was measured: ranked, with the code to paste.

    python scripts/advise.py
    python scripts/advise.py --from numpy --to torch --nbytes 3MiB --dtype float16 --own
    python scripts/advise.py --from torch --to cuda --nbytes 64MiB --source pageable --count 1000

Without arguments, it asks one question at a time. It uses the results of this machine or, if there are none, those of
the most similar machine, and says which. The first answer after a run takes a few seconds, later ones less than one.

Exit status: 0 an answer, 2 no answer is possible.
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from analysis import case as cases
from analysis.case import Case, Known
from cli import Parser, UserError, put
from pages import case as page
from pages.case import ask, case_of
from store.records import Conditions, made_of
from toolchains import selection

from benchmarks.contracts import ALIAS, CONTIGUOUS, COPY, INTO

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "reports" / "results"
KEPT = ROOT / ".asv" / "advise.json"
ROOMS = ("scripts/analysis", "scripts/store", "scripts/toolchains", "benchmarks")  # whose code decides what is known


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--from", dest="source", metavar="FROM", required=True, help="numpy, torch or cuda")
    parser.add_argument("--to", dest="target", metavar="TO", required=True, help="numpy, torch or cuda")
    parser.add_argument(
        "--nbytes", required=True, help="size of the source, such as 4096, 3MiB or 3MB; with --batch, of each array"
    )
    parser.add_argument("--dtype", default="float32", help="dtype of the source (default: float32)")
    parser.add_argument(
        "--to-dtype", dest="goal", default="", help="dtype of the result (default: dtype of the source)"
    )
    parser.add_argument(
        "--layout", default=CONTIGUOUS, help="layout of the source, such as fortran (default: contiguous)"
    )
    memory = parser.add_mutually_exclusive_group()
    memory.add_argument("--own", dest="memory", action="store_const", const=COPY, help="the result must be a copy")
    memory.add_argument(
        "--share", dest="memory", action="store_const", const=ALIAS, help="the result must share the source's memory"
    )
    memory.add_argument(
        "--into-buffer", dest="memory", action="store_const", const=INTO, help="write into an existing buffer"
    )
    parser.set_defaults(memory="")
    parser.add_argument(
        "--threads",
        default="",
        metavar="N",
        help="number of torch threads, such as 1 in a DataLoader worker (default: torch's default)",
    )
    parser.add_argument(
        "--source", dest="host", metavar="MEMORY", default="", help="host memory of a transfer: pageable or pinned"
    )
    parser.add_argument("--grad", action="store_true", help="the source requires grad")
    parser.add_argument("--batch", default="0", metavar="N", help="combine N arrays into one")
    parser.add_argument("--enqueue", action="store_true", help="rank by enqueue time: until the call returns")
    parser.add_argument(
        "--count",
        default="1",
        metavar="N",
        help="number of transfers over which one-time costs are amortised (default: 1)",
    )
    parser.add_argument("--json", action="store_true", help="print the whole answer as JSON")
    parser.add_argument(
        "--machine", help="machine whose results to use (default: this machine, or the most similar one)"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of results (default: reports/results)")
    return parser.parse_args(argv)


def known_in(results: Path) -> list[Known]:
    """Of every machine in a results directory, as choices.every has it; UserError as there.

    To make it takes pandas and seconds, so KEPT holds it as long as neither results nor code change.
    """
    paths = [path for room in ROOMS for path in (ROOT / room).glob("*.py")]
    paths += [results / "benchmarks.json", *results.rglob("*.json*")]
    there = [(path, path.stat()) for path in sorted(set(paths)) if path.is_file()]
    stamp = [[str(path.resolve()), stat.st_size, stat.st_mtime_ns] for path, stat in there]
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError, RecursionError):
        stored = json.loads(KEPT.read_text(encoding="utf-8"))
        if stored["stamp"] == stamp:
            return [made_of(Known, machine) for machine in stored["machines"]]
    from analysis.choices import every

    machines = every(results)
    with contextlib.suppress(OSError):  # a checkout that may not be written to
        put(KEPT, json.dumps({"stamp": stamp, "machines": [asdict(machine) for machine in machines]}))
    return machines


def known_for(chosen: argparse.Namespace, case: Case) -> tuple[Known, tuple[str, ...]]:
    """The results to answer from, and in what their machine differs from this one."""
    from measuring import machine
    from toolchains import environments

    selection.check_machine(chosen.machine)
    known = known_in(chosen.results)
    named = [results for results in known if chosen.machine in (None, results.machine)]
    if not named:
        there = ", ".join(results.machine for results in known)
        raise UserError(f"--machine {chosen.machine}: no results of it, there are those of {there}")
    here = Conditions(cpu=environments.cpu_model(), cores=os.cpu_count(), caches=machine.caches())
    return cases.closest(named, here, case.device)


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv) or ask()
    chosen = arguments(given)
    case = case_of(chosen)
    known, differs = known_for(chosen, case)
    answer = cases.answer(case, known)
    if chosen.json:
        sys.stdout.write(page.as_json(answer, differs))
    else:
        print("\n".join(page.words(answer, differs, asked=chosen.machine is not None)))
    return 0


if __name__ == "__main__":
    cli.run(main)
