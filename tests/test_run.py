"""scripts/run.py: every mistake is one clear line, and an interruption costs a round at most."""

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import run as verb
from analysis import calm, cli
from conftest import Checkout, environment

FLOOR = "limits.Floor.timeit_floor"
FAST = ("--only", r"limits\.Floor", "--no-report", "--machine", Checkout.machine)


def called(monkeypatch, capsys, *arguments):
    """Exit code and the lines on stderr of run.py, in this process."""
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.run(verb.main)
    printed = capsys.readouterr()
    assert not printed.out
    return ended.value.code, printed.err.splitlines()


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch):
    """Should a wrong argument get through, no test may measure into the real reports/."""
    monkeypatch.setattr(verb, "measure", lambda *arguments: pytest.fail("it began to measure"))


# Mistakes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--profile", "nosuch"], "there is no profile 'nosuch'; there are: quick, standard, full"),
        (["--nosuch"], "unrecognized arguments: --nosuch"),
        (["--prof", "quick"], "unrecognized arguments"),
        (["quick"], "unrecognized arguments: quick"),
        (["--rounds", "0"], "--rounds takes a whole number from 1"),
        (["--rounds", "-3"], "--rounds takes a whole number from 1"),
        (["--rounds", "two"], "invalid int value: 'two'"),
        (["--machine", "../etc"], "--machine '../etc': use letters"),
        (["--machine", ""], "--machine '': use letters"),
        (["--machine", "-x" * 40], ""),
        (["--only", "("], "--only '(' is not a regular expression"),
    ],
    ids=" ".join,
)
def test_wrong_argument(arguments, says, monkeypatch, capsys):
    code, lines = called(monkeypatch, capsys, *arguments)
    assert code == 2
    assert len(lines) == 1 and lines[0].startswith("run.py: ") and says in lines[0], lines


def versions(monkeypatch, **replaced):
    real = importlib.metadata.version

    def version(package):
        if package in replaced and replaced[package] is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return replaced.get(package) or real(package)

    monkeypatch.setattr(importlib.metadata, "version", version)


@pytest.mark.parametrize("package", ["asv", "asv_runner"])
@pytest.mark.parametrize(("found", "named"), [("0.5.1", "found 0.5.1"), (None, "found none")])
def test_timing_rests_on_exact_versions(package, found, named, monkeypatch, capsys):
    pytest.importorskip("torch")
    versions(monkeypatch, **{package: found})
    code, lines = called(monkeypatch, capsys)
    assert code == 2
    assert len(lines) == 1 and named in lines[0] and re.search(r"pip install asv==\S+ asv_runner==\S+", lines[0])


def test_missing_torch(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, lines = called(monkeypatch, capsys)
    assert (code, len(lines)) == (2, 1)
    assert "torch is not installed" in lines[0] and "make bench" in lines[0]


def test_missing_numpy(monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.setattr(verb.installed, "_distribution", lambda name, path: None)
    code, lines = called(monkeypatch, capsys)
    assert (code, len(lines)) == (2, 1)
    assert "numpy is not installed" in lines[0]


def one_line(done):
    """The one line that a verb printed before it gave up."""
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("run.py: ")
    return line


def test_as_a_program(checkout):
    """The same from a shell, from any directory."""
    done = checkout.run(checkout.root / "scripts" / "run.py", "--profile", "nosuch")
    assert "there is no profile" in one_line(done)
    shown = checkout.run("scripts/run.py", "--help")
    assert shown.returncode == 0 and "--resume" in shown.stdout


def test_torch_missing_as_a_program(checkout, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n", encoding="utf-8")
    assert "torch is not installed" in one_line(checkout.run("scripts/run.py", PYTHONPATH=str(tmp_path)))


def test_results_directory_that_cannot_be_written(checkout):
    """A file where the directory should be: nobody may write there, root included."""
    checkout.results.parent.mkdir()
    checkout.results.write_text("", encoding="utf-8")
    assert str(checkout.results) in one_line(checkout.run("scripts/run.py", *FAST))


def test_only_that_matches_nothing(checkout):
    done = checkout.run("scripts/run.py", "--only", "nosuch", "--no-report", "--machine", Checkout.machine)
    assert "--only 'nosuch' matches no benchmark of the profile quick" in one_line(done)
    assert not list(checkout.results.glob("*/*.jsonl"))


# Interruption -------------------------------------------------------------------------------------------------------


def test_interrupted_run_goes_on(checkout):
    state = checkout.root / ".asv" / "runs" / Checkout.machine / "run.json"
    running = subprocess.Popen(
        [sys.executable, "scripts/run.py", *FAST, "--rounds", "2"],
        cwd=checkout.root,
        env=environment(checkout.home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while time.monotonic() < until and running.poll() is None:
        # the second round begins with two seconds of asv finding its feet
        if state.is_file() and '"rounds": 1' in state.read_text(encoding="utf-8"):
            break
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    printed, complaint = running.communicate(timeout=40)
    assert running.returncode == 130, printed + complaint
    assert complaint.split() == ["run.py:", "interrupted"]
    assert json.loads(state.read_text(encoding="utf-8"))["rounds"] == 1
    first = {cell: samples for cell, (_, samples) in checkout.cells(FLOOR).items()}
    # a busy machine takes some cells twice
    assert all(len(samples) >= 20 and len(samples) % 20 == 0 for samples in first.values())
    assert not list(checkout.results.glob("*/*.jsonl")), "a record of a run that is not whole"

    resumed = checkout.run("scripts/run.py", *FAST, "--rounds", "2", "--resume")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    beside = checkout.result_file().with_suffix(calm.SUFFIX)
    taken = calm.read(beside)
    for cell, samples in first.items():
        own = [line for line in taken if tuple(line["params"]) == cell]
        assert {line["round"] for line in own} == {0, 1}
        zeroth = {sample for line in own if line["round"] == 0 for sample in line["seconds"]}
        assert set(samples) <= zeroth, "the first round was measured again"
    (line,) = checkout.result_file().with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    record = json.loads(line)
    assert (record["rounds"], record["profile"]) == (2, "quick") and record["samples"] >= 2 * 3 * 20
    assert record["machine"] == Checkout.machine and record["settings"]["torch_threads"] == 1
    assert not state.exists()
    assert os.listdir(checkout.results / Checkout.machine)


@pytest.mark.parametrize(("profile", "rounds"), [("standard", 1)])
def test_resume_is_of_the_same_run(checkout, profile, rounds):
    """Rounds of two profiles would be no run of either."""
    state = checkout.root / ".asv" / "runs" / Checkout.machine / "run.json"
    state.parent.mkdir(parents=True)
    record = {"profile": "quick", "toolchain": {"tag": "torch-1-numpy-1"}, "rounds": rounds}
    state.write_text(json.dumps(record), encoding="utf-8")
    done = checkout.run("scripts/run.py", *FAST, "--profile", profile, "--resume")
    assert "the interrupted run was quick on torch-1-numpy-1" in one_line(done)


@pytest.mark.parametrize("change", [{"cpu": "Another CPU"}, {"num_cpu": "1024"}])
def test_results_of_another_machine_are_not_mixed_with(change, tmp_path):
    """Two machines of one name would make a page of figures from both."""
    mine = {"machine": "box", "cpu": verb.installed.cpu_model(), "num_cpu": str(os.cpu_count()), "version": 1}
    known = tmp_path / "box" / "machine.json"
    known.parent.mkdir()
    verb.check_machine(known.parent)  # none yet
    known.write_text(json.dumps(mine), encoding="utf-8")
    verb.check_machine(known.parent)
    known.write_text(json.dumps({**mine, **change}), encoding="utf-8")
    with pytest.raises(verb.UserError, match="another machine .*--machine"):
        verb.check_machine(known.parent)
