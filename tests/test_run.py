"""scripts/run.py: each mistake gives one clear line, and an interruption costs at most a round."""

import json
import os
import re
import statistics
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import cli
import pytest
import resultfiles
import run as verb
import track
from analysis.results import load
from measuring import machine
from measuring.engine import SILENT
from measuring.journal import Job, Journal, Plan, lock_directory
from measuring.machine import check_machine
from store import files, quiet, schema
from store.schema import RunRecord, Toolchain
from tiny import FAMILIES, Project
from toolchains import environments

MACHINE = "tester"
FAST = ("--only", r"limits\.Floor", "--no-report", "--machine", MACHINE)


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch):
    """No test may measure into the real reports/, even if a wrong argument is accepted."""
    monkeypatch.setattr(verb, "measure", lambda *arguments: pytest.fail("it began to measure"))


# Mistakes -----------------------------------------------------------------------------------------------------------


MISTAKES = [
    (verb, "--profile nosuch", "argument --profile: invalid choice: 'nosuch' (choose from"),
    (verb, "--prof quick", "unrecognized arguments"),
    (verb, "quick", "unrecognized arguments: quick"),
    (verb, "--rounds 0", "--rounds: takes a whole number from 1"),
    (verb, "--machine ../etc", "--machine '../etc': use letters, digits, dot, dash and underscore"),
    (verb, "--machine history", "--machine 'history': reports/history is taken, choose another name"),
    (verb, "--report-with /nosuch/python", "--report-with /nosuch/python: there is no such program"),
    (track, "--releases 9.9", "9.9 is no release of torch or numpy in releases.json"),
    (track, "--history numpy --releases 1.13.1", "1.13.1 is no release of numpy in releases.json"),
    (track, "--releases 2.0.0", "2.0.0 could be torch-2.0.0 or numpy-2.0.0: write one of them"),
    (track, "--since 99", "no release is left to measure"),
    (track, "--since two", "--since 'two' is no version"),
    (track, "--keep 0", "--keep: takes a whole number from 1"),
    (track, "--verdicts x", "--verdicts goes with --new"),
    (track, "--new --history=torch", "--new and --update take no --history"),
    (track, "--new --releases=2.6.0", "--new and --update take no --releases"),
    (track, "--new --since=2", "--new and --update take no --since"),
    (track, "--new --only=x", "--new and --update take no --only"),
    (track, "--new --resume", "--new and --update take no --resume"),
    (track, "--update --dry-run", "--new and --update take no --dry-run"),
]


@pytest.mark.parametrize("verb, arguments, says", MISTAKES)
def test_mistakes_are_one_line(verb, arguments, says, refusal):
    assert says in refusal(verb, *arguments.split())


@pytest.mark.parametrize(("package", "found"), [("asv", "0.5.1"), ("asv_runner", None)])
def test_timing_rests_on_exact_versions(package, found, monkeypatch, refusal):
    pytest.importorskip("torch")
    real, made = environments.find_distribution, SimpleNamespace(version=found) if found else None
    known = lambda name, *path: made if name == package else real(name, *path)  # noqa: E731
    monkeypatch.setattr(environments, "find_distribution", known)
    assert re.search(rf", found {found or 'none'}: .* asv==\S+ asv_runner==\S+", refusal(verb))


@pytest.mark.parametrize("package", ["torch", "numpy"])
def test_a_missing_package_is_named(package, monkeypatch, refusal):
    pytest.importorskip("torch")
    monkeypatch.setattr(environments, "find_distribution", lambda name, path: None)
    if package == "torch":
        monkeypatch.setitem(sys.modules, "torch", None)
    assert re.match(f"{package} is not installed.*make bench", refusal(verb))


def test_answers_so_far_are_printed_when_they_are_new_or_their_significance_is(tmp_path, capsys, monkeypatch):
    routes = [resultfiles.FROM_NUMPY, resultfiles.AS_TENSOR, resultfiles.CLONE, resultfiles.TENSOR]
    tie, none, another = [4e-7, 9e-7, 1e-6, 1.01e-6], [4e-7, 9e-7, 1e-6, 2e-6], [4e-7, 4.1e-7, 1e-6, 2e-6]
    runner = Mock(plan=SimpleNamespace(rounds=4, machine="box", race=False))
    runner.file.return_value = SimpleNamespace(file="c0ffee00-toolchain-py3.11", started=resultfiles.RUN)
    monkeypatch.setattr(verb, "RESULTS", tmp_path)
    judge, said = verb.judge_rounds(is_silent=False), []
    for number, took in enumerate((tie, none, another)):
        times = {(route["expression"], 8): resultfiles.around(seconds) for route, seconds in zip(routes, took)}
        resultfiles.write(tmp_path, [resultfiles.conversion(times, routes)])
        judge(runner, Job("", number + 1))
        said.append(capsys.readouterr().out.splitlines())
    assert re.search(r" 1 of 4, \d+ s ", said[0][0])
    alias = "  NumPy array to tensor, sharing memory: torch.from_numpy(a), 400 ns at 8 B"
    copy = "  NumPy array to tensor, as a copy, 1 torch thread: torch.from_numpy(a).clone(), 1.00 µs at 8 B"
    tied = "(not significant yet)"
    assert [lines[1:] for lines in said] == [[alias, f"{copy} {tied}"], [copy], [f"{alias} {tied}"]]


def refused(project, verb, *arguments):
    """Return the one line that the script ``verb`` prints on stderr before it exits with code 2."""
    (line,) = project.verb(verb, *arguments, code=2).stderr.splitlines()
    assert line.startswith(f"{verb}.py: ")
    return line


@pytest.fixture
def project(tmp_path):
    """A suite with tiny packages: error messages need no real torch."""
    return Project(tmp_path, families={**FAMILIES, "limits": BROKEN})


def test_results_directory_that_cannot_be_written(project):
    """A file is in place of the directory, so that even root cannot write there."""
    project.filed.parent.mkdir()
    project.filed.write_text("", encoding="utf-8")
    assert str(project.filed) in refused(project, "run", *FAST)


FAILS = {"raise ValueError('no such thing')": "ValueError: no such thing", "import os; os.kill(os.getpid(), 9)": SILENT}
BROKEN = f"""
class Floor:
    params = {[*FAILS]}
    param_names = ["statement"]

    def timeit_call(self, statement):
        return statement, {{}}
"""


def test_failed_cells_keep_their_reason(project):
    described = {name: each for name, each in resultfiles.SUITE.items() if "limits" not in name}  # those are new
    files.put(project.filed / files.BENCHMARKS, json.dumps(described))
    done = project.verb("run", *FAST, "--rounds", "1")
    assert "limits.Floor.timeit_call: ValueError: " in done.stdout
    ((record,),) = project.records().values()
    failed = {f"limits.Floor.timeit_call({statement!r})": why for statement, why in FAILS.items()}
    assert record.failures == {why: (cell,) for cell, why in failed.items()}
    missing = load(project.filed).missing
    assert dict(zip(missing["cell"], missing["reason"])) == failed and set(missing["status"]) == {"failed"}


# Interruption -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_installed_toolchain_is_measured_without_git(tmp_path):
    """A machine with a GPU often has neither git nor a network. Its results are filed after every round.

    asv, its plugin and its processes also work if Python does not add a script's directory to sys.path
    (PYTHONSAFEPATH).
    """
    project, name = Project(tmp_path, judged=True), "conversion.NumpyToTorch.timeit_convert"
    options = ("--profile", "tracking", "--only", "conversion", "--no-report", "--machine", MACHINE)
    project.verb("run", *options, "--rounds", "2", PATH=str(project.home), PYTHONSAFEPATH="1")
    ((record,),) = project.records(MACHINE).values()
    assert (record.rounds, record.profile) == (2, "tracking") and record.samples >= 2 * 4 * 20
    assert record.machine == MACHINE and record.settings.torch_threads == 1
    ((path,), (filed,)) = files.result_files(project.filed), project.results().values()
    used = quiet.used_samples(files.read_measurements(path)).items()
    row = filed["results"][name]
    figures = dict(zip(schema.cell_names(name, row["params"]), row["result"]))
    assert len(used) == 4 and figures == pytest.approx({cell: statistics.median(taken) for cell, (taken, _) in used})
    project.verb("run", "--no-report", "--machine", MACHINE, "--resume")
    assert len(files.read_records(path.with_suffix(".jsonl"))) == 1, "measured no more"


def test_resume_refuses_another_toolchain_or_other_options(project):
    """Rounds of two toolchains must not mix in a run. With nothing to resume, no history (which takes hours) begins."""
    for name in ("run", "track"):
        line = f"{name}.py: nothing to resume on {MACHINE}: leave out --resume"
        assert refused(project, name, "--resume", "--machine", MACHINE) == line
    kept = Journal(project.root / ".asv" / "runs" / MACHINE / "run")
    kept.begin()
    kept.keep(Job("", 0), RunRecord(Toolchain("torch-1-numpy-1"), {}))
    kept.save(Plan(MACHINE, "quick", FAST[1], 2))
    said = [refused(project, "run", *FAST, "--resume", *more) for more in ((), ("--profile", "standard"))]
    assert "the interrupted run was on torch-1-numpy-1: --resume there, or run anew" in said[0]
    assert "the interrupted run had other options (--profile): use --resume alone" in said[1]


def test_a_history_waits_for_a_run_of_its_machine(project):
    with lock_directory(project.root / ".asv" / "runs" / MACHINE):
        assert f" {os.getpid()}" in refused(project, "track", "--machine", MACHINE)


def test_results_of_another_machine_are_refused(tmp_path, monkeypatch):
    """Two machines with one name would share a page. A virtual machine that moved to another host may have a CPU of the
    same name, but figures that differ by two thirds."""
    mine = {"cpu": environments.cpu_model(), "cores": os.cpu_count(), "caches": machine.caches() or {"L2": "1024K"}}
    monkeypatch.setattr(machine, "caches", lambda: mine["caches"])
    check_machine(tmp_path)  # none yet
    (tmp_path / "00000002-toolchain-py3.11.jsonl").write_text("broken", encoding="utf-8")
    others = {"Another CPU": {"cpu": "Another CPU"}, "1024 cores": {"cores": 1024}, ", L2 5K": {"caches": {"L2": "5K"}}}
    others |= {"glibc 9": {"libc": "glibc 9"}}
    for named, change in [("", {}), ("", {"caches": {}}), ("", {"libc": ""}), *others.items()]:
        record = resultfiles.record([], conditions={**mine, **change})
        (tmp_path / "00000001-toolchain-py3.11.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
        line = rf"^the results of \S+ were measured on another machine \(.*{named}.*\): give .* by --machine$"
        with pytest.raises(cli.UserError, match=line) if named else nullcontext():
            check_machine(tmp_path)


OTHER_BUILDS = [("optimised", "3.11.2"), ("not optimised", "3.11.2"), ("optimised", "3.12.1"), ("", "3.11.2")]


@pytest.mark.parametrize(("build", "python"), OTHER_BUILDS)
def test_another_build_of_a_python_is_another_machine_s(tmp_path, build, python):
    """A build that is not known, as in older records, and another release of Python are no reason."""
    settings = resultfiles.record([])["settings"] | {"build": build, "python": python}
    record = resultfiles.record([], settings=settings, conditions={})
    (tmp_path / "00000001-toolchain-py3.11.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    line = r"with Python 3.11.7 come from another build of it \(optimised; this one: not optimised\)"
    with pytest.raises(cli.UserError, match=line) if (build, python) == OTHER_BUILDS[0] else nullcontext():
        check_machine(tmp_path, schema.Settings(python="3.11.7", build="not optimised"))
