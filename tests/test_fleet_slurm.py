"""scripts/fleet.py on a real Slurm of two nodes: failures of nodes, jobs and fleet.py itself lose no results."""

import json
import re
import sys

import fleet
import pytest
import slurm
import tiny
from analysis.history import histories_of
from analysis.results import load
from cli import UserError
from conftest import build, until
from measuring import campaign
from measuring.fleet import submit
from resultfiles import contract
from store.files import MEASUREMENTS, read_measurements, read_texts
from tiny import Project, tags
from toolchains import ledger

pytest.importorskip("submitit")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(slurm.lacking()), reason=slurm.lacking() or "there is one")]

REFERENCE = "torch-2.3.0"
OTHERS = ["torch-1.13.1", "torch-2.1.0"]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm" / "slurm.conf"))
    with slurm.ALONE:
        cluster = slurm.Cluster(tmp_path / "slurm")
        yield cluster
        cluster.end()


@pytest.fixture
def project(tmp_path, cluster):
    return prepared(Project(tmp_path), "--releases", "1.13.1,2.1.0,2.3.0", "--time", "15")


def prepared(project, *more):
    """A project that polls every second, with its ``plan`` for both nodes.

    All tests share the nodes' disk, so environments installed by one test serve the next.
    """
    project.replace("scripts/measuring/fleet.py", POLL=1.0)
    project.replace("scripts/measuring/fleet.py", BACK_OFF=1.0)
    options = "--history torch --nodes 2 --copies 2 --partition both --rounds 2 --no-report --keep 9"
    project.plan = (*options.split(), "--scratch", str(project.root.parents[1] / "scratch"), *more)
    return project


def start(project, *arguments, host=""):
    """Start fleet.py with its output in fleet.log. host: another hostname for it, if given."""
    log = (project.root / "fleet.log").open("a")
    renamed = ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh"] if host else []
    return project.start(*renamed, sys.executable, "scripts/fleet.py", *arguments, stdout=log, stderr=log)


def finish(project, ours):
    """Wait for fleet.py, which must measure everything in its plan."""
    until(lambda: ours.poll() is not None, 900, lambda: ours.kill() or said(project))
    assert ours.returncode == 0, said(project)


def first_filed(project, ours):
    """Wait until a node has filed a result, gathered or not."""
    nodes = project.root / ".asv" / "fleet" / "both"
    until(lambda: [*nodes.glob("*/node-*/suite/reports/results/both/*.jsonl")] or ours.poll() is not None, 240)
    assert ours.poll() is None, said(project)


def said(project):
    logs = [project.root / "fleet.log", *sorted((project.root / ".asv" / "fleet").glob("*/logs/*/*.*"))]
    return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in logs if path.is_file())


def check_complete(project):
    found = project.records("both")
    assert set(found) == {"node-a", "node-b"}, said(project)
    for own in found.values():
        first, *between, last = tags(own)
        assert (first, sorted(between), last) == (REFERENCE, OTHERS, REFERENCE), said(project)
        assert {(record.rounds, record.machine) for record in own} == {(2, "both")}
    for path in project.filed.glob(f"both/node-*/*{MEASUREMENTS}"):
        lines = read_measurements(path)
        places = [(line.run, line.benchmark, *line.params, line.round, line.at) for line in lines]
        assert len(set(places)) == len(places), "the same process twice"


def test_finishes_though_a_node_dies_a_job_is_preempted_and_we_are_killed(project, cluster):
    ours = start(project, *project.plan)
    first_filed(project, ours)
    ours.kill()
    ours.wait()
    cluster.kill("n2")
    cluster.ask("sbatch", "-p", "first", "-w", "n1", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 2")
    until(lambda: "due to failure of node n2" in cluster.said(), 240)
    cluster.start("n2")
    finish(project, start(project, "--resume", "--no-report", host="login2"))
    check_complete(project)
    assert project.names_hosts(*slurm.NODES) == []
    assert "preempted JobId" in cluster.said(), "it never happened"
    assert not list((project.root / ".asv" / "fleet" / "both").glob("fleet-*")), "what the nodes kept is gone"


HELD = """
import os, time
while not os.path.exists({path!r}) and torch.__version__.startswith("2.1"):
    time.sleep(0.1)
"""


def test_jobs_that_are_ended_leave_whole_files_and_no_orphan_and_that_run_out_of_time_go_on(project, cluster):
    """Slurm warns a job 30 to 90 s after its start; until then one release runs on without end."""
    project.replace("scripts/measuring/fleet.py", GRACE=90)
    goes_on = project.root / "goes_on"
    with (project.root / "benchmarks" / "conversion.py").open("a") as file:
        file.write(HELD.format(path=str(goes_on)))
    ours = start(project, *project.plan, "--time", "3")
    first_filed(project, ours)
    cluster.ask("scancel", "--name", cluster.ask("squeue", "-h", "-o", "%j").split()[0])
    suites = str(project.root / ".asv" / "fleet")
    until(lambda: not [process for process in project.left() if process.info["cwd"].startswith(suites)], 12)
    filed = list((project.root / ".asv" / "fleet").glob("*/*/*/suite/reports/results/*/*.*json*"))
    assert filed
    for path in filed:
        assert [json.loads(text) for text in read_texts(path)], f"{path} is broken"
    assert "this job is timed-out" not in said(project)
    until(lambda: "this job is timed-out" in said(project) or ours.poll() is not None, 240)
    assert ours.poll() is None, said(project)
    goes_on.touch()
    finish(project, ours)
    check_complete(project)


def test_a_node_that_fails_at_once_is_left_out(project):
    """A node whose jobs fail at once would use up all attempts while the other is idle."""
    broken = "import socket, sys\nif socket.gethostname() == 'n2':\n    sys.exit('no Python is here')\n"
    (project.here / "sitecustomize.py").write_text(broken)
    finish(project, start(project, *project.plan, "--copies", "1"))
    found = said(project)
    assert re.search(r"both: leaving out a node: SystemExit: no Python is here \(log: \S+_0_log\.err\)", found), found
    ((node, own),) = project.records("both").items()
    assert node == "node-a" and {*tags(own)} == {*OTHERS, REFERENCE}


def test_what_slurm_cannot_do_is_one_line_before_anything_waits(project, monkeypatch):
    cases = {
        ("--partition", "nosuch"): "Invalid partition name specified",
        ("--nodes", "3"): "Requested node configuration is not available",
        ("--constraint", "nosuch"): "Invalid feature specification",
        ("--mem", "16G"): "Requested node configuration is not available",
        ("--reservation", "nosuch"): "Requested reservation is invalid",
        ("--time", "90"): "the partition allows 60 minutes per job, but 90 are needed: with --time 60 a second job",
    }
    for options, why in cases.items():
        done = project.verb("fleet", *project.plan, *options, "--dry-run", code=2)
        assert why in done.stderr and done.stderr.count("\n") == 1, (options, done.stderr)
    monkeypatch.setattr(campaign, "FLEET", project.root / "fleet")
    made = fleet.campaign_of(fleet.arguments(project.plan), "both")
    made.submitted = 2
    assert not submit(made, OTHERS, slurm.NODES), "no other node is left"
    made.submitted = 1
    with pytest.raises(UserError, match="Slurm rejected the job: .*not available"):
        submit(made, OTHERS, slurm.NODES)


TYPES = {"plain": ("n1", "--partition", "plain"), "both-quick": ("n2", "--constraint", "quick")}


def test_types_of_nodes_are_measured_at_once(project):
    """Each machine type has its own results and node names."""
    both = [start(project, *project.plan, "--nodes", "1", "--copies", "1", *how) for _, *how in TYPES.values()]
    until(lambda: project.records("plain") or both[0].poll() is not None, 240)
    assert both[0].poll() is None, "results are gathered as they come: " + said(project)
    for ours in both:
        finish(project, ours)
    for kind, (host, *_) in TYPES.items():
        assert (project.root / ".asv" / "fleet" / kind / "hosts" / "node-a").read_text() == host
        ((node, found),) = project.records(kind).items()
        assert node == "node-a" and {record.machine for record in found} == {kind}
        assert sorted(tags(found)) == [*OTHERS, REFERENCE, REFERENCE]
    assert project.names_hosts(*slurm.NODES) == []


# --- planted changes -------------------------------------------------------------------------------------------------

# The time of a call is set here, by release and host. A call spins until a clock reaches its end, so neither the
# processor nor other processes change its time: 10 % are 10 % even on a busy two-core machine, which stands for all
# nodes. Instruction counts are made-up constants.
ROUTES = EVERYWHERE, ON_ONE, NOWHERE = "torch.from_numpy(a).clone()", "torch.tensor(a)", "torch.as_tensor(a.copy())"
SERIES = ("1.13.1", "2.0.1", "2.1.0", "2.3.0", "2.4.0", "2.5.0")
SLOWER_EVERYWHERE, SLOWER_ON_ONE = "2.1.0", "2.4.0"
WHAT_IT_TAKES = f"""
import os
import time

import torch

SLOWER = {{
    "{EVERYWHERE}": torch.__version__ >= "{SLOWER_EVERYWHERE}",
    "{ON_ONE}": torch.__version__ >= "{SLOWER_ON_ONE}" and os.environ.get("SLURMD_NODENAME") == "n2",
    "{NOWHERE}": False,
}}


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class NumpyToTorch:
    contracts = { ({route: contract(route, "copy") for route in ROUTES}) }
    direction = "numpy→torch"
    param_names = ["route", "dtype", "nbytes"]
"""
TIMED = f"""
    role = "conversion"
    probed = False  # a clock decides: how fast the host is has no part in it
    single_threaded = False
    params = {ROUTES}, ["float32"], [4096, 1048576]

    def timeit_convert(self, route, dtype, nbytes):
        seconds = (1.1e-4 if SLOWER[route] else 1e-4) * (1 if nbytes == 4096 else 2)
        return "spin(seconds)", {{"spin": spin, "seconds": seconds}}
"""
COUNTED = f"""
    repeated = True
    unit = "instructions"
    params = {ROUTES}, ["float32"], [4096]

    def track_instructions(self, route, dtype, nbytes):
        count = 11_000 if SLOWER[route] else 10_000
        return {{"samples": [count, count + 1, count + 2], "number": 1}}
"""


def test_a_change_of_a_tenth_is_found_on_all_nodes_or_on_the_one_that_has_it(tmp_path, cluster):
    """Real: Slurm with two nodes, jobs, processes, samples, files, and their analysis and pages.

    Made up: the time of a call. Both nodes are one busy machine, where 10 % of a real call would be noise. Releases
    have their real dates, so the suite's own ledger knows them.
    """
    real = json.loads(ledger.RELEASES.read_text(encoding="utf-8"))["torch"]
    releases = {**tiny.RELEASES, "torch": {version: real[version] for version in SERIES}}
    families = {"conversion": WHAT_IT_TAKES + TIMED, "instructions": WHAT_IT_TAKES + COUNTED}
    decided = prepared(Project(tmp_path, releases, families, judged=True), "--time", "30")
    finish(decided, start(decided, *decided.plan))
    told = (decided.root / "fleet.log").read_text()
    assert re.search(r"^both: releases filed: node-a \d, node-b \d; 2 RUNNING", told, re.MULTILINE)
    names = {path.read_text(): path.name for path in (decided.root / ".asv" / "fleet" / "both" / "hosts").iterdir()}

    made = histories_of(load(decided.filed, "both"))["torch"]
    assert [release.version for release in made.releases] == list(SERIES)
    columns = ["what", "route", "release", "verdict", "nodes_with", "nodes_without"]
    # differences of counts between nodes are within the range of repeats: no release is blamed for them
    assert set(made.changes[columns].itertuples(index=False, name=None)) == {
        ("time", EVERYWHERE, SLOWER_EVERYWHERE, "slower", "node-a, node-b", ""),
        ("time", ON_ONE, SLOWER_ON_ONE, "slower", names["n2"], names["n1"]),
        ("instructions", EVERYWHERE, SLOWER_EVERYWHERE, "more", "", ""),
    }
    both = made.changes.query("what == 'time' and route == @EVERYWHERE")
    assert both["ratio"].tolist() == pytest.approx([1.1] * len(both), rel=0.02)
    assert (both["ratio_low"] <= 1.1).all() and (both["ratio_high"] >= 1.1).all()

    build(decided.filed, tmp_path / "out")  # built here, since the project's environment has no numpy
    page = (tmp_path / "out" / "history" / "both" / "README.md").read_text(encoding="utf-8")
    assert "on 2 of 2 nodes" in page and f"not on {names['n1']}" in page
    assert decided.names_hosts(*slurm.NODES) == []
