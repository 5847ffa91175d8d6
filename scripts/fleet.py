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
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import report
from cli import ONLY, Parser, UserError, check_whole
from measuring import fleet
from measuring.engine import RESULTS, ROOT, check_asv, new_id
from measuring.fleet import DEBUG, SLURM, Campaign
from measuring.journal import held
from measuring.profiles import PROFILES, check_chosen, minutes_of
from store.files import BENCHMARKS
from toolchains import environments, selection

MOST_NODES, MOST_COPIES = 500, 8
OPTIONS = {  # Slurm's
    "partition": "partition",
    "constraint": "feature that nodes must have",
    "account": "account",
    "qos": "quality of service",
    "mem": "memory of a job, such as 16G",
    "gres": "generic resources, such as gpu:1",
    "reservation": "reservation",
}


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    selection.add_releases(parser)
    parser.add_argument(
        "--reference", metavar="2.13.0", help="release that every node measures (default: the newest one)"
    )
    parser.add_argument("--profile", default="tracking", help=f"one of: {', '.join(PROFILES)} (default: tracking)")
    parser.add_argument("--only", metavar="REGEX", help=ONLY)
    parser.add_argument("--rounds", type=int, help="rounds per session (default: the profile's)")
    parser.add_argument(
        "--nodes", type=int, help="number of nodes per machine type (default: 4; 1 with --engine debug)"
    )
    parser.add_argument(
        "--copies", type=int, help="number of nodes that measure each release (default: 2; 1 if there is one node)"
    )
    parser.add_argument(
        "--engine",
        choices=(DEBUG, SLURM),
        help="slurm: submit jobs; debug: measure on this machine (default: slurm if a partition is given)",
    )
    parser.add_argument(
        "--types", metavar='"cpu gpu-a100"', help="partitions or node features; each gets its own history"
    )
    for name, about in OPTIONS.items():
        parser.add_argument(f"--{name}", help=f"Slurm option: {about}")
    parser.add_argument("--time", type=int, metavar="MINUTES", help="time limit of a job (default: estimated)")
    parser.add_argument("--shared", action="store_true", help="allow other jobs on the nodes at the same time")
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", help="directory on each node for environments (default: /tmp)"
    )
    parser.add_argument(
        "--wheelhouse", type=Path, metavar="DIR", help="download wheels to this directory, and install from it"
    )
    parser.add_argument(
        "--keep", type=int, metavar="N", help="maximum number of environments on disk (default: from asv.conf.json)"
    )
    parser.add_argument(
        "--machine",
        help="name of the machine type in reports/results (default: the partition, or made from the hardware)",
    )
    parser.add_argument("--resume", action="store_true", help="continue with what is not complete")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and exit")
    parser.add_argument(
        "--show-hosts", action="store_true", help="print which node is which host; host names are never filed"
    )
    parser.add_argument("--no-report", action="store_true", help="do not build the page")
    chosen = parser.parse_args(argv)
    check_chosen(chosen.profile, chosen.machine, chosen.only)
    check_whole(chosen, "rounds", "keep", "nodes", "copies", "time")
    if (chosen.nodes or 0) > MOST_NODES or (chosen.copies or 0) > MOST_COPIES:
        raise UserError(f"--nodes takes {MOST_NODES} at most, --copies {MOST_COPIES}")
    if chosen.types and (chosen.partition or chosen.constraint or chosen.machine):
        raise UserError("--types names partitions or features, and what results are filed under: leave those out")
    slurm = chosen.types or any(getattr(chosen, name) for name in OPTIONS)
    if chosen.engine == DEBUG and slurm:
        raise UserError(
            f"--engine debug measures here: --types, {', '.join(f'--{name}' for name in OPTIONS)} are Slurm's"
        )
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


def types_of(chosen: argparse.Namespace) -> dict[str, dict[str, str]]:
    """What results are filed under -> Slurm's options that choose such nodes."""
    if chosen.engine == DEBUG:
        return {chosen.machine or f"{environments.machine_name()}-fleet": {}}
    common = {name: getattr(chosen, name) for name in OPTIONS if getattr(chosen, name)}
    if not chosen.types:
        named = [common[name] for name in ("partition", "constraint") if name in common]
        machine = chosen.machine or "-".join(named) or "slurm"
        selection.check_machine(machine)
        return {machine: common}
    known = fleet.ask(["sinfo", "--noheader", "--format=%R"]).split()
    names = chosen.types.replace(",", " ").split()
    for name in names:
        selection.check_machine(name)
    return {name: {**common, "partition" if name in known else "constraint": name} for name in names}


def campaign_of(chosen: argparse.Namespace, machine: str, options: dict[str, str]) -> Campaign:
    """What the command line asks a type of machine for."""
    from toolchains import plugin  # imports asv, which check_asv has found

    debug = chosen.engine == DEBUG
    scratch = ROOT / ".asv" if debug and not chosen.scratch else (chosen.scratch or Path("/tmp"))
    rounds = chosen.rounds or PROFILES[chosen.profile].rounds
    campaign = Campaign(
        fleet.FLEET / machine,
        machine,
        new_id(),
        tuple(toolchain.tag for toolchain in chosen.toolchains if toolchain.tag != chosen.reference),
        **{name: getattr(chosen, name) for name in ("reference", "nodes", "copies", "profile", "engine")},
        only=chosen.only or "",
        rounds=rounds,
        keep=chosen.keep or environments.keep(plugin.configured("keep_environments")),
        command=command_of(chosen),
        scratch=str(scratch.absolute()),
        wheelhouse=str(chosen.wheelhouse.absolute()) if chosen.wheelhouse else "",
        minutes=minutes_of(chosen.profile, rounds, chosen.only or "", RESULTS / BENCHMARKS),
        options={**options, **({} if chosen.shared or debug else {"exclusive": True})},
    )
    blocks = fleet.deal(campaign.tags, campaign.nodes, campaign.copies)
    campaign.allowed = chosen.time or round(fleet.SPARE * campaign.busiest(blocks)) + 10
    return campaign


def command_of(chosen: argparse.Namespace) -> str:
    """The command for the run records: of its options those that decide a figure, and none that names a place."""
    kept = [chosen.history and f"--history {chosen.history}", chosen.releases and f"--releases {chosen.releases}"]
    kept += [chosen.since and f"--since {chosen.since}", f"--reference {chosen.reference}"]
    kept += [chosen.profile != "tracking" and f"--profile {chosen.profile}", chosen.only and f"--only '{chosen.only}'"]
    kept += [chosen.rounds and f"--rounds {chosen.rounds}", f"--nodes {chosen.nodes} --copies {chosen.copies}"]
    return " ".join(["python scripts/fleet.py", *filter(None, kept), f"--engine {chosen.engine}"])


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    check_asv()
    asked_for = types_of(chosen)
    if chosen.resume and not (chosen.machine or chosen.types or chosen.partition or chosen.constraint):
        asked_for = {path.parent.name: {} for path in sorted(fleet.FLEET.glob(f"*/{fleet.PLAN}"))}
        if not asked_for:
            raise UserError("nothing to resume: no campaign is incomplete")
    campaigns = []
    with ExitStack() as stack:
        for machine, options in asked_for.items():
            if not chosen.dry_run:
                stack.enter_context(held(fleet.FLEET / machine))
            campaign = Campaign.load(fleet.FLEET / machine) if chosen.resume else None
            if chosen.resume and not campaign:
                print(f"{machine}: nothing to resume: a new campaign")
            if campaign:
                campaign.submitted = min(campaign.submitted, 1)  # somebody has looked: ask again as often
            else:
                campaign = campaign_of(chosen, machine, options)
                if campaign.engine == SLURM:
                    fleet.check_cluster(campaign)
                if not chosen.dry_run:
                    fleet.give_up(machine)
            print("\n".join(fleet.plan_lines(campaign)), flush=True)
            campaigns.append(campaign)
        if chosen.dry_run:
            return 0
        build = (lambda machine: 0) if chosen.no_report else report.after_run
        return fleet.measure(campaigns, chosen.show_hosts, build)


if __name__ == "__main__":
    cli.run(main)
