"""The checkout itself: what git holds of it, whatever else lies there, and that its parts agree."""

import json
import re
import sys
from pathlib import Path

import pytest
from conftest import ROOT, export, run
from store.files import put


def test_only_what_git_holds_is_committed(tmp_path):
    """Somebody's own results beside the committed ones, and changes to those, are no part of them."""
    root, found = tmp_path / "checkout", tmp_path / "found"
    put(root / "reports" / "committed", "committed")
    with pytest.raises(pytest.skip.Exception):
        export(root, found)  # without git nothing is known to be committed
    for command in (["init"], ["add", "."]):
        assert run("git", *command, home=tmp_path, cwd=root).returncode == 0
    for name in ("committed", "mine"):
        put(root / "reports" / name, "measured")
    export(root, found)
    assert {path: path.read_text() for path in found.glob("*/*")} == {found / "reports" / "committed": "committed"}


def test_no_file_holds_half_of_a_merge(committed):
    paths = [path for path in committed.rglob("*") if path.is_file() and "reports" not in path.parts]
    torn = [path for path in paths if re.search(rb"^(<{7}|>{7}) ", path.read_bytes(), re.MULTILINE)]
    assert paths and not torn


def test_ci_runs_the_commands_of_the_readme_in_its_order():
    """Who follows the README tests a checkout in which something was measured."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^(?:exec )?(make .+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert commands == ["make bench", "make test"]
    assert re.findall(r"^\$ (make (?:bench|test))$", readme, re.MULTILINE) == commands


def test_the_citation_names_the_newest_version():
    """Keys of CFF 1.2.0 at the left margin; the license's holders are its authors."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = dict(re.findall(r"^([a-z-]+): *(.*)$", text, re.MULTILINE))
    assert {"cff-version", "message", "title", "authors"} <= set(cited) and cited["cff-version"] == "1.2.0"
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    assert (cited["version"], cited["date-released"]) == versions[0]
    assert versions == sorted(versions, key=lambda one: [int(part) for part in one[0].split(".")], reverse=True)
    license = (ROOT / "LICENSE").read_text(encoding="utf-8")
    (author,) = re.findall(r"^  - name: (.+)$", text, re.MULTILINE)
    assert license.startswith(cited["license"]) and author.lower() in license.lower() and cited["title"] in license


def test_the_committed_description_is_what_asv_finds(committed, checkout):
    """Results are read by benchmarks.json: where it lags behind, a page misses benchmarks, and `make bench` changes it.

    As git has it, since every run writes the file in the checkout.
    """
    done = checkout.run("scripts/run.py", "--describe", PYTHONSAFEPATH="1")  # as python -P has it
    assert (done.returncode, done.stdout) == (0, "reports/results/benchmarks.json\n"), done.stdout + done.stderr
    path = Path("reports", "results", "benchmarks.json")
    found, kept = (json.loads((root / path).read_text(encoding="utf-8")) for root in (checkout.root, committed))
    different = sorted(name for name in found.keys() | kept.keys() if found.get(name) != kept.get(name))
    told = f"make benchmarks.json, and git add {path}"
    assert not different, f"{told}: {', '.join(different)}"
    assert (checkout.root / path).read_bytes() == (committed / path).read_bytes(), told
    # by that command, which asv's own agrees with, and which leaves no trace of the machine
    assert [path for path in (checkout.root / "reports").rglob("*") if path.is_file()] == [checkout.root / path]
    assert checkout.asv("run", "--bench", "just-discover").returncode == 0
    assert (checkout.root / path).read_bytes() == (committed / path).read_bytes()


@pytest.mark.slow
def test_lint_finds_nothing():
    """Style, types, and which room imports which: what `make lint` checks, beside other tests and not before them."""
    command = ["make", "lint", "--old-file=.venv/installed-dev", f"BIN={Path(sys.executable).parent}"]
    done = run(*command, home=Path.home(), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
