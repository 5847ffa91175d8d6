"""What does the environment do to fresh memory and to copies: allocator, huge pages, instructions?

A setting has to be there when a process starts, so every cell has a process of its own that makes
the source and runs the statement. The benchmark's own process decides when and how often, and
whether that was quiet, as for any other cell. It takes the probes, too: in the other process the
setting would touch their memory (jemalloc slows those that move bytes by a fifth).
"""

import builtins
import contextlib
import ctypes
import importlib
import json
import os
import subprocess
import sys
import timeit
from pathlib import Path

from . import batches, conversion, placement, routes
from .core import devices, environment, moving

section = "Settings of the environment"
about = (
    "Sources are float32. After its first call, every process is checked: are its pages huge, are "
    "they faulted in anew, whose malloc does it call? A setting without effect is a failure. "
    "Counted: pages that a call faults in, the share of a result's memory in huge pages, and what "
    "the process keeps after freeing all results."
)
place = 12
role = "settings"
noise = "settings"
has_panels = False
down = "setting"
reference = {"setting": environment.NONE, "called": "without"}
settings = environment.ADVISED

ROOT = Path(__file__).resolve().parent.parent
SETTLED = 24  # calls before counting: a heap needs some calls until it has room for all
CALLS = 8  # calls whose pages are counted
HOLDERS = (
    4  # processes whose memory is counted: by where glibc's blocks lie, it differs by ten times
)
SMALL = 4 * 2**10  # bytes: loads the code that a route needs, and leaves no memory
USUAL = 64 * 2**20  # bytes: more than glibc keeps for reuse by default


class Statement:
    """A statement with its names, in the process that has the setting."""

    def __init__(self, route, names):
        self.route, self.names = route, names
        self.timer = timeit.Timer(route, globals=names)

    def timeit(self, number):
        return self.timer.timeit(number)


class _Cell(Statement):
    """One of a family that allocates, with its source."""

    def __init__(self, family, route, nbytes):
        super().__init__(route, family.names(route, nbytes))
        timeit.Timer(route, globals=family.names(route, SMALL)).timeit(1)
        self.before = _resident()

    def page_faults(self):
        self.timer.timeit(SETTLED)
        start = environment.page_faults()
        self.timer.timeit(CALLS)
        return (environment.page_faults() - start) / CALLS

    def huge_share(self):
        return environment.huge_share(eval(self.route, self.names))

    def kept(self):
        self.timer.timeit(SETTLED)
        return max(0, _resident() - self.before)


def _resident():
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def serve(module, family, route, setting, nbytes):
    """In the other process: read JSON lines with calls of the cell's methods, and answer each with
    a JSON line.
    """

    def answer(**fields):
        print(json.dumps(fields), flush=True)

    try:
        of_family = getattr(importlib.import_module(module), family)
        cell = of_family.cell_type(of_family, route, nbytes)
        answer(result=None)
        for number, line in enumerate(sys.stdin):
            method, *values = json.loads(line)
            result = getattr(cell, method)(*values)
            # only after the first call: the check allocates memory that some settings keep
            missed = "" if number else environment.SETTINGS[setting].missed()
            if missed:
                raise RuntimeError(f"{setting} is not in force: {missed}")
            answer(result=result)
    except Exception as error:
        kinds = (kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
        answer(raised=next(kinds), text=str(error))


# Contains the function's name, so that the family's hash covers its code
CODE = (
    "import json, sys; from benchmarks import settings; "
    f"settings.{serve.__name__}(*json.loads(sys.argv[1]))"
)


class Process:
    """A cell in another process, started with a setting: timed like a timeit.Timer. The process
    ends with this one.
    """

    def __init__(self, family, route, setting, nbytes):
        self.allowed = os.sched_getaffinity(0)
        # both processes on one core, or the probes would measure another core
        if family.on_one_core:
            os.sched_setaffinity(0, {ctypes.CDLL(None).sched_getcpu()})
        variables = environment.started_with(setting)
        variables["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(ROOT), variables.get("PYTHONPATH")))
        )
        place = family.__module__, family.__name__
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, json.dumps([*place, route, setting, nbytes])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            text=True,
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, *call):
        """Return the result of a method of the cell, or raise its exception."""
        with contextlib.suppress(BrokenPipeError):  # the process ended: _answer reports how
            print(json.dumps(call), file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            messages = self.process.communicate()[1].strip().splitlines() or ["nothing"]
            raise RuntimeError(
                f"the process with the setting ended with {self.process.returncode}: {messages[-1]}"
            )
        answer = json.loads(line)
        if "raised" in answer:
            raise getattr(builtins, answer["raised"])(answer["text"])
        return answer["result"]

    def timeit(self, number):
        return self.ask("timeit", number)

    def close(self):
        self.process.communicate()
        os.sched_setaffinity(0, self.allowed)


class ProcessFamily:
    """route × setting × nbytes, in another process."""

    cell_type = _Cell
    on_one_core = True
    single_threaded = False  # this process waits for the other one
    timeout = 300
    timed_by = None

    def setup(self, route, setting, nbytes):
        environment.require(setting)
        self.timed_by = Process(type(self), route, setting, nbytes)

    def teardown(self, route, setting, nbytes):
        if self.timed_by:
            self.timed_by.close()


class _Settings(ProcessFamily):
    """The same with the memory that a call takes."""

    direction = routes.NUMPY_TO_TORCH

    def timeit_convert(self, route, setting, nbytes):
        return route, {}

    def track_page_faults(self, route, setting, nbytes):
        """Pages of memory faulted in by one call, in steady state."""
        return self.timed_by.ask("page_faults")

    track_page_faults.unit = "pages"

    def track_huge_pages(self, route, setting, nbytes):
        """Share of the memory around a result in huge pages, in %."""
        return 100 * self.timed_by.ask("huge_share")

    track_huge_pages.unit = "% in huge pages"

    def track_kept(self, route, setting, nbytes):
        """Growth of processes since before the first call, in bytes, with all results freed."""
        counts = [self.timed_by.ask("kept")]
        while len(counts) < HOLDERS:
            self.teardown(route, setting, nbytes)
            self.setup(route, setting, nbytes)
            counts.append(self.timed_by.ask("kept"))
        return {"samples": counts, "number": 1}

    track_kept.unit = "bytes kept"


class Copies(_Settings):
    title = "a fresh copy in torch's memory"
    params = (
        ["torch.from_numpy(a).clone()"],
        environment.FRESH,
        [2**20, 16 * 2**20, USUAL, 256 * 2**20],
    )

    @staticmethod
    def names(route, nbytes):
        family = conversion.NumpyToTorch()
        family.setup(route, "float32", nbytes)
        return family.names


class NumpyCopies(Copies):
    title = "a fresh copy in NumPy's memory"
    params = (["torch.from_numpy(a.copy())"], environment.FRESH, [USUAL])


class Batches(_Settings):
    title = "64 arrays into one tensor"
    params = (["torch.stack([torch.from_numpy(x) for x in arrays])"], environment.FRESH, [USUAL])

    @staticmethod
    def names(route, nbytes):
        family = batches.ArraysToTensor()
        family.setup(route, nbytes)
        return family.names


class Neighbours(_Settings):
    """64 KiB: the most commonly copied size that fits into a core's own cache."""

    track_page_faults = track_huge_pages = track_kept = None  # not inherited: nothing is allocated
    title = "a copy between neighbours"
    applies_to = "memmove"
    params = (["np.copyto(b.numpy(), a)"], environment.COPYING, [64 * 2**10])

    @staticmethod
    def names(route, nbytes):
        family = placement.NumpyToTorch()
        family.setup(route, placement.NEIGHBOURS, nbytes)
        return family.timeit_convert(route, placement.NEIGHBOURS, nbytes)[1]


class ReadBack(_Settings):
    """Into fresh memory, as for a checkpoint; only the other process has the device's context."""

    track_page_faults = track_huge_pages = track_kept = (
        None  # not inherited: Copies counts them for the same memory
    )
    needs_device = True
    section = "Transfers: settings of the environment"
    about = "Another process is started with each setting, and has the tensor on the device."
    place = 21
    role = ""
    noise = "transfer"
    title = "from the device into fresh memory"
    direction = routes.DEVICE_TO_HOST
    params = (["t.cpu()"], environment.FRESH, [USUAL])

    @staticmethod
    def names(route, nbytes):
        route = routes.find(route, routes.DEVICE_TO_HOST)
        move = moving.Move(route, routes.PAGEABLE, "float32", nbytes, devices.find())
        move.ready()
        return move.names
