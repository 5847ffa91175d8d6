"""Made-up results of a machine with an accelerator: the benchmarks and contracts are real, the seconds are not.

Formulas give the seconds. The results serve tests of code that reads results, never a page.
"""

import ast
import itertools
from collections import Counter

import resultfiles
from measuring.profiles import PROFILES, select
from resultfiles import SKIPPED, SUITE, around, of_suite
from store.schema import cell_names

from benchmarks import link, many, overlap, routes, staging, transfer

KIB, MIB, GIB = 2**10, 2**20, 2**30
LINK = 50e9  # bytes per second from or to pinned memory, each way
RATES = {routes.PAGEABLE: 12e9, routes.PINNED: LINK * 0.97, routes.REGISTERED: LINK * 0.95}
HARDWARE = {"link generation": 5, "link width": 16}
SETTINGS = {"torch": "2.0+cu118", "numpy": "1.26.1", "python": "3.11.7", "cuda": "11.8", "hip": None}
SETTINGS |= {"device": "cuda:0", "device_name": "An Accelerator", "torch_threads": 1, "no_device": ""}
HIDDEN = "overlap.Hidden.timeit_completion"
PIN, REGISTER = 0.4, 0.25  # seconds per GiB
CLOCKS = ("completion", "enqueue", "sustained")
PLAIN = ("HostToDevice", "DeviceToHost")
CHANGED = ("Casting", "ToBfloat16", "Transposed", "TreeToDevice")  # transfers that change the data on the way
WORK = 5.2e-3  # seconds of work queued before a call, an example


def move_seconds(route, memory, nbytes, clock):
    """Return the seconds of a transfer by the formula."""
    expression = route.expression
    early = route.non_blocking and memory != routes.PAGEABLE
    if clock == "enqueue":
        return 4e-6 + 1e-7 * len(expression) / 10 + (0 if early else nbytes / 14e9)
    seconds = (7e-6 if early else 9e-6) + nbytes / RATES[memory]
    if clock == "sustained":
        return 2e-6 + nbytes / (LINK * 0.98)
    if expression.startswith("s.") or "copy_in_chunks" in expression:
        seconds = 14e-6 + nbytes / (9e9 if expression.startswith("s.") else 16e9)
    if "buffers" in expression:
        seconds = 4e-6 + nbytes / RATES[memory]
    if "pin_memory" in expression:
        seconds = 40e-6 + nbytes / 6e9
    if expression in ("t.cpu()", "t.to('cpu')") or (".numpy(" in expression and route.memory == routes.COPY):
        seconds = 9e-6 + nbytes / (2e9 if nbytes >= 32 * MIB else 8e9)
    if expression.endswith(".copy()"):
        seconds += nbytes / 8e9
    return seconds + (2e-7 * len(expression) / 10)


def moved(clock):
    """Return a function of a cell: its seconds by this clock, or None where the route lacks the clock or the memory."""

    def seconds(expression, memory, *others):
        route = transfer.find(expression)
        sustained = routes.SUSTAINED in route.families and memory != routes.PAGEABLE
        has = {"completion": True, "enqueue": route.non_blocking, "sustained": sustained}[clock]
        return move_seconds(route, memory, others[-1], clock) if has and memory in route.host_memory else None

    return seconds


def called(expression, memory, nbytes):
    """Return the seconds of a call behind queued work: blocking calls wait for it, and pageable ones beyond 64 KiB."""
    route = transfer.find(expression)
    early = route.non_blocking and (memory == routes.PINNED or nbytes <= 64 * KIB)
    clock = "enqueue" if route.non_blocking else "completion"
    return move_seconds(route, memory, nbytes, clock) + (0 if early else WORK)


def staged(route, how, nbytes):
    """Threads and a pinned cache make a route three times as fast."""
    return 1e-5 + nbytes / (4e9 if how in ("one", staging.MISS) else 12e9)


def packed(route, memory, tensors):
    """Return the seconds of a route: a time per tensor; the fourth route's is that of the bytes, after 20 µs once."""
    if memory not in transfer.find(route).host_memory:
        return None
    place = many.ToDevice.params[0].index(route)
    each = {routes.PAGEABLE: (8e-6, 5e-6, 3e-6, 1e-7, 6e-6), routes.PINNED: (7e-6, 4e-6, 2e-6, 1e-7)}[memory][place]
    return (2e-5 if place == 3 else 0) + each * tensors


def linked(way, nbytes):
    """Return the seconds of a pinned copy; both ways at once have 0.9 of the bandwidth."""
    return 2e-6 + nbytes / LINK / (0.9 if way == link.BOTH_WAYS else 1)


def beside(way, memory, nbytes):
    """Return the seconds of parts timed in turns: 95 % of a pinned copy is hidden, 10 % of any other."""
    transfer = nbytes / RATES[memory]
    return {
        "other": 1.5 * transfer,
        "transfer": transfer,
        "both": (1.55 if memory == routes.PINNED else 2.4) * transfer,
    }


FORMS = overlap.TrainingStep.params[0]
# Benchmark -> function of a cell: its seconds, or its counted value
TIMES = {
    **{f"transfer.{each}.timeit_{clock}": moved(clock) for each in PLAIN for clock in CLOCKS},
    **{f"transfer.{each}.timeit_{clock}": moved(clock) for each in CHANGED for clock in CLOCKS[:2]},
    **{f"transfer.{each}.timeit_completion": moved("completion") for each in ("TreeToNumpy", "Scalar")},
    **{f"staging.{each}.timeit_completion": staged for each in ("HostThreads", "PinnedCache")},
    "staging.PinnedBlock.track_block": lambda nbytes: 2 * nbytes,
    "settings.ReadBack.timeit_convert": lambda route, setting, nbytes: nbytes / (8e9 if "MMAP" in setting else 2e9),
    HIDDEN: lambda *key: beside(*key)["both"],
    "overlap.TrainingStep.timeit_step": lambda form, nbytes: (1 - 0.1 * FORMS.index(form)) * (2e-4 + nbytes / 8e9),
    "overlap.DataLoader.timeit_batch": lambda workers, memory: (
        (3e-3 if memory == "pageable" else 2.4e-3) / (1 + workers)
    ),
    "busy.Call.timeit_call": called,
    "busy.WorkBehind.timeit_read": lambda form, nbytes: 9e-6 + nbytes / LINK + WORK * ("synchronize" in form),
    "many.ToDevice.timeit_completion": packed,
    "firsts.Context.timeit_first_tensor": lambda: 0.21,
    "firsts.PinnedMemory.timeit_allocate": lambda nbytes: 1e-4 + PIN * nbytes / GIB,
    "firsts.PinnedMemory.timeit_pin_copy": lambda nbytes: 1e-4 + (PIN + 0.1) * nbytes / GIB,
    "firsts.PinnedMemory.timeit_register": lambda nbytes: 1e-4 + REGISTER * nbytes / GIB,
    "link.Limit.timeit_copy": linked,
    "link.Floor.timeit_synchronize": lambda: 3e-6,
    "link.Hardware.track_value": lambda quantity: HARDWARE.get(quantity),
}
PINS = ("staging.", "busy.WorkBehind", "firsts.PinnedMemory", "link.Limit", "link.Hardware")


def transfers(skipped=(), chosen=lambda cell: True, profile="transfers-full", times=TIMES):
    """Return the suite's accelerator benchmarks that ``times`` names, at the cells of a profile.

    Each cell has as many processes as a real run takes. ``skipped`` names host memory that the accelerator lacks.
    """
    described, taken = {name: SUITE[name] for name in times}, PROFILES[profile]
    rounds = (select(taken, described, number).values() for number in range(taken.rounds))
    counts = Counter(cell for cells in rounds for names in cells for cell in names if chosen(cell))
    benches = []
    for name, made in described.items():
        values, timed = [[*map(ast.literal_eval, each)] for each in made["params"]], made["type"] == "time"
        cells = {}
        for key, cell in zip(itertools.product(*values), cell_names(name, made["params"])):
            if cell in counts:
                barred = set(key) & set(skipped) or (routes.PINNED in skipped and name.startswith(PINS))
                found = None if barred else times[name](*key)
                cells[key] = SKIPPED if found is None else around(found)[: counts[cell]] if timed else found
        if cells:
            in_turns = cells if name == HIDDEN else ()
            parts = {key: {part: around(s) for part, s in beside(*key).items()} for key in in_turns}
            benches.append(of_suite(name, cells, parts))
    return benches


def conversions():
    """Return the conversions without a device at the profile's cells; times grow with the route's number and bytes."""

    def seconds(name):
        return lambda *key: 1e-6 * (1 + SUITE[name]["params"][0].index(repr(key[0]))) + key[-1] / 1e10

    timed = [name for name in SUITE if name.endswith(".timeit_convert") and name not in TIMES]
    return transfers(profile="transfers", times={name: seconds(name) for name in timed})


def write(root, benches, **changes):
    """Write a results directory with these benchmarks, of a run of the profile transfers."""
    given = {"profile": "transfers", "settings": SETTINGS, "command": "python scripts/run.py --profile transfers"}
    return resultfiles.write(root, benches, records=[resultfiles.record(benches, **given | changes)])
