"""track.py --new: a new release in an index of local files is measured, judged and reported."""

import http.server
import json
import os
import re
import sys
import threading
import time
from unittest.mock import Mock

import pytest
from cli import UserError
from filelock import FileLock
from made_histories import ATOM, SERIES, check, history_in, logs_of, write
from measuring.journal import Plan, due_plan
from pages import release_news
from store.files import put
from tiny import FAMILIES, RELEASES, Project, numpy_wheel, torch_wheel
from toolchains import ledger, selection

NEW = ("--new", "--machine", "box", "--rounds", "2", "--no-report")

# torch 2.4 takes twice the instructions of earlier releases, which no noise hides
COUNTS = """
import torch

repeated = True
COST = 4 if torch.__version__.startswith("2.4") else 2


class NumpyToTorch:
    params = ["torch.from_numpy(a)", "torch.tensor(a)"], ["float32"], [4096]
    param_names = ["route", "dtype", "nbytes"]

    def track_instructions(self, route, dtype, nbytes):
        return {"samples": [1000 * COST, 1001 * COST, 1002 * COST], "number": 1}

    track_instructions.unit = "instructions"
"""


def releases(project):
    return json.loads((project.root / "scripts" / "toolchains" / "releases.json").read_text())


@pytest.mark.slow
def test_a_release_comes(tmp_path, ledger_of, capsys):
    """A new release is measured. The measurement is interrupted and resumed."""
    project = Project(tmp_path, families={**FAMILIES, "instructions": COUNTS})
    done = project.verb("track", *NEW)
    assert not done.stderr and "no new releases since" in done.stdout and "nothing is left to measure" in done.stdout
    assert releases(project) == RELEASES, "torch 2.9.0+cpu is no release, and 2.2.0 has no wheel"

    torch_wheel(project.wheels, "2.4.0")
    torch_wheel(project.wheels, "2.5.0rc1")
    with FileLock(project.root / ".asv" / "runs" / "box.lock"):
        assert "is being measured already" in project.verb("track", *NEW, code=2).stderr
    assert releases(project) == RELEASES, "a release is new only once: not before its plan is kept"
    running = project.start(sys.executable, "scripts/track.py", *NEW, "--keep", "2")  # none is installed ahead
    rest = project.stop(running, lambda: re.match(r"torch-2\.4\.0: .*installed", running.stdout.readline()))
    assert "scripts/track.py --new " in rest
    assert project.sessions() == {"torch-2.3.0": 1}
    done = project.verb("track", *NEW, code=2)
    assert "1 of 2 " in done.stdout, done.stdout + done.stderr
    assert "results saved; no verdict: " in done.stderr, "pandas refuses the numpy of this suite"
    today = time.strftime("%Y-%m-%d", time.gmtime())
    dated = {"torch": {**RELEASES["torch"], "2.4.0": today}, "seen": {"torch": ["2.4.0"]}}
    assert releases(project) == {**RELEASES, **dated}, "files have no day: it was first seen"
    sessions = {"torch-2.3.0": 2, "torch-2.4.0": 1}
    assert project.sessions() == sessions, "with the release before, measured again at the end"

    ledger_of(json.dumps(releases(project)))
    assert release_news.print_changes(project.filed, "box", [ledger.toolchains_by_tag()["torch-2.4.0"]], None) == [1]
    output = capsys.readouterr().out
    assert f"first seen {today}" in output and "`torch.from_numpy(a)`: 2.00× " in output

    project.verb("track", *NEW)
    numpy_wheel(project.wheels, "2.1.0")
    project.verb("track", "--update")
    assert "2.1.0" in releases(project)["numpy"]
    assert project.sessions() == sessions, "there was nothing left to measure, and --update measures nothing"


def test_the_verdict_of_a_release_is_told_and_written(tmp_path, capsys, snapshot):
    """The verdict has the title of the feed's entry. A release without figures cannot be judged."""
    results = write(tmp_path / "results", logs_of(3, [(2, 5, 1.49)]), SERIES[:8])
    directory = tmp_path / "said"
    assert release_news.print_changes(results, "box", [SERIES[5], SERIES[8]], directory) == [1, 2]
    assert capsys.readouterr().out == snapshot
    written = {path.name: path.read_text(encoding="utf-8") for path in sorted(directory.iterdir())}
    assert written == snapshot
    release_news.write_feed(tmp_path, [history_in(results)])
    (entry,) = check((tmp_path / release_news.FEED).read_text(encoding="utf-8"))
    assert entry.findtext(f"{ATOM}title") == json.loads(written["torch-2.4.1.json"])["title"]


@pytest.fixture
def index(ledger_of, monkeypatch):
    """A dictionary for a test to fill: path -> the answer (status, text) to requests that accept JSON (PEP 691). pip
    asks no other index.

    This process uses the ledger of the made-up suite.
    """
    ledger_of(json.dumps(RELEASES))
    answers = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, text = answers.get(self.path, (404, "")) if selection.JSON in self.headers["Accept"] else (406, "")
            self.send_response(status)
            self.send_header("Content-Type", selection.JSON if text.startswith("{") else "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        log_message = Mock()

    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/")
        yield answers
        server.shutdown()


def listing(package, days, yanked=""):
    """Return the index's answer about a package. days: version -> day of release"""
    files = []
    for version, day in days.items():
        name = f"{package}-{version}-py3-none-any.whl"
        about = {"upload-time": f"{day}T10:00:00Z", "yanked": version == yanked and "broken"}
        files.append({"filename": name, "url": name, "hashes": {}, **about})
    return 200, json.dumps({"meta": {"api-version": "1.1"}, "name": package, "files": files})


CAME = {"2.3.0": "2024-04-24", "2.3.1": "2024-06-05", "2.4.0": "2024-07-24"}
UNDATED = dict.fromkeys(("2.3.0", "2.4.0"), "1980-01-01")
TODAY = "2026-12-01"


@pytest.mark.parametrize(
    ("days", "yanked", "added", "seen"),
    [
        (CAME, "", [("2.3.1", "2024-06-05"), ("2.4.0", "2024-07-24")], {}),
        (CAME, "2.4.0", [("2.3.1", "2024-06-05")], {}),
        (UNDATED, "", [("2.4.0", TODAY)], {"torch": ["2.4.0"]}),
        ({"2.3.0": "2024-04-24"}, "", [], {}),
    ],
)
def test_days_are_those_of_the_index(index, days, yanked, added, seen):
    index["/torch/"] = listing("torch", days, yanked)
    index["/numpy/"] = listing("numpy", {"2.0.0": "2024-06-16"})
    assert [(one.version, one.date) for one in selection.update_releases(TODAY)] == added
    assert json.loads(ledger.RELEASES.read_text()).get("seen", {}) == seen
    assert ledger.first_seen("torch", "2.4.0") == bool(seen)


def test_no_release_is_noted_where_one_package_cannot_be_asked_for(index):
    index["/torch/"] = listing("torch", CAME)
    with pytest.raises(UserError, match="^pip cannot say which releases of numpy there are"):
        selection.update_releases()
    assert json.loads(ledger.RELEASES.read_text()) == RELEASES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "settings"),
    [
        ((500, ""), {"PIP_RETRIES": "0"}),
        ((200, "<form>log in</form>"), {}),
        (None, {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "1"}),
        (None, {"PIP_NO_INDEX": "1"}),
    ],
)
def test_an_index_that_lists_nothing_is_named_with_the_command_to_try(index, monkeypatch, answer, settings):
    """For all of these faults pip only says "No matching distribution"."""
    index["/torch/"] = answer
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    line = "pip cannot say which releases of torch there are: No matching distribution found for torch; "
    with pytest.raises(UserError, match=f"^{line}try: python -m pip index versions torch$"):
        selection.available_versions("torch")


def test_a_wheel_without_name_or_day_is_passed_over():
    """An invalid day would break the ledger. pip 26 refuses it before this suite sees it."""
    names = ("torch.whl", "torch-2.whl", "torch-2.0.tar.gz", "torch-2.3.0-cp311-none-any.whl")
    files = [{"filename": name, "upload-time": "2026-01-02T00:00"} for name in names]
    files.append({"filename": "torch-2.4.0-cp311-none-any.whl", "upload-time": "2026-13-45T00:00"})
    assert selection.first_days(files) == {"2.3.0": "2026-01-02"}


@pytest.mark.parametrize(
    ("offered", "new"),
    [
        (["1.26.5", "2.4.9", "2.4.6", "2.5.6", "2.6.0", "3.0"], ["1.26.5", "2.4.9", "2.5.6", "2.6.0", "3.0"]),
        (["2.6.0rc1", "2.6.0.dev20261101", "2.6.0+cpu", "no version"], []),
        (["2.6.0.post1", "2.4.6.post1", "2.4.5.post1"], ["2.4.6.post1", "2.6.0.post1"]),
        (["1.0.0", "2.4.0", "1.27.0"], []),
    ],
)
def test_what_came_since(offered, new):
    """Releases left out on purpose stay out, and so do those older than all known releases."""
    assert selection.newer_versions(["1.26.4", "2.4.1", "2.4.6", "2.5.5"], offered) == new


def test_the_plan_holds_what_a_machine_lacks(ledger_of, tmp_path):
    """A plan has the new releases, and those after the machine's last one, with the release before each. Else None."""
    ledger_of(json.dumps(RELEASES))
    torch = {one.version: one for one in ledger.history("torch")}

    def planned(*added):
        plan = due_plan(Plan("box", "tracking", "", 4), [torch[version] for version in added], tmp_path)
        return plan and (list(plan.tags), list(plan.additional))

    def measured(name, version, **record):
        line = json.dumps({"toolchain": {"tag": torch[version].tag}, "skipped": {}, **record})
        put(tmp_path / name / f"{torch[version].commit[:8]}-toolchain-py3.11.jsonl", line + "\n")

    assert planned() is None
    assert planned("2.3.0") == (["torch-2.2.0", "torch-2.3.0"], ["torch-2.2.0"])
    measured("other", "2.1.0")
    assert planned()[0] == ["torch-2.1.0", "torch-2.2.0", "torch-2.3.0"], "after the last that any machine has"
    measured("box", "2.0.1")
    measured("box", "2.2.0", failed="No matching distribution found")
    assert planned() == (["torch-2.0.1", "torch-2.3.0"], ["torch-2.0.1"]), "2.2.0 has nothing to compare with"
    measured("box", "2.3.0")
    assert planned() is None and planned("2.3.0") is None
