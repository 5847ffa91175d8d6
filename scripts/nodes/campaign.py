"""A history measured by many nodes of a kind: dealt to nodes, given to an engine, gathered as it comes, topped up.

A block is what one job measures on one node: the reference, some releases, and the reference again. Each release is in
as many blocks as there are to be copies, so that what a node does to a release can be told from what the release does.

What is complete is read from result files, in which a visit appears when it is whole. So whoever submitted may be gone:
another process, on another machine of the same disk, goes on from what lies there.

An engine is this process, one job after the other, or the users' own Slurm by way of submitit. All of submitit is here.
Its word on whether a job is done is not taken: without accounting it knows no states, and it takes a node's failure for
an end though Slurm starts the job anew. An engine only says whether something is still to come.
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
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import cli
from cli import UserError, put
from measuring.engine import RESULTS, ROOT, new_id
from measuring.processes import last_line, session
from measuring.profiles import PROFILES
from measuring.state import Kept, State
from measuring.tracking import coarse_to_fine
from store.files import BENCHMARKS, put_all
from store.records import Record
from toolchains import environments, ledger
from toolchains.selection import check_machine

from . import on_node
from .on_node import HOSTS, SUITE, is_closed, names, visits_in

FLEET = ROOT / ".asv" / "fleet"
ASKED = 5  # times, before somebody should look why it is still missing; where the nodes are this machine, 2
DEBUG, SLURM = "debug", "slurm"  # engines: this machine for every node, and the users' own Slurm

Job = Mapping[str, Any]
Jobs = Sequence[tuple[Job, Sequence[str]]]  # each with the hosts that are not to do it


# --- engines ----------------------------------------------------------------------------------------------------------


# An engine has two methods. submit: have these jobs done, each without the hosts that go with it. coming: a word on
# each of the campaign's jobs that waits or runs.
GRACE = 60  # seconds before the end of a job's time in which it may end by itself
REQUEUES = 5  # times that a job may run out of time, and go on


def program(job: Job) -> list[str]:
    """The command that does a job on a node."""
    return [sys.executable, str(Path(on_node.__file__).resolve()), json.dumps(job)]


class Debug:
    """Jobs one after the other on this machine, which stands for every node: no two may time at the same time."""

    def submit(self, jobs: Jobs) -> None:
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

    def submit(self, jobs: Jobs) -> None:
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
                raise UserError(f"Slurm takes no such job: {last_line(str(why))}") from None

    def coming(self) -> list[str]:
        asked = ["squeue", "--noheader", "--array", f"--name={self.name}", "--format=%T %r"]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"squeue does not answer: {last_line(done.stderr, 'no reason')}")
        return done.stdout.splitlines()


def partitions() -> list[str]:
    """The names of the cluster's partitions."""
    done = subprocess.run(["sinfo", "--noheader", "--format=%R"], capture_output=True, text=True)
    return done.stdout.split()


Engine = Debug | Slurm


# --- campaigns --------------------------------------------------------------------------------------------------------


@dataclass
class Campaign(Kept):
    """What a kind of machine is to measure; all but ``directory`` is kept on disk until it is complete.

    machine    the kind's name, under which results are filed
    id         of this campaign, among those of the kind
    tags       releases, without the reference, each to be measured on as many nodes as there are ``copies``
    keep       environments on a node's disk at most
    options    of the engine
    """

    machine: str
    id: str
    tags: list[str]
    reference: str
    nodes: int
    copies: int
    profile: str
    only: str | None
    rounds: int
    keep: int
    engine: str
    command: str
    scratch: str
    wheelhouse: str
    minutes: int
    options: dict[str, Any] = field(default_factory=dict)
    submitted: int = 0  # times

    def finish(self) -> None:
        """Forget the campaign: its results are filed."""
        super().finish()
        shutil.rmtree(self.place, ignore_errors=True)

    @property
    def place(self) -> Path:
        """Where its nodes have their suites."""
        return self.directory / self.id

    @property
    def name(self) -> str:
        """What the engine calls its jobs."""
        return f"fleet-{self.id}"

    def blocks(self) -> list[list[str]]:
        return deal(self.tags, self.nodes, self.copies)

    @property
    def visit_minutes(self) -> float:
        """What a visit takes, by its profile's estimate."""
        profile = PROFILES[self.profile]
        return profile.minutes * self.rounds / profile.rounds

    def results_of(self, node: str) -> Path:
        """Where the suite of a node files what it measures."""
        return self.place / node / SUITE / RESULTS.relative_to(ROOT) / self.machine

    def job(self, tags: Sequence[str], node: str | None) -> Job:
        """What a node is told; ``node``: which it is to be, None where it finds that out."""
        known = ledger.tagged()
        in_order = [toolchain.tag for toolchain in coarse_to_fine([known[tag] for tag in tags])]
        return {**self.kept(), "directory": str(self.place), "tags": in_order, "node": node}

    # --- what there is ----------------------------------------------------------------------------------------------

    def visits(self) -> dict[str, list[Record]]:
        """Node -> what it has measured."""
        nodes = [suite.parent.name for suite in sorted(self.place.glob(f"*/{SUITE}"))]
        return {node: visits_in(self.results_of(node), self.id) for node in nodes}

    def gather(self) -> None:
        """File what the nodes have filed, each in a directory of its own, with what describes it."""
        for node in self.visits():
            results = self.results_of(node)
            put_all(results, RESULTS / self.machine / node)
            described = results.parent / BENCHMARKS
            if described.is_file():
                put(RESULTS / BENCHMARKS, described.read_bytes())

    def had(self) -> dict[str, set[str]]:
        """Release -> the nodes that have measured it."""
        by_release: dict[str, set[str]] = {}
        for node, visits in self.visits().items():
            for visit in visits:
                if not visit.failed:
                    by_release.setdefault(visit.toolchain.tag, set()).add(node)
        return by_release

    def failed(self) -> dict[str, dict[str, str]]:
        """Release -> node -> why that node could not measure it."""
        had = self.had()
        reasons: dict[str, dict[str, str]] = {}
        for node, visits in self.visits().items():
            for visit in visits:
                if visit.failed and node not in had.get(visit.toolchain.tag, ()):
                    reasons.setdefault(visit.toolchain.tag, {})[node] = visit.failed
        return reasons

    def lacking(self) -> dict[str, int]:
        """Release -> on how many nodes more it is to be measured; not of those that no node could."""
        had, failed = self.had(), self.failed()
        tags = [tag for tag in self.tags if tag in had or len(failed.get(tag, ())) < self.copies]
        return lacking(tags, had, self.copies)

    def open_nodes(self) -> list[str]:
        """The nodes that have not measured the reference at the end."""
        return [node for node, visits in self.visits().items() if visits and not is_closed(visits, self.reference)]

    def host(self, node: str) -> str:
        return (self.directory / HOSTS / node).read_text(encoding="utf-8")

    # --- what is to come --------------------------------------------------------------------------------------------

    def submit(self, engine: Engine) -> None:
        """Ask the engine for what is missing: all blocks at first, then releases on nodes that have them not."""
        self.submitted += 1
        self.save()
        if self.engine == DEBUG:  # the nodes are this machine: none is lost, and each goes on with its block
            jobs: Jobs = [(self.job(block, node), ()) for block, node in zip(self.blocks(), names())]
        elif not self.visits():
            jobs = [(self.job(block, None), ()) for block in self.blocks()]
        else:
            had = self.had()
            more = top_up(self.lacking(), had, self.nodes)
            jobs = [(self.job(block.tags, None), [self.host(node) for node in block.without]) for block in more]
        engine.submit(jobs)

    def doing(self) -> dict[str, str]:
        """Node -> what it measures now, or has measured last; by the files of its rounds."""
        by_node = {}
        for node, visits in self.visits().items():
            track = self.place / node / SUITE / ".asv" / "runs" / self.machine / "track"
            rounds = {}
            for path in track.glob("*/"):
                try:
                    record = State(path).load()
                except UserError:
                    continue  # it is being replaced
                if record:
                    rounds[record.toolchain.tag] = record.rounds
            now = ", ".join(f"{tag} round {done + 1} of {self.rounds}" for tag, done in rounds.items())
            by_node[node] = f"{sum(not visit.failed for visit in visits)} visits filed" + (f"; {now}" if now else "")
        return by_node

    def step(self, engine: Engine) -> list[str] | None:
        """Gather what there is and ask for what is missing: a word on each job to come, None when there is no more."""
        coming = engine.coming()  # before the files: what ends meanwhile is seen the next time
        self.gather()
        if coming:
            return coming
        short = self.lacking()
        if not short or self.submitted >= (2 if self.engine == DEBUG else ASKED):
            return None
        if self.submitted:
            print(f"{self.machine}: {len(short)} releases are missing on some node; asked for again", flush=True)
        self.submit(engine)
        return []


def wheels(directory: Path, tags: Collection[str]) -> None:
    """Have a wheelhouse hold what these releases are installed from.

    What an earlier call has brought is not asked for again.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stamp = directory / f"complete-py{sys.version_info[0]}.{sys.version_info[1]}.json"
    there: list[str] = json.loads(stamp.read_text(encoding="utf-8")) if stamp.is_file() else []
    for tag in tags:
        asked = environments.requirements(ledger.tagged()[tag])
        if " ".join(asked) in there:
            continue
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--progress-bar=off", "--only-binary=:all:", "--dest", str(directory)]
        try:
            environments.run([*command, *asked])
        except environments.InstallError as error:
            print(cli.line(f"{tag} has no wheels: {error}"), flush=True)
            continue
        there.append(" ".join(asked))
        put(stamp, json.dumps(there))
        print(f"{tag}: its wheels are in the wheelhouse", flush=True)


def plan_lines(campaign: Campaign) -> list[str]:
    """The plan in lines: who measures what, what it takes."""
    blocks, minutes = campaign.blocks(), campaign.visit_minutes
    cost = cost_of(blocks, minutes, campaign.keep)
    lines = [
        f"{campaign.machine}: {len(campaign.tags) + 1} releases, each on {campaign.copies} of {campaign.nodes} nodes, "
        f"the reference {campaign.reference} first and last on all of them"
    ]
    if campaign.engine == DEBUG:
        total = sum(cost_of([block], minutes, campaign.keep).minutes for block in blocks)
        lines.append(f"  the nodes are this machine, one after the other: {cost.visits} visits, {total:.0f} minutes")
    else:
        lines.append(
            f"  {cost.visits} visits; {cost.minutes:.0f} minutes on the busiest node, "
            f"{campaign.minutes} allowed; jobs named {campaign.name}"
        )
    lines.append(f"  disk: {cost.disk_gb} GB a node for {campaign.keep} environments, where torch comes with CUDA")
    for node, block in zip(names(), blocks):
        lines.append(f"  {node}: {len(block) + 2} visits: {', '.join(block)}")
    return lines


# --- who measures what ------------------------------------------------------------------------------------------------


INSTALL_MINUTES = 1.5  # of a release, where torch comes with CUDA
ENVIRONMENT_GB = 5  # of the same
MOST_COPIES = 8
CHOICE = 8  # nodes beyond the copies that a release may go to: of a large fleet all pairs are too many to look at
SPARE = 1.5  # times the estimate: what a job may take, for a node that is busy waits to be calm


@dataclass(frozen=True)
class Cost:
    """What a design comes to. visits: of all nodes; minutes: of the busiest node; disk_gb: of a node's environments."""

    visits: int
    minutes: float
    disk_gb: int


def deal(tags: Sequence[str], nodes: int, copies: int) -> list[list[str]]:
    """The blocks, one a node: each of ``tags`` in ``copies`` of them, as even as can be, in the order of ``tags``.

    Every release goes to the nodes that have the least so far and have met the least: over four nodes and twice that is
    01, 23, 02, 13, 03, 12. ValueError where there are fewer nodes than copies.
    """
    if not 1 <= copies <= nodes:
        raise ValueError(f"{copies} copies take as many nodes, and there are {nodes}")
    blocks: list[list[str]] = [[] for _ in range(nodes)]
    met: Counter[tuple[int, int]] = Counter()
    for tag in tags:
        least = sorted(range(nodes), key=lambda node: len(blocks[node]))[: copies + CHOICE]
        chosen = min(
            combinations(sorted(least), copies),
            key=lambda group: (
                sum(len(blocks[node]) for node in group),
                sum(met[pair] for pair in combinations(group, 2)),
            ),
        )
        met.update(combinations(chosen, 2))
        for node in chosen:
            blocks[node].append(tag)
    return blocks


def cost_of(blocks: Sequence[Sequence[str]], minutes: float, keep: int) -> Cost:
    """What blocks come to, where a visit takes so many minutes and so many environments may stay."""
    longest = max(len(block) for block in blocks)
    installed = min(keep, longest + 1)
    return Cost(
        sum(len(block) + 2 for block in blocks),
        (longest + 2) * minutes + (longest + 1) * INSTALL_MINUTES,
        installed * ENVIRONMENT_GB,
    )


def lacking(tags: Iterable[str], had: Mapping[str, Collection[str]], copies: int) -> dict[str, int]:
    """Release -> on how many nodes more it must be measured; had: release -> the nodes that have."""
    short = {tag: copies - len(had.get(tag, ())) for tag in tags}
    return {tag: number for tag, number in short.items() if number > 0}


@dataclass(frozen=True)
class More:
    """A block that tops up what is missing, on any node but those that have some of it."""

    tags: tuple[str, ...]
    without: tuple[str, ...]


def top_up(short: Mapping[str, int], had: Mapping[str, Collection[str]], nodes: int) -> list[More]:
    """Blocks for what is lacking, dealt to the nodes that are left: releases that the same nodes have go together."""
    groups: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for tag, number in short.items():
        groups.setdefault((tuple(sorted(had.get(tag, ()))), number), []).append(tag)
    return [
        More(tuple(block), without)
        for (without, number), tags in groups.items()
        for block in deal(tags, max(number, nodes - len(without)), number)
        if block
    ]


# --- campaigns seen through -------------------------------------------------------------------------------------------


LOGS = "logs"  # in the directory of a kind: what Slurm and submitit print
POLL = 10.0  # seconds between two looks at what there is
Build = Callable[[str], object]  # the page of a machine


def engine_of(campaign: Campaign) -> Engine:
    if campaign.engine == DEBUG:
        return Debug()
    if not shutil.which("sbatch"):
        raise UserError("--engine slurm needs sbatch: run this on a login node, or take --engine debug")
    return Slurm(campaign.name, campaign.directory / LOGS, campaign.options, campaign.minutes)


def give_up(machine: str) -> None:
    """Make room for a new campaign: what an incomplete one has measured is filed; UserError where it has jobs."""
    before = Campaign.load(FLEET / machine)
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
        return {chosen.machine or f"{environments.machine_name()}-fleet": {}}
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

    same = ("reference", "nodes", "copies", "profile", "only", "engine")
    debug = chosen.engine == DEBUG
    scratch = ROOT / ".asv" if debug and not chosen.scratch else (chosen.scratch or Path("/tmp"))
    campaign = Campaign(
        directory=FLEET / machine,
        machine=machine,
        id=new_id(),
        tags=[toolchain.tag for toolchain in chosen.toolchains if toolchain.tag != chosen.reference],
        **{name: getattr(chosen, name) for name in same},
        rounds=chosen.rounds or PROFILES[chosen.profile].rounds,
        keep=chosen.keep or environments.keep(plugin.configured("keep_environments")),
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
