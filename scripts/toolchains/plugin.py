"""asv plugin: the ledger as a repository asv can ask, and an environment that is the toolchain asv asks for.

With it a plain ``asv run`` benchmarks the torch and numpy of the interpreter that runs asv and files the result under
their commit, and ``asv run torch-2.6.0^!`` installs that release and benchmarks it, under the same environment name:
asv compares results of one environment only, and gives every version in its own matrix an environment of its own.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from asv import environment, util
from asv.config import Config
from asv.console import log
from asv.machine import Machine, MachineCollection
from asv.plugins.git import Git
from asv.repo import NoRepository, NoSuchNameError

from . import environments, ledger

GIT = shutil.which("git")
CONFIGURATION = Path(__file__).resolve().parents[2] / "asv.conf.json"
# asv loads plugins with the directory of asv.conf.json as the current one
LEDGER = Path(".asv/ledger")
RESULTS = Path("reports/results")
OUTSIDE = "toolchains.jsonl"  # in the results directory: toolchains outside the histories that were measured


def recorded(results: Path = RESULTS) -> list[ledger.Toolchain]:
    """The toolchains outside the histories that have results, in order of release."""
    toolchains = set()
    for path in [results / OUTSIDE, *results.glob("*/*.jsonl")]:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
            try:
                record = json.loads(line)
                made = record.get("toolchain", record)
                toolchain = ledger.recorded(made["torch"], made["numpy"], made.get("tag"))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                log.warning(f"{path}: left out a toolchain that asv cannot have: {str(error)[:200]!a}")
                continue
            if not toolchain.history:
                toolchains.add(toolchain)
    return sorted(toolchains, key=lambda toolchain: (toolchain.date, toolchain.tag))


def remember(toolchain: ledger.Toolchain, results: Path = RESULTS) -> None:
    """Keep a toolchain outside the histories in the ledger for good: asv cannot publish a commit that is gone."""
    if toolchain.history or toolchain in recorded(results):
        return
    results.mkdir(parents=True, exist_ok=True)
    with (results / OUTSIDE).open("a", encoding="utf-8") as file:
        made = {"tag": toolchain.tag, "torch": toolchain.torch, "numpy": toolchain.numpy}
        file.write(json.dumps(made, sort_keys=True) + "\n")


def register(name: str) -> None:
    """Make ``name`` known to asv as this machine's, in asv's own file in the home directory.

    asv's UserError where that file is broken. It is replaced whole: asv 0.6.6 writes it in place, so whoever reads
    meanwhile, or after the disk was full, would find half of it.
    """
    from filelock import FileLock  # comes with asv, by way of virtualenv

    path = Path(MachineCollection.get_machine_file_path())
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with FileLock(path.with_name(path.name + ".lock")):  # or one of two would lose its machine
            try:
                MachineCollection.load(name)
            except util.UserError:
                if path.is_file():
                    shutil.copy(path, fresh)
                info = {**Machine.get_defaults(), "machine": name, "cpu": environments.cpu_model()}
                MachineCollection.save(name, info, _path=str(fresh))
                fresh.replace(path)
    except (util.UserError, TypeError, ValueError, KeyError, AttributeError):
        raise util.UserError(f"{path} is broken: remove it, and asv makes it anew") from None
    finally:
        fresh.unlink(missing_ok=True)


def configured(name: str) -> Any:
    """A setting of asv.conf.json that is none of asv's."""
    return getattr(Config.load(str(CONFIGURATION)), name)


def setup() -> None:
    """Called by asv once the plugin is loaded."""
    environment = ledger.git_environment(os.environ)
    os.environ.clear()  # asv asks git, too
    os.environ.update(environment)
    if environments.RESULTS_VARIABLE in os.environ:
        # asv saves what it knows of the machine before it makes an environment, which is where results_dir changes
        save = Machine.save
        Machine.save = lambda machine, results_dir: save(machine, os.environ[environments.RESULTS_VARIABLE])
    Machine.hardcoded_machine_name = environments.machine_name()
    register(Machine.hardcoded_machine_name)
    try:
        here = environments.here()  # asv show, compare and publish, and runs of other releases, need no torch
        if GIT:
            ledger.make(LEDGER, [toolchain for toolchain in recorded() if toolchain != here], here)
    except OSError as error:
        raise util.UserError(f"{error.filename} {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise util.UserError(f"git cannot make the ledger: {error.stderr.decode(errors='replace').strip()}") from None


class Installed(NoRepository):
    """What is installed as asv's repository where there is no git: to measure it needs no history."""

    dvcs = "ledger" if not GIT else "ledger without git"

    def pull(self):
        """There is nothing newer."""

    def get_hash_from_name(self, name):
        if name != ledger.HERE:
            self._raise_error()
        return environments.toolchain().commit

    def get_hashes_from_range(self, range_spec):
        self._raise_error()

    def get_decorated_hash(self, commit, length=8):
        return f"{commit[:length]} <{environments.here()}>"

    def get_date(self, commit):
        return 1000 * int(environments.toolchain().author.split()[2])  # in milliseconds, as asv has it

    def _raise_error(self):
        raise util.UserError("git is needed for more than what is installed, and is not there")


class Ledger(Git):
    """The ledger as asv's repository: ``"dvcs": "ledger"`` in asv.conf.json."""

    dvcs = "ledger" if GIT else "ledger with git"

    def get_hash_from_name(self, name):
        if name == ledger.HERE and environments.here() is None:
            # asv says: Unknown branch ... in configuration
            raise NoSuchNameError(
                "here, since torch and numpy are not installed in this Python (a release is installed apart: "
                "asv run torch-2.6.0^!), but named"
            )
        return super().get_hash_from_name(name)

    def get_hashes_from_range(self, range_spec):
        try:  # as asv does, but without showing git's own words for it
            command = ["rev-list", "--first-parent", *shlex.split(range_spec), "--"]
            return self._run_git(command, dots=False, display_error=False).split()
        except util.ProcessError:
            raise util.UserError(
                f"{range_spec!r} is no range of toolchains; `git -C {LEDGER} tag` lists them, "
                "and torch-2.0.1..torch-2.6.0 is what came after the first up to the second"
            ) from None

    def get_branch_commits(self, branch):
        """None for the branch of other toolchains as long as there are none."""
        if branch == ledger.OUTSIDE and not self._run_git(["branch", "--list", branch], dots=False).strip():
            return []
        return super().get_branch_commits(branch)

    def get_new_branch_commits(self, branches, existing):
        """``asv run NEW`` and ``ALL`` are about the histories: what is not one's own installed toolchain is gone."""
        return super().get_new_branch_commits(ledger.PACKAGES, existing)


class ToolchainEnvironment(environment.Environment):
    """The running interpreter for what is installed in it, and for a release of a history an environment of its own.

    The constructor is what asv calls first in every command that measures. There the branches to take commits from by
    default become what is installed; those in asv.conf.json are the branches to publish. Results go elsewhere, too, if
    a run that is not whole yet says so.
    """

    tool_name = "toolchain"

    def __init__(self, conf, python, requirements, tagged_env_vars):
        # asv's constructor uses these before it sets them
        self._python, self._requirements = python, requirements
        self._commit = None
        super().__init__(conf, python, requirements, tagged_env_vars)
        conf.branches = [ledger.HERE]
        conf.results_dir = os.environ.get(environments.RESULTS_VARIABLE, conf.results_dir)
        self._here = environments.here()
        self._executable = sys.executable
        self._keep = environments.keep(conf.keep_environments)
        self._failed: dict[str, environments.InstallError] = {}

    @property
    def name(self):
        """One name for all toolchains of a Python version, so that asv compares across them."""
        return f"toolchain-py{self._python}"

    @property
    def dir_name(self):
        return self.name

    def _get_installed_commit_hash(self):
        return self._commit

    @classmethod
    def matches(cls, python):
        return python == f"{sys.version_info[0]}.{sys.version_info[1]}"

    def check_presence(self):
        return True

    def create(self):
        """Nothing yet: what is to be installed is known once asv names the commit."""

    def install_project(self, conf, repo, commit_hash):
        """Make the toolchain at this commit the one that ``run`` runs in."""
        self._commit = None
        here = self._here
        if commit_hash is None:  # asv check asks for no commit
            self._executable = sys.executable
        elif here and commit_hash == here.commit:
            remember(here, Path(os.environ.get(environments.RESULTS_VARIABLE, RESULTS)))
            self._executable = sys.executable
        else:
            toolchain = ledger.find(commit_hash)
            if toolchain is None:
                raise util.UserError(self._why_not(repo, commit_hash))
            if here and environments.same(toolchain, here):
                self._executable = sys.executable
            else:
                self._executable = str(self._install(conf, toolchain))
        self._commit = commit_hash
        self._set_commit_hash(commit_hash)

    def _why_not(self, repo, commit_hash):
        if len(commit_hash) != 40:  # asv run TAGS
            return "asv files the results of all of TAGS under one wrong name: name a range, or ALL"
        what = repo.get_decorated_hash(commit_hash, 8)
        return f"{what} is not installed: this is {self._here or 'a Python without torch'}, and it is in no history"

    def _install(self, conf, toolchain):
        try:
            if toolchain.tag in self._failed:
                raise self._failed[toolchain.tag]
            root = Path(conf.env_dir).absolute()
            if not environments.is_ready(environments.directory(root, toolchain)):
                log.info(f"Installing {toolchain}")
            ready = environments.prepare(root, toolchain, self._keep, conf.install_timeout)
            return environments.python(ready)
        except environments.InstallError as error:
            if toolchain.tag not in self._failed:
                log.error(f"{toolchain.tag} cannot be installed: {error}")
            self._failed[toolchain.tag] = error
            # asv files the benchmarks of this commit as failed and goes on
            raise util.ProcessError(["install", toolchain.tag], 1, "", str(error)) from None

    def run(self, args, **kwargs):
        env = dict(kwargs.pop("env", os.environ))
        path = env.pop("PYTHONPATH", None)
        env.pop("ASV_PYTHONPATH", None)
        if path and self._executable == sys.executable:
            # asv's runner drops PYTHONPATH, and with it a torch that was found there, unless it has this name, too
            env.update(PYTHONPATH=path, ASV_PYTHONPATH=path)
        return util.check_output([self._executable, *args], env=env, **kwargs)
