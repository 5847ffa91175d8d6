"""Campaigns seen through: their engine asked for jobs, what nodes file gathered, said and made pages of."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import cli
from cli import UserError
from measuring.engine import RESULTS

from . import engines
from .campaign import Campaign, wheels
from .engines import DEBUG, SLURM, Debug, Engine, Slurm

LOGS = "logs"  # in the directory of a kind: what Slurm and submitit print
POLL = 10.0  # seconds between two looks at what there is
Build = Callable[[str], object]  # the page of a machine


def engine_of(campaign: Campaign) -> Engine:
    if campaign.engine == DEBUG:
        return Debug()
    engines.check_slurm()
    return Slurm(campaign.name, campaign.directory / LOGS, campaign.options, campaign.minutes)


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


def measure(campaigns: Sequence[Campaign], show_hosts: bool, build: Build) -> int:
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


def ended(campaign: Campaign, build: Build) -> int:
    """Say what a campaign has come to, and build its page; the exit code."""
    had, short, failed = campaign.had(), campaign.lacking(), campaign.failed()
    where = f"{RESULTS.name}/{campaign.machine}"
    print(f"{campaign.machine}: {len(had)} releases on {len(campaign.visits())} nodes are filed in {where}")
    for tag, reasons in failed.items():
        for node, reason in reasons.items():
            print(cli.line(f"{tag} has no results of {node}: {reason}"))
    for node in campaign.open_nodes():
        print(f"{node} has not measured the reference at the end: its drift is not known")
    if had:
        build(campaign.machine)
    if short:
        print(
            f"{len(short)} releases are not yet on {campaign.copies} nodes: python scripts/fleet.py --resume asks again"
        )
        return 2
    if not failed:
        campaign.finish()
    return 2 if failed else 0
