"""Campaigns as fleet.py's command line asks for them, the engines that carry their jobs to nodes, and their progress.

An engine is this process, one job after the other, or the users' own Slurm by way of submitit. All of submitit is
here. Its word on whether a job is done is not taken: without accounting it knows no states, and it takes a node's
failure for an end though Slurm starts the job anew. What is complete the campaign reads from result files; an engine
only says whether something is still to come.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cli
from cli import UserError
from measuring.engine import RESULTS, ROOT, new_id
from measuring.processes import session
from measuring.profiles import PROFILES
from toolchains import environments
from toolchains.selection import check_machine

from . import on_node
from .campaign import DEBUG, FLEET, SLURM, SPARE, Campaign, Engine, Job, cost_of, wheels

# --- engines ----------------------------------------------------------------------------------------------------------


GRACE = 60  # seconds before the end of a job's time in which it may end by itself
REQUEUES = 5  # times that a job may run out of time, and go on


def program(job: Job) -> list[str]:
    """The command that does a job on a node."""
    return [sys.executable, str(Path(on_node.__file__).resolve()), json.dumps(job)]


class Debug:
    """Jobs one after the other on this machine, which stands for every node: no two may time at the same time."""

    def submit(self, jobs: Sequence[tuple[Job, Sequence[str]]]) -> None:
        for job, _ in jobs:
            with session(program(job), ROOT) as process:
                process.wait()

    def coming(self) -> list[str]:
        return []


@dataclass
class Command:
    """What submitit runs on a node: the program, which ends when Slurm says that time is up, and goes on later."""

    command: list[str]

    def __call__(self) -> int:
        # Slurm's warning is for submitit alone, and reaches every process of the job
        self.process = subprocess.Popen(["sh", "-c", 'trap "" USR2; exec "$@"', "sh", *self.command])
        return self.process.wait()

    def checkpoint(self) -> Any:
        """Called by submitit's handler of that warning, which interrupts the waiting above: Popen's own would lock."""
        from submitit.helpers import DelayedSubmission

        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.process.pid, signal.SIGTERM)
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(Command(self.command))


@dataclass(frozen=True)
class Slurm:
    """Job arrays. name: of the jobs, by which they are found again from anywhere. options: submitit's, such as
    partition; minutes: that a job may take."""

    name: str
    logs: Path
    options: Mapping[str, Any]
    minutes: int

    def submit(self, jobs: Sequence[tuple[Job, Sequence[str]]]) -> None:
        try:
            import cloudpickle
            import submitit
        except ModuleNotFoundError:
            raise UserError(
                "--engine slurm needs submitit: pip install submitit (in this Python, which the nodes use, too)"
            ) from None
        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the nodes need not find this file
        for without in dict.fromkeys(tuple(hosts) for _, hosts in jobs):
            executor = submitit.AutoExecutor(self.logs, cluster="slurm", slurm_max_num_timeout=REQUEUES)
            options = {f"slurm_{key}": value for key, value in self.options.items()}
            if without:
                options["slurm_exclude"] = ",".join(without)
            executor.update_parameters(
                name=self.name,
                timeout_min=self.minutes,
                nodes=1,
                tasks_per_node=1,
                slurm_signal_delay_s=GRACE,
                slurm_additional_parameters={"requeue": True},
                **options,
            )
            try:
                with executor.batch():
                    for job, hosts in jobs:
                        if tuple(hosts) == without:
                            executor.submit(Command(program(job)))
            except submitit.core.utils.FailedJobError as why:
                raise UserError(f"Slurm takes no such job: {str(why).strip().splitlines()[-1]}") from None

    def coming(self) -> list[str]:
        asked = ["squeue", "--noheader", "--array", f"--name={self.name}", "--format=%T %r"]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"squeue does not answer: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}")
        return done.stdout.splitlines()


def check_slurm() -> None:
    """UserError where this is no machine to submit from."""
    if not shutil.which("sbatch"):
        raise UserError("--engine slurm needs sbatch: run this on a login node, or take --engine debug")


def partitions() -> list[str]:
    """The names of the cluster's partitions."""
    done = subprocess.run(["sinfo", "--noheader", "--format=%R"], capture_output=True, text=True)
    return done.stdout.split()


# --- campaigns seen through -------------------------------------------------------------------------------------------


LOGS = "logs"  # in the directory of a kind: what Slurm and submitit print
POLL = 10.0  # seconds between two looks at what there is
Build = Callable[[str], object]  # the page of a machine


def engine_of(campaign: Campaign) -> Engine:
    if campaign.engine == DEBUG:
        return Debug()
    check_slurm()
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


# --- what the command line of fleet.py asks for -----------------------------------------------------------------------


def kinds_of(chosen: argparse.Namespace) -> dict[str, dict[str, str]]:
    """What results are filed under -> Slurm's options that choose such nodes."""
    common = {name: getattr(chosen, name) for name in ("account", "qos") if getattr(chosen, name)}
    if chosen.engine == DEBUG:
        return {chosen.machine or f"{environments.machine_name(os.cpu_count() or 1)}-fleet": {}}
    if not chosen.kinds:
        named = {name: getattr(chosen, name) for name in ("partition", "constraint") if getattr(chosen, name)}
        machine = chosen.machine or "-".join(named.values()) or "slurm"
        check_machine(machine)
        return {machine: {**common, **named}}
    known = partitions()
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
    minutes = cost_of(campaign.blocks(), campaign.visit_minutes, campaign.keep).minutes
    campaign.minutes = chosen.time or round(SPARE * minutes) + 10
    return campaign


def command_of(chosen: argparse.Namespace) -> str:
    """The command for the run records: of its options those that decide a figure, and none that names a place."""
    kept = [chosen.history and f"--history {chosen.history}", chosen.releases and f"--releases {chosen.releases}"]
    kept += [chosen.since and f"--since {chosen.since}", f"--reference {chosen.reference}"]
    kept += [chosen.profile != "tracking" and f"--profile {chosen.profile}", chosen.only and f"--only '{chosen.only}'"]
    kept += [chosen.rounds and f"--rounds {chosen.rounds}", f"--nodes {chosen.nodes} --copies {chosen.copies}"]
    return " ".join(["python scripts/fleet.py", *filter(None, kept), f"--engine {chosen.engine}"])
