"""Made-up results in which the right answer to a case is known: for tests of what scripts/advise.py and pages say."""

from resultfiles import (
    AS_TENSOR,
    CLONE,
    FROM_NUMPY,
    KIB,
    MIB,
    TENSOR,
    Bench,
    around,
    contract,
    conversion,
    memcpy,
    once,
    record,
    transfer,
    write,
)

SIZES = (8, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
COPYTO = contract("np.copyto(b.numpy(), a)", "into", memmove=True)
DLPACK = contract("torch.from_dlpack(a)", "alias", hazard="aborts on negative strides")
LATENCY, FAST, SLOW = 1e-6, 4e10, 5e9  # of a copy in memory that is there, and in fresh memory
DECLARED = {
    "conversion.NumpyToTorch.timeit_convert": "numpy→torch",
    "conversion.TorchToNumpy.timeit_convert": "torch→numpy",
}


def copied(nbytes, factor=1.0):
    """Seconds of a copy: a curve that is broken at 32 MiB."""
    return (LATENCY + nbytes / (FAST if nbytes < 32 * MIB else SLOW)) * factor


def glibc(benches, **more):
    conditions = {"cpu": "A CPU", "cores": 4, "caches": {"L2": "1024K"}, "libc": "glibc 2.36"}
    return [record(benches, conditions=conditions, **more)]


def host(**clone):
    """Conversions of arrays: two that share, one that is faster and not safe, two that copy, one into a buffer."""
    times = {("torch.from_numpy(a)", "float32", n): around(4e-7) for n in SIZES}
    times |= {("torch.as_tensor(a)", "float32", n): around(8e-7) for n in SIZES}
    times |= {("torch.from_dlpack(a)", "float32", n): around(2e-7) for n in SIZES}
    times |= {("torch.from_numpy(a).clone()", "float32", n): around(copied(n)) for n in SIZES}
    times |= {("torch.tensor(a)", "float32", n): around(copied(n, 1.5)) for n in SIZES}
    times |= {("np.copyto(b.numpy(), a)", "float32", n): around(LATENCY + n / FAST) for n in SIZES}
    for dtype, factor in (("float16", 1.0), ("int64", 2.0)):
        times[("torch.from_numpy(a).clone()", dtype, MIB)] = around(copied(MIB, factor))
        times[("torch.tensor(a)", dtype, MIB)] = around(copied(MIB, 1.5))
    promises = [FROM_NUMPY, AS_TENSOR, DLPACK, TENSOR, CLONE, COPYTO]
    return conversion(times, promises, dtypes=("float32", "float16", "int64"))


def layouts():
    routes = ["torch.from_numpy(a)", "torch.from_numpy(a).clone()", "torch.tensor(a)"]
    own = {
        "torch.from_numpy(a)": 4e-7,
        "torch.from_numpy(a).clone()": copied(MIB, 20),
        "torch.tensor(a)": copied(MIB, 1.5),
    }
    plain = {**own, "torch.from_numpy(a).clone()": copied(MIB)}
    times = {(route, "fortran", MIB): around(own[route]) for route in routes}
    times |= {(route, "contiguous", MIB): around(plain[route]) for route in routes}
    params = {"route": routes, "layout": ["contiguous", "fortran"], "nbytes": [MIB]}
    return Bench("layout.NumpyToTorch.timeit_convert", params, times, [FROM_NUMPY, CLONE, TENSOR])


def tensors():
    """Tensors to arrays; detached, they may require grad."""
    plain = contract("t.numpy()", "alias", "torch→numpy", inputs={"requires grad": "RuntimeError"})
    detached = contract("t.detach().numpy()", "alias", "torch→numpy", inputs={"requires grad": "detaches"})
    times = {("t.numpy()", n): around(5e-7) for n in SIZES} | {("t.detach().numpy()", n): around(7e-7) for n in SIZES}
    grads = {("t.detach().numpy()", n): around(7e-7) for n in (4 * KIB, MIB)}
    return [
        conversion(times, [plain, detached], "TorchToNumpy"),
        conversion(grads, [detached], "RequiresGradToNumpy"),
    ]


def lists():
    promises = [
        contract("torch.from_numpy(np.stack(arrays))", "copy"),
        contract("torch.tensor(arrays)", "copy", hazard="slow"),
    ]
    times = {("torch.from_numpy(np.stack(arrays))", n): around(copied(n)) for n in (4 * KIB, MIB)}
    params = {"route": [p["expression"] for p in promises], "nbytes": [4 * KIB, MIB]}
    return Bench("batches.ArraysToTensor.timeit_convert", params, times, promises)


MOVE = contract("t.to(device)", "copy", "host→device")
IN_FLIGHT = {"hazard": "in flight", "hazard_memory": ["pinned", "registered"]}
EARLY = contract("t.to(device, non_blocking=True)", "copy", "host→device", non_blocking=True, **IN_FLIGHT)
STAGED = contract("s.copy_(t); d.copy_(s, non_blocking=True)", "into", "host→device", non_blocking=True, hazard="wait")
BACK = contract("t.cpu()", "copy", "device→host")


def device():
    """A link: pinned twice as fast, and the non-blocking call holds its caller for no time."""
    sizes = (MIB, 64 * MIB)
    moved = {("t.to(device)", "pageable", n): around(1e-5 + n / 1e10) for n in sizes}
    moved |= {("t.to(device)", "pinned", n): around(1e-5 + n / 2e10) for n in sizes}
    moved |= {(EARLY["expression"], "pageable", n): around(1.2e-5 + n / 1e10) for n in sizes}
    moved |= {(EARLY["expression"], "pinned", n): around(1.2e-5 + n / 2e10) for n in sizes}
    moved |= {(STAGED["expression"], "pageable", n): around(2e-5 + n / 1.5e10) for n in sizes}
    held = {(EARLY["expression"], memory, n): around(3e-6) for memory in ("pageable", "pinned") for n in sizes}
    pinning = {n: around(1e-3 + n / 1e9) for n in sizes}
    link = {("host→device", n): around(n / 2.5e10) for n in sizes}
    return [
        transfer(moved, [MOVE, EARLY, STAGED], "HostToDevice"),
        transfer(held, [EARLY], "HostToDevice", "enqueue"),
        transfer({("t.cpu()", "pageable", n): around(1e-5 + n / 1e10) for n in sizes}, [BACK], "DeviceToHost"),
        once("pin_copy", pinning),
        once("allocate", pinning),
        Bench("link.Limit.timeit_copy", {"direction": ["host→device"], "nbytes": list(sizes)}, link),
    ]


def declared(benches):
    """Their directions, as benchmarks.json has them."""
    for bench in benches:
        if bench.name in DECLARED:
            bench.declared["direction"] = DECLARED[bench.name]
    return benches


def neighbours():
    """A copy that takes 8 times as long between neighbours at 64 KiB, twice at 4 KiB, and no longer at 1 MiB."""
    route, sizes = COPYTO["expression"], {4 * KIB: 2.0, 64 * KIB: 8.0, MIB: 1.0}
    params = {"route": [route], "lying": ["apart", "neighbours"], "nbytes": list(sizes)}
    times = {
        (route, lying, n): around((LATENCY + n / FAST) * (factor if lying == "neighbours" else 1))
        for n, factor in sizes.items()
        for lying in params["lying"]
    }
    return Bench("placement.NumpyToTorch.timeit_convert", params, times, [COPYTO])


def results_in(root):
    """A results directory of one machine, "box", that has all of these."""
    limit = memcpy({n: around(n / FAST + 1e-9) for n in SIZES})
    benches = declared([host(), layouts(), *tensors(), lists(), *device(), neighbours(), limit])
    return write(root / "results", benches, records=glibc(benches, machine="box"))
