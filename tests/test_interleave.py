"""Both sides in turns: two processes per side, and a side that lacks asv; `check.py noise` plants a slowdown."""

import json
import re
import sys
import venv

import pytest
from analysis.comparison import compare_named
from analysis.verdicts import INCONCLUSIVE, Settings
from cli import RESULTS, UserError
from measuring import machine, plans
from measuring.engine import register
from measuring.profiles import exactly
from measuring.runner import Plan
from store import files
from tiny import RELEASES
from toolchains import selection


def test_patterns_name_exactly_the_cells():
    names = ["a.B.timeit_c('f(x)', 8)", "a.B.timeit_c('f(x)', 64)", "a.B.timeit_d"]
    found = exactly(names)
    others = ["a.B.timeit_c('f(x)', 80)", "a.B.timeit_dd", "xa.B.timeit_d"]
    assert len(found) == 2 and len(exactly([f"a.B.timeit_c({number})" for number in range(1200)])) == 3
    assert [cell for cell in names + others if any(re.search(pattern, cell) for pattern in found)] == names


# --- both sides -----------------------------------------------------------------------------------------------------


@pytest.fixture
def collected(project, ledger_of, tmp_path, monkeypatch, all_quiet):
    """A function: both sides of the tiny suite measured in turns, as --run does; the verdict."""

    def collect(targets, only, rounds):
        ledger_of(json.dumps(RELEASES))
        for module in (plans, machine):
            monkeypatch.setattr(module, "ROOT", project.root)
        for name, value in project.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(plans, "ROUNDS", rounds)
        monkeypatch.setattr(plans, "new_id", lambda: str(tmp_path / "run"))
        register("tester")
        chosen = [selection.target(str(target)) for target in targets]
        plan = Plan("tester", "tracking", only, rounds, command="test")
        base, new = plans.measure_sides(chosen, plan, lambda base, new: ([], 0))
        return compare_named(str(base), str(new), RESULTS, None, Settings())

    return collect


def test_both_sides_are_measured_in_turns(collected, tmp_path):
    """No verdict from two processes, but the collection is whole: same cells, pairs, records that belong together."""
    result = collected(["installed", sys.executable], r"'torch\.from_numpy\(a\)'.*, 4096\)", 2)
    assert result.interleaved and len(result.cells) == 1
    for side in ("base", "new"):
        (taken,) = (tmp_path / "run" / side).rglob(f"*{files.MEASUREMENTS}")
        assert {line["round"] for line in files.read_measurements(taken)} == {0, 1}
        assert set(result.cells[f"{side}_processes"]) == {2}
    assert result.base["toolchain"] == result.new["toolchain"]
    assert result.exit_code == 2 and set(result.cells["verdict"]) == {INCONCLUSIVE}


def test_a_side_that_cannot_measure_says_why(collected, tmp_path):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    with pytest.raises(UserError, match="base: .*asv") as caught:
        collected([tmp_path / "bare", "installed"], "", 1)
    assert len(str(caught.value).splitlines()) == 1
