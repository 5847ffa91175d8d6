"""Measure the routes for one array, now: in turns, each in processes of its own, between speed
probes.

The server (benchmarks/core/question.py) makes the source once and forks a process per measurement.
After each round the caller names the routes that go on, so a route that is clearly slower costs one
or two processes.
"""

import contextlib
import importlib.util
import json
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import psutil
from cli import ROOT, UserError
from store.schema import TimedProcess, from_json

from benchmarks.core.probes import PATIENCE_VARIABLE
from benchmarks.core.timing import LARGE

from .processes import Command, environment_of, os_session

BENCHMARK = "question"  # of the lines of a measured question
# Seconds after which no further round begins, for sources of up to LARGE bytes and for larger ones:
# the machine is too noisy to decide more
MAX_SECONDS, MAX_SECONDS_LARGE = 6.0, 18.0
# Of the free memory, for processes that take turns; and copies of the source that one may hold: its
# result, a buffer, and one between two steps
MEMORY_SHARE, PROCESS_COPIES = 0.5, 3
PROGRESS_SECONDS = 10.0  # between two messages while a request takes long
MAX_ROUNDS = 8  # of a question; a noisy machine needs more than MIN_PROCESSES

# The directory of the user's expression may have a package benchmarks of its own
SERVE = """import sys
sys.path.insert(0, sys.argv.pop())
try:
    from benchmarks.core import question
    question.main()
except KeyboardInterrupt:  # torch's import takes a second
    pass
"""
Checks = dict[str, dict[str, Any]]  # route -> what it returned, see question.check_route
# Routes, the lines measured so far -> the routes that go on
Select = Callable[[Sequence[str], Sequence[TimedProcess]], Sequence[str]]


class Server:
    """The running server of questions."""

    def __init__(self, process: "Popen[str]") -> None:
        self._process = process

    def make_source(self, question: Mapping[str, object]) -> dict[str, Any]:
        """Make the source of a question. Return what it is, see
        benchmarks.core.question.describe_source. UserError if it cannot be made."""
        source: dict[str, Any] = self.ask(question, "making the source")
        if "fails" in source:
            raise UserError(f"the source cannot be made: {source['fails']}")
        return source

    def ask(self, request: Mapping[str, object], action: str = "") -> Any:
        """Send a request and wait for its answer. UserError if the server is gone.

        action  what takes long, for progress on stderr; "": no progress
        """
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        start = time.monotonic()
        while action and not select.select([self._process.stdout], [], [], PROGRESS_SECONDS)[0]:
            elapsed = time.monotonic() - start
            print(f"measuring: {action}, {elapsed:.0f} s so far", file=sys.stderr, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise UserError("the measuring process died: see its message above")
        return json.loads(answer)

    def check(self, routes: Sequence[str]) -> Checks:
        """Return what each route returns for the source, or why it fails. A route that kills its
        process is checked alone."""
        checks: Checks = self.ask({"check": routes}, "trying each route once")
        if "fails" in checks and len(routes) > 1:
            checks = {route: self.check([route])[route] for route in routes}
        elif "fails" in checks:
            checks = {routes[0]: checks}
        return checks


def has_torch() -> bool:
    """Whether this Python can measure."""
    return importlib.util.find_spec("torch") is not None


@contextlib.contextmanager
def serve() -> Iterator[Server]:
    """Start the server of questions; it ends with the block, and with this process in any case. Its
    processes do not wait for a quiet machine, for they take turns."""
    variables = {
        "OPENBLAS_NUM_THREADS": "1",  # as in asv.conf.json
        PATIENCE_VARIABLE: "0/1",
    }
    python = Path(sys.executable)
    command: Command = [python, "-c", SERVE, ROOT]
    environment = environment_of(python, **variables)
    working_directory = Path.cwd()  # of the user's expression
    with os_session(command, working_directory, environment, stdin=PIPE, stdout=PIPE) as process:
        yield Server(process)


def race(
    server: Server, routes: Sequence[str], nbytes: int, select_next: Select
) -> list[TimedProcess]:
    """Measure the routes in turns until none goes on, or time is over. Print progress on stderr.

    nbytes  of the source

    UserError if a route fails that could be checked.
    """
    budget = MAX_SECONDS if nbytes <= LARGE else MAX_SECONDS_LARGE
    free = MEMORY_SHARE * psutil.virtual_memory().available
    abreast = max(1, int(free / (PROCESS_COPIES * max(1, nbytes))))
    run = datetime.now(timezone.utc).isoformat(timespec="seconds")
    lines: list[TimedProcess] = []
    start = time.monotonic()
    for number in range(MAX_ROUNDS):
        for first in range(0, len(routes), abreast):
            lines += sample_routes(server, routes[first : first + abreast], run, number)
        routes = select_next(routes, lines)
        elapsed = time.monotonic() - start
        if not routes or elapsed > budget:
            break
        print(_progress(number, lines, len(routes), elapsed), file=sys.stderr, flush=True)
    return lines


def sample_routes(
    server: Server, routes: Sequence[str], run: str, number: int
) -> list[TimedProcess]:
    """Take the samples of routes in turns, each in a process of its own. UserError if one fails."""
    lines = []
    request = {"routes": routes, "round": number}
    records = server.ask(request, f"round {number + 1}, {len(routes)} routes")
    for route, record in zip(routes, records):
        if "fails" in record:
            raise UserError(f"{route}: {record['fails']}")
        labels = {"run": run, "round": number, "benchmark": BENCHMARK, "params": [repr(route)]}
        lines.append(from_json(TimedProcess, {**labels, "version": "1", **record}))
    return lines


def _progress(number: int, lines: Sequence[TimedProcess], left: int, elapsed: float) -> str:
    """A line about the rounds so far."""
    seconds = left * elapsed / len(lines)
    routes = f"{left} route{'s' * (left > 1)}"
    return f"round {number + 1}: {len(lines)} processes; {routes} left, {seconds:.0f} s a round"
