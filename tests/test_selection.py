"""What somebody typed is found, or refused in one line: releases, Pythons, files of results."""

import os
import sys
from pathlib import Path

import pytest
import resultfiles
from cli import UserError
from resultfiles import around, contract, conversion
from store import files
from toolchains import ledger, selection

TORCH, NUMPY = ledger.history("torch"), ledger.history("numpy")
RESULT = "box/c0ffee00-toolchain-py3.11.json"


@pytest.fixture
def results(tmp_path):
    """A results directory with one result file, of a toolchain outside the histories."""
    bench = conversion({("torch.tensor(a)", 8): around(1e-6)}, [contract("torch.tensor(a)", "copy")])
    return resultfiles.write(tmp_path / "results", [bench])


# --- releases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("toolchain", [TORCH[0], TORCH[-1], NUMPY[0]], ids=lambda toolchain: toolchain.tag)
def test_a_release_has_several_names(toolchain):
    for name in (toolchain.tag, toolchain.version, toolchain.commit, toolchain.commit[:12]):
        assert selection.release(name) == toolchain
    for name in (toolchain.commit[:3], toolchain.commit.upper(), f"{toolchain.tag} ", ""):
        assert selection.release(name) is None


def test_a_version_of_two_packages_is_found_of_one():
    assert selection.release("2.0.0", ["numpy"]).tag == "numpy-2.0.0"


# --- what to measure with --------------------------------------------------------------------------------------------


def test_a_python_is_a_file_a_program_or_an_environment(tmp_path, monkeypatch):
    own = tmp_path / "env" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.symlink_to(sys.executable)
    assert selection.python(str(own)) == selection.python(str(tmp_path / "env")) == own, "a link stays one"
    monkeypatch.setenv("PATH", str(own.parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert selection.python("python") == selection.python("~/env") == own
    (tmp_path / "text").touch()
    for name in (str(tmp_path / "text"), str(tmp_path), "nosuch", "~nobody/python", ""):
        assert selection.python(name) is None, name


def test_a_target_is_what_is_installed_a_python_or_a_release(tmp_path):
    here = Path(sys.executable), ""
    assert selection.target("installed") == selection.target(sys.executable) == here
    assert selection.target("torch-2.6.0") == (here[0], selection.release("torch-2.6.0").commit)
    with pytest.raises(UserError, match=f"^--run takes .*'installed'.*{os.fspath(tmp_path)} is none of them$"):
        selection.target(str(tmp_path))


# --- results ---------------------------------------------------------------------------------------------------------


def test_toolchains_by_tag_and_hash(results):
    for name in ("torch-2.0-numpy-1.26", "c0ffee00", "c0ff", "c0ffee00" * 5):
        assert selection.result_file(name, results) == results / RESULT
    for name in ("c0f", "torch-9", "c0ffee01"):
        line = (
            r"^\S+ is no file, no directory and no toolchain with results: there are results of "
            r"torch-2\.0-numpy-1\.26$"
        )
        with pytest.raises(UserError, match=line):
            selection.result_file(name, results)


def test_files_and_directories(results, tmp_path):
    for path in (results, results / "box", results / RESULT):
        assert selection.result_file(str(path), tmp_path / "none") == results / RESULT
        assert files.results_of(selection.result_file(str(path), tmp_path / "none")) == results
    (tmp_path / "checkout" / "reports").mkdir(parents=True)
    results.rename(tmp_path / "checkout" / "reports" / "results")
    found = selection.result_file(str(tmp_path / "checkout"), tmp_path / "none", "box")
    assert found == tmp_path / "checkout" / "reports" / "results" / RESULT
    for name in ("benchmarks.json", "box/machine.json"):
        line = r"^\S+ is not a result file: those lie in reports/results/MACHINE/ and end with \.json$"
        with pytest.raises(UserError, match=line):
            selection.result_file(str(found.parents[1] / name), tmp_path)


def test_a_release_that_asv_was_run_for_by_hand(tmp_path):
    """It has no run record: the commit alone says what it is."""
    bench = conversion({("torch.tensor(a)", 8): around(1e-6)}, [contract("torch.tensor(a)", "copy")])
    for toolchain in TORCH[-2:]:
        resultfiles.write(tmp_path, [bench], commit=toolchain.commit, records=[])
    for name in (TORCH[-1].tag, TORCH[-1].version, TORCH[-1].commit[:6], TORCH[-1].commit):
        assert selection.result_file(name, tmp_path).name.startswith(TORCH[-1].commit[:8])


@pytest.mark.parametrize("text", ["{", "[]\n", "null\n", '{"toolchain": 3}\n', "[" * 5000])
def test_what_cannot_be_read_is_named(results, text):
    (results / RESULT).with_suffix(".jsonl").write_text(text)
    line = r"^\S+ is no file, no .*: none of the results can be read; could not read c0ffee00-toolchain-py3\.11\.json$"
    with pytest.raises(UserError, match=line):
        selection.result_file("torch-2.0-numpy-1.26", results)


def test_fresh_processes_lie_beside_a_checkout(tmp_path):
    """The sibling of the checkout whose results these are, wherever these lie: in the root directory, too."""
    results = tmp_path / "base" / "reports" / "results"
    fresh = tmp_path / "base-fresh" / "reports" / "results"
    for place in (results, fresh / "box"):
        place.mkdir(parents=True)
    assert files.fresh_results(results) is None
    (fresh / "box" / "c0ffee00-toolchain.jsonl").touch()
    assert files.fresh_results(results) == fresh
    for place in ("/", "/nowhere", "/nowhere/results"):
        assert files.fresh_results(Path(place)) is None, place
