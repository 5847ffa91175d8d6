"""asv's own commands over releases: missing ones are installed, each in its own environment, under one name."""

import json
import re
import subprocess
import sys
import urllib.request

import pytest
from tiny import SLOWER_FROM, WITHOUT_WHEEL, Project, torch_wheel

COST, REPEATED = "conversion.Figures.track_cost", "conversion.Figures.track_repeated"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The tiny suite after asv ran the installed toolchain and a range of releases, one of them without a wheel."""
    project = Project(tmp_path_factory.mktemp("histories"))
    conf = project.root / "asv.conf.json"
    conf.write_text(re.sub(r"(keep_environments.: )\d+", r"\g<1>3", conf.read_text()))  # fewer than the releases
    project.asv("run")
    project.before = project.results()
    project.ranged = project.asv("run", "torch-1.13.1..torch-2.3.0", code=2)
    project.kept = project.environments
    project.variables["CONVERSION_KEEP_ENVIRONMENTS"] = "9"  # so that no test reinstalls an earlier test's environment
    return project


def costs(results):
    return {tag: result["results"][COST]["result"] for tag, result in results.items()}


def test_a_plain_run_measures_what_is_installed_and_a_range_its_releases(project):
    results, installed = project.results(), {"torch-2.9.0+cpu-numpy-2.0.0": [2]}
    ranged = {"torch-2.0.0": [1], "torch-2.0.1": [1], "torch-2.1.0": [2], "torch-2.2.0": None, "torch-2.3.0": [2]}
    assert costs(project.before) == installed and costs(results) == installed | ranged
    python = f"toolchain-py{sys.version_info[0]}.{sys.version_info[1]}"
    assert {result["env_name"] for result in results.values()} == {python}
    assert results["torch-2.3.0"]["date"] == 1713960000000, "noon of 2024-04-24, in milliseconds"


def test_failed_installation_is_named_with_pip_s_reason(project):
    line = f"torch-{WITHOUT_WHEEL} cannot be installed: No matching distribution found for torch==={WITHOUT_WHEEL}"
    assert project.ranged.count(line) == 1


def test_history_is_of_one_build(project):
    """A history does not install a nearer wheel of another build variant."""
    project.asv("run", "torch-2.3.0^!", "--bench", "track_cost")
    (environment,) = [name for name in project.environments if "torch-2.3.0" in name]
    environment = project.root / ".asv" / "env" / environment
    assert [path.name for path in environment.rglob("torch-*.dist-info")] == ["torch-2.3.0.dist-info"]


def test_asv_compare_lists_every_changed_cell(project):
    text = project.asv("compare", "torch-2.0.1", "torch-2.1.0")
    rows = [line for line in text.splitlines() if "timeit_convert" in line]
    assert len(rows) == 4
    assert all(line.startswith("| +") for line in rows), text
    assert "<torch-2.0.1>" in text and "<torch-2.1.0>" in text


def test_asv_continuous_tells_slower_from_faster(project):
    one_cell = ("--bench", "timeit_convert.*from_numpy.* 4096")
    slower = project.asv("continuous", "torch-2.0.1", "torch-2.1.0", *one_cell, code=1)
    assert "PERFORMANCE DECREASED" in slower
    faster = project.asv("continuous", "torch-2.1.0", "torch-2.0.1", *one_cell)
    assert "PERFORMANCE INCREASED" in faster


@pytest.fixture(scope="module")
def published(project):
    """Directory of asv's published pages, including repeats of a count."""
    project.asv("run", f"torch-{SLOWER_FROM}^!", "--bench", "track_repeated", "--record-samples")
    project.asv("publish")
    return project.root / ".asv" / "html"


def test_repeats_of_a_count_are_filed(project, published):
    row = project.results()[f"torch-{SLOWER_FROM}"]["results"][REPEATED]
    assert row["result"] == [202] and row["samples"] == [[200, 202, 218]]
    assert "track_repeated" in project.asv("compare", "torch-2.0.1", "torch-2.1.0")


def test_a_search_finds_the_release(project, published):
    """`asv find` uses the median of repeats, as for any other count."""
    text = project.asv("find", "torch-1.13.1..torch-2.3.0", "track_repeated")
    commit = project.results()[f"torch-{SLOWER_FROM}"]["commit_hash"]
    assert f"{commit[:8]} <torch-{SLOWER_FROM}>" in text


def test_published_graphs_have_every_release(published):
    graphs = {}
    for count in (COST, REPEATED):
        (path,) = (published / "graphs").glob(f"**/branch-torch/**/{count}.json")
        graphs[count] = [value for _, value in json.loads(path.read_text(encoding="utf-8"))]
    assert graphs == {COST: [1, 1, 2, None, 2], REPEATED: [101, 101, 202, None, 202]}


def test_asv_show_has_the_figures_of_a_release(project):
    assert COST in project.asv("show", "torch-2.1.0")
    assert COST in project.asv("show", "here")


def test_a_preview_has_both_histories(project, published):
    server = project.start(sys.executable, "-u", "-m", "asv", "preview", stderr=subprocess.STDOUT)
    try:
        (address,) = re.findall(r"http://\S+", server.stdout.readline())
        with urllib.request.urlopen(f"{address}index.json", timeout=30) as answer:
            index = json.load(answer)
    finally:
        server.terminate()
        server.communicate(timeout=10)
    assert index["project"] == "numpy-torch-conversion"
    assert index["params"]["branch"] == [
        "torch",
        "numpy",
        "torch-py3.13",
        "numpy-py3.13",
        "python",
        "python-t",
        "installed",
    ]
    assert {"torch-2.0.1", "numpy-2.0.0", "torch-2.9.0+cpu-numpy-2.0.0"} <= set(index["tags"])


def test_numpy_s_history_holds_torch(project):
    project.asv("run", "numpy", "--bench", "track_cost")
    results = project.results()
    held = {tag for tag, torch in project.toolchains.values() if torch == "2.0.1" and tag in results}
    assert held == {"numpy-1.26.4", "numpy-2.0.0", "torch-2.0.1"}  # torch-2.0.1 is the first of them again


def test_wrong_names_are_one_line(project):
    for name in ("torch-9.9.9^!", "torch-9.9.9..torch-2.0.1"):
        (line,) = project.asv("run", name, code=1).splitlines()
        assert repr(name) in line


def test_another_python_than_asv_s_is_refused(project):
    """Results would be filed under the requested Python's version but measured with this one."""
    assert "start asv with that Python" in project.asv("run", "--python", "3.9", code=1)


def test_tags_are_refused(project):
    """TAGS is refused: asv would file all releases under one name."""
    before = set(project.results())
    project.asv("run", "TAGS", "--bench", "track_cost", code=1)
    assert set(project.results()) == before


def test_all_is_every_release_and_new_what_came_after(project):
    assert "8 commits" in project.asv("run", "ALL", "--bench", "track_cost", "--dry-run", code=2)
    project.asv("run", "NEW", "--bench", "track_cost", code=None)  # earlier tests may have left nothing to run
    project.asv("run", "NEW", "--bench", "track_cost", code=1)


def test_releases_need_no_torch_here(project):
    """A fresh interpreter with asv is enough for every release; only a plain run asks for an installed one."""
    code = "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n: None if n == 'torch' else f(n)"
    (project.here / "sitecustomize.py").write_text(code, encoding="utf-8")
    try:
        assert "2\n" in project.asv("run", "torch-2.1.0^!", "--bench", "track_cost")
        assert "numpy" in project.asv("run", code=1)
        project.asv("publish")
    finally:
        (project.here / "sitecustomize.py").unlink()


def test_installed_release_of_a_history_is_filed_there(project):
    """A release installed from the index is filed as that release; it runs in this interpreter, not an environment."""
    before = project.environments
    project.install(torch_wheel(project.wheels, "1.13.1"), project.wheels / "numpy-1.26.4-py3-none-any.whl")
    project.asv("run", "--bench", "track_cost")
    assert "torch-1.13.1" in project.results()
    project.asv("run", "torch-1.13.1^!", "--bench", "track_cost")
    assert project.environments == before
    project.asv("publish")  # what was installed before is still a commit


def test_environments_are_few(project):
    assert 1 <= len(project.kept) <= 3 < len(project.environments)  # keep_environments of asv.conf.json
    project.asv("run", "torch-2.1.0^!", "--bench", "track_cost", CONVERSION_KEEP_ENVIRONMENTS="1")
    (left,) = project.environments
    assert "torch-2.1.0-numpy-1.26.4" in left
