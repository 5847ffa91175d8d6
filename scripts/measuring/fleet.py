"""Measure a history on many nodes of a machine type: submit their jobs, gather their results, run a
job on its node.

The engine is this process, which runs one job after the other, or Slurm. Each node has a suite of
its own: a copy of the campaign's frozen code, with results and a journal as in any checkout. A job
that is started again on its node continues there. On another node it begins anew.
"""

import os
import platform
import shutil
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path

from cli import ROOT, UserError
from msgspec.structs import replace
from store.files import NODE_PREFIX, put
from toolchains import environments, ledger

from . import campaign as campaigns
from . import slurm
from .campaign import CODE, HOME, HOSTS, ON_NODE, PLAN, SUITE, VERB, Campaign
from .due import coarse_to_fine
from .engine import Suite, announce, copy_code, link_environments
from .journal import Journal, lock_directory
from .processes import os_session, read_text
from .profiles import Names
from .runner import start_runner

# Users, machine types and Pythons may share a node's disk. Each combination has its own directory
# of environments
OWNER = (
    f"{getattr(os, 'getuid', int)()} {platform.machine()} {platform.libc_ver()} {sys.base_prefix}"
)
SCRATCH = f"numpy-torch-{sha256(OWNER.encode()).hexdigest()[:12]}"
DEBUG, SLURM = "debug", "slurm"  # engines: this machine as every node, or the users' own Slurm
# Per engine (debug, slurm); then a person should look why releases are missing
MAX_SUBMISSIONS = (2, 5)
BACK_OFF = 30.0  # seconds before a job whose node failed is submitted again; doubled each time


# --- on a node ------------------------------------------------------------------------------------


def node_name(directory: Path, host: str) -> str:
    """Return the anonymous name of a host in the directory of a machine type. A host keeps its
    name."""
    hosts = directory / HOSTS
    with lock_directory(hosts, seconds=60.0):
        names = {read_text(path): path.name for path in hosts.glob(f"{NODE_PREFIX}*")}
        if host not in names:
            used = names.values()
            names[host] = next(name for name in campaigns.node_names() if name not in used)
            put(hosts / names[host], host)
    return names[host]


def node_variables(campaign: Campaign, place: Path) -> dict[str, str]:
    """Return environment variables of a node's suite. asv gets its own home directory. pip uses the
    user's settings and cache."""
    home = Path.home()
    variables = {
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        **os.environ,
        "HOME": str(place / HOME),
        environments.LIMIT_VARIABLE: str(campaign.keep),
    }
    if campaign.wheelhouse:
        variables["PIP_NO_INDEX"] = "1"
        variables["PIP_FIND_LINKS"] = campaign.wheelhouse
    return variables


def enter(campaign: Campaign, directory: Path, node: str, tags: Names) -> None:
    """Make this node's suite if missing, and continue in it. Until then this process runs the
    frozen code itself."""
    node = node or node_name(directory, os.environ.get("SLURMD_NODENAME") or socket.gethostname())
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
    os.execve(sys.executable, command, node_variables(campaign, place))


def on_node(directory: Path, node: str, tags: Names) -> int:
    """Run a job on its node. Return exit code 0 even if a release could not be measured: its record
    says why.

    directory  of the machine type; the campaign's file there holds the settings of all its jobs
    """
    campaign = Campaign.load(directory)
    if campaign is None:
        raise UserError(f"{directory / PLAN} is gone: the campaign has ended")
    if ROOT.name == CODE:
        enter(campaign, directory, node, tags)  # starts this program again in the node's suite
    with lock_directory(ROOT.parent):
        journal = Journal(ROOT / ".asv" / "runs" / campaign.machine / "track")
        interrupted = journal.plan()
        earlier = interrupted.tags if interrupted else ()
        ordered = dict.fromkeys([campaign.plan.reference, *earlier, *coarse_to_fine(tags)])
        engine = SLURM if campaign.slurm else DEBUG
        fleet = {"id": campaign.id, "engine": engine, "node": node}
        plan = replace(campaign.plan, tags=tuple(ordered), fleet=fleet)
        start_runner(journal, plan).measure()
    return 0


# --- running a campaign ---------------------------------------------------------------------------


def advance(campaign: Campaign) -> str | None:
    """Gather results and submit missing releases. Return the progress in words, or None if no more
    will come."""
    # before the files: a job that ends meanwhile is seen next time
    jobs = slurm.queued_jobs(campaign)
    outcomes = campaign.gather()
    lacking = campaign.lacking(outcomes)
    filed = Counter(node for (_, node), reason in outcomes.items() if not reason)
    numbers = ", ".join(f"{node} {number}" for node, number in sorted(filed.items()))
    progress = f"releases filed: {numbers or 'none'}"
    if jobs:
        states = sorted(Counter(jobs).items())
        return f"{progress}; " + ", ".join(f"{number} {state}" for state, number in states)
    if not lacking or campaign.submitted >= MAX_SUBMISSIONS[campaign.slurm]:
        return None
    if campaign.submitted:
        announce(
            f"{campaign.machine}: {len(lacking)} releases are missing on some nodes; "
            "submitting them again"
        )
    campaign.submitted += 1
    campaign.save()
    if not campaign.slurm:
        run_all_nodes(campaign)
        return ""
    return progress if submit_lacking(campaign, lacking) else None


def run_all_nodes(campaign: Campaign) -> None:
    """Run the nodes' jobs one after the other: no two may time at once on this machine."""
    blocks = campaigns.deal(campaign.plan.tags, campaign.nodes, campaign.copies)
    for tags, node in zip(blocks, campaigns.node_names()):
        with os_session(campaign.program(tags, node), ROOT) as process:
            process.wait()


def submit_lacking(campaign: Campaign, lacking: dict[str, set[str]]) -> bool:
    """Submit jobs for releases that too few nodes have. Return whether Slurm accepts any of
    them."""
    broken = slurm.broken_hosts(campaign)
    for reason in broken.values():
        announce(f"{campaign.machine}: leaving out a node: {reason}")
    if broken:
        time.sleep(BACK_OFF * 2 ** (campaign.submitted - 2))
    hosts = {
        tag: {read_text(campaign.directory / HOSTS / node) for node in nodes}
        for tag, nodes in lacking.items()
    }
    is_accepted = False
    for tags, excluded in campaigns.top_up(hosts, campaign.copies, campaign.nodes, broken):
        is_accepted |= slurm.submit(campaign, tags, excluded)
    return is_accepted


def end_earlier(machine: str) -> None:
    """End an incomplete campaign to make room for a new one, and file its results. Raise UserError
    if it has jobs."""
    earlier = Campaign.load(campaigns.FLEET / machine)
    if earlier is None:
        return
    if slurm.queued_jobs(earlier):
        raise UserError(
            f"jobs named {earlier.id} are still measuring {machine}: --resume gathers their "
            f"results, scancel --name={earlier.id} cancels them"
        )
    earlier.gather()
    earlier.finish()


def measure(campaign: Campaign, build: Callable[[str], object]) -> int:
    """Run a campaign and build its page. Return exit code 2 if results are missing, else 0."""
    campaign.freeze()
    if campaign.wheelhouse and not campaign.submitted:
        download(Path(campaign.wheelhouse), [campaign.plan.reference, *campaign.plan.tags])
    printed = ""
    try:
        while (progress := advance(campaign)) is not None:
            if progress and progress != printed:
                printed = progress
                announce(f"{campaign.machine}: {progress}")
            time.sleep(slurm.POLL if campaign.slurm else 0)
    except (KeyboardInterrupt, UserError):
        announce(
            "submitted jobs continue; to gather their results, run python scripts/fleet.py --resume"
        )
        raise
    return report(campaign, build)


def report(campaign: Campaign, build: Callable[[str], object]) -> int:
    """Print the outcome of a campaign and build its page. Return the exit code."""
    outcomes = campaign.gather()
    lacking = campaign.lacking(outcomes)
    failures = {session: reason for session, reason in outcomes.items() if reason}
    measured = {tag for tag, _ in outcomes.keys() - failures.keys()} & {*campaign.plan.tags}
    nodes = {node for _, node in outcomes}
    announce(
        f"{campaign.machine}: filed {len(measured)} of {len(campaign.plan.tags)} releases "
        f"from {len(nodes)} nodes"
    )
    for (tag, node), reason in failures.items():
        announce(f"{tag}: no results from {node}: {reason}")
    for reason in slurm.broken_hosts(campaign).values():
        announce(f"a node failed: {reason}")
    if measured:
        build(campaign.machine)
    if lacking:
        announce(
            f"{len(lacking)} releases were measured on fewer than {campaign.copies} nodes; "
            "--resume submits them again"
        )
    elif not failures:
        campaign.finish()
    return 2 if lacking or failures else 0


def download(wheelhouse: Path, tags: Collection[str]) -> None:
    """Download the missing wheels of these releases into a wheelhouse."""
    options = (
        "--quiet --disable-pip-version-check --no-input --progress-bar=off --only-binary=:all:"
    )
    command = [sys.executable, "-m", "pip", "download", *options.split()]
    command += ["--dest", str(wheelhouse), "--find-links", str(wheelhouse)]
    for tag in tags:
        try:
            environments.run_program(
                [*command, *environments.requirements(ledger.toolchains_by_tag()[tag])]
            )
        except environments.InstallError as error:
            announce(f"{tag}: no wheels: {error}")
        else:
            announce(f"{tag}: wheels are in the wheelhouse")
