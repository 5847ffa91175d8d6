#!/usr/bin/env python3
"""What do pulses cost on a calm machine, and do they move figures? This code against one of before, in short turns.

    python scripts/check_cost.py --before dd81f09               until eight turns were calm, half an hour at most
    python scripts/check_cost.py --before dd81f09 --turns 20 --minutes 60
    python scripts/check_cost.py --resume .asv/cost/ID          go on where it stopped; finished runs are kept

A turn is a run of before between two of this code: tensors to arrays, four processes a cell, three quarters of a minute.
It counts where the machine was at full speed nine tenths of the time in both runs of this code; hosts of virtual
machines are calm by the minute.

Exit code: 0 both promises in the table were kept, 1 one was not, 2 too few calm turns to tell, or could not measure.
Leave the machine alone meanwhile.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

from checking import cost, promises
from checking.noise import Workplace, revision, this_code
from cli import Parser, UserError, run
from measuring.engine import ROOT

SCRATCH = ROOT / ".asv" / "cost"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--before", metavar="REV", help="the git revision to measure beside this code")
    what.add_argument("--resume", metavar="DIR", type=Path, help="go on with a check that was interrupted")
    parser.add_argument("--turns", type=int, default=8, help="calm turns to end after (default: 8)")
    parser.add_argument("--minutes", type=int, default=30, help="at most so long (default: 30)")
    chosen = parser.parse_args(argv)
    if chosen.turns < cost.LEAST:
        raise UserError(f"--turns takes a whole number from {cost.LEAST}")
    if chosen.minutes < 1:
        raise UserError("--minutes takes a whole number from 1")
    return chosen


def begin(chosen: argparse.Namespace, command: str) -> Workplace:
    """A workplace for what was chosen, or the one to go on with."""
    if chosen.resume:
        return Workplace(chosen.resume.absolute())
    plan = {"before": revision(chosen.before), "new": this_code(), "only": cost.CELLS, "command": command}
    started = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    place = Workplace(SCRATCH / f"{started}-{os.getpid()}")
    place.start(plan)
    return place


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    given = sys.argv[1:] if argv is None else argv
    place = begin(chosen, shlex.join(["python", "scripts/check_cost.py", *given]))
    plan = place.plan()
    try:
        turns = cost.measure(place, chosen.turns, 60.0 * chosen.minutes)
    except (KeyboardInterrupt, UserError):
        print(f"--resume {os.path.relpath(place.directory)} goes on with it", file=sys.stderr)
        raise
    table = cost.rows(turns)
    print(f"\n{promises.markdown(table)}\n\n{promises.sentence(promises.describe(place, plan))}")
    return promises.exit_code(table)


if __name__ == "__main__":
    run(main)
