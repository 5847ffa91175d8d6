"""The campaign of a fleet: which node measures which releases, and what of it is filed.

A block is the work of one job on one node: the reference, some releases, and the reference again.
Each release is in ``copies`` blocks, so that an effect of one node is not mistaken for an effect of
the release.

Result files show which sessions are complete: a session appears there when it is whole. So the
submitting process may end. Another process, on any machine that shares the disk, continues from
these files. The code is frozen when a campaign begins, so that an edit meanwhile cannot make nodes
measure different versions.

    .asv/fleet/MACHINE/hosts/node-a      name of the host called node-a; it appears nowhere
                                         outside of .asv
    .asv/fleet/MACHINE/ID/code           the code, as it was at submission
    .asv/fleet/MACHINE/ID/node-a/suite   a copy of it, with .asv/runs and reports/results
    .asv/fleet/MACHINE/ID/node-a/home    home directory with asv's file of machines
"""

import json
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count, product
from pathlib import Path
from string import ascii_lowercase

import msgspec
from cli import RESULTS, ROOT, UserError
from store.files import BENCHMARKS, NODE_PREFIX, RECORDS, put, put_all, read_records, result_files

from .engine import Suite, copy_code
from .journal import Plan, load
from .profiles import Names

FLEET = ROOT / ".asv" / "fleet"
PLAN, HOSTS = "campaign.json", "hosts"  # in the directory of a machine type
# In the directory of a campaign, and in those of its nodes
CODE, SUITE, HOME = "code", "suite", "home"
VERB, ON_NODE = Path("scripts/fleet.py"), "--on-node"  # the program that runs on a node
# Time limit of a job over its estimate, because a busy node waits for quiet
TIME_LIMIT_FACTOR = 1.5
INSTALL_MINUTES = 1.5  # per release, if torch includes CUDA
ENVIRONMENT_GB = 5  # per environment, if torch includes CUDA

Block = tuple[list[str], set[str]]  # releases, and the hosts excluded from measuring them
Outcomes = Mapping[tuple[str, str], str]  # (release, node) -> see Campaign.gather


# --- who measures what ----------------------------------------------------------------------------


def deal(tags: Names, nodes: int, copies: int) -> list[list[str]]:
    """Deal ``tags``, in their order, into a block per node, as evenly as possible: each tag into
    ``copies`` blocks.

    A release goes to the node with the fewest releases so far. If there are several, it goes to the
    node that shares the fewest releases with the nodes that already have this one. With four nodes
    and two copies, releases go to nodes 01, 23, 02, 13, 03, 12.
    """
    blocks: list[list[str]] = [[] for _ in range(nodes)]
    for tag in tags:
        for _ in range(copies):
            # release -> number of nodes that have both it and ``tag``
            shared = Counter(other for block in blocks if tag in block for other in block)
            candidates = [block for block in blocks if tag not in block]
            loads = [(len(block), sum(shared[other] for other in block)) for block in candidates]
            candidates[loads.index(min(loads))].append(tag)
    return blocks


def top_up(
    hosts: Mapping[str, Collection[str]], copies: int, nodes: int, broken: Collection[str]
) -> Iterator[Block]:
    """Yield blocks of the releases that too few hosts have, each with its excluded hosts. hosts:
    release -> its hosts."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for tag, names in hosts.items():
        groups.setdefault(tuple(sorted(names)), []).append(tag)
    for names, tags in groups.items():
        excluded = {*names, *broken}
        missing = copies - len(names)
        for block in deal(tags, max(missing, nodes - len(excluded)), missing):
            if block:
                yield block, excluded


def minutes_for(releases: int, session: float) -> float:
    """Estimate a node's minutes for this number of releases, with ``session`` minutes per
    session."""
    return (releases + 2) * session + (releases + 1) * INSTALL_MINUTES


def node_names() -> Iterator[str]:
    """node-a, node-b, ..., node-aa, ..."""
    for length in count(1):
        for letters in product(ascii_lowercase, repeat=length):
            yield NODE_PREFIX + "".join(letters)


# --- campaigns ------------------------------------------------------------------------------------


@dataclass
class Campaign:
    """The work of the nodes of a machine type. It is kept on disk until it is complete.

    id         also the name of its jobs
    plan       its releases, each measured on ``copies`` nodes, and the reference, measured first
               and last on every node
    keep       maximum number of environments on a node's disk
    minutes    estimate per session, by its profile
    allowed    minutes that a job may take
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
    options: Mapping[str, object] = field(default_factory=dict)
    code: str = ""
    submitted: int = 0

    @property
    def machine(self) -> str:
        return self.plan.machine

    @property
    def directory(self) -> Path:
        """The directory of its machine type."""
        return FLEET / self.machine

    @property
    def place(self) -> Path:
        """The directory in which its nodes have their suites."""
        return self.directory / self.id

    @property
    def logs(self) -> Path:
        return self.directory / "logs" / self.id

    @classmethod
    def load(cls, directory: Path) -> "Campaign | None":
        """Load the campaign from the directory of a machine type. Return None without a campaign.
        Raise UserError if its file is broken."""
        return load(cls, directory / PLAN, directory)

    def save(self) -> None:
        put(self.directory / PLAN, json.dumps(msgspec.to_builtins(self)))

    def finish(self) -> None:
        """Remove the campaign, whose results are filed."""
        (self.directory / PLAN).unlink(missing_ok=True)
        shutil.rmtree(self.place, ignore_errors=True)

    def freeze(self) -> None:
        """Copy the code once. Nodes measure this copy, whatever happens to the checkout."""
        code = self.place / CODE
        if not self.code:
            copy_code(ROOT, code)
            self.code = hash_of(code)
        elif hash_of(code) != self.code:
            raise UserError(f"{code} was changed since the campaign began: remove {self.directory}")
        self.save()

    def blocks(self) -> list[list[str]]:
        """Return the releases of each node at the first submission."""
        return deal(self.plan.tags, self.nodes, self.copies)

    def program(self, tags: Names, node: str = "") -> list[str]:
        """Return the command of the frozen code that measures these releases on a node ("": the
        node where it runs)."""
        verb = str(self.place / CODE / VERB)
        return [sys.executable, verb, ON_NODE, str(self.directory), node, *tags]

    # --- results so far ---------------------------------------------------------------------------

    def gather(self) -> Outcomes:
        """File the results of each node in its own directory, and asv's description of the
        benchmarks.

        Return (release, node) -> why that node could not measure the release; "" if it is measured.
        """
        for suite in sorted(self.place.glob(f"{NODE_PREFIX}*/{SUITE}")):
            results = Suite(suite).results
            put_all(results / self.machine, RESULTS / self.machine / suite.parent.name)
            description = results / BENCHMARKS
            if description.is_file():
                put(RESULTS / BENCHMARKS, description.read_bytes())
        outcomes: dict[tuple[str, str], str] = {}
        for path in result_files(RESULTS, self.machine, RECORDS):
            for record in read_records(path):
                if record.fleet.get("id") == self.id:
                    session = record.toolchain.tag, record.fleet["node"]
                    if outcomes.get(session) != "":
                        outcomes[session] = record.failed
        return outcomes

    def lacking(self, outcomes: Outcomes) -> dict[str, set[str]]:
        """Release measured on too few nodes -> these. Omit releases that no node can measure."""
        lacking = {}
        for tag in self.plan.tags:
            reasons = {node: reason for (each, node), reason in outcomes.items() if each == tag}
            nodes = {node for node, reason in reasons.items() if not reason}
            # if it failed on that many nodes, and succeeded on none, no node can measure it
            if len(nodes) < self.copies and (nodes or len(reasons) < self.copies):
                lacking[tag] = nodes
        return lacking

    def summary(self) -> Iterator[str]:
        """Yield lines of the plan: the releases of each node, time and disk space."""
        blocks = self.blocks()
        minutes = [minutes_for(len(block), self.minutes) for block in blocks]
        sessions = sum(len(block) + 2 for block in blocks)
        yield (
            f"{self.machine}: {len(self.plan.tags) + 1} releases, each on {self.copies} "
            f"of {self.nodes} nodes, the reference {self.plan.reference} first and last "
            "on all of them"
        )
        if self.slurm:
            yield (
                f"  {sessions} sessions; {max(minutes):.0f} minutes on the busiest node, "
                f"{self.allowed} allowed; jobs named {self.id}"
            )
        else:
            yield (
                f"  this machine stands for every node in turn: {sessions} sessions, "
                f"{sum(minutes):.0f} minutes"
            )
        if self.copies == 1 < self.nodes:
            yield (
                "  no instructions are counted: with --copies 1 nodes differ in them as releases do"
            )
        yield (
            f"  disk: {self.keep * ENVIRONMENT_GB} GB per node for {self.keep} environments, "
            "if torch includes CUDA"
        )
        for node, block in zip(node_names(), blocks):
            yield f"  {node}: {len(block) + 2} sessions: {', '.join(block)}"


def hash_of(code: Path) -> str:
    """Return a hash of all files of a copy of the code."""
    content = sha256()
    for path in sorted(code.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content.update(str(path.relative_to(code)).encode() + path.read_bytes())
    return content.hexdigest()
