#!/usr/bin/env python3
"""Measure a history on many machines through Slurm: each release on several nodes of a type.

    python scripts/fleet.py --history torch --nodes 4 --copies 2 --partition cpu    jobs of this cluster
    python scripts/fleet.py --history torch --types "cpu gpu-a100"                  a history of each type of node
    python scripts/fleet.py --resume                                                go on, from any login node
    python scripts/fleet.py --history torch                                         without Slurm: here, one by one

Every node measures the reference, a block of releases, and the reference again. Each release is measured on several
nodes, with the code as it is now. Results are gathered as they arrive, under the name of the machine type and an
anonymous name per node. Sessions that are missing when no job is left are submitted again on other nodes.
You can stop this program at any time: jobs continue, and --resume gathers their results. The plan is printed first.
Jobs are submitted with submitit.
"""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import report
from cli import Parser, UserError, check_whole
from measuring import fleet
from measuring.engine import RESULTS, ROOT, check_asv, keep, new_id
from measuring.fleet import DEBUG, SLURM, Campaign
from measuring.journal import Plan, held
from measuring.profiles import add_options, asked_for, check_chosen, minutes_of
from store.files import BENCHMARKS
from toolchains import environments, selection

DEFAULT = "tracking"  # profile
OPTIONS = {  # Slurm's
    "partition": "partition",
    "constraint": "feature that nodes must have",
    "account": "account",
    "qos": "quality of service",
    "mem": "memory of a job, such as 16G",
    "gres": "generic resources, such as gpu:1",
    "reservation": "reservation",
}
# That decide a figure: the run records' command has these, and none that names a place
DECIDING = ("history", "releases", "since", "reference", "profile", "only", "rounds", "nodes", "copies", "engine")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    selection.add_releases(parser)
    add_options(parser, DEFAULT)
    parser.add_argument("--reference", metavar="2.13.0", help="release that every node measures (default: the newest)")
    parser.add_argument("--nodes", type=int, help="nodes per machine type (default: 4; 1 with --engine debug)")
    parser.add_argument("--copies", type=int, help="nodes that measure each release (default: 2; 1 of one node)")
    parser.add_argument(
        "--engine",
        choices=(DEBUG, SLURM),
        help="slurm: submit jobs; debug: measure on this machine (default: slurm if a partition is given)",
    )
    parser.add_argument("--types", metavar='"cpu gpu-a100"', help="partitions or node features, each with a history")
    for name, about in OPTIONS.items():
        parser.add_argument(f"--{name}", help=f"Slurm option: {about}")
    parser.add_argument("--time", type=int, metavar="MINUTES", help="time limit of a job (default: estimated)")
    parser.add_argument("--shared", action="store_true", help="allow other jobs on the nodes at the same time")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where a node has environments (default: /tmp)")
    parser.add_argument("--wheelhouse", type=Path, metavar="DIR", help="download wheels here, and install from here")
    parser.add_argument("--keep", type=int, metavar="N", help="environments on disk at most (default: asv.conf.json's)")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and exit")
    chosen = parser.parse_args(argv)
    check_chosen(chosen)
    check_whole(chosen, "keep", "nodes", "copies", "time")
    if chosen.types and (chosen.partition or chosen.constraint or chosen.machine):
        raise UserError("--types names partitions or features, and what results are filed under: leave those out")
    slurm = chosen.types or any(getattr(chosen, name) for name in OPTIONS)
    if chosen.engine == DEBUG and slurm:
        theirs = ", ".join(f"--{name}" for name in ("types", *OPTIONS))
        raise UserError(f"--engine debug measures here: {theirs} are Slurm's")
    chosen.engine = chosen.engine or (SLURM if slurm else DEBUG)
    chosen.nodes = chosen.nodes or (1 if chosen.engine == DEBUG else 4)
    chosen.copies = chosen.copies or min(2, chosen.nodes)
    if chosen.copies > chosen.nodes:
        raise UserError(f"--copies {chosen.copies} takes as many nodes, and --nodes says {chosen.nodes}")
    chosen.toolchains = selection.chosen_releases(chosen)
    first = [toolchain for toolchain in chosen.toolchains if toolchain.history == chosen.toolchains[0].history]
    reference = selection.release(chosen.reference, selection.packages(chosen)) if chosen.reference else first[-1]
    if reference is None:
        raise UserError(f"--reference {chosen.reference}: no release of {' or '.join(selection.packages(chosen))}")
    chosen.reference = reference.tag
    return chosen


def types_of(chosen: argparse.Namespace) -> dict[str, dict[str, str]]:
    """What results are filed under -> Slurm's options that choose such nodes."""
    common = {name: getattr(chosen, name) for name in OPTIONS if getattr(chosen, name)}
    if chosen.types:
        known = fleet.ask(["sinfo", "--noheader", "--format=%R"]).split()
        names = chosen.types.replace(",", " ").split()
        types = {name: {**common, "partition" if name in known else "constraint": name} for name in names}
    else:
        named = "-".join(common[name] for name in ("partition", "constraint") if name in common)
        here = f"{environments.machine_name()}-fleet" if chosen.engine == DEBUG else "slurm"
        types = {chosen.machine or named or here: common}
    for name in types:
        selection.check_machine(name)
    return types


def campaign_of(chosen: argparse.Namespace, machine: str, options: dict[str, str]) -> Campaign:
    """What the command line asks a type of machine for."""
    debug, given = chosen.engine == DEBUG, {name: getattr(chosen, name) for name in DECIDING}
    scratch = chosen.scratch or (ROOT / ".asv" if debug else Path("/tmp"))
    shown = [word for name, value in given.items() if value for word in (f"--{name}", str(value))]
    asked = asked_for(chosen, DEFAULT)
    if chosen.copies == 1 < chosen.nodes:  # instructions that one node alone has counted say nothing of a release
        asked["only"] = rf"^(?!instructions\.).*?(?:{asked['only']}|{re.escape(asked['only'])})"
    minutes = minutes_of(asked["profile"], asked["rounds"], asked["only"], RESULTS / BENCHMARKS)
    tags = tuple(toolchain.tag for toolchain in chosen.toolchains if toolchain.tag != chosen.reference)
    longest = max(map(len, fleet.deal(tags, chosen.nodes, chosen.copies)))
    return Campaign(
        Plan(
            machine,
            **asked,
            tags=tags,
            command=shlex.join(["python", "scripts/fleet.py", *shown]),
            reference=chosen.reference,
            fleet={"id": f"fleet-{new_id()}", "engine": chosen.engine},
        ),
        chosen.nodes,
        chosen.copies,
        keep=keep(chosen.keep),
        scratch=str(scratch.absolute()),
        wheelhouse=str(chosen.wheelhouse.absolute()) if chosen.wheelhouse else "",
        minutes=minutes,
        allowed=chosen.time or round(fleet.SPARE * fleet.minutes_for(longest, minutes)) + 10,
        options={**options, **({} if chosen.shared or debug else {"exclusive": True})},
    )


def main(argv: Sequence[str] | None = None) -> int:
    check_asv()
    program, *job = (sys.argv[1:] if argv is None else argv) or [""]
    if program == fleet.ON_NODE:
        return fleet.on_node(json.loads(*job))
    chosen = arguments(argv)
    types = types_of(chosen)
    if chosen.resume and not (chosen.machine or chosen.types or chosen.partition or chosen.constraint):
        types = {path.parent.name: {} for path in sorted(fleet.FLEET.glob(f"*/{fleet.PLAN}"))}
        if not types:
            raise UserError("nothing to resume: no campaign is incomplete")
    campaigns = []
    with ExitStack() as stack:
        for machine, options in types.items():
            if not chosen.dry_run:
                stack.enter_context(held(fleet.FLEET / machine))
            campaign = Campaign.load(machine) if chosen.resume else None
            if chosen.resume and not campaign:
                print(f"{machine}: nothing to resume: a new campaign")
            if campaign:
                campaign.submitted = min(campaign.submitted, 1)  # somebody has looked: ask again as often
            else:
                campaign = campaign_of(chosen, machine, options)
                if campaign.slurm:
                    fleet.check_cluster(campaign)
                if not chosen.dry_run:
                    fleet.give_up(machine)
            print("\n".join(fleet.plan_lines(campaign)), flush=True)
            campaigns.append(campaign)
        if chosen.dry_run:
            return 0
        build = (lambda machine: 0) if chosen.no_report else report.after_run
        return fleet.measure(campaigns, build)


if __name__ == "__main__":
    cli.run(main)
