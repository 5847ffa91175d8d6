"""A Slurm cluster of two nodes on this machine, for tests. Its real daemons start in a second and can be killed.

A node is a slurmd with its own process namespace and host name: killing it ends everything that it runs.
Needs `apt-get install --no-install-recommends slurm-wlm`, and root.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from conftest import until
from filelock import FileLock  # comes with asv, by way of virtualenv

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "unshare")
NODES = ("n1", "n2")
# Held while a cluster exists: the nodes of a second cluster on this machine would use the same cores
ALONE = FileLock(Path(tempfile.gettempdir()) / "slurm-of-tests.lock")
CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/%n.slurmd.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=10
KillWait=10
ReturnToService=2
NodeName=n1 NodeHostname=n1 NodeAddr={host} Port={ports[1]} CPUs={cores} RealMemory=2000
NodeName=n2 NodeHostname=n2 NodeAddr={host} Port={ports[2]} CPUs={cores} RealMemory=2000 Feature=quick
PartitionName=both Nodes=n1,n2 Default=YES MaxTime=60
PartitionName=first Nodes=n1,n2 MaxTime=60 PriorityTier=2
PartitionName=plain Nodes=n1 MaxTime=60
"""


def lacking() -> str:
    """Return why no cluster can be started here; "" if it can be."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install --no-install-recommends slurm-wlm"
    if os.geteuid() != 0:
        return "needs root, to give nodes names and processes of their own"
    boxed = subprocess.run(_box("true"), capture_output=True).returncode == 0
    return "" if boxed else "needs namespaces (unshare), which this container forbids"


def _box(command: str) -> list[str]:
    return ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", command]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


class Cluster:
    """Two nodes, n1 and n2, for clients whose variable SLURM_CONF is ``root``/slurm.conf.

    The nodes also differ in type: only n1 is in the partition plain, and only n2 has the feature quick.
    """

    def __init__(self, root: Path) -> None:
        self.log = root / "log"
        root.mkdir()
        host = socket.gethostname()
        text = CONFIGURATION.format(root=root, host=host, ports=_free_ports(3), cores=os.cpu_count())
        (root / "slurm.conf").write_text(text)
        self.daemons = {"slurmctld": self._start("slurmctld", "-D")}
        for name in NODES:
            self.start(name)
        until(lambda: self.ask("sinfo", "-h", "-o", "%D", "-t", "idle", "-p", "both") == "2", 30, self.said)

    def _start(self, *command: str) -> subprocess.Popen:
        with self.log.open("a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def said(self) -> str:
        """Return the log of the daemons."""
        return self.log.read_text(errors="replace")

    def ask(self, *command: str) -> str:
        """Return the output of a Slurm command."""
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    def start(self, name: str) -> None:
        self.daemons[name] = self._start(*_box(f"hostname {name}; exec slurmd -D -N {name}"))

    def kill(self, name: str) -> None:
        """Kill a daemon; with a node's daemon, everything that runs on the node ends."""
        self.daemons[name].kill()
        self.daemons[name].wait()

    def end(self) -> None:
        for name in self.daemons:
            self.kill(name)
