"""compare.py: exit codes, accepted and refused arguments, fresh processes, real results, and both sides in turns."""

import functools
import json
import re
import shutil
import sys
import venv
from dataclasses import replace
from pathlib import Path

import cli
import compare
import made_histories
import pandas as pd
import pytest
from analysis import comparison
from analysis.comparison import compare_by_name
from analysis.verdicts import CHANGED, FASTER, FEWER, INCONCLUSIVE, MORE, SLOWER, Settings
from cli import RESULTS, UserError
from conftest import ROOT, environment
from measuring import engine, journal, runner
from measuring.engine import Suite
from measuring.journal import Plan, lock_directory
from measuring.profiles import exact_patterns
from pages import change_pictures, comparison_words
from pages.release_news import release_news
from sides import NOISE, RECORD, RESULT, ROUTES, SIZES, cells, compared, together, verdicts, write
from store import files
from tiny import RELEASES
from toolchains import environments, ledger, selection

SHARES = {"1%": 0.01, "0.01": 0.01, "1 %": 0.01, ".5": 0.5}
ENDS = {"0": 0, "100%": 1}  # all or nothing: accepted only with ``ends``


@pytest.mark.parametrize("text", [*SHARES, *ENDS, "", "x", "5", "-1%", "nan", "200%"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_share_is_a_number_or_a_percentage(text, ends):
    value = (SHARES | ENDS if ends else SHARES).get(text)
    if value is None:
        with pytest.raises(UserError, match="share"):
            cli.parse_share(text, ends=ends)
    else:
        assert cli.parse_share(text, ends=ends) == pytest.approx(value)


def test_exit_codes_and_formats(pair, tmp_path, called):
    code, out, _ = called(compare, *pair, "--figure", "f.svg")
    assert code == 1 and "1.3" in out and (tmp_path / "f.svg").is_file()
    code, out, _ = called(compare, *pair, "--only", "tensor", "--format", "json")
    assert code == 0 and len(json.loads(out)["cells"]) == len(SIZES)
    code, out, _ = called(compare, pair[0], f"{pair[1]}/{RESULT}", "--format", "markdown")
    assert code == 1 and out.startswith(comparison_words.MARKER)


def test_too_little_decided_is_exit_code_2(tmp_path, called):
    """The error message also says how to decide more cells."""
    sides = [write(tmp_path / side, cells(seed, sd=NOISE)) for side, seed in (("a", 0), ("b", 1))]
    code, out, said = called(compare, *sides)
    assert code == 2 and "0 of 24" in out and re.fullmatch(r"compare\.py: .*0 of 24.*\n", said)
    assert all(advice in said for advice in ("50 %", "run.py --rounds 8", "compare.py --run", "--min-decided"))
    assert called(compare, *sides, "--min-decided", "0")[0] == 0


def test_several_result_files_must_be_told_apart(pair, called, refusal):
    write(pair[0], cells(5), machine="other")
    assert "(box/" in refusal(compare, *pair)
    assert called(compare, *pair, "--machine", "box")[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("{base}", "{base}"),
        ("", " "),
        ("{broken}", "{new}"),
        ("{base}/..", "{new}"),
        ("{base}",),
        ("{base}", "{new}", "--only", "no such cell"),
        ("{base}", "{new}", "--machine", "unknown"),
        ("{base}", "{new}", "--machine", "/etc"),
        ("{base}", "{new}", "--figure", "{base}.png"),
        ("{base}", "{new}", "--equivalence", "1%"),
        ("--run", "installed", "installed", "--figure", "{base}/no/such/directory.svg"),  # before anything is measured
        ("--run", "nowhere", "installed"),
        ("--run", "installed", "installed", "--profile", "nonesuch"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(pair, refusal, arguments):
    if "{broken}" in arguments:
        (Path(pair[0]) / RECORD).write_text("{")  # what else the loader refuses is tests/test_results.py's
    refusal(compare, *(argument.format(base=pair[0], new=pair[1], broken=pair[0]) for argument in arguments))


# --- fresh processes -------------------------------------------------------------------------------------------------


def in_stages(root, first, again, some=None, collections=("1", "1")):
    """Compare with and without fresh processes of some cells. first, again: NEW's slowdown by cell in each stage."""
    sides = [root / side / "reports" / "results" for side in ("base", "new", "base-fresh", "new-fresh")]
    for place, (directory, change) in enumerate(zip(sides, ({}, first, {}, again))):
        stage, rounds = (2, 8) if place > 1 else (1, 4)
        taken = cells(place, change, processes=rounds)
        taken = {cell: own for cell, own in taken.items() if stage == 1 or some is None or cell in some}
        write(directory, taken, record=together(("base", "new")[place % 2], stage, rounds, collections[place % 2]))
    return compare_by_name(*map(str, sides[:2]), RESULTS, None, Settings()), compared(*sides[:2])


def test_fresh_processes_decide_alone(tmp_path):
    """A cell that is slower in the first stage only is not reported as slower."""
    close = {(ROUTES[0], 8): 1.3, (ROUTES[1], 4): 1.3}
    found, _ = in_stages(tmp_path, close, {(ROUTES[0], 8): 1.3}, close)
    named = verdicts(found)
    assert named[ROUTES[0], 8] == SLOWER and named[ROUTES[1], 4] != SLOWER
    fresh = found.cells[found.cells["fresh"]]
    assert set(fresh["base_processes"]) == {8} and found.cells["close"].sum() >= 2
    assert " 8 fresh " in comparison_words.text(found, False)


def test_witnesses_keep_their_first_verdict(tmp_path):
    """Only close cells are judged again, even if all cells were measured again."""
    found, first = in_stages(tmp_path, {}, {(route, nbytes): 1.5 for route in ROUTES for nbytes in SIZES})
    assert set(found.cells[found.cells["verdict"] == SLOWER]["cell"]) == set(first.cells[first.cells["close"]]["cell"])


def test_fresh_processes_of_another_collection_decide_nothing(tmp_path):
    """Fresh processes of two collections did not run in turns, so they are not used."""
    close = {(ROUTES[0], 8): 1.3}
    found, first = in_stages(tmp_path, close, close, collections=("1", "2"))
    assert first.cells["close"].any() and not found.cells["fresh"].any()


# --- real results ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_cell_of_real_results_can_be_told_and_drawn(committed, tmp_path):
    """Compare the largest result file of each committed machine with itself: all its families and parameters."""
    several, copied = [], shutil.copytree(committed / "reports" / "results", tmp_path / "results")
    for directory in {path.parent for path in copied.glob("*/machine.json")}:
        held = {file: json.loads(file.read_text())["results"] for file in directory.glob("*-toolchain-*.json")}
        copy = max(held, key=lambda path: (len(held[path]), path.stat().st_size))
        file = committed / "reports" / "results" / copy.relative_to(copied)
        found = compare_by_name(str(file), str(copy), RESULTS, None, Settings())
        told = [comparison_words.text(found, True), comparison_words.markdown(found, True, "compare")]
        told.append(comparison_words.as_json(found, "compare"))
        assert all(len(text) > 1000 and text.count("torch.from_numpy(a)") > 10 for text in told), file
        # a history times one thread only, and a machine may have only a history
        several.append(found.cells["benchmark"].str.startswith("parallel.").any())
        assert ("all threads" in told[0]) == several[-1], file
        assert change_pictures.forest(found).svg.count("<svg") == 1, file
    assert any(several)


@pytest.fixture(scope="module")
def history(committed, tracked):
    """A function that compares two releases of the committed history, which is loaded and analysed once."""
    with pytest.MonkeyPatch.context() as patch:
        for function in (comparison.load, comparison.histories_of):
            patch.setattr(comparison, function.__name__, functools.cache(function))
        yield lambda base, new: compare_by_name(base, new, committed / "reports" / "results", tracked, Settings())


@pytest.mark.slow
def test_one_ratio_for_one_pair_of_releases(committed, tracked, history):
    """compare.py, the history's page and CSV, and the feed say the same of torch 2.10.0 against 2.9.1."""
    compared = history("torch-2.9.1", "torch-2.10.0")
    pages = committed / "reports" / "history" / tracked
    table = pd.read_csv(pages / "results.csv", low_memory=False)
    own = table[(table["package"] == "torch") & (table["release"] == "2.10.0") & (table["what"] == "time")]
    changed = own[own["verdict"].notna() & ~own["control"] & own["evidence"].ne("layout")]
    judged = compared.cells[compared.cells["verdict"].isin((SLOWER, FASTER))]
    assert len(changed) == len(judged) > 40
    for verdict in (SLOWER, FASTER):
        theirs, ours = (each[each["verdict"] == verdict] for each in (changed, judged))
        for said, name in (("ratio", "ratio"), ("ratio_low", "low95"), ("ratio_high", "high95")):
            assert sorted(theirs[said]) == pytest.approx(sorted(ours[name]), rel=1e-4), verdict
    row = changed.iloc[(changed["ratio"] - changed["ratio"].min()).argmin()]
    low, high = sorted(1 / row[end] for end in ("ratio_low", "ratio_high"))
    said = f"{1 / row['ratio']:.2f}× faster ({low:.2f}–{high:.2f})"
    for place in (pages / "README.md", committed / "reports" / "feed.xml"):
        assert said in place.read_text(encoding="utf-8"), place


@pytest.mark.slow
def test_a_page_and_a_comparison_count_alike(committed, tracked, history):
    """Of every third release: the same routes slower, faster, of more and fewer instructions, the same exit status."""
    every = comparison.histories_of(comparison.load(committed / "reports" / "results", tracked))
    news = [each for one in every.values() for each in release_news(one)]
    assert len(news) > 20
    for each in news[::3]:
        compared = history(each.previous.tag, each.release.tag)
        said = comparison_words.summarise(compared)["headline"]
        assert said.startswith(each.headline) or not each.timed, each.title
        counted = {verdict: compared.changed[verdict] for verdict in CHANGED}
        assert (counted, compared.exit_code) == ({v: each.counts[v] for v in CHANGED}, each.exit_code), each.title


@pytest.mark.slow
def test_a_release_is_no_slower_than_itself(history):
    """Where the histories cross, one toolchain was measured for each, an hour apart: a real A/A across sessions."""
    same = ledger.toolchains_by_tag()["torch-2.13.0"]
    compared = history(same.tag, f"numpy-{same.numpy}")
    assert len(compared.cells) > 100 and not compared.counts[SLOWER] + compared.counts[FASTER]


@pytest.mark.slow
def test_comparisons_that_are_offered(committed, history, monkeypatch, capsys):
    """By README and by the page of every history: of one result file each, wherever else the releases were measured."""
    places = [ROOT / "README.md", *(committed / "reports" / "history").glob("*/README.md")]
    assert len(places) > 1
    monkeypatch.setattr(compare, "RESULTS", committed / "reports" / "results")
    for place in places:
        text = place.read_text(encoding="utf-8")
        (options,) = re.findall(r"scripts/compare\.py ([^`<]+?--machine [\w-]+)`", text)
        assert compare.main(options.split()) in (0, 1), options
        assert " → " in capsys.readouterr().out.splitlines()[0]


def test_a_broken_file_of_another_toolchain_is_no_obstacle(tmp_path):
    """Variation between sessions is estimated from other files; if they cannot be read, it is inferred without them."""
    root, releases = tmp_path / "results", made_histories.SERIES[:3]
    made_histories.write(root, made_histories.logs_of(1), releases)
    one, other, broken = (next((root / "box").glob(f"{toolchain.commit[:8]}-*.json")) for toolchain in releases)
    broken.with_suffix(".jsonl").write_text("{")
    compared = compare_by_name(str(one), str(other), RESULTS, None, Settings())
    assert len(compared.cells) == len(made_histories.ROUTES) + 1 and not compared.session_variance


@pytest.mark.slow
def test_releases_of_a_history_are_checked_by_what_was_measured_twice(history):
    """A comparison in a history is checked by toolchains measured twice, not by halves of the processes.

    Halves of torch 2.10.0 differ, since its rounds alternate between fast and slow. That once withheld all verdicts.
    """
    compared = history("torch-2.0.1", "torch-2.15.0")
    assert compared.in_history and not compared.withheld and compared.counts[FASTER] > 10
    assert compared.check.cells > 100 and compared.check.flagged <= 0.02 * compared.check.cells
    changed = dict(zip(compared.cells["parameters"].map(str), compared.cells["verdict"]))
    times = [row for row in compared.counted.to_dict("records") if row["time"] in (SLOWER, FASTER)]
    assert times and {row["time"] for row in times} <= set(changed.values())


@pytest.mark.slow
def test_a_history_that_fails_its_check_decides_no_times(history, monkeypatch):
    monkeypatch.setattr(comparison, "check_by_history", lambda history: comparison.SelfCheck(2, 160, 8, 0.025, 0.09))
    compared = history("torch-2.0.1", "torch-2.15.0")
    assert compared.in_history and compared.withheld and not compared.decided
    assert "faster" not in comparison_words.text(compared, False)
    assert compared.exit_code == (1 if compared.counts_decided[MORE] else 2)
    by_times = replace(compared, counted=compared.counted[:0])  # counts are decided without times
    assert by_times.exit_code == 2
    said = comparison_words.summarise(by_times)["headline"]
    assert said == "could not compare: the data contradicts what the method promises"
    said = comparison_words.summarise(replace(compared, counted=compared.counted.assign(verdict=FEWER)))["headline"]
    assert re.search(r"^could not compare times: .*; by instructions: \d+ of fewer ", said)


@pytest.mark.slow
def test_committed_histories_are_complete(committed, tracked, history):
    """Histories have at least twelve torch and six numpy releases, with four processes for over 95 % of times, and a
    toolchain measured twice."""
    histories = comparison.histories_of(comparison.load(committed / "reports" / "results", tracked))
    for package, least in (("torch", 12), ("numpy", 6)):
        made = histories[package]
        assert len(made.releases) >= least and len(made.replicates)
        times = made.rows[made.rows["what"] == "time"]
        assert (times.groupby("series")["release"].size() == len(made.releases)).mean() > 0.9
        assert (times["processes"] >= 4).mean() > 0.95
        assert len(made.changes)
        # all sessions on Zen 5 show this change, and none on Zen 4: see docs/lab-notes.md
        alarms = made.false_alarms[["series", "release"]].itertuples(index=False, name=None)
        assert set(alarms) <= {("limits.Memcpy.timeit_copy(4096)", "2.6.0")}


# --- both sides in turns ---------------------------------------------------------------------------------------------


def test_patterns_name_exactly_the_cells():
    names = ["a.B.timeit_c('f(x)', 8)", "a.B.timeit_c('f(x)', 64)", "a.B.timeit_d"]
    found = exact_patterns(names)
    others = ["a.B.timeit_c('f(x)', 80)", "a.B.timeit_dd", "xa.B.timeit_d"]
    assert len(found) == 2 and len(exact_patterns([f"a.B.timeit_c({number})" for number in range(1200)])) == 3
    assert [cell for cell in names + others if any(re.search(pattern, cell) for pattern in found)] == names


@pytest.fixture
def collected(project, ledger_of, tmp_path, monkeypatch, all_quiet):
    """A function that measures both sides of the tiny suite in turns, as --run does, and compares them."""

    def collect(targets, only, rounds):
        ledger_of(json.dumps(RELEASES))
        for name, value in environment(project.home, **project.variables).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(engine, "new_id", lambda: str(tmp_path / "run"))
        engine.register("tester")
        chosen = [selection.find_target(str(target)) for target in targets]
        plan = Plan("tester", "tracking", only, rounds, command="test")
        base, new = runner.measure_sides(
            chosen, plan, lambda base, new: runner.Outlook(False, [], 0), Suite(project.root)
        )
        return compare_by_name(str(base), str(new), RESULTS, None, Settings())

    return collect


def test_before_sides_are_measured(tmp_path, monkeypatch, refusal):
    """--run measures with the pinned asv of this Python, keeps as many environments as other verbs, and refuses a
    machine that is being measured."""

    def measure_sides(*arguments, **_):
        raise UserError(f"keeps {environments.environment_limit()}")

    monkeypatch.setattr(compare, "ROOT", tmp_path)
    monkeypatch.setattr(journal, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(runner, "measure_sides", measure_sides)
    command = (compare, "--run", "torch-2.6.0", "torch-2.13.0", "--machine", "box")
    assert refusal(*command) == "keeps 6"
    with lock_directory(tmp_path / ".asv" / "runs" / "box"):
        assert refusal(*command).startswith("box is being measured already, by process ")
    monkeypatch.setattr(environments, "pins", lambda: {"asv": "0.1"})
    assert "rests on asv 0.1" in refusal(*command)


def test_both_sides_are_measured_in_turns(collected, tmp_path):
    """Both sides have the same cells, paired processes and matching records; two processes decide nothing.

    A process took its samples in turns with that of the other side.
    """
    result = collected(["installed", sys.executable], r"'torch\.from_numpy\(a\)'.*, 4096\)", 2)
    assert result.interleaved and len(result.cells) == 1
    for side in ("base", "new"):
        (taken,) = (tmp_path / "run" / side).rglob(f"*{files.MEASUREMENTS}")
        lines = files.read_measurements(taken)
        assert [(line.round, line.in_turns, len(line.seconds)) for line in lines] == [(0, True, 100), (1, True, 100)]
        assert set(result.cells[f"{side}_processes"]) == {2}
    assert result.base["toolchain"] == result.new["toolchain"]
    assert result.exit_code == 2 and set(result.cells["verdict"]) == {INCONCLUSIVE}


def test_a_side_that_cannot_measure_says_why(collected, tmp_path):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    with pytest.raises(UserError, match="base: .*asv") as caught:
        collected([tmp_path / "bare", "installed"], "", 1)
    assert len(str(caught.value).splitlines()) == 1
