"""The lock fails lint if and only if code that decides figures changes; names, comments and layout do not."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, run
from store.files import read_measurements, result_files, version_number

from benchmarks.core import versions

RESULTS = ROOT / "reports" / "results"


@pytest.fixture
def package(tmp_path):
    """A copy of the package benchmarks."""
    return shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture(scope="module")
def hashes():
    """Family -> its hash, of this checkout."""
    return versions.family_hashes(ROOT / "benchmarks")


def edit(package, name, *replacements):
    """Replace pattern by text in a module, wherever the module lies, and in every other module that is named by "*"."""
    for path in package.rglob(f"{name}.py"):
        text = path.read_text(encoding="utf-8")
        for pattern, new in replacements:
            text = re.sub(pattern, new, text)
        path.write_text(text, encoding="utf-8")


def changed_families(package, hashes):
    """Return the families whose hash differs from this checkout's."""
    now = versions.family_hashes(package)
    assert now.keys() == hashes.keys()
    return {family for family in hashes if now[family] != hashes[family]}


CODE = '''
import os
from .core import probes as fast

LIMIT = 3


def total(count, scale=2):
    """Add."""
    rest = 0  # of all
    for number in range(count):
        rest += number * scale
    return f"{rest:>{count}} {os.sep!r}", [cell for cell in "ab" if cell]


class _Base:
    title = "what it is"

    def prepare_all(self, values):
        self.held = total(count=len(values))


class Family(_Base):
    params = [1]

    def track_sum(self, n):
        self.prepare_all([n])
        try:
            return self.held, fast.excess(LIMIT), lambda x: x + n
        except ValueError as error:
            raise RuntimeError from error
'''
ALIKE = {
    "comments": [("  # of all", ""), ("import os", "# a comment\nimport os")],
    "docstrings": [('"""Add."""', '"""Add\n\n    all.\n    """')],
    "no docstring": [('    """Add."""\n', "")],
    "layout": [("\n    return f", "\n\n    return f"), (r"range\(count\)", "range(\n        count\n    )")],
    "annotations": [(r"def total\(count, scale=2\)", "def total(count: int, scale: int = 2) -> str")],
    "a local": [(r"\brest\b", "result"), (r"\bnumber\b", "i")],
    "a name in a comprehension": [(r"\bcell\b", "number")],
    "a parameter that a call names": [(r"\bcount\b", "size")],
    "a parameter of a lambda": [("lambda x: x", "lambda y: y")],
    "an exception's name": [(r"\berror\b", "problem")],
    "a helper": [(r"\btotal\b", "sum_up")],
    "a constant's name": [(r"\bLIMIT\b", "MOST")],
    "an alias": [(r" as fast\b", ""), (r"\bfast\b", "probes")],
    "a direct import": [("from .core import probes as fast", "from .core.probes import excess"), (r"fast\.", "")],
    "an alias of a library": [("import os", "from os import sep"), (r"os\.sep", "sep")],
    "a method": [("prepare_all", "make_ready")],
    "an attribute": [(r"self\.held", "self.values")],
    "a base class": [("_Base", "_Common")],
    "the order of definitions": [("LIMIT = 3\n", ""), (r"\nclass _Base", "\nLIMIT = 3\n\n\nclass _Base")],
    "two in one assignment": [("LIMIT = 3", "LIMIT, OTHER = 3, 4")],
    "a title": [("what it is", "what it was")],
    "parameter values": [(r"\[1\]", "[1, 2]")],
}
OTHER = {
    "a number": [("rest = 0", "rest = 1")],
    "a constant": [("LIMIT = 3", "LIMIT = 4")],
    "a default": [("scale=2", "scale=3")],
    "another name": [(r"range\(count\)", "range(scale)")],
    "a string": [("{rest:>{count}} ", "{rest:>{count}}, ")],
    "one statement more": [("    return f", "    rest += 1\n    return f")],
    "an operator": [(r"\+=", "-=")],
    "the depth of a statement": [("    return f", "        return f")],
    "another function of the package": [(r"fast\.excess", "fast.ready")],
    "another function of Python": [("len", "sum")],
    "another exception": [("ValueError", "TypeError")],
    "parameters swapped": [("count, scale=2", "scale, count=2")],
    "another keyword": [(r"total\(count=", "total(scale=")],
    "another attribute": [("return self.held", "return self.prepare_all")],
    "a call at import": [("LIMIT = 3", "LIMIT = 3\nos.nice(1)")],
}


@pytest.mark.parametrize("change", ALIKE | OTHER)
def test_hash_sees_what_computes_and_no_names(change, package):
    (package / "added.py").write_text(CODE, encoding="utf-8")
    (package / "added2.py").write_text(CODE, encoding="utf-8")
    edit(package, "added2", *(ALIKE | OTHER)[change])
    assert (package / "added2.py").read_text() != CODE
    hashes = versions.family_hashes(package)
    assert (hashes["added2.Family"] == hashes["added.Family"]) == (change in ALIKE)


RENAMED = {  # in several modules
    "a helper": ("samples_per_process", "sample_count"),
    "a constant": ("SAMPLE_SECONDS", "SHORTEST_SAMPLE"),
    "a method": ("take", "take_all"),
    "a class": ("Watch", "Guard"),
}


@pytest.mark.parametrize("change", RENAMED)
def test_a_better_name_in_the_timing_changes_no_version(change, package, hashes):
    name, better = RENAMED[change]
    edit(package, "*", (rf"\b{name}\b", better))
    assert better in "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    assert changed_families(package, hashes) == set()


def begins(*names, but=()):
    return lambda family: family.startswith(names) and not family.startswith(but)


UNTIMED = ("footprint.", "link.Hardware", "placement.Fresh", "semantics.", "staging.PinnedBlock")


def sampled(family):
    """Whether a family's hash covers the timing: those that are timed, or use the class of one."""
    return not family.startswith(UNTIMED)


# Families without a source array: without sources.py, and with it
DEVICE = ("link.Floor", "firsts.Context", "limits.Floor", "staging.PinnedBlock", "settings_pinned.")
MOVE = ("transfer.", "staging.", "busy.", "many.", "overlap.Hidden", "link.Limit", "link.Hardware", "settings.ReadBack")
REGISTER = r"def timeit_register\(self, nbytes\):"
ROUTE = r'    _to_torch\("torch.from_numpy\(a\)", ALIAS'

# Change -> module, pattern, new text, condition for the families that get a new hash (None: no family)
CHANGES = {
    "what writes the log": ("timing", r"def log\(", "def noted(", None),
    "how skips are told": ("statement", "asv: skipped", "left out", None),
    "a size": ("sources", r"SIZES = \[\s*8,", "SIZES = [8, 64,", None),
    "a route": ("routes", ROUTE, '    _to_torch("torch.from_numpy(+a)", COPY),\n' + ROUTE.replace("\\", ""), None),
    "a title": ("casting", 'section = "Casting', 'section = "Changes of dtype', None),
    "how often it is run": ("conversion", "timeout = 300", "timeout = 400", None),
    "a setting": ("environment", r"    NONE: Setting\(", '    "A=1": Setting(str),\n    NONE: Setting(', None),
    "the length of a sample": ("timing", "SAMPLE_SECONDS = 0.0003", "SAMPLE_SECONDS = 0.0004", sampled),
    "what a probe is": ("probes", r"def probe\(\):", "def probe():\n    sum(range(9))", sampled),
    "a layout": ("sources", r"\[::2\]", "[1::2]", begins("layout.", "parallel.Layout")),
    "what fills arrays": ("sources", r"TILE = 2\*\*16", "TILE = 2**15", begins("", but=DEVICE)),
    "torch's threads": ("sources", r"set_num_threads\(1\)", "set_num_threads(2)", begins("", but=DEVICE[:3])),
    "what a cold source is": ("cold", "ROTATED = 256", "ROTATED = 512", begins("cold.")),
    "one of several": ("firsts", REGISTER, REGISTER.replace("\\", "") + "\n        1 + 1", begins("firsts.Pinned")),
    "what settings are compared with": ("environment", '{"OMP_NUM_THREADS": "1", ', "{", begins("settings")),
    "how instructions are counted": ("instructions", "REPEATS = 4", "REPEATS = 5", begins("instructions.")),
    "what moves": ("moving", "CHUNK = 4", "CHUNK = 8", begins(*MOVE, but=DEVICE)),
}
# Changes of no hash are made together: if one did change a hash, the test would fail
NONE = [change for change, (*_, decides) in CHANGES.items() if decides is None]


@pytest.mark.parametrize("changes", [NONE, *([change] for change in CHANGES if change not in NONE)], ids=", ".join)
def test_hash_is_of_what_decides(changes, package, hashes):
    expected = set()
    for module, pattern, new, decides in map(CHANGES.get, changes):
        path = next(package.rglob(f"{module}.py"))
        assert re.search(pattern, path.read_text(encoding="utf-8"))
        edit(package, module, (pattern, lambda _, new=new: new))
        expected |= {family for family in hashes if decides is not None and decides(family)}
    assert changed_families(package, hashes) == expected


def lock_of(package):
    return versions.read(package / versions.LOCK)


def test_a_changed_constant_fails_until_the_lock_says_so(package, capsys):
    edit(package, "cold", ("ROTATED = 256", "ROTATED = 512"))
    before = lock_of(package)
    assert versions.main([], package) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines[:2]] == ["cold.NumpyToTorch", "cold.TorchToNumpy"]
    assert "--raise FAMILY" in lines[2] and "--record FAMILY REASON" in lines[3] and len(lines) == 5
    assert versions.main(["--raise", "cold.NumpyToTorch"], package) == 0
    assert versions.main([], package) == 1, "the other has changed, too"
    assert versions.main(["--record", "cold.*", "machines have\nsmaller caches"], package) == 0
    assert versions.main([], package) == 0
    raised, recorded = (lock_of(package)[f"cold.{name}"] for name in ("NumpyToTorch", "TorchToNumpy"))
    assert (raised.version, raised.reason) == (str(int(before["cold.NumpyToTorch"].version) + 1), "")
    assert (recorded.version, recorded.reason) == (before["cold.TorchToNumpy"].version, "machines have smaller caches")
    assert recorded.hash != before["cold.TorchToNumpy"].hash
    others = {family: entry for family, entry in lock_of(package).items() if not family.startswith("cold.")}
    assert others == {family: entry for family, entry in before.items() if not family.startswith("cold.")}


def test_a_family_that_the_lock_lacks_is_reported(package, capsys):
    (package / "added.py").write_text(CODE, encoding="utf-8")
    edit(package, "cold", ("class TorchToNumpy", "class Removed"))
    assert versions.main([], package) == 1
    error = capsys.readouterr().err
    for text in ("added.Family: is not in the lock", "cold.TorchToNumpy: is in the lock, and there is no such family"):
        assert text in error
    assert versions.main(["--raise", "*"], package) == 0 == versions.main([], package)
    assert lock_of(package)["added.Family"].version == "1" and "cold.TorchToNumpy" not in lock_of(package)
    assert versions.version_of("added.Family.track_sum") == versions.UNLOCKED


def test_a_record_needs_a_reason(package, capsys):
    with pytest.raises(SystemExit) as ended:
        versions.main(["--record", "*", " "], package)
    assert ended.value.code == 2 and "needs a reason" in capsys.readouterr().err


def test_asv_finds_the_families_of_the_lock(suite):
    assert {name.rpartition(".")[0] for name in suite} == versions.locked().keys()
    assert all(benchmark.version == versions.version_of(name) for name, benchmark in suite.items())


def test_hashes_from_before_the_lock_stand_for_versions():
    """Each is a version of one benchmark; a hash of other code stays, and is no version of today."""
    (path, *_) = result_files(RESULTS)
    lines = read_measurements(path)
    assert {line.version for line in lines if line.benchmark.startswith("conversion.")} == {"1"}
    assert version_number("cold.NumpyToTorch.timeit_convert", "ecd7edec77f39d2e") == "1"
    assert version_number("cold.TorchToNumpy.timeit_convert", "ecd7edec77f39d2e") == "ecd7edec77f39d2e"
    assert version_number("settings.Copies.track_kept", "b0eb51e7d019241a") == "b0eb51e7d019241a"


def test_committed_results_are_still_compared():
    from analysis.results import load

    results = load(RESULTS)
    cells = results.cells[~results.cells["benchmark"].str.endswith(".track_kept")]  # measured by other code
    assert len(cells) and not any(results.version_changes(cells))


def interpreter(version):
    """Return the path of a Python of that version, or None. A launcher without a Python behind it does not count."""
    managed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for found in (*map(str, managed), shutil.which(f"python{version}")):
        if found and subprocess.run([found, "-c", "0"], capture_output=True).returncode == 0:
            return found
    return None


HASHES = """
import sys
from pathlib import Path
from benchmarks.core.versions import family_hashes
print(*sorted(family_hashes(Path(sys.argv[1])).items()))
"""


@pytest.mark.parametrize("python", [f"3.{minor}" for minor in range(10, 16)])
def test_hash_is_the_same_on(python, package, hashes):
    """Syntax trees of Pythons differ. Hashes must not depend on it, or lint would fail on some."""
    other = interpreter(python)
    if other is None:
        pytest.skip(f"no Python {python} here")
    (package / "added.py").write_text(CODE, encoding="utf-8")
    theirs, ours = (run(one, "-c", HASHES, package, home=package) for one in (other, sys.executable))
    assert "'added.Family'" in ours.stdout, ours.stderr
    assert theirs.stdout == ours.stdout, theirs.stderr
