"""scripts/advise.py: answers to cases, on made-up results in which the right answer is known."""

import json
import math
import pickle
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import advise
import numpy as np
import pandas as pd
import pytest
from analysis import costs
from analysis.answers import answer
from analysis.costs import closest_machine, load_machine
from analysis.estimates import ANY_SIZE, STEADY_SESSION, UNSTEADY_SESSION, NoAnswer, estimate
from analysis.findings import Gain
from analysis.needs import Case
from analysis.ranking import GOOD
from cli import ROOT
from made_up import FAST, LATENCY, copied, glibc, host
from msgspec import structs
from pages import case_answer as page
from pages import show
from resultfiles import FROM_NUMPY, KIB, MIB, SKIPPED, TENSOR, around, contract, conversion, every, record, write
from store.schema import Conditions, RunRecord, Settings, Toolchain

CLONED = "torch.from_numpy(a).clone()"
STACKED, ARRAYED = "torch.stack([torch.from_numpy(x) for x in arrays])", "torch.from_numpy(np.array(arrays))"


def refusal(case, known):
    """Why a case has no answer."""
    with pytest.raises(NoAnswer) as raised:
        answer(case, known)
    return page.no_answer_text(raised.value)


def copy_of(nbytes, **more):
    return Case("numpy", "torch", nbytes, **{"memory": "copy", **more})


def routes(found):
    return [candidate.route for candidate in found.ranked]


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nbytes, memory, how, sizes",
    [
        (3 * MIB, "copy", "interpolated", (MIB, 16 * MIB)),
        (128 * MIB, "copy", "interpolated", (64 * MIB, 256 * MIB)),
        # times jump at 32 MiB: a line across the jump is wrong by a factor of two, so only sizes on one side are used
        (31 * MIB, "copy", "extrapolated", (16 * MIB,)),
        (32 * MIB, "copy", "extrapolated", (64 * MIB,)),
        (40 * MIB, "into", "interpolated", (16 * MIB, 64 * MIB)),  # no memory is allocated
        (1024 * MIB, "copy", "extrapolated", (256 * MIB,)),
    ],
)
def test_sizes_that_were_not_measured(known, nbytes, memory, how, sizes):
    found = answer(copy_of(nbytes, memory=memory), known)
    figure, true = found.ranked[0], copied(nbytes) if memory == "copy" else LATENCY + nbytes / FAST
    assert (figure.how, figure.sizes) == (how, sizes) and figure.seconds == pytest.approx(true, rel=0.06)
    assert how == "extrapolated" or figure.low * 0.99 <= true <= figure.high * 1.01


def curve(*rows, within=0.0):
    """Return the figures of one route from (size, seconds)."""
    figures = [{"nbytes": n, "seconds": s, "low": s, "high": s, "kind": "best", "quiet": True} for n, s in rows]
    return pd.DataFrame(figures).assign(within=within, how="measured", is_range=False)


def test_a_cache_that_ends_between_two_sizes_makes_a_range():
    """Bandwidth is 40 GB/s up to 8 MiB, then 10: times at 2 and 16 MiB do not show where between them it changes."""
    call, fast, slow = 1e-6, 4e10, 1e10

    def at(nbytes):
        return call + (nbytes / fast if nbytes <= 8 * MIB else nbytes / slow)

    cached = curve((8, call), *((n, at(n)) for n in (2 * MIB, 16 * MIB)))
    for nbytes in (3 * MIB, 8 * MIB, 9 * MIB, 15 * MIB):
        found = estimate(cached, nbytes)
        assert found["is_range"] and found["low"] <= at(nbytes) <= found["high"] < 5 * found["low"]
    one = estimate(curve((8, call), *((n, call + n / fast) for n in (2 * MIB, 16 * MIB))), 8 * MIB)
    assert not one["is_range"] and one["seconds"] == pytest.approx(at(8 * MIB))


def test_an_interval_holds_both_regimes_where_one_may_begin():
    """memcpy takes three times as long per byte from 16 MiB on; a copy was measured up to 8 MiB."""
    limit = pd.Series({n: 1 / (4e10 if n < 16 * MIB else 4e10 / 3) for n in (MIB, 8 * MIB, 16 * MIB)})
    measured = curve(*((n, n / 2e10) for n in (MIB, 8 * MIB)))
    near, far = (estimate(measured, n * MIB, limit=limit) for n in (8, 20))
    assert near["low"] == near["high"] and near["how"] == "measured"
    assert far["how"] == "extrapolated" and far["low"] == pytest.approx(20 * MIB / 2e10 / (1 + STEADY_SESSION), rel=0.1)
    assert far["high"] == pytest.approx(3 * (1 + STEADY_SESSION) ** 2 * far["low"]) and far["is_range"]
    below = estimate(curve((16 * MIB, 16 * MIB / 5e9)), 8 * MIB, limit=limit)
    assert below["low"] < 0.4 * below["seconds"]


def test_beyond_sizes_that_took_equally_long_bytes_add_what_memcpy_takes():
    """16,384 arrays of 64 KiB in all took 4.4 ms, those of 1 MiB 3.9 ms. In proportion 3 MiB would take 11.7 ms, more
    than a route that needs 8 ms; they took 4 ms."""
    limit = pd.Series({n: 1 / 2e10 for n in (64 * KIB, 4 * MIB)})
    found = estimate(curve((64 * KIB, 4.4e-3), (MIB, 3.9e-3)), 3 * MIB, limit=limit)
    assert found["seconds"] == pytest.approx(3.9e-3 + 2 * MIB / 2e10)
    assert found["is_range"] and found["low"] < 3.9e-3 and found["high"] > 11.7e-3
    unknown = pickle.loads(pickle.dumps(ANY_SIZE))  # as .cache/ keeps it of results without memcpy
    alone = estimate(curve((MIB, 3.9e-3)), 3 * MIB, limit=limit)
    assert estimate(curve((64 * KIB, 4.4e-3), (MIB, 3.9e-3)), 3 * MIB, limit=unknown)["seconds"] == alone["seconds"]
    assert alone["seconds"] == pytest.approx(11.7e-3), "of one size alone it is not known what its bytes cost"


def test_below_the_smallest_size_a_range_where_bytes_matter_there():
    """Lists of 1 MiB take 22 µs: 2 µs for calls, and the rest for bytes. Those of 256 KiB were predicted to take as
    long as 1 MiB. Where sizes up to 64 KiB take almost as long, 1 KiB has one time."""
    lists = estimate(curve((MIB, 22e-6), (4 * MIB, 82e-6)), MIB // 4)
    assert lists["is_range"] and lists["low"] < 7e-6 == pytest.approx(lists["seconds"]) and lists["high"] > 22e-6
    call = estimate(curve((4 * KIB, 10e-6), (64 * KIB, 10.5e-6)), KIB)
    assert not call["is_range"] and call["seconds"] == pytest.approx(10e-6, rel=0.01)


def test_processes_that_differ_make_a_range():
    """If 90 % of processes lie within a factor of 1.5, the estimate for another size is a range, not a time."""
    measured = [(8, 1e-6), *((n, 1e-6 + n / 2e10) for n in (2 * MIB, 16 * MIB))]
    one, several = (estimate(curve(*measured, within=math.log(most)), 8 * MIB) for most in (1.05, 1.5))
    assert not one["is_range"] and one["high"] == pytest.approx(1.05 * (1 + STEADY_SESSION) * one["seconds"], rel=0.01)
    assert several["is_range"] and several["seconds"] == one["seconds"]
    assert several["low"] == pytest.approx(one["seconds"] / 1.5 / (1 + STEADY_SESSION), rel=0.01)
    assert several["high"] == pytest.approx(one["seconds"] * 1.5 * (1 + STEADY_SESSION), rel=0.01)
    same = estimate(curve(*measured, within=math.log(1.5)), 2 * MIB)
    assert not same["is_range"] and same["low"] == same["high"], "what was measured has the range of its processes"


def test_a_machine_that_was_hardly_quiet_makes_ranges(known):
    """Answers for a machine that is rarely quiet are ranges: its next session may run at another clock speed."""
    case = copy_of(3 * MIB)
    for quiet, session in ((None, STEADY_SESSION), (0.5, STEADY_SESSION), (0.16, UNSTEADY_SESSION)):
        found = answer(case, replace(known, quiet=quiet))
        (low, seconds, high), noisy = found.routes[["low", "seconds", "high"]].iloc[0], session == UNSTEADY_SESSION
        assert low <= seconds / (1 + session) and high >= seconds * (1 + session)
        assert {*found.routes["is_range"]} == {noisy}
        assert (
            "Ranges are given, because the machine was quiet only 16 % of the time." in page.answer_notes(found)
        ) == noisy


# --- ranking ----------------------------------------------------------------------------------------------------------


def test_every_answer_is_a_row_of_the_one_table(known):
    """Answers are rows of the table of choices, so that a page and advise.py recommend the same first route."""
    table = known.rows[(known.rows["direction"] == "numpy→torch") & (known.rows["dtype"] == "float32")]
    table = table[(table["arrays"] == 0) & (table["layout"] == "contiguous")]
    assert {*table["memory"]} == {"alias", "copy", "into"}
    for (memory, nbytes), rows in table.groupby(["memory", "nbytes"], sort=False):
        found, good = answer(copy_of(int(nbytes), memory=memory), known), rows[rows["kind"].isin(GOOD)]
        assert [(each.route, each.kind) for each in found.ranked] == [*zip(good["route"], good["kind"])]
        assert found.ranked[0].kind == "best"
        assert [each.route for each in found.select("unsafe")] == ["torch.from_dlpack(a)"] * (memory == "alias")


@pytest.mark.parametrize(
    "each, measured, first, noted",
    [
        (256 * KIB, True, STACKED, False),
        (256 * KIB + 16, True, ARRAYED, False),
        (4 * KIB + 16, True, STACKED, True),  # smaller than all uneven sizes, between two even ones
        (256 * KIB + 16, False, STACKED, True),
    ],
)
def test_arrays_of_uneven_size_have_times_of_their_own(tmp_path, each, measured, first, noted):
    """Arrays of uneven size use their own times if measured, else the times of even arrays, with a note."""
    promises, sizes = [contract(STACKED, "copy"), contract(ARRAYED, "copy")], [64 * KIB, 256 * KIB, MIB, 28 * MIB]
    uneven = {"layout": ["uneven"], "nbytes": [size + KIB for size in sizes[2:]]}

    def seconds(route, *cell):
        return copied(cell[-1], 1.5 if route == ARRAYED else 2.5 if "uneven" in cell else 1.0)

    benches = [host(), every("batches.ArraysToTensor.timeit_convert", seconds, promises, nbytes=sizes)]
    benches += [every("batches.UnevenArraysToTensor.timeit_convert", seconds, promises, **uneven)] * measured
    known = load_machine(write(tmp_path / "results", benches, records=glibc(benches)), "box")
    found = answer(copy_of(each, batch=64), known)
    assert routes(found)[0] == first and any("64 bytes" in note for note in page.answer_notes(found)) == noted


@pytest.mark.parametrize("count, answered", [(4, True), (256, True), (3000, True), (64, True), (16000, False)])
def test_lists_of_other_numbers_lie_between_those_that_were_measured(tmp_path, count, answered):
    """A call, its bytes and its arrays take time; times of 4, 64 and 1,024 arrays say what others take."""

    def seconds(route, arrays, nbytes):
        return 1e-6 + arrays * (2e-6 if route == STACKED else 2e-7) + nbytes / (8e9 if route == STACKED else 4e9)

    numbers = {"arrays": [4, 64, 1024], "nbytes": [64 * KIB, MIB, 16 * MIB]}
    promises = [contract(STACKED, "copy"), contract(ARRAYED, "copy")]
    benches = [host(), every("batches.NumbersToTensor.timeit_convert", seconds, promises, **numbers)]
    known = load_machine(write(tmp_path / "results", benches, records=glibc(benches)), "box")
    case = copy_of(6 * MIB // count // 4 * 4, batch=count)
    if not answered:
        assert "4, 64, 1024 arrays were measured" in refusal(case, known)
        return
    found = answer(case, known)
    times = {route: seconds(route, count, case.total) for route in (STACKED, ARRAYED)}
    assert routes(found)[0] == min(times, key=times.get)
    for each in found.ranked:
        assert each.low <= times[each.route] <= each.high and each.seconds == pytest.approx(times[each.route], rel=0.3)
    assert any(note.startswith("Estimated from lists") for note in page.answer_notes(found)) == (count not in (4, 64))


def test_an_upper_bound_is_marked(known):
    """A figure without quiet samples is an upper bound: it is marked with ~, and a note explains the mark."""
    rows = known.rows.assign(quiet=known.rows["route"] != CLONED)
    found = answer(copy_of(MIB, layout="fortran"), replace(known, rows=rows))
    assert routes(found) == ["torch.tensor(a)", CLONED]
    assert any(note.startswith("~") for note in page.answer_notes(found))
    between = answer(copy_of(3 * MIB), replace(known, rows=rows, quiet=0.16))
    lines = {each.route: (page.route_line(each, between.case), show.seconds(each.high)) for each in between.ranked}
    for route, (line, high) in lines.items():
        assert (f", up to {high} ~, " in line) == (route == CLONED) and high in line


@pytest.mark.parametrize("ends, route", [(("torch", "device"), "t.to(device)"), (("device", "torch"), "t.cpu()")])
def test_grad_crosses_a_link(known, ends, route):
    """Autograd records a transfer between tensors, so --grad is answered by routes whose contract says so."""
    case = Case(*ends, 64 * MIB, grad=True)
    assert "refuses it; leave it out, and detach first" in refusal(case, known)
    promise = {"inputs": {"requires grad": "works, and the result requires grad"}}
    contracts = [replace(c, **promise) if c.expression == route else c for c in known.rows["contract"]]
    assert set(routes(answer(case, replace(known, rows=known.rows.assign(contract=contracts))))) == {route}


# --- transfers --------------------------------------------------------------------------------------------------------


def test_pinning_that_nobody_measured(known):
    """Pinning of unknown cost may take any time, so a pinned route is advice only for memory already pinned."""
    rows = known.rows.assign(once=known.rows["once"].mask(known.rows["host"] == "pinned"))
    found = answer(Case("torch", "device", 64 * MIB, count=1000), replace(known, rows=rows))
    assert found.ranked[0].host == "pageable" and found.ranked[-1].host == "pinned"
    assert any("pinned" in note for note in page.answer_notes(found))


@pytest.mark.parametrize("device", ["cuda:0", "xpu:1", "mps"])
def test_code_to_paste_names_the_device_that_was_measured(known, device):
    run = structs.replace(known.run, settings=Settings(device=device))
    found = answer(Case("torch", "device", 64 * MIB, host="pinned", enqueue=True), replace(known, run=run))
    code, name = page.snippet(found.case, found.ranked[0], found.machine), device.partition(":")[0]
    assert f'device = torch.device("{name}")' in code and f"torch.{name}.synchronize()" in code


# --- what changes a time ----------------------------------------------------------------------------------------------


def test_a_setting_that_helps(known):
    """The gain of a setting is measured at one size and given for sizes on the same side of the jump at 32 MiB."""
    family = SimpleNamespace(applies_to="", settings={"MALLOC_X=1": "keeps memory"})
    slow = SimpleNamespace(route=CLONED, nbytes=64 * MIB, seconds=4.5, declared=family)
    fast = SimpleNamespace(seconds=1.0, declared=family, parameters={"setting": "MALLOC_X=1"})
    helped = replace(known, effects=[Gain(slow, fast)])
    said = {n: " ".join(page.answer_notes(answer(copy_of(n), helped))) for n in (MIB, 128 * MIB)}
    assert "MALLOC_X" not in said[MIB] and "4.50× " in said[128 * MIB]


# --- code to paste ----------------------------------------------------------------------------------------------------


CPU = [
    copy_of(MIB),
    copy_of(MIB, memory="into"),
    Case("numpy", "torch", 3 * MIB, "float16", layout="fortran"),
    Case("torch", "numpy", MIB),
    Case("torch", "numpy", MIB, grad=True),
    Case("numpy", "torch", 32 * KIB, batch=32),
]


@pytest.mark.parametrize("case", CPU, ids=str)
def test_code_runs_as_it_is(known, case):
    torch, sources = pytest.importorskip("torch"), pytest.importorskip("benchmarks.core.sources")
    found = answer(case, known)
    for candidate in found.ranked:
        names = {}
        exec(page.snippet(case, candidate, known), names)
        source = names.get("a" if case.source == "numpy" else "t")
        result = names["b" if case.memory == "into" else "t" if case.target == "torch" else "a"]
        assert isinstance(result, torch.Tensor if case.target == "torch" else np.ndarray)
        total = sources.laid_out(case.dtype, case.total, case.layout).nbytes
        assert str(result.dtype).endswith(case.dtype) and result.nbytes == total
        if source is not None:
            assert source.nbytes == total and tuple(source.shape) == tuple(result.shape)
            shares = torch.as_tensor(result).data_ptr() == torch.as_tensor(source).data_ptr()
            assert shares == (candidate.memory == "alias")


@pytest.mark.parametrize("layout", ["strided", "transposed", "fortran", "power of two", "5-d"])
@pytest.mark.parametrize("ends", [("numpy", "torch"), ("torch", "numpy")])
def test_code_has_the_layout_that_was_measured(known, ends, layout):
    torch, sources = pytest.importorskip("torch"), pytest.importorskip("benchmarks.core.sources")
    (best,) = answer(Case(*ends, MIB), known).ranked[:1]
    for nbytes in (4 * KIB, MIB, 16 * MIB):
        (line,) = (
            each
            for each in page.snippet(Case(*ends, nbytes, layout=layout), best, known).split("\n")
            if "yours" in each
        )
        exec(line, names := {"np": np, "torch": torch})
        made, measured = torch.as_tensor(names[line[0]]), torch.from_numpy(sources.laid_out("float32", nbytes, layout))
        assert (made.shape, made.stride()) == (measured.shape, measured.stride())


# --- the command ------------------------------------------------------------------------------------------------------

USUAL = "--from numpy --to torch --nbytes 1MiB"
DEVICE = "--from torch --to device --nbytes 1MiB"
BEYOND = "answers reach 4 times beyond the sizes measured:"
BEYOND_COUNT = "answers reach 4 times as many or as few"
OFFER = "; measure it: add --measure\n"
ERRORS = [
    (f"{USUAL} --to numpy", "--from numpy --to numpy: name two different ones"),
    (f"{USUAL} --to tensorflow", "argument --to: invalid choice: 'tensorflow'"),
    (
        f"{DEVICE} --from numpy",
        "on box; until then take torch.from_numpy(a).to(device) (the rule of docs/gpu.md, not measured here)",
    ),
    *((f"{USUAL} --nbytes={n}", "write bytes such as") for n in ("-8", "three", "0", "1.5", "9999999GiB")),
    (f"{USUAL} --nbytes 7", "--nbytes 7: a contiguous source of float32 has a multiple of 4"),
    (f"{USUAL} --own --nbytes 1028MiB", f" 1.004 GiB; {BEYOND} 8 B, 64 KiB, 1 MiB, 16 MiB, 64 MiB, 256 MiB{OFFER}"),
    (f"{USUAL} --own --nbytes 256MiB --layout fortran", f"fortran float32 near 256 MiB; {BEYOND} 1 MiB{OFFER}"),
    (f"{USUAL} --batch 1000", f"--batch 1000: 64 arrays were measured, and {BEYOND_COUNT}{OFFER}"),
    (f"{USUAL} --read-only --writable --share", "--share: a write would reach the read-only source"),
    ("--from torch --to numpy --nbytes 8 --read-only", "--read-only: "),
    *(
        (f"{USUAL} --dtype {text}", f"argument --dtype: {text}{reason}")
        for text, reason in {
            "fp32": ": did you mean float32?",
            "torch.half": ": did you mean float16?",
            "np.uint8": ": did you mean uint8?",
            "str": " holds no numbers",
        }.items()
    ),
    (f"{USUAL} --threads 0", "argument --threads: takes a whole number from 1"),
    ("--source np.ones(3) --to torch --dtype uint8", "it says all, leave out --dtype"),
    (f"--like {__file__} --from numpy --to torch", "write FILE.npy, FILE.npz:NAME, FILE.h5:NAME or DIRECTORY.zarr"),
    (f"{USUAL} --shape 3x4", "say what the source is, once: --nbytes, --shape, --like or --source"),
    ("--from numpy --to torch --shape 3x", "argument --shape: '3x': write sizes such as 1080x1920x3"),
    ("--from numpy --to torch --like nothing.npy", "--like nothing.npy: no such file"),
    (f"{USUAL} --own --share", "not allowed with argument"),
    (f"{DEVICE} --share", "no route host→device that shares memory was measured"),
    (f"{USUAL} --dtype float8_e4m3fn", "--dtype float8_e4m3fn: not timed numpy→torch; there are float32, float16"),
    (f"{USUAL} --dtype bfloat16", "NumPy has no such dtype; for such a tensor use --to-dtype bfloat16"),
    (f"{USUAL} --dtype float64 --to-dtype int8", "--to-dtype int8: not measured numpy→torch; there are float32"),
    (f"{USUAL} --dtype int8 --to-dtype float32", "not measured numpy→torch to float32; there are float64"),
    (f"{USUAL} --layout strided", "--layout strided: not measured numpy→torch; there are contiguous, fortran"),
    (f"{USUAL} --enqueue", "--enqueue: not measured numpy→torch; leave it out"),
    (f"{USUAL} --source pinned", "--source pinned: only with a device, leave it out"),
    (f"{DEVICE} --source fast", "--source fast: with a device it is pageable or pinned"),
    (f"{DEVICE} --threads 1", "--threads 1: not measured host→device"),
    (f"{USUAL} --grad", "--grad: arrays require no grad, leave it out"),
    (f"{USUAL} --from torch --to numpy --dtype int64 --grad", "int64"),
    (f"{USUAL} --batch 1", "argument --batch: takes a whole number from 2"),
    (f"{USUAL} --batch 64 --share", "no route numpy→torch that shares memory was measured for a batch"),
    (f"{DEVICE} --batch 64", "--batch 64: not measured host→device"),
    *((f"{USUAL} --count {n}", "argument --count: takes a whole number from 1") for n in ("many", "0", "9" * 16)),
    (f"{USUAL} --machine other", "no results of it"),
    ("--nbytes 8", "name the source and the result: --from and --to"),
    (f"{USUAL} --results nowhere", "no such directory"),
]


@pytest.fixture
def ask(called, known_results, monkeypatch):
    monkeypatch.setattr(advise, "RESULTS", known_results)
    return lambda given: called(advise, *given.split())


# Name -> question. The snapshot has the whole answers, and made_up.py the facts of these results
ASKED = {
    "shared where that can be": "--from numpy --to torch --nbytes 1MiB",
    "a copy": "--from numpy --to torch --nbytes 64KiB --own",
    "its own time of another dtype": "--from numpy --to torch --nbytes 1MiB --own --dtype int64",
    "the usual dtype's time": "--from numpy --to torch --nbytes 16MiB --own --dtype int64",
    "a dtype that is not timed": "--from numpy --to torch --nbytes 1MiB --own --dtype int16",
    "a read-only source": "--from numpy --to torch --nbytes 1MiB --read-only",
    "a read-only source, whose result is written to": "--from numpy --to torch --nbytes 1MiB --read-only --writable",
    "another layout, between its sizes": "--from numpy --to torch --nbytes 3MiB --own --layout fortran",
    "a buffer between neighbours": "--from numpy --to torch --nbytes 64KiB --into-buffer",
    "a buffer between neighbours, near a size": "--from numpy --to torch --nbytes 5KiB --into-buffer",
    "a buffer whose neighbours cost nothing": "--from numpy --to torch --nbytes 2KiB --into-buffer",
    "a buffer that is large": "--from numpy --to torch --nbytes 1MiB --into-buffer",
    "a cast": "--from numpy --to torch --nbytes 1MiB --dtype float64 --to-dtype float32",
    "grad": "--from torch --to numpy --nbytes 1MiB --grad",
    "grad, far from what was measured": "--from torch --to numpy --nbytes 16MiB --grad",
    "as many arrays as were measured": "--from numpy --to torch --nbytes 16KiB --batch 64",
    "fewer arrays": "--from numpy --to torch --nbytes 32KiB --batch 32",
    "arrays that end within a line of the cache": "--from numpy --to torch --nbytes 16400 --batch 64",
    "pinning for two": "--from torch --to device --nbytes 64MiB --count 2",
    "pinning for a thousand": "--from torch --to device --nbytes 64MiB --count 1000",
    "pinned already": "--from torch --to device --nbytes 64MiB --source pinned",
    "a buffer, staged": "--from torch --to device --nbytes 64MiB --into-buffer --source pageable --count 10",
    "until the call returns": "--from torch --to device --nbytes 64MiB --source pinned --enqueue",
}


@pytest.mark.parametrize("name", ASKED)
def test_the_whole_answer(ask, snapshot, name):
    """Without --machine, a warning says if the results are of a machine unlike this one."""
    code, out, err = ask(f"{ASKED[name]} --machine box")
    assert (code, out, err) == (0, snapshot, "") and "Warning" not in out
    assert name != "a copy" or "Warning" in ask(ASKED[name])[1]
    compile(out.split("\n\n", 2)[2], "pasted", "exec")


@pytest.mark.parametrize("given, says", ERRORS)
def test_errors_are_one_line(ask, given, says):
    code, out, err = ask(given)
    assert (code, out) == (2, "") and says in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("given", [given for given, _ in ERRORS if given.endswith(("bfloat16", "float8_e4m3fn"))])
def test_dtypes_that_ml_dtypes_registers(ask, given):
    """NumPy lacks them all the same: what a process has imported does not change an error."""
    pytest.importorskip("ml_dtypes")
    test_errors_are_one_line(ask, given, dict(ERRORS)[given])


def test_a_dtype_that_the_toolchain_lacks(tmp_path):
    times = {("torch.from_numpy(a)", "float32", MIB): around(4e-7), ("torch.from_numpy(a)", "int64", MIB): SKIPPED}
    bench = conversion(times, [FROM_NUMPY, TENSOR], dtypes=("float32", "int64"))
    known = load_machine(write(tmp_path / "results", [bench], records=[record([bench], "needs torch 9")]), "box")
    assert "torch 9" in refusal(Case("numpy", "torch", MIB, "int64"), known)


@pytest.mark.parametrize(
    "refuses, says", [({"float32": "TypeError"}, "every route numpy→torch refuses it"), ({}, "that copies was")]
)
def test_no_route_will_do(known, refuses, says):
    contracts = [replace(c, refuses=refuses, memory="alias") for c in known.rows["contract"]]
    assert says in refusal(copy_of(MIB), replace(known, rows=known.rows.assign(contract=contracts)))


def test_the_json_has_the_case_and_the_ranked_routes(ask, known):
    code, out, err = ask(f"{USUAL} --own --count 5 --json")
    found = json.loads(out)
    assert (code, err) == (0, "") and Case(**found["case"]) == copy_of(MIB, count=5)
    want = answer(copy_of(MIB, count=5), known)
    said = [(one["route"], one["seconds"]) for one in found["routes"]]
    assert said == [(one.route, pytest.approx(one.seconds)) for one in want.ranked]
    assert found["routes"][0]["code"].endswith(f"t = {CLONED}") and found["machine"] == "box"


def test_what_is_embedded_cannot_end_its_element(known):
    hostile = "</script><!--"
    rows = known.rows.assign(contract=[replace(contract, caution=hostile) for contract in known.rows["contract"]])
    found = page.form_data(replace(known, rows=rows))
    assert any(f"{hostile}." in notes for notes in json.loads(found)["rows"]["notes"][1]), "it is there as text"
    assert "<" not in found and "<" not in page.form_data(known)


def test_the_machine_it_speaks_of():
    def like(device="", **conditions):
        return RunRecord(Toolchain(""), {}, conditions=Conditions(**conditions), settings=Settings(device=device))

    here = Conditions(cpu="A CPU", cores=4, caches={"L2": "1024K"})
    mine = like(cpu="A CPU", cores=4, caches={"L2": "1024K"})
    near, far = like(cpu="A CPU", cores=8, caches={"L2": "1024K"}), like("cuda:0", cpu="Other", cores=4)
    known = {"far": far, "near": near}
    assert closest_machine({**known, "mine": mine}, here, False) == ("mine", ())
    assert closest_machine(known, here, False) == ("near", ("cores",))
    older = {"older": like(cpu="A CPU", libc="glibc 2")}
    assert closest_machine(older, Conditions(cpu="A CPU", libc="glibc 9"), False) == ("older", ("libc",))
    mine = RunRecord(Toolchain(""), {}, conditions=here, settings=Settings(build="of another kind"))
    assert closest_machine({"near": near, "mine": mine}, here, False) == ("mine", ("build",)), "hardware counts more"
    assert closest_machine(known, here, True)[0] == "far", "a machine without a device says nothing of one"


# --- the time that an answer takes ------------------------------------------------------------------------------------


def test_results_are_read_once_until_they_change(tmp_path, monkeypatch):
    def result(seconds):
        benches = [conversion({("torch.from_numpy(a)", MIB): around(seconds)}, [FROM_NUMPY])]
        return load_machine(write(tmp_path / "results", benches), "box")

    def rows(known):
        return known.rows.drop(columns="contract")

    first = result(1e-6)
    with monkeypatch.context() as patch:
        patch.setattr(costs, "load_files", lambda *_: pytest.fail("read again"))
        again = load_machine(tmp_path / "results", "box")
    pd.testing.assert_frame_equal(rows(first), rows(again))
    assert (first.name, first.run, first.effects) == (again.name, again.run, again.effects)
    assert rows(result(2e-6))["seconds"].item() == pytest.approx(2e-6, rel=0.01)


def test_an_answer_imports_nothing_slow():
    code = "import advise, sys; print({'asv', 'scipy.special', 'yaml', 'urllib.request'} & {*sys.modules})"
    program = f"import sys; sys.path[:0] = ['scripts', '.']; {code}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
