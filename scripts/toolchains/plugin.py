"""asv plugin: the ledger as asv's repository, and an environment type that provides the requested
toolchain.

With the plugin a plain ``asv run`` benchmarks the torch and numpy of the interpreter that runs asv.
The result is filed under their commit. ``asv run torch-2.6.0^!`` installs that release and
benchmarks it. Both have the same environment name, because asv compares results within one
environment only. asv's own matrix makes an environment per version.
"""

import json
import os
import shutil
import sys
from itertools import accumulate
from pathlib import Path

from asv import environment, util
from asv.console import log
from asv.machine import Machine, MachineCollection
from asv.plugins.git import Git
from asv.repo import NoSuchNameError

from . import environments, interpreters, ledger

# asv loads plugins with the directory of asv.conf.json as the current one
RUNNING = "here"  # name of the running interpreter's toolchain, whatever its branch
RUNNING_PYTHON = interpreters.release_of(interpreters.version())
RESULTS = Path("reports/results")
OTHER_TOOLCHAINS = (
    "toolchains.jsonl"  # in the results directory: measured toolchains outside the histories
)


def read_other_toolchains(results: Path = RESULTS) -> list[ledger.Toolchain]:
    """The toolchains outside the histories that have results, in order of release."""
    toolchains = set()
    for path in [results / OTHER_TOOLCHAINS, *results.glob("*/*.jsonl")]:
        if not path.is_file():
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
                versions = record.get("toolchain", record)
                toolchains.add(
                    ledger.parse_toolchain(
                        versions["torch"],
                        versions["numpy"],
                        versions.get("tag"),
                        versions.get("python", ""),
                    )
                )
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                log.warning(
                    f"{path}: left out a toolchain that asv cannot have: {str(error)[:200]!a}"
                )
    outside = [toolchain for toolchain in toolchains if not toolchain.history]
    return sorted(outside, key=lambda toolchain: (toolchain.date, toolchain.tag))


def record_toolchain(toolchain: ledger.Toolchain, results: Path) -> None:
    """Add a toolchain outside the histories to the ledger. asv cannot publish a commit that is
    missing there."""
    if toolchain.history or toolchain in read_other_toolchains(results):
        return
    results.mkdir(parents=True, exist_ok=True)
    with (results / OTHER_TOOLCHAINS).open("a", encoding="utf-8") as file:
        versions = {"tag": toolchain.tag, "torch": toolchain.torch, "numpy": toolchain.numpy}
        versions |= {"python": toolchain.python} if toolchain.python else {}
        file.write(json.dumps(versions, sort_keys=True) + "\n")


def register_machine(name: str) -> None:
    """Register ``name`` as this machine's name in asv's own file in the home directory.

    Raise asv's UserError if that file is broken. The file is replaced as a whole. asv 0.6.6 writes
    it in place: a reader would find half of it during the write, or after the disk was full.
    """
    from filelock import FileLock  # comes with asv, by way of virtualenv

    path = Path(MachineCollection.get_machine_file_path())
    if not path.is_absolute():
        raise util.UserError(
            f"set HOME: this user has no home directory, where asv keeps {path.name}"
        )
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with FileLock(
            path.with_name(path.name + ".lock")
        ):  # two writers at a time would lose one machine
            machines = util.load_json(path) if path.is_file() else {}
            if name not in machines:
                if path.is_file():
                    shutil.copy(path, fresh)  # keeps the file's mode
                info = {**Machine.get_defaults(), "machine": name, "cpu": environments.cpu_model()}
                MachineCollection.save(name, info, _path=str(fresh))
                fresh.replace(path)
    except (util.UserError, TypeError, ValueError, KeyError, AttributeError):
        raise util.UserError(f"{path} is broken: remove it, and asv makes it anew") from None
    finally:
        fresh.unlink(missing_ok=True)


def setup() -> None:
    """Prepare asv, which calls this function after it has loaded the plugin."""
    try:
        ledger.toolchains_by_commit()
    except OSError as error:
        raise util.UserError(f"{error.filename} {error.strerror}") from None
    if environments.RESULTS_VARIABLE in os.environ:
        # asv saves machine.json before it makes the environment, whose constructor changes
        # results_dir
        save = Machine.save
        Machine.save = lambda machine, results_dir: save(
            machine, os.environ[environments.RESULTS_VARIABLE]
        )
    Machine.hardcoded_machine_name = environments.machine_name()
    register_machine(Machine.hardcoded_machine_name)


class Ledger(Git):
    """The ledger as asv's repository: ``"dvcs": "ledger"`` in asv.conf.json. Names and ranges are
    as for git. There is no git repository: this class itself answers where asv's class asks git."""

    dvcs = "ledger"
    _pulled = True  # there is nothing to fetch

    def __init__(self, url=None, path=None):
        # asv show, compare and publish, and runs of other releases, need no torch
        running = environments.running_toolchain()
        outside = [toolchain for toolchain in read_other_toolchains() if toolchain != running]
        if running and not running.history:
            outside.append(running)
        lines = {
            **{name: ledger.history(name) for name in ledger.histories()},
            ledger.OTHER_BRANCH: outside,
        }
        self._toolchains = {
            toolchain.commit: toolchain for line in lines.values() for toolchain in line
        }
        self._lines = {
            branch: [toolchain.commit for toolchain in line] for branch, line in lines.items()
        }
        # Commit -> itself and the earlier commits of its branch, newest first
        self._up_to = {
            commit: line[place::-1]
            for line in self._lines.values()
            for place, commit in enumerate(line)
        }
        self._names = self.get_tags()
        self._names |= {branch: line[-1] for branch, line in self._lines.items() if line}
        if running:
            self._names |= dict.fromkeys((RUNNING, "HEAD"), running.commit)

    def get_hash_from_name(self, name):
        base = name.rstrip("^")
        if base in (RUNNING, "HEAD") and base not in self._names:
            # asv says: Unknown branch ... in configuration
            raise NoSuchNameError(
                "here, since torch and numpy are not installed in this Python (a release is "
                "installed apart: asv run torch-2.6.0^!), but named"
            )
        prefix = base if len(base) > 3 else "no commit"
        commits = {
            commit
            for known_name, commit in self._names.items()
            if known_name == base or commit.startswith(prefix)
        }
        ancestors = self._up_to[commits.pop()] if len(commits) == 1 else []
        generation = len(name) - len(base)
        if generation >= len(ancestors):
            raise NoSuchNameError(name)
        return ancestors[generation]

    def get_hashes_from_range(self, range_spec):
        try:
            first, dots, last = range_spec.rpartition("..")
            if last.endswith("^!"):
                return [self.get_hash_from_name(last.removesuffix("^!"))]
            left_out = self._up_to[self.get_hash_from_name(first)] if dots else []
            return [
                commit
                for commit in self._up_to[self.get_hash_from_name(last)]
                if commit not in left_out
            ]
        except NoSuchNameError:
            raise util.UserError(
                f"{range_spec!r} is no range of toolchains, such as torch-2.6.0^! or "
                "torch-2.0.1..torch-2.6.0 (those after the first, up to the second); "
                f"{ledger.RELEASES.name} lists the releases"
            ) from None

    def get_name_from_hash(self, commit):
        return self._toolchains[commit].tag if commit in self._toolchains else None

    def get_tags(self):
        return {toolchain.tag: commit for commit, toolchain in self._toolchains.items()}

    def get_date(self, commit):
        return 1000 * self._toolchains[commit].commit_time  # in milliseconds, as in asv

    get_date_from_name = get_date  # asv names commits alone

    def get_branch_commits(self, branch):
        """Commits of a branch, newest first. The branch of other toolchains may be empty."""
        return self._lines.get(branch, [])[::-1]

    def get_new_branch_commits(self, branches, existing):
        """Let ``asv run NEW`` and ``ALL`` take the histories only. Other toolchains are no longer
        installed."""
        return super().get_new_branch_commits(ledger.PACKAGES, existing)

    def get_revisions(self, commits):
        """Commit -> its position in time. Within a branch the order of releases counts, whose days
        go back and forth."""
        days: dict[str, int] = {}
        for line in self._lines.values():
            days |= dict(zip(line, accumulate(map(self.get_date, line), max)))
        return {
            commit: place
            for place, commit in enumerate(sorted(days, key=days.__getitem__))
            if commit in commits
        }


class ToolchainEnvironment(environment.Environment):
    """The running interpreter for its own toolchain, or a separate environment for a release of a
    history, which may be of another Python (--environment toolchain:3.13).

    asv calls the constructor first in every command that measures. So the constructor replaces the
    default branches by the installed toolchain: those in asv.conf.json are for publishing. It also
    redirects the results of a run that is not complete yet.
    """

    tool_name = "toolchain"

    def __init__(self, conf, python, requirements, tagged_env_vars):
        if python == RUNNING_PYTHON.rstrip("t"):  # asv's name of the running one
            python = RUNNING_PYTHON
        pinned = {each.python for each in ledger.toolchains_by_commit().values()}
        if python not in {RUNNING_PYTHON, *pinned}:
            raise environment.EnvironmentUnavailable(f"Python {python}: start asv with that Python")
        self._requirements = requirements  # asv's constructor uses them before it sets them
        super().__init__(conf, python, requirements, tagged_env_vars)
        conf.branches = [RUNNING]
        conf.results_dir = os.environ.get(environments.RESULTS_VARIABLE, conf.results_dir)
        self._running = environments.running_toolchain()
        self._executable = sys.executable
        self._keep = environments.environment_limit(conf.keep_environments)
        self._failed: dict[str, str] = {}  # tag -> why it cannot be installed
        self._is_foreign = python != RUNNING_PYTHON

    @property
    def name(self):
        """Return the same name for all toolchains of a Python, so that asv compares them."""
        return f"toolchain-py{self._python}"

    def create(self):
        """Do nothing yet. The toolchain to install is known when asv names the commit."""

    def install_project(self, conf, repo, commit_hash):
        """Select the toolchain of this commit for ``run``."""
        self._executable = sys.executable
        running = self._running
        if running and commit_hash == running.commit:
            record_toolchain(running, Path(os.environ.get(environments.RESULTS_VARIABLE, RESULTS)))
        elif commit_hash is not None:  # asv check asks for no commit
            toolchain = ledger.toolchains_by_commit().get(commit_hash)
            if len(commit_hash) != 40:  # asv run TAGS
                raise util.UserError(
                    "asv files the results of all of TAGS under one wrong name: "
                    "name a range, or ALL"
                )
            if toolchain is None:
                raise util.UserError(
                    f"{repo.get_decorated_hash(commit_hash, 8)} is not installed: this is "
                    f"{running or 'a Python without torch'}, and it is in no history"
                )
            if toolchain.python != self._python if toolchain.python else self._is_foreign:
                raise util.UserError(
                    f"{toolchain.tag} is not for Python {self._python}: "
                    f"write --environment toolchain:{toolchain.python or RUNNING_PYTHON}"
                )
            if not (running and environments.is_installed(toolchain, running)):
                self._executable = str(self._install(conf, toolchain))
        self._set_commit_hash(commit_hash)

    def _install(self, conf, toolchain):
        """Return the Python of a release. A failed installation is not tried again."""
        if toolchain.tag not in self._failed:
            root = Path(conf.env_dir).absolute()
            if not environments.is_ready(environments.directory(root, toolchain)):
                log.info(f"Installing {toolchain}")
            try:
                return environments.interpreter_of(
                    environments.prepare(root, toolchain, self._keep, conf.install_timeout)
                )
            except environments.InstallError as error:
                log.error(f"{toolchain.tag} cannot be installed: {error}")
                self._failed[toolchain.tag] = str(error)
        # asv files the benchmarks of this commit as failed and goes on
        raise util.ProcessError(["install", toolchain.tag], 1, "", self._failed[toolchain.tag])

    def run(self, args, **kwargs):
        if self._is_foreign and self._executable == sys.executable and "discover" not in args:
            raise util.UserError(f"this is not Python {self._python}: name a toolchain of it")
        env = dict(kwargs.pop("env", os.environ))
        path = env.pop("PYTHONPATH", None)
        env.pop("ASV_PYTHONPATH", None)
        if path and self._executable == sys.executable:
            # asv's runner drops PYTHONPATH unless ASV_PYTHONPATH is set, too. A torch found there
            # would be lost
            env.update(PYTHONPATH=path, ASV_PYTHONPATH=path)
        known = Path(env.get(environments.BENCHMARKS_VARIABLE, ""))
        if "discover" in args and known.is_file():
            shutil.copyfile(known, args[-1])
            return ""
        output = util.check_output([self._executable, *args], env=env, **kwargs)
        if "discover" in args and known.is_absolute() and Path(args[-1]).is_file():
            shutil.copyfile(args[-1], known)
        return output
