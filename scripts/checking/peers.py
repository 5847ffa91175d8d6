"""check.py power --by pyperf, --by asv: do other tools find the same slowdowns?

Both run as they come, with their usual numbers of processes and values. pyperf times a statement;
asv a benchmark of a repository with two commits.
"""

import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from analysis.verdicts import FASTER, NO_CHANGE, SLOWER
from cli import UserError
from measuring.processes import last_line, run_in_session

from checking.planted import variables_with_home

ASV_FACTOR = "1.02"  # of asv compare, whose 1.1 would find no small slowdown
ASV_CONFIGURATION = """
{"version": 1, "project": "peer", "repo": ".", "branches": ["HEAD"], "benchmark_dir": "suite",
 "environment_type": "existing", "results_dir": "results"}
"""
# Its constant is not called SETUP: asv_runner 0.3.2 calls any attribute "setup", in capitals or not
ASV_BENCHMARK = """
from .side import REPEATS, SOURCE


class Call:
    def setup(self):
        exec(SOURCE, globals())

    def time_call(self):
        for _ in REPEATS:
            {route}
"""
COMMIT = ("-c", "user.name=check", "-c", "user.email=check@localhost", "commit", "--quiet", "-am")


class Side(NamedTuple):
    """One side of a pair: a route, its bytes, and the calls of a measurement."""

    route: str
    nbytes: int
    calls: int

    @property
    def setup(self) -> str:
        """Python that makes the route's source."""
        return (
            f"import numpy as np, torch; a = np.ones({self.nbytes // 4}, 'float32'); "
            f"t = torch.ones({self.nbytes // 4})"
        )


def run(place: Path, *command: str) -> str:
    """Run a command in ``place``, which is its home directory, too. Return what it printed;
    UserError if it failed."""
    done = run_in_session(command, place, variables_with_home(place))
    if done.returncode:
        words = " ".join(command[:4])
        reason = last_line(done.stderr or done.stdout)
        raise UserError(f"{words} ended with exit status {done.returncode}: {reason}")
    return done.stdout


def by_pyperf(place: Path, sides: Sequence[Side]) -> str:
    """The verdict of ``pyperf compare_to`` on two runs of ``pyperf timeit``."""
    if not find_spec("pyperf"):
        raise UserError("pyperf is not installed: pip install pyperf==2.11.0")
    pyperf = (sys.executable, "-m", "pyperf")
    for name, side in zip(("base", "new"), sides):
        setup = f"{side.setup}; repeats = range({side.calls})"
        options = ("--quiet", "--name", "call", "--output", f"{name}.json", "--setup", setup)
        run(place, *pyperf, "timeit", *options, f"for _ in repeats: {side.route}")
    printed = run(place, *pyperf, "compare_to", "base.json", "new.json")
    found = re.search(r"x (slower|faster)", printed)
    return found[1] if found and "not significant" not in printed.lower() else NO_CHANGE


def by_asv(place: Path, sides: Sequence[Side]) -> str:
    """The verdict of ``asv compare`` on two commits that ``asv run`` measured."""
    suite = place / "suite"
    suite.mkdir()
    (suite / "__init__.py").touch()
    (suite / "call.py").write_text(ASV_BENCHMARK.format(route=sides[0].route), encoding="utf-8")
    (place / "asv.conf.json").write_text(ASV_CONFIGURATION, encoding="utf-8")
    asv = (sys.executable, "-m", "asv")
    run(place, "git", "init", "--quiet")
    run(place, *asv, "machine", "--yes")
    commits = []
    for side in sides:
        text = f"REPEATS = range({side.calls})\nSOURCE = {side.setup!r}\n"
        (suite / "side.py").write_text(text, encoding="utf-8")
        run(place, "git", "add", "--all")
        run(place, "git", *COMMIT, f"{side.calls} calls of {side.nbytes} bytes")
        commits.append(run(place, "git", "rev-parse", "HEAD").strip())
        environment = f"existing:{sys.executable}"
        run(place, *asv, "run", "--environment", environment, "--set-commit-hash", commits[-1])
    printed = run(place, *asv, "compare", "--factor", ASV_FACTOR, *commits)
    marks = re.findall(r"^\| ([+-]) ", printed, re.MULTILINE)
    return {"+": SLOWER, "-": FASTER}[marks[0]] if marks else NO_CHANGE


PEERS = {"pyperf": by_pyperf, "asv": by_asv}
