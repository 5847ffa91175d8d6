"""Toolchains as commits, with the same hash in every ledger. The installed one is found without importing torch."""

import errno
import json
import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import resultfiles
from asv import util
from cli import UserError
from conftest import environment
from measuring import engine
from pages.history_page import read_causes
from store import files
from store.files import put
from toolchains import environments, interpreters, ledger, plugin, selection
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
RECORDED = "d73633b3f99f86e7271e873e3ea35e90abb86b13"  # of the last of LINE, as in reports/results


@pytest.fixture
def known(monkeypatch):
    """A function that returns asv's repository: the histories, and the given toolchains outside them."""

    def made(outside=(), here=None):
        monkeypatch.setattr(plugin, "read_other_toolchains", lambda: list(outside))
        monkeypatch.setattr(environments, "running_toolchain", lambda: here)
        return plugin.Ledger()

    return made


# Ledger -------------------------------------------------------------------------------------------------------------


def test_commits_are_those_that_git_makes_dated_and_for_ever(tmp_path, known):
    """Published results name commits, so hashes must never change. git makes the same commit of a toolchain's text."""
    every = [*LINE, *ODD, Toolchain("2.13.0+cpu", "2.4.6 (mine)")]
    made = known(every)
    assert made.get_hash_from_name(LINE[-1].tag) == RECORDED
    assert made.get_branch_commits(ledger.OTHER_BRANCH) == [each.commit for each in every][::-1], (
        "asv walks it from its end"
    )
    dates = ["2022-12-15", "2026-07-08", "2026-08-01", ledger.UNKNOWN_DATE]  # a nightly's own day
    assert [each.date for each in (LINE[0], LINE[-1], *ODD[:2])] == dates
    stream = ""
    for each in every:
        assert (
            re.fullmatch(r"torch-[\w.+-]+-numpy-[\w.+-]+", each.tag)
            and each.commit not in ledger.toolchains_by_commit()
        )
        stream += f"commit refs/heads/{each.tag}\ncommitter ledger <ledger@localhost> {each.commit_time} +0000\n"
        message, held = str(each), json.dumps({"numpy": each.numpy, "torch": each.torch}) + "\n"
        stream += f"data {len(message)}\n{message}\nM 100644 inline toolchain.json\ndata {len(held)}\n{held}"
    git = {"check": True, "cwd": tmp_path, "env": environment(tmp_path, GIT_CONFIG_GLOBAL=os.devnull), "text": True}
    subprocess.run(["git", "init", "--quiet", "--object-format=sha1"], **git)
    subprocess.run(["git", "fast-import", "--quiet"], input=stream, **git)
    asked = subprocess.run(["git", "rev-parse", *(each.tag for each in every)], stdout=subprocess.PIPE, **git)
    assert asked.stdout.split() == [each.commit for each in every]


@pytest.mark.parametrize("package", ledger.PACKAGES)
def test_histories_names_and_ranges_are_of_releases(package, known):
    """A history is in order of version. numpy's dates are not, because it maintains several branches."""
    released = json.loads(ledger.RELEASES.read_text(encoding="utf-8"))
    made, line, other = known(LINE, LINE[0]), ledger.history(package), "numpy" if package == "torch" else "torch"
    versions = [tuple(map(int, toolchain.version.split("."))) for toolchain in line]
    dates = {toolchain.version: toolchain.date for toolchain in line}
    assert versions == sorted(versions) and dates == released[package]
    if package == "torch":  # a patch of numpy's may come after the next minor release
        assert [*dates.values()] == sorted(set(dates.values()))
    assert {getattr(toolchain, other) for toolchain in line} == {released["held"][other]}
    commits = [toolchain.commit for toolchain in line]
    assert made.get_branch_commits(package) == made.get_hashes_from_range(package) == commits[::-1]
    for first, last in ((0, 1), (0, -1), (3, 9), (8, -1), (-2, -1)):
        span = f"{line[first].tag}..{line[last].tag}"
        assert made.get_hashes_from_range(span) == commits[first + 1 : commits.index(commits[last]) + 1][::-1]
    for name in (line[3].tag, commits[3], commits[3][:12], f"{line[5].tag}^^", f"{line[4].tag}^"):
        assert made.get_hashes_from_range(f"{name}^!") == [commits[3]]
    assert made.get_hashes_from_range(f"{LINE[0].tag}..{line[0].tag}") == [commits[0]], "nothing in common"
    for name in ("torch-9.9", f"{line[0].tag}^", commits[0][:3], "", "..", "a b", "--all", f"{line[0].tag}..nobody"):
        with pytest.raises(util.UserError, match="torch-2"):
            made.get_hashes_from_range(name)
    places = made.get_revisions(set(commits))
    assert sorted(places, key=places.get) == commits


def test_insertion_of_a_release_keeps_the_other_hashes(ledger_of, known):
    """Neither a forgotten release, added later, nor a new one changes the commit of another."""
    before, releases = known().get_tags(), ledger._releases()
    ledger_of(json.dumps(releases | {"torch": releases["torch"] | {"2.6.1": "2025-02-20", "2.99.0": "2027-01-01"}}))
    made = known()
    order = [made.get_name_from_hash(commit) for commit in made.get_hashes_from_range("torch-2.6.0^..torch-2.7.0")]
    after = made.get_tags()
    new = {f"{history}-{version}" for history in ("torch", "torch-py3.13") for version in ("2.6.1", "2.99.0")}
    assert set(after) - set(before) == new and after.items() >= before.items()
    assert order == ["torch-2.7.0", "torch-2.6.1", "torch-2.6.0"]


@pytest.mark.parametrize(
    ("torch", "numpy", "from_index", "python", "tag"),
    [
        ("2.6.0+cu124", "1.26.4", True, "", "torch-2.6.0"),
        ("2.6.0+cpu", "1.26.4", False, "", "torch-2.6.0+cpu-numpy-1.26.4"),
        ("2.13.0+cu130", "2.4.6", True, "", "numpy-2.4.6"),
        ("2.6.0+cu124", "2.0.2", True, "", "torch-2.6.0+cu124-numpy-2.0.2"),
        ("2.13.0+cu130", "2.4.6", True, "3.13t", "torch-2.13.0+cu130-numpy-2.4.6-py3.13t"),
        ("2.12.0+cu130", "2.4.6", True, "3.13t", "python-t-3.13t"),
    ],
)
def test_installed_pair_of_a_history_is_filed_there(torch, numpy, from_index, python, tag):
    """An installed pair is of a history if it has its releases, in the package index's build for the platform."""
    found = ledger.identify(torch, numpy, from_index, python)
    assert found.tag == tag
    assert (found.commit in ledger.toolchains_by_commit()) == bool(found.history)
    assert str(found).startswith(f"torch {torch} with numpy {numpy}"), "the record keeps the variant"
    assert ledger.parse_toolchain(torch, numpy, tag, python).commit == found.commit


def test_a_history_of_python_holds_what_has_wheels():
    python = {one.python: one for one in ledger.series("python")}
    assert [*python] == ["3.11", "3.12", "3.13", "3.14", "3.15"] and {one.torch for one in python.values()} == {
        "2.15.0"
    }
    assert [python[release].numpy for release in ("3.11", "3.12", "3.15")] == ["2.4.6", "2.5.5", "2.5.5"]
    assert [one.name for one in ledger.series("python-t")] == ["Python 3.13", "Python 3.13t"]
    assert {one.python for one in ledger.history("numpy-py3.13")} == {"3.13"}
    assert (
        engine.Suite(commit=python["3.15"].commit).result_file("box", "c0ffee00").name
        == "c0ffee00-toolchain-py3.15.json"
    )
    assert engine.Suite().result_file("box", "c0ffee00", "3.13.5t").name == "c0ffee00-toolchain-py3.13t.json"


@pytest.mark.parametrize(("offered", "chosen"), [("", ""), ("slow", "slow"), ("slow broken fast old", "fast")])
def test_the_optimised_interpreter_of_a_release_is_taken(offered, chosen, tmp_path, monkeypatch):
    """A missing one is a reason, which says what to do."""
    answers = {"slow": "3.99.1 not optimised", "fast": "3.99.0 optimised, LTO", "old": "3.98.0 optimised", "broken": ""}
    for name in answers:
        version, _, build = answers[name].partition(" ")
        put(tmp_path / name, f"#!/bin/sh\necho '{json.dumps({'python': version, 'build': build})}'\n")
        (tmp_path / name).chmod(0o755)
    named = os.pathsep.join(str(tmp_path / name) for name in offered.split())
    monkeypatch.setenv(interpreters.PYTHONS_VARIABLE, named)
    interpreters.find_interpreter.cache_clear()
    found = interpreters.find_interpreter("3.99")
    assert (found.name if found else "") == chosen
    if not found:
        with pytest.raises(environments.InstallError, match=r"^no Python 3.99 was found: .* CONVERSION_PYTHONS$"):
            environments.prepare(tmp_path, Toolchain("2.15.0", "2.5.5", "python", "3.99"), 1)


OPTIMISED, FREE = "'--enable-optimizations' '--with-lto'", "optimised, LTO, free-threaded, GIL off"
BUILDS = [
    (OPTIMISED, "", "optimised, LTO"),
    ("'--x'", "", "not optimised"),
    ("'--x'", "deb_system", FREE),
    (None, "", ""),
]


@pytest.mark.parametrize(("options", "scheme", "build"), BUILDS)
def test_how_python_was_built(options, scheme, build, monkeypatch):
    """Debian's sysconfig describes another build than its program, which is optimised."""
    monkeypatch.setattr(interpreters.sysconfig, "get_config_var", {"CONFIG_ARGS": options}.get)
    monkeypatch.setattr(interpreters.sysconfig, "get_scheme_names", lambda: [scheme])
    monkeypatch.setattr(interpreters, "IS_FREE_THREADED", build == FREE)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert interpreters.build() == build


def test_what_is_here_is_a_name_of_its_own(known):
    """The installed toolchain may be on any of the three branches, or absent."""
    for here in (Toolchain("2.6.0+cu124", "1.26.4", "torch"), LINE[0]):
        made = known([LINE[1]], here)
        assert made.get_hash_from_name("here") == made.get_hash_from_name("HEAD") == here.commit
        assert LINE[1].commit in made.get_branch_commits(ledger.OTHER_BRANCH)
    with pytest.raises(RuntimeError, match="installed"):
        known().get_hash_from_name("here")


def test_asv_says_that_releases_json_is_broken(ledger_of):
    ledger_of("{")
    with pytest.raises(util.UserError, match=r"^\S+ is broken, restore it from git$"):
        plugin.setup()


# The installed toolchain --------------------------------------------------------------------------------------------


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
def test_the_variant_of_a_build_is_part_of_its_version(build, version, tmp_path, monkeypatch):
    """A CUDA wheel and a CPU wheel of one release are two toolchains, even if their metadata have the same version."""
    put(tmp_path / "torch" / "__init__.py", "raise SystemError('imported')")
    put(tmp_path / "torch" / "version.py", build)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert environments.read_toolchain().torch == version and "torch" not in sys.modules


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("AMD EPYC 9654 96-Core Processor", "amd-epyc-9654-96-core-8-cores"),
        ("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "intel-xeon-e5-2686-v4-8-cores"),
    ],
)
def test_machine_name_is_of_the_hardware(model, name, monkeypatch):
    monkeypatch.setattr(environments, "cpu_model", lambda: model)
    assert environments.machine_name(8) == name


# Plugin -------------------------------------------------------------------------------------------------------------


def test_recorded_toolchains_are_in_order_of_release(tmp_path):
    assert plugin.read_other_toolchains(tmp_path) == []
    for toolchain in (LINE[3], LINE[0], LINE[2], LINE[0]):
        plugin.record_toolchain(toolchain, tmp_path)
    assert plugin.read_other_toolchains(tmp_path) == [LINE[0], LINE[2], LINE[3]]


POISON = ["2..0", "", "\ud800", "2.0\n", "2" * 5000, "2." * 100, [], None, "ａ", "2.0.lock", "../2.0", "2.0 ", "\x00"]
POISON += ["2.0\x1b[31m", {"a": 1}, 2.0, "Ｋ", "2.0@{0}"]
NO_DAYS = ["2.14.0.dev20269999", "2.14.0.dev20250230"]


@pytest.mark.parametrize(("name", "versions"), [("torch", [*NO_DAYS, *POISON]), ("numpy", POISON)])
def test_one_poisoned_record_stops_nobody(name, versions, tmp_path, caplog):
    """A broken record is left out and its file is named. All others are read."""
    made = [{"torch": "2.0", "numpy": "1.26", name: version} for version in versions]
    made = [{**each, "tag": f"torch-{each['torch']}-numpy-{each['numpy']}"} for each in made]
    records = [{"toolchain": each} for each in (*made, vars(LINE[0]))]
    put(tmp_path / "box" / "poison.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "box" / "binary.jsonl").write_bytes(bytes(range(256)) + b"\n{broken\n{}\n")
    (tmp_path / "box" / "loop.jsonl").symlink_to("loop.jsonl")
    assert plugin.read_other_toolchains(tmp_path) == [LINE[0]]
    assert caplog.text.count("box/poison.jsonl: ") == len(versions) and "\x1b[31" not in caplog.text


# Environments -------------------------------------------------------------------------------------------------------


def test_least_recently_used_environments_go_first(tmp_path):
    for age, name in enumerate(["c", "a", "d", "b"]):
        path = tmp_path / f"py3-torch-{name}"
        put(path / environments.READY, "")
        os.utime(path / environments.READY, (1e9 - age, 1e9 - age))
    (tmp_path / "py3-torch-half-made").mkdir()
    (tmp_path / "another").mkdir()
    environments.clean_up(tmp_path, 2)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"py3-torch-c", "py3-torch-a", "another"}


def use(root, pipe):
    """Run in another process: wait until torch 2.0.0 is installed, then use it until this process is killed."""
    environments.clean_up(root, 0)
    with pytest.raises(environments.InstallError, match="^another process has been installing it for 0 s$"):
        environments.prepare(root, LINE[1], 1, 0.1)
    pipe.send("waits")
    environments.prepare(root, LINE[1], 1, 30)
    pipe.send("uses it")
    pipe.recv()


@pytest.mark.slow
def test_nobody_removes_what_another_process_installs_or_uses(tmp_path, monkeypatch):
    """A process that needs an environment waits until it is installed, but not forever."""
    ours, theirs = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=use, args=(tmp_path, theirs), daemon=True)

    def install(environment, toolchain, seconds):
        environments.interpreter_of(environment).parent.mkdir(parents=True)
        other.start()
        theirs.close()  # so that recv() fails if the other process does
        assert ours.recv() == "waits"
        environments.interpreter_of(environment).touch()

    monkeypatch.setattr(environments, "_install", install)
    environment = environments.prepare(tmp_path, LINE[1], 1)
    assert ours.recv() == "uses it", "it waited, and did not install once more"
    os.close(environments._held_locks.pop())  # as if this process had ended
    environments.clean_up(tmp_path, 0)
    assert environments.is_ready(environment)
    other.kill()
    other.join()
    environments.clean_up(tmp_path, 0)
    assert not environment.exists()


def test_a_disk_without_locks_is_said(tmp_path, monkeypatch):
    none = OSError(errno.ENOSYS, "Function not implemented")
    monkeypatch.setattr(environments.fcntl, "flock", Mock(side_effect=none))
    line = r"^no file can be locked in \.asv/env \(Function not implemented\): make it a link to a directory of a local"
    with pytest.raises(environments.InstallError, match=line):
        environments.prepare(tmp_path, LINE[1], 1)


NONE = "No matching distribution found for torch===2.6.0"
UNSATISFIED = "ERROR: Could not find a version that satisfies the requirement torch===2.6.0 (from versions: none)\n"
FULL = "Could not install packages due to an OSError: [Errno 28] No space left on device:"
CONFLICT = "Cannot install torch===2.15.0 because these package versions have conflicting dependencies."
ALL_THAT_PIP_SAYS = f"""INFO: pip is looking at multiple versions

The conflict is caused by:
    The user requested torch===2.15.0
    The user requested (constraint) torch<=2.14.1

ERROR: {CONFLICT}
ERROR: ResolutionImpossible: for help visit x
"""


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (f"ERROR: Ignored the following versions: 1.2\n{UNSATISFIED}ERROR: {NONE}\n", NONE),
        (f"ERROR: {FULL} '/home/me/x'\n", FULL),
        (ALL_THAT_PIP_SAYS, CONFLICT),
        ("ERROR: Exception:\nTraceback (most recent call last):\nValueError: month is 13\n", "ValueError: month is 13"),
        ("Killed\n", "Killed"),
        ("", "it said nothing"),
    ],
)
def test_pip_s_reason_is_one_line(output, reason):
    assert environments.last_error(output) == reason


@pytest.mark.parametrize(
    ("listing", "reason"),
    [
        ('{"versions": ["2.15.0", "2.5.0"]}', f"^{NONE}$"),
        ('WARNING: no such location\n{"versions": ["2.15.0"]}\nWARNING: again\n', f"^{NONE}$"),
        ("{}", f"^{NONE} \\(the package index lists none for this Python, or did not answer\\)$"),
        ("ERROR: no such option: --json", rf"^{NONE} \(the package index lists none"),
        (json.dumps({"versions": ["2.6.0", "1.26.4", environments.pins()["asv_runner"]]}), "^$"),
    ],
)
def test_a_wheel_is_missing_only_where_the_index_lists_others(monkeypatch, listing, reason):
    """Python packages are listed by pip, as JSON; another failure keeps its own reason."""
    monkeypatch.setattr(environments, "run_program", lambda *_: listing)
    assert re.search(reason, environments._missing_wheel(["pip"], Toolchain("2.6.0", "1.26.4", "torch")))


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_broken_file_of_machines_is_one_line(tmp_path, text, monkeypatch):
    """asv keeps this file in the home directory. A full disk leaves it empty."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".asv-machine.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"^\S+ is broken: remove it, and asv makes it anew$"):
        engine.register("box")


def test_who_has_no_home_is_told_and_gets_none_in_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as Python does without HOME and a passwd entry
    with pytest.raises(UserError, match="^set HOME: "):
        engine.register("box")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_machines_that_are_registered_at_once_are_all_known(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with multiprocessing.get_context("spawn").Pool(4) as processes:
        processes.map(engine.register, [f"box-{number}" for number in range(80)], chunksize=1)
    assert len(json.loads((tmp_path / ".asv-machine.json").read_text())) == 80 + 1, "and the version"


# Names that users type are found or refused in one line: releases, Pythons, files of results ------------------------

TORCH, NUMPY = ledger.history("torch"), ledger.history("numpy")
BENCH = resultfiles.memcpy({8: [1e-6]})
RESULT = "box/c0ffee00-toolchain-py3.11.json"


@pytest.fixture
def results(tmp_path):
    """The results directory of a checkout with one result file, of a toolchain outside the histories."""
    return resultfiles.write(tmp_path / "checkout" / "reports" / "results", [BENCH])


# --- releases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("toolchain", [TORCH[0], TORCH[-1], NUMPY[0]], ids=lambda toolchain: toolchain.tag)
def test_a_release_has_several_names(toolchain):
    for name in (toolchain.tag, toolchain.version, toolchain.commit, toolchain.commit[:12]):
        assert selection.find_release(name) == toolchain
    for name in (toolchain.commit[:3], toolchain.commit.upper(), f"{toolchain.tag} ", ""):
        assert selection.find_release(name) is None


# --- targets of a measurement ----------------------------------------------------------------------------------------


def test_a_target_is_what_is_installed_a_python_or_a_release(tmp_path, monkeypatch):
    """A target is "installed", a release or a Python: a file, a command or an environment."""
    own = tmp_path / "env" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(own.parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (str(own), str(tmp_path / "env"), "python", "~/env"):
        assert selection.find_target(name) == (own, ""), "a link stays one"
    assert selection.find_target("installed") == (Path(sys.executable), "")
    assert selection.find_target("torch-2.6.0") == (Path(sys.executable), selection.find_release("torch-2.6.0").commit)
    (tmp_path / "text").touch()
    for name in (str(tmp_path / "text"), str(tmp_path), "nosuch", "~nobody/python", ""):
        with pytest.raises(UserError, match=f"^--run takes .*'installed'.* {re.escape(name)} is none of them$"):
            selection.find_target(name)


# --- results ---------------------------------------------------------------------------------------------------------


def test_toolchains_by_tag_and_hash(results):
    for name in ("torch-2.0-numpy-1.26", "c0ffee00", "c0ff", "c0ffee00" * 5):
        assert selection.find_result_file(name, results) == results / RESULT
    line = r"^\S+ is no file, no directory and no toolchain with results: there are results of torch-2\.0-numpy-1\.26$"
    for name in ("c0f", "torch-9", "c0ffee01"):
        with pytest.raises(UserError, match=line):
            selection.find_result_file(name, results)


def test_files_and_directories(results, tmp_path):
    """Results are found in a checkout, a results directory, a machine's directory and a file."""
    for path in (results.parents[1], results, results / "box", results / RESULT):
        for machine in (None, "box"):
            assert selection.find_result_file(str(path), tmp_path / "none", machine) == results / RESULT
    line = r"^\S+ is not a result file: those lie in reports/results/MACHINE/ and end with \.json$"
    for name in ("benchmarks.json", "box/machine.json"):
        with pytest.raises(UserError, match=line):
            selection.find_result_file(str(results / name), tmp_path)


def test_a_release_that_asv_was_run_for_by_hand(tmp_path):
    """Such a result has no run record. The commit alone identifies the release."""
    for toolchain in TORCH[-2:]:
        resultfiles.write(tmp_path, [BENCH], commit=toolchain.commit, records=[])
    for name in (TORCH[-1].tag, TORCH[-1].version, TORCH[-1].commit[:6], TORCH[-1].commit):
        assert selection.find_result_file(name, tmp_path).name.startswith(TORCH[-1].commit[:8])


def test_what_cannot_be_read_is_named(results):
    (results / RESULT).with_suffix(".jsonl").write_text("{")
    line = r"^\S+ is no file, no .*: none of the results can be read; could not read c0ffee00-toolchain-py3\.11\.json$"
    with pytest.raises(UserError, match=line):
        selection.find_result_file("torch-2.0-numpy-1.26", results)


def test_fresh_processes_lie_beside_a_checkout(tmp_path):
    """Fresh results are in a sibling of the checkout. For any other place, the root included, there are none."""
    results, fresh = (tmp_path / checkout / "reports" / "results" for checkout in ("base", "base-fresh"))
    (fresh / "box").mkdir(parents=True)
    for place in (results, Path("/"), Path("/nowhere"), Path("/nowhere/results")):
        assert files.fresh_results(place) is None, place
    (fresh / "box" / "c0ffee00-toolchain.jsonl").touch()
    assert files.fresh_results(results) == fresh


def test_causes_are_of_releases_that_are_known(tmp_path):
    assert {cause.release for cause in read_causes()} <= {*ledger.toolchains_by_tag()}
    (broken := tmp_path / "causes.yaml").write_text(
        "- {release: a, routes: (, link: 'https://x', status: probable, evidence: b}"
    )
    with pytest.raises(UserError, match="causes.yaml has a broken entry"):
        read_causes(broken)


def test_asv_looks_for_benchmarks_once_per_run(tmp_path, monkeypatch):
    """The first run of asv keeps what it finds; later ones read it. Without the variable each looks for itself."""
    calls = []

    def check_output(command, env, **_):
        calls.append(command)
        Path(command[-1]).write_text(f"found {len(calls)}")

    monkeypatch.setattr(plugin.util, "check_output", check_output)
    made = object.__new__(plugin.ToolchainEnvironment)
    monkeypatch.setattr(made, "_is_foreign", False, raising=False)
    monkeypatch.setattr(made, "_executable", "python", raising=False)
    kept = {environments.BENCHMARKS_VARIABLE: str(tmp_path / "kept.json")}
    found = []
    for variables in (kept, kept, {}):
        made.run(["benchmark.py", "discover", "root", str(tmp_path / "result.json")], env=variables)
        found.append((tmp_path / "result.json").read_text())
    assert found == ["found 1", "found 1", "found 2"]
