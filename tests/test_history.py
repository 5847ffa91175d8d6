"""Histories: which release changed what, by how much, and that noise, drift and repeats do not look like releases."""

import io
import math
import re
import warnings
from dataclasses import replace
from types import SimpleNamespace

import noise
import numpy as np
import pandas as pd
import pytest
import report
import resultfiles
from analysis import changes, findings, history, sessions
from analysis.results import load
from packaging.version import Version
from pages import history_figure as figure
from pages import history_page, history_words, show
from resultfiles import SKIPPED, Bench, contract, conversion, memcpy
from store.files import MEASUREMENTS, measurements_text, read_measurements
from store.records import UNKNOWN
from toolchains import ledger

pytestmark = pytest.mark.slow  # most build a history and its page

KIB = 1024
ROUTES = [f"route{number}(a)" for number in range(12)]
SERIES = ledger.series("torch")[:12]
HOUR = 3600


def logs_of(seed, releases, cells=12, **options):
    """Log seconds of (releases, cells, processes): quiet noise around one microsecond."""
    rng = np.random.default_rng(seed)
    return math.log(1e-6) + np.stack([noise.processes(rng, cells, 0.01, 0.01, **options) for _ in range(releases)])


def started(seconds):
    return f"2026-11-01T{int(seconds // HOUR):02d}:{int(seconds % HOUR // 60):02d}:00+00:00"


def record_of(toolchain, benches, at, **changes):
    made = {"tag": toolchain.tag, "torch": toolchain.torch, "numpy": toolchain.numpy}
    changes = {"rounds": 4, "started": started(at), "seconds": 120.0, "command": "python scripts/track.py", **changes}
    return resultfiles.record(benches, toolchain=made, **changes)


def write(root, logs, toolchains=SERIES, routes=ROUTES, again=None, extra=(), order=None, skipped=(), changes=None):
    """Results of ``toolchains``: logs is (releases, cells, processes).

    again    (cells, processes) of the first toolchain's second visit, an hour after the last
    order    places of the releases in the order they were measured, ten minutes apart
    extra    a function of the release's place that gives more benchmarks
    skipped  (place, route): cells that a release has not
    """
    contracts = [contract(route, "copy") for route in routes]
    for place, toolchain in enumerate(toolchains):
        at = 600 * (list(order).index(place) if order is not None else place)
        values = {(route, 4 * KIB): list(np.exp(logs[place, k])) for k, route in enumerate(routes)}
        if again is not None and place == 0:
            values = {key: value + list(np.exp(again[k])) for k, (key, value) in enumerate(values.items())}
        values |= {(route, 4 * KIB): SKIPPED for where, route in skipped if where == place}
        visits = 2 if again is not None and place == 0 else 1
        benches = [conversion(values, contracts), memcpy({4 * KIB: [1e-7] * 4 * visits})]
        benches += list(extra(place)) if extra else []
        records = [record_of(toolchain, benches, at)]
        if again is not None and place == 0:
            records.append(record_of(toolchain, benches, 600 * len(toolchains) + HOUR, drift={"cells": 1}))
        resultfiles.write(root, benches, records=records, commit=toolchain.commit)
    return root


def history_in(root, package="torch"):
    return history.history_of(load(root, "box"), package)


def found(made):
    """Route -> its confirmed breaks, (version, verdict, ratio)."""
    breaks = {}
    for series, one in made.breaks:
        breaks.setdefault(series.names["route"], []).append((one.at.version, one.verdict, one.ratio))
    return {route: sorted(own, key=lambda item: Version(item[0])) for route, own in breaks.items()}


def test_steps_and_dips_are_found_at_their_release(tmp_path):
    logs = logs_of(1, len(SERIES))
    logs[5:, 2] += math.log(1.25)
    logs[3:, 4] -= math.log(2)
    logs[8:, 4] += math.log(1.5)
    logs[6, 7] += math.log(1.4)
    breaks = found(history_in(write(tmp_path, logs)))
    assert set(breaks) == {ROUTES[2], ROUTES[4], ROUTES[7]}
    versions = [toolchain.version for toolchain in SERIES]
    assert [one[:2] for one in breaks[ROUTES[2]]] == [(versions[5], "slower")]
    assert breaks[ROUTES[2]][0][2] == pytest.approx(1.25, rel=0.02)
    assert [one[:2] for one in breaks[ROUTES[4]]] == [(versions[3], "faster"), (versions[8], "slower")]
    assert [one[2] for one in breaks[ROUTES[4]]] == pytest.approx([0.5, 1.5], rel=0.02)
    assert [one[:2] for one in breaks[ROUTES[7]]] == [(versions[6], "slower"), (versions[7], "faster")]


def test_full_speed_of_each_visit_is_taken_out_by_its_pulses(tmp_path):
    """A machine that holds another level at each visit: as measured the releases differ, and no release did that."""
    shifts = np.random.default_rng(8).normal(0, 0.03, len(SERIES))
    logs = logs_of(9, len(SERIES)) + shifts[:, None, None]
    root = write(tmp_path, logs)
    without = history_in(root)
    for place, toolchain in enumerate(SERIES):
        values = {(route, 4 * KIB): list(np.exp(logs[place, k])) for k, route in enumerate(ROUTES)}
        bench = conversion(values, [contract(route, "copy") for route in ROUTES])
        by = float(np.exp(shifts[place]))
        resultfiles.probed(root, bench, commit=toolchain.commit, clock=lambda key, number, by=by: by)
    made = history_in(root)
    for series, other in zip(made.series, without.series):
        assert series.raw.tolist() == pytest.approx(other.raw.tolist()), "what was measured is shown as it was"
    spread, before = (np.median([np.std(series.values) for series in each.series]) for each in (made, without))
    assert spread < 0.012 and before > 0.02
    assert np.median([series.errors for series in made.series]) < 0.7 * np.median([s.errors for s in without.series])


def test_intervals_hold_the_planted_change(tmp_path):
    routes = [f"route{number}(a)" for number in range(200)]
    logs = logs_of(2, len(SERIES), len(routes))
    logs[6:] += math.log(1.3)
    made = history_in(write(tmp_path, logs, routes=routes))
    own = [one for _, one in made.breaks if one.at.version == SERIES[6].version]
    assert len(own) >= 195
    held = np.mean([one.low <= 1.3 <= one.high for one in own])
    assert held >= 0.93, held


def test_noise_is_no_news(tmp_path):
    """Series that do not change, with the heavy tails of a small virtual machine and releases that share 2 %."""
    routes = [f"route{number}(a)" for number in range(400)]
    rng = np.random.default_rng(3)
    logs = logs_of(3, len(SERIES), len(routes)) + rng.normal(0, 0.02, (len(SERIES), 1, 1))
    made = history_in(write(tmp_path, logs, routes=routes))
    assert len(made.series) == 400
    assert len(made.breaks) <= 2


def test_drift_is_taken_out(tmp_path):
    """A machine that gets 12 % slower over the hours: measured in order of release, it would look like a release."""
    logs = logs_of(4, len(SERIES))
    hours = np.arange(len(SERIES)) * 600 / HOUR
    end = (600 * len(SERIES) + HOUR) / HOUR
    slope = math.log(1.12) / end
    drifted = logs + (slope * hours)[:, None, None]
    again = logs_of(5, 1)[0] + slope * end
    made = history_in(write(tmp_path / "with", drifted, again=again))
    (repeat,) = made.repeats
    assert repeat.median == pytest.approx(1.12, rel=0.01) and repeat.hours == pytest.approx(end)
    assert repeat.cells == len(ROUTES) and repeat.controls == 1.0
    levels = np.array([series.values for series in made.series])
    assert np.abs(levels.mean(axis=0) - math.log(1e-6)).max() < 0.02
    assert not made.breaks
    without = history_in(write(tmp_path / "without", drifted))
    assert np.ptp(np.array([series.values for series in without.series]).mean(axis=0)) > 0.05 and not without.repeats


def test_a_release_that_came_later_is_freed_of_what_the_machine_did_since(tmp_path):
    """As track.py --new measures it: the release before it again, in a visit beside its first, then the new one."""
    logs, slower, later = logs_of(18, len(SERIES)), math.log(1.2), 10 * HOUR
    root = write(tmp_path, logs)
    contracts = [contract(route, "copy") for route in ROUTES]

    def file(place, every, moments):
        values = {(route, 4 * KIB): list(np.exp(every[k])) for k, route in enumerate(ROUTES)}
        benches = [conversion(values, contracts), memcpy({4 * KIB: [1e-7] * len(every[0])})]
        drifts = [{}, *([{"drift": {"cells": 1}}] * (len(moments) - 1))]
        records = [record_of(SERIES[place], benches, at, **drift) for at, drift in zip(moments, drifts)]
        resultfiles.write(root, benches, records=records, commit=SERIES[place].commit)

    visits = [logs[-2], logs_of(19, 1)[0] + slower, logs_of(20, 1)[0] + slower]
    file(-2, np.concatenate(visits, axis=1), [600 * (len(SERIES) - 2), later, later + 1200])
    file(-1, logs[-1] + slower, [later + 600])
    made = history_in(root)
    levels = np.array([series.values for series in made.series]).mean(axis=0)
    assert np.abs(levels - math.log(1e-6)).max() < 0.03 and not made.breaks
    assert [round(repeat.median, 1) for repeat in made.repeats] == [1.2, 1.0]


@pytest.mark.parametrize("both", [False, True])
def test_what_releases_share_is_no_error_of_theirs(tmp_path, both):
    """All cells of a release of torch are 2 % off: its doing, unless numpy's releases, on that machine, are so, too."""
    rng = np.random.default_rng(5)

    def shared():
        return rng.normal(0, 0.02, (len(SERIES), 1, 1))

    root = write(tmp_path, logs_of(12, len(SERIES)) + shared())
    numpy = ledger.series("numpy")[:8]
    write(root, logs_of(13, len(numpy)) + (shared()[: len(numpy)] if both else 0.0), numpy)
    made = history_in(root)
    errors, noise = (np.median([getattr(series, name) for series in made.series]) for name in ("errors", "noise"))
    assert noise > 0.017, "a level has to stand out from it all the same"
    assert errors > 0.02 if both else errors < 0.016, "0.014 are what sessions differ by where nothing was repeated"
    table = pd.read_csv(io.StringIO(history_page.csv_of([made])))
    half = np.log(table["high95"] / table["low95"]) / 2
    assert half.median() == pytest.approx(1.96 * errors, rel=0.1)


def test_small_changes_are_told_where_something_was_measured_twice(tmp_path):
    """A route whose every release differs: without a repeat that may be what visits differ by, and nothing is told."""
    logs = logs_of(14, len(SERIES))
    logs[:, 2] += np.random.default_rng(3).normal(0, 0.06, len(SERIES))[:, None]
    blind = found(history_in(write(tmp_path / "once", logs)))
    told = found(history_in(write(tmp_path / "twice", logs, again=logs[0])))
    assert set(blind) == set() and set(told) == {ROUTES[2]} and len(told[ROUTES[2]]) >= 3


def test_what_sessions_differ_by_is_learnt_from_repeats(tmp_path):
    logs = logs_of(6, len(SERIES))
    again = logs_of(7, 1)[0] + np.random.default_rng(8).normal(0, 0.12, len(ROUTES))[:, None]
    quiet = history_in(write(tmp_path / "quiet", logs, again=logs_of(7, 1)[0]))
    loud = history_in(write(tmp_path / "loud", logs, again=again))
    assert quiet.session_sd["copy"] == pytest.approx(0.01 / math.sqrt(2)), "an effect is of two points"
    assert loud.session_sd["copy"] > 0.05
    assert sessions.sessions_in(tmp_path / "loud", "box")["copy"] == pytest.approx(
        2 * loud.session_sd["copy"] ** 2, rel=0.5
    )
    assert sessions.sessions_in(write(tmp_path / "once", logs), "box") == {}
    assert np.mean([s.noise for s in loud.series]) > 2 * np.mean([s.noise for s in quiet.series])


def test_the_second_visit_is_no_part_of_the_first(tmp_path):
    logs = logs_of(9, len(SERIES))
    made = history_in(write(tmp_path, logs, again=logs_of(9, 1)[0] + math.log(3)))
    assert {float(series.processes[0]) for series in made.series} == {4.0}
    assert made.series[0].raw[0] == pytest.approx(logs[0, 0].mean())


def test_where_the_histories_cross_a_toolchain_is_measured_twice(tmp_path):
    cross = next(toolchain for toolchain in ledger.history("torch") if toolchain.version == "2.13.0")
    torch = [ledger.history("torch")[0], cross]
    same = next(toolchain for toolchain in ledger.history("numpy") if toolchain.version == cross.numpy)
    numpy = [same, ledger.history("numpy")[-1]]
    logs = logs_of(10, 2)
    root = write(tmp_path, logs, torch)
    write(root, logs + math.log(1.1), numpy)
    for package in ("torch", "numpy"):
        (repeat,) = history_in(root, package).repeats
        assert {repeat.sooner.name, repeat.later.name} == {"torch 2.13.0", f"numpy {cross.numpy}"}
    assert sessions.packages(load(root, "box")) == ["torch", "numpy"]


def test_figures_of_another_version_of_a_benchmark_are_left_out(tmp_path):
    root = write(tmp_path, logs_of(11, len(SERIES)))
    (path,) = (root / "box").glob(f"{SERIES[0].commit[:8]}*{MEASUREMENTS}")
    path.write_bytes(measurements_text({**line, "version": "v0"} for line in read_measurements(path)))
    assert {len(series.releases) for series in history_in(root).series} == {len(SERIES) - 1}


def test_what_appeared_and_what_went(tmp_path):
    skipped = [(k, ROUTES[1]) for k in range(4)] + [(k, ROUTES[3]) for k in range(9, len(SERIES))]
    made = history_in(write(tmp_path, logs_of(12, len(SERIES)), skipped=skipped))
    new, gone = made.appearances
    assert (new.at.version, new.gained, new.routes, new.dtypes) == (SERIES[4].version, True, (ROUTES[1],), ())
    assert (gone.at.version, gone.gained, gone.routes) == (SERIES[9].version, False, (ROUTES[3],))
    assert new.reason == "the reason" and new.direction == "numpy→torch"
    series = {one.names["route"]: one for one in made.series}
    assert series[ROUTES[1]].releases[0].version == SERIES[4].version


def meanings(place):
    """Memory, dtype and grad that one release each changes."""
    params = {"route": ROUTES[:2], "dtype": ["float16"]}
    cells = {(ROUTES[0], "float16"): 1 if place < 3 else 0, (ROUTES[1], "float16"): 0}
    dtypes = {(ROUTES[0], "float16"): 1, (ROUTES[1], "float16"): 1 if place < 5 else 0}
    yield Bench("semantics.NumpyToTorch.track_alias", params, cells, unit="1: shares memory")
    names = {"stands_for": ["float16", "float32"]}
    yield Bench("semantics.NumpyToTorch.track_dtype", params, dtypes, unit="a place", declared=names)
    taken = {("t.numpy()",): int(place >= 7)}
    yield Bench("semantics.RequiresGrad.track_taken", {"route": ["t.numpy()"]}, taken, unit="1: taken")


def test_what_a_route_means(tmp_path):
    made = history_in(write(tmp_path, logs_of(13, len(SERIES)), extra=meanings))
    seen = [(one.at.version, one.route, one.what, one.old, one.new, one.dtypes) for one in made.semantics]
    assert seen == [
        (SERIES[3].version, ROUTES[0], findings.MEMORY, True, False, ("float16",)),
        (SERIES[5].version, ROUTES[1], findings.DTYPE, "float32", "float16", ("float16",)),
        (SERIES[7].version, "t.numpy()", findings.TAKEN, False, True, ()),
    ]
    assert [row[2:4] for row in history_words.meaning(made).rows] == [
        ("memory", "alias → copy"),
        ("dtype of the result", "float32 → float16"),
        ("tensor that requires grad", "refused → taken"),
    ]


@pytest.mark.parametrize("count", [2, 3])
def test_few_releases_give_no_verdict_and_no_reassurance(tmp_path, count):
    logs = logs_of(20, count)
    logs[1:] += math.log(3)
    made = history_in(write(tmp_path, logs, SERIES[:count]))
    assert not made.breaks and made.shuffled == ()
    whole, line = history_words.head(made, history_words.changes(made))
    told = show.to_plain(line)
    assert (
        told.startswith(f"{count} releases are too few")
        and f"compare.py {SERIES[0].tag} {SERIES[count - 1].tag}" in told
    )
    assert "12 more than 1.05× slower; the median cell takes " in show.to_plain(whole)


def test_four_releases_are_enough_for_a_large_change(tmp_path):
    logs = logs_of(21, 4)
    logs[2:, 5] += math.log(2)
    assert list(found(history_in(write(tmp_path, logs, SERIES[:4])))) == [ROUTES[5]]


def test_too_few_processes_give_no_verdict(tmp_path):
    logs = logs_of(22, len(SERIES), count=3)
    logs[5:, 2] += math.log(2)
    made = history_in(write(tmp_path, logs))
    (broken,) = (series for series in made.series if series.breaks)
    assert broken.names["route"] == ROUTES[2] and broken.breaks[0].verdict == "inconclusive" and not made.breaks


def test_what_a_visit_s_cells_share_is_no_release(tmp_path):
    """A machine that is 3 % faster or slower from visit to visit: every cell shows it, and no release is blamed."""
    routes = [f"route{number}(a)" for number in range(200)]
    logs = logs_of(23, len(SERIES), len(routes))
    rng = np.random.default_rng(24)
    logs += rng.normal(0, 0.03, len(SERIES))[:, None, None]
    made = history_in(write(tmp_path, logs, routes=routes))
    assert len(made.breaks) <= 4, [(one.at.version, one.ratio) for _, one in made.breaks]
    assert len(made.shuffled) == changes.SHUFFLES and np.mean(made.shuffled) <= 4


# --- the page ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results to be read: a step, a second visit, a route that means something else, and a release that failed."""
    logs = logs_of(14, len(SERIES))
    logs[5:, 2] += math.log(1.4)
    root = tmp_path_factory.mktemp("history") / "results"
    write(root, logs, again=logs_of(15, 1)[0], extra=meanings, skipped=[(0, ROUTES[1])])
    failed = next(toolchain for toolchain in ledger.history("torch") if toolchain.version == "2.15.0")
    benches = [conversion({(ROUTES[0], 4 * KIB): None}, [contract(route, "copy") for route in ROUTES])]
    record = record_of(failed, benches, 0, failed="No matching <distribution>")
    described = (root / "benchmarks.json").read_text()
    resultfiles.write(root, benches, records=[record], commit=failed.commit)
    (root / "benchmarks.json").write_text(described)
    return root


def build(results, output):
    assert report.main(["--results", str(results), "--output", str(output)]) == 0
    return output / "history" / "box"


@pytest.fixture(scope="module")
def built(results):
    """The page of ``results``, to be read."""
    return build(results, results.parent / "reports")


def test_page(results, tmp_path, capsys):
    made = build(results, tmp_path / "reports")
    text = (made / "README.md").read_text(encoding="utf-8")
    version = SERIES[5].version
    assert f"torch {version}: `route2(a)` 1.4" in text and "slower at 4 KiB, float32, numpy→torch" in text
    assert "torch 2.15.0 was not measured on Python 3.11: No matching &lt;distribution&gt;." in text
    assert "alias → copy" in text and "later time over sooner time" in text
    page = (made / "index.html").read_text(encoding="utf-8")
    assert "<code>route2(<wbr>a)</code>" in page and "No matching &lt;distribution&gt;" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert (made / "history-torch-numpy-to-torch-copy.svg").is_file()
    told = capsys.readouterr().out
    assert f"torch {version}: route2(a) 1.4" in told.replace("`", "") and str(made.name) in told


def test_same_results_same_bytes(results, built, tmp_path):
    one, other = built, build(results, tmp_path / "other")
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_csv_holds_every_point(built):
    import pandas as pd

    table = pd.read_csv(built / "results.csv")
    before, after = (list(history_page.COLUMNS)[place] for place in (0, 9))
    assert tuple(table)[:3] == before and tuple(table)[-2:] == after
    assert {"benchmark", "route", "dtype", "nbytes"} <= set(table)
    own = table[table["route"] == ROUTES[2]]
    assert list(own["release"].astype(str)) == [toolchain.version for toolchain in SERIES]
    (broken,) = own[own["verdict"].notna()].to_dict("records")
    assert broken["verdict"] == "slower" and broken["ratio"] == pytest.approx(1.4, rel=0.03)
    assert broken["ratio_low95"] < broken["ratio"] < broken["ratio_high95"] and broken["q"] < 0.05
    assert len(table[table["route"] == ROUTES[1]]) == len(SERIES) - 1


def test_no_history_no_page(tmp_path):
    resultfiles.write(tmp_path / "results", [memcpy({8: [1e-7] * 4})])
    assert report.main(["--results", str(tmp_path / "results"), "--output", str(tmp_path / "out")]) == 0
    assert not (tmp_path / "out" / "history").exists()


def test_head_names_the_releases_that_changed_the_most(tmp_path):
    logs = logs_of(16, len(SERIES))
    logs[9:, 7] += math.log(1.8)
    logs[5:, :4] += math.log(1.5)
    made = history_in(write(tmp_path, logs))
    rows = history_words.changes(made)
    sizes = [row.size for row in rows]
    assert sizes == sorted(sizes, reverse=True) and len(rows) == 5
    _, first, many, one = [show.to_plain(line) for line in history_words.head(made, rows)]
    assert first == "5 of 12 cells changed level at least once, most of all at:"
    begins = (
        rf"torch {re.escape(SERIES[5].version)}: 4 routes slower \(4 cells, median 1\.(49|50|51)×\), most of all `route"
    )
    assert re.match(begins, many)
    assert one.startswith(f"torch {SERIES[9].version}: `route7(a)` 1.8") and "× slower at 4 KiB, float32" in one


@pytest.mark.slow
def test_committed_pages_are_those_of_the_committed_results(committed, tmp_path):
    """What nobody can rebuild is a mere claim. Figures are only to be there: matplotlib decides on their bytes."""
    reports = committed / "reports"
    assert report.main(["--results", str(reports / "results"), "--output", str(tmp_path)]) == 0
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    kept = {path.relative_to(reports) for path in reports.rglob("*") if path.is_file()}
    assert made == {path for path in kept if path.parts[0] != "results"}
    texts = [path for path in sorted(made) if path.suffix in (".md", ".csv")]
    different = [str(path) for path in texts if (tmp_path / path).read_bytes() != (reports / path).read_bytes()]
    assert len(texts) >= 5 and not different, "make report, and git add reports"
    for path in made:
        if path.name == "index.html":
            assert (reports / path).stat().st_size < (2e6 if path.parts[0] == "history" else 1e6), path


@pytest.mark.slow
def test_committed_histories_are_complete(committed):
    """At least twelve torch and six numpy releases, four processes per cell nearly everywhere, two of them again."""
    loaded = load(committed / "reports" / "results", "amd-epyc-genoa-2-core-vm")
    for package, least in (("torch", 12), ("numpy", 6)):
        made = history.history_of(loaded, package)
        assert len(made.releases) >= least and made.repeats
        assert np.mean([len(one.releases) == len(made.releases) for one in made.series]) > 0.9
        assert np.mean(np.concatenate([one.processes for one in made.series]) == 4) > 0.95


# A busy machine -----------------------------------------------------------------------------------------------------


def test_what_never_was_calm_is_no_release_s_doing(tmp_path):
    """One release's cell at twice the time, and the machine at half its speed meanwhile: a gap, and not a dip."""
    logs = logs_of(20, len(SERIES))
    logs[6, 7] += math.log(2.0)
    assert set(found(history_in(write(tmp_path / "unwatched", logs)))) == {ROUTES[7]}, "nobody watched: it is a finding"
    root = write(tmp_path / "watched", logs)
    for place, toolchain in enumerate(SERIES):
        values = {(route, 4 * KIB): list(np.exp(logs[place, k])) for k, route in enumerate(ROUTES)}
        bench = conversion(values, [contract(route, "copy") for route in ROUTES])
        slow = {((ROUTES[7], "float32", 4 * KIB), number) for number in range(4)} if place == 6 else ()
        resultfiles.probed(root, bench, slow, commit=toolchain.commit)
    made = history_in(root)
    assert not made.breaks
    (series,) = (series for series in made.series if series.names["route"] == ROUTES[7])
    assert len(series.releases) == len(SERIES) - 1 and SERIES[6].version not in {r.version for r in series.releases}
    sampled = replace(UNKNOWN, samples=10)
    records = [replace(sampled, quiet=0.4, noisy_cells=("a",)), replace(sampled, quiet=0.9)]
    said = "20 samples; the machine was quiet 40 % to 90 % of the time of a session; 1 figures without a quiet sample"
    assert history_page._samples(records).startswith(said)


def test_a_cell_that_never_was_calm_has_no_history(tmp_path):
    """In no release: its fastest samples are the machine's, and no series is made of them."""
    logs = logs_of(21, len(SERIES))
    root = write(tmp_path, logs)
    for place, toolchain in enumerate(SERIES):
        values = {(route, 4 * KIB): list(np.exp(logs[place, k])) for k, route in enumerate(ROUTES)}
        bench = conversion(values, [contract(route, "copy") for route in ROUTES])
        slow = {((ROUTES[7], "float32", 4 * KIB), number) for number in range(4)}
        resultfiles.probed(root, bench, slow, commit=toolchain.commit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # means of nothing
        assert {series.names["route"] for series in history_in(root).series} == {*ROUTES} - {ROUTES[7]}


def test_the_page_begins_with_a_picture(results, built):
    """Routes × releases: the planted step is marked where it is, and every tile leads to its panel."""
    page = (built / "index.html").read_text(encoding="utf-8")
    assert page.index('class="scroll heat"') < page.index('class="answers"')
    ids = set(re.findall(r'\bid="([^"]+)"', page))
    row = next(line for line in page.splitlines() if line.startswith("<tr>") and "route2(<wbr>a)" in line)
    tiles = re.findall(r'<td class="([^"]*)"><a href="#([^"]+)" title="([^"]+)">([^<]+)</a></td>', row)
    assert len(tiles) == len(SERIES) and {address for _, address, _, _ in tiles} <= ids
    places = [place for place, (kind, *_) in enumerate(tiles) if "step" in kind.split()]
    assert places == [5] and "here it became 1.4" in tiles[5][2]
    assert all("f4" in kind.split() for kind, *_ in tiles[:5]), "the releases before took 1 / 1.4 of the newest's time"
    assert {kind.strip() for kind, *_ in tiles[6:]} == {""} and tiles[-1][3] == "1"
    text = (built / "README.md").read_text(encoding="utf-8")
    assert "**1**" in next(line for line in text.splitlines() if line.startswith("| `route2(a)`, time"))
    curves = page.partition('id="torch-curves"')[2].partition("</section>")[0]
    rows = re.findall(r'<tr><th scope="row"><code>route', curves)
    assert len(rows) == 12 and re.findall(r'id="[\w-]+-points-(\d+)"', curves) == list(map(str, range(12)))


def test_in_the_picture_stands_what_most_releases_have():
    """Of a route that copies the largest size, but for one that was hardly ever calm."""

    def cell(nbytes, releases):
        return SimpleNamespace(nbytes=nbytes, releases=range(releases))

    small, large = cell(4 * KIB, 12), cell(1024 * KIB, 7)
    counted = cell(4 * KIB, 12)
    assert figure._chosen("copy", [small, large], []) == [large]
    assert figure._chosen("copy", [small, cell(1024 * KIB, 6)], []) == [small]
    assert figure._chosen("copy", [small, large], [counted]) == [counted, large]
    assert figure._chosen("copy", [], [counted]) == [counted]
    assert figure._chosen("alias", [small, large], []) == [small]
    assert figure._chosen("alias", [small, large], [counted]) == [counted]
