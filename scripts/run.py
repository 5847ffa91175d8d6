#!/usr/bin/env python3
"""Measure the torch and numpy of this Python on this machine, and build the page.

    python scripts/run.py                      the quick profile: about two minutes of benchmarking
    python scripts/run.py --profile standard   what published pages are made from: 20 minutes
    python scripts/run.py --resume             go on where an interrupted run stopped
    python scripts/run.py --check              is this machine fit to measure on? ten seconds, and what to change

Everything is timed by asv, one process after the other, in rounds: each round gives every cell one more process and
is kept when it is done, so an interruption costs a round at most. Results are filed when all rounds are done.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import report
from cli import ONLY, Parser, UserError, run
from measuring.engine import ROOT
from measuring.profiles import PROFILES, check_chosen
from measuring.single import DEFAULT, check_ready, measure
from measuring.state import held
from toolchains import environments, selection


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--profile", help=f"one of: {', '.join(PROFILES)} (default: {DEFAULT})")
    parser.add_argument("--machine", help="name to file the results under (default: made of the hardware)")
    parser.add_argument("--rounds", type=int, help="processes a cell (default: the profile's)")
    parser.add_argument("--only", metavar="REGEX", help=ONLY)
    parser.add_argument("--resume", action="store_true", help="keep the rounds of an interrupted run and add the rest")
    parser.add_argument("--report-with", metavar="PYTHON", help="Python that builds the page (default: this one)")
    parser.add_argument(
        "--check", action="store_true", help="look at the machine and file nothing (exit code 1: change it)"
    )
    parser.add_argument("--no-report", action="store_true", help="measure only; scripts/report.py builds the page")
    chosen = parser.parse_args(argv)
    check_chosen(chosen.profile, chosen.machine, chosen.only)
    if chosen.rounds is not None and chosen.rounds < 1:
        raise UserError("--rounds takes a whole number from 1")
    if chosen.report_with is not None:
        interpreter = selection.python(chosen.report_with)
        if interpreter is None:
            raise UserError(f"--report-with {chosen.report_with}: there is no such program")
        chosen.report_with = interpreter
    return chosen


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    toolchain = check_ready()
    if chosen.check:
        from measuring import checkup

        return checkup.check()
    machine = chosen.machine or environments.machine_name(os.cpu_count() or 1)
    with held(ROOT / ".asv" / "runs" / machine):
        wanted = {name: getattr(chosen, name) for name in ("profile", "only", "rounds")}
        measure(toolchain, machine, wanted, chosen.resume)
    if chosen.no_report:
        print("results saved; python scripts/report.py builds the page")
        return 0
    return report.after_run(machine, chosen.report_with)


if __name__ == "__main__":
    run(main)
