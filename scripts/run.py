#!/usr/bin/env python3
"""Measure the torch and numpy of this Python on this machine, and build the page.

    python scripts/run.py                      the quick profile: about four minutes of benchmarking
    python scripts/run.py --profile standard   what published pages are made from: 27 minutes
    python scripts/run.py --resume             go on where an interrupted run stopped
    python scripts/run.py --check              is this machine fit to measure on? ten seconds, and what to change

Everything is timed by asv, one process after the other, in rounds: each round gives every cell one more process and
is kept when it is done, so an interruption costs a round at most. Results are filed when all rounds are done.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import report
from cli import ONLY, Parser, UserError, check_whole, line
from measuring.engine import RESULTS, ROOT, check_asv, discover, register
from measuring.machine import check_machine
from measuring.processes import duration, progress
from measuring.profiles import PROFILES, check_chosen
from measuring.record import file_record, how_quiet, new_record
from measuring.rounds import budget, cells_of, take_rounds
from measuring.state import State, check_same, held
from toolchains import environments, selection
from toolchains.ledger import Toolchain

DEFAULT = "quick"  # profile


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
    check_whole(chosen, "rounds")
    if chosen.report_with is not None:
        interpreter = selection.python(chosen.report_with)
        if interpreter is None:
            raise UserError(f"--report-with {chosen.report_with}: there is no such program")
        chosen.report_with = interpreter
    return chosen


def measure(chosen: argparse.Namespace, toolchain: Toolchain, machine: str) -> None:
    """Take the profile's rounds, or with --resume those that are left of the interrupted run, and file them."""
    check_machine(RESULTS / machine)
    state = State(ROOT / ".asv" / "runs" / machine)
    if state.publish(RESULTS):
        print("the interrupted run was whole; its results are filed now")
        if chosen.resume:
            return
    record = state.load() if chosen.resume else None
    if record:
        if record.toolchain.tag != toolchain.tag:
            raise UserError(f"the interrupted run was on {record.toolchain.tag}: --resume there, or run anew")
        then = {"profile": record.profile, "only": record.only, "rounds": record.planned}
        check_same({name: (getattr(chosen, name), before) for name, before in then.items()})
    elif chosen.resume:
        print("nothing to resume: a new run")
    register(machine)
    benchmarks = discover(machine)
    if not record:
        name = chosen.profile or DEFAULT
        rounds = chosen.rounds or PROFILES[name].rounds
        record = new_record(name, chosen.only, machine, toolchain, sys.executable, rounds)
        state.start(record)
    rounds, profile = record.planned, record.profile
    cells = cells_of(PROFILES[profile], benchmarks, record.only, profile, record.settings.no_device)
    if cells.on_device:
        # memory of the far node is another population
        record = replace(record, on_device=True, asleep=tuple(cells.asleep), cores=record.settings.near_cores)
    load, cores = record.conditions.load_average, record.conditions.cores_allowed
    if load is not None and cores is not None and load > 0.5 * cores:
        print(f"this machine is busy (load average {load:.1f}): it will take longer, and some cells may stay noisy")
    for said in cells.left_out():
        print(line(f"skipped: {said}"))
    total = cells.total(rounds)
    some = "" if cells.repeated == cells.processes else f", {cells.processes - cells.repeated} of them once"
    print(
        f"{toolchain} on {machine}: profile {profile}, {cells.processes} timed cells x {rounds} processes{some}, "
        f"{cells.looked_at} looked at once; up to {duration(budget(total, profile))} more where the machine is busy"
    )
    with progress(total, "measuring") as show:
        record = take_rounds(record, state, cells, rounds, show)
    file_record(record, toolchain.commit, state)
    waited = f"{record.waited:.0f} of them waiting for quiet"
    print(f"{record.samples} samples in {record.seconds:.0f} s, {waited}; {how_quiet(record)}")


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    try:
        toolchain = environments.toolchain()
    except ModuleNotFoundError as missing:
        raise UserError(f"{missing}: `make bench` installs everything") from None
    check_asv()
    if chosen.check:
        from measuring import checkup

        return checkup.check()
    machine = chosen.machine or environments.machine_name()
    with held(ROOT / ".asv" / "runs" / machine):
        measure(chosen, toolchain, machine)
    if chosen.no_report:
        print("results saved; python scripts/report.py builds the page")
        return 0
    return report.after_run(machine, chosen.report_with)


if __name__ == "__main__":
    cli.run(main)
