"""Answers to users' questions, from made-up times with a known right answer, without a device, and without results.

Users paste a recommended call into their code. So tests check which calls must be recommended and which must not
be. The answers from complete results are in the snapshots of whole pages: tests/test_report_transfers.py.
"""

import pytest
import resultfiles
from analysis.results import load
from pages import show
from pages.page import read_machine
from pages.sections import questions_table
from resultfiles import KIB, MIB, SKIPPED, around, contract, every, memcpy, of_suite, steady

BIG = 64 * MIB
FROM_DEVICE = ("t.cpu().numpy()", "t.detach().cpu().numpy()", "t.cpu().detach().numpy()", "t.cpu().data.numpy()")


def conversion(times, group="TorchToNumpy"):
    """Return the suite's conversions. times: seconds by (route, size)."""
    cells = {(route, "float32", nbytes): seconds for (route, nbytes), seconds in times.items()}
    return of_suite(f"conversion.{group}.timeit_convert", cells)


def transfer(times, group="DeviceToHost", clock="completion"):
    """Return the suite's transfers of one size. times: seconds by (route, host memory)."""
    cells = {(route, host, "float32", BIG): seconds for (route, host), seconds in times.items()}
    return of_suite(f"transfer.{group}.timeit_{clock}", cells)


def ask(tmp_path, word, *benches, slow=(), **record):
    """Return the answer to the question that contains ``word``: a list of sentences, as plain text."""
    given = {"records": [resultfiles.record(benches, **record)], "slow": slow, "clock": steady if slow else None}
    loaded = load(resultfiles.write(tmp_path, [*benches, memcpy({8: around(1e-7)})], **given))
    rows = questions_table(read_machine(loaded)).rows
    return [show.to_plain(line) for question, lines in rows if word in question for line in lines]


def test_what_was_not_measured_is_left_out(tmp_path):
    assert ask(tmp_path, "") == []


# 1: which call


def test_which_call_shares_memory(tmp_path, snapshot):
    times = {(route, n): 1e-9 for route in ("torch.from_dlpack(a)", "torch.tensor(a)") for n in (8, MIB)}  # no advice
    times |= {("torch.from_numpy(a)", 8): 4e-7, ("torch.as_tensor(a)", 8): 9e-7}
    times |= {("torch.from_numpy(a)", MIB): 9e-7, ("torch.as_tensor(a)", MIB): 5e-7}
    measured = of_suite("semantics.NumpyToTorch.track_alias", {("torch.from_numpy(a)", "float32"): 1})
    assert ask(tmp_path, "share memory", conversion(times, "NumpyToTorch"), measured) == snapshot


def test_where_only_a_hazard_was_measured_it_is_said(tmp_path, snapshot):
    assert ask(tmp_path, "share memory", conversion({("torch.from_dlpack(a)", 8): 1e-7}, "NumpyToTorch")) == snapshot


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
    """t.cpu().numpy() is also a route on the CPU. Its time there does not answer a question about a device."""
    said = ask(
        tmp_path,
        "what then",
        of_suite("casting.Bfloat16ToNumpy.timeit_convert", {("t.float().numpy()", "bfloat16", MIB): 3e-5}),
        conversion({("t.numpy()", BIG): 5e-7, **{(route, BIG): 9e-7 for route in FROM_DEVICE}}),
        conversion({("t.data.numpy()", MIB): 6e-7, ("t.detach().numpy()", MIB): 7e-7}, "RequiresGradToNumpy"),
        transfer({(route, "pageable"): SKIPPED for route in FROM_DEVICE}),
    )
    assert said == snapshot


def test_with_a_device_its_figures_answer(tmp_path, snapshot):
    """The plain route is recommended if it ties with the fastest. The legacy route never is, however fast."""
    grad = conversion({("t.detach().numpy()", MIB): 7e-7}, "RequiresGradToNumpy")
    seconds = zip(FROM_DEVICE, (0.0300, 0.0301, 0.0360, 0.0100))
    device = transfer({(route, "pageable"): each for route, each in seconds})
    assert ask(tmp_path, "what then", grad, device) == snapshot


def test_grad_that_was_not_timed(tmp_path):
    """The answer gives the declared error of t.numpy(). It names no route that works instead: none was timed."""
    said = ask(tmp_path, "what then", conversion({("t.numpy()", 8): 5e-7}))
    assert said[1:] == [], "what was not timed is left out"


# 5: the order of .detach().cpu()


@pytest.mark.parametrize("cpu", [1.001, 1.3, 0.5, 9.0])
def test_the_order_of_detach_and_cpu(tmp_path, snapshot, cpu):
    """The order is answered even if one route was noisy (cpu == 9), if the difference is still significant."""
    first, last = "t.detach().cpu().numpy()", "t.cpu().detach().numpy()"
    on_cpu = conversion({(first, MIB): 1e-6, (last, MIB): cpu * 1e-6})
    on_device = transfer({(first, "pageable"): 0.03, (last, "pageable"): 0.03})
    slow = [((last, "float32", MIB), process) for process in range(4) if cpu == 9]
    assert ask(tmp_path, "order", on_cpu, on_device, slow=slow) == snapshot


# 6: bfloat16


def test_the_answer_on_bfloat16_puts_numbers_before_bits(tmp_path, snapshot):
    """Routes are compared at a size common to both. A route to the numbers comes before a route to their bits."""
    bits, number = "t.view(torch.int16).numpy()", "t.float().numpy()"
    times = {(bits, "bfloat16", MIB): 1e-6, (bits, "bfloat16", BIG): 1e-6, (number, "bfloat16", MIB): 3e-5}
    own = of_suite("casting.Bfloat16ToNumpy.timeit_convert", times)
    assert ask(tmp_path, "bfloat16", own, conversion({("t.numpy()", 8): 5e-7})) == snapshot


# 8 and 9: non-blocking


def test_the_answer_on_non_blocking_shows_both_times(tmp_path, snapshot):
    blocking, early = "t.to(device)", "t.to(device, non_blocking=True)"
    done = {(blocking, "pageable"): 6e-3, (early, "pageable"): 6.2e-3}
    done |= {(blocking, "pinned"): 1.5e-3, (early, "pinned"): 1.2e-3}
    held = {(early, "pageable"): 6.1e-3, (early, "pinned"): 1e-5}
    benches = transfer(done, "HostToDevice"), transfer(held, "HostToDevice", "enqueue")
    assert ask(tmp_path, "non_blocking", *benches) == snapshot


def test_a_copy_that_is_not_asynchronous(tmp_path, snapshot):
    """If the call takes as long as the copy, the answer does not claim that garbage was measured."""
    cell = ("h.copy_(t, non_blocking=True)", "pinned")
    benches = transfer({cell: 8.5e-3}), transfer({cell: 10.7e-3}, clock="enqueue")
    assert ask(tmp_path, "garbage", *benches) == snapshot


# 10 and 11: once in a process


def test_a_device_that_cannot_register_says_why(tmp_path, snapshot):
    cells = {"pin_copy": 0.03, "register": SKIPPED}
    benches = [of_suite(f"firsts.PinnedMemory.timeit_{way}", {(BIG,): found}) for way, found in cells.items()]
    assert ask(tmp_path, "existing array", *benches, skipped="no such call") == snapshot


# 12: NumPy 2


@pytest.mark.parametrize("numpy, last", [("2.4.6", 5e-7), ("2.4.6", None), ("1.26.4", 5e-7)])
def test_the_answer_on_numpy_2_shows_times_of_its_direction(tmp_path, snapshot, numpy, last):
    """The answer shows the time of np.array(t) in its own direction, tensor to NumPy."""
    same = resultfiles.conversion({("np.array(t)", MIB): around(1.0)}, [contract("np.array(t)", "copy")])
    timed = conversion({("np.array(t)", MIB): last})
    assert ask(tmp_path, "NumPy 2", same, timed, settings={"torch": "2.13.0", "numpy": numpy}) == snapshot


# 13: neighbours


@pytest.mark.parametrize("near", [24e-6, 3e-6])
def test_the_same_copy_takes_longer_between_neighbours(tmp_path, snapshot, near):
    route = "np.copyto(b.numpy(), a)"
    times = {(route, "apart", 64 * KIB): 3e-6, (route, "neighbours", 64 * KIB): near}
    assert ask(tmp_path, "same copy", of_suite("placement.NumpyToTorch.timeit_convert", times)) == snapshot
