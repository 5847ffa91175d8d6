"""Measure a history on many nodes of a machine type: deal releases to nodes, submit jobs, gather their results.

A block is the work of one job on one node: the reference, some releases, and the reference again. Each release is in
``copies`` blocks, so that an effect of one node is not mistaken for an effect of the release.

Result files show which sessions are complete: a session appears there when it is whole. So the submitting process may
end. Another process, on any machine that shares the disk, continues from these files. The code is frozen when a
campaign begins, so that an edit meanwhile cannot make nodes measure different versions. Each node has a suite of its
own: a copy of the frozen code, with results and a journal as in any checkout. A job that is started again on its node
continues there. On another node it begins anew.

    .asv/fleet/MACHINE/hosts/node-a      name of the host called node-a; it appears nowhere outside of .asv
    .asv/fleet/MACHINE/ID/code           the code, as it was at submission
    .asv/fleet/MACHINE/ID/node-a/suite   a copy of it, with .asv/runs and reports/results
    .asv/fleet/MACHINE/ID/node-a/home    home directory with asv's file of machines

The engine is this process, which runs one job after the other, or the users' own Slurm through submitit. Only this
module uses submitit. Its job states are not used: without accounting it knows none, and it reports a node's failure as
the end of a job, although Slurm restarts the job. A node whose job failed by itself is left out the next time.
"""

import json
import math
import os
import pickle
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import count, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import cli
import psutil
from cli import UserError
from store.files import BENCHMARKS, NODE_PREFIX, RECORDS, put, put_all, read_records, result_files
from toolchains import environments, ledger

from .engine import RESULTS, ROOT, Suite, copy_code, link_environments
from .processes import last_line, os_session, read
from .runner import Journal, Plan, coarse_to_fine, lock_directory, restored, start_runner

FLEET = ROOT / ".asv" / "fleet"
PLAN, HOSTS = "campaign.json", "hosts"  # in the directory of a machine type
CODE, SUITE, HOME = (
    "code",
    "suite",
    "home",
)  # in the directory of a campaign, and in those of its nodes
VERB, ON_NODE = Path("scripts/fleet.py"), "--on-node"  # the program that runs on a node
# Users, machine types and Pythons may share a node's disk. Each combination has its own directory of environments
WHOSE = (
    f"{getattr(os, 'getuid', int)()} {platform.machine()} {platform.libc_ver()} {sys.base_prefix}"
)
SCRATCH = f"numpy-torch-{sha256(WHOSE.encode()).hexdigest()[:12]}"
DEBUG, SLURM = "debug", "slurm"  # engines: this machine as every node, or the users' own Slurm
ASKED = (
    2,
    5,
)  # maximum submissions per engine (debug, slurm); then a person should look why releases are missing
GRACE = 60  # seconds between Slurm's warning and the end of a job's time
REQUEUES = 5  # times that a job may run out of time and continue
POLL = 10.0  # seconds between two checks of jobs and results
SILENCE = (
    600.0  # seconds for which Slurm may fail to list its jobs: its controller is busy, or restarts
)
BACK_OFF = 30.0  # seconds before a job whose node failed is submitted again; doubled each time
INSTALL_MINUTES = 1.5  # per release, if torch includes CUDA
ENVIRONMENT_GB = 5  # per environment, if torch includes CUDA
SPARE = 1.5  # time limit of a job over its estimate, because a busy node waits for quiet

Block = tuple[list[str], set[str]]  # releases, and the hosts excluded from measuring them


# --- who measures what ------------------------------------------------------------------------------------------------


def deal(tags: Sequence[str], nodes: int, copies: int) -> list[list[str]]:
    """Deal ``tags``, in their order, into a block per node, as evenly as possible: each tag into ``copies`` blocks.

    A release goes to the node with the fewest releases so far. If there are several, it goes to the node that shares
    the fewest releases with the nodes that already have this one. With four nodes and two copies, releases go to nodes
    01, 23, 02, 13, 03, 12.
    """
    blocks: list[list[str]] = [[] for _ in range(nodes)]
    for tag in tags:
        for _ in range(copies):
            # release -> number of nodes that have both it and ``tag``
            met = Counter(other for block in blocks if tag in block for other in block)
            rest = [block for block in blocks if tag not in block]
            least = min(rest, key=lambda block: (len(block), sum(met[other] for other in block)))
            least.append(tag)
    return blocks


def top_up(
    had: Mapping[str, Collection[str]], copies: int, nodes: int, broken: Collection[str]
) -> Iterator[Block]:
    """Yield blocks of the releases that too few hosts have, each with its excluded hosts. had: release -> its hosts."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for tag, having in had.items():
        groups.setdefault(tuple(sorted(having)), []).append(tag)
    for having, tags in groups.items():
        without, missing = {*having, *broken}, copies - len(having)
        yield from (
            (block, without)
            for block in deal(tags, max(missing, nodes - len(without)), missing)
            if block
        )


def minutes_for(releases: int, session: float) -> float:
    """Estimate a node's minutes for this number of releases, with ``session`` minutes per session."""
    return (releases + 2) * session + (releases + 1) * INSTALL_MINUTES


# --- campaigns --------------------------------------------------------------------------------------------------------


@dataclass
class Campaign:
    """The work of the nodes of a machine type. It is kept on disk until it is complete.

    id         also the name of its jobs
    plan       its releases, each measured on ``copies`` nodes, and the reference, measured first and last on every node
    minutes    estimate per session, by its profile; ``allowed``: minutes that a job may take
    keep       maximum number of environments on a node's disk
    options    of the engine
    code       hash of the code that all nodes measure
    submitted  number of submissions so far
    """

    id: str
    slurm: bool
    plan: Plan
    nodes: int
    copies: int
    keep: int
    scratch: str
    wheelhouse: str
    minutes: float
    allowed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    submitted: int = 0

    def __post_init__(self) -> None:
        self.machine, self.directory = self.plan.machine, FLEET / self.plan.machine
        self.place = self.directory / self.id  # where its nodes have their suites
        self.logs = self.directory / "logs" / self.id

    @classmethod
    def load(cls, directory: Path) -> "Campaign | None":
        """Load the campaign from the directory of a machine type. Return None without a campaign. Raise UserError if
        its file is broken."""
        return restored(cls, directory / PLAN, directory)

    def save(self) -> None:
        put(self.directory / PLAN, json.dumps(asdict(self)))

    def finish(self) -> None:
        """Remove the campaign, whose results are filed."""
        (self.directory / PLAN).unlink(missing_ok=True)
        shutil.rmtree(self.place, ignore_errors=True)

    def freeze(self) -> None:
        """Copy the code once. Nodes measure this copy, whatever happens to the checkout."""
        if not self.code:
            copy_code(ROOT, self.place / CODE)
            self.code = hash_of(self.place / CODE)
        elif hash_of(self.place / CODE) != self.code:
            raise UserError(
                f"{self.place / CODE} was changed since the campaign began: remove {self.directory}"
            )
        self.save()

    # --- results so far -----------------------------------------------------------------------------------------------

    def gather(self) -> dict[tuple[str, str], str]:
        """File the results of each node in its own directory, and asv's description of the benchmarks.

        Return (release, node) -> why that node could not measure the release; "" if it is measured.
        """
        for suite in sorted(self.place.glob(f"{NODE_PREFIX}*/{SUITE}")):
            results = Suite(suite).results
            put_all(results / self.machine, RESULTS / self.machine / suite.parent.name)
            if (results / BENCHMARKS).is_file():
                put(RESULTS / BENCHMARKS, (results / BENCHMARKS).read_bytes())
        records = [
            record
            for path in result_files(RESULTS, self.machine, RECORDS)
            for record in read_records(path)
        ]
        own = [
            ((r.toolchain.tag, r.fleet["node"]), r.failed)
            for r in records
            if r.fleet.get("id") == self.id
        ]
        return {session: "" if (session, "") in own else why for session, why in own}

    def lacking(self, sessions: Mapping[tuple[str, str], str]) -> dict[str, set[str]]:
        """Release measured on too few nodes -> these. Omit releases that no node can measure. sessions: see gather"""
        had = {
            tag: {node for (one, node), why in sessions.items() if one == tag and not why}
            for tag in self.plan.tags
        }
        failed = Counter(tag for (tag, _), why in sessions.items() if why)
        few = {tag: nodes for tag, nodes in had.items() if len(nodes) < self.copies}
        return {tag: nodes for tag, nodes in few.items() if nodes or failed[tag] < self.copies}


def hash_of(code: Path) -> str:
    """Return a hash of all files of a copy of the code."""
    files = sorted(
        path for path in code.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return sha256(
        b"".join(str(path.relative_to(code)).encode() + path.read_bytes() for path in files)
    ).hexdigest()


# --- on a node --------------------------------------------------------------------------------------------------------


def names() -> Iterator[str]:
    """node-a, node-b, ..., node-aa, ..."""
    return (
        NODE_PREFIX + "".join(letters)
        for length in count(1)
        for letters in product(ascii_lowercase, repeat=length)
    )


def name_of(directory: Path, host: str) -> str:
    """Return the anonymous name of a host in the directory of a machine type. A host keeps its name."""
    hosts = directory / HOSTS
    with lock_directory(hosts, seconds=60.0):
        known = {
            path.read_text(encoding="utf-8"): path.name for path in hosts.glob(f"{NODE_PREFIX}*")
        }
        if host not in known:
            known[host] = next(name for name in names() if name not in known.values())
            put(hosts / known[host], host)
    return known[host]


def variables_of(campaign: Campaign, place: Path) -> dict[str, str]:
    """Return environment variables of a node's suite. asv gets its own home directory. pip uses the user's settings and
    cache."""
    own = {"HOME": str(place / HOME), environments.LIMIT_VARIABLE: str(campaign.keep)}
    if campaign.wheelhouse:
        own |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": campaign.wheelhouse}
    users = {
        f"XDG_{what.upper()}_HOME": str(Path.home() / f".{what}") for what in ("config", "cache")
    }
    return {**users, **os.environ, **own}


def enter(campaign: Campaign, directory: Path, node: str, tags: Sequence[str]) -> None:
    """Make this node's suite if missing, and continue in it. Until then this process runs the frozen code itself."""
    node = node or name_of(directory, os.environ.get("SLURMD_NODENAME") or socket.gethostname())
    place = ROOT.parent / node
    suite = place / SUITE
    with lock_directory(place):
        if not suite.is_dir():
            fresh = place / f"{SUITE}.new"
            copy_code(ROOT, fresh)
            # results of the node's earlier campaigns are kept with the new ones
            earlier = Suite(directory.parents[2]).results / campaign.machine / node
            if earlier.is_dir():
                shutil.copytree(earlier, Suite(fresh).results / campaign.machine)
            fresh.rename(suite)
        (place / HOME).mkdir(exist_ok=True)
        link_environments(suite, Path(campaign.scratch) / SCRATCH)
    os.chdir(suite)
    command = [sys.executable, str(suite / VERB), ON_NODE, str(directory), node, *tags]
    os.execve(sys.executable, command, variables_of(campaign, place))


def on_node(directory: Path, node: str, tags: Sequence[str]) -> int:
    """Run a job on its node. Return exit code 0 even if a release could not be measured: its record says why.

    directory  of the machine type; the campaign's file there holds the settings of all its jobs
    """
    campaign = Campaign.load(directory)
    if campaign is None:
        raise UserError(f"{directory / PLAN} is gone: the campaign has ended")
    if ROOT.name == CODE:
        enter(campaign, directory, node, tags)  # starts this program again in the node's suite
    with lock_directory(ROOT.parent):
        journal = Journal(ROOT / ".asv" / "runs" / campaign.machine / "track")
        before = journal.plan()
        asked = dict.fromkeys(
            [campaign.plan.reference, *(before.tags if before else ()), *coarse_to_fine(tags)]
        )
        fleet = {"id": campaign.id, "engine": SLURM if campaign.slurm else DEBUG, "node": node}
        start_runner(journal, replace(campaign.plan, tags=tuple(asked), fleet=fleet)).measure()
    return 0


# --- engines ----------------------------------------------------------------------------------------------------------


def program(campaign: Campaign, tags: Sequence[str], node: str = "") -> list[str]:
    """Return the command of the frozen code that measures these releases on a node ("": the node where it runs)."""
    return [
        sys.executable,
        str(campaign.place / CODE / VERB),
        ON_NODE,
        str(campaign.directory),
        node,
        *tags,
    ]


def job(command: Sequence[str]) -> Callable[[], None]:
    """Return the object that submitit runs on a node. It runs the program, ends it at Slurm's warning, and resumes it.

    Its class is made inside this function, so that nodes receive its code and need not find this file.
    """
    from submitit.helpers import DelayedSubmission

    class Job:
        def __call__(self) -> None:
            # Slurm's warning is for submitit alone, and reaches every process of the job
            self.process = psutil.Popen(["sh", "-c", 'trap "" USR2; exec "$@"', "sh", *command])
            if code := self.process.wait():
                raise RuntimeError(f"exit status {code}; the reason is above")

        def checkpoint(self) -> DelayedSubmission:
            """Stop the program. submitit calls this at the warning, during the wait above. There subprocess's wait
            would lock, psutil's does not."""
            if self.process.is_running():
                self.process.terminate()
                self.process.wait()
            return DelayedSubmission(Job())

    return Job()


def submit(campaign: Campaign, tags: Sequence[str], without: Collection[str]) -> bool:
    """Submit a job that measures a block on a host not in ``without``. Return whether Slurm accepts the job. At the
    first submission raise UserError if Slurm rejects it."""
    try:
        import submitit
    except ModuleNotFoundError:
        why = "--engine slurm needs submitit: pip install submitit (in this Python, which the nodes use, too)"
        raise UserError(why) from None
    executor = submitit.AutoExecutor(campaign.logs, cluster="slurm", slurm_max_num_timeout=REQUEUES)
    executor.update_parameters(
        name=campaign.id,
        timeout_min=campaign.allowed,
        tasks_per_node=1,
        slurm_signal_delay_s=GRACE,
        slurm_exclude=",".join(sorted(without)) or None,
        slurm_setup=[f'echo "$SLURMD_NODENAME" > "{campaign.logs}/$SLURM_JOB_ID.host"'],
        slurm_additional_parameters={**campaign.options, "requeue": True},
    )
    try:
        executor.submit(job(program(campaign, tags)))
    except submitit.core.utils.FailedJobError as why:
        if campaign.submitted > 1:  # no other node is left, perhaps
            print(
                cli.one_line(f"{campaign.machine}: Slurm rejected the job: {last_line(str(why))}"),
                flush=True,
            )
            return False
        raise UserError(f"Slurm rejected the job: {last_line(str(why))}") from None
    return True


def coming(campaign: Campaign) -> list[str]:
    """Return state and reason of each of the campaign's jobs in Slurm's queue."""
    if not campaign.slurm:
        return []
    command = ["squeue", "--noheader", "--array", f"--name={campaign.id}", "--format=%T %r"]
    return ask(command, SILENCE).splitlines()


def broken_hosts(campaign: Campaign) -> dict[str, str]:
    """Host -> why the last job there failed, with its log. A job cancelled by Slurm or by a person has not failed."""
    broken: dict[str, str] = {}
    for path in sorted(campaign.logs.glob("*.host"), key=lambda path: path.stat().st_mtime):
        host, job = path.read_text(encoding="utf-8").strip(), path.stem
        result, log = campaign.logs / f"{job}_0_result.pkl", campaign.logs / f"{job}_0_log.err"
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        if result.is_file() and pickle.loads(result.read_bytes())[0] == "success":
            broken.pop(host, None)
        elif " CANCELLED AT " not in text:
            said = re.findall(r"^(?!submitit |srun: )(?=.*\S).*", text, re.MULTILINE)
            own = [line for line in said if line.startswith("fleet.py: ")]
            reason = last_line("\n".join(own or said) or text, "no output").removeprefix(
                "fleet.py: "
            )
            broken[host] = f"{reason} (log: {os.path.relpath(log)})"
    return broken


def ask(command: Sequence[str], silence: float = 0.0) -> str:
    """Return the output of a Slurm command. Raise UserError if it fails for longer than ``silence`` seconds."""
    until = time.monotonic() + silence
    while True:
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise UserError(
                "--engine slurm needs Slurm: run this on a login node, or use --engine debug"
            ) from None
        if not done.returncode:
            return done.stdout
        why = f"{shlex.join(command)}: {last_line(done.stderr, 'no reason')}"
        if time.monotonic() >= until:
            raise UserError(why)
        print(cli.one_line(f"{why}; asking again"), flush=True)
        time.sleep(POLL)


def minutes_of(limit: str) -> float:
    """Parse a time limit of sinfo, [days-][hours:]minutes:seconds or infinite, into minutes."""
    days, _, rest = limit.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in parts):
        return math.inf
    return (
        int(days or 0) * 1440
        + sum(int(part) * 60**place for place, part in enumerate(reversed(parts))) / 60
    )


def check_cluster(campaign: Campaign) -> None:
    """Raise UserError unless Slurm accepts jobs with these options on all nodes, and allows them enough time."""
    asked = [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in campaign.options.items()
    ]
    ask(["sbatch", "--test-only", "--wrap=true", f"--nodes={campaign.nodes}", *asked])
    partition = [word for word in asked if word.startswith("--partition=")]
    limits = ask(["sinfo", "--noheader", "--format=%l", *partition]).split()
    longest = max(map(minutes_of, limits), default=math.inf)
    if campaign.allowed > longest:
        asked_for = (
            f"the partition allows {longest:.0f} minutes per job, but {campaign.allowed} are needed"
        )
        raise UserError(f"{asked_for}: with --time {longest:.0f} a second job continues the first")


# --- running a campaign -----------------------------------------------------------------------------------------------


def step(campaign: Campaign) -> str | None:
    """Gather results and submit missing releases. Return the progress in words, or None if no more will come."""
    jobs = coming(campaign)  # before the files: a job that ends meanwhile is seen next time
    sessions = campaign.gather()
    short = campaign.lacking(sessions)
    filed = Counter(node for (_, node), why in sessions.items() if not why)
    far = "releases filed: " + (
        ", ".join(f"{node} {number}" for node, number in sorted(filed.items())) or "none"
    )
    if jobs:
        return f"{far}; " + ", ".join(
            f"{number} {word}" for word, number in sorted(Counter(jobs).items())
        )
    if not short or campaign.submitted >= ASKED[campaign.slurm]:
        return None
    if campaign.submitted:
        print(
            f"{campaign.machine}: {len(short)} releases are missing on some nodes; submitting them again",
            flush=True,
        )
    campaign.submitted += 1
    campaign.save()
    if not campaign.slurm:  # one node after the other: no two may time at once on this machine
        for tags, node in zip(deal(campaign.plan.tags, campaign.nodes, campaign.copies), names()):
            with os_session(program(campaign, tags, node), ROOT) as process:
                process.wait()
        return ""
    broken = broken_hosts(campaign)
    for why in broken.values():
        print(cli.one_line(f"{campaign.machine}: leaving out a node: {why}"), flush=True)
    if broken:
        time.sleep(BACK_OFF * 2 ** (campaign.submitted - 2))
    had = {
        tag: {read(campaign.directory / HOSTS / node) for node in nodes}
        for tag, nodes in short.items()
    }
    wanted = top_up(had, campaign.copies, campaign.nodes, broken)
    return far if any([submit(campaign, tags, without) for tags, without in wanted]) else None


def give_up(machine: str) -> None:
    """End an incomplete campaign to make room for a new one, and file its results. Raise UserError if it has jobs."""
    before = Campaign.load(FLEET / machine)
    if before and coming(before):
        goes_on = f"--resume gathers their results, scancel --name={before.id} cancels them"
        raise UserError(f"jobs named {before.id} are still measuring {machine}: {goes_on}")
    if before:
        before.gather()
        before.finish()


def measure(campaign: Campaign, build: Callable[[str], object]) -> int:
    """Run a campaign and build its page. Return exit code 2 if results are missing, else 0."""
    campaign.freeze()
    if campaign.wheelhouse and not campaign.submitted:
        wheels(Path(campaign.wheelhouse), [campaign.plan.reference, *campaign.plan.tags])
    shown = ""
    try:
        while (far := step(campaign)) is not None:
            if far and far != shown:
                print(cli.one_line(f"{campaign.machine}: {(shown := far)}"), flush=True)
            time.sleep(POLL if campaign.slurm else 0)
    except (KeyboardInterrupt, UserError):
        print(
            "submitted jobs continue; to gather their results, run python scripts/fleet.py --resume"
        )
        raise
    return ended(campaign, build)


def ended(campaign: Campaign, build: Callable[[str], object]) -> int:
    """Print the outcome of a campaign and build its page. Return the exit code."""
    sessions = campaign.gather()
    short, failed = (
        campaign.lacking(sessions),
        {session: why for session, why in sessions.items() if why},
    )
    there = len({tag for tag, _ in sessions.keys() - failed.keys()} & {*campaign.plan.tags})
    nodes = len({node for _, node in sessions})
    print(
        f"{campaign.machine}: filed {there} of {len(campaign.plan.tags)} releases from {nodes} nodes"
    )
    said = [f"{tag}: no results from {node}: {reason}" for (tag, node), reason in failed.items()]
    for words in (*said, *(f"a node failed: {why}" for why in broken_hosts(campaign).values())):
        print(cli.one_line(words))
    if there:
        build(campaign.machine)
    if short:
        print(
            f"{len(short)} releases were measured on fewer than {campaign.copies} nodes; --resume submits them again"
        )
    elif not failed:
        campaign.finish()
    return 2 if short or failed else 0


def wheels(directory: Path, tags: Collection[str]) -> None:
    """Download the missing wheels of these releases into a wheelhouse."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]
    command += [
        "--progress-bar=off",
        "--only-binary=:all:",
        "--dest",
        str(directory),
        "--find-links",
        str(directory),
    ]
    for tag in tags:
        try:
            environments.run_program(
                [*command, *environments.requirements(ledger.toolchains_by_tag()[tag])]
            )
        except environments.InstallError as error:
            print(cli.one_line(f"{tag}: no wheels: {error}"), flush=True)
        else:
            print(f"{tag}: wheels are in the wheelhouse", flush=True)


def plan_lines(campaign: Campaign) -> Iterator[str]:
    """Yield lines of the plan: the releases of each node, time and disk space."""
    blocks = deal(campaign.plan.tags, campaign.nodes, campaign.copies)
    minutes = [minutes_for(len(block), campaign.minutes) for block in blocks]
    count, gigabytes = sum(len(block) + 2 for block in blocks), campaign.keep * ENVIRONMENT_GB
    releases = f"{len(campaign.plan.tags) + 1} releases, each on {campaign.copies} of {campaign.nodes} nodes"
    yield f"{campaign.machine}: {releases}, the reference {campaign.plan.reference} first and last on all of them"
    if campaign.slurm:
        takes = f"{max(minutes):.0f} minutes on the busiest node, {campaign.allowed} allowed"
        yield f"  {count} sessions; {takes}; jobs named {campaign.id}"
    else:
        yield f"  this machine stands for every node in turn: {count} sessions, {sum(minutes):.0f} minutes"
    if campaign.copies == 1 < campaign.nodes:
        yield "  no instructions are counted: with --copies 1 nodes differ in them as releases do"
    yield f"  disk: {gigabytes} GB per node for {campaign.keep} environments, if torch includes CUDA"
    for node, block in zip(names(), blocks):
        yield f"  {node}: {len(block) + 2} sessions: {', '.join(block)}"
