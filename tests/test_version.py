"""A benchmark's version changes if and only if code that decides its figures changes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, answering, run

from benchmarks import version

CODE = '''\
"""What it is."""
import os


def measure(n):
    """Measure it."""
    total = 0  # of all
    for i in range(n):
        total += i
    return f"{total:>{n}} {os.sep!r}"
'''
SAME = {
    "comments": CODE.replace("  # of all", "").replace("import os", "# why\nimport os"),
    "docstrings": CODE.replace("What it is.", "What\n\nit was.").replace('    """Measure it."""\n', ""),
    "blank lines": CODE.replace("\n    return", "\n\n    return").replace("\n\n\n", "\n"),
    "a long line wrapped": CODE.replace("range(n)", "range(\n        n\n    )"),
}
OTHER = {
    "a number": CODE.replace("total = 0", "total = 1"),
    "a name": CODE.replace("range(n)", "range(os)"),
    "a string": CODE.replace("{total:>{n}} ", "{total:>{n}}, "),
    "a statement more": CODE.replace("return", "total += 1\n    return"),
    "an operator": CODE.replace("+=", "-="),
    "what is inside a loop": CODE.replace("    return", "        return"),
}


@pytest.mark.parametrize("change", SAME | OTHER)
def test_version_sees_what_computes_and_nothing_else(change):
    changed = (SAME | OTHER)[change]
    assert changed != CODE
    assert (version.bare(changed) == version.bare(CODE)) == (change in SAME)


VERSIONS = """
import json, os, sys
import torch  # once, for a second: what discovers the benchmarks of a checkout is forked from here
from asv_runner.discovery import disc_benchmarks
for line in sys.stdin:
    if os.fork() == 0:
        found = {}
        try:
            os.chdir(*json.loads(line))
            sys.path.insert(0, os.getcwd())
            found = {benchmark.name: benchmark.version for benchmark in disc_benchmarks("benchmarks")}
        finally:
            print(json.dumps(found), flush=True)
            os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """A function: a checkout -> the version of each of its benchmarks, found by another process."""
    with answering("-c", VERSIONS, home=tmp_path_factory.mktemp("home"), TZ="Asia/Tokyo", LC_ALL="C") as ask:
        yield lambda checkout: ask(str(checkout.root))


def begins(*names, but=()):
    return lambda name: name.startswith(names) and not name.startswith(but)


def timed(name):
    return ".track_" not in name


def sampled(name):
    """Whether a benchmark depends on a sample's length: timed ones, and ReadTooEarly, whose setup chooses samples."""
    return timed(name) or name == "transfer.ReadTooEarly.track_garbage"


DEVICE = ("link.Floor", "firsts.Context", "limits.Floor", "staging.PinnedBlock")  # benchmarks without a source array
MOVE = ("transfer.", "staging.", "busy.", "many.", "overlap.Hidden", "link.Limit", "link.Hardware", "settings.ReadBack")
PINNED, REGISTER = "firsts.PinnedMemory.timeit_register", "def timeit_register(self, nbytes):"
ROUTE = '    _to_torch("torch.from_numpy(a)", ALIAS'

# Change -> file, old text, new text, condition for the names of benchmarks that get a new version (None: no benchmark)
CHANGES = {
    "what writes the log": ("sampling_log.py", "def log(", "def noted(", None),
    "how skips are told": ("statement.py", "asv: skipped", "left out", None),
    "the length of a sample": ("timing.py", "SAMPLE_SECONDS = 0.0003", "SAMPLE_SECONDS = 0.0004", sampled),
    "what a probe is": ("probes.py", "def probe():", "def probe():\n    sum(range(9))", timed),
    "a layout": ("sources.py", "[::2]", "[1::2]", begins("layout.", "parallel.Layout")),
    "what fills arrays": ("sources.py", "TILE = 2**16", "TILE = 2**15", begins("", but=DEVICE)),
    "a size": ("sources.py", "SIZES = [8, ", "SIZES = [8, 64, ", None),
    "a route": ("routes.py", ROUTE, '    _to_torch("torch.from_numpy(+a)", COPY),\n' + ROUTE, None),
    "a title": ("casting.py", 'section = "Casting', 'section = "Changes of dtype', None),
    "how often it is run": ("conversion.py", "timeout = 300", "timeout = 400", None),
    "what a cold source is": ("cold.py", "ROTATED = 256", "ROTATED = 512", begins("cold.")),
    "one of several": ("firsts.py", REGISTER, REGISTER + "\n        1 + 1", PINNED.__eq__),
    "a setting": ("environment.py", "    NONE: Setting(", '    "A=1": Setting(str),\n    NONE: Setting(', None),
    "what settings are compared with": ("environment.py", '{"OMP_NUM_THREADS": "1", ', "{", begins("settings.")),
    "how instructions are counted": ("instructions.py", "REPEATS = 4", "REPEATS = 5", begins("instructions.")),
    "what moves": ("moving.py", "CHUNK = 4", "CHUNK = 8", begins(*MOVE, but=DEVICE)),
}


# Changes that give no benchmark a new version are made together: if one did, the test would fail
NONE = [change for change, (*_, decides) in CHANGES.items() if decides is None]


@pytest.mark.parametrize("changes", [NONE, *([change] for change in CHANGES if change not in NONE)], ids=", ".join)
def test_version_is_of_what_decides(changes, checkout, suite, versions):
    here = {name: made.version for name, made in suite.items()}
    assert all(re.fullmatch("[0-9a-f]{16}", version) for version in here.values()), "asv's own hash of the method"
    wanted = set()
    for file, old, new, decides in map(CHANGES.get, changes):
        path = checkout.root / "benchmarks" / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        wanted |= {name for name in here if decides is not None and decides(name)}
    found = versions(checkout)
    assert found.keys() == here.keys()
    assert {name for name in here if found[name] != here[name]} == wanted


def interpreter(version):
    """Return the path of a Python of that version, or None. A launcher without a Python behind it does not count."""
    managed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for found in (*map(str, managed), shutil.which(f"python{version}")):
        if found and subprocess.run([found, "-c", "0"], capture_output=True).returncode == 0:
            return found
    return None


SAID = """
import sys
from benchmarks import timing, version
print(version.version_of(timing.Timing(None, 1).take), version.bare(sys.argv[1]))
"""


@pytest.mark.parametrize("python", [f"3.{minor}" for minor in range(10, 16)])
def test_version_is_the_same_on(python, tmp_path):
    """Python 3.12 tokenizes f-strings differently. Versions must not depend on it, or histories would break."""
    other = interpreter(python)
    if other is None:
        pytest.skip(f"no Python {python} here")
    package = tmp_path / "benchmarks"  # without its __init__, which needs torch and asv
    package.mkdir()
    for name in ("version.py", "contracts.py", "timing.py", "probes.py"):
        shutil.copy(ROOT / "benchmarks" / name, package)
    theirs, ours = (run(one, "-c", SAID, CODE, home=tmp_path, cwd=tmp_path) for one in (other, sys.executable))
    assert re.fullmatch("[0-9a-f]{16} " + re.escape(version.bare(CODE)) + "\n", ours.stdout), ours.stderr
    assert theirs.stdout == ours.stdout, theirs.stderr
