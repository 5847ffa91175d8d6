"""Measure a history on many nodes of a machine type: submit their jobs, gather their results, run a
job on its node.

The engine is this process, which runs one job after the other, or the users' own Slurm, through
submitit. Each node has a suite of its own: a copy of the campaign's frozen code, with results and a
journal as in any checkout. A job that is started again on its node continues there. On another node
it begins anew.

submitit's job states are not used: without accounting it knows none, and it reports a node's
failure as the end of a job, although Slurm restarts the job. A node whose job failed by itself is
left out the next time.
"""

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
from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path

import psutil
from cli import ROOT, UserError
from msgspec.structs import replace
from store.files import NODE_PREFIX, put
from toolchains import environments, ledger

from . import campaign as campaigns
from .campaign import CODE, HOME, HOSTS, ON_NODE, PLAN, SUITE, VERB, Campaign
from .engine import Suite, announce, copy_code, home_variables, link_environments
from .journal import Journal, coarse_to_fine, lock_directory
from .processes import last_line, os_session, read_text
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
GRACE = 60  # seconds between Slurm's warning and the end of a job's time
REQUEUES = 5  # times that a job may run out of time and continue
POLL = 10.0  # seconds between two checks of jobs and results
SILENCE = 600.0  # seconds for which Slurm may list no jobs: its controller is busy, or restarts
PIP = "-m pip download --quiet --disable-pip-version-check --no-input --progress-bar=off"


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
    """Return environment variables of a node's suite."""
    variables = {
        **os.environ,
        **home_variables(place / HOME),
        environments.LIMIT_VARIABLE: str(campaign.keep),
    }
    if campaign.wheelhouse:
        variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": campaign.wheelhouse}
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


# --- Slurm ----------------------------------------------------------------------------------------


def slurm_job(command: Names) -> Callable[[], None]:
    """Return the object that submitit runs on a node. It runs the program, ends it at Slurm's
    warning, and resumes it.

    Its class is made inside this function, so that nodes receive its code and need not find this
    file.
    """
    from submitit.helpers import DelayedSubmission

    class Job:
        def __call__(self) -> None:
            # Slurm's warning is for submitit alone, and reaches every process of the job
            self.process = psutil.Popen(["sh", "-c", 'trap "" USR2; exec "$@"', "sh", *command])
            if code := self.process.wait():
                raise RuntimeError(f"exit status {code}; the reason is above")

        def checkpoint(self) -> DelayedSubmission:
            """Stop the program. submitit calls this at the warning, during the wait above. There
            subprocess's wait would lock, psutil's does not."""
            if self.process.is_running():
                self.process.terminate()
                self.process.wait()
            return DelayedSubmission(Job())

    return Job()


def submit(campaign: Campaign, tags: Names, excluded: Collection[str]) -> bool:
    """Submit a job that measures a block on a host not in ``excluded``. Return whether Slurm
    accepts the job. At the first submission raise UserError if Slurm rejects it."""
    try:
        import submitit
    except ModuleNotFoundError:
        raise UserError(
            "--engine slurm needs submitit: pip install submitit "
            "(in this Python, which the nodes use, too)"
        ) from None
    executor = submitit.AutoExecutor(campaign.logs, cluster="slurm", slurm_max_num_timeout=REQUEUES)
    executor.update_parameters(
        name=campaign.id,
        timeout_min=campaign.allowed,
        tasks_per_node=1,
        slurm_signal_delay_s=GRACE,
        slurm_exclude=",".join(sorted(excluded)) or None,
        slurm_setup=[f'echo "$SLURMD_NODENAME" > "{campaign.logs}/$SLURM_JOB_ID.host"'],
        slurm_additional_parameters={**campaign.options, "requeue": True},
    )
    try:
        executor.submit(slurm_job(campaign.program(tags)))
    except submitit.core.utils.FailedJobError as error:
        reason = f"Slurm rejected the job: {last_line(str(error))}"
        if campaign.submitted <= 1:
            raise UserError(reason) from None
        announce(f"{campaign.machine}: {reason}")  # no other node is left, perhaps
        return False
    return True


def queued_jobs(campaign: Campaign) -> list[str]:
    """Return state and reason of each of the campaign's jobs in Slurm's queue."""
    if not campaign.slurm:
        return []
    command = ["squeue", "--noheader", "--array", f"--name={campaign.id}", "--format=%T %r"]
    return run_slurm(command, SILENCE).splitlines()


def broken_hosts(campaign: Campaign) -> dict[str, str]:
    """Host -> why the last job there failed, with its log. A job cancelled by Slurm or by a person
    has not failed."""
    broken: dict[str, str] = {}
    for path in sorted(campaign.logs.glob("*.host"), key=lambda path: path.stat().st_mtime):
        host = read_text(path)
        result = path.with_name(f"{path.stem}_0_result.pkl")
        log = path.with_name(f"{path.stem}_0_log.err")
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        if result.is_file() and pickle.loads(result.read_bytes())[0] == "success":
            broken.pop(host, None)
        elif " CANCELLED AT " not in text:
            broken[host] = f"{failure_in(text)} (log: {os.path.relpath(log)})"
    return broken


def failure_in(text: str) -> str:
    """Return the reason of a failure from a job's log: the last line of fleet.py, else of any other
    program."""
    lines = re.findall(r"^(?!submitit |srun: )(?=.*\S).*", text, re.MULTILINE)
    prefix = "fleet.py: "
    errors = [line for line in lines if line.startswith(prefix)]
    return last_line("\n".join(errors or lines) or text, "no output").removeprefix(prefix)


def run_slurm(command: Names, silence: float = 0.0) -> str:
    """Return the output of a Slurm command. Raise UserError if it fails for longer than ``silence``
    seconds."""
    end = time.monotonic() + silence
    while True:
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise UserError(
                "--engine slurm needs Slurm: run this on a login node, or use --engine debug"
            ) from None
        if not done.returncode:
            return done.stdout
        failure = f"{shlex.join(command)}: {last_line(done.stderr, 'no reason')}"
        if time.monotonic() >= end:
            raise UserError(failure)
        announce(f"{failure}; asking again")
        time.sleep(POLL)


def parse_minutes(limit: str) -> float:
    """Parse a time limit of sinfo, [days-][hours:]minutes:seconds or infinite, into minutes."""
    parts = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if parts is None:
        return math.inf
    days, hours, minutes, seconds = map(int, parts.groups("0"))
    return days * 1440 + hours * 60 + minutes + seconds / 60


def check_cluster(campaign: Campaign) -> None:
    """Raise UserError unless Slurm accepts jobs with these options on all nodes, and allows them
    enough time."""
    options = [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in campaign.options.items()
    ]
    run_slurm(["sbatch", "--test-only", "--wrap=true", f"--nodes={campaign.nodes}", *options])
    partition = [option for option in options if option.startswith("--partition=")]
    limits = run_slurm(["sinfo", "--noheader", "--format=%l", *partition]).split()
    longest = max(map(parse_minutes, limits), default=math.inf)
    if campaign.allowed > longest:
        raise UserError(
            f"the partition allows {longest:.0f} minutes per job, "
            f"but {campaign.allowed} are needed: with --time {longest:.0f} "
            "a second job continues the first"
        )


# --- running a campaign ---------------------------------------------------------------------------


def advance(campaign: Campaign) -> str | None:
    """Gather results and submit missing releases. Return the progress in words, or None if no more
    will come."""
    # before the files: a job that ends meanwhile is seen next time
    jobs = queued_jobs(campaign)
    outcomes = campaign.gather()
    lacking = campaign.lacking(outcomes)
    filed = Counter(node for (_, node), reason in outcomes.items() if not reason)
    numbers = ", ".join(f"{node} {number}" for node, number in sorted(filed.items()))
    progress = f"releases filed: {numbers or 'none'}"
    if jobs:
        states = [f"{number} {state}" for state, number in sorted(Counter(jobs).items())]
        return f"{progress}; {', '.join(states)}"
    if not lacking or campaign.submitted >= MAX_SUBMISSIONS[campaign.slurm]:
        return None
    if campaign.submitted:
        announce(
            f"{campaign.machine}: {len(lacking)} releases are missing on some nodes; "
            "submitting them again"
        )
    campaign.submitted += 1
    campaign.save()
    if campaign.slurm:
        return progress if submit_lacking(campaign, lacking) else None
    # one after the other: no two may time at once on this machine
    for tags, node in zip(campaign.blocks(), campaigns.node_names()):
        with os_session(campaign.program(tags, node), ROOT) as process:
            process.wait()
    return ""


def submit_lacking(campaign: Campaign, lacking: dict[str, set[str]]) -> bool:
    """Submit jobs for releases that too few nodes have. Return whether Slurm accepts any of
    them."""
    broken = broken_hosts(campaign)
    for reason in broken.values():
        announce(f"{campaign.machine}: leaving out a node: {reason}")
    if broken:
        time.sleep(BACK_OFF * 2 ** (campaign.submitted - 2))
    hosts = {
        tag: {read_text(campaign.directory / HOSTS / node) for node in nodes}
        for tag, nodes in lacking.items()
    }
    blocks = campaigns.top_up(hosts, campaign.copies, campaign.nodes, broken)
    accepted = [submit(campaign, tags, excluded) for tags, excluded in blocks]
    return any(accepted)


def end_earlier(machine: str) -> None:
    """End an incomplete campaign to make room for a new one, and file its results. Raise UserError
    if it has jobs."""
    earlier = Campaign.load(campaigns.FLEET / machine)
    if earlier is None:
        return
    if queued_jobs(earlier):
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
        download(campaign.wheelhouse, [campaign.plan.reference, *campaign.plan.tags])
    printed = ""
    try:
        while (progress := advance(campaign)) is not None:
            if progress not in ("", printed):
                printed = progress
                announce(f"{campaign.machine}: {progress}")
            time.sleep(POLL if campaign.slurm else 0)
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
    announce(
        f"{campaign.machine}: filed {len(measured)} of {len(campaign.plan.tags)} releases "
        f"from {len({node for _, node in outcomes})} nodes"
    )
    for (tag, node), reason in failures.items():
        announce(f"{tag}: no results from {node}: {reason}")
    for reason in broken_hosts(campaign).values():
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


def download(wheelhouse: str, tags: Names) -> None:
    """Download the missing wheels of these releases into a wheelhouse."""
    command = [sys.executable, *PIP.split(), "--only-binary=:all:", "--find-links", wheelhouse]
    for tag in tags:
        packages = environments.requirements(ledger.toolchains_by_tag()[tag])
        try:
            environments.run_program([*command, "--dest", wheelhouse, *packages])
        except environments.InstallError as error:
            announce(f"{tag}: no wheels: {error}")
        else:
            announce(f"{tag}: wheels are in the wheelhouse")
