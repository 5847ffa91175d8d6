"""What users ask: every answer on made-up results in which the right answer is known, without a device, and on nothing.

A wrong answer here is pasted into somebody's code, so what must not be recommended is tested as well as what must.
"""

import pytest
import resultfiles
from analysis import transfers
from analysis.cells import cells_of
from analysis.choices import asked, choices
from analysis.results import load
from pages import questions, show
from resultfiles import SKIPPED, Bench, around, contract, conversion, memcpy, once, transfer

from benchmarks.contracts import ONE_THREAD

KIB, MIB, GIB = 2**10, 2**20, 2**30
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
    rows = questions.table(loaded, cells, answered, transfers.transfers_of(loaded, cells)).rows
    return [show.to_plain(line) for question, lines in rows if word in question for line in lines]


def pageable(seconds, contracts=FROM_DEVICE, nbytes=BIG):
    """Transfers from the device to pageable memory; seconds by route."""
    times = {(route, "pageable", nbytes): around(value) for route, value in seconds.items()}
    return transfer(times, [contracts[route] for route in seconds], "DeviceToHost")


def grad(seconds, *contracts):
    times = {(route, MIB): around(value) for route, value in seconds.items()}
    return conversion(times, contracts, "RequiresGradToNumpy")


def test_what_was_not_measured_is_left_out(tmp_path):
    assert ask(tmp_path, "") == []


# 1: which call


def test_which_call_shares_memory(tmp_path):
    risky = contract("torch.risky(a)", "alias", hazard="bites")
    plain, other = (contract(f"torch.{name}(a)", "alias") for name in ("from_numpy", "as_tensor"))
    times = {("torch.risky(a)", n): around(1e-9) for n in (8, MIB)}
    times |= {("torch.from_numpy(a)", 8): around(4e-7), ("torch.as_tensor(a)", 8): around(9e-7)}
    times |= {("torch.from_numpy(a)", MIB): around(9e-7), ("torch.as_tensor(a)", MIB): around(5e-7)}
    copies = {("torch.tensor(a)", n): around(1e-9) for n in (8, MIB)}
    everything = [risky, plain, other, contract("torch.tensor(a)", "copy")]
    measured = Bench(
        "semantics.NumpyToTorch.track_alias",
        {"route": ["torch.from_numpy(a)"], "dtype": ["float32"]},
        {("torch.from_numpy(a)", "float32"): 1},
        unit="1: shares memory",
    )
    assert ask(tmp_path, "share memory", conversion(times | copies, everything), measured) == [
        "numpy→torch: `torch.from_numpy(a)` shares memory (measured: alias), 400 ns at 8 B.",
        "numpy→torch: `torch.as_tensor(a)` shares memory by its contract, 500 ns at 1 MiB.",
    ]


def test_where_only_a_hazard_was_measured_it_is_said(tmp_path):
    risky = contract("torch.risky(a)", "alias", hazard="bites")
    said = ask(tmp_path, "share memory", conversion({("torch.risky(a)", 8): around(1e-7)}, [risky]))
    assert said == ["numpy→torch: `torch.risky(a)` shares memory by its contract, 100 ns at 8 B; bites."]


# 2: a list of arrays


def test_a_list_of_arrays(tmp_path):
    slow = contract("torch.tensor(arrays)", "copy", per_element=True, hazard="goes element by element")
    promises = [slow, contract("torch.risky(arrays)", "copy", hazard="bites"), contract("torch.stack(arrays)", "copy")]
    cells = {("torch.tensor(arrays)", n): around(n / 1e8) for n in (KIB, MIB)}
    cells |= {("torch.risky(arrays)", n): around(1e-9) for n in (KIB, MIB)}
    cells |= {("torch.stack(arrays)", n): around(n / 1e10) for n in (KIB, MIB)}
    params = {"route": [one["expression"] for one in promises], "nbytes": [KIB, MIB]}
    said = ask(tmp_path, "list of arrays", Bench("batches.ArraysToTensor.timeit_convert", params, cells, promises))
    assert said == [
        "`torch.tensor(arrays)` takes 10.5 ms at 1 MiB: it goes element by element.",
        "`torch.stack(arrays)` is 100× as fast.",
    ]


# 3: .cpu()


def test_why_cpu_is_slow(tmp_path):
    early = "h.copy_(t, non_blocking=True)"
    promises = [contract("t.cpu()", "copy", TO_HOST), contract("h.copy_(t)", "into", TO_HOST)]
    promises.append(contract(early, "into", TO_HOST, hazard="reading too early gives garbage"))
    times = {("t.cpu()", "pageable", BIG): around(32e-3), ("h.copy_(t)", "pageable", BIG): around(8e-3)}
    times |= {("h.copy_(t)", "pinned", BIG): around(2e-3), (early, "pinned", BIG): around(1e-3)}
    assert ask(tmp_path, ".cpu() slow", transfer(times, promises, "DeviceToHost")) == [
        "`t.cpu()` into fresh pageable memory takes 32.0 ms, 2.1 GB/s at 64 MiB.",
        "`h.copy_(t)` is 4.00× as fast, into a pageable tensor that exists: 8.00 ms, 8.4 GB/s.",
        "`h.copy_(t)` is 16× as fast, into a pinned tensor that exists: 2.00 ms, 34 GB/s.",
        f"`{early}` is 32× as fast, into a pinned tensor that exists: 1.00 ms, 67 GB/s "
        "(its condition: reading too early gives garbage).",
    ]


# 4: the two errors


def test_without_a_device_no_figure_of_the_host_stands_for_one(tmp_path):
    """t.cpu().numpy() is a route on the CPU, too; what it takes there says nothing of a device."""
    on_cpu = {("t.numpy()", BIG): around(5e-7)} | {(route, BIG): around(9e-7) for route in ON_CPU}
    bits = {("t.float().numpy()", "bfloat16", MIB): around(3e-5)}
    params = {"route": ["t.float().numpy()"], "dtype": ["bfloat16"], "nbytes": [MIB]}
    skipped = {(route, "pageable", BIG): SKIPPED for route in FROM_DEVICE}
    said = ask(
        tmp_path,
        "what then",
        Bench("casting.Bfloat16ToNumpy.timeit_convert", params, bits, [FLOAT]),
        conversion(on_cpu, [NUMPY, *ON_CPU.values()], "TorchToNumpy"),
        grad({"t.data.numpy()": 6e-7, "t.detach().numpy()": 7e-7}, DATA, DETACH),
        transfer(skipped, list(FROM_DEVICE.values()), "DeviceToHost"),
    )
    assert said == [
        "`t.numpy()` refuses a tensor that requires grad (RuntimeError).",
        "This takes it: `t.detach().numpy()`, 700 ns at 1 MiB.",
        "From a device, by its contract (not measured here): `t.cpu().numpy()`.",
        "From a device, where it requires grad, by its contract (not measured here): `t.detach().cpu().numpy()`.",
    ]


def test_with_a_device_its_figures_answer(tmp_path):
    """The plain route where it ties; never the legacy one, however fast."""
    seconds = dict(zip(FROM_DEVICE, (0.0300, 0.0301, 0.0360, 0.0100)))
    said = ask(tmp_path, "what then", pageable(seconds), grad({"t.detach().numpy()": 7e-7}, DETACH))
    assert said[1:] == [
        "From a device: `t.cpu().numpy()`, 30.0 ms, 2.2 GB/s at 64 MiB.",
        "From a device, where it requires grad: `t.detach().cpu().numpy()`, 30.1 ms, 2.2 GB/s at 64 MiB.",
    ]


def test_grad_by_contract_alone(tmp_path):
    """Where nothing that requires grad was timed: neither what goes element by element nor what has a hazard."""
    promises = [BY_ELEMENT, DATA, NUMPY, DETACH]
    times = {("t.numpy()", 8): around(5e-7)}
    said = ask(tmp_path, "what then", conversion(times, promises, "TorchToNumpy"))
    assert said[1:] == ["This takes it, by its contract (not timed here): `t.detach().numpy()`."]


# 5: the order of .detach().cpu()


@pytest.mark.parametrize(
    "cpu, words", [(1.001, "a tie."), (1.3, "the first takes 0.769× the time."), (0.5, "the first takes 0.500× the")]
)
def test_the_order_of_detach_and_cpu(tmp_path, cpu, words):
    first, last = "t.detach().cpu().numpy()", "t.cpu().detach().numpy()"
    times = {(first, MIB): around(1e-6), (last, MIB): around(cpu * 1e-6)}
    on_cpu = conversion(times, [ON_CPU[first], ON_CPU[last]], "TorchToNumpy")
    said = ask(tmp_path, "order", on_cpu, pageable({first: 0.03, last: 0.03}))
    assert len(said) == 2 and words in said[0] and said[0].startswith("Tensor on the CPU: ")
    quicker = last if cpu < 1 else first
    assert f"Tensor on the CPU: `{quicker}` and " in said[0]
    assert said[1] == f"Tensor on the device: `{first}` and `{last}`: 30.0 ms and 30.0 ms at 64 MiB, a tie."


# 6: bfloat16


def test_bfloat16(tmp_path):
    """At a size that both were measured at; what gives the numbers before what gives their bits."""
    cells = {("t.view(torch.int16).numpy()", "bfloat16", n): around(1e-6) for n in (MIB, BIG)}
    cells["t.float().numpy()", "bfloat16", MIB] = around(3e-5)
    params = {"route": [BITS["expression"], FLOAT["expression"]], "dtype": ["bfloat16"], "nbytes": [MIB, BIG]}
    own = Bench("casting.Bfloat16ToNumpy.timeit_convert", params, cells, [BITS, FLOAT])
    said = ask(tmp_path, "bfloat16", own, conversion({("t.numpy()", 8): around(5e-7)}, [NUMPY], "TorchToNumpy"))
    assert said == [
        "`t.numpy()` of bfloat16: TypeError.",
        "`t.float().numpy()` takes 30.0 µs at 1 MiB, gives float32.",
        "`t.view(torch.int16).numpy()` takes 1.00 µs at 1 MiB, gives int16: bits, no values.",
    ]


# 7 and 8: pinned memory, non-blocking

TO, EARLY, PIN = "t.to(device)", "t.to(device, non_blocking=True)", "t.pin_memory().to(device, non_blocking=True)"
TO_THE_DEVICE = [
    contract(TO, "copy", TO_DEVICE),
    contract(EARLY, "copy", TO_DEVICE, hazard="do not change the source before a synchronize"),
    contract(PIN, "copy", TO_DEVICE, hazard="pins at every call"),
]


def to_device():
    times = {(TO, "pageable", BIG): around(6e-3), (EARLY, "pageable", BIG): around(6e-3)}
    times |= {(TO, "pinned", BIG): around(1.5e-3), (EARLY, "pinned", BIG): around(1.2e-3)}
    times[PIN, "pageable", BIG] = around(12e-3)
    yield transfer(times, TO_THE_DEVICE, "HostToDevice")
    held = {(EARLY, "pinned", BIG): around(1e-5), (EARLY, "pageable", BIG): around(6.1e-3)}
    yield transfer(held, TO_THE_DEVICE, "HostToDevice", "enqueue")


def test_pinned_memory(tmp_path):
    assert ask(tmp_path, "pin_memory", *to_device()) == [
        f"From pageable memory `{TO}` takes 6.00 ms, 11 GB/s at 64 MiB.",
        f"From memory that is pinned already `{TO}` is 4.00× as fast: 1.50 ms, 45 GB/s.",
        f"From memory that is pinned already `{EARLY}` is 5.00× as fast: 1.20 ms, 56 GB/s "
        "(its condition: do not change the source before a synchronize).",
        f"Pinning at every call: `{PIN}` takes 2.00× the time: it pins at every call.",
    ]


def test_non_blocking(tmp_path):
    assert ask(tmp_path, "non_blocking", *to_device()) == [
        "From pinned memory, 64 MiB: the bytes arrive after 1.20 ms, blocking after 1.50 ms, and the call holds its "
        "caller for 10.0 µs of that.",
        "Its condition: do not change the source before a synchronize.",
        "From pageable memory, 64 MiB: the bytes arrive after 6.00 ms, blocking after 6.00 ms, and the call holds its "
        "caller for 6.10 ms.",
    ]


# 9: garbage


def test_garbage(tmp_path):
    early = contract("h.copy_(t, non_blocking=True)", "into", TO_HOST, hazard="reading too early gives garbage")
    done = transfer({(early["expression"], "pinned", BIG): around(1e-3)}, [early], "DeviceToHost")
    held = transfer({(early["expression"], "pinned", BIG): around(1e-5)}, [early], "DeviceToHost", "enqueue")
    assert ask(tmp_path, "garbage", done, held) == [
        "`h.copy_(t, non_blocking=True)`: reading too early gives garbage.",
        "The call returns after 10.0 µs, 64 MiB have arrived after 1.00 ms.",
    ]


def test_where_the_call_takes_as_long_as_the_copy_nothing_is_told_of_garbage_as_measured(tmp_path):
    early = contract("h.copy_(t, non_blocking=True)", "into", TO_HOST, hazard="reading too early gives garbage")
    done = transfer({(early["expression"], "pinned", BIG): around(8.5e-3)}, [early], "DeviceToHost")
    held = transfer({(early["expression"], "pinned", BIG): around(10.7e-3)}, [early], "DeviceToHost", "enqueue")
    assert ask(tmp_path, "garbage", done, held) == [
        "`h.copy_(t, non_blocking=True)`: reading too early gives garbage.",
        "But the call takes no less than until the bytes have arrived: here this copy is not asynchronous, and the run "
        "shows nothing of that.",
    ]


# 10 and 11: once in a process


def test_pinning_what_exists_and_the_first_use(tmp_path):
    benches = [
        once("first_tensor", {None: around(0.2)}, "Context"),
        once("allocate", {BIG: around(0.02), GIB: around(0.4)}),
        once("pin_copy", {BIG: around(0.03), GIB: around(0.5)}),
        once("register", {BIG: around(0.01), GIB: around(0.3)}),
        transfer({(TO, "registered", BIG): around(1.4e-3), (TO, "pinned", BIG): around(1.3e-3)}, TO_THE_DEVICE, "X"),
    ]
    benches[-1].name = "transfer.HostToDevice.timeit_completion"
    assert ask(tmp_path, "existing array", *benches) == [
        "A pinned copy, t.pin_memory(), takes 30.0 ms the first time, at 64 MiB.",
        "Registering its memory in place takes 10.0 ms the first time, at 64 MiB.",
        f"From registered memory `{TO}` then takes 1.40 ms, 48 GB/s, from pinned memory 1.30 ms, 52 GB/s at 64 MiB.",
    ]
    assert ask(tmp_path, "first use", *benches) == [
        "The first tensor on the device makes its context: 200 ms once a process.",
        "The first 1 GiB of pinned memory take 400 ms, 0.400 s/GiB.",
    ]


def test_a_device_that_cannot_register_says_why(tmp_path):
    benches = [once("pin_copy", {BIG: around(0.03)}), once("register", {BIG: SKIPPED})]
    assert ask(tmp_path, "existing array", *benches, skipped="no such call")[-1] == (
        "Registering in place: no such call."
    )


# 12: NumPy 2


@pytest.mark.parametrize(
    "numpy, last, first",
    [
        ("2.4.6", 5e-7, "torch 2.13.0 and numpy 2.4.6 work together: 2 conversions were timed."),
        ("2.4.6", None, "torch 2.13.0 and numpy 2.4.6: 1 conversion was timed, 1 failed."),
        ("1.26.4", 5e-7, "This run has numpy 1.26.4: it tells nothing of NumPy 2."),
    ],
)
def test_numpy_2(tmp_path, numpy, last, first):
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
    figure = " (500 ns at 1 MiB)" if last else ""
    assert said == [first, f"`np.array(t)`: warns on NumPy 2{figure}."]


# 13: neighbours


@pytest.mark.parametrize(
    "near, said",
    [
        (
            24e-6,
            [
                "By where its arrays lie: the target begins 1 to 31 bytes further on in its page than the source.",
                "`np.copyto(b.numpy(), a)`: 24.0 µs at 64 KiB, 3.00 µs where they lie apart, 8.00× as long.",
            ],
        ),
        (
            3e-6,
            ["Not by where its arrays lie: no copy is decided to take half as long again here between neighbours."],
        ),
    ],
)
def test_the_same_copy_takes_longer_between_neighbours(tmp_path, near, said):
    route = "np.copyto(b.numpy(), a)"
    params = {"route": [route], "lying": ["apart", "neighbours"], "nbytes": [64 * KIB]}
    times = {(route, "apart", 64 * KIB): around(3e-6), (route, "neighbours", 64 * KIB): around(near)}
    made = Bench("placement.NumpyToTorch.timeit_convert", params, times, [contract(route, "into", "numpy→torch")])
    assert ask(tmp_path, "same copy", made) == said
