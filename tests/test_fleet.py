"""scripts/fleet.py without Slurm: the plan, names of nodes, and a history with this machine in place of all nodes."""

import math
import pickle
import re
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, combinations, product, repeat
from unittest.mock import Mock

import cli
import fleet
import pytest
from cli import UserError
from conftest import until
from measuring import campaign
from measuring import fleet as running
from resultfiles import record, write
from store.files import put
from tiny import SLOWER_FROM, WITHOUT_WHEEL, tags
from toolchains import environments, ledger

TAGS = [f"torch-{number}" for number in range(25)]
INSTRUCTIONS = "instructions.NumpyToTorch.track_count('torch.from_numpy(a)', 'float32', 4096)"


# --- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes, copies", [(1, 1), (2, 2), (3, 2), (4, 1), (4, 2), (4, 3), (5, 2), (8, 2), (16, 3)])
def test_each_release_is_dealt_to_its_number_of_nodes_evenly(nodes, copies):
    blocks = campaign.deal(TAGS, nodes, copies)
    assert all(sum(tag in block for block in blocks) == copies for tag in TAGS)
    sizes = [len(block) for block in blocks]
    assert max(sizes) - min(sizes) <= 1 and all(len(set(block)) == len(block) for block in blocks)
    if copies == 2 and nodes <= 5:
        met = [len({*one} & {*other}) for one, other in combinations(blocks, 2)]
        assert min(met) > 0, "every two nodes share a release: they can be compared"


def test_missing_releases_are_dealt_to_other_nodes():
    had = {"b": {"n1"}, "c": {"n1"}, "d": set()}
    assert [*campaign.top_up(had, 2, 2, ())] == [(["b", "c"], {"n1"}), (["d"], set()), (["d"], set())]
    every = campaign.top_up(dict.fromkeys(TAGS, ()), 2, 4, ())
    assert [*every] == [(each, set()) for each in campaign.deal(TAGS, 4, 2)]
    assert next(campaign.top_up(had, 2, 2, {"n2"})) == (["b", "c"], {"n1", "n2"}), "Slurm says that there is none"


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """A cluster that accepts every job; its partitions allow one hour or two days."""
    monkeypatch.setattr(campaign, "FLEET", tmp_path / "fleet")
    monkeypatch.setattr(campaign, "RESULTS", tmp_path / "results")
    done = subprocess.CompletedProcess([], 0, "1:00:00\n2-00:00:00\n", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **how: done)


def test_a_job_of_a_campaign_that_has_ended_says_so(refusal, tmp_path):
    assert refusal(fleet, campaign.ON_NODE, str(tmp_path), "").endswith("campaign.json is gone: the campaign has ended")


@pytest.mark.parametrize(
    "options, line",
    [
        ("--partition cpu --time 2990", "the partition allows 2880 minutes per job, but 2990 are needed: with --time"),
        ("--nodes 0", "argument --nodes: takes a whole number from 1"),
        ("--time 2", "argument --time: takes a whole number from 3"),
        ("--nodes 2 --copies 3", "--copies 3 needs at least as many nodes, but --nodes is 2"),
        ("--engine debug --mem 2G", "--engine debug measures on this machine and takes no --mem"),
        ("--reference 9.9", "--reference 9.9: no release of torch"),
        ("--partition a/b", "--machine 'a/b': use letters"),
        ("--resume", "nothing to resume: no campaign is incomplete"),
        ("--resume --machine box", "nothing to resume on box: leave out --resume"),
    ],
)
def test_mistakes_are_one_line_before_anything_waits(refusal, cluster, options, line):
    command = f"--history torch --since 2.13 --nodes 2 {options} --dry-run"
    assert refusal(fleet, *command.split()).startswith(line)


def test_time_limits_of_slurm_are_parsed():
    assert list(map(running.parse_minutes, ("30:00", "1:00:00", "7-00:00:00", "infinite"))) == [30, 60, 10080, math.inf]


def planned(*options, machine="box"):
    return fleet.campaign_of(fleet.arguments(["--history", "torch", *options]), machine)


def test_the_estimate_follows_only():
    assert 0 < planned("--only", "from_numpy").minutes < planned().minutes / 4


@pytest.mark.parametrize("only", [(), ("--only", "from_numpy(a)"), ("--only", "^conversion.*from_numpy|^instr")])
def test_one_copy_counts_no_instructions(only):
    """Nodes count differently: with each release on one node only, node and release cannot be told apart."""
    for copies, counted in (("1", False), ("2", True)):
        matches = cli.matcher(planned(*only, "--nodes", "2", "--copies", copies).plan.only, [INSTRUCTIONS])
        assert matches(INSTRUCTIONS) == counted and matches("conversion.timeit_convert('torch.from_numpy(a)', 8)")


@pytest.mark.parametrize("engine", ["--partition cpu --time 30", "--engine debug --machine box --copies 1"])
def test_dry_run_prints_the_plan_and_does_nothing(called, cluster, tmp_path, snapshot, engine):
    options = f"--history torch --releases 2.6.0,2.9.1,2.13.0 --nodes 2 {engine} --dry-run"
    code, said, _ = called(fleet, *options.split())
    assert code == 0 and not (tmp_path / "fleet").exists()
    assert re.sub(r"named fleet-\S+", "named ID", said) == snapshot


def test_the_command_in_records_names_no_place(tmp_path):
    made = planned("--scratch", str(tmp_path), "--machine", "box", "--rounds", "2")
    options = "--history torch --reference torch-2.15.0 --rounds 2 --nodes 1 --copies 1 --engine debug"
    assert made.plan.command == f"python scripts/fleet.py {options}"


def test_missing_submitit_is_one_line(monkeypatch, made):
    monkeypatch.setitem(sys.modules, "submitit", None)
    line = r"^--engine slurm needs submitit: pip install submitit \(in this Python, which the nodes use, too\)$"
    with pytest.raises(UserError, match=line):
        running.submit(made, [], ())


# --- nodes -----------------------------------------------------------------------------------------------------------


def test_a_host_has_one_name(tmp_path):
    """Each host gets exactly one name, even if many jobs start at once."""
    hosts = [f"host-{number}" for number in range(20)] * 2
    with ProcessPoolExecutor(9) as jobs:
        named = {*zip(hosts, jobs.map(running.node_name, [tmp_path] * len(hosts), hosts))}
    assert len(named) == 20 and {name for _, name in named} == {f"node-{letter}" for letter in "abcdefghijklmnopqrst"}
    assert len(list((tmp_path / campaign.HOSTS).iterdir())) == 20
    names = campaign.node_names()
    assert [next(names) for _ in range(28)][-3:] == ["node-z", "node-aa", "node-ab"]


def test_pip_keeps_its_settings_and_takes_wheels_from_the_wheelhouse(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    put(tmp_path / ".config" / "pip" / "pip.conf", "[global]\nretries = 7\n")
    variables = running.node_variables(planned("--wheelhouse", "/wheels", "--keep", "2"), tmp_path / "node-a")
    own = {"HOME": str(tmp_path / "node-a" / campaign.HOME), environments.LIMIT_VARIABLE: "2"}
    assert {**own, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}.items() <= variables.items()
    asked = [sys.executable, "-m", "pip", "config", "get", "global.retries"]
    done = subprocess.run(asked, env=variables, capture_output=True, text=True)
    assert done.stdout.strip() == "7", done.stderr


# --- this machine for all nodes --------------------------------------------------------------------------------------


def test_a_history_on_this_machine_is_resumed_with_the_frozen_code(project, tmp_path):
    """A campaign is stopped midway and resumed after an edit, which must not reach the nodes.

    One release has no wheel; wheels come from a wheelhouse.
    """
    plan = f"--history torch --releases 2.0.1,{SLOWER_FROM},{WITHOUT_WHEEL},2.3.0 --nodes 2 --copies 2 --rounds 1"
    options = ("--no-report", "--wheelhouse", str(tmp_path / "house"))
    ours = project.start(sys.executable, "scripts/fleet.py", *plan.split(), *options)
    first = "*/*/node-a/suite/reports/results/*/*.jsonl"
    printed = project.stop(ours, lambda: list((project.root / ".asv" / "fleet").glob(first)), signal.SIGTERM)
    assert "scripts/fleet.py --resume" in printed
    until(lambda: not project.left(), 10, "something runs on")

    (project.root / "benchmarks" / "conversion.py").write_text("raise SystemExit('edited')")
    project.wheels.rename(tmp_path / "elsewhere")  # the nodes use the wheelhouse, not the index
    done = project.verb("fleet", "--resume", "--no-report", code=2)
    (tmp_path / "elsewhere").rename(project.wheels)
    assert f"torch-{WITHOUT_WHEEL}: no results from node-b: No matching distribution found" in done.stdout
    found = project.records()
    assert set(found) == {"node-a", "node-b"}
    for own in found.values():
        first, *between, last = tags(record for record in own if not record.failed)
        assert first == last == "torch-2.3.0" and sorted(between) == ["torch-2.0.1", f"torch-{SLOWER_FROM}"]
    assert project.names_hosts() == []
    project.asv("show", "torch-2.3.0")  # asv reads the nodes' results, too


@pytest.fixture
def made(cluster):
    """A campaign on two nodes without any measurements."""
    made = planned("--releases", "2.1.2,2.3.1,2.5.1", "--partition", "cpu", "--nodes", "2", machine="cpu")
    assert [running.node_name(made.directory, host) for host in ("n1", "n2")] == ["node-a", "node-b"]
    return made


def filed(made, node, tag, *failed):
    """File sessions of a release on a node. failed: reason per session for having no results, "" if it has some."""
    about = {"toolchain": {"tag": tag}, "fleet": {"id": made.id, "engine": "slurm", "node": node}}
    records = [record([], failed=why, **about) for why in failed]
    results = made.place / node / campaign.SUITE / "reports" / "results"
    write(results, [], made.machine, records, ledger.toolchains_by_tag()[tag].commit)


@pytest.fixture
def submit(made, monkeypatch):
    """A mock of submitting to an engine with two nodes and these ``jobs``, without waits."""
    submit = Mock(side_effect=lambda made, tags, without: without != {"n1", "n2"}, jobs=[])
    monkeypatch.setattr(running, "submit", submit)
    monkeypatch.setattr(running, "queued_jobs", lambda made: submit.jobs)
    monkeypatch.setattr(running, "BACK_OFF", 0.0)
    return submit


def test_slurm_may_fail_for_a_while_to_list_its_jobs(made, monkeypatch, capsys):
    monkeypatch.setattr(running, "POLL", 0.0)
    why = "slurm_load_jobs error: Socket timed out on send/recv operation"
    failure = (1, "", why)
    answers = chain([failure, failure, (0, "RUNNING None\n", "")], repeat(failure))  # interpreters are asked, too
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, *next(answers)))
    assert running.queued_jobs(made) == ["RUNNING None"]
    monkeypatch.setattr(running, "SILENCE", 0.0)
    with pytest.raises(UserError, match=rf"^squeue .*: {why}$"):
        running.measure(made, None)
    first, second, last = capsys.readouterr().out.splitlines()
    assert first == second and first.endswith(f"{why}; asking again") and last.endswith("fleet.py --resume")


def test_missing_releases_follow_from_result_files(made, submit):
    """Missing releases follow from result files alone, not from the engine's records."""
    filed(made, "node-a", "torch-2.5.1", "")
    filed(made, "node-a", "torch-2.1.2", "")
    filed(made, "node-b", "torch-2.3.1", "no wheel")
    assert made.lacking(made.gather()) == {"torch-2.1.2": {"node-a"}, "torch-2.3.1": set()}
    submit.jobs = ["RUNNING None"] * 2
    assert running.advance(made) == "releases filed: node-a 2; 2 RUNNING None"
    submit.jobs = []
    filed(made, "node-a", "torch-2.3.1", "no wheel")
    assert list(made.lacking(made.gather())) == ["torch-2.1.2"], "what no node can measure is not asked for again"
    made.submitted = 1
    assert running.advance(made) == "releases filed: node-a 2"
    submit.assert_called_once_with(made, ["torch-2.1.2"], {"n1"})
    made.submitted = running.MAX_SUBMISSIONS[True]
    assert running.advance(made) is None, "somebody should look"


def failed_at_once(made, host, job, text):
    put(made.logs / f"{job}.host", host + "\n")
    put(made.logs / f"{job}_0_log.err", text)


def test_a_node_that_fails_at_once_is_left_out_and_named(made, submit, capsys):
    """A node without Python or with a full disk would use up all attempts while the other node is idle."""
    with pytest.raises(RuntimeError, match="^exit status 2; ") as raised:  # submitit records it as an error
        running.slurm_job(["sh", "-c", "exit 2"])()
    failed_at_once(made, "n2", "7_1", f"submitit INFO starting\nfleet.py: /scratch is full\n{raised.value}\n")
    made.submitted = 1
    assert running.advance(made) and submit.called and all(call.args[2] == {"n2"} for call in submit.mock_calls)
    said = capsys.readouterr().out
    assert re.search(r": /scratch is full \(log: \S+/7_1_0_log\.err\)$", said, re.MULTILINE)
    assert "n2" not in said, "nobody asked for hosts"
    failed_at_once(made, "n1", "8", "/bin/sh: python: not found\n")
    assert running.advance(made) is None, "no node is left"
    assert running.report(made, lambda machine: None) == 2
    assert "/bin/sh: python: " in capsys.readouterr().out
    (made.logs / "7_1_0_log.err").write_text("slurmstepd: *** JOB 7 ON n2 CANCELLED AT 2026-11-25 ***\n")
    assert list(running.broken_hosts(made)) == ["n1"], "somebody ended that job"
    (made.logs / "8_0_result.pkl").write_bytes(pickle.dumps(("success", 0)))
    assert running.broken_hosts(made) == {}


def test_a_release_that_cannot_be_measured_is_no_failure_of_the_node(made, monkeypatch, tmp_path):
    monkeypatch.setattr(running, "ROOT", tmp_path / "node-a" / "suite")
    monkeypatch.setattr(running, "start_runner", lambda *_: Mock(measure=lambda: {"torch-2.1.2": "no wheel"}))
    made.save()
    assert running.on_node(made.directory, "node-a", ["torch-2.1.2"]) == 0


def test_the_code_is_frozen_once_and_an_edit_of_the_copy_is_an_error(made):
    made.freeze()
    code = made.code
    made.freeze()
    assert made.code == code == campaign.Campaign.load(made.directory).code
    (made.place / campaign.CODE / "requirements.txt").write_text("changed")
    with pytest.raises(UserError, match=r"^\S+ was changed since the campaign began: remove \S+$"):
        made.freeze()


def test_a_new_campaign_waits_for_the_jobs_of_the_one_before(made, submit):
    made.save()
    assert campaign.Campaign.load(made.directory) == made
    submit.jobs = ["RUNNING None"]
    line = f"^jobs named {made.id} are .* cpu: --resume gathers their results, scancel --name={made.id} cancels them$"
    with pytest.raises(UserError, match=line):
        running.end_earlier("cpu")
    submit.jobs = []
    running.end_earlier("cpu")
    assert campaign.Campaign.load(made.directory) is None
    (made.directory / campaign.PLAN).write_text("{")
    with pytest.raises(UserError, match=r"^\S+ cannot be read: remove \S+, and begin anew$"):
        running.end_earlier("cpu")


def test_the_page_is_built_from_gathered_results(made, submit):
    made.save()
    built = []
    assert running.report(made, built.append) == 2 and not built, "nothing was measured"
    for node, tag in product(("node-a", "node-b"), made.plan.tags):
        filed(made, node, tag, "no wheel", "", "no wheel")  # a wheel existed for a while
    assert running.advance(made) is None and not submit.called, "nothing is missing"
    assert running.report(made, built.append) == 0 and built == ["cpu"]
    assert campaign.Campaign.load(made.directory) is None, "a campaign that is complete is forgotten"


@pytest.mark.parametrize("more, built", [((), True), (("--no-report",), False)])
def test_no_report_builds_no_page(cluster, monkeypatch, more, built):
    monkeypatch.setattr(running, "measure", lambda made, build: build is fleet.report.after_run)
    assert fleet.main(["--history", "torch", "--releases", "2.1.2", "--machine", "box", *more]) == built
