#!/usr/bin/env python3
"""What do pulses cost, and do they move figures? This code against a copy of it without them, in turns.

    python scripts/check_cost.py                          two quick runs of each: about nine minutes on a calm machine
    python scripts/check_cost.py --resume .asv/cost/ID    go on where it stopped; finished runs are kept

What noise costs is no part of it: a process logs what it waited and the samples that it took once more, and of a cell's
processes in all runs the least disturbed quarter stands for it.

Exit code: 0 both promises in the table were kept, 1 one was not, 2 could not measure. Leave the machine alone
meanwhile.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

from checking import cost, promises
from checking.noise import this_code
from cli import Parser, UserError, run
from measuring.engine import ROOT, new_id

SCRATCH = ROOT / ".asv" / "cost"
RUNS = 2


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--runs", type=int, help=f"runs with pulses, and as many without (default: {RUNS})")
    parser.add_argument("--resume", metavar="DIR", type=Path, help="go on with a check that was interrupted")
    chosen = parser.parse_args(argv)
    if chosen.resume and chosen.runs:
        raise UserError("--resume goes on with what was chosen then: --runs does not go with it")
    if chosen.runs is not None and chosen.runs < 2:
        raise UserError("--runs takes a whole number from 2")
    return chosen


def begin(chosen: argparse.Namespace, command: str) -> cost.Turns:
    """A workplace for what was chosen, or the one to go on with."""
    if chosen.resume:
        return cost.Turns(chosen.resume.absolute())
    place = cost.Turns(SCRATCH / new_id())
    place.start({"new": this_code(), "runs": chosen.runs or RUNS, "only": "", "command": command})
    return place


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    given = sys.argv[1:] if argv is None else argv
    place = begin(chosen, shlex.join(["python", "scripts/check_cost.py", *given]))
    plan = place.plan()
    planned = cost.steps(plan["runs"])
    try:
        cost.measure(place, planned)
    except (KeyboardInterrupt, UserError):
        print(f"--resume {os.path.relpath(place.directory)} goes on with it", file=sys.stderr)
        raise
    table = cost.rows(place, planned)
    print(f"\n{promises.markdown(table)}\n\n{promises.sentence(promises.describe(place, plan))}")
    return promises.exit_code(table)


if __name__ == "__main__":
    run(main)
