"""Toolchains as commits: the same hash everywhere, whatever else is in the ledger; what is installed, without torch."""

import json
import os
import platform
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from conftest import ROOT, environment, run
from toolchains import environments, ledger
from toolchains.ledger import Toolchain

LINE = [
    Toolchain("1.13.1+cpu", "1.23.5"),
    Toolchain("2.0.0+cpu", "1.26.4"),
    Toolchain("2.9.0+cpu", "2.4.6"),
    Toolchain("2.13.0+cpu", "2.4.6"),
]
ODD = [
    Toolchain("2.14.0.dev20260801+cu130", "2.5.0rc1"),
    Toolchain("2.13.0a0+gitcf30153", "2.4.6"),
    Toolchain("2.12.1+rocm6.4", "2.4.6.dev0+g12ab"),
]
RELEASED = re.compile(r"(torch|numpy)-\d+\.\d+\.\d+")  # tags of the histories
RECORDED = "d73633b3f99f86e7271e873e3ea35e90abb86b13"  # of the last of LINE, as in reports/results


def git(path, *arguments):
    return ledger._git(path, *arguments).strip()


def made(path, line=LINE):
    """Toolchain -> its commit in a ledger of these toolchains, as git has it."""
    ledger.make(path, line)
    return {toolchain: git(path, "rev-parse", f"refs/tags/{toolchain.tag}") for toolchain in line}


# Ledger -------------------------------------------------------------------------------------------------------------

MAKE = """
import sys
from pathlib import Path
from toolchains import ledger
line = [ledger.Toolchain(*pair.split()) for pair in sys.argv[2:]]
ledger.make(Path(sys.argv[1]), line)
print(*(ledger._git(Path(sys.argv[1]), "rev-parse", f"refs/tags/{toolchain.tag}").strip() for toolchain in line))
"""
GITCONFIG = """
[user]
name = Somebody Else
email = else@where.invalid
[init]
defaultBranch = trunk
defaultObjectFormat = sha256
[core]
autocrlf = true
hooksPath = ~/hooks
[commit]
gpgsign = true
"""


def test_commits_are_known_without_git_in_order_dated_and_for_ever(tmp_path):
    """asv walks the branch from its end; results that are published name commits."""
    path, every = tmp_path / "ledger", [*LINE, *ODD, Toolchain("2.13.0+cpu", "2.4.6 (mine)")]
    hashes = made(path, [*every, LINE[0]])
    assert hashes[LINE[-1]] == RECORDED and hashes == {toolchain: toolchain.commit for toolchain in every}
    asked = git(path, "log", "--format=%H %as %s", ledger.OUTSIDE).splitlines()[::-1]
    assert asked == [f"{each.commit} {each.date} {each}" for each in every]
    assert [each.date for each in (LINE[0], LINE[-1], *ODD[:2])] == [
        "2022-12-15",
        "2026-07-08",
        "2026-08-01",  # a nightly's own day
        ledger.UNKNOWN_DATE,
    ]
    for each in every:
        assert re.fullmatch(r"torch-[\w.+-]+-numpy-[\w.+-]+", each.tag), "it can be typed"
        held = json.loads(git(path, "show", f"{each.tag}:toolchain.json"))
        assert held == {"torch": each.torch, "numpy": each.numpy} and ledger.find(each.commit) is None
    assert {tag for tag in git(path, "tag").split() if not RELEASED.fullmatch(tag)} == {each.tag for each in every}


def test_ledger_leaves_a_surrounding_repository_alone_and_is_not_disturbed_by_it(tmp_path, monkeypatch):
    """git runs hooks, and so perhaps these tests, with GIT_DIR set; bare repositories may be distrusted, and a checkout
    may belong to another user."""
    around, path = tmp_path / "around", tmp_path / "ledger"
    subprocess.run(["git", "init", "--quiet", str(around)], check=True, env=environment(tmp_path))
    settings = tmp_path / "gitconfig"
    settings.write_text("[safe]\n\tbareRepository = explicit\n", encoding="utf-8")
    values = {"GIT_DIR": around / ".git", "GIT_INDEX_FILE": around / ".git" / "index", "GIT_CONFIG_GLOBAL": settings}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    made(path)
    cleaned = ledger.git_environment(os.environ) | {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}  # git's own tests do so
    asked = subprocess.run(["git", "-C", str(path), "rev-parse", "torch"], env=cleaned, capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
    monkeypatch.delenv("GIT_DIR")
    assert not subprocess.run(["git", "-C", str(around), "tag"], capture_output=True, text=True, check=True).stdout


def test_made_anew_only_on_change(tmp_path):
    path = tmp_path / "ledger"
    made(path)
    before, place = (path / "stream").stat().st_ino, path.stat().st_ino
    made(path)
    assert (path / "stream").stat().st_ino == before
    made(path, [*LINE, *ODD])
    assert (path / "stream").stat().st_ino != before and path.stat().st_ino == place, "others may be asking it"
    assert sorted(left.name for left in tmp_path.iterdir()) == ["ledger", "ledger.lock"]


# Histories ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ledger.PACKAGES)
def test_releases_are_dated_and_in_order(package):
    released = json.loads(ledger.RELEASES.read_text(encoding="utf-8"))[package]
    versions = [tuple(map(int, version.split("."))) for version in released]
    assert versions == sorted(versions)
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", date) for date in released.values())
    if package == "torch":  # a patch of numpy's may come after the next minor release
        assert all(first < second for first, second in pairwise(released.values()))


@pytest.mark.parametrize("package", ledger.PACKAGES)
def test_history_is_the_releases_of_one_package(package, tmp_path):
    ledger.make(tmp_path / "ledger")
    line = ledger.history(package)
    log = git(tmp_path / "ledger", "log", "--first-parent", "--format=%H %as %s", package).splitlines()[::-1]
    assert log == [f"{toolchain.commit} {toolchain.date} {toolchain}" for toolchain in line]
    other = "numpy" if package == "torch" else "torch"
    held = json.loads(ledger.RELEASES.read_text(encoding="utf-8"))["held"][other]
    assert {getattr(toolchain, other) for toolchain in line} == {held}


@pytest.mark.parametrize("package", ledger.PACKAGES)
def test_ranges_are_of_releases(package, tmp_path):
    """Dates go back and forth between numpy's branches, which git's limited walks do not promise to survive."""
    ledger.make(tmp_path / "ledger")
    line = ledger.history(package)
    for first, last in ((0, 1), (0, -1), (3, 9), (8, -1), (-2, -1)):
        span = f"{line[first].tag}..{line[last].tag}"
        found = git(tmp_path / "ledger", "rev-list", "--first-parent", span, "--").split()
        assert found == [each.commit for each in line[first + 1 : line.index(line[last]) + 1] or line[-1:]][::-1]


def test_insertion_of_a_release_keeps_the_other_hashes(tmp_path, monkeypatch):
    """A release that was forgotten, and one that comes, change no other's commit."""
    before = {toolchain.tag: toolchain.commit for package in ledger.PACKAGES for toolchain in ledger.history(package)}
    releases = json.loads(ledger.RELEASES.read_text(encoding="utf-8"))
    releases["torch"].update({"2.6.1": "2025-02-20", "2.99.0": "2027-01-01"})
    changed = tmp_path / "releases.json"
    changed.write_text(json.dumps(releases), encoding="utf-8")
    monkeypatch.setattr(ledger, "RELEASES", changed)
    caches = (ledger._releases, ledger.history)
    for cache in caches:
        cache.cache_clear()
    try:
        ledger.make(tmp_path / "ledger")
        tags = git(tmp_path / "ledger", "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/tags")
    finally:
        for cache in caches:
            cache.cache_clear()
    after = dict(line.split() for line in tags.splitlines())
    assert set(after) - set(before) == {"torch-2.6.1", "torch-2.99.0"}
    assert {tag: after[tag] for tag in before} == before
    order = git(tmp_path / "ledger", "log", "--format=%s", "torch-2.6.0^..torch-2.7.0").splitlines()
    assert [line.split()[1] for line in order] == ["2.7.0", "2.6.1", "2.6.0"]


def test_series_is_the_last_patch_of_every_minor_release():
    found = [[toolchain.version for toolchain in ledger.series(package)][:4] for package in ledger.PACKAGES]
    assert found == [["1.13.1", "2.0.1", "2.1.2", "2.2.2"], ["1.23.5", "1.24.4", "1.25.2", "1.26.4"]]


@pytest.mark.parametrize(
    ("torch", "numpy", "from_index", "tag"),
    [
        ("2.6.0+cu124", "1.26.4", True, "torch-2.6.0"),
        ("2.6.0+cpu", "1.26.4", False, "torch-2.6.0+cpu-numpy-1.26.4"),
        ("2.13.0+cu130", "2.4.6", True, "numpy-2.4.6"),
        ("2.13.0+cpu", "2.4.6", False, "torch-2.13.0+cpu-numpy-2.4.6"),
        ("2.6.0+cu124", "2.0.2", True, "torch-2.6.0+cu124-numpy-2.0.2"),
    ],
)
def test_installed_pair_of_a_history_is_filed_there(torch, numpy, from_index, tag):
    """Same releases and same build: the package index's, whichever variant that is on a platform."""
    found = ledger.identify(torch, numpy, from_index)
    assert found.tag == tag
    if from_index and found.history:
        assert found.commit in {toolchain.commit for toolchain in ledger.history(found.history)}
    assert str(found) == f"torch {torch} with numpy {numpy}", "the record keeps the variant"


def test_what_is_here_is_a_reference_of_its_own(tmp_path):
    """It may be on any of the three branches."""
    for here in (Toolchain("2.6.0+cu124", "1.26.4", "torch"), LINE[0]):
        ledger.make(tmp_path / "ledger", [LINE[1]], here)
        assert git(tmp_path / "ledger", "rev-parse", f"{ledger.HERE}^{{commit}}") == here.commit
        assert LINE[1].commit in git(tmp_path / "ledger", "rev-list", ledger.OUTSIDE).split()


# What is installed --------------------------------------------------------------------------------------------------

ASK = (
    "import sys; from toolchains import environments; "
    "print(environments.toolchain().torch); sys.exit('torch' in sys.modules)"
)


@pytest.mark.parametrize(
    ("build", "version"),
    [
        ("__version__ = '2.13.0+cu130'; cuda = '13.0'", "2.13.0+cu130"),
        ("__version__ = '2.13.0'; cuda = '13.0'; hip = None", "2.13.0+cu130"),
        ("__version__ = '2.13.0'; cuda = None; hip = '6.4.43482'", "2.13.0+rocm6443482"),
        ("__version__ = '2.13.0'; cuda = None; hip = None; xpu = '20250101'", "2.13.0+xpu20250101"),
        ("__version__ = '2.13.0'; cuda = None; hip = None", "2.13.0+cpu"),
        ("__version__ = '1.13.1'", "1.13.1+cpu"),
    ],
)
def test_build_variant(build, version, tmp_path):
    """A CUDA wheel and a CPU wheel of one release are two toolchains; the package's metadata may say the same."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemError('imported')", encoding="utf-8")
    (package / "version.py").write_text(build, encoding="utf-8")
    done = run(sys.executable, "-c", ASK, home=tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}/scripts:{ROOT}")
    assert (done.stdout.strip(), done.returncode) == (version, 0), done.stderr


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("AMD EPYC 9654 96-Core Processor", "amd-epyc-9654-96-core-8-cores"),
        ("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "intel-xeon-e5-2686-v4-8-cores"),
        ("Apple M2 Pro", "apple-m2-pro-8-cores"),
    ],
)
def test_machine_name_is_of_the_hardware(model, name, monkeypatch):
    monkeypatch.setattr(environments, "cpu_model", lambda: model)
    found = environments.machine_name(8)
    assert found == name
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", found), "run.py --machine would refuse it"


def test_machine_name_is_not_the_host_s():
    host = platform.node().lower()
    assert len(host) < 4 or host not in environments.machine_name(2)


# Plugin -------------------------------------------------------------------------------------------------------------


def test_recorded_toolchains_are_in_order_of_release(tmp_path):
    pytest.importorskip("asv")
    from toolchains import plugin

    for machine, toolchains in (("one", [LINE[3], LINE[0]]), ("two", [LINE[0], LINE[2]])):
        (tmp_path / machine).mkdir()
        lines = [json.dumps({"toolchain": {"torch": t.torch, "numpy": t.numpy, "tag": t.tag}}) for t in toolchains]
        (tmp_path / machine / "x.jsonl").write_text("\n".join([*lines, "{broken", "{}"]) + "\n", encoding="utf-8")
    assert plugin.recorded(tmp_path) == [LINE[0], LINE[2], LINE[3]]
    assert plugin.recorded(tmp_path / "nothing") == []


POISON = ["2..0", "", "\ud800", "2.0\n", "2" * 5000, "2." * 100, [], None, "ａ", "2.0.lock", "../2.0", "2.0 ", "\x00"]
POISON += ["2.0\x1b[31m", {"a": 1}, 2.0, "Ｋ", "2.0@{0}"]
NO_DAYS = ["2.14.0.dev20269999", "2.14.0.dev20250230"]


@pytest.mark.parametrize(("name", "versions"), [("torch", [*NO_DAYS, *POISON]), ("numpy", POISON)])
def test_one_poisoned_record_stops_nobody(name, versions, tmp_path, caplog):
    """It is left out, and its file is named; the ledger is made of all the others."""
    pytest.importorskip("asv")
    from toolchains import plugin

    good = {"tag": LINE[0].tag, "torch": LINE[0].torch, "numpy": LINE[0].numpy}
    (tmp_path / "box").mkdir()
    for number, version in enumerate(versions):
        made = {"torch": "2.0", "numpy": "1.26", name: version}
        made["tag"] = f"torch-{made['torch']}-numpy-{made['numpy']}"
        lines = [json.dumps({"toolchain": one}) + "\n" for one in (made, good)]
        (tmp_path / "box" / f"{number}.jsonl").write_text("".join(lines))
    (tmp_path / "box" / "binary.jsonl").write_bytes(bytes(range(256)))
    (tmp_path / "box" / "loop.jsonl").symlink_to("loop.jsonl")
    toolchains = plugin.recorded(tmp_path)
    assert toolchains == [LINE[0]]
    assert all(f"box/{number}.jsonl: left out" in caplog.text for number in range(len(versions)))
    assert "\x1b[31" not in caplog.text
    ledger.make(tmp_path / "ledger", toolchains)


# Environments -------------------------------------------------------------------------------------------------------


def test_least_recently_used_environments_go_first(tmp_path):
    for age, name in enumerate(["c", "a", "d", "b"]):
        path = tmp_path / f"py3-torch-{name}"
        path.mkdir()
        (path / environments.READY).touch()
        os.utime(path / environments.READY, (1e9 - age, 1e9 - age))
    (tmp_path / "py3-torch-half-made").mkdir()
    (tmp_path / "another").mkdir()
    environments.clean_up(tmp_path, 2)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"py3-torch-c", "py3-torch-a", "another"}


OTHER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from toolchains import environments
from toolchains.ledger import Toolchain

def install(environment, toolchain, seconds):
    environment.mkdir()
    print("installing", flush=True)
    time.sleep(float(sys.argv[3]))
    (environments.python(environment).parent).mkdir()
    environments.python(environment).touch()

environments._install = install
environments.prepare(Path(sys.argv[2]), Toolchain("2.0.0+cpu", "1.26.4"), 1, 30)
print("ready", flush=True)
sys.stdin.read()
"""


def other(root, seconds=0.0):
    """Another process, which installs torch 2.0.0 if it is not there, and uses it until its input ends."""
    command = [sys.executable, "-c", OTHER, str(ROOT / "scripts"), str(root), str(seconds)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_nobody_removes_what_another_process_installs_or_uses(tmp_path):
    environment = environments.directory(tmp_path, LINE[1])
    first = other(tmp_path, seconds=1.0)
    assert first.stdout.readline() == "installing\n"
    assert environments.clean_up(tmp_path, 0) == [] and environment.is_dir(), "half made, but not a wreck"
    second = other(tmp_path)
    assert second.stdout.readline() == "ready\n", "it waited, and did not install once more"
    assert first.stdout.readline() == "ready\n"
    for process in (first, second):
        assert environments.clean_up(tmp_path, 0) == [] and environments.is_ready(environment)
        process.communicate("")
    assert environments.clean_up(tmp_path, 0) == [environment] and not environment.exists()


def test_a_process_that_was_killed_uses_nothing(tmp_path):
    process = other(tmp_path)
    assert [process.stdout.readline() for _ in range(2)] == ["installing\n", "ready\n"]
    process.kill()
    process.communicate()
    assert environments.clean_up(tmp_path, 0) == [environments.directory(tmp_path, LINE[1])]


def test_a_lock_that_is_held_for_too_long_is_said(tmp_path):
    process = other(tmp_path, seconds=20.0)
    assert process.stdout.readline() == "installing\n"
    with pytest.raises(environments.InstallError, match="another process has been installing it for 0 s"):
        environments.prepare(tmp_path, LINE[1], 1, 0.1)
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "ERROR: Ignored the following versions that require a different python version: 1.2\n"
            "ERROR: Could not find a version that satisfies the requirement torch===9.9 (from versions: 1.0, 2.0)\n"
            "ERROR: No matching distribution found for torch===9.9\n",
            "No matching distribution found for torch===9.9",
        ),
        (
            "ERROR: Cannot install numpy==1 and torch===2 because these package versions have conflicting "
            "dependencies.\nERROR: ResolutionImpossible: for help visit https://pip.invalid/en/latest\n",
            "Cannot install numpy==1 and torch===2 because these package versions have conflicting dependencies.",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device: '/home/me/x'\n",
            "Could not install packages due to an OSError: [Errno 28] No space left on device:",
        ),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n"
            "ERROR: No matching distribution found for torch===2.6.0\n",
            "No matching distribution found for torch===2.6.0 (the package index did not answer)",
        ),
        (
            "INFO: pip is looking at multiple versions\n\nThe conflict is caused by:\n"
            "    The user requested torch===2.15.0\n"
            "    The user requested (constraint) torch<=2.14.1\n\nERROR: Cannot install torch===2.15.0 because these "
            "package versions have conflicting dependencies.\nERROR: ResolutionImpossible: for help visit x\n",
            "Cannot install torch===2.15.0 because these package versions have conflicting dependencies. "
            "(pip's own settings hold it to torch<=2.14.1: see pip config list)",
        ),
        ("Killed\n", "Killed"),
        ("", "it said nothing"),
    ],
)
def test_pip_s_reason_is_one_line(output, reason):
    assert environments.reason(output) == reason


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 1, "box": 3}'])
def test_a_broken_file_of_machines_is_one_line(tmp_path, text):
    """asv's own, in the home directory: a full disk leaves it empty."""
    (tmp_path / ".asv-machine.json").write_text(text, encoding="utf-8")
    code = "import sys; sys.path[:0] = sys.argv[1:]; from measuring import engine; engine.register('box')"
    done = run(sys.executable, "-c", code, ROOT / "scripts", ROOT, home=tmp_path)
    told = done.stderr.splitlines()[-1] if done.returncode else "UserError: is broken: remove it"
    assert "UserError: " in told and "is broken: remove it" in told
    assert done.returncode or '"box"' in (tmp_path / ".asv-machine.json").read_text(encoding="utf-8")


def at_once(code, *arguments, home, count=4):
    """These programs side by side, each with its number; what they complained about."""
    code = f"import sys; sys.path[:0] = {[str(ROOT / 'scripts'), str(ROOT)]!r}\n{code}"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(number), *map(str, arguments)],
            env=environment(home),
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    return [process.communicate(timeout=120)[1] for process in started]


@pytest.mark.slow
def test_machines_that_are_registered_at_once_are_all_known(tmp_path):
    code = "from measuring import engine\nfor k in range(20): engine.register(f'box-{sys.argv[1]}-{k}')"
    assert at_once(code, home=tmp_path) == [""] * 4
    assert len(json.loads((tmp_path / ".asv-machine.json").read_text())) == 4 * 20 + 1, "and the version"


@pytest.mark.slow
def test_the_ledger_is_changed_under_nobody(tmp_path):
    """Two machines in a fresh checkout: what one adds, and has asv ask for, goes from no other."""
    code = """
from pathlib import Path
from toolchains import ledger
here = ledger.Toolchain(f"2.{sys.argv[1]}+cpu", "2.4.6")
path = Path(sys.argv[2])
for more in range(6):
    ledger.make(path, [ledger.Toolchain(f"2.{sys.argv[1]}.{more}", "2.4.6")], here)
    for tag in ("torch-2.6.0", "numpy-2.0.2"):
        assert ledger._git(path, "rev-parse", tag).strip() == ledger.tagged()[tag].commit
"""
    assert at_once(code, tmp_path / "ledger", home=tmp_path) == [""] * 4
    assert [path.name for path in tmp_path.glob("ledger*")] in (["ledger", "ledger.lock"], ["ledger.lock", "ledger"])
