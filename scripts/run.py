#!/usr/bin/env python3
"""Measure the torch and numpy of this Python on this machine, and build the page.

    python scripts/run.py                      quick profile, 4 minutes; answers after each round
    python scripts/run.py --profile standard   profile of the published pages, about 27 minutes
    python scripts/run.py --resume             continue an interrupted run
    python scripts/run.py --check              check in ten seconds if this machine is quiet
    python scripts/run.py --resume --rounds 2  file an interrupted run that has two finished rounds
    python scripts/run.py --describe           describe benchmarks/ anew; measures nothing

asv times everything, one process at a time, in rounds. Each of the first two rounds gives every
result a process. Later rounds are a race: only results that can still change an answer go on. A
finished round is filed, so an interruption loses one round at most. Answers are printed after each
round, and first ones when the small arrays are measured. The expected duration on this machine is
printed first.
"""

import itertools
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import psutil
import report
from cli import RESULTS, ROOT, CommandLine, Parser, UserError, one_line
from measuring.engine import Suite, announce, check_asv, this_command
from measuring.journal import Job, Journal, Plan, lock_directory, recorded_toolchains
from measuring.machine import QUIET_SHARE, check, quiet_now
from measuring.processes import duration
from measuring.profiles import (
    PROFILES,
    TRACKING,
    add_options,
    estimate_minutes,
    profile_options,
    select,
)
from measuring.retaking import budget
from measuring.runner import BeforeRound, Runner, choose_plan, start_runner
from store.files import BENCHMARKS
from store.schema import Reasons
from toolchains import environments, ledger, selection
from toolchains.ledger import Toolchain

if TYPE_CHECKING:
    from analysis.results import Results

DEFAULT = "quick"  # profile
NOT_YET = " (not significant yet)"  # follows an answer
ROUNDS_BEFORE_RACE = 2  # that every result takes, if its profile gives it as many


def interpreter(name: str) -> Path:
    """Check and return the Python of --report-with. UserError if it is no Python."""
    program = selection.find_python(name)
    if program is None:
        raise UserError(f"--report-with {name}: there is no such program")
    return program


def arguments(argv: CommandLine) -> Namespace:
    parser = Parser(__doc__)
    add_options(parser, DEFAULT)
    parser.option(
        "--report-with PYTHON", "Python that builds the page (default: this one)", type=interpreter
    )
    parser.option(
        "--no-race", "take all rounds of every result, as comparing this run with another needs"
    )
    parser.option(
        "--check", "check whether this machine is quiet enough, and exit (status 1: it is not)"
    )
    parser.option(
        "--describe", "describe benchmarks/ anew in reports/results/benchmarks.json, and exit"
    )
    return parser.parse_args(argv)


def measure(args: Namespace, toolchain: Toolchain, machine: str) -> None:
    """Measure and file the profile's rounds; with --resume, the rounds missing in the interrupted
    run's journal."""
    journal = Journal(ROOT / ".asv" / "runs" / machine / "run")
    fresh = Plan(
        machine,
        command=this_command(),
        race=not args.no_race,
        **profile_options(args, DEFAULT),
    )
    plan = choose_plan(journal, args, fresh)
    interrupted = journal.record(Job(""))
    if interrupted and interrupted.toolchain.tag != toolchain.tag:
        raise UserError(
            f"the interrupted run was on {interrupted.toolchain.tag}: --resume there, or run anew"
        )
    runner = start_runner(journal, plan)
    if not runner.remaining:
        print("the run was complete: its results are filed")
        return
    print_plan(runner, toolchain)
    runner.measure(judge_rounds(is_silent=args.no_report))


def print_plan(runner: Runner, toolchain: Toolchain) -> None:
    """Print what is skipped, what is measured, and how long that takes here."""
    plan = runner.plan
    cells = runner.open(Job("")).cells
    for reason, names in cells.unavailable.items():
        families = dict.fromkeys(name.partition(".")[0] for name in names)
        print(one_line(f"skipped: {len(names)} benchmarks ({', '.join(families)}): {reason}"))
    timed = len(cells.timed)
    total = cells.total(plan.rounds)
    processes = f"in {'at most ' * plan.race}{total} processes, up to {plan.rounds} each"
    if total == plan.rounds * timed and not plan.race:
        processes = f"x {plan.rounds} processes"
    print(
        f"{toolchain} on {plan.machine}: profile {plan.profile}, {timed} timed cells {processes}, "
        f"{len(cells.names) - timed} looked at once; {time_of(runner, total)}"
    )


def time_of(runner: Runner, processes: int) -> str:
    """The expected duration of a run here, from its profile's estimate. It is longer if the machine
    is noisy now: the run may wait, and everything slows by the same factor as the speed probes."""
    plan = runner.plan
    seconds = 60 * estimate_minutes(plan.profile, plan.only, plan.rounds, runner.benchmarks)
    span = [duration(seconds)]
    quiet, slowdown = quiet_now()
    if quiet < QUIET_SHARE:
        span.append(duration(slowdown * seconds + budget(processes, plan.profile)))
    span = list(dict.fromkeys(span))
    return f"about {' to '.join(span)}, for this machine was quiet {quiet:.0%} of the last second"


def judge_rounds(is_silent: bool) -> BeforeRound:
    """Return a function that files the rounds so far, prints their answers, and returns why results
    take no further process.

    After later rounds it prints only answers that are new or whose significance changed. It prints
    nothing if ``is_silent``. Nothing stops if this Python lacks packages.
    """
    printed: dict[tuple[str, str, str], bool] = {}

    def before_round(runner: Runner, job: Job) -> Reasons:
        record = runner.file(job, complete=False)
        races = runner.plan.race and job.round >= ROUNDS_BEFORE_RACE
        if is_silent and not races:
            return {}
        try:
            from analysis.results import load_files

            file = RESULTS / runner.plan.machine / f"{record.file}.json"
            loaded = load_files(RESULTS, [file], record.started)
            if not is_silent:
                print_answers(runner, job, loaded, printed)
            return race(runner, job, loaded) if races else {}
        except ImportError:
            return {}
        except (UserError, OSError) as error:  # no reason to stop the run
            print(one_line(f"no answers so far: {error}"))
            return {}

    return before_round


def print_answers(
    runner: Runner, job: Job, loaded: "Results", printed: dict[tuple[str, str, str], bool]
) -> None:
    """Print the answers of the rounds before a job, unless they were ``printed`` as significant as
    they are now."""
    from pages import machine, show

    page = machine.machine_page(loaded, None, runner.plan.machine, [], [])
    seconds = time.time() - psutil.Process().create_time()
    rounds = f"round {job.round} of {runner.plan.rounds}" if job.round else "the first results"
    print(f"after {rounds}, {seconds:.0f} s since the start:")
    takes = {
        (box.heading, take.condition, take.route): take
        for box in page.boxes
        for take in box.recommendations
    }
    for key, take in takes.items():
        if printed.get(key) != take.tied:
            print(f"  {key[0]}: {show.bare(take.sentence)}{NOT_YET if take.tied else ''}")
    printed.clear()
    printed.update((key, take.tied) for key, take in takes.items())
    every = len(loaded.timed)
    if noisy := every - int(loaded.timed["quiet"].sum()):
        print(
            f" {show.UPPER_BOUND_MARK} upper bound: "
            f"{noisy} of {every} results have no quiet process yet"
        )
    sys.stdout.flush()


def race(runner: Runner, job: Job, loaded: "Results") -> Reasons:
    """Return why results take no further process, by the rounds before a job. Those of a history
    of the machine take all: its changes rest on them."""
    from analysis.cells import cells_of
    from analysis.racing import stop_reasons

    reasons = stop_reasons(cells_of(loaded), history_cells(runner, job))
    stopped = sum(map(len, reasons.values()))
    timed = len(runner.open(job).cells.round(job.round))
    announce(
        f"results that further processes can change an answer by: {timed - stopped} of {timed}"
    )
    return reasons


def history_cells(runner: Runner, job: Job) -> list[str]:
    """Return the cells of a session that a history of its machine has, too."""
    commit = runner.open(job).commit
    recorded = recorded_toolchains(RESULTS, runner.plan.machine).keys() - {"", commit}
    if not recorded or commit not in ledger.toolchains_by_commit():
        return []
    return [*itertools.chain(*select(PROFILES[TRACKING], runner.benchmarks).values())]


def main(argv: CommandLine = None) -> int:
    args = arguments(argv)
    try:
        toolchain = environments.read_toolchain()
    except ModuleNotFoundError as missing:
        raise UserError(f"{missing}: `make bench` installs everything") from None
    check_asv()
    if args.check:
        return check()
    machine = args.machine or environments.machine_name()
    if args.describe:
        # keep nothing else that asv writes, because it does not depend on benchmarks/
        Suite().discover(machine, copy_to=RESULTS / BENCHMARKS)
        print((RESULTS / BENCHMARKS).relative_to(ROOT))
        return 0
    with lock_directory(ROOT / ".asv" / "runs" / machine):
        measure(args, toolchain, machine)
    if args.no_report:
        print("results saved; python scripts/report.py builds the page")
        return 0
    return report.after_run(machine, args.report_with)


if __name__ == "__main__":
    cli.run(main)
