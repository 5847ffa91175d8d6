"""What the command line of fleet.py asks for: kinds of nodes, the campaign of each, and the command for its records."""

import argparse
import os
from pathlib import Path

from measuring.engine import ROOT, new_id
from measuring.profiles import PROFILES
from toolchains import environments, installed
from toolchains.asked import check_machine

from . import design, engines
from .campaign import FLEET, Campaign
from .engines import DEBUG


def kinds_of(chosen: argparse.Namespace) -> dict[str, dict[str, str]]:
    """What results are filed under -> Slurm's options that choose such nodes."""
    common = {name: getattr(chosen, name) for name in ("account", "qos") if getattr(chosen, name)}
    if chosen.engine == DEBUG:
        return {chosen.machine or f"{installed.machine_name(os.cpu_count() or 1)}-fleet": {}}
    if not chosen.kinds:
        named = {name: getattr(chosen, name) for name in ("partition", "constraint") if getattr(chosen, name)}
        machine = chosen.machine or "-".join(named.values()) or "slurm"
        check_machine(machine)
        return {machine: {**common, **named}}
    known = engines.partitions()
    by_kind = {}
    for kind in chosen.kinds.replace(",", " ").split():
        check_machine(kind)
        by_kind[kind] = {**common, "partition" if kind in known else "constraint": kind}
    return by_kind


def plan_of(chosen: argparse.Namespace, machine: str, options: dict[str, str]) -> Campaign:
    """What the command line asks a kind of machine for."""
    from toolchains import plugin  # imports asv, which check_asv has found

    debug = chosen.engine == DEBUG
    scratch = ROOT / ".asv" if debug and not chosen.scratch else (chosen.scratch or Path("/tmp"))
    campaign = Campaign(
        directory=FLEET / machine,
        machine=machine,
        id=new_id(),
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
