"""Record what affects timing on a machine (hardware, load, torch and its threads, the device), and
check its fitness.

During a run a separate process holds a context on the device. Otherwise each timed process would
find clocks and link asleep.
"""

import contextlib
import json
import math
import os
import platform
import re
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from cli import ROOT, UserError
from msgspec.structs import replace
from store import files
from store.schema import (
    Conditions,
    RunRecord,
    Settings,
    from_json,
    have_other_builds,
    machine_differences,
)
from toolchains import environments, interpreters

from benchmarks.core.probes import probe

from .processes import Done, environment_of, last_line, os_session, read_text, run_in_session

if TYPE_CHECKING:  # reading the profiles takes 60 ms, which advise.py spends better
    from .profiles import Cells, Names

AWAKE = "awake"
# The beginning of programs that import the suite's own code. Their argument is the checkout. Output
# of torch, or of a backend that it loads, during the import goes to stderr, because it is not the
# answer
ANSWER = """
import json, os, platform, sys
answer, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
os.dup2(2, 1)
import numpy, torch
sys.stdout = answer
sys.path.insert(0, sys.argv[1])
"""
HOLD = f"{ANSWER}from benchmarks.core import devices\ndevices.hold({AWAKE!r})"
PRINT_SETTINGS = f"""{ANSWER}
sys.path.insert(1, os.path.join(sys.argv[1], "scripts"))
from toolchains import interpreters
settings = dict(torch=torch.__version__, numpy=numpy.__version__, python=interpreters.version())
settings.update(build=interpreters.build(), compiler=platform.python_compiler())
settings.update(cuda=torch.version.cuda, hip=torch.version.hip, git=torch.version.git_version)
print(json.dumps(dict(settings, torch_threads=torch.get_num_threads())), flush=True)
from benchmarks.core import devices
print(json.dumps(devices.answer()))
"""
READ_LIBRARIES = """
import importlib.util, os, pathlib
for package in ("numpy", "torch"):
    for path in pathlib.Path(importlib.util.find_spec(package).origin).parent.rglob("*.so*"):
        if path.is_file() and "cuda" not in path.name:
            with path.open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while file.read(2**22):
                    pass
"""
DEVICE_SECONDS = 120.0  # importing torch and making a context take 20 s on a slow machine
CPU = Path("/sys/devices/system/cpu/cpu0")


def check_machine(directory: Path, settings: Settings | None = None) -> None:
    """Raise UserError if the results in ``directory`` come from other hardware, or were measured
    with another C library or, by the same release as ``settings`` have, with another build of
    Python. A page covers one machine."""
    current = conditions()
    for path in files.result_files(directory.parent, directory.name, files.RECORDS):
        try:
            records = files.read_records(path)
        except UserError:
            continue  # a broken file names no machine
        for record in records[-1:]:
            earlier = record.conditions
            # a virtual machine may move to another host, whose CPU has the same name but other
            # caches
            if machine_differences(current, earlier):
                sizes = "".join(f", {level} {size}" for level, size in earlier.caches.items())
                raise UserError(
                    f"the results of {directory.name} were measured on another machine "
                    f"({earlier.cpu or None}, {earlier.cores} cores{sizes}, {earlier.libc}): "
                    "give this one a name of its own by --machine"
                )
            if settings and is_other_build(settings, record.settings):
                raise UserError(
                    f"the results of {directory.name} with Python {settings.python} come from "
                    f"another build of it ({record.settings.build}; this one: {settings.build}): "
                    "give this one a name of its own by --machine"
                )


def is_other_build(one: Settings, other: Settings) -> bool:
    """Whether two runs had different known builds of one release of Python."""
    return have_other_builds(one, other) and (
        interpreters.release_of(one.python) == interpreters.release_of(other.python)
    )


def caches() -> dict[str, str]:
    """Cache level -> size of the data cache, as the system writes it. Empty if the system does not
    report caches."""
    return {
        f"L{read_text(cache / 'level')}": read_text(cache / "size")
        for cache in sorted((CPU / "cache").glob("index*"))
        if read_text(cache / "type") != "Instruction"
    }


def conditions() -> Conditions:
    """Return the present conditions that affect timing on this machine."""
    cores = os.cpu_count() or 1
    huge_pages = read_text("/sys/kernel/mm/transparent_hugepage/enabled")
    return Conditions(
        cpu=environments.cpu_model(),
        cores=cores,
        cores_allowed=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores,
        caches=caches(),
        memory_bytes=psutil.virtual_memory().total,
        system=f"{platform.system()} {platform.release()}",
        libc=" ".join(platform.libc_ver()),
        governor=read_text(CPU / "cpufreq/scaling_governor"),
        transparent_hugepages="".join(re.findall(r"\[(\w+)\]", huge_pages)),
        load_average=psutil.getloadavg()[0],
    )


def settings(python: Path = Path(sys.executable), root: Path = ROOT) -> Settings:
    """Return the imported toolchain, its thread settings, and the device's name and model or why
    there is no device. A process like the timed ones determines them, in at most DEVICE_SECONDS.

    Making a context may abort, crash or hang in the driver. Then the run goes on without a device.
    """
    done = run_in(python, PRINT_SETTINGS, root, DEVICE_SECONDS)
    imported, *device = done.stdout.splitlines() or [""]
    code = done.returncode
    if code == 0:
        with contextlib.suppress(IndexError, ValueError):
            return from_json(Settings, json.loads(imported) | json.loads(device[-1]))
    reason = last_line(done.stderr, f"ended with code {code}")
    if code is None:
        reason = f"did not answer in {DEVICE_SECONDS:g} s"
    elif code < 0:
        reason = f"died with signal {-code} ({signal.strsignal(-code)})"
    if not imported:
        raise UserError(f"torch cannot be imported: {reason}")
    variable = os.environ.get("CONVERSION_DEVICE")
    device_name = f"CONVERSION_DEVICE={variable}" if variable else "the device"
    no_device = f"the process that tried {device_name}: {reason}"
    return from_json(Settings, json.loads(imported) | {"no_device": no_device})


def read_libraries(python: Path) -> None:
    """Read the libraries of this Python's torch and numpy from disk again, each from its beginning
    to its end.

    The position of their pages in memory changes the time of calls by some percent, until they are
    loaded again (docs/lab-notes.md). Reading them before each round makes positions vary between
    rounds instead of between sessions. Libraries that another process uses stay where they are.
    Only Linux has the call. Elsewhere, and without torch, nothing is done.
    """
    if hasattr(os, "posix_fadvise"):
        run_in(python, READ_LIBRARIES)


def run_in(python: Path, code: str, root: Path = ROOT, seconds: float = math.inf) -> Done:
    """Run code in that Python with a checkout as its argument. See ``run_in_session``."""
    return run_in_session([python, "-c", code, root], root, environment_of(python), seconds)


# --- a device that is kept awake ------------------------------------------------------------------


class Awake(contextlib.ExitStack):
    """Keep the device of a run awake, from its first measurement until the context manager
    exits."""

    failure: str | None = None  # why the device is not awake, "" = it is; None: not tried yet

    def hold(self) -> str:
        """Keep the device awake from now on. Return the reason of a failure, or "". A device that
        accepts only one process is released again."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", HOLD, str(ROOT)]
        process = self.enter_context(
            os_session(command, ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        )
        assert process.stdout
        readable, _, _ = select.select([process.stdout], [], [], DEVICE_SECONDS)
        failure = "the process that was to hold a context made none"
        if readable and process.stdout.readline().strip() == AWAKE:
            failure = settings().no_device
        if failure:
            self.close()
        return failure

    def measure(
        self, record: RunRecord, cells: "Cells", names: "Names", run_asv: Callable[..., None]
    ) -> RunRecord:
        """Run asv on the record's cores for the cells ``names`` of ``cells``. Keep the device awake
        if cells use it. Benchmarks of its waking run first, without that. The returned record says
        whether the device was awake.
        """
        waking = [cell for cell in names if cell.partition("(")[0] in cells.waking]
        remaining = [cell for cell in names if cell not in waking]
        if waking:
            self.close()
            self.failure = None
            run_asv(waking, cores=record.cores)
        if remaining and cells.on_device:
            if self.failure is None:
                self.failure = self.hold()
            record = replace(record, awake=not self.failure, not_awake=self.failure)
        if remaining:
            run_asv(remaining, cores=record.cores)
        return record


# --- fitness for measuring ------------------------------------------------------------------------

QUIET_SHARE = 0.9  # of the time; below this a run takes longer, and some cells may stay noisy
GROUPS = Path("/sys/fs/cgroup")
GROUPS_OF_PROCESS = Path("/proc/self/cgroup")
SLOW_GOVERNORS = ("powersave", "ondemand", "conservative", "schedutil")
END_LOAD = "end what else runs here"
FIND_QUIET = (
    "a run takes up to twice as long, and some cells may stay noisy: end what else runs, or take "
    "another machine or hour (a neighbour of a virtual machine cannot be seen from inside)"
)
USE_OPTIMISED = (
    "calls take 4 to 27 % more than with an optimised build: take a distribution's Python, or "
    "build one with --enable-optimizations --with-lto"
)
LIFT_QUOTA = "the container is stopped when it is used up: lift it (docker run without --cpus)"
ALLOW_CORES = "asv needs one beside the one that is measured: allow two"
SET_GOVERNOR = "sudo cpupower frequency-set -g performance: the clock rises only when it is needed"


def quiet_now(seconds: float = 1.0) -> tuple[float, float]:
    """Return the share of speed probes within 10% of the fastest level, and the mean time of a
    probe as a multiple of that level."""
    readings = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        readings.append(probe())
    level = statistics.quantiles(readings, n=20)[0]
    quiet = statistics.fmean(reading <= 1.1 * level for reading in readings)
    return quiet, statistics.fmean(readings) / level


def quota() -> float:
    """Return the CPU quota of this process, in processors: the smallest of its control groups and
    their parent groups. It is infinite without a limit."""
    smallest = math.inf
    for line in read_text(GROUPS_OF_PROCESS).splitlines():
        _, controllers, name = line.split(":", 2)  # version 2 names no controllers
        group = Path(name)
        for parent in (group, *group.parents):
            directory = GROUPS / controllers / str(parent).lstrip("/")
            limits = [
                read_text(directory / f"cpu.{file}")
                for file in ("max", "cfs_quota_us", "cfs_period_us")
            ]
            numbers = " ".join(limits).split()
            if numbers and numbers[0].isdigit():
                smallest = min(smallest, int(numbers[0]) / int(numbers[1]))
    return smallest


def unoptimised(build: str) -> str:
    """Advice on a build of Python, or ""."""
    return USE_OPTIMISED if build.startswith(interpreters.UNOPTIMISED) else ""


def findings(conditions: Conditions, quiet: float, processors: float) -> dict[str, str]:
    """Finding, such as "load average 5.0" -> advice, or "" if nothing needs to change."""
    cores = conditions.cores_allowed or 1
    load = conditions.load_average or 0.0
    limit = "no quota of processors" if math.isinf(processors) else f"a quota of {processors:.1f}"
    governor = conditions.governor or "unknown"
    return {
        f"quiet {quiet:.0%} of the time": FIND_QUIET if quiet < QUIET_SHARE else "",
        f"{cores} of {conditions.cores} cores": ALLOW_CORES if cores < 2 else "",
        f"load average {load:.1f}": END_LOAD if load > 0.5 * cores else "",
        limit: LIFT_QUOTA if processors < cores else "",
        f"frequency governor {governor}": SET_GOVERNOR if governor in SLOW_GOVERNORS else "",
    }


def check() -> int:
    """Print the findings. Return exit code 0 if nothing needs to change, else 1."""
    print("checking the machine for about ten seconds", flush=True)
    current = settings()
    quiet, _ = quiet_now(5.0)
    advice = findings(conditions(), quiet, quota())
    if current.device:
        print(f"  device {current.device} ({current.device_name})")
    else:
        print(f"  no device: {current.no_device}")
    advice[f"Python {current.python} {current.build}"] = unoptimised(current.build)
    for finding, change in advice.items():
        print(f"! {finding}: {change}" if change else f"  {finding}")
    return int(any(advice.values()))
