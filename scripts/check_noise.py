#!/usr/bin/env python3
"""What does noise do to the suite's figures? Makes some on purpose and measures, with it and without.

    python scripts/check_noise.py                         calm and noise, five runs each: about an hour
    python scripts/check_noise.py --before v1.0           the code of that revision beside it, in the same minutes
    python scripts/check_noise.py --condition noise       noise alone
    python scripts/check_noise.py --resume .asv/noise/ID  go on where it stopped; finished runs are kept

Noise is one process on every core that by turns does nothing and either burns CPU or streams memory, 1 to 50 ms each:
half of the time. It is there only while something is measured. In both conditions

    A/A          two quick runs of the same code, four processes a cell, each cell's figure in one against the other
    slowdown     one alias route made 10 % slower: compare.py --run, four processes a side
    comparisons  every pair of the runs by compare.py: whatever it flags is wrong

Exit code: 0 every promise in the table was kept, 1 one was not, 2 could not measure. Leave the machine alone meanwhile.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from checking import promises
from checking.noise import ALIAS_SIZES, CONDITIONS, Workplace, measure, revision, steps, this_code
from cli import ONLY, Parser, UserError, check_writable, matcher, put
from measuring.engine import ROOT, new_id

SCRATCH = ROOT / ".asv" / "noise"
RUNS = 5
SMOKE = r"limits\.Floor"  # with --quick


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--before", metavar="REV", help="a git revision to measure beside this code")
    parser.add_argument("--runs", type=int, help=f"runs of this code in each condition (default: {RUNS})")
    parser.add_argument("--only", metavar="REGEX", help=f"{ONLY} (the slowdown has cells of its own)")
    parser.add_argument("--condition", choices=(*CONDITIONS, "both"), default="both", help="default: both")
    parser.add_argument("--quick", action="store_true", help="try this script: two small runs, which show nothing")
    parser.add_argument("--resume", metavar="DIR", type=Path, help="go on with a check that was interrupted")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, too")
    chosen = parser.parse_args(argv)
    if chosen.resume and (chosen.before or chosen.runs or chosen.only or chosen.quick):
        raise UserError("--resume goes on with what was chosen then: only --condition and --json go with it")
    if chosen.runs is not None and chosen.runs < 2:
        raise UserError("--runs takes a whole number from 2: an A/A is two runs")
    matcher(chosen.only)
    if chosen.json:
        check_writable("--json", chosen.json)
    return chosen


def begin(chosen: argparse.Namespace, command: str) -> Workplace:
    """A workplace for what was chosen, or the one to go on with."""
    if chosen.resume:
        return Workplace(chosen.resume.absolute())
    commit = revision(chosen.before) if chosen.before else ""
    place = Workplace(SCRATCH / new_id())
    place.start(
        {
            "before": commit,
            "new": this_code(),
            "runs": chosen.runs or (2 if chosen.quick else RUNS),
            "only": chosen.only or (SMOKE if chosen.quick else ""),
            "sizes": ALIAS_SIZES[:1] if chosen.quick else ALIAS_SIZES,
            "command": command,
        }
    )
    return place


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    given = sys.argv[1:] if argv is None else argv
    place = begin(chosen, shlex.join(["python", "scripts/check_noise.py", *given]))
    plan = place.plan()
    conditions = CONDITIONS if chosen.condition == "both" else (chosen.condition,)
    try:
        measure(place, steps(conditions, plan["runs"], bool(plan["before"])), bool(plan["only"]))
    except (KeyboardInterrupt, UserError):
        print(f"--resume {os.path.relpath(place.directory)} goes on with it", file=sys.stderr)
        raise
    by_condition, about = promises.figures(place, plan), promises.describe(place, plan)
    kept = promises.kept(by_condition)
    print(f"\n{promises.markdown(by_condition)}\n\n{promises.sentence(about)}")
    if chosen.json:
        text = json.dumps({"about": about, "figures": by_condition, "kept": kept}, indent=1, ensure_ascii=False)
        put(chosen.json, text + "\n")
    return 0 if kept and all(all(tried.values()) for tried in kept.values()) else 1


if __name__ == "__main__":
    cli.run(main)
