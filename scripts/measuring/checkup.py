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
from functools import partial
from typing import Any

import psutil
from cli import UserError
from store import quiet
from store.records import Line

from benchmarks.probes import PATIENCE_VARIABLE, probe
from benchmarks.sampling_log import LOG_VARIABLE

from .engine import ROOT
from .machine import conditions, settings
from .processes import read

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


Findings = dict[str, str]  # what was looked at, and how it is -> what to change, "" where nothing is to be


# --- how quiet it is now ----------------------------------------------------------------------------------------------


def quiet_now(seconds: float = 1.0) -> float:
    """The share of so many seconds in which a speed probe takes no more than a tenth longer than its fastest level."""
    readings, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        readings.append(probe())
    level = statistics.quantiles(readings, n=20)[0]
    return statistics.fmean(reading <= 1.1 * level for reading in readings)


# --- what the system says --------------------------------------------------------------------------------------------


def facts() -> dict[str, Any]:
    """What bears on timing and can be asked for at once; None for what the system does not say."""
    known = conditions()
    quota = (read("/sys/fs/cgroup/cpu.max") or "max").split()
    available = psutil.virtual_memory().available
    limit, used = (read(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        available = min(available, int(limit) - int(used))
    return {
        **{name: getattr(known, name) for name in ("cores", "cores_allowed", "governor", "load_average")},
        "quota": int(quota[0]) / int(quota[1]) if len(quota) == 2 and quota[0].isdigit() else None,
        "memory_available": available,
        "disk_free": shutil.disk_usage(ROOT).free,
        "virtual": " hypervisor" in read("/proc/cpuinfo"),
    }


def of_system(known: Mapping[str, Any]) -> Findings:
    """Findings about ``facts()``."""
    found: Findings = {}

    def look(what: str, wrong: bool, advice: str) -> None:
        found[what] = advice if wrong else ""

    load, cores, quota = known["load_average"], known["cores_allowed"], known["quota"]
    governor, memory, disk = known["governor"], known["memory_available"], known["disk_free"]
    if load is not None:
        look(f"load average {load:.1f}", load > 0.5 * cores, "end what else runs here")
    allow = "asv needs one beside the one that is measured: allow two"
    look(f"{cores} of {known['cores']} cores", cores < 2, allow)
    if quota is not None:
        lift = "the container is stopped when it is used up: lift it (docker run without --cpus)"
        look(f"a quota of {quota:.1f} processors", quota < cores, lift)
    if governor:
        advice = "sudo cpupower frequency-set -g performance: the clock rises only when it is needed"
        look(f"frequency governor {governor}", governor in SLOW_GOVERNORS, advice)
    advice = f"the largest cells need {RUN_MEMORY / GIB:.0f} GiB and will be skipped"
    look(f"{memory / GIB:.1f} GiB of memory free", memory < RUN_MEMORY, advice)
    advice = f"track.py needs about {ENVIRONMENT_DISK / GIB:.0f} GiB a release that it keeps"
    look(f"{disk / GIB:.0f} GiB of disk free", disk < ENVIRONMENT_DISK, advice)
    if known["virtual"]:
        look("a virtual machine: what its host does is seen by speed probes alone", False, "")
    return found


# --- what probes and the suite say -----------------------------------------------------------------------------------


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


def of_quiet(lines: Mapping[str, Sequence[Line]]) -> Findings:
    """How quiet the machine was meanwhile."""
    share = quiet.Run([line for logged in lines.values() for line in logged]).quiet_share()
    advice = (
        "a run takes up to twice as long, and some cells may stay noisy: end what else runs, or take another "
        "machine or hour (a neighbour of a virtual machine cannot be seen from inside)"
    )
    return {f"quiet {share:.0%} of the time": advice if share < QUIET_SHARE else ""}


def of_effects(lines: Mapping[str, Sequence[Line]]) -> Findings:
    """For each of the three cells, the smallest change that four processes a side would probably find.

    What compare.py asks for, of one cell by itself: no other cells say how much noise there is.
    """
    baselines = quiet.Run([line for logged in lines.values() for line in logged]).baselines
    found: Findings = {}
    for title, logged in lines.items():
        run = quiet.Run(logged, baselines)
        figures = run.figures()[run.quiet].tolist()
        if len(figures) < LEAST:
            few = f"{title}: {len(figures)} of {len(logged)} processes were quiet"
            found[few] = "no change of these would stand out from noise now"
            continue
        spread = statistics.stdev([second / figures[0] for second in figures])
        effect = MIN_EFFECT + LEVEL * spread * (2 / SIDE) ** 0.5
        found[f"{title}: changes from about {effect:.0%} on are found with four processes a side"] = ""
    return found


def check() -> int:
    """Look at all of it, and say it; the exit code: 0 where nothing is to be changed, else 1."""
    print("checking the machine for about ten seconds", flush=True)
    os.environ[PATIENCE_VARIABLE] = f"{SECONDS / 2}/{PROCESSES}"
    at = settings()
    lines = measured()
    device = f"device {at.device} ({at.device_name})" if at.device else f"no device: {at.no_device}"
    found = {**of_system(facts()), device: "", **of_quiet(lines), **of_effects(lines)}
    for what, advice in found.items():
        print(f"! {what}: {advice}" if advice else f"  {what}")
    return int(any(found.values()))
