#!/usr/bin/env python3
"""Measure the torch and numpy of this Python on this machine, and build the page.

    python scripts/run.py                      the quick profile: about two minutes of benchmarking
    python scripts/run.py --profile standard   what published pages are made from: 8 minutes
    python scripts/run.py --resume             go on where an interrupted run stopped
    python scripts/run.py --check              is this machine fit to measure on? ten seconds, and what to change

Everything is timed by asv, one process after the other, in rounds: each round gives every cell one more process and
is kept when it is done, so an interruption costs a round at most. Results are filed when all rounds are done.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

from cli import ONLY, Parser, UserError, line, run
from measuring.engine import RESULTS, ROOT, check_asv, discover, register
from measuring.machine import check_machine
from measuring.profiles import PROFILES, check_chosen
from measuring.progress import duration, progress
from measuring.record import file_record, how_calm, new_record, record_file
from measuring.rounds import budget, cells_of, take_rounds
from measuring.state import State, held
from toolchains import asked, installed, ledger

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
    if chosen.rounds is not None and chosen.rounds < 1:
        raise UserError("--rounds takes a whole number from 1")
    if chosen.report_with is not None:
        found = asked.python(chosen.report_with)
        if found is None:
            raise UserError(f"--report-with {chosen.report_with}: there is no such program")
        chosen.report_with = found
    return chosen


def check_ready() -> ledger.Toolchain:
    """The installed toolchain; UserError where something that timing needs is missing or of another version."""
    try:
        toolchain = installed.toolchain()
    except ModuleNotFoundError as missing:
        raise UserError(f"{missing}: `make bench` installs everything") from None
    check_asv()
    return toolchain


def check_resumed(chosen: argparse.Namespace, toolchain: ledger.Toolchain, record: Mapping[str, Any]) -> None:
    """UserError where the command line asks for another run than the interrupted one."""
    if record["toolchain"]["tag"] != toolchain.tag:
        raise UserError(f"the interrupted run was on {record['toolchain']['tag']}: --resume there, or run anew")
    asked = {"--profile": (chosen.profile, "profile"), "--only": (chosen.only, "only")}
    asked["--rounds"] = chosen.rounds, "planned"
    changed = [name for name, (value, known) in asked.items() if value is not None and value != record[known]]
    if changed:
        raise UserError(f"the interrupted run was another by {', '.join(changed)}: --resume alone goes on with it")


def measure(chosen: argparse.Namespace, toolchain: ledger.Toolchain, machine: str) -> Path:
    """Run the profile's rounds; the run record that lies beside asv's result file."""
    filed = record_file(machine, toolchain.commit)
    check_machine(RESULTS / machine)
    state = State(ROOT / ".asv" / "runs" / machine)
    if state.publish(RESULTS):
        print("the interrupted run was whole; its results are filed now")
        if chosen.resume:
            return filed
    record = state.load() if chosen.resume else None
    if record:
        check_resumed(chosen, toolchain, record)
    elif chosen.resume:
        print("nothing to resume: a new run")
    register(machine)
    benchmarks = discover(machine)
    if not record:
        name = chosen.profile or DEFAULT
        rounds = chosen.rounds or PROFILES[name].rounds
        record = new_record(name, chosen.only, machine, toolchain, sys.executable, rounds)
        state.start(record, [filed.with_suffix(".json")])
    rounds, profile = record["planned"], record["profile"]
    cells = cells_of(PROFILES[profile], benchmarks, record["only"], profile, record["settings"]["device"])
    load = record["conditions"]["load_average"]
    if load is not None and load > 0.5 * record["conditions"]["cores_allowed"]:
        print(f"this machine is busy (load average {load:.1f}): it will take longer, and some cells may find no calm")
    if cells.unavailable:
        why = record["settings"]["no_device"]
        print(line(f"skipped: {len(cells.unavailable)} benchmarks of transfers: {why}"))
    print(
        f"{toolchain} on {machine}: profile {profile}, {cells.processes} timed cells x {rounds} processes, "
        f"{cells.looked_at} looked at once; up to {duration(budget(cells.processes * rounds))} more where the machine "
        "is busy"
    )
    with progress(cells.processes * rounds, "measuring") as show:
        take_rounds(record, state, cells, rounds, show)
    path = file_record(record, toolchain.commit, state)
    waited = f"{record['waited']:.0f} of them waiting for calm"
    print(f"{record['samples']} samples in {record['seconds']:.0f} s, {waited}; {how_calm(record)}")
    return path


def build_pages(machine: str, python: Path | None = None) -> int:
    """Build the pages of what was measured, with ``python`` where this one lacks what a page needs; the exit code."""
    if python:
        return subprocess.run([str(python), str(ROOT / "scripts" / "report.py"), "--machine", machine]).returncode
    try:
        import report
    except ImportError as error:  # pandas missing, or too new for the numpy that was measured
        reason = f"needs {error.name}" if isinstance(error, ModuleNotFoundError) else str(error).splitlines()[0]
        print(
            f"results saved; no page: {reason}. python scripts/report.py builds it where requirements.txt is installed"
        )
        return 0
    return report.main(["--machine", machine])


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    toolchain = check_ready()
    if chosen.check:
        from measuring import checkup

        return checkup.check()
    machine = chosen.machine or installed.machine_name(os.cpu_count() or 1)
    with held(ROOT / ".asv" / "runs" / machine):
        measure(chosen, toolchain, machine)
    if chosen.no_report:
        print("results saved; python scripts/report.py builds the page")
        return 0
    return build_pages(machine, chosen.report_with)


if __name__ == "__main__":
    run(main)
