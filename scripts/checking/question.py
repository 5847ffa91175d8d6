"""Measure the routes of one case on this machine, and keep what was measured beside its results."""

import contextlib
import importlib.util
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from analysis import refusals
from analysis.answers import Answer
from analysis.cells import itemsize
from analysis.costs import closest_machine, last_run
from analysis.measured import Measured, candidates, measured_answer, suitable, undecided
from analysis.needs import NUMPY, TORCH, ZERO_D, Case
from cli import UserError
from measuring.machine import check_machine, conditions
from measuring.question import Checks, Server, race, serve
from store import files, questions
from store.schema import Conditions, RunRecord, Settings, TimedProcess, Toolchain
from toolchains.environments import machine_name

from benchmarks.contracts import ALL_THREADS, CONTIGUOUS


def measure_case(
    case: Case, user_routes: Sequence[str], results: Path, machine: str | None = None
) -> Answer:
    """Measure the safe routes for a case and those of the user in turns, and file the
    measurements. Print progress on stderr.

    UserError if the case is impossible, or nothing can be measured here.
    """
    if importlib.util.find_spec("torch") is None:
        raise UserError(
            "--measure: this Python has no torch: pip install torch, or .venv/bin/python"
        )
    if case.device:
        raise UserError("--measure: transfers are measured by scripts/run.py --profile transfers")
    if reason := refusals.contradiction(case) or refusals.impossible_source(case):
        raise UserError(reason)
    machine = machine or name_of_machine(results, conditions())
    check_machine(results / machine)
    began, start = datetime.now(timezone.utc), time.monotonic()
    print("measuring: importing torch and making the source", file=sys.stderr, flush=True)
    with serve() as server:
        source = server.make_source(question(case))
        described = _case_of_source(case, source)
        checks, lines = _measure(server, described, user_routes)
    settings = Settings(**source["versions"], torch_threads=source["threads"])
    run = RunRecord(
        Toolchain("measured", settings.torch, settings.numpy),
        {},
        settings=settings,
        conditions=conditions(),
        started=began.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - start, 1),
    )
    measured = Measured(case, described, (*user_routes,), checks, lines, run)
    questions.add_question(results, machine, measured)
    return measured_answer(measured, machine)


def measured_before(case: Case, results: Path, machine: str | None) -> Answer | None:
    """The answer to a case that was measured before on this machine, or on ``machine``; None if it
    was not."""
    for name in [machine] if machine else questions.machines_with_questions(results):
        for measured in questions.read_questions(results, name, Measured):
            if measured.question == case and (machine or _is_here(measured.run)):
                return measured_answer(measured, name)
    return None


def _is_here(run: RunRecord) -> bool:
    """Whether a run was on a machine like this one."""
    return not closest_machine({"": run}, conditions(), device=False)[1]


def name_of_machine(results: Path, present: Conditions) -> str:
    """The name under which results of this machine are filed, or would be."""
    with contextlib.suppress(UserError):  # there are no results
        records = {name: last_run(results, name)[0] for name in files.machines(results)}
        nearest, differs = closest_machine(records, present, device=False)
        if not differs:
            return nearest
    return machine_name()


def question(case: Case) -> dict[str, object]:
    """A case as the server takes it."""
    flat = () if case.layout == ZERO_D else (case.nbytes // itemsize(case.dtype),)
    threads = case.threads or ALL_THREADS
    return {**asdict(case), "shape": case.shape or flat, "threads": threads}


def _case_of_source(case: Case, source: Mapping[str, Any]) -> Case:
    """The case with what its source is. UserError if that contradicts the case."""
    arrays = source["arrays"]
    described = replace(
        case,
        shape=tuple(source["shape"]),
        nbytes=source["nbytes"] // max(1, arrays),
        threads=case.threads or ALL_THREADS,
    )
    if not case.expression:
        return described
    library = source["library"]
    if source["values"] and case.target != TORCH:
        raise UserError(
            f"--source {case.expression}: a list of Python numbers; np.array makes an array of it, "
            f"--to {TORCH} asks for a tensor"
        )
    if case.target == library:
        opposite = TORCH if library == NUMPY else NUMPY
        raise UserError(f"--source {case.expression}: it is of {library}; write --to {opposite}")
    layout = CONTIGUOUS if source["contiguous"] else "strided"
    return replace(
        described,
        source=library,
        dtype=source["dtype"],
        layout=layout,
        grad=source["grad"],
        batch=arrays,
        values=source["values"],
    )


def _measure(
    server: Server, case: Case, user_routes: Sequence[str]
) -> tuple[Checks, list[TimedProcess]]:
    """Check all routes, and measure the suitable ones in turns. Return checks and lines."""
    checks = server.check([*candidates(case), *user_routes])
    for route in user_routes:
        if "fails" in checks[route]:
            raise UserError(f"--route {route}: {checks[route]['fails']}")
    routes, memory = suitable(case, checks, user_routes)
    outside = [route for route in user_routes if checks[route]["memory"] != memory]
    print(f"measuring: {len(routes)} routes in turns", file=sys.stderr, flush=True)
    lines = race(server, routes, case.total, partial(undecided, case=case, outside=outside))
    return checks, lines
