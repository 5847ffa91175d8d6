"""Made-up results in which the right answer to a case is known, for tests of scripts/advise.py and of pages."""

import resultfiles
from resultfiles import ABSENT, AS_TENSOR, CLONE, FROM_NUMPY, KIB, MIB, TENSOR, around, contract, every, memcpy

SIZES = (8, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
COPYTO = contract("np.copyto(b.numpy(), a)", "into", memmove=True)
DLPACK = contract("torch.from_dlpack(a)", "alias", hazard="can end the process")
LATENCY, FAST, SLOW = 1e-6, 4e10, 5e9  # of a copy: seconds; bytes per second to existing and to fresh memory


def copied(nbytes, factor=1.0):
    """Return the seconds of a copy: the bandwidth drops at 32 MiB."""
    return (LATENCY + nbytes / (FAST if nbytes < 32 * MIB else SLOW)) * factor


def glibc(benches):
    conditions = {"cpu": "A CPU", "cores": 4, "caches": {"L2": "1024K"}, "libc": "glibc 2.36"}
    return [resultfiles.record(benches, conditions=conditions)]


def host():
    """Conversions of arrays: two aliases, a faster alias with a hazard, two copies, and a copy into a buffer."""
    shared = {"torch.from_numpy(a)": 4e-7, "torch.as_tensor(a)": 8e-7, "torch.from_dlpack(a)": 2e-7}

    def seconds(route, dtype, n):
        if dtype != "float32" and (route not in ("torch.tensor(a)", "torch.from_numpy(a).clone()") or n != MIB):
            return ABSENT
        slower = {"torch.tensor(a)": 1.5, "torch.from_numpy(a).clone()": 2.0 if dtype == "int64" else 1.0}
        return shared.get(route) or (copied(n, slower[route]) if route in slower else LATENCY + n / FAST)

    promises, dtypes = [FROM_NUMPY, AS_TENSOR, DLPACK, TENSOR, CLONE, COPYTO], ["float32", "float16", "int64"]
    return every("conversion.NumpyToTorch.timeit_convert", seconds, promises, dtype=dtypes, nbytes=SIZES)


def layouts():
    """Conversions of two layouts: one of two copies takes 20 times as long if the source is Fortran-ordered."""

    def seconds(route, layout, n):
        slower = {"torch.tensor(a)": 1.5, "torch.from_numpy(a).clone()": 20 if layout == "fortran" else 1}
        return copied(n, slower[route]) if route in slower else 4e-7

    promises, orders = [FROM_NUMPY, CLONE, TENSOR], ["contiguous", "fortran"]
    return every("layout.NumpyToTorch.timeit_convert", seconds, promises, layout=orders, nbytes=[MIB])


def tensors():
    """Conversions of tensors to arrays: only the route with detach() accepts tensors that require grad."""
    plain = contract("t.numpy()", "alias", "torch→numpy", inputs={"requires grad": "RuntimeError"})
    detached = contract("t.detach().numpy()", "alias", "torch→numpy", inputs={"requires grad": "detaches"})
    times = {("t.numpy()", n): around(5e-7) for n in SIZES} | {("t.detach().numpy()", n): around(7e-7) for n in SIZES}
    grads = {("t.detach().numpy()", n): around(7e-7) for n in (4 * KIB, MIB)}
    return [
        resultfiles.conversion(times, [plain, detached], "TorchToNumpy"),
        resultfiles.conversion(grads, [detached], "RequiresGradToNumpy"),
    ]


def lists():
    stacked = [contract("torch.from_numpy(np.stack(arrays))", "copy")]
    return every("batches.ArraysToTensor.timeit_convert", lambda _, n: copied(n), stacked, nbytes=[4 * KIB, MIB])


MOVE = contract("t.to(device)", "copy", "host→device")
IN_FLIGHT = {"hazard": "in flight", "hazard_memory": ["pinned", "registered"]}
EARLY = contract("t.to(device, non_blocking=True)", "copy", "host→device", non_blocking=True, **IN_FLIGHT)
STAGED = contract("s.copy_(t); d.copy_(s, non_blocking=True)", "into", "host→device", non_blocking=True, hazard="wait")
BACK = contract("t.cpu()", "copy", "device→host")


def device():
    """Transfers over a link: pinned memory is twice as fast, and a non-blocking call returns almost at once."""
    sizes, hosts = (MIB, 64 * MIB), ["pageable", "pinned"]
    cells = {"dtype": ["float32"], "nbytes": sizes}

    def moved(route, memory, _, n):
        if route == STAGED["expression"]:
            return 2e-5 + n / 1.5e10 if memory == "pageable" else ABSENT
        return (1e-5 if route == "t.to(device)" else 1.2e-5) + n / (2e10 if memory == "pinned" else 1e10)

    def back(*cell):
        return 1e-5 + cell[-1] / 1e10

    def pinned(n):
        return 1e-3 + n / 1e9

    return [
        every("transfer.HostToDevice.timeit_completion", moved, [MOVE, EARLY, STAGED], memory=hosts, **cells),
        every("transfer.HostToDevice.timeit_enqueue", lambda *_: 3e-6, [EARLY], memory=hosts, **cells),
        every("transfer.DeviceToHost.timeit_completion", back, [BACK], memory=["pageable"], **cells),
        every("firsts.PinnedMemory.timeit_pin_copy", pinned, nbytes=sizes),
        every("firsts.PinnedMemory.timeit_allocate", pinned, nbytes=sizes),
        every("link.Limit.timeit_copy", lambda _, n: n / 2.5e10, direction=["host→device"], nbytes=sizes),
    ]


def neighbours():
    """A copy that takes 8 times as long between neighbouring arrays at 64 KiB, twice at 4 KiB, no longer at 1 MiB."""
    times = {4 * KIB: 2.0, 64 * KIB: 8.0, MIB: 1.0}

    def seconds(_, placement, n):
        return (LATENCY + n / FAST) * (times[n] if placement == "neighbours" else 1)

    placement = ["apart", "neighbours"]
    return every("placement.NumpyToTorch.timeit_convert", seconds, [COPYTO], placement=placement, nbytes=list(times))


def results_in(root):
    """Write a results directory of one machine, "box", with all the benchmarks above."""
    limit = memcpy({n: around(n / FAST + 1e-9) for n in SIZES})
    cast, wide = [contract("torch.from_numpy(a).float()", "alias", casts_to="float32")], {"dtype": ["float64"]}
    casts = every("casting.NumpyToFloat32.timeit_convert", lambda *at: copied(at[-1]), cast, **wide, nbytes=[KIB, MIB])
    benches = [host(), layouts(), *tensors(), lists(), *device(), neighbours(), casts, limit]
    records = [entry | {"settings": {**entry["settings"], "device": "cuda:0"}} for entry in glibc(benches)]
    return resultfiles.write(root / "results", benches, records=records)


def rich(root):
    """Write results of all families that need no device, with a tie, a failed cell and a skipped cell."""
    casts = [contract(f"torch.from_numpy(a).{way}", "copy", casts_to="float32") for way in ("float()", "to(dtype)")]
    converted, laid, both = host(), layouts(), [FROM_NUMPY, TENSOR]
    converted.cells["torch.tensor(a)", "float32", 8] = around(copied(8))
    converted.cells["torch.from_numpy(a)", "int64", MIB] = None
    laid.cells["torch.from_numpy(a)", "fortran", MIB] = resultfiles.SKIPPED
    cold = every("cold.NumpyToTorch.timeit_convert", lambda _, n: 2 * copied(n), both, nbytes=SIZES)
    cold.cells["torch.tensor(a)", 8] = [2 * share * copied(8) for share in (0.8, 1.0, 1.3, 1.7)]  # a tie
    threads = {"threads": ["all"], "dtype": ["float32"], "nbytes": [MIB]}
    wide = {"dtype": ["float64", "uint8"], "nbytes": [MIB]}

    def counted(name, unit, shares, copies, declared=None):
        counts = {"torch.from_numpy(a)": shares, "torch.tensor(a)": copies}
        params = {"route": [*counts], **({"nbytes": [MIB]} if "footprint" in name else {"dtype": ["float32"]})}
        return every(name, lambda route, _: counts[route], (), unit, declared, **params)

    benches = [
        *(converted, laid, *tensors(), lists()),
        memcpy({n: around(n / FAST + 1e-9) for n in SIZES}),
        every("limits.Floor.timeit_floor", lambda _: 4e-9, statement=["empty statement"]),
        every("casting.NumpyToFloat32.timeit_convert", lambda *_: 1e-5, casts, **wide),
        cold,
        every("parallel.NumpyToTorch.timeit_convert", lambda *_: 1e-5, [TENSOR], **threads),
        counted("footprint.NumpyToTorch.track_bytes", "bytes", 0, MIB),
        counted("footprint.NumpyToTorch.track_page_faults", "pages", 0.125, 256.0),
        counted("semantics.NumpyToTorch.track_alias", "1: shares memory", 1, 0),
        counted("semantics.NumpyToTorch.track_dtype", "a place", 1, 1, {"stands_for": ["bool", "float32"]}),
        every("novel.Family.timeit_anything", lambda _, n: copied(n), both, nbytes=SIZES),
    ]
    return resultfiles.write(root, benches)
