#!/usr/bin/env python3
"""Measure speed changes across torch, numpy and Python releases: install each release, time it
with asv, and file its results.

    python scripts/track.py                              torch and numpy, last patch of every minor
    python scripts/track.py --history numpy --since 2.0
    python scripts/track.py --history python --since 3.11    needs these Pythons, see docs/method.md
    python scripts/track.py --history torch --releases 2.6.0,2.13.0
    python scripts/track.py --again                      times once more: smaller intervals
    python scripts/track.py --dry-run                    print releases, minutes and disk space only
    python scripts/track.py --resume                     continue an interrupted run
    python scripts/track.py --new                        new releases, each against the one before
    python scripts/track.py --update                     only add new releases to releases.json

Every release gets a virtual environment in .asv/env. If torch comes with CUDA, it takes about 5 GB
and 90 seconds; --keep limits how many stay. All but two of them are measured at a time, each some
rounds behind the one before it, so that a machine which is slow for minutes is so for several
releases. They come from coarse to fine, so that an interrupted run still spans the whole history.
The first toolchain is measured again at the end, to show how the machine itself changed. Afterwards
`asv compare`, `asv find` and `asv publish` work across releases; releases.json lists them. The page
of the histories is built, too.
"""

import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain, groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import report
from cli import RESULTS, ROOT, CommandLine, Parser, UserError, one_line
from measuring.campaign import ENVIRONMENT_GB
from measuring.engine import check_asv, set_environment_limit, this_command
from measuring.journal import Journal, Plan, coarse_to_fine, due_plan, lock_directory
from measuring.machine import check_machine
from measuring.profiles import add_options, estimate_minutes, profile_options
from measuring.runner import Runner, choose_plan, start_runner
from msgspec.structs import replace
from toolchains import environments, ledger, selection

DEFAULT = "tracking"  # profile
RELEASES = ("history", "releases", "since")  # options that choose releases


def arguments(argv: CommandLine) -> Namespace:
    parser = Parser(__doc__)
    selection.add_release_options(parser)
    add_options(parser, DEFAULT)
    parser.option("--again", "time the releases once more, beside the sessions that are there")
    parser.option("--new", "measure new releases and compare each with the one before")
    parser.option("--update", "only add new releases to releases.json")
    parser.option("--verdicts DIR", "with --new: also write each verdict as Markdown and JSON")
    args = parser.parse_args(argv)
    watching = args.new or args.update
    for name in (*RELEASES, "only", "resume", "again", "dry_run"):
        if watching and getattr(args, name):
            raise UserError(f"--new and --update take no --{name.replace('_', '-')}")
    if args.verdicts and not args.new:
        raise UserError("--verdicts goes with --new")
    args.toolchains = selection.select_releases(args)
    return args


def update() -> list[ledger.Toolchain]:
    """Add new releases to releases.json and print them."""
    added = selection.update_releases()
    for toolchain in added:
        print(f"{toolchain.tag} is new: {toolchain.date}")
    if not added:
        print(f"no new releases since the last ones in {ledger.RELEASES.name}")
    return added


def ordered_tags(toolchains: Sequence[ledger.Toolchain]) -> tuple[str, ...]:
    """The tags of the releases, history by history, each from coarse to fine."""
    histories = groupby(toolchains, key=lambda toolchain: toolchain.history)
    tags = [coarse_to_fine([each.tag for each in releases]) for _, releases in histories]
    return tuple(chain(*tags))


def main(argv: CommandLine = None) -> int:
    args = arguments(argv)
    if args.update:
        update()
        return 0
    check_asv()
    machine = args.machine or environments.machine_name()
    runs = ROOT / ".asv" / "runs" / machine
    with nullcontext() if args.dry_run else lock_directory(runs):
        journal = Journal(runs / ("new" if args.new else "track"))
        fresh = Plan(machine, command=this_command(), **profile_options(args, DEFAULT))
        if not args.new:
            tags = ordered_tags(args.toolchains)
            fresh = replace(fresh, tags=tags, additional=tags if args.again else ())
            begins = args.dry_run and not args.resume  # an interrupted run's files stay
            return track(
                args, journal, fresh if begins else choose_plan(journal, args, fresh, RELEASES)
            )
        # before the index is queried, because a release is new only once
        check_machine(RESULTS / machine)
        plan = journal.plan() or due_plan(fresh, update())
        if plan is None:
            print(f"nothing is left to measure on {machine}")
            return 0
        journal.save(plan)
        code = track(args, journal, plan)
    try:
        from pages import release_news
    except ImportError as error:
        raise UserError(f"results saved; no verdict: {report.reason_of(error)}") from None
    releases = [ledger.toolchains_by_tag()[tag] for tag in plan.tags if tag not in plan.additional]
    codes = [code, *release_news.print_changes(RESULTS, machine, releases, args.verdicts)]
    # a slower release matters more than one that could not be measured
    return 1 if 1 in codes else max(codes)


def track(args: Namespace, journal: Journal, plan: Plan) -> int:
    """Carry out a plan, print its outcome, build the page, and return the exit code."""
    number = set_environment_limit(args.keep)
    left = Runner(journal, plan).remaining if args.resume or not args.dry_run else plan.tags
    minutes = estimate_minutes(plan.profile, "", plan.rounds)
    takes = "" if plan.only else f", about {minutes:.0f} min each"
    print(
        f"{len(left)} of {len(plan.tags)} toolchains on {plan.machine}{takes}, "
        f"profile {plan.profile}, {plan.rounds} processes per result, "
        f"at most {number} environments on disk "
        f"({number * ENVIRONMENT_GB} GB if torch includes CUDA)"
    )
    if args.dry_run:
        return 0
    runner = start_runner(journal, plan)
    option = "--new" if args.new else "--resume"
    try:
        failed = runner.measure()
        if journal.filed() and not args.no_report:
            report.after_run(plan.machine)
    except KeyboardInterrupt:
        print(
            f"{len(journal.filed())} sessions are saved; python scripts/track.py {option} continues"
        )
        raise
    for tag, reason in failed.items():
        print(one_line(f"{tag} has no results: {reason}"))
    # A new release without a wheel for this Python is final, or it would be tried again every week.
    # It is not final if the reason ends with an error of the index, in brackets
    final = re.compile(rf"{environments.NO_WHEEL}.*[^)]")
    missing = [tag for tag in failed if failed[tag].startswith(environments.NO_PYTHON)]
    lasting = args.new and all(map(final.fullmatch, failed.values()))
    if failed and not lasting:
        print(f"python scripts/track.py {option} tries those again")
    elif args.new:
        journal.forget()
    if len(failed) > len(missing) or len(missing) == len(plan.tags):
        return 2
    print("all saved; asv compare, asv find and asv publish work across releases")
    return 0


if __name__ == "__main__":
    cli.run(main)
