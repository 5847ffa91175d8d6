"""Driving asv: its command line, its benchmarks, one run of it."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import cli
from cli import UserError
from toolchains import environments

from benchmarks.probes import PATIENCE_VARIABLE
from benchmarks.sampling_log import LOG_VARIABLE

from .processes import apart, last_line, session
from .state import State

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "reports" / "results"
ENVIRONMENTS = Path(".asv/env")  # in a checkout, as asv.conf.json has it
LAUNCH = "forkserver" if sys.platform.startswith("linux") else "spawn"


def new_id() -> str:
    """What is begun now, by this process: when, in UTC, and which; sorts by time, and is the name of a directory."""
    return f"{datetime.now(timezone.utc).strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"


def asv(*arguments: str) -> list[str]:
    """Command line of an asv command in the checkout."""
    return [sys.executable, "-m", "asv", *arguments, "--config", str(ROOT / "asv.conf.json")]


def check_asv() -> None:
    """UserError where asv or asv_runner, on which the timing rests, is missing or of another version."""
    pins = dict(re.findall(r"^(asv|asv_runner)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    for package, wanted in pins.items():
        try:
            installed = metadata.version(package)
        except metadata.PackageNotFoundError:
            installed = "none"
        if installed != wanted:
            raise UserError(
                f"the timing rests on {package} {wanted}, found {installed}: "
                f"pip install {' '.join(f'{name}=={version}' for name, version in pins.items())}"
            )


def register(machine: str) -> None:
    """Make the machine known to asv; UserError where asv's file of machines is broken."""
    from asv.util import UserError as Refused
    from toolchains import plugin

    try:
        plugin.register(machine)
    except Refused as why:
        raise UserError(str(why)) from None


def discover(machine: str, commit: str = "") -> dict[str, Any]:
    """All benchmarks with their parameters, as asv finds them with the toolchain ``commit``, or what is installed."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    only = [f"{commit}^!"] if commit else []
    command = asv("run", *only, "--machine", machine, "--launch-method", LAUNCH, "--bench", "just-discover")
    with tempfile.TemporaryDirectory() as results:
        done = apart(command, ROOT, {**os.environ, environments.RESULTS_VARIABLE: results})
        if done.returncode:
            raise UserError(f"asv found no benchmarks: {last_line(done.stdout + done.stderr, 'it printed nothing')}")
        benchmarks = json.loads((Path(results) / "benchmarks.json").read_text(encoding="utf-8"))
    return {name: benchmark for name, benchmark in benchmarks.items() if isinstance(benchmark, dict)}


def round_of(
    patterns: Sequence[str],
    machine: str,
    state: State,
    advance: Callable[[], None],
    commit: str = "",
    patience: tuple[float, int] = (0.0, 0),
    cores: Sequence[int] = (),
) -> None:
    """One asv run: every selected cell in one process, which logs its measurement.

    state     of the run, in whose step asv's results and what its processes log are kept
    commit    names a toolchain of the ledger; without it, what is installed is measured
    patience  seconds that its processes may wait for quiet together, and how many there will be
    cores     that they are held to; none: all
    """
    command = asv("run", *([f"{commit}^!"] if commit else []), "--machine", machine, "--launch-method", LAUNCH)
    command += ["-a", "rounds=1", "--show-stderr"]
    command += ["--cpu-affinity", ",".join(map(str, cores))] if cores else []
    for pattern in patterns:
        command += ["--bench", pattern]
    allowed = f"{max(0.0, patience[0]):.3f}/{patience[1]}"
    variables = {
        LOG_VARIABLE: str(state.log),
        PATIENCE_VARIABLE: allowed,
        environments.RESULTS_VARIABLE: str(state.results),
    }
    with (
        tempfile.TemporaryFile("w+") as output,
        session(command, ROOT, {**os.environ, **variables}, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        while process.poll() is None:
            time.sleep(0.3)
            advance()
        output.seek(0)
        text = output.read()
    advance()
    if process.returncode == 2:  # asv's code for: all saved, some failed
        errors = re.findall(r"^\s*(\w*(?:Error|Exception)\b.*)$", text, re.MULTILINE)
        which, why = ", ".join(failed_in(text)) or "see asv show", "; ".join(dict.fromkeys(errors))
        print(cli.line(f"failed: {which}: {why[:500]}"))
    elif process.returncode:
        raise UserError(f"asv stopped: {last_line(text, str(process.returncode))}")


def failed_in(text: str) -> list[str]:
    """The benchmarks of which cells failed, by what asv printed: below the name stands a table of cells."""
    return list(dict.fromkeys(re.findall(r"^\[[^\]]*\].*?(\S+)\s+(?:\d+/\d+ )?failed\s*$", text, re.MULTILINE)))
