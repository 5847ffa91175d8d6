"""Answers to cases, on made-up results in which the right one is known: scripts/advise.py."""

import io
import json
import subprocess
import sys
from dataclasses import replace

import advise
import pytest
from analysis import case as cases
from analysis.case import Case, rank
from analysis.curves import BETWEEN, BEYOND, MEASURED
from analysis.published import every
from cli import UserError
from conftest import ROOT, environment
from made_up import EARLY, FAST, LATENCY, SIZES, copied, declared, glibc, results_in
from pages import case as page
from pages import show
from resultfiles import (
    CLONE,
    FROM_NUMPY,
    KIB,
    MIB,
    SKIPPED,
    TENSOR,
    around,
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


def routes(answer):
    return [candidate.route for candidate in answer.ranked]


def test_ranking(known):
    found = rank(Case("numpy", "torch", MIB, memory="copy"), known)
    assert routes(found) == ["torch.from_numpy(a).clone()", "torch.tensor(a)"]
    best = found.ranked[0]
    assert best.figure.how == MEASURED and not best.tie and best.calm
    assert best.figure.low <= copied(MIB) <= best.figure.high
    assert best.figure.seconds == pytest.approx(copied(MIB), rel=1e-3)
    assert best.rate == pytest.approx(MIB / copied(MIB), rel=1e-3)
    assert best.share == pytest.approx(MIB / FAST / copied(MIB), rel=1e-2)


def test_what_is_not_safe_is_named_beside(known):
    found = rank(Case("numpy", "torch", MIB), known)
    assert routes(found)[0] == "torch.from_numpy(a)" and "torch.from_dlpack(a)" not in routes(found)
    assert [candidate.route for candidate in found.unsafe] == ["torch.from_dlpack(a)"]


@pytest.mark.parametrize(
    "memory, first",
    [("alias", "torch.from_numpy(a)"), ("copy", "torch.from_numpy(a).clone()"), ("into", "np.copyto(b.numpy(), a)")],
)
def test_what_the_result_is(known, memory, first):
    found = rank(Case("numpy", "torch", MIB, memory=memory), known)
    assert routes(found)[0] == first and {candidate.memory for candidate in found.ranked} == {memory}


@pytest.mark.parametrize("nbytes", [3 * MIB, 256 * KIB, 24 * MIB, 40 * MIB, 32 * MIB, 32 * MIB - 4, 128 * MIB])
def test_between_measured_sizes(known, nbytes):
    """The curve is known, and broken at 32 MiB; a line through the break is wrong by a factor of two."""
    figure = rank(Case("numpy", "torch", nbytes, memory="copy"), known).ranked[0].figure
    assert figure.how == BETWEEN and figure.sizes[0] < nbytes < figure.sizes[1]
    assert figure.broken == (16 * MIB < nbytes < 64 * MIB)
    assert figure.seconds == pytest.approx(copied(nbytes), rel=0.06)
    assert figure.low * 0.99 <= copied(nbytes) <= figure.high * 1.01


def test_no_break_where_no_memory_is_allocated(known):
    figure = rank(Case("numpy", "torch", 40 * MIB, memory="into"), known).ranked[0].figure
    assert not figure.broken and figure.seconds == pytest.approx(LATENCY + 40 * MIB / FAST, rel=0.05)


def test_outside_of_what_was_measured(known):
    found = rank(Case("numpy", "torch", 1024 * MIB, memory="copy"), known)
    figure = found.ranked[0].figure
    assert (figure.how, figure.sizes) == (BEYOND, (256 * MIB,))
    assert figure.seconds == pytest.approx(copied(1024 * MIB), rel=0.02)
    assert any("1 GiB lies outside of what was measured" in note for note in page.notes(found))


def tied(tmp_path, near, sizes=SIZES):
    """Two routes that copy: as long as each other, but one ``near`` times as long at 16 MiB."""
    both = ("torch.from_numpy(a).clone()", "torch.tensor(a)")
    times = {(route, n): around(copied(n), 0.02) for route in both for n in sizes}
    times["torch.tensor(a)", 16 * MIB] = around(copied(16 * MIB, near), 0.02)
    bench = conversion(times, [TENSOR, CLONE])
    return every(write(tmp_path / "results", declared([bench]), records=glibc([bench])))[0]


def test_a_tie_is_called_a_tie(tmp_path):
    found = rank(Case("numpy", "torch", 3 * MIB, memory="copy"), tied(tmp_path, 1.0))
    assert routes(found) == ["torch.tensor(a)", "torch.from_numpy(a).clone()"]  # of equals the catalogue's first
    assert all(candidate.tie for candidate in found.ranked)
    assert any(line.startswith("  - A tie") for line in page.words(found))


def test_decided_on_one_side_only(tmp_path):
    """Next to 1 MiB, where nothing is decided, a tie; farther from it the ranges lie apart, as at 16 MiB. Of what ties
    there, that comes first which is slower nowhere."""
    known = tied(tmp_path, 1.5)
    found = {n: rank(Case("numpy", "torch", n, memory="copy"), known) for n in (MIB + 64 * KIB, 8 * MIB, 16 * MIB)}
    assert [[each.tie for each in one.ranked] for one in found.values()] == [[True] * 2, [False] * 2, [False] * 2]
    assert {routes(one)[0] for one in found.values()} == {"torch.from_numpy(a).clone()"}


def test_of_what_ties_first_what_is_slower_nowhere_around(tmp_path):
    """At 6 MiB both neighbours are undecided, and 16 MiB is not; from 3 MiB that is too far to say anything."""
    known = tied(tmp_path, 1.5, (MIB, 4 * MIB, 8 * MIB, 16 * MIB))
    near, far = (rank(Case("numpy", "torch", n, memory="copy"), known) for n in (6 * MIB, 3 * MIB))
    assert all(candidate.tie for candidate in (*near.ranked, *far.ranked))
    assert (routes(near)[0], routes(far)[0]) == ("torch.from_numpy(a).clone()", "torch.tensor(a)")


def test_another_dtype(known):
    """Where it was measured it shows whether the usual dtype's curve is its own, too."""
    same, other = (rank(Case("numpy", "torch", 4 * MIB, dtype, memory="copy"), known) for dtype in ("float16", "int64"))
    clone = next(c for c in same.ranked if "clone" in c.route)
    assert [(c.what, c.instead, c.at, c.factor) for c in clone.carried] == [("float16", "float32", MIB, 1.0)]
    clone = next(c for c in other.ranked if "clone" in c.route)
    assert clone.carried[0].factor == pytest.approx(2.0, rel=1e-2)
    assert clone.figure.seconds == pytest.approx(copied(4 * MIB, 2.0), rel=0.1)
    assert routes(other)[0] == "torch.tensor(a)"  # which takes int64 in its stride
    assert any("2.00× the time of float32 at 1 MiB" in note for note in page.notes(other))
    (into,) = rank(Case("numpy", "torch", 4 * MIB, "int64", memory="into"), known).ranked
    assert into.carried[0].at == 0  # nobody looked, and that is said
    assert any("int64 was not measured" in note for note in page.notes(rank(Case("numpy", "torch", 8, "int64"), known)))


def test_layout(known):
    found = rank(Case("numpy", "torch", 3 * MIB, layout="fortran", memory="copy", count=10**6), known)
    assert routes(found) == ["torch.tensor(a)", "torch.from_numpy(a).clone()"]
    assert found.ranked[1].carried[0].factor == pytest.approx(20, rel=1e-2)
    assert "torch.as_tensor(a)" in rank(Case("numpy", "torch", MIB, layout="fortran"), known).unknown


def test_grad(known):
    assert routes(rank(Case("torch", "numpy", MIB), known))[0] == "t.numpy()"
    found = rank(Case("torch", "numpy", 16 * MIB, grad=True), known)
    assert routes(found) == ["t.detach().numpy()"]
    assert found.ranked[0].carried[0].what == "requires grad"


@pytest.mark.parametrize("ends, route", [(("torch", "cuda"), "t.to(device)"), (("cuda", "torch"), "t.cpu()")])
def test_grad_crosses_a_link(known, ends, route):
    """Autograd records a transfer between tensors, by its contract."""
    case = Case(*ends, 64 * MIB, grad=True)
    with pytest.raises(UserError, match="takes a tensor that requires grad"):
        rank(case, known)
    promise = {"inputs": {"requires grad": "works, and the result requires grad"}}
    contracts = tuple(replace(c, **promise) if c.expression == route else c for c in known.contracts)
    assert set(routes(rank(case, replace(known, contracts=contracts)))) == {route}


def test_batch(known):
    found = rank(Case("numpy", "torch", 16 * KIB, batch=64), known)
    assert routes(found) == ["torch.from_numpy(np.stack(arrays))"]
    assert found.ranked[0].figure.how == MEASURED and found.arrays == 64  # the bytes of all, and of as many
    assert any("Measured with 64 arrays" in n for n in page.notes(rank(Case("numpy", "torch", 8, batch=2), known)))


def test_pinning_is_spread(known):
    """64 MiB: 6.7 ms pageable, 3.4 ms pinned, and 68 ms to pin it."""
    few, many = (rank(Case("torch", "cuda", 64 * MIB, count=count), known) for count in (2, 1000))
    assert few.ranked[0].host == "pageable" and many.ranked[0].host == "pinned"
    best = many.ranked[0]
    assert best.once.seconds == pytest.approx(1e-3 + 64 * MIB / 1e9, rel=1e-2)
    assert best.total == pytest.approx(best.figure.seconds + best.once.seconds / 1000)
    here = rank(Case("torch", "cuda", 64 * MIB, host="pinned"), known)
    assert here.ranked[0].once is None and here.ranked[0].host == "pinned"
    assert here.ranked[0].share == pytest.approx(0.8, rel=1e-2)


def test_pinning_that_nobody_measured(known):
    """It may cost anything, so it is no advice; with memory that is pinned already it is."""
    unpriced = replace(known, points=tuple(point for point in known.points if point.clock != "pin_copy"))
    found = rank(Case("torch", "cuda", 64 * MIB, count=1000), unpriced)
    assert found.ranked[0].host == "pageable" and found.ranked[-1].unpriced
    assert any("costs once was not measured" in note for note in page.notes(found))
    small = rank(Case("torch", "cuda", 64 * KIB, count=10), known)
    (pinned, *_) = (one for one in small.ranked if one.host == "pinned")
    assert pinned.once.seconds == pytest.approx((1e-3 + MIB / 1e9) / 16, rel=1e-2)


def test_a_setting_that_helps(known):
    """By how much was measured at a size; it is said of sizes on the same side of the break."""
    clone = "torch.from_numpy(a).clone()"
    gain = cases.Gain("MALLOC_X=1", clone, 64 * MIB, 4.5, "keeps memory", (clone,))
    helped = replace(known, gains=(gain,))
    said = {n: " ".join(page.notes(rank(Case("numpy", "torch", n, memory="copy"), helped))) for n in (MIB, 128 * MIB)}
    assert "MALLOC_X" not in said[MIB]
    assert "4.50× as fast at 64 MiB; keeps memory." in said[128 * MIB]


@pytest.mark.parametrize("nbytes, said", [(64 * KIB, "8.00× as long at 64 KiB"), (5 * KIB, "2.00× as long at 4 KiB")])
def test_a_copy_that_costs_more_between_neighbours_says_so(known, nbytes, said):
    """Where that was measured and decided, of contiguous sources, and of the routes that copy so."""

    def told(**case):
        return show.to_plain(" ".join(page.notes(rank(Case("numpy", "torch", **case), known))))

    near = f"allocated one behind the other, `np.copyto(b.numpy(), a)` takes {said}"
    assert near in told(nbytes=nbytes, memory="into")
    for case in ({"memory": "into", "nbytes": MIB}, {"memory": "into", "nbytes": 2 * KIB}, {"memory": "copy"}):
        assert "one behind the other" not in told(**{"nbytes": nbytes, **case})


def test_staging_is_paid_once(known):
    staged = rank(Case("torch", "cuda", 64 * MIB, memory="into", host="pageable", count=10), known).ranked[0]
    assert staged.paid == "s" and staged.total > staged.figure.seconds


def test_enqueue(known):
    found = rank(Case("torch", "cuda", 64 * MIB, host="pinned", enqueue=True), known)
    assert routes(found) == [EARLY["expression"], "t.to(device)"]
    assert found.ranked[0].figure.seconds == pytest.approx(3e-6, rel=1e-2) and found.ranked[0].rate is None


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
    found = rank(Case("torch", "cuda", MIB, **given), known)
    code = "\n".join(page.snippet(found.case, found.ranked[0], known))
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
    found = rank(case, known)
    for candidate in found.ranked:
        names = {}
        exec("\n".join(page.snippet(case, candidate, known)), names)
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
            rank(case, known)


def test_json_round_trip(ask, known):
    code, out, err = ask(*GOOD, "--own", "--count", "5", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and json.loads(json.dumps(found)) == found
    case = Case(**found["case"])
    assert case == Case("numpy", "torch", MIB, memory="copy", count=5)
    assert [one["route"] for one in found["ranked"]] == routes(rank(case, known))
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
        "import sys; sys.path.insert(0, sys.argv[1]); import advise; from pathlib import Path\n"
        "advise.KEPT = Path(sys.argv[3]); given = [*sys.argv[4:], '--results', sys.argv[2]]\n"
        "advise.main(given)\n"
        "print({'numpy', 'pandas', 'scipy', 'matplotlib', 'torch'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, str(ROOT / "scripts"), str(results), str(tmp_path / "kept.json"), *GOOD]
    for wanted in (False, True):
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
        assert done.stdout.endswith("set()\n") == wanted, done.stdout + done.stderr


def test_what_was_never_calm_is_no_equal_of_what_is_known(known):
    """A copy of a Fortran array that takes twenty times as long, on a machine that was busy just then: it takes that at
    most, so it is not decided to be slower; nor is it to be recommended beside what is known to be fast."""
    slow = "torch.from_numpy(a).clone()"
    points = [
        replace(each, calm=False) if each.route == slow and each.layout == "fortran" else each for each in known.points
    ]
    case = Case("numpy", "torch", 3 * MIB, layout="fortran", memory="copy")
    found = rank(case, replace(known, points=tuple(points)))
    assert routes(found) == ["torch.tensor(a)", slow] and not any(each.tie for each in found.ranked)
    assert found.ranked[1].figure.seconds == pytest.approx(copied(3 * MIB, 20), rel=0.1)
    said = "\n".join(page.words(found))
    assert "20× the time of contiguous at 1 MiB, where the machine was never calm, and is taken to do so" in said
    assert "~ The machine was never calm there" in said
