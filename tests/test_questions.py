"""What users ask: every answer on made-up results in which the right answer is known, without a device, and on nothing.

A wrong answer here is pasted into somebody's code, so what must not be recommended is tested as well as what must. What
is answered where nothing is amiss stands in the snapshots of whole pages: tests/test_report_transfers.py.
"""

import pytest
import resultfiles
from analysis import transfers
from analysis.cells import cells_of
from analysis.choices import asked, choices
from analysis.results import load
from pages import machine, show
from resultfiles import ABSENT, KIB, MIB, SKIPPED, around, contract, conversion, every, memcpy, once, transfer

from benchmarks.contracts import ONE_THREAD

BIG = 64 * MIB
TO_NUMPY, TO_DEVICE, TO_HOST = "torch→numpy", "host→device", "device→host"
REFUSES, DETACHES = {"requires grad": "RuntimeError"}, {"requires grad": "detaches"}
LEGACY = "legacy: use detach()"
NUMPY = contract("t.numpy()", "alias", TO_NUMPY, inputs=REFUSES, refuses={"bfloat16": "TypeError"})
DETACH = contract("t.detach().numpy()", "alias", TO_NUMPY, inputs=DETACHES)
DATA = contract("t.data.numpy()", "alias", TO_NUMPY, inputs=DETACHES, hazard=LEGACY)
FLOAT = contract("t.float().numpy()", "copy", TO_NUMPY, inputs=REFUSES, casts_to="float32")
BITS = contract("t.view(torch.int16).numpy()", "alias", TO_NUMPY, casts_to="int16", view=True, hazard="bits, no values")
BY_ELEMENT = contract("np.array(t.tolist())", "copy", TO_NUMPY, inputs=DETACHES, casts_to="python", per_element=True)
# the same expression as a conversion on the CPU and as a transfer
ON_CPU = {
    name: contract(name, "alias", TO_NUMPY, inputs=takes)
    for name, takes in {
        "t.cpu().numpy()": REFUSES,
        "t.detach().cpu().numpy()": DETACHES,
        "t.cpu().detach().numpy()": DETACHES,
        "t.cpu().data.numpy()": DETACHES,
    }.items()
}
FROM_DEVICE = {
    name: contract(name, "copy", TO_HOST, inputs=one["inputs"], array=True, hazard=LEGACY if "data" in name else "")
    for name, one in ON_CPU.items()
}


def ask(tmp_path, word, *benches, **record):
    """The answer to the question that has this word: a list of sentences, as plain text."""
    given = [resultfiles.record(benches, **record)]
    loaded = load(resultfiles.write(tmp_path, [*benches, memcpy({8: around(1e-7)})], records=given))
    cells = cells_of(loaded)
    answered = asked(choices(cells), ONE_THREAD)
    rows = machine.questions(loaded, cells, answered, transfers.transfers_of(loaded, cells)).rows
    return [show.to_plain(line) for question, lines in rows if word in question for line in lines]


def pageable(seconds):
    """Transfers from the device to pageable memory; seconds by route."""
    times = {(route, "pageable", BIG): around(value) for route, value in seconds.items()}
    return transfer(times, [FROM_DEVICE[route] for route in seconds], "DeviceToHost")


def grad(seconds, *contracts):
    times = {(route, MIB): around(value) for route, value in seconds.items()}
    return conversion(times, contracts, "RequiresGradToNumpy")


def test_what_was_not_measured_is_left_out(tmp_path):
    assert ask(tmp_path, "") == []


# 1: which call


def test_which_call_shares_memory(tmp_path, snapshot):
    risky = contract("torch.risky(a)", "alias", hazard="bites")
    plain, other = (contract(f"torch.{name}(a)", "alias") for name in ("from_numpy", "as_tensor"))
    times = {("torch.risky(a)", n): around(1e-9) for n in (8, MIB)}
    times |= {("torch.from_numpy(a)", 8): around(4e-7), ("torch.as_tensor(a)", 8): around(9e-7)}
    times |= {("torch.from_numpy(a)", MIB): around(9e-7), ("torch.as_tensor(a)", MIB): around(5e-7)}
    copies = {("torch.tensor(a)", n): around(1e-9) for n in (8, MIB)}
    everything = [risky, plain, other, contract("torch.tensor(a)", "copy")]
    params = {"route": ["torch.from_numpy(a)"], "dtype": ["float32"]}
    measured = every("semantics.NumpyToTorch.track_alias", lambda *_: 1, unit="1: shares memory", **params)
    assert ask(tmp_path, "share memory", conversion(times | copies, everything), measured) == snapshot


def test_where_only_a_hazard_was_measured_it_is_said(tmp_path, snapshot):
    risky = contract("torch.risky(a)", "alias", hazard="bites")
    said = ask(tmp_path, "share memory", conversion({("torch.risky(a)", 8): around(1e-7)}, [risky]))
    assert said == snapshot


# 2: a list of arrays


def test_a_list_of_arrays(tmp_path, snapshot):
    slow = contract("torch.tensor(arrays)", "copy", per_element=True, hazard="goes element by element")
    promises = [slow, contract("torch.risky(arrays)", "copy", hazard="bites"), contract("torch.stack(arrays)", "copy")]
    seconds = {"torch.tensor(arrays)": 1e-8, "torch.risky(arrays)": 1e-15, "torch.stack(arrays)": 1e-10}  # per byte
    made = every(
        "batches.ArraysToTensor.timeit_convert", lambda route, n: n * seconds[route], promises, nbytes=[KIB, MIB]
    )
    assert ask(tmp_path, "list of arrays", made) == snapshot


# 4: the two errors


def test_without_a_device_no_figure_of_the_host_stands_for_one(tmp_path, snapshot):
    """t.cpu().numpy() is a route on the CPU, too; what it takes there says nothing of a device."""
    on_cpu = {("t.numpy()", BIG): around(5e-7)} | {(route, BIG): around(9e-7) for route in ON_CPU}
    params = {"dtype": ["bfloat16"], "nbytes": [MIB]}
    skipped = {(route, "pageable", BIG): SKIPPED for route in FROM_DEVICE}
    said = ask(
        tmp_path,
        "what then",
        every("casting.Bfloat16ToNumpy.timeit_convert", lambda *_: 3e-5, [FLOAT], **params),
        conversion(on_cpu, [NUMPY, *ON_CPU.values()], "TorchToNumpy"),
        grad({"t.data.numpy()": 6e-7, "t.detach().numpy()": 7e-7}, DATA, DETACH),
        transfer(skipped, list(FROM_DEVICE.values()), "DeviceToHost"),
    )
    assert said == snapshot


def test_with_a_device_its_figures_answer(tmp_path, snapshot):
    """The plain route where it ties; never the legacy one, however fast."""
    seconds = dict(zip(FROM_DEVICE, (0.0300, 0.0301, 0.0360, 0.0100)))
    said = ask(tmp_path, "what then", pageable(seconds), grad({"t.detach().numpy()": 7e-7}, DETACH))
    assert said[1:] == snapshot


def test_grad_that_was_not_timed(tmp_path):
    """The refusal was declared; what takes it instead was not measured."""
    promises = [BY_ELEMENT, DATA, NUMPY, DETACH]
    times = {("t.numpy()", 8): around(5e-7)}
    said = ask(tmp_path, "what then", conversion(times, promises, "TorchToNumpy"))
    assert said[1:] == [], "what was not timed is left out"


# 5: the order of .detach().cpu()


@pytest.mark.parametrize("cpu", [1.001, 1.3, 0.5])
def test_the_order_of_detach_and_cpu(tmp_path, snapshot, cpu):
    first, last = "t.detach().cpu().numpy()", "t.cpu().detach().numpy()"
    times = {(first, MIB): around(1e-6), (last, MIB): around(cpu * 1e-6)}
    on_cpu = conversion(times, [ON_CPU[first], ON_CPU[last]], "TorchToNumpy")
    said = ask(tmp_path, "order", on_cpu, pageable({first: 0.03, last: 0.03}))
    assert said == snapshot and (last if cpu < 1 else first) in said[0].partition(" and ")[0]


# 6: bfloat16


def test_bfloat16(tmp_path, snapshot):
    """At a size that both were measured at; what gives the numbers before what gives their bits."""
    seconds = {(BITS["expression"], MIB): 1e-6, (BITS["expression"], BIG): 1e-6, (FLOAT["expression"], MIB): 3e-5}
    own = every(
        "casting.Bfloat16ToNumpy.timeit_convert",
        lambda route, _, n: seconds.get((route, n), ABSENT),
        [BITS, FLOAT],
        dtype=["bfloat16"],
        nbytes=[MIB, BIG],
    )
    said = ask(tmp_path, "bfloat16", own, conversion({("t.numpy()", 8): around(5e-7)}, [NUMPY], "TorchToNumpy"))
    assert said == snapshot


# 8 and 9: non-blocking


def test_non_blocking(tmp_path, snapshot):
    early = contract(
        "t.to(device, non_blocking=True)", "copy", TO_DEVICE, hazard="do not change it before a synchronize"
    )
    promises = [contract("t.to(device)", "copy", TO_DEVICE), early]
    took = {"pageable": (6e-3, 6.2e-3, 6.1e-3), "pinned": (1.5e-3, 1.2e-3, 1e-5)}  # blocking, not, and until it returns
    done = {(one["expression"], host, BIG): around(took[host][n]) for n, one in enumerate(promises) for host in took}
    held = {(early["expression"], host, BIG): around(seconds[2]) for host, seconds in took.items()}
    benches = transfer(done, promises, "HostToDevice"), transfer(held, [early], "HostToDevice", "enqueue")
    assert ask(tmp_path, "non_blocking", *benches) == snapshot


def test_a_copy_that_is_not_asynchronous(tmp_path, snapshot):
    """Where the call takes as long as the copy, nothing is said of garbage as measured."""
    early = contract("h.copy_(t, non_blocking=True)", "into", TO_HOST, hazard="reading too early gives garbage")
    times = {"completion": 8.5e-3, "enqueue": 10.7e-3}
    benches = [
        transfer({(early["expression"], "pinned", BIG): around(seconds)}, [early], "DeviceToHost", clock)
        for clock, seconds in times.items()
    ]
    assert ask(tmp_path, "garbage", *benches) == snapshot


# 10 and 11: once in a process


def test_a_device_that_cannot_register_says_why(tmp_path, snapshot):
    benches = [once("pin_copy", {BIG: around(0.03)}), once("register", {BIG: SKIPPED})]
    assert ask(tmp_path, "existing array", *benches, skipped="no such call") == snapshot


# 12: NumPy 2


@pytest.mark.parametrize("numpy, last", [("2.4.6", 5e-7), ("2.4.6", None), ("1.26.4", 5e-7)])
def test_numpy_2(tmp_path, snapshot, numpy, last):
    """The figure is that of the route's own direction."""
    warns = contract("np.array(t)", "copy", TO_NUMPY, hazard="warns on NumPy 2")
    same = contract("np.array(t)", "copy", "numpy→torch")
    said = ask(
        tmp_path,
        "NumPy 2",
        conversion({("np.array(t)", MIB): around(1.0)}, [same]),
        conversion({("np.array(t)", MIB): last and around(last)}, [warns], "TorchToNumpy"),
        settings={"torch": "2.13.0", "numpy": numpy},
    )
    assert said == snapshot and ("500 ns" in said[1]) == bool(last)


# 13: neighbours


@pytest.mark.parametrize("near", [24e-6, 3e-6])
def test_the_same_copy_takes_longer_between_neighbours(tmp_path, snapshot, near):
    route = "np.copyto(b.numpy(), a)"
    made = every(
        "placement.NumpyToTorch.timeit_convert",
        lambda _, lying, n: 3e-6 if lying == "apart" else near,
        [contract(route, "into", "numpy→torch")],
        lying=["apart", "neighbours"],
        nbytes=[64 * KIB],
    )
    said = ask(tmp_path, "same copy", made)
    assert said == snapshot and any(route in line for line in said) == (near > 3e-6)
