"""Tiny suites in which calls take what is decided here: by release, and by the host that they run on.

A call spins until a clock says that its time is over, so what it takes is neither the processor's nor a neighbour's
doing: 10 % are 10 % on a busy machine of two cores, which stands for all nodes. Everything else is real: processes,
samples, files and what is made of them. It is counted, too: "instructions" that are written down.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tiny
from resultfiles import contract

CALL = 1e-4  # seconds
COUNT = 10_000  # instructions
ROUTES = ("torch.from_numpy(a).clone()", "torch.tensor(a)", "torch.as_tensor(a.copy())")
WHAT_IT_TAKES = """
import os
import time

import torch

PLANTED = {planted}
RELEASE = torch.__version__.split("+")[0]
HOST = os.environ.get("SLURMD_NODENAME")


def parts(release):
    return tuple(map(int, release.split(".")))


def factor(route):
    found = 1.0
    for where, since, host, times in PLANTED:
        if where == route and parts(RELEASE) >= parts(since) and host in (None, HOST):
            found *= times
    return found
"""
TIMED = """
def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class NumpyToTorch:
    contracts = {contracts}
    direction = "numpy→torch"
    role = "conversion"
    probed = False  # a clock decides: how fast the host is has no part in it
    single_threaded = False
    params = {routes}, ["float32"], [4096, 1048576]
    param_names = ["route", "dtype", "nbytes"]

    def timeit_convert(self, route, dtype, nbytes):
        return "spin(seconds)", {{"spin": spin, "seconds": {call} * factor(route) * (1 if nbytes == 4096 else 2)}}
"""
COUNTED = """
class NumpyToTorch:
    contracts = {contracts}
    direction = "numpy→torch"
    repeated = True
    unit = "instructions"
    params = {routes}, ["float32"], [4096]
    param_names = ["route", "dtype", "nbytes"]

    def track_instructions(self, route, dtype, nbytes):
        count = {count} * factor(route)
        return {{"samples": [count, count + 1, count + 2], "number": 1}}
"""


@dataclass(frozen=True)
class Planted:
    """From release ``since`` on a route takes ``times`` as long, and as many instructions; on one host, if named."""

    route: str
    since: str
    times: float
    host: str | None = None


def releases(torch: Sequence[str]) -> dict[str, Any]:
    """tiny.RELEASES with these of torch, on their real days: so their results are known to the suite's own ledger."""
    real = json.loads((tiny.ROOT / "scripts" / "toolchains" / "releases.json").read_text(encoding="utf-8"))
    return {**tiny.RELEASES, "torch": {version: real["torch"][version] for version in torch}}


def families(planted: Sequence[Planted]) -> dict[str, str]:
    """The files of ``benchmarks`` for tiny.Project."""
    told = [(one.route, one.since, one.host, one.times) for one in planted]
    head = WHAT_IT_TAKES.format(planted=told)
    contracts = {route: contract(route, "copy") for route in ROUTES}
    values = {"contracts": contracts, "routes": list(ROUTES), "call": CALL, "count": COUNT}
    return {"conversion": head + TIMED.format(**values), "instructions": head + COUNTED.format(**values)}
