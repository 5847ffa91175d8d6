"""A history measured by many nodes of a machine type: dealt to nodes, given to an engine, gathered as it comes.

A block is what one job measures on one node: the reference, some releases, and the reference again. Each release is in
as many blocks as there are to be copies, so that an effect of a node is none of the release.

What is complete is read from result files, in which a session appears when it is whole. So whoever submitted may be
gone: another process, on another machine of the same disk, goes on from what lies there. The code is frozen when a
campaign begins, so that no edit meanwhile makes nodes measure different versions.

An engine is this process, one job after the other, or the users' own Slurm by way of submitit. All of submitit is here.
Its word on whether a job is done is not taken: without accounting it knows no states, and it takes a node's failure for
an end though Slurm starts the job anew. A job that failed at once leaves its node out the next time.
"""

import contextlib
import json
import math
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import cli
from cli import UserError, put
from store.files import BENCHMARKS, put_all, read_records, result_files
from store.records import Record
from toolchains import environments, ledger

from .engine import RESULTS, ROOT, copy_code
from .journal import restored
from .node import CODE, HOSTS, SUITE, journal_of, names
from .processes import last_line, session
from .tracking import coarse_to_fine

FLEET = ROOT / ".asv" / "fleet"
PLAN, LOGS = "campaign.json", "logs"  # in the directory of a machine type
ASKED = {"debug": 2, "slurm": 5}  # times, before somebody should look why it is still missing
DEBUG, SLURM = ASKED  # engines: this machine for every node, and the users' own Slurm
GRACE = 60  # seconds before the end of a job's time in which it may end by itself
REQUEUES = 5  # times that a job may run out of time, and go on
POLL = 10.0  # seconds between two looks at what there is
BACK_OFF = 30.0  # seconds before a job is asked for again whose node failed, twice that the next time, and so on
INSTALL_MINUTES = 1.5  # of a release, where torch comes with CUDA
ENVIRONMENT_GB = 5  # of the same
CHOICE = 8  # nodes beyond the copies that a release may go to: of a large fleet all pairs are too many to look at
SPARE = 1.5  # times the estimate: what a job may take, for a busy node waits for quiet

Jobs = Sequence[tuple[Mapping[str, Any], Collection[str]]]  # what a node is to do, and the hosts that are not to do it


# --- who measures what ------------------------------------------------------------------------------------------------


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


def top_up(
    had: Mapping[str, Collection[str]], copies: int, hosts: Collection[str]
) -> list[tuple[list[str], tuple[str, ...]]]:
    """Blocks for releases that too few hosts have, each with those that it is not for. had: release -> its hosts."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for tag, having in had.items():
        groups.setdefault(tuple(sorted(having)), []).append(tag)
    more = []
    for without, tags in groups.items():
        others = len({*hosts} - {*without})
        number = min(copies - len(without), others)
        more += [(block, without) for block in deal(tags, others, number) if block] if number > 0 else []
    return more


# --- campaigns --------------------------------------------------------------------------------------------------------


@dataclass
class Campaign:
    """What nodes of a machine type are to measure; all but ``directory`` is kept on disk until it is complete.

    machine    name under which results are filed
    tags       releases, without the reference, each to be measured on as many nodes as there are ``copies``
    minutes    a session takes by its profile's estimate; allowed: a job may take
    keep       environments on a node's disk at most
    options    of the engine
    code       hash of the code that all nodes measure
    """

    directory: Path
    machine: str
    id: str
    tags: tuple[str, ...]
    reference: str
    nodes: int
    copies: int
    profile: str
    only: str
    rounds: int
    keep: int
    engine: str
    command: str
    scratch: str
    wheelhouse: str
    minutes: float
    allowed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    submitted: int = 0  # times

    @classmethod
    def load(cls, directory: Path) -> "Campaign | None":
        """What is kept there; None where nothing is. UserError where it cannot be read."""
        return restored(cls, directory / PLAN, directory, directory=directory)

    def save(self) -> None:
        kept = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "directory"}
        put(self.directory / PLAN, json.dumps(kept))

    def finish(self) -> None:
        """Forget the campaign: its results are filed."""
        (self.directory / PLAN).unlink(missing_ok=True)
        shutil.rmtree(self.place, ignore_errors=True)

    @property
    def place(self) -> Path:
        """Where its nodes have their suites."""
        return self.directory / self.id

    @property
    def logs(self) -> Path:
        return self.directory / LOGS / self.id

    @property
    def name(self) -> str:
        """What the engine calls its jobs."""
        return f"fleet-{self.id}"

    def freeze(self) -> None:
        """Copy the code, once: what nodes measure is this, whatever happens to the checkout."""
        if not self.code:
            copy_code(ROOT, self.place / CODE)
            self.code = hash_of(self.place / CODE)
            self.save()
        elif hash_of(self.place / CODE) != self.code:
            raise UserError(f"{self.place / CODE} was changed since the campaign began: remove {self.directory}")

    def busiest(self, blocks: Sequence[Sequence[str]]) -> float:
        """Minutes that the node with the longest of these blocks takes, by estimate."""
        longest = max(map(len, blocks))
        return (longest + 2) * self.minutes + (longest + 1) * INSTALL_MINUTES

    def job(self, tags: Sequence[str], node: str | None = None) -> Mapping[str, Any]:
        """What a node is to do; ``node``: which it is to be, None where it finds that out."""
        known = ledger.tagged()
        in_order = [toolchain.tag for toolchain in coarse_to_fine([known[tag] for tag in tags])]
        names = ("machine", "id", "reference", "profile", "only", "rounds", "keep", "engine", "command")
        own = {name: getattr(self, name) for name in (*names, "scratch", "wheelhouse")}
        return {**own, "tags": in_order, "node": node, "results": str(RESULTS)}

    # --- what there is ------------------------------------------------------------------------------------------------

    def results_of(self, node: str) -> Path:
        """Where the suite of a node files what it measures."""
        return self.place / node / SUITE / RESULTS.relative_to(ROOT)

    def sessions(self) -> dict[str, list[Record]]:
        """Node -> what it has measured, those that failed included, in order of time."""
        found = {}
        for suite in sorted(self.place.glob(f"node-*/{SUITE}")):
            node = suite.parent.name
            paths = result_files(self.results_of(node), self.machine, ".jsonl")
            records = [record for path in paths for record in read_records(path) if record.fleet.get("id") == self.id]
            found[node] = sorted(records, key=lambda record: record.started)
        return found

    def gather(self) -> None:
        """File what the nodes have filed, each in a directory of its own, with what describes it."""
        for node in self.sessions():
            results = self.results_of(node)
            put_all(results / self.machine, RESULTS / self.machine / node)
            if (results / BENCHMARKS).is_file():
                put(RESULTS / BENCHMARKS, (results / BENCHMARKS).read_bytes())

    def had(self) -> dict[str, set[str]]:
        """Release that was asked for -> the nodes that have measured it."""
        measured = {
            node: {record.toolchain.tag for record in records if not record.failed}
            for node, records in self.sessions().items()
        }
        return {tag: {node for node, tags in measured.items() if tag in tags} for tag in self.tags}

    def failed(self) -> dict[str, dict[str, str]]:
        """Release -> node -> why that node could not measure it."""
        had, reasons = self.had(), dict[str, dict[str, str]]()
        for node, records in self.sessions().items():
            for record in records:
                tag = record.toolchain.tag
                if record.failed and node not in had.get(tag, ()):
                    reasons.setdefault(tag, {})[node] = record.failed
        return reasons

    def lacking(self) -> dict[str, set[str]]:
        """Release that too few nodes have -> those; none that no node could measure."""
        failed = self.failed()
        short = {tag: nodes for tag, nodes in self.had().items() if len(nodes) < self.copies}
        return {tag: nodes for tag, nodes in short.items() if nodes or len(failed.get(tag, ())) < self.copies}

    def host(self, node: str) -> str:
        return (self.directory / HOSTS / node).read_text(encoding="utf-8")

    def doing(self) -> dict[str, str]:
        """Node -> what it measures now, or has measured last; by its journal."""
        by_node = {}
        for node, records in self.sessions().items():
            journal = journal_of(self.place / node / SUITE, self.machine)
            begun = dict.fromkeys(path.parent.name for path in journal.directory.glob("*/[0-9]"))
            rounds = {tag: len(journal.rounds(tag)) for tag in begun}
            now = ", ".join(f"{tag} round {done + 1} of {self.rounds}" for tag, done in rounds.items())
            filed = f"{sum(not record.failed for record in records)} sessions filed"
            by_node[node] = filed + (f"; {now}" if now else "")
        return by_node


def hash_of(code: Path) -> str:
    """Of all files of a copy of the code."""
    files = sorted(path for path in code.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sha256(b"".join(str(path.relative_to(code)).encode() + path.read_bytes() for path in files)).hexdigest()


# --- engines ----------------------------------------------------------------------------------------------------------


def program(campaign: Campaign, job: Mapping[str, Any]) -> list[str]:
    """The command that does a job on a node, in the frozen code."""
    path = Path(__file__).with_name("node.py").resolve().relative_to(ROOT)
    return [sys.executable, str(campaign.place / CODE / path), json.dumps(job)]


@dataclass
class Command:
    """What submitit runs on a node: the program, which ends when Slurm says that time is up, and goes on later."""

    command: list[str]

    def __call__(self) -> int:
        # Slurm's warning is for submitit alone, and reaches every process of the job
        self.process = subprocess.Popen(["sh", "-c", 'trap "" USR2; exec "$@"', "sh", *self.command])
        code = self.process.wait()
        if code not in (0, 2):  # 2: a release that could not be measured, of which a record says why
            raise RuntimeError(f"it ended with exit code {code}: the reason is above")
        return code

    def checkpoint(self) -> Any:
        """Called by submitit's handler of that warning, which interrupts the waiting above: Popen's own would lock."""
        from submitit.helpers import DelayedSubmission

        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.process.pid, signal.SIGTERM)
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(Command(self.command))


def submit(campaign: Campaign, jobs: Jobs) -> None:
    """Have Slurm do these jobs, as arrays."""
    try:
        import cloudpickle
        import submitit
    except ModuleNotFoundError:
        raise UserError(
            "--engine slurm needs submitit: pip install submitit (in this Python, which the nodes use, too)"
        ) from None
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the nodes need not find this file
    number = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
    for without in dict.fromkeys(tuple(sorted(hosts)) for _, hosts in jobs):
        executor = submitit.AutoExecutor(campaign.logs, cluster="slurm", slurm_max_num_timeout=REQUEUES)
        options = {**campaign.options, "requeue": True, **({"exclude": ",".join(without)} if without else {})}
        executor.update_parameters(
            name=campaign.name,
            timeout_min=campaign.allowed,
            nodes=1,
            tasks_per_node=1,
            slurm_signal_delay_s=GRACE,
            slurm_setup=[f'echo "$SLURMD_NODENAME" > "{campaign.logs}/{number}.host"'],
            slurm_additional_parameters=options,
        )
        try:
            with executor.batch():
                for job, hosts in jobs:
                    if tuple(sorted(hosts)) == without:
                        executor.submit(Command(program(campaign, job)))
        except submitit.core.utils.FailedJobError as why:
            raise UserError(f"Slurm takes no such job: {last_line(str(why))}") from None


def coming(campaign: Campaign) -> list[str]:
    """A word on each of the campaign's jobs that Slurm has."""
    if campaign.engine == DEBUG:
        return []
    asked = ["squeue", "--noheader", "--array", f"--name={campaign.name}", "--format=%T %r"]
    return ask(asked).splitlines()


def broken_hosts(campaign: Campaign) -> dict[str, str]:
    """Host -> why the last job there failed by itself, with its log; none that Slurm, or somebody, ended."""
    broken: dict[str, str] = {}
    for path in sorted(campaign.logs.glob("*.host"), key=lambda path: path.stat().st_mtime):
        host, job = path.read_text(encoding="utf-8").strip(), path.stem
        result, log = campaign.logs / f"{job}_0_result.pkl", campaign.logs / f"{job}_0_log.err"
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        if result.is_file() and pickle.loads(result.read_bytes())[0] == "success":
            broken.pop(host, None)
        elif " CANCELLED AT " not in text:
            said = [line for line in text.splitlines() if line.strip() and not line.startswith(("submitit ", "srun: "))]
            own = [line for line in said if line.startswith("node.py: ")]
            reason = (own or said or text.splitlines() or ["it said nothing"])[-1]
            broken[host] = f"{reason.removeprefix('node.py: ')} (log: {os.path.relpath(log)})"
    return broken


def ask(command: Sequence[str]) -> str:
    """What one of Slurm's commands prints; UserError where it does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise UserError("--engine slurm needs Slurm: run this on a login node, or take --engine debug") from None
    if done.returncode:
        raise UserError(f"{command[0]} does not answer: {last_line(done.stderr, 'no reason')}")
    return done.stdout


def minutes_of(limit: str) -> float:
    """Of a time limit as sinfo writes it: [days-][hours:]minutes:seconds, or infinite."""
    days, _, rest = limit.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in parts):
        return math.inf
    return int(days or 0) * 1440 + sum(int(part) * 60**place for place, part in enumerate(reversed(parts))) / 60


def hosts_of(campaign: Campaign) -> dict[str, float]:
    """Host that has the properties asked for -> minutes that a job may take there, by sinfo."""
    rows = [line.split("|") for line in ask(["sinfo", "-h", "-N", "-o", "%N|%R|%l|%f"]).splitlines()]
    partition, constraint = (campaign.options.get(name) for name in ("partition", "constraint"))
    known = sorted({row[1] for row in rows})
    if partition and partition not in known:
        raise UserError(f"there is no partition {partition}; there are: {', '.join(known)}")
    if constraint and re.fullmatch(r"[\w-]+", constraint):  # else it is an expression, which Slurm judges
        rows = [row for row in rows if constraint in row[3].split(",")]
    return {host: minutes_of(limit) for host, name, limit, _ in rows if not partition or name == partition}


def check_cluster(campaign: Campaign) -> None:
    """UserError unless the cluster has as many nodes of these properties, for as long."""
    hosts = hosts_of(campaign)
    if len(hosts) < campaign.nodes:
        raise UserError(f"--nodes {campaign.nodes}: of such nodes the cluster has {len(hosts)}")
    longest = max(hosts.values())
    if campaign.allowed > longest:
        raise UserError(
            f"a job may take {longest:.0f} minutes there, and {campaign.allowed} are asked for: "
            f"--time {longest:.0f} lets it go on in a second job"
        )


# --- campaigns seen through -------------------------------------------------------------------------------------------


def step(campaign: Campaign) -> list[str] | None:
    """Gather what there is and ask for what is missing: a word on each job to come, None when there is no more."""
    jobs = coming(campaign)  # before the files: what ends meanwhile is seen the next time
    campaign.gather()
    if jobs:
        return jobs
    short = campaign.lacking()
    if not short or campaign.submitted >= ASKED[campaign.engine]:
        return None
    blocks = deal(campaign.tags, campaign.nodes, campaign.copies)
    if campaign.engine == DEBUG:  # the nodes are this machine: none is lost, and each goes on with its block
        wanted: Jobs = [(campaign.job(block, node), ()) for block, node in zip(blocks, names())]
    else:
        broken = broken_hosts(campaign)
        for why in broken.values():
            print(cli.line(f"{campaign.machine}: a node is left out: {why}"), flush=True)
        usable = set(hosts_of(campaign)) - set(broken)
        if campaign.sessions():
            had = {tag: {campaign.host(node) for node in nodes} for tag, nodes in short.items()}
            more = top_up(had, campaign.copies, usable)
        else:
            more = [(block, ()) for block in blocks] if usable else []
        wanted = [(campaign.job(block), {*without, *broken}) for block, without in more]
        if not wanted:
            return None
        if broken:
            time.sleep(BACK_OFF * 2 ** (campaign.submitted - 1))
    if campaign.submitted:
        print(f"{campaign.machine}: {len(short)} releases are missing on some node; asked for again", flush=True)
    campaign.submitted += 1
    campaign.save()
    if campaign.engine == SLURM:
        submit(campaign, wanted)
    for job, _ in wanted if campaign.engine == DEBUG else ():  # no two may time at the same time
        with session(program(campaign, job), ROOT) as process:
            process.wait()
    return []


def give_up(machine: str) -> None:
    """Make room for a new campaign: what an incomplete one has measured is filed; UserError where it has jobs."""
    before = Campaign.load(FLEET / machine)
    if before is None:
        return
    if coming(before):
        raise UserError(
            f"jobs named {before.name} measure {machine}: --resume gathers what they do, "
            f"scancel --name={before.name} ends them"
        )
    before.gather()
    before.finish()


def measure(campaigns: Sequence[Campaign], show_hosts: bool, build: Callable[[str], object]) -> int:
    """See these campaigns through; the exit code: 2 where something could not be measured."""
    for campaign in campaigns:
        campaign.save()
        campaign.freeze()
        if campaign.wheelhouse:
            wheels(Path(campaign.wheelhouse), [campaign.reference, *campaign.tags])
    shown: dict[tuple[str, str], str] = {}
    working = list(campaigns)
    try:
        while working:
            for campaign in list(working):
                jobs = step(campaign)
                if jobs is None:
                    working.remove(campaign)
                hosts = show_hosts and campaign.engine == SLURM
                doing = campaign.doing()
                lines = {f"{node} ({campaign.host(node)})" if hosts else node: what for node, what in doing.items()}
                if jobs:
                    lines["jobs"] = ", ".join(f"{number} {word}" for word, number in sorted(Counter(jobs).items()))
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


def ended(campaign: Campaign, build: Callable[[str], object]) -> int:
    """Say what a campaign has come to, and build its page; the exit code."""
    had, short, failed, sessions = campaign.had(), campaign.lacking(), campaign.failed(), campaign.sessions()
    there = sum(map(bool, had.values()))
    print(f"{campaign.machine}: {there} of {len(had)} releases on {len(sessions)} nodes are filed")
    for tag, reasons in failed.items():
        for node, reason in reasons.items():
            print(cli.line(f"{tag} has no results of {node}: {reason}"))
    for why in broken_hosts(campaign).values():
        print(cli.line(f"a node failed: {why}"))
    for node, records in sessions.items():
        tags = [record.toolchain.tag for record in records if not record.failed]
        if tags and not (tags.count(campaign.reference) > 1 and tags[0] == tags[-1] == campaign.reference):
            print(f"{node} has not measured the reference at the end: its drift is not known")
    if there:
        build(campaign.machine)
    if short:
        print(f"{len(short)} releases are not on {campaign.copies} nodes: python scripts/fleet.py --resume asks again")
        return 2
    if failed:
        return 2
    campaign.finish()
    return 0


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
    blocks = deal(campaign.tags, campaign.nodes, campaign.copies)
    count, gigabytes = sum(len(block) + 2 for block in blocks), campaign.keep * ENVIRONMENT_GB
    lines = [
        f"{campaign.machine}: {len(campaign.tags) + 1} releases, each on {campaign.copies} of {campaign.nodes} nodes, "
        f"the reference {campaign.reference} first and last on all of them"
    ]
    if campaign.engine == DEBUG:
        total = sum(campaign.busiest([block]) for block in blocks)
        lines.append(f"  the nodes are this machine, one after the other: {count} sessions, {total:.0f} minutes")
    else:
        lines.append(
            f"  {count} sessions; {campaign.busiest(blocks):.0f} minutes on the busiest node, "
            f"{campaign.allowed} allowed; jobs named {campaign.name}"
        )
    if campaign.copies < min(2, campaign.nodes):
        lines.append("  --copies 1: instructions that differ between nodes look like changes of releases")
    lines.append(f"  disk: {gigabytes} GB a node for {campaign.keep} environments, where torch comes with CUDA")
    lines += [f"  {node}: {len(block) + 2} sessions: {', '.join(block)}" for node, block in zip(names(), blocks)]
    return lines
