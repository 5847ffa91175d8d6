"""Both sides in turns: who goes when, what gets more rounds, and the real thing."""

import os
import re
import sys
import venv
from types import SimpleNamespace

import pytest
from analysis import statistics
from analysis.pairs import compare_named
from analysis.verdicts import INCONCLUSIVE, SLOWER, Settings
from cli import UserError
from measuring import interleave
from measuring.engine import RESULTS
from pages import comparison_words
from store import files
from toolchains import selection


def test_sides_take_turns():
    assert [interleave.order(number) for number in range(3)] == [(0, 1), (1, 0), (0, 1)]


class Pretended:
    """A side whose processes are calm in the rounds that ``rounds`` gives for a cell."""

    def __init__(self, name, rounds):
        self.name, self.rounds, self.jobs, self.patterns = name, rounds, [], []

    def ask(self, **job):
        self.patterns += [job["patterns"]] if job["do"] == "round" else []
        self.jobs.append((job["do"], job.get("number"), job.get("cells")))
        taken = [number for do, number, _ in self.jobs if do == "round"]
        if job["do"] == "quiet":
            return {cell: [number for number in taken if number in calm] for cell, calm in self.rounds.items()}


def test_cells_that_lack_pairs_get_more_rounds_on_both_sides(monkeypatch):
    every = range(8)
    base = Pretended("base", {"a": every, "b": [1, 2, 3, 4, 5], "never": []})
    new = Pretended("new", {"a": every, "b": [0, 1, 2, 4, 5], "never": every})
    done = []
    monkeypatch.setattr(interleave, "time", SimpleNamespace(monotonic=lambda: 0.0))
    interleave.collect((base, new), ["a", "b", "never"], 4, {"machine": "box"}, done.append)
    wanted = [*[("round", number, 3) for number in range(4)], ("round", 4, 1), ("round", 5, 1)]
    for side in (base, new):
        assert [job for job in side.jobs if job[0] == "round"] == wanted, "b has four pairs then: 1, 2, 4 and 5"
        assert side.jobs[-1][0] == "finish"
    assert done == [3 * k for k in range(1, 9)]
    assert interleave.ENOUGH == statistics.MIN_PROCESSES


def test_more_rounds_end_in_time(monkeypatch):
    """What finds no pair takes half as long again as the rounds did, and a round at most."""
    clock = iter([0, 100, 110, 140, 160])  # begun, after the rounds, before each of the others
    monkeypatch.setattr(interleave, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    sides = Pretended("base", {"a": range(0, 20, 2)}), Pretended("new", {"a": range(1, 20, 2)})
    interleave.collect(sides, ["a"], 4, {"machine": "box"}, lambda done: None)
    assert sum(do == "round" for do, _, _ in sides[0].jobs) == 6


def test_counts_are_taken_once_on_each_side():
    sides = [Pretended(name, {"a.A.timeit_b": range(8)}) for name in ("base", "new")]
    interleave.collect(sides, ["a.A.timeit_b"], 4, {"machine": "box"}, lambda done: None, ["a.A.track_c"])
    for side in sides:
        assert [any("track_c" in pattern for pattern in found) for found in side.patterns] == [True] + 3 * [False]
    interleave.collect(sides, [], 4, {"machine": "box"}, lambda done: None, ["a.A.track_c"])
    assert [len(side.patterns) for side in sides] == [5, 5], "counts alone take one round"


def test_patterns_name_exactly_the_cells():
    names = ["a.B.timeit_c('f(x)', 8)", "a.B.timeit_c('f(x)', 64)", "a.B.timeit_d"]
    found = interleave.exactly(names)
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


def collected(directory, targets, only, rounds):
    """Both sides measured in turns, as --run does; the verdict."""
    sides = interleave.prepare(directory, [selection.target(str(target)) for target in targets])
    found, counted = interleave.cells_to_measure(sides[0], "tester", "standard", only)
    assert not counted
    about = {"id": "1", "stage": 1, "machine": "tester", "profile": "standard", "only": only, "command": "test"}
    done = []
    interleave.collect(sides, found, rounds, about, done.append)
    assert done == [len(found) * k for k in range(1, 2 * rounds + 1)]
    return compare_named(str(sides[0].root), str(sides[1].root), RESULTS, None, Settings())


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_both_sides_are_measured_in_turns(tmp_path, home):
    """No verdict from two processes, but the collection is whole: same cells, pairs, records that belong together."""
    result = collected(
        tmp_path, ["installed", sys.executable], r"conversion.NumpyToTorch.*'torch\.from_numpy\(a\)'.*, 8\)", 2
    )
    assert result.interleaved and len(result.cells) == 1
    for side in ("base", "new"):  # how many of them were calm is the machine's business
        (taken,) = (tmp_path / side).rglob(f"*{files.MEASUREMENTS}")
        assert {line["round"] for line in files.read_measurements(taken)} >= {0, 1}
        assert set(result.cells[f"{side}_processes"]) <= {1, 2, 3, 4}  # rounds more of what was not calm, at most two
    assert result.base["toolchain"] == result.new["toolchain"]
    assert result.exit_code == 2 and set(result.cells["verdict"]) == {INCONCLUSIVE}


def test_a_side_that_cannot_measure_says_why(tmp_path, home):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    with pytest.raises(UserError, match="base: .*asv") as caught:
        collected(tmp_path / "run", [tmp_path / "bare", "installed"], "", 1)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.skipif("TIMED_TESTS" not in os.environ, reason="times for a minute on a quiet machine: set TIMED_TESTS=1")
def test_a_planted_slowdown_is_found_with_four_processes(tmp_path, home):
    """Three alias routes at four sizes, one of the routes 10 % slower by a wrapper: it is found, and nothing else."""
    only = r"NumpyToTorch.*'torch\.(from_numpy|as_tensor|asarray)\(a\)', 'float32', (8|4096|65536|1048576)\)"
    result = collected(tmp_path / "run", ["installed", slower_python(tmp_path / "slower")], only, interleave.ROUNDS)
    assert result.interleaved and len(result.cells) == 12 and set(result.cells["base_processes"]) == {4}
    slower = result.cells[result.cells["verdict"] == SLOWER]
    told = comparison_words.text(result, True)
    print(told)
    assert set(slower["route"]) == {"torch.as_tensor(a)"}, told
    assert result.exit_code == 1
