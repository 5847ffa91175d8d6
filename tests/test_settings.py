"""Settings of the environment: in force or a failure, timed elsewhere and judged here, advised where they gain much."""

import os
import sys

import pytest
import resultfiles
from analysis import findings as known
from analysis.cells import cells_of
from analysis.choices import choices, known_of
from analysis.findings import slowed
from analysis.results import load
from conftest import run
from pages import families, show, tables
from pages.advice import neighbours
from pages.advice import setting as box
from resultfiles import KIB, MIB, Bench, around
from test_statement import benchmark, log  # noqa: F401  the last is a fixture

from benchmarks import environment, placement, routes, settings, timing
from benchmarks.environment import NONE, SETTINGS, Setting

CLONE = settings.Copies.params[0][0]
COPYING = environment.COPYING[1]
HUGE, KEEPING = "THP_MEM_ALLOC_ENABLE=1", "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1073741824"
SIZE = settings.USUAL


def needed(text):
    try:
        environment.require(text)
    except NotImplementedError as reason:
        pytest.skip(str(reason))


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
    started = environment.started_with("LD_PRELOAD=libjemalloc.so.2")
    assert "THP_MEM_ALLOC_ENABLE" not in started
    assert started["LD_PRELOAD"] == "libjemalloc.so.2 /theirs.so"
    assert started["OMP_NUM_THREADS"] == "1"
    assert environment.started_with(NONE)["LD_PRELOAD"] == "/theirs.so"


def test_where_it_can_do_nothing_it_is_skipped(monkeypatch, tmp_path):
    needed(NONE)
    absent = "LD_PRELOAD=libnosuch.so.9"
    monkeypatch.setitem(SETTINGS, absent, Setting(str, package="libnosuch9"))
    with pytest.raises(NotImplementedError) as skipped:
        environment.require(absent)
    assert str(skipped.value) == "libnosuch.so.9 is not there: apt-get install libnosuch9"
    never = tmp_path / "enabled"
    never.write_text("always madvise [never]\n")
    monkeypatch.setattr(environment, "HUGE_PAGES", never)
    with pytest.raises(NotImplementedError, match="huge"):
        environment.require("NUMPY_MADVISE_HUGEPAGE=0")
    monkeypatch.setattr(environment.platform, "libc_ver", lambda: ("", ""))
    with pytest.raises(NotImplementedError, match="glibc"):
        environment.require(NONE)


# Processes ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_setting_in_force_is_timed_elsewhere_between_probes_of_here(log):  # noqa: F811
    needed(KEEPING)
    allowed = os.sched_getaffinity(0)
    made = benchmark(settings.Copies, CLONE, KEEPING, SIZE)
    assert not made.do_setup()
    elsewhere = made.instance.timed_by
    try:
        result = made.run(CLONE, KEEPING, SIZE)
        faults, kept = (elsewhere.ask(what) for what in ("page_faults", "kept"))
        elsewhere.process.kill()
        with pytest.raises(RuntimeError, match="-9"):
            elsewhere.timeit(1)
    finally:
        made.do_teardown()
    assert len(result["samples"]) == timing.SAMPLES_LARGE and min(result["samples"]) > 1e-4
    (line,) = log()
    assert line["params"] == [repr(CLONE), repr(KEEPING), repr(SIZE)]
    assert all(len(line["probes"][kind]) > timing.SAMPLES_LARGE for kind in ("processor", "memory"))
    assert faults < environment.FEW, "the heap has the pages"
    assert 0.9 * SIZE < kept < 16 * SIZE
    assert os.sched_getaffinity(0) == allowed and "torch" in sys.modules


@pytest.mark.slow
def test_without_a_setting_pages_are_faulted_in_and_given_back():
    needed(NONE)
    made = settings.Copies()
    made.setup(CLONE, NONE, SIZE)
    try:
        assert made.track_page_faults(CLONE, NONE, SIZE) >= environment.FEW
        assert made.track_kept(CLONE, NONE, SIZE) < SIZE / 8
        assert 0 <= made.track_huge_pages(CLONE, NONE, SIZE) <= 100
    finally:
        made.teardown(CLONE, NONE, SIZE)


@pytest.mark.slow
def test_one_that_is_not_in_force_is_a_failure_and_no_figure(log, monkeypatch):  # noqa: F811
    needed(KEEPING)
    started_with = environment.started_with
    monkeypatch.setattr(environment, "started_with", lambda text: started_with(NONE))
    made = benchmark(settings.Copies, CLONE, KEEPING, SIZE)
    made.do_setup()
    with pytest.raises(RuntimeError, match="64 MiB"):
        made.run(CLONE, KEEPING, SIZE)
    made.do_teardown()
    assert KEEPING in log()[0]["failed"]


# Advice -------------------------------------------------------------------------------------------------------------


def bench(group, seconds, sizes=(SIZE,), method="timeit_convert", unit="seconds"):
    """A benchmark of the family. seconds: setting -> of each process, or SKIPPED."""
    route = getattr(settings, group).params[0][0]
    params = {"route": [route], "setting": list(SETTINGS), "nbytes": list(sizes)}
    cells = {(route, text, n): value for text, value in seconds.items() for n in sizes}
    contracts = [each.contract() for each in routes.select(routes.CONVERSION, routes.NUMPY_TO_TORCH)]
    return Bench(f"settings.{group}.{method}", params, cells, contracts, unit=unit)


def advised(tmp_path, *benches, busy=()):
    results = load(resultfiles.write(tmp_path, benches))
    if busy:
        results.cells["quiet"] = [text not in busy for text in results.cells["setting"]]
    return known.advised(results, cells_of(results))


def test_the_setting_that_gains_most_is_advised_with_its_price_and_the_line_to_paste(tmp_path, snapshot):
    times = {NONE: around(33e-3), HUGE: around(10e-3), KEEPING: around(4.5e-3)}
    price = bench("Copies", {NONE: 0, KEEPING: SIZE}, method="track_kept", unit="bytes kept")
    (found,) = advised(tmp_path, bench("Copies", times), price)
    assert found.setting == KEEPING and not found.ties and not found.busy
    said = box(found)
    assert [*map(show.to_plain, (said.title, *said.said, *said.notes))] == snapshot


def test_of_those_that_tie_the_one_that_touches_least(tmp_path):
    times = {NONE: around(33e-3), KEEPING: around(10e-3), HUGE: around(10.1e-3)}
    (found,) = advised(tmp_path, bench("Copies", times))
    assert (found.setting, found.ties) == (HUGE, (KEEPING,))
    assert "keeps" not in show.to_plain(box(found).said[0]), "its price was not counted"


OTHERS = [text for text in SETTINGS if text not in environment.ADVISED and text != NONE]
# Seconds by setting, those whose processes were noisy -> what is advised
DECIDED = {
    "less than half is gained": ({NONE: around(14e-3), HUGE: around(10e-3)}, (), []),
    "more than half": ({NONE: around(16e-3), HUGE: around(10e-3)}, (), [HUGE]),
    "the processes do not show it": ({NONE: [40e-3, 15e-3, 33e-3, 12e-3], HUGE: [20e-3, 11e-3, 9e-3, 15e-3]}, (), []),
    "the baseline is noisy": ({NONE: around(33e-3), HUGE: around(10e-3)}, [NONE], []),
    "the best is noisy": ({NONE: around(33e-3), HUGE: around(10e-3), KEEPING: around(4e-3)}, [KEEPING], [HUGE]),
    "no huge pages": ({**dict.fromkeys(OTHERS, around(1e-3)), NONE: around(33e-3)}, (), []),
    "no baseline": ({NONE: resultfiles.SKIPPED, HUGE: around(10e-3)}, (), []),
}


@pytest.mark.parametrize("what", DECIDED)
def test_a_setting_is_advised_where_its_gain_is_decided(what, tmp_path):
    times, busy, wanted = DECIDED[what]
    found = advised(tmp_path, bench("Copies", times), busy=busy)
    assert [each.setting for each in found] == wanted and len(OTHERS) == 1
    assert all(("noisy" in " ".join(box(each).notes)) == bool(busy) for each in found)


def test_routes_that_have_a_setting_in_common_get_one(tmp_path):
    copies = {NONE: around(33e-3), HUGE: around(10e-3), KEEPING: around(10e-3)}
    batches = {NONE: around(33e-3), HUGE: around(15e-3), KEEPING: around(5e-3)}
    (found,) = advised(tmp_path, bench("Copies", copies), bench("Batches", batches))
    assert found.setting == KEEPING and [gain.cell.family for gain in found.gains] == ["settings"] * 2
    assert [round(gain.factor, 1) for gain in found.gains] == [3.3, 6.6]
    assert box(found).title == "Fresh memory, 64 MiB: environment variables to set before python"


def test_what_a_setting_gains_is_said_of_all_routes_that_copy_alike(tmp_path):
    """One way to copy was timed; what NumPy's others cost between neighbours is decided by the same memmove."""
    times = {NONE: around(24e-6), COPYING: around(3e-6)}
    results = load(resultfiles.write(tmp_path, [bench("Neighbours", times, (64 * KIB,))]))
    cells = cells_of(results)
    (gain,) = known_of(results, "box", cells, choices(cells)).effects
    assert gain.setting == COPYING and gain.factor == pytest.approx(8, rel=0.01)
    assert gain.routes[0] == gain.route == "np.copyto(b.numpy(), a)"
    assert "torch.from_numpy(a.copy())" in gain.routes and "torch.from_numpy(a).clone()" not in gain.routes
    (found,) = known.advised(results, cells_of(results))
    assert box(found).title == "A copy between neighbours, 64 KiB: environment variables to set before python"


def placed(seconds):
    """The family of placement, one route at two sizes. seconds: (lying, nbytes) -> of each process."""
    route, lying, sizes = "np.copyto(b.numpy(), a)", list(placement.DISTANCES), [4 * KIB, 64 * KIB]
    params = {"route": [route], "lying": lying, "nbytes": sizes}
    return Bench(
        "placement.NumpyToTorch.timeit_convert",
        params,
        {(route, *key): value for key, value in seconds.items()},
        [routes.find(route, routes.NUMPY_TO_TORCH).contract()],
    )


def test_a_copy_between_neighbours_is_told_of_where_it_costs_most(tmp_path):
    times = {("apart", 4 * KIB): around(1.6e-6), ("neighbours", 4 * KIB): around(2.9e-6)}
    times |= {("apart", 64 * KIB): around(3e-6), ("neighbours", 64 * KIB): around(24e-6)}
    results = load(resultfiles.write(tmp_path, [placed(times)]))
    (found,) = slowed(cells_of(results))
    assert found.cell.nbytes == found.apart.nbytes == 64 * KIB and found.factor == pytest.approx(8, rel=0.01)
    said = neighbours([found])
    assert show.to_plain(said.lines[0]) == (
        "`np.copyto(b.numpy(), a)` takes 24.0 µs at 64 KiB, 8.00× as long as between arrays that lie apart (3.00 µs)"
    )
    assert COPYING in said.notes[0]


@pytest.mark.parametrize("near", [around(3.1e-6), [3e-6, 24e-6, 3e-6, 3e-6]])
def test_of_neighbours_nothing_is_said_that_the_processes_do_not_show(tmp_path, near):
    times = {("apart", 64 * KIB): around(3e-6), ("neighbours", 64 * KIB): near}
    assert slowed(cells_of(load(resultfiles.write(tmp_path, [placed(times)])))) == []


@pytest.mark.slow
def test_a_threshold_is_in_force_or_said_not_to_be(tmp_path):
    needed(COPYING)
    code = f"from benchmarks import environment; print(environment.SETTINGS[{COPYING!r}].missed())"
    for text, missed in ((COPYING, ""), (NONE, "glibc.cpu.x86_rep_movsb_threshold is 0x")):
        done = run(sys.executable, "-c", code, home=tmp_path, **environment.started_with(text))
        assert done.stdout.startswith(missed) and bool(done.stdout.strip()) == bool(missed), done


def test_the_section_has_settings_down_and_sizes_across(tmp_path):
    times = {NONE: around(33e-3), HUGE: around(10e-3), "LD_PRELOAD=libjemalloc.so.2": resultfiles.SKIPPED}
    counted = bench("Copies", {NONE: 16384.0, HUGE: 32.0}, (16 * MIB, SIZE), "track_page_faults", "pages")
    results = load(resultfiles.write(tmp_path, [bench("Copies", times, (16 * MIB, SIZE)), counted]))
    (section,) = families.sections(results, cells_of(results), tables.Missing(results))
    timed, pages = section.tables
    assert timed.columns == pages.columns == ("setting", "16 MiB", "64 MiB")
    assert timed.rows == ((show.code(HUGE), *[["10.0 ms", "without 33.0 ms: 0.303× as long"]] * 2),)
    kept = bench("Copies", {NONE: 0, HUGE: 2 * MIB}, method="track_kept", unit="bytes kept")
    results = load(resultfiles.write(tmp_path / "kept", [kept]))
    (section,) = families.sections(results, cells_of(results), tables.Missing(results))
    assert [row[1] for row in section.tables[0].rows] == ["0 B kept", "2 MiB kept"]
    assert pages.rows[0] == (show.code(NONE), "16,384 pages", "16,384 pages")
    assert show.code(CLONE) in timed.title
