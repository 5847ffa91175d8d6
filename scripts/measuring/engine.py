"""Drive asv: discover the benchmarks of a checkout, or of a copy of its code, and run selected cells."""

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import cli
from cli import RESULTS, ROOT, UserError
from store.asv_files import failed_cells
from store.files import MACHINE, put
from store.schema import LogLine, NoFigure, decode_log
from toolchains import environments, ledger

from benchmarks.probes import PATIENCE_VARIABLE
from benchmarks.sampling_log import GONE, LOG_VARIABLE

from .processes import apart, last_line
from .profiles import exactly

ENVIRONMENTS = Path(".asv/env")  # in a checkout, as in asv.conf.json
LAUNCH = "forkserver" if sys.platform.startswith("linux") else "spawn"
CODE = (
    "asv.conf.json",
    "benchmarks",
    "requirements.txt",
    "scripts",
)  # the parts of a checkout that a run needs
# Ask another Python: prints its versions of asv and asv_runner, then torch, numpy and their history
ASK = """
import sys
from importlib import metadata
sys.path.insert(0, sys.argv[1])
found = {each.metadata["Name"].replace("-", "_"): each.version for each in metadata.distributions()}
print(found.get("asv", "none"), found.get("asv_runner", "none"), flush=True)
from toolchains import environments
has = environments.read_toolchain()
print(has.torch, has.numpy, has.history)
"""


def new_id() -> str:
    """Return a new id from the time in UTC and the process number. Ids sort by time and can name a directory."""
    return f"{datetime.now(timezone.utc).strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"


def this_command() -> str:
    """The command line, as a person would type it in the checkout."""
    return shlex.join(["python", f"scripts/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def environment_of(python: Path, **variables: str) -> dict[str, str]:
    """Return environment variables for programs of that Python: this process's, updated by ``variables``."""
    inherited = dict(os.environ)
    if python != Path(sys.executable):
        inherited.pop("PYTHONPATH", None)  # packages found there belong to this Python
    return {**inherited, **variables}


def copy_code(source: Path, root: Path) -> None:
    """Copy the parts that a run needs from ``source``, a checkout or a copy, into ``root``, which is made anew."""

    def left_out(place: str, names: list[str]) -> Collection[str]:
        return {*names}.difference(CODE) if Path(place) == source else {"__pycache__"}

    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, root, ignore=left_out)


def link_environments(root: Path, place: Path) -> None:
    """Link the environments directory of a copy of the code to ``place``."""
    link = root / ENVIRONMENTS
    for directory in (place, link.parent):
        directory.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(place, target_is_directory=True)


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

    def asv(self, machine: str, patterns: Sequence[str], *options: str) -> list[str]:
        """Return the command line of asv run."""
        which = [f"{self.commit}^!"] if self.commit else []
        command = [
            str(self.python),
            "-m",
            "asv",
            "run",
            *which,
            "--config",
            str(self.root / "asv.conf.json"),
        ]
        benches = [word for pattern in patterns for word in ("--bench", pattern)]
        return [*command, "--machine", machine, "--launch-method", LAUNCH, *options, *benches]

    def installed(self) -> ledger.Toolchain:
        """Return this Python's toolchain. Raise UserError if torch, numpy or the pinned asv is missing."""
        done = apart(
            [self.python, "-c", ASK, self.root / "scripts"], self.root, environment_of(self.python)
        )
        versions, *has = done.stdout.splitlines() or [""]
        check_asv(dict(zip(environments.PINNED, versions.split())))
        if not has:
            raise UserError(f"{self.python}: {last_line(done.stderr)}")
        return ledger.Toolchain(*has[0].split(" "))

    def discover(self, machine: str, keep: Path | None = None) -> dict[str, Any]:
        """Return all benchmarks with their parameters, as asv finds them.

        keep  copy asv's benchmarks.json there
        """
        with tempfile.TemporaryDirectory() as results:
            variables = environment_of(self.python, **{environments.RESULTS_VARIABLE: results})
            done = apart(self.asv(machine, ["just-discover"]), self.root, variables)
            if done.returncode:
                why = last_line(done.stdout + done.stderr, "it printed nothing")
                raise UserError(f"asv found no benchmarks: {why}")
            file = Path(results) / "benchmarks.json"
            if keep:
                put(keep, file.read_bytes())
            benchmarks = json.loads(file.read_text(encoding="utf-8"))
        return {
            name: benchmark for name, benchmark in benchmarks.items() if isinstance(benchmark, dict)
        }

    def measure(
        self,
        cells: Sequence[str],
        machine: str,
        place: Path,
        advance: Callable[[], None],
        patience: tuple[float, int] = (0.0, 0),
        cores: Sequence[int] = (),
    ) -> None:
        """Run asv once: each of these cells in one process, which logs its measurement.

        place     directory for the processes' log, ``LOG``, and asv's results, ``FILES``
        patience  seconds that the processes together may wait for quiet, and the number of processes
        cores     the processes run on these cores only; empty: on all
        """
        held = ["--cpu-affinity", ",".join(map(str, cores))] if cores else []
        command = self.asv(machine, exactly(cells), "-a", "rounds=1", "--show-stderr", *held)
        variables = {
            LOG_VARIABLE: str(place / LOG),
            PATIENCE_VARIABLE: f"{max(0.0, patience[0]):.3f}/{patience[1]}",
            environments.RESULTS_VARIABLE: str(place / FILES),
        }
        earlier = len(logged(place))
        done = apart(
            command, self.root, environment_of(self.python, **variables), meanwhile=advance
        )
        said = logged(place)[earlier:]
        without = [line for line in said if isinstance(line, NoFigure)]
        if gone := [line.skipped for line in without if (line.skipped or "").startswith(GONE)]:
            print(
                cli.one_line(f"{gone[0]}; {len(gone)} cells that need it were skipped"), flush=True
            )
        if done.returncode == 2:  # asv's code for: results saved, some failed
            ran = [
                path for path in (place / FILES / machine).glob("*.json") if path.name != MACHINE
            ]
            which = ", ".join(dict.fromkeys(cell.partition("(")[0] for cell in failed_cells(ran)))
            reasons = "; ".join(
                dict.fromkeys(line.failed for line in without if line.failed is not None)
            )
            print(cli.one_line(f"failed: {which}: {reasons[:500] or SILENT}"))
        elif done.returncode:
            raise UserError(
                f"asv stopped: {last_line(done.stdout + done.stderr, str(done.returncode))}"
            )


SILENT = "benchmark process exited without output (crash, out of memory or timeout)"
LOG, FILES = (
    "sampling.jsonl",
    "results",
)  # of a run of asv: the log of its processes, asv's own files


def logged(
    place: Path, default_round: int = 0, rounds: Mapping[str, int] | None = None
) -> list[LogLine]:
    """Return the lines that processes have logged in a directory; see ``decode_log``."""
    text = (place / LOG).read_text(encoding="utf-8")
    return decode_log(text, default_round, rounds)


def check_asv(found: Mapping[str, str] | None = None) -> None:
    """Raise UserError unless asv and asv_runner, which do the timing, have the pinned versions.

    found  package -> its version; None: look in this Python
    """
    pins = environments.pins()
    if found is None:
        found = {
            package: there.version
            for package in pins
            if (there := environments.find_distribution(package))
        }
    for package, version in pins.items():
        if found.get(package) != version:
            install = "pip install " + " ".join(f"{name}=={pin}" for name, pin in pins.items())
            raise UserError(
                f"the timing rests on {package} {version}, found {found.get(package, 'none')}: {install}"
            )


def set_environment_limit(requested: int | None) -> int:
    """Set the maximum number of environments on disk, also for asv, and return it: as asked, or else from the
    environment variable or asv.conf.json."""
    from asv.config import Config  # check_asv has verified that asv is installed

    number = requested or environments.environment_limit(
        Config.load(str(ROOT / "asv.conf.json")).keep_environments
    )
    os.environ[environments.LIMIT_VARIABLE] = str(number)
    return number


def register(machine: str) -> None:
    """Register the machine with asv. Raise UserError if asv's file of machines is broken."""
    from asv.util import UserError as Refused
    from toolchains import plugin

    try:
        plugin.register_machine(machine)
    except Refused as why:
        raise UserError(str(why)) from None
