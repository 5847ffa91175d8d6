"""Results of a machine with an accelerator that does not exist: made-up seconds, real benchmarks and contracts.

For tests of what reads results, never for a page: the figures are those of a formula.
"""

import itertools
import re

import resultfiles
from measuring.profiles import PROFILES, select
from resultfiles import SKIPPED, Bench, around

from benchmarks import batches, casting, conversion, firsts, link, overlap, routes, transfer

KIB, MIB, GIB = 2**10, 2**20, 2**30
LINK = 50e9  # bytes a second of pinned memory, each way
RATES = {routes.PAGEABLE: 12e9, routes.PINNED: LINK * 0.97, routes.REGISTERED: LINK * 0.95}
HARDWARE = {"link generation": 5, "link width": 16, "graphics clock": 1980, "memory clock": 2619, "near cores": 16}
SETTINGS = {"torch": "2.0+cu118", "numpy": "1.26.1", "python": "3.11.7", "cuda": "11.8", "hip": None}
SETTINGS |= {"device": "cuda:0", "device_name": "An Accelerator", "torch_threads": 1, "no_device": ""}
PIN, REGISTER = 0.4, 0.25  # seconds a GiB


def move_seconds(route, memory, nbytes, clock):
    """What a transfer takes by the formula."""
    expression = route.expression
    early = route.non_blocking and memory != routes.PAGEABLE
    if clock == "enqueue":
        return 4e-6 + 1e-7 * len(expression) / 10 + (0 if early else nbytes / 14e9)
    seconds = (7e-6 if early else 9e-6) + nbytes / RATES[memory]
    if clock == "sustained":
        return 2e-6 + nbytes / (LINK * 0.98)
    if "s.copy_" in expression or "copy_in_chunks" in expression:
        seconds = 14e-6 + nbytes / (9e9 if "s.copy_" in expression else 16e9)
    if "pin_memory" in expression:
        seconds = 40e-6 + nbytes / 6e9
    if expression in ("t.cpu()", "t.to('cpu')") or ".numpy(" in expression:
        seconds = 9e-6 + nbytes / (2e9 if nbytes >= 32 * MIB else 8e9)
    if expression.endswith(".copy()"):
        seconds += nbytes / 8e9
    return seconds + (2e-7 * len(expression) / 10)


def transfers(device="cuda:0", skipped=(), chosen=lambda cell: True):
    """The benchmarks of an accelerator at the cells of the profile; ``skipped`` names host memory that it has not."""
    benches = []
    for made in (transfer.HostToDevice(), transfer.DeviceToHost()):
        for clock in ("completion", "enqueue", "sustained"):
            benches.append(_moved(made, clock, skipped))
    for made in (transfer.Casting(), transfer.Transposed(), transfer.TreeToDevice()):
        benches += [_moved(made, clock, skipped) for clock in ("completion", "enqueue")]
    for made in (transfer.TreeToNumpy(), transfer.Scalar()):
        benches.append(_moved(made, "completion", skipped))
    benches += [_hidden(skipped), *_steps(), *_firsts(skipped), *_link(skipped)]
    return _in_profile(benches, chosen)


def conversions():
    """The conversions without a device at the cells of the profile, by number of the route and by bytes."""
    made = (
        *(conversion.NumpyToTorch(), conversion.TorchToNumpy(), casting.Bfloat16ToNumpy()),
        *(batches.ArraysToTensor(), batches.TreeToNumpy(), batches.TreeToTorch()),
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
    return _in_profile(benches)


def _in_profile(benches, chosen=lambda cell: True):
    described = {bench.name: bench.description() for bench in benches}
    patterns = select(PROFILES["transfers"], described)
    for bench in benches:
        bench.cells = {
            key: value
            for key, value in bench.cells.items()
            if any(re.search(pattern, bench.spelled(key)) for pattern in patterns.get(bench.name, []))
            and chosen(bench.spelled(key))
        }
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


def _hidden(skipped):
    cells = {}
    for direction, memory, part, nbytes in itertools.product(*overlap.Hidden.params):
        product, moved = 3e-3, nbytes / RATES[memory]
        hides = 0.95 if memory == routes.PINNED else 0.1
        seconds = {"product": product, "transfer": moved, "both": product + moved - hides * min(product, moved)}[part]
        cells[direction, memory, part, nbytes] = SKIPPED if memory in skipped else around(seconds)
    return Bench(
        "overlap.Hidden.timeit_completion", dict(zip(overlap.Hidden.param_names, overlap.Hidden.params)), cells
    )


def _steps():
    forms, sizes = overlap.TrainingStep.params
    cells = {(form, n): around((1 - 0.1 * i) * (2e-4 + n / 8e9)) for i, form in enumerate(forms) for n in sizes}
    yield Bench("overlap.TrainingStep.timeit_step", {"form": forms, "nbytes": sizes}, cells)
    memory = overlap.DataLoader.params[0]
    cells = {(host,): around(3e-3 * (1 - 0.2 * i)) for i, host in enumerate(memory)}
    yield Bench("overlap.DataLoader.timeit_batch", {"memory": memory}, cells)


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
    return resultfiles.write(root, benches, records=[record(benches, machine="box", **changes)])
