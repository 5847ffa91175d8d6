"""A history measured by many nodes of a kind: dealt to nodes, given to an engine, gathered as it comes, topped up.

A block is what one job measures on one node: the reference, some releases, and the reference again. Each release is in
as many blocks as there are to be copies, so that what a node does to a release can be told from what the release does.

What is complete is read from result files, in which a visit appears when it is whole. So whoever submitted may be gone:
another process, on another machine of the same disk, goes on from what lies there.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import cli
from cli import UserError, put
from measuring.engine import RESULTS, ROOT
from measuring.profiles import PROFILES
from measuring.state import State
from measuring.tracking import coarse_to_fine
from store.files import put_all
from store.records import Record
from toolchains import environments, ledger

from .on_node import HOSTS, SUITE, is_closed, names, visits_in

FLEET = ROOT / ".asv" / "fleet"
PLAN = "plan.json"
DESCRIBED = "benchmarks.json"  # asv's, of the whole results directory
ASKED = 5  # times, before somebody should look why it is still missing; where the nodes are this machine, 2
DEBUG, SLURM = "debug", "slurm"  # engines: this machine for every node, and the users' own Slurm

Job = Mapping[str, Any]


class Engine(Protocol):
    """submit: have these jobs done, each without the hosts beside it.

    coming: a word on each of the campaign's jobs that waits or runs.
    """

    def submit(self, jobs: Sequence[tuple[Job, Sequence[str]]]) -> None: ...

    def coming(self) -> list[str]: ...


@dataclass
class Campaign:
    """What a kind of machine is to measure; all but ``directory`` is kept on disk until it is complete.

    machine    the kind's name, under which results are filed
    id         of this campaign, among those of the kind
    tags       releases, without the reference, each to be measured on as many nodes as there are ``copies``
    keep       environments on a node's disk at most
    options    of the engine
    """

    directory: Path
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

    @classmethod
    def load(cls, machine: str) -> "Campaign | None":
        """The campaign of a kind that is not complete yet; None where there is none."""
        directory = FLEET / machine
        try:
            return cls(directory, **json.loads((directory / PLAN).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def save(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in asdict(self).items() if name != "directory"}
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
        fields = ("machine", "id", "reference", "profile", "only", "rounds", "keep", "engine", "command", "scratch")
        known = {toolchain.tag: toolchain for toolchain in ledger.commits().values()}
        return {
            **{name: getattr(self, name) for name in (*fields, "wheelhouse")},
            "directory": str(self.place),
            "tags": [toolchain.tag for toolchain in coarse_to_fine([known[tag] for tag in tags])],
            "node": node,
        }

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
            described = results.parent / DESCRIBED
            if described.is_file():
                put(RESULTS / DESCRIBED, described.read_text(encoding="utf-8"))

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
            jobs: list[tuple[Job, Sequence[str]]] = [
                (self.job(block, node), ()) for block, node in zip(self.blocks(), names())
            ]
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
            whole = [visit for visit in visits if not visit.failed]
            now = ", ".join(f"{tag} round {done + 1} of {self.rounds}" for tag, done in rounds.items())
            by_node[node] = f"{len(whole)} visits filed" + (f"; {now}" if now else "")
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


def wheels(directory: Path, tags: Collection[str]) -> dict[str, str]:
    """Have a wheelhouse hold what these releases are installed from; release -> why it cannot be had.

    What an earlier call has brought is not asked for again.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stamp = directory / f"complete-py{sys.version_info[0]}.{sys.version_info[1]}.json"
    there: list[str] = json.loads(stamp.read_text(encoding="utf-8")) if stamp.is_file() else []
    known = {toolchain.tag: toolchain for toolchain in ledger.commits().values()}
    lost = {}
    for tag in tags:
        asked = environments.requirements(known[tag])
        if " ".join(asked) in there:
            continue
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--progress-bar=off", "--only-binary=:all:", "--dest", str(directory)]
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([*command, *asked], env=clean, capture_output=True, text=True, errors="replace")
        if done.returncode:
            lost[tag] = environments.reason(done.stdout + done.stderr)
            print(cli.line(f"{tag} has no wheels: {lost[tag]}"), flush=True)
            continue
        there.append(" ".join(asked))
        put(stamp, json.dumps(there))
        print(f"{tag}: its wheels are in the wheelhouse", flush=True)
    return lost


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
