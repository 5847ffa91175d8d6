"""scripts/track.py: a history from the first installation to the drift at the end, with failures on the way."""

import json
import re
import shutil
import sys
from unittest.mock import Mock

import psutil
import pytest
import report
import track
from analysis.results import load
from measuring import engine
from measuring.engine import Suite
from measuring.journal import Journal, Plan, coarse_to_fine
from store import files
from store.schema import Toolchain, with_samples
from tiny import RELEASES, WITHOUT_WHEEL, torch_wheel, wheel


def rounds(processes, torch):
    """Return the rounds of a toolchain's sessions in order of time. All its cells must have the same rounds."""
    cells = processes[processes["torch"] == f"{torch}+cu126"].groupby("cell", observed=True)
    (found,) = {tuple(cell["round"]) for _, cell in cells}
    return list(found)


def check_results(results, reason):
    """Check the processes of a history, and the cells of its release without a wheel."""
    assert rounds(results.processes, "1.13.1") == [0, 1, 0, 1], "two processes, and two again"
    assert rounds(results.processes, "2.1.0") == [0, 1]
    seconds = results.processes.groupby("torch", observed=True)["seconds"].median()
    assert list(seconds.index) == ["1.13.1+cu126", "2.0.1+cu126", "2.1.0+cu126", "2.3.0+cu126"]
    assert seconds["2.1.0+cu126"] > 1.5 * seconds["2.0.1+cu126"]
    lost = results.missing[results.missing["torch"] == WITHOUT_WHEEL]
    assert [*zip(lost["status"], lost["reason"])] == [("failed", reason)] * 4


def test_an_interrupted_history_is_resumed_and_filed_once(project, tmp_path, all_quiet):
    """A history is interrupted in the second round of the third release, and resumed."""
    command = ("--history", "torch", "--keep", "2", "--rounds", "2")
    running = project.start(sys.executable, "scripts/track.py", *command)
    state = project.root / ".asv" / "runs"
    assert "scripts/track.py --resume " in project.stop(running, lambda: list(state.glob("*/track/torch-2.1.0/0")))
    assert project.sessions() == {"torch-1.13.1": 1, "torch-2.3.0": 1}
    (place,) = state.glob("*/track/torch-2.1.0/0")
    first_round = engine.read_log(place)
    for left, more in ((5, ()), (3, ("--resume",))):
        planned = project.verb("track", *command, "--dry-run", *more).stdout
        assert re.match(rf"{left} of 5 toolchains on [\w-]+, about 2 min each, profile tracking, ", planned)
        assert planned.endswith(", at most 2 environments on disk (10 GB if torch includes CUDA)\n")
    wrong = project.verb("track", "--resume", "--history", "numpy", "--only", "x", "--again", code=2)
    assert wrong.stderr == (
        "track.py: the interrupted run had other options (--history, --only, --again): use --resume alone\n"
    )
    done = project.verb("track", "--resume", *command, code=2)
    text = done.stdout + done.stderr
    reason = f"No matching distribution found for torch==={WITHOUT_WHEEL}"
    ending = [f"torch-{WITHOUT_WHEEL} has no results: {reason}", "python scripts/track.py --resume tries those again"]
    assert text.splitlines()[-2:] == ending
    found = project.records()[""]
    sessions = {"torch-1.13.1": 2, "torch-2.0.1": 1, "torch-2.1.0": 1, f"torch-{WITHOUT_WHEEL}": 1, "torch-2.3.0": 1}
    assert project.sessions() == sessions
    reference = Toolchain("torch-1.13.1", "1.13.1+cu126", "1.26.4")
    first, _ = (record for record in found if record.toolchain == reference)
    paths = files.result_files(project.filed, suffix=files.MEASUREMENTS)
    taken = [line.seconds for path in paths for line in with_samples(files.read_measurements(path))]
    assert first_round and all(line.seconds in taken for line in first_round), "it was measured again"
    assert first.settings.torch == "1.13.1+cu126" and list(first.skipped) == ["not in torch 1"]
    assert [record.failed for record in found if record.failed] == [reason]
    assert len(project.environments) <= 2

    assert "results saved; no page: " in text, "pandas refuses the numpy of this suite"
    report.main(["--results", str(project.filed), "--output", str(tmp_path)])
    (page,) = (tmp_path / "history").glob("*/README.md")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    told = f"torch {WITHOUT_WHEEL} was not measured with Python {python}: {reason}."
    assert told in page.read_text(encoding="utf-8")

    check_results(load(project.filed), reason)

    # the missing wheel exists now: only its release and the reference are measured
    torch_wheel(project.wheels, WITHOUT_WHEEL)
    project.verb("track", "--resume", "--no-report")
    assert project.sessions() == {**sessions, "torch-1.13.1": 3, f"torch-{WITHOUT_WHEEL}": 2}


def test_next_release_is_installed_ahead(project, ledger_of, monkeypatch, capsys):
    """The install runs while instructions are counted, and must leave them the cores. It sets its own niceness, and its
    session's if Linux weighs sessions (autogroups)."""
    ledger_of(json.dumps(RELEASES))
    for name, value in project.variables.items():
        monkeypatch.setenv(name, value)
    nice, asked = psutil.Process.nice, []
    monkeypatch.setattr(psutil.Process, "nice", lambda process, value: asked.append(value) or nice(process, value))
    for tag in ("torch-2.1.0", f"torch-{WITHOUT_WHEEL}"):
        with Suite(project.root).install_ahead(tag):
            pass
    assert asked == [engine.INSTALL_NICENESS] * 2 and capsys.readouterr().out.startswith("torch-2.1.0: ")
    assert [name for name in project.environments if "torch-2.1.0" in name], "and who needs the other one says why"


BROKEN = {"torch/__init__.py": "raise ImportError('libcudart is missing')", "torch/version.py": "__version__='2.1.0'"}


def test_a_release_that_fails_keeps_its_older_results_and_stops_no_other(project, all_quiet):
    """One release fails to import torch, and the wheel of another no longer exists. Both keep their older results."""
    command = ("track", "--history", "torch", "--releases", "2.0.0,2.0.1,2.1.0", "--rounds", "1", "--no-report")
    project.verb(*command)
    before = project.results()
    wheel(project.wheels, "torch", "2.1.0", BROKEN)
    next(project.wheels.glob("torch-2.0.1-*")).unlink()
    shutil.rmtree(project.root / ".asv" / "env")
    said = project.verb(*command, code=2).stdout
    assert "ImportError: libcudart " in said and "torch-2.0.1 failed: " in said
    after = project.results()
    for tag in ("torch-2.1.0", "torch-2.0.1"):
        assert after[tag] == before[tag]
    assert rounds(load(project.filed).processes, "2.0.0") == [0, 0], "those of the last history, and no older ones"


@pytest.mark.parametrize(("index", "kept"), [("", False), (" (the package index did not answer)", True)])
def test_a_new_release_without_a_wheel_is_final_only_if_the_index_answered(monkeypatch, tmp_path, index, kept):
    failed = {f"torch-{WITHOUT_WHEEL}": f"No matching distribution found for torch==={WITHOUT_WHEEL}{index}"}
    monkeypatch.setattr(track, "start_runner", lambda *_: Mock(remaining=[], measure=lambda: failed))
    journal, plan = Journal(tmp_path / "new"), Plan("box", "tracking", "", 1)
    journal.save(plan)
    monkeypatch.setattr(
        track, "set_environment_limit", lambda requested: 1
    )  # it would change the environment of later tests
    assert track.track(Mock(new=True, dry_run=False), journal, plan) == 2
    assert bool(journal.plan()) == kept


@pytest.mark.parametrize(
    ("arguments", "tags"),
    [
        (("--history", "torch", "--since", "2.14"), ["torch-2.14.1", "torch-2.15.0"]),
        (("--releases", "2.13.0 torch-2.6.0,numpy-2.0.2"), ["torch-2.6.0", "torch-2.13.0", "numpy-2.0.2"]),
        (("--history", "torch", "--releases", "2.13.0, torch-2.6.0 2.6.0"), ["torch-2.6.0", "torch-2.13.0"]),
        (("--history", "numpy", "--releases", "1.24.0,2.0.2", "--since", "2"), ["numpy-2.0.2"]),
    ],
)
def test_options_choose_releases(arguments, tags):
    assert [toolchain.tag for toolchain in track.arguments(arguments).toolchains] == tags
    both = [toolchain.tag for toolchain in track.arguments(()).toolchains]
    assert both[0] == "torch-1.13.1" and "torch-2.15.0" in both and both.index("numpy-1.23.5") > 10


def test_releases_are_ordered_from_coarse_to_fine():
    assert coarse_to_fine(range(9)) == [0, 8, 4, 2, 6, 1, 5, 3, 7]
    assert coarse_to_fine(range(6)) == [0, 4, 2, 1, 5, 3]
    assert coarse_to_fine(["one"]) == ["one"]
