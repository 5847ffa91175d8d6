"""Histories find the release behind each change. Noise, thin sessions, nodes and code layout are not reported."""

import json
import math
import re
from dataclasses import replace
from urllib.parse import unquote, urlsplit

import numpy as np
import pandas as pd
import pytest
import report
import resultfiles
from analysis import comparison, history, verdicts
from analysis.changes import AGREES, CONTRADICTS, LAYOUT, UNCHANGED, find_changes
from analysis.history import histories_of
from analysis.results import load
from analysis.series import FDR
from analysis.verdicts import FAILED, FASTER, FEWER, INSTRUCTIONS, MORE, NEW, NO_CHANGE, SLOWER, TIME, Settings
from made_histories import (
    ATOM,
    COPIES,
    COUNT,
    HOUR,
    KIB,
    ROUTES,
    SERIES,
    build,
    check,
    counting,
    history_in,
    logs_of,
    meanings,
    record_of,
    started,
    times,
    write,
)
from pages.release_news import FEED, release_news, write_feed
from pages.show import render_paragraphs, to_plain
from resultfiles import SKIPPED, contract, conversion, memcpy
from toolchains import ledger

pytestmark = pytest.mark.slow  # most build a history and its page

VERSIONS = [toolchain.version for toolchain in SERIES]


# --- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "planted",
    [
        [(2, 5, 1.25), (4, 3, 0.5), (4, 8, 1.5), (7, 6, 1.08), (7, 7, 1 / 1.08)],  # cell 7: one release
        [(3, 1, 1.08)],  # a single release at an end
        [(3, len(SERIES) - 1, 1.08)],
        [(route, 6, 1.03) for route in range(len(ROUTES))],
        [(9, 4, 1.05)],
    ],
)
def test_what_is_planted_is_found_at_its_release(tmp_path, planted):
    made = history_in(write(tmp_path, logs_of(1, planted)))
    told = {(row.route, row.release): (row.verdict, row.ratio) for row in made.changes.itertuples()}
    assert told == {
        (ROUTES[route], VERSIONS[place]): (SLOWER if factor > 1 else FASTER, pytest.approx(factor, rel=0.02))
        for route, place, factor in planted
    }
    assert history.headlines(made)[[SLOWER, FASTER]].sum().sum() == len(planted)


def test_intervals_hold_the_planted_change_and_noise_is_no_news(tmp_path):
    """Half of 400 series change. Their noise has the heavy tails of a small virtual machine."""
    promises = [contract(f"route{number}(a)", "copy") for number in range(400)]
    rows = history_in(write(tmp_path, logs_of(5, [(slice(200), 6, 1.1)], cells=400), promises=promises)).changes
    changed = rows["route"].isin([promise["expression"] for promise in promises[:200]])
    own = rows[changed & (rows["release"] == VERSIONS[6])]
    held = (own["ratio_low"] <= 1.1) & (own["ratio_high"] >= 1.1)
    assert len(own) >= 195 and held.mean() >= 0.93, held.mean()
    assert len(rows) - len(own) <= 2


def test_a_thin_session_silences_no_series(tmp_path):
    """One release has only two quiet processes and another only one. Changes at other releases are still reported."""
    logs = logs_of(7, [(2, 5, 1.3)])
    logs[8, :, 2:] = np.nan
    logs[3, :, 1:] = np.nan
    made = history_in(write(tmp_path, logs))
    assert made.changes[["route", "release", "verdict"]].values.tolist() == [[ROUTES[2], VERSIONS[5], SLOWER]]
    own = made.rows[made.rows["route"] == ROUTES[0]].set_index("release")
    assert VERSIONS[3] not in own.index and own.loc[VERSIONS[8], "processes"] == 2
    width = np.log(own["high"] / own["low"])
    assert width[VERSIONS[8]] > width[VERSIONS[7]]


def test_machine_speed_is_taken_out_by_the_probes(tmp_path):
    """The machine's speed differs between sessions. So uncorrected times differ, though no release changed them."""
    clocks = np.exp(np.random.default_rng(8).normal(0, 0.03, len(SERIES)))
    logs = logs_of(9) + np.log(clocks)[:, None, None]
    without, probed = (history_in(write(tmp_path, logs, at=at)).rows for at in ((), clocks.tolist()))
    spread = [np.log(rows[~rows["control"]].groupby("series")["value"].std()).median() for rows in (without, probed)]
    assert spread[1] < spread[0] - 0.7


SIZES = (4 * KIB, 1024 * KIB, 16 * 1024 * KIB)
STEADY = [1.0] * len(SERIES)


def sharing(root, logs, **how):
    """Write results of routes that share memory. Their sizes take different times. See ``write``."""
    apart = 0.1 * (np.arange(logs.shape[1]) % len(SIZES))
    promises = [contract(route, "alias") for route in ROUTES[: logs.shape[1] // len(SIZES)]]
    return write(root, logs + apart[:, None], promises=promises, sizes=SIZES, **how)


def test_sizes_of_a_call_that_shares_memory_are_one_series(tmp_path):
    logs = logs_of(10, cells=6)
    logs[6:, 3:] += 0.06
    # of four rounds the smallest size is quiet only in the first two, and the other sizes only in the last two
    slow = {((ROUTES[0], "float32", size), k) for k in range(4) for size in (SIZES[1:] if k < 2 else SIZES[:1])}
    made = history_in(sharing(tmp_path, logs, slow=slow, at=STEADY))
    rows = made.rows[~made.rows["control"]]
    assert rows["series"].nunique() == 2 and set(rows["processes"]) == {4} and set(rows["sizes"]) == {SIZES}
    (change,) = made.changes[["release", "verdict", "ratio"]].values.tolist()
    assert change == [VERSIONS[6], SLOWER, pytest.approx(math.exp(0.06), rel=0.01)]


def test_sizes_of_a_round_are_one_witness(tmp_path):
    """All sizes of a round count as one observation. Its processes share where libraries lie in memory, which shifts
    all sizes of a call by the same 5 % (SD)."""
    state = np.random.default_rng(0).normal(0, 0.05, (len(SERIES), 12, 1, 4))
    logs = logs_of(28, cells=36) + state.repeat(3, axis=2).reshape(len(SERIES), 36, 4)
    assert history_in(sharing(tmp_path, logs)).changes.empty


def test_a_toolchain_measured_twice_shows_what_sessions_differ_by(tmp_path):
    logs = logs_of(11)
    quiet = history_in(write(tmp_path / "quiet", logs, again=logs_of(12)[0]))
    apart = np.random.default_rng(13).normal(0, 0.2, len(ROUTES))[:, None]
    loud = history_in(write(tmp_path / "loud", logs, again=logs_of(12)[0] + apart))
    assert quiet.session_sd["copy"] == pytest.approx(0.005, rel=0.1) and loud.session_sd["copy"] > 0.02
    (twice,) = quiet.replicates.to_dict("records")
    assert twice["hours"] == pytest.approx((600 * len(SERIES) + HOUR) / HOUR)
    assert (twice["series"], twice["flagged"]) == (12, 0) and twice["median"] == pytest.approx(1, abs=0.01)
    assert loud.replicates["flagged"].sum() > 0
    assert set(quiet.rows.loc[quiet.rows["release"] == VERSIONS[0], "processes"]) == {8}, "both sessions count"


def test_where_the_histories_cross_a_toolchain_is_measured_twice(tmp_path):
    cross = ledger.toolchains_by_tag()["torch-2.13.0"]
    same = ledger.toolchains_by_tag()[f"numpy-{cross.numpy}"]
    root = write(tmp_path, logs_of(14), [ledger.history("torch")[0], cross])
    write(root, logs_of(15), [same, ledger.history("numpy")[-1]])
    made = histories_of(load(root, "box"))
    assert list(made) == ["torch", "numpy"] and all(len(history.replicates) == 1 for history in made.values())


def test_a_machine_that_was_never_quiet_has_no_history(tmp_path):
    loaded = load(write(tmp_path, logs_of(16)), "box")
    loaded.processes["quiet"] = False
    assert histories_of(loaded) == {}


def test_controls_are_never_among_the_changes(tmp_path):
    def slower(place):
        yield memcpy({8 * KIB: [1e-7 * (1.5 if place >= 6 else 1.0)] * 4})

    made = history_in(write(tmp_path, logs_of(16), extra=slower))
    assert made.changes.empty and list(made.false_alarms["release"]) == [VERSIONS[6]]


# --- instruction counts ----------------------------------------------------------------------------------------------


def stepped(every, **settings):
    """Return the reported changes of instruction counts: series, place, verdict and ratio.

    every  one series per call: a list of releases, each a list of its processes' counts
    """
    counted = [
        (series, VERSIONS[place], place, np.median(counts), min(counts), max(counts))
        for series, releases in enumerate(every)
        for place, counts in enumerate(releases)
    ]
    table = pd.DataFrame(counted, columns=["series", "release", "place", "value", "low", "high"])
    table = table.assign(
        benchmark="count", route=table["series"], nbytes=8, what=INSTRUCTIONS, y=np.log(table["value"])
    )
    table["error"] = table["spread"] = verdicts.layout_sd(table)
    found = table.join(find_changes(table, Settings(**settings)))
    return found.loc[found["verdict"] != "", ["series", "place", "verdict", "ratio"]]


def test_of_what_is_reported_no_more_is_false_than_promised():
    """A fifth of the series change by 5 %. At most ``FDR`` of the reported changes are false.

    The same data choose a change's place and test it. With q at ``FDR``, 3 % would be false.
    """
    rng, series, releases, false = np.random.default_rng(3), np.repeat(range(60), 26), np.tile(range(26), 60), []
    for _ in range(40):
        changes, at = rng.random(60) < 0.2, rng.integers(1, 26, 60)
        y = rng.normal(0, 0.01, len(series)) + 0.05 * (changes[series] & (releases >= at[series]))
        known = {"series": series, "release": releases, "y": y, "error": 0.01, "spread": 0.0, "what": TIME}
        told = find_changes(pd.DataFrame(known), Settings())["verdict"] != ""
        false.append(1 - changes[series[told]].mean())
    assert 0 < np.mean(false) <= FDR


WIDE = [100.0, 104.0, 106.0]
SMALL = [times(1, [COUNT] * 4)] * 6 + [times(1.005, [COUNT] * 4)] * 6  # all processes of a release agree


@pytest.mark.parametrize(
    ("counts", "asked", "told"),
    [
        ([times(1), times(1), times(1.03), times(1.03), times(0.5)], {}, [(2, MORE), (4, FEWER)]),
        ([times(1), times(1.009), times(1), times(1.008), times(0.995)], {}, []),
        ([times(1.004**place) for place in range(10)], {}, [(4, MORE), (8, MORE)]),  # small changes add up
        ([times(1), times(1), [6704, 6800, 7100], times(1), times(1)], {}, []),  # processes disagree
        ([times(1), times(1.04), times(1)], {}, [(1, MORE), (2, FEWER)]),  # an outlier, but processes agree
        ([times(1, WIDE)] * 4 + [times(1.08, WIDE)] * 4, {}, [(4, MORE)]),  # the change lasts
        ([times(1, WIDE)] * 4 + [times(1.04, WIDE)] * 4, {}, []),  # the change lies within the range of processes
        ([WIDE, times(1.5, WIDE), WIDE], {}, [(1, MORE), (2, FEWER)]),  # the change is large
        (SMALL, {}, []),  # the change is small
        (SMALL, {"min_effect": 0.002}, [(6, MORE)]),  # such small changes are asked for
    ],
)
def test_steps_of_counts(counts, asked, told):
    rows = stepped([counts], **asked)
    assert list(zip(rows["place"], rows["verdict"])) == told
    assert counts is not SMALL or np.allclose(rows["ratio"], 1.005)


LAYOUTS = {  # effects of memory layout on a call: its processes differ by 3 % in the mean
    "any": lambda rng, shape: rng.normal(0, 0.03 / 2.06, shape),
    "two states": lambda rng, shape: 0.0343 * rng.integers(0, 2, shape),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_step_of_counts_is_one_beyond_memory_layout(layout):
    """Every second of 200 calls changes; only these changes are reported. All twelve releases have four processes."""
    logs = layout(np.random.default_rng(41), (200, len(SERIES), 4))
    logs[::2, 6:] += math.log(1.1)
    rows = stepped(np.exp(logs) * COUNT)
    assert set(rows["series"]) == set(range(0, 200, 2)) and set(rows["verdict"]) == {MORE}
    assert (rows["place"] == 6).mean() >= 0.95 and rows["ratio"].median() == pytest.approx(1.1, abs=0.01)


def test_a_run_that_only_counts_leaves_times_and_makes_counts_of_an_older_version_none(tmp_path):
    root = write(tmp_path, logs_of(20, [(1, 6, 1.2)]), extra=counting(lambda *_: 1))
    before = history_in(root).rows
    for toolchain in SERIES[:-1]:
        (records,) = (root / "box").glob(f"{toolchain.commit[:8]}*.jsonl")
        counted = json.loads(records.read_text()) | {"started": started(50_000), "samples": 0, "only": "^instructions"}
        records.write_text(records.read_text() + json.dumps(counted) + "\n")
    resultfiles.mend(root, lambda line: line | ({"version": "older"} if "values" in line else {}), SERIES[-1].commit)
    after = history_in(root).rows
    times, counts = (after[after["what"] == what].reset_index(drop=True) for what in (TIME, INSTRUCTIONS))
    pd.testing.assert_frame_equal(times, before[before["what"] == TIME].reset_index(drop=True))
    assert set(counts["release"]) == set(VERSIONS[:-1]) and len(counts) == len(ROUTES) * (len(SERIES) - 1)


def test_time_and_count_agree_or_not(tmp_path):
    logs = logs_of(20, [(1, 6, 1.2), (3, 6, 1.3), (4, 6, 0.8), (5, 6, 1.04)])
    counts = {1: 1.15, 2: 1.4, 4: 1.25}
    made = history_in(write(tmp_path, logs, extra=counting(lambda k, place: counts.get(k, 1) if place >= 6 else 1)))
    rows = made.changes
    assert set(rows["release"]) == {VERSIONS[6]}
    told = {what: dict(zip(own["route"], own["evidence"])) for what, own in rows.groupby("what")}
    assert "because" not in rows
    for place, toolchain in enumerate(SERIES):
        functions = {"functions": {"lib:f": 6700, "lib:g": 200 * (place >= 6)}}
        resultfiles.mend(
            tmp_path, lambda line, own=functions: line | (own if "values" in line else {}), toolchain.commit
        )
    explained = history_in(tmp_path)
    because = [str(each) for each in explained.changes["because"].dropna()]
    assert len(because) == 3 and all(each.endswith(": lib:g +200") for each in because)
    assert "(+200 of +1,005 instructions in `g`; functions explain 20 %)" in to_plain(
        release_news(explained)[-6].paragraph
    )
    assert told[TIME] == dict(zip((ROUTES[1], *ROUTES[3:6]), (AGREES, UNCHANGED, CONTRADICTS, LAYOUT)))
    assert told[INSTRUCTIONS] == {ROUTES[1]: AGREES, ROUTES[2]: "", ROUTES[4]: CONTRADICTS}


def test_counts_of_one_size_say_what_did_not_change(tmp_path):
    """The release before the change lacks counts of the smaller of two sizes. The larger size takes more instructions
    at every release, which is no change."""
    logs = logs_of(10, [(slice(None), 6, 1.03)], cells=len(ROUTES) * len(SIZES))
    counts = counting(lambda *_: 1, SIZES[:2], lacking=[(5, SIZES[0])])
    assert set(history_in(sharing(tmp_path, logs, extra=counts)).changes["evidence"]) == {LAYOUT}


def test_code_layout_is_in_no_headline(tmp_path):
    """Each wheel shifts the time of each call by 1.5 % (SD), reproducibly on one machine, with equal instructions."""
    layout = np.random.default_rng(21).normal(0, 0.015, (len(SERIES), len(ROUTES), 1)).clip(-0.02, 0.02)
    logs = logs_of(22, [(2, 5, 1.2)]) + layout
    made = history_in(write(tmp_path, logs, extra=counting(lambda k, place: 1.2 if k == 2 and place >= 5 else 1)))
    assert (made.changes["evidence"] == LAYOUT).sum() > 3, "they are real, and reported as what they are"
    told = history.headlines(made)[[SLOWER, FASTER]]
    assert told.sum().sum() == 1 and told.loc[VERSIONS[5], SLOWER] == 1


@pytest.mark.parametrize("one, other", [("A CPU", "Another"), ("3.11.7", "3.12.1")])
def test_another_machine_or_python_counts_otherwise(tmp_path, one, other):
    root = write(tmp_path, logs_of(23), extra=counting(lambda *_: 1))
    (path,) = (root / "box").glob(f"{SERIES[0].commit[:8]}*.jsonl")
    path.write_text(path.read_text().replace(one, other))
    made = history_in(root)
    counted = made.rows[made.rows["what"] == INSTRUCTIONS]
    assert VERSIONS[0] not in set(counted["release"]) and made.uncounted_releases == 1
    nothing = {"records": [], "outdated": 0, "benchmarks": 0, "processes": []}
    warning, *_ = render_paragraphs("history", "warnings", histories=[made], nodes=0, **nothing)
    assert warning.startswith("Not shown: instructions that were counted on another processor")


# --- two releases, several nodes -------------------------------------------------------------------------------------


def test_between_two_releases(tmp_path):
    made = history_in(write(tmp_path, logs_of(26, [(2, 5, 1.2), (2, 8, 1 / 1.5)])))

    def ratio(base, new):
        table = history.compare_releases(made, [(VERSIONS[base], VERSIONS[new])])
        (row,) = table[table["series"].str.contains("route2")].to_dict("records")
        return row

    (change,) = made.changes.query("release == @VERSIONS[5]").to_dict("records")
    of_change = [change[name] for name in ("ratio", "ratio_low", "ratio_high")]
    one, back, both, none = ratio(4, 6), ratio(6, 4), ratio(4, 9), ratio(0, 3)
    assert [one[name] for name in ("ratio", "low95", "high95")] == pytest.approx(of_change) and one["verdict"] == SLOWER
    assert [1 / back[name] for name in ("ratio", "high95", "low95")] == pytest.approx(of_change)
    assert ratio(2, 7)["ratio"] == pytest.approx(one["ratio"])
    assert both["ratio"] == pytest.approx(0.8, rel=0.02) and both["verdict"] == FASTER
    assert none["verdict"] == "" and none["low95"] < 1 < none["high95"]


@pytest.mark.parametrize("lacking", [None, SKIPPED])
def test_a_route_that_lacks_its_smallest_size_on_one_side_is_compared_by_the_others(tmp_path, lacking):
    logs = logs_of(10, [(slice(len(SIZES)), 6, 1.3)], cells=len(ROUTES) * len(SIZES))
    logs[:3, 0] = np.nan
    sharing(tmp_path, logs, without=lacking)
    found = comparison.compare_by_name(SERIES[1].tag, SERIES[8].tag, tmp_path, "box", Settings(only="route"))
    first = found.cells.loc[found.cells["route"] == ROUTES[0], "verdict"].tolist()
    assert first == [FAILED if lacking is None else NEW, SLOWER] and found.exit_code == 1
    assert found.counts[NO_CHANGE] == len(ROUTES) - 1 == len(found.cells) - 2, "their sizes are one row"


def test_few_processes_are_enough_where_a_history_decides(tmp_path):
    logs = logs_of(1, [(2, 5, 1.25)])
    logs[:, :, 3:] = np.nan
    names = [toolchain.tag for toolchain in SERIES[4:6]]
    found = comparison.compare_by_name(*names, write(tmp_path, logs), "box", Settings(only="route"))
    assert found.counts[SLOWER] == found.exit_code == 1 and set(found.cells["base_processes"]) == {3}
    assert not any(found.cells["reason"]) and found.cells["more"].isna().all()


def test_a_row_of_several_sizes_shows_a_quiet_one_and_speaks_for_all_counts(tmp_path):
    slow = {((ROUTES[0], "float32", SIZES[0]), k) for k in range(4)}
    logs = logs_of(10, [(slice(None), 6, 1.3)], cells=len(ROUTES) * len(SIZES))
    sharing(tmp_path, logs, extra=counting(lambda *_: 1), at=STEADY)
    sharing(tmp_path, logs[:3], toolchains=SERIES[:3], extra=counting(lambda *_: 1), at=STEADY, slow=slow)
    found = comparison.compare_by_name(SERIES[1].tag, SERIES[8].tag, tmp_path, "box", Settings(only="route"))
    assert len(found.cells) == len(ROUTES) and set(found.cells["base_processes"]) == {4}
    assert list(found.cells["nbytes"]) == [SIZES[1], *[SIZES[0]] * (len(ROUTES) - 1)]
    assert set(found.counted["time"]) == {SLOWER} and found.counted["contradicts"].all()


def on_nodes(root, node_sd, *planted, parts=()):
    """Write results of several nodes.

    planted  changes of each node, see ``logs_of``
    parts    releases that each node measured, as slices; by default all
    """
    rng = np.random.default_rng(40)
    for place, changes in enumerate(planted):
        logs = logs_of(41 + place, changes) + rng.normal(0, node_sd)
        node, own = f"node-{'abcd'[place]}", parts[place] if parts else slice(None)
        fleet = {"id": "1", "engine": "slurm", "node": node}
        write(root, logs[own], SERIES[own], node=node, record={"fleet": fleet})
    return root


def test_a_change_on_every_node_and_one_on_some(tmp_path):
    everywhere, there = (3, 6, 1.1), (5, 4, 1.15)
    made = history_in(on_nodes(tmp_path, 0.03, [everywhere], [everywhere, there]))
    assert list(made.nodes["node"]) == ["node-a", "node-b"] and set(made.nodes["releases"]) == {len(SERIES)}
    told = made.changes.set_index("route")[["nodes_with", "nodes_without", "ratio"]].T.to_dict("list")
    assert told[ROUTES[3]] == ["node-a, node-b", "", pytest.approx(1.1, rel=0.02)]
    assert told[ROUTES[5]][:2] == ["node-b", "node-a"]


def test_what_nodes_add_is_no_news(tmp_path):
    """One node is replaced by another at the release of a change. This neither hides the change nor adds others."""
    change, parts = (3, 5, 1.1), (slice(None), slice(5), slice(5, None))
    made = history_in(on_nodes(tmp_path, 0.3, [change], [change], [change], parts=parts))
    assert made.changes[["route", "ratio"]].to_numpy().tolist() == [[ROUTES[3], pytest.approx(1.1, rel=0.02)]]
    assert np.ptp(np.log(made.nodes["ratio"])) > 0.02, "the nodes were drawn apart"


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results, not to be changed: a change, a second session, routes that come, go or change, and a failed release."""
    root = tmp_path_factory.mktemp("history") / "results"
    logs, again = logs_of(50, [(2, 5, 1.4)]), logs_of(51)[0]
    logs[0, 1] = logs[9:, 3] = again[1] = np.nan
    failed = ledger.toolchains_by_tag()["torch-2.15.0"]
    benches = [conversion({(ROUTES[0], 4 * KIB): None}, COPIES)]
    record = record_of(failed, benches, 0, failed="No matching <distribution>")
    resultfiles.write(root, benches, records=[record], commit=failed.commit)
    return write(root, logs, again=again, extra=meanings)


@pytest.fixture(scope="module")
def built(results):
    """The directory of the page of ``results``, not to be changed."""
    return build(results, results.parent / "reports")


def test_a_history_page_has_each_release_and_links_to_it(results, built, tmp_path, capsys, snapshot):
    text = (built / "README.md").read_text(encoding="utf-8")
    assert re.sub(r"[0-9a-f]{64}", "SHA", text.partition("## Machine and method")[0]) == snapshot
    page = (built / "index.html").read_text(encoding="utf-8")
    links = page.partition("<nav")[2].partition("</nav>")[0]
    led = f'<a href="#{SERIES[5].tag}">'
    assert led in page and led not in links, "a row of the first table leads there"
    assert f'id="{SERIES[5].tag}"' in page and "&lt;distribution&gt;" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("https://github.com", "")  # links of causes
    build(results, tmp_path)
    assert f"torch {VERSIONS[5]} ({SERIES[5].date}): 1 " in capsys.readouterr().out
    made, again = ({path.relative_to(at): path for path in at.rglob("*.*")} for at in (built.parents[1], tmp_path))
    assert made.keys() == again.keys()
    assert all(path.read_bytes() == again[name].read_bytes() for name, path in made.items()), "same input, same bytes"


def test_the_picture_marks_the_change_and_leads_to_its_section(built, snapshot):
    heat = (built / "index.html").read_text(encoding="utf-8").partition('class="scroll heat"')[2].partition("</table>")
    tiles = re.findall(r'<td class="([^"]*)" title="([^"]+)">(?:<a href="#([^"]+)">)?([^<]+)', heat[0])
    assert [" | ".join(tile) for tile in tiles] == snapshot
    assert set(re.findall(r"route\d+", heat[0])) == {"route2"}, "of others nothing changed"
    (line,) = re.findall('points="([^"]+)"', heat[0])
    heights = [int(point.partition(",")[2]) for point in line.split()]
    assert min(heights[:5]) > max(heights[5:]) + 7, "its line rises where its time does"


def test_csv_holds_every_point(built, snapshot):
    """The CSV of a history holds all points of a changed route and of a route that one release lacks."""
    table = pd.read_csv(built / "results.csv", dtype={"release": str}).set_index("route").loc[ROUTES[1:3]]
    assert table[["release", "verdict", "ratio", "ratio_low", "ratio_high", "q"]].round(2).to_csv() == snapshot


def test_a_history_of_counts_alone_has_a_page(tmp_path):
    counts = counting(lambda k, place: 1.1 if k == 2 and place >= 5 else 1)
    built = build(write(tmp_path / "results", logs_of(1), promises=(), extra=counts), tmp_path / "out")
    rows = pd.read_csv(built / "results.csv", dtype=str).dropna(subset=["verdict"])
    assert set(zip(rows["release"], rows["route"], rows["what"], rows["verdict"])) == {
        (VERSIONS[5], ROUTES[2], INSTRUCTIONS, MORE)
    }
    assert VERSIONS[5] in (built / "README.md").read_text(encoding="utf-8")


def test_a_history_of_python_reads_like_the_others(tmp_path):
    """Its releases have several interpreters, whose probes are other work, and one of them has another numpy."""
    write(tmp_path / "results", logs_of(3, [(2, 4, 1.49)]), ledger.series("python"))
    page = (build(tmp_path / "results", tmp_path / "out") / "README.md").read_text(encoding="utf-8")
    assert "5 releases of Python 3.11 to 3.15 with torch 2.15.0, numpy 2.4.6 and 2.5.5" in page
    assert "What releases of torch, numpy and Python changed on box" in page and "are not corrected" in page
    assert "numpy changes with it, as this Python has other wheels: 2.4.6 → 2.5.5." in page.split("## Python 3.12")[1]
    assert re.search(r"## Python 3\.15, 2026-10-09\s+1 route slower \(median 1\.4\d×\)", page)


def test_machines_with_histories_are_listed(built):
    text = (built.parent / "README.md").read_text(encoding="utf-8")
    assert "[box](box/README.md)" in text
    assert f"| [torch {VERSIONS[5]}](box/README.md) | 1 slower; most: `" in text
    assert 'href="box/index.html#' in (built.parent / "index.html").read_text(encoding="utf-8")


# --- the feed: Atom (RFC 4287), one entry per release with changes, with a permanent id -------------------------------


def test_the_committed_feed(committed):
    """The committed feed is valid, and its links lead to existing sections of committed pages."""
    reports = committed / "reports"
    entries = check((reports / FEED).read_text(encoding="utf-8"))
    assert len(entries) >= 10
    for entry in entries:
        for link in entry.findall(f"{ATOM}link"):
            place = urlsplit(link.get("href"))
            page = (reports / unquote(place.path)).read_text(encoding="utf-8")
            assert f'id="{unquote(place.fragment)}"' in page, link.get("href")


def test_an_entry_per_release_over_all_machines(tmp_path, snapshot):
    made = history_in(write(tmp_path / "results", logs_of(3, [(2, 5, 1.49)])))
    other = replace(made, machine="ä b")
    write_feed(tmp_path, [made, other])
    text = (tmp_path / FEED).read_text(encoding="utf-8")
    (entry,) = check(text)
    assert text == snapshot
    write_feed(tmp_path, [other])
    (again,) = check((tmp_path / FEED).read_text(encoding="utf-8"))
    assert again.findtext(f"{ATOM}id") == entry.findtext(f"{ATOM}id"), "an id stays, whatever else comes"


def test_a_history_in_which_nothing_changed_has_an_empty_feed(tmp_path):
    """A history's page links to the feed, so an empty feed is written. Without histories the feed is removed."""
    write_feed(tmp_path, [history_in(write(tmp_path / "results", logs_of(3), SERIES[:2]))])
    assert check((tmp_path / FEED).read_text(encoding="utf-8")) == []
    write_feed(tmp_path, [])
    assert not (tmp_path / FEED).exists()


# --- committed pages and results -------------------------------------------------------------------------------------


def test_committed_pages_are_those_of_the_committed_results(committed, tmp_path, monkeypatch):
    """Anyone can rebuild the committed pages, and the tables of README.md. Otherwise their figures would be mere
    claims. Drawings must only exist, because their bytes depend on matplotlib."""
    reports, readme = committed / "reports", tmp_path.with_suffix(".md")
    figure = re.compile(r"(?<=\| )\d[\d.]* [nµm]s(?= \|)|\d+ routes? (?:faster|slower)")
    kept_readme = (committed / "README.md").read_text(encoding="utf-8")
    readme.write_text(figure.sub("outdated", kept_readme), encoding="utf-8")
    monkeypatch.setattr(report, "README", readme)
    monkeypatch.setattr(report, "REPORTS", tmp_path)
    assert report.main(["--results", str(reports / "results"), "--output", str(tmp_path)]) == 0
    assert readme.read_text(encoding="utf-8") == kept_readme
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    kept = {path.relative_to(reports) for path in reports.rglob("*") if path.is_file()}
    assert made == {path for path in kept if path.parts[0] != "results"}
    texts = [path for path in sorted(made) if path.suffix in (".md", ".csv")]
    different = [str(path) for path in texts if (tmp_path / path).read_bytes() != (reports / path).read_bytes()]
    assert len(texts) >= 5 and not different, "make report, and git add reports"
    for path in made:
        if path.name == "index.html":
            assert (reports / path).stat().st_size < (2e6 if path.parts[0] == "history" else 1e6), path
