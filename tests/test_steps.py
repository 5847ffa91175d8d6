"""Counts along histories: at which release they step, that an accident of addresses is no step, and what time says."""

import json
import math
import re
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
import report
from analysis import history, sessions
from analysis.changes import Counted, _steps
from analysis.results import load
from analysis.verdicts import DEFAULT, FEWER, MORE
from pages import history_figure as figure
from pages import history_page, show
from pages import history_words as words
from resultfiles import KIB, SKIPPED, Bench
from store.files import MEASUREMENTS, beside, measurements_text, read_measurements
from test_history import ROUTES, SERIES, logs_of, record_of, write

pytestmark = pytest.mark.slow  # most build a history and its page

NAME = "instructions.NumpyToTorch.track_instructions"
VERSIONS = [toolchain.version for toolchain in SERIES]
SAME = [6700, 6704, 6708]


def stepped(*repeats):
    """The steps of a count with these repeats, release by release: (place, verdict, old, new, crept)."""
    releases = tuple(sessions.Release(toolchain, toolchain.tag, "", "", "") for toolchain in SERIES[: len(repeats)])
    values, low, high = (np.array(list(map(end, repeats)), dtype=float) for end in (np.median, min, max))
    steps, levels = _steps(Counted({}, "instructions", releases, values, low, high, values), DEFAULT)
    assert len(levels) == len(repeats)
    for step in steps:
        assert releases.index(step.at) - releases.index(step.before) == 1
    return [(releases.index(one.at), one.verdict, one.old, one.new, one.crept) for one in steps]


def times(factor, repeats=SAME):
    return [factor * count for count in repeats]


# Where it steps -----------------------------------------------------------------------------------------------------


def test_a_step_is_at_its_release_and_exact():
    assert stepped(SAME, SAME, times(1.03), times(1.03), times(0.5)) == [
        (2, MORE, 6704, 6704 * 1.03, False),
        (4, FEWER, 6704 * 1.03, 3352, False),
    ]


def test_what_is_too_small_is_no_step():
    assert stepped(SAME, times(1.009), times(1.0), times(1.008), times(0.995)) == []


def test_drift_is_found_once_it_adds_up():
    """0.4 % a release: no two neighbours differ, and after 3 releases it is more than 1 %, again and again."""
    found = stepped(*(times(1.004**place) for place in range(10)))
    assert [(place, verdict, crept) for place, verdict, _, _, crept in found] == [
        (3, MORE, True),
        (6, MORE, True),
        (9, MORE, True),
    ]
    assert found[1][2:4] == pytest.approx((6704 * 1.004**3, 6704 * 1.004**6))


@pytest.mark.parametrize("outlier", [[21000, 21200, 22260], [21400, 21800, 22260]])
def test_an_outlier_whose_repeats_do_not_agree_is_no_step(outlier):
    """Up to 6 % by where a copy of 4 KiB lies, in one release; also where all its repeats are another count."""
    usual = [20990, 21000, 21010]
    assert stepped(usual, usual, outlier, usual, usual) == []
    assert stepped(usual, usual, outlier) == [], "the newest may be an outlier, too"
    assert stepped(usual, outlier, usual, times(1.03, usual)) == [(3, MORE, 21000, 21630, False)], "it hides no step"


def test_an_outlier_whose_repeats_agree_is_a_fact_of_its_release():
    assert [step[:2] for step in stepped(SAME, times(1.04), SAME)] == [(1, MORE), (2, FEWER)]


def test_repeats_that_never_agree_hide_no_step_that_lasts_or_is_large():
    wide = [100.0, 104.0, 106.0]
    assert stepped(wide, wide, times(1.08, wide), times(1.08, wide)) == [(2, MORE, 104.0, 104 * 1.08, False)]
    assert [step[:2] for step in stepped(wide, times(1.5, wide), wide)] == [(1, MORE), (2, FEWER)]


def test_a_level_that_begins_with_an_outlier_is_known_by_the_release_after_it():
    first = [6700, 6850, 7100]
    assert stepped(first, SAME, times(1.03), times(1.03)) == [(2, MORE, 6704, 6704 * 1.03, False)]


# And the time of the same call --------------------------------------------------------------------------------------


def counting(changes, skipped=()):
    """Benchmarks of a release's place: what the counts of routes are multiplied by from a place on."""

    def extra(place):
        cells = {}
        for route in ROUTES:
            factor = math.prod(by for other, at, by in changes if other == route and place >= at)
            cells[route, "float32", 4 * KIB] = SKIPPED if (route, place) in skipped else times(factor)
        params = {"route": ROUTES, "dtype": ["float32"], "nbytes": [4 * KIB]}
        yield Bench(NAME, params, cells, unit="instructions")

    return extra


TOGETHER, ALONE, LONGER, AGAINST, LITTLE = ROUTES[1:6]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A step of time and count together, of either alone, of both the other way round, and a little one of a count."""
    logs = logs_of(31, len(SERIES))
    for route, at, factor in ((TOGETHER, 5, 1.2), (LONGER, 7, 1.3), (AGAINST, 6, 0.8)):
        logs[at:, ROUTES.index(route)] += math.log(factor)
    changes = [(TOGETHER, 5, 1.15), (ALONE, 4, 1.4), (AGAINST, 6, 1.25), (LITTLE, 8, 1.03)]
    root = tmp_path_factory.mktemp("steps") / "results"
    return write(root, logs, extra=counting(changes))


@pytest.fixture(scope="module")
def made(results):
    return history.history_of(load(results, "box"), "torch")


def findings(made):
    """Route -> (version, verdict of the count, verdict of the time, whether they disagree)."""
    return {
        counted.names["route"]: [
            (
                found.at.version,
                found.step.verdict if found.step else "",
                found.time.verdict if found.time else "",
                found.disagree,
            )
            for found in counted.findings
        ]
        for counted in made.counted
        if counted.findings
    }


def test_time_and_count_agree_or_not(made):
    assert len(made.counted) == len(ROUTES) and made.notes == ()
    assert findings(made) == {
        TOGETHER: [(VERSIONS[5], "more", "slower", False)],
        ALONE: [(VERSIONS[4], "more", "", True)],
        LONGER: [(VERSIONS[7], "", "slower", True)],
        AGAINST: [(VERSIONS[6], "more", "faster", True)],
        LITTLE: [(VERSIONS[8], "more", "", False)],
    }


def test_nothing_is_said_where_one_of_them_was_not_measured(tmp_path):
    """Neither a time of which no break could be confirmed nor a count that is not there contradicts."""
    logs = logs_of(32, len(SERIES), count=3)
    unsure = write(tmp_path / "unsure", logs, extra=counting([(ALONE, 4, 1.4)]))
    assert findings(history.history_of(load(unsure, "box"), "torch")) == {ALONE: [(VERSIONS[4], "more", "", False)]}
    logs = logs_of(33, len(SERIES))
    logs[7:, ROUTES.index(LONGER)] += math.log(1.5)
    gap = {(LONGER, place) for place in (6, 7)}
    without = write(tmp_path / "without", logs, extra=counting([], gap))
    assert findings(history.history_of(load(without, "box"), "torch")) == {LONGER: [(VERSIONS[7], "", "slower", False)]}


@pytest.mark.parametrize(
    "other",
    [{"conditions": {"cpu": "A CPU", "libc": "glibc 2.28"}}, {"settings": {"python": "3.11.2"}}],
)
def test_another_machine_or_python_counts_otherwise(tmp_path, other):
    """The first three releases were counted elsewhere, where a call takes twice the instructions."""
    root = write(tmp_path, logs_of(34, len(SERIES)), extra=counting([(route, 3, 0.5) for route in ROUTES]))
    here = {"conditions": {"cpu": "A CPU", "libc": "glibc 2.36"}, "settings": {"python": "3.11.7"}}
    for place, toolchain in enumerate(SERIES):
        (path,) = (root / "box").glob(f"{toolchain.commit[:8]}*.jsonl")
        record = record_of(toolchain, [], 600 * place, **{**here, **(other if place < 3 else {})})
        path.write_text(json.dumps(record) + "\n")
    made = history.history_of(load(root, "box"), "torch")
    assert findings(made) == {} and {len(counted.releases) for counted in made.counted} == {len(SERIES) - 3}
    assert made.notes == ("Instructions of 3 releases were counted on another processor, C library or Python",)


def test_another_version_of_the_count_is_left_out(tmp_path):
    root = write(tmp_path, logs_of(35, len(SERIES)), extra=counting([(route, 3, 0.5) for route in ROUTES]))
    for toolchain in SERIES[:3]:
        (path,) = (root / "box").glob(f"{toolchain.commit[:8]}*{MEASUREMENTS}")
        path.write_bytes(measurements_text({**line, "version": "v0"} for line in read_measurements(path)))
    made = history.history_of(load(root, "box"), "torch")
    assert findings(made) == {} and {len(counted.releases) for counted in made.counted} == {len(SERIES) - 3}


def test_a_count_without_repeats_is_not_followed(tmp_path):
    """As plain asv files it without --record-samples."""

    def extra(place):
        params = {"route": ROUTES, "dtype": ["float32"], "nbytes": [4 * KIB]}
        yield Bench(NAME, params, {(route, "float32", 4 * KIB): 6700.0 for route in ROUTES}, unit="instructions")

    made = history.history_of(load(write(tmp_path, logs_of(36, 4), SERIES[:4], extra=extra), "box"), "torch")
    assert made.counted == () and not words.count_section(made)


# The page -----------------------------------------------------------------------------------------------------------


def test_section_has_steps_and_what_disagrees(made):
    steps, against = words.count_section(made).tables
    plain = [
        [show.to_plain(line) for line in ([entry] if isinstance(entry, str) else entry)] for entry in steps.rows[0]
    ]
    assert plain[:2] == [[f"torch {VERSIONS[4]}", SERIES[4].date], [f"`{ALONE}`", "numpy→torch"]]
    assert plain[2][0] == "1.40× the instructions" and plain[3] == ["4 KiB, float32", "6,704 → 9,386"]
    assert [row[-1] for row in steps.rows] == [["no change found"], ["faster"], ["slower"], ["not decided"]]
    assert {row[-1] for row in against.rows} == {
        "more instructions, no change of time was found",
        "more instructions, less time",
        f"as many instructions, more time: {words.ELSEWHERE}",
    }
    (note,) = words.count_note(made)
    assert note == "Instructions of 12 calls: 4 changed; of 3 their time says otherwise."


def test_dtypes_that_step_together_are_one_row(tmp_path):
    """The largest stands for them; a release that takes fewer is another row."""
    dtypes = {"float32": 1.2, "int8": 1.3, "int64": 1.1}

    def extra(place):
        factor = {dtype: (by if place >= 4 else 1.0) * (0.5 if place >= 6 else 1.0) for dtype, by in dtypes.items()}
        cells = {(ALONE, dtype, 4 * KIB): times(by) for dtype, by in factor.items()}
        yield Bench(NAME, {"route": [ALONE], "dtype": list(dtypes), "nbytes": [4 * KIB]}, cells, unit="instructions")

    made = history.history_of(load(write(tmp_path, logs_of(38, 8), SERIES[:8], extra=extra), "box"), "torch")
    table, *_ = words.count_section(made).tables
    assert [row[2][0] for row in table.rows] == [".50× the instructions", "1.30× the instructions"]
    assert [row[4] for row in table.rows][1] == ["4 KiB, float32 and int64: 1.10–1.20×"]
    assert table.rows[1][3][0] == "4 KiB, int8"
    assert table.rows[1][5] == ["not timed: 2", "no change found: 1"], "only float32 is timed here"


def test_a_count_that_no_run_can_have_filed_is_left_out(tmp_path):
    root = write(tmp_path, logs_of(39, 4), SERIES[:4], extra=counting([]))
    for path in (root / "box").glob(f"*{MEASUREMENTS}"):
        lines = read_measurements(path)
        for line in lines:
            line |= {"values": [-value for value in line["values"]]} if "values" in line else {}
        path.write_bytes(measurements_text(lines))
    assert history.history_of(load(root, "box"), "torch").counted == ()


def test_changes_of_times_are_remarked_on(made):
    found = {change.largest[0].names["route"]: change for change in words.changes(made)}
    remark = partial(words.count_remark, words.findings_in(made))
    assert remark(found[TOGETHER]) == ["instructions agree, 1.15×"]
    assert remark(found[AGAINST]) == ["more instructions, 1.25×"]
    assert remark(found[LONGER]) == [f"as many instructions: {words.ELSEWHERE}"]
    table = words.largest(made, list(found.values()))
    assert any("instructions agree, 1.15×" in row[2] for row in table.rows)


def test_page_figure_and_csv(results, tmp_path):
    for name in ("one", "other"):
        assert report.main(["--results", str(results), "--output", str(tmp_path / name)]) == 0
    one, other = (tmp_path / name / "history" / "box" for name in ("one", "other"))
    assert all(path.read_bytes() == (other / path.name).read_bytes() for path in one.iterdir())
    assert "## torch: instructions" in (one / "README.md").read_text(encoding="utf-8")
    drawn = (one / "history-torch-numpy-to-torch-copy.svg").read_text(encoding="utf-8")
    assert f"the instructions of {TOGETHER} at {VERSIONS[5]}" in drawn
    table = pd.read_csv(one / "results.csv")
    assert tuple(table)[-5:] == ("count", "least", "most", "unit", "disagree")
    own = table[(table["route"] == ALONE) & table["count"].notna()]
    assert list(own["release"].astype(str)) == VERSIONS and list(own["unit"].unique()) == ["instructions"]
    assert own[["count", "least", "most"]].iloc[0].tolist() == [6704, 6700, 6708]
    (step,) = own[own["verdict"].notna()].to_dict("records")
    assert (step["verdict"], step["ratio"], str(step["disagree"])) == ("more", pytest.approx(1.4), "True")
    assert set(map(str, table[table["verdict"] == "slower"]["disagree"])) == {"True", "False"}


def test_without_counts_nothing_is_said_of_them(tmp_path):
    made = history.history_of(load(write(tmp_path, logs_of(37, 4), SERIES[:4]), "box"), "torch")
    assert not words.count_section(made) and not list(words.count_note(made))
    assert "count" not in history_page.csv_of([made]).splitlines()[0]


def test_a_history_of_counts_alone_has_a_page(results, tmp_path):
    """Where the machine is too busy to time anything: the same steps, a picture, panels, and not a word about time."""
    shutil.copytree(results, tmp_path / "results")
    for path in (tmp_path / "results" / "box").glob(f"*{MEASUREMENTS}"):
        path.write_bytes(measurements_text(line for line in read_measurements(path) if line["benchmark"] == NAME))
        asv = beside(path, ".json")
        file = json.loads(asv.read_text())
        file["results"] = {name: row for name, row in file["results"].items() if name == NAME}
        asv.write_text(json.dumps(file))
    loaded = load(tmp_path / "results", "box")
    assert sessions.packages(loaded) == ["torch"]
    made = history.history_of(loaded, "torch")
    assert not made.series and len(made.releases) == len(VERSIONS)
    assert report.main(["--results", str(tmp_path / "results"), "--output", str(tmp_path / "out")]) == 0
    page = tmp_path / "out" / "history" / "box"
    text = (page / "README.md").read_text(encoding="utf-8")
    assert "Nothing was timed; instructions have no noise. Most of all changed at:" in text
    assert f"torch {VERSIONS[5]}: " in text and f"`{ALONE}`, 1.40× the instructions" in text
    assert "too few to tell a change from noise" not in text and "drifted is not known" not in text
    assert (page / "history-torch-numpy-to-torch-copy.svg").is_file()
    html = (page / "index.html").read_text(encoding="utf-8")
    assert html.count(' step"><a href=') >= 3 and ">nan" not in html
    table = pd.read_csv(page / "results.csv")
    assert table["seconds"].isna().all() and table["count"].notna().all()


def test_points_are_numbered_by_the_rows_of_their_figures_table(made):
    """A panel of counts alone, beside those of times, has no row there: it takes no number from the panels after it."""
    one, other = made.series[:2]
    groups = {"one": ([one], []), "counts alone": ([], made.counted[:1]), "other": ([other], [])}
    drawn = figure.panels(made, "mixed", "title", "caption", groups)
    assert re.findall(r'id="mixed-points-(\d+)"', drawn.inline) == ["0", "1"]
