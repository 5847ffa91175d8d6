"""asv's own commands over releases: what is not there is installed, in an environment each, under one name."""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from tiny import SLOWER_FROM, WITHOUT_WHEEL, Project, torch_wheel

pytest.importorskip("asv")


def said(done, code=0):
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    return text


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The tiny suite, in which asv has run what is installed and a range of releases, one of which has no wheel."""
    project = Project(tmp_path_factory.mktemp("histories"))
    conf = project.root / "asv.conf.json"
    conf.write_text(re.sub(r"(keep_environments.: )\d+", r"\g<1>3", conf.read_text()))  # fewer than the releases
    project.plain = said(project.asv("run"))
    project.before = project.results()
    project.ranged = said(project.asv("run", "torch-1.13.1..torch-2.3.0"), 2)
    project.kept = project.environments
    project.variables["CONVERSION_KEEP_ENVIRONMENTS"] = "9"  # no test makes again what one before it has made
    return project


def torch_of(project, commit):
    """The torch whose commit this is."""
    return project.toolchains[commit][1]


def test_plain_run_measures_what_is_installed(project):
    (commit,) = project.before
    assert torch_of(project, commit) == "2.9.0+cpu"
    assert project.before[commit]["results"]["conversion.Figures.track_cost"][0] == [2]


def test_range_measures_its_releases(project):
    results = project.results()
    found = {torch_of(project, commit): result for commit, result in results.items()}
    assert set(found) == {"2.9.0+cpu", "2.0.0", "2.0.1", "2.1.0", "2.2.0", "2.3.0"}
    costs = {torch: result["results"]["conversion.Figures.track_cost"][0] for torch, result in found.items()}
    assert costs == {"2.9.0+cpu": [2], "2.0.0": [1], "2.0.1": [1], "2.1.0": [2], "2.2.0": None, "2.3.0": [2]}
    assert {result["env_name"] for result in results.values()} == {
        f"toolchain-py{sys.version_info[0]}.{sys.version_info[1]}"
    }


def test_results_are_dated_by_release(project):
    dates = {torch_of(project, commit): result["date"] for commit, result in project.results().items()}
    assert dates["2.3.0"] == 1713960000000  # noon of 2024-04-24, in milliseconds


def test_failed_installation_is_named_with_pip_s_reason(project):
    line = f"torch-{WITHOUT_WHEEL} cannot be installed: No matching distribution found for torch==={WITHOUT_WHEEL}"
    assert project.ranged.count(line) == 1


def test_history_is_of_one_build(project):
    """A wheel of another variant lies nearer, and is not taken."""
    said(project.asv("run", "torch-2.3.0^!", "--bench", "track_cost"))
    (environment,) = [name for name in project.environments if "torch-2.3.0" in name]
    environment = project.root / ".asv" / "env" / environment
    assert [path.name for path in environment.rglob("torch-*.dist-info")] == ["torch-2.3.0.dist-info"]


def test_compare(project):
    text = said(project.asv("compare", "torch-2.0.1", "torch-2.1.0"))
    rows = [line for line in text.splitlines() if "timeit_convert" in line]
    assert len(rows) == 4
    assert all(line.startswith("| +") for line in rows), text
    assert "<torch-2.0.1>" in text and "<torch-2.1.0>" in text


def test_continuous(project):
    done = project.asv("continuous", "torch-2.0.1", "torch-2.1.0", "--bench", "timeit_convert")
    assert "PERFORMANCE DECREASED" in said(done, 1)
    done = project.asv("continuous", "torch-2.1.0", "torch-2.0.1", "--bench", "timeit_convert")
    assert "PERFORMANCE INCREASED" in said(done)


@pytest.fixture(scope="module")
def published(project):
    """Where asv has published what is there, repeats of a count among it."""
    said(project.asv("run", f"torch-{SLOWER_FROM}^!", "--bench", "track_repeated", "--record-samples"))
    said(project.asv("publish"))
    return project.root / ".asv" / "html"


def test_repeats_of_a_count_are_filed(project, published):
    result = project.results()[project_commit(project, SLOWER_FROM)]
    row = dict(zip(result["result_columns"], result["results"]["conversion.Figures.track_repeated"]))
    assert row["result"] == [202] and row["samples"] == [[200, 202, 218]]
    assert "track_repeated" in said(project.asv("compare", "torch-2.0.1", "torch-2.1.0"))


def test_a_search_finds_the_release(project, published):
    """Of repeats asv takes the median, as of any other count."""
    text = said(project.asv("find", "torch-1.13.1..torch-2.3.0", "track_repeated"))
    assert f"{project_commit(project, SLOWER_FROM)[:8]} <torch-{SLOWER_FROM}>" in text


def test_published_graphs_have_every_release(published):
    graphs = {}
    for count in ("track_cost", "track_repeated"):
        (path,) = (published / "graphs").glob(f"**/branch-torch/**/conversion.Figures.{count}.json")
        graphs[count] = [value for _, value in json.loads(path.read_text(encoding="utf-8"))]
    assert graphs == {"track_cost": [1, 1, 2, None, 2], "track_repeated": [101, 101, 202, None, 202]}


def project_commit(project, torch):
    return next(commit for commit in project.results() if torch_of(project, commit) == torch)


def test_show(project):
    assert "conversion.Figures.track_cost" in said(project.asv("show", "torch-2.1.0"))
    assert "conversion.Figures.track_cost" in said(project.asv("show", "here"))


def test_the_index_has_both_histories(published):
    index = json.loads((published / "index.json").read_text(encoding="utf-8"))
    assert index["params"]["branch"] == ["torch", "numpy", "installed"]
    assert {"torch-2.0.1", "numpy-2.0.0", "torch-2.9.0+cpu-numpy-2.0.0"} <= set(index["tags"])


def test_preview(project, published):
    with socket.socket() as chosen:
        chosen.bind(("", 0))
        port = chosen.getsockname()[1]
    command = [sys.executable, "-m", "asv", "preview", "--port", str(port)]
    with (project.root / "preview.log").open("w") as log:
        server = subprocess.Popen(command, cwd=project.root, env=project.environment, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/index.json", timeout=5) as answer:
                    index = json.load(answer)
                break
            except OSError:
                assert time.monotonic() < until and server.poll() is None, (project.root / "preview.log").read_text()
                time.sleep(0.1)
    finally:
        server.terminate()
        server.wait(10)
    assert index["project"] == "numpy-torch-conversion" and "torch-2.0.1" in index["tags"]


def test_numpy_s_history_holds_torch(project):
    said(project.asv("run", "numpy", "--bench", "track_cost"))
    held = [torch_of(project, commit) for commit in project.results()]
    assert held.count("2.0.1") == 3  # numpy-1.26.4, numpy-2.0.0 and torch-2.0.1, which is the first of them once more


def test_wrong_names_are_one_line(project):
    for name in ("torch-9.9.9^!", "torch-9.9.9..torch-2.0.1"):
        (line,) = said(project.asv("run", name), 1).splitlines()
        assert repr(name) in line


def test_another_python_than_asv_s_is_refused(project):
    """Results would be filed under its version, and be of this one."""
    assert "start asv with that Python" in said(project.asv("run", "--python", "3.9"), 1)


def test_tags_are_refused(project):
    """asv would file them all under one name."""
    before = set(project.results())
    said(project.asv("run", "TAGS", "--bench", "track_cost"), 1)
    assert set(project.results()) == before


def test_all_is_every_release_and_new_what_came_after(project):
    text = said(project.asv("run", "ALL", "--bench", "track_cost", "--dry-run"), 2)
    assert "8 commits" in text
    project.asv("run", "NEW", "--bench", "track_cost")  # whatever the tests before have left
    said(project.asv("run", "NEW", "--bench", "track_cost"), 1)


def test_releases_need_no_torch_here(project):
    """A fresh interpreter with asv is enough for every release; only a plain run asks for an installed one."""
    code = "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n: None if n == 'torch' else f(n)"
    (project.here / "sitecustomize.py").write_text(code, encoding="utf-8")
    try:
        assert "2\n" in said(project.asv("run", "torch-2.1.0^!", "--bench", "track_cost"))
        assert "numpy" in said(project.asv("run"), 1)
        said(project.asv("publish"))
    finally:
        (project.here / "sitecustomize.py").unlink()


def test_installed_release_of_a_history_is_filed_there(project):
    """What pip took from the index is that release; the interpreter is used, and no environment is made."""
    before = project.environments
    project.install(torch_wheel(project.wheels, "1.13.1"), project.wheels / "numpy-1.26.4-py3-none-any.whl")
    said(project.asv("run", "--bench", "track_cost"))
    assert project_commit(project, "1.13.1")
    said(project.asv("run", "torch-1.13.1^!", "--bench", "track_cost"))
    assert project.environments == before
    said(project.asv("publish"))  # what was installed before is still a commit


def test_environments_are_few(project):
    assert 1 <= len(project.kept) <= 3 < len(project.environments)  # keep_environments of asv.conf.json
    said(project.asv("run", "torch-2.1.0^!", "--bench", "track_cost", CONVERSION_KEEP_ENVIRONMENTS="1"))
    (left,) = project.environments
    assert "torch-2.1.0-numpy-1.26.4" in left
