"""What carries jobs to nodes: this process, one job after the other, or the users' own Slurm by way of submitit.

Everything that is submitit's is here. Its word on whether a job is done is not taken: without accounting it knows no
states, and it takes a node's failure for an end though Slurm starts the job anew. What is complete the campaign reads
from result files; here is only asked whether something is still to come.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cli import UserError
from measuring.engine import ROOT
from measuring.session import session

from . import block

GRACE = 60  # seconds before the end of a job's time in which it may end by itself
REQUEUES = 5  # times that a job may run out of time, and go on
DEBUG, SLURM = "debug", "slurm"

Job = Mapping[str, Any]


class Engine(Protocol):
    """submit: have these jobs done, each without the hosts beside it.

    coming: a word on each of the campaign's jobs that waits or runs.
    """

    def submit(self, jobs: Sequence[tuple[Job, Sequence[str]]]) -> None: ...

    def coming(self) -> list[str]: ...


def program(job: Job) -> list[str]:
    """The command that does a job on a node."""
    return [sys.executable, str(Path(block.__file__).resolve()), json.dumps(job)]


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
