#!/usr/bin/env python3
"""Measure a history on many machines through Slurm: each release on several nodes of a type.

    python scripts/fleet.py --history torch                   without Slurm, on this machine
    python scripts/fleet.py --history torch --partition cpu --nodes 4 --copies 2
                                                              jobs of this cluster
    python scripts/fleet.py --resume                          continue, from any login node

Every node measures the reference, a block of releases, and the reference again. Each release is
measured on several nodes, with the code as it is now. Results are gathered as they arrive, under
the name of the machine type and an anonymous name per node. Sessions that are missing when no job
is left are submitted again on other nodes. You can stop this program at any time: jobs continue,
and --resume gathers their results. The plan is printed first. Jobs are submitted with submitit.
"""

import re
import shlex
import sys
from argparse import Namespace
from contextlib import nullcontext
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import report
from cli import ROOT, CommandLine, Parser, UserError, whole_number
from measuring import campaign as campaigns
from measuring import fleet
from measuring.campaign import Campaign
from measuring.engine import check_asv, new_id, set_environment_limit
from measuring.fleet import DEBUG, SLURM, check_cluster
from measuring.journal import Plan, lock_directory
from measuring.profiles import add_options, estimate_minutes, profile_options
from toolchains import environments, selection
from toolchains.ledger import Toolchain

DEFAULT = "tracking"  # profile
# Slurm may warn a minute too early, which with GRACE is before a shorter job can react
LEAST_MINUTES = 3
OPTIONS = {  # Slurm's
    "partition": "partition",
    "constraint": "feature that nodes must have",
    "account": "account",
    "qos": "quality of service",
    "mem": "memory of a job, such as 16G",
    "gres": "generic resources, such as gpu:1",
    "reservation": "reservation",
}
# Options that affect figures. The command in run records has these, and no options that name a
# place
DECIDING: tuple[str, ...] = (
    "history",
    "releases",
    "since",
    "reference",
    "profile",
    "only",
    "rounds",
    "nodes",
)
DECIDING += ("copies", "engine")


def arguments(argv: CommandLine) -> Namespace:
    parser = Parser(__doc__)
    selection.add_release_options(parser)
    add_options(parser, DEFAULT)
    parser.option("--reference 2.13.0", "release that every node measures (default: the newest)")
    parser.option("--nodes N", "nodes per machine type (default: 4; 1 with --engine debug)")
    parser.option("--copies N", "nodes that measure each release (default: 2; 1 with one node)")
    engine = (
        "slurm: submit jobs; debug: measure on this machine "
        "(default: slurm if a partition is given)"
    )
    parser.option("--engine", engine, choices=(DEBUG, SLURM))
    for name, about in OPTIONS.items():
        parser.option(f"--{name} {name.upper()}", f"Slurm option: {about}")
    time = partial(whole_number, least=LEAST_MINUTES)
    parser.option("--time MINUTES", "limit of a job (default: estimated)", type=time)
    parser.option("--shared", "allow other jobs on the nodes at the same time")
    parser.option("--scratch DIR", "a node's directory for environments (default: /tmp)")
    parser.option("--wheelhouse DIR", "download wheels here, and install from here")
    args = parser.parse_args(argv)
    args.options = {name: getattr(args, name) for name in OPTIONS if getattr(args, name)}
    if args.engine == DEBUG and args.options:
        raise UserError(
            f"--engine debug measures on this machine and takes no --{', --'.join(args.options)}"
        )
    args.engine = args.engine or (SLURM if args.options else DEBUG)
    args.nodes = args.nodes or (1 if args.engine == DEBUG else 4)
    args.copies = args.copies or min(2, args.nodes)
    if args.copies > args.nodes:
        raise UserError(
            f"--copies {args.copies} needs at least as many nodes, but --nodes is {args.nodes}"
        )
    args.toolchains = selection.select_releases(args)
    args.reference = reference_of(args).tag
    return args


def reference_of(args: Namespace) -> Toolchain:
    """The release that every node measures: as given, or the newest of the first history."""
    if not args.reference:
        first = args.toolchains[0].history
        return [each for each in args.toolchains if each.history == first][-1]
    histories = selection.selected_histories(args)
    reference = selection.find_release(args.reference, histories)
    if reference is None:
        raise UserError(f"--reference {args.reference}: no release of {' or '.join(histories)}")
    return reference


def machine_of(args: Namespace) -> str:
    """The machine name for results: as given, of the only campaign to resume, or made from the
    options that choose nodes."""
    name = args.machine or "-".join(filter(None, (args.partition, args.constraint)))
    if args.resume and not name:
        begun = sorted(path.parent.name for path in campaigns.FLEET.glob(f"*/{campaigns.PLAN}"))
        if len(begun) != 1:
            which = f"several campaigns are incomplete; name one with --machine: {', '.join(begun)}"
            raise UserError(which if begun else "nothing to resume: no campaign is incomplete")
        (name,) = begun
    name = name or ("slurm" if args.engine == SLURM else f"{environments.machine_name()}-fleet")
    return selection.check_machine_name(name)


def campaign_of(args: Namespace, machine: str) -> Campaign:
    """Make the campaign of the command line for a machine type."""
    debug = args.engine == DEBUG
    scratch = args.scratch or (ROOT / ".asv" if debug else Path("/tmp"))
    shown: list[str] = []
    for name in filter(vars(args).get, DECIDING):
        shown += (f"--{name}", str(getattr(args, name)))
    profile = profile_options(args, DEFAULT)
    # instruction counts of one node alone say nothing about a release
    if args.copies == 1 < args.nodes:
        only = profile["only"]
        profile["only"] = rf"^(?!instructions\.).*?(?:{only}|{re.escape(only)})"
    minutes = estimate_minutes(**profile)
    tags = tuple(toolchain.tag for toolchain in args.toolchains if toolchain.tag != args.reference)
    longest = max(map(len, campaigns.deal(tags, args.nodes, args.copies)))
    command = shlex.join(["python", "scripts/fleet.py", *shown])
    return Campaign(
        id=f"fleet-{new_id()}",
        slurm=not debug,
        plan=Plan(machine, **profile, tags=tags, command=command, reference=args.reference),
        nodes=args.nodes,
        copies=args.copies,
        keep=set_environment_limit(args.keep),
        scratch=str(scratch.absolute()),
        wheelhouse=str(args.wheelhouse.absolute()) if args.wheelhouse else "",
        minutes=minutes,
        allowed=args.time
        or round(campaigns.TIME_LIMIT_FACTOR * campaigns.minutes_for(longest, minutes)) + 10,
        options={**args.options, **({} if args.shared or debug else {"exclusive": True})},
    )


def main(argv: CommandLine = None) -> int:
    check_asv()
    program, *job = (sys.argv[1:] if argv is None else argv) or [""]
    if program == campaigns.ON_NODE:
        directory, node, *tags = job
        return fleet.on_node(Path(directory), node, tags)
    args = arguments(argv)
    machine = machine_of(args)
    with nullcontext() if args.dry_run else lock_directory(campaigns.FLEET / machine):
        if args.resume:
            campaign = Campaign.load(campaigns.FLEET / machine)
            if campaign is None:
                raise UserError(f"nothing to resume on {machine}: leave out --resume")
            # the user has looked, so allow as many submissions again
            campaign.submitted = min(campaign.submitted, 1)
        else:
            campaign = campaign_of(args, machine)
            if campaign.slurm:
                check_cluster(campaign)
            if not args.dry_run:
                fleet.end_earlier(machine)
        print(*campaign.summary(), sep="\n", flush=True)
        if args.dry_run:
            return 0
        return fleet.measure(campaign, (lambda machine: 0) if args.no_report else report.after_run)


if __name__ == "__main__":
    cli.run(main)
