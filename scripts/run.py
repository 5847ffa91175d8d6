#!/usr/bin/env python3
"""Measure the torch and numpy of this Python on this machine, and build the page.

    python scripts/run.py                      the quick profile: first answers after the first of four rounds
    python scripts/run.py --profile standard   what published pages are made from: 27 minutes
    python scripts/run.py --resume             go on where an interrupted run stopped
    python scripts/run.py --check              is this machine fit to measure on? ten seconds, and what to change

    python scripts/run.py --resume --rounds 2  file what an interrupted run has, once that is two rounds

Everything is timed by asv, one process after the other, in rounds: each round gives every cell one more process and
is filed when it is done, so an interruption costs a round at most. Answers are printed after each. It says first how
long it takes here, by a look at how quiet the machine is.
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
from measuring import tracking
from measuring.checkup import QUIET_SHARE, quiet_now
from measuring.engine import RESULTS, ROOT, check_asv, register, this_command
from measuring.journal import Job, Journal, Plan, held
from measuring.machine import check_machine
from measuring.processes import duration
from measuring.profiles import PROFILES, Cells, check_chosen, minutes_of
from measuring.runner import Runner, budget
from store.files import BENCHMARKS
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


def plan_of(chosen: argparse.Namespace, machine: str, journal: Journal, toolchain: Toolchain) -> Plan:
    """What the command line asks for, or with --resume what the interrupted run was asked for."""
    same = ("profile", "only")
    plan = tracking.interrupted(
        journal, chosen.resume, lambda plan: {name: (getattr(chosen, name), getattr(plan, name)) for name in same}
    )
    if plan:
        record = journal.record(Job("", 0).session)
        if record and record.toolchain.tag != toolchain.tag:
            raise UserError(f"the interrupted run was on {record.toolchain.tag}: --resume there, or run anew")
        return replace(plan, rounds=chosen.rounds or plan.rounds)
    name = chosen.profile or DEFAULT
    rounds = chosen.rounds or PROFILES[name].rounds
    return Plan(machine, name, chosen.only or "", rounds, command=this_command())


def measure(chosen: argparse.Namespace, toolchain: Toolchain, machine: str) -> None:
    """Take the profile's rounds, or with --resume those that the interrupted run's journal lacks, and file them."""
    check_machine(RESULTS / machine)
    journal = Journal(ROOT / ".asv" / "runs" / machine / "run")
    plan = plan_of(chosen, machine, journal, toolchain)
    register(machine)
    runner = Runner(journal, plan, between=Answers(quiet=chosen.no_report))
    if not runner.left():
        print("the run was whole, and its results are filed")
        return
    (runner.planned,) = runner.sessions_of(plan.tags)
    session = runner.open(runner.planned[0])
    journal.save(plan)
    cells, at = session.cells, session.record.conditions
    if at.load_average is not None and at.cores_allowed is not None and at.load_average > 0.5 * at.cores_allowed:
        busy = f"this machine is busy (load average {at.load_average:.1f})"
        print(f"{busy}: it will take longer, and some cells may stay noisy")
    for said in cells.left_out():
        print(line(f"skipped: {said}"))
    print(f"{toolchain} on {machine}: profile {plan.profile}, {size_of(cells, plan.rounds)}; {time_of(runner)}")
    tracking.measure(runner)


def size_of(cells: Cells, rounds: int) -> str:
    each, total = f"x {rounds} processes", cells.total(rounds)
    if total != rounds * cells.processes:
        each = f"in {total} processes, up to {rounds} each"
    return f"{cells.processes} timed cells {each}, {cells.looked_at} looked at once"


def time_of(runner: Runner) -> str:
    """How long a run takes here: by its profile's estimate, and what it may wait where the machine is noisy now."""
    plan, quiet = runner.plan, quiet_now()
    least = 60 * minutes_of(plan.profile, len(runner.planned), plan.only, RESULTS / BENCHMARKS)
    most = least + (budget(runner.progress.total, plan.profile) if quiet < QUIET_SHARE else 0)
    span = duration(least) if most == least else f"{duration(least)} to {duration(most)}"
    return f"about {span}, for this machine is quiet {quiet:.0%} of the time"


class Answers:
    """Files the rounds so far, and prints what they say, after later ones what they say otherwise; quiet: nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.known = quiet, set[str]()

    def __call__(self, runner: Runner, job: Job) -> None:
        runner.file(job, whole=False)
        if self.quiet:
            return
        try:
            from pages import show
            from pages.build import build
        except ImportError:  # what was measured may have other needs than a page
            return

        def plain(words: str) -> str:
            return "".join(text for text, _ in show.spans(words))

        place = runner.journal.directory / "so-far"
        runner.file(job, place / "results")
        try:
            page, _ = build(place / "results", runner.plan.machine, place).pages[0]
        except (UserError, OSError) as error:  # the run is worth more
            print(line(f"no answers so far: {error}"))
            return
        lines = [f"{box.heading}: {plain(words)}" for box in page.boxes for words in box.said]
        fresh = [words for words in lines if words not in self.known]
        self.known = {*lines}
        if fresh:
            print(f"after round {job.round + 1} of {runner.plan.rounds}:", *fresh, sep="\n  ", flush=True)


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
