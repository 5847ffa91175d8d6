"""check.py history: what two histories of the same toolchains say of each other, made up and committed."""

import math

import numpy as np
import pytest
from checking import history as checked
from cli import UserError
from test_history import SERIES, counting, logs_of, write

pytestmark = pytest.mark.slow  # builds histories


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Runs it on results of now and of a revision, whose logs it is given: exit code, and what it says."""

    def run(now, before, counts=1.0):
        monkeypatch.setattr(checked, "RESULTS", write(tmp_path / "now", now, extra=counting(lambda *_: counts)))
        then = write(tmp_path / "then", before, extra=counting(lambda *_: 1.0))
        monkeypatch.setattr(checked, "histories_at", lambda machine, name: checked.histories(machine, then))
        code = checked.main(["box", "--before", "REV"])
        return code, capsys.readouterr().out

    return run


def changed(seed, at=5):
    """Ten calls that a release makes 10 % slower, and sessions that differ as usual."""
    logs = logs_of(seed, len(SERIES)) + np.random.default_rng(seed).normal(0, 0.005, (len(SERIES), 12, 1))
    logs[at:, :10] += math.log(1.1)
    return logs


def test_what_repeats(check, snapshot):
    code, said = check(changed(60), changed(61))
    assert (code, said) == (0, snapshot)


def test_what_does_not_repeat(check, snapshot):
    code, said = check(changed(62), changed(63, at=9), counts=1.02)
    assert (code, said) == (1, snapshot)


def test_sessions_that_differ_by_more_than_is_said(check):
    rng = np.random.default_rng(64)
    wild = changed(65) + rng.normal(0, 0.05, (len(SERIES), 12, 1))
    code, said = check(changed(66), wild)
    failed = [line.partition(":")[0] for line in said.splitlines() if line.endswith(")") and "promised" in line]
    assert code == 1 and "copy" in failed


def test_results_of_a_revision_are_read_from_git(committed, monkeypatch):
    def held(machine, place):
        every = [place / "benchmarks.json", *(place / machine).glob("*")]
        return {path.relative_to(place): path.read_bytes() for path in every}

    machine = "amd-epyc-genoa-2-core-vm"
    monkeypatch.setattr(checked, "histories", held)
    assert checked.histories_at(machine, "HEAD") == held(machine, committed / "reports" / "results")
    with pytest.raises(UserError, match="no-such: no git revision"):
        checked.histories_at(machine, "no-such")
