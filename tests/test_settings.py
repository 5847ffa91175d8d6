"""Settings of the environment: another process times them, those not in force fail, and large gains are advised."""

import os
import pstats
import sys
from functools import partial

import pytest
import resultfiles
from analysis import findings
from analysis.cells import cells_of
from analysis.costs import machine_answers
from analysis.needs import choices
from analysis.results import load
from conftest import build, possible, run
from pages import advice, show
from resultfiles import KIB, MIB, of_suite
from statements import benchmark

from benchmarks import routes, settings
from benchmarks.core import environment, timing
from benchmarks.core.environment import NONE, SETTINGS, Setting

CLONE = settings.Copies.params[0][0]
COPYING = environment.COPYING[1]
HUGE, KEEPING = "THP_MEM_ALLOC_ENABLE=1", "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1073741824"
SIZE = settings.USUAL


def needed(text):
    with possible():
        environment.require(text)


# Entries ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", SETTINGS)
def test_a_setting_is_what_stands_before_a_command(text):
    started = environment.started_with(text)
    assert all(started[name].startswith(value) for name, value in environment.variables(text).items())
    assert bool(environment.variables(text)) == (text != NONE)
    assert SETTINGS[text].package == "" or "LD_PRELOAD=" in text
    assert not SETTINGS[text].caution.endswith(".")


def test_no_other_setting_is_there_and_what_users_preload_is_kept(monkeypatch):
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "1")
    monkeypatch.setenv("LD_PRELOAD", "/theirs.so")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):  # torch reads the second where there is no first
        monkeypatch.setenv(name, "pinned_num_register_threads:4")
    started = environment.started_with("LD_PRELOAD=libjemalloc.so.2")
    assert not {"THP_MEM_ALLOC_ENABLE", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & set(started)
    assert started["LD_PRELOAD"] == "libjemalloc.so.2 /theirs.so"
    assert started["OMP_NUM_THREADS"] == "1"
    assert environment.started_with(NONE)["LD_PRELOAD"] == "/theirs.so"


def test_where_it_can_do_nothing_it_is_skipped(monkeypatch, tmp_path):
    needed(NONE)
    absent = "LD_PRELOAD=libnosuch.so.9"
    monkeypatch.setitem(SETTINGS, absent, Setting(str, package="libnosuch9"))
    with pytest.raises(NotImplementedError, match="^libnosuch.so.9 is not there: apt-get install libnosuch9$"):
        environment.require(absent)
    never = tmp_path / "enabled"
    never.write_text("always madvise [never]\n")
    monkeypatch.setattr(environment, "HUGE_PAGES", never)
    with pytest.raises(NotImplementedError, match="huge"):
        environment.require("NUMPY_MADVISE_HUGEPAGE=0")
    monkeypatch.setattr(environment.platform, "libc_ver", lambda: ("", ""))
    with pytest.raises(NotImplementedError, match="glibc"):
        environment.require(NONE)


# Processes ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def copies(log):
    """A function: a setting -> the benchmark of copies with it, set up until the end of the test."""
    allowed, every = os.sched_getaffinity(0), []

    def of(text):
        needed(text)
        every.append(benchmark(settings.Copies, CLONE, text, SIZE))
        assert not every[-1].do_setup()
        return every[-1]

    yield of
    for made in every:
        made.do_teardown()
    assert os.sched_getaffinity(0) == allowed and "torch" in sys.modules


@pytest.mark.slow
def test_a_setting_in_force_is_timed_elsewhere_between_probes_of_here(copies, log):
    made = copies(KEEPING)
    elsewhere, result = made.instance.timed_by, made.run(CLONE, KEEPING, SIZE)
    faults, kept = (elsewhere.ask(what) for what in ("page_faults", "kept"))
    elsewhere.process.kill()
    with pytest.raises(RuntimeError, match="-9"):
        elsewhere.timeit(1)
    assert len(result["samples"]) == timing.SAMPLES_LARGE and min(result["samples"]) > 1e-4
    (line,) = log()
    assert line["params"] == [repr(CLONE), repr(KEEPING), repr(SIZE)]
    assert all(len(line["probes"][kind]) > timing.SAMPLES_LARGE for kind in ("processor", "memory"))
    assert faults < environment.FEW, "the heap has the pages"
    assert 0.9 * SIZE < kept < 16 * SIZE


@pytest.mark.slow
def test_without_a_setting_pages_are_faulted_in_and_given_back(copies, monkeypatch):
    monkeypatch.setattr(settings, "HOLDERS", 2)
    made = copies(NONE).instance
    assert made.track_page_faults(CLONE, NONE, SIZE) >= environment.FEW
    first, kept = made.timed_by.process.pid, made.track_kept(CLONE, NONE, SIZE)["samples"]
    assert len(kept) == settings.HOLDERS and max(kept) < SIZE / 8 and made.timed_by.process.pid != first
    assert 0 <= made.track_huge_pages(CLONE, NONE, SIZE) <= 100


@pytest.mark.slow
def test_a_profile_is_of_the_statement_alone(copies, suite, tmp_path):
    """`asv profile` calls do_profile. A statement that another process runs is waited for."""
    here = suite["conversion.NumpyToTorch.timeit_convert"]
    here._current_params = (CLONE, "float32", 4096)
    assert not here.do_setup()
    for made, name, calls in ((here, "clone", 100), (copies(NONE), "readline", 1)):
        made.do_profile(str(tmp_path / name))
        counted = pstats.Stats(str(tmp_path / name)).stats.items()
        assert [count for (_, _, function), (count, *_) in counted if name in function] == [calls]


@pytest.mark.slow
def test_one_that_is_not_in_force_is_a_failure_and_no_figure(copies, log, monkeypatch):
    started_with = environment.started_with
    monkeypatch.setattr(environment, "started_with", lambda text: started_with(NONE))
    with pytest.raises(RuntimeError, match="64 MiB"):
        copies(KEEPING).run(CLONE, KEEPING, SIZE)
    assert KEEPING in log()[0]["failed"]


# Advice -------------------------------------------------------------------------------------------------------------


def bench(group, found, sizes=(SIZE,), method="timeit_convert"):
    """Return a benchmark of the family. found: setting -> seconds (per process or about), counted value, or SKIPPED."""
    route = getattr(settings, group).params[0][0]
    return of_suite(f"settings.{group}.{method}", {(route, text, n): found[text] for text in found for n in sizes})


fresh = partial(bench, "Copies")
OTHERS = [text for text in SETTINGS if text not in (NONE, *environment.ADVISED, *environment.PINNING)]
UNSURE = [40e-3, 15e-3, 33e-3, 12e-3], [20e-3, 11e-3, 9e-3, 15e-3]
KEPT = bench("Copies", {NONE: 0, KEEPING: [SIZE, 7 * SIZE, SIZE, 6 * SIZE]}, method="track_kept")
BATCHES = bench("Batches", {NONE: 33e-3, HUGE: 15e-3, KEEPING: 5e-3})
NEIGHBOURS = bench("Neighbours", {NONE: 24e-6, COPYING: 3e-6}, (64 * KIB,))
# Benchmarks, and the settings whose processes were noisy; the snapshot holds the advice
ADVISED = {
    "the one that gains most, with its price": ([fresh({NONE: 33e-3, HUGE: 10e-3, KEEPING: 4.5e-3}), KEPT], []),
    "the price that one process had, as counted before": (
        [fresh({NONE: 33e-3, KEEPING: 4.5e-3}), bench("Copies", {KEEPING: SIZE}, method="track_kept")],
        [],
    ),
    "of those that tie the one that touches least": ([fresh({NONE: 33e-3, HUGE: 10.1e-3, KEEPING: 10e-3})], []),
    "nothing where less than half is gained": ([fresh({NONE: 14e-3, HUGE: 10e-3})], []),
    "one where more than half is": ([fresh({NONE: 16e-3, HUGE: 10e-3})], []),
    "nothing that the processes do not show": ([fresh({NONE: UNSURE[0], HUGE: UNSURE[1]})], []),
    "nothing where the baseline is noisy": ([fresh({NONE: 33e-3, HUGE: 10e-3})], [NONE]),
    "another where the best is noisy, which is said": ([fresh({NONE: 33e-3, HUGE: 10e-3, KEEPING: 4e-3})], [KEEPING]),
    "nothing that is never advised": ([fresh({**dict.fromkeys(OTHERS, 1e-3), NONE: 33e-3})], []),
    "one of a copy between neighbours": ([NEIGHBOURS], []),
    "nothing without a baseline": ([fresh({NONE: resultfiles.SKIPPED, HUGE: 10e-3})], []),
    "one that routes have in common": ([fresh({NONE: 33e-3, HUGE: 10e-3, KEEPING: 10e-3}), BATCHES], []),
}


@pytest.mark.parametrize("what", ADVISED)
def test_the_setting_that_is_advised(what, tmp_path, snapshot):
    """Routes with the same best setting share one advice, with its cost and the line to paste."""
    benches, busy = ADVISED[what]
    results = load(resultfiles.write(tmp_path, benches))
    if busy:
        results.cells["quiet"] = [text not in busy for text in results.cells["setting"]]
    said = [advice.setting_box(each) for each in findings.setting_advice(results, cells_of(results))]
    assert [show.to_plain(line) for each in said for line in (each.title, *each.sentences, *each.notes)] == snapshot
    assert len(OTHERS) == 1


def test_what_a_setting_gains_is_said_of_all_routes_that_copy_alike(tmp_path):
    """One way to copy was timed. NumPy's others use the same memmove, so between neighbours they gain as much."""
    results = load(resultfiles.write(tmp_path, [NEIGHBOURS]))
    cells = cells_of(results)
    (gain,) = machine_answers(results, "box", cells, choices(cells)).effects
    assert gain.setting == COPYING and gain.factor == pytest.approx(8, rel=0.01)
    alike = ("np.copyto(b.numpy(), a)", "torch.from_numpy(a.copy())", "torch.from_numpy(a).clone()")
    assert [gain.applies_to(routes.find(each, routes.NUMPY_TO_TORCH)) for each in alike] == [True, True, False]


APART = {("apart", 4 * KIB): 1.6e-6, ("apart", 64 * KIB): 3e-6}
# Seconds of the same copy between neighbours; the snapshot holds the text about it
NEAR = {
    "where it costs most": {("neighbours", 4 * KIB): 2.9e-6, ("neighbours", 64 * KIB): 24e-6},
    "nothing where it costs no more": {("neighbours", 64 * KIB): 3.1e-6},
    "nothing that the processes do not show": {("neighbours", 64 * KIB): [3e-6, 24e-6, 3e-6, 3e-6]},
}


@pytest.mark.parametrize("what", NEAR)
def test_a_copy_between_neighbours_is_told_of(what, tmp_path, snapshot):
    """The text names the size with the highest cost and the setting that avoids it, if the processes show a cost."""
    route, cells = "np.copyto(b.numpy(), a)", APART | NEAR[what]
    placed = of_suite("placement.NumpyToTorch.timeit_convert", {(route, *key): cells[key] for key in cells})
    found = findings.worst_neighbour_costs(cells_of(load(resultfiles.write(tmp_path, [placed]))))
    said = [advice.neighbours_box([each]) for each in found]
    assert [show.to_plain(line) for each in said for line in (*each.lines, *each.notes)] == snapshot


@pytest.mark.slow
def test_a_threshold_is_in_force_or_said_not_to_be(tmp_path):
    needed(COPYING)
    code = f"from benchmarks.core import environment; print(environment.SETTINGS[{COPYING!r}].missed())"
    for text, missed in ((COPYING, ""), (NONE, "glibc.cpu.x86_rep_movsb_threshold is 0x")):
        done = run(sys.executable, "-c", code, home=tmp_path, **environment.started_with(text))
        assert done.stdout.startswith(missed) and bool(done.stdout.strip()) == bool(missed), done


def test_the_section_has_settings_down_and_sizes_across(tmp_path, snapshot):
    times = {NONE: 33e-3, HUGE: 10e-3, "LD_PRELOAD=libjemalloc.so.2": resultfiles.SKIPPED}
    counted = bench("Copies", {NONE: 16384.0, HUGE: 32.0}, (16 * MIB, SIZE), "track_page_faults")
    kept = bench("Copies", {NONE: 0, HUGE: 2 * MIB}, method="track_kept")
    root = resultfiles.write(tmp_path / "results", [bench("Copies", times, (16 * MIB, SIZE)), counted, kept])
    page = (build(root, tmp_path / "out") / "README.md").read_text(encoding="utf-8")
    assert page.partition("## Settings of the environment")[2].partition("\n## ")[0].splitlines() == snapshot
