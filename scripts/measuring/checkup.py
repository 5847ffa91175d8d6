"""Before hours are spent: is this machine fit to measure on, what would make it fitter, which effects can it resolve?

``run.py --check`` looks for ten seconds. What it says of effects comes from the suite's own measurement of three cells,
some processes each, as they are judged in a run. It takes them without asv, each in a forked process, which starts from
the same state; checks of timing and advice measure their cells so, too.
"""

import contextlib
import io
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cli import UserError
from store import quiet
from store.records import Line, Settings

from benchmarks.probes import PATIENCE_VARIABLE
from benchmarks.sampling_log import LOG_VARIABLE

from .engine import ROOT
from .machine import conditions, read, settings

# --- cells measured without asv, each in a forked process -------------------------------------------------------------


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a forked process: every measurement starts from the same state, as asv's do."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            with contextlib.redirect_stdout(io.StringIO()):  # asv says there what it skips
                answer = json.dumps(work()).encode()
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(answer)
            code = 0
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        raise UserError("a measuring process died: see its message above")
    return json.loads(text)


def benchmark_of(name: str) -> Any:
    """A benchmark of the suite, as asv finds it by its name."""
    from asv_runner.discovery import get_benchmark_from_name

    from benchmarks import statement  # noqa: F401  it registers the suite's types

    return get_benchmark_from_name(str(ROOT / "benchmarks"), name)


def figure(benchmark: Any, cell: tuple) -> Line | None:
    """What the suite logs of a cell when it sets it up and measures it as it always does; None where it skips it."""
    benchmark._current_params = cell
    if benchmark.do_setup():
        return None
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        os.environ[LOG_VARIABLE] = file.name
        try:
            benchmark.run(*cell)
        except NotImplementedError:
            return None
        finally:
            del os.environ[LOG_VARIABLE]
        return json.loads(file.readlines()[-1])


# --- facts and findings -----------------------------------------------------------------------------------------------


SECONDS = 5.0  # that the three cells are measured for, LEAST rounds at least
PROCESSES = 30  # that may share what they may wait
LEAST = 3
CELLS = {
    "a call": ("conversion.TorchToNumpy.timeit_convert", ("t.numpy()", "float32", 8)),
    "a copy of 1 MiB": ("limits.Memcpy.timeit_copy", (2**20,)),
    "a copy of 16 MiB": ("limits.Memcpy.timeit_copy", (16 * 2**20,)),
}
GIB = 2**30
RUN_MEMORY = 2 * GIB  # the largest cells hold four arrays of 256 MiB, and torch takes half a GiB
ENVIRONMENT_DISK = 6 * GIB  # of a release with CUDA
QUIET_SHARE = 0.9  # of the time: below it a run takes longer, and some cells may stay noisy
# Of a comparison, see analysis/statistics.py and verdicts.Settings; this runs where scipy is missing, too
SIDE = 4  # processes
MIN_EFFECT = 0.01
LEVEL = 5.159  # standard errors: Student's t of six degrees of freedom at 0.0025, and four chances in five to find it
SLOW_GOVERNORS = ("powersave", "ondemand", "conservative", "schedutil")


@dataclass(frozen=True)
class Finding:
    """What was looked at and how it is; ``advice`` says what to change, if anything is to be."""

    what: str
    advice: str = ""


# --- what the system says --------------------------------------------------------------------------------------------


def facts() -> dict[str, Any]:
    """What bears on timing and can be asked for at once; None for what the system does not tell."""
    known = conditions()
    quota = (read("/sys/fs/cgroup/cpu.max") or "max").split()
    memory = [line.split() for line in read("/proc/meminfo").splitlines()]
    available = next((int(words[1]) * 1024 for words in memory if words[0] == "MemAvailable:"), None)
    limit, used = (read(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        left = int(limit) - int(used)
        available = left if available is None else min(available, left)
    return {
        **{name: getattr(known, name) for name in ("cores", "cores_allowed", "governor", "load_average")},
        "quota": int(quota[0]) / int(quota[1]) if len(quota) == 2 and quota[0].isdigit() else None,
        "memory_available": available,
        "disk_free": shutil.disk_usage(ROOT).free,
        "virtual": " hypervisor" in read("/proc/cpuinfo"),
    }


def of_system(known: Mapping[str, Any]) -> list[Finding]:
    """Findings about ``facts()``."""
    findings = []
    load, cores = known["load_average"], known["cores_allowed"]
    if load is not None:
        busy = load > 0.5 * cores
        findings.append(Finding(f"load average {load:.1f}", "end what else runs here" if busy else ""))
    findings.append(
        Finding(
            f"{cores} of {known['cores']} cores",
            "asv needs one beside the one that is measured: allow two" if cores < 2 else "",
        )
    )
    if known["quota"] is not None:
        findings.append(
            Finding(
                f"a quota of {known['quota']:.1f} processors",
                "the container is stopped when it is used up: lift it (docker run without --cpus)"
                if known["quota"] < cores
                else "",
            )
        )
    if known["governor"]:
        slow = known["governor"] in SLOW_GOVERNORS
        advice = "sudo cpupower frequency-set -g performance: the clock rises only when it is needed" if slow else ""
        findings.append(Finding(f"frequency governor {known['governor']}", advice))
    if known["memory_available"] is not None:
        short = known["memory_available"] < RUN_MEMORY
        advice = f"the largest cells need {RUN_MEMORY / GIB:.0f} GiB and will be skipped" if short else ""
        findings.append(Finding(f"{known['memory_available'] / GIB:.1f} GiB of memory free", advice))
    short = known["disk_free"] < ENVIRONMENT_DISK
    advice = f"track.py needs about {ENVIRONMENT_DISK / GIB:.0f} GiB a release that it keeps" if short else ""
    findings.append(Finding(f"{known['disk_free'] / GIB:.0f} GiB of disk free", advice))
    if known["virtual"]:
        findings.append(Finding("a virtual machine: what its host does is seen by speed probes alone"))
    return findings


def of_device(at: Settings) -> Finding:
    """What ``machine.settings`` found out about a device."""
    return Finding(f"device {at.device} ({at.device_name})" if at.device else f"no device: {at.no_device}")


# --- what pulses and the suite say -----------------------------------------------------------------------------------


def measured(seconds: float = SECONDS) -> dict[str, list[Line]]:
    """What the suite logs of the three cells, by their names in CELLS, process by process in turns."""
    made = {title: benchmark_of(name) for title, (name, _) in CELLS.items()}
    lines: dict[str, list[Line]] = {title: [] for title in CELLS}
    until, rounds = time.monotonic() + seconds, 0
    while rounds < LEAST or time.monotonic() < until:
        for title, logged in lines.items():
            line = in_child(partial(figure, made[title], CELLS[title][1]))
            if line is not None:
                logged.append(line)
        rounds += 1
    return lines


def of_quiet(lines: Mapping[str, Sequence[Line]]) -> Finding:
    """How quiet the machine was meanwhile."""
    every = [line for logged in lines.values() for line in logged]
    share = quiet.Run(every).quiet_share()
    advice = ""
    if share < QUIET_SHARE:
        advice = "a run takes up to twice as long, and some cells may stay noisy: end what else runs, or take another"
        advice += " machine or hour (a neighbour of a virtual machine cannot be seen from inside)"
    return Finding(f"quiet {share:.0%} of the time", advice)


def of_effects(lines: Mapping[str, Sequence[Line]]) -> list[Finding]:
    """For each kind of cell, the smallest change that four processes a side would probably find.

    What compare.py asks for, of one cell by itself: no other cells tell how much noise there is.
    """
    baselines = quiet.Run([line for logged in lines.values() for line in logged]).baselines
    findings = []
    for title, logged in lines.items():
        run = quiet.Run(logged, baselines)
        figures = run.figures()[run.quiet].tolist()
        if len(figures) < LEAST:
            few = f"{len(figures)} of {len(logged)} processes were quiet"
            findings.append(Finding(f"{title}: {few}", "no change of these can be told from noise now"))
            continue
        spread = statistics.stdev([second / figures[0] for second in figures])
        effect = MIN_EFFECT + LEVEL * spread * (2 / SIDE) ** 0.5
        findings.append(Finding(f"{title}: changes from about {effect:.0%} on are found with four processes a side"))
    return findings


def tell(findings: Sequence[Finding]) -> int:
    """Print them; 0 where nothing is to be changed, else 1."""
    for finding in findings:
        print(f"{'!' if finding.advice else ' '} {finding.what}{f': {finding.advice}' if finding.advice else ''}")
    return int(any(finding.advice for finding in findings))


def check() -> int:
    """Look at all of it, and say it; the exit code."""
    print("looking for about ten seconds", flush=True)
    os.environ[PATIENCE_VARIABLE] = f"{SECONDS / 2}/{PROCESSES}"
    at = settings()
    lines = measured()
    return tell([*of_system(facts()), of_device(at), of_quiet(lines), *of_effects(lines)])
