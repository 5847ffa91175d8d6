"""Helpers and fixtures of several test files: the discovered suite, copies of the checkout, commands, processes."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Prefixes of the user's own variables, or of a git hook's, which commands of tests do not inherit
OWN = ("ASV", "CONVERSION_", "GIT_", "PIP_", "PYTHONDONTWRITEBYTECODE")
PATH = f"{ROOT}/scripts:{ROOT}"  # PYTHONPATH of a program that imports the suite
# Set before torch or numpy is imported: waiting threads spin, and two processes of tests share two cores
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
# A shell's background job ignores Ctrl-C, and so would the programs that tests start and interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)


def environment(home, **more):
    """Return the environment with another home directory, where asv keeps its machines and git its settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    return {**kept, "HOME": str(home), **more}


def run(*command, home, cwd=ROOT, timeout=120, **more):
    """Run a command in ``cwd``; return its output and exit code."""
    own = environment(home, **more)
    return subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, timeout=timeout)


def piped(streams, *command, **more):
    """Run a command with a shell's redirections, such as "2>&1 | true"; the exit code is the command's."""
    return run("bash", "-o", "pipefail", "-c", f'"$@" {streams}', "bash", *command, **more)


def until(what, seconds=60.0, otherwise="it did not happen"):
    """Wait until ``what()`` is true and return its value; after ``seconds``, fail with the message ``otherwise``."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, otherwise() if callable(otherwise) else otherwise
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def possible():
    """Skip the test if a benchmark raises NotImplementedError: it needs something that is not available here."""
    try:
        yield
    except NotImplementedError as reason:
        pytest.skip(str(reason))


class Checkout:
    """A copy of the files that measuring needs, without results, with its own home directory."""

    def __init__(self, directory):
        from measuring.engine import copy_code

        self.root, self.home = directory / "checkout", directory / "home"
        self.results = self.root / "reports" / "results"
        self.home.mkdir(parents=True)
        copy_code(ROOT, self.root)
        shutil.copytree(ROOT / "tests", self.root / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("CITATION.cff", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root)

    def run(self, *command, **more):
        return run(sys.executable, *command, home=self.home, cwd=self.root, **more)

    def asv(self, *arguments, **more):
        return self.run("-m", "asv", *arguments, CONVERSION_PATIENCE="0", **more)  # waits for no quiet machine


def export(root, into):
    """Write the tracked files of the checkout ``root``, with staged changes, into a directory.

    Other files of the checkout stay out: a user's own results and pages, and changes that are not staged. Skip the
    test where ``root`` is no git checkout.
    """
    git = ("git", "-C", root)
    top = run(*git, "rev-parse", "--show-toplevel", home=Path.home())
    if top.returncode or Path(top.stdout.strip()).resolve() != Path(root).resolve():
        pytest.skip("no git checkout here, so nobody knows which results are committed")
    run(*git, "checkout-index", "--all", f"--prefix={into}/", home=Path.home()).check_returncode()
    return Path(into)


def build(results, output):
    """Build the pages with report.py; return the directory of the machine's page."""
    import report

    assert report.main(["--results", str(results), "--output", str(output)]) == 0
    return output / "box"


# Fixtures that start asv or torch in other processes, or make environments: make test-fast omits tests that use them
SLOW = {"checkout", "collected", "isolated", "measured", "project", "settings", "sides"}


# Slow test files, the slowest first: started last, they would leave all cores but one idle
LONGEST = (
    "fleet_slurm submission asv instructions contracts checks history report_transfers track histories kills compare "
    "fleet runner watch fuzz comparison run in_a_browser checkout readme catalogue"
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Return 1.5 workers per core: some wait for Slurm, for asv's processes or for a disk."""
    return -(-3 * (os.cpu_count() or 1) // 2)


def pytest_collection_modifyitems(items):
    for item in items:
        if SLOW & set(item.fixturenames):
            item.add_marker(pytest.mark.slow)
    place = {f"test_{name}.py": place for place, name in enumerate(LONGEST.split())}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


@pytest.fixture(scope="session")
def committed(tmp_path_factory):
    """A copy of the checkout's tracked files, for tests that read the committed results and pages."""
    return export(ROOT, tmp_path_factory.mktemp("committed"))


@pytest.fixture(scope="session")
def tracked(committed):
    """The name of the machine whose committed history README.md shows."""
    readme = (committed / "README.md").read_text(encoding="utf-8")
    return re.search(r"<!-- releases of ([\w.-]+)", readme)[1]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


@pytest.fixture
def project(tmp_path):
    """A suite of tiny packages."""
    from tiny import Project

    return Project(tmp_path)


@pytest.fixture(scope="session")
def suite():
    """Name -> benchmark, as asv discovers them, with this process's torch."""
    from asv_runner.discovery import disc_benchmarks

    from benchmarks.core import statement  # noqa: F401  registers the suite's types, whoever imported the package before

    return {benchmark.name: benchmark for benchmark in disc_benchmarks(str(ROOT / "benchmarks"))}


@contextlib.contextmanager
def answering(*program, home, **more):
    """Start a Python program that answers each line of JSON with another; yield a function that asks it."""
    pipe, command = subprocess.PIPE, [sys.executable, *map(str, program)]
    server = subprocess.Popen(command, env=environment(home, **more), stdin=pipe, stdout=pipe, text=True)

    def call(*case):
        server.stdin.write(json.dumps(case) + "\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())

    yield call
    server.stdin.close()
    server.wait(30)


@pytest.fixture(scope="session")
def isolated(tmp_path_factory):
    """Call a function of tests/inputs.py in a process of its own, forked from one that has imported torch."""
    home = tmp_path_factory.mktemp("home")
    with answering(ROOT / "tests" / "inputs.py", home=home, PYTHONPATH=str(ROOT)) as call:
        yield call


NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Root in a container cannot make a sandbox; the browser must not look anything up in a network
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def opened():
    """A function that opens a page of a browser, with lists of the page's complaints and network requests.

    The browser is an installed one, started once. Without a browser, the tests are skipped with the reason.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)}; on Debian: apt-get install chromium")

    @contextlib.contextmanager
    def made(**options):
        with browser.new_context(**options) as context:
            page = context.new_page()
            page.set_default_timeout(20_000)
            page.complaints, page.requests = [], []
            page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: page.complaints.append(str(error)))
            page.on("request", lambda request: page.requests.append(request.url))
            yield page

    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield made
        browser.close()


@pytest.fixture
def called(tmp_path, monkeypatch, capsys):
    """A function that runs a verb like a program, but in this process: exit code, standard output, standard error.

    A program's imports take seconds; tests/test_cli.py starts every verb as a program.
    """
    import cli

    def call(verb, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [f"{verb.__name__}.py", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.run(verb.main)
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return call


@pytest.fixture
def refusal(called):
    """A function that returns the one-line error of a verb that ends with exit code 2, without the verb's name."""

    def of(verb, *arguments):
        code, printed, line = called(verb, *arguments)
        name = f"{verb.__name__}.py: "
        assert (code, printed, line.count("\n")) == (2, "", 1) and line.startswith(name), line
        return line.removeprefix(name).rstrip("\n")

    return of


@pytest.fixture
def ledger_of(tmp_path, monkeypatch):
    """A function that replaces the releases in this process's ledger by a text, the content of its file."""
    from toolchains import ledger

    def read(text):
        monkeypatch.setattr(ledger, "RELEASES", tmp_path / "releases.json")
        ledger.RELEASES.write_text(text, encoding="utf-8")
        ledger.clear_caches()

    yield read
    monkeypatch.undo()
    ledger.clear_caches()


@pytest.fixture
def rich_results(tmp_path):
    """Results with something for every section of a machine's page."""
    import made_up

    return made_up.rich(tmp_path / "results")


@pytest.fixture(scope="session")
def known_results(tmp_path_factory):
    """Results in which the right answer to a case is known; tests only read them."""
    import made_up

    return made_up.results_in(tmp_path_factory.mktemp("known"))


@pytest.fixture(scope="session")
def known(known_results):
    """The data behind answers, from ``known_results``."""
    from analysis.costs import load_machine

    return load_machine(known_results, "box")


@pytest.fixture
def pair(tmp_path):
    """Results of BASE and NEW: one alias cell is slower, one copy cell is faster, the others are unchanged."""
    from sides import ROUTES, cells, write

    change = {(ROUTES[0], 8): 1.3, (ROUTES[1], 4): 0.7}
    return write(tmp_path / "base", cells(0)), write(tmp_path / "new", cells(1, change))


@pytest.fixture
def all_quiet(monkeypatch):
    """All samples that this process loads count as quiet, as in projects that do not judge samples (tiny.Project)."""
    from store import quiet

    monkeypatch.setattr(quiet, "NEAR_BASELINE_LOG", dict.fromkeys(quiet.NEAR_BASELINE_LOG, 9.0))


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The lines of the sampling log."""
    from benchmarks.core import timing

    path = tmp_path / "sampling.jsonl"
    monkeypatch.setenv(timing.LOG_VARIABLE, str(path))
    return lambda: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def logged(log):
    """A function: run a benchmark; return the result that asv gets and the run's one line of the sampling log."""
    from statements import ran

    from benchmarks.core import timing

    def run(*suite, **attributes):
        _, result = ran(*suite, **attributes)
        (line,) = log()
        os.remove(os.environ[timing.LOG_VARIABLE])
        return result, line

    return run


@pytest.fixture
def probe(monkeypatch):
    """Give probes and clocks of a quiet machine, whatever this machine does. Return a function that sets the seconds of
    the next probes."""
    from benchmarks.core import probes

    fast = itertools.count().__next__  # a CPU clock that gains a second per look: the process always had its processor

    def follow(course):
        course = itertools.chain(course, itertools.repeat(25e-6))
        monkeypatch.setattr(probes, "probe", lambda: next(course))

    monkeypatch.setattr(probes, "_RECENT", {kind: probes.Recent() for kind in probes.NEAR_BASELINE_LOG})
    monkeypatch.setattr(probes, "FIRST", 0)  # the first process's probes would use up a course
    monkeypatch.setattr(time, "process_time", fast)
    follow([])
    return follow


@pytest.fixture(autouse=True)
def keep(monkeypatch):
    """``--keep`` limits environments in the whole process (CONVERSION_KEEP_ENVIRONMENTS), but not in the next test."""
    monkeypatch.setenv("CONVERSION_KEEP_ENVIRONMENTS", "")
