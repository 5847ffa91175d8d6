#!/usr/bin/env python3
"""Measure the torch and numpy of this Python on this machine, and build the page.

    python scripts/run.py                      the quick profile: about two minutes of benchmarking
    python scripts/run.py --profile standard   what published pages are made from: 8 minutes
    python scripts/run.py --resume             go on where an interrupted run stopped

Everything is timed by asv, one process after the other, in rounds: each round gives every cell one more process and
is saved when it is done, so an interruption costs a round at most.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from analysis.cli import Parser, UserError, run
from measure import (
    RESULTS,
    ROOT,
    State,
    budget,
    build_pages,
    cells_of,
    check_asv,
    check_chosen,
    check_machine,
    discover,
    duration,
    file_record,
    how_calm,
    new_record,
    progress,
    take_rounds,
)
from profiles import PROFILES, Profile
from toolchains import installed, ledger


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--profile", default="quick", help=f"one of: {', '.join(PROFILES)} (default: quick)")
    parser.add_argument("--machine", help="name to file the results under (default: made of the hardware)")
    parser.add_argument("--rounds", type=int, help="processes a cell (default: the profile's)")
    parser.add_argument("--only", metavar="REGEX", help="restrict the profile to benchmarks whose name matches")
    parser.add_argument("--resume", action="store_true", help="keep the rounds of an interrupted run and add the rest")
    parser.add_argument("--report-with", metavar="PYTHON", help="Python that builds the page (default: this one)")
    parser.add_argument("--no-report", action="store_true", help="measure only; scripts/report.py builds the page")
    chosen = parser.parse_args(argv)
    check_chosen(chosen.profile, chosen.machine, chosen.only)
    if chosen.rounds is not None and chosen.rounds < 1:
        raise UserError("--rounds takes a whole number from 1")
    return chosen


def check_ready() -> ledger.Toolchain:
    """The installed toolchain; UserError where something that timing needs is missing or of another version."""
    try:
        toolchain = installed.toolchain()
    except ModuleNotFoundError as missing:
        raise UserError(f"{missing}: `make bench` installs everything") from None
    check_asv()
    return toolchain


def measure(chosen: argparse.Namespace, profile: Profile, toolchain: ledger.Toolchain, machine: str) -> Path:
    """Run the profile's rounds; the run record that lies beside asv's result file."""
    from toolchains import plugin  # imports asv, which check_ready has found

    check_machine(RESULTS / machine)
    plugin.register(machine)
    benchmarks = discover(machine)
    rounds = chosen.rounds or profile.rounds

    state = State(ROOT / ".asv" / "runs" / machine)
    record = state.load() if chosen.resume else None
    if record and (record["profile"], record["toolchain"]["tag"]) != (chosen.profile, toolchain.tag):
        raise UserError(
            f"the interrupted run was {record['profile']} on {record['toolchain']['tag']}: run that, or anew"
        )
    if chosen.resume and not record:
        print("nothing to resume: a new run")
    if not record:
        record = new_record(chosen.profile, chosen.only, machine, toolchain)
        state.start(record)
    device = record["settings"]["device"]
    cells = cells_of(profile, benchmarks, chosen.only, chosen.profile, device)
    load = record["conditions"]["load_average"]
    if load is not None and load > 0.5 * record["conditions"]["cores_allowed"]:
        print(f"this machine is busy (load average {load:.1f}): it will take longer, and some cells may find no calm")
    if cells.unavailable:
        print(f"skipped: {len(cells.unavailable)} benchmarks of transfers: {record['settings']['no_device']}")
    print(
        f"{toolchain} on {machine}: profile {chosen.profile}, {cells.processes} timed cells x {rounds} processes, "
        f"{cells.looked_at} looked at once; up to {duration(budget(cells.processes * rounds))} more where the machine "
        "is busy"
    )
    with progress(cells.processes * rounds, "measuring") as show:
        take_rounds(record, state, cells, rounds, show)
    path = file_record(record, toolchain.commit, state.lines())
    state.finish()
    waited = f"{record['waited']:.0f} of them waiting for calm"
    print(f"{record['samples']} samples in {record['seconds']:.0f} s, {waited}; {how_calm(record)}")
    return path


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    toolchain = check_ready()
    machine = chosen.machine or installed.machine_name(os.cpu_count() or 1)
    measure(chosen, PROFILES[chosen.profile], toolchain, machine)
    if chosen.no_report:
        print("results saved; python scripts/report.py builds the page")
        return 0
    return build_pages(machine, chosen.report_with)


if __name__ == "__main__":
    run(main)
