"""asv plugin: makes the ledger, names the machine by its hardware, and brings the environment type "installed".

With it a plain ``asv run`` benchmarks the torch and numpy of the interpreter that runs asv and files the result under
their commit in the ledger. asv's own "existing" environment files under a hash that the user must give, records no
versions, and puts the interpreter's path into its name, so that two of them never compare.
"""

import json
import os
import sys
from pathlib import Path

from asv import environment, util
from asv.machine import Machine, MachineCollection

from . import installed, ledger

# asv loads plugins with the directory of asv.conf.json as the current one
LEDGER = Path(".asv/ledger")
RESULTS = Path("reports/results")


def recorded(results: Path = RESULTS) -> list[ledger.Toolchain]:
    """The toolchains that have results, from their run records, in order of release."""
    found = set()
    for path in results.glob("*/*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                made = json.loads(line)["toolchain"]
                found.add(ledger.Toolchain(made["torch"], made["numpy"]))
            except (ValueError, KeyError, TypeError):
                continue  # the loader of results names the broken record; asv can do without it
    return sorted(found, key=lambda toolchain: (toolchain.date, toolchain.tag))


def register(name: str) -> None:
    """Make ``name`` known to asv as this machine's, in asv's own file in the home directory."""
    try:
        MachineCollection.load(name)
    except util.UserError:
        MachineCollection.save(name, {**Machine.get_defaults(), "machine": name, "cpu": installed.cpu_model()})


def setup() -> None:
    """Called by asv once the plugin is loaded."""
    Machine.hardcoded_machine_name = installed.machine_name(os.cpu_count() or 1)
    register(Machine.hardcoded_machine_name)
    others = recorded()
    try:
        present = [installed.toolchain()]
    except ModuleNotFoundError:
        present = []  # asv show, compare and publish need no torch
    if present or others:
        ledger.make(LEDGER, [*(t for t in others if t not in present), *present])


class Installed(environment.Environment):
    """The torch and numpy of the running interpreter. Nothing is installed, nothing is changed."""

    tool_name = "installed"

    def __init__(self, conf, python, requirements, tagged_env_vars):
        self._executable = sys.executable
        self._python, self._requirements = python, requirements  # asv's constructor uses both before it sets them
        try:
            self._toolchain = installed.toolchain()
        except ModuleNotFoundError as missing:
            raise util.UserError(f"{missing}: install it, or run `make bench`, which does") from None
        super().__init__(conf, python, requirements, tagged_env_vars)

    @property
    def name(self):
        """One name for all toolchains of a Python version, so that asv compares across them."""
        return f"toolchain-py{self._python}"

    @property
    def installed_commit_hash(self):
        return ledger.commit_hash(LEDGER, self._toolchain)

    @classmethod
    def matches(cls, python):
        return python == f"{sys.version_info[0]}.{sys.version_info[1]}"

    def check_presence(self):
        return True

    def create(self):
        pass

    def install_project(self, conf, repo, commit_hash):
        if commit_hash != self.installed_commit_hash:
            raise util.UserError(
                f"{repo.get_decorated_hash(commit_hash, 8)} is not installed: this is {self._toolchain}"
            )

    def run(self, args, **kwargs):
        return util.check_output([self._executable, *args], **kwargs)
