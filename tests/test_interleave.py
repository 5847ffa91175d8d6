"""Both sides in turns, really: two processes a side, a side that lacks asv, a slowdown that is planted."""

import os
import re
import sys
import venv

import pytest
from analysis.pairs import compare_named
from analysis.verdicts import INCONCLUSIVE, SLOWER, Settings
from cli import UserError
from measuring import interleave
from measuring.engine import RESULTS, register
from measuring.journal import Plan
from measuring.profiles import exactly
from pages import comparison_words
from store import files
from toolchains import selection


def test_patterns_name_exactly_the_cells():
    names = ["a.B.timeit_c('f(x)', 8)", "a.B.timeit_c('f(x)', 64)", "a.B.timeit_d"]
    found = exactly(names)
    others = ["a.B.timeit_c('f(x)', 80)", "a.B.timeit_dd", "xa.B.timeit_d"]
    assert len(found) == 2
    assert [cell for cell in names + others if any(re.search(pattern, cell) for pattern in found)] == names


# --- the real thing --------------------------------------------------------------------------------------------------

PLANT = """
import importlib.util, sys, timeit

SHARE = 0.10  # of the route's own time, measured here

def plant(torch):
    import numpy
    original, a = torch.as_tensor, numpy.zeros(8)

    def slower(turns):
        extra = tuple(range(turns))
        def as_tensor(a):
            for _ in extra:
                pass
            return original(a)
        return as_tensor

    def seconds(function):
        names = {"function": function, "a": a}
        return min(timeit.repeat("function(a)", globals=names, number=20_000, repeat=7))

    goal, turns = (1 + SHARE) * seconds(original), 0
    while seconds(slower(turns)) < goal and turns < 1000:
        turns += 1
    torch.as_tensor = slower(turns)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            plant(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


def slower_python(directory):
    """A virtual environment with this one's packages, in which a wrapper makes torch.as_tensor 10 % slower."""
    venv.create(directory, with_pip=False, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site / "planted.pth").write_text("\n".join([*packages, "import planted"]) + "\n")
    (site / "planted.py").write_text(PLANT)
    return directory


def collected(monkeypatch, directory, targets, only, rounds):
    """Both sides measured in turns, as --run does; the verdict."""
    monkeypatch.setattr(interleave, "ROUNDS", rounds)
    monkeypatch.setattr(interleave, "new_id", lambda: str(directory))
    register("tester")
    chosen = [selection.target(str(target)) for target in targets]
    plan = Plan("tester", "standard", only, rounds, command="test")
    base, new = interleave.measure(chosen, plan, lambda base, new: ([], 0))
    return compare_named(str(base), str(new), RESULTS, None, Settings())


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_both_sides_are_measured_in_turns(tmp_path, home, monkeypatch):
    """No verdict from two processes, but the collection is whole: same cells, pairs, records that belong together."""
    result = collected(
        monkeypatch,
        tmp_path,
        ["installed", sys.executable],
        r"conversion.NumpyToTorch.*'torch\.from_numpy\(a\)'.*, 8\)",
        2,
    )
    assert result.interleaved and len(result.cells) == 1
    for side in ("base", "new"):  # how many of them were calm is the machine's business
        (taken,) = (tmp_path / side).rglob(f"*{files.MEASUREMENTS}")
        assert {line["round"] for line in files.read_measurements(taken)} >= {0, 1}
        assert set(result.cells[f"{side}_processes"]) <= {1, 2, 3, 4}  # rounds more of what was not calm, at most two
    assert result.base["toolchain"] == result.new["toolchain"]
    assert result.exit_code == 2 and set(result.cells["verdict"]) == {INCONCLUSIVE}


def test_a_side_that_cannot_measure_says_why(tmp_path, home, monkeypatch):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    with pytest.raises(UserError, match="base: .*asv") as caught:
        collected(monkeypatch, tmp_path / "run", [tmp_path / "bare", "installed"], "", 1)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.skipif("TIMED_TESTS" not in os.environ, reason="times for a minute on a quiet machine: set TIMED_TESTS=1")
def test_a_planted_slowdown_is_found_with_four_processes(tmp_path, home, monkeypatch):
    """Three alias routes at four sizes, one of the routes 10 % slower by a wrapper: it is found, and nothing else."""
    only = r"NumpyToTorch.*'torch\.(from_numpy|as_tensor|asarray)\(a\)', 'float32', (8|4096|65536|1048576)\)"
    result = collected(
        monkeypatch, tmp_path / "run", ["installed", slower_python(tmp_path / "slower")], only, interleave.ROUNDS
    )
    assert result.interleaved and len(result.cells) == 12 and set(result.cells["base_processes"]) == {4}
    slower = result.cells[result.cells["verdict"] == SLOWER]
    told = comparison_words.text(result, True)
    print(told)
    assert set(slower["route"]) == {"torch.as_tensor(a)"}, told
    assert result.exit_code == 1
