"""Results of a machine with an accelerator that does not exist: made-up seconds, real benchmarks and contracts.

For tests of what reads results, never for a page: the figures are those of a formula.
"""

import itertools

import resultfiles
from measuring.profiles import PROFILES, select
from resultfiles import SKIPPED, Bench, around

from benchmarks import (
    batches,
    busy,
    casting,
    conversion,
    firsts,
    link,
    many,
    overlap,
    placement,
    routes,
    staging,
    transfer,
)

KIB, MIB, GIB = 2**10, 2**20, 2**30
LINK = 50e9  # bytes a second of pinned memory, each way
RATES = {routes.PAGEABLE: 12e9, routes.PINNED: LINK * 0.97, routes.REGISTERED: LINK * 0.95}
HARDWARE = {"link generation": 5, "link width": 16, "graphics clock": 1980, "memory clock": 2619, "near cores": 16}
SETTINGS = {"torch": "2.0+cu118", "numpy": "1.26.1", "python": "3.11.7", "cuda": "11.8", "hip": None}
SETTINGS |= {"device": "cuda:0", "device_name": "An Accelerator", "torch_threads": 1, "no_device": ""}
HIDDEN = "overlap.Hidden.timeit_completion"
PIN, REGISTER = 0.4, 0.25  # seconds a GiB
WORK = 5.2e-3  # seconds of work that were queued before a call, as it happened


def move_seconds(route, memory, nbytes, clock):
    """What a transfer takes by the formula."""
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


def transfers(skipped=(), chosen=lambda cell: True, profile="transfers-full"):
    """The benchmarks of an accelerator at the cells of a profile; ``skipped`` names host memory that it has not."""
    benches = []
    for made in (transfer.HostToDevice(), transfer.DeviceToHost()):
        for clock in ("completion", "enqueue", "sustained"):
            benches.append(_moved(made, clock, skipped))
    for made in (transfer.Casting(), transfer.ToBfloat16(), transfer.Transposed(), transfer.TreeToDevice()):
        benches += [_moved(made, clock, skipped) for clock in ("completion", "enqueue")]
    for made in (transfer.TreeToNumpy(), transfer.Scalar()):
        benches.append(_moved(made, "completion", skipped))
    benches += [*_staged(skipped), _hidden(skipped), *_steps(), *_busy(skipped), _many(skipped)]
    benches += [*_firsts(skipped), *_link(skipped)]
    return _in_profile(benches, profile, chosen)


def conversions():
    """The conversions without a device at the cells of the profile, by number of the route and by bytes."""
    made = (
        *(conversion.NumpyToTorch(), conversion.TorchToNumpy(), casting.Bfloat16ToNumpy()),
        *(batches.ArraysToTensor(), batches.TreeToNumpy(), batches.TreeToTorch()),
        *(placement.NumpyToTorch(), placement.TorchToNumpy()),
    )
    benches = []
    for one in made:
        params = dict(zip(one.param_names, one.params))
        cells = {
            key: around(1e-6 * (1 + one.params[0].index(key[0])) + key[-1] / 1e10)
            for key in itertools.product(*one.params)
        }
        name = f"{type(one).__module__.rpartition('.')[2]}.{type(one).__name__}.timeit_convert"
        benches.append(Bench(name, params, cells, list(one.contracts.values())))
    return _in_profile(benches, "transfers")


def _in_profile(benches, profile, chosen=lambda cell: True):
    """The cells of the profile, each with as many processes as a run really takes of it."""
    described, taken = {bench.name: bench.description() for bench in benches}, PROFILES[profile]
    rounds = [select(taken, described, number) for number in range(taken.rounds)]
    for bench in benches:
        kept = {}
        for key, value in bench.cells.items():
            cell = bench.spelled(key)
            count = sum(cell in cells.get(bench.name, ()) for cells in rounds)
            if count and chosen(cell):
                kept[key] = value[:count] if isinstance(value, list) else value
                if key in (bench.parts or {}):
                    bench.parts[key] = {part: seconds[:count] for part, seconds in bench.parts[key].items()}
        bench.cells = kept
    return [bench for bench in benches if bench.cells]


def _moved(made, clock, skipped):
    cells = {}
    for key in itertools.product(*made.params):
        route, memory, nbytes = routes.find(key[0], made.direction), key[1], key[-1]
        barred = memory not in route.host_memory or (clock == "enqueue" and not route.non_blocking)
        barred = barred or (clock == "sustained" and (routes.SUSTAINED not in route.families or memory == "pageable"))
        seconds = around(move_seconds(route, memory, nbytes, clock))
        cells[key] = SKIPPED if barred or memory in skipped else seconds
    params = dict(zip(made.param_names, made.params))
    contracts = list(made.contracts.values())
    return Bench(f"transfer.{type(made).__name__}.timeit_{clock}", params, cells, contracts)


def _staged(skipped):
    """Threads and a pinned cache that make a route three times as fast."""
    for made in (staging.HostThreads(), staging.PinnedToDevice(), staging.PinnedToHost()):
        cells = {}
        for key in itertools.product(*made.params):
            slow = key[1] in ("one", staging.MISS)
            barred = routes.PINNED in skipped and key[0] != staging.CAST
            cells[key] = SKIPPED if barred else around(1e-5 + key[-1] / (4e9 if slow else 12e9))
        contracts = list(made.contracts.values())
        params = dict(zip(made.param_names, made.params))
        yield Bench(f"staging.{type(made).__name__}.timeit_completion", params, cells, contracts)


def _hidden(skipped):
    made, cells, parts = overlap.Hidden, {}, {}
    for key in itertools.product(*made.params):
        _, memory, nbytes = key
        moved = nbytes / RATES[memory]
        cells[key], parts[key] = hidden(1.5 * moved, moved, 0.95 if memory == routes.PINNED else 0.1)
        if memory in skipped:
            cells[key] = SKIPPED
    return Bench(HIDDEN, dict(zip(made.param_names, made.params)), cells, parts=parts)


def hidden(products, moved, share):
    """Products and a transfer in turns: seconds of both at once in each process, and those of each part."""
    parts = {"products": products, "transfer": moved, "both": products + moved - share * min(products, moved)}
    found = {part: around(seconds) for part, seconds in parts.items()}
    return found["both"], found


def _steps():
    forms, sizes = overlap.TrainingStep.params
    cells = {(form, n): around((1 - 0.1 * i) * (2e-4 + n / 8e9)) for i, form in enumerate(forms) for n in sizes}
    yield Bench("overlap.TrainingStep.timeit_step", {"form": forms, "nbytes": sizes}, cells)
    workers, memory = overlap.DataLoader.params
    cells = {(n, host): around(3e-3 * (1 - 0.2 * i) / (1 + n)) for n in workers for i, host in enumerate(memory)}
    yield Bench("overlap.DataLoader.timeit_batch", {"workers": workers, "memory": memory}, cells)


def _busy(skipped):
    """Blocking calls wait for the work, and pageable ones beyond 64 KiB."""
    for made in (busy.HostToDevice(), busy.DeviceToHost()):
        cells = {}
        for key in itertools.product(*made.params):
            route, memory, nbytes = routes.find(key[0], made.direction), *key[1:]
            early = route.non_blocking and (memory == routes.PINNED or nbytes <= 64 * KIB)
            alone = move_seconds(route, memory, nbytes, "enqueue" if route.non_blocking else "completion")
            cells[key] = SKIPPED if memory in skipped else around(alone + (0 if early else WORK))
        params = dict(zip(made.param_names, made.params))
        yield Bench(f"busy.{type(made).__name__}.timeit_call", params, cells, list(made.contracts.values()))
    forms, sizes = busy.WorkBehind.params
    barred = routes.PINNED in skipped
    cells = {
        (f, n): SKIPPED if barred else around(9e-6 + n / LINK + WORK * i) for i, f in enumerate(forms) for n in sizes
    }
    yield Bench("busy.WorkBehind.timeit_read", {"form": forms, "nbytes": sizes}, cells)


# seconds a tensor, of each route in order of the catalogue; the last one's are those of the bytes
A_TENSOR = {routes.PAGEABLE: (8e-6, 5e-6, 3e-6, 1e-7), routes.PINNED: (7e-6, 4e-6, 2e-6, 1e-7)}


def _many(skipped):
    made = many.ToDevice()
    cells = {}
    for place, route in enumerate(made.params[0]):
        for memory, count in itertools.product(*made.params[1:]):
            seconds = (2e-5 if place == 3 else 0) + A_TENSOR[memory][place] * count
            cells[route, memory, count] = SKIPPED if memory in skipped else around(seconds)
    params = dict(zip(made.param_names, made.params))
    return Bench("many.ToDevice.timeit_completion", params, cells, list(made.contracts.values()))


def _firsts(skipped):
    yield Bench("firsts.Context.timeit_first_tensor", {}, {(): around(0.21)})
    sizes = firsts.PinnedMemory.params[0]
    for name, each in (("allocate", PIN), ("pin_copy", PIN + 0.1), ("register", REGISTER)):
        barred = routes.PINNED in skipped or (name == "register" and routes.REGISTERED in skipped)
        cells = {(n,): SKIPPED if barred else around(1e-4 + each * n / GIB) for n in sizes}
        yield Bench(f"firsts.PinnedMemory.timeit_{name}", {"nbytes": sizes}, cells)


def _link(skipped):
    directions, sizes = link.Limit.params
    barred = routes.PINNED in skipped
    cells = {}
    for direction, n in itertools.product(directions, sizes):
        moved = 2 * n / (1.8 * LINK) if direction == link.BOTH else n / LINK
        cells[direction, n] = SKIPPED if barred else around(moved + 2e-6)
    yield Bench("link.Limit.timeit_copy", {"direction": directions, "nbytes": sizes}, cells)
    yield Bench("link.Floor.timeit_synchronize", {}, {(): around(3e-6)})
    quantities = link.Hardware.params[0]
    cells = {(name,): SKIPPED if barred else HARDWARE.get(name, SKIPPED) for name in quantities}
    yield Bench("link.Hardware.track_value", {"quantity": quantities}, cells, unit="as named")


def record(benches, **changes):
    """A run record of the profile transfers."""
    given = {"profile": "transfers", "settings": SETTINGS, "command": "python scripts/run.py --profile transfers"}
    return resultfiles.record(benches, **given | changes)


def write(root, benches, **changes):
    """A results directory with these benchmarks."""
    made = resultfiles.write(root, benches, records=[record(benches, machine="box", **changes)])
    for bench in benches:
        if bench.parts:
            resultfiles.probed(made, bench)
    return made
