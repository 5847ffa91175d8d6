"""The workflows' shell steps, run as GitHub's runner does, with a fake gh that only records its calls."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import compare
import pytest
import yaml  # comes with asv
from conftest import ROOT, run
from packaging.requirements import Requirement
from pages import comparison_words
from store.files import put
from submissions import planted, submitted

WORKFLOWS = ROOT / ".github" / "workflows"
FILES = sorted(WORKFLOWS.glob("*.yml"))
GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$GH_CALLS"
case "$*" in
  "pr list"*) echo "$OPEN_PR" ;;
  "issue list"*) echo "$OPEN_ISSUE" ;;
  "issue view"*) echo "$ISSUE_TEXT" ;;
esac
for file in "$@"; do
  case "$file" in
    *.md) cat "${file#body=@}" >> "$GH_CALLS" ;;
  esac
done
"""


def workflow(name):
    return yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text(encoding="utf-8"))


def steps(name):
    """Return a dictionary: (job, name of a step) -> its script."""
    jobs = workflow(name)["jobs"]
    return {(job, step["name"]): step["run"] for job in jobs for step in jobs[job]["steps"] if "run" in step}


class Runner:
    """A directory in which steps run, with the files that they leave."""

    def __init__(self, root):
        self.root, self.temp = root / "work", root
        self.root.mkdir()
        tools = root / "tools"
        put(tools / "gh", GH)
        (tools / "gh").chmod(0o755)
        (root / ".gitconfig").write_text("[user]\nname = tester\nemail = tester@localhost.invalid\n")
        self.more = {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "GH_CALLS": str(root / "calls"),
            "GH_REPO": "owner/suite",
            "GITHUB_SERVER_URL": "https://example.org",
            "GITHUB_OUTPUT": str(root / "output"),
            "GITHUB_STEP_SUMMARY": str(root / "summary"),
        }

    def run(self, script, code=0, **more):
        """Run a step as GitHub's runner does, check its exit code, and return its output."""
        shell = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script)
        done = run(*shell, home=self.temp, cwd=self.root, **self.more, **more)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def python(self, code):
        """Make .venv/bin/python this shell code, which gets its arguments in "$*"."""
        path = self.root / ".venv" / "bin" / "python"
        put(path, f"#!/bin/sh\n{code}\n")
        path.chmod(0o755)

    def read(self, name):
        path = self.temp / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


@pytest.fixture
def cloned(runner):
    """A runner with a checkout whose origin is a bare repository."""
    (runner.root / ".gitignore").write_text(".venv*/\n")
    put(runner.root / "scripts" / "toolchains" / "releases.json", "{}")
    put(runner.root / "reports" / "results" / "benchmarks.json", "{}")
    runner.run(f"git init --quiet --bare {runner.temp}/origin.git")
    runner.run("git init --quiet --initial-branch=main")
    runner.run("git add .; git commit --quiet --message begin")
    runner.run(f"git remote add origin {runner.temp}/origin.git")
    return runner


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_workflow_is_careful(path):
    """Workflows name all permissions, pin all actions, and put no text of a user into a script."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert "permissions" in document and document["permissions"] in ({}, {"contents": "read"})
    for job in document["jobs"].values():
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), "an expression in a script is code of whoever wrote the value"
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]), "a tag can be moved"
            if "run" in step:
                if "pip install" in step["run"] and path.stem in ("pages", "submission"):
                    assert "--require-hashes --only-binary :all: -r .github/requirements.txt" in step["run"]
                checked = subprocess.run(["bash", "-n"], input=step["run"], text=True, capture_output=True)
                assert checked.returncode == 0, checked.stderr


needs_jq = pytest.mark.skipif(not shutil.which("jq"), reason="jq is missing: apt-get install jq")


@pytest.mark.parametrize("name", ["compare", pytest.param("watch", marks=needs_jq)])
def test_a_comment_is_as_long_as_github_takes(name, runner):
    """A comment comes from a job that ran code of others, so it may have any length. It must be cut for GitHub."""
    write_verdicts(runner)
    for path in (runner.root / "comparison" / "comment.md", *(runner.root / "watched" / "verdicts").glob("*.md")):
        put(path, "### torch " + "x" * 100_000)
    for (job, _), script in steps(name).items():
        if job in ("comment", "tell") and "git apply" not in script:
            put(runner.temp / "calls", "")
            runner.run(script, MARKER="<!-- m -->", NUMBER="1", BRANCH="watch")
            assert 0 < len(runner.read("calls")) < 65_536 * (1 + (name == "watch"))


def test_a_commit_of_an_action_has_one_tag():
    text = "".join(path.read_text(encoding="utf-8") for path in FILES)
    pinned = set(re.findall(r"uses: (\S+)@(\S+)(?:  # (v[0-9.]+))?$", text, re.MULTILINE))
    assert len(pinned) == len({name for name, _, _ in pinned}) == 7 and all(tag for _, _, tag in pinned)


def test_hashed_packages_are_those_of_the_requirements():
    """.github/requirements.txt lists all its packages by hash, in versions that requirements.txt allows."""
    lines = (ROOT / ".github" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    hashed = dict(
        re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", one).groups() for one in lines if one[0] != "#"
    )
    requirements = [Requirement(one) for one in (ROOT / "requirements.txt").read_text().splitlines() if one[0] != "#"]
    requirements = {
        one.name: one for one in requirements if one.marker is None or one.marker.evaluate({"python_version": "3.12"})
    }
    assert hashed.keys() >= requirements.keys() - {"torch", "markdown-it-py", "psutil"}
    assert all(hashed[name] in requirements[name].specifier for name in requirements.keys() & hashed.keys())


def test_each_python_has_one_torch_and_one_numpy():
    """The pins follow the interpreter. CI and the newest target have the Pythons of the README."""
    requirements = [Requirement(one) for one in (ROOT / "requirements.txt").read_text().splitlines() if one[0] != "#"]
    for minor in range(10, 16):
        chosen = [
            one.name for one in requirements if not one.marker or one.marker.evaluate({"python_version": f"3.{minor}"})
        ]
        assert sorted({*chosen}) == sorted(chosen) and {"torch", "numpy"} <= {*chosen}
    tested = workflow("test")["jobs"]["test"]["strategy"]["matrix"]["python"]
    first, last = re.search(r"with Python (3\.\d+) to (3\.\d+),", (ROOT / "README.md").read_text()).groups()
    assert (tested[0], tested[-1]) == (first, last)


def test_compare_gates_with_what_there_is():
    """The job that runs a pull request's code has no right to write, and its options of compare.py exist."""
    definition = workflow("compare")
    assert definition["jobs"].keys() == {"measure", "comment", "gate"}
    assert "write" not in str(definition["jobs"]["measure"]) and "checkout" not in str(definition["jobs"]["comment"])
    assert definition["env"]["MARKER"] == comparison_words.MARKER
    script = steps("compare")["measure", "Measure both in turns and compare"].replace("\\\n", " ")
    (command,) = re.findall(r"compare\.py (--run.*?) >", script)
    command = command.replace("$PROFILE", "gate").replace("$MIN_DECIDED", definition["env"]["MIN_DECIDED"])
    options = compare.arguments(shlex.split(command))
    assert options.run and options.format == "markdown" and options.profile == "gate" and options.min_decided == 0.5


MEASURE = steps("watch")["measure", "Measure what came since, and judge it"]
CAME = """
case "$*" in
  *"track.py --new"*)
    echo '{"torch": {"2.16.0": "2026-12-02"}}' > scripts/toolchains/releases.json
    mkdir -p reports/results/box; echo measured > reports/results/box/one.json
    echo '### torch 2.16.0 against 2.15.0: slower' > watched/verdicts/torch-2.16.0.md
    exit 1 ;;
  *report.py*) echo page > reports/index.html ;;
esac
"""


def test_watch_measures_what_came_and_commits_it(cloned):
    """Code from the package index ran in the job and may have written the patch, so only expected files are taken."""
    cloned.python(CAME)
    cloned.run(MEASURE)
    assert cloned.read("output") == "new=true\n" and cloned.read("summary").startswith("### torch 2.16.0")
    patch = (cloned.root / "watched" / "change.patch").read_text()
    changed = ["reports/index.html", "reports/results/box/one.json", "scripts/toolchains/releases.json"]
    assert re.findall(r"^\+\+\+ b/(.*)$", patch, re.MULTILINE) == changed

    evil = "scripts/evil.py .github.yml reports.py"
    cloned.run(f"echo evil | tee {evil} > /dev/null; git add {evil}")
    cloned.run("git diff --cached --binary > watched/change.patch; git reset --quiet --hard")
    cloned.run(steps("watch")["tell", "Put results and pages on the branch"], BRANCH="watch")
    log = cloned.run(f"git --git-dir={cloned.temp}/origin.git log -1 --format='%an %ae: %s' --name-only watch")
    commit = "watch watch@users.noreply.github.com: New releases, measured"
    assert log.split("\n") == [commit, "", *changed, ""]


@pytest.mark.parametrize(("python", "code"), [("echo nothing came", 0), ("echo no index; exit 2", 2)])
def test_watch_ends_where_nothing_came(cloned, python, code):
    cloned.python(python)
    cloned.run(MEASURE, code)
    assert cloned.read("output") == "new=\n" and not (cloned.root / "watched" / "change.patch").exists()


def write_verdicts(runner):
    """Write verdicts of a release with changes and of one without."""
    verdicts = runner.root / "watched" / "verdicts"
    for tag, changed in {"torch-2.16.0": {"slower": 2}, "numpy-2.6.0": {}}.items():
        name = tag.replace("-", " ")
        put(verdicts / f"{tag}.json", json.dumps({"release": name, "machine": "box", "changed": changed}))
        put(verdicts / f"{tag}.md", f"### {name}\n\nOn box. [The history](reports/history/box/README.md).\n")


PULL = "Open a pull request, unless there is one"
ISSUE = "Open or add to an issue for each release that changed something"
# A step, and the answers of GitHub; the snapshot holds the calls of gh
OUTCOMES = {
    "the first pull request": (PULL, {}),
    "another, where one is open": (PULL, {"OPEN_PR": "7"}),
    "an issue of what changed something, and none of what changed nothing": (ISSUE, {}),
    "the release on another machine": (ISSUE, {"OPEN_ISSUE": "9", "ISSUE_TEXT": "against 2.15.0 on another"}),
    "nothing twice": (ISSUE, {"OPEN_ISSUE": "9", "ISSUE_TEXT": "against 2.15.0 on box"}),
}


@needs_jq
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_watch_reports_each_outcome_once(outcome, runner, snapshot):
    step, variables = OUTCOMES[outcome]
    write_verdicts(runner)
    runner.run(steps("watch")["tell", step], BRANCH="watch", **{"OPEN_PR": "", "OPEN_ISSUE": "", **variables})
    assert runner.read("calls") == snapshot


def test_watch_without_verdicts_tells_nobody(runner):
    runner.run(steps("watch")["tell", ISSUE], BRANCH="watch")
    assert not runner.read("calls")


ABOUT = steps("submission")["check", "Which machine is it about?"]
JUDGE = steps("submission")["check", "Judge its results"]
HELD = "reports/results/benchmarks.json reports/results/box/a.json reports/results/other/a.json reports/x.html"
# Files that a pull request changes ("-": removes) -> the machine that it is about, and whether the step fails
CHANGED = {
    "nothing": ([], "", False),
    "code": (["scripts/x.py"], "", False),
    "one machine": (["reports/results/new/a.json", "reports/results/new/b.json"], "new", False),
    "one machine and code": (["reports/results/box/b.json", "scripts/x.py"], "box", False),
    "a machine is gone": (["-reports/results/other/a.json"], "other", False),
    "two machines": (["reports/results/box/b.json", "-reports/results/other/a.json"], "", True),
    "the benchmarks, too": (["reports/results/box/b.json", "reports/results/benchmarks.json"], "", True),
    "toolchains": (["reports/results/toolchains.jsonl", "reports/results/box/b.json"], "", True),
    "a page": (["reports/evil.html"], "", True),
    "a hidden file": (["reports/results/box/b.json", "reports/.hidden"], "", True),
    "a page of the machine": (["reports/results/box/b.json", "reports/box/index.html"], "", True),
    "a name with spaces": (["reports/results/a b/a.json"], "", True),
    "a name that a log obeys": (["reports/results/::error::x/a.json"], "", True),
    "a name with a line end": (["reports/results/a\nmachine=b/a.json"], "", True),
    "a name with a quote": (['reports/results/a"$(id)/a.json'], "", True),
}


@pytest.mark.parametrize("change", CHANGED)
def test_submission_is_about_one_machine(change, runner):
    """Only changes since the pull request left the base count. The base has new commits meanwhile."""
    changed, machine, fails = CHANGED[change]
    submitted = runner.root / "submitted"
    for name in HELD.split():
        put(submitted / name, "before")
    git = f"git -C {submitted}"
    runner.run(f"git init --quiet --initial-branch=main {submitted}; {git} add .; {git} commit --quiet -m begin")
    runner.run(f"{git} switch --quiet --create theirs")
    for name in changed:
        path = submitted / name.removeprefix("-")
        path.unlink() if name[0] == "-" else put(path, "after")
    runner.run(f"{git} add .; {git} commit --quiet --allow-empty -m theirs; {git} switch --quiet main")
    (submitted / "reports" / "results" / "other" / "b.json").write_text("meanwhile")
    runner.run(f"{git} add .; {git} commit --quiet -m meanwhile; {git} switch --quiet theirs")
    runner.run(ABOUT, BASE="main", MARKER="<!-- m -->")
    assert runner.read("output") == (f"machine={machine}\n" if machine else "code=1\n" if fails else "")
    comment = runner.root / "comment" / "comment.md"
    assert comment.is_file() == fails and (not fails or comment.read_text().startswith("<!-- m -->\nThis changes more"))


def test_submission_fails_where_git_does(runner):
    runner.run("git init --quiet submitted")
    assert "set -o pipefail" in ABOUT
    runner.run(ABOUT, 128, BASE="main", MARKER="<!-- m -->")


@pytest.mark.slow
@pytest.mark.parametrize("spoiled", [False, True])
def test_submission_judges_one_machine(runner, spoiled):
    """The code of the base judges. scripts/ of the submission is not run."""
    directory = submitted(runner.root / "submitted" / "reports" / "results")
    if spoiled:
        planted("machine.json", '"version"', '"node": "janes-laptop.local", "version"')(directory)
    results = runner.root / "reports" / "results"
    put(results / "benchmarks.json", (directory.parent / "benchmarks.json").read_bytes())
    runner.python(f'exec "{sys.executable}" "{ROOT}/$1" --results "{results}" "$2" "$3" "$4" "$5"')
    errors = runner.run(JUDGE, MARKER="<!-- m -->", MACHINE=directory.name)
    assert runner.read("output") == f"code={int(spoiled)}\n" and not errors
    comment = (runner.root / "comment" / "comment.md").read_text()
    assert comment.startswith(workflow("submission")["env"]["MARKER"])
    assert ("janes-laptop" in comment) == spoiled and ("may be published" in comment) != spoiled


def test_submission_says_an_error(runner):
    runner.python('echo "::error::x" >&2; exit 2')
    assert not runner.run(JUDGE, MARKER="<!-- m -->", MACHINE="box")
    assert runner.read("output") == "code=2\n"
    comment = (runner.root / "comment" / "comment.md").read_text()
    assert comment == "<!-- m -->\nThere are no results in reports/results/box that can be judged.\n"


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_outcome_is_that_of_the_check(runner, code):
    (script,) = [script for (job, _), script in steps("submission").items() if job == "outcome"]
    runner.run(script, code, CODE=str(code))


def test_pages_are_gathered_for_their_address(runner):
    runner.python('echo "$*" > asked')
    runner.run(steps("pages")["publish", "Gather the site"], URL="https://example.org/suite")
    assert (runner.root / "asked").read_text() == "scripts/report.py --site site --url https://example.org/suite\n"
