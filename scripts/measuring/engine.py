"""Drive asv: discover the benchmarks of a checkout or a copy of it, and run selected cells."""

import atexit
import contextlib
import functools
import hashlib
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import cli
import psutil
from cli import RESULTS, ROOT, UserError
from store.asv_files import failed_cells
from store.files import BENCHMARKS, MACHINE, put, read_entries
from store.schema import LogLine, NoFigure, Settings, decode_log
from toolchains import environments, interpreters, ledger

from benchmarks.core import turns
from benchmarks.core.probes import PATIENCE_VARIABLE
from benchmarks.core.timing import GONE, LOG_VARIABLE
from benchmarks.core.versions import package_hash

from .machine import read_libraries, settings
from .processes import (
    Done,
    Environment,
    Program,
    environment_of,
    last_line,
    os_session,
    read_text,
    run_in_session,
    run_in_sessions,
)
from .profiles import Benchmarks, Names, exact_patterns

ENVIRONMENTS = Path(".asv/env")  # in a checkout, as in asv.conf.json
LAUNCH = "forkserver" if sys.platform.startswith("linux") else "spawn"
REVISION = "revision.txt"  # in a copy of the code: git's revision of it, or nothing
# What a run needs
CODE = ("asv.conf.json", "benchmarks", "requirements.txt", "scripts")
THIS_PYTHON = interpreters.release_of(interpreters.version())
INSTALL_NICENESS = 10  # a tenth of a core that counting also uses, so no count is delayed
# In a directory of asv's runs: the log of its processes, and asv's own files
LOG, FILES = "sampling.jsonl", "results"
COUNTING = "-counting"  # after LOG: how far counting is, see benchmarks/instructions.py
SILENT = "benchmark process exited without output (crash, out of memory or timeout)"
# For another Python: prints its versions of asv and asv_runner, then torch, numpy and their history
PRINT_VERSIONS = """
import sys
from importlib import metadata
sys.path.insert(0, sys.argv[1])
packages = metadata.distributions()
versions = {each.metadata["Name"].replace("-", "_"): each.version for each in packages}
print(versions.get("asv", "none"), versions.get("asv_runner", "none"), flush=True)
from toolchains import environments
toolchain = environments.read_toolchain()
print(toolchain.torch, toolchain.numpy, toolchain.history or "-", toolchain.python or "-")
"""
INSTALL = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from toolchains import environments, ledger
toolchain = ledger.toolchains_by_tag()[sys.argv[3]]
environments.prepare(Path(sys.argv[2]), toolchain, environments.environment_limit())
"""


def announce(text: str) -> None:
    """Print a line at once, even where the output goes to a file."""
    print(cli.one_line(text), flush=True)


@functools.cache
def found_directory() -> Path:
    """A directory for the benchmarks that asv finds; it is removed when this process ends."""
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def new_id() -> str:
    """Return a new id from the time in UTC and the process number. Ids sort by time and can name a
    directory."""
    return f"{datetime.now(timezone.utc).strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"


def this_command() -> str:
    """The command line, as a person would type it in the checkout."""
    return shlex.join(["python", f"scripts/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def copy_code(source: Path, root: Path) -> None:
    """Copy the parts that a run needs from ``source``, a checkout or a copy, into ``root``, which
    is made anew."""

    def ignored(directory: str, names: list[str]) -> set[str]:
        return {*names}.difference(CODE) if Path(directory) == source else {"__pycache__"}

    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, root, ignore=ignored)
    put(root / REVISION, revision_of(source))


def revision_of(root: Path) -> str:
    """Return git's revision of the code of a checkout, or of the one that it was copied from. It
    ends in "-dirty" if the code has changes or new files since. "" without git, as in a tarball."""
    if (root / REVISION).is_file():
        return read_text(root / REVISION)
    place = ["git", "--no-optional-locks", f"--git-dir={root / '.git'}", f"--work-tree={root}"]
    command = [*place, "status", "--porcelain=v2", "--branch", "--", *CODE]
    try:
        status = run_in_session(command, root).stdout
    except OSError:  # there is no git
        return ""
    commit = re.search("^# branch.oid ([0-9a-f]+)$", status, re.MULTILINE)
    is_dirty = re.search("^[^#]", status, re.MULTILINE)
    return commit[1] + ("-dirty" if is_dirty else "") if commit else ""


def link_environments(root: Path, target: Path) -> None:
    """Link the environments directory of a copy of the code to ``target``."""
    link = root / ENVIRONMENTS
    for directory in (target, link.parent):
        directory.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target, target_is_directory=True)


@dataclass(frozen=True)
class Suite:
    """A checkout, or a copy of its code, and the Python that runs asv there.

    commit  the toolchain to measure: a release of the ledger, or "" = that Python's own
    """

    root: Path = ROOT
    python: Path = Path(sys.executable)
    commit: str = ""

    @property
    def results(self) -> Path:
        return self.root / RESULTS.relative_to(ROOT)

    @property
    def environments(self) -> Path:
        return self.root / ENVIRONMENTS

    def environment_of(self, toolchain: ledger.Toolchain) -> Path:
        """Return the directory of a release's environment."""
        return environments.directory(self.environments, toolchain)

    @property
    def python_version(self) -> str:
        """Version of this process's Python, or release of the one that the toolchain is for."""
        toolchain = ledger.toolchains_by_commit().get(self.commit)
        return (toolchain and toolchain.python) or interpreters.version()

    def result_file(self, machine: str, commit: str, python: str = "") -> Path:
        """Return asv's result file of a toolchain on a machine, for that version of Python
        (default: ours). Measurements and run records lie in the same directory."""
        release = interpreters.release_of(python or self.python_version)
        return self.results / machine / f"{commit[:8]}-toolchain-py{release}.json"

    def of_release(self, tag: str) -> "Suite":
        """Return this suite for a release of the ledger; "": for its Python's own toolchain."""
        return replace(self, commit=ledger.toolchains_by_tag()[tag].commit if tag else "")

    # --- toolchains -------------------------------------------------------------------------------

    def current_toolchain(self) -> ledger.Toolchain | None:
        """Return the toolchain of this process, or None if torch or numpy is missing."""
        return environments.running_toolchain()

    def installed(self) -> ledger.Toolchain:
        """Return the suite's Python's toolchain. Raise UserError if torch, numpy or the pinned asv
        is missing."""
        command = [str(self.python), "-c", PRINT_VERSIONS, str(self.root / "scripts")]
        done = run_in_session(command, self.root, environment_of(self.python))
        versions, *toolchain = done.stdout.splitlines() or [""]
        check_asv(dict(zip(environments.PINNED, versions.split())))
        if not toolchain:
            raise UserError(f"{self.python}: {last_line(done.stderr)}")
        torch, numpy, *rest = toolchain[0].split()
        return ledger.Toolchain(torch, numpy, *(word.strip("-") for word in rest))

    def prepare(self) -> tuple[Path, ledger.Toolchain]:
        """Return a Python with the toolchain to measure, installed if missing, and the toolchain
        that it really has, with its build variant."""
        toolchain = ledger.toolchains_by_commit().get(self.commit)
        if toolchain is None:
            return self.python, self.installed()
        current = self.current_toolchain()
        if current and environments.is_installed(toolchain, current):
            return Path(sys.executable), current
        start = time.monotonic()
        was_ready = environments.is_ready(self.environment_of(toolchain))
        limit = environments.environment_limit()
        environment = environments.prepare(self.environments, toolchain, limit)
        build = environments.installed_in(environment, toolchain)
        if not was_ready:
            announce(f"{toolchain.tag}: {build} installed in {time.monotonic() - start:.0f} s")
        return environments.interpreter_of(environment), build

    @contextlib.contextmanager
    def install_ahead(self, tag: str | None) -> Iterator[None]:
        """Install a release, the next one, while the block runs, and wait for it at the end. If the
        install fails, the job that needs it says why. Do nothing if fewer than three environments
        may stay: the next, the measured and the reference's.

        The install runs in a process of its own. So this process keeps its lock of an environment,
        and the install ends with this process. Its niceness leaves the cores to the counts. With
        autogroups Linux weighs these instead (sched(7)).
        """
        if tag is None or not self.needs_install(ledger.toolchains_by_tag()[tag]):
            yield
            return
        start = time.monotonic()
        null = subprocess.DEVNULL
        places = [str(self.root / "scripts"), str(self.environments)]
        command = [sys.executable, "-c", INSTALL, *places, tag]
        with os_session(command, self.root, stdin=null, stdout=null, stderr=null) as process:
            with contextlib.suppress(OSError, psutil.Error):
                psutil.Process(process.pid).nice(INSTALL_NICENESS)
                Path(f"/proc/{process.pid}/autogroup").write_text(str(INSTALL_NICENESS))
            yield
            if process.wait() == 0:
                announce(f"{tag}: installed ahead, ready after {time.monotonic() - start:.0f} s")

    def needs_install(self, toolchain: ledger.Toolchain) -> bool:
        """Whether a toolchain is missing that can be installed while another one is measured."""
        current = self.current_toolchain()
        if environments.environment_limit() < 3:
            return False
        if current and environments.is_installed(toolchain, current):
            return False
        return not environments.is_ready(self.environment_of(toolchain))

    def settings(self, python: Path) -> Settings:
        """Return what a Python imports and its device. See ``machine.settings``."""
        return settings(python, self.root)

    def code_hash(self) -> str:
        """Return a hash of all files of this suite's benchmarks/."""
        return package_hash(self.root / "benchmarks")

    def read_libraries(self, python: Path) -> None:
        """Read a Python's libraries from disk again. See ``machine.read_libraries``."""
        read_libraries(python)

    # --- asv --------------------------------------------------------------------------------------

    def asv(self, machine: str, patterns: Names, *options: str) -> list[str]:
        """Return the command line of asv run."""
        command = [str(self.python), "-m", "asv", "run"]
        if self.commit:
            command.append(f"{self.commit}^!")
            if (release := interpreters.release_of(self.python_version)) != THIS_PYTHON:
                command += ["--environment", f"toolchain:{release}"]
        command += ["--config", str(self.root / "asv.conf.json"), "--machine", machine]
        command += ["--launch-method", LAUNCH, *options]
        for pattern in patterns:
            command += ["--bench", pattern]
        return command

    def _found_benchmarks(self) -> Path:
        """The file in which asv's first run of this process keeps the benchmarks that it found in
        this code with this toolchain; later runs, also in other copies of the code, read it. To
        find them takes an import of torch."""
        key = "-".join(map(str, (self.python, self.commit, self.code_hash())))
        return found_directory() / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def asv_program(self, command: Names, results: Path, **variables: str) -> Program:
        """A command of ``asv`` as a program that writes into the directory ``results``."""
        variables[environments.RESULTS_VARIABLE] = str(results)
        variables[environments.BENCHMARKS_VARIABLE] = str(self._found_benchmarks())
        return Program(command, self.root, environment_of(self.python, **variables))

    def run_asv(self, command: Names, results: Path) -> Done:
        """Run a command of ``asv``, which writes into the directory ``results``."""
        return run_in_sessions([self.asv_program(command, results)])[0]

    def discover(self, machine: str, copy_to: Path | None = None) -> Benchmarks:
        """Return all benchmarks with their parameters, as asv finds them.

        copy_to  write asv's benchmarks.json there, too
        """
        with tempfile.TemporaryDirectory() as results:
            done = self.run_asv(self.asv(machine, ["just-discover"]), Path(results))
            if done.returncode:
                reason = last_line(done.stdout + done.stderr, "it printed nothing")
                raise UserError(f"asv found no benchmarks: {reason}")
            description = Path(results, BENCHMARKS)
            if copy_to:
                put(copy_to, description.read_bytes())
            return read_entries(description)

    def measure(
        self,
        cells: Names,
        machine: str,
        place: Path,
        advance: Callable[[], None],
        patience: tuple[float, int] = (0.0, 0),
        cores: Sequence[int] = (),
    ) -> None:
        """Run asv once: each of these cells in one process, which logs its measurement.

        place     directory for the processes' log, ``LOG``, and asv's results, ``FILES``
        patience  seconds that the processes together may wait for quiet, and the number of
                  processes
        cores     the processes run on these cores only; empty: on all
        """
        program = self.cell_program(cells, machine, place, patience, cores)
        earlier = len(read_log(place))
        done = run_in_sessions([program], meanwhile=advance)[0]
        check_run(done, read_log(place)[earlier:], place / FILES / machine)

    def cell_program(
        self,
        cells: Names,
        machine: str,
        place: Path,
        patience: tuple[float, int] = (0.0, 0),
        cores: Sequence[int] = (),
        variables: Environment | None = None,
    ) -> Program:
        """The program of ``measure``, with further environment variables."""
        affinity = ["--cpu-affinity", ",".join(map(str, cores))] if cores else []
        options = ["-a", "rounds=1", "--show-stderr", *affinity]
        command = self.asv(machine, exact_patterns(cells), *options)
        seconds, processes = patience
        variables = {
            LOG_VARIABLE: str(place / LOG),
            PATIENCE_VARIABLE: f"{max(0.0, seconds):.3f}/{processes}",
            **(variables or {}),
        }
        return self.asv_program(command, place / FILES, **variables)


def home_variables(home: Path) -> dict[str, str]:
    """Return environment variables that give asv a home directory of its own. asv 0.6.6 writes its
    file of machines in place at each run, so that another run may read half of it. Python and pip
    use the user's packages, settings and cache."""
    user = Path.home()
    return {
        "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME") or str(user / ".config"),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(user / ".cache"),
        "PYTHONUSERBASE": site.getuserbase(),
        "HOME": str(home),
    }


@contextlib.contextmanager
def pipes_of_turns() -> Iterator[list[Path]]:
    """Make the pipes by which the processes of two sides take turns. They stay open, so that no
    message is lost between two processes of a side."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pipes = [directory / role for role in turns.ROLES]
        for pipe in pipes:
            os.mkfifo(pipe)
            stack.callback(os.close, os.open(pipe, os.O_RDWR))
        yield pipes


def measure_in_turns(
    sides: Sequence[tuple[Suite, Path]], cells: Names, machine: str, advance: Callable[[], None]
) -> None:
    """Run asv once on each of two sides at the same time. The two processes of a cell take their
    samples in turns, those of the first side first.

    sides  the suite of each, and its place: see ``Suite.measure``
    """
    from asv.machine import MachineCollection  # check_asv has verified that asv is installed

    with pipes_of_turns() as pipes:
        home = pipes[1].parent
        shutil.copy(MachineCollection.get_machine_file_path(), home)
        variables = [{turns.VARIABLE: str(pipe)} for pipe in pipes]
        variables[1] |= home_variables(home)
        programs = [
            suite.cell_program(cells, machine, place, variables=more)
            for (suite, place), more in zip(sides, variables)
        ]
        results = run_in_sessions(programs, meanwhile=advance)
    for (_, place), done in zip(sides, results):
        check_run(done, read_log(place), place / FILES / machine)


CHECKOUT = Suite()  # this checkout with this Python


def check_run(done: Done, lines: Sequence[LogLine], results: Path) -> None:
    """Announce which cells of a run of asv failed or lost their device. Raise UserError if asv
    stopped.

    lines    of the run's processes
    results  directory of asv's result files
    """
    without = [line for line in lines if isinstance(line, NoFigure)]
    skipped = [line.skipped or "" for line in without]
    if lost := [reason for reason in skipped if reason.startswith(GONE)]:
        announce(f"{lost[0]}; {len(lost)} cells that need it were skipped")
    if done.returncode == 2:  # asv's code for: results saved, some failed
        failed = failed_cells([path for path in results.glob("*.json") if path.name != MACHINE])
        names = ", ".join(dict.fromkeys(cell.partition("(")[0] for cell in failed))
        reasons = dict.fromkeys(line.failed for line in without if line.failed is not None)
        announce(f"failed: {names}: {'; '.join(reasons)[:500] or SILENT}")
    elif done.returncode:
        reason = last_line(done.stdout + done.stderr, str(done.returncode))
        raise UserError(f"asv stopped: {reason}")


def read_log(
    place: Path, default_round: int = 0, rounds: Mapping[str, int] | None = None
) -> list[LogLine]:
    """Return the lines that processes have logged in the directory of a run. See ``decode_log``."""
    return decode_log((place / LOG).read_text(encoding="utf-8"), default_round, rounds)


# --- asv's versions and settings ------------------------------------------------------------------


def check_asv(versions: Mapping[str, str] | None = None) -> None:
    """Raise UserError unless asv and asv_runner, which do the timing, have the pinned versions.

    versions  package -> its version; None: look in this Python
    """
    pins = environments.pins()
    for package, pin in pins.items():
        if versions is None:
            distribution = environments.find_distribution(package)
            version = distribution.version if distribution else "none"
        else:
            version = versions.get(package, "none")
        if version != pin:
            install = "pip install " + " ".join(f"{name}=={each}" for name, each in pins.items())
            raise UserError(f"the timing rests on {package} {pin}, found {version}: {install}")


def set_environment_limit(requested: int | None) -> int:
    """Set the maximum number of environments on disk, also for asv, and return it: as requested, or
    else from the environment variable or asv.conf.json."""
    from asv.config import Config  # check_asv has verified that asv is installed

    default = Config.load(str(ROOT / "asv.conf.json")).keep_environments
    number = requested or environments.environment_limit(default)
    os.environ[environments.LIMIT_VARIABLE] = str(number)
    return number


def register(machine: str) -> None:
    """Register the machine with asv. Raise UserError if asv's file of machines is broken."""
    from asv.util import UserError as AsvError
    from toolchains import plugin

    try:
        plugin.register_machine(machine)
    except AsvError as error:
        raise UserError(str(error)) from None
