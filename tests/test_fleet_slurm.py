"""scripts/fleet.py on a real Slurm of two nodes: what may happen to nodes, jobs and fleet.py itself loses nothing."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest
import slurm
from analysis.history import history_of
from analysis.results import load
from tiny import SLOWER_FROM, Project

pytest.importorskip("asv")
pytest.importorskip("submitit")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(slurm.lacking()), reason=slurm.lacking() or "there is one")]

REFERENCE = "torch-2.3.0"
TAGS = {"torch-1.13.1", "torch-2.0.1", "torch-2.1.0", REFERENCE}
PLAN = ("--history", "torch", "--releases", "1.13.1,2.0.1,2.1.0,2.3.0", "--nodes", "2", "--copies", "2")


@pytest.fixture
def cluster(tmp_path):
    with slurm.alone():
        cluster = slurm.Cluster(tmp_path / "slurm")
        yield cluster
        cluster.end()


@pytest.fixture
def project(tmp_path, cluster):
    project = Project(tmp_path)
    verb = project.root / "scripts" / "fleet.py"
    verb.write_text(verb.read_text().replace("POLL = 10.0", "POLL = 1.0"))
    project.variables = {**cluster.environment, "PYTHONDONTWRITEBYTECODE": "1"}
    project.options = ("--partition", "both", "--rounds", "2", "--time", "15", "--no-report")
    project.options += ("--scratch", str(tmp_path / "scratch"))
    return project


def start(project, *arguments):
    log = (project.root / "fleet.log").open("a")
    command = [sys.executable, "scripts/fleet.py", *arguments]
    environment = {**project.environment, **project.variables}
    return subprocess.Popen(command, cwd=project.root, env=environment, stdout=log, stderr=log, start_new_session=True)


def said(project):
    logs = [project.root / "fleet.log", *sorted((project.root / ".asv" / "fleet").glob("*/logs/*.*"))]
    return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in logs if path.is_file())


def visits(project, where="reports/results/both"):
    """Node -> tag -> the run records of its visits."""
    found = {}
    for path in (project.root / where).glob("node-*/*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            found.setdefault(path.parent.name, {}).setdefault(record["toolchain"]["tag"], []).append(record)
    return found


def on_nodes(project):
    """What the nodes have filed so far, gathered or not."""
    count = 0
    for path in (project.root / ".asv" / "fleet" / "both").glob("*/node-*/suite/reports/results/both/*.jsonl"):
        count += len(path.read_text(encoding="utf-8").splitlines())
    return count


def until(what, seconds=240.0):
    stop = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < stop, "it did not happen"
        time.sleep(0.1)


def check_complete(project, rounds=2):
    found = visits(project)
    assert set(found) == {"node-a", "node-b"}, said(project)
    for node, own in found.items():
        assert set(own) == TAGS, (node, said(project))
        assert all(len(records) == 1 for tag, records in own.items() if tag != REFERENCE)
        order = sorted((record["started"], tag) for tag, records in own.items() for record in records)
        assert order[0][1] == order[-1][1] == REFERENCE and len(own[REFERENCE]) >= 2
        for record in (one for records in own.values() for one in records):
            assert record["rounds"] == rounds and record["fleet"]["node"] == node and record["machine"] == "both"
    for path in (project.root / "reports" / "results" / "both").glob("node-*/*.ndjson"):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        places = [(line["run"], line["benchmark"], *line["params"], line["round"], line["at"]) for line in lines]
        assert len(set(places)) == len(places), "the same process twice"


def check_anonymous(project):
    """No file says which hosts these were."""
    for path in (project.root / "reports").rglob("*"):
        if path.is_file():
            words = path.read_text(encoding="utf-8").replace('"', " ").split()
            assert not {*slurm.NODES, os.uname().nodename} & set(words), path


def test_finishes_though_a_node_dies_a_job_is_preempted_and_we_are_killed(project, cluster):
    ours = start(project, *PLAN, *project.options)
    until(lambda: on_nodes(project) >= 1 or ours.poll() is not None)
    assert ours.poll() is None, said(project)
    os.kill(ours.pid, signal.SIGKILL)
    ours.wait()
    cluster.kill("n2")
    cluster.ask("sbatch", "-p", "first", "-w", "n1", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 2")
    time.sleep(15)  # until Slurm has given n2 up
    cluster.start("n2")
    ours = start(project, "--resume", "--no-report")
    try:
        ours.wait(420)
    except subprocess.TimeoutExpired:
        ours.kill()
        pytest.fail(said(project) + cluster.ask("squeue", "--array") + cluster.ask("sinfo", "-N"))
    assert ours.returncode == 0, said(project)
    check_complete(project)
    check_anonymous(project)
    told = (cluster.root / "log").read_text(errors="replace")
    assert "preempted JobId" in told and "due to node failure" in told, "it never happened"
    assert not list((project.root / ".asv" / "fleet" / "both").glob("2*")), "what the nodes kept is gone"


def test_a_job_that_runs_out_of_time_goes_on(project, cluster):
    """Slurm warns a minute before, and counts in minutes."""
    options = [option if option != "15" else "2" for option in project.options]
    options[options.index("--rounds") + 1] = "4"
    ours = start(project, *PLAN, *options)
    try:
        ours.wait(560)
    except subprocess.TimeoutExpired:
        ours.kill()
        pytest.fail(said(project) + cluster.ask("squeue", "--array"))
    assert ours.returncode == 0, said(project)
    assert "this job is timed-out" in said(project), "it never happened"
    check_complete(project, rounds=4)
    made = history_of(load(project.root / "reports" / "results", "both"), "torch")
    assert [node.name for node in made.nodes.nodes] == ["node-a", "node-b"] and not made.nodes.pretended
    series = next(one for one in made.series if one.names["route"] == "torch.from_numpy(a)")
    slower = [release.version for release in series.releases].index(SLOWER_FROM)
    assert 1.3 < math.exp(series.values[slower] - series.values[slower - 1]) < 4, "the tiny torch takes twice as long"


def test_a_job_that_is_ended_leaves_whole_files_and_no_orphan(project, cluster):
    ours = start(project, *PLAN, *project.options)
    until(lambda: on_nodes(project) >= 1 or ours.poll() is not None)
    cluster.ask("scancel", "--name", cluster.ask("squeue", "-h", "-o", "%j").split()[0])
    began = time.monotonic()
    suites = str(project.root / ".asv" / "fleet")

    def running():
        for process in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if process.isdecimal() and suites in os.readlink(f"/proc/{process}/cwd"):
                    return True
        return False

    until(lambda: not running(), 12)
    assert time.monotonic() - began < 12
    filed = list((project.root / ".asv" / "fleet").glob("*/*/*/suite/reports/results/*/*.*json*"))
    assert filed
    for path in filed:
        text = path.read_text(encoding="utf-8")
        for whole in [text] if path.suffix == ".json" else text.splitlines():
            json.loads(whole)
    assert ours.wait(420) == 0, said(project)  # what is missing was asked for again
    check_complete(project)
