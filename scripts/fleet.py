#!/usr/bin/env python3
"""Measure a history on many machines: each release on several nodes of a kind, by the Slurm that they already run.

    python scripts/fleet.py --history torch --nodes 4 --copies 2 --partition cpu    jobs of this cluster
    python scripts/fleet.py --history torch --kinds "cpu gpu-a100"                  a history of each kind of node
    python scripts/fleet.py --resume                                                go on, from any login node
    python scripts/fleet.py --history torch                                         without Slurm: here, one by one

Every node measures the reference, a block of releases, and the reference again; a release is dealt to several nodes.
Results are gathered as they come, under the kind's name and an anonymous one of each node, and what is missing when no
job is left is asked for again, on other nodes. This program may end at any moment: jobs go on, and --resume gathers.
The plan is printed first; with --dry-run, only that. Slurm is spoken to by submitit; without Slurm nothing is needed.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import report
from cli import ONLY, Parser, UserError, check_whole
from measuring.engine import check_asv
from measuring.profiles import PROFILES, check_chosen
from measuring.state import PLAN, held
from nodes.campaign import DEBUG, FLEET, MOST_COPIES, SLURM, Campaign, give_up, kinds_of, measure, plan_lines, plan_of
from toolchains import selection

MOST_NODES = 500


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    selection.add_releases(parser)
    parser.add_argument("--reference", metavar="2.13.0", help="measured on every node (default: the newest of them)")
    parser.add_argument("--profile", default="tracking", help=f"one of: {', '.join(PROFILES)} (default: tracking)")
    parser.add_argument("--only", metavar="REGEX", help=ONLY)
    parser.add_argument("--rounds", type=int, help="processes a cell and visit (default: the profile's)")
    parser.add_argument("--nodes", type=int, help="nodes of a kind (default: 4; 1 with --engine debug)")
    parser.add_argument("--copies", type=int, help="nodes that measure each release (default: 2, or 1 of 1)")
    parser.add_argument("--engine", choices=(DEBUG, SLURM), help="slurm where a partition is named, else debug: here")
    parser.add_argument("--partition", help="of Slurm")
    parser.add_argument("--constraint", help="of Slurm: a feature that nodes must have")
    parser.add_argument("--kinds", metavar='"cpu gpu-a100"', help="partitions or constraints, a history of each")
    parser.add_argument("--account", help="of Slurm")
    parser.add_argument("--qos", help="of Slurm")
    parser.add_argument("--time", type=int, metavar="MINUTES", help="that a job may take (default: by the estimate)")
    parser.add_argument("--shared", action="store_true", help="let other jobs run on the nodes meanwhile")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="of a node, for environments (default: /tmp)")
    parser.add_argument("--wheelhouse", type=Path, metavar="DIR", help="bring wheels here, and install from here")
    parser.add_argument("--keep", type=int, metavar="N", help="environments on disk at most (default: asv.conf.json's)")
    parser.add_argument("--machine", help="name to file results under (default: the partition, or made of hardware)")
    parser.add_argument("--resume", action="store_true", help="go on with what is not complete")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, and do nothing")
    parser.add_argument("--show-hosts", action="store_true", help="say which node is which host, here and nowhere else")
    parser.add_argument("--no-report", action="store_true", help="do not build the page")
    chosen = parser.parse_args(argv)
    check_chosen(chosen.profile, chosen.machine, chosen.only)
    check_whole(chosen, "rounds", "keep", "nodes", "copies", "time")
    if (chosen.nodes or 0) > MOST_NODES or (chosen.copies or 0) > MOST_COPIES:
        raise UserError(f"--nodes takes {MOST_NODES} at most, --copies {MOST_COPIES}")
    if chosen.kinds and (chosen.partition or chosen.constraint or chosen.machine):
        raise UserError("--kinds names partitions or constraints, and what results are filed under: leave those out")
    slurm = chosen.kinds or chosen.partition or chosen.constraint
    if chosen.engine == DEBUG and slurm:
        raise UserError("--engine debug measures here: --kinds, --partition and --constraint are Slurm's")
    chosen.engine = chosen.engine or (SLURM if slurm else DEBUG)
    chosen.nodes = chosen.nodes or (1 if chosen.engine == DEBUG else 4)
    chosen.copies = chosen.copies or min(2, chosen.nodes)
    if chosen.copies > chosen.nodes:
        raise UserError(f"--copies {chosen.copies} takes as many nodes, and --nodes says {chosen.nodes}")
    packages, chosen.toolchains = selection.chosen_releases(chosen)
    if chosen.reference:
        reference = selection.release(chosen.reference, packages)
        if reference is None:
            raise UserError(f"--reference {chosen.reference}: no release of {' or '.join(packages)}")
        chosen.reference = reference.tag
    else:
        first = [toolchain for toolchain in chosen.toolchains if toolchain.history == chosen.toolchains[0].history]
        chosen.reference = first[-1].tag
    return chosen


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    check_asv()
    asked_for = kinds_of(chosen)
    if chosen.resume and not (chosen.machine or chosen.kinds or chosen.partition or chosen.constraint):
        asked_for = {path.parent.name: {} for path in sorted(FLEET.glob(f"*/{PLAN}"))}
        if not asked_for:
            raise UserError("nothing to resume: no campaign is incomplete")
    campaigns = []
    with ExitStack() as stack:
        for machine, options in asked_for.items():
            if not chosen.dry_run:
                stack.enter_context(held(FLEET / machine))
            campaign = Campaign.load(FLEET / machine) if chosen.resume else None
            if chosen.resume and not campaign:
                print(f"{machine}: nothing to resume: a new campaign")
            if campaign:
                campaign.submitted = min(campaign.submitted, 1)  # somebody has looked: ask again as often
            else:
                if not chosen.dry_run:
                    give_up(machine)
                campaign = plan_of(chosen, machine, options)
            print("\n".join(plan_lines(campaign)), flush=True)
            campaigns.append(campaign)
        if chosen.dry_run:
            return 0
        return measure(campaigns, chosen.show_hosts, (lambda machine: 0) if chosen.no_report else report.after_run)


if __name__ == "__main__":
    cli.run(main)
