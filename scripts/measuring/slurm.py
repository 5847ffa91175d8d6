"""Submit the jobs of a campaign to the users' own Slurm, through submitit, and look what became of
them.

Only this module uses submitit. Its job states are not used: without accounting it knows none, and
it reports a node's failure as the end of a job, although Slurm restarts the job. A node whose job
failed by itself is left out the next time.
"""

import math
import os
import pickle
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Collection

import psutil
from cli import UserError

from .campaign import Campaign
from .engine import announce
from .processes import last_line, read_text
from .profiles import Names

GRACE = 60  # seconds between Slurm's warning and the end of a job's time
REQUEUES = 5  # times that a job may run out of time and continue
POLL = 10.0  # seconds between two checks of jobs and results
SILENCE = 600.0  # seconds for which Slurm may list no jobs: its controller is busy, or restarts


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
    days, _, clock = limit.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts):
        return math.inf
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return int(days or 0) * 1440 + seconds / 60


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
