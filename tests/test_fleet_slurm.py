"""scripts/fleet.py on a real Slurm of two nodes: what may happen to nodes, jobs and fleet.py itself loses nothing."""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import fleet
import planted
import pytest
import report
import slurm
from analysis.history import histories_of
from analysis.results import load
from cli import UserError
from measuring import fleet as campaign
from store.files import MEASUREMENTS, content, read_measurements
from tiny import SLOWER_FROM, Project

pytest.importorskip("asv")
pytest.importorskip("submitit")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(slurm.lacking()), reason=slurm.lacking() or "there is one")]

REFERENCE = "torch-2.3.0"
TAGS = {"torch-1.13.1", "torch-2.1.0", REFERENCE}
PLAN = ("--history", "torch", "--releases", "1.13.1,2.1.0,2.3.0", "--nodes", "2", "--copies", "2")


@pytest.fixture
def cluster(tmp_path):
    with slurm.alone():
        cluster = slurm.Cluster(tmp_path / "slurm")
        yield cluster
        cluster.end()


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    """Options: the nodes' disk, on which a test finds what one before it has installed."""
    return ("--scratch", str(tmp_path_factory.mktemp("scratch")), "--keep", "9")


@pytest.fixture
def project(tmp_path, cluster, scratch):
    project = prepared(Project(tmp_path), cluster)
    project.options = ("--partition", "both", "--rounds", "2", "--time", "15", "--no-report", *scratch)
    return project


def prepared(project, cluster):
    """A project that is a client of the cluster, and looks every second."""
    project.replace("scripts/measuring/fleet.py", POLL=1.0, BACK_OFF=1.0)
    project.variables = cluster.environment
    return project


def start(project, *arguments, host=""):
    """fleet.py, its words in fleet.log; host: what the machine is called that it runs on, if not as ever."""
    log = (project.root / "fleet.log").open("a")
    command = [sys.executable, "scripts/fleet.py", *arguments]
    command = ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh", *command] if host else command
    environment = {**project.environment, **project.variables}
    return subprocess.Popen(command, cwd=project.root, env=environment, stdout=log, stderr=log, start_new_session=True)


def finish(project, ours, seconds=900):
    """Wait for fleet.py, which is to measure all it was asked for."""
    try:
        ours.wait(seconds)
    except subprocess.TimeoutExpired:
        ours.kill()
        pytest.fail(said(project))
    assert ours.returncode == 0, said(project)


def report_of(project):
    """The pages of what was gathered; the project itself has no numpy to build them with."""
    output = project.root / "out"
    assert report.main(["--results", str(project.root / "reports" / "results"), "--output", str(output)]) == 0
    return output


def said(project):
    logs = [project.root / "fleet.log", *sorted((project.root / ".asv" / "fleet").glob("*/logs/*/*.*"))]
    return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in logs if path.is_file())


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


def check_complete(project):
    found = project.records("both")
    assert set(found) == {"node-a", "node-b"}, said(project)
    for node, own in found.items():
        assert set(own) == TAGS, (node, said(project))
        assert all(len(records) == 1 for tag, records in own.items() if tag != REFERENCE)
        order = sorted((record.started, tag) for tag, records in own.items() for record in records)
        assert order[0][1] == order[-1][1] == REFERENCE and len(own[REFERENCE]) >= 2
        for record in (one for records in own.values() for one in records):
            assert record.rounds == 2 and record.machine == "both"
    for path in (project.root / "reports" / "results" / "both").glob(f"node-*/*{MEASUREMENTS}"):
        lines = read_measurements(path)
        places = [(line["run"], line["benchmark"], *line["params"], line["round"], line["at"]) for line in lines]
        assert len(set(places)) == len(places), "the same process twice"


def check_anonymous(project):
    """No file says which hosts these were."""
    for path in (project.root / "reports").rglob("*"):
        if path.is_file():
            words = content(path).decode().replace('"', " ").split()
            assert not {*slurm.NODES, os.uname().nodename} & set(words), path


def test_finishes_though_a_node_dies_a_job_is_preempted_and_we_are_killed(project, cluster):
    ours = start(project, *PLAN, *project.options)
    until(lambda: on_nodes(project) >= 1 or ours.poll() is not None)
    assert ours.poll() is None, said(project)
    os.kill(ours.pid, signal.SIGKILL)
    ours.wait()
    cluster.kill("n2")
    cluster.ask("sbatch", "-p", "first", "-w", "n1", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 2")
    until(lambda: "due to failure of node n2" in (cluster.root / "log").read_text(errors="replace"))
    cluster.start("n2")
    finish(project, start(project, "--resume", "--no-report", host="login2"))
    check_complete(project)
    check_anonymous(project)
    told = (cluster.root / "log").read_text(errors="replace")
    assert "preempted JobId" in told and "due to failure of node n2" in told, "it never happened"
    assert not list((project.root / ".asv" / "fleet" / "both").glob("fleet-*")), "what the nodes kept is gone"


HELD = """
import os, time
while os.path.exists({path!r}) and torch.__version__.startswith("2.1"):
    time.sleep(0.1)
"""


def test_a_job_that_runs_out_of_time_goes_on(project, cluster, all_quiet):
    """Slurm counts in minutes, and here it warns after half of one: until then one release takes no end."""
    project.replace("scripts/measuring/fleet.py", GRACE=90)
    held = project.root / "held"
    held.touch()
    with (project.root / "benchmarks" / "conversion.py").open("a") as file:
        file.write(HELD.format(path=str(held)))
    options = [option if option != "15" else "2" for option in project.options]
    ours = start(project, *PLAN, *options)
    until(lambda: "this job is timed-out" in said(project) or ours.poll() is not None)
    assert ours.poll() is None, said(project)
    held.unlink()
    finish(project, ours)
    check_complete(project)
    made = histories_of(load(project.root / "reports" / "results", "both"))["torch"]
    assert list(made.nodes["node"]) == ["node-a", "node-b"]
    values = made.rows.query("route == 'torch.from_numpy(a)' and what == 'time'").groupby("release", sort=False)[
        "value"
    ]
    slower = values.first().pct_change()[SLOWER_FROM]
    assert 0.3 < slower < 3, "the tiny torch takes twice as long"


def test_a_node_that_fails_at_once_is_left_out(project, cluster):
    """It would take all attempts while the other node is idle. An edit of the checkout meanwhile reaches no node."""
    broken = "import socket, sys\nif socket.gethostname() == 'n2':\n    sys.exit('no Python is here')\n"
    (project.here / "sitecustomize.py").write_text(broken)
    plan = [*PLAN[:-1], "1"]  # each release once
    ours = start(project, *plan, *project.options)
    until(lambda: on_nodes(project) >= 1 or ours.poll() is not None)
    with (project.root / "benchmarks" / "conversion.py").open("a") as file:
        file.write("\nraise SystemExit('edited')\n")
    finish(project, ours)
    found = said(project)
    assert re.search(r"both: leaving out a node: SystemExit: no Python is here \(log: \S+_0_log\.err\)", found), found
    own = project.records("both")
    assert set(own) == {"node-a"} and set(own["node-a"]) == TAGS


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
        text = content(path).decode()
        assert text, f"{path} is broken"
        for whole in [text] if path.suffix == ".json" else text.splitlines():
            json.loads(whole)
    finish(project, ours)  # what is missing was asked for again
    check_complete(project)


def test_what_slurm_cannot_do_is_one_line_before_anything_waits(project, cluster, monkeypatch):
    cases = {
        ("--partition", "nosuch"): "Invalid partition name specified",
        ("--nodes", "3"): "Requested node configuration is not available",
        ("--constraint", "nosuch"): "Invalid feature specification",
        ("--mem", "16G"): "Requested node configuration is not available",
        ("--reservation", "nosuch"): "Requested reservation is invalid",
        ("--time", "90"): "the partition allows 60 minutes per job, but 90 are needed: with --time 60 a second job",
    }
    for options, why in cases.items():
        done = project.verb("fleet", *PLAN, *project.options, *options, "--dry-run", **project.variables)
        assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1, (options, done.stderr)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    options = ["--history", "torch", "--releases", "2.5.1,2.13.0", "--partition", "both", "--nodes", "2"]
    made = fleet.campaign_of(fleet.arguments(options), "both")
    monkeypatch.setattr(campaign, "FLEET", project.root / "fleet")
    made.submitted = 2
    assert not campaign.submit(made, ["torch-2.5.1"], slurm.NODES), "no other node is left"
    made.submitted = 1
    with pytest.raises(UserError, match="Slurm rejected the job: .*not available"):
        campaign.submit(made, ["torch-2.5.1"], slurm.NODES)


# --- planted changes -------------------------------------------------------------------------------------------------

EVERYWHERE, ON_ONE, NOWHERE = planted.ROUTES
TYPES = ("plain", "quick")
SERIES = ("1.13.1", "2.0.1", "2.1.0", "2.3.0", "2.4.0", "2.5.0")
SLOWER_EVERYWHERE, SLOWER_ON_ONE = "2.1.0", "2.4.0"


@pytest.fixture
def decided(tmp_path, cluster):
    """A project in which one route takes 10 % longer from a release on, and another one from a later one on on n2."""
    changes = [
        planted.Planted(EVERYWHERE, SLOWER_EVERYWHERE, 1.1),
        planted.Planted(ON_ONE, SLOWER_ON_ONE, 1.1, host="n2"),
    ]
    return prepared(Project(tmp_path, planted.releases(SERIES), planted.families(changes), judged=True), cluster)


def test_a_change_of_a_tenth_is_found_on_all_nodes_or_on_the_one_that_has_it(decided, scratch):
    """Real: Slurm with its two nodes, jobs, processes, samples, files, and all that is made of them.

    Made up: what a call takes, see planted.py, for the two nodes are one busy machine on which a tenth of a real call
    would be noise. So a call spins until a clock says that its time is over, and the host's name decides where.
    """
    plan = ("--history", "torch", "--nodes", "2", "--copies", "2", "--rounds", "2", "--time", "30")
    finish(decided, start(decided, *plan, "--partition", "both", "--no-report", *scratch))
    told = (decided.root / "fleet.log").read_text()
    assert re.search(r"^both: releases filed: node-a \d, node-b \d; 2 RUNNING", told, re.MULTILINE)
    names = {path.read_text(): path.name for path in (decided.root / ".asv" / "fleet" / "both" / "hosts").iterdir()}
    assert set(names.values()) == {"node-a", "node-b"}

    made = histories_of(load(decided.root / "reports" / "results", "both"))["torch"]
    assert [release.version for release in made.releases] == list(SERIES)
    times = made.changes[made.changes["what"] == "time"]
    both, one = (times[times["route"] == route] for route in (EVERYWHERE, ON_ONE))
    assert set(zip(both["release"], both["verdict"])) == {(SLOWER_EVERYWHERE, "slower")}
    assert set(both["nodes_with"]) == {"node-a, node-b"} and set(both["nodes_without"]) == {""}
    assert both["ratio"].tolist() == pytest.approx([1.1] * len(both), rel=0.02)
    assert (both["ratio_low"] <= 1.1).all() and (both["ratio_high"] >= 1.1).all()
    assert set(zip(one["release"], one["nodes_with"], one["nodes_without"])) == {
        (SLOWER_ON_ONE, names["n2"], names["n1"])
    }
    assert NOWHERE not in set(times["route"])
    # what nodes differ by in their counts is in the range of repeats: no release is blamed for it
    counts = made.changes[made.changes["what"] == "instructions"]
    assert set(zip(counts["route"], counts["release"], counts["verdict"])) == {(EVERYWHERE, SLOWER_EVERYWHERE, "more")}

    page = (report_of(decided) / "history" / "both" / "README.md").read_text(encoding="utf-8")
    assert "on 2 of 2 nodes" in page and f"not on {names['n1']}" in page
    check_anonymous(decided)


def test_a_history_of_each_type_of_node(tmp_path, cluster, scratch):
    """Types of one node each, a partition and a constraint, at once; what calls take there is made up, see above."""
    changes = [
        planted.Planted(EVERYWHERE, "2.3.0", 1.25),
        planted.Planted(ON_ONE, "2.3.0", 1.5, host="n2"),
        planted.Planted(NOWHERE, "1.13.1", 1.2, host="n1"),
    ]
    made = Project(tmp_path, planted.releases(SERIES), planted.families(changes), judged=True)
    project = prepared(made, cluster)
    options = ("--history", "torch", "--nodes", "1", "--copies", "1", "--rounds", "2", "--time", "30", "--no-report")
    both = [
        start(project, *options, *scratch, f"--{how}", kind) for how, kind in zip(("partition", "constraint"), TYPES)
    ]
    until(lambda: project.records("plain") or both[0].poll() is not None)
    assert both[0].poll() is None, "results are gathered as they come: " + said(project)
    for ours in both:
        finish(project, ours)
    hosts = {kind: (project.root / ".asv" / "fleet" / kind / "hosts" / "node-a").read_text() for kind in TYPES}
    assert hosts == {"plain": "n1", "quick": "n2"}
    for kind in TYPES:
        found = project.records(kind)
        assert {tag: len(records) for tag, records in found.pop("node-a").items()} == {
            f"torch-{version}": 2 if version == SERIES[-1] else 1 for version in SERIES
        }
        assert not found

    output = report_of(project)
    rows = list(csv.DictReader((output / "history" / "changes.csv").open(encoding="utf-8")))
    timed = {(row["route"], row["release"], row["machine"], row["said"]) for row in rows if row["what"] == "time"}
    assert timed == {
        *((EVERYWHERE, "2.3.0", kind, "same") for kind in TYPES),
        *((ON_ONE, "2.3.0", kind, said) for kind, said in zip(TYPES, ("differs", "same"))),
    }
    best = list(csv.DictReader((output / "answers.csv").open(encoding="utf-8")))
    assert {(row["machine"], row["route"]) for row in best} == {("plain", ON_ONE), ("quick", NOWHERE)}
    check_anonymous(project)
