#!/usr/bin/env python3
"""Measure speed changes across torch and numpy releases: install each release, time it with asv, and file its results.

    python scripts/track.py                              both histories, the last patch of every minor release
    python scripts/track.py --history numpy --since 2.0
    python scripts/track.py --history torch --releases 2.6.0,2.13.0
    python scripts/track.py --resume                     continue an interrupted run
    python scripts/track.py --new                        new releases: measure each and compare it with the one before
    python scripts/track.py --update                     only add new releases to releases.json
    python scripts/track.py --new --pre                  newest release candidates, in turns with the last release

Every release gets a virtual environment in .asv/env. If torch comes with CUDA, it takes about 5 GB and 90 seconds;
--keep limits how many stay. Releases are measured from coarse to fine, so that an interrupted run still spans the whole
history. The first toolchain is measured again at the end, to show how the machine itself changed. Afterwards
`asv compare`, `asv find` and `asv publish` work across releases; `git -C .asv/ledger tag` lists their names. The page
of the histories is built, too.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import report
from cli import ONLY, Parser, UserError, check_whole, line
from measuring import tracking
from measuring.engine import RESULTS, ROOT, check_asv, register, this_command
from measuring.journal import Journal, Plan, held
from measuring.machine import check_machine
from measuring.profiles import PROFILES, check_chosen
from measuring.runner import Runner
from measuring.tracking import coarse_to_fine, due_plan
from toolchains import environments, index, ledger, selection

RELEASES = ("history", "releases", "since")  # the options that choose them


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    selection.add_releases(parser)
    parser.add_argument("--profile", help=f"one of: {', '.join(PROFILES)} (default: tracking)")
    parser.add_argument("--only", metavar="REGEX", help=ONLY)
    parser.add_argument(
        "--rounds", type=int, help="number of rounds, each with one process per result (default: the profile's)"
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue with the releases that an interrupted run did not finish"
    )
    parser.add_argument("--new", action="store_true", help="measure new releases and compare each with the one before")
    parser.add_argument("--update", action="store_true", help="only add new releases to releases.json")
    parser.add_argument("--pre", action="store_true", help="with --new: measure the newest release candidates instead")
    parser.add_argument(
        "--index-url", metavar="URL", help="with --pre: package index to use, such as one with nightly builds"
    )
    parser.add_argument(
        "--verdicts", metavar="DIR", type=Path, help="with --new: also write each verdict as Markdown and JSON"
    )
    parser.add_argument(
        "--keep", type=int, metavar="N", help="maximum number of environments on disk (default: from asv.conf.json)"
    )
    parser.add_argument("--machine", help="name of this machine in reports/results (default: made from the hardware)")
    parser.add_argument("--no-report", action="store_true", help="do not build the page")
    chosen = parser.parse_args(argv)
    check_chosen(chosen.profile, chosen.machine, chosen.only)
    check_whole(chosen, "rounds", "keep")
    watching = chosen.new or chosen.update
    barred = [name for name in (*RELEASES, "only", "resume") if watching and getattr(chosen, name)]
    if barred:
        raise UserError(f"--new and --update take no --{barred[0]}")
    for option, needed in (("verdicts", "new"), ("pre", "new"), ("index_url", "pre")):
        if getattr(chosen, option) and not getattr(chosen, needed):
            raise UserError(f"--{option.replace('_', '-')} goes with --{needed}")
    chosen.toolchains = selection.chosen_releases(chosen)[1]
    return chosen


def plan_of(chosen: argparse.Namespace, machine: str, journal: Journal) -> Plan:
    """What the command line asks for, or with --resume what is left of the interrupted run."""
    histories = groupby(chosen.toolchains, key=lambda toolchain: toolchain.history)
    tags = tuple(toolchain.tag for _, releases in histories for toolchain in coarse_to_fine(list(releases)))

    def options(plan: Plan) -> dict[str, tuple[object, object]]:
        asked = {name: (getattr(chosen, name) and tags, plan.tags) for name in RELEASES}
        return asked | {name: (getattr(chosen, name), getattr(plan, name)) for name in ("profile", "only")}

    plan = tracking.interrupted(journal, chosen.resume, options)
    if plan:
        return replace(plan, rounds=chosen.rounds or plan.rounds)
    return Plan(machine, *how(chosen), tags, this_command())


def how(chosen: argparse.Namespace) -> tuple[str, str, int]:
    """Profile, cells and rounds that the command line asks for."""
    name = chosen.profile or "tracking"
    return name, chosen.only or "", chosen.rounds or PROFILES[name].rounds


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    if chosen.pre:
        return candidate(chosen)
    added = []
    if chosen.new or chosen.update:
        added = index.update()
        for toolchain in added:
            print(f"{toolchain.tag} is new: {toolchain.date}")
        if not added:
            print(f"nothing came since the last releases in {ledger.RELEASES.name}")
    if chosen.update:
        return 0
    check_asv()
    machine = chosen.machine or environments.machine_name()
    runs, every = ROOT / ".asv" / "runs" / machine, ledger.tagged()
    with held(runs):
        journal = Journal(runs / ("new" if chosen.new else "track"))
        if not chosen.new:
            return track(chosen, journal, plan_of(chosen, machine, journal))
        plan = journal.plan() or due_plan(Plan(machine, *how(chosen), command=this_command()), added)
        if plan is None:
            print(f"nothing is left to measure on {machine}")
            return 0
        releases = [every[tag] for tag in plan.tags if tag not in plan.beside and tag in every]
        code = track(chosen, journal, plan)
    try:
        from pages import release_notes
    except ImportError as error:
        raise UserError(f"results saved; no verdict: {report.reason_of(error)}") from None
    return worst([code, *release_notes.tell(RESULTS, machine, releases, chosen.verdicts)])


def track(chosen: argparse.Namespace, journal: Journal, plan: Plan) -> int:
    """Carry out a plan, say what came of it, and build the page; the exit code."""
    from toolchains import plugin  # imports asv, which check_asv has found

    keep = chosen.keep or environments.keep(plugin.configured("keep_environments"))
    os.environ[environments.KEEP_VARIABLE] = str(keep)  # for asv
    check_machine(RESULTS / plan.machine)
    register(plan.machine)
    journal.save(plan)
    runner = Runner(journal, plan, keep)
    print(
        f"{len(runner.left())} of {len(plan.tags)} toolchains on {plan.machine}, "
        f"profile {plan.profile}, {plan.rounds} processes a cell, at most {keep} environments on disk"
    )
    again = "--new" if chosen.new else "--resume"
    try:
        failed = tracking.measure(runner)
        if journal.filed() and not chosen.no_report:
            report.after_run(plan.machine)
    except KeyboardInterrupt:
        print(f"{len(journal.filed())} sessions are saved; python scripts/track.py {again} goes on")
        raise
    for tag, reason in failed.items():
        print(line(f"{tag} has no results: {reason}"))
    # a new release that is not for this Python is done with, or every week would try it again
    lasting = chosen.new and all(reason.startswith(environments.NO_WHEEL) for reason in failed.values())
    if failed and not lasting:
        print(f"python scripts/track.py {again} tries those again")
        return 2
    if chosen.new:
        journal.forget()
    if failed:
        return 2
    print("all saved; asv compare, asv find and asv publish work over releases")
    return 0


def candidate(chosen: argparse.Namespace) -> int:
    """Compare the newest candidate of each package with the last release; the worst exit code."""
    import compare

    check_asv()
    options = ["--index-url", chosen.index_url] if chosen.index_url else []
    more = ["--machine", chosen.machine] if chosen.machine else []
    return worst(
        [
            compare.main(["--run", last, str(environment), "--profile", chosen.profile or "gate", *more])
            for last, environment in index.candidate_environments(ROOT / ".asv" / "candidates", options)
        ]
    )


def worst(codes: Sequence[int]) -> int:
    """Of exit codes: what is slower was found, whatever else was not measured."""
    return 1 if 1 in codes else max(codes, default=0)


if __name__ == "__main__":
    cli.run(main)
