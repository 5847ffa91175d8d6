"""What one job of a fleet does on a node: the reference, the releases of its block, and the reference again.

Run as a program, with a job as JSON. A node has a suite of its own in the campaign's directory: a copy of the code that
was frozen when the campaign began, in which the job goes on as a second program, with results and a journal as in any
checkout. So what a node has measured is kept by node: a job that is started anew there goes on, and one that comes to
another node begins anew.

    .asv/fleet/MACHINE/hosts/node-a      the host whose name that is; nothing outside of .asv says it
    .asv/fleet/MACHINE/ID/code           the code, as it was at submission
    .asv/fleet/MACHINE/ID/node-a/suite   a copy of it, with .asv/runs and reports/results
    .asv/fleet/MACHINE/ID/node-a/home    where asv keeps its machines
"""

import json
import os
import platform
import shutil
import socket
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import count, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program it is alone

import cli
from store.files import NODE
from toolchains import environments

# not relative: this is a program, too
from measuring import tracking
from measuring.engine import ENVIRONMENTS, RESULTS, ROOT, check_asv, copy_code, register
from measuring.journal import Journal, Plan, held
from measuring.machine import check_machine
from measuring.runner import Runner

HOSTS, CODE, SUITE, HOME = "hosts", "code", "suite", "home"
HERE = "here"  # says to the program that it is the second one


def host() -> str:
    """What the engine calls the node that we are on."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def names() -> Iterator[str]:
    """node-a, node-b, ..., node-aa, ..."""
    for length in count(1):
        for letters in product(ascii_lowercase, repeat=length):
            yield NODE + "".join(letters)


def name_of(directory: Path, host: str) -> str:
    """The anonymous name of a host in the directory of a machine type: given once, whoever else asks at that time."""
    hosts = directory / HOSTS
    hosts.mkdir(parents=True, exist_ok=True)
    mine = hosts / f".{sha256(host.encode()).hexdigest()[:16]}-{os.getpid()}"
    mine.write_text(host, encoding="utf-8")
    try:
        for name in names():
            try:
                os.link(mine, hosts / name)  # whole from the first, and once only, on a network's disk, too
                return name
            except FileExistsError:
                if (hosts / name).read_text(encoding="utf-8") == host:
                    return name
    finally:
        mine.unlink()
    raise AssertionError("names never end")


def environments_on(scratch: Path) -> Path:
    """Where environments lie on a disk that several users, machine types and Pythons may share."""
    made_for = f"{sys.base_prefix} {platform.libc_ver()}"
    mine = f"{sysconfig.get_platform()}-{sha256(made_for.encode()).hexdigest()[:8]}"
    return scratch / f"numpy-torch-{os.getuid() if hasattr(os, 'getuid') else 'environments'}" / mine


def variables_of(job: Mapping[str, Any], place: Path) -> dict[str, str]:
    """The environment to measure in: a home of the node's own, but pip's settings and cache as ever."""
    variables = {**os.environ, "HOME": str(place / HOME), environments.KEEP_VARIABLE: str(job["keep"])}
    settings = [Path.home() / ".config" / "pip" / "pip.conf", Path.home() / ".pip" / "pip.conf"]
    configuration = next((str(path) for path in settings if path.is_file()), None)
    if configuration:
        variables.setdefault("PIP_CONFIG_FILE", configuration)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pip"
    variables.setdefault("PIP_CACHE_DIR", str(cache))
    if job["wheelhouse"]:
        variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": job["wheelhouse"]}
    return variables


def enter(job: Mapping[str, Any]) -> None:
    """Make this node's suite if it has none, and go on in it."""
    campaign = ROOT.parent  # this program is that of the frozen code
    node = job["node"] or name_of(campaign.parent, host())
    place = campaign / node
    suite = place / SUITE
    with held(place):
        if not suite.is_dir():
            fresh = place / f"{SUITE}.new"
            copy_code(ROOT, fresh)
            # what the node's earlier campaigns have measured stays beside what is measured now
            earlier = Path(job["results"]) / job["machine"] / node
            if earlier.is_dir():
                shutil.copytree(earlier, fresh / RESULTS.relative_to(ROOT) / job["machine"])
            (fresh / ENVIRONMENTS).parent.mkdir()
            fresh.rename(suite)
        (place / HOME).mkdir(exist_ok=True)
        scratch = environments_on(Path(job["scratch"]))
        scratch.mkdir(parents=True, exist_ok=True)
        link = suite / ENVIRONMENTS
        link.unlink(missing_ok=True)
        link.symlink_to(scratch, target_is_directory=True)
    program = suite / Path(__file__).resolve().relative_to(ROOT)
    os.chdir(suite)
    command = [sys.executable, str(program), json.dumps({**job, "node": node}), HERE]
    os.execve(sys.executable, command, variables_of(job, place))


def journal_of(suite: Path, machine: str) -> Journal:
    return Journal(suite / ".asv" / "runs" / machine / "track")


def take(job: Mapping[str, Any]) -> int:
    """Measure what this node lacks of a job, in the node's suite; the exit code, 2 where a release could not be."""
    check_asv()
    machine, reference = job["machine"], job["reference"]
    with held(ROOT.parent):
        check_machine(RESULTS / machine)
        register(machine)
        journal = journal_of(ROOT, machine)
        before = journal.plan()
        tags = dict.fromkeys([reference, *(before.tags if before else ()), *job["tags"]])
        fleet = {"id": job["id"], "engine": job["engine"], "node": job["node"]}
        same = {name: job[name] for name in ("profile", "only", "rounds", "command")}
        plan = Plan(machine, tags=tuple(tags), reference=reference, fleet=fleet, **same)
        journal.save(plan)
        failed = tracking.measure(Runner(journal, plan, job["keep"]))
    return 2 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    text, *here = sys.argv[1:] if argv is None else argv
    job = json.loads(text)
    if here:
        return take(job)
    enter(job)
    return 0


if __name__ == "__main__":
    cli.run(main)
