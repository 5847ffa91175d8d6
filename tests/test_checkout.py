"""The checkout itself: only its committed files count, and README, CI, citation and benchmarks.json agree."""

import json
import re
import sys
from pathlib import Path

import pytest
from conftest import ROOT, run


def test_no_file_holds_half_of_a_merge(committed):
    paths = [path for path in committed.rglob("*") if path.is_file() and "reports" not in path.parts]
    torn = [path for path in paths if re.search(rb"^(<{7}|>{7}) ", path.read_bytes(), re.MULTILINE)]
    assert paths and not torn


def test_ci_runs_the_commands_of_the_readme_in_its_order():
    """CI runs `make bench` before `make test`, as the README does: tests must pass in a checkout with new results."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^(?:exec )?(make .+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert commands == ["make bench", "make test"]
    assert re.findall(r"^\$ (make (?:bench|test))$", readme, re.MULTILINE) == commands


def test_the_citation_names_the_newest_version():
    """CITATION.cff (CFF 1.2.0) agrees with the changelog's newest version and the license's holders."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = dict(re.findall(r"^([a-z-]+): *(.*)$", text, re.MULTILINE))
    assert {"cff-version", "message", "title", "authors"} <= set(cited) and cited["cff-version"] == "1.2.0"
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    assert (cited["version"], cited["date-released"]) == versions[0]
    assert versions == sorted(versions, key=lambda one: [int(part) for part in one[0].split(".")], reverse=True)
    license = (ROOT / "LICENSE").read_text(encoding="utf-8")
    (author,) = re.findall(r"^  - name: (.+)$", text, re.MULTILINE)
    assert "    license: CC-BY-4.0\n" in text, "of the data"
    assert all("CC BY 4.0" in (ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "README.md"))
    assert license.startswith(cited["license"]) and author.lower() in license.lower() and cited["title"] in license


def test_the_committed_description_is_what_asv_finds(committed, checkout):
    """The committed benchmarks.json is up to date: pages miss benchmarks that it lacks, and `make bench` changes it.

    The committed file is compared, since every run writes the one in the checkout.
    """
    done = checkout.run("scripts/run.py", "--describe", PYTHONSAFEPATH="1")  # as python -P has it
    assert (done.returncode, done.stdout) == (0, "reports/results/benchmarks.json\n"), done.stdout + done.stderr
    path = Path("reports", "results", "benchmarks.json")
    found, kept = (json.loads((root / path).read_text(encoding="utf-8")) for root in (checkout.root, committed))
    different = sorted(name for name in found.keys() | kept.keys() if found.get(name) != kept.get(name))
    told = f"make benchmarks.json, and git add {path}"
    assert not different, f"{told}: {', '.join(different)}"
    assert (checkout.root / path).read_bytes() == (committed / path).read_bytes(), told
    # the command writes nothing else, so nothing about the machine; asv's own discovery writes the same file
    assert [path for path in (checkout.root / "reports").rglob("*") if path.is_file()] == [checkout.root / path]
    assert checkout.asv("run", "--bench", "just-discover").returncode == 0
    assert (checkout.root / path).read_bytes() == (committed / path).read_bytes()


@pytest.mark.slow
def test_lint_finds_nothing():
    """`make lint` passes: style, types, imports between packages. As a test it runs in parallel with others."""
    command = ["make", "lint", "--old-file=.venv/installed-dev", f"BIN={Path(sys.executable).parent}"]
    done = run(*command, home=Path.home(), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
