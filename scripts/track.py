#!/usr/bin/env python3
"""Measure what releases of torch and numpy did to conversion cost: each installed, timed by asv and filed in turn.

    python scripts/track.py                              both histories, the last patch of every minor release
    python scripts/track.py --history numpy --since 2.0
    python scripts/track.py --history torch --releases 2.6.0,2.13.0
    python scripts/track.py --resume                     go on where an interrupted run stopped

Every release gets a virtual environment in .asv/env, about 5 GB and a minute and a half each where torch comes with
CUDA; --keep says how many stay. A history is measured from coarse to fine, so what is there after an interruption spans
all of it. The first toolchain is measured again at the end, into the same result file: what the machine itself did over
the hours is in its samples, and summed up in its run record. Afterwards `asv compare`, `asv find` and `asv publish`
work over releases; `git -C .asv/ledger tag` lists their names. The page of the histories is built, too.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import report
from cli import ONLY, Parser, UserError, run
from measuring.engine import RESULTS, ROOT, check_asv, register
from measuring.machine import check_machine
from measuring.profiles import PROFILES, check_chosen
from measuring.state import held
from measuring.tracking import HOW, RELEASES, Plan, Tracker, coarse_to_fine
from toolchains import asked, environments, installed, ledger


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--history", choices=ledger.PACKAGES, help="releases of this package only (default: of both)")
    parser.add_argument("--releases", metavar="2.6.0,2.13.0", help="these (default: the last patch of every minor one)")
    parser.add_argument("--since", metavar="2.0", help="from this release on")
    parser.add_argument("--profile", help=f"one of: {', '.join(PROFILES)} (default: tracking)")
    parser.add_argument("--only", metavar="REGEX", help=ONLY)
    parser.add_argument("--rounds", type=int, help="processes a cell (default: the profile's)")
    parser.add_argument("--resume", action="store_true", help="go on with the releases an interrupted run had left")
    parser.add_argument("--keep", type=int, metavar="N", help="environments on disk at most (default: asv.conf.json's)")
    parser.add_argument("--machine", help="name to file the results under (default: made of the hardware)")
    parser.add_argument("--no-report", action="store_true", help="do not build the page")
    chosen = parser.parse_args(argv)
    check_chosen(chosen.profile, chosen.machine, chosen.only)
    for name in ("rounds", "keep"):
        if getattr(chosen, name) is not None and getattr(chosen, name) < 1:
            raise UserError(f"--{name} takes a whole number from 1")
    packages = [chosen.history] if chosen.history else list(ledger.PACKAGES)
    chosen.toolchains = asked.releases(chosen.releases, packages, chosen.since)
    return chosen


def plan_of(chosen: argparse.Namespace, machine: str) -> Plan:
    """What the command line asks for, or with --resume what is left of the interrupted run."""
    name = chosen.profile or "tracking"
    lines = groupby(chosen.toolchains, key=lambda toolchain: toolchain.history)
    plan = Plan(
        ROOT / ".asv" / "runs" / machine / "track",
        [toolchain.tag for _, line in lines for toolchain in coarse_to_fine(list(line))],
        name,
        chosen.only,
        chosen.rounds or PROFILES[name].rounds,
    )
    if chosen.resume:
        said = [option for option in (*RELEASES, *HOW) if getattr(chosen, option) is not None]
        found = plan.resumed(said)
        if found:
            return found
        print("nothing to resume: a new run")
    plan.begin()
    return plan


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    check_asv()
    machine = chosen.machine or installed.machine_name(os.cpu_count() or 1)
    with held(ROOT / ".asv" / "runs" / machine):
        return track(chosen, machine)


def track(chosen: argparse.Namespace, machine: str) -> int:
    """Carry out what is planned; the exit code."""
    from toolchains import plugin  # imports asv, which check_asv has found

    plan = plan_of(chosen, machine)
    keep = chosen.keep or environments.keep(plugin.configured("keep_environments"))
    os.environ[environments.KEEP_VARIABLE] = str(keep)  # for asv
    check_machine(RESULTS / machine)
    register(machine)
    print(
        f"{len(plan.tags) - len(plan.finished)} of {len(plan.tags)} toolchains on {machine}, "
        f"profile {plan.profile}, {plan.rounds} processes a cell, at most {keep} environments on disk"
    )
    try:
        Tracker(plan, machine, keep).run()
    except KeyboardInterrupt:
        print(f"{len(plan.finished)} toolchains are saved; python scripts/track.py --resume goes on")
        raise
    if plan.finished and not chosen.no_report:
        report.after_run(machine)
    for tag, reason in plan.failed.items():
        print(cli.line(f"{tag} has no results: {reason}"))
    if plan.failed:
        print("python scripts/track.py --resume tries those again")
        return 2
    plan.finish()
    print("all saved; asv compare, asv find and asv publish work over releases")
    return 0


if __name__ == "__main__":
    run(main)
