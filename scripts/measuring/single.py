"""The installed toolchain measured: a profile's rounds, each kept when it is done, and filed when all are."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cli import UserError, line
from store.records import Record
from toolchains import environments
from toolchains.ledger import Toolchain

from .between import refine
from .engine import RESULTS, ROOT, check_asv, discover, register
from .machine import check_machine
from .processes import duration, progress
from .profiles import PROFILES
from .record import file_record, how_quiet, new_record, result_file
from .rounds import budget, cells_of, sum_up, take_rounds
from .state import State, check_same

DEFAULT = "quick"  # profile


def check_ready() -> Toolchain:
    """The installed toolchain; UserError where something that timing needs is missing or of another version."""
    try:
        toolchain = environments.toolchain()
    except ModuleNotFoundError as missing:
        raise UserError(f"{missing}: `make bench` installs everything") from None
    check_asv()
    return toolchain


def check_resumed(record: Record, toolchain: Toolchain, asked: Mapping[str, Any]) -> None:
    """UserError where another run is asked for than the interrupted one; see ``measure``."""
    if record.toolchain.tag != toolchain.tag:
        raise UserError(f"the interrupted run was on {record.toolchain.tag}: --resume there, or run anew")
    then = {"profile": record.profile, "only": record.only, "rounds": record.planned}
    check_same({f"--{name}": (asked[name], before) for name, before in then.items()})


def measure(toolchain: Toolchain, machine: str, asked: Mapping[str, Any], resume: bool) -> Path:
    """Run the profile's rounds and file them; the path of asv's file of the result.

    asked   profile, only, rounds: None where nothing is said
    resume  go on with the interrupted run of this machine, where there is one
    """
    filed = result_file(machine, toolchain.commit)
    check_machine(RESULTS / machine)
    state = State(ROOT / ".asv" / "runs" / machine)
    if state.publish(RESULTS):
        print("the interrupted run was whole; its results are filed now")
        if resume:
            return filed
    record = state.load() if resume else None
    if record:
        check_resumed(record, toolchain, asked)
    elif resume:
        print("nothing to resume: a new run")
    register(machine)
    benchmarks = discover(machine)
    if not record:
        name = asked["profile"] or DEFAULT
        rounds = asked["rounds"] or PROFILES[name].rounds
        record = new_record(name, asked["only"], machine, toolchain, sys.executable, rounds)
        state.start(record)
    rounds, profile = record.planned, record.profile
    cells = cells_of(PROFILES[profile], benchmarks, record.only, profile, record.settings.no_device)
    if cells.on_device:
        # memory of the far node is another population
        record = replace(record, on_device=True, asleep=tuple(cells.asleep), cores=record.settings.near_cores)
    load, cores = record.conditions.load_average, record.conditions.cores_allowed
    if load is not None and cores is not None and load > 0.5 * cores:
        print(f"this machine is busy (load average {load:.1f}): it will take longer, and some cells may stay noisy")
    for said in cells.left_out():
        print(line(f"skipped: {said}"))
    total = cells.total(rounds)
    some = "" if cells.repeated == cells.processes else f", {cells.processes - cells.repeated} of them once"
    print(
        f"{toolchain} on {machine}: profile {profile}, {cells.processes} timed cells x {rounds} processes{some}, "
        f"{cells.looked_at} looked at once; up to {duration(budget(total, profile))} more where the machine is busy"
    )
    minutes = PROFILES[profile].refine_minutes
    if minutes:
        print(f"then up to {duration(60 * minutes)} of cells between sizes, around crossovers and breaks")
    with progress(total, "measuring") as show:
        record = take_rounds(record, state, cells, rounds, show)
    if minutes:
        record = sum_up(refine(record, state, benchmarks, minutes), state, cells)
    path = file_record(record, toolchain.commit, state)
    waited = f"{record.waited:.0f} of them waiting for quiet"
    print(f"{record.samples} samples in {record.seconds:.0f} s, {waited}; {how_quiet(record)}")
    return path
