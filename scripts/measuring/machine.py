"""Record what affects timing on a machine (hardware, load, torch and its threads, the device), and check its fitness.

During a run a separate process holds a context on the device. Otherwise each timed process would find clocks and link
asleep.
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
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from cli import UserError
from msgspec import structs
from store import files
from store.schema import MACHINE, Conditions, RunRecord, Settings, from_json
from toolchains import environments

from benchmarks.probes import probe

from .engine import ROOT, environment_of
from .processes import apart, last_line, os_session, read
from .profiles import Cells

AWAKE = "awake"
# The beginning of programs that import the suite's own code. Their argument is the checkout. Output of torch, or of a
# backend that it loads, during the import goes to stderr, because it is not the answer
ANSWER = """
import json, os, platform, sys
answer, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
os.dup2(2, 1)
import numpy, torch
sys.stdout = answer
sys.path.insert(0, sys.argv[1])
"""
HOLD = f"{ANSWER}from benchmarks import devices\ndevices.hold({AWAKE!r})"
SAY_SETTINGS = f"""{ANSWER}
says = dict(torch=torch.__version__, numpy=numpy.__version__, python=platform.python_version())
says.update(cuda=torch.version.cuda, hip=torch.version.hip, git=torch.version.git_version)
print(json.dumps(dict(says, torch_threads=torch.get_num_threads())), flush=True)
from benchmarks import devices
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


def check_machine(directory: Path) -> None:
    """Raise UserError if the results in ``directory`` come from other hardware. A page covers one machine."""
    here = structs.asdict(conditions())
    for path in files.result_files(directory.parent, directory.name, files.RECORDS):
        before = {}
        with contextlib.suppress(UserError):
            for record in files.read_records(path)[-1:]:
                before = {
                    name: value
                    for name, value in structs.asdict(record.conditions).items()
                    if name in MACHINE and value
                }
        # a virtual machine may move to another host, whose CPU has the same name but other caches
        if any(here[name] and here[name] != value for name, value in before.items()):
            sizes = "".join(f", {level} {size}" for level, size in before.get("caches", {}).items())
            raise UserError(
                f"the results of {directory.name} were measured on another machine ({before.get('cpu')}, "
                f"{before.get('cores')} cores{sizes}): give this one a name of its own by --machine"
            )


def caches() -> dict[str, str]:
    """Cache level -> size of the data cache, as the system writes it. Empty if the system does not report caches."""
    every = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    data = [cache for cache in every if read(cache / "type") != "Instruction"]
    return {f"L{read(cache / 'level')}": read(cache / "size") for cache in data}


def settings(python: str = sys.executable) -> Settings:
    """Return the imported toolchain, its thread settings, and the device's name and model or why there is no device. A
    process like the timed ones determines them, in at most DEVICE_SECONDS.

    Making a context may abort, crash or hang in the driver. Then the run goes on without a device.
    """
    done = run_in(python, SAY_SETTINGS, DEVICE_SECONDS)
    (imported, *device), code = done.stdout.splitlines() or [""], done.returncode
    with contextlib.suppress(IndexError, ValueError):
        if code == 0:
            return from_json(Settings, json.loads(imported) | json.loads(device[-1]))
    why = last_line(done.stderr, f"ended with code {code}")
    if code is None:
        why = f"did not answer in {DEVICE_SECONDS:g} s"
    elif code < 0:
        why = f"died with signal {-code} ({signal.strsignal(-code)})"
    if not imported:
        raise UserError(f"torch cannot be imported: {why}")
    named = os.environ.get("CONVERSION_DEVICE")
    tried = f"CONVERSION_DEVICE={named}" if named else "the device"
    return from_json(
        Settings, json.loads(imported) | {"no_device": f"the process that tried {tried}: {why}"}
    )


def read_libraries(python: Path) -> "subprocess.CompletedProcess[str] | None":
    """Read the libraries of this Python's torch and numpy from disk again, each from its beginning to its end.

    The position of their pages in memory changes the time of calls by some percent, until they are loaded again
    (docs/lab-notes.md). Reading them before each round makes positions vary between rounds instead of between sessions.
    Libraries that another process uses stay where they are. Only Linux has the call. Elsewhere, and without torch,
    nothing is done.
    """
    return run_in(str(python), READ_LIBRARIES) if hasattr(os, "posix_fadvise") else None


def run_in(python: str, code: str, seconds: float = math.inf) -> "subprocess.CompletedProcess[str]":
    """Run code in that Python with the checkout as its argument. See ``apart``."""
    return apart([python, "-c", code, str(ROOT)], ROOT, environment_of(Path(python)), seconds)


def conditions() -> Conditions:
    """Return the present conditions that affect timing on this machine."""
    cores = os.cpu_count() or 1
    huge = read("/sys/kernel/mm/transparent_hugepage/enabled")
    return Conditions(
        cpu=environments.cpu_model(),
        cores=cores,
        cores_allowed=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores,
        caches=caches(),
        memory_bytes=psutil.virtual_memory().total,
        system=f"{platform.system()} {platform.release()}",
        libc=" ".join(platform.libc_ver()),
        governor=read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        transparent_hugepages="".join(re.findall(r"\[(\w+)\]", huge)),
        load_average=psutil.getloadavg()[0],
    )


# --- a device that is kept awake --------------------------------------------------------------------------------------


class Awake(contextlib.ExitStack):
    """Keep the device of a run awake, from its first measurement until the context manager exits."""

    why_not: str | None = None  # why the device is not awake, "" = it is; None: not tried yet

    def hold(self) -> str:
        """Keep the device awake from now on. Return the reason of a failure, or "". A device that accepts only one
        process is released again."""
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        beside = os_session(
            [sys.executable, "-c", HOLD, str(ROOT)],
            ROOT,
            stdin=pipe,
            stdout=pipe,
            stderr=none,
            text=True,
        )
        process = self.enter_context(beside)
        assert process.stdout
        readable, _, _ = select.select([process.stdout], [], [], DEVICE_SECONDS)
        why = "the process that was to hold a context made none"
        if readable and process.stdout.readline().strip() == AWAKE:
            why = settings().no_device
        if why:
            self.close()
        return why

    def measure(
        self, record: RunRecord, known: Cells, cells: Sequence[str], asv: Callable[..., None]
    ) -> RunRecord:
        """Run asv on the record's cores. Keep the device awake if cells use it. Benchmarks of its waking run first,
        without that. The returned record says whether the device was awake.
        """
        alone = [cell for cell in cells if cell.partition("(")[0] in known.asleep]
        others = [cell for cell in cells if cell not in alone]
        if alone:
            self.close()
            self.why_not = None
            asv(alone, cores=record.cores)
        if others and known.on_device:
            if self.why_not is None:
                self.why_not = self.hold()
            record = structs.replace(record, awake=not self.why_not, not_awake=self.why_not)
        if others:
            asv(others, cores=record.cores)
        return record


# --- fitness for measuring --------------------------------------------------------------------------------------------

QUIET_SHARE = 0.9  # of the time; below this a run takes longer, and some cells may stay noisy
GROUPS, GROUPS_OF_PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
SLOW_GOVERNORS = ("powersave", "ondemand", "conservative", "schedutil")


def quiet_now(seconds: float = 1.0) -> tuple[float, float]:
    """Return the share of speed probes within 10% of the fastest level, and the mean time of a probe as a multiple of
    that level."""
    readings, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        readings.append(probe())
    level = statistics.quantiles(readings, n=20)[0]
    quiet = statistics.fmean(reading <= 1.1 * level for reading in readings)
    return quiet, statistics.fmean(readings) / level


def quota() -> float:
    """Return the CPU quota of this process, in processors: the smallest of its control groups and their parent groups.
    It is infinite without a limit."""
    quotas = [math.inf]
    for line in read(GROUPS_OF_PROCESS).splitlines():
        _, controllers, group = line.split(":", 2)  # version 2 names no controllers
        for above in (Path(group), *Path(group).parents):
            place = GROUPS / controllers / str(above).lstrip("/")
            said = " ".join(
                read(place / f"cpu.{name}") for name in ("max", "cfs_quota_us", "cfs_period_us")
            ).split()
            quotas += [int(said[0]) / int(said[1])] if said and said[0].isdigit() else []
    return min(quotas)


def findings(known: Conditions, quiet: float, processors: float) -> dict[str, str | bool]:
    """Finding, such as "load average 5.0" -> advice, or False if nothing needs to change."""
    cores, load = known.cores_allowed or 1, known.load_average or 0.0
    share = "no quota of processors" if math.isinf(processors) else f"a quota of {processors:.1f}"
    busy = "a run takes up to twice as long, and some cells may stay noisy: end what else runs, or take another "
    busy += "machine or hour (a neighbour of a virtual machine cannot be seen from inside)"
    lift = "the container is stopped when it is used up: lift it (docker run without --cpus)"
    slow = "sudo cpupower frequency-set -g performance: the clock rises only when it is needed"
    return {
        f"quiet {quiet:.0%} of the time": quiet < QUIET_SHARE and busy,
        f"{cores} of {known.cores} cores": cores < 2
        and "asv needs one beside the one that is measured: allow two",
        f"load average {load:.1f}": load > 0.5 * cores and "end what else runs here",
        share: processors < cores and lift,
        f"frequency governor {known.governor or 'unknown'}": known.governor in SLOW_GOVERNORS
        and slow,
    }


def check() -> int:
    """Print the findings. Return exit code 0 if nothing needs to change, else 1."""
    print("checking the machine for about ten seconds", flush=True)
    at, found = settings(), findings(conditions(), quiet_now(5.0)[0], quota())
    print(
        f"  device {at.device} ({at.device_name})" if at.device else f"  no device: {at.no_device}"
    )
    for what, advice in found.items():
        print(f"! {what}: {advice}" if advice else f"  {what}")
    return int(any(found.values()))
