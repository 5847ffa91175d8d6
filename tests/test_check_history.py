"""scripts/check_history.py: how wide the intervals of a history are, and whether they hold what is measured again."""

import contextlib
import math
import re

import check_history
import numpy as np
import pytest
import resultfiles
from checking import repeated
from cli import UserError
from measuring.engine import RESULTS
from resultfiles import Bench, contract, conversion
from toolchains import ledger

pytestmark = pytest.mark.slow  # each builds two histories

KIB = 1024
SERIES = ledger.series("torch")[:8]
ROUTES = [f"route{number}(a)" for number in range(12)]


def write(root, seed, day, apart=0.01, counts=1.0):
    """Results of a history that was measured on that day of a month: ``apart`` is the deviation of its visits."""
    rng = np.random.default_rng(seed)
    logs = math.log(1e-6) + rng.normal(0, 0.002, (len(SERIES), len(ROUTES), 4))
    logs += rng.normal(0, apart, (len(SERIES), len(ROUTES), 1))
    for place, toolchain in enumerate(SERIES):
        times = {(route, 4 * KIB): list(np.exp(logs[place, k])) for k, route in enumerate(ROUTES)}
        counted = {(route, "float32", 4 * KIB): [counts * 1000.0 * (1 + k)] * 3 for k, route in enumerate(ROUTES)}
        params = {"route": ROUTES, "dtype": ["float32"], "nbytes": [4 * KIB]}
        contracts = [contract(route, "alias") for route in ROUTES]
        count = Bench("instructions.NumpyToTorch.track_instructions", params, counted, contracts, unit="instructions")
        made = {"tag": toolchain.tag, "torch": toolchain.torch, "numpy": toolchain.numpy}
        started = f"2026-11-{day:02d}T{10 + place:02d}:00:00+00:00"
        benches = [conversion(times, contracts), count]
        record = resultfiles.record(benches, toolchain=made, rounds=4, started=started, seconds=120.0)
        resultfiles.write(root, benches, records=[record], commit=toolchain.commit)
    return root


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Runs it on results of now and of a revision: exit code, and what it says."""

    def run(before=None, **now):
        monkeypatch.setattr(check_history, "RESULTS", write(tmp_path / "now", 1, 20, **now))
        monkeypatch.setattr(repeated, "RESULTS", tmp_path / "now")
        if before is not None:
            then = write(tmp_path / "then", 2, 19, **before)
            monkeypatch.setattr(repeated, "of_revision", lambda machine, name: contextlib.nullcontext(then))
        code = check_history.main(["box", *(["--before", "REV"] if before is not None else [])])
        return code, capsys.readouterr().out

    return run


def test_intervals_that_hold(check):
    code, said = check({})
    assert code == 0, said
    half = float(re.search(r"torch, alias: 96 points, ± ([\d.]+) %", said)[1])
    assert half == pytest.approx(100 * 1.96 * 0.02 / math.sqrt(2), rel=0.1), "what sessions differ by, nothing repeated"
    assert re.search(r"alias, 24.0 hours apart: 96 points differ by [\d.]+ % in the median, .* [\d.]+ % as both", said)
    assert "counts: 96 of 96 medians within 0.5 %, 0.0 % at most; 0 would be told as changes" in said
    assert "compared with themselves: 0 of 96 cells flagged" in said


def test_visits_that_differ_by_more_than_is_said(check):
    code, said = check({"apart": 0.06})
    (line,) = (line for line in said.splitlines() if line.startswith("alias, "))
    assert code == 1 and line.endswith("(promised: otherwise)")


def test_counts_that_are_others(check):
    code, said = check({"counts": 1.02})
    assert code == 1
    assert "counts: 0 of 96 medians within 0.5 %, 2.0 % at most; 96 would be told as changes (promised" in said


def test_intervals_that_are_too_wide(check, monkeypatch):
    monkeypatch.setattr("analysis.statistics.SESSION_SD", 0.05)
    code, said = check()
    assert code == 1 and re.search(r"torch, alias: .* \(promised: otherwise\)", said) and "apart" not in said


def test_the_same_visits_are_no_evidence(check, tmp_path, monkeypatch):
    check()
    monkeypatch.setattr(repeated, "of_revision", lambda machine, name: contextlib.nullcontext(tmp_path / "now"))
    with pytest.raises(UserError, match="no figure of box was measured at REV and again since"):
        check_history.main(["box", "--before", "REV"])


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["nobody"], "whose histories"),
        (["amd-epyc-milan-2-core-vm"], "no history of times"),
        (["amd-epyc-genoa-2-core-vm", "--before", "no-such"], "'no-such' is no revision"),
    ],
)
def test_one_line_says_what_is_wrong(arguments, why):
    with pytest.raises(UserError, match=why):
        check_history.main(arguments)


def test_results_of_a_revision_are_read_from_git(committed):
    machine = "amd-epyc-turin-2-core-vm"
    with repeated.of_revision(machine, "HEAD") as results:
        then, now = (repeated.histories(machine, place) for place in (results, RESULTS))
    assert list(then) == list(now)
    assert len(then["torch"][1].series) == len(now["torch"][1].series) > 100
