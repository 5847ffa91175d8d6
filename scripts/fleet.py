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
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import report
from cli import ONLY, Parser, UserError, run
from measuring.engine import RESULTS, ROOT, check_asv
from measuring.profiles import PROFILES, check_chosen
from measuring.state import held
from nodes import design, engines
from nodes.campaign import FLEET, PLAN, Campaign, plan_lines, wheels
from nodes.engines import DEBUG, SLURM, Debug, Engine, Slurm
from toolchains import asked, environments, installed, ledger

LOGS = "logs"  # in the directory of a kind: what Slurm and submitit print
MOST_NODES = 500
POLL = 10.0  # seconds between two looks at what there is


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--history", choices=ledger.PACKAGES, help="releases of this package only (default: of both)")
    parser.add_argument("--releases", metavar="2.6.0,2.13.0", help="these (default: the last patch of every minor one)")
    parser.add_argument("--since", metavar="2.0", help="from this release on")
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
    for name in ("rounds", "keep", "nodes", "copies", "time"):
        if getattr(chosen, name) is not None and getattr(chosen, name) < 1:
            raise UserError(f"--{name} takes a whole number from 1")
    if (chosen.nodes or 0) > MOST_NODES or (chosen.copies or 0) > design.MOST_COPIES:
        raise UserError(f"--nodes takes {MOST_NODES} at most, --copies {design.MOST_COPIES}")
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
    packages = [chosen.history] if chosen.history else list(ledger.PACKAGES)
    chosen.toolchains = asked.releases(chosen.releases, packages, chosen.since)
    if chosen.reference:
        reference = asked.release(chosen.reference, packages)
        if reference is None:
            raise UserError(f"--reference {chosen.reference}: no release of {' or '.join(packages)}")
        chosen.reference = reference.tag
    else:
        first = [toolchain for toolchain in chosen.toolchains if toolchain.history == chosen.toolchains[0].history]
        chosen.reference = first[-1].tag
    return chosen


def kinds_of(chosen: argparse.Namespace) -> dict[str, dict[str, str]]:
    """What results are filed under -> Slurm's options that choose such nodes."""
    common = {name: getattr(chosen, name) for name in ("account", "qos") if getattr(chosen, name)}
    if chosen.engine == DEBUG:
        return {chosen.machine or f"{installed.machine_name(os.cpu_count() or 1)}-fleet": {}}
    if not chosen.kinds:
        named = {name: getattr(chosen, name) for name in ("partition", "constraint") if getattr(chosen, name)}
        machine = chosen.machine or "-".join(named.values()) or "slurm"
        asked.check_machine(machine)
        return {machine: {**common, **named}}
    known = engines.partitions()
    by_kind = {}
    for kind in chosen.kinds.replace(",", " ").split():
        asked.check_machine(kind)
        by_kind[kind] = {**common, "partition" if kind in known else "constraint": kind}
    return by_kind


def plan_of(chosen: argparse.Namespace, machine: str, options: dict[str, str]) -> Campaign:
    """What the command line asks a kind of machine for."""
    from toolchains import plugin  # imports asv, which check_asv has found

    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    debug = chosen.engine == DEBUG
    scratch = ROOT / ".asv" if debug and not chosen.scratch else (chosen.scratch or Path("/tmp"))
    campaign = Campaign(
        directory=FLEET / machine,
        machine=machine,
        id=f"{now}-{os.getpid()}",
        tags=[toolchain.tag for toolchain in chosen.toolchains if toolchain.tag != chosen.reference],
        reference=chosen.reference,
        nodes=chosen.nodes,
        copies=chosen.copies,
        profile=chosen.profile,
        only=chosen.only,
        rounds=chosen.rounds or PROFILES[chosen.profile].rounds,
        keep=chosen.keep or environments.keep(plugin.configured("keep_environments")),
        engine=chosen.engine,
        command=command_of(chosen),
        scratch=str(scratch.absolute()),
        wheelhouse=str(chosen.wheelhouse.absolute()) if chosen.wheelhouse else "",
        minutes=0,
        options={**options, **({} if chosen.shared or debug else {"exclusive": True})},
    )
    minutes = design.cost(campaign.blocks(), campaign.visit_minutes, campaign.keep).minutes
    campaign.minutes = chosen.time or round(design.SPARE * minutes) + 10
    return campaign


def command_of(chosen: argparse.Namespace) -> str:
    """The command for the run records: of its options those that decide a figure, and none that names a place."""
    kept = [chosen.history and f"--history {chosen.history}", chosen.releases and f"--releases {chosen.releases}"]
    kept += [chosen.since and f"--since {chosen.since}", f"--reference {chosen.reference}"]
    kept += [chosen.profile != "tracking" and f"--profile {chosen.profile}", chosen.only and f"--only '{chosen.only}'"]
    kept += [chosen.rounds and f"--rounds {chosen.rounds}", f"--nodes {chosen.nodes} --copies {chosen.copies}"]
    return " ".join(["python scripts/fleet.py", *filter(None, kept), f"--engine {chosen.engine}"])


def engine_of(campaign: Campaign) -> Engine:
    if campaign.engine == DEBUG:
        return Debug()
    engines.check_slurm()
    return Slurm(campaign.name, campaign.directory / LOGS, campaign.options, campaign.minutes)


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
            campaign = Campaign.load(machine) if chosen.resume else None
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
        return 0 if chosen.dry_run else measure(campaigns, chosen.show_hosts, not chosen.no_report)


def give_up(machine: str) -> None:
    """Make room for a new campaign: what an incomplete one has measured is filed; UserError where it has jobs."""
    before = Campaign.load(machine)
    if before is None:
        return
    if engine_of(before).coming():
        raise UserError(
            f"jobs named {before.name} measure {machine}: --resume gathers what they do, "
            f"scancel --name={before.name} ends them"
        )
    before.gather()
    before.finish()


def measure(campaigns: Sequence[Campaign], show_hosts: bool, build: bool) -> int:
    """See these campaigns through; the exit code: 2 where something could not be measured."""
    engine = {campaign.machine: engine_of(campaign) for campaign in campaigns}
    for campaign in campaigns:
        if campaign.wheelhouse:
            wheels(Path(campaign.wheelhouse), [campaign.reference, *campaign.tags])
    shown: dict[tuple[str, str], str] = {}
    working = list(campaigns)
    try:
        while working:
            for campaign in list(working):
                coming = campaign.step(engine[campaign.machine])
                if coming is None:
                    working.remove(campaign)
                hosts = show_hosts and campaign.engine == SLURM
                doing = campaign.doing()
                lines = {f"{node} ({campaign.host(node)})" if hosts else node: what for node, what in doing.items()}
                if coming:
                    lines["jobs"] = ", ".join(f"{coming.count(word)} {word}" for word in sorted(set(coming)))
                for who, what in lines.items():
                    if shown.get((campaign.machine, who)) != what:
                        shown[campaign.machine, who] = what
                        print(cli.line(f"{campaign.machine} {who}: {what}"), flush=True)
            if any(campaign.engine == SLURM for campaign in working):
                time.sleep(POLL)
    except KeyboardInterrupt:
        print("jobs that were submitted go on; python scripts/fleet.py --resume, with the same name, gathers them")
        raise
    return max(ended(campaign, build) for campaign in campaigns)


def ended(campaign: Campaign, build: bool) -> int:
    """Say what a campaign has come to, and build its page."""
    had, short, failed = campaign.had(), campaign.lacking(), campaign.failed()
    where = f"{RESULTS.name}/{campaign.machine}"
    print(f"{campaign.machine}: {len(had)} releases on {len(campaign.visits())} nodes are filed in {where}")
    for tag, reasons in failed.items():
        for node, reason in reasons.items():
            print(cli.line(f"{tag} has no results of {node}: {reason}"))
    for node in campaign.open_nodes():
        print(f"{node} has not measured the reference at the end: its drift is not known")
    if had and build:
        report.after_run(campaign.machine)
    if short:
        print(
            f"{len(short)} releases are not yet on {campaign.copies} nodes: python scripts/fleet.py --resume asks again"
        )
        return 2
    if not failed:
        campaign.finish()
    return 2 if failed else 0


if __name__ == "__main__":
    run(main)
