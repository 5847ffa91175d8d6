"""The short form of scripts/check_robust.py: a run killed and gone on with, two at once, a disk that fills up.

Its inputs are those of tests/test_fuzz.py.
"""

import re
from pathlib import Path

import check_robust
import pytest
from checking import robust


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="what runs on is found in /proc, which is not here")
def test_nothing_is_lost_or_left_running(capsys):
    code = check_robust.main(["--kills", "2", "--pairs", "1", "--disks", "1", "--inputs", "0"])
    told = capsys.readouterr().out
    tried = dict(re.findall(r"^(\w+) +(\d+) tried, +0 fell short$", told, re.MULTILINE))
    assert code == 0, told
    assert tried["kills"] == "2" and tried["pairs"] == "1"
    assert tried["disks"] == "1" or "a small disk cannot be mounted here" in told


def test_what_falls_short_is_said(monkeypatch, capsys):
    def attempt(copy, *more):
        raise robust.FellShort("something ran on")

    monkeypatch.setattr(robust, "pair", attempt)
    assert check_robust.main(["--kills", "0", "--pairs", "2", "--disks", "0", "--inputs", "0"]) == 1
    assert "pairs        2 tried,   2 fell short: something ran on" in capsys.readouterr().out
