"""Answers to cases, on made-up results in which the right one is known: scripts/advise.py."""

import io
import json
import subprocess
import sys
from dataclasses import replace

import advise
import pandas as pd
import pytest
from analysis import case as cases
from analysis.case import BEST, EXTRAPOLATED, INTERPOLATED, MEASURED, Case, answer
from analysis.choices import every
from cli import UserError
from conftest import ROOT, environment
from made_up import EARLY, FAST, LATENCY, SIZES, copied, declared, glibc, host, results_in
from pages import case as page
from pages import show
from resultfiles import (
    CLONE,
    FROM_NUMPY,
    KIB,
    MIB,
    SKIPPED,
    TENSOR,
    Bench,
    around,
    contract,
    conversion,
    record,
    write,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return results_in(tmp_path_factory.mktemp("known"))


@pytest.fixture(scope="module")
def known(results):
    return every(results)[0]


def routes(found):
    return [candidate.route for candidate in found.ranked]


def test_ranking(known):
    found = answer(Case("numpy", "torch", MIB, memory="copy"), known)
    assert routes(found) == ["torch.from_numpy(a).clone()", "torch.tensor(a)"]
    best = found.ranked[0]
    assert best.how == MEASURED and not best.tie and best.quiet
    assert best.low <= copied(MIB) <= best.high
    assert best.seconds == pytest.approx(copied(MIB), rel=1e-3)
    assert best.rate == pytest.approx(MIB / copied(MIB), rel=1e-3)
    assert best.share == pytest.approx(MIB / FAST / copied(MIB), rel=1e-2)


def test_what_is_not_safe_is_named_beside(known):
    found = answer(Case("numpy", "torch", MIB), known)
    assert routes(found)[0] == "torch.from_numpy(a)" and "torch.from_dlpack(a)" not in routes(found)
    assert [candidate.route for candidate in found.unsafe] == ["torch.from_dlpack(a)"]


@pytest.mark.parametrize(
    "memory, first",
    [("alias", "torch.from_numpy(a)"), ("copy", "torch.from_numpy(a).clone()"), ("into", "np.copyto(b.numpy(), a)")],
)
def test_what_the_result_is(known, memory, first):
    found = answer(Case("numpy", "torch", MIB, memory=memory), known)
    assert routes(found)[0] == first and {candidate.memory for candidate in found.ranked} == {memory}


@pytest.mark.parametrize("nbytes", [3 * MIB, 256 * KIB, 128 * MIB])
def test_between_measured_sizes(known, nbytes):
    figure = answer(Case("numpy", "torch", nbytes, memory="copy"), known).ranked[0]
    assert figure.how == INTERPOLATED and figure.sizes[0] < nbytes < figure.sizes[1]
    assert figure.seconds == pytest.approx(copied(nbytes), rel=0.06)
    assert figure.low * 0.99 <= copied(nbytes) <= figure.high * 1.01


@pytest.mark.parametrize(("nbytes", "near"), [(24, 16), (40, 64), (32, 64), (31, 16)])
def test_nothing_is_carried_across_the_break(known, nbytes, near):
    """Times leap at 32 MiB: a line through that is wrong by a factor of two. Each side speaks for itself alone."""
    figure = answer(Case("numpy", "torch", nbytes * MIB, memory="copy"), known).ranked[0]
    assert (figure.how, figure.sizes) == (EXTRAPOLATED, (near * MIB,))
    assert figure.seconds == pytest.approx(copied(nbytes * MIB), rel=0.06)


def test_no_break_where_no_memory_is_allocated(known):
    figure = answer(Case("numpy", "torch", 40 * MIB, memory="into"), known).ranked[0]
    assert figure.how == INTERPOLATED and figure.seconds == pytest.approx(LATENCY + 40 * MIB / FAST, rel=0.05)


def test_outside_of_what_was_measured(known):
    found = answer(Case("numpy", "torch", 1024 * MIB, memory="copy"), known)
    figure = found.ranked[0]
    assert (figure.how, figure.sizes) == (EXTRAPOLATED, (256 * MIB,))
    assert figure.seconds == pytest.approx(copied(1024 * MIB), rel=0.02)
    assert any("1 GiB: extrapolated from 256 MiB." in note for note in page.notes(found))
    with pytest.raises(UserError, match="near 1077936128 bytes; it was of .* 268435456 bytes"):
        answer(Case("numpy", "torch", 1028 * MIB, memory="copy"), known)


def test_an_interval_holds_both_regimes_where_one_may_begin():
    """memcpy takes three times as long per byte from 16 MiB on; a copy was measured up to 8 MiB."""
    curve = {n: cases.Row(0, n, "f(a)", BEST, n / 2e10, n / 2e10, n / 2e10) for n in (MIB, 8 * MIB)}
    limit = [(n, n / (4e10 if n < 16 * MIB else 4e10 / 3)) for n in (MIB, 8 * MIB, 16 * MIB)]
    near, far = (cases.estimate(curve, n * MIB, (), limit) for n in (8, 20))
    assert near.low == near.high and near.how == MEASURED
    assert far.how == EXTRAPOLATED and far.low == pytest.approx(20 * MIB / 2e10, rel=0.1)
    assert far.high == pytest.approx(3 * far.low)
    dear = 16 * MIB / 5e9
    below = cases.estimate({16 * MIB: cases.Row(0, 16 * MIB, "f(a)", BEST, dear, dear, dear)}, 8 * MIB, (), limit)
    assert below.low < 0.4 * below.seconds


def tied(tmp_path, near, sizes=SIZES):
    """Two routes that copy: as long as each other, but one ``near`` times as long at 16 MiB."""
    both = ("torch.from_numpy(a).clone()", "torch.tensor(a)")
    times = {(route, n): around(copied(n), 0.02) for route in both for n in sizes}
    times["torch.tensor(a)", 16 * MIB] = around(copied(16 * MIB, near), 0.02)
    bench = conversion(times, [TENSOR, CLONE])
    return every(write(tmp_path / "results", declared([bench]), records=glibc([bench])))[0]


def test_a_tie_is_called_a_tie(tmp_path):
    """Measured and interpolated alike; the first is the one that is as good at the most sizes."""
    known = tied(tmp_path, 1.0)
    for nbytes in (MIB, 3 * MIB):
        found = answer(Case("numpy", "torch", nbytes, memory="copy"), known)
        assert [candidate.tie for candidate in found.ranked] == [False, True]
        assert any(line.startswith("  - No significant difference between") for line in page.words(found))


def test_decided_on_one_side_only(tmp_path):
    """A route that is decided to be slower at a neighbour is no tie between the two."""
    known = tied(tmp_path, 1.5)
    found = {n: answer(Case("numpy", "torch", n, memory="copy"), known) for n in (MIB, 8 * MIB, 16 * MIB)}
    assert [[each.tie for each in one.ranked] for one in found.values()] == [[False, True], [False] * 2, [False] * 2]
    assert {routes(one)[0] for one in found.values()} == {"torch.from_numpy(a).clone()"}


def test_another_dtype(known):
    """Its own time where it was measured, that of the usual dtype elsewhere, and that is said."""
    own, other = (answer(Case("numpy", "torch", n, "int64", memory="copy"), known) for n in (MIB, 16 * MIB))
    assert routes(own) == ["torch.tensor(a)", "torch.from_numpy(a).clone()"]
    assert own.instead == "" and other.instead == "float32"
    assert other.ranked[0].seconds == pytest.approx(copied(16 * MIB), rel=0.01)
    assert "int64 was not measured; the time of float32 is used." in page.notes(other)


def test_layout(known):
    """Of another layout only what was measured of it, up to four times its size."""
    case = Case("numpy", "torch", 3 * MIB, layout="fortran", memory="copy")
    found = answer(case, known)
    assert routes(found) == ["torch.tensor(a)", "torch.from_numpy(a).clone()"]
    assert found.ranked[1].seconds == pytest.approx(copied(3 * MIB, 20), rel=0.1)
    with pytest.raises(UserError, match="fortran float32 near 268435456 bytes; it was of 1048576 bytes"):
        answer(replace(case, nbytes=256 * MIB), known)


def test_casts(known, tmp_path):
    promise = contract("torch.from_numpy(a).float()", "alias", casts_to="float32")
    bench = Bench(
        "casting.NumpyToTorch.timeit_cast",
        {"route": [promise["expression"]], "dtype": ["float64"], "nbytes": [MIB]},
        {(promise["expression"], "float64", MIB): around(2e-5)},
        [promise],
        declared={"role": "casting"},
    )
    benches = declared([host(), bench])
    cast = every(write(tmp_path / "results", benches, records=glibc(benches)))[0]
    found = answer(Case("numpy", "torch", MIB, "float64", goal="float32"), cast)
    assert routes(found) == [promise["expression"]] and "to float32" in page.title(found.case)
    with pytest.raises(UserError, match="--to-dtype int8: not measured numpy→torch; there are float64 to float32"):
        answer(Case("numpy", "torch", MIB, "float64", goal="int8"), cast)


def test_every_answer_is_a_row_of_the_one_table(known):
    """What is ranked is read from the table of choices: a page's first route and advise.py's are the same."""
    table = pd.DataFrame([{**vars(known.needs[row.need]), **vars(row)} for row in known.rows])
    table = table[(table["direction"] == "numpy→torch") & (table["dtype"] == "float32") & ~table["batch"]]
    sizes = table[table["layout"] == "contiguous"].groupby(["memory", "nbytes"], sort=False)
    for (memory, nbytes), rows in sizes:
        found = answer(Case("numpy", "torch", int(nbytes), memory=memory), known)
        good = rows[~rows["kind"].isin(["unsafe", "condition"])]
        assert routes(found) == list(good["route"]) and [each.kind for each in found.ranked] == list(good["kind"])
        assert found.ranked[0].kind == "best"


def test_grad(known):
    assert routes(answer(Case("torch", "numpy", MIB), known))[0] == "t.numpy()"
    found = answer(Case("torch", "numpy", 16 * MIB, grad=True), known)
    assert routes(found) == ["t.detach().numpy()"] and found.instead == "no grad"  # 1 MiB is too far from 16
    assert answer(Case("torch", "numpy", MIB, grad=True), known).instead == ""


@pytest.mark.parametrize("ends, route", [(("torch", "cuda"), "t.to(device)"), (("cuda", "torch"), "t.cpu()")])
def test_grad_crosses_a_link(known, ends, route):
    """Autograd records a transfer between tensors, by its contract."""
    case = Case(*ends, 64 * MIB, grad=True)
    with pytest.raises(UserError, match="takes a tensor that requires grad"):
        answer(case, known)
    promise = {"inputs": {"requires grad": "works, and the result requires grad"}}
    contracts = tuple(replace(c, **promise) if c.expression == route else c for c in known.contracts)
    assert set(routes(answer(case, replace(known, contracts=contracts)))) == {route}


def test_batch(known):
    found = answer(Case("numpy", "torch", 16 * KIB, batch=64), known)
    assert routes(found) == ["torch.from_numpy(np.stack(arrays))"]
    assert found.ranked[0].how == MEASURED and found.arrays == 64  # the bytes of all, and of as many
    assert any(
        "Measured with 64 arrays" in n for n in page.notes(answer(Case("numpy", "torch", 2 * KIB, batch=2), known))
    )


def test_pinning_is_spread(known):
    """64 MiB: 6.7 ms pageable, 3.4 ms pinned, and 68 ms to pin it."""
    few, many = (answer(Case("torch", "cuda", 64 * MIB, count=count), known) for count in (2, 1000))
    assert few.ranked[0].host == "pageable" and many.ranked[0].host == "pinned"
    best = many.ranked[0]
    assert best.once == pytest.approx(1e-3 + 64 * MIB / 1e9, rel=1e-2)
    assert best.total == pytest.approx(best.seconds + best.once / 1000)
    here = answer(Case("torch", "cuda", 64 * MIB, host="pinned"), known)
    assert here.ranked[0].once is None and here.ranked[0].host == "pinned"
    assert here.ranked[0].share == pytest.approx(0.8, rel=1e-2)


def test_pinning_that_nobody_measured(known):
    """It may cost anything, so it is no advice; with memory that is pinned already it is."""
    rows = tuple(replace(row, once=None) if known.needs[row.need].host == "pinned" else row for row in known.rows)
    found = answer(Case("torch", "cuda", 64 * MIB, count=1000), replace(known, rows=rows))
    assert found.ranked[0].host == "pageable" and found.ranked[-1].unpriced
    assert any("one-time cost of pinned memory was not measured" in note for note in page.notes(found))


def test_a_setting_that_helps(known):
    """By how much was measured at a size; it is said of sizes on the same side of the break."""
    clone = "torch.from_numpy(a).clone()"
    gain = cases.Effect(clone, 64 * MIB, 4.5, (clone,), "MALLOC_X=1", "keeps memory")
    helped = replace(known, effects=(gain,))
    said = {n: " ".join(page.notes(answer(Case("numpy", "torch", n, memory="copy"), helped))) for n in (MIB, 128 * MIB)}
    assert "MALLOC_X" not in said[MIB]
    assert "4.50× as fast at 64 MiB; keeps memory." in said[128 * MIB]


@pytest.mark.parametrize("nbytes, said", [(64 * KIB, "8.00× as long at 64 KiB"), (5 * KIB, "2.00× as long at 4 KiB")])
def test_a_copy_that_costs_more_between_neighbours_says_so(known, nbytes, said):
    """Where that was measured and decided, of contiguous sources, and of the routes that copy so."""

    def told(**case):
        return show.to_plain(" ".join(page.notes(answer(Case("numpy", "torch", **case), known))))

    near = f"allocated one behind the other, `np.copyto(b.numpy(), a)` takes {said}"
    assert near in told(nbytes=nbytes, memory="into")
    for case in ({"memory": "into", "nbytes": MIB}, {"memory": "into", "nbytes": 2 * KIB}, {"memory": "copy"}):
        assert "one behind the other" not in told(**{"nbytes": nbytes, **case})


def test_staging_is_paid_once(known):
    staged = answer(Case("torch", "cuda", 64 * MIB, memory="into", host="pageable", count=10), known).ranked[0]
    assert staged.paid == "s" and staged.total > staged.seconds


def test_enqueue(known):
    found = answer(Case("torch", "cuda", 64 * MIB, host="pinned", enqueue=True), known)
    assert routes(found) == [EARLY["expression"], "t.to(device)"]
    assert found.ranked[0].seconds == pytest.approx(3e-6, rel=1e-2) and found.ranked[0].rate is None


@pytest.mark.parametrize(
    "given, wanted",
    [
        ({}, ["t = torch.ones(262144, dtype=torch.float32)  # yours", "t.to(device)"]),
        (
            {"host": "pinned", "enqueue": True},
            [".pin_memory()", "torch.cuda.synchronize()  # before the source changes"],
        ),
        ({"memory": "into", "host": "pageable"}, ["s = torch.empty(", "pin_memory=True", "d = torch.empty("]),
    ],
)
def test_code_of_transfers(known, given, wanted):
    found = answer(Case("torch", "cuda", MIB, **given), known)
    code = page.snippet(found.case, found.ranked[0], known)
    compile(code, "pasted", "exec")
    assert all(part in code for part in wanted)


CPU = [
    Case("numpy", "torch", MIB, memory="copy"),
    Case("numpy", "torch", MIB, memory="into"),
    Case("numpy", "torch", 3 * MIB, "float16", layout="fortran"),
    Case("torch", "numpy", MIB),
    Case("torch", "numpy", MIB, grad=True),
    Case("numpy", "torch", 16 * KIB, batch=4),
]


@pytest.mark.parametrize("case", CPU, ids=str)
def test_code_runs_as_it_is(known, case):
    torch = pytest.importorskip("torch")
    np = pytest.importorskip("numpy")
    found = answer(case, known)
    for candidate in found.ranked:
        names = {}
        exec(page.snippet(case, candidate, known), names)
        source = names.get("a" if case.source == "numpy" else "t")
        result = names["b" if case.memory == "into" else "t" if case.target == "torch" else "a"]
        assert isinstance(result, torch.Tensor if case.target == "torch" else np.ndarray)
        assert str(result.dtype).endswith(case.dtype) and result.nbytes == case.total
        if source is not None:
            assert source.nbytes == case.nbytes and tuple(source.shape) == tuple(result.shape)
            shares = torch.as_tensor(result).data_ptr() == torch.as_tensor(source).data_ptr()
            assert shares == (candidate.memory == "alias")


GOOD = ("--from", "numpy", "--to", "torch", "--nbytes", "1MiB")
ERRORS = {
    "two of numpy, torch, cuda": ("--from", "numpy", "--to", "numpy", "--nbytes", "8"),
    "two of numpy, torch": ("--from", "numpy", "--to", "tensorflow", "--nbytes", "8"),
    "one byte at least": ("--from", "numpy", "--to", "torch", "--nbytes=-8"),
    "write bytes such as": ("--from", "numpy", "--to", "torch", "--nbytes", "three"),
    "more than memory holds": ("--from", "numpy", "--to", "torch", "--nbytes", "9999999GiB"),
    "no whole number of float32": ("--from", "numpy", "--to", "torch", "--nbytes", "7"),
    "not allowed with argument": (*GOOD, "--own", "--share"),
    "nothing is shared": ("--from", "torch", "--to", "cuda", "--nbytes", "8", "--share"),
    "float8_e4m3fn: not timed": (*GOOD, "--dtype", "float8_e4m3fn"),
    "no route numpy→torch that copies was measured": (*GOOD, "--own", "--layout", "strided"),
    "it is about transfers": (*GOOD, "--enqueue"),
    "for transfers alone": (*GOOD, "--source", "pinned"),
    "pageable or pinned": ("--from", "torch", "--to", "cuda", "--nbytes", "8", "--source", "fast"),
    "a NumPy array requires no grad": (*GOOD, "--grad"),
    "int64 does not": ("--from", "torch", "--to", "numpy", "--nbytes", "8", "--dtype", "int64", "--grad"),
    "of two arrays at least": (*GOOD, "--batch", "1"),
    "no other option goes with it": (*GOOD, "--batch", "8", "--share"),
    "'many' is no whole number": (*GOOD, "--count", "many"),
    "from one transfer to": (*GOOD, "--count", "0"),
    "no results of it": (*GOOD, "--machine", "other"),
    "the following arguments are required": ("--nbytes", "8"),
    "no such directory": (*GOOD, "--results", "nowhere"),
}


@pytest.fixture
def ask(called, results, tmp_path, monkeypatch):
    monkeypatch.setattr(advise, "KEPT", tmp_path / "kept" / "advise.json")
    monkeypatch.setattr(advise, "RESULTS", results)
    return lambda *given: called(advise, *given)


@pytest.mark.parametrize("says", ERRORS)
def test_errors_are_one_line(ask, says):
    code, out, err = ask(*ERRORS[says])
    if "strided" in ERRORS[says]:
        says = "--layout strided: not measured"
    assert (code, out) == (2, "") and says in err and len(err.splitlines()) == 1


def test_nothing_measured(tmp_path):
    """--to cuda where there is no device; a dtype that the toolchain lacks."""
    times = {("torch.from_numpy(a)", "float32", MIB): around(4e-7), ("torch.from_numpy(a)", "int64", MIB): SKIPPED}
    bench = conversion(times, [FROM_NUMPY, TENSOR], dtypes=("float32", "int64"))
    benches = declared([bench])
    known = every(write(tmp_path / "results", benches, records=[record(benches, "needs torch 9")]))[0]
    for case, why in (
        (Case("numpy", "cuda", MIB), "no transfer host→device was measured on box"),
        (Case("numpy", "torch", MIB, "int64"), "not on this toolchain, needs torch 9"),
        (Case("numpy", "torch", MIB, memory="copy"), "no route numpy→torch that copies was measured"),
    ):
        with pytest.raises(UserError, match=why):
            answer(case, known)


def test_json_round_trip(ask, known):
    code, out, err = ask(*GOOD, "--own", "--count", "5", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and json.loads(json.dumps(found)) == found
    case = Case(**found["case"])
    assert case == Case("numpy", "torch", MIB, memory="copy", count=5)
    assert [one["route"] for one in found["ranked"]] == routes(answer(case, known))
    assert found["ranked"][0]["code"].endswith("t = torch.from_numpy(a).clone()")
    assert found["machine"]["machine"] == "box"


def test_kept_until_results_change(ask, results):
    first = ask(*GOOD, "--json")
    kept = json.loads(advise.KEPT.read_text())
    kept["machines"][0]["torch"] = "from what is kept"
    advise.KEPT.write_text(json.dumps(kept))
    assert "from what is kept" in ask(*GOOD, "--json")[1]
    path = next(results.glob("box/*.jsonl"))
    path.write_text(path.read_text() + "")
    assert ask(*GOOD, "--json") == first
    advise.KEPT.write_text("{broken")
    assert ask(*GOOD, "--json") == first


def test_asked_one_question_at_a_time(ask, monkeypatch):
    given = ["numpy", "gpu", "torch", "much", "1MiB", "", "", "perhaps", "own", ""]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(given) + "\n"))
    code, out, err = ask()
    assert code == 0 and "1. `torch.from_numpy(a).clone()`" in out
    for said in ("one of numpy, torch, cuda", "write bytes such as", "one of any, own, share, into", "--own --count 1"):
        assert said in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("numpy\n"))
    code, out, err = ask()
    assert code == 2 and "no more answers" in err.splitlines()[-1]


def like(name, **conditions):
    return cases.Known(name, conditions=cases.Conditions(**conditions))


def test_the_machine_it_speaks_of():
    here = cases.Conditions(cpu="A CPU", cores=4, caches={"L2": "1024K"})
    mine = like("mine", cpu="A CPU", cores=4, caches={"L2": "1024K"})
    near, far = like("near", cpu="A CPU", cores=8, caches={"L2": "1024K"}), like("far", cpu="Other", cores=4)
    assert cases.closest([far, near, mine], here, False) == (mine, ())
    assert cases.closest([far, near], here, False) == (near, ("cores",))


def test_says_whose_results_they_are(ask):
    out = ask(*GOOD)[1]
    assert out.startswith("box: torch 2.0+cpu · numpy 1.26.1 · A CPU, 4 cores · measured 2026-01-02\n")
    assert "Warning: this machine has no results, and differs from that one in" in out
    assert "Warning" not in ask(*GOOD, "--machine", "box")[1]


@pytest.mark.slow
def test_needs_neither_pandas_nor_numpy(results, tmp_path):
    """What takes longer to import than an answer may take."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1].split(); import advise; from pathlib import Path\n"
        "advise.KEPT = Path(sys.argv[3]); given = [*sys.argv[4:], '--results', sys.argv[2]]\n"
        "advise.main(given)\n"
        "print({'numpy', 'pandas', 'scipy', 'matplotlib', 'torch'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, f"{ROOT}/scripts {ROOT}", str(results), str(tmp_path / "kept.json"), *GOOD]
    for wanted in (False, True):
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
        assert done.stdout.endswith("set()\n") == wanted, done.stdout + done.stderr


def test_an_upper_bound_is_no_equal_of_what_is_known(known):
    """A noisy machine: it takes that long at most, which is said, and nothing is ranked by it."""
    slow = "torch.from_numpy(a).clone()"
    rows = [replace(row, quiet=False) if row.route == slow else row for row in known.rows]
    case = Case("numpy", "torch", MIB, layout="fortran", memory="copy")
    found = answer(case, replace(known, rows=tuple(rows)))
    assert routes(found) == ["torch.tensor(a)", slow] and not any(each.tie for each in found.ranked)
    assert "~ Upper bound only (noisy machine)." in "\n".join(page.words(found))
