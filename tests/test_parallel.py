"""Copies with torch's default number of threads: how they are timed, and that advice is for the number asked for."""

import itertools
import math
import os
import re
import subprocess
import sys
import threading

import made_up
import pytest
import torch
from analysis.answers import answer
from analysis.cells import cells_of, with_threads
from analysis.costs import load_machine
from analysis.estimates import EXTRAPOLATED, INTERPOLATED, MEASURED, NoAnswer
from analysis.needs import Case, choices, rows_per_answer
from analysis.results import load
from browsing import SHOWN, address, texts_of
from conftest import build
from pages import case_answer as words
from pages import show
from pages.advice import answer_box
from resultfiles import ABSENT, CLONE, KIB, MIB, TENSOR, around, contract, conversion, every, write

from benchmarks import contracts, parallel, routes
from benchmarks.core import probes, sources, timing

pytestmark = pytest.mark.usefixtures("probe")
COPIED = contract("torch.from_numpy(a.copy())", "copy", memmove=True)
SIZES = (8, 64 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB)

# --- how they are timed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "default, threads, found",
    [(3, "all", 3), (12, "all", 12), (12, "8", 8), (3, "8", "takes 3 threads"), (1, "all", "takes 1 thread")],
)
def test_as_many_threads_as_torch_takes_by_itself_or_eight(monkeypatch, default, threads, found):
    had = []
    monkeypatch.setattr(torch, "set_num_threads", had.append)
    monkeypatch.setattr(sources, "DEFAULT_THREADS", default)
    made, cell = parallel.NumpyToTorch(), ("torch.from_numpy(a).clone()", threads, "float32", 4096)
    if isinstance(found, str):
        with pytest.raises(NotImplementedError, match=f"^torch {found} here by itself$"):
            made.setup(*cell)
    else:
        made.setup(*cell)
        assert had == [found] and made.timeit_convert(*cell)[0] == cell[0]


def test_only_what_moves_bytes_and_enough_of_them():
    for family in (parallel.NumpyToTorch, parallel.TorchToNumpy, parallel.LayoutToTorch, parallel.LayoutToNumpy):
        expressions, *_, sizes = family.params
        assert min(sizes) >= parallel.FROM and expressions
        for expression in expressions:
            assert routes.find(expression, family.direction).memory_for("float32", "strided") != routes.ALIAS


SPREADING = """
import os, torch
torch.set_num_threads(2)
t = torch.empty({elements}, dtype=torch.{dtype})
b = torch.empty_like(t)
threads = len(os.listdir("/proc/self/task"))
{expression}
print(len(os.listdir("/proc/self/task")) - threads)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads in /proc/self/task, which Linux has")
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("expression", ["t.clone()", "b.copy_(t)", "t.half()"])
def test_torch_starts_threads_for_a_copy_above_32768_elements(expression, dtype):
    for elements in (contracts.PARALLEL - 1, contracts.PARALLEL):
        code = SPREADING.format(elements=elements, dtype=dtype, expression=expression)
        run = [sys.executable, "-c", code]
        started = subprocess.run(
            run, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "2"}
        )
        assert int(started.stdout) == (elements == contracts.PARALLEL)
    assert elements == 32_769


def test_every_core_is_probed_where_it_is(monkeypatch):
    """A thread of its own probes each core, and the slowest core counts. The measuring thread keeps its cores."""
    allowed, seen = os.sched_getaffinity(0), []

    def take():
        seen.append((threading.get_ident(), os.sched_getaffinity(0)))
        return len(seen) * 1e-5

    monkeypatch.setattr(probes.Cores, "take", staticmethod(take))
    cores = probes.Cores()
    assert cores() == pytest.approx(len(allowed) * 1e-5)
    assert [pinned for _, pinned in seen] == [{core} for core in sorted(allowed)]
    assert len({thread for thread, _ in seen} - {threading.get_ident()}) == len(allowed)
    assert os.sched_getaffinity(0) == allowed


# Seconds that threads have waited for a core, at the first look and at all later looks; NaN if unknown
@pytest.mark.parametrize("first, later, disturbed", [(0.0, 1.0, [0]), (math.nan, math.nan, [*range(timing.SAMPLES)])])
def test_a_thread_without_a_core_disturbs_the_sample(first, later, disturbed, monkeypatch, logged):
    """A sample is disturbed if threads waited for a twentieth of it, because one waiting thread stalls all others."""
    monkeypatch.setattr(probes, "Cores", lambda: lambda: 25e-6)
    looks = itertools.chain([first], itertools.repeat(later))
    monkeypatch.setattr(probes, "ready", lambda: next(looks))
    _, line = logged(on_all_cores=True, number=10)
    assert line["disturbed"] == disturbed and len(line["seconds"]) == timing.SAMPLES + (disturbed == [0])


def test_the_system_says_whether_threads_waited():
    before = probes.ready()
    if math.isnan(before):
        pytest.skip("this system does not say")
    assert 0 <= before <= probes.ready()


# --- advice -----------------------------------------------------------------------------------------------------------


def seconds(route, nbytes, several):
    """With one thread NumPy's copy is the fastest. torch's copies are twice as fast with several, from 64 KiB on."""
    spread = several and nbytes >= 64 * KIB and route != COPIED["expression"]
    return {COPIED["expression"]: 1.0, CLONE["expression"]: 1.3, TENSOR["expression"]: 1.6}[route] * (
        1e-6 + nbytes / (4e10 if spread else 2e10)
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of a machine on which torch uses four threads by default."""

    def alone(route, dtype, nbytes):
        return seconds(route, nbytes, several=False) if dtype == "float32" else ABSENT

    def several(route, threads, dtype, nbytes):
        return seconds(route, nbytes, several=True)

    promises, large = [COPIED, CLONE, TENSOR], [n for n in SIZES if n >= 256 * KIB]
    dtypes = ["float32", "float16", "int64"]
    one = every("conversion.NumpyToTorch.timeit_convert", alone, promises, dtype=dtypes, nbytes=SIZES)
    params = {"threads": ["all"], "dtype": ["float32"], "nbytes": large}
    own = every("parallel.NumpyToTorch.timeit_convert", several, promises, **params)
    records = made_up.glibc([one, own])
    records[0]["settings"]["torch_threads"] = 4
    return write(tmp_path_factory.mktemp("threads"), [one, own], records=records)


@pytest.fixture(scope="module")
def known(results):
    return load_machine(results, "box")


def test_the_answer_is_for_the_threads_that_somebody_has(known):
    """The heading of an answer names its number of threads. One thread copies 64 KiB, also if torch has four."""
    all_threads, one = "4 torch threads", "1 torch thread"
    asked = [("", MIB, all_threads, CLONE), ("4", MIB, all_threads, CLONE), ("1", MIB, one, COPIED)]
    for threads, nbytes, heading, fastest in [*asked, ("", 64 * KIB, all_threads, COPIED)]:
        said = words.answer_text(answer(Case("numpy", "torch", nbytes, memory="copy", threads=threads), known))
        assert f"; {heading}\n  1. `{fastest['expression']}`" in said


@pytest.mark.parametrize(
    ("dtype", "nbytes", "spread", "sizes"),
    [
        ("float32", 96 * KIB, False, (64 * KIB, 256 * KIB)),
        ("float16", 96 * KIB, True, (256 * KIB,)),
        ("float16", 64 * KIB, False, (64 * KIB,)),
        ("int64", 192 * KIB, False, (64 * KIB, 256 * KIB)),
        ("int64", 256 * KIB, False, (256 * KIB,)),
        ("int64", 256 * KIB + 8, True, (256 * KIB, MIB)),
    ],
)
def test_torch_spreads_a_number_of_elements_whatever_their_bytes(known, dtype, nbytes, spread, sizes):
    """Another dtype has the times that float32 has with as many threads. Torch uses several above 32,768 elements."""
    found = {row.route: row for row in answer(Case("numpy", "torch", nbytes, dtype, memory="copy"), known).ranked}
    clone, truth = found[CLONE["expression"]], seconds(CLONE["expression"], nbytes, spread)
    assert clone.sizes == sizes and clone.seconds == pytest.approx(truth, rel=1e-3)


def test_a_number_of_threads_that_nobody_measured(known):
    for threads in ("3", "0", "x"):
        with pytest.raises(NoAnswer) as raised:
            answer(Case("numpy", "torch", MIB, memory="copy", threads=threads), known)
        assert re.search(f"^--threads {threads}: .* 1, 4$", words.no_answer_text(raised.value))


def test_nothing_is_carried_across_where_torch_begins_to_spread(known):
    """torch uses several threads above 128 KiB of float32. Estimates below rest on figures of one thread, even at
    measured sizes above. Estimates above rest on figures of all threads."""
    for kib, how, near in ((100, INTERPOLATED, (64 * KIB, 256 * KIB)), (160, EXTRAPOLATED, (256 * KIB,))):
        found = answer(Case("numpy", "torch", kib * KIB, memory="copy"), known)
        figure = next(each for each in found.ranked if each.route == CLONE["expression"])
        assert (figure.how, figure.sizes) == (how, near)
        assert figure.seconds == pytest.approx(seconds(CLONE["expression"], kib * KIB, kib > 128), rel=0.25)
    alone = answer(Case("numpy", "torch", 100 * KIB, memory="copy", threads="1"), known).ranked[0]
    assert alone.sizes == (64 * KIB, 256 * KIB)


def test_a_page_answers_for_all_threads_and_names_what_one_prefers(results, snapshot):
    cells = cells_of(load(results))
    several, alone = (
        rows_per_answer(choices(cells), threads) for threads in (contracts.ALL_THREADS, contracts.ONE_THREAD)
    )
    box = answer_box(several[0], alone[0], 4)
    assert box.heading == "NumPy array to tensor, as a copy, 4 torch threads"
    assert [take.route for take in box.recommendations] == [COPIED["expression"], CLONE["expression"]]
    assert [show.to_plain(note) for note in box.notes] == snapshot


def test_where_one_thread_alone_was_measured_it_speaks_for_one_alone(tmp_path):
    bench = conversion({(CLONE["expression"], n): around(1e-6) for n in SIZES}, [CLONE])
    cells = cells_of(load(write(tmp_path, [bench])))
    assert with_threads(cells, contracts.ALL_THREADS).empty and len(with_threads(cells, contracts.ONE_THREAD)) == len(
        cells
    )


@pytest.mark.slow
def test_the_form_asks_for_threads(results, known, tmp_path, opened):
    """For both numbers of threads the form shows the same rows as scripts/advise.py."""
    page = (build(results, tmp_path) / "index.html").as_uri()
    with opened() as browser:
        browser.goto(page)
        offered = browser.locator("#choose select[name=threads] option").all_text_contents()
        assert offered == ["4, torch's default", "1"]
        for threads in ("", "1"):
            case = Case("numpy", "torch", MIB, memory="copy", threads=threads)
            browser.goto(address(page, case))
            assert answer(case, known).ranked[0].how == MEASURED
            assert browser.locator(SHOWN).all_inner_texts() == texts_of(case, known)[0]
        assert browser.complaints == []
