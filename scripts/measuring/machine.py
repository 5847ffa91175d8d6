"""What of a machine bears on timing: its hardware, its load, torch with its threads, the device that works; is it fit?

A process holds a context on the device beside a run: without one, each process timed finds clocks and link asleep.
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
from dataclasses import asdict, replace
from pathlib import Path

import psutil
from cli import UserError
from store import files
from store.records import MACHINE, Conditions, Record, Settings, made_of
from toolchains import environments

from benchmarks.probes import probe

from .engine import ROOT, environment_of
from .processes import apart, last_line, read, session
from .profiles import Cells

AWAKE = "awake"
# What processes run that ask the suite's own code; the checkout is their argument. What torch, or a backend that it
# loads, prints meanwhile is no answer
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
DEVICE_SECONDS = 120.0  # importing torch and making a context take 20 on a machine that is slow at both


def check_machine(directory: Path) -> None:
    """UserError if the results in ``directory`` were measured on other hardware: a page is about one machine."""
    here = asdict(conditions())
    for path in files.result_files(directory.parent, directory.name, files.RECORDS):
        before = {}
        with contextlib.suppress(UserError):
            for record in files.read_records(path)[-1:]:
                before = {name: value for name, value in asdict(record.conditions).items() if name in MACHINE and value}
        # a virtual machine may move to another host, whose CPU has the same name and other caches
        if any(here[name] and here[name] != value for name, value in before.items()):
            sizes = "".join(f", {level} {size}" for level, size in before.get("caches", {}).items())
            raise UserError(
                f"the results of {directory.name} were measured on another machine ({before.get('cpu')}, "
                f"{before.get('cores')} cores{sizes}): give this one a name of its own by --machine"
            )


def caches() -> dict[str, str]:
    """Level -> size of the caches for data, as the system says it; empty where it does not."""
    every = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    data = [cache for cache in every if read(cache / "type") != "Instruction"]
    return {f"L{read(cache / 'level')}": read(cache / "size") for cache in data}


def settings(python: str = sys.executable) -> Settings:
    """The toolchain really imported, its thread settings, and the device's name and model, or why there is none: by a
    process like those timed, in DEVICE_SECONDS at most.

    Making a context may abort, crash or hang in the driver. That says that no device works, and ends no run.
    """
    done = run_in(python, SAY_SETTINGS, DEVICE_SECONDS)
    (imported, *device), code = done.stdout.splitlines() or [""], done.returncode
    with contextlib.suppress(IndexError, ValueError):
        if code == 0:
            return made_of(Settings, json.loads(imported) | json.loads(device[-1]))
    why = last_line(done.stderr, f"ended with code {code}")
    if code is None:
        why = f"did not answer in {DEVICE_SECONDS:g} s"
    elif code < 0:
        why = f"died with signal {-code} ({signal.strsignal(-code)})"
    if not imported:
        raise UserError(f"torch cannot be imported: {why}")
    named = os.environ.get("CONVERSION_DEVICE")
    tried = f"CONVERSION_DEVICE={named}" if named else "the device"
    return made_of(Settings, json.loads(imported) | {"no_device": f"the process that tried {tried}: {why}"})


def read_libraries(python: Path) -> "subprocess.CompletedProcess[str] | None":
    """Have the libraries of torch and numpy of this Python read from disk anew, each from its beginning to its end.

    Where their pages lie in memory moves calls by some percent, as long as they stay there (docs/accuracy.md). Done
    before each round, this makes rounds differ in it, and not sessions. Libraries that another process uses stay where
    they are. Linux alone has the call; elsewhere, and where torch is missing, nothing is done.
    """
    return run_in(str(python), READ_LIBRARIES) if hasattr(os, "posix_fadvise") else None


def run_in(python: str, code: str, seconds: float = math.inf) -> "subprocess.CompletedProcess[str]":
    """Run code in that Python, with the checkout as its argument; see apart."""
    return apart([python, "-c", code, str(ROOT)], ROOT, environment_of(Path(python)), seconds)


def conditions() -> Conditions:
    """What of the machine bears on timing, as it is now."""
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
    """The device of a run: kept awake from the first measurement that wants it on, until this is left."""

    why_not: str | None = None  # it is not awake; None: nobody has tried

    def hold(self) -> str:
        """Keep the device awake from now on; why it is not, "" where it is. One that takes one process alone is let go
        again."""
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        beside = session([sys.executable, "-c", HOLD, str(ROOT)], ROOT, stdin=pipe, stdout=pipe, stderr=none, text=True)
        process = self.enter_context(beside)
        assert process.stdout
        readable, _, _ = select.select([process.stdout], [], [], DEVICE_SECONDS)
        why = "the process that was to hold a context made none"
        if readable and process.stdout.readline().strip() == AWAKE:
            why = settings().no_device
        if why:
            self.close()
        return why

    def measure(self, record: Record, known: Cells, cells: Sequence[str], asv: Callable[..., None]) -> Record:
        """A run of asv; where a device takes part, on the record's cores and with the device awake, but for the
        benchmarks that time how it wakes. The record says whether it was.
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
            record = replace(record, awake=not self.why_not, not_awake=self.why_not)
        if others:
            asv(others, cores=record.cores)
        return record


# --- is it fit to measure on? -----------------------------------------------------------------------------------------

QUIET_SHARE = 0.9  # of the time: below it a run takes longer, and some cells may stay noisy
GROUPS, GROUPS_OF_PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
SLOW_GOVERNORS = ("powersave", "ondemand", "conservative", "schedutil")


def quiet_now(seconds: float = 1.0) -> tuple[float, float]:
    """The share of so many seconds in which a speed probe takes no more than a tenth longer than its fastest level; how
    many times that level a probe takes in the mean."""
    readings, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        readings.append(probe())
    level = statistics.quantiles(readings, n=20)[0]
    quiet = statistics.fmean(reading <= 1.1 * level for reading in readings)
    return quiet, statistics.fmean(readings) / level


def quota() -> float:
    """Processors' worth of time that this process may take: the least that one of its control groups, or a group above
    one, allows; infinite where nothing limits it."""
    quotas = [math.inf]
    for line in read(GROUPS_OF_PROCESS).splitlines():
        _, controllers, group = line.split(":", 2)  # version 2 names no controllers
        for above in (Path(group), *Path(group).parents):
            place = GROUPS / controllers / str(above).lstrip("/")
            said = " ".join(read(place / f"cpu.{name}") for name in ("max", "cfs_quota_us", "cfs_period_us")).split()
            quotas += [int(said[0]) / int(said[1])] if said and said[0].isdigit() else []
    return min(quotas)


def findings(known: Conditions, quiet: float, processors: float) -> dict[str, str]:
    """What was looked at, and how it is -> what to change, "" where nothing is to be."""
    cores, load = known.cores_allowed or 1, known.load_average or 0.0
    share = "no quota of processors" if math.isinf(processors) else f"a quota of {processors:.1f}"
    busy = "a run takes up to twice as long, and some cells may stay noisy: end what else runs, or take another "
    busy += "machine or hour (a neighbour of a virtual machine cannot be seen from inside)"
    lift = "the container is stopped when it is used up: lift it (docker run without --cpus)"
    slow = "sudo cpupower frequency-set -g performance: the clock rises only when it is needed"
    looked = {
        f"quiet {quiet:.0%} of the time": quiet < QUIET_SHARE and busy,
        f"{cores} of {known.cores} cores": cores < 2 and "asv needs one beside the one that is measured: allow two",
        f"load average {load:.1f}": load > 0.5 * cores and "end what else runs here",
        share: processors < cores and lift,
        f"frequency governor {known.governor or 'unknown'}": known.governor in SLOW_GOVERNORS and slow,
    }
    return {what: advice or "" for what, advice in looked.items()}


def check() -> int:
    """Look at all of it, and say it; the exit code: 0 where nothing is to be changed, else 1."""
    print("checking the machine for about ten seconds", flush=True)
    at, found = settings(), findings(conditions(), quiet_now(5.0)[0], quota())
    print(f"  device {at.device} ({at.device_name})" if at.device else f"  no device: {at.no_device}")
    for what, advice in found.items():
        print(f"! {what}: {advice}" if advice else f"  {what}")
    return int(any(found.values()))
