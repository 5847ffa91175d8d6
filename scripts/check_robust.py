#!/usr/bin/env python3
"""Is anything lost, half written or left running? Runs are killed on purpose, started twice, starved and fed badly.

    python scripts/check_robust.py                               a few of each: some minutes
    python scripts/check_robust.py --kills 100 --inputs 5000     the campaign: about an hour

kills     run.py of one small benchmark, two rounds, is ended by Ctrl-C, TERM, HUP or KILL: half of the times anywhere,
          half of the times just when it keeps a round or files its results. Nothing that it started may run on, and
          after --resume there are two rounds, once each, in asv's file, in the samples and in one record
pairs     two runs of one machine begin at the same time: one measures, the other says who does
disks     a disk of its own fills up in the middle: one line that says so, and after making room --resume goes on
inputs    files of results with other values and other bytes in them (tests/test_fuzz.py): read, or refused

Prints how many were tried and how many fell short, and what fell short. Exit code: 0 nothing, 1 something, 2 could not
try. The checkout's own results are not touched.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

from checking import robust
from cli import Parser, UserError, run


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--kills", type=int, default=4, help="runs to kill (default: 4)")
    parser.add_argument("--pairs", type=int, default=1, help="pairs of runs (default: 1)")
    parser.add_argument("--disks", type=int, default=1, help="disks to fill (default: 1)")
    parser.add_argument("--inputs", type=int, default=300, help="bad inputs to feed (default: 300)")
    parser.add_argument("--seed", default="robust", help="of what is chosen at random (default: robust)")
    chosen = parser.parse_args(argv)
    if not Path("/proc/self/cwd").exists():
        raise UserError("what runs on is found in /proc, which this system has not")
    with tempfile.TemporaryDirectory(prefix="robust-", ignore_cleanup_errors=True) as cache:
        table = tried(chosen, Path(cache))
    if chosen.inputs:
        table.append(("inputs", *robust.inputs(chosen.inputs)))
    for title, count, short in table:
        print(f"{title:7} {count:6} tried, {len(short):3} fell short{': ' + short[0] if short else ''}")
    return int(any(short for _, _, short in table))


def tried(chosen: argparse.Namespace, cache: Path) -> list[tuple[str, int, list[str]]]:
    """The campaigns that were asked for: title, how many attempts, what fell short."""
    rng = random.Random(chosen.seed)
    typical = robust.undisturbed(cache) if chosen.kills else 0.0
    table = []
    attempts: dict[str, Callable[[Path], None]] = {
        "kills": lambda root: robust.kill(robust.Copy(root, cache), rng, typical),
        "pairs": lambda root: robust.pair(robust.Copy(root, cache)),
        "disks": lambda root: robust.full(root, cache, rng),
    }
    for title, attempt in attempts.items():
        count = getattr(chosen, title)
        try:
            table.append((title, count, robust.campaign(title, count, attempt)))
        except UserError as why:
            print(f"{title}: {why}")
            table.append((title, 0, []))
    return table


if __name__ == "__main__":
    run(main)
